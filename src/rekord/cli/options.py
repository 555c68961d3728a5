"""The options and arguments that several verbs have alike, each declared once."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli import console
from rekord.cli.console import make_integer_parser

if TYPE_CHECKING:
    from rekord.schema import Schema


def argument(metavar: str, says: str) -> Any:
    """What stands without an option."""
    return typer.Argument(metavar=metavar, help=says, show_default=False)


def text_option(option: str, metavar: str, says: str) -> Any:
    """An option that takes a text."""
    return typer.Option(option, metavar=metavar, help=says)


def flag_option(option: str, says: str) -> Any:
    """An option without a value."""
    return typer.Option(option, help=says)


def integer_option(option: str, says: str, *, do: str | None = None) -> Any:
    """An option that takes a whole number."""
    return typer.Option(option, metavar="N", help=says, parser=make_integer_parser(option, do=do))


# What is read.

PathArgument: TypeAlias = Annotated[str, argument("PATH", "A dataset: a folder, a file or a pattern.")]
InputArgument: TypeAlias = Annotated[str, argument("IN", "A dataset: a folder, a file or a pattern.")]
SchemaOption: TypeAlias = Annotated[
    str | None, text_option("--schema", "FILE", "A schema's JSON: what the records hold.")
]


class PayloadForm(StrEnum):
    """What payloads can be taken for."""

    EXAMPLE = "example"
    SEQUENCE = "sequence"
    BYTES = "bytes"


KindOption: TypeAlias = Annotated[
    PayloadForm | None,
    text_option("--kind", "example|sequence|bytes", "What payloads are, where they mislead; bytes: as they are."),
]
SplitsOption: TypeAlias = Annotated[str | None, text_option("--split", "A,B", "Only of these splits.")]
MapOption: TypeAlias = Annotated[
    str | None, text_option("--map", "FILE.py:FUNC", "Makes of a row another one, several or none.")
]
VerifyOption: TypeAlias = Annotated[str, text_option("--verify", "full|headers", "How closely images are looked at.")]

# What is made of it.

OutputArgument: TypeAlias = Annotated[str, argument("OUT", "The folder to be made.")]
StratifyOption: TypeAlias = Annotated[
    str | None, text_option("--stratify", "KEY", "Exact ratios within each class of a column.")
]
ShardSizeOption: TypeAlias = Annotated[str, text_option("--shard-size", "SIZE", "Of a shard, about.")]
ShardsOption: TypeAlias = Annotated[int | None, integer_option("--shards", "So many a split instead.")]
CompressionOption: TypeAlias = Annotated[
    str | None, text_option("--compression", "NAME", "none, gzip or zlib. Default: as IN has it.")
]
FormatOption: TypeAlias = Annotated[
    str | None, text_option("--format", "tfds", "Also what tensorflow_datasets opens.")
]

# How it goes.

WorkersOption: TypeAlias = Annotated[
    int | None, integer_option("--workers", "How many work at once. Default: one a core.")
]
DryRunOption: TypeAlias = Annotated[bool, flag_option("--dry-run", "Only say what would be written.")]
FreshOption: TypeAlias = Annotated[bool, flag_option("--fresh", "Start over, in place of what is there.")]
JsonOption: TypeAlias = Annotated[bool, flag_option("--json", "Print one JSON document.")]


def print_opaque_payload_note(schema: Schema) -> None:
    """Tell a person that payloads were recognised as no Examples, and are taken as they are."""
    if schema.kind == "bytes" and schema.evidence is not None:
        name, seen = next(iter(schema.evidence["features"].items()))
        if "message" in seen:
            console.print_status(f"note: payloads are {seen['message']}; each is one value, `{name}`")
