"""Exports as Parquet, Arrow, CSV and JSON lines."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, ipc, parquet

from rekord.codec.columns import Array, Column, Optional, Ragged, SparseColumn, Strings, column_to_arrow
from rekord.errors import error
from rekord.feeds.dataframes import iter_arrow_batches
from rekord.location import Location
from rekord.schema import Feature
from rekord.sources.tables import attach_schema
from rekord.storage.transaction import Output
from rekord.verbs.export.reading import (
    ExportedRecords,
    LabelFormat,
    Options,
    reject_columns,
    unwritable_value_error,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


def to_python_values(column: Column | Any, feature: Feature | None = None) -> list[Any]:
    """The values of all rows: numbers, texts, bytes, nested lists of them, and None where there is none.

    A sparse vector is the pair [indices, values], a point in time text in ISO 8601. Floats have the fewest digits
    that give them back, or all of them where the feature takes no number that would have to be rounded.
    """
    exact = getattr(feature, "rounding", "nearest") == "exact"
    short: Callable[[Array], Array] = _to_doubles if exact else _to_short_doubles
    if _is_time(column):
        short = _iso_texts(None if feature is None else feature.time_zone)
    if isinstance(column, np.ndarray):
        values: list[Any] = short(column).tolist()
        return values
    if isinstance(column, Optional):
        pairs = zip(short(column.values).tolist(), column.valid.tolist(), strict=True)
        return [value if there else None for value, there in pairs]
    if isinstance(column, Strings):
        return column.tolist()
    if isinstance(column, Ragged):
        return _ragged_to_lists(column, feature)
    if isinstance(column, SparseColumn):
        pairs = zip(to_python_values(column.indices), to_python_values(column.values), strict=True)
        return [None if indices is None else [indices, values] for indices, values in pairs]
    return list(column)


def _ragged_to_lists(column: Ragged, feature: Feature | None) -> list[Any]:
    inner = to_python_values(column.values, feature)
    offsets = column.offsets.tolist()
    rows: list[Any] = [inner[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1)]
    if column.row_shape is not None:
        rows = [_to_object_array(row).reshape(column.row_shape).tolist() for row in rows]
    if column.valid is None:
        return rows
    return [row if there else None for row, there in zip(rows, column.valid.tolist(), strict=True)]


def _to_object_array(values: list[Any]) -> Array:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _is_time(column: Any) -> bool:
    """Whether these are points in time, of which text files have text in ISO 8601."""
    values = column.values if isinstance(column, (Optional, Ragged)) else column
    return isinstance(values, np.ndarray) and values.dtype.kind == "M"


def _iso_texts(zone: str | None) -> Callable[[Array], Array]:
    def texts(values: Array) -> Array:
        naive = np.datetime_as_string(values)
        return naive if zone is None else np.char.add(naive, "Z")

    return texts


def _to_doubles(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def _to_short_doubles(values: Array) -> Array:
    """Narrow floats as doubles with as few digits as they need: 0.1, where float32 is 0.10000000149011612."""
    import pyarrow as pa

    values = _to_doubles(values)
    if values.dtype.kind != "f" or values.dtype.itemsize >= 8:
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    single = flat.astype(np.float32)
    digits = pa.array(single).cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    # Rounded twice, a number may end beside the one that it came from.
    back = digits.astype(np.float32).astype(flat.dtype)
    return np.where(back == flat, digits, flat.astype(np.float64)).reshape(values.shape)


def check_finite(records: ExportedRecords, batch: Mapping[str, Any], first: int, rows: int, *, format: str) -> None:
    """Raise where a float is NaN or infinite, which JSON has no numbers for."""
    for name, column in batch.items():
        row = _find_first_non_finite(column, rows)
        if row is not None:
            raise unwritable_value_error(
                records,
                first + row,
                name,
                "is NaN or infinite",
                expected=f"finite numbers, which are all that {format} has",
                found="NaN, inf or -inf",
                do="leave the column out with columns=[…] (--columns), or export to .parquet",
            )


def _find_first_non_finite(column: Any, rows: int) -> int | None:
    if _is_time(column):
        return None
    if isinstance(column, Optional):
        return _find_first_non_finite(np.where(_broadcast_mask(column.valid, column.values), column.values, 0), rows)
    if isinstance(column, SparseColumn):
        return _find_first_non_finite(column.values, rows)
    if isinstance(column, Ragged):
        inner = _find_first_non_finite(column.values, len(column.values))
        row = None if inner is None else int(np.searchsorted(column.offsets, inner, side="right")) - 1
        return row if row is None or row < rows else None
    if not isinstance(column, np.ndarray) or (column.dtype.kind != "f" and column.dtype.name != "bfloat16"):
        return None
    values = column[:rows].astype(np.float32) if column.dtype.name == "bfloat16" else column[:rows]
    good = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    return None if good.all() else int(np.argmin(good))


def _broadcast_mask(valid: Array, values: Array) -> Array:
    return valid.reshape(-1, *[1] * (values.ndim - 1))


def make_class_namer(
    records: ExportedRecords, name: str, label: Feature, first: int
) -> Callable[[list[Any]], list[Any]]:
    """A function that puts the names of classes in the place of their ids."""
    names = label.class_names or ()

    def one(value: Any, row: int) -> Any:
        if value is None:
            return None
        if isinstance(value, list):
            return [one(inner, row) for inner in value]
        if not 0 <= value < len(names):
            raise unwritable_value_error(
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


def check_class_names(features: Mapping[str, Feature], labels: LabelFormat) -> None:
    """Names can be asked for only where there are some."""
    found = {name: one for name, one in features.items() if one.class_count is not None}
    if labels == "names" and not any(one.class_names for one in found.values()):
        first = next(iter(found), None)
        raise error(
            "U605",
            "there are no names of classes to write",
            location=Location(feature=first),
            expected="a column Label([…]) with names",
            found="a Label without names" if found else "no Label among the columns",
            do='leave labels="names" (--labels names) out',
        )


_GZIP_WINDOW = 31
_GZIP_LEVEL = 6


class GzipOutput:
    """Takes bytes and hands them on, compressed or not; its end is written when the block ends well."""

    def __init__(self, output: Output, compressed: bool) -> None:
        self._output = output
        self._stream = zlib.compressobj(_GZIP_LEVEL, wbits=_GZIP_WINDOW) if compressed else None

    def __enter__(self) -> GzipOutput:
        return self

    def write(self, data: Buffer) -> None:
        self._output.write(data if self._stream is None else self._stream.compress(data))

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._stream is not None:
            self._output.write(self._stream.flush())


_ESCAPED = re.compile(r'[\\"\x00-\x1f]')


def check_jsonl(records: ExportedRecords, options: Options) -> None:
    """Refuse what JSON has no form for."""
    check_class_names(records.features, options.labels)
    complex_ones = {
        name: repr(feature)[:40]
        for name, feature in records.features.items()
        if getattr(feature.dtype, "kind", "") == "c"
    }
    reject_columns("JSON", complex_ones, holds="numbers, texts, bytes and lists of them")


def write_jsonl(records: ExportedRecords, output: Output, options: Options, *, gzipped: bool = False) -> int:
    """All records as lines of JSON; gives their number."""
    features = records.features
    row_of = _make_row_type(tuple(features))
    encoder = msgspec.json.Encoder()
    total = 0
    with GzipOutput(output, gzipped) as sink:
        for batch, first, rows in records.batches():
            check_finite(records, batch, first, rows, format="JSON")
            columns = []
            for name, feature in features.items():
                values = to_python_values(batch[name], feature)[:rows]
                if options.labels == "names" and feature.class_names:
                    values = make_class_namer(records, name, feature, first)(values)
                octets = feature.kind == "bytes" and feature.dtype is None and not feature.is_text
                columns.append(_wrap_bytes(values) if octets else values)
            sink.write(encoder.encode_lines(list(map(row_of, *columns))))
            total += rows
            options.on_records(rows)
    return total


def _make_row_type(names: tuple[str, ...]) -> Callable[..., Any]:
    """What makes an object of the values of a record. What an optional column lacks is left out, as in the record."""
    if any(_ESCAPED.search(name) for name in names):
        # These names msgspec refuses to write as they stand.
        return lambda *values: {n: value for n, value in zip(names, values, strict=True) if value is not None}
    fields = [(f"column_{i}", Any, None) for i in range(len(names))]
    keys = {field[0]: name for field, name in zip(fields, names, strict=True)}
    return msgspec.defstruct("Line", fields, rename=keys, omit_defaults=True, gc=False)


class _Base64Bytes(msgspec.Struct, gc=False):
    """Bytes, which msgspec writes in base64."""

    base64: bytes


def _wrap_bytes(values: list[Any]) -> list[Any]:
    return [
        _Base64Bytes(value) if isinstance(value, bytes) else value if value is None else _wrap_bytes(value)
        for value in values
    ]


_CSV_TYPES = "numbers, texts, labels, and lists of them with one dimension"


def check_csv(records: ExportedRecords, options: Options) -> None:
    """Refuse what does not fit into a field."""
    check_class_names(records.features, options.labels)
    steps = records.split.schema.steps
    wrong = {
        name: "a column of steps" if name in steps else type(feature).__name__
        for name, feature in records.features.items()
        if name in steps or not _is_csv_feature(feature)
    }
    reject_columns("CSV", wrong, holds=_CSV_TYPES)


def write_csv(
    records: ExportedRecords, output: Output, options: Options, *, gzipped: bool = False, delimiter: str = ","
) -> int:
    """All records as lines of CSV below a line of names; gives their number.

    Texts are always quoted, and what is missing never is: an empty text is `""`, a missing one nothing at all.
    """
    features = records.features
    total = 0
    written = csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="needed")
    with GzipOutput(output, gzipped) as sink:
        sink.write((delimiter.join(_quote_field(name, delimiter) for name in features) + "\n").encode())
        for batch, first, rows in records.batches():
            lists = {name: column for name, column in batch.items() if features[name].shape}
            check_finite(records, lists, first, rows, format="a list in CSV")
            arrays = []
            for name, column in batch.items():
                label = features[name]
                wanted = options.labels == "names" and label.class_names
                values: Any = None
                if wanted or name in lists or _is_time(column):
                    values = to_python_values(column, features[name])[:rows]
                    if wanted:
                        values = make_class_namer(records, name, label, first)(values)
                arrays.append(_format_texts(values) if values is not None else _to_arrow_array(column)[:rows])
            buffer = pa.BufferOutputStream()
            table = pa.RecordBatch.from_arrays(arrays, list(batch))
            with csv.CSVWriter(buffer, table.schema, write_options=written) as writer:
                writer.write_batch(table)
            sink.write(buffer.getvalue())
            total += rows
            options.on_records(rows)
    return total


def _is_csv_feature(feature: Feature) -> bool:
    octets = feature.kind == "bytes" and feature.dtype is None and not feature.is_text
    if octets or feature.storage == "parallel" or len(feature.shape) > 1:
        return False
    return feature.storage == "list" or (not feature.shape and getattr(feature.dtype, "kind", "") != "c")


def _to_arrow_array(column: Column) -> Any:
    """Single numbers or texts of all rows."""
    array = column_to_arrow(column)
    return array.cast(pa.float32()) if array.type == pa.float16() else array


def _format_texts(values: list[Any]) -> Any:
    """Names as they are, and lists as JSON has them."""
    texts = [
        value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode() for value in values
    ]
    return pa.array(texts, pa.large_string())


def _quote_field(name: str, delimiter: str) -> str:
    plain = name.strip() == name and not any(mark in name for mark in ('"', "\n", "\r", delimiter))
    return name if plain else '"' + name.replace('"', '""') + '"'


GROUP_BYTES = 32 << 20
"""A row group, or a batch of an Arrow file, has at most so much, or one record."""

GROUP_ROWS = 1 << 20
_SAMPLED_VALUES = 1024


def write_parquet(records: ExportedRecords, output: Output, options: Options) -> int:
    """All records as a Parquet file; gives their number."""
    schema, batches = _open_batches(records, options)
    first = next(batches, None)
    # Sets and dicts throughout: a record may have thousands of keys.
    again = set() if first is None else {name for name in schema.names if _has_repeated_values(first.column(name))}
    features = records.features if records.split.batch_map is None else {}
    whole = {name for name in schema.names if name in features and features[name].is_image}
    numbers = {field.name for field in schema if pa.types.is_primitive(field.type)}
    leaves = _list_leaf_columns(schema)
    sink = pa.PythonFile(output, "w")
    writer = parquet.ParquetWriter(
        sink,
        schema,
        # Images are compressed already: they are stored as they are. Of what every reader knows, snappy is fastest.
        compression={leaf: "none" if top in whole else "snappy" for leaf, top in leaves},
        # A dictionary pays where values come again; elsewhere it is built and thrown away.
        use_dictionary=[leaf for leaf, top in leaves if top in again],
        # The least and the greatest of many different strings let no reader pass over a group.
        write_statistics=[leaf for leaf, top in leaves if leaf == top and (top in again or top in numbers)],
    )
    every = batches if first is None else chain([first], batches)
    return _write_groups(every, lambda table, rows: writer.write_table(table, row_group_size=rows), writer.close)


def write_arrow(records: ExportedRecords, output: Output, options: Options) -> int:
    """All records as an Arrow IPC file; gives their number."""
    schema, batches = _open_batches(records, options)
    writer = ipc.new_file(pa.PythonFile(output, "w"), schema)
    return _write_groups(batches, lambda table, rows: writer.write_table(table, max_chunksize=rows), writer.close)


def write_arrow_stream(records: ExportedRecords, output: Output, options: Options) -> int:
    """All records as an Arrow IPC stream; gives their number."""
    schema, batches = _open_batches(records, options)
    writer = ipc.new_stream(pa.PythonFile(output, "w"), schema)
    return _write_groups(batches, lambda table, rows: writer.write_table(table, max_chunksize=rows), writer.close)


def _open_batches(records: ExportedRecords, options: Options) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    rows = records.batch_rows()
    schema, batches = iter_arrow_batches(records.split, records.columns, rows=rows, threads=records.threads)
    if records.columns is not None and records.split.batch_map is None:
        schema = pa.schema([schema.field(name) for name in records.columns])
        batches = (batch.select(schema.names) for batch in batches)
    declared = records.schema()
    if declared is not None:
        schema = attach_schema(schema, declared)
    _check_types(schema)
    return schema, _report_rows(_limit_rows(batches, records.limit), options)


def _limit_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        if left == 0:
            return


def _report_rows(batches: Iterator[pa.RecordBatch], options: Options) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        options.on_records(batch.num_rows)


def _write_groups(
    batches: Iterator[pa.RecordBatch], write: Callable[[pa.Table, int], Any], close: Callable[[], Any]
) -> int:
    """Write batches gathered to groups. Not closed after a failure: that would write an end to half a file."""
    total = 0
    # One group is written while the next one is decoded.
    with ThreadPoolExecutor(1, thread_name_prefix="rekord-export") as pool:
        writing: Future[None] | None = None
        for gathered, size_bytes in _iter_groups(batches):
            total += sum(batch.num_rows for batch in gathered)
            if writing is not None:
                writing.result()
            writing = pool.submit(_write_group, gathered, size_bytes, write)
        if writing is not None:
            writing.result()
    close()
    return total


def _iter_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[list[pa.RecordBatch], int]]:
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


def _write_group(gathered: list[pa.RecordBatch], size_bytes: int, write: Callable[[pa.Table, int], Any]) -> None:
    table = pa.Table.from_batches(gathered)
    # One batch of records that are far larger than the first ones can be too much for a group.
    try:
        write(table, max(1, min(len(table), len(table) * GROUP_BYTES // max(size_bytes, 1))))
    except pa.ArrowInvalid as failure:
        if "timestamp" not in str(failure):
            raise
        raise error(
            "U676",
            "a timestamp is out of range for Parquet, which has no unit of seconds",
            expected="timestamps that 64 bits of milliseconds hold",
            found=str(failure)[:60],
            do="export to .arrow, or leave the column out: columns=[…]",
        ) from failure


def _has_repeated_values(column: Any) -> bool:
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


def _list_leaf_columns(schema: pa.Schema) -> list[tuple[str, str]]:
    """The columns of a Parquet file by their own names, each with the column of the table that it belongs to."""
    empty = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), empty)
    names = parquet.ParquetFile(empty.getvalue()).schema
    tops = set(schema.names)
    return [(path, _find_top_column(path, tops)) for path in (names.column(i).path for i in range(len(names)))]


def _find_top_column(path: str, tops: AbstractSet[str]) -> str:
    """The column that a path of a Parquet file begins with; names may have dots themselves: the longest is meant."""
    top = path
    while top not in tops and top:
        top = top.rpartition(".")[0]
    return top


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_null(field.type):
            raise error(
                "U676",
                f"`{field.name[:60]}` cannot be written: its type is not known",
                location=Location(feature=field.name[:60]),
                expected="columns with a type",
                found="a function for map that gives nothing but None",
                do="leave the column out: columns=[…]",
            )
