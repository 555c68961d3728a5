"""What a layout is: a schema, and how canonical rows become its rows; and the layout of rows without changes."""

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
"""How thoroughly images and masks are checked.

full: the structure of every image to its end, and every pixel of a mask. headers: the first bytes only.
"""


class RowRemark(NamedTuple):
    """A remark about a row that is not an error: the code and the sentence of a finding."""

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
        """Whether rows must pass through `derive`; False if columns can be stored unchanged."""

    def options(self) -> Mapping[str, Any]:
        """The options as JSON."""

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The stored row of a canonical row. Raises EncodeError if it does not fit."""


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
            "`image` has no value, but is required",
            location=Location(feature="image"),
            expected="a value for Image",
            found="None, or no such key",
            do="add an image to the row: encoded bytes, a pathlib.Path, or an array",
        )
    image = inspect_or_encode_image(value, Image(), name="image", verify=verify)
    check_decodable(image, ("jpeg", "png"), readers)
    remarks = [RowRemark(code, "image", what) for code, what in image.remarks]
    # The keys declare three channels of eight bits, and readers request these from their decoder.
    if (image.channels != 3 or image.bits > 8) and _CMYK_CODE not in [remark.code for remark in remarks]:
        whose = "the image" if image.path is None else os.path.basename(image.path)
        kind = _CHANNEL_NAMES.get(image.channels, f"{image.channels} channels")
        what = f"{whose} is {kind} of {image.bits} bits: it is stored unchanged, and readers convert it to 8-bit RGB"
        remarks.append(RowRemark("H738", "image", what))
    return image, remarks


def check_decodable(image: EncodedImage, formats: tuple[str, ...], readers: str) -> None:
    """Raise E321 for a format that `readers` of a layout do not decode."""
    if image.format not in formats:
        *others, last = [format_display_name(one) for one in formats]
        raise error(
            "E321",
            f"`image` is {format_display_name(image.format)}, which {readers} do not decode",
            location=Location(path=image.path, feature="image"),
            expected=f"{', '.join(others)} or {last}",
            found=format_display_name(image.format),
            do='convert it to PNG, or write without a layout: schema=rk.Schema({"image": rk.Image()})',
        )


def inspect_or_encode_image(value: Any, image: Image, *, name: str, verify: Verify) -> EncodedImage:
    """An image to store, from encoded bytes, a file, or pixels, which are PNG unless `image` has another format."""
    if not isinstance(value, np.ndarray):
        return inspect_image(value, name=name, verify=verify)
    try:
        encoded = store_image(value, image)
    except InvalidValue as unfit:
        raise unfit.to_error(name) from unfit.__cause__
    return inspect_image(encoded, name=name, verify="headers")


@dataclass(frozen=True)
class PlainLayout:
    """The layout of rows with a schema and no other layout."""

    schema: Schema

    name = "plain"

    def options(self) -> Mapping[str, Any]:
        return {}

    @cached_property
    def needs_derive(self) -> bool:
        """Whether any column is an image."""
        return bool(self._images or self._masks)

    @cached_property
    def _images(self) -> dict[str, Image]:
        return of_type(self.schema.context, Image)

    @cached_property
    def _masks(self) -> dict[str, tuple[Mask, str]]:
        """Each mask, and the column of its image."""
        return {
            name: (one, one.of or next(iter(self._images)))
            for name, one in of_type(self.schema.context, Mask).items()
        }

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The row with its images checked. Missing and unknown values are left to the encoder."""
        values = dict(row)
        remarks: list[RowRemark] = []
        images: dict[str, EncodedImage] = {}
        for name, image in self._images.items():
            if (value := row.get(name)) is not None:
                images[name] = encoded = inspect_or_encode_image(value, image, name=name, verify=verify)
                values[name] = encoded.data
                remarks += [RowRemark(code, name, what) for code, what in encoded.remarks]
        for name, (mask, of) in self._masks.items():
            if (value := row.get(name)) is not None:
                encoded = inspect_mask(value, name=name, classes=mask.classes, ignore=mask.ignore, verify=verify)
                if of in images:
                    check_mask_size(images[of], encoded, name=name)
                values[name] = encoded.data
                remarks += [RowRemark(code, name, what) for code, what in encoded.remarks]
        return DerivedRow(values, tuple(remarks))
