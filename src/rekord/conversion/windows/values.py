"""Rows as tables, and their times and groups as keys to sort by."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from rekord.conversion.windows.columns import column_error
from rekord.conversion.windows.files import BATCH_ROWS, MERGE_ROWS
from rekord.errors import RekordError, preview
from rekord.schema import Tensor
from rekord.sources.base import (
    Chunk,
    ColumnChunk,
    SourceRow,
)


def iter_row_tables(chunks: Iterable[Chunk], names: list[str]) -> Iterator[SourceRow | tuple[ColumnChunk, pa.Table]]:
    """Chunks as tables of these columns; bad rows as they are."""
    waiting: list[SourceRow] = []

    def flush() -> Iterator[tuple[ColumnChunk, pa.Table]]:
        if waiting:
            several = {name: [row.values.get(name) for row in waiting] for name in names}  # type: ignore[union-attr]
            lines = [row.line for row in waiting]
            chunk = ColumnChunk(
                waiting[0].path,
                waiting[0].position,
                several,
                len(waiting),
                lines=None if None in lines else lines,  # type: ignore[arg-type]
            )
            yield chunk, _to_table(several, names)
            waiting.clear()

    for chunk in chunks:
        if isinstance(chunk, SourceRow):
            if isinstance(chunk.values, RekordError):
                yield from flush()
                yield chunk
                continue
            if waiting and (waiting[-1].path != chunk.path or waiting[-1].position + 1 != chunk.position):
                yield from flush()
            waiting.append(chunk)
            if len(waiting) >= BATCH_ROWS:
                yield from flush()
            continue
        yield from flush()
        for begin in range(0, chunk.rows, MERGE_ROWS):
            part = chunk.slice(begin, min(begin + MERGE_ROWS, chunk.rows))
            yield part, _to_table(part.values, names)
    yield from flush()


def _to_table(values: Any, names: list[str]) -> pa.Table:
    given = (
        dict(zip(values.schema.names, values.columns, strict=True)) if isinstance(values, pa.RecordBatch) else values
    )
    arrays = {}
    for name in names:
        column = given.get(name)
        if column is None:
            column = pa.nulls(len(next(iter(given.values()))))
        try:
            if not isinstance(column, (pa.Array, pa.ChunkedArray)):
                column = pa.array(column.tolist() if hasattr(column, "offsets") else column)
        except (pa.ArrowException, TypeError, ValueError):
            raise column_error(name, Tensor("float32"), "one number or text per row") from None
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        arrays[name] = column
    return pa.table(arrays)


def concat_row_tables(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="permissive")


def to_values(array: Any) -> Any:
    """A column as NumPy numbers or times, or a list of texts."""
    kind = array.type
    if (
        pa.types.is_temporal(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    ):
        return array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy()
    return array.to_pylist()


def read_time(column: Any, rows: int, unit: str | None) -> tuple[Any, Any]:
    """The time of each row as a number, and which rows have none."""
    if column is None:
        return np.zeros(rows, np.int64), np.zeros(rows, bool)
    if unit == "":
        column = _parse_times(column)
    missing = compute.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    if unit is None:
        numbers = column.cast(pa.float64() if pa.types.is_floating(column.type) else pa.int64())
        return numbers.fill_null(0).to_numpy(zero_copy_only=False), missing
    ticks = column.cast(pa.timestamp(unit or "us"), safe=False).cast(pa.int64())
    return ticks.fill_null(0).to_numpy(zero_copy_only=False), missing


def _parse_times(column: Any) -> Any:
    """Texts as timestamps in microseconds; null for one that is not a time."""
    if pa.types.is_null(column.type):
        return column.cast(pa.timestamp("us"))
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return column.cast(kind).cast(pa.timestamp("us"))
        except pa.ArrowException:
            continue
    return pa.array([parse_time(text) for text in column.to_pylist()], pa.timestamp("us"))


def parse_time(text: str | None) -> Any:
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            return pa.array([text], pa.string()).cast(kind).cast(pa.timestamp("us"))[0].as_py()
        except (pa.ArrowException, ValueError, OverflowError):
            continue
    return None


def to_time_column(ticks: Any, unit: str | None) -> Any:
    ticks = np.asarray(ticks)
    return ticks if unit is None else ticks.astype(np.int64).view(f"M8[{unit or 'us'}]")


def format_time(value: Any, unit: str | None) -> str:
    return str(value.item()) if unit is None else str(to_time_column(np.array([value]), unit)[0])


def number_groups(table: pa.Table, by: tuple[str, ...] | None, path: str) -> tuple[list[bytes], Any]:
    """The groups of a chunk as bytes that sort like their values, and the number of each row's group."""
    rows = len(table)
    if not by:
        return [os.fsencode(path) if by is None else b""], np.zeros(rows, np.int64)
    texts: list[list[bytes]] = []
    codes = []
    for name in by:
        encoded = table[name].combine_chunks().dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        texts.append([_sortable(value) for value in encoded.dictionary.to_pylist()] or [b""])
        codes.append(encoded.indices.fill_null(0).to_numpy(zero_copy_only=False))
    found, which = np.unique(np.stack(codes), axis=1, return_inverse=True)
    groups = [b"".join(texts[i][int(code)] for i, code in enumerate(column)) for column in found.T]
    return groups, np.asarray(which).reshape(-1)


def _sortable(value: Any) -> bytes:
    """A value as bytes in its order: whole numbers before other values, and each ends where the next begins."""
    if isinstance(value, (bool, int)) and -(1 << 63) <= int(value) < 1 << 63:
        return b"\x01" + (int(value) + (1 << 63)).to_bytes(8, "big")
    data = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")
    return b"\x02" + data.replace(b"\0", b"\0\xff") + b"\0\0"


def preview_value(column: Any, row: int) -> str:
    value = column[row].as_py() if hasattr(column[row], "as_py") else column[row]
    return "none" if value is None else preview(value)


def has_lines(chunk: ColumnChunk) -> bool:
    return chunk.lines is not None or chunk.first_line is not None
