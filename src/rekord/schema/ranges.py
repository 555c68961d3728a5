"""The least and the greatest value that a numeric feature allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekord.schema.defaults import Misfit
from rekord.schema.refuse import refuse, shown


def checked_range(
    value: object, limits: tuple[Any, Any], bound: Callable[[object], Any], owner: str, column: str | None
) -> tuple[Any, Any] | None:
    """`value` as (least, greatest), an open end filled from `limits`; `bound` says whether a number fits."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2 or (value[0] is None and value[1] is None):
        raise _refused(value, "(least, greatest), at most one of them None", owner, column)
    try:
        low = limits[0] if value[0] is None else bound(value[0])
        high = limits[1] if value[1] is None else bound(value[1])
    except Misfit as misfit:
        raise _refused(value, misfit.expected, owner, column) from None
    if low != low or high != high:
        raise _refused(value, "numbers that can be compared: NaN cannot", owner, column)
    if low > high:
        raise _refused(value, "the least value first", owner, column)
    return low, high


def _refused(value: object, expected: str, owner: str, column: str | None) -> Exception:
    return refuse(
        "S105",
        f"{owner} has a range that cannot be meant",
        column=column,
        expected=expected,
        found=shown(value),
        do="range=(0, 10) for both ends, range=(0, None) for one",
    )
