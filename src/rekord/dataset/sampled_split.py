"""Splits whose epochs are drawn from records: a fixed number from each of some parts, at computed places.

Each part has a quota of the positions of an epoch, and a sequence of its own that goes on from epoch to epoch: its
records in one order, then in another, and so on. A small part comes around several times in an epoch, each record as
often as any other; a large one is covered over several epochs. All of it is computed from the position.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NoReturn, Protocol

import numpy as np

from rekord import _core
from rekord.dataset.order import Ids
from rekord.dataset.postprocess import Map
from rekord.dataset.samplers import Recipe, Selection
from rekord.dataset.split import Split
from rekord.errors import RekordError, error

WORD = 1 << 64
_MOST_EXACT = 1 << 31
"""Below this the product of two numbers of records fits in an int64."""


class Drawing(Protocol):
    """What a drawn split draws, and how."""

    @property
    def said(self) -> str:
        """In a few words."""

    @property
    def size(self) -> int:
        """How many positions an epoch has."""

    @property
    def achieved(self) -> Mapping[Any, float]:
        """The part of an epoch that each class, or each component, has."""

    def recipe(self, *, shuffled: bool, seed: int) -> Recipe:
        """Which record stands at each position."""


class Drawn(Split):
    """A split whose epochs are drawn from records, some of them perhaps several times, others not in every epoch.

    It has batches in every form, and no records of its own by number: `split[i]` and views are refused.
    """

    def __init__(self, base: Split, drawing: Drawing, *, map: Map = None) -> None:
        super().__init__(
            base.name,
            base._shards,
            base._schema,
            map=map,
            transforms=base._transforms,
            digest=base._digest,
        )
        self._base = base
        self._drawing = drawing

    @property
    def achieved(self) -> dict[Any, float]:
        """The part of an epoch's records that each class has: of a list column, expected and not exact."""
        return dict(self._drawing.achieved)

    def __len__(self) -> int:
        return self._drawing.size

    def digest(self) -> str:
        return self._base.digest()

    def __getitem__(self, which: Any) -> NoReturn:
        raise self._no_view("[…]")

    def take(self, count: int) -> NoReturn:
        raise self._no_view("take")

    def select(self, numbers: Sequence[int]) -> NoReturn:
        raise self._no_view("select")

    def filter(
        self, keep: Callable[[dict[str, Any]], Any], *, columns: Sequence[str] | None = None
    ) -> NoReturn:
        raise self._no_view("filter")

    def balanced(self, by: str = "label", target: Any = None) -> NoReturn:
        raise self._no_view("balanced")

    def class_weights(self, by: str = "label", *, names: bool = False) -> NoReturn:
        raise self._no_view("class_weights")

    def _recipe(self, shuffle: object, seed: int, world: int) -> Recipe:
        super()._recipe(shuffle, seed, world)  # says what is wrong with the arguments
        if shuffle == "block":
            raise error(
                "U605",
                '`shuffle` cannot be "block" where classes or components are drawn',
                expected='False, True or "exact"',
                found="'block'",
                do="shuffle=True",
            )
        return self._drawing.recipe(shuffled=bool(shuffle), seed=int(seed))

    def _copy(self, *, ids: Selection | None, map: Map) -> Drawn:
        made = type(self)(self._base, self._drawing, map=map)
        made._transforms = self._transforms
        return made

    def _no_view(self, method: str) -> RekordError:
        return error(
            "U651",
            f"`{method}` needs records by number, and this split is {self._drawing.said}",
            expected="a split that is not drawn from",
            found=repr(self)[:60],
            do=f"call `{method}` first, and draw from what it gives"
            if method != "[…]"
            else "take batches of it; [i] of the split that it was made from",
        )

    def __repr__(self) -> str:
        return f"Split({self.name!r}, {self._drawing.said})"


class Parts(Protocol):
    """What is drawn from: some parts, each with an order of its own in every round through it."""

    def __len__(self) -> int: ...

    def size(self, part: int) -> int:
        """How many records a part has."""

    def records(self, part: int, round: int, numbers: Ids, *, shuffled: bool, seed: int) -> Ids:
        """Which records stand at these numbers of one round through a part."""


@dataclass(frozen=True, eq=False)
class Quotas:
    """A recipe that takes a fixed number of records from each part in an epoch."""

    parts: Parts
    quotas: Ids
    shuffled: bool
    seed: int
    told: Mapping[str, Any]

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
        return {**order, **self.told, "quotas": quotas[:16]}

    def going_on(self, told: Mapping[str, Any]) -> Quotas:
        """The same."""
        return self

    def _places(self, epoch: int, positions: Ids) -> tuple[Ids, Ids]:
        if not self.shuffled:
            return interleaved(self._bounds, positions)
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


def interleaved(bounds: Ids, positions: Ids) -> tuple[Ids, Ids]:
    """Parts spread evenly over an epoch: the part at each position, and the how manieth it is of that part.

    The parts are halved again and again. Of n positions, `first` of which are of the first half, position p is one of
    them where p · first / n steps over a whole number; how many were before it is that number. `bounds` are the sums
    of the quotas so far.
    """
    parts, numbers = np.zeros(len(positions), np.int64), np.zeros(len(positions), np.int64)
    places = np.arange(len(positions))
    if int(bounds[-1]) >= _MOST_EXACT:
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


def shared_out(n: int, shares: Sequence[Fraction]) -> Ids:
    """So many of n for each share: whole numbers, each less than 1 from its part, n in all."""
    total = sum(shares, Fraction(0))
    exact = [share * n / total for share in shares]
    quotas = [math.floor(one) for one in exact]
    # What is left goes to those that lost most by rounding down, the first ones of equals.
    losers = sorted(range(len(shares)), key=lambda place: quotas[place] - exact[place])
    for place in losers[: n - sum(quotas)]:
        quotas[place] += 1
    return np.array(quotas, np.int64)


def checked_share(name: str, value: object) -> Fraction:
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
