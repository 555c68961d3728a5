"""`rekord export`: records as Parquet, CSV, JSON Lines, tar files, images and more."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

from rekord.cli import console, write_options
from rekord.cli import options as shared
from rekord.cli.console import escape_controls
from rekord.cli.exit_handling import report_bad_data
from rekord.cli.options import argument, flag_option, text_option
from rekord.report.formatting import format_byte_size, format_count, format_duration

_DATA_ERROR_CODES = ("X560", "X561", "X562")


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
        report_bad_data(_DATA_ERROR_CODES, as_json=as_json, left="nothing was written"),
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
