"""Writing frames to a file: uncompressed, or as one deflate stream with many entry points."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rekord import _core
from rekord.arguments import one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

FLUSH_BYTES = 1 << 20
"""The least number of bytes of frames between two flush points."""

_WINDOW_BITS = {"gzip": 31, "zlib": 15}


@dataclass(frozen=True, slots=True)
class FlushPoint:
    """An offset where reading can start: at a record, independent of everything before it."""

    offset: int  # in the frames
    compressed_offset: int  # in the file


class FrameSink(Protocol):
    """Accepts whole frames in any number of pieces, and writes the bytes of a file."""

    flush_points: list[FlushPoint]

    def write(self, frames: Buffer, /) -> None: ...

    def finish(self) -> None:
        """Write the rest; nothing can be written after that."""


def open_frame_sink(compression: str | None, write: Callable[[Buffer], object]) -> FrameSink:
    """The sink for a compression; `write` receives the bytes of the file."""
    name = compression_name(compression)
    return PlainSink(write) if name == "none" else DeflateSink(write, name)


def compression_name(compression: str | None) -> str:
    """`none`, `gzip` or `zlib`."""
    if compression is None:
        return "none"
    return one_of("compression", compression, ("gzip", "zlib", "none"), do='compression="gzip"')


class PlainSink:
    """No compression: the frames are the file."""

    def __init__(self, write: Callable[[Buffer], object]) -> None:
        self._write = write
        self.flush_points: list[FlushPoint] = []

    def write(self, frames: Buffer, /) -> None:
        self._write(frames)

    def finish(self) -> None:
        pass


class DeflateSink:
    """One gzip or zlib stream with a full flush after each record that ends FLUSH_BYTES after the last flush.

    The flushes, and so every byte, depend on the frames alone, not on how they are split into writes. The header has
    no name and time 0.
    """

    def __init__(self, write: Callable[[Buffer], object], compression: str) -> None:
        self._write = write
        self._deflate = zlib.compressobj(wbits=_WINDOW_BITS[compression])
        self._waiting = bytearray()  # whole frames, fewer bytes than make a flush
        self._offset = 0  # in the frames, of what waits
        self._compressed = 0
        self.flush_points: list[FlushPoint] = []

    def write(self, frames: Buffer, /) -> None:
        view = memoryview(frames).cast("B")
        begin = 0
        for end in _find_flush_offsets(view, FLUSH_BYTES - len(self._waiting)):
            self._waiting += view[begin:end]
            self._segment()
            begin = end
        self._waiting += view[begin:]

    def finish(self) -> None:
        self._emit(self._deflate.compress(self._waiting) + self._deflate.flush(zlib.Z_FINISH))
        self._waiting = bytearray()

    def _segment(self) -> None:
        # In one piece, so that the output does not depend on how the input was split.
        self._emit(self._deflate.compress(self._waiting) + self._deflate.flush(zlib.Z_FULL_FLUSH))
        self._offset += len(self._waiting)
        self._waiting = bytearray()
        self.flush_points.append(FlushPoint(self._offset, self._compressed))

    def _emit(self, data: bytes) -> None:
        self._compressed += len(data)
        self._write(data)


def _find_flush_offsets(frames: memoryview, first: int) -> list[int]:
    """The offsets of flushes in whole frames: after the record that reaches `first` bytes, and so on."""
    if len(frames) < first:
        return []
    extents, consumed, _, problem = _core.scan(frames, 0, len(frames), len(frames))
    assert problem is None, "only whole frames are written"
    assert consumed == len(frames), "only whole frames are written"
    found = []
    target = first
    low = 0
    while target <= len(frames):
        # The first record that begins at or after the target.
        low = bisect_left(range(len(extents)), target, lo=low, key=extents.offset)
        end = extents.offset(low) if low < len(extents) else len(frames)
        found.append(end)
        target = end + FLUSH_BYTES
    return found
