"""HDF5 files: the datasets of a group as columns, with rows as their first dimension."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import check_keywords
from rekord.errors import RekordError, add_location, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.infer import infer_rows
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    ColumnChunk,
    FileListing,
    SourceFacts,
    SourceFile,
    SourcePart,
    SurveyCache,
    UnusedInput,
    corrupt_file_error,
    empty_file_error,
    source_path,
)
from rekord.sources.libraries import import_reader
from rekord.sources.table_files import TableFiles, kept_columns, open_library_file
from rekord.sources.tables import BATCH_BYTES, BATCH_ROWS, inconsistent_file_error, missing_column_error
from rekord.sources.value_tables import check_head, several_tables_error, table_name
from rekord.storage import raw_files
from rekord.storage.raw_files import split_member_path

EXTENSIONS = (".h5", ".hdf5", ".hdf", ".he5")
MAGIC = b"\x89HDF\r\n\x1a\n"

MAX_CHUNK_BYTES = 256 << 20
_MAX_STORED_RATIO = 5_000  # of a dataset and its bytes in the file: deflate cannot do better than 1,032
_FREE_BYTES = 64 << 20
_CACHE_BYTES = 32 << 20
_SAMPLE_BYTES = 64 << 20
_MAX_LEVELS = 32
_MAX_OBJECTS = 100_000
_MAX_VIRTUAL_LEVELS = 8


class _Dataset(NamedTuple):
    """A dataset that becomes a column, or one of its fields."""

    name: str  # of the column
    place: str  # in the file
    field: str | None
    rows: int
    row_shape: tuple[int, ...]
    dtype: str
    row_bytes: int
    chunk_rows: int


class _Hdf5Survey(NamedTuple):
    listing: FileListing
    files: tuple[tuple[_Dataset, ...], ...]
    schema: Schema
    rows: int
    unused: tuple[UnusedInput, ...]


_surveys: SurveyCache[_Hdf5Survey] = SurveyCache()


@dataclass(frozen=True, slots=True)
class Hdf5Source(TableFiles):
    """Rows of the datasets of a group."""

    group: str | None = None

    kind = "hdf5"
    extensions = EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        return {"columns": None if self.columns is None else list(self.columns), "group": self.group}

    def facts(self) -> SourceFacts:
        seen = self._survey()
        return SourceFacts(
            layout="table",
            schema=seen.schema,
            rows=seen.rows,
            source_bytes=seen.listing.source_bytes,
            files=seen.listing.files,
            unused=seen.unused,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        seen = self._survey()
        parts = []
        for file, datasets in zip(seen.listing.files, seen.files, strict=True):
            row_bytes = sum(one.row_bytes for one in datasets)
            step = _round_up(max(1, part_bytes // max(row_bytes, 1)), datasets)
            for begin in range(0, datasets[0].rows, step):
                end = min(begin + step, datasets[0].rows)
                content = seen.listing.root, file, datasets, begin, end
                parts.append(SourcePart(content, (end - begin) * row_bytes))
        return parts

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        root, file, datasets, begin, end = part.content
        path = FileListing(root, ()).full(file)
        with _open_file(path, file) as opened:
            yield from _read_chunks(opened, datasets, begin, end, file.path)

    def _survey(self) -> _Hdf5Survey:
        listing = self._listing()
        return _surveys.get((self, listing), lambda: self._inspect(listing))

    def _inspect(self, listing: FileListing) -> _Hdf5Survey:
        files: list[tuple[_Dataset, ...]] = []
        unused: list[UnusedInput] = []
        sample: list[Mapping[str, Any]] = []
        for file in listing.files:
            path = listing.full(file)
            with _open_file(path, file) as opened:
                datasets = _select(_find_datasets(opened, self.group, path, unused), self.columns, self.group, path)
                for one, first in zip(datasets, files[0] if files else datasets, strict=False):
                    if (one.name, one.dtype, one.row_shape) != (first.name, first.dtype, first.row_shape):
                        raise inconsistent_file_error(
                            listing, file, one.name, expected=_describe(first), found=_describe(one)
                        )
                if files and len(datasets) != len(files[0]):
                    name = (datasets if len(datasets) > len(files[0]) else files[0])[-1].name
                    counts = [f"{len(found):,} columns" for found in (files[0], datasets)]
                    raise inconsistent_file_error(listing, file, name, expected=counts[0], found=counts[1])
                files.append(datasets)
                taken = 0
                for chunk in _read_chunks(opened, datasets, 0, datasets[0].rows, file.path):
                    sample.append(chunk.values)
                    taken += chunk.rows * sum(one.row_bytes for one in datasets)
                    if taken >= _SAMPLE_BYTES // len(listing.files):
                        break
        first_path = listing.full(listing.files[0])
        if not sample:
            raise empty_file_error(first_path, "datasets without rows", expected="at least one row")
        with add_location(path=first_path if len(files) == 1 else None):
            schema = infer_rows({name: _join([piece[name] for piece in sample]) for name in sample[0]})
        schema = Schema(dict(schema.items()))
        return _Hdf5Survey(listing, tuple(files), schema, sum(one[0].rows for one in files), tuple(unused))


@check_keywords
def hdf5(
    path: str | os.PathLike[str], *, group: str | None = None, columns: Sequence[str] | None = None
) -> Hdf5Source:
    """Rows of HDF5 files: a file, a folder or a pattern. Each dataset is a column, its first dimension the rows.

    `group` is the path of a group in the file, such as "train"; by default all datasets of the file. Datasets of
    groups below it are named with `/`, and so are the fields of a compound type. `columns` selects columns; None
    keeps all. Datasets of further dimensions have values of that shape. Links to other files are refused.
    """
    return Hdf5Source(source_path(path, "hdf5"), kept_columns(columns), table_name("group", group))


def _import_h5py() -> Any:
    return import_reader("h5py", "tables", "an HDF5 file")


@contextmanager
def _open_file(path: str, file: SourceFile) -> Iterator[Any]:
    h5py = _import_h5py()
    if file.size_bytes:
        check_head(path, file, "HDF5 file", MAGIC)
    describe = lambda text: f"data that cannot be read: {text[:80]}"  # noqa: E731
    with open_library_file(path, file, "HDF5 file", (RuntimeError, KeyError, TypeError), describe):
        if split_member_path(path) is None:
            with h5py.File(raw_files.local_file(path), "r", rdcc_nbytes=_CACHE_BYTES, locking=False) as opened:
                yield opened
        else:
            with raw_files.open_binary(path) as raw, h5py.File(raw, "r", rdcc_nbytes=_CACHE_BYTES) as opened:
                yield opened


def _find_datasets(opened: Any, group: str | None, path: str, unused: list[UnusedInput]) -> list[_Dataset]:
    h5py = _import_h5py()
    top: Any = opened
    for name in [part for part in (group or "").split("/") if part]:
        if not isinstance(top, h5py.Group) or name not in top:
            raise missing_column_error(name, list(top) if isinstance(top, h5py.Group) else [], path)
        _check_link(top, name, path)
        top = top[name]
        _refuse_pandas(top, path)
    found: list[_Dataset] = []
    if isinstance(top, h5py.Dataset):
        _add_dataset(top, top.name.rpartition("/")[2], path, found, unused)
        return found
    seen: set[Any] = set()
    waiting = [(top, "", 0)]
    count = 0
    while waiting:
        folder, above, level = waiting.pop()
        address = h5py.h5o.get_info(folder.id).addr
        if address in seen:
            continue
        seen.add(address)
        below = []
        for name in folder:
            count += 1
            if count > _MAX_OBJECTS or level > _MAX_LEVELS:
                raise corrupt_file_error(path, "HDF5 file", f"more than {_MAX_OBJECTS:,} objects, or endless groups")
            if not _check_link(folder, name, path):
                unused.append(UnusedInput("column", f"{above}{name}", "a link to another dataset of the file"))
                continue
            one = folder[name]
            if isinstance(one, h5py.Group):
                _refuse_pandas(one, path)
                below.append((one, f"{above}{name}/", level + 1))
            elif isinstance(one, h5py.Dataset):
                _add_dataset(one, f"{above}{name}", path, found, unused)
        waiting += reversed(below)
    return found


def _refuse_pandas(group: Any, path: str) -> None:
    """Raise X525 for a DataFrame: its columns are stored in blocks by type, with their names and times elsewhere."""
    if "pandas_type" not in group.attrs:
        return
    name = group.name.strip("/")
    raise error(
        "X525",
        f"`{name[:60]}` is a DataFrame, as pandas stores it",
        location=Location(path=path, feature=name[:60]),
        expected="datasets with rows as the first dimension",
        found="a group with the attribute pandas_type",
        do=f"rk.write(pandas.read_hdf({path!r}, {name[:60]!r}), out)",
    )


def _check_link(group: Any, name: str, path: str) -> bool:
    """Whether a name is an object of its own. A link to another file is refused: it could be any file."""
    h5py = _import_h5py()
    link = group.get(name, getlink=True)
    if isinstance(link, h5py.ExternalLink):
        raise _outside_error(path, f"`{name[:60]}` is a link to {link.filename[:60]}")
    return isinstance(link, h5py.HardLink)


def _add_dataset(one: Any, name: str, path: str, found: list[_Dataset], unused: list[UnusedInput]) -> None:
    _check_storage(one, name, path)
    if one.shape is None or not one.shape:
        unused.append(UnusedInput("column", name, "a single value, not a row per value"))
        return
    dtype = one.dtype
    row_shape = tuple(int(size) for size in one.shape[1:])
    # Rows without bytes cost time, and fill values and virtual datasets have no bytes of their own.
    declared = one.shape[0] * max(1, math.prod(row_shape) * dtype.itemsize)
    stored = one.file.id.get_filesize() if one.is_virtual else one.id.get_storage_size()
    if declared > _FREE_BYTES + _MAX_STORED_RATIO * stored:
        raise corrupt_file_error(
            path, "HDF5 file", f"`{name[:60]}` declares {declared:,} bytes and stores {stored:,}"
        )
    chunk_bytes = math.prod(one.chunks or (0,)) * dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise corrupt_file_error(path, "HDF5 file", f"`{name[:60]}` has chunks of {chunk_bytes:,} bytes")
    fields = [None] if dtype.names is None else list(dtype.names)
    for field in fields:
        kind = dtype if field is None else dtype[field]
        shape, kind = (*row_shape, *kind.shape), kind.base
        column = name if field is None else f"{name}/{field}"
        _check_type(kind, shape, column, path)
        row_bytes = max(1, math.prod(shape) * kind.itemsize)
        chunk_rows = one.chunks[0] if one.chunks else 1
        found.append(_Dataset(column, one.name, field, int(one.shape[0]), shape, str(kind), row_bytes, chunk_rows))


def _check_storage(one: Any, name: str, path: str, level: int = 0) -> None:
    """Refuse data in other files, also where a virtual dataset leads to it by way of this file."""
    if one.external:
        raise _outside_error(path, f"`{name[:60]}` is stored in {one.external[0][0][:60]}")
    for source in one.virtual_sources() if one.is_virtual else ():
        if source.file_name != "." or "%" in source.dset_name or level > _MAX_VIRTUAL_LEVELS:
            raise _outside_error(path, f"`{name[:60]}` is made of datasets of other files")
        place: Any = one.file
        for part in [part for part in source.dset_name.split("/") if part]:
            if part not in place or not _check_link(place, part, path):
                raise _outside_error(path, f"`{name[:60]}` is made of what a link leads to")
            place = place[part]
        if isinstance(place, _import_h5py().Dataset):
            _check_storage(place, name, path, level + 1)


def _check_type(dtype: Any, shape: tuple[int, ...], name: str, path: str) -> None:
    h5py = _import_h5py()
    is_text = h5py.check_string_dtype(dtype) is not None
    varying = h5py.check_vlen_dtype(dtype)
    is_list = varying is not None and not shape and np.dtype(varying).kind in "biuf"
    if is_text or is_list or (varying is None and dtype.kind in "biufcS" and dtype.names is None):
        return
    raise error(
        "X525",
        f"`{name[:60]}` has unsupported type {str(dtype)[:60]}",
        location=Location(path=path, feature=name[:60]),
        expected="numbers, bools, strings, or lists of numbers",
        found=str(dtype)[:60],
        do="select the other datasets: columns=[…]",
    )


def _select(
    found: list[_Dataset], keep: tuple[str, ...] | None, group: str | None, path: str
) -> tuple[_Dataset, ...]:
    if keep is not None:
        names = {one.name: one for one in found}
        for name in keep:
            if name not in names:
                raise missing_column_error(name, list(names), path)
        found = [names[name] for name in keep]
    if not found:
        raise empty_file_error(path, "no datasets with rows", expected="datasets with rows as the first dimension")
    lengths = {one.rows for one in found}
    if len(lengths) == 1:
        return tuple(found)
    tops: dict[str, set[int]] = {}
    for one in found:
        tops.setdefault(one.name.partition("/")[0] if "/" in one.name else "", set()).add(one.rows)
    if "" not in tops and len(tops) > 1 and all(len(rows) == 1 for rows in tops.values()):
        above = f"{group.strip('/')}/" if group else ""
        raise several_tables_error(path, "group", "group", [above + name for name in tops])
    first = found[0]
    other = next(one for one in found if one.rows != first.rows)
    same = [one.name for one in found if one.rows == first.rows]
    raise error(
        "X523",
        "datasets of the file have different numbers of rows",
        location=Location(path=path, feature=other.name[:60]),
        expected=f"{first.rows:,} rows, as `{first.name[:60]}` has",
        found=f"{other.rows:,} rows",
        do=f"select datasets of the same length: columns={same[:4]!r}",
    )


def _round_up(rows: int, datasets: Sequence[_Dataset]) -> int:
    """Rows that end where chunks end: a chunk is decompressed as a whole."""
    chunk = max(one.chunk_rows for one in datasets)
    return -(-rows // chunk) * chunk


def _read_chunks(opened: Any, datasets: Sequence[_Dataset], begin: int, end: int, path: str) -> Iterator[ColumnChunk]:
    row_bytes = sum(one.row_bytes for one in datasets)
    batch = max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes))
    large = any(one.chunk_rows * one.row_bytes > _CACHE_BYTES for one in datasets)
    step = _round_up(batch, datasets) if large else batch
    for first in range(begin, end, step):
        last = min(first + step, end)
        values = {one.name: _read_values(opened[one.place], one, first, last) for one in datasets}
        for low in range(0, last - first, batch):
            piece = {name: column[low : low + batch] for name, column in values.items()}
            yield ColumnChunk(path, first + low, piece, min(batch, last - first - low))


def _read_values(dataset: Any, one: _Dataset, begin: int, end: int) -> Any:
    h5py = _import_h5py()
    values = dataset[begin:end] if one.field is None else dataset.fields(one.field)[begin:end]
    kind = dataset.dtype if one.field is None else dataset.dtype[one.field].base
    names = h5py.check_enum_dtype(kind)
    if names is not None and kind != np.bool_:
        texts = {number: name for name, number in names.items()}
        return np.vectorize(lambda number: texts.get(number, str(number)), otypes=[object])(values).tolist()
    if h5py.check_string_dtype(kind) is not None:
        if values.ndim == 1:
            return [_decode(text) for text in values.tolist()]
        return [[_decode(text) for text in row.ravel().tolist()] for row in values]
    if values.dtype.kind == "O":
        return values.tolist()
    return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))


def _decode(text: Any) -> Any:
    """A string of h5py, which is bytes; what is not UTF-8 passes, and is reported by its row."""
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def _join(pieces: Sequence[Any]) -> Any:
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    return [value for piece in pieces for value in piece]


def _describe(one: _Dataset) -> str:
    return f"`{one.name[:40]}` of {one.dtype[:20]} with rows of shape {one.row_shape}"


def _outside_error(path: str, found: str) -> RekordError:
    return error(
        "X543",
        location=Location(path=path),
        expected="all data in the file itself",
        found=found[:120],
        do="copy the data into one file: h5repack, or h5py.File(…).create_dataset(name, data=values)",
    )
