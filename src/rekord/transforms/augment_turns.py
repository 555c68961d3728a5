"""Where the pixels of a picture go when it is flipped, cropped or rotated and keeps its size.

A picture that is rotated is also enlarged until it covers its whole frame: there are no corners without pixels. They
would tell every copy from the records of other classes, and masks would need a class for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image as Pillow

from rekord.codec.columns import Array
from rekord.transforms.moves import Size

_BLOCK_PIXELS = 1 << 20


class Turn(NamedTuple):
    """Where each place of the new picture comes from: x = a·X + b·Y + c, y = d·X + e·Y + f, in pixels."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @classmethod
    def drawn(cls, names: Sequence[str], size: Size, roll: Callable[[str], float]) -> Turn | None:
        """One for a picture of a size; None where nothing moves."""
        height, width = size
        if not {"flip", "crop", "rotate"} & set(names) or 0 in size:
            return None
        # Flipped half of the time, and always where it is all that can make a copy differ.
        alone = tuple(names) == ("flip",)
        mirror = -1.0 if "flip" in names and (alone or roll("flip") < 0.5) else 1.0
        angle = 0.0
        if "rotate" in names:
            angle = math.radians(3 + 12 * roll("rotate/by")) * (1 if roll("rotate/left") < 0.5 else -1)
        cos, sin = math.cos(angle), math.sin(angle)
        wide, high = width * cos + height * abs(sin), width * abs(sin) + height * cos
        zoom = min(width / wide, height / high)
        shift_x = shift_y = 0.0
        if "crop" in names:
            zoom *= 0.75 + 0.2 * roll("crop/by")
            shift_x = (roll("crop/x") - 0.5) * (width - zoom * wide)
            shift_y = (roll("crop/y") - 0.5) * (height - zoom * high)
        a, b, d, e = zoom * cos * mirror, -zoom * sin, zoom * sin * mirror, zoom * cos
        c = width / 2 + shift_x - a * width / 2 - b * height / 2
        f = height / 2 + shift_y - d * width / 2 - e * height / 2
        return cls(a, b, c, d, e, f)

    @property
    def is_flip(self) -> bool:
        """Whether pixels only change places."""
        return (abs(self.a), self.b, self.d, self.e) == (1.0, 0.0, 0.0, 1.0)


def turned_image(image: Any, turn: Turn) -> Any:
    """The pixels of an image after a turn."""
    width, height = image.size
    if turn.b or turn.d:
        return image.transform(image.size, Pillow.Transform.AFFINE, tuple(turn), Pillow.Resampling.BILINEAR)
    if not turn.is_flip:
        # Upright, which is several times as fast in this way.
        left, right = sorted((turn.c, turn.c + turn.a * width))
        box = (max(left, 0.0), max(turn.f, 0.0), min(right, width), min(turn.f + turn.e * height, height))
        image = image.resize(image.size, Pillow.Resampling.BILINEAR, box=box)
    return image.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT) if turn.a < 0 else image


def turned_ids(ids: Array, turn: Turn) -> Array:
    """Class ids after a turn: each pixel has that of the nearest one before."""
    height, width = ids.shape
    out = np.empty_like(ids)
    columns = np.arange(width) + 0.5
    rows_at_once = max(1, _BLOCK_PIXELS // width)
    for begin in range(0, height, rows_at_once):
        rows = np.arange(begin, min(begin + rows_at_once, height))[:, None] + 0.5
        x = np.floor(turn.a * columns + turn.b * rows + turn.c).astype(np.intp)
        y = np.floor(turn.d * columns + turn.e * rows + turn.f).astype(np.intp)
        out[begin : begin + len(rows)] = ids[np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)]
    return out


class TurnedFrame:
    """What `Frame` is for moves: brings along what is given in coordinates."""

    def __init__(self, size: Size, turn: Turn) -> None:
        self._sides = np.array([size[1], size[0]], np.float64)
        self._turn = turn

    @property
    def area_scale(self) -> float:
        """By how much areas grow."""
        turn = self._turn
        return 1 / abs(turn.a * turn.e - turn.b * turn.d)

    def boxes(self, boxes: Array) -> tuple[Array, Array]:
        """The smallest upright boxes around those that were turned, cut at the frame, and which of them are left."""
        turn = self._turn
        x0, y0, x1, y1 = boxes.astype(np.float64).reshape(-1, 4).T
        had_area = (x1 > x0) & (y1 > y0)
        corners = np.stack([np.stack(pair, -1) for pair in ((x0, y0), (x1, y0), (x0, y1), (x1, y1))], 1)
        forth = np.linalg.inv(np.array([[turn.a, turn.b], [turn.d, turn.e]]))
        moved = (corners * self._sides - np.array([turn.c, turn.f])) @ forth.T / self._sides
        first, last = moved.min(axis=1), moved.max(axis=1)
        if not turn.is_flip:  # which cuts nothing off
            first, last = np.clip(first, 0, 1), np.clip(last, 0, 1)
        kept = (last > first).all(axis=1) | ~had_area
        return np.concatenate([first, last], axis=1).astype(np.float32), kept
