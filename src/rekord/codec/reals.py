"""Numbers as float32: rounded as the schema declares, refused where that loses more than digits."""

from __future__ import annotations

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.number_rule import NumberRule, out_of_range
from rekord.codec.unfit import Unfit, described
from rekord.schema.dtypes import dtype_name

WHOLE = 2**24
"""Up to here float32 holds every whole number."""


def store_floats(numbers: Array, rule: NumberRule) -> Array:
    """A flat array of numbers as float32."""
    stored = _rounded(numbers, rule)
    if numbers.dtype != np.float32 or dtype_name(rule.dtype) != "float32":
        _check_rounding(numbers, stored, rule)
    if rule.range is not None and stored.size:
        _check_range(numbers, stored, rule)
    return stored


def _rounded(numbers: Array, rule: NumberRule) -> Array:
    """The nearest numbers that the declared dtype holds, as float32."""
    name = dtype_name(rule.dtype)
    if numbers.dtype == np.float32 and name == "float32":
        return np.ascontiguousarray(numbers)  # every bit stays, those of a NaN too
    if numbers.dtype == object:
        numbers = np.array([float(n) if abs(n) < 2**1000 else np.inf * (1 if n > 0 else -1) for n in numbers])
    if numbers.dtype.kind not in "f":
        numbers = numbers.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "bfloat16":
            return _bfloat16(numbers.astype(np.float32))
        return np.ascontiguousarray(numbers.astype(name).astype(np.float32))


def _bfloat16(numbers: Array) -> Array:
    """Rounded to the upper half of their bits, ties to even."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    up = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    up &= np.uint32(0xFFFF0000)
    # A NaN whose bits all lie in the lower half must not become infinite, nor an infinity more.
    kept = np.where(np.isnan(numbers), (bits & np.uint32(0xFFFF0000)) | np.uint32(0x00400000), bits)
    return np.where(np.isfinite(numbers), up, kept).astype(np.uint32).view(np.float32)


def _check_rounding(numbers: Array, stored: Array, rule: NumberRule) -> None:
    name = dtype_name(rule.dtype)
    if numbers.dtype == object or numbers.dtype.kind in "biu":
        for at in np.flatnonzero(_beyond(numbers)).tolist():
            if np.isinf(stored[at]) or int(stored[at]) != int(numbers[at]):
                check_survives(int(numbers[at]), rule, at)
        if rule.exact:
            changed = np.array([int(n) != s for n, s in zip(numbers, stored.tolist(), strict=True)], bool)
            _refuse_inexact(changed, numbers, rule)
        return
    wide = numbers.astype(np.float64) if numbers.dtype.itemsize < 8 else numbers
    lost = np.isinf(stored) & np.isfinite(wide)
    if lost.any():
        at = int(np.argmax(lost))
        raise _too_large(described(numbers[at]), name, at)
    if rule.exact:
        _refuse_inexact((stored.astype(wide.dtype) != wide) & ~np.isnan(wide), numbers, rule)


def _refuse_inexact(changed: Array, numbers: Array, rule: NumberRule) -> None:
    if changed.any():
        at = int(np.argmax(changed))
        raise Unfit(
            "E315",
            "cannot be stored exactly",
            expected=f'a number that {dtype_name(rule.dtype)} holds, as rounding="exact" asks',
            found=described(numbers[at]),
            do='rounding="nearest" rounds it; Tensor("float64") keeps every bit',
            at=at,
        )


def _beyond(numbers: Array) -> Array:
    """Which whole numbers are beyond those that float32 holds one by one."""
    if numbers.dtype == object:
        return np.array([abs(int(n)) > WHOLE for n in numbers], bool)
    if numbers.dtype.itemsize < 4:
        return np.zeros(0, bool)
    beyond = numbers > WHOLE
    return beyond if numbers.dtype.kind == "u" else beyond | (numbers < -WHOLE)


def check_survives(number: int, rule: NumberRule, at: int) -> None:
    """Refuse a whole number that comes back as another one."""
    name = dtype_name(rule.dtype)
    try:
        as_float = float(number)
    except OverflowError:
        raise _too_large(described(number)[:60], name, at) from None
    stored = float(_rounded(np.array([as_float]), rule)[0])
    if stored in (float("inf"), float("-inf")):
        raise _too_large(described(number), name, at)
    if abs(number) > WHOLE and int(stored) != number:
        raise Unfit(
            "E314",
            f"would not survive as {name}",
            expected="a whole number of at most 2^24, or one that float32 holds",
            found=described(number),
            do="declare Int64(), or pass float(value) if rounding is meant",
            at=at,
        )


def _too_large(found: str, name: str, at: int) -> Unfit:
    return Unfit(
        "E313",
        f"is too large for {name}",
        expected=f"a number that {name} holds; it would become infinite",
        found=found,
        do='scale it, or Tensor("float64") keeps it',
        at=at,
    )


def _check_range(numbers: Array, stored: Array, rule: NumberRule) -> None:
    assert rule.range is not None
    low, high = _rounded(np.array(rule.range, np.float64), rule)
    wrong = ~((stored >= low) & (stored <= high))
    if not wrong.any():
        return
    at = int(np.argmax(wrong))
    if np.isnan(stored[at]):
        raise Unfit(
            "E312",
            "is NaN, the schema declares a range",
            expected=f"a number from {rule.range[0]} to {rule.range[1]}",
            found="nan",
            do="optional=True and None for a value that is not known, or drop range=",
            at=at,
        )
    raise out_of_range(described(numbers[at]), rule, at)
