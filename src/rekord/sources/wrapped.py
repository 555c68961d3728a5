"""Sources made from other ones: the first rows, rows kept on disk to be read again, and paths as files."""

from __future__ import annotations

import os
import pickle
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from rekord.codec.columns import Strings
from rekord.errors import RekordError, error
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    Source,
    SourceFacts,
    SourceFile,
    SourcePart,
    SourceRow,
    full_path,
    is_partitioned,
)
from rekord.sources.image_folder import ListingSource, fingerprint, stat_file
from rekord.storage import raw_files
from rekord.storage.local import write_error

_BUFFER_BYTES = 1 << 20
_INNER_PART_BYTES = 1 << 20  # of the rows: every range of rows reads its part of the source from the beginning


class WrappedSource:
    """A source made from another one. Subclasses read the rows."""

    source: Source

    @property
    def kind(self) -> str:
        return self.source.kind

    @property
    def root(self) -> str:
        root: str = getattr(self.source, "root", "")
        return root

    def options(self) -> Mapping[str, Any]:
        return self.source.options()

    def facts(self) -> SourceFacts:
        return self.source.facts()


@dataclass(frozen=True)
class LimitedSource(WrappedSource):
    """At most `limit` rows, read from the beginning, including bad ones."""

    source: Source
    limit: int

    def options(self) -> Mapping[str, Any]:
        return {**self.source.options(), "limit": self.limit}

    def facts(self) -> SourceFacts:
        facts = self.source.facts()
        return replace(facts, rows=None if facts.rows is None else min(facts.rows, self.limit))

    def rows(self) -> Iterator[Chunk]:
        left = self.limit
        for chunk in self._all():
            if isinstance(chunk, SourceRow):
                left -= 1
                yield chunk
            else:
                kept = min(left, chunk.rows)
                left -= kept
                yield chunk.slice(0, kept)
            # Before the next row is read: it may take long, or fail.
            if not left:
                return

    def _all(self) -> Iterator[Chunk]:
        source: Any = self.source
        if is_partitioned(source):
            return chain.from_iterable(source.read(part) for part in source.parts())
        chunks: Iterator[Chunk] = source.rows()
        return chunks


class SpooledSource(WrappedSource):
    """A sequential source whose rows are kept on disk while they are read for the first time.

    The temporary file has no name: it is gone when the process ends, however it ends.
    """

    def __init__(self, source: Source, folder: str | None) -> None:
        self.source = source
        self._folder = folder
        self._file: Any = None
        self._chunks = 0
        self._complete = False

    def rows(self) -> Iterator[Chunk]:
        """All rows, in order: from the source the first time, then from the file."""
        return self._replay() if self._complete else self._spool()

    def _spool(self) -> Iterator[Chunk]:
        source: Any = self.source
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=_BUFFER_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        for chunk in source.rows():
            self._write(chunk)
            yield chunk
        self._file.flush()
        self._complete = True

    def _write(self, chunk: Chunk) -> None:
        try:
            pickle.dump(chunk, self._file, protocol=5)
        except OSError as failure:
            raise write_error(self._folder or tempfile.gettempdir(), failure) from failure
        except Exception as failure:
            raise error(
                "U616",
                "rows can be read only once, and cannot be kept until their classes are known",
                expected="rows that can be pickled, or an iterable that can be read twice",
                found=f"{type(failure).__name__}: {failure}"[:60],
                do="pass list(rows), or declare the classes: rk.Label(names)",
            ) from failure
        self._chunks += 1

    def _replay(self) -> Iterator[Chunk]:
        at = 0
        for _ in range(self._chunks):
            self._file.seek(at)  # another iterator may have moved
            chunk: Chunk = pickle.load(self._file)  # our own file, which no other process can open
            at = self._file.tell()
            yield chunk


def add_path_columns(source: Source, columns: Sequence[str]) -> Source:
    """The source, with the text of `columns` as the paths of files."""
    kind = PartitionedPathColumns if is_partitioned(source) else SequentialPathColumns
    return kind(source, tuple(columns))


@dataclass(frozen=True)
class _PathColumns(WrappedSource):
    source: Source
    columns: tuple[str, ...]

    def options(self) -> Mapping[str, Any]:
        return {**self.source.options(), "paths": list(self.columns)}

    def _convert(self, chunk: Chunk) -> Chunk:
        # Relative to the file that has the path; to the working directory if there is no file.
        folder = os.path.dirname(full_path(self.source, chunk.path))
        if isinstance(chunk, SourceRow):
            if isinstance(chunk.values, RekordError):
                return chunk
            found = {name: to_path(chunk.values[name], folder) for name in self.columns if name in chunk.values}
            return chunk._replace(values={**chunk.values, **found})
        columns = _split_columns(chunk.values)
        for name in self.columns:
            if name in columns:
                columns[name] = [to_path(value, folder) for value in _iter_values(columns[name])]
        return replace(chunk, values=columns)


class SequentialPathColumns(_PathColumns):
    def rows(self) -> Iterator[Chunk]:
        source: Any = self.source
        return map(self._convert, source.rows())


class _PathSurvey(NamedTuple):
    facts: SourceFacts
    parts: Sequence[SourcePart]
    sizes: Sequence[Any]  # for each part, the bytes of the files of each row


class PartitionedPathColumns(_PathColumns, ListingSource):
    """A part is a range of rows of a part of the source: the files are much larger than the rows that name them."""

    def facts(self) -> SourceFacts:
        survey: _PathSurvey = self._refresh()
        return survey.facts

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        survey: _PathSurvey = self._last_listing()
        made = []
        for part, sizes in zip(survey.parts, survey.sizes, strict=True):
            total = np.cumsum(sizes)
            begin = 0
            while begin < len(sizes):
                before = int(total[begin - 1]) if begin else 0
                end = max(begin + 1, int(np.searchsorted(total, before + part_bytes, side="right")))
                cost = int(total[end - 1]) - before
                made.append(SourcePart((part, begin, end), cost))
                begin = end
        return made

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        inner, begin, end = part.content
        source: Any = self.source
        return map(self._convert, _slice_chunks(source.read(inner), begin, end))

    def _list(self) -> _PathSurvey:
        """Look up every file: their sizes and times are part of the plan."""
        source: Any = self.source
        facts = source.facts()
        parts = source.parts(_INNER_PART_BYTES)
        sizes = []
        files: dict[str, SourceFile] = {}
        for part in parts:
            own: list[int] = []
            for chunk in source.read(part):
                own += self._stat_chunk(self._convert(chunk), files)
            sizes.append(np.array(own, np.int64))
        size_bytes = sum(file.size_bytes for file in files.values())
        listed = (*facts.files, *fingerprint(files.values()))
        facts = replace(facts, files=listed, source_bytes=facts.source_bytes + size_bytes)
        return _PathSurvey(facts, parts, sizes)

    def _stat_chunk(self, chunk: Chunk, files: dict[str, SourceFile]) -> list[int]:
        rows = 1 if isinstance(chunk, SourceRow) else chunk.rows
        sizes = [0] * rows
        if isinstance(chunk.values, RekordError):
            return sizes
        for name in self.columns:
            values = chunk.values.get(name)
            for i, path in enumerate([values] if isinstance(chunk, SourceRow) else values or ()):
                if isinstance(path, PurePath):
                    sizes[i] += self._stat(path, files)
        return sizes

    def _stat(self, path: PurePath, files: dict[str, SourceFile]) -> int:
        name = str(path).removeprefix(os.path.join(self.root, ""))  # so that a moved source is the same source
        if name not in files:
            facts = stat_file(str(path))
            size_bytes, mtime_ns = (0, 0) if facts is None else (facts.st_size, facts.st_mtime_ns)
            files[name] = SourceFile(name, size_bytes, mtime_ns)
        return files[name].size_bytes


def to_path(value: Any, folder: str) -> Any:
    """The file that a text names; None for an empty text, and other values unchanged."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    if "\\" in value and "/" not in value:
        value = value.replace("\\", "/")
    return raw_files.to_path(folder, value)


def _split_columns(values: Any) -> dict[str, Any]:
    import pyarrow as pa

    if isinstance(values, pa.RecordBatch):
        return dict(zip(values.schema.names, values.columns, strict=True))
    return dict(values)


def _iter_values(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column.to_pylist()
    return column.tolist() if isinstance(column, Strings) else column


def _slice_chunks(chunks: Iterator[Chunk], begin: int, end: int) -> Iterator[Chunk]:
    """Rows `begin` to `end` of all chunks."""
    at = 0
    for chunk in chunks:
        rows = 1 if isinstance(chunk, SourceRow) else chunk.rows
        first, last = max(begin - at, 0), min(end - at, rows)
        if first < last:
            yield chunk if isinstance(chunk, SourceRow) else chunk.slice(first, last)
        at += rows
        if at >= end:
            return
