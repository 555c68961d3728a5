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
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from rekord import _core
from rekord.codec.columns import Batch
from rekord.codec.encode_columns import encode_batches
from rekord.codec.plan import compile_plan
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
from rekord.conversion.record_copier import BufferRing, RecordCopier, RecordRange, RecordSequence
from rekord.conversion.shards import CompletedShard, StagedShard, load_completed_shard, staged_index_path
from rekord.conversion.tasks import ThreadTally
from rekord.conversion.workers import WorkerPool
from rekord.dataset.index import compute_blocks, index_path
from rekord.dataset.manifest import Manifest, ManifestSource, ManifestSplit, find_shard_entry, shard_name
from rekord.dataset.origins import OriginRuns, find_origins, gather_origins, origins_path
from rekord.dataset.readers.compressed import InflatedCopies
from rekord.dataset.readers.pipeline import BatchDecoder
from rekord.dataset.samplers import Ids
from rekord.dataset.shard_index import open_shard_index, read_stamp
from rekord.dataset.shards import Shards
from rekord.errors import DecodeError, RekordError, error
from rekord.schema import Schema
from rekord.storage.local import Storage
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import Staging, Transaction


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
    storage: Storage = ROUTED_STORAGE
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
    listed = find_shard_entry(path)
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
        self._local = _ThreadLocal(staging.progress_folder if watch is not None else None)

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
        commit(self._transaction, self._staging, manifest)
        linked = sum(isinstance(one, LinkedShard) for split in wanted.splits.values() for one in split.shards)
        return DerivationResult(
            manifest=manifest, linked=linked, written=len(places) - linked, resumed_shards=resumed
        )

    @contextmanager
    def _with_inflated_copies(self, new: Sequence[DerivedShard]) -> Iterator[None]:
        """Let the shards that records are copied from be read in any order."""
        unpacked = InflatedCopies(self._staging.scratch_folder, self._wanted.storage)
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
            origins = _collect_origins(shard, sum(map(len, lengths)))
            done = file.complete(
                self._wanted.schema, self._wanted.index, np.concatenate(lengths), tables, done_path, origins
            )
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
        if find_origins(shard.path) is not None:
            self._link_or_copy(origins_path(shard.path), origins_path(os.path.join(self._staging.out, name)))
        self._staging.write_done(done_path, shard.done)
        return shard.done

    def _link_or_copy(self, source: str, target: str) -> None:
        """A link is complete immediately; if links are impossible, the file is copied."""
        if not self._staging.link(source, target):
            _copy_file(source, target, self._staging)


def _collect_origins(shard: CopiedShard | ReencodedShard | GeneratedShard, records: int) -> OriginRuns | None:
    """The origins of the records of a shard, which are those of the records that it was made from."""
    stretch = shard.stretch
    if stretch.end - stretch.begin != records:
        return None  # the function dropped or added some
    adjust = getattr(shard.function, "adjust_origins", None) if isinstance(shard, GeneratedShard) else None
    if isinstance(shard, GeneratedShard) and adjust is None:
        return None
    runs = OriginRuns()
    position = stretch.begin
    for ids, _ in stretch.pieces():
        rows = gather_origins(stretch.records.shards.paths, *stretch.records.shards.locate(ids))
        if rows is None:
            return None
        # They rank rows for the splits of one conversion.
        rows.stratum = rows.hash = None
        runs.add(rows if adjust is None else adjust(position, rows))
        position += len(ids)
    return runs


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
