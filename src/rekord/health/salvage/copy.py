"""Copy the intact records of a file past all damage; the rest is listed as gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from rekord import _core
from rekord.dataset.read import infer_compression, open_frames
from rekord.errors import CompressionError, FrameError, RekordError, error
from rekord.framing.deflate import FrameSink, open_frame_sink
from rekord.framing.frames import SEARCH_BYTES, FrameReader, VerifiedFrames
from rekord.framing.inflate import read_head
from rekord.framing.resync import FILE_START, EntryPoint, ResyncBudget, ResyncPoint, ResyncSearch
from rekord.health.finding import JsonFields
from rekord.storage.local import LOCAL, AsyncWriter, Readable, Storage, Writable

if TYPE_CHECKING:
    from typing_extensions import Buffer


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
    """Consecutive intact frames, in a buffer that the next step reuses."""

    frames: memoryview
    records: int
    resynchronised: bool  # there was a search since the last position that is known to begin a frame


class SalvageScan:
    """One pass over one file: `steps`, and what was found out about the file."""

    def __init__(self, path: str, storage: Storage = LOCAL) -> None:
        self.path = path
        self.failure: RekordError | None = None  # the first one
        self._storage = storage
        facts = storage.stat(path)
        self._sized = facts.kind == "file"
        self._file_bytes = facts.size_bytes
        self._search_bytes = min(max(SEARCH_BYTES, self._file_bytes), _MAX_SEARCHED_BYTES)
        self._reader = FrameReader(self._open(), path=path, sized=self._sized, search_bytes=self._search_bytes)
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
                    with memoryview(stretch.buffer)[slice(*_find_frame_bounds(stretch))] as frames:
                        yield IntactFrames(frames, len(stretch.extents), self._searched)
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
    """The report of a salvage while it is written."""

    def __init__(self, report: SalvageReport, on_gap: Callable[[Gap], None] | None = None) -> None:
        self.report = report
        self._on_gap = on_gap

    def take(self, gap: Gap) -> None:
        """Record a gap; `lost` has its cost."""
        if len(self.report.gaps) < MAX_GAPS:
            self.report.gaps.append(gap)
        else:
            self.report.not_listed += 1
        if self._on_gap is not None:
            self._on_gap(gap)

    def lost(self, records: int | None) -> None:
        """Count lost records of one file; None if their number is unknown."""
        so_far = self.report.lost_records
        self.report.lost_records = None if records is None or so_far is None else so_far + records


@dataclass(slots=True, kw_only=True)
class SalvagedFile:
    """The result for one file."""

    records: int = 0
    framed_bytes: int = 0
    gaps: int = 0
    lost: int | None = 0
    failure: RekordError | None = None  # the first, if there are gaps
    file_bytes: int | None = None  # None: no file was created
    sha256: str = ""


def salvage_file_records(
    path: str,
    create: Callable[[], Writable],
    ledger: SalvageLedger,
    storage: Storage = LOCAL,
    *,
    hashed: bool = False,
    empty_as: str | None = None,
) -> SalvagedFile:
    """Copy what is intact in a file to the one that `create` makes, which is left open.

    A file without an intact record creates none, unless it is intact and empty, or `empty_as` is the compression
    of an empty one.
    """
    ledger.report.files += 1
    whole = _find_intact_stream(path, storage)
    if whole is not None:
        return _copy_intact_stream(path, create(), whole, ledger, storage, hashed=hashed)
    kept = SalvagedFile()
    output: AsyncWriter | None = None
    sink: FrameSink | None = None
    with ExitStack() as stack:
        walk = stack.enter_context(SalvageScan(path, storage))
        for step in walk.steps():
            if isinstance(step, Gap):
                kept.gaps += 1
                kept.lost = _sum_or_none(kept.lost, step.lost_records)
                ledger.take(step)
                continue
            if sink is None:
                output = stack.enter_context(AsyncWriter(create(), hashed=hashed))
                sink = open_frame_sink(walk.compression, output.write)
            sink.write(step.frames)
            kept.records += step.records
            kept.framed_bytes += len(step.frames)
            _add_to_report(ledger, step.records, len(step.frames))
            ledger.report.resynchronised += step.records if step.resynchronised else 0
        kept.failure = walk.failure
        if sink is None and (not kept.gaps or empty_as is not None):
            output = stack.enter_context(AsyncWriter(create(), hashed=hashed))
            sink = open_frame_sink(empty_as if kept.gaps else walk.compression, output.write)
        if sink is not None and output is not None:
            sink.finish()
            output.finish()
            kept.file_bytes, kept.sha256 = output.n_bytes, output.sha256()
    return kept


def write_empty_file(file: Writable, compression: str) -> SalvagedFile:
    """A file without records."""
    with AsyncWriter(file, hashed=True) as output:
        open_frame_sink(compression, output.write).finish()
        output.finish()
    return SalvagedFile(file_bytes=output.n_bytes, sha256=output.sha256())


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
    path: str, file: Writable, kept: SalvagedFile, ledger: SalvageLedger, storage: Storage, *, hashed: bool
) -> SalvagedFile:
    with AsyncWriter(file, hashed=hashed) as output:
        copy_file_bytes(path, output.write, storage)
        output.finish()
    _add_to_report(ledger, kept.records, kept.framed_bytes)
    kept.file_bytes, kept.sha256 = output.n_bytes, output.sha256()
    return kept


def copy_file_bytes(path: str, write: Callable[[Buffer], object], storage: Storage) -> None:
    """Copy a whole file unchanged."""
    buffer = bytearray(_COPY_BYTES)
    with storage.open_read(path) as file, memoryview(buffer) as view:
        while count := file.readinto(view):
            write(view[:count])


def _add_to_report(ledger: SalvageLedger, records: int, framed_bytes: int) -> None:
    ledger.report.kept += records
    ledger.report.payload_bytes += framed_bytes - records * _core.FRAMING_BYTES


def _sum_or_none(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
