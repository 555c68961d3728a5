"""Numbers and classes as other numbers: one-hot vectors, buckets, standard scores."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite, isnan
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Float32, Int64, Label, Schema
from rekord.schema.dtypes import dtype_name, rounded
from rekord.transforms.base import Bound, Row
from rekord.transforms.one_column import Numbers, OneColumn, unusable, whole

_MOST_CLASSES = 1 << 24


def one_hot(
    column: str, classes: int | None = None, *, into: str | None = None, keep: bool = False
) -> OneHot:
    """A class as a Float32 vector of zeros with a one at its id; several classes at once as several ones.

    The number of classes is that of the Label; whole numbers without classes need `classes=`. A row without a
    value stays without one.
    """
    known = None if classes is None else whole("classes", classes, least=1, most=_MOST_CLASSES)
    return OneHot(column=column, classes=known, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class OneHot(OneColumn):
    """The transform that `one_hot` makes."""

    classes: int | None

    name = "one_hot"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "classes": self.classes}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> OneHot:
        return one_hot(**options)

    def bind(self, before: Schema) -> Bound:
        feature = self.source_of(before, (Label, Int64), "a Label, or whole numbers")
        classes = self.classes or (feature.count if isinstance(feature, Label) else None)
        if classes is None:
            do = f"one_hot({self.column!r}, classes=10), or --one-hot {self.column}=10, if there are 10"
            raise self.misfit("a Label, or the number of classes", feature, do)
        if classes > _MOST_CLASSES or len(feature.shape) > 1:
            raise self.misfit(
                f"at most {_MOST_CLASSES:,} classes, and lists of at most one dimension", feature
            )
        made = Float32((classes,), **self.shared(feature))
        return self.bound(before, made, _Ones(Numbers(self.column, feature), classes))


@dataclass(frozen=True)
class _Ones:
    ids: Numbers
    classes: int

    def __call__(self, row: Row) -> Array | None:
        ids = self.ids.flat(row)
        if ids is None:
            return None
        vector = np.zeros(self.classes, np.float32)
        for one in ids:
            if not 0 <= one < self.classes:
                raise error(
                    "E317",
                    f"`{self.ids.column}` is no class id",
                    location=Location(feature=self.ids.column),
                    expected=f"an id from 0 to {self.classes - 1:,}",
                    found=f"{one}",
                    do="mend the row, or one_hot with more classes",
                )
            vector[one] = 1
        return vector


def bucketize(
    column: str, boundaries: Sequence[float], *, into: str | None = None, keep: bool = False
) -> Bucketize:
    """Numbers as the ids of the buckets that they are in, a Label: bucket i begins at boundary i - 1.

    `[0, 10]` makes three: below 0, from 0 to below 10, and from 10 on. As `keras.layers.Discretization` does.
    """
    if isinstance(boundaries, (str, bytes)) or not isinstance(boundaries, (Sequence, np.ndarray)):
        raise unusable("boundaries", boundaries, "ascending numbers", "boundaries=[0, 10, 20]")
    numbers = list(boundaries)
    good = all(
        isinstance(one, (int, float, np.integer, np.floating)) and not isinstance(one, bool) and isfinite(one)
        for one in numbers
    )
    if not numbers or not good or any(b <= a for a, b in pairwise(numbers)):
        raise unusable("boundaries", boundaries, "ascending numbers, one at the least", "boundaries=[0, 10]")
    plain = [one.item() if isinstance(one, np.generic) else one for one in numbers]
    return Bucketize(column=column, boundaries=tuple(plain), into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class Bucketize(OneColumn):
    """The transform that `bucketize` makes."""

    boundaries: tuple[float, ...]

    name = "bucketize"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "boundaries": list(self.boundaries)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Bucketize:
        return bucketize(**options)

    def bind(self, before: Schema) -> Bound:
        feature = self.source_of(before, (Int64, Float32), "numbers")
        if len(feature.shape) > 1:
            raise self.misfit("numbers, or lists of them of one dimension", feature)
        ends = self.boundaries
        if isinstance(feature, Float32):
            # As a `range` is meant: 0.7 as float32 lies below 0.7, and is at the boundary all the same.
            kind = np.float16 if dtype_name(feature.dtype) == "float16" else np.float32
            ends = tuple([float(kind(rounded(float(one), feature.dtype))) for one in ends])
        made = Label(len(ends) + 1, shape=feature.shape, **self.shared(feature))
        return self.bound(before, made, _Buckets(Numbers(self.column, feature), ends))


@dataclass(frozen=True)
class _Buckets:
    numbers: Numbers
    ends: tuple[float, ...]

    def __call__(self, row: Row) -> int | list[int] | None:
        numbers = self.numbers.flat(row)
        if numbers is None:
            return None
        if any(isnan(one) for one in numbers):
            raise error(
                "E388",
                f"`{self.numbers.column}` is NaN, which is in no bucket",
                location=Location(feature=self.numbers.column),
                expected="a number",
                found="NaN",
                do="leave the value out, and declare Float32(optional=True) or default=",
            )
        ids = [bisect_right(self.ends, one) for one in numbers]
        return ids if self.numbers.feature.shape else ids[0]


@dataclass(frozen=True, kw_only=True)
class Standardize(OneColumn):
    """`(x - mean) / std` as Float32, for all values alike, or for each place of the last dimension."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    name = "standardize"

    def options(self) -> Mapping[str, Any]:
        return {**self.placed(), "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_options(cls, options: Mapping[str, Any], folder: str) -> Standardize:
        return given_standardize(**options)

    def bind(self, before: Schema) -> Bound:
        feature = self.source_of(before, (Int64, Float32), "numbers")
        for many in (len(self.mean), len(self.std)):
            if many != 1 and (not feature.shape or feature.shape[-1] != many):
                raise self.misfit(f"one mean and std, or a last dimension of {many:,}", feature)
        made = Float32(feature.shape, **self.shared(feature))
        numbers = Numbers(self.column, feature)
        mean, std = np.array(self.mean, np.float64), np.array(self.std, np.float64)
        return self.bound(before, made, _Scores(numbers, mean, std))


@dataclass(frozen=True, eq=False)
class _Scores:
    numbers: Numbers
    mean: Array
    std: Array

    def __call__(self, row: Row) -> Any:
        if not self.numbers.feature.shape:
            one = self.numbers.one(row)
            return None if one is None else (float(one) - self._single[0]) / self._single[1]
        array = self.numbers.array(row)
        return None if array is None else (array.astype(np.float64) - self.mean) / self.std

    @cached_property
    def _single(self) -> tuple[float, float]:
        return float(self.mean[0]), float(self.std[0])


def given_standardize(
    column: str,
    mean: float | Sequence[float],
    std: float | Sequence[float],
    *,
    into: str | None = None,
    keep: bool = False,
) -> Standardize:
    """`standardize` with a mean and a standard deviation that are known."""
    means, stds = _figures("mean", mean), _figures("std", std)
    if any(one <= 0 for one in stds):
        raise unusable("std", std, "numbers above 0", "std=1.0")
    return Standardize(column=column, mean=means, std=stds, into=into, keep=keep)


def _figures(name: str, value: Any) -> tuple[float, ...]:
    figures = np.ravel(value).tolist() if isinstance(value, (list, tuple, np.ndarray)) else [value]
    for one in figures:
        if isinstance(one, bool) or not isinstance(one, (int, float, np.number)) or not isfinite(one):
            raise unusable(
                name, value, "a number, or one for each place of the last dimension", f"{name}=1.0"
            )
    if not figures:
        raise unusable(name, value, "a number, or one for each place of the last dimension", f"{name}=1.0")
    return tuple([float(one) for one in figures])
