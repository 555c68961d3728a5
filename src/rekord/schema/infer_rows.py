"""A schema from Python rows: what the values of each column had in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from rekord.errors import error
from rekord.schema.defaults import is_unicode
from rekord.schema.refuse import refuse, shown
from rekord.schema.rowforms import column_batches, flat_row, is_table
from rekord.schema.schema import Schema
from rekord.schema.seen import SeenColumn


def infer_rows(rows: Any, *, names: Sequence[str] | None = None, limit: int | None = None) -> Schema:
    """The schema that rows fit, with evidence: all of them, or the first `limit`.

    Rows are mappings (nested ones join their names with `/`), or tuples whose columns are `names` (x, y and
    weight unless told), or a table: a dict of NumPy columns, an Arrow table, a pandas or polars DataFrame.
    """
    _check_names(names)
    columns: dict[str, SeenColumn] = {}
    count = 0
    complete = True
    if is_table(rows):
        for length, batch in column_batches(rows, limit):
            for name, values in batch.items():
                seen = columns.get(name) or columns.setdefault(name, SeenColumn(name))
                seen.add_column(values, count)
            count += length
        complete = limit is None or count < limit or _table_rows(rows) == count
    else:
        items = iter(_checked_iterable(rows))
        for row in items if limit is None else islice(items, limit):
            for name, value in flat_row(row, count, names).items():
                seen = columns.get(name) or columns.setdefault(name, SeenColumn(name))
                seen.add(value, count)
            count += 1
        if limit is not None and count == limit:
            complete = next(items, items) is items
    if not count or not columns:
        raise error(
            "S126",
            expected="at least one row with a column",
            found="no rows" if not count else f"{count:,} rows without a column",
            do="give rows, or declare the schema: rk.Schema({...})",
        )
    features = {name: seen.feature(count) for name, seen in columns.items()}
    evidence = {
        "rows": count,
        "complete": complete,
        "features": {name: seen.evidence() for name, seen in columns.items()},
    }
    return Schema(features, evidence=evidence)


def _table_rows(table: Any) -> int:
    first = next(iter(table.values()), ()) if hasattr(table, "values") and isinstance(table, dict) else table
    return int(first.num_rows) if hasattr(first, "num_rows") else len(first)


def _checked_iterable(rows: Any) -> Iterable[Any]:
    if isinstance(rows, Iterable) and not isinstance(rows, (str, bytes, bytearray)):
        return rows
    if hasattr(rows, "__len__") and hasattr(rows, "__getitem__"):  # a map-style torch Dataset
        return (rows[i] for i in range(len(rows)))
    raise refuse(
        "S132",
        f"rows cannot come from a {type(rows).__name__}",
        expected="an iterable of mappings or tuples, or a table",
        found=shown(rows),
        do='give a list such as [{"label": 3}, …]',
    )


def _check_names(names: object) -> None:
    if names is None:
        return
    good = isinstance(names, (list, tuple)) and all(isinstance(n, str) and n and is_unicode(n) for n in names)
    if not good or len(set(names)) < len(names):  # type: ignore[arg-type, call-overload]
        raise error(
            "U605",
            f"`names` cannot be {shown(names)}",
            expected="a list of names, each once, for the parts of a tuple",
            found=shown(names),
            do='names=("image", "label")',
        )
