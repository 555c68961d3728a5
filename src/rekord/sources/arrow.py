"""Arrow tables: IPC files, and tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from rekord.arguments import check_keywords, invalid
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Schema
from rekord.sources import base, tables
from rekord.sources.base import ArrowRows, Chunk, ColumnChunk, FileListing, SourceFacts, SourceFile
from rekord.sources.tables import ColumnFacts, TableColumn, TablePiece, TablePieces, TableSurvey
from rekord.storage.local import PathLike

if TYPE_CHECKING:
    import polars as pl

EXTENSIONS = (".arrow", ".arrows", ".feather", ".ipc")
_FILE_MAGIC = b"ARROW1"


@dataclass(frozen=True, slots=True)
class ArrowSource(TablePieces):
    """Rows of Arrow IPC files: of the file format (including Feather), and of the stream format."""

    kind = "arrow"
    extensions = EXTENSIONS

    def survey(self) -> TableSurvey:
        return _survey_files(self._listing(), self.columns)

    def open_file(self, path: str, file: SourceFile) -> AbstractContextManager[_ArrowReader]:
        return _open_arrow_file(path, file)


@dataclass(frozen=True, slots=True, eq=False)
class ArrowTableSource:
    """Rows of an Arrow table in memory."""

    table: Any = field(repr=False)
    columns: tuple[str, ...] | None = None
    kind: str = "arrow"

    def options(self) -> Mapping[str, Any]:
        return {"columns": None if self.columns is None else list(self.columns)}

    def facts(self) -> SourceFacts:
        if not self.table.num_rows:
            raise base.empty_file_error(None, "a table without rows", expected="at least one row")
        columns = tables.find_table_columns(self.table.schema, self.columns, None)
        nullable = {
            column.name
            for batch in self._batches()
            for column in columns
            if tables.read_column(batch, column).null_count
        }
        return SourceFacts(
            layout="table",
            schema=tables.build_table_schema(tables.widen_lossy_floats(columns, self.table), nullable),
            rows=self.table.num_rows,
            source_bytes=self.table.nbytes,
        )

    def rows(self) -> Iterator[Chunk]:
        columns = tables.find_table_columns(self.table.schema, self.columns, None)
        first = 0
        for batch in chain.from_iterable(map(_slice_batch, self._batches())):
            yield ColumnChunk("", first, tables.read_batch(batch, columns), batch.num_rows)
            first += batch.num_rows

    def _batches(self) -> list[Any]:
        return self.table.to_batches() if hasattr(self.table, "to_batches") else [self.table]


@check_keywords
def arrow(
    path_or_table: PathLike | ArrowRows, *, columns: Sequence[str] | None = None
) -> ArrowSource | ArrowTableSource:
    """Rows of Arrow IPC files (a file, a folder or a pattern), or of a Table or RecordBatch in memory.

    Types become features as those of Parquet files do. `columns` selects columns; None keeps all.
    """
    import pyarrow as pa

    keep = tables.kept_columns(columns)
    if isinstance(path_or_table, (pa.Table, pa.RecordBatch)):
        return ArrowTableSource(path_or_table, keep)
    return ArrowSource(base.source_path(path_or_table, "arrow"), keep)


@check_keywords
def polars(frame: pl.DataFrame) -> ArrowTableSource:
    """Rows of a polars DataFrame."""
    if not hasattr(frame, "to_arrow") or not hasattr(frame, "iter_rows"):
        raise invalid("frame", frame, "a polars DataFrame", "collect a LazyFrame first: frame.collect()")
    for name, dtype in frame.schema.items():
        # Python objects would become their addresses, and Arrow has no integers of 128 bits.
        if str(dtype) in ("Object", "Int128", "UInt128"):
            raise error(
                "X525",
                f"`{name[:60]}` has unsupported type {dtype}",
                location=Location(feature=name[:60]),
                expected="numbers of up to 64 bits, bools, text, bytes, or lists of them",
                found=str(dtype),
                do=f'cast it: frame.with_columns(pl.col("{name[:60]}").cast(pl.String)), or drop it',
            )
    return ArrowTableSource(frame.to_arrow(), None, "polars")


def _slice_batch(batch: Any) -> Iterator[Any]:
    """A record batch in pieces of a good size."""
    rows = tables.choose_batch_rows(batch.num_rows, batch.nbytes)
    return (batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows))


@lru_cache(maxsize=4)
def _survey_files(listing: FileListing, keep: tuple[str, ...] | None) -> TableSurvey:
    return tables.survey_files(listing, keep, _open_arrow_file)


@contextmanager
def _open_arrow_file(path: str, file: SourceFile) -> Iterator[_ArrowReader]:
    import pyarrow as pa
    from pyarrow import ipc

    with (
        tables.open_library_file(
            path, file, "Arrow file", (pa.ArrowException,), lambda text: f"data that cannot be read: {text[:60]}"
        ),
        pa.OSFile(path) as raw,
    ):
        can_seek = raw.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        raw.seek(0)
        yield _ArrowReader(ipc.open_file(raw) if can_seek else ipc.open_stream(raw), can_seek)


class _ArrowReader:
    """An open Arrow file; `can_seek` if it is of the file format, and not a stream."""

    def __init__(self, reader: Any, can_seek: bool) -> None:
        self._reader = reader
        self._can_seek = can_seek
        self.schema = reader.schema
        self.rows = 0

    def scan(self, file: SourceFile, columns: tuple[TableColumn, ...], facts: ColumnFacts) -> Iterator[TablePiece]:
        piece: TablePiece | None = None
        for place, batch in enumerate(self._record_batches(0, None)):
            if facts.typed is None and batch.num_rows:
                facts.typed = tables.widen_lossy_floats(columns, batch)
            facts.nullable.update(one.name for one in columns if tables.read_column(batch, one).null_count)
            if piece is None:
                piece = TablePiece(file, place, place + 1, self.rows, batch.nbytes)
            elif self._can_seek:
                yield piece
                piece = TablePiece(file, place, place + 1, self.rows, batch.nbytes)
            else:
                # Reaching a batch of a stream means reading those before it: one task reads them all.
                piece = piece._replace(end=place + 1, size_bytes=piece.size_bytes + batch.nbytes)
            self.rows += batch.num_rows
        if piece is not None:
            yield piece

    def batches(self, piece: TablePiece, columns: tuple[TableColumn, ...] | Schema) -> Iterator[Any]:
        return chain.from_iterable(map(_slice_batch, self._record_batches(piece.begin, piece.end)))

    def _record_batches(self, begin: int, end: int | None) -> Iterator[Any]:
        found: Iterator[Any] = islice(self._reader, begin, end) if not self._can_seek else iter(())
        if self._can_seek:
            last = self._reader.num_record_batches if end is None else end
            found = (self._reader.get_batch(i) for i in range(begin, last))
        for batch in found:
            # Offsets and lengths in a file can be anything; Arrow follows them unchecked.
            batch.validate(full=True)
            yield batch
