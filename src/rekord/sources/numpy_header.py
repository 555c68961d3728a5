"""The header of a .npy file: what it says of its array, held against the bytes that there are."""

from __future__ import annotations

import ast
import math
import re
import warnings
from typing import Any, NamedTuple

import numpy as np

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.files import damaged

_MAGIC = b"\x93NUMPY"
_MOST_HEADER_BYTES = 10_000
_DTYPE = re.compile(r"[<>|=]?[a-zA-Z?][0-9]{0,9}(?:\[[0-9a-zA-Z]{1,12}\])?")


class Header(NamedTuple):
    """What a .npy file says of its array, held against the bytes that there are."""

    dtype: Any
    rows: int
    row_shape: tuple[int, ...]
    offset: int  # of the first row

    @property
    def row_bytes(self) -> int:
        return int(self.dtype.itemsize) * math.prod(self.row_shape)


def read_header(stream: Any, size_bytes: int, path: str, column: str) -> Header:
    """The header of the array for `column`, in a file of `size_bytes`. Refuses what holds no rows of values."""
    parsed = _parsed(stream)
    if parsed is None:
        raise damaged(path, "NumPy file", f"no header of an array for `{column[:60]}`")
    dtype, by_columns, shape, offset = parsed
    if dtype.hasobject or dtype.names is not None or dtype.kind not in "biufcSU" or _is_long(dtype):
        do = "save an array of numbers or texts"
        raise _strange(path, column, f"an array of {shown(str(dtype))}", do)
    if not shape:
        raise _strange(
            path, column, "an array without dimensions", "save it with the rows first: array[None]"
        )
    if by_columns and len(shape) > 1:
        do = "np.save(path, np.ascontiguousarray(array))"
        raise _strange(path, column, "an array that is stored column by column", do)
    header = Header(dtype, shape[0], shape[1:], offset)
    if not header.row_bytes:
        found = f"an array of rows of shape {header.row_shape}, without elements"
        raise _strange(path, column, found[:80], "leave the array out")
    if header.rows * header.row_bytes > size_bytes - offset:
        needed = header.rows * header.row_bytes
        found = f"{size_bytes - offset:,} bytes of data, where the header of `{column[:60]}` says {needed:,}"
        raise damaged(path, "NumPy file", found)
    return header


def _is_long(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are of a width that only some machines have."""
    return (dtype.kind == "f" and dtype.itemsize > 8) or (dtype.kind == "c" and dtype.itemsize > 16)


def _parsed(stream: Any) -> tuple[np.dtype[Any], bool, tuple[int, ...], int] | None:
    """dtype, whether columns come first, shape, and where data begins; None where this is no header.

    NumPy's own parser runs a tokenizer over headers that are not as they should be, and lets its errors out.
    """
    front = stream.read(8)
    if front not in [_MAGIC + bytes([version, 0]) for version in (1, 2, 3)]:
        return None
    length_bytes = stream.read(2 if front[6] == 1 else 4)
    length = int.from_bytes(length_bytes, "little")
    if length > _MOST_HEADER_BYTES:
        return None
    text = stream.read(length)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            members = ast.literal_eval(text.decode("utf-8" if front[6] == 3 else "latin-1").strip())
            descr, by_columns, shape = (members[name] for name in ("descr", "fortran_order", "shape"))
            if not isinstance(descr, list) and not _DTYPE.fullmatch(descr):
                return None
            dtype = np.dtype(descr)
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError, OverflowError):
        return None
    sizes = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if len(text) != length or not sizes or type(by_columns) is not bool:
        return None
    return dtype, by_columns, shape, 8 + len(length_bytes) + length


def _strange(path: str, column: str, found: str, do: str) -> RekordError:
    return error(
        "X525",
        f"`{column[:60]}` is {found}",
        location=Location(path=path, feature=column[:60]),
        expected="an array of numbers, bools or texts, with the rows first",
        found=found,
        do=do,
    )
