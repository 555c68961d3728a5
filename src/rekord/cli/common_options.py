"""Options that every verb takes, before its name or after it: `-q`, `-v`, `-V` and `--no-config`."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Collection, Sequence
from functools import cache
from typing import Annotated, Any, TypeAlias

import typer

from rekord.cli import console
from rekord.cli.console import escape_controls
from rekord.cli.options import Panel

NAMES = ("quiet", "verbose", "no_config", "version")
_HOISTED = re.compile(r"-[qv]+|--quiet|--verbose|--no-config|--json")
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
