"""Splits as Arrow tables and as pandas and polars DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings, column_to_arrow
from rekord.codec.plan import compile_plan
from rekord.dataset.batches import read_shard
from rekord.dataset.readers.pipeline import ordered_work
from rekord.errors import error
from rekord.feeds.feed import import_package, make_empty_batch
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
    """The types of a split's table; records are read only if a function produces the columns."""
    if split.batch_map is None:
        return _declared_schema(split, columns)
    return iter_arrow_batches(split, columns)[0]


def iter_arrow_batches(
    split: Split, columns: Sequence[str] | None, *, rows: int = _BATCH_ROWS, threads: int | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema of a split's table, and an iterator over its batches; only the first is read in advance."""
    # The output of a function is no longer what the schema declares.
    declared: Mapping[str, Feature] = split.schema.features if split.batch_map is None else {}
    made = (_to_record_batch(batch, declared) for batch in split.batches(rows, columns=columns, threads=threads))
    first = next(made, None)
    if first is None:
        return _declared_schema(split, columns), iter(())
    return first.schema, _check_same_schema(first.schema, chain([first], made))


def iter_arrow_shards(split: Split, columns: Sequence[str], *, rows: int) -> Iterator[pa.RecordBatch]:
    """The batches of a whole split in order, of stored columns; every thread reads a shard and holds its batches.

    Faster than `iter_arrow_batches`, where one thread at a time reads, and only for columns of few bytes.
    """
    request = split.request(rows, columns=columns)
    shards = iter(range(len(request.shards.paths)))

    def read(shard: int) -> tuple[list[pa.RecordBatch], BaseException | None]:
        made: list[pa.RecordBatch] = []
        try:
            made.extend(_to_record_batch(batch, split.schema.features) for batch in read_shard(request, shard))
        except BaseException as failure:
            return made, failure  # raised after the batches before it
        return made, None

    work = ordered_work(lambda: next(shards, None), read, threads=request.threads, prefetch=0, name="rekord-decode")
    try:
        while (shard := next(work, None)) is not None:
            yield from shard[0]
            if shard[1] is not None:
                raise shard[1]
    finally:
        work.close()


def _check_same_schema(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, all with one schema: a function that was applied to them may return several."""
    for batch in batches:
        if not batch.schema.equals(schema):
            known, fields = set(schema.names), set(batch.schema)
            differ = [name for name in batch.schema.names if name not in known]
            differ += [field.name for field in schema if field not in fields]
            raise _arrow_table_error(
                f"`{differ[0]}` differs between batches"[:90] if differ else "columns in a different order"
            )
        yield batch


def _to_record_batch(batch: Mapping[str, Column], declared: Mapping[str, Feature]) -> pa.RecordBatch:
    arrays: dict[str, Any] = {}
    for name, column in batch.items():
        try:
            known = isinstance(column, (np.ndarray, Optional, Ragged, SparseColumn, Strings))
            arrays[name] = column_to_arrow(column, declared.get(name)) if known else pa.array(column)
        except (pa.ArrowException, TypeError, ValueError) as failure:
            # Only the result of a user's function can have no Arrow type.
            raise _arrow_table_error(f"`{name!s:.60}` of type {type(column).__name__}") from failure
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise _arrow_table_error(f"columns of {min(lengths):,} and {max(lengths):,} rows")
    return pa.RecordBatch.from_arrays(list(arrays.values()), [str(name) for name in arrays])


def _declared_schema(split: Split, columns: Sequence[str] | None) -> pa.Schema:
    """The types of a split's table by its schema, without reading a record."""
    plan = compile_plan(split.schema, None if columns is None else tuple(columns))
    return _to_record_batch(make_empty_batch(plan), split.schema.features).schema


def _arrow_table_error(found: str) -> Exception:
    return error(
        "U605",
        "batches returned by the function for `map` do not form a table",
        expected="columns with the same type in all batches, and the same length within a batch",
        found=found,
        do="return NumPy arrays, or use the split before .map(…)",
    )


def split_to_pandas(split: Split, columns: Sequence[str] | None) -> PandasDataFrame:
    """All records of a split as a DataFrame.

    Integers and booleans with missing values have pandas' nullable dtypes (Int64, boolean): as floats, large
    integers would change.
    """
    pd = import_package("pandas", "`to_pandas`", "pandas")
    table = split_to_arrow(split, columns)
    nullable = {pa.bool_(): pd.BooleanDtype()}
    for bits in (8, 16, 32, 64):
        nullable[pa.type_for_alias(f"int{bits}")] = getattr(pd, f"Int{bits}Dtype")()
        nullable[pa.type_for_alias(f"uint{bits}")] = getattr(pd, f"UInt{bits}Dtype")()
    series = {
        name: table[name].to_pandas(types_mapper=nullable.get if table[name].null_count else None)
        for name in table.column_names
    }
    frame: PandasDataFrame = pd.DataFrame(series, index=pd.RangeIndex(len(table)))
    return frame


def split_to_polars(split: Split, columns: Sequence[str] | None) -> PolarsDataFrame:
    """All records of a split as a DataFrame, which shares memory with Arrow where possible."""
    frame: PolarsDataFrame = import_package("polars", "`to_polars`", "polars").from_arrow(
        split_to_arrow(split, columns)
    )
    return frame
