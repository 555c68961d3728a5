"""`rk.salvage`: every intact record into a new file or dataset, and a list of what is lost."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
import numpy as np

from rekord import _core
from rekord.arguments import as_path, check_keywords
from rekord.codec.columns import Optional
from rekord.codes import CODES
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestShards,
    ManifestSplit,
    manifest_path,
    read_manifest,
)
from rekord.dataset.read import infer_compression, list_record_files, open_frames
from rekord.dataset.readers.pipeline import OrderedWork
from rekord.errors import CompressionError, FrameError, RekordError, error
from rekord.framing.deflate import FrameSink, open_frame_sink
from rekord.framing.frames import SEARCH_BYTES, FrameReader, VerifiedFrames
from rekord.framing.inflate import read_head
from rekord.framing.resync import FILE_START, EntryPoint, ResyncBudget, ResyncPoint, ResyncSearch
from rekord.health.finding import JsonFields
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.interop.tfds import INFO_NAME
from rekord.storage.local import AsyncWriter, PathLike, Readable, Storage, Writable
from rekord.storage.publication import exists, kind_at, read_bytes
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import StagedFolder, Transaction, publish

if TYPE_CHECKING:
    from typing_extensions import Buffer


FileJob = TypeVar("FileJob")

_MAX_SEARCHED_BYTES = 2 << 30  # the longest protobuf message
FOREIGN_CODES = ("C205", "F110", "F111", "F112", "F113", "F114", "F115", "F116", "F117", "F118", "F119")
"""The codes for a file of another format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(JsonFields):
    """Bytes that belong to no intact record.

    `begin` and `end` are offsets in the decompressed stream, as far as that can be decompressed: a part that
    cannot has no length there, and `compressed_begin` and `compressed_end` are its location in the file.
    `left_by` is how reading resumed after it: "skip" if the length of the one broken record is reliable,
    "search" if the next record was found by its checksums alone, None if nothing follows.
    """

    path: str
    begin: int
    end: int
    message: str
    code: str
    record: int | None = None
    lost_records: int | None = None  # None: unknown
    left_by: Literal["skip", "search"] | None = None
    compressed_begin: int | None = None
    compressed_end: int | None = None


@dataclass(frozen=True, slots=True)
class IntactFrames:
    """Consecutive intact frames, in a buffer that the next step may reuse."""

    frames: memoryview
    records: int
    resynchronised: bool  # there was a search since the last position that is known to begin a frame


class SalvageScan:
    """One pass over one file: `steps`, and what was found out about the file.

    Without `reuse`, the frames of a file that is not compressed stay valid after their step.
    """

    def __init__(self, path: str, storage: Storage = ROUTED_STORAGE, *, reuse: bool = True) -> None:
        self.path = path
        self.failure: RekordError | None = None  # the first one
        self._storage = storage
        facts = storage.stat(path)
        self._sized = facts.kind == "file"
        self._file_bytes = facts.size_bytes
        self._search_bytes = min(max(SEARCH_BYTES, self._file_bytes), _MAX_SEARCHED_BYTES)
        self._reader = FrameReader(
            self._open(), path=path, sized=self._sized, search_bytes=self._search_bytes, reuse=reuse
        )
        self.compression = self._reader.compression
        self._entry = FILE_START
        self._reentries: ResyncSearch | None = None
        self._budget = ResyncBudget()
        self._base = 0  # offset of the reader's first byte
        self._first_record = 0
        self._runs = 0
        self._gaps = 0
        self._searched = False

    def __enter__(self) -> SalvageScan:
        return self

    def __exit__(self, *failure: object) -> None:
        self._reader.close()
        if self._reentries is not None:
            self._reentries.close()

    def steps(self) -> Iterator[IntactFrames | Gap]:
        """The intact frames and the gaps between them, in file order."""
        resumes = True
        while resumes:
            resumes = False
            try:
                for stretch in self._reader.iter_verified_frames():
                    self._runs += 1
                    frames = stretch.buffer[slice(*_find_frame_bounds(stretch))]
                    yield IntactFrames(frames, len(stretch.extents), self._searched)
                    del frames, stretch  # their memory can be read into again
            except (FrameError, CompressionError) as failure:
                gap, resumes = self._skip_failure(failure)
                # The checksum of the whole stream is wrong because of damage that was already reported.
                if not (self._gaps and gap.code == "C204" and gap.lost_records == 0):
                    yield gap
                self._gaps += 1

    def _skip_failure(self, failure: RekordError) -> tuple[Gap, bool]:
        """The gap at a failure, and whether anything follows it."""
        reader, offset = self._reader, self._reader.offset
        begin, record = self._base + offset, self._first_record + reader.record
        reported, resumes = reader.recover(failure)
        if isinstance(failure, CompressionError) or reported.code in FOREIGN_CODES:
            # Frames may precede the damage, or follow bytes that only look like another format.
            resumes = reader.resume() is not None
            reported = failure if resumes else reported
        if self.failure is None:
            self.failure = reported
        if reader.left_by == "skip":
            gap = self._gap(reported, begin, self._base + reader.offset, record)
            return replace(gap, lost_records=1, left_by="skip"), resumes
        reentry = self._reentry(offset, reader.offset if resumes else None)
        if reentry is not None:
            return self._enter(reentry, reported, begin, record), True
        gap = self._gap(reported, begin, self._base + reader.offset, record)
        if resumes:
            self._searched = True
            return replace(gap, left_by="search"), True
        if self.compression != "none":
            gap = replace(gap, compressed_end=self._file_bytes if self._sized else None)
        return replace(gap, lost_records=_count_lost_records(gap, self._file_bytes)), False

    def _gap(self, reported: RekordError, begin: int, end: int, record: int) -> Gap:
        compressed = reported.location.compressed_offset
        if compressed is None and self._reentries is not None:
            compressed = self._reentries.damage_offset
        return Gap(
            path=self.path,
            begin=begin,
            end=end,
            message=reported.what,
            code=reported.code,
            record=record,
            compressed_begin=compressed,
        )

    def _reentry(self, offset: int, found: int | None) -> ResyncPoint | None:
        """Another position in a compressed file to resume from, if that recovers more than the stream itself."""
        if not self._sized:
            return None
        if self.compression != "none":
            if self._reentries is None:
                self._reentries = self._places(self.compression, self._entry)
            return self._reentries.after(offset, found)
        if offset or self._runs or (found is not None and not self._is_probably_compressed()):
            return None
        # Perhaps a compressed file whose first bytes are damaged. Frames that are stored in it as they are, in
        # parts that compression did not shorten, are not all of it.
        names = ("zlib", "gzip") if infer_compression(self.path) == "zlib" else ("gzip", "zlib")
        first: ResyncPoint | None = None
        for compression in names:
            with closing(self._places(compression, FILE_START)) as places:
                reentry = places.after(0, None)
            if reentry is None:
                continue
            if first is None or reentry.entry.compressed_offset < first.entry.compressed_offset:
                first, reentry = reentry, first
                self.compression = compression
            if reentry is not None:
                reentry.reader.close()
        return first

    def _is_probably_compressed(self) -> bool:
        with self._open() as file:
            head = read_head(file, 3)
        alike = sum(one == other for one, other in zip(head, b"\x1f\x8b\x08", strict=False))
        return alike >= 2 or head[:1] == b"\x78" or head[1:2] in (b"\x01", b"\x5e", b"\x9c", b"\xda")

    def _enter(self, reentry: ResyncPoint, reported: RekordError, begin: int, record: int) -> Gap:
        """Resume from another position in the compressed file."""
        if not isinstance(reported, CompressionError):
            reported = error("C201", location=reported.location)
        gap = self._gap(reported, begin, begin, record)
        old, self._reader = self._reader, reentry.reader
        # The bytes of a file that only looked uncompressed are not part of the stream.
        read_bytes = 0 if old.compression == "none" else old.offset
        old.close()
        if self._reentries is not None:
            self._reentries.close()
            self._reentries = None
        self._base += read_bytes if reentry.offset is None else reentry.offset
        self._first_record = record + 1
        self._entry = reentry.entry
        self._searched = True
        gap = replace(
            gap,
            end=self._base + self._reader.offset,
            left_by="search",
            compressed_begin=gap.compressed_begin or 0,
            compressed_end=reentry.entry.compressed_offset,
        )
        return replace(gap, lost_records=_count_lost_records(gap, reentry.entry.compressed_offset))

    def _places(self, compression: str, entry: EntryPoint) -> ResyncSearch:
        return ResyncSearch(
            self._open,
            path=self.path,
            compression=compression,
            entry=entry,
            search_bytes=self._search_bytes,
            budget=self._budget,
        )

    def _open(self) -> Readable:
        return self._storage.open_read(self.path)


def _count_lost_records(gap: Gap, compressed_end: int) -> int | None:
    """0 lost records if every frame up to a position was intact: each has two checksums of its own.

    Then only the checksum of the whole stream is wrong, which takes at most eight bytes.
    """
    if gap.code != "C204" or gap.begin != gap.end or gap.compressed_begin is None:
        return None
    return 0 if compressed_end - gap.compressed_begin <= 8 else None


def _find_frame_bounds(stretch: VerifiedFrames) -> tuple[int, int]:
    """The offsets of consecutive frames in their buffer."""
    extents = stretch.extents
    last = len(extents) - 1
    return extents.offset(0), extents.offset(last) + extents.length(last) + _core.FRAMING_BYTES


MAX_GAPS = 100_000
"""Maximum number of listed gaps; further ones are counted."""

_COPY_BYTES = 1 << 20
_MIN_BORROWED_BYTES = 1 << 16


@dataclass(slots=True, kw_only=True)
class SalvageReport:
    """What a salvage kept, and what it lost.

    `lost_records` is None if unknown. `resynchronised` counts the kept records that are identified only by their
    checksums, because an earlier record was found by search: a payload that contains whole frames can yield some
    that were not records of the file.
    """

    out: str = ""
    files: int = 0
    kept: int = 0
    payload_bytes: int = 0
    resynchronised: int = 0
    lost_records: int | None = 0
    gaps: list[Gap] = field(default_factory=list)
    not_listed: int = 0

    @property
    def ok(self) -> bool:
        """True if everything was intact."""
        return not self.gaps

    @property
    def records(self) -> int:
        """The same as `kept`."""
        return self.kept

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "ok": self.ok,
            "out": self.out,
            "files": self.files,
            "kept": self.kept,
            "lost_records": self.lost_records,
            "resynchronised": self.resynchronised,
            "not_listed": self.not_listed,
            "gaps": [gap.to_dict() for gap in self.gaps],
        }


class SalvageLedger:
    """The report of a salvage while it is written, by several threads."""

    def __init__(self, report: SalvageReport, on_gap: Callable[[Gap], None] | None = None) -> None:
        self.report = report
        self.is_stopped = False
        self._on_gap = on_gap
        self._lock = threading.Lock()

    def take(self, gap: Gap) -> None:
        """Record a gap; `lost` has its cost."""
        if len(self.report.gaps) < MAX_GAPS:
            self.report.gaps.append(gap)
        else:
            self.report.not_listed += 1
        if self._on_gap is not None:
            self._on_gap(gap)

    def begin_file(self) -> None:
        """Count a file."""
        with self._lock:
            self.report.files += 1

    def keep(self, records: int, framed_bytes: int, *, resynchronised: bool = False) -> None:
        """Count kept records."""
        with self._lock:
            self.report.kept += records
            self.report.payload_bytes += framed_bytes - records * _core.FRAMING_BYTES
            self.report.resynchronised += records if resynchronised else 0

    def lost(self, records: int | None) -> None:
        """Count lost records of one file; None if their number is unknown."""
        with self._lock:
            self.report.lost_records = _sum_or_none(self.report.lost_records, records)


class _FileLedger:
    """The ledger of one of several files that are read at once: its gaps wait for their turn."""

    def __init__(self, ledger: SalvageLedger) -> None:
        self._ledger = ledger
        self._gaps: list[Gap] = []
        self._more = 0
        self.begin_file, self.keep, self.lost = ledger.begin_file, ledger.keep, ledger.lost

    @property
    def is_stopped(self) -> bool:
        return self._ledger.is_stopped

    def take(self, gap: Gap) -> None:
        """Hold a gap until `close`."""
        if len(self._gaps) < MAX_GAPS:
            self._gaps.append(gap)
        else:
            self._more += 1

    def close(self) -> None:
        """Record the gaps of the file."""
        for gap in self._gaps:
            self._ledger.take(gap)
        self._ledger.report.not_listed += self._more


AnyLedger: TypeAlias = "SalvageLedger | _FileLedger"
_THREADS = 2


def _salvage_each(
    files: Sequence[FileJob], salvage_one: Callable[[FileJob, AnyLedger], SalvagedFile], ledger: SalvageLedger
) -> list[SalvagedFile]:
    """The results for several files, two of which are read and written at once; their gaps are in order."""
    if len(files) < _THREADS:
        return [salvage_one(file, ledger) for file in files]
    waiting = iter(files)

    def salvage_next(job: FileJob) -> tuple[_FileLedger, SalvagedFile]:
        own = _FileLedger(ledger)
        return own, salvage_one(job, own)

    work: OrderedWork[FileJob, tuple[_FileLedger, SalvagedFile]] = OrderedWork(
        lambda: next(waiting, None), salvage_next, threads=_THREADS, ahead=_THREADS, name="rekord-salvage"
    )
    results = []
    try:
        for own, kept in iter(lambda: next(work, None), None):
            own.close()
            results.append(kept)
    finally:
        ledger.is_stopped = True
        work.close()
        ledger.is_stopped = False
    return results


@dataclass(slots=True, kw_only=True)
class SalvagedFile:
    """The result for one file."""

    records: int = 0
    framed_bytes: int = 0
    gaps: int = 0
    lost: int | None = 0
    failure: RekordError | None = None  # the first, if there are gaps
    file_bytes: int | None = None  # None: no file was created
    digest: str = ""


def salvage_file_records(
    path: str,
    create: Callable[[], Writable],
    ledger: AnyLedger,
    storage: Storage = ROUTED_STORAGE,
    *,
    hashed: bool = False,
    empty_as: str | None = None,
) -> SalvagedFile:
    """Copy what is intact in a file to the one that `create` makes, which is left open.

    A file without an intact record creates none, unless it is intact and empty, or `empty_as` is the compression
    of an empty one.
    """
    ledger.begin_file()
    inline = isinstance(ledger, _FileLedger)  # the other thread is busy with another file
    whole = _find_intact_stream(path, storage)
    if whole is not None:
        return _copy_intact_stream(path, create(), whole, ledger, storage, hashed=hashed)
    kept = SalvagedFile()
    output: AsyncWriter | None = None
    sink: FrameSink | None = None
    with ExitStack() as stack:
        walk = stack.enter_context(SalvageScan(path, storage, reuse=inline))
        for step in walk.steps():
            if ledger.is_stopped:
                break
            if isinstance(step, Gap):
                kept.gaps += 1
                kept.lost = _sum_or_none(kept.lost, step.lost_records)
                ledger.take(step)
                continue
            if sink is None:
                output = stack.enter_context(AsyncWriter(create(), hashed=hashed, inline=inline))
                sink = open_frame_sink(walk.compression, partial(_write_piece, output))
            sink.write(step.frames)
            kept.records += step.records
            kept.framed_bytes += len(step.frames)
            ledger.keep(step.records, len(step.frames), resynchronised=step.resynchronised)
            del step  # its memory can be read into again
        kept.failure = walk.failure
        if sink is None and (not kept.gaps or empty_as is not None):
            output = stack.enter_context(AsyncWriter(create(), hashed=hashed))
            sink = open_frame_sink(empty_as if kept.gaps else walk.compression, output.write)
        if sink is not None and output is not None:
            sink.finish()
            output.finish()
            kept.file_bytes, kept.digest = output.n_bytes, output.digest
    return kept


def _write_piece(output: AsyncWriter, data: Buffer) -> None:
    """Write bytes that stay as they are: small pieces are gathered, large ones are not copied."""
    if memoryview(data).nbytes < _MIN_BORROWED_BYTES:
        output.write(data)
    else:
        output.write_borrowed(data)


def write_empty_file(file: Writable, compression: str) -> SalvagedFile:
    """A file without records."""
    with AsyncWriter(file, hashed=True) as output:
        open_frame_sink(compression, output.write).finish()
        output.finish()
    return SalvagedFile(file_bytes=output.n_bytes, digest=output.digest)


def _find_intact_stream(path: str, storage: Storage) -> SalvagedFile | None:
    """The content of a compressed file if all of it is intact, so that it can be copied without recompression."""
    if storage.stat(path).kind != "file":
        return None
    kept = SalvagedFile()
    with open_frames(path, storage) as reader:
        if reader.compression == "none":
            return None
        try:
            for stretch in reader.iter_verified_frames():
                kept.records += len(stretch.extents)
        except (FrameError, CompressionError):
            return None
        kept.framed_bytes = reader.offset
    return kept


def _copy_intact_stream(
    path: str, file: Writable, kept: SalvagedFile, ledger: AnyLedger, storage: Storage, *, hashed: bool
) -> SalvagedFile:
    with AsyncWriter(file, hashed=hashed) as output:
        copy_file_bytes(path, output.write, storage)
        output.finish()
    ledger.keep(kept.records, kept.framed_bytes)
    kept.file_bytes, kept.digest = output.n_bytes, output.digest
    return kept


def copy_file_bytes(path: str, write: Callable[[Buffer], object], storage: Storage) -> None:
    """Copy a whole file unchanged."""
    buffer = bytearray(_COPY_BYTES)
    with storage.open_read(path) as file, memoryview(buffer) as view:
        while count := file.readinto(view):
            write(view[:count])


def _sum_or_none(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


_BATCH_RECORDS = 4096
_MAX_INFO_BYTES = 64 << 20


def read_usable_manifest(folder: str, ledger: SalvageLedger, storage: Storage) -> Manifest | None:
    """The manifest of a folder; if it is unusable, it is a gap, and shards are identified by name."""
    if not exists(storage, manifest_path(folder)):
        return None
    try:
        manifest = read_manifest(folder, storage)
        Schema.from_dict(manifest.schema)
    except RekordError as failure:
        if failure.code.startswith("X50"):
            raise
        ledger.take(_build_lost_file_gap(folder, MANIFEST_NAME, storage, failure.code))
        return None
    return manifest


@dataclass(frozen=True)
class DatasetSalvage:
    """The salvage of a dataset to another folder."""

    folder: str
    manifest: Manifest
    ledger: SalvageLedger
    storage: Storage
    staging: StagedFolder

    def run(self) -> None:
        """Write the shards, their companions, and the manifest."""
        splits = {name: self._split(name, part) for name, part in self.manifest.splits.items()}
        companions = [name for name in self.manifest.companions if self._companion(name, splits)]
        parent = hashlib.sha256(read_bytes(self.storage, manifest_path(self.folder))).hexdigest()
        manifest = msgspec.structs.replace(
            self.manifest,
            # Not from a conversion: none may mistake it for its own output.
            plan=hashlib.sha256(f"salvage {parent}".encode()).hexdigest(),
            splits=splits,
            companions=companions,
            parent=parent,
        )
        self.staging.put_last(MANIFEST_NAME, manifest.to_json())

    def _split(self, split: str, part: ManifestSplit) -> ManifestSplit:
        names = part.names(split)
        kept = _salvage_each(
            list(zip(names, part.shards.records, strict=True)),
            lambda job, ledger: self._shard(*job, part.compression, ledger),
            self.ledger,
        )
        records = [one.records for one in kept]
        total, framed = sum(records), sum(one.framed_bytes for one in kept)
        same = records == part.shards.records
        return msgspec.structs.replace(
            part,
            blocks=None,  # neither these nor the indexes are salvaged
            records=total,
            payload_bytes=framed - total * _core.FRAMING_BYTES,
            block_records=max(1, round(total * BLOCK_BYTES / framed)) if framed else 1,
            classes=part.classes if same else self._classes(list(part.classes), names),
            shards=ManifestShards(
                records=records,
                bytes=[one.file_bytes or 0 for one in kept],
                digest=[one.digest for one in kept],
            ),
        )

    def _shard(self, name: str, expected: int, compression: str, ledger: AnyLedger) -> SalvagedFile:
        path = os.path.join(self.folder, name)
        files: list[Writable] = []

        def create() -> Writable:
            files.append(self.staging.create(name))
            return files[0]

        if exists(self.storage, path):
            kept = salvage_file_records(path, create, ledger, self.storage, hashed=True, empty_as=compression)
        else:
            kept = write_empty_file(create(), compression)
            ledger.begin_file()
            ledger.take(Gap(path=path, begin=0, end=0, message=CODES["X501"], code="X501", lost_records=expected))
            kept.gaps = 1
        self.staging.close(files[0])
        lost = expected - kept.records
        if lost > 0 and not kept.gaps:
            # Truncated between two records, which only the manifest reveals.
            end = kept.framed_bytes
            message = CODES["X541"]
            ledger.take(
                Gap(
                    path=path,
                    begin=end,
                    end=end,
                    message=message,
                    code="X541",
                    record=kept.records,
                    lost_records=lost,
                )
            )
        ledger.lost(lost if lost >= 0 else kept.lost)
        return kept

    def _classes(self, columns: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, int]]:
        """The number of remaining records of each class; empty if a record does not fit the schema."""
        schema = Schema.from_dict(self.manifest.schema)
        labels = [name for name in columns if name in schema and schema[name].class_count is not None]
        sums: dict[str, dict[int, int]] = {name: {} for name in labels}
        paths = [os.path.join(self.staging.folder, name) for name in names]
        try:
            # All of these files are one split, whatever splits their names suggest.
            files = open_dataset(paths, schema, allow_missing=True).splits.values()
            for batch in chain.from_iterable(
                one.batches(_BATCH_RECORDS, columns=labels, prefetch=0, threads=1) for one in files
            ):
                for name in labels:
                    found, counts = np.unique(_select_present(batch[name]), return_counts=True)
                    for one, count in zip(found.tolist(), counts.tolist(), strict=True):
                        sums[name][one] = sums[name].get(one, 0) + count
        except RekordError:
            return {}
        return {name: {str(one): count for one, count in sorted(counts.items())} for name, counts in sums.items()}

    def _companion(self, name: str, splits: dict[str, ManifestSplit]) -> bool:
        """Copy a companion of the shards; False if it is lost."""
        path = os.path.join(self.folder, name)
        if not exists(self.storage, path):
            self.ledger.take(_build_lost_file_gap(self.folder, name, self.storage, "X501"))
            return False
        if name == INFO_NAME:
            short = self.storage.stat(path).size_bytes <= _MAX_INFO_BYTES
            info = _update_info_counts(read_bytes(self.storage, path), splits) if short else None
            if info is None:
                self.ledger.take(_build_lost_file_gap(self.folder, name, self.storage, "X536"))
                return False
            file = self.staging.create(name)
            file.write(info)
            self.staging.close(file)
            return True
        file = self.staging.create(name)
        copy_file_bytes(path, file.write, self.storage)
        self.staging.close(file)
        return True


def _select_present(column: Any) -> Any:
    return column.values[column.valid] if isinstance(column, Optional) else column


def _update_info_counts(data: bytes, splits: dict[str, ManifestSplit]) -> bytes | None:
    """A dataset_info.json with updated counts; None if it is damaged."""
    try:
        info = json.loads(data)
        for split in info["splits"]:
            part = splits[split["name"]]
            split["shardLengths"] = [str(records) for records in part.shards.records]
            split["numBytes"] = str(part.payload_bytes)
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return (json.dumps(info, indent=4, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _build_lost_file_gap(folder: str, name: str, storage: Storage, code: str) -> Gap:
    path = os.path.join(folder, name)
    size_bytes = storage.stat(path).size_bytes if exists(storage, path) else 0
    return Gap(path=path, begin=0, end=size_bytes, message=CODES[code], code=code, lost_records=0)


_GLOB_CHARACTERS = re.compile(r"[*?[]")


@check_keywords
def salvage(src: PathLike, out: PathLike) -> SalvageReport:
    """Copy every intact record of `src` to `out`, and report the gaps between them.

    A file becomes a file, a folder or pattern a folder with the same names; a dataset with a manifest becomes a
    dataset again. Frames are copied unchanged, with the same compression. Reading resumes after damage, also inside
    gzip and zlib if there is an entry point. `out` appears once it is complete; `src` is never changed. Raises if no
    record is intact.
    """
    return salvage_into(src, out, SalvageReport())


def salvage_into(
    src: PathLike,
    out: PathLike,
    report: SalvageReport,
    *,
    on_gap: Callable[[Gap], None] | None = None,
    storage: Storage = ROUTED_STORAGE,
) -> SalvageReport:
    """`salvage` with a report that is updated while it runs."""
    do = 'rk.salvage("data", "data-repaired")'
    source, target = (as_path(name, path, expected="one path", do=do) for name, path in (("src", src), ("out", out)))
    kind = kind_at(storage, source)
    _check_paths(source, target, kind, storage)
    report.out = target
    ledger = SalvageLedger(report, on_gap)
    if kind == "folder" or (kind is None and _GLOB_CHARACTERS.search(source)):
        _salvage_folder(source, target, ledger, storage, is_folder=kind == "folder")
    else:
        (path,) = list_record_files(source)
        _salvage_file(path, target, ledger, storage)
    return report


def _salvage_file(path: str, out: str, ledger: SalvageLedger, storage: Storage) -> None:
    # Staged before anything is read: an output that cannot be written is reported immediately.
    with publish(out, storage) as file:
        kept = salvage_file_records(path, lambda: file, ledger, storage)
        ledger.lost(kept.lost)
        if kept.file_bytes is None:
            raise _nothing_salvaged_error(path, kept)


def _salvage_folder(source: str, out: str, ledger: SalvageLedger, storage: Storage, *, is_folder: bool) -> None:
    manifest = read_usable_manifest(source, ledger, storage) if is_folder else None
    paths = [] if manifest is not None else list_record_files(source)
    root = source if is_folder else _get_fixed_prefix(source)
    last = None if manifest is None else MANIFEST_NAME
    with Transaction(out, storage).folder("salvage", last=last) as staging:
        if manifest is not None:
            DatasetSalvage(source, manifest, ledger, storage, staging).run()
        kept = _salvage_each(
            paths,
            lambda path, own: _salvage_into_folder(staging, path, os.path.relpath(path, root), own, storage),
            ledger,
        )
        if ledger.report.gaps and not ledger.report.kept:
            # A single file may give a more specific error than all of them together.
            raise (
                _nothing_salvaged_error(paths[0], kept[0])
                if len(kept) == 1
                else _nothing_salvaged_error(source, None)
            )


def _salvage_into_folder(
    staging: StagedFolder, path: str, name: str, ledger: AnyLedger, storage: Storage
) -> SalvagedFile:
    files: list[Writable] = []

    def create() -> Writable:
        files.append(staging.create(name))
        return files[0]

    kept = salvage_file_records(path, create, ledger, storage)
    ledger.lost(kept.lost)
    for file in files:
        staging.close(file)
    return kept


def _nothing_salvaged_error(path: str, kept: SalvagedFile | None) -> RekordError:
    failure = None if kept is None else kept.failure
    if failure is not None and failure.code in (*FOREIGN_CODES, "F120"):
        return failure
    return error(
        "X540",
        location=Location(path=path),
        expected="a record with two valid checksums",
        found="none in any file" if failure is None else f"{failure.code}: {failure.what}",
        do=f"copy it again from its source; `rekord check {path}` reports what is wrong with each file",
    )


def _check_paths(source: str, out: str, kind: str | None, storage: Storage) -> None:
    """Refuse an output where something could be overwritten, or read and written at once."""
    ours, theirs = storage.real(source), storage.real(out)
    found = None
    if ours == theirs:
        found = "the same path"
    elif theirs.startswith(os.path.join(ours, "")) and kind == "folder":
        found = "an output inside the input"
    elif ours.startswith(os.path.join(theirs, "")):
        found = "an input inside the output"
    if found is not None:
        raise error(
            "U631",
            "output and input overlap",
            location=Location(path=out),
            expected="two paths, neither inside the other",
            found=found,
            do="choose another output path: salvage never works in place",
        )
    taken = Transaction(out, storage).find()
    if taken is not None:
        raise error(
            "U618",
            location=Location(path=out),
            expected="nothing yet",
            found={"file": "a file", "folder": "a folder"}.get(taken, "something that is not a file"),
            do="choose another output path, or move the existing one first",
        )
    if kind not in (None, "folder") and out.endswith(os.sep):
        raise error(
            "U605",
            "output must be a file, because the input is one",
            location=Location(path=out),
            expected="the name of a new file, because the input is a file",
            found="the name of a folder",
            do=f"choose {os.path.join(out, os.path.basename(source))}",
        )


def _get_fixed_prefix(pattern: str) -> str:
    """The folder before the first part of a path that is a pattern."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts) if _GLOB_CHARACTERS.search(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
