"""The element types that features may declare, by their one canonical name."""

from __future__ import annotations

import struct
from importlib import import_module
from typing import Any

import numpy as np

from rekord.schema.refuse import refuse, shown

INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "bfloat16")
TENSORS = (*INTEGERS, *FLOATS, "float64", "complex64", "complex128")

_SHORT = {np.dtype(name).str[1:]: name for name in TENSORS if name != "bfloat16"}
_BFLOAT16_MAX = 3.3895313892515355e38
_MAXIMA = {
    "float16": 65504.0,
    "bfloat16": _BFLOAT16_MAX,
    "float32": float(np.finfo(np.float32).max),
    "float64": float(np.finfo(np.float64).max),
}


def checked_dtype(value: object, allowed: tuple[str, ...], owner: str, column: str | None) -> Any:
    """The NumPy dtype that `value` names, if `owner` can hold it.

    bfloat16 is NumPy's only with ml_dtypes installed; without it, the name itself is kept.
    """
    name = _name_of(value)
    if name not in allowed:
        elsewhere = name in TENSORS and owner != "Tensor"
        raise refuse(
            "S104",
            f"{owner} cannot hold dtype {shown(value)}",
            column=column,
            expected="one of " + ", ".join(allowed),
            found=shown(value),
            do=f'Tensor("{name}", shape=...) keeps every bit' if elsewhere else "name one of these dtypes",
        )
    if name != "bfloat16":
        return np.dtype(name).newbyteorder("<")
    try:
        return np.dtype(import_module("ml_dtypes").bfloat16)
    except ImportError:
        return name


def dtype_name(dtype: Any) -> str:
    """The canonical name of what `checked_dtype` gave."""
    return dtype if isinstance(dtype, str) else str(dtype.name)


def _name_of(value: object) -> str | None:
    # Strings are looked up, never handed to NumPy: it warns about some and builds structures from others.
    if isinstance(value, str):
        bare = value[1:] if value[:1] in ("<", "|", "=") else value
        return bare if bare in TENSORS else _SHORT.get(bare)
    if isinstance(value, type):
        try:
            value = np.dtype(value)
        except Exception:  # what NumPy raises for a strange class is not ours to know
            return None
    if isinstance(value, np.dtype):
        return None if value.byteorder == ">" else str(value.name)
    name = getattr(value, "name", None)  # tf.int64 and its like
    return name if isinstance(name, str) else None


def integer_bounds(dtype: Any) -> tuple[int, int]:
    """The least and the greatest number of an integer dtype; 0 and 1 for bool."""
    if dtype_name(dtype) == "bool":
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def float_maximum(dtype: Any) -> float:
    """The greatest finite number of a real float dtype."""
    return _MAXIMA[dtype_name(dtype)]


def rounded(value: float, dtype: Any) -> float:
    """`value` in a float dtype, written with the fewest digits that name it there: 0.1 stays 0.1.

    A finite value that the dtype cannot hold becomes infinite; the caller says whether that is refused.
    """
    name = dtype_name(dtype)
    if value != value or value in (float("inf"), float("-inf")):
        return value
    with np.errstate(over="ignore"):
        if name == "bfloat16":
            return float(str(np.float32(_bfloat16(float(np.float32(value))))))
        return float(str(np.dtype(name).type(value)))


def _bfloat16(value: float) -> float:
    """The upper half of a float32, rounded to nearest even: needs no ml_dtypes."""
    if value in (float("inf"), float("-inf")):
        return value
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
