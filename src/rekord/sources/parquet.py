"""Parquet files, read by row group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rekord.arguments import check_keywords
from rekord.schema import Schema
from rekord.sources import base, tables
from rekord.sources.base import FileListing, SourceFile
from rekord.sources.tables import SAMPLE_ROWS, ColumnFacts, TableColumn, TablePiece, TablePieces, TableSurvey

EXTENSIONS = (".parquet", ".pq", ".parq")
_SCAN_ROWS = 4096


@dataclass(frozen=True, slots=True)
class ParquetSource(TablePieces):
    """Rows of Parquet files; a piece is a row group."""

    kind = "parquet"
    extensions = EXTENSIONS

    def survey(self) -> TableSurvey:
        return _survey_files(self._listing(), self.columns)

    def open_file(self, path: str, file: SourceFile) -> AbstractContextManager[_ParquetReader]:
        return _open_parquet_file(path, file)


@check_keywords
def parquet(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> ParquetSource:
    """Rows of Parquet files: a file, a folder or a pattern. `columns` selects columns; None keeps all.

    Integers are Int64 of their dtype, floats and doubles Float32 (doubles Tensor if float32 would merge different
    values), strings Text, binaries Bytes, lists variable or fixed shapes. The fields of a struct are named with `/`;
    a struct of `bytes` and `path` is an Image. A column with nulls is optional. Files that `rk.export` wrote carry
    the schema of their records, which is used unchanged.
    """
    return ParquetSource(base.source_path(path, "parquet"), tables.kept_columns(columns))


@lru_cache(maxsize=4)
def _survey_files(listing: FileListing, keep: tuple[str, ...] | None) -> TableSurvey:
    return tables.survey_files(listing, keep, _open_parquet_file)


@contextmanager
def _open_parquet_file(path: str, file: SourceFile) -> Iterator[_ParquetReader]:
    import pyarrow as pa
    from pyarrow import parquet

    with (
        tables.open_library_file(path, file, "Parquet file", (pa.ArrowException,), _describe_failure),
        pa.OSFile(path) as raw,
    ):
        yield _ParquetReader(parquet.ParquetFile(raw))


class _ParquetReader:
    """An open Parquet file."""

    def __init__(self, parquet: Any) -> None:
        self._parquet = parquet
        self.schema = parquet.schema_arrow
        self.rows: int = parquet.metadata.num_rows

    def scan(self, file: SourceFile, columns: tuple[TableColumn, ...], facts: ColumnFacts) -> Iterator[TablePiece]:
        if columns and facts.typed is None and self.rows:
            facts.typed = self._widen_lossy_floats(columns)
        unknown = [column for column in columns if column.name not in facts.nullable]
        facts.nullable.update(_find_nullable_columns(self._parquet, unknown))
        first = 0
        for place in range(self._parquet.metadata.num_row_groups):
            group = self._parquet.metadata.row_group(place)
            # The size in the metadata may be wrong, and is only used to cut the file into parts.
            size_bytes = min(max(int(group.total_byte_size), 0), 64 * file.size_bytes)
            if group.num_rows > 0:
                yield TablePiece(file, place, place + 1, first, size_bytes)
                first += group.num_rows

    def batches(self, piece: TablePiece, columns: tuple[TableColumn, ...] | Schema) -> Iterator[Any]:
        names = list(columns) if isinstance(columns, Schema) else [column.path[0] for column in columns]
        rows = self._parquet.metadata.row_group(piece.begin).num_rows
        batches: Iterator[Any] = self._parquet.iter_batches(
            batch_size=tables.choose_batch_rows(rows, piece.size_bytes),
            row_groups=[piece.begin],
            columns=list(dict.fromkeys(names)),
            use_threads=False,
        )
        return batches

    def _widen_lossy_floats(self, columns: tuple[TableColumn, ...]) -> tuple[TableColumn, ...]:
        doubles = tables.find_double_columns(columns, self.schema)
        for batch in self._parquet.iter_batches(batch_size=SAMPLE_ROWS, columns=doubles) if doubles else ():
            return tables.widen_lossy_floats(columns, batch)
        return columns


def _describe_failure(text: str) -> str:
    if "magic bytes" in text or "footer" in text.lower():
        return "no Parquet footer at the end"
    return f"data that cannot be decoded: {text[:60]}"


def _find_nullable_columns(parquet: Any, columns: list[TableColumn]) -> set[str]:
    """The columns with a null: according to the statistics, or to the values if these are not conclusive."""
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
