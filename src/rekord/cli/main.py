"""The `rekord` command: which verbs there are, and how any of them can end."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from rekord.cli import out
from rekord.cli.append import append
from rekord.cli.balance import balance
from rekord.cli.check import check
from rekord.cli.delete import delete
from rekord.cli.demo import demo
from rekord.cli.diff import diff
from rekord.cli.doctor import doctor
from rekord.cli.explain import explain
from rekord.cli.export import export
from rekord.cli.help import Command, Group
from rekord.cli.index import index
from rekord.cli.infer import infer
from rekord.cli.query import query
from rekord.cli.reader import reader
from rekord.cli.relabel import relabel
from rekord.cli.render import clean, cut, failure_lines
from rekord.cli.rewrite import rewrite
from rekord.cli.salvage import salvage
from rekord.cli.show import show
from rekord.cli.split import split
from rekord.cli.stats import stats
from rekord.cli.train import train
from rekord.cli.usage import UsageFailure, explained
from rekord.cli.view import view
from rekord.cli.write import write
from rekord.errors import RekordError, UsageError, error
from rekord.location import Location
from rekord.storage import limits

GOOD, FINDINGS, WRONG_USAGE, NO_ACCESS, BUG, INTERRUPTED = 0, 1, 2, 3, 70, 130

_OUT_OF_MEMORY = "X508"
_RESERVE_BYTES = 4 << 20
_ADDRESS_SPACE_BYTES = 256 << 20
"""What every verb takes to load its libraries. With less, some end the process with a message of their own."""

app = typer.Typer(
    name="rekord",
    cls=Group,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 good, 1 the data has findings, 2 wrong usage, 3 could not read or write.",
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """TFRecord datasets: write them from raw data, see what is in them, and check every byte."""
    if version:
        from rekord.version import VERSION

        out.say(f"rekord {VERSION}")
        raise typer.Exit(GOOD)
    if ctx.invoked_subcommand is None:
        out.tell(ctx.get_help())
        raise typer.Exit(WRONG_USAGE)
    if ctx.invoked_subcommand != "explain":
        limits.check_address_space(_ADDRESS_SPACE_BYTES, "NumPy and Arrow")


for verb in (
    write,
    show,
    stats,
    query,
    infer,
    check,
    doctor,
    salvage,
    diff,
    rewrite,
    split,
    balance,
    append,
    delete,
    relabel,
    export,
    index,
    reader,
    train,
    demo,
):
    app.command(cls=Command)(verb)
# A message that was pasted without quotes may have words that look like options.
app.command(cls=Command, context_settings={"ignore_unknown_options": True})(explain)
app.command(
    cls=Command, hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(view)


@cache
def commands() -> Any:
    """All verbs with their options, made once in a process: that reads the signature of every verb."""
    return typer.main.get_command(app)


def run(argv: Sequence[str] | None = None, *, leave: Callable[[int], None] | None = None) -> int:
    """Run one command line and give its exit code; whatever happens, it is said in one clear message.

    When memory ran out, `leave` ends the process: libraries that could not allocate crash as they are closed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    out.prepare()
    limits.spare_address_space()
    try:
        try:
            code = _run(arguments, bytearray(_RESERVE_BYTES), as_json=as_json)
            out.flush()
        except RekordError as out_of_memory:
            code = _failed(out_of_memory, as_json=as_json)
            out.flush()
            if leave is not None:
                leave(code)
        return code
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        out.abandon()
        return GOOD
    except out.OutputError as failure:
        _say_failure(_about_stdout(failure))
        out.abandon()
        return NO_ACCESS


def _run(arguments: list[str], reserve: bytearray, *, as_json: bool) -> int:
    """Run a verb and report how it failed, except for want of memory: that error is raised."""
    group = commands()
    try:
        # Not through the command's own `main`, which ends the process in ways of its own.
        with group.make_context("rekord", list(arguments)) as context:
            code = group.invoke(context)
        return code if isinstance(code, int) else GOOD
    except typer.Exit as end:
        return end.exit_code
    except UsageFailure as failure:
        return _failed(explained(failure, group, arguments), as_json=as_json)
    except RekordError as failure:
        if failure.code == _OUT_OF_MEMORY:
            raise
        return _failed(failure, as_json=as_json)
    except KeyboardInterrupt:
        out.tell("interrupted")
        return INTERRUPTED
    except (BrokenPipeError, out.OutputError):
        raise
    except Exception as bug:
        reserve.clear()  # a message needs memory too
        refused = limits.refused(bug)
        if refused is None:
            return _our_bug(bug, as_json=as_json)
        if refused.code == _OUT_OF_MEMORY:
            raise refused from None
        return _failed(refused, as_json=as_json)


def _failed(failure: RekordError, *, as_json: bool) -> int:
    _say_failure(failure)
    if as_json:
        out.say_json({"error": failure.to_dict()})
    # A column that is not there was named on the command line.
    wrong_usage = isinstance(failure, UsageError) or failure.code == "S116"
    return WRONG_USAGE if wrong_usage else NO_ACCESS


def _say_failure(failure: RekordError) -> None:
    for line in failure_lines(failure):
        out.tell(*line)


def _our_bug(bug: Exception, *, as_json: bool) -> int:
    what = cut(clean(str(bug)), 200)
    kind = type(bug).__name__
    if os.environ.get("REKORD_TRACEBACK"):
        import traceback

        out.tell("".join(traceback.format_exception(bug)).rstrip())
    out.tell(("this is a bug of rekord:", "bold red"), f" {kind}: {what}" if what else f" {kind}")
    out.tell("  your data is as it was; please report this message, with the command that you ran")
    out.tell("  REKORD_TRACEBACK=1 in the environment shows where it happened")
    if as_json:
        out.say_json({"error": {"error": kind, "code": None, "what": what}})
    return BUG


def _about_stdout(failure: out.OutputError) -> RekordError:
    full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    space = "free space on the disk that the output goes to, or "
    return error(
        "X504",
        "the output cannot be written",
        location=Location(path="standard output"),
        found=failure.strerror or str(failure) or type(failure).__name__,
        do=f"{space if full else ''}send the output to another place",
    )
