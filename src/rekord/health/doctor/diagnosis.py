"""Diagnoses: one explained problem with its remedy, and the formatting they share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekord.health.check.rule import format_key
from rekord.health.finding import JsonFields, Severity

_MAX_SHOWN_CHARACTERS = 60


def format_number(value: float) -> str:
    """A number without a trailing `.0`."""
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def format_python_key(key: str) -> str:
    """A key as a Python string, truncated."""
    return f'"{format_key(key)[1:-1]}"'


def join_remedies(*ways: str | None) -> str:
    """Alternative fixes, the best first."""
    return "; or ".join(way for way in ways if way)


def format_some(values: Iterable[object], most: int = 4) -> str:
    """The first few values, truncated for a message."""
    shown: list[str] = []
    length = 0
    for value in values:
        text = repr(value)
        length += len(text)
        if len(shown) == most or length > _MAX_SHOWN_CHARACTERS:
            return ", ".join(shown) + ", …" if shown else text[: _MAX_SHOWN_CHARACTERS - 1] + "…"
        shown.append(text)
    return ", ".join(shown)


def join_words(words: Sequence[str], last: str = "or") -> str:
    """`a`, `a or b`, `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


_SEVERITY_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedRecord(JsonFields):
    """Position of an affected record; `offset` is that of its frame in the decompressed stream."""

    path: str
    record: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(JsonFields):
    """A problem, the evidence for it, what was ruled out, and what to do.

    `path` is the affected file, or the path given to the doctor if `files` is more than one. `records` are the
    positions of the first few of `records_affected`.
    """

    code: str
    severity: Severity
    title: str
    path: str
    files: int = 1
    feature: str | None = None
    records_affected: int = 0
    records: tuple[AffectedRecord, ...] = ()
    evidence: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()
    likely: str | None = None
    do: str
    tensorflow_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsePrediction(JsonFields):
    """Whether TensorFlow will parse one feature of a spec, and the feature that would work."""

    feature: str
    spec: str  # the feature of the spec, as Python source
    ok: bool
    records_affected: int = 0
    tensorflow_error: str | None = None
    works: str | None = None
    """Source of a feature that parses every record, with its key if that differs; None if there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnoses(JsonFields):
    """Diagnoses, worst first. `ok` means no errors and no warnings.

    With a spec or a schema, `features` predicts for each feature whether TensorFlow will parse it, and `spec` is the
    source of a spec that works.
    """

    files: int = 0
    records: int = 0
    unreadable: int = 0  # files with read errors
    diagnoses: tuple[Diagnosis, ...]
    features: tuple[ParsePrediction, ...] = field(default_factory=tuple)
    spec: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all diagnoses are notes."""
        return all(diagnosis.severity == "note" for diagnosis in self.diagnoses)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **JsonFields.to_dict(self)}


def find_worst_severity(severities: Iterable[Severity]) -> Severity:
    """The worst of some severities."""
    return min(severities, key=_SEVERITY_RANK.__getitem__)


def sort_by_severity(diagnoses: list[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Errors, then warnings, then notes; each by the number of affected records, descending."""
    return tuple(
        sorted(diagnoses, key=lambda each: (_SEVERITY_RANK[each.severity], -each.records_affected, each.code))
    )
