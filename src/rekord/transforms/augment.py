"""Random augmentation of images with their masks and boxes, so that copies of a record differ."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image as Pillow
from PIL import ImageEnhance

from rekord import _core
from rekord.codec.columns import Array
from rekord.codec.images.inspect import FORMAT_NAMES, GeneratedMask, encode_grey_png
from rekord.codec.images.jpeg import Size
from rekord.codec.images.store import store_image
from rekord.errors import closest_match, error, preview
from rekord.schema import Image, Schema
from rekord.transforms.base import Row, column_errors
from rekord.transforms.image_row import (
    ANY_IMAGE,
    OUTLINE_MASK,
    ImagePipeline,
    ImagePixels,
    decode_ids,
    load_pixels,
)
from rekord.transforms.images import ImageState, bind_image_transforms

_BLOCK_PIXELS = 1 << 20


class AffineMap(NamedTuple):
    """Where each pixel of the new image comes from: x = a·X + b·Y + c, y = d·X + e·Y + f, in pixels."""

    a: float
    b: float
    c: float
    d: float
    e: float
    f: float

    @classmethod
    def sample(cls, names: Sequence[str], size: Size, roll: Callable[[str], float]) -> AffineMap | None:
        """A random map for an image of this size; None if nothing moves."""
        height, width = size
        if _GEOMETRIC_AUGMENTATIONS.isdisjoint(names) or 0 in size:
            return None
        # Flipped half of the time, and always if nothing else can make a copy differ.
        is_alone = tuple(names) == ("flip",)
        mirror = -1.0 if "flip" in names and (is_alone or roll("flip") < 0.5) else 1.0
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
        """Whether pixels are only permuted."""
        return (abs(self.a), self.b, self.d, self.e) == (1.0, 0.0, 0.0, 1.0)


def warp_image(image: Any, turn: AffineMap) -> Any:
    """The pixels of an image after a map."""
    width, height = image.size
    if turn.b or turn.d:
        return image.transform(image.size, Pillow.Transform.AFFINE, tuple(turn), Pillow.Resampling.BILINEAR)
    if not turn.is_flip:
        # Without rotation, `resize` is several times as fast.
        left, right = sorted((turn.c, turn.c + turn.a * width))
        box = (max(left, 0.0), max(turn.f, 0.0), min(right, width), min(turn.f + turn.e * height, height))
        image = image.resize(image.size, Pillow.Resampling.BILINEAR, box=box)
    return image.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT) if turn.a < 0 else image


def warp_ids(ids: Array, turn: AffineMap) -> Array:
    """Class ids after a map: each pixel has the id of the nearest one before."""
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


class WarpedFrame:
    """Moves coordinates with an affine map, as `CoordinateFrame` does for placements."""

    def __init__(self, size: Size, turn: AffineMap) -> None:
        self._sides = np.array([size[1], size[0]], np.float64)
        self._turn = turn

    @property
    def area_scale(self) -> float:
        """The factor by which areas grow."""
        turn = self._turn
        return 1 / abs(turn.a * turn.e - turn.b * turn.d)

    def boxes(self, boxes: Array) -> tuple[Array, Array]:
        """The smallest upright boxes around the mapped ones, clipped to the image, and which of them remain."""
        turn = self._turn
        x0, y0, x1, y1 = boxes.astype(np.float64).reshape(-1, 4).T
        had_area = (x1 > x0) & (y1 > y0)
        corners = np.stack([np.stack(pair, -1) for pair in ((x0, y0), (x1, y0), (x0, y1), (x1, y1))], 1)
        forth = np.linalg.inv(np.array([[turn.a, turn.b], [turn.d, turn.e]]))
        moved = (corners * self._sides - np.array([turn.c, turn.f])) @ forth.T / self._sides
        first, last = moved.min(axis=1), moved.max(axis=1)
        if not turn.is_flip:  # a flip clips nothing
            first, last = np.clip(first, 0, 1), np.clip(last, 0, 1)
        kept = (last > first).all(axis=1) | ~had_area
        return np.concatenate([first, last], axis=1).astype(np.float32), kept


RandomFunction: TypeAlias = Callable[[str], float]
"""A number in [0, 1) for each name, always the same."""

AUGMENTATIONS = ("flip", "crop", "rotate", "colour")

_GEOMETRIC_AUGMENTATIONS = frozenset(["flip", "crop", "rotate"])
_ALIASES = {"color": "colour"}
_MAX_UINT16 = 65_535.0


def seeded_random(*words: object) -> RandomFunction:
    """Pseudorandom numbers that depend only on the words: the same on every machine and in any order."""
    key = hashlib.blake2b("\0".join(map(str, words)).encode("utf-8", "surrogateescape")).digest()

    def roll(name: str) -> float:
        drawn = hashlib.blake2b(name.encode(), key=key, digest_size=8).digest()
        return (int.from_bytes(drawn, "little") >> 11) / (1 << 53)

    return roll


def validate_augmentations(given: object) -> tuple[str, ...]:
    """Names of augmentations, without duplicates and in the order they are applied."""
    names = list(given) if isinstance(given, (list, tuple)) else [given]
    chosen = [_ALIASES.get(one, one) if isinstance(one, str) else one for one in names]
    for one in chosen:
        if one not in AUGMENTATIONS:
            near = closest_match(one, AUGMENTATIONS) if isinstance(one, str) else None
            raise error(
                "U605",
                f"unknown augmentation {preview(one)}",
                expected="some of " + ", ".join(AUGMENTATIONS),
                found=preview(one),
                do=f'augment=["{near or "flip"}"]',
            )
    return tuple([one for one in AUGMENTATIONS if one in chosen])


@dataclass(frozen=True)
class Augmentation:
    """Augments the images of rows. A row may be changed in place."""

    pipelines: tuple[ImageAugmenter, ...]
    touches: frozenset[str]

    def __call__(self, row: Row, roll: RandomFunction) -> Row:
        """The augmented row; raises an error with the column for an invalid value."""
        for pipeline in self.pipelines:
            pipeline.augment_row(row, roll)
        return row


def build_augmentation(names: Sequence[str], schema: Schema, *, per_box: Sequence[str] | None = None) -> Augmentation:
    """The augmentations with these names for rows of a schema. Raises a SchemaError if it has no images."""
    augment = _AugmentTransform(tuple(names), None if per_box is None else tuple(per_box))
    bound, _ = bind_image_transforms([augment], schema, {})
    pipelines: Sequence[ImagePipeline] = bound.apply.pipelines  # type: ignore[attr-defined]
    augmenters = tuple([ImageAugmenter(one.layers, one.feature, (), one.output, augment.names) for one in pipelines])
    return Augmentation(augmenters, bound.touches or frozenset(schema))


@dataclass(frozen=True)
class _AugmentTransform:
    """Augmentations as a transform, to find the columns that belong together."""

    names: tuple[str, ...]
    per_box: tuple[str, ...] | None
    columns: tuple[str, ...] | None = None

    name = "augment"

    def step(self) -> None:
        return None

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        moves = not _GEOMETRIC_AUGMENTATIONS.isdisjoint(self.names)
        drops_boxes = "crop" in self.names or "rotate" in self.names
        return replace(known, moves=moves, drops_boxes=drops_boxes, per_box=self.per_box)


@dataclass(frozen=True)
class ImageAugmenter(ImagePipeline):
    """Augments the image of a row. Its size, its format and the columns that describe it do not change."""

    names: tuple[str, ...] = ()

    def augment_row(self, row: Row, roll: RandomFunction) -> None:
        """Augment the image with its masks and boxes."""
        value = row.get(self.layers.image)
        if value is None:
            return
        with column_errors(self.layers.image):
            data = value if isinstance(value, bytes) else store_image(value, ANY_IMAGE)
            facts = _core.inspect_image(data, False)
            size = (facts.height, facts.width)
            pixels = load_pixels(data, None, "nearest")
        turn = AffineMap.sample(self.names, size, roll)
        if turn is not None:
            pixels.image = warp_image(pixels.image, turn)
        if "colour" in self.names:
            adjust_colours(pixels, roll)
        format = FORMAT_NAMES.get(facts.format, "png")
        self._store(row, pixels, size, data, format, self._format(format))
        if turn is not None:
            for name, mask in self.layers.masks.items():
                if row.get(name) is not None:
                    ids = decode_ids(row[name], mask, size, name)
                    row[name] = GeneratedMask(encode_grey_png(warp_ids(ids, turn)))
            self._boxes(row, WarpedFrame(size, turn))  # type: ignore[arg-type]
            for name in self.layers.outlines:
                if row.get(name) is not None:
                    found = [decode_ids(bytes(data), OUTLINE_MASK, size, name) for data in row[name]]
                    row[name] = [encode_grey_png(warp_ids(ids, turn)) for ids in found]


def adjust_colours(pixels: ImagePixels, roll: RandomFunction) -> None:
    """Change brightness, contrast and saturation; alpha stays."""
    brightness, contrast, saturation = [_random_factor(roll, one) for one in ("brightness", "contrast", "saturation")]
    image: Any = pixels.image
    if image.mode == "F":  # 16-bit grey
        values = np.asarray(image) * brightness
        middle = values.mean()
        values = np.clip(middle + (values - middle) * contrast, 0, _MAX_UINT16)
        pixels.image = Pillow.fromarray(values.astype(np.float32))
        return
    image = ImageEnhance.Brightness(image).enhance(brightness)
    image = ImageEnhance.Contrast(image).enhance(contrast)
    if image.mode.startswith("RGB"):
        image = ImageEnhance.Color(image).enhance(saturation)
    pixels.image = image


def _random_factor(roll: RandomFunction, name: str) -> float:
    """A factor that is always far enough from 1 to change the image."""
    by = 0.1 + 0.2 * roll(f"colour/{name}/by")
    return 1 + by if roll(f"colour/{name}/up") < 0.5 else 1 - by
