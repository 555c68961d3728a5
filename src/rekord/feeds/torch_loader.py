"""Batches of torch tensors in one order for any workers: by our loader, or as an IterableDataset for torch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeAlias

from rekord.dataset.batches import Batches, Request, checked_count, of_worker
from rekord.dataset.order import checked_seed
from rekord.dataset.state import State
from rekord.errors import RekordError, error
from rekord.feeds.torch import tensors
from rekord.feeds.torch_map import told_by_worker

Batch: TypeAlias = "dict[str, Any]"

MOST_WORKERS = 256


class Places:
    """Where the next iteration begins, in memory that loader workers share.

    torch tells a dataset neither the epoch nor that an iteration begins: it makes new workers each time, or lets
    persistent ones iterate again. So each worker counts how often it has begun, in a cell that only it writes to;
    workers of one iteration have the same count. Cells are kept apart by the number of workers: another DataLoader
    with more of them must not find some that have counted and some that have not.
    """

    def __init__(self, epoch: int) -> None:
        torch = import_module("torch")
        self._start = torch.tensor([epoch, 0], dtype=torch.int64).share_memory_()
        self._begun = torch.zeros((MOST_WORKERS + 1, MOST_WORKERS), dtype=torch.int32).share_memory_()

    def set(self, epoch: int, consumed: int) -> None:
        """Let the next iteration begin there; those after it are the epochs that follow, from their start."""
        self._begun.zero_()
        self._start[0], self._start[1] = epoch, consumed

    def begin(self, worker: int, workers: int) -> tuple[int, int]:
        """Epoch and position where this worker is to begin."""
        if workers > MOST_WORKERS:
            raise error(
                "U664",
                f"a DataLoader with {workers:,} workers is more than can be counted",
                expected=f"at most {MOST_WORKERS} workers",
                found=f"num_workers={workers}",
                do="num_workers=8: each worker decodes on a thread of its own",
            )
        self._begun[workers, worker] += 1
        each = self._begun.amax(dim=1)
        each[workers] = self._begun[workers, worker]
        return self._place(int(each.sum()) - 1)

    def current(self) -> tuple[int, int]:
        """Epoch and first position of the iteration that was begun last, or of the first where none was."""
        return self._place(max(int(self._begun.amax(dim=1).sum()) - 1, 0))

    def _place(self, iteration: int) -> tuple[int, int]:
        return int(self._start[0]) + iteration, 0 if iteration else int(self._start[1])


def iterable_dataset(request: Request) -> Any:
    """The batches as a torch IterableDataset."""
    return _rebuilt(request, Places(request.epoch), False)


def _rebuilt(request: Request, places: Places, carries_failures: bool) -> Any:
    return _dataset_class()(request, places, carries_failures)


@lru_cache(maxsize=1)
def _dataset_class() -> Any:
    data = import_module("torch.utils.data")

    class BatchDataset(data.IterableDataset):  # type: ignore[misc, name-defined]
        """Batches for `DataLoader(dataset, batch_size=None)`, in the same order for any number of workers.

        Each iteration is the next epoch. Worker w of W makes the steps w, w + W, …, on one thread.
        """

        def __init__(self, request: Request, places: Places, carries_failures: bool) -> None:
            self._request = request
            self._places = places
            self._carries_failures = carries_failures

        def __len__(self) -> int:
            """How many batches a whole epoch has."""
            return len(self._request.steps(0))

        def __iter__(self) -> Iterator[Any]:
            # Not a generator: what is begun is counted here, before anything is asked for.
            info = data.get_worker_info()
            request = self._request
            if info is None:
                epoch, consumed = self._places.begin(0, 0)
                return map(tensors, _begun(request, epoch, consumed))
            epoch, consumed = self._places.begin(info.id, info.num_workers)
            own = of_worker(request, info.id, info.num_workers)
            # The loader prefetches. Locks of the process that forked are not ours to use.
            own = replace(own, prefetch=0, shards=copy(request.shards))
            return _carried(_begun(own, epoch, consumed), self._carries_failures)

        def set_epoch(self, epoch: int) -> None:
            """Let the next iteration be this epoch, in persistent workers too."""
            self._places.set(checked_seed("epoch", epoch), 0)

        def state_after(self, batches: int) -> dict[str, Any]:
            """The state once so many batches of the running epoch came out of the DataLoader.

            Workers run ahead, so that only the process that takes the batches knows.
            """
            epoch, begun = self._places.current()
            return _state(self._request, epoch, _consumed(self._request, begun, batches)).to_dict()

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            """Let the next iteration go on from a state."""
            loaded = State.from_dict(state)
            loaded.check_fits(_state(self._request, 0, 0))
            self._places.set(loaded.epoch, loaded.consumed)

        def __reduce__(self) -> tuple[Any, ...]:
            # The class was made in a function, and cannot be found by its name.
            return _rebuilt, (self._request, self._places, self._carries_failures)

        def __repr__(self) -> str:
            return f"BatchDataset({self._request.split!r}, {len(self):,} batches)"

    return BatchDataset


def _begun(request: Request, epoch: int, consumed: int) -> Batches:
    batches = Batches(replace(request, epoch=epoch))
    if consumed:
        batches.load_state_dict(_state(request, epoch, consumed).to_dict())
    return batches


def _state(request: Request, epoch: int, consumed: int) -> State:
    """The state at a place of what was asked for."""
    return State(request.dataset(), request.split, request.recipe.to_dict(), epoch, consumed)


def _consumed(request: Request, begun: int, delivered: int) -> int:
    count = checked_count("batches", delivered, least=0)
    return request.steps(begun).consumed_after(count - 1) if count else begun


def _carried(batches: Batches, as_item: bool) -> Iterator[Any]:
    """Batches out of a worker; a failure as torch can carry it, or as an item for our own loader."""
    try:
        for batch in batches:
            yield tensors(batch)
    except RekordError as failure:
        if not as_item:
            raise told_by_worker(failure) from None
        yield failure


def _same(item: Any) -> Any:
    return item


class Loader(Iterator[Batch]):
    """Batches of tensors, `{column: tensor}` each.

    Its own iterator, for one consumer: after the last batch, the next `iter()` begins the next epoch. `state_dict()`
    counts what was delivered, never what was only prefetched; it has the form of those of `split.batches`.
    """

    def __init__(self, request: Request, workers: int) -> None:
        self._batches: Batches | _WorkerBatches
        if workers:
            self._batches = _WorkerBatches(request, workers)
        else:
            self._batches = Batches(request)
        self._request = request

    @property
    def epoch(self) -> int:
        """The epoch that is being delivered, or was last."""
        return self._batches.epoch

    @property
    def padded(self) -> int:
        """How many records of an epoch, over all ranks, come a second time, with remainder="pad"."""
        return self._batches.padded

    def __len__(self) -> int:
        """How many batches this rank has in an epoch, from where it began."""
        return len(self._batches)

    def __iter__(self) -> Loader:
        iter(self._batches)
        return self

    def __next__(self) -> Batch:
        batch = next(self._batches)
        return batch if isinstance(self._batches, _WorkerBatches) else tensors(batch)

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self._batches.load_state_dict(_state(self._request, checked_seed("epoch", epoch), 0).to_dict())

    def state_dict(self) -> dict[str, Any]:
        """Where this is: a few numbers, fit for JSON. At a synchronous step it is the same on all ranks."""
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with any rank, world, batch size, workers and columns."""
        self._batches.load_state_dict(state)

    def close(self) -> None:
        """Stop early: threads and worker processes end."""
        self._batches.close()

    def __reduce__(self) -> Any:
        raise error(
            "U607",
            "a loader cannot be pickled",
            expected="a Dataset or a Split, which can be handed to another process",
            found="a loader",
            do="send the Split, and call .to_torch(…) there; state_dict() can be sent too",
        )


class _WorkerBatches(Iterator[Batch]):
    """What `Batches` is, made by worker processes of torch's DataLoader."""

    def __init__(self, request: Request, workers: int) -> None:
        self._request = request
        self._workers = workers
        self._places = Places(request.epoch)
        self._loader: Any = None
        self._running: Iterator[Any] | None = None
        self._exhausted = False
        self.epoch = request.epoch
        self._begun_at = 0
        self._delivered = 0

    @property
    def padded(self) -> int:
        return self._request.steps(self._begun_at).padded

    def __len__(self) -> int:
        return len(self._request.steps(self._begun_at))

    def __iter__(self) -> _WorkerBatches:
        if self._exhausted:
            self._go_to(self.epoch + 1, 0)
        return self

    def __next__(self) -> Batch:
        if self._exhausted:
            raise StopIteration
        try:
            if self._running is None:
                self._running = self._start()
            item = next(self._running)
            if isinstance(item, RekordError):
                raise item
        except BaseException:
            self._exhausted = True
            raise
        self._delivered += 1
        return item  # type: ignore[no-any-return]

    def state_dict(self) -> dict[str, Any]:
        consumed = _consumed(self._request, self._begun_at, self._delivered)
        return _state(self._request, self.epoch, consumed).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        loaded = State.from_dict(state)
        loaded.check_fits(_state(self._request, 0, 0))
        self._go_to(loaded.epoch, loaded.consumed)

    def close(self) -> None:
        self._running, self._loader, self._exhausted = None, None, True

    def _go_to(self, epoch: int, consumed: int) -> None:
        self._running, self._exhausted = None, False
        self.epoch, self._begun_at, self._delivered = epoch, consumed, 0

    def _start(self) -> Iterator[Any]:
        import torch
        from torch.utils.data import DataLoader

        if self._loader is None:
            # Known before there are workers, so that not each of them has to find out.
            self._request.plan()
            len(self._request.steps(0))
            self._loader = DataLoader(
                _rebuilt(self._request, self._places, True),
                batch_size=None,
                num_workers=self._workers,
                collate_fn=_same,
                persistent_workers=True,
                prefetch_factor=max(self._request.prefetch, 1),
                generator=torch.Generator(),  # the global one is not ours to draw from
            )
        self._places.set(self.epoch, self._begun_at)
        return iter(self._loader)
