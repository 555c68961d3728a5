"""`rekord adopt`, `export`, `index` and `reader`: datasets that other programs wrote, or read."""

from __future__ import annotations

import shlex
import time
from typing import Literal, TypeAlias

from rekord.cli import console, write_options
from rekord.cli import options as shared
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_bad_data, split_rows
from rekord.cli.options import (
    JSON_OPTION,
    PATH_ARGUMENT,
    Panel,
    argument,
    choice_option,
    flag_option,
    output_option,
    text_option,
)
from rekord.report.formatting import format_byte_size, format_count, format_duration

_ADOPT_ERROR_CODES = ("S126", "X588")


@shared.with_options
def adopt(
    path: str = argument("PATH", "Folder with record files."),
    schema: str | None = shared.SCHEMA_OPTION,
    label: str | None = text_option("--label", "KEY", "Integer column that holds class ids.", Panel.COLUMNS),
    label_map: str | None = text_option(
        "--label-map", "FILE", "Class names: a .pbtxt label map, or one name per line from id 0.", Panel.COLUMNS
    ),
    index: str | None = text_option(
        "--index", "A,B", "Columns to add to the index; labels are always in it.", Panel.OUTPUT
    ),
    kind: shared.PayloadForm | None = shared.KIND_OPTION,
    allow_missing: bool = flag_option(
        "--allow-missing", "Adopt a set of -of-N shards that is incomplete.", Panel.SOURCE
    ),
    workers: int | None = shared.WORKERS_OPTION,
    rebuild: bool = flag_option("--rebuild", "Replace an existing manifest and its indexes.", Panel.RUN),
    as_json: bool = shared.JSON_OPTION,
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
        kind=kind,
        allow_missing=allow_missing,
        workers=workers,
        rebuild=rebuild,
    )
    with report_bad_data(_ADOPT_ERROR_CODES, as_json=as_json, left="nothing was written"):
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
    console.print_table(split_rows(manifest), "<>><")
    origin = result.schema_origin
    columns = format_count(len(result.schema), "column")
    console.print_line(f"schema: {columns}, {origin if origin in ('declared', 'inferred') else f'from {origin}'}")
    for note in result.notes:
        console.print_status(f"note: {escape_controls(note)}")
    console.print_line(f"next: rekord check {shlex.quote(place)}")
    return 0


_EXPORT_ERROR_CODES = ("X560", "X561", "X562")


LabelForm: TypeAlias = Literal["ids", "names"]
"""How text formats write classes."""


@shared.with_options
def export(
    path: str = shared.PATH_ARGUMENT,
    target: str = argument(
        "OUT", "File (.parquet, .arrow, .csv, .tsv, .jsonl, .tar, .csv.gz or .jsonl.gz) or folder to create."
    ),
    format: shared.ExportFormat | None = choice_option(
        "--format",
        shared.ExportFormat,
        "Format of a folder: images, coco, voc or tfds; or one file per split: parquet, csv, webdataset, …",
        metavar="FORMAT",
    ),
    split: str | None = shared.SPLITS_OPTION,
    columns: str | None = text_option("--columns", "A,B", "Export only these columns, in this order."),
    limit: int | None = text_option("--limit", "N", "Export only the first N records of each split."),
    labels: LabelForm | None = choice_option(
        "--labels", LabelForm, "Write classes in text formats as ids (default) or names."
    ),
    shard_size: str | None = text_option("--shard-size", "SIZE", "Split tar files at this size: OUT-000000.tar, …"),
    schema: str | None = shared.SCHEMA_OPTION,
    kind: shared.PayloadForm | None = shared.KIND_OPTION,
    overwrite: bool = flag_option("--overwrite", "Overwrite OUT, if it is a file."),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Export records to Parquet, CSV, images and other formats. OUT appears only when it is complete.

    The exit code is 1 if a record is damaged, or contains a value that the format cannot hold.
    """
    from rekord.dataset.dataset import open as open_dataset
    from rekord.verbs.export.export import export_dataset
    from rekord.verbs.options import ExportOptions

    began = time.monotonic()
    with (
        report_bad_data(_EXPORT_ERROR_CODES, as_json=as_json, left="nothing was written"),
        _ExportProgress() as progress,
    ):
        dataset = open_dataset(path, schema=schema, kind=kind)
        shared.print_opaque_payload_note(dataset.schema)
        requested = ExportOptions(
            format=format,
            split=write_options.parse_optional_names(split),
            columns=write_options.parse_optional_names(columns),
            limit=limit,
            labels=labels or "ids",
            shard_size=shard_size,
            overwrite=overwrite,
        )
        report = export_dataset(dataset, target, requested, on_records=progress.add)
    seconds = time.monotonic() - began
    if as_json:
        console.print_json({**report.to_dict(), "seconds": round(seconds, 3)})
        return 0
    parts = ", ".join(f"{escape_controls(name)} {records:,}" for name, records in report.splits.items())
    splits = f" ({parts})" if len(report.splits) > 1 else ""
    console.print_line(
        f"{escape_controls(report.out)}: {format_count(report.records, 'record')}{splits} in "
        f"{format_count(report.files, 'file')},"
        f" {format_byte_size(report.n_bytes)}, in {format_duration(seconds)}"
    )
    if report.left_out:
        shown = ", ".join(escape_controls(name) for name in report.left_out[:8])
        more = f" and {len(report.left_out) - 8} more" if len(report.left_out) > 8 else ""
        console.print_status(f"left out: {shown}{more} ({report.format} cannot hold them)")
    return 0


class _ExportProgress(console.LiveLine):
    def __init__(self) -> None:
        super().__init__()
        self._records = 0

    def add(self, records: int) -> None:
        self._records += records

    def _text(self) -> str:
        return f"{format_count(self._records, 'record')} · {format_duration(time.monotonic() - self._began)}"


IndexFormat: TypeAlias = Literal["rekord", "dali", "vahidk"]
"""The reader of index files."""


@shared.with_options
def index(
    path: str = shared.PATH_ARGUMENT,
    format: IndexFormat | None = choice_option(
        "--format", IndexFormat, "Reader of the index files. Default: rekord."
    ),
    out: str | None = output_option(
        "OUT", "Folder of the index files (default: index-dali or index-vahidk in PATH); for one file, its index."
    ),
    as_json: bool = shared.JSON_OPTION,
) -> int:
    """Write index files, for random access to records."""
    from rekord.verbs.index import index as write_index

    def print_file(target: str, records: int, wrote: bool) -> None:
        console.print_line(
            f"{escape_controls(target)}  {format_count(records, 'record')}" + ("" if wrote else "  (unchanged)")
        )

    report = write_index(path, format=format or "rekord", out=out, on_file=None if as_json else print_file)
    if as_json:
        console.print_json(report.to_dict())
        return 0
    console.print_status(
        f"wrote {format_count(len(report.written), 'index file')} for {format_count(report.files, 'file')}"
        f" · {format_count(report.records, 'record')}"
    )
    return 0


Framework: TypeAlias = Literal["tensorflow", "torch", "jax", "dali", "spark"]
"""Frameworks to generate code for."""


@shared.with_options
def reader(
    path: str = PATH_ARGUMENT,
    framework: Framework = choice_option(
        "--for", Framework, "Framework to generate code for.", default=shared.REQUIRED
    ),
    as_json: bool = JSON_OPTION,
) -> int:
    """Generate code that reads a dataset, with its files, keys, shapes, compression and classes."""
    from rekord.dataset.dataset import open as open_dataset
    from rekord.feeds.codegen import generate_reader_code

    code = generate_reader_code(open_dataset(path), path, framework)
    if as_json:
        console.print_json({"dataset": path, "for": framework, "code": code})
        return 0
    for line in code.splitlines():
        console.print_line(line)
    return 0
