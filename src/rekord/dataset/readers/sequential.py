"""The frames of record files in file order, batch after batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rekord import _core
from rekord.codec.columns import Batch
from rekord.dataset.read import next_frames, open_frames, open_slabs
from rekord.dataset.readers.pipeline import BatchDecoder, IdlePool
from rekord.dataset.shards import Shards
from rekord.errors import RekordError
from rekord.framing.frames import FrameSegment, SlabReader
from rekord.location import Location
from rekord.storage.local import LOCAL
from rekord.storage.router import is_remote

_MAX_BATCHES_PER_TASK = 4
_TASK_BYTES = 2 << 20
"""Waking a thread costs as much as decoding some hundred records, so it gets several small batches at a time."""


_SMALL_BATCH_BYTES = 256 << 10
"""A batch of at most this size is decoded in about 0.1 ms. Handing it over from another thread, with its columns in
the cache of another core, costs as much (docs/decisions/0038)."""


class FileSegment(NamedTuple):
    """Frames of one file that belong to one batch."""

    path: str
    segment: FrameSegment

    @property
    def slab(self) -> _core.Slab:
        return self.segment.slab

    @property
    def begin(self) -> int:
        return self.segment.begin

    @property
    def end(self) -> int:
        return self.segment.end

    @property
    def frames(self) -> int:
        return self.segment.frames

    def where(self, frame: int, at: int | None = None) -> Location:
        """The record number of a frame."""
        record = self.segment.first_record + frame
        offset = _find_frame_offset(self.path, record, self.segment) if at is None else self.segment.offset + at
        return Location(path=self.path, record=record, offset=offset)


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


@dataclass(slots=True)
class DecodeJob:
    """All frames of one batch, the number of records before them, and the failure after them that ends reading."""

    pieces: Iterable[FileSegment]
    consumed: int
    failure: RekordError | None = None


class _FileSequence:
    """The frames of many files, one after another."""

    def __init__(self, shards: Shards, pool: _core.Pool, *, reuse: bool, begin: tuple[int, int], end: int) -> None:
        self._shards = shards
        self._next, self._skip = begin
        self._end_shard = end
        self._pool = pool
        self._reuse = reuse
        self._reader: SlabReader | None = None
        self._is_closed = False

    def next(self, most_frames: int) -> FileSegment | None:
        while True:
            if self._reader is None:
                if self._is_closed or self._next >= self._end_shard:
                    return None
                self._shards.check_unchanged(self._next)
                place = self._shards.place(self._next)
                if self._shards.cache is not None:
                    ahead = self._next + 1 + self._shards.cache.ahead
                    self._shards.fetch_ahead(range(self._next + 1, min(ahead, self._end_shard)))
                self._reader = open_slabs(place, self._pool, reuse=self._reuse)
                self._next += 1
            segment = next_frames(self._reader, self._skip or most_frames)
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


class SequentialFrames:
    """The frames of batch after batch of all files in order, starting at a position; or those of one shard.

    With `inline`, for a caller that decodes on its own thread, frames are read while they are decoded, so that the
    buffers of a file are reused. Otherwise they are read ahead by one thread at a time.
    """

    def __init__(
        self,
        shards: Shards,
        pool: _core.Pool,
        batch_size: int,
        *,
        inline: bool,
        consumed: int = 0,
        shard: int | None = None,
    ) -> None:
        begin, end = _place_of(shards, consumed), len(shards.paths)
        if shard is not None:
            begin, end = (shard, 0), shard + 1
        self._files = _FileSequence(shards, pool, reuse=inline, begin=begin, end=end)
        self._batch_size = batch_size
        self._inline = inline
        self._consumed = consumed
        self._ended = False

    def take(self) -> list[DecodeJob] | None:
        """The next batch, or a few if they are small and read ahead; None at the end."""
        if self._ended:
            return None
        if self._inline:
            return [self._job()]
        jobs: list[DecodeJob] = []
        n_bytes = 0
        while not self._ended and len(jobs) < _MAX_BATCHES_PER_TASK and n_bytes < _TASK_BYTES:
            job = self._job()
            jobs.append(job)
            pieces: list[FileSegment] = []
            try:
                pieces.extend(job.pieces)
            except RekordError as failure:
                job.failure = failure
            job.pieces = pieces
            n_bytes += sum(piece.end - piece.begin for piece in pieces)
        return jobs

    def close(self) -> None:
        """Close the open file."""
        self._files.close()

    def _job(self) -> DecodeJob:
        consumed = self._consumed
        self._consumed += self._batch_size
        return DecodeJob(self._pieces(), consumed)

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
            rows += piece.frames
            yield piece


def decode_jobs(
    jobs: list[DecodeJob], decoders: IdlePool[BatchDecoder], least_rows: int
) -> Iterator[tuple[Batch, int]]:
    """The batches of jobs that have as many rows, each with the number of records delivered after it.

    A failure comes after the rows before it.
    """
    with decoders.borrow() as decoder:
        for job in jobs:
            failure = job.failure
            try:
                for piece in job.pieces:
                    decoder.add(piece)
            except RekordError as met:
                failure = met
            batch, rows, earlier = decoder.take()
            failure = earlier or failure
            if batch is not None and rows >= least_rows:
                yield batch, job.consumed + rows
            if failure is not None:
                raise failure


def starts_with_small_batch(shards: Shards, batch_size: int, pool: _core.Pool) -> bool:
    """Whether the first batch is small, and in a local file that is not compressed: reading it takes no time."""
    path = shards.paths[0] if shards.paths else ""
    try:
        if not path or is_remote(path) or LOCAL.stat(path).kind != "file":
            return False  # a pipe can be read only once
        with open_slabs(path, pool, reuse=True) as reader:
            first = reader.next(batch_size) if reader.compression == "none" else None
    except RekordError:
        return False  # raised again when the batch is read
    return first is not None and first.frames == batch_size and first.end - first.begin <= _SMALL_BATCH_BYTES


def _place_of(shards: Shards, record: int) -> tuple[int, int]:
    """The shard that holds a record, and the number of its records before it."""
    if not record or not shards.counted:
        return 0, record
    shard = int(np.searchsorted(shards.starts[1:], record, side="right"))
    return shard, record - int(shards.starts[shard])
