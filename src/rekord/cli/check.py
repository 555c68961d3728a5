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
from rekord.cli.console import StyledText, escape_controls, format_detail_lines, shorten_paths, truncate
from rekord.cli.options import argument, flag_option, integer_option
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.health.finding import Finding, Report
    from rekord.schema import Schema
    from rekord.storage.local import Readable

DETAILED_FINDINGS = 10
"""So many findings are shown with all that is known; a person reads no more of that."""

LISTED_PER_CODE = 10
"""So many findings of a code get a line of their own, unless the user asked for a number."""

_DATASET_CODE = "H780"
"""Codes from here on are about files and splits, not about what a record holds."""

_MAX_COUNTED = 100_000
"""So many wrong records are told apart; beyond that their number is a lower bound."""

_SEVERITIES = ("error", "warning", "note")
_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_DAMAGE_CODES = ("F101", "F102", "F103", "F104", "F105")
_COUNT_PATTERN = re.compile(r"\d (?:records?|rows?|more)\b")
_HINT = "rekord check PATH --max-findings 1000"
_DOCTOR_HINT = "check does not look for labels stored as floats, numbers stored as text or pixels stored raw"


def check(
    paths: Annotated[list[str], argument("PATH", "Record files, folders or patterns.")],
    max_findings: Annotated[
        int | None, integer_option("--max-findings", "List so many findings; the rest is counted.", do=_HINT)
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
    as_json: Annotated[bool, flag_option("--json", "Print one JSON document.")] = False,
) -> int:
    """Say what is wrong, and where. Every record is read. Exit code 1 where there is an error."""
    from rekord.cli import write_options
    from rekord.health.check import run as health

    declared = write_options.read_schema(schema)
    path: str | list[str] = paths[0] if len(paths) == 1 else paths
    if as_json:
        listed = health.MAX_FINDINGS if max_findings is None else max_findings
        report = health.check(path, declared, max_findings=listed)
        console.print_json(report.to_dict())
    else:
        report = check_with_progress(path, declared, max_findings=max_findings)
    if report.unreadable:
        return 3
    return 0 if report.ok else 1


def check_with_progress(
    path: str | list[str], schema: Schema | None = None, *, max_findings: int | None = None
) -> Report:
    """Check files and say each finding when it is met, then the sum of it."""
    from rekord.cli.console import CheckProgress
    from rekord.health.check.run import iter_findings
    from rekord.health.dataset_files import find_dataset_files
    from rekord.health.finding import Report

    report = Report()
    place = find_dataset_files(path)
    given = [path] if isinstance(path, str) else path
    listing = FindingPrinter(shorten_paths(given[0] if len(given) == 1 else "", place.paths), max_findings)
    began = time.perf_counter()
    with (
        CheckProgress(report, files=len(place.paths)) as progress,
        closing(iter_findings(place, report, schema)) as findings,
    ):
        for finding in findings:
            report.errors += finding.severity == "error"
            lines = listing.lines(finding)
            if lines:
                with progress.suspended():
                    console.print_lines(lines)
                    console.flush_stdout()
    console.print_lines(listing.unlisted_lines())
    console.print_lines(
        listing.summary(report, time.perf_counter() - began, doctor=escape_controls(shlex.join(given)))
    )
    return report


class FindingPrinter:
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
        self._wrong: set[tuple[str | None, int]] = set()  # records that are intact and not what they should be
        self._max_wrong = 0  # of one finding that counts several
        self._exact = True

    def lines(self, finding: Finding) -> list[list[StyledText]]:
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
            lines += format_detail_lines(
                ("expected", finding.expected),
                ("found", finding.found),
                ("likely", finding.likely),
                ("do", finding.do),
                indent=6,
            )
        return lines

    def unlisted_lines(self) -> list[list[StyledText]]:
        """What was only counted: one line a code."""
        files = Counter(code for code, _ in self._unlisted_places)
        lines: list[list[StyledText]] = [
            [(code, "bold"), f"  {number:,} more like this in {format_count(files[code], 'file')}"]
            for code, number in self._unlisted.items()
        ]
        if lines:
            lines.append([f"--max-findings {self._severities.total()} lists them all"])
        return lines

    def summary(self, report: Report, seconds: float, *, doctor: str) -> list[list[StyledText]]:
        """The last lines: how much was found, how much is good, what to do next: `rekord doctor` and the paths."""
        amount = f"{format_byte_size(report.payload_bytes)} in {format_duration(seconds)}"
        total = self._severities.total()
        if not total:
            files, records = format_count(report.files, "file"), format_count(report.records, "record")
            return [
                [("all good", "bold green"), f" · {files} · {records} · {amount}"],
                [f"{_DOCTOR_HINT}: rekord doctor {doctor}"],
            ]
        found = format_count(total, "finding")
        if len(self._severities) > 1 or "error" not in self._severities:
            each = [format_count(self._severities[name], name) for name in _SEVERITIES if self._severities[name]]
            found = ", ".join(each) if report.ok else f"{found} ({', '.join(each)})"
        worst = next(self._codes[name] for name in _SEVERITIES if name in self._codes)
        head: StyledText = (found, "bold red") if not report.ok else f"no errors · {found}"
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
            self._exact = self._exact and _is_single_record_lost(finding)
        elif finding.record is not None and finding.code < _DATASET_CODE:
            self._max_wrong = max(self._max_wrong, finding.count)
            if len(self._wrong) < _MAX_COUNTED:
                self._wrong.add((finding.path, finding.record))
            # Of one finding for many records nobody knows which of them others are about.
            self._exact = self._exact and finding.count == 1 and len(self._wrong) < _MAX_COUNTED

    def _has_room(self, finding: Finding) -> bool:
        if self._max_findings is not None:
            return self._listed < self._max_findings
        # Each file with an error is named, whatever the others have.
        new_place = finding.severity == "error" and (finding.code, finding.path) not in self._places
        return new_place or self._by_code[finding.code] < LISTED_PER_CODE

    def _line(self, finding: Finding) -> list[StyledText]:
        path = finding.path or ""
        name = self._names.get(path, escape_controls(path))
        place = [f"{name:<{self._width}}"]
        if finding.record is not None:
            number = f"record {finding.record:,}"
            if finding.split is not None and finding.split_record not in (None, finding.record):
                number += f" ({truncate(escape_controls(finding.split))} {finding.split_record:,})"
            place.append(number)
        if finding.offset is not None:
            place.append(f"byte {finding.offset:,}")
        if finding.feature is not None:
            place.append(f"feature `{truncate(escape_controls(finding.feature))}`")
        severity = "" if finding.severity == "error" else f"{finding.severity}: "
        several = f" (in {format_count(finding.count, 'record')})" if finding.count > 1 else ""
        if _COUNT_PATTERN.search(finding.message):
            several = ""
        message = f"{severity}{escape_controls(finding.message)}{several}"
        return [(finding.code, _STYLES[finding.severity]), f"  {'  '.join(place)}   {message}"]

    def _records(self, report: Report) -> str:
        if report.ok:
            return f"{format_count(report.files, 'file')} · {format_count(report.records, 'record')}"
        whole = report.records - self._refused
        good = max(whole - max(len(self._wrong), self._max_wrong), 0)
        if self._exact and not self._wrong and not self._damaged:
            return f"{format_count(report.files, 'file')} · {format_count(report.records, 'record')}"
        if self._exact:
            return f"{good:,} of {format_count(whole + self._damaged, 'record')} good"
        lost = f", {self._damaged:,} or more damaged" if self._damaged else ""
        if self._wrong:
            return f"{good:,} of {format_count(whole, 'record')} good at the most{lost}"
        return f"{format_count(good, 'record')} good{lost}"


def _is_single_record_lost(finding: Finding) -> bool:
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
            header = _read_header(file, finding.offset)
            if not header_agrees(header):
                return False  # offsets count decompressed bytes: this file is compressed
            behind = finding.offset + FRAMING_BYTES + int.from_bytes(header[:8], "little")
            return behind == file.size_bytes or bool(header_agrees(_read_header(file, behind)))
    except RekordError:
        return False


def _read_header(file: Readable, offset: int) -> bytes:
    from rekord._core import HEADER_BYTES

    file.seek(offset)
    header = bytearray(HEADER_BYTES)
    return bytes(header[: file.readinto(header)])
