"""Whole numbers as they are stored: checked against dtype, range and classes, then int64."""

from __future__ import annotations

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.number_rule import NumberRule, array_of_ints, is_bfloat16, out_of_range, require_whole
from rekord.codec.unfit import Unfit, described
from rekord.schema.dtypes import dtype_name, integer_bounds

_INT64 = (-(2**63), 2**63 - 1)


def store_ints(numbers: Array, rule: NumberRule) -> Array:
    """A flat array of numbers as int64."""
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.dtype.kind == "f" or is_bfloat16(numbers):
        numbers = _whole_floats(numbers, rule)
    wrong = _outside(numbers, *rule.bounds)
    if wrong is not None and wrong.any():
        at = int(np.argmax(wrong))
        raise _out_of_bounds(int(numbers[at]), rule, at)
    # uint64 is stored bit for bit.
    if numbers.dtype == object:
        return np.array([int(n) & (2**64 - 1) for n in numbers], np.uint64).view(np.int64)
    if numbers.dtype == np.uint64:
        return np.ascontiguousarray(numbers).view(np.int64)
    return np.ascontiguousarray(numbers, np.int64)


def _whole_floats(numbers: Array, rule: NumberRule) -> Array:
    wide = numbers.astype(np.float64 if is_bfloat16(numbers) else np.longdouble)
    require_whole(wide, rule)
    if float(np.abs(wide).max()) < 2**62:
        return wide.astype(np.int64)
    return array_of_ints([int(number) for number in wide])


def _outside(numbers: Array, low: int, high: int) -> Array | None:
    """Which numbers are below `low` or above `high`; None where none can be."""
    if numbers.dtype == object:
        return np.array([not low <= int(n) <= high for n in numbers], bool)
    if low <= int(numbers.min()) and int(numbers.max()) <= high:
        return None
    if numbers.dtype == np.uint64:
        if high < 0:
            return np.ones(numbers.shape, bool)
        outside: Array = (numbers > np.uint64(high)) | (numbers < np.uint64(max(low, 0)))
        return outside
    wide = numbers.astype(np.int64)
    wrong = np.zeros(numbers.shape, bool)
    # A bound beyond int64 excludes all of it, or nothing.
    wrong |= wide < low if low <= _INT64[1] else True
    wrong |= wide > high if high <= _INT64[1] else False
    return wrong


def _out_of_bounds(number: int, rule: NumberRule, at: int) -> Unfit:
    found = described(number)
    if rule.label is not None:
        return Unfit(
            "E317",
            "is no class id",
            expected=f"an id from 0 to {rule.label.count - 1:,}",
            found=found,
            do="mend the row, or declare more classes",
            at=at,
        )
    low, high = integer_bounds(rule.dtype)
    if not low <= number <= high:
        name = dtype_name(rule.dtype)
        do = (
            'Int64(dtype="uint64") holds it'
            if 0 <= number < 2**64 and name == "int64"
            else "declare a wider dtype"
        )
        if not -(2**63) <= number < 2**64:
            do = "store it as Text() or Bytes(): no dtype holds it"
        return Unfit(
            "E310",
            f"does not fit {name}",
            expected=f"a whole number from {low} to {high}",
            found=found,
            do=do,
            at=at,
        )
    return out_of_range(found, rule, at)
