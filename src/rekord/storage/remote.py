"""Places that fsspec knows (`s3://`, `gs://`, `memory://`, …), for reading.

A file that is read from front to end is fetched block by block, the next block while the last one is being decoded;
records in any order are fetched as ranges, many at once. Nothing is written there.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.files import Entry, Kind, Readable, Stat, Writable, read_error

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer, Self

BLOCK_BYTES = 8 << 20
"""What one request of a sequential read asks for: enough to forget its latency."""

_BLOCKS_KEPT = 3
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


def is_remote(path: str) -> bool:
    """Whether a path names a place elsewhere: `scheme://…`. A drive letter is no scheme."""
    scheme, found, _ = path.partition("://")
    return bool(found) and len(scheme) > 1 and scheme.replace("+", "").replace("-", "").isalnum()


class RemoteStorage:
    """All places with a scheme. Files are known by their URLs."""

    def open_read(self, path: str) -> Readable:
        system, inner = _system(path)
        with _reading(path):
            info = system.info(inner)
            size_bytes = int(info.get("size") or 0)
            file = system.open(
                inner,
                "rb",
                block_size=BLOCK_BYTES,
                cache_type="background",
                cache_options={"maxblocks": _BLOCKS_KEPT},
            )
        return _RemoteReadable(path, file, size_bytes)

    def ranges(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """The bytes from begin to end of each file, fetched side by side."""
        if not wanted:
            return []
        system, _ = _system(wanted[0][0])
        inner = [_system(path)[1] for path, _, _ in wanted]
        begins, ends = [begin for _, begin, _ in wanted], [end for _, _, end in wanted]
        with _reading(wanted[0][0]):
            found = system.cat_ranges(inner, begins, ends, on_error="raise")
        for (path, begin, end), data in zip(wanted, found, strict=True):
            if len(data) != end - begin:
                raise error(
                    "X503",
                    location=Location(path=path),
                    expected=f"{end - begin:,} bytes from byte {begin:,} on",
                    found=f"{len(data):,} bytes",
                    do="the file changed or the connection broke: run the same command again",
                )
        return [bytes(data) for data in found]

    def list(self, folder: str) -> Sequence[Entry]:
        system, inner = _system(folder)
        with _reading(folder):
            found = system.ls(inner, detail=True)
        entries = []
        for info in found:
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if name and str(info["name"]).rstrip("/") != inner.rstrip("/"):
                entries.append(Entry(name=name, kind=_kind(info), link=False))
        return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def stat(self, path: str) -> Stat:
        system, inner = _system(path)
        with _reading(path):
            info = system.info(inner)
        return Stat(
            kind=_kind(info),
            size_bytes=int(info.get("size") or 0),
            mtime_ns=_version(info),
            identity=_identity(path),
        )

    def real(self, path: str) -> str:
        return path

    def create(self, path: str) -> Writable:
        raise _only_read(path)

    def rename(self, source: str, target: str) -> None:
        raise _only_read(target)

    def remove(self, path: str) -> None:
        raise _only_read(path)

    def make_folder(self, path: str) -> None:
        raise _only_read(path)

    def remove_folder(self, path: str) -> None:
        raise _only_read(path)

    def sync_folder(self, path: str) -> None:
        raise _only_read(path)


class _RemoteReadable:
    """A file elsewhere, open for reading."""

    def __init__(self, path: str, file: Any, size_bytes: int) -> None:
        self.path = path
        self._file = file
        self.size_bytes = size_bytes

    def readinto(self, buffer: Buffer, /) -> int:
        with _reading(self.path), memoryview(buffer) as view:
            data = self._file.read(len(view))
            view[: len(data)] = data
            return len(data)

    def seek(self, offset: int, /) -> int:
        with _reading(self.path):
            return int(self._file.seek(offset))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


def _system(path: str) -> tuple[Any, str]:
    """The file system of a URL, and what the path is called there."""
    scheme, _, _ = path.partition("://")
    system = _opened(scheme, os.getpid())
    return system, system._strip_protocol(path)


@lru_cache(maxsize=32)
def _opened(scheme: str, process: int) -> Any:
    # By process: connections and their threads do not survive a fork.
    try:
        import fsspec
    except ImportError:
        raise _missing(scheme, "remote") from None
    try:
        return fsspec.filesystem(scheme, skip_instance_cache=True)
    except ImportError:
        raise _missing(scheme, _EXTRAS.get(scheme, "remote")) from None
    except ValueError:
        raise error(
            "U605",
            f"`{scheme[:30]}://` is no place that can be read",
            expected="a path on this machine, or a scheme that fsspec knows, such as s3:// or gs://",
            found=f"{scheme[:30]}://",
            do="python -c 'import fsspec; print(fsspec.available_protocols())'",
        ) from None


def _missing(scheme: str, extra: str) -> RekordError:
    return error(
        "U602",
        f"reading {scheme[:30]}:// needs a package that is not installed",
        expected=f"the extra `{extra}`",
        found="no such package",
        do=f"pip install 'rekord[{extra}]'",
    )


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except RekordError:
        raise
    except OSError as failure:
        raise read_error(path, failure) from failure
    except Exception as failure:
        # What the packages of the clouds raise is of their own kinds; what they say is kept.
        told = OSError(errno.EIO, f"{type(failure).__name__}: {str(failure)[:200]}")
        raise error(
            "X503",
            location=Location(path=path),
            found=str(told.strerror)[:200],
            do="check the credentials, the address and the connection; then run the same command again",
        ) from failure


def _kind(info: Any) -> Kind:
    return {"file": "file", "directory": "folder"}.get(info.get("type"), "other")  # type: ignore[return-value]


def _version(info: Any) -> int:
    """A number that changes with the file: of its tag or time, whatever the place keeps."""
    for name in ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created"):
        if info.get(name):
            digest = hashlib.blake2b(str(info[name]).encode(), digest_size=7).digest()
            return int.from_bytes(digest, "big")
    return 0


def _identity(path: str) -> tuple[int, int]:
    digest = hashlib.blake2b(path.encode(errors="replace"), digest_size=14).digest()
    return int.from_bytes(digest[:7], "big"), int.from_bytes(digest[7:], "big")


def _only_read(path: str) -> RekordError:
    return error(
        "X504",
        "remote places are only read",
        location=Location(path=path),
        expected="a path on this machine",
        found=path.partition("://")[0][:30] + "://",
        do="write to a local folder, then copy it",
    )
