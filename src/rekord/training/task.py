"""What a baseline learns, and what the type, the name and a sample of values say of each column."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings, Valid
from rekord.dataset.split import Split
from rekord.schema import (
    Boxes,
    Bytes,
    Feature,
    Float32,
    Image,
    Int64,
    Label,
    Mask,
    Schema,
    Sparse,
    Tensor,
    Text,
    of_type,
)

Kind: TypeAlias = Literal["classification", "segmentation", "regression"]
Form: TypeAlias = Literal["image", "numbers", "category", "text", "tokens"]

METRICS: Mapping[Kind, str] = {
    "classification": "accuracy",
    "segmentation": "mIoU",
    "regression": "mean absolute error",
}


@dataclass(frozen=True, slots=True)
class Input:
    """One column that the model takes, and how it takes it."""

    column: str
    form: Form


@dataclass(frozen=True, slots=True)
class Task:
    """The inputs and the target, and what was left out and why."""

    kind: Kind
    inputs: tuple[Input, ...]
    target: str
    classes: tuple[str, ...] = ()  # their names, by id; none of a number
    values: tuple[Any, ...] | None = (
        None  # what stands in the column for each class, where that is not its id
    )
    ignore: int | None = None  # the id in a mask that is not learned
    left_out: Mapping[str, str] = field(default_factory=dict)  # column: why

    @property
    def metric(self) -> str:
        """What says how good the model is."""
        return METRICS[self.kind]

    @property
    def forms(self) -> set[Form]:
        """The forms of all inputs."""
        return {each.form for each in self.inputs}

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON holds it."""
        return {
            "kind": self.kind,
            "inputs": {each.column: each.form for each in self.inputs},
            "target": self.target,
            "classes": list(self.classes),
            "metric": self.metric,
            "left_out": dict(self.left_out),
        }


Array: TypeAlias = "npt.NDArray[Any]"

SURVEYED_RECORDS = 10_000
FIRST_RECORDS = 32

_LEAST_EVIDENCE = 20
"""Of fewer records it may well be chance that two columns go together."""

_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Seen:
    """A column of one value a record. Texts stand here as numbers, equal for equal texts in one process."""

    values: Array
    valid: Valid
    is_text: bool

    @cached_property
    def distinct(self) -> int:
        """How many different values there are."""
        return len(np.unique(self.values[self.valid]))

    @property
    def records(self) -> int:
        """How many records were looked at."""
        return len(self.values)

    @property
    def all_different(self) -> bool:
        """Whether each record has a value of its own."""
        return self.records > 1 and bool(self.valid.all()) and self.distinct == self.records


def sampled(split: Split, most: int) -> Split:
    """All records, or at most so many with equal gaps: the first ones may all be of one class."""
    records = len(split)
    if records <= most:
        return split
    view: Split = split[:: -(-records // most)]
    return view


def first_batch(split: Split, columns: Sequence[str]) -> dict[str, Column]:
    """These columns of the first few records; nothing where there are no records."""
    with iter(split.batches(FIRST_RECORDS, columns=columns, threads=1, prefetch=0)) as batches:
        return next(batches, {})


def survey(split: Split, columns: Sequence[str]) -> dict[str, Seen]:
    """Columns of one value a record, of some thousand records."""
    parts: dict[str, list[tuple[Array, Valid]]] = {name: [] for name in columns}
    texts: set[str] = set()
    if columns:
        for batch in sampled(split, SURVEYED_RECORDS).batches(_ROWS, columns=columns):
            for name in columns:
                column = batch[name]
                if isinstance(column, Strings):
                    texts.add(name)
                parts[name].append((_values(column), valid_rows(column)))
    return {name: _joined(found, name in texts) for name, found in parts.items() if found}


def tells(seen: Seen, target: Seen) -> bool:
    """Whether a column gives the target away: it equals it, or has one value for each class and no other."""
    both = seen.valid & target.valid
    if 2 * int(both.sum()) < seen.records:
        return False
    ours, theirs = seen.values[both], target.values[both]
    values, our_codes = np.unique(ours, return_inverse=True)
    classes, their_codes = np.unique(theirs, return_inverse=True)
    if len(classes) < 2 or len(values) != len(classes):
        return False
    if seen.is_text == target.is_text and np.array_equal(_plain(ours), _plain(theirs)):
        return True
    if len(ours) < _LEAST_EVIDENCE or 2 * len(values) > len(ours):
        return False
    pairs = our_codes.reshape(-1).astype(np.int64) * len(classes) + their_codes.reshape(-1)
    return len(np.unique(pairs)) == len(values)


def valid_rows(column: Column) -> Valid:
    """True for each row that has a value."""
    if isinstance(column, (Optional, Strings, Ragged, SparseColumn)) and column.valid is not None:
        return column.valid
    return np.ones(len(column), np.bool_)


def as_text(value: str | bytes | None) -> str:
    """A stored string as a text; what is no UTF-8 is replaced, and what is missing is empty."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _values(column: Column) -> Array:
    if isinstance(column, Strings):
        return np.array([hash(as_text(value)) for value in column.tolist()], np.int64)
    return column.values if isinstance(column, Optional) else np.asarray(column)


def _joined(parts: list[tuple[Array, Valid]], is_text: bool) -> Seen:
    values = np.concatenate([values for values, _ in parts])
    return Seen(values, np.concatenate([valid for _, valid in parts]), is_text)


def _plain(values: Array) -> Array:
    # A label that was copied as a float is still the label; texts are compared as they are.
    with np.errstate(over="ignore"):
        return values.astype(np.float32) if values.dtype.kind == "f" else values


MOST_VALUES = 65_536

Taken: TypeAlias = 'Form | Literal["string"]'
"""A form; of a string the records have to say which."""

TOKEN_COMPANIONS = frozenset(
    [
        "attention_mask",
        "input_mask",
        "padding_mask",
        "token_type_ids",
        "input_type_ids",
        "segment_ids",
        "type_ids",
        "position_ids",
        "special_tokens_mask",
        "offset_mapping",
        "word_lengths",
    ]
)
_TOKENS = frozenset(["tokens", "token_ids", "input_ids", "input_word_ids", "word_ids", "ids"])
_FILES = frozenset(
    [
        "filename",
        "file_name",
        "filepath",
        "file_path",
        "path",
        "file",
        "image_path",
        "source_id",
        "sha256",
        "md5",
        "hash",
        "key",
    ]
)
_DESCRIBES = frozenset(
    [
        "format",
        "height",
        "width",
        "channels",
        "depth",
        "colorspace",
        "mask_format",
        "image_format",
        "encoding",
        "bits",
    ]
)
_CLASSES = frozenset(["class", "label", "labels", "category", "target"])
_CLASS_NAMES = frozenset(
    [
        "label_name",
        "label_names",
        "label_text",
        "class_name",
        "class_names",
        "class_text",
        "category_name",
        "target_name",
    ]
)
_ID = re.compile(
    r"(?:.*[_/ .-])?(?:id|idx|index|uid|uuid|guid|key|row|record|number|nr|no|unnamed: 0)|.*[a-z](?:Id|ID)"
)
_LEAST_SIDE = 8
MOST_CHANNELS = 32


class Unfit(str):
    """Why a column is not taken."""


def form_of(schema: Schema, column: str) -> Taken | Unfit:
    """The form in which a column could be taken, or why it cannot."""
    feature = schema[column]
    if column not in schema.steps:
        return input_form(feature, column)
    if _is_whole(feature) and feature.shape == ():
        return "tokens"
    return Unfit("of steps, only those that hold one whole number each are taken")


@singledispatch
def input_form(feature: Feature, column: str) -> Taken | Unfit:
    """How a baseline takes a column of a feature type, or why it does not."""
    return Unfit(f"{type(feature).__name__}: no baseline takes it")


input_form.register(Image, lambda feature, column: "image")
input_form.register(Mask, lambda feature, column: Unfit(f"a mask: --label {column} learns it"))
input_form.register(Boxes, lambda feature, column: Unfit("boxes: no baseline takes them"))


@input_form.register(Label)
def _(feature: Label, column: str) -> Taken | Unfit:
    return "category" if feature.shape == () else Unfit("several classes a record")


@input_form.register(Text)
@input_form.register(Bytes)
def _(feature: Feature, column: str) -> Taken | Unfit:
    return "string" if feature.shape == () else Unfit("a list of strings")


@input_form.register(Sparse)
def _(feature: Sparse, column: str) -> Taken | Unfit:
    return "numbers" if feature.size <= MOST_VALUES else _too_many(feature.size)


@singledispatch
def target_kind(feature: Feature) -> Kind | None:
    """What kind of task it is to learn a column of a feature type; None where there is no model for it."""
    if feature.shape != ():
        return None
    return {
        "int": "classification",
        "float": "regression",
        "str": "classification",
        "bytes": "classification",
    }.get(feature.as_given or "")  # type: ignore[return-value]


target_kind.register(Mask, lambda feature: "segmentation")


@target_kind.register(Tensor)
def _(feature: Tensor) -> Kind | None:
    # bfloat16 has a kind of its own.
    return "regression" if feature.shape == () and feature.dtype.kind not in "biuc" else None


def _is_whole(feature: Feature) -> bool:
    """Whether values are whole numbers that stand for themselves."""
    is_int = feature.as_given == "int" and feature.class_count is None
    return is_int and bool(feature.dtype.kind != "b")


def describes(schema: Schema, column: str, target: str) -> str | None:
    """Why a column says nothing that is to be learned from, or gives the answer away; None where it may be taken."""
    feature = schema[column]
    key = feature.key or column
    names = {column.casefold(), last_part(column), last_part(key)}
    is_string = feature.as_given in ("str", "bytes")
    if is_string and not schema[target].is_picture and _names_the_class(schema, column, target):
        return f"says the class in words, and would give `{target}` away"
    if not names.isdisjoint(_FILES) and is_string and feature.shape == ():
        return "says where the record came from"
    has_image = bool(of_type(schema.features, Image))
    if not names.isdisjoint(_DESCRIBES) and (has_image or key.startswith("image/")):
        return "says how the image is stored"
    return None


def is_id_like(column: str) -> bool:
    """Whether a column is called as those are that number records."""
    name = column.rpartition("/")[2]
    return _ID.fullmatch(name) is not None or _ID.fullmatch(name.casefold()) is not None


def is_mask_like(column: str) -> bool:
    """Whether a column of pictures is called as those are that hold classes of pixels."""
    return re.search(r"mask|segmentation|annotation|label", column.casefold()) is not None


def last_part(name: str) -> str:
    """The last part of a name such as image/class/label, in lower case."""
    return name.rpartition("/")[2].casefold()


def _names_the_class(schema: Schema, column: str, target: str) -> bool:
    key, target_key = schema[column].key or column, schema[target].key or target
    if column.casefold() in _CLASS_NAMES or last_part(key) in _CLASS_NAMES:
        return True
    stem = last_part(target)
    if column.casefold() in {
        f"{stem}{mark}{word}" for mark in "_/" for word in ("name", "names", "text", "str")
    }:
        return True
    folder, _, _ = key.rpartition("/")
    # image/class/text beside image/class/label: all that stands below a class is said of it.
    return last_part(folder) in _CLASSES and folder in (target_key.rpartition("/")[0], target_key)


@input_form.register(Int64)
@input_form.register(Float32)
@input_form.register(Tensor)
def _form_of_numbers(feature: Feature, column: str) -> Form | Unfit:
    shape, dtype = feature.shape, feature.dtype
    if dtype.kind == "c":
        return Unfit("complex numbers")
    is_whole = _is_whole(feature)
    if None in shape:
        if is_whole and shape == (None,):
            return "tokens"
        return Unfit(
            "lists of different lengths that are no whole numbers" if len(shape) == 1 else "varying shapes"
        )
    values = math.prod([size or 0 for size in shape])
    if not values:
        return Unfit("no values")
    if _is_image(column, shape):
        return "image"
    if is_whole and len(shape) == 1 and values > 1 and (last_part(column) in _TOKENS | TOKEN_COMPANIONS):
        return "tokens"
    return "numbers" if values <= MOST_VALUES else _too_many(values)


def _is_image(column: str, shape: tuple[int | None, ...]) -> bool:
    if not last_part(column).startswith(("image", "img", "picture")) or len(shape) not in (2, 3):
        return False
    sizes = [size or 0 for size in shape]
    return min(sizes[:2]) >= _LEAST_SIDE and (len(sizes) == 2 or sizes[2] <= MOST_CHANNELS)


def _too_many(values: int) -> Unfit:
    return Unfit(f"{values:,} values a record, and at most {MOST_VALUES:,} are taken")
