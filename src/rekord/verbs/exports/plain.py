"""Columns as plain Python values, one a record: what JSON and tars are written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rekord.codec.columns import Array, Column, Optional, Ragged, SparseColumn, Strings
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Feature, Label
from rekord.verbs.exports.reading import Labels, Records, unwritable


def plain_values(column: Column | Any, feature: Feature | None = None) -> list[Any]:
    """The values of all rows: numbers, texts, bytes, nested lists of them, and None where there is none.

    A sparse vector is the pair [indices, values]. Floats have the fewest digits that give them back, or all of them
    where the feature takes no number that would have to be rounded.
    """
    short = _all_digits if getattr(feature, "rounding", "nearest") == "exact" else _few_digits
    if isinstance(column, np.ndarray):
        values: list[Any] = short(column).tolist()
        return values
    if isinstance(column, Optional):
        pairs = zip(short(column.values).tolist(), column.valid.tolist(), strict=True)
        return [value if there else None for value, there in pairs]
    if isinstance(column, Strings):
        return column.tolist()
    if isinstance(column, Ragged):
        return _ragged(column, feature)
    if isinstance(column, SparseColumn):
        pairs = zip(plain_values(column.indices), plain_values(column.values), strict=True)
        return [None if indices is None else [indices, values] for indices, values in pairs]
    return list(column)


def _ragged(column: Ragged, feature: Feature | None) -> list[Any]:
    inner = plain_values(column.values, feature)
    offsets = column.offsets.tolist()
    rows: list[Any] = [inner[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1)]
    if column.row_shape is not None:
        rows = [_objects(row).reshape(column.row_shape).tolist() for row in rows]
    if column.valid is None:
        return rows
    return [row if there else None for row, there in zip(rows, column.valid.tolist(), strict=True)]


def _objects(values: list[Any]) -> Array:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _all_digits(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def _few_digits(values: Array) -> Array:
    """Narrow floats as doubles with as few digits as they need: 0.1, where float32 is 0.10000000149011612."""
    import pyarrow as pa

    values = _all_digits(values)
    if values.dtype.kind != "f" or values.dtype.itemsize >= 8:
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    single = flat.astype(np.float32)
    digits = pa.array(single).cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    # Rounded twice, a number may end beside the one that it came from.
    back = digits.astype(np.float32).astype(flat.dtype)
    return np.where(back == flat, digits, flat.astype(np.float64)).reshape(values.shape)


def check_finite(records: Records, batch: Mapping[str, Any], first: int, rows: int, *, format: str) -> None:
    """Raise where a float is NaN or infinite, which JSON has no numbers for."""
    for name, column in batch.items():
        row = _first_odd(column, rows)
        if row is not None:
            raise unwritable(
                records,
                first + row,
                name,
                "is NaN or infinite",
                expected=f"finite numbers, which are all that {format} has",
                found="NaN, inf or -inf",
                do="leave the column out with columns=[…] (--columns), or export to .parquet",
            )


def _first_odd(column: Any, rows: int) -> int | None:
    if isinstance(column, Optional):
        return _first_odd(np.where(_like(column.valid, column.values), column.values, 0), rows)
    if isinstance(column, SparseColumn):
        return _first_odd(column.values, rows)
    if isinstance(column, Ragged):
        inner = _first_odd(column.values, len(column.values))
        row = None if inner is None else int(np.searchsorted(column.offsets, inner, side="right")) - 1
        return row if row is None or row < rows else None
    if not isinstance(column, np.ndarray) or (column.dtype.kind != "f" and column.dtype.name != "bfloat16"):
        return None
    values = column[:rows].astype(np.float32) if column.dtype.name == "bfloat16" else column[:rows]
    good = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    return None if good.all() else int(np.argmin(good))


def _like(valid: Array, values: Array) -> Array:
    return valid.reshape(-1, *[1] * (values.ndim - 1))


def named(records: Records, name: str, label: Label, first: int) -> Callable[[list[Any]], list[Any]]:
    """A function that puts the names of classes in the place of their ids."""
    names = label.names or ()

    def one(value: Any, row: int) -> Any:
        if value is None:
            return None
        if isinstance(value, list):
            return [one(inner, row) for inner in value]
        if not 0 <= value < len(names):
            raise unwritable(
                records,
                first + row,
                name,
                "is no class of its Label, and has no name",
                expected=f"an id from 0 to {len(names) - 1:,}",
                found=str(value),
                do='labels="ids" (--labels ids) writes the numbers as they are',
            )
        return names[value]

    return lambda values: [one(value, row) for row, value in enumerate(values)]


def check_names(features: Mapping[str, Feature], labels: Labels) -> None:
    """Names can be asked for only where there are some."""
    found = {name: one for name, one in features.items() if isinstance(one, Label)}
    if labels == "names" and not any(one.names for one in found.values()):
        first = next(iter(found), None)
        raise error(
            "U673",
            "there are no names of classes to write",
            location=Location(feature=first),
            expected="a column Label([…]) with names",
            found="a Label without names" if found else "no Label among the columns",
            do='leave labels="names" (--labels names) out',
        )
