"""Work that goes on while its results are being used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from rekord.dataset.background import OrderedWork

Item = TypeVar("Item")

_LEAVE_SECONDS = 1.0
"""How long a thread is waited for that nobody wants any more: it may hang in a read that never comes back."""


class Ahead(Iterator[Item], Generic[Item]):
    """The same items in the same order, made by another thread, at most `depth` of them ahead of the caller.

    What the maker raises is raised here, after everything that it made before. When the caller stops early, or is
    interrupted, the thread ends with the item that it is at; where that takes long, it is left behind.
    """

    def __init__(self, items: Iterator[Item], depth: int) -> None:
        each = ((item,) for item in items)
        self._work: OrderedWork[tuple[Item], tuple[Item]] = OrderedWork(
            lambda: next(each, None), _same, threads=1, ahead=depth, name="rekord-ahead"
        )

    def __next__(self) -> Item:
        try:
            return next(self._work)[0]
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop early."""
        self._work.close(_LEAVE_SECONDS)


def _same(item: tuple[Item]) -> tuple[Item]:
    return item
