"""Columns in memory, and the `.npy` and `.npz` files of NumPy."""

from __future__ import annotations

import ast
import math
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rekord.arguments import check_keywords, invalid
from rekord.errors import RekordError, add_location, error, preview
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.infer import infer_rows
from rekord.schema.row_adapters import column_batches
from rekord.sources import base, tables
from rekord.sources.base import PART_BYTES, Chunk, ColumnChunk, FileListing, SourceFacts, SourceFile
from rekord.sources.table_files import TableFiles, kept_columns, open_library_file
from rekord.storage import raw_files

if TYPE_CHECKING:
    import numpy.typing as npt

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 10_000
_DTYPE_PATTERN = re.compile(r"[<>|=]?[a-zA-Z?][0-9]{0,9}(?:\[[0-9a-zA-Z]{1,12}\])?")


class NpyHeader(NamedTuple):
    """The header of a .npy file, checked against the size of the file."""

    dtype: Any
    rows: int
    row_shape: tuple[int, ...]
    offset: int  # of the first row

    @property
    def row_bytes(self) -> int:
        return int(self.dtype.itemsize) * math.prod(self.row_shape)


def read_npy_header(stream: Any, size_bytes: int, path: str, column: str) -> NpyHeader:
    """The header of the array for `column`, in a file of `size_bytes`. Raises if it has no rows of values."""
    parsed = parse_npy_header(stream)
    if parsed is None:
        raise base.corrupt_file_error(path, "NumPy file", f"no valid array header for `{column[:60]}`")
    dtype, by_columns, shape, offset = parsed
    if dtype.hasobject or dtype.names is not None or dtype.kind not in "biufcSU" or _is_platform_dependent(dtype):
        do = "save an array of numbers or strings"
        raise _unsupported_array_error(path, column, f"an array of {preview(str(dtype))}", do)
    if not shape:
        raise _unsupported_array_error(
            path, column, "an array without dimensions", "save it with rows as the first dimension: array[None]"
        )
    if by_columns and len(shape) > 1:
        do = "np.save(path, np.ascontiguousarray(array))"
        raise _unsupported_array_error(path, column, "an array in Fortran order", do)
    header = NpyHeader(dtype, shape[0], shape[1:], offset)
    if not header.row_bytes:
        found = f"an array of empty rows of shape {header.row_shape}"
        raise _unsupported_array_error(path, column, found[:80], "remove the array")
    if header.rows * header.row_bytes > size_bytes - offset:
        needed = header.rows * header.row_bytes
        found = f"{size_bytes - offset:,} bytes of data, the header of `{column[:60]}` declares {needed:,}"
        raise base.corrupt_file_error(path, "NumPy file", found)
    return header


def _is_platform_dependent(dtype: np.dtype[Any]) -> bool:
    """Whether numbers have a width that only some platforms support."""
    return (dtype.kind == "f" and dtype.itemsize > 8) or (dtype.kind == "c" and dtype.itemsize > 16)


def parse_npy_header(stream: Any) -> tuple[np.dtype[Any], bool, tuple[int, ...], int] | None:
    """dtype, whether in Fortran order, shape, and the offset of the data; None if the header is invalid.

    NumPy's own parser runs a tokenizer over invalid headers, whose exceptions escape.
    """
    front = stream.read(8)
    if front not in [_MAGIC + bytes([version, 0]) for version in (1, 2, 3)]:
        return None
    length_bytes = stream.read(2 if front[6] == 1 else 4)
    length = int.from_bytes(length_bytes, "little")
    if length > _MAX_HEADER_BYTES:
        return None
    text = stream.read(length)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            members = ast.literal_eval(text.decode("utf-8" if front[6] == 3 else "latin-1").strip())
            descr, by_columns, shape = (members[name] for name in ("descr", "fortran_order", "shape"))
            if not isinstance(descr, list) and not _DTYPE_PATTERN.fullmatch(descr):
                return None
            dtype = np.dtype(descr)
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError, OverflowError):
        return None
    sizes = isinstance(shape, tuple) and all(type(size) is int and size >= 0 for size in shape)
    if len(text) != length or not sizes or type(by_columns) is not bool:
        return None
    return dtype, by_columns, shape, 8 + len(length_bytes) + length


def _unsupported_array_error(path: str, column: str, found: str, do: str) -> RekordError:
    return error(
        "X525",
        f"`{column[:60]}` is {found}",
        location=Location(path=path, feature=column[:60]),
        expected="an array of numbers, bools or strings, with rows as the first dimension",
        found=found,
        do=do,
    )


_MAX_SAMPLE_BYTES = 64 << 20
_MAX_COMPRESSION_RATIO = 1032  # deflate cannot do better


class _ArraySlice(NamedTuple):
    file: SourceFile
    header: NpyHeader
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class NpySource:
    """Rows of .npy files."""

    path: str
    column: str

    kind = "npy"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {"column": self.column}

    def facts(self) -> SourceFacts:
        schema, headers, listing = _survey_npy(self._listing(), self.column)
        return tables.build_facts(schema, sum(header.rows for header in headers), listing)

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[base.SourcePart]:
        _, headers, listing = _survey_npy(self._listing(), self.column)
        parts = []
        for file, header in zip(listing.files, headers, strict=True):
            step = max(1, part_bytes // max(header.row_bytes, 1))
            for begin in range(0, header.rows, step):
                end = min(begin + step, header.rows)
                piece = _ArraySlice(file, header, begin, end)
                parts.append(base.SourcePart((listing.root, piece), (end - begin) * header.row_bytes))
        return parts

    def read(self, part: base.SourcePart) -> Iterator[Chunk]:
        root, (file, header, begin, end) = part.content
        path = FileListing(root, ()).full(file)
        at = header.offset + begin * header.row_bytes
        with base.open_source_file(path, file, at, header.offset + end * header.row_bytes) as stream:
            yield from _read_array_chunks({self.column: (stream, header)}, begin, end, file.path, path)

    def _listing(self) -> FileListing:
        return base.list_files(self.path, (".npy",))


@dataclass(frozen=True, slots=True)
class NpzSource(TableFiles):
    """Rows of .npz files: each array is a column."""

    kind = "npz"
    extensions = (".npz",)

    def facts(self) -> SourceFacts:
        return tables.build_facts(*_survey_npz(self._listing(), self.columns))

    def rows(self) -> Iterator[Chunk]:
        listing = self._listing()
        for file in listing.files:
            path = listing.full(file)
            with _open_npz_members(path, file, self.columns) as members:
                rows = next(iter(members.values()))[1].rows
                yield from _read_array_chunks(members, 0, rows, file.path, path)


@check_keywords
def npy(path: str | os.PathLike[str], *, column: str = "x") -> NpySource:
    """Rows of .npy files (a file, a folder or a pattern), as the column `column`; the first dimension is rows."""
    return NpySource(base.source_path(path, "npy"), column)


@check_keywords
def npz(path: str | os.PathLike[str], *, columns: Sequence[str] | None = None) -> NpzSource:
    """Rows of .npz files (a file, a folder or a pattern): each array is a column, its first dimension the rows.

    `columns` selects arrays; None keeps all.
    """
    return NpzSource(base.source_path(path, "npz"), kept_columns(columns))


@lru_cache(maxsize=4)
def _survey_npy(listing: FileListing, column: str) -> tuple[Schema, tuple[NpyHeader, ...], FileListing]:
    headers: list[NpyHeader] = []
    sample: list[Any] = []
    for file in listing.files:
        path = listing.full(file)
        if not file.size_bytes:
            raise base.empty_file_error(path, "an empty file", expected="a .npy file")
        with base.open_source_file(path, file) as stream:
            header = read_npy_header(stream, file.size_bytes, path, column)
            _check_same_headers(listing, file, {column: header}, {column: (headers or [header])[0]})
            headers.append(header)
            chunks = _read_array_chunks({column: (stream, header)}, 0, header.rows, file.path, path)
            _take_sample(sample, chunks)
    return _infer_schema(sample, listing), tuple(headers), listing


@lru_cache(maxsize=4)
def _survey_npz(listing: FileListing, keep: tuple[str, ...] | None) -> tuple[Schema, int, FileListing]:
    first: dict[str, NpyHeader] = {}
    sample: list[Any] = []
    rows = 0
    for file in listing.files:
        path = listing.full(file)
        with _open_npz_members(path, file, keep) as members:
            headers = {name: header for name, (_, header) in members.items()}
            first = first or headers
            _check_same_headers(listing, file, headers, first)
            count = next(iter(headers.values())).rows
            rows += count
            _take_sample(sample, _read_array_chunks(members, 0, count, file.path, path))
    return _infer_schema(sample, listing), rows, listing


def _take_sample(sample: list[Any], chunks: Iterator[ColumnChunk]) -> None:
    """Rows from the start of every file; dtypes and shapes are the same throughout."""
    taken_bytes = 0
    for chunk in chunks:
        sample.append(chunk.values)
        taken_bytes += sum(getattr(values, "nbytes", 64 * chunk.rows) for values in chunk.values.values())
        if taken_bytes >= _MAX_SAMPLE_BYTES or len(sample) > 64:
            return


def _infer_schema(sample: list[Any], listing: FileListing) -> Schema:
    path = listing.full(listing.files[0])
    if not sample:
        raise base.empty_file_error(path, "an array without rows", expected="at least one row")
    joined = {
        name: np.concatenate([piece[name] for piece in sample])
        if isinstance(sample[0][name], np.ndarray)
        else [value for piece in sample for value in piece[name]]
        for name in sample[0]
    }
    with add_location(path=path):
        return infer_rows(joined)


def _check_same_headers(
    listing: FileListing, file: SourceFile, headers: Mapping[str, NpyHeader], first: Mapping[str, NpyHeader]
) -> None:
    for name in dict.fromkeys([*first, *headers]):
        wanted, there = first.get(name), headers.get(name)
        if wanted is None or there is None or wanted[0] != there[0] or wanted[2] != there[2]:
            raise tables.inconsistent_file_error(
                listing, file, name, expected=_describe_header(wanted), found=_describe_header(there)
            )


def _describe_header(header: NpyHeader | None) -> str:
    return "no such array" if header is None else f"{header.dtype.name} rows of shape {header.row_shape}"


@contextmanager
def _open_npz_members(
    path: str, file: SourceFile, keep: tuple[str, ...] | None
) -> Iterator[dict[str, tuple[Any, NpyHeader]]]:
    """The arrays of a .npz file, each open after its header."""
    failures = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
    with (
        open_library_file(
            path, file, ".npz file", failures, lambda text: f"an archive that cannot be read: {text[:60]}"
        ),
        ExitStack() as stack,
    ):
        archive = stack.enter_context(zipfile.ZipFile(stack.enter_context(raw_files.open_binary(path))))
        members: dict[str, tuple[Any, NpyHeader]] = {}
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if info.filename == name or (keep is not None and name not in keep):
                continue
            if name in members:
                raise error(
                    "X522",
                    f"two arrays are named `{name[:60]}`",
                    location=Location(path=path, feature=name[:60]),
                    expected="unique names in an archive",
                    found="two arrays of this name",
                    do="save the arrays again under unique names: np.savez(path, x=…, y=…)",
                )
            # The size in an archive is believed as far as its bytes can hold it.
            size_bytes = min(info.file_size, _MAX_COMPRESSION_RATIO * info.compress_size + 1024)
            stream = stack.enter_context(archive.open(info))
            members[name] = stream, read_npy_header(stream, size_bytes, path, name)
        for name in keep or ():
            if name not in members:
                raise error(
                    "X522",
                    f"array `{name[:60]}` does not exist",
                    location=Location(path=path, feature=name[:60]),
                    expected="an array with this name, as in `columns`",
                    found="none",
                    do="use the names in the file: np.load(path).files",
                )
        if not members:
            expected = "a .npy file per column in it"
            raise base.empty_file_error(path, "an archive without arrays", expected=expected)
        _check_row_counts(members, path)
        yield members


def _check_row_counts(members: Mapping[str, tuple[Any, NpyHeader]], path: str) -> None:
    first = next(iter(members))
    rows = members[first][1].rows
    for name, (_, header) in members.items():
        if header.rows != rows:
            raise error(
                "X523",
                "arrays of the file have different numbers of rows",
                location=Location(path=path, feature=name[:60]),
                expected=f"{rows:,} rows, as `{first[:60]}` has",
                found=f"{header.rows:,} rows",
                do=f"select arrays of the same length: columns=[{first[:60]!r}]",
            )


def _read_array_chunks(
    members: Mapping[str, tuple[Any, NpyHeader]], begin: int, end: int, path: str, full_path: str
) -> Iterator[ColumnChunk]:
    row_bytes = sum(header.row_bytes for _, header in members.values())
    step = tables.choose_batch_rows(1, row_bytes)
    for first in range(begin, end, step):
        rows = min(step, end - first)
        values = {name: _read_rows(*member, rows, full_path) for name, member in members.items()}
        yield ColumnChunk(path, first, values, rows)


def _read_rows(stream: Any, header: NpyHeader, rows: int, path: str) -> Any:
    wanted = rows * header.row_bytes
    data = stream.read(wanted)
    if len(data) != wanted:
        raise base.corrupt_file_error(path, "NumPy file", f"{len(data):,} bytes of data, expected {wanted:,}")
    array = np.frombuffer(data, header.dtype).reshape(rows, *header.row_shape)
    if header.dtype.kind in "SU":
        return array.tolist()
    return array.astype(header.dtype.newbyteorder("="), copy=False)


# Values of several types, or of a type that only a declared feature accepts.
_NOT_INFERABLE_CODES = ("S129", "S130", "S131")


@dataclass(frozen=True, slots=True, eq=False)
class DataFrameSource:
    """Rows of columns in memory."""

    frame: Any = field(repr=False)
    kind: str

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> SourceFacts:
        """The schema is None if none can be inferred: a declared one may still fit the values."""
        try:
            schema = self.peek_schema()
        except RekordError as failure:
            if failure.code not in _NOT_INFERABLE_CODES:
                raise
            return SourceFacts(layout="table", source_bytes=self._size())
        return SourceFacts(layout="table", schema=schema, rows=schema.evidence["rows"], source_bytes=self._size())

    def peek_schema(self, *, skip: Collection[str] = ()) -> Schema:
        """The schema of the columns, without `skip`. Raises if none can be inferred."""
        if not skip:
            return infer_rows(self.frame)
        names = [name for name in self.frame if name not in skip]
        frame = self.frame
        return infer_rows({name: frame[name] for name in names} if isinstance(frame, Mapping) else frame[names])

    def rows(self) -> Iterator[Chunk]:
        first = 0
        for rows, columns in column_batches(self.frame):
            yield ColumnChunk("", first, columns, rows)
            first += rows

    def _size(self) -> int:
        if isinstance(self.frame, Mapping):
            return sum(_column_bytes(column) for column in self.frame.values())
        return int(self.frame.memory_usage(index=False).sum())


def _column_bytes(column: Any) -> int:
    if hasattr(column, "nbytes"):
        return int(column.nbytes)
    return 8 * len(column) if hasattr(column, "__len__") else 8


@check_keywords
def columns(arrays: Mapping[str, npt.ArrayLike]) -> DataFrameSource:
    """Rows of a dict of columns: lists, or arrays with rows first. Types are inferred by `rk.infer`."""
    if not isinstance(arrays, Mapping):
        raise invalid("arrays", arrays, "a dict of columns", 'rk.sources.columns({"label": array})')
    return DataFrameSource(arrays, "columns")


class PandasFrame(Protocol):
    """The part of a pandas DataFrame that is used; pandas need not be installed."""

    @property
    def iloc(self) -> object: ...
    @property
    def dtypes(self) -> object: ...
    @property
    def columns(self) -> object: ...
    def itertuples(self, index: bool = ..., name: str | None = ...) -> Iterable[tuple[object, ...]]: ...


@check_keywords
def pandas(frame: PandasFrame) -> DataFrameSource:
    """Rows of a pandas DataFrame, without its index. Types are inferred by `rk.infer`."""
    if not all(hasattr(frame, name) for name in ("iloc", "dtypes", "columns", "itertuples")):
        raise invalid("frame", frame, "a pandas DataFrame", "rk.sources.pandas(frame)")
    return DataFrameSource(frame, "pandas")
