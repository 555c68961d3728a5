"""SQL over the records of a split, by DuckDB, which reads them as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rekord.errors import RekordError, error
from rekord.feeds.arrow import arrow_batches, arrow_schema

if TYPE_CHECKING:
    from rekord.dataset.split import Split

_OF_A_QUERY, _OF_DATA = 200, 60
"""How many characters of a message are shown: one about the query may be long, one about values quotes them."""
_SCAN = "ARROW_SCAN"
_ROWS = 1024  # of a batch: images are columns too, and a few batches are made ahead


def split_sql(split: Split, query: str) -> pa.Table:
    """What a query says of the table `records`.

    DuckDB says first, of a table without rows, which columns it needs; only those are decoded.
    """
    if not isinstance(query, str):
        raise _refused("a query, as a str", type(query).__name__)
    duckdb = _duckdb()
    schema = arrow_schema(split)
    records = _Records(split, schema)
    with duckdb.connect(":memory:") as connection:
        # A name that is no table must not be looked for among the variables of whoever called.
        connection.execute("set python_enable_replacements = false")
        # Records come from Python, as one stream: more threads would wait for each other and for its lock.
        connection.execute("set threads = 1")
        try:
            statements = len(connection.extract_statements(query))
            if statements != 1:
                raise _refused("one statement", f"{statements} of them")
            # What a function makes of the columns does not say which ones it needs.
            if split._map is None:
                connection.register("records", schema.empty_table())
                records.columns = _needed(connection, query, schema.names, duckdb.Error)
                connection.unregister("records")
            try:
                return _answered(connection, query, records)
            except duckdb.BinderException:
                # A column may be named and still not be needed: its name has to be there all the same.
                records.columns = None
                return _answered(connection, query, records)
        except duckdb.Error as failure:
            # What went wrong while records were read comes through DuckDB as a text of its own.
            about_query = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
            most = _OF_A_QUERY if isinstance(failure, about_query) else _OF_DATA
            raise (records.taken_failure() or _failed(failure, most)) from None


def _answered(connection: Any, query: str, records: _Records) -> pa.Table:
    connection.register("records", records)
    answer = connection.sql(query)
    if answer is None:
        return pa.table({})
    return (getattr(answer, "to_arrow_table", None) or answer.fetch_arrow_table)()


class _Records:
    """The records of a split as DuckDB takes tables: something that gives a new stream each time it is asked."""

    def __init__(self, split: Split, schema: pa.Schema) -> None:
        self.columns: list[str] | None = None
        self._failure: RekordError | None = None
        self._split = split
        self._schema = schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        names = self._schema.names if self.columns is None else self.columns
        schema = pa.schema([self._schema.field(name) for name in names])
        return pa.RecordBatchReader.from_batches(schema, self._batches()).__arrow_c_stream__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from arrow_batches(self._split, self.columns, rows=_ROWS)[1]
        except RekordError as failure:
            self._failure = failure
            raise

    def taken_failure(self) -> RekordError | None:
        """What went wrong while records were read.

        Not kept here, and without the places that it went through: these lead back to it and to DuckDB's objects,
        which would wait for the garbage collector and end in whichever thread that runs.
        """
        failure, self._failure = self._failure, None
        return None if failure is None else failure.with_traceback(None)


def _needed(connection: Any, query: str, known: list[str], failed: type[Exception]) -> list[str] | None:
    """The columns that a query reads, as DuckDB's own plan says; None, which is all, where that is not clear."""
    try:
        plan = json.loads(connection.execute("explain (format json) " + query).fetchall()[0][1])
    except (failed, ValueError, IndexError, TypeError):
        return None  # what is wrong with a query is said when it is run
    found: set[str] = set()
    scans = 0
    waiting = list(plan) if isinstance(plan, list) else [plan]
    while waiting:
        node = waiting.pop()
        waiting += node.get("children", [])
        if _SCAN in str(node.get("name", "")):
            scans += 1
            projected = node.get("extra_info", {}).get("Projections", [])
            names = [projected] if isinstance(projected, str) else list(projected)
            if not names or not set(names) <= set(known):
                return None
            found.update(names)
    return [name for name in known if name in found] if scans else None


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as failure:
        raise error(
            "U602",
            "`sql` needs DuckDB, which is not installed",
            expected="the package duckdb",
            found=str(failure)[:60],
            do="pip install 'rekord[sql]'",
        ) from failure
    return duckdb


def _failed(failure: Exception, most: int) -> RekordError:
    said = " ".join(str(failure).split("\n\n")[0].split())
    return _refused("a query that DuckDB takes, over the table `records`", said[:most])


def _refused(expected: str, found: str) -> RekordError:
    return error(
        "U669",
        expected=expected,
        found=found,
        do='split.sql("select label, count(*) from records group by 1")',
    )
