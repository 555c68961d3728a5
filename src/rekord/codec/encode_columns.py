"""Columns of many rows to records: NumPy, Arrow and rekord columns, validated as a whole and not copied."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import singledispatch
from math import prod
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.columns import Array, Optional, Ragged, Strings, column_to_arrow
from rekord.codec.decode import assemble_columns
from rekord.codec.encode import (
    RowValidator,
    missing_value,
    shared_pool,
    store_value,
    too_large_error,
    validate_schema,
)
from rekord.codec.numbers import NumberRule, cast_tensor, check_zone, store_array, store_times
from rekord.codec.plan import CodecPlan, ColumnPlan, compile_plan
from rekord.codec.values import InvalidValue, as_array, check_shape, describe_value
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Audio, Feature, Schema, Tensor, Timestamp

Slots: TypeAlias = "list[Any]"
"""The input of the core, one per record key; None if no row has a value."""


class InvalidRowValue(Exception):
    """An invalid value and its row."""

    def __init__(self, invalid_value: InvalidValue, row: int | None, step: int | None = None) -> None:
        super().__init__(invalid_value.code)
        self.invalid_value = invalid_value
        self.row = row
        self.step = step


def build_slots(field: ColumnPlan, column: Any, rows: int) -> Slots:
    """The record keys of one column."""
    if isinstance(column, Optional):
        return _build_optional_slots(field, column, rows)
    if len(field.slots) == 1:
        found = column_slot(field.feature, column, rows)
        if found is not None:
            return [found]
    return build_slots_by_row(field, column)


@singledispatch
def column_slot(feature: Feature, column: Any, rows: int) -> Any:
    """The values of one record key as input of the core; None if rows must be converted one by one."""
    if feature.storage != "list":
        return None
    if feature.kind == "bytes":
        return _store_string_column(feature, column)
    return _store_number_column(feature, column, rows)


def _to_validity(valid: Any) -> Array | None:
    if valid is None:
        return None
    flags = np.ascontiguousarray(valid, np.bool_)
    return None if flags.all() else flags.view(np.uint8)


def _build_optional_slots(field: ColumnPlan, column: Any, rows: int) -> Slots:
    """A dense column with missing rows, whose placeholder values are not validated."""
    valid = np.asarray(column.valid, np.bool_)
    if not valid.any():
        return [None] * len(field.slots)
    values = column.values
    if not valid.all():
        values = np.array(values)
        values[~valid] = values[int(np.argmax(valid))]
    slots = build_slots(field, values, rows)
    return [None if slot is None else (slot[0], slot[1], _both(_to_validity(valid), slot[2])) for slot in slots]


def _both(valid: Array | None, other: Array | None) -> Array | None:
    if valid is None or other is None:
        return other if valid is None else valid
    return np.minimum(valid, other)


def _store_number_column(feature: Feature, column: Any, rows: int) -> Any:
    """A column of numbers in one array; None if rows must be converted one by one."""
    values = _array_of(column)
    if values is None or (values.dtype.kind not in "biuf" and values.dtype.name != "bfloat16"):
        return None
    rule = NumberRule.of(feature)
    return array_slot(feature, column, values, rows, lambda numbers: store_array(numbers, rule))


@column_slot.register(Timestamp)
def _times(feature: Timestamp, column: Any, rows: int) -> Any:
    """A column of datetime64; NaT is a missing value in a column of scalars."""
    check_zone(column, feature)
    values = _array_of(column)
    if values is None or values.dtype.kind != "M":
        return None
    holes = np.isnat(values)
    if feature.shape == () and values.ndim == 1 and holes.any() and not isinstance(column, Ragged):
        if holes.all():
            return None  # row by row: no row has a value
        column = values = np.where(holes, values[int(np.argmin(holes))], values)
        ticks, offsets, _ = array_slot(feature, column, values, rows, lambda some: store_times(some, feature))
        return ticks, offsets, _to_validity(~holes)
    return array_slot(feature, column, values, rows, lambda some: store_times(some, feature))


def _array_of(column: Any) -> Array | None:
    """The array with all values of a column; None if there is none."""
    if isinstance(column, Ragged):
        return column.values if isinstance(column.values, np.ndarray) else None
    return _as_dense_array(column)


def array_slot(feature: Feature, column: Any, values: Array, rows: int, convert: Callable[[Array], Array]) -> Any:
    """A column whose values are in one array, converted by `convert`; raises InvalidRowValue."""
    if isinstance(column, Ragged):
        if column.row_shape is not None or feature.shape[:1] != (None,):
            return None
        check_shape((0, *values.shape[1:]), feature.shape, values)
        offsets = np.asarray(column.offsets, np.int64)
        begin, end = int(offsets[0]), int(offsets[-1])
        inner = prod(values.shape[1:])
        flat = values[begin:end].reshape(-1)
        numbers = _store_numbers(flat, convert, lambda at: _find_row(offsets - begin, at // inner))
        return numbers, np.ascontiguousarray((offsets - begin) * inner), _to_validity(column.valid)
    check_shape(values.shape[1:], feature.shape, values)
    inner = prod(values.shape[1:])
    numbers = _store_numbers(values.reshape(-1), convert, lambda at: at // inner)
    offsets_or_none = np.arange(rows + 1, dtype=np.int64) * inner if feature.variable else None
    return numbers, offsets_or_none, None


def _as_dense_array(column: Any) -> Array | None:
    """A column as one array; None for lists of anything but plain numbers."""
    if isinstance(column, (list, tuple)):
        # Plain numbers: as one array, if NumPy cannot change them.
        kinds = set(map(type, column))
        if kinds == {float} or kinds == {bool}:
            return np.array(column)
        if kinds == {int}:
            try:
                return np.array(column, np.int64)
            except OverflowError:
                return None
        return None
    return as_array(column)


def _store_numbers(numbers: Array, convert: Callable[[Array], Array], row_of: Any) -> Array:
    try:
        return convert(numbers)
    except InvalidValue as failure:
        raise InvalidRowValue(failure, row_of(failure.at or 0)) from None


def _find_row(offsets: Array, at: int) -> int:
    return int(np.searchsorted(offsets, at, side="right")) - 1


def _store_string_column(feature: Feature, column: Any) -> Any:
    if isinstance(column, Strings):
        if column.row_shape != feature.shape:
            return None
        return (column.column, column.text), None, _to_validity(column.valid)
    if isinstance(column, Ragged):
        values = column.values
        if not isinstance(values, Strings) or values.row_shape or feature.shape != (None,):
            return None
        offsets = np.ascontiguousarray(column.offsets, np.int64)
        return (values.column, values.text), offsets, _to_validity(column.valid)
    if isinstance(column, PackedStrings):
        return column.slot() if feature.shape == column.shape else None
    if feature.shape != ():
        return None
    if isinstance(column, np.ndarray) and column.dtype.kind == "S" and column.ndim == 1 and column.dtype.itemsize:
        return (_octets(column, column.dtype.itemsize), True), None, None
    strings = column.tolist() if isinstance(column, np.ndarray) and column.ndim == 1 else column
    if not isinstance(strings, (list, tuple)):
        return None
    strings = strings if isinstance(strings, list) else list(strings)
    plain: Any = _core.plain_strings(strings, feature.is_text, shared_pool())
    if plain is None:
        return None
    packed, valid = plain
    if packed is None:
        packed = strings if valid is None else [b"" if one is None else one for one in strings]
    return packed, None, valid


def _octets(array: Array, row_bytes: int) -> Array:
    """The bytes of an array, a row of it in each row."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(len(array), row_bytes)


class PackedStrings:
    """Concatenated strings in a buffer, as in Arrow."""

    def __init__(
        self, ends: Array, data: Array, *, offsets: Array | None = None, valid: Array | None = None, rows: Any
    ) -> None:
        self.ends = ends
        self.data = data
        self.offsets = offsets
        self.valid = valid
        self.rows = rows  # the same strings, iterable row by row
        self.shape: tuple[int | None, ...] = () if offsets is None else (None,)

    def slot(self) -> Any:
        return (self.ends, self.data), self.offsets, _to_validity(self.valid)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)


@column_slot.register(Tensor)
def pack_tensors(feature: Feature, column: Any, rows: int) -> Any:
    """Tensors of one shape in one array."""
    array = None if isinstance(column, (list, tuple, Ragged, Strings)) else as_array(column)
    if array is None or array.dtype.kind == "O" or isinstance(feature.dtype, str):
        return None
    array = cast_tensor(array, feature)
    check_shape(array.shape[1:], feature.shape, array)
    data = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return (_octets(data, prod(array.shape[1:]) * array.dtype.itemsize), False), None, None


@column_slot.register(Audio)
def _pack_samples(feature: Audio, column: Any, rows: int) -> Any:
    """PCM samples of one length in one array."""
    is_stored = isinstance(column, np.ndarray) and column.dtype == feature.dtype
    return pack_tensors(feature, column, rows) if is_stored else None


def build_slots_by_row(field: ColumnPlan, column: Iterable[Any]) -> Slots:
    """Any column, converted row by row."""
    gathered = _SlotBuilder(field)
    for row, value in enumerate(column):
        try:
            gathered.add(field.feature, value)
        except InvalidValue as failure:
            raise InvalidRowValue(failure, row) from None
    return gathered.slots()


def build_step_slots(field: ColumnPlan, column: Any, rows: int) -> Slots:
    """The record keys of a step column: the steps of all rows, and the offsets of each row."""
    if isinstance(column, Ragged) and isinstance(column.values, (np.ndarray, Strings)) and column.row_shape is None:
        offsets = np.ascontiguousarray(column.offsets, np.int64)
        count = len(column.values)
        valid = _to_validity(column.valid)
        try:
            return [(slot, count, offsets, valid) for slot in build_slots(field, column.values, count)]
        except InvalidRowValue as failure:
            row = _find_row(offsets, failure.row or 0)
            raise InvalidRowValue(failure.invalid_value, row, (failure.row or 0) - int(offsets[row])) from None
    ends = [0]
    there = []
    gathered = _SlotBuilder(field)
    for row, value in enumerate(column):
        there.append(value is not None)
        steps = [] if value is None else list(value)
        for step, one in enumerate(steps):
            try:
                if field.feature.is_missing(one):
                    raise missing_value(field.feature, step)
                gathered.add(field.feature, one)
            except InvalidValue as failure:
                raise InvalidRowValue(failure, row, step) from None
        ends.append(ends[-1] + len(steps))
    offsets = np.array(ends, np.int64)
    valid = _to_validity(there) if there else None
    return [(slot, ends[-1], offsets, valid) for slot in gathered.slots()]


class _SlotBuilder:
    """The stored lists of all rows, concatenated."""

    def __init__(self, field: ColumnPlan) -> None:
        self._numbers: list[list[Array]] = [[] for _ in field.slots]
        self._strings: list[list[bytes]] = [[] for _ in field.slots]
        self._ends: list[list[int]] = [[0] for _ in field.slots]
        self._kinds = [slot.kind for slot in field.slots]
        self._valid: list[bool] = []

    def add(self, feature: Feature, value: Any) -> None:
        missing = feature.is_missing(value)
        self._valid.append(not missing)
        parts = [()] * len(self._ends) if missing else store_value(feature, value)
        for i, part in enumerate(parts):
            self._ends[i].append(self._ends[i][-1] + len(part))
            if isinstance(part, list):
                self._strings[i] += part
            elif len(part):
                self._numbers[i].append(np.asarray(part))

    def slots(self) -> Slots:
        if not any(self._valid):
            # No values, but a row of steps may still exist and be empty.
            return [None] * len(self._ends)
        valid = _to_validity(self._valid)
        out: Slots = []
        for kind, strings, numbers, ends in zip(self._kinds, self._strings, self._numbers, self._ends, strict=True):
            dtype = np.float32 if kind == 2 else np.int64
            values: Any = strings
            if kind != 1:
                values = np.concatenate(numbers) if numbers else np.empty(0, dtype)
            out.append((values, np.array(ends, np.int64), valid))
        return out


def is_arrow(value: Any) -> bool:
    """Whether this is a table, batch or array of pyarrow, without importing it."""
    pa = sys.modules.get("pyarrow")
    return pa is not None and isinstance(value, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray))


def to_arrow_batches(table: Any) -> list[Any]:
    """A table as batches with contiguous columns."""
    return table.to_batches() if hasattr(table, "to_batches") else [table]


def from_arrow(array: Any, feature: Feature) -> Any:
    """An Arrow column as a NumPy array or rekord column; as a list of rows if neither can express it."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    check_zone(array, feature)
    if _is_string(array.type):
        return _arrow_strings(array)
    if _is_number(array.type):
        return _arrow_numbers(array)
    lists = pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    if lists and feature.shape[:1] == (None,) and not getattr(feature, "partitions", ()):
        return _arrow_lists(array)
    if pa.types.is_fixed_size_list(array.type) and not array.null_count:
        dense = _flatten_fixed_lists(array)
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

    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(number or pa.types.is_timestamp(kind))


def _arrow_validity(array: Any) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def _arrow_numbers(array: Any) -> Any:
    if not array.null_count:
        return array.to_numpy(zero_copy_only=False)
    valid = _arrow_validity(array)
    if not valid.any():
        return [None] * len(array)
    filled = array.fill_null(array[int(np.argmax(valid))])
    return Optional(filled.to_numpy(zero_copy_only=False), valid)


def _arrow_strings(array: Any) -> PackedStrings:
    _, ends, data = array.buffers()
    narrow = str(array.type) in ("string", "binary")
    return PackedStrings(
        _read_offsets(ends, np.int32 if narrow else np.int64, array),
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8),
        valid=_arrow_validity(array),
        rows=_LazyArrowRows(array),
    )


def _read_offsets(buffer: Any, dtype: Any, array: Any) -> Any:
    if buffer is None or not buffer.size:
        return np.zeros(len(array) + 1, dtype)
    return np.frombuffer(buffer, dtype)[array.offset : array.offset + len(array) + 1]


def _arrow_lists(array: Any) -> Any:
    """Lists with their elements in one array or buffer; else a list of rows."""
    import pyarrow as pa

    offsets = array.offsets.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    values, valid = array.values, _arrow_validity(array)
    if values.null_count:
        return array.to_pylist()
    if valid is not None and not _is_empty_where_missing(offsets, valid):
        return array.to_pylist()
    if _is_number(values.type):
        return Ragged(values.to_numpy(zero_copy_only=False), offsets, valid=valid)
    if _is_string(values.type):
        inner = _arrow_strings(values)
        return PackedStrings(inner.ends, inner.data, offsets=offsets, valid=valid, rows=_LazyArrowRows(array))
    if pa.types.is_fixed_size_list(values.type):
        dense = _flatten_fixed_lists(values)
        if dense is not None:
            return Ragged(dense, offsets, valid=valid)
    return array.to_pylist()


def _is_empty_where_missing(offsets: Any, valid: Any) -> bool:
    return not bool((np.diff(offsets)[~valid] != 0).any())


def _flatten_fixed_lists(array: Any) -> Any:
    """Nested lists of fixed sizes as one array; None unless they contain numbers without nulls."""
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


class _LazyArrowRows:
    """The rows of an Arrow array, converted to Python values on iteration."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Any:
        return iter(self._array.to_pylist())


_NO_LIMIT = 1 << 62


class EncodedBatches:
    """The records of a batch, encoded lazily in pieces: (frames, rows) each."""

    def __init__(self, batches: list[tuple[_core.ColumnBatch, int]], plan: CodecPlan, enough_bytes: int) -> None:
        self._batches = batches
        self._plan = plan
        self._enough_bytes = enough_bytes
        self.rows = sum(rows for _, rows in batches)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        return ((frames, rows) for frames, rows, _, _ in self._pieces(ends=False))

    def iter_with_index(self, index: CodecPlan | None) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """(frames, int64 array of their ends, Arrow arrays of the columns of `index`) of each piece."""
        for frames, rows, ends, taken in self._pieces(ends=True, index=index):
            yield frames, ends, {} if index is None else written_columns(index, taken, rows)

    def _pieces(
        self, *, ends: bool, index: CodecPlan | None = None
    ) -> Iterator[tuple[Any, int, Any, list[Any] | None]]:
        kept = None if index is None else index.context.reading
        before = 0
        for batch, rows in self._batches:
            done = 0
            while done < rows:
                frames, reached, record_ends, problem, taken = batch.write(done, self._enough_bytes, True, ends, kept)
                if reached > done:
                    yield frames, reached - done, record_ends, taken
                done = reached
                if problem is not None:
                    raise _native_error(self._plan, problem[0], problem[1], before + reached)
            before += rows


def written_columns(plan: CodecPlan, taken: Any, rows: int) -> dict[str, Any]:
    """The context columns of a plan as Arrow arrays; `taken` is what the encoder kept of them."""
    columns = assemble_columns(plan, taken if plan.steps is None else (taken, ()), rows)
    return {name: column_to_arrow(column) for name, column in columns.items()}


def encode_columns(columns: Any, schema: Schema) -> bytes:
    """The records of many rows, framed as in a file.

    `columns` is a dict of columns (NumPy arrays with the rows first, lists, `rk.Ragged`, `rk.Strings`,
    `rk.Optional`), or a pyarrow RecordBatch or Table. An EncodeError names the row.
    """
    pieces = [bytes(frames) for frames, _ in encode_batches(columns, schema, enough_bytes=_NO_LIMIT)]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def encode_batches(columns: Any, schema: Schema, *, enough_bytes: int) -> EncodedBatches:
    """The same in pieces of about `enough_bytes`. All validation happens here, before the first piece."""
    plan = compile_plan(validate_schema(schema))
    validator = RowValidator(plan)
    batches = []
    before = 0
    for batch in to_arrow_batches(columns) if is_arrow(columns) else [columns]:
        try:
            native, rows = _build_native_batch(batch, plan, validator)
            problem: Any = native.check()
            if problem is not None:
                raise _native_error(plan, problem[1], problem[2], problem[0])
        except RekordError as failure:
            row = failure.location.row
            failure.location = replace(failure.location, row=None if row is None else row + before)
            raise
        batches.append((native, rows))
        before += rows
    return EncodedBatches(batches, plan, enough_bytes)


def _build_native_batch(columns: Any, plan: CodecPlan, validator: RowValidator) -> tuple[_core.ColumnBatch, int]:
    if isinstance(columns, Mapping):
        given = dict(columns)
    elif is_arrow(columns):
        given = {name: columns.column(i) for i, name in enumerate(columns.schema.names)}
    else:
        raise error(
            "E325",
            f"columns have type {type(columns).__name__}",
            expected="a dict of columns, a pyarrow RecordBatch or a Table",
            found=describe_value(columns),
            do='{"label": np.array([...]), ...}',
        )
    if any(name not in plan.schema for name in given):
        validator.raise_unknown_keys(given)
    rows = _count_rows(given)
    context = _build_group_slots(plan.context.fields, given, rows, build_slots)
    steps = [] if plan.steps is None else _build_group_slots(plan.steps.fields, given, rows, build_step_slots)
    native = _core.ColumnBatch(
        plan.context.native,
        None if plan.steps is None else plan.steps.native,
        shared_pool(),
        context,
        steps,
        rows,
    )
    return native, rows


def _build_group_slots(
    fields: tuple[ColumnPlan, ...],
    given: dict[str, Any],
    rows: int,
    read: Callable[[ColumnPlan, Any, int], Slots],
) -> Slots:
    out: Slots = []
    for field in fields:
        column = given.get(field.name)
        if column is None:
            if field.feature.required:
                raise _missing_column_error(field.name, row=0 if rows else None)
            out += [None] * len(field.slots)
            continue
        try:
            out += read(field, from_arrow(column, field.feature) if is_arrow(column) else column, rows)
        except InvalidRowValue as failure:
            raise failure.invalid_value.to_error(field.name, row=failure.row, step=failure.step) from None
        except InvalidValue as failure:
            raise failure.to_error(field.name, row=0 if rows == 1 else None) from None
    return out


def _count_rows(given: dict[str, Any]) -> int:
    rows: int | None = None
    first = ""
    for name, column in given.items():
        if column is None:
            continue
        try:
            count = len(column)
            if isinstance(column, (str, bytes, Mapping)):
                raise TypeError
        except TypeError:
            raise _length_mismatch_error(name, "a column with one value per row", describe_value(column)) from None
        if rows is None:
            rows, first = count, name
        elif count != rows:
            raise _length_mismatch_error(name, f"{rows:,} rows, as in `{first}`", f"{count:,} rows")
    return rows or 0


def _length_mismatch_error(name: str, expected: str, found: str) -> RekordError:
    return error(
        "E326",
        f"`{name}` does not have one value per row of the batch",
        location=Location(feature=name),
        expected=expected,
        found=found,
        do="give all columns the same number of rows",
    )


def _missing_column_error(name: str, *, row: int | None) -> RekordError:
    return InvalidValue(
        "E301",
        "is required and has no value",
        expected="a value in every row",
        found="None, or no such column",
        do="give values, or declare optional=True or default=",
    ).to_error(name, row=row)


def _native_error(plan: CodecPlan, problem: _core.Problem, slot: int, row: int) -> RekordError:
    """The error for a problem that the core found in one row."""
    if problem.fault == _core.Fault.LENGTH:
        failure = too_large_error()
        failure.location = Location(row=row)
        return failure
    first_of_steps = len(plan.context.slots)
    group = plan.context if slot < first_of_steps else plan.steps
    assert group is not None
    field = group.column_of_slot(slot if group is plan.context else slot - first_of_steps)
    if problem.fault == _core.Fault.MISSING:
        return _missing_column_error(field.name, row=row)
    if problem.fault == _core.Fault.NOT_UTF8:
        return InvalidValue(
            "E318",
            "is not valid UTF-8",
            expected="UTF-8 bytes",
            found="invalid UTF-8",
            do="Bytes() keeps the bytes unchanged",
        ).to_error(field.name, row=row)
    return InvalidValue(
        "E307",
        "has the wrong number of values",
        expected=f"{'a multiple of ' if field.feature.variable else ''}{problem.expected:,} values",
        found=f"{problem.found:,} values",
        do="give this number of values, or declare another shape",
    ).to_error(field.name, row=row)
