"""`rekord diff`: what changed between two datasets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import StyledText, escape_controls, shorten_paths, truncate
from rekord.cli.exit_handling import exit_code
from rekord.cli.options import argument, flag_option, text_option
from rekord.report.formatting import format_byte_size, format_count, format_duration

if TYPE_CHECKING:
    from rekord.health.diff.report import Diff, RecordExample
    from rekord.health.finding import Report

MAX_LISTED = 10
"""Columns, features and findings that get a line each; JSON has them all."""

_MAX_EXAMPLES = 5
_MARKS: dict[str, StyledText] = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


@shared.with_options
def diff(
    a: str = argument("A", "Older dataset: a folder, file or glob pattern."),
    b: str = argument("B", "Newer dataset."),
    key: str | None = text_option("--key", "KEY", "Match records by this column, to report which changed and how."),
    read: bool = flag_option("--read", "Read all files, even if the manifests list the same checksums."),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Compare two datasets and report what changed. The exit code is 1 if something did."""
    from contextlib import nullcontext

    from rekord.cli.console import CheckProgress
    from rekord.health.diff.run import compare_sides, open_side
    from rekord.health.finding import Report

    one, other = open_side(a), open_side(b)
    report = Report()
    began = time.perf_counter()
    watched = nullcontext() if as_json else CheckProgress(report, files=len(one.files) + len(other.files))
    with watched:
        found = compare_sides(one, other, key=key, read=read, report=report)
    if as_json:
        console.print_json(found.to_dict())
    else:
        names = shorten_paths(a, one.files) | shorten_paths(b, other.files)
        console.print_lines(format_diff(found, names, report, time.perf_counter() - began))
    return exit_code(found.unreadable, ok=found.same)


def format_diff(found: Diff, names: dict[str, str], report: Report, seconds: float) -> list[list[StyledText]]:
    """A comparison as lines of text."""
    amount = f"{format_byte_size(report.payload_bytes)} in {format_duration(seconds)}"
    remarks: list[list[StyledText]] = [[("note", "dim"), f"  {escape_controls(remark)}"] for remark in found.remarks]
    if found.same:
        records = format_count(found.counts["a"]["records"], "record")
        verdict = "the same, according to their manifests" if found.by_manifests else "the same"
        return [[(verdict, "bold green"), f" · {records} · {amount}"], *remarks]
    lines: list[list[StyledText]] = []
    for title, rows in (
        ("records", _format_records(found)),
        ("splits", _format_splits(found)),
        ("schema", _format_schema(found)),
        ("features", _format_features(found)),
        ("examples", _format_examples(found, names)),
    ):
        for number, row in enumerate(rows):
            lines.append([(f"{'' if number else title:<9}", "bold"), " ", *row])
    lines += remarks
    return [*lines, *_format_findings(found, names), [_format_verdict(found), f" · {amount}"]]


def _format_verdict(found: Diff) -> StyledText:
    if found.complete:
        return ("A and B differ", "bold red")
    return ("incomplete: only what could be read was compared", "bold red")


def _format_records(found: Diff) -> list[list[StyledText]]:
    records = found.records
    total = f"{found.counts['a']['records']:,} → {format_count(found.counts['b']['records'], 'record')}"
    parts = [
        f"{number:,} {word}"
        for number, word in (
            (records.added, "added"),
            (records.removed, "removed"),
            (records.changed, "changed"),
            (records.moved, "in another split"),
        )
        if number
    ]
    lines: list[list[StyledText]] = [[" · ".join([total, *(parts or ["the same"])])]]
    if records.features:
        named = [f"{truncate(escape_controls(name))} in {number:,}" for name, number in records.features.items()]
        more = [f"{len(named) - MAX_LISTED:,} more"] if len(named) > MAX_LISTED else []
        lines.append([f"changed: {', '.join([*named[:MAX_LISTED], *more])}"])
    return lines


def _format_splits(found: Diff) -> list[list[StyledText]]:
    lines: list[list[StyledText]] = []
    for name, (a, b) in found.splits.items():
        shown = truncate(escape_controls(name))
        if a is None and b is not None:
            lines.append([_MARKS["added"], f" {shown}  {format_count(b.records, 'record')}, only in B"])
        elif b is None and a is not None:
            lines.append([_MARKS["removed"], f" {shown}  {format_count(a.records, 'record')}, only in A"])
        elif a is not None and b is not None and a.records != b.records and len(found.splits) > 1:
            lines.append([_MARKS["changed"], f" {shown}  {a.records:,} → {format_count(b.records, 'record')}"])
    return _cap_lines(lines)


def _format_schema(found: Diff) -> list[list[StyledText]]:
    from rekord.health.diff.report import describe_column

    schema = found.schema
    lines: list[list[StyledText]] = []
    for word, columns in (("removed", schema.removed), ("added", schema.added)):
        for name, column in columns.items():
            lines.append([_MARKS[word], f" {_format_named(name, describe_column(column))}"])
    for name, change in schema.changed.items():
        lines.append([_MARKS["changed"], f" {_format_named(name, ', '.join(change.says))}"])
    return _cap_lines(lines)


def _format_features(found: Diff) -> list[list[StyledText]]:
    return _cap_lines([[_format_named(name, ", ".join(shift.says))] for name, shift in found.features.items()])


def _format_named(name: str, text: str) -> str:
    return f"{truncate(escape_controls(name))}  {escape_controls(text)}"


def _format_examples(found: Diff, names: dict[str, str]) -> list[list[StyledText]]:
    lines: list[list[StyledText]] = []
    for change in ("changed", "removed", "added"):
        some = [example for example in found.records.examples if example.change == change]
        lines += [_format_example(example, names, found.key) for example in some[:_MAX_EXAMPLES]]
    return lines


def _format_example(example: RecordExample, names: dict[str, str], key: str | None) -> list[StyledText]:
    parts = (
        [] if example.key is None else [f"{truncate(escape_controls(key or ''))} {escape_controls(str(example.key))}"]
    )
    # For a changed record the location in B: that is the one to inspect, and JSON has both.
    place = example.b or example.a
    if place is not None:
        parts.append(f"{names.get(place.path, escape_controls(place.path))} record {place.record:,}")
    parts += [
        f"{truncate(escape_controls(name))}: {_format_value(a)} → {_format_value(b)}"
        for name, (a, b) in example.features.items()
    ]
    return [_MARKS[example.change], f" {'  '.join(parts)}"]


def _format_value(value: str | None) -> str:
    return "nothing" if value is None else escape_controls(value)


def _format_findings(found: Diff, names: dict[str, str]) -> list[list[StyledText]]:
    lines: list[list[StyledText]] = []
    for finding in found.findings[:MAX_LISTED]:
        path = finding.path or ""
        place = [names.get(path, escape_controls(path))]
        if finding.record is not None:
            place.append(f"record {finding.record:,}")
        lines.append([(finding.code, "bold red"), f"  {'  '.join(place)}   {escape_controls(finding.message)}"])
    more = len(found.findings) - MAX_LISTED + found.not_listed
    if more > 0:
        lines.append([f"… and {more:,} more that could not be read: rekord check lists them"])
    return lines


def _cap_lines(lines: list[list[StyledText]]) -> list[list[StyledText]]:
    if len(lines) <= MAX_LISTED:
        return lines
    return [*lines[:MAX_LISTED], [f"… and {len(lines) - MAX_LISTED:,} more: --json lists them all"]]
