"""Recipes: which record of the shards is delivered at each position of an epoch.

An order of all records is the plain one. A view puts a selection behind it; balanced classes and mixtures have
recipes of their own. All are pure functions of the epoch: ranks, workers and a resume need to know nothing of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from rekord.dataset.order import Ids, Order
from rekord.dataset.selection import Selection, digest_of, numbers_at
from rekord.dataset.shards import Shards


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
