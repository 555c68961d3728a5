"""What sorted places tell: how much is there twice within a split, or in two splits, and where it is first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.health.external_sort import Places, cell_starts, group_starts

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A record: the number of its file, its number there, and where its frame begins."""

    file: int
    record: int
    offset: int


@dataclass(frozen=True, slots=True, order=True)
class Pair:
    """Two records that hold the same, and how many do in all."""

    first: Place
    second: Place
    records: int


@dataclass(slots=True)
class Tally:
    """How many contents are there more than once, in how many records, with the first of them by place.

    `records` are those of the split, or of the second of two splits; `others` those of the first one.
    """

    contents: int = 0
    records: int = 0
    others: int = 0
    pairs: list[Pair] = field(default_factory=list)


class EqualPlaces:
    """Sums up parts of sorted places. What is kept does not grow with them."""

    def __init__(self, most_pairs: int) -> None:
        self._most_pairs = most_pairs
        self.within: dict[tuple[int, int], Tally] = {}  # by feature and split
        self.across: dict[tuple[int, int, int], Tally] = {}  # by feature and two splits, the lower one first
        self.repeats: Counter[int] = Counter()  # by feature: records that hold what another one holds already

    def take(self, part: Places) -> None:
        """Look at one part, which holds all places of its digests."""
        groups = group_starts(part)
        if groups.all():
            return
        starts = np.flatnonzero(cell_starts(part))
        counts = np.add.reduceat(part["count"], starts, dtype=np.int64)
        first = np.flatnonzero(groups[starts])  # of each digest, the first of its splits
        sizes = np.diff(first, append=len(starts))
        features = part["feature"][starts]
        for feature in np.unique(features[first][np.add.reduceat(counts, first) > 1]).tolist():
            mine = features == feature
            self.repeats[feature] += int(counts[mine].sum()) - int(np.count_nonzero(mine[first]))
        self._within(part, starts, counts)
        others = np.ones(len(starts), np.bool_)
        others[first] = False
        if others.any():
            home = np.repeat(first, sizes)
            at = np.flatnonzero(others)
            self._across(part, starts, counts, home[at], at)

    def _within(self, part: Places, starts: _Ints, counts: _Ints) -> None:
        at = np.flatnonzero(counts > 1)
        ones = starts[at]
        for (feature, split), chosen in _by(part["feature"][ones], part["split"][ones]):
            tally = self.within.setdefault((feature, split), Tally())
            mine = ones[chosen]
            records = counts[at[chosen]]
            tally.contents += len(mine)
            tally.records += int(records.sum())
            self._keep(tally, part[mine], part[mine + 1], records)

    def _across(self, part: Places, starts: _Ints, counts: _Ints, home: _Ints, at: _Ints) -> None:
        a, b = starts[home], starts[at]
        for (feature, one, other), chosen in _by(part["feature"][b], part["split"][a], part["split"][b]):
            tally = self.across.setdefault((feature, one, other), Tally())
            tally.contents += len(chosen)
            tally.others += int(counts[home[chosen]].sum())
            tally.records += int(counts[at[chosen]].sum())
            records = counts[home[chosen]] + counts[at[chosen]]
            self._keep(tally, part[a[chosen]], part[b[chosen]], records)

    def _keep(self, tally: Tally, first: Places, second: Places, records: _Ints) -> None:
        order = np.lexsort((first["record"], first["file"]))[: self._most_pairs].tolist()
        pairs = [Pair(_place(first[i]), _place(second[i]), int(records[i])) for i in order]
        tally.pairs = sorted([*tally.pairs, *pairs])[: self._most_pairs]


def _by(*keys: npt.NDArray[Any]) -> Iterator[tuple[Any, _Ints]]:
    """The positions of each combination of keys that there is."""
    if not len(keys[0]):
        return
    bases = [int(key.max()) + 1 for key in keys]
    joined = np.zeros(len(keys[0]), np.uint64)
    for key, base in zip(keys, bases, strict=True):
        joined = joined * np.uint64(base) + key
    _, first, which, sizes = np.unique(joined, return_index=True, return_inverse=True, return_counts=True)
    positions = np.split(np.argsort(which, kind="stable"), np.cumsum(sizes)[:-1])
    for at, chosen in zip(first.tolist(), positions, strict=True):
        yield tuple(int(key[at]) for key in keys), chosen


def _place(row: Any) -> Place:
    return Place(int(row["file"]), int(row["record"]), int(row["offset"]))
