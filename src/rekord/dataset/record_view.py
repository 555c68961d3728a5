"""Record views: some records of some shards, each with a number, in an order of their own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.options import Shuffle
from rekord.dataset.order import EpochOrder, Ids, OrderKind
from rekord.dataset.readers.remote import MAX_CACHED_BYTES
from rekord.dataset.samplers import (
    FileOrderSampler,
    FullSampler,
    Sampler,
    Selection,
    SubsetSampler,
    concat_selections,
    expand_selection,
    normalize_selection,
    select_numbers,
    slice_selection,
)
from rekord.dataset.shards import RecordIndexError, Shards
from rekord.storage.local import Stat
from rekord.storage.router import ROUTED_STORAGE, map_concurrently


class RecordView:
    """Records of some shards: those whose numbers are `ids`, or all of them."""

    def __init__(
        self,
        shards: Shards,
        ids: Selection | None = None,
        *,
        block_records: int | None = None,
        digest: str | None = None,
    ) -> None:
        self.shards = shards
        self.ids = ids
        self.block_records = block_records
        self.known_digest = digest

    @classmethod
    def concat(cls, views: Sequence[RecordView], *, digest: str | None = None) -> RecordView:
        """The records of all views, in this order."""
        ids = None
        if any(view.ids is not None for view in views):
            begins = np.cumsum([0, *(len(view.shards) for view in views[:-1])])
            ids = concat_selections(
                [
                    expand_selection(view.all_ids) + int(begin)
                    for view, begin in zip(views, begins, strict=True)
                ]
            )
        blocks = [view.block_records for view in views if view.block_records is not None]
        return cls(
            Shards.concat([view.shards for view in views]),
            ids,
            block_records=min(blocks) if len(blocks) == len(views) else None,
            digest=digest,
        )

    def __len__(self) -> int:
        return len(self.shards) if self.ids is None else len(self.ids)

    @property
    def all_ids(self) -> Selection:
        """The numbers of its records in the shards."""
        return range(len(self.shards)) if self.ids is None else self.ids

    def ids_at(self, places: Ids) -> Ids:
        """The numbers in the shards of the records at some places of this view."""
        return places if self.ids is None else select_numbers(self.ids, places)

    def select(self, ids: Selection) -> RecordView:
        """A view of records by their numbers in the shards."""
        return RecordView(self.shards, ids, block_records=self.block_records, digest=self.known_digest)

    def whole(self) -> RecordView:
        """All records of the shards."""
        return RecordView(self.shards, block_records=self.block_records, digest=self.known_digest)

    def at(self, places: Ids) -> RecordView:
        """A view of the records at some places of this one."""
        return self.select(normalize_selection(self.ids_at(places)))

    def slice(self, which: slice) -> RecordView:
        """A view of a slice of this one."""
        try:
            which.indices(len(self))
        except (TypeError, ValueError):
            raise RecordIndexError(which, "a slice of whole numbers, whose step is not 0") from None
        return self.select(slice_selection(self.all_ids, which))

    def id_of(self, which: object) -> int:
        """The number in the shards of one record, counted from the end where it is negative."""
        size = len(self)
        if isinstance(which, bool) or not hasattr(which, "__index__"):
            raise RecordIndexError(which, "a whole number, a list of them, or a slice")
        number = int(which.__index__())
        if not -size <= number < size:
            raise RecordIndexError(
                number, f"a number from {-size:,} to {size - 1:,}" if size else "no records at all"
            )
        return int(self.ids_at(np.array([number % size], np.int64))[0])

    def ids_of(self, numbers: Any) -> Ids:
        """The numbers in the shards of several records, or of those that an array of truth values marks."""
        size = len(self)
        given = np.asarray(numbers)
        if given.dtype == np.bool_ and given.shape == (size,):
            given = np.flatnonzero(given)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise RecordIndexError(numbers, "a list of whole numbers")
        outside = (given < -size) | (given >= size)  # before they are int64: of 2^64 - 1 that makes -1
        if outside.any():
            raise RecordIndexError(int(given[outside][0]), f"numbers from {-size:,} to {size - 1:,}")
        ids = given.astype(np.int64)
        return self.ids_at(np.where(ids < 0, ids + size, ids))

    def digest(self) -> str:
        """What tells the files from others: of the manifest, or of names, sizes and times."""
        if self.known_digest is None:
            digest = hashlib.sha256()
            for path, found in zip(self.shards.paths, self.stats(), strict=True):
                name = os.path.basename(path)
                digest.update(f"{name}\0{found.size_bytes}\0{found.mtime_ns}\0".encode(errors="replace"))
            self.known_digest = digest.hexdigest()
        return self.known_digest

    def stats(self) -> list[Stat]:
        """The state of each file now."""
        return map_concurrently(ROUTED_STORAGE.stat, self.shards.paths, remote=self.shards.remote)

    def sampler(self, shuffle: Shuffle, seed: int, world: int) -> Sampler:
        """Every record once per epoch, in an order computed from seed and epoch."""
        kind: OrderKind = "sequential"
        if shuffle is True:
            # In a remote place neighbours come together, and each of them alone would be a request.
            kind = "block" if self.shards.remote else "exact"
        elif shuffle:
            kind = shuffle
        if kind == "sequential" and self.ids is None:
            return FileOrderSampler(self.shards)
        is_block = kind == "block"
        order = EpochOrder(
            kind, len(self), seed, block=self._block() if is_block else 1, lanes=world if is_block else 1
        )
        return FullSampler(order) if self.ids is None else SubsetSampler(order, self.ids)

    def shards_for(self, sampler: Sampler) -> Shards:
        """The shards; remote ones in whole blocks where these are used up soon, or can all be kept."""
        if not self.shards.remote or not isinstance(sampler, (FullSampler, SubsetSampler)):
            return self.shards
        kind = sampler.order.kind
        fits = kind == "exact" and sum(one.size_bytes for one in self.stats()) <= MAX_CACHED_BYTES
        return self.shards.in_blocks(self._block()) if fits or kind == "block" else self.shards

    def _block(self) -> int:
        if self.block_records is None:
            size_bytes = sum(found.size_bytes for found in self.stats())
            self.block_records = BLOCK_BYTES * len(self.shards) // max(size_bytes, 1)
        return max(1, self.block_records)  # a manifest may say anything
