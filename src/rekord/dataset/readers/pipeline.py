"""The pipeline of all reading: frames are taken in order, decoded concurrently, and batches delivered in order.

Sequential reading (`readers/sequential.py`) and reading by record number (`Shards.gather`) differ in how they get
frames. The rest is the same: `BatchDecoder` verifies and decodes them and identifies an invalid record,
`BatchPipeline` finishes batches and keeps them in order, on the caller's thread or on several.

The garbage collector may run a finalizer on any thread, in the middle of anything: while a lock is held, or inside
`Thread.start()`. So the finalizer here only signals. It sets a flag and puts into a `SimpleQueue`, whose `put` is
safe to call from finalizers; the threads end by themselves after their current piece of work. Only an
explicit `close()` waits for them.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from rekord import _core
from rekord.codec.columns import Batch
from rekord.codec.decode import assemble_columns, new_batch, truncate_rows
from rekord.codec.plan import CodecPlan
from rekord.dataset.read import decode_error
from rekord.errors import RekordError
from rekord.location import Location

WorkItem = TypeVar("WorkItem")
Result = TypeVar("Result")
Tool = TypeVar("Tool")

_IDLE_BYTES = 256 << 20
_THREAD_NAME = "rekord-decode"
_MAX_THREADS = 256
_MAX_PREFETCH = 4096
"""More than a few hundred threads and a few thousand results ahead would only take more memory."""

_EXIT_SECONDS = 10.0
"""How long the end of the process waits for threads that are still working. One of them may hang in a
read that never returns."""

_SIGNAL_SECONDS = 0.5
"""A wait is repeated after this time, because a signal that arrives just before it does not end it."""


def new_pool() -> _core.Pool:
    """The buffers of one iteration. Tests replace it."""
    return _core.Pool(_IDLE_BYTES)


class FramePiece(Protocol):
    """Frames of some records in a slab, from byte `begin` up to `end`."""

    @property
    def slab(self) -> _core.Slab: ...
    @property
    def begin(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def frames(self) -> int: ...

    def where(self, frame: int, at: int | None = None) -> Location:
        """The record number of a frame of the piece; `at` is its first byte in the piece, if known."""


class BatchDecoder:
    """Decodes frames with a plan, and optionally their images, batch after batch, for one thread at a time.

    `images` decodes the images of a batch. It may refuse a row, unlike what finishes a batch.
    """

    def __init__(self, plan: CodecPlan, pool: _core.Pool, images: Callable[[Batch], Batch] | None = None) -> None:
        self.pool = pool
        self._plan = plan
        self._image_decoder = images
        self._batch = new_batch(plan, pool)
        self._pieces: list[tuple[int, FramePiece]] = []  # with the first row of each

    def decode(self, piece: FramePiece) -> Batch:
        """The batch of a piece, complete or not at all."""
        try:
            self.add(piece)
        except RekordError:
            self._reset()  # the rows before it are dropped too
            raise
        rows, pieces, taken = self._reset()
        try:
            return self._assemble(taken, rows)
        except RekordError as failure:
            _locate_row(failure, pieces)
            raise

    def add(self, piece: FramePiece) -> None:
        """Verify and decode the frames of a piece. On a failure the rows before it are kept."""
        before = self._batch.rows
        self._pieces.append((before, piece))
        consumed, _, frame, row = self._batch.feed(
            piece.slab, piece.begin, piece.end, piece.end - piece.begin, before + piece.frames
        )
        if frame is not None or row is not None:
            where = piece.where(self._batch.rows - before, consumed)
            raise decode_error(self._plan, where, frame, row, piece.slab, piece.begin + consumed)

    def take(self) -> tuple[Batch | None, int, RekordError | None]:
        """The batch so far with its number of rows, if any, and the error of the row after it."""
        rows, pieces, taken = self._reset()
        failure = None
        while rows:
            try:
                return self._assemble(taken, rows), rows, failure
            except RekordError as met:
                if met.location.row is None:
                    raise
                # The rows before it come first; another column may have found an earlier one.
                rows = met.location.row
                taken = truncate_rows(self._plan, taken, rows)
                failure = _locate_row(met, pieces)
        return None, 0, failure

    def _assemble(self, taken: Any, rows: int) -> Batch:
        batch = assemble_columns(self._plan, taken, rows)
        return batch if self._image_decoder is None else self._image_decoder(batch)

    def _reset(self) -> tuple[int, list[tuple[int, FramePiece]], Any]:
        """Rows, pieces and the columns decoded so far; then start another batch."""
        rows, pieces, self._pieces = self._batch.rows, self._pieces, []
        return rows, pieces, self._batch.take()


def _locate_row(failure: RekordError, pieces: list[tuple[int, FramePiece]]) -> RekordError:
    """The error of a row in the batch, with its record number."""
    row = failure.location.row
    if row is not None:
        first, piece = next(item for item in reversed(pieces) if item[0] <= row)
        where = piece.where(row - first)
        failure.location = Location(feature=failure.location.feature).within(**where.to_dict())
    return failure


class BatchPipeline(Generic[WorkItem]):
    """Finished batches in order, each with the number of positions of the epoch delivered after it.

    One thread at a time takes work. The batches that `decode` makes of it may end with a failure, which is raised
    after they are delivered; `finish` is applied to each.
    """

    def __init__(
        self,
        take: Callable[[], WorkItem | None],
        decode: Callable[[WorkItem], Iterable[tuple[Batch, int]]],
        *,
        finish: Callable[[Batch], Batch] | None,
        threads: int,
        prefetch: int,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        def make(work: WorkItem) -> tuple[deque[tuple[Batch, int]], BaseException | None]:
            made: deque[tuple[Batch, int]] = deque()
            try:
                for batch, consumed in decode(work):
                    made.append((batch if finish is None else finish(batch), consumed))
            except BaseException as failure:
                return made, failure  # returned with them: its traceback holds this frame, which holds them
            return made, None

        self._work = ordered_work(take, make, threads=threads, prefetch=prefetch, name=_THREAD_NAME, on_end=on_end)
        self._ready: deque[tuple[Batch, int]] = deque()
        self._failure: BaseException | None = None

    def __next__(self) -> tuple[Batch, int]:
        while not self._ready:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                try:
                    raise failure
                finally:
                    del failure  # its traceback holds this frame
            self._ready, self._failure = next(self._work)
        return self._ready.popleft()

    def close(self) -> None:
        """End the threads, wait for them, and close files."""
        self._ready.clear()
        self._work.close()


class OrderedWork(Generic[WorkItem, Result]):
    """An iterator over `make(piece)` for each piece that `take()` returns, made by threads ahead of the caller.

    `take` returns None at the end, and `make` never does. `take` is called by one thread at a time, and results come
    in the order of its calls; `make` runs concurrently. At most `ahead` pieces are in progress or wait for `next()`.
    `on_end` is called once, by the last thread that ends.

    Threads start at the first `next()`. What `take` or `make` raises is raised by `next()` in its turn.
    """

    def __init__(
        self,
        take: Callable[[], WorkItem | None],
        make: Callable[[WorkItem], Result],
        *,
        threads: int,
        ahead: int,
        name: str,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._process = os.getpid()
        self._shared = _WorkerState(take, make, on_end, threads)
        self._ahead = ahead
        self._name = name
        self._waiting: deque[_Slot] = deque()
        self._threads: list[_Worker] = []

    def __next__(self) -> Result:
        if self._shared.stopped:
            raise StopIteration
        while len(self._waiting) < self._ahead:
            self._schedule()
        if not self._threads:
            self._start()
        result: Result | None
        result, failure = _get_result(self._waiting.popleft())
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback holds this frame
        if result is None:
            raise StopIteration
        return result

    def stop(self) -> None:
        """Let the threads end after their current work. Does not wait, so that a finalizer may call it."""
        # In a forked child there are no threads.
        if self._process == os.getpid():
            self._shared.stop()

    def close(self, timeout: float | None = None) -> None:
        """Stop, and wait until the threads have ended: at most `timeout` seconds for each, and only once."""
        self.stop()
        self._waiting.clear()
        if self._process == os.getpid():
            for thread in self._threads:
                if not thread.is_abandoned:
                    _join(thread, timeout)
                    thread.is_abandoned = timeout is not None and thread.is_alive()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # the threads have ended, and modules may be gone
            self.stop()

    def _schedule(self) -> None:
        slot: _Slot = SimpleQueue()
        self._waiting.append(slot)
        self._shared.slots.append(slot)
        self._shared.wanted.put(True)

    def _start(self) -> None:
        _end_threads_at_exit()
        for number in range(self._shared.running):
            thread = _Worker(self._shared, f"{self._name}-{number}")
            self._threads.append(thread)
            thread.start()


class InlineWork(Generic[WorkItem, Result]):
    """The same on the caller's thread: each piece is taken and made when its result is requested."""

    def __init__(
        self,
        take: Callable[[], WorkItem | None],
        make: Callable[[WorkItem], Result],
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._take = take
        self._make = make
        self._on_end = on_end
        self._is_closed = False

    def __next__(self) -> Result:
        piece = None if self._is_closed else self._take()
        if piece is None:
            raise StopIteration
        return self._make(piece)

    def close(self) -> None:
        """Take no more."""
        if not self._is_closed and self._on_end is not None:
            self._on_end()
        self._is_closed = True


def ordered_work(
    take: Callable[[], WorkItem | None],
    make: Callable[[WorkItem], Result],
    *,
    threads: int,
    prefetch: int,
    name: str,
    on_end: Callable[[], None] | None = None,
) -> OrderedWork[WorkItem, Result] | InlineWork[WorkItem, Result]:
    """Results in order, `prefetch` of them ahead; with one thread and no prefetch, on the caller's thread."""
    if is_inline(threads, prefetch):
        return InlineWork(take, make, on_end)
    count = min(threads, _MAX_THREADS)
    ahead = count + min(prefetch, _MAX_PREFETCH)
    return OrderedWork(take, make, threads=count, ahead=ahead, name=name, on_end=on_end)


def is_inline(threads: int, prefetch: int) -> bool:
    """Whether nothing runs in the background."""
    return threads == 1 and prefetch == 0


class IdlePool(Generic[Tool]):
    """Reusable tools that serve one thread at a time: as many as are in use at the same time."""

    def __init__(self, new: Callable[[], Tool]) -> None:
        self._new = new
        self._idle: list[Tool] = []

    @contextmanager
    def borrow(self) -> Iterator[Tool]:
        """A tool, which is reused unless the block fails: it may then hold half a batch."""
        try:
            tool = self._idle.pop()
        except IndexError:
            tool = self._new()
        yield tool
        self._idle.append(tool)


_Slot: TypeAlias = "SimpleQueue[tuple[Any, BaseException | None]]"
"""Accepts one result, None at the end, or a failure."""


class _WorkerState(Generic[WorkItem, Result]):
    """What the threads share with their owner. They hold no reference to the owner, so that it can be collected."""

    def __init__(
        self,
        take: Callable[[], WorkItem | None],
        make: Callable[[WorkItem], Result],
        on_end: Callable[[], None] | None,
        threads: int,
    ) -> None:
        self.take = take
        self.make = make
        self.on_end = on_end
        self.running = threads
        self.wanted: SimpleQueue[bool] = SimpleQueue()  # True for each requested result
        self.slots: deque[_Slot] = deque()  # where these results go, in order
        self.turn = threading.Lock()  # used by the threads alone
        self.stopped = False

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            for _ in range(self.running):
                self.wanted.put(False)

    def run(self) -> None:
        while self.wanted.get() and not self.stopped:
            with self.turn:
                slot = self.slots.popleft()
                taken = _call_safely(self.take)
            slot.put(taken if taken[0] is None else _call_safely(self.make, taken[0]))
            del slot, taken  # a waiting thread holds no references

    def ended(self) -> None:
        with self.turn:
            self.running -= 1
            last = self.running == 0
        if last and self.on_end is not None:
            self.on_end()


def _get_result(slot: _Slot) -> tuple[Any, BaseException | None]:
    while True:
        with suppress(Empty):
            return slot.get(timeout=_SIGNAL_SECONDS)


def _call_safely(call: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
    try:
        return call(*arguments), None
    except BaseException as failure:
        return None, failure


class _Worker(threading.Thread):
    # A daemon, because Python joins all others at exit before anything could stop them.
    def __init__(self, shared: _WorkerState[Any, Any], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.shared = shared
        self.is_abandoned = False  # nobody waits for it any more

    def run(self) -> None:
        try:
            self.shared.run()
        finally:
            self.shared.ended()


def _join(thread: threading.Thread, timeout: float | None) -> None:
    if thread is not threading.current_thread():
        with suppress(RuntimeError):  # it could not be started
            thread.join(timeout)


@lru_cache(maxsize=1)
def _end_threads_at_exit() -> None:
    atexit.register(_end_threads)


def _end_threads() -> None:
    """A daemon thread in native code at interpreter shutdown would end the process with a signal."""
    threads = [one for one in threading.enumerate() if isinstance(one, _Worker) and not one.is_abandoned]
    for thread in threads:
        thread.shared.stop()
    deadline = monotonic() + _EXIT_SECONDS
    for thread in threads:
        _join(thread, max(0.0, deadline - monotonic()))
