"""Record files to decoded batches, in file order: on this thread, or on several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.columns import Column
from rekord.codec.decode import assemble_columns, new_batch, truncate_rows
from rekord.codec.plan import CodecPlan
from rekord.dataset.background import IdlePool, is_inline, ordered_work
from rekord.dataset.read import decode_error, explained, open_frames, open_slabs
from rekord.dataset.shards import Shards
from rekord.errors import RekordError
from rekord.framing.frames import FrameSegment, SlabReader
from rekord.location import Location

ImageDecoder: TypeAlias = "Callable[[dict[str, Column]], dict[str, Column]] | None"
"""What decodes the images of a batch. It may refuse a row, unlike what finishes it."""

DecodedRows: TypeAlias = "tuple[dict[str, Column], int]"
"""A batch, and how many rows it has: where no columns are asked for they do not say it."""

THREAD_NAME = "rekord-decode"
"""What the names of threads that decode begin with."""

_IDLE_BYTES = 256 << 20


def new_pool() -> _core.Pool:
    """The buffers of one iteration. Tests put another in its place."""
    return _core.Pool(_IDLE_BYTES)


_MAX_BATCHES_PER_TASK = 4
_TASK_BYTES = 2 << 20
"""Waking a thread costs as much as decoding some hundred records, so small batches go several at a time."""


class FileSegment(NamedTuple):
    """Frames of one file that go into one batch."""

    path: str
    segment: FrameSegment


@dataclass(slots=True)
class DecodeJob:
    """All frames of one batch, and the failure after them that ends the files."""

    pieces: Iterable[FileSegment]
    failure: RekordError | None = None


class _FileSequence:
    """The frames of many files, one after another."""

    def __init__(self, shards: Shards, pool: _core.Pool, *, reuse: bool, begin: tuple[int, int]) -> None:
        self._shards = shards
        self._next, self._skip = begin
        self._pool = pool
        self._reuse = reuse
        self._reader: SlabReader | None = None
        self._is_closed = False

    def next(self, most_frames: int) -> FileSegment | None:
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
                failure.location = failure.location.within(
                    path=self._reader.path, record=self._reader.record, offset=self._reader.offset
                )
                raise explained(failure) from None
            if segment is not None and self._skip:
                self._skip -= segment.frames
            elif segment is not None:
                return FileSegment(self._reader.path, segment)
            else:
                self._reader.close()
                records, self._reader = self._reader.record, None
                self._shards.check_after_read(self._next - 1, records)

    def close(self) -> None:
        self._is_closed = True
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _BatchDecoder:
    """Fills one batch from pieces."""

    def __init__(self, plan: CodecPlan, pool: _core.Pool, images: ImageDecoder) -> None:
        self._plan = plan
        self._image_decoder = images
        self._batch = new_batch(plan, pool)
        self._pieces: list[tuple[int, FileSegment]] = []  # with the first row of each

    def add(self, piece: FileSegment) -> None:
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
        raise decode_error(self._plan, where, frame, row, segment.slab, segment.begin + consumed)

    def take(self) -> tuple[list[DecodedRows], RekordError | None]:
        """The batch so far, if it has rows, and what is wrong with the row after it; then begin another."""
        rows, pieces = self._batch.rows, self._pieces
        self._pieces = []
        taken = self._batch.take()
        failure = None
        while rows:
            try:
                batch = assemble_columns(self._plan, taken, rows)
                return [(batch if self._image_decoder is None else self._image_decoder(batch), rows)], failure
            except RekordError as met:
                if met.location.row is None:
                    raise
                # The rows before it come first; another column may have found an earlier one.
                rows = met.location.row
                taken = truncate_rows(self._plan, taken, rows)
                failure = _locate_row_error(met, rows, pieces)
        return [], failure


def _locate_row_error(failure: RekordError, row: int, pieces: list[tuple[int, FileSegment]]) -> RekordError:
    """A failure of a row in the batch, with the record that it was."""
    first, piece = next(item for item in reversed(pieces) if item[0] <= row)
    segment = piece.segment
    record = segment.first_record + row - first
    failure.location = Location(
        path=piece.path,
        record=record,
        offset=_find_frame_offset(piece.path, record, segment),
        feature=failure.location.feature,
    )
    return failure


def _find_frame_offset(path: str, record: int, segment: FrameSegment) -> int | None:
    """Where the frame of a record begins: read again, since its slab may hold other bytes by now."""
    try:
        with open_frames(path) as reader:
            reader.start_at(offset=segment.offset, record=segment.first_record)
            for stretch in reader.iter_verified_frames():
                if record < stretch.first_record + len(stretch.extents):
                    return stretch.offset(record - stretch.first_record)
    except RekordError:
        pass  # the file has changed since; the record's number is still right
    return None


class SequentialBatches:
    """Finished batches of all files in order, and how many records are delivered with each.

    In the background, one thread at a time reads the frames of the next batch; verifying and decoding, which is most
    of the work, run side by side. On the caller's thread frames are decoded as they are read, so that buffers of a
    file are used again.
    """

    def __init__(
        self,
        shards: Shards,
        plan: CodecPlan,
        batch_size: int,
        *,
        finish: Callable[[dict[str, Column]], dict[str, Column]] | None,
        images: ImageDecoder,
        threads: int,
        prefetch: int,
        consumed: int,
        drop_remainder: bool,
    ) -> None:
        pool, inline = new_pool(), is_inline(threads, prefetch)
        files = _FileSequence(shards, pool, reuse=inline, begin=_place_of(shards, consumed))
        jobs = _DecodeJobQueue(files, batch_size)
        decoders = IdlePool(lambda: _BatchDecoder(plan, pool, images))

        def decode(taken: list[DecodeJob]) -> deque[DecodedRows | BaseException]:
            with decoders.write_borrowed() as decoder:
                decoded = [result for job in taken for result in _decode_job(decoder, job)]
            made: deque[DecodedRows | BaseException] = deque()
            for result in decoded:
                if finish is None or isinstance(result, RekordError):
                    made.append(result)
                    continue
                try:
                    made.append((finish(result[0]), result[1]))
                except BaseException as failure:  # raised after the batches before it are delivered
                    made.append(failure)
                    break
            return made

        self._work = ordered_work(
            jobs.take_one if inline else jobs.take,
            decode,
            threads=threads,
            prefetch=prefetch,
            name=THREAD_NAME,
            on_end=files.close,
        )
        self._ready: deque[DecodedRows | BaseException] = deque()
        self._least_rows = batch_size if drop_remainder else 0
        self._consumed = consumed

    def __next__(self) -> DecodedRows:
        while not self._ready:
            self._ready = next(self._work)
        result = self._ready.popleft()
        if isinstance(result, BaseException):
            raise result
        batch, rows = result
        if rows < self._least_rows:
            raise StopIteration
        self._consumed += rows
        return batch, self._consumed

    def close(self) -> None:
        """End the threads, wait for them, and close the file."""
        self._ready.clear()
        self._work.close()


def _place_of(shards: Shards, record: int) -> tuple[int, int]:
    """The shard that holds a record, and how many of its records come before it."""
    if not record or not shards.counted:
        return 0, record
    shard = int(np.searchsorted(shards.starts[1:], record, side="right"))
    return shard, record - int(shards.starts[shard])


def _decode_job(decoder: _BatchDecoder, job: DecodeJob) -> list[DecodedRows | RekordError]:
    """The batch of a job; nothing at the end; a failure after what came before it."""
    try:
        for piece in job.pieces:
            decoder.add(piece)
        failure = job.failure
    except RekordError as met:
        failure = met
    ready, earlier = decoder.take()
    failure = earlier or failure
    return [*ready, failure] if failure is not None else [*ready]


class _DecodeJobQueue:
    """The frames of batch after batch, in order, for one thread at a time."""

    def __init__(self, files: _FileSequence, batch_size: int) -> None:
        self._files = files
        self._batch_size = batch_size
        self._ended = False

    def take(self) -> list[DecodeJob] | None:
        """The next batch, or a few where they are small; None at the end."""
        jobs: list[DecodeJob] = []
        n_bytes = 0
        while not self._ended and len(jobs) < _MAX_BATCHES_PER_TASK and n_bytes < _TASK_BYTES:
            pieces: list[FileSegment] = []
            jobs.append(DecodeJob(pieces))
            try:
                pieces.extend(self._pieces())
            except RekordError as failure:
                jobs[-1].failure = failure
            n_bytes += sum(piece.segment.end - piece.segment.begin for piece in pieces)
        return jobs or None

    def take_one(self) -> list[DecodeJob] | None:
        """The next batch, whose frames are read while they are decoded; None at the end."""
        return None if self._ended else [DecodeJob(self._pieces())]

    def _pieces(self) -> Iterator[FileSegment]:
        rows = 0
        while rows < self._batch_size:
            try:
                piece = self._files.next(self._batch_size - rows)
            except RekordError:
                self._ended = True
                raise
            if piece is None:
                self._ended = True
                return
            rows += piece.segment.frames
            yield piece
