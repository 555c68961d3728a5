"""How a schema says no: one way to build its errors, one way to show what was found."""

from __future__ import annotations

from collections.abc import Iterable

from rekord.errors import RekordError, error
from rekord.location import Location

_SHOWN_CHARACTERS = 60
_TYPED_CHARACTERS = 200


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
    """The candidate that `name` was probably meant to be."""
    return next(iter(near_misses(name, candidates)), None)


def near_misses(name: str, candidates: Iterable[str]) -> list[str]:
    """The candidates that `name` may have been meant to be, the nearest first.

    They are the same when folded, or two edits away at most; of a short name, where two edits leave nothing of what
    was meant, one, and of one with less than three letters none. What is too long to be typed was not mistyped.
    """
    folded = _folded(name)
    if not folded or len(name) > _TYPED_CHARACTERS:
        return []
    limit = 2 if len(folded) >= 5 else 1 if len(folded) >= 3 else 0
    found: list[tuple[int, str]] = []
    for candidate in candidates:
        if len(candidate) > _TYPED_CHARACTERS:
            continue
        distance = 0 if _folded(candidate) == folded else _edits(name, candidate, limit=limit)
        if distance <= limit:
            found.append((distance, candidate))
    return [candidate for _, candidate in sorted(found, key=lambda one: one[0])]


def _folded(name: str) -> str:
    return name.casefold().translate({ord(mark): None for mark in "/_-"})


def _edits(a: str, b: str, *, limit: int) -> int:
    """The edit distance between two names, or anything above `limit` where it is above.

    An edit is a letter more, less or another, or two neighbours in each other's place.
    """
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    above, row = [0], list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        before, above, row = above, row, [i]
        for j, right in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (left != right)))
            if i > 1 and j > 1 and left == b[j - 2] and a[i - 2] == right:
                row[j] = min(row[j], before[j - 2] + 1)
        if min(row) > limit and min(above) >= limit:
            return limit + 1
    return row[-1]


def not_examples(what: str) -> RekordError:
    """The error for something that only records of features have."""
    return error(
        "S127",
        f"payloads that are not Examples have no features for {what}",
        expected="a schema of columns",
        found="Payload(): each payload as it is",
        do="tf.data.TFRecordDataset(files), or rk.records(path), gives the payloads; parse them as their own message",
    )
