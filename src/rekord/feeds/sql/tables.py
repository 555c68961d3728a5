"""The tables of a query: the records of some splits, from which DuckDB pulls the columns that it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rekord.dataset.index import CHUNK_RECORDS
from rekord.dataset.read import records
from rekord.dataset.samplers import Ids, Selection, expand_selection, normalize_selection, select_numbers
from rekord.dataset.shard_index import detect_file_compression, index_mismatch_error
from rekord.dataset.shards import Shards
from rekord.dataset.split import Split
from rekord.errors import RekordError
from rekord.feeds.dataframes import infer_arrow_schema, iter_arrow_batches, iter_arrow_shards
from rekord.schema import Feature
from rekord.storage.router import is_remote


class IndexedColumns:
    """The columns of some shards that their indexes hold, so that no record is read for them."""

    def __init__(self, shards: Shards, kinds: dict[str, Any]) -> None:
        self._shards = shards
        self._kinds = kinds
        self._known: dict[str, bool] = {}
        self._places: Any = None

    def has(self, names: Sequence[str]) -> bool:
        """Whether the indexes of all shards keep these columns."""
        return all(self._has(name) for name in names)

    def has_random_access(self) -> bool:
        """Whether any record can be read without those before it."""
        found = map(self._shards.index, range(len(self._shards.paths)))
        return all(index.compression == "none" or index.flush_points is not None for index in found)

    def batches(
        self, names: Sequence[str], within: Selection | None = None
    ) -> Iterator[tuple[dict[str, Any], Selection]]:
        """Columns of all records or of a view, and the record numbers, one index chunk at a time."""
        if within is not None:
            for begin in range(0, len(within), CHUNK_RECORDS):
                some = within[begin : begin + CHUNK_RECORDS]
                yield self._at(names, expand_selection(some)), some
            return
        starts = self._shards.starts.tolist()
        for shard, count in enumerate(self._shards.counts.tolist()):
            for begin in range(0, count, CHUNK_RECORDS):
                end = min(begin + CHUNK_RECORDS, count)
                columns = self._chunk(shard, begin // CHUNK_RECORDS, names) if names else {}
                yield columns, range(starts[shard] + begin, starts[shard] + end)

    def places(self) -> Any:
        """The names of the shards: base names if they are unique, else paths."""
        if self._places is None:
            short = [os.path.basename(path) for path in self._shards.paths]
            unique = len(set(short)) == len(short)
            # File names need not be UTF-8.
            names = [os.fsencode(name).decode(errors="replace") for name in (short if unique else self._shards.paths)]
            self._places = pa.array(names)
        return self._places

    def _has(self, name: str) -> bool:
        if name not in self._known:
            used = [shard for shard, records in enumerate(self._shards.counts.tolist()) if records]
            self._known[name] = all(self._keeps(shard, name) for shard in used)
        return self._known[name]

    def _keeps(self, shard: int, name: str) -> bool:
        index = self._shards.index(shard)
        return index.has_columns([name]) and _is_same_type(index.column_type(name), self._kinds[name])

    def _chunk(self, shard: int, number: int, names: Sequence[str]) -> dict[str, Any]:
        """Columns of one index chunk of a shard."""
        index = self._shards.index(shard)
        if not index.keeps(names):  # the index was replaced
            raise index_mismatch_error(index.path, "the columns of the index, as before", "an index without them")
        found = index.columns(number, names)
        return {name: _cast(found.column(i), self._kinds[name]) for i, name in enumerate(names)}

    def _at(self, names: Sequence[str], ids: Ids) -> dict[str, Any]:
        """Columns of some records, in their order."""
        if not names:
            return {}
        shards, records = self._shards.locate(ids)
        used = np.unique(np.stack([shards, records // CHUNK_RECORDS]), axis=1).T.tolist()
        places = np.concatenate(
            [np.flatnonzero((shards == shard) & (records // CHUNK_RECORDS == number)) for shard, number in used]
        )
        back = pa.array(np.argsort(places))
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for shard, number in used:
            here = pa.array(
                records[(shards == shard) & (records // CHUNK_RECORDS == number)] - number * CHUNK_RECORDS
            )
            for name, column in self._chunk(shard, number, names).items():
                parts[name].append(column.take(here))
        return {name: pa.concat_arrays(chunks).take(back) for name, chunks in parts.items()}


def _cast(column: Any, kind: Any) -> Any:
    return column if column.type == kind else column.cast(kind)


def _is_same_type(stored: Any, kind: Any) -> bool:
    """Whether the index stores the type of the records, except for its width."""
    if pa.types.is_integer(kind):
        return bool(pa.types.is_integer(stored)) and stored.bit_width <= kind.bit_width
    if pa.types.is_timestamp(kind):
        return bool(pa.types.is_timestamp(stored)) and stored.unit == kind.unit
    for group in ((pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())):
        if kind in group:
            return stored in group
    return bool(stored == kind)


_MAX_BATCH_ROWS, _MIN_BATCH_ROWS = 4096, 16
_BATCH_BYTES = 4 << 20
_BATCH_PAYLOAD_BYTES = 32 << 20
"""Approximate bytes of images, texts and the like per batch; a few batches are prefetched."""

_SHARD_BATCH_ROWS = 16_384
_MAX_SHARD_BYTES, _MAX_SHARD_ROW_BYTES = 256 << 20, 64
"""Shards of which the needed columns are read whole. Their values take less memory than their records do on disk."""

_MAX_ARRAY_LENGTH = 100_000
"""Maximum of DuckDB's ARRAY type; longer columns become lists."""

_MAX_SELECTED_FRACTION = 0.5
"""From this fraction of the records on, all are read sequentially instead of each by its number."""


@dataclass(frozen=True)
class QueryColumn:
    """A column of a table: one of the records, or a virtual one such as `_split`."""

    name: str
    kind: Any  # an Arrow type that DuckDB has
    record: str | None = None  # the column of the records that it is computed from
    extra: Literal["", "split", "record", "shard", "shard record", "name"] = ""
    classes: tuple[str, ...] = ()


class QueryTablePart:
    """A split, and its indexed columns."""

    def __init__(self, split: Split, kinds: dict[str, Any]) -> None:
        self.split = split
        self.indexed = IndexedColumns(split.view.shards, kinds)
        self.stored = split.batch_map is None and split.row_transforms is None
        """Whether its columns are those of the files; otherwise the index does not describe them."""

    def numbers(self, places: Ids) -> Ids:
        """The record numbers of some positions of the split."""
        return places if self.split.view.ids is None else select_numbers(self.split.view.ids, places)


def build_query_columns(schema: Mapping[str, Feature] | None, kinds: dict[str, Any], query: str) -> list[QueryColumn]:
    """The columns of the records, by names that are unique in SQL, which ignores case.

    Virtual columns follow if the query names them, so that `select *` returns the records as they are. Without a
    schema there are none: the rows come from a function, and may no longer correspond to records.
    """
    taken: set[str] = set()
    columns = [QueryColumn(_make_unique_name(name, taken), _to_duckdb_type(kinds[name]), name) for name in kinds]
    if schema is None:
        return columns
    extras = [
        QueryColumn("_split", pa.string(), extra="split"),
        QueryColumn("_record", pa.int64(), extra="record"),
        QueryColumn("_shard", pa.string(), extra="shard"),
        QueryColumn("_shard_record", pa.int64(), extra="shard record"),
    ]
    for name, feature in schema.items():
        if feature.class_names and pa.types.is_integer(kinds[name]):
            extras.append(QueryColumn(f"{name}_name", pa.string(), name, "name", feature.class_names))
    columns += [one for one in extras if one.name.casefold() not in taken and _is_named_in(query, one.name)]
    return columns


def _is_named_in(query: str, column: str) -> bool:
    """Whether a query may name a column: `_shard_record` does not name `_record`."""
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", query, re.IGNORECASE) is not None


class ArrowStream:
    """A table that DuckDB scans by pulling batches from Python."""

    def __init__(self) -> None:
        self._failure: BaseException | None = None
        self._running: list[Iterator[Any]] = []

    @property
    def schema(self) -> Any:
        """The columns that are scanned."""
        raise NotImplementedError

    def _scan(self) -> Iterator[list[Any]]:
        """The arrays of each batch."""
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """A new stream from the first record on, each time: DuckDB opens some that it never reads."""
        running = self._batches()
        self._running.append(running)
        return pa.RecordBatchReader.from_batches(self.schema, running).__arrow_c_stream__()

    def _batches(self) -> Iterator[Any]:
        try:
            schema = self.schema
            for arrays in self._scan():
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        except GeneratorExit:
            raise
        except BaseException as failure:
            # DuckDB would turn it into text; Ctrl-C may arrive here too.
            self._failure = failure
            raise

    def close(self) -> None:
        """Stop reading: close files and end threads."""
        running, self._running = self._running, []
        for one in running:
            one.close()  # type: ignore[attr-defined]

    def take_failure(self) -> BaseException | None:
        """The error that was raised while records were read.

        It is not kept, and has no traceback: that leads back to it and to DuckDB's objects, which would wait for the
        garbage collector and be closed on whichever thread that runs.
        """
        failure, self._failure = self._failure, None
        return None if failure is None else failure.with_traceback(None)


@dataclass
class QueryTable(ArrowStream):
    """One table for DuckDB. Its columns have internal names, which a view maps to the real ones."""

    number: int
    name: str
    parts: list[QueryTablePart]
    columns: list[QueryColumn]
    reads_all: bool = False  # the query has no limit, and its whole result is wanted at once
    needed: list[int] = field(init=False)
    _chosen: list[Ids | None] = field(init=False)

    def __post_init__(self) -> None:
        super().__init__()
        self.needed = list(range(len(self.columns)))
        self._chosen = [None] * len(self.parts)

    @property
    def scanned(self) -> str:
        """The internal name of the table."""
        return f"rk{self.number}"

    def column(self, place: int) -> str:
        """The internal name of a column."""
        return f"rk{self.number}c{place}"

    @property
    def schema(self) -> Any:
        """The needed columns after an empty one, by which DuckDB can count rows."""
        fields = [pa.field(f"rk{self.number}n", pa.bool_())]
        fields += [pa.field(self.column(place), self.columns[place].kind) for place in self.needed]
        return pa.schema(fields)

    def view(self) -> str:
        """The statement that creates the view; columns that are not needed are null."""
        needed = set(self.needed)
        shown = [
            f"{self.column(place)} as {quote_identifier(column.name)}"
            if place in needed
            else f"cast(null as {_get_type_name(column.kind)}) as {quote_identifier(column.name)}"
            for place, column in enumerate(self.columns)
        ] or [f"rk{self.number}n"]
        return (
            f"create or replace temp view {quote_identifier(self.name)} as select {', '.join(shown)} from "
            f"{self.scanned}"
        )

    def known(self, part: QueryTablePart, place: int) -> bool:
        """Whether a column of a part is known without reading records."""
        record = self.columns[place].record
        return record is None or (part.stored and part.indexed.has([record]))

    def reads(self, part: QueryTablePart) -> bool:
        """Whether records of a part must be read; always with a function, which decides the number of rows."""
        return part.split.batch_map is not None or not all(self.known(part, place) for place in self.needed)

    def choose(self, number: int, ids: Ids) -> None:
        """Read only these records of a part, if they are few enough."""
        if len(ids) < _MAX_SELECTED_FRACTION * len(self.parts[number].split):
            self._chosen[number] = ids

    def read_indexed(self, part: QueryTablePart, places: Sequence[int]) -> Iterator[tuple[list[Any], Selection]]:
        """Indexed columns of a part, and the record numbers."""
        for columns, ids in part.indexed.batches(self._names(places), part.split.view.ids):
            yield self._arrays(part, places, columns, ids), ids

    def _scan(self) -> Iterator[list[Any]]:
        for part, chosen in zip(self.parts, self._chosen, strict=True):
            if chosen is not None and not len(chosen):
                continue
            made: Iterator[tuple[list[Any], Selection]]
            made = self._read(part, chosen) if self.reads(part) else self.read_indexed(part, self.needed)
            for arrays, ids in made:
                yield [pa.nulls(len(ids), pa.bool_()), *arrays]

    def _read(self, part: QueryTablePart, chosen: Ids | None) -> Iterator[tuple[list[Any], Selection]]:
        split = part.split
        if chosen is not None:
            split = split.replace(view=split.view.select(normalize_selection(chosen)))
        names = self._names(self.needed)
        # Which columns a function needs is unknown.
        columns_read = names if split.batch_map is None else None
        done = 0
        if chosen is None and self._can_read_shards(split, names):
            batches = iter_arrow_shards(split, names, rows=_SHARD_BATCH_ROWS)
        else:
            batches = iter_arrow_batches(split, columns_read, rows=self._rows(part, names))[1]
        for batch in batches:
            places = np.arange(done, done + batch.num_rows, dtype=np.int64)
            done += batch.num_rows
            ids = part.numbers(places) if chosen is None else chosen[places]
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield self._arrays(part, self.needed, columns, ids), ids

    def _can_read_shards(self, split: Split, names: Sequence[str]) -> bool:
        """Whether columns are so narrow, and shards so small, that the columns of a few shards fit into memory.

        Not for a query with a limit, which would wait for a whole shard.
        """
        if not self.reads_all or len(split.paths) < 2 or split.view.ids is not None or split.sampling is not None:
            return False
        if split.batch_map is not None or split.row_transforms is not None or not names:
            return False
        widths = [_get_type_width(column.kind) for column in self.columns if column.record in names]
        if not all(widths) or sum(widths) > _MAX_SHARD_ROW_BYTES or any(map(is_remote, split.paths)):
            return False
        try:
            is_small = max(map(os.path.getsize, split.paths)) <= _MAX_SHARD_BYTES
            # How much a compressed shard holds is unknown.
            return is_small and all(detect_file_compression(path) == "none" for path in split.paths)
        except (OSError, RekordError):
            return False  # reported when the file is read

    def _names(self, places: Sequence[int]) -> list[str]:
        made_of = [self.columns[place].record for place in places]
        return list(dict.fromkeys(name for name in made_of if name is not None))

    def _arrays(
        self, part: QueryTablePart, places: Sequence[int], columns: dict[str, Any], ids: Selection
    ) -> list[Any]:
        arrays = []
        where: tuple[Ids, Ids] | None = None
        for place in places:
            column = self.columns[place]
            if column.extra in ("shard", "shard record") and where is None:
                where = part.split.view.shards.locate(expand_selection(ids))
            if column.extra == "":
                assert column.record is not None
                arrays.append(_cast(columns[column.record], column.kind))
            elif column.extra == "name":
                assert column.record is not None
                arrays.append(_map_class_names(columns[column.record], column.classes))
            elif column.extra == "split":
                arrays.append(pa.repeat(pa.scalar(part.split.name), len(ids)))
            elif column.extra == "record":
                arrays.append(pa.array(expand_selection(ids)))
            elif column.extra == "shard":
                assert where is not None
                arrays.append(part.indexed.places().take(pa.array(where[0])))
            else:
                assert where is not None
                arrays.append(pa.array(where[1]))
        return arrays

    def _rows(self, part: QueryTablePart, names: Sequence[str]) -> int:
        """The number of records per batch: many of numbers, few of images."""
        read = set(names)
        kinds = [column.kind for column in self.columns if column.record in read and not column.extra]
        # The size of one record is the best estimate for the others. All of it is read, also for few columns.
        try:
            payload_bytes = next((len(payload) for payload in records(part.split.paths[:1])), 1)
        except RekordError:
            payload_bytes = _BATCH_BYTES // 64  # the error is raised when the record is read
        is_narrow = all(_get_type_width(kind) for kind in kinds)
        width = sum(_get_type_width(kind) for kind in kinds) if is_narrow else payload_bytes
        most = min(_BATCH_BYTES // max(width, 1), _BATCH_PAYLOAD_BYTES // max(payload_bytes, 1), _MAX_BATCH_ROWS)
        return max(_MIN_BATCH_ROWS, most)


def quote_identifier(name: str) -> str:
    """A name as a quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A string as a quoted SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def infer_column_types(split: Split, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """The Arrow type of each column of the records, or of some."""
    return {one.name: one.type for one in infer_arrow_schema(split, columns)}


def _map_class_names(ids: Any, classes: tuple[str, ...]) -> Any:
    """The class names of ids; null for an id without a name."""
    inside = pc.and_(pc.greater_equal(ids, 0), pc.less(ids, len(classes)))
    places = pc.if_else(inside, ids, pa.scalar(None, ids.type))
    return pa.array(classes, pa.string()).take(places)


def _make_unique_name(name: str, taken: set[str]) -> str:
    """A name that is not taken; names that differ only in case are equal in SQL."""
    wanted = name or "_"
    number, free = 0, wanted
    while free.casefold() in taken:
        number += 1
        free = f"{wanted}_{number}"
    taken.add(free.casefold())
    return free


def _to_duckdb_type(kind: Any) -> Any:
    """A type that DuckDB supports and that holds the same values."""
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("ns")  # for times with a zone, DuckDB keeps only microseconds
    if pa.types.is_fixed_size_list(kind):
        inner = _to_duckdb_type(kind.value_type)
        usual = 0 < kind.list_size <= _MAX_ARRAY_LENGTH
        return pa.list_(inner, kind.list_size) if usual else pa.large_list(inner)
    if pa.types.is_large_list(kind):
        return pa.large_list(_to_duckdb_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(kind.field(i).name, _to_duckdb_type(kind.field(i).type)) for i in range(kind.num_fields)]
        )
    return kind


_TYPE_NAMES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "binary": "BLOB",
    "large_binary": "BLOB",
    "timestamp[s]": "TIMESTAMP_S",
    "timestamp[ms]": "TIMESTAMP_MS",
    "timestamp[us]": "TIMESTAMP",
    "timestamp[ns]": "TIMESTAMP_NS",
}


def _get_type_name(kind: Any) -> str:
    """DuckDB's name of a type. Looking it up in DuckDB would take longer than many queries."""
    if pa.types.is_fixed_size_list(kind):
        return f"{_get_type_name(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_large_list(kind):
        return f"{_get_type_name(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return f"STRUCT({', '.join(f'{quote_identifier(one.name)} {_get_type_name(one.type)}' for one in fields)})"
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return "TIMESTAMP WITH TIME ZONE"
    return _TYPE_NAMES[str(kind)]


def _get_type_width(kind: Any) -> int:
    """The minimum bytes per value; 0 for types of variable size."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size * _get_type_width(kind.value_type))
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 0
