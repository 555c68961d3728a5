"""Payloads to Python values and columns, with a schema or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from math import prod
from typing import Any, Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord._core import Fault, Problem
from rekord.arguments import invalid
from rekord.codec.columns import Array, Column, Offsets, Optional, Ragged, SparseColumn, Strings, Validity
from rekord.codec.plan import CodecPlan, ColumnPlan, GroupPlan, SlotPlan, compile_plan
from rekord.codec.values import suggest_key_fix, suggest_kind_fix
from rekord.errors import RekordError, closest_matches, error
from rekord.faults import is_wire_fault, wire_error
from rekord.location import Location
from rekord.schema import Audio, Boxes, Feature, Schema, Sparse, Tensor
from rekord.schema.schema import KIND_NAMES, RecordKind, check_kind

RawColumn: TypeAlias = tuple[Any, Offsets | None, Validity | None]
"""(values, offsets, valid) of one slot, as returned by the core."""


def assemble_columns(plan: CodecPlan, taken: Any, rows: int) -> dict[str, Column]:
    """The columns of a batch of `rows`, from `take()` of the core's batch.

    The location of a DecodeError has the row in the batch as `row`; the reader turns it into a record.
    """
    if plan.steps is None:
        return _assemble_group(plan.context, taken, rows)
    context, steps = taken
    out = _assemble_group(plan.context, context, rows)
    for field in plan.steps.selected:
        out[field.name] = _assemble_steps(field, steps[field.first : field.first + len(field.slots)])
    return out


def truncate_rows(plan: CodecPlan, taken: Any, rows: int) -> Any:
    """The first rows of a `take()`: those before an invalid row."""
    if plan.steps is None:
        return [_truncate_slot(raw, slot, rows) for raw, slot in zip(taken, plan.context.slots, strict=True)]
    context, steps = taken
    out: list[Any] = []
    for part, slot in zip(steps, plan.steps.slots, strict=True):
        if part is None:
            out.append(None)
            continue
        raw, offsets, valid = part
        inner = _truncate_slot(raw, slot, int(offsets[rows]))
        out.append((inner, offsets[: rows + 1], None if valid is None else valid[:rows]))
    return [_truncate_slot(raw, slot, rows) for raw, slot in zip(context, plan.context.slots, strict=True)], out


def _truncate_slot(raw: RawColumn | None, slot: SlotPlan, rows: int) -> RawColumn | None:
    if raw is None:
        return None
    values, offsets, valid = raw
    count = rows * slot.count if offsets is None else int(offsets[rows])
    strings = isinstance(values, _core.StringColumn)
    kept = _core.strings(values.list_bytes(0, count)) if strings else values[:count]
    return kept, None if offsets is None else offsets[: rows + 1], None if valid is None else valid[:rows]


def _assemble_group(group: GroupPlan, raws: Sequence[RawColumn], rows: int) -> dict[str, Column]:
    out: dict[str, Column] = {}
    for field in group.selected:
        first = field.first
        if not field.is_as_stored:
            out[field.name] = _assemble_column(field, raws[first : first + len(field.slots)], rows)
        elif field.is_string:
            out[field.name] = Strings(raws[first][0], field.text)
        else:
            out[field.name] = raws[first][0]
    return out


def _assemble_column(field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> Column:
    feature = field.feature
    if len(parts) > 1 and feature.has_default:
        _check_equal_presence(field, rows, [part[2] for part in parts])
        parts = [_fill_missing(part, slot.fill) for part, slot in zip(parts, field.slots, strict=True)]
    return decoded_column(feature, field, parts, rows)


@singledispatch
def decoded_column(feature: Feature, field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> Column:
    """The column of a feature from the lists of its record keys."""
    return _assemble_partitioned(field, parts) if len(parts) > 1 else _assemble_plain(field, parts[0], rows)


def _fill_missing(raw: RawColumn, fill: tuple[Any, ...] | None) -> RawColumn:
    """A slot of ragged rows with its default for missing rows."""
    values, offsets, valid = raw
    if valid is None:
        return raw
    assert offsets is not None
    assert fill is not None
    lengths = np.diff(offsets)
    lengths[~valid] = len(fill)
    places = np.repeat(offsets[:-1][~valid], len(fill))
    whole: Any = values
    if isinstance(values, _core.StringColumn):
        whole = np.array([*values.list_bytes(0, len(values)), None], object)[:-1]
    new: Any = np.insert(whole, places, np.tile(np.array([*fill, None], object)[:-1], int((~valid).sum())))
    if isinstance(values, _core.StringColumn):
        new = _core.strings(new.tolist())
    return new, np.concatenate([[0], np.cumsum(lengths)]), None


def _assemble_plain(field: ColumnPlan, raw: RawColumn, rows: int) -> Column:
    """A column of one key whose values are list elements."""
    values, offsets, valid = raw
    feature = field.feature
    shape = feature.stored_shape
    if offsets is None:
        if isinstance(values, _core.StringColumn):
            sizes = tuple(size for size in shape if size is not None)
            return Strings(values, text=field.text, valid=valid, row_shape=sizes, rows=rows)
        dense = _cast_values(field, values, rows).reshape(rows, *shape)
        return _to_optional(dense, valid) if feature.optional else dense
    return _assemble_ragged(field, values, offsets, valid, shape)


def _assemble_ragged(
    field: ColumnPlan, values: Any, offsets: Offsets, valid: Validity | None, shape: tuple[int | None, ...]
) -> Ragged:
    inner: Array | Strings
    if isinstance(values, _core.StringColumn):
        inner = Strings(values, text=field.text)
    else:
        inner = _cast_values(field, values, len(offsets) - 1, offsets)
    sizes = [size for size in shape if size is not None]
    if not sizes:
        return Ragged(inner, offsets, valid=valid)
    if shape[0] is not None:
        row_shape = tuple(-1 if size is None else size for size in shape)
        return Ragged(inner, offsets, valid=valid, row_shape=row_shape)
    whole = int(np.prod(sizes))
    if isinstance(inner, Strings):
        inner = Strings(values, text=inner.text, row_shape=tuple(sizes))
    else:
        inner = inner.reshape(-1, *sizes)
    return Ragged(inner, offsets // whole, valid=valid)


def _cast_values(field: ColumnPlan, values: Array, rows: int, offsets: Offsets | None = None) -> Array:
    """Stored int64 or float32 values in the declared dtype, without changing any of them."""
    dtype = _declared_dtype(field)
    if dtype is None or values.dtype == dtype:
        return values
    if dtype == np.uint64 or dtype.kind == "M":
        return values.view(dtype)
    if values.dtype == np.int64:
        low, high = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        bad = (values < low) | (values > high)
        typed = values.astype(dtype)
    else:
        with np.errstate(over="ignore"):
            typed = values.astype(dtype)
        bad = np.isfinite(values) & ~np.isfinite(typed.astype(np.float32))
    if bad.any():
        first = int(bad.argmax())
        row = first * rows // len(values) if offsets is None else _find_row(offsets, first)
        raise column_error(
            field,
            "D405",
            f"`{field.name}` has a value that does not fit {dtype}",
            row=row,
            expected=f"values of {dtype}",
            found=str(values[first]),
            do=f"declare a wider dtype for `{field.name}`",
        )
    return typed


def _declared_dtype(field: ColumnPlan) -> Any:
    """The declared dtype; a str is a dtype that needs another package."""
    dtype = field.feature.dtype
    if isinstance(dtype, str):
        raise error(
            "U602",
            f"`{field.name}` has dtype {dtype}, which needs ml_dtypes",
            location=Location(feature=field.name),
            expected="the package ml_dtypes",
            found="not installed",
            do="pip install ml_dtypes",
        )
    return dtype


def _to_optional(values: Array, valid: Validity | None) -> Optional:
    return Optional(values, np.ones(len(values), np.bool_) if valid is None else valid)


@decoded_column.register(Tensor)
def _assemble_tensor(feature: Tensor, field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> Column:
    if feature.stores_shape:
        return _assemble_shaped_tensors(feature, field, parts)
    return assemble_raw_bytes(feature, field, parts, rows)


def assemble_raw_bytes(feature: Feature, field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> Column:
    """Raw bytes as arrays; zero-copy for contiguous rows of one shape."""
    column, _, valid = parts[0]
    ends, data = Strings(column).packed()
    dtype = _declared_dtype(field).newbyteorder("<")
    sizes = [size for size in feature.shape if size is not None]
    whole = int(np.prod(sizes)) * dtype.itemsize
    lengths = np.diff(ends)
    there = np.ones(rows, np.bool_) if valid is None else valid
    varies = None in feature.shape
    wrong = there & ((lengths % whole != 0) if varies else (lengths != whole))
    if wrong.any():
        row = int(wrong.argmax())
        raise column_error(
            field,
            "D406",
            f"`{field.name}` has bytes that do not match {dtype.name} {feature.shape}",
            row=row,
            expected=f"{'a multiple of ' if varies else ''}{whole:,} bytes",
            found=f"{int(lengths[row]):,} bytes{_dtype_hint(int(lengths[row]), whole)}",
            do="declare the dtype and shape of the stored tensor",
        )
    if dtype == np.bool_ and (data > 1).any():
        row = int(np.searchsorted(ends, int((data > 1).argmax()), side="right")) - 1
        raise _not_bool_error(field, row, int(data[data > 1][0]))
    if varies:
        flat = data.view(dtype)
        offsets = ends // dtype.itemsize
        if feature.shape[0] is None:
            inner = flat.reshape(-1, *sizes)
            return Ragged(inner, offsets // (whole // dtype.itemsize), valid=valid)
        row_shape = tuple(-1 if size is None else size for size in feature.shape)
        return Ragged(flat, offsets, valid=valid, row_shape=row_shape)
    if valid is not None and not valid.all():
        dense = np.zeros((rows, *sizes), dtype)
        dense[valid] = data.view(dtype).reshape(-1, *sizes)
    else:
        dense = data.view(dtype).reshape(rows, *sizes)
    return _to_optional(dense, valid) if feature.optional else dense


def _assemble_shaped_tensors(feature: Tensor, field: ColumnPlan, parts: Sequence[RawColumn]) -> Array:
    """Arrays with their own shapes: an object array, with None for missing rows."""
    (column, starts, valid), (sizes, shape_offsets, shape_valid) = parts
    assert starts is not None
    assert shape_offsets is not None
    rows = len(starts) - 1
    _check_equal_presence(field, rows, [valid, shape_valid])
    dtype = _declared_dtype(field).newbyteorder("<")
    ends, data = Strings(column).packed()
    out = np.full(rows, None, object)
    for row in range(rows):
        if valid is not None and not valid[row]:
            continue
        shape = sizes[shape_offsets[row] : shape_offsets[row + 1]].tolist()
        first, count = int(starts[row]), int(starts[row + 1] - starts[row])
        stored = data[ends[first] : ends[first + 1]] if count == 1 else data[:0]
        fits = len(shape) == len(feature.shape) and all(
            size >= 0 and declared in (None, size) for size, declared in zip(shape, feature.shape, strict=True)
        )
        if not fits or count != 1 or prod(shape) * dtype.itemsize != len(stored):
            raise column_error(
                field,
                "D413",
                f"`{field.name}` has bytes and a shape that do not match {dtype.name} {feature.shape}",
                row=row,
                expected=f"one string of {dtype.name}, and its shape under `{field.slots[1].key}`"[:120],
                found=f"{count:,} strings of {len(stored):,} bytes, and the shape {tuple(shape[:8])}",
                do="declare the dtype and shape of the stored tensor, or write the records again",
            )
        if dtype == np.bool_ and (stored > 1).any():
            raise _not_bool_error(field, row, int(stored[stored > 1][0]))
        out[row] = stored.view(dtype).reshape(shape)
    return out


def _not_bool_error(field: ColumnPlan, row: int, found: int) -> RekordError:
    return column_error(
        field,
        "D405",
        f"`{field.name}` has a byte that is not a bool",
        row=row,
        expected="bytes 0 and 1",
        found=str(found),
        do='declare rk.Tensor("uint8", …)',
    )


@decoded_column.register(Audio)
def _assemble_audio(feature: Audio, field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> Column:
    """PCM samples as arrays, encoded files as they are."""
    return (
        assemble_raw_bytes(feature, field, parts, rows) if feature.is_pcm else _assemble_plain(field, parts[0], rows)
    )


def _dtype_hint(found: int, expected: int) -> str:
    """A hint for a ratio of 2, 4 or 8, which indicates a wrong dtype."""
    for ratio in (2, 4, 8):
        if found == expected * ratio:
            return f": {ratio} × as many, possibly a wider dtype"
        if found * ratio == expected:
            return f": 1/{ratio} of that, possibly a narrower dtype"
    return ""


@decoded_column.register(Sparse)
def _assemble_sparse(feature: Sparse, field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> SparseColumn:
    (indices, index_offsets, index_valid), (values, value_offsets, value_valid) = parts
    assert index_offsets is not None
    assert value_offsets is not None
    _check_equal_lengths(field, (index_offsets, value_offsets), (index_valid, value_valid))
    bad = (indices < 0) | (indices >= feature.size)
    if bad.any():
        first = int(bad.argmax())
        raise column_error(
            field,
            "D407",
            f"`{field.name}` has an index out of range",
            row=_find_row(index_offsets, first),
            expected=f"indices from 0 to {feature.size - 1:,}",
            found=f"{int(indices[first]):,}",
            do=f"declare a larger size=, or write `{field.name}` again",
        )
    typed = _cast_values(field, values, len(value_offsets) - 1, value_offsets)
    return SparseColumn(
        Ragged(indices, index_offsets, valid=value_valid),
        Ragged(typed, value_offsets, valid=value_valid),
        feature.size,
    )


@decoded_column.register(Boxes)
def _assemble_boxes(feature: Boxes, field: ColumnPlan, parts: Sequence[RawColumn], rows: int) -> Ragged:
    offsets = [part[1] for part in parts]
    _check_equal_lengths(field, offsets, [part[2] for part in parts])
    assert offsets[0] is not None
    return Ragged(np.stack([part[0] for part in parts], axis=1), offsets[0], valid=parts[0][2])


def _check_equal_lengths(field: ColumnPlan, offsets: Sequence[Any], valids: Sequence[Validity | None]) -> None:
    """The keys of one column must have the same number of values in each row, and the same missing rows."""
    _check_equal_presence(field, len(offsets[0]) - 1, valids)
    first = np.diff(offsets[0])
    for i in range(1, len(offsets)):
        wrong = np.diff(offsets[i]) != first
        if wrong.any():
            row = int(wrong.argmax())
            expected = f"{int(first[row]):,} values in `{field.slots[i].key}`, as in `{field.slots[0].key}`"
            raise _key_mismatch_error(field, row, expected, f"{int(np.diff(offsets[i])[row]):,}")


def _check_equal_presence(field: ColumnPlan, rows: int, valids: Sequence[Validity | None]) -> None:
    """A row has all keys of a column, or none."""
    there = [np.ones(rows, np.bool_) if valid is None else valid for valid in valids]
    for i in range(1, len(there)):
        wrong = there[i] != there[0]
        if wrong.any():
            row = int(wrong.argmax())
            keys = [slot.key for slot in field.slots]
            has, lacks = (keys[0], keys[i]) if there[0][row] else (keys[i], keys[0])
            raise _key_mismatch_error(
                field,
                row,
                f"all of {', '.join([f'`{key}`' for key in keys])}, or none",
                f"`{has}` without `{lacks}`",
            )


def _key_mismatch_error(field: ColumnPlan, row: int, expected: str, found: str) -> RekordError:
    return column_error(
        field,
        "D407",
        f"keys of `{field.name}` do not match",
        row=row,
        expected=expected,
        found=found,
        do="write these records again: all keys of a column must be written together",
    )


def _preview_numbers(values: Array) -> str:
    """The first few numbers of a record."""
    shown = ", ".join([str(int(value)) for value in values[:4]])
    return f"{shown}, …" if len(values) > 4 else shown or "none"


def _assemble_partitioned(field: ColumnPlan, parts: Sequence[RawColumn]) -> Ragged:
    """Flat values and inner row lengths as nested ragged columns."""
    values, offsets, valid = parts[0]
    assert offsets is not None
    _check_equal_presence(field, len(offsets) - 1, [part[2] for part in parts])
    shape = field.feature.shape
    nones = len(parts)
    level = _assemble_ragged(field, values, offsets, None, (None, *shape[nones:]))
    out: Array | Strings | Ragged | SparseColumn = level.values
    outer = level.offsets
    for lengths, length_offsets, _ in reversed(parts[1:]):
        assert length_offsets is not None
        # A length beyond the number of values is wrong, and the sum might overflow.
        impossible = (lengths < 0) | (lengths > outer[-1])
        ends = np.concatenate([[0], np.cumsum(np.where(impossible, 0, lengths))])
        # The offsets of each record, once in rows and once in values.
        wrong = np.diff(ends[length_offsets]) != np.diff(outer)
        if impossible.any() or wrong.any():
            rows = [_find_row(length_offsets, int(impossible.argmax()))] if impossible.any() else []
            rows += [int(wrong.argmax())] if wrong.any() else []
            row = min(rows)
            found = lengths[length_offsets[row] : length_offsets[row + 1]]
            raise column_error(
                field,
                "D407",
                f"row lengths of `{field.name}` do not add up to its values",
                row=row,
                expected=f"lengths ≥ 0 with the sum {int(outer[row + 1] - outer[row]):,}",
                found=_preview_numbers(found),
                do="write these records again: all keys of a column must be written together",
            )
        out = Ragged(out, ends.astype(np.int64))
        outer = length_offsets
    return Ragged(out, outer, valid=valid)


def _assemble_steps(field: ColumnPlan, parts: Sequence[Any]) -> Ragged:
    """The steps of each record; ragged steps are doubly ragged."""
    raws = [raw for raw, _, _ in parts]
    _check_equal_lengths(field, [offsets for _, offsets, _ in parts], [valid for _, _, valid in parts])
    _, offsets, valid = parts[0]
    try:
        inner = _assemble_column(field, raws, int(offsets[-1]))
    except RekordError as failure:
        if failure.location.row is not None:
            row = _find_row(offsets, failure.location.row)
            failure.location = Location(feature=failure.location.feature, row=row)
        raise
    return Ragged(inner.values if isinstance(inner, Optional) else inner, offsets, valid=valid)


def _find_row(offsets: Offsets, value: int) -> int:
    return int(np.searchsorted(offsets, value, side="right")) - 1


def column_error(
    field: ColumnPlan, code: str, what: str, *, row: int | None, expected: str, found: str, do: str
) -> RekordError:
    """The error for stored data that does not match the feature of its column."""
    where = Location(feature=field.name, row=row)
    return error(code, what, location=where, expected=expected, found=found, do=do)


DecodedValue: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float32] | list[bytes] | None"
"""The value of a Feature: int64 or float32 values, byte strings, or None if no kind is set."""

_LIST_NAMES = {1: "bytes_list", 2: "float_list", 3: "int64_list"}
_KIND_NAMES = {1: "bytes", 2: "float", 3: "int64"}
_MAX_COMPARED_KEYS = 1000
_MAX_NAMED_KEYS = 3
_INFER_HINT = "rekord infer PATH -o schema.json      (reads all records), then pass schema="
_MAX_IDLE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SequenceExample:
    """A decoded tf.train.SequenceExample."""

    context: dict[str, DecodedValue]
    steps: dict[str, list[DecodedValue]]


PayloadBytes: TypeAlias = "bytes | bytearray | memoryview"


@overload
def decode(payload: PayloadBytes, schema: Schema, kind: RecordKind | None = None) -> dict[str, Any]: ...
@overload
def decode(
    payload: PayloadBytes, schema: None = None, kind: Literal["example"] | None = None
) -> dict[str, DecodedValue]: ...
@overload
def decode(payload: PayloadBytes, schema: None = None, *, kind: Literal["sequence"]) -> SequenceExample: ...
@overload
def decode(payload: PayloadBytes, schema: None = None, *, kind: Literal["bytes"]) -> bytes: ...
def decode(
    payload: PayloadBytes, schema: Schema | None = None, kind: RecordKind | None = None
) -> dict[str, Any] | SequenceExample | bytes:
    """The values of a payload.

    With a schema: one row, `{column: value}` in the declared shapes and dtypes, None for missing optional values.
    Without: `{key: int64 array | float32 array | list of bytes | None}`; with `kind="sequence"`, a SequenceExample
    with `.context` (such a dict) and `.steps` (`{key: [one such value per step]}`). `kind="bytes"` gives the payload
    itself. Invalid protobuf raises a WireError, a mismatch with the schema a DecodeError.
    """
    data = _require_bytes(payload)
    check_kind(kind)
    if schema is not None:
        if kind not in (None, schema.kind):
            raise error(
                "U605",
                f"`kind` cannot be {kind!r} with a schema of {KIND_NAMES[schema.kind]}",
                expected="the kind of the schema",
                found=repr(kind)[:60],
                do="drop `kind`",
            )
        return _decode_row(data, compile_plan(schema))
    if kind == "bytes":
        return data
    sequence = kind == "sequence"
    decoded: Any = _core.decode_sequence(data) if sequence else _core.decode_example(data)
    if isinstance(decoded, _core.Problem):
        raise wire_error(decoded)
    return SequenceExample(*decoded) if sequence else decoded


def new_batch(plan: CodecPlan, pool: _core.Pool) -> _core.ExampleBatch | _core.SequenceBatch | _core.PayloadBatch:
    """A native batch that decodes with this plan."""
    if plan.is_payload:
        return _core.PayloadBatch(not plan.context.selected, pool)
    if plan.steps is None:
        return _core.ExampleBatch(plan.context.reading, pool)
    return _core.SequenceBatch(plan.context.reading, plan.steps.reading, pool)


def row_error(plan: CodecPlan, problem: Problem, slot: int, payload: bytes) -> RekordError:
    """The error for a payload that does not match the plan."""
    if is_wire_fault(problem.fault):
        return wire_error(problem)
    if problem.fault == Fault.UNKNOWN_KEY:
        return _unknown_key_error(problem, payload)
    field, key, group = _find_column_plan(plan, slot)
    texts = _describe_problem(field, key, problem, _PayloadContext(plan, group, payload))
    code, what, expected, found, do = texts
    where = Location(feature=field.name, payload_offset=problem.at or None)
    failure = error(code, what, location=where, expected=expected, found=found, do=do)
    if plan.inferred:
        failure.likely = "the schema was inferred from the first records; this one differs"
        failure.do = _INFER_HINT
    return failure


@dataclass(frozen=True, slots=True)
class _PayloadContext:
    """The rest of an invalid payload, decoded only if a message needs it."""

    plan: CodecPlan
    group: GroupPlan
    payload: bytes

    @property
    def is_step(self) -> bool:
        return self.group is self.plan.steps

    def stored(self) -> dict[str, Any]:
        """The contents of the payload; empty if it cannot be decoded."""
        try:
            found = decode(self.payload, kind="example" if self.plan.steps is None else "sequence")
        except RekordError:
            return {}
        if isinstance(found, SequenceExample):
            return found.steps if self.is_step else found.context
        return dict(found)

    def near(self, key: str) -> list[str]:
        """Keys without a column that are similar to a missing one."""
        known = {slot.key for slot in self.group.slots}
        others = [one for one, value in self.stored().items() if value is not None and one not in known]
        return closest_matches(key, others[:_MAX_COMPARED_KEYS])[:_MAX_NAMED_KEYS]


def _describe_problem(
    field: ColumnPlan, key: str, problem: Problem, beside: _PayloadContext
) -> tuple[str, str, str, str, str]:
    """(code, what, expected, found, do)"""
    name, declared = field.name, type(field.feature).__name__
    stored = "" if key == name else f" (stored as `{key}`)"
    match problem.fault:
        case Fault.MISSING:
            near = beside.near(key)
            return (
                "D401",
                f"`{name}`{stored} is required and missing",
                f"a value under `{key}`",
                f"no such key, but {_format_keys(near)}" if near else "no such key, or one without a kind",
                suggest_key_fix(name, key, near[0])
                if near
                else f"declare `{name}` with optional=True or default=…, or write the records again",
            )
        case Fault.WRONG_COUNT:
            shape = field.feature.shape
            many = "a multiple of " if None in shape and problem.expected > 1 else ""
            of_shape = field.feature.storage == "list"
            shaped = f", for shape {shape}" if of_shape else f", as {declared} is stored"
            return (
                "D402",
                f"`{name}`{stored} has the wrong number of values",
                f"{many}{_format_value_count(problem.expected)}{shaped}",
                _format_value_count(problem.found),
                f"declare the stored shape, e.g. {declared}(shape=(None,)) for any number"
                if of_shape
                else f"declare `{name}` as rk.Bytes(shape=(None,)), or write the records again",
            )
        case Fault.WRONG_KIND:
            kind, values = _KIND_NAMES[problem.found], beside.stored().get(key, ())
            return (
                "D403",
                f"`{name}`{stored} is stored as {_LIST_NAMES[problem.found]}, expected {declared}",
                _LIST_NAMES[problem.expected],
                _LIST_NAMES[problem.found],
                suggest_kind_fix(name, field.feature, key, kind, values, step=beside.is_step),
            )
        case _:
            return (
                "D404",
                f"`{name}`{stored} is not valid UTF-8, expected Text",
                "UTF-8",
                "invalid UTF-8",
                f"declare `{name}` as rk.Bytes()",
            )


def _format_value_count(count: int) -> str:
    return f"{count:,} value" if count == 1 else f"{count:,} values"


def _format_keys(keys: list[str]) -> str:
    shown = [f"`{key[: 60 // len(keys)]}`" for key in keys]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _unknown_key_error(problem: Problem, payload: bytes) -> RekordError:
    key = payload[problem.expected : problem.expected + problem.found].decode("utf-8", "replace")
    shown = key if len(key) <= 60 else key[:57] + "…"
    return error(
        "D408",
        f"`{shown}` is not in the schema, which was inferred from the first records",
        location=Location(feature=key, payload_offset=problem.at),
        expected="the keys of the first records",
        found=f"`{shown}`",
        do=_INFER_HINT,
    )


def _find_column_plan(plan: CodecPlan, slot: int) -> tuple[ColumnPlan, str, GroupPlan]:
    group, index = plan.context, slot
    if index >= len(group.slots) and plan.steps is not None:
        index -= len(group.slots)
        group = plan.steps
    field = group.column_of_slot(index)
    return field, field.slots[index - field.first].key, group


def _decode_row(payload: bytes, plan: CodecPlan) -> dict[str, Any]:
    batch = new_batch(plan, _core.Pool(_MAX_IDLE_BYTES))
    refusal = batch.add(payload)
    if refusal is not None:
        raise row_error(plan, *refusal, payload)
    try:
        columns = assemble_columns(plan, batch.take(), 1)
    except RekordError as failure:
        failure.location = Location(feature=failure.location.feature)
        raise
    return {name: column[0] for name, column in columns.items()}


def _require_bytes(payload: object) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    do = "decode(payload), for a payload of rk.records(path)"
    raise invalid("payload", payload, "bytes", do, found=type(payload).__name__)
