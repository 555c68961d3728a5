"""Records of shards elsewhere in any order: fetched as ranges, or as blocks that are kept for the next batch.

A block-wise order asks for all records of a block within a few batches, so a block is fetched once, whole. Of records
that are scattered only their own ranges are fetched, neighbours together, those of all shards side by side.
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
from rekord.dataset.order import WINDOW_BLOCKS, Ids
from rekord.dataset.shard_index import ShardIndex
from rekord.storage.router import REMOTE

NEAR_BYTES = 64 << 10
"""Records that are no farther apart come with one request: one more would cost as much as so many bytes."""

KEPT_BYTES = (2 * WINDOW_BLOCKS + 8) * BLOCK_BYTES
"""Room for two windows of a block-wise order, since a batch can lie on both sides of a border, and some more."""

File: TypeAlias = "tuple[Any, Any, int]"
"""Bytes, where frames begin in them, and the bytes of such a number: what the core gathers from."""

Key: TypeAlias = "tuple[str, Any, int, int]"
"""The path of a shard, its stamp, and the first record of a block with the one behind it."""


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """Frames of a shard one behind another, those from record `first` on."""

    first: int
    data: bytes
    begins: Offsets

    def file(self) -> File:
        """As the core gathers from it."""
        return self.data, self.begins, self.begins.dtype.itemsize


class RemoteShard:
    """One plain shard elsewhere, with its index.

    Its blocks are those of a block-wise order, `block_records` long and counted from record 0 of all; `start` is the
    number of the shard's first one. Where records are long, or no order is known, they have about BLOCK_BYTES.
    """

    def __init__(
        self, path: str, index: ShardIndex, *, start: int = 0, block_records: int | None = None
    ) -> None:
        self.path = path
        self.index = index
        self._borders = _borders(index, start, block_records)

    def blocks(self, records: Ids) -> tuple[Ids, Ids]:
        """The first record of the block that holds each record, and the first one behind that block."""
        which = np.searchsorted(self._borders, records, side="right") - 1
        return self._borders[which], self._borders[which + 1]

    def bytes_before(self, records: Ids) -> Ids:
        """Where the frames of some records begin; that of the one behind the last is the end of the file."""
        return _bytes_before(self.index, records)

    def piece(self, first: int, data: bytes, end: int) -> Piece:
        """What was fetched of the records from `first` to before `end`."""
        offsets = self.index.span(first, end)
        return Piece(first, data, offsets - offsets[0])


class Pieces:
    """The blocks that were used last, and those that are on their way. Shared by threads: none is fetched twice."""

    def __init__(self, most_bytes: int = KEPT_BYTES) -> None:
        self.most_bytes = most_bytes
        self.kept_bytes = 0
        self._kept: OrderedDict[Key, Piece] = OrderedDict()
        self._coming: dict[Key, Future[Piece]] = {}
        self._process = os.getpid()
        self._lock = Lock()

    def has(self, key: Key) -> bool:
        """Whether a block need not be asked for."""
        return key in self._kept or key in self._coming

    def get(self, keys: Sequence[Key], fetch: Callable[[list[Key]], list[Piece]]) -> dict[Key, Piece]:
        """These blocks; `fetch` brings those that are neither here nor on their way."""
        if self._process != os.getpid():  # what was on its way when the process was forked never comes
            self._coming, self._process, self._lock = {}, os.getpid(), Lock()
        found: dict[Key, Piece] = {}
        waiting: dict[Key, Future[Piece]] = {}
        own: dict[Key, Future[Piece]] = {}
        with self._lock:
            for key in keys:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    found[key] = self._kept[key]
                elif key in self._coming:
                    waiting[key] = self._coming[key]
                else:
                    own[key] = self._coming[key] = Future()
        if own:
            found |= self._fetched(own, fetch)
        return found | {key: coming.result() for key, coming in waiting.items()}

    def _fetched(
        self, own: dict[Key, Future[Piece]], fetch: Callable[[list[Key]], list[Piece]]
    ) -> dict[Key, Piece]:
        try:
            found = dict(zip(own, fetch(list(own)), strict=True))
        except BaseException as failure:
            with self._lock:
                for key, coming in own.items():
                    self._coming.pop(key, None)
                    coming.set_exception(failure)
            raise
        with self._lock:
            for key, piece in found.items():
                self._kept[key] = piece
                self.kept_bytes += len(piece.data)
                self._coming.pop(key, None)
            while self.kept_bytes > self.most_bytes:
                self.kept_bytes -= len(self._kept.popitem(last=False)[1].data)
        for key, piece in found.items():
            own[key].set_result(piece)
        return found

    def clear(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._kept.clear()
            self.kept_bytes = 0


def fetch(
    asked: Sequence[tuple[RemoteShard, Ids]], pieces: Pieces, *, in_blocks: bool
) -> list[tuple[list[File], Ids, Ids]]:
    """For each shard what the core gathers from: files, the file of each record, and its number there.

    `in_blocks` says that other records of the same blocks will be asked for soon.
    """
    plans = [_Plan(shard, records) for shard, records in asked]
    # Whole blocks only where they can be kept: records all over a dataset would bring all of it, again and again.
    for choice in ("all", "dense", "none") if in_blocks else ("dense", "none"):
        chosen = [plan.blocks_worth_it(choice) for plan in plans]
        if (
            sum(int(plan.block_bytes[some].sum()) for plan, some in zip(plans, chosen, strict=True))
            <= pieces.most_bytes
        ):
            break
    for plan, some in zip(plans, chosen, strict=True):
        plan.settle(some, pieces)
    shards = {plan.shard.path: plan.shard for plan in plans}
    whole = [key for plan in plans for key in plan.parts(whole=True)]
    rest = [key for plan in plans for key in plan.parts(whole=False)]
    blocks = pieces.get(whole, partial(_bring, shards))
    ranges = iter(_bring(shards, rest))
    return [plan.files(blocks, ranges) for plan in plans]


class _Plan:
    """How the records of one shard are fetched: in parts, each a whole block or a range of near records."""

    def __init__(self, shard: RemoteShard, records: Ids) -> None:
        self.shard = shard
        self._records = records
        self._wanted, self._places = np.unique(records, return_inverse=True)
        self._begins, self._ends = shard.bytes_before(self._wanted), shard.bytes_before(self._wanted + 1)
        firsts, behind = shard.blocks(self._wanted)
        self._new_block = _changes(firsts)
        self._block = np.cumsum(self._new_block) - 1  # of each record that is wanted
        self._firsts, self._behind = firsts[self._new_block], behind[self._new_block]
        self.block_bytes = shard.bytes_before(self._behind) - shard.bytes_before(self._firsts)
        self._part = self._block
        self._parts: list[tuple[Key, bool]] = []

    def blocks_worth_it(self, choice: str) -> npt.NDArray[np.bool_]:
        """Which blocks to fetch whole: all, none, or those that cost less than the ranges of their records."""
        if choice != "dense":
            return np.full(len(self._firsts), choice == "all")
        between = self._begins[1:] - self._ends[:-1]
        apart = self._new_block.copy()
        apart[1:] |= between > NEAR_BYTES
        covered = self._ends - self._begins
        covered[1:] += np.where(apart[1:], 0, between)
        at = np.flatnonzero(self._new_block)
        # Twice, since what is kept may be asked for again.
        dense: npt.NDArray[np.bool_] = (
            2 * np.add.reduceat(covered + NEAR_BYTES * apart, at) >= self.block_bytes
        )
        return dense

    def settle(self, whole: npt.NDArray[np.bool_], pieces: Pieces) -> None:
        """Cut what is wanted into parts; blocks that are here already are used anyway."""
        keys = [self._key(*pair) for pair in zip(self._firsts.tolist(), self._behind.tolist(), strict=True)]
        whole = whole | np.array([pieces.has(key) for key in keys], np.bool_)
        in_block = whole[self._block]
        apart = _changes(in_block) | (self._new_block & in_block)
        apart[1:] |= ~in_block[1:] & (self._begins[1:] - self._ends[:-1] > NEAR_BYTES)
        # Long stretches are cut, so that their parts come side by side.
        stretch = self._begins[np.flatnonzero(apart)][np.cumsum(apart) - 1]
        apart |= ~in_block & _changes((self._begins - stretch) // BLOCK_BYTES)
        self._part = np.cumsum(apart) - 1
        lows = np.flatnonzero(apart)
        highs = np.append(lows[1:], len(self._wanted)) - 1
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            if in_block[low]:
                self._parts.append((keys[int(self._block[low])], True))
            else:
                self._parts.append((self._key(int(self._wanted[low]), int(self._wanted[high]) + 1), False))

    def parts(self, *, whole: bool) -> list[Key]:
        """The blocks that are needed, or the ranges."""
        return [key for key, is_block in self._parts if is_block == whole]

    def files(self, blocks: dict[Key, Piece], ranges: Iterator[Piece]) -> tuple[list[File], Ids, Ids]:
        """What came, as the core gathers from it."""
        parts = [blocks[key] if is_block else next(ranges) for key, is_block in self._parts]
        which = self._part[self._places.reshape(-1)]
        firsts = np.array([part.first for part in parts], np.int64)
        return [part.file() for part in parts], which, self._records - firsts[which]

    def _key(self, first: int, end: int) -> Key:
        return self.shard.path, self.shard.index.stamp, first, end


def _bring(shards: dict[str, RemoteShard], keys: list[Key]) -> list[Piece]:
    extents = [shards[path].bytes_before(np.array([first, end])) for path, _, first, end in keys]
    wanted = [(key[0], int(begin), int(end)) for key, (begin, end) in zip(keys, extents, strict=True)]
    found = REMOTE.ranges(wanted)
    return [
        shards[path].piece(first, data, end) for (path, _, first, end), data in zip(keys, found, strict=True)
    ]


def _changes(values: Any) -> npt.NDArray[np.bool_]:
    """Where another value begins; the first one does."""
    changes = np.ones(len(values), np.bool_)
    changes[1:] = values[1:] != values[:-1]
    return changes


def _bytes_before(index: ShardIndex, records: Ids) -> Ids:
    last = len(index) - 1
    return np.where(records <= last, index.begins(np.minimum(records, last)), index.stamp[0])


def _blocks_by_bytes(index: ShardIndex) -> Ids:
    """The first record of every stretch of BLOCK_BYTES, found one chunk of the index at a time."""
    firsts, before = [], -1
    for number in range(-(-len(index) // CHUNK_RECORDS)):
        stretches = index.chunk(number).astype(np.int64) // BLOCK_BYTES
        new = np.flatnonzero(np.diff(stretches, prepend=before))
        firsts.append(new + number * CHUNK_RECORDS)
        before = int(stretches[-1])
    return np.concatenate(firsts).astype(np.int64)


def _borders(index: ShardIndex, start: int, block_records: int | None) -> Ids:
    """The first record of every block, and the number of all records behind the last."""
    count = len(index)
    if not count:
        return np.zeros(1, np.int64)
    by_bytes = _blocks_by_bytes(index)
    if block_records is None:
        return np.append(by_bytes, count)
    by_order = np.arange(-start % block_records, count, block_records, dtype=np.int64)
    borders = np.unique(np.concatenate([np.array([0, count], np.int64), by_order]))
    # What is said of blocks may come from a file: none is longer than its bytes allow.
    long = np.diff(_bytes_before(index, borders)) > 2 * BLOCK_BYTES
    cut = long[np.searchsorted(borders, by_bytes, side="right") - 1]
    return np.union1d(borders, by_bytes[cut])
