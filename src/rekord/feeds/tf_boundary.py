"""Batches across the border from Python to TensorFlow: few tensors for many columns.

Each tensor that crosses costs microseconds under the interpreter's lock, and each Python string about as much as
parsing it. So short columns of one dtype go over end to end in one array, and strings as one blob, to be taken
apart in the graph, where other threads can do it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.codec.columns import Array, Strings
from rekord.errors import error, located
from rekord.feeds.tf_forms import INTEGERS, Form, Part
from rekord.location import Location

_BLOB_STRING_BYTES = 1024
"""Where strings are longer on average, copying them twice costs more than making objects of them."""

_HEADER = 3  # is last, is blob, rows


@dataclass(frozen=True, slots=True)
class Boundary:
    """The forms of all columns, and how their parts travel: (header, a tensor a channel…, ends, strings).

    Strings are a blob, in which each ends where `ends` says, or they come one by one and without ends.

    The header is [is the last, strings are a blob, rows, size of each shared part…, number of strings of each part…].
    """

    forms: Mapping[str, Form]
    parts: tuple[Part, ...]
    shared: tuple[np.dtype[Any], ...]  # a channel each

    @classmethod
    def of(cls, forms: Mapping[str, Form]) -> Boundary:
        """The way over for columns of these forms."""
        parts = tuple(part for form in forms.values() for part in form.parts())
        dtypes = [part.dtype for part in parts if part.shared and part.dtype is not None]
        return cls(forms, parts, tuple(dict.fromkeys(dtypes)))

    def signature(self, tf: Any) -> tuple[Any, ...]:
        """What TensorFlow is told of the tensors that cross."""
        alone = [part.dtype for part in self.parts if not part.shared]
        dtypes = [INTEGERS, *self.shared, *alone]
        flat = [tf.TensorSpec([None], tf.as_dtype(dtype)) for dtype in dtypes]
        return (*flat, tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], tf.string))

    def pack(self, batch: Mapping[str, Any], *, last: bool) -> tuple[Any, ...]:
        """A batch as the arrays that cross."""
        rows = self._rows(batch)
        arrays: list[Any] = []
        for name, form in self.forms.items():
            with located(feature=name):
                arrays += form.put(batch[name])
        shared: dict[Any, list[Array]] = {dtype: [] for dtype in self.shared}
        alone: list[Array] = []
        strings: list[Any] = []
        for part, array in zip(self.parts, arrays, strict=True):
            if part.dtype is None:
                strings.append(array)
            elif part.shared:
                shared[part.dtype].append(array)
            else:
                alone.append(_as(part, array))
        counts = [_count(one) for one in strings]
        blob, ends, pieces = _strings(strings, sum(counts))
        sizes = [len(array) for group in shared.values() for array in group]
        header = np.array([last, blob, rows, *sizes, *counts], np.int64)
        joined = [_joined(dtype, group) for dtype, group in shared.items()]
        crossing = np.empty(len(pieces), object)
        crossing[:] = pieces
        return (header, *joined, *alone, ends, crossing)

    def unpack(self, tf: Any, tensors: tuple[Any, ...], batch_rows: int | None) -> tuple[Any, dict[str, Any]]:
        """In the graph: whether a batch is the last, and its columns, of `batch_rows` where that is known."""
        header, *channels, ends, strings = tensors
        # Counted by hand: to NumPy float64 equals None.
        shared_parts: dict[Any, int] = dict.fromkeys(self.shared, 0)
        for part in self.parts:
            if part.shared and part.dtype is not None:
                shared_parts[part.dtype] += 1
        texts = sum(part.dtype is None for part in self.parts)
        groups: dict[Any, list[Any]] = {}
        at = _HEADER
        for dtype, count in shared_parts.items():
            whole = channels.pop(0)
            groups[dtype] = [whole] if count == 1 else tf.split(whole, header[at : at + count], num=count)
            at += count
        cut = _cut(tf, strings, ends, header[1], header[at : at + texts], texts)
        taken = [
            (cut if part.dtype is None else groups[part.dtype] if part.shared else channels).pop(0)
            for part in self.parts
        ]
        rows = header[2] if batch_rows is None else tf.constant(batch_rows, tf.int64)
        parts = iter(taken)
        columns = {name: form.take(tf, parts, rows) for name, form in self.forms.items()}
        return tf.cast(header[0], tf.bool), columns

    def _rows(self, batch: Mapping[str, Any]) -> int:
        lengths = {name: len(batch[name]) for name in self.forms}
        rows = next(iter(lengths.values()), 0)
        for name, length in lengths.items():
            if length != rows:
                raise error(
                    "U659",
                    f"`{name}` has another number of rows than the rest of its batch",
                    location=Location(feature=name),
                    expected=f"{rows:,} rows",
                    found=f"{length:,}",
                    do="let the function for `map` give as many rows for every column",
                )
        return rows


def _as(part: Part, array: Array) -> Array:
    return np.ascontiguousarray(array, part.dtype).reshape(-1)


def _joined(dtype: Any, group: list[Array]) -> Array:
    return np.ascontiguousarray(group[0], dtype) if len(group) == 1 else np.concatenate(group, dtype=dtype)


def _cut(tf: Any, strings: Any, ends: Any, is_blob: Any, counts: Any, parts: int) -> list[Any]:
    """In the graph: the strings of each part, from one blob, or from as many as there are."""
    if not parts:
        return []

    def each(values: Any) -> list[Any]:
        return [values] if parts == 1 else tf.split(values, counts, num=parts)

    def from_blob() -> list[Any]:
        begins, lengths = each(ends[:-1]), each(ends[1:] - ends[:-1])
        return [tf.strings.substr(strings[0], *where) for where in zip(begins, lengths, strict=True)]

    cut = tf.cond(tf.equal(is_blob, 1), from_blob, lambda: each(strings))
    return list(cut) if isinstance(cut, (list, tuple)) else [cut]


def _strings(columns: list[Any], count: int) -> tuple[bool, Array, list[bytes]]:
    """(True, the ends of all strings, [one blob]), or (False, no ends, the strings one by one)."""
    known = sum(column.nbytes for column in columns if isinstance(column, Strings))
    if known > count * _BLOB_STRING_BYTES:
        return False, np.zeros(0, np.int64), [text for column in columns for text in _listed(column)]
    data: list[Any] = []
    ends: list[Array] = [np.zeros(1, np.int64)]
    size_bytes = 0
    for column in columns:
        if isinstance(column, Strings):
            own, joined = column.packed()
            begin = int(own[0])
            joined = joined[begin : int(own[-1])]
        else:
            texts = _listed(column)
            own = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)])
            begin, joined = 0, np.frombuffer(b"".join(texts), np.uint8)
        data.append(joined)
        ends.append(own[1:] + (size_bytes - begin))
        size_bytes += len(joined)
    return True, np.concatenate(ends), [b"".join(data)]


def _count(column: Any) -> int:
    if not isinstance(column, Strings):
        return int(np.asarray(column, object).size)
    per_row = int(np.prod(column.row_shape)) if column.row_shape else 1
    return len(column) * per_row


def _listed(column: Any) -> list[bytes]:
    """The strings of a column as bytes; b"" for one that is missing."""
    if isinstance(column, Strings):
        values = column.to_numpy().reshape(-1).tolist() if column.row_shape else column.tolist()
        if not column.text and column.valid is None:
            return values
    else:
        values = np.asarray(column, object).reshape(-1).tolist()
    return [_as_bytes(value) for value in values]


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value or b""
    raise error(
        "U659",
        f"an array of objects holds {type(value).__name__}",
        expected="bytes, str or None",
        found=repr(value)[:60],
        do="let the function for `map` give arrays of numbers, or of strings",
    )
