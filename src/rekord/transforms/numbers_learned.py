"""Means and standard deviations that are learned: sums that come out the same in whatever order rows are seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, Literal

import numpy as np

from rekord.codec.columns import Array
from rekord.errors import error
from rekord.schema import Float32, Int64, Schema
from rekord.transforms.base import Bound, Lesson, Row, Transform
from rekord.transforms.numbers import Standardize, given_standardize
from rekord.transforms.one_column import Numbers, OneColumn, unusable

LearnFrom = Literal["train", "all"]

_WAITING_VALUES = 4096
"""So many values wait before they are added up."""

_BINNED_ROWS = 1 << 14
"""The squares of so many 24-bit numbers fit in 63 bits; then they go to sums without an end."""

_SCALE_BITS = 200
"""Numbers are summed as multiples of 2^-200: every float32 is one."""


def standardize(
    column: str,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    *,
    into: str | None = None,
    keep: bool = False,
    learn_from: LearnFrom = "train",
) -> Standardize | LearnStandardize:
    """`(x - mean) / std` as Float32. Without `mean` and `std` they are learned from the rows first.

    Where the last dimension is fixed, each place of it has its own. NaN and infinities are left out of the sums; a
    standard deviation of 0 counts as 1.
    """
    if (mean is None) != (std is None):
        missing = "mean" if mean is None else "std"
        raise unusable(missing, None, "both mean= and std=, or neither", f"{missing}=1.0")
    if mean is not None and std is not None:
        return given_standardize(column, mean, std, into=into, keep=keep)
    return LearnStandardize(column=column, into=into, keep=keep, learn_from=checked_learn_from(learn_from))


def checked_learn_from(learn_from: object) -> LearnFrom:
    """Which rows a transform learns from."""
    if learn_from not in ("train", "all"):
        raise unusable("learn_from", learn_from, '"train" or "all"', 'learn_from="all"')
    return learn_from


def not_learned(name: str, column: str, do: str) -> Exception:
    """The refusal to apply what has not been learned yet."""
    return error(
        "U691",
        f"`{name}` of `{column}` has nothing to go by yet",
        expected="a transform that was learned, as rk.write does before it writes",
        found=f"{name}({column!r}) without what it is to learn"[:60],
        do=do,
    )


@dataclass(frozen=True, kw_only=True)
class LearnStandardize(OneColumn):
    """A `standardize` whose mean and standard deviation are to be learned."""

    learn_from: LearnFrom

    name = "standardize"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "mean": None, "std": None, "learn_from": self.learn_from}

    def bind(self, before: Schema) -> Bound:
        raise not_learned(self.name, self.column, "give mean= and std=")

    def begin(self, before: Schema) -> Lesson:
        feature = self.source_of(before, (Int64, Float32), "numbers")
        last = feature.shape[-1] if feature.shape else None
        return Moments(self, Numbers(self.column, feature), 1 if last is None else last)


class Moments:
    """Exact sums of numbers and of their squares, for each of `places`."""

    def __init__(self, step: LearnStandardize, numbers: Numbers, places: int) -> None:
        self._step = step
        self._numbers = numbers
        self._places = places
        self._counts = [0] * places
        self._sums = [0] * places
        self._squares = [0] * places
        self._singles: list[Any] = []  # of a column of single numbers
        self._waiting: list[Array] = []
        self._waiting_values = 0
        self._bins: dict[int, tuple[Array, Array]] = {}  # sums and sums of squares by exponent
        self._binned_rows = 0

    def see(self, row: Row) -> None:
        if not self._numbers.feature.shape:
            one = self._numbers.one(row)
            if one is not None:
                self._singles.append(one)
                if len(self._singles) >= _WAITING_VALUES:
                    self._add_waiting()
            return
        array = self._numbers.array(row)
        if array is None or not array.size:
            return
        self._waiting.append(array.reshape(-1, self._places))
        self._waiting_values += array.size
        if self._waiting_values >= _WAITING_VALUES:
            self._add_waiting()

    def merge(self, other: Lesson) -> None:
        assert isinstance(other, Moments)
        other._settle()
        self._settle()
        for mine, theirs in (
            (self._counts, other._counts),
            (self._sums, other._sums),
            (self._squares, other._squares),
        ):
            mine[:] = [a + b for a, b in zip(mine, theirs, strict=True)]

    def learned(self) -> Transform:
        self._settle()
        means, stds = [], []
        for count, total, squares in zip(self._counts, self._sums, self._squares, strict=True):
            mean = Fraction(total, count << _SCALE_BITS) if count else Fraction(0)
            variance = Fraction(squares, count << 2 * _SCALE_BITS) - mean**2 if count else Fraction(0)
            means.append(float(mean))
            stds.append(sqrt(float(variance)) or 1.0)
        step = self._step
        return given_standardize(step.column, means, stds, into=step.into, keep=step.keep)

    def told(self) -> str:
        """What was learned, in words."""
        self._settle()
        return f"mean and std of {max(self._counts):,} values"

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return self.__dict__

    def _settle(self) -> None:
        """Bring everything into the sums without an end."""
        self._add_waiting()
        for exponent, (totals, squares) in self._bins.items():
            shift = _SCALE_BITS + exponent - 24
            self._sums = [a + (b << shift) for a, b in zip(self._sums, totals.tolist(), strict=True)]
            self._squares = [
                a + (b << 2 * shift) for a, b in zip(self._squares, squares.tolist(), strict=True)
            ]
        self._bins, self._binned_rows = {}, 0

    def _add_waiting(self) -> None:
        if self._singles:
            kind = np.float64 if isinstance(self._numbers.feature, Float32) else object
            self._waiting.append(np.array(self._singles, kind).reshape(-1, 1))
            self._singles = []
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        self._waiting, self._waiting_values = [], 0
        if rows.dtype.kind != "f":
            self._add_wholes(rows)
            return
        for begin in range(0, len(rows), _BINNED_ROWS):
            piece = rows[begin : begin + _BINNED_ROWS]
            if self._binned_rows + len(piece) > _BINNED_ROWS:
                self._settle()
            self._binned_rows += len(piece)
            self._add_reals(piece.astype(np.float64))

    def _add_wholes(self, rows: Array) -> None:
        for place in range(self._places):
            numbers = [int(one) for one in rows[:, place].tolist()]
            self._counts[place] += len(numbers)
            self._sums[place] += sum(numbers) << _SCALE_BITS
            self._squares[place] += sum([one * one for one in numbers]) << 2 * _SCALE_BITS

    def _add_reals(self, rows: Array) -> None:
        """Numbers are taken apart into 24 bits and an exponent; those of one exponent are added as whole numbers."""
        finite = np.isfinite(rows)
        fractions, exponents = np.frexp(np.where(finite, rows, 0.0))
        digits = (fractions * (1 << 24)).astype(np.int64)
        self._counts = [a + b for a, b in zip(self._counts, finite.sum(axis=0).tolist(), strict=True)]
        for exponent in np.unique(exponents).tolist():
            mine = np.where(exponents == exponent, digits, 0)
            totals, squares = mine.sum(axis=0), (mine * mine).sum(axis=0)
            if exponent in self._bins:
                totals = totals + self._bins[exponent][0]
                squares = squares + self._bins[exponent][1]
            self._bins[exponent] = totals, squares
