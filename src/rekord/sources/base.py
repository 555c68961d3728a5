"""What a source is: rows of raw data with their origin, and the files that they come from."""

from __future__ import annotations

import errno
import gzip
import os
import re
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from rekord.arguments import as_path
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import PathLike, Readable, Stat, read_error
from rekord.storage.raw_files import RAW_FILES
from rekord.storage.remote_files import PREFETCHED_FILES, RemotePath, listed_once
from rekord.storage.router import is_remote

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

PART_BYTES = 64 << 20
"""About how much of a source a task reads."""


class SourceRow(NamedTuple):
    """One row, or the error of a row that cannot be read."""

    path: str  # below the source's root, separated by "/"; "" without files
    position: int
    values: Mapping[str, Any] | RekordError
    line: int | None = None  # in a text file, from 1


def list_values(array: Any) -> list[Any]:
    """The values of an Arrow array. Times that Python's datetime cannot represent make all of them datetime64."""
    import pyarrow as pa

    kind = array.type
    while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    if not pa.types.is_timestamp(kind):
        return array.to_pylist()  # type: ignore[no-any-return]
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):  # the year 0, or nanoseconds without pandas
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    if kind != array.type:
        return split_rows(list_values(array.flatten()), array)
    valid = array.is_valid().to_pylist()
    times = array.to_numpy(zero_copy_only=False)
    return [time if there else None for time, there in zip(times, valid, strict=True)]


def split_rows(values: list[Any], lists: Any) -> list[Any]:
    """The flat values of an array of lists for each row, None for a null."""
    from pyarrow import compute

    rows: list[Any] = []
    begin = 0
    for length in compute.list_value_length(lists).to_pylist():
        rows.append(None if length is None else values[begin : begin + length])
        begin += length or 0
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class ColumnChunk:
    """Consecutive rows of one file, in columns: row `i` has the position `first + i`."""

    path: str
    first: int
    values: Any  # a pyarrow RecordBatch, or a dict of columns as `rk.Writer.write_columns` accepts
    rows: int
    first_line: int | None = None
    lines: Sequence[int] | None = None  # of each row, if rows are not one line each
    positions: Any = None  # of each row as an array, if they do not follow each other

    def position_of(self, row: int) -> int:
        """The position in the file of this chunk's row `row`."""
        return self.first + row if self.positions is None else int(self.positions[row])

    def line_of(self, row: int) -> int | None:
        """The line in a text file of this chunk's row `row`."""
        if self.lines is not None:
            return self.lines[row]
        return None if self.first_line is None else self.first_line + row

    def slice(self, begin: int, end: int) -> ColumnChunk:
        """Rows `begin` to `end` of this chunk."""
        if (begin, end) == (0, self.rows):
            return self
        is_dict = isinstance(self.values, dict)
        return replace(
            self,
            first=self.first + begin,
            values={name: column[begin:end] for name, column in self.values.items()}
            if is_dict
            else self.values.slice(begin, end - begin),
            rows=end - begin,
            first_line=None if self.first_line is None else self.first_line + begin,
            lines=None if self.lines is None else self.lines[begin:end],
            positions=None if self.positions is None else self.positions[begin:end],
        )

    def with_values(self, values: Any) -> ColumnChunk:
        """This chunk with other columns of the same rows."""
        return replace(self, values=values)


Chunk: TypeAlias = "SourceRow | ColumnChunk"


class SourceFile(NamedTuple):
    """A file of rows, as it was when the conversion was planned."""

    path: str  # below the root
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class SourcePart:
    """What one task reads. It is pickled, so it identifies rows and holds none."""

    content: Any  # the source's own: paths, byte ranges, row groups
    source_bytes: int  # about how much is read


class PartItem(NamedTuple):
    """The smallest piece of a part that can be read by itself: a row, or rows of one file."""

    content: Any
    files: tuple[str, ...]  # that decide its rows, besides those that decide all rows
    path: str  # of its rows
    position: int | None = None  # if it is one row; None: all rows of the path belong to items like this one


def select_items(part: SourcePart, items: Sequence[Any]) -> SourcePart:
    """The part with some of its items only, whose contents are the last element of its own."""
    return SourcePart((*part.content[:-1], tuple(items)), part.source_bytes)


def list_file_items(part: SourcePart) -> Iterator[PartItem]:
    """The items of a part that are ranges of files: each has its `file`."""
    for one in part.content[-1]:
        yield PartItem(one, (one.file.path,), one.file.path)


class UnusedInput(NamedTuple):
    """Part of the raw data that is not written, and why."""

    kind: Literal["file", "column", "annotation"]
    name: str  # a path below the root, a pattern such as `*.txt`, a column, or a type; a count is in `reason`
    reason: str


class SourceGuess(NamedTuple):
    """Something that raw data does not say, and that was decided for it."""

    column: str | None  # None: the whole source
    what: str
    do: str | None = None  # what changes it, if anything does

    def to_dict(self) -> dict[str, str | None]:
        """The guess as a JSON document."""
        return self._asdict()


class SplitFolders(NamedTuple):
    """The folders of images and of masks of one split."""

    split: str | None
    images: str
    masks: str


class DetectedSource(NamedTuple):
    """A source by its name in `rk.sources`, and its one or two paths."""

    kind: str
    path: str
    masks: str | None = None
    folders: tuple[SplitFolders, ...] = ()  # instead of `masks`, if every split has its own
    guesses: tuple[SourceGuess, ...] = ()  # what the detection is based on
    given: str | None = None  # the path that was detected: this source may be only a part of it
    labelled: bool | None = None  # whether folders are classes, if that was detected
    format: str | None = None  # of annotations that Datumaro reads
    layout: str | None = None  # what these annotations are to become


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a source knows before its rows are read."""

    layout: str  # the one that fits: "classification", "deeplab", "detection", "text" or "table"
    schema: Schema | None = None  # of the rows; None if the layout alone decides
    classes: tuple[str, ...] | None = None  # names by id, if labels are classes
    class_ids: tuple[int, ...] | None = None  # their ids in a label map, if not 0, 1, 2, …
    rows: int | None = None  # their number, if known
    source_bytes: int = 0  # of all files
    splits: tuple[str, ...] | None = None  # if folders or lists define them
    files: tuple[SourceFile, ...] = ()  # sorted by path; the fingerprint is computed from them
    unused: tuple[UnusedInput, ...] = ()  # files and columns that are not written
    guesses: tuple[SourceGuess, ...] = ()
    notes: tuple[str, ...] = ()  # what reading them found, for the summary
    extra: Mapping[str, Any] = field(default_factory=dict)  # hints for the layout


class PartitionedSource(Protocol):
    """A source of files. It is pickled to other processes: small, and without open handles."""

    @property
    def kind(self) -> str:
        """Its name in `rk.sources`."""

    @property
    def root(self) -> str:
        """The folder that the paths of rows are relative to; "" if they are complete."""

    def options(self) -> Mapping[str, Any]:
        """The options as JSON; without the root, so that a moved source is the same source."""

    def facts(self) -> SourceFacts:
        """Inspect the files, without reading all rows. Raises if there is nothing to read."""

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, in order: the files by path, and each file from its beginning."""

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        """The rows of a part, in order. A row that cannot be read is a SourceRow with its error, not an exception."""


class ItemizedSource(PartitionedSource, Protocol):
    """A source whose rows depend on files of their own, so that those of unchanged files need not be read again."""

    def part_items(self, part: SourcePart) -> Iterable[PartItem]:
        """What a part consists of, in order."""

    def shared_context(self) -> Any:
        """What was found out from all files together, and decides the rows of each."""


class SequentialSource(Protocol):
    """A source that is read once, from its beginning."""

    @property
    def kind(self) -> str: ...

    def options(self) -> Mapping[str, Any]: ...

    def facts(self) -> SourceFacts: ...

    def rows(self) -> Iterator[Chunk]:
        """All rows, in order, from the first. Positions count from 0; the path is "" unless files are known."""


Source: TypeAlias = "PartitionedSource | SequentialSource"


class IndexedRows(Protocol):
    """Rows by number, as in a torch Dataset."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


ArrowRows: TypeAlias = "pa.Table | pa.RecordBatch"
RowsLike: TypeAlias = "Source | PathLike | Iterable[object] | Mapping[str, npt.ArrayLike] | ArrowRows | IndexedRows"
"""What can become a source: see `rk.write`. DataFrames, tf.data and Hugging Face datasets are iterables."""


def is_partitioned(source: Source) -> bool:
    """Whether tasks can read parts of the source."""
    return hasattr(source, "parts")


def full_path(source: Source, path: str) -> str:
    """The path of a row's file, as a user finds it."""
    root = getattr(source, "root", "")
    return os.path.join(root, *path.split("/")) if root and path else path


def read_part(source: PartitionedSource, part: SourcePart) -> Iterator[Chunk]:
    """The rows of a part, in order. Remote files that rows refer to are fetched ahead."""
    chunks = source.read(part)
    return _prefetch(chunks) if is_remote(getattr(source, "root", "")) else chunks


def _prefetch(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    waiting: deque[tuple[Chunk, int]] = deque()
    count = 0
    with ThreadPoolExecutor(PREFETCHED_FILES, thread_name_prefix="rekord-fetch") as threads:
        try:
            for chunk in chunks:
                paths = _find_remote_paths(chunk)
                for path in paths[:PREFETCHED_FILES]:
                    path.prefetch(threads)
                waiting.append((chunk, len(paths)))
                count += len(paths)
                while waiting and count > PREFETCHED_FILES:
                    first, files = waiting.popleft()
                    yield first
                    count -= files
            while waiting:
                yield waiting.popleft()[0]
        finally:
            threads.shutdown(wait=False, cancel_futures=True)


def _find_remote_paths(chunk: Chunk) -> list[RemotePath]:
    values = chunk.values
    if isinstance(chunk, ColumnChunk):
        columns = values.values() if isinstance(values, dict) else ()
        return [one for column in columns if isinstance(column, list) for one in column if type(one) is RemotePath]
    return [one for one in values.values() if type(one) is RemotePath] if isinstance(values, Mapping) else []


READ_BYTES = 4 << 20
"""The size of one read from a file."""

_GZIP_MAGIC = b"\x1f\x8b"
_GLOB_CHARACTERS = re.compile(r"[*?[]")
_HIDDEN_PREFIXES = (".", "_")
_MAX_LEVELS = 64


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files of a path, sorted by the bytes of their paths below `root`."""

    root: str
    files: tuple[SourceFile, ...]

    @property
    def source_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def full(self, file: SourceFile) -> str:
        """The path of a file, as a user finds it."""
        return os.path.join(self.root, *file.path.split("/"))


def list_files(path: str, extensions: Sequence[str]) -> FileListing:
    """The files of `path`: a file whatever its name, or those of a folder or pattern with one of the extensions.

    Hidden names and links to folders are skipped: nothing is read twice. A pattern may contain `*`, `?`, `[…]`, and
    `**` for any number of folders; a path that exists is not a pattern.
    """
    with listed_once():
        return _list_files(path, extensions)


def _list_files(path: str, extensions: Sequence[str]) -> FileListing:
    stat = _stat_or_none(path)
    if stat is not None and stat.kind != "folder":
        root, name = os.path.split(path)
        return FileListing(root, (_to_source_file(name, path, stat),))
    if stat is not None:
        root, pattern = path, None
    elif _GLOB_CHARACTERS.search(path):
        root, pattern = _split_pattern(path)
    else:
        RAW_FILES.stat(path)  # raises X501
        raise AssertionError("it was missing a moment ago")
    names = list(_iter_names(root or ".", ""))
    kept = [name for name in names if _is_match(name, pattern) and _has_extension(name, extensions, pattern)]
    if not kept:
        raise _no_files_error(path, extensions, len(names), pattern is not None)
    kept.sort(key=os.fsencode)
    full = {name: os.path.join(root, *name.split("/")) for name in kept}
    return FileListing(root, tuple(_to_source_file(name, full[name], RAW_FILES.stat(full[name])) for name in kept))


def source_path(path: str | os.PathLike[str], kind: str) -> str:
    """The path argument of a source."""
    expected = "a path: a file, a folder or a pattern"
    return as_path("path", path, expected=expected, do=f'rk.sources.{kind}("data")')


def is_gzip_name(path: str, extensions: Sequence[str]) -> bool:
    """Whether any file of `path` is named as if compressed; False for a missing path."""
    if _stat_or_none(path) is None and not _GLOB_CHARACTERS.search(path):
        return path.lower().endswith(".gz")
    return any(file.path.lower().endswith(".gz") for file in list_files(path, extensions).files)


class ByteStream(Protocol):
    """The bytes of a file, from where reading started."""

    def read(self, size_bytes: int, /) -> bytes:
        """Up to `size_bytes` bytes; none at the end."""

    def rewind(self) -> None:
        """Return to where reading started."""


class SizeCheckedFile:
    """A file open for reading that must be as long as when the source was inspected."""

    def __init__(self, path: str, file: SourceFile, begin: int = 0, end: int | None = None) -> None:
        self.path = path
        self._file: Readable = RAW_FILES.open_read(path)
        self._size_bytes = file.size_bytes
        self._begin = self._at = begin
        self._end = file.size_bytes if end is None else end
        if self._file.size_bytes != file.size_bytes:
            self._file.close()
            raise changed_file_error(path, file.size_bytes, RAW_FILES.stat(path).size_bytes)
        version = getattr(self._file, "version", None)  # of remote files
        if version is not None and version != file.mtime_ns:
            self._file.close()
            raise changed_file_error(path, file.size_bytes, None)
        if begin:
            self._file.seek(begin)

    def read(self, size_bytes: int, /) -> bytes:
        wanted = min(size_bytes, self._end - self._at)
        buffer = bytearray(max(wanted, 0))
        done = 0
        while done < wanted:
            got = self._file.readinto(memoryview(buffer)[done:])
            if not got:
                raise changed_file_error(self.path, self._size_bytes, self._at + done)
            done += got
        self._at += done
        return bytes(buffer)

    def rewind(self) -> None:
        self._file.seek(self._begin)
        self._at = self._begin

    def readinto(self, buffer: memoryview, /) -> int:
        """The method of a raw file in `io`, so that decompressors can read from this."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> SizeCheckedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class GzipStream:
    """The bytes inside a gzip file."""

    def __init__(self, path: str, compressed: Any) -> None:
        self.path = path
        self._compressed = compressed
        self._stream = gzip.GzipFile(fileobj=compressed, mode="rb")

    def rewind(self) -> None:
        self._compressed.rewind()
        self._stream = gzip.GzipFile(fileobj=self._compressed, mode="rb")

    def read(self, size_bytes: int, /) -> bytes:
        try:
            return bytes(self._stream.read(size_bytes))
        except (EOFError, zlib.error, gzip.BadGzipFile) as failure:
            raise corrupt_file_error(
                self.path,
                "gzip file",
                "truncated compressed data" if isinstance(failure, EOFError) else "invalid compressed data",
            ) from None


@contextmanager
def open_source_file(
    path: str,
    file: SourceFile,
    begin: int = 0,
    end: int | None = None,
    *,
    gzipped: bool = False,
    opened: SizeCheckedFile | None = None,
) -> Iterator[ByteStream]:
    """The bytes of a file from `begin` to `end`, decompressed if it is `gzipped` and really is a gzip file.

    `opened` is the file if it is already open; it stays open.
    """
    with SizeCheckedFile(path, file, begin, end) if opened is None else nullcontext(opened) as stream:
        if opened is not None:
            stream.rewind()
        is_gzip = gzipped and stream.read(2) == _GZIP_MAGIC
        if gzipped:
            stream.rewind()
        yield GzipStream(path, stream) if is_gzip else stream


Item = TypeVar("Item")
Survey = TypeVar("Survey")
_MAX_SINGLE_CHECKS = 4  # files that are compared by a request each
_MAX_ITEMS = 1 << 16  # in one part, however small they are


def group_by_bytes(items: Iterable[tuple[Item, int]], part_bytes: int) -> Iterator[tuple[tuple[Item, ...], int]]:
    """Items with their sizes, in order, as groups of about `part_bytes` with the size of each group."""
    group: list[Item] = []
    group_bytes = 0
    for item, size_bytes in items:
        if group and (group_bytes + size_bytes > part_bytes or len(group) >= _MAX_ITEMS):
            yield tuple(group), group_bytes
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size_bytes
    if group:
        yield tuple(group), group_bytes


class SurveyCache(Generic[Survey]):
    """The surveys of the last few sources: files that did not change are inspected once."""

    def __init__(self, most: int = 4) -> None:
        self._surveys: OrderedDict[Hashable, Survey] = OrderedDict()
        self._most = most

    def get(self, key: Hashable, survey: Callable[[], Survey]) -> Survey:
        """The survey of this key, from the cache or computed now."""
        if key in self._surveys:
            self._surveys.move_to_end(key)
        else:
            self._surveys[key] = survey()
            while len(self._surveys) > self._most:
                self._surveys.popitem(last=False)
        return self._surveys[key]


def check_unchanged(path: str, file: SourceFile) -> None:
    """Raise X526 if the size of a file has changed since the source was inspected."""
    facts = RAW_FILES.stat(path)
    if facts.size_bytes != file.size_bytes:
        raise changed_file_error(path, file.size_bytes, facts.size_bytes)
    if is_remote(path) and facts.mtime_ns != file.mtime_ns:
        raise changed_file_error(path, file.size_bytes, None)


def check_remote_files(source: Source, files: Sequence[SourceFile]) -> None:
    """Raise X526 if a remote file changed since the source was inspected: its rows may be of both versions.

    Local files are compared when they are opened; each of these would be a request, and one listing has all of them.
    """
    if not files or not is_remote(getattr(source, "root", "")):
        return
    with listed_once(again=True):
        if len(files) > _MAX_SINGLE_CHECKS:
            RAW_FILES.list(getattr(source, "root", ""))  # with all below it
        for file in files:
            check_unchanged(full_path(source, file.path), file)


def changed_file_error(path: str, expected_bytes: int, found_bytes: int | None) -> RekordError:
    """The error for a file that changed since the source was inspected; no `found_bytes`: in its content."""
    return error(
        "X526",
        location=Location(path=path),
        expected=f"{expected_bytes:,} bytes, as when the source was inspected",
        found="other content" if found_bytes is None else f"{found_bytes:,} bytes",
        do="wait until the file is complete, then run the same command again",
    )


def corrupt_file_error(path: str, kind: str, found: str, *, do: str | None = None) -> RekordError:
    """The error for a file whose bytes do not follow its format."""
    return error(
        "X524",
        f"{kind} is corrupt",
        location=Location(path=path),
        expected=f"an intact {kind}",
        found=found,
        do=do or "copy the file again from its origin, or skip it",
    )


def disk_failure_error(path: str, failure: Exception) -> RekordError | None:
    """The error if the disk failed, and None if the bytes are invalid."""
    # An offset in a corrupt file can send a library outside the file: that is EINVAL, and corruption.
    if not isinstance(failure, OSError) or failure.errno in (None, errno.EINVAL):
        return None
    return read_error(path, failure)


def empty_file_error(path: str | None, found: str, *, expected: str) -> RekordError:
    """The error for a file without a single row."""
    return error(
        "X520",
        "table has no rows" if path is None else "file has no rows",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="pass a table with rows"
        if path is None
        else "copy the file again, or skip it: select the others with a pattern",
    )


def _stat_or_none(path: str) -> Stat | None:
    try:
        return RAW_FILES.stat(path)
    except RekordError as failure:
        if failure.code == "X501":
            return None
        raise


def _to_source_file(name: str, path: str, facts: Stat) -> SourceFile:
    if facts.kind != "file":
        raise error(
            "X503",
            "pipe or device cannot be a source",
            location=Location(path=path),
            expected="a regular file, which can be read from any offset",
            found="a pipe, a socket or a device",
            do="write its content to a file first",
        )
    return SourceFile(name, facts.size_bytes, facts.mtime_ns)


def _split_pattern(pattern: str) -> tuple[str, str]:
    """The folder that a pattern starts in, and the pattern below it."""
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if _GLOB_CHARACTERS.search(part))
    root = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "")
    if root:
        RAW_FILES.stat(root)  # raises X501
    return root, "/".join(part for part in parts[fixed:] if part)


def _iter_names(folder: str, below: str, levels: int = 0) -> Iterator[str]:
    for entry in RAW_FILES.list(folder):
        if entry.name.startswith(_HIDDEN_PREFIXES):
            continue
        if entry.kind == "file":
            yield below + entry.name
        elif entry.kind == "folder" and not entry.link and levels < _MAX_LEVELS:
            yield from _iter_names(os.path.join(folder, entry.name), f"{below}{entry.name}/", levels + 1)


def _is_match(name: str, pattern: str | None) -> bool:
    return pattern is None or _is_parts_match(name.split("/"), pattern.split("/"))


def _is_parts_match(names: list[str], patterns: list[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_is_parts_match(names[i:], patterns[1:] or ["*"]) for i in range(len(names)))
    return bool(names) and fnmatchcase(names[0], patterns[0]) and _is_parts_match(names[1:], patterns[1:])


def _has_extension(name: str, extensions: Sequence[str], pattern: str | None) -> bool:
    # A pattern with an extension has already selected.
    if pattern is not None and "." in pattern.rsplit("/", 1)[-1].lstrip("."):
        return True
    return name.lower().endswith(tuple(extensions))


def _no_files_error(path: str, extensions: Sequence[str], others: int, pattern: bool) -> RekordError:
    return error(
        "X520",
        "no file matches the pattern" if pattern else f"folder has no {extensions[0]} files",
        location=Location(path=path),
        expected=f"files that end in {', '.join(extensions[:4])}",
        found=f"{others:,} other files" if others else "no files",
        do="pass the file itself: it is read whatever its extension",
    )
