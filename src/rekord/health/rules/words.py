"""What is said of a record that is not what the schema declares: message, expected, found, likely, do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rekord.codec.remedies import other_key, other_kind
from rekord.health.rules.cells import Cells
from rekord.health.rules.expected import ExpectedColumn, ExpectedKey
from rekord.health.rule import ENOUGH_RECORDS
from rekord.health.rules.once import named
from rekord.health.rules.values import first_bad_item, tensor_bytes
from rekord.schema import Bytes, Float32, Int64, Label, Tensor, Text
from rekord.schema.dtypes import dtype_name

Said = dict[str, Any]

LISTS = {"bytes": "bytes_list", "float": "float_list", "int64": "int64_list"}
_WITH_SHAPE = (Int64, Float32, Bytes, Text, Label)
_MOST_PIXEL = 255


def stranger(key: str, meant: str | None) -> Said:
    """A key that the schema lacks, and the one that was probably meant."""
    hint = "" if meant is None else f": did you mean {named(meant)}?"
    return {
        "message": f"{named(key)} is not in the schema{hint}",
        "expected": "only keys that the schema declares",
        "found": named(key),
        "do": f"declare {named(key)}, or write the records again without it"
        if meant is None
        else f"write the records again with {named(meant)}, or declare key={key[:60]!r}",
    }


def missing(column: ExpectedColumn, key: str, instead: str | None) -> Said:
    """A required key that a record does not have; `instead` is one that it has and that was probably meant."""
    whose = column.whose(key)
    if instead is not None:
        return {
            "message": f"{whose} is missing, and the record has {named(instead)}: did you mean {named(key)}?",
            "expected": f"a value under {named(key)}",
            "found": f"{named(instead)}, which the schema lacks",
            "do": other_key(column.name, key, instead),
        }
    return {
        "message": f"{whose} is missing, and the schema requires it",
        "expected": f"a {'list of steps' if column.step else 'value'} under {named(key)}",
        "found": "no such key" if column.step else "no such key, or one without a kind",
        "do": f"declare {named(column.name)} with optional=True"
        + ("" if column.step else " or default=…")
        + ", or write the records again with it",
    }


def wrong_count(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int) -> Said:
    """Another number of values than the shape has room for."""
    many = "a multiple of " if key.ragged else ""
    declared, shape = type(column.feature).__name__, column.feature.shape
    of_shape = isinstance(column.feature, _WITH_SHAPE)
    return {
        "message": f"{whose} has another number of values than the schema says",
        "expected": many
        + _values(key.count)
        + (f", for shape {shape}" if of_shape else f", as {declared} is stored"),
        "found": _values(int(cells.column.counts[cell])),
        "do": f"declare the shape that was written, e.g. {declared}(shape=(None,)) for any number"
        if of_shape
        else f"declare {named(column.name)} as rk.Bytes(shape=(None,)), or write the records again",
    }


def wrong_kind(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int) -> Said:
    """A list of another kind than the declared type is stored in."""
    found = cells.column
    looks, likely = _what_they_are(found.value(cell), found.kind, key.kind)
    return {
        "message": f"{whose} is stored as {LISTS[found.kind]}, the schema says {type(column.feature).__name__}",
        "expected": LISTS[key.kind],
        "found": LISTS[found.kind] + looks,
        "likely": likely,
        "do": other_kind(
            column.name, column.feature, key.key, found.kind, found.value(cell), step=column.step
        ),
    }


def _what_they_are(values: Any, found: str, wanted: str) -> tuple[str, str | None]:
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
        if len(values) > 16 and values.min() >= 0 and values.max() <= _MOST_PIXEL:
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


def apart(column: ExpectedColumn, expected: str, found: str) -> Said:
    """The keys of one column contradict each other."""
    return {
        "message": f"the keys of {named(column.name)} do not belong together",
        "expected": expected,
        "found": found,
        "do": "write these records again: the keys of one column are written together",
    }


def uneven_steps(column: ExpectedColumn, steps: list[Any], row: int) -> Said:
    """The lists of one column have different numbers of steps."""
    other = next(place for place, counts in enumerate(steps) if counts[row] != steps[0][row])
    wanted = f"{steps[0][row]:,} steps under {named(column.keys[other].key)}"
    return apart(column, f"{wanted}, as under {named(column.keys[0].key)}", f"{steps[other][row]:,} steps")


# Values.


def _unfit(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int) -> Said:
    feature = column.feature
    if isinstance(feature, Tensor):
        place, item = first_bad_item(feature, cells.column.values.bytes(at))
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
        "found": _value(cells, cell, at),
        "do": f"declare a wider dtype for {named(column.name)}",
    }


def _outside(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int) -> Said:
    assert key.limits is not None
    assert key.limits.range is not None
    low, high = key.limits.range
    return {
        "message": f"{whose} has a value outside of its range",
        "expected": f"a number from {low} to {high}",
        "found": _value(cells, cell, at, unsigned=key.limits.dtype == np.uint64),
        "do": "mend the value where the records are written, or declare a wider range=",
    }


def _not_finite(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> Said:
    if isinstance(column.feature, Tensor):
        place, item = first_bad_item(column.feature, cells.column.values.bytes(at))
        name, found = ("NaN" if np.isnan(item) else "infinite"), f"{item} at place {place:,}"
    else:
        value = cells.column.values[at]
        name, found = ("NaN" if np.isnan(value) else "infinite"), _value(cells, cell, at)
    declared = None if key.limits is None else key.limits.range
    return {
        "message": f"{whose} is {name}"
        if not _several(cells, cell)
        else f"{whose} has a value that is {name}",
        "expected": "a finite number"
        if declared is None
        else f"a number from {declared[0]} to {declared[1]}",
        "found": found,
        "do": "optional=True and no value where a value is not known, or mend it where it is computed",
    }


def _no_class(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int) -> Said:
    assert isinstance(column.feature, Label)
    count = column.feature.count
    values = cells.column.values
    from_one = int(values[at]) == count and int(values.min()) > 0 and len(values) >= ENOUGH_RECORDS
    return {
        "message": f"{whose} is outside of its {count:,} classes",
        "expected": f"an id from 0 to {count - 1:,}",
        "found": _value(cells, cell, at),
        "likely": "no label near it is 0: the ids count from 1" if from_one else None,
        "do": f"rk.Label({count + 1}) for ids from 1, or subtract 1"
        if from_one
        else "mend the label, or declare the classes that there are",
    }


def _unknown(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int) -> Said:
    return {
        "message": f"{whose} is -1: its class is not known",
        "expected": "a class id, or -1 as TFDS writes it for unlabelled examples",
        "found": "-1",
        "do": "leave these records out of training and of class counts",
    }


def _no_text(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int) -> Said:
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
        "do": f"declare {named(column.name)} as rk.Bytes()",
    }


def _no_tensor(
    whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int
) -> Said:
    assert isinstance(column.feature, Tensor)
    feature, whole = column.feature, tensor_bytes(column.feature)
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


def _no_index(whose: str, column: ExpectedColumn, key: ExpectedKey, cells: Cells, cell: int, at: int) -> Said:
    assert key.limits is not None
    return {
        "message": f"{named(column.name)} has an index outside its size",
        "expected": f"indices from 0 to {key.limits.high:,}",
        "found": _value(cells, cell, at),
        "do": f"declare a size that holds it, or write {named(column.name)} again",
    }


VALUES: dict[str, Callable[[str, ExpectedColumn, ExpectedKey, Cells, int, int], Said]] = {
    "D404": _no_text,
    "D405": _unfit,
    "D406": _no_tensor,
    "D407": _no_index,
    "H750": _outside,
    "H751": _not_finite,
    "H752": _no_class,
    "H753": _unknown,
}


def _several(cells: Cells, cell: int) -> bool:
    return isinstance(cells.column.values, np.ndarray) is False or int(cells.column.counts[cell]) > 1


def _value(cells: Cells, cell: int, at: int, *, unsigned: bool = False) -> str:
    """A value, and where it stands in its list."""
    value = cells.column.values[at]
    shown = str(int(value) % (1 << 64)) if unsigned else str(value)
    count = int(cells.column.counts[cell])
    return shown if count == 1 else f"{shown}, value {at - cells.begin(cell):,} of {count:,}"


def _values(count: int) -> str:
    return f"{count:,} value" if count == 1 else f"{count:,} values"
