"""`rekord check`: yes or no, for a person and for CI."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from rekord.cli import console
from rekord.cli.console import Piece, clean, cut, detail_lines, shown_below, whole_number
from rekord.report.formatting import byte_size, count, duration

if TYPE_CHECKING:
    from rekord.health.finding import Finding, Report
    from rekord.schema import Schema
    from rekord.storage.local import Readable

DETAILED_FINDINGS = 10
"""So many findings are shown with all that is known; a person reads no more of that."""

LISTED_PER_CODE = 10
"""So many findings of a code get a line of their own, unless the user asked for a number."""

_ABOUT_DATASETS = "H780"
"""Codes from here on are about files and splits, not about what a record holds."""

_MOST_COUNTED = 100_000
"""So many wrong records are told apart; beyond that their number is a lower bound."""

_SEVERITIES = ("error", "warning", "note")
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_DAMAGE_CODES = ("F101", "F102", "F103", "F104", "F105")
_SAYS_HOW_MANY = re.compile(r"\d (?:records?|rows?|more)\b")
_HINT = "rekord check PATH --max-findings 1000"
_NOT_LOOKED_FOR = (
    "check does not look for labels stored as floats, numbers stored as text or pixels stored raw"
)


def check(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH", help="Record files, folders or patterns.", show_default=False),
    ],
    max_findings: Annotated[
        int | None,
        typer.Option(
            "--max-findings",
            metavar="N",
            help="List so many findings; the rest is counted.",
            parser=whole_number("--max-findings", do=_HINT),
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="What records must be: a schema's JSON, or a schema.pbtxt.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Say what is wrong, and where. Every record is read. Exit code 1 where there is an error."""
    from rekord.cli import write_options
    from rekord.health.check import run as health

    declared = write_options.schema(schema)
    path: str | list[str] = paths[0] if len(paths) == 1 else paths
    if as_json:
        listed = health.MAX_FINDINGS if max_findings is None else max_findings
        report = health.check(path, declared, max_findings=listed)
        console.say_json(report.to_dict())
    else:
        report = check_aloud(path, declared, max_findings=max_findings)
    if report.unreadable:
        return 3
    return 0 if report.ok else 1


def check_aloud(
    path: str | list[str], schema: Schema | None = None, *, max_findings: int | None = None
) -> Report:
    """Check files and say each finding when it is met, then the sum of it."""
    from rekord.cli.console import Progress
    from rekord.health.check.run import checked
    from rekord.health.dataset_files import look_at
    from rekord.health.finding import Report

    report = Report()
    place = look_at(path)
    given = [path] if isinstance(path, str) else path
    listing = Listing(shown_below(given[0] if len(given) == 1 else "", place.paths), max_findings)
    began = time.perf_counter()
    with (
        Progress(report, files=len(place.paths)) as progress,
        closing(checked(place, report, schema)) as findings,
    ):
        for finding in findings:
            report.errors += finding.severity == "error"
            lines = listing.lines(finding)
            if lines:
                with progress.aside():
                    _say_lines(lines)
                    console.flush()
    _say_lines(listing.unlisted_lines())
    _say_lines(listing.summary(report, time.perf_counter() - began, doctor=clean(shlex.join(given))))
    return report


class Listing:
    """Which findings have been said, how fully, and what they come to."""

    def __init__(self, names: dict[str, str], max_findings: int | None) -> None:
        self._names = names
        self._width = min(max(map(len, names.values()), default=0), 48)
        self._max_findings = max_findings
        self._listed = 0
        self._by_code: Counter[str] = Counter()
        self._places: set[tuple[str, str | None]] = set()
        self._unlisted: Counter[str] = Counter()
        self._unlisted_places: set[tuple[str, str | None]] = set()
        self._severities: Counter[str] = Counter()
        self._codes: dict[str, str] = {}  # the first code of each severity
        self._damaged = 0
        self._refused = 0
        self._wrong: set[tuple[str | None, int]] = (
            set()
        )  # records that are intact and not what they should be
        self._most_wrong = 0  # of one finding that counts several
        self._exact = True

    def lines(self, finding: Finding) -> list[list[Piece]]:
        """A finding as it is shown; no lines where it is only counted."""
        self._count(finding)
        if not self._has_room(finding):
            self._unlisted[finding.code] += 1
            self._unlisted_places.add((finding.code, finding.path))
            return []
        self._listed += 1
        self._by_code[finding.code] += 1
        self._places.add((finding.code, finding.path))
        lines = [self._line(finding)]
        if self._listed <= DETAILED_FINDINGS:
            lines += detail_lines(
                ("expected", finding.expected),
                ("found", finding.found),
                ("likely", finding.likely),
                ("do", finding.do),
                indent=6,
            )
        return lines

    def unlisted_lines(self) -> list[list[Piece]]:
        """What was only counted: one line a code."""
        files = Counter(code for code, _ in self._unlisted_places)
        lines: list[list[Piece]] = [
            [(code, "bold"), f"  {number:,} more like this in {count(files[code], 'file')}"]
            for code, number in self._unlisted.items()
        ]
        if lines:
            lines.append([f"--max-findings {self._severities.total()} lists them all"])
        return lines

    def summary(self, report: Report, seconds: float, *, doctor: str) -> list[list[Piece]]:
        """The last lines: how much was found, how much is good, what to do next: `rekord doctor` and the paths."""
        amount = f"{byte_size(report.payload_bytes)} in {duration(seconds)}"
        total = self._severities.total()
        if not total:
            files, records = count(report.files, "file"), count(report.records, "record")
            return [
                [("all good", "bold green"), f" · {files} · {records} · {amount}"],
                [f"{_NOT_LOOKED_FOR}: rekord doctor {doctor}"],
            ]
        found = count(total, "finding")
        if len(self._severities) > 1 or "error" not in self._severities:
            each = [count(self._severities[name], name) for name in _SEVERITIES if self._severities[name]]
            found = ", ".join(each) if report.ok else f"{found} ({', '.join(each)})"
        worst = next(self._codes[name] for name in _SEVERITIES if name in self._codes)
        head: Piece = (found, "bold red") if not report.ok else f"no errors · {found}"
        then = f"rekord explain {worst}" if report.ok else f"rekord doctor {doctor}"
        return [[head, f" · {self._records(report)} · {amount}"], [f"next: {then}"]]

    def _count(self, finding: Finding) -> None:
        self._severities[finding.severity] += 1
        self._codes.setdefault(finding.severity, finding.code)
        if finding.severity != "error":
            return
        if finding.code.startswith("W"):  # intact, and counted as such, but refused by protobuf
            self._damaged += 1
            self._refused += 1
        elif finding.code[0] in "FC":
            self._damaged += finding.code in _DAMAGE_CODES
            # Unless the very next record is there, nobody knows how many were lost.
            self._exact = self._exact and _lost_one_record(finding)
        elif finding.record is not None and finding.code < _ABOUT_DATASETS:
            self._most_wrong = max(self._most_wrong, finding.count)
            if len(self._wrong) < _MOST_COUNTED:
                self._wrong.add((finding.path, finding.record))
            # Of one finding for many records nobody knows which of them others are about.
            self._exact = self._exact and finding.count == 1 and len(self._wrong) < _MOST_COUNTED

    def _has_room(self, finding: Finding) -> bool:
        if self._max_findings is not None:
            return self._listed < self._max_findings
        # Each file with an error is named, whatever the others have.
        new_place = finding.severity == "error" and (finding.code, finding.path) not in self._places
        return new_place or self._by_code[finding.code] < LISTED_PER_CODE

    def _line(self, finding: Finding) -> list[Piece]:
        path = finding.path or ""
        name = self._names.get(path, clean(path))
        place = [f"{name:<{self._width}}"]
        if finding.record is not None:
            number = f"record {finding.record:,}"
            if finding.split is not None and finding.split_record not in (None, finding.record):
                number += f" ({cut(clean(finding.split))} {finding.split_record:,})"
            place.append(number)
        if finding.offset is not None:
            place.append(f"byte {finding.offset:,}")
        if finding.feature is not None:
            place.append(f"feature `{cut(clean(finding.feature))}`")
        severity = "" if finding.severity == "error" else f"{finding.severity}: "
        several = f" (in {count(finding.count, 'record')})" if finding.count > 1 else ""
        if _SAYS_HOW_MANY.search(finding.message):
            several = ""
        message = f"{severity}{clean(finding.message)}{several}"
        return [(finding.code, _STYLES[finding.severity]), f"  {'  '.join(place)}   {message}"]

    def _records(self, report: Report) -> str:
        if report.ok:
            return f"{count(report.files, 'file')} · {count(report.records, 'record')}"
        whole = report.records - self._refused
        good = max(whole - max(len(self._wrong), self._most_wrong), 0)
        if self._exact and not self._wrong and not self._damaged:
            return f"{count(report.files, 'file')} · {count(report.records, 'record')}"
        if self._exact:
            return f"{good:,} of {count(whole + self._damaged, 'record')} good"
        lost = f", {self._damaged:,} or more damaged" if self._damaged else ""
        if self._wrong:
            return f"{good:,} of {count(whole, 'record')} good at the most{lost}"
        return f"{count(good, 'record')} good{lost}"


def _say_lines(lines: list[list[Piece]]) -> None:
    for line in lines:
        console.say(*line)


def _lost_one_record(finding: Finding) -> bool:
    """Whether a record, or the end of the file, stands right behind the one that is damaged."""
    from rekord._core import FRAMING_BYTES, header_agrees
    from rekord.errors import RekordError
    from rekord.storage.local import LOCAL

    if finding.code != "F102" or finding.path is None or finding.offset is None:
        return False
    try:
        if LOCAL.stat(finding.path).kind != "file":
            return False
        with LOCAL.open_read(finding.path) as file:
            header = _header_at(file, finding.offset)
            if not header_agrees(header):
                return False  # offsets count decompressed bytes: this file is compressed
            behind = finding.offset + FRAMING_BYTES + int.from_bytes(header[:8], "little")
            return behind == file.size_bytes or bool(header_agrees(_header_at(file, behind)))
    except RekordError:
        return False


def _header_at(file: Readable, offset: int) -> bytes:
    from rekord._core import HEADER_BYTES

    file.seek(offset)
    header = bytearray(HEADER_BYTES)
    return bytes(header[: file.readinto(header)])
