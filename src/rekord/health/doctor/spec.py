"""Features that TensorFlow cannot parse with a spec, and a spec that works."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from rekord.codec.decode import SequenceExample
from rekord.errors import closest_match
from rekord.health.check.rule import LIST_NAMES, format_key
from rekord.health.doctor import kinds, raw_tensors
from rekord.health.doctor.diagnosis import Diagnosis, ParsePrediction, format_python_key, join_remedies
from rekord.health.doctor.evidence import DoctorCase, KeyProfile, KindProfile, RecordTally
from rekord.health.key_columns import KeyColumn, KeyedBatch, StepColumn, ValidMask
from rekord.health.tensorflow.predicted_errors import predict_record_error, predict_sequence_error
from rekord.report.formatting import format_count
from rekord.schema.interop.tf_spec import (
    Dtype,
    FixedLenSequenceSpec,
    FixedLenSpec,
    RaggedSpec,
    SequenceSpec,
    Spec,
    SpecFeature,
    VarLenSpec,
    feature_to_source,
    record_keys,
    to_source,
)

_MAX_SIGNATURES = 4096
_MAX_STEPS = 64
"""Predictions for records with more steps are not cached: such records rarely repeat."""


@dataclass(slots=True)
class SpecVerdict:
    """Whether TensorFlow can parse one feature of the spec."""

    name: str
    feature: SpecFeature
    step: bool = False
    bad: RecordTally = field(default_factory=RecordTally)
    error: str | None = None  # of the first record that fails
    absent: RecordTally = field(default_factory=RecordTally)  # records that fail because the key is missing
    _known: dict[Any, str | None] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(record_keys(self.name, self.feature))

    def predict(self, signature: Any, predict: Callable[[], str | None]) -> str | None:
        """The predicted error of records with this signature, computed once."""
        if signature not in self._known:
            if len(self._known) >= _MAX_SIGNATURES:
                self._known.clear()
            self._known[signature] = predict()
        return self._known[signature]

    def count(
        self,
        batch: KeyedBatch,
        wrong: ValidMask,
        errors: list[tuple[int, str]],
        column: KeyColumn | StepColumn | None,
    ) -> None:
        """Count the records that fail, and those of them that do not have the key."""
        if not errors:
            return
        if self.error is None:
            self.error = min(errors)[1]
        self.bad.add(batch, wrong)
        if column is None:
            self.absent.add(batch, wrong)
        elif column.valid is not None:
            self.absent.add(batch, wrong & ~column.valid)


class SpecCheck:
    """A spec, and the verdicts on its features."""

    def __init__(self, spec: Spec | SequenceSpec) -> None:
        self.spec = spec
        self.sequence = isinstance(spec, SequenceSpec)
        context: Spec = spec.context if isinstance(spec, SequenceSpec) else spec
        steps: Spec = spec.steps if isinstance(spec, SequenceSpec) else {}
        self.verdicts = [SpecVerdict(name, feature) for name, feature in context.items()]
        self.verdicts += [SpecVerdict(name, feature, step=True) for name, feature in steps.items()]

    def update(self, batch: KeyedBatch) -> None:
        """Check the records of a batch against every feature."""
        for verdict in self.verdicts:
            if verdict.step:
                self._check_steps(batch, verdict)
            else:
                self._check_context(batch, verdict)

    def _check_context(self, batch: KeyedBatch, verdict: SpecVerdict) -> None:
        columns = {key: batch.context.get(key) for key in verdict.keys}
        by_value = isinstance(verdict.feature, RaggedSpec) and any(
            part.key is not None for part in verdict.feature.partitions
        )
        if by_value:
            inverse = np.arange(len(batch))
            firsts = inverse
        else:
            signs = np.stack([_count_values(column, len(batch)) for column in columns.values()], axis=1)
            _, firsts, inverse = np.unique(signs, axis=0, return_index=True, return_inverse=True)
            inverse = inverse.reshape(-1)
        wrong = np.zeros(len(firsts), np.bool_)
        errors: list[tuple[int, str]] = []
        for place, row in enumerate(firsts.tolist()):
            error = self._error(verdict, columns, row, cached=not by_value)
            if error is not None:
                wrong[place] = True
                errors.append((row, error))
        verdict.count(batch, wrong[inverse], errors, columns.get(verdict.keys[0]))

    def _error(
        self, verdict: SpecVerdict, columns: Mapping[str, KeyColumn | None], row: int, *, cached: bool
    ) -> str | None:
        example = {
            key: column.value(row)
            for key, column in columns.items()
            if column is not None and column.value(row) is not None
        }
        if not cached:
            return self._predicted(verdict, example)
        signature = tuple([(key, columns[key].kind, len(value)) for key, value in example.items()])  # type: ignore[union-attr]
        return verdict.predict(signature, lambda: self._predicted(verdict, example))

    def _predicted(self, verdict: SpecVerdict, example: dict[str, Any]) -> str | None:
        if self.sequence:
            only = SequenceSpec(context={verdict.name: verdict.feature})
            return predict_sequence_error(only, SequenceExample(context=example, steps={}))
        return predict_record_error({verdict.name: verdict.feature}, example)

    @staticmethod
    def _check_steps(batch: KeyedBatch, verdict: SpecVerdict) -> None:
        column = batch.steps.get(verdict.name)
        wrong = np.zeros(len(batch), np.bool_)
        errors: list[tuple[int, str]] = []
        only = SequenceSpec(steps={verdict.name: verdict.feature})
        for row in range(len(batch)):
            values = _get_steps(column, row)
            example = SequenceExample(context={}, steps={} if values is None else {verdict.name: values})
            predict = partial(predict_sequence_error, only, example)
            if values is not None and len(values) > _MAX_STEPS:
                error = predict()
            else:
                signature = None if values is None else tuple([_get_step_signature(each, column) for each in values])
                error = verdict.predict(signature, predict)
            if error is not None:
                wrong[row] = True
                errors.append((row, error))
        verdict.count(batch, wrong, errors, column)


def _count_values(column: KeyColumn | None, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The number of values of each row; -1 without a list."""
    if column is None:
        return np.full(rows, -1, np.int64)
    return column.counts if column.valid is None else np.where(column.valid, column.counts, -1)


def _get_steps(column: StepColumn | None, row: int) -> list[Any] | None:
    if column is None or (column.valid is not None and not column.valid[row]):
        return None
    begin, end = map(int, column.offsets[row : row + 2])
    return [column.steps.value(step) for step in range(begin, end)]


def _get_step_signature(value: Any, column: StepColumn | None) -> tuple[str, int]:
    return ("", -1) if value is None or column is None else (column.steps.kind, len(value))


_DTYPES: dict[str, Dtype] = {"int64": "int64", "float": "float32", "bytes": "string"}
_KINDS = {dtype: kind for kind, dtype in _DTYPES.items()}


def diagnose_spec(case: DoctorCase, check: SpecCheck) -> Iterator[Diagnosis]:
    """One diagnosis per feature that cannot be parsed."""
    for verdict in check.verdicts:
        if verdict.bad:
            yield _diagnose_verdict(case, verdict)


def list_settled_keys(check: SpecCheck) -> frozenset[str]:
    """The record keys that the spec reads, whose kind and count need no guessing."""
    return frozenset(key for verdict in check.verdicts for key in verdict.keys)


def predict_features(case: DoctorCase, check: SpecCheck) -> Iterator[ParsePrediction]:
    """Whether TensorFlow will parse each feature of the spec."""
    for verdict in check.verdicts:
        works = verdict.feature if not verdict.bad else _find_working_feature(case, verdict)
        yield ParsePrediction(
            feature=verdict.name,
            spec=feature_to_source(verdict.feature),
            ok=not verdict.bad,
            records_affected=verdict.bad.records,
            tensorflow_error=verdict.error,
            works=None if works is None else _format_feature_source(case, verdict, works),
        )


def _format_feature_source(case: DoctorCase, verdict: SpecVerdict, works: SpecFeature) -> str:
    """Source of a feature that works, with the key if that differs."""
    meant = _find_renamed_key(case, verdict)
    return feature_to_source(works) if meant is None else f"{format_python_key(meant)}: {feature_to_source(works)}"


def build_working_spec(case: DoctorCase, check: SpecCheck) -> str:
    """Source of a spec that parses the records: the given one, with fixes. Unparsable features are omitted."""
    context: dict[str, SpecFeature] = {}
    steps: dict[str, SpecFeature] = {}
    for verdict in check.verdicts:
        feature = verdict.feature if not verdict.bad else _find_working_feature(case, verdict)
        name = _find_renamed_key(case, verdict) or verdict.name
        if feature is not None:
            (steps if verdict.step else context)[name] = feature
    return to_source(SequenceSpec(context, steps) if check.sequence else context)


def _get_key_profiles(case: DoctorCase, verdict: SpecVerdict) -> dict[str, KeyProfile]:
    return case.profile.steps if verdict.step else case.profile.keys


def _find_renamed_key(case: DoctorCase, verdict: SpecVerdict) -> str | None:
    """The key that was probably meant, if no record has the one in the spec."""
    profiles = _get_key_profiles(case, verdict)
    if not verdict.bad or (verdict.name in profiles and profiles[verdict.name].records):
        return None
    return closest_match(verdict.name, [key for key, each in profiles.items() if each.records])


def _find_working_feature(case: DoctorCase, verdict: SpecVerdict) -> SpecFeature | None:
    """The feature that parses everything under the key; None if it is missing or has several kinds."""
    profile = _get_key_profiles(case, verdict).get(_find_renamed_key(case, verdict) or verdict.keys[0])
    if profile is None or len(profile.kinds) != 1:
        return None
    stored = profile.main
    assert stored is not None
    dtype = _DTYPES[stored.kind]
    if verdict.step:
        if stored.constant is not None and not profile.holes:
            return FixedLenSequenceSpec(() if stored.constant == 1 else (stored.constant,), dtype)
        return VarLenSpec(dtype)
    if stored.constant is None:
        return VarLenSpec(dtype) if isinstance(verdict.feature, VarLenSpec) else RaggedSpec(dtype)
    if profile.records != case.profile.records:
        return VarLenSpec(dtype)
    shape: tuple[int, ...] = () if stored.constant == 1 else (stored.constant,)
    declared = verdict.feature.shape if isinstance(verdict.feature, FixedLenSpec) else None
    if declared is not None and math.prod(declared) == stored.constant:
        shape = declared  # only the dtype was wrong
    return FixedLenSpec(shape, dtype)


def _diagnose_verdict(case: DoctorCase, verdict: SpecVerdict) -> Diagnosis:
    profile = _get_key_profiles(case, verdict).get(verdict.keys[0])
    if profile is None or not profile.records or verdict.absent.records == verdict.bad.records:
        return _diagnose_missing(case, verdict, profile)
    if len(profile.kinds) > 1:
        return kinds.diagnose_mixed_kinds(case, profile, verdict.error)
    stored = profile.main
    assert stored is not None
    wanted = _KINDS[verdict.feature.dtype]
    if stored.kind != wanted:
        return _diagnose_wrong_kind(case, verdict, stored)
    if isinstance(verdict.feature, FixedLenSpec):
        return _diagnose_wrong_count(case, verdict, verdict.feature, stored)
    return _diagnose_other(
        case, verdict, f"{format_key(verdict.name)} does not match its feature in the spec", stored
    )


def _diagnose_missing(case: DoctorCase, verdict: SpecVerdict, profile: KeyProfile | None) -> Diagnosis:
    name = verdict.name
    if profile is not None and profile.holes and not verdict.step:
        unset = next(kinds.diagnose_missing_kind(case, profile, verdict.error), None)
        if unset is not None:
            return unset
    meant = _find_renamed_key(case, verdict)
    never = profile is None or not profile.records
    keys = len(_get_key_profiles(case, verdict))
    return case.diagnosis(
        "H823",
        "error",
        verdict.bad,
        title=f"the spec reads {format_key(name)}, but "
        + ("no record has it" if never else f"{format_count(verdict.bad.records, 'record')} do not have it"),
        feature=name,
        evidence=[
            f"the records have {format_count(keys, 'key')}, including {format_key(meant)}" if meant else None,
            f"the records have {format_count(keys, 'key')}, none with a similar name"
            if never and not meant
            else None,
            f"{format_count(profile.records, 'record')} have it" if profile is not None and not never else None,
        ],
        ruled_out=["not damage: the records without it are intact"],
        likely=f"{format_key(meant)} was meant" if meant else None,
        do=join_remedies(
            f"read {format_python_key(meant)} instead", case.format_rewrite_command("rename", meant, name)
        )
        if meant
        else _suggest_fix(case, verdict, f"write {format_key(name)} into every record"),
        tensorflow_error=verdict.error,
        agree=not never,
    )


def _diagnose_wrong_kind(case: DoctorCase, verdict: SpecVerdict, stored: KindProfile) -> Diagnosis:
    key, dtype = verdict.keys[0], verdict.feature.dtype
    error = verdict.error
    if stored.kind == "int64" and dtype == "float32":
        return kinds.diagnose_ints_for_floats(case, key, stored, error)
    if stored.kind == "float" and stored.is_all_integers and dtype == "int64":
        return kinds.diagnose_float_integers(case, key, stored, error)
    if stored.kind == "bytes" and stored.numeric:
        return kinds.diagnose_number_texts(case, key, stored, error)
    if stored.kind == "bytes":
        return kinds.diagnose_text_for_numbers(
            case, key, stored, "an integer is read" if dtype == "int64" else "a float is read", error
        )
    image = raw_tensors.diagnose_list_image(case, key, stored, error) if dtype == "string" else None
    if image is not None:
        return image
    words = {"int64": "integers", "float": "floats", "bytes": "bytes"}
    title = f"{format_key(key)} is stored as {words[stored.kind]}, but {words[_KINDS[dtype]]} are read"
    return _diagnose_other(case, verdict, title, stored)


def _diagnose_wrong_count(
    case: DoctorCase, verdict: SpecVerdict, feature: FixedLenSpec, stored: KindProfile
) -> Diagnosis:
    key, expected = verdict.keys[0], math.prod(feature.shape)
    if stored.kind == "bytes" and (image := raw_tensors.diagnose_string_image(case, key, stored, verdict.error)):
        return image
    reads = "one value is read" if expected == 1 else f"{expected:,} values are read"
    not_the_dtype = f"not the dtype: tf.{feature.dtype} is stored"
    common = stored.counts.counts.most_common(3) if stored.counts.counts else []
    if stored.constant is not None:
        has = "one value" if stored.constant == 1 else f"{stored.constant:,} values"
        return case.diagnosis(
            "H821",
            "error",
            verdict.bad,
            title=f"{format_key(key)} has {has} in every record, but {reads}",
            feature=key,
            evidence=[
                f"all {format_count(stored.tally.records, 'record')} have {format_count(stored.constant, 'value')}"
            ],
            ruled_out=["not ragged data: every record has the same number of values", not_the_dtype],
            likely="a list is stored, but the spec expects a scalar"
            if expected == 1 and not feature.shape
            else "a single value is stored, but the spec expects a list"
            if stored.constant == 1
            else None,
            do=_suggest_fix(case, verdict, "change the shape in the spec"),
            tensorflow_error=verdict.error,
        )
    return case.diagnosis(
        "H822",
        "error",
        verdict.bad,
        title=f"{format_key(key)} has between {stored.fewest:,} and {stored.most:,} values, but {reads}",
        feature=key,
        evidence=["most often " + ", ".join(f"{size:,} ({format_count(n, 'record')})" for size, n in common)]
        if common
        else [],
        ruled_out=[not_the_dtype, "not damage: the lists are intact but differ in length"],
        likely="the data is ragged, but a FixedLenFeature allows only one length",
        do=_suggest_fix(case, verdict, "read it with tf.io.VarLenFeature or tf.io.RaggedFeature"),
        tensorflow_error=verdict.error,
    )


def _suggest_fix(case: DoctorCase, verdict: SpecVerdict, otherwise: str) -> str:
    works = _find_working_feature(case, verdict)
    return otherwise if works is None else f"{format_python_key(verdict.name)}: {feature_to_source(works)}"


def _diagnose_other(case: DoctorCase, verdict: SpecVerdict, title: str, stored: KindProfile) -> Diagnosis:
    return case.diagnosis(
        "H824",
        "error",
        verdict.bad,
        title=title,
        feature=verdict.keys[0],
        evidence=[
            f"{LIST_NAMES[stored.kind]} with up to {format_count(stored.most, 'value')} per record",
            f"the spec reads {feature_to_source(verdict.feature)}",
        ],
        do=_suggest_fix(case, verdict, f"change {format_key(verdict.name)} in the spec"),
        tensorflow_error=verdict.error,
    )
