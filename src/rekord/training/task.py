"""The task of a baseline model, and what type, name and a sample of values reveal about each column."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings, Validity
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
    MultiLabel,
    Schema,
    Sparse,
    Tensor,
    Text,
    of_type,
)

TaskKind: TypeAlias = Literal["classification", "multilabel", "segmentation", "regression"]
InputForm: TypeAlias = Literal["image", "numbers", "category", "text", "tokens"]

METRICS: Mapping[TaskKind, str] = {
    "classification": "accuracy",
    "multilabel": "mean F1",
    "segmentation": "mIoU",
    "regression": "mean absolute error",
}


@dataclass(frozen=True, slots=True)
class InputColumn:
    """An input column, and the form in which the model uses it."""

    column: str
    form: InputForm


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs and target, and the columns left out with the reasons."""

    kind: TaskKind
    inputs: tuple[InputColumn, ...]
    target: str
    classes: tuple[str, ...] = ()  # names by id; empty for a number
    values: tuple[Any, ...] | None = None  # the value of each class in the column, if that is not its id
    ignore: int | None = None  # the id in a mask that is ignored
    is_id_list: bool = False  # several classes per record are stored as a list of ids, not multi-hot
    left_out: Mapping[str, str] = field(default_factory=dict)  # column: why

    @property
    def metric(self) -> str:
        """The name of the score."""
        return METRICS[self.kind]

    @property
    def forms(self) -> set[InputForm]:
        """The forms of all inputs."""
        return {each.form for each in self.inputs}

    def to_dict(self) -> dict[str, Any]:
        """The task as JSON values."""
        return {
            "kind": self.kind,
            "inputs": {each.column: each.form for each in self.inputs},
            "target": self.target,
            "classes": list(self.classes),
            "metric": self.metric,
            "left_out": dict(self.left_out),
        }


Array: TypeAlias = "npt.NDArray[Any]"

MAX_SURVEYED_RECORDS = 10_000
FIRST_RECORDS = 32

_MIN_EVIDENCE = 20
"""With fewer records, two columns may correspond by chance."""

_ROWS = 1024


@dataclass(frozen=True, eq=False)
class ColumnSample:
    """A sampled column with one value per record. Strings are replaced by their hashes."""

    values: Array
    valid: Validity
    is_text: bool

    @cached_property
    def distinct(self) -> int:
        """The number of distinct values."""
        return len(np.unique(self.values[self.valid]))

    @property
    def records(self) -> int:
        """The number of sampled records."""
        return len(self.values)

    @property
    def all_different(self) -> bool:
        """Whether all records have distinct values."""
        return self.records > 1 and bool(self.valid.all()) and self.distinct == self.records


def sample_evenly(split: Split, most: int) -> Split:
    """All records, or at most `most` evenly spaced ones: the first ones may all have one class."""
    records = len(split)
    if records <= most:
        return split
    view: Split = split[:: -(-records // most)]
    return view


def read_first_batch(split: Split, columns: Sequence[str]) -> dict[str, Column]:
    """These columns of the first records; empty if there are no records."""
    with iter(split.batches(FIRST_RECORDS, columns=columns, threads=1, prefetch=0)) as batches:
        return next(batches, {})


def survey_columns(split: Split, columns: Sequence[str]) -> dict[str, ColumnSample]:
    """A sample of columns with one value per record."""
    parts: dict[str, list[tuple[Array, Validity]]] = {name: [] for name in columns}
    texts: set[str] = set()
    if columns:
        for batch in sample_evenly(split, MAX_SURVEYED_RECORDS).batches(_ROWS, columns=columns):
            for name in columns:
                column = batch[name]
                if isinstance(column, Strings):
                    texts.add(name)
                parts[name].append((_get_values(column), find_valid_rows(column)))
    return {name: _concat_sample(found, name in texts) for name, found in parts.items() if found}


def is_target_leak(seen: ColumnSample, target: ColumnSample) -> bool:
    """Whether a column leaks the target: it is equal, or has exactly one value per class."""
    both = seen.valid & target.valid
    if 2 * int(both.sum()) < seen.records:
        return False
    ours, theirs = seen.values[both], target.values[both]
    values, our_codes = np.unique(ours, return_inverse=True)
    classes, their_codes = np.unique(theirs, return_inverse=True)
    if len(classes) < 2 or len(values) != len(classes):
        return False
    if seen.is_text == target.is_text and np.array_equal(_to_plain(ours), _to_plain(theirs)):
        return True
    if len(ours) < _MIN_EVIDENCE or 2 * len(values) > len(ours):
        return False
    pairs = our_codes.reshape(-1).astype(np.int64) * len(classes) + their_codes.reshape(-1)
    return len(np.unique(pairs)) == len(values)


def find_valid_rows(column: Column) -> Validity:
    """A mask of the rows that have a value."""
    if isinstance(column, (Optional, Strings, Ragged, SparseColumn)) and column.valid is not None:
        return column.valid
    return np.ones(len(column), np.bool_)


def decode_string(value: str | bytes | None) -> str:
    """A stored string as text; invalid UTF-8 is replaced, and a missing value is empty."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _get_values(column: Column) -> Array:
    if isinstance(column, Strings):
        return np.array([hash(decode_string(value)) for value in column.tolist()], np.int64)
    return column.values if isinstance(column, Optional) else np.asarray(column)


def _concat_sample(parts: list[tuple[Array, Validity]], is_text: bool) -> ColumnSample:
    values = np.concatenate([values for values, _ in parts])
    return ColumnSample(values, np.concatenate([valid for _, valid in parts]), is_text)


def _to_plain(values: Array) -> Array:
    # A label copied as a float is still the label; strings are compared as they are.
    with np.errstate(over="ignore"):
        return values.astype(np.float32) if values.dtype.kind == "f" else values


MAX_VALUES = 65_536

ColumnForm: TypeAlias = 'InputForm | Literal["string"]'
"""A form; for a string, the records decide which."""

TOKEN_COMPANIONS = frozenset([
    "attention_mask", "input_mask", "padding_mask", "token_type_ids", "input_type_ids", "segment_ids",
    "type_ids", "position_ids", "special_tokens_mask", "offset_mapping", "word_lengths",
])  # fmt: skip
_TOKEN_NAMES = frozenset(["tokens", "token_ids", "input_ids", "input_word_ids", "word_ids", "ids"])
_FILE_NAMES = frozenset([
    "filename", "file_name", "filepath", "file_path", "path", "file", "image_path", "source_id", "sha256",
    "md5", "hash", "key",
])  # fmt: skip
_METADATA_NAMES = frozenset([
    "format", "height", "width", "channels", "depth", "colorspace", "mask_format", "image_format",
    "encoding", "bits",
])  # fmt: skip
_TARGET_NAMES = frozenset(["class", "label", "labels", "category", "target"])
_CLASS_NAMES = frozenset([
    "label_name", "label_names", "label_text", "class_name", "class_names", "class_text", "category_name",
    "target_name",
])  # fmt: skip
_ID_PATTERN = re.compile(
    r"(?:.*[_/ .-])?(?:id|idx|index|uid|uuid|guid|key|row|record|number|nr|no|unnamed: 0)|.*[a-z](?:Id|ID)"
)
_MIN_SIDE = 8
MAX_CHANNELS = 32


class ExclusionReason(str):
    """Why a column is left out."""


def infer_column_form(schema: Schema, column: str) -> ColumnForm | ExclusionReason:
    """The form in which a column can be used, or why it cannot."""
    feature = schema[column]
    if column not in schema.steps:
        return input_form(feature, column)
    if _is_integer(feature) and feature.shape == ():
        return "tokens"
    return ExclusionReason("steps without a single integer each are not used")


@singledispatch
def input_form(feature: Feature, column: str) -> ColumnForm | ExclusionReason:
    """The form in which a baseline model uses a feature type, or why it does not."""
    return ExclusionReason(f"{type(feature).__name__} is not supported")


input_form.register(Image, lambda feature, column: "image")
input_form.register(Mask, lambda feature, column: ExclusionReason(f"a mask; --label {column} makes it the target"))
input_form.register(Boxes, lambda feature, column: ExclusionReason("boxes are not supported"))


@input_form.register(Label)
def _(feature: Label, column: str) -> ColumnForm | ExclusionReason:
    return "category" if feature.shape == () else ExclusionReason("several classes per record")


@input_form.register(Text)
@input_form.register(Bytes)
def _(feature: Feature, column: str) -> ColumnForm | ExclusionReason:
    return "string" if feature.shape == () else ExclusionReason("a list of strings")


@input_form.register(Sparse)
def _(feature: Sparse, column: str) -> ColumnForm | ExclusionReason:
    return "numbers" if feature.size <= MAX_VALUES else _too_many_values(feature.size)


@singledispatch
def target_kind(feature: Feature) -> TaskKind | None:
    """The kind of task with a target of this feature type; None if there is no model for it."""
    if feature.shape != ():
        return None
    return {
        "int": "classification",
        "float": "regression",
        "str": "classification",
        "bytes": "classification",
    }.get(feature.value_kind or "")  # type: ignore[return-value]


target_kind.register(Mask, lambda feature: "segmentation")
target_kind.register(MultiLabel, lambda feature: "multilabel")


@target_kind.register(Label)
def _(feature: Label) -> TaskKind | None:
    return "classification" if feature.shape == () else "multilabel"


@target_kind.register(Tensor)
def _(feature: Tensor) -> TaskKind | None:
    # bfloat16 has its own kind.
    return "regression" if feature.shape == () and feature.dtype.kind not in "biuc" else None


def _is_integer(feature: Feature) -> bool:
    """Whether values are integers that are not class ids."""
    is_int = feature.value_kind == "int" and feature.class_count is None
    return is_int and bool(feature.dtype.kind != "b")


def explain_exclusion(schema: Schema, column: str, target: str) -> str | None:
    """Why a column is not informative, or leaks the target; None if it can be used."""
    feature = schema[column]
    key = feature.key or column
    names = {column.casefold(), get_last_name_part(column), get_last_name_part(key)}
    is_string = feature.value_kind in ("str", "bytes")
    if is_string and not schema[target].is_image and _is_class_name_column(schema, column, target):
        return f"has the class name, and would leak `{target}`"
    if not names.isdisjoint(_FILE_NAMES) and is_string and feature.shape == ():
        return "identifies the source of the record"
    has_image = bool(of_type(schema.features, Image))
    if not names.isdisjoint(_METADATA_NAMES) and (has_image or key.startswith("image/")):
        return "describes how the image is stored"
    return None


def is_id_like(column: str) -> bool:
    """Whether a column is named like an id of records."""
    name = column.rpartition("/")[2]
    return _ID_PATTERN.fullmatch(name) is not None or _ID_PATTERN.fullmatch(name.casefold()) is not None


def is_mask_like(column: str) -> bool:
    """Whether a column of images is named like a mask."""
    return re.search(r"mask|segmentation|annotation|label", column.casefold()) is not None


def get_last_name_part(name: str) -> str:
    """The last part of a name such as image/class/label, in lower case."""
    return name.rpartition("/")[2].casefold()


def _is_class_name_column(schema: Schema, column: str, target: str) -> bool:
    key, target_key = schema[column].key or column, schema[target].key or target
    if column.casefold() in _CLASS_NAMES or get_last_name_part(key) in _CLASS_NAMES:
        return True
    stem = get_last_name_part(target)
    if column.casefold() in {f"{stem}{mark}{word}" for mark in "_/" for word in ("name", "names", "text", "str")}:
        return True
    folder, _, _ = key.rpartition("/")
    # image/class/text next to image/class/label: everything under a class describes it.
    return get_last_name_part(folder) in _TARGET_NAMES and folder in (
        target_key.rpartition("/")[0],
        target_key,
    )


@input_form.register(Int64)
@input_form.register(Float32)
@input_form.register(Tensor)
def _infer_number_form(feature: Feature, column: str) -> InputForm | ExclusionReason:
    shape, dtype = feature.shape, feature.dtype
    if dtype.kind == "c":
        return ExclusionReason("complex numbers")
    is_integer = _is_integer(feature)
    if None in shape:
        if is_integer and shape == (None,):
            return "tokens"
        return ExclusionReason("lists of different lengths without integers" if len(shape) == 1 else "varying shapes")
    values = math.prod([size or 0 for size in shape])
    if not values:
        return ExclusionReason("no values")
    if _is_image_shape(column, shape):
        return "image"
    if (
        is_integer
        and len(shape) == 1
        and values > 1
        and (get_last_name_part(column) in _TOKEN_NAMES | TOKEN_COMPANIONS)
    ):
        return "tokens"
    return "numbers" if values <= MAX_VALUES else _too_many_values(values)


def _is_image_shape(column: str, shape: tuple[int | None, ...]) -> bool:
    if not get_last_name_part(column).startswith(("image", "img", "picture")) or len(shape) not in (2, 3):
        return False
    sizes = [size or 0 for size in shape]
    return min(sizes[:2]) >= _MIN_SIDE and (len(sizes) == 2 or sizes[2] <= MAX_CHANNELS)


def _too_many_values(values: int) -> ExclusionReason:
    return ExclusionReason(f"{values:,} values per record, more than {MAX_VALUES:,}")
