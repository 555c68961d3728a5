"""`rekord check`, `doctor`, `explain` and `salvage`: what is wrong with records, why, and what can be saved."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, cast

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
from rekord.cli.exit_handling import exit_code
from rekord.cli.flag_hints import translate_document, translate_hint
from rekord.cli.options import INPUT_ARGUMENT, JSON_OPTION, argument, integer_option, text_option
from rekord.codes import CODES, page
from rekord.errors import RekordError, error
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.health.doctor.diagnosis import Diagnoses, Diagnosis, ParsePrediction
    from rekord.health.finding import Finding, Report
    from rekord.health.salvage import Gap, SalvageReport
    from rekord.health.tensorflow.message_patterns import Explanation
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


@shared.with_options
def check(
    paths: list[str] = shared.PATHS_ARGUMENT,
    max_findings: int | None = integer_option(
        "--max-findings", "Maximum number of findings to list; the others are counted.", do=_HINT
    ),
    schema: str | None = text_option("--schema", "FILE", "Schema that records must match: JSON or .pbtxt."),
    as_json: bool = shared.JSON_OPTION,
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
    return exit_code(report.unreadable, ok=report.ok)


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


_MAX_MESSAGE_CHARACTERS = 300


@shared.with_options
def doctor(
    paths: list[str] = shared.PATHS_ARGUMENT,
    schema: str | None = text_option("--schema", "FILE", "Schema that the records should match: JSON."),
    spec: str | None = text_option(
        "--spec", "FILE.py:NAME", "tf.io spec that your code parses them with; the file is not run."
    ),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Explain what is wrong with a dataset and how to fix it. Grouped by cause, worst first. Nothing is written."""
    from rekord.cli.console import CheckProgress
    from rekord.health.dataset_files import find_dataset_files, resolve_schema
    from rekord.health.doctor.run import diagnose_files, find_common_folder, resolve_spec
    from rekord.health.finding import Report

    loaded, wanted = resolve_schema(schema), resolve_spec(spec)
    place = find_dataset_files(paths[0] if len(paths) == 1 else paths)
    files = place.paths
    shown = paths[0] if len(paths) == 1 else find_common_folder(files)
    report = Report()
    with CheckProgress(report, files=len(files)):
        found = diagnose_files(place, path=shown, schema=loaded, spec=wanted, report=report)
    if as_json:
        console.print_json(translate_document(found.to_dict()))
    else:
        names = shorten_paths(shown, files)
        console.print_lines(format_diagnoses(found, names, report.payload_bytes))
    return exit_code(found.unreadable, ok=found.ok)


def format_diagnoses(found: Diagnoses, names: dict[str, str], payload_bytes: int) -> list[list[StyledText]]:
    """The diagnoses as lines, with what TensorFlow will report per feature."""
    lines: list[list[StyledText]] = []
    for diagnosis in found.diagnoses:
        lines += [*_format_diagnosis(diagnosis, names), []]
    if found.features:
        lines += [*_format_features(found.features), []]
    if found.spec is not None and any(not feature.ok for feature in found.features):
        pasted: list[list[StyledText]] = [[text] for text in found.spec.splitlines()]
        lines += [["a spec that parses these records:"], *pasted, []]
    return [*lines, *_format_diagnosis_summary(found, payload_bytes)]


def _format_diagnosis(diagnosis: Diagnosis, names: dict[str, str]) -> list[list[StyledText]]:
    head: list[StyledText] = [
        (diagnosis.code, SEVERITY_STYLES[diagnosis.severity]),
        f"  {'' if diagnosis.severity == 'error' else diagnosis.severity + ': '}{escape_controls(diagnosis.title)}",
    ]
    lines = [head, *format_detail_lines(("where", _format_location(diagnosis, names)))]
    for label, texts in (("evidence", diagnosis.evidence), ("ruled out", diagnosis.ruled_out)):
        for number, text in enumerate(texts):
            label_once = label if number == 0 else ""
            lines.append(["  ", (f"{label_once:<9}", "dim"), f" {escape_controls(text)}"])
    lines += format_detail_lines(("likely", diagnosis.likely), ("do", translate_hint(diagnosis.do)))
    if diagnosis.tensorflow_error is not None:
        message = truncate(escape_controls(diagnosis.tensorflow_error), _MAX_MESSAGE_CHARACTERS)
        lines.append(["  ", (f"tf says   {message}", "dim")])
    return lines


def _format_location(diagnosis: Diagnosis, names: dict[str, str]) -> str:
    path = names.get(diagnosis.path, escape_controls(diagnosis.path))
    parts = [f"{path} ({format_count(diagnosis.files, 'file')})" if diagnosis.files > 1 else path]
    if diagnosis.feature is not None:
        parts.append(f"feature `{truncate(escape_controls(diagnosis.feature))}`")
    first = next((place for place in diagnosis.records if place.record is not None), None)
    if first is not None:
        several = diagnosis.files > 1
        inside = f" of {names.get(first.path, escape_controls(first.path))}" if several else ""
        least = f"first record {first.record:,}" if diagnosis.records_affected > 1 else f"record {first.record:,}"
        byte = "" if first.offset is None else f", byte {first.offset:,}"
        parts.append(f"{least}{inside}{byte}")
    return ", ".join(parts)


def _format_features(features: tuple[ParsePrediction, ...]) -> list[list[StyledText]]:
    width = min(max(len(feature.feature) for feature in features), 40)
    lines: list[list[StyledText]] = [["TensorFlow, per feature:"]]
    for feature in features:
        name = f"{truncate(escape_controls(feature.feature)):<{width}}"
        if feature.ok:
            lines.append(["  ", (name, "bold"), "  parses"])
            continue
        records = format_count(feature.records_affected, "record")
        lines.append(["  ", (name, "bold"), ("  fails", "bold red"), f" in {records}"])
        lines += format_detail_lines(("spec", feature.spec), ("works", feature.works or "none"), indent=6)
    return lines


def _format_diagnosis_summary(found: Diagnoses, payload_bytes: int) -> list[list[StyledText]]:
    amount = (
        f"{format_count(found.files, 'file')} · {format_count(found.records, 'record')} · "
        f"{format_byte_size(payload_bytes)}"
    )
    if not found.diagnoses:
        return [[("nothing wrong", "bold green"), f" · {amount}"]]
    each = [
        format_count(number, name)
        for name in SEVERITY_STYLES
        if (number := sum(diagnosis.severity == name for diagnosis in found.diagnoses))
    ]
    head: StyledText = (", ".join(each), "bold red" if not found.ok else "bold")
    return [[head, f" · {amount}"], [f"next: rekord explain {found.diagnoses[0].code}"]]


_MAX_SUGGESTIONS = 4
_MAX_CODE_CHARACTERS = 12
_MAX_LOG_BYTES = 1 << 20
_CODE = re.compile(r"\b[A-Z]\d{3}\b")
_ERROR_CLASS = re.compile(r"\b[A-Z]\w{2,40}(?:Error|Exception|Loss)\b")


@shared.with_options
def explain(
    words: list[str] | None = argument(
        "[CODE | MESSAGE]",
        "Error code such as F102, an error message, or - to read a log from stdin. Default: list all codes.",
        default=None,
    ),
    as_json: bool = JSON_OPTION,
) -> int:
    """Explain an error code, or an error message of TensorFlow. What it means, how it happens, and what to do."""
    if not words:
        _list_codes(as_json=as_json)
        return 0
    text = _read_input() if words == ["-"] else " ".join(words).strip()
    if text.upper() in CODES:
        _print_page(text.upper(), as_json=as_json)
    elif not any(letter.isspace() for letter in text) and len(text) <= _MAX_CODE_CHARACTERS:
        raise _unknown_code_error(text)
    else:
        _explain_message(text, as_json=as_json)
    return 0


def _read_input() -> str:
    """The end of what is piped in, where the message is."""
    if sys.stdin is None:
        return ""
    text = ""
    while chunk := sys.stdin.buffer.read(_MAX_LOG_BYTES):
        text = (text + chunk.decode("utf-8", "replace"))[-_MAX_LOG_BYTES:]
    return text.strip()


def read_error_page(code: str) -> str:
    """The page about a code, without the newline at its end."""
    try:
        text = page(code)
    except FileNotFoundError:
        text = None
    return (text or f"# {code}: {CODES[code]}\n\nThis installation has no page about this code.").rstrip()


def _list_codes(*, as_json: bool) -> None:
    if as_json:
        console.print_json({"codes": [{"code": each, "title": title} for each, title in CODES.items()]})
        return
    for each, title in CODES.items():
        console.print_line((each, "bold"), f"  {title}")


def _print_page(code: str, *, as_json: bool) -> None:
    text = read_error_page(code)
    if as_json:
        console.print_json({"code": code, "title": CODES[code], "text": text})
    elif console.is_terminal(sys.stdout):
        from rich.markdown import Markdown

        console.get_console(sys.stdout).print(Markdown(text))
    else:
        console.print_line(text)


def _explain_message(text: str, *, as_json: bool) -> None:
    from rekord.health.tensorflow.known_messages import explain_message

    explanation = explain_message(text)
    if explanation is not None:
        _print_explanation(explanation, as_json=as_json)
        return
    # A message of rekord contains its code.
    code = next((each for each in _CODE.findall(text[-100_000:]) if each in CODES), None)
    if code is None:
        raise _unknown_message_error(text)
    _print_page(code, as_json=as_json)


def _print_explanation(explanation: Explanation, *, as_json: bool) -> None:
    details = [("says", explanation.says), ("happens", explanation.how)]
    details += [("do", line) for line in explanation.do]
    details += [("code", f"rekord explain {explanation.code}      ({CODES[explanation.code]})")]
    if as_json:
        text = "\n".join([f"{label}: {line}" for label, line in details])
        console.print_json({"code": explanation.code, "title": explanation.title, "text": text})
        return
    console.print_line((escape_controls(explanation.title), "bold"))
    console.print_lines(format_detail_lines(*details))


def _unknown_message_error(text: str) -> RekordError:
    named = _ERROR_CLASS.search(text[-100_000:])
    understood = f"the error class {named[0]}, and nothing else that rekord knows" if named else None
    return error(
        "U603",
        "unknown message",
        expected="a code, or a message of TensorFlow about records, such as `Key: label.  Data types don't match`",
        found=understood or truncate(escape_controls(text)),
        do="pass the whole line that starts with the name of the error, or check the data: rekord check PATH",
    )


def _unknown_code_error(code: str) -> RekordError:
    near = [each for each in CODES if _is_one_edit_apart(code.upper(), each)][:_MAX_SUGGESTIONS]
    family = [each for each in CODES if each[0] == code[:1].upper()]
    expected = f"a code from {family[0]} to {family[-1]}" if family and not near else None
    return error(
        "U603",
        f"unknown error code {truncate(escape_controls(repr(code)))}",
        expected=expected,
        likely=f"a typo of {' or '.join(near)}" if near else None,
        do=f"rekord explain {near[0]}" if near else "rekord explain      (lists every code)",
    )


def _is_one_edit_apart(a: str, b: str) -> bool:
    """Whether `a` and `b` differ by one edit. Codes are so short that two edits would match a hundred."""
    if abs(len(a) - len(b)) > 1:
        return False
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return b[same + 1 :] in (a[same:], a[same + 1 :]) or b[same:] == a[same + 1 :]


MAX_LISTED_GAPS = 100
"""Gaps that get a line each; JSON has them all."""


@shared.with_options
def salvage(
    source: str = INPUT_ARGUMENT,
    target: str = argument("OUT", "File to create if IN is a file, otherwise a folder to create."),
    as_json: bool = JSON_OPTION,
) -> int:
    """Copy all intact records of damaged files. Lists the gaps; the exit code is 1 if there are any."""
    from rekord.health.salvage import SalvageReport, salvage_into

    report = SalvageReport()
    if as_json:
        salvage_into(source, target, report)
        console.print_json(report.to_dict())
    else:
        _salvage_with_progress(source, target, report)
    return 0 if report.ok else 1


def _salvage_with_progress(source: str, target: str, report: SalvageReport) -> None:
    """Salvage, print each gap as it is found, then a summary."""
    from rekord.cli.console import CheckProgress
    from rekord.health.salvage import salvage_into

    # The line reads `files`, `records` and `payload_bytes`, which both reports have.
    with CheckProgress(cast("Report", report), files=_count_files(source)) as progress:

        def print_gap(gap: Gap) -> None:
            listed = len(report.gaps) + report.not_listed
            if listed <= MAX_LISTED_GAPS:
                with progress.suspended():
                    console.print_line(*_format_gap(gap, source))
                    console.flush_stdout()

        salvage_into(source, target, report, on_gap=print_gap)
    console.print_lines(_format_salvage_summary(report))


def _count_files(source: str) -> int:
    """The number of files, for the progress line; errors are reported by the salvage itself."""
    from rekord.dataset.read import list_record_files
    from rekord.errors import RekordError

    if not console.is_terminal(sys.stderr):
        return 0
    try:
        return len(list_record_files(source))
    except RekordError:
        return 0


def _format_gap(gap: Gap, source: str) -> list[StyledText]:
    name = gap.path
    if os.path.isdir(source) and name.startswith(os.path.join(source, "")):
        name = os.path.relpath(name, source)
    place = f"bytes {gap.begin:,} to {gap.end:,}"
    if gap.compressed_begin is not None:
        end = "the end" if gap.compressed_end is None else f"{gap.compressed_end:,}"
        place += f" (in the file {gap.compressed_begin:,} to {end})"
    lost = "" if gap.lost_records is None else f" · lost {format_count(gap.lost_records, 'record')}"
    found = " · resumed where a search found the next record" if gap.left_by == "search" else ""
    return [
        (gap.code, "bold red"),
        f"  {escape_controls(name)}  {place}   {escape_controls(gap.message)}{lost}{found}",
    ]


def _format_salvage_summary(report: SalvageReport) -> list[list[StyledText]]:
    gaps = len(report.gaps) + report.not_listed
    lines: list[list[StyledText]] = []
    if gaps > MAX_LISTED_GAPS:
        lines.append([f"… and {gaps - MAX_LISTED_GAPS:,} more gaps: --json lists them all"])
    if report.resynchronised:
        lines.append(
            [f"{format_count(report.resynchronised, 'record')} found by a search: identified by checksum alone"]
        )
    wrote = escape_controls(report.out) + (os.sep if os.path.isdir(report.out) and report.out[-1:] != os.sep else "")
    kept = f"kept {format_count(report.kept, 'record')}"
    if report.ok:
        lines.append([("all intact", "bold green"), f" · {kept} · wrote {wrote}"])
        return lines
    lost = "an unknown number" if report.lost_records is None else f"{report.lost_records:,}"
    lines.append([(f"{kept} · lost {lost}", "bold"), f" · {format_count(gaps, 'gap')} · wrote {wrote}"])
    return lines
