"""Columns of a split that need no record: those that the index keeps, and where each record lies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.dataset.order import Ids
from rekord.dataset.selection import Selection, all_numbers
from rekord.dataset.shard_index import shard_index
from rekord.dataset.shards import Shards

ROWS = 1 << 16
"""Of a batch: numbers alone, so that many of them are little."""

_OURS = ("offset", "order:")


class Indexed:
    """What is known of the records of some shards without reading them."""

    def __init__(self, shards: Shards, kinds: dict[str, Any]) -> None:
        self._shards = shards
        self._kinds = kinds
        self._tables: list[Any] | None = None
        self._places: Any = None

    def has(self, names: Sequence[str]) -> bool:
        """Whether the indexes of all shards keep these columns."""
        return all(self._has(name) for name in names)

    def any_order(self) -> bool:
        """Whether any record can be read without those before it."""
        found = [shard_index(path) for path in self._shards.paths]
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
        for shard, records in enumerate(self._shards.counts):
            for begin in range(0, records, ROWS):
                end = min(begin + ROWS, records)
                table = self._loaded()[shard] if names else None
                columns = {name: self._part(table, name, begin, end) for name in names}
                yield columns, range(starts[shard] + begin, starts[shard] + end)

    def places(self) -> Any:
        """The names of the shards, by which the place of a record is told."""
        if self._places is None:
            short = [os.path.basename(path) for path in self._shards.paths]
            unique = len(set(short)) == len(short)
            self._places = pa.array([_text(name) for name in (short if unique else self._shards.paths)])
        return self._places

    def _has(self, name: str) -> bool:
        if name in _OURS or name.startswith(_OURS[1]):
            return False  # names of the index itself
        kind = self._kinds[name]
        for table, records in zip(self._loaded(), self._shards.counts, strict=True):
            if records and (
                table is None
                or name not in table.column_names
                or table.num_rows != records
                or not _same(table.schema.field(name).type, kind)
            ):
                return False
        return True

    def _loaded(self) -> list[Any]:
        if self._tables is None:
            pairs = zip(self._shards.paths, self._shards.counts, strict=True)
            self._tables = [shard_index(path, records).table for path, records in pairs]
        return self._tables

    def _at(self, names: Sequence[str], ids: Ids) -> dict[str, Any]:
        """Columns of some records, in their order."""
        if not names:
            return {}
        shards, records = self._shards.locate(ids)
        used = np.unique(shards).tolist()
        places = np.concatenate([np.flatnonzero(shards == shard) for shard in used])
        back = pa.array(np.argsort(places))
        columns = {}
        for name in names:
            parts = [self._loaded()[shard][name].take(pa.array(records[shards == shard])) for shard in used]
            chunks = [chunk.cast(self._kinds[name]) for part in parts for chunk in part.chunks]
            columns[name] = pa.concat_arrays(chunks).take(back)
        return columns

    def _part(self, table: Any, name: str, begin: int, end: int) -> Any:
        column = table[name].slice(begin, end - begin)
        joined = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
        kind = self._kinds[name]
        return joined if joined.type == kind else joined.cast(kind)


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
