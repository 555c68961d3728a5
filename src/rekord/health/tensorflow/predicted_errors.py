"""The error that TensorFlow will raise for a record, predicted without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.codec.decode import SequenceExample
from rekord.schema.interop import tf_spec
from rekord.schema.interop.tf_spec import Dtype, FixedLenSequenceSpec, FixedLenSpec, Partition, RaggedSpec

TfType: TypeAlias = Literal["int64", "float", "string"]
"""A type as it is named in TensorFlow's messages."""

_TAG_1, _TAG_2, _TAG_3 = 0x0A, 0x12, 0x1A  # fields 1, 2 and 3, with a length
_VARINT_1, _FIXED32_1 = 0x08, 0x0D
_TYPES: dict[int, TfType] = {_TAG_1: "string", _TAG_2: "float", _TAG_3: "int64"}
_MAX_VARINT_BYTES = 10
_INT_MAX = (1 << 31) - 1


class UnparsablePayload(Exception):
    """The parser rejects the whole payload."""


class _BrokenField(Exception):
    """The parser rejects this part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEntry:
    """One entry of the map of a record, as the parser sees it.

    `dtype` is None if no kind is set. Of `count` values only `readable` exist; a `broken` list stops the
    parser whatever was requested. `numbers` are those of an int64 list, if they were requested.
    """

    key: str
    dtype: TfType | None = None
    count: int = 0
    readable: int = 0
    broken: bool = False
    unsupported: bool = False
    numbers: tuple[int, ...] = ()


def entries_from_example(example: Mapping[str, Any], numbers_of: Collection[str]) -> list[ParsedEntry]:
    """The entries of a decoded record: values as returned by `rk.decode` without a schema."""
    entries = []
    for key, value in example.items():
        if value is None:
            entries.append(ParsedEntry(key=key))
            continue
        dtype: TfType = "string"
        if isinstance(value, np.ndarray):
            dtype = "int64" if value.dtype == np.int64 else "float"
        listed = dtype == "int64" and key in numbers_of
        entries.append(
            ParsedEntry(
                key=key,
                dtype=dtype,
                count=len(value),
                readable=len(value),
                numbers=tuple(value.tolist()) if listed else (),
            )
        )
    return entries


def entries_from_payload(payload: bytes, keys: Collection[str], numbers_of: Collection[str]) -> list[ParsedEntry]:
    """The entries of a payload under the given keys, in its order, including duplicates."""
    walk = _WireReader(payload)
    found: list[tuple[str, bytes]] = []
    try:
        while walk.at < walk.limit:
            if walk.takes(_TAG_1):
                outer = walk.narrow()
                while walk.at < walk.limit:
                    walk.expect(_TAG_1)
                    entry = walk.narrow()
                    found.append(walk.map_entry())
                    walk.limit = entry
                walk.limit = outer
            else:
                walk.skip_field()
    except _BrokenField:
        raise UnparsablePayload from None
    return [_parse_entry(key, body, key in numbers_of) for key, body in found if key in keys]


def _parse_entry(key: str, feature: bytes, with_numbers: bool) -> ParsedEntry:
    if not feature:
        return ParsedEntry(key=key)
    dtype = _TYPES.get(feature[0])
    if dtype is None:
        return ParsedEntry(key=key, unsupported=True)
    walk = _WireReader(feature)
    walk.at = 1
    try:
        walk.narrow()
        if dtype == "string":
            count = readable = walk.texts()
            numbers: tuple[int, ...] = ()
        elif dtype == "float":
            count, readable = walk.floats()
            numbers = ()
        else:
            count, numbers = walk.integers(with_numbers=with_numbers)
            readable = count
    except _BrokenField:
        return ParsedEntry(key=key, dtype=dtype, broken=True)
    return ParsedEntry(key=key, dtype=dtype, count=count, readable=readable, numbers=numbers)


class _WireReader:
    """A position in some bytes, and the limit of reading: the end of the innermost message."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.limit = len(data)

    def varint(self) -> int:
        number = 0
        for position in range(_MAX_VARINT_BYTES):
            if self.at >= self.limit:
                raise _BrokenField
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << 7 * position
            if byte < 0x80:
                return number
        raise _BrokenField

    def length(self) -> int:
        return self.varint() & 0xFFFFFFFF

    def takes(self, tag: int) -> bool:
        """Skip a tag, if it is the one at this position, in its one-byte form."""
        if self.at < self.limit and self.data[self.at] == tag:
            self.at += 1
            return True
        return False

    def expect(self, tag: int) -> None:
        if not self.takes(tag):
            raise _BrokenField

    def narrow(self) -> int:
        """Read a length, and limit reading to it; returns the previous limit."""
        before, length = self.limit, self.length()
        if length <= _INT_MAX:
            self.limit = min(before, self.at + length)
        return before

    def take(self, length: int) -> bytes:
        if length > self.limit - self.at:
            raise _BrokenField
        self.at += length
        return self.data[self.at - length : self.at]

    def map_entry(self) -> tuple[str, bytes]:
        key, value = b"", b""
        for _ in range(2):  # in any order; the last of two keys or two values counts
            tag = self.length()
            if tag == _TAG_1:
                key = self.take(self.length())
            elif tag == _TAG_2:
                value = self.take(self.length())
            else:
                raise _BrokenField
        if self.at != self.limit:
            raise _BrokenField
        return key.decode("utf-8", "surrogateescape"), value

    def skip_field(self) -> None:
        wire = self.length() & 7
        if wire == 0:
            self.length()
        elif wire == 1:
            self.take(8)
        elif wire == 2:
            length = self.length()
            if length <= _INT_MAX:
                self.at = min(self.limit, self.at + length)
        elif wire == 5:
            self.take(4)
        else:
            raise _BrokenField  # a group, or an invalid wire type

    def texts(self) -> int:
        count = 0
        while self.at < self.limit:
            self.expect(_TAG_1)
            length = self.length()
            if length > self.limit - self.at:
                raise _BrokenField
            self.at += length
            count += 1
        return count

    def floats(self) -> tuple[int, int]:
        """(number of values that the first chunk claims, number of values that exist)"""
        if self.at == self.limit:
            return 0, 0
        if self.takes(_TAG_1):
            claimed = self.length()
            return claimed // 4, (self.limit - self.at) // 4
        count = (self.limit - self.at) // 5
        while self.at < self.limit:
            self.expect(_FIXED32_1)
            self.take(4)
        return count, count

    def integers(self, *, with_numbers: bool) -> tuple[int, tuple[int, ...]]:
        if self.at == self.limit:
            return 0, ()
        packed = self.takes(_TAG_1)
        if packed:
            self.narrow()
            if not with_numbers:
                return self._counted(), ()
        count, numbers = 0, []
        while self.at < self.limit:
            if not packed:
                self.expect(_VARINT_1)
            number = self.varint() & (1 << 64) - 1
            count += 1
            if with_numbers:
                numbers.append(number - (1 << 64) if number >> 63 else number)
        return count, tuple(numbers)

    def _counted(self) -> int:
        """The number of varints up to the limit, without inspecting each in Python."""
        ends = np.flatnonzero(np.frombuffer(self.data, np.uint8)[self.at : self.limit] < 0x80)
        if self.at == self.limit:
            return 0
        if not len(ends) or ends[-1] != self.limit - self.at - 1:
            raise _BrokenField
        if np.diff(ends, prepend=-1).max() > _MAX_VARINT_BYTES:
            raise _BrokenField
        return len(ends)


_MAX_SHOWN_ELEMENTS = 3
_DIVISION = "Integer division by zero"


def find_partition_keys(spec: tf_spec.Spec) -> set[str]:
    """The keys whose values matter, not only their number."""
    ragged = [feature for feature in spec.values() if isinstance(feature, RaggedSpec)]
    return {part.key for feature in ragged for part in feature.partitions if part.key is not None}


def find_composition_error(spec: tf_spec.Spec, met: Mapping[str, ParsedEntry]) -> str | None:
    """The error for lists that were all parsed, but do not match each other."""
    for name in sorted(spec):
        feature = spec[name]
        wrong = None
        if isinstance(feature, tf_spec.SparseSpec):
            wrong = _find_sparse_error(feature, met)
        elif isinstance(feature, RaggedSpec):
            wrong = _find_ragged_error(name, feature, met)
        if wrong is not None:
            return wrong
    return None


def _find_sparse_error(feature: tf_spec.SparseSpec, met: Mapping[str, ParsedEntry]) -> str | None:
    counts = [_get_count(met, key) for key in feature.index_keys]
    for position, count in enumerate(counts):
        if count != counts[0]:
            return (
                "ConcatOp : Dimension 0 in both shapes must be equal: "
                f"shape[0] = [{counts[0]},1] vs. shape[{position + 1}] = [{count},1]"
            )
    values = _get_count(met, feature.value_key)
    # The value of an index is never checked: one that is too large passes.
    return None if counts[0] == values else f"Dimensions {counts[0]} and {values} are not compatible"


def _get_count(met: Mapping[str, ParsedEntry], key: str) -> int:
    return met[key].count if key in met else 0


def _find_ragged_error(name: str, feature: RaggedSpec, met: Mapping[str, ParsedEntry]) -> str | None:
    rows = _get_count(met, feature.value_key or name)
    inner = 1  # consecutive elements, as long as every partition so far is uniform
    for partition in reversed(feature.partitions):
        if partition.length is not None:
            wrong = _find_uniform_error(rows, inner, partition.length, validate=feature.validate)
            if wrong is not None:
                return wrong
            rows //= partition.length
            inner = inner * partition.length if inner else 0
            continue
        stored = met.get(partition.key or "")
        numbers = [_wrap_integer(number, feature.row_splits_dtype) for number in stored.numbers] if stored else []
        wrong = _find_partition_error(partition, numbers, rows, feature)
        if wrong is not None:
            return wrong
        inner = 0  # ragged from here on
        rows = _count_partition_rows(partition, numbers)
    return None


def _find_uniform_error(rows: int, inner: int, length: int, *, validate: bool) -> str | None:
    if inner:
        shape = (None, length) if inner == 1 else (None, length, inner)
        wrong = reshape_error(rows * inner, shape)
        return wrong or (_DIVISION if length == 0 else None)
    if length == 0:
        return _DIVISION
    if validate and rows % length:
        return f"uniform_row_length={length} times nrows={rows // length} must equal nvals={rows}"
    return None


def _wrap_integer(number: int, dtype: str) -> int:
    bits = 64 if dtype == "int64" else 32
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _count_partition_rows(partition: Partition, numbers: Sequence[int]) -> int:
    if partition.kind == "RowSplits":
        return max(0, len(numbers) - 1)
    if partition.kind == "ValueRowIds":
        return max([0, *[number + 1 for number in numbers]])
    return len(numbers)


def _find_partition_error(partition: Partition, numbers: Sequence[int], rows: int, feature: RaggedSpec) -> str | None:
    if partition.kind == "ValueRowIds":
        return _find_row_ids_error(numbers, rows, feature)
    if not feature.validate:
        return None
    dtype = feature.row_splits_dtype
    if partition.kind == "RowLengths":
        where = "Arguments to from_row_lengths do not form a valid RowPartition"
        return _find_negative(where, numbers, dtype) or _find_last_error(sum(numbers), rows)
    if partition.kind == "RowStarts":
        where = "Arguments to from_row_starts do not form a valid RaggedTensor"
        if numbers and numbers[0] != 0:
            return _format_unequal(where, "==", numbers[0], 0)
        wrong = _find_negative(where, _compute_steps(numbers), dtype)
        if wrong is None and numbers and numbers[-1] > rows:
            wrong = _format_unequal(where, "<=", numbers[-1], rows)
        return wrong
    limits = numbers[1:] if partition.kind == "RowSplits" else numbers
    where = "Arguments to from_row_limits do not form a valid RaggedTensor"
    wrong = _find_negative(where, limits[:1], dtype) or _find_negative(where, _compute_steps(limits), dtype)
    return wrong or _find_last_error(limits[-1] if limits else 0, rows)


def _find_row_ids_error(numbers: Sequence[int], rows: int, feature: RaggedSpec) -> str | None:
    if feature.validate:
        where = "Arguments to from_value_rowids do not form a valid RowPartition"
        dtype = feature.row_splits_dtype
        wrong = _find_negative(where, numbers[:1], dtype) or _find_negative(where, _compute_steps(numbers), dtype)
        if wrong is not None:
            return wrong
    elif any(number < 0 for number in numbers):
        return "Input arr must be non-negative!"
    return None if len(numbers) == rows else f"Shapes ({rows},) and ({len(numbers)},) are incompatible"


def _compute_steps(numbers: Sequence[int]) -> list[int]:
    return [after - before for before, after in pairwise(numbers)]


def _find_negative(where: str, numbers: Sequence[int], dtype: str) -> str | None:
    if all(number >= 0 for number in numbers):
        return None
    shown = [str(number) for number in numbers[:_MAX_SHOWN_ELEMENTS]]
    if len(numbers) > _MAX_SHOWN_ELEMENTS:
        shown.append("...")
    return (
        f"{where}.  \nCondition x >= 0 did not hold element-wise:\n"
        f"x (shape=({len(numbers)},) dtype={dtype}) = \n{shown}"
    )


def _find_last_error(last: int, rows: int) -> str | None:
    where = "Arguments to _from_row_partition do not form a valid RaggedTensor"
    return None if last == rows else _format_unequal(where, "==", last, rows)


def _format_unequal(where: str, relation: str, left: int, right: int) -> str:
    return (
        f"{where}\nCondition x {relation} y did not hold.\n"
        f"First 1 elements of x:\n[{left}]\nFirst 1 elements of y:\n[{right}]"
    )


TF_TYPES: dict[Dtype, TfType] = {"int64": "int64", "float32": "float", "string": "string"}

_LIST_NAMES: dict[TfType, str] = {"int64": "int64", "float": "float", "string": "bytes"}
_MAX_SHOWN_CHARACTERS = 60


def predict_record_error(spec: tf_spec.Spec, example: Mapping[str, Any], *, index: int = 0) -> str | None:
    """The error for a decoded record, as returned by `rk.decode`, with keys in the order of the record.

    TensorFlow goes from the last entry of a record to the first, then through missing ones, by name.
    """
    return _find_spec_error(spec) or _find_error(
        spec, entries_from_example(example, find_partition_keys(spec)), index
    )


def predict_payload_error(spec: tf_spec.Spec, payload: bytes, *, index: int = 0) -> str | None:
    """The error for the bytes of a record: also exact for lists in chunks, two kinds, and damage inside.

    Where TensorFlow quotes the whole payload, this has its first 60 characters.
    """
    refused = _find_spec_error(spec)
    if refused is not None:
        return refused
    keys = {key for name, feature in spec.items() for key in tf_spec.record_keys(name, feature)}
    try:
        entries = entries_from_payload(payload, keys, find_partition_keys(spec))
    except UnparsablePayload:
        text = payload[: 4 * _MAX_SHOWN_CHARACTERS].decode("utf-8", "replace")
        shown = text if len(text) <= _MAX_SHOWN_CHARACTERS else text[: _MAX_SHOWN_CHARACTERS - 1] + "…"
        return f"Could not parse example input, value: '{shown}'"
    return _find_error(spec, entries, index)


def _find_spec_error(spec: tf_spec.Spec) -> str | None:
    if not spec:
        return "Argument `features` cannot be None or falsy. Got {}"
    for feature in spec.values():
        if isinstance(feature, FixedLenSequenceSpec) and not feature.allow_missing:
            return "Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
    return None


@dataclass(slots=True)
class _ParseState:
    """One record in the parser: what was requested, and what has been seen."""

    dense: dict[str, FixedLenSpec | FixedLenSequenceSpec] = field(default_factory=dict)
    others: dict[str, TfType] = field(default_factory=dict)  # the keys of sparse and ragged features
    entries: dict[str, ParsedEntry] = field(default_factory=dict)


def _find_error(spec: tf_spec.Spec, entries: Iterable[ParsedEntry], index: int) -> str | None:
    parse = _ParseState()
    for name in sorted(spec):
        feature = spec[name]
        if isinstance(feature, (FixedLenSpec, FixedLenSequenceSpec)):
            parse.dense[name] = feature
        else:
            parse.others.update({key: TF_TYPES[of] for key, of in tf_spec.record_keys(name, feature).items()})
    for stored in reversed(list(entries)):
        wrong = _find_entry_error(parse, stored)
        if wrong is not None:
            place = f"Name: <unknown>, Key: {stored.key}, Index: {index}.  "
            return wrong if stored.unsupported else place + wrong
    for name, feature in parse.dense.items():
        if isinstance(feature, FixedLenSpec) and name not in parse.entries and not _has_default(feature):
            return f"Name: <unknown>, {missing_feature_error(name, feature.dtype)}"
    return find_composition_error(spec, parse.entries)


def missing_feature_error(name: str, dtype: Dtype) -> str:
    """TensorFlow's message for a required feature that is missing."""
    return f"Feature: {name} (data type: {TF_TYPES[dtype]}) is required but could not be found."


def _has_default(feature: FixedLenSpec) -> bool:
    return feature.default is not None and math.prod(feature.shape) > 0


def _find_entry_error(parse: _ParseState, stored: ParsedEntry) -> str | None:
    """What is wrong with an entry of the record, without its location."""
    dense, other = parse.dense.get(stored.key), parse.others.get(stored.key)
    if dense is None and other is None:
        return None
    if stored.unsupported:
        return "Unsupported datatype."
    if dense is None:
        if stored.key in parse.entries:
            return None
        parse.entries[stored.key] = stored
        if stored.dtype not in (None, other):
            return f"Data types don't match. Expected type: {other}, Actual type: {stored.dtype}"
        unreadable = stored.broken or stored.count > stored.readable
        return "Can't parse serialized Example." if unreadable else None
    if stored.dtype is None or stored.key in parse.entries:
        return None
    parse.entries[stored.key] = stored
    expected = TF_TYPES[dense.dtype]
    if stored.dtype != expected:
        return f"Data types don't match. Data type: {stored.dtype} but expected type: {expected}"
    return _find_count_error(dense, stored, _LIST_NAMES[expected])


def _find_count_error(feature: FixedLenSpec | FixedLenSequenceSpec, stored: ParsedEntry, listed: str) -> str | None:
    wanted = math.prod(feature.shape)
    if isinstance(feature, FixedLenSequenceSpec):
        if stored.broken or stored.count > stored.readable:
            return "Can't parse serialized Example."
        if wanted and stored.count % wanted:
            return (
                f"Number of {listed} values is not a multiple of stride length. "
                f"Saw {stored.count} values but output shape is: {format_shape((None, *feature.shape))}"
            )
        return None
    # There is room for the requested values: additional numbers are only counted, additional strings are errors.
    if stored.broken or min(stored.count, wanted) > stored.readable:
        return "Can't parse serialized Example."
    if listed == "bytes" and stored.count > wanted:
        return "Can't parse serialized Example."
    if stored.count != wanted:
        return (
            f"Number of {listed} values != expected.  "
            f"Values size: {stored.count} but output shape: {format_shape(feature.shape)}"
        )
    return None


def format_shape(shape: Iterable[int | None]) -> str:
    """A shape in TensorFlow's notation: `[?,2]`."""
    return f"[{','.join(['?' if size is None else str(size) for size in shape])}]"


def predict_sequence_error(spec: tf_spec.SequenceSpec, example: SequenceExample) -> str | None:
    """The error for a record as returned by `rk.decode(payload, kind="sequence")`; None if there is none.

    If several features have another type, TensorFlow names one that differs from run to run; here it is the
    first by name. Partitions inside steps are not checked.
    """
    return (
        _find_context_type_error(spec, example)
        or _find_step_type_error(spec, example)
        or _find_context_count_error(spec, example)
        or _find_step_count_error(spec, example)
        or find_composition_error(spec.context, _collect_context_entries(spec, example))
    )


def _find_context_type_error(spec: tf_spec.SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.context):
        for key, dtype in tf_spec.record_keys(name, spec.context[name]).items():
            stored = _get_tf_type(example.context.get(key))
            if stored not in (None, TF_TYPES[dtype]):
                return (
                    f"Name: <unknown>, Context feature: {key}.  "
                    f"Data types don't match. Expected type: {TF_TYPES[dtype]}"
                )
    return None


def _find_step_type_error(spec: tf_spec.SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.steps):
        for key, dtype in tf_spec.record_keys(name, spec.steps[name]).items():
            for row, value in enumerate(example.steps.get(key, ())):
                if _get_tf_type(value) not in (None, TF_TYPES[dtype]):
                    return (
                        f"Name: <unknown>, Feature list: {key}, Index: {row}.  "
                        f"Data types don't match. Expected type: {TF_TYPES[dtype]}"
                    )
    return None


def _find_context_count_error(spec: tf_spec.SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.context):
        feature = spec.context[name]
        if not isinstance(feature, FixedLenSpec):
            continue
        wanted = math.prod(feature.shape)
        defaults = wanted if feature.default is not None else 0
        found = _count_steps(example.context.get(name))
        if max(defaults, found) != wanted:
            return (
                f"Inconsistent max number of elements for feature {name}: "
                f"expected {wanted}, but found {max(defaults, found)}"
            )
        if name not in example.context:
            if not defaults:
                return missing_feature_error(name, feature.dtype)
        elif found != wanted:
            return "Unexpected number of elements in example <unknown>"
    return None


def _find_step_count_error(spec: tf_spec.SequenceSpec, example: SequenceExample) -> str | None:
    for name in sorted(spec.steps):
        feature = spec.steps[name]
        if not isinstance(feature, FixedLenSequenceSpec):
            continue
        wanted = math.prod(feature.shape)
        counts = [_count_steps(value) for value in example.steps.get(name, ())]
        if wanted and sum(counts) % wanted:
            return (
                f"Feature list '{name}' has an unexpected number of values.  Total values size: {sum(counts)} "
                f"is not consistent with output shape: {format_shape((None, *feature.shape))}"
            )
        if name not in example.steps and not feature.allow_missing:
            return (
                f"Name: <unknown>, Feature list '{name}' is required but could not be found.  Did you mean to "
                "include it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
            )
        for row, count in enumerate(counts):
            if count != wanted:
                return (
                    f"Name: <unknown>, Key: {name}, Index: {row}.  Number of values != expected.  "
                    f"values size: {count} but output shape: {format_shape(feature.shape)}"
                )
    return None


def _collect_context_entries(spec: tf_spec.SequenceSpec, example: SequenceExample) -> dict[str, Any]:
    entries = entries_from_example(example.context, find_partition_keys(spec.context))
    return {stored.key: stored for stored in entries}


def _get_tf_type(value: Any) -> TfType | None:
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        return "int64" if value.dtype == np.int64 else "float"
    return "string"


def _count_steps(value: Any) -> int:
    return 0 if value is None else len(value)


def reshape_error(values: int, shape: Sequence[int | None]) -> str | None:
    """The error of `tf.reshape` for this number of values; one size of the shape may be None (TensorFlow's -1)."""
    known = math.prod([size for size in shape if size is not None])
    begin = f"Input to reshape is a tensor with {values} values, but the requested shape"
    if None in shape and known:
        return f"{begin} requires a multiple of {known}" if values % known else None
    return f"{begin} has {known}" if values != known else None
