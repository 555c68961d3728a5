"""What the numbers of one record key may be, as its feature declares it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.unfit import Unfit, described
from rekord.schema import Feature, Label
from rekord.schema.dtypes import dtype_name, integer_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberRule:
    """What the numbers of one record key may be."""

    type_name: str  # of the feature, for messages
    dtype: Any
    floats: bool
    range: tuple[Any, Any] | None = None
    cast: bool = False
    exact: bool = False
    label: Label | None = None
    ids: dict[str, int] | None = None

    @classmethod
    def of(cls, feature: Feature, *, dtype: Any = None) -> NumberRule:
        """The rule of a feature; `dtype` for one of its keys that has another."""
        declared = feature.dtype if dtype is None else dtype
        name = dtype_name(declared)
        label = feature if isinstance(feature, Label) else None
        return cls(
            type_name=type(feature).__name__,
            dtype=declared,
            floats=name in ("float16", "float32", "bfloat16"),
            range=getattr(feature, "range", None),
            cast=getattr(feature, "cast", False),
            exact=getattr(feature, "rounding", "nearest") == "exact",
            label=label,
            ids={one: i for i, one in enumerate(label.names)} if label and label.names else None,
        )

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest whole number, by dtype, range and classes."""
        if self.label is not None:
            return 0, self.label.count - 1
        low, high = integer_bounds(self.dtype)
        return (low, high) if self.range is None else (max(low, self.range[0]), min(high, self.range[1]))

    @property
    def wanted(self) -> str:
        """What the column holds, in words."""
        return "numbers" if self.floats else "whole numbers"


def require_whole(numbers: Array, rule: NumberRule) -> None:
    """Refuse floats, or with `cast` those that are not whole."""
    broken = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    at = int(np.argmax(broken))  # the first where all are whole
    if not rule.cast:
        raise Unfit(
            "E304",
            f"is a float, the schema says {rule.type_name}",
            expected="whole numbers",
            found=described(numbers[at]),
            do="int(value), or declare Float32()"
            if rule.type_name != "Int64"
            else "Int64(cast=True) takes floats that are whole; Float32() keeps the fraction",
        )
    if broken.any():
        raise Unfit(
            "E304",
            "has a fraction, the schema says Int64",
            expected="floats that are whole, as cast=True takes them",
            found=described(numbers[at]),
            do="round it first, or declare Float32()",
            at=at,
        )


def out_of_range(found: str, rule: NumberRule, at: int) -> Unfit:
    """The refusal of a number outside of the declared range."""
    assert rule.range is not None
    return Unfit(
        "E311",
        "is out of its range",
        expected=f"a number from {rule.range[0]} to {rule.range[1]}",
        found=found,
        do="mend the row, or declare a wider range=",
        at=at,
    )


def is_bfloat16(numbers: Array) -> bool:
    """Whether these are bfloat16, a dtype that NumPy itself does not know."""
    return str(numbers.dtype.name) == "bfloat16"


def array_of_ints(numbers: list[int]) -> Array:
    """Whole numbers as int64, or as objects where one of them is larger."""
    if all(-(2**63) <= number < 2**63 for number in numbers):
        return np.array(numbers, np.int64)
    return np.array(numbers, object)
