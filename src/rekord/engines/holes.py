"""Large files that go into a record as they are: left out of the spill, and read again when the shard is written.

What a conversion writes is then written once. The frame's checksum was made from the bytes that were looked at, and
is verified when the frame is put together, so that a file which changed in between is noticed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rekord import _core
from rekord.engines.spill import Encoded, Holes

HOLE_BYTES = 16 << 10
"""From here on writing a file's bytes to a spill costs more than opening the file a second time."""

_SEARCHED_BYTES = 4096  # of a frame: what comes before an image is short


class Passed(NamedTuple):
    """The bytes of a file that are stored as they are."""

    path: str
    data: bytes


def cut_out(encoded: Encoded, passed: Sequence[Passed | None]) -> None:
    """Leave out of the frames what lies in these files; a frame where it cannot be found stays whole."""
    frames = memoryview(encoded.frames).cast("B")
    at = np.zeros(encoded.rows, np.int64)
    n_bytes = np.zeros(encoded.rows, np.int64)
    paths: list[str | None] = [None] * encoded.rows
    kept: list[memoryview] = []
    begin = 0
    for row, (one, length) in enumerate(zip(passed, encoded.lengths.tolist(), strict=True)):
        frame = frames[begin : begin + length]
        begin += length
        found = -1 if one is None else _place_of(one.data, frame)
        if one is None or found < 0:
            kept.append(frame)
            continue
        at[row], n_bytes[row], paths[row] = found, len(one.data), one.path
        kept += [frame[:found], frame[found + len(one.data) :]]
    encoded.frames = b"".join(kept)
    encoded.holes = Holes(at, n_bytes, paths)


def _place_of(data: bytes, frame: memoryview) -> int:
    """Where in a frame these bytes are; -1 where they are not."""
    found = bytes(frame[:_SEARCHED_BYTES]).find(data[:64])
    if found < 0 or found + len(data) > len(frame):
        return -1
    # Checksums are the cheapest way to compare; the frame's own will be verified when the hole is filled.
    inside = frame[found : found + len(data)]
    return found if _core.crc32c(inside) == _core.crc32c(data) else -1


def fill_hole(path: bytes, hole: memoryview) -> bool:
    """Read the bytes of a file that a frame left out; False where there are not so many any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            filled = 0
            while filled < len(hole):
                count = os.readv(descriptor, [hole[filled:]])
                if not count:
                    return False
                filled += count
        finally:
            os.close(descriptor)
    except OSError:
        return False
    return True
