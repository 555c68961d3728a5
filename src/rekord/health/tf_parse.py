"""The error that TensorFlow will raise for a record, found without TensorFlow.

The messages are those of `tf.io.parse_example([record], spec)`, run eagerly, without what TensorFlow puts around
them (`{{function_node …}}`, `[Op:…]`). `index` is the place of the record in its batch. The spec is taken to be
one that TensorFlow accepts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekord.health.tf_compose import composition_error, partition_keys
from rekord.health.tf_wire import Stored, TfType, Unparsable, stored_in, stored_of
from rekord.schema.spec import (
    Dtype,
    FixedLen,
    FixedLenSequence,
    RaggedSpec,
    SparseSpec,
    Spec,
    SpecFeature,
    record_keys,
)

TF_TYPES: dict[Dtype, TfType] = {"int64": "int64", "float32": "float", "string": "string"}

_LIST_NAMES: dict[TfType, str] = {"int64": "int64", "float": "float", "string": "bytes"}
_SHOWN_CHARACTERS = 60


def predicted_error(
    key: str, feature: SpecFeature, value: Any, *, present: bool = True, index: int = 0
) -> str | None:
    """The error for one feature whose values are stored as `value`, as `rk.decode` gives it; None where all is well.

    `present=False` says that the record has no such key. Of a feature with several keys (SparseFeature, ragged
    partitions) this is the values' own, and the others are absent; `predicted_record_error` takes them all.
    """
    stored_key = key
    if isinstance(feature, (SparseSpec, RaggedSpec)):
        stored_key = feature.value_key or key
    example = {stored_key: value} if present else {}
    return predicted_record_error({key: feature}, example, index=index)


def predicted_record_error(spec: Spec, example: Mapping[str, Any], *, index: int = 0) -> str | None:
    """The error for a decoded record, as `rk.decode` gives it, whose keys stand in the order of the record.

    TensorFlow goes from the last entry of a record to the first, then through what is missing, by name.
    """
    return _spec_error(spec) or _error(spec, stored_of(example, partition_keys(spec)), index)


def predicted_payload_error(spec: Spec, payload: bytes, *, index: int = 0) -> str | None:
    """The error for the bytes of a record: exact for lists in pieces, two kinds, and damage inside as well.

    Where TensorFlow would quote the whole payload, the first 60 characters of it stand here.
    """
    refused = _spec_error(spec)
    if refused is not None:
        return refused
    keys = {key for name, feature in spec.items() for key in record_keys(name, feature)}
    try:
        entries = stored_in(payload, keys, partition_keys(spec))
    except Unparsable:
        text = payload[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace")
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
        return f"Could not parse example input, value: '{shown}'"
    return _error(spec, entries, index)


def _spec_error(spec: Spec) -> str | None:
    if not spec:
        return "Argument `features` cannot be None or falsy. Got {}"
    for feature in spec.values():
        if isinstance(feature, FixedLenSequence) and not feature.allow_missing:
            return "Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
    return None


@dataclass(slots=True)
class _Parse:
    """One record on its way through the parser: what was asked for, and what has been met."""

    dense: dict[str, FixedLen | FixedLenSequence] = field(default_factory=dict)
    others: dict[str, TfType] = field(default_factory=dict)  # the keys of sparse and ragged features
    met: dict[str, Stored] = field(default_factory=dict)


def _error(spec: Spec, entries: Iterable[Stored], index: int) -> str | None:
    parse = _Parse()
    for name in sorted(spec):
        feature = spec[name]
        if isinstance(feature, (FixedLen, FixedLenSequence)):
            parse.dense[name] = feature
        else:
            parse.others.update({key: TF_TYPES[of] for key, of in record_keys(name, feature).items()})
    for stored in reversed(list(entries)):
        wrong = _entry_error(parse, stored)
        if wrong is not None:
            place = f"Name: <unknown>, Key: {stored.key}, Index: {index}.  "
            return wrong if stored.unsupported else place + wrong
    for name, feature in parse.dense.items():
        if isinstance(feature, FixedLen) and name not in parse.met and not _has_default(feature):
            return f"Name: <unknown>, {missing(name, feature.dtype)}"
    return composition_error(spec, parse.met)


def missing(name: str, dtype: Dtype) -> str:
    """What TensorFlow says of a feature that is required and not there."""
    return f"Feature: {name} (data type: {TF_TYPES[dtype]}) is required but could not be found."


def _has_default(feature: FixedLen) -> bool:
    return feature.default is not None and math.prod(feature.shape) > 0


def _entry_error(parse: _Parse, stored: Stored) -> str | None:
    """What is wrong with an entry of the record, without its place."""
    dense, other = parse.dense.get(stored.key), parse.others.get(stored.key)
    if dense is None and other is None:
        return None
    if stored.unsupported:
        return "Unsupported datatype."
    if dense is None:
        if stored.key in parse.met:
            return None
        parse.met[stored.key] = stored
        if stored.dtype not in (None, other):
            return f"Data types don't match. Expected type: {other}, Actual type: {stored.dtype}"
        unreadable = stored.broken or stored.count > stored.readable
        return "Can't parse serialized Example." if unreadable else None
    if stored.dtype is None or stored.key in parse.met:
        return None
    parse.met[stored.key] = stored
    expected = TF_TYPES[dense.dtype]
    if stored.dtype != expected:
        return f"Data types don't match. Data type: {stored.dtype} but expected type: {expected}"
    return _count_error(dense, stored, _LIST_NAMES[expected])


def _count_error(feature: FixedLen | FixedLenSequence, stored: Stored, listed: str) -> str | None:
    wanted = math.prod(feature.shape)
    if isinstance(feature, FixedLenSequence):
        if stored.broken or stored.count > stored.readable:
            return "Can't parse serialized Example."
        if wanted and stored.count % wanted:
            return (
                f"Number of {listed} values is not a multiple of stride length. "
                f"Saw {stored.count} values but output shape is: {shape_text((None, *feature.shape))}"
            )
        return None
    # There is room for the values that were asked for: more numbers are only counted, more texts are refused.
    if stored.broken or min(stored.count, wanted) > stored.readable:
        return "Can't parse serialized Example."
    if listed == "bytes" and stored.count > wanted:
        return "Can't parse serialized Example."
    if stored.count != wanted:
        return (
            f"Number of {listed} values != expected.  "
            f"Values size: {stored.count} but output shape: {shape_text(feature.shape)}"
        )
    return None


def shape_text(shape: Iterable[int | None]) -> str:
    """A shape as TensorFlow writes it: `[?,2]`."""
    return f"[{','.join(['?' if size is None else str(size) for size in shape])}]"
