"""What the measurements say: tables for the terminal and for RESULTS.md."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from measure import Result

BUSY = 1.5  # load a core from which a run is no quiet one: the contenders themselves make 1


@dataclass(frozen=True, slots=True)
class Floor:
    """A figure that we hold ourselves to, and whether it was reached."""

    text: str
    met: bool | None  # None: not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of a table. `values` are in the table's unit; empty where there is nothing but a `failure`."""

    label: str
    values: Sequence[float] = ()
    ratio: float | None = None
    cpu_ratio: float | None = None
    floor: Floor | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One measurement of all contenders."""

    title: str
    unit: str
    rows: Sequence[Row]
    note: str = ""
    against: str = "TF"  # whose rate is 1 in the columns of ratios

    @property
    def head(self) -> tuple[str, ...]:
        """What stands above the columns."""
        ratios = (f"× {self.against}", f"× {self.against}, per CPU second")
        return ("", "median", "min – max", *ratios, "floor", "")


def rate_rows(results: Sequence[Result], reference: str, *, scale: float = 1.0) -> list[Row]:
    """Rates and their ratios to one contender, without floors."""
    base = next((result for result in results if result.label == reference), None)
    return [
        Row(
            label=result.label,
            values=[sample.rate * scale for sample in result.samples],
            ratio=result.ratio(base) if base else None,
            cpu_ratio=result.ratio(base, cpu=True) if base else None,
            failure=result.failure,
        )
        for result in results
    ]


def flat_rows(results: Sequence[Result]) -> list[Row]:
    """Peak memory in MB on some records and on twice as many: flat is at most 1.1 times as much, and 16 MB."""
    rows = [
        Row(label=result.label, values=[peak / 1e6 for peak in result.peak_bytes], failure=result.failure)
        for result in results
    ]
    if any(row.failure for row in rows):
        rows[1] = replace(rows[1], floor=Floor("flat", None))
        return rows
    half, whole = (median(row.values) for row in rows)
    most = 1.1 * half + 16
    rows[1] = replace(rows[1], floor=Floor(f"≤ {most:.0f} to be flat", whole <= most))
    return rows


def for_terminal(table: Table) -> str:
    """Aligned columns."""
    lines = [table.head, *(_cells(row) for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.head))]
    text = [f"{table.title} ({table.unit})"]
    for line in lines:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:5], widths[1:5], strict=True)]
        cells += [cell.ljust(width) for cell, width in zip(line[5:], widths[5:], strict=True)]
        text.append("  " + "  ".join(cells).rstrip())
    return "\n".join([*text, *([f"  {table.note}"] if table.note else []), ""])


def as_markdown(tables: Sequence[Table], versions: dict[str, str], about: Sequence[str]) -> str:
    """The whole of RESULTS.md."""
    verdicts = [row.floor.met for table in tables for row in table.rows if row.floor]
    parts = [
        "# Benchmark results",
        "Written by `make bench`; do not edit. Ratios are what counts: contenders run in turn, each in a "
        "process of its own, and a ratio is taken within each round, so that other load on the machine falls "
        "on all of them alike. Files are in the page cache. Every reader must give the same sums and lengths "
        "for the first batch before it is timed; what a whole conversion wrote is read back, "
        "and its first rows must be those of the others.",
        "\n".join(f"- {line}" for line in [*_machine(), _versions(versions), *about]),
        f"**{verdicts.count(True)} floors reached, {verdicts.count(False)} missed, "
        f"{verdicts.count(None)} not measured.**",
        *(_markdown_table(table) for table in tables),
    ]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    lines = [f"## {table.title}", ""]
    lines.append("| " + " | ".join((table.unit, *table.head[1:])) + " |")
    lines.append("|---" + "|--:" * 4 + "|---|---|")
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in table.rows]
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def _cells(row: Row) -> tuple[str, ...]:
    if row.failure:
        return (row.label, "–", "–", "–", "–", row.floor.text if row.floor else "", _reason(row.failure))
    return (
        row.label,
        _figure(median(row.values)),
        f"{_figure(min(row.values))} – {_figure(max(row.values))}",
        _times(row.ratio),
        _times(row.cpu_ratio),
        row.floor.text if row.floor else "",
        {True: "pass", False: "MISS", None: ""}[row.floor.met] if row.floor else "",
    )


def _reason(failure: str) -> str:
    """Why there is no figure, short and without this machine's paths."""
    if failure == "not installable here":
        return failure
    return "not available: " + re.sub(r"(/[\w.~+-]+){2,}", "…", failure)[:90].replace("|", "/")


def _figure(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    if value >= 1e3:
        return f"{value / 1e3:.1f} k"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def load_line(loads: Sequence[float]) -> str:
    """How busy the machine was, seen after each table."""
    line = f"load average {min(loads):.1f} – {max(loads):.1f} during the run"
    if max(loads) <= BUSY * _cores():
        return line
    return (
        f"{line}: **other work ran beside it**, so that figures and ratios by the clock are rough, those of "
        "2 threads most of all; ratios per CPU second suffer least"
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _machine() -> list[str]:
    cpu = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    return [
        f"{datetime.now(UTC):%Y-%m-%d}",
        f"{cpu[1] if cpu else platform.machine()}, {_cores()} cores, "
        + (f"{int(memory[1]) / 2**20:.0f} GiB" if memory else ""),
    ]


def _versions(versions: dict[str, str]) -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{k} {v}" for k, v in versions.items())])


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
