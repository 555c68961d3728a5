"""The rows of an answer as CSV, as JSON, and in a Parquet file."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rekord.cli.query_times import times_as_text
from rekord.cli.render import clean
from rekord.errors import error

if TYPE_CHECKING:
    from rekord.feeds.sql_answer import Answer

_GROUP_BYTES = 32 << 20
"""About how much a row group of a Parquet file holds: all of it is in memory before it is written."""


def lines(answer: Answer, form: str, *, safe: bool = False) -> Iterator[str]:
    """An answer as lines of csv, tsv or jsonl; `safe` ones cannot steer a terminal."""
    names = unique(answer.schema.names)
    if form == "jsonl":
        for rows in json_rows(answer):
            for row in rows:
                yield json.dumps(dict(zip(names, row, strict=True)), allow_nan=False)
        return
    made = io.StringIO()
    writer = csv.writer(made, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
    for chunk in _chunks(names, answer):
        writer.writerows([clean(cell) for cell in cells] if safe else cells for cells in chunk)
        yield made.getvalue().removesuffix("\n")
        made.seek(0)
        made.truncate()


def json_rows(answer: Answer) -> Iterator[list[list[Any]]]:
    """The rows of an answer as JSON holds them, some at a time."""
    for batch in answer.batches():
        columns = [_json_values(column) for column in batch.columns]
        yield [list(row) for row in zip(*columns, strict=True)]


def unique(names: list[str]) -> list[str]:
    """Names of columns, of which none is there twice."""
    taken: set[str] = set()
    found = []
    for name in names:
        free, number = name, 0
        while free in taken:
            number += 1
            free = f"{name}_{number}"
        taken.add(free)
        found.append(free)
    return found


def write_parquet(answer: Answer, staged: Any) -> int:
    """An answer as a Parquet file; gives the number of its rows."""
    from pyarrow import parquet

    sink = pa.PythonFile(_Sink(staged), mode="w")
    schema = answer.schema
    fields = [one.with_name(name) for one, name in zip(schema, unique(schema.names), strict=True)]
    renamed = pa.schema(fields)
    try:
        writer = parquet.ParquetWriter(sink, renamed)
    except pa.ArrowNotImplementedError as failure:
        raise error(
            "U683",
            expected="types that Parquet has",
            found=" ".join(str(failure).split())[:200],
            do="cast(… as varchar) in the query, or -o answer.csv",
        ) from None
    with writer:
        waiting: list[Any] = []
        for batch in answer.batches():
            waiting.append(pa.RecordBatch.from_arrays(batch.columns, schema=renamed))
            if sum(one.nbytes for one in waiting) >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return answer.rows


class _Sink(io.RawIOBase):
    """A staged file as Arrow writes to one."""

    def __init__(self, staged: Any) -> None:
        self._staged = staged
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        self._at += len(data)
        self._staged.write(data)
        return len(data)


def _chunks(names: list[str], answer: Answer) -> Iterator[list[tuple[str, ...]]]:
    yield [tuple(names)]
    for batch in answer.batches():
        columns = [[_cell(value) for value in _json_values(column)] for column in batch.columns]
        if batch.num_rows:
            yield list(zip(*columns, strict=True))


def _cell(value: Any) -> str:
    """A value in CSV: nothing for null, lists and structs as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"base64"}:
        return f"base64:{value['base64']}"
    return json.dumps(value, allow_nan=False)


def _json_values(column: Any) -> list[Any]:
    column = times_as_text(column)
    convert = _converter(column.type)
    values = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _converter(kind: Any) -> Callable[[Any], Any] | None:
    """What makes JSON of the values of a type; None where they are that already."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_text(kind):
        return None
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        return _short_number
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_decimal(kind):
        return int if kind.scale == 0 else float
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _bytes
    if pa.types.is_map(kind):
        key, item = (_converter(one) or _same for one in (kind.key_type, kind.item_type))
        return lambda pairs: [[_or_null(key, one), _or_null(item, other)] for one, other in pairs]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _converter(kind.value_type) or _same
        return lambda values: [_or_null(inner, value) for value in values]
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: _converter(kind.field(i).type) or _same for i in range(kind.num_fields)}
        return lambda value: {name: _or_null(parts[name], one) for name, one in value.items()}
    return span if pa.types.is_interval(kind) else str


def span(value: Any) -> str:
    """An interval as ISO 8601 writes it, in months, days and seconds."""
    whole, part = divmod(abs(value.nanoseconds), 10**9)
    seconds = f"{whole}.{part:09}".rstrip("0").rstrip(".")
    sign = "-" if value.nanoseconds < 0 else ""
    return f"P{value.months}M{value.days}DT{sign}{seconds}S"


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _or_null(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short_number(value: float) -> float | None:
    """A float32 in as few digits as tell it from others, which JSON and CSV readers give the same float32 for."""
    return float(str(np.float32(value))) if math.isfinite(value) else None


def _bytes(value: bytes) -> str | dict[str, str]:
    """Bytes that are UTF-8 as a text; others in base64, and in a form that no text has."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
