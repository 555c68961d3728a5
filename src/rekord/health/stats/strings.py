"""Statistics of byte strings: lengths, distinct values, whether they are text, and the images among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.health.stats.numbers import (
    Array,
    CountStatistics,
    DistinctValues,
    HashArray,
    MemoryBudget,
    find_runs,
)

MIN_IMAGE_BYTES = 26
"""The size of the smallest image that can be decoded."""

_MAX_SIZES = 1000  # distinct ones that are counted
_MAX_LISTED_SIZES = 10
_IMAGE_STARTS = frozenset(
    int.from_bytes(start, "little") for start in (b"\xff\xd8", b"\x89P", b"GI", b"BM", b"RI", b"II", b"MM")
)
_IMAGE_START_ARRAY = np.array(sorted(_IMAGE_STARTS), np.uint16)


class ImageStatistics:
    """The images among the byte strings of one feature."""

    __slots__ = (
        "bits", "channels", "colours", "count", "formats", "heights", "sizes", "turned", "unsized",
        "widths",
    )  # fmt: skip

    def __init__(self, room: MemoryBudget) -> None:
        self.count = 0
        self.unsized = 0  # recognised by their first bytes, but without a readable size
        self.turned = 0  # by EXIF
        self.formats: Counter[str] = Counter()
        self.channels: Counter[int] = Counter()
        self.colours: Counter[str] = Counter()
        self.bits: Counter[int] = Counter()
        self.sizes: Counter[tuple[int, int]] = Counter()
        self.widths = CountStatistics(room)
        self.heights = CountStatistics(room)

    def add(
        self, data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], candidates: npt.NDArray[np.int64]
    ) -> None:
        """Inspect the byte strings that may be images."""
        widths, heights = [], []
        view = memoryview(data)  # type: ignore[arg-type]
        for i in candidates.tolist():
            facts = _core.inspect_image(view[ends[i] : ends[i + 1]], False)
            if facts.format == _core.ImageFormat.NONE:
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
            if size in self.sizes or len(self.sizes) < _MAX_SIZES:
                self.sizes[size] += 1
        self.widths.add(np.array(widths, np.int64))
        self.heights.add(np.array(heights, np.int64))

    def merge(self, other: ImageStatistics) -> None:
        """Merge another one into this."""
        for name in ("count", "unsized", "turned"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("formats", "channels", "colours", "bits", "sizes"):
            getattr(self, name).update(getattr(other, name))
        if len(self.sizes) > _MAX_SIZES:
            self.sizes = Counter(dict(_sort_counter(self.sizes)[:_MAX_SIZES]))
        self.widths.merge(other.widths)
        self.heights.merge(other.heights)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "count": self.count,
            "formats": dict(_sort_counter(self.formats)),
            "widths": self.widths.to_dict(),
            "heights": self.heights.to_dict(),
            "sizes": [
                [width, height, times] for (width, height), times in _sort_counter(self.sizes)[:_MAX_LISTED_SIZES]
            ],
            "sizes_is_exact": len(self.sizes) < _MAX_SIZES,
            "channels": {str(number): times for number, times in _sort_counter(self.channels)},
            "colours": dict(_sort_counter(self.colours)),
            "bits": {str(number): times for number, times in _sort_counter(self.bits)},
            "turned_by_exif": self.turned,
            "without_size": self.unsized,
        }


def find_image_candidates(data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The byte strings that begin like an image."""
    long = np.flatnonzero(np.diff(ends) >= MIN_IMAGE_BYTES)
    begins = ends[long]
    first = data[begins].astype(np.uint16) | (data[begins + 1].astype(np.uint16) << np.uint16(8))
    return long[np.isin(first, _IMAGE_START_ARRAY)]


def _sort_counter(counter: Counter[Any]) -> list[tuple[Any, int]]:
    return sorted(counter.items(), key=lambda pair: (-pair[1], pair[0]))


MAX_SHOWN_CHARACTERS = 60
_MAX_SHOWN_BYTES = 16
_MAX_KEPT_BYTES = 64  # of a value: what may be displayed
_DIGEST_CHUNK = 1 << 16  # values, so that their positions fit in the lowest bits of their digests
_PLACE_BITS = np.uint64(_DIGEST_CHUNK - 1)
_SEED = 0


SelectedStrings: TypeAlias = "tuple[_core.StringColumn, npt.NDArray[np.bool_] | None]"
"""A column, and its valid positions; None for all."""


class TruncatedBytes(bytes):
    """The first bytes of a value that is too long to be kept."""

    total_bytes: int


class StringStatistics:
    """The values of one feature that are byte strings."""

    __slots__ = ("count", "distinct", "images", "lengths", "utf8")

    def __init__(self, room: MemoryBudget) -> None:
        self.count = 0
        self.utf8 = 0
        self.lengths = CountStatistics(room)
        self.distinct = DistinctValues(np.uint64, _digests_as_hashes, named=True)
        self.images = ImageStatistics(room)

    def add(self, columns: Sequence[SelectedStrings], room: MemoryBudget, pool: _core.Pool) -> None:
        """Add the values of some columns."""
        digests = np.zeros((sum(len(values) for values, _ in columns), 2), np.uint64)
        lengths = []
        begin = 0
        for values, which in columns:
            end = begin + len(values)
            _core.digest_column(_SEED, values, None, None, digests[begin:end])
            begin = end
            ends, data = (values if values.packed else values.pack(pool)).buffers()
            lengths.append(np.diff(ends))
            self.utf8 += _count_utf8(data, ends, which)
            if len(values) and int(lengths[-1].max()) >= MIN_IMAGE_BYTES:
                begun = find_image_candidates(data, ends)
                self.images.add(data, ends, begun if which is None else begun[which[begun]])
        places = _select_places(columns)
        keys, sizes = digests[:, 0], np.concatenate(lengths)
        if places is not None:
            keys, sizes = keys[places], sizes[places]
        self.count += len(keys)
        self.lengths.add(sizes)
        self._add_keys(keys, places, _StringFetcher([values for values, _ in columns]), room)

    def _add_keys(self, digests: HashArray, places: Array | None, fetch: _StringFetcher, room: MemoryBudget) -> None:
        for begin in range(0, len(digests), _DIGEST_CHUNK):
            part = digests[begin : begin + _DIGEST_CHUNK]
            # Sorting the digests with their positions in the lowest bits is much faster than `argsort`.
            placed = np.sort((part & ~_PLACE_BITS) | np.arange(len(part), dtype=np.uint64))
            order = (placed & _PLACE_BITS).astype(np.int64)
            ordered = part[order]
            begins, counts = find_runs(ordered)
            keys, counts, order = _sort_keys(ordered[begins], counts, order[begins])
            at = order + begin if places is None else places[order + begin]
            self.distinct.add(keys, counts, room, partial(fetch.at, at))

    def merge(self, other: StringStatistics, room: MemoryBudget) -> None:
        """Merge another one into this."""
        self.count += other.count
        self.utf8 += other.utf8
        self.lengths.merge(other.lengths)
        self.distinct.merge(other.distinct, room)
        self.images.merge(other.images)


class _StringFetcher:
    """The kept bytes of values, by their positions in concatenated columns."""

    __slots__ = ("_begins", "_columns")

    def __init__(self, columns: list[_core.StringColumn]) -> None:
        self._columns = columns
        self._begins = np.cumsum([0, *map(len, columns)])

    def at(self, among: Array, chosen: Sequence[int]) -> list[bytes]:
        places = among[list(chosen)]
        owners = np.searchsorted(self._begins, places, "right") - 1
        inside = places - self._begins[owners]
        columns = self._columns
        return [
            _truncate_value(columns[owner].bytes(i))
            for owner, i in zip(owners.tolist(), inside.tolist(), strict=True)
        ]


def _truncate_value(value: Any) -> bytes:
    if len(value) <= _MAX_KEPT_BYTES:
        return bytes(value)
    begun = TruncatedBytes(value[:_MAX_KEPT_BYTES])
    begun.total_bytes = len(value)
    return begun


def format_string(value: bytes) -> str:
    """A value in JSON and reports: its text, or its first bytes in hex; at most 60 characters."""
    total = value.total_bytes if isinstance(value, TruncatedBytes) else len(value)
    text = _decode_text(value, whole=total == len(value))
    if text is None:
        more = f"… ({total:,} bytes)" if total > _MAX_SHOWN_BYTES else ""
        return f"0x{value[:_MAX_SHOWN_BYTES].hex()}{more}"
    if total == len(value) and len(text) <= MAX_SHOWN_CHARACTERS:
        return text
    return text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def _decode_text(value: bytes, *, whole: bool) -> str | None:
    for cut in range(1 if whole else 4):  # the last character may be truncated
        try:
            return value[: len(value) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
    return None


def _count_utf8(data: Array, ends: npt.NDArray[np.int64], which: npt.NDArray[np.bool_] | None) -> int:
    """The number of strings that are UTF-8."""
    count = len(ends) - 1 if which is None else int(np.count_nonzero(which))
    used = data[ends[0] : ends[-1]]
    if not len(used) or int(used.max()) < 0x80:
        return count
    import pyarrow as pa  # needed for few columns, and slow to import

    try:
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
        pa.Array.from_buffers(pa.large_string(), len(ends) - 1, buffers).validate(full=True)
        return count
    except pa.ArrowInvalid:
        pass
    view = memoryview(data)  # type: ignore[arg-type]
    good = 0
    for i in range(len(ends) - 1) if which is None else np.flatnonzero(which).tolist():
        try:
            str(view[ends[i] : ends[i + 1]], "utf-8")
            good += 1
        except UnicodeDecodeError:
            continue
    return good


def _select_places(columns: Sequence[SelectedStrings]) -> Array | None:
    """The valid positions among the values of concatenated columns; None for all."""
    if all(which is None for _, which in columns):
        return None
    flags = [np.ones(len(values), bool) if which is None else which for values, which in columns]
    return np.flatnonzero(np.concatenate(flags))


def _sort_keys(keys: HashArray, counts: Array, places: Array) -> tuple[HashArray, Array, Array]:
    """Keys with equal upper bits may be out of order, and duplicate: correct that where it happens."""
    if bool(np.all(keys[1:] > keys[:-1])):
        return keys, counts, places
    order = np.argsort(keys, kind="stable")
    keys, counts, places = keys[order], counts[order], places[order]
    begins, _ = find_runs(keys)
    return keys[begins], np.add.reduceat(counts, begins), places[begins]


def _digests_as_hashes(keys: Array) -> HashArray:
    return keys
