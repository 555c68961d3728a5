"""Folders of raw data in remote storage, listed once: in a `listed_once` block, no name is requested twice.

Object storage has no folders, only keys with slashes in them. One recursive listing has them all, with sizes and
versions, and is far cheaper than a request for each folder, or for each file that might exist.
"""

from __future__ import annotations

import errno
import hashlib
import os
import posixpath
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.cache import FILE_CACHE
from rekord.storage.local import LOCAL, DirectoryEntry, Readable, Stat, read_error, read_up_to
from rekord.storage.router import REMOTE, is_remote

_MAX_SINGLE_REQUESTS = 16
"""Files of a folder that are asked for one by one; for more, the folder is listed."""

_PREFETCH_BYTES = 8 << 20
"""A larger file is read when it is used, not before."""

PREFETCHED_FILES = 16
"""Files that are fetched ahead of the one in use: at most 128 MiB."""


class _File(NamedTuple):
    size_bytes: int
    version: int


@dataclass
class RemoteTree:
    """All files below a folder, and the names in each folder."""

    root: str
    files: dict[str, _File] = field(default_factory=dict)  # by path below the root
    folders: dict[str, dict[str, bool]] = field(default_factory=dict)  # name → whether it is a folder

    def add(self, path: str, size_bytes: int, version: int) -> None:
        self.files[path] = _File(size_bytes, version)
        self._add_name(path, is_folder=False)

    def _add_name(self, path: str, *, is_folder: bool) -> None:
        above, _, name = path.rpartition("/")
        if above not in self.folders:
            self.folders[above] = {}
            if above:
                self._add_name(above, is_folder=True)
        self.folders[above][name] = is_folder

    def below(self, path: str) -> str | None:
        """A path below the root, "" for the root itself; None for a path elsewhere."""
        if path == self.root:
            return ""
        return path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else None


class _Listings:
    """What has been asked in a block."""

    def __init__(self) -> None:
        self.trees: dict[str, RemoteTree] = {}
        self.stats: dict[str, Stat | None] = {}
        self.requested: dict[str, int] = {}  # files asked for one by one, by folder

    def tree(self, path: str) -> RemoteTree | None:
        """The tree that has a path, if there is one."""
        folder = path
        while True:
            if folder in self.trees:
                return self.trees[folder]
            above = folder.rpartition("/")[0]
            if not is_remote(above):
                return None
            folder = above


_listings: ContextVar[_Listings | None] = ContextVar("listings", default=None)


@contextmanager
def listed_once(*, again: bool = False) -> Iterator[None]:
    """In a `with` block, every remote folder is listed once, with all below it.

    A block in another one uses the listings of that one, unless they are to be requested `again`.
    """
    if _listings.get() is not None and not again:
        yield
        return
    token = _listings.set(_Listings())
    try:
        yield
    finally:
        _listings.reset(token)


def normalize(path: str) -> str:
    """A URL without `.`, `..` and repeated slashes in its path. The bucket is not left."""
    scheme, _, rest = path.partition("://")
    host, slash, inner = rest.partition("/")
    inner = posixpath.normpath(f"/{inner}").strip("/") if slash else ""
    return f"{scheme}://{host}/{inner}" if inner else f"{scheme}://{host}"


class RemoteRawFiles:
    """Raw data in remote storage, as a storage that can only be read.

    Files of the web are read from copies in the cache: servers need not answer requests for ranges, and nobody wants
    to fetch them twice. They cannot be listed.
    """

    def open_read(self, path: str) -> Readable:
        path = normalize(path)
        return LOCAL.open_read(FILE_CACHE.fetch(path)) if is_web(path) else REMOTE.open_read(path)

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        folder = normalize(folder)
        if is_web(folder):
            if self.stat(folder).kind == "file":
                raise read_error(folder, NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder))
            raise error(
                "X503",
                "folder of the web cannot be listed",
                location=Location(path=folder),
                expected="the URL of a file, such as a table or an archive",
                found="a folder",
                do="download the folder, and write from the copy",
            )
        known = _listings.get()
        if known is None:
            return REMOTE.list(folder)
        tree = known.tree(folder) or self._list_tree(folder, known)
        below = tree.below(folder) or ""
        if below in tree.files:
            raise error("X503", location=Location(path=folder), found="a file", do="use the folder of this file")
        if below not in tree.folders:
            raise _missing_error(folder)
        prefix = f"{below}/" if below else ""
        return [
            DirectoryEntry(
                name=name,
                kind="folder" if is_folder else "file",
                link=False,
                size_bytes=None if is_folder else tree.files[prefix + name].size_bytes,
            )
            for name, is_folder in sorted(tree.folders[below].items(), key=lambda one: os.fsencode(one[0]))
        ]

    def stat(self, path: str) -> Stat:
        path = normalize(path)
        known = _listings.get()
        if known is None:
            return REMOTE.stat(path)
        if is_web(path):
            return _stat_single(path, known)
        tree = known.tree(path)
        above = posixpath.dirname(path)
        if tree is None and path not in known.stats and is_remote(above):
            count = known.requested[above] = known.requested.get(above, 0) + 1
            if count > _MAX_SINGLE_REQUESTS:
                tree = self._list_tree(above, known)
        if tree is None:
            return _stat_single(path, known)
        below = tree.below(path) or ""
        file = tree.files.get(below)
        if file is None and below not in tree.folders:
            raise _missing_error(path)
        return Stat(
            kind="folder" if file is None else "file",
            size_bytes=0 if file is None else file.size_bytes,
            mtime_ns=0 if file is None else file.version,
            identity=_path_identity(path),
        )

    def _list_tree(self, folder: str, known: _Listings) -> RemoteTree:
        tree = RemoteTree(folder)
        for path, size_bytes, version in REMOTE.walk(folder):
            if path.endswith("/") or not path:
                continue  # an empty object that stands for a folder
            if any(part in ("", ".", "..") for part in path.split("/")):
                raise error(
                    "X581",
                    "object cannot be a file in a folder",
                    location=Location(path=f"{folder}/{path}"[:300]),
                    expected="keys whose parts between slashes are names",
                    found="a part that is empty, `.` or `..`",
                    do="rename the object, or pass a folder that does not contain it",
                )
            tree.add(path, size_bytes, version)
        if not tree.files:
            raise _missing_error(folder)
        known.trees[folder] = tree
        return tree


REMOTE_RAW_FILES = RemoteRawFiles()


def is_web(path: str) -> bool:
    """Whether a path is `http://` or `https://`."""
    return path.lower().startswith(("http://", "https://"))


def _stat_single(path: str, known: _Listings) -> Stat:
    if path not in known.stats:
        try:
            known.stats[path] = REMOTE.stat(path)
        except RekordError as failure:
            if failure.code != "X501":
                raise
            known.stats[path] = None
    found = known.stats[path]
    if found is None:
        raise _missing_error(path)
    return found


def _path_identity(path: str) -> tuple[int, int]:
    digest = hashlib.blake2b(path.encode(errors="replace"), digest_size=14).digest()
    return int.from_bytes(digest[:7], "big"), int.from_bytes(digest[7:], "big")


def _missing_error(path: str) -> RekordError:
    return error(
        "X501", location=Location(path=path), found="no such object", do="check the URL: upper and lower case differ"
    )


class UrlPath(PurePosixPath):
    """A path that is a URL: pathlib collapses its two slashes."""

    def __str__(self) -> str:
        scheme, _, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest.lstrip('/')}"

    def __fspath__(self) -> str:
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self),)


class RemotePath(UrlPath):
    """The path of a remote file, as a value of a row. It reads itself, ahead of its use if that is asked for."""

    reads_itself = True
    is_remote = True
    _coming: Future[tuple[bytes, int]] | None = None

    def size_bytes(self) -> int:
        """The size of the file."""
        return REMOTE_RAW_FILES.stat(str(self)).size_bytes

    def prefetch(self, threads: ThreadPoolExecutor) -> None:
        """Begin to fetch the file."""
        if self._coming is None:
            self._coming = threads.submit(_fetch_head, str(self))

    def read_bytes(self) -> bytes:
        """The whole file."""
        with REMOTE_RAW_FILES.open_read(str(self)) as file:
            return read_up_to(file, file.size_bytes)

    def read_at_most(self, most_bytes: int) -> bytes | int:
        """The whole file, or its size if that is larger than `most_bytes`. A missing one is an OSError."""
        coming, self._coming = self._coming, None
        try:
            head, size_bytes = _fetch_head(str(self)) if coming is None else coming.result()
        except RekordError as failure:
            if failure.code == "X501":
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self)) from failure
            raise
        if size_bytes > most_bytes:
            return size_bytes
        if len(head) == size_bytes:
            return head
        with REMOTE_RAW_FILES.open_read(str(self)) as file:
            return read_up_to(file, file.size_bytes)


def _fetch_head(path: str) -> tuple[bytes, int]:
    with REMOTE_RAW_FILES.open_read(path) as file:
        return read_up_to(file, min(_PREFETCH_BYTES, file.size_bytes)), file.size_bytes
