"""Records by number while their file is still being indexed, or is damaged.

A front reader and an index in one: a background thread finds where the frames begin, and those that it has found so
far can be read at once. Damaged frames keep their numbers, as `check` counts them.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord.dataset.index import ByteLimitedCache, Offsets, Stamp, parse_frame_size
from rekord.dataset.read import open_frames
from rekord.dataset.readers.compressed import CompressedShard
from rekord.dataset.shard_index import (
    OffsetScan,
    ShardIndex,
    detect_file_compression,
    diagnose_frame,
    file_changed_error,
    find_shard_index,
    keep_scanned_index,
    read_stamp,
)
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.local import open_descriptor
from rekord.storage.portability import pread
from rekord.storage.router import REMOTE, is_remote

MAX_RECORD_BYTES = 64 << 20
"""Payloads that are longer are shown by their head."""

HEAD_BYTES = 64 << 10

MAX_STREAM_BYTES = 256 << 20
"""How far a compressed stream without flush points is read to reach a record."""

MAX_SCANNED_REMOTE_BYTES = 1 << 30
"""Larger remote files without an index are not fetched to index them."""

_CACHED_BYTES = 48 << 20
_MAX_DAMAGE = 10_000
_CRC_BYTES = 4

FileState: TypeAlias = Literal["waiting", "indexing", "ready", "damaged", "partial", "error"]
RecordState: TypeAlias = Literal["ok", "damaged", "too_large"]


class Pending(Exception):
    """A record that is not indexed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRecord:
    """A record as it is in its file. The payload of a damaged or too large one is only its head."""

    path: str
    record: int
    offset: int
    frame_bytes: int
    header: bytes
    payload: bytes
    trailer: bytes
    state: RecordState = "ok"
    error: RekordError | None = None

    @property
    def payload_bytes(self) -> int:
        return max(self.frame_bytes - _core.FRAMING_BYTES, 0)


class RecordFile:
    """One record file. `scan` runs on a background thread; everything else may be called at any time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.state: FileState = "waiting"
        self.compression = "none"
        self.size_bytes = 0
        self.read_bytes = 0  # of the file, by the scan
        self.longest_bytes = 0  # frame, as far as known
        self.note: str | None = None
        self.error: RekordError | None = None
        self.damage: dict[int, RekordError] = {}
        self.changed = Condition()
        self._stamp: Stamp | None = None
        self._index: ShardIndex | None = None
        self._parts: list[Offsets] = []
        self._ends: list[int] = []
        self._shard: CompressedShard | None = None
        self._cache = ByteLimitedCache(_CACHED_BYTES)

    def __len__(self) -> int:
        """The number of records known so far."""
        if self._index is not None:
            return len(self._index)
        return self._ends[-1] if self._ends else 0

    @property
    def is_complete(self) -> bool:
        """Whether no further records will be found."""
        return self.state in ("ready", "damaged", "partial", "error")

    # Finding the frames.

    def scan(self, is_stopped: Callable[[], bool]) -> None:
        """Find all frames; `is_stopped` is asked between parts."""
        try:
            self._scan(is_stopped)
        except RekordError as failure:
            self._set_state("error", failure=failure)

    def _scan(self, is_stopped: Callable[[], bool]) -> None:
        self._stamp = stamp = read_stamp(self.path)
        self.size_bytes = stamp[0]
        self.compression = detect_file_compression(self.path)
        found = find_shard_index(self.path)
        if found is not None:
            self._use_index(found)
            return
        if is_remote(self.path) and stamp[0] > MAX_SCANNED_REMOTE_BYTES:
            self._scan_front(stamp, is_stopped)
            return
        self._set_state("indexing")
        scan = OffsetScan(self.path, stamp, most_frame_bytes=MAX_RECORD_BYTES)
        try:
            for part in scan:
                self._append(self._within_front(part))
                if is_stopped() or self._is_beyond_front(part):
                    return
        except RekordError as failure:
            if failure.code[0] not in "FC":
                raise
            self._scan_damaged(failure, is_stopped)
            return
        if scan.is_stopped:
            self._set_state("partial", note="a record of more than 64 MiB ends what can be shown of this stream")
            return
        self._use_index(keep_scanned_index(scan))

    def _within_front(self, part: Offsets) -> Offsets:
        """The records of a part that can be reached again."""
        return part if self.compression == "none" else part[part <= MAX_STREAM_BYTES]

    def _is_beyond_front(self, part: Offsets) -> bool:
        """Whether a compressed file was read far enough; its remaining records could not be reached."""
        if self.compression == "none" or not len(part) or int(part[-1]) <= MAX_STREAM_BYTES:
            return False
        do = f"rekord rewrite {os.path.basename(self.path)} OUT --compression none"
        self._set_state("partial", note=f"compressed with {self.compression}: only its front is shown. {do}")
        return True

    def _scan_front(self, stamp: Stamp, is_stopped: Callable[[], bool]) -> None:
        """The first records of a remote file that is too large to fetch."""
        scan = OffsetScan(self.path, stamp, most_frame_bytes=MAX_RECORD_BYTES)
        for part in scan:
            self._append(part)
            if is_stopped() or int(part[-1]) > HEAD_BYTES << 8:
                break
        self._set_state("partial", note="only the front is shown: rekord index PATH writes the index of the rest")

    def _scan_damaged(self, failure: RekordError, is_stopped: Callable[[], bool]) -> None:
        """Continue after damage, from frame to intact frame."""
        with open_frames(self.path) as reader:
            known = len(self)
            resumes = failure.location.record == known and failure.location.offset is not None
            if not (resumes and reader.start_at(offset=failure.location.offset or 0, record=known)):
                with self.changed:
                    self._parts, self._ends = [], []
            continues = True
            while continues and not is_stopped():
                continues = False
                try:
                    for stretch in reader.iter_verified_frames():
                        count = len(stretch.extents)
                        part = np.array([stretch.offset(i) for i in range(count)], np.uint64)
                        self._append(self._within_front(part))
                        if is_stopped() or self._is_beyond_front(part):
                            return
                except RekordError as caught:
                    number, at = len(self), reader.offset
                    caught, continues = reader.recover(caught)
                    if not continues and not number:
                        self._set_state("error", failure=caught)
                        return
                    if len(self.damage) < _MAX_DAMAGE:
                        self.damage[number] = caught
                    self._append(np.array([at], np.uint64))
        self._set_state("damaged")

    def _use_index(self, index: ShardIndex) -> None:
        with self.changed:
            self._index, self._parts, self._ends = index, [], []
            self.compression = index.compression
            self.read_bytes = self.size_bytes
            if len(index):
                # One pass over the offsets is cheap next to what a long record costs its readers.
                for first in range(0, len(index), 1 << 16):
                    some = index.span(first, min(first + (1 << 16) + 1, len(index))).astype(np.int64)
                    if len(some) > 1:
                        self.longest_bytes = max(self.longest_bytes, int(np.diff(some).max()))
                if index.compression == "none":
                    last = int(index.begins(np.array([len(index) - 1]))[0])
                    self.longest_bytes = max(self.longest_bytes, self.size_bytes - last)
            if index.compression != "none" and index.flush_points is not None:
                self._shard = CompressedShard(self.path, index, self._cache)
        sequential = index.is_sequential_only and len(index) and not self._is_reachable(len(index) - 1)
        note = f"compressed with {self.compression}: only its front can be shown" if sequential else None
        self._set_state("partial" if sequential else "ready", note=note)

    def _append(self, part: Offsets) -> None:
        if not len(part):
            return
        with self.changed:
            before = len(self)
            if self._parts:
                self.longest_bytes = max(self.longest_bytes, int(part[0]) - int(self._parts[-1][-1]))
            if len(part) > 1:
                self.longest_bytes = max(self.longest_bytes, int(np.diff(part.astype(np.int64)).max()))
            self._parts.append(part)
            self._ends.append(before + len(part))
            self.read_bytes = min(int(part[-1]), self.size_bytes)
            self.changed.notify_all()

    def _set_state(self, state: FileState, *, note: str | None = None, failure: RekordError | None = None) -> None:
        with self.changed:
            self.state = state
            self.note = note or self.note
            self.error = failure
            if state in ("ready", "damaged"):
                self.read_bytes = self.size_bytes
            self.changed.notify_all()

    # Reading records.

    def offset(self, record: int) -> int:
        """Where a frame begins in the stream."""
        with self.changed:
            if self._index is not None:
                return int(self._index.begins(np.array([record], np.int64))[0])
            place = bisect.bisect_right(self._ends, record)
            if place >= len(self._parts):
                raise Pending
            before = self._ends[place - 1] if place else 0
            return int(self._parts[place][record - before])

    def read(self, records: Sequence[int]) -> list[RawRecord]:
        """Some records, verified; damage is part of the answer."""
        if self._stamp is not None and (now := read_stamp(self.path)) != self._stamp:
            raise file_changed_error(self.path, self._stamp, now)
        if self.compression == "none":
            return self._read_ranges(records) if is_remote(self.path) else self._read_local(records)
        if self._shard is not None:
            return [self._read_block(self._shard, record) for record in records]
        return self._read_stream(records)

    def _is_reachable(self, record: int) -> bool:
        return self.compression == "none" or self._shard is not None or self.offset(record) <= MAX_STREAM_BYTES

    def _read_local(self, records: Sequence[int]) -> list[RawRecord]:
        found = []
        with open_descriptor(self.path) as descriptor:
            for record in records:
                at = self.offset(record)
                header = pread(descriptor, _core.HEADER_BYTES, at)
                length = HEAD_BYTES
                if _is_header(header):
                    length = parse_frame_size(header) - _core.FRAMING_BYTES
                at_payload = at + _core.HEADER_BYTES
                payload = pread(descriptor, HEAD_BYTES if length > MAX_RECORD_BYTES else length, at_payload)
                trailer = pread(descriptor, _CRC_BYTES, at_payload + length)
                found.append(self._verify(record, at, header, payload, trailer))
        return found

    def _read_ranges(self, records: Sequence[int]) -> list[RawRecord]:
        begins = [self.offset(record) for record in records]
        ends = [self.offset(record + 1) if record + 1 < len(self) else self.size_bytes for record in records]
        longest = MAX_RECORD_BYTES + _core.FRAMING_BYTES
        wanted = [
            (self.path, begin, end if end - begin <= longest else begin + HEAD_BYTES)
            for begin, end in zip(begins, ends, strict=True)
        ]
        versions = {self.path: self._stamp[1]} if self._stamp else None
        pieces = REMOTE.ranges(wanted, versions=versions)
        return [self._verify_frame(*parts) for parts in zip(records, begins, pieces, strict=True)]

    def _read_block(self, shard: CompressedShard, record: int) -> RawRecord:
        (data, starts, _), places = shard.cut(np.array([record], np.int64))
        begin = int(starts[int(places[0])])
        return self._verify_frame(record, self.offset(record), bytes(data[begin:]))

    def _read_stream(self, records: Sequence[int]) -> list[RawRecord]:
        """Records of a compressed stream, read from its start; those that were read lately are kept."""
        found: dict[int, RawRecord] = {}
        for record in records:
            if not self._is_reachable(record):
                raise self._unreachable_error(record)
            kept = self._cache.get((record,))
            if kept is not None:
                found[record] = kept
            elif record in self.damage:
                found[record] = self._damaged(record, self.offset(record), b"", b"", self.damage[record])
        missing = sorted(set(records) - found.keys())
        if missing:
            wanted, last = set(missing), missing[-1]
            with open_frames(self.path) as reader:
                continues = True
                while continues and reader.record <= last:
                    continues = False
                    try:
                        for stretch in reader.iter_verified_frames():
                            end = stretch.first_record + len(stretch.extents)
                            for record in sorted(wanted & set(range(stretch.first_record, end))):
                                found[record] = self._keep(record, stretch)
                            if end > last:
                                break
                    except RekordError as failure:
                        _, continues = reader.recover(failure)
        if absent := [record for record in records if record not in found]:
            raise self._unreachable_error(absent[0])
        return [found[record] for record in records]

    def _keep(self, record: int, stretch: Any) -> RawRecord:
        place = record - stretch.first_record
        begin = stretch.extents.offset(place)
        frame = bytes(stretch.buffer[begin : begin + stretch.extents.length(place) + _core.FRAMING_BYTES])
        raw = self._verify_frame(record, stretch.offset(place), frame)
        self._cache.put((record,), raw, len(frame))
        return raw

    def _verify_frame(self, record: int, at: int, frame: bytes) -> RawRecord:
        """A record from its frame, or the beginning of a long frame."""
        header = frame[: _core.HEADER_BYTES]
        end = parse_frame_size(header) if _is_header(header) else len(frame)
        payload = frame[_core.HEADER_BYTES : end - _CRC_BYTES]
        return self._verify(record, at, header, payload, frame[end - _CRC_BYTES : end])

    def _verify(self, record: int, at: int, header: bytes, payload: bytes, trailer: bytes) -> RawRecord:
        if record in self.damage:
            return self._damaged(record, at, header, payload, self.damage[record])
        state: RecordState = "ok"
        if not _is_header(header):
            return self._diagnose(record, at, header, payload)
        frame_bytes = parse_frame_size(header)
        if frame_bytes - _core.FRAMING_BYTES > MAX_RECORD_BYTES:
            payload, trailer, state = payload[:HEAD_BYTES], b"", "too_large"
        elif (
            len(payload) + _core.FRAMING_BYTES < frame_bytes
            or len(trailer) < _CRC_BYTES
            or _core.masked_crc32c(payload) != int.from_bytes(trailer, "little")
        ):
            return self._diagnose(record, at, header, payload)
        return RawRecord(
            path=self.path,
            record=record,
            offset=at,
            frame_bytes=frame_bytes,
            header=header,
            payload=payload,
            trailer=trailer,
            state=state,
        )

    def _diagnose(self, record: int, at: int, header: bytes, payload: bytes) -> RawRecord:
        if self._stamp is None or self.compression != "none":
            failure = error("F102", location=Location(path=self.path, record=record, offset=at))
        else:
            failure = diagnose_frame(self.path, record, at, self._stamp)
        if len(self.damage) < _MAX_DAMAGE:
            self.damage[record] = failure
        return self._damaged(record, at, header, payload, failure)

    def _damaged(self, record: int, at: int, header: bytes, payload: bytes, failure: RekordError) -> RawRecord:
        return RawRecord(
            path=self.path,
            record=record,
            offset=at,
            frame_bytes=parse_frame_size(header) if _is_header(header) else 0,
            header=header,
            payload=payload[:HEAD_BYTES],
            trailer=b"",
            state="damaged",
            error=failure,
        )

    def _unreachable_error(self, record: int) -> RekordError:
        return error(
            "U651",
            "record is too far from the start of a compressed file",
            location=Location(path=self.path, record=record),
            expected=f"a record in the first {MAX_STREAM_BYTES >> 20} MiB of the stream, or an uncompressed file",
            found=f"a {self.compression} stream that can only be read from its start",
            do="rekord rewrite PATH OUT --compression none",
        )


def _is_header(header: bytes) -> bool:
    return len(header) == _core.HEADER_BYTES and bool(_core.header_agrees(header))
