"""Tasks on the cores of this machine: in this process, and in others beside it.

The calling process is one of the workers, so that a small conversion starts no other. The others come from loky:
they neither fork nor import the caller's main module, so that scripts without a main guard work.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import suppress
from typing import Any, TypeVar

from rekord.errors import error

Call = tuple[int, tuple[Any, ...]]
_Result = TypeVar("_Result")

_MOST_LOSSES = 3
"""How often workers may die before the cause is taken to be the task and not the weather."""


def available_workers() -> int:
    """The cores that this process may use: its affinity, and the quota of its control group."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


class Workers:
    """Runs calls of one function; a class for the lifetime of the other processes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: Any = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, kill_workers=kind is not None)
            self._pool = None

    def run(
        self, function: Callable[..., _Result], inline: Callable[..., _Result], calls: Sequence[Call]
    ) -> Iterator[tuple[int, _Result | Exception]]:
        """The result of each call, or what it raised, as they come; stop asking, and no further call is begun.

        `function` runs in other processes, `inline` in this one; both take the arguments of a call.
        """
        waiting = deque(calls)
        if self.count == 1 or len(calls) < 2:
            yield from self._alone(inline, waiting)
            return
        running: dict[Future[_Result], Call] = {}
        losses = 0
        try:
            while waiting or running:
                # Enough for every worker and one more each: this process is busy with a call of its own meanwhile.
                while len(waiting) > 1 and len(running) < 2 * (self.count - 1):
                    call = waiting.popleft()
                    running[self._submitted(function, call)] = call
                if waiting:
                    call = waiting.popleft()
                    yield call[0], _tried(inline, call)
                    ready = [future for future in running if future.done()]
                else:
                    ready = list(wait(running, timeout=0.5, return_when=FIRST_COMPLETED).done)
                lost = []
                for future in ready:
                    call = running.pop(future)
                    failure = future.exception()
                    if failure is not None and _is_loss(failure):
                        lost.append(call)
                    elif failure is not None and not isinstance(failure, Exception):
                        raise failure
                    else:
                        yield call[0], future.result() if failure is None else failure
                if lost:
                    losses += 1
                    # One dead worker takes the pool with it, and every call that was in it.
                    waiting.extendleft([*running.values(), *lost])
                    running.clear()
                    self._forget()
                    if losses > _MOST_LOSSES:
                        raise error(
                            "X517",
                            expected="workers that live until their task is done",
                            found=f"workers that died {losses} times",
                            likely="the machine is short of memory, and the system ends the largest processes",
                            do="run the same command again with fewer --workers: it continues where it stopped",
                        )
        finally:
            for future in running:
                future.cancel()

    def run_threads(
        self, inline: Callable[..., _Result], calls: Sequence[Call]
    ) -> Iterator[tuple[int, _Result | Exception]]:
        """The same on threads of this process, for calls that hardly hold the interpreter."""
        if self.count == 1 or len(calls) < 2:
            yield from self._alone(inline, deque(calls))
            return
        with ThreadPoolExecutor(min(self.count, len(calls)), thread_name_prefix="rekord-write") as threads:
            running = {threads.submit(inline, *call[1]): call[0] for call in calls}
            try:
                for future in as_completed(running):
                    failure = future.exception()
                    if failure is not None and not isinstance(failure, Exception):
                        raise failure
                    yield running[future], future.result() if failure is None else failure
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    @staticmethod
    def _alone(
        inline: Callable[..., _Result], waiting: deque[Call]
    ) -> Iterator[tuple[int, _Result | Exception]]:
        while waiting:
            call = waiting.popleft()
            yield call[0], _tried(inline, call)

    def _submitted(self, function: Callable[..., _Result], call: Call) -> Future[_Result]:
        """The future of a call. A pool that broke since it was last looked at fails the call like any other."""
        try:
            future: Future[_Result] = self._executor().submit(function, *call[1])
        except Exception as failure:
            if not _is_loss(failure):
                raise
            future = Future()
            future.set_exception(failure)
        return future

    def _executor(self) -> Any:
        if self._pool is None:
            from loky import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(
                self.count - 1, timeout=None, initializer=_begin_worker, initargs=(os.getpid(),)
            )
        return self._pool

    def _forget(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, kill_workers=True)


def _tried(inline: Callable[..., _Result], call: Call) -> _Result | Exception:
    try:
        return inline(*call[1])
    except Exception as failure:
        return failure


def _is_loss(failure: BaseException) -> bool:
    from loky.process_executor import BrokenProcessPool

    return isinstance(failure, BrokenProcessPool)


def _begin_worker(parent: int) -> None:
    """Ctrl-C is for the parent to act on; a worker whose parent is gone has nobody to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
