"""Records validated against a declared schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from rekord.codec.values import suggest_key_fix, suggest_kind_fix
from rekord.errors import closest_match
from rekord.health.check import expected
from rekord.health.check.expected import (
    ExpectedColumn,
    ExpectedKey,
    compile_schema,
    find_first_invalid_item,
    get_tensor_bytes,
)
from rekord.health.check.rule import (
    MIN_EVIDENCE_RECORDS,
    Cells,
    CheckRule,
    RowMask,
    find_present_rows,
    find_records_with_key,
    format_key,
)
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.report.formatting import format_count
from rekord.schema import Schema, Tensor
from rekord.schema.base import dtype_name

FindingDetails = dict[str, Any]

LIST_NAMES = {"bytes": "bytes_list", "float": "float_list", "int64": "int64_list"}
_MAX_PIXEL = 255


def describe_unknown_key(key: str, meant: str | None) -> FindingDetails:
    """A key that the schema lacks, and the one that was probably meant."""
    hint = "" if meant is None else f": did you mean {format_key(meant)}?"
    return {
        "message": f"{format_key(key)} is not in the schema{hint}",
        "expected": "only keys that the schema declares",
        "found": format_key(key),
        "do": f"declare {format_key(key)}, or write the records again without it"
        if meant is None
        else f"write the records again with {format_key(meant)}, or declare key={key[:60]!r}",
    }


def describe_missing_key(column: ExpectedColumn, key: str, instead: str | None) -> FindingDetails:
    """A required key that a record does not have; `instead` is one that it has and that was probably meant."""
    whose = column.describe_key(key)
    if instead is not None:
        return {
            "message": f"{whose} is missing, and the record has {format_key(instead)}: did you mean "
            f"{format_key(key)}?",
            "expected": f"a value under {format_key(key)}",
            "found": f"{format_key(instead)}, which the schema lacks",
            "do": suggest_key_fix(column.name, key, instead),
        }
    return {
        "message": f"{whose} is missing, and the schema requires it",
        "expected": f"a {'list of steps' if column.step else 'value'} under {format_key(key)}",
        "found": "no such key" if column.step else "no such key, or one without a kind",
        "do": f"declare {format_key(column.name)} with optional=True"
        + ("" if column.step else " or default=…")
        + ", or write the records again with it",
    }


def describe_wrong_count(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int
) -> FindingDetails:
    """Another number of values than the shape has room for."""
    many = "a multiple of " if key.ragged else ""
    declared, shape = type(column.feature).__name__, column.feature.shape
    of_shape = column.feature.storage == "list"
    return {
        "message": f"{whose} has another number of values than the schema says",
        "expected": many
        + format_count(key.count, "value")
        + (f", for shape {shape}" if of_shape else f", as {declared} is stored"),
        "found": format_count(int(cells.column.counts[cell]), "value"),
        "do": f"declare the shape that was written, e.g. {declared}(shape=(None,)) for any number"
        if of_shape
        else f"declare {format_key(column.name)} as rk.Bytes(shape=(None,)), or write the records again",
    }


def describe_wrong_kind(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int
) -> FindingDetails:
    """A list of another kind than the declared type is stored in."""
    found = cells.column
    looks, likely = _describe_values(found.value(cell), found.kind, key.kind)
    return {
        "message": f"{whose} is stored as {LIST_NAMES[found.kind]}, the schema says {type(column.feature).__name__}",
        "expected": LIST_NAMES[key.kind],
        "found": LIST_NAMES[found.kind] + looks,
        "likely": likely,
        "do": suggest_kind_fix(column.name, column.feature, key.key, found.kind, found.value(cell), step=column.step),
    }


def _describe_values(values: Any, found: str, wanted: str) -> tuple[str, str | None]:
    """What the values show about themselves, and what that makes likely."""
    if not len(values):
        return ", empty", None
    if found == "float" and wanted == "int64":
        with np.errstate(all="ignore"):
            whole = bool(np.all(values == np.floor(values))) and bool(np.isfinite(values).all())
        if whole:
            return ", all values whole numbers", "whole numbers that were floats when they were written"
        return ", some with a fraction", None
    if found == "bytes" and all(_is_number(value) for value in values[:100]):
        return ", texts that are numbers", "numbers that were texts when they were written"
    if found == "int64" and wanted == "bytes":
        if len(values) > 16 and values.min() >= 0 and values.max() <= _MAX_PIXEL:
            return f", {len(values):,} values from 0 to 255", "bytes that were stored one by one, as numbers"
        return "", None
    if found == "int64" and wanted == "float":
        return ", whole numbers", "numbers that were integers when they were written"
    return "", None


def _is_number(value: bytes) -> bool:
    try:
        float(value[:40])
    except ValueError:
        return False
    return len(value) <= 40 and b"_" not in value


def describe_key_conflict(column: ExpectedColumn, expected: str, found: str) -> FindingDetails:
    """The keys of one column contradict each other."""
    return {
        "message": f"the keys of {format_key(column.name)} do not belong together",
        "expected": expected,
        "found": found,
        "do": "write these records again: the keys of one column are written together",
    }


def describe_uneven_steps(column: ExpectedColumn, steps: list[Any], row: int) -> FindingDetails:
    """The lists of one column have different numbers of steps."""
    other = next(place for place, counts in enumerate(steps) if counts[row] != steps[0][row])
    wanted = f"{steps[0][row]:,} steps under {format_key(column.keys[other].key)}"
    return describe_key_conflict(
        column, f"{wanted}, as under {format_key(column.keys[0].key)}", f"{steps[other][row]:,} steps"
    )


# Values.


def _describe_invalid_value(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    feature = column.feature
    if isinstance(feature, Tensor):
        place, item = find_first_invalid_item(feature, cells.column.values.bytes(at))
        return {
            "message": f"{whose} has a byte that is no bool",
            "expected": "bytes 0 and 1",
            "found": f"{int(item)} at byte {place:,}",
            "do": 'declare rk.Tensor("uint8", …)',
        }
    name = dtype_name(feature.dtype)
    return {
        "message": f"{whose} has a value that {name} cannot hold",
        "expected": f"values of {name}",
        "found": _format_value(cells, cell, at),
        "do": f"declare a wider dtype for {format_key(column.name)}",
    }


def _describe_out_of_range(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    assert key.limits is not None
    assert key.limits.range is not None
    low, high = key.limits.range
    return {
        "message": f"{whose} has a value outside of its range",
        "expected": f"a number from {low} to {high}",
        "found": _format_value(cells, cell, at, unsigned=key.limits.dtype == np.uint64),
        "do": "fix the value where the records are written, or declare a wider range=",
    }


def _describe_non_finite(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    if isinstance(column.feature, Tensor):
        place, item = find_first_invalid_item(column.feature, cells.column.values.bytes(at))
        name, found = ("NaN" if np.isnan(item) else "infinite"), f"{item} at place {place:,}"
    else:
        value = cells.column.values[at]
        name, found = ("NaN" if np.isnan(value) else "infinite"), _format_value(cells, cell, at)
    declared = None if key.limits is None else key.limits.range
    return {
        "message": f"{whose} is {name}"
        if not (isinstance(cells.column.values, np.ndarray) is False or int(cells.column.counts[cell]) > 1)
        else f"{whose} has a value that is {name}",
        "expected": "a finite number" if declared is None else f"a number from {declared[0]} to {declared[1]}",
        "found": found,
        "do": "optional=True and no value where a value is not known, or fix it where it is computed",
    }


def _describe_invalid_class(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    count = column.feature.class_count
    assert count is not None
    values = cells.column.values
    from_one = int(values[at]) == count and int(values.min()) > 0 and len(values) >= MIN_EVIDENCE_RECORDS
    return {
        "message": f"{whose} is outside of its {count:,} classes",
        "expected": f"an id from 0 to {count - 1:,}",
        "found": _format_value(cells, cell, at),
        "likely": "no label near it is 0: the ids count from 1" if from_one else None,
        "do": f"rk.Label({count + 1}) for ids from 1, or subtract 1"
        if from_one
        else "fix the label, or declare the classes that there are",
    }


def _describe_unknown_class(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    return {
        "message": f"{whose} is -1: its class is not known",
        "expected": "a class id, or -1 as TFDS writes it for unlabelled examples",
        "found": "-1",
        "do": "leave these records out of training and of class counts",
    }


def _describe_invalid_text(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    data = cells.column.values.bytes(at)
    try:
        data.decode("utf-8")
        found = "other bytes"
    except UnicodeDecodeError as failure:
        found = f"byte 0x{data[failure.start]:02x} at {failure.start:,} of {len(data):,}"
    return {
        "message": f"{whose} is not UTF-8, the schema says Text",
        "expected": "UTF-8",
        "found": found,
        "do": f"declare {format_key(column.name)} as rk.Bytes()",
    }


def _describe_invalid_tensor(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    assert isinstance(column.feature, Tensor)
    feature, whole = column.feature, get_tensor_bytes(column.feature)
    found = len(cells.column.values.bytes(at))
    ratio, likely = "", None
    for times in (2, 4, 8):
        if found == whole * times:
            ratio, likely = f": {times} × as many", "a wider dtype was written than the schema says"
        elif found * times == whole:
            ratio, likely = f": 1/{times} of it", "a narrower dtype was written than the schema says"
    return {
        "message": f"{whose} has bytes that do not make a tensor of {dtype_name(feature.dtype)} {feature.shape}",
        "expected": f"{'a multiple of ' if None in feature.shape else ''}{whole:,} bytes",
        "found": f"{found:,} bytes{ratio}",
        "likely": likely,
        "do": "declare the dtype and shape that were written",
    }


def _describe_invalid_index(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> FindingDetails:
    assert key.limits is not None
    return {
        "message": f"{format_key(column.name)} has an index outside its size",
        "expected": f"indices from 0 to {key.limits.high:,}",
        "found": _format_value(cells, cell, at),
        "do": f"declare a size that holds it, or write {format_key(column.name)} again",
    }


VALUE_DESCRIBERS: dict[str, Callable[[str, ExpectedColumn, ExpectedKey, Cells, int, int], FindingDetails]] = {
    "D404": _describe_invalid_text,
    "D405": _describe_invalid_value,
    "D406": _describe_invalid_tensor,
    "D407": _describe_invalid_index,
    "H750": _describe_out_of_range,
    "H751": _describe_non_finite,
    "H752": _describe_invalid_class,
    "H753": _describe_unknown_class,
}


def _format_value(cells: Cells, cell: int, at: int, *, unsigned: bool = False) -> str:
    """A value, and where it stands in its list."""
    value = cells.column.values[at]
    shown = str(int(value) % (1 << 64)) if unsigned else str(value)
    count = int(cells.column.counts[cell])
    return shown if count == 1 else f"{shown}, value {at - cells.begin(cell):,} of {count:,}"


_MAX_COMPARED_KEYS = 1000


class SchemaRule(CheckRule):
    """Every record is one that the schema declares."""

    def __init__(self, schema: Schema, *, tfds: bool = False) -> None:
        super().__init__()
        self._expected = compile_schema(schema)
        self._tfds = tfds
        self._meant: dict[tuple[bool, str], str | None] = {}

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """What is wrong with these records."""
        with np.errstate(all="ignore"):
            doubtful = [column for column in self._expected.columns if not _is_column_quickly_valid(column, batch)]
        strangers = {step: self._find_unknown_keys(batch, step=step) for step in (False, True)}
        explained: dict[tuple[bool, str], RowMask] = {}
        for column in doubtful:
            yield from self._presence(column, batch, strangers[column.step], explained)
            yield from self._keys(column, batch)
        for step, keys in strangers.items():
            for key in keys:
                self._add_unknown_key(batch, key, step=step, explained=explained.get((step, key)))

    def end_file(self, path: str) -> Iterator[Finding]:
        self._meant.clear()
        yield from super().end_file(path)

    # Keys that the schema lacks.

    def _find_unknown_keys(self, batch: KeyedBatch, *, step: bool) -> list[str]:
        found: dict[str, Any] = batch.steps if step else batch.context
        known = self._expected.steps if step else self._expected.context
        return [key for key in found if key not in known]

    def _meaning(self, key: str, *, step: bool) -> str | None:
        """The key that was probably meant."""
        if (step, key) not in self._meant:
            if len(self._meant) >= _MAX_COMPARED_KEYS:
                return None  # names that nobody could have mistyped so often
            self._meant[step, key] = closest_match(key, self._expected.steps if step else self._expected.context)
        return self._meant[step, key]

    def _add_unknown_key(self, batch: KeyedBatch, key: str, *, step: bool, explained: RowMask | None) -> None:
        here = find_records_with_key(batch, key, step=step)
        rows = np.flatnonzero(here if explained is None else here & ~explained).tolist()
        meant = self._meaning(key, step=step)
        self._once.report(batch, rows, "H754", "warning", key, lambda _: describe_unknown_key(key, meant))

    # What is there, and what is not.

    def _presence(
        self,
        column: ExpectedColumn,
        batch: KeyedBatch,
        strangers: list[str],
        explained: dict[tuple[bool, str], RowMask],
    ) -> Iterator[Finding]:
        here = [find_records_with_key(batch, key.key, step=column.step) for key in column.keys]
        if not column.required:
            if len(here) > 1:
                yield from self._apart(column, batch, here)
            return
        missing = ~np.logical_and.reduce(here)
        if not missing.any():
            return
        first = np.argmin(np.array(here), axis=0)
        instead: dict[str, RowMask] = {}
        for key in strangers:
            if self._meaning(key, step=column.step) in [one.key for one in column.keys]:
                instead[key] = missing & find_records_with_key(batch, key, step=column.step)
                explained[column.step, key] = instead[key]

        def say(row: int) -> dict[str, Any]:
            other = next((key for key, rows in instead.items() if rows[row]), None)
            return describe_missing_key(column, column.keys[int(first[row])].key, other)

        yield from self._repeated.report(batch, np.flatnonzero(missing).tolist(), "D401", "error", column.name, say)

    def _apart(self, column: ExpectedColumn, batch: KeyedBatch, here: list[RowMask]) -> Iterator[Finding]:
        """The keys of one column are all there in a record, or none of them."""
        wrong = np.logical_or.reduce(here) & ~np.logical_and.reduce(here)

        def say(row: int) -> dict[str, Any]:
            has = next(key.key for key, rows in zip(column.keys, here, strict=True) if rows[row])
            lacks = next(key.key for key, rows in zip(column.keys, here, strict=True) if not rows[row])
            return describe_key_conflict(
                column, "all of its keys, or none of them", f"{format_key(has)} without {format_key(lacks)}"
            )

        yield from self._repeated.report(batch, np.flatnonzero(wrong).tolist(), "D407", "error", column.name, say)

    # What the keys hold.

    def _keys(self, column: ExpectedColumn, batch: KeyedBatch) -> Iterator[Finding]:
        there_at_all: list[Cells] = []
        parts: list[Cells] = []
        for key in column.keys:
            cells = Cells.of(batch, key.key, step=column.step)
            if cells is None or not (column.step or cells.column.present):
                continue
            there_at_all.append(cells)
            if cells.column.kind != key.kind and (len(cells.column.values) or not column.step):
                rows = cells.records(np.flatnonzero(find_present_rows(cells.column, len(cells.column))))
                yield from self._report_cells(batch, column, key, cells, rows, "D403", describe_wrong_kind)
                continue
            parts.append(cells)
            yield from self._counts(column, key, batch, cells)
            if cells.column.kind != key.kind:
                continue  # steps of which none has a value have no kind either
            for code, severity, marks in expected.find_invalid_values(column, key, cells, tfds=self._tfds):
                yield from self._values(batch, column, key, cells, marks, code, severity)
        if len(column.keys) > 1 and len(parts) == len(column.keys):
            yield from self._together(column, batch, parts)
        elif column.step and len(column.keys) > 1 and len(there_at_all) == len(column.keys):
            # Records without a step of the wrong kind may still have other numbers of steps.
            yield from self._uneven(column, batch, there_at_all, _find_uneven_records(there_at_all))

    def _counts(self, column: ExpectedColumn, key: ExpectedKey, batch: KeyedBatch, cells: Cells) -> Iterator[Finding]:
        wrong = find_present_rows(cells.column, len(cells.column)) & _find_wrong_counts(column, key, cells.column)
        rows = cells.records(np.flatnonzero(wrong))
        yield from self._report_cells(batch, column, key, cells, rows, "D402", describe_wrong_count)

    def _values(
        self,
        batch: KeyedBatch,
        column: ExpectedColumn,
        key: ExpectedKey,
        cells: Cells,
        marks: RowMask,
        code: str,
        severity: Severity,
    ) -> Iterator[Finding]:
        first = cells.marked(marks)
        rows = cells.records(np.fromiter(first, np.int64, len(first)))

        def say(row: int) -> dict[str, Any]:
            cell = rows[row]
            whose = column.describe_key(key.key, cells.step(row, cell))
            return VALUE_DESCRIBERS[code](whose, column, key, cells, cell, first[cell])

        yield from self._report(batch, rows, code, severity, column.name, say)

    def _together(self, column: ExpectedColumn, batch: KeyedBatch, parts: list[Cells]) -> Iterator[Finding]:
        """The keys of one column agree about how many values there are, step by step where there are steps."""
        if column.step:
            uneven = _find_uneven_records(parts)
            if uneven.any():
                yield from self._uneven(column, batch, parts, uneven)
                parts = [part.without(uneven) for part in parts]
            if not len(parts[0].column):
                return
        here = np.logical_and.reduce([find_present_rows(part.column, len(part.column)) for part in parts])
        together = (
            expected.find_partition_mismatches
            if getattr(column.feature, "partitions", ())
            else expected.find_length_mismatches
        )
        wrong, say_parts = together(column, parts)
        found = parts[0].records(np.flatnonzero(wrong & here))
        yield from self._repeated.report(
            batch,
            found,
            "D407",
            "error",
            column.name,
            lambda row: describe_key_conflict(column, *say_parts(found[row])),
        )

    def _uneven(
        self, column: ExpectedColumn, batch: KeyedBatch, parts: list[Cells], uneven: RowMask
    ) -> Iterator[Finding]:
        steps = [part.count_steps() for part in parts]
        yield from self._repeated.report(
            batch,
            np.flatnonzero(uneven).tolist(),
            "D407",
            "error",
            column.name,
            lambda row: describe_uneven_steps(column, steps, row),
        )

    def _report_cells(
        self,
        batch: KeyedBatch,
        column: ExpectedColumn,
        key: ExpectedKey,
        cells: Cells,
        rows: dict[int, int],
        code: str,
        words_of: Callable[[str, ExpectedColumn, ExpectedKey, Cells, int], FindingDetails],
    ) -> Iterator[Finding]:
        def say(row: int) -> FindingDetails:
            whose = column.describe_key(key.key, cells.step(row, rows[row]))
            return words_of(whose, column, key, cells, rows[row])

        yield from self._repeated.report(batch, rows, code, "error", column.name, say)


def _find_uneven_records(parts: list[Cells]) -> RowMask:
    """The records in which the keys of one column have different numbers of steps."""
    first, *others = [part.count_steps() for part in parts]
    uneven = np.zeros(len(first), bool)
    for each in others:
        uneven |= each != first
    return uneven


def _is_column_quickly_valid(column: ExpectedColumn, batch: KeyedBatch) -> bool:
    """Whether a quick look at a column has nothing against it; it never overlooks anything."""
    lengths = None
    for key in column.keys:
        if column.step:
            lists = batch.steps.get(key.key)
            found = None if lists is None else lists.steps
            if lists is not None and lists.valid is not None:
                return False
        else:
            found = batch.context.get(key.key)
        if found is None:
            if column.required or len(column.keys) > 1:
                return False
            continue
        if found.kind != key.kind or (found.valid is not None and (column.required or len(column.keys) > 1)):
            return False
        if found.offsets is None:
            # One place a row, which is what most columns have: nothing to count.
            if key.count != 1:
                return False
        elif (key.count != 1 or not key.ragged) and _find_wrong_counts(column, key, found).any():
            return False
        if len(column.keys) > 1:
            if getattr(column.feature, "partitions", ()):
                return False  # sums are taken where there is time for them
            if lengths is not None and not np.array_equal(lengths, found.counts):
                return False
            lengths = found.counts
        if not expected.is_quickly_valid(column, key, found):
            return False
    return True


def _find_wrong_counts(column: ExpectedColumn, key: ExpectedKey, found: KeyColumn) -> RowMask:
    """Which rows have another number of values than their shape says; rows without the key count as 0."""
    counts = found.counts
    wrong: RowMask = counts % key.count != 0 if key.ragged and key.count else counts != key.count
    return wrong & (counts != 0) if column.optional and not (column.step or key.ragged) else wrong
