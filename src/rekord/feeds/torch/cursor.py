"""Where the workers of a torch DataLoader are to begin, in memory that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rekord.errors import error

MAX_WORKERS = 256
_BLOCK_ORDER_KEYS = ("block", "window", "lanes")
"""What a state says of a block-wise order, whatever the world is now."""
_STARTS = 64
"""So many starts are remembered. A worker that is slow to begin looks for the one that was meant when it was made."""
_MARK_RANGE, _REPEAT_RANGE, _COUNT_RANGE = 1 << 16, 1 << 23, 1 << 24
"""What a cell tells apart: iterators, how often a worker of one began, and iterations. One number holds all three."""


@dataclass(frozen=True, slots=True)
class IterationStart:
    """Where an iteration begins, and what a block-wise order was begun with."""

    epoch: int
    consumed: int
    order: Mapping[str, int]

    @classmethod
    def of(cls, epoch: int, consumed: int, order: Mapping[str, Any]) -> IterationStart:
        """With what matters here of an order."""
        return cls(epoch, consumed, {name: order.get(name, 0) for name in _BLOCK_ORDER_KEYS})


class SharedCursor:
    """Where iterations begin.

    torch tells a dataset neither the epoch nor that an iteration begins: it makes new workers each time, or lets
    persistent ones iterate again. So each worker counts how often it has begun, in a cell that only it writes to.
    Cells are kept apart by the number of workers: another DataLoader with more of them must not find some that have
    counted and some that have not.

    A start is kept with the number of the first iteration that it is for. Counts are never set back: a worker that
    begins late, while the next start is already known, still begins where the others of its iteration did.
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
        """Let the next iteration begin there; those after it are the epochs that follow, from their start.

        Workers may have been made before a state was loaded that says how a block-wise order was begun.
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
        """Where this worker is to begin; `seed` is what torch has drawn for its iterator, one for all workers.

        `at` is where it begins by a state that it was given. All workers of an iterator are given one at the same
        place, and write the same here: it does not matter who is first.
        """
        if workers > MAX_WORKERS:
            raise error(
                "U605",
                f"a DataLoader with {workers:,} workers is more than can be counted",
                expected=f"at most {MAX_WORKERS} workers",
                found=f"num_workers={workers}",
                do="num_workers=8: as many as there are cores to decode on",
            )
        self._again += 1
        count = self._count(worker, workers, seed % _MARK_RANGE)
        # One number, so that nobody sees half of it.
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
                return count - (again - self._again)  # of the same iterator, perhaps further on, or behind
        # The first one of an iterator. Of the last one there may be workers that ended before they had begun.
        return max(count for _, _, count in cells) + 1

    def next_start(self) -> IterationStart:
        """Where the next iteration begins."""
        return self._place(self._begun())

    def current(self) -> IterationStart:
        """Where the iteration that was begun last did, or where the next will, if a start was set since."""
        return self._place(max(self._begun() - 1, int(self._start(int(self._last[0]))[0])))

    def _begun(self, *, without: int | None = None) -> int:
        """How many iterations were begun, by any number of workers, or by any other."""
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
