"""A dataset derived from existing ones: shards linked, records copied, records changed.

Copied records are whole frames, verified, as they stand. Nothing is spilled: the indexes say in advance which record
goes where. Each shard is a task; as in a conversion, finished shards are found again after a crash, and one rename
publishes the dataset.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import Batch, column_to_arrow
from rekord.codec.decode import assemble_columns, new_batch
from rekord.codec.encode_columns import encode_batches
from rekord.codec.plan import CodecPlan, compile_plan
from rekord.conversion.driver import (
    Companions,
    ConversionListener,
    OutputTarget,
    build_manifest,
    build_manifest_split,
    commit,
    open_staging,
    write_companions,
)
from rekord.conversion.plan import ConversionPlan, ShardingRule
from rekord.conversion.shards import CompletedShard, StagedShard, load_completed_shard, staged_index_path
from rekord.conversion.spill import fill_buffer, iter_windows
from rekord.conversion.tasks import ThreadTally
from rekord.conversion.workers import WorkerPool
from rekord.dataset.index import CHUNK_RECORDS, compute_blocks, index_path
from rekord.dataset.manifest import Manifest, ManifestSource, ManifestSplit, find_shard_entry, shard_name
from rekord.dataset.readers.compressed import InflatedCopies
from rekord.dataset.readers.pipeline import BatchDecoder
from rekord.dataset.samplers import Ids, Sampler
from rekord.dataset.shard_index import ShardIndex, diagnose_frame, open_shard_index, read_stamp, rebuild_index
from rekord.dataset.shards import Shards
from rekord.errors import DecodeError, RekordError, error
from rekord.schema import Schema
from rekord.storage.local import LENT_BUFFERS, LOCAL, Readable, Storage
from rekord.storage.router import ROUTED_STORAGE, is_remote
from rekord.storage.transaction import Staging, Transaction

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


def plan_record_ranges(records: RecordSequence, rule: ShardingRule) -> list[RecordRange]:
    """The shards that records make, as a conversion would cut them."""
    total = len(records)
    if rule.shards is not None:
        edges = [-(-m * total // rule.shards) for m in range(rule.shards + 1)]
    else:
        framed_bytes = sum(int(lengths.sum()) for _, lengths in records.pieces(0, total))
        edges = _compute_boundaries(records, framed_bytes, rule.count(framed_bytes, total))
    return [RecordRange(records, begin, end) for begin, end in pairwise(edges)]


def _compute_boundaries(records: RecordSequence, framed_bytes: int, shards: int) -> list[int]:
    """Where shards begin: the record that starts at byte s of T goes to shard floor(s * N / T)."""
    starts = np.array([-(-m * framed_bytes // shards) for m in range(1, shards)], np.int64)
    edges = [0]
    byte = position = 0
    for _, lengths in records.pieces(0, len(records)):
        begins = byte + np.cumsum(lengths) - lengths
        byte += int(lengths.sum())
        here = starts[len(edges) - 1 :]
        here = here[: np.searchsorted(here, begins[-1], side="right")]
        edges += (position + np.searchsorted(begins, here)).tolist()
        position += len(lengths)
    return [*edges, *[len(records)] * (shards + 1 - len(edges))]


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


FramedRecords: TypeAlias = "tuple[Any, Any, pa.Table]"
"""Frames, their lengths, and their index rows."""

_REENCODE_RECORDS = 1024
_COPY_BYTES = 4 << 20
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class LinkedShard:
    """A shard that stays as it is: hard-linked into the new dataset, or copied."""

    path: str
    done: CompletedShard


@dataclass(frozen=True, slots=True)
class CopiedShard:
    """Records that are copied without decoding."""

    stretch: RecordRange


@dataclass(frozen=True, slots=True)
class ReencodedShard:
    """Records that are decoded, changed by a function of columns, and encoded again.

    `function` may return fewer or more rows than it receives. `before` is the schema to decode by.
    """

    stretch: RecordRange
    before: Schema
    function: Callable[..., Batch]
    numbered: bool = False  # the function also receives the record numbers


@dataclass(frozen=True, slots=True)
class GeneratedShard:
    """Records that are framed by a function of the record range, the schema and the index columns."""

    stretch: RecordRange
    function: Callable[[RecordRange, Schema, tuple[str, ...]], Iterator[FramedRecords]]


DerivedShard: TypeAlias = "LinkedShard | CopiedShard | ReencodedShard | GeneratedShard"


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedSplit:
    """A split of the new dataset: its shards in order."""

    shards: Sequence[DerivedShard]
    template: str
    compression: str


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """What to derive, and where."""

    out: str
    splits: Mapping[str, DerivedSplit]
    schema: Schema
    index: tuple[str, ...]
    plan: ConversionPlan  # its options name the verb and everything that decides the bytes
    version: str
    companions: Companions
    parent: str | None = None  # the digest of the manifest that it comes from
    workers: int = 1
    fresh: bool = False
    storage: Storage = LOCAL
    framed_bytes: int | None = None  # estimate of what will be written, for progress


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivationResult:
    """The result of a derivation."""

    manifest: Manifest
    linked: int  # shards
    written: int
    resumed_shards: int = 0
    nothing_to_do: bool = False


def reuse_shard(records: RecordSequence, shard: int, part: ManifestSplit, index: Sequence[str]) -> DerivedShard:
    """A whole existing shard: linked if its index has all columns that the new one needs, else copied."""
    path, begin = records.shards.paths[shard], int(records.shards.starts[shard])
    end = int(records.shards.starts[shard + 1])
    listed = None if is_remote(path) else find_shard_entry(path)
    checksums = None if listed is None or listed.expected is None else listed.expected.checksums
    found = records.frames.index(shard)
    if checksums is None or found.origin != "written" or not found.has_columns(index if end > begin else ()):
        return CopiedShard(RecordRange(records, begin, end))
    return LinkedShard(
        path,
        CompletedShard(
            records=end - begin,
            framed_bytes=records.frames.end(shard),
            file_bytes=read_stamp(path)[0],
            digest=part.shards.digest[shard],
            index=list(checksums),
            classes=found.classes,
            blocks=compute_blocks(found.offsets.astype(np.int64)),
        ),
    )


def derive_dataset(wanted: Derivation, watch: ConversionListener | None = None) -> DerivationResult:
    """Derive the dataset, or resume deriving it."""
    aim = OutputTarget(out=wanted.out, plan=wanted.plan, storage=wanted.storage, fresh=wanted.fresh)
    with open_staging(aim) as (transaction, staging):
        if isinstance(staging, Manifest):
            return DerivationResult(manifest=staging, linked=0, written=0, nothing_to_do=True)
        try:
            return _DerivationRun(wanted, transaction, staging, watch).run()
        except RekordError:
            if not staging.has_finished_tasks():  # there is nothing to resume
                with suppress(RekordError):
                    staging.remove()
            raise


def estimate_inflated_bytes(wanted: Derivation) -> int:
    """Estimate of the temporary disk space for shards that can only be read from the start."""
    copied = [one for split in wanted.splits.values() for one in split.shards if not isinstance(one, LinkedShard)]
    found = {id(one.stretch.records.shards): one.stretch.records for one in copied}
    return sum(
        records.frames.end(shard)
        for records in found.values()
        if not records.shards.has_listed_counts
        for shard, path in enumerate(records.shards.paths)
        if open_shard_index(path).is_sequential_only
    )


class _DerivationRun:
    def __init__(
        self, wanted: Derivation, transaction: Transaction, staging: Staging, watch: ConversionListener | None
    ) -> None:
        self._wanted = wanted
        self._transaction = transaction
        self._staging = staging
        self._watch = watch
        watched = watch is not None and wanted.storage is LOCAL
        self._local = _ThreadLocal(staging.folder if watched else None)

    def run(self) -> DerivationResult:
        wanted = self._wanted
        if self._watch is not None:
            self._watch.phase("write", self._staging, wanted.framed_bytes)
        places = [(name, number) for name, split in wanted.splits.items() for number in range(len(split.shards))]
        done = {place: known for place in places if (known := self._finished(*place)) is not None}
        resumed = len(done)
        left = [place for place in places if place not in done]
        calls = [(i, place) for i, place in enumerate(left)]
        # Bytes are read, checked, hashed and written without Python's lock, so threads suffice. While one waits for
        # the disk, another one works.
        with (
            self._with_inflated_copies([wanted.splits[name].shards[number] for name, number in left]),
            WorkerPool(wanted.workers if wanted.workers == 1 else 2 * wanted.workers) as workers,
        ):
            for i, result in workers.run(None, self._shard, calls, threads=True):
                if isinstance(result, Exception):
                    raise result
                done[left[i]] = result
        shards = {name: [done[name, i] for i in range(len(split.shards))] for name, split in wanted.splits.items()}
        source = ManifestSource(
            kind="records",
            fingerprint=wanted.plan.source,
            rows=sum(one.records for completed in shards.values() for one in completed),
            rejected=0,
        )
        splits = {
            name: build_manifest_split(split.template, split.compression, shards[name])
            for name, split in wanted.splits.items()
        }
        manifest = build_manifest(wanted.plan, splits, source, version=wanted.version, parent=wanted.parent)
        manifest = write_companions(self._staging, manifest, (), shards, wanted.companions)
        commit(self._transaction, self._staging)
        linked = sum(isinstance(one, LinkedShard) for split in wanted.splits.values() for one in split.shards)
        return DerivationResult(
            manifest=manifest, linked=linked, written=len(places) - linked, resumed_shards=resumed
        )

    @contextmanager
    def _with_inflated_copies(self, new: Sequence[DerivedShard]) -> Iterator[None]:
        """Let the shards that records are copied from be read in any order."""
        unpacked = InflatedCopies(self._staging.spills, self._wanted.storage)
        read = {id(one.stretch.records.shards): one for one in new if not isinstance(one, LinkedShard)}
        with ExitStack() as stack:
            for one in read.values():
                stack.enter_context(one.stretch.records.shards.with_inflated_copies(unpacked))
            try:
                yield
            except BaseException:
                unpacked.remove()  # else they go with the staging folder
                raise

    def _name(self, split: str, number: int) -> str:
        new = self._wanted.splits[split]
        return shard_name(new.template, split, number, len(new.shards))

    def _finished(self, split: str, number: int) -> CompletedShard | None:
        path = self._staging.shard_done_path(split, number)
        return load_completed_shard(self._staging, self._name(split, number), path)

    def _shard(self, split: str, number: int) -> CompletedShard:
        new = self._wanted.splits[split]
        shard, name = new.shards[number], self._name(split, number)
        done_path = self._staging.shard_done_path(split, number)
        if isinstance(shard, LinkedShard):
            return self._linked(shard, name, done_path)
        tally = self._local.own
        lengths: list[Any] = [np.zeros(0, np.int64)]
        tables: list[pa.Table] = []
        with StagedShard(self._staging, name, new.compression) as file:
            for frames, framed, lines in self._pieces(shard):
                file.write_borrowed(frames)
                tally.shard_bytes(len(frames))
                lengths.append(framed)
                tables.append(lines)
            done = file.complete(self._wanted.schema, self._wanted.index, np.concatenate(lengths), tables, done_path)
        tally.next()
        return done

    def _pieces(self, shard: CopiedShard | ReencodedShard | GeneratedShard) -> Iterator[FramedRecords]:
        if isinstance(shard, GeneratedShard):
            return shard.function(shard.stretch, self._wanted.schema, self._wanted.index)
        return self._copied(shard) if isinstance(shard, CopiedShard) else self._changed(shard)

    def _copied(self, shard: CopiedShard) -> Iterator[FramedRecords]:
        wanted, records = self._wanted, shard.stretch.records
        with RecordCopier(records, wanted.schema, wanted.index, self._local.buffers) as copying:
            yield from copying.windows(shard.stretch)

    def _changed(self, shard: ReencodedShard) -> Iterator[FramedRecords]:
        wanted = self._wanted
        index = compile_plan(wanted.schema, wanted.index) if wanted.index else None
        records = shard.stretch.records
        plan = compile_plan(shard.before, None, strict=True)
        decoder = BatchDecoder(plan, _core.Pool(0))
        for ids, _ in shard.stretch.pieces():
            for at in range(0, len(ids), _REENCODE_RECORDS):
                numbers = ids[at : at + _REENCODE_RECORDS]
                batch = _decode_records(decoder, records.shards, numbers, shard.before)
                batch = shard.function(batch, numbers) if shard.numbered else shard.function(batch)
                if not batch or not len(next(iter(batch.values()))):
                    continue
                encoded = encode_batches(batch, wanted.schema, enough_bytes=_PIECE_BYTES)
                for frames, ends, lines in encoded.iter_with_index(index):
                    table = pa.table({f"index:{name}": column for name, column in lines.items()})
                    yield frames, np.diff(ends, prepend=0), table

    def _linked(self, shard: LinkedShard, name: str, done_path: str) -> CompletedShard:
        self._link_or_copy(shard.path, os.path.join(self._staging.out, name))
        self._link_or_copy(index_path(shard.path), staged_index_path(self._staging, name))
        self._staging.write_done(done_path, shard.done)
        return shard.done

    def _link_or_copy(self, source: str, target: str) -> None:
        """A link is complete immediately; if links are impossible, the file is copied."""
        staging = self._staging
        staging.remove_file(target)
        if not staging.storage.link(source, target):
            _copy_file(source, target, staging)


class _ThreadLocal(ThreadTally):
    """The tally and the buffers of each thread: all of its shards are read into the same memory."""

    def __init__(self, folder: str | None) -> None:
        super().__init__(folder)
        self.buffers = BufferRing()


def _decode_records(decoder: BatchDecoder, shards: Shards, numbers: Ids, schema: Schema) -> Batch:
    """Records to encode again: a key that the schema does not name would be lost."""
    try:
        return decoder.decode(shards.gather(numbers, decoder.pool))
    except DecodeError as failure:
        if failure.code != "D408":
            raise
        columns = ",".join(schema)
        raise error(
            "X572",
            location=failure.location,
            expected="records with only the columns of the schema",
            found=failure.found,
            do=f"rekord rewrite IN OUT --keep {columns if len(columns) <= 60 else 'COLUMNS'}      (then use OUT)",
        ) from failure


def _copy_file(source: str, target: str, staging: Staging) -> None:
    with staging.create(target, sync=True) as file, ROUTED_STORAGE.open_read(source) as old:
        buffer = memoryview(bytearray(_COPY_BYTES))
        while count := old.readinto(buffer):
            file.write(buffer[:count])
