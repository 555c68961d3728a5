"""A conversion from the plan to the commit: its tasks, its manifest, and the rename that publishes everything."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from rekord import _core
from rekord.conversion.mapped_rows import no_rows_error
from rekord.conversion.plan import ConversionJob, ConversionPlan
from rekord.conversion.reuse import SOURCE_FILES, Reuse, ReuseCounts, describe_source_files
from rekord.conversion.shards import CompletedShard, PlannedShard, load_completed_shard, plan_split_shards
from rekord.conversion.spill import (
    CompletedPart,
    SplitEdges,
    assign_stratified_splits,
    compute_split_edges,
    encode_arrow_file,
)
from rekord.conversion.tasks import (
    Done,
    ProgressTally,
    SpillLost,
    ThreadTally,
    compute_rows_digest,
    encode_part,
    load_part_index,
    pickle_job,
    run_in_worker,
    select_index_kind,
    spill_sequentially,
    write_shard,
)
from rekord.conversion.workers import WorkerPool
from rekord.dataset.index import BLOCK_BYTES, CHUNK_RECORDS, METADATA_FOLDER
from rekord.dataset.manifest import (
    CHECKSUM,
    MANIFEST_FORMAT,
    MANIFEST_NAME,
    IndexChecksums,
    Manifest,
    ManifestShards,
    ManifestSource,
    ManifestSplit,
    list_shard_folders,
    manifest_path,
    read_manifest,
    tag_sha256,
)
from rekord.dataset.origins import ORIGINS_FOLDER
from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.log import get_logger
from rekord.sources.base import (
    PART_BYTES,
    SourceFile,
    SourceGuess,
    SourcePart,
    UnusedInput,
    check_remote_files,
    is_partitioned,
)
from rekord.storage.local import Storage
from rekord.storage.publication import exists, read_bytes, remove_tree
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import Staging, Transaction

_log = get_logger(__name__)

REJECTS = "rejects.jsonl"
REMARKS = "remarks.jsonl"
WRITE_REQUEST = "write.json"
"""What `.rekord/` holds about the options that a dataset was written with."""

Companions: TypeAlias = Callable[[Manifest], Mapping[str, bytes]]
"""The manifest in the file formats of other tools: contents by file name."""

_MIN_PART_BYTES = 4 << 20
_TARGET_PARTS = 16
"""A source is cut into at least this many parts, unless they would be smaller than `_MIN_PART_BYTES`."""

_MIN_RECORD_BYTES = 4096
"""Below this mean size, handling a record costs more than copying its bytes."""


class ConversionListener(Protocol):
    """Receives the progress of a conversion."""

    def phase(self, name: str, staging: Staging, total: int | None) -> None:
        """A phase begins: "read" counts rows, "write" bytes; `total` of them, if known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionResult:
    """The result of a conversion."""

    manifest: Manifest
    rejects: str | None  # the file that lists bad rows
    remarks: str | None
    resumed_shards: int
    nothing_to_do: bool = False
    processes: int = 0  # that took part
    processes_remark: str | None = None  # why not as many as there were workers
    left: str | None = None  # a folder with files of the old dataset's folder that rekord did not write
    reused: ReuseCounts = ReuseCounts()  # noqa: RUF009


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A job and its output."""

    job: ConversionJob
    plan: ConversionPlan
    out: str
    version: str
    companions: Companions
    workers: int = 1
    are_workers_given: bool = False  # asked for, and not just the default
    prior_processes: int = 0  # that took part before the conversion, when the schema was inferred
    prior_remark: str | None = None  # why they were not more
    rows: int | None = None  # of the source, if known
    source_bytes: int = 0  # of all its files
    known_rows: bool = False  # the plan identifies the rows, by the files that they come from
    guesses: tuple[SourceGuess, ...] = ()  # about the source
    notes: tuple[str, ...] = ()  # what reading it found
    unused: tuple[UnusedInput, ...] = ()  # files and columns that are not written
    spills: str | None = None
    fresh: bool = False
    storage: Storage = ROUTED_STORAGE
    parent: str | None = None  # the digest of the manifest of the dataset that the rows come from
    is_split_by_series: bool = False  # by time or group, where rows become windows
    files: tuple[SourceFile, ...] = ()  # of the source
    request: bytes = b""  # the options that it was requested with
    reuse: Reuse | None = None  # a dataset that has some of the rows already


def convert(conversion: Conversion, watch: ConversionListener | None = None) -> ConversionResult:
    """Run a conversion, or the rest of it."""
    job = conversion.job

    def digest_rows() -> str:
        with WorkerPool(conversion.workers) as pool:
            return combine_row_digests([compute_rows_digest(job, pool)])

    aim = OutputTarget(
        out=conversion.out,
        plan=conversion.plan,
        storage=conversion.storage,
        fresh=conversion.fresh,
        spills=conversion.spills,
        rows_digest=None if conversion.known_rows else digest_rows,
        salt="" if conversion.reuse is None else conversion.reuse.digest,
    )
    with open_staging(aim) as (transaction, staging):
        if isinstance(staging, Manifest):
            return ConversionResult(
                manifest=staging, rejects=None, remarks=None, resumed_shards=0, nothing_to_do=True
            )
        return _ConversionRun(conversion, transaction, staging, watch).run()


class _ConversionRun:
    """One run of a conversion. It holds sums, and no rows."""

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
        self._tallies = ThreadTally(staging.progress_folder)
        self.packed = b"" if conversion.workers == 1 else pickle_job(self.job)
        self.parts: list[SourcePart] = []
        self.reused = ReuseCounts()
        self._rebuilt_parts: set[int] = set()
        self._needed: dict[int, set[int]] | None = None  # shards to be written from each part

    def run(self) -> ConversionResult:
        _log.info("writing %s with %d workers", self.conversion.out, self.conversion.workers)
        with WorkerPool(self.conversion.workers) as workers:
            done = self._map(workers)
            check_remote_files(self.job.source, self.conversion.files)
            self._check_rejects(done)
            done = self._stratified(done)
            shards = self._cut(done)
            finished, resumed = self._shards(workers, shards, done)
        job, conversion = self.job, self.conversion
        source = ManifestSource(
            kind=job.source.kind,
            fingerprint=conversion.plan.source if conversion.known_rows else combine_row_digests([done[-1].digest]),
            rows=self._count_rows(done),
            rejected=sum(part.rejected for part in done),
        )
        splits = {name: build_manifest_split(job.template, job.compression, made) for name, made in finished.items()}
        manifest = build_manifest(
            conversion.plan, splits, source, version=conversion.version, parent=conversion.parent
        )
        ours = self._describe_request(done)
        manifest = write_companions(self.staging, manifest, done, finished, self.conversion.companions, ours)
        left = commit(self.transaction, self.staging, manifest)
        folder = os.path.join(self.conversion.out, METADATA_FOLDER)
        return ConversionResult(
            manifest=manifest,
            rejects=os.path.join(folder, REJECTS) if manifest.source.rejected else None,
            remarks=os.path.join(folder, REMARKS) if any(part.remarks for part in done) else None,
            reused=self.reused,
            resumed_shards=resumed,
            left=left,
            processes=max(len(workers.processes), conversion.prior_processes),
            processes_remark=self._explain_processes(workers),
        )

    def _describe_request(self, done: Sequence[CompletedPart]) -> dict[str, bytes]:
        """What a later conversion of the same source needs to know of this one."""
        if not self.conversion.request:
            return {}
        known = {WRITE_REQUEST: self.conversion.request}
        if hasattr(self.job.source, "part_items") and self.conversion.files:
            flagged = [path for part in done for path in part.flagged]
            known[SOURCE_FILES] = describe_source_files(self.job.source, self.conversion.files, flagged).to_json()
        return known

    def _explain_processes(self, workers: WorkerPool) -> str | None:
        """Why fewer processes took part than there are workers."""
        if max(len(workers.processes), self.conversion.prior_processes) >= workers.count:
            return None
        if workers.remark or self.conversion.prior_remark:
            return workers.remark or self.conversion.prior_remark
        if not self.parts and not self.job.is_costly_per_row:
            return "these rows can only be read in sequence, and without map= other processes would not help"
        return "the work was done before others could take part"

    @property
    def tally(self) -> ProgressTally:
        """The progress of this thread."""
        return self._tallies.own

    @property
    def _has_dependent_parts(self) -> bool:
        """Whether a part cannot be encoded again without the others."""
        return not is_partitioned(self.job.source) or self.job.splits.stratify is not None

    # Map.

    def _map(self, workers: WorkerPool) -> list[CompletedPart]:
        if self.watch is not None:
            self.watch.phase("read", self.staging, self.conversion.rows)
        if not is_partitioned(self.job.source):
            return spill_sequentially(
                self.job,
                self.staging,
                workers,
                self._finished_sequence(),
                self.tally,
                known_rows=self.conversion.known_rows,
            )
        source: Any = self.job.source
        part_bytes = _choose_part_bytes(self.conversion.source_bytes)
        if self.conversion.reuse is None:
            self.parts = list(source.parts(part_bytes))
        else:
            self.parts, self.reused = self.conversion.reuse.plan_parts(self.job, self.staging, part_bytes)
        done = self.staging.map_waiting(self._finished_part, range(len(self.parts)))
        calls = [(i, (i, part)) for i, part in enumerate(self.parts) if done[i] is None]
        for i, part in self._map_calls(workers, calls):
            done[i] = part
        whole = [part for part in done if part is not None]
        assert len(whole) == len(done)
        return whole

    def _finished_sequence(self) -> list[CompletedPart]:
        """The finished parts of a sequential source, from the first on, each of which begins where another ends."""
        finished: list[CompletedPart] = []
        rows = 0
        while (part := self._finished_part(len(finished))) is not None and part.first_row == rows:
            finished.append(part)
            rows += part.rows
        return finished

    def _finished_part(self, number: int) -> CompletedPart | None:
        done = self.staging.read_done(self.staging.map_path(number, "done"), CompletedPart)
        if done is None or not _is_index_intact(self.staging, number, done):
            return None
        # An earlier run may have continued after a bad row that this one is to stop at.
        return None if done.rejected and self.job.on_bad_row == "stop" else done

    def _map_calls(self, workers: WorkerPool, calls: Sequence[Any]) -> Iterator[tuple[int, CompletedPart]]:
        """The parts as they finish. The error of the first bad row is raised once all parts before it are done."""
        failures: dict[int, Exception] = {}
        outstanding = {i for i, _ in calls}

        def inline(number: int, part: SourcePart) -> CompletedPart:
            if failures and number > min(failures):
                raise _PartNotNeeded
            return self._run_inline(encode_part, number, part)

        # The cost of a user's function is unknown, and often high.
        patient = self.job.function is None
        for i, result in workers.run(self._worker_task(encode_part), inline, calls, patient=patient):
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

    def _run_inline(self, task: Callable[..., Done], *arguments: Any) -> Done:
        done = task(self.job, self.staging, *arguments, self.tally)
        self.tally.next()
        return done

    def _worker_task(self, task: Callable[..., Done]) -> Callable[..., Done]:
        return partial(run_in_worker, task, self.packed, self.staging)

    # Cut.

    def _count_rows(self, done: Sequence[CompletedPart]) -> int:
        """The rows of the source, also if they are read as windows."""
        rows = getattr(self.job.source, "source_rows", None)
        return sum(part.rows for part in done) if rows is None else int(rows)

    def _check_rejects(self, done: Sequence[CompletedPart]) -> None:
        rows = self._count_rows(done)
        rejected = sum(part.rejected for part in done)
        records = sum(part.records for part in done)
        if rejected:
            _log.info("rejected %d of %d rows", rejected, rows)
        if not records:
            failure = no_rows_error(getattr(self.job.source, "root", None) or None)
            if rejected:
                failure.found = f"{rejected:,} rows, all of them bad"
                failure.do = f"fix the rows: {self._list_rejects(done)} lists the error of each"
            raise failure
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
                do=f"fix the rows listed in this file, or allow more: max_rejects={rejected}",
            )

    def _list_rejects(self, done: Sequence[CompletedPart]) -> str:
        """Write the list of bad rows of a conversion that fails here; its path."""
        path = os.path.join(self.staging.folder, REJECTS)
        lines = [
            read_bytes(self.staging.storage, self.staging.map_path(i, "rejects"))
            for i, part in enumerate(done)
            if part.rejected
        ]
        self.staging.write(path, b"".join(lines))
        return path

    def _stratified(self, done: list[CompletedPart]) -> list[CompletedPart]:
        """With stratified splits: the parts once each row has its split."""
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
        self.staging.write(self.staging.map_path(number, "split"), encode_arrow_file(table))
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
        for i, known in enumerate(self.staging.map_waiting(self._finished_shard, shards)):
            if known is not None:
                done[i] = known
        resumed = len(done)
        if resumed:
            _log.info("resuming: %d of %d shards were written by an earlier run", resumed, len(shards))
        while len(done) < len(shards):
            lost = None
            calls = [(i, (shard,)) for i, shard in enumerate(shards) if i not in done]
            threads = self._is_io_bound(parts)
            function = None if threads else self._worker_task(write_shard)
            inline = partial(self._run_inline, write_shard)
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

    def _finished_shard(self, shard: PlannedShard) -> CompletedShard | None:
        name = self.job.shard_name(shard.split, shard.number, shard.shards)
        return load_completed_shard(self.staging, name, self.staging.shard_done_path(shard.split, shard.number))

    def _remove_unneeded_spills(
        self,
        shards: Sequence[PlannedShard],
        parts: Sequence[CompletedPart],
        done: Mapping[int, CompletedShard],
    ) -> None:
        """Remove the spills that no shard needs any more; if shuffled, every shard needs all of them.

        A part that could not be encoded again by itself keeps its spill.
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
        """Whether shards are mostly read, hashed and written, which happens without Python's lock.

        Small shuffled records are gathered one by one, under the lock.
        """
        records = sum(part.records for part in parts)
        return not self.job.shuffle or _sum_framed_bytes(parts) >= _MIN_RECORD_BYTES * records

    def _again(self, number: int, known: CompletedPart) -> None:
        """Encode a part again whose frames were lost; the result must be the same."""
        if self._has_dependent_parts or number in self._rebuilt_parts:
            # What was computed from all parts together would have to be computed again, which the next run does; and
            # a third attempt does not repair what was lost twice.
            for kind in ("spent", "done"):
                self.staging.remove_file(self.staging.map_path(number, kind))
            raise error(
                "X518",
                location=Location(path=self.staging.map_path(number, "spill")),
                expected="the frames that this conversion wrote",
                found="other bytes, or none",
                do="run the same command again: it encodes this part again and resumes",
            )
        self._rebuilt_parts.add(number)
        self.staging.remove_file(self.staging.map_path(number, "spent"))
        made = encode_part(self.job, self.staging, number, self.parts[number], self.tally)
        if made.digest != known.digest:
            raise error(
                "X513",
                location=Location(path=getattr(self.job.source, "root", None) or None),
                expected="the rows that were read when the conversion started",
                found="different rows",
                do="fresh=True to start over",
            )


def _choose_part_bytes(source_bytes: int) -> int:
    """How much of a source one task reads: less of a small one, so that all workers have something to do.

    Independent of the number of workers: a run with another number must find the same parts finished.
    """
    return min(PART_BYTES, max(_MIN_PART_BYTES, source_bytes // _TARGET_PARTS))


def _sum_framed_bytes(parts: Sequence[CompletedPart]) -> int:
    return sum(segment.framed_bytes for part in parts for segment in part.segments)


class _PartNotNeeded(Exception):
    """A part after a bad row: its result will not be used."""


def _is_index_intact(staging: Staging, number: int, done: CompletedPart) -> bool:
    """Whether the index of a part, and its frames unless shards already took them, are as they were written."""
    try:
        index = read_bytes(staging.storage, staging.map_path(number, "index"))
    except DatasetError:
        return False
    if len(index) != done.index_bytes or int(_core.crc32c(index)) != done.index_crc:
        return False
    if staging.size_of(staging.map_path(number, "spent")) >= 0:
        return True
    return staging.size_of(staging.map_path(number, "spill")) == done.spill_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTarget:
    """Where a dataset is to be written, and by which plan."""

    out: str
    plan: ConversionPlan
    storage: Storage = ROUTED_STORAGE
    fresh: bool = False
    spills: str | None = None
    # Of rows that can be compared only by reading them all: their digest, as the manifest of the dataset has it.
    rows_digest: Callable[[], str] | None = None
    salt: str = ""  # of a conversion whose parts are not those of its plan alone

    @property
    def staging_id(self) -> str:
        """What names the staging."""
        return hashlib.sha256(f"{self.plan.id}{self.salt}".encode()).hexdigest() if self.salt else self.plan.id


@contextmanager
def open_staging(aim: OutputTarget) -> Iterator[tuple[Transaction, Staging | Manifest]]:
    """The locked output, and its staging as an earlier run left it; or the manifest, if the dataset is complete."""
    transaction = Transaction(aim.out, aim.storage)
    aim.storage.make_folder(transaction.parent)
    with transaction.lock():
        complete = find_complete_dataset(aim, transaction)
        if complete is not None:
            yield transaction, complete
            return
        staging = transaction.staging(aim.staging_id, spills=aim.spills)
        _check_stagings(aim, transaction, staging)
        staging.begin(MANIFEST_NAME)
        inside = [os.path.join(METADATA_FOLDER, below) for below in ("index", "blocks", ORIGINS_FOLDER)]
        staging.prepare(aim.plan.to_json(), *inside)
        with staging.counting():
            yield transaction, staging


def find_complete_dataset(aim: OutputTarget, transaction: Transaction) -> Manifest | None:
    """The manifest of the dataset if it exists already, None if nothing is in the way; raises otherwise."""
    storage, out = aim.storage, aim.out
    kind = transaction.find()
    if kind is None:
        return None
    if kind != "folder":
        raise _output_exists_error(out, "a file", "choose another output path")
    if not storage.list(out):
        return None
    if not exists(storage, manifest_path(out)):
        found = "a folder without a rekord manifest" if aim.fresh else "a folder with other files"
        raise _output_exists_error(out, found, "choose another output path, or an empty folder")
    if aim.fresh:
        transaction.check_replaceable()
        return None
    manifest = read_manifest(out, storage)
    overwrite = _OVERWRITE_HINT if transaction.is_replaceable else "choose another output path"
    if manifest.plan != aim.plan.id:
        source = manifest.source.fingerprint if aim.rows_digest is None else aim.plan.source
        theirs = {"options": manifest.options, "schema": manifest.schema, "format": manifest.format}
        differs = aim.plan.differences({**theirs, "source": source})
        many = len(differs) > 1 or differs[0].startswith("the files")
        raise _output_exists_error(
            out,
            f"a dataset with a different plan: {', '.join(differs)} {'differ' if many else 'differs'}",
            overwrite,
        )
    if aim.rows_digest is not None and aim.rows_digest() != manifest.source.fingerprint:
        raise _output_exists_error(out, "a dataset with the same options from different rows", overwrite)
    transaction.staging(aim.staging_id, spills=aim.spills).remove()
    remove_replaced(transaction)
    return manifest


_OVERWRITE_HINT = "fresh=True to overwrite it, or choose another output path"


def _output_exists_error(out: str, found: str, do: str) -> RekordError:
    return error(
        "U618",
        location=Location(path=out),
        expected="no file or folder, or what the same command wrote",
        found=found,
        do=do,
    )


def _check_stagings(aim: OutputTarget, transaction: Transaction, own: Staging) -> None:
    """Remove unfinished conversions to the same output if `fresh`, else refuse one with a different plan."""
    for other in transaction.stagings():
        if aim.fresh or (other.folder != own.folder and not other.has_finished_tasks()):
            other.remove()  # with `fresh`, or because there is nothing to resume
        elif other.folder != own.folder:
            differs = aim.plan.differences(other.plan())
            raise error(
                "U609",
                "unfinished conversion had a different plan",
                location=Location(path=aim.out),
                expected="the source, schema and options of the unfinished conversion",
                found=f"a difference in {', '.join(differs)}"[:120],
                do="fresh=True to start over, or run it with the earlier options to resume",
            )
    if aim.fresh:
        remove_tree(aim.storage, own.spills)


def build_manifest(
    plan: ConversionPlan,
    splits: dict[str, ManifestSplit],
    source: ManifestSource,
    *,
    version: str,
    parent: str | None,
) -> Manifest:
    """The manifest of a dataset before its companions are written."""
    return Manifest(
        format=MANIFEST_FORMAT,
        rekord=version,
        plan=plan.id,
        schema=dict(plan.schema),
        splits=splits,
        source=source,
        options=dict(plan.options),
        companions=[],
        parent=parent,
    )


def combine_row_digests(digests: Sequence[str]) -> str:
    """One digest for the rows of a source that has no files to compare."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def build_manifest_split(template: str, compression: str, done: Sequence[CompletedShard]) -> ManifestSplit:
    """A split of the manifest, from its completed shards."""
    records = sum(shard.records for shard in done)
    framed = sum(shard.framed_bytes for shard in done)
    classes: dict[str, dict[str, int]] = {}
    for shard in done:
        for column, counts in shard.classes.items():
            sums = classes.setdefault(column, {})
            for one, count in counts.items():
                sums[one] = sums.get(one, 0) + count
    return ManifestSplit(
        template=template,
        records=records,
        payload_bytes=framed - records * _core.FRAMING_BYTES,
        compression=compression,
        block_records=max(1, round(records * BLOCK_BYTES / framed)) if framed else 1,
        classes={
            column: dict(sorted(counts.items(), key=lambda one: int(one[0]))) for column, counts in classes.items()
        },
        shards=ManifestShards(
            records=[shard.records for shard in done],
            bytes=[shard.file_bytes for shard in done],
            digest=[shard.digest for shard in done],
            index=IndexChecksums(
                checksum=CHECKSUM,
                chunk_records=CHUNK_RECORDS,
                values=[checksum for shard in done for checksum in shard.index],
            ),
        ),
    )


def write_companions(
    staging: Staging,
    manifest: Manifest,
    parts: Sequence[CompletedPart],
    shards: Mapping[str, Sequence[CompletedShard]],
    companions: Companions,
    metadata: Mapping[str, bytes] | None = None,
) -> Manifest:
    """Write everything that goes next to the shards, and `metadata` into our own folder; the manifest comes last."""
    ours = os.path.join(staging.out, METADATA_FOLDER)
    for name, kind, count in (
        (REJECTS, "rejects", sum(part.rejected for part in parts)),
        (REMARKS, "remarks", sum(part.remarks for part in parts)),
    ):
        if count:
            _concatenate(staging, parts, kind, os.path.join(ours, name))
    for name, data in (metadata or {}).items():
        staging.write(os.path.join(ours, name), data, sync=True)
    blocks = os.path.join(ours, "blocks")
    splits = {}
    for name, done in shards.items():
        listed = _encode_block_list(done)
        staging.write(os.path.join(blocks, f"{name}.arrow"), listed, sync=True)
        digest = tag_sha256(hashlib.sha256(listed).hexdigest())
        splits[name] = msgspec.structs.replace(manifest.splits[name], blocks=digest)
    manifest = msgspec.structs.replace(manifest, splits=splits)
    files = companions(manifest)
    staging.announce(sorted(files))
    for name, data in files.items():
        staging.write(os.path.join(staging.out, name), data, sync=True)
    return msgspec.structs.replace(manifest, companions=sorted(files))


def _concatenate(staging: Staging, parts: Sequence[CompletedPart], kind: str, path: str) -> None:
    with staging.create(path, sync=True) as file:
        for number, part in enumerate(parts):
            if part.rejected if kind == "rejects" else part.remarks:
                file.write(read_bytes(staging.storage, staging.map_path(number, kind)))


def _encode_block_list(shards: Sequence[CompletedShard]) -> bytes:
    lines = [(i, record, offset) for i, shard in enumerate(shards) for record, offset in shard.blocks]
    table = pa.table(
        {
            "shard": pa.array([line[0] for line in lines], pa.uint32()),
            "record": pa.array([line[1] for line in lines], pa.uint32()),
            "offset": pa.array([line[2] for line in lines], pa.uint64()),
        }
    )
    return encode_arrow_file(table)


def commit(transaction: Transaction, staging: Staging, manifest: Manifest) -> str | None:
    """Publish the dataset in place of an older one; returns the folder in which files of others were left."""
    transaction.commit(staging, (MANIFEST_NAME, manifest.to_json()))
    staging.remove()
    return remove_replaced(transaction)


def remove_replaced(transaction: Transaction) -> str | None:
    """Remove replaced datasets; returns the folder of one that contains files of others."""
    storage = transaction.storage

    def remove(folder: str) -> str | None:
        # Without a manifest it is the remainder of an earlier removal.
        known = exists(storage, manifest_path(folder)) or not storage.list(folder)
        return remove_dataset(storage, folder) if known else None

    return transaction.remove_replaced(remove)


def remove_dataset(storage: Storage, folder: str) -> str | None:
    """Remove the files that a manifest lists. Other files stay; the folder, if any are left."""
    manifest = None
    with suppress(DatasetError):
        manifest = read_manifest(folder, storage)
    if manifest is not None:
        names = [name for split, part in manifest.splits.items() for name in part.names(split)]
        # The files in a folder that a link leads to are not the dataset's own: it may have come with a download.
        folders = {below: None for below in list_shard_folders(manifest.splits) if not _passes_link(folder, below)}
        own = [name for name in names if os.path.dirname(name) in folders]
        for path in [os.path.join(folder, name) for name in (*own, *manifest.companions)]:
            if exists(storage, path):
                storage.remove(path)
        for below in folders:
            inside = os.path.join(folder, below)
            remove_tree(storage, os.path.join(inside, METADATA_FOLDER))
            if below and exists(storage, inside) and not storage.list(inside):
                storage.remove_folder(inside)
        # Last: without it, nothing identifies the other files of the dataset.
        storage.remove(manifest_path(folder))
    if storage.list(folder):
        return folder
    storage.remove_folder(folder)
    return None


def _passes_link(folder: str, below: str) -> bool:
    """Whether a path below a folder leads through a link."""
    parts = below.split("/")
    return any(os.path.islink(os.path.join(folder, *parts[: i + 1])) for i in range(len(parts)))
