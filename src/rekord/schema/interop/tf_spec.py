"""Conversion between schemas and tf.io feature specs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.errors import RekordError, add_location, error, not_examples_error, preview, schema_error
from rekord.schema.base import ABSENT, Feature, Shape, flat_values, validate_name
from rekord.schema.features import Bytes, Float32, Int64, Sparse
from rekord.schema.schema import Schema

Dtype: TypeAlias = Literal["int64", "float32", "string"]
PartitionKind: TypeAlias = Literal[
    "RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds", "UniformRowLength"
]

SPEC_DTYPES: tuple[Dtype, ...] = ("int64", "float32", "string")
FEATURE_CLASSES = (
    "FixedLenFeature", "VarLenFeature", "FixedLenSequenceFeature", "SparseFeature", "RaggedFeature",
)  # fmt: skip
PARTITION_KINDS: tuple[PartitionKind, ...] = (
    "RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds", "UniformRowLength",
)  # fmt: skip

_DTYPE_OF_KIND: dict[str, Dtype] = {"int64": "int64", "float": "float32", "bytes": "string"}


@dataclass(frozen=True, slots=True)
class FixedLenSpec:
    """tf.io.FixedLenFeature. The default is plain Python, nested tuples of the shape; None if there is none."""

    shape: tuple[int, ...]
    dtype: Dtype
    default: Any = None


@dataclass(frozen=True, slots=True)
class VarLenSpec:
    """tf.io.VarLenFeature."""

    dtype: Dtype


@dataclass(frozen=True, slots=True)
class FixedLenSequenceSpec:
    """tf.io.FixedLenSequenceFeature. `shape` is that of one step; the default only pads batches."""

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
    """A partition of a RaggedFeature: stored under `key`, or with the same `length` for every row."""

    kind: PartitionKind
    key: str | None = None
    length: int | None = None


@dataclass(frozen=True, slots=True)
class RaggedSpec:
    """tf.io.RaggedFeature, partitions outermost first; `value_key` defaults to the name of the feature."""

    dtype: Dtype
    value_key: str | None = None
    partitions: tuple[Partition, ...] = ()
    row_splits_dtype: Literal["int32", "int64"] = "int32"
    validate: bool = False


SpecFeature: TypeAlias = "FixedLenSpec | VarLenSpec | FixedLenSequenceSpec | SparseSpec | RaggedSpec"
Spec: TypeAlias = "Mapping[str, SpecFeature]"


@dataclass(frozen=True, slots=True)
class SequenceSpec:
    """The specs for parsing SequenceExamples: one for the context, one for the steps."""

    context: Spec = field(default_factory=dict)
    steps: Spec = field(default_factory=dict)


def record_keys(name: str, feature: SpecFeature) -> dict[str, Dtype]:
    """The record keys that a feature reads, and the dtype of each."""
    if isinstance(feature, SparseSpec):
        indices: dict[str, Dtype] = dict.fromkeys(feature.index_keys, "int64")
        return {**indices, feature.value_key: feature.dtype}
    if isinstance(feature, RaggedSpec):
        lengths: dict[str, Dtype] = {part.key: "int64" for part in feature.partitions if part.key is not None}
        return {feature.value_key or name: feature.dtype, **lengths}
    return {name: feature.dtype}


def spec_from_schema(schema: Schema) -> Spec | SequenceSpec:
    """The tf.io spec of a schema as plain values; `Schema.to_tf_spec` gives it as TensorFlow objects.

    The keys of the spec are record keys: TensorFlow has no other names for columns of fixed shape.
    """
    if schema.kind == "bytes":
        raise not_examples_error("a tf.io spec")
    context: dict[str, SpecFeature] = {}
    for column, feature in schema.context.items():
        _add_entries(context, column, _build_context_entries(column, feature, in_sequence=schema.is_sequence))
    if not schema.is_sequence:
        return context
    steps: dict[str, SpecFeature] = {}
    for column, feature in schema.steps.items():
        _add_entries(steps, column, _build_step_entries(column, feature))
    return SequenceSpec(context, steps)


def _add_entries(spec: dict[str, SpecFeature], column: str, entries: Mapping[str, SpecFeature]) -> None:
    # Record keys are unique, but the name of a SparseFeature is not a record key.
    for key, entry in entries.items():
        if key in spec:
            raise _inexpressible_error(column, f"`{key}` for two columns", "a unique key in the spec")
        spec[key] = entry


def _build_context_entries(column: str, feature: Feature, *, in_sequence: bool) -> Mapping[str, SpecFeature]:
    dtype = _DTYPE_OF_KIND[feature.kind]
    if feature.sparse_size is not None:
        if in_sequence:
            raise _inexpressible_error(column, "Sparse in a SequenceExample", "Examples, as SparseFeature requires")
        _reject_default(column, feature, ((), ()))
        index_key, value_key = feature.record_keys(column)
        return {feature.key or column: SparseSpec((index_key,), value_key, dtype, (feature.sparse_size,))}
    if feature.storage == "parallel":
        _reject_default(column, feature, ())
        return {key: RaggedSpec(dtype) for key in feature.record_keys(column)}
    key = feature.key or column
    if feature.storage == "blob" and len(feature.record_keys(column)) > 1:
        return _build_shaped_entries(column, feature)
    shape = feature.stored_shape
    if feature.optional and (shape == (None,) or None not in shape):
        return {key: VarLenSpec(dtype)}
    if None in shape:
        _reject_default(column, feature, ())
        return {key: _build_ragged_spec(column, feature, dtype)}
    sizes = _known_dimensions(shape)
    if not feature.has_default:
        return {key: FixedLenSpec(sizes, dtype)}
    # Floats as declared: not with all the digits of float32.
    values = tuple(flat_values(feature.default)) if dtype == "float32" else feature.stored_default()[0]
    return {key: FixedLenSpec(sizes, dtype, shaped(values, sizes))}


def _build_shaped_entries(column: str, feature: Feature) -> Mapping[str, SpecFeature]:
    """A tensor that is stored with its shape: a byte string, and as many sizes as it has dimensions."""
    bytes_key, shape_key = feature.record_keys(column)
    _reject_default(column, feature, ())
    if feature.optional:
        return {bytes_key: VarLenSpec("string"), shape_key: VarLenSpec("int64")}
    return {bytes_key: FixedLenSpec((), "string"), shape_key: FixedLenSpec((len(feature.shape),), "int64")}


def _build_step_entries(column: str, feature: Feature) -> Mapping[str, SpecFeature]:
    dtype = _DTYPE_OF_KIND[feature.kind]
    if feature.sparse_size is not None:
        raise _inexpressible_error(
            column, "Sparse in the steps of a SequenceExample", "Examples, as SparseFeature requires"
        )
    if feature.storage == "parallel":
        return {key: RaggedSpec(dtype) for key in feature.record_keys(column)}
    if feature.storage == "blob" and len(feature.record_keys(column)) > 1:
        raise _inexpressible_error(column, f"shape {feature.shape}", "tensors with at most one None, in steps")
    key = feature.key or column
    shape = feature.stored_shape
    if None in shape:
        if feature.optional and shape == (None,):
            return {key: VarLenSpec(dtype)}
        return {key: _build_ragged_spec(column, feature, dtype)}
    return {key: FixedLenSequenceSpec(_known_dimensions(shape), dtype, allow_missing=feature.optional)}


def _build_ragged_spec(column: str, feature: Feature, dtype: Dtype) -> RaggedSpec:
    if feature.shape[0] is not None:
        raise _inexpressible_error(
            column, f"shape {feature.shape}", "a RaggedFeature, in which only the outermost dimension varies"
        )
    lengths = [Partition("RowLengths", key=key) for key in feature.record_keys(column)[1:]]
    uniform = [Partition("UniformRowLength", length=size) for size in feature.shape[1 + len(lengths) :]]
    return RaggedSpec(dtype, partitions=(*lengths, *uniform))


def _known_dimensions(shape: Shape) -> tuple[int, ...]:
    return tuple([size for size in shape if size is not None])


def _reject_default(column: str, feature: Feature, empty: Any) -> None:
    if feature.has_default and feature.default != empty:
        why = "no default: TensorFlow reads a missing list of varying length as empty"
        raise _inexpressible_error(column, f"default {preview(feature.default)}", why)


def _inexpressible_error(column: str, found: str, expected: str) -> RekordError:
    return schema_error(
        "S121",
        f"`{column}` cannot be expressed as a tf.io spec",
        column=column,
        expected=expected,
        found=found,
        do="drop the column from the schema, or read it with rekord",
    )


def shaped(values: tuple[Any, ...], sizes: tuple[int, ...]) -> Any:
    """Flat values as nested tuples of a known shape."""
    if not sizes:
        return values[0]
    inner = len(values) // sizes[0] if sizes[0] else 0
    return tuple([shaped(values[i * inner : (i + 1) * inner], sizes[1:]) for i in range(sizes[0])])


def to_nested_tuples(value: Any) -> Any:
    """Nested lists as nested tuples, the canonical form of a default."""
    return tuple([to_nested_tuples(part) for part in value]) if isinstance(value, (list, tuple)) else value


def to_source(spec: Spec | SequenceSpec) -> str:
    """The Python source of a spec; for a sequence, of the pair (context spec, sequence spec)."""
    if isinstance(spec, SequenceSpec):
        return f"(\n{_indent(_dict_to_source(spec.context))},\n{_indent(_dict_to_source(spec.steps))},\n)"
    return _dict_to_source(spec)


@dataclass(frozen=True, slots=True)
class _TfDtype:
    """A dtype among the arguments of a call."""

    name: str


def _call_arguments(feature: SpecFeature) -> tuple[str, list[Any], dict[str, Any]]:
    """The tf.io class of a feature, its positional arguments, and the keywords that differ from their defaults."""
    dtype = _TfDtype(feature.dtype)
    keywords: dict[str, Any]
    if isinstance(feature, VarLenSpec):
        return "VarLenFeature", [dtype], {}
    if isinstance(feature, FixedLenSpec):
        name, arguments, keywords = "FixedLenFeature", [feature.shape, dtype], {"default_value": feature.default}
    elif isinstance(feature, FixedLenSequenceSpec):
        name, arguments = "FixedLenSequenceFeature", [feature.shape, dtype]
        keywords = {"allow_missing": feature.allow_missing or None, "default_value": feature.default}
    elif isinstance(feature, SparseSpec):
        index, size = (part[0] if len(part) == 1 else part for part in (feature.index_keys, feature.size))
        name, arguments = "SparseFeature", [index, feature.value_key, dtype, size]
        keywords = {"already_sorted": feature.already_sorted or None}
    else:
        splits = None if feature.row_splits_dtype == "int32" else _TfDtype(feature.row_splits_dtype)
        name, arguments = "RaggedFeature", [dtype]
        keywords = {
            "value_key": feature.value_key,
            "partitions": feature.partitions or None,
            "row_splits_dtype": splits,
            "validate": feature.validate or None,
        }
    return name, arguments, {keyword: value for keyword, value in keywords.items() if value is not None}


def feature_to_source(feature: SpecFeature) -> str:
    """The Python source of one feature: `tf.io.FixedLenFeature([], tf.int64)`."""
    name, arguments, keywords = _call_arguments(feature)
    parts = [_format_value(value) for value in arguments]
    parts += [f"{keyword}={_format_value(value)}" for keyword, value in keywords.items()]
    return f"tf.io.{name}({', '.join(parts)})"


def _dict_to_source(spec: Spec) -> str:
    lines = [f"    {_format_value(name)}: {feature_to_source(feature)},\n" for name, feature in spec.items()]
    return "{\n" + "".join(lines) + "}" if lines else "{}"


def _indent(text: str) -> str:
    # Whole lines only: a newline inside a name is escaped as \n, so that no line is part of a string.
    return "\n".join([f"    {line}" for line in text.split("\n")])


def _format_value(value: Any) -> str:
    if isinstance(value, _TfDtype):
        return f"tf.{value.name}"
    if isinstance(value, Partition):
        return f"tf.io.RaggedFeature.{value.kind}({_format_value(value.length if value.key is None else value.key)})"
    if isinstance(value, tuple):
        return f"[{', '.join([_format_value(part) for part in value])}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    text = repr(value)
    # Double quotes, as in most code, where that changes nothing else.
    if isinstance(value, str) and text[0] == "'" and '"' not in text and "\\'" not in text:
        return f'"{text[1:-1]}"'
    return text


_FEATURE_TYPES: dict[Dtype, type[Int64] | type[Float32] | type[Bytes]] = {
    "int64": Int64,
    "float32": Float32,
    "string": Bytes,
}


def to_tf_spec(schema: Schema) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
    """The spec as TensorFlow objects; for a sequence, the pair (context spec, sequence spec)."""
    tf = _import_tensorflow("to_tf_spec")
    spec = spec_from_schema(schema)
    if isinstance(spec, SequenceSpec):
        return _to_tf_dict(tf, spec.context), _to_tf_dict(tf, spec.steps)
    return _to_tf_dict(tf, spec)


def _to_tf_dict(tf: Any, spec: Spec) -> dict[str, Any]:
    return {name: _to_tf_feature(tf, feature) for name, feature in spec.items()}


def _to_tf_feature(tf: Any, feature: SpecFeature) -> Any:
    name, arguments, keywords = _call_arguments(feature)
    values = {keyword: _to_tf_value(tf, value) for keyword, value in keywords.items()}
    return getattr(tf.io, name)(*[_to_tf_value(tf, value) for value in arguments], **values)


def _to_tf_value(tf: Any, value: Any) -> Any:
    if isinstance(value, _TfDtype):
        return getattr(tf, value.name)
    if isinstance(value, Partition):
        return getattr(tf.io.RaggedFeature, value.kind)(value.length if value.key is None else value.key)
    return [_to_tf_value(tf, part) for part in value] if isinstance(value, tuple) else value


def from_tf_spec(spec: Any) -> Schema:
    """The schema of a tf.io spec: a dict, or the pair (context spec, sequence spec)."""
    return schema_from_spec(spec_from_tf(spec))


def spec_from_tf(spec: Any) -> Spec | SequenceSpec:
    """TensorFlow objects as plain values. TensorFlow is not imported: classes are recognised by name."""
    if isinstance(spec, Mapping):
        return {_validate_name(name): _convert_feature(name, one) for name, one in spec.items()}
    if isinstance(spec, (tuple, list)) and len(spec) == 2 and all(isinstance(part or {}, Mapping) for part in spec):
        context, steps = (
            {_validate_name(name): _convert_feature(name, one) for name, one in (part or {}).items()} for part in spec
        )
        return SequenceSpec(context, steps)
    raise schema_error(
        "S120",
        "not a valid tf.io spec",
        expected="a dict of tf.io features by key, or the pair (context spec, sequence spec)",
        found=preview(spec),
        do='Schema.from_tf_spec({"label": tf.io.FixedLenFeature([], tf.int64)})',
    )


def schema_from_spec(spec: Spec | SequenceSpec) -> Schema:
    """The schema of a spec.

    It reads what TensorFlow reads, where a missing list of varying length is empty: VarLenFeature becomes an optional
    column, which keeps the difference; RaggedFeature and the others default to no values. The padding value of a
    FixedLenSequenceFeature concerns batches and is dropped.
    """
    if isinstance(spec, SequenceSpec):
        return Schema(
            context={name: _context_feature(name, one) for name, one in spec.context.items()},
            steps={name: _step_feature(name, one) for name, one in spec.steps.items()},
        )
    return Schema({name: _example_feature(name, one) for name, one in spec.items()})


def _validate_name(name: object) -> str:
    return validate_name(name, "a feature of the spec")


def _convert_feature(name: str, spec: Any) -> SpecFeature:
    with add_location(feature=name):
        match type(spec).__name__:
            case "FixedLenFeature":
                shape = _convert_shape(name, spec.shape)
                return FixedLenSpec(shape, _convert_dtype(name, spec.dtype), _convert_default(name, spec, shape))
            case "VarLenFeature":
                return VarLenSpec(_convert_dtype(name, spec.dtype))
            case "FixedLenSequenceFeature":
                padding = None if spec.default_value is None else _convert_default(name, spec, ())
                shape, dtype = _convert_shape(name, spec.shape), _convert_dtype(name, spec.dtype)
                return FixedLenSequenceSpec(shape, dtype, bool(spec.allow_missing), padding)
            case "SparseFeature":
                return _convert_sparse(name, spec)
            case "RaggedFeature":
                return _convert_ragged(name, spec)
    raise _spec_error(name, "one of the five tf.io feature classes", preview(spec))


def _convert_sparse(name: str, spec: Any) -> SparseSpec:
    listed = isinstance(spec.index_key, (list, tuple))
    index_keys = tuple(spec.index_key) if listed else (spec.index_key,)
    size = tuple(spec.size) if isinstance(spec.size, (list, tuple)) else (spec.size,)
    return SparseSpec(index_keys, spec.value_key, _convert_dtype(name, spec.dtype), size, bool(spec.already_sorted))


def _convert_ragged(name: str, spec: Any) -> RaggedSpec:
    partitions = []
    for partition in spec.partitions:
        kind = type(partition).__name__
        if kind not in PARTITION_KINDS:
            raise _spec_error(name, "a partition of RaggedFeature", preview(partition))
        uniform = kind == "UniformRowLength"
        partitions.append(
            Partition(
                kind,
                key=None if uniform else partition.key,
                length=int(partition.length) if uniform else None,
            )
        )
    splits = getattr(spec.row_splits_dtype, "name", spec.row_splits_dtype)
    return RaggedSpec(
        _convert_dtype(name, spec.dtype),
        spec.value_key,
        tuple(partitions),
        "int64" if splits == "int64" else "int32",
        bool(spec.validate),
    )


def _convert_default(name: str, spec: Any, shape: tuple[int, ...]) -> Any:
    value = spec.default_value
    if value is None:
        return None
    try:
        if hasattr(value, "numpy"):
            value = value.numpy()
        if _convert_dtype(name, spec.dtype) == "string":
            value = np.vectorize(_to_bytes, otypes=[object])(np.array(value, object))
        else:
            value = np.array(value)
        return to_nested_tuples(value.reshape(shape).tolist())  # [0] is a valid default for a scalar
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        raise _spec_error(name, f"a constant default of shape {shape}", preview(spec.default_value)) from None


def _to_bytes(value: Any) -> Any:
    return value.encode("utf-8") if isinstance(value, str) else value


def _convert_dtype(name: str, dtype: Any) -> Dtype:
    if isinstance(dtype, type):
        dtype = np.dtype(dtype)
    known = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    for each in SPEC_DTYPES:
        if known == each:
            return each
    raise _spec_error(name, "dtype int64, float32 or string", f"dtype {preview(dtype)}")


def _convert_shape(name: str, shape: Any) -> tuple[int, ...]:
    try:
        sizes = shape.as_list() if hasattr(shape, "as_list") else [shape] if isinstance(shape, int) else list(shape)
    except (TypeError, ValueError):
        raise _spec_error(name, "a shape of known sizes", preview(shape)) from None
    if any(size is None for size in sizes):
        raise _spec_error(name, "a shape of known sizes", preview(shape))
    return tuple(sizes)


def _example_feature(name: str, spec: SpecFeature) -> Feature:
    with add_location(feature=name):
        kind = _FEATURE_TYPES[spec.dtype]
        if isinstance(spec, FixedLenSpec):
            default = ABSENT if spec.default is None else spec.default
            return kind(spec.shape, default=default)
        if isinstance(spec, VarLenSpec):
            return kind((None,), optional=True)
        if isinstance(spec, RaggedSpec):
            return _ragged_feature(name, spec, default=())
        if isinstance(spec, SparseSpec):
            return _sparse_feature(name, spec)
        if not spec.allow_missing:
            raise _spec_error(name, "allow_missing=True, which tf.io.parse_example requires", "allow_missing=False")
        return kind((None, *spec.shape), default=())


def _context_feature(name: str, spec: SpecFeature) -> Feature:
    if isinstance(spec, (SparseSpec, FixedLenSequenceSpec)):
        expected = "FixedLenFeature, VarLenFeature or RaggedFeature in a context"
        raise _spec_error(name, expected, _class_name(spec))
    return _example_feature(name, spec)


def _step_feature(name: str, spec: SpecFeature) -> Feature:
    with add_location(feature=name):
        if isinstance(spec, FixedLenSequenceSpec):
            return _FEATURE_TYPES[spec.dtype](spec.shape, optional=spec.allow_missing)
        if isinstance(spec, VarLenSpec):
            return _FEATURE_TYPES[spec.dtype]((None,), optional=True)
        if isinstance(spec, RaggedSpec):
            return _ragged_feature(name, spec, optional=True)
        expected = "FixedLenSequenceFeature, VarLenFeature or RaggedFeature in steps"
        raise _spec_error(name, expected, _class_name(spec))


def _class_name(spec: SpecFeature) -> str:
    names = {FixedLenSpec: "FixedLenFeature", SparseSpec: "SparseFeature"}
    return names.get(type(spec), "FixedLenSequenceFeature")


def _ragged_feature(name: str, spec: RaggedSpec, *, optional: bool = False, default: Any = ABSENT) -> Feature:
    lengths: list[str] = []
    sizes: list[int] = []
    for partition in spec.partitions:
        if partition.length is not None:
            sizes.append(partition.length)
        elif partition.kind == "RowLengths" and partition.key is not None and not sizes:
            lengths.append(partition.key)
        elif partition.kind == "RowLengths":
            raise _spec_error(
                name, "row lengths outside, uniform lengths inside", "RowLengths inside UniformRowLength"
            )
        else:
            found = f"{partition.kind}({preview(partition.key)})"
            raise _spec_error(name, "partitions that are RowLengths or UniformRowLength", found)
    shape = (None,) * (1 + len(lengths)) + tuple(sizes)
    key = spec.value_key if spec.value_key != name else None
    kind = _FEATURE_TYPES[spec.dtype]
    return kind(shape, key=key, optional=optional, default=default, partitions=tuple(lengths))


def _sparse_feature(name: str, spec: SparseSpec) -> Feature:
    if len(spec.index_keys) != 1 or len(spec.size) != 1:
        found = f"index_key={preview(list(spec.index_keys))}"
        raise _spec_error(name, "one index key: Sparse is a vector", found)
    if spec.dtype == "string":
        raise _spec_error(name, "numbers, int64 or float32", "dtype string")
    index_key, value_key = spec.index_keys[0], spec.value_key
    usual = Sparse(spec.dtype, 1).record_keys(name)
    return Sparse(
        spec.dtype,
        spec.size[0],
        index_key=index_key if index_key != usual[0] else None,
        value_key=value_key if value_key != usual[1] else None,
        default=((), ()),
    )


def _spec_error(name: object, expected: str, found: str) -> RekordError:
    column = name if isinstance(name, str) else None
    return schema_error(
        "S120",
        f"spec of `{name}` cannot be expressed as a schema",
        column=column,
        expected=expected,
        found=found,
        do=f"drop `{name}` from the spec, or declare its column in a schema",
    )


def _import_tensorflow(call: str) -> Any:
    try:
        return import_module("tensorflow")
    except ImportError as failure:
        raise error(
            "U602",
            f"{call} needs TensorFlow, which is not installed",
            expected="the package tensorflow",
            found=str(failure),
            do="pip install 'rekord[tensorflow]'",
        ) from failure
