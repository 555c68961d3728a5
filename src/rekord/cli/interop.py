"""`rekord adopt`, `export`, `index` and `reader`: datasets that other programs wrote, or read."""

from __future__ import annotations

import shlex
import time
from enum import StrEnum
from typing import Annotated

from rekord.cli import console, write_options
from rekord.cli import options as shared
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_bad_data, split_rows
from rekord.cli.options import JsonOption, Panel, PathArgument, argument, flag_option, output_option, text_option
from rekord.report.formatting import format_byte_size, format_count, format_duration

_ADOPT_ERROR_CODES = ("S126", "X588")


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
    for line in console.align_columns(split_rows(manifest), "<>><"):
        console.print_line(f"  {line}")
    origin = result.schema_origin
    columns = format_count(len(result.schema), "column")
    console.print_line(f"schema: {columns}, {origin if origin in ('declared', 'inferred') else f'from {origin}'}")
    for note in result.notes:
        console.print_status(f"note: {escape_controls(note)}")
    console.print_line(f"next: rekord check {shlex.quote(place)}")
    return 0


_EXPORT_ERROR_CODES = ("X560", "X561", "X562")


class LabelForm(StrEnum):
    """How text formats write classes."""

    IDS = "ids"
    NAMES = "names"


class ExportFormat(StrEnum):
    """Formats to export to."""

    PARQUET = "parquet"
    ARROW = "arrow"
    ARROW_STREAM = "arrow-stream"
    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    WEBDATASET = "webdataset"
    IMAGES = "images"
    COCO = "coco"
    VOC = "voc"
    TFDS = "tfds"


def export(
    path: shared.PathArgument,
    target: Annotated[
        str,
        argument(
            "OUT",
            "File (.parquet, .arrow, .csv, .tsv, .jsonl, .tar, .csv.gz or .jsonl.gz) or folder to create.",
        ),
    ],
    format: Annotated[
        ExportFormat | None,
        text_option(
            "--format",
            "FORMAT",
            "Format of a folder: images, coco, voc or tfds; or one file per split: parquet, csv, webdataset, …",
        ),
    ] = None,
    split: shared.SplitsOption = None,
    columns: Annotated[
        str | None, text_option("--columns", "A,B", "Export only these columns, in this order.")
    ] = None,
    limit: Annotated[
        int | None, text_option("--limit", "N", "Export only the first N records of each split.")
    ] = None,
    labels: Annotated[
        LabelForm | None,
        text_option("--labels", "ids|names", "Write classes in text formats as ids (default) or names."),
    ] = None,
    shard_size: Annotated[
        str | None, text_option("--shard-size", "SIZE", "Split tar files at this size: OUT-000000.tar, …")
    ] = None,
    schema: shared.SchemaOption = None,
    kind: shared.KindOption = None,
    overwrite: Annotated[bool, flag_option("--overwrite", "Overwrite OUT, if it is a file.")] = False,
    as_json: shared.JsonOption = False,
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
        dataset = open_dataset(path, schema=schema, kind=None if kind is None else kind.value)
        shared.print_opaque_payload_note(dataset.schema)
        requested = ExportOptions(
            format=None if format is None else format.value,
            split=write_options.parse_optional_names(split),
            columns=write_options.parse_optional_names(columns),
            limit=limit,
            labels=(labels or LabelForm.IDS).value,
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


class IndexFormat(StrEnum):
    """The reader of the index files."""

    REKORD = "rekord"
    DALI = "dali"
    VAHIDK = "vahidk"


def index(
    path: shared.PathArgument,
    format: Annotated[
        IndexFormat | None,
        text_option("--format", "rekord|dali|vahidk", "Reader of the index files. Default: rekord."),
    ] = None,
    out: Annotated[
        str | None,
        output_option(
            "OUT", "Folder of the index files (default: index-dali or index-vahidk in PATH); for one file, its index."
        ),
    ] = None,
    as_json: shared.JsonOption = False,
) -> int:
    """Write index files, for random access to records."""
    from rekord.verbs.index import index as write_index

    def print_file(target: str, records: int, wrote: bool) -> None:
        console.print_line(
            f"{escape_controls(target)}  {format_count(records, 'record')}" + ("" if wrote else "  (unchanged)")
        )

    report = write_index(
        path, format=(format or IndexFormat.REKORD).value, out=out, on_file=None if as_json else print_file
    )
    if as_json:
        console.print_json(report.to_dict())
        return 0
    console.print_status(
        f"wrote {format_count(len(report.written), 'index file')} for {format_count(report.files, 'file')}"
        f" · {format_count(report.records, 'record')}"
    )
    return 0


class Framework(StrEnum):
    """Frameworks to generate code for."""

    TENSORFLOW = "tensorflow"
    TORCH = "torch"
    JAX = "jax"
    DALI = "dali"
    SPARK = "spark"


def reader(
    path: PathArgument,
    framework: Annotated[
        Framework, text_option("--for", "tensorflow|torch|jax|dali|spark", "Framework to generate code for.")
    ],
    as_json: JsonOption = False,
) -> int:
    """Generate code that reads a dataset, with its files, keys, shapes, compression and classes."""
    from rekord.dataset.dataset import open as open_dataset
    from rekord.feeds.codegen import generate_reader_code

    code = generate_reader_code(open_dataset(path), path, framework.value)
    if as_json:
        console.print_json({"dataset": path, "for": framework.value, "code": code})
        return 0
    for line in code.splitlines():
        console.print_line(line)
    return 0
