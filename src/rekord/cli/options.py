"""The options and arguments that several verbs have alike, each declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli import console
from rekord.cli.console import make_integer_parser

if TYPE_CHECKING:
    from rekord.schema import Schema


def integer_option(option: str, says: str) -> Any:
    """An option that takes a whole number."""
    return typer.Option(option, metavar="N", help=says, parser=make_integer_parser(option))


# What is read.

PathArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="PATH", help="A dataset: a folder, a file or a pattern.", show_default=False),
]
InputArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="IN", help="A dataset: a folder, a file or a pattern.", show_default=False)
]
SchemaOption: TypeAlias = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="A schema's JSON: what the records hold.")
]


class PayloadForm(StrEnum):
    """What payloads can be taken for."""

    EXAMPLE = "example"
    SEQUENCE = "sequence"
    BYTES = "bytes"


KindOption: TypeAlias = Annotated[
    PayloadForm | None,
    typer.Option(
        "--kind",
        metavar="example|sequence|bytes",
        help="What payloads are, where they mislead; bytes: as they are.",
    ),
]
SplitsOption: TypeAlias = Annotated[
    str | None, typer.Option("--split", metavar="A,B", help="Only of these splits.")
]
MapOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--map", metavar="FILE.py:FUNC", help="Makes of a row another one, several or none."),
]
VerifyOption: TypeAlias = Annotated[
    str, typer.Option("--verify", metavar="full|headers", help="How closely images are looked at.")
]

# What is made of it.

OutputArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="OUT", help="The folder to be made.", show_default=False)
]
StratifyOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--stratify", metavar="KEY", help="Exact ratios within each class of a column."),
]
ShardSizeOption: TypeAlias = Annotated[
    str, typer.Option("--shard-size", metavar="SIZE", help="Of a shard, about.")
]
ShardsOption: TypeAlias = Annotated[int | None, integer_option("--shards", "So many a split instead.")]
CompressionOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--compression", metavar="NAME", help="none, gzip or zlib. Default: as IN has it."),
]
FormatOption: TypeAlias = Annotated[
    str | None, typer.Option("--format", metavar="tfds", help="Also what tensorflow_datasets opens.")
]

# How it goes.

WorkersOption: TypeAlias = Annotated[
    int | None, integer_option("--workers", "How many work at once. Default: one a core.")
]
DryRunOption: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Only say what would be written.")]
FreshOption: TypeAlias = Annotated[
    bool, typer.Option("--fresh", help="Start over, in place of what is there.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def print_opaque_payload_note(schema: Schema) -> None:
    """Tell a person that payloads were recognised as no Examples, and are taken as they are."""
    if schema.kind == "bytes" and schema.evidence is not None:
        name, seen = next(iter(schema.evidence["features"].items()))
        if "message" in seen:
            console.print_status(f"note: payloads are {seen['message']}; each is one value, `{name}`")
