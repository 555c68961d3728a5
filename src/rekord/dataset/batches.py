"""`split.batches(…)`: decoded batches, in any order, with a state that can be saved and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

from rekord.codec.plan import CodecPlan
from rekord.dataset.background import IdlePool, ordered_work
from rekord.dataset.loader import BatchReader, Loader, LoaderState
from rekord.dataset.order import RankSteps, Remainder
from rekord.dataset.postprocess import Batch
from rekord.dataset.read_transforms import BatchTransformer
from rekord.dataset.readers.indexed import IndexedDecoder
from rekord.dataset.readers.sequential import THREAD_NAME, SequentialBatches, new_pool
from rekord.dataset.samplers import Sampler
from rekord.dataset.shards import Shards
from rekord.storage.portability import usable_cores

_MAX_DEFAULT_THREADS = 4
"""More threads than this read no faster from one disk; who knows better says so."""


@dataclass(frozen=True)
class BatchRequest:
    """What is asked of a split: which records, in which order, in which form."""

    shards: Shards
    plan: Callable[[], CodecPlan]  # of the columns that come out
    sampler: Sampler
    batch_size: int
    split: str
    dataset: Callable[[], str]  # its digest
    epoch: int = 0
    rank: int = 0
    world: int = 1
    remainder: Remainder = "keep"
    transform: BatchTransformer | None = None  # of rows, before anything else is done with them
    images: Callable[[Batch], Batch] | None = None  # decodes them; its errors name the row in the batch
    finish: Callable[[Batch], Batch] | None = None
    prefetch: int = 2
    threads: int = 1
    worker: int = 0  # of a framework's loader, which takes every `workers`-th step
    workers: int = 1
    delivered: int = 0  # steps of this worker that are left out, because they were delivered before

    def decoding(self) -> tuple[CodecPlan, Callable[[Batch], Batch] | None]:
        """The plan that records are decoded by, and what may refuse a row of what it gives."""
        if self.transform is None:
            return self.plan(), self.images
        return self.transform.reading(), self.transform.then(self.images)

    @property
    def streams(self) -> bool:
        """Whether the files can be read from front to end, which needs no index."""
        plain = self.sampler.is_file_order and self.world == 1 and self.workers == 1
        return plain and self.remainder != "pad"

    def steps(self, consumed: int) -> RankSteps:
        """The steps from a position on."""
        return RankSteps(self.sampler.size, self.batch_size, self.rank, self.world, self.remainder, consumed)

    def state(self, epoch: int, consumed: int) -> LoaderState:
        """The state at a position of an epoch."""
        return LoaderState(self.dataset(), self.split, self.sampler.to_dict(), epoch, consumed)

    def resume(self, state: LoaderState) -> BatchRequest:
        """The same request, to resume from a state; a UsageError where it is the state of something else."""
        request = replace(self, sampler=self.sampler.resume(state.order))
        state.check_matches(request.state(0, 0))
        return request


class Batches(Loader[Batch]):
    """Batches of a split, `{column: values}` each: an iterable in which every `iter()` is a whole epoch.

    The first is `epoch`, then the next one each time, whether or not the last was finished. After
    `load_state_dict()` the next `iter()` resumes there, with any rank, world, batch size, columns and threads.
    """

    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[Batch]:
        return read_batches(request, epoch, consumed)


def read_batches(request: BatchRequest, epoch: int, consumed: int) -> BatchReader[Batch]:
    """The batches of an epoch from a position on: of all files from front to end, or of records by number."""
    plan, images = request.decoding()
    if request.streams:
        return SequentialBatches(
            request.shards,
            plan,
            request.batch_size,
            finish=request.finish,
            images=images,
            threads=request.threads,
            prefetch=request.prefetch,
            consumed=consumed,
            drop_remainder=request.remainder == "drop",
        )
    pool = new_pool()
    steps = request.steps(consumed)
    own = islice(steps.worker_steps(request.worker, request.workers), request.delivered, None)
    decoders = IdlePool(lambda: IndexedDecoder(request.shards, plan, pool, images))

    def decode(step: int) -> tuple[Batch, int]:
        with decoders.write_borrowed() as decoder:
            batch = decoder.decode(request.sampler.records(epoch, steps.positions(step)))
        return (request.finish(batch) if request.finish else batch), steps.consumed_after(step)

    return ordered_work(
        lambda: next(own, None), decode, threads=request.threads, prefetch=request.prefetch, name=THREAD_NAME
    )


def get_default_threads() -> int:
    """As many threads as this process may use cores, up to a sensible number; one in a worker of torch."""
    cores = usable_cores()
    return min(cores, _MAX_DEFAULT_THREADS)


def make_worker_request(request: BatchRequest, worker: int, workers: int, delivered: int = 0) -> BatchRequest:
    """The same request for one of a framework's loader workers: every `workers`-th step, on one thread."""
    return replace(request, worker=worker, workers=workers, delivered=delivered, threads=1)
