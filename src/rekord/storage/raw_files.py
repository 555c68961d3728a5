"""Functions of `os` and `os.path` for the files of raw data, which may be members of an archive.

They have the names, arguments and exceptions of the originals. A path is in an archive if `archives` says so.
"""

from __future__ import annotations

import errno
import io
import os
import stat as modes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any

from rekord.errors import RekordError
from rekord.storage.archives import SeekableFile, split_member_path
from rekord.storage.local import LOCAL


def stat(path: str) -> os.stat_result:
    if split_member_path(path) is None:
        return os.stat(path)
    facts = _as_os_error(LOCAL.stat, path)
    mode = modes.S_IFDIR | 0o555 if facts.kind == "folder" else modes.S_IFREG | 0o444
    seconds = facts.mtime_ns / 1e9
    device, inode = facts.identity
    return os.stat_result(
        (mode, inode, device, 1, 0, 0, facts.size_bytes, *[int(seconds)] * 3, *[seconds] * 3, *[facts.mtime_ns] * 3)
    )


class MemberPath(PurePosixPath):
    """The path of a member of an archive."""

    is_archive_member = True

    def stat(self) -> os.stat_result:
        return stat(str(self))

    def read_bytes(self) -> bytes:
        with open_binary(str(self)) as file:
            return file.read()


def to_path(*parts: str | os.PathLike[str]) -> PurePath:
    """A path as a value of a row: of a file, or of a member."""
    path = os.path.join(*parts)
    return Path(path) if split_member_path(path) is None else MemberPath(path)


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
    if split_member_path(folder) is None:
        with os.scandir(folder) as entries:
            yield entries
        return
    found = _as_os_error(LOCAL.list, folder)
    yield (MemberEntry(folder, entry.name, entry.kind == "folder") for entry in found)


def listdir(folder: str) -> list[str]:
    if split_member_path(folder) is None:
        return os.listdir(folder)
    return [entry.name for entry in _as_os_error(LOCAL.list, folder)]


def isdir(path: str) -> bool:
    return os.path.isdir(path) if split_member_path(path) is None else modes.S_ISDIR(_mode(path))


def isfile(path: str) -> bool:
    return os.path.isfile(path) if split_member_path(path) is None else modes.S_ISREG(_mode(path))


def lexists(path: str) -> bool:
    return os.path.lexists(path) if split_member_path(path) is None else bool(_mode(path))


def getsize(path: str) -> int:
    return stat(path).st_size


def open_binary(path: str) -> IO[bytes]:
    """`open(path, "rb")`."""
    if split_member_path(path) is None:
        return open(path, "rb")
    return io.BufferedReader(SeekableFile(_as_os_error(LOCAL.open_read, path)))


def open_text(path: str, encoding: str, errors: str = "strict", newline: str | None = None) -> IO[str]:
    """`open(path, encoding=encoding, errors=errors, newline=newline)`."""
    return io.TextIOWrapper(open_binary(path), encoding=encoding, errors=errors, newline=newline)


def _mode(path: str) -> int:
    try:
        return stat(path).st_mode
    except OSError:
        return 0


def _as_os_error(function: Any, path: str) -> Any:
    """The result; a missing member raises what a missing file does. Other errors are those of the archive."""
    try:
        return function(path)
    except RekordError as failure:
        if failure.code == "X501":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from failure
        raise
