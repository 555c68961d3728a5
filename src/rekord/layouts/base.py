"""What a layout is: a schema, and how canonical rows become its rows; and layouts of plain rows and of images."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from rekord.arguments import check_keywords
from rekord.codec.images.inspect import CONVERT_HINT, EncodedImage, format_display_name, inspect_image
from rekord.codec.images.store import check_mask_size, inspect_mask, store_image
from rekord.codec.media import check_encoded_file
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Feature, Image, Int64, Mask, Schema, Text, of_type
from rekord.schema.json_form import feature_to_json

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


IMAGE_COLUMNS: Mapping[str, Feature] = {
    "image": Image(key="image/encoded"),
    "format": Text(key="image/format"),
    "filename": Text(key="image/filename"),
    "height": Int64(key="image/height"),
    "width": Int64(key="image/width"),
    "channels": Int64(key="image/channels"),
}
"""The columns and keys that the layouts of images share."""

_CHANNEL_NAMES = {1: "grey", 2: "grey with alpha", 3: "RGB", 4: "RGBA"}
_CMYK_CODE = "H731"


def derive_image(
    row: Mapping[str, Any], verify: Verify, *, readers: str
) -> tuple[EncodedImage, dict[str, Any], list[RowRemark]]:
    """The image of a canonical row, which must be one that `readers` decode, and its values of `IMAGE_COLUMNS`."""
    value = row.get("image")
    if value is None:
        raise missing_value_error(
            "image", "Image", "add an image to the row: encoded bytes, a pathlib.Path, or an array"
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
    values = {
        "image": image.data,
        "format": image.format,
        "filename": row.get("filename", ""),
        "height": image.height,
        "width": image.width,
        "channels": 3,
    }
    return image, values, remarks


def missing_value_error(column: str, kind: str, do: str) -> RekordError:
    """The error for a row without a value of a required column."""
    return error(
        "E301",
        f"`{column}` has no value, but is required",
        location=Location(feature=column),
        expected=f"a value for {kind}",
        found="None, or no such key",
        do=do,
    )


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
            do=f"{CONVERT_HINT}, or write without a layout: schema=",
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
        """Whether any column is an image, audio or video."""
        return bool(self._images or self._masks or self._media)

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

    @cached_property
    def _media(self) -> dict[str, Feature]:
        """The columns of audio and video files."""
        return {name: one for name, one in self.schema.context.items() if one.is_media and one.dtype is None}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        """The row with its files checked. Missing and unknown values are left to the encoder."""
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
        for name, feature in self._media.items():
            if (value := row.get(name)) is not None:
                try:
                    checked = check_encoded_file(feature, value, verify)
                except InvalidValue as unfit:
                    raise unfit.to_error(name) from unfit.__cause__
                if checked is not None:
                    values[name] = checked.data
                    remarks += [RowRemark(code, name, what) for code, what in checked.remarks]
        return DerivedRow(values, tuple(remarks))


@check_keywords
def images() -> ImagesLayout:
    """Images without labels, under the keys that the layouts of labelled images share."""
    return ImagesLayout()


@dataclass(frozen=True, slots=True)
class ImagesLayout:
    schema: Schema = field(default_factory=lambda: Schema(IMAGE_COLUMNS))

    name = "images"
    needs_derive = True

    def options(self) -> Mapping[str, Any]:
        return {}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        _, values, remarks = derive_image(row, verify, readers="readers of this layout")
        return DerivedRow(values, tuple(remarks))


@dataclass(frozen=True)
class SelectedLayout:
    """A layout without the columns `drop`, and with the types `features`."""

    layout: Layout
    drop: frozenset[str] = frozenset()
    features: Mapping[str, Feature] = field(default_factory=dict)

    needs_derive = True

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def class_names(self) -> Any:
        """Those of the layout, which may need them for its companions."""
        return getattr(self.layout, "class_names", None)

    @cached_property
    def schema(self) -> Schema:
        own = {name: one for name, one in self.layout.schema.items() if name not in self.drop}
        return Schema({name: self.features.get(name, one) for name, one in own.items()})

    def options(self) -> Mapping[str, Any]:
        declared = {name: feature_to_json(one) for name, one in self.features.items()}
        return {**self.layout.options(), "drop": sorted(self.drop), "declared": declared}

    def derive(self, row: Mapping[str, Any], verify: Verify) -> DerivedRow:
        derived = self.layout.derive(row, verify)
        kept = {name: value for name, value in derived.values.items() if name not in self.drop}
        return DerivedRow(kept, derived.remarks)
