"""Progress of a conversion, counted per thread."""

from __future__ import annotations

import os
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass

_COUNTS_STRUCT = struct.Struct("<4q")


@dataclass(frozen=True, slots=True)
class ProgressCounts:
    """What has been done so far."""

    rows: int = 0
    spilled_bytes: int = 0
    rejected: int = 0
    shard_bytes: int = 0


class ProgressTally:
    """What a thread has done. Nothing depends on it: a tally that cannot be kept is not kept."""

    def __init__(self, folder: str | None) -> None:
        self._path: str | None = None
        self._finished = [0, 0, 0, 0]
        self._current = [0, 0, 0, 0]
        if folder is None:
            return
        path = os.path.join(folder, f"{os.getpid()}-{threading.get_native_id()}.count")
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
            self._path = path

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
        if self._path is None:
            return
        sums = [a + b for a, b in zip(self._finished, self._current, strict=True)]
        # Written and not mapped: on a full disk a write fails, where a mapped page would end the process. The file
        # is not made again: the folder may be on its way out.
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY)
            try:
                os.write(descriptor, _COUNTS_STRUCT.pack(*sums))
            finally:
                os.close(descriptor)


class ThreadTally(threading.local):
    """The tally of each thread that asks."""

    def __init__(self, folder: str | None) -> None:
        self.own = ProgressTally(folder)


def sum_progress(folder: str) -> ProgressCounts:
    """The sum over all threads and processes."""
    sums = [0, 0, 0, 0]
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(".count"):
                with suppress(OSError, struct.error), open(entry.path, "rb") as file:
                    counts = _COUNTS_STRUCT.unpack(file.read(_COUNTS_STRUCT.size))
                    sums = [a + b for a, b in zip(sums, counts, strict=True)]
    return ProgressCounts(*sums)


TRIM_THRESHOLD_BYTES = 32 << 20
"""A task that handled so much leaves enough behind for it to be worth a few milliseconds."""
