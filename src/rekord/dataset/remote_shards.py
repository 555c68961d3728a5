"""Records of shards elsewhere in any order: fetched as ranges, or as blocks that are kept for the next batch.

A block-wise order asks for every record of a block within a few batches, so a block is fetched once, whole. Of records
that are scattered only their own ranges are fetched, neighbours together, those of all shards side by side.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from rekord.dataset.index import BLOCK_BYTES, Offsets
from rekord.dataset.order import WINDOW_BLOCKS, Ids
from rekord.dataset.shard_index import ShardIndex
from rekord.storage.anywhere import REMOTE

NEAR_BYTES = 64 << 10
"""Records that are no farther apart come with one request: what lies between costs less than another one."""

KEPT_BYTES = (2 * WINDOW_BLOCKS + 8) * BLOCK_BYTES
"""Room for two windows of a block-wise order, since a batch can lie on both sides of a border, and some more."""

_DENSE_RANGES = 4
"""So many ranges of one block take longer than the block."""

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

    Its blocks are those of a block-wise order, `block_records` long and counted from record number `start` of all;
    where that is not said, and wherever records are long, about BLOCK_BYTES long.
    """

    def __init__(self, path: str, index: ShardIndex, *, start: int = 0, block_records: int | None = None) -> None:
        self.path = path
        self.index = index
        self._borders = _borders(index.offsets, start, block_records)

    def blocks(self, records: Ids) -> tuple[Ids, Ids]:
        """The first record of the block that holds each record, and the first one behind that block."""
        which = np.searchsorted(self._borders, records, side="right") - 1
        return self._borders[which], self._borders[which + 1]

    def extents(self, firsts: Ids, ends: Ids) -> tuple[Ids, Ids]:
        """From which byte to which the records from each first one to before each end reach."""
        offsets = self.index.offsets
        last = len(offsets)
        begins = offsets[firsts].astype(np.int64)
        behind = offsets[np.minimum(ends, last - 1)].astype(np.int64)
        return begins, np.where(ends < last, behind, self.index.stamp[0])

    def piece(self, first: int, end: int, data: bytes) -> Piece:
        """What was fetched of the records from `first` to before `end`."""
        offsets = self.index.offsets[first:end]
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
    plans = [_Plan(shard, np.unique(records)) for shard, records in asked]
    # Whole blocks only where they can be kept: records all over a dataset would bring all of it, again and again.
    all_fit = sum(plan.block_bytes(plan.all_blocks) for plan in plans) <= pieces.most_bytes
    if not (in_blocks and all_fit):
        dense = [plan.dense_blocks() for plan in plans]
        dense_fit = sum(plan.block_bytes(some) for plan, some in zip(plans, dense, strict=True))
        for plan, some in zip(plans, dense, strict=True):
            plan.choose(some if dense_fit <= pieces.most_bytes else [], pieces)
    shards = {plan.shard.path: plan.shard for plan in plans}

    def bring(keys: list[Key]) -> list[Piece]:
        wanted = []
        for path, _, first, end in keys:
            begins, ends = shards[path].extents(np.array([first]), np.array([end]))
            wanted.append((path, int(begins[0]), int(ends[0])))
        found = REMOTE.ranges(wanted)
        return [shards[key[0]].piece(key[2], key[3], data) for key, data in zip(keys, found, strict=True)]

    blocks = pieces.get([key for plan in plans for key in plan.keys()], bring)
    runs = [run for plan in plans for run in plan.runs()]
    fetched = iter(REMOTE.ranges(runs))
    return [plan.files(records, blocks, fetched) for plan, (_, records) in zip(plans, asked, strict=True)]
