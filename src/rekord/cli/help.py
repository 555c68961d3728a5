"""The help of a verb and of the whole command, short and in plain text."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from typer.core import TyperCommand, TyperGroup

from rekord.cli.examples import EXAMPLES
from rekord.errors import UsageError

_WIDTH = 80
_LEAST_TEXT = 36
"""So many characters a line the text beside a long option has, whatever becomes of the width."""


class Command(TyperCommand):
    """A verb whose help is a usage line, some sentences, its options and examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as failure:
            # An option that several verbs have does not know whose help there is to be read.
            failure.do = failure.do or f"{ctx.command_path} --help"
            raise

    def get_help(self, ctx: Any) -> str:
        rows = [_row(param) for param in self.get_params(ctx)]
        examples = [f"  {line}" for line in EXAMPLES.get(str(self.name), ())]
        lines = [f"rekord {usage(self)}", "", *_sentences(self.help), "", *_table(rows), "", *examples]
        return "\n".join(lines).rstrip()


class Group(TyperGroup):
    """The command itself, whose help is the list of its verbs."""

    def get_help(self, ctx: Any) -> str:
        verbs = [each for each in self.commands.values() if not each.hidden]
        # The first sentence of each will do.
        rows = [(f"rekord {usage(each)}", f"{(each.help or '').split('.')[0]}.") for each in verbs]
        options = [_row(param) for param in self.get_params(ctx)]
        rest = [
            "",
            "rekord VERB --help says more about one of them.",
            *textwrap.wrap(self.epilog or "", _WIDTH),
        ]
        return "\n".join([*textwrap.wrap(self.help or "", _WIDTH), "", *_table(rows + options), *rest])


def usage(command: Any) -> str:
    """A verb with its arguments."""
    names = [_argument(param) for param in command.params if param.param_type_name == "argument"]
    return " ".join([str(command.name), *names])


def _argument(param: Any) -> str:
    name = str(param.metavar or param.name).strip("[]")
    name = f"{name}..." if param.nargs == -1 else name
    return name if param.required else f"[{name}]"


def _row(param: Any) -> tuple[str, str]:
    says = param.help or ""
    if param.param_type_name == "argument":
        return _argument(param), says
    name = ", ".join(sorted(param.opts, key=len))
    if not param.is_flag:
        name += f" {param.metavar or param.opts[0].lstrip('-').upper()}"
        says += f" [{param.default}]" if param.default is not None else ""
    return name, "Show this help." if "--help" in param.opts else says


def _sentences(text: str | None) -> list[str]:
    lines = textwrap.wrap(" ".join(inspect.cleandoc(text or "").split()), _WIDTH - 2)
    return [f"  {line}" for line in lines] or [""]


def _table(rows: list[tuple[str, str]]) -> list[str]:
    width = max(len(name) for name, _ in rows)
    lines: list[str] = []
    for name, says in rows:
        first, *more = textwrap.wrap(says, max(_WIDTH - width - 4, _LEAST_TEXT)) or [""]
        lines += [f"  {name:<{width}}  {first}".rstrip(), *[f"{'':{width + 4}}{line}" for line in more]]
    return lines
