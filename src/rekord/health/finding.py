"""One fact about a dataset, and the report that collects them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

from rekord.codes import CODES
from rekord.errors import RekordError
from rekord.report.notebook import never_raises

Severity = Literal["error", "warning", "note"]

MAX_LISTED_RECORDS = 1000
"""Records listed in one finding; the rest is counted."""


class JsonFields:
    """A dataclass whose JSON form is its fields, in order."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, as JSON values."""
        return {each.name: _to_json(getattr(self, each.name)) for each in fields(cast("Any", self))}


def _to_json(value: Any) -> Any:
    if isinstance(value, JsonFields):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {name: _to_json(one) for name, one in value.items()}
    return [_to_json(one) for one in value] if isinstance(value, (list, tuple)) else value


@dataclass(slots=True, kw_only=True)
class Finding(JsonFields):
    """One fact and its location. `count` records share it; `record` and `offset` are those of the first.

    `record` counts in the file `path`, `split_record` in `split`: None if unknown. `records` lists those that share
    the finding, as (path, record): up to 1,000 of them if there are several.
    """

    code: str
    severity: Severity
    path: str | None = None
    record: int | None = None
    split: str | None = None
    split_record: int | None = None
    offset: int | None = None
    feature: str | None = None
    message: str
    expected: str | None = None
    found: str | None = None
    likely: str | None = None
    do: str | None = None
    count: int = 1
    records: list[tuple[str, int]] = field(default_factory=list)

    def add_record(self, path: str, record: int) -> None:
        """List another record that shares this finding, unless there are enough."""
        if len(self.records) < MAX_LISTED_RECORDS:
            self.records.append((path, record))

    def to_dict(self) -> dict[str, Any]:
        """The fields; `records` only if there are several."""
        document = JsonFields.to_dict(self)
        if not self.records:
            del document["records"]
        return document

    @classmethod
    def from_error(cls, failure: RekordError) -> Finding:
        """An error that occurred during a check, as a finding."""
        where = failure.location
        return cls(
            code=failure.code,
            severity="error",
            path=where.path,
            record=where.record,
            offset=where.offset,
            feature=where.feature,
            message=failure.what,
            expected=failure.expected,
            found=failure.found,
            likely=failure.likely,
            do=failure.do,
        )

    @classmethod
    def of(cls, code: str, severity: Severity, **where: Any) -> Finding:
        """A finding with the title of its code, unless `message` is more specific."""
        return cls(code=code, severity=severity, **{"message": CODES[code], **where})


@dataclass(slots=True, kw_only=True)
class Report(JsonFields):
    """The findings of a check. `ok` means that there is no error; warnings and notes may remain."""

    files: int = 0
    records: int = 0
    payload_bytes: int = 0
    errors: int = 0
    unreadable: int = 0  # files that could not be read from disk
    not_listed: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if no finding is an error."""
        return self.errors == 0

    def add(self, finding: Finding, max_findings: int | None) -> None:
        """List a finding, or only count it if there are enough."""
        self.errors += finding.severity == "error"
        if max_findings is None or len(self.findings) < max_findings:
            self.findings.append(finding)
        else:
            self.not_listed += 1

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **JsonFields.to_dict(self)}

    def __repr__(self) -> str:
        from rekord.health.summary import summarize_report

        return summarize_report(self)

    @never_raises
    def _repr_html_(self) -> str:
        from rekord.health.summary import render_report

        return render_report(self)
