"""The result of a query as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rekord.cli.console import StyledText, escape_controls, quote_text, truncate
from rekord.cli.payload_view import MAX_SHOWN_VALUES, decode_text, inspect_image
from rekord.errors import error
from rekord.report.formatting import format_byte_size

if TYPE_CHECKING:
    from rekord.feeds.sql.answer import QueryResult


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INFINITY = {2**31 - 1: "infinity", 1 - 2**31: "-infinity"}
_LONG_INFINITY = {2**63 - 1: "infinity", 1 - 2**63: "-infinity"}


def format_times(column: Any) -> Any:
    """A column with its dates and times as text, in lists and structs too."""
    numbers = _replace_time_types(column.type, lambda kind: pa.int32() if kind.bit_width == 32 else pa.int64())
    if numbers == column.type:
        return column
    convert = _make_time_converter(column.type)
    texts = [None if value is None else convert(value) for value in column.cast(numbers).to_pylist()]
    return pa.array(texts, _replace_time_types(column.type, lambda _: pa.string()))


def _replace_time_types(kind: Any, leaf: Callable[[Any], Any]) -> Any:
    """A type with its dates and times replaced."""
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return leaf(kind)
    if pa.types.is_map(kind):
        return pa.map_(_replace_time_types(kind.key_type, leaf), _replace_time_types(kind.item_type, leaf))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([field.with_type(_replace_time_types(field.type, leaf)) for field in fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        item = kind.value_field.with_type(_replace_time_types(kind.value_type, leaf))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)
    return kind


def _make_time_converter(kind: Any) -> Callable[[Any], Any]:
    """The conversion of numbers to text for the dates and times of a type."""
    if pa.types.is_date(kind):
        return partial(_format_date, days=1 if kind.bit_width == 32 else 86_400_000)
    if pa.types.is_time(kind):
        return partial(_format_time, per_second=_PER_SECOND[kind.unit])
    if pa.types.is_timestamp(kind):
        return partial(_format_timestamp, per_second=_PER_SECOND[kind.unit], zone=kind.tz)
    if pa.types.is_map(kind):
        key, item = _make_time_converter(kind.key_type), _make_time_converter(kind.item_type)
        return lambda pairs: [(key(one), None if other is None else item(other)) for one, other in pairs]
    if pa.types.is_struct(kind):
        parts = {kind.field(i).name: _make_time_converter(kind.field(i).type) for i in range(kind.num_fields)}
        return lambda value: {name: None if one is None else parts[name](one) for name, one in value.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _make_time_converter(kind.value_type)
        return lambda values: [None if value is None else inner(value) for value in values]
    return lambda value: value


def _format_date(value: int, days: int) -> str:
    return _INFINITY.get(value) or str(np.datetime64(value // days, "D"))


def _format_time(value: int, per_second: int) -> str:
    seconds, part = divmod(value, per_second)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_format_fraction(part, per_second)}"


def _format_timestamp(value: int, per_second: int, zone: str | None) -> str:
    if value in _LONG_INFINITY:
        return _LONG_INFINITY[value]
    seconds, part = divmod(value, per_second)
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
        if zone is not None and zone not in ("UTC", "Etc/UTC"):
            from zoneinfo import ZoneInfo

            moment = moment.astimezone(ZoneInfo(zone))
    except (OverflowError, ValueError, KeyError):  # a year or a time zone that Python does not support
        text, offset = str(np.datetime64(seconds, "s")).replace("T", " "), "+00:00"
    else:
        text = moment.isoformat(" ")
        text, offset = text[:19], text[19:]
    return text + _format_fraction(part, per_second) + (offset if zone is not None else "")


def _format_fraction(part: int, per_second: int) -> str:
    """A fraction of a second, with as many digits as Python writes."""
    if part == 0:
        return ""
    billionths = part * (10**9 // per_second)
    return f".{billionths:09}" if billionths % 1000 else f".{billionths // 1000:06}"


class LimitedResult:
    """The first rows of a query result; all of them without a limit."""

    def __init__(self, answer: QueryResult, limit: int | None = None) -> None:
        self._answer = answer
        self.limit = limit
        self.taken = 0
        self.has_more = False

    @property
    def schema(self) -> pa.Schema:
        """The types of the result."""
        return self._answer.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        for batch in self._answer.batches():
            part = batch if self.limit is None else batch.slice(0, self.limit - self.taken)
            self.taken += part.num_rows
            self.has_more = part.num_rows < batch.num_rows
            yield part
            if self.has_more:
                return


_GROUP_BYTES = 32 << 20
"""Approximate size of a row group of a Parquet file, which is in memory until it is written."""


def iter_lines(answer: LimitedResult, form: str, *, safe: bool = False) -> Iterator[str]:
    """A result as lines of csv, tsv or jsonl; with `safe`, escaped for a terminal."""
    names = make_unique_names(answer.schema.names)
    if form == "jsonl":
        for rows in _iter_json_rows(answer):
            for row in rows:
                yield json.dumps(dict(zip(names, row, strict=True)), allow_nan=False)
        return
    made = io.StringIO()
    writer = csv.writer(made, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
    for chunk in _iter_cell_chunks(names, answer):
        writer.writerows([escape_controls(cell) for cell in cells] if safe else cells for cells in chunk)
        yield made.getvalue().removesuffix("\n")
        made.seek(0)
        made.truncate()


def iter_json_document(answer: LimitedResult) -> Iterator[str]:
    """A result as the pieces of one JSON document."""
    yield f'{{"columns": {json.dumps(answer.schema.names)}, "rows": ['
    separator = ""
    for rows in _iter_json_rows(answer):
        for row in rows:
            yield f"{separator}{json.dumps(row, allow_nan=False)}"
            separator = ", "
    yield "]}"


def _iter_json_rows(answer: LimitedResult) -> Iterator[list[list[Any]]]:
    """The rows of a result as JSON values, in batches."""
    for batch in answer.batches():
        columns = [_json_values(column) for column in batch.columns]
        yield [list(row) for row in zip(*columns, strict=True)]


def make_unique_names(names: list[str]) -> list[str]:
    """Column names without duplicates."""
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


def write_parquet(answer: LimitedResult, staged: Any) -> None:
    """Write a result as a Parquet file."""
    from pyarrow import parquet

    sink = pa.PythonFile(staged, mode="w")
    schema = answer.schema
    fields = [one.with_name(name) for one, name in zip(schema, make_unique_names(schema.names), strict=True)]
    renamed = pa.schema(fields)
    try:
        writer = parquet.ParquetWriter(sink, renamed)
    except pa.ArrowNotImplementedError as failure:
        raise error(
            "U676",
            "result has a type that Parquet does not support",
            expected="types of Parquet",
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


def _iter_cell_chunks(names: list[str], answer: LimitedResult) -> Iterator[list[tuple[str, ...]]]:
    yield [tuple(names)]
    for batch in answer.batches():
        columns = [[_format_cell(value) for value in _json_values(column)] for column in batch.columns]
        if batch.num_rows:
            yield list(zip(*columns, strict=True))


def _format_cell(value: Any) -> str:
    """A value in CSV: null as an empty cell, lists and structs as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and set(value) == {"base64"}:
        return f"base64:{value['base64']}"
    return json.dumps(value, allow_nan=False)


def _json_values(column: Any) -> list[Any]:
    column = format_times(column)
    convert = _make_json_converter(column.type)
    values = column.to_pylist()
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _make_json_converter(kind: Any) -> Callable[[Any], Any] | None:
    """The conversion of values of a type to JSON; None if they need none."""
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_text(kind):
        return None
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        return _to_short_number
    if pa.types.is_floating(kind):
        return _to_json_number
    if pa.types.is_decimal(kind):
        return int if kind.scale == 0 else float
    if _is_binary(kind):
        return _bytes_to_json
    if pa.types.is_map(kind):
        key, item = (_make_json_converter(one) or _identity for one in (kind.key_type, kind.item_type))
        return lambda pairs: [[_convert_or_null(key, one), _convert_or_null(item, other)] for one, other in pairs]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = _make_json_converter(kind.value_type) or _identity
        return lambda values: [_convert_or_null(inner, value) for value in values]
    if pa.types.is_struct(kind):
        parts = {
            kind.field(i).name: _make_json_converter(kind.field(i).type) or _identity for i in range(kind.num_fields)
        }
        return lambda value: {name: _convert_or_null(parts[name], one) for name, one in value.items()}
    return format_interval if pa.types.is_interval(kind) else str


def format_interval(value: Any) -> str:
    """An interval as ISO 8601 writes it, in months, days and seconds."""
    whole, part = divmod(abs(value.nanoseconds), 10**9)
    seconds = f"{whole}.{part:09}".rstrip("0").rstrip(".")
    sign = "-" if value.nanoseconds < 0 else ""
    return f"P{value.months}M{value.days}DT{sign}{seconds}S"


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _convert_or_null(convert: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else convert(value)


def _identity(value: Any) -> Any:
    return value


def _to_json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _to_short_number(value: float) -> float | None:
    """A float32 in the fewest digits that JSON and CSV readers parse back to the same float32."""
    return float(str(np.float32(value))) if math.isfinite(value) else None


def _bytes_to_json(value: bytes) -> str | dict[str, str]:
    """Bytes as text if they are UTF-8, otherwise in base64, in an object that cannot be mistaken for text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


_MAX_CELL_WIDTH, _MIN_CELL_WIDTH, _BINARY_CELL_WIDTH = 60, 8, 28
MAX_SHOWN_COLUMNS = 100
_COLUMN_SEPARATOR = "  "
_SHOWN_BYTES = 4


def format_table(answer: LimitedResult, *, terminal: bool) -> tuple[list[list[StyledText]], int]:
    """The lines of a table, and the number of columns in it; a line fits the terminal."""
    names = [
        truncate(escape_controls(name), _MAX_CELL_WIDTH)
        for name in make_unique_names(answer.schema.names)[:MAX_SHOWN_COLUMNS]
    ]
    columns: list[list[str]] = [[] for _ in names]
    for batch in answer.batches():
        for column, cells in zip(batch.columns[: len(names)], columns, strict=True):
            cells += [_format_table_cell(value) for value in format_times(column).to_pylist()]
    right = [_is_numeric_type(kind) for kind in answer.schema.types[: len(names)]]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(names, columns, strict=True)]
    if terminal:
        # The size of an image or blob stays visible.
        least = [_BINARY_CELL_WIDTH if _is_binary(kind) else _MIN_CELL_WIDTH for kind in answer.schema.types]
        widths = _fit_columns(widths, least, shutil.get_terminal_size().columns)
    shown = len(widths)
    names, columns, right = names[:shown], columns[:shown], right[:shown]
    lines: list[list[StyledText]] = [[(_format_line(names, widths, right), "bold")]]
    lines += [[_format_line(list(row), widths, right)] for row in zip(*columns, strict=True)]
    return lines, shown


def _fit_columns(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Narrow the widest columns until a line fits `width`; the last ones are left out if that is not enough."""
    gap = len(_COLUMN_SEPARATOR)
    fitted = list(widths)
    while len(fitted) > 1 and sum(min(pair) + gap for pair in zip(fitted, least, strict=False)) - gap > width:
        fitted.pop()
    while sum(fitted) + gap * (len(fitted) - 1) > width:
        widest = max(range(len(fitted)), key=lambda at: fitted[at] - min(fitted[at], least[at]))
        if fitted[widest] <= least[widest]:
            break
        fitted[widest] -= 1
    return fitted


def _format_line(cells: list[str], widths: list[int], right: list[bool]) -> str:
    fitted = [truncate(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [
        cell.rjust(width) if at_right else cell.ljust(width)
        for cell, width, at_right in zip(fitted, widths, right, strict=True)
    ]
    return _COLUMN_SEPARATOR.join(padded).rstrip()


def _format_table_cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return _format_binary(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, pa.MonthDayNano):
        return format_interval(value)
    if isinstance(value, dict):
        return truncate(
            "{"
            + ", ".join(f"{escape_controls(name)}: {_format_table_cell(one)}" for name, one in value.items())
            + "}"
        )
    if isinstance(value, (list, tuple)):
        more = ", …" if len(value) > MAX_SHOWN_VALUES else ""
        return truncate("[" + ", ".join(_format_table_cell(one) for one in value[:MAX_SHOWN_VALUES]) + more + "]")
    return truncate(escape_controls(str(value)))


def _format_binary(value: bytes) -> str:
    """Bytes in a table: an image by its format and size, text in quotes, anything else by its first bytes."""
    image = inspect_image(value)
    if image is not None:
        size = "" if image.width is None else f" {image.width}×{image.height}"
        return f"<{image.format}{size}, {format_byte_size(len(value))}>"
    text = decode_text(value)
    if text is not None:
        return quote_text(text)
    more = f"… {format_byte_size(len(value))}" if len(value) > _SHOWN_BYTES else ""
    return f"{value[:_SHOWN_BYTES]!r}{more}"


def _is_numeric_type(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
