"""How columns are shown: which view each one has, and its values in a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, ImageFormat
from rekord.codec.decode import assemble_columns, new_batch, row_error
from rekord.codec.plan import compile_plan
from rekord.codec.preview import class_colour
from rekord.errors import RekordError, error
from rekord.schema import Boxes, Feature, Mask, Schema, of_type
from rekord.schema.features import BOX_SIDES
from rekord.schema.schema import summarize_feature
from rekord.viewer.containers import sniff_audio, sniff_video

View: TypeAlias = Literal[
    "image", "mask", "boxes", "class", "number", "text", "tensor", "bytes", "audio", "video", "list"
]

MAX_CLASSES = 1000
_POOL_BYTES = 1 << 20
_VIEW_BY_TYPE: Mapping[str, View] = {
    "Mask": "mask", "Boxes": "boxes", "Text": "text", "Tensor": "tensor", "Sparse": "tensor", "Audio": "audio",
    "Video": "video", "Timestamp": "number",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column, and how it is shown."""

    name: str
    feature: Feature
    view: View
    is_step: bool = False

    @property
    def is_facet(self) -> bool:
        """Whether records can be grouped by it: one short value per record."""
        return not self.is_step and self.feature.shape == () and self.view in ("class", "number", "text")

    def to_dict(self) -> dict[str, Any]:
        """The column, for the page."""
        feature = self.feature
        names = feature.label_names
        classes = getattr(feature, "classes", None) or feature.label_count
        colours = min(classes or 0, MAX_CLASSES)
        dtype = feature.dtype
        return {
            "name": self.name,
            "type": type(feature).__name__,
            "summary": summarize_feature(feature),
            "keys": list(feature.record_keys(self.name)),
            "shape": list(feature.shape),
            "dtype": None if dtype is None else str(getattr(dtype, "name", dtype)),
            "view": self.view,
            "classes": None if names is None else list(names[:MAX_CLASSES]),
            "class_count": classes,
            "colours": [class_colour(number) for number in range(colours)] if colours else None,
            "ignore": getattr(feature, "ignore", None),
            "optional": feature.optional,
            "facet": self.is_facet,
        }


def list_columns(schema: Schema, sample: Mapping[str, Any] | None = None) -> list[ColumnInfo]:
    """The columns of a schema; `sample` is a row that shows what bytes are."""
    found = [
        ColumnInfo(name, feature, choose_view(name, feature, sample)) for name, feature in schema.context.items()
    ]
    if schema.is_sequence:
        steps = schema.steps.items()
        found += [ColumnInfo(name, feature, choose_view(name, feature, sample), True) for name, feature in steps]
    return found


def choose_view(name: str, feature: Feature, sample: Mapping[str, Any] | None = None) -> View:
    """The view of a column."""
    if (known := _VIEW_BY_TYPE.get(type(feature).__name__)) is not None and feature.shape in ((), (None, 4)):
        return known
    if feature.is_image:
        return "image"
    if known == "tensor" or (feature.shape != () and feature.kind != "bytes"):
        return "tensor" if len(feature.shape) > 1 or feature.storage == "blob" else "list"
    if feature.shape != ():
        return "list"
    if feature.class_count is not None:
        return "class"
    if feature.kind != "bytes":
        return "number"
    value = None if sample is None else sample.get(name)
    return view_of_bytes(value) if isinstance(value, bytes) else "bytes"


def view_of_bytes(data: bytes) -> View:
    """The view of bytes by their beginning."""
    if _core.inspect_image(data[:4096], False).format != ImageFormat.NONE:
        return "image"
    if sniff_video(data) is not None:
        return "video"
    if sniff_audio(data) is not None:
        return "audio"
    return "text" if is_text(data) else "bytes"


def is_text(data: bytes) -> bool:
    """Whether bytes are text in UTF-8, judged by their beginning."""
    head = data[:4096]
    try:
        # The last character may be incomplete.
        text = head.decode() if len(data) <= 4096 else head[:-3].decode(errors="strict")
    except UnicodeDecodeError as failure:
        if len(data) <= 4096 or failure.start < len(head) - 8:
            return False
        text = head[: failure.start].decode()
    return sum(letter < " " and letter not in "\t\n\r" for letter in text) * 8 <= len(text)


def list_overlays(columns: Sequence[ColumnInfo]) -> list[dict[str, Any]]:
    """For each image, the masks and boxes that lie on it."""
    images = [one.name for one in columns if one.view == "image"]
    masks = [(name, mask.of) for name, mask in of_type({one.name: one.feature for one in columns}, Mask).items()]
    boxes = [one.name for one in columns if one.view == "boxes"]
    return [
        {
            "image": image,
            "masks": [name for name, of in masks if of == image or (of is None and place == 0)],
            "boxes": boxes if place == 0 else [],
        }
        for place, image in enumerate(images)
    ]


@dataclass(frozen=True, slots=True)
class BoxNames:
    """The columns that name the boxes of a record."""

    ids: str | None
    texts: str | None
    names: Sequence[str] | None


def find_box_names(schema: Schema) -> BoxNames:
    """The columns with one class per box, by what they are and how they are called."""
    stems = [feature.key or "" for feature in of_type(schema.context, Boxes).values()]
    prefixes = tuple(stem.rpartition("bbox")[0] for stem in stems if "bbox" in stem) or ("\0",)
    lists = {
        name: feature
        for name, feature in schema.context.items()
        if feature.shape == (None,) or (len(feature.shape) < 2 and name.startswith(prefixes))
    }
    named = {name: feature for name, feature in lists.items() if any(word in name.lower() for word in _CLASS_WORDS)}
    ids = next((name for name, feature in lists.items() if feature.class_count is not None), None)
    ids = ids or next((name for name, feature in named.items() if feature.kind == "int64"), None)
    texts = next((name for name, feature in named.items() if feature.kind == "bytes"), None)
    return BoxNames(ids, texts, lists[ids].class_names if ids is not None else None)


def derive_columns(schema: Schema, sample: Mapping[str, Any] | None) -> Schema:
    """An inferred schema with the boxes and masks that well-known keys hold: inference sees lists and images."""
    columns: dict[str, Feature] = {}
    stems = {name.removesuffix("xmin") for name in schema.context if name.endswith("bbox/xmin")}
    stems = {stem for stem in stems if _are_box_sides([schema.context.get(stem + side) for side in BOX_SIDES])}
    sides = {stem + side for stem in stems for side in BOX_SIDES}
    for name, feature in schema.context.items():
        if name in sides:
            if name.endswith("xmin"):
                stem = name.removesuffix("/xmin")
                columns[stem] = Boxes(key=stem, optional=feature.optional)
            continue
        is_mask = feature.is_image and f"/{name}".endswith(_MASK_NAMES) and _has_class_ids((sample or {}).get(name))
        columns[name] = (
            Mask(classes=_MAX_MASK_CLASSES, key=feature.key, optional=feature.optional) if is_mask else feature
        )
    if columns.keys() == schema.context.keys() and not of_type(columns, Mask):
        return schema
    return Schema(context=columns, steps=schema.steps) if schema.is_sequence else Schema(columns)


_MASK_NAMES = ("/segmentation/class/encoded", "/mask", "/segmentation")
_MAX_MASK_CLASSES = 256


def _are_box_sides(features: Sequence[Feature | None]) -> bool:
    """Whether columns hold lists of numbers, all of the same form: one number where every record had one box."""
    known = [one for one in features if one is not None and one.kind == "float" and len(one.shape) < 2]
    return len(known) == len(features) and len({(one.shape, one.optional) for one in known}) == 1


def _has_class_ids(data: Any) -> bool:
    """Whether bytes are an image that can be a mask: a PNG of one channel."""
    if not isinstance(data, bytes):
        return False
    facts = _core.inspect_image(data, False)
    return bool(facts.format == ImageFormat.PNG and facts.colour in (Colour.GREY, Colour.PALETTE))


_CLASS_WORDS = ("label", "class", "category", "categories")


def decode_row(payload: bytes, schema: Schema, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """A row, or some columns of it. Keys that the schema does not have are no error."""
    plan = compile_plan(schema, None if columns is None else tuple(columns))
    batch = new_batch(plan, _core.Pool(_POOL_BYTES))
    refusal = batch.add(payload)
    if refusal is not None:
        raise row_error(plan, *refusal, payload)
    return {name: column[0] for name, column in assemble_columns(plan, batch.take(), 1).items()}


def decode_rows(
    payloads: Iterable[bytes | None], schema: Schema, columns: Sequence[str]
) -> list[dict[str, Any] | None]:
    """Some columns of several rows; None for a payload that is None or cannot be decoded."""
    given = list(payloads)
    plan = compile_plan(schema, tuple(columns))
    batch = new_batch(plan, _core.Pool(_POOL_BYTES))
    try:
        wanted = [payload for payload in given if payload is not None]
        if all(batch.add(payload) is None for payload in wanted):
            made = assemble_columns(plan, batch.take(), len(wanted))
            rows = iter([{name: made[name][i] for name in made} for i in range(len(wanted))])
            return [None if payload is None else next(rows) for payload in given]
    except RekordError:
        pass  # one of them is invalid: which one is found by decoding each
    return [None if payload is None else _try_decode(payload, schema, columns) for payload in given]


def _try_decode(payload: bytes, schema: Schema, columns: Sequence[str]) -> dict[str, Any] | None:
    try:
        return decode_row(payload, schema, columns)
    except RekordError:
        return None


def get_bytes(value: Any, name: str, item: int = 0) -> bytes:
    """The bytes of a value, or of one of a list of values."""
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.dtype == object):
        if not 0 <= item < len(value):
            raise error("U606", f"`{name[:60]}` has no item {item:,}", expected=f"one of {len(value):,} items")
        value = value[item]
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).tobytes()
    if value is None:
        raise error("U606", f"the record has no `{name[:60]}`", expected="a record that has it", found="nothing")
    return np.asarray(value).tobytes()
