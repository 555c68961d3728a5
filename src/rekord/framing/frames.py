"""The frames of a record file, read in runs or slabs and verified by the core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

from rekord import _core
from rekord._core import Fault
from rekord.errors import CompressionError, RekordError, error
from rekord.faults import frame_error
from rekord.framing.inflate import (
    TAIL_BYTES,
    ByteSource,
    ForeignFormat,
    Stream,
    detect_foreign_format,
    open_stream,
    read_head,
)
from rekord.location import Location

SLAB_BYTES = 512 * 1024
"""Bytes per read: large enough to amortise calls, small enough to stay in the cache."""

EVIDENCE_BYTES = 16 << 20
"""How far an error searches for the next intact frame as evidence."""

SEARCH_BYTES = 64 << 20
_SEARCH_FACTOR = 8
"""A search may verify SEARCH_BYTES without result, plus this many for each byte searched."""

_MAX_IDLE_BYTES = 32 << 20
_OWN_REFERENCES = 2
"""The slab and its view: a further reference is a batch with values in the slab."""

_FRAME_CODES = ("F101", "F102", "F103", "F104", "F105")
_TRUNCATION_FAULTS = (Fault.CUT_HEADER, Fault.CUT_RECORD, Fault.IMPOSSIBLE_LENGTH)


@dataclass(frozen=True, slots=True)
class VerifiedFrames:
    """Verified frames in a buffer that the next read may reuse, unless a batch keeps its slab."""

    slab: _core.Slab
    buffer: memoryview
    extents: _core.Extents
    first_record: int
    base: int  # offset in the stream of the buffer's first byte

    def payloads(self) -> list[bytes]:
        """The payloads, copied out of the buffer."""
        return _core.payloads(self.buffer, self.extents)

    def offset(self, index: int) -> int:
        """The offset of the `index`-th frame in the stream."""
        return self.base + self.extents.offset(index)


class _StreamReader:
    """A context manager over the stream of a record file."""

    _stream: Stream

    @property
    def compression(self) -> str:
        """`none`, `gzip` or `zlib`, by content."""
        return self._stream.compression

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()


class FrameReader(_StreamReader):
    """One pass over one record file, which it closes at the end.

    `sized`: the file has a known size and is seekable, unlike a pipe. `stream`: an open stream to read instead of the
    file. `search_bytes`: number of bytes that a search after damage may verify without result. Without `reuse`, the
    frames that were returned stay valid while more are read.
    """

    def __init__(
        self,
        file: ByteSource,
        *,
        path: str,
        sized: bool,
        slab_bytes: int = SLAB_BYTES,
        stream: Stream | None = None,
        search_bytes: int = SEARCH_BYTES,
        reuse: bool = True,
    ) -> None:
        self.path = path
        self._file = file
        self._reuse = reuse
        self._seekable = sized
        try:
            self._stream, self._head = (stream, b"") if stream else open_stream(file, sized=sized)
        except BaseException:
            file.close()
            raise
        self._pool = _core.Pool(_MAX_IDLE_BYTES)
        self._slab, self._buffer = self._new_slab(slab_bytes)
        self._begin = 0  # of the bytes that have not been returned
        self._end = 0
        self._base = 0
        self._skip = 0  # bytes of a broken frame whose length can be trusted
        self._eof = False
        self._broken: CompressionError | None = None  # why the stream ends there
        self._search_bytes = search_bytes  # that may still be verified in vain after damage
        self.record = 0
        self.left_by: Literal["skip", "search"] | None = None
        """How the last damage was passed: None if no frame was found after it."""

    @property
    def offset(self) -> int:
        """The offset in the stream of the next frame, or of the one that could not be read."""
        return self._base + self._begin

    @property
    def read_bytes(self) -> int:
        """The number of bytes read from the stream, including those ahead of the next frame."""
        return self._base + self._end

    def start_at(self, *, offset: int, record: int) -> bool:
        """Start at a frame in the middle; False if the file cannot be read from there."""
        if not self._stream.start_at(offset):
            return False
        self._base = offset
        self.record = record
        return True

    def iter_verified_frames(self) -> Iterator[VerifiedFrames]:
        """The verified frames from here. Raises if the next bytes cannot be read as frames."""
        if self._begin == self._end and not self._eof:
            self._fill()
        while True:
            # Yield what is buffered before reading more: after damage that may be all.
            extents, consumed, needed, problem = _core.scan(self._buffer, self._begin, self._end, self._remaining())
            if len(extents):
                stretch = VerifiedFrames(self._slab, self._buffer, extents, self.record, self._base)
                self.record += len(extents)
                self._begin += consumed
                yield stretch
            if self._broken is not None and (not needed if problem is None else problem.fault in _TRUNCATION_FAULTS):
                raise self._broken
            if problem is not None:
                self._skip = needed
                raise frame_error(
                    problem,
                    record=self.record,
                    offset=self.offset,
                    end_is_known=self._eof or self.compression == "none",
                )
            if self._eof and not needed:
                return
            self._make_room(needed)
            if not self._eof:
                self._fill()

    def resume(self, *, within: int | None = None) -> int | None:
        """Move past damage to the next intact frame, and return its offset; None if there is none.

        `within` limits the number of bytes searched. A frame with valid length and corrupt payload is skipped if a
        header, or the end of the file, follows it; otherwise every byte is tried. Frames that end with the skipped
        one are not part of its payload, which a checksum follows: they are found.
        """
        skip, self._skip = self._skip, 0
        if skip and self._has_header_after(skip):
            inside = self._inside(skip)
            self._begin += skip if inside is None else inside
            self.record += 1
            self.left_by = "skip" if inside is None else "search"
            return None if self._at_end() else self.offset
        self._begin = min(self._begin + 1, self._end)
        found = self.search(within=within)
        if found is not None:
            self.record += 1
        return found

    def search(self, *, within: int | None = None) -> int | None:
        """Move to the next frame with two valid checksums, possibly the current offset; returns as `resume`."""
        start = self.offset
        self.left_by = None
        while within is None or self.offset - start < within:
            found, moved, needed, spent = _core.find_frame(
                self._buffer, self._begin, self._end, self._remaining(), self._search_bytes
            )
            self._begin += moved
            self._search_bytes += moved * _SEARCH_FACTOR - spent
            if found:
                self.left_by = "search"
                return self.offset
            if self._eof:
                self._begin = self._end
                return None
            self._make_room(needed)
            self._fill()
        return None

    def recover(self, failure: RekordError, *, within: int | None = None) -> tuple[RekordError, bool]:
        """After a failure: the error with more evidence, and whether reading can continue.

        The evidence is the name of another format, or the next intact frame `within` that many bytes, where the
        reader then continues.
        """
        failure.location = failure.location.within(record=self.record, offset=self.offset, path=self.path)
        if failure.code not in _FRAME_CODES:
            return failure, False
        at_start = self.offset == 0 and failure.code in ("F101", "F103")
        foreign = detect_foreign_format(self._first_bytes(), self._tail()) if at_start else None
        if foreign is not None:
            return self._foreign_error(foreign), False
        first = self._first_bytes()[:8]
        found = self.resume(within=within)
        if found is not None:
            failure.likely = f"bytes changed after writing: the next frame, at byte {found:,}, is intact"
        elif at_start and failure.code == "F101":
            failure = error(
                "F120",
                location=failure.location,
                expected="a record length and its checksum",
                found=f"bytes starting with {first.hex(' ')}, and no record after them",
                do="check whether the file is encrypted, or compressed with something other than gzip or zlib",
            )
        return failure, found is not None

    def _remaining(self) -> int:
        left = 0 if self._eof else self._stream.max_remaining_bytes()
        return self._end - self._begin + left

    def _fill(self) -> None:
        if self._end == len(self._buffer):
            return  # an empty read would look like the end of the file
        count = 0
        with memoryview(self._buffer) as view:
            try:
                count = self._stream.readinto(view[self._end :])
            except CompressionError as failure:
                self._broken = failure  # raised after the bytes before it have been used
        self._end += count
        if not count:
            self._eof = True

    def _make_room(self, needed: int) -> None:
        """Move the rest to the front, and grow with the bytes received, not with those announced."""
        kept = self._end - self._begin
        if needed > len(self._buffer) and kept * 2 > len(self._buffer):
            # Some slack: the frame after this one must not cause another move.
            self._move_to(min(needed, 2 * len(self._buffer)) + SLAB_BYTES)
        elif self._begin and (not self._reuse or self._slab.holders > _OWN_REFERENCES):
            self._move_to(len(self._buffer))
        elif self._begin:
            self._buffer[:kept] = self._buffer[self._begin : self._end]
        self._base += self._begin
        self._begin, self._end = 0, kept

    def _move_to(self, slab_bytes: int) -> None:
        """Continue in another slab, with the rest of this one at its front."""
        left = self._buffer[self._begin : self._end]
        self._slab, self._buffer = self._new_slab(slab_bytes)
        self._buffer[: len(left)] = left

    def _new_slab(self, slab_bytes: int) -> tuple[_core.Slab, memoryview]:
        slab = self._pool.slab(slab_bytes)
        return slab, slab.view()[:slab_bytes]

    def _has_header_after(self, skip: int) -> bool:
        """Whether a header, or the end of the file, is exactly `skip` bytes ahead."""
        while not self._eof and self._end - self._begin < skip + _core.HEADER_BYTES:
            self._make_room(skip + _core.HEADER_BYTES)
            self._fill()
        # Up to `_end`: the rest of the buffer is stale.
        after = self._buffer[self._begin + skip : min(self._begin + skip + _core.HEADER_BYTES, self._end)]
        at_end = not after and self._eof and self._broken is None
        return at_end or _core.header_agrees(after)

    def _inside(self, skip: int) -> int | None:
        """Where, in the next `skip` bytes, a run of intact frames begins that ends exactly at their end."""
        at = 1
        while True:
            begin, end = self._begin + at, self._begin + skip
            found, moved, _, spent = _core.find_frame(self._buffer, begin, end, end - begin, self._search_bytes)
            self._search_bytes += moved * _SEARCH_FACTOR - spent
            if not found:
                return None
            _, consumed, _, problem = _core.scan(self._buffer, begin + moved, end, end - begin - moved)
            at += int(moved)
            if problem is None:
                return at
            at += int(consumed)

    def _at_end(self) -> bool:
        return self._eof and self._begin == self._end

    def _first_bytes(self) -> bytes:
        if self.compression == "none":
            return self._head
        return bytes(self._buffer[self._begin : self._end])

    def _tail(self) -> bytes:
        if not self._seekable or self.compression != "none":
            return b""
        where = self._base + self._end
        self._file.seek(max(self._file.size_bytes - TAIL_BYTES, 0))
        tail = read_head(self._file, TAIL_BYTES)
        self._file.seek(max(where, len(self._head)))
        return tail

    def _foreign_error(self, foreign: ForeignFormat) -> RekordError:
        inside = "" if self.compression == "none" else f", compressed with {self.compression}"
        return error(
            foreign.code,
            location=Location(path=self.path, record=0, offset=0),
            expected="a TFRecord file",
            found=f"{foreign.name}{inside}",
            do=foreign.do,
        )


_MAX_SLAB_BYTES = 4 << 20
_RECORDS_PER_SLAB = 16
"""Long records get larger slabs, as a record that crosses the end of a slab is copied."""


@dataclass(frozen=True, slots=True)
class FrameSegment:
    """Whole frames in a slab, their payloads not verified yet."""

    slab: _core.Slab
    begin: int
    end: int
    frames: int
    first_record: int
    offset: int  # of the first frame in the stream


def read_payload(slab: _core.Slab, begin: int) -> bytes:
    """The payload of the verified frame at `begin`."""
    view = slab.view()
    length = int.from_bytes(view[begin : begin + 8], "little")
    return bytes(view[begin + _core.HEADER_BYTES : begin + _core.HEADER_BYTES + length])


class SlabReader(_StreamReader):
    """One pass over one record file, segment by segment.

    With `reuse`, a slab without other references is overwritten: the caller must be done with a segment before it
    reads the next. `sized`: the file has a known size, unlike a pipe. A frame longer than `most_frame_bytes` ends the
    pass, and `is_stopped` is true.
    """

    def __init__(
        self,
        file: ByteSource,
        *,
        path: str,
        sized: bool,
        pool: _core.Pool,
        reuse: bool,
        most_frame_bytes: int | None = None,
    ) -> None:
        self.path = path
        self._most_frame_bytes = most_frame_bytes
        self.is_stopped = False
        try:
            self._stream, _ = open_stream(file, sized=sized)
        except BaseException:
            file.close()
            raise
        self._pool = pool
        self._reuse = reuse
        self._slab = pool.slab(SLAB_BYTES)
        self._view = self._slab.view()
        self._begin = 0
        self._end = 0
        self._eof = False
        self.record = 0
        self.offset = 0

    def next(self, most_frames: int) -> FrameSegment | None:
        """Up to `most_frames` frames that are available; None at the end of the file."""
        while True:
            left = 0 if self._eof else self._stream.max_remaining_bytes()
            remaining = self._end - self._begin + left
            frames, consumed, needed, problem = _core.skip_frames(
                self._slab, self._begin, self._end, remaining, most_frames
            )
            if frames:
                segment = FrameSegment(
                    self._slab, self._begin, self._begin + consumed, frames, self.record, self.offset
                )
                self._begin += consumed
                self.record += frames
                self.offset += consumed
                return segment
            if problem is not None:
                raise frame_error(problem, record=self.record, offset=self.offset)
            if self._eof:
                return None
            if self._most_frame_bytes is not None and needed > self._most_frame_bytes:
                self.is_stopped = True
                return None
            self._make_room(needed)
            self._fill()

    def _fill(self) -> None:
        """Read one piece: small enough to be in the cache when it is verified."""
        count = self._stream.readinto(self._view[self._end : self._end + SLAB_BYTES])
        self._end += count
        if not count:
            self._eof = True

    def _make_room(self, needed: int) -> None:
        """Room for more bytes of the next frame: in this slab, at its front, or in another one."""
        if self._end < len(self._slab) and self._begin + needed <= len(self._slab):
            return
        kept = self._end - self._begin
        tail = self._view[self._begin : self._end]
        if self._reuse and needed <= len(self._slab) and self._slab.holders <= _OWN_REFERENCES:
            self._view[:kept] = tail
        else:
            slab = self._pool.slab(self._slab_bytes(needed, kept))
            view = slab.view()
            view[:kept] = tail
            self._slab, self._view = slab, view
        self._begin, self._end = 0, kept

    def _slab_bytes(self, needed: int, kept: int) -> int:
        """The size of the next slab: grows with the bytes received, not with those announced."""
        average = self.offset // max(self.record, 1)
        usual = min(max(SLAB_BYTES, average * _RECORDS_PER_SLAB), _MAX_SLAB_BYTES)
        return max(usual, min(needed, 2 * max(kept, SLAB_BYTES)))
