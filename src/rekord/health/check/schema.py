"""Records validated against a declared schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    LIST_NAMES,
    MIN_EVIDENCE_RECORDS,
    Cells,
    CheckRule,
    RowMask,
    find_records_with_key,
    format_key,
)
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.report.formatting import format_count
from rekord.schema import Schema, Tensor
from rekord.schema.base import dtype_name

FindingDetails = dict[str, Any]

_MAX_PIXEL = 255


@dataclass(frozen=True, slots=True)
class CheckedValue:
    """A value that a finding is about: `at` is its index among the values of all cells."""

    column: ExpectedColumn
    key: ExpectedKey
    cells: Cells
    row: int
    cell: int
    at: int = 0

    @property
    def whose(self) -> str:
        """The subject of a sentence about the value."""
        return self.column.describe_key(self.key.key, self.cells.step(self.row, self.cell))

    def format(self, *, unsigned: bool = False) -> str:
        """The value, and its position in its list."""
        value = self.cells.column.values[self.at]
        shown = str(int(value) % (1 << 64)) if unsigned else str(value)
        count = int(self.cells.column.counts[self.cell])
        return shown if count == 1 else f"{shown}, value {self.at - self.cells.begin(self.cell):,} of {count:,}"

    def read_bytes(self) -> bytes:
        """The value of a column of byte strings."""
        data: bytes = self.cells.column.values.bytes(self.at)
        return data


def describe_unknown_key(key: str, meant: str | None) -> FindingDetails:
    """A key that is not in the schema, and the one that was probably meant."""
    hint = "" if meant is None else f": did you mean {format_key(meant)}?"
    return {
        "message": f"{format_key(key)} is not in the schema{hint}",
        "expected": "only keys that the schema declares",
        "found": format_key(key),
        "do": f"declare {format_key(key)} in the schema, or write the records again without it"
        if meant is None
        else f"write the records again with {format_key(meant)}, or declare key={key[:60]!r}",
    }


def describe_missing_key(column: ExpectedColumn, key: str, instead: str | None) -> FindingDetails:
    """A required key that a record does not have; `instead` is the near miss it has."""
    whose = column.describe_key(key)
    if instead is not None:
        return {
            "message": f"{whose} is missing, but the record has {format_key(instead)}: did you mean "
            f"{format_key(key)}?",
            "expected": f"a value under {format_key(key)}",
            "found": f"{format_key(instead)}, which is not in the schema",
            "do": suggest_key_fix(column.name, key, instead),
        }
    return {
        "message": f"{whose} is required but missing",
        "expected": f"a {'list of steps' if column.step else 'value'} under {format_key(key)}",
        "found": "no such key" if column.step else "no such key, or a key without a kind",
        "do": f"declare {format_key(column.name)} with optional=True"
        + ("" if column.step else " or default=…")
        + ", or write the records again with it",
    }


def describe_wrong_count(value: CheckedValue) -> FindingDetails:
    """A number of values that does not match the shape."""
    column, key = value.column, value.key
    many = "a multiple of " if key.ragged else ""
    declared, shape = type(column.feature).__name__, column.feature.shape
    of_shape = column.feature.storage == "list"
    return {
        "message": f"{value.whose} has the wrong number of values",
        "expected": many
        + format_count(key.count, "value")
        + (f", for shape {shape}" if of_shape else f", as stored by {declared}"),
        "found": format_count(int(value.cells.column.counts[value.cell]), "value"),
        "do": f"declare the stored shape, e.g. {declared}(shape=(None,)) for any number of values"
        if of_shape
        else f"declare {format_key(column.name)} as rk.Bytes(shape=(None,)), or write the records again",
    }


def describe_wrong_kind(value: CheckedValue) -> FindingDetails:
    """A list whose kind does not match the declared type."""
    column, key, found = value.column, value.key, value.cells.column
    stored = found.value(value.cell)
    looks, likely = _describe_values(stored, found.kind, key.kind)
    return {
        "message": f"{value.whose} is stored as {LIST_NAMES[found.kind]}, but declared as "
        f"{type(column.feature).__name__}",
        "expected": LIST_NAMES[key.kind],
        "found": LIST_NAMES[found.kind] + looks,
        "likely": likely,
        "do": suggest_kind_fix(column.name, column.feature, key.key, found.kind, stored, step=column.step),
    }


def _describe_values(values: Any, found: str, wanted: str) -> tuple[str, str | None]:
    """A remark on the values, and the likely cause."""
    if not len(values):
        return ", empty", None
    if found == "float" and wanted == "int64":
        with np.errstate(all="ignore"):
            whole = bool(np.all(values == np.floor(values))) and bool(np.isfinite(values).all())
        if whole:
            return ", all values integers", "the integers were floats when they were written"
        return ", some with a fraction", None
    if found == "bytes" and all(_is_number(value) for value in values[:100]):
        return ", texts that are numbers", "the numbers were text when they were written"
    if found == "int64" and wanted == "bytes":
        if len(values) > 16 and values.min() >= 0 and values.max() <= _MAX_PIXEL:
            return f", {len(values):,} values from 0 to 255", "the bytes were stored one by one, as numbers"
        return "", None
    if found == "int64" and wanted == "float":
        return ", integers", "the numbers were integers when they were written"
    return "", None


def _is_number(value: bytes) -> bool:
    try:
        float(value[:40])
    except ValueError:
        return False
    return len(value) <= 40 and b"_" not in value


def describe_key_conflict(column: ExpectedColumn, expected: str, found: str) -> FindingDetails:
    """Keys of one column that contradict each other."""
    return {
        "message": f"keys of {format_key(column.name)} are inconsistent",
        "expected": expected,
        "found": found,
        "do": "write these records again, with all keys of the column together",
    }


def describe_uneven_steps(column: ExpectedColumn, steps: list[Any], row: int) -> FindingDetails:
    """Lists of one column with different numbers of steps."""
    other = next(place for place, counts in enumerate(steps) if counts[row] != steps[0][row])
    wanted = f"{steps[0][row]:,} steps under {format_key(column.keys[other].key)}"
    return describe_key_conflict(
        column, f"{wanted}, as under {format_key(column.keys[0].key)}", f"{steps[other][row]:,} steps"
    )


# Values.


def _describe_invalid_value(value: CheckedValue) -> FindingDetails:
    feature = value.column.feature
    if isinstance(feature, Tensor):
        place, item = find_first_invalid_item(feature, value.read_bytes())
        return {
            "message": f"{value.whose} has a byte that is not a bool",
            "expected": "bytes 0 and 1",
            "found": f"{int(item)} at byte {place:,}",
            "do": 'declare rk.Tensor("uint8", …)',
        }
    name = dtype_name(feature.dtype)
    return {
        "message": f"{value.whose} has a value that does not fit {name}",
        "expected": f"values of type {name}",
        "found": value.format(),
        "do": f"declare a wider dtype for {format_key(value.column.name)}",
    }


def _describe_out_of_range(value: CheckedValue) -> FindingDetails:
    limits = value.key.limits
    assert limits is not None
    assert limits.range is not None
    low, high = limits.range
    return {
        "message": f"{value.whose} has a value out of range",
        "expected": f"a number from {low} to {high}",
        "found": value.format(unsigned=limits.dtype == np.uint64),
        "do": "fix the value where the records are written, or declare a wider range=",
    }


def _describe_non_finite(value: CheckedValue) -> FindingDetails:
    column = value.cells.column
    if isinstance(value.column.feature, Tensor):
        place, item = find_first_invalid_item(value.column.feature, value.read_bytes())
        found, is_single = f"{item} at index {place:,}", False
    else:
        item = column.values[value.at]
        found, is_single = value.format(), int(column.counts[value.cell]) <= 1
    name = "NaN" if np.isnan(item) else "infinite"
    declared = None if value.key.limits is None else value.key.limits.range
    return {
        "message": f"{value.whose} is {name}" if is_single else f"{value.whose} has a value that is {name}",
        "expected": "a finite number" if declared is None else f"a number from {declared[0]} to {declared[1]}",
        "found": found,
        "do": "declare optional=True and omit unknown values, or fix the computation",
    }


def _describe_invalid_class(value: CheckedValue) -> FindingDetails:
    count = value.column.feature.class_count
    assert count is not None
    values = value.cells.column.values
    from_one = int(values[value.at]) == count and int(values.min()) > 0 and len(values) >= MIN_EVIDENCE_RECORDS
    return {
        "message": f"{value.whose} is not one of its {count:,} classes",
        "expected": f"a class id from 0 to {count - 1:,}",
        "found": value.format(),
        "likely": "no label near it is 0: the ids start at 1" if from_one else None,
        "do": f"rk.Label({count + 1}) for ids from 1, or subtract 1"
        if from_one
        else "fix the label, or declare all classes",
    }


def _describe_unknown_class(value: CheckedValue) -> FindingDetails:
    return {
        "message": f"{value.whose} is -1: its class is unknown",
        "expected": "a class id, or -1, which TFDS writes for unlabelled examples",
        "found": "-1",
        "do": "exclude these records from training and from class counts",
    }


def _describe_invalid_text(value: CheckedValue) -> FindingDetails:
    data = value.read_bytes()
    try:
        data.decode("utf-8")
        found = "other bytes"
    except UnicodeDecodeError as failure:
        found = f"byte 0x{data[failure.start]:02x} at {failure.start:,} of {len(data):,}"
    return {
        "message": f"{value.whose} is not UTF-8, but declared as Text",
        "expected": "UTF-8",
        "found": found,
        "do": f"declare {format_key(value.column.name)} as rk.Bytes()",
    }


def _describe_invalid_tensor(value: CheckedValue) -> FindingDetails:
    feature = value.column.feature
    assert isinstance(feature, Tensor)
    whole, found = get_tensor_bytes(feature), len(value.read_bytes())
    ratio, likely = "", None
    for times in (2, 4, 8):
        if found == whole * times:
            ratio, likely = f": {times} × as many", "the values were written with a wider dtype than declared"
        elif found * times == whole:
            ratio, likely = f": 1/{times} of that", "the values were written with a narrower dtype than declared"
    return {
        "message": f"{value.whose} does not have the size of a {dtype_name(feature.dtype)} tensor of shape "
        f"{feature.shape}",
        "expected": f"{'a multiple of ' if None in feature.shape else ''}{whole:,} bytes",
        "found": f"{found:,} bytes{ratio}",
        "likely": likely,
        "do": "declare the stored dtype and shape",
    }


def _describe_invalid_index(value: CheckedValue) -> FindingDetails:
    assert value.key.limits is not None
    name = format_key(value.column.name)
    return {
        "message": f"{name} has an index outside its size",
        "expected": f"indices from 0 to {value.key.limits.high:,}",
        "found": value.format(),
        "do": f"declare a larger size, or write {name} again",
    }


VALUE_DESCRIBERS: dict[str, Callable[[CheckedValue], FindingDetails]] = {
    "D402": describe_wrong_count,
    "D403": describe_wrong_kind,
    "D404": _describe_invalid_text,
    "D405": _describe_invalid_value,
    "D406": _describe_invalid_tensor,
    "D407": _describe_invalid_index,
    "H750": _describe_out_of_range,
    "H751": _describe_non_finite,
    "H752": _describe_invalid_class,
    "H753": _describe_unknown_class,
}


_MAX_COMPARED_KEYS = 1000


class SchemaRule(CheckRule):
    """Every record matches the schema."""

    def __init__(self, schema: Schema, *, tfds: bool = False) -> None:
        super().__init__()
        self._expected = compile_schema(schema)
        self._tfds = tfds
        self._meant: dict[tuple[bool, str], str | None] = {}

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The findings about these records."""
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

    # Keys that are not in the schema.

    def _find_unknown_keys(self, batch: KeyedBatch, *, step: bool) -> list[str]:
        found: dict[str, Any] = batch.steps if step else batch.context
        known = self._expected.steps if step else self._expected.context
        return [key for key in found if key not in known]

    def _meaning(self, key: str, *, step: bool) -> str | None:
        """The key that was probably meant."""
        if (step, key) not in self._meant:
            if len(self._meant) >= _MAX_COMPARED_KEYS:
                return None  # this many keys are not typos
            self._meant[step, key] = closest_match(key, self._expected.steps if step else self._expected.context)
        return self._meant[step, key]

    def _add_unknown_key(self, batch: KeyedBatch, key: str, *, step: bool, explained: RowMask | None) -> None:
        here = find_records_with_key(batch, key, step=step)
        rows = np.flatnonzero(here if explained is None else here & ~explained).tolist()
        meant = self._meaning(key, step=step)
        self._once.report(batch, rows, "H754", "warning", key, lambda _: describe_unknown_key(key, meant))

    # Missing keys.

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

        def describe(row: int) -> FindingDetails:
            other = next((key for key, rows in instead.items() if rows[row]), None)
            return describe_missing_key(column, column.keys[int(first[row])].key, other)

        yield from self._repeated.report(
            batch, np.flatnonzero(missing).tolist(), "D401", "error", column.name, describe
        )

    def _apart(self, column: ExpectedColumn, batch: KeyedBatch, here: list[RowMask]) -> Iterator[Finding]:
        """A record has all keys of a column, or none."""
        wrong = np.logical_or.reduce(here) & ~np.logical_and.reduce(here)

        def describe(row: int) -> FindingDetails:
            has = next(key.key for key, rows in zip(column.keys, here, strict=True) if rows[row])
            lacks = next(key.key for key, rows in zip(column.keys, here, strict=True) if not rows[row])
            return describe_key_conflict(
                column, "all of its keys, or none", f"{format_key(has)} without {format_key(lacks)}"
            )

        yield from self._repeated.report(
            batch, np.flatnonzero(wrong).tolist(), "D407", "error", column.name, describe
        )

    # The values of the keys.

    def _keys(self, column: ExpectedColumn, batch: KeyedBatch) -> Iterator[Finding]:
        there_at_all: list[Cells] = []
        parts: list[Cells] = []
        for key in column.keys:
            cells = Cells.of(batch, key.key, step=column.step)
            if cells is None or not (column.step or cells.column.present):
                continue
            there_at_all.append(cells)
            if cells.column.kind != key.kind and (len(cells.column.values) or not column.step):
                yield from self._cells(batch, column, key, cells, cells.column.mask, "D403")
                continue
            parts.append(cells)
            wrong = cells.column.mask & _find_wrong_counts(column, key, cells.column)
            yield from self._cells(batch, column, key, cells, wrong, "D402")
            if cells.column.kind != key.kind:
                continue  # without any value, steps have no kind either
            for code, severity, marks in expected.find_invalid_values(column, key, cells, tfds=self._tfds):
                yield from self._report_values(batch, column, key, cells, cells.marked(marks), code, severity)
        if len(column.keys) > 1 and len(parts) == len(column.keys):
            yield from self._together(column, batch, parts)
        elif column.step and len(column.keys) > 1 and len(there_at_all) == len(column.keys):
            # The number of steps may differ as well.
            yield from self._uneven(column, batch, there_at_all, _find_uneven_records(there_at_all))

    def _cells(
        self, batch: KeyedBatch, column: ExpectedColumn, key: ExpectedKey, cells: Cells, wrong: RowMask, code: str
    ) -> Iterator[Finding]:
        first = dict.fromkeys(np.flatnonzero(wrong).tolist(), 0)
        yield from self._report_values(batch, column, key, cells, first, code, "error")

    def _report_values(
        self,
        batch: KeyedBatch,
        column: ExpectedColumn,
        key: ExpectedKey,
        cells: Cells,
        first: dict[int, int],
        code: str,
        severity: Severity,
    ) -> Iterator[Finding]:
        """Findings about cells, each given with the index of its first wrong value."""
        rows = cells.records(np.fromiter(first, np.int64, len(first)))

        def describe(row: int) -> FindingDetails:
            return VALUE_DESCRIBERS[code](CheckedValue(column, key, cells, row, rows[row], first[rows[row]]))

        yield from self._report(batch, rows, code, severity, column.name, describe)

    def _together(self, column: ExpectedColumn, batch: KeyedBatch, parts: list[Cells]) -> Iterator[Finding]:
        """All keys of a column have the same number of values, per step if there are steps."""
        if column.step:
            uneven = _find_uneven_records(parts)
            if uneven.any():
                yield from self._uneven(column, batch, parts, uneven)
                parts = [part.without(uneven) for part in parts]
            if not len(parts[0].column):
                return
        here = np.logical_and.reduce([part.column.mask for part in parts])
        if column.feature.storage == "blob":
            together = expected.find_shape_mismatches
        elif getattr(column.feature, "partitions", ()):
            together = expected.find_partition_mismatches
        else:
            together = expected.find_length_mismatches
        wrong, describe_parts = together(column, parts)
        found = parts[0].records(np.flatnonzero(wrong & here))
        yield from self._repeated.report(
            batch,
            found,
            "D407",
            "error",
            column.name,
            lambda row: describe_key_conflict(column, *describe_parts(found[row])),
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


def _find_uneven_records(parts: list[Cells]) -> RowMask:
    """The records in which the keys of one column have different numbers of steps."""
    first, *others = [part.count_steps() for part in parts]
    uneven: RowMask = np.logical_or.reduce([each != first for each in others])
    return uneven


def _is_column_quickly_valid(column: ExpectedColumn, batch: KeyedBatch) -> bool:
    """Whether a quick check finds the column valid; it never misses a problem."""
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
            # One value per row, as in most columns: nothing to count.
            if key.count != 1:
                return False
        elif (key.count != 1 or not key.ragged) and _find_wrong_counts(column, key, found).any():
            return False
        if len(column.keys) > 1:
            if getattr(column.feature, "partitions", ()):
                return False  # sums are checked on the slow path
            if lengths is not None and not np.array_equal(lengths, found.counts):
                return False
            lengths = found.counts
        if not expected.is_quickly_valid(column, key, found):
            return False
    return True


def _find_wrong_counts(column: ExpectedColumn, key: ExpectedKey, found: KeyColumn) -> RowMask:
    """Which rows have a number of values that does not match their shape; rows without the key count as 0."""
    counts = found.counts
    wrong: RowMask = counts % key.count != 0 if key.ragged and key.count else counts != key.count
    return wrong & (counts != 0) if column.optional and not (column.step or key.ragged) else wrong
