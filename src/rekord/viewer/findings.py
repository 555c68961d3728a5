"""`check` in the background: its findings, each with the records that it concerns, and pairs of equal records."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from threading import Event, Lock, Thread
from typing import Any

from rekord.codes import CODES
from rekord.errors import RekordError, error
from rekord.health.check.run import MAX_FINDINGS, iter_findings
from rekord.health.dataset_files import find_dataset_files
from rekord.health.finding import Finding, Report
from rekord.report.formatting import format_count
from rekord.viewer.records import Pending
from rekord.viewer.session import Session, Side

MAX_CHECKED_BYTES = 2 << 30
"""Local datasets up to this size are checked without being asked."""

MAX_CHECKED_RECORD_BYTES = 16 << 20
"""Longer records, which take several times their size while they are checked, are not checked without being asked."""

MAX_PAIRS = 1000

_KINDS = {"H786": "duplicate", "H789": "duplicate", "H787": "leak", "H788": "leak"}
_STATES = {
    "idle": "The data was not checked yet.",
    "skipped": "The data is large: it was not checked by itself.",
    "failed": "The check failed.",
}


class CheckRun:
    """One check of a side, on a thread of its own."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.state = "idle"
        self.error: RekordError | None = None
        self.findings: list[Finding] = []
        self.not_listed = 0
        self._report = Report()
        self._stop = Event()
        self._lock = Lock()
        self._by_record: dict[tuple[str, int], list[int]] = {}

    def start(self) -> None:
        """Start, unless it runs or is done."""
        with self._lock:
            if self.state in ("running", "done"):
                return
            if any(split.has_oversized for split in self.side.splits.values()):
                self.state = "skipped"
                self.error = error(
                    "U682",
                    "records of more than 64 MiB are not read by the viewer",
                    do=f"rekord check {self.side.path}",
                )
                return
            self.state = "running"
        Thread(target=self._run, name="rekord-view-check", daemon=True).start()

    def start_if_small(self) -> None:
        """Start if that costs little: once a local dataset is indexed."""
        size_bytes = sum(file.size_bytes for file in self.side.files)
        longest_bytes = max((file.longest_bytes for file in self.side.files), default=0)
        is_small = size_bytes <= MAX_CHECKED_BYTES and longest_bytes <= MAX_CHECKED_RECORD_BYTES
        if self.state == "idle" and not self.side.remote and is_small:
            self.start()

    def close(self) -> None:
        """Stop."""
        self._stop.set()

    def status(self) -> dict[str, Any]:
        """Its progress, for the page."""
        found = list(self.findings)
        return {
            "state": self.state,
            "text": self._tell(),
            "files": self._report.files,
            "of": len(self.side.files),
            "records": self._report.records,
            "findings": len(found),
            "errors": sum(one.severity == "error" for one in found),
            "warnings": sum(one.severity == "warning" for one in found),
            "not_listed": self.not_listed,
            "error": None if self.error is None else self.error.to_dict(),
        }

    def _tell(self) -> str:
        state = self.state
        if state == "running":
            return f"Checking: {self._report.files:,} of {format_count(len(self.side.files), 'file')}…"
        if state != "done":
            return _STATES[state]
        severities = [one.severity for one in self.findings]
        counts = (format_count(severities.count(name), name) for name in ("error", "warning"))
        return f"{', '.join(counts)}."

    def to_dict(self, first: int, count: int) -> dict[str, Any]:
        """Some of the findings."""
        found = list(self.findings)
        shown = [self._describe(number, found[number]) for number in range(first, min(first + count, len(found)))]
        return {"state": self.state, "total": len(found), "not_listed": self.not_listed, "findings": shown}

    def pairs(self, kind: str | None, first: int, count: int) -> dict[str, Any]:
        """Pairs of records with equal content."""
        found = []
        for number, finding in enumerate(list(self.findings)):
            pair = self._pair(finding)
            if pair is not None and kind in (None, pair["kind"]):
                found.append({"finding": number, "feature": finding.feature, **pair})
        return {"state": self.state, "total": len(found), "pairs": found[first : first + count]}

    def records_of(self, number: int) -> list[tuple[str, int]]:
        """The records of a finding, by split and number."""
        if number >= len(self.findings):
            if not self.side.is_busy:
                self.start_if_small()
            if self.side.is_busy or self.state == "running":
                raise Pending
            raise error("U606", f"there is no finding {number:,}", expected=f"one of {len(self.findings):,} findings")
        return self._records(self.findings[number])

    def findings_of(self, split: str, record: int) -> list[int]:
        """The numbers of the findings about a record."""
        return self._by_record.get((split, record), [])

    def name_findings(self, split: str, record: int) -> list[dict[str, Any]]:
        """The findings about a record, by number and title."""
        named = [(number, self.findings[number]) for number in self.findings_of(split, record)]
        return [{"number": number, "code": one.code, "title": _title_of(one)} for number, one in named]

    def _run(self) -> None:
        try:
            with closing(iter_findings(find_dataset_files(self._given()), self._report)) as found:
                for finding in found:
                    if self._stop.is_set():
                        return
                    self._add(finding)
            self.state = "done"
        except RekordError as failure:
            self.error, self.state = failure, "failed"
        except Exception as failure:
            self.error, self.state = error("U682", "check failed", found=str(failure)[:60]), "failed"

    def _given(self) -> Any:
        # A path names its manifest too; a list of files has none.
        return self.side.path if self.side.is_whole else [file.path for file in self.side.files]

    def _add(self, finding: Finding) -> None:
        if len(self.findings) >= MAX_FINDINGS:
            self.not_listed += 1
            return
        number = len(self.findings)
        for pair in self._records(finding):
            self._by_record.setdefault(pair, []).append(number)
        self.findings.append(finding)

    def _records(self, finding: Finding) -> list[tuple[str, int]]:
        if finding.records:
            places = finding.records
        elif finding.path is not None and finding.record is not None:
            places = [(finding.path, finding.record)]
        else:
            return []
        found = [self.side.find(path, record) for path, record in places]
        return [one for one in found if one is not None]

    def _pair(self, finding: Finding) -> Mapping[str, Any] | None:
        kind = _KINDS.get(finding.code)
        records = self._records(finding) if kind is not None else []
        return {"kind": kind, "a": records[0], "b": records[1]} if len(records) == 2 else None

    def _describe(self, number: int, finding: Finding) -> dict[str, Any]:
        records = self._records(finding)
        document = finding.to_dict()
        return {
            **document,
            "number": number,
            "title": _title_of(finding),
            "where": _place_of(finding),
            "side": self.side.number,
            "split": records[0][0] if records else finding.split,
            "split_record": records[0][1] if records else finding.split_record,
            "records": records,
            "more": max(finding.count - len(records), 0) if records else 0,
            "pair": self._pair(finding),
        }


def _title_of(finding: Finding) -> str:
    return CODES.get(finding.code, finding.message)


def _place_of(finding: Finding) -> str:
    places = [
        finding.path,
        None if finding.record is None else f"record {finding.record:,}",
        None if finding.offset is None else f"byte {finding.offset:,}",
        finding.feature,
    ]
    return ", ".join(filter(None, places))


def get_check(session: Session, side: Side) -> CheckRun:
    """The check of a side."""
    made: CheckRun = session.part("check" if side.number == 0 else ("check", side.number), lambda: CheckRun(side))
    return made
