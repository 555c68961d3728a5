"""How a schema says no: one way to build its errors, one way to show what was found."""

from __future__ import annotations

from collections.abc import Iterable

from rekord.errors import RekordError, error
from rekord.location import Location

_SHOWN_CHARACTERS = 60


def refuse(
    code: str,
    what: str,
    *,
    column: str | None = None,
    expected: str,
    found: str,
    do: str,
) -> RekordError:
    """The error for a schema that cannot be; every part of the message is owed to the reader."""
    return error(code, what, location=Location(feature=column), expected=expected, found=found, do=do)


def shown(value: object) -> str:
    """A value as it may stand in a message: its repr, cut to 60 characters."""
    try:
        text = repr(value)
    except Exception:  # a repr is the caller's code, and must not hide the error that it was wanted for
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def near_miss(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `name` was probably meant to be: two edits away at most, or the same when folded."""
    best: tuple[int, str] | None = None
    for candidate in candidates:
        distance = 0 if _folded(candidate) == _folded(name) else _edits(name, candidate, limit=2)
        if distance <= 2 and (best is None or distance < best[0]):
            best = distance, candidate
    return best[1] if best else None


def _folded(name: str) -> str:
    return name.casefold().translate({ord(mark): None for mark in "/_-"})


def _edits(a: str, b: str, *, limit: int) -> int:
    """The edit distance between two names, or anything above `limit` where it is above."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, right in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (left != right))
        if min(row) > limit:
            return limit + 1
    return row[-1]
