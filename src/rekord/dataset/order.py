"""The order of an epoch: which record stands at each position, as a pure function of seed and epoch.

Ranks, loader workers, threads and batch sizes never enter here: they only partition the positions (`steps`). So the
same seed gives the same order in every framework, and a state of a few numbers is enough to go on anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.errors import error

Ids: TypeAlias = npt.NDArray[np.int64]
OrderKind: TypeAlias = Literal["sequential", "exact", "block"]

WINDOW_BLOCKS = 16
"""Records are permuted inside so many blocks of a block-wise order."""

_MOST_SEED = 1 << 63
_MOST_NUMBER = 1 << 62


@dataclass(frozen=True, slots=True)
class Order:
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

    def going_on(self, told: Mapping[str, Any]) -> Order:
        """The order for who goes on from a state: a block-wise one stays as it was begun, in whatever world."""
        if self.kind != "block":
            return self
        block, window, lanes = told.get("block"), told.get("window"), told.get("lanes")
        if not (_is_number(block) and _is_number(window) and _is_number(lanes)):
            return self  # which is then another order than the state's
        return replace(self, block=block, window=window, lanes=lanes)


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < _MOST_NUMBER


def checked_seed(name: str, value: object) -> int:
    """A seed or an epoch: a whole number from 0 on."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() < _MOST_SEED:
        raise error(
            "U605",
            f"`{name}` cannot be {repr(value)[:60]}",
            expected="a whole number from 0 on",
            found=repr(value)[:60],
            do=f"{name}=0",
        )
    return int(value.__index__())
