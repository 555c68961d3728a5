"""The `rekord` command: its verbs, its help, and how any of them can end."""

from __future__ import annotations

import errno
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rekord.cli import console
from rekord.cli.balance import balance
from rekord.cli.check import check
from rekord.cli.console import escape_controls, truncate
from rekord.cli.demo import demo
from rekord.cli.diff import diff
from rekord.cli.doctor import doctor
from rekord.cli.edit import append, delete, relabel
from rekord.cli.exit_handling import UsageFailure, explain_usage_error
from rekord.cli.explain import explain
from rekord.cli.export import export
from rekord.cli.index import index
from rekord.cli.infer import infer
from rekord.cli.options import flag_option
from rekord.cli.query import query
from rekord.cli.reader import reader
from rekord.cli.rewrite import rewrite, split
from rekord.cli.salvage import salvage
from rekord.cli.show import show, view
from rekord.cli.stats import stats
from rekord.cli.train import train
from rekord.cli.write import write
from rekord.errors import RekordError, UsageError, error
from rekord.location import Location
from rekord.storage import os_hints, portability

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "write": (
        "rekord write photos/ data/flowers --split train=0.9,val=0.1",
        "rekord write --images photos/ --masks masks/ --classes 21 data/voc",
    ),
    "show": ("rekord show data/flowers -n 3",),
    "stats": ("rekord stats data/flowers --html flowers.html",),
    "query": ('rekord query data/flowers "select label, count(*) from records group by 1"',),
    "infer": ("rekord infer data/flowers -o schema.json",),
    "check": ("rekord check data/flowers --schema schema.json",),
    "doctor": ("rekord doctor data/flowers",),
    "salvage": ("rekord salvage data/damaged data/intact",),
    "diff": ("rekord diff data/old data/new --key filename",),
    "rewrite": (
        "rekord rewrite data/flowers data/large --shard-size 1GB --shuffle",
        'rekord rewrite data/flowers data/some --drop notes --where "label < 3"',
    ),
    "split": (
        "rekord split data/flowers data/new --split train=0.8,val=0.2 --stratify label",
        "rekord split data/flowers data/folds --folds 5",
    ),
    "balance": (
        "rekord balance data/flowers data/even --augment flip,crop,colour",
        "rekord balance data/flowers data/small --method undersample",
    ),
    "append": ("rekord append data/flowers data/more --from new-photos/",),
    "delete": ('rekord delete data/flowers data/fewer --where "width < 64"',),
    "relabel": (
        "rekord relabel data/flowers data/named --map-labels tulp=tulip",
        "rekord relabel data/flowers data/repaired --from labels.csv --key filename",
    ),
    "export": ("rekord export data/flowers flowers.parquet --split train",),
    "index": ("rekord index data/flowers --format dali",),
    "reader": ("rekord reader data/flowers --for torch",),
    "train": ("rekord train data/flowers --epochs 10", "rekord train data/flowers flowers-model --resume"),
    "demo": ("rekord demo tour",),
    "explain": ("rekord explain F102",),
}


_HELP_WIDTH = 80
_MIN_TEXT_WIDTH = 36
"""So many characters a line the text beside a long option has, whatever becomes of the width."""


class VerbCommand(TyperCommand):
    """A verb whose help is a usage line, some sentences, its options and examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except console.InvalidOption as carrier:
            failure = carrier.failure
            # An option that several verbs have does not know whose help there is to be read.
            failure.do = failure.do or f"{ctx.command_path} --help"
            raise failure from None

    def get_help(self, ctx: Any) -> str:
        rows = [_format_option_row(param) for param in self.get_params(ctx)]
        examples = [f"  {line}" for line in EXAMPLES.get(str(self.name), ())]
        lines = [
            f"rekord {format_usage(self)}",
            "",
            *_split_sentences(self.help),
            "",
            *_format_table(rows),
            "",
            *examples,
        ]
        return "\n".join(lines).rstrip()


class RootGroup(TyperGroup):
    """The command itself, whose help is the list of its verbs."""

    def get_help(self, ctx: Any) -> str:
        verbs = [each for each in self.commands.values() if not each.hidden]
        # The first sentence of each will do.
        rows = [(f"rekord {format_usage(each)}", f"{(each.help or '').split('.')[0]}.") for each in verbs]
        options = [_format_option_row(param) for param in self.get_params(ctx)]
        rest = [
            "",
            "rekord VERB --help says more about one of them.",
            *textwrap.wrap(self.epilog or "", _HELP_WIDTH),
        ]
        return "\n".join([*textwrap.wrap(self.help or "", _HELP_WIDTH), "", *_format_table(rows + options), *rest])


def format_usage(command: Any) -> str:
    """A verb with its arguments."""
    names = [_format_argument(param) for param in command.params if param.param_type_name == "argument"]
    return " ".join([str(command.name), *names])


def _format_argument(param: Any) -> str:
    name = str(param.metavar or param.name).strip("[]")
    name = f"{name}..." if param.nargs == -1 else name
    return name if param.required else f"[{name}]"


def _format_option_row(param: Any) -> tuple[str, str]:
    says = param.help or ""
    if param.param_type_name == "argument":
        return _format_argument(param), says
    name = ", ".join(sorted(param.opts, key=len))
    if not param.is_flag:
        name += f" {param.metavar or param.opts[0].lstrip('-').upper()}"
        says += f" [{param.default}]" if param.default is not None else ""
    return name, "Show this help." if "--help" in param.opts else says


def _split_sentences(text: str | None) -> list[str]:
    lines = textwrap.wrap(" ".join(inspect.cleandoc(text or "").split()), _HELP_WIDTH - 2)
    return [f"  {line}" for line in lines] or [""]


def _format_table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    lines: list[str] = []
    for name, says in rows:
        first, *more = textwrap.wrap(says, max(_HELP_WIDTH - width - 4, _MIN_TEXT_WIDTH)) or [""]
        lines += [f"  {name:<{width}}  {first}".rstrip(), *[f"{'':{width + 4}}{line}" for line in more]]
    return lines


EXIT_OK, EXIT_FINDINGS, EXIT_USAGE, EXIT_NO_ACCESS, EXIT_BUG, EXIT_INTERRUPTED = 0, 1, 2, 3, 70, 130

_OUT_OF_MEMORY = "X508"
_RESERVE_BYTES = 4 << 20
_ADDRESS_SPACE_BYTES = 256 << 20
"""What every verb takes to load its libraries. With less, some end the process with a message of their own."""

app = typer.Typer(
    name="rekord",
    cls=RootGroup,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 good, 1 the data has findings, 2 wrong usage, 3 could not read or write.",
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    version: Annotated[bool, flag_option("--version", "Print the version and exit.")] = False,
) -> None:
    """TFRecord datasets: write them from raw data, see what is in them, and check every byte."""
    if version:
        from rekord.version import VERSION

        console.print_line(f"rekord {VERSION}")
        raise typer.Exit(EXIT_OK)
    if ctx.invoked_subcommand is None:
        console.print_status(ctx.get_help())
        raise typer.Exit(EXIT_USAGE)
    if ctx.invoked_subcommand != "explain":
        os_hints.check_address_space(_ADDRESS_SPACE_BYTES, "NumPy and Arrow")


_VERBS: tuple[Callable[..., int], ...] = (
    write, show, stats, query, infer, check, doctor, salvage, diff, rewrite, split, balance, append,
    delete, relabel, export, index, reader, train, demo,
)  # fmt: skip
for verb in _VERBS:
    app.command(cls=VerbCommand)(verb)
# A message that was pasted without quotes may have words that look like options.
app.command(cls=VerbCommand, context_settings={"ignore_unknown_options": True})(explain)
app.command(
    cls=VerbCommand, hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)(view)


@cache
def commands() -> Any:
    """All verbs with their options, made once in a process: that reads the signature of every verb."""
    return typer.main.get_command(app)


def run_command_line(argv: Sequence[str] | None = None, *, leave: Callable[[int], None] | None = None) -> int:
    """Run one command line and give its exit code; whatever happens, it is said in one clear message.

    When memory ran out, `leave` ends the process: libraries that could not allocate crash as they are closed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    console.configure_streams()
    portability.reduce_address_space()
    try:
        try:
            code = _run_command(arguments, bytearray(_RESERVE_BYTES), as_json=as_json)
            console.flush_stdout()
        except RekordError as out_of_memory:
            code = _report_failure(out_of_memory, as_json=as_json)
            console.flush_stdout()
            if leave is not None:
                leave(code)
        return code
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        console.discard_stdout()
        return EXIT_OK
    except console.OutputError as failure:
        console.print_error(_stdout_error(failure), as_json=False)
        console.discard_stdout()
        return EXIT_NO_ACCESS


def _run_command(arguments: list[str], reserve: bytearray, *, as_json: bool) -> int:
    """Run a verb and report how it failed, except for want of memory: that error is raised."""
    group = commands()
    try:
        # Not through the command's own `main`, which ends the process in ways of its own.
        with group.make_context("rekord", list(arguments)) as context:
            code = group.invoke(context)
        return code if isinstance(code, int) else EXIT_OK
    except typer.Exit as end:
        return end.exit_code
    except UsageFailure as failure:
        return _report_failure(explain_usage_error(failure, group, arguments), as_json=as_json)
    except RekordError as failure:
        if failure.code == _OUT_OF_MEMORY:
            raise
        return _report_failure(failure, as_json=as_json)
    except KeyboardInterrupt:
        console.print_status("interrupted")
        return EXIT_INTERRUPTED
    except (BrokenPipeError, console.OutputError):
        raise
    except Exception as bug:
        reserve.clear()  # a message needs memory too
        refused = os_hints.system_limit_error(bug)
        if refused is None:
            return _report_bug(bug, as_json=as_json)
        if refused.code == _OUT_OF_MEMORY:
            raise refused from None
        return _report_failure(refused, as_json=as_json)


def _report_failure(failure: RekordError, *, as_json: bool) -> int:
    console.print_error(failure, as_json=as_json)
    # A column that is not there was named on the command line.
    wrong_usage = isinstance(failure, UsageError) or failure.code == "S116"
    return EXIT_USAGE if wrong_usage else EXIT_NO_ACCESS


def _report_bug(bug: Exception, *, as_json: bool) -> int:
    what = truncate(escape_controls(str(bug)), 200)
    kind = type(bug).__name__
    if os.environ.get("REKORD_TRACEBACK"):
        import traceback

        console.print_status("".join(traceback.format_exception(bug)).rstrip())
    console.print_status(("this is a bug of rekord:", "bold red"), f" {kind}: {what}" if what else f" {kind}")
    console.print_status("  your data is as it was; please report this message, with the command that you ran")
    console.print_status("  REKORD_TRACEBACK=1 in the environment shows where it happened")
    if as_json:
        console.print_json({"error": {"error": kind, "code": None, "what": what}})
    return EXIT_BUG


def _stdout_error(failure: console.OutputError) -> RekordError:
    full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    space = "free space on the disk that the output goes to, or "
    return error(
        "X504",
        "the output cannot be written",
        location=Location(path="standard output"),
        found=failure.strerror or str(failure) or type(failure).__name__,
        do=f"{space if full else ''}send the output to another place",
    )
