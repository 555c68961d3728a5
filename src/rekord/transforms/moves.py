"""Where the pixels of a picture go when it is resized, cropped or padded: the same for images, masks and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.pixels import nearest

Size: TypeAlias = tuple[int, int]
"""Height and width."""


class Move(NamedTuple):
    """A part of a picture is brought to another size, and put on a ground.

        part              inner, at       size
    ┌─────────────┐         ┌───────────────┐
    │   ┌─────┐   │         │    ┌──────┐   │
    │   │     │   │   ──▶   │    │      │   │
    │   └─────┘   │         │    └──────┘   │
    └─────────────┘         └───────────────┘
    """

    part: tuple[float, float, float, float]  # top, left, height and width, in pixels before
    inner: Size  # of the part afterwards
    size: Size  # of the whole afterwards
    at: Size  # row and column of the part's first pixel

    @property
    def pads(self) -> bool:
        """Whether there is ground beside the part."""
        return self.inner != self.size

    @property
    def scale(self) -> tuple[float, float]:
        """By how much heights and widths grow."""
        return self.inner[0] / self.part[2], self.inner[1] / self.part[3]


def moved_ids(ids: Array, move: Move, ground: int) -> Array:
    """Class ids after a move: each pixel has that of the nearest one before, whatever filter images have."""
    picked: Array = ids[np.ix_(*places(ids.shape, move))]
    if not move.pads:
        return picked
    out = np.full(move.size, ground, ids.dtype)
    (top, left), (height, width) = move.at, move.inner
    out[top : top + height, left : left + width] = picked
    return out


def places(before: tuple[int, ...], move: Move) -> tuple[Array, Array]:
    """The rows and the columns that the nearest pixels come from."""
    top, left, height, width = move.part
    return _places(before[0], top, height, move.inner[0]), _places(before[1], left, width, move.inner[1])


def _places(before: int, begin: float, length: float, after: int) -> Array:
    if begin == 0 and length == before:
        return nearest(before, after)
    middles = begin + (np.arange(after) + 0.5) * length / after
    return np.clip(np.floor(middles), 0, before - 1).astype(np.intp)


class Frame:
    """Where the picture as it was lies in the picture as it is, to bring along what is given in coordinates."""

    def __init__(self, size: Size, moves: Sequence[Move] = ()) -> None:
        self._before = size
        self._after = size
        self._scale = np.ones(2)
        self._shift = np.zeros(2)
        self._seen = np.array([[0.0, 0.0], size])  # the first and the last corner of what was not cut off
        for move in moves:
            self._move(move)

    def _move(self, move: Move) -> None:
        begin, scale, at = np.array(move.part[:2]), np.array(move.scale), np.array(move.at)
        self._scale = self._scale * scale
        self._shift = (self._shift - begin) * scale + at
        self._seen = np.clip((self._seen - begin) * scale + at, at, at + np.array(move.inner))
        self._after = move.size

    @property
    def area_scale(self) -> float:
        """By how much areas grow."""
        return float(self._scale.prod())

    def boxes(self, boxes: Array) -> tuple[Array, Array]:
        """Boxes (xmin, ymin, xmax, ymax as fractions), cut where the picture was, and which of them are left:

        all but those that had an area and have none now.
        """
        sides = np.array(self._before, np.float64)
        corners = boxes.astype(np.float64).reshape(-1, 2, 2)[:, :, ::-1]
        moved = corners * sides * self._scale + self._shift
        # What left the picture before may stay as far outside; only what was cut off ends at the cut.
        cut = np.clip(moved, *self._seen) if self._is_cut else moved
        had_area = np.all(corners[:, 1] > corners[:, 0], axis=1)
        kept = np.all(cut[:, 1] > cut[:, 0], axis=1) | ~had_area
        fractions: Array = (cut / np.array(self._after, np.float64))[:, :, ::-1].reshape(-1, 4)
        return fractions.astype(np.float32), kept

    @property
    def _is_cut(self) -> bool:
        whole = np.array([np.zeros(2), self._before]) * self._scale + self._shift
        return bool((np.abs(whole - self._seen) > 1e-9).any())
