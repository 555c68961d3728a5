"""The intact records of one file on their way to another: whole runs of frames, as they stand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rekord import _core
from rekord.dataset.read import open_frames
from rekord.errors import CompressionError, FrameError, RekordError
from rekord.health.salvage_walk import Gap, Walk
from rekord.records.compress import FrameSink, frame_sink
from rekord.storage.behind import Output
from rekord.storage.files import LOCAL, Storage, Writable

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAX_GAPS = 100_000
"""So many gaps are listed; the rest is counted."""

_COPY_BYTES = 1 << 20


@dataclass(slots=True, kw_only=True)
class SalvageReport:
    """What a salvage kept, and what it could not.

    `lost_records` is None where that cannot be known. `resynchronised` counts the kept records that are known
    only by their checksums, because the place of one before them was found by search: a payload that holds whole
    frames can bring some forth that were no records of the file.
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
        """True where everything was intact."""
        return not self.gaps

    @property
    def records(self) -> int:
        """The same as `kept`."""
        return self.kept

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON holds it."""
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


class Ledger:
    """The report of a salvage while it is written."""

    def __init__(self, report: SalvageReport, on_gap: Callable[[Gap], None] | None = None) -> None:
        self.report = report
        self._on_gap = on_gap

    def take(self, gap: Gap) -> None:
        """Note a gap; what it cost is told by `lost`."""
        if len(self.report.gaps) < MAX_GAPS:
            self.report.gaps.append(gap)
        else:
            self.report.not_listed += 1
        if self._on_gap is not None:
            self._on_gap(gap)

    def lost(self, records: int | None) -> None:
        """So many records of one file are gone; None where nobody knows."""
        so_far = self.report.lost_records
        self.report.lost_records = None if records is None or so_far is None else so_far + records


@dataclass(slots=True, kw_only=True)
class Kept:
    """What became of one file."""

    records: int = 0
    framed_bytes: int = 0
    gaps: int = 0
    lost: int | None = 0
    failure: RekordError | None = None  # the first, where there are gaps
    file_bytes: int | None = None  # None: no file was made
    sha256: str = ""


def keep(
    path: str,
    create: Callable[[], Writable],
    ledger: Ledger,
    storage: Storage = LOCAL,
    *,
    hashed: bool = False,
    empty_as: str | None = None,
) -> Kept:
    """Copy what is intact in a file to the one that `create` makes, which is left open.

    A file without an intact record makes none, unless it is whole and empty, or `empty_as` says how an empty one
    is compressed.
    """
    ledger.report.files += 1
    whole = _whole(path, storage)
    if whole is not None:
        return _copied(path, create(), whole, ledger, storage, hashed=hashed)
    kept = Kept()
    output: Output | None = None
    sink: FrameSink | None = None
    with ExitStack() as stack:
        walk = stack.enter_context(Walk(path, storage))
        for step in walk.steps():
            if isinstance(step, Gap):
                kept.gaps += 1
                kept.lost = _sum(kept.lost, step.lost_records)
                ledger.take(step)
                continue
            if sink is None:
                output = stack.enter_context(Output(create(), hashed=hashed))
                sink = frame_sink(walk.compression, output.write)
            sink.write(step.frames)
            kept.records += step.records
            kept.framed_bytes += len(step.frames)
            _count(ledger, step.records, len(step.frames))
            ledger.report.resynchronised += step.records if step.resynchronised else 0
        kept.failure = walk.failure
        if sink is None and (not kept.gaps or empty_as is not None):
            output = stack.enter_context(Output(create(), hashed=hashed))
            sink = frame_sink(empty_as if kept.gaps else walk.compression, output.write)
        if sink is not None and output is not None:
            sink.finish()
            output.finish()
            kept.file_bytes, kept.sha256 = output.n_bytes, output.sha256()
    return kept


def make_empty(file: Writable, compression: str) -> Kept:
    """A file without records."""
    with Output(file, hashed=True) as output:
        frame_sink(compression, output.write).finish()
        output.finish()
    return Kept(file_bytes=output.n_bytes, sha256=output.sha256())


def _whole(path: str, storage: Storage) -> Kept | None:
    """What a compressed file holds where all of it is intact, so that it can be copied without compressing it."""
    if storage.stat(path).kind != "file":
        return None
    kept = Kept()
    with open_frames(path, storage) as reader:
        if reader.compression == "none":
            return None
        try:
            for stretch in reader.stretches():
                kept.records += len(stretch.extents)
        except (FrameError, CompressionError):
            return None
        kept.framed_bytes = reader.offset
    return kept


def _copied(path: str, file: Writable, kept: Kept, ledger: Ledger, storage: Storage, *, hashed: bool) -> Kept:
    with Output(file, hashed=hashed) as output:
        copy_bytes(path, output.write, storage)
        output.finish()
    _count(ledger, kept.records, kept.framed_bytes)
    kept.file_bytes, kept.sha256 = output.n_bytes, output.sha256()
    return kept


def copy_bytes(path: str, write: Callable[[Buffer], object], storage: Storage) -> None:
    """A whole file as it stands."""
    buffer = bytearray(_COPY_BYTES)
    with storage.open_read(path) as file, memoryview(buffer) as view:
        while count := file.readinto(view):
            write(view[:count])


def _count(ledger: Ledger, records: int, framed_bytes: int) -> None:
    ledger.report.kept += records
    ledger.report.payload_bytes += framed_bytes - records * _core.FRAMING_BYTES


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
