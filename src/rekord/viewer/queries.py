"""SQL on the records of a session: read-only, cancelled on request, limited in time, rows and memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock, Timer
from typing import Any

import numpy as np

from rekord.dataset.samplers import Ids
from rekord.errors import error
from rekord.feeds.sql.answer import QueryResult
from rekord.viewer.details import number_to_json
from rekord.viewer.session import QueryTimeout, Side, SplitRecords, TooManyQueries

MAX_SECONDS = 10.0
MAX_ROWS = 10_000
MAX_MEMORY_BYTES = 128 << 20
"""What queries may keep in memory; they spill the rest to disk."""
_MAX_CELL_BYTES = 16
_MAX_CELL_CHARACTERS = 1000
_MAX_CELL_ITEMS = 100
_MAX_INNER_ITEMS = 10  # of lists in lists
_MAX_CELL_DEPTH = 4
_BATCH_ROWS = 64
_MAX_RUNNING = 2


class QueryRunner:
    """Runs queries, and keeps those that run so that they can be cancelled."""

    def __init__(self, seconds: float = MAX_SECONDS) -> None:
        self.seconds = seconds
        self._running: dict[str, tuple[QueryResult, list[str]]] = {}
        self._lock = Lock()
        self._places = BoundedSemaphore(_MAX_RUNNING)

    def cancel(self, name: str) -> bool:
        """Stop a query; whether it was running."""
        with self._lock:
            found = self._running.get(name)
        if found is None:
            return False
        found[1].append("cancelled")
        found[0].interrupt()
        return True

    def run(self, side: Side, split: str | None, sql: str, *, limit: int, name: str = "") -> dict[str, Any]:
        """The first rows of a query, as the page gets them."""
        limit = max(1, min(limit, MAX_ROWS))
        began = time.perf_counter()
        with self._open(side, split, sql, name) as result:
            columns = [{"name": one.name, "type": str(one.type)} for one in result.schema]
            rows: list[list[Any]] = []
            records = _find_record_columns([one["name"] for one in columns])
            pairs: list[list[Any]] | None = None if records is None else []
            more = False
            for batch in result.batches():
                shown = batch.slice(0, limit - len(rows))
                rows += [[cell_to_json(column[row]) for column in shown.columns] for row in range(shown.num_rows)]
                if pairs is not None and records is not None:
                    of_split, of_record = (shown.column(place).to_pylist() for place in records)
                    pairs += map(list, zip(of_split, of_record, strict=True))
                if more := shown.num_rows < batch.num_rows:
                    break
        return {
            "columns": columns,
            "rows": rows,
            "more": more,
            "records": pairs,
            "seconds": time.perf_counter() - began,
        }

    def find_records(self, side: Side, split: SplitRecords, condition: str) -> Ids:
        """The records of a split for which a condition is true, in order."""
        if not condition.strip():
            raise error("U605", "condition is empty", expected="an SQL condition over columns", found="nothing")
        # On a line of its own, so that a comment in the condition ends there.
        with self._open(side, split.name, f"select _record from records where (\n{condition}\n)", "") as result:
            parts = [np.asarray(batch.column(0)).astype(np.int64) for batch in result.batches()]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    @contextmanager
    def _open(self, side: Side, split: str | None, sql: str, name: str) -> Iterator[QueryResult]:
        splits = [side.get_split(split)] if split is not None else list(side.splits.values())
        for one in splits:
            self._check_readable(one)
        if not self._places.acquire(blocking=False):
            raise TooManyQueries
        reasons: list[str] = []
        try:
            result = QueryResult(
                [one.split for one in splits if one.split is not None],
                sql,
                memory_bytes=MAX_MEMORY_BYTES,
                batch_rows=_BATCH_ROWS,
            )

            def stop() -> None:
                reasons.append("slow")
                result.interrupt()

            timer = Timer(self.seconds, stop)
            timer.daemon = True
            with self._lock:
                self._running[name] = result, reasons
            timer.start()
            try:
                yield result
                if reasons:
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise QueryTimeout(cancelled="cancelled" in reasons) from None
            finally:
                timer.cancel()
                with self._lock:
                    self._running.pop(name, None)
                result.close()
        finally:
            self._places.release()

    def _check_readable(self, split: SplitRecords) -> None:
        if split.split is None:
            raise error("U682", "files that are no dataset cannot be queried", do="rekord check PATH")
        if split.has_oversized:
            raise error(
                "U682",
                "records of more than 64 MiB are not read for a query in the viewer",
                do="rekord query PATH SQL",
            )


def _find_record_columns(names: Sequence[str]) -> tuple[int, int] | None:
    lower = [name.casefold() for name in names]
    return (lower.index("_split"), lower.index("_record")) if {"_split", "_record"} <= set(lower) else None


def cell_to_json(value: Any, depth: int = 0) -> Any:
    """A value of a result, an Arrow scalar; of bytes, long texts and lists only the beginning is made."""
    import pyarrow as pa

    if not value.is_valid:
        return None
    if isinstance(value, (pa.BinaryScalar, pa.LargeBinaryScalar)):
        buffer = value.as_buffer()
        if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
            text = bytes(buffer[: 4 * _MAX_CELL_CHARACTERS + 4]).decode(errors="replace")
            return text if len(text) <= _MAX_CELL_CHARACTERS else text[:_MAX_CELL_CHARACTERS] + "…"
        return {"bytes": buffer.size, "hex": bytes(buffer[:_MAX_CELL_BYTES]).hex()}
    most = _MAX_INNER_ITEMS if depth else _MAX_CELL_ITEMS
    if isinstance(value, pa.StructScalar):
        names = list(value)[:most]
        return {name: cell_to_json(value[name], depth + 1) for name in names} if depth < _MAX_CELL_DEPTH else "…"
    if isinstance(value, (pa.ListScalar, pa.LargeListScalar)):
        items = value.values.slice(0, most)
        return [cell_to_json(one, depth + 1) for one in items] if depth < _MAX_CELL_DEPTH else "…"
    return number_to_json(value.as_py())
