"""Parquet and Arrow files: columns as they are, in pieces of bounded size, with the schema beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any

import pyarrow as pa
from pyarrow import compute, ipc, parquet

from rekord.errors import error
from rekord.feeds.arrow import arrow_batches
from rekord.location import Location
from rekord.schema import Image, Mask
from rekord.sources.exported import with_schema
from rekord.verbs.exports.place import Output
from rekord.verbs.exports.reading import Options, Records

GROUP_BYTES = 32 << 20
"""A row group, or a batch of an Arrow file, has at most so much, or one record."""

GROUP_ROWS = 1 << 20
_SAMPLED_VALUES = 1024


def write_parquet(records: Records, output: Output, options: Options) -> int:
    """All records as a Parquet file; gives their number."""
    schema, batches = _stream(records, options)
    first = next(batches, None)
    # Sets and dicts throughout: a record may have thousands of keys.
    again = set() if first is None else {name for name in schema.names if _repeats(first.column(name))}
    features = records.features if records.split._map is None else {}
    whole = {name for name in schema.names if isinstance(features.get(name), (Image, Mask))}
    numbers = {field.name for field in schema if pa.types.is_primitive(field.type)}
    leaves = _leaves(schema)
    sink = pa.PythonFile(output, "w")
    writer = parquet.ParquetWriter(
        sink,
        schema,
        # Pictures are compressed already: they are stored as they are. Of what every reader knows, snappy is fastest.
        compression={leaf: "none" if top in whole else "snappy" for leaf, top in leaves},
        # A dictionary pays where values come again; elsewhere it is built and thrown away.
        use_dictionary=[leaf for leaf, top in leaves if top in again],
        # The least and the greatest of many different strings let no reader pass over a group.
        write_statistics=[leaf for leaf, top in leaves if leaf == top and (top in again or top in numbers)],
    )
    every = batches if first is None else chain([first], batches)
    return _written(every, lambda table, rows: writer.write_table(table, row_group_size=rows), writer.close)


def write_arrow(records: Records, output: Output, options: Options) -> int:
    """All records as an Arrow IPC file; gives their number."""
    schema, batches = _stream(records, options)
    writer = ipc.new_file(pa.PythonFile(output, "w"), schema)
    return _written(batches, lambda table, rows: writer.write_table(table, max_chunksize=rows), writer.close)


def write_arrow_stream(records: Records, output: Output, options: Options) -> int:
    """All records as an Arrow IPC stream; gives their number."""
    schema, batches = _stream(records, options)
    writer = ipc.new_stream(pa.PythonFile(output, "w"), schema)
    return _written(batches, lambda table, rows: writer.write_table(table, max_chunksize=rows), writer.close)


def _stream(records: Records, options: Options) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    rows = records.rows_at_once()
    schema, batches = arrow_batches(records.split, records.columns, rows=rows, threads=records.threads)
    if records.columns is not None and records.split._map is None:
        schema = pa.schema([schema.field(name) for name in records.columns])
        batches = (batch.select(schema.names) for batch in batches)
    declared = records.schema()
    if declared is not None:
        schema = with_schema(schema, declared)
    _check_types(schema)
    return schema, _counted(_cut(batches, records.limit), options)


def _cut(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        if left == 0:
            return


def _counted(batches: Iterator[pa.RecordBatch], options: Options) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        options.on_records(batch.num_rows)


def _written(
    batches: Iterator[pa.RecordBatch], write: Callable[[pa.Table, int], Any], close: Callable[[], Any]
) -> int:
    """Write batches gathered to groups. Not closed after a failure: that would write an end to half a file."""
    total = 0
    # One group is written while the next one is decoded.
    with ThreadPoolExecutor(1, thread_name_prefix="rekord-export") as pool:
        writing: Future[None] | None = None
        for gathered, size_bytes in _groups(batches):
            total += sum(batch.num_rows for batch in gathered)
            if writing is not None:
                writing.result()
            writing = pool.submit(_write_group, gathered, size_bytes, write)
        if writing is not None:
            writing.result()
    close()
    return total


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[list[pa.RecordBatch], int]]:
    """Batches that make a group, with their size in bytes."""
    gathered: list[pa.RecordBatch] = []
    size_bytes = rows = 0
    for batch in batches:
        if gathered and (size_bytes + batch.nbytes > GROUP_BYTES or rows + batch.num_rows > GROUP_ROWS):
            yield gathered, size_bytes
            gathered, size_bytes, rows = [], 0, 0
        gathered.append(batch)
        size_bytes += batch.nbytes
        rows += batch.num_rows
    if gathered:
        yield gathered, size_bytes


def _write_group(
    gathered: list[pa.RecordBatch], size_bytes: int, write: Callable[[pa.Table, int], Any]
) -> None:
    table = pa.Table.from_batches(gathered)
    # One batch of records that are far larger than the first ones can be too much for a group.
    write(table, max(1, min(len(table), len(table) * GROUP_BYTES // max(size_bytes, 1))))


def _repeats(column: Any) -> bool:
    """Whether the values of a column come again and again, judged by the first ones."""
    is_list = (pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list)
    while any(is_kind(column.type) for is_kind in is_list):
        column = column.flatten()
    kinds = (pa.types.is_integer, pa.types.is_large_string, pa.types.is_large_binary)
    if not any(is_kind(column.type) for is_kind in kinds):
        return False
    sample = column[:_SAMPLED_VALUES]
    distinct: int = compute.count_distinct(sample).as_py()
    return 2 * distinct <= len(sample)


def _leaves(schema: pa.Schema) -> list[tuple[str, str]]:
    """The columns of a Parquet file by their own names, each with the column of the table that it belongs to."""
    empty = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), empty)
    names = parquet.ParquetFile(empty.getvalue()).schema
    tops = set(schema.names)
    return [(path, _top(path, tops)) for path in (names.column(i).path for i in range(len(names)))]


def _top(path: str, tops: AbstractSet[str]) -> str:
    """The column that a path of a Parquet file begins with; names may have dots themselves: the longest is meant."""
    top = path
    while top not in tops and top:
        top = top.rpartition(".")[0]
    return top


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_null(field.type):
            raise error(
                "U674",
                f"`{field.name[:60]}` cannot be written: its type is not known",
                location=Location(feature=field.name[:60]),
                expected="columns with a type",
                found="a function for map that gives nothing but None",
                do="leave the column out: columns=[…]",
            )
