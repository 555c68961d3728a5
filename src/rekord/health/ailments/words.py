"""How a doctor says numbers, sizes and other people's data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_SHOWN_CHARACTERS = 60


def count(number: int, noun: str) -> str:
    """`1 record`, `51,240 records`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def byte_size(n_bytes: int) -> str:
    """`312 bytes`, `2.4 GB`."""
    if n_bytes < 1000:
        return count(n_bytes, "byte")
    size = float(n_bytes)
    for unit in _UNITS:
        size /= 1000
        if size < 999.5 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}" if size < 9.95 else f"{size:,.0f} {unit}"


def number(value: float) -> str:
    """A number without a needless `.0`."""
    return f"{int(value):,}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def named(key: str) -> str:
    """A key as it may stand in a sentence: between backticks, and cut."""
    return f"`{key if len(key) <= _SHOWN_CHARACTERS else key[: _SHOWN_CHARACTERS - 1] + '…'}`"


def written(key: str) -> str:
    """A key as Python text, and cut."""
    return f'"{named(key)[1:-1]}"'


def either(*ways: str | None) -> str:
    """Several ways to mend something, the best first."""
    return "; or ".join(way for way in ways if way)


def some(values: Iterable[object], most: int = 4) -> str:
    """The first few of some values, cut to what a message may show."""
    shown: list[str] = []
    length = 0
    for value in values:
        text = repr(value)
        length += len(text)
        if len(shown) == most or length > _SHOWN_CHARACTERS:
            return ", ".join(shown) + ", …" if shown else text[: _SHOWN_CHARACTERS - 1] + "…"
        shown.append(text)
    return ", ".join(shown)


def joined(words: Sequence[str], last: str = "or") -> str:
    """`a`, `a or b`, `a, b or c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"
