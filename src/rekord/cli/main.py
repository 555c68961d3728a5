"""The `rekord` command: its verbs, their help, and exit codes."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rekord.cli import config, console
from rekord.cli.completion import (
    INSTALL,
    SHOW,
    install_script,
    is_completing,
    print_completions,
    print_script,
    take_shell,
)
from rekord.cli.console import escape_controls, truncate
from rekord.cli.demo import demo
from rekord.cli.diff import diff
from rekord.cli.edit import append, delete, relabel
from rekord.cli.exit_handling import UsageFailure, explain_usage_error, missing_argument_error
from rekord.cli.flag_hints import set_running_verb, translate_error
from rekord.cli.health import check, doctor, explain, salvage
from rekord.cli.help import format_group_help, format_verb_help, help
from rekord.cli.inspection import infer, show
from rekord.cli.interop import adopt, export, index, reader
from rekord.cli.options import (
    JSON_OPTION,
    NoConfigOption,
    QuietOption,
    VerboseOption,
    VersionOption,
    apply_common_options,
    common_params,
    flag_option,
    hoist_common_options,
    with_options,
)
from rekord.cli.query import query
from rekord.cli.rewrite import balance, rewrite, split
from rekord.cli.stats import stats
from rekord.cli.sync import sync, trace
from rekord.cli.train import train
from rekord.cli.view import view
from rekord.cli.write import write
from rekord.errors import RekordError, UsageError, error
from rekord.location import Location
from rekord.storage import portability
from rekord.storage.local import check_address_space, system_limit_error

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "write": (
        "rekord write photos/ data/flowers --split train=0.9,val=0.1",
        "rekord write --images photos/ --masks masks/ --classes 21 data/voc",
    ),
    "show": ("rekord show data/flowers -n 3",),
    "view": ("rekord view data/flowers", "rekord view data/old data/new --port 8080"),
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
    "sync": ("rekord sync photos/ data/flowers", "rekord sync photos/ data/flowers --to data/today"),
    "trace": ("rekord trace data/flowers --split train --record 7",),
    "export": ("rekord export data/flowers flowers.parquet --split train",),
    "adopt": (
        "rekord adopt data/shards",
        "rekord adopt data/shards --label image/class/label --label-map labels.txt",
    ),
    "index": ("rekord index data/flowers --format dali",),
    "reader": ("rekord reader data/flowers --for torch",),
    "train": ("rekord train data/flowers --epochs 10", "rekord train data/flowers flowers-model --resume"),
    "demo": ("rekord demo tour",),
    "explain": ("rekord explain F102", "rekord explain - < train.log"),
    "help": ("rekord help write",),
}


class VerbCommand(TyperCommand):
    """A verb, with the options that all verbs have, and with defaults from a configuration file."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.params = [*self.params, *common_params()]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        set_running_verb(commands(), self)
        settings = self._load_config(args)
        args, negated = config.take_negated(self, args)
        if settings is not None:
            settings = settings.without({*negated, *config.find_given(self, args)})
            config.set_running_config(settings)
            ctx.default_map = {name: default.value for name, default in settings.defaults.items()}
        words = [str(self.name), *args]
        try:
            rest = super().parse_args(ctx, args)
        except console.InvalidOption as carrier:
            failure = carrier.failure
            # An option that several verbs share does not know which verb it belongs to.
            failure.do = failure.do or f"{ctx.command_path} --help"
            raise failure from None
        # Some versions of typer and click do not notice what is missing.
        absent: tuple[object, ...] = (None, (), [])
        missing = next(
            (each for each in self.params if each.required and ctx.params.get(str(each.name)) in absent), None
        )
        if missing is not None:
            raise missing_argument_error(self, missing, words)
        if settings is not None:
            settings = config.undo_contradicted(ctx, settings)
            config.set_running_config(settings)
        apply_common_options(ctx.params)
        if settings is not None:
            _logger.info(settings.describe())
        set_running_verb(commands(), self, ctx.params)
        return rest

    def _load_config(self, args: Sequence[str]) -> config.Config | None:
        """The configuration, unless the command line ignores it or only asks for help."""
        config.set_running_config(None)
        if self.name in _UNCONFIGURED_VERBS or not _UNCONFIGURED_OPTIONS.isdisjoint(args):
            return None
        return config.load_config(self, commands())

    def get_help(self, ctx: Any) -> str:
        return format_verb_help(self, self.get_params(ctx), EXAMPLES.get(str(self.name), ()))


class RootGroup(TyperGroup):
    """The command itself, whose help is the list of its verbs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args, ctx.meta[_SHELL] = take_shell(hoist_common_options(args, self.commands))
        return super().parse_args(ctx, args)

    def get_help(self, ctx: Any) -> str:
        return format_group_help(self, self.get_params(ctx))


_logger = logging.getLogger(__name__)
_SHELL = "rekord.shell"
_UNCONFIGURED_VERBS = ("help", "explain", "demo")
_UNCONFIGURED_OPTIONS = frozenset({"-h", "--help", "-V", "--version", "--no-config"})

EXIT_OK, EXIT_FINDINGS, EXIT_USAGE, EXIT_NO_ACCESS, EXIT_BUG, EXIT_INTERRUPTED = 0, 1, 2, 3, 70, 130

_OUT_OF_MEMORY = "X508"
_RESERVE_BYTES = 4 << 20
_ADDRESS_SPACE_BYTES = 256 << 20
"""What every verb needs to load its libraries. With less, some libraries end the process with their own message."""

app = typer.Typer(
    name="rekord",
    cls=RootGroup,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 problems in the data, 2 invalid usage, 3 could not read or write.",
)


@app.callback(invoke_without_command=True)
@with_options
def root(
    ctx: typer.Context,
    version: VersionOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = 0,
    no_config: NoConfigOption = False,
    as_json: bool = JSON_OPTION,
    install_completion: bool = flag_option(
        INSTALL, "Install shell completion; or name the shell: bash, zsh or fish."
    ),
    show_completion: bool = flag_option(
        SHOW, "Print the completion script of this shell, or of the one that is named."
    ),
) -> None:
    """Write TFRecord datasets from raw data, inspect them, check every byte, repair and edit them."""
    if install_completion or show_completion:
        (install_script if install_completion else print_script)(ctx.meta[_SHELL])
        raise typer.Exit(EXIT_OK)
    if ctx.invoked_subcommand is None:
        if as_json:
            raise error("U601", "no verb is given", do="rekord help")
        console.print_message(ctx.get_help())
        raise typer.Exit(EXIT_USAGE)
    if ctx.invoked_subcommand not in ("explain", "help"):
        check_address_space(_ADDRESS_SPACE_BYTES, "NumPy and Arrow")


_VERBS: tuple[Callable[..., int], ...] = (
    write, show, view, stats, query, infer, check, doctor, salvage, diff, rewrite, split, balance, append,
    delete, relabel, sync, trace, export, adopt, index, reader, train, demo,
)  # fmt: skip
for verb in _VERBS:
    app.command(cls=VerbCommand)(verb)
# A message pasted without quotes may contain words that look like options.
app.command(cls=VerbCommand, context_settings={"ignore_unknown_options": True})(explain)
app.command(cls=VerbCommand)(help)


@cache
def commands() -> Any:
    """All verbs with their options, built once per process: that inspects the signature of every verb."""
    return typer.main.get_command(app)


def run_command_line(argv: Sequence[str] | None = None, *, leave: Callable[[int], None] | None = None) -> int:
    """Run one command line and return its exit code; any failure is reported in one message.

    When memory ran out, `leave` ends the process: libraries that could not allocate crash as they are closed.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    console.reset_output(as_json=as_json)
    console.configure_streams()
    if is_completing():
        return print_completions(commands(), arguments)
    portability.reduce_address_space()
    try:
        try:
            code = _run_command(arguments, bytearray(_RESERVE_BYTES), as_json=as_json)
            console.flush_stdout()
            if "--stats" in arguments:
                from rekord.cli.traffic import report_traffic

                report_traffic()
        except RekordError as out_of_memory:
            code = _report_failure(out_of_memory, as_json=as_json)
            console.flush_stdout()
            if leave is not None:
                leave(code)
        return code
    except BrokenPipeError:
        # The reader of a pipe, such as `head`, closed it.
        console.discard_stdout()
        return EXIT_OK
    except console.OutputError as failure:
        console.print_error(_stdout_error(failure), as_json=False)
        console.discard_stdout()
        return EXIT_NO_ACCESS


def _run_command(arguments: list[str], reserve: bytearray, *, as_json: bool) -> int:
    """Run a verb and report a failure, except where memory ran out: that error is raised."""
    group = commands()
    set_running_verb(group, None)
    try:
        # Not through `group.main`, which ends the process itself.
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
        console.print_interrupt("interrupted", as_json=as_json)
        return EXIT_INTERRUPTED
    except (BrokenPipeError, console.OutputError):
        raise
    except Exception as bug:
        reserve.clear()  # a message needs memory too
        refused = system_limit_error(bug)
        if refused is None:
            return _report_bug(bug, as_json=as_json)
        if refused.code == _OUT_OF_MEMORY:
            raise refused from None
        return _report_failure(refused, as_json=as_json)


def _report_failure(failure: RekordError, *, as_json: bool) -> int:
    console.print_error(config.attribute_to_config(translate_error(failure)), as_json=as_json)
    # An unknown column was named on the command line.
    wrong_usage = isinstance(failure, UsageError) or failure.code == "S116"
    return EXIT_USAGE if wrong_usage else EXIT_NO_ACCESS


def _report_bug(bug: Exception, *, as_json: bool) -> int:
    what = truncate(escape_controls(str(bug)), 200)
    kind = type(bug).__name__
    if os.environ.get("REKORD_TRACEBACK"):
        import traceback

        console.print_message("".join(traceback.format_exception(bug)).rstrip())
    console.print_message(("this is a bug in rekord:", "bold red"), f" {kind}: {what}" if what else f" {kind}")
    console.print_message("  your data was not changed; please report this message and the command that you ran")
    console.print_message("  set REKORD_TRACEBACK=1 in the environment to print a traceback")
    if as_json:
        console.print_json({"error": {"error": kind, "code": None, "what": what}})
    return EXIT_BUG


def _stdout_error(failure: console.OutputError) -> RekordError:
    full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
    space = "free space on the disk, or "
    return error(
        "X504",
        "cannot write to standard output",
        location=Location(path="standard output"),
        found=failure.strerror or str(failure) or type(failure).__name__,
        do=f"{space if full else ''}redirect the output to another place",
    )
