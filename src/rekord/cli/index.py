"""`rekord index`: index files for rekord, DALI or vahidk's tfrecord."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from rekord.cli import console
from rekord.cli import options as shared
from rekord.cli.console import escape_controls
from rekord.cli.options import output_option, text_option
from rekord.report.formatting import format_count


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
