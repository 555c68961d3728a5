"""Record files to decoded batches, in file order: on this thread, or on several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from rekord import _core
from rekord.codec.columns import Column
from rekord.codec.decode import assemble, cut_to, new_batch, row_error
from rekord.codec.plan import CodecPlan
from rekord.dataset.background import OrderedWork
from rekord.dataset.read import explain, open_frames, open_slabs
from rekord.dataset.shards import Shards
from rekord.errors import RekordError
from rekord.faults import frame_error
from rekord.framing.frames import Segment, SlabReader, payload_at
from rekord.location import Location

Made = TypeVar("Made")
Pictures: TypeAlias = "Callable[[dict[str, Column]], dict[str, Column]] | None"
"""What decodes the pictures of a batch. It may refuse a row, unlike what comes `after`."""

Taken: TypeAlias = "tuple[dict[str, Column], int]"
"""A batch, and how many rows it has: where no columns are asked for they do not say it."""

After: TypeAlias = Callable[[dict[str, Column], int], Made]
Begin: TypeAlias = "tuple[int, int]"
"""The first shard that is read, and how many of its records are hopped over."""

FRONT: Begin = (0, 0)
THREADS = "rekord-decode"
"""What the names of threads that decode begin with."""

_IDLE_BYTES = 256 << 20


def new_pool() -> _core.Pool:
    """The buffers of one iteration. Tests put another in its place."""
    return _core.Pool(_IDLE_BYTES)


_MOST_THREADS = 256
_MOST_PREFETCH = 4096
_MOST_BATCHES_AT_ONCE = 4
_AT_ONCE_BYTES = 2 << 20
"""Waking a thread costs as much as decoding some hundred records, so small batches go several at a time."""


class Piece(NamedTuple):
    """Frames of one file that go into one batch."""

    path: str
    segment: Segment


@dataclass(slots=True)
class Job:
    """All frames of one batch, or the failure that ends the files."""

    pieces: list[Piece]
    failure: RekordError | None = None


class _Files:
    """The frames of many files, one after another."""

    def __init__(self, shards: Shards, pool: _core.Pool, *, reuse: bool, begin: Begin) -> None:
        self._shards = shards
        self._next, self._skip = begin
        self._pool = pool
        self._reuse = reuse
        self._reader: SlabReader | None = None
        self._is_closed = False

    def next(self, most_frames: int) -> Piece | None:
        while True:
            if self._reader is None:
                if self._is_closed or self._next >= len(self._shards.paths):
                    return None
                self._shards.check_unchanged(self._next)
                self._reader = open_slabs(self._shards.paths[self._next], self._pool, reuse=self._reuse)
                self._next += 1
            try:
                segment = self._reader.next(self._skip or most_frames)
            except RekordError as failure:
                raise self._explained(self._reader, failure) from None
            if segment is not None and self._skip:
                self._skip -= segment.frames
            elif segment is not None:
                return Piece(self._reader.path, segment)
            else:
                self._reader.close()
                records, self._reader = self._reader.record, None
                self._shards.check_read(self._next - 1, records)

    def close(self) -> None:
        self._is_closed = True
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @staticmethod
    def _explained(reader: SlabReader, failure: RekordError) -> RekordError:
        failure.location = failure.location.within(
            path=reader.path, record=reader.record, offset=reader.offset
        )
        return _explained(failure)


class _Decoder:
    """Fills one batch from pieces."""

    def __init__(self, plan: CodecPlan, pool: _core.Pool, pictures: Pictures) -> None:
        self._plan = plan
        self._pictures = pictures
        self._batch = new_batch(plan, pool)
        self._pieces: list[tuple[int, Piece]] = []  # with the first row of each

    @property
    def rows(self) -> int:
        return self._batch.rows

    def add(self, piece: Piece) -> None:
        """Verify and decode the frames of a piece. On a failure the rows before it stay."""
        segment = piece.segment
        before = self._batch.rows
        self._pieces.append((before, piece))
        size = segment.end - segment.begin
        consumed, _, frame, row = self._batch.feed(
            segment.slab, segment.begin, segment.end, size, before + segment.frames
        )
        if frame is None and row is None:
            return
        where = Location(
            path=piece.path,
            record=segment.first_record + self._batch.rows - before,
            offset=segment.offset + consumed,
        )
        raise self._failure(where, frame, row, segment, consumed)

    def take(self) -> tuple[list[Taken], RekordError | None]:
        """The batch so far, if it has rows, and what is wrong with the row after it; then begin another."""
        rows, pieces = self._batch.rows, self._pieces
        self._pieces = []
        taken = self._batch.take()
        failure = None
        while rows:
            try:
                batch = assemble(self._plan, taken, rows)
                return [(batch if self._pictures is None else self._pictures(batch), rows)], failure
            except RekordError as met:
                if met.location.row is None:
                    raise
                # The rows before it come first; another column may have found an earlier one.
                rows = met.location.row
                taken = cut_to(self._plan, taken, rows)
                failure = _located_row(met, rows, pieces)
        return [], failure

    def _failure(
        self,
        where: Location,
        frame: _core.Problem | None,
        row: tuple[_core.Problem, int] | None,
        segment: Segment,
        consumed: int,
    ) -> RekordError:
        if row is None:
            assert frame is not None
            failure = frame_error(frame, record=where.record or 0, offset=where.offset or 0)
            failure.location = where
            return _explained(failure)
        payload = payload_at(segment.slab, segment.begin + consumed)
        failure = row_error(self._plan, *row, payload)
        failure.location = failure.location.within(path=where.path, record=where.record, offset=where.offset)
        return failure


def _explained(failure: RekordError) -> RekordError:
    """With what a second look at the file adds, if it can still be looked at."""
    try:
        return explain(failure)
    except RekordError:
        return failure


def _located_row(failure: RekordError, row: int, pieces: list[tuple[int, Piece]]) -> RekordError:
    """A failure of a row in the batch, with the record that it was."""
    first, piece = next(item for item in reversed(pieces) if item[0] <= row)
    segment = piece.segment
    record = segment.first_record + row - first
    failure.location = Location(
        path=piece.path,
        record=record,
        offset=_offset_of(piece.path, record, segment),
        feature=failure.location.feature,
    )
    return failure


def _offset_of(path: str, record: int, segment: Segment) -> int | None:
    """Where the frame of a record begins: read again, since its slab may hold other bytes by now."""
    try:
        with open_frames(path) as reader:
            reader.start_at(offset=segment.offset, record=segment.first_record)
            for stretch in reader.stretches():
                if record < stretch.first_record + len(stretch.extents):
                    return stretch.offset(record - stretch.first_record)
    except RekordError:
        pass  # the file has changed since; the record's number is still right
    return None


class InlineBatches(Generic[Made]):
    """What `after` makes of each batch, read and decoded by the caller's thread when it asks for it."""

    def __init__(
        self,
        shards: Shards,
        plan: CodecPlan,
        batch_size: int,
        *,
        after: After[Made],
        pictures: Pictures = None,
        begin: Begin = FRONT,
    ) -> None:
        pool = new_pool()
        self._files = _Files(shards, pool, reuse=True, begin=begin)
        self._decoder = _Decoder(plan, pool, pictures)
        self._batch_size = batch_size
        self._after = after
        self._failure: RekordError | None = None
        self._ended = False

    def __next__(self) -> Made:
        if not self._ended:
            ready = self._next()
            if ready:
                return self._after(*ready.pop())
        if self._failure is not None:
            raise self._failure
        raise StopIteration

    def close(self) -> None:
        """Close the file."""
        self._ended = True
        self._files.close()

    def _next(self) -> list[Taken]:
        """The next batch. Everything before damage comes before the failure is raised."""
        while True:
            piece = None
            try:
                piece = self._files.next(self._batch_size - self._decoder.rows)
                if piece is not None:
                    self._decoder.add(piece)
            except RekordError as met:
                self._failure = met
            if self._failure is not None or piece is None or self._decoder.rows == self._batch_size:
                ready, earlier = self._decoder.take()
                self._failure = earlier or self._failure
                self._ended = self._failure is not None or piece is None
                return ready


class ThreadedBatches(Generic[Made]):
    """The same, read, decoded and made ahead of the caller.

    One thread at a time reads the frames of the next batch; verifying and decoding, which is most of the work,
    goes on side by side.
    """

    def __init__(
        self,
        shards: Shards,
        plan: CodecPlan,
        batch_size: int,
        *,
        after: After[Made],
        pictures: Pictures = None,
        threads: int,
        prefetch: int,
        begin: Begin = FRONT,
    ) -> None:
        pool = new_pool()
        files = _Files(shards, pool, reuse=False, begin=begin)
        idle: list[_Decoder] = []

        def decode(jobs: list[Job]) -> deque[Made | BaseException]:
            try:
                decoder = idle.pop()
            except IndexError:
                decoder = _Decoder(plan, pool, pictures)
            decoded = [result for job in jobs for result in _decode_job(decoder, job)]
            # Not after a failure of ours, such as a lack of memory: it may hold half a batch.
            idle.append(decoder)
            made: deque[Made | BaseException] = deque()
            for result in decoded:
                try:
                    made.append(result if isinstance(result, RekordError) else after(*result))
                except BaseException as failure:  # raised after the batches before it are delivered
                    made.append(failure)
                    break
            return made

        count, ahead = sensible(threads, prefetch)
        self._work: OrderedWork[list[Job], deque[Made | BaseException]] = OrderedWork(
            _Jobs(files, batch_size).take,
            decode,
            threads=count,
            ahead=ahead,
            name=THREADS,
            on_end=files.close,
        )
        self._ready: deque[Any] = deque()

    def __next__(self) -> Made:
        while not self._ready:
            self._ready = next(self._work)
        result = self._ready.popleft()
        if isinstance(result, BaseException):
            raise result
        made: Made = result
        return made

    def close(self) -> None:
        """End the threads, and wait for them."""
        self._ready.clear()
        self._work.close()


def sensible(threads: int, prefetch: int) -> tuple[int, int]:
    """How many threads there are for these numbers, and how many pieces of work are begun ahead of who takes them.

    Beyond a few hundred threads and a few thousand batches more change nothing but the memory that they take.
    """
    threads = min(threads, _MOST_THREADS)
    return threads, threads + min(prefetch, _MOST_PREFETCH)


def _decode_job(decoder: _Decoder, job: Job) -> list[Taken | RekordError]:
    """The batch of a job; nothing at the end; a failure after what came before it."""
    failure = job.failure
    for piece in job.pieces:
        try:
            decoder.add(piece)
        except RekordError as met:
            failure = met
            break
    ready, earlier = decoder.take()
    failure = earlier or failure
    return [*ready, failure] if failure is not None else [*ready]


class _Jobs:
    """The frames of batch after batch, in order, for one thread at a time."""

    def __init__(self, files: _Files, batch_size: int) -> None:
        self._files = files
        self._batch_size = batch_size
        self._ended = False

    def take(self) -> list[Job] | None:
        """The next batch, or a few where they are small; None at the end."""
        jobs: list[Job] = []
        n_bytes = 0
        while not self._ended and len(jobs) < _MOST_BATCHES_AT_ONCE and n_bytes < _AT_ONCE_BYTES:
            jobs.append(self._next())
            n_bytes += sum(piece.segment.end - piece.segment.begin for piece in jobs[-1].pieces)
        return jobs or None

    def _next(self) -> Job:
        job = Job([])
        rows = 0
        try:
            while rows < self._batch_size:
                piece = self._files.next(self._batch_size - rows)
                if piece is None:
                    self._ended = True
                    break
                job.pieces.append(piece)
                rows += piece.segment.frames
        except RekordError as failure:
            job.failure = failure
            self._ended = True
        return job
