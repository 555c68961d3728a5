"""What is left of numbers that do not fit in memory: their quantiles, and how many different ones there were.

Both summaries can be merged, in any order and any grouping, and neither draws a random number.

Quantiles keep values of weight 1, 2, 4, … on levels. A level that is full is sorted and cut into pairs; one value of
each pair, the lower and the higher one in turn, goes one level up with twice the weight. Up to
`EXACT_VALUES` nothing is thrown away; beyond that a level holds half as many at the most.

Distinct values are counted by HyperLogLog: of the hashes that fall into one of 16,384 registers the smallest is
remembered by its number of leading zeros. Both can be made smaller, and less exact, where there are many of them.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Hashes: TypeAlias = npt.NDArray[np.uint64]

EXACT_VALUES = 4096
"""Quantiles of so many values are those of the values themselves."""

REGISTER_BITS = 14
DISTINCT_ERROR = 1.04 / math.sqrt(1 << REGISTER_BITS)
"""The standard error of a number of distinct values that was estimated: 0.8 %."""


class Quantiles:
    """The distribution of numbers of one dtype, each taken with the weight that it stands for."""

    __slots__ = ("_exact", "_higher", "_levels", "count", "dtype")

    def __init__(self, dtype: npt.DTypeLike, exact: int = EXACT_VALUES) -> None:
        self.dtype = np.dtype(dtype)
        self.count = 0
        self._exact = exact  # so many values are all kept; a level has a quarter of it
        self._levels: list[Array] = [np.empty(0, self.dtype)]
        self._higher: list[bool] = [False]

    @property
    def is_exact(self) -> bool:
        """Whether every value is still there."""
        return len(self._levels) == 1

    def add_sorted(self, values: Array) -> None:
        """Take in values in ascending order; NaN has no place among them."""
        size = len(values)
        if not size:
            return
        self.count += size
        if size <= self._exact:
            self._put(0, values)
        else:
            # Most of a large batch would be thrown away level by level: it is cut at once into blocks of equal
            # size, each with its middle value. What is left over makes smaller blocks.
            level = (4 * size // self._exact).bit_length() - 1
            begin = 0
            while begin < size:
                width = 1 << level
                blocks = (size - begin) >> level
                if blocks:
                    end = begin + (blocks << level)
                    self._put(level, values[begin + width // 2 : end : width])
                    begin = end
                level -= 1
        self._compact()

    def add_repeated(self, value: Any, times: int) -> None:
        """Take in one value many times."""
        self.count += times
        if times and self.is_exact and self.count <= self._exact:
            self._put(0, np.full(times, value, self.dtype))
            return
        one = np.full(1, value, self.dtype)
        for level in range(times.bit_length()):
            if times >> level & 1:
                self._put(level, one)
        self._compact()

    def merge(self, other: Quantiles) -> None:
        """Take in everything that another one has seen."""
        self.count += other.count
        for level, values in enumerate(other._levels):
            self._put(level, values)
        self._compact()

    def at(self, shares: list[float]) -> list[Any]:
        """For each share the least value that so many are not above; nothing where there is no value."""
        values, ranks = self._ranked()
        if not len(values):
            return []
        # A hair below, or 0.1 x 10 would ask for the second of ten values.
        wanted = np.array([share * self.count * (1 - 1e-12) for share in shares])
        places = np.minimum(np.searchsorted(ranks, wanted, "left"), len(values) - 1)
        return [values[place].item() for place in places]

    def counts(self, edges: Array) -> npt.NDArray[np.int64]:
        """How many values lie in [edge, next edge), the last bin with both of its edges."""
        values, ranks = self._ranked()
        below = np.concatenate([[0], ranks])
        at = np.searchsorted(values, edges[:-1], "left")
        last = np.searchsorted(values, edges[-1:], "right")
        counts: npt.NDArray[np.int64] = np.diff(below[np.concatenate([at, last])])
        return counts

    def _ranked(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """The values in order, and how many are not above each."""
        values = np.concatenate(self._levels)
        weights = np.repeat(1 << np.arange(len(self._levels)), [len(level) for level in self._levels])
        order = np.argsort(values, kind="stable")
        return values[order], np.cumsum(weights[order])

    def _put(self, level: int, values: Array) -> None:
        while len(self._levels) <= level:
            self._levels.append(np.empty(0, self.dtype))
            self._higher.append(False)
        self._levels[level] = np.concatenate([self._levels[level], values])

    def _compact(self) -> None:
        if self.is_exact and self.count <= self._exact:
            return
        level = 0
        while level < len(self._levels):
            values = self._levels[level]
            if 2 * len(values) > self._exact or (level == 0 and self.is_exact):
                values = np.sort(values)
                paired = len(values) & ~1
                self._put(level + 1, values[int(self._higher[level]) : paired : 2])
                self._levels[level] = values[paired:]
                self._higher[level] = not self._higher[level]
            level += 1


def spread(keys: Hashes) -> Hashes:
    """Numbers that may be alike, as hashes of which every bit counts (the finish of splitmix64)."""
    with np.errstate(over="ignore"):
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: Hashes = keys ^ (keys >> np.uint64(31))
    return hashes


class DistinctCount:
    """About how many different hashes there were (HyperLogLog)."""

    __slots__ = ("_bits", "_registers")

    def __init__(self, bits: int = REGISTER_BITS) -> None:
        self._bits = bits
        self._registers = np.zeros(1 << bits, np.uint8)

    def add(self, hashes: Hashes) -> None:
        """Take in hashes, in any order and any number of times."""
        rest_bits = 64 - self._bits
        places = (hashes >> np.uint64(rest_bits)).astype(np.int64)
        rest = hashes & np.uint64((1 << rest_bits) - 1)
        # Few hashes raise their register once some thousands have been seen; only those are worth more work.
        limits = np.uint64(1) << (np.uint64(rest_bits) - self._registers.astype(np.uint64))
        rare = rest < limits[places]
        places, rest = places[rare], rest[rare]
        if not len(places):
            return
        zeros = rest_bits - np.frexp(rest.astype(np.float64))[1]
        np.maximum.at(self._registers, places, (zeros + 1).astype(np.uint8))

    def merge(self, other: DistinctCount) -> None:
        """Take in everything that another one has seen; the result is as exact as the smaller of the two."""
        bits = min(self._bits, other._bits)
        self._registers = np.maximum(self._folded(bits), other._folded(bits))
        self._bits = bits

    def estimate(self) -> int:
        """The number of different hashes, give or take `DISTINCT_ERROR`."""
        size = len(self._registers)
        raw: float = (
            0.7213 / (1 + 1.079 / size) * size * size / np.ldexp(1.0, -self._registers.astype(int)).sum()
        )
        empty = int(np.count_nonzero(self._registers == 0))
        if raw <= 2.5 * size and empty:
            return round(size * math.log(size / empty))
        return round(raw)

    def _folded(self, bits: int) -> npt.NDArray[np.uint8]:
        """The registers as they would be if there had been fewer of them all the time."""
        spare = self._bits - bits
        if not spare:
            return self._registers
        groups = self._registers.reshape(1 << bits, 1 << spare)
        # The last bits of a register's number now lead what is counted; only those of the first are all zero.
        within = np.arange(1 << spare)
        ranks = np.where(within == 0, groups + spare, spare - np.frexp(within)[1] + 1)
        folded: npt.NDArray[np.uint8] = np.where(groups == 0, 0, ranks).max(axis=1).astype(np.uint8)
        return folded
