"""Batches, and their columns other than arrays: strings, ragged rows, optional values, sparse vectors.

Libraries that map functions over nested values (jax, torch, optree for Keras) know dicts by their exact type, so
`ColumnBatch` is registered with those that are loaded: a batch stays as usable as a plain dict there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.errors import error
from rekord.report.formatting import format_count
from rekord.report.notebook import never_raises, render_fragment
from rekord.schema import Feature
from rekord.schema.schema import shorten_name

if TYPE_CHECKING:
    import scipy.sparse


Array: TypeAlias = npt.NDArray[Any]
Offsets: TypeAlias = npt.NDArray[np.int64]
Validity: TypeAlias = npt.NDArray[np.bool_]


class _Rows:
    """Indexing and iteration by row, for columns that have a length and a `_row`."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def _row(self, row: int) -> Any:
        raise NotImplementedError

    def __getitem__(self, index: int | slice) -> Any:
        rows = len(self)
        if isinstance(index, slice):
            return [self._row(i) for i in range(*index.indices(rows))]
        row = index + rows if index < 0 else index
        if not 0 <= row < rows:
            raise IndexError(f"row {index} of {rows}")
        return self._row(row)

    def __iter__(self) -> Iterator[Any]:
        return (self._row(i) for i in range(len(self)))

    def tolist(self) -> list[Any]:
        """All rows as Python values, None for missing rows."""
        return [_to_python(row) for row in self]


class Strings(_Rows):
    """Byte strings or texts, one per row, decoded only when accessed.

    `[i]` is bytes (or str), None for a missing row; with a `row_shape`, an object array of that shape.
    """

    __slots__ = ("_buffers", "_column", "_rows", "row_shape", "text", "valid")

    _column: _core.StringColumn
    _buffers: tuple[Offsets, Array]

    def __init__(
        self,
        column: _core.StringColumn,
        text: bool = False,  # by position: keywords make the call half as slow again
        *,
        valid: Validity | None = None,
        row_shape: tuple[int, ...] = (),
        rows: int | None = None,
    ) -> None:
        self._column = column
        self._rows = rows  # needed if a row has no strings
        self.text = text
        self.valid = valid
        self.row_shape = row_shape

    @classmethod
    def of(cls, values: list[bytes] | list[str]) -> Strings:
        """A column of these values, all bytes or all str."""
        text = bool(values) and isinstance(values[0], str)
        stored = [value.encode() if isinstance(value, str) else value for value in values]
        return cls(_core.strings(stored), text=text)

    @property
    def nbytes(self) -> int:
        """The total size of the strings in bytes."""
        return len(self._buffers[1]) if hasattr(self, "_buffers") else self._column.total_bytes

    @property
    def column(self) -> _core.StringColumn:
        """The strings as the core holds them."""
        return self._column

    def __len__(self) -> int:
        if self._rows is not None or self.row_shape == ():
            return len(self._column) if self._rows is None else self._rows
        return len(self._column) // self._per_row()

    def _row(self, row: int) -> Any:
        if self.valid is not None and not self.valid[row]:
            return None
        if self.row_shape == ():
            return self._column.text(row) if self.text else self._column.bytes(row)
        count = self._per_row()
        return _to_object_array(self._flat(row * count, (row + 1) * count)).reshape(self.row_shape)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """All rows as Python values."""
        if self.row_shape:
            return [None if value is None else value.tolist() for value in self[:]]
        values = self._flat(0, len(self._column))
        if self.valid is None:
            return values
        return [value if there else None for value, there in zip(values, self.valid.tolist(), strict=True)]

    def to_numpy(self) -> Array:
        """All rows as an object array."""
        out = _to_object_array(self._flat(0, len(self._column))).reshape(len(self), *self.row_shape)
        if self.valid is not None:
            out[~self.valid] = None
        return out

    def to_arrow(self) -> pa.Array:
        """All rows as an Arrow `large_binary` or `large_string` array, zero-copy if they are contiguous."""
        ends, data = self.packed()
        kind = pa.large_string() if self.text else pa.large_binary()
        # With a row shape, whole rows are missing, not strings.
        valid = None if self.row_shape else self.valid
        buffers = [_to_arrow_bitmap(valid), pa.py_buffer(ends), pa.py_buffer(data)]
        out = pa.Array.from_buffers(kind, len(ends) - 1, buffers)
        return _to_fixed_size_lists(out, (len(self), *self.row_shape), self.valid)

    def packed(self) -> tuple[Offsets, Array]:
        """(ends, data): the concatenated strings; string i is data[ends[i]:ends[i + 1]]."""
        if hasattr(self, "_buffers"):
            return self._buffers
        column = self._column if self._column.packed else self._column.pack(_core.Pool(0))
        return column.buffers()

    def _per_row(self) -> int:
        return int(np.prod(self.row_shape))

    def _flat(self, begin: int, end: int) -> list[Any]:
        return self._column.list_text(begin, end) if self.text else self._column.list_bytes(begin, end)

    def __repr__(self) -> str:
        kind = "text" if self.text else "bytes"
        return f"Strings({len(self):,} rows of {kind}, {self.nbytes:,} bytes)"

    def __getattr__(self, name: str) -> Any:
        # Only for a column from another process, once: its strings are created on first access.
        if name != "_column":
            raise AttributeError(f"'Strings' object has no attribute {name!r}")
        ends, data = self._buffers
        bounds, whole = ends.tolist(), data.tobytes()
        self._column = _core.strings([whole[begin:end] for begin, end in pairwise(bounds)])
        return self._column

    def __reduce__(self) -> tuple[Any, ...]:
        # Two buffers, which protocol 5 can transfer out of band, instead of one object per string.
        ends, data = self.packed()
        return _rebuild_strings, (ends, data, self.text, self.valid, self.row_shape, len(self))


def _rebuild_strings(
    ends: Offsets, data: Array, text: bool, valid: Validity | None, row_shape: tuple[int, ...], rows: int
) -> Strings:
    out = Strings.__new__(Strings)
    out._buffers = ends, data
    out._rows, out.text, out.valid, out.row_shape = rows, text, valid, row_shape
    return out


class Ragged(_Rows):
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`.

    `values` is an array, a `Strings`, or a nested `Ragged` or `SparseColumn`. `valid` is False for missing rows; None
    if no row is missing. `row_shape` is the shape of one row, with one -1, if its varying dimension is not the first.
    """

    __slots__ = ("offsets", "row_shape", "valid", "values")

    def __init__(
        self,
        values: Array | Strings | Ragged | SparseColumn,
        offsets: Offsets,
        *,
        valid: Validity | None = None,
        row_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.values = values
        self.offsets = offsets
        self.valid = valid
        self.row_shape = row_shape

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Offsets:
        """The number of values in each row."""
        return np.diff(self.offsets)

    def _row(self, row: int) -> Any:
        if self.valid is not None and not self.valid[row]:
            return None
        part = self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]
        if self.row_shape is None:
            return part
        return (part if isinstance(part, np.ndarray) else _to_object_array(part)).reshape(self.row_shape)

    def to_padded(self, pad: npt.ArrayLike | None = None, length: int | None = None) -> Array:
        """A dense array of all rows, padded with `pad` to the longest row, or padded and truncated to `length`.

        `pad` defaults to 0, or to b"" or "" for strings. Missing rows are all padding.
        """
        if pad is None:
            pad = self._default_pad()
        if self.row_shape is not None:
            return self._pad_inner_dimension(pad, length)
        inner = self._dense_values(pad)
        lengths = self.lengths if self.valid is None else np.where(self.valid, self.lengths, 0)
        width = length if length is not None else int(lengths.max(initial=0))
        out = np.full((len(self), width, *inner.shape[1:]), pad, inner.dtype)
        kept = np.minimum(lengths, width)
        rows = np.repeat(np.arange(len(self)), kept)
        columns = np.arange(int(kept.sum())) - np.repeat(np.cumsum(kept) - kept, kept)
        out[rows, columns] = inner[np.repeat(self.offsets[:-1], kept) + columns]
        return out

    def _default_pad(self) -> Any:
        if isinstance(self.values, Ragged):
            return self.values._default_pad()
        if isinstance(self.values, Strings):
            return "" if self.values.text else b""
        return 0

    def _dense_values(self, pad: Any) -> Array:
        if isinstance(self.values, Ragged):
            return self.values.to_padded(pad)
        if isinstance(self.values, SparseColumn):
            return self.values.to_dense()
        return self.values.to_numpy() if isinstance(self.values, Strings) else self.values

    def _pad_inner_dimension(self, pad: Any, length: int | None) -> Array:
        assert self.row_shape is not None
        axis = self.row_shape.index(-1)
        known = int(np.prod([size for size in self.row_shape if size != -1]))
        width = length if length is not None else int(self.lengths.max(initial=0)) // max(known, 1)
        shape = [width if size == -1 else size for size in self.row_shape]
        dtype = self.values.dtype if isinstance(self.values, np.ndarray) else np.dtype(object)
        out = np.full((len(self), *shape), pad, dtype)
        for i, row in enumerate(self):
            if row is not None and row.size:
                cut = [slice(None)] * len(shape)
                cut[axis] = slice(0, min(width, row.shape[axis]))
                out[i][tuple(cut)] = row[tuple(cut)]
        return out

    def to_arrow(self) -> pa.Array:
        """All rows as an Arrow `large_list` array; of flat values if the varying dimension is not the first."""
        inner = column_to_arrow(self.values)
        buffers = [_to_arrow_bitmap(self.valid), pa.py_buffer(np.ascontiguousarray(self.offsets))]
        return pa.Array.from_buffers(pa.large_list(inner.type), len(self), buffers, children=[inner])

    def __repr__(self) -> str:
        lengths = self.lengths
        least, most = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
        values = self.values
        span = f"{least:,}" if least == most else f"{least:,} to {most:,}"
        kind = f"{span} {values.dtype} values" if isinstance(values, np.ndarray) else repr(values)
        missing = "" if self.valid is None else f", {len(self) - int(self.valid.sum()):,} missing"
        return f"Ragged({len(self):,} rows of {kind}{missing})"


class Optional(_Rows):
    """A column of one fixed shape in which rows may be missing: `valid` is True for rows with a value."""

    __slots__ = ("valid", "values")

    def __init__(self, values: Array, valid: Validity) -> None:
        self.values = values
        self.valid = valid

    def __len__(self) -> int:
        return len(self.values)

    def _row(self, row: int) -> Any:
        return self.values[row] if self.valid[row] else None

    def tolist(self) -> list[Any]:
        """All rows as Python values, None for missing rows."""
        pairs = zip(self.values.tolist(), self.valid.tolist(), strict=True)
        return [value if there else None for value, there in pairs]

    def fill(self, value: npt.ArrayLike) -> Array:
        """A dense array with `value` for missing rows."""
        out: Array = self.values.copy()
        try:
            given = np.asarray(value)
            same = bool(np.all((given.astype(out.dtype) == given) | (given != given)))
        except (TypeError, ValueError, OverflowError):
            same = False
        if not same:
            raise error(
                "U605",
                f"a column of {out.dtype} cannot be filled with {repr(value)[:60]}",
                expected=f"a value that fits {out.dtype}",
                found=repr(value)[:60],
                do="fill with such a value, or convert the column first",
            )
        out[~self.valid] = value
        return out

    def to_arrow(self) -> pa.Array:
        """All rows as an Arrow array with nulls."""
        return array_to_arrow(self.values, self.valid)

    def __repr__(self) -> str:
        missing = len(self) - int(self.valid.sum())
        shape = self.values.shape[1:]
        inner = f" of shape {shape}" if shape else ""
        return f"Optional({len(self):,} rows, {missing:,} missing, {self.values.dtype}{inner})"


class SparseColumn(_Rows):
    """Vectors of `size` elements, most of them zero: for each row, ascending indices and their values."""

    __slots__ = ("indices", "size", "values")

    def __init__(self, indices: Ragged, values: Ragged, size: int) -> None:
        self.indices = indices
        self.values = values
        self.size = size

    @property
    def valid(self) -> Validity | None:
        """False for missing rows; None if no row is missing."""
        return self.values.valid

    def __len__(self) -> int:
        return len(self.indices)

    def _row(self, row: int) -> Any:
        indices, values = self.indices[row], self.values[row]
        return None if indices is None else (indices, values)

    def to_dense(self) -> Array:
        """An array of `size` columns; missing rows are all zero."""
        values = np.asarray(self.values.values)
        out = np.zeros((len(self), self.size), values.dtype)
        rows = np.repeat(np.arange(len(self)), self.values.lengths)
        out[rows, np.asarray(self.indices.values)] = values
        return out

    def to_arrow(self) -> pa.Array:
        """All rows as an Arrow struct of two lists, `indices` and `values`."""
        parts = [self.indices.to_arrow(), self.values.to_arrow()]
        mask = None if self.valid is None else pa.array(~self.valid)
        return pa.StructArray.from_arrays(parts, ["indices", "values"], mask=mask)

    def to_scipy(self) -> scipy.sparse.csr_array:
        """A SciPy CSR array of `size` columns; missing rows are empty."""
        try:
            from scipy.sparse import csr_array
        except ImportError as failure:
            raise error(
                "U602",
                "to_scipy needs scipy, which is not installed",
                expected="the package scipy",
                found=str(failure)[:60],
                do="pip install 'rekord[balance]'",
            ) from failure
        offsets = self.values.offsets
        inside = slice(int(offsets[0]), int(offsets[-1]))
        values, indices = np.asarray(self.values.values)[inside], np.asarray(self.indices.values)[inside]
        return csr_array((values, indices, offsets - offsets[0]), shape=(len(self), self.size))

    def __repr__(self) -> str:
        return f"SparseColumn({len(self):,} rows of size {self.size:,})"


Column: TypeAlias = "Array | Strings | Ragged | Optional | SparseColumn"
Batch: TypeAlias = "dict[str, Column]"


def _to_object_array(values: list[Any]) -> Array:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _to_python(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_to_python(part) for part in value])
    return value.tolist() if isinstance(value, np.ndarray) else value


_MAX_LIST_SIZE = (1 << 31) - 1
"""The largest fixed-size list in Arrow. A schema may declare more."""


def column_to_arrow(column: Column, feature: Feature | None = None) -> Any:
    """Any column of a batch as an Arrow array; timestamps in the time zone of their feature."""
    array = array_to_arrow(column, None) if isinstance(column, np.ndarray) else column.to_arrow()
    if pa.types.is_null(array.type) and feature is not None and isinstance(feature.dtype, np.dtype):
        # No row has an array: the type follows from the feature.
        array = array.cast(_nested_lists(_to_object_array([np.zeros([0] * len(feature.shape), feature.dtype)])).type)
    zone = None if feature is None else feature.time_zone
    return array if zone is None else array.cast(_in_zone(array.type, zone))


def _in_zone(kind: Any, zone: str) -> Any:
    """A type with a time zone for its timestamps, also inside lists."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, zone)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_in_zone(kind.value_type, zone), kind.list_size)
    return pa.large_list(_in_zone(kind.value_type, zone)) if pa.types.is_large_list(kind) else kind


def array_to_arrow(values: Array, valid: Validity | None) -> Any:
    """A dense array; its inner dimensions become fixed-size lists. Arrays of different shapes become nested lists."""
    if values.dtype == object and all(one is None or isinstance(one, np.ndarray) for one in values):
        return _nested_lists(values)
    values = array_to_numbers(values)
    flat = np.ascontiguousarray(values).reshape(-1)
    if values.ndim == 1:
        return pa.array(flat, mask=None if valid is None else ~valid)
    return _to_fixed_size_lists(pa.array(flat), values.shape, valid)


def _nested_lists(arrays: Array) -> Any:
    """One array per row, or None, as lists of lists."""
    there = [one for one in arrays if one is not None]
    if not there:
        return pa.nulls(len(arrays))
    there = [array_to_numbers(one) for one in there]
    out = pa.array(np.concatenate([np.ascontiguousarray(one).reshape(-1) for one in there]))
    for axis in range(there[0].ndim - 1, -1, -1):
        lengths = np.concatenate(
            [np.full(int(np.prod(one.shape[:axis])), one.shape[axis], np.int64) for one in there]
        )
        if axis == 0:
            lengths = np.zeros(len(arrays), np.int64)
            lengths[[one is not None for one in arrays]] = [one.shape[0] for one in there]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        valid = np.array([one is not None for one in arrays]) if axis == 0 else None
        bitmap = None if valid is None or valid.all() else _to_arrow_bitmap(valid)
        out = pa.Array.from_buffers(
            pa.large_list(out.type), len(lengths), [bitmap, pa.py_buffer(ends.astype(np.int64))], children=[out]
        )
    return out


def array_to_numbers(values: Array) -> Array:
    """An array in a dtype that Arrow has: bfloat16 as float32, complex numbers as pairs."""
    if values.dtype.name == "bfloat16":
        return values.astype(np.float32)
    if values.dtype.kind == "c":
        return np.ascontiguousarray(values)[..., np.newaxis].view(values.real.dtype)
    return values


def _to_fixed_size_lists(out: Any, shape: tuple[int, ...], valid: Validity | None) -> Any:
    """Flat values as fixed-size lists of the inner dimensions of `shape`; `valid` is per row."""
    for axis in range(len(shape) - 1, 0, -1):
        bitmap = _to_arrow_bitmap(valid) if axis == 1 else None
        rows, size = int(np.prod(shape[:axis])), shape[axis]
        if size <= _MAX_LIST_SIZE:
            out = pa.Array.from_buffers(pa.list_(out.type, size), rows, [bitmap], children=[out])
        else:
            ends = pa.py_buffer(np.arange(rows + 1, dtype=np.int64) * size)
            out = pa.Array.from_buffers(pa.large_list(out.type), rows, [bitmap, ends], children=[out])
    return out


def _to_arrow_bitmap(valid: Validity | None) -> Any:
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


_MAX_COLUMNS = 12
_PREVIEW_ROWS = 4


class ColumnBatch(dict[str, Column]):
    """`{column: values}`; `features` are those of the schema, if they are known."""

    __slots__ = ("features",)

    def __init__(self, columns: Any = (), features: Mapping[str, Feature] | None = None) -> None:
        super().__init__(columns)
        self.features = features

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnBatch, (dict(self),)

    def __repr__(self) -> str:
        names = {name: shorten_name(name) for name in list(self)[:_MAX_COLUMNS]}
        width = max(map(len, names.values()), default=0)
        lines = [f"  {shown:<{width}}  {_describe_column(self[name])}" for name, shown in names.items()]
        if len(self) > len(names):
            lines.append(f"  … {len(self) - len(names):,} more")
        return "\n".join([f"Batch: {', '.join(self._facts())}", *lines])

    @never_raises
    def _repr_html_(self) -> str:
        from rekord.codec.preview import render_rows

        return render_fragment("Batch", self._facts(), render_rows(self, self.features, _PREVIEW_ROWS))

    def _facts(self) -> list[str]:
        rows = [len(next(iter(self.values())))] if self else []
        return [*[format_count(count, "row") for count in rows], format_count(len(self), "column")]


def to_batch(columns: Batch, features: Mapping[str, Feature] | None) -> Batch:
    """A dict of columns as a batch; what a function of the user returned in another class stays as it is."""
    return ColumnBatch(columns, features) if type(columns) is dict else columns


def _describe_column(column: Any) -> str:
    """`uint8 (32, 224, 224, 3)`, or what a column says of itself."""
    if isinstance(column, np.ndarray):
        kind = "arrays of different sizes" if column.dtype == object else str(column.dtype)
        return f"{kind} {column.shape}"
    if isinstance(column, (Ragged, Strings, Optional, SparseColumn)):
        return repr(column)
    return type(column).__name__


_registered: set[str] = set()


def register_batches() -> None:
    """Register the class with the libraries that are loaded and know dicts only by their exact type."""
    for name, register in _LIBRARIES.items():
        module = sys.modules.get(name)
        if module is None or name in _registered:
            continue
        try:
            register(module)
        except (AttributeError, ValueError, TypeError):  # half imported, registered by another copy, or too old
            continue
        _registered.add(name)


def _flatten(batch: ColumnBatch) -> tuple[list[Column], tuple[str, ...]]:
    names = tuple(sorted(batch))
    return [batch[name] for name in names], names


def _unflatten(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


_LIBRARIES: dict[str, Callable[[Any], object]] = {
    "jax": lambda jax: jax.tree_util.register_pytree_node(ColumnBatch, _flatten, _unflatten),
    "optree": lambda optree: optree.register_pytree_node(
        ColumnBatch, _flatten, _unflatten, namespace=vars(optree.registry)["__GLOBAL_NAMESPACE"]
    ),
    "torch": lambda torch: torch.utils._pytree.register_pytree_node(
        ColumnBatch, _flatten, lambda values, names: _unflatten(names, values)
    ),
}
