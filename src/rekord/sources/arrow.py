"""Arrow tables: files of Arrow's own format, and tables that are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from rekord.arguments import check_keywords, invalid
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Schema
from rekord.sources import base, tables
from rekord.sources.base import PART_BYTES, ArrowRows, Chunk, ColumnChunk, FileListing, SourceFacts
from rekord.sources.tables import TableColumn, TableFiles
from rekord.storage.local import PathLike

if TYPE_CHECKING:
    import polars as pl

EXTENSIONS = (".arrow", ".arrows", ".feather", ".ipc")
_FILE_MAGIC = b"ARROW1"


class _BatchRange(NamedTuple):
    """Record batches of a file that lie one after another."""

    file: base.SourceFile
    begin: int
    end: int
    first: int  # row
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArrowSource(TableFiles):
    """Rows of Arrow IPC files: of the file format (Feather too), and of the stream format."""

    kind = "arrow"
    extensions = EXTENSIONS

    def facts(self) -> SourceFacts:
        seen = _survey_files(self._listing(), self.columns)
        return tables.build_facts(seen.schema, seen.rows, seen.listing)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[base.SourcePart]:
        seen = _survey_files(self._listing(), self.columns)
        parts: list[base.SourcePart] = []
        pieces: list[_BatchRange] = []
        size_bytes = 0
        for piece in seen.pieces:
            if pieces and size_bytes + piece.size_bytes > part_bytes:
                parts.append(base.SourcePart((seen.listing.root, tuple(pieces), seen.exported), size_bytes))
                pieces, size_bytes = [], 0
            if pieces and pieces[-1].file == piece.file:
                last = pieces.pop()
                piece = last._replace(end=piece.end, size_bytes=last.size_bytes + piece.size_bytes)
                size_bytes -= last.size_bytes
            pieces.append(piece)
            size_bytes += piece.size_bytes
        if pieces:
            parts.append(base.SourcePart((seen.listing.root, tuple(pieces), seen.exported), size_bytes))
        return parts

    def read(self, part: base.SourcePart) -> Iterator[Chunk]:
        root, pieces, exported = part.content
        for piece in pieces:
            path = FileListing(root, ()).full(piece.file)
            with _open_arrow_file(path, piece.file) as (schema, batches, _):
                columns = exported or tables.find_table_columns(schema, self.columns, path)
                first = piece.first
                for batch in batches(piece.begin, piece.end):
                    yield from _slice_batch(batch, columns, piece.file.path, first)
                    first += batch.num_rows


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
        holes = {
            column.name
            for batch in self._batches()
            for column in columns
            if tables.read_column(batch, column).null_count
        }
        return SourceFacts(
            layout="table",
            schema=tables.build_table_schema(tables.widen_lossy_floats(columns, self.table), holes),
            rows=self.table.num_rows,
            source_bytes=self.table.nbytes,
        )

    def rows(self) -> Iterator[Chunk]:
        columns = tables.find_table_columns(self.table.schema, self.columns, None)
        first = 0
        for batch in self._batches():
            yield from _slice_batch(batch, columns, "", first)
            first += batch.num_rows

    def _batches(self) -> list[Any]:
        return self.table.to_batches() if hasattr(self.table, "to_batches") else [self.table]


@check_keywords
def arrow(
    path_or_table: PathLike | ArrowRows, *, columns: Sequence[str] | None = None
) -> ArrowSource | ArrowTableSource:
    """Rows of Arrow IPC files (a file, a folder or a pattern), or of a Table or RecordBatch in memory.

    Types become features as those of Parquet files do. `columns` names those to keep; None keeps all.
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
        # Python objects would come out as their addresses, and Arrow has no whole numbers of 128 bits.
        if str(dtype) in ("Object", "Int128", "UInt128"):
            raise error(
                "X525",
                f"`{name[:60]}` is of the type {dtype}",
                location=Location(feature=name[:60]),
                expected="numbers of 64 bits at most, bools, texts, bytes, or lists of them",
                found=str(dtype),
                do=f'cast it: frame.with_columns(pl.col("{name[:60]}").cast(pl.String)), or drop it',
            )
    return ArrowTableSource(frame.to_arrow(), None, "polars")


def _slice_batch(
    batch: Any, columns: tuple[TableColumn, ...] | Schema, path: str, first: int
) -> Iterator[ColumnChunk]:
    rows = tables.choose_batch_rows(batch.num_rows, batch.nbytes)
    for begin in range(0, batch.num_rows, rows):
        piece = batch.slice(begin, rows)
        yield ColumnChunk(path, first + begin, tables.read_batch(piece, columns), piece.num_rows)


@dataclass(frozen=True, slots=True)
class _ArrowSurvey:
    listing: FileListing
    schema: Schema
    pieces: tuple[_BatchRange, ...]
    rows: int
    exported: Schema | None = None  # what the files say themselves, where `export` wrote them


@lru_cache(maxsize=4)
def _survey_files(listing: FileListing, keep: tuple[str, ...] | None) -> _ArrowSurvey:
    first: tuple[TableColumn, ...] | None = None
    typed: tuple[TableColumn, ...] | None = None
    pieces: list[_BatchRange] = []
    holes: set[str] = set()
    rows = 0
    exported = tables.common_schema(listing, keep, _read_arrow_schema)
    for file in listing.files:
        path = listing.full(file)
        with _open_arrow_file(path, file) as (schema, batches, can_seek):
            columns = () if exported is not None else tables.find_table_columns(schema, keep, path)
            first = first or columns
            tables.check_same_columns(listing, file, first, columns)
            row = 0
            for place, batch in enumerate(batches(0, None)):
                if typed is None and batch.num_rows:
                    typed = tables.widen_lossy_floats(columns, batch)
                holes.update(column.name for column in columns if tables.read_column(batch, column).null_count)
                if place and not can_seek:
                    # To reach a batch of a stream is to read those before it: one task reads them all.
                    first_piece = pieces.pop()
                    grown = first_piece.size_bytes + batch.nbytes
                    pieces.append(first_piece._replace(end=place + 1, size_bytes=grown))
                else:
                    pieces.append(_BatchRange(file, place, place + 1, row, batch.nbytes))
                row += batch.num_rows
            rows += row
    if not rows:
        path = listing.full(listing.files[0])
        raise base.empty_file_error(path, "a table without rows", expected="at least one row")
    return _ArrowSurvey(
        listing,
        exported or tables.build_table_schema(typed or first or (), holes),
        tuple(pieces),
        rows,
        exported,
    )


def _read_arrow_schema(path: str, file: base.SourceFile) -> Any:
    with _open_arrow_file(path, file) as (schema, _, _):
        return schema


@contextmanager
def _open_arrow_file(path: str, file: base.SourceFile) -> Iterator[tuple[Any, Any, bool]]:
    """The schema of an Arrow file, a function that gives its batches from one to another, and whether it can seek."""
    import pyarrow as pa
    from pyarrow import ipc

    with (
        tables.open_library_file(
            path,
            file,
            "Arrow file",
            (pa.ArrowException,),
            lambda text: f"data that cannot be read: {text[:60]}",
        ),
        pa.OSFile(path) as raw,
    ):
        whole = raw.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        raw.seek(0)
        reader = ipc.open_file(raw) if whole else ipc.open_stream(raw)

        def batches(begin: int, end: int | None) -> Iterator[Any]:
            found: Iterator[Any]
            if whole:
                last = reader.num_record_batches if end is None else end
                found = (reader.get_batch(i) for i in range(begin, last))
            else:
                found = islice(reader, begin, end)
            for batch in found:
                # Offsets and lengths in a file can say anything; Arrow follows them unchecked.
                batch.validate(full=True)
                yield batch

        yield reader.schema, batches, whole
