"""Statistics of encoded pictures: formats, sizes, channels and colours, from their headers alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.health.stats.distinct import Room
from rekord.health.stats.numbers import Counted

SMALLEST_BYTES = 26
"""No picture that can be decoded is shorter."""

_SIZES = 1000  # different ones that are counted
_LISTED_SIZES = 10
_STARTS = frozenset(
    int.from_bytes(start, "little") for start in (b"\xff\xd8", b"\x89P", b"GI", b"BM", b"RI", b"II", b"MM")
)
_START_ARRAY = np.array(sorted(_STARTS), np.uint16)


class Pictures:
    """The pictures among the byte strings of one feature."""

    __slots__ = (
        "bits",
        "channels",
        "colours",
        "count",
        "formats",
        "heights",
        "sizes",
        "turned",
        "unsized",
        "widths",
    )

    def __init__(self, room: Room) -> None:
        self.count = 0
        self.unsized = 0  # known by their first bytes, but without a size that can be read
        self.turned = 0  # by EXIF
        self.formats: Counter[str] = Counter()
        self.channels: Counter[int] = Counter()
        self.colours: Counter[str] = Counter()
        self.bits: Counter[int] = Counter()
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.widths = Counted(room)
        self.heights = Counted(room)

    def add(
        self, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], candidates: npt.NDArray[np.int64]
    ) -> None:
        """Look at those byte strings that may be pictures."""
        widths, heights = [], []
        view = memoryview(data)  # type: ignore[arg-type]
        for i in candidates.tolist():
            facts = _core.look(view[ends[i] : ends[i + 1]], False)
            if facts.format == _core.PictureFormat.NONE:
                continue
            self.count += 1
            self.formats[facts.format.name.lower()] += 1
            if not facts.width or not facts.height:
                self.unsized += 1
                continue
            widths.append(facts.width)
            heights.append(facts.height)
            self.channels[facts.channels] += 1
            self.bits[facts.bits] += 1
            self.colours[facts.colour.name.lower()] += 1
            self.turned += facts.orientation > 1
            size = facts.width, facts.height
            if size in self.sizes or len(self.sizes) < _SIZES:
                self.sizes[size] += 1
        self.widths.add(np.array(widths, np.int64))
        self.heights.add(np.array(heights, np.int64))

    def merge(self, other: Pictures) -> None:
        """Take in everything that another one has seen."""
        for name in ("count", "unsized", "turned"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("formats", "channels", "colours", "bits", "sizes"):
            getattr(self, name).update(getattr(other, name))
        if len(self.sizes) > _SIZES:
            self.sizes = Counter(dict(_ordered(self.sizes)[:_SIZES]))
        self.widths.merge(other.widths)
        self.heights.merge(other.heights)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        return {
            "count": self.count,
            "formats": dict(_ordered(self.formats)),
            "widths": self.widths.to_dict(),
            "heights": self.heights.to_dict(),
            "sizes": [
                [width, height, times] for (width, height), times in _ordered(self.sizes)[:_LISTED_SIZES]
            ],
            "sizes_is_exact": len(self.sizes) < _SIZES,
            "channels": {str(number): times for number, times in _ordered(self.channels)},
            "colours": dict(_ordered(self.colours)),
            "bits": {str(number): times for number, times in _ordered(self.bits)},
            "turned_by_exif": self.turned,
            "without_size": self.unsized,
        }


def candidates(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The byte strings that begin as a picture does."""
    long = np.flatnonzero(np.diff(ends) >= SMALLEST_BYTES)
    begins = ends[long]
    first = data[begins].astype(np.uint16) | (data[begins + 1].astype(np.uint16) << np.uint16(8))
    return long[np.isin(first, _START_ARRAY)]


def _ordered(counter: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))
