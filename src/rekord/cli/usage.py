"""What Typer refuses, said in rekord's own form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from rekord.cli.render import clean, cut
from rekord.errors import RekordError, error

# Typer carries a copy of Click or imports it, depending on its version; this class is the right one in both.
UsageFailure: type[Exception] = typer.BadParameter.__mro__[1]


def explained(failure: Any, group: Any, arguments: Sequence[str]) -> RekordError:
    """The UsageError for a command line that could not be parsed."""
    from rekord.schema.refuse import near_miss

    command, path = _command(failure, group, arguments)
    help_line = f"{path} --help"
    if hasattr(failure, "possibilities"):
        option = failure.option_name
        known = [name for param in command.params for name in (*param.opts, *param.secondary_opts)]
        near = near_miss(option, [name for name in (*known, "--help") if name.startswith("--")])
        near = near or next(iter(failure.possibilities or ()), None)
        what = f"`{path}` has no option `{cut(clean(option))}`"
        return error("U601", what, likely=f"`{near}` is meant" if near else None, do=help_line)
    if command is group and "command" in failure.message.lower():
        # Click says no more than the sentence; the name is the first word that is no option.
        verb = next((word for word in arguments if not word.startswith("-")), "")
        visible = [name for name, each in group.commands.items() if not each.hidden]
        near = near_miss(verb, visible)
        return error(
            "U601",
            f"there is no command `{cut(clean(verb))}`",
            expected=None if near else f"one of {', '.join(visible)}",
            likely=f"`{near}` is meant" if near else None,
            do=f"rekord {near} --help" if near else help_line,
        )
    if isinstance(failure, typer.BadParameter):
        name = _name(getattr(failure, "param", None))
        if hasattr(failure, "param_type"):
            return error("U601", f"`{path}` needs {name}", do=help_line)
        found = failure.message.removeprefix("Value error, ").rstrip(".")
        return error("U605", f"`{name}` cannot take this value", found=clean(found), do=help_line)
    sentence = clean(failure.message).rstrip(".")
    return error("U601", f"`{path}`: {sentence[:1].lower()}{sentence[1:]}", do=help_line)


def _command(failure: Any, group: Any, arguments: Sequence[str]) -> tuple[Any, str]:
    if failure.ctx is not None:
        return failure.ctx.command, failure.ctx.command_path
    verb = arguments[0] if arguments else ""
    return (group.commands[verb], f"rekord {verb}") if verb in group.commands else (group, "rekord")


def _name(param: Any) -> str:
    if param is None:
        return "another argument"
    return str(param.metavar or param.name) if param.param_type_name == "argument" else str(param.opts[0])
