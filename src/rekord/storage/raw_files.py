"""Functions of `os` and `os.path` for the files of raw data, which may be members of an archive, or remote.

`photos.zip!/cats/1.jpg` is a member of `photos.zip`, `s3://bucket/photos/1.jpg` an object in a bucket. The functions
have the names, arguments and exceptions of the originals.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import re
import shutil
import stat as modes
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, TypeVar

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.cache import FILE_CACHE
from rekord.storage.local import LOCAL, DirectoryEntry, Readable, Stat, write_error
from rekord.storage.remote_files import REMOTE_RAW_FILES, RemotePath, UrlPath, normalize
from rekord.storage.router import is_remote

if TYPE_CHECKING:
    from typing_extensions import Buffer

ARCHIVE_EXTENSIONS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz")

MEMORY_BYTES = 64 << 20
"""A larger member is decompressed to a temporary file, if a library reads it in any order."""

_ENDS = "|".join(re.escape(extension[1:]) for extension in ARCHIVE_EXTENSIONS)
_MEMBER_PATH = re.compile(rf"(.*?\.(?:{_ENDS}))!(?:/(.*))?", re.IGNORECASE | re.DOTALL)
_BELOW_PATH = re.compile(rf"(.*?\.(?:{_ENDS}))(/.*)", re.IGNORECASE | re.DOTALL)


def split_member_path(path: str | os.PathLike[str]) -> tuple[str, str] | None:
    """The archive of a path and the name of the member, "" for the archive itself; None for other paths."""
    path = os.fspath(path)
    match = _MEMBER_PATH.fullmatch(path) if "!" in path else None
    if match is None or os.path.lexists(f"{match[1]}!"):
        return None
    name = posixpath.normpath(match[2] or ".")
    return match[1], "" if name == "." else name


def is_plain(path: str) -> bool:
    """Whether a path is one of the file system, which any library can open."""
    return not is_remote(path) and split_member_path(path) is None


def to_member_path(path: str) -> str:
    """`photos.zip/cats` as the path of a member; other paths unchanged."""
    match = _BELOW_PATH.fullmatch(path)
    return f"{match[1]}!{match[2]}" if match is not None and isfile(match[1]) else path


def is_archive_name(name: str) -> bool:
    """Whether a file is named like an archive."""
    return name.lower().endswith(ARCHIVE_EXTENSIONS)


class _RawFiles:
    """The storage of raw data, which can only be read."""

    def open_read(self, path: str) -> Readable:
        return (REMOTE_RAW_FILES if _is_remote_file(path) else LOCAL).open_read(path)

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        return (REMOTE_RAW_FILES if _is_remote_file(folder) else LOCAL).list(folder)

    def stat(self, path: str) -> Stat:
        return (REMOTE_RAW_FILES if _is_remote_file(path) else LOCAL).stat(path)

    def real(self, path: str) -> str:
        return normalize(path) if is_remote(path) else LOCAL.real(path)


RAW_FILES: Final = _RawFiles()


def _is_remote_file(path: str) -> bool:
    return is_remote(path) and split_member_path(path) is None


def stat(path: str) -> os.stat_result:
    if is_plain(path):
        return os.stat(path)
    facts = _as_os_error(RAW_FILES.stat, path)
    mode = modes.S_IFDIR | 0o555 if facts.kind == "folder" else modes.S_IFREG | 0o444
    seconds = facts.mtime_ns / 1e9
    device, inode = facts.identity
    return os.stat_result(
        (mode, inode, device, 1, 0, 0, facts.size_bytes, *[int(seconds)] * 3, *[seconds] * 3, *[facts.mtime_ns] * 3)
    )


class SeekableFile(io.RawIOBase):
    """A storage's file for libraries that want one of Python's."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._at = 0
        self.name = file.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        count = self._file.readinto(buffer)
        self._at += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size_bytes}[whence]
        if base + offset < 0:
            raise ValueError("negative position")
        self._at = base + offset
        self._file.seek(self._at)
        return self._at

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        self._file.close()
        super().close()


class _ArchivedFile:
    """What reads a member of an archive."""

    reads_itself = True

    def size_bytes(self) -> int:
        """The size of the file."""
        return getsize(str(self))

    def read_bytes(self) -> bytes:
        """The whole file."""
        with open_binary(str(self)) as file:
            return file.read()

    def read_at_most(self, most_bytes: int) -> bytes | int:
        """The whole file, or its size if that is larger than `most_bytes`."""
        with open_binary(str(self)) as file:
            size_bytes = getsize(str(self))
            return size_bytes if size_bytes > most_bytes else file.read()


class MemberPath(_ArchivedFile, PurePosixPath):
    """The path of a member of an archive."""


class RemoteMemberPath(_ArchivedFile, UrlPath):
    """The path of a member of a remote archive."""


def to_path(*parts: str | os.PathLike[str]) -> PurePath:
    """A path as a value of a row: of a file, or of a member."""
    path = os.path.join(*parts)
    if split_member_path(path) is not None:
        return RemoteMemberPath(path) if is_remote(path) else MemberPath(path)
    return RemotePath(path) if is_remote(path) else Path(path)


class MemberEntry:
    """An `os.DirEntry` of a member."""

    def __init__(self, folder: str, name: str, is_folder: bool) -> None:
        self.name = name
        self.path = os.path.join(folder, name)
        self._is_folder = is_folder

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is_folder

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self._is_folder

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return stat(self.path)


@contextmanager
def scandir(folder: str) -> Iterator[Iterator[Any]]:
    if is_plain(folder):
        with os.scandir(folder) as entries:
            yield entries
        return
    found = _as_os_error(RAW_FILES.list, folder)
    yield (MemberEntry(folder, entry.name, entry.kind == "folder") for entry in found)


def listdir(folder: str) -> list[str]:
    if is_plain(folder):
        return os.listdir(folder)
    return [entry.name for entry in _as_os_error(RAW_FILES.list, folder)]


def isdir(path: str) -> bool:
    return os.path.isdir(path) if is_plain(path) else modes.S_ISDIR(_mode(path))


def isfile(path: str) -> bool:
    return os.path.isfile(path) if is_plain(path) else modes.S_ISREG(_mode(path))


def lexists(path: str) -> bool:
    return os.path.lexists(path) if is_plain(path) else bool(_mode(path))


def getsize(path: str) -> int:
    return stat(path).st_size


def open_binary(path: str) -> IO[bytes]:
    """`open(path, "rb")`."""
    if is_plain(path):
        return open(path, "rb")
    return io.BufferedReader(SeekableFile(_as_os_error(RAW_FILES.open_read, path)))


def open_seekable(path: str) -> IO[bytes]:
    """`open(path, "rb")` for libraries that read in any order: a member is read, and its checksum verified, first."""
    if _is_remote_file(path) and getsize(path) > MEMORY_BYTES:
        return open(local_file(path), "rb")
    file = open_binary(path)
    if is_plain(path):
        return file
    with file:
        size_bytes = getsize(path)
        if size_bytes <= MEMORY_BYTES:
            return io.BytesIO(file.read())
        copy = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            shutil.copyfileobj(file, copy, 1 << 20)
            copy.seek(0)
        except OSError as failure:
            copy.close()
            raise write_error(tempfile.gettempdir(), failure, left_bytes=size_bytes) from failure
        except BaseException:
            copy.close()
            raise
        return copy


def open_text(path: str, encoding: str, errors: str = "strict", newline: str | None = None) -> TextIO:
    """`open(path, encoding=encoding, errors=errors, newline=newline)`."""
    return io.TextIOWrapper(open_binary(path), encoding=encoding, errors=errors, newline=newline)


def local_file(path: str) -> str:
    """A path that a library can open: a remote file is downloaded to the cache first."""
    if not _is_remote_file(path):
        return path
    return FILE_CACHE.fetch(normalize(path))


# Paths. A URL is absolute, and nothing above its bucket can be named.


def normpath(path: str) -> str:
    return normalize(path) if is_remote(path) else os.path.normpath(path)


def abspath(path: str) -> str:
    return normalize(path) if is_remote(path) else os.path.abspath(path)


def realpath(path: str) -> str:
    return normalize(path) if is_remote(path) else os.path.realpath(path)


def isabs(path: str) -> bool:
    return is_remote(path) or os.path.isabs(path)


def relpath(path: str, start: str = ".") -> str:
    if not is_remote(path) and not is_remote(start):
        return os.path.relpath(path, start)
    (here, below), (there, base) = _split_storage(path), _split_storage(start)
    if here != there:
        raise _other_storage_error(path, start)
    return posixpath.relpath(f"/{below}", f"/{base}")


def commonpath(paths: Sequence[str]) -> str:
    if not any(map(is_remote, paths)):
        return os.path.commonpath(paths)
    split = [_split_storage(path) for path in paths]
    for path, (storage, _) in zip(paths, split, strict=True):
        if storage != split[0][0]:
            raise _other_storage_error(path, paths[0])
    return normalize(split[0][0] + posixpath.commonpath([f"/{below}" for _, below in split]))


def _split_storage(path: str) -> tuple[str, str]:
    """The bucket of a URL, and the path in it; "" and the path for a local one."""
    if not is_remote(path):
        return "", path
    scheme, _, rest = normalize(path).partition("://")
    bucket, _, below = rest.partition("/")
    return f"{scheme}://{bucket}", below


def _other_storage_error(path: str, other: str) -> RekordError:
    return error(
        "U605",
        "files of one source must be in the same storage",
        location=Location(path=path),
        expected=f"paths in the same bucket as {other[:60]}",
        found=path[:80],
        do="copy the files to one bucket, or to a local folder",
    )


def _mode(path: str) -> int:
    try:
        return stat(path).st_mode
    except OSError:
        return 0


ResultT = TypeVar("ResultT")


def _as_os_error(function: Callable[[str], ResultT], path: str) -> ResultT:
    """The result; a missing member raises what a missing file does. Other errors are those of the storage."""
    try:
        return function(path)
    except RekordError as failure:
        if failure.code == "X501":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from failure
        raise
