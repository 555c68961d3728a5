"""Values that stand in for absent ones: whether they fit, and the one form in which they are kept."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from rekord.schema.dtypes import dtype_name, float_maximum, integer_bounds, rounded
from rekord.schema.refuse import shown
from rekord.schema.shapes import Shape

_WHOLE_IN_FLOAT32 = 2**24


class Absent(enum.Enum):
    """The type of `ABSENT`, which says that a feature has no default."""

    ABSENT = enum.auto()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent.ABSENT


class Misfit(Exception):
    """Why a value does not fit; the feature that asked turns it into its own error."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = shown(found)


def fitted(value: object, shape: Shape, ragged: bool, scalar: Callable[[object], Any]) -> Any:
    """`value` as nested tuples of the given shape, each element as `scalar` gives it."""
    lengths: dict[int, int] = {}

    def walk(part: object, axis: int) -> Any:
        if isinstance(part, np.ndarray):
            part = part.tolist()
        if axis == len(shape):
            if isinstance(part, (list, tuple)):
                raise Misfit(f"a value of shape {shape}", value)
            return scalar(part)
        if not isinstance(part, (list, tuple)):
            raise Misfit(f"a value of shape {shape}", value)
        size = shape[axis]
        if size is None and not ragged:
            size = lengths.setdefault(axis, len(part))
        if size is not None and len(part) != size:
            raise Misfit(f"a value of shape {shape}", value)
        return tuple([walk(inner, axis + 1) for inner in part])

    return walk(value, 0)


def integer(value: object, dtype: Any) -> int | bool:
    """A whole number that fits an integer dtype."""
    value = plain(value)
    low, high = integer_bounds(dtype)
    if not isinstance(value, int):
        raise Misfit(f"a whole number for {dtype_name(dtype)}", value)
    if not low <= value <= high:
        raise Misfit(f"a number from {low} to {high}, as {dtype_name(dtype)} holds", value)
    return bool(value) if dtype_name(dtype) == "bool" else int(value)


def real(value: object, dtype: Any, *, exact: bool) -> float:
    """A number that a float dtype holds after rounding, or as it stands where `exact`."""
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Misfit(f"a number for {dtype_name(dtype)}", value)
    given = value
    try:
        value = float(value)
    except OverflowError:
        raise Misfit(f"a number that {dtype_name(dtype)} can hold", given) from None
    number = rounded(value, dtype)
    if abs(value) != float("inf") and abs(number) == float("inf"):
        raise Misfit(f"a number of at most ±{float_maximum(dtype)!r}, as {dtype_name(dtype)} holds", given)
    survives = given == held(value, dtype) or given != given
    if not survives and exact:
        raise Misfit(f'a number that {dtype_name(dtype)} holds exactly, as rounding="exact" asks', given)
    if not survives and isinstance(given, int) and abs(given) > _WHOLE_IN_FLOAT32:
        raise Misfit(f"a whole number that survives {dtype_name(dtype)}", given)
    return number


def held(value: float, dtype: Any) -> float:
    """The number that is stored, with all its digits."""
    name = dtype_name(dtype)
    return float(np.dtype("float32" if name == "bfloat16" else name).type(rounded(value, dtype)))


def element(value: object, dtype: Any) -> Any:
    """One element of a tensor, as its dtype holds it."""
    name = dtype_name(dtype)
    if name.startswith(("bool", "int", "uint")):
        return integer(value, dtype)
    if not name.startswith("complex"):
        return real(value, dtype, exact=False)
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, complex)):
        raise Misfit(f"a number for {name}", value)
    part = np.dtype("float32" if name == "complex64" else "float64")
    return complex(real(value.real, part, exact=False), real(value.imag, part, exact=False))


def octets(value: object) -> bytes:
    """A byte string."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise Misfit('bytes, such as b"..."; text belongs into a Text feature', value)


def text(value: object) -> str:
    """A text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise Misfit("a str; bytes belong into a Bytes feature", value)
    if not is_unicode(value):
        raise Misfit("text without lone surrogates: UTF-8 cannot hold them", value)
    return str(value)


def is_unicode(value: str) -> bool:
    """Whether UTF-8 can hold a text: a lone surrogate has no bytes."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def plain(value: object) -> object:
    """A NumPy scalar as the Python number that it is."""
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if not isinstance(value, np.generic):
        return value
    if isinstance(value, (np.bool_, np.integer, np.floating, np.complexfloating)):
        return value.item()
    return float(value) if value.dtype.name == "bfloat16" else value
