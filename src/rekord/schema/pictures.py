"""The declared types of pictures: images, masks, and the boxes in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rekord.schema.base import Feature, Kind, checked_name
from rekord.schema.defaults import Misfit, fitted, octets, real
from rekord.schema.refuse import shown
from rekord.schema.shapes import Shape

BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")
_MOST_CLASSES = 2**16  # what a 16-bit PNG can tell apart
_FORMATS = ("jpeg", "png", "gif", "bmp", "webp")
_LOSSY = ("jpeg", "webp")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Encoded(Feature):
    """An encoded picture in one byte string."""

    _stored_as_list: ClassVar[bool] = False

    @property
    def shape(self) -> Shape:
        return ()

    @property
    def dtype(self) -> None:
        return None

    def _fit(self, value: object) -> Any:
        encoded = octets(value)
        if not encoded:
            raise Misfit("the bytes of an encoded picture", value)
        return encoded


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Image(_Encoded):
    """An encoded image. `quality` is needed where arrays are to be written as JPEG."""

    format: str | None = None
    quality: int | None = None
    channels: int | None = None

    def _check_own(self) -> None:
        if self.format is not None:
            name = self.format.lower() if isinstance(self.format, str) else self.format
            self._set("format", "jpeg" if name == "jpg" else name)
            if self.format not in _FORMATS:
                raise self._refuse(
                    "S110",
                    f"has format={shown(name)}",
                    expected="one of " + ", ".join(_FORMATS) + ", or None for any",
                    found=shown(name),
                    do='format="jpeg"',
                )
        if self.quality is not None:
            self._set("quality", self._checked_whole("quality", self.quality, 1, 100))
            if self.format not in _LOSSY:
                raise self._refuse(
                    "S110",
                    "has a quality, but no format that knows one",
                    expected="quality= beside " + " or ".join([f'format="{name}"' for name in _LOSSY]),
                    found=f"format={self.format!r}, quality={self.quality}",
                    do='format="jpeg", or drop quality=',
                )
        if self.channels is not None:
            self._set("channels", self._checked_whole("channels", self.channels, 1, 4))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mask(_Encoded):
    """A single-channel PNG of class ids from 0 to `classes` - 1, and `ignore` where a pixel has no class.

    It belongs to the Image column `of`, or to the only Image of the schema.
    """

    classes: int
    ignore: int | None = None
    of: str | None = None

    def _check_own(self) -> None:
        self._set("classes", self._checked_whole("classes", self.classes, 1, _MOST_CLASSES))
        if self.ignore is not None:
            self._set("ignore", self._checked_whole("ignore", self.ignore, 0, _MOST_CLASSES - 1))
        if self.of is not None:
            checked_name(self.of, "the Image column that a Mask is `of`")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Boxes(Feature):
    """Boxes as an (n, 4) array of xmin, ymin, xmax, ymax, stored under the four keys of TFOD.

    `key` is what the four keys have in common, "image/object/bbox" where it is None.
    """

    _kind: ClassVar[Kind] = "float"

    @property
    def shape(self) -> Shape:
        return (None, 4)

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype("<f4")

    def record_keys(self, column: str) -> tuple[str, ...]:
        """The keys of xmin, ymin, xmax, ymax, in the order of the value's columns."""
        stem = self.key or "image/object/bbox"
        return tuple([f"{stem}/{side}" for side in BOX_SIDES])

    def record_kinds(self) -> tuple[Kind, ...]:
        return "float", "float", "float", "float"

    def _fit(self, value: object) -> Any:
        return fitted(value, self.shape, False, lambda one: real(one, self.dtype, exact=False))
