"""The shards of a split, and any of their records by number.

A record's number counts through all shards in order. Its frame is copied out of the mapped file, checked and decoded
from the copy: no mapped memory ever reaches a user, since a file may change or shrink after it was checked.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from rekord import _core
from rekord.dataset.order import Ids
from rekord.dataset.shard_index import shard_index
from rekord.errors import error
from rekord.location import Location
from rekord.storage.files import read_error

_MOST_OPEN = 256
"""So many shards are mapped at a time: each takes a file descriptor, of which a process has about a thousand."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Frames of records one behind another, `size_bytes` of a slab, in the order that was asked for."""

    slab: _core.Slab
    size_bytes: int


class Shards:
    """The shards of a split. Counts and indexes are looked up when they are needed; safe to share by threads."""

    def __init__(self, paths: Sequence[str], counts: Sequence[int] | None = None) -> None:
        self.paths = tuple(paths)
        self._counts = None if counts is None else tuple(counts)
        self._starts: Ids | None = None
        self._open: OrderedDict[int, _Mapped] = OrderedDict()
        self._lock = Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths, "counts": self._counts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["paths"], state["counts"])  # type: ignore[misc]

    @property
    def counted(self) -> bool:
        """Whether it is known how many records there are, without looking into any file."""
        return self._counts is not None

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of records of each shard."""
        if self._counts is None:
            self._counts = tuple(len(shard_index(path).offsets) for path in self.paths)
        return self._counts

    @property
    def starts(self) -> Ids:
        """The number of the first record of each shard, and the number of all records at the end."""
        if self._starts is None:
            self._starts = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)]).astype(np.int64)
        return self._starts

    def __len__(self) -> int:
        return int(self.starts[-1])

    def locate(self, ids: Ids) -> tuple[Ids, Ids]:
        """The shard of each record, and its number there."""
        shards = np.searchsorted(self.starts, ids, side="right").astype(np.int64) - 1
        return shards, ids - self.starts[shards]

    def where(self, record: int) -> Location:
        """The place of a record, as an error names it."""
        shards, records = self.locate(np.array([record], np.int64))
        path, number = self.paths[int(shards[0])], int(records[0])
        offsets = shard_index(path).offsets
        return Location(
            path=path, record=number, offset=int(offsets[number]) if number < len(offsets) else None
        )

    def gather(self, ids: Ids, pool: _core.Pool) -> Gathered:
        """The frames of these records."""
        shards, records = self.locate(ids)
        used, which = np.unique(shards, return_inverse=True)
        with self._lock:
            opened = [self._opened(int(shard), len(used)) for shard in used]
        files = [one.indexed() for one in opened]
        gathered: Any = _core.gather(pool, files, which.astype(np.int64), records)
        if isinstance(gathered, int):
            shard = opened[int(which[gathered])]
            raise shard.refused(int(records[gathered]))
        slab, size_bytes = gathered
        return Gathered(slab, size_bytes)

    def close(self) -> None:
        """Let go of all files; they are opened again when they are needed."""
        with self._lock:
            self._open.clear()

    def _opened(self, shard: int, at_once: int) -> _Mapped:
        found = self._open.get(shard)
        if found is not None and found.is_current():
            self._open.move_to_end(shard)
            return found
        found = self._open[shard] = _Mapped(self.paths[shard])
        self._open.move_to_end(shard)
        while len(self._open) > max(_MOST_OPEN, at_once):
            self._open.popitem(last=False)
        return found


class _Mapped:
    """One plain shard, mapped, with its index."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._index = shard_index(path)
        try:
            with open(path, "rb") as file:
                self._stamp = _stamp(os.fstat(file.fileno()))
                # An empty file cannot be mapped.
                self._bytes: Any = (
                    mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self._stamp[0] else b""
                )
        except OSError as failure:
            raise read_error(path, failure) from failure

    def is_current(self) -> bool:
        """Whether the file is as it was: one that shrank must not be read where it was mapped."""
        try:
            return _stamp(os.stat(self.path)) == self._stamp
        except OSError:
            return False

    def indexed(self) -> tuple[Any, Any, int]:
        """What the core gathers from."""
        offsets = self._index.offsets
        return self._bytes, offsets, offsets.dtype.itemsize

    def refused(self, record: int) -> Exception:
        return error(
            "X516",
            f"record {record:,} is not where the index says",
            location=Location(path=self.path, record=record),
            expected="a file as long as when its index was made",
            found=f"{self._stamp[0]:,} bytes",
            do="rekord check PATH; then open the dataset again",
        )


def _stamp(found: os.stat_result) -> tuple[int, int]:
    return found.st_size, found.st_mtime_ns
