"""`rk.query`: SQL over the records of a dataset, which reads no more of them than the answer needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, overload

import pyarrow as pa

from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.read import PathLike
from rekord.errors import error
from rekord.schema import Schema
from rekord.verbs.query_engine import Runner, check_statement, connect, duckdb, explained, no_table
from rekord.verbs.query_plan import choose_records, planned
from rekord.verbs.query_tables import Part, Table, record_kinds, table_columns

if TYPE_CHECKING:
    from rekord.dataset.split import Split

_ALL = "records"
_ROWS, _LARGE_ROWS = 8192, 256
"""Of a batch of the answer; few where a row may hold a picture."""
_LISTS_TABLES = re.compile(r"\bshow\b|_tables\b|_views\b|information_schema", re.IGNORECASE)


@overload
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    stream: Literal[False] = False,
) -> pa.Table: ...


@overload
def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    stream: Literal[True],
) -> pa.RecordBatchReader: ...


def query(
    path: PathLike | Sequence[PathLike] | Dataset,
    sql: str,
    *,
    split: str | None = None,
    schema: Schema | PathLike | None = None,
    stream: bool = False,
) -> Any:
    """What DuckDB answers to a query over the records of a dataset, as a `pyarrow.Table`.

    `records` are all records, or those of one `split`; each split is a table by its own name too. A column has the
    name that the schema gives it, in double quotes where it is no plain word: `"image/encoded"`. A query that names
    `_split`, `_shard` or `_record` is told where each record lies, and `label_name` is the class that `label` is
    the number of. Only columns that the query needs are decoded, and no record is read where the index knows them.

    With `stream` the answer is a `pyarrow.RecordBatchReader`, whose batches are made as they are asked for.
    """
    answer = Answer(splits_of(path, split, schema), sql)
    if not stream:
        with answer:
            return answer.table()
    return pa.RecordBatchReader.from_batches(answer.schema, answer.batches())


class Answer:
    """A query that is understood and not yet run. Its connection is closed with it."""

    def __init__(self, splits: Sequence[Split], sql: str) -> None:
        self._package = duckdb()
        self._connection = connect()
        self._runner = Runner(self._connection)
        self._tables: list[Table] = []
        self._reader: Any = None
        self._schema: Any = None
        self.rows = 0  # that were given so far
        try:
            self._sql = check_statement(self._connection, sql)
            self._relation = self._prepared(splits)
        except BaseException as failure:
            self.close()
            raise self._told(failure) from None

    @property
    def schema(self) -> Any:
        """The types of the answer. It begins to run for that."""
        if self._schema is None:
            self._schema = self._started().schema
        return self._schema

    def table(self) -> Any:
        """The whole answer."""
        try:
            answer = self._relation
            return self._runner.run(getattr(answer, "to_arrow_table", None) or answer.fetch_arrow_table)
        except BaseException as failure:
            raise self._told(failure) from None

    def batches(self) -> Iterator[Any]:
        """The answer, batch by batch; at its end all is closed."""
        try:
            reader = self._started()
            while (batch := self._runner.run(partial(next, reader, None))) is not None:
                self.rows += batch.num_rows
                yield batch
        except GeneratorExit:
            raise
        except BaseException as failure:
            raise self._told(failure) from None
        finally:
            self.close()

    def close(self) -> None:
        """Stop: nothing is read any more."""
        self._runner.close()
        self._reader = self._relation = None
        for table in self._tables:
            table.close()
        with suppress(self._package.Error):
            self._connection.close()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepared(self, splits: Sequence[Split]) -> Any:
        offered = _offered(splits, self._sql)
        asked = self._sql.casefold()
        everything = bool(_LISTS_TABLES.search(self._sql))
        named = [table for table in offered if everything or table.name.casefold() in asked]
        self._register(named)
        try:
            plan = planned(self._connection, self._sql, self._tables)
        except self._package.CatalogException as failure:
            raise no_table(failure, [table.name for table in offered]) or failure from None
        for table in self._tables:
            needed = sorted(plan.columns[table.number])
            if len(needed) < len(table.columns):
                table.needed = needed
                self._connection.unregister(table.scanned)
                self._connection.register(table.scanned, table)
                self._connection.execute(table.view())
            if table.number in plan.filters:
                choose_records(self._connection, table, plan.filters[table.number])
        return self._connection.sql(self._sql)

    def _register(self, tables: Sequence[Table]) -> None:
        for table in tables:
            self._tables.append(table)
            self._connection.register(table.scanned, table)
            self._connection.execute(table.view())

    def _started(self) -> Any:
        if self._reader is None:
            try:
                answer = self._relation
                rows = _ROWS if not any(_is_large(kind) for kind in answer.types) else _LARGE_ROWS
                start = getattr(answer, "to_arrow_reader", None) or answer.fetch_record_batch
                self._reader = self._runner.run(partial(start, rows))
            except BaseException as failure:
                self.close()
                raise self._told(failure) from None
        return self._reader

    def _told(self, failure: BaseException) -> BaseException:
        """What is to be raised: what went wrong while records were read comes through DuckDB as a mere text."""
        for table in self._tables:
            if table.failure is not None:
                return table.failure
        if isinstance(failure, self._package.InterruptException):
            return KeyboardInterrupt()
        if isinstance(failure, (self._package.Error, pa.ArrowException, OSError)):
            names = {
                (table.number, place): f"`{column.name[:60]}`"
                for table in self._tables
                for place, column in enumerate(table.columns)
            }
            return explained(failure, names)
        return failure


def splits_of(path: Any, split: str | None, schema: Any) -> list[Split]:
    """The splits that a query is about."""
    dataset = path if isinstance(path, Dataset) else open_dataset(path, schema=schema)
    if isinstance(path, Dataset) and schema is not None:
        raise error(
            "U605",
            "`schema` cannot be given beside a dataset that is open",
            expected="a path, or no schema",
            found="a Dataset",
            do="rk.query(path, sql, schema=…)",
        )
    return list(dataset.splits.values()) if split is None else [dataset[split]]


def _offered(splits: Sequence[Split], sql: str) -> list[Table]:
    """The tables that a query can name: `records`, and each split whose name is free."""
    kinds = record_kinds(splits[0])
    columns = table_columns(splits[0].schema, kinds, sql)
    parts = [Part(split, kinds) for split in splits]
    tables = [Table(0, _ALL, parts, columns)]
    taken = {_ALL}
    for part in parts:
        name = part.split.name
        if name and name.casefold() not in taken:
            taken.add(name.casefold())
            tables.append(Table(len(tables), name, [part], columns))
    return tables


def _is_large(kind: Any) -> bool:
    """Whether a value of one of DuckDB's types may be a picture or a long list."""
    return any(sign in str(kind) for sign in ("BLOB", "[", "STRUCT", "VARCHAR"))
