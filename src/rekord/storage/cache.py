"""A disk cache of remote files, shared by the processes of a machine.

    CACHE/                      REKORD_CACHE, otherwise rekord/ in XDG_CACHE_HOME or ~/.cache
      index/                    indexes of record files (dataset/shard_index.py), with a limit of their own
      selections/               lists of records that the viewer keeps
      datasets/DIGEST/          shards of a dataset, with its manifest and their indexes, as in the dataset itself
      files/KEY/NAME            other files, by their URL and version

A file appears by a rename, once it is complete, on the disk, and has the digest that the manifest lists, or as many
bytes as the server reported. Until then it is a `.part`, which another process may resume after a crash. The least
recently used files go first when there is no room; the time of their last use is their access time, which is set
explicitly. There is no daemon and no database: the folder itself is all that processes share, and any file in it may
be removed at any time.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rekord.arguments import bytes_size, invalid
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.log import get_logger
from rekord.storage import portability
from rekord.storage.digest import FileDigest
from rekord.storage.router import REMOTE

_log = get_logger(__name__)

DEFAULT_CACHE_BYTES = 64 << 30
DEFAULT_AHEAD = 2
"""Shards that are downloaded before they are needed."""

_RANGE_BYTES = 8 << 20
_RANGES_AT_ONCE = 4
_PART = ".part"
_LOCK = ".lock"
_ABANDONED_SECONDS = 86_400
_WAIT_SECONDS = 0.05
_TOUCH_SECONDS = 60.0
_CACHED_FOLDERS = ("datasets", "files")

DownloadListener = Callable[[str, int, int], None]
"""Called with the URL, the bytes that are there, and all bytes."""

on_download: ContextVar[DownloadListener | None] = ContextVar("on_download", default=None)


def cache_folder(of: str = "index") -> str | None:
    """A folder of the cache: below REKORD_CACHE, XDG_CACHE_HOME or ~/.cache; None if there is no place for one."""
    named = os.environ.get("REKORD_CACHE")
    if named:
        return os.path.join(named, of)
    usual = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(usual):  # as specified
        usual = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(usual, "rekord", of) if os.path.isabs(usual) else None


@dataclass(frozen=True, slots=True)
class DiskCache:
    """The cache in a folder, with at most `limit_bytes` of files. It has no state of its own, and is pickled."""

    folder: str
    limit_bytes: int = DEFAULT_CACHE_BYTES
    ahead: int = DEFAULT_AHEAD

    def fetch(
        self, name: str, url: str, *, size_bytes: int, version: int | None = None, digest: str | None = None
    ) -> str | None:
        """The path of a copy of a remote file, downloaded if it is not there; None if it cannot be stored.

        `name` identifies its content. A digest is verified; without one, all ranges must have the `version`.
        """
        path = os.path.join(self.folder, *name.split("/"))
        if _has_size(path, size_bytes):
            _touch(path)
            return path
        if size_bytes > self.limit_bytes:
            _warn_once(url, f"{size_bytes:,} bytes are more than the cache may have: {self.limit_bytes:,}")
            return None
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with _wait_for_lock(path + _LOCK):
                if _has_size(path, size_bytes):  # another process downloaded it meanwhile
                    return path
                self._make_room(size_bytes)
                _download(path, url, size_bytes=size_bytes, version=version, digest=digest)
        except RekordError:
            raise
        except OSError as failure:
            # The disk is full or read-only: reading continues without a copy.
            with suppress(OSError):
                os.unlink(path + _PART)
            _warn_once(url, f"{failure.strerror or failure}: {self.folder}")
            return None
        return path

    def store(self, name: str, content: bytes) -> str | None:
        """Store a small file, in one step; None if that fails."""
        path = os.path.join(self.folder, *name.split("/"))
        part = f"{path}.{secrets.token_hex(4)}{_PART}"
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(part, "wb") as file:
                file.write(content)
            os.replace(part, path)
        except OSError as failure:
            with suppress(OSError):
                os.unlink(part)
            _warn_once(path, f"{failure.strerror or failure}: {self.folder}")
            return None
        return path

    def path(self, name: str) -> str:
        """Where a file is, once it is there."""
        return os.path.join(self.folder, *name.split("/"))

    def _make_room(self, size_bytes: int) -> None:
        """Remove the least recently used files until this many bytes fit."""
        with _wait_for_lock(os.path.join(self.folder, f"evict{_LOCK}")):
            found = sorted(self._list())
            total = sum(one_bytes for _, one_bytes, _ in found)
            for used, one_bytes, path in found:
                if path.endswith(_PART):
                    if used > time.time() - _ABANDONED_SECONDS:
                        continue
                elif total + size_bytes <= self.limit_bytes:
                    continue
                with suppress(OSError):  # on Windows a file in use stays
                    os.unlink(path)
                    total -= one_bytes
                    _log.debug("evicted %s", path)

    def _list(self) -> Iterator[tuple[float, int, str]]:
        """When each file was used last, its size and its path."""
        for kind in _CACHED_FOLDERS:
            for folder, _, names in os.walk(os.path.join(self.folder, kind)):
                for name in names:
                    if not name.endswith(_LOCK):
                        path = os.path.join(folder, name)
                        with suppress(OSError):
                            facts = os.stat(path)
                            yield facts.st_atime, facts.st_size, path


def resolve_cache(cache: object, cache_size: object = None, ahead: object = None) -> DiskCache | None:
    """The cache that arguments and environment ask for; None for none.

    True or a folder turns it on, and so does REKORD_CACHE_SIZE, unless `cache` is False.
    """
    given = os.environ.get("REKORD_CACHE_SIZE") or None
    if cache is False or (cache is None and given in (None, "0")):
        return None
    if cache is None or cache is True:
        top = cache_folder("")
        if top is None:
            raise error(
                "U605",
                "no folder for the cache",
                expected="REKORD_CACHE or a home directory",
                found="neither",
                do='cache="/a/folder"      (or: export REKORD_CACHE=/a/folder)',
            )
        folder = os.path.dirname(os.path.join(top, ""))
    elif isinstance(cache, (str, os.PathLike)):
        folder = os.path.abspath(os.fsdecode(cache))
    else:
        raise invalid("cache", cache, "True, False or the path of a folder", "cache=True")
    if cache_size is not None:
        limit = bytes_size("cache_size", cache_size)
    else:
        limit = DEFAULT_CACHE_BYTES if given is None else bytes_size("REKORD_CACHE_SIZE", given)
    if ahead is None:
        ahead = DEFAULT_AHEAD
    elif isinstance(ahead, bool) or not isinstance(ahead, int) or ahead < 0:
        raise invalid("cache_ahead", ahead, "an integer ≥ 0", "cache_ahead=2")
    return DiskCache(folder, limit, ahead)


class FileCache:
    """Copies of single remote files, for libraries that read nothing else, and of files of the web."""

    def fetch(self, url: str) -> str:
        """The path of a copy of a file as it is now."""
        facts = REMOTE.stat(url)
        if facts.kind != "file":
            raise error("X503", location=Location(path=url), found="a folder", do="use a file in this folder")
        cache = resolve_cache(True)
        assert cache is not None
        key = hashlib.sha256(f"{url}\0{facts.size_bytes}\0{facts.mtime_ns}".encode()).hexdigest()[:32]
        name = os.path.basename(url.partition("?")[0].rstrip("/"))[-100:] or "file"
        path = cache.fetch(f"files/{key}/{name}", url, size_bytes=facts.size_bytes, version=facts.mtime_ns or None)
        if path is None:
            raise error(
                "X504",
                "file has to be downloaded, and the cache cannot store it",
                location=Location(path=url),
                expected=f"room for {facts.size_bytes:,} bytes in {cache.folder}",
                found="a full disk, or a limit below that",
                do="export REKORD_CACHE=/a/folder/with/room      (REKORD_CACHE_SIZE is the limit)",
            )
        return path


FILE_CACHE: Final = FileCache()


def _has_size(path: str, size_bytes: int) -> bool:
    try:
        return os.stat(path).st_size == size_bytes
    except OSError:
        return False


def _touch(path: str) -> None:
    """Note that a file is used, without changing the time of its content."""
    with suppress(OSError):
        facts = os.stat(path)
        if time.time() - facts.st_atime > _TOUCH_SECONDS:
            os.utime(path, ns=(time.time_ns(), facts.st_mtime_ns))


@contextmanager
def _wait_for_lock(path: str) -> Iterator[None]:
    while True:
        try:
            descriptor = portability.lock_file(path)
            break
        except BlockingIOError:
            time.sleep(_WAIT_SECONDS)
    try:
        yield
    finally:
        portability.unlock_file(path, descriptor)


def _download(path: str, url: str, *, size_bytes: int, version: int | None, digest: str | None) -> None:
    """Download a file, from where an earlier attempt ended; it appears under its name when it is complete."""
    part = path + _PART
    watch = on_download.get()
    for resumes in (True, False):
        if not resumes:
            os.unlink(part)
        with open(part, "ab") as file:
            done = file.tell()
            if done > size_bytes:
                file.truncate(done := 0)
            if watch is not None:
                watch(url, done, size_bytes)
            for data in _iter_ranges(url, done, size_bytes, version):
                file.write(data)
                done += len(data)
                if watch is not None:
                    watch(url, done, size_bytes)
            file.flush()
            os.fsync(file.fileno())
        if digest is None or _file_digest(part, digest) == digest:
            os.replace(part, path)
            return
        # What an earlier attempt left may be damaged: once more, from the beginning.
    os.unlink(part)
    raise error(
        "X548",
        "file does not have the digest in the manifest",
        location=Location(path=url),
        expected=f"{digest[:23]}…" if digest else None,
        found="another digest",
        likely="the file was replaced or damaged after it was written",
        do="rekord check DATASET      (compares all files with the manifest)",
    )


def _iter_ranges(url: str, begin: int, end: int, version: int | None) -> Iterator[bytes]:
    """The bytes of a file in order, some ranges at a time."""
    borders = [*range(begin, end, _RANGE_BYTES), end]
    wanted = [(url, low, high) for low, high in pairwise(borders)]
    versions = None if version is None else {url: version}
    for first in range(0, len(wanted), _RANGES_AT_ONCE):
        yield from REMOTE.ranges(wanted[first : first + _RANGES_AT_ONCE], versions=versions)


def _file_digest(path: str, digest: str) -> str:
    found = FileDigest(digest.partition(":")[0])
    with open(path, "rb", buffering=0) as file:
        while data := file.read(_RANGE_BYTES):
            found.update(data)
    return str(found)


_warned: set[str] = set()


def _warn_once(url: str, why: str) -> None:
    """One warning per process: reading continues without the cache."""
    if not _warned:
        _warned.add(url)
        warnings.warn(f"reading without the disk cache: {why}", RuntimeWarning, stacklevel=3)


_downloads: dict[int, ThreadPoolExecutor] = {}


def download_in_background(download: Callable[[], object]) -> None:
    """Begin a download that will be needed. Its failure is that of whoever needs it."""
    process = os.getpid()
    threads = _downloads.get(process)
    if threads is None:  # none of those of a parent survive a fork
        _downloads.clear()
        threads = _downloads[process] = ThreadPoolExecutor(2, thread_name_prefix="rekord-download")

    def run() -> None:
        with suppress(RekordError, OSError):
            download()

    threads.submit(run)
