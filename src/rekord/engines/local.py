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
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rekord.errors import RekordError, error

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
        # Nobody waits for their results any more: they need not be asked, nor waited for while they start.
        self._forget()

    def run(
        self, function: Callable[..., _Result], inline: Callable[..., _Result], calls: Sequence[Call]
    ) -> Iterator[tuple[int, _Result | Exception]]:
        """The result of each call, or what it raised, as they come; stop asking, and no further call is begun.

        `function` runs in other processes, `inline` in this one; both take the arguments of a call.
        """
        if self.count == 1 or len(calls) < 2:
            yield from self._alone(inline, deque(calls))
            return
        losses = 0
        turns = _Turns(function, calls)
        try:
            while turns.left:
                turns.hire(self._executor(), self.count - 1)
                call = turns.next_call()
                if call is not None:
                    yield call[0], _tried(inline, call)
                    turns.finished()
                lost = False
                for theirs, result in turns.results(wait=call is None):
                    if isinstance(result, BaseException) and _is_loss(result):
                        turns.put_back(theirs)
                        lost = True
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


class _Turns:
    """Calls that wait, and who does which: this process, or a worker as soon as it is ready for another.

    Nothing is promised to a worker that is still starting, which takes longer than many a call.
    """

    def __init__(self, function: Callable[..., Any], calls: Sequence[Call]) -> None:
        self._function = function
        self._waiting = deque(calls)
        self._lock = threading.Lock()
        self._done: SimpleQueue[tuple[Call, Any]] = SimpleQueue()
        self._pool: Any = None
        self._stopped = False
        self.left = len(calls)  # whose results were not handed out

    def hire(self, pool: Any, count: int) -> None:
        """Let these workers take part."""
        if pool is self._pool:
            return
        self._pool = pool
        for _ in range(count):
            with suppress(Exception):  # a pool that is broken already says so at the next call
                pool.submit(_get_ready).add_done_callback(lambda _: self._give(pool))

    def dismiss(self) -> None:
        """Forget the workers: they are dead."""
        with self._lock:
            self._pool = None

    def stop(self) -> None:
        """No further call is begun."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()

    def next_call(self) -> Call | None:
        """A call for this process."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def finished(self) -> None:
        """This process is done with its call."""
        self.left -= 1

    def put_back(self, call: Call) -> None:
        """A call that was lost with its worker."""
        with self._lock:
            self.left += 1
            self._waiting.appendleft(call)

    def results(self, *, wait: bool) -> Iterator[tuple[Call, Any]]:
        """What workers have finished; with `wait` there is nothing else to do for a while."""
        while self.left:
            try:
                call, result = self._done.get(timeout=0.5) if wait else self._done.get_nowait()
            except Empty:
                return
            wait = False
            self.left -= 1
            yield call, result

    def _give(self, pool: Any) -> None:
        """Give a worker its next call. Runs on a thread of the pool, when the call before is done."""
        with self._lock:
            if self._stopped or pool is not self._pool or not self._waiting:
                return
            call = self._waiting.popleft()
        try:
            future = pool.submit(self._function, *call[1])
        except Exception as failure:
            self._done.put((call, failure))
            return
        future.add_done_callback(lambda done: self._take(pool, call, done))

    def _take(self, pool: Any, call: Call, done: Future[Any]) -> None:
        failure = done.exception()
        self._done.put((call, done.result() if failure is None else failure))
        if failure is None or not _is_loss(failure):
            self._give(pool)


def _get_ready() -> None:
    """Load in a worker what its calls will need."""
    import_module("rekord.engines.convert")


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
