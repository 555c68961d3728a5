"""Parquet files, read by row groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from rekord.errors import RekordError
from rekord.schema import Schema
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    Columns,
    Facts,
    Listing,
    Part,
    SourceFile,
    check_unchanged,
    damaged,
    disk_failure,
    empty,
    listed,
    source_path,
)
from rekord.sources.tables import (
    SAMPLED_ROWS,
    TableColumn,
    check_same,
    column_of,
    exported_schema,
    has_doubles,
    kept_columns,
    one_schema,
    restored,
    rows_at_once,
    schema_of,
    table_columns,
    to_batch,
    without_merging,
)

EXTENSIONS = (".parquet", ".pq", ".parq")
_SCAN_ROWS = 4096


class Group(NamedTuple):
    """A row group of a file."""

    place: int
    first: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Rows of Parquet files."""

    path: str
    columns: tuple[str, ...] | None = None

    @property
    def kind(self) -> str:
        return "parquet"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {"columns": None if self.columns is None else list(self.columns)}

    def facts(self) -> Facts:
        seen = _survey(self._listing(), self.columns)
        return Facts(
            layout="table",
            schema=seen.schema,
            rows=sum(group.rows for groups in seen.groups for group in groups),
            source_bytes=seen.listing.source_bytes,
            files=seen.listing.files,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        seen = _survey(self._listing(), self.columns)
        parts: list[Part] = []
        pieces: list[tuple[SourceFile, Group]] = []
        size_bytes = 0
        for file, groups in zip(seen.listing.files, seen.groups, strict=True):
            for group in groups:
                if pieces and size_bytes + group.size_bytes > part_bytes:
                    parts.append(Part((seen.listing.root, tuple(pieces), seen.exported), size_bytes))
                    pieces, size_bytes = [], 0
                pieces.append((file, group))
                size_bytes += group.size_bytes
        if pieces:
            parts.append(Part((seen.listing.root, tuple(pieces), seen.exported), size_bytes))
        return parts

    def read(self, part: Part) -> Iterator[Chunk]:
        root, pieces, exported = part.content
        at = 0
        while at < len(pieces):
            file = pieces[at][0]
            path = Listing(root, ()).full(file)
            with _opened(path, file) as parquet:
                columns = exported or table_columns(parquet.schema_arrow, self.columns, path)
                while at < len(pieces) and pieces[at][0] == file:
                    yield from _group_rows(parquet, pieces[at][1], columns, file.path)
                    at += 1

    def _listing(self) -> Listing:
        return listed(self.path, EXTENSIONS)


def parquet(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> ParquetSource:
    """Rows of Parquet files: a file, a folder or a pattern. `columns` names those to keep; None keeps all.

    Integers are Int64 of their dtype, floats and doubles Float32 (doubles Tensor where float32 would not tell them
    apart), strings Text, binaries Bytes, lists variable or fixed shapes. The fields of a struct join their names
    with `/`; a struct of `bytes` and `path` is an Image. A column is optional where it has nulls. Files that
    `rk.export` wrote carry the schema of their records, which is taken as it is.
    """
    return ParquetSource(source_path(path, "parquet"), kept_columns(columns))


@dataclass(frozen=True, slots=True)
class _Survey:
    listing: Listing
    schema: Schema
    groups: tuple[tuple[Group, ...], ...]  # of each file
    exported: Schema | None = None  # what the files say themselves, where `export` wrote them


@lru_cache(maxsize=4)
def _survey(listing: Listing, keep: tuple[str, ...] | None) -> _Survey:
    first: tuple[TableColumn, ...] | None = None
    typed: tuple[TableColumn, ...] | None = None
    groups = []
    holes: set[str] = set()
    exported = one_schema(_exported(listing, keep))
    for file in listing.files:
        path = listing.full(file)
        with _opened(path, file) as parquet:
            if exported is not None:
                groups.append(tuple(_groups(parquet.metadata, file)))
                continue
            columns = table_columns(parquet.schema_arrow, keep, path)
            first = first or columns
            check_same(listing, file, first, columns)
            if typed is None and parquet.metadata.num_rows:
                typed = _typed(parquet, columns)
            groups.append(tuple(_groups(parquet.metadata, file)))
            unsure = [column for column in columns if column.name not in holes]
            holes.update(_holes(parquet, unsure))
    if not any(group.rows for file_groups in groups for group in file_groups):
        path = listing.full(listing.files[0])
        raise empty(path, "a table without rows", expected="at least one row")
    schema = exported or schema_of(typed or first or (), holes)
    return _Survey(listing, schema, tuple(groups), exported)


def _exported(listing: Listing, keep: tuple[str, ...] | None) -> Iterator[Schema | None]:
    for file in listing.files:
        path = listing.full(file)
        with _opened(path, file) as parquet:
            schema = exported_schema(parquet.schema_arrow, keep)
        yield schema
        if schema is None:
            return


def _typed(parquet: Any, columns: tuple[TableColumn, ...]) -> tuple[TableColumn, ...]:
    """The columns, after a look at the first doubles."""
    doubles = has_doubles(columns, parquet.schema_arrow)
    if not doubles:
        return columns
    for batch in parquet.iter_batches(batch_size=SAMPLED_ROWS, columns=doubles):
        return without_merging(columns, batch)
    return columns


@contextmanager
def _opened(path: str, file: SourceFile) -> Iterator[Any]:
    """A Parquet file. Whatever Arrow says of it, while it is open, becomes one error of ours."""
    import pyarrow as pa
    from pyarrow import parquet

    check_unchanged(path, file)
    if not file.size_bytes:
        raise empty(path, "an empty file", expected="a Parquet file")
    try:
        with pa.OSFile(path) as raw:
            yield parquet.ParquetFile(raw)
    except RekordError:  # some of them are an OSError or a ValueError too
        raise
    except (pa.ArrowException, OSError, ValueError) as failure:
        check_unchanged(path, file)
        unread = disk_failure(path, failure)
        raise unread or damaged(path, "Parquet file", _reason(failure)) from None


def _reason(failure: Exception) -> str:
    text = str(failure).split("\n", 1)[0]
    if "magic bytes" in text or "footer" in text.lower():
        return "no Parquet footer at its end"
    return f"data that cannot be decoded: {text[:60]}"


def _groups(metadata: Any, file: SourceFile) -> Iterator[Group]:
    first = 0
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        # What a file says of itself is only used to cut it up.
        size_bytes = min(max(int(group.total_byte_size), 0), 64 * file.size_bytes)
        if group.num_rows > 0:
            yield Group(place, first, group.num_rows, size_bytes)
            first += group.num_rows


def _holes(parquet: Any, columns: list[TableColumn]) -> set[str]:
    """The columns with a null: as the statistics have it, or where they cannot tell, as the values do."""
    metadata = parquet.metadata
    leaves: dict[str, list[int]] = {}
    for i in range(metadata.num_columns):
        leaves.setdefault(metadata.schema.column(i).path.split(".", 1)[0], []).append(i)
    found: set[str] = set()
    unsure: list[TableColumn] = []
    for column in columns:
        counts = [
            _null_count(metadata.row_group(group), leaf)
            for group in range(metadata.num_row_groups)
            for leaf in leaves.get(column.path[0], [])
        ]
        flat = len(column.path) == 1 and not column.feature.shape
        if flat and any(count for count in counts if count is not None):
            found.add(column.name)
        elif any(count is None or count for count in counts):
            unsure.append(column)
    if unsure:
        names = list(dict.fromkeys(column.path[0] for column in unsure))
        for batch in parquet.iter_batches(batch_size=_SCAN_ROWS, columns=names, use_threads=False):
            unsure = [column for column in unsure if column.name not in found]
            if not unsure:
                break
            found.update(column.name for column in unsure if column_of(batch, column).null_count)
    return found


def _null_count(group: Any, leaf: int) -> int | None:
    statistics = group.column(leaf).statistics
    return statistics.null_count if statistics is not None and statistics.has_null_count else None


def _group_rows(
    parquet: Any, group: Group, columns: tuple[TableColumn, ...] | Schema, path: str
) -> Iterator[Columns]:
    names = list(columns) if isinstance(columns, Schema) else [column.path[0] for column in columns]
    batches = parquet.iter_batches(
        batch_size=rows_at_once(group.rows, group.size_bytes),
        row_groups=[group.place],
        columns=list(dict.fromkeys(names)),
        use_threads=False,
    )
    first = group.first
    for batch in batches:
        values = restored(batch, columns) if isinstance(columns, Schema) else to_batch(batch, columns)
        yield Columns(path, first, values, batch.num_rows)
        first += batch.num_rows
