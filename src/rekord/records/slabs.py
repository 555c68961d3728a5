"""Frames for the decoder: read into slabs that a batch can hold on to, found by their headers alone.

Payloads are verified where they are decoded, while their bytes are in the cache, or on another thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from rekord import _core
from rekord.faults import frame_error
from rekord.records.compression import Source, open_stream

SLAB_BYTES = 512 * 1024
"""What is read at once. Two of these fit the second cache beside the columns of a batch."""

_MOST_SLAB_BYTES = 4 << 20
_RECORDS_A_SLAB = 16
"""Long records get longer slabs, since one that crosses a slab's end is copied to the next."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Whole frames in a slab, their payloads not verified yet."""

    slab: _core.Slab
    begin: int
    end: int
    frames: int
    first_record: int
    offset: int  # of the first frame in the stream


def payload_at(slab: _core.Slab, begin: int) -> bytes:
    """The payload of the frame that begins there, one that has been verified."""
    view = slab.view()
    length = int.from_bytes(view[begin : begin + 8], "little")
    return bytes(view[begin + _core.HEADER_BYTES : begin + _core.HEADER_BYTES + length])


class SlabReader:
    """One pass over one record file, segment after segment.

    With `reuse` a slab is overwritten once nobody holds it: the caller is then done with a segment before it
    asks for the next. `sized` says that the file knows its size; a pipe does not.
    """

    def __init__(self, file: Source, *, path: str, sized: bool, pool: _core.Pool, reuse: bool) -> None:
        self.path = path
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

    @property
    def compression(self) -> str:
        """`none`, `gzip` or `zlib`, by content."""
        return self._stream.compression

    def __enter__(self) -> SlabReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.close()

    def next(self, most_frames: int) -> Segment | None:
        """At most so many frames, as many as are at hand; None at the end of the file."""
        while True:
            left = 0 if self._eof else self._stream.most_left()
            remaining = self._end - self._begin + left
            frames, consumed, needed, problem = _core.hop(
                self._slab, self._begin, self._end, remaining, most_frames
            )
            if frames:
                segment = Segment(
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
        # The slab itself and the view of it: a third holder is a batch with views of long values.
        if self._reuse and needed <= len(self._slab) and self._slab.holders <= 2:
            self._view[:kept] = tail
        else:
            slab = self._pool.slab(self._slab_bytes(needed, kept))
            view = slab.view()
            view[:kept] = tail
            self._slab, self._view = slab, view
        self._begin, self._end = 0, kept

    def _slab_bytes(self, needed: int, kept: int) -> int:
        """Grown with the bytes that came, not with those announced."""
        average = self.offset // max(self.record, 1)
        usual = min(max(SLAB_BYTES, average * _RECORDS_A_SLAB), _MOST_SLAB_BYTES)
        return max(usual, min(needed, 2 * max(kept, SLAB_BYTES)))
