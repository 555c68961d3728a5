"""The image and mask columns of a batch, decoded to arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from rekord.codec.columns import Array, Column, Offsets, Optional, Ragged, Strings, Valid
from rekord.codec.looking import Unsound
from rekord.errors import error
from rekord.schema import Feature, Image, Mask

Size: TypeAlias = tuple[int, int]

_USUAL_CHANNELS = 3


@dataclass(frozen=True)
class DecodedPictures:
    """Decodes these columns of a batch, the others stay; what `decode=True` asks for.

    Images are uint8 of shape (height, width, channels), with the channels that the schema says, or 3; masks are class
    ids of shape (height, width). Where all of a batch have one size the column is one array, or an `rk.Optional` for
    an optional column; where sizes differ, it is an object array with one array a row and None where there is none.
    Pictures of steps are the values of an `rk.Ragged` in the same way, with zeros for those that are missing.

    `resize` (height, width) is bilinear with antialiasing for images, nearest for masks.

    A DecodeError's location has the row in the batch as `row`; who knows the file makes a record of it.
    """

    features: Mapping[str, Feature]
    resize: Size | None = None

    def __call__(self, batch: dict[str, Column]) -> dict[str, Column]:
        out = dict(batch)
        for name, feature in self.features.items():
            column = batch.get(name)
            if isinstance(column, Strings):
                pixels = self._stacked(name, feature, column, None)
                valid = _all_valid(column)
                dense = pixels.dtype != object
                out[name] = Optional(pixels, valid) if feature.optional and dense else pixels
            elif isinstance(column, Ragged) and isinstance(column.values, Strings):
                pixels = self._stacked(name, feature, column.values, column.offsets)
                out[name] = Ragged(pixels, column.offsets, valid=column.valid)
        return out

    def _stacked(self, name: str, feature: Feature, column: Strings, offsets: Offsets | None) -> Array:
        """All pictures as one array, or as an object array where their sizes differ."""
        decode, shape, dtype = _decoder(feature, self.resize)
        if self.resize is not None:
            out = np.zeros((len(column), *shape), dtype)
            for at, pixels in self._each(name, column, offsets, decode):
                out[at] = pixels
            return out
        found: Array = np.full(len(column), None, object)
        sizes = set()
        for at, pixels in self._each(name, column, offsets, decode):
            found[at] = pixels
            sizes.add(pixels.shape)
        if len(sizes) > 1:
            return found
        dense = np.zeros((len(column), *(sizes.pop() if sizes else shape)), dtype)
        for at, pixels in enumerate(found):
            if pixels is not None:
                dense[at] = pixels
                found[at] = None  # one copy of a large picture is enough
        return dense

    def _each(
        self, name: str, column: Strings, offsets: Offsets | None, decode: Callable[[bytes], Array]
    ) -> Iterator[tuple[int, Array]]:
        for at in range(len(column)):
            data = column[at]
            if data is None:
                continue
            try:
                pixels = decode(data)
            except Unsound as refused:
                if offsets is None:
                    raise refused.told(name, row=at) from refused.__cause__
                row = int(np.searchsorted(offsets, at, side="right")) - 1
                raise refused.told(name, row=row, step=at - int(offsets[row])) from refused.__cause__
            yield at, pixels


def _decoder(
    feature: Feature, resize: Size | None
) -> tuple[Callable[[bytes], Array], tuple[int, ...], type[np.generic]]:
    """How one picture of a column is decoded, its shape (0 where pictures have sizes of their own), its dtype."""
    try:
        # Loaded when the first picture is: most programs that import rekord decode none.
        from rekord.codec.masks import Ids
        from rekord.codec.pixels import image_pixels, mask_ids
    except ImportError:
        raise error(
            "U602",
            "decoding images needs Pillow",
            expected="the package pillow",
            found="not installed",
            do="pip install pillow",
        ) from None
    size = (0, 0) if resize is None else resize
    if isinstance(feature, Mask):
        ids = Ids(feature.classes, feature.ignore)
        return lambda data: mask_ids(data, ids, resize), size, np.uint16 if ids.wide else np.uint8
    assert isinstance(feature, Image)
    channels = feature.channels or _USUAL_CHANNELS
    return lambda data: image_pixels(data, channels, resize), (*size, channels), np.uint8


def _all_valid(column: Strings) -> Valid:
    return np.ones(len(column), np.bool_) if column.valid is None else column.valid


def padded_pictures(pictures: Array, pad: Any) -> Array:
    """Pictures of different sizes as one array, each filled up with `pad` at its right and its lower edge.

    A missing one is all padding.
    """
    there = [one for one in pictures if one is not None]
    height, width = (max(one.shape[axis] for one in there) for axis in (0, 1))
    out = np.full((len(pictures), height, width, *there[0].shape[2:]), pad, there[0].dtype)
    for row, one in zip(out, pictures, strict=True):
        if one is not None:
            row[: one.shape[0], : one.shape[1]] = one
    return out
