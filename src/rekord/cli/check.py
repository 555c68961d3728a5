"""`rekord check`: pass or fail, for people and for CI."""

from __future__ import annotations

import re
import shlex
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import (
    SEVERITY_STYLES,
    StyledText,
    escape_controls,
    format_detail_lines,
    shorten_paths,
    truncate,
)
from rekord.cli.flag_hints import translate_document, translate_hint
from rekord.cli.options import integer_option, text_option
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.health.finding import Finding, Report
    from rekord.schema import Schema
    from rekord.storage.local import Readable

DETAILED_FINDINGS = 10
"""Findings shown with all their details; later ones get one line."""

LISTED_PER_CODE = 10
"""Findings listed per code, without --max-findings."""

_DATASET_CODE = "H780"
"""Codes from here on are about files and splits, not about the content of records."""

_MAX_COUNTED = 100_000
"""Bad records that are remembered individually; beyond that their number is a lower bound."""

_DAMAGE_CODES = ("F101", "F102", "F103", "F104", "F105")
_COUNT_PATTERN = re.compile(r"\d (?:records?|rows?|more)\b")
_HINT = "rekord check PATH --max-findings 1000"
_DOCTOR_HINT = "check does not detect labels stored as floats, numbers stored as text or raw pixels"


def check(
    paths: shared.PathsArgument,
    max_findings: Annotated[
        int | None,
        integer_option("--max-findings", "Maximum number of findings to list; the others are counted.", do=_HINT),
    ] = None,
    schema: Annotated[
        str | None, text_option("--schema", "FILE", "Schema that records must match: JSON or .pbtxt.")
    ] = None,
    as_json: shared.JsonOption = False,
) -> int:
    """Check every record and report what is wrong, and where. The exit code is 1 if there are errors."""
    from rekord.cli import write_options
    from rekord.health.check import run as health

    declared = write_options.read_schema(schema)
    path: str | list[str] = paths[0] if len(paths) == 1 else paths
    if as_json:
        listed = health.MAX_FINDINGS if max_findings is None else max_findings
        report = health.check(path, declared, max_findings=listed)
        console.print_json(translate_document(report.to_dict()))
    else:
        report = check_with_progress(path, declared, max_findings=max_findings)
    if report.unreadable:
        return 3
    return 0 if report.ok else 1


def check_with_progress(
    path: str | list[str], schema: Schema | None = None, *, max_findings: int | None = None
) -> Report:
    """Check files, print each finding as it is found, then a summary."""
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
    """Prints findings and a summary: which are listed, with how many details."""

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
        self._codes: dict[str, str] = {}  # first code of each severity
        self._damaged = 0
        self._refused = 0
        self._wrong: set[tuple[str | None, int]] = set()  # records that are intact but invalid
        self._max_wrong = 0  # records of the finding that counts most of them
        self._exact = True

    def lines(self, finding: Finding) -> list[list[StyledText]]:
        """The lines of a finding; none if it is only counted."""
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
                ("do", translate_hint(finding.do)),
                indent=6,
            )
        return lines

    def unlisted_lines(self) -> list[list[StyledText]]:
        """Findings that were only counted: one line per code."""
        files = Counter(code for code, _ in self._unlisted_places)
        lines: list[list[StyledText]] = [
            [(code, "bold"), f"  {number:,} more like this in {format_count(files[code], 'file')}"]
            for code, number in self._unlisted.items()
        ]
        if lines:
            lines.append([f"--max-findings {self._severities.total()} lists them all"])
        return lines

    def summary(self, report: Report, seconds: float, *, doctor: str) -> list[list[StyledText]]:
        """The last lines: the findings, the good records, and what to do next; `doctor` are the paths as typed."""
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
            each = [format_count(self._severities[name], name) for name in SEVERITY_STYLES if self._severities[name]]
            found = ", ".join(each) if report.ok else f"{found} ({', '.join(each)})"
        worst = next(self._codes[name] for name in SEVERITY_STYLES if name in self._codes)
        head: StyledText = (found, "bold red") if not report.ok else f"no errors · {found}"
        then = f"rekord explain {worst}" if report.ok else f"rekord doctor {doctor}"
        return [[head, f" · {self._records(report)} · {amount}"], [f"next: {then}"]]

    def _count(self, finding: Finding) -> None:
        self._severities[finding.severity] += 1
        self._codes.setdefault(finding.severity, finding.code)
        if finding.severity != "error":
            return
        if finding.code.startswith("W"):  # intact and counted as such, but rejected by protobuf
            self._damaged += 1
            self._refused += 1
        elif finding.code[0] in "FC":
            self._damaged += finding.code in _DAMAGE_CODES
            # Unless the next record is intact, the number of lost records is unknown.
            self._exact = self._exact and _is_single_record_lost(finding)
        elif finding.record is not None and finding.code < _DATASET_CODE:
            self._max_wrong = max(self._max_wrong, finding.count)
            if len(self._wrong) < _MAX_COUNTED:
                self._wrong.add((finding.path, finding.record))
            # A finding that counts many records does not list them: others may be about the same ones.
            self._exact = self._exact and finding.count == 1 and len(self._wrong) < _MAX_COUNTED

    def _has_room(self, finding: Finding) -> bool:
        if self._max_findings is not None:
            return self._listed < self._max_findings
        # Each file with an error is listed, however many findings other files have.
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
        return [(finding.code, SEVERITY_STYLES[finding.severity]), f"  {'  '.join(place)}   {message}"]

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
            return f"at most {good:,} of {format_count(whole, 'record')} good{lost}"
        return f"{format_count(good, 'record')} good{lost}"


def _is_single_record_lost(finding: Finding) -> bool:
    """Whether a record, or the end of the file, directly follows the damaged one."""
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
            after = finding.offset + FRAMING_BYTES + int.from_bytes(header[:8], "little")
            return after == file.size_bytes or bool(header_agrees(_read_header(file, after)))
    except RekordError:
        return False


def _read_header(file: Readable, offset: int) -> bytes:
    from rekord._core import HEADER_BYTES

    file.seek(offset)
    header = bytearray(HEADER_BYTES)
    return bytes(header[: file.readinto(header)])
