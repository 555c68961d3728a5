"""Options and arguments that several verbs share, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from rekord.cli import console
from rekord.cli.console import make_integer_parser

if TYPE_CHECKING:
    from rekord.schema import Schema


class Panel(StrEnum):
    """The groups of options in the help of a verb that has many, in this order."""

    SOURCE = "Source"
    COLUMNS = "Columns"
    IMAGE_TRANSFORMS = "Image transforms"
    COLUMN_TRANSFORMS = "Column transforms"
    SPLITS = "Splits and order"
    TRAINING = "Training"
    OUTPUT = "Output"
    CHECKS = "Checks"
    RUN = "Run"


def argument(metavar: str, help: str) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def text_option(option: str, metavar: str, help: str, panel: Panel | None = None) -> Any:
    """An option that takes a text."""
    return typer.Option(option, metavar=metavar, help=help, rich_help_panel=panel)


def flag_option(option: str, help: str, panel: Panel | None = None) -> Any:
    """An option without a value."""
    return typer.Option(option, help=help, rich_help_panel=panel)


def integer_option(option: str, help: str, panel: Panel | None = None, *, do: str | None = None) -> Any:
    """An option that takes an integer ≥ 0."""
    return parsed_option(option, "N", help, make_integer_parser(option, do=do), panel)


def parsed_option(
    option: str, metavar: str, help: str, parser: Callable[[object], object], panel: Panel | None = None
) -> Any:
    """An option whose text `parser` reads."""
    return typer.Option(option, metavar=metavar, help=help, parser=parser, rich_help_panel=panel)


def output_option(metavar: str, help: str) -> Any:
    """`-o`, `--output`."""
    return typer.Option("-o", "--output", metavar=metavar, help=help)


# Input.

PathArgument: TypeAlias = Annotated[str, argument("PATH", "Dataset to read: a folder, file or glob pattern.")]
RawPathArgument: TypeAlias = Annotated[
    str | None, argument("PATH", "Dataset or raw data: a folder, file or glob pattern. Left out with --masks.")
]
PathsArgument: TypeAlias = Annotated[list[str], argument("PATH", "Record files, folders or glob patterns.")]
InputArgument: TypeAlias = Annotated[str, argument("IN", "Dataset to read: a folder, file or glob pattern.")]
SchemaOption: TypeAlias = Annotated[
    str | None, text_option("--schema", "FILE", "Schema of the records (JSON); inferred by default.")
]


class PayloadForm(StrEnum):
    """How payloads can be read."""

    EXAMPLE = "example"
    SEQUENCE = "sequence"
    BYTES = "bytes"


KindOption: TypeAlias = Annotated[
    PayloadForm | None,
    text_option(
        "--kind",
        "example|sequence|bytes",
        "Read payloads as this message type instead of detecting it; bytes: do not parse them.",
        Panel.SOURCE,
    ),
]
SplitsOption: TypeAlias = Annotated[str | None, text_option("--split", "A,B", "Use only these splits.", Panel.SOURCE)]
MapOption: TypeAlias = Annotated[
    str | None,
    text_option(
        "--map",
        "FILE.py:FUNC",
        "Python function applied to each row; may return one row, several, or none.",
        Panel.COLUMNS,
    ),
]
VerifyOption: TypeAlias = Annotated[
    str,
    text_option(
        "--verify", "full|headers", "How to verify images: decode every pixel, or read headers only.", Panel.CHECKS
    ),
]
LimitRowsOption: TypeAlias = Annotated[
    int | None, integer_option("--limit", "Read only the first N rows.", Panel.SOURCE, do="--limit 10")
]

# Output.

OutputArgument: TypeAlias = Annotated[str, argument("OUT", "Folder to create.")]
StratifyOption: TypeAlias = Annotated[
    str | None,
    text_option("--stratify", "KEY", "Keep the split ratios exact within each class of this column.", Panel.SPLITS),
]
ShardSizeOption: TypeAlias = Annotated[
    str, text_option("--shard-size", "SIZE", "Approximate size of a shard.", Panel.OUTPUT)
]
ShardsOption: TypeAlias = Annotated[
    int | None, integer_option("--shards", "Shards per split; overrides --shard-size.", Panel.OUTPUT)
]
CompressionOption: TypeAlias = Annotated[
    str | None,
    text_option(
        "--compression", "NAME", "Compression of the shards: none, gzip or zlib. Default: as in IN.", Panel.OUTPUT
    ),
]
FormatOption: TypeAlias = Annotated[
    str | None, text_option("--format", "tfds", "Also write the files that tensorflow_datasets reads.", Panel.OUTPUT)
]

# Run.

WorkersOption: TypeAlias = Annotated[
    int | None, integer_option("--workers", "Parallel workers. Default: one per core.", Panel.RUN, do="--workers 2")
]
DryRunOption: TypeAlias = Annotated[
    bool, flag_option("--dry-run", "Print what would be written, and write nothing.", Panel.RUN)
]
FreshOption: TypeAlias = Annotated[
    bool, flag_option("--fresh", "Start over: discard an unfinished run and overwrite OUT.", Panel.RUN)
]
JsonOption: TypeAlias = Annotated[bool, flag_option("--json", "Print one JSON document.", Panel.RUN)]


def print_opaque_payload_note(schema: Schema) -> None:
    """Print a note where payloads are not Examples, and each is one value."""
    if schema.kind == "bytes" and schema.evidence is not None:
        name, seen = next(iter(schema.evidence["features"].items()))
        if "message" in seen:
            console.print_status(f"note: payloads are {seen['message']}; each is one value, `{name}`")
