"""Sheets of tiny tiles: the centres of many images in one answer, with the class of each record.

"RKT1" | px | first | count | total                      uint32 each, little-endian
count × ( record uint32 | class int32 | split uint8 | state uint8 | 0 0 )
count × px × px × 3 bytes of RGB
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from rekord.codec.columns import Array
from rekord.errors import RekordError
from rekord.schema import Mask, of_type
from rekord.viewer.columns import decode_rows
from rekord.viewer.media import TooLarge, UnsafeType, colour_ids, make_tile, read_mask
from rekord.viewer.memory import Buffer
from rekord.viewer.record_sets import RecordSet
from rekord.viewer.records import Pending
from rekord.viewer.session import Side

MAX_TILES = 100_000
MAX_TILES_PER_SHEET = 2048
MIN_PX, MAX_PX = 8, 64

OK, MISSING, DAMAGED, TOO_LARGE, PENDING = range(5)

_GREY = 0x80
_CHUNK_RECORDS = 32
_MAX_THREADS = 4
_ENTRY = np.dtype([("record", "<u4"), ("class", "<i4"), ("split", "u1"), ("state", "u1"), ("zero", "<u2")])
_pool: ThreadPoolExecutor | None = None


def make_sheet(
    side: Side, chosen: RecordSet, *, feature: str, label: str | None, first: int, count: int, px: int
) -> list[Buffer]:
    """The tiles of some records of a set, in its order."""
    count = max(0, min(count, min(len(chosen), MAX_TILES) - first))
    numbers = chosen.slice(first, count)
    entries = np.zeros(len(numbers), _ENTRY)
    pixels = np.full((len(numbers), px, px, 3), _GREY, np.uint8)
    entries["record"] = np.array(numbers, np.int64) & 0xFFFFFFFF
    entries["class"] = -1
    entries["split"] = list(side.splits).index(chosen.split.name) & 0xFF
    work = _Sheet(side, chosen, feature, label, px, entries, pixels)
    step = min(_CHUNK_RECORDS, chosen.split.records_at_once)
    chunks = [range(i, min(i + step, len(numbers))) for i in range(0, len(numbers), step)]
    for _ in _get_pool().map(lambda chunk: work.fill(chunk, numbers), chunks):
        pass
    head = b"RKT1" + struct.pack("<IIII", px, first, len(numbers), min(len(chosen), MAX_TILES))
    return [head, entries.tobytes(), pixels.reshape(-1).data]


class _Sheet:
    """A sheet while it is filled, by several threads."""

    def __init__(
        self,
        side: Side,
        chosen: RecordSet,
        feature: str,
        label: str | None,
        px: int,
        entries: Any,
        pixels: Array,
    ) -> None:
        self._schema = side.schema
        self._split = chosen.split
        self._feature = feature
        self._label = label if label in self._schema else None
        self._is_mask = bool(of_type({"": self._schema[feature]}, Mask))
        self._px = px
        self._entries = entries
        self._pixels = pixels

    def fill(self, places: Sequence[int], numbers: Sequence[int]) -> None:
        """Make the tiles at some places."""
        try:
            raws = [raw for _, raw in self._split.read([numbers[place] for place in places])]
        except (Pending, RekordError):
            self._entries["state"][list(places)] = PENDING
            return
        columns = [self._feature] if self._label in (None, self._feature) else [self._feature, self._label or ""]
        payloads = [raw.payload if raw.state == "ok" else None for raw in raws]
        rows = decode_rows(payloads, self._schema, columns)
        for place, raw, row in zip(places, raws, rows, strict=True):
            if row is None:
                self._entries["state"][place] = TOO_LARGE if raw.state == "too_large" else DAMAGED
                continue
            if self._label is not None and row[self._label] is not None and np.ndim(row[self._label]) == 0:
                self._entries["class"][place] = min(int(row[self._label]), 2**31 - 1)
            self._entries["state"][place] = self._draw(place, row[self._feature])

    def _draw(self, place: int, value: Any) -> int:
        if isinstance(value, list) and value:
            value = value[0]
        if value is None:
            return MISSING
        feature = self._schema[self._feature]
        try:
            if self._is_mask:
                ids = _crop(read_mask(value, feature), self._px)
                self._pixels[place] = colour_ids(ids, getattr(feature, "ignore", None))
            elif isinstance(value, bytes):
                self._pixels[place] = make_tile(value, self._px)
            elif isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim in (2, 3):
                small = _crop(value, self._px)
                self._pixels[place] = small[:, :, None] if small.ndim == 2 else small[:, :, :3]
            else:
                return MISSING
        except TooLarge:
            return TOO_LARGE
        except (RekordError, UnsafeType, ValueError):
            return DAMAGED
        return OK


def _crop(pixels: Array, px: int) -> Array:
    """The nearest pixels of the largest square in the middle."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    steps = (np.arange(px) * 2 + 1) * side // (2 * px)
    return pixels[np.ix_((height - side) // 2 + steps, (width - side) // 2 + steps)]


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MAX_THREADS), thread_name_prefix="rekord-view-tiles")
    return _pool
