"""Batches of torch tensors in one order for any workers: by our loader, or as an IterableDataset for torch's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

from rekord.dataset.batches import Request, checked_count, going_on, of_worker, state_at
from rekord.dataset.order import checked_seed
from rekord.dataset.state import State
from rekord.errors import RekordError, error
from rekord.feeds.progress import Feed, Made, Start, begun, counted
from rekord.feeds.torch import tensors
from rekord.feeds.torch_map import told_by_worker

MOST_WORKERS = 256
_BLOCKS = ("block", "window", "lanes")
"""What a state says of a block-wise order, whatever the world is now."""


def loader(request: Request, workers: int) -> Feed:
    """Our loader: batches are made by threads of this process, or by worker processes."""
    return Feed(request, _by_workers(request, workers) if workers else _by_threads)


def _by_threads(request: Request, epoch: int, consumed: int) -> Iterator[Made]:
    for batch, after in counted(request, epoch, consumed):
        yield tensors(batch), after


def _by_workers(first: Request, workers: int) -> Start:
    data = import_module("torch.utils.data")
    places: Places
    made: Any = None

    def start(request: Request, epoch: int, consumed: int) -> Iterator[Made]:
        nonlocal made, places
        if made is None:
            places = Places(first.epoch)
            # Found out before there are workers, so that not each of them has to.
            request.plan()
            len(request.steps(0))
            made = data.DataLoader(
                _rebuilt(request, places, True),
                batch_size=None,
                num_workers=workers,
                collate_fn=_same,
                persistent_workers=True,
                prefetch_factor=max(request.prefetch, 1),
                generator=import_module("torch").Generator(),  # the global one is not ours to draw from
            )
        places.set(epoch, consumed, request.recipe.to_dict())
        ended = False
        try:
            for item in made:
                if isinstance(item, RekordError):
                    raise item
                yield item
            ended = True
        finally:
            if not ended:
                # A worker that was slow to begin would take the next place for the one that was left.
                made = None

    return start


def _same(item: Any) -> Any:
    return item


class Places:
    """Where the next iteration begins, in memory that loader workers share.

    torch tells a dataset neither the epoch nor that an iteration begins: it makes new workers each time, or lets
    persistent ones iterate again. So each worker counts how often it has begun, in a cell that only it writes to;
    workers of one iteration have the same count. Cells are kept apart by the number of workers: another DataLoader
    with more of them must not find some that have counted and some that have not.
    """

    def __init__(self, epoch: int) -> None:
        torch = import_module("torch")
        self._start = torch.tensor([epoch, 0, *[0] * len(_BLOCKS)], dtype=torch.int64).share_memory_()
        self._begun = torch.zeros((MOST_WORKERS + 1, MOST_WORKERS), dtype=torch.int32).share_memory_()

    def set(self, epoch: int, consumed: int, order: Mapping[str, Any]) -> None:
        """Let the next iteration begin there; those after it are the epochs that follow, from their start.

        Workers may have been made before a state was loaded that says how a block-wise order was begun.
        """
        self._begun.zero_()
        self._start[0], self._start[1] = epoch, consumed
        for place, name in enumerate(_BLOCKS, 2):
            self._start[place] = order.get(name, 0)

    @property
    def order(self) -> dict[str, int]:
        """What was said of a block-wise order."""
        return dict(zip(_BLOCKS, self._start[2:].tolist(), strict=True))

    def begin(self, worker: int, workers: int) -> tuple[int, int]:
        """Epoch and position where this worker is to begin."""
        if workers > MOST_WORKERS:
            raise error(
                "U664",
                f"a DataLoader with {workers:,} workers is more than can be counted",
                expected=f"at most {MOST_WORKERS} workers",
                found=f"num_workers={workers}",
                do="num_workers=8: as many as there are cores to decode on",
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


def _rebuilt(request: Request, places: Places, as_items: bool) -> Any:
    return _dataset_class()(request, places, as_items)


@lru_cache(maxsize=1)
def _dataset_class() -> Any:
    data = import_module("torch.utils.data")

    class BatchDataset(data.IterableDataset):  # type: ignore[misc, name-defined]
        """Batches for `DataLoader(dataset, batch_size=None)`, in the same order for any number of workers.

        Each iteration is the next epoch. Worker w of W makes the steps w, w + W, …, on one thread.
        """

        def __init__(self, request: Request, places: Places, as_items: bool) -> None:
            self._request = request
            self._places = places
            self._as_items = as_items  # for our own loader

        def __len__(self) -> int:
            """How many batches a whole epoch has."""
            return len(self._request.steps(0))

        def __iter__(self) -> Iterator[Any]:
            # Not a generator: what is begun is counted here, before anything is asked for.
            info = data.get_worker_info()
            request = replace(self._request, recipe=self._request.recipe.going_on(self._places.order))
            if info is None:
                epoch, consumed = self._places.begin(0, 0)
                return map(tensors, begun(request, epoch, consumed))
            epoch, consumed = self._places.begin(info.id, info.num_workers)
            own = of_worker(request, info.id, info.num_workers)
            # The loader prefetches. Locks of the process that forked are not ours to use.
            own = replace(own, prefetch=0, shards=copy(own.shards))
            return _carried(counted(own, epoch, consumed), as_items=self._as_items)

        def set_epoch(self, epoch: int) -> None:
            """Let the next iteration be this epoch, in persistent workers too."""
            self._places.set(checked_seed("epoch", epoch), 0, self._request.recipe.to_dict())

        def state_after(self, batches: int) -> dict[str, Any]:
            """The state once so many batches of the running epoch came out of the DataLoader.

            Workers run ahead, so that only who takes the batches knows.
            """
            count = checked_count("batches", batches, least=0)
            epoch, consumed = self._places.current()
            if count:
                consumed = self._request.steps(consumed).consumed_after(count - 1)
            return state_at(self._request, epoch, consumed).to_dict()

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            """Let the next iteration go on from a state."""
            loaded = State.from_dict(state)
            self._request = going_on(self._request, loaded)
            self._places.set(loaded.epoch, loaded.consumed, self._request.recipe.to_dict())

        def __reduce__(self) -> tuple[Any, ...]:
            # The class was made in a function, and cannot be found by its name.
            return _rebuilt, (self._request, self._places, self._as_items)

        def __repr__(self) -> str:
            return f"BatchDataset({self._request.split!r}, {len(self):,} batches)"

    return BatchDataset


def _carried(made: Iterator[Made], *, as_items: bool) -> Iterator[Any]:
    """Batches out of a worker; for our own loader with what is delivered after each, and failures as items."""
    try:
        for batch, consumed in made:
            yield (tensors(batch), consumed) if as_items else tensors(batch)
    except RekordError as failure:
        if not as_items:
            raise told_by_worker(failure) from None
        yield failure
