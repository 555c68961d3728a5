"""Tables of stored results: for the terminal, and RESULTS.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from floors import FLOORS, OTHER_FLOORS, TARGETS, Floor
from measure import Result
from results import Group, Table

LIMITS = Path(__file__).parent / "limits.md"
_BUSY = 3.0  # load on two cores from which other work must have run; the contenders themselves cause up to 2

_INTRO = """\
# Benchmark results

Written by `make bench` from `benchmarks/results`; do not edit. Contenders take turns, each in its own process, and a
ratio is the median of the ratios within each round. Files are in the page cache. Before timing, every reader must
produce the same sums and lengths as the others, and the output of every conversion is read back."""


def for_terminal(table: Table) -> str:
    """A table with aligned columns, and its floors."""
    lines = [_head(table), *(_cells(table, result) for result in table.results)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [f"{table.title} ({table.unit})"]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  " + "  ".join(cells).rstrip())
    for floor in FLOORS:
        if floor.table == table.title:
            work, *cells = _floor_cells(floor, {table.title: table})
            text.append(f"  {cells[-1]}: {work}: {', '.join(filter(None, cells[:-1]))}")
    return "\n".join([*text, *([f"  {table.note}"] if table.note else []), ""])


def render(groups: Sequence[Group], limits: str = "") -> str:
    """The whole of RESULTS.md."""
    tables = {table.title: table for group in groups for table in group.tables}
    parts = [_INTRO, "\n".join(f"- {line}" for line in _facts(groups)), _summary(tables, limits)]
    for group in groups:
        for table in group.tables:
            parts.append(_markdown(table) + f"\n\n{group.stamp.line}")
    return "\n\n".join(parts) + "\n"


def read_limits(text: str) -> dict[str, str]:
    """The explanations of missed floors, by the work of the floor: the sections of limits.md."""
    return {work: body.strip() for work, body in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.M | re.S)}


def _facts(groups: Sequence[Group]) -> list[str]:
    machines = dict.fromkeys(f"{group.stamp.machine}, Python {group.stamp.python}" for group in groups)
    results = [result for group in groups for table in group.tables for result in table.results]
    versions = dict.fromkeys(result.version for result in results if result.version)
    facts = [*machines, ", ".join(sorted(versions, key=str.lower))]
    busy = [group.name for group in groups if max(group.stamp.load) > _BUSY]
    if busy:
        facts.append(f"**Other work ran at the same time** as {', '.join(busy)}: figures by the clock are rough.")
    return facts


def _summary(tables: dict[str, Table], limits: str) -> str:
    verdicts = [floor.evaluate(tables)[0] for floor in FLOORS]
    counts = {verdict: verdicts.count(verdict) for verdict in ("goal reached", "pass", "MISS", "not measured")}
    parts = [
        "## Summary",
        f"**{counts['goal reached'] + counts['pass']} floors reached ({counts['goal reached']} with their goals), "
        f"{counts['MISS']} missed, {counts['not measured']} not measured.**",
        _floor_table(TARGETS, tables),
        "Other floors:",
        _floor_table(OTHER_FLOORS, tables),
    ]
    explained = read_limits(limits)
    missed = [floor.work for floor in FLOORS if floor.evaluate(tables)[0] == "MISS" and floor.work in explained]
    if missed:
        parts.append("### Limits")
        parts += [f"**{work}.** {explained[work]}" for work in missed]
    return "\n\n".join(parts)


def _floor_table(floors: Sequence[Floor], tables: dict[str, Table]) -> str:
    head = ["| work | measured | per CPU second | floor | goal | against | |", "|---|--:|--:|--:|--:|---|---|"]
    return "\n".join(head + ["| " + " | ".join(_floor_cells(floor, tables)) + " |" for floor in floors])


def _floor_cells(floor: Floor, tables: dict[str, Table]) -> tuple[str, ...]:
    verdict, measured = floor.evaluate(tables)
    bounds = (floor.bound(floor.limit), floor.bound(floor.goal))
    if measured is None:
        return (floor.work, "–", "", *bounds, "", verdict)
    value = f"{_figure(measured.value)} {floor.unit}"
    cpu_value = "" if measured.cpu_value is None else _figure(measured.cpu_value)
    return (floor.work, value, cpu_value, *bounds, measured.against, verdict)


def _markdown(table: Table) -> str:
    lines = [
        f"## {table.title}",
        "",
        "| " + " | ".join((table.unit, *_head(table)[1:])) + " |",
        "|---" + "|--:" * 4 + "|",
    ]
    lines += ["| " + " | ".join(_cells(table, result)) + " |" for result in table.results]
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def _head(table: Table) -> tuple[str, ...]:
    if table.reference is None:
        return ("", "median", "min – max", "", "")
    return ("", "median", "min – max", "ratio", "ratio per CPU second")


def _cells(table: Table, result: Result) -> tuple[str, ...]:
    if result.failure:
        return (result.label, "–", _reason(result.failure), "", "")
    values = table.values(result)
    base = table.result(table.reference) if table.reference else None
    ratios = [result.ratio(base, cpu=cpu) if base else None for cpu in (False, True)]
    return (
        result.label,
        _figure(median(values)),
        f"{_figure(min(values))} – {_figure(max(values))}",
        *("" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
    )


def _reason(failure: str) -> str:
    """Why there is no figure, short and without this machine's paths."""
    if failure == "not installable here":
        return failure
    return "not available: " + re.sub(r"(/[\w.~+-]+){2,}", "…", failure.split("\n")[0])[:90].replace("|", "/")


def _figure(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e3:
        return f"{value / 1e3:.1f} k"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
