"""Places where a damaged gzip or zlib file can be entered again, and what can be read from there on.

    … deflate … | 00 00 ff ff | deflate …     a full flush: what follows needs nothing of what came before
    … crc32 length | 1f 8b 08 … deflate …     the next member of a gzip file

The same bytes may stand anywhere by chance, or be put there by someone who means harm. So a place counts only if
a frame with both checksums follows, and only where the stream that led there is out of step: a decoder that
still agrees with the place has lost nothing that a second one could find.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from rekord.errors import CompressionError
from rekord.framing.frames import FrameReader
from rekord.framing.inflate import ByteSource, InflateStream

PROBE_BYTES = 1 << 20
"""How far behind a place the first frame may be: our own files have one right there."""

_CHUNK_BYTES = 64 * 1024
_COMPARED_BYTES = 1024
_BUDGET_BYTES = 32 << 20
_BUDGET_FACTOR = 8
_TRIAL_BYTES = 256 * 1024
"""What a place costs whatever comes of it, counted in bytes that could be inflated meanwhile."""

_FLUSH_MARKER = b"\0\0\xff\xff"
_MEMBER_MAGIC = b"\x1f\x8b\x08"
_HEADER_BYTES = {"gzip": 10, "zlib": 2}
_TRAILER_BYTES = {"gzip": 8, "zlib": 4}


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """A place in a compressed file: a member's header, or deflate blocks without one."""

    compressed_offset: int
    raw: bool


FILE_START = EntryPoint(0, raw=False)


class ResumedStream(InflateStream):
    """A gzip or zlib file from some place on."""

    def __init__(self, file: ByteSource, entry: EntryPoint, compression: str) -> None:
        self._raw = entry.raw
        file.seek(entry.compressed_offset)
        super().__init__(file, b"", compression, sized=True)
        self._fed = entry.compressed_offset

    def _new_member(self) -> zlib._Decompress:
        return zlib.decompressobj(wbits=-15) if self._raw else super()._new_member()

    def _next_member(self) -> bool:
        if self._raw:
            # The checksum of a stream that was not read from its start says nothing.
            self._raw = False
            trailer_bytes = _TRAILER_BYTES[self.compression]
            while len(self._input) < trailer_bytes and self._refill():
                pass
            self._input = self._input[trailer_bytes:]
        return super()._next_member()


class _TrackingDecoder(ResumedStream):
    """A second decoder, behind the one that met damage: it tells where in the file an offset lies."""

    def __init__(self, file: ByteSource, entry: EntryPoint, compression: str) -> None:
        super().__init__(file, entry, compression)
        self.given = 0  # bytes, without compression
        self.alive = True
        self._discarded = memoryview(bytearray(_CHUNK_BYTES * 4))

    def advance_output(self, given: int) -> int:
        """Go on until so many bytes have come; the compressed offset that this takes."""
        while self.alive and self.given < given:
            try:
                count = self.readinto(self._discarded[: given - self.given])
            except CompressionError:
                count = 0
            self.given += count
            self.alive = count > 0
        return self._fed - len(self._input)

    def advance_input(self, compressed_offset: int) -> bool:
        """Inflate everything before this place; False where that is not possible."""
        while self.alive and (room := compressed_offset - self._fed + len(self._input)) > 0:
            if self._inflate.eof:
                with suppress(CompressionError):
                    if self._next_member():
                        continue
                self.alive = False
            elif not self._input and not self._refill():
                self.alive = False
            else:
                later = self._input[room:]
                self._input = self._input[:room]
                self._discard_output()
                self._input += later
        return self.alive

    def is_consistent_with(self, entry: EntryPoint) -> bool:
        """Whether someone who enters here reads what this decoder reads from here on."""
        while len(self._input) < _CHUNK_BYTES and self._refill():
            pass
        if self._inflate.eof:
            return not entry.raw
        try:
            ours = self._inflate.copy().decompress(self._input, _COMPARED_BYTES)
            return ours == _new_decoder(entry, self.compression).decompress(self._input, _COMPARED_BYTES)
        except zlib.error:
            return False

    def _discard_output(self) -> None:
        while True:
            out = self._step(len(self._discarded))
            self.given += len(out)
            self.alive = self._failure is None
            # As long as there is output, zlib may hold back more of it.
            if not out or not self.alive or self._inflate.eof:
                return


class ResyncBudget:
    """What the places of one file may cost together: something at the start, and more with every byte passed."""

    def __init__(self) -> None:
        self._bytes = _BUDGET_BYTES
        self._earned_to = 0

    def try_spend(self, entry: EntryPoint) -> bool:
        """Whether a place can be tried; then it is paid for."""
        self._bytes += max(entry.compressed_offset - self._earned_to, 0) * _BUDGET_FACTOR
        self._earned_to = max(entry.compressed_offset, self._earned_to)
        if self._bytes < _TRIAL_BYTES:
            return False
        self._bytes -= _TRIAL_BYTES
        return True

    def spend(self, n_bytes: int) -> None:
        """Bytes that were inflated in vain."""
        self._bytes -= n_bytes


@dataclass(frozen=True, slots=True)
class ResyncPoint:
    """Where reading goes on: `reader` stands at its first frame."""

    entry: EntryPoint
    reader: FrameReader
    offset: int | None  # of the entry in the old stream, where that can be read so far


class ResyncSearch:
    """The places behind damage of one stream, tried in order. Their cost is bounded by `budget`."""

    def __init__(
        self,
        open_file: Callable[[], ByteSource],
        *,
        path: str,
        compression: str,
        entry: EntryPoint,
        search_bytes: int,
        budget: ResyncBudget,
    ) -> None:
        self._open_file = open_file
        self._path = path
        self._compression = compression
        self._search_bytes = search_bytes
        self._follower = _TrackingDecoder(open_file(), entry, compression)
        self._file = open_file()
        self._places = _find_entry_points(self._file, entry, compression)
        self._next = next(self._places, None)
        self._budget = budget
        self._passed = entry.compressed_offset  # places up to here are behind us
        self._waits = False  # the follower stands at the next place, which was not needed yet
        self.damage_offset = entry.compressed_offset
        """Where in the file the offset lies that was asked for last, or a place not far before it."""

    def close(self) -> None:
        self._follower.close()
        self._file.close()

    def after(self, offset: int, found: int | None) -> ResyncPoint | None:
        """The point to resume from after damage at an offset of the stream.

        `found` is the next frame in the stream itself. None if that is as good: the stream is in sync at every
        point before that frame.
        """
        # One byte short of it: without output a decoder goes on, perhaps over the very place that is wanted.
        target = max(offset - 1, 0)
        if self._follower.given <= target:
            self._waits = False
            self._passed = self.damage_offset = self._follower.advance_output(target)
        while self._next is not None:
            entry = self._next
            is_ahead = self._waits or entry.compressed_offset > self._passed
            self._waits = False
            if is_ahead and self._budget.try_spend(entry):
                alive = self._follower.advance_input(entry.compressed_offset)
                if found is not None and self._follower.given > found:
                    self._waits = True
                    return None
                # A stream that went through a place and has a frame behind it went through no new member.
                could_help = entry.raw or found is None
                if could_help and not (alive and self._follower.is_consistent_with(entry)):
                    reader = self._probe(entry)
                    if reader is not None:
                        return ResyncPoint(entry, reader, self._follower.given if alive else None)
            self._next = next(self._places, None)
        return None

    def _probe(self, entry: EntryPoint) -> FrameReader | None:
        """A reader at the first frame behind a place."""
        file = self._open_file()
        stream = ResumedStream(file, entry, self._compression)
        reader = FrameReader(file, path=self._path, sized=True, stream=stream, search_bytes=self._search_bytes)
        try:
            if reader.search(within=PROBE_BYTES) is not None:
                return reader
        except BaseException:
            reader.close()
            raise
        self._budget.spend(reader.read_bytes)
        reader.close()
        return None


def _new_decoder(entry: EntryPoint, compression: str) -> zlib._Decompress:
    if entry.raw:
        return zlib.decompressobj(wbits=-15)
    return zlib.decompressobj(wbits=31 if compression == "gzip" else 15)


def _find_entry_points(file: ByteSource, entry: EntryPoint, compression: str) -> Iterator[EntryPoint]:
    """The places behind an entry that look like one, in order."""
    if not entry.raw:
        # Behind a header of the usual length: the header alone may be what is damaged.
        yield EntryPoint(entry.compressed_offset + _HEADER_BYTES[compression], raw=True)
    begin = entry.compressed_offset + 1
    file.seek(begin)
    chunk = bytearray(_CHUNK_BYTES)
    held = b""
    while count := file.readinto(chunk):
        data = held + chunk[:count]
        found = [EntryPoint(begin + at + len(_FLUSH_MARKER), raw=True) for at in _find_all(data, _FLUSH_MARKER)]
        if compression == "gzip":
            # One at the very end is found again with the next bytes.
            last = len(data) - len(_MEMBER_MAGIC)
            found += [EntryPoint(begin + at, raw=False) for at in _find_all(data, _MEMBER_MAGIC) if at < last]
            found.sort(key=lambda place: place.compressed_offset)
        yield from found
        # A mark may lie across the end of what was read; one that does not is not found twice.
        held = data[-(len(_FLUSH_MARKER) - 1) :]
        begin += len(data) - len(held)


def _find_all(data: bytes | bytearray, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)
