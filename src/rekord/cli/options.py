"""The options of the command line: those that verbs share, those that every verb takes, and their values."""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache, wraps
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_type_hints,
)

import typer

from rekord.cli import console
from rekord.cli.console import escape_controls, invalid_option, make_integer_parser, option_parser

if TYPE_CHECKING:
    from rekord.schema import Schema


OptionsT = TypeVar("OptionsT")


class Panel(StrEnum):
    """The groups of options in the help of a verb that has many, in this order."""

    SOURCE = "Source"
    COLUMNS = "Columns"
    IMAGE_TRANSFORMS = "Image transforms"
    COLUMN_TRANSFORMS = "Column transforms"
    WINDOWS = "Windows of time series"
    SPLITS = "Splits and order"
    TRAINING = "Training"
    OUTPUT = "Output"
    CHECKS = "Checks"
    RUN = "Run"


REQUIRED: Any = inspect.Parameter.empty
"""The default of what has to be given."""


@dataclass(frozen=True)
class Declared:
    """An option or argument of a verb as the default of a parameter: how typer reads it, and the value without it."""

    info: Any
    default: Any


def argument(metavar: str, help: str, *, default: Any = REQUIRED) -> Any:
    """A positional argument."""
    return Declared(typer.Argument(metavar=metavar, help=help, show_default=False), default)


def text_option(option: str, metavar: str, help: str, panel: Panel | None = None, *, default: Any = None) -> Any:
    """An option that takes a text."""
    return Declared(typer.Option(option, metavar=metavar, help=help, rich_help_panel=panel), default)


def flag_option(option: str, help: str, panel: Panel | None = None, *, default: bool | None = False) -> Any:
    """An option without a value."""
    return Declared(typer.Option(option, help=help, rich_help_panel=panel), default)


def integer_option(
    option: str, help: str, panel: Panel | None = None, *, default: int | None = None, do: str | None = None
) -> Any:
    """An option that takes an integer ≥ 0."""
    return parsed_option(option, "N", help, make_integer_parser(option, do=do), panel, default=default)


def choice_option(
    option: str,
    literal: Any,
    help: str,
    panel: Panel | None = None,
    *,
    metavar: str | None = None,
    default: Any = None,
) -> Any:
    """An option that takes one of the words of a Literal type."""
    choices = get_args(literal)

    def choose(text: object) -> str:
        word = str(text)
        if word in choices:
            return word
        raise invalid_option(option, word, f"one of {', '.join(map(repr, choices))}", None, found=repr(word))

    return parsed_option(option, metavar or "|".join(choices), help, option_parser(choose), panel, default=default)


def parsed_option(
    option: str,
    metavar: str,
    help: str,
    parser: Callable[[object], object],
    panel: Panel | None = None,
    *,
    default: Any = None,
) -> Any:
    """An option whose text `parser` reads."""
    return Declared(typer.Option(option, metavar=metavar, help=help, parser=parser, rich_help_panel=panel), default)


def output_option(metavar: str, help: str) -> Any:
    """`-o`, `--output`."""
    return Declared(typer.Option("-o", "--output", metavar=metavar, help=help), None)


def _to_typer(
    name: str, hint: Any, declared: Declared, kind: Any = inspect.Parameter.KEYWORD_ONLY
) -> inspect.Parameter:
    """A parameter as typer takes it: what is declared of it in its annotation, and a plain default."""
    return inspect.Parameter(name, kind, default=declared.default, annotation=Annotated[hint, declared.info])


@dataclass_transform(frozen_default=True, kw_only_default=True)
def option_group(panel: Panel | None = None) -> Callable[[type[OptionsT]], type[OptionsT]]:
    """A frozen dataclass of options that verbs share, in this panel unless an option names another."""

    def make(cls: type[OptionsT]) -> type[OptionsT]:
        for name, value in vars(cls).copy().items():
            if isinstance(value, Declared):
                value.info.rich_help_panel = value.info.rich_help_panel or panel
                setattr(cls, name, field(default=value.default, metadata={"declared": value}))
        return dataclass(frozen=True, kw_only=True)(cls)

    return make


def with_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb as typer takes it: its parameters declare options, or are groups of them."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}
    hints = get_type_hints(verb, include_extras=True)
    for parameter in inspect.signature(verb).parameters.values():
        hint = hints[parameter.name]
        if isinstance(parameter.default, Declared):
            parameters.append(_to_typer(parameter.name, hint, parameter.default, parameter.kind))
        elif is_dataclass(hint):
            groups[parameter.name] = hint
            types = get_type_hints(hint)
            parameters += [_to_typer(each.name, types[each.name], each.metadata["declared"]) for each in fields(hint)]
        else:
            parameters.append(parameter.replace(annotation=hint))
    flat = inspect.Signature(parameters)

    @wraps(verb)
    def run(*arguments: Any, **options: Any) -> Any:
        given = flat.bind(*arguments, **options)
        given.apply_defaults()
        values = given.arguments
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        return verb(**values)

    run.__signature__ = flat  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


# Input.

PATH_ARGUMENT = argument("PATH", "Dataset to read: a folder, file or glob pattern.")
RAW_PATH_ARGUMENT = argument(
    "PATH", "Dataset or raw data: a folder, file or glob pattern. Left out with --masks.", default=None
)
PATHS_ARGUMENT = argument("PATH", "Record files, folders or glob patterns.")
INPUT_ARGUMENT = argument("IN", "Dataset to read: a folder, file or glob pattern.")
SCHEMA_OPTION = text_option("--schema", "FILE", "Schema of the records (JSON); inferred by default.")


class Preview(StrEnum):
    """How images are drawn."""

    AUTO = "auto"
    KITTY = "kitty"
    ITERM = "iterm"
    SIXEL = "sixel"
    BLOCKS = "blocks"
    NONE = "none"


PayloadForm: TypeAlias = Literal["example", "sequence", "bytes"]
"""How payloads can be read."""

KIND_OPTION = choice_option(
    "--kind",
    PayloadForm,
    "Read payloads as this message type instead of detecting it; bytes: do not parse them.",
    Panel.SOURCE,
)
SPLITS_OPTION = text_option("--split", "A,B", "Use only these splits.", Panel.SOURCE)
MAP_OPTION = text_option(
    "--map",
    "FILE.py:FUNC",
    "Python function applied to each row; may return one row, several, or none.",
    Panel.COLUMNS,
)
VERIFY_OPTION = text_option(
    "--verify",
    "full|headers",
    "How to verify images: decode every pixel, or read headers only.",
    Panel.CHECKS,
    default="full",
)
LIMIT_ROWS_OPTION = integer_option("--limit", "Read only the first N rows.", Panel.SOURCE, do="--limit 10")

# Output.

OUTPUT_ARGUMENT = argument("OUT", "Folder to create.")
STRATIFY_OPTION = text_option(
    "--stratify", "KEY", "Keep the split ratios exact within each class of this column.", Panel.SPLITS
)
SHARD_SIZE_OPTION = text_option("--shard-size", "SIZE", "Approximate size of a shard.", Panel.OUTPUT, default="128MB")
SHARDS_OPTION = integer_option("--shards", "Shards per split; overrides --shard-size.", Panel.OUTPUT)
COMPRESSION_OPTION = text_option(
    "--compression", "NAME", "Compression of the shards: none, gzip or zlib. Default: as in IN.", Panel.OUTPUT
)
FORMAT_OPTION = text_option("--format", "tfds", "Also write the files that tensorflow_datasets reads.", Panel.OUTPUT)

# Run.

WORKERS_OPTION = integer_option("--workers", "Parallel workers. Default: one per core.", Panel.RUN, do="--workers 2")
DRY_RUN_OPTION = flag_option("--dry-run", "Print what would be written, and write nothing.", Panel.RUN)
FRESH_OPTION = flag_option("--fresh", "Start over: discard an unfinished run and overwrite OUT.", Panel.RUN)
JSON_OPTION = flag_option("--json", "Print one JSON document.", Panel.RUN)


@option_group()
class CopyOptions:
    """How a copy of a dataset is written."""

    shard_size: str = SHARD_SIZE_OPTION
    shards: int | None = SHARDS_OPTION
    compression: str | None = COMPRESSION_OPTION
    format: str | None = FORMAT_OPTION
    workers: int | None = WORKERS_OPTION
    dry_run: bool = DRY_RUN_OPTION
    fresh: bool = FRESH_OPTION

    def to_dict(self) -> dict[str, Any]:
        """The options as the function of a verb takes them, which has no dry run."""
        return {name: value for name, value in vars(self).items() if name != "dry_run"}


def print_opaque_payload_note(schema: Schema) -> None:
    """Print a note where payloads are not Examples, and each is one value."""
    if schema.kind == "bytes" and schema.evidence is not None:
        name, seen = next(iter(schema.evidence["features"].items()))
        if "message" in seen:
            console.print_status(f"note: payloads are {seen['message']}; each is one value, `{name}`")


NAMES = ("quiet", "verbose", "traffic", "no_config", "version")
_HOISTED = re.compile(r"-[qv]+|--quiet|--verbose|--no-config|--stats|--json")
_CLEAR_LINE = "\r\x1b[2K"


def print_version(value: bool) -> None:
    """Print the version and exit."""
    if value:
        from rekord.version import VERSION

        if console.is_json():
            console.print_json({"version": VERSION})
        else:
            console.print_line(f"rekord {VERSION}")
        raise typer.Exit(0)


QuietOption: TypeAlias = Annotated[
    bool,
    typer.Option("-q", "--quiet", help="Print only errors and the result.", rich_help_panel=Panel.RUN),
]
VerboseOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "-v",
        "--verbose",
        count=True,
        help="Log what is done to stderr; -vv logs details.",
        rich_help_panel=Panel.RUN,
    ),
]
TrafficOption: TypeAlias = Annotated[
    bool,
    typer.Option("--stats", help="Print the requests to remote storage and their bytes.", rich_help_panel=Panel.RUN),
]
NoConfigOption: TypeAlias = Annotated[
    bool,
    typer.Option("--no-config", help="Ignore configuration files.", rich_help_panel=Panel.RUN),
]
VersionOption: TypeAlias = Annotated[
    bool,
    typer.Option("-V", "--version", help="Print the version and exit.", is_eager=True, callback=print_version),
]
_HiddenVersionOption: TypeAlias = Annotated[
    bool, typer.Option("-V", "--version", hidden=True, is_eager=True, callback=print_version)
]


@cache
def common_params() -> list[Any]:
    """The parameters that are added to every verb."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def common(
        quiet: QuietOption = False,
        verbose: VerboseOption = 0,
        traffic: TrafficOption = False,
        no_config: NoConfigOption = False,
        version: _HiddenVersionOption = False,
    ) -> None:
        """Only its parameters are used."""

    return [param for param in typer.main.get_command(app).params if param.name in NAMES]


def hoist_common_options(args: Sequence[str], verbs: Collection[str]) -> list[str]:
    """`-q write …` as `write -q …`."""
    at = 0
    while at < len(args) and _HOISTED.fullmatch(args[at]):
        at += 1
    if at == 0 or at == len(args) or args[at] not in verbs:
        return list(args)
    return [args[at], *args[:at], *args[at + 1 :]]


def apply_common_options(params: dict[str, Any]) -> None:
    """Take the common options out of the parameters of a verb, and obey them."""
    given = {name: params.pop(name, None) for name in NAMES}
    console.set_quiet(bool(given["quiet"]))
    if given["traffic"]:
        from rekord.cli.traffic import begin_counting

        begin_counting()
    set_log_level(0 if given["quiet"] else int(given["verbose"] or 0))


def set_log_level(verbosity: int) -> None:
    """Log what the package does to stderr: nothing, steps (1) or details (2)."""
    logger = logging.getLogger("rekord")
    for handler in [each for each in logger.handlers if isinstance(each, StderrHandler)]:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    if verbosity:
        logger.addHandler(StderrHandler())
        logger.setLevel(logging.INFO if verbosity == 1 else logging.DEBUG)


class StderrHandler(logging.Handler):
    """Prints log records to stderr, which may show a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = escape_controls(f"{record.name}: {record.getMessage()}")
        except Exception:
            self.handleError(record)
            return
        if console.is_terminal(sys.stderr):
            sys.stderr.write(_CLEAR_LINE)
        console.print_message((line, "dim"))


_BY_OPTION: Mapping[str, tuple[str, ...]] = {
    "--layout": ("auto", "classification", "deeplab", "detection", "images", "table", "text"),
    "--compression": ("none", "gzip", "zlib"),
    "--resize-filter": ("bilinear", "nearest", "box", "hamming", "bicubic", "lanczos"),
    "--resize-fit": ("stretch", "pad", "crop", "within"),
    "--method": ("oversample", "undersample", "smote"),
    "--augment": ("flip", "crop", "rotate", "colour"),
}
ExportFormat: TypeAlias = Literal[
    "parquet", "arrow", "arrow-stream", "csv", "tsv", "jsonl", "webdataset", "images", "coco", "voc", "tfds"
]
_ALTERNATIVES = re.compile(r"[a-z][a-z-]*(?:\|[a-z][a-z-]*)*")


def list_choices(param: Any) -> tuple[str, ...]:
    """The values of an option, if they are few: from this table, or spelled out as `full|headers`."""
    metavar = str(param.metavar or "")
    if metavar == "FORMAT" and "--format" in param.opts:
        return get_args(ExportFormat)
    known = next((_BY_OPTION[option] for option in param.opts if option in _BY_OPTION), ())
    return known or (tuple(metavar.split("|")) if _ALTERNATIVES.fullmatch(metavar) else ())


def takes_value(param: Any) -> bool:
    """Whether a word follows this option."""
    return not (getattr(param, "is_flag", False) or getattr(param, "count", False))


def split_words(command: Any, words: Sequence[str]) -> tuple[list[str], int]:
    """The positional arguments among the words after a verb, and the position of the last one (-1 without any)."""
    places = [at for at, (_, is_value) in enumerate(_iter_words(command, words)) if not is_value]
    places = [at for at in places if not words[at].startswith("-")]
    return [words[at] for at in places], places[-1] if places else -1


def find_awaiting(command: Any, words: Sequence[str]) -> Any:
    """The option whose value would follow these words; None if there is none."""
    return next((param for param, _ in reversed(list(_iter_words(command, words)))), None)


def _iter_words(command: Any, words: Sequence[str]) -> Iterator[tuple[Any, bool]]:
    """For each word the option that awaits a value after it, and whether the word is such a value itself."""
    options = {option: param for param in command.params for option in param.opts if option.startswith("-")}
    awaiting: Any = None
    for word in words:
        is_value = awaiting is not None
        param = None if is_value else options.get(word)
        awaiting = param if param is not None and takes_value(param) else None
        yield awaiting, is_value
