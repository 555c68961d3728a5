"""Whether the indexes of a dataset say what its records hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from rekord.dataset.compact_manifest import listed_shard
from rekord.dataset.index import CHUNK_RECORDS, IndexFile, IndexMismatch, index_path, open_index_file
from rekord.dataset.manifest import MANIFEST
from rekord.health.finding import Finding, Severity
from rekord.health.keyed import KeyColumn, KeyedBatch
from rekord.health.rules.listed import Listing
from rekord.schema import Feature


class IndexAgreement:
    """A rule: the index of each shard is whole, and says of each record where it is and what its columns hold.

    One that is not whole is ignored by all readers, so it costs time and no more; one that is whole and wrong would
    make queries and balanced batches wrong.
    """

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._path: str | None = None
        self._index: IndexFile | None = None

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The first record of a file that its index says something else of."""
        if self._path != batch.path:
            yield from self._open(batch.path)
        if self._index is None:
            return
        try:
            for finding in self._differences(self._index, batch):
                yield finding
                self._index = None
                return
        except IndexMismatch as failure:
            self._index = None
            yield self._damaged(batch.path, str(failure))

    def end_file(self, path: str) -> Iterator[Finding]:
        """Nothing: what is wrong was said at once. Of a file without records its index is verified still."""
        if self._path != path:
            yield from self._open(path)
        self._index = self._path = None

    def end(self) -> Iterator[Finding]:
        """Nothing: indexes are compared file by file."""
        return iter(())

    def _open(self, path: str) -> Iterator[Finding]:
        self._path, self._index = path, None
        listed = listed_shard(path) if self._listing.split_of(path) is not None else None
        if listed is None or listed.expected is None:
            return
        place = index_path(path)
        if not os.path.lexists(place):
            yield self._finding(
                path, "note", "the index of a shard is missing", f"{place}, as {MANIFEST} says", "none"
            )
            return
        index = open_index_file(place, listed.expected)
        if index is None or not index.is_whole():
            yield self._damaged(path, "another checksum, or another shard")
            return
        self._index = index

    def _damaged(self, path: str, found: str) -> Finding:
        message = "the index of a shard is damaged, and ignored: reading takes longer"
        return self._finding(
            path, "warning", message, f"an index with the checksums that {MANIFEST} has", found
        )

    def _finding(self, path: str, severity: Severity, message: str, expected: str, found: str) -> Finding:
        return Finding.of(
            "X547",
            severity,
            path=path,
            message=message,
            expected=expected[:120],
            found=found[:60],
            do=f"rekord index {self._listing.folder}      (makes it again from the records)",
        )

    def _differences(self, index: IndexFile, batch: KeyedBatch) -> Iterator[Finding]:
        known = batch.records < index.records
        for number in np.unique(batch.records[known] // CHUNK_RECORDS).tolist():
            rows = np.flatnonzero(known & (batch.records // CHUNK_RECORDS == number))
            places = batch.records[rows] - number * CHUNK_RECORDS
            for row in rows[index.offsets(number)[places].astype(np.int64) != batch.offsets[rows]][:1]:
                offset = int(index.offsets(number)[int(batch.records[row]) - number * CHUNK_RECORDS])
                yield _wrong(batch, int(row), None, f"byte {int(batch.offsets[row]):,}", f"byte {offset:,}")
            chunk = index.chunk(number)
            for name in index.columns:
                feature = self._listing.schema[name]
                column = batch.context.get(feature.record_keys(name)[0])
                if column is None:
                    continue
                said = chunk.column(chunk.schema.get_field_index(name))
                yield from _column_differences(batch, column, feature, rows, _taken(said, places), name)


def _taken(column: Any, places: Any) -> Any:
    import pyarrow as pa

    return column.take(pa.array(places))


def _column_differences(
    batch: KeyedBatch, column: KeyColumn, feature: Feature, rows: Any, said: Any, name: str
) -> Iterator[Finding]:
    """The first row whose value the index has otherwise. What a row lacks is not compared: it may have a default."""
    present = column.counts[rows] > 0
    if column.kind == "int64" and column.offsets is None and not feature.shape:
        values = column.values[rows]
        differs = present & (_integers(said, ~values) != values)
        for at in np.flatnonzero(differs)[:1].tolist():
            yield _wrong(batch, int(rows[at]), name, str(int(values[at])), str(said[at].as_py()))
        return
    for at in np.flatnonzero(present).tolist():
        held = _plain(column.value(int(rows[at])), feature)
        if held is not None and not _same(held, said[at].as_py()):
            yield _wrong(batch, int(rows[at]), name, repr(held)[:60], repr(said[at].as_py())[:60])
            return


def _integers(said: Any, missing: Any) -> Any:
    """Numbers of an Arrow array; where it has none, those of `missing`."""
    import pyarrow as pa

    whole = said.cast(pa.int64())
    values = np.array(whole.fill_null(0))
    return np.where(np.array(whole.is_valid()), values, missing) if said.null_count else values


def _plain(value: Any, feature: Feature) -> Any:
    """The values of a record as an index holds them; None where nothing can be said."""
    values = value if isinstance(value, list) else value.tolist()
    if len(feature.shape) > 1:
        return None  # of inner dimensions the record itself says nothing
    if feature.shape:
        return values
    return values[0] if len(values) == 1 else None


def _same(held: Any, said: Any) -> bool:
    if isinstance(held, list):
        return isinstance(said, list) and len(held) == len(said) and all(map(_same, held, said))
    if isinstance(held, bytes) and isinstance(said, str):
        return held == said.encode("utf-8", "surrogatepass")
    return bool(held == said or (held != held and said != said))


def _wrong(batch: KeyedBatch, row: int, feature: str | None, holds: str, says: str) -> Finding:
    return Finding.of(
        "X547",
        "error",
        path=batch.path,
        record=int(batch.records[row]),
        offset=int(batch.offsets[row]),
        feature=feature,
        message="the index of a shard says something else than its records",
        expected=f"{holds}, as the record holds",
        found=f"{says} in the index",
        do="write the dataset again: queries and balanced batches of it are wrong",
    )
