"""Samplers: which record is delivered at each position of an epoch, as a pure function of seed and epoch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from rekord import _core
from rekord.dataset.order import EpochOrder, Ids
from rekord.dataset.shards import Shards
from rekord.errors import error

UINT64_RANGE = 1 << 64
_MAX_EXACT = 1 << 31
"""Below this the product of two numbers of records fits in an int64."""

Selection: TypeAlias = "range | Ids"


def normalize_selection(ids: Ids) -> Selection:
    """These numbers; a range where they have equal gaps, so that a view is the same however it was made."""
    if len(ids) < 2:
        return range(int(ids[0]), int(ids[0]) + 1) if len(ids) else range(0)
    step = int(ids[1]) - int(ids[0])
    if step and bool((np.diff(ids) == step).all()):
        return range(int(ids[0]), int(ids[-1]) + step, step)
    return ids


def slice_selection(within: Selection, which: slice) -> Selection:
    """A slice of a selection."""
    part = within[which]
    if not isinstance(part, range):
        return normalize_selection(part)
    if len(part) < 2:
        return range(part[0], part[0] + 1) if part else range(0)
    return part if part[-1] + part.step == part.stop else range(part[0], part[-1] + part.step, part.step)


def select_numbers(selection: Selection, places: Ids) -> Ids:
    """The numbers that stand at some places of a selection."""
    if isinstance(selection, range):
        return selection.start + places * selection.step
    return selection[places]


def expand_selection(selection: Selection) -> Ids:
    """Every number of a selection."""
    if isinstance(selection, range):
        return np.arange(selection.start, selection.stop, selection.step, dtype=np.int64)
    return selection


def concat_selections(selections: Sequence[Selection]) -> Selection:
    """One selection behind another."""
    return normalize_selection(np.concatenate([expand_selection(one) for one in selections]))


def digest_selection(selection: Selection) -> str:
    """A few letters that tell a selection from others."""
    if isinstance(selection, range):
        told = f"{selection.start}:{selection.stop}:{selection.step}".encode()
    else:
        told = np.ascontiguousarray(selection, np.int64).tobytes()
    return hashlib.sha256(told).hexdigest()[:16]


class Sampler(Protocol):
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
        """What tells this sampler from others, as a state holds it: small, and JSON."""

    def resume(self, told: Mapping[str, Any]) -> Sampler:
        """The sampler for who goes on from a state that tells this of its own. Whether they fit is seen elsewhere."""


@dataclass(frozen=True)
class FileOrderSampler:
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

    def resume(self, told: Mapping[str, Any]) -> FileOrderSampler:
        """The same."""
        return self


@dataclass(frozen=True)
class FullSampler:
    """All records of some shards in an order."""

    order: EpochOrder

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

    def resume(self, told: Mapping[str, Any]) -> FullSampler:
        """The order as it was begun."""
        return replace(self, order=self.order.resume(told))


@dataclass(frozen=True, eq=False)
class SubsetSampler:
    """Some of the records, in an order of their own. `ids` are their numbers."""

    order: EpochOrder
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
        return select_numbers(self.ids, self.order.records(epoch, positions))

    def to_dict(self) -> dict[str, Any]:
        """The order, and a digest of what is selected."""
        return {**self.order.to_dict(), "selected": self._digest}

    def resume(self, told: Mapping[str, Any]) -> SubsetSampler:
        """The order as it was begun, of the same records."""
        return replace(self, order=self.order.resume(told))

    @cached_property
    def _digest(self) -> str:
        return digest_selection(self.ids)


class Sampling(Protocol):
    """How the epochs of a balanced or mixed split are drawn from its records."""

    @property
    def description(self) -> str:
        """In a few words."""

    @property
    def size(self) -> int:
        """How many positions an epoch has."""

    @property
    def achieved(self) -> Mapping[Any, float]:
        """The part of an epoch that each class, or each component, has."""

    def sampler(self, *, shuffled: bool, seed: int) -> Sampler:
        """Which record stands at each position."""


class SamplingGroups(Protocol):
    """What is drawn from: some parts, each with an order of its own in every round through it."""

    def __len__(self) -> int: ...

    def size(self, part: int) -> int:
        """How many records a part has."""

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        """Which records stand at these numbers of one round through a part."""


@dataclass(frozen=True, eq=False)
class QuotaSampler:
    """A sampler that takes a fixed number of records from each part in an epoch, at computed places.

    Each part has a sequence of its own that continues from epoch to epoch: its records in one order, then in another,
    and so on. A small part comes around several times in an epoch, each record as often as any other; a large one is
    covered over several epochs. All of it is computed from the position.
    """

    parts: SamplingGroups
    quotas: Ids
    shuffled: bool
    seed: int
    extra: Mapping[str, Any]

    @property
    def size(self) -> int:
        """The sum of all quotas."""
        return int(self._bounds[-1])

    @property
    def is_file_order(self) -> bool:
        """Never."""
        return False

    @cached_property
    def _bounds(self) -> Ids:
        return np.concatenate([[0], np.cumsum(self.quotas)]).astype(np.int64)

    def records(self, epoch: int, positions: Ids) -> Ids:
        """What stands there: of which part, the how manieth of the epoch, and so which record of that part."""
        out = np.empty(len(positions), np.int64)
        if not len(positions):
            return out
        parts, numbers = self._places(epoch, positions)
        grouped = np.argsort(parts, kind="stable")
        used, begins = np.unique(parts[grouped], return_index=True)
        for part, places in zip(used.tolist(), np.split(grouped, begins[1:]), strict=True):
            out[places] = self._of_part(part, epoch, numbers[places])
        return out

    def to_dict(self) -> dict[str, Any]:
        """The order, and what tells these parts and quotas from others."""
        order = {"kind": "exact", "seed": self.seed} if self.shuffled else {"kind": "sequential"}
        quotas = hashlib.sha256(np.ascontiguousarray(self.quotas, np.int64).tobytes()).hexdigest()
        return {**order, **self.extra, "quotas": quotas[:16]}

    def resume(self, told: Mapping[str, Any]) -> QuotaSampler:
        """The same."""
        return self

    def _places(self, epoch: int, positions: Ids) -> tuple[Ids, Ids]:
        if not self.shuffled:
            return interleave_groups(self._bounds, positions)
        key = _core.order_key([self.seed, epoch])
        drawn: Ids = _core.permute(positions, self.size, key)  # type: ignore[assignment]
        # The last of equal bounds: parts without a quota have no places.
        parts = np.searchsorted(self._bounds, drawn, side="right").astype(np.int64) - 1
        return parts, drawn - self._bounds[parts]

    def _of_part(self, part: int, epoch: int, numbers: Ids) -> Ids:
        size = self.parts.size(part)
        # Python's whole numbers, since an epoch may be a very large one.
        round_before, begun = divmod(epoch * int(self.quotas[part]), size)
        rounds, inside = np.divmod(begun + numbers, size)
        out = np.empty(len(numbers), np.int64)
        for each in np.unique(rounds).tolist():
            here = rounds == each
            # A key is made of words of 64 bits.
            number = (round_before + each) % (1 << 64)
            out[here] = self.parts.records(part, number, inside[here], shuffled=self.shuffled, seed=self.seed)
        return out


def interleave_groups(bounds: Ids, positions: Ids) -> tuple[Ids, Ids]:
    """Parts spread evenly over an epoch: the part at each position, and the how manieth it is of that part.

    The parts are halved again and again. Of n positions, `first` of which are of the first half, position p is one of
    them where p · first / n steps over a whole number; how many were before it is that number. `bounds` are the sums
    of the quotas so far.
    """
    parts, numbers = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.int64)
    places = np.arange(len(positions))
    if int(bounds[-1]) >= _MAX_EXACT:
        positions = positions.astype(object)
    waiting = [(0, len(bounds) - 1, places, positions)]
    while waiting:
        begin, end, places, inside = waiting.pop()
        if end - begin == 1:
            parts[places], numbers[places] = begin, inside.astype(np.int64)
            continue
        middle = (begin + end) // 2
        n, first = int(bounds[end] - bounds[begin]), int(bounds[middle] - bounds[begin])
        before = inside * first // n
        is_first = (inside + 1) * first // n > before
        for low, high, mine, number in (
            (begin, middle, is_first, before),
            (middle, end, ~is_first.astype(bool), inside - before),
        ):
            mine = mine.astype(bool)
            if mine.any():
                waiting.append((low, high, places[mine], number[mine]))
    return parts, numbers


def allocate_quotas(n: int, shares: Sequence[Fraction]) -> Ids:
    """So many of n for each share: whole numbers, each less than 1 from its part, n in all."""
    total = sum(shares, Fraction(0))
    exact = [share * n / total for share in shares]
    quotas = [math.floor(one) for one in exact]
    # What is left goes to those that lost most by rounding down, the first ones of equals.
    losers = sorted(range(len(shares)), key=lambda place: quotas[place] - exact[place])
    for place in losers[: n - sum(quotas)]:
        quotas[place] += 1
    return np.array(quotas, np.int64)


def parse_share(name: str, value: object) -> Fraction:
    """A share as it was written: 0.7 is seven tenths, and not the nearest number that a float can be."""
    number = value.item() if isinstance(value, np.generic) else value
    usable = isinstance(number, (int, float, Fraction)) and not isinstance(number, bool)
    if not usable or not math.isfinite(number) or number < 0:  # type: ignore[arg-type, operator]
        raise error(
            "U605",
            f"a share cannot be {repr(value)[:60]}",
            expected="a number from 0 on",
            found=repr(value)[:60],
            do=f"{name}: 0.5",
        )
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)  # type: ignore[arg-type]
