"""The error that `tf.io.parse_sequence_example([record], …)` will raise for a SequenceExample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rekord.codec.decode import SequenceExample
from rekord.health.tf_compose import composition_error, partition_keys
from rekord.health.tf_parse import TF_TYPES, missing, shape_text
from rekord.health.tf_wire import TfType, stored_of
from rekord.schema.spec import FixedLen, FixedLenSequence, SequenceSpec, record_keys


def predicted_sequence_error(spec: SequenceSpec, example: SequenceExample) -> str | None:
    """The error for a record that `rk.decode(payload, kind="sequence")` gives; None where all is well.

    Of several features of another type TensorFlow names one that differs from run to run; here it is the
    first by name. Partitions inside steps are not looked at.
    """
    return (
        _context_type_error(spec, example)
        or _step_type_error(spec, example)
        or _context_count_error(spec, example)
        or _step_count_error(spec, example)
        or composition_error(spec.context, _context_met(spec, example))
    )


def _context_type_error(spec: SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.context):
        for key, dtype in record_keys(name, spec.context[name]).items():
            stored = _type_of(example.context.get(key))
            if stored not in (None, TF_TYPES[dtype]):
                return (
                    f"Name: <unknown>, Context feature: {key}.  "
                    f"Data types don't match. Expected type: {TF_TYPES[dtype]}"
                )
    return None


def _step_type_error(spec: SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.steps):
        for key, dtype in record_keys(name, spec.steps[name]).items():
            for row, value in enumerate(example.steps.get(key, ())):
                if _type_of(value) not in (None, TF_TYPES[dtype]):
                    return (
                        f"Name: <unknown>, Feature list: {key}, Index: {row}.  "
                        f"Data types don't match. Expected type: {TF_TYPES[dtype]}"
                    )
    return None


def _context_count_error(spec: SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.context):
        feature = spec.context[name]
        if not isinstance(feature, FixedLen):
            continue
        wanted = math.prod(feature.shape)
        defaults = wanted if feature.default is not None else 0
        found = _count(example.context.get(name))
        if max(defaults, found) != wanted:
            return (
                f"Inconsistent max number of elements for feature {name}: "
                f"expected {wanted}, but found {max(defaults, found)}"
            )
        if name not in example.context:
            if not defaults:
                return missing(name, feature.dtype)
        elif found != wanted:
            return "Unexpected number of elements in example <unknown>"
    return None


def _step_count_error(spec: SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.steps):
        feature = spec.steps[name]
        if not isinstance(feature, FixedLenSequence):
            continue
        wanted = math.prod(feature.shape)
        counts = [_count(value) for value in example.steps.get(name, ())]
        if wanted and sum(counts) % wanted:
            return (
                f"Feature list '{name}' has an unexpected number of values.  Total values size: {sum(counts)} "
                f"is not consistent with output shape: {shape_text((None, *feature.shape))}"
            )
        if name not in example.steps and not feature.allow_missing:
            return (
                f"Name: <unknown>, Feature list '{name}' is required but could not be found.  Did you mean to "
                "include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
            )
        for row, count in enumerate(counts):
            if count != wanted:
                return (
                    f"Name: <unknown>, Key: {name}, Index: {row}.  Number of values != expected.  "
                    f"values size: {count} but output shape: {shape_text(feature.shape)}"
                )
    return None


def _context_met(spec: SequenceSpec, example: SequenceExample) -> dict[str, Any]:
    entries = stored_of(example.context, partition_keys(spec.context))
    return {stored.key: stored for stored in entries}


def _type_of(value: Any) -> TfType | None:
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return "int64" if value.dtype == np.int64 else "float"
    return "string"


def _count(value: Any) -> int:
    return 0 if value is None else len(value)
