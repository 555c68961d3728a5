"""Packs batches from Python to TensorFlow: few tensors for many columns.

Each tensor that is passed costs microseconds under the interpreter's lock, and each Python string about as much as
parsing it. So columns of the same kind are passed as the rows of one matrix, which TensorFlow unstacks without a
copy, and short strings as a serialized tensor, which TensorFlow parses on other threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import prod
from typing import Any

import numpy as np

from rekord.codec.columns import Array, Strings
from rekord.errors import RekordError, add_location
from rekord.feeds.tensorflow.columns import (
    INT64_DTYPE,
    MaskedForm,
    TensorForm,
    TensorPart,
    compute_row_splits,
    strings_to_bytes,
)

_MAX_SERIALIZED_MEAN_BYTES = 256
"""If strings are longer on average, copying them again costs more than creating Python objects."""

_MAX_SERIALIZED_BYTES = 1 << 30
"""Serialized tensors stay below protobuf's limit of 2 GiB."""

_HEADER = 3  # the note, batches, rows of each


@dataclass(frozen=True, slots=True)
class PackedBatches:
    """Batches of the same number of rows, packed: one array per group of parts."""

    batches: int
    rows: int
    arrays: tuple[Array, ...]
    serialized: tuple[bool, ...]  # for each group of strings

    def to_tensors(self, note: int) -> tuple[Array, ...]:
        """What is passed to the graph: a header with a number of its own, then the arrays."""
        return np.array([note, self.batches, self.rows, *self.serialized], INT64_DTYPE), *self.arrays


@dataclass(frozen=True, slots=True)
class BatchPacking:
    """The forms of all columns, and how their parts are packed: (header, one tensor per group of parts…).

    The header is [note, batches, rows of each, 1 for each group of strings that is serialized…].
    """

    forms: Mapping[str, TensorForm]
    parts: tuple[TensorPart, ...]
    groups: tuple[tuple[int, ...], ...]  # the numbers of the parts that share a tensor

    @classmethod
    def of(cls, forms: Mapping[str, TensorForm]) -> BatchPacking:
        """The packing for columns of these forms."""
        parts = tuple(part for form in forms.values() for part in form.parts())
        groups: dict[Any, list[int]] = {}
        for number, part in enumerate(parts):
            # By the dtype's name: in NumPy, float64 equals None.
            alike = number if part.each is None else (str(part.dtype), part.row_shape, part.each, part.more)
            groups.setdefault(alike, []).append(number)
        return cls(forms, parts, tuple([tuple(group) for group in groups.values()]))

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether all columns have fixed shapes, so that batches can be packed together and unstacked."""
        return all(part.row_shape is not None and 0 not in part.row_shape for part in self.parts)

    @property
    def has_wide_rows(self) -> bool:
        """Whether a column is passed in a tensor of its own."""
        return any(part.each is None for part in self.parts)

    def signature(self, tf: Any) -> tuple[Any, ...]:
        """The specs of the packed tensors."""
        texts = [group for group in self.groups if self.parts[group[0]].dtype is None]
        specs = [tf.TensorSpec([_HEADER + len(texts)], tf.as_dtype(INT64_DTYPE))]
        for group in self.groups:
            part = self.parts[group[0]]
            if part.dtype is None:
                specs.append(tf.TensorSpec([None], tf.string))
            else:
                lines = [len(group)] if len(group) > 1 else []
                specs.append(tf.TensorSpec([*lines, *[None] * part.rank], tf.as_dtype(part.dtype)))
        return tuple(specs)

    def put(self, batch: Mapping[str, Any]) -> list[Any]:
        """The arrays of a batch, one per part."""
        arrays: list[Any] = []
        for name, form in self.forms.items():
            try:
                arrays += form.put(batch[name])
            except RekordError:
                # Only here: a context manager for every column would take longer than the column.
                with add_location(feature=name):
                    raise
        return arrays

    def pack(
        self, arrays: list[Any], batches: int, rows: int, begin: int = 0, *, by_batch: bool = False
    ) -> PackedBatches:
        """The arrays of `batches` batches of `rows`, from row `begin` on; all of them unless shapes are fixed.

        All batches of a column are packed together, or with `by_batch` all columns of a batch.
        """
        cuts = batches if by_batch else 1
        packed: list[Array] = []
        serialized: list[bool] = []
        for group in self.groups:
            part = self.parts[group[0]]
            columns = [arrays[number] for number in group]
            if part.row_shape is not None:
                each = prod(part.row_shape)
                columns = [_slice_values(column, begin * each, (begin + batches * rows) * each) for column in columns]
            if part.dtype is None:
                is_serialized, strings = _pack_strings(columns, cuts)
                serialized.append(is_serialized)
                packed.append(strings)
            else:
                packed.append(_stack_columns(part, columns, cuts))
        return PackedBatches(batches, rows, tuple(packed), tuple(serialized))

    def unpack(self, tf: Any, tensors: tuple[Any, ...], batch_rows: int | None) -> tuple[Any, Any, dict[str, Any]]:
        """In the graph: the note, the number of batches, and their columns, of `batch_rows` rows if that is known."""
        note, batches, rows, *serialized = tf.unstack(tensors[0])
        taken: list[Any] = [None] * len(self.parts)
        for group, tensor in zip(self.groups, tensors[1:], strict=True):
            is_text = self.parts[group[0]].dtype is None
            whole = _parse_strings(tf, tensor, serialized.pop(0), len(group)) if is_text else tensor
            lines = tf.unstack(whole) if len(group) > 1 else [whole]
            for number, line in zip(group, lines, strict=True):
                taken[number] = line
        parts = iter(taken)
        count = batches * rows if batch_rows is None else tf.constant(batch_rows, tf.int64)
        columns = {name: form.take(tf, parts, count) for name, form in self.forms.items()}
        return note, batches, columns

    def split_eagerly(self, tf: Any, packed: PackedBatches) -> list[tuple[Any, ...]]:
        """The tensors of each batch, one per group of parts, mostly without a copy; of arrays packed by batch."""
        split: list[list[Any]] = []
        serialized = list(packed.serialized)
        for group, array in zip(self.groups, packed.arrays, strict=True):
            part = self.parts[group[0]]
            assert part.row_shape is not None
            lines = [len(group)] if len(group) > 1 else []
            shape = [packed.batches, *lines, packed.rows, *part.row_shape]
            if part.dtype is None and serialized.pop(0):
                whole = tf.reshape(tf.io.parse_tensor(tf.constant(array[0]), tf.string), shape)
            else:
                whole = tf.constant(array.reshape(shape))
            split.append(tf.unstack(whole, packed.batches))
        return list(zip(*split, strict=True))

    def unpack_eagerly(self, tf: Any, tensors: tuple[Any, ...]) -> dict[str, Any]:
        """The columns of a batch from `split_eagerly`; one operation unstacks all columns of a group of parts."""
        taken: list[Any] = [None] * len(self.parts)
        for group, tensor in zip(self.groups, tensors, strict=True):
            lines = [tensor] if len(group) == 1 else tf.raw_ops.Unpack(value=tensor, num=len(group))
            for number, line in zip(group, lines, strict=True):
                taken[number] = line
        parts = iter(taken)
        return {
            name: {"values": next(parts), "valid": next(parts)} if isinstance(form, MaskedForm) else next(parts)
            for name, form in self.forms.items()
        }


def _slice_values(column: Any, begin: int, end: int) -> Any:
    """Values `begin` to `end` of a part."""
    if begin == 0 and end == (_count_strings(column) if isinstance(column, Strings) else len(column)):
        return column
    return (strings_to_bytes(column) if isinstance(column, Strings) else column)[begin:end]


def _stack_columns(part: TensorPart, columns: list[Array], cuts: int) -> Array:
    """Columns as the rows of a matrix, of one matrix per cut; a single one as it is."""
    if len(columns) == 1:
        return np.ascontiguousarray(columns[0], part.dtype)
    stacked = np.concatenate([column.reshape(cuts, 1, -1) for column in columns], axis=1, dtype=part.dtype)
    return stacked if cuts > 1 else stacked[0]


def _parse_strings(tf: Any, strings: Any, serialized: Any, lines: int) -> Any:
    """In the graph: strings in `lines` rows, from one serialized tensor or from the strings themselves."""
    shape = [lines, -1] if lines > 1 else [-1]
    parsed = tf.cond(
        tf.equal(serialized, 1),
        lambda: tf.io.parse_tensor(strings[0], tf.string),
        lambda: tf.reshape(strings, shape),
    )
    parsed.set_shape([None if size == -1 else size for size in shape])
    return parsed


def _pack_strings(columns: list[Strings | list[bytes]], cuts: int) -> tuple[bool, Array]:
    """(True, one serialized tensor with a row per column), or (False, all strings one by one).

    Columns are cut into as many pieces of the same length; the first pieces of all columns come first.
    """
    each = _count_strings(columns[0]) // cuts
    count = len(columns) * cuts * each
    if sum([_sum_string_bytes(column) for column in columns]) > min(
        count * _MAX_SERIALIZED_MEAN_BYTES, _MAX_SERIALIZED_BYTES
    ):
        listed = [strings_to_bytes(column) if isinstance(column, Strings) else column for column in columns]
        pieces = [column[cut * each : (cut + 1) * each] for cut in range(cuts) for column in listed]
        return False, _to_object_array([text for piece in pieces for text in piece])
    lengths: list[Array] = []
    cut_data: list[list[bytes]] = []
    for column in columns:
        ends, data = column.packed() if isinstance(column, Strings) else _join_texts(column)
        lengths.append((ends[1:] - ends[:-1]).reshape(cuts, each))
        joined, bounds = data.tobytes(), ends[:: max(each, 1)].tolist()
        cut_data.append([joined[begin:end] for begin, end in pairwise(bounds)])
    shape = (len(columns) * cuts, each) if len(columns) > 1 else (count,)
    ordered = np.stack(lengths, axis=1).reshape(-1)
    return True, _to_object_array([_serialize_strings(shape, ordered, [*chain(*zip(*cut_data, strict=True))])])


def _serialize_strings(shape: Sequence[int], lengths: Array, data: list[Any]) -> bytes:
    """A TensorProto of strings: its `tensor_content` is all lengths as varints, then all strings."""
    sizes = [_encode_field(2, b"\x08" + _encode_varint(size)) for size in shape]
    content = _encode_varints(lengths)
    size_bytes = len(content) + sum(map(len, data))
    head = b"\x08\x07" + _encode_field(2, b"".join(sizes))  # dtype: DT_STRING, tensor_shape
    return b"".join([head, b"\x22", _encode_varint(size_bytes), content, *data])


def _encode_field(number: int, message: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _encode_varint(len(message)) + message


def _encode_varint(number: int) -> bytes:
    out = bytearray()
    while number >= 1 << 7:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def _encode_varints(numbers: Array) -> bytes:
    """Integers from 0 up to 2^35 as concatenated protobuf varints."""
    if int(numbers.max(initial=0)) < 1 << 7:
        return numbers.astype(np.uint8).tobytes()
    widths = sum([(numbers >= 1 << 7 * more).astype(np.int64) for more in range(1, 5)], np.ones_like(numbers))
    begins = np.cumsum(widths) - widths
    out = np.empty(int(widths.sum()), np.uint8)
    for place in range(int(widths.max())):
        here = widths > place
        continuation = (widths[here] > place + 1).astype(np.uint8) << 7
        out[begins[here] + place] = (numbers[here] >> 7 * place & 127).astype(np.uint8) | continuation
    return out.tobytes()


def _join_texts(texts: list[bytes]) -> tuple[Array, Array]:
    ends = compute_row_splits([len(text) for text in texts])
    return ends, np.frombuffer(b"".join(texts), np.uint8)


def _to_object_array(texts: list[bytes]) -> Array:
    out = np.empty(len(texts), object)
    out[:] = texts
    return out


def count_bytes(arrays: list[Any]) -> int:
    """The size of the arrays of a batch."""
    return sum([_sum_string_bytes(array) if isinstance(array, (Strings, list)) else array.nbytes for array in arrays])


def _count_strings(column: Strings | list[bytes]) -> int:
    return len(column) * prod(column.row_shape) if isinstance(column, Strings) else len(column)


def _sum_string_bytes(column: Strings | list[bytes]) -> int:
    return column.nbytes if isinstance(column, Strings) else sum(map(len, column))
