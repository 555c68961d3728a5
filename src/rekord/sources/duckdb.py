"""DuckDB databases: a table or the answer of a query as rows, from a file that is never written."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from rekord.arguments import check_keywords, conflicting_options
from rekord.schema import Schema
from rekord.sources import tables
from rekord.sources.base import (
    Chunk,
    ColumnChunk,
    FileListing,
    SizeCheckedFile,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SurveyCache,
    corrupt_file_error,
    empty_file_error,
    source_path,
)
from rekord.sources.libraries import import_reader
from rekord.sources.sqlite import check_unique_names, open_changes_error, query_error, quote_name
from rekord.sources.table_files import TableFiles, check_same_columns, kept_columns
from rekord.sources.tables import TableColumn, build_facts
from rekord.sources.value_tables import check_head, missing_table_error, several_tables_error, table_name
from rekord.storage import raw_files
from rekord.storage.archives import require_own_file

EXTENSIONS = (".duckdb", ".ddb", ".db")
MAGIC = b"DUCK"
MAGIC_OFFSET = 8

_BATCH_ROWS = 8_192
_DATABASE_HEADER = struct.Struct("<8xQ16xQQ")
_DATABASE_HEADERS = (4096, 8192)
_FIRST_BLOCK = 12_288
_SETTINGS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "2GB",
    "temp_directory": "",
    "threads": "1",  # the order of rows must be the same every time
}


class _DuckdbSurvey(NamedTuple):
    listing: FileListing
    columns: tuple[TableColumn, ...]
    schema: Schema
    rows: int
    guesses: tuple[SourceGuess, ...]


_surveys: SurveyCache[_DuckdbSurvey] = SurveyCache()


@dataclass(frozen=True, slots=True)
class DuckdbSource(TableFiles):
    """Rows of a table, or of a query."""

    table: str | None = None
    query: str | None = None

    kind = "duckdb"
    extensions = EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        names = None if self.columns is None else list(self.columns)
        return {"columns": names, "table": self.table, "query": self.query}

    def facts(self) -> SourceFacts:
        seen = self._survey()
        return build_facts(seen.schema, seen.rows, seen.listing, seen.guesses)

    def rows(self) -> Iterator[Chunk]:
        seen = self._survey()
        for file in seen.listing.files:
            first = 0
            with self._open(seen.listing.full(file), file) as reader:
                for batch in reader:
                    values = tables.to_record_batch(batch, seen.columns)
                    yield ColumnChunk(file.path, first, values, batch.num_rows)
                    first += batch.num_rows

    def _survey(self) -> _DuckdbSurvey:
        listing = self._listing()
        return _surveys.get((self, listing), lambda: self._inspect(listing))

    def _inspect(self, listing: FileListing) -> _DuckdbSurvey:
        first: tuple[TableColumn, ...] = ()
        typed: tuple[TableColumn, ...] | None = None
        nullable: set[str] = set()
        rows = 0
        for file in listing.files:
            path = listing.full(file)
            with self._open(path, file) as reader:
                check_unique_names(reader.schema.names, path)
                columns = tables.find_table_columns(reader.schema, self.columns, path)
                first = first or columns
                check_same_columns(listing, file, first, columns)
                for batch in reader:
                    if typed is None and batch.num_rows:
                        typed = tables.widen_lossy_floats(columns, batch)
                    nullable.update(one.name for one in columns if tables.read_column(batch, one).null_count)
                    rows += batch.num_rows
        if not rows:
            path = listing.full(listing.files[0])
            raise empty_file_error(path, "a table without rows", expected="at least one row")
        schema = tables.build_table_schema(typed or first, nullable)
        return _DuckdbSurvey(listing, first, schema, rows, tables.guess_conversions(first))

    @contextmanager
    def _open(self, path: str, file: SourceFile) -> Iterator[Any]:
        """The rows of a file in record batches."""
        package = import_reader("duckdb", "sql", "a DuckDB database")
        check_head(path, file, "DuckDB database", MAGIC, MAGIC_OFFSET)
        _check_size(path, file)
        place = raw_files.local_file(path)
        require_own_file(place, "a DuckDB database")
        if raw_files.isfile(f"{path}.wal") and raw_files.getsize(f"{path}.wal"):
            raise open_changes_error(path, ".wal", f"duckdb {path} CHECKPOINT")
        try:
            database = package.connect(os.path.abspath(place), read_only=True, config=_SETTINGS)
        except package.Error as failure:
            raise corrupt_file_error(path, "DuckDB database", _first_line(failure)) from None
        reader: Any = None
        try:
            database.execute("SET enable_progress_bar = false")  # DuckDB shows one to interactive users
            query = self.query
            if query is None:
                query = f"SELECT * FROM {quote_name(_choose_table(database, path, self.table))}"
            else:
                _check_query(package, database, query, path)
            reader = database.sql(query).to_arrow_reader(_BATCH_ROWS)
            yield _UtcReader(reader)
        except (package.IOException, package.FatalException, package.InternalException) as failure:
            raise corrupt_file_error(path, "DuckDB database", _first_line(failure)) from None
        except package.Error as failure:
            raise query_error(path, _first_line(failure), None) from None
        finally:
            # A result that is not closed keeps the database, and the next connection to it waits for its end.
            if reader is not None:
                reader.close()
            database.close()


@check_keywords
def duckdb(
    path: str | os.PathLike[str],
    *,
    table: str | None = None,
    query: str | None = None,
    columns: Sequence[str] | None = None,
) -> DuckdbSource:
    """Rows of DuckDB databases: a file, a folder or a pattern.

    `table` is the name of a table or a view; by default the only table. `query` is a SELECT statement instead. The
    file is opened read-only, and a query has no access to other files or the network. Types become features as those
    of Parquet files do.
    """
    if table is not None and query is not None:
        raise conflicting_options("table", "query")
    return DuckdbSource(
        source_path(path, "duckdb"), kept_columns(columns), table_name("table", table), table_name("query", query)
    )


def _check_size(path: str, file: SourceFile) -> None:
    """Raise if the file is shorter than its header says: DuckDB may then not return.

    0     main header
    4096  first database header:  checksum, iteration, 2 × unused here, blocks, bytes of a block  (u64 each)
    8192  second one; the one of the later iteration is valid
    12288 blocks
    """
    with SizeCheckedFile(path, file) as opened:
        head = opened.read(_FIRST_BLOCK)
    found = f"{file.size_bytes:,} bytes, fewer than its header declares"
    if len(head) == _FIRST_BLOCK:
        headers = [_DATABASE_HEADER.unpack_from(head, offset) for offset in _DATABASE_HEADERS]
        _, blocks, block_bytes = max(headers)
        if _FIRST_BLOCK + blocks * block_bytes <= file.size_bytes:
            return
    raise corrupt_file_error(path, "DuckDB database", found)


def _choose_table(database: Any, path: str, wanted: str | None) -> str:
    listed = database.sql(
        "SELECT table_name, table_type FROM information_schema.tables"
        " WHERE table_schema = 'main' AND table_catalog = current_database() ORDER BY table_name"
    ).fetchall()
    kinds = dict(listed)
    if wanted is not None:
        if wanted not in kinds:
            raise missing_table_error(path, "table", "table", wanted, list(kinds))
        return wanted
    found = [name for name, kind in kinds.items() if kind != "VIEW"]
    if len(found) > 1:
        raise several_tables_error(path, "table", "table", found)
    if not found:
        raise empty_file_error(path, "a database without tables", expected="a table")
    return str(found[0])


def _check_query(package: Any, database: Any, query: str, path: str) -> None:
    statements = database.extract_statements(query)
    kinds = [str(statement.type).rpartition(".")[2] for statement in statements]
    if kinds != ["SELECT"]:
        found = "no statement" if not kinds else " and ".join(f"a statement {kind}" for kind in kinds[:3])
        raise query_error(path, found, None)


class _UtcReader:
    """Record batches with times in UTC: DuckDB names the zone of the machine, and their ticks are the same."""

    def __init__(self, reader: Any) -> None:
        import pyarrow as pa

        self._reader = reader
        self.schema = pa.schema(
            [
                field.with_type(pa.timestamp(field.type.unit, "UTC"))
                if pa.types.is_timestamp(field.type) and field.type.tz is not None
                else field
                for field in reader.schema
            ]
        )

    def __iter__(self) -> Iterator[Any]:
        import pyarrow as pa

        for batch in self._reader:
            columns = [
                column if column.type == field.type else column.cast(field.type)
                for column, field in zip(batch.columns, self.schema, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _first_line(failure: Exception) -> str:
    return str(failure).split("\n", 1)[0][:120]
