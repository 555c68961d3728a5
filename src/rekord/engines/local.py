"""Tasks on the cores of this machine: in this process, and in others beside it.

The calling process is one of the workers, so that a small conversion starts no other. Other processes come from loky:
they neither fork nor import the caller's main module, so that scripts without a main guard work.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from rekord.engines.turns import Call, Turns, is_loss
from rekord.errors import RekordError, error

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
        self._turns: Turns | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        # Threads end here, not when somebody lets go of the generator below: that may be a finalizer.
        if self._turns is not None:
            self._turns.stop()
        # Nobody waits for their results any more: they need not be asked, nor waited for while they start.
        self._forget()

    def run(
        self,
        function: Callable[..., _Result] | None,
        inline: Callable[..., _Result],
        calls: Sequence[Call],
        *,
        threads: bool = False,
        patient: bool = False,
    ) -> Iterator[tuple[int, _Result | Exception]]:
        """The result of each call, or what it raised, as they come; stop asking, and no further call is begun.

        `function` runs in other processes, `inline` in this one; both take the arguments of a call. With `threads`
        several run in this one at once. If `patient`, no process is started unless there is enough to do for it.
        """
        turns = self._turns = Turns(calls)
        others = min(self.count, len(calls)) - 1
        losses = 0
        try:
            if threads:
                turns.start_threads(others, inline)
            while turns.left:
                if others > 0 and function is not None and (not patient or self._pool or turns.is_long()):
                    turns.hire(self._executor(), self.count - 1, function)
                call = turns.next_call()
                if call is not None:
                    yield call[0], _tried(inline, call)
                    turns.finished()
                lost = False
                for theirs, result, current in turns.results(wait=call is None):
                    if isinstance(result, BaseException) and is_loss(result):
                        turns.put_back(theirs)
                        lost = lost or current
                        continue
                    if isinstance(result, BaseException) and not isinstance(result, Exception):
                        raise result
                    yield theirs[0], result
                if lost:
                    # One dead worker takes the pool with it, and every call that was in it.
                    losses += 1
                    self._forget()
                    turns.dismiss()
                    if losses > _MOST_LOSSES:
                        raise _keep_dying(losses)
        finally:
            turns.stop()

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


def _keep_dying(losses: int) -> RekordError:
    return error(
        "X517",
        expected="workers that live until their task is done",
        found=f"workers that died {losses} times",
        likely="the machine is short of memory, and the system ends the largest processes",
        do="run the same command again with fewer --workers: it continues where it stopped",
    )


def _tried(inline: Callable[..., _Result], call: Call) -> _Result | Exception:
    try:
        return inline(*call[1])
    except Exception as failure:
        return failure


def _begin_worker(parent: int) -> None:
    """Ctrl-C is for the parent to act on; a worker whose parent is gone has nobody to work for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
