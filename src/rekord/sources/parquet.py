"""Parquet files, read by row groups."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from rekord.arguments import check_keywords
from rekord.schema import Schema
from rekord.sources import base, tables
from rekord.sources.base import PART_BYTES, Chunk, ColumnChunk, FileListing, SourceFacts, SourceFile
from rekord.sources.tables import SAMPLE_ROWS, TableColumn, TableFiles

EXTENSIONS = (".parquet", ".pq", ".parq")
_SCAN_ROWS = 4096


class RowGroup(NamedTuple):
    """A row group of a file."""

    place: int
    first: int
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ParquetSource(TableFiles):
    """Rows of Parquet files."""

    kind = "parquet"
    extensions = EXTENSIONS

    def facts(self) -> SourceFacts:
        seen = _survey_files(self._listing(), self.columns)
        rows = sum(group.rows for groups in seen.groups for group in groups)
        return tables.build_facts(seen.schema, rows, seen.listing)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[base.SourcePart]:
        seen = _survey_files(self._listing(), self.columns)
        parts: list[base.SourcePart] = []
        pieces: list[tuple[SourceFile, RowGroup]] = []
        size_bytes = 0
        for file, groups in zip(seen.listing.files, seen.groups, strict=True):
            for group in groups:
                if pieces and size_bytes + group.size_bytes > part_bytes:
                    parts.append(base.SourcePart((seen.listing.root, tuple(pieces), seen.exported), size_bytes))
                    pieces, size_bytes = [], 0
                pieces.append((file, group))
                size_bytes += group.size_bytes
        if pieces:
            parts.append(base.SourcePart((seen.listing.root, tuple(pieces), seen.exported), size_bytes))
        return parts

    def read(self, part: base.SourcePart) -> Iterator[Chunk]:
        root, pieces, exported = part.content
        at = 0
        while at < len(pieces):
            file = pieces[at][0]
            path = FileListing(root, ()).full(file)
            with _open_parquet_file(path, file) as parquet:
                columns = exported or tables.find_table_columns(parquet.schema_arrow, self.columns, path)
                while at < len(pieces) and pieces[at][0] == file:
                    yield from _read_row_group(parquet, pieces[at][1], columns, file.path)
                    at += 1


@check_keywords
def parquet(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> ParquetSource:
    """Rows of Parquet files: a file, a folder or a pattern. `columns` names those to keep; None keeps all.

    Integers are Int64 of their dtype, floats and doubles Float32 (doubles Tensor where float32 would not tell them
    apart), strings Text, binaries Bytes, lists variable or fixed shapes. The fields of a struct join their names
    with `/`; a struct of `bytes` and `path` is an Image. A column is optional where it has nulls. Files that
    `rk.export` wrote carry the schema of their records, which is taken as it is.
    """
    return ParquetSource(base.source_path(path, "parquet"), tables.kept_columns(columns))


@dataclass(frozen=True, slots=True)
class _ParquetSurvey:
    listing: FileListing
    schema: Schema
    groups: tuple[tuple[RowGroup, ...], ...]  # of each file
    exported: Schema | None = None  # what the files say themselves, where `export` wrote them


@lru_cache(maxsize=4)
def _survey_files(listing: FileListing, keep: tuple[str, ...] | None) -> _ParquetSurvey:
    first: tuple[TableColumn, ...] | None = None
    typed: tuple[TableColumn, ...] | None = None
    groups = []
    holes: set[str] = set()
    exported = tables.common_schema(listing, keep, _read_arrow_schema)
    for file in listing.files:
        path = listing.full(file)
        with _open_parquet_file(path, file) as parquet:
            if exported is not None:
                groups.append(tuple(_iter_row_groups(parquet.metadata, file)))
                continue
            columns = tables.find_table_columns(parquet.schema_arrow, keep, path)
            first = first or columns
            tables.check_same_columns(listing, file, first, columns)
            if typed is None and parquet.metadata.num_rows:
                typed = _widen_lossy_floats(parquet, columns)
            groups.append(tuple(_iter_row_groups(parquet.metadata, file)))
            unsure = [column for column in columns if column.name not in holes]
            holes.update(_find_nullable_columns(parquet, unsure))
    if not any(group.rows for file_groups in groups for group in file_groups):
        path = listing.full(listing.files[0])
        raise base.empty_file_error(path, "a table without rows", expected="at least one row")
    schema = exported or tables.build_table_schema(typed or first or (), holes)
    return _ParquetSurvey(listing, schema, tuple(groups), exported)


def _read_arrow_schema(path: str, file: SourceFile) -> Any:
    with _open_parquet_file(path, file) as parquet:
        return parquet.schema_arrow


def _widen_lossy_floats(parquet: Any, columns: tuple[TableColumn, ...]) -> tuple[TableColumn, ...]:
    """The columns, after a look at the first doubles."""
    doubles = tables.find_double_columns(columns, parquet.schema_arrow)
    if not doubles:
        return columns
    for batch in parquet.iter_batches(batch_size=SAMPLE_ROWS, columns=doubles):
        return tables.widen_lossy_floats(columns, batch)
    return columns


@contextmanager
def _open_parquet_file(path: str, file: SourceFile) -> Iterator[Any]:
    import pyarrow as pa
    from pyarrow import parquet

    with (
        tables.open_library_file(path, file, "Parquet file", (pa.ArrowException,), _describe_failure),
        pa.OSFile(path) as raw,
    ):
        yield parquet.ParquetFile(raw)


def _describe_failure(text: str) -> str:
    if "magic bytes" in text or "footer" in text.lower():
        return "no Parquet footer at its end"
    return f"data that cannot be decoded: {text[:60]}"


def _iter_row_groups(metadata: Any, file: SourceFile) -> Iterator[RowGroup]:
    first = 0
    for place in range(metadata.num_row_groups):
        group = metadata.row_group(place)
        # What a file says of itself is only used to cut it up.
        size_bytes = min(max(int(group.total_byte_size), 0), 64 * file.size_bytes)
        if group.num_rows > 0:
            yield RowGroup(place, first, group.num_rows, size_bytes)
            first += group.num_rows


def _find_nullable_columns(parquet: Any, columns: list[TableColumn]) -> set[str]:
    """The columns with a null: as the statistics have it, or where they cannot tell, as the values do."""
    metadata = parquet.metadata
    leaves: dict[str, list[int]] = {}
    for i in range(metadata.num_columns):
        leaves.setdefault(metadata.schema.column(i).path.split(".", 1)[0], []).append(i)
    found: set[str] = set()
    unsure: list[TableColumn] = []
    for column in columns:
        counts = [
            _read_null_count(metadata.row_group(group), leaf)
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
            found.update(column.name for column in unsure if tables.read_column(batch, column).null_count)
    return found


def _read_null_count(group: Any, leaf: int) -> int | None:
    statistics = group.column(leaf).statistics
    return statistics.null_count if statistics is not None and statistics.has_null_count else None


def _read_row_group(
    parquet: Any, group: RowGroup, columns: tuple[TableColumn, ...] | Schema, path: str
) -> Iterator[ColumnChunk]:
    names = list(columns) if isinstance(columns, Schema) else [column.path[0] for column in columns]
    batches = parquet.iter_batches(
        batch_size=tables.choose_batch_rows(group.rows, group.size_bytes),
        row_groups=[group.place],
        columns=list(dict.fromkeys(names)),
        use_threads=False,
    )
    first = group.first
    for batch in batches:
        yield ColumnChunk(path, first, tables.read_batch(batch, columns), batch.num_rows)
        first += batch.num_rows
