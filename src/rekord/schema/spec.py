"""A tf.io feature spec as plain values: what a schema becomes without TensorFlow, and the text of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.errors import RekordError
from rekord.schema.base import Feature
from rekord.schema.feature import Boxes, Sparse, Tensor, Text
from rekord.schema.refuse import not_examples, refuse, shown
from rekord.schema.schema import Schema

Dtype: TypeAlias = Literal["int64", "float32", "string"]
PartitionKind: TypeAlias = Literal[
    "RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds", "UniformRowLength"
]

DTYPES: tuple[Dtype, ...] = ("int64", "float32", "string")
CLASSES = ("FixedLenFeature", "VarLenFeature", "FixedLenSequenceFeature", "SparseFeature", "RaggedFeature")
PARTITIONS: tuple[PartitionKind, ...] = (
    "RowSplits",
    "RowLengths",
    "RowStarts",
    "RowLimits",
    "ValueRowIds",
    "UniformRowLength",
)

_SPEC_TYPES: dict[str, Dtype] = {"int64": "int64", "float": "float32", "bytes": "string"}


@dataclass(frozen=True, slots=True)
class FixedLen:
    """tf.io.FixedLenFeature. The default is plain Python, nested tuples in the shape; None is no default."""

    shape: tuple[int, ...]
    dtype: Dtype
    default: Any = None


@dataclass(frozen=True, slots=True)
class VarLen:
    """tf.io.VarLenFeature."""

    dtype: Dtype


@dataclass(frozen=True, slots=True)
class FixedLenSequence:
    """tf.io.FixedLenSequenceFeature. `shape` is that of one step; the default only pads a batch."""

    shape: tuple[int, ...]
    dtype: Dtype
    allow_missing: bool = False
    default: Any = None


@dataclass(frozen=True, slots=True)
class SparseSpec:
    """tf.io.SparseFeature: an index key and a size for each dimension."""

    index_keys: tuple[str, ...]
    value_key: str
    dtype: Dtype
    size: tuple[int, ...]
    already_sorted: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """One of RaggedFeature's partitions: `key` holds it, or `length` is the same for every row."""

    kind: PartitionKind
    key: str | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class RaggedSpec:
    """tf.io.RaggedFeature, its partitions outermost first; without a `value_key` it is the feature's name."""

    dtype: Dtype
    value_key: str | None = None
    partitions: tuple[Partition, ...] = ()
    row_splits_dtype: Literal["int32", "int64"] = "int32"
    validate: bool = False


SpecFeature: TypeAlias = "FixedLen | VarLen | FixedLenSequence | SparseSpec | RaggedSpec"
Spec: TypeAlias = "Mapping[str, SpecFeature]"


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """What the parsers of SequenceExamples take: a spec of the context, and one of the steps."""

    context: Spec = field(default_factory=dict)
    steps: Spec = field(default_factory=dict)


def record_keys(name: str, feature: SpecFeature) -> dict[str, Dtype]:
    """The keys of the record that a feature reads, and the type that it reads each as."""
    if isinstance(feature, SparseSpec):
        indices: dict[str, Dtype] = dict.fromkeys(feature.index_keys, "int64")
        return {**indices, feature.value_key: feature.dtype}
    if isinstance(feature, RaggedSpec):
        lengths: dict[str, Dtype] = {part.key: "int64" for part in feature.partitions if part.key is not None}
        return {feature.value_key or name: feature.dtype, **lengths}
    return {name: feature.dtype}


def spec_of_schema(schema: Schema) -> Spec | SequenceSpec:
    """What tf.io's parsers would take for a schema; `Schema.to_tf_spec` gives the same as TensorFlow's objects.

    The keys of the spec are record keys: TensorFlow has no other name for a column of fixed shape.
    """
    if schema.kind == "bytes":
        raise not_examples("a spec of tf.io")
    context: dict[str, SpecFeature] = {}
    for column, feature in schema.context.items():
        _add(context, column, _context_spec(column, feature, in_sequence=schema.is_sequence))
    if not schema.is_sequence:
        return context
    steps: dict[str, SpecFeature] = {}
    for column, feature in schema.steps.items():
        _add(steps, column, _step_spec(column, feature))
    return SequenceSpec(context, steps)


def _add(spec: dict[str, SpecFeature], column: str, entries: Mapping[str, SpecFeature]) -> None:
    # Record keys are never shared, but the name of a SparseFeature is no record key.
    for key, entry in entries.items():
        if key in spec:
            raise _no_spec(column, f"`{key}` for two columns", "a key of its own in the spec")
        spec[key] = entry


def _context_spec(column: str, feature: Feature, *, in_sequence: bool) -> Mapping[str, SpecFeature]:
    dtype = _SPEC_TYPES[feature.kind]
    if isinstance(feature, Sparse):
        if in_sequence:
            raise _no_spec(column, "Sparse in a SequenceExample", "SparseFeature is for Examples only")
        _refuse_default(column, feature, ((), ()))
        index_key, value_key = feature.record_keys(column)
        return {feature.key or column: SparseSpec((index_key,), value_key, dtype, (feature.size,))}
    if isinstance(feature, Boxes):
        _refuse_default(column, feature, ())
        return {key: RaggedSpec(dtype) for key in feature.record_keys(column)}
    key = feature.key or column
    if feature.optional and (feature.shape == (None,) or not feature.variable or isinstance(feature, Tensor)):
        return {key: VarLen(dtype)}
    if isinstance(feature, Tensor):
        default = feature.default_value().tobytes() if feature.has_default else None
        return {key: FixedLen((), dtype, default)}
    if feature.variable:
        _refuse_default(column, feature, ())
        return {key: _ragged(column, feature, dtype)}
    return {key: FixedLen(_known(feature), dtype, _stored(feature) if feature.has_default else None)}


def _step_spec(column: str, feature: Feature) -> Mapping[str, SpecFeature]:
    dtype = _SPEC_TYPES[feature.kind]
    if isinstance(feature, Sparse):
        raise _no_spec(
            column, "Sparse in the steps of a SequenceExample", "SparseFeature is for Examples only"
        )
    if isinstance(feature, Boxes):
        return {key: RaggedSpec(dtype) for key in feature.record_keys(column)}
    key = feature.key or column
    if feature.variable and not isinstance(feature, Tensor):
        if feature.optional and feature.shape == (None,):
            return {key: VarLen(dtype)}
        return {key: _ragged(column, feature, dtype)}
    shape = () if isinstance(feature, Tensor) else _known(feature)
    return {key: FixedLenSequence(shape, dtype, allow_missing=feature.optional)}


def _ragged(column: str, feature: Feature, dtype: Dtype) -> RaggedSpec:
    if feature.shape[0] is not None:
        raise _no_spec(
            column, f"shape {feature.shape}", "only the outermost dimension may vary in a RaggedFeature"
        )
    lengths = [Partition("RowLengths", key=key) for key in feature.record_keys(column)[1:]]
    uniform = [Partition("UniformRowLength", length=size) for size in feature.shape[1 + len(lengths) :]]
    return RaggedSpec(dtype, partitions=(*lengths, *uniform))


def _known(feature: Feature) -> tuple[int, ...]:
    return tuple([size for size in feature.shape if size is not None])


def _refuse_default(column: str, feature: Feature, empty: Any) -> None:
    if feature.has_default and feature.default != empty:
        why = "TensorFlow reads an absent list of varying length as empty"
        raise _no_spec(column, f"default {shown(feature.default)}", why)


def _no_spec(column: str, found: str, expected: str) -> RekordError:
    return refuse(
        "S121",
        f"`{column}` has no tf.io spec",
        column=column,
        expected=expected,
        found=found,
        do="leave the column out of the schema that becomes a spec, or read it with rekord",
    )


def _stored(feature: Feature) -> Any:
    """A default as the record's list would hold it, in the shape of the feature."""
    if isinstance(feature, Text):
        return _encoded(feature.default)
    if feature.kind == "int64":
        # Through the declared dtype first: uint64 is stored bit for bit.
        numbers = np.array(feature.default, feature.dtype)
        bits = numbers.view(np.int64) if numbers.dtype == np.uint64 else numbers.astype(np.int64)
        return nested(bits.tolist())
    return feature.default


def _encoded(value: Any) -> Any:
    return tuple([_encoded(part) for part in value]) if isinstance(value, tuple) else value.encode("utf-8")


def nested(value: Any) -> Any:
    """Lists in lists as tuples in tuples, the one form in which a spec keeps a default."""
    return tuple([nested(part) for part in value]) if isinstance(value, (list, tuple)) else value


def to_source(spec: Spec | SequenceSpec) -> str:
    """The Python text of a spec; for a sequence that of the pair (context spec, sequence spec)."""
    if isinstance(spec, SequenceSpec):
        return f"(\n{_indented(_dict_source(spec.context))},\n{_indented(_dict_source(spec.steps))},\n)"
    return _dict_source(spec)


def feature_source(feature: SpecFeature) -> str:
    """The Python text of one feature: `tf.io.FixedLenFeature([], tf.int64)`."""
    dtype = f"tf.{feature.dtype}"
    if isinstance(feature, FixedLen):
        default = "" if feature.default is None else f", default_value={_written(feature.default)}"
        return f"tf.io.FixedLenFeature({_written(feature.shape)}, {dtype}{default})"
    if isinstance(feature, VarLen):
        return f"tf.io.VarLenFeature({dtype})"
    if isinstance(feature, FixedLenSequence):
        missing = ", allow_missing=True" if feature.allow_missing else ""
        default = "" if feature.default is None else f", default_value={_written(feature.default)}"
        return f"tf.io.FixedLenSequenceFeature({_written(feature.shape)}, {dtype}{missing}{default})"
    if isinstance(feature, SparseSpec):
        several = len(feature.index_keys) != 1
        index = _written(feature.index_keys if several else feature.index_keys[0])
        size = _written(feature.size if several else feature.size[0])
        is_sorted = ", already_sorted=True" if feature.already_sorted else ""
        return f"tf.io.SparseFeature({index}, {_written(feature.value_key)}, {dtype}, {size}{is_sorted})"
    parts = [dtype]
    if feature.value_key is not None:
        parts.append(f"value_key={_written(feature.value_key)}")
    if feature.partitions:
        inner = ", ".join([_partition_source(each) for each in feature.partitions])
        parts.append(f"partitions=[{inner}]")
    if feature.row_splits_dtype != "int32":
        parts.append(f"row_splits_dtype=tf.{feature.row_splits_dtype}")
    if feature.validate:
        parts.append("validate=True")
    return f"tf.io.RaggedFeature({', '.join(parts)})"


def _partition_source(partition: Partition) -> str:
    argument = partition.length if partition.key is None else partition.key
    return f"tf.io.RaggedFeature.{partition.kind}({_written(argument)})"


def _dict_source(spec: Spec) -> str:
    lines = [f"    {_written(name)}: {feature_source(feature)},\n" for name, feature in spec.items()]
    return "{\n" + "".join(lines) + "}" if lines else "{}"


def _indented(text: str) -> str:
    # Only whole lines: a newline inside a name is written as \n, so that no line is part of a text.
    return "\n".join([f"    {line}" for line in text.split("\n")])


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join([_written(part) for part in value])}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    text = repr(value)
    # Double quotes, as most people's code has them, where that changes nothing else.
    if isinstance(value, str) and text[0] == "'" and '"' not in text and "\\'" not in text:
        return f'"{text[1:-1]}"'
    return text
