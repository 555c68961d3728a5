"""What a saved iteration says: where it is in an order, and which order that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rekord import _core
from rekord.errors import RekordError, error
from rekord.schema.refuse import shown

VERSION = 1
_MOST = 1 << 63


@dataclass(frozen=True, slots=True)
class State:
    """A place in an epoch, small and JSON.

    `consumed` are positions that were delivered, over all ranks, never those that were only prefetched. Rank, world,
    batch size, threads and columns are not part of it: they may differ when it is loaded.
    """

    dataset: str
    split: str
    order: Mapping[str, Any]
    epoch: int
    consumed: int

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON holds it."""
        return {**self._fields(), "checksum": self._checksum()}

    def _fields(self) -> dict[str, Any]:
        return {
            "rekord": VERSION,
            "dataset": self.dataset,
            "split": self.split,
            "order": dict(self.order),
            "epoch": self.epoch,
            "consumed": self.consumed,
        }

    def _checksum(self) -> str | None:
        """Of what it says: a state is a few numbers, and any other ones would be a place in an epoch too."""
        try:
            return f"crc32c:{_core.crc32c(msgspec.json.encode(self._fields(), order='sorted')):08x}"
        except (TypeError, ValueError, OverflowError, RecursionError):
            return None  # what no JSON has been

    @classmethod
    def from_dict(cls, state: object) -> State:
        """A state that `to_dict` made, perhaps long ago and in another process."""
        if not isinstance(state, Mapping) or state.get("rekord") != VERSION:
            raise _refused("a state that `state_dict()` gave", shown(state))
        kinds = {"dataset": str, "split": str, "order": Mapping, "epoch": int, "consumed": int}
        for name, kind in kinds.items():
            value = state.get(name)
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits or (kind is int and not 0 <= value < _MOST):  # type: ignore[operator]
                raise _refused(f"`{name}` in the state", shown(value))
        loaded = cls(**{name: state[name] for name in kinds})
        # States of earlier versions have none.
        checksum = state.get("checksum")
        if checksum not in (None, loaded._checksum()):
            raise _refused(f"checksum {loaded._checksum()}, of what it says", shown(checksum))
        return loaded

    def check_fits(self, own: State) -> None:
        """Raise where this is a state of another dataset or another order."""
        for name, loaded, here, do in (
            ("dataset", self.dataset, own.dataset, "open the dataset that the state was saved with"),
            ("split", self.split, own.split, f"iterate over the split {self.split!r}"),
            ("order", dict(self.order), dict(own.order), "give the same shuffle and seed as then"),
        ):
            if loaded != here:
                raise error(
                    "U650",
                    f"the state is one of another {name}",
                    expected=shown(loaded),
                    found=shown(here),
                    do=do,
                )


def _refused(expected: str, found: str) -> RekordError:
    return error(
        "U650",
        "this is no state of an iteration",
        expected=expected,
        found=found,
        do="load_state_dict(iterator.state_dict()), as saved",
    )
