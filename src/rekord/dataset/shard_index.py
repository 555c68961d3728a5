"""Where the records of a shard begin: from its index file, or found out and kept for the next time.

An index is looked for in `.rekord/index` beside the shard, in the user's cache, and in the index files of other
tools. Each is believed only where it fits the file. Otherwise the headers of the file say it, one hop a record.
"""

from __future__ import annotations

import os
import stat as modes
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord.dataset.foreign_index import ascends, beside, fits, frame_bytes
from rekord.dataset.index import IndexFile, Offsets, compact, index_path, read_index_file
from rekord.dataset.index_cache import CACHED_BYTES, cached, keep
from rekord.dataset.read import explain, open_frames, open_slabs
from rekord.dataset.remote_index import remote_index_file
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.records.compress import FLUSH_BYTES, FlushPoint
from rekord.records.compression import read_head, recognise
from rekord.records.frame import EVIDENCE_BYTES
from rekord.storage.anywhere import ANYWHERE
from rekord.storage.files import read_error
from rekord.storage.remote import is_remote

if TYPE_CHECKING:
    import pyarrow as pa

Stamp: TypeAlias = "tuple[int, int, tuple[int, int]]"
"""The size of a file in bytes, the time of its last change, and which file it is."""

Origin: TypeAlias = Literal["written", "cached", "beside", "found"]

_MOST_FRAMES = 1 << 20
_MOST_KEPT = 1024
_LONG_BYTES = 64 << 10
"""Between longer records a few bytes are read, instead of the whole file."""
_RECORDS_TO_TELL = 16


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """Where each frame begins in the stream of a shard, as uint32 or uint64, and the columns that are kept of it.

    `flush_points` are where reading of a compressed shard can begin besides its front; None where that is unknown.
    """

    offsets: Offsets
    table: pa.Table | None = None
    compression: str = "none"
    flush_points: tuple[FlushPoint, ...] | None = None
    origin: Origin = "found"
    stamp: Stamp = (0, 0, (0, 0))


_kept: OrderedDict[tuple[str, Stamp], ShardIndex] = OrderedDict()
_lock = Lock()


def shard_index(path: str, records: int | None = None) -> ShardIndex:
    """The index of a shard as the file is now. One that has not so many `records` is not believed."""
    key = (path, stamp_of(path))
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
    if found is None:
        found = _remembered(path, _looked_up(path, key[1]))
    if records is not None and len(found.offsets) != records and found.origin != "found":
        return rebuilt_index(path)
    return found


def rebuilt_index(path: str) -> ShardIndex:
    """What the headers of the file say, whatever an index says. It is what `shard_index` gives from now on."""
    return _remembered(path, _found_out(path, stamp_of(path)))


def front_only(path: str) -> str | None:
    """The compression of a file that can only be read from its front; None where any record can be reached."""
    stamp = stamp_of(path)
    compression = compression_of(path)
    if compression == "none":
        return None
    written = _written(path)
    found = None if written is None else _fitting(path, stamp, written, "written")
    return compression if found is None or found.flush_points is None else None


def stamp_of(path: str) -> Stamp:
    """What tells the file as it is from what it may become."""
    if is_remote(path):
        told = ANYWHERE.stat(path)
        return told.size_bytes, told.mtime_ns, told.identity
    try:
        found = os.stat(path)
    except OSError as failure:
        raise read_error(path, failure) from failure
    if not modes.S_ISREG(found.st_mode):
        raise error(
            "X503",
            location=Location(path=path),
            expected="a file, whose records have places",
            found="a folder" if modes.S_ISDIR(found.st_mode) else "a pipe, a socket or a device",
            do="copy it to a file first; in file order it can be read as it is",
        )
    return found.st_size, found.st_mtime_ns, (found.st_dev, found.st_ino)


def changed(path: str, before: Stamp, now: Stamp | None) -> RekordError:
    """The error for a file that is not any more what was looked at."""
    same_size = now is None or now[0] == before[0]
    return error(
        "X548",
        location=Location(path=path),
        expected=f"{before[0]:,} bytes" + (", as they were" if same_size else ""),
        found="other content" if now is None else "a later change" if same_size else f"{now[0]:,} bytes",
        do="open the dataset again when nobody writes to it any more",
    )


def _remembered(path: str, found: ShardIndex) -> ShardIndex:
    with _lock:
        _kept[path, found.stamp] = found
        _kept.move_to_end((path, found.stamp))
        while len(_kept) > _MOST_KEPT:
            _kept.popitem(last=False)
    return found


def _looked_up(path: str, stamp: Stamp) -> ShardIndex:
    size_bytes, mtime_ns, _ = stamp
    written = _written(path)
    if written is not None and (found := _fitting(path, stamp, written, "written")) is not None:
        return found
    if size_bytes < CACHED_BYTES:
        return _found_out(path, stamp)
    kept = cached(path, size_bytes, mtime_ns)
    if kept is not None and (found := _fitting(path, stamp, kept, "cached")) is not None:
        return found
    if not is_remote(path):
        others = beside(path, size_bytes)
        if others is not None and _fits(path, others, size_bytes):
            return ShardIndex(others, origin="beside", stamp=stamp)
    found = _found_out(path, stamp)
    keep(path, size_bytes, mtime_ns, found.offsets, found.compression)
    return found


def _written(path: str) -> IndexFile | None:
    """The index file that belongs to a shard."""
    place = index_path(path)
    return remote_index_file(place) if is_remote(place) else read_index_file(place)


def _fitting(path: str, stamp: Stamp, file: IndexFile, origin: Origin) -> ShardIndex | None:
    """An index file as an index of the shard; None where the two do not fit together."""
    told, offsets = file.told, file.offsets
    if told.file_bytes is not None and told.file_bytes != stamp[0]:
        return None
    compression = compression_of(path)
    table = file.table if origin == "written" else None
    if compression == "none":
        if told.flush_points or not _fits(path, offsets, stamp[0]):
            return None
        return ShardIndex(offsets, table, origin=origin, stamp=stamp)
    points = None if told.flush_points is None else tuple(FlushPoint(*pair) for pair in told.flush_points)
    plausible = not len(offsets) or (int(offsets[0]) == 0 and ascends(offsets))
    if not plausible or (points is not None and not _leads_in(points, offsets, stamp[0])):
        return None
    return ShardIndex(offsets, table, compression, points, origin, stamp)


def _fits(path: str, offsets: Offsets, size_bytes: int) -> bool:
    if is_remote(path):  # every look at a header would be a request; what is read is looked at then
        return (
            int(offsets[0]) == 0 and int(offsets[-1]) < size_bytes and ascends(offsets)
            if len(offsets)
            else size_bytes == 0
        )
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as failure:
        raise read_error(path, failure) from failure
    try:
        return fits(offsets, size_bytes, descriptor)
    except OSError as failure:
        raise read_error(path, failure) from failure
    finally:
        os.close(descriptor)


def _leads_in(points: tuple[FlushPoint, ...], offsets: Offsets, size_bytes: int) -> bool:
    """Whether flush points are at records of a stream, as close to each other as ours are."""
    begins = [0, *[point.offset for point in points]]
    inside = [0, *[point.compressed_offset for point in points], size_bytes]
    if (
        begins[-1] >= 1 << 63
        or any(a >= b for a, b in pairwise(begins))
        or any(a >= b for a, b in pairwise(inside))
    ):
        return False
    firsts = [*np.searchsorted(offsets, np.array(begins, np.uint64)).tolist(), len(offsets)]
    for begin, (first, following) in zip(begins, pairwise(firsts), strict=True):
        # All records of a block begin in its first megabyte, so that none costs much more than that to reach.
        if following > first and (
            int(offsets[first]) != begin or int(offsets[following - 1]) - begin >= FLUSH_BYTES
        ):
            return False
    return True


def compression_of(path: str) -> str:
    """`none`, `gzip` or `zlib`, by content."""
    with ANYWHERE.open_read(path) as file:
        if _core.header_agrees(read_head(file, _core.HEADER_BYTES)):
            return "none"
        file.seek(0)
        return recognise(read_head(file))


def _found_out(path: str, stamp: Stamp) -> ShardIndex:
    """The offsets of all frames, by their headers alone. Damage is what reading the file gives."""
    pool = _core.Pool(4 << 20)
    parts: list[Any] = []
    with open_slabs(path, pool, reuse=True) as reader:
        compression = reader.compression
        jumps = compression == "none" and not is_remote(path)
        try:
            while (segment := reader.next(_MOST_FRAMES)) is not None:
                parts.append(_core.frame_offsets(segment.slab, segment.begin, segment.end, segment.offset))
                if (
                    jumps
                    and reader.record >= _RECORDS_TO_TELL
                    and reader.offset >= _LONG_BYTES * reader.record
                ):
                    parts.append(_jumped(path, reader.record, reader.offset, stamp))
                    break
        except RekordError as failure:
            failure.location = failure.location.within(path=path, record=reader.record, offset=reader.offset)
            raise _explained(failure) from None
    now = stamp_of(path)
    if now != stamp:
        raise changed(path, stamp, now)
    offsets = compact(np.concatenate(parts) if parts else np.zeros(0, np.uint64))
    return ShardIndex(offsets, compression=compression, stamp=stamp)


def _jumped(path: str, record: int, offset: int, stamp: Stamp) -> Any:
    """The offsets of the frames from a place on, reading nothing but their headers."""
    found: list[int] = []
    size_bytes = stamp[0]
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as failure:
        raise read_error(path, failure) from failure
    try:
        while offset < size_bytes:
            header = os.pread(descriptor, _core.HEADER_BYTES, offset)
            if not _core.header_agrees(header) or offset + frame_bytes(header) > size_bytes:
                raise damage(path, record + len(found), offset, stamp)
            found.append(offset)
            offset += frame_bytes(header)
    except OSError as failure:
        raise read_error(path, failure) from failure
    finally:
        os.close(descriptor)
    return np.array(found, np.uint64)


def damage(path: str, record: int, offset: int, stamp: Stamp) -> RekordError:
    """What reading says of the frame that is wrong here."""
    with open_frames(path) as reader:
        reader.start_at(offset=offset, record=record)
        try:
            next(reader.stretches(), None)
        except RekordError as failure:
            return reader.recover(failure, within=EVIDENCE_BYTES)[0]
    return changed(path, stamp, None)


def _explained(failure: RekordError) -> RekordError:
    try:
        return explain(failure)
    except RekordError:
        return failure  # the file cannot be looked at any more
