"""SQLite databases: a table or the answer of a query as rows, from a file that is never written."""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rekord.arguments import check_keywords, conflicting_options
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.base import SourceFile, SourceGuess, corrupt_file_error, empty_file_error, source_path
from rekord.sources.table_files import kept_columns
from rekord.sources.value_tables import (
    Values,
    ValueTable,
    check_head,
    missing_table_error,
    several_tables_error,
    table_name,
)
from rekord.storage import raw_files
from rekord.storage.archives import require_own_file
from rekord.storage.local import read_error

EXTENSIONS = (".sqlite", ".sqlite3", ".db", ".db3", ".s3db")
MAGIC = b"SQLite format 3\0"
_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"

MAX_STEPS_PER_ROW = 2_000_000_000
"""Instructions of SQLite's machine for one row: a query that needs more is considered not to end."""

_STEPS_PER_CALL = 1_000_000
_MAX_VALUE_BYTES = 1 << 30
_ALLOWED_ACTIONS = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE))
_CORRUPT = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR", "SQLITE_CANTOPEN")


@dataclass(frozen=True, slots=True)
class SqliteSource(ValueTable):
    """Rows of a table, or of a query."""

    table: str | None = None
    query: str | None = None

    kind = "sqlite"
    extensions = EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        names = None if self.columns is None else list(self.columns)
        return {"columns": names, "table": self.table, "query": self.query}

    def read_file(self, path: str, file: SourceFile, notes: list[SourceGuess]) -> Iterator[Values]:
        with _open_database(path, file) as database:
            if self.query is None:
                name = _choose_table(database, path, self.table)
                truths = _find_booleans(database, name)
                query = f"SELECT * FROM {quote_name(name)}"
            else:
                truths, query = frozenset(), self.query
            yield from _run_query(database, query, truths, path)


@check_keywords
def sqlite(
    path: str | os.PathLike[str],
    *,
    table: str | None = None,
    query: str | None = None,
    columns: Sequence[str] | None = None,
) -> SqliteSource:
    """Rows of SQLite databases: a file, a folder or a pattern.

    `table` is the name of a table or a view; by default the only table. `query` is a SELECT statement instead:
    nothing else is executed, and the file is opened read-only. Types are those of the values; a column declared as
    BOOLEAN has bools.
    """
    if table is not None and query is not None:
        raise conflicting_options("table", "query")
    return SqliteSource(
        source_path(path, "sqlite"), kept_columns(columns), table_name("table", table), table_name("query", query)
    )


def quote_name(name: str) -> str:
    """The name of a table in SQL."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _open_database(path: str, file: SourceFile) -> Iterator[sqlite3.Connection]:
    check_head(path, file, "SQLite database", MAGIC)
    place = raw_files.local_file(path)
    require_own_file(place, "a SQLite database")
    if raw_files.isfile(f"{path}-wal") and raw_files.getsize(f"{path}-wal"):
        raise open_changes_error(path, "-wal", f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)'")
    if _has_open_journal(f"{path}-journal"):
        raise open_changes_error(path, "-journal", f"sqlite3 {path} 'SELECT * FROM sqlite_master'")
    # The file cannot change while it is read, so SQLite needs no locks, and creates no files next to it.
    url = f"file:{urllib.parse.quote(os.path.abspath(place))}?mode=ro&immutable=1"
    try:
        database = sqlite3.connect(url, uri=True, isolation_level=None)
    except sqlite3.Error as failure:
        raise _to_error(path, failure) from None
    try:
        database.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0"):
            database.execute(f"PRAGMA {pragma}")
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        yield database
    except sqlite3.Error as failure:
        raise _to_error(path, failure) from None
    finally:
        database.close()


def open_changes_error(path: str, ending: str, command: str) -> RekordError:
    """The error for a database of which another file has changes that are not in it, or that have to be undone."""
    return error(
        "X526",
        "database has changes that are not in its file",
        location=Location(path=path),
        expected="a closed database",
        found=f"{'a rollback journal' if ending == '-journal' else 'a write-ahead log'}, "
        f"{os.path.basename(path)[:60]}{ending}",
        do=f"close the program that uses it, or: {command}",
    )


def _has_open_journal(path: str) -> bool:
    """Whether a journal undoes an unfinished transaction; that of a finished one has no header."""
    if not raw_files.isfile(path):
        return False
    try:
        with raw_files.open_binary(path) as file:
            return file.read(len(_JOURNAL_MAGIC)) == _JOURNAL_MAGIC
    except OSError as failure:
        raise read_error(path, failure) from failure


def _choose_table(database: sqlite3.Connection, path: str, wanted: str | None) -> str:
    listed = database.execute("SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY rowid")
    kinds = {str(name): kind for name, kind in listed if not str(name).startswith("sqlite_")}
    if wanted is not None:
        if wanted not in kinds:
            raise missing_table_error(path, "table", "table", wanted, list(kinds))
        return wanted
    tables = [name for name, kind in kinds.items() if kind == "table"]
    if len(tables) > 1:
        raise several_tables_error(path, "table", "table", tables)
    if not tables:
        raise empty_file_error(path, "a database without tables", expected="a table")
    return tables[0]


def _find_booleans(database: sqlite3.Connection, table: str) -> frozenset[str]:
    columns = database.execute("SELECT name, type FROM pragma_table_info(?)", (table,))
    return frozenset(str(name) for name, kind in columns if str(kind).upper() in ("BOOLEAN", "BOOL"))


def _run_query(
    database: sqlite3.Connection, query: str, truths: frozenset[str], path: str
) -> Iterator[Mapping[str, Any]]:
    steps = 0
    denied: list[str] = []

    def authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
        is_function = action == sqlite3.SQLITE_FUNCTION and str(second).lower() != "load_extension"
        if action in _ALLOWED_ACTIONS or is_function:
            return sqlite3.SQLITE_OK
        denied.append(str(second or first or action))
        return sqlite3.SQLITE_DENY

    def count_steps() -> int:
        nonlocal steps
        steps += _STEPS_PER_CALL
        return int(steps > MAX_STEPS_PER_ROW)

    database.set_authorizer(authorize)
    database.set_progress_handler(count_steps, _STEPS_PER_CALL)
    try:
        cursor = database.execute(query)
    except (sqlite3.Error, sqlite3.Warning) as failure:
        if isinstance(failure, sqlite3.Error) and _is_corrupt(failure):
            raise
        raise query_error(path, str(failure), _explain(steps, denied)) from None
    if cursor.description is None:
        raise query_error(path, "a statement without rows", None)
    names = [column[0] for column in cursor.description]
    check_unique_names(names, path)
    places = [name in truths for name in names]
    try:
        for row in cursor:  # one at a time: a row can have a gigabyte
            steps = 0
            if truths:
                row = [
                    value == 1 if truth and value in (0, 1) else value
                    for value, truth in zip(row, places, strict=True)
                ]
            yield dict(zip(names, row, strict=True))
    except sqlite3.OperationalError as failure:
        if _is_corrupt(failure):
            raise
        raise query_error(path, str(failure), _explain(steps, denied)) from None


def _explain(steps: int, denied: Sequence[str]) -> str | None:
    if steps > MAX_STEPS_PER_ROW:
        return f"the query took more than {MAX_STEPS_PER_ROW:,} steps without a row"
    return f"only reading is allowed, and it needs {denied[0][:60]}" if denied else None


def check_unique_names(names: Sequence[str], path: str) -> None:
    """Raise X522 if two columns of an answer have the same name."""
    for name in names:
        if names.count(name) > 1:
            raise error(
                "X522",
                f"two columns are named `{name[:60]}`",
                location=Location(path=path, feature=name[:60]),
                expected="unique names",
                found="two columns of this name",
                do=f"rename one in the query: {name[:60]} AS {name[:40]}_2",
            )


def query_error(path: str, found: str, likely: str | None) -> RekordError:
    """The error for a query that a database refuses."""
    return error(
        "X544",
        location=Location(path=path),
        expected="one SELECT statement that the database can answer",
        found=" ".join(found.split())[:120],
        likely=likely,
        do='query="SELECT * FROM name_of_a_table"',
    )


def _is_corrupt(failure: sqlite3.Error) -> bool:
    name = getattr(failure, "sqlite_errorname", "") or ""
    return name.startswith(_CORRUPT)


def _to_error(path: str, failure: sqlite3.Error) -> RekordError:
    return corrupt_file_error(path, "SQLite database", str(failure)[:80])
