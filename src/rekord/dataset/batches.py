"""`split.batches(…)`: decoded batches, in any order, with a state that can be saved and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from rekord.codec.plan import CodecPlan
from rekord.dataset.background import OrderedWork
from rekord.dataset.loader import Loader, Reading, State
from rekord.dataset.order import Ids, Remainder, Steps
from rekord.dataset.postprocess import Batch
from rekord.dataset.read_transforms import Transforming
from rekord.dataset.readers.indexed import IndexedDecoder
from rekord.dataset.readers.sequential import (
    THREADS,
    Begin,
    InlineBatches,
    ThreadedBatches,
    new_pool,
    sensible,
)
from rekord.dataset.samplers import Recipe
from rekord.dataset.shards import Shards
from rekord.errors import error
from rekord.storage.portability import usable_cores

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
    delivered: int = 0  # steps of this worker that are left out, because they were delivered before

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

    def state(self, epoch: int, consumed: int) -> State:
        """The state at a position of an epoch."""
        return State(self.dataset(), self.split, self.recipe.to_dict(), epoch, consumed)

    def resume(self, state: State) -> Request:
        """The same request, to resume from a state; a UsageError where it is the state of something else."""
        request = replace(self, recipe=self.recipe.going_on(state.order))
        state.check_fits(request.state(0, 0))
        return request


class Batches(Loader[Batch]):
    """Batches of a split, `{column: values}` each: an iterable in which every `iter()` is a whole epoch.

    The first is `epoch`, then the next one each time, whether or not the last was finished. After
    `load_state_dict()` the next `iter()` resumes there, with any rank, world, batch size, columns and threads.
    """

    def _read(self, request: Request, epoch: int, consumed: int) -> Reading[Batch]:
        return read_batches(request, epoch, consumed)


def read_batches(request: Request, epoch: int, consumed: int) -> Reading[Batch]:
    """The batches of an epoch from a position on."""
    if request.streams:
        return _Streamed(request, consumed)
    return _Indexed(request, epoch, consumed)


class _Streamed:
    """The batches of all files in order, from a record on."""

    def __init__(self, request: Request, consumed: int) -> None:
        plan, pictures = request.decoding()
        begin = _after(request.shards, consumed)

        def finished(batch: Batch, rows: int) -> tuple[Batch, int]:
            return (request.finish(batch) if request.finish else batch), rows

        self._made: InlineBatches[tuple[Batch, int]] | ThreadedBatches[tuple[Batch, int]]
        if request.threads == 1 and request.prefetch == 0:
            self._made = InlineBatches(
                request.shards, plan, request.batch_size, after=finished, pictures=pictures, begin=begin
            )
        else:
            self._made = ThreadedBatches(
                request.shards,
                plan,
                request.batch_size,
                after=finished,
                pictures=pictures,
                threads=request.threads,
                prefetch=request.prefetch,
                begin=begin,
            )
        self._full = request.batch_size if request.remainder == "drop" else 0
        self._consumed = consumed

    def __next__(self) -> tuple[Batch, int]:
        batch, rows = next(self._made)
        if rows < self._full:
            raise StopIteration
        self._consumed += rows
        return batch, self._consumed

    def close(self) -> None:
        """End the threads, and close the file."""
        self._made.close()


def _after(shards: Shards, consumed: int) -> Begin:
    """The file that holds record number `consumed`, and its number there."""
    if not consumed or not shards.counted:
        return 0, consumed
    done = 0
    while done < len(shards.paths) and shards.starts[done + 1] <= consumed:
        done += 1
    return done, consumed - int(shards.starts[done])


class _Indexed:
    """The batches of this rank's steps from a position on."""

    def __init__(self, request: Request, epoch: int, consumed: int) -> None:
        plan, pictures = request.decoding()
        pool = new_pool()
        steps = request.steps(consumed)
        own = islice(steps.of_worker(request.worker, request.workers), request.delivered, None)
        idle: list[IndexedDecoder] = []

        def decode(step: int) -> tuple[Batch, int]:
            ids: Ids = request.recipe.records(epoch, steps.positions(step))
            try:
                decoder = idle.pop()
            except IndexError:
                decoder = IndexedDecoder(request.shards, plan, pool, pictures)
            batch = decoder.decode(ids)
            idle.append(decoder)  # not after a failure: it may hold half a batch
            return (request.finish(batch) if request.finish else batch), steps.consumed_after(step)

        self._own = own
        self._decode = decode
        self._work: OrderedWork[int, tuple[Batch, int]] | None = None
        if request.threads > 1 or request.prefetch > 0:
            threads, ahead = sensible(request.threads, request.prefetch)
            self._work = OrderedWork(
                lambda: next(own, None), decode, threads=threads, ahead=ahead, name=THREADS
            )

    def __next__(self) -> tuple[Batch, int]:
        if self._work is not None:
            return next(self._work)
        return self._decode(next(self._own))

    def close(self) -> None:
        """End the threads."""
        if self._work is not None:
            self._work.close()


def usual_threads() -> int:
    """As many threads as this process may use cores, up to a sensible number; one in a worker of torch."""
    cores = usable_cores()
    return min(cores, _MOST_USUAL_THREADS)


def of_worker(request: Request, worker: int, workers: int, delivered: int = 0) -> Request:
    """The same request for one of a framework's loader workers: every `workers`-th step, on one thread."""
    return replace(request, worker=worker, workers=workers, delivered=delivered, threads=1)


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
