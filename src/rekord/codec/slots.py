"""One column of a batch as the core takes it: (values, offsets, valid) for each record key."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.columns import Array, Optional, Ragged, Strings
from rekord.codec.encode import pool
from rekord.codec.nested import as_array, check_shape
from rekord.codec.number_rule import NumberRule
from rekord.codec.numbers import store
from rekord.codec.plan import Field
from rekord.codec.rows import stored
from rekord.codec.tensors import cast_tensor
from rekord.codec.unfit import Unfit
from rekord.schema import Bytes, Feature, Float32, Int64, Label, Tensor, Text

Slots: TypeAlias = "list[Any]"
"""What the core takes, a record key each; None where no row has a value."""


class ByRow(Exception):
    """A value that does not fit, and the row it is in."""

    def __init__(self, unfit: Unfit, row: int | None, step: int | None = None) -> None:
        super().__init__(unfit.code)
        self.unfit = unfit
        self.row = row
        self.step = step


def slots_of(field: Field, column: Any, rows: int) -> Slots:
    """The record keys of one column."""
    if isinstance(column, Optional):
        return _optional(field, column, rows)
    feature = field.feature
    if not getattr(feature, "partitions", ()):
        match feature:
            case Int64() | Label() | Float32():
                found = _numbers(field, column, rows)
            case Bytes() | Text():
                found = _strings(field, column, rows)
            case Tensor():
                found = _tensors(feature, column, rows)
            case _:
                found = None
        if found is not None:
            return [found]
    return by_rows(field, column)


def _flags(valid: Any) -> Array | None:
    if valid is None:
        return None
    flags = np.ascontiguousarray(valid, np.bool_)
    return None if flags.all() else flags.view(np.uint8)


def _optional(field: Field, column: Any, rows: int) -> Slots:
    """A dense column with holes. What stands in a hole is not a value, and is not judged as one."""
    valid = np.asarray(column.valid, np.bool_)
    if not valid.any():
        return [None] * len(field.slots)
    values = column.values
    if not valid.all():
        values = np.array(values)
        values[~valid] = values[int(np.argmax(valid))]
    return [
        None if slot is None else (slot[0], slot[1], _flags(valid)) for slot in slots_of(field, values, rows)
    ]


def _numbers(field: Field, column: Any, rows: int) -> Any:
    """A column of numbers that lie in one array; None where rows must be looked at one by one."""
    feature = field.feature
    rule = NumberRule.of(feature)
    if isinstance(column, Ragged):
        values = column.values
        if not isinstance(values, np.ndarray) or column.row_shape is not None or feature.shape[:1] != (None,):
            return None
        check_shape((0, *values.shape[1:]), feature.shape, values)
        offsets = np.asarray(column.offsets, np.int64)
        begin, end = int(offsets[0]), int(offsets[-1])
        inner = prod(values.shape[1:])
        numbers = _stored(
            values[begin:end].reshape(-1), rule, lambda at: _row_of(offsets - begin, at // inner)
        )
        return numbers, np.ascontiguousarray((offsets - begin) * inner), _flags(column.valid)
    array = _dense(column)
    if array is None:
        return None
    if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
        return None
    check_shape(array.shape[1:], feature.shape, array)
    inner = prod(array.shape[1:])
    numbers = _stored(array.reshape(-1), rule, lambda at: at // inner)
    offsets_or_none = np.arange(rows + 1, dtype=np.int64) * inner if feature.variable else None
    return numbers, offsets_or_none, None


def _dense(column: Any) -> Array | None:
    """A column that is one array; a list is not looked into here."""
    if isinstance(column, (list, tuple)):
        # Plain numbers: as one array, where NumPy cannot change them on the way.
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


def _stored(numbers: Array, rule: NumberRule, row_of: Any) -> Array:
    try:
        return store(numbers, rule)
    except Unfit as unfit:
        raise ByRow(unfit, row_of(unfit.at or 0)) from None


def _row_of(offsets: Array, at: int) -> int:
    return int(np.searchsorted(offsets, at, side="right")) - 1


def _strings(field: Field, column: Any, rows: int) -> Any:
    feature = field.feature
    if isinstance(column, Strings):
        if column.row_shape != feature.shape:
            return None
        return (column._column, column.text), None, _flags(column.valid)
    if isinstance(column, Ragged):
        values = column.values
        if not isinstance(values, Strings) or values.row_shape or feature.shape != (None,):
            return None
        return (
            (values._column, values.text),
            np.ascontiguousarray(column.offsets, np.int64),
            _flags(column.valid),
        )
    if isinstance(column, PackedStrings):
        return column.slot() if feature.shape == column.shape else None
    if feature.shape != ():
        return None
    if isinstance(column, np.ndarray) and column.dtype.kind == "S" and isinstance(feature, Bytes):
        return _fixed_width(column) if column.ndim == 1 and column.dtype.itemsize else None
    strings = column.tolist() if isinstance(column, np.ndarray) and column.ndim == 1 else column
    if not isinstance(strings, (list, tuple)):
        return None
    strings = strings if isinstance(strings, list) else list(strings)
    plain: Any = _core.plain_strings(strings, isinstance(feature, Text), pool())
    if plain is None:
        return None
    packed, valid = plain
    if packed is None:
        packed = strings if valid is None else [b"" if one is None else one for one in strings]
    return packed, None, valid


def _fixed_width(column: Array) -> Any:
    """An array of NumPy's byte strings, which it pads with zeros: the strings end before those."""
    width = column.dtype.itemsize
    octets = np.ascontiguousarray(column).view(np.uint8).reshape(len(column), width)
    if octets[:, -1].all():
        ends = np.arange(len(column) + 1, dtype=np.int64) * width
        return (ends, octets.reshape(-1)), None, None
    there = octets != 0
    lengths = np.where(there.any(axis=1), width - there[:, ::-1].argmax(axis=1), 0)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return (ends, octets[np.arange(width) < lengths[:, None]]), None, None


class PackedStrings:
    """Strings that lie end to end in a buffer, as Arrow keeps them."""

    def __init__(
        self, ends: Array, data: Array, *, offsets: Array | None = None, valid: Array | None = None, rows: Any
    ) -> None:
        self.ends = ends
        self.data = data
        self.offsets = offsets
        self.valid = valid
        self.rows = rows  # the same as something that can be walked row by row
        self.shape: tuple[int | None, ...] = () if offsets is None else (None,)

    def slot(self) -> Any:
        return (self.ends, self.data), self.offsets, _flags(self.valid)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Any:
        return iter(self.rows)


def _tensors(feature: Tensor, column: Any, rows: int) -> Any:
    """Tensors of one shape that lie in one array."""
    array = None if isinstance(column, (list, tuple, Ragged, Strings)) else as_array(column)
    if array is None or array.dtype.kind == "O" or isinstance(feature.dtype, str):
        return None
    array = cast_tensor(array, feature)
    check_shape(array.shape[1:], feature.shape, array)
    data = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    each = prod(array.shape[1:]) * array.dtype.itemsize
    ends = np.arange(rows + 1, dtype=np.int64) * each
    return (ends, data.reshape(-1).view(np.uint8)), None, None


def by_rows(field: Field, column: Iterable[Any]) -> Slots:
    """Any column, one row after another as single rows are."""
    gathered = _Gathered(field)
    for row, value in enumerate(column):
        try:
            gathered.add(field.feature, value)
        except Unfit as unfit:
            raise ByRow(unfit, row) from None
    return gathered.slots()


def steps_of(field: Field, column: Any, rows: int) -> Slots:
    """The record keys of a column of steps: the steps of all rows, and where each row's begin."""
    if (
        isinstance(column, Ragged)
        and isinstance(column.values, (np.ndarray, Strings))
        and column.row_shape is None
    ):
        offsets = np.ascontiguousarray(column.offsets, np.int64)
        count = len(column.values)
        valid = _flags(column.valid)
        try:
            return [_step_slot(slot, count, offsets, valid) for slot in slots_of(field, column.values, count)]
        except ByRow as failure:
            row = _row_of(offsets, failure.row or 0)
            raise ByRow(failure.unfit, row, (failure.row or 0) - int(offsets[row])) from None
    ends = [0]
    there = []
    gathered = _Gathered(field)
    for row, value in enumerate(column):
        there.append(value is not None)
        steps = [] if value is None else list(value)
        for step, one in enumerate(steps):
            try:
                if one is None:
                    raise _no_step()
                gathered.add(field.feature, one)
            except Unfit as unfit:
                raise ByRow(unfit, row, step) from None
        ends.append(ends[-1] + len(steps))
    offsets = np.array(ends, np.int64)
    valid = _flags(there) if there else None
    return [_step_slot(slot, ends[-1], offsets, valid) for slot in gathered.slots()]


def _step_slot(slot: Any, count: int, offsets: Array, valid: Array | None) -> Any:
    return slot, count, offsets, valid


def _no_step() -> Unfit:
    return Unfit(
        "E301",
        "has no value",
        expected="a value in every step",
        found="None",
        do="leave the step out, or give it a value",
    )


class _Gathered:
    """The stored lists of row after row, joined."""

    def __init__(self, field: Field) -> None:
        self._numbers: list[list[Array]] = [[] for _ in field.slots]
        self._strings: list[list[bytes]] = [[] for _ in field.slots]
        self._ends: list[list[int]] = [[0] for _ in field.slots]
        self._kinds = [slot.kind for slot in field.slots]
        self._valid: list[bool] = []

    def add(self, feature: Feature, value: Any) -> None:
        self._valid.append(value is not None)
        parts = [()] * len(self._ends) if value is None else stored(feature, value)
        for i, part in enumerate(parts):
            self._ends[i].append(self._ends[i][-1] + len(part))
            if isinstance(part, list):
                self._strings[i] += part
            elif len(part):
                self._numbers[i].append(np.asarray(part))

    def slots(self) -> Slots:
        if not any(self._valid):
            # Nothing to look at, but a row of steps may still be there and empty.
            return [None] * len(self._ends)
        valid = _flags(self._valid)
        out: Slots = []
        for kind, strings, numbers, ends in zip(
            self._kinds, self._strings, self._numbers, self._ends, strict=True
        ):
            dtype = np.float32 if kind == 2 else np.int64
            values: Any = strings
            if kind != 1:
                values = np.concatenate(numbers) if numbers else np.empty(0, dtype)
            out.append((values, np.array(ends, np.int64), valid))
        return out
