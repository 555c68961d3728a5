"""No message, help text or page uses the phrases of `vocabulary.txt`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekord.cli.main import commands

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("vocabulary.txt")
PHRASES = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
MODULES = sorted((ROOT / "src" / "rekord").rglob("*.py"))
DATA = {"picture"}  # whole literals: column names of users, and a kind of input in saved models


def _pattern(phrase: str) -> str:
    """A phrase as whole words, across line breaks; `there is no file` does not contain `is no file`."""
    words = r"\s+".join(re.escape(word) for word in phrase.split())
    return rf"(?<![\w-])(?<!there\s){words}(?!\w)"


PATTERN = re.compile("|".join(_pattern(phrase) for phrase in sorted(PHRASES, key=len, reverse=True)), re.IGNORECASE)


def hits(text: str, name: str, first_line: int = 1) -> Iterator[str]:
    """Each phrase in a text, with its file and line."""
    for found in PATTERN.finditer(text):
        line = first_line + text.count("\n", 0, found.start())
        yield f"{name}:{line}: {' '.join(found[0].split())!r}"


def messages(source: str) -> Iterator[tuple[str, int]]:
    """The string literals of a module and the docstrings of its public names, each with its line."""
    tree = ast.parse(source)
    private: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("_"):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                private.add(id(first.value))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and not (id(node) in private or node.value in DATA)
        ):
            yield node.value, node.lineno


def test_a_phrase_is_found_as_whole_words_and_across_lines() -> None:
    assert list(hits("it cannot\nbe told", "x")) == ["x:1: 'cannot be told'"]
    assert list(hits("a\nMend it", "x")) == ["x:2: 'Mend'"]
    assert list(hits("a recommendation, an amendment, the wholesale number; there is no image", "x")) == []
    assert [text for text, _ in messages('"""a"""\nx = f"b{1}c"  # d\ndef _f():\n    "e"')] == ["a", "b", "c"]
    assert [text for text, _ in messages('x = "picture", "a picture"')] == ["a picture"]


def test_every_phrase_is_listed_once() -> None:
    assert len(set(PHRASES)) == len(PHRASES)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_messages_and_docstrings_use_the_words_of_the_field(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = [hit for text, line in messages(path.read_text(encoding="utf-8")) for hit in hits(text, name, line)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_use_the_words_of_the_field(path: Path) -> None:
    found = list(hits(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("verb", sorted(commands().commands))
def test_help_uses_the_words_of_the_field(verb: str) -> None:
    # As on the command line: a command keeps the help option of the first context that asks for its help.
    group = commands()
    with (
        group.make_context("rekord", [], resilient_parsing=True) as root,
        group.commands[verb].make_context(verb, [], parent=root, resilient_parsing=True) as context,
    ):
        found = list(hits(context.get_help(), f"rekord {verb} --help"))
    assert not found, "\n".join(found)
