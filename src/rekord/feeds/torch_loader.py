"""Batches of torch tensors in one order for any workers: by our loader, or as an IterableDataset for torch's."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from rekord.codec.columns import Optional, Ragged, SparseColumn, Strings
from rekord.dataset.batches import Request, checked_count, going_on, of_worker, state_at
from rekord.dataset.order import checked_seed
from rekord.dataset.state import State
from rekord.errors import RekordError
from rekord.feeds.progress import Feed, Made, Start, begun, counted
from rekord.feeds.torch import tensor, tensors
from rekord.feeds.torch_map import told_by_worker
from rekord.feeds.torch_places import Places

_SHARED_BYTES = 1 << 18
"""From this size on an array goes through shared memory, which takes a connection of its own between two processes.
Smaller ones go through the pipe in less time than that."""
_COLUMNS = (np.ndarray, Optional, Ragged, SparseColumn, Strings)


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
                sent, after = item
                yield tensors(_received(sent)), after
            ended = True
        finally:
            if not ended:
                # A worker that was slow to begin would take the next place for the one that was left.
                made = None

    return start


def _same(item: Any) -> Any:
    return item


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
            if info is None:
                place = self._places.begin(0, 0)
            else:
                place = self._places.begin(info.id, info.num_workers, seed=info.seed - info.id)
            request = replace(self._request, recipe=self._request.recipe.going_on(place.order))
            if info is None:
                return map(tensors, begun(request, place.epoch, place.consumed))
            own = of_worker(request, info.id, info.num_workers)
            # The loader prefetches. Locks of the process that forked are not ours to use.
            own = replace(own, prefetch=0, shards=copy(own.shards))
            return _carried(counted(own, place.epoch, place.consumed), as_items=self._as_items)

        def set_epoch(self, epoch: int) -> None:
            """Let the next iteration be this epoch, in persistent workers too."""
            self._places.set(checked_seed("epoch", epoch), 0, self._request.recipe.to_dict())

        def state_after(self, batches: int) -> dict[str, Any]:
            """The state once so many batches of the running epoch came out of the DataLoader.

            Workers run ahead, so that only who takes the batches knows.
            """
            count = checked_count("batches", batches, least=0)
            place = self._places.current()
            consumed = place.consumed
            if count:
                consumed = self._request.steps(consumed).consumed_after(count - 1)
            return state_at(self._request, place.epoch, consumed).to_dict()

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
            yield (_sent(batch), consumed) if as_items else tensors(batch)
    except RekordError as failure:
        if not as_items:
            raise told_by_worker(failure) from None
        yield failure


def _sent(batch: Mapping[str, Any]) -> tuple[bytes, list[Any], dict[str, Any]]:
    """A batch as it goes out of a worker: our columns in one piece, large arrays beside it, and what is not ours.

    Left to itself, torch would connect the two processes for each tensor.
    """
    large: list[Any] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes >= _SHARED_BYTES:
            large.append(tensor(np.frombuffer(raw, np.uint8)))
        return raw.nbytes < _SHARED_BYTES

    others = {name: value for name, value in batch.items() if not isinstance(value, _COLUMNS)}
    own = {name: None if name in others else column for name, column in batch.items()}
    return pickle.dumps(own, protocol=5, buffer_callback=stays), large, others


def _received(sent: tuple[bytes, list[Any], dict[str, Any]]) -> dict[str, Any]:
    own, large, others = sent
    return {**pickle.loads(own, buffers=[part.numpy() for part in large]), **others}
