"""The result of a query over splits, which reads only the records and columns that it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rekord.errors import RekordError, closest_match, error
from rekord.feeds.sql.engine import (
    InterruptibleRunner,
    check_statement,
    connect,
    explain_duckdb_error,
    import_duckdb,
    missing_table_error,
)
from rekord.feeds.sql.plan import SimpleQuery, apply_index_filter, parse_simple_query, plan_query
from rekord.feeds.sql.tables import (
    QueryTable,
    QueryTablePart,
    build_query_columns,
    infer_column_types,
    quote_identifier,
    quote_literal,
)
from rekord.schema import Schema
from rekord.storage.router import is_remote

if TYPE_CHECKING:
    from rekord.dataset.split import Split


_RECORDS_TABLE = "records"
_RESERVED_NAME = re.compile(r"rk(\d+|index)")
"""Internal table names: a split with such a name gets no table."""
_ROWS, _LARGE_ROWS = 8192, 256
"""Rows per batch of the result; few if a row may hold an image."""
_MAX_FAST_SCAN_BYTES = 2 << 30
"""Larger files are read on another thread, so that Ctrl-C works."""
MAX_COLUMNS = 10_000
"""Columns of a table that is registered whole: DuckDB needs half a millisecond and 50 kB for each, several times."""
_WITHOUT_ARROW_TYPE = ("bignum", "bit", "time with time zone", "uhugeint", "varint")
_NESTED = ("array", "list", "map", "struct", "tuple", "union")
_COMPARED_WORDS = 8
_LIMIT = re.compile(r"\b(limit|fetch)\b", re.IGNORECASE)
_LISTS_TABLES = re.compile(r"_tables\b|_views\b|_columns\b|information_schema", re.IGNORECASE)
_SHOWS_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)


class QueryResult:
    """A query that is planned and not yet run; it owns its connection.

    `memory_bytes` and `batch_rows` limit what it keeps in memory, and the rows of a batch.
    """

    def __init__(
        self, splits: Sequence[Split], sql: str, *, memory_bytes: int | None = None, batch_rows: int | None = None
    ) -> None:
        self._package = import_duckdb()
        self._connection = connect(memory_bytes)
        self._batch_rows = batch_rows
        self._runner = InterruptibleRunner(self._connection)
        self._tables: list[QueryTable] = []
        self._reader: Any = None
        self._relation: Any = None
        self._schema: Any = None
        self.rows = 0  # returned so far
        try:
            self._sql = check_statement(self._connection, sql)
            self._relation = _cast_for_arrow(self._prepared(splits))
        except BaseException as failure:
            self.close()
            raise self._to_error(failure) from None

    @property
    def schema(self) -> pa.Schema:
        """The types of the result. This starts the query."""
        if self._schema is None:
            self._schema = self._started().schema
        return self._schema

    def table(self) -> pa.Table:
        """The whole result."""
        for table in self._tables:
            table.reads_all = _LIMIT.search(self._sql) is None
        try:
            relation = self._relation
            return self._runner.run(getattr(relation, "to_arrow_table", None) or relation.fetch_arrow_table)
        except BaseException as failure:
            raise self._to_error(failure) from None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The result, batch by batch; closed at the end."""
        try:
            reader = self._started()
            while (batch := self._runner.run(partial(next, reader, None))) is not None:
                self.rows += batch.num_rows
                yield batch
        except GeneratorExit:
            raise
        except BaseException as failure:
            raise self._to_error(failure) from None
        finally:
            self.close()

    def interrupt(self) -> None:
        """Stop the query, from another thread: it raises KeyboardInterrupt."""
        with suppress(self._package.Error):
            self._connection.interrupt()

    def close(self) -> None:
        """Stop reading, and close the connection."""
        self._runner.close()
        self._reader = self._relation = None
        for table in self._tables:
            table.close()
        with suppress(self._package.Error):
            self._connection.close()

    def __enter__(self) -> QueryResult:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepared(self, splits: Sequence[Split]) -> Any:
        names = _list_table_names(splits)
        if _SHOWS_TABLES.fullmatch(self._sql):
            listed = ", ".join(quote_literal(name) for name in sorted(names))
            return self._connection.sql(f"select unnest([{listed}]) as name")
        simple = parse_simple_query(self._connection, self._sql, self._package.Error)
        narrow = None if simple is None else _build_narrow_table(splits, names, self._sql, simple)
        if simple is not None and narrow is not None:
            self._register([narrow])
            self._runner.inline = _is_fast_scan(narrow)
            if not simple.filtered or not any(map(narrow.reads, narrow.parts)):
                return self._connection.sql(self._sql)
        else:
            self._register(_build_tables(splits, names, self._sql, simple))
        self._follow_plan(list(names))
        return self._connection.sql(self._sql)

    def _follow_plan(self, names: Sequence[str]) -> None:
        """Restrict the tables to what the plan of the query needs."""
        try:
            plan = plan_query(self._connection, self._sql, self._tables)
        except self._package.CatalogException as failure:
            raise missing_table_error(failure, names) or failure from None
        for table in self._tables:
            needed = sorted(plan.columns[table.number])
            if len(needed) < len(table.columns):
                table.needed = needed
                self._connection.unregister(table.scanned)
                self._connection.register(table.scanned, table)
                self._connection.execute(table.view())
            if table.number in plan.filters:
                apply_index_filter(self._connection, table, plan.filters[table.number])

    def _register(self, tables: Sequence[QueryTable]) -> None:
        for table in tables:
            self._tables.append(table)
            self._connection.register(table.scanned, table)
            self._connection.execute(table.view())

    def _started(self) -> Any:
        if self._reader is None:
            try:
                relation = self._relation
                is_large = any(_is_large(kind) for kind in relation.types)
                rows = self._batch_rows or (_LARGE_ROWS if is_large else _ROWS)
                start = getattr(relation, "to_arrow_reader", None) or relation.fetch_record_batch
                self._reader = self._runner.run(partial(start, rows))
            except BaseException as failure:
                self.close()
                raise self._to_error(failure) from None
        return self._reader

    def _to_error(self, failure: BaseException) -> BaseException:
        """The error to raise: DuckDB turns errors that were raised while records were read into text."""
        for table in self._tables:
            if (raised := table.take_failure()) is not None:
                return raised
        if isinstance(failure, self._package.InterruptException):
            return KeyboardInterrupt()
        reported = isinstance(failure, (self._package.Error, pa.ArrowException, OSError))
        if not reported or isinstance(failure, RekordError):
            return failure
        names = {
            (table.number, place): f"`{column.name[:60]}`"
            for table in self._tables
            for place, column in enumerate(table.columns)
        }
        return explain_duckdb_error(failure, names)


def _list_table_names(splits: Sequence[Split]) -> dict[str, Sequence[Split]]:
    """The tables that a query can use: `records`, and one per split whose name is free."""
    tables: dict[str, Sequence[Split]] = {_RECORDS_TABLE: splits}
    taken = {_RECORDS_TABLE}
    for split in splits:
        name = split.name
        if name and name.casefold() not in taken and not _RESERVED_NAME.fullmatch(name.casefold()):
            taken.add(name.casefold())
            tables[name] = [split]
    return tables


def _build_tables(
    splits: Sequence[Split], names: dict[str, Sequence[Split]], sql: str, simple: SimpleQuery | None
) -> list[QueryTable]:
    """The tables that a query names, with all columns."""
    if splits[0].batch_map is None and len(splits[0].schema) > MAX_COLUMNS:
        raise _too_many_columns_error(splits[0].schema, simple)
    kinds = infer_column_types(splits[0])
    columns = build_query_columns(dict(splits[0].schema.items()) if splits[0].batch_map is None else None, kinds, sql)
    parts = {id(split): QueryTablePart(split, kinds) for split in splits}
    text, every = sql.casefold(), bool(_LISTS_TABLES.search(sql))
    return [
        QueryTable(number, name, [parts[id(split)] for split in within], columns)
        for number, (name, within) in enumerate(names.items())
        if every or name.casefold() in text
    ]


def _build_narrow_table(
    splits: Sequence[Split], names: dict[str, Sequence[Split]], sql: str, simple: SimpleQuery
) -> QueryTable | None:
    """The table of a simple query with only the columns that it names; None in doubt."""
    within = [parts for name, parts in names.items() if name.casefold() == simple.table.casefold()]
    if not within or splits[0].batch_map is not None:
        return None
    schema = splits[0].schema
    if len({name.casefold() for name in schema}) < len(schema) or "" in schema:
        return None  # such columns are renamed in SQL
    read = [
        name
        for name, feature in schema.items()
        if name.casefold() in simple.words or (feature.class_names and f"{name}_name".casefold() in simple.words)
    ]
    kinds = infer_column_types(splits[0], read)
    columns = [
        one
        for one in build_query_columns({name: schema[name] for name in read}, kinds, sql)
        if one.name.casefold() in simple.words
    ]
    if not simple.uses_only(one.name for one in columns):
        return None
    return QueryTable(0, simple.table, [QueryTablePart(split, kinds) for split in within[0]], columns)


def _too_many_columns_error(schema: Schema, simple: SimpleQuery | None) -> RekordError:
    """The error for a query that may need all columns of a wide table; a misspelled column is a likely cause."""
    known = {name.casefold() for name in schema}
    unknown = [] if simple is None else sorted(simple.words - simple.given - known)
    near = {word: closest_match(word, schema) for word in unknown[:_COMPARED_WORDS]}
    return error(
        "U680",
        "table has too many columns for this query",
        expected=f"at most {MAX_COLUMNS:,} columns, or a query over one table that names the columns it needs",
        found=f"{len(schema):,} columns",
        likely=next((f"`{word[:60]}` stands for `{name}`" for word, name in near.items() if name), None),
        do="rekord infer PATH      (lists the columns), then: select COLUMN, COLUMN from records",
    )


def _is_fast_scan(table: QueryTable) -> bool:
    """Whether all files of a table are local and small."""
    paths = [path for part in table.parts for path in part.split.paths]
    try:
        return not any(map(is_remote, paths)) and sum(map(os.path.getsize, paths)) <= _MAX_FAST_SCAN_BYTES
    except OSError:
        return False  # reported when the file is read


def _cast_for_arrow(relation: Any) -> Any:
    """A relation with text for types that Arrow lacks: DuckDB would return other values, or bytes."""
    if not any(map(_has_no_arrow_type, relation.types)):
        return relation
    columns = [
        f"#{place}::varchar as {quote_identifier(name)}" if _has_no_arrow_type(kind) else f"#{place}"
        for place, (name, kind) in enumerate(zip(relation.columns, relation.types, strict=True), 1)
    ]
    return relation.project(", ".join(columns))


def _has_no_arrow_type(kind: Any) -> bool:
    return kind.id in _WITHOUT_ARROW_TYPE or (
        kind.id in _NESTED
        and any(_has_no_arrow_type(child) for _, child in kind.children if not isinstance(child, int))
    )


def _is_large(kind: Any) -> bool:
    """Whether a value of a DuckDB type may be an image or a long list."""
    return any(sign in str(kind) for sign in ("BLOB", "[", "STRUCT", "VARCHAR"))


def query_split(split: Split, query: str) -> pa.Table:
    """The result of a query over the table `records`. Only columns that it needs are decoded."""
    try:
        with QueryResult([split], query) as result:
            return result.table()
    except RekordError as failure:
        if failure.code in ("U680", "U682"):  # the usual advice is for the command line
            failure.do = 'split.sql("select label, count(*) from records group by 1")'
        raise
