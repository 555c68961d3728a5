"""`rekord help`, and the text of every `--help`."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Sequence
from typing import Any

from rekord.cli import console
from rekord.cli.options import JSON_OPTION, Panel, argument, list_choices, takes_value, with_options

HELP_WIDTH = 80
_MAX_NAME_WIDTH = 26
"""Texts start in the same column for all options that are not longer than this."""
_MIN_GROUPED_OPTIONS = 12
"""A verb with more options than this shows them in panels."""


@with_options
def help(
    verb: str | None = argument("[VERB]", "Verb to describe. Default: list all verbs.", default=None),
    as_json: bool = JSON_OPTION,
) -> int:
    """Show the help of a verb, or list all verbs."""
    from rekord.cli.exit_handling import unknown_verb_error
    from rekord.cli.main import commands

    group = commands()
    if verb is not None and verb not in group.commands:
        raise unknown_verb_error(verb, group)
    if as_json:
        console.print_json(_describe_group(group) if verb is None else _describe_verb(group.commands[verb]))
        return 0
    with group.make_context("rekord", [], resilient_parsing=True) as root:
        if verb is None:
            console.print_line(group.get_help(root))
            return 0
        command = group.commands[verb]
        with command.make_context(verb, [], parent=root, resilient_parsing=True) as context:
            console.print_line(command.get_help(context))
    return 0


def _describe_group(group: Any) -> dict[str, Any]:
    visible = [each for each in group.commands.values() if not each.hidden]
    return {
        "usage": "rekord VERB [OPTIONS]",
        "verbs": [{"verb": str(each.name), "usage": format_usage(each), "help": summarize(each)} for each in visible],
    }


def _describe_verb(command: Any) -> dict[str, Any]:
    from rekord.cli.main import EXAMPLES

    params = [param for param in command.params if not getattr(param, "hidden", False)]
    return {
        "verb": str(command.name),
        "usage": format_usage(command, options=True),
        "help": " ".join(inspect.cleandoc(command.help or "").split()),
        "arguments": [
            {
                "name": _format_argument(param).strip("[]."),
                "help": _argument_help(command, param),
                "required": bool(param.required),
            }
            for param in params
            if param.param_type_name == "argument"
        ],
        "options": [
            {
                "names": sorted(param.opts, key=len),
                "value": param.metavar if takes_value(param) else None,
                "choices": list(list_choices(param)),
                "help": param.help or "",
            }
            for param in params
            if param.param_type_name == "option"
        ],
        "examples": list(EXAMPLES.get(str(command.name), ())),
    }


def format_verb_help(command: Any, params: Sequence[Any], examples: Sequence[str]) -> str:
    """A usage line, a description, arguments and options, and examples."""
    usage = textwrap.wrap(f"Usage: {format_usage(command, options=True)}", HELP_WIDTH, subsequent_indent=" " * 7)
    text = textwrap.wrap(" ".join(inspect.cleandoc(command.help or "").split()), HELP_WIDTH)
    lines = [*usage, "", *text, *_format_panels(command, params)]
    if examples:
        lines += ["", "Examples:" if len(examples) > 1 else "Example:", *[f"  {line}" for line in examples]]
    return "\n".join(lines)


def format_group_help(group: Any, params: Sequence[Any]) -> str:
    """The list of all verbs, and the options of the command itself."""
    verbs = [each for each in group.commands.values() if not each.hidden]
    width = max(len(format_usage(each)) for each in verbs)
    rows = [(format_usage(each), summarize(each)) for each in verbs]
    options = [_format_option_row(param) for param in params if not param.hidden]
    return "\n".join(
        [
            "Usage: rekord VERB [OPTIONS]",
            "",
            *textwrap.wrap(group.help or "", HELP_WIDTH),
            "",
            "Verbs:",
            *_format_table(rows, width),
            "",
            "Options:",
            *_format_table(options, width),
            "",
            "Run `rekord help VERB` or `rekord VERB --help` for the options of a verb.",
            *textwrap.wrap(group.epilog or "", HELP_WIDTH),
        ]
    )


def format_usage(command: Any, *, options: bool = False) -> str:
    """A verb with its arguments, and perhaps its options: by name those that are required."""
    words = [_format_argument(param) for param in command.params if param.param_type_name == "argument"]
    if options:
        required = [param for param in command.params if param.param_type_name == "option" and param.required]
        words += [f"{param.opts[0]} {param.metavar}" for param in required] + ["[OPTIONS]"]
    return " ".join(["rekord", str(command.name), *words])


def summarize(command: Any) -> str:
    """The first sentence of the description of a verb."""
    return f"{(command.help or '').split('.')[0]}."


def _format_panels(command: Any, params: Sequence[Any]) -> list[str]:
    """Arguments and options under headings; the options of a verb that has many by panel."""
    options = [param for param in params if param.param_type_name == "option" and not param.hidden]
    arguments = [param for param in params if param.param_type_name == "argument"]
    panels: dict[str, list[Any]] = {"Options": []}
    if len(options) > _MIN_GROUPED_OPTIONS:
        panels |= {panel.value: [] for panel in Panel}
    for param in options:
        panel = getattr(param, "rich_help_panel", None) or (Panel.RUN if "--help" in param.opts else "Options")
        panels[panel if panel in panels else "Options"].append(param)
    tables = {"Arguments": [(_format_argument(param), _argument_help(command, param)) for param in arguments]}
    tables |= {title: [_format_option_row(param) for param in members] for title, members in panels.items()}
    tables = {title: rows for title, rows in tables.items() if rows}
    names = [len(name) for rows in tables.values() for name, _ in rows]
    width = max(length for length in names if length <= _MAX_NAME_WIDTH)
    return [line for title, rows in tables.items() for line in ("", f"{title}:", *_format_table(rows, width))]


def _argument_help(command: Any, param: Any) -> str:
    """The text about a positional argument. Some versions of typer and click lose it, so it is read as declared."""
    if param.help:
        return str(param.help)
    (declared,) = inspect.signature(command.callback).parameters[str(param.name)].annotation.__metadata__
    return str(declared.help)


def _format_argument(param: Any) -> str:
    name = str(param.metavar or param.name).strip("[]")
    name = f"{name}..." if param.nargs == -1 else name
    return name if param.required else f"[{name}]"


def _format_option_row(param: Any) -> tuple[str, str]:
    text = param.help or ""
    name = ", ".join(sorted(param.opts, key=len))
    if takes_value(param):
        name += f" {param.metavar or param.opts[0].lstrip('-').upper()}"
        text += f" [default:\N{NO-BREAK SPACE}{param.default}]" if param.default is not None else ""
    return name, "Show this help." if "--help" in param.opts else text


def _format_table(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Names and texts in two columns; a name that is too long has a line of its own."""
    lines: list[str] = []
    for name, text in rows:
        column = [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(text, HELP_WIDTH - width - 4)]
        if len(name) > width:
            lines.append(f"  {name}")
            name = ""
        first, *more = column or [""]
        lines += [f"  {name:<{width}}  {first}".rstrip(), *[f"{'':{width + 4}}{line}" for line in more]]
    return lines
