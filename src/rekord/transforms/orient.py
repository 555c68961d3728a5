"""Images turned upright as their EXIF says, with masks and boxes; and images without metadata."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image as Pillow

from rekord import _core
from rekord.arguments import check_keywords, optional_names
from rekord.codec.columns import Array
from rekord.codec.images.inspect import FORMAT_NAMES, GeneratedBytes, GeneratedMask, encode_grey_png, encode_png
from rekord.codec.images.jpeg import Size
from rekord.codec.images.metadata import read_metadata
from rekord.codec.images.metadata import strip_metadata as strip_image_metadata
from rekord.codec.images.store import store_image
from rekord.codec.images.wide import decode_wide_png, is_wide
from rekord.schema import Image, Schema
from rekord.transforms.base import Bound, RecordedTransform, Row, column_errors
from rekord.transforms.image_row import (
    ANY_IMAGE,
    OUTLINE_MASK,
    ImagePipeline,
    ImagePixels,
    decode_ids,
    load_pixels,
)
from rekord.transforms.images import (
    ImageState,
    bind_image_transforms,
    find_descriptive_columns,
    key_stem,
    select_images,
)

_TRANSPOSITIONS = {
    2: Pillow.Transpose.FLIP_LEFT_RIGHT,
    3: Pillow.Transpose.ROTATE_180,
    4: Pillow.Transpose.FLIP_TOP_BOTTOM,
    5: Pillow.Transpose.TRANSPOSE,
    6: Pillow.Transpose.ROTATE_270,
    7: Pillow.Transpose.TRANSVERSE,
    8: Pillow.Transpose.ROTATE_90,
}


@check_keywords
def orient(*, columns: Sequence[str] | None = None) -> Orient:
    """Turn images upright as their EXIF orientation says, with their masks and boxes.

    TensorFlow and `decode=True` ignore the orientation. Masks and boxes are those of the pixels as they are stored. A
    turned JPEG is encoded again, at the quality of the schema or 95, without metadata; an image that is upright keeps
    its bytes.
    """
    return Orient(columns=optional_names("columns", columns))


@check_keywords
def strip_metadata(*, columns: Sequence[str] | None = None) -> StripMetadata:
    """Remove EXIF, XMP, comments and texts from JPEG, PNG and WebP images, without encoding them again.

    Positions (GPS), maker notes, names, dates, thumbnails and what cameras append to a file go; the pixels, the
    colour profile and the orientation stay.
    """
    return StripMetadata(columns=optional_names("columns", columns))


@dataclass(frozen=True, kw_only=True)
class Orient(RecordedTransform):
    columns: tuple[str, ...] | None

    name = "orient"

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema."""
        bound, _ = bind_image_transforms([_ColumnFinder(self.columns)], before, {})
        pipelines: Sequence[ImagePipeline] = bound.apply.pipelines  # type: ignore[attr-defined]
        turners = tuple([_ImageTurner(one.layers, one.feature, (), one.output) for one in pipelines])
        settled = frozenset([("H732", one.layers.image) for one in pipelines])
        return Bound(bound.schema, _OrientFunction(turners), bound.touches, settled)


@dataclass(frozen=True)
class _ColumnFinder:
    """A transform that finds the columns that belong together."""

    columns: tuple[str, ...] | None
    name = "orient"

    def step(self) -> None:
        return None

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        return replace(known, size=None, moves=True)


@dataclass(frozen=True)
class _OrientFunction:
    turners: tuple[_ImageTurner, ...]

    def __call__(self, row: Row) -> Row:
        for turner in self.turners:
            turner.turn_row(row)
        return row


@dataclass(frozen=True)
class _ImageTurner(ImagePipeline):
    """Turns the image of a row upright."""

    def turn_row(self, row: Row) -> None:
        """Turn the image with its masks and boxes, if its EXIF says so."""
        name = self.layers.image
        value = row.get(name)
        if value is None or isinstance(value, np.ndarray):
            return  # pixels have no orientation
        with column_errors(name):
            data = value if isinstance(value, bytes) else store_image(value, ANY_IMAGE)
            orientation = read_metadata(data).orientation
            if orientation == 1:
                row[name] = data
                return
            facts = _core.inspect_image(data, True)
            size = (facts.height, facts.width)
            if is_wide(facts):
                pixels = decode_wide_png(data, facts, facts.channels)
                encoded: bytes = GeneratedBytes(encode_png(turn_pixels(pixels, orientation)))
            else:
                turned = load_pixels(data, None, "nearest")
                turned.image = turned.image.transpose(_TRANSPOSITIONS[orientation])
                format = self._format(FORMAT_NAMES.get(facts.format, "png"))
                encoded = turned.encoded(format, self._quality(format, data))
        self._store(row, _Encoded(encoded), _turn_size(size, orientation), data, "", "")
        self._turn_others(row, size, orientation)

    def _turn_others(self, row: Row, size: Size, orientation: int) -> None:
        for mask, feature in self.layers.masks.items():
            if row.get(mask) is not None:
                ids = decode_ids(row[mask], feature, size, mask)
                row[mask] = GeneratedMask(encode_grey_png(turn_pixels(ids, orientation)))
        self._boxes(row, _TurnedFrame(orientation))  # type: ignore[arg-type]
        for outline in self.layers.outlines:
            if row.get(outline) is not None:
                found = [decode_ids(bytes(one), OUTLINE_MASK, size, outline) for one in row[outline]]
                row[outline] = [encode_grey_png(turn_pixels(ids, orientation)) for ids in found]


class _Encoded(ImagePixels):
    """An image that is encoded already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def encoded(self, format: str, quality: int | None) -> bytes:
        return self._data


class _TurnedFrame:
    """Moves boxes with an orientation, as `CoordinateFrame` does for placements."""

    area_scale = 1.0

    def __init__(self, orientation: int) -> None:
        self._orientation = orientation

    def boxes(self, boxes: Array) -> tuple[Array, Array]:
        """The turned boxes; all of them remain."""
        x0, y0, x1, y1 = boxes.astype(np.float64).reshape(-1, 4).T
        if self._orientation >= 5:  # transposed first
            x0, y0, x1, y1 = y0, x0, y1, x1
        if self._orientation in (2, 3, 6, 7):
            x0, x1 = 1 - x1, 1 - x0
        if self._orientation in (3, 4, 7, 8):
            y0, y1 = 1 - y1, 1 - y0
        return np.stack([x0, y0, x1, y1], axis=1).astype(np.float32), np.ones(len(x0), np.bool_)


def turn_pixels(pixels: Array, orientation: int) -> Array:
    """Pixels of shape (height, width, …) as they are to be shown."""
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _turn_size(size: Size, orientation: int) -> Size:
    return size[::-1] if orientation >= 5 else size


@dataclass(frozen=True, kw_only=True)
class StripMetadata(RecordedTransform):
    columns: tuple[str, ...] | None

    name = "strip_metadata"

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema."""
        names = select_images(self.name, self.columns, before)
        digests = {}
        for name in names:
            found = find_descriptive_columns(before.context, key_stem(name, before[name])).get("digest")
            if found is not None:
                digests[name] = found
        return Bound(before, _StripFunction(tuple(names), digests), frozenset([*names, *digests.values()]))


@dataclass(frozen=True)
class _StripFunction:
    names: tuple[str, ...]
    digests: Mapping[str, str]

    def __call__(self, row: Row) -> Row:
        for name in self.names:
            value = row.get(name)
            if isinstance(value, (list, tuple)):
                row[name] = [self._strip(name, one) for one in value]
            elif value is not None:
                row[name] = stripped = self._strip(name, value)
                digest = self.digests.get(name)
                if digest is not None and stripped is not value and row.get(digest) is not None:
                    row[digest] = hashlib.sha256(stripped).hexdigest()
        return row

    def _strip(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value
        with column_errors(name):
            data = value if isinstance(value, bytes) else store_image(value, ANY_IMAGE)
        stripped = strip_image_metadata(data)
        return value if stripped == data else GeneratedBytes(stripped)
