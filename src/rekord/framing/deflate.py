"""Frames on their way to a file: as they are, or as one deflate stream that can be entered at many points."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rekord import _core
from rekord.arguments import one_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

FLUSH_BYTES = 1 << 20
"""How many bytes of frames lie between two flush points, at the least."""

_WINDOW_BITS = {"gzip": 31, "zlib": 15}


@dataclass(frozen=True, slots=True)
class FlushPoint:
    """A place where reading can begin: a record starts there, and nothing before it is needed."""

    offset: int  # in the frames
    compressed_offset: int  # in the file


class FrameSink(Protocol):
    """Takes whole frames in any number of pieces, and hands the bytes of a file on."""

    flush_points: list[FlushPoint]

    def write(self, frames: Buffer, /) -> None: ...

    def finish(self) -> None:
        """Hand on what is left; nothing can be written after that."""


def open_frame_sink(compression: str | None, write: Callable[[Buffer], object]) -> FrameSink:
    """The sink for a compression; `write` takes what belongs into the file."""
    name = compression_name(compression)
    return PlainSink(write) if name == "none" else DeflateSink(write, name)


def compression_name(compression: str | None) -> str:
    """`none`, `gzip` or `zlib`."""
    if compression is None:
        return "none"
    return one_of("compression", compression, ("gzip", "zlib", "none"), do="choose one of these")


class PlainSink:
    """No compression: frames are the file."""

    def __init__(self, write: Callable[[Buffer], object]) -> None:
        self._write = write
        self.flush_points: list[FlushPoint] = []

    def write(self, frames: Buffer, /) -> None:
        self._write(frames)

    def finish(self) -> None:
        pass


class DeflateSink:
    """One gzip or zlib stream with a full flush after each record that ends FLUSH_BYTES after the last flush.

    Where the flushes come, and so every byte, depends on the frames alone and not on the pieces they came in.
    The header has no name and the time 0.
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
        # In one piece, so that what zlib makes of it cannot depend on where pieces ended.
        self._emit(self._deflate.compress(self._waiting) + self._deflate.flush(zlib.Z_FULL_FLUSH))
        self._offset += len(self._waiting)
        self._waiting = bytearray()
        self.flush_points.append(FlushPoint(self._offset, self._compressed))

    def _emit(self, data: bytes) -> None:
        self._compressed += len(data)
        self._write(data)


def _find_flush_offsets(frames: memoryview, first: int) -> list[int]:
    """Where flushes fall in whole frames: after the record that reaches `first` bytes, and so on."""
    if len(frames) < first:
        return []
    extents, consumed, _, problem = _core.scan(frames, 0, len(frames), len(frames))
    assert problem is None, "only whole frames are written"
    assert consumed == len(frames), "only whole frames are written"
    found = []
    target = first
    low = 0
    while target <= len(frames):
        # The first record that begins at or after the target, found by halving.
        high = len(extents)
        while low < high:
            middle = (low + high) // 2
            if extents.offset(middle) < target:
                low = middle + 1
            else:
                high = middle
        end = extents.offset(low) if low < len(extents) else len(frames)
        found.append(end)
        target = end + FLUSH_BYTES
    return found
