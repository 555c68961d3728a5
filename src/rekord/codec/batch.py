"""Columns of many rows to records: NumPy, Arrow and rekord's own columns, checked whole and not copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rekord import _core
from rekord.codec.arrow_in import arrow_batches, from_arrow, is_arrow
from rekord.codec.encode import checked_schema, pool
from rekord.codec.plan import CodecPlan, Field, compile_plan
from rekord.codec.rows import Judge
from rekord.codec.slots import ByRow, Slots, slots_of, steps_of
from rekord.codec.unfit import Unfit, described
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema

_NO_LIMIT = 1 << 62


class EncodedBatches:
    """The records of a batch, encoded piece by piece as they are asked for: (frames, rows) each."""

    def __init__(
        self, batches: list[tuple[_core.ColumnBatch, int]], plan: CodecPlan, enough_bytes: int
    ) -> None:
        self._batches = batches
        self._plan = plan
        self._enough_bytes = enough_bytes
        self.rows = sum(rows for _, rows in batches)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        return ((frames, rows) for frames, rows, _ in self._pieces(ends=False))

    def with_ends(self) -> Iterator[tuple[Any, int, Any]]:
        """The same, each with an int64 array of where its records end."""
        return self._pieces(ends=True)

    def _pieces(self, *, ends: bool) -> Iterator[tuple[Any, int, Any]]:
        before = 0
        for batch, rows in self._batches:
            done = 0
            while done < rows:
                frames, reached, record_ends, problem = batch.write(done, self._enough_bytes, True, ends)
                if reached > done:
                    yield frames, reached - done, record_ends
                done = reached
                if problem is not None:
                    raise _native_error(self._plan, problem[0], problem[1], before + reached)
            before += rows


def encode_columns(columns: Any, schema: Schema) -> bytes:
    """The records of many rows, framed as a file holds them.

    `columns` is a dict of columns (NumPy arrays with the rows first, lists, `rk.Ragged`, `rk.Strings`,
    `rk.Optional`), or a pyarrow RecordBatch or Table. An EncodeError names the row.
    """
    pieces = [bytes(frames) for frames, _ in encoded_batches(columns, schema, enough_bytes=_NO_LIMIT)]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def encoded_batches(columns: Any, schema: Schema, *, enough_bytes: int) -> EncodedBatches:
    """The same in pieces of about `enough_bytes`. What could be refused is refused here and now."""
    plan = compile_plan(checked_schema(schema))
    judge = Judge(plan)
    batches = []
    before = 0
    for batch in arrow_batches(columns) if is_arrow(columns) else [columns]:
        try:
            native, rows = _native_batch(batch, plan, judge)
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


def _native_batch(columns: Any, plan: CodecPlan, judge: Judge) -> tuple[_core.ColumnBatch, int]:
    if isinstance(columns, Mapping):
        given = dict(columns)
    elif is_arrow(columns):
        given = {name: columns.column(i) for i, name in enumerate(columns.schema.names)}
    else:
        raise error(
            "E325",
            f"columns are given as a {type(columns).__name__}",
            expected="a dict of columns, a pyarrow RecordBatch or a Table",
            found=described(columns),
            do='{"label": np.array([...]), ...}',
        )
    if any(name not in plan.schema for name in given):
        judge.refuse_unknown(given)
    rows = _row_count(given)
    context = _group(plan.context.fields, given, rows, slots_of)
    steps = [] if plan.steps is None else _group(plan.steps.fields, given, rows, steps_of)
    native = _core.ColumnBatch(
        plan.context.native, None if plan.steps is None else plan.steps.native, pool(), context, steps, rows
    )
    return native, rows


def _group(
    fields: tuple[Field, ...], given: dict[str, Any], rows: int, read: Callable[[Field, Any, int], Slots]
) -> Slots:
    out: Slots = []
    for field in fields:
        column = given.get(field.name)
        if column is None:
            if field.feature.required:
                raise _missing(field.name, row=0 if rows else None)
            out += [None] * len(field.slots)
            continue
        try:
            out += read(field, from_arrow(column, field.feature) if is_arrow(column) else column, rows)
        except ByRow as failure:
            raise failure.unfit.told(field.name, row=failure.row, step=failure.step) from None
        except Unfit as unfit:
            raise unfit.told(field.name, row=0 if rows == 1 else None) from None
    return out


def _row_count(given: dict[str, Any]) -> int:
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
            raise _uneven(name, "a column with one value a row", described(column)) from None
        if rows is None:
            rows, first = count, name
        elif count != rows:
            raise _uneven(name, f"{rows:,} rows, as `{first}` has", f"{count:,} rows")
    return rows or 0


def _uneven(name: str, expected: str, found: str) -> RekordError:
    return error(
        "E326",
        f"`{name}` does not have one value for each row of the batch",
        location=Location(feature=name),
        expected=expected,
        found=found,
        do="give all columns the same number of rows",
    )


def _missing(name: str, *, row: int | None) -> RekordError:
    return Unfit(
        "E301",
        "has no value, and it is required",
        expected="a value in every row",
        found="None, or no such column",
        do="give values, or declare optional=True or default=",
    ).told(name, row=row)


def _native_error(plan: CodecPlan, problem: _core.Problem, slot: int, row: int) -> RekordError:
    """What the core found wrong with one row."""
    if problem.fault == _core.Fault.LENGTH:
        try:
            Judge(plan).refuse_size()
        except RekordError as failure:
            failure.location = failure.location.within(row=row)
            return failure
    first_of_steps = len(plan.context.slots)
    group = plan.context if slot < first_of_steps else plan.steps
    assert group is not None
    field = group.field_of(slot if group is plan.context else slot - first_of_steps)
    if problem.fault == _core.Fault.MISSING:
        return _missing(field.name, row=row)
    if problem.fault == _core.Fault.NOT_UTF8:
        return Unfit(
            "E318",
            "is not UTF-8",
            expected="bytes that are UTF-8",
            found="other bytes",
            do="Bytes() keeps the bytes as they are",
        ).told(field.name, row=row)
    return Unfit(
        "E307",
        "has another number of values than the schema says",
        expected=f"{'a multiple of ' if field.feature.variable else ''}{problem.expected:,} values",
        found=f"{problem.found:,} values",
        do="give so many values, or declare another shape",
    ).told(field.name, row=row)
