"""Statistics of numbers: their least and greatest, mean and spread, quantiles, and which there are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord.health.stats.distinct import Distinct, Room, runs
from rekord.health.stats.sketches import Array, Hashes, Quantiles, spread

QUANTILE_SHARES = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
MAX_BARS = 32
"""A histogram has so many bars at the most."""

_SAFE_SUM = 1 << 62
_HALVES = 1 << 52  # below it a double holds the halves between whole numbers
_AT_ONCE = 1 << 17  # values that are sorted while they fit into the cache


class Moments:
    """The number, mean and spread of numbers, and the least and greatest of them. Sums of integers are exact."""

    __slots__ = ("_squares", "_sum", "count", "max", "min")

    def __init__(self) -> None:
        self.count = 0
        self.min: Any = None
        self.max: Any = None
        self._sum: Any = 0
        self._squares = 0.0  # of the distances from the mean

    @property
    def mean(self) -> float | None:
        """The arithmetic mean."""
        return self._sum / self.count if self.count else None

    @property
    def std(self) -> float | None:
        """The standard deviation of these very numbers (not an estimate for more of their kind)."""
        return math.sqrt(max(self._squares, 0.0) / self.count) if self.count else None

    @property
    def total(self) -> Any:
        """The sum."""
        return self._sum

    def add(self, values: Array, least: Any, most: Any) -> None:
        """Take in finite values, of which the least and the greatest are known."""
        whole = values.dtype.kind in "iu"
        total = _exact_sum(values, least, most) if whole else float(values.sum(dtype=np.float64))
        distances = values.astype(np.float64)
        distances -= total / len(values)
        distances *= distances
        self._join(len(values), least, most, total, float(distances.sum()))

    def add_repeated(self, value: Any, times: int) -> None:
        """Take in one value many times."""
        self._join(times, value, value, value * times, 0.0)

    def merge(self, other: Moments) -> None:
        """Take in everything that another one has seen."""
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


def _exact_sum(values: Array, least: int, most: int) -> int:
    if max(abs(least), abs(most)) * len(values) < _SAFE_SUM:
        return int(values.sum())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


class Counted:
    """Whole numbers that are counts or lengths: how many values a row has, how many bytes a string."""

    __slots__ = ("moments", "quantiles")

    def __init__(self, room: Room) -> None:
        self.moments = Moments()
        self.quantiles = Quantiles(np.int64, room.exact_values)

    def add(self, values: npt.NDArray[np.int64]) -> None:
        """Take in some numbers."""
        if not len(values):
            return
        least, most = int(values.min()), int(values.max())
        if least == most:
            self.add_repeated(least, len(values))
            return
        self.moments.add(values, least, most)
        self.quantiles.add_sorted(np.sort(values))

    def add_repeated(self, value: int, times: int) -> None:
        """Take in one number many times."""
        if times:
            self.moments.add_repeated(value, times)
            self.quantiles.add_repeated(value, times)

    def merge(self, other: Counted) -> None:
        """Take in everything that another one has seen."""
        self.moments.merge(other.moments)
        self.quantiles.merge(other.quantiles)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        moments = self.moments
        return {
            "min": moments.min,
            "max": moments.max,
            "mean": moments.mean,
            "quantiles": quantile_dict(self.quantiles),
        }


class Numbers:
    """The values of one feature that are int64 or float."""

    __slots__ = ("count", "distinct", "moments", "nan", "negative_inf", "positive_inf", "quantiles", "zeros")

    def __init__(self, dtype: npt.DTypeLike, room: Room) -> None:
        self.count = 0  # of all values, those that are not finite too
        self.zeros = 0
        self.nan = 0
        self.negative_inf = 0
        self.positive_inf = 0
        self.moments = Moments()
        self.quantiles = Quantiles(dtype, room.exact_values)
        self.distinct = Distinct(dtype, _bits, named=False)

    def add(self, values: Array, room: Room) -> None:
        """Take in some values."""
        for begin in range(0, len(values), _AT_ONCE):
            self._add(values[begin : begin + _AT_ONCE], room)

    def _add(self, values: Array, room: Room) -> None:
        self.count += len(values)
        ordered = np.sort(values)  # once, for quantiles, zeros and distinct values alike
        if ordered.dtype.kind == "f" and not (np.isfinite(ordered[0]) and np.isfinite(ordered[-1])):
            ordered = self._finite(ordered)
            if not len(ordered):
                return
        self.zeros += int(np.searchsorted(ordered, 0, "right") - np.searchsorted(ordered, 0, "left"))
        begins, counts = runs(ordered)
        least, most = ordered[0].item(), ordered[-1].item()
        self.moments.add(ordered, least, most)
        self.quantiles.add_sorted(ordered)
        self.distinct.add(ordered[begins], counts, room)

    def merge(self, other: Numbers, room: Room) -> None:
        """Take in everything that another one has seen."""
        for name in ("count", "zeros", "nan", "negative_inf", "positive_inf"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.moments.merge(other.moments)
        self.quantiles.merge(other.quantiles)
        self.distinct.merge(other.distinct, room)

    def _finite(self, ordered: Array) -> Array:
        """The finite ones among sorted values; the others are counted. NaN stands last."""
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
        whole = self.quantiles.dtype.kind == "i" and max(abs(least), abs(most)) < _HALVES
        if whole and most - least < MAX_BARS:
            return np.arange(least, most + 2) - 0.5  # a bar for each number
        if least == most:
            return np.array([least, most], np.float64)
        return np.linspace(least, most, MAX_BARS + 1, dtype=np.float64)

    def histogram(self) -> dict[str, Any] | None:
        """As JSON holds it: the edges of the bars, and how many values each has."""
        edges = self.edges()
        if edges is None:
            return None
        return {"edges": edges.tolist(), "counts": counts_between(self, edges).tolist()}


def counts_between(numbers: Numbers, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """How many values lie in each bin: exactly where all different values are known."""
    known = numbers.distinct
    if not known.is_exact:
        return numbers.quantiles.counts(edges)
    below = np.concatenate([[0], np.cumsum(known.counts)])
    at = np.searchsorted(known.keys, edges[:-1], "left")
    last = np.searchsorted(known.keys, edges[-1:], "right")
    counts: npt.NDArray[np.int64] = np.diff(below[np.concatenate([at, last])])
    return counts


def quantile_dict(quantiles: Quantiles) -> dict[str, Any]:
    """Quantiles by their share: `{"0.5": 17, …}`."""
    values = quantiles.at(QUANTILE_SHARES)
    return {str(share): value for share, value in zip(QUANTILE_SHARES, values, strict=False)}


def _bits(keys: Array) -> Hashes:
    # 0.0 and -0.0 are one value, and so one key.
    plain = keys + 0.0 if keys.dtype.kind == "f" else keys
    width = np.uint32 if plain.dtype.itemsize == 4 else np.uint64
    return spread(plain.astype(plain.dtype, copy=False).view(width).astype(np.uint64))
