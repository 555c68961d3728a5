"""Records of shards elsewhere in any order: fetched as ranges, those of all shards side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rekord.dataset.order import Ids
from rekord.dataset.shard_index import ShardIndex
from rekord.storage.anywhere import REMOTE

NEAR_BYTES = 64 << 10
"""Records that are no farther apart come with one request: that is cheaper than another one."""


class FetchedShard:
    """One plain shard in a remote place, with its index."""

    def __init__(self, path: str, index: ShardIndex) -> None:
        self.path = path
        self.index = index

    def extents(self, records: Ids) -> list[tuple[int, int]]:
        """From which byte to which the frames of some records reach."""
        offsets = self.index.offsets
        last = len(offsets) - 1
        begins = offsets[records].astype(np.int64)
        ends = np.where(
            records < last, offsets[np.minimum(records + 1, last)].astype(np.int64), self.index.stamp[0]
        )
        return list(zip(begins.tolist(), ends.tolist(), strict=True))


def fetch(asked: Sequence[tuple[FetchedShard, Ids]]) -> list[tuple[tuple[Any, Any, int], Ids]]:
    """For each shard the frames of some records in one piece, as the core gathers it, and where each is there."""
    requests: list[tuple[str, int, int]] = []
    plans: list[tuple[list[tuple[int, int, int]], Ids]] = []  # (request, begin, end) of each record
    for shard, records in asked:
        wanted, places = np.unique(records, return_inverse=True)
        extents: list[tuple[int, int, int]] = []
        first = len(requests)
        for begin, end in shard.extents(wanted):
            if len(requests) > first and begin - requests[-1][2] <= NEAR_BYTES:
                requests[-1] = (shard.path, requests[-1][1], end)
            else:
                requests.append((shard.path, begin, end))
            extents.append((len(requests) - 1, begin, end))
        plans.append((extents, places.reshape(-1).astype(np.int64)))
    found = REMOTE.ranges(requests)
    files: list[tuple[tuple[Any, Any, int], Ids]] = []
    for extents, places in plans:
        pieces = [
            found[request][begin - requests[request][1] : end - requests[request][1]]
            for request, begin, end in extents
        ]
        sizes = np.array([len(piece) for piece in pieces], np.uint64)
        files.append(((b"".join(pieces), np.cumsum(sizes, dtype=np.uint64) - sizes, 8), places))
    return files
