"""How far a feed has delivered, and the iterator that goes by it: for any framework, with any way to make batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from rekord.dataset.batches import Batches, Request, going_on, state_at
from rekord.dataset.order import checked_seed
from rekord.dataset.state import State
from rekord.errors import error

Made: TypeAlias = "tuple[dict[str, Any], int]"
"""A batch, and how many positions of the epoch are delivered, over all ranks, once it is."""

Start: TypeAlias = "Callable[[Request, int, int], Iterator[Made]]"
"""Begins to make the batches of an epoch from a position on."""


def begun(request: Request, epoch: int, consumed: int) -> Batches:
    """The batches of an epoch from a position on."""
    batches = Batches(replace(request, epoch=epoch))
    if consumed:
        batches.load_state_dict(state_at(request, epoch, consumed).to_dict())
    return batches


def counted(request: Request, epoch: int, consumed: int) -> Iterator[Made]:
    """The same, each with what is delivered after it."""
    batches = begun(request, epoch, consumed)
    try:
        if request.streams:
            # Before damage there may be a short batch. Only the batches know, and how many there are is not asked.
            for batch in batches:
                yield batch, batches.state_dict()["consumed"]
        else:
            steps = request.steps(consumed)
            own = steps.of_worker(request.worker, request.workers)
            for batch in batches:
                yield batch, steps.consumed_after(next(own))
    finally:
        batches.close()


class Feed(Iterator["dict[str, Any]"]):
    """Batches of tensors, `{column: tensor}` each, in the order of `split.batches`.

    Its own iterator, for one consumer: after the last batch, the next `iter()` begins the next epoch. `state_dict()`
    counts what was delivered, never what was only prefetched; it has the form of those of `split.batches`, and one
    can go on with the other's.
    """

    def __init__(self, request: Request, start: Start) -> None:
        self._request = request
        self._start = start
        self._running: Iterator[Made] | None = None
        self._exhausted = False
        self._epoch = request.epoch
        self._consumed = self._begun_at = 0

    @property
    def epoch(self) -> int:
        """The epoch that is being delivered, or was last."""
        return self._epoch

    @property
    def padded(self) -> int:
        """How many records of an epoch, over all ranks, come a second time, with remainder="pad"."""
        return self._request.steps(self._begun_at).padded

    def __len__(self) -> int:
        """How many batches this rank has in an epoch, from where it began."""
        return len(self._request.steps(self._begun_at))

    def __iter__(self) -> Feed:
        if self._exhausted:
            self._go_to(self._epoch + 1, 0)
        return self

    def __next__(self) -> dict[str, Any]:
        if self._exhausted:
            raise StopIteration
        try:
            if self._running is None:
                self._running = self._start(self._request, self._epoch, self._consumed)
            batch, self._consumed = next(self._running)
            return batch
        except BaseException:
            # At the end, and after a failure too: what has failed does not go on.
            self._exhausted = True
            raise

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        self._go_to(checked_seed("epoch", epoch), 0)

    def state_dict(self) -> dict[str, Any]:
        """Where this is: a few numbers, fit for JSON. At a synchronous step it is the same on all ranks."""
        return state_at(self._request, self._epoch, self._consumed).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, with any rank, world, batch size and columns; the order must be the same."""
        loaded = State.from_dict(state)
        self._request = going_on(self._request, loaded)
        self._go_to(loaded.epoch, loaded.consumed)

    def close(self) -> None:
        """Stop early: threads end, and what was prefetched is let go."""
        running, self._running, self._exhausted = self._running, None, True
        if running is not None:
            running.close()  # type: ignore[attr-defined]

    def _go_to(self, epoch: int, consumed: int) -> None:
        self.close()
        self._exhausted = False
        self._epoch = epoch
        self._consumed = self._begun_at = consumed

    def __reduce__(self) -> Any:
        raise error(
            "U607",
            "an iterator over batches cannot be pickled",
            expected="a Dataset or a Split, which can be handed to another process",
            found="an iterator",
            do="send the Split, and make the iterator there; state_dict() can be sent too",
        )
