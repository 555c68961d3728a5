"""The flush points of a compressed shard whose index is lost, found again in the stream itself.

rekord flushes after the record that ends FLUSH_BYTES after the flush before it, so the offsets of the records say
where in the stream flushes are. In the file each ends with an empty stored block, `00 00 ff ff` at a whole byte. What
follows a full flush refers to nothing before it, which its first 32 KiB prove: no reference is longer.
"""

from __future__ import annotations

import zlib

import numpy as np

from rekord.dataset.index import Offsets
from rekord.records.compress import FLUSH_BYTES, FlushPoint
from rekord.storage.anywhere import ANYWHERE
from rekord.storage.files import read_file

_MARK = b"\x00\x00\xff\xff"
_WINDOW_BYTES = 32 << 10
_MOST_BYTES = 1 << 30


def find_flush_points(path: str, compression: str, offsets: Offsets) -> tuple[FlushPoint, ...] | None:
    """The places where a shard that rekord compressed can be entered; None where they are not those of rekord."""
    expected = _flushes(offsets)
    if not expected:
        return ()
    if ANYWHERE.stat(path).size_bytes > _MOST_BYTES:
        return None
    data = read_file(path, ANYWHERE, most_bytes=_MOST_BYTES)
    stream = zlib.decompressobj(wbits=31 if compression == "gzip" else 15)
    points: list[FlushPoint] = []
    made = fed = 0
    try:
        while len(points) < len(expected):
            end = data.find(_MARK, fed) + len(_MARK)
            if end < len(_MARK):
                return None
            made += _inflated(stream, data[fed:end])
            fed = end
            if made > expected[len(points)]:
                return None
            if made == expected[len(points)] and _is_entry(data, end):
                points.append(FlushPoint(made, end))
    except zlib.error:
        return None
    return tuple(points)


def _flushes(offsets: Offsets) -> list[int]:
    """Where in the stream a flush comes before a record."""
    found: list[int] = []
    before = 0
    while True:
        place = int(np.searchsorted(offsets, before + FLUSH_BYTES))
        if place >= len(offsets):
            return found
        before = int(offsets[place])
        found.append(before)


def _inflated(stream: zlib._Decompress, data: bytes) -> int:
    """How many bytes some more input makes, in pieces that take little memory."""
    made = 0
    while data:
        made += len(stream.decompress(data, FLUSH_BYTES))
        data = stream.unconsumed_tail
    return made


def _is_entry(data: bytes, at: int) -> bool:
    """Whether what follows can be read without anything before it."""
    inflate = zlib.decompressobj(wbits=-15)
    try:
        return len(inflate.decompress(data[at : at + 4 * _WINDOW_BYTES], _WINDOW_BYTES)) > 0
    except zlib.error:
        return False
