"""Rows in any form: mappings, tuples, tables, recognised without importing a library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rekord.errors import error, preview, schema_error
from rekord.location import Location

TUPLE_NAMES = ("x", "y", "weight")
"""The column names of a tuple, as in Keras."""

_BATCH_ROWS = 4096
_MAX_DEPTH = 32
_EXPECTED_ROWS = 'rows such as {"image": b"...", "label": 3}'


def is_table(source: object) -> bool:
    """Whether this is a table: a dict of columns, an Arrow table, a pandas or polars DataFrame."""
    return isinstance(source, Mapping) or _is_arrow(source) or _is_polars(source) or _is_pandas(source)


def column_batches(source: Any, limit: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """A table in pieces: the number of rows, and the values of each column.

    A column is an array of numbers, or a list of values with None for missing ones.
    """
    cut: Callable[[int, int], dict[str, Any]]
    if isinstance(source, Mapping):
        whole = _validate_columns(source)
        rows = len(next(iter(whole.values()))) if whole else 0
        cut = lambda begin, end: {name: column[begin:end] for name, column in whole.items()}  # noqa: E731
    elif _is_pandas(source):
        rows = len(source)
        cut = lambda begin, end: _from_pandas(source.iloc[begin:end])  # noqa: E731
    else:
        table = source.to_arrow() if _is_polars(source) else source
        rows = table.num_rows
        cut = lambda begin, end: _from_arrow(table.slice(begin, end - begin))  # noqa: E731
    rows = rows if limit is None else min(rows, limit)
    for begin in range(0, rows, _BATCH_ROWS):
        end = min(begin + _BATCH_ROWS, rows)
        yield end - begin, _expand_struct_columns(cut(begin, end))


def flatten_row(row: Any, index: int, names: Sequence[str] | None) -> dict[str, Any]:
    """One row as columns and values; nested mappings join their names with `/`."""
    flat: dict[str, Any] = {}
    _flatten(_as_mapping(row, index, names), "", index, flat, 0)
    return flat


def is_missing(value: object) -> bool:
    """Whether a value is missing: None, NaT, or pandas' NA."""
    if isinstance(value, np.datetime64):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _as_mapping(row: Any, index: int, names: Sequence[str] | None) -> Mapping[Any, Any]:
    if isinstance(row, Mapping):
        return row
    if isinstance(row, tuple) and names is None and hasattr(row, "_fields"):
        return dict(zip(row._fields, row, strict=True))
    if isinstance(row, (tuple, list)):
        given = TUPLE_NAMES if names is None else tuple(names)
        if len(row) > len(given) or (names is not None and len(row) < len(given)):
            raise _row_error(
                index,
                f"row {index:,} has {len(row):,} values",
                expected=f"{len(given)} values: {', '.join(given)}",
                found=f"{len(row):,} values",
                do='names=("image", "label", …), one name per value',
            )
        return dict(zip(given, row, strict=False))
    if hasattr(row, "keys") and hasattr(row, "__getitem__"):  # sqlite3.Row, a pandas Series
        return {name: row[name] for name in row.keys()}  # noqa: SIM118
    raise _row_error(
        index,
        f"row {index:,} has type {type(row).__name__}, not a mapping",
        expected=f"{_EXPECTED_ROWS}, or tuples",
        found=preview(row),
        do='name the values: {"label": value}',
    )


def _flatten(row: Mapping[Any, Any], above: str, index: int, out: dict[str, Any], depth: int) -> None:
    for key, value in row.items():
        if not isinstance(key, str):
            raise _row_error(
                index,
                f"row {index:,} has a column name of type {type(key).__name__}",
                expected="column names of type str",
                found=preview(key),
                do="convert the names: str(name)",
            )
        name = f"{above}{key}"
        if isinstance(value, Mapping) and depth < _MAX_DEPTH:
            _flatten(value, f"{name}/", index, out, depth + 1)
            continue
        if isinstance(value, Mapping) or name in out:
            what = "is nested too deeply" if isinstance(value, Mapping) else "has two values"
            raise _row_error(
                index,
                f"column `{name[:60]}` {what}",
                expected=f"at most {_MAX_DEPTH} levels of mappings, with unique names when joined with `/`",
                found=preview(value),
                do="rename one of the columns, or flatten the row",
            )
        out[name] = value


def _row_error(index: int, what: str, *, expected: str, found: str, do: str) -> Exception:
    return error("S132", what, location=Location(row=index), expected=expected, found=found, do=do)


def _expand_struct_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Columns of mappings as one column per key."""
    flat: dict[str, Any] = {}
    for name, values in columns.items():
        whole = isinstance(values, np.ndarray) or hasattr(values, "to_numpy")
        if whole or not any(isinstance(value, Mapping) for value in values):
            spread = {name: values}
        else:
            rows = [
                {} if is_missing(value) else flatten_row({name: value}, i, None) for i, value in enumerate(values)
            ]
            spread = {key: [row.get(key) for row in rows] for key in dict.fromkeys(k for row in rows for k in row)}
        for inner, column in spread.items():
            if inner in flat:
                raise error(
                    "S132",
                    f"table has duplicate column `{inner[:60]}`",
                    location=Location(feature=inner[:60]),
                    expected="unique names when nested names are joined with `/`",
                    found="a duplicate",
                    do="rename one of the columns",
                )
            flat[inner] = column
    return flat


def _is_arrow(source: object) -> bool:
    return all(hasattr(source, name) for name in ("num_rows", "schema", "column_names", "slice"))


def _is_polars(source: object) -> bool:
    return all(hasattr(source, name) for name in ("to_arrow", "iter_rows", "columns"))


def _is_pandas(source: object) -> bool:
    return all(hasattr(source, name) for name in ("iloc", "dtypes", "columns", "itertuples"))


def _validate_columns(source: Mapping[Any, Any]) -> dict[str, Any]:
    columns = {}
    for name, column in source.items():
        is_array = hasattr(column, "__array__") and np.ndim(column) > 0
        if not isinstance(name, str) or not (is_array or isinstance(column, (list, tuple))):
            raise schema_error(
                "S132",
                f"{preview(name)} is not a valid table column",
                column=name if isinstance(name, str) else None,
                expected="a dict of column names to arrays or lists, with one value per row",
                found=preview(column),
                do="infer([row]) for a single row",
            )
        columns[name] = np.asarray(column) if is_array else list(column)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        first = next(iter(lengths))
        other = next(name for name, length in lengths.items() if length != lengths[first])
        raise schema_error(
            "S132",
            "table columns have different lengths",
            column=other,
            expected=f"{lengths[first]:,} values, as in `{first}`",
            found=f"{lengths[other]:,} values",
            do="give every column one value per row",
        )
    return {
        name: column.tolist() if isinstance(column, np.ndarray) and column.dtype == object else column
        for name, column in columns.items()
    }


def _from_pandas(frame: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for place, name in enumerate(frame.columns):
        if not isinstance(name, str) or name in columns:
            raise schema_error(
                "S132",
                f"{preview(name)} is not a valid column name",
                expected="unique column names of type str",
                found=preview(list(frame.columns)),
                do="rename the columns: frame.columns = [...]",
            )
        columns[name] = _pandas_values(frame.iloc[:, place])
    return columns


def _pandas_values(series: Any) -> Any:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return series.to_numpy()
    # pandas' own types support missing values; in a NumPy array, integers would become floats.
    number = getattr(dtype, "numpy_dtype", None)
    convert = number.type if isinstance(number, np.dtype) and number.kind in "biuf" else None
    out: list[Any] = []
    for value in series.astype(object).tolist():
        # In a column of objects, NaN marks a missing value.
        if is_missing(value) or (convert is None and isinstance(value, float) and value != value):
            out.append(None)
        else:
            out.append(value if convert is None else convert(value))
    return out


def _from_arrow(table: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for place, field in enumerate(table.schema):
        if field.name in columns:
            raise schema_error(
                "S132",
                f"table has duplicate column {preview(field.name)}",
                column=field.name,
                expected="unique names",
                found=preview(table.column_names),
                do="rename one: table.rename_columns([...])",
            )
        column = table.column(place)
        if str(field.type).startswith("timestamp["):
            columns[field.name] = column  # as Python values, nanoseconds would be lost
            continue
        values = column.to_pylist()
        convert = _arrow_converter(field.type)
        columns[field.name] = (
            values if convert is None else [None if value is None else convert(value) for value in values]
        )
    return columns


def _arrow_converter(arrow: Any) -> Callable[[Any], Any] | None:
    """Converts a Python value to the number type that Arrow declared."""
    inner = getattr(arrow, "value_type", None)
    number = _numpy_number_type(arrow if inner is None else inner)
    if number is None:
        return None
    if inner is None or str(arrow).startswith("dictionary"):
        return number  # type: ignore[no-any-return]
    return lambda values: values if any(value is None for value in values) else np.array(values, number)


def _numpy_number_type(arrow: Any) -> Any:
    name = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(arrow), str(arrow))
    if name in ("bool", "float16", "float32", "float64") or name.removeprefix("u").startswith("int"):
        return np.dtype(name).type
    return None
