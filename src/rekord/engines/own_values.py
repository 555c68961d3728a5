"""What a row's own values say of its split: the column that it is split by, or the split that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.engines.keys import Hashes, text_hash, value_bytes
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import near_miss, shown

SPLIT = "split"
"""The column of a source that knows splits."""


def column_to_split_by(values: Any, name: str, names: set[str]) -> Any:
    if name not in names:
        raise _no_column(name, sorted(names))
    column = values.column(name) if isinstance(values, pa.RecordBatch) else values[name]
    try:
        column = column if isinstance(column, pa.Array) else pa.array(column)
    except (pa.ArrowException, TypeError, ValueError):
        raise _no_single_value(name) from None
    if pa.types.is_nested(column.type):
        raise _no_single_value(name)
    return column


def value_hashes(seed: int, column: Any) -> Hashes:
    encoded = column.dictionary_encode()
    if encoded.null_count:
        raise _no_value(next(i for i, valid in enumerate(column.is_valid().to_pylist()) if not valid))
    known = [text_hash(seed, "split", value_bytes(value)) for value in encoded.dictionary.to_pylist()]
    hashes: Hashes = np.array(known, np.uint64)[encoded.indices.to_numpy()]
    return hashes


def own_splits(column: Any, names: tuple[str, ...]) -> Any:
    numbers = {name: i for i, name in enumerate(names)}
    said = column.to_pylist()
    for row, name in enumerate(said):
        if name not in numbers:
            raise _unknown_split(name, names, row)
    return np.array([numbers[name] for name in said], np.uint8)


def own_split(values: Mapping[str, Any], names: tuple[str, ...]) -> str:
    split = values.get(SPLIT)
    if split not in names:
        raise _unknown_split(split, names, None)
    return str(split)


def value_to_split_by(values: Mapping[str, Any], name: str) -> bytes:
    if name not in values:
        raise _no_column(name, sorted(values))
    value = values[name]
    if value is None:
        raise _no_value(None, name)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (str, bytes)):
        return value_bytes(value)
    # A repr with an address in it would be another one in the next run.
    if isinstance(value, (Mapping, list, tuple, np.ndarray)) or " at 0x" in repr(value):
        raise _no_single_value(name)
    return value_bytes(value)


def _no_column(name: str, names: list[str]) -> RekordError:
    near = near_miss(name, names)
    return error(
        "E381",
        f"the row has no `{name}`, by which rows are to be split",
        location=Location(feature=name),
        expected="one of " + ", ".join(f"`{one}`" for one in names[:8]),
        found="no such column",
        do=f"did you mean `{near}`?" if near else "name a column that every row has",
    )


def _no_value(row: int | None, name: str | None = None) -> RekordError:
    return error(
        "E381",
        "the row has no value in the column by which rows are to be split",
        location=Location(feature=name, row=row),
        expected="a value in every row",
        found="None",
        do="give a value, or split by another column",
    )


def _no_single_value(name: str) -> RekordError:
    return error(
        "E381",
        f"`{name}` holds no single values, by which rows could be split",
        location=Location(feature=name),
        expected="a text, a number or bytes in every row",
        found="a list, an array or an object",
        do="split by another column",
    )


def _unknown_split(split: Any, names: tuple[str, ...], row: int | None) -> RekordError:
    return error(
        "E382",
        f"the row is of the split {shown(split)}, which the source did not announce",
        location=Location(feature=SPLIT, row=row),
        expected="one of " + ", ".join(names),
        found=shown(split),
        do="mend the row's split",
    )
