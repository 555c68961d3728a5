"""The forms of columns that are more than one tensor: named tuples, which torch and JAX both look into."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from rekord.codec.columns import Optional, Ragged, SparseColumn
from rekord.errors import error

Array: TypeAlias = "np.ndarray[Any, Any]"

_NUMBERS = "biufc"


class RaggedTensors(NamedTuple):
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`; `valid` is None where none is missing.

    Where not the first dimension of a row varies, a row is to be reshaped as the schema declares it.
    """

    values: Any
    offsets: Any
    valid: Any = None


class MaskedTensors(NamedTuple):
    """Rows of one shape, of which only those are there that `valid` is True of."""

    values: Any
    valid: Any


class SparseTensors(NamedTuple):
    """Sparse vectors: those of row i are `indices` and `values` from `offsets[i]` to `offsets[i + 1]`."""

    indices: Any
    values: Any
    offsets: Any
    valid: Any = None


def converted(column: Any, tensor: Callable[[Array], Any]) -> Any:
    """A column with tensors in place of its arrays of numbers; of pictures of different sizes, a list of tensors.

    Strings, and what is no column, stay as they are.
    """
    if isinstance(column, np.ndarray):
        return _array(column, tensor)
    if isinstance(column, Optional):
        return MaskedTensors(tensor(column.values), tensor(column.valid))
    if isinstance(column, Ragged):
        valid = None if column.valid is None else tensor(column.valid)
        return RaggedTensors(converted(column.values, tensor), tensor(column.offsets), valid)
    if isinstance(column, SparseColumn):
        valid = None if column.valid is None else tensor(column.valid)
        indices, values = column.indices.values, column.values.values
        return SparseTensors(
            converted(indices, tensor), converted(values, tensor), tensor(column.values.offsets), valid
        )
    return column


def _array(array: Array, tensor: Callable[[Array], Any]) -> Any:
    if is_number(array):
        return tensor(array)
    return [tensor(value) for value in array] if is_pictures(array) else array


def is_pictures(column: Any) -> bool:
    """Whether these are pictures of different sizes: an array of numbers for each row."""
    if not isinstance(column, np.ndarray) or column.dtype != object or column.ndim != 1:
        return False
    return all(isinstance(value, np.ndarray) and is_number(value) for value in column)


def is_number(array: Array) -> bool:
    """Whether these are numbers or truth values, and no objects, texts or times."""
    # bfloat16 is of kind V for NumPy, which does not know it.
    return array.dtype.kind in _NUMBERS or array.dtype.name == "bfloat16"


def framework(name: str, call: str, extra: str) -> Any:
    """A framework's module, imported now; its absence names the extra to install."""
    try:
        return import_module(name)
    except ImportError as failure:
        raise error(
            "U602",
            f"{call} needs {name}, which is not installed",
            expected=f"the package {name}",
            found=str(failure)[:60],
            do=f"pip install 'rekord[{extra}]'",
        ) from failure
