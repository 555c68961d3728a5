"""What a layout is: a schema, and how a canonical row becomes one of its rows; and the layout of rows as they are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from rekord.codec.images.inspect import EncodedImage, format_display_name, inspect_image
from rekord.codec.images.store import check_mask_size, inspect_mask, store_image
from rekord.codec.values import InvalidValue
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Image, Mask, Schema, of_type

Verify: TypeAlias = Literal["full", "headers"]
"""How closely images and masks are looked at.

full: the structure of every image to its end, and every pixel of a mask. headers: what their first bytes say.
"""


class RowRemark(NamedTuple):
    """Something about a row that is worth knowing and no error: a finding's code and its sentence."""

    code: str
    feature: str
    what: str


class DerivedRow(NamedTuple):
    """A row as it is stored."""

    values: Mapping[str, Any]
    remarks: tuple[RowRemark, ...] = ()


class Layout(Protocol):
    """A frozen value, pickled to workers."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def needs_derive(self) -> bool:
        """Whether rows must pass through `derive`; False where columns can be stored as they come."""

    def options(self) -> Mapping[str, Any]:
        """What was asked for, as JSON holds it."""

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The stored row of a canonical one. A row that does not fit is an EncodeError."""


_CHANNEL_NAMES = {1: "grey", 2: "grey with alpha", 3: "RGB", 4: "RGBA"}
_CMYK_CODE = "H731"


def inspect_row_image(
    row: Mapping[str, Any], verify: Verify, *, readers: str
) -> tuple[EncodedImage, list[RowRemark]]:
    """The image of a canonical row, which must be one that `readers` decode: JPEG or PNG."""
    value = row.get("image")
    if value is None:
        raise error(
            "E301",
            "`image` has no value, and it is required",
            location=Location(feature="image"),
            expected="a value for Image",
            found="None, or no such key",
            do="give the row an image: encoded bytes, a pathlib.Path, or an array",
        )
    picture = inspect_or_encode_image(value, Image(), name="image", verify=verify)
    if picture.format not in ("jpeg", "png"):
        raise error(
            "E321",
            f"`image` is {format_display_name(picture.format)}, which {readers} do not decode",
            location=Location(path=picture.path, feature="image"),
            expected="JPEG or PNG",
            found=format_display_name(picture.format),
            do="convert it to PNG, or write with schema= and rk.Image() instead of a layout",
        )
    remarks = [RowRemark(code, "image", what) for code, what in picture.remarks]
    # The keys say three channels of eight bits, and readers ask their decoder for these.
    if (picture.channels != 3 or picture.bits > 8) and _CMYK_CODE not in [remark.code for remark in remarks]:
        whose = "the image" if picture.path is None else os.path.basename(picture.path)
        kind = _CHANNEL_NAMES.get(picture.channels, f"{picture.channels} channels")
        what = f"{whose} is {kind} of {picture.bits} bits: it is stored so, and readers turn it into RGB of 8 bits"
        remarks.append(RowRemark("H738", "image", what))
    return picture, remarks


def inspect_or_encode_image(value: Any, image: Image, *, name: str, verify: Verify) -> EncodedImage:
    """An image as it is stored: encoded bytes, a file, or pixels, which are PNG unless `image` says otherwise."""
    if not isinstance(value, np.ndarray):
        return inspect_image(value, name=name, verify=verify)
    try:
        encoded = store_image(value, image)
    except InvalidValue as unfit:
        raise unfit.to_error(name) from unfit.__cause__
    return inspect_image(encoded, name=name, verify="headers")


@dataclass(frozen=True)
class PlainLayout:
    """The layout of rows that have a schema and no other."""

    schema: Schema

    name = "plain"

    def options(self) -> Mapping[str, Any]:
        return {}

    @cached_property
    def needs_derive(self) -> bool:
        """Whether there are images among the columns."""
        return bool(self._images or self._masks)

    @cached_property
    def _images(self) -> dict[str, Image]:
        return of_type(self.schema.context, Image)

    @cached_property
    def _masks(self) -> dict[str, tuple[Mask, str]]:
        """Each mask, and the column of the image that it covers."""
        return {
            name: (one, one.of or next(iter(self._images)))
            for name, one in of_type(self.schema.context, Mask).items()
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The row with its images looked at. What is missing or unknown is left for the encoder to judge."""
        values = dict(row)
        remarks: list[RowRemark] = []
        images: dict[str, EncodedImage] = {}
        for name, image in self._images.items():
            if (value := row.get(name)) is not None:
                images[name] = picture = inspect_or_encode_image(value, image, name=name, verify=verify)
                values[name] = picture.data
                remarks += [RowRemark(code, name, what) for code, what in picture.remarks]
        for name, (mask, of) in self._masks.items():
            if (value := row.get(name)) is not None:
                picture = inspect_mask(value, name=name, classes=mask.classes, ignore=mask.ignore, verify=verify)
                if of in images:
                    check_mask_size(images[of], picture, name=name)
                values[name] = picture.data
                remarks += [RowRemark(code, name, what) for code, what in picture.remarks]
        return DerivedRow(values, tuple(remarks))
