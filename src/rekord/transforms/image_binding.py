"""Transforms of images bound to a schema: which columns belong together, and what they are afterwards.

Steps that follow each other are bound as one: an image is decoded once, and encoded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from rekord.errors import RekordError, closest_match, preview, schema_error
from rekord.schema import Boxes, Bytes, Feature, Image, Int64, Mask, Schema, Tensor, Text, of_type
from rekord.schema.base import ABSENT
from rekord.transforms.base import Bound, Row, Transform, fields_to_json, make_transform
from rekord.transforms.image_row import ImageColumns, ImageOutput, ImagePipeline, PixelOperation, Size

_DESCRIPTIVE_COLUMNS = {
    "height": ("height", (Int64,)),
    "width": ("width", (Int64,)),
    "channels": ("channels", (Int64,)),
    "format": ("format", (Text, Bytes)),
    "colorspace": ("colorspace", (Text, Bytes)),
    "digest": ("key/sha256", (Text, Bytes)),
}
"""What is told of an image under keys beside its own, and by which types."""

_ENCODED_ONLY = ("format", "digest")


@dataclass(frozen=True, kw_only=True)
class ImageState:
    """What is known of all images of a column before one is read."""

    output: ImageOutput
    size: Size | None = None
    moves: bool = False  # pixels, and so boxes
    drops_boxes: bool = False
    per_box: tuple[str, ...] | None = None


@runtime_checkable
class ImageTransform(Protocol):
    """A transform of images, which can be one of several in a row."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The images that it is for; None: all of them."""

    def step(self) -> PixelOperation | None:
        """What it does to pixels."""

    def after(self, known: ImageState, column: str, image: Image) -> ImageState:
        """What is known of the images afterwards. A SchemaError where they cannot be what it makes."""


class BindableImageTransform:
    """What transforms of images share: alone, each is a row of one."""

    name: ClassVar[str]

    def options(self) -> Mapping[str, Any]:
        """The arguments that make it again, as JSON holds them."""
        return fields_to_json(self)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str | None = None) -> Transform:
        """The transform that has these options."""
        return make_transform(cls.name, options)

    def step(self) -> PixelOperation | None:
        """What it does to pixels: nothing, unless a subclass says so."""
        return None

    def bind(self, before: Schema) -> Bound:
        """The transform for rows of a schema."""
        assert isinstance(self, ImageTransform)
        return bind_image_transforms([self], before, {})[0]


def bind_image_transforms(
    transforms: Sequence[ImageTransform], before: Schema, sizes: Mapping[str, Size]
) -> tuple[Bound, dict[str, Size]]:
    """Transforms that follow each other as one; `sizes` are those that all images of a column are known to have."""
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
    works = tuple(
        [
            _build_pipeline(before, name, image, steps[name], known[name], name == owner)
            for name, image in images.items()
            if name in known
        ]
    )
    touched = frozenset[str]().union(*[work.layers.names() for work in works])
    certain = {name: size for name, size in sizes.items() if name not in known}
    certain |= {name: one.size for name, one in known.items() if one.size is not None}
    return Bound(_output_schema(before, works, known), _ImageRowFunction(works), touched), certain


@dataclass(frozen=True)
class _ImageRowFunction:
    """The function of a row. Unlike a closure it can be pickled."""

    works: tuple[ImagePipeline, ...]

    def __call__(self, row: Row) -> Row:
        for work in self.works:
            row = work(row)
            for name in _find_dropped_columns(work):
                row.pop(name, None)
        return row


def _select_images(
    transform: ImageTransform, before: Schema, images: Mapping[str, Image], known: Mapping[str, ImageState]
) -> list[str]:
    """The images that a transform is for."""
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
            f"`{transform.name}` cannot change the images of steps",
            column=steps[0],
            expected="an Image column with one image a record",
            found=f"`{steps[0]}`, with one a step",
            do="map= with a function of your own, which gets whole rows",
        )
    raise schema_error(
        "S138",
        f"there is no image for `{transform.name}`"
        if not known
        else f"`{transform.name}` comes behind a transform that decodes the images",
        expected="an Image column" if not known else "encoded images",
        found=_format_columns(before) if not known else "arrays",
        do="declare the column as rk.Image()" if not known else f"put `{transform.name}` before it",
    )


def _no_image_error(transform: str, before: Schema, name: Any, images: Mapping[str, Image]) -> RekordError:
    feature = before.get(name)
    near = closest_match(name, list(images)) if isinstance(name, str) else None
    mask = isinstance(feature, Mask)
    some = ", ".join(f"`{one}`" for one in list(images)[:4])
    return schema_error(
        "S138",
        f"`{transform}` cannot change {preview(name)}",
        column=name if isinstance(name, str) else None,
        expected=f"an Image column: {some}" if images else "an Image column",
        found="no such column" if feature is None else type(feature).__name__,
        do="name its image: masks follow it" if mask else f"did you mean `{near}`?" if near else "name an Image",
    )


def _format_columns(schema: Schema) -> str:
    return ", ".join([f"`{name}`: {type(one).__name__}" for name, one in schema.features.items()])[:60] or "none"


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
            f"`{name}` is declared as GIF, which cannot hold all colours of an image that was changed",
            column=name,
            expected="a format that images can be encoded to again",
            found='format="gif"',
            do='rk.transforms.encode("png") behind it',
        )
    columns = schema.context
    masks = {one: f for one, f in of_type(columns, Mask).items() if f.of in (None, name)}
    formats = [
        dict(_find_descriptive_columns(columns, _key_stem(one, mask))).get("format") for one, mask in masks.items()
    ]
    boxes = list(of_type(columns, Boxes)) if has_boxes else []
    layers = ImageColumns(
        image=name,
        masks=masks,
        boxes=tuple(boxes),
        metadata_columns=dict(_find_descriptive_columns(columns, _key_stem(name, image))),
        mask_formats=tuple([one for one in formats if one is not None]),
        **_find_per_box_columns(schema, boxes, known),
    )
    return ImagePipeline(layers, image, tuple(steps), output)


def _find_box_owner(schema: Schema, images: Mapping[str, Image], known: Mapping[str, ImageState]) -> str | None:
    """The image that boxes lie on: the only one, or the one whose record keys begin as theirs do."""
    boxes = list(of_type(schema.context, Boxes).items())
    if not boxes or len(images) == 1:
        return next(iter(images), None)
    name, feature = boxes[0]
    key = feature.record_keys(name)[0]
    owners = [one for one, image in images.items() if key.startswith(f"{_key_stem(one, image)}/")]
    if len(owners) == 1:
        return owners[0]
    moved = [one for one, each in known.items() if each.moves]
    if moved:
        raise schema_error(
            "S140",
            f"`{name}` may lie on any of {len(images)} images",
            column=name,
            expected="record keys that begin as those of one image do",
            found=f"`{key}`"[:60],
            do=f'rk.Boxes(key="{_key_stem(moved[0], images[moved[0]])}/object/bbox") if they lie on `{moved[0]}`',
        )
    return None


def _key_stem(name: str, feature: Feature) -> str:
    """What the keys of an image's companions begin with: `image` of `image/encoded`."""
    return (feature.key or name).removesuffix("/encoded")


def _find_descriptive_columns(columns: Mapping[str, Feature], stem: str) -> list[tuple[str, str]]:
    by_key = {feature.key or name: name for name, feature in columns.items()}
    found = []
    for what, (key, types) in _DESCRIPTIVE_COLUMNS.items():
        name = by_key.get(f"{stem}/{key}")
        if name is not None and isinstance(columns[name], types) and columns[name].shape == ():
            found.append((what, name))
    return found


def _find_per_box_columns(schema: Schema, boxes: Sequence[str], known: ImageState) -> dict[str, tuple[str, ...]]:
    """The columns that have a value for each box: those under the same key as the boxes, and those that are named."""
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
            schema[name]  # says so where there is none of this name
            raise schema_error(
                "S140",
                f"`{name}` has no value for each box",
                column=name,
                expected="a column of shape (None, …)",
                found=repr(schema[name])[:60],
                do="per_box= names columns with one value for each box",
            )
    if others and known.drops_boxes and known.per_box is None:
        raise schema_error(
            "S140",
            f"it is not said whether `{others[0]}` has a value for each box: boxes may be cropped away",
            column=others[0],
            expected="per_box=, the columns to be shortened alike",
            found=", ".join([f"`{name}`" for name in others])[:60],
            do=f"per_box={others[:1]!r}, or per_box=[] where there is none",
        )
    by_key = {name: schema.context[name].key or name for name in beside}
    return {
        "per_box": tuple(beside),
        "areas": tuple([n for n in beside if by_key[n] == f"{folder}/area" and schema[n].value_kind == "float"]),
        "outlines": tuple([n for n in beside if by_key[n] == f"{folder}/mask" and schema[n].value_kind == "bytes"]),
    }


# What they are afterwards.


def _find_dropped_columns(work: ImagePipeline) -> tuple[str, ...]:
    """Columns that tell of encoded images, where there are none any more."""
    if work.output.form == "encoded":
        return ()
    told = work.layers.metadata_columns
    return (*[told[what] for what in _ENCODED_ONLY if what in told], *work.layers.mask_formats)


def _output_schema(before: Schema, works: Sequence[ImagePipeline], known: Mapping[str, ImageState]) -> Schema:
    columns: dict[str, Feature] = dict(before.context)
    for work in works:
        name, size = work.layers.image, known[work.layers.image].size
        columns[name] = _output_image(name, work, size)
        for mask, feature in work.layers.masks.items():
            columns[mask] = _output_mask(mask, feature, work.output, size)
        for gone in _find_dropped_columns(work):
            del columns[gone]
    if before.is_sequence:
        return Schema(context=columns, steps=before.steps)
    return Schema(columns)


def _output_image(name: str, work: ImagePipeline, size: Size | None) -> Feature:
    image, output = work.feature, work.output
    if output.form == "encoded":
        # A value that is missing has become the default, transformed as all others are.
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
    """A key that does not promise an encoded image."""
    if feature.key is None or not feature.key.endswith("/encoded"):
        return feature.key
    return f"{_key_stem(name, feature)}/pixels"
