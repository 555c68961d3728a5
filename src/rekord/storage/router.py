"""One storage for reading: local files, and remote ones by URL (`s3://`, `gs://`, `memory://`, …) through fsspec."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.local import LOCAL, DirectoryEntry, PathKind, Readable, Stat, Storage, Writable

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer


FIRST_BYTES = 256 << 10
"""Size of the first request: reading the head of a file does not fetch a whole block."""

BLOCK_BYTES = 8 << 20
"""Request size of sequential reads: large enough to hide the latency."""

READ_AHEAD_BLOCKS = 2
"""Blocks requested ahead."""


class ReadAhead:
    """A file of `size_bytes`, open for reading. `fetch(begin, end)` returns the complete range, or raises.

    A read that continues where the last one ended is treated as sequential. Any other fetches only what it needs.
    """

    def __init__(self, path: str, size_bytes: int, fetch: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._fetch = fetch
        self._place = 0
        self._begin = 0  # of the block at hand
        self._block = b""
        self._ahead: deque[tuple[int, Future[bytes]]] = deque()  # the end of each block that comes
        self._threads: ThreadPoolExecutor | None = None
        self._wanted = _CancelToken()

    def readinto(self, buffer: Buffer, /) -> int:
        with memoryview(buffer).cast("B") as view:
            if self._place >= self.size_bytes or not len(view):
                return 0
            if not self._begin <= self._place < self._begin + len(self._block):
                self._next_block(len(view))
            at = self._place - self._begin
            count = min(len(view), len(self._block) - at)
            view[:count] = memoryview(self._block)[at : at + count]
            self._place += count
            return count

    def seek(self, offset: int, /) -> int:
        self._place = offset
        return offset

    def close(self) -> None:
        # A finalizer may call this, so it takes no lock: an executor without references ends by itself. Running
        # requests finish on their own, and no new ones start.
        self._forget()
        self._threads = None
        self._block = b""
        self._begin = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _next_block(self, wanted_bytes: int) -> None:
        """Fetch the block that begins at the current position."""
        begin = self._place
        is_sequential = bool(self._block) and begin == self._begin + len(self._block)
        self._block = b""  # before the next one arrives, to keep to the memory limit
        if is_sequential:
            self._prefetch(begin)
            self._begin, self._block = begin, self._ahead.popleft()[1].result()
        else:
            self._forget()
            size_bytes = max(FIRST_BYTES, min(wanted_bytes, BLOCK_BYTES))
            self._block = self._fetch(begin, min(begin + size_bytes, self.size_bytes))
            self._begin = begin

    def _prefetch(self, begin: int) -> None:
        """Request the block that begins here and the ones after it, unless they are requested already."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1 + READ_AHEAD_BLOCKS, thread_name_prefix="rekord-fetch")
        begin = self._ahead[-1][0] if self._ahead else begin
        while len(self._ahead) <= READ_AHEAD_BLOCKS and begin < self.size_bytes:
            end = min(begin + BLOCK_BYTES, self.size_bytes)
            self._ahead.append((end, self._threads.submit(self._wanted.fetch, self._fetch, begin, end)))
            begin = end

    def _forget(self) -> None:
        """Cancel the requests that have not started."""
        self._wanted.is_cancelled = True
        self._wanted = _CancelToken()
        self._ahead.clear()


class _CancelToken:
    """Whether read-ahead requests are still wanted."""

    is_cancelled = False

    def fetch(self, fetch: Callable[[int, int], bytes], begin: int, end: int) -> bytes:
        """The range, unless it was cancelled."""
        return b"" if self.is_cancelled else fetch(begin, end)


MAX_CONCURRENT_REQUESTS = 32
"""Most concurrent requests."""

CHECK_ADDRESS_HINT = "check the URL: upper and lower case differ"

_SCHEME_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_NOT_FOUND_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM)
_DENIED_STATUSES = (401, 403)
_INCOMPLETE_ERRORS = ("IncompleteRead", "ClientPayloadError", "ContentLengthError", "ResponseStreaming")


class RemoteStorage:
    """All paths with a scheme. Files are identified by their URLs."""

    def open_read(self, path: str) -> Readable:
        system, inner = _resolve_filesystem(path)
        with _translate_read_errors(path):
            info = system.info(inner)
        if _kind_from_info(info) == "folder":
            raise error("X503", location=Location(path=path), found="a folder", do="use a file in this folder")
        return ReadAhead(path, _size_from_info(path, info), partial(self._range, path))

    def head(self, path: str, most_bytes: int) -> bytes:
        """The first bytes of a file that is not empty, or all of a shorter one, in one request."""
        system, inner = _resolve_filesystem(path)
        with _translate_read_errors(path):
            return bytes(system.cat_file(inner, start=0, end=most_bytes))

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """The bytes from begin to end of each file, fetched concurrently."""
        systems = {path: _resolve_filesystem(path) for path in dict.fromkeys(path for path, _, _ in wanted)}
        # Files may be on several file systems; each gets one call.
        together: dict[int, list[int]] = {}
        for number, (path, _, _) in enumerate(wanted):
            together.setdefault(id(systems[path][0]), []).append(number)
        out = [b""] * len(wanted)
        for numbers in together.values():
            pieces = [wanted[number] for number in numbers]
            system = systems[pieces[0][0]][0]
            with _translate_read_errors(pieces[0][0]):
                found = system.cat_ranges(
                    [systems[path][1] for path, _, _ in pieces],
                    [begin for _, begin, _ in pieces],
                    [end for _, _, end in pieces],
                    on_error="return",
                )
            for number, piece, data in zip(numbers, pieces, found, strict=True):
                out[number] = _require_complete(piece, data)
        return out

    def _range(self, path: str, begin: int, end: int) -> bytes:
        return self.ranges([(path, begin, end)])[0]

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        system, inner = _resolve_filesystem(folder)
        with _translate_read_errors(folder):
            found = system.ls(inner, detail=True)
        entries = []
        for info in found:
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if name and str(info["name"]).rstrip("/") != inner.rstrip("/"):
                size_bytes = info.get("size")
                size_bytes = None if size_bytes is None else int(size_bytes)
                entries.append(
                    DirectoryEntry(name=name, kind=_kind_from_info(info), link=False, size_bytes=size_bytes)
                )
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def stat(self, path: str) -> Stat:
        system, inner = _resolve_filesystem(path)
        with _translate_read_errors(path):
            info = system.info(inner)
        return Stat(
            kind=_kind_from_info(info),
            size_bytes=_size_from_info(path, info),
            mtime_ns=_version_from_info(info),
            identity=_path_identity(path),
        )

    def walk(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """All files below a folder in one listing: path below it, size and version; none if it does not exist."""
        system, inner = _resolve_filesystem(folder)
        with _translate_read_errors(folder):
            found = system.find(inner, detail=True)
        prefix = f"{inner.rstrip('/')}/"
        for name, info in found.items():
            if name.startswith(prefix):
                yield name[len(prefix) :], int(info.get("size") or 0), _version_from_info(info)

    def identity(self, path: str) -> tuple[int, int]:
        """What `stat` returns as the identity of a path."""
        return _path_identity(path)

    def real(self, path: str) -> str:
        return path

    def _refuse_to_write(self, *paths: str, **named: str) -> NoReturn:
        raise read_only_error([*paths, *named.values()][-1])

    create = rename = exchange = link = remove = lock = _refuse_to_write
    make_folder = remove_folder = sync_folder = _refuse_to_write


def _resolve_filesystem(path: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it.

    fsspec keeps connections per process, since they do not survive a fork, and per thread if they are not shared.
    """
    scheme, _, _ = path.partition("://")
    try:
        import fsspec
    except ImportError:
        raise _missing_package_error(scheme, "remote") from None
    try:
        kind = fsspec.get_filesystem_class(scheme)
        # A host or a user that the URL names.
        options: dict[str, Any] = kind._get_kwargs_from_urls(path)
        if getattr(kind, "async_impl", False):
            # A cached listing may be out of date.
            options["use_listings_cache"] = False
        if scheme in ("s3", "s3a") and "config_kwargs" not in fsspec.config.conf.get("s3", {}):
            options["config_kwargs"] = {"max_pool_connections": MAX_CONCURRENT_REQUESTS}
        with _translate_read_errors(path):
            system = kind(**options)
            return system, system._strip_protocol(path)
    except ImportError:
        raise _missing_package_error(scheme, _SCHEME_EXTRAS.get(scheme, "remote")) from None
    except ValueError:
        raise error(
            "U605",
            f"unknown scheme `{scheme[:30]}://`",
            expected="a local path, or a scheme that fsspec supports, such as s3:// or gs://",
            found=f"{scheme[:30]}://",
            do="python -c 'import fsspec; print(fsspec.available_protocols())'",
        ) from None


def _missing_package_error(scheme: str, extra: str) -> RekordError:
    return error(
        "U602",
        f"reading {scheme[:30]}:// requires a package that is not installed",
        expected=f"the extra `{extra}`",
        found="no such package",
        do=f"pip install 'rekord[{extra}]'",
    )


@contextmanager
def _translate_read_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (RekordError, ImportError):
        raise
    except Exception as failure:
        raise _translate_failure(path, failure) from failure


def _require_complete(piece: tuple[str, int, int], data: Any) -> bytes:
    """The data of a range, if it is complete."""
    path, begin, end = piece
    if isinstance(data, Exception):
        with _translate_read_errors(path):
            raise data
    if len(data) != end - begin:
        raise error(
            "X557",
            location=Location(path=path),
            expected=f"{end - begin:,} bytes from byte {begin:,} on",
            found=f"{len(data):,} bytes",
            do="open the dataset again: the file changed, or the server does not support range requests",
        )
    return bytes(data)


def _translate_failure(path: str, failure: Exception) -> RekordError:
    """The error for what a file system or cloud package raised; they have many exception types."""
    where = Location(path=path)
    name = type(failure).__name__
    number = failure.errno if isinstance(failure, OSError) else None
    found = f"{name}: {' '.join(str(failure).split())[:100]}"
    impossible = "ParamValidation" in name  # a name that cannot exist there
    if isinstance(failure, (FileNotFoundError, NotADirectoryError)) or number in _NOT_FOUND_ERRNOS or impossible:
        return error("X501", location=where, found="no such object", do=CHECK_ADDRESS_HINT)
    status = getattr(failure, "status", getattr(failure, "code", None))
    if isinstance(failure, PermissionError) or number in _DENIED_ERRNOS or status in _DENIED_STATUSES:
        return error("X556", location=where, found=found, do="use credentials that may list and read this path")
    if "Credential" in name:
        scheme = path.partition("://")[0]
        setting = "FSSPEC_S3_ANON=true" if _SCHEME_EXTRAS.get(scheme) == "s3" else "FSSPEC_GS_TOKEN=anon"
        do = "set up credentials as for other tools of this service"
        public = f"; for public data: export {setting}" if scheme in _SCHEME_EXTRAS else ""
        return error("X556", location=where, found=found, do=do + public)
    if any(word in name for word in _INCOMPLETE_ERRORS):
        return error(
            "X557",
            location=where,
            expected="as many bytes as the response announced",
            found=found,
            do="run the same command again: the connection broke, and the retries of fsspec failed too",
        )
    return error(
        "X555",
        location=where,
        found=found,
        do="check the URL and the connection, then run the same command again",
    )


def _kind_from_info(info: Any) -> PathKind:
    return {"file": "file", "directory": "folder"}.get(info.get("type"), "other")  # type: ignore[return-value]


def _size_from_info(path: str, info: Any) -> int:
    size_bytes = info.get("size")
    if size_bytes is None and _kind_from_info(info) == "file":
        raise error(
            "X557",
            "remote storage does not report the size of a file",
            location=Location(path=path),
            expected="a size, to recognise an incomplete response",
            found="none",
            do="copy the file to this machine and read the copy",
        )
    return int(size_bytes or 0)


def _version_from_info(info: Any) -> int:
    """A number that changes with the file, from its ETag or time."""
    for name in ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created"):
        if info.get(name):
            # A listing may have the seconds of a time, and the facts of one file a datetime.
            value = info[name].timestamp() if hasattr(info[name], "timestamp") else info[name]
            digest = hashlib.blake2b(str(value).encode(), digest_size=7).digest()
            return int.from_bytes(digest, "big")
    return 0


def _path_identity(path: str) -> tuple[int, int]:
    digest = hashlib.blake2b(path.encode(errors="replace"), digest_size=14).digest()
    return int.from_bytes(digest[:7], "big"), int.from_bytes(digest[7:], "big")


def read_only_error(path: str) -> RekordError:
    """The error for writing to a remote path."""
    return error(
        "X504",
        "remote storage is read-only",
        location=Location(path=path),
        expected="a local path",
        found=path.partition("://")[0][:30] + "://",
        do="write to a local folder, then copy it",
    )


REMOTE: Final = RemoteStorage()

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


def is_remote(path: str) -> bool:
    """Whether a path is remote: `scheme://…`. A drive letter is not a scheme."""
    scheme, found, _ = path.partition("://")
    return bool(found) and len(scheme) > 1 and scheme.replace("+", "").replace("-", "").isalnum()


def reject_remote_write(path: str) -> None:
    """Raise for a remote path: locally it would become a folder with a colon in its name."""
    if is_remote(path):
        raise read_only_error(path)


class _RoutedStorage:
    """Passes each path to the storage that it belongs to."""

    def open_read(self, path: str) -> Readable:
        return _storage_for(path).open_read(path)

    def create(self, path: str) -> Writable:
        return _storage_for(path).create(path)

    def rename(self, source: str, target: str) -> None:
        _storage_for(target).rename(source, target)

    def exchange(self, one: str, other: str) -> bool:
        return _storage_for(one).exchange(one, other)

    def link(self, source: str, target: str) -> bool:
        return _storage_for(target).link(source, target) if not is_remote(source) else False

    def remove(self, path: str) -> None:
        _storage_for(path).remove(path)

    def make_folder(self, path: str) -> None:
        _storage_for(path).make_folder(path)

    def remove_folder(self, path: str) -> None:
        _storage_for(path).remove_folder(path)

    def sync_folder(self, path: str) -> None:
        _storage_for(path).sync_folder(path)

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        return _storage_for(folder).list(folder)

    def stat(self, path: str) -> Stat:
        return _storage_for(path).stat(path)

    def real(self, path: str) -> str:
        return _storage_for(path).real(path)

    def lock(self, path: str) -> AbstractContextManager[None]:
        return _storage_for(path).lock(path)


def _storage_for(path: str) -> Storage:
    return REMOTE if is_remote(path) else LOCAL


ROUTED_STORAGE: Final[Storage] = _RoutedStorage()


def get_path_kind(path: str) -> PathKind | None:
    """The kind of a path; None if nothing exists there, or nothing that can be inspected."""
    try:
        return ROUTED_STORAGE.stat(path).kind
    except RekordError as failure:
        if failure.code == "X555":
            raise  # an unreachable server does not mean that nothing exists there
        return None


def map_concurrently(
    function: Callable[[ArgumentT], ResultT],
    items: Sequence[ArgumentT],
    *,
    remote: bool,
    at_once: int = MAX_CONCURRENT_REQUESTS,
) -> list[ResultT]:
    """The results of a function for each item, in order; concurrent if most of the time is spent waiting."""
    if not remote or len(items) < 2:
        return [function(one) for one in items]
    with ThreadPoolExecutor(min(len(items), at_once), thread_name_prefix="rekord-ask") as threads:
        return list(threads.map(function, items))
