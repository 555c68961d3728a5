"""`rekord sync` and `rekord trace`: a dataset and the raw data that it comes from."""

from __future__ import annotations

import shlex
import time

from rekord.cli import console as output
from rekord.cli import options as shared
from rekord.cli import write_options as options
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_resumable, split_rows
from rekord.cli.options import Panel, argument, integer_option, text_option
from rekord.report.formatting import format_count, format_duration

_DATA_ERROR_CODES = ("X510", "X514")
_MOST_LINES = 20


@shared.with_options
def sync(
    source: str = argument("SOURCE", "Raw data that DATASET was written from, as it is now."),
    dataset: str = argument("DATASET", "Dataset to bring up to date, written by rekord write."),
    to: str | None = text_option(
        "--to", "OUT", "Write a new dataset here, and leave DATASET as it is.", Panel.OUTPUT
    ),
    map_: str | None = shared.MAP_OPTION,
    workers: int | None = shared.WORKERS_OPTION,
    fresh: bool = shared.FRESH_OPTION,
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Update a dataset after its raw data changed. Only files that were added or changed are converted again.

    The result is what `rekord write` would write now, with the same options. Pass --map again if it was used. Run
    the same command again to resume.
    """
    from rekord.verbs.sync import sync_dataset

    began = time.perf_counter()
    given = {"map": options.load_function(map_)}
    left = "nothing was published, and DATASET is unchanged"
    with report_resumable(_DATA_ERROR_CODES, as_json=as_json, left=left):
        done = sync_dataset(
            source, dataset, to, given, workers=workers, fresh=fresh, progress=output.shows_progress()
        )
    seconds = time.perf_counter() - began
    if done.left is not None:
        output.print_status(f"files that rekord did not write were kept in {escape_controls(done.left)}")
    parts = done.manifest.splits
    records, counts = sum(part.records for part in parts.values()), done.reused
    if as_json:
        output.print_json(
            {
                "dataset": done.dataset,
                "splits": {
                    name: {"records": part.records, "shards": len(part.shards.records)}
                    for name, part in parts.items()
                },
                "records": records,
                "copied_records": counts.records,
                "copied_files": counts.copied,
                "converted_files": counts.converted,
                "everything": done.everything,
                "nothing_to_do": done.nothing_to_do,
                "rejects": done.rejects,
                "seconds": round(seconds, 3),
            }
        )
        return 0
    place = escape_controls(done.dataset)
    if done.nothing_to_do:
        output.print_line(f"nothing to do: {place} is up to date, {format_count(records, 'record')}")
        return 0
    output.print_line(f"{place}: {format_count(records, 'record')}, in {format_duration(seconds)}")
    output.print_table(split_rows(done.manifest), "<>>>")
    if done.everything is not None:
        output.print_line(f"every file was converted: {escape_controls(done.everything)}")
    elif counts.copied or counts.converted:
        output.print_line(
            f"{format_count(counts.converted, 'file')} converted, {format_count(counts.records, 'record')} of "
            f"{format_count(counts.copied, 'file')} copied"
        )
    if done.rejects is not None:
        output.print_line(f"bad rows: {escape_controls(done.rejects)}")
    output.print_next(f"next: rekord check {shlex.quote(place)}")
    return 0


@shared.with_options
def trace(
    path: str = argument("PATH", "Dataset, written by rekord write."),
    record: int | None = integer_option("--record", "Number of a record in the split; negative from the end."),
    split: str | None = text_option("--split", "NAME", "Split of the record."),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Show which file and row of the raw data a record was made from.

    Without --record: the files, with the number of records from each.
    """
    from rekord.verbs.trace import OriginReader

    reader = OriginReader(path)
    if record is not None:
        origin = reader.origin(reader.split_name(split), record)
        if as_json:
            output.print_json(origin.to_dict())
        else:
            output.print_line(
                f"{escape_controls(origin.split)}, record {origin.record:,}: {escape_controls(str(origin))}"
            )
        return 0
    names = list(reader.manifest.splits) if split is None else [reader.split_name(split)]
    found = {name: reader.count_files(name) for name in names}
    if as_json:
        output.print_json({"splits": {name: dict(counts.most_common()) for name, counts in found.items()}})
        return 0
    for name, counts in found.items():
        total = sum(counts.values())
        output.print_line(
            f"{escape_controls(name)}: {format_count(total, 'record')} from {format_count(len(counts), 'file')}"
        )
        rows = [
            [escape_controls(file) or "rows without a file", f"{n:,}"] for file, n in counts.most_common(_MOST_LINES)
        ]
        output.print_table(rows, "<>")
        if len(counts) > _MOST_LINES:
            output.print_line(f"  … and {len(counts) - _MOST_LINES:,} more")
    return 0
