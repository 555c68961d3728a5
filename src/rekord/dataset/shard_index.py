"""Where the records of a shard begin: from its index file or the user's cache, else by a scan of the file."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat as modes
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, pairwise
from threading import Lock
from time import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord.dataset.external_index import find_external_index, is_index_of_file
from rekord.dataset.index import (
    CHUNK_CACHE_BYTES,
    CHUNK_RECORDS,
    IndexExpectation,
    IndexFile,
    IndexMismatch,
    Offsets,
    Stamp,
    compact_offsets,
    encode_offsets_file,
    index_path,
    open_index_file,
    parse_frame_size,
)
from rekord.dataset.manifest import MAX_INFLATION_RATIO, find_shard_entry
from rekord.dataset.read import next_frames, open_frames, open_slabs
from rekord.dataset.samplers import Ids
from rekord.errors import RekordError, error
from rekord.framing.deflate import FLUSH_BYTES, FlushPoint
from rekord.framing.frames import EVIDENCE_BYTES
from rekord.framing.inflate import read_head, sniff_compression
from rekord.location import Location
from rekord.log import get_logger
from rekord.storage.cache import cache_folder
from rekord.storage.local import LOCAL, open_descriptor, quote_folder, read_error, read_file, read_up_to
from rekord.storage.portability import pread
from rekord.storage.router import REMOTE, ROUTED_STORAGE, is_remote
from rekord.storage.transaction import StagedFile

if TYPE_CHECKING:
    import pyarrow as pa


_log = get_logger(__name__)

MIN_CACHED_FILE_BYTES = 1 << 20
"""Shorter files are scanned faster than the cache is read."""

MAX_CACHE_BYTES = 1 << 30
MAX_CACHE_ENTRIES = 20_000
_WRITES_PER_CLEANUP = 64
_UNFINISHED = ".unfinished"
_UNFINISHED_SECONDS = 86_400
_writes = count()


def read_cached_index(path: str, size_bytes: int, mtime_ns: int, expected: IndexExpectation) -> IndexFile | None:
    """The cached index of a file that is unchanged since."""
    found = read_cache_entry(path, expected)
    if found is None or (found.facts.file_bytes, found.facts.mtime_ns) != (size_bytes, mtime_ns):
        return None
    return found


def read_cache_entry(path: str, expected: IndexExpectation) -> IndexFile | None:
    """The cache entry of a path."""
    place = _entry_path(path)
    found = None if place is None else open_index_file(place, expected)
    if place is not None and found is not None:
        with suppress(OSError):
            os.utime(place)  # the least recently used entries are removed first
    return found


def write_cached_index(
    path: str,
    size_bytes: int,
    mtime_ns: int,
    offsets: Offsets,
    compression: str,
    flush_points: Sequence[FlushPoint] | None = None,
) -> None:
    """Cache an index, in place of an older one of the same file."""
    write_cache_entry(path, encode_offsets_file(offsets, size_bytes, mtime_ns, compression, flush_points))


def write_cache_entry(path: str, content: bytes) -> None:
    """Cache the bytes of an index file as the entry of a path."""
    place = _entry_path(path)
    if place is None:
        return
    staged = f"{place}.{secrets.token_hex(4)}{_UNFINISHED}"
    try:
        os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
        # In one step: others may be reading or writing the same entry. A truncated entry after a power failure does
        # no harm: its checksum does not match.
        with StagedFile(place, staged, LOCAL, sync=False) as file:
            file.write(content)
    except (OSError, RekordError):
        return
    if next(_writes) % _WRITES_PER_CLEANUP == 0:
        clean_cache(os.path.dirname(place), spare=place)


def clean_cache(folder: str, *, spare: str = "") -> None:
    """Remove unfinished entries, and the least recently used ones if there are too many."""
    found: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                facts = entry.stat(follow_symlinks=False)
                if entry.name.endswith(_UNFINISHED):
                    if facts.st_mtime < time() - _UNFINISHED_SECONDS:
                        os.unlink(entry.path)
                elif entry.name.endswith(".arrow") and entry.path != spare:
                    found.append((facts.st_mtime, facts.st_size, entry.path))
    found.sort()
    entries_left, bytes_left = len(found), sum(size_bytes for _, size_bytes, _ in found)
    for _, size_bytes, path in found:
        if entries_left < MAX_CACHE_ENTRIES and bytes_left <= MAX_CACHE_BYTES:
            return
        with suppress(OSError):
            os.unlink(path)
        entries_left -= 1
        bytes_left -= size_bytes


def _entry_path(path: str) -> str | None:
    folder = cache_folder()
    if folder is None:
        return None
    whole = path if is_remote(path) else os.path.abspath(path)
    return os.path.join(folder, f"{hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]}.arrow")


_MAX_INDEX_BYTES = 1 << 30


def open_remote_index(url: str, expected: IndexExpectation) -> IndexFile | None:
    """An index file by its URL; None if it is missing or not the expected one.

    It is read from the user's cache, chunk by chunk; if nothing can be cached it stays in memory.
    """
    if expected.checksums is not None:
        return _open_listed_index(url, expected)
    try:
        stat = REMOTE.stat(url)
    except RekordError as failure:
        # Without permission to list files, a missing one looks like a forbidden one.
        if failure.code in ("X501", "X556"):
            return None
        raise
    if stat.kind != "file" or not 0 < stat.size_bytes <= _MAX_INDEX_BYTES:
        return None
    name = f"{url}#{stat.size_bytes}-{stat.mtime_ns:x}"
    # Without a time it cannot be distinguished from a later one of the same size.
    found = read_cache_entry(name, expected) if stat.mtime_ns else None
    if found is None:
        content = REMOTE.ranges([(url, 0, stat.size_bytes)], versions={url: stat.mtime_ns})[0]
        write_cache_entry(name, content)
        found = read_cache_entry(name, expected) or open_index_file(url, expected, content)
    return found


def _open_listed_index(url: str, expected: IndexExpectation) -> IndexFile | None:
    """The same for an index whose checksums a manifest lists: they identify it, and save a request."""
    name = f"{url}#{expected.digest}#{zlib.crc32(str(expected.checksums).encode()):08x}"
    found = read_cache_entry(name, expected)
    if found is not None:
        return found
    try:
        content = REMOTE.head(url, _MAX_INDEX_BYTES)
    except RekordError as failure:
        if failure.code in ("X501", "X556"):
            return None
        raise
    index = open_index_file(url, expected, content)
    if index is None:
        return None
    write_cache_entry(name, content)
    return read_cache_entry(name, expected) or index


_FLUSH_MARKER = b"\x00\x00\xff\xff"
_WINDOW_BYTES = 32 << 10


def find_seekable_points(
    path: str, compression: str, offsets: Offsets, size_bytes: int
) -> tuple[FlushPoint, ...] | None:
    """The places where reading of a compressed file can start, besides its beginning; None if it has too few."""
    points = find_flush_points(path, compression, offsets)
    return points if points is not None and _is_valid_flush_points(points, offsets, size_bytes) else None


def find_flush_points(path: str, compression: str, offsets: Offsets) -> tuple[FlushPoint, ...] | None:
    """The flush points of a shard that rekord compressed; None if another program compressed it."""
    expected = _compute_flush_offsets(offsets)
    if not expected:
        return ()
    size_bytes = ROUTED_STORAGE.stat(path).size_bytes
    if size_bytes > _MAX_INDEX_BYTES:
        return None
    # Deflate adds a few bytes per block to data that it cannot compress. Most files of other programs end here.
    head_bytes = expected[0] + expected[0] // 64 + _WINDOW_BYTES
    if head_bytes < size_bytes:
        with ROUTED_STORAGE.open_read(path) as file:
            if _match_flush_points(read_up_to(file, head_bytes), compression, expected[:1]) is None:
                return None
    return _match_flush_points(read_file(path, ROUTED_STORAGE, most_bytes=_MAX_INDEX_BYTES), compression, expected)


def _match_flush_points(data: bytes, compression: str, expected: list[int]) -> tuple[FlushPoint, ...] | None:
    """The flush points at the expected offsets of a stream; None if one is missing."""
    stream = zlib.decompressobj(wbits=31 if compression == "gzip" else 15)
    points: list[FlushPoint] = []
    made = fed = 0
    try:
        while len(points) < len(expected):
            end = data.find(_FLUSH_MARKER, fed) + len(_FLUSH_MARKER)
            if end < len(_FLUSH_MARKER):
                return None
            made += _count_inflated_bytes(stream, data[fed:end])
            fed = end
            if made > expected[len(points)]:
                return None
            if made == expected[len(points)] and _is_flush_point(data, end):
                points.append(FlushPoint(made, end))
    except zlib.error:
        return None
    return tuple(points)


def _compute_flush_offsets(offsets: Offsets) -> list[int]:
    """The offsets in the stream before which rekord flushes."""
    found: list[int] = []
    before = 0
    while True:
        place = int(np.searchsorted(offsets, before + FLUSH_BYTES))
        if place >= len(offsets):
            return found
        before = int(offsets[place])
        found.append(before)


def _count_inflated_bytes(stream: zlib._Decompress, data: bytes) -> int:
    """The inflated size of some more input, in pieces that take little memory."""
    made = 0
    while data:
        made += len(stream.decompress(data, FLUSH_BYTES))
        data = stream.unconsumed_tail
    return made


def _is_flush_point(data: bytes, at: int) -> bool:
    """Whether the data from here on can be inflated on its own."""
    inflate = zlib.decompressobj(wbits=-15)
    try:
        return len(inflate.decompress(data[at : at + 4 * _WINDOW_BYTES], _WINDOW_BYTES)) > 0
    except zlib.error:
        return False


IndexOrigin: TypeAlias = Literal["written", "cached", "beside", "found"]

_MAX_FRAMES = 1 << 20
_MAX_CACHED_INDEXES = 1024
_LARGE_RECORD_BYTES = 64 << 10
"""If records are longer on average, only their headers are read, not the whole file."""
_MIN_SAMPLE_RECORDS = 16
_HEADERS_PER_PART = 4096
_LONG_FRAME_BYTES = 16 << 20
"""Longer frames of local files are skipped by their headers, however few they are."""


class ShardIndex:
    """Where each frame begins in the stream of a shard, and the columns that the index keeps.

    Both come from an index file, chunk by chunk, or the offsets from an array. `flush_points` are the places where
    reading of a compressed shard can start, besides its beginning; None if unknown. `stream_bytes` is the length of
    the stream, if all of it was read. Thread-safe.
    """

    def __init__(
        self,
        offsets: Offsets | None = None,
        *,
        path: str = "",
        file: IndexFile | None = None,
        compression: str = "none",
        flush_points: tuple[FlushPoint, ...] | None = None,
        origin: IndexOrigin = "found",
        stamp: Stamp = (0, 0, (0, 0)),
        stream_bytes: int | None = None,
    ) -> None:
        assert (offsets is None) != (file is None)
        self.path = path
        self.compression = compression
        self.flush_points = flush_points
        self.origin = origin
        self.stamp = stamp
        self.stream_bytes = stream_bytes
        self._offsets = offsets
        self._file = file

    def __len__(self) -> int:
        """The number of records."""
        if self._offsets is not None:
            return len(self._offsets)
        assert self._file is not None
        return self._file.records

    @property
    def is_sequential_only(self) -> bool:
        """Whether the file can only be read from its start."""
        return self.compression != "none" and self.flush_points is None

    @property
    def held_bytes(self) -> int:
        """The memory of its offsets."""
        return 0 if self._offsets is None else self._offsets.nbytes

    @property
    def offsets(self) -> Offsets:
        """The offsets of all frames, as uint32 or uint64, in memory."""
        if self._offsets is not None:
            return self._offsets
        parts = [self.chunk(number) for number in range(-(-len(self) // CHUNK_RECORDS))]
        return compact_offsets(parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.uint32)]))

    def chunk(self, number: int) -> Offsets:
        """Where the frames of the records from `number * CHUNK_RECORDS` on begin.

        A damaged chunk is not an error: the same offsets are found by a scan of the file.
        """
        if self._offsets is None:
            assert self._file is not None
            try:
                return self._file.offsets(number)
            except IndexMismatch:
                found = _scan_offsets(self.path, self.stamp)
                if len(found) != self._file.records:
                    raise index_mismatch_error(
                        self.path, f"{self._file.records:,} records", f"{len(found):,}"
                    ) from None
                self._offsets = found.offsets
        begin = number * CHUNK_RECORDS
        return self._offsets[begin : begin + CHUNK_RECORDS]

    def begins(self, records: Ids) -> Ids:
        """Where the frames of some records begin."""
        if self._offsets is not None:
            return self._offsets[records].astype(np.int64)
        if self._file is not None:
            with suppress(IndexMismatch):
                begins: Ids = self._file.get_offsets(records)
                return begins
        return self.offsets[records].astype(np.int64)

    def span(self, first: int, end: int) -> Offsets:
        """Where the frames of the records from `first` to before `end` begin."""
        parts = []
        for number in range(first // CHUNK_RECORDS, -(-end // CHUNK_RECORDS)):
            base = number * CHUNK_RECORDS
            parts.append(self.chunk(number)[max(first - base, 0) : end - base])
        return parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.uint32)])

    def extents(self, records: Ids, size_bytes: int) -> tuple[Ids, Ids]:
        """Where the frames of some records begin and end; the last one ends with the stream."""
        last = len(self) - 1
        begins, following = np.split(self.begins(np.concatenate([records, np.minimum(records + 1, last)])), 2)
        return begins, np.where(records < last, following, size_bytes)

    @property
    def whole(self) -> Offsets | None:
        """All offsets, if they are in memory or few enough to be."""
        if self._offsets is None and len(self) <= CHUNK_RECORDS:
            return self.chunk(0) if len(self) else np.zeros(0, np.uint32)
        return self._offsets

    # Columns

    def keeps(self, names: Sequence[str]) -> bool:
        """Whether the index has these columns, damaged or not."""
        return self._file is not None and set(names) <= set(self._file.columns)

    def has_columns(self, names: Sequence[str]) -> bool:
        """Whether the index has these columns and is intact."""
        return self._file is not None and self.keeps(names) and self._file.is_intact()

    def column_type(self, name: str) -> Any:
        """The Arrow type of a column of the index."""
        assert self._file is not None
        return self._file.schema.field(name).type

    def columns(self, number: int, names: Sequence[str]) -> pa.RecordBatch:
        """Columns of a chunk; X547 if it was damaged since `has_columns`."""
        assert self._file is not None
        try:
            return self._file.chunk(number).select(list(names))
        except IndexMismatch as failure:
            raise index_mismatch_error(self.path, "an index as it was written", str(failure)) from None

    @property
    def classes(self) -> dict[str, dict[str, int]]:
        """The number of records of each class of each Label, if the index has them."""
        return self._file.facts.classes if self._file is not None and self._file.columns else {}


def index_mismatch_error(path: str, expected: str, found: str, do: str | None = None) -> RekordError:
    """The error for an index that cannot be used, if there is no fallback."""
    return error(
        "X547",
        location=Location(path=path),
        expected=expected,
        found=found[:60],
        do=do or rebuild_hint(path),
    )


def rebuild_hint(path: str) -> str:
    """How to rebuild the index of a shard."""
    return f"rekord index {quote_folder(path)}      (rebuilds it from the records)"


_index_cache: OrderedDict[tuple[Any, ...], ShardIndex] = OrderedDict()
_lock = Lock()


def open_shard_index(path: str, records: int | None = None) -> ShardIndex:
    """The index of a shard as the files are now. One with another number of `records` is rebuilt."""
    stamp = read_stamp(path)
    key = _cache_key(path, stamp)
    with _lock:
        found = _index_cache.get(key)
        if found is not None:
            _index_cache.move_to_end(key)
    if found is None:
        found = _remember(key, _look_up_index(path, stamp))
    if records is not None and len(found) != records and found.origin != "found":
        return rebuild_index(path)
    return found


def rebuild_index(path: str) -> ShardIndex:
    """The index from a scan of the file, ignoring the index file. `open_shard_index` returns it from now on."""
    _log.info("rebuilding the index of %s", path)
    stamp = read_stamp(path)
    return _remember(_cache_key(path, stamp), _scan_offsets(path, stamp))


def _cache_key(path: str, stamp: Stamp) -> tuple[Any, ...]:
    """What identifies an index: the shard and the index file as they are now."""
    if is_remote(path):
        return path, stamp, None
    try:
        return path, stamp, _stat_stamp(os.stat(index_path(path)))
    except OSError:
        return path, stamp, None


def _stat_stamp(found: os.stat_result) -> Stamp:
    return found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino)


def find_sequential_compression(path: str) -> str | None:
    """The compression of a file that can only be read from its start; None if any record can be reached."""
    stamp = read_stamp(path)
    compression = detect_file_compression(path)
    if compression == "none":
        return None
    found = _load_written_index(path, stamp, compression)
    return compression if found is None or found.flush_points is None else None


def read_stamp(path: str) -> Stamp:
    """What identifies the current content of a file: size, time and identity."""
    if is_remote(path):
        stat = ROUTED_STORAGE.stat(path)
        return stat.size_bytes, stat.mtime_ns, stat.identity
    try:
        found = os.stat(path)
    except OSError as failure:
        raise read_error(path, failure) from failure
    if not modes.S_ISREG(found.st_mode):
        raise error(
            "X503",
            location=Location(path=path),
            expected="a regular file",
            found="a folder" if modes.S_ISDIR(found.st_mode) else "a pipe, a socket or a device",
            do="copy it to a file first, or read it in file order",
        )
    return _stat_stamp(found)


def file_changed_error(path: str, before: Stamp, now: Stamp | None) -> RekordError:
    """The error for a file that changed since it was first read."""
    same_size = now is None or now[0] == before[0]
    return error(
        "X548",
        location=Location(path=path),
        expected=f"{before[0]:,} bytes" + (", unchanged" if same_size else ""),
        found="other content" if now is None else "a later change" if same_size else f"{now[0]:,} bytes",
        do="open the dataset again when no process writes to it",
    )


def _remember(key: tuple[Any, ...], found: ShardIndex) -> ShardIndex:
    with _lock:
        _index_cache[key] = found
        _index_cache.move_to_end(key)
        held_bytes = sum(one.held_bytes for one in _index_cache.values())
        while len(_index_cache) > _MAX_CACHED_INDEXES or (held_bytes > CHUNK_CACHE_BYTES and len(_index_cache) > 1):
            held_bytes -= _index_cache.popitem(last=False)[1].held_bytes
    return found


def find_shard_index(path: str) -> ShardIndex | None:
    """The index of a shard, if it is known without reading the shard."""
    stamp = read_stamp(path)
    key = _cache_key(path, stamp)
    with _lock:
        found = _index_cache.get(key)
    if found is None and (found := _find_index(path, stamp)) is not None:
        _remember(key, found)
    return found


def keep_scanned_index(scan: OffsetScan) -> ShardIndex:
    """The index from a complete scan, from now on that of `open_shard_index` too."""
    return _remember(_cache_key(scan.path, scan.stamp), _store_scanned(scan.to_index()))


def _look_up_index(path: str, stamp: Stamp) -> ShardIndex:
    found = _find_index(path, stamp)
    if found is not None:
        return found
    _log.debug("scanning %s: no index found", path)
    return _store_scanned(_scan_offsets(path, stamp))


def _store_scanned(found: ShardIndex) -> ShardIndex:
    """Write the index of a scanned file to the user's cache, unless the file is short."""
    path, (size_bytes, mtime_ns, _) = found.path, found.stamp
    if size_bytes < MIN_CACHED_FILE_BYTES:
        return found
    write_cached_index(path, size_bytes, mtime_ns, found.offsets, found.compression, found.flush_points)
    # Read back if possible: then only the chunks in use take memory.
    return _load_cached_index(path, found.stamp, found.compression, origin="found") or found


def _find_index(path: str, stamp: Stamp) -> ShardIndex | None:
    """An index that was written, cached, or made by another tool."""
    size_bytes = stamp[0]
    compression = _find_compression(path)
    if (found := _load_written_index(path, stamp, compression)) is not None:
        return found
    if size_bytes < MIN_CACHED_FILE_BYTES:
        return None
    if (found := _load_cached_index(path, stamp, compression)) is not None:
        return found
    if not is_remote(path):
        others = find_external_index(path, size_bytes)
        if others is not None and _has_matching_frames(path, others, size_bytes):
            return ShardIndex(others, path=path, origin="beside", stamp=stamp)
    return None


def _load_cached_index(
    path: str, stamp: Stamp, compression: str, origin: IndexOrigin = "cached"
) -> ShardIndex | None:
    file = read_cached_index(
        path, stamp[0], stamp[1], IndexExpectation(most_bytes=_max_stream_bytes(stamp, compression))
    )
    return None if file is None else _validate_index_file(path, stamp, file, origin, compression)


def _max_stream_bytes(stamp: Stamp, compression: str) -> int:
    return stamp[0] if compression == "none" else stamp[0] * MAX_INFLATION_RATIO


def _load_written_index(path: str, stamp: Stamp, compression: str) -> ShardIndex | None:
    """The index file of a shard, if it is valid."""
    listed = find_shard_entry(path)
    if listed is not None and listed.size_bytes != stamp[0]:
        return None
    # Without a manifest, an index from `rekord index` will do; those of format 1 have no checksums.
    expected = IndexExpectation(most_bytes=_max_stream_bytes(stamp, compression))
    if listed is not None:
        expected = listed.expected or replace(expected, records=listed.records)
    place = index_path(path)
    file = open_remote_index(place, expected) if is_remote(place) else open_index_file(place, expected)
    return None if file is None else _validate_index_file(path, stamp, file, "written", compression)


def _validate_index_file(
    path: str, stamp: Stamp, file: IndexFile, origin: IndexOrigin, compression: str
) -> ShardIndex | None:
    """An index file as the index of a shard; None if the two do not match."""
    facts = file.facts
    if facts.file_bytes not in (None, stamp[0]) or facts.mtime_ns not in (0, stamp[1]):
        return None  # an index of an older version of the file
    points = None
    if compression != "none" and facts.flush_points is not None:
        points = tuple(FlushPoint(*pair) for pair in facts.flush_points)
    elif facts.flush_points:
        return None
    found = ShardIndex(path=path, file=file, compression=compression, flush_points=points, origin=origin, stamp=stamp)
    try:
        if not len(found):
            return found if stamp[0] == 0 or compression != "none" else None
        first, last = file.offsets(0), file.offsets((len(found) - 1) // CHUNK_RECORDS)
        if compression == "none":
            whole = _is_at_end_of_file(path, int(first[0]), int(last[-1]), stamp[0])
        else:
            whole = int(first[0]) == 0 and (points is None or _is_valid_flush_points(points, found.offsets, stamp[0]))
        return found if whole else None
    except IndexMismatch:
        return None


def _is_at_end_of_file(path: str, first: int, last: int, size_bytes: int) -> bool:
    """Whether the first frame is at the start and the one at `last` ends with the file, which has not grown since."""
    if first or last + _core.FRAMING_BYTES > size_bytes:
        return False
    if is_remote(path):  # each header would be a request; frames are verified when they are read
        return True
    with open_descriptor(path) as descriptor:
        header = pread(descriptor, _core.HEADER_BYTES, last)
    return _core.header_agrees(header) and last + parse_frame_size(header) == size_bytes


def _has_matching_frames(path: str, offsets: Offsets, size_bytes: int) -> bool:
    with open_descriptor(path) as descriptor:
        return is_index_of_file(offsets, size_bytes, descriptor)


def _is_valid_flush_points(points: tuple[FlushPoint, ...], offsets: Offsets, size_bytes: int) -> bool:
    """Whether flush points are at records of a stream, as close to each other as rekord writes them."""
    begins = [0, *[point.offset for point in points]]
    inside = [0, *[point.compressed_offset for point in points], size_bytes]
    if begins[-1] >= 1 << 63 or any(a >= b for a, b in pairwise(begins)) or any(a >= b for a, b in pairwise(inside)):
        return False
    firsts = [*np.searchsorted(offsets, np.array(begins, np.uint64)).tolist(), len(offsets)]
    for begin, (first, following) in zip(begins, pairwise(firsts), strict=True):
        # All records of a block begin in its first megabyte, so reaching one costs little more than that.
        if following > first and (int(offsets[first]) != begin or int(offsets[following - 1]) - begin >= FLUSH_BYTES):
            return False
    return True


def _find_compression(path: str) -> str:
    """The compression of a file: of a remote one that a manifest lists, what it says."""
    listed = find_shard_entry(path) if is_remote(path) else None
    return detect_file_compression(path) if listed is None else listed.compression


def detect_file_compression(path: str) -> str:
    """`none`, `gzip` or `zlib`, by content. A pipe is refused: its first bytes could not be read again."""
    if not is_remote(path):
        read_stamp(path)
    with ROUTED_STORAGE.open_read(path) as file:
        header = bytearray(_core.HEADER_BYTES)
        if file.readinto(header) == len(header) and _core.header_agrees(bytes(header)):
            return "none"
        file.seek(0)
        return sniff_compression(read_head(file))


class OffsetScan:
    """One pass over a file that finds where its frames begin, from their headers only.

    Iterating yields the offsets part by part, as they are found; damage is reported as when reading. A frame longer
    than `most_frame_bytes` ends the pass, unless it can be skipped without reading it; `is_stopped` is true then.
    """

    def __init__(self, path: str, stamp: Stamp, *, most_frame_bytes: int | None = None) -> None:
        self.path = path
        self.stamp = stamp
        self.compression = "none"
        self.records = 0
        self.is_stopped = False
        self._most_frame_bytes = most_frame_bytes
        self._parts: list[Offsets] = []
        self._stream_bytes: int | None = None

    def __iter__(self) -> Iterator[Offsets]:
        pool = _core.Pool(4 << 20)
        jumps = not is_remote(self.path) and detect_file_compression(self.path) == "none"
        limit = _LONG_FRAME_BYTES if jumps else self._most_frame_bytes
        with open_slabs(self.path, pool, reuse=True, most_frame_bytes=limit) as reader:
            self.compression = reader.compression
            while (segment := next_frames(reader, _MAX_FRAMES)) is not None:
                yield self._add(_core.frame_offsets(segment.slab, segment.begin, segment.end, segment.offset))
                if (
                    jumps
                    and reader.record >= _MIN_SAMPLE_RECORDS
                    and reader.offset >= _LARGE_RECORD_BYTES * reader.record
                ):
                    reader.is_stopped = True
                    break
            if reader.is_stopped and jumps:
                for part in _scan_headers(self.path, reader.record, reader.offset, self.stamp):
                    yield self._add(part)
            self.is_stopped = reader.is_stopped and not jumps
            self._stream_bytes = None if jumps else reader.offset

    def to_index(self) -> ShardIndex:
        """The index, after the last part."""
        now = read_stamp(self.path)
        if now != self.stamp:
            raise file_changed_error(self.path, self.stamp, now)
        offsets = compact_offsets(np.concatenate(self._parts) if self._parts else np.zeros(0, np.uint64))
        points = None
        # Written by rekord, without its index.
        if self.compression != "none" and find_shard_entry(self.path) is not None:
            points = find_seekable_points(self.path, self.compression, offsets, self.stamp[0])
        return ShardIndex(
            offsets,
            path=self.path,
            compression=self.compression,
            flush_points=points,
            stamp=self.stamp,
            stream_bytes=self._stream_bytes,
        )

    def _add(self, found: Any) -> Offsets:
        part: Offsets = found
        self._parts.append(part)
        self.records += len(part)
        return part


def _scan_offsets(path: str, stamp: Stamp) -> ShardIndex:
    """The index from a scan of the whole file."""
    scan = OffsetScan(path, stamp)
    for _ in scan:
        pass
    return scan.to_index()


def _scan_headers(path: str, record: int, offset: int, stamp: Stamp) -> Iterator[Offsets]:
    """The offsets of the frames from a position on, in parts; only headers are read."""
    size_bytes = stamp[0]
    with open_descriptor(path, wait=True) as descriptor:
        while offset < size_bytes:
            found: list[int] = []
            while offset < size_bytes and len(found) < _HEADERS_PER_PART:
                header = pread(descriptor, _core.HEADER_BYTES, offset)
                if not _core.header_agrees(header) or offset + parse_frame_size(header) > size_bytes:
                    if found:
                        yield np.array(found, np.uint64)
                    raise diagnose_frame(path, record + len(found), offset, stamp)
                found.append(offset)
                offset += parse_frame_size(header)
            record += len(found)
            yield np.array(found, np.uint64)


def diagnose_frame(path: str, record: int, offset: int, stamp: Stamp) -> RekordError:
    """The error that reading reports for the damaged frame here."""
    with open_frames(path) as reader:
        reader.start_at(offset=offset, record=record)
        try:
            next(reader.iter_verified_frames(), None)
        except RekordError as failure:
            return reader.recover(failure, within=EVIDENCE_BYTES)[0]
    return file_changed_error(path, stamp, None)
