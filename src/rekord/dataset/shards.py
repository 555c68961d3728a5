"""The shards of a split, and any of their records by number."""

from __future__ import annotations

import os
import shlex
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from threading import Lock
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.dataset.index import ByteLimitedCache, Stamp
from rekord.dataset.manifest import MANIFEST_NAME, ConcatListing, ShardListing, shard_size_error
from rekord.dataset.readers.compressed import MAX_INFLATED_BYTES, CompressedShard, InflatedCopies
from rekord.dataset.readers.remote import MAX_CACHED_BYTES, FetchedRangeCache, RemoteShard, fetch_records
from rekord.dataset.samplers import Ids
from rekord.dataset.shard_cache import fetch_file, fetch_shard, find_copy
from rekord.dataset.shard_index import (
    ShardIndex,
    file_changed_error,
    find_sequential_compression,
    open_shard_index,
    read_stamp,
    rebuild_index,
)
from rekord.errors import RekordError, UsageError, error
from rekord.location import Location
from rekord.storage.cache import DiskCache, download_in_background
from rekord.storage.local import LOCAL, Stat, open_descriptor
from rekord.storage.portability import pread
from rekord.storage.router import ROUTED_STORAGE, is_remote, map_concurrently


class RecordIndexError(UsageError, IndexError):
    """An IndexError as well: Python ends a loop over `split[0]`, `split[1]`, … by it."""

    def __init__(self, found: object, expected: str) -> None:
        super().__init__(
            "U606",
            f"split has no record {repr(found)[:60]}",
            expected=expected,
            found=repr(found)[:60],
            do="split[0]      (the first record; split[-1] is the last, len(split) their number)",
        )
        self._given = (found, expected)

    def __reduce__(self) -> tuple[object, ...]:
        return RecordIndexError, self._given


RECHECK_SECONDS = 30.0
"""How often a remote file is checked for changes: each check is a request."""

_PARALLEL_INDEXES = 4
"""Remote files scanned concurrently; each has a few megabytes in flight."""

_CONCURRENT_COPIES = 4
"""Shards that are copied to the local disk concurrently."""

MAX_OPEN_FILES = 1024
"""Shards open at a time. A mapped one holds no file descriptor, only a range of addresses."""


class GatheredFrames(NamedTuple):
    """Frames of records, one after another in the first `size_bytes` of a slab, in the order of `ids`."""

    slab: _core.Slab
    size_bytes: int
    ids: Ids
    shards: Shards
    begin: Literal[0] = 0

    @property
    def end(self) -> int:
        return self.size_bytes

    @property
    def frames(self) -> int:
        return len(self.ids)

    def where(self, frame: int, at: int | None = None) -> Location:
        """The record that a frame is."""
        return self.shards.where(int(self.ids[frame]))


class Shards:
    """The shards of a split. Counts and indexes are looked up when they are needed. Thread-safe.

    `listed` are shards in a manifest, which is read again after unpickling; others have `paths`. `counts_origin` is
    the name of the file that `counts` come from. From remote shards, blocks of `block_records` are fetched whole.
    `stamps` are those of the files when the counts were compared with them; a listed shard without a stamp is
    compared with the manifest when it is first used. With a `cache`, remote shards are read from copies on disk.
    """

    def __init__(
        self,
        paths: Sequence[str] | None = None,
        counts: Sequence[int] | Ids | None = None,
        *,
        listed: ShardListing | None = None,
        counts_origin: str = MANIFEST_NAME,
        block_records: int | None = None,
        stamps: Sequence[Stamp] = (),
        cache: DiskCache | None = None,
    ) -> None:
        self._listed = listed
        self.cache = cache
        self._copies: dict[int, str | None] = {}  # paths on the local disk; None for what cannot be stored
        self._announced: set[int] = set()  # shards that are being downloaded ahead
        self._paths = None if paths is None else tuple(paths)
        self.remote = is_remote(listed.folder) if listed else any(map(is_remote, self._paths or ()))
        self._block_records = block_records
        self._listed_counts = None if counts is None else np.array(counts, np.int64)
        self._counts_origin = counts_origin
        self._counts = self._listed_counts
        self._starts: Ids | None = None
        self._stamps: dict[int, Stamp] = dict(enumerate(stamps))
        self._open: OrderedDict[int, _OpenShard] = OrderedDict()
        self._checked_at: dict[int, float] = {}  # when remote shards were last checked for changes
        self._process = os.getpid()
        self._has_random_access = False
        self._inflated_copies: InflatedCopies | None = None
        self._lock = Lock()

    # Most shards are plain local files, which need neither.

    @cached_property
    def _blocks(self) -> ByteLimitedCache:
        return ByteLimitedCache(MAX_INFLATED_BYTES if self._block_records is None else MAX_CACHED_BYTES)

    @cached_property
    def _pieces(self) -> FetchedRangeCache:
        return FetchedRangeCache()

    @classmethod
    def concat(cls, parts: Sequence[Shards]) -> Shards:
        """The shards of all parts, in this order."""
        listed = [part._listed for part in parts if part._listed is not None]
        if len(listed) == len(parts):
            return cls(listed=ConcatListing(tuple(listed)), cache=parts[0].cache)
        paths = [path for part in parts for path in part.paths]
        # Counts found by scanning files are looked up again: only listed counts are passed on as such.
        if not all(part.has_listed_counts for part in parts):
            return cls(paths, cache=parts[0].cache)
        counts = [count for part in parts for count in part.counts]
        return cls(paths, counts, counts_origin=parts[0]._counts_origin, cache=parts[0].cache)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "listed": self._listed,
            "paths": self._paths,
            "listed_counts": _numbers_to_list(self._listed_counts),
            "counts_origin": self._counts_origin,
            # Listed counts are pickled above, or read from the manifest again.
            "counts": None if self.has_listed_counts else _numbers_to_list(self._counts),
            "block_records": self._block_records,
            "cache": self.cache,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            state["paths"],
            state["listed_counts"],
            listed=state["listed"],
            counts_origin=state["counts_origin"],
            block_records=state["block_records"],
            cache=state["cache"],
        )
        if state["counts"] is not None:
            self._counts = np.array(state["counts"], np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The paths of all shards, in order; those of listed ones are computed on access."""
        if self._paths is not None:
            return self._paths
        assert self._listed is not None
        return self._listed.paths

    def place(self, shard: int) -> str:
        """Where a shard is read from: its path, or that of a copy on the local disk, which is made if need be."""
        path = self.paths[shard]
        if self.cache is None or not is_remote(path):
            return path
        copy = self._copies.get(shard, path)
        if copy == path or (copy is not None and not os.path.exists(copy)):
            if copy != path:
                self._forget_evicted()
            if self._listed is not None:
                copy = fetch_shard(self.cache, self._listed.entry_to_cache(shard))
            else:
                copy = fetch_file(self.cache, path)
            self._copies[shard] = copy
        return copy or path

    def _forget_evicted(self) -> None:
        """Announce shards again that were evicted since they were copied."""
        self._copies = {shard: copy for shard, copy in self._copies.items() if copy is None or os.path.exists(copy)}
        self._announced &= self._copies.keys()

    def _known_place(self, shard: int) -> str:
        """The same without a download: the path of a copy only if there is one."""
        path = self.paths[shard]
        if self.cache is None or not is_remote(path):
            return path
        copy = self._copies.get(shard)
        if copy is None and self._listed is not None:
            copy = find_copy(self.cache, self._listed.entry_to_cache(shard))
        return copy if copy is not None and os.path.exists(copy) else path

    def fetch_ahead(self, shards: Iterable[int]) -> None:
        """Begin to copy shards to the local disk."""
        for shard in shards:
            if shard not in self._announced:
                self._announced.add(shard)
                if shard not in self._copies:
                    download_in_background(partial(self.place, shard))

    @property
    def has_unannounced(self) -> bool:
        """Whether any shard was neither copied nor announced."""
        return len(self._announced) < len(self.paths)

    def announce(self, ids: Ids) -> None:
        """Begin to copy the shards of records that will be read later."""
        self.fetch_ahead(np.unique(self.locate(ids)[0]).tolist())

    @property
    def total_bytes(self) -> int:
        """The size of all files, as listed in a manifest or as they are now."""
        if self._listed is not None:
            return int(self._listed.sizes_bytes.sum())
        return sum(one.size_bytes for one in self.stats())

    def class_counts(self, column: str) -> Mapping[int, int] | None:
        """The number of records of each class of a Label, if a manifest lists them."""
        return None if self._listed is None else self._listed.class_counts(column)

    def stats(self) -> list[Stat]:
        """The current state of each file."""
        return map_concurrently(ROUTED_STORAGE.stat, self.paths, remote=self.remote)

    @property
    def records_ahead(self) -> int:
        """How many records ahead of reading shards are copied to the local disk; 0: none are."""
        if self.cache is None or not self.remote or not len(self.paths):
            return 0
        return self.cache.ahead * len(self) // len(self.paths)

    @property
    def counted(self) -> bool:
        """Whether the number of records is known without reading a file."""
        return self._listed is not None or self._counts is not None

    @property
    def has_listed_counts(self) -> bool:
        """Whether the number of records is listed in a file."""
        return self._listed is not None or self._listed_counts is not None

    @property
    def counts(self) -> Ids:
        """The number of records of each shard."""
        if self._counts is None and self._listed is not None:
            self._counts = self._listed.counts
        if self._counts is None:
            found = map_concurrently(
                lambda shard: open_shard_index(self.place(shard)),
                range(len(self.paths)),
                remote=self.remote,
                at_once=_PARALLEL_INDEXES,
            )
            with self._lock:
                for shard, index in enumerate(found):
                    self._stamps.setdefault(shard, index.stamp)
                self._counts = np.array([len(index) for index in found], np.int64)
        return self._counts

    @property
    def starts(self) -> Ids:
        """The number of the first record of each shard, followed by the total."""
        if self._starts is None:
            self._starts = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)]).astype(np.int64)
        return self._starts

    def __len__(self) -> int:
        return int(self.starts[-1])

    def locate(self, ids: Ids) -> tuple[Ids, Ids]:
        """The shard of each record, and its number there."""
        shards = np.searchsorted(self.starts, ids, side="right").astype(np.int64) - 1
        return shards, ids - self.starts[shards]

    def where(self, record: int) -> Location:
        """The location of a record, for an error."""
        shards, records = self.locate(np.array([record], np.int64))
        path, number = self._known_place(int(shards[0])), int(records[0])
        index = open_shard_index(path)
        known = number < len(index)
        return Location(path=path, record=number, offset=int(index.begins(records)[0]) if known else None)

    def index(self, shard: int) -> ShardIndex:
        """The index of a shard, which must be unchanged since it was opened and have the known number of records."""
        self.check_unchanged(shard)
        path = self._known_place(shard)
        expected = None if self._counts is None and self._listed is None else int(self.counts[shard])
        index = open_shard_index(path, expected)
        if expected is not None and len(index) != expected:
            raise self._record_count_error(shard, expected, len(index))
        return index

    def check_random_access(self) -> None:
        """Raise if a file can only be read from its start, before anything is counted or shuffled."""
        if self._has_random_access or self.has_listed_counts:
            return  # listed shards have an index; a missing one is reported when it is needed
        for path, compression in zip(
            self.paths,
            map_concurrently(
                lambda shard: find_sequential_compression(self._known_place(shard)),
                range(len(self.paths)),
                remote=self.remote,
            ),
            strict=True,
        ):
            if compression is not None:
                raise sequential_only_error(path, compression)
        self._has_random_access = True

    @contextmanager
    def with_inflated_copies(self, unpacked: InflatedCopies) -> Iterator[None]:
        """Within this, files that can only be read from their start are read from inflated copies."""
        self._inflated_copies = unpacked
        try:
            yield
        finally:
            self._inflated_copies = None
            self.close()

    def in_blocks(self, records: int) -> Shards:
        """The same shards for a block-wise order: remote blocks of `records` records are fetched once, whole."""
        if not self.remote:
            return self
        shards = Shards(
            self._paths,
            self._listed_counts,
            listed=self._listed,
            counts_origin=self._counts_origin,
            block_records=records,
            cache=self.cache,
        )
        shards._counts, shards._stamps, shards._copies = self._counts, self._stamps, self._copies
        return shards

    def gather(self, ids: Ids, pool: _core.Pool) -> GatheredFrames:
        """The frames of these records."""
        gathered, opened = self._gather(ids, pool)
        whole, damaged = _verify_frames(gathered)
        if whole:
            return gathered
        if self._repair_index(opened):
            gathered, opened = self._gather(ids, pool)
            whole, damaged = _verify_frames(gathered)
        if not whole and not damaged:
            # Intact frames, but not one per record: decoding would not notice.
            one = next(iter(opened.values()))
            raise file_changed_error(one.path, one.index.stamp, None)
        return gathered  # decoding reports the damaged frame

    def check_unchanged(self, shard: int) -> None:
        """Raise if a file changed since it was first read."""
        path = self.paths[shard]
        if is_remote(path):
            return  # each check is a request
        if LOCAL.stat(path).kind != "file":
            if self._listed is not None:  # reading it could block forever
                raise shard_size_error(path, int(self._listed.sizes_bytes[shard]), 0, is_file=False)
            return  # a pipe has no stamp
        self._check_stamp(shard, read_stamp(path))

    def _check_stamp(self, shard: int, stamp: Stamp, *, is_current: bool = False) -> None:
        """Raise if a file changed, or does not match the manifest at its first use, which must be current."""
        before = self._stamps.get(shard)
        if before is None and self._listed is not None:
            expected_bytes = int(self._listed.sizes_bytes[shard])
            if not is_current:
                self._listed.check_current(shard)
            if stamp[0] != expected_bytes:
                raise shard_size_error(self.paths[shard], expected_bytes, stamp[0])
        before = self._stamps.setdefault(shard, stamp)
        if before != stamp:
            raise file_changed_error(self.paths[shard], before, stamp)

    def check_after_read(self, shard: int, records: int) -> None:
        """Raise if a file changed while it was read to its end, or does not have the listed number of records."""
        self.check_unchanged(shard)
        if self.has_listed_counts and self.counts[shard] != records:
            raise self._record_count_error(shard, int(self.counts[shard]), records)

    def close(self) -> None:
        """Close all files; they are opened again when they are needed."""
        with self._lock:
            self._open.clear()
        for cache in (self.__dict__.get("_blocks"), self.__dict__.get("_pieces")):
            if cache is not None:
                cache.clear()

    def _gather(self, ids: Ids, pool: _core.Pool) -> tuple[GatheredFrames, dict[int, _OpenShard]]:
        shards, records = self.locate(ids)
        used, which = np.unique(shards, return_inverse=True)
        if self._process != os.getpid():  # the lock may have been held when the process was forked
            self._process, self._lock = os.getpid(), Lock()
        self._inflate_copies(used)
        if self.cache is not None:
            missing = [shard for shard in used.tolist() if shard not in self._open]
            if missing:
                map_concurrently(self.place, missing, remote=True, at_once=_CONCURRENT_COPIES)
        with self._lock:
            if self.remote:
                self._open_remote([shard for shard in used.tolist() if self._is_read_remotely(shard)])
            opened = {int(shard): self._opened(int(shard), len(used)) for shard in used}
        files, which, numbers = self._files(list(opened.values()), which.astype(np.int64), records)
        gathered: Any = _core.gather(pool, files, which, numbers)
        if isinstance(gathered, int):
            shard = int(shards[gathered])
            with self._lock:  # its mapping may have pages of zeros
                self._open.pop(shard, None)
            raise _gather_error(opened[shard], int(records[gathered]))
        slab, size_bytes = gathered
        return GatheredFrames(slab, size_bytes, ids, self), opened

    def _inflate_copies(self, shards: Ids) -> None:
        """Inflate shards that can only be read from their start, outside of the lock."""
        if self._inflated_copies is None:
            return
        for path in [self.paths[shard] for shard in shards if int(shard) not in self._open]:
            index = open_shard_index(path)
            if index.is_sequential_only:
                self._inflated_copies.inflate_shard(path, index)

    def _files(self, opened: Sequence[_OpenShard], which: Ids, records: Ids) -> tuple[list[Any], Ids, Ids]:
        """What the core gathers from: files, the file of each record, and its number in the file."""
        files: list[Any] = [None] * len(opened)
        places, numbers = which.copy(), records.copy()
        for i, one in enumerate(opened):
            if not isinstance(one, RemoteShard):
                here = which == i if len(opened) > 1 else slice(None)
                files[i], numbers[here] = one.cut(records[here])
        remote = [(i, one) for i, one in enumerate(opened) if isinstance(one, RemoteShard)]
        wanted = [(one, records[which == i]) for i, one in remote]
        fetched = fetch_records(wanted, self._pieces, in_blocks=self._block_records is not None) if wanted else []
        for (i, _), (parts, part, number) in zip(remote, fetched, strict=True):
            numbers[which == i] = number
            places[which == i] = len(files) + part
            files += parts
        return [(b"", b"", 8) if file is None else file for file in files], places, numbers

    def _repair_index(self, opened: dict[int, _OpenShard]) -> bool:
        """Whether one of these had an index that does not match its file. Raises if the file is damaged."""
        repaired = False
        for shard, one in opened.items():
            if one.index.origin == "found" or one.index.compression != "none":
                continue
            if not np.array_equal(rebuild_index(one.path).offsets, one.index.offsets):
                repaired = True
                with self._lock:
                    self._open.pop(shard, None)
        return repaired

    def _opened(self, shard: int, at_once: int) -> _OpenShard:
        found = self._open.get(shard)
        path = self.paths[shard]
        if found is not None and self.remote and is_remote(path):
            # A copy has the digest in the manifest, and stays mapped when it is evicted.
            self._open.move_to_end(shard)
            return found
        if is_remote(path):
            found = self._open[shard] = self._new(shard)
            while len(self._open) > max(MAX_OPEN_FILES, at_once):
                self._open.popitem(last=False)
            return found
        # A changed file must not be read through its old mapping, nor mixed with what was read before.
        self._check_stamp(shard, read_stamp(path))
        if found is None:
            found = self._open[shard] = self._new(shard)
            while len(self._open) > max(MAX_OPEN_FILES, at_once):
                self._open.popitem(last=False)
        self._open.move_to_end(shard)
        return found

    def _is_read_remotely(self, shard: int) -> bool:
        opened = self._open.get(shard)
        return is_remote(self._known_place(shard)) if opened is None else isinstance(opened, RemoteShard)

    def _open_remote(self, shards: Sequence[int]) -> None:
        """Open remote shards, and check open ones for changes now and then: concurrently."""
        if not shards:
            return
        now = monotonic()
        new = [shard for shard in shards if shard not in self._open]
        due = [
            shard
            for shard in shards
            if shard in self._open and now - self._checked_at.get(shard, now) >= RECHECK_SECONDS
        ]
        opened = map_concurrently(self._new, new, remote=True)
        stamps = map_concurrently(lambda shard: read_stamp(self.paths[shard]), due, remote=True)
        found = [(shard, one.index.stamp) for shard, one in zip(new, opened, strict=True)]
        found += zip(due, stamps, strict=True)
        if self._listed is not None:
            # Once for all of them, after their stamps were requested.
            self._listed.check_all_current([shard for shard, _ in found if shard not in self._stamps])
        for shard, stamp in found:
            self._check_stamp(shard, stamp, is_current=True)
            self._checked_at[shard] = now
        self._open.update(zip(new, opened, strict=True))
        while len(self._open) > max(MAX_OPEN_FILES, len(shards)):
            self._open.popitem(last=False)

    def _new(self, shard: int) -> _OpenShard:
        path = self.place(shard)
        expected = None if not self.counted else int(self.counts[shard])
        index = open_shard_index(path, expected)
        if expected is not None and len(index) != expected:
            raise self._record_count_error(shard, expected, len(index))
        if index.compression == "none":
            if not is_remote(path):
                return _PlainShard(path, index)
            start = int(self.starts[shard])
            return RemoteShard(path, index, start=start, block_records=self._block_records)
        if index.is_sequential_only:
            if self._inflated_copies is None:
                raise sequential_only_error(path, index.compression)
            return _PlainShard(*self._inflated_copies.inflate_shard(path, index))
        return CompressedShard(path, index, self._blocks)

    def _record_count_error(self, shard: int, expected: int, found: int) -> RekordError:
        path = self.paths[shard]
        if not self.has_listed_counts:
            return file_changed_error(path, self._stamps[shard], None)
        by_manifest = self._counts_origin == MANIFEST_NAME
        return error(
            "X516" if by_manifest else "X545",
            location=Location(path=path),
            expected=f"{expected:,} records, as listed in {self._counts_origin}",
            found=f"{found:,} records",
            do=f"copy {os.path.basename(path)[:60]} again, or write the dataset again",
        )


class _PlainShard:
    """An uncompressed local shard with its index: mapped, or read where mapping is not safe."""

    def __init__(self, path: str, index: ShardIndex) -> None:
        self.path = path
        self.index = index
        self._mapping: _core.Mapping | None = None
        # Mapping fails if no addresses are left, or the file system cannot map.
        with open_descriptor(path, wait=True) as descriptor, suppress(OSError):
            if _core.install_sigbus_guard():
                self._mapping = _core.Mapping(descriptor, index.stamp[0])  # stays when the file is closed
        now = read_stamp(path)
        if now != index.stamp:
            raise file_changed_error(path, index.stamp, now)

    def cut(self, records: Ids) -> tuple[tuple[Any, Any, int], Ids]:
        """What the core gathers from, and the numbers of the records in it."""
        # Another signal handler may have replaced the guard since.
        if self._mapping is None or not _core.install_sigbus_guard():
            return self._read_in_one_piece(records)
        offsets = self.index.whole
        if offsets is not None:
            return (self._mapping, offsets, offsets.dtype.itemsize), records
        # All offsets would be too many: pass where each of these records begins and ends.
        pairs = np.empty(2 * len(records), np.uint64)
        pairs[0::2], pairs[1::2] = self.index.extents(records, self.index.stamp[0])
        return (self._mapping, pairs, 8), np.arange(0, len(pairs), 2, dtype=np.int64)

    def _read_in_one_piece(self, records: Ids) -> tuple[tuple[Any, Any, int], Ids]:
        wanted, places = np.unique(records, return_inverse=True)
        frames = self.read(wanted)
        if len(frames) < len(wanted):
            raise _gather_error(self, int(wanted[len(frames)]))
        ends = np.cumsum([len(frame) for frame in frames], dtype=np.uint64)
        starts = np.concatenate([np.zeros(1, np.uint64), ends])[: len(frames)]
        return (b"".join(frames), starts, 8), places.reshape(-1).astype(np.int64)

    def read(self, records: Ids) -> list[bytes]:
        """The frames of some records, read from the file; up to the first one that cannot be read."""
        file_bytes = self.index.stamp[0]
        begins, ends = self.index.extents(records, file_bytes)
        frames: list[bytes] = []
        with open_descriptor(self.path, wait=True) as descriptor:
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                if not begin <= end <= file_bytes:
                    break
                frame = pread(descriptor, end - begin, begin)
                if len(frame) < end - begin:
                    break
                frames.append(frame)
        return frames


_OpenShard: TypeAlias = "_PlainShard | CompressedShard | RemoteShard"


def _gather_error(one: _OpenShard, record: int) -> RekordError:
    """The error for a record that is not at its offset in the index, or cannot be read there."""
    before, number = one.index.stamp, np.array([record], np.int64)
    is_listed = record < len(one.index)
    failure = file_changed_error(one.path, before, None)
    if isinstance(one, _PlainShard):
        try:
            now = read_stamp(one.path)
            if now != before:
                failure = file_changed_error(one.path, before, now)
            elif is_listed:
                one.read(number)  # a failing disk reports an error here
        except RekordError as other:
            failure = other
    offset = int(one.index.begins(number)[0]) if is_listed else None
    failure.location = failure.location.within(record=record, offset=offset)
    return failure


def sequential_only_error(path: str, compression: str) -> RekordError:
    """The error for a compressed file without known flush points."""
    return error(
        "U651",
        "compressed file cannot be read in arbitrary order",
        location=Location(path=path),
        expected="an uncompressed file, or one that rekord compressed, with its index",
        found=f"a {compression} stream without flush points",
        do=f"rekord rewrite {shlex.quote(path)} OUT --compression none      (then open OUT; or read in file order)",
    )


def _numbers_to_list(numbers: Ids | None) -> list[int] | None:
    """Numbers in the form that pickles small."""
    return None if numbers is None else numbers.tolist()


def _verify_frames(gathered: GatheredFrames) -> tuple[bool, bool]:
    """Whether the frames follow each other exactly, one per record, and whether one of them is damaged.

    Only headers are checked: that is cheap while they are in the CPU cache.
    """
    size_bytes, records = gathered.size_bytes, gathered.frames
    frames, consumed, _, problem = _core.skip_frames(gathered.slab, 0, size_bytes, size_bytes, records)
    return frames == records and consumed == size_bytes, problem is not None
