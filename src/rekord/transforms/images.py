"""Transforms of images with their masks and boxes: resize, crop, encode, decode, normalize, grayscale.

Bound to a schema, they know which columns belong together, and their features afterwards. Consecutive transforms are
bound as one: an image is decoded once and encoded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from rekord.arguments import check_keywords, invalid, one_of, optional_names, positive_int
from rekord.codec.columns import Array
from rekord.codec.images.jpeg import Size
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError, closest_match, preview, schema_error
from rekord.schema import Boxes, Bytes, Feature, Image, Int64, Mask, Schema, Tensor, Text, of_type
from rekord.schema.base import ABSENT
from rekord.transforms.base import (
    Bound,
    RecordedTransform,
    Row,
    rebuild_schema,
    validate_colour,
    validate_numbers,
    validate_side,
)
from rekord.transforms.image_row import (
    FILTERS,
    JPEG_QUALITY,
    ImageColumns,
    ImageOutput,
    ImagePipeline,
    ImagePixels,
    PixelOperation,
    Placement,
)

_DESCRIPTIVE_COLUMNS = {
    "height": ("height", (Int64,)),
    "width": ("width", (Int64,)),
    "channels": ("channels", (Int64,)),
    "format": ("format", (Text, Bytes)),
    "colorspace": ("colorspace", (Text, Bytes)),
    "digest": ("key/sha256", (Text, Bytes)),
}
"""The columns that describe an image: the end of their record key, and their types."""

_ENCODED_ONLY = ("format", "digest")


@dataclass(frozen=True, kw_only=True)
class ImageState:
    """What is known about all images of a column before one is read."""

    output: ImageOutput
    size: Size | None = None
    moves: bool = False  # pixels, and therefore boxes
    drops_boxes: bool = False
    per_box: tuple[str, ...] | None = None


@runtime_checkable
class ImageTransform(Protocol):
    """A transform of images, which is bound together with those next to it."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The images it applies to; None: all of them."""

    def step(self) -> PixelOperation | None:
        """What it does to pixels."""

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        """What is known about the images afterwards. Raises a SchemaError if they cannot have that form."""


class BindableImageTransform(RecordedTransform):
    """The base of image transforms."""

    def step(self) -> PixelOperation | None:
        """What it does to pixels: nothing, unless a subclass overrides this."""
        return None

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema."""
        assert isinstance(self, ImageTransform)
        return bind_image_transforms([self], before, {})[0]


def bind_image_transforms(
    transforms: Sequence[ImageTransform], before: Schema, sizes: Mapping[str, Size]
) -> tuple[Bound, dict[str, Size]]:
    """Consecutive transforms as one; `sizes` has the columns whose images are all known to have one size."""
    images = of_type(before.context, Image)
    steps: dict[str, list[PixelOperation]] = {}
    known: dict[str, ImageState] = {}
    for transform in transforms:
        for name in _select_images(transform, before, images, known):
            image = images[name]
            first = ImageState(output=ImageOutput(quality=image.quality), size=sizes.get(name))
            known[name] = transform.after(known.get(name, first), name, image)
            step = transform.step()
            steps.setdefault(name, []).extend([step] if step is not None else [])
    owner = _find_box_owner(before, images, known)
    pipelines = tuple(
        [
            _build_pipeline(before, name, image, steps[name], known[name], name == owner)
            for name, image in images.items()
            if name in known
        ]
    )
    touched = frozenset[str]().union(*[pipeline.layers.names() for pipeline in pipelines])
    certain = {name: size for name, size in sizes.items() if name not in known}
    certain |= {name: one.size for name, one in known.items() if one.size is not None}
    return Bound(_output_schema(before, pipelines, known), _ImageRowFunction(pipelines), touched), certain


@dataclass(frozen=True)
class _ImageRowFunction:
    """Applies pipelines to a row. Unlike a closure, it can be pickled."""

    pipelines: tuple[ImagePipeline, ...]

    def __call__(self, row: Row) -> Row:
        for pipeline in self.pipelines:
            row = pipeline(row)
            for name in _find_dropped_columns(pipeline):
                row.pop(name, None)
        return row


def select_images(transform: str, columns: Sequence[str] | None, before: Schema) -> list[str]:
    """The images, also of steps, that a transform of single images applies to."""
    images = of_type(before.features, Image)
    for name in columns or ():
        if name not in images:
            raise _no_image_error(transform, before, name, images)
    if not images:
        raise schema_error(
            "S138",
            f"schema has no image for `{transform}`",
            expected="an Image column",
            found=", ".join(before.features)[:60] or "no columns",
            do="declare the column as rk.Image()",
        )
    return list(images) if columns is None else list(columns)


def _select_images(
    transform: ImageTransform, before: Schema, images: Mapping[str, Image], known: Mapping[str, ImageState]
) -> list[str]:
    """The images that a transform applies to."""
    names = list(images) if transform.columns is None else list(transform.columns)
    for name in names:
        if name not in images:
            raise _no_image_error(transform.name, before, name, images)
    names = [name for name in names if name not in known or known[name].output.form == "encoded"]
    if names:
        return names
    steps = list(of_type(before.steps, Image))
    if steps:
        raise schema_error(
            "S141",
            f"`{transform.name}` does not apply to images in steps",
            column=steps[0],
            expected="an Image column with one image per record",
            found=f"`{steps[0]}`, with one image per step",
            do="change them with your own function, which gets whole rows: map=function",
        )
    if known:
        raise schema_error(
            "S138",
            f"`{transform.name}` comes after a transform that decodes the images",
            expected="encoded images",
            found="arrays",
            do=f"move `{transform.name}` before it",
        )
    columns = ", ".join([f"`{name}`: {type(one).__name__}" for name, one in before.features.items()])
    raise schema_error(
        "S138",
        f"schema has no image for `{transform.name}`",
        expected="an Image column",
        found=columns[:60] or "no columns",
        do="declare the column as rk.Image()",
    )


def _no_image_error(transform: str, before: Schema, name: Any, images: Mapping[str, Image]) -> RekordError:
    feature = before.get(name)
    near = closest_match(name, list(images)) if isinstance(name, str) else None
    some = ", ".join(f"`{one}`" for one in list(images)[:4])
    return schema_error(
        "S138",
        f"`{transform}` does not apply to {preview(name)}",
        column=name if isinstance(name, str) else None,
        expected=f"an Image column: {some}" if images else "an Image column",
        found="no such column" if feature is None else type(feature).__name__,
        do="name its image: masks follow it"
        if isinstance(feature, Mask)
        else f"did you mean `{near}`?"
        if near
        else "name an Image column",
    )


# Columns that belong together.


def _build_pipeline(
    schema: Schema,
    name: str,
    image: Image,
    steps: Sequence[PixelOperation],
    known: ImageState,
    has_boxes: bool,
) -> ImagePipeline:
    output = known.output
    if image.format == "gif" and output.form == "encoded" and output.format is None:
        raise schema_error(
            "S141",
            f"`{name}` is declared as GIF, which cannot store all colours of a transformed image",
            column=name,
            expected="a format that images can be encoded in: jpeg, png or webp",
            found='format="gif"',
            do='add rk.transforms.encode("png") after it',
        )
    columns = schema.context
    masks = {one: f for one, f in of_type(columns, Mask).items() if f.of in (None, name)}
    formats = [find_descriptive_columns(columns, key_stem(one, mask)).get("format") for one, mask in masks.items()]
    boxes = list(of_type(columns, Boxes)) if has_boxes else []
    layers = ImageColumns(
        image=name,
        masks=masks,
        boxes=tuple(boxes),
        metadata_columns=find_descriptive_columns(columns, key_stem(name, image)),
        mask_formats=tuple([one for one in formats if one is not None]),
        **_find_per_box_columns(schema, boxes, known),
    )
    return ImagePipeline(layers, image, tuple(steps), output)


def _find_box_owner(schema: Schema, images: Mapping[str, Image], known: Mapping[str, ImageState]) -> str | None:
    """The image that boxes belong to: the only one, or the one whose record key starts like theirs."""
    boxes = list(of_type(schema.context, Boxes).items())
    if not boxes or len(images) == 1:
        return next(iter(images), None)
    name, feature = boxes[0]
    key = feature.record_keys(name)[0]
    owners = [one for one, image in images.items() if key.startswith(f"{key_stem(one, image)}/")]
    if len(owners) == 1:
        return owners[0]
    moved = [one for one, each in known.items() if each.moves]
    if moved:
        raise schema_error(
            "S140",
            f"`{name}` could belong to any of {len(images)} images",
            column=name,
            expected="a record key that starts like the key of one image",
            found=f"`{key}`"[:60],
            do=f'rk.Boxes(key="{key_stem(moved[0], images[moved[0]])}/object/bbox") if they belong to `{moved[0]}`',
        )
    return None


def key_stem(name: str, feature: Feature) -> str:
    """The prefix of the keys that belong to an image: `image` for `image/encoded`."""
    return (feature.key or name).removesuffix("/encoded")


def find_descriptive_columns(columns: Mapping[str, Feature], stem: str) -> dict[str, str]:
    """The columns that describe the image with this prefix of its keys."""
    by_key = {feature.key or name: name for name, feature in columns.items()}
    found = {}
    for what, (key, types) in _DESCRIPTIVE_COLUMNS.items():
        name = by_key.get(f"{stem}/{key}")
        if name is not None and isinstance(columns[name], types) and columns[name].shape == ():
            found[what] = name
    return found


def _find_per_box_columns(schema: Schema, boxes: Sequence[str], known: ImageState) -> dict[str, tuple[str, ...]]:
    """The columns with one value per box: those with the same key prefix as the boxes, and those in `per_box`."""
    if not boxes:
        return {}
    named = known.per_box or ()
    feature = schema.context[boxes[0]]
    folder = (feature.record_keys(boxes[0])[0]).rpartition("/")[0].rpartition("/")[0]
    beside: list[str] = []
    others: list[str] = []
    for name, one in schema.context.items():
        if name in boxes or not one.shape or one.shape[0] is not None:
            continue
        under = bool(folder) and (one.key or name).startswith(f"{folder}/")
        (beside if under or name in named else others).append(name)
    for name in named:
        if name not in beside:
            raise schema_error(
                "S140",
                f"`{name}` does not have one value per box",
                column=name,
                expected="a column of shape (None, …)",
                found=repr(schema[name])[:60],  # an unknown name is an error of its own
                do="name only columns with one value per box in per_box=",
            )
    if others and known.drops_boxes and known.per_box is None:
        raise schema_error(
            "S140",
            f"cannot determine whether `{others[0]}` has one value per box, and boxes may be cropped away",
            column=others[0],
            expected="per_box=, the columns to shorten together with the boxes",
            found=", ".join([f"`{name}`" for name in others])[:60],
            do=f"per_box={others[:1]!r}, or per_box=[] if there are none",
        )
    by_key = {name: schema.context[name].key or name for name in beside}
    return {
        "per_box": tuple(beside),
        "areas": tuple([n for n in beside if by_key[n] == f"{folder}/area" and schema[n].value_kind == "float"]),
        "outlines": tuple([n for n in beside if by_key[n] == f"{folder}/mask" and schema[n].value_kind == "bytes"]),
    }


# The features afterwards.


def _find_dropped_columns(pipeline: ImagePipeline) -> tuple[str, ...]:
    """The columns that describe encoded images, if the images are no longer encoded."""
    if pipeline.output.form == "encoded":
        return ()
    described = pipeline.layers.metadata_columns
    return (*[described[what] for what in _ENCODED_ONLY if what in described], *pipeline.layers.mask_formats)


def _output_schema(before: Schema, pipelines: Sequence[ImagePipeline], known: Mapping[str, ImageState]) -> Schema:
    columns: dict[str, Feature] = dict(before.context)
    for pipeline in pipelines:
        name, size = pipeline.layers.image, known[pipeline.layers.image].size
        columns[name] = _output_image(name, pipeline, size)
        for mask, feature in pipeline.layers.masks.items():
            columns[mask] = _output_mask(mask, feature, pipeline.output, size)
        for dropped in _find_dropped_columns(pipeline):
            del columns[dropped]
    return rebuild_schema(before, {**columns, **before.steps})


def _output_image(name: str, pipeline: ImagePipeline, size: Size | None) -> Feature:
    image, output = pipeline.feature, pipeline.output
    if output.form == "encoded":
        # A missing value has been replaced by the default, transformed like all others.
        declared = replace(image, default=ABSENT)
        if output.format is not None:
            declared = replace(declared, format=output.format, quality=output.quality)
        return declared if output.channels is None else replace(declared, channels=output.channels)
    assert size is not None
    dtype = "uint8" if output.form == "pixels" else "float32"
    shape = (*size, output.channels)
    return Tensor(dtype, shape=shape, key=_output_key(name, image), optional=image.optional)


def _output_mask(name: str, mask: Mask, output: ImageOutput, size: Size | None) -> Feature:
    if output.form == "encoded":
        return replace(mask, default=ABSENT)
    assert size is not None
    wide = max(mask.classes - 1, mask.ignore or 0) > 255
    return Tensor("uint16" if wide else "uint8", shape=size, key=_output_key(name, mask), optional=mask.optional)


def _output_key(name: str, feature: Feature) -> str | None:
    """A key whose name does not imply an encoded image."""
    if feature.key is None or not feature.key.endswith("/encoded"):
        return feature.key
    return f"{key_stem(name, feature)}/pixels"


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
