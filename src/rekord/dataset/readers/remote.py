"""Records of remote shards in any order: fetched as ranges, or as blocks that are cached for the next batch.

A block-wise order reads all records of a block within a few batches, so a block is fetched once, as a whole. Of
scattered records only their own ranges are fetched: neighbours together, those of all shards concurrently.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rekord.dataset.index import BLOCK_BYTES, CHUNK_RECORDS, Offsets
from rekord.dataset.samplers import WINDOW_BLOCKS, Ids
from rekord.dataset.shard_index import ShardIndex
from rekord.storage.router import REMOTE

MAX_GAP_BYTES = 64 << 10
"""Records at most this far apart are fetched in one request: another request would cost as much."""

MAX_CACHED_BYTES = (2 * WINDOW_BLOCKS + 8) * BLOCK_BYTES
"""Room for two windows of a block-wise order, since a batch can span a boundary, and some more."""

GatherSource: TypeAlias = "tuple[Any, Any, int]"
"""What the core gathers from: bytes, the offsets of frames in them, and the bytes per offset."""

RangeKey: TypeAlias = "tuple[str, Any, int, int]"
"""The path of a shard, its stamp, the first record of a block, and the first record after it."""


@dataclass(frozen=True, eq=False, slots=True)
class FetchedRange:
    """Consecutive frames of a shard, from record `first` on."""

    first: int
    data: bytes
    begins: Offsets

    def file(self) -> GatherSource:
        """In the form that the core gathers from."""
        return self.data, self.begins, self.begins.dtype.itemsize


class RemoteShard:
    """One uncompressed remote shard, with its index.

    Its blocks are those of a block-wise order, of `block_records` records counted from record 0 of all; `start` is
    the number of the shard's first record. If records are long, or no order is known, they have about BLOCK_BYTES.
    """

    def __init__(self, path: str, index: ShardIndex, *, start: int = 0, block_records: int | None = None) -> None:
        self.path = path
        self.index = index
        self._borders = _compute_block_boundaries(index, start, block_records)

    def blocks(self, records: Ids) -> tuple[Ids, Ids]:
        """The first record of the block that holds each record, and the first one after that block."""
        which = np.searchsorted(self._borders, records, side="right") - 1
        return self._borders[which], self._borders[which + 1]

    def locate_frames(self, records: Ids) -> Ids:
        """Where the frames of some records begin; for the record after the last, the end of the file."""
        return _find_frame_starts(self.index, records)

    def piece(self, first: int, data: bytes, end: int) -> FetchedRange:
        """The fetched bytes of the records from `first` up to `end`."""
        offsets = self.index.span(first, end)
        return FetchedRange(first, data, offsets - offsets[0])


class FetchedRangeCache:
    """The blocks that were used last, and those being fetched. Shared by threads: none is fetched twice."""

    def __init__(self, most_bytes: int = MAX_CACHED_BYTES) -> None:
        self.most_bytes = most_bytes
        self.cached_bytes = 0
        self._kept: OrderedDict[RangeKey, FetchedRange] = OrderedDict()
        self._pending_fetches: dict[RangeKey, Future[FetchedRange]] = {}
        self._process = os.getpid()
        self._lock = Lock()

    def has(self, key: RangeKey) -> bool:
        """Whether a block is cached or being fetched."""
        return key in self._kept or key in self._pending_fetches

    def get(
        self, keys: Sequence[RangeKey], fetch: Callable[[list[RangeKey]], list[FetchedRange]]
    ) -> dict[RangeKey, FetchedRange]:
        """These blocks; `fetch_records` fetches those that are neither cached nor being fetched."""
        if self._process != os.getpid():  # requests in flight when the process was forked never complete
            self._pending_fetches, self._process, self._lock = {}, os.getpid(), Lock()
        found: dict[RangeKey, FetchedRange] = {}
        waiting: dict[RangeKey, Future[FetchedRange]] = {}
        own: dict[RangeKey, Future[FetchedRange]] = {}
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found[key] = self._kept[key]
                elif key in self._pending_fetches:
                    waiting[key] = self._pending_fetches[key]
                else:
                    own[key] = self._pending_fetches[key] = Future()
        if own:
            found |= self._fetched(own, fetch)
        return found | {key: coming.result() for key, coming in waiting.items()}

    def _fetched(
        self, own: dict[RangeKey, Future[FetchedRange]], fetch: Callable[[list[RangeKey]], list[FetchedRange]]
    ) -> dict[RangeKey, FetchedRange]:
        try:
            found = dict(zip(own, fetch(list(own)), strict=True))
        except BaseException as failure:
            with self._lock:
                for key, coming in own.items():
                    self._pending_fetches.pop(key, None)
                    coming.set_exception(failure)
            raise
        with self._lock:
            for key, piece in found.items():
                self._kept[key] = piece
                self.cached_bytes += len(piece.data)
                self._pending_fetches.pop(key, None)
            while self.cached_bytes > self.most_bytes:
                self.cached_bytes -= len(self._kept.popitem(last=False)[1].data)
        for key, piece in found.items():
            own[key].set_result(piece)
        return found

    def clear(self) -> None:
        """Drop all of them."""
        with self._lock:
            self._kept.clear()
            self.cached_bytes = 0


def fetch_records(
    requested: Sequence[tuple[RemoteShard, Ids]], pieces: FetchedRangeCache, *, in_blocks: bool
) -> list[tuple[list[GatherSource], Ids, Ids]]:
    """For each shard what the core gathers from: files, the file of each record, and its number in it.

    `in_blocks`: other records of the same blocks will be read soon.
    """
    plans = [_FetchPlan(shard, records) for shard, records in requested]
    # Whole blocks only if they can be cached: records all over a dataset would fetch all of it, again and again.
    for choice in ("all", "dense", "none") if in_blocks else ("dense", "none"):
        chosen = [plan.choose_whole_blocks(choice) for plan in plans]
        if (
            sum(int(plan.block_bytes[some].sum()) for plan, some in zip(plans, chosen, strict=True))
            <= pieces.most_bytes
        ):
            break
    for plan, some in zip(plans, chosen, strict=True):
        plan.merge_ranges(some, pieces)
    shards = {plan.shard.path: plan.shard for plan in plans}
    whole = [key for plan in plans for key in plan.parts(whole=True)]
    rest = [key for plan in plans for key in plan.parts(whole=False)]
    blocks = pieces.get(whole, partial(_fetch_ranges, shards))
    ranges = iter(_fetch_ranges(shards, rest))
    return [plan.files(blocks, ranges) for plan in plans]


class _FetchPlan:
    """How the records of one shard are fetched: in parts, each a whole block or a range of near records."""

    def __init__(self, shard: RemoteShard, records: Ids) -> None:
        self.shard = shard
        self._records = records
        self._wanted, self._places = np.unique(records, return_inverse=True)
        self._begins, self._ends = shard.locate_frames(self._wanted), shard.locate_frames(self._wanted + 1)
        firsts, behind = shard.blocks(self._wanted)
        self._new_block = _find_changes(firsts)
        self._block = np.cumsum(self._new_block) - 1  # of each requested record
        self._firsts, self._behind = firsts[self._new_block], behind[self._new_block]
        self.block_bytes = shard.locate_frames(self._behind) - shard.locate_frames(self._firsts)
        self._part = self._block
        self._parts: list[tuple[RangeKey, bool]] = []

    def choose_whole_blocks(self, choice: str) -> npt.NDArray[np.bool_]:
        """Which blocks to fetch whole: all, none, or those that cost less than the ranges of their records."""
        if choice != "dense":
            return np.full(len(self._firsts), choice == "all")
        between = self._begins[1:] - self._ends[:-1]
        apart = self._new_block.copy()
        apart[1:] |= between > MAX_GAP_BYTES
        covered = self._ends - self._begins
        covered[1:] += np.where(apart[1:], 0, between)
        at = np.flatnonzero(self._new_block)
        # Twice, since cached blocks may be used again.
        dense: npt.NDArray[np.bool_] = 2 * np.add.reduceat(covered + MAX_GAP_BYTES * apart, at) >= self.block_bytes
        return dense

    def merge_ranges(self, whole: npt.NDArray[np.bool_], pieces: FetchedRangeCache) -> None:
        """Divide the requested records into parts; cached blocks are used in any case."""
        keys = [self._key(*pair) for pair in zip(self._firsts.tolist(), self._behind.tolist(), strict=True)]
        whole = whole | np.array([pieces.has(key) for key in keys], np.bool_)
        in_block = whole[self._block]
        apart = _find_changes(in_block) | (self._new_block & in_block)
        apart[1:] |= ~in_block[1:] & (self._begins[1:] - self._ends[:-1] > MAX_GAP_BYTES)
        # Long ranges are split, so that their parts are fetched concurrently.
        stretch = self._begins[np.flatnonzero(apart)][np.cumsum(apart) - 1]
        apart |= ~in_block & _find_changes((self._begins - stretch) // BLOCK_BYTES)
        self._part = np.cumsum(apart) - 1
        lows = np.flatnonzero(apart)
        highs = np.append(lows[1:], len(self._wanted)) - 1
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            if in_block[low]:
                self._parts.append((keys[int(self._block[low])], True))
            else:
                self._parts.append((self._key(int(self._wanted[low]), int(self._wanted[high]) + 1), False))

    def parts(self, *, whole: bool) -> list[RangeKey]:
        """The required blocks, or the ranges."""
        return [key for key, is_block in self._parts if is_block == whole]

    def files(
        self, blocks: dict[RangeKey, FetchedRange], ranges: Iterator[FetchedRange]
    ) -> tuple[list[GatherSource], Ids, Ids]:
        """The fetched bytes, in the form that the core gathers from."""
        parts = [blocks[key] if is_block else next(ranges) for key, is_block in self._parts]
        which = self._part[self._places.reshape(-1)]
        firsts = np.array([part.first for part in parts], np.int64)
        return [part.file() for part in parts], which, self._records - firsts[which]

    def _key(self, first: int, end: int) -> RangeKey:
        return self.shard.path, self.shard.index.stamp, first, end


def _fetch_ranges(shards: dict[str, RemoteShard], keys: list[RangeKey]) -> list[FetchedRange]:
    extents = [shards[path].locate_frames(np.array([first, end])) for path, _, first, end in keys]
    wanted = [(key[0], int(begin), int(end)) for key, (begin, end) in zip(keys, extents, strict=True)]
    versions = {path: shards[path].index.stamp[1] for path, _, _ in wanted}
    found = REMOTE.ranges(wanted, versions=versions)
    return [shards[path].piece(first, data, end) for (path, _, first, end), data in zip(keys, found, strict=True)]


def _find_changes(values: Any) -> npt.NDArray[np.bool_]:
    """Where a new value begins, including the first."""
    changes = np.ones(len(values), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    return changes


def _find_frame_starts(index: ShardIndex, records: Ids) -> Ids:
    last = len(index) - 1
    return np.where(records <= last, index.begins(np.minimum(records, last)), index.stamp[0])


def _split_into_blocks(index: ShardIndex) -> Ids:
    """The first record of every BLOCK_BYTES bytes, found one chunk of the index at a time."""
    firsts, before = [], -1
    for number in range(-(-len(index) // CHUNK_RECORDS)):
        stretches = index.chunk(number).astype(np.int64) // BLOCK_BYTES
        new = np.flatnonzero(np.diff(stretches, prepend=before))
        firsts.append(new + number * CHUNK_RECORDS)
        before = int(stretches[-1])
    return np.concatenate(firsts).astype(np.int64)


def _compute_block_boundaries(index: ShardIndex, start: int, block_records: int | None) -> Ids:
    """The first record of every block, and the total number of records at the end."""
    count = len(index)
    if not count:
        return np.zeros(1, np.int64)
    by_bytes = _split_into_blocks(index)
    if block_records is None:
        return np.append(by_bytes, count)
    by_order = np.arange(-start % block_records, count, block_records, dtype=np.int64)
    borders = np.unique(np.concatenate([np.array([0, count], np.int64), by_order]))
    # Block lengths may come from a file: none is longer than its bytes allow.
    long = np.diff(_find_frame_starts(index, borders)) > 2 * BLOCK_BYTES
    cut = long[np.searchsorted(borders, by_bytes, side="right") - 1]
    return np.union1d(borders, by_bytes[cut])
