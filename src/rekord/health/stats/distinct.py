"""Which values there are and how often each occurs: exactly while they are few, the frequent ones after that.

Values stand here as keys, in ascending order: numbers as themselves, byte strings as their digests. Beyond
`EXACT_KEYS` different keys the `TRACKED_KEYS` most frequent ones are kept in the way of Misra and Gries: when one key
too many comes, what the first key left out would have had is taken from all. A count is then too low by `most_missed`
at the most, and by no more than one in `TRACKED_KEYS` of all values. All the others are only counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.health.stats.sketches import EXACT_VALUES, REGISTER_BITS, Array, DistinctCount, Hashes

EXACT_KEYS = 10_000
TRACKED_KEYS = 2_000
SHARED_KEYS = 1_000_000
"""So many keys are kept of all features together: with more than 100 features each has less than `EXACT_KEYS`."""

_MANY_FEATURES = 1_000
_FEWEST_KEYS = 100
_FEWER_VALUES = EXACT_VALUES // 4
_FEWER_BITS = REGISTER_BITS - 4
"""Features beyond so many make do with smaller sketches: whoever has them has keys that are data."""

Counts: TypeAlias = npt.NDArray[np.int64]
Fetch: TypeAlias = Callable[[Sequence[int]], list[Any]]
Spread: TypeAlias = Callable[[Array], Hashes]


class Room:
    """How much the features of a dataset may keep, each of them and together."""

    __slots__ = ("features",)

    def __init__(self) -> None:
        self.features = 0

    @property
    def keys(self) -> int:
        """How many keys one feature may count exactly."""
        return max(min(EXACT_KEYS, SHARED_KEYS // max(self.features, 1)), _FEWEST_KEYS)

    @property
    def tracked_keys(self) -> int:
        """How many of them it may keep once there are too many to count."""
        return min(TRACKED_KEYS, self.keys)

    @property
    def exact_values(self) -> int:
        """How many values of one feature are kept for its quantiles."""
        return EXACT_VALUES if self.features <= _MANY_FEATURES else _FEWER_VALUES

    @property
    def register_bits(self) -> int:
        """How large an estimate of different values may be."""
        return REGISTER_BITS if self.features <= _MANY_FEATURES else _FEWER_BITS


class Distinct:
    """The different values of one feature. `spread` makes hashes of keys; `named` ones stand for something else."""

    __slots__ = ("_spread", "_unlisted", "counts", "keys", "most_missed", "names", "total")

    def __init__(self, dtype: npt.DTypeLike, spread: Spread, *, named: bool) -> None:
        self.keys: Array = np.empty(0, dtype)
        self.counts: Counts = np.empty(0, np.int64)
        self.names: Array | None = np.empty(0, object) if named else None
        self.total = 0
        self.most_missed = 0
        self._spread = spread
        self._unlisted: DistinctCount | None = None

    @property
    def is_exact(self) -> bool:
        """Whether every key and its count is known."""
        return self._unlisted is None

    @property
    def unique(self) -> int:
        """How many different keys there were; about so many, where they are not exact."""
        if self._unlisted is None:
            return len(self.keys)
        return max(min(self._unlisted.estimate(), self.total), len(self.keys))

    def add(self, keys: Array, counts: Counts, room: Room, fetch: Fetch | None = None) -> None:
        """Take in different keys in ascending order. `fetch` gives what those at some places stand for."""
        self.total += int(counts.sum())
        if self._unlisted is None:
            self._add_exactly(keys, counts, room, fetch)
        else:
            self._unlisted.add(self._spread(keys))
            self._add_tracked(keys, counts, room, fetch)

    def merge(self, other: Distinct, room: Room) -> None:
        """Take in everything that another one has seen."""
        names = other.names
        fetch = None if names is None else lambda places: list(names[list(places)])
        if other._unlisted is None:
            self.add(other.keys, other.counts, room, fetch)
            return
        self.total += other.total
        if self._unlisted is None:
            self._overflow(room)
        assert self._unlisted is not None
        self._unlisted.merge(other._unlisted)
        self.most_missed += other.most_missed
        self._add_tracked(other.keys, other.counts, room, fetch)

    def top(self, number: int) -> list[tuple[Any, int]]:
        """The most frequent values with their counts; of equal ones the lesser value first."""
        if len(self.counts) > number:
            least = np.partition(self.counts, -number)[-number]
            places = np.flatnonzero(self.counts >= least)
        else:
            places = np.arange(len(self.counts))
        shown = self.keys if self.names is None else self.names
        values, counts = shown[places].tolist(), self.counts[places].tolist()
        return sorted(zip(values, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))[:number]

    def _add_exactly(self, keys: Array, counts: Counts, room: Room, fetch: Fetch | None) -> None:
        places = np.searchsorted(self.keys, keys)
        if len(self.keys):
            known = self.keys[np.minimum(places, len(self.keys) - 1)] == keys
        else:
            known = np.zeros(len(keys), bool)
        self.counts[places[known]] += counts[known]
        fresh = np.flatnonzero(~known)
        if not len(fresh):
            return
        if len(self.keys) + len(fresh) <= room.keys:
            self._insert(keys[fresh], counts[fresh], fresh, fetch)
            return
        self._overflow(room)
        assert self._unlisted is not None
        self._unlisted.add(self._spread(keys))
        self._add_tracked(keys[fresh], counts[fresh], room, None if fetch is None else _only(fetch, fresh))

    def _overflow(self, room: Room) -> None:
        self._unlisted = DistinctCount(room.register_bits)
        self._unlisted.add(self._spread(self.keys))

    def _add_tracked(self, keys: Array, counts: Counts, room: Room, fetch: Fetch | None) -> None:
        rest = np.ones(len(keys), bool)
        if len(keys):
            places = np.minimum(np.searchsorted(keys, self.keys), len(keys) - 1)
            known = keys[places] == self.keys
            self.counts[known] += counts[places[known]]
            rest[places[known]] = False
        fresh = np.flatnonzero(rest)
        if len(self.keys) + len(fresh) > room.tracked_keys:
            missed = self._first_left_out(counts[fresh], room.tracked_keys)
            fresh = fresh[counts[fresh] > missed]
            self._keep(self.counts > missed)
            self.counts -= missed
            self.most_missed += missed
            counts = counts - missed
        self._insert(keys[fresh], counts[fresh], fresh, fetch)

    def _first_left_out(self, fresh: Counts, room: int) -> int:
        """The count of the most frequent key for which there is no room."""
        # Most are met once in a batch. Where the others have room, the first to be left out is one of those.
        several = fresh[fresh > 1]
        ours = self.counts[self.counts > 1]
        if len(ours) + len(several) <= room:
            return 1
        return int(np.partition(np.concatenate([ours, several]), -room - 1)[-room - 1])

    def _keep(self, which: npt.NDArray[np.bool_]) -> None:
        self.keys, self.counts = self.keys[which], self.counts[which]
        if self.names is not None:
            self.names = self.names[which]

    def _insert(self, keys: Array, counts: Counts, places: Array, fetch: Fetch | None) -> None:
        if not len(keys):
            return
        joined = np.concatenate([self.keys, keys])
        order = np.argsort(joined, kind="stable")
        self.keys = joined[order]
        self.counts = np.concatenate([self.counts, counts])[order]
        if self.names is not None:
            assert fetch is not None, "keys that stand for something need it fetched"
            names = np.empty(len(places), object)
            names[:] = fetch(places.tolist())
            self.names = np.concatenate([self.names, names])[order]


def runs(ordered: Array) -> tuple[Array, Counts]:
    """Where each run of equal values begins, and how long it is."""
    begins = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    return begins, np.diff(begins, append=len(ordered))


def _only(fetch: Fetch, places: Array) -> Fetch:
    return lambda chosen: fetch(places[list(chosen)].tolist())
