"""The two tasks of a conversion, and their progress: a part is read and encoded, a shard is gathered and written."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import cloudpickle
import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.conversion.encode_rows import BadRows, EncodedChunk, EncodeTask, RowEncoding
from rekord.conversion.mapped_rows import RowCutter, pack_task, run_on_rows, skip_rows
from rekord.conversion.plan import ConversionJob
from rekord.conversion.reuse import ReusedRows, iter_reused_rows
from rekord.conversion.shards import (
    CompletedShard,
    OutputBucket,
    PlannedShard,
    StagedShard,
    find_bucket_slices,
)
from rekord.conversion.spill import (
    CompletedPart,
    DeferredBlobs,
    EncodedRows,
    RowDigest,
    SpillWriter,
    fill_buffer,
    iter_windows,
    needs_sorting,
    read_deferred_blob,
    read_part_index,
    read_row_origins,
)
from rekord.conversion.workers import WorkerPool
from rekord.dataset.origins import OriginRuns, RowOrigins, gather_origins
from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.sources.base import PART_BYTES, Chunk, SourcePart, is_partitioned, read_part
from rekord.storage.local import Readable
from rekord.storage.portability import TRIM_THRESHOLD_BYTES, trim_heap
from rekord.storage.router import UNREACHABLE_CODES
from rekord.storage.transaction import Staging

_READ_BYTES = 4 << 20
_WINDOW_BYTES = 1 << 20
_MAX_READ_GAP_BYTES = 64 << 10


Done = TypeVar("Done", CompletedPart, CompletedShard)

_COUNTS_STRUCT = struct.Struct("<4q")


@dataclass(frozen=True, slots=True)
class ProgressCounts:
    """Progress so far."""

    rows: int = 0
    spilled_bytes: int = 0
    rejected: int = 0
    shard_bytes: int = 0


class ProgressTally:
    """The progress of one thread. Nothing depends on it: failures to write it are ignored."""

    def __init__(self, folder: str | None) -> None:
        self._path: str | None = None
        self._finished = [0, 0, 0, 0]
        self._current = [0, 0, 0, 0]
        if folder is None:
            return
        path = os.path.join(folder, f"{os.getpid()}-{threading.get_native_id()}.count")
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644))
            self._path = path

    def rows(self, rows: int, spilled_bytes: int, rejected: int) -> None:
        """Set the progress of the current part."""
        self._current[:3] = rows, spilled_bytes, rejected
        self._publish()

    def shard_bytes(self, more_bytes: int) -> None:
        self._current[3] += more_bytes
        self._publish()

    def next(self) -> None:
        """Finish the current task."""
        self._finished = [a + b for a, b in zip(self._finished, self._current, strict=True)]
        self._current = [0, 0, 0, 0]

    def _publish(self) -> None:
        if self._path is None:
            return
        sums = [a + b for a, b in zip(self._finished, self._current, strict=True)]
        # Written and not mapped: on a full disk a write fails, where a mapped page would end the process. The file
        # is not created again: the folder may be about to be removed.
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY)
            try:
                os.write(descriptor, _COUNTS_STRUCT.pack(*sums))
            finally:
                os.close(descriptor)


class ThreadTally(threading.local):
    """One tally per thread."""

    def __init__(self, folder: str | None) -> None:
        self.own = ProgressTally(folder)


def sum_progress(folder: str) -> ProgressCounts:
    """The sum over all threads and processes."""
    sums = [0, 0, 0, 0]
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(".count"):
                with suppress(OSError, struct.error), open(entry.path, "rb") as file:
                    counts = _COUNTS_STRUCT.unpack(file.read(_COUNTS_STRUCT.size))
                    sums = [a + b for a, b in zip(sums, counts, strict=True)]
    return ProgressCounts(*sums)


class SpillLost(Exception):
    """The frames of a part do not match its `.done` file: the part must be encoded again."""

    def __init__(self, part: int) -> None:
        super().__init__(part)
        self.part = part


def encode_part(
    job: ConversionJob, staging: Staging, number: int, part: SourcePart, tally: ProgressTally
) -> CompletedPart:
    """Read a part of the source, and spill its rows."""
    source: Any = job.source
    if isinstance(part.content, ReusedRows):
        return _copy_part(job, staging, number, part.content, tally)
    bad = BadRows(job.on_bad_row)
    encoding = RowEncoding(job, bad)
    writer = open_spill_writer(job, staging, number)

    def report() -> None:
        tally.rows(encoding.rows, writer.spilled_bytes, bad.rejected)

    encoding.on_progress = report
    try:
        for piece in encoding.pieces(read_part(source, part)):
            writer.add(piece)
            report()
        return finish_part(staging, number, writer, encoding.rows, bad)
    except BaseException:
        writer.discard()
        raise


def _copy_part(
    job: ConversionJob, staging: Staging, number: int, rows: ReusedRows, tally: ProgressTally
) -> CompletedPart:
    """Spill rows that another dataset has already."""
    writer = open_spill_writer(job, staging, number)
    try:
        for piece in iter_reused_rows(job, staging, rows):
            writer.add(piece)
            tally.rows(rows.count, writer.spilled_bytes, 0)
        return finish_part(staging, number, writer, rows.count, BadRows("stop"))
    except BaseException:
        writer.discard()
        raise


def open_spill_writer(
    job: ConversionJob, staging: Staging, number: int, digest: RowDigest | None = None
) -> SpillWriter:
    stratified = job.splits.stratify is not None
    sort = needs_sorting(shuffle=job.shuffle, splits=len(job.splits.names), stratified=stratified)
    return SpillWriter(staging, number, sort=sort, digest=digest)


def finish_part(
    staging: Staging, number: int, writer: SpillWriter, rows: int, bad: BadRows, *, first_row: int = 0
) -> CompletedPart:
    """Write what belongs to a part in addition to its frames, and `.done` last."""
    done = writer.finish(
        rows=rows, first_row=first_row, rejected=bad.rejected, remarks=bad.remarked, flagged=list(bad.flagged)
    )
    for kind, lines in (("rejects", bad.rejects_file()), ("remarks", bad.remarks_file())):
        if lines:
            staging.write(staging.map_path(number, kind), lines)
    staging.write_done(staging.map_path(number, "done"), done)
    if done.spill_bytes >= TRIM_THRESHOLD_BYTES:
        trim_heap()
    return done


def write_shard(job: ConversionJob, staging: Staging, shard: PlannedShard, tally: ProgressTally) -> CompletedShard:
    """Gather the frames of a shard in order, and publish the file."""
    name = job.shard_name(shard.split, shard.number, shard.shards)
    spills = _SpillReader(staging, select_index_kind(job))
    lengths: list[Any] = [np.zeros(0, np.int64)]
    columns: list[pa.Table] = []
    origins = OriginRuns()
    with StagedShard(staging, name, job.compression) as file:
        try:
            for bucket in shard.buckets:
                pieces, framed, table = _gather_bucket(spills, bucket, shard)
                if len(table):
                    origins.add(_trace_rows(job, read_row_origins(table, spills.index)))
                for frames in pieces:
                    file.write(frames)
                    tally.shard_bytes(len(frames))
                lengths.append(framed)
                columns.append(table.select([f"index:{column}" for column in job.index]))
        finally:
            spills.close()
        done_path = staging.shard_done_path(shard.split, shard.number)
        return file.complete(job.schema, job.index, np.concatenate(lengths), columns, done_path, origins)


def _trace_rows(job: ConversionJob, rows: RowOrigins | None) -> RowOrigins | None:
    """The origins of rows; those of records are the origins that the records have, if they are known."""
    locate = getattr(job.source, "locate_records", None)
    if rows is None or locate is None:
        return rows
    shards: list[str] = []
    records = rows.position.copy()
    for number, path in enumerate(rows.paths):
        mine = rows.path == number
        shard, records[mine] = locate(os.fsdecode(path), rows.position[mine])
        shards.append(shard)
    return gather_origins(shards, rows.path, records) or rows


def select_index_kind(job: ConversionJob) -> str:
    """Which index file of a part to use: with stratified splits, the one that was sorted afterwards."""
    return "index" if job.splits.stratify is None else "split"


def load_part_index(staging: Staging, part: int, kind: str) -> pa.Table:
    """The index of a part: where its rows are."""
    table = read_part_index(staging.map_path(part, kind), staging.storage)
    if table is None:
        raise SpillLost(part)
    return table


class _SpillReader:
    """The spills that a shard reads from, open while it does."""

    _MOST_OPEN = 64

    def __init__(self, staging: Staging, kind: str) -> None:
        self._staging = staging
        self._kind = kind
        self._files: dict[int, Readable] = {}
        self._indexes: dict[int, pa.Table] = {}
        self._read = _ScratchBuffer()
        self._gathered = _ScratchBuffer()

    def index(self, part: int) -> pa.Table:
        if part not in self._indexes:
            if len(self._indexes) >= self._MOST_OPEN:
                self._indexes.pop(next(iter(self._indexes)))
            self._indexes[part] = load_part_index(self._staging, part, self._kind)
        return self._indexes[part]

    def read(self, part: int, begin: int, end: int) -> memoryview:
        """These bytes of a spill, until the next call."""
        try:
            if part not in self._files:
                if len(self._files) >= self._MOST_OPEN:
                    self._files.pop(next(iter(self._files))).close()
                self._files[part] = self._staging.storage.open_read(self._staging.map_path(part, "spill"))
            file = self._files[part]
            file.seek(begin)
        except DatasetError as failure:
            if failure.code in UNREACHABLE_CODES:
                raise
            raise SpillLost(part) from None
        view = self._read.of(end - begin)
        if fill_buffer(file, view) < len(view):
            raise SpillLost(part)
        return view

    def scratch(self, n_bytes: int) -> memoryview:
        """A buffer of `n_bytes`, valid until the next call."""
        return self._gathered.of(n_bytes)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


class _ScratchBuffer:
    """Reusable memory: fresh pages cost more than what is done with them, and not all freed ones go back to the
    system."""

    def __init__(self) -> None:
        self._memory = bytearray()

    def of(self, n_bytes: int) -> memoryview:
        if len(self._memory) < n_bytes:
            self._memory = bytearray(n_bytes + n_bytes // 4)
        return memoryview(self._memory)[:n_bytes]


def _gather_bucket(
    spills: _SpillReader, bucket: OutputBucket, shard: PlannedShard
) -> tuple[Iterable[Any], Any, pa.Table]:
    """The frames of a bucket that belong to the shard, in order, their lengths and their index rows."""
    slices = find_bucket_slices(bucket, shard.segments, spills.index)
    tables = [
        spills.index(piece.part)
        .slice(piece.first, piece.count)
        .append_column("part", pa.array(np.full(piece.count, piece.part, np.int64)))
        for piece in slices
    ]
    table = pa.concat_tables(tables, promote_options="default")
    if len(slices) > 1:
        # Slices come in reading order, so that rows of the same key keep it.
        order = np.argsort(table["key"].to_numpy(), kind="stable")
        table = table.take(pa.array(order))
    lengths = table["length"].to_numpy()
    first, last = shard.within(bucket, lengths)
    table = table.slice(first, last - first)
    lengths = lengths[first:last]
    return _iter_frames(spills, table, lengths), lengths, table


def _iter_frames(spills: _SpillReader, table: pa.Table, lengths: Any) -> Iterable[Any]:
    """The frames of these rows: verified, in pieces."""
    offsets = table["offset"].to_numpy()
    parts = table["part"].to_numpy()
    # Adjacent rows are read together.
    ends = offsets + lengths
    breaks = np.flatnonzero((offsets[1:] != ends[:-1]) | (parts[1:] != parts[:-1])) + 1
    if "hole" in table.column_names or len(breaks) > len(lengths) // 8:
        in_order = bool(np.all(offsets[1:] >= offsets[:-1])) and len(set(parts.tolist())) < 2
        # Rows in the order of the spill can be read a few at a time, so that they stay in the cache.
        for begin, end in iter_windows(lengths, _WINDOW_BYTES) if in_order else [(0, len(lengths))]:
            yield from _gather_scattered(spills, table.slice(begin, end - begin), lengths[begin:end])
        return
    stretches = [0, *breaks.tolist(), len(lengths)]
    for first, last in pairwise(stretches):
        for begin, end in iter_windows(lengths[first:last], _READ_BYTES):
            at, until = first + begin, first + end
            data = spills.read(int(parts[at]), int(offsets[at]), int(ends[until - 1]))
            yield _verify_frames(data, parts[at:until])


def _gather_scattered(spills: _SpillReader, table: pa.Table, lengths: Any) -> Iterable[Any]:
    """Frames that are scattered, or have holes, gathered so that the bytes between them are not held in memory."""
    offsets = table["offset"].to_numpy()
    parts = table["part"].to_numpy()
    holes = _load_deferred_blobs(table)
    ends = np.cumsum(lengths)
    places = ends - lengths
    held = spills.scratch(int(lengths.sum()))
    for part in np.unique(parts).tolist():
        mine = np.flatnonzero(parts == part)
        mine = mine[np.argsort(offsets[mine], kind="stable")]
        _copy_frames(spills, part, held, offsets[mine], lengths[mine], places[mine], holes.take(mine))
    for begin, end in iter_windows(lengths, _READ_BYTES):
        yield _verify_frames(held[int(places[begin]) : int(ends[end - 1])], parts[begin:end])


def _copy_frames(
    spills: _SpillReader,
    part: int,
    held: memoryview,
    offsets: Any,
    lengths: Any,
    places: Any,
    holes: DeferredBlobs,
) -> None:
    """Copy frames of one spill, in the order of the spill, to their positions in `held`."""
    stored = lengths - holes.n_bytes
    ends = offsets + stored
    # A read ends where the gap before the next frame costs more than another read.
    far = np.append(np.flatnonzero(offsets[1:] - ends[:-1] > _MAX_READ_GAP_BYTES) + 1, len(offsets))
    at = 0
    while at < len(offsets):
        begin = int(offsets[at])
        until = int(np.searchsorted(ends, begin + _READ_BYTES, side="right"))
        until = max(at + 1, min(until, int(far[np.searchsorted(far, at, side="right")])))
        data = spills.read(part, begin, int(ends[until - 1]))
        stretch = slice(at, until)
        for row, offset, length, place in zip(
            range(at, until),
            (offsets[stretch] - begin).tolist(),
            stored[stretch].tolist(),
            places[stretch].tolist(),
            strict=True,
        ):
            path = holes.paths[row]
            if path is None:
                held[place : place + length] = data[offset : offset + length]
                continue
            cut, hole_bytes = int(holes.at[row]), int(holes.n_bytes[row])
            held[place : place + cut] = data[offset : offset + cut]
            behind = place + cut + hole_bytes
            held[behind : behind + length - cut] = data[offset + cut : offset + length]
            if not read_deferred_blob(path, held[place + cut : behind]):
                raise SpillLost(part)
        at = until


def _load_deferred_blobs(table: pa.Table) -> DeferredBlobs:
    """The holes of the frames of some index rows."""
    if "hole" not in table.column_names:
        zeros = np.zeros(len(table), np.int64)
        return DeferredBlobs(zeros, zeros, [None] * len(table))
    at, n_bytes = (table[name].fill_null(0).to_numpy() for name in ("hole_at", "hole_bytes"))
    return DeferredBlobs(at, n_bytes, table["hole"].to_pylist())


def _verify_frames(data: Any, parts: Any) -> Any:
    """Frames with valid checksums; `parts` is the part of each."""
    extents, consumed, _, problem = _core.scan(data, 0, len(data), len(data))
    if problem is not None or consumed != len(data) or len(extents) != len(parts):
        raise SpillLost(int(parts[min(len(extents), len(parts) - 1)]))
    return data


def spill_sequentially(
    job: ConversionJob,
    staging: Staging,
    pool: WorkerPool,
    finished: Sequence[CompletedPart],
    tally: ProgressTally,
    *,
    known_rows: bool,
) -> list[CompletedPart]:
    """Read the source from its beginning; there is at least one part.

    The rows of the `finished` parts are compared with what an earlier run read. If the files of the source are known
    to be the same (`known_rows`), they are only skipped.
    """
    done: list[CompletedPart] = []
    digest = RowDigest()
    ends = list(accumulate(part.rows for part in finished))
    rows = 0
    chunks: Iterator[Chunk] = job.source.rows()  # type: ignore[union-attr]
    if known_rows and finished:
        done, rows, chunks = list(finished), ends[-1], skip_rows(chunks, ends[-1])
    part = _OpenPart()
    writer: SpillWriter | None = None
    try:
        for chunk in _encode_sequence(job, pool, chunks, () if known_rows else ends, tally):
            rows += chunk.rows
            is_compared = len(done) < len(finished)
            if writer is None and not is_compared:
                writer = open_spill_writer(job, staging, len(done), digest)
            for piece in chunk.pieces:
                if writer is None:
                    digest.add(piece)
                else:
                    writer.add(piece)
            part.add(chunk)
            tally.rows(part.rows, part.framed_bytes, part.bad.rejected)
            if is_compared:
                known = finished[len(done)]
                if rows < ends[len(done)]:
                    continue
                if rows > ends[len(done)] or str(digest) != known.digest:
                    raise _source_changed_error(len(done), known)
                done.append(known)
            elif part.framed_bytes >= PART_BYTES:
                assert writer is not None
                done.append(part.finish(staging, len(done), writer, rows))
                writer = None
            else:
                continue
            part = _OpenPart()
            tally.next()
        if len(done) < len(finished):
            raise _source_changed_error(len(done), finished[len(done)])
        if part.rows or writer is not None or not done:
            writer = writer or open_spill_writer(job, staging, len(done), digest)
            done.append(part.finish(staging, len(done), writer, rows))
            writer = None
            tally.next()
    finally:
        if writer is not None:
            writer.discard()
    return done


class _OpenPart:
    """The sums of a part that is not finished."""

    def __init__(self) -> None:
        self.rows = 0
        self.framed_bytes = 0
        self.bad = BadRows("reject")

    def add(self, chunk: EncodedChunk) -> None:
        self.rows += chunk.rows
        self.framed_bytes += chunk.framed_bytes
        self.bad.merge(chunk.bad)

    def finish(self, staging: Staging, number: int, writer: SpillWriter, read_rows: int) -> CompletedPart:
        return finish_part(staging, number, writer, self.rows, self.bad, first_row=read_rows - self.rows)


def compute_rows_digest(job: ConversionJob, pool: WorkerPool) -> str:
    """The digest of all rows of a sequential source."""
    digest = RowDigest()
    for chunk in _encode_sequence(job, pool, job.source.rows(), (), None):  # type: ignore[union-attr]
        for piece in chunk.pieces:
            digest.add(piece)
    return str(digest)


def _encode_sequence(
    job: ConversionJob, pool: WorkerPool, chunks: Iterator[Chunk], breaks: Sequence[int], tally: ProgressTally | None
) -> Iterator[EncodedChunk]:
    """The rows of a sequential source: encoded in all processes if rows are costly, otherwise here."""
    if job.is_costly_per_row:
        cutter = RowCutter(chunks, breaks)
        yield from run_on_rows(pool, EncodeTask(without_source(job)), cutter, sent="layout or map function")
        pool.remark = pool.remark or cutter.problem
        return
    encoding = RowEncoding(job, BadRows(job.on_bad_row))
    before = 0

    def take(*pieces: EncodedRows) -> EncodedChunk:
        nonlocal before
        made = EncodedChunk(list(pieces), encoding.rows - before, encoding.bad)
        before, encoding.bad = encoding.rows, BadRows(job.on_bad_row)
        return made

    pool.processes.add(os.getpid())
    for piece in encoding.pieces(chunks):
        yield take(piece)
    if encoding.rows > before:
        yield take()


def _source_changed_error(part: int, known: CompletedPart) -> RekordError:
    return error(
        "X513",
        location=Location(),
        expected="the rows that were read when the conversion started",
        found=f"different rows in part {part + 1}, which has {known.records:,}",
        do="fresh=True to start over, or provide the rows in the same order",
    )


@dataclass(frozen=True, slots=True)
class _SourceRoot:
    """What workers need to know of a source that they do not read."""

    kind: str
    root: str


def without_source(job: ConversionJob) -> ConversionJob:
    """The job without the rows of its source: a generator could not be sent to workers, and a list need not be."""
    return replace(job, source=_SourceRoot(job.source.kind, getattr(job.source, "root", "")))  # type: ignore[arg-type]


def pickle_job(job: ConversionJob) -> bytes:
    """A job as worker processes receive it, for parts and shards."""
    if not is_partitioned(job.source):
        job = replace(without_source(job), function=None)  # they only write shards
    return pack_task(job, "source, layout or map function")


@lru_cache(maxsize=1)
def _unpickle_job(packed: bytes) -> ConversionJob:
    job: ConversionJob = cloudpickle.loads(packed)
    return job


@lru_cache(maxsize=1)
def _open_tally(folder: str | None) -> ProgressTally:
    return ProgressTally(folder)


def run_in_worker(task: Callable[..., Done], packed: bytes, staging: Staging, *arguments: Any) -> Done:
    """Run a task, `encode_part` or `write_shard`, in a worker process."""
    tally = _open_tally(staging.progress_folder)
    done = task(_unpickle_job(packed), staging, *arguments, tally)
    tally.next()
    return done
