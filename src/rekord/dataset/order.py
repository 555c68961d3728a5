"""The order of an epoch, which record is at each position, and how ranks and workers partition the positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.arguments import integer, invalid, one_of

Ids: TypeAlias = npt.NDArray[np.int64]
OrderKind: TypeAlias = Literal["sequential", "exact", "block"]

WINDOW_BLOCKS = 16
"""Records are permuted inside so many blocks of a block-wise order."""

_MAX_SEED = 1 << 63
_MAX_NUMBER = 1 << 62


@dataclass(frozen=True, slots=True)
class EpochOrder:
    """An order of `n` records. Of a block-wise one `block` is a number of records, `lanes` the first world size."""

    kind: OrderKind
    n: int
    seed: int = 0
    block: int = 1
    window: int = WINDOW_BLOCKS
    lanes: int = 1

    def records(self, epoch: int, positions: Ids) -> Ids:
        """The record at each of these positions of an epoch."""
        if self.kind == "sequential" or not len(positions):
            return positions
        key = _core.order_key([self.seed, epoch])
        if self.kind == "exact":
            return _core.permute(positions, self.n, key)  # type: ignore[return-value]
        return _core.permute_blocks(  # type: ignore[return-value]
            positions, self.n, self.block, self.window, self.lanes, key
        )

    def to_dict(self) -> dict[str, Any]:
        """The order as a state holds it; the number of records is said elsewhere."""
        if self.kind == "sequential":
            return {"kind": self.kind}
        told: dict[str, Any] = {"kind": self.kind, "seed": self.seed}
        if self.kind == "block":
            told |= {"block": self.block, "window": self.window, "lanes": self.lanes}
        return told

    def resume(self, told: Mapping[str, Any]) -> EpochOrder:
        """The order for who goes on from a state: a block-wise one stays as it was begun, in whatever world."""
        if self.kind != "block":
            return self
        block, window, lanes = told.get("block"), told.get("window"), told.get("lanes")
        if not (_is_number(block) and _is_number(window) and _is_number(lanes)):
            return self  # which is then another order than the state's
        return replace(self, block=block, window=window, lanes=lanes)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _MAX_NUMBER


Remainder: TypeAlias = Literal["keep", "drop", "pad"]
_REMAINDERS = ("keep", "drop", "pad")


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank through `n` positions, beginning with the position `consumed`.

    What is left when no full step fits any more is kept (a rank may then have a shorter batch than others, or none),
    dropped, or padded with positions from the epoch's start.
    """

    n: int
    batch_size: int
    rank: int = 0
    world: int = 1
    remainder: Remainder = "keep"
    consumed: int = 0

    @property
    def step_positions(self) -> int:
        """How many positions all ranks take together in a step."""
        return self.batch_size * self.world

    def __len__(self) -> int:
        """How many batches this rank still gets."""
        left = max(self.n - self.consumed, 0)
        whole, rest = divmod(left, self.step_positions)
        if not rest or self.remainder == "drop":
            return whole
        return whole + 1 if self.remainder == "pad" or len(self._positions(whole)) else whole

    @property
    def padded(self) -> int:
        """How many positions of the last step, over all ranks, come from the epoch's start."""
        rest = max(self.n - self.consumed, 0) % self.step_positions
        return self.step_positions - rest if self.remainder == "pad" and rest else 0

    def positions(self, step: int) -> Ids:
        """The positions of this rank in a step."""
        return self._positions(step)

    def consumed_after(self, step: int) -> int:
        """How many positions of the epoch are delivered, over all ranks, once this step is."""
        return min(self.consumed + (step + 1) * self.step_positions, self.n)

    def worker_steps(self, worker: int, workers: int) -> Iterator[int]:
        """The steps of one loader worker: whole ones, so that any number of workers gives one order."""
        return iter(range(worker, len(self), workers))

    def _positions(self, step: int) -> Ids:
        begin = self.consumed + step * self.step_positions
        first = begin + (self.rank - begin) % self.world
        end = begin + self.step_positions
        if self.remainder == "pad":
            return np.arange(first, end, self.world, dtype=np.int64) % max(self.n, 1)
        return np.arange(first, min(end, self.n), self.world, dtype=np.int64)


def validate_ranks(rank: object, world: object, remainder: Remainder) -> tuple[int, int, Remainder]:
    """A rank that is one of the world's, and what becomes of the remainder."""
    size, number = integer("world", world, least=1, do="world=1"), integer("rank", rank, least=0, do="rank=0")
    if number >= size:
        expected, do = f"a number from 0 to {size - 1}", "rank=0, or the number of this process among all"
        raise invalid("rank", number, expected, do)
    return number, size, one_of("remainder", remainder, _REMAINDERS, do='remainder="drop"')
