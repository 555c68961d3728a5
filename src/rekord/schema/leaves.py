"""One value of a row taken apart: what its elements are, and how they are shaped."""

from __future__ import annotations

import datetime
import decimal
import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

_FAMILIES = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex", "U": "text", "S": "bytes"}
_PYTHON: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "float"),
    (complex, "complex"),
    (str, "text"),
    ((bytes, bytearray, memoryview), "bytes"),
)
_DEEPEST = 32

HOLE = object()
"""Stands for a None inside a list, since `strange` is None where nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """The elements of a value. `shape` is None where its parts are of different shapes.

    `strange` is an element that no feature holds, and `remedy` what to do about it.
    """

    families: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = ()
    dtype: Any = None  # that NumPy gave the value; Python's own numbers have none
    ints: tuple[int, int] | None = None  # the least and the greatest
    digits: int = 0  # binary ones that the longest of them needs
    reals: tuple[float, float] | None = None  # of finite floats
    doubles: Any = None  # float64 values
    strange: Any = None
    remedy: str = ""


def leaves_of(value: Any) -> Leaves:
    """What one value of a row is made of."""
    family = _python_family(value)
    if family is not None:
        return python_leaves([value], (), (family,))
    if isinstance(value, (np.ndarray, np.generic)):
        return _of_array(np.asarray(value))
    if isinstance(value, (list, tuple)) or _is_sequence(value):
        return _of_list(value)
    if hasattr(value, "__array__") and not isinstance(value, (type, os.PathLike)) and not _is_picture(value):
        try:
            return _of_array(np.asarray(value.__array__()))
        except (
            Exception
        ):  # a tensor on another device, one that wants its gradient: what it raises is its own
            return _strange(value)
    return _strange(value)


def _python_family(value: Any) -> str | None:
    if isinstance(value, np.generic) and not isinstance(value, (np.str_, np.bytes_)):
        return None  # np.float64 is a float to Python, but knows its dtype
    return next((family for kind, family in _PYTHON if isinstance(value, kind)), None)


def _of_array(array: Any) -> Leaves:
    dtype = array.dtype
    if dtype.name == "bfloat16":
        return Leaves(families=("float",), shape=array.shape, dtype=dtype)
    if dtype.kind == "O":
        return _of_list(array.tolist()) if array.ndim else leaves_of(array[()])
    family = _FAMILIES.get(dtype.kind)
    if family is None or dtype.name in ("float128", "float96", "complex256", "complex192"):
        return _strange(array.ravel()[0] if array.size else array, dtype.name)
    if family in ("text", "bytes"):
        return Leaves(families=(family,), shape=array.shape)
    ints = reals = None
    digits = 0
    if family == "int" and array.size:
        ints = int(array.min()), int(array.max())
        digits = _digits(array)
    if family == "float":
        finite = array[np.isfinite(array)]
        reals = (float(finite.min()), float(finite.max())) if finite.size else None
    doubles = array if dtype.name == "float64" else None
    return Leaves(
        families=(family,),
        shape=array.shape,
        dtype=dtype,
        ints=ints,
        digits=digits,
        reals=reals,
        doubles=doubles,
    )


def _of_list(value: Sequence[Any]) -> Leaves:
    flat: list[Any] = []
    shape = _flatten(value, flat, 0)
    if shape is not None and flat and all(isinstance(part, np.ndarray) for part in flat):
        shape = (*shape, *flat[0].shape) if len({part.shape for part in flat}) == 1 else None
        if shape is not None:
            return _of_array(np.concatenate([part.ravel() for part in flat]).reshape(shape))
    if shape is None:
        return Leaves(shape=None)
    kinds = {type(part): part for part in flat}
    families = {}
    for kind, part in kinds.items():
        family = _python_family(part)
        if family is None:
            inner = leaves_of(part) if isinstance(part, np.generic) else _strange(part)
            if inner.strange is not None:
                return inner
            return _of_array(np.asarray(flat).reshape(shape)) if len(kinds) == 1 else _mixed(flat, shape)
        families[family] = kind
    return python_leaves(flat, shape, tuple(families))


def _mixed(flat: list[Any], shape: tuple[int, ...]) -> Leaves:
    """NumPy's scalars beside others: as Python's own, which lose no value."""
    plain = [part.item() if isinstance(part, np.generic) else part for part in flat]
    strange = [part for part in plain if _python_family(part) is None]
    if strange:
        return _strange(strange[0])
    return python_leaves(plain, shape, tuple(dict.fromkeys(_python_family(part) or "" for part in plain)))


def _flatten(value: Sequence[Any], out: list[Any], depth: int) -> tuple[int, ...] | None:
    """The shape of nested lists, whose elements go to `out`; None where it is uneven."""
    shape: tuple[int, ...] | None = None
    for part in value:
        if isinstance(part, (list, tuple)) or (depth == 0 and _is_sequence(part)):
            if depth >= _DEEPEST:
                return None
            inner = _flatten(part, out, depth + 1)
        else:
            inner = ()
            out.append(part)
        if inner is None or (shape is not None and inner != shape):
            return None
        shape = inner
    return (len(value), *(shape or ()))


def python_leaves(flat: list[Any], shape: tuple[int, ...], families: tuple[str, ...]) -> Leaves:
    """The elements of a value that are Python's own, of these families."""
    ints = reals = doubles = None
    digits = 0
    if "int" in families:
        whole = [n for n in flat if isinstance(n, int)]
        ints = min(whole), max(whole)
        digits = max([(n // (n & -n)).bit_length() if n else 0 for n in map(abs, whole)])
    if "float" in families:
        doubles = [n for n in flat if isinstance(n, float)]
        finite = [n for n in doubles if isfinite(n)]
        reals = (min(finite), max(finite)) if finite else None
    return Leaves(families=families, shape=shape, ints=ints, digits=digits, reals=reals, doubles=doubles)


def _digits(whole: Any) -> int:
    """How many binary digits the longest number has, zeros at its end not counted."""
    if whole.dtype.kind == "u":
        magnitudes = whole.astype(np.uint64).ravel()
    else:
        bits = whole.astype(np.int64).ravel().view(np.uint64)
        magnitudes = np.where(bits >> np.uint64(63), ~bits + np.uint64(1), bits)
    magnitudes = magnitudes[magnitudes > 0]
    if not magnitudes.size:
        return 0
    return int((magnitudes // (magnitudes & (~magnitudes + np.uint64(1)))).max()).bit_length()


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _is_picture(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "PIL"


def _strange(value: Any, dtype: str = "") -> Leaves:
    if value is None:
        remedy = "leave the hole out of the list, or make the whole value None"
    elif isinstance(value, (datetime.date, datetime.time, datetime.timedelta)) or dtype.startswith(
        ("datetime64", "timedelta64")
    ):
        remedy = "store seconds as an int, or text: value.isoformat()"
    elif isinstance(value, decimal.Decimal):
        remedy = "store it as float(value), as text, or as an int of the smallest unit"
    elif isinstance(value, (set, frozenset)):
        remedy = "give it an order: sorted(value)"
    elif isinstance(value, os.PathLike):
        remedy = "give the bytes of the file: path.read_bytes(), or declare rk.Image() for the column"
    elif _is_picture(value):
        remedy = "give the bytes of the image file, or declare rk.Image(format=…) and give an array"
    else:
        remedy = "turn it into numbers, text or bytes first"
    return Leaves(strange=HOLE if value is None else value, remedy=remedy)
