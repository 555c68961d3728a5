"""Remote storage that fsspec knows (`s3://`, `gs://`, `memory://`, …), for reading."""

from __future__ import annotations

import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.local import DirectoryEntry, PathKind, Readable, Stat

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer


FIRST_BYTES = 256 << 10
"""What the first request asks for: who only looks at the head of a file shall not pay for a block of it."""

BLOCK_BYTES = 8 << 20
"""What one request of a sequential read asks for: enough to forget its latency."""

READ_AHEAD_BLOCKS = 2
"""So many blocks are on their way: while one arrives, the other has been asked for."""


class ReadAhead:
    """A file of `size_bytes`, open for reading. `fetch(begin, end)` gives that range, whole, or raises.

    A read that goes on where the last one ended is taken for a sequential one. Any other fetches what it needs.
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
        # A finalizer may call this, so that it takes no lock: an executor that nobody holds ends by itself. A request
        # that is under way is left to itself, and none is begun any more.
        self._forget()
        self._threads = None
        self._block = b""
        self._begin = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _next_block(self, wanted_bytes: int) -> None:
        """Bring the block that begins where reading goes on."""
        begin = self._place
        goes_on = bool(self._block) and begin == self._begin + len(self._block)
        self._block = b""  # before the next one comes, so that there is never one more than said
        if goes_on:
            self._prefetch(begin)
            self._begin, self._block = begin, self._ahead.popleft()[1].result()
        else:
            self._forget()
            size_bytes = max(FIRST_BYTES, min(wanted_bytes, BLOCK_BYTES))
            self._block = self._fetch(begin, min(begin + size_bytes, self.size_bytes))
            self._begin = begin

    def _prefetch(self, begin: int) -> None:
        """Ask for the block that begins here and for those behind it, as far as nobody has yet."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1 + READ_AHEAD_BLOCKS, thread_name_prefix="rekord-fetch")
        begin = self._ahead[-1][0] if self._ahead else begin
        while len(self._ahead) <= READ_AHEAD_BLOCKS and begin < self.size_bytes:
            end = min(begin + BLOCK_BYTES, self.size_bytes)
            self._ahead.append((end, self._threads.submit(self._wanted.fetch, self._fetch, begin, end)))
            begin = end

    def _forget(self) -> None:
        """Begin none of the requests that wait."""
        self._wanted.is_cancelled = True
        self._wanted = _CancelToken()
        self._ahead.clear()


class _CancelToken:
    """Whether what was asked for ahead is still wanted."""

    is_cancelled = False

    def fetch(self, fetch: Callable[[int, int], bytes], begin: int, end: int) -> bytes:
        """The range, unless nobody wants it any more."""
        return b"" if self.is_cancelled else fetch(begin, end)


MAX_CONCURRENT_REQUESTS = 32
"""So many requests wait for a server side by side."""

CHECK_ADDRESS_HINT = "check the address: upper and lower case differ there"

_SCHEME_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}
_NOT_FOUND_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM)
_DENIED_STATUSES = (401, 403)
_INCOMPLETE_ERRORS = ("IncompleteRead", "ClientPayloadError", "ContentLengthError", "ResponseStreaming")


class RemoteStorage:
    """All places with a scheme. Files are known by their URLs."""

    def open_read(self, path: str) -> Readable:
        system, inner = _resolve_filesystem(path)
        with _translate_read_errors(path):
            info = system.info(inner)
        if _kind_from_info(info) == "folder":
            raise error("X503", location=Location(path=path), found="a folder", do="name a file in this folder")
        return ReadAhead(path, _size_from_info(path, info), partial(self._range, path))

    def head(self, path: str, most_bytes: int) -> bytes:
        """The first bytes of a file that is not empty, or all of a shorter one, in one request."""
        system, inner = _resolve_filesystem(path)
        with _translate_read_errors(path):
            return bytes(system.cat_file(inner, start=0, end=most_bytes))

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """The bytes from begin to end of each file, fetched side by side."""
        systems = {path: _resolve_filesystem(path) for path in dict.fromkeys(path for path, _, _ in wanted)}
        # Files of several places can be asked for at once; each place is asked in one go.
        together: dict[int, list[int]] = {}
        for number, (path, _, _) in enumerate(wanted):
            together.setdefault(id(systems[path][0]), []).append(number)
        out = [b""] * len(wanted)
        for numbers in together.values():
            asked = [wanted[number] for number in numbers]
            system = systems[asked[0][0]][0]
            with _translate_read_errors(asked[0][0]):
                found = system.cat_ranges(
                    [systems[path][1] for path, _, _ in asked],
                    [begin for _, begin, _ in asked],
                    [end for _, _, end in asked],
                    on_error="return",
                )
            for number, piece, data in zip(numbers, asked, found, strict=True):
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

    def real(self, path: str) -> str:
        return path

    def _refuse_to_write(self, *paths: str, **named: str) -> NoReturn:
        raise read_only_error([*paths, *named.values()][-1])

    create = rename = exchange = link = remove = lock = _refuse_to_write
    make_folder = remove_folder = sync_folder = _refuse_to_write


def _resolve_filesystem(path: str) -> tuple[Any, str]:
    """The file system of a URL, and what the path is called there.

    fsspec keeps connections by process, since they do not survive a fork, and where they cannot be shared by thread.
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
            # What was listed once may be something else by now.
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
            f"`{scheme[:30]}://` is no place that can be read",
            expected="a path on this machine, or a scheme that fsspec knows, such as s3:// or gs://",
            found=f"{scheme[:30]}://",
            do="python -c 'import fsspec; print(fsspec.available_protocols())'",
        ) from None


def _missing_package_error(scheme: str, extra: str) -> RekordError:
    return error(
        "U602",
        f"reading {scheme[:30]}:// needs a package that is not installed",
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
    """What came for a range, if it is all of it."""
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
            do="open the dataset again: the file changed, or the place does not give parts of files",
        )
    return bytes(data)


def _translate_failure(path: str, failure: Exception) -> RekordError:
    """What a file system or a package of some cloud raised, in our words: their kinds of errors are many."""
    where = Location(path=path)
    name = type(failure).__name__
    number = failure.errno if isinstance(failure, OSError) else None
    found = f"{name}: {' '.join(str(failure).split())[:100]}"
    impossible = "ParamValidation" in name  # a name that nothing there can have
    if isinstance(failure, (FileNotFoundError, NotADirectoryError)) or number in _NOT_FOUND_ERRNOS or impossible:
        return error("X501", location=where, found="nothing of this name", do=CHECK_ADDRESS_HINT)
    status = getattr(failure, "status", getattr(failure, "code", None))
    if isinstance(failure, PermissionError) or number in _DENIED_ERRNOS or status in _DENIED_STATUSES:
        return error("X556", location=where, found=found, do="use credentials that may list and read this place")
    if "Credential" in name:
        scheme = path.partition("://")[0]
        setting = "FSSPEC_S3_ANON=true" if _SCHEME_EXTRAS.get(scheme) == "s3" else "FSSPEC_GS_TOKEN=anon"
        do = "say who you are, as other tools of this place expect it"
        public = f"; for a public place: export {setting}" if scheme in _SCHEME_EXTRAS else ""
        return error("X556", location=where, found=found, do=do + public)
    if any(word in name for word in _INCOMPLETE_ERRORS):
        return error(
            "X557",
            location=where,
            expected="as many bytes as the answer announced",
            found=found,
            do="run the same command again: the connection broke, after as many attempts as fsspec makes",
        )
    return error(
        "X555",
        location=where,
        found=found,
        do="check the address and the connection; then run the same command again",
    )


def _kind_from_info(info: Any) -> PathKind:
    return {"file": "file", "directory": "folder"}.get(info.get("type"), "other")  # type: ignore[return-value]


def _size_from_info(path: str, info: Any) -> int:
    size_bytes = info.get("size")
    if size_bytes is None and _kind_from_info(info) == "file":
        raise error(
            "X557",
            "a remote place does not say how long a file is",
            location=Location(path=path),
            expected="a size, so that an answer can be told from half of one",
            found="none",
            do="copy the file to this machine, and read it here",
        )
    return int(size_bytes or 0)


def _version_from_info(info: Any) -> int:
    """A number that changes with the file: of its tag or time, whatever the place keeps."""
    for name in ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created"):
        if info.get(name):
            digest = hashlib.blake2b(str(info[name]).encode(), digest_size=7).digest()
            return int.from_bytes(digest, "big")
    return 0


def _path_identity(path: str) -> tuple[int, int]:
    digest = hashlib.blake2b(path.encode(errors="replace"), digest_size=14).digest()
    return int.from_bytes(digest[:7], "big"), int.from_bytes(digest[7:], "big")


def read_only_error(path: str) -> RekordError:
    """The error for a remote path that was to be written to."""
    return error(
        "X504",
        "remote places are only read",
        location=Location(path=path),
        expected="a path on this machine",
        found=path.partition("://")[0][:30] + "://",
        do="write to a local folder, then copy it",
    )
