"""`split.batches(…)`: decoded batches, in any order, with a state that can be saved and resumed.

A loader is an iterable over the batches that a request describes; every `iter()` is an epoch. `Batches` is the loader
of decoded columns, feeds have loaders of tensors.
"""

from __future__ import annotations

import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from rekord import _core
from rekord.arguments import seed_number
from rekord.codec.columns import Batch
from rekord.codec.plan import CodecPlan
from rekord.dataset.order import RankSteps, Remainder
from rekord.dataset.read_transforms import BatchTransformer
from rekord.dataset.readers import pipeline
from rekord.dataset.readers.pipeline import BatchDecoder, BatchPipeline, IdlePool, is_inline
from rekord.dataset.readers.sequential import SequentialFrames, decode_jobs
from rekord.dataset.samplers import Sampler
from rekord.dataset.shards import Shards
from rekord.errors import RekordError, error, preview
from rekord.storage.portability import usable_cores

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

STATE_VERSION = 1
_MAX_STATE_NUMBER = 1 << 63
_MAX_DEFAULT_THREADS = 4
"""More threads than this read no faster from one disk; who knows better says so."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A place in an epoch, small and JSON.

    `consumed` are positions that were delivered, over all ranks, never those that were only prefetched. Rank, world,
    batch size, threads and columns are not part of it: they may differ when it is loaded.
    """

    dataset: str
    split: str
    order: Mapping[str, Any]
    epoch: int
    consumed: int

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON holds it."""
        return {**self._fields(), "checksum": self._checksum()}

    def _fields(self) -> dict[str, Any]:
        return {
            "rekord": STATE_VERSION,
            "dataset": self.dataset,
            "split": self.split,
            "order": dict(self.order),
            "epoch": self.epoch,
            "consumed": self.consumed,
        }

    def _checksum(self) -> str | None:
        """Of what it says: a state is a few numbers, and any other ones would be a place in an epoch too."""
        try:
            return f"crc32c:{_core.crc32c(msgspec.json.encode(self._fields(), order='sorted')):08x}"
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None  # what no JSON has been

    @classmethod
    def from_dict(cls, state: object) -> LoaderState:
        """A state that `to_dict` made, perhaps long ago and in another process."""
        if not isinstance(state, Mapping) or state.get("rekord") != STATE_VERSION:
            raise _state_error("a state that `state_dict()` gave", preview(state))
        kinds = {"dataset": str, "split": str, "order": Mapping, "epoch": int, "consumed": int}
        for name, kind in kinds.items():
            value = state.get(name)
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or (kind is int and not 0 <= value < _MAX_STATE_NUMBER):  # type: ignore[operator]
                raise _state_error(f"`{name}` in the state", preview(value))
        loaded = cls(**{name: state[name] for name in kinds})
        # States of earlier versions have none.
        checksum = state.get("checksum")
        if checksum not in (None, loaded._checksum()):
            raise _state_error(f"checksum {loaded._checksum()}, of what it says", preview(checksum))
        return loaded

    def check_matches(self, own: LoaderState) -> None:
        """Raise where this is a state of another dataset or another order."""
        for name, loaded, here, do in (
            ("dataset", self.dataset, own.dataset, "open the dataset that the state was saved with"),
            ("split", self.split, own.split, f"iterate over the split {self.split!r}"),
            ("order", dict(self.order), dict(own.order), "give the same shuffle and seed as then"),
        ):
            if loaded != here:
                raise error(
                    "U609",
                    f"the state is one of another {name}",
                    expected=preview(loaded),
                    found=preview(here),
                    do=do,
                )


def _state_error(expected: str, found: str) -> RekordError:
    return error(
        "U609",
        "this is no state of an iteration",
        expected=expected,
        found=found,
        do="load_state_dict(iterator.state_dict()), as saved",
    )


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


class BatchReader(Protocol[T_co]):
    """One pass over the batches of an epoch, or of the rest of one.

    It is dropped without `close()` where an iterator is abandoned. So nothing in it may wait in a finalizer.
    """

    def __next__(self) -> tuple[T_co, int]:
        """A batch, and how many positions of the epoch are delivered, over all ranks, once it is."""

    def close(self) -> None:
        """End threads, wait for them, and close files."""


@dataclass(slots=True)
class _EpochProgress:
    """Where an iterator is. The loader keeps it when the iterator is gone."""

    request: BatchRequest | None = None  # None until the first `next()`
    epoch: int = 0
    consumed: int = 0
    finished: bool = False

    def state(self) -> LoaderState | None:
        if self.request is None:
            return None
        if self.finished:
            return self.request.state(self.epoch + 1, 0)
        return self.request.state(self.epoch, self.consumed)


class Loader(Iterable[T]):
    """Batches of a split, epoch by epoch: every `iter()` is a whole epoch, the next one each time.

    That holds after a `break`, and after exactly `len()` batches, too. `load_state_dict()` makes the next `iter()`
    resume there. An iterator takes its epoch at its first `next()`: one that is never used starts nothing.
    """

    batch_sampler = None
    """As a DataLoader has it that is given whole batches. Lightning asks for it where there is a `sampler`."""

    def __init__(self, request: BatchRequest) -> None:
        self._request = request
        self._next = (request.epoch, 0)
        self._newest = _EpochProgress()
        self._iterator: weakref.ref[LoaderIterator[T]] | None = None

    def __len__(self) -> int:
        """How many batches this rank has in a whole epoch."""
        return len(self._request.steps(0))

    def __iter__(self) -> LoaderIterator[T]:
        iterator = LoaderIterator(self)
        self._newest = iterator._progress
        return iterator

    @property
    def epoch(self) -> int:
        """The epoch of the newest iterator; before its first `next()`, and after `set_epoch`, the next epoch."""
        return self._next_position()[0] if self._newest.request is None else self._newest.epoch

    @property
    def padded(self) -> int:
        """How many records of an epoch, over all ranks, come a second time, with remainder="pad"."""
        return self._request.steps(0).padded

    @property
    def sampler(self) -> EpochSetter:
        """What Lightning calls `set_epoch` of."""
        return EpochSetter(self)

    def set_epoch(self, epoch: int) -> None:
        """Let the next `iter()` be this epoch. A state of this epoch that was loaded is still resumed."""
        number = seed_number("epoch", epoch)
        upcoming, consumed = self._next_position()
        self._seek(number, consumed if number == upcoming else 0)

    def peek(self) -> T:
        """The batch that the next `iter()` begins with, read without threads. No epoch is started."""
        epoch, consumed = self._next_position()
        alone = replace(self._request, threads=1, prefetch=0)
        # What is resumed at the end of an epoch has no batch left in it.
        for place in ((epoch, consumed), (epoch + 1, 0)):
            reading = self._read(alone, *place)
            try:
                return next(reading)[0]
            except StopIteration:
                continue
            finally:
                reading.close()
        raise error(
            "U606",
            "there is no batch to show",
            expected="an epoch with at least one batch",
            found=f"{self._request.sampler.size:,} records, batches of {self._request.batch_size:,}"
            f" and remainder={self._request.remainder!r}",
            do='a smaller batch_size, or remainder="keep"',
        )

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator is: a few numbers, fit for JSON, the same on all ranks at a synchronous step.

        After the last batch of an epoch an empty rest of it is left. Once the iterator has raised StopIteration, it
        is the start of the next epoch.
        """
        state = self._newest.state()
        return (self._next_state() if state is None else state).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` resume there, with any rank, world, batch size, columns and threads.

        A UsageError where it is the state of another dataset, split or order.
        """
        loaded = LoaderState.from_dict(state)
        self._request = self._request.resume(loaded)
        self._seek(loaded.epoch, loaded.consumed)

    def close(self) -> None:
        """Close the iterator that last began to read. The next `iter()` starts as usual."""
        iterator = None if self._iterator is None else self._iterator()
        if iterator is not None:
            iterator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise _pickle_error("a loader")

    @abstractmethod
    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[T]:
        """Begin to read an epoch from a position on."""

    def _start(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[T]:
        """The same for an iterator, which may use more than this process."""
        return self._read(request, epoch, consumed)

    def _next_position(self) -> tuple[int, int]:
        """The epoch that the next iterator takes, and where in it."""
        return self._next

    def _next_state(self) -> LoaderState:
        return self._request.state(*self._next_position())

    def _claim(self) -> tuple[BatchRequest, int, int]:
        """The same with what is read, for the iterator that takes it now."""
        epoch, consumed = self._next
        self._next = (epoch + 1, 0)
        return self._request, epoch, consumed

    def _seek(self, epoch: int, consumed: int) -> None:
        self._next = (epoch, consumed)
        self._newest = _EpochProgress()


class LoaderIterator(Iterator[T], Generic[T]):
    """One epoch, or the rest of one, for one consumer.

    Threads start at the first `next()` and end with the epoch, with `close()`, at the end of a `with` block, or soon
    after the iterator was left behind.
    """

    def __init__(self, loader: Loader[T]) -> None:
        self._loader = loader
        self._progress = _EpochProgress()
        self._reading: BatchReader[T] | None = None
        self._process: int | None = None
        self._ended = False

    @property
    def epoch(self) -> int:
        """Its epoch."""
        return self._loader._next_position()[0] if self._progress.request is None else self._progress.epoch

    @property
    def consumed(self) -> int:
        """How many positions of the epoch are delivered, over all ranks."""
        return self._progress.consumed

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        if self._process not in (None, os.getpid()):
            raise _fork_error(self._process)
        try:
            reading = self._begin() if self._reading is None else self._reading
            batch, self._progress.consumed = next(reading)
            return batch
        except StopIteration:
            self._progress.finished = True
            self.close()
            raise
        except Exception:
            self.close()  # what has failed does not continue
            raise
        except BaseException:
            # An interrupt waits for no thread: those of a reading that is dropped end by themselves.
            self._reading, self._ended = None, True
            raise

    def state_dict(self) -> dict[str, Any]:
        """Where it is, in the form of the loader's `state_dict()`."""
        state = self._progress.state()
        return (self._loader._next_state() if state is None else state).to_dict()

    def close(self) -> None:
        """Stop early: files are closed, threads ended and waited for."""
        reading, self._reading, self._ended = self._reading, None, True
        if reading is not None and self._process == os.getpid():
            reading.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise _pickle_error("an iterator")

    def _begin(self) -> BatchReader[T]:
        request, epoch, consumed = self._loader._claim()
        progress = self._progress
        progress.request, progress.epoch, progress.consumed = request, epoch, consumed
        self._loader._newest = progress
        self._loader._iterator = weakref.ref(self)
        self._process = os.getpid()
        self._reading = self._loader._start(request, epoch, consumed)
        return self._reading


class EpochSetter:
    """Stands where trainers look for a sampler, to tell it the epoch."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """That of the loader."""
        self._loader.set_epoch(epoch)


def _fork_error(process: int | None) -> RekordError:
    return error(
        "U607",
        "iterator is used in a process that did not create it",
        expected=f"process {process}, which began to iterate",
        found=f"process {os.getpid()}, forked from it",
        do="call iter() in the process that uses it: a Dataset, Split or loader can be handed over by fork",
    )


def _pickle_error(what: str) -> RekordError:
    return error(
        "U607",
        f"{what} over batches cannot be pickled",
        expected="a Dataset or a Split, which can be handed to another process",
        found=what,
        do="send the Split, and call .batches(…) there; state_dict() can be sent too",
    )


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
    pool = pipeline.new_pool()
    decoders = IdlePool(lambda: BatchDecoder(plan, pool, images))
    threads, prefetch, finish = request.threads, request.prefetch, request.finish
    if request.streams:
        inline = is_inline(threads, prefetch)
        files = SequentialFrames(request.shards, pool, request.batch_size, inline=inline, consumed=consumed)
        least_rows = request.batch_size if request.remainder == "drop" else 1
        return BatchPipeline(
            files.take,
            lambda jobs: decode_jobs(jobs, decoders, least_rows),
            finish=finish,
            threads=threads,
            prefetch=prefetch,
            on_end=files.close,
        )
    steps = request.steps(consumed)
    own = islice(steps.worker_steps(request.worker, request.workers), request.delivered, None)

    def decode(step: int) -> Iterator[tuple[Batch, int]]:
        ids = request.sampler.records(epoch, steps.positions(step))
        with decoders.borrow() as decoder:
            yield decoder.decode(request.shards.gather(ids, pool)), steps.consumed_after(step)

    return BatchPipeline(lambda: next(own, None), decode, finish=finish, threads=threads, prefetch=prefetch)


def get_default_threads() -> int:
    """As many threads as this process may use cores, up to a sensible number; one in a worker of torch."""
    cores = usable_cores()
    return min(cores, _MAX_DEFAULT_THREADS)


def make_worker_request(request: BatchRequest, worker: int, workers: int, delivered: int = 0) -> BatchRequest:
    """The same request for one of a framework's loader workers: every `workers`-th step, on one thread."""
    return replace(request, worker=worker, workers=workers, delivered=delivered, threads=1)
