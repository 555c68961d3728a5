"""Entry points after damage in a gzip or zlib file, and what can be read from there.

    … deflate … | 00 00 ff ff | deflate …     a full flush: what follows does not depend on what came before
    … crc32 length | 1f 8b 08 … deflate …     the next member of a gzip file

The same bytes may occur anywhere by chance, or be placed there by an attacker. So an entry point counts only if
a frame with two valid checksums follows, and only if the stream that led there is out of sync: a decoder that
still agrees with the entry point has lost nothing that a second one could find.
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
"""Maximum distance of the first frame after an entry point: in our own files it follows immediately."""

_CHUNK_BYTES = 64 * 1024
_COMPARED_BYTES = 1024
_BUDGET_BYTES = 32 << 20
_BUDGET_FACTOR = 8
_TRIAL_BYTES = 256 * 1024
"""The fixed cost of an entry point, as a number of bytes that could be inflated in that time."""

_FLUSH_MARKER = b"\0\0\xff\xff"
_MEMBER_MAGIC = b"\x1f\x8b\x08"
_HEADER_BYTES = {"gzip": 10, "zlib": 2}
_TRAILER_BYTES = {"gzip": 8, "zlib": 4}


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point in a compressed file: the header of a member, or deflate blocks without one."""

    compressed_offset: int
    raw: bool


FILE_START = EntryPoint(0, raw=False)


class ResumedStream(InflateStream):
    """A gzip or zlib file from an entry point on."""

    def __init__(self, file: ByteSource, entry: EntryPoint, compression: str) -> None:
        self._raw = entry.raw
        file.seek(entry.compressed_offset)
        super().__init__(file, b"", compression, sized=True)
        self._fed = entry.compressed_offset

    def _new_member(self) -> zlib._Decompress:
        return zlib.decompressobj(wbits=-15) if self._raw else super()._new_member()

    def _next_member(self) -> bool:
        if self._raw:
            # The checksum of a stream that was not read from its start means nothing.
            self._raw = False
            trailer_bytes = _TRAILER_BYTES[self.compression]
            while len(self._input) < trailer_bytes and self._refill():
                pass
            self._input = self._input[trailer_bytes:]
        return super()._next_member()


class _TrackingDecoder(ResumedStream):
    """A second decoder, behind the one that found damage, which maps offsets to positions in the file."""

    def __init__(self, file: ByteSource, entry: EntryPoint, compression: str) -> None:
        super().__init__(file, entry, compression)
        self.given = 0  # bytes, uncompressed
        self.alive = True
        self._discarded = memoryview(bytearray(_CHUNK_BYTES * 4))

    def advance_output(self, given: int) -> int:
        """Continue up to this number of bytes; returns the compressed offset that this takes."""
        while self.alive and self.given < given:
            try:
                count = self.readinto(self._discarded[: given - self.given])
            except CompressionError:
                count = 0
            self.given += count
            self.alive = count > 0
        return self._fed - len(self._input)

    def advance_input(self, compressed_offset: int) -> bool:
        """Inflate everything before this position; False if that is not possible."""
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
        """Whether a reader that enters here reads the same as this decoder."""
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
            # While there is output, zlib may hold back more.
            if not out or not self.alive or self._inflate.eof:
                return


class ResyncBudget:
    """A limit on the total cost of the entry points of a file: some at the start, and more with every byte passed."""

    def __init__(self) -> None:
        self._bytes = _BUDGET_BYTES
        self._earned_to = 0

    def try_spend(self, entry: EntryPoint) -> bool:
        """Whether an entry point can be tried; if so, its cost is deducted."""
        self._bytes += max(entry.compressed_offset - self._earned_to, 0) * _BUDGET_FACTOR
        self._earned_to = max(entry.compressed_offset, self._earned_to)
        if self._bytes < _TRIAL_BYTES:
            return False
        self._bytes -= _TRIAL_BYTES
        return True

    def spend(self, n_bytes: int) -> None:
        """Deduct bytes that were inflated in vain."""
        self._bytes -= n_bytes


@dataclass(frozen=True, slots=True)
class ResyncPoint:
    """Where reading resumes: `reader` is at its first frame."""

    entry: EntryPoint
    reader: FrameReader
    offset: int | None  # of the entry point in the old stream, if that can be read so far


class ResyncSearch:
    """The entry points after damage in one stream, tried in order. Their cost is limited by `budget`."""

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
        self._passed = entry.compressed_offset  # positions up to here are done
        self._waits = False  # the follower is at the next entry point, which was not needed yet
        self.damage_offset = entry.compressed_offset
        """The position in the file of the last requested offset, or one shortly before it."""

    def close(self) -> None:
        self._follower.close()
        self._file.close()

    def after(self, offset: int, found: int | None) -> ResyncPoint | None:
        """The point to resume from after damage at an offset of the stream.

        `found` is the next frame in the stream itself. None if that is as good: the stream is in sync at every
        point before that frame.
        """
        # One byte before it: without output a decoder continues, perhaps past the entry point.
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
                # A stream that passed an entry point and has a frame after it did not pass a new member.
                could_help = entry.raw or found is None
                if could_help and not (alive and self._follower.is_consistent_with(entry)):
                    reader = self._probe(entry)
                    if reader is not None:
                        return ResyncPoint(entry, reader, self._follower.given if alive else None)
            self._next = next(self._places, None)
        return None

    def _probe(self, entry: EntryPoint) -> FrameReader | None:
        """A reader at the first frame after an entry point."""
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
    """The positions after an entry that look like an entry point, in order."""
    if not entry.raw:
        # After a header of the usual length: the header alone may be damaged.
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
        # A marker may extend beyond what was read; one that does not is not found twice.
        held = data[-(len(_FLUSH_MARKER) - 1) :]
        begin += len(data) - len(held)


def _find_all(data: bytes | bytearray, mark: bytes) -> Iterator[int]:
    at = data.find(mark)
    while at >= 0:
        yield at
        at = data.find(mark, at + 1)
