"""How much this process asked of remote storage: requests and bytes, as services charge for them."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests by what services charge for, and bytes. Retries of a client package are not included."""

    reads: int = 0
    writes: int = 0  # including copies and parts of uploads, which cost the same
    lists: int = 0
    deletes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @property
    def requests(self) -> int:
        """All requests."""
        return self.reads + self.writes + self.lists + self.deletes

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(*(getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)))

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


class _Counter:
    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.total = Traffic()

    def add(self, more: Traffic) -> None:
        if self.process != os.getpid():  # a fork counts its own, and another thread may have held the lock
            self._begin()
        with self.lock:
            self.total += more


_COUNTER = _Counter()


def count_traffic(
    *, reads: int = 0, writes: int = 0, lists: int = 0, deletes: int = 0, read_bytes: int = 0, written_bytes: int = 0
) -> None:
    """Add to the traffic of this process."""
    _COUNTER.add(Traffic(reads, writes, lists, deletes, read_bytes, written_bytes))


def measure_traffic() -> Traffic:
    """The traffic of this process since it started; subtract two of them for what happened in between."""
    return _COUNTER.total if _COUNTER.process == os.getpid() else Traffic()
