"""What the numbers under one record key may be: a quick look at all of them, a closer one where that fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.health.finding import Severity
from rekord.health.rules.cells import Array, Mask
from rekord.schema import Feature, Label, Sparse
from rekord.schema.dtypes import FLOATS, dtype_name, float_maximum, integer_bounds

Meaning: TypeAlias = Literal["number", "label", "index"]
_NARROW_FLOATS = ("float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`low` and `high` are as numbers are stored; within them, and finite, there is nothing to say."""

    meaning: Meaning
    dtype: Any
    low: Any = None
    high: Any = None
    holds: tuple[Any, Any] | None = None  # what a dtype narrower than the stored one can hold
    range: tuple[Any, Any] | None = None  # as declared, for messages
    open: bool = False  # to infinity, which is worth a warning

    def sound(self, values: Array) -> bool:
        """Whether a quick look has nothing against these values; it never overlooks anything."""
        if not len(values):
            return True
        if self.low is None:
            return values.dtype != np.float32 or bool(np.isfinite(np.add.reduce(values)))
        numbers = values.view(np.uint64) if self.dtype == np.uint64 else values
        least, greatest = numbers.min(), numbers.max()
        inside = bool(least >= self.low and greatest <= self.high)
        return inside and not (self.open and (np.isinf(least) or np.isinf(greatest)))

    def judged(self, values: Array) -> Iterator[tuple[str, Severity, Mask]]:
        """What is wrong with which values: a code, a severity and a mark for each value."""
        with np.errstate(all="ignore"):
            verdicts = list(self._reals(values) if values.dtype == np.float32 else self._whole(values))
        yield from [verdict for verdict in verdicts if verdict[2].any()]

    def _whole(self, values: Array) -> Iterator[tuple[str, Severity, Mask]]:
        if self.low is None:
            return
        numbers = values.view(np.uint64) if self.dtype == np.uint64 else values
        wrong = (numbers < self.low) | (numbers > self.high)
        if self.meaning == "index":
            yield "D407", "error", wrong
            return
        if self.holds is not None:
            unfit = (numbers < self.holds[0]) | (numbers > self.holds[1])
            yield "D405", "error", unfit
            wrong &= ~unfit
        yield "H752" if self.meaning == "label" else "H750", "error", wrong

    def _reals(self, values: Array) -> Iterator[tuple[str, Severity, Mask]]:
        finite = np.isfinite(values)
        rounded = _rounded(values, dtype_name(self.dtype))
        unfit = finite & np.isinf(rounded)
        yield "D405", "error", unfit
        if self.range is None:
            yield "H751", "warning", ~finite
            return
        inside = (rounded >= self.low) & (rounded <= self.high)
        yield "H751", "error", ~finite & ~inside
        yield "H751", "warning", ~finite & inside  # an infinity at an open end
        yield "H750", "error", finite & ~inside & ~unfit


def limits_of(feature: Feature) -> Limits:
    """The limits of a feature's own numbers."""
    if isinstance(feature, Label):
        last = feature.count - 1
        return Limits(meaning="label", dtype=feature.dtype, low=0, high=last, range=(0, last))
    name = dtype_name(feature.dtype)
    declared = getattr(feature, "range", None)
    if name not in FLOATS:
        holds = None if name in ("int64", "uint64") else integer_bounds(feature.dtype)
        low, high = declared or holds or (None, None)
        return Limits(meaning="number", dtype=feature.dtype, low=low, high=high, holds=holds, range=declared)
    low, high = None, None
    if declared is not None:
        # Meant in the declared dtype, where 0.1 is another number than in Python.
        low, high = _rounded(np.array(declared, np.float32), name)
    elif name in _NARROW_FLOATS:
        high = np.float32(float_maximum(feature.dtype))
        low = -high
    ends = declared is not None and bool(np.isinf(declared).any())
    return Limits(meaning="number", dtype=feature.dtype, low=low, high=high, range=declared, open=ends)


def indices_of(feature: Sparse) -> Limits:
    """The limits of the indices of a sparse vector."""
    last = feature.size - 1
    return Limits(meaning="index", dtype=np.dtype("<i8"), low=0, high=last, range=(0, last))


def _rounded(values: Array, name: str) -> Array:
    """float32 values as the declared dtype has them."""
    if name == "float16":
        return values.astype(np.float16).astype(np.float32)
    if name != "bfloat16":
        return values
    bits = np.ascontiguousarray(values).view(np.uint32)
    up = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), up.view(np.float32), values)
