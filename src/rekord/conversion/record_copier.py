"""Records of existing shards, copied as whole frames: where they are, and their index rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import column_to_arrow
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.conversion.spill import fill_buffer, iter_windows
from rekord.dataset.index import CHUNK_RECORDS
from rekord.dataset.readers.pipeline import BatchDecoder
from rekord.dataset.samplers import Ids, Sampler
from rekord.dataset.shard_index import ShardIndex, diagnose_frame, rebuild_index
from rekord.dataset.shards import Shards
from rekord.errors import RekordError
from rekord.schema import Schema
from rekord.storage.local import LENT_BUFFERS, Readable
from rekord.storage.router import ROUTED_STORAGE

_POSITIONS = 1 << 16
_WINDOW_BYTES = 2 << 20
"""Bytes that are read, verified, hashed and written per step."""
_IDLE_BYTES = 16 << 20


@dataclass(frozen=True)
class RecordSequence:
    """Records of some shards, in the order of a sampler."""

    shards: Shards
    sampler: Sampler

    def __len__(self) -> int:
        return self.sampler.size

    @cached_property
    def frames(self) -> FrameExtents:
        """The frame extents of the shards."""
        return FrameExtents(self.shards)

    def pieces(self, begin: int, end: int) -> Iterator[tuple[Ids, Any]]:
        """The ids and framed lengths of the records at positions `begin` to `end`, a piece at a time."""
        for at in range(begin, end, _POSITIONS):
            positions = np.arange(at, min(at + _POSITIONS, end), dtype=np.int64)
            ids = self.sampler.records(0, positions)
            yield ids, self.frames.lengths(ids)


@dataclass(frozen=True)
class RecordRange:
    """Positions of a record sequence from `begin` up to, but not including, `end`."""

    records: RecordSequence
    begin: int
    end: int

    def pieces(self) -> Iterator[tuple[Ids, Any]]:
        return self.records.pieces(self.begin, self.end)


class FrameExtents:
    """Where the frames of some shards begin and end. Safe to share by threads."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self._ends: dict[int, int] = {}

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard."""
        return self._shards.index(shard)

    def lengths(self, ids: Ids) -> Any:
        """The frame lengths of these records, in bytes."""
        shards, records = self._shards.locate(ids)
        used = _find_unique_shards(shards)
        if len(used) == 1:
            begins, ends = self.extents(used[0], records)
            return ends - begins
        out = np.empty(len(ids), np.int64)
        for shard in used:
            mine = shards == shard
            begins, ends = self.extents(shard, records[mine])
            out[mine] = ends - begins
        return out

    def extents(self, shard: int, records: Ids) -> tuple[Any, Any]:
        """Where the frames of some records of a shard begin and end, in its decompressed stream."""
        index = self.index(shard)
        has_last = bool((records == len(index) - 1).any())
        return index.extents(records, self.end(shard) if has_last else 0)

    def end(self, shard: int) -> int:
        """Where the last frame of a shard ends."""
        if shard not in self._ends:
            index = self.index(shard)
            end = index.stamp[0]
            if index.is_sequential_only:
                end = index.stream_bytes or rebuild_index(self._shards.paths[shard]).stream_bytes or 0
            elif index.compression != "none" and len(index):
                last = int(self._shards.starts[shard + 1]) - 1
                gathered = self._shards.gather(np.array([last], np.int64), _core.Pool(0))
                end = int(index.begins(np.array([len(index) - 1]))[0]) + gathered.size_bytes
            self._ends[shard] = end
        return self._ends[shard]


class BufferRing:
    """Buffers to read into; each is reused after `LENT_BUFFERS` more calls of `next`."""

    def __init__(self) -> None:
        self._buffers = [bytearray() for _ in range(LENT_BUFFERS)]
        self._turn = 0

    def next(self, size_bytes: int) -> memoryview:
        """A buffer of `size_bytes`."""
        self._turn = (self._turn + 1) % len(self._buffers)
        if len(self._buffers[self._turn]) < size_bytes:
            self._buffers[self._turn] = bytearray(max(size_bytes, _WINDOW_BYTES + (_WINDOW_BYTES >> 3)))
        return memoryview(self._buffers[self._turn])[:size_bytes]


class RecordCopier:
    """Copies records for one shard; a class for the files that it has open while it does."""

    def __init__(self, records: RecordSequence, schema: Schema, index: Sequence[str], buffers: BufferRing) -> None:
        self._records = records
        self._index = tuple(index)
        self._plan: CodecPlan | None = compile_plan(schema, self._index) if index else None
        self._pool = _core.Pool(_IDLE_BYTES)
        self._buffers = buffers
        self._at: tuple[int, ShardIndex] | None = None
        self._open: tuple[int, Readable] | None = None

    def __enter__(self) -> RecordCopier:
        return self

    def __exit__(self, *failure: Any) -> None:
        if self._open is not None:
            self._open[1].close()

    def windows(self, stretch: RecordRange) -> Iterator[tuple[memoryview, Any, pa.Table]]:
        """Frames, their lengths and their index rows; valid until `LENT_BUFFERS` more have been yielded."""
        for ids, lengths in stretch.pieces():
            lines = self._lines(ids)
            for begin, end in iter_windows(lengths, _WINDOW_BYTES):
                frames = self._frames(ids[begin:end], lengths[begin:end])
                if lines is None:
                    yield frames, lengths[begin:end], self._decoded(ids[begin:end], frames)
                else:
                    yield frames, lengths[begin:end], lines.slice(begin, end - begin)

    def _frames(self, ids: Ids, lengths: Any) -> memoryview:
        shards = self._records.shards
        shard, record = (int(one[0]) for one in shards.locate(ids[:1]))
        in_a_row = int(ids[-1]) < int(shards.starts[shard + 1]) and (
            self._records.sampler.is_file_order or bool((np.diff(ids) == 1).all())
        )
        size_bytes = int(lengths.sum())
        index = self._index_of(shard)
        if in_a_row and index.compression == "none":
            frames = self._read(shard, int(index.begins(np.array([record]))[0]), size_bytes)
        else:
            gathered = shards.gather(ids, self._pool)
            frames = memoryview(gathered.slab.view())[: gathered.size_bytes]
        extents, consumed, _, problem = _core.scan(frames, 0, len(frames), len(frames))
        if problem is not None or consumed != size_bytes or len(extents) != len(ids):
            raise self._damage(int(ids[min(len(extents), len(ids) - 1)]))
        return frames

    def _index_of(self, shard: int) -> ShardIndex:
        """The index of a shard, looked up once for consecutive records of it."""
        if self._at is None or self._at[0] != shard:
            self._at = shard, self._records.frames.index(shard)
        return self._at[1]

    def _read(self, shard: int, begin: int, size_bytes: int) -> memoryview:
        """`size_bytes` of a shard; valid for `LENT_BUFFERS` more calls."""
        if self._open is None or self._open[0] != shard:
            if self._open is not None:
                self._open[1].close()
            self._open = None
            self._records.shards.check_unchanged(shard)
            self._open = shard, ROUTED_STORAGE.open_read(self._records.shards.paths[shard])
        view = self._buffers.next(size_bytes)
        file = self._open[1]
        file.seek(begin)
        return view[: fill_buffer(file, view)]

    def _damage(self, number: int) -> RekordError:
        """The error that reading this record raises."""
        shards = self._records.shards
        shard, record = (int(one[0]) for one in shards.locate(np.array([number], np.int64)))
        index = self._records.frames.index(shard)
        begin = int(index.begins(np.array([record]))[0])
        failure = diagnose_frame(shards.paths[shard], record, begin, index.stamp)
        failure.location = failure.location.within(path=shards.paths[shard])
        return failure

    def _lines(self, ids: Ids) -> pa.Table | None:
        """The index columns of these records, from the indexes of their shards; None if one lacks a column."""
        if self._plan is None:
            return pa.table({})
        shards, records = self._records.shards.locate(ids)
        used = _find_unique_shards(shards)
        indexes = [self._records.frames.index(shard) for shard in used]
        if not all(index.has_columns(self._index) for index in indexes):
            return None
        parts = []
        for shard, index in zip(used, indexes, strict=True):
            mine = records if len(used) == 1 else records[shards == shard]
            parts.append(_take_index_rows(index, self._index, mine))
        together = pa.concat_tables(parts, promote_options="permissive")
        if len(used) > 1:
            back = np.empty(len(ids), np.int64)
            back[np.argsort(shards, kind="stable")] = np.arange(len(ids))
            together = together.take(pa.array(back))
        return together.rename_columns([f"index:{name}" for name in self._index])

    def _decoded(self, ids: Ids, frames: memoryview) -> pa.Table:
        """The index columns, decoded from the records, which may not match the schema."""
        assert self._plan is not None
        slab = self._pool.slab(len(frames))
        slab.view()[: len(frames)] = frames
        batch = new_batch(self._plan, self._pool)
        _, _, _, refused = batch.feed(slab, 0, len(frames), len(frames), len(ids))
        columns = None
        if refused is None:
            with suppress(RekordError):
                columns = assemble_columns(self._plan, batch.take(), len(ids))
        if columns is None:
            # Again, with a decoder that knows the offset of each record, for the location of the error.
            gathered = self._records.shards.gather(ids, self._pool)
            columns = BatchDecoder(self._plan, self._pool).decode(gathered)
        return pa.table({f"index:{name}": column_to_arrow(column) for name, column in columns.items()})


def _find_unique_shards(shards: Ids) -> list[int]:
    """The shard numbers that occur, in order: they are few, so counting beats `np.unique`."""
    found: list[int] = np.flatnonzero(np.bincount(shards)).tolist()
    return found


def _take_index_rows(index: ShardIndex, names: Sequence[str], numbers: Ids) -> pa.Table:
    """Rows of an index; a zero-copy slice if they are consecutive."""
    chunks = numbers // CHUNK_RECORDS
    used = _find_unique_shards(chunks)
    table = pa.Table.from_batches([index.columns(number, names) for number in used])
    # Their rows in the concatenated table: every chunk but the last is full.
    places = np.searchsorted(np.array(used), chunks) * CHUNK_RECORDS + numbers % CHUNK_RECORDS
    if bool((np.diff(places) == 1).all()):
        return table.slice(int(places[0]), len(places))
    return table.take(pa.array(places))
