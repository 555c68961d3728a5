"""The process in which the viewer runs queries: its memory is limited, and ending it ends what DuckDB cannot stop.

It reads requests from its standard input and writes an answer to each. It ends when that input ends, so also when the
server is killed.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from rekord.errors import RekordError
from rekord.storage.portability import limit_private_memory, return_large_buffers, trim_heap
from rekord.viewer.details import number_to_json

if TYPE_CHECKING:
    from rekord.dataset.split import Split

READY, RESULT, FAILURE, OUT_OF_MEMORY = b"r", b"=", b"!", b"m"
"""The first byte of an answer: what follows is nothing, the result, a pickled exception, or text."""

MAX_PROCESS_BYTES = 224 << 20
"""What the process may take beyond its libraries, where the system can limit it."""

_MAX_MEMORY_BYTES = 128 << 20  # that DuckDB counts, and keeps before it spills to disk
_MAX_ANSWER_BYTES = 16 << 20
_MAX_CELL_BYTES = 16
_MAX_CELL_CHARACTERS = 1000
_MAX_CELL_ITEMS = 100
_MAX_INNER_ITEMS = 10  # of lists in lists
_MAX_CELL_DEPTH = 4
_BATCH_ROWS = 8  # DuckDB copies a batch while it grows
_LARGE_BUFFER_BYTES = 256 << 10
_SIZE_BYTES = 8
_OUT_OF_MEMORY_CODE = "X508"

Splits = Sequence[dict[str, "Split"]]


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The first rows of a query over some splits of a side."""

    side: int
    splits: Sequence[str]
    sql: str
    limit: int

    def answer(self, splits: Splits) -> bytes:
        """The rows as the page gets them, in JSON."""
        from rekord.feeds.sql.answer import QueryResult

        began = time.perf_counter()
        chosen = [splits[self.side][name] for name in self.splits]
        rows: list[str] = []
        more, left = False, _MAX_ANSWER_BYTES
        with QueryResult(chosen, self.sql, memory_bytes=_MAX_MEMORY_BYTES, batch_rows=_BATCH_ROWS) as result:
            columns = [{"name": one.name, "type": str(one.type)} for one in result.schema]
            places = _find_record_columns([one["name"] for one in columns])
            pairs: list[list[Any]] | None = None if places is None else []
            for batch in result.batches():
                for row in range(batch.num_rows):
                    if more := len(rows) == self.limit or left <= 0:
                        break
                    rows.append(_to_json([_cell_to_json(column[row]) for column in batch.columns]))
                    left -= len(rows[-1])
                    if pairs is not None and places is not None:
                        pairs.append([batch.column(place)[row].as_py() for place in places])
                if more:
                    break
        rest = {"columns": columns, "more": more, "records": pairs, "seconds": time.perf_counter() - began}
        return f'{{"rows":[{",".join(rows)}],{_to_json(rest)[1:]}'.encode()


@dataclass(frozen=True, slots=True)
class ConditionRequest:
    """The records of a split, of the first `count`, for which a condition is true."""

    side: int
    split: str
    condition: str
    count: int

    def answer(self, splits: Splits) -> bytes:
        """One bit per record."""
        from rekord.feeds.sql.answer import QueryResult

        found = np.zeros(self.count, np.bool_)
        # On a line of its own, so that a comment in the condition ends there.
        sql = f"select _record from records where (\n{self.condition}\n)"
        with QueryResult([splits[self.side][self.split]], sql, memory_bytes=_MAX_MEMORY_BYTES) as result:
            for batch in result.batches():
                records = np.asarray(batch.column(0)).astype(np.int64)
                found[records[(records >= 0) & (records < self.count)]] = True
        return np.packbits(found).tobytes()


def write_message(stream: IO[bytes], *parts: bytes) -> None:
    """Send a message, with its size first."""
    stream.write(sum(map(len, parts)).to_bytes(_SIZE_BYTES, "little"))
    for part in parts:
        stream.write(part)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """The next message; None if the other process ended."""
    head = stream.read(_SIZE_BYTES)
    size = int.from_bytes(head, "little")
    body = stream.read(size) if len(head) == _SIZE_BYTES else b""
    return body if len(head) == _SIZE_BYTES and len(body) == size else None


def _find_record_columns(names: Sequence[str]) -> tuple[int, int] | None:
    lower = [name.casefold() for name in names]
    return (lower.index("_split"), lower.index("_record")) if {"_split", "_record"} <= set(lower) else None


def _to_json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)


def _cell_to_json(value: Any, depth: int = 0) -> Any:
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
        return {name: _cell_to_json(value[name], depth + 1) for name in names} if depth < _MAX_CELL_DEPTH else "…"
    if isinstance(value, (pa.ListScalar, pa.LargeListScalar)):
        items = value.values.slice(0, most)
        return [_cell_to_json(one, depth + 1) for one in items] if depth < _MAX_CELL_DEPTH else "…"
    return number_to_json(value.as_py())


def _answer(request: TableRequest | ConditionRequest, splits: Splits) -> tuple[bytes, bytes]:
    try:
        return RESULT, request.answer(splits)
    except MemoryError:
        return OUT_OF_MEMORY, b"no memory left"
    except RekordError as failure:
        if failure.code == _OUT_OF_MEMORY_CODE:
            return OUT_OF_MEMORY, (failure.found or "no memory left").encode(errors="replace")
        return FAILURE, pickle.dumps(failure)
    except Exception as failure:
        return FAILURE, pickle.dumps(RuntimeError(f"{type(failure).__name__}: {failure}"[:500]))


def _answer_all(requests: SimpleQueue[bytes], out: IO[bytes]) -> None:
    from rekord.feeds.sql.engine import connect

    try:
        return_large_buffers(_LARGE_BUFFER_BYTES)  # free memory that is kept would count too
        with suppress(RekordError):  # without DuckDB: each query says what to install
            connect(_MAX_MEMORY_BYTES).close()  # what it takes by itself is not the query's
        limit_private_memory(MAX_PROCESS_BYTES)
        splits = pickle.loads(requests.get())
        for side, found in enumerate(splits):  # the first query loads libraries, and may have to infer the schema
            _answer(TableRequest(side, list(found), "select 1", 1), splits)
        write_message(out, READY)
        while True:
            write_message(out, *_answer(pickle.loads(requests.get()), splits))
            trim_heap()
    finally:
        os._exit(1)  # the main thread waits for input


def main(spill: str) -> None:
    """Answer until the input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    tempfile.tempdir = spill
    requests: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_answer_all, args=(requests, out), daemon=True).start()
    while (message := read_message(sys.stdin.buffer)) is not None:
        requests.put(message)
    shutil.rmtree(spill, ignore_errors=True)
    os._exit(0)  # DuckDB may be in a query that never ends


if __name__ == "__main__":
    # The classes of requests belong to the module by its own name, not to `__main__`.
    from rekord.viewer import query_process

    query_process.main(sys.argv[1])
