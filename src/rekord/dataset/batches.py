"""`split.batches(…)`: an iterator over decoded batches, in any order, that can be saved and gone on with."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from rekord.codec.columns import Column
from rekord.codec.plan import CodecPlan
from rekord.dataset.decoding import (
    WORKERS,
    Begin,
    decode_inline,
    decode_threaded,
    end_workers,
    new_pool,
    sensible,
)
from rekord.dataset.indexed import IndexedDecoder
from rekord.dataset.order import Ids
from rekord.dataset.recipes import Recipe
from rekord.dataset.shards import Shards
from rekord.dataset.state import State
from rekord.dataset.steps import Remainder, Steps
from rekord.dataset.transformed import Transforming
from rekord.errors import error

Batch: TypeAlias = "dict[str, Column]"

_MOST_USUAL_THREADS = 4
"""More threads than this read no faster from one disk; who knows better says so."""


@dataclass(frozen=True)
class Request:
    """What is asked of a split: which records, in which order, in which form."""

    shards: Shards
    plan: Callable[[], CodecPlan]  # of the columns that come out
    recipe: Recipe
    batch_size: int
    split: str
    dataset: Callable[[], str]  # its digest
    epoch: int = 0
    rank: int = 0
    world: int = 1
    remainder: Remainder = "keep"
    transform: Transforming | None = None  # of rows, before anything else is done with them
    pictures: Callable[[Batch], Batch] | None = None  # decodes them; its errors name the row in the batch
    finish: Callable[[Batch], Batch] | None = None
    prefetch: int = 2
    threads: int = 1
    worker: int = 0  # of a framework's loader, which takes every `workers`-th step
    workers: int = 1

    def decoding(self) -> tuple[CodecPlan, Callable[[Batch], Batch] | None]:
        """The plan that records are decoded by, and what may refuse a row of what it gives."""
        if self.transform is None:
            return self.plan(), self.pictures
        return self.transform.reading(), self.transform.then(self.pictures)

    @property
    def streams(self) -> bool:
        """Whether the files can be read from front to end, which needs no index."""
        plain = self.recipe.is_file_order and self.world == 1 and self.workers == 1
        return plain and self.remainder != "pad"

    def steps(self, consumed: int) -> Steps:
        """The steps from a position on."""
        return Steps(self.recipe.size, self.batch_size, self.rank, self.world, self.remainder, consumed)


def state_at(request: Request, epoch: int, consumed: int) -> State:
    """The state at a place of what is asked for."""
    return State(request.dataset(), request.split, request.recipe.to_dict(), epoch, consumed)


def going_on(request: Request, state: State) -> Request:
    """The same request for who goes on from a state; a UsageError where it is one of something else."""
    request = replace(request, recipe=request.recipe.going_on(state.order))
    state.check_fits(state_at(request, 0, 0))
    return request


class Batches(Iterator[Batch]):
    """Batches of a split, `{column: values}` each.

    It is its own iterator, for one consumer. Threads start at the first `next()`. After the last batch `next()`
    keeps raising StopIteration; the next `iter()` begins the next epoch. `state_dict()` says where it is, and
    `load_state_dict()` goes on from there, with any rank, world, batch size, columns and threads.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._epoch = request.epoch
        self._consumed = 0
        self._begun_at = 0  # what was consumed when this epoch was begun or gone on with
        self._running: Iterator[tuple[Batch, int]] | None = None
        self._process: int | None = None
        self._exhausted = False

    @property
    def epoch(self) -> int:
        """The epoch that is being delivered, or was last."""
        return self._epoch

    @property
    def consumed(self) -> int:
        """How many positions of the epoch are delivered, over all ranks."""
        return self._consumed

    @property
    def padded(self) -> int:
        """How many records of an epoch, over all ranks, come a second time, with remainder="pad"."""
        return self._request.steps(self._begun_at).padded

    def __len__(self) -> int:
        """How many batches this rank has in an epoch, from where it began."""
        return len(self._request.steps(self._begun_at))

    def __iter__(self) -> Batches:
        if self._exhausted:
            self._epoch += 1
            self._consumed = self._begun_at = 0
            self._running, self._exhausted = None, False
        return self

    def __next__(self) -> Batch:
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
            batch, self._consumed = next(self._running)
            return batch
        except BaseException:
            # At the end, and after a failure too: what has failed does not go on.
            self._exhausted = True
            raise

    def state_dict(self) -> dict[str, Any]:
        """Where this is: a few numbers, fit for JSON. At a synchronous step it is the same on all ranks."""
        return self._state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; a UsageError where it is one of another dataset, split or order."""
        loaded = State.from_dict(state)
        request = going_on(self._request, loaded)
        self.close()
        self._request = request
        self._running, self._exhausted = None, False
        self._epoch = loaded.epoch
        self._consumed = self._begun_at = loaded.consumed

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
            do="send the Split, and call .batches(…) there; state_dict() can be sent too",
        )

    def _state(self) -> State:
        return state_at(self._request, self._epoch, self._consumed)

    def _start(self) -> Iterator[tuple[Batch, int]]:
        if self._request.streams:
            return _streamed(self._request, self._consumed)
        return _indexed(self._request, self._epoch, self._consumed)


def _streamed(request: Request, consumed: int) -> Iterator[tuple[Batch, int]]:
    """The batches of all files in order, from a record on, and how many records are delivered after each."""
    plan, pictures = request.decoding()
    begin = _after(request.shards, consumed)

    def finished(batch: Batch, rows: int) -> tuple[Batch, int]:
        return (request.finish(batch) if request.finish else batch), rows

    if request.threads == 1 and request.prefetch == 0:
        made = decode_inline(
            request.shards, plan, request.batch_size, after=finished, pictures=pictures, begin=begin
        )
    else:
        made = decode_threaded(
            request.shards,
            plan,
            request.batch_size,
            after=finished,
            pictures=pictures,
            threads=request.threads,
            prefetch=request.prefetch,
            begin=begin,
        )
    try:
        for *ready, rows in made:
            if request.remainder == "drop" and rows < request.batch_size:
                return
            consumed += rows
            yield ready.pop(), consumed  # nothing here holds on to a batch
    finally:
        made.close()  # type: ignore[attr-defined]


def _after(shards: Shards, consumed: int) -> Begin:
    """The file that holds record number `consumed`, and its number there."""
    if not consumed or not shards.counted:
        return 0, consumed
    done = 0
    while done < len(shards.paths) and shards.starts[done + 1] <= consumed:
        done += 1
    return done, consumed - int(shards.starts[done])


def _indexed(request: Request, epoch: int, consumed: int) -> Iterator[tuple[Batch, int]]:
    """The batches of this rank's steps from a position on, and how many positions are delivered after each."""
    plan, pictures = request.decoding()
    pool = new_pool()
    steps = request.steps(consumed)
    idle: list[IndexedDecoder] = []

    def made(step: int) -> Batch:
        ids: Ids = request.recipe.records(epoch, steps.positions(step))
        try:
            decoder = idle.pop()
        except IndexError:
            decoder = IndexedDecoder(request.shards, plan, pool, pictures)
        batch = decoder.decode(ids)
        idle.append(decoder)  # not after a failure: it may hold half a batch
        return request.finish(batch) if request.finish else batch

    own = steps.of_worker(request.worker, request.workers)
    if request.threads == 1 and request.prefetch == 0:
        for step in own:
            yield made(step), steps.consumed_after(step)
        return
    process = os.getpid()
    count, ahead = sensible(request.threads, request.prefetch)
    threads = ThreadPoolExecutor(count, thread_name_prefix=WORKERS)
    waiting: deque[tuple[int, Future[Batch]]] = deque()
    try:
        while True:
            while len(waiting) < ahead:
                coming = next(own, None)
                if coming is None:
                    break
                waiting.append((coming, threads.submit(made, coming)))
            if not waiting:
                return
            step = waiting[0][0]
            yield waiting.popleft()[1].result(), steps.consumed_after(step)  # nothing here holds on to it
    finally:
        # In a forked child there are no threads, and their locks are as they were: hands off.
        if os.getpid() == process:
            for _, future in waiting:
                future.cancel()
            end_workers(threads)


def usual_threads() -> int:
    """As many threads as this process may use cores, up to a sensible number; one in a worker of torch."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_USUAL_THREADS)


def of_worker(request: Request, worker: int, workers: int) -> Request:
    """The same request for one of a framework's loader workers: every `workers`-th step, on one thread."""
    return replace(request, worker=worker, workers=workers, threads=1)


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
