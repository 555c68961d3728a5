"""`rekord index`: index files for rekord, DALI or vahidk's tfrecord."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rekord.cli import console
from rekord.cli.console import escape_controls
from rekord.cli.options import argument, flag_option, text_option
from rekord.report.formatting import format_count


class IndexFormat(StrEnum):
    """Who is to read the index files."""

    REKORD = "rekord"
    DALI = "dali"
    VAHIDK = "vahidk"


def index(
    path: Annotated[str, argument("PATH", "A record file, a folder or a pattern.")],
    format: Annotated[
        IndexFormat | None,
        text_option("--format", "rekord|dali|vahidk", "Who is to read the index files: rekord, unless said."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Folder for the index files [default: index-dali or index-vahidk in PATH]; for one file, its index.",
        ),
    ] = None,
    as_json: Annotated[bool, flag_option("--json", "Print one JSON document.")] = False,
) -> int:
    """Write down where records begin. With such an index any record can be read at once."""
    from rekord.verbs.index import index as write_index

    def say(target: str, records: int, wrote: bool) -> None:
        console.print_line(
            f"{escape_controls(target)}  {format_count(records, 'record')}" + ("" if wrote else "  (as it was)")
        )

    report = write_index(
        path, format=(format or IndexFormat.REKORD).value, out=output, on_file=None if as_json else say
    )
    if as_json:
        console.print_json(report.to_dict())
        return 0
    console.print_status(
        f"wrote {format_count(len(report.written), 'index file')} of {format_count(report.files, 'file')}"
        f" · {format_count(report.records, 'record')}"
    )
    return 0
