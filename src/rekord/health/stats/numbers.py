"""Statistics of numbers in bounded memory: moments, quantiles, distinct values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
HashArray: TypeAlias = npt.NDArray[np.uint64]

MAX_EXACT_VALUES = 4096
"""Up to this number of values, quantiles are exact."""

REGISTER_BITS = 14
"""2^14 registers: the standard error of an estimate is 1.04 / 2^7, which is 0.8 %."""


class Quantiles:
    """The distribution of numbers of one dtype, each with a weight."""

    __slots__ = ("_exact", "_higher", "_levels", "count", "dtype")

    def __init__(self, dtype: npt.DTypeLike, exact: int = MAX_EXACT_VALUES) -> None:
        self.dtype = np.dtype(dtype)
        self.count = 0
        self._exact = exact  # this many values are all kept; a level has a quarter of it
        self._levels: list[Array] = [np.empty(0, self.dtype)]
        self._higher: list[bool] = [False]

    @property
    def is_exact(self) -> bool:
        """Whether every value is still kept."""
        return len(self._levels) == 1

    def add_sorted(self, values: Array) -> None:
        """Add values in ascending order, without NaN."""
        size = len(values)
        if not size:
            return
        self.count += size
        if size <= self._exact:
            self._put(0, values)
        else:
            # Most of a large batch would be discarded level by level: it is divided directly into blocks of equal
            # size, each represented by its middle value. The remainder makes smaller blocks.
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
        """Add one value many times."""
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
        """Merge another one into this."""
        self.count += other.count
        for level, values in enumerate(other._levels):
            self._put(level, values)
        self._compact()

    def at(self, shares: list[float]) -> list[Any]:
        """For each share, the least value that this share of the values does not exceed; empty without values."""
        values, ranks = self._ranked()
        if not len(values):
            return []
        # Slightly less, or 0.1 x 10 would select the second of ten values.
        wanted = np.array([share * self.count * (1 - 1e-12) for share in shares])
        places = np.minimum(np.searchsorted(ranks, wanted, "left"), len(values) - 1)
        return [values[place].item() for place in places]

    def counts(self, edges: Array) -> npt.NDArray[np.int64]:
        """The number of values in [edge, next edge); the last bin includes both of its edges."""
        values, ranks = self._ranked()
        below = np.concatenate([[0], ranks])
        at = np.searchsorted(values, edges[:-1], "left")
        last = np.searchsorted(values, edges[-1:], "right")
        counts: npt.NDArray[np.int64] = np.diff(below[np.concatenate([at, last])])
        return counts

    def _ranked(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """The values in order, and the number of values that do not exceed each."""
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


def mix_hash_bits(keys: HashArray) -> HashArray:
    """Numbers as hashes in which every bit matters, also for similar numbers (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashes: HashArray = keys ^ (keys >> np.uint64(31))
    return hashes


class HyperLogLog:
    """The approximate number of distinct hashes (HyperLogLog)."""

    __slots__ = ("_bits", "_registers")

    def __init__(self, bits: int = REGISTER_BITS) -> None:
        self._bits = bits
        self._registers = np.zeros(1 << bits, np.uint8)

    def add(self, hashes: HashArray) -> None:
        """Add hashes, in any order and any number of times."""
        rest_bits = 64 - self._bits
        places = (hashes >> np.uint64(rest_bits)).astype(np.int64)
        rest = hashes & np.uint64((1 << rest_bits) - 1)
        # After some thousands, few hashes raise their register; only those are worth more work.
        limits = np.uint64(1) << (np.uint64(rest_bits) - self._registers.astype(np.uint64))
        rare = rest < limits[places]
        places, rest = places[rare], rest[rare]
        if not len(places):
            return
        zeros = rest_bits - np.frexp(rest.astype(np.float64))[1]
        np.maximum.at(self._registers, places, (zeros + 1).astype(np.uint8))

    def merge(self, other: HyperLogLog) -> None:
        """Merge another one into this; the result is as exact as the smaller of the two."""
        bits = min(self._bits, other._bits)
        self._registers = np.maximum(self._folded(bits), other._folded(bits))
        self._bits = bits

    def estimate(self) -> int:
        """The number of distinct hashes, with a standard error of 0.8 %."""
        size = len(self._registers)
        raw: float = 0.7213 / (1 + 1.079 / size) * size * size / np.ldexp(1.0, -self._registers.astype(int)).sum()
        empty = int(np.count_nonzero(self._registers == 0))
        if raw <= 2.5 * size and empty:
            return round(size * math.log(size / empty))
        return round(raw)

    def _folded(self, bits: int) -> npt.NDArray[np.uint8]:
        """The registers as they would be with fewer of them from the start."""
        spare = self._bits - bits
        if not spare:
            return self._registers
        groups = self._registers.reshape(1 << bits, 1 << spare)
        # The last bits of a register's number now lead the counted bits; only those of the first are all zero.
        within = np.arange(1 << spare)
        ranks = np.where(within == 0, groups + spare, spare - np.frexp(within)[1] + 1)
        folded: npt.NDArray[np.uint8] = np.where(groups == 0, 0, ranks).max(axis=1).astype(np.uint8)
        return folded


MAX_EXACT_KEYS = 10_000
MAX_TRACKED_KEYS = 2_000
MAX_SHARED_KEYS = 1_000_000
"""Keys kept for all features together: with more than 100 features, each has less than `MAX_EXACT_KEYS`."""

_MAX_FULL_MEMORY_FEATURES = 1_000
_MIN_KEYS = 100
_REDUCED_EXACT_VALUES = MAX_EXACT_VALUES // 4
_REDUCED_REGISTER_BITS = REGISTER_BITS - 4
"""Features beyond this number get smaller sketches: their keys are data."""

CountArray: TypeAlias = npt.NDArray[np.int64]
ValueFetcher: TypeAlias = Callable[[Sequence[int]], list[Any]]
HashFunction: TypeAlias = Callable[[Array], HashArray]


class MemoryBudget:
    """How much memory the features of a dataset may use, each and together."""

    __slots__ = ("features",)

    def __init__(self) -> None:
        self.features = 0

    @property
    def keys(self) -> int:
        """The number of keys that one feature may count exactly."""
        return max(min(MAX_EXACT_KEYS, MAX_SHARED_KEYS // max(self.features, 1)), _MIN_KEYS)

    @property
    def tracked_keys(self) -> int:
        """The number of keys that it may keep once there are too many to count."""
        return min(MAX_TRACKED_KEYS, self.keys)

    @property
    def exact_values(self) -> int:
        """The number of values of one feature that are kept for its quantiles."""
        return MAX_EXACT_VALUES if self.features <= _MAX_FULL_MEMORY_FEATURES else _REDUCED_EXACT_VALUES

    @property
    def register_bits(self) -> int:
        """The size of a sketch of distinct values."""
        return REGISTER_BITS if self.features <= _MAX_FULL_MEMORY_FEATURES else _REDUCED_REGISTER_BITS


class DistinctValues:
    """The distinct values of one feature. `mix_hash_bits` hashes keys; `named` keys represent something else."""

    __slots__ = ("_spread", "_unlisted", "counts", "keys", "most_missed", "names", "total")

    def __init__(self, dtype: npt.DTypeLike, spread: HashFunction, *, named: bool) -> None:
        self.keys: Array = np.empty(0, dtype)
        self.counts: CountArray = np.empty(0, np.int64)
        self.names: Array | None = np.empty(0, object) if named else None
        self.total = 0
        self.most_missed = 0
        self._spread = spread
        self._unlisted: HyperLogLog | None = None

    @property
    def is_exact(self) -> bool:
        """Whether every key and its count is known."""
        return self._unlisted is None

    @property
    def unique(self) -> int:
        """The number of distinct keys; approximate unless they are exact."""
        if self._unlisted is None:
            return len(self.keys)
        return max(min(self._unlisted.estimate(), self.total), len(self.keys))

    def add(self, keys: Array, counts: CountArray, room: MemoryBudget, fetch: ValueFetcher | None = None) -> None:
        """Add distinct keys in ascending order. `fetch` returns what those at some positions represent."""
        self.total += int(counts.sum())
        if self._unlisted is None:
            self._add_exactly(keys, counts, room, fetch)
        else:
            self._unlisted.add(self._spread(keys))
            self._add_tracked(keys, counts, room, fetch)

    def merge(self, other: DistinctValues, room: MemoryBudget) -> None:
        """Merge another one into this."""
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
        """The most frequent values with their counts; among equal counts, the lesser value first."""
        if len(self.counts) > number:
            least = np.partition(self.counts, -number)[-number]
            places = np.flatnonzero(self.counts >= least)
        else:
            places = np.arange(len(self.counts))
        shown = self.keys if self.names is None else self.names
        values, counts = shown[places].tolist(), self.counts[places].tolist()
        return sorted(zip(values, counts, strict=True), key=lambda pair: (-pair[1], pair[0]))[:number]

    def _add_exactly(self, keys: Array, counts: CountArray, room: MemoryBudget, fetch: ValueFetcher | None) -> None:
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
        self._add_tracked(keys[fresh], counts[fresh], room, None if fetch is None else _restrict_fetch(fetch, fresh))

    def _overflow(self, room: MemoryBudget) -> None:
        self._unlisted = HyperLogLog(room.register_bits)
        self._unlisted.add(self._spread(self.keys))

    def _add_tracked(self, keys: Array, counts: CountArray, room: MemoryBudget, fetch: ValueFetcher | None) -> None:
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

    def _first_left_out(self, fresh: CountArray, room: int) -> int:
        """The count of the most frequent key for which there is no room."""
        # Most occur once in a batch. If the others have room, the first to be omitted is one of those.
        several = fresh[fresh > 1]
        ours = self.counts[self.counts > 1]
        if len(ours) + len(several) <= room:
            return 1
        return int(np.partition(np.concatenate([ours, several]), -room - 1)[-room - 1])

    def _keep(self, which: npt.NDArray[np.bool_]) -> None:
        self.keys, self.counts = self.keys[which], self.counts[which]
        if self.names is not None:
            self.names = self.names[which]

    def _insert(self, keys: Array, counts: CountArray, places: Array, fetch: ValueFetcher | None) -> None:
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


def find_runs(ordered: Array) -> tuple[Array, CountArray]:
    """Where each run of equal values begins, and how long it is."""
    begins = np.concatenate([[0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
    return begins, np.diff(begins, append=len(ordered))


def _restrict_fetch(fetch: ValueFetcher, places: Array) -> ValueFetcher:
    return lambda chosen: fetch(places[list(chosen)].tolist())


QUANTILE_SHARES = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
MAX_BARS = 32
"""The maximum number of bars in a histogram."""

_MAX_INT64_SUM = 1 << 62
_MAX_EXACT_HALVES = 1 << 52  # below this, a double can represent the halves between integers
_SORT_CHUNK = 1 << 17  # values that are sorted while they fit in the cache


class ExactMoments:
    """The number, mean, spread, minimum and maximum of numbers. Sums of integers are exact."""

    __slots__ = ("_squares", "_sum", "count", "max", "min")

    def __init__(self) -> None:
        self.count = 0
        self.min: Any = None
        self.max: Any = None
        self._sum: Any = 0
        self._squares = 0.0  # sum of squared distances from the mean

    @property
    def mean(self) -> float | None:
        """The arithmetic mean."""
        return self._sum / self.count if self.count else None

    @property
    def std(self) -> float | None:
        """The population standard deviation, not the estimate for a sample."""
        return math.sqrt(max(self._squares, 0.0) / self.count) if self.count else None

    @property
    def total(self) -> Any:
        """The sum."""
        return self._sum

    def add(self, values: Array, least: Any, most: Any) -> None:
        """Add finite values, whose least and greatest are known."""
        whole = values.dtype.kind in "iu"
        total = _sum_exactly(values, least, most) if whole else float(values.sum(dtype=np.float64))
        distances = values.astype(np.float64)
        distances -= total / len(values)
        distances *= distances
        self._join(len(values), least, most, total, float(distances.sum()))

    def add_repeated(self, value: Any, times: int) -> None:
        """Add one value many times."""
        self._join(times, value, value, value * times, 0.0)

    def merge(self, other: ExactMoments) -> None:
        """Merge another one into this."""
        if other.count:
            self._join(other.count, other.min, other.max, other._sum, other._squares)

    def _join(self, count: int, least: Any, most: Any, total: Any, squares: float) -> None:
        if not self.count:
            self.count, self.min, self.max, self._sum, self._squares = count, least, most, total, squares
            return
        apart = total / count - self._sum / self.count
        self._squares += squares + apart * apart * (self.count * count / (self.count + count))
        self.count += count
        self._sum += total
        self.min, self.max = min(self.min, least), max(self.max, most)


def _sum_exactly(values: Array, least: int, most: int) -> int:
    if max(abs(least), abs(most)) * len(values) < _MAX_INT64_SUM:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


class CountStatistics:
    """Integers that are counts or lengths: values per row, bytes per string."""

    __slots__ = ("moments", "quantiles")

    def __init__(self, room: MemoryBudget) -> None:
        self.moments = ExactMoments()
        self.quantiles = Quantiles(np.int64, room.exact_values)

    def add(self, values: npt.NDArray[np.int64]) -> None:
        """Add some numbers."""
        if not len(values):
            return
        least, most = int(values.min()), int(values.max())
        if least == most:
            self.add_repeated(least, len(values))
            return
        self.moments.add(values, least, most)
        self.quantiles.add_sorted(np.sort(values))

    def add_repeated(self, value: int, times: int) -> None:
        """Add one number many times."""
        if times:
            self.moments.add_repeated(value, times)
            self.quantiles.add_repeated(value, times)

    def merge(self, other: CountStatistics) -> None:
        """Merge another one into this."""
        self.moments.merge(other.moments)
        self.quantiles.merge(other.quantiles)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        moments = self.moments
        return {
            "min": moments.min,
            "max": moments.max,
            "mean": moments.mean,
            "quantiles": quantiles_to_dict(self.quantiles),
        }


class NumberStatistics:
    """The values of one feature that are int64 or float."""

    __slots__ = ("count", "distinct", "moments", "nan", "negative_inf", "positive_inf", "quantiles", "zeros")

    def __init__(self, dtype: npt.DTypeLike, room: MemoryBudget) -> None:
        self.count = 0  # of all values, including those that are not finite
        self.zeros = 0
        self.nan = 0
        self.negative_inf = 0
        self.positive_inf = 0
        self.moments = ExactMoments()
        self.quantiles = Quantiles(dtype, room.exact_values)
        self.distinct = DistinctValues(dtype, _get_key_bits, named=False)

    def add(self, values: Array, room: MemoryBudget) -> None:
        """Add some values."""
        for begin in range(0, len(values), _SORT_CHUNK):
            self._add(values[begin : begin + _SORT_CHUNK], room)

    def _add(self, values: Array, room: MemoryBudget) -> None:
        self.count += len(values)
        ordered = np.sort(values)  # once, for quantiles, zeros and distinct values
        if ordered.dtype.kind == "f" and not (np.isfinite(ordered[0]) and np.isfinite(ordered[-1])):
            ordered = self._finite(ordered)
            if not len(ordered):
                return
        self.zeros += int(np.searchsorted(ordered, 0, "right") - np.searchsorted(ordered, 0, "left"))
        begins, counts = find_runs(ordered)
        least, most = ordered[0].item(), ordered[-1].item()
        self.moments.add(ordered, least, most)
        self.quantiles.add_sorted(ordered)
        self.distinct.add(ordered[begins], counts, room)

    def merge(self, other: NumberStatistics, room: MemoryBudget) -> None:
        """Merge another one into this."""
        for name in ("count", "zeros", "nan", "negative_inf", "positive_inf"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.moments.merge(other.moments)
        self.quantiles.merge(other.quantiles)
        self.distinct.merge(other.distinct, room)

    def _finite(self, ordered: Array) -> Array:
        """The finite ones among sorted values; the others are counted. NaN is last."""
        known = len(ordered) - int(np.count_nonzero(np.isnan(ordered)))
        self.nan += len(ordered) - known
        begin = int(np.searchsorted(ordered[:known], -np.inf, "right"))
        end = int(np.searchsorted(ordered[:known], np.inf, "left"))
        self.negative_inf += begin
        self.positive_inf += known - end
        return ordered[begin:end]

    def edges(self) -> npt.NDArray[np.float64] | None:
        """The edges of the histogram's bars: equally wide, from the least to the greatest value."""
        least, most = self.moments.min, self.moments.max
        if least is None:
            return None
        whole = self.quantiles.dtype.kind == "i" and max(abs(least), abs(most)) < _MAX_EXACT_HALVES
        if whole and most - least < MAX_BARS:
            return np.arange(least, most + 2) - 0.5  # one bar per number
        if least == most:
            return np.array([least, most], np.float64)
        return np.linspace(least, most, MAX_BARS + 1, dtype=np.float64)

    def histogram(self) -> dict[str, Any] | None:
        """As JSON: the edges of the bars, and the number of values in each."""
        edges = self.edges()
        if edges is None:
            return None
        return {"edges": edges.tolist(), "counts": count_between_edges(self, edges).tolist()}


def count_between_edges(numbers: NumberStatistics, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The number of values in each bin: exact if all distinct values are known."""
    known = numbers.distinct
    if not known.is_exact:
        return numbers.quantiles.counts(edges)
    below = np.concatenate([[0], np.cumsum(known.counts)])
    at = np.searchsorted(known.keys, edges[:-1], "left")
    last = np.searchsorted(known.keys, edges[-1:], "right")
    counts: npt.NDArray[np.int64] = np.diff(below[np.concatenate([at, last])])
    return counts


def quantiles_to_dict(quantiles: Quantiles) -> dict[str, Any]:
    """Quantiles by their share: `{"0.5": 17, …}`."""
    values = quantiles.at(QUANTILE_SHARES)
    return {str(share): value for share, value in zip(QUANTILE_SHARES, values, strict=False)}


def _get_key_bits(keys: Array) -> HashArray:
    # 0.0 and -0.0 are the same value, and so the same key.
    plain = keys + 0.0 if keys.dtype.kind == "f" else keys
    width = np.uint32 if plain.dtype.itemsize == 4 else np.uint64
    return mix_hash_bits(plain.astype(plain.dtype, copy=False).view(width).astype(np.uint64))
