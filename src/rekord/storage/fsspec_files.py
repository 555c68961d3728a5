"""Remote files of schemes that fsspec knows, for reading: `memory://`, `https://`, `hf://`, `hdfs://` and others."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.local import DirectoryEntry, PathKind, Readable, Stat
from rekord.storage.read_ahead import ReadAhead
from rekord.storage.traffic import count_traffic

CHECK_ADDRESS_HINT = "check the URL: upper and lower case differ"

_NOT_FOUND_ERRNOS = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_DENIED_ERRNOS = (errno.EACCES, errno.EPERM)
_DENIED_STATUSES = (401, 403)
_INCOMPLETE_ERRORS = ("IncompleteRead", "ClientPayloadError", "ContentLengthError", "ResponseStreaming")

if TYPE_CHECKING:
    from rekord.storage.objects import ListedObject


class FsspecStorage:
    """Paths with a scheme that fsspec knows. Files are identified by their URLs."""

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
            data = bytes(system.cat_file(inner, start=0, end=most_bytes))
        count_traffic(reads=1, read_bytes=len(data))
        return data

    def ranges(
        self, wanted: Sequence[tuple[str, int, int]], *, versions: Mapping[str, int] | None = None
    ) -> list[bytes]:
        """The bytes from begin to end of each file, fetched concurrently.

        `versions` are ignored: fsspec does not report that of a range.
        """
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
            count_traffic(reads=len(pieces), read_bytes=sum(len(out[number]) for number in numbers))
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

    def list_recursive(self, folder: str) -> Iterator[ListedObject]:
        """All files below a folder, in one listing; none if there is no such folder."""
        from rekord.storage.objects import ListedObject

        system, inner = _resolve_filesystem(folder)
        with _translate_read_errors(folder):
            found = system.find(inner, detail=True)
        count_traffic(lists=1)
        prefix = f"{inner.rstrip('/')}/"
        for name, info in found.items():
            if name.startswith(prefix):
                yield ListedObject(
                    path=f"{folder.rstrip('/')}/{name[len(prefix) :]}",
                    size_bytes=int(info.get("size") or 0),
                    etag=info.get("ETag"),
                    mtime_ns=_version_from_info(info),
                )

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
    """The file system of a URL, and the path in it.

    fsspec keeps connections per process, since they do not survive a fork, and per thread if they are not shared.
    """
    scheme, _, _ = path.partition("://")
    try:
        import fsspec
    except ImportError:
        raise _missing_package_error(scheme) from None
    try:
        kind = fsspec.get_filesystem_class(scheme)
        # A host or a user that the URL names.
        options: dict[str, Any] = kind._get_kwargs_from_urls(path)
        if getattr(kind, "async_impl", False):
            # A cached listing may be out of date.
            options["use_listings_cache"] = False
        with _translate_read_errors(path):
            system = kind(**options)
            return system, system._strip_protocol(path)
    except ImportError:
        raise _missing_package_error(scheme) from None
    except ValueError:
        raise error(
            "U605",
            f"unknown scheme `{scheme[:30]}://`",
            expected="a local path, or a scheme that fsspec supports, such as https:// or hf://",
            found=f"{scheme[:30]}://",
            do="python -c 'import fsspec; print(fsspec.available_protocols())'",
        ) from None


def _missing_package_error(scheme: str) -> RekordError:
    return error(
        "U602",
        f"reading {scheme[:30]}:// requires a package that is not installed",
        expected="the extra `remote`, and the package that fsspec asks for",
        found="no such package",
        do="pip install 'rekord[remote]'",
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
        return error("X566", location=where, found=found, do="set up credentials as for other tools of this service")
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


FILES: Final = FsspecStorage()
