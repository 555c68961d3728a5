"""Timestamps of rows and columns as the numbers that are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.values import Shape, Unfit, as_array, check_shape, flat, is_text
from rekord.schema import Feature, Timestamp
from rekord.schema.timestamp import NoTimestamp, no_zone, ticks_of, ticks_of_array


def stored_times(value: Any, feature: Timestamp, shape: Shape) -> Array:
    """All times of a value of the declared shape, flat, as int64."""
    check_zone(value, feature)
    array = None if is_text(value) or hasattr(value, "utcoffset") else as_array(value)
    if array is not None and array.dtype.kind == "M":
        check_shape(array.shape, shape, value)
        return store_times(array.ravel(), feature)
    # Leaves of datetime64 stay what they are; a list of them as an array might change its unit.
    leaves, given = ([value], ()) if hasattr(value, "utcoffset") else flat(value)
    check_shape(given, shape, value)
    ticks = [_tick(leaf, feature, at) for at, leaf in enumerate(leaves)]
    numbers = np.array(ticks, np.int64)
    _check_range(numbers, feature)
    return numbers


def store_times(times: Array, feature: Timestamp) -> Array:
    """A flat array of datetime64 as int64."""
    holes = np.isnat(times)
    if holes.any():
        raise _hole(int(np.argmax(holes)))
    try:
        numbers = ticks_of_array(times, feature)
    except NoTimestamp as failure:
        raise unfit(failure, failure.at) from None
    _check_range(numbers, feature)
    return numbers


def check_zone(column: Any, feature: Feature) -> None:
    """Refuse a column of Arrow, pandas or polars whose times have no zone, where the feature declares one.

    NumPy knows no zones: its datetime64 is UTC.
    """
    if (
        not isinstance(feature, Timestamp)
        or feature.tz is None
        or isinstance(column, (np.ndarray, np.generic))
    ):
        return
    kind = getattr(column, "type", None) or getattr(column, "dtype", None)
    while getattr(kind, "value_type", None) is not None:  # lists of Arrow
        kind = kind.value_type  # type: ignore[union-attr]
    is_time = str(kind).lower().startswith(("timestamp[", "datetime64[", "datetime("))
    if is_time and all(getattr(kind, name, None) is None for name in ("tz", "time_zone")):
        raise unfit(no_zone(str(kind), feature), None)


def unfit(failure: NoTimestamp, at: int | None) -> Unfit:
    """The refusal of a value that is no timestamp."""
    return Unfit(
        failure.code, failure.what, expected=failure.expected, found=failure.found, do=failure.do, at=at
    )


def _tick(leaf: Any, feature: Timestamp, at: int) -> int:
    if feature.is_missing(leaf):
        raise _hole(at)
    try:
        return ticks_of(leaf, feature)
    except NoTimestamp as failure:
        raise unfit(failure, at) from None


def _hole(at: int) -> Unfit:
    return Unfit(
        "E302",
        "has no value in one of its places",
        expected="times",
        found="None or NaT",
        do="leave the value out, or put a time in its place",
        at=at,
    )


def _check_range(numbers: Array, feature: Timestamp) -> None:
    limits = feature.limits
    if limits is None or feature.range is None or not numbers.size:
        return
    wrong = (numbers < limits[0]) | (numbers > limits[1])
    if wrong.any():
        at = int(np.argmax(wrong))
        low, high = (end or "any time" for end in feature.range)
        raise Unfit(
            "E311",
            "is out of its range",
            expected=f"a time from {low} to {high}",
            found=feature.text(int(numbers[at])),
            do="change the row, or declare a wider range=",
            at=at,
        )
