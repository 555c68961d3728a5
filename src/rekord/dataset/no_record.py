"""The error for a record number that there is not."""

from __future__ import annotations

from rekord.errors import UsageError


class NoRecord(UsageError, IndexError):
    """An IndexError as well: Python ends a loop over `split[0]`, `split[1]`, … by it."""

    def __init__(self, found: object, expected: str) -> None:
        super().__init__(
            "U606",
            f"there is no record {repr(found)[:60]}",
            expected=expected,
            found=repr(found)[:60],
            do="split[0] is the first one, split[-1] the last; len(split) says how many there are",
        )
        self._given = (found, expected)

    def __reduce__(self) -> tuple[object, ...]:
        return NoRecord, self._given
