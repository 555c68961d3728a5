"""A conversion from its first look at the journal to the rename that shows the dataset.

    map       every part of the source is read, encoded and spilled
    cut       what the parts are together says where shards begin and end
    shard     every shard gathers its frames
    publish   the manifest is written, and the whole folder appears

Each step looks at what is finished already, so that the same command, after whatever ended it, goes on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from rekord import _core
from rekord.engines.conversion import Conversion, Outcome, Watch
from rekord.engines.cut import Shard, cut_split
from rekord.engines.elsewhere import map_elsewhere, packed, shard_elsewhere
from rekord.engines.journal import Lock, Staging, open_staging, read_bytes
from rekord.engines.local import Workers
from rekord.engines.place import Aim, links_followed, look_at_out, look_at_stagings
from rekord.engines.progress import Tally
from rekord.engines.publish import (
    REJECTS,
    manifest_of,
    rows_digest,
    show,
    write_companions,
)
from rekord.engines.serial import serial_digests, spill_serial
from rekord.engines.shard_file import ShardDone, finished_shard
from rekord.engines.spill import PartDone
from rekord.engines.stratify import Edges, edges_of, resplit
from rekord.engines.tasks import (
    SpillLost,
    index_kind,
    map_part,
    part_index,
    write_shard,
)
from rekord.errors import DatasetError, error
from rekord.location import Location
from rekord.sources.base import PART_BYTES, Part, is_parted
from rekord.storage.files import LOCAL

_LEAST_PART_BYTES = 4 << 20
_PARTS = 16
"""A source is cut into so many parts at the least, unless they would be smaller than that."""

_SMALL_BYTES = 4096
"""Of a record: below this, its handling costs more than its bytes."""


def convert(conversion: Conversion, watch: Watch | None = None) -> Outcome:
    """Run a conversion, or what is left of it."""
    storage = conversion.storage
    storage.make_folder(os.path.dirname(os.path.abspath(conversion.out)))
    job = conversion.job
    aim = links_followed(
        Aim(
            out=conversion.out,
            plan=conversion.plan,
            storage=storage,
            fresh=conversion.fresh,
            rows_digest=None if is_parted(job.source) else lambda: rows_digest(serial_digests(job)),
        )
    )
    conversion = replace(conversion, out=aim.out)
    with Lock(conversion.out):
        staging = open_staging(conversion.out, conversion.plan.id, storage, spills=conversion.spills)
        complete = look_at_out(aim, staging)
        if complete is not None:
            return Outcome(
                manifest=complete, rejects=None, remarks=None, resumed_shards=0, nothing_to_do=True
            )
        look_at_stagings(aim, staging)
        staging.prepare(conversion.plan.to_json())
        return _Run(conversion, staging, watch).run()


class _Run:
    """One run of a conversion: the driver, which holds sums and no rows."""

    def __init__(self, conversion: Conversion, staging: Staging, watch: Watch | None) -> None:
        self.conversion = conversion
        self.job = conversion.job
        self.staging = staging
        self.watch = watch
        self._tallies = threading.local()
        self.packed = b"" if conversion.workers == 1 else packed(self.job)
        self.parts: list[Part] = []
        self._made_again: set[int] = set()
        self._needed: dict[int, set[int]] | None = None  # which shards are still to be made of a part

    def run(self) -> Outcome:
        with Workers(self.conversion.workers) as workers:
            done = self._map(workers)
            self._check_rejects(done)
            done = self._stratified(done)
            shards = self._cut(done)
            finished, resumed = self._shards(workers, shards, done)
        manifest = manifest_of(self.job, self.conversion.plan, done, finished, self.conversion.version)
        manifest = msgspec.structs.replace(manifest, parent=self.conversion.parent)
        manifest = write_companions(self.staging, manifest, done, finished, self.conversion.companions)
        left = show(self.staging, self.conversion.out)
        ours = os.path.join(self.conversion.out, ".rekord")
        return Outcome(
            manifest=manifest,
            rejects=os.path.join(ours, REJECTS) if manifest.source.rejected else None,
            remarks=os.path.join(ours, "remarks.jsonl") if any(part.remarks for part in done) else None,
            resumed_shards=resumed,
            left=left,
        )

    @property
    def tally(self) -> Tally:
        """What this thread has done."""
        tally: Tally | None = getattr(self._tallies, "own", None)
        if tally is None:
            tally = Tally(self.staging.folder if self.conversion.storage is LOCAL else None)
            self._tallies.own = tally
        return tally

    @property
    def _made_together(self) -> bool:
        """Whether a part cannot be made again without the others."""
        return not is_parted(self.job.source) or self.job.splits.stratify is not None

    # Map.

    def _map(self, workers: Workers) -> list[PartDone]:
        if self.watch is not None:
            self.watch.phase("read", self.staging, self.conversion.rows)
        if not is_parted(self.job.source):
            return spill_serial(self.job, self.staging, self._finished_part, self.tally)
        source: Any = self.job.source
        self.parts = list(source.parts(_part_bytes(self.conversion.source_bytes)))
        done = [self._finished_part(number) for number in range(len(self.parts))]
        calls = [(i, (i, part)) for i, part in enumerate(self.parts) if done[i] is None]
        for i, part in self._map_calls(workers, calls):
            done[i] = part
        whole = [part for part in done if part is not None]
        assert len(whole) == len(done)
        return whole

    def _finished_part(self, number: int) -> PartDone | None:
        done = self.staging.read_done(self.staging.map_path(number, "done"), PartDone)
        if done is None or not _index_is_whole(self.staging, number, done):
            return None
        # An earlier run may have gone on after a bad row that this one is to stop at.
        return None if done.rejected and self.job.on_bad_row == "stop" else done

    def _map_calls(self, workers: Workers, calls: Sequence[Any]) -> Iterator[tuple[int, PartDone]]:
        """The parts as they are finished. The error of the first bad row is raised when all before it are done."""
        packed, folder, spills = self.packed, self.staging.folder, self.staging.spills
        bound = [(i, (packed, folder, spills, *arguments)) for i, arguments in calls]
        failures: dict[int, Exception] = {}
        outstanding = {i for i, _ in calls}

        def inline(_packed: bytes, _folder: str, _spills: str, number: int, part: Part) -> PartDone:
            if failures and number > min(failures):
                raise _NotNeeded
            done = map_part(self.job, self.staging, number, part, self.tally)
            self.tally.next()
            return done

        # What a function of the user costs is not known, and is often much.
        patient = self.job.function is None
        for i, result in workers.run(map_elsewhere, inline, bound, patient=patient):
            outstanding.discard(i)
            if isinstance(result, _NotNeeded):
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

    def _check_rejects(self, done: Sequence[PartDone]) -> None:
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

    def _list_rejects(self, done: Sequence[PartDone]) -> str:
        """The file in which the bad rows of a conversion that ends here are listed."""
        path = os.path.join(self.staging.folder, REJECTS)
        lines = [
            read_bytes(self.staging.storage, self.staging.map_path(i, "rejects"))
            for i, part in enumerate(done)
            if part.rejected
        ]
        self.staging.write(path, b"".join(lines))
        return path

    def _stratified(self, done: list[PartDone]) -> list[PartDone]:
        """With stratified splits: the parts as they are once each row knows its split."""
        rule = self.job.splits
        if rule.stratify is None:
            return done
        full = [i for i, part in enumerate(done) if part.records]

        def tables() -> Iterator[pa.Table]:
            return (part_index(self.staging, i, "index") for i in full)

        edges = edges_of(tables, rule)
        return [self._resplit(i, part, edges) if part.records else part for i, part in enumerate(done)]

    def _resplit(self, number: int, part: PartDone, edges: Edges) -> PartDone:
        table, segments = resplit(part_index(self.staging, number, "index"), part.segments, edges)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as file:
            file.write_table(table)
        self.staging.write(self.staging.map_path(number, "split"), sink.getvalue().to_pybytes())
        return msgspec.structs.replace(part, segments=segments)

    def _cut(self, done: Sequence[PartDone]) -> list[Shard]:
        kind = index_kind(self.job)
        index_of = lru_cache(maxsize=64)(lambda part: part_index(self.staging, part, kind))
        shards: list[Shard] = []
        for number, name in enumerate(self.job.splits.names):
            shards += cut_split(
                name, number, done, self.job.cut, shuffled=self.job.shuffle, index_of=index_of
            )
        return shards

    # Shards.

    def _shards(
        self, workers: Workers, shards: Sequence[Shard], parts: Sequence[PartDone]
    ) -> tuple[dict[str, list[ShardDone]], int]:
        if self.watch is not None:
            self.watch.phase("write", self.staging, _framed_bytes(parts))
        done: dict[int, ShardDone] = {}
        for i, shard in enumerate(shards):
            name = self.job.shard_name(shard.split, shard.number, shard.shards)
            known = finished_shard(
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

            def inline(_packed: bytes, _folder: str, _spills: str, shard: Shard) -> ShardDone:
                finished = write_shard(self.job, self.staging, shard, self.tally)
                self.tally.next()
                return finished

            threads = self._threads_will_do(parts)
            function = None if threads else shard_elsewhere
            for i, result in workers.run(function, inline, calls, threads=threads, patient=True):
                if isinstance(result, SpillLost):
                    lost = result.part
                    break
                if isinstance(result, Exception):
                    raise result
                done[i] = result
                self._let_go(shards, parts, done)
            if lost is not None:
                self._again(lost, parts[lost])
        split_shards: dict[str, list[ShardDone]] = {name: [] for name in self.job.splits.names}
        for i, shard in enumerate(shards):
            split_shards[shard.split].append(done[i])
        return split_shards, resumed

    def _let_go(
        self, shards: Sequence[Shard], parts: Sequence[PartDone], done: Mapping[int, ShardDone]
    ) -> None:
        """Remove the spills that no shard needs any more; shuffled, every shard needs all of them.

        A part that could not be made again by itself keeps its spill.
        """
        if self.job.shuffle or self._made_together:
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
            if self.staging.size_of(self.staging.map_path(part, "spill")) >= 0:
                self.staging.storage.remove(self.staging.map_path(part, "spill"))

    def _threads_will_do(self, parts: Sequence[PartDone]) -> bool:
        """Whether shards are mostly read, hashed and written, which other threads need not wait for.

        Small records that were shuffled are picked out one by one, and that they would wait for.
        """
        records = sum(part.records for part in parts)
        return not self.job.shuffle or _framed_bytes(parts) >= _SMALL_BYTES * records

    def _again(self, number: int, known: PartDone) -> None:
        """Make a part whose frames were lost once more; it must be what it was."""
        if self._made_together or number in self._made_again:
            # What was made of all parts together would have to be made again too, which the next run does; and
            # what is lost twice is not mended by a third time.
            for kind in ("spent", "done"):
                if self.staging.size_of(self.staging.map_path(number, kind)) >= 0:
                    self.staging.storage.remove(self.staging.map_path(number, kind))
            raise error(
                "X518",
                location=Location(path=self.staging.map_path(number, "spill")),
                expected="the frames that this conversion put there",
                found="other bytes, or none",
                do="run the same command again: it makes this part anew and goes on",
            )
        self._made_again.add(number)
        if self.staging.size_of(self.staging.map_path(number, "spent")) >= 0:
            self.staging.storage.remove(self.staging.map_path(number, "spent"))
        made = map_part(self.job, self.staging, number, self.parts[number], self.tally)
        if made.digest != known.digest:
            raise error(
                "X513",
                location=Location(path=getattr(self.job.source, "root", None) or None),
                expected="the rows that were read when the conversion began",
                found="other ones",
                do="run it again with --fresh (fresh=True)",
            )


def _part_bytes(source_bytes: int) -> int:
    """How much of a source one task reads: less of a small one, so that all workers have something to do.

    Not a matter of how many workers there are: another number of them must find the same parts finished.
    """
    return min(PART_BYTES, max(_LEAST_PART_BYTES, source_bytes // _PARTS))


def _framed_bytes(parts: Sequence[PartDone]) -> int:
    return sum(segment.framed_bytes for part in parts for segment in part.segments)


class _NotNeeded(Exception):
    """A part after a bad row: nobody will ask for it."""


def _index_is_whole(staging: Staging, number: int, done: PartDone) -> bool:
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
