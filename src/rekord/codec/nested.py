"""Values as people give them, scalars, nested lists and arrays, brought to one array of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from rekord.codec.columns import Array
from rekord.codec.unfit import Unfit, described

Shape: TypeAlias = "tuple[int | None, ...]"

_TEXT = (str, bytes, bytearray)


def is_text(value: object) -> bool:
    """Whether this is one text or byte string: a value by itself, although it has a length."""
    return isinstance(value, _TEXT)


def as_array(value: Any) -> Array | None:
    """What holds an array already, as that array; None for anything else."""
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            if np.ma.is_masked(value):
                raise Unfit(
                    "E302",
                    "is a masked array with values masked out",
                    expected="values in every place",
                    found=described(value),
                    do="value.filled(...) says what stands in the masked places",
                )
            return np.asarray(value.data)
        return np.asarray(value)
    if isinstance(value, (np.generic, memoryview)) or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__array__") and not isinstance(value, type):
        return np.asarray(value.__array__())
    return None


def sequence(value: Any) -> Sequence[Any] | None:
    """The parts of a list, or of something that is as good as one; None for what stands for itself."""
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, Sequence) and not is_text(value) and not isinstance(value, memoryview):
        return list(value)
    return None


def flat(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """All leaves of nested lists, in order, and their shape; a leaf may be anything that is no list."""
    array = None if is_text(value) else as_array(value)
    if array is not None:
        return array.ravel().tolist() if array.dtype.kind in "OSUT" else list(array.ravel()), array.shape
    parts = sequence(value)
    if parts is None:
        return [value], ()
    leaves: list[Any] = []
    first: tuple[int, ...] | None = None
    for i, part in enumerate(parts):
        inner, shape = flat(part)
        if first is None:
            first = shape
        elif shape != first:
            raise Unfit(
                "E308",
                "has parts of different shapes",
                expected=f"parts of one shape, such as the first: {first}",
                found=f"shape {shape} in part {i:,}",
                do="pad or cut them to one shape, or declare partitions= for ragged values",
            )
        leaves += inner
    return leaves, (len(parts), *(first or ()))


def check_shape(given: tuple[int, ...], declared: Shape, value: Any) -> None:
    """Refuse a value of another shape than the declared one."""
    if len(given) == len(declared):
        wrong = [i for i, size in enumerate(declared) if size is not None and size != given[i]]
        if not wrong:
            return
        if len(declared) == 1:
            raise Unfit(
                "E307",
                f"has {given[0]:,} {'value' if given[0] == 1 else 'values'}, the schema says {declared[0]:,}",
                expected=f"shape {declared}",
                found=f"shape {given}",
                do="give so many values, or declare shape=(None,) for a varying number",
            )
    elif _is_empty_prefix(given, declared):
        return
    raise Unfit(
        "E306",
        "has another shape than the schema says",
        expected=f"shape {declared}",
        found=f"shape {given}" if given else f"a single value: {described(value)}"[:60],
        do=_shape_remedy(given, declared),
    )


def _is_empty_prefix(given: tuple[int, ...], declared: Shape) -> bool:
    # `[]` does not say how wide its rows would have been.
    if not given or given[-1] != 0 or len(given) > len(declared):
        return False
    return all(want is None or want == size for want, size in zip(declared, given, strict=False))


def _shape_remedy(given: tuple[int, ...], declared: Shape) -> str:
    if prod(given) == 1 and not declared:
        return f"give the value itself, or declare shape={given}"
    if not given and declared == (None,):
        return "give a list, [value], or declare shape=() for one value"
    if (
        len(given) != len(declared)
        and None not in declared
        and prod(given) == prod(size or 0 for size in declared)
    ):
        return f"value.reshape({declared})"
    return f"give values of this shape, or declare shape={given}"
