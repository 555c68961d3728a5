"""`rekord diff`: what changed between two datasets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rekord.cli import console
from rekord.cli.console import Piece, clean, cut, shown_below
from rekord.report.formatting import byte_size, count, duration

if TYPE_CHECKING:
    from rekord.health.diff.report import Diff, Example, RecordPlace
    from rekord.health.finding import Report

LISTED = 10
"""So many columns, features and findings get a line; JSON has them all."""

_EXAMPLES = 5
_MARKS: dict[str, Piece] = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The older dataset: a folder, file or pattern.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The newer one.")],
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="K", help="Match records by this column; tells which of them changed, and how."
        ),
    ] = None,
    read: Annotated[
        bool, typer.Option("--read", help="Read all files, even where two manifests list the same checksums.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Say what changed between two datasets. Exit code 1 where something did."""
    from contextlib import nullcontext

    from rekord.cli.console import Progress
    from rekord.health.diff.run import compare_sides, open_side
    from rekord.health.finding import Report

    one, other = open_side(a), open_side(b)
    report = Report()
    began = time.perf_counter()
    watched = nullcontext() if as_json else Progress(report, files=len(one.files) + len(other.files))
    with watched:
        found = compare_sides(one, other, key=key, read=read, report=report)
    if as_json:
        console.say_json(found.to_dict())
    else:
        names = shown_below(a, one.files) | shown_below(b, other.files)
        for line in lines_of(found, names, report, time.perf_counter() - began):
            console.say(*line)
    if found.unreadable:
        return 3
    return 0 if found.same else 1


def lines_of(found: Diff, names: dict[str, str], report: Report, seconds: float) -> list[list[Piece]]:
    """A comparison as a person reads it."""
    amount = f"{byte_size(report.payload_bytes)} in {duration(seconds)}"
    remarks: list[list[Piece]] = [[("note", "dim"), f"  {clean(remark)}"] for remark in found.remarks]
    if found.same:
        records = count(found.counts["a"]["records"], "record")
        said = "the same, by their manifests" if found.by_manifests else "the same"
        return [[(said, "bold green"), f" · {records} · {amount}"], *remarks]
    lines: list[list[Piece]] = []
    for title, rows in (
        ("records", _records(found)),
        ("splits", _splits(found)),
        ("schema", _schema(found)),
        ("features", _features(found)),
        ("such as", _examples(found, names)),
    ):
        for number, row in enumerate(rows):
            lines.append([(f"{'' if number else title:<9}", "bold"), " ", *row])
    lines += remarks
    return [*lines, *_findings(found, names), [_verdict(found), f" · {amount}"]]


def _verdict(found: Diff) -> Piece:
    if found.complete:
        return ("A and B differ", "bold red")
    return ("incomplete: what could be read was compared", "bold red")


def _records(found: Diff) -> list[list[Piece]]:
    records = found.records
    total = f"{found.counts['a']['records']:,} → {count(found.counts['b']['records'], 'record')}"
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
    lines: list[list[Piece]] = [[" · ".join([total, *(parts or ["the same"])])]]
    if records.features:
        named = [f"{cut(clean(name))} in {number:,}" for name, number in records.features.items()]
        more = [f"{len(named) - LISTED:,} more"] if len(named) > LISTED else []
        lines.append([f"changed: {', '.join([*named[:LISTED], *more])}"])
    return lines


def _splits(found: Diff) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for name, (a, b) in found.splits.items():
        shown = cut(clean(name))
        if a is None and b is not None:
            lines.append([_MARKS["added"], f" {shown}  {count(b.records, 'record')}, only in B"])
        elif b is None and a is not None:
            lines.append([_MARKS["removed"], f" {shown}  {count(a.records, 'record')}, only in A"])
        elif a is not None and b is not None and a.records != b.records and len(found.splits) > 1:
            lines.append([_MARKS["changed"], f" {shown}  {a.records:,} → {count(b.records, 'record')}"])
    return _capped(lines)


def _schema(found: Diff) -> list[list[Piece]]:
    from rekord.health.diff.report import described

    schema = found.schema
    lines: list[list[Piece]] = []
    for word, columns in (("removed", schema.removed), ("added", schema.added)):
        for name, column in columns.items():
            lines.append([_MARKS[word], f" {cut(clean(name))}  {clean(described(column))}"])
    for name, change in schema.changed.items():
        lines.append([_MARKS["changed"], f" {cut(clean(name))}  {clean(', '.join(change.says))}"])
    return _capped(lines)


def _features(found: Diff) -> list[list[Piece]]:
    return _capped(
        [[f"{cut(clean(name))}  {clean(', '.join(shift.says))}"] for name, shift in found.features.items()]
    )


def _examples(found: Diff, names: dict[str, str]) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for change in ("changed", "removed", "added"):
        some = [example for example in found.records.examples if example.change == change]
        lines += [_example(example, names, found.key) for example in some[:_EXAMPLES]]
    return lines


def _example(example: Example, names: dict[str, str], key: str | None) -> list[Piece]:
    parts = [] if example.key is None else [f"{cut(clean(key or ''))} {clean(str(example.key))}"]
    # Of a changed record B's place will do: that is the one to look at, and JSON has both.
    place = example.b or example.a
    if place is not None:
        parts.append(_place(place, names))
    parts += [f"{cut(clean(name))}: {_value(a)} → {_value(b)}" for name, (a, b) in example.features.items()]
    return [_MARKS[example.change], f" {'  '.join(parts)}"]


def _place(place: RecordPlace, names: dict[str, str]) -> str:
    return f"{names.get(place.path, clean(place.path))} record {place.record:,}"


def _value(value: str | None) -> str:
    return "nothing" if value is None else clean(value)


def _findings(found: Diff, names: dict[str, str]) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for finding in found.findings[:LISTED]:
        path = finding.path or ""
        place = [names.get(path, clean(path))]
        if finding.record is not None:
            place.append(f"record {finding.record:,}")
        lines.append([(finding.code, "bold red"), f"  {'  '.join(place)}   {clean(finding.message)}"])
    more = len(found.findings) - LISTED + found.not_listed
    if more > 0:
        lines.append([f"{more:,} more that could not be read; rekord check lists them"])
    return lines


def _capped(lines: list[list[Piece]]) -> list[list[Piece]]:
    if len(lines) <= LISTED:
        return lines
    return [*lines[:LISTED], [f"… {len(lines) - LISTED:,} more; --json has them all"]]
