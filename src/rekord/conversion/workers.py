"""Tasks on the cores of this machine: on threads of this process, and in worker processes."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from rekord.errors import RekordError, error
from rekord.log import get_logger
from rekord.storage.portability import usable_cores

_Result = TypeVar("_Result")

_log = get_logger(__name__)

_MAX_FEEDER_SECONDS = 2.0
_MAX_WORKER_LOSSES = 3
"""How often a call may be lost with its process before it is given up."""


def available_workers() -> int:
    """The cores that this process may use: its affinity, and the quota of its cgroup."""
    cores = usable_cores()
    with suppress(OSError, ValueError), open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
        quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, max(1, int(quota) // int(period)))
    return cores


class WorkerPool:
    """Runs calls of one function; a class for the lifetime of the other processes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.processes: set[int] = set()  # that have run a call
        self.remark: str | None = None  # why fewer than `count` did
        self._pool: Any = None
        self._scheduler: CallScheduler | None = None

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        # Threads end here, not when the generator below is dropped: that may happen in a finalizer.
        if self._scheduler is not None:
            self._scheduler.stop()
        # Their results are no longer needed, so neither their tasks nor their start are awaited.
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
        """The result of each call, or what it raised, as they complete. Closing the generator starts no further call.

        `function` runs in worker processes, `inline` in this one; both take the arguments of a call. With `threads`,
        several run in this process at once. If `patient`, processes start only if there is enough work left for them.
        """
        turns = self._scheduler = CallScheduler(calls)
        others = min(self.count, len(calls)) - 1
        try:
            if threads:
                turns.start_threads(others, inline)
            while turns.left:
                yield from self._advance(turns, function if others > 0 else None, inline, patient=patient)
        finally:
            turns.stop()

    def run_in_order(
        self, function: Callable[[Any], _Result], inline: Callable[[Any], _Result], items: Iterable[PortableItem]
    ) -> Iterator[_Result | Exception]:
        """The result for each item, or what it raised, in the order of the items.

        Few items are taken ahead of the result that is consumed, however long that one takes: two per process. An
        exception of `items` is raised once the results before it are consumed.
        """
        turns = self._scheduler = CallScheduler(())
        waiting = iter(items)
        done: dict[int, _Result | Exception] = {}
        taken = given = 0
        failure: Exception | None = None
        is_open = True
        try:
            while True:
                while is_open and taken - given < (2 * self.count if self.count > 1 else 1):
                    try:
                        item = next(waiting)
                    except StopIteration:
                        is_open = False
                        break
                    except Exception as raised:
                        failure, is_open = raised, False
                        break
                    if self.count == 1 or item.is_portable:
                        turns.add((taken, (item,)))
                    else:
                        done[taken] = self._call_inline(inline, (taken, (item,)))
                    taken += 1
                if given in done:
                    yield done.pop(given)
                    given += 1
                elif given < taken:
                    shared = function if self.count > 1 and taken > 1 else None
                    done.update(self._advance(turns, shared, inline, patient=False))
                else:
                    break
        finally:
            turns.stop()
        if failure is not None:
            raise failure

    def _advance(
        self,
        turns: CallScheduler,
        function: Callable[..., _Result] | None,
        inline: Callable[..., _Result],
        *,
        patient: bool,
    ) -> Iterator[tuple[int, _Result | Exception]]:
        """Run one call in this process, or wait a moment if there is none; the results that are complete by then."""
        if function is not None and (not patient or self._pool or turns.has_suspects or turns.is_long()):
            turns.add_processes(self._executor(), self.count - 1, function)
        call = turns.next_call()
        if call is not None:
            yield call[0], self._call_inline(inline, call)
            turns.finished()
        is_broken = False
        for theirs, result, current in turns.results(wait=call is None):
            if isinstance(result, BaseException) and is_worker_loss(result):
                is_broken = is_broken or current
                losses = turns.requeue(theirs, wake=not current)
                if losses > _MAX_WORKER_LOSSES:
                    yield theirs[0], _worker_crash_error(losses)
                continue
            if isinstance(result, BaseException) and not isinstance(result, Exception):
                raise result
            if isinstance(result, WorkerResult):
                self.processes.add(result.process)
                result = result.value
            yield theirs[0], result
        if is_broken:
            # A dead worker breaks its pool, and every call in it fails.
            _log.info("a worker died: its task is tried again")
            self._forget()
            turns.drop_processes()

    def _call_inline(self, inline: Callable[..., _Result], call: Call) -> _Result | Exception:
        self.processes.add(os.getpid())
        return _try_call(inline, call)

    def _executor(self) -> Any:
        if self._pool is None:
            from loky import ProcessPoolExecutor

            self._pool = ProcessPoolExecutor(
                self.count - 1, timeout=None, initializer=_init_worker, initargs=(os.getpid(),)
            )
        return self._pool

    def _forget(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        feeder = getattr(pool._call_queue, "_thread", None)
        pool.shutdown(wait=True, kill_workers=True)
        if feeder is not None:
            # loky does not wait for this daemon thread, whose last act is to unlink semaphores. If the interpreter
            # ends first, loky's resource tracker warns of them. The thread may be writing to a pipe nobody reads.
            feeder.join(_MAX_FEEDER_SECONDS)


class PortableItem(Protocol):
    """An argument of a call; one that cannot be sent to another process is used in this one."""

    @property
    def is_portable(self) -> bool: ...


class WorkerResult(NamedTuple):
    """What a call returned in another process."""

    process: int
    value: Any


def _call_in_worker(function: Callable[..., Any], *arguments: Any) -> WorkerResult:
    return WorkerResult(os.getpid(), function(*arguments))


def _worker_crash_error(losses: int) -> RekordError:
    return error(
        "X517",
        expected="workers that run until their task is done",
        found=f"a task whose worker died {losses} times",
        likely="memory ran out, and the system killed the largest processes; or code that rows pass through crashes",
        do="workers=1, then run the same command again: it resumes where it stopped",
    )


def _try_call(inline: Callable[..., _Result], call: Call) -> _Result | Exception:
    try:
        return inline(*call[1])
    except Exception as failure:
        return failure


def _init_worker(parent: int) -> None:
    """Leave Ctrl-C to the parent, and exit when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


Call = tuple[int, tuple[Any, ...]]

PROCESS_START_DELAY_SECONDS = 0.3
"""How long the caller works alone before starting processes is considered."""

MIN_REMAINING_SECONDS = 1.5
"""Processes are started only if this much work is left: each takes about half a second to start."""

_JOIN_SECONDS = 10.0  # for threads to finish their current calls


class CallScheduler:
    """The calls of one run, and their results."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._waiting = deque(calls)
        self._lock = threading.Lock()
        self._done: SimpleQueue[tuple[Call, Any, Any]] = SimpleQueue()  # with the pool that it came from
        self._pool: Any = None
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._began = time.monotonic()
        self._calls = len(calls)
        self.left = len(calls)  # whose results were not returned yet
        self._idle = 0  # processes that found no call waiting
        self._function: Callable[..., Any] | None = None
        # Calls that were lost with their process. One at a time is tried again, and never in this process, so that
        # the one that kills its process is found, and does not kill this one.
        self._suspects: deque[Call] = deque()
        self._running_suspect: Call | None = None
        self._losses: Counter[int] = Counter()

    @property
    def has_suspects(self) -> bool:
        return bool(self._suspects)

    def add(self, call: Call) -> None:
        """Add a call."""
        with self._lock:
            self._waiting.append(call)
            self._calls += 1
            self.left += 1
            wake = self._idle > 0
            self._idle -= wake
        if wake:
            self._dispatch(self._pool)

    def start_threads(self, count: int, inline: Callable[..., Any]) -> None:
        """Start `count` threads that run calls."""
        for number in range(count):
            thread = threading.Thread(target=self._work, args=(inline,), name=f"rekord-write-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def is_long(self) -> bool:
        """Whether enough work is left for processes to pay off, judging by the speed so far."""
        seconds = time.monotonic() - self._began
        if seconds < PROCESS_START_DELAY_SECONDS:
            return False
        finished = self._calls - self.left
        return finished == 0 or seconds / finished * self.left > MIN_REMAINING_SECONDS

    def add_processes(self, pool: Any, count: int, function: Callable[..., Any]) -> None:
        """Let the processes of a pool run calls."""
        if pool is self._pool:
            return
        self._pool, self._function = pool, function
        for _ in range(count):
            with suppress(Exception):  # a pool that is already broken raises at the next call
                pool.submit(_preload_modules).add_done_callback(lambda _: self._dispatch(pool))

    def drop_processes(self) -> None:
        """Forget the processes, which are dead."""
        with self._lock:
            self._pool, self._idle, self._running_suspect = None, 0, None

    def stop(self) -> None:
        """Start no further call, and wait for the running ones of threads."""
        with self._lock:
            self._stopped = True
            self._waiting.clear()
            self._suspects.clear()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def next_call(self) -> Call | None:
        """The next call to run."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def finished(self) -> None:
        """Count a call that the caller's own thread has run."""
        self.left -= 1

    def requeue(self, call: Call, *, wake: bool) -> int:
        """Put back a call that was lost with its process, unless that happened too often; returns how often.

        With `wake`, an idle process is given the call: the processes are not those of the pool that died.
        """
        with self._lock:
            self._losses[call[0]] += 1
            losses = self._losses[call[0]]
            if losses <= _MAX_WORKER_LOSSES:
                self.left += 1
                self._suspects.append(call)
            wake = wake and losses <= _MAX_WORKER_LOSSES and self._idle > 0
            self._idle -= wake
        if wake:
            self._dispatch(self._pool)
        return losses

    def results(self, *, wait: bool) -> Iterator[tuple[Call, Any, bool]]:
        """Finished calls with their results; with `wait`, waits up to half a second for the first one.

        The flag is False for results of a dropped pool: all calls of a dead pool fail, one by one.
        """
        while self.left:
            try:
                call, result, pool = self._done.get(timeout=0.5) if wait else self._done.get_nowait()
            except Empty:
                return
            wait = False
            self.left -= 1
            yield call, result, pool is None or pool is self._pool

    def _work(self, inline: Callable[..., Any]) -> None:
        while (call := self.next_call()) is not None:
            try:
                result: Any = inline(*call[1])
            except BaseException as failure:
                result = failure
            self._done.put((call, result, None))

    def _dispatch(self, pool: Any) -> None:
        """Give a process its next call. Runs on a thread of the pool when the previous call is done."""
        with self._lock:
            if self._stopped or pool is not self._pool:
                return
            if self._suspects and self._running_suspect is None:
                call = self._running_suspect = self._suspects.popleft()
            elif self._waiting:
                call = self._waiting.popleft()
            else:
                self._idle += 1
                return
        try:
            future = pool.submit(_call_in_worker, self._function, *call[1])
        except Exception as failure:
            self._done.put((call, failure, pool))
            return
        future.add_done_callback(lambda done: self._take(pool, call, done))

    def _take(self, pool: Any, call: Call, done: Future[Any]) -> None:
        failure = done.exception()
        with self._lock:
            if call is self._running_suspect:
                self._running_suspect = None
        self._done.put((call, done.result() if failure is None else failure, pool))
        if failure is None or not is_worker_loss(failure):
            self._dispatch(pool)


def is_worker_loss(failure: BaseException) -> bool:
    """Whether a call was lost with its process, rather than failing itself."""
    from loky.process_executor import BrokenProcessPool

    return isinstance(failure, BrokenProcessPool)


def _preload_modules() -> None:
    """Import in a worker process what its calls need."""
    import_module("rekord.conversion.tasks")
