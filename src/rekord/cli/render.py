"""How numbers, places and errors look in a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeAlias

from rekord.errors import RekordError, error
from rekord.verbs.figures import byte_size as byte_size
from rekord.verbs.figures import count as count
from rekord.verbs.figures import duration as duration

Piece: TypeAlias = "str | tuple[str, str]"
"""Some text, or (text, style): the style is left out where the output is no terminal."""

SHOWN_CHARACTERS = 60

_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: str) -> str:
    """Text from outside as it may go to a terminal: whatever could steer the terminal is spelled out.

    That is every character that is not printable: control characters and escape sequences, marks that turn
    the direction of writing, line separators, halves of a broken file name.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def cut(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """The beginning of a text, with `…` where something is left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quoted(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """A text between quotes, cut, with nothing in it that could be taken for something else."""
    parts: list[str] = []
    length = 0
    for letter in text:
        shown = f"\\{letter}" if letter in '"\\' else letter if letter.isprintable() else _escape(letter)
        length += len(shown)
        if length > limit:
            return f'"{"".join(parts)}…"'
        parts.append(shown)
    return f'"{"".join(parts)}"'


def _escape(letter: str) -> str:
    number = ord(letter)
    if 0xDC80 <= number <= 0xDCFF:  # how Python keeps a byte of a file name that is not UTF-8
        number -= 0xDC00
    elif number > 0xFF:
        return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
    return _SHORT_ESCAPES.get(letter, f"\\x{number:02x}")


def whole_number(option: str, *, do: str | None = None) -> Callable[[object], int]:
    """What reads the value of an option that takes a number from 0 on. Without `do` the verb's help is named."""

    def number(text: object) -> int:
        written = str(text)
        # Python refuses to read numbers of thousands of digits.
        if written.isascii() and written.isdigit() and len(written) < 1000:
            return int(written)
        raise error(
            "U605",
            f"`{option}` cannot be {cut(clean(repr(written)))}",
            expected="a whole number, 0 or more",
            found=cut(clean(written)) or "nothing",
            do=do,
        )

    return number


def failure_lines(failure: RekordError) -> list[list[Piece]]:
    """An error as it is shown: the first line stands alone, the rest is what is known."""
    head: Piece = (f"{type(failure).__name__} {failure.code}:", "bold red")
    lines: list[list[Piece]] = [[head, f" {clean(failure.what)}"]]
    lines += detail_lines(
        ("where", str(failure.location)),
        ("expected", failure.expected),
        ("found", failure.found),
        ("likely", failure.likely),
        ("do", failure.do),
    )
    return lines


def detail_lines(*details: tuple[str, str | None], indent: int = 2) -> list[list[Piece]]:
    """What stands indented below a first line: a label and a text for each that there is."""
    return [[" " * indent, (f"{label:<9}", "dim"), f" {clean(text)}"] for label, text in details if text]


def shown_below(folder: str, paths: Iterable[str]) -> dict[str, str]:
    """Each path as it is shown: without the folder, where that is one and all of them lie below it."""
    given = list(paths)
    prefix = folder if folder.endswith(os.sep) else folder + os.sep
    if os.path.isdir(folder) and all(path.startswith(prefix) for path in given):
        return {path: clean(path[len(prefix) :].lstrip(os.sep)) for path in given}
    return {path: clean(path) for path in given}
