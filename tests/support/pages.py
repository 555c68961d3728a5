"""Runs a page of the docs from top to bottom, as a reader would: its files, its Python, its commands.

What a page may hold:

- A block of `python` runs, in one namespace for the whole page. Where a block of `text` follows at once, that is what
  it must print; an error that ends it is part of that, as rekord says it or as `Kind: message`. Comments such as
  `# prints: 3` say the same line by line.
- A block of `python`, `text`, `csv`, … with `title="name"` is not run: it becomes a file of that name, and a module
  that the page can import.
- A block of `console` holds commands after `$ ` and what each prints. `rekord` runs in this process, others
  in a shell.
- A comment `<!-- setup … -->` is Python that runs and that no reader sees.

Times are not compared. A `…` stands for anything within a line, and on a line of its own for any lines.

Run this file with pages to run them, and with `--update` to write into them what they print now, for example after a
message was reworded.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekord.cli.main import run_command_line
from rekord.errors import RekordError

DOCS = Path(__file__).parents[2] / "docs"

_PIECE = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->$|^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PRINTS = re.compile(r"# prints: (.*)")
_TITLE = re.compile(r'title="([^"]+)"')
# How long something took, as `1 ms`, `1.1 s` or `2 min 5 s`.
_DURATION = re.compile(r"\b(?:less than )?(?:\d+ min )?\d+(?:\.\d+)? m?s\b")


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a page: what it is, where it stands, and what it must print, if the page says that."""

    kind: str  # python, console, text, setup, …
    title: str | None
    body: str
    line: int
    prints: str | None = None


def blocks(text: str) -> list[Block]:
    """The blocks of a page in order; a `text` that says what Python prints belongs to that Python."""
    found: list[Block] = []
    end = -1
    for piece in _PIECE.finditer(text):
        line = text.count("\n", 0, piece.start()) + 2
        if piece["setup"] is not None:
            found.append(Block("setup", None, piece["setup"], line))
            continue
        kind = piece["info"].split(" ", 1)[0]
        title = _TITLE.search(piece["info"])
        before = found[-1] if found else None
        follows_at_once = before is not None and not text[end : piece.start()].strip()
        if kind == "text" and title is None and follows_at_once and before and before.kind == "python":
            found[-1] = Block("python", before.title, before.body, before.line, piece["body"])
        else:
            found.append(Block(kind, title and title[1], piece["body"], line))
        end = piece.end()
    return found


def cases(path: Path) -> list[list[Block]]:
    """The examples of a page about an error: each ends with a message, and none builds on another."""
    found: list[list[Block]] = [[]]
    for block in blocks(path.read_text(encoding="utf-8")):
        found[-1].append(block)
        if block.prints is not None or block.kind == "console":
            found.append([])
    return [case for case in found if any(block.kind in ("python", "console", "setup") for block in case)]


def example(code: str, what: str = "") -> tuple[str, str]:
    """The Python and the message of the case on the page about a code whose message starts with `what`."""
    shown = (case[-1] for case in cases(DOCS / "errors" / f"{code}.md") if case[-1].prints is not None)
    return next(
        (case.body, case.prints.rstrip("\n")) for case in shown if case.prints and f" {code}: {what}" in case.prints
    )


def messages(code: str) -> list[str]:
    """Every message that the page about a code shows, one for each case: what follows Python, or a block of text."""
    found = blocks((DOCS / "errors" / f"{code}.md").read_text(encoding="utf-8"))
    texts = [block.prints if block.kind == "python" else block.body for block in found]
    return [text.rstrip("\n") for text in texts if text is not None and f" {code}: " in text]


def run_page(path: Path, given: Mapping[str, Any] | None = None) -> int:
    """Run a page in the current folder, and give how many of its blocks ran or became files.

    `given` are names that the page takes for granted.
    """
    return run_blocks(blocks(path.read_text(encoding="utf-8")), path, given)


def run_blocks(
    those: Sequence[Block],
    path: Path,
    given: Mapping[str, Any] | None = None,
    compare: Callable[[str | tuple[str, ...], str, str], None] | None = None,
) -> int:
    """Run some blocks of a page in one namespace; see `run_page`."""
    space: dict[str, Any] = {"__name__": "page", **(given or {})}
    with _importing_from(Path.cwd()):
        return sum(_done(block, path, space, compare or _compare) for block in those)


def error_page_names(case: Sequence[Block], folder: Path) -> dict[str, Any]:
    """What the short examples of error pages take for granted: files in a folder, and names that they use."""
    import pickle

    import numpy as np

    import rekord as rk
    from rekord.testing import damage, wire

    text = "".join(block.body for block in case)
    if "mkdir" not in text:
        (folder / "data").mkdir()
    (folder / "old.tfrecord").write_bytes(damage.frames([wire.example_bytes({"label": [1]})]))
    given = {"rk": rk, "np": np, "os": os, "pickle": pickle, "Path": Path}
    if "tf." in text:
        import tensorflow as tf

        given["tf"] = tf
    return given


def _done(
    block: Block, path: Path, space: dict[str, Any], compare: Callable[[str | tuple[str, ...], str, str], None]
) -> bool:
    """Run a block or make a file of it; False where it is only to be read."""
    where = f"{path.name}, line {block.line}"
    if block.title is not None:
        _put(block)
    elif block.kind in ("python", "setup"):
        printed = _executed(block, path, space)
        promised = block.prints or "".join(f"{line}\n" for line in _PRINTS.findall(block.body))
        if promised:
            compare(printed, promised, where)
    elif block.kind == "console":
        for command, shown in commands(block.body):
            compare(_typed(command), shown, f"{where}: {command}")
    else:
        return False
    return True


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Modules of a folder can be imported, as where Python is started in it, and are forgotten afterwards.

    Their bytecode is not kept: pages that list a folder show what they made themselves.
    """
    keeps_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = keeps_none
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "/").parent == folder:
                del sys.modules[name]


def commands(transcript: str) -> Iterator[tuple[str, str]]:
    """Each command of a transcript, with what it prints; a line that ends in a backslash goes on."""
    pieces = re.split(r"^\$ ((?:.*\\\n)*.*)\n", transcript, flags=re.MULTILINE)
    assert not pieces[0].strip(), "a transcript begins with a command"
    return zip(pieces[1::2], pieces[2::2], strict=True)


def _put(block: Block) -> None:
    assert block.title is not None
    target = Path(block.title)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(block.body, encoding="utf-8")


def _executed(block: Block, page: Path, space: dict[str, Any]) -> str:
    """What a block prints, and the error that ends it where the page shows one."""
    told = io.StringIO()
    # As many lines before it as there are on the page: a traceback names the line of the page.
    code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
    try:
        with contextlib.redirect_stdout(told):
            exec(code, space)
    except Exception as failure:
        if block.prints is None:
            raise
        said = failure.message if isinstance(failure, RekordError) else f"{type(failure).__name__}: {failure}"
        told.write(f"{said}\n")
    return told.getvalue()


def _typed(command: str) -> tuple[str, ...]:
    """What a command prints: the two streams as a terminal may show them, in both orders."""
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    if program == "rekord" and not any(sign in arguments for sign in ("|", ">", "&&", ";")):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run_command_line(arguments)
        return out.getvalue() + err.getvalue(), err.getvalue() + out.getvalue()
    # `python` and `rekord` are those of this environment.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # as in `_importing_from`
    done = subprocess.run(
        ["bash", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        timeout=300,
    )
    return (done.stdout,)


def _compare(printed: str | tuple[str, ...], shown: str, where: str) -> None:
    ways = _ways(printed)
    if not _matches(ways, shown):
        raise AssertionError(f"{where}\n--- the page says\n{_plain(shown)}\n--- it printed\n{_plain(ways[0])}")


def _ways(printed: str | tuple[str, ...]) -> tuple[str, ...]:
    return (printed,) if isinstance(printed, str) else printed


def _matches(ways: tuple[str, ...], shown: str) -> bool:
    return any(re.fullmatch(_pattern(_plain(shown)), f"{_plain(one)}\n") for one in ways)


def _pattern(expected: str) -> str:
    lines = expected.splitlines() or [""]
    return "".join(
        "(?:.*\n)*?" if line.strip() == "…" else re.escape(line).replace("…", ".*") + "\n" for line in lines
    )


def _plain(text: str) -> str:
    lines = [line.rstrip() for line in _DURATION.sub("TIME", text).strip().splitlines()]
    return "\n".join(lines)


def update_page(path: Path) -> None:
    """Run a page, or each case of an error page, and write what it prints now where it prints something else.

    Lines that still match keep their wording, so that a `…` and the times on the page remain.
    """
    replacements: list[tuple[str, str]] = []

    def record(printed: str | tuple[str, ...], shown: str, where: str) -> None:
        ways = _ways(printed)
        if _matches(ways, shown):
            return
        if not any(ways) or any(line.strip() == "…" for line in shown.splitlines()):
            print(f"{where}: update by hand, only a part is shown. It printed:\n{ways[0]}")
            return
        before = shown.splitlines()
        nearest = max(ways, key=lambda way: difflib.SequenceMatcher(None, before, way.splitlines()).ratio())
        head = f"$ {where.partition(': ')[2]}\n" if ": " in where else ""
        tail = "\n" if shown.endswith("\n\n") else ""
        replacements.append((head + shown, head + _merged(before, nearest.strip("\n").splitlines()) + tail))

    is_error_page = path.parent.name == "errors"
    runs = cases(path) if is_error_page else [blocks(path.read_text(encoding="utf-8"))]
    for run in runs:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            run_blocks(run, path, error_page_names(run, Path(folder)) if is_error_page else None, record)
    text = path.read_text(encoding="utf-8")
    for old, new in replacements:
        if text.count(old) == 1:
            text = text.replace(old, new)
        else:
            print(f"{path.name}: update by hand, not found once:\n{old}--- it printed\n{new}")
    path.write_text(text, encoding="utf-8")


def _merged(before: list[str], now: list[str]) -> str:
    patterns = [re.compile(_pattern(_plain(line)).removesuffix("\n")) for line in before]
    lines = []
    for line in now:
        same = next((old for old, one in zip(before, patterns, strict=True) if one.fullmatch(_plain(line))), None)
        lines.append(line.rstrip() if same is None else same)
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    for name in [argument for argument in sys.argv[1:] if argument != "--update"]:
        if "--update" in sys.argv:
            update_page(Path(name).resolve())
        else:
            run_page(Path(name))
