"""How far a conversion is: each thread counts in a file of its own, and whoever watches adds them up."""

from __future__ import annotations

import mmap
import os
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass

_COUNTS = struct.Struct("<4q")


@dataclass(frozen=True, slots=True)
class Counts:
    """What has been done so far."""

    rows: int = 0
    spilled_bytes: int = 0
    rejected: int = 0
    shard_bytes: int = 0


class Tally:
    """What a thread has done. Nothing depends on it: a tally that cannot be kept is not kept."""

    def __init__(self, folder: str | None) -> None:
        self._memory: mmap.mmap | None = None
        self._finished = [0, 0, 0, 0]
        self._current = [0, 0, 0, 0]
        if folder is None:
            return
        with suppress(OSError, ValueError):
            path = os.path.join(folder, f"{os.getpid()}-{threading.get_native_id()}.count")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            try:
                os.truncate(descriptor, _COUNTS.size)
                self._memory = mmap.mmap(descriptor, _COUNTS.size)
            finally:
                os.close(descriptor)

    def rows(self, rows: int, spilled_bytes: int, rejected: int) -> None:
        """How far the present part is."""
        self._current[:3] = rows, spilled_bytes, rejected
        self._publish()

    def shard_bytes(self, more_bytes: int) -> None:
        self._current[3] += more_bytes
        self._publish()

    def next(self) -> None:
        """The present task is finished."""
        self._finished = [a + b for a, b in zip(self._finished, self._current, strict=True)]
        self._current = [0, 0, 0, 0]

    def _publish(self) -> None:
        if self._memory is not None:
            sums = [a + b for a, b in zip(self._finished, self._current, strict=True)]
            _COUNTS.pack_into(self._memory, 0, *sums)


def counted(folder: str) -> Counts:
    """The sum over all threads and processes."""
    sums = [0, 0, 0, 0]
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(".count"):
                with suppress(OSError, struct.error), open(entry.path, "rb") as file:
                    counts = _COUNTS.unpack(file.read(_COUNTS.size))
                    sums = [a + b for a, b in zip(sums, counts, strict=True)]
    return Counts(*sums)
