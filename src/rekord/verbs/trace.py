"""`rk.trace`: the file and row of the raw data that a record was made from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rekord.arguments import as_path, check_keywords, integer
from rekord.dataset.manifest import MANIFEST_NAME, Manifest, manifest_path, read_manifest
from rekord.dataset.origins import RowOrigins, ShardOrigins, read_origins, to_plain_text
from rekord.errors import RekordError, closest_match, error
from rekord.location import Location
from rekord.storage.local import PathLike
from rekord.storage.publication import exists
from rekord.storage.router import ROUTED_STORAGE

_CHUNK_RECORDS = 1 << 16


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record comes from."""

    split: str
    record: int  # number in the split
    path: str | None  # below the root of the raw data; None if there was no file
    row: int | None = None  # in the file, from 0; None if the file is the row
    line: int | None = None  # in a text file, from 1
    copy: int = 0  # of the records that were made from one row
    synthetic: bool = False  # made from several records

    def __str__(self) -> str:
        if self.synthetic:
            return "made from several records"
        place = [self.path] if self.path is not None else []
        if self.line is not None:
            place.append(f"line {self.line:,}")
        elif self.row is not None:
            place.append(f"row {self.row:,}")
        if self.copy:
            place.append(f"copy {self.copy}")
        return ", ".join(place) or "unknown"

    def to_dict(self) -> dict[str, Any]:
        """The origin as a JSON document."""
        return asdict(self)


@check_keywords
def trace(path: PathLike, record: int | None = None, *, split: str | None = None) -> Origin | Iterator[Origin]:
    """The file and row that a record of a dataset was made from; without `record`, those of all records in order.

    `record` is the number of a record in `split`, negative from the end; `split` may be left out if there is only
    one. Paths are relative to the folder of the raw data.
    """
    dataset = OriginReader(path)
    if record is None:
        names = list(dataset.manifest.splits) if split is None else [dataset.split_name(split)]
        return (origin for name in names for origin in dataset.origins(name))
    return dataset.origin(dataset.split_name(split), record)


class OriginReader:
    """The origins of a dataset; it keeps those of the last shard that it read."""

    def __init__(self, path: PathLike) -> None:
        self.path = as_path("path", path, expected="the path of a dataset's folder", do='"data/flowers"')
        ROUTED_STORAGE.stat(self.path)  # raises if it does not exist
        if not exists(ROUTED_STORAGE, manifest_path(self.path)):
            raise self._unknown_error(self.path, f"a folder without {MANIFEST_NAME}")
        self.manifest: Manifest = read_manifest(self.path)
        self._last: tuple[str, ShardOrigins, frozenset[int]] | None = None

    def split_name(self, split: str | None) -> str:
        """A split of the dataset; the only one, if none is named."""
        names = list(self.manifest.splits)
        if split in names:
            return str(split)
        if split is None and len(names) == 1:
            return names[0]
        near = closest_match(split, names) if isinstance(split, str) else None
        raise error(
            "U605",
            "`split` is required: the dataset has several" if split is None else "dataset has no such split",
            location=Location(path=self.path),
            expected="one of " + ", ".join(names)[:60],
            found="no split" if split is None else repr(split)[:60],
            do=f"split={near or names[0]!r}" if names else "write the dataset again",
        )

    def origin(self, split: str, record: int) -> Origin:
        """The origin of one record."""
        records = self.manifest.splits[split].records
        integer("record", record, do="record=0")
        number = record + records if record < 0 else record
        if not 0 <= number < records:
            raise error(
                "U606",
                f"split has no record {record:,}",
                location=Location(path=self.path),
                expected=f"a number from 0 to {records - 1:,}",
                found=f"{record:,}",
                do="record=0",
            )
        counts = self.manifest.splits[split].shards.records
        ends = np.cumsum(counts)
        shard = int(np.searchsorted(ends, number, side="right"))
        begin = int(ends[shard]) - counts[shard]
        rows, several = self._read(split, shard, np.array([number - begin]))
        return _to_origin(split, number, rows, 0, several)

    def origins(self, split: str) -> Iterator[Origin]:
        """The origins of all records of a split, in order."""
        number = 0
        for rows, several in self._chunks(split):
            for i in range(len(rows)):
                yield _to_origin(split, number, rows, i, several)
                number += 1

    def count_files(self, split: str) -> Counter[str]:
        """The number of records from each file."""
        counts: Counter[str] = Counter()
        for rows, _ in self._chunks(split):
            found, sizes = np.unique(rows.path, return_counts=True)
            for number, size in zip(found.tolist(), sizes.tolist(), strict=True):
                known = number < len(rows.paths)
                counts[_to_text(rows.paths[number]) if known else "(made from several records)"] += size
        return counts

    def _chunks(self, split: str) -> Iterator[tuple[RowOrigins, frozenset[int]]]:
        for shard, count in enumerate(self.manifest.splits[split].shards.records):
            for begin in range(0, count, _CHUNK_RECORDS):
                yield self._read(split, shard, np.arange(begin, min(begin + _CHUNK_RECORDS, count)))

    def _read(self, split: str, shard: int, records: Any) -> tuple[RowOrigins, frozenset[int]]:
        """The origins of some records of a shard, and the numbers of the files that have several rows."""
        part = self.manifest.splits[split]
        place = os.path.join(self.path, part.name(split, shard))
        if self._last is None or self._last[0] != place:
            found = read_origins(place, part.shards.digest[shard], part.shards.records[shard])
            if found is None:
                raise self._unknown_error(place, "no file of origins that matches the shard")
            self._last = place, found, found.find_row_files()
        _, found, several = self._last
        return found.rows(records), several

    def _unknown_error(self, place: str, found: str) -> RekordError:
        return error(
            "X558",
            location=Location(path=place),
            expected="a dataset that rekord write wrote, with the origins of its records in .rekord/origins",
            found=found,
            do="write the dataset again: rekord write SOURCE OUT",
        )


def _to_text(path: bytes) -> str:
    return to_plain_text(os.fsdecode(path))


def _to_origin(split: str, number: int, rows: RowOrigins, i: int, several: frozenset[int]) -> Origin:
    path = rows.path_of(i)
    if path is None:
        return Origin(split, number, None, synthetic=True)
    position, line, copy = int(rows.position[i]), int(rows.line[i]), int(rows.copy[i])
    # A file that is one row has no row numbers.
    is_counted = not path or line > 0 or position > 0 or int(rows.path[i]) in several
    return Origin(
        split, number, _to_text(path) or None, position if is_counted else None, line if line > 0 else None, copy
    )
