"""Records of compressed shards in any order: from flush points, or from an inflated copy."""

from __future__ import annotations

import os
import secrets
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

import numpy as np

from rekord import _core
from rekord.dataset.index import ByteLimitedCache, parse_frame_size
from rekord.dataset.read import next_frames, open_frames, open_slabs
from rekord.dataset.samplers import Ids
from rekord.dataset.shard_index import ShardIndex, file_changed_error, read_stamp, rebuild_hint
from rekord.errors import RekordError, error
from rekord.framing.deflate import FlushPoint
from rekord.framing.frames import EVIDENCE_BYTES
from rekord.location import Location
from rekord.storage.local import Storage, read_up_to
from rekord.storage.router import ROUTED_STORAGE

MAX_INFLATED_BYTES = 64 << 20
_STEP_BYTES = 1 << 20


class CompressedShard:
    """A compressed shard whose index has flush points, where reading can start.

    `blocks` keeps inflated blocks, so that neighbours do not cost the same again.
    """

    def __init__(self, path: str, index: ShardIndex, blocks: ByteLimitedCache) -> None:
        assert index.flush_points is not None, "it can only be read from its start"
        self.path = path
        self.index = index
        self._blocks = blocks
        self._points = (FlushPoint(0, 0), *index.flush_points)
        self._begins = np.array([point.offset for point in self._points], np.uint64)

    def cut(self, records: Ids) -> tuple[tuple[Any, Any, int], Ids]:
        """The frames of some records as one piece for the core to gather from, and the position of each in it."""
        wanted, places = np.unique(records, return_inverse=True)
        begins, ends = self.index.extents(wanted, np.iinfo(np.int64).max)
        blocks = np.searchsorted(self._begins, begins.astype(np.uint64), side="right") - 1
        pieces: list[bytes] = []
        starts = np.zeros(len(wanted), np.uint64)
        size_bytes = 0
        current, block = -1, b""
        for i, number in enumerate(blocks.tolist()):
            if number != current:
                current, block = number, self._block(number)
            base = self._points[number].offset
            end = min(int(ends[i]), base + len(block))
            piece = block[int(begins[i]) - base : end - base]
            pieces.append(piece)
            starts[i] = size_bytes
            size_bytes += len(piece)
        return (b"".join(pieces), starts, 8), places.reshape(-1).astype(np.int64)

    def _block(self, number: int) -> bytes:
        key = (self.path, self.index.stamp, number)
        found: bytes | None = self._blocks.get(key)
        if found is None:
            found = self._inflate(number)
            self._blocks.put(key, found, len(found))
        return found

    def _inflate(self, number: int) -> bytes:
        point = self._points[number]
        last = number + 1 == len(self._points)
        end = self.index.stamp[0] if last else self._points[number + 1].compressed_offset
        data = self._read(point.compressed_offset, end)
        # Only the first block has the header of the file; after a full flush there is raw deflate.
        window = (31 if self.index.compression == "gzip" else 15) if number == 0 else -15
        inflate = zlib.decompressobj(wbits=window)
        try:
            if last:
                return self._last(inflate, data, point.offset)
            expected_bytes = self._points[number + 1].offset - point.offset
            block = inflate.decompress(data, expected_bytes)
            # More data than that does not match the index.
            if len(block) == expected_bytes and not inflate.eof:
                return block
        except zlib.error:
            pass
        raise self._wrong(number)

    def _last(self, inflate: Any, data: bytes, base: int) -> bytes:
        """The last block, up to the end of the last record, whose header is verified first."""
        if not len(self.index):
            return b""
        begin = int(self.index.begins(np.array([len(self.index) - 1]))[0]) - base
        block = _inflate_up_to(inflate, data, begin + _core.HEADER_BYTES)
        header = bytes(block[begin:])
        if not _core.header_agrees(header):
            raise self._wrong(len(self._points) - 1)
        end = begin + parse_frame_size(header)
        while len(block) < end:
            step = _inflate_up_to(inflate, inflate.unconsumed_tail, min(end - len(block), _STEP_BYTES))
            if not step:
                raise self._wrong(len(self._points) - 1)
            block += step
        return bytes(block)

    def _read(self, begin: int, end: int) -> bytes:
        with ROUTED_STORAGE.open_read(self.path) as file:
            file.seek(begin)
            return read_up_to(file, end - begin)

    def _wrong(self, number: int) -> RekordError:
        """The damage that reading from the start finds, or X547: the index does not match the file."""
        point = self._points[number]
        with open_frames(self.path) as reader:
            try:
                for _ in reader.iter_verified_frames():
                    pass
            except RekordError as failure:
                return reader.recover(failure, within=EVIDENCE_BYTES)[0]
        return error(
            "X547",
            location=Location(path=self.path, offset=point.offset, compressed_offset=point.compressed_offset),
            expected="records from the flush point of the index on",
            found="other data, in an intact file",
            do=rebuild_hint(self.path),
        )


def _inflate_up_to(inflate: Any, data: bytes, most_bytes: int) -> bytearray:
    """Up to `most_bytes` more bytes."""
    out = bytearray()
    while len(out) < most_bytes:
        step = inflate.decompress(data, most_bytes - len(out))
        data = inflate.unconsumed_tail
        out += step
        if not step:
            break
    return out


_MAX_FRAMES = 1 << 20
_IDLE_BYTES = 4 << 20


class InflatedCopies:
    """Inflated copies of shards, each made when it is first needed. Thread-safe."""

    def __init__(self, folder: str, storage: Storage) -> None:
        self._folder = folder
        self._storage = storage
        self._copies: dict[str, tuple[str, ShardIndex]] = {}
        self._locks: defaultdict[str, Lock] = defaultdict(Lock)
        self._lock = Lock()

    def inflate_shard(self, path: str, index: ShardIndex) -> tuple[str, ShardIndex]:
        """The copy of a shard, and its index."""
        with self._lock:
            lock = self._locks[path]
        with lock:  # one thread inflates a file; others can read other files meanwhile
            if path not in self._copies:
                self._copies[path] = self._inflated(path, index)
            return self._copies[path]

    def remove(self) -> None:
        """Remove the copies."""
        for copy, _ in self._copies.values():
            with suppress(RekordError):
                self._storage.remove(copy)
        self._copies.clear()

    def _inflated(self, path: str, index: ShardIndex) -> tuple[str, ShardIndex]:
        # A later run recognises this name as unfinished, and removes it.
        copy = os.path.join(self._folder, f"unpacked-{os.getpid()}-{secrets.token_hex(8)}.tmp")
        file = self._storage.create(copy)
        try:
            written = self._copy_frames(path, file.write)
        except BaseException:
            with suppress(RekordError):
                self._storage.remove(copy)
            raise
        finally:
            file.close()
        if read_stamp(path) != index.stamp or (index.stream_bytes or written) != written:
            with suppress(RekordError):
                self._storage.remove(copy)
            raise file_changed_error(path, index.stamp, None)
        return copy, ShardIndex(index.offsets, path=copy, stamp=read_stamp(copy), stream_bytes=written)

    def _copy_frames(self, path: str, write: Callable[[memoryview], object]) -> int:
        with open_slabs(path, _core.Pool(_IDLE_BYTES), reuse=True) as reader:
            while (segment := next_frames(reader, _MAX_FRAMES)) is not None:
                write(memoryview(segment.slab.view())[segment.begin : segment.end])
            return reader.offset
