"""Where the workers of a torch DataLoader start, in memory that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rekord.errors import error

MAX_WORKERS = 256
_BLOCK_ORDER_KEYS = ("block", "window", "lanes")
"""The parameters of a block-wise order in a state."""
_STARTS = 64
"""Number of starts that are kept, so that a worker that is slow to start finds the one meant for it."""
_MARK_RANGE, _REPEAT_RANGE, _COUNT_RANGE = 1 << 16, 1 << 23, 1 << 24
"""A cell holds three counters in one number: the iterator, how often its worker began, and the iteration."""


@dataclass(frozen=True, slots=True)
class IterationStart:
    """Where an iteration starts, with the parameters of a block-wise order."""

    epoch: int
    consumed: int
    order: Mapping[str, int]

    @classmethod
    def of(cls, epoch: int, consumed: int, order: Mapping[str, Any]) -> IterationStart:
        """A start with the relevant parameters of an order."""
        return cls(epoch, consumed, {name: order.get(name, 0) for name in _BLOCK_ORDER_KEYS})


class SharedCursor:
    """Where iterations start.

    torch does not report the epoch or the start of an iteration to a dataset: it creates new workers each time, or
    lets persistent ones iterate again. So each worker counts its starts, in a cell that only it writes to.
    There are separate cells for each number of workers: another DataLoader with more workers must not find some cells
    that have counted and some that have not.

    A start is stored with the number of its first iteration. Counts never decrease: a worker that begins late, when
    the next start is already known, still starts where the others of its iteration did.
    """

    def __init__(self, epoch: int) -> None:
        torch = import_module("torch")
        self._cells = torch.zeros((MAX_WORKERS + 1, MAX_WORKERS), dtype=torch.int64).share_memory_()
        self._starts = torch.zeros((_STARTS, 3 + len(_BLOCK_ORDER_KEYS)), dtype=torch.int64).share_memory_()
        self._last = torch.zeros(1, dtype=torch.int64).share_memory_()  # counts starts, written after each
        self._starts[0, 1] = epoch
        self._again = 0  # how often this process has begun

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # A copy has memory of its own, which its workers have to share like any other.
        for shared in (self._cells, self._starts, self._last):
            shared.share_memory_()

    def set(self, epoch: int, consumed: int, order: Mapping[str, Any]) -> None:
        """Start the next iteration there; later ones are the following epochs, from their start.

        Workers may have been created before the state with the parameters of a block-wise order was loaded.
        """
        self._keep(self._begun(), IterationStart.of(epoch, consumed, order))

    def _keep(self, iteration: int, place: IterationStart) -> None:
        start = [iteration, place.epoch, place.consumed, *place.order.values()]
        last = int(self._last[0])
        if self._start(last) == start:
            return
        for cell, value in enumerate(start):
            self._starts[(last + 1) % _STARTS, cell] = value
        self._last[0] = last + 1

    def begin(self, worker: int, workers: int, *, seed: int = 0, at: IterationStart | None = None) -> IterationStart:
        """Where this worker starts; `seed` is torch's seed of the iterator, the same for all workers.

        `at` is the start from a state that the worker loaded. All workers of an iterator load the same start, and
        write the same here, so it does not matter which one is first.
        """
        if workers > MAX_WORKERS:
            raise error(
                "U605",
                "DataLoader has too many workers",
                expected=f"at most {MAX_WORKERS} workers",
                found=f"num_workers={workers}",
                do="num_workers=8, or the number of cores",
            )
        self._again += 1
        count = self._count(worker, workers, seed % _MARK_RANGE)
        # A single number, so that it is read and written atomically.
        self._cells[workers, worker] = (
            seed % _MARK_RANGE * _REPEAT_RANGE + self._again % _REPEAT_RANGE
        ) * _COUNT_RANGE + count
        iteration = self._begun(without=workers) + count - 1
        if at is not None:
            self._keep(iteration, at)
            return at
        return self._place(iteration)

    def _count(self, worker: int, workers: int, mark: int) -> int:
        numbers: list[int] = self._cells[workers].tolist()
        cells = [
            (one // _COUNT_RANGE // _REPEAT_RANGE, one // _COUNT_RANGE % _REPEAT_RANGE, one % _COUNT_RANGE)
            for one in numbers
        ]
        own_mark, own_again, own_count = cells[worker]
        if own_count and own_mark == mark and own_again >= self._again:
            return own_count + 1  # a new iterator, for which torch's seed was set to what it was before
        for other_mark, again, count in cells:
            if count and other_mark == mark:
                return count - (again - self._again)  # of the same iterator, perhaps ahead or behind
        # The first worker of an iterator. Workers of the previous one may have ended before they began.
        return max(count for _, _, count in cells) + 1

    def next_start(self) -> IterationStart:
        """Where the next iteration starts."""
        return self._place(self._begun())

    def current(self) -> IterationStart:
        """Where the latest iteration started, or where the next will, if a start was set since."""
        return self._place(max(self._begun() - 1, int(self._start(int(self._last[0]))[0])))

    def _begun(self, *, without: int | None = None) -> int:
        """The number of iterations begun, over all numbers of workers except `without`."""
        counts = (self._cells % _COUNT_RANGE).amax(dim=1)
        return int(counts.sum()) - (0 if without is None else int(counts[without]))

    def _place(self, iteration: int) -> IterationStart:
        last = int(self._last[0])
        for number in range(last, max(last - _STARTS, -1), -1):
            first, epoch, consumed, *blocks = self._start(number)
            if first <= iteration:
                break
        past = max(iteration - first, 0)
        order = dict(zip(_BLOCK_ORDER_KEYS, blocks, strict=True))
        return IterationStart(epoch + past, 0 if past else consumed, order)

    def _start(self, number: int) -> list[int]:
        start: list[int] = self._starts[number % _STARTS].tolist()
        return start
