"""Columns of a split that need no record: those that the index keeps, and where each record lies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.dataset.index import CHUNK_RECORDS
from rekord.dataset.order import Ids
from rekord.dataset.selection import Selection, all_numbers
from rekord.dataset.shard_index import index_mismatch
from rekord.dataset.shards import Shards

ROWS = CHUNK_RECORDS
"""Of a batch: numbers alone, so that many of them are little; a chunk of the index."""


class Indexed:
    """What is known of the records of some shards without reading them."""

    def __init__(self, shards: Shards, kinds: dict[str, Any]) -> None:
        self._shards = shards
        self._kinds = kinds
        self._known: dict[str, bool] = {}
        self._places: Any = None

    def has(self, names: Sequence[str]) -> bool:
        """Whether the indexes of all shards keep these columns."""
        return all(self._has(name) for name in names)

    def any_order(self) -> bool:
        """Whether any record can be read without those before it."""
        found = map(self._shards.index, range(len(self._shards.paths)))
        return all(index.compression == "none" or index.flush_points is not None for index in found)

    def batches(
        self, names: Sequence[str], within: Selection | None = None
    ) -> Iterator[tuple[dict[str, Any], Selection]]:
        """Columns of all records or of a view, and the numbers of these records, some thousands at a time."""
        if within is not None:
            for begin in range(0, len(within), ROWS):
                some = within[begin : begin + ROWS]
                yield self._at(names, all_numbers(some)), some
            return
        starts = self._shards.starts.tolist()
        for shard, records in enumerate(self._shards.counts.tolist()):
            for begin in range(0, records, ROWS):
                end = min(begin + ROWS, records)
                columns = self._chunk(shard, begin // ROWS, names) if names else {}
                yield columns, range(starts[shard] + begin, starts[shard] + end)

    def places(self) -> Any:
        """The names of the shards, by which the place of a record is told."""
        if self._places is None:
            short = [os.path.basename(path) for path in self._shards.paths]
            unique = len(set(short)) == len(short)
            self._places = pa.array([_text(name) for name in (short if unique else self._shards.paths)])
        return self._places

    def _has(self, name: str) -> bool:
        if name not in self._known:
            used = [shard for shard, records in enumerate(self._shards.counts.tolist()) if records]
            self._known[name] = all(self._keeps(shard, name) for shard in used)
        return self._known[name]

    def _keeps(self, shard: int, name: str) -> bool:
        index = self._shards.index(shard)
        return index.has_columns([name]) and _same(index.column_type(name), self._kinds[name])

    def _chunk(self, shard: int, number: int, names: Sequence[str]) -> dict[str, Any]:
        """Columns of ROWS records of a shard."""
        index = self._shards.index(shard)
        if not index.keeps(names):  # of another index than before
            raise index_mismatch(index.path, "the columns of the index, as before", "an index without them")
        found = index.columns(number, names)
        return {name: _cast(found.column(i), self._kinds[name]) for i, name in enumerate(names)}

    def _at(self, names: Sequence[str], ids: Ids) -> dict[str, Any]:
        """Columns of some records, in their order."""
        if not names:
            return {}
        shards, records = self._shards.locate(ids)
        used = np.unique(np.stack([shards, records // ROWS]), axis=1).T.tolist()
        places = np.concatenate(
            [np.flatnonzero((shards == shard) & (records // ROWS == number)) for shard, number in used]
        )
        back = pa.array(np.argsort(places))
        parts: dict[str, list[Any]] = {name: [] for name in names}
        for shard, number in used:
            here = pa.array(records[(shards == shard) & (records // ROWS == number)] - number * ROWS)
            for name, column in self._chunk(shard, number, names).items():
                parts[name].append(column.take(here))
        return {name: pa.concat_arrays(chunks).take(back) for name, chunks in parts.items()}


def _cast(column: Any, kind: Any) -> Any:
    return column if column.type == kind else column.cast(kind)


def _same(stored: Any, kind: Any) -> bool:
    """Whether what the index stores is, but for its width, what records give."""
    if pa.types.is_integer(kind):
        return bool(pa.types.is_integer(stored)) and stored.bit_width <= kind.bit_width
    text = (pa.types.is_string, pa.types.is_large_string)
    data = (pa.types.is_binary, pa.types.is_large_binary)
    for group in (text, data):
        if any(test(kind) for test in group):
            return any(test(stored) for test in group)
    return bool(stored == kind)


def _text(name: str) -> str:
    """A file name as a text: one that is not UTF-8 has signs in it that say so."""
    return os.fsencode(name).decode(errors="replace")
