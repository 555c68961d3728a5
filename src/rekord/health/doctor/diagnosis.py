"""One explained problem with its remedy, and how diagnoses are worded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekord.health.finding import JsonFields, Severity

_MAX_SHOWN_CHARACTERS = 60


def format_number(value: float) -> str:
    """A number without a needless `.0`."""
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def format_key(key: str) -> str:
    """A key as it may stand in a sentence: between backticks, and cut."""
    return f"`{key if len(key) <= _MAX_SHOWN_CHARACTERS else key[: _MAX_SHOWN_CHARACTERS - 1] + '…'}`"


def format_python_key(key: str) -> str:
    """A key as Python text, and cut."""
    return f'"{format_key(key)[1:-1]}"'


def join_remedies(*ways: str | None) -> str:
    """Several ways to fix something, the best first."""
    return "; or ".join(way for way in ways if way)


def format_some(values: Iterable[object], most: int = 4) -> str:
    """The first few of some values, cut to what a message may show."""
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
    """Where one of the affected records stands; `offset` is that of its frame in the decompressed stream."""

    path: str
    record: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(JsonFields):
    """What is wrong, what speaks for it, what it is not, and what to do.

    `path` is the file that it is in; where there are several, what the doctor was asked about, and `files` says
    how many. `records` are the places of the first few of `records_affected`.
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
    asked: str  # the feature of the spec, as Python text
    ok: bool
    records_affected: int = 0
    tensorflow_error: str | None = None
    works: str | None = None
    """The text of a feature that parses every record, behind its key where that is another one; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnoses(JsonFields):
    """What a doctor found, worst first. `ok` means that there is neither an error nor a warning.

    With a spec or a schema, `features` says of each feature whether TensorFlow will parse it, and `spec` is the text
    of a spec that would.
    """

    files: int = 0
    records: int = 0
    unreadable: int = 0  # files that the disk would not give
    diagnoses: tuple[Diagnosis, ...]
    features: tuple[ParsePrediction, ...] = field(default_factory=tuple)
    spec: str | None = None

    @property
    def ok(self) -> bool:
        """True where no diagnosis is an error or a warning; notes may remain."""
        return all(diagnosis.severity == "note" for diagnosis in self.diagnoses)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **JsonFields.to_dict(self)}


def find_worst_severity(severities: Iterable[Severity]) -> Severity:
    """The worst of some severities."""
    return min(severities, key=_SEVERITY_RANK.__getitem__)


def sort_by_severity(diagnoses: list[Diagnosis]) -> tuple[Diagnosis, ...]:
    """Errors before warnings before notes; within these, what touches most records first."""
    return tuple(
        sorted(diagnoses, key=lambda each: (_SEVERITY_RANK[each.severity], -each.records_affected, each.code))
    )
