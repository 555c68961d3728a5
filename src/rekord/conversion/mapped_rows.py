"""Rows on their way through a user's function: sent to worker processes in chunks, and received in order."""

from __future__ import annotations

import inspect
import linecache
import os
import sysconfig
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import cloudpickle
import pyarrow as pa

from rekord.conversion.workers import WorkerPool
from rekord.errors import DataError, RekordError, error, preview
from rekord.location import Location
from rekord.schema import Feature, Schema
from rekord.schema.row_adapters import flatten_row
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    ColumnChunk,
    Source,
    SourcePart,
    SourceRow,
    full_path,
    is_partitioned,
    list_values,
    read_part,
)
from rekord.sources.rows import PEEK_BYTES, estimate_row_bytes, infer_row_schema
from rekord.sources.wrapped import WrappedSource
from rekord.transforms.base import rebuild_schema

FIRST_OUTPUTS = 1000
"""The number of outputs that a schema is inferred from, unless they are large."""

TARGET_PARTS = 16
"""A source with fewer parts than this is read by the calling process if a function is applied to its rows."""

_MIN_PART_BYTES = 64 << 10
_CHUNK_SECONDS = 0.1
_CHUNK_BYTES = 2 << 20
_MADE_BYTES = 4 << 20
_KEPT_ROW_BYTES = 128  # of a row, in addition to its values
_ERROR_BYTES = 4096
_CHUNK_ROWS = 4096
_MAX_FRAMES = 8

_Made = TypeVar("_Made")
RowTask = Callable[[list[Chunk]], tuple[_Made, int]]
"""Work on consecutive rows: what it makes of them, and about how many bytes that is."""


class MappedOutputs(list[Mapping[str, Any]]):
    """What the function returned for a row: the rows to store. It takes the place of the values of the row."""

    added: frozenset[str] = frozenset()  # columns that the row did not have
    changed: frozenset[str] = frozenset()  # columns with other values than the row had, if they are compared


# Calls.


def call_function(function: Callable[[Any], Any], values: Any) -> MappedOutputs:
    """The rows that the function makes of a row. Whatever it raises is an E380, with the function's own lines."""
    try:
        made = function(values)
        if isinstance(made, Iterable) and not isinstance(made, (Mapping, str, bytes)):
            made = list(made)  # here, since a generator fails only when it is consumed
    except DataError:
        raise
    except Exception as failure:
        kind = failure.message.split("\n", 1)[0] if isinstance(failure, RekordError) else None
        raised = error(
            "E380",
            expected="a row, several rows, or None",
            found=(kind or f"{type(failure).__name__}: {failure}")[:60],
            do="fix the function, or return None to skip a row",
        )
        if lines := _format_user_frames(failure):
            raised.add_note("in the function:\n" + lines)
        raise raised from failure
    if made is None:
        return MappedOutputs()
    rows = made if isinstance(made, list) else [made]
    return MappedOutputs([_to_row(row) for row in rows])


def _to_row(made: Any) -> Mapping[str, Any]:
    if not isinstance(made, Mapping):
        raise error(
            "E380",
            "map function returned something other than rows",
            expected="a row, several rows, or None",
            found=preview(made),
            do='return {"label": 1, ...}',
        )
    if any(isinstance(value, Mapping) for value in made.values()):
        return flatten_row(made, 0, None)
    return made


def _format_user_frames(failure: BaseException) -> str:
    """The user's own lines of a traceback: none of rekord, and those of libraries only if there are no others."""
    frames = [
        frame
        for frame in traceback.extract_tb(failure.__traceback__)
        if not frame.filename.startswith(_PACKAGE_FOLDER)
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARY_FOLDERS)]
    return "".join(traceback.format_list((own or frames)[-_MAX_FRAMES:])).rstrip("\n")


_PACKAGE_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
_LIBRARY_FOLDERS = tuple(
    {os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "purelib", "platlib")} | {"<frozen"}
)


def locate_row(source: Source, chunk: Chunk, number: int = 0) -> Location:
    """Where a row is, as a user finds it: the row itself, or row `number` of a chunk of columns."""
    path = full_path(source, chunk.path) or None
    if isinstance(chunk, ColumnChunk):
        return Location(path=path, row=chunk.position_of(number), line=chunk.line_of(number))
    # A file that is one row has no row numbers.
    counted = not chunk.path or chunk.line is not None or chunk.position > 0
    return Location(path=path, row=chunk.position if counted else None, line=chunk.line)


def iter_rows(chunk: Chunk) -> Iterator[SourceRow]:
    """The rows of a chunk one by one."""
    if isinstance(chunk, SourceRow):
        yield chunk
        return
    values = chunk.values
    if isinstance(values, pa.RecordBatch):
        values = dict(zip(values.schema.names, values.columns, strict=True))
    columns = {
        name: list_values(column) if isinstance(column, (pa.Array, pa.ChunkedArray)) else column
        for name, column in values.items()
    }
    for i in range(chunk.rows):
        row = {name: column[i] for name, column in columns.items()}
        yield SourceRow(chunk.path, chunk.position_of(i), row, chunk.line_of(i))


# Chunks.


class RowChunk:
    """Consecutive rows. Another process receives them pickled, and unpickles them where errors can be reported."""

    def __init__(self, rows: list[Chunk] | None, packed: bytes | None = None) -> None:
        self._rows = rows
        self._packed = packed
        self.problem: str | None = None  # what cannot be sent to another process

    @property
    def is_portable(self) -> bool:
        """Whether the rows can be sent to another process."""
        if self._packed is None and self.problem is None:
            try:
                self._packed = cloudpickle.dumps([_compact(chunk) for chunk in self._rows or ()])
            except Exception as failure:
                self.problem = _describe_unpicklable(self.rows, failure)
        return self.problem is None

    @property
    def rows(self) -> list[Chunk]:
        if self._rows is None:
            assert self._packed is not None
            self._rows = cloudpickle.loads(self._packed)
        return self._rows

    def __reduce__(self) -> tuple[Any, ...]:
        return RowChunk, (None, self._packed)


def _compact(chunk: Chunk) -> Chunk:
    """A chunk without the other rows of the Arrow buffers that it is a slice of."""
    if isinstance(chunk, SourceRow):
        return chunk
    everything = pa.array(range(chunk.rows))
    if isinstance(chunk.values, pa.RecordBatch):
        return chunk.with_values(chunk.values.take(everything))
    arrow = (pa.Array, pa.ChunkedArray)
    return chunk.with_values(
        {name: one.take(everything) if isinstance(one, arrow) else one for name, one in chunk.values.items()}
    )


def _describe_unpicklable(chunks: Iterable[Chunk], failure: Exception) -> str:
    for row in chain.from_iterable(map(iter_rows, chunks)):
        named = row.values.items() if isinstance(row.values, Mapping) else [("", row.values)]
        for name, value in named:
            try:
                cloudpickle.dumps(value)
            except Exception:
                what = f"`{name}` of row {row.position:,}" if name else f"row {row.position:,}"
                return f"{what} cannot be pickled: {type(value).__name__}"
    return f"rows cannot be pickled: {type(failure).__name__}: {failure}"[:120]


def _describe_range(first: Chunk, last: Chunk) -> str:
    """The rows from one chunk to another, for messages."""
    begin = first.position if isinstance(first, SourceRow) else first.first
    end = last.position if isinstance(last, SourceRow) else last.first + last.rows - 1
    if first.path != last.path:
        return f"{first.path} to {last.path}"
    where = f" of {first.path}" if first.path else ""
    return f"row {begin:,}{where}" if begin == end else f"rows {begin:,} to {end:,}{where}"


class RowCutter:
    """Cuts rows into chunks that take long enough to be worth sending, and are not too large.

    Nothing but the time depends on where they are cut. `breaks` are numbers of rows at which a chunk must end.
    """

    def __init__(self, chunks: Iterable[Chunk], breaks: Iterable[int] = ()) -> None:
        self._chunks = iter(chunks)
        self._left: Chunk | None = None
        self._failure: Exception | None = None
        self._breaks = deque(breaks)
        self._taken_rows = 0
        self._most_rows = 1
        self.ranges: deque[str] = deque()  # of the chunks whose results were not received yet
        self.problem: str | None = None  # why a chunk could not be sent
        self.is_stopped = False

    def __iter__(self) -> Iterator[RowChunk]:
        while not self.is_stopped and (rows := self._take()):
            self.ranges.append(_describe_range(rows[0], rows[-1]))
            chunk = RowChunk(rows)
            yield chunk
            self.problem = self.problem or chunk.problem
            del rows, chunk  # the generator is kept while the rows are not needed any more

    def adapt(self, rows: int, seconds: float, made_bytes: int) -> None:
        """Choose the size of the next chunks by the result of one."""
        wanted = min(_CHUNK_SECONDS / max(seconds, 1e-9), _MADE_BYTES / max(made_bytes, 1)) * rows
        self._most_rows = max(1, min(int(wanted), 2 * self._most_rows, _CHUNK_ROWS))

    def rest(self) -> Iterator[Chunk]:
        """The rows that were not taken."""
        if self._left is not None:
            yield self._left
        if self._failure is not None:
            raise self._failure
        yield from self._chunks

    def _take(self) -> list[Chunk]:
        taken: list[Chunk] = []
        rows = taken_bytes = 0
        while self._breaks and self._breaks[0] <= self._taken_rows:
            self._breaks.popleft()
        most = self._most_rows
        if self._breaks:
            most = min(most, self._breaks[0] - self._taken_rows)
        while rows < most and taken_bytes < _CHUNK_BYTES and (chunk := self._next()) is not None:
            count, size = _measure_chunk(chunk)
            wanted = min(most - rows, max(1, (_CHUNK_BYTES - taken_bytes) * count // max(size, 1)))
            if wanted < count:
                assert isinstance(chunk, ColumnChunk)
                chunk, self._left = chunk.slice(0, wanted), chunk.slice(wanted, count)
                count, size = wanted, size * wanted // count
            taken.append(chunk)
            rows += count
            taken_bytes += size
        if not taken and self._failure is not None:
            raise self._failure
        self._taken_rows += rows
        return taken

    def _next(self) -> Chunk | None:
        """The next chunk of the source; its exception is raised once all rows before it are taken."""
        if self._left is not None:
            chunk, self._left = self._left, None
            return chunk
        if self._failure is not None:
            raise self._failure
        try:
            return next(self._chunks, None)
        except Exception as failure:
            self._failure = failure
            return None


def _measure_chunk(chunk: Chunk) -> tuple[int, int]:
    """The number of rows of a chunk, and about how many bytes they are."""
    if isinstance(chunk, SourceRow):
        return 1, estimate_values_bytes(chunk.values)
    if isinstance(chunk.values, pa.RecordBatch):
        return chunk.rows, chunk.values.nbytes
    if not chunk.rows:
        return 0, 0
    first = {name: column[0] for name, column in chunk.values.items() if not hasattr(column, "nbytes")}
    known = sum(int(column.nbytes) for column in chunk.values.values() if hasattr(column, "nbytes"))
    return chunk.rows, known + estimate_row_bytes(first) * chunk.rows


def estimate_values_bytes(values: Any) -> int:
    """The approximate size of what a row is, before or after the function."""
    if isinstance(values, MappedOutputs):
        return sum(map(estimate_row_bytes, values))
    if isinstance(values, RekordError):
        return _ERROR_BYTES
    return estimate_row_bytes(values if isinstance(values, Mapping) else {"": values})


class _ChunkResult(NamedTuple):
    made: Any
    rows: int
    seconds: float
    made_bytes: int


def run_on_rows(
    pool: WorkerPool, task: RowTask[_Made], chunks: Iterable[Chunk] | RowCutter, *, sent: str
) -> Iterator[_Made]:
    """What `task` makes of consecutive rows, in order. `sent` names what is pickled, for errors.

    Rows are read here, and at most two chunks per process are ahead of the result that is consumed.
    """
    cutter = chunks if isinstance(chunks, RowCutter) else RowCutter(chunks)
    inline = partial(_run_chunk, task)
    with _SharedTask(task, sent) if pool.count > 1 else _SharedTask(None, sent) as path:
        for result in pool.run_in_order(partial(_run_chunk_in_worker, path), inline, cutter):
            span = cutter.ranges.popleft()
            if isinstance(result, RekordError) and result.code == "X517":
                result.what = f"worker processes keep dying: {span}"
            if isinstance(result, Exception):
                raise result
            cutter.adapt(result.rows, result.seconds, result.made_bytes)
            yield result.made


def _run_chunk(task: RowTask[Any], chunk: RowChunk) -> _ChunkResult:
    began = time.perf_counter()
    rows = chunk.rows
    made, made_bytes = task(rows)
    count = sum(1 if isinstance(one, SourceRow) else one.rows for one in rows)
    return _ChunkResult(made, count, time.perf_counter() - began, made_bytes)


def _run_chunk_in_worker(path: str, chunk: RowChunk) -> _ChunkResult:
    return _run_chunk(_load_task(path), chunk)


class _SharedTask:
    """A task in a temporary file, so that each process receives it once and not with every chunk."""

    def __init__(self, task: RowTask[Any] | None, sent: str) -> None:
        self._task = task
        self._sent = sent
        self._path = ""

    def __enter__(self) -> str:
        if self._task is not None:
            packed = pack_task((self._task, _collect_source_lines(self._task)), self._sent)
            with tempfile.NamedTemporaryFile(prefix="rekord-", suffix=".task", delete=False) as file:
                self._path = file.name
                file.write(packed)
        return self._path

    def __exit__(self, *failure: object) -> None:
        if self._path:
            os.unlink(self._path)


@lru_cache(maxsize=1)
def _load_task(path: str) -> RowTask[Any]:
    with open(path, "rb") as file:
        task, sources = cloudpickle.load(file)
    for name, lines in sources.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return task  # type: ignore[no-any-return]


def pack_task(task: Any, sent: str) -> bytes:
    """A task as worker processes receive it."""
    try:
        packed: bytes = cloudpickle.dumps(task)
    except Exception as failure:
        raise error(
            "U605",
            f"{sent} cannot be sent to worker processes",
            expected="objects that can be pickled",
            found=f"{type(failure).__name__}: {failure}"[:60],
            do="workers=1, or open files, locks and connections where they are used",
        ) from failure
    return packed


def _collect_source_lines(task: Any) -> dict[str, list[str]]:
    """The code of a function that is in no file, such as that of a notebook, so that errors can show it."""
    function = getattr(task, "function", None)
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    name = getattr(code, "co_filename", "")
    lines = linecache.getlines(name) if name and not os.path.exists(name) else []
    return {name: lines} if lines else {}


# First outputs.


@dataclass(frozen=True)
class MapTask:
    """Applies the function only. A bad row has its error in place of the outputs."""

    function: Callable[[Any], Any]

    def __call__(self, chunks: list[Chunk]) -> tuple[list[SourceRow], int]:
        made: list[SourceRow] = []
        for row in chain.from_iterable(map(iter_rows, chunks)):
            values: Any = row.values
            if not isinstance(values, RekordError):
                try:
                    values = self._call(values)
                except DataError as failure:
                    values = failure
            made.append(row._replace(values=values))
        return made, sum(estimate_values_bytes(row.values) for row in made)

    def _call(self, values: Any) -> MappedOutputs | RekordError:
        # The function may change the row itself.
        given = dict(values) if isinstance(values, Mapping) else {}
        outputs = call_function(self.function, values)
        names = {name for row in outputs for name in row}
        outputs.added = frozenset(names.difference(given))
        outputs.changed = frozenset(
            [name for row in outputs for name, value in row.items() if given.get(name, _ABSENT) is not value]
        )
        return outputs if is_picklable(outputs) else _unpicklable_output(outputs)


_ABSENT = object()


def is_picklable(values: Any) -> bool:
    """Whether values can be received from another process."""
    plain = (str, bytes, int, float, bool, type(None))
    if all(isinstance(value, plain) or hasattr(value, "dtype") for row in values for value in row.values()):
        return True
    try:
        cloudpickle.dumps(values)
    except Exception:
        return False
    return True


def _unpicklable_output(values: MappedOutputs) -> RekordError:
    for row in values:
        for name, value in row.items():
            try:
                cloudpickle.dumps(value)
            except Exception:
                return error(
                    "E380",
                    "map function returned a value that cannot be pickled",
                    location=Location(feature=name),
                    expected="numbers, text, bytes or arrays",
                    found=preview(value),
                    do="return the content of the object, such as its bytes or an array",
                )
    raise AssertionError("pickled one by one, all values can be")


@dataclass(frozen=True, kw_only=True)
class FirstOutputs:
    """What the function returned for the first rows."""

    rows: list[SourceRow] = field(repr=False)
    complete: bool  # there are no other rows
    processes: int  # that called the function
    problem: str | None  # why rows could not be sent to other processes

    @property
    def added(self) -> list[str]:
        """The columns that rows do not have before."""
        added: set[str] = set().union(*[row.values.added for row in self._mapped()])
        return [name for name in self.columns if name in added]

    @property
    def columns(self) -> list[str]:
        """The columns of the outputs, in order."""
        return list(dict.fromkeys(name for row in self._mapped() for values in row.values for name in values))

    def infer(self, skip: Collection[str], before: Schema | None) -> Schema:
        """The schema of the outputs, without the columns `skip`.

        Columns that the function passes on as they are keep the type that they have `before` it.
        """
        names = [name for name in self.columns if name not in skip]
        changed: set[str] = set().union(*[row.values.changed for row in self._mapped()])
        passed = {} if before is None else {name: before[name] for name in names if name in before}
        passed = {name: one for name, one in passed.items() if name not in changed}
        if before is None or not passed:
            return self._infer(skip)
        others: Schema | dict[str, Feature] = {} if len(passed) == len(names) else self._infer({*skip, *passed})
        features = {name: passed[name] if name in passed else others[name] for name in names}
        return rebuild_schema(before, features)

    def _infer(self, skip: Collection[str]) -> Schema:
        bad = [row for row in self.rows if isinstance(row.values, RekordError)]
        if not bad and next(self._outputs(), None) is None:
            raise no_rows_error(None)
        return infer_row_schema(chain(self._outputs(), bad), complete=self.complete, skip=skip)

    def _mapped(self) -> Iterator[Any]:
        return (row for row in self.rows if isinstance(row.values, MappedOutputs))

    def _outputs(self) -> Iterator[SourceRow]:
        for row in self._mapped():
            for values in row.values:
                yield row._replace(values=values)


def peek_outputs(
    source: Source, function: Callable[[Any], Any], *, workers: int, source_bytes: int, stop: bool
) -> tuple[Source, FirstOutputs]:
    """Apply the function to the first rows; the source returned continues after them.

    With `stop`, the error of the first bad row is raised.
    """
    parts = list_parts(source, source_bytes)
    counts: list[int] = []
    cutter = RowCutter(_iter_all(source, parts, counts))
    kept: list[SourceRow] = []
    nothing: Any = MappedOutputs()  # shared by the rows that the function skips: there may be millions of them
    used = outputs = used_bytes = 0
    is_enough = False
    with WorkerPool(workers) as pool:
        for rows in run_on_rows(pool, MapTask(function), cutter, sent="map function"):
            kept += [row if row.values else row._replace(values=nothing) for row in rows]
            while used < len(kept) and not is_enough:
                row = kept[used]
                if stop and isinstance(row.values, RekordError):
                    row.values.location = row.values.location.within(**locate_row(source, row).to_dict())
                    raise row.values
                outputs += len(row.values) if isinstance(row.values, MappedOutputs) else 0
                used_bytes += _KEPT_ROW_BYTES + estimate_values_bytes(row.values)
                used += 1
                is_enough = outputs >= FIRST_OUTPUTS or (used_bytes >= PEEK_BYTES and outputs > 0)
            # Rows that are on their way are kept as well, but the schema depends on the first outputs only.
            cutter.is_stopped = is_enough
    found = FirstOutputs(
        rows=kept[:used],
        complete=not cutter.is_stopped,
        processes=len(pool.processes),
        problem=cutter.problem,
    )
    if parts is None:
        return PeekedSource(source, kept, cutter.rest()), found
    return PeekedParts(source, _attach_first_rows(parts, counts, kept), kept), found


def no_rows_error(path: str | None) -> RekordError:
    """The error for a source of which nothing is left to write."""
    return error(
        "X510",
        location=Location(path=path),
        expected="at least one row",
        found="none",
        do="check the path of the source, and what `map=` returns",
    )


def list_parts(source: Source, source_bytes: int) -> Sequence[SourcePart] | None:
    """The parts of a source whose rows a function is applied to; None if the calling process has to read them.

    Independent of the number of workers: a run with another number must find the same parts finished.
    """
    if not is_partitioned(source):
        return None
    partitioned: Any = source
    part_bytes = min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // (2 * TARGET_PARTS)))
    parts: Sequence[SourcePart] = partitioned.parts(part_bytes)
    return parts if len(parts) >= TARGET_PARTS else None


def spread_rows(source: Source, source_bytes: int) -> Source:
    """The source as a function needs it: in many parts, or read by the calling process."""
    parts = list_parts(source, source_bytes)
    return PeekedSource(source, [], None) if parts is None else PeekedParts(source, parts, [])


def _iter_all(source: Any, parts: Sequence[SourcePart] | None, counts: list[int]) -> Iterator[Chunk]:
    """All rows of a source; `counts` become the numbers of rows that were read from each part."""
    if parts is None:
        yield from read_in_sequence(source)
        return
    for part in parts:
        counts.append(0)
        for chunk in read_part(source, part):
            counts[-1] += 1 if isinstance(chunk, SourceRow) else chunk.rows
            yield chunk


def read_in_sequence(source: Any) -> Iterator[Chunk]:
    """All rows of any source."""
    if is_partitioned(source):
        return chain.from_iterable(read_part(source, part) for part in source.parts())
    chunks: Iterator[Chunk] = source.rows()
    return chunks


def skip_rows(chunks: Iterable[Chunk], count: int) -> Iterator[Chunk]:
    """The chunks without the first `count` rows."""
    for chunk in chunks:
        rows = 1 if isinstance(chunk, SourceRow) else chunk.rows
        if count >= rows:
            count -= rows
            continue
        yield chunk if isinstance(chunk, SourceRow) or not count else chunk.slice(count, rows)
        count = 0


class _PeekedRows(WrappedSource):
    """A source whose first rows were read, and have what the function returned for them."""

    def __init__(self, source: Source, first: list[SourceRow]) -> None:
        self.source = source
        self.first = first


class PeekedSource(_PeekedRows):
    """A source that the calling process reads, whether or not it has parts."""

    def __init__(self, source: Source, first: list[SourceRow], rest: Iterator[Chunk] | None) -> None:
        super().__init__(source, first)
        self._rest = rest

    def rows(self) -> Iterator[Chunk]:
        rest, self._rest = self._rest, None
        if rest is None:
            rest = skip_rows(read_in_sequence(self.source), len(self.first))
        return chain(self.first, rest)


class PeekedParts(_PeekedRows):
    """A source that workers read. A part carries the rows that were read of it, so that its worker receives them."""

    def __init__(self, source: Source, parts: Sequence[SourcePart], first: list[SourceRow]) -> None:
        super().__init__(source, first)
        self._parts = parts

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        return self._parts

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        source: Any = self.source
        if not isinstance(part.content, _PeekedPart):
            chunks: Iterator[Chunk] = read_part(source, part)
            return chunks
        return chain(part.content.first, skip_rows(read_part(source, part.content.part), len(part.content.first)))

    def __reduce__(self) -> tuple[Any, ...]:
        return PeekedParts, (self.source, (), [])


class _PeekedPart(NamedTuple):
    part: SourcePart
    first: list[SourceRow]


def _attach_first_rows(
    parts: Sequence[SourcePart], counts: Sequence[int], first: Sequence[SourceRow]
) -> list[SourcePart]:
    attached = list(parts)
    at = 0
    for i, count in enumerate(counts):
        own = list(first[at : at + count])
        at += count
        if own:
            attached[i] = SourcePart(_PeekedPart(parts[i], own), parts[i].source_bytes)
    return attached
