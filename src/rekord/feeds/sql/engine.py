"""DuckDB for queries: in-memory databases, one per process and limit, without access to files or the network."""

from __future__ import annotations

import atexit
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Lock, current_thread, main_thread
from typing import Any

from rekord.arguments import is_utf8_encodable
from rekord.errors import RekordError, closest_match, error
from rekord.feeds.feed import import_package
from rekord.storage.local import check_address_space, check_working_directory, out_of_memory_error

_EXAMPLE = 'rekord query PATH "select label, count(*) from records group by 1"'
_MAX_SHOWN_CHARS, _MAX_VALUE_CHARS = 200, 60
_LINE_PREFIX = re.compile(r"^LINE \d+: ", re.MULTILINE)
_PHYSICAL_COLUMN = re.compile(r"\brk(\d+)c(\d+)\b")
_NO_BUFFER_MESSAGE = "ArrowBuffer: failed to allocate"
"""How DuckDB reports, as an error of another kind, that there is no memory for a result."""
_ADDRESS_SPACE_BYTES = 768 << 20
"""What DuckDB reserves for its threads when it opens a database. With less it crashes."""

_databases: dict[tuple[int, int | None], Any] = {}
_lock = Lock()


def import_duckdb() -> Any:
    """The package, or an error that says what to install."""
    return import_package("duckdb", "SQL", "'rekord[sql]'")


def connect(memory_bytes: int | None = None) -> Any:
    """A new connection to the database of this process, which takes far longer to set up than to use.

    `memory_bytes` limits what its queries may keep in memory; they spill the rest to disk, or fail.
    """
    key = os.getpid(), memory_bytes  # the locks of a forked database may be held by no thread
    with _lock:
        database = _databases.get(key)
        if database is None:
            database = _databases[key] = _new_database(memory_bytes)
        return database.cursor()


def _new_database(memory_bytes: int | None) -> Any:
    # It spills what does not fit into memory, by default into the working directory.
    spill = os.path.join(tempfile.gettempdir(), f"rekord-sql-{secrets.token_hex(8)}")
    settings = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        # An unknown table name must not be looked up among the caller's variables.
        "python_enable_replacements": False,
        # Records come from Python, as one stream, on the calling thread: another one would wait for the
        # interpreter's lock, and ending it while holding that lock would deadlock.
        "threads": 1,
        "temp_directory": spill,
    }
    if memory_bytes is not None:
        settings["memory_limit"] = f"{memory_bytes}B"
    # Before the library is loaded: where it just does not fit, Python reports that in many ways.
    check_address_space(_ADDRESS_SPACE_BYTES, "DuckDB")
    package = import_duckdb()
    check_working_directory()
    database = package.connect(":memory:", config=settings)
    database.execute("set lock_configuration = true")
    return database


@atexit.register
def _close_databases() -> None:
    """Runs before the interpreter exits: Python objects that DuckDB holds cannot be released later."""
    for key in [key for key in _databases if key[0] == os.getpid()]:
        with suppress(Exception):
            _databases.pop(key).close()


class InterruptibleRunner:
    """Runs slow calls on a connection so that Ctrl-C interrupts them.

    DuckDB does not handle signals, and neither does Python while the main thread is in DuckDB: so the call runs on
    another thread, and the main thread waits.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._thread: ThreadPoolExecutor | None = None
        self.inline = False  # for calls that are short, or return to Python often: starting a thread takes a while

    def run(self, call: Callable[[], Any]) -> Any:
        """The result of a call. A KeyboardInterrupt is raised once the call has ended."""
        if self.inline or current_thread() is not main_thread():
            return call()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="rekord-query")
        # Created before the call is submitted: an interrupt may come in between.
        running: Future[Any] = Future()
        try:
            self._thread.submit(_run_call, running, call)
            while not wait([running], timeout=0.5).done:
                pass  # a signal that arrives just before a wait does not end it
            return running.result()
        except KeyboardInterrupt:
            while not running.cancel() and not running.done():  # an interrupt before the query starts is lost
                self._connection.interrupt()
                wait([running], timeout=0.05)
            raise

    def close(self) -> None:
        """Release the thread, which is idle and ends by itself."""
        # Not waited for: the garbage collector closes results that were not closed.
        self._thread = None


def _run_call(running: Future[Any], call: Callable[[], Any]) -> None:
    """Make the call, unless it was cancelled, and set the result or exception of the future."""
    if not running.set_running_or_notify_cancel():
        return
    try:
        running.set_result(call())
    except BaseException as failure:
        running.set_exception(failure)


def check_statement(connection: Any, sql: object) -> str:
    """The query, if it is a single statement that only reads."""
    if not isinstance(sql, str):
        raise query_error("a query of type str", type(sql).__name__)
    if not is_utf8_encodable(sql):  # lone surrogates, from a command line in another encoding
        raise query_error("a query in UTF-8", _truncate(repr(sql), _MAX_VALUE_CHARS))
    package = import_duckdb()
    try:
        statements = connection.extract_statements(sql)
        kinds = [statement.type for statement in statements]
    except package.Error as failure:
        raise explain_duckdb_error(failure, {}) from None
    if len(kinds) != 1:
        raise query_error("one statement", f"{len(kinds)} statements" if kinds else "none")
    if kinds[0] != package.StatementType.SELECT:
        raise error(
            "U680",
            "query may only read the records of the dataset",
            expected="a statement that starts with select, from, with, values, describe or summarize",
            found=f"{_first_keyword(sql)}, which is another kind of statement",
            do="use select; --output writes the result to a file",
        )
    if statements[0].named_parameters:
        raise query_error("a query without parameters", "a parameter, such as ? or $1")
    return sql


def missing_table_error(failure: Exception, names: Sequence[str]) -> RekordError | None:
    """The error for an unknown table, if that is what DuckDB reports."""
    found = re.search(r"Table with name (.*) does not exist", str(failure))
    if found is None:
        return None
    near = closest_match(found[1], names)
    return query_error(
        "one of the tables " + ", ".join(f"`{name[:60]}`" for name in names[:8]) + (", …" if names[8:] else ""),
        _truncate(f"Table with name {found[1][:60]} does not exist", _MAX_SHOWN_CHARS),
        likely=None if near is None else f"did you mean `{near}`?",
    )


def explain_duckdb_error(failure: BaseException, names: dict[tuple[int, int], str]) -> RekordError:
    """DuckDB's error, with columns by the names that the query uses."""
    package = import_duckdb()
    text = _PHYSICAL_COLUMN.sub(lambda found: names.get((int(found[1]), int(found[2])), found[0]), str(failure))
    message, _, place = text.partition("\n\n")
    what, *more = [line.strip() for line in message.split("\n") if line.strip()] or [type(failure).__name__]
    what = re.sub(r"^[A-Z][\w ]* Error: ", "", what)
    hint = " ".join(more) or None
    if isinstance(failure, package.OutOfMemoryException) or what.startswith(_NO_BUFFER_MESSAGE):
        return out_of_memory_error(_truncate(what, _MAX_SHOWN_CHARS))
    if isinstance(failure, package.PermissionException):
        return error(
            "U680",
            "query may only read the records of the dataset",
            expected="a query that uses only the tables of the dataset",
            found=_truncate(what, _MAX_SHOWN_CHARS),
            do=_EXAMPLE,
        )
    syntax = (package.BinderException, package.CatalogException, package.ParserException)
    if isinstance(failure, syntax):
        where = _find_marked_text(place)
        return query_error(
            "a valid DuckDB query over the table `records`",
            _truncate(what, _MAX_SHOWN_CHARS) + (f" (at `{where}`)" if where else ""),
            likely=None if hint is None else _truncate(hint, _MAX_SHOWN_CHARS),
            do='rekord query PATH "describe records"' if isinstance(failure, syntax[:2]) else _EXAMPLE,
        )
    return error(
        "U682",
        expected="values that the query can process",
        found=_redact_values(what),
        do="filter such values out with `where`, or use try_cast(… as …), which returns null for them",
    )


def query_error(expected: str, found: str, *, likely: str | None = None, do: str = _EXAMPLE) -> RekordError:
    """The error for an invalid query."""
    return error("U680", expected=expected, found=found, likely=likely, do=do)


def _first_keyword(sql: str) -> str:
    found = re.search(r"[A-Za-z]+", sql)
    return "nothing" if found is None else f"`{found[0][:20].lower()}`"


def _find_marked_text(place: str) -> str | None:
    """The part of the query that DuckDB marks with carets."""
    lines = place.split("\n")
    if len(lines) < 2 or not _LINE_PREFIX.match(lines[0]) or "^" not in lines[1]:
        return None
    begin = lines[1].index("^")
    return " ".join(lines[0][begin:].split())[:30] or None


def _redact_values(what: str) -> str:
    """A message with the quoted value truncated."""
    first, last = what.find("'"), what.rfind("'")
    quoted = what[first + 1 : last] if 0 <= first < last else ""
    if len(quoted) > _MAX_VALUE_CHARS:
        what = f"{what[: first + 1]}{quoted[:_MAX_VALUE_CHARS]}…{what[last:]}"
    return _truncate(what, _MAX_SHOWN_CHARS)


def _truncate(text: str, most: int) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= most else joined[: most - 1] + "…"
