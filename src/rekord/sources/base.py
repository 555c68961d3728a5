"""What a source is: rows of raw data with their origin, and the files they come from."""

from __future__ import annotations

import errno
import gzip
import os
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from rekord.arguments import as_path
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import LOCAL, PathLike, Readable, Stat, read_error

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

PART_BYTES = 64 << 20
"""About how much of a source one task reads."""


class SourceRow(NamedTuple):
    """One row, or why there is none."""

    path: str  # below the source's root, parted by "/"; "" where there are no files
    position: int
    values: Mapping[str, Any] | RekordError
    line: int | None = None  # in a text file, from 1


@dataclass(frozen=True, slots=True, eq=False)
class ColumnChunk:
    """Many rows of one file, side by side: row `i` has the position `first + i`."""

    path: str
    first: int
    values: Any  # a pyarrow RecordBatch, or a dict of columns as `rk.Writer.write_columns` takes
    rows: int
    first_line: int | None = None
    lines: Sequence[int] | None = None  # of each row, where rows are not one line each

    def line_of(self, row: int) -> int | None:
        """The line in a text file of this chunk's row `row`."""
        if self.lines is not None:
            return self.lines[row]
        return None if self.first_line is None else self.first_line + row


Chunk: TypeAlias = "SourceRow | ColumnChunk"


class SourceFile(NamedTuple):
    """A file that rows come from, as it was when the conversion was planned."""

    path: str  # below the root
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class SourcePart:
    """What one task reads. It is pickled, so it says which rows and holds none."""

    content: Any  # the source's own: paths, byte ranges, row groups
    source_bytes: int  # about how much reading it costs


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFacts:
    """What a source knows before its rows are read."""

    layout: str  # the one that fits: "classification", "deeplab", "detection", "text" or "table"
    schema: Schema | None = None  # of the rows as they come; None where the layout alone decides
    classes: tuple[str, ...] | None = None  # names by id, where labels are classes
    class_ids: tuple[int, ...] | None = None  # the ids that a label map gives them, where not 0, 1, 2, …
    rows: int | None = None  # how many, where that is known
    source_bytes: int = 0  # of all files
    splits: tuple[str, ...] | None = None  # where folders or lists say them
    files: tuple[SourceFile, ...] = ()  # sorted by path; what the fingerprint is made of
    extra: Mapping[str, Any] = field(default_factory=dict)  # hints of one source to one layout


class PartitionedSource(Protocol):
    """A source of files. It is pickled to other processes: small, and without open handles."""

    @property
    def kind(self) -> str:
        """Its name in `rk.sources`."""

    @property
    def root(self) -> str:
        """The folder that paths of rows are below; "" where they stand for themselves."""

    def options(self) -> Mapping[str, Any]:
        """What was asked for, as JSON holds it; without the root, so that a moved source is the same source."""

    def facts(self) -> SourceFacts:
        """Look at the files, without reading all rows. Raises where there is nothing to read."""

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, cut up in order: the files by path, and each file from its beginning."""

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        """The rows of a part, in order. A row that cannot be made is a SourceRow with its error, not an exception."""


class SequentialSource(Protocol):
    """A source that is read once, from its beginning."""

    @property
    def kind(self) -> str: ...

    def options(self) -> Mapping[str, Any]: ...

    def facts(self) -> SourceFacts: ...

    def rows(self) -> Iterator[Chunk]:
        """All rows, in order, from the first one. Positions count from 0, the path is "" unless files are known."""


Source: TypeAlias = "PartitionedSource | SequentialSource"


class IndexedRows(Protocol):
    """Rows by number, as a torch Dataset has them."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


ArrowRows: TypeAlias = "pa.Table | pa.RecordBatch"
RowsLike: TypeAlias = "Source | PathLike | Iterable[object] | Mapping[str, npt.ArrayLike] | ArrowRows | IndexedRows"
"""What a source is made of: see `rk.write`. DataFrames, tf.data and Hugging Face datasets are iterables."""


def is_partitioned(source: Source) -> bool:
    """Whether tasks can read parts of it."""
    return hasattr(source, "parts")


def full_path(source: Source, path: str) -> str:
    """A row's file, as a person finds it."""
    root = getattr(source, "root", "")
    return os.path.join(root, *path.split("/")) if root and path else path


READ_BYTES = 4 << 20
"""How much of a file is read at once."""

_GZIP_MAGIC = b"\x1f\x8b"
_GLOB_CHARACTERS = re.compile(r"[*?[]")
_HIDDEN_PREFIXES = (".", "_")
_MAX_LEVELS = 64


@dataclass(frozen=True, slots=True)
class FileListing:
    """The files that a path means, sorted by the bytes of their paths below `root`."""

    root: str
    files: tuple[SourceFile, ...]

    @property
    def source_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def full(self, file: SourceFile) -> str:
        """A file's path, as a person finds it."""
        return os.path.join(self.root, *file.path.split("/"))


def list_files(path: str, extensions: Sequence[str]) -> FileListing:
    """The files that `path` means: a file whatever its name, or those of a folder or pattern by their extension.

    Hidden names are passed over, as are folders behind links: nothing is read twice. A pattern knows `*`, `?`,
    `[…]`, and `**` for any number of folders; something that is there under its very name wins over it.
    """
    there = _stat_or_none(path)
    if there is not None and there.kind != "folder":
        root, name = os.path.split(path)
        return FileListing(root, (_to_source_file(name, path, there),))
    if there is not None:
        root, pattern = path, None
    elif _GLOB_CHARACTERS.search(path):
        root, pattern = _split_pattern(path)
    else:
        LOCAL.stat(path)  # says what is missing
        raise AssertionError("it was missing a moment ago")
    names = list(_iter_names(root or ".", ""))
    kept = [name for name in names if _is_match(name, pattern) and _has_extension(name, extensions, pattern)]
    if not kept:
        raise _no_files_error(path, extensions, len(names), pattern is not None)
    kept.sort(key=os.fsencode)
    full = {name: os.path.join(root, *name.split("/")) for name in kept}
    return FileListing(root, tuple(_to_source_file(name, full[name], LOCAL.stat(full[name])) for name in kept))


def source_path(path: str | os.PathLike[str], kind: str) -> str:
    """A path as it is kept in a source."""
    expected = "a path: a file, a folder or a pattern"
    return as_path("path", path, expected=expected, do=f'rk.sources.{kind}("data")')


def is_gzip_name(path: str, extensions: Sequence[str]) -> bool:
    """Whether any file that `path` means is called as if compressed; what is missing is not."""
    if _stat_or_none(path) is None and not _GLOB_CHARACTERS.search(path):
        return path.lower().endswith(".gz")
    return any(file.path.lower().endswith(".gz") for file in list_files(path, extensions).files)


class ByteStream(Protocol):
    """The bytes of a file, from where reading began."""

    def read(self, size_bytes: int, /) -> bytes:
        """Up to so many bytes; none at the end."""

    def rewind(self) -> None:
        """Go back to where reading began."""


class SizeCheckedFile:
    """A file open for reading that must be as long as it was when the source was looked at."""

    def __init__(self, path: str, file: SourceFile, begin: int = 0, end: int | None = None) -> None:
        self.path = path
        self._file: Readable = LOCAL.open_read(path)
        self._size_bytes = file.size_bytes
        self._begin = self._at = begin
        self._end = file.size_bytes if end is None else end
        if self._file.size_bytes != file.size_bytes:
            self._file.close()
            raise changed_file_error(path, file.size_bytes, LOCAL.stat(path).size_bytes)
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
        """What `io` asks of a raw file, so that decompressors can read from this."""
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
                self.path, "gzip file", f"compressed data that is {_describe_failure(failure)}"
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
    """The bytes of a file from `begin` to `end`; those inside, where it is `gzipped` and is really that.

    `opened` is the file where it is open already; it stays open.
    """
    with SizeCheckedFile(path, file, begin, end) if opened is None else nullcontext(opened) as stream:
        if opened is not None:
            stream.rewind()
        is_gzip = gzipped and stream.read(2) == _GZIP_MAGIC
        if gzipped:
            stream.rewind()
        yield GzipStream(path, stream) if is_gzip else stream


Survey = TypeVar("Survey")


class SurveyCache(Generic[Survey]):
    """What was found out about the last few sources: files that did not change are inspected once."""

    def __init__(self, most: int = 4) -> None:
        self._surveys: OrderedDict[Hashable, Survey] = OrderedDict()
        self._most = most

    def get(self, key: Hashable, survey: Callable[[], Survey]) -> Survey:
        """What `survey` gave for this key, or gives now."""
        if key in self._surveys:
            self._surveys.move_to_end(key)
        else:
            self._surveys[key] = survey()
            while len(self._surveys) > self._most:
                self._surveys.popitem(last=False)
        return self._surveys[key]


def check_unchanged(path: str, file: SourceFile) -> None:
    """Raise X526 where a file has another size than when the source was looked at."""
    size_bytes = LOCAL.stat(path).size_bytes
    if size_bytes != file.size_bytes:
        raise changed_file_error(path, file.size_bytes, size_bytes)


def changed_file_error(path: str, expected_bytes: int, found_bytes: int) -> RekordError:
    return error(
        "X526",
        location=Location(path=path),
        expected=f"{expected_bytes:,} bytes, as when the source was looked at",
        found=f"{found_bytes:,} bytes",
        do="wait until the file is complete, then run the same command again",
    )


def corrupt_file_error(path: str, kind: str, found: str, *, do: str | None = None) -> RekordError:
    """The error for a file that does not hold what its format promises."""
    return error(
        "X524",
        f"this {kind} is damaged",
        location=Location(path=path),
        expected=f"a whole {kind}",
        found=found,
        do=do or "fetch the file again from its origin, or leave it out",
    )


def disk_failure_error(path: str, failure: Exception) -> RekordError | None:
    """The error where it was the disk that failed, and not what a library made of the bytes."""
    # What a file claims can send a library to a place that no file has: that is EINVAL, and damage.
    if not isinstance(failure, OSError) or failure.errno in (None, errno.EINVAL):
        return None
    return read_error(path, failure)


def empty_file_error(path: str | None, found: str, *, expected: str) -> RekordError:
    """The error for a file without a single row."""
    return error(
        "X520",
        f"{found} where rows were expected",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="give a table that has rows"
        if path is None
        else "fetch the file again, or leave it out: name the others by a pattern",
    )


def _describe_failure(failure: Exception) -> str:
    return "cut off" if isinstance(failure, EOFError) else "not what gzip wrote"


def _stat_or_none(path: str) -> Stat | None:
    try:
        return LOCAL.stat(path)
    except RekordError as failure:
        if failure.code == "X501":
            return None
        raise


def _to_source_file(name: str, path: str, facts: Stat) -> SourceFile:
    if facts.kind != "file":
        raise error(
            "X503",
            "a pipe or a device cannot be a source",
            location=Location(path=path),
            expected="a regular file, which can be read from any place",
            found="something else of this name",
            do="write its content to a file first",
        )
    return SourceFile(name, facts.size_bytes, facts.mtime_ns)


def _split_pattern(pattern: str) -> tuple[str, str]:
    """The folder that a pattern begins in, and the pattern below it."""
    parts = pattern.split("/")
    fixed = next(i for i, part in enumerate(parts) if _GLOB_CHARACTERS.search(part))
    root = "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else "")
    if root:
        LOCAL.stat(root)  # says what is missing
    return root, "/".join(part for part in parts[fixed:] if part)


def _iter_names(folder: str, below: str, levels: int = 0) -> Iterator[str]:
    for entry in LOCAL.list(folder):
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
    # A pattern that spells an extension out has chosen.
    if pattern is not None and "." in pattern.rsplit("/", 1)[-1].lstrip("."):
        return True
    return name.lower().endswith(tuple(extensions))


def _no_files_error(path: str, extensions: Sequence[str], others: int, pattern: bool) -> RekordError:
    return error(
        "X520",
        "no file matches" if pattern else f"this folder holds no {extensions[0]} files",
        location=Location(path=path),
        expected=f"files that end in {', '.join(extensions[:4])}",
        found=f"{others:,} other files" if others else "no files",
        do="name the file itself: a file that is named is always read",
    )
