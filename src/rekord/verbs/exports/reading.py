"""What is exported: records of splits, in batches of bounded size, each of which can be named in an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord.codec.columns import Column, Optional, Ragged, SparseColumn, Strings
from rekord.dataset.selection import numbers_at
from rekord.dataset.split import Split
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Feature, Schema

Labels: TypeAlias = Literal["ids", "names"]

BATCH_BYTES = 8 << 20
"""About how much is decoded at once."""

MOST_ROWS = 8192
_FIRST_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What an export was asked for, beside its splits."""

    labels: Labels = "ids"
    shard_bytes: int | None = None
    on_records: Callable[[int], None] = field(default=lambda _: None)


@dataclass(frozen=True, eq=False)
class Records:
    """The records of one split that are exported."""

    split: Split
    columns: tuple[str, ...] | None
    limit: int | None
    threads: int | None = None

    @property
    def name(self) -> str:
        return self.split.name

    @property
    def features(self) -> Mapping[str, Feature]:
        """The columns by name, in their order."""
        features: Mapping[str, Feature] = self.split.schema.features
        return features if self.columns is None else {name: features[name] for name in self.columns}

    def schema(self) -> Schema | None:
        """The schema of the columns; None where they are none of their own, such as a mask without its image."""
        if self.split._map is not None:
            return None
        whole, kept = self.split.schema, set(self.features)
        try:
            if not whole.is_sequence:
                return Schema(dict(self.features))
            return Schema(
                context={name: one for name, one in whole.context.items() if name in kept},
                steps={name: one for name, one in whole.steps.items() if name in kept},
            )
        except RekordError:
            return None

    def rows_at_once(self) -> int:
        """How many records make a batch of a good size: judged by the first ones, and by the size of the files."""
        first = next(iter(self.split.batches(_FIRST_ROWS, columns=self.columns, prefetch=0, threads=1)), None)
        if first is None:
            return 1
        rows = max([len(column) for column in first.values()], default=1)
        each = sum(column_bytes(column) for column in first.values()) // max(rows, 1)
        if self.columns is None and self.split._shards.counted:
            files_bytes = sum(found.size_bytes for found in self.split._stats())
            each = max(each, files_bytes // max(len(self.split._shards), 1))
        chosen = max(1, min(MOST_ROWS, BATCH_BYTES // max(each, 1)))
        return chosen if self.limit is None else max(1, min(chosen, self.limit))

    def batches(self, columns: tuple[str, ...] | None = None) -> Iterator[tuple[dict[str, Column], int, int]]:
        """(columns, number of the first record, how many of them count) of one batch after another."""
        wanted = self.columns if columns is None else columns
        source = iter(self.split.batches(self.rows_at_once(), columns=wanted, threads=self.threads))
        before = 0
        for batch in source:
            rows = source.consumed - before
            if self.limit is not None:
                rows = min(rows, self.limit - before)
            if rows:
                # A split gives columns in the order of its schema, whatever the order that they were asked for in.
                yield {name: batch[name] for name in wanted or batch}, before, rows
            before += rows
            if before == self.limit:
                return

    def where(self, number: int, feature: str | None = None) -> Location:
        """The place of a record, by its number in the split."""
        ids = self.split._ids
        try:
            at = number if ids is None else int(numbers_at(ids, np.array([number], np.int64))[0])
            place = self.split._shards.where(at)
        except RekordError:
            place = Location(path=self.split.paths[0] if len(self.split.paths) == 1 else None, record=number)
        return place.within(feature=feature)


def column_bytes(column: Column | Any) -> int:
    """About how much memory a column takes."""
    if isinstance(column, Ragged):
        return column_bytes(column.values) + column.offsets.nbytes
    if isinstance(column, Optional):
        return column_bytes(column.values)
    if isinstance(column, SparseColumn):
        return column_bytes(column.indices) + column_bytes(column.values)
    if isinstance(column, Strings):
        return column.nbytes + 8 * len(column)
    return int(getattr(column, "nbytes", 0))


def unwritable(
    records: Records, number: int, feature: str, what: str, *, expected: str, found: str, do: str
) -> RekordError:
    """The error for a value that a format cannot hold."""
    return error(
        "X560",
        f"`{feature[:60]}` {what}",
        location=records.where(number, feature),
        expected=expected,
        found=found,
        do=do,
    )


def refuse_columns(format: str, wrong: Mapping[str, str], *, holds: str) -> None:
    """Raise where a format cannot hold some columns; `wrong` says what they are."""
    if not wrong:
        return
    name = next(iter(wrong))
    more = f" and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
    listed = ", ".join(f"`{one[:40]}` ({of})" for one, of in list(wrong.items())[:4])
    raise error(
        "U674",
        f"`{name[:60]}`{more} cannot be written as {format}",
        location=Location(feature=name[:60]),
        expected=holds,
        found=listed + (", …" if len(wrong) > 4 else ""),
        do="name the others with columns=[…] (--columns a,b), or export to .parquet",
    )
