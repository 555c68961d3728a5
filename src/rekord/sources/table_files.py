"""Table files, which must have the same columns: Arrow IPC and Parquet; and Arrow tables in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

from rekord.arguments import check_keywords, invalid, name_list
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.sources import base, tables
from rekord.sources.base import (
    PART_BYTES,
    ArrowRows,
    Chunk,
    ColumnChunk,
    FileListing,
    PartItem,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    check_unchanged,
    corrupt_file_error,
    disk_failure_error,
    empty_file_error,
    group_by_bytes,
    list_file_items,
    list_files,
)
from rekord.sources.tables import (
    SAMPLE_ROWS,
    TableColumn,
    build_facts,
    build_table_schema,
    find_table_columns,
    inconsistent_file_error,
    read_batch,
    read_exported_schema,
)
from rekord.storage import raw_files
from rekord.storage.local import PathLike

if TYPE_CHECKING:
    import polars as pl

ARROW_EXTENSIONS = (".arrow", ".arrows", ".feather", ".ipc")
_FILE_MAGIC = b"ARROW1"
PARQUET_EXTENSIONS = (".parquet", ".pq", ".parq")
_SCAN_ROWS = 4096


class TablePiece(NamedTuple):
    """Rows of a file that are read together: a row group, or record batches `begin` to `end`."""

    file: SourceFile
    begin: int
    end: int
    first: int  # row
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TableSurvey:
    """What a first pass over table files found."""

    listing: FileListing
    schema: Schema
    pieces: tuple[TablePiece, ...]
    rows: int
    exported: Schema | None  # the schema in the files, if `export` wrote them
    guesses: tuple[SourceGuess, ...] = ()


@dataclass(frozen=True, slots=True)
class TableFiles:
    """What the sources of table files share; a subclass names its kind and the extensions of its files."""

    path: str
    columns: tuple[str, ...] | None = None
    kind: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]]

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {"columns": None if self.columns is None else list(self.columns)}

    def _listing(self) -> FileListing:
        return list_files(self.path, self.extensions)


@dataclass(frozen=True, slots=True)
class TablePieces(TableFiles):
    """Table files that are read in pieces."""

    @staticmethod
    def open_file(path: str, file: SourceFile) -> AbstractContextManager[TableReader]:
        """A file, open for reading."""
        raise NotImplementedError

    def survey(self) -> TableSurvey:
        """The files, as they are now."""
        return survey_files(self._listing(), self.columns, self.open_file)

    def facts(self) -> SourceFacts:
        seen = self.survey()
        return build_facts(seen.schema, seen.rows, seen.listing, seen.guesses)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        seen = self.survey()
        sized = ((piece, piece.size_bytes) for piece in seen.pieces)
        return [
            SourcePart((seen.listing.root, seen.exported, pieces), size_bytes)
            for pieces, size_bytes in group_by_bytes(sized, part_bytes)
        ]

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        root, exported, pieces = part.content
        for file, own in groupby(pieces, key=lambda piece: piece.file):
            path = FileListing(root, ()).full(file)
            with self.open_file(path, file) as reader:
                columns = exported or find_table_columns(reader.schema, self.columns, path)
                for piece in own:
                    first = piece.first
                    for batch in reader.batches(piece, columns):
                        yield ColumnChunk(file.path, first, read_batch(batch, columns), batch.num_rows)
                        first += batch.num_rows

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The pieces of a part."""
        return list_file_items(part)

    def shared_context(self) -> Any:
        """The schema decides how columns are read."""
        return self.survey().schema.to_dict(evidence=False)


class TableReader(Protocol):
    """An open file of a table."""

    @property
    def schema(self) -> Any:
        """Its Arrow schema."""

    @property
    def rows(self) -> int:
        """Its number of rows; known after `scan`."""

    def batches(self, piece: TablePiece, columns: tuple[TableColumn, ...] | Schema) -> Iterator[Any]:
        """The rows of a piece in record batches, with at least these columns."""

    def scan(self, file: SourceFile, columns: tuple[TableColumn, ...], facts: ColumnFacts) -> Iterator[TablePiece]:
        """The pieces of the file; `facts` learns about the values of `columns`."""


OpenFile: TypeAlias = Callable[[str, SourceFile], AbstractContextManager[TableReader]]
"""Opens a file for reading, given its path and how it was when it was listed."""


@dataclass(slots=True)
class ColumnFacts:
    """What the values of all files say about their columns."""

    typed: tuple[TableColumn, ...] | None = None  # as the first rows are stored
    nullable: set[str] = field(default_factory=set)


@lru_cache(maxsize=8)
def survey_files(listing: FileListing, keep: tuple[str, ...] | None, open_file: OpenFile) -> TableSurvey:
    """Inspect all files, which must have the same columns."""
    first: tuple[TableColumn, ...] = ()
    facts = ColumnFacts()
    pieces: list[TablePiece] = []
    rows = 0
    exported = _common_schema(listing, keep, open_file)
    for file in listing.files:
        path = listing.full(file)
        with open_file(path, file) as reader:
            columns = () if exported is not None else find_table_columns(reader.schema, keep, path)
            first = first or columns
            check_same_columns(listing, file, first, columns)
            pieces += reader.scan(file, columns, facts)
            rows += reader.rows
    if not rows:
        raise empty_file_error(listing.full(listing.files[0]), "a table without rows", expected="at least one row")
    schema = exported or build_table_schema(facts.typed or first, facts.nullable)
    return TableSurvey(listing, schema, tuple(pieces), rows, exported, tables.guess_conversions(first))


@contextmanager
def open_library_file(
    path: str,
    file: SourceFile,
    kind: str,
    failures: tuple[type[Exception], ...],
    describe: Callable[[str], str],
) -> Iterator[None]:
    """While a library has a file open, turn its exceptions into one error of ours.

    `describe` turns the first line of the library's message into `found`.
    """
    caught: tuple[type[Exception], ...] = (OSError, ValueError, *failures)
    check_unchanged(path, file)
    if not file.size_bytes:
        article = "an" if kind[0] in "aeiouAEIOU" else "a"
        raise empty_file_error(path, "an empty file", expected=f"{article} {kind}")
    try:
        yield
    except RekordError:  # some are an OSError or a ValueError as well
        raise
    except caught as failure:
        check_unchanged(path, file)
        unread = disk_failure_error(path, failure)
        raise unread or corrupt_file_error(path, kind, describe(str(failure).split("\n", 1)[0])) from None


def open_arrow_input(path: str) -> Any:
    """A file, open for Arrow."""
    import pyarrow as pa

    return pa.OSFile(path) if raw_files.is_plain(path) else pa.PythonFile(raw_files.open_binary(path), mode="r")


def check_same_columns(
    listing: FileListing, file: SourceFile, first: Sequence[TableColumn], others: Sequence[TableColumn]
) -> None:
    """Raise X523 if a file has other columns than the first file; their order does not matter."""
    expected = {column.name: column.feature for column in first}
    found = {column.name: column.feature for column in others}
    for name in dict.fromkeys([*expected, *found]):
        if expected.get(name) != found.get(name):
            wanted, actual = [repr(one[name]) if name in one else "no such column" for one in (expected, found)]
            raise inconsistent_file_error(listing, file, name, expected=wanted, found=actual)


def _common_schema(listing: FileListing, keep: Iterable[str] | None, open_file: OpenFile) -> Schema | None:
    """The schema that all files of a source carry, if it is the same."""
    first = None
    for file in listing.files:
        with open_file(listing.full(file), file) as reader:
            schema = read_exported_schema(reader.schema, keep)
        if schema is None or schema != (first or schema):
            return None
        first = schema
    return first


@contextmanager
def _open_arrow_file(path: str, file: SourceFile) -> Iterator[_ArrowReader]:
    import pyarrow as pa
    from pyarrow import ipc

    with (
        open_library_file(
            path, file, "Arrow file", (pa.ArrowException,), lambda text: f"data that cannot be read: {text[:60]}"
        ),
        open_arrow_input(path) as raw,
    ):
        can_seek = raw.read(len(_FILE_MAGIC)) == _FILE_MAGIC
        raw.seek(0)
        yield _ArrowReader(ipc.open_file(raw) if can_seek else ipc.open_stream(raw), can_seek)


@dataclass(frozen=True, slots=True)
class ArrowSource(TablePieces):
    """Rows of Arrow IPC files: of the file format (including Feather), and of the stream format."""

    kind = "arrow"
    extensions = ARROW_EXTENSIONS
    open_file = staticmethod(_open_arrow_file)


@check_keywords
def arrow(
    path_or_table: PathLike | ArrowRows, *, columns: Sequence[str] | None = None
) -> ArrowSource | ArrowTableSource:
    """Rows of Arrow IPC files (a file, a folder or a pattern), or of a Table or RecordBatch in memory.

    Types become features as those of Parquet files do. `columns` selects columns; None keeps all.
    """
    import pyarrow as pa

    keep = kept_columns(columns)
    if isinstance(path_or_table, (pa.Table, pa.RecordBatch)):
        return ArrowTableSource(path_or_table, keep)
    return ArrowSource(base.source_path(path_or_table, "arrow"), keep)


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
            raise empty_file_error(None, "a table without rows", expected="at least one row")
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
            guesses=tables.guess_conversions(columns),
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


@contextmanager
def _open_parquet_file(path: str, file: SourceFile) -> Iterator[_ParquetReader]:
    import pyarrow as pa
    from pyarrow import parquet

    with (
        open_library_file(path, file, "Parquet file", (pa.ArrowException,), _describe_parquet_failure),
        open_arrow_input(path) as raw,
    ):
        yield _ParquetReader(parquet.ParquetFile(raw))


@dataclass(frozen=True, slots=True)
class ParquetSource(TablePieces):
    """Rows of Parquet files; a piece is a row group."""

    kind = "parquet"
    extensions = PARQUET_EXTENSIONS
    open_file = staticmethod(_open_parquet_file)


@check_keywords
def parquet(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> ParquetSource:
    """Rows of Parquet files: a file, a folder or a pattern. `columns` selects columns; None keeps all.

    Integers are Int64 of their dtype, floats and doubles Float32 (doubles Tensor if float32 would merge different
    values), strings Text, binaries Bytes, lists variable or fixed shapes. The fields of a struct are named with `/`;
    a struct of `bytes` and `path` is an Image. A column with nulls is optional. Files that `rk.export` wrote carry
    the schema of their records, which is used unchanged.
    """
    return ParquetSource(base.source_path(path, "parquet"), kept_columns(columns))


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


def _describe_parquet_failure(text: str) -> str:
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


def kept_columns(columns: object) -> tuple[str, ...] | None:
    """`columns=` of a table: unique names."""
    if columns is None:
        return None
    return name_list("columns", columns, do='columns=["image", "label"]')
