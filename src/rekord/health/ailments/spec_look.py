"""Each record held against a tf.io spec: which features TensorFlow will not parse, and with which error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rekord.codec.decode import SequenceExample
from rekord.health.ailments.profile import Tally
from rekord.health.keyed import KeyColumn, KeyedBatch, StepColumn
from rekord.health.tf_parse import predicted_record_error
from rekord.health.tf_sequence import predicted_sequence_error
from rekord.schema.spec import RaggedSpec, SequenceSpec, Spec, SpecFeature, record_keys

_MOST_SIGNATURES = 4096
_MOST_STEPS = 64
"""What records with more steps come to is not remembered: hardly two of them are alike."""


@dataclass(slots=True)
class Verdict:
    """What TensorFlow makes of one feature of the spec."""

    name: str
    feature: SpecFeature
    step: bool = False
    bad: Tally = field(default_factory=Tally)
    error: str | None = None  # for the first record that it will not parse
    absent: Tally = field(default_factory=Tally)  # records that it will not parse for want of the key
    _known: dict[Any, str | None] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(record_keys(self.name, self.feature))


class SpecLook:
    """One spec, and what records come to under it."""

    def __init__(self, spec: Spec | SequenceSpec) -> None:
        self.spec = spec
        self.sequence = isinstance(spec, SequenceSpec)
        context: Spec = spec.context if isinstance(spec, SequenceSpec) else spec
        steps: Spec = spec.steps if isinstance(spec, SequenceSpec) else {}
        self.verdicts = [Verdict(name, feature) for name, feature in context.items()]
        self.verdicts += [Verdict(name, feature, step=True) for name, feature in steps.items()]

    def see(self, batch: KeyedBatch) -> None:
        """Hold the records of a batch against every feature."""
        for verdict in self.verdicts:
            if verdict.step:
                self._see_steps(batch, verdict)
            else:
                self._see(batch, verdict)

    def _see(self, batch: KeyedBatch, verdict: Verdict) -> None:
        columns = {key: batch.context.get(key) for key in verdict.keys}
        by_value = isinstance(verdict.feature, RaggedSpec) and any(
            part.key is not None for part in verdict.feature.partitions
        )
        if by_value:
            inverse = np.arange(len(batch))
            firsts = inverse
        else:
            signs = np.stack([_signs(column, len(batch)) for column in columns.values()], axis=1)
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
        self, verdict: Verdict, columns: Mapping[str, KeyColumn | None], row: int, *, cached: bool
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
            if len(verdict._known) >= _MOST_SIGNATURES:
                verdict._known.clear()
            verdict._known[sign] = self._predicted(verdict, example)
        return verdict._known[sign]

    def _predicted(self, verdict: Verdict, example: dict[str, Any]) -> str | None:
        if self.sequence:
            only = SequenceSpec(context={verdict.name: verdict.feature})
            return predicted_sequence_error(only, SequenceExample(context=example, steps={}))
        return predicted_record_error({verdict.name: verdict.feature}, example)

    @staticmethod
    def _count(
        batch: KeyedBatch,
        verdict: Verdict,
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

    def _see_steps(self, batch: KeyedBatch, verdict: Verdict) -> None:
        column = batch.steps.get(verdict.name)
        wrong = np.zeros(len(batch), np.bool_)
        errors: list[tuple[int, str]] = []
        only = SequenceSpec(steps={verdict.name: verdict.feature})
        for row in range(len(batch)):
            values = _steps_of(column, row)
            steps = {} if values is None else {verdict.name: values}
            example = SequenceExample(context={}, steps=steps)
            if values is not None and len(values) > _MOST_STEPS:
                error = predicted_sequence_error(only, example)
            else:
                sign = None if values is None else tuple([_sign_of(value, column) for value in values])
                if sign not in verdict._known:
                    if len(verdict._known) >= _MOST_SIGNATURES:
                        verdict._known.clear()
                    verdict._known[sign] = predicted_sequence_error(only, example)
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


def _signs(column: KeyColumn | None, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number for each row that says how many values it has; -1 where it has not even a list."""
    if column is None:
        return np.full(rows, -1, np.int64)
    return column.counts if column.valid is None else np.where(column.valid, column.counts, -1)


def _steps_of(column: StepColumn | None, row: int) -> list[Any] | None:
    if column is None or (column.valid is not None and not column.valid[row]):
        return None
    begin, end = map(int, column.offsets[row : row + 2])
    return [column.steps.value(step) for step in range(begin, end)]


def _sign_of(value: Any, column: StepColumn | None) -> tuple[str, int]:
    return ("", -1) if value is None or column is None else (column.steps.kind, len(value))
