"""Schemas as tf.io feature specs, and the other way round."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

from rekord.errors import RekordError, error, located
from rekord.schema.base import Feature, checked_name
from rekord.schema.defaults import ABSENT
from rekord.schema.feature import Bytes, Float32, Int64, Sparse
from rekord.schema.refuse import refuse, shown
from rekord.schema.schema import Schema
from rekord.schema.spec import (
    DTYPES,
    PARTITIONS,
    Dtype,
    FixedLen,
    FixedLenSequence,
    Partition,
    RaggedSpec,
    SequenceSpec,
    SparseSpec,
    Spec,
    SpecFeature,
    VarLen,
    nested,
    spec_of_schema,
)

_TYPES: dict[Dtype, type[Int64] | type[Float32] | type[Bytes]] = {
    "int64": Int64,
    "float32": Float32,
    "string": Bytes,
}


def to_tf_spec(schema: Schema) -> Any:
    """What tf.io's parsers take; for a sequence the pair (context spec, sequence spec)."""
    tf = _tensorflow("to_tf_spec")
    spec = spec_of_schema(schema)
    if isinstance(spec, SequenceSpec):
        return _tf_dict(tf, spec.context), _tf_dict(tf, spec.steps)
    return _tf_dict(tf, spec)


def _tf_dict(tf: Any, spec: Spec) -> dict[str, Any]:
    return {name: _tf_feature(tf, feature) for name, feature in spec.items()}


def _tf_feature(tf: Any, feature: SpecFeature) -> Any:
    dtype = getattr(tf, feature.dtype)
    if isinstance(feature, FixedLen):
        return tf.io.FixedLenFeature(list(feature.shape), dtype, _listed(feature.default))
    if isinstance(feature, VarLen):
        return tf.io.VarLenFeature(dtype)
    if isinstance(feature, FixedLenSequence):
        default = _listed(feature.default)
        return tf.io.FixedLenSequenceFeature(list(feature.shape), dtype, feature.allow_missing, default)
    if isinstance(feature, SparseSpec):
        several = len(feature.index_keys) != 1
        index_key = list(feature.index_keys) if several else feature.index_keys[0]
        size = list(feature.size) if several else feature.size[0]
        return tf.io.SparseFeature(index_key, feature.value_key, dtype, size, feature.already_sorted)
    kinds = tf.io.RaggedFeature
    return kinds(
        dtype,
        value_key=feature.value_key,
        partitions=[
            getattr(kinds, part.kind)(part.length if part.key is None else part.key)
            for part in feature.partitions
        ],
        row_splits_dtype=getattr(tf, feature.row_splits_dtype),
        validate=feature.validate,
    )


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def from_tf_spec(spec: Any) -> Schema:
    """The schema of a tf.io spec: a dict, or the pair (context spec, sequence spec)."""
    return schema_of_spec(spec_from_tf(spec))


def spec_from_tf(spec: Any) -> Spec | SequenceSpec:
    """TensorFlow's objects as plain values. TensorFlow is not imported: they are known by their names."""
    if isinstance(spec, Mapping):
        return {_name(name): _plain(name, one) for name, one in spec.items()}
    if (
        isinstance(spec, (tuple, list))
        and len(spec) == 2
        and all(isinstance(part or {}, Mapping) for part in spec)
    ):
        context, steps = (
            {_name(name): _plain(name, one) for name, one in (part or {}).items()} for part in spec
        )
        return SequenceSpec(context, steps)
    raise refuse(
        "S120",
        "this is no tf.io spec",
        expected="a dict of tf.io features by key, or the pair (context spec, sequence spec)",
        found=shown(spec),
        do='Schema.from_tf_spec({"label": tf.io.FixedLenFeature([], tf.int64)})',
    )


def schema_of_spec(spec: Spec | SequenceSpec) -> Schema:
    """The schema of a spec.

    It reads what TensorFlow reads, to which an absent list of varying length is empty: VarLenFeature becomes
    an optional column, so that the difference is kept; RaggedFeature and the others default to no values.
    The padding value of a FixedLenSequenceFeature belongs to batches and is not kept.
    """
    if isinstance(spec, SequenceSpec):
        return Schema(
            context={name: _context_feature(name, one) for name, one in spec.context.items()},
            steps={name: _step_feature(name, one) for name, one in spec.steps.items()},
        )
    return Schema({name: _example_feature(name, one) for name, one in spec.items()})


def _name(name: object) -> str:
    return checked_name(name, "a key of the spec")


def _plain(name: str, spec: Any) -> SpecFeature:
    with located(feature=name):
        match type(spec).__name__:
            case "FixedLenFeature":
                shape = _shape(name, spec.shape)
                return FixedLen(shape, _dtype(name, spec.dtype), _default(name, spec, shape))
            case "VarLenFeature":
                return VarLen(_dtype(name, spec.dtype))
            case "FixedLenSequenceFeature":
                padding = None if spec.default_value is None else _default(name, spec, ())
                shape, dtype = _shape(name, spec.shape), _dtype(name, spec.dtype)
                return FixedLenSequence(shape, dtype, bool(spec.allow_missing), padding)
            case "SparseFeature":
                return _plain_sparse(name, spec)
            case "RaggedFeature":
                return _plain_ragged(name, spec)
    raise _no_schema(name, "one of the five feature classes of tf.io", shown(spec))


def _plain_sparse(name: str, spec: Any) -> SparseSpec:
    listed = isinstance(spec.index_key, (list, tuple))
    index_keys = tuple(spec.index_key) if listed else (spec.index_key,)
    size = tuple(spec.size) if isinstance(spec.size, (list, tuple)) else (spec.size,)
    return SparseSpec(index_keys, spec.value_key, _dtype(name, spec.dtype), size, bool(spec.already_sorted))


def _plain_ragged(name: str, spec: Any) -> RaggedSpec:
    partitions = []
    for partition in spec.partitions:
        kind = type(partition).__name__
        if kind not in PARTITIONS:
            raise _no_schema(name, "one of the partitions of RaggedFeature", shown(partition))
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
        _dtype(name, spec.dtype),
        spec.value_key,
        tuple(partitions),
        "int64" if splits == "int64" else "int32",
        bool(spec.validate),
    )


def _default(name: str, spec: Any, shape: tuple[int, ...]) -> Any:
    value = spec.default_value
    if value is None:
        return None
    try:
        if hasattr(value, "numpy"):
            value = value.numpy()
        if _dtype(name, spec.dtype) == "string":
            value = np.vectorize(_as_bytes, otypes=[object])(np.array(value, object))
        else:
            value = np.array(value)
        return nested(value.reshape(shape).tolist())  # as TensorFlow does: [0] is a default for a scalar
    except (ValueError, TypeError, AttributeError, NotImplementedError):
        raise _no_schema(
            name, f"a default that is known and fits shape {shape}", shown(spec.default_value)
        ) from None


def _as_bytes(value: Any) -> Any:
    return value.encode("utf-8") if isinstance(value, str) else value


def _dtype(name: str, dtype: Any) -> Dtype:
    if isinstance(dtype, type):
        dtype = np.dtype(dtype)
    known = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    for each in DTYPES:
        if known == each:
            return each
    raise _no_schema(name, "dtype int64, float32 or string: records hold no other", f"dtype {shown(dtype)}")


def _shape(name: str, shape: Any) -> tuple[int, ...]:
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


def _example_feature(name: str, spec: SpecFeature) -> Feature:
    with located(feature=name):
        kind = _TYPES[spec.dtype]
        if isinstance(spec, FixedLen):
            default = ABSENT if spec.default is None else spec.default
            return kind(spec.shape, default=default)
        if isinstance(spec, VarLen):
            return kind((None,), optional=True)
        if isinstance(spec, RaggedSpec):
            return _from_ragged(name, spec, default=())
        if isinstance(spec, SparseSpec):
            return _sparse(name, spec)
        if not spec.allow_missing:
            raise _no_schema(
                name, "allow_missing=True, without which no Example is parsed", "allow_missing=False"
            )
        return kind((None, *spec.shape), default=())


def _context_feature(name: str, spec: SpecFeature) -> Feature:
    if isinstance(spec, (SparseSpec, FixedLenSequence)):
        expected = "FixedLenFeature, VarLenFeature or RaggedFeature: TensorFlow takes no other in a context"
        raise _no_schema(name, expected, _class_name(spec))
    return _example_feature(name, spec)


def _step_feature(name: str, spec: SpecFeature) -> Feature:
    with located(feature=name):
        if isinstance(spec, FixedLenSequence):
            return _TYPES[spec.dtype](spec.shape, optional=spec.allow_missing)
        if isinstance(spec, VarLen):
            return _TYPES[spec.dtype]((None,), optional=True)
        if isinstance(spec, RaggedSpec):
            return _from_ragged(name, spec, optional=True)
        expected = (
            "FixedLenSequenceFeature, VarLenFeature or RaggedFeature: TensorFlow takes no other in steps"
        )
        raise _no_schema(name, expected, _class_name(spec))


def _class_name(spec: SpecFeature) -> str:
    names = {FixedLen: "FixedLenFeature", SparseSpec: "SparseFeature"}
    return names.get(type(spec), "FixedLenSequenceFeature")


def _from_ragged(name: str, spec: RaggedSpec, *, optional: bool = False, default: Any = ABSENT) -> Feature:
    lengths: list[str] = []
    sizes: list[int] = []
    for partition in spec.partitions:
        if partition.length is not None:
            sizes.append(partition.length)
        elif partition.kind == "RowLengths" and partition.key is not None and not sizes:
            lengths.append(partition.key)
        elif partition.kind == "RowLengths":
            raise _no_schema(
                name, "row lengths outside, uniform lengths inside", "RowLengths inside UniformRowLength"
            )
        else:
            found = f"{partition.kind}({shown(partition.key)})"
            raise _no_schema(name, "partitions that are RowLengths or UniformRowLength", found)
    shape = (None,) * (1 + len(lengths)) + tuple(sizes)
    key = spec.value_key if spec.value_key != name else None
    kind = _TYPES[spec.dtype]
    return kind(shape, key=key, optional=optional, default=default, partitions=tuple(lengths))


def _sparse(name: str, spec: SparseSpec) -> Feature:
    if len(spec.index_keys) != 1 or len(spec.size) != 1:
        found = f"index_key={shown(list(spec.index_keys))}"
        raise _no_schema(name, "one index key: a Sparse is a vector", found)
    if spec.dtype == "string":
        raise _no_schema(name, "numbers, int64 or float32", "dtype string")
    index_key, value_key = spec.index_keys[0], spec.value_key
    usual = Sparse(spec.dtype, 1).record_keys(name)
    return Sparse(
        spec.dtype,
        spec.size[0],
        index_key=index_key if index_key != usual[0] else None,
        value_key=value_key if value_key != usual[1] else None,
        default=((), ()),
    )


def _no_schema(name: object, expected: str, found: str) -> RekordError:
    column = name if isinstance(name, str) else None
    return refuse(
        "S120",
        f"`{name}` is specified in a way that a schema cannot express",
        column=column,
        expected=expected,
        found=found,
        do=f"leave `{name}` out of the spec, or declare the column by hand",
    )


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
