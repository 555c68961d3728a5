"""Which records each shard of a split gets, and the file that they go to."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from rekord.conversion.plan import ShardingRule
from rekord.conversion.spill import RUN_BYTES, CompletedPart
from rekord.conversion.splits import HASH_BITS
from rekord.dataset.index import METADATA_FOLDER, Count, encode_index_file
from rekord.dataset.origins import OriginRuns, origins_path
from rekord.framing.deflate import DeflateSink
from rekord.schema import Schema
from rekord.storage.local import AsyncWriter
from rekord.storage.portability import TRIM_THRESHOLD_BYTES, trim_heap
from rekord.storage.transaction import Staging

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer


@dataclass(frozen=True, slots=True)
class RowSlice:
    """Consecutive rows of the index of a part."""

    part: int
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputBucket:
    """A stretch of a split's output."""

    start_byte: int
    start_record: int
    framed_bytes: int
    records: int
    slices: tuple[RowSlice, ...] = ()  # unshuffled: one slice
    keys: tuple[int, int] | None = None  # shuffled: first key, and first key after it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedShard:
    """A file to be written."""

    split: str
    number: int
    shards: int
    begin: int  # its first byte or record
    end: int
    by_records: bool
    buckets: tuple[OutputBucket, ...]  # that hold its rows
    segments: tuple[RowSlice, ...]  # shuffled: where the rows of the split are

    def within(self, bucket: OutputBucket, lengths: Any) -> tuple[int, int]:
        """Which rows of a bucket belong to this shard, given their frame lengths."""
        if self.by_records:
            starts = bucket.start_record + np.arange(len(lengths))
        else:
            starts = bucket.start_byte + np.cumsum(lengths) - lengths
        first, last = np.searchsorted(starts, [self.begin, self.end])
        return int(first), int(last)


def plan_split_shards(
    name: str,
    number: int,
    parts: Sequence[CompletedPart],
    rule: ShardingRule,
    *,
    shuffled: bool,
    index_of: Callable[[int], pa.Table],
) -> list[PlannedShard]:
    """The shards of one split."""
    segments = [
        (RowSlice(part, segment.first, segment.count), segment.framed_bytes)
        for part, done in enumerate(parts)
        for segment in done.segments
        if segment.split == number
    ]
    framed_bytes = sum(n_bytes for _, n_bytes in segments)
    records = sum(piece.count for piece, _ in segments)
    if shuffled:
        buckets = _build_key_buckets([piece for piece, _ in segments], framed_bytes, index_of)
    else:
        buckets = _build_segment_buckets(segments)
    shards = rule.count(framed_bytes, records)
    by_records = rule.shards is not None
    whole = records if by_records else framed_bytes
    edges = [-(-m * whole // shards) for m in range(shards + 1)]
    everywhere = (
        tuple([piece for piece, _ in segments]) if shuffled else ()
    )  # shared: there may be many segments and shards
    starts = np.array([bucket.start_record if by_records else bucket.start_byte for bucket in buckets])
    ends = starts + np.array([bucket.records if by_records else bucket.framed_bytes for bucket in buckets])
    firsts = np.searchsorted(ends, edges[:-1], side="right").tolist()
    lasts = np.searchsorted(starts, edges[1:]).tolist()
    return [
        PlannedShard(
            split=name,
            number=m,
            shards=shards,
            begin=edges[m],
            end=edges[m + 1],
            by_records=by_records,
            buckets=tuple([bucket for bucket in buckets[firsts[m] : lasts[m]] if bucket.records]),
            segments=everywhere,
        )
        for m in range(shards)
    ]


def _build_segment_buckets(segments: Sequence[tuple[RowSlice, int]]) -> list[OutputBucket]:
    buckets = []
    start_byte = start_record = 0
    for piece, framed_bytes in segments:
        buckets.append(
            OutputBucket(
                start_byte=start_byte,
                start_record=start_record,
                framed_bytes=framed_bytes,
                records=piece.count,
                slices=(piece,),
            )
        )
        start_byte += framed_bytes
        start_record += piece.count
    return buckets


def _build_key_buckets(
    segments: Sequence[RowSlice], framed_bytes: int, index_of: Callable[[int], pa.Table]
) -> list[OutputBucket]:
    bits = max(0, (framed_bytes // RUN_BYTES).bit_length())
    edges = [i << (HASH_BITS - bits) for i in range(1 << bits)] + [1 << HASH_BITS]
    inner = np.array(edges[1:-1], np.uint64)
    bucket_bytes = np.zeros(len(edges) - 1, np.int64)
    bucket_records = np.zeros(len(edges) - 1, np.int64)
    for piece in segments:
        table = index_of(piece.part).slice(piece.first, piece.count)
        cuts = np.concatenate([[0], np.searchsorted(table["key"].to_numpy(), inner), [piece.count]])
        so_far = np.concatenate([[0], np.cumsum(table["length"].to_numpy())])
        bucket_records += np.diff(cuts)
        bucket_bytes += np.diff(so_far[cuts])
    starts = np.cumsum(bucket_bytes) - bucket_bytes
    records = np.cumsum(bucket_records) - bucket_records
    return [
        OutputBucket(
            start_byte=int(starts[i]),
            start_record=int(records[i]),
            framed_bytes=int(bucket_bytes[i]),
            records=int(bucket_records[i]),
            keys=(edges[i], edges[i + 1]),
        )
        for i in range(len(edges) - 1)
    ]


def find_bucket_slices(
    bucket: OutputBucket, segments: Sequence[RowSlice], index_of: Callable[[int], pa.Table]
) -> list[RowSlice]:
    """The index slices with the rows of a bucket."""
    if bucket.keys is None:
        return list(bucket.slices)
    low, high = bucket.keys
    found = []
    for piece in segments:
        keys = index_of(piece.part).slice(piece.first, piece.count)["key"].to_numpy()
        first = int(np.searchsorted(keys, np.uint64(low)))
        last = piece.count if high > np.iinfo(np.uint64).max else int(np.searchsorted(keys, np.uint64(high)))
        if last > first:
            found.append(RowSlice(piece.part, piece.first + first, last - first))
    return found


class CompletedShard(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a finished shard."""

    records: Count
    framed_bytes: Count
    file_bytes: Count
    digest: str  # algorithm:hex
    index: list[Count]  # the checksums of the index
    classes: dict[str, dict[str, Count]]  # of each Label column: records by class id
    blocks: list[tuple[Count, Count]]  # [record, offset] of some records, for readers that begin in the middle


class StagedShard:
    """A shard being written, in a `with` block: without `complete` the file is discarded."""

    def __init__(self, staging: Staging, name: str, compression: str) -> None:
        self._staging = staging
        self._name = name
        self._file = staging.create(os.path.join(staging.out, name), sync=True)
        self._output = AsyncWriter(self._file, hashed=True)
        self._deflate = None if compression == "none" else DeflateSink(self._output.write, compression)
        self._complete = False

    def __enter__(self) -> StagedShard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._output.__exit__(kind, failure, trace)
        if not self._complete:
            # An incomplete file is useless, and the disk may be full.
            self._file.abort()

    def write(self, frames: Buffer) -> None:
        """Write whole frames; the buffer may be reused afterwards."""
        (self._deflate or self._output).write(frames)

    def write_borrowed(self, frames: Buffer) -> None:
        """Write whole frames without a copy; the buffer must not change until `LENT_BUFFERS` more writes."""
        if self._deflate is None:
            self._output.write_borrowed(frames)
        else:
            self._deflate.write(frames)

    def complete(
        self,
        schema: Schema,
        index: Sequence[str],
        lengths: Any,
        tables: Sequence[pa.Table],
        done_path: str,
        origins: OriginRuns | None = None,
    ) -> CompletedShard:
        """Commit the file, its index and its origins, if they are known; `lengths` are the frame lengths.

        `tables` have a column `index:<name>` per index column, and one row per record.
        """
        if self._deflate is not None:
            self._deflate.finish()
        self._output.finish()
        offsets = np.cumsum(lengths) - lengths
        digest = self._output.digest
        flush_points = () if self._deflate is None else self._deflate.flush_points
        made = encode_index_file(schema, index, offsets, tables, flush_points, digest)
        staging = self._staging
        self._file.commit()
        self._complete = True
        staging.write(staged_index_path(staging, self._name), made.data, sync=True)
        known = None if origins is None else origins.encode(digest)
        if known is not None:
            staging.write(origins_path(os.path.join(staging.out, self._name)), known, sync=True)
        done = CompletedShard(
            records=len(lengths),
            framed_bytes=int(lengths.sum()),
            file_bytes=self._output.n_bytes,
            digest=digest,
            index=made.checksums,
            classes=made.classes,
            blocks=made.blocks,
        )
        staging.write_done(done_path, done)
        if done.file_bytes >= TRIM_THRESHOLD_BYTES:
            trim_heap()
        return done


def staged_index_path(staging: Staging, name: str) -> str:
    """The path of a shard's index in the staging folder."""
    return os.path.join(staging.out, METADATA_FOLDER, "index", f"{name}.arrow")


def load_completed_shard(staging: Staging, name: str, done_path: str) -> CompletedShard | None:
    """A shard that an earlier run finished, if the shard and its index still exist."""
    done = staging.read_done(done_path, CompletedShard)
    if done is None:
        return None
    whole = staging.size_of(os.path.join(staging.out, name)) == done.file_bytes
    return done if whole and staging.size_of(staged_index_path(staging, name)) > 0 else None
