"""Arguments of transforms, checked: they may come from a person, or from the manifest of a dataset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rekord.errors import RekordError, error
from rekord.schema.refuse import near_miss, shown

_MOST_SIDE = 16_384
"""Larger pictures are hardly meant, and a batch of them would not fit into memory."""


def refused(name: str, value: object, expected: str, do: str) -> RekordError:
    """The error for an argument that cannot be meant."""
    return error("U605", f"`{name}` cannot be {shown(value)}", expected=expected, found=shown(value), do=do)


def side(name: str, value: object) -> int:
    """A height or a width."""
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    number = value.__index__() if whole else 0  # type: ignore[attr-defined]
    if not 1 <= number <= _MOST_SIDE:
        raise refused(name, value, f"a whole number of pixels from 1 to {_MOST_SIDE:,}", f"{name}=224")
    return int(number)


def one_of(name: str, value: object, known: Sequence[str]) -> str:
    """One of some names."""
    if isinstance(value, str) and value in known:
        return value
    near = near_miss(value, known) if isinstance(value, str) else None
    listed = ", ".join([f'"{one}"' for one in known])
    raise refused(name, value, f"one of {listed}", f'{name}="{near or known[0]}"')


def colour(name: str, value: Any) -> tuple[int, ...]:
    """A grey value, or red, green and blue."""
    parts = list(value) if isinstance(value, (tuple, list)) else [value]
    sound = [hasattr(one, "__index__") and not isinstance(one, bool) and 0 <= one <= 255 for one in parts]
    if len(parts) not in (1, 3) or not all(sound):
        raise refused(name, value, "a number from 0 to 255, or three of them", f"{name}=0")
    return tuple([int(one.__index__()) for one in parts])


def checked_columns(name: str, value: Any) -> tuple[str, ...] | None:
    """Names of columns, or None."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
        return tuple(dict.fromkeys(value))
    raise refused(
        name,
        value,
        "a list of column names",
        f"{name}=[{value!r}]" if isinstance(value, str) else f'{name}=["image"]',
    )


def numbers(name: str, value: Any) -> tuple[float, ...]:
    """A finite number, or one for each channel."""
    parts = list(value) if isinstance(value, (tuple, list)) or hasattr(value, "tolist") else [value]
    try:
        found = [float(one) for one in parts if not isinstance(one, (bool, str))]
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != len(parts) or not 1 <= len(found) <= 4 or not all(map(math.isfinite, found)):
        raise refused(
            name, value, 'a number, or one for each channel, or "imagenet"', f"{name}=(0.5, 0.5, 0.5)"
        )
    return tuple(found)
