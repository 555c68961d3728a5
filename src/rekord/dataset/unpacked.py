"""Compressed shards that can only be read from their front, inflated into files where any record can be reached.

Verbs that copy records need them in any order. The inflated copies are frames as they stand in the stream; they live
as long as the verb runs.
"""

from __future__ import annotations

import os
import secrets
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from rekord import _core
from rekord.dataset.read import explain, open_slabs
from rekord.dataset.shard_index import ShardIndex, changed, stamp_of
from rekord.errors import RekordError
from rekord.storage.files import Storage

_MOST_FRAMES = 1 << 20
_IDLE_BYTES = 4 << 20


class Unpacked:
    """The inflated copies of some shards, each made when it is first needed. Safe to share by threads."""

    def __init__(self, folder: str, storage: Storage) -> None:
        self._folder = folder
        self._storage = storage
        self._copies: dict[str, tuple[str, ShardIndex]] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._lock = Lock()

    def copy_of(self, path: str, index: ShardIndex) -> tuple[str, ShardIndex]:
        """The copy of a shard, and its index."""
        with self._lock:
            lock = self._locks[path]
        with lock:  # one thread inflates a file; others need not wait for it to read their own
            if path not in self._copies:
                self._copies[path] = self._inflated(path, index)
            return self._copies[path]

    def remove(self) -> None:
        """Remove the copies."""
        for copy, _ in self._copies.values():
            with suppress(RekordError):
                self._storage.remove(copy)
        self._copies.clear()

    def _inflated(self, path: str, index: ShardIndex) -> tuple[str, ShardIndex]:
        # A name that whoever finds it after a crash takes for half done, and removes.
        copy = os.path.join(self._folder, f"unpacked-{os.getpid()}-{secrets.token_hex(8)}.tmp")
        file = self._storage.create(copy)
        try:
            written = self._copy_frames(path, file.write)
        except BaseException:
            with suppress(RekordError):
                self._storage.remove(copy)
            raise
        finally:
            file.close()
        if stamp_of(path) != index.stamp or (index.stream_bytes or written) != written:
            with suppress(RekordError):
                self._storage.remove(copy)
            raise changed(path, index.stamp, None)
        return copy, ShardIndex(index.offsets, path=copy, stamp=stamp_of(copy), stream_bytes=written)

    def _copy_frames(self, path: str, write: Callable[[memoryview], object]) -> int:
        with open_slabs(path, _core.Pool(_IDLE_BYTES), reuse=True) as reader:
            try:
                while (segment := reader.next(_MOST_FRAMES)) is not None:
                    write(memoryview(segment.slab.view())[segment.begin : segment.end])
            except RekordError as failure:
                failure.location = failure.location.within(
                    path=path, record=reader.record, offset=reader.offset
                )
                raise explain(failure) from None
            return reader.offset
