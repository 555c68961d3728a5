"""Columns as Arrow arrays, sharing memory wherever Arrow can hold it as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from rekord.codec.columns import Array, Column, Ragged, SparseColumn, Strings, Valid

_MOST_LIST_SIZE = (1 << 31) - 1
"""Of a fixed-size list in Arrow. A schema may declare more, and then records do not match it."""


def column_to_arrow(column: Column) -> Any:
    """Any column of a batch."""
    return array_to_arrow(column, None) if isinstance(column, np.ndarray) else column.to_arrow()


def array_to_arrow(values: Array, valid: Valid | None) -> Any:
    """A dense array; its inner dimensions become fixed-size lists."""
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)  # Arrow has no bfloat16; every value survives
    if values.dtype.kind == "c":  # nor complex numbers: pairs, as they lie in memory
        values = np.ascontiguousarray(values)[..., np.newaxis].view(values.real.dtype)
    flat = np.ascontiguousarray(values).reshape(-1)
    if values.ndim == 1:
        return pa.array(flat, mask=None if valid is None else ~valid)
    return _listed(pa.array(flat), values.shape, valid)


def _listed(out: Any, shape: tuple[int, ...], valid: Valid | None) -> Any:
    """Flat values as fixed-size lists of the inner dimensions of `shape`; `valid` is of the rows."""
    for axis in range(len(shape) - 1, 0, -1):
        bitmap = _bitmap(valid) if axis == 1 else None
        rows, size = int(np.prod(shape[:axis])), shape[axis]
        if size <= _MOST_LIST_SIZE:
            out = pa.Array.from_buffers(pa.list_(out.type, size), rows, [bitmap], children=[out])
        else:
            ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int64) * size)
            out = pa.Array.from_buffers(pa.large_list(out.type), rows, [bitmap, ends], children=[out])
    return out


def strings_to_arrow(strings: Strings) -> Any:
    """`large_binary` or `large_string`; a row shape becomes fixed-size lists."""
    ends, data = strings.packed()
    kind = pa.large_string() if strings.text else pa.large_binary()
    # With a row shape, whole rows are missing, not strings.
    valid = None if strings.row_shape else strings.valid
    buffers = [_bitmap(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    out = pa.Array.from_buffers(kind, len(ends) - 1, buffers)
    return _listed(out, (len(strings), *strings.row_shape), strings.valid)


def ragged_to_arrow(ragged: Ragged) -> Any:
    """`large_list` of whatever the values are; where the varying dimension is not the first, of flat values."""
    inner = column_to_arrow(ragged.values)
    kind = pa.large_list(inner.type)
    buffers = [_bitmap(ragged.valid), pa.py_buffer(np.ascontiguousarray(ragged.offsets))]
    return pa.Array.from_buffers(kind, len(ragged), buffers, children=[inner])


def sparse_to_arrow(sparse: SparseColumn) -> Any:
    """A struct of two lists."""
    parts = [ragged_to_arrow(sparse.indices), ragged_to_arrow(sparse.values)]
    mask = None if sparse.valid is None else pa.array(~sparse.valid)
    return pa.StructArray.from_arrays(parts, ["indices", "values"], mask=mask)


def _bitmap(valid: Valid | None) -> Any:
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
