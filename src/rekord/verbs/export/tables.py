"""Exports as Parquet, Arrow, CSV and JSON lines."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, ipc, parquet

from rekord.codec.columns import Array, Column, Optional, Ragged, SparseColumn, Strings, column_to_arrow
from rekord.dataset.batches import get_default_threads
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
    """The values of all rows as Python objects, nested lists included; missing values are None.

    A sparse vector is the pair [indices, values], a timestamp is ISO 8601 text. Floats have the fewest digits that
    round-trip, or all digits if the feature declares `rounding="exact"`.
    """
    exact = getattr(feature, "rounding", "nearest") == "exact"
    short: Callable[[Array], Array] = _to_doubles if exact else _to_short_doubles
    if _is_time(column):
        short = _iso_texts(None if feature is None else feature.time_zone)
    if isinstance(column, np.ndarray) and column.dtype == object:  # arrays of different shapes
        return [None if one is None else short(one).tolist() for one in column]
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
    """Whether these are timestamps, which text files hold as ISO 8601."""
    values = column.values if isinstance(column, (Optional, Ragged)) else column
    return isinstance(values, np.ndarray) and values.dtype.kind == "M"


def _iso_texts(zone: str | None) -> Callable[[Array], Array]:
    def texts(values: Array) -> Array:
        naive = np.datetime_as_string(values)
        return naive if zone is None else np.char.add(naive, "Z")

    return texts


def _to_doubles(values: Array) -> Array:
    """bfloat16 as float32: neither Python nor Arrow knows it."""
    return values.astype(np.float32) if values.dtype.name == "bfloat16" else values


def _to_short_doubles(values: Array) -> Array:
    """Narrow floats as doubles with the fewest digits: 0.1, where float32 is 0.10000000149011612."""
    values = _to_doubles(values)
    if values.dtype.kind != "f" or values.dtype.itemsize >= 8:
        return values
    flat = np.ascontiguousarray(values).reshape(-1)
    single = flat.astype(np.float32)
    digits = pa.array(single).cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    # Rounding twice may miss the original number.
    back = digits.astype(np.float32).astype(flat.dtype)
    return np.where(back == flat, digits, flat.astype(np.float64)).reshape(values.shape)


def check_finite(records: ExportedRecords, batch: Mapping[str, Any], first: int, rows: int, *, format: str) -> None:
    """Raise for NaN or infinity, which JSON cannot represent."""
    for name, column in batch.items():
        row = _find_first_non_finite(column, rows)
        if row is not None:
            raise unwritable_value_error(
                records,
                first + row,
                name,
                "is NaN or infinite",
                expected=f"finite numbers, the only ones that {format} can hold",
                found="NaN, inf or -inf",
                do='out="data.parquet"',
            )


def _find_first_non_finite(column: Any, rows: int) -> int | None:
    if _is_time(column):
        return None
    if isinstance(column, Optional):
        valid = column.valid.reshape(-1, *[1] * (column.values.ndim - 1))
        return _find_first_non_finite(np.where(valid, column.values, 0), rows)
    if isinstance(column, SparseColumn):
        return _find_first_non_finite(column.values, rows)
    if isinstance(column, Ragged):
        inner = _find_first_non_finite(column.values, len(column.values))
        row = None if inner is None else int(np.searchsorted(column.offsets, inner, side="right")) - 1
        return row if row is None or row < rows else None
    if isinstance(column, np.ndarray) and column.dtype == object:
        bad = (row for row, one in enumerate(column[:rows]) if one is not None and _has_non_finite(one))
        return next(bad, None)
    if not isinstance(column, np.ndarray) or (column.dtype.kind != "f" and column.dtype.name != "bfloat16"):
        return None
    values = _to_doubles(column[:rows])
    good = np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
    return None if good.all() else int(np.argmin(good))


def _has_non_finite(array: Array) -> bool:
    return _find_first_non_finite(array.reshape(1, -1), 1) is not None


def make_class_namer(
    records: ExportedRecords, name: str, label: Feature, first: int
) -> Callable[[list[Any]], list[Any]]:
    """A function that replaces class ids by class names."""
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
                "has a class id without a name",
                expected=f"an id from 0 to {len(names) - 1:,}",
                found=str(value),
                do='labels="ids"',
            )
        return names[value]

    return lambda values: [one(value, row) for row, value in enumerate(values)]


def check_class_names(features: Mapping[str, Feature], labels: LabelFormat) -> None:
    """Raise for `labels="names"` without class names."""
    found = {name: one for name, one in features.items() if one.class_count is not None}
    if labels == "names" and not any(one.class_names for one in found.values()):
        first = next(iter(found), None)
        raise error(
            "U605",
            "columns have no class names to write",
            location=Location(feature=first),
            expected="a Label with class names",
            found="a Label without class names" if found else "no Label among the columns",
            do='labels="ids"',
        )


_GZIP_WINDOW = 31
_GZIP_LEVEL = 6


class GzipOutput:
    """Passes bytes on, compressed if wanted; the end of the stream is written unless the block fails."""

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
    """Refuse columns that JSON cannot represent."""
    check_class_names(records.features, options.labels)
    complex_ones = {
        name: repr(feature)[:40]
        for name, feature in records.features.items()
        if getattr(feature.dtype, "kind", "") == "c"
    }
    reject_columns(records, "JSON", complex_ones, holds="numbers, texts, bytes and lists of them")


def write_jsonl(records: ExportedRecords, output: Output, options: Options) -> int:
    """Write all records as lines of JSON; returns their number."""
    features = records.features
    row_of = _make_row_type(tuple(features))
    encoder = msgspec.json.Encoder()
    total = 0
    with GzipOutput(output, options.gzipped) as sink:
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
    """Builds a JSON object from the values of a record. Missing values are omitted, as in the record."""
    if any(_ESCAPED.search(name) for name in names):
        # msgspec refuses to write these names unescaped.
        return lambda *values: {n: value for n, value in zip(names, values, strict=True) if value is not None}
    fields = [(f"column_{i}", Any, None) for i in range(len(names))]
    keys = {field[0]: name for field, name in zip(fields, names, strict=True)}
    return msgspec.defstruct("Line", fields, rename=keys, omit_defaults=True, gc=False)


class _Base64Bytes(msgspec.Struct, gc=False):
    """Bytes, which msgspec writes as base64."""

    base64: bytes


def _wrap_bytes(values: list[Any]) -> list[Any]:
    return [
        _Base64Bytes(value) if isinstance(value, bytes) else value if value is None else _wrap_bytes(value)
        for value in values
    ]


_CSV_TYPES = "numbers, texts, labels, and lists of them with one dimension"


def check_csv(records: ExportedRecords, options: Options) -> None:
    """Refuse columns that do not fit into a field."""
    check_class_names(records.features, options.labels)
    steps = records.split.schema.steps
    wrong = {
        name: "a column of steps" if name in steps else type(feature).__name__
        for name, feature in records.features.items()
        if name in steps or not _is_csv_feature(feature)
    }
    reject_columns(records, "CSV", wrong, holds=_CSV_TYPES)


def write_tsv(records: ExportedRecords, output: Output, options: Options) -> int:
    """Write all records as tab-separated values; returns their number."""
    return write_csv(records, output, options, delimiter="\t")


def write_csv(records: ExportedRecords, output: Output, options: Options, *, delimiter: str = ",") -> int:
    """Write all records as CSV with a header; returns their number.

    Text is always quoted, missing values never are: an empty string is `""`, a missing one an empty field.
    """
    features = records.features
    total = 0
    written = csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="needed")
    with GzipOutput(output, options.gzipped) as sink:
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
    """Scalar values of all rows."""
    array = column_to_arrow(column)
    return array.cast(pa.float32()) if array.type == pa.float16() else array


def _format_texts(values: list[Any]) -> Any:
    """Names unchanged, and lists as JSON."""
    texts = [
        value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode() for value in values
    ]
    return pa.array(texts, pa.large_string())


def _quote_field(name: str, delimiter: str) -> str:
    plain = name.strip() == name and not any(mark in name for mark in ('"', "\n", "\r", delimiter))
    return name if plain else '"' + name.replace('"', '""') + '"'


GROUP_BYTES = 32 << 20
"""Maximum size of a Parquet row group or Arrow batch; a larger record has one of its own."""

GROUP_ROWS = 1 << 20
_SAMPLED_VALUES = 1024
_ENCODED_VALUES = 8192
"""Values that are encoded at a time: with Arrow's 1024, a twentieth of the time is spent between them."""


def write_parquet(records: ExportedRecords, output: Output, options: Options) -> int:
    """Write all records as a Parquet file; returns their number."""
    # Encoding takes longer than decoding, and has one thread: that one needs a core of its own.
    if records.threads is None:
        records = replace(records, threads=max(1, get_default_threads() - 1))
    schema, batches = _open_batches(records, options)
    first = next(batches, None)
    # Sets and dicts throughout: a record may have thousands of keys.
    repeated = set() if first is None else {name for name in schema.names if _has_repeated_values(first.column(name))}
    features = records.features if records.split.batch_map is None else {}
    encoded_images = {name for name in schema.names if name in features and features[name].is_image}
    numbers = {field.name for field in schema if pa.types.is_primitive(field.type)}
    leaves = _list_leaf_columns(schema)
    schema = _declare_required(schema, features)
    sink = pa.PythonFile(output, "w")
    writer = parquet.ParquetWriter(
        sink,
        schema,
        # Images are compressed already. Of the codecs that every reader supports, snappy is the fastest.
        compression={leaf: "none" if top in encoded_images else "snappy" for leaf, top in leaves},
        # A dictionary pays off where values repeat; elsewhere it is built and thrown away.
        use_dictionary=[leaf for leaf, top in leaves if top in repeated],
        # Minimum and maximum of many different strings let no reader skip a group.
        write_statistics=[leaf for leaf, top in leaves if leaf == top and (top in repeated or top in numbers)],
        write_batch_size=_ENCODED_VALUES,
    )
    every = batches if first is None else chain([first], batches)

    def write(table: pa.Table, rows: int) -> None:
        writer.write_table(pa.Table.from_arrays(table.columns, schema=schema), row_group_size=rows)

    return _write_groups(every, write, writer.close)


def _declare_required(schema: pa.Schema, features: Mapping[str, Feature]) -> pa.Schema:
    """The schema with numbers and strings that are never missing as required: their levels need not be encoded."""
    fields = []
    for field in schema:
        plain = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        plain = plain or pa.types.is_large_binary(field.type) or pa.types.is_large_string(field.type)
        is_required = plain and field.name in features and not features[field.name].optional
        fields.append(field.with_nullable(not is_required))
    return pa.schema(fields, schema.metadata)


def write_arrow(records: ExportedRecords, output: Output, options: Options) -> int:
    """Write all records as an Arrow IPC file; returns their number."""
    return _write_ipc(records, output, options, ipc.new_file)


def write_arrow_stream(records: ExportedRecords, output: Output, options: Options) -> int:
    """Write all records as an Arrow IPC stream; returns their number."""
    return _write_ipc(records, output, options, ipc.new_stream)


def _write_ipc(records: ExportedRecords, output: Output, options: Options, new_writer: Callable[..., Any]) -> int:
    schema, batches = _open_batches(records, options)
    writer = new_writer(pa.PythonFile(output, "w"), schema)
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
    return schema, _limit_rows(batches, records.limit, options)


def _limit_rows(batches: Iterator[pa.RecordBatch], limit: int | None, options: Options) -> Iterator[pa.RecordBatch]:
    left = limit
    for batch in batches:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield batch
        options.on_records(batch.num_rows)
        if left == 0:
            return


def _write_groups(
    batches: Iterator[pa.RecordBatch], write: Callable[[pa.Table, int], Any], close: Callable[[], Any]
) -> int:
    """Write batches in groups. Not closed after a failure: that would finish an incomplete file."""
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
    """The batches of each group, with their size in bytes."""
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
    # A batch of records that are much larger than the first ones can exceed a group.
    try:
        write(table, max(1, min(len(table), len(table) * GROUP_BYTES // max(size_bytes, 1))))
    except pa.ArrowInvalid as failure:
        if "timestamp" not in str(failure):
            raise
        raise error(
            "U676",
            "timestamp is out of range for Parquet, which has no unit of seconds",
            expected="timestamps that fit into 64-bit milliseconds",
            found=str(failure)[:60],
            do='out="data.arrow"',
        ) from failure


def _has_repeated_values(column: Any) -> bool:
    """Whether the values of a column repeat, judged by the first ones."""
    types = pa.types
    while types.is_large_list(column.type) or types.is_fixed_size_list(column.type) or types.is_list(column.type):
        column = column.flatten()
    if not (
        types.is_integer(column.type) or types.is_large_string(column.type) or types.is_large_binary(column.type)
    ):
        return False
    sample = column[:_SAMPLED_VALUES]
    distinct: int = compute.count_distinct(sample).as_py()
    return 2 * distinct <= len(sample)


def _list_leaf_columns(schema: pa.Schema) -> list[tuple[str, str]]:
    """The leaf columns of a Parquet file, each with the column of the table that it belongs to."""
    empty = pa.BufferOutputStream()
    parquet.write_table(schema.empty_table(), empty)
    names = parquet.ParquetFile(empty.getvalue()).schema
    tops = set(schema.names)
    return [(path, _find_top_column(path, tops)) for path in (names.column(i).path for i in range(len(names)))]


def _find_top_column(path: str, tops: AbstractSet[str]) -> str:
    """The column that a Parquet path begins with; names may contain dots, so the longest match counts."""
    top = path
    while top not in tops and top:
        top = top.rpartition(".")[0]
    return top


def _check_types(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_null(field.type):
            raise error(
                "U676",
                f"type of `{field.name[:60]}` is unknown",
                location=Location(feature=field.name[:60]),
                expected="columns with a type",
                found="a map function that returns only None",
                do="columns=" + repr([one for one in schema.names if one != field.name][:3]),
            )
