"""Transforms of images with their masks and boxes: resize, crop, encode, decode, normalize, grayscale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from rekord.arguments import check_keywords, invalid, one_of, optional_names, positive_int
from rekord.codec.columns import Array
from rekord.codec.values import InvalidValue
from rekord.errors import schema_error
from rekord.schema import Image
from rekord.transforms.base import validate_colour, validate_numbers, validate_side
from rekord.transforms.image_binding import BindableImageTransform, ImageState
from rekord.transforms.image_row import (
    FILTERS,
    JPEG_QUALITY,
    ImageOutput,
    ImagePixels,
    PixelOperation,
    Placement,
    Size,
)

ENCODE_FORMATS = ("jpeg", "png", "webp")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_DEFAULT_CHANNELS = 3


@check_keywords
def encode(
    format: Literal["jpeg", "png", "webp"] = "jpeg",
    quality: int | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> Encode:
    """Encode images in one format. Masks stay PNG.

    JPEG has no alpha, and quality 95 by default; WebP without a quality is lossless. A PNG encoded as PNG keeps its
    bytes.
    """
    name = one_of("format", format, ENCODE_FORMATS)
    if quality is not None:
        if name == "png":
            raise invalid("quality", quality, "None: PNG is lossless", "quality=None")
        quality = positive_int("quality", quality, most=100, do="quality=90")
    return Encode(
        format=name,
        quality=JPEG_QUALITY if name == "jpeg" and quality is None else quality,
        columns=optional_names("columns", columns),
    )


@dataclass(frozen=True, kw_only=True)
class Encode(BindableImageTransform):
    format: str
    quality: int | None
    columns: tuple[str, ...] | None

    name = "encode"

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        return replace(known, output=replace(known.output, format=self.format, quality=self.quality))


@check_keywords
def decode(*, columns: Sequence[str] | None = None) -> Decode:
    """Decode images to uint8 tensors (height, width, channels), and masks to tensors of class ids (height, width).

    The number of channels is the one that the schema declares, or 3. All images must have the same size, so it comes
    after `resize` or `crop`.
    """
    return Decode(columns=optional_names("columns", columns))


@dataclass(frozen=True, kw_only=True)
class Decode(BindableImageTransform):
    columns: tuple[str, ...] | None

    name = "decode"

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        _check_size(self.name, column, known)
        return replace(known, output=ImageOutput(form="pixels", channels=_count_channels(known, image)))


@check_keywords
def normalize(
    mean: float | Sequence[float] | Literal["imagenet"] = 0.0,
    std: float | Sequence[float] | Literal["imagenet"] = 1.0,
    *,
    scale: float = 1 / 255,
    columns: Sequence[str] | None = None,
) -> Normalize:
    """Convert images to float32 tensors: (pixel · scale - mean) / std, for all channels or per channel.

    Masks are decoded as by `decode`. mean="imagenet" is the mean and standard deviation of ImageNet for pixels from 0
    to 1. Each value is computed in double precision and rounded once. For columns of numbers, use `standardize`.
    """
    if _is_one_of(mean, "imagenet") or _is_one_of(std, "imagenet"):
        mean = IMAGENET_MEAN if _is_one_of(mean, "imagenet", 0.0) else mean
        std = IMAGENET_STD if _is_one_of(std, "imagenet", 1.0) else std
    made = Normalize(
        mean=validate_numbers("mean", mean),
        std=validate_numbers("std", std),
        scale=validate_numbers("scale", scale)[0],
        columns=optional_names("columns", columns),
    )
    if 0 in made.std:
        raise invalid("std", std, "nonzero numbers: pixels are divided by them", "std=1.0")
    return made


def _is_one_of(value: object, *known: str | float) -> bool:
    return isinstance(value, (str, int, float)) and value in known  # an array would be compared elementwise


@dataclass(frozen=True, kw_only=True)
class Normalize(BindableImageTransform):
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float
    columns: tuple[str, ...] | None

    name = "normalize"

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        _check_size(self.name, column, known)
        channels = _count_channels(known, image)
        for name, given in (("mean", self.mean), ("std", self.std)):
            if len(given) not in (1, channels):
                raise schema_error(
                    "S138",
                    f"`{name}` has {len(given)} numbers, but `{column}` has {channels} channels",
                    column=column,
                    expected=f"1 or {channels} numbers",
                    found=f"{len(given)}",
                    do=f"pass one number per channel, or declare rk.Image(channels={len(given)})",
                )
        return replace(known, output=ImageOutput(form="floats", channels=channels, table=self._table(channels)))

    def _table(self, channels: int) -> Array:
        """The float for each value of each channel."""
        values = np.arange(256, dtype=np.float64) * self.scale
        mean, std = (np.broadcast_to(np.array(one), channels)[:, None] for one in (self.mean, self.std))
        table: Array = ((values - mean) / std).astype(np.float32)
        return table


@check_keywords
def grayscale(*, columns: Sequence[str] | None = None) -> Grayscale:
    """Convert images to one grey channel: 0.299 red + 0.587 green + 0.114 blue. Alpha is dropped."""
    return Grayscale(columns=optional_names("columns", columns))


@dataclass(frozen=True, kw_only=True)
class Grayscale(BindableImageTransform):
    columns: tuple[str, ...] | None

    name = "grayscale"
    filter: ClassVar[str] = "nearest"

    def step(self) -> PixelOperation:
        return self

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        return replace(known, output=replace(known.output, channels=1))

    def move(self, size: Size) -> Placement | None:
        return None

    def changes(self, move: Placement | None) -> bool:
        return True  # the mode of an image is known only when it is decoded

    def apply_to_pixels(self, pixels: ImagePixels, move: Placement | None) -> None:
        pixels.grey()


def _count_channels(known: ImageState, image: Image) -> int:
    return known.output.channels or image.channels or _DEFAULT_CHANNELS


def _check_size(transform: str, column: str, known: ImageState) -> None:
    if known.size is None:
        raise schema_error(
            "S139",
            f"`{transform}` needs images of one size, but `{column}` may have images of any size",
            column=column,
            expected="images of one size",
            found="images of unknown size",
            do=f"add rk.transforms.resize(224, 224) (--resize 224x224) before `{transform}`",
        )


Filter: TypeAlias = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
Fit: TypeAlias = Literal["stretch", "pad", "crop", "within"]

FIT_MODES = ("stretch", "pad", "crop", "within")


@check_keywords
def resize(
    height: int,
    width: int,
    *,
    filter: Filter = "bilinear",
    fit: Fit = "stretch",
    pad: int | Sequence[int] = 0,
    columns: Sequence[str] | None = None,
    per_box: Sequence[str] | None = None,
) -> Resize:
    """Resize images to one size, with their masks and boxes.

    `fit` decides what happens to a different aspect ratio: "stretch" ignores it; "pad" keeps it and fills the rest
    with the colour `pad`, masks with `ignore` (or 0); "crop" keeps it and crops both ends; "within" keeps it, never
    enlarges, and may leave a side smaller. All filters except "nearest" average the pixels when they shrink an image.
    Masks always have the class of the nearest pixel.

    Boxes that are cropped away are dropped, with their values in the columns under the same record key
    (`image/object/…`) and in the columns in `per_box`.
    """
    return Resize(
        height=validate_side("height", height),
        width=validate_side("width", width),
        filter=one_of("filter", filter, tuple(FILTERS)),
        fit=one_of("fit", fit, FIT_MODES),
        pad=validate_colour("pad", pad),
        columns=optional_names("columns", columns),
        per_box=optional_names("per_box", per_box),
    )


class _PlacingTransform(BindableImageTransform):
    """Moves pixels, and with them masks and boxes."""

    per_box: tuple[str, ...] | None

    def step(self) -> PixelOperation:
        return self  # type: ignore[return-value]

    def changes(self, move: Placement | None) -> bool:
        return move is not None

    def _after(self, known: ImageState, *, size: Size | None, drops_boxes: bool) -> ImageState:
        per_box = None
        if known.per_box is not None or self.per_box is not None:
            per_box = tuple(dict.fromkeys([*(known.per_box or ()), *(self.per_box or ())]))
        drops_boxes = drops_boxes or known.drops_boxes
        return replace(known, size=size, moves=True, drops_boxes=drops_boxes, per_box=per_box)


@dataclass(frozen=True, kw_only=True)
class Resize(_PlacingTransform):
    height: int
    width: int
    filter: str
    fit: str
    pad: tuple[int, ...]
    columns: tuple[str, ...] | None
    per_box: tuple[str, ...] | None

    name = "resize"

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        size = None if self.fit == "within" else (self.height, self.width)
        return self._after(known, size=size, drops_boxes=self.fit == "crop")

    def move(self, size: Size) -> Placement | None:
        wanted = (self.height, self.width)
        if size == wanted:
            return None
        whole = (0.0, 0.0, float(size[0]), float(size[1]))
        if self.fit == "stretch":
            return Placement(whole, wanted, wanted, (0, 0))
        if self.fit == "crop":
            return Placement(_center_part(size, wanted), wanted, wanted, (0, 0))
        scale = min(self.height / size[0], self.width / size[1])
        if self.fit == "within" and scale >= 1:
            return None
        inner = (_scale_length(size[0], scale, self.height), _scale_length(size[1], scale, self.width))
        if self.fit == "within":
            return Placement(whole, inner, inner, (0, 0))
        return Placement(whole, inner, wanted, ((self.height - inner[0]) // 2, (self.width - inner[1]) // 2))

    def apply_to_pixels(self, pixels: ImagePixels, move: Placement | None) -> None:
        assert move is not None
        pixels.move(move, self.filter, self.pad)


@check_keywords
def crop(
    height: int,
    width: int,
    *,
    at: Literal["center"] | tuple[int, int] = "center",
    columns: Sequence[str] | None = None,
    per_box: Sequence[str] | None = None,
) -> Crop:
    """Crop each image, with its masks and boxes: the centre, or the part that starts `at` a row and a column.

    A smaller image is a bad row. Boxes are treated as by `resize`.
    """
    if at != "center" and not (
        isinstance(at, (tuple, list))
        and len(at) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in at)
    ):
        raise invalid("at", at, '"center", or (row, column) of the first pixel', 'at="center"')
    return Crop(
        height=validate_side("height", height),
        width=validate_side("width", width),
        at=None if at == "center" else (int(at[0]), int(at[1])),
        columns=optional_names("columns", columns),
        per_box=optional_names("per_box", per_box),
    )


@dataclass(frozen=True, kw_only=True)
class Crop(_PlacingTransform):
    height: int
    width: int
    at: Size | None  # None: the centre
    columns: tuple[str, ...] | None
    per_box: tuple[str, ...] | None

    name = "crop"
    filter: ClassVar[str] = "nearest"

    def options(self) -> Mapping[str, Any]:
        return {**super().options(), "at": "center" if self.at is None else list(self.at)}

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        return self._after(known, size=(self.height, self.width), drops_boxes=True)

    def move(self, size: Size) -> Placement | None:
        wanted = (self.height, self.width)
        top, left = self.at or ((size[0] - self.height) // 2, (size[1] - self.width) // 2)
        if min(top, left) < 0 or top + self.height > size[0] or left + self.width > size[1]:
            place = "" if self.at is None else f" at row {top:,}, column {left:,}"
            raise InvalidValue(
                "E384",
                "is smaller than the crop",
                expected=f"at least {self.height:,} × {self.width:,} pixels{place} (height × width)",
                found=f"{size[0]:,} × {size[1]:,}",
                do=f'rk.transforms.resize({self.height}, {self.width}, fit="crop"), for images of any size',
            )
        if size == wanted:
            return None
        return Placement((float(top), float(left), float(self.height), float(self.width)), wanted, wanted, (0, 0))

    def apply_to_pixels(self, pixels: ImagePixels, move: Placement | None) -> None:
        assert move is not None
        pixels.move(move, self.filter, (0,))


def _center_part(size: Size, wanted: Size) -> tuple[float, float, float, float]:
    """The largest part in the centre of an image that has the aspect ratio of another size."""
    height, width = size
    # Compared as integers: one of the two sides stays exactly as it is.
    if height * wanted[1] > width * wanted[0]:
        kept = width * wanted[0] / wanted[1]
        return (height - kept) / 2, 0.0, kept, float(width)
    kept = height * wanted[1] / wanted[0]
    return 0.0, (width - kept) / 2, float(height), kept


def _scale_length(length: int, scale: float, most: int) -> int:
    return min(max(round(length * scale), 1), most)
