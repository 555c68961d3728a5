"""Transforms of numbers and classes: one-hot vectors, buckets, standard scores, casts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import isfinite, isinf, isnan, sqrt
from typing import Any, Literal

import numpy as np

from rekord.arguments import check_keywords, flag, integer, invalid, one_of
from rekord.codec.columns import Array
from rekord.codec.numbers import conform_tensor
from rekord.codec.values import describe_value
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Int64, Label, Schema, Tensor, Text
from rekord.schema.base import FLOAT_DTYPES, INTEGER_DTYPES, dtype_name, integer_bounds, round_to_dtype
from rekord.transforms.base import (
    Bound,
    ColumnTransform,
    FitState,
    NumberReader,
    Row,
    TextReader,
    Transform,
    column_errors,
    get_value,
    is_text_feature,
    unflatten,
)

_MAX_CLASSES = 1 << 24


@check_keywords
def one_hot(column: str, classes: int | None = None, *, into: str | None = None, keep: bool = False) -> OneHot:
    """Encode a class as a Float32 vector with a one at its id, or a list of classes as a vector with several ones.

    The number of classes is that of the Label; a column of integers needs `classes=`. A missing value stays missing.
    """
    known = None if classes is None else integer("classes", classes, least=1, most=_MAX_CLASSES)
    return OneHot(column=column, classes=known, into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class OneHot(ColumnTransform):
    classes: int | None

    name = "one_hot"

    def bind(self, before: Schema) -> Bound:
        feature = self.require_source(before, (Label, Int64), "a Label or integers")
        classes = self.classes or feature.class_count
        if classes is None:
            do = f"one_hot({self.column!r}, classes=10) (--one-hot {self.column}=10) for 10 classes"
            raise self.column_type_error("a Label, or the number of classes", feature, do)
        if classes > _MAX_CLASSES or len(feature.shape) > 1:
            raise self.column_type_error(f"at most {_MAX_CLASSES:,} classes, and at most one dimension", feature)
        vector = Float32((classes,), **self.shared(feature))
        reader = NumberReader(self.column, feature)
        return self.bound(before, vector, reader.flat, partial(_one_hot, self.column, classes))


def _one_hot(column: str, classes: int, ids: list[int]) -> Array:
    vector = np.zeros(classes, np.float32)
    for one in ids:
        if not 0 <= one < classes:
            raise error(
                "E317",
                f"`{column}` is not a class id",
                location=Location(feature=column),
                expected=f"an id from 0 to {classes - 1:,}",
                found=f"{one}",
                do="fix the row, or pass a larger number of classes",
            )
        vector[one] = 1
    return vector


@check_keywords
def bucketize(column: str, boundaries: Sequence[float], *, into: str | None = None, keep: bool = False) -> Bucketize:
    """Replace numbers with the ids of their buckets, a Label: bucket i starts at boundary i - 1.

    `[0, 10]` makes three buckets: below 0, from 0 to below 10, and 10 or more, as in `keras.layers.Discretization`.
    """
    is_list = isinstance(boundaries, (Sequence, np.ndarray)) and not isinstance(boundaries, (str, bytes))
    numbers = list(boundaries) if is_list else []
    if not numbers or not all(map(_is_finite_number, numbers)) or any(b <= a for a, b in pairwise(numbers)):
        raise invalid("boundaries", boundaries, "at least one number, in ascending order", "boundaries=[0, 10, 20]")
    plain = [one.item() if isinstance(one, np.generic) else one for one in numbers]
    return Bucketize(column=column, boundaries=tuple(plain), into=into, keep=keep)


def _is_finite_number(value: object) -> bool:
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_number and isfinite(value)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Bucketize(ColumnTransform):
    boundaries: tuple[float, ...]

    name = "bucketize"

    def bind(self, before: Schema) -> Bound:
        feature = self.require_source(before, (Int64, Float32), "numbers")
        if len(feature.shape) > 1:
            raise self.column_type_error("single numbers, or lists of one dimension", feature)
        ends = self.boundaries
        if feature.kind == "float":
            # Rounded like a `range`: 0.7 as float32 is less than 0.7, but equals the boundary.
            kind = np.float16 if dtype_name(feature.dtype) == "float16" else np.float32
            ends = tuple([float(kind(round_to_dtype(float(one), feature.dtype))) for one in ends])
        label = Label(len(ends) + 1, shape=feature.shape, **self.shared(feature))
        reader = NumberReader(self.column, feature)
        return self.bound(before, label, reader.flat, partial(_bucketize, reader, ends))


def _bucketize(reader: NumberReader, ends: tuple[float, ...], numbers: list[float]) -> int | list[int]:
    if any(isnan(one) for one in numbers):
        raise error(
            "E388",
            f"`{reader.column}` is NaN, which is in no bucket",
            location=Location(feature=reader.column),
            expected="a number",
            found="NaN",
            do="omit the value, and declare rk.Float32(optional=True) or a default=",
        )
    return unflatten([bisect_right(ends, one) for one in numbers], reader.feature)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Standardize(ColumnTransform):
    """`(x - mean) / std` as Float32, with one mean and std for all values, or per position of the last dimension."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    name = "standardize"

    def bind(self, before: Schema) -> Bound:
        feature = self.require_source(before, (Int64, Float32), "numbers")
        for length in (len(self.mean), len(self.std)):
            if length != 1 and (not feature.shape or feature.shape[-1] != length):
                raise self.column_type_error(f"one mean and std, or a last dimension of {length:,}", feature)
        scores = Float32(feature.shape, **self.shared(feature))
        reader = NumberReader(self.column, feature)
        if not feature.shape:
            return self.bound(before, scores, reader.one, partial(_standardize_one, self.mean[0], self.std[0]))
        mean, std = np.array(self.mean, np.float64), np.array(self.std, np.float64)
        return self.bound(before, scores, reader.array, partial(_standardize_array, mean, std))


def _standardize_one(mean: float, std: float, one: float) -> float:
    return (float(one) - mean) / std


def _standardize_array(mean: Array, std: Array, array: Array) -> Array:
    return (array.astype(np.float64) - mean) / std


def _validate_statistics(name: str, value: Any) -> tuple[float, ...]:
    numbers = np.ravel(value).tolist() if isinstance(value, (list, tuple, np.ndarray)) else [value]
    if not numbers or not all(map(_is_finite_number, numbers)):
        raise invalid(name, value, "a number, or one per position of the last dimension", f"{name}=1.0")
    return tuple([float(one) for one in numbers])


LearnFrom = Literal["train", "all"]
LEARN_FROM: tuple[LearnFrom, ...] = ("train", "all")

_MAX_PENDING_VALUES = 4096
"""The number of values that are collected before they are summed."""

_MAX_BINNED_ROWS = 1 << 14
"""The squares of this many 24-bit numbers fit in 63 bits; after that they are added to the unbounded sums."""

_SCALE_BITS = 200
"""Numbers are summed as multiples of 2^-200, which every float32 is."""


@check_keywords
def standardize(
    column: str,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    *,
    into: str | None = None,
    keep: bool = False,
    learn_from: LearnFrom = "train",
) -> Standardize | UnfittedStandardize:
    """Compute `(x - mean) / std` as Float32. Without `mean` and `std`, they are learned from the rows first.

    If the last dimension is fixed, each of its positions has its own mean and std. NaN and infinities are ignored; a
    standard deviation of 0 counts as 1.
    """
    if (mean is None) != (std is None):
        missing = "mean" if mean is None else "std"
        raise invalid(missing, None, "both mean= and std=, or neither", f"{missing}=1.0")
    if mean is not None and std is not None:
        means, stds = _validate_statistics("mean", mean), _validate_statistics("std", std)
        if any(one <= 0 for one in stds):
            raise invalid("std", std, "numbers above 0", "std=1.0")
        return Standardize(column=column, mean=means, std=stds, into=into, keep=keep)
    return UnfittedStandardize(
        column=column, into=into, keep=keep, learn_from=one_of("learn_from", learn_from, LEARN_FROM)
    )


def not_fitted_error(name: str, column: str, do: str) -> Exception:
    """The error for a transform that is applied before it is fitted."""
    return error(
        "U691",
        f"`{name}` of `{column}` is not fitted",
        expected="a fitted transform; rk.write fits transforms before it writes",
        found=f"{name}({column!r}), not fitted"[:60],
        do=do,
    )


@dataclass(frozen=True, kw_only=True)
class UnfittedStandardize(ColumnTransform):
    """A `standardize` that still has to learn its mean and standard deviation."""

    learn_from: LearnFrom

    name = "standardize"

    def options(self) -> Mapping[str, Any]:
        return {**self.placement_options(), "mean": None, "std": None, "learn_from": self.learn_from}

    def bind(self, before: Schema) -> Bound:
        raise not_fitted_error(self.name, self.column, "pass mean= and std=")

    def begin(self, before: Schema) -> FitState:
        feature = self.require_source(before, (Int64, Float32), "numbers")
        last = feature.shape[-1] if feature.shape else None
        return StandardizeState(self, NumberReader(self.column, feature), 1 if last is None else last)


class StandardizeState:
    """Exact sums of numbers and of their squares, for each of `places` positions."""

    def __init__(self, step: UnfittedStandardize, numbers: NumberReader, places: int) -> None:
        self._step = step
        self._numbers = numbers
        self._places = places
        self._counts = [0] * places
        self._sums = [0] * places
        self._squares = [0] * places
        self._pending_values: list[Any] = []  # of a column of single numbers
        self._waiting: list[Array] = []
        self._waiting_values = 0
        self._bins: dict[int, tuple[Array, Array]] = {}  # sums and sums of squares by exponent
        self._binned_rows = 0

    def update(self, row: Row) -> None:
        if not self._numbers.feature.shape:
            one = self._numbers.one(row)
            if one is not None:
                self._pending_values.append(one)
                if len(self._pending_values) >= _MAX_PENDING_VALUES:
                    self._add_pending()
            return
        array = self._numbers.array(row)
        if array is None or not array.size:
            return
        self._waiting.append(array.reshape(-1, self._places))
        self._waiting_values += array.size
        if self._waiting_values >= _MAX_PENDING_VALUES:
            self._add_pending()

    def merge(self, other: FitState) -> None:
        assert isinstance(other, StandardizeState)
        other._flush_pending()
        self._flush_pending()
        for mine, theirs in (
            (self._counts, other._counts),
            (self._sums, other._sums),
            (self._squares, other._squares),
        ):
            mine[:] = [a + b for a, b in zip(mine, theirs, strict=True)]

    def learned(self) -> Transform:
        self._flush_pending()
        means, stds = [], []
        for count, total, squares in zip(self._counts, self._sums, self._squares, strict=True):
            mean = Fraction(total, count << _SCALE_BITS) if count else Fraction(0)
            variance = Fraction(squares, count << 2 * _SCALE_BITS) - mean**2 if count else Fraction(0)
            means.append(float(mean))
            stds.append(sqrt(float(variance)) or 1.0)
        step = self._step
        return standardize(step.column, means, stds, into=step.into, keep=step.keep)

    def describe(self) -> str:
        """What was learned, for progress messages."""
        self._flush_pending()
        return f"mean and std of {max(self._counts):,} values"

    def __getstate__(self) -> dict[str, Any]:
        self._flush_pending()
        return self.__dict__

    def _flush_pending(self) -> None:
        """Add everything to the unbounded sums."""
        self._add_pending()
        for exponent, (totals, squares) in self._bins.items():
            shift = _SCALE_BITS + exponent - 24
            self._sums = [a + (b << shift) for a, b in zip(self._sums, totals.tolist(), strict=True)]
            self._squares = [a + (b << 2 * shift) for a, b in zip(self._squares, squares.tolist(), strict=True)]
        self._bins, self._binned_rows = {}, 0

    def _add_pending(self) -> None:
        if self._pending_values:
            kind = np.float64 if self._numbers.feature.kind == "float" else object
            self._waiting.append(np.array(self._pending_values, kind).reshape(-1, 1))
            self._pending_values = []
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        self._waiting, self._waiting_values = [], 0
        if rows.dtype.kind != "f":
            self._add_integers(rows)
            return
        for begin in range(0, len(rows), _MAX_BINNED_ROWS):
            piece = rows[begin : begin + _MAX_BINNED_ROWS]
            if self._binned_rows + len(piece) > _MAX_BINNED_ROWS:
                self._flush_pending()
            self._binned_rows += len(piece)
            self._add_floats(piece.astype(np.float64))

    def _add_integers(self, rows: Array) -> None:
        for place in range(self._places):
            numbers = [int(one) for one in rows[:, place].tolist()]
            self._counts[place] += len(numbers)
            self._sums[place] += sum(numbers) << _SCALE_BITS
            self._squares[place] += sum([one * one for one in numbers]) << 2 * _SCALE_BITS

    def _add_floats(self, rows: Array) -> None:
        """Split numbers into 24 bits and an exponent, and add those with the same exponent as integers."""
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


CAST_TARGETS = (*INTEGER_DTYPES, *FLOAT_DTYPES, "float64", "text", "bytes")
_INTEGER_PATTERN = re.compile(r"[+-]?[0-9]{1,40}")
_MAX_DIGITS = 400  # in the text of a number; more carry no information
_BOOL_WORDS = {"true": 1, "false": 0, "1": 1, "0": 0}


@check_keywords
def cast(column: str, dtype: str, *, lossy: bool = False, into: str | None = None, keep: bool = False) -> Cast:
    """Cast a column to another type: an integer or float dtype, `text` or `bytes`.

    A value that the type cannot represent is an error. With `lossy`, fractions are truncated, digits are rounded, and
    invalid UTF-8 is replaced; numbers out of range are still errors. Text is parsed as a number; a label becomes its
    id as a number, or its name as text.
    """
    one_of("dtype", dtype, CAST_TARGETS, do='dtype="float32"')
    return Cast(column=column, dtype=dtype, lossy=flag("lossy", lossy), into=into, keep=keep)


@dataclass(frozen=True, kw_only=True)
class Cast(ColumnTransform):
    dtype: str
    lossy: bool

    name = "cast"

    def bind(self, before: Schema) -> Bound:
        allowed = (Int64, Float32, Label, Text, Bytes, Tensor)
        feature = self.require_source(before, allowed, "numbers, labels, text or bytes")
        is_tensor = feature.storage == "blob"
        if is_tensor and dtype_name(feature.dtype) not in (*INTEGER_DTYPES, *FLOAT_DTYPES, "float64"):
            raise self.column_type_error("real numbers", feature)
        if is_tensor and isinstance(feature.dtype, str):
            raise self.column_type_error("a NumPy dtype (bfloat16 needs ml_dtypes)", feature)
        result = self._result_feature(feature.shape, self.shared(feature))
        return self.bound(before, result, _CastFunction(self.column, feature, self.dtype, self.lossy))

    def _result_feature(self, shape: Any, shared: dict[str, Any]) -> Feature:
        if self.dtype in ("text", "bytes"):
            return (Text if self.dtype == "text" else Bytes)(shape, **shared)
        if self.dtype == "float64":
            return Tensor("float64", shape, **shared)
        return (Int64 if self.dtype in INTEGER_DTYPES else Float32)(shape, dtype=self.dtype, **shared)


@dataclass(frozen=True)
class _CastFunction:
    column: str
    feature: Feature
    dtype: str
    lossy: bool

    def __call__(self, row: Row) -> Any:
        if is_text_feature(self.feature):
            return self._cast_texts(row)
        array = self._numbers(row)
        if array is None:
            return None
        if self.dtype in ("text", "bytes"):
            texts = [self._text(one) for one in array.ravel()]
            return self._shaped([one.encode() for one in texts] if self.dtype == "bytes" else texts, array.shape)
        numbers = self._cast_numbers(array)
        return numbers if array.ndim else numbers[()]

    # From text.

    def _cast_texts(self, row: Row) -> Any:
        value = get_value(row, self.column, self.feature)
        if value is None:
            return None
        if self.dtype == "bytes" or (self.dtype == "text" and self.feature.is_text):
            return value  # the encoder accepts both as bytes, and validates text
        if self.dtype == "text":
            return self._decode_lossy(value) if self.lossy else value  # the encoder validates it
        texts = TextReader(self.column, self.feature).flat(row)
        assert texts is not None
        shape = np.shape(value) if self.feature.shape else ()
        numbers = [self._parse_number(text) for text in texts]
        array = np.array(numbers, "O").reshape(shape)
        return array.tolist() if self.dtype != "float64" else array.astype(np.float64)

    def _decode_lossy(self, value: Any) -> Any:
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).decode("utf-8", "replace")
        if isinstance(value, (list, tuple, np.ndarray)):
            return [self._decode_lossy(one) for one in value]
        return value

    def _parse_number(self, text: str) -> int | float:
        bare = text.strip()
        if len(bare) > _MAX_DIGITS or "_" in bare:
            raise self._lossy_cast_error(text, "a number")
        if self.dtype == "bool":
            if bare.lower() not in _BOOL_WORDS:
                raise self._lossy_cast_error(text, "true, false, 1 or 0")
            return _BOOL_WORDS[bare.lower()]
        if _INTEGER_PATTERN.fullmatch(bare):
            number: int | float = int(bare)
        else:
            try:
                number = float(bare)
            except ValueError:
                raise self._lossy_cast_error(text, "a number") from None
        if self.dtype in INTEGER_DTYPES:
            return self._to_integer(number, text)
        near = self._round(float(number) if abs(number) < 1 << 1000 else np.inf)
        if isinf(near) and (isinstance(number, int) or isfinite(number)):
            raise self._lossy_cast_error(text, f"a number that {self.dtype} can represent")
        return near

    def _to_integer(self, number: int | float, shown: Any) -> int:
        low, high = integer_bounds(np.dtype(self.dtype))
        if isinstance(number, float):
            if not isfinite(number):
                raise self._lossy_cast_error(shown, "an integer")
            if not number.is_integer() and not self.lossy:
                raise self._lossy_cast_error(shown, "an integer", "lossy=True, to truncate fractions")
            number = int(number)
        if not low <= number <= high:
            raise self._lossy_cast_error(shown, f"an integer from {low} to {high}")
        return number

    # From numbers.

    def _numbers(self, row: Row) -> Array | None:
        if not isinstance(self.feature, Tensor):
            return NumberReader(self.column, self.feature).array(row)
        value = get_value(row, self.column, self.feature)
        if value is None:
            return None
        with column_errors(self.column):
            return conform_tensor(value, self.feature)

    def _text(self, number: Any) -> str:
        names = self.feature.class_names
        if names is not None:
            return names[int(number)]
        return str(bool(number)).lower() if isinstance(number, (bool, np.bool_)) else str(number)

    def _cast_numbers(self, array: Array) -> Array:
        if self.dtype == "bool":
            return self._to_bools(array)
        if self.dtype in INTEGER_DTYPES:
            return self._to_integers(array)
        return self._to_floats(array)

    def _to_bools(self, array: Array) -> Array:
        lost = array != array if self.lossy else (array != 0) & (array != 1)
        self._refuse(array, lost, "0 or 1", "" if self.lossy else "lossy=True, to make every other number True")
        return np.asarray(array != 0)

    def _to_integers(self, array: Array) -> Array:
        low, high = integer_bounds(np.dtype(self.dtype))
        if array.dtype.kind == "f":
            whole = np.trunc(array)
            if not self.lossy:
                fraction = np.isfinite(array) & (whole != array)
                self._refuse(array, fraction, "an integer", "lossy=True, to truncate fractions")
            # Both bounds are powers of two, or next to one, so float64 compares them exactly.
            wide = whole.astype(np.float64)
            with np.errstate(invalid="ignore"):
                fits = (wide >= float(low)) & (wide < float(high + 1))
            self._refuse(array, ~fits, f"an integer from {low} to {high}")
            return whole.astype(self.dtype)
        if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
            outside = [not low <= one <= high for one in array.ravel().tolist()]
            self._refuse(array, np.array(outside).reshape(array.shape), f"an integer from {low} to {high}")
        return array.astype(self.dtype)

    def _to_floats(self, array: Array) -> Array:
        expected = f"a number that {self.dtype} can represent"
        if self.dtype == "bfloat16":
            near = np.array([self._round(float(one)) for one in array.ravel()], np.float32).reshape(array.shape)
        else:
            with np.errstate(over="ignore"):
                near = array.astype(self.dtype)
        wide = near.astype(np.float64)
        if array.dtype.kind == "f":
            before = array.astype(np.float64)
            self._refuse(array, np.isinf(wide) & np.isfinite(before), expected)
            changed = (wide != before) & (before == before)
        else:
            self._refuse(array, np.isinf(wide), expected)
            pairs = zip(wide.ravel().tolist(), array.ravel().tolist(), strict=True)
            changed = np.array([int(a) != b for a, b in pairs], bool).reshape(array.shape)
        if not self.lossy:
            self._refuse(array, changed, expected, "lossy=True, to round it")
        return near

    def _round(self, number: float) -> float:
        return number if self.dtype == "float64" else round_to_dtype(number, self.dtype)

    def _refuse(self, array: Array, lost: Array, expected: str, do: str = "") -> None:
        if np.any(lost):
            raise self._lossy_cast_error(array.ravel()[int(np.argmax(lost.ravel()))], expected, do)

    def _lossy_cast_error(self, value: Any, expected: str, do: str = "") -> RekordError:
        return error(
            "E386",
            f"`{self.column}` cannot be cast to {self.dtype}",
            location=Location(feature=self.column),
            expected=expected,
            found=describe_value(value)[:60],
            do=do or "fix the row, or cast to another dtype",
        )

    def _shaped(self, values: list[Any], shape: tuple[int, ...]) -> Any:
        if not shape:
            return values[0]
        flat = np.empty(len(values), object)
        flat[:] = values
        return flat.reshape(shape).tolist()
