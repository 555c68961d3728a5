"""`split.to_torch(…)`: batches of torch tensors, or datasets for torch's own DataLoader."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, Unpack

import numpy as np

from rekord.arguments import integer, one_of
from rekord.codec.columns import Batch, Optional, Ragged, SparseColumn, Strings
from rekord.dataset.batches import BatchReader, BatchRequest, LoaderState, make_worker_request, read_batches
from rekord.dataset.options import BatchOptions
from rekord.errors import RekordError, error, preview
from rekord.feeds.feed import (
    Feed,
    RowReader,
    TensorBatch,
    convert_column,
    import_package,
    is_numeric,
    with_ranks,
)
from rekord.feeds.torch.cursor import IterationStart, SharedCursor
from rekord.location import Location

if TYPE_CHECKING:
    import torch.utils.data

    from rekord.dataset.split import Split


T = TypeVar("T")


def _build_map_dataset(rows: RowReader) -> Any:
    """The rows of a split as a torch Dataset."""
    return _map_dataset_class()(rows)


@lru_cache(maxsize=1)
def _map_dataset_class() -> Any:
    data = import_module("torch.utils.data")

    class MapDataset(data.Dataset):  # type: ignore[misc, name-defined]
        """Rows of a split: `[i]` is a dict of tensors, `[[3, 1]]` a batch of rows, stacked.

        Missing values are None, which torch's default collate function rejects: fill them with `fill=`.
        """

        def __init__(self, rows: RowReader) -> None:
            self._rows = rows

        def __len__(self) -> int:
            return len(self._rows)

        def __getitem__(self, which: Any) -> dict[str, Any]:
            if isinstance(which, (list, tuple)) or getattr(which, "ndim", 0) == 1:
                return _run_in_worker(lambda: batch_to_tensors(self._rows.batch(list(which))))
            return _run_in_worker(lambda: _row_to_tensors(self._rows.row(which)))

        def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
            return _run_in_worker(lambda: [_row_to_tensors(row) for row in self._rows.rows(numbers)])

        def __reduce__(self) -> tuple[Any, ...]:
            # The class is defined in a function, so pickle cannot find it by name.
            return _build_map_dataset, (self._rows,)

        def __repr__(self) -> str:
            return f"MapDataset({self._rows.request.split!r}, {len(self):,} rows)"

    return MapDataset


def _row_to_tensors(row: dict[str, Any]) -> dict[str, Any]:
    return _convert_values(row, _value_to_tensor)


def _convert_values(values: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    out = {}
    for name, value in values.items():
        try:
            out[name] = convert(value)
        except TypeError as failure:
            raise _unsupported_dtype_error(name, failure) from None
    return out


def _value_to_tensor(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_value_to_tensor(part) for part in value])
    if isinstance(value, (np.ndarray, np.generic)) and is_numeric(np.asarray(value)):
        return array_to_tensor(np.asarray(value))
    return value


def _run_in_worker(call: Callable[[], T]) -> T:
    from torch.utils.data import get_worker_info

    try:
        return call()
    except RekordError as failure:
        if get_worker_info() is None:
            raise
        raise worker_error(failure) from None


def worker_error(failure: RekordError) -> Exception:
    """The error as torch passes it out of a worker: torch recreates exceptions from their text."""
    return RuntimeError(failure.message)


_MIN_SHARED_BYTES = 1 << 18
"""From this size on, an array goes through shared memory, which needs a connection between the two processes.
Smaller ones go through the pipe in less time."""
_WORKER_STATE_KEY = "share"
"""In the state of a worker: its number, the number of workers, and the number of batches it has delivered."""
_COLUMNS = (np.ndarray, Optional, Ragged, SparseColumn, Strings)


class WorkerFeed(Feed):
    """Batches of tensors from worker processes, which stay for the next epoch if one was read to its end."""

    def __init__(self, request: BatchRequest, workers: int) -> None:
        super().__init__(request, batch_to_tensors)
        self._workers = workers
        self._idle: list[_WorkerProcesses] = []

    def close(self) -> None:
        """Close the newest iterator, and end worker processes that are kept for the next epoch."""
        super().close()
        self._take_idle()

    def _start(self, request: BatchRequest, epoch: int, consumed: int) -> BatchReader[TensorBatch]:
        processes = self._take_idle() or _WorkerProcesses(request, self._workers)
        return _ProcessReader(processes, self._idle, request, epoch, consumed)

    def _take_idle(self) -> _WorkerProcesses | None:
        """Remove and return idle worker processes of this process."""
        own = [one for one in self._idle if one.process == os.getpid()]
        # Those of a parent process cannot be ended here after a fork.
        self._idle[:] = [one for one in self._idle if one not in own]
        return own[0] if own else None


class _WorkerProcesses:
    """Worker processes, and where they start."""

    def __init__(self, request: BatchRequest, workers: int) -> None:
        self.process = os.getpid()
        self.places = SharedCursor(request.epoch)
        # Computed before the workers start, so that each of them does not have to.
        request.plan()
        len(request.steps(0))
        self.loader = import_module("torch.utils.data").DataLoader(
            _build_iterable_dataset(request, self.places, True),
            batch_size=None,
            num_workers=workers,
            collate_fn=_identity,
            persistent_workers=True,
            prefetch_factor=max(request.prefetch, 1),
            generator=import_module("torch").Generator(),  # so that the global one is not advanced
        )


class _ProcessReader:
    """An epoch from worker processes, which go to `idle` at its end.

    Not earlier: a worker that is slow to start would use the next start instead of its own.
    """

    def __init__(
        self,
        processes: _WorkerProcesses,
        idle: list[_WorkerProcesses],
        request: BatchRequest,
        epoch: int,
        consumed: int,
    ) -> None:
        processes.places.set(epoch, consumed, request.sampler.to_dict())
        self._processes: _WorkerProcesses | None = processes
        self._idle = idle
        self._items: Iterator[Any] = iter(processes.loader)
        self._more: list[Any] = []
        self._left = len(request.steps(consumed))

    def __next__(self) -> tuple[TensorBatch, int]:
        item = self._more.pop() if self._more else next(self._items, None)
        if item is None:
            self._finish()
            raise StopIteration
        if isinstance(item, RekordError):
            raise item
        sent, after = item
        self._left -= 1
        if not self._left:
            # A caller that takes exactly this number of batches never reaches StopIteration.
            more = next(self._items, None)
            if more is None:
                self._finish()
            else:
                self._more = [more]
        return batch_to_tensors(_unpack_batch(sent)), after

    def close(self) -> None:
        self._items, self._processes = iter(()), None

    def _finish(self) -> None:
        if self._processes is not None:
            self._idle.append(self._processes)
        self.close()


def _identity(item: Any) -> Any:
    return item


def _build_iterable_dataset(request: BatchRequest, places: SharedCursor, as_items: bool) -> Any:
    """The batches as a torch IterableDataset; `as_items` for our own loader."""
    return _iterable_dataset_class()(request, places, as_items)


class _CursorFeed(Feed):
    """The batches for a DataLoader without workers. Its epochs count together with those of workers."""

    def __init__(self, request: BatchRequest, places: SharedCursor) -> None:
        super().__init__(request, batch_to_tensors)
        self.places = places

    @property
    def request(self) -> BatchRequest:
        """The request that is read."""
        return self._request

    def _next_position(self) -> tuple[int, int]:
        place = self.places.next_start()
        return place.epoch, place.consumed

    def _claim(self) -> tuple[BatchRequest, int, int]:
        place = self.places.begin(0, 0)
        return _resume_request(self._request, place), place.epoch, place.consumed

    def _seek(self, epoch: int, consumed: int) -> None:
        super()._seek(epoch, consumed)
        self.places.set(epoch, consumed, self._request.sampler.to_dict())


def _resume_request(request: BatchRequest, place: IterationStart) -> BatchRequest:
    return replace(request, sampler=request.sampler.resume(place.order))


@lru_cache(maxsize=1)
def _iterable_dataset_class() -> Any:
    data = import_module("torch.utils.data")

    class BatchDataset(data.IterableDataset):  # type: ignore[misc, name-defined]
        """Batches for `DataLoader(dataset, batch_size=None)`, in the same order for any number of workers.

        Each iteration is the next epoch. Worker w of W reads the steps w, w + W, …, on one thread. torchdata's
        StatefulDataLoader saves and restores its state.
        """

        def __init__(self, request: BatchRequest, places: SharedCursor, as_items: bool) -> None:
            self._feed = _CursorFeed(request, places)
            self._as_items = as_items  # for our own loader
            self._resumed: Mapping[str, Any] | None = None  # loaded in a worker
            self._share: _WorkerShare | None = None

        def __len__(self) -> int:
            """The number of batches in a whole epoch."""
            return len(self._feed)

        def __iter__(self) -> Iterator[Any]:
            info = data.get_worker_info()
            if info is None:
                return iter(self._feed)
            resumed, self._resumed = self._resumed, None
            try:
                self._share = _WorkerShare(
                    self._feed.request,
                    self._feed.places,
                    info.id,
                    info.num_workers,
                    seed=info.seed - info.id,
                    resumed=resumed,
                )
                return _WorkerOutput(self._share, as_items=self._as_items)
            except RekordError as failure:
                raise worker_error(failure) from None

        def set_epoch(self, epoch: int) -> None:
            """Make the next iteration this epoch, in persistent workers too."""
            self._feed.set_epoch(epoch)

        def state_after(self, batches: int) -> dict[str, Any]:
            """The state after `batches` batches of the current epoch came out of torch's own DataLoader.

            Count the batches that you used: workers prefetch.
            """
            count = integer("batches", batches, least=0)
            request, place = self._feed.request, self._feed.places.current()
            consumed = place.consumed
            if count:
                consumed = request.steps(consumed).consumed_after(count - 1)
            return request.state(place.epoch, consumed).to_dict()

        def state_dict(self) -> dict[str, Any]:
            """The position of the newest iterator; in a worker, how much of its share was delivered."""
            return self._feed.state_dict() if self._share is None else self._share.state_dict()

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            """Resume from this state in the next iteration."""
            if data.get_worker_info() is None:
                self._feed.load_state_dict(state)
            else:
                self._resumed = state

        def __reduce__(self) -> tuple[Any, ...]:
            # The class is defined in a function, so pickle cannot find it by name.
            return _build_iterable_dataset, (self._feed.request, self._feed.places, self._as_items)

        def __repr__(self) -> str:
            return f"BatchDataset({self._feed.request.split!r}, {len(self):,} batches)"

    return BatchDataset


class _WorkerShare:
    """The batches of an epoch that one worker of a DataLoader reads, and how many it has delivered.

    The state of a worker is the position at which all workers started, with the number of batches that this one has
    delivered since: their steps would not fit together if each started at its own position.
    """

    def __init__(
        self,
        request: BatchRequest,
        places: SharedCursor,
        worker: int,
        workers: int,
        *,
        seed: int,
        resumed: Mapping[str, Any] | None,
    ) -> None:
        at, delivered = None, 0
        if resumed is not None:
            state, delivered = _parse_worker_state(LoaderState.from_dict(resumed), worker, workers)
            request = request.resume(state)
            at = IterationStart.of(state.epoch, state.consumed, request.sampler.to_dict())
        place = places.begin(worker, workers, seed=seed, at=at)
        own = make_worker_request(_resume_request(request, place), worker, workers, delivered)
        # The loader prefetches. Locks of the parent process must not be used after a fork.
        self._request = replace(own, prefetch=0, shards=copy(own.shards))
        self._place = place
        self._consumed = place.consumed
        self._delivered = delivered
        self._reading = read_batches(self._request, place.epoch, place.consumed)

    def __next__(self) -> tuple[Batch, int]:
        batch, self._consumed = next(self._reading)
        self._delivered += 1
        return batch, self._consumed

    def state_dict(self) -> dict[str, Any]:
        """The state, with the worker as part of the order: only the same worker can load it."""
        request = self._request
        alone = request.workers == 1  # then `consumed` is exact, also for short batches before corrupt records
        state = request.state(self._place.epoch, self._consumed if alone else self._place.consumed)
        share = [request.worker, request.workers, 0 if alone else self._delivered]
        return replace(state, order={**state.order, _WORKER_STATE_KEY: share}).to_dict()


def _parse_worker_state(state: LoaderState, worker: int, workers: int) -> tuple[LoaderState, int]:
    """The state that all workers share, and the number of batches that this one has delivered since."""
    order = dict(state.order)
    share = order.pop(_WORKER_STATE_KEY, None)
    if not isinstance(share, list) or share[:2] != [worker, workers] or len(share) != 3:
        raise error(
            "U609",
            "state belongs to another worker",
            expected=f"a state of worker {worker} of {workers}",
            found=f"{_WORKER_STATE_KEY} {preview(share)}",
            do="use the num_workers that the state was saved with",
        )
    return replace(state, order=order), integer("delivered", share[2], least=0)


class _WorkerOutput(Iterator[Any]):
    """Batches from a worker; for our own loader with the position after each, and errors as items."""

    def __init__(self, share: _WorkerShare, *, as_items: bool) -> None:
        self._share = share
        self._as_items = as_items
        self._failed = False

    def __next__(self) -> Any:
        if self._failed:
            raise StopIteration
        try:
            batch, consumed = next(self._share)
            return (_pack_batch(batch), consumed) if self._as_items else batch_to_tensors(batch)
        except RekordError as failure:
            self._failed = True
            if not self._as_items:
                raise worker_error(failure) from None
            return failure


def _pack_batch(batch: Mapping[str, Any]) -> tuple[bytes, list[Any], dict[str, Any]]:
    """A batch as a worker sends it: our columns pickled, their large arrays, and other values.

    torch itself would open a connection between the two processes for each tensor.
    """
    large: list[Any] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _MIN_SHARED_BYTES:
            large.append(array_to_tensor(np.frombuffer(raw, np.uint8)))
        return raw.nbytes < _MIN_SHARED_BYTES

    others = {name: value for name, value in batch.items() if not isinstance(value, _COLUMNS)}
    own = {name: None if name in others else column for name, column in batch.items()}
    return pickle.dumps(own, protocol=5, buffer_callback=stays), large, others


def _unpack_batch(sent: tuple[bytes, list[Any], dict[str, Any]]) -> dict[str, Any]:
    own, large, others = sent
    return {**pickle.loads(own, buffers=[part.numpy() for part in large]), **others}


Style: TypeAlias = Literal["loader", "iterable", "map"]


def to_torch(
    split: Split,
    batch_size: int | None,
    *,
    style: Style,
    workers: int,
    **options: Unpack[BatchOptions],
) -> Feed | torch.utils.data.Dataset[dict[str, Any]]:
    """By `style`: our loader, an IterableDataset of batches, or a map-style Dataset of rows."""
    one_of("style", style, ("loader", "iterable", "map"))
    import_package("torch", "`to_torch`", "'rekord[torch]'")
    if style == "map":
        defaults = {"shuffle": False, "rank": 0, "world": 1, "nodes": 1, "remainder": None}
        _reject_order_options(
            batch_size=batch_size is not None,
            **{name: options.get(name, default) != default for name, default in defaults.items()},
            workers=workers != 0,
        )
        batch_size = 1
    chosen = with_ranks(options, _get_process_group, start="torch.distributed.init_process_group(…)")
    request = split.request(batch_size, **chosen)  # type: ignore[arg-type]
    count = integer("workers", workers, least=0)
    if style == "loader":
        return WorkerFeed(request, count) if count else Feed(request, batch_to_tensors)
    dataset: torch.utils.data.Dataset[dict[str, Any]]
    if style == "map":
        dataset = _build_map_dataset(RowReader(request))
    else:
        _reject_order_options(workers=count != 0)
        dataset = _build_iterable_dataset(request, SharedCursor(request.epoch), False)
    return dataset


def batch_to_tensors(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A batch with tensors in place of arrays. They share memory with the arrays, which nothing else writes to."""
    return _convert_values(batch, lambda column: convert_column(column, array_to_tensor))


def array_to_tensor(array: np.ndarray[Any, Any]) -> Any:
    """A numeric array as a tensor, without a copy unless torch needs one."""
    import torch

    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    elif not array.flags.writeable or any(step < 0 or step % array.itemsize for step in array.strides):
        array = array.copy()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _unsupported_dtype_error(name: str, failure: Exception) -> RekordError:
    """The error for a column whose dtype torch lacks."""
    return error(
        "U676",
        f"`{name}` cannot be converted to a torch tensor",
        location=Location(feature=name),
        expected="a dtype that torch supports",
        found=str(failure).split(". The only", 1)[0][:60],
        do=f"omit {name!r} from columns=…, or convert it with map=…",
    )


def _get_process_group() -> tuple[int, int] | None:
    import torch.distributed as group

    if not group.is_available() or not group.is_initialized():
        return None
    return group.get_rank(), group.get_world_size()


def _reject_order_options(**given: bool) -> None:
    """Refuse options that are up to torch's DataLoader in this style."""
    for name, is_given in given.items():
        if is_given:
            raise error(
                "U605",
                f"`{name}` has no effect in this style: torch's DataLoader decides it",
                expected=f"no `{name}`",
                found=f"`{name}`",
                do=f"omit `{name}`, and pass it to the DataLoader or its sampler",
            )
