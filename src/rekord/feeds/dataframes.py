"""Splits as Arrow tables and as pandas and polars DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings, column_to_arrow
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import compile_plan
from rekord.errors import error
from rekord.schema import Feature

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from rekord.dataset.split import Split


PandasDataFrame: TypeAlias = "pd.DataFrame"
PolarsDataFrame: TypeAlias = "pl.DataFrame"

_BATCH_ROWS = 8192


def split_to_arrow(split: Split, columns: Sequence[str] | None) -> pa.Table:
    """All records of a split, in its order, as chunks of a table."""
    schema, batches = iter_arrow_batches(split, columns)
    return pa.Table.from_batches(list(batches), schema)


def infer_arrow_schema(split: Split, columns: Sequence[str] | None = None) -> pa.Schema:
    """The types of a split's table; a record is read only where a function makes the columns."""
    if split.batch_map is None:
        return _to_record_batch(_make_empty_batch(split, columns), split.schema.features).schema
    return iter_arrow_batches(split, columns)[0]


def iter_arrow_batches(
    split: Split, columns: Sequence[str] | None, *, rows: int = _BATCH_ROWS, threads: int | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a split's table, and its batches one after another; only the first is made ahead."""
    # What a function makes of the columns is no longer what the schema declares.
    declared: Mapping[str, Feature] = split.schema.features if split.batch_map is None else {}
    made = (_to_record_batch(batch, declared) for batch in split.batches(rows, columns=columns, threads=threads))
    first = next(made, None)
    if first is None:
        return _to_record_batch(_make_empty_batch(split, columns), split.schema.features).schema, iter(())
    return first.schema, _check_same_schema(first.schema, chain([first], made))


def _check_same_schema(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a split have one schema, unless a function that was applied to them gives several."""
    for batch in batches:
        if not batch.schema.equals(schema):
            known, fields = set(schema.names), set(batch.schema)
            differ = [name for name in batch.schema.names if name not in known]
            differ += [field.name for field in schema if field not in fields]
            raise _arrow_table_error(
                f"`{differ[0]}` is not the same in all batches"[:90] if differ else "columns change places"
            )
        yield batch


def _to_record_batch(batch: Mapping[str, Column], declared: Mapping[str, Feature]) -> pa.RecordBatch:
    arrays: dict[str, Any] = {}
    for name, column in batch.items():
        try:
            arrays[name] = _to_arrow_array(column, declared.get(name))
        except (pa.ArrowException, TypeError, ValueError) as failure:
            # Only what a function of the user made can have no like in Arrow.
            raise _arrow_table_error(f"`{name!s:.60}` cannot be a column: {type(column).__name__}") from failure
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise _arrow_table_error(f"columns of {min(lengths):,} and of {max(lengths):,} rows")
    return pa.RecordBatch.from_arrays(list(arrays.values()), [str(name) for name in arrays])


def _to_arrow_array(column: Any, feature: Feature | None) -> Any:
    if isinstance(column, (np.ndarray, Optional, Ragged, SparseColumn, Strings)):
        return column_to_arrow(column, feature)
    return pa.array(column)


def _make_empty_batch(split: Split, columns: Sequence[str] | None) -> dict[str, Column]:
    """Without a record the types are those of a batch of none."""
    plan = compile_plan(split.schema, None if columns is None else tuple(columns))
    return assemble_columns(plan, new_batch(plan, _core.Pool(0)).take(), 0)


def _arrow_table_error(found: str) -> Exception:
    return error(
        "U605",
        "the batches that the function for `map` gives make no table",
        expected="columns of one type and one length in all of them",
        found=found,
        do="take the table of the split before .map(…), or give NumPy arrays",
    )


def split_to_pandas(split: Split, columns: Sequence[str] | None) -> PandasDataFrame:
    """All records of a split as a DataFrame.

    Whole numbers and truth values with holes have pandas' own types for that (Int64, boolean): as floats, large
    numbers would change.
    """
    try:
        import pandas as pd
    except ImportError as failure:
        raise error(
            "U602",
            "`to_pandas` needs pandas, which is not installed",
            expected="the package pandas",
            found=str(failure)[:60],
            do="pip install pandas",
        ) from failure
    table = split_to_arrow(split, columns)
    with_holes = {
        pa.bool_(): pd.BooleanDtype(),
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.uint8(): pd.UInt8Dtype(),
        pa.uint16(): pd.UInt16Dtype(),
        pa.uint32(): pd.UInt32Dtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }
    series = {
        name: table[name].to_pandas(types_mapper=with_holes.get if table[name].null_count else None)
        for name in table.column_names
    }
    return pd.DataFrame(series, index=pd.RangeIndex(len(table)))


def split_to_polars(split: Split, columns: Sequence[str] | None) -> PolarsDataFrame:
    """All records of a split as a DataFrame, in memory that polars shares with Arrow where it can."""
    try:
        import polars as pl
    except ImportError as failure:
        raise error(
            "U602",
            "`to_polars` needs polars, which is not installed",
            expected="the package polars",
            found=str(failure)[:60],
            do="pip install polars",
        ) from failure
    frame = pl.from_arrow(split_to_arrow(split, columns))
    assert isinstance(frame, pl.DataFrame), "a table is no Series"
    return frame
