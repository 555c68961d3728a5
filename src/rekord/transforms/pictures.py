"""Pictures in another form: `encode`, `decode`, `normalize` and `grayscale`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rekord.codec.columns import Array
from rekord.errors import RekordError
from rekord.schema import Image
from rekord.schema.refuse import refuse
from rekord.transforms.arguments import checked_columns, numbers, one_of, refused
from rekord.transforms.canvas import Pixels
from rekord.transforms.moves import Move, Size
from rekord.transforms.picture_binding import Known, Pictured
from rekord.transforms.picture_row import JPEG_QUALITY, Output, Step

FORMATS = ("jpeg", "png", "webp")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

_USUAL_CHANNELS = 3


def encode(
    format: Literal["jpeg", "png", "webp"] = "jpeg",
    quality: int | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> Encode:
    """Images in one format. Masks stay PNG.

    JPEG has a quality of 95 unless told, and no alpha; WebP without a quality is lossless. A PNG that is to be a PNG
    stays as it is.
    """
    name = one_of("format", format, FORMATS)
    if quality is not None:
        whole = hasattr(quality, "__index__") and not isinstance(quality, bool)
        if name == "png" or not whole or not 1 <= quality <= 100:
            expected = "None for PNG, which is lossless" if name == "png" else "a whole number from 1 to 100"
            raise refused("quality", quality, expected, "leave it out" if name == "png" else "quality=90")
        quality = int(quality)
    return Encode(
        format=name,
        quality=JPEG_QUALITY if name == "jpeg" and quality is None else quality,
        columns=checked_columns("columns", columns),
    )


@dataclass(frozen=True, kw_only=True)
class Encode(Pictured):
    """The transform that `encode` makes."""

    format: str
    quality: int | None
    columns: tuple[str, ...] | None

    name = "encode"

    def options(self) -> Mapping[str, Any]:
        return {"format": self.format, "quality": self.quality, "columns": _listed(self.columns)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Encode:
        """The transform that has these options."""
        return encode(**options)

    def step(self) -> None:
        return None

    def after(self, known: Known, column: str, image: Image) -> Known:
        return replace(known, output=replace(known.output, format=self.format, quality=self.quality))


def decode(*, columns: Sequence[str] | None = None) -> Decode:
    """Images as uint8 tensors of (height, width, channels), their masks as tensors of class ids (height, width).

    There are as many channels as the schema declares, or 3. All pictures must have one size: behind `resize` or
    `crop`.
    """
    return Decode(columns=checked_columns("columns", columns))


@dataclass(frozen=True, kw_only=True)
class Decode(Pictured):
    """The transform that `decode` makes."""

    columns: tuple[str, ...] | None

    name = "decode"

    def options(self) -> Mapping[str, Any]:
        return {"columns": _listed(self.columns)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Decode:
        """The transform that has these options."""
        return decode(**options)

    def step(self) -> None:
        return None

    def after(self, known: Known, column: str, image: Image) -> Known:
        _check_size(self.name, column, known)
        return replace(known, output=Output(form="pixels", channels=_channels(known, image)))


def normalize(
    mean: float | Sequence[float] | Literal["imagenet"] = 0.0,
    std: float | Sequence[float] | Literal["imagenet"] = 1.0,
    *,
    scale: float = 1 / 255,
    columns: Sequence[str] | None = None,
) -> Normalize:
    """Images as float32 tensors: (pixel · scale - mean) / std, for all channels or for each; masks as by `decode`.

    mean="imagenet" stands for the mean and the deviation of ImageNet's pixels from 0 to 1. Each value is reckoned in
    double precision, and rounded once. Numbers are for `standardize`.
    """
    if _is_one_of(mean, "imagenet") or _is_one_of(std, "imagenet"):
        mean = IMAGENET_MEAN if _is_one_of(mean, "imagenet", 0.0) else mean
        std = IMAGENET_STD if _is_one_of(std, "imagenet", 1.0) else std
    made = Normalize(
        mean=numbers("mean", mean),
        std=numbers("std", std),
        scale=numbers("scale", scale)[0],
        columns=checked_columns("columns", columns),
    )
    if 0 in made.std:
        raise refused("std", std, "numbers other than 0: it is divided by them", "std=1.0")
    return made


def _is_one_of(value: object, *known: str | float) -> bool:
    return isinstance(value, (str, int, float)) and value in known  # an array would be compared one by one


@dataclass(frozen=True, kw_only=True)
class Normalize(Pictured):
    """The transform that `normalize` makes."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float
    columns: tuple[str, ...] | None

    name = "normalize"

    def options(self) -> Mapping[str, Any]:
        return {
            "mean": list(self.mean),
            "std": list(self.std),
            "scale": self.scale,
            "columns": _listed(self.columns),
        }

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Normalize:
        """The transform that has these options."""
        return normalize(**options)

    def step(self) -> None:
        return None

    def after(self, known: Known, column: str, image: Image) -> Known:
        _check_size(self.name, column, known)
        channels = _channels(known, image)
        for name, given in (("mean", self.mean), ("std", self.std)):
            if len(given) not in (1, channels):
                raise refuse(
                    "S138",
                    f"`{name}` has {len(given)} numbers, and `{column}` {channels} channels",
                    column=column,
                    expected=f"1 or {channels} numbers",
                    found=f"{len(given)}",
                    do=f"give one number for each channel, or rk.Image(channels={len(given)})",
                )
        return replace(known, output=Output(form="floats", channels=channels, table=self._table(channels)))

    def _table(self, channels: int) -> Array:
        """The float of each value of each channel."""
        values = np.arange(256, dtype=np.float64) * self.scale
        mean, std = (np.broadcast_to(np.array(one), channels)[:, None] for one in (self.mean, self.std))
        table: Array = ((values - mean) / std).astype(np.float32)
        return table


def grayscale(*, columns: Sequence[str] | None = None) -> Grayscale:
    """Images without colours, of one channel: 0.299 red + 0.587 green + 0.114 blue. Alpha is dropped."""
    return Grayscale(columns=checked_columns("columns", columns))


@dataclass(frozen=True, kw_only=True)
class Grayscale(Pictured):
    """The transform that `grayscale` makes."""

    columns: tuple[str, ...] | None

    name = "grayscale"

    @property
    def filter(self) -> str:
        """None is needed."""
        return "nearest"

    def options(self) -> Mapping[str, Any]:
        return {"columns": _listed(self.columns)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Grayscale:
        """The transform that has these options."""
        return grayscale(**options)

    def step(self) -> Step:
        return self

    def after(self, known: Known, column: str, image: Image) -> Known:
        return replace(known, output=replace(known.output, channels=1))

    def move(self, size: Size) -> Move | None:
        """Nowhere."""
        return None

    def changes(self, move: Move | None) -> bool:
        """Always: what mode a picture has is known when it is decoded."""
        return True

    def paint(self, pixels: Pixels, move: Move | None) -> None:
        """Do it."""
        pixels.grey()


def _channels(known: Known, image: Image) -> int:
    return known.output.channels or image.channels or _USUAL_CHANNELS


def _check_size(transform: str, column: str, known: Known) -> None:
    if known.size is None:
        raise _no_size(transform, column)


def _no_size(transform: str, column: str) -> RekordError:
    return refuse(
        "S139",
        f"`{transform}` needs pictures of one size, and those of `{column}` may have any",
        column=column,
        expected="a tensor of one shape",
        found="images, whose sizes no schema says",
        do=f"resize before `{transform}`: rk.transforms.resize(224, 224), or --resize 224x224",
    )


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
