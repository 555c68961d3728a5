"""`split.batches(…)`: an iterator over decoded batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rekord.codec.columns import Column
from rekord.codec.plan import CodecPlan
from rekord.dataset.decoding import decode_inline, decode_threaded
from rekord.errors import error

_MOST_USUAL_THREADS = 4
"""More threads than this read no faster from one disk; who knows better says so."""


class Batches(Iterator[dict[str, Column]]):
    """Batches in file order, `{column: values}` each; the last one may be shorter.

    It is its own iterator, for one consumer. Threads start at the first `next()`. After the last batch `next()`
    keeps raising StopIteration; the next `iter()` begins again.
    """

    def __init__(
        self,
        paths: Sequence[str],
        plan: Callable[[], CodecPlan],
        batch_size: int,
        *,
        prefetch: int,
        threads: int | None,
    ) -> None:
        self._paths = tuple(paths)
        self._plan = plan
        self._batch_size = checked_count("batch_size", batch_size, least=1)
        self._prefetch = checked_count("prefetch", prefetch, least=0)
        self._threads = usual_threads() if threads is None else checked_count("threads", threads, least=1)
        self._running: Iterator[dict[str, Column]] | None = None
        self._process: int | None = None
        self._exhausted = False

    def __iter__(self) -> Batches:
        if self._exhausted:
            self._running, self._exhausted = None, False
        return self

    def __next__(self) -> dict[str, Column]:
        if self._exhausted:
            raise StopIteration
        if self._running is None:
            self._process = os.getpid()
            self._running = self._start()
        elif self._process != os.getpid():
            raise error(
                "U607",
                expected=f"process {self._process}, which began to iterate",
                found=f"process {os.getpid()}, forked from it",
                do="make the iterator in the process that uses it: a Dataset or Split can be handed over",
            )
        try:
            return next(self._running)
        except BaseException:
            # At the end, and after a failure too: what has failed does not go on.
            self._exhausted = True
            raise

    def close(self) -> None:
        """Stop early: files are closed and threads ended. Leaving the loop and the iterator behind does the same."""
        running, self._running, self._exhausted = self._running, None, True
        if running is not None and self._process == os.getpid():
            running.close()  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        raise error(
            "U607",
            "an iterator over batches cannot be pickled",
            expected="a Dataset or a Split, which can be handed to another process",
            found="a running iterator",
            do="send the Split, and call .batches(…) there",
        )

    def _start(self) -> Iterator[dict[str, Column]]:
        plan = self._plan()
        if self._threads == 1 and self._prefetch == 0:
            return decode_inline(self._paths, plan, self._batch_size)
        return decode_threaded(
            self._paths, plan, self._batch_size, threads=self._threads, prefetch=self._prefetch
        )


def usual_threads() -> int:
    """As many threads as this process may use cores, up to a sensible number."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_USUAL_THREADS)


def checked_count(name: str, value: object, *, least: int) -> int:
    """A whole number from `least` on."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise error(
            "U605",
            f"`{name}` cannot be {repr(value)[:60]}",
            expected=f"a whole number from {least} on",
            found=repr(value)[:60],
            do=f"{name}={1024 if name == 'batch_size' else max(least, 1)}",
        )
    return int(value.__index__())
