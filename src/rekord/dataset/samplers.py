"""Samplers: which record is delivered at each position of an epoch, as a pure function of seed and epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from rekord.dataset.order import Ids, Order
from rekord.dataset.shards import Shards

Selection: TypeAlias = "range | Ids"


def selected(ids: Ids) -> Selection:
    """These numbers; a range where they have equal gaps, so that a view is the same however it was made."""
    if len(ids) < 2:
        return range(int(ids[0]), int(ids[0]) + 1) if len(ids) else range(0)
    step = int(ids[1]) - int(ids[0])
    if step and bool((np.diff(ids) == step).all()):
        return range(int(ids[0]), int(ids[-1]) + step, step)
    return ids


def cut(within: Selection, which: slice) -> Selection:
    """A slice of a selection."""
    part = within[which]
    if not isinstance(part, range):
        return selected(part)
    if len(part) < 2:
        return range(part[0], part[0] + 1) if part else range(0)
    return part if part[-1] + part.step == part.stop else range(part[0], part[-1] + part.step, part.step)


def numbers_at(selection: Selection, places: Ids) -> Ids:
    """The numbers that stand at some places of a selection."""
    if isinstance(selection, range):
        return selection.start + places * selection.step
    return selection[places]


def all_numbers(selection: Selection) -> Ids:
    """Every number of a selection."""
    if isinstance(selection, range):
        return np.arange(selection.start, selection.stop, selection.step, dtype=np.int64)
    return selection


def joined(selections: Sequence[Selection]) -> Selection:
    """One selection behind another."""
    return selected(np.concatenate([all_numbers(one) for one in selections]))


def digest_of(selection: Selection) -> str:
    """A few letters that tell a selection from others."""
    if isinstance(selection, range):
        told = f"{selection.start}:{selection.stop}:{selection.step}".encode()
    else:
        told = np.ascontiguousarray(selection, np.int64).tobytes()
    return hashlib.sha256(told).hexdigest()[:16]


class Recipe(Protocol):
    """What `Batches` follows."""

    @property
    def size(self) -> int:
        """How many positions an epoch has."""

    @property
    def is_file_order(self) -> bool:
        """Whether position p is record p of all, so that files can be read from front to end."""

    def records(self, epoch: int, positions: Ids) -> Ids:
        """The numbers of the records at these positions."""

    def to_dict(self) -> dict[str, Any]:
        """What tells this recipe from others, as a state holds it: small, and JSON."""

    def going_on(self, told: Mapping[str, Any]) -> Recipe:
        """The recipe for who goes on from a state that tells this of its own. Whether they fit is seen elsewhere."""


@dataclass(frozen=True)
class FileOrder:
    """All records of some shards as they come. How many there are is looked up when it is needed."""

    shards: Shards

    @property
    def size(self) -> int:
        """All of them."""
        return len(self.shards)

    @property
    def is_file_order(self) -> bool:
        """It is."""
        return True

    def records(self, epoch: int, positions: Ids) -> Ids:
        """The record of the same number."""
        return positions

    def to_dict(self) -> dict[str, Any]:
        """Nothing but its kind."""
        return {"kind": "sequential"}

    def going_on(self, told: Mapping[str, Any]) -> FileOrder:
        """The same."""
        return self


@dataclass(frozen=True)
class Whole:
    """All records of some shards in an order."""

    order: Order

    @property
    def size(self) -> int:
        """All of them."""
        return self.order.n

    @property
    def is_file_order(self) -> bool:
        """Not as far as readers are to know."""
        return False

    def records(self, epoch: int, positions: Ids) -> Ids:
        """What stands there in the order."""
        return self.order.records(epoch, positions)

    def to_dict(self) -> dict[str, Any]:
        """The order alone."""
        return self.order.to_dict()

    def going_on(self, told: Mapping[str, Any]) -> Whole:
        """The order as it was begun."""
        return replace(self, order=self.order.going_on(told))


@dataclass(frozen=True, eq=False)
class Selected:
    """Some of the records, in an order of their own. `ids` are their numbers."""

    order: Order
    ids: Selection

    @property
    def size(self) -> int:
        """As many as are selected."""
        return len(self.ids)

    @property
    def is_file_order(self) -> bool:
        """Never: what was left out would be read too."""
        return False

    def records(self, epoch: int, positions: Ids) -> Ids:
        """The selected one that stands there in the order."""
        return numbers_at(self.ids, self.order.records(epoch, positions))

    def to_dict(self) -> dict[str, Any]:
        """The order, and a digest of what is selected."""
        return {**self.order.to_dict(), "selected": self._digest}

    def going_on(self, told: Mapping[str, Any]) -> Selected:
        """The order as it was begun, of the same records."""
        return replace(self, order=self.order.going_on(told))

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.ids)
