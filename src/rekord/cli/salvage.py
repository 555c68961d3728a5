"""`rekord salvage`: copy every intact record, and list the gaps."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, cast

from rekord.cli import console
from rekord.cli.console import StyledText, escape_controls
from rekord.cli.options import InputArgument, JsonOption, argument
from rekord.report.formatting import format_count

if TYPE_CHECKING:
    from rekord.health.finding import Report
    from rekord.health.salvage import Gap, SalvageReport

MAX_LISTED_GAPS = 100
"""Gaps that get a line each; JSON has them all."""


def salvage(
    source: InputArgument,
    target: Annotated[str, argument("OUT", "File to create if IN is a file, otherwise a folder to create.")],
    as_json: JsonOption = False,
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
    console.print_lines(_format_summary(report))


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


def _format_summary(report: SalvageReport) -> list[list[StyledText]]:
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
