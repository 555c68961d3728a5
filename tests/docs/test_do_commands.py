"""Every `do` that is a command can be typed: its verb and options exist, and it is not the command that failed."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import blocks, cases, error_page_names, run_blocks
from pages import commands as transcript_commands

from rekord.cli.exit_handling import UsageFailure
from rekord.cli.main import commands, run_command_line

ROOT = Path(__file__).parents[2]
ERRORS = sorted((ROOT / "docs" / "errors").glob("*.md"))
SHOWN = [*ERRORS, *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "errors")]
TESTS = sorted((ROOT / "tests" / "unit" / "cli").glob("*.py"))
DO = re.compile(r"^ +do +(rekord .*)$", re.MULTILINE)
QUOTED = re.compile(r"\bdo {8}(rekord [^\"'\\]+)")
# What follows a command: an alternative, a comment, a remark in brackets after some spaces, a clause.
INPUT = r"\b(?:PATH|IN|OLD)\b"
END = re.compile(
    r" {2,}\(| {2,}# |, or |, and |, with |, which |; |: | where | lists | keeps | shows | copies | writes | gives "
)


def command_of(do: str) -> str:
    """The command that a `do` begins with."""
    return END.split(do)[0].rstrip(" ,.")


def parse(command: str) -> str | None:
    """What is wrong with a command line, or None."""
    _, *words = shlex.split(command.replace("--record N", "--record 0"))
    if words in (["--help"], []) or any(words[:1] == [name] for param in commands().params for name in param.opts):
        return None
    verb, *arguments = words
    known: Any = commands().commands.get(verb)
    if known is None or known.hidden:
        return f"unknown verb {verb}"
    if "--help" in arguments or "…" in arguments or "..." in arguments:
        return None
    if verb == "explain":
        return None
    try:
        known.make_context(verb, arguments)
    except UsageFailure as failure:
        return str(getattr(failure, "message", failure))
    return None


def shown_commands() -> Iterator[tuple[str, str, str]]:
    """Every command on a `do` line of a page or of a test: its file, itself, and the command typed before it."""
    for path in SHOWN:
        text = path.read_text(encoding="utf-8")
        for block in blocks(text):
            printed = [("", block.prints)] if block.prints else [("", block.body)]
            if block.kind == "console":
                printed = list(transcript_commands(block.body))
            elif block.body.startswith("$ "):
                first, _, rest = block.body.partition("\n")
                printed = [(first.removeprefix("$ "), rest)]
            for typed, output in printed:
                for do in DO.findall(output):
                    yield str(path.relative_to(ROOT)), command_of(do), typed
    for path in TESTS:
        for do in QUOTED.findall(path.read_text(encoding="utf-8")):
            if "{" not in do and len(do.split()) > 2:  # not the beginning of a longer one
                yield str(path.relative_to(ROOT)), command_of(do), ""


COMMANDS = sorted(set(shown_commands()))


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 20
    assert len(RUNNABLE) > 3


@pytest.mark.parametrize(("page", "command", "typed"), COMMANDS, ids=[f"{page}: {do}" for page, do, _ in COMMANDS])
def test_a_command_on_a_do_line_is_understood_and_is_not_the_one_that_failed(
    page: str, command: str, typed: str
) -> None:
    assert parse(command) is None, command
    assert not typed or shlex.split(command) != shlex.split(typed)


def _runnable() -> list[Any]:
    """The cases of error pages whose message ends with a command that has placeholders for paths only."""
    found = []
    for path in ERRORS:
        for case in cases(path):
            output = case[-1].prints or (case[-1].body if case[-1].kind == "console" else "")
            for do in DO.findall(output or ""):
                command = command_of(do)
                if not re.search(r"\b(?:KEY|FILE|NAME|SQL|DIR)\b|…|\.\.\.|^rekord train\b", command):
                    found.append(pytest.param(path, case, command, id=f"{path.stem}: {command}"))
    return found


RUNNABLE = _runnable()


@pytest.mark.parametrize(("path", "case", "command"), RUNNABLE)
def test_a_command_runs_where_the_page_ran(
    path: Path, case: list[Any], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(case, path, error_page_names(case, tmp_path))
    if re.search(INPUT, command):
        where = re.search(r"^ +where +([^\s,]+)", case[-1].prints or case[-1].body, re.MULTILINE)
        if where is None or not Path(where[1]).exists():  # the message is not about a file
            assert parse(command) is None
            return
        command = re.sub(INPUT, where[1], command)
    command = re.sub(r"\bOUT\b", "made-by-do", command).replace("--record N", "--record 0")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as messages:
        code = run_command_line(shlex.split(command)[1:])
    assert code != 2, messages.getvalue()
