"""`split.batches(…)`: decoded batches, in any order, with a state that can be saved and resumed.

A loader is an iterable over the batches of a request; every `iter()` is an epoch. `Batches` is the loader of decoded
columns, feeds have loaders of tensors.
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
from rekord.codec.columns import Batch, register_batches, to_batch
from rekord.codec.plan import CodecPlan
from rekord.dataset.read_transforms import BatchTransformer
from rekord.dataset.readers import pipeline
from rekord.dataset.readers.pipeline import BatchDecoder, BatchPipeline, IdlePool, is_inline
from rekord.dataset.readers.sequential import SequentialFrames, decode_jobs, starts_with_small_batch
from rekord.dataset.samplers import RankSteps, Remainder, Sampler
from rekord.dataset.shards import Shards
from rekord.errors import RekordError, error, preview
from rekord.report.formatting import format_count
from rekord.report.notebook import safe_repr
from rekord.schema import Feature
from rekord.schema.schema import shorten_name
from rekord.storage.portability import usable_cores

if TYPE_CHECKING:
    from typing import Self

STATE_VERSION = 1
_MAX_STATE_NUMBER = 1 << 63
_MAX_DEFAULT_THREADS = 4
"""More threads than this read no faster from one disk; `threads=` overrides it."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class LoaderState:
    """A position in an epoch, small and JSON.

    `consumed` counts the positions that were delivered, over all ranks, not those that were only prefetched. Rank,
    world, batch size, threads and columns are not part of it: they may differ when it is loaded.
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
        """Of the fields: a state is a few numbers, and any others would be a valid position too."""
        try:
            return f"crc32c:{_core.crc32c(msgspec.json.encode(self._fields(), order='sorted')):08x}"
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None  # not JSON

    @classmethod
    def from_dict(cls, state: object) -> LoaderState:
        """A state from `to_dict`, perhaps of an older version and another process."""
        if not isinstance(state, Mapping) or state.get("rekord") != STATE_VERSION:
            raise _state_error("a state from `state_dict()`", preview(state))
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
            raise _state_error(f"checksum {loaded._checksum()}, as computed", preview(checksum))
        return loaded

    def check_matches(self, own: LoaderState) -> None:
        """Raise if this is the state of another dataset, split or order."""
        for name, loaded, here, do in (
            ("dataset", self.dataset, own.dataset, "open the dataset that the state was saved with"),
            ("split", self.split, own.split, f"dataset[{self.split!r}]"),
            ("order", dict(self.order), dict(own.order), "use the shuffle and seed that the state was saved with"),
        ):
            if loaded != here:
                raise error(
                    "U609",
                    f"state belongs to another {name}",
                    expected=preview(loaded),
                    found=preview(here),
                    do=do,
                )


def _state_error(expected: str, found: str) -> RekordError:
    return error(
        "U609",
        "not a valid loader state",
        expected=expected,
        found=found,
        do="loader.load_state_dict(iterator.state_dict())",
    )


@dataclass(frozen=True)
class BatchRequest:
    """Which records of a split, in which order, in which form."""

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
    threads: int | None = 1  # None: as many as pay off
    worker: int = 0  # of a framework's loader, which takes every `workers`-th step
    workers: int = 1
    delivered: int = 0  # steps of this worker to skip, because they were delivered before

    def decoding(self) -> tuple[CodecPlan, Callable[[Batch], Batch] | None]:
        """The plan to decode records by, and what transforms or decodes the batch after that and may refuse a row."""
        if self.transform is None:
            return self.plan(), self.images
        return self.transform.reading(), self.transform.then(self.images)

    @property
    def streams(self) -> bool:
        """Whether the files can be read from start to end, without an index."""
        plain = self.sampler.is_file_order and self.world == 1 and self.workers == 1
        return plain and self.remainder != "pad"

    def steps(self, consumed: int) -> RankSteps:
        """The steps from a position on."""
        return RankSteps(self.sampler.size, self.batch_size, self.rank, self.world, self.remainder, consumed)

    def state(self, epoch: int, consumed: int) -> LoaderState:
        """The state at a position of an epoch."""
        return LoaderState(self.dataset(), self.split, self.sampler.to_dict(), epoch, consumed)

    def resume(self, state: LoaderState) -> BatchRequest:
        """The same request, to resume from a state; a UsageError if the state belongs to something else."""
        request = replace(self, sampler=self.sampler.resume(state.order))
        state.check_matches(request.state(0, 0))
        return request


class BatchReader(Protocol[T_co]):
    """One pass over the batches of an epoch, or of the rest of one.

    An abandoned iterator drops it without `close()`, so nothing in it may wait in a finalizer.
    """

    def __next__(self) -> tuple[T_co, int]:
        """A batch, and the positions of the epoch delivered after it, over all ranks."""

    def close(self) -> None:
        """End threads, wait for them, and close files."""


@dataclass(slots=True)
class _EpochProgress:
    """The position of an iterator. The loader keeps it when the iterator is gone."""

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


class _Closing:
    """Closed at the end of a `with` block."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class Loader(_Closing, Iterable[T]):
    """Batches of a split, epoch by epoch: every `iter()` is a whole epoch, the next one each time.

    That also holds after a `break` and after exactly `len()` batches. `load_state_dict()` makes the next `iter()`
    resume there. An iterator takes its epoch at its first `next()`: an unused one starts nothing.
    """

    batch_sampler = None
    """None, as in a DataLoader over whole batches. Lightning reads it if there is a `sampler`."""

    def __init__(self, request: BatchRequest) -> None:
        self._request = request
        self._next = (request.epoch, 0)
        self._newest = _EpochProgress()
        self._iterator: weakref.ref[LoaderIterator[T]] | None = None

    def __len__(self) -> int:
        """Batches of this rank per epoch."""
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
        """Records of an epoch, over all ranks, that are repeated with remainder="pad"."""
        return self._request.steps(0).padded

    @property
    def sampler(self) -> EpochSetter:
        """The object whose `set_epoch` Lightning calls."""
        return EpochSetter(self)

    def set_epoch(self, epoch: int) -> None:
        """Make the next `iter()` this epoch. A loaded state of the same epoch is still resumed."""
        number = seed_number("epoch", epoch)
        upcoming, consumed = self._next_position()
        self._seek(number, consumed if number == upcoming else 0)

    def peek(self) -> T:
        """The first batch of the next `iter()`, read without threads. No epoch is started."""
        epoch, consumed = self._next_position()
        alone = replace(self._request, threads=1, prefetch=0)
        # A state at the end of an epoch has no batch left in it.
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
            "epoch has no batches",
            expected="at least one batch",
            found=f"{self._request.sampler.size:,} records, batches of {self._request.batch_size:,}"
            f" and remainder={self._request.remainder!r}",
            do='remainder="keep"' if self._request.sampler.size else "use a split that has records",
        )

    def state_dict(self) -> dict[str, Any]:
        """The position of the newest iterator: a few numbers, as JSON, the same on all ranks at a synchronous step.

        After the last batch of an epoch it is the end of that epoch. Once the iterator has raised StopIteration, it
        is the start of the next one.
        """
        state = self._newest.state()
        return (self._next_state() if state is None else state).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next `iter()` resume there, with any rank, world, batch size, columns and threads.

        A UsageError if the state belongs to another dataset, split or order.
        """
        loaded = LoaderState.from_dict(state)
        self._request = self._request.resume(loaded)
        self._seek(loaded.epoch, loaded.consumed)

    def close(self) -> None:
        """Close the iterator that started to read last. The next `iter()` starts as usual."""
        iterator = None if self._iterator is None else self._iterator()
        if iterator is not None:
            iterator.close()

    def __reduce__(self) -> Any:
        raise _pickle_error("loader")

    @safe_repr
    def __repr__(self) -> str:
        request = self._request
        facts = [format_count(request.batch_size, "row") + " each"]
        if not request.sampler.is_file_order or request.shards.counted:  # else files would be read to count
            facts.insert(0, format_count(len(self), "batch"))
        order = getattr(request.sampler, "order", None)
        shuffled = order is not None and order.kind != "sequential"
        facts.append(f"shuffle={order.kind!r}, seed={order.seed}" if order is not None and shuffled else "in order")
        facts.append(f"epoch {self.epoch}")
        if request.world > 1:
            facts.append(f"rank {request.rank} of {request.world}")
        return f"{type(self).__name__} of split {shorten_name(request.split)!r}: {', '.join(facts)}"

    @abstractmethod
    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[T]:
        """Start to read an epoch from a position on."""

    def _start(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[T]:
        """The same for an iterator, which may use more than this process."""
        return self._read(request, epoch, consumed)

    def _next_position(self) -> tuple[int, int]:
        """The epoch of the next iterator, and the position in it."""
        return self._next

    def _next_state(self) -> LoaderState:
        return self._request.state(*self._next_position())

    def _claim(self) -> tuple[BatchRequest, int, int]:
        """The request, epoch and position for an iterator that starts now."""
        epoch, consumed = self._next
        self._next = (epoch + 1, 0)
        return self._request, epoch, consumed

    def _seek(self, epoch: int, consumed: int) -> None:
        self._next = (epoch, consumed)
        self._newest = _EpochProgress()


class LoaderIterator(_Closing, Iterator[T], Generic[T]):
    """One epoch, or the rest of one, for one consumer.

    Threads start at the first `next()` and end with the epoch, with `close()`, at the end of a `with` block, or soon
    after the iterator was dropped.
    """

    def __init__(self, loader: Loader[T]) -> None:
        self._loader = loader
        self._progress = _EpochProgress()
        self._reading: BatchReader[T] | None = None
        self._process: int | None = None
        self._ended = False

    @property
    def epoch(self) -> int:
        """The epoch it iterates over."""
        return self._loader._next_position()[0] if self._progress.request is None else self._progress.epoch

    @property
    def consumed(self) -> int:
        """Positions of the epoch delivered so far, over all ranks."""
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
            self.close()  # a failed iteration does not continue
            raise
        except BaseException:
            # An interrupt waits for no thread: those of a dropped reader end by themselves.
            self._reading, self._ended = None, True
            raise

    def state_dict(self) -> dict[str, Any]:
        """Its position, in the form of the loader's `state_dict()`."""
        state = self._progress.state()
        return (self._loader._next_state() if state is None else state).to_dict()

    def close(self) -> None:
        """Stop early: close files, end threads and wait for them."""
        reading, self._reading, self._ended = self._reading, None, True
        if reading is not None and self._process == os.getpid():
            reading.close()

    def __reduce__(self) -> Any:
        raise _pickle_error("iterator")

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
    """The object that trainers expect as `sampler`, to set the epoch."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the loader."""
        self._loader.set_epoch(epoch)


def _fork_error(process: int | None) -> RekordError:
    return error(
        "U607",
        "iterator is used in a process that did not create it",
        expected=f"process {process}, which started to iterate",
        found=f"process {os.getpid()}, forked from it",
        do="call iter(loader) in the process that uses it      (a Dataset, Split or loader survives a fork)",
    )


def _pickle_error(what: str) -> RekordError:
    return error(
        "U607",
        f"batch {what} cannot be pickled",
        expected="a Dataset, a Split or a state_dict()",
        found=f"a batch {what}",
        do="pickle the Split, and call split.batches(…) in the other process",
    )


class Batches(Loader[Batch]):
    """Batches of a split, `{column: values}` each: an iterable in which every `iter()` is a whole epoch.

    The first is `epoch`, then the next one each time, whether or not the last was finished. After
    `load_state_dict()` the next `iter()` resumes there.
    """

    def __init__(self, request: BatchRequest, features: Callable[[], Mapping[str, Feature]] | None = None) -> None:
        super().__init__(request)
        self._features = features  # of the columns, to show a batch

    def _read(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[Batch]:
        register_batches()
        features = None if self._features is None else self._features()
        return read_batches(request, epoch, consumed, lambda batch: to_batch(batch, features))


def read_batches(
    request: BatchRequest, epoch: int, consumed: int, wrap: Callable[[Batch], Batch] | None = None
) -> BatchReader[Batch]:
    """The batches of an epoch from a position on: from files in order, or from records by number.

    `wrap` is applied to each finished batch.
    """
    plan, images = request.decoding()
    pool = pipeline.new_pool()
    decoders = IdlePool(lambda: BatchDecoder(plan, pool, images))
    threads, prefetch = _choose_threads(request, pool, is_decoded_only=images is None and request.finish is None)
    finish = _compose(request.finish, wrap)
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

    ahead = request.shards.records_ahead

    def decode(step: int) -> Iterator[tuple[Batch, int]]:
        positions = steps.positions(step)
        ids = request.sampler.records(epoch, positions)
        if ahead and request.shards.has_unannounced:
            later = positions + ahead
            request.shards.announce(request.sampler.records(epoch, later[later < request.sampler.size]))
        with decoders.borrow() as decoder:
            yield decoder.decode(request.shards.gather(ids, pool)), steps.consumed_after(step)

    return BatchPipeline(lambda: next(own, None), decode, finish=finish, threads=threads, prefetch=prefetch)


def read_shard(request: BatchRequest, shard: int) -> Iterator[Batch]:
    """The batches of one shard in file order, on the caller's thread."""
    plan, images = request.decoding()
    pool = pipeline.new_pool()
    decoders = IdlePool(lambda: BatchDecoder(plan, pool, images))
    files = SequentialFrames(request.shards, pool, request.batch_size, inline=True, shard=shard)
    try:
        while (jobs := files.take()) is not None:
            for batch, _ in decode_jobs(jobs, decoders, 1):
                yield batch
    finally:
        files.close()


def _compose(
    first: Callable[[Batch], Batch] | None, last: Callable[[Batch], Batch] | None
) -> Callable[[Batch], Batch] | None:
    if first is None or last is None:
        return first or last
    return lambda batch: last(first(batch))


def _choose_threads(request: BatchRequest, pool: _core.Pool, *, is_decoded_only: bool) -> tuple[int, int]:
    """`threads` and `prefetch` of a request: without a number of threads, small batches take none."""
    if request.threads is not None:
        return request.threads, request.prefetch
    if is_decoded_only and request.streams and starts_with_small_batch(request.shards, request.batch_size, pool):
        return 1, 0
    return get_default_threads(), request.prefetch


def get_default_threads() -> int:
    """One thread per usable core, up to a sensible number."""
    return min(usable_cores(), _MAX_DEFAULT_THREADS)


def make_worker_request(request: BatchRequest, worker: int, workers: int, delivered: int = 0) -> BatchRequest:
    """The request for one loader worker of a framework: every `workers`-th step, on one thread."""
    return replace(request, worker=worker, workers=workers, delivered=delivered, threads=1)
