"""Schemas as tf.io feature specs, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from rekord.errors import error, located
from rekord.schema.base import Feature, checked_name
from rekord.schema.defaults import ABSENT
from rekord.schema.feature import Boxes, Bytes, Float32, Int64, Sparse, Tensor, Text
from rekord.schema.refuse import refuse, shown
from rekord.schema.schema import Schema

_TYPES: dict[str, type[Int64] | type[Float32] | type[Bytes]] = {
    "int64": Int64,
    "float32": Float32,
    "string": Bytes,
}
_SPEC_TYPES = {"int64": "int64", "float": "float32", "bytes": "string"}


def to_tf_spec(schema: Schema) -> Any:
    """What tf.io's parsers take; for a sequence the pair (context spec, sequence spec).

    The keys of the spec are record keys: TensorFlow has no other name for a column of fixed shape.
    """
    tf = _tensorflow("to_tf_spec")
    context: dict[str, Any] = {}
    for column, feature in schema.context.items():
        _add(context, column, _context_spec(tf, column, feature, in_sequence=schema.is_sequence))
    if not schema.is_sequence:
        return context
    steps: dict[str, Any] = {}
    for column, feature in schema.steps.items():
        _add(steps, column, _step_spec(tf, column, feature))
    return context, steps


def _add(spec: dict[str, Any], column: str, entries: dict[str, Any]) -> None:
    # Record keys are never shared, but the name of a SparseFeature is no record key.
    for key, entry in entries.items():
        if key in spec:
            raise _no_spec(column, f"`{key}` for two columns", "a key of its own in the spec")
        spec[key] = entry


def _context_spec(tf: Any, column: str, feature: Feature, *, in_sequence: bool) -> dict[str, Any]:
    dtype = getattr(tf, _SPEC_TYPES[feature.kind])
    if isinstance(feature, Sparse):
        if in_sequence:
            raise _no_spec(column, "Sparse in a SequenceExample", "SparseFeature is for Examples only")
        _refuse_default(column, feature, ((), ()))
        index_key, value_key = feature.record_keys(column)
        return {feature.key or column: tf.io.SparseFeature(index_key, value_key, dtype, feature.size)}
    if isinstance(feature, Boxes):
        _refuse_default(column, feature, ())
        return {key: tf.io.RaggedFeature(dtype) for key in feature.record_keys(column)}
    key = feature.key or column
    if feature.optional and (feature.shape == (None,) or not feature.variable or isinstance(feature, Tensor)):
        return {key: tf.io.VarLenFeature(dtype)}
    if isinstance(feature, Tensor):
        default = feature.default_value().tobytes() if feature.has_default else None
        return {key: tf.io.FixedLenFeature([], dtype, default)}
    if feature.variable:
        _refuse_default(column, feature, ())
        return {key: _ragged(tf, column, feature, dtype)}
    default = _stored(feature) if feature.has_default else None
    return {key: tf.io.FixedLenFeature(list(feature.shape), dtype, default)}


def _step_spec(tf: Any, column: str, feature: Feature) -> dict[str, Any]:
    dtype = getattr(tf, _SPEC_TYPES[feature.kind])
    if isinstance(feature, Sparse):
        raise _no_spec(
            column, "Sparse in the steps of a SequenceExample", "SparseFeature is for Examples only"
        )
    if isinstance(feature, Boxes):
        return {key: tf.io.RaggedFeature(dtype) for key in feature.record_keys(column)}
    key = feature.key or column
    if feature.variable and not isinstance(feature, Tensor):
        if feature.optional and feature.shape == (None,):
            return {key: tf.io.VarLenFeature(dtype)}
        return {key: _ragged(tf, column, feature, dtype)}
    shape = [] if isinstance(feature, Tensor) else list(feature.shape)
    return {key: tf.io.FixedLenSequenceFeature(shape, dtype, allow_missing=feature.optional)}


def _ragged(tf: Any, column: str, feature: Feature, dtype: Any) -> Any:
    if feature.shape[0] is not None:
        raise _no_spec(
            column, f"shape {feature.shape}", "only the outermost dimension may vary in a RaggedFeature"
        )
    kinds = tf.io.RaggedFeature
    lengths = [kinds.RowLengths(key) for key in feature.record_keys(column)[1:]]
    uniform = [kinds.UniformRowLength(size) for size in feature.shape[1 + len(lengths) :]]
    return kinds(dtype, partitions=[*lengths, *uniform])


def _refuse_default(column: str, feature: Feature, empty: Any) -> None:
    if feature.has_default and feature.default != empty:
        why = "TensorFlow reads an absent list of varying length as empty"
        raise _no_spec(column, f"default {shown(feature.default)}", why)


def _no_spec(column: str, found: str, expected: str) -> Exception:
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
        return (
            numbers.view(np.int64).tolist()
            if numbers.dtype == np.uint64
            else numbers.astype(np.int64).tolist()
        )
    return _listed(feature.default)


def _encoded(value: Any) -> Any:
    return [_encoded(part) for part in value] if isinstance(value, tuple) else value.encode("utf-8")


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def from_tf_spec(spec: Any) -> Schema:
    """The schema of a spec: a dict, or the pair (context spec, sequence spec).

    It reads what TensorFlow reads, to which an absent list of varying length is empty: VarLenFeature becomes
    an optional column, so that the difference is kept; RaggedFeature and the others default to no values.
    The padding value of a FixedLenSequenceFeature belongs to batches and is not kept.
    """
    if isinstance(spec, Mapping):
        return Schema({_name(name): _example_feature(name, one) for name, one in spec.items()})
    if (
        isinstance(spec, (tuple, list))
        and len(spec) == 2
        and all(isinstance(part or {}, Mapping) for part in spec)
    ):
        context, steps = (part or {} for part in spec)
        return Schema(
            context={_name(name): _context_feature(name, one) for name, one in context.items()},
            steps={_name(name): _step_feature(name, one) for name, one in steps.items()},
        )
    raise refuse(
        "S120",
        "this is no tf.io spec",
        expected="a dict of tf.io features by key, or the pair (context spec, sequence spec)",
        found=shown(spec),
        do='Schema.from_tf_spec({"label": tf.io.FixedLenFeature([], tf.int64)})',
    )


def _name(name: object) -> str:
    return checked_name(name, "a key of the spec")


def _example_feature(name: str, spec: Any) -> Feature:
    kind = type(spec).__name__
    with located(feature=name):
        if kind == "FixedLenFeature":
            return _fixed(name, spec)
        if kind == "VarLenFeature":
            return _type_of(name, spec.dtype)((None,), optional=True)
        if kind == "RaggedFeature":
            return _from_ragged(name, spec, default=())
        if kind == "SparseFeature":
            return _sparse(name, spec)
        if kind == "FixedLenSequenceFeature":
            if not spec.allow_missing:
                raise _no_schema(
                    name, "allow_missing=True, without which no Example is parsed", "allow_missing=False"
                )
            return _type_of(name, spec.dtype)((None, *_shape(name, spec.shape)), default=())
    raise _unknown(name, spec)


def _context_feature(name: str, spec: Any) -> Feature:
    if type(spec).__name__ in ("SparseFeature", "FixedLenSequenceFeature"):
        expected = "FixedLenFeature, VarLenFeature or RaggedFeature: TensorFlow takes no other in a context"
        raise _no_schema(name, expected, type(spec).__name__)
    return _example_feature(name, spec)


def _step_feature(name: str, spec: Any) -> Feature:
    kind = type(spec).__name__
    with located(feature=name):
        if kind == "FixedLenSequenceFeature":
            return _type_of(name, spec.dtype)(_shape(name, spec.shape), optional=bool(spec.allow_missing))
        if kind == "VarLenFeature":
            return _type_of(name, spec.dtype)((None,), optional=True)
        if kind == "RaggedFeature":
            return _from_ragged(name, spec, optional=True)
        if kind in ("FixedLenFeature", "SparseFeature"):
            expected = (
                "FixedLenSequenceFeature, VarLenFeature or RaggedFeature: TensorFlow takes no other in steps"
            )
            raise _no_schema(name, expected, kind)
    raise _unknown(name, spec)


def _fixed(name: str, spec: Any) -> Feature:
    shape = _shape(name, spec.shape)
    kind = _type_of(name, spec.dtype)
    if spec.default_value is None:
        return kind(shape)
    value = spec.default_value
    try:
        if hasattr(value, "numpy"):
            value = value.numpy()
        if kind is Bytes:
            value = np.vectorize(_as_bytes, otypes=[object])(np.array(value, object))
        else:
            value = np.array(value)
        value = value.reshape(shape)  # as TensorFlow does: [0] is a default for a scalar
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        raise _no_schema(
            name, f"a default that is known and fits shape {shape}", shown(spec.default_value)
        ) from None
    return kind(shape, default=value if shape else value.item())


def _as_bytes(value: Any) -> Any:
    return value.encode("utf-8") if isinstance(value, str) else value


def _from_ragged(name: str, spec: Any, *, optional: bool = False, default: Any = ABSENT) -> Feature:
    lengths: list[str] = []
    sizes: list[int] = []
    for partition in spec.partitions:
        kind = type(partition).__name__
        if kind == "UniformRowLength":
            sizes.append(int(partition.length))
        elif kind == "RowLengths" and not sizes:
            lengths.append(partition.key)
        elif kind == "RowLengths":
            raise _no_schema(
                name, "row lengths outside, uniform lengths inside", "RowLengths inside UniformRowLength"
            )
        else:
            raise _no_schema(
                name, "partitions that are RowLengths or UniformRowLength", f"{kind}({partition.key!r})"
            )
    shape = (None,) * (1 + len(lengths)) + tuple(sizes)
    key = spec.value_key if spec.value_key != name else None
    kind_of = _type_of(name, spec.dtype)
    return kind_of(shape, key=key, optional=optional, default=default, partitions=tuple(lengths))


def _sparse(name: str, spec: Any) -> Feature:
    index_key, size = spec.index_key, spec.size
    if isinstance(index_key, (list, tuple)):
        if len(index_key) != 1 or not isinstance(size, (list, tuple)) or len(size) != 1:
            raise _no_schema(
                name, "one index key: a Sparse is a vector", f"index_key={shown(list(index_key))}"
            )
        index_key, size = index_key[0], size[0]
    dtype = _dtype_name(name, spec.dtype)
    if dtype == "string":
        raise _no_schema(name, "numbers, int64 or float32", "dtype string")
    usual = Sparse(dtype, 1).record_keys(name)
    return Sparse(
        dtype,
        size,
        index_key=index_key if index_key != usual[0] else None,
        value_key=spec.value_key if spec.value_key != usual[1] else None,
        default=((), ()),
    )


def _type_of(name: str, dtype: Any) -> type[Int64] | type[Float32] | type[Bytes]:
    return _TYPES[_dtype_name(name, dtype)]


def _dtype_name(name: str, dtype: Any) -> str:
    if isinstance(dtype, type):
        dtype = np.dtype(dtype)
    known = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if known not in _TYPES:
        raise _no_schema(
            name, "dtype int64, float32 or string: records hold no other", f"dtype {shown(dtype)}"
        )
    return str(known)


def _shape(name: str, shape: Any) -> tuple[int | None, ...]:
    try:
        sizes = (
            shape.as_list()
            if hasattr(shape, "as_list")
            else [shape]
            if isinstance(shape, int)
            else list(shape)
        )
    except (TypeError, ValueError):
        raise _no_schema(name, "a shape of known sizes", shown(shape)) from None
    if any(size is None for size in sizes):
        raise _no_schema(name, "a shape of known sizes", shown(shape))
    return tuple(sizes)


def _no_schema(name: object, expected: str, found: str) -> Exception:
    column = name if isinstance(name, str) else None
    return refuse(
        "S120",
        f"`{name}` is specified in a way that a schema cannot express",
        column=column,
        expected=expected,
        found=found,
        do=f"leave `{name}` out of the spec, or declare the column by hand",
    )


def _unknown(name: object, spec: object) -> Exception:
    return _no_schema(name, "one of the five feature classes of tf.io", shown(spec))


def _tensorflow(call: str) -> Any:
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
