"""A conversion from the plan to the commit."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.conversion.commit import (
    REJECTS,
    Companions,
    OutputTarget,
    build_manifest,
    combine_row_digests,
    commit,
    staged,
    write_companions,
)
from rekord.conversion.engines.local import WorkerPool
from rekord.conversion.plan import ConversionJob, ConversionPlan
from rekord.conversion.progress import ProgressTally, ThreadTally
from rekord.conversion.shards import CompletedShard, PlannedShard, load_completed_shard, plan_split_shards
from rekord.conversion.spill import CompletedPart, SplitSegment
from rekord.conversion.splits import HASH_BITS, HashArray, SplitRule
from rekord.conversion.tasks import (
    SpillLost,
    compute_part_digests,
    encode_part,
    encode_part_in_worker,
    load_part_index,
    pickle_job,
    select_index_kind,
    spill_sequentially,
    write_shard,
    write_shard_in_worker,
)
from rekord.dataset.manifest import Manifest
from rekord.errors import DatasetError, error
from rekord.location import Location
from rekord.sources.base import PART_BYTES, SourcePart, is_partitioned
from rekord.storage.local import LOCAL, Storage
from rekord.storage.transaction import Staging, Transaction, read_bytes


class ConversionListener(Protocol):
    """Whoever wants to know how far a conversion is."""

    def phase(self, name: str, staging: Staging, total: int | None) -> None:
        """A step begins: "read" counts rows, "write" bytes; `total` of them, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionResult:
    """How a conversion ended."""

    manifest: Manifest
    rejects: str | None  # where bad rows are listed
    remarks: str | None
    resumed_shards: int
    nothing_to_do: bool = False
    left: str | None = None  # a folder with files that were in the older dataset and are not ours


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A job, and where it goes."""

    job: ConversionJob
    plan: ConversionPlan
    out: str
    version: str
    companions: Companions
    workers: int = 1
    rows: int | None = None  # how many the source has, where that is known
    source_bytes: int = 0  # of all its files
    spills: str | None = None
    fresh: bool = False
    storage: Storage = LOCAL
    parent: str | None = None  # the digest of the manifest of the dataset that the rows come from


_BIN_BITS = 12
_BINS = 1 << _BIN_BITS
"""A class's hashes are counted in so many bins; only those bins that hold an edge are then looked at closely."""

_MIN_BINNED_ROWS = _BINS
"""A class of no more has no bins: its hashes are fewer than they would be, and such classes may be very many."""

SplitEdges = dict[int, npt.NDArray[np.uint64]]


def compute_split_edges(tables: Callable[[], Iterator[pa.Table]], rule: SplitRule) -> SplitEdges:
    """For each class the hashes at which its splits after the first begin; `tables` can be asked three times."""
    sizes: Counter[int] = Counter()
    for table in tables():
        found, counts = np.unique(table["stratum"].to_numpy(), return_counts=True)
        sizes.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
    bins = {stratum: np.zeros(_BINS, np.int64) for stratum, size in sizes.items() if size > _MIN_BINNED_ROWS}
    for table in tables() if bins else ():
        for stratum, hashes in _iter_strata(table):
            if stratum in bins:
                bins[stratum] += np.bincount(_compute_bins(hashes), minlength=_BINS)
    ranks = {stratum: _compute_split_ranks(rule, sizes[stratum]) for stratum in bins}
    wanted = {
        stratum: set(np.searchsorted(np.cumsum(bins[stratum]), ranks[stratum], side="right").tolist())
        for stratum in bins
    }
    near: dict[int, list[HashArray]] = {stratum: [] for stratum in sizes}
    for table in tables():
        for stratum, hashes in _iter_strata(table):
            close = hashes
            if stratum in bins:
                close = hashes[np.isin(_compute_bins(hashes), list(wanted[stratum]))]
            near[stratum].append(close)
    edges: SplitEdges = {}
    for stratum, size in sizes.items():
        sorted_hashes = np.sort(np.concatenate(near.pop(stratum)))
        if stratum in bins:
            edges[stratum] = _select_edges(sorted_hashes, bins[stratum], ranks[stratum], wanted[stratum])
        else:
            edges[stratum] = _select_edges(
                sorted_hashes, np.array([size]), _compute_split_ranks(rule, size), {0}
            )
    return edges


def _compute_split_ranks(rule: SplitRule, rows: int) -> Any:
    """Of the first row of each split after the first."""
    return np.cumsum(rule.shares(rows))[:-1]


def _compute_bins(hashes: HashArray) -> npt.NDArray[np.int64]:
    bins: npt.NDArray[np.int64] = (hashes >> np.uint64(HASH_BITS - _BIN_BITS)).astype(np.int64)
    return bins


def _select_edges(near: HashArray, bins: Any, ranks: Any, wanted: set[int]) -> npt.NDArray[np.uint64]:
    """The hash of the row of each rank; one past the last for a rank that no row has."""
    ends = np.cumsum(bins)
    out = []
    for rank in ranks.tolist():
        if rank >= int(ends[-1]):
            out.append(np.iinfo(np.uint64).max)
            continue
        at = int(np.searchsorted(ends, rank, side="right"))
        before = int(ends[at] - bins[at])  # rows in the bins before this one
        earlier = sum(int(bins[other]) for other in wanted if other < at and other < len(bins))
        out.append(int(near[earlier + rank - before]))
    return np.array(out, np.uint64)


def _iter_strata(table: pa.Table) -> Iterator[tuple[int, HashArray]]:
    hashes = table["hash"].to_numpy()
    for stratum, rows in _iter_stratum_rows(table):
        yield stratum, hashes[rows]


def _iter_stratum_rows(table: pa.Table) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each class of a table, and where its rows are: sorted once, since classes may be as many as rows."""
    strata = table["stratum"].to_numpy()
    order = np.argsort(strata, kind="stable")
    found, firsts = np.unique(strata[order], return_index=True)
    ends = [*firsts[1:].tolist(), len(order)]
    for stratum, first, end in zip(found.tolist(), firsts.tolist(), ends, strict=True):
        yield stratum, order[first:end]


def assign_stratified_splits(
    table: pa.Table, segments: Sequence[SplitSegment], edges: SplitEdges
) -> tuple[pa.Table, list[SplitSegment]]:
    """The index of a part with its rows sorted by their splits, run by run."""
    hashes = table["hash"].to_numpy()
    splits = np.zeros(len(table), np.uint8)
    for stratum, mine in _iter_stratum_rows(table):
        splits[mine] = np.searchsorted(edges[stratum], hashes[mine], side="right")
    lengths = table["length"].to_numpy()
    orders, out = [], []
    for run in segments:
        inside = splits[run.first : run.first + run.count]
        order = run.first + np.argsort(inside, kind="stable")
        orders.append(order)
        found, firsts = np.unique(splits[order], return_index=True)
        ends = [*firsts[1:].tolist(), run.count]
        for split, first, end in zip(found.tolist(), firsts.tolist(), ends, strict=True):
            framed = int(lengths[order[first:end]].sum())
            out.append(SplitSegment(split, run.first + first, end - first, framed))
    order = np.concatenate(orders) if orders else np.zeros(0, np.int64)
    return table.take(pa.array(order)), out


_MIN_PART_BYTES = 4 << 20
_TARGET_PARTS = 16
"""A source is cut into so many parts at the least, unless they would be smaller than that."""

_MIN_RECORD_BYTES = 4096
"""Of a record: below this, its handling costs more than its bytes."""


def convert(conversion: Conversion, watch: ConversionListener | None = None) -> ConversionResult:
    """Run a conversion, or what is left of it."""
    job = conversion.job
    aim = OutputTarget(
        out=conversion.out,
        plan=conversion.plan,
        storage=conversion.storage,
        fresh=conversion.fresh,
        spills=conversion.spills,
        rows_digest=None
        if is_partitioned(job.source)
        else lambda: combine_row_digests(compute_part_digests(job)),
    )
    with staged(aim) as (transaction, staging):
        if isinstance(staging, Manifest):
            return ConversionResult(
                manifest=staging, rejects=None, remarks=None, resumed_shards=0, nothing_to_do=True
            )
        return _ConversionRun(conversion, transaction, staging, watch).run()


class _ConversionRun:
    """One run of a conversion: the driver, which holds sums and no rows."""

    def __init__(
        self,
        conversion: Conversion,
        transaction: Transaction,
        staging: Staging,
        watch: ConversionListener | None,
    ) -> None:
        self.conversion = conversion
        self.transaction = transaction
        self.job = conversion.job
        self.staging = staging
        self.watch = watch
        self._tallies = ThreadTally(staging.folder if conversion.storage is LOCAL else None)
        self.packed = b"" if conversion.workers == 1 else pickle_job(self.job)
        self.parts: list[SourcePart] = []
        self._rebuilt_parts: set[int] = set()
        self._needed: dict[int, set[int]] | None = None  # which shards are still to be made of a part

    def run(self) -> ConversionResult:
        with WorkerPool(self.conversion.workers) as workers:
            done = self._map(workers)
            self._check_rejects(done)
            done = self._stratified(done)
            shards = self._cut(done)
            finished, resumed = self._shards(workers, shards, done)
        manifest = build_manifest(self.job, self.conversion.plan, done, finished, self.conversion.version)
        manifest = msgspec.structs.replace(manifest, parent=self.conversion.parent)
        manifest = write_companions(self.staging, manifest, done, finished, self.conversion.companions)
        left = commit(self.transaction, self.staging)
        ours = os.path.join(self.conversion.out, ".rekord")
        return ConversionResult(
            manifest=manifest,
            rejects=os.path.join(ours, REJECTS) if manifest.source.rejected else None,
            remarks=os.path.join(ours, "remarks.jsonl") if any(part.remarks for part in done) else None,
            resumed_shards=resumed,
            left=left,
        )

    @property
    def tally(self) -> ProgressTally:
        """What this thread has done."""
        return self._tallies.own

    @property
    def _has_dependent_parts(self) -> bool:
        """Whether a part cannot be made again without the others."""
        return not is_partitioned(self.job.source) or self.job.splits.stratify is not None

    # Map.

    def _map(self, workers: WorkerPool) -> list[CompletedPart]:
        if self.watch is not None:
            self.watch.phase("read", self.staging, self.conversion.rows)
        if not is_partitioned(self.job.source):
            return spill_sequentially(self.job, self.staging, self._finished_part, self.tally)
        source: Any = self.job.source
        self.parts = list(source.parts(_choose_part_bytes(self.conversion.source_bytes)))
        done = [self._finished_part(number) for number in range(len(self.parts))]
        calls = [(i, (i, part)) for i, part in enumerate(self.parts) if done[i] is None]
        for i, part in self._map_calls(workers, calls):
            done[i] = part
        whole = [part for part in done if part is not None]
        assert len(whole) == len(done)
        return whole

    def _finished_part(self, number: int) -> CompletedPart | None:
        done = self.staging.read_done(self.staging.map_path(number, "done"), CompletedPart)
        if done is None or not _is_index_intact(self.staging, number, done):
            return None
        # An earlier run may have gone on after a bad row that this one is to stop at.
        return None if done.rejected and self.job.on_bad_row == "stop" else done

    def _map_calls(self, workers: WorkerPool, calls: Sequence[Any]) -> Iterator[tuple[int, CompletedPart]]:
        """The parts as they are finished. The error of the first bad row is raised when all before it are done."""
        packed, folder, spills = self.packed, self.staging.folder, self.staging.spills
        bound = [(i, (packed, folder, spills, *arguments)) for i, arguments in calls]
        failures: dict[int, Exception] = {}
        outstanding = {i for i, _ in calls}

        def inline(
            _packed: bytes, _folder: str, _spills: str, number: int, part: SourcePart
        ) -> CompletedPart:
            if failures and number > min(failures):
                raise _PartNotNeeded
            done = encode_part(self.job, self.staging, number, part, self.tally)
            self.tally.next()
            return done

        # What a function of the user costs is not known, and is often much.
        patient = self.job.function is None
        for i, result in workers.run(encode_part_in_worker, inline, bound, patient=patient):
            outstanding.discard(i)
            if isinstance(result, _PartNotNeeded):
                continue
            if isinstance(result, Exception):
                failures[i] = result
            else:
                yield i, result
            if failures and not any(other < min(failures) for other in outstanding):
                break
        if failures:
            raise failures[min(failures)]

    # Cut.

    def _check_rejects(self, done: Sequence[CompletedPart]) -> None:
        rows = sum(part.rows for part in done)
        rejected = sum(part.rejected for part in done)
        records = sum(part.records for part in done)
        if not records:
            raise error(
                "X510",
                location=Location(path=getattr(self.job.source, "root", None) or None),
                expected="at least one row",
                found="none" if not rejected else f"{rejected:,} rows, all of them bad",
                do="look at the source: is it the right place?"
                if not rejected
                else f"mend the rows: {self._list_rejects(done)} says what is wrong with each",
            )
        most = self.job.max_rejects * rows if self.job.max_rejects < 1 else self.job.max_rejects
        if rejected > most:
            path = self._list_rejects(done)
            share = f"{rejected / rows:.2%}" if rows else "all"
            raise error(
                "X514",
                location=Location(path=path),
                expected=f"at most {most:g} of {rows:,} rows"
                if self.job.max_rejects >= 1
                else f"at most {self.job.max_rejects:.2%} of {rows:,} rows",
                found=f"{rejected:,} bad rows ({share})",
                do="mend the rows that this file lists, or allow more: --max-rejects",
            )

    def _list_rejects(self, done: Sequence[CompletedPart]) -> str:
        """The file in which the bad rows of a conversion that ends here are listed."""
        path = os.path.join(self.staging.folder, REJECTS)
        lines = [
            read_bytes(self.staging.storage, self.staging.map_path(i, "rejects"))
            for i, part in enumerate(done)
            if part.rejected
        ]
        self.staging.write(path, b"".join(lines))
        return path

    def _stratified(self, done: list[CompletedPart]) -> list[CompletedPart]:
        """With stratified splits: the parts as they are once each row knows its split."""
        rule = self.job.splits
        if rule.stratify is None:
            return done
        full = [i for i, part in enumerate(done) if part.records]

        def tables() -> Iterator[pa.Table]:
            return (load_part_index(self.staging, i, "index") for i in full)

        edges = compute_split_edges(tables, rule)
        return [self._resplit(i, part, edges) if part.records else part for i, part in enumerate(done)]

    def _resplit(self, number: int, part: CompletedPart, edges: SplitEdges) -> CompletedPart:
        table, segments = assign_stratified_splits(
            load_part_index(self.staging, number, "index"), part.segments, edges
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        self.staging.write(self.staging.map_path(number, "split"), sink.getvalue().to_pybytes())
        return msgspec.structs.replace(part, segments=segments)

    def _cut(self, done: Sequence[CompletedPart]) -> list[PlannedShard]:
        kind = select_index_kind(self.job)
        index_of = lru_cache(maxsize=64)(lambda part: load_part_index(self.staging, part, kind))
        shards: list[PlannedShard] = []
        for number, name in enumerate(self.job.splits.names):
            shards += plan_split_shards(
                name, number, done, self.job.cut, shuffled=self.job.shuffle, index_of=index_of
            )
        return shards

    # Shards.

    def _shards(
        self, workers: WorkerPool, shards: Sequence[PlannedShard], parts: Sequence[CompletedPart]
    ) -> tuple[dict[str, list[CompletedShard]], int]:
        if self.watch is not None:
            self.watch.phase("write", self.staging, _sum_framed_bytes(parts))
        done: dict[int, CompletedShard] = {}
        for i, shard in enumerate(shards):
            name = self.job.shard_name(shard.split, shard.number, shard.shards)
            known = load_completed_shard(
                self.staging, name, self.staging.shard_done_path(shard.split, shard.number)
            )
            if known is not None:
                done[i] = known
        resumed = len(done)
        while len(done) < len(shards):
            lost = None
            calls = [
                (i, (self.packed, self.staging.folder, self.staging.spills, shard))
                for i, shard in enumerate(shards)
                if i not in done
            ]

            def inline(_packed: bytes, _folder: str, _spills: str, shard: PlannedShard) -> CompletedShard:
                finished = write_shard(self.job, self.staging, shard, self.tally)
                self.tally.next()
                return finished

            threads = self._is_io_bound(parts)
            function = None if threads else write_shard_in_worker
            for i, result in workers.run(function, inline, calls, threads=threads, patient=True):
                if isinstance(result, SpillLost):
                    lost = result.part
                    break
                if isinstance(result, Exception):
                    raise result
                done[i] = result
                self._remove_unneeded_spills(shards, parts, done)
            if lost is not None:
                self._again(lost, parts[lost])
        split_shards: dict[str, list[CompletedShard]] = {name: [] for name in self.job.splits.names}
        for i, shard in enumerate(shards):
            split_shards[shard.split].append(done[i])
        return split_shards, resumed

    def _remove_unneeded_spills(
        self,
        shards: Sequence[PlannedShard],
        parts: Sequence[CompletedPart],
        done: Mapping[int, CompletedShard],
    ) -> None:
        """Remove the spills that no shard needs any more; shuffled, every shard needs all of them.

        A part that could not be made again by itself keeps its spill.
        """
        if self.job.shuffle or self._has_dependent_parts:
            return
        if self._needed is None:
            self._needed = {part: set() for part in range(len(parts))}
            for i, shard in enumerate(shards):
                for part in {piece.part for bucket in shard.buckets for piece in bucket.slices}:
                    self._needed[part].add(i)
        for part, users in list(self._needed.items()):
            if not users <= done.keys():
                continue
            del self._needed[part]
            # The next run must not take it for lost.
            self.staging.write(self.staging.map_path(part, "spent"), b"")
            self.staging.remove_file(self.staging.map_path(part, "spill"))

    def _is_io_bound(self, parts: Sequence[CompletedPart]) -> bool:
        """Whether shards are mostly read, hashed and written, which other threads need not wait for.

        Small records that were shuffled are picked out one by one, and that they would wait for.
        """
        records = sum(part.records for part in parts)
        return not self.job.shuffle or _sum_framed_bytes(parts) >= _MIN_RECORD_BYTES * records

    def _again(self, number: int, known: CompletedPart) -> None:
        """Make a part whose frames were lost once more; it must be what it was."""
        if self._has_dependent_parts or number in self._rebuilt_parts:
            # What was made of all parts together would have to be made again too, which the next run does; and
            # what is lost twice is not mended by a third time.
            for kind in ("spent", "done"):
                self.staging.remove_file(self.staging.map_path(number, kind))
            raise error(
                "X518",
                location=Location(path=self.staging.map_path(number, "spill")),
                expected="the frames that this conversion put there",
                found="other bytes, or none",
                do="run the same command again: it makes this part anew and goes on",
            )
        self._rebuilt_parts.add(number)
        self.staging.remove_file(self.staging.map_path(number, "spent"))
        made = encode_part(self.job, self.staging, number, self.parts[number], self.tally)
        if made.digest != known.digest:
            raise error(
                "X513",
                location=Location(path=getattr(self.job.source, "root", None) or None),
                expected="the rows that were read when the conversion began",
                found="other ones",
                do="run it again with --fresh (fresh=True)",
            )


def _choose_part_bytes(source_bytes: int) -> int:
    """How much of a source one task reads: less of a small one, so that all workers have something to do.

    Not a matter of how many workers there are: another number of them must find the same parts finished.
    """
    return min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // _TARGET_PARTS))


def _sum_framed_bytes(parts: Sequence[CompletedPart]) -> int:
    return sum(segment.framed_bytes for part in parts for segment in part.segments)


class _PartNotNeeded(Exception):
    """A part after a bad row: nobody will ask for it."""


def _is_index_intact(staging: Staging, number: int, done: CompletedPart) -> bool:
    """Whether the index of a part, and its frames unless shards took them already, are as they were written."""
    try:
        index = read_bytes(staging.storage, staging.map_path(number, "index"))
    except DatasetError:
        return False
    if len(index) != done.index_bytes or int(_core.crc32c(index)) != done.index_crc:
        return False
    if staging.size_of(staging.map_path(number, "spent")) >= 0:
        return True
    return staging.size_of(staging.map_path(number, "spill")) == done.spill_bytes
