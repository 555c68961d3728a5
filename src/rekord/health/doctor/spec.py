"""Features that TensorFlow will not parse as a spec asks, and the spec that would work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rekord.codec.decode import SequenceExample
from rekord.errors import closest_match
from rekord.health.doctor import kinds, raw_tensors
from rekord.health.doctor.diagnosis import (
    Diagnosis,
    ParsePrediction,
    format_key,
    format_python_key,
    join_remedies,
)
from rekord.health.doctor.evidence import DoctorCase, KeyProfile, KindProfile, RecordTally
from rekord.health.key_columns import KeyColumn, KeyedBatch, StepColumn
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
"""What records with more steps come to is not remembered: hardly two of them are alike."""


@dataclass(slots=True)
class SpecVerdict:
    """What TensorFlow makes of one feature of the spec."""

    name: str
    feature: SpecFeature
    step: bool = False
    bad: RecordTally = field(default_factory=RecordTally)
    error: str | None = None  # for the first record that it will not parse
    absent: RecordTally = field(default_factory=RecordTally)  # records that it will not parse for want of the key
    _known: dict[Any, str | None] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(record_keys(self.name, self.feature))


class SpecCheck:
    """One spec, and what records come to under it."""

    def __init__(self, spec: Spec | SequenceSpec) -> None:
        self.spec = spec
        self.sequence = isinstance(spec, SequenceSpec)
        context: Spec = spec.context if isinstance(spec, SequenceSpec) else spec
        steps: Spec = spec.steps if isinstance(spec, SequenceSpec) else {}
        self.verdicts = [SpecVerdict(name, feature) for name, feature in context.items()]
        self.verdicts += [SpecVerdict(name, feature, step=True) for name, feature in steps.items()]

    def update(self, batch: KeyedBatch) -> None:
        """Hold the records of a batch against every feature."""
        for verdict in self.verdicts:
            if verdict.step:
                self._see_steps(batch, verdict)
            else:
                self._see(batch, verdict)

    def _see(self, batch: KeyedBatch, verdict: SpecVerdict) -> None:
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
        self._count(batch, verdict, wrong[inverse], errors, columns)

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
        sign = tuple([(key, columns[key].kind, len(value)) for key, value in example.items()])  # type: ignore[union-attr]
        if sign not in verdict._known:
            if len(verdict._known) >= _MAX_SIGNATURES:
                verdict._known.clear()
            verdict._known[sign] = self._predicted(verdict, example)
        return verdict._known[sign]

    def _predicted(self, verdict: SpecVerdict, example: dict[str, Any]) -> str | None:
        if self.sequence:
            only = SequenceSpec(context={verdict.name: verdict.feature})
            return predict_sequence_error(only, SequenceExample(context=example, steps={}))
        return predict_record_error({verdict.name: verdict.feature}, example)

    @staticmethod
    def _count(
        batch: KeyedBatch,
        verdict: SpecVerdict,
        wrong: np.ndarray[Any, np.dtype[np.bool_]],
        errors: list[tuple[int, str]],
        columns: Mapping[str, KeyColumn | None],
    ) -> None:
        if not errors:
            return
        if verdict.error is None:
            verdict.error = min(errors)[1]
        verdict.bad.add(batch, wrong)
        first = columns.get(verdict.keys[0])
        if first is None:
            verdict.absent.add(batch, wrong)
        elif first.valid is not None:
            verdict.absent.add(batch, wrong & ~first.valid)

    def _see_steps(self, batch: KeyedBatch, verdict: SpecVerdict) -> None:
        column = batch.steps.get(verdict.name)
        wrong = np.zeros(len(batch), np.bool_)
        errors: list[tuple[int, str]] = []
        only = SequenceSpec(steps={verdict.name: verdict.feature})
        for row in range(len(batch)):
            values = _get_steps(column, row)
            steps = {} if values is None else {verdict.name: values}
            example = SequenceExample(context={}, steps=steps)
            if values is not None and len(values) > _MAX_STEPS:
                error = predict_sequence_error(only, example)
            else:
                sign = None if values is None else tuple([_get_step_signature(value, column) for value in values])
                if sign not in verdict._known:
                    if len(verdict._known) >= _MAX_SIGNATURES:
                        verdict._known.clear()
                    verdict._known[sign] = predict_sequence_error(only, example)
                error = verdict._known[sign]
            if error is not None:
                wrong[row] = True
                errors.append((row, error))
        if errors and verdict.error is None:
            verdict.error = errors[0][1]
        verdict.bad.add(batch, wrong)
        if column is None:
            verdict.absent.add(batch, wrong)
        elif column.valid is not None:
            verdict.absent.add(batch, wrong & ~column.valid)


def _count_values(column: KeyColumn | None, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each row that says how many values it has; -1 where it has not even a list."""
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


def diagnose_spec(case: DoctorCase, look: SpecCheck) -> Iterator[Diagnosis]:
    """One diagnosis for each feature that does not parse."""
    for verdict in look.verdicts:
        if verdict.bad:
            yield _diagnose_verdict(case, verdict)


def list_settled_keys(look: SpecCheck) -> frozenset[str]:
    """The record keys that the spec reads: their kind and count are not to be guessed at."""
    return frozenset(key for verdict in look.verdicts for key in verdict.keys)


def predict_features(case: DoctorCase, look: SpecCheck) -> Iterator[ParsePrediction]:
    """What TensorFlow will do with each feature of the spec."""
    for verdict in look.verdicts:
        works = verdict.feature if not verdict.bad else _find_working_feature(case, verdict)
        yield ParsePrediction(
            feature=verdict.name,
            asked=feature_to_source(verdict.feature),
            ok=not verdict.bad,
            records_affected=verdict.bad.records,
            tensorflow_error=verdict.error,
            works=None if works is None else _format_feature_source(case, verdict, works),
        )


def _format_feature_source(case: DoctorCase, verdict: SpecVerdict, works: SpecFeature) -> str:
    """The text of a feature that works, with the key where that is another one."""
    meant = _find_renamed_key(case, verdict)
    return feature_to_source(works) if meant is None else f"{format_python_key(meant)}: {feature_to_source(works)}"


def build_working_spec(case: DoctorCase, look: SpecCheck) -> str:
    """The text of a spec that parses the records: the one that was asked for, repaired where it must be.

    A feature that no spec could parse is left out.
    """
    context: dict[str, SpecFeature] = {}
    steps: dict[str, SpecFeature] = {}
    for verdict in look.verdicts:
        feature = verdict.feature if not verdict.bad else _find_working_feature(case, verdict)
        name = _find_renamed_key(case, verdict) or verdict.name
        if feature is not None:
            (steps if verdict.step else context)[name] = feature
    return to_source(SequenceSpec(context, steps) if look.sequence else context)


def _get_key_profiles(case: DoctorCase, verdict: SpecVerdict) -> dict[str, KeyProfile]:
    return case.profile.steps if verdict.step else case.profile.keys


def _find_renamed_key(case: DoctorCase, verdict: SpecVerdict) -> str | None:
    """The key that was meant, where no record has the one that the spec asks for."""
    profiles = _get_key_profiles(case, verdict)
    if not verdict.bad or (verdict.name in profiles and profiles[verdict.name].records):
        return None
    return closest_match(verdict.name, [key for key, each in profiles.items() if each.records])


def _find_working_feature(case: DoctorCase, verdict: SpecVerdict) -> SpecFeature | None:
    """The feature that parses all that is stored under the key; None where it is not there, or of several kinds."""
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
    everywhere = profile.records == case.profile.records
    if stored.constant is None:
        return VarLenSpec(dtype) if isinstance(verdict.feature, VarLenSpec) else RaggedSpec(dtype)
    if not everywhere:
        return VarLenSpec(dtype)
    shape: tuple[int, ...] = () if stored.constant == 1 else (stored.constant,)
    asked = verdict.feature.shape if isinstance(verdict.feature, FixedLenSpec) else None
    if asked is not None and math.prod(asked) == stored.constant:
        shape = asked  # only the dtype was wrong
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
    return _diagnose_other(case, verdict, f"{format_key(verdict.name)} does not fit its feature of the spec", stored)


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
        title=f"{format_key(name)} is read, and "
        + ("no record has it" if never else f"{format_count(verdict.bad.records, 'record')} do not have it"),
        feature=name,
        evidence=[
            f"the records have {format_count(keys, 'key')}, and {format_key(meant)} among them" if meant else None,
            f"{format_count(keys, 'key')} in the records, none of them named like it"
            if never and not meant
            else None,
            f"{format_count(profile.records, 'record')} have it" if profile is not None and not never else None,
        ],
        ruled_out=["not damage: the records without it are intact"],
        likely=f"{format_key(meant)} is meant" if meant else None,
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
        floats = kinds.diagnose_float_dimensions if kinds.is_dimension_key(key) else kinds.diagnose_float_labels
        return floats(case, key, stored, error)
    if stored.kind == "bytes" and stored.numeric:
        return kinds.diagnose_number_texts(case, key, stored, error)
    if stored.kind == "bytes":
        return kinds.diagnose_text_for_numbers(
            case, key, stored, "an int is read" if dtype == "int64" else "a float is read", error
        )
    image = raw_tensors.diagnose_list_image(case, key, stored, error) if dtype == "string" else None
    if image is not None:
        return image
    reads = {"int64": "ints", "float32": "floats", "string": "bytes"}[dtype]
    are = {"int64": "ints", "float": "floats", "bytes": "bytes"}[stored.kind]
    return _diagnose_other(case, verdict, f"{format_key(key)} is stored as {are}, and {reads} are read", stored)


def _diagnose_wrong_count(
    case: DoctorCase, verdict: SpecVerdict, feature: FixedLenSpec, stored: KindProfile
) -> Diagnosis:
    key, expected = verdict.keys[0], math.prod(feature.shape)
    bytes_image = (
        raw_tensors.diagnose_string_image(case, key, stored, verdict.error) if stored.kind == "bytes" else None
    )
    if bytes_image is not None:
        return bytes_image
    reads = "one value" if expected == 1 else f"{expected:,} values"
    common = stored.counts.counts.most_common(3) if stored.counts.counts else []
    if stored.constant is not None:
        has = "one value" if stored.constant == 1 else f"{stored.constant:,} values"
        return case.diagnosis(
            "H821",
            "error",
            verdict.bad,
            title=f"{format_key(key)} has {has} in every record, and {reads} "
            + ("is" if expected == 1 else "are")
            + " read",
            feature=key,
            evidence=[
                f"all {format_count(stored.tally.records, 'record')} have {format_count(stored.constant, 'value')}"
            ],
            ruled_out=[
                "not ragged data: the number is the same in every record",
                _get_expected_kind(feature),
            ],
            likely="a list is stored, and the spec asks for a scalar"
            if expected == 1 and not feature.shape
            else "a single value is stored, and the spec asks for a list"
            if stored.constant == 1
            else None,
            do=_suggest_fix(case, verdict, "change the shape in the spec"),
            tensorflow_error=verdict.error,
        )
    return case.diagnosis(
        "H822",
        "error",
        verdict.bad,
        title=f"{format_key(key)} has from {stored.fewest:,} to {stored.most:,} values, and {reads} "
        + ("is" if expected == 1 else "are")
        + " read",
        feature=key,
        evidence=["most often " + ", ".join(f"{size:,} ({format_count(n, 'record')})" for size, n in common)]
        if common
        else [],
        ruled_out=[_get_expected_kind(feature), "not damage: the lists are whole, of different lengths"],
        likely="the data is ragged, and a FixedLenFeature takes one length only",
        do=_suggest_fix(case, verdict, "read it as tf.io.VarLenFeature or tf.io.RaggedFeature"),
        tensorflow_error=verdict.error,
    )


def _get_expected_kind(feature: SpecFeature) -> str:
    return f"not the dtype: tf.{feature.dtype} is what is stored"


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
            f"{kinds.LIST_NAMES[stored.kind]} with {format_count(stored.most, 'value')} at most in a record",
            f"the spec asks for {feature_to_source(verdict.feature)}",
        ],
        do=_suggest_fix(case, verdict, f"change what the spec says of {format_key(verdict.name)}"),
        tensorflow_error=verdict.error,
    )
