"""NumPy columns: in memory, in .npy and .npz files, and as pandas has them."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rekord.errors import RekordError, error, located
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.infer_rows import infer_rows
from rekord.schema.refuse import shown
from rekord.schema.rowforms import column_batches
from rekord.sources.base import PART_BYTES, Chunk, Columns, Facts, Part, SourceFile
from rekord.sources.files import (
    ByteStream,
    Listing,
    check_unchanged,
    checked_path,
    damaged,
    empty,
    listed,
    opened,
)
from rekord.sources.same_columns import inconsistent
from rekord.sources.tables import BATCH_ROWS, rows_at_once

_INFERRED_BYTES = 64 << 20
_MOST_RATIO = 1032  # deflate cannot do better


@dataclass(frozen=True, slots=True, eq=False)
class FrameSource:
    """Rows of columns in memory."""

    frame: Any = field(repr=False)
    kind: str

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> Facts:
        schema = infer_rows(self.frame)
        return Facts(layout="table", schema=schema, rows=schema.evidence["rows"], source_bytes=self._size())

    def rows(self) -> Iterator[Chunk]:
        first = 0
        for rows, columns in column_batches(self.frame):
            yield Columns("", first, columns, rows)
            first += rows

    def _size(self) -> int:
        if isinstance(self.frame, Mapping):
            return sum(getattr(column, "nbytes", 8 * len(column)) for column in self.frame.values())
        return int(self.frame.memory_usage(index=False).sum())


def columns(arrays: Mapping[str, Any]) -> FrameSource:
    """Rows of a dict of columns: arrays with the rows first, or lists. Types are those that `rk.infer` gives."""
    if not isinstance(arrays, Mapping):
        raise _no_frame("columns", arrays, "a dict of columns", 'rk.sources.columns({"label": array})')
    return FrameSource(arrays, "columns")


def pandas(frame: Any) -> FrameSource:
    """Rows of a pandas DataFrame, without its index. Types are those that `rk.infer` gives."""
    if not all(hasattr(frame, name) for name in ("iloc", "dtypes", "columns", "itertuples")):
        raise _no_frame("pandas", frame, "a pandas DataFrame", "rk.sources.pandas(frame)")
    return FrameSource(frame, "pandas")


def _no_frame(kind: str, given: object, expected: str, do: str) -> RekordError:
    what = f"`{kind}` cannot read from a {type(given).__name__}"
    return error("U605", what, expected=expected, found=shown(given), do=do)


class Header(NamedTuple):
    """What a .npy file says of its array, held against the bytes that there are."""

    dtype: Any
    rows: int
    row_shape: tuple[int, ...]
    offset: int  # of the first row

    @property
    def row_bytes(self) -> int:
        return int(self.dtype.itemsize) * math.prod(self.row_shape)


class _Rows(NamedTuple):
    file: SourceFile
    header: Header
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class NpySource:
    """Rows of .npy files, one array each."""

    path: str
    column: str

    @property
    def kind(self) -> str:
        return "npy"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {"column": self.column}

    def facts(self) -> Facts:
        schema, headers, listing = _npy_survey(self._listing(), self.column)
        return Facts(
            layout="table",
            schema=schema,
            rows=sum(header.rows for header in headers),
            source_bytes=listing.source_bytes,
            files=listing.files,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        _, headers, listing = _npy_survey(self._listing(), self.column)
        parts = []
        for file, header in zip(listing.files, headers, strict=True):
            step = max(1, part_bytes // max(header.row_bytes, 1))
            for begin in range(0, header.rows, step):
                end = min(begin + step, header.rows)
                piece = _Rows(file, header, begin, end)
                parts.append(Part((listing.root, piece), (end - begin) * header.row_bytes))
        return parts

    def read(self, part: Part) -> Iterator[Chunk]:
        root, (file, header, begin, end) = part.content
        path = Listing(root, ()).full(file)
        at = header.offset + begin * header.row_bytes
        with opened(path, file, at, header.offset + end * header.row_bytes) as stream:
            yield from _array_chunks({self.column: (stream, header)}, begin, end, file.path, path)

    def _listing(self) -> Listing:
        return listed(self.path, (".npy",))


@dataclass(frozen=True, slots=True)
class NpzSource:
    """Rows of .npz files: each array is a column."""

    path: str

    @property
    def kind(self) -> str:
        return "npz"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {}

    def facts(self) -> Facts:
        schema, rows, listing = _npz_survey(self._listing())
        return Facts(
            layout="table", schema=schema, rows=rows, source_bytes=listing.source_bytes, files=listing.files
        )

    def rows(self) -> Iterator[Chunk]:
        listing = self._listing()
        for file in listing.files:
            path = listing.full(file)
            with _npz_members(path, file) as members:
                rows = next(iter(members.values()))[1].rows
                yield from _array_chunks(members, 0, rows, file.path, path)

    def _listing(self) -> Listing:
        return listed(self.path, (".npz",))


def npy(path: str | os.PathLike[str], *, column: str = "x") -> NpySource:
    """Rows of .npy files (a file, a folder or a pattern), as the column `column`; the first dimension is rows."""
    return NpySource(checked_path(path, "npy"), column)


def npz(path: str | os.PathLike[str]) -> NpzSource:
    """Rows of .npz files (a file, a folder or a pattern): each array is a column, its first dimension the rows."""
    return NpzSource(checked_path(path, "npz"))


@lru_cache(maxsize=4)
def _npy_survey(listing: Listing, column: str) -> tuple[Schema, tuple[Header, ...], Listing]:
    headers: list[Header] = []
    sample: list[Any] = []
    for file in listing.files:
        path = listing.full(file)
        if not file.size_bytes:
            raise empty(path, "an empty file", expected="a .npy file")
        with opened(path, file) as stream:
            header = _header(stream, file.size_bytes, path, column)
            _check_alike(listing, file, {column: header}, {column: (headers or [header])[0]})
            headers.append(header)
            chunks = _array_chunks({column: (stream, header)}, 0, header.rows, file.path, path)
            _take_sample(sample, chunks)
    return _inferred(sample, listing), tuple(headers), listing


@lru_cache(maxsize=4)
def _npz_survey(listing: Listing) -> tuple[Schema, int, Listing]:
    first: dict[str, Header] = {}
    sample: list[Any] = []
    rows = 0
    for file in listing.files:
        path = listing.full(file)
        with _npz_members(path, file) as members:
            headers = {name: header for name, (_, header) in members.items()}
            first = first or headers
            _check_alike(listing, file, headers, first)
            count = next(iter(headers.values())).rows
            rows += count
            _take_sample(sample, _array_chunks(members, 0, count, file.path, path))
    return _inferred(sample, listing), rows, listing


def _take_sample(sample: list[Any], chunks: Iterator[Columns]) -> None:
    """Rows from the front of every file; dtypes and shapes are the same in all of it."""
    taken_bytes = 0
    for chunk in chunks:
        sample.append(chunk.values)
        taken_bytes += sum(getattr(values, "nbytes", 64 * chunk.rows) for values in chunk.values.values())
        if taken_bytes >= _INFERRED_BYTES or len(sample) > 64:
            return


def _inferred(sample: list[Any], listing: Listing) -> Schema:
    path = listing.full(listing.files[0])
    if not sample:
        raise empty(path, "an array without rows", expected="at least one row")
    joined = {
        name: np.concatenate([piece[name] for piece in sample])
        if isinstance(sample[0][name], np.ndarray)
        else [value for piece in sample for value in piece[name]]
        for name in sample[0]
    }
    with located(path=path):
        return infer_rows(joined)


def _check_alike(
    listing: Listing, file: SourceFile, headers: Mapping[str, Header], first: Mapping[str, Header]
) -> None:
    for name in dict.fromkeys([*first, *headers]):
        wanted, there = first.get(name), headers.get(name)
        if wanted is None or there is None or wanted[0] != there[0] or wanted[2] != there[2]:
            raise inconsistent(listing, file, name, expected=_told(wanted), found=_told(there))


def _told(header: Header | None) -> str:
    return "no such array" if header is None else f"{header.dtype.name} rows of shape {header.row_shape}"


def _header(stream: Any, size_bytes: int, path: str, column: str) -> Header:
    """The header of an array, believed only as far as there are bytes."""
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_columns, dtype = read.get(version, np.lib.format.read_array_header_2_0)(stream)
    except (ValueError, EOFError, TypeError, SyntaxError, RecursionError, OSError):
        raise damaged(path, "NumPy file", "no header of an array") from None
    if dtype.hasobject or dtype.kind not in "biufcSU" or (dtype.names is not None):
        raise _strange(path, column, f"an array of {shown(str(dtype))}", "np.save an array of numbers or texts")
    if not shape or (by_columns and len(shape) > 1):
        found = "an array without dimensions" if not shape else "an array stored column by column"
        do = "np.save(path, np.ascontiguousarray(array))" if shape else "np.save(path, array[None])"
        raise _strange(path, column, found, do)
    header = Header(dtype, int(shape[0]), tuple(int(size) for size in shape[1:]), _told_offset(stream, version, dtype))
    return header


def _strange(path: str, column: str, found: str, do: str) -> RekordError:
    return error(
        "X525",
        location=Location(path=path, feature=column),
        expected="an array of numbers, bools or texts, with the rows first",
        found=found,
        do=do,
    )
