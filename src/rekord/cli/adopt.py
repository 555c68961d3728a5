"""`rekord adopt`: a manifest, class names and indexes for existing shards."""

from __future__ import annotations

import shlex
import time
from typing import Annotated

from rekord.cli import console, write_options
from rekord.cli import options as shared
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_bad_data, split_rows
from rekord.cli.options import Panel, argument, flag_option, text_option
from rekord.report.formatting import format_byte_size, format_count, format_duration

_DATA_ERROR_CODES = ("S126", "X588")


def adopt(
    path: Annotated[str, argument("PATH", "Folder with record files.")],
    schema: shared.SchemaOption = None,
    label: Annotated[
        str | None, text_option("--label", "KEY", "Integer column that holds class ids.", Panel.COLUMNS)
    ] = None,
    label_map: Annotated[
        str | None,
        text_option(
            "--label-map", "FILE", "Class names: a .pbtxt label map, or one name per line from id 0.", Panel.COLUMNS
        ),
    ] = None,
    index: Annotated[
        str | None,
        text_option("--index", "A,B", "Columns to add to the index; labels are always in it.", Panel.OUTPUT),
    ] = None,
    kind: shared.KindOption = None,
    allow_missing: Annotated[
        bool, flag_option("--allow-missing", "Adopt a set of -of-N shards that is incomplete.", Panel.SOURCE)
    ] = False,
    workers: shared.WorkersOption = None,
    rebuild: Annotated[
        bool, flag_option("--rebuild", "Replace an existing manifest and its indexes.", Panel.RUN)
    ] = False,
    as_json: shared.JsonOption = False,
) -> int:
    """Add a manifest and indexes to existing shards.

    Reads and verifies every record. The shards are neither copied nor changed.
    """
    from rekord.verbs.adopt import AdoptOptions, adopt_shards

    began = time.perf_counter()
    requested = AdoptOptions(
        schema=schema,
        label=label,
        label_map=label_map,
        index=write_options.parse_names(index),
        kind=kind.value if kind else None,
        allow_missing=allow_missing,
        workers=workers,
        rebuild=rebuild,
    )
    with report_bad_data(_DATA_ERROR_CODES, as_json=as_json, left="nothing was written"):
        result = adopt_shards(path, requested, progress=True)
    seconds = time.perf_counter() - began
    if as_json:
        console.print_json({**result.to_dict(), "seconds": round(seconds, 3)})
        return 0
    manifest = result.manifest
    records = sum(split.records for split in manifest.splits.values())
    total_bytes = sum(sum(split.shards.bytes) for split in manifest.splits.values())
    resumed = (
        f", {format_count(result.resumed_shards, 'shard')} read by an earlier run" if result.resumed_shards else ""
    )
    place = escape_controls(path)
    console.print_line(
        f"{place}: {format_count(records, 'record')}, {format_byte_size(total_bytes)}, "
        f"in {format_duration(seconds)}{resumed}"
    )
    for line in console.align_columns(split_rows(manifest), "<>><"):
        console.print_line(f"  {line}")
    origin = result.schema_origin
    columns = format_count(len(result.schema), "column")
    console.print_line(f"schema: {columns}, {origin if origin in ('declared', 'inferred') else f'from {origin}'}")
    for note in result.notes:
        console.print_status(f"note: {escape_controls(note)}")
    console.print_line(f"next: rekord check {shlex.quote(place)}")
    return 0
