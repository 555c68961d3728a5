"""Arrow's arrays as columns to be encoded, without copying where they already lie as records need them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rekord.codec.columns import Optional, Ragged
from rekord.codec.slots import PackedStrings
from rekord.schema import Feature


def is_arrow(value: Any) -> bool:
    """Whether this is a table, a batch or an array of pyarrow; asked without importing it."""
    pa = sys.modules.get("pyarrow")
    return pa is not None and isinstance(value, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray))


def arrow_batches(table: Any) -> list[Any]:
    """A table as batches whose columns each lie in one piece."""
    return table.to_batches() if hasattr(table, "to_batches") else [table]


def from_arrow(array: Any, feature: Feature) -> Any:
    """A column as NumPy arrays and rekord's own columns; what these cannot express, as a list of rows."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if _is_string(array.type):
        return _strings(array)
    if _is_number(array.type):
        return _numbers(array)
    lists = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if lists and feature.shape[:1] == (None,) and not getattr(feature, "partitions", ()):
        return _lists(array)
    if pa.types.is_fixed_size_list(array.type) and not array.null_count:
        dense = _fixed(array)
        if dense is not None:
            return dense
    return array.to_pylist()


def _is_string(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _valid(array: Any) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def _numbers(array: Any) -> Any:
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False)
    valid = _valid(array)
    if not valid.any():
        return [None] * len(array)
    filled = array.fill_null(array[int(np.argmax(valid))])
    return Optional(filled.to_numpy(zero_copy_only=False), valid)


def _strings(array: Any) -> PackedStrings:
    _, ends, data = array.buffers()
    narrow = str(array.type) in ("string", "binary")
    return PackedStrings(
        _offsets(ends, np.int32 if narrow else np.int64, array),
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8),
        valid=_valid(array),
        rows=_Rows(array),
    )


def _offsets(buffer: Any, dtype: Any, array: Any) -> Any:
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]


def _lists(array: Any) -> Any:
    """Lists whose elements lie in one array, or end to end."""
    import pyarrow as pa

    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    values, valid = array.values, _valid(array)
    if values.null_count:
        return array.to_pylist()
    if valid is not None and not _empty_where_missing(offsets, valid):
        return array.to_pylist()
    if _is_number(values.type):
        return Ragged(values.to_numpy(zero_copy_only=False), offsets, valid=valid)
    if _is_string(values.type):
        inner = _strings(values)
        return PackedStrings(inner.ends, inner.data, offsets=offsets, valid=valid, rows=_Rows(array))
    if pa.types.is_fixed_size_list(values.type):
        dense = _fixed(values)
        if dense is not None:
            return Ragged(dense, offsets, valid=valid)
    return array.to_pylist()


def _empty_where_missing(offsets: Any, valid: Any) -> bool:
    return not bool((np.diff(offsets)[~valid] != 0).any())


def _fixed(array: Any) -> Any:
    """Nested lists of fixed sizes as one array of so many dimensions; None where they hold anything else."""
    import pyarrow as pa

    sizes = [len(array)]
    while pa.types.is_fixed_size_list(array.type):
        if array.null_count:
            return None
        sizes.append(array.type.list_size)
        array = array.flatten()
    if array.null_count or not _is_number(array.type):
        return None
    return array.to_numpy(zero_copy_only=False).reshape(sizes)


class _Rows:
    """The rows of an Arrow array, made into Python values only when they are looked at."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Any:
        return iter(self._array.to_pylist())
