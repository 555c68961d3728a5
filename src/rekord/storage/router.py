"""One storage for all paths: local files, `s3://`, `gs://` and `az://` through obstore, other URLs through fsspec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, TypeVar, cast

from rekord.errors import RekordError
from rekord.storage.local import LOCAL, DirectoryEntry, PathKind, Readable, Stat, Storage, Writable

if TYPE_CHECKING:
    from rekord.storage.fsspec_files import FsspecStorage
    from rekord.storage.lease import ConditionalStorage
    from rekord.storage.objects import ObjectStorage

OBJECT_SCHEMES: Final = ("s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss")
"""Schemes of object storage; all others belong to fsspec."""

MAX_CONCURRENT_REQUESTS = 32
"""Most concurrent requests of a call."""

CHECK_ADDRESS_HINT = "check the URL: upper and lower case differ"

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


UNREACHABLE_CODES: Final = frozenset({"X555", "X556", "X566", "X567", "X568", "X569", "X577"})
"""Codes of errors that say nothing about whether a file exists, or what is in it."""


def is_remote(path: str) -> bool:
    """Whether a path is remote: `scheme://…`. A drive letter is not a scheme."""
    scheme, found, _ = path.partition("://")
    return bool(found) and len(scheme) > 1 and scheme.replace("+", "").replace("-", "").isalnum()


def is_object_path(path: str) -> bool:
    """Whether a path is in object storage."""
    return path.partition("://")[0] in OBJECT_SCHEMES


def reject_remote_write(path: str) -> None:
    """Raise for a remote path: locally it would become a folder with a colon in its name."""
    if is_remote(path):
        from rekord.storage.fsspec_files import read_only_error

        raise read_only_error(path)


class RemoteFiles:
    """What reading remote files needs beyond a `Storage`: several ranges at once, of one version of each file."""

    def open_read(self, path: str) -> Readable:
        return _remote_storage_for(path).open_read(path)

    def head(self, path: str, most_bytes: int) -> bytes:
        """The first bytes of a file that is not empty, or all of a shorter one, in one request."""
        return _remote_storage_for(path).head(path, most_bytes)

    def ranges(
        self, wanted: Sequence[tuple[str, int, int]], *, versions: Mapping[str, int] | None = None
    ) -> list[bytes]:
        """The bytes from begin to end of each file, fetched concurrently.

        `versions` are what `Stat.mtime_ns` was when a file was opened; where storage reports versions, X548 if it
        is another one now.
        """
        groups: dict[int, list[int]] = {}
        storages = [_remote_storage_for(path) for path, _, _ in wanted]
        for number, storage in enumerate(storages):
            groups.setdefault(id(storage), []).append(number)
        if len(groups) == 1:
            return storages[0].ranges(wanted, versions=versions)
        out = [b""] * len(wanted)
        for numbers in groups.values():
            found = storages[numbers[0]].ranges([wanted[number] for number in numbers], versions=versions)
            for number, data in zip(numbers, found, strict=True):
                out[number] = data
        return out

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        return _remote_storage_for(folder).list(folder)

    def walk(self, folder: str) -> Iterator[tuple[str, int, int]]:
        """All files below a folder, in one listing: path below it, size and version; none without such a folder."""
        prefix = f"{folder.rstrip('/')}/"
        for listed in _remote_storage_for(folder).list_recursive(folder):
            yield listed.path[len(prefix) :], listed.size_bytes, listed.mtime_ns

    def stat(self, path: str) -> Stat:
        return _remote_storage_for(path).stat(path)

    def real(self, path: str) -> str:
        return path


REMOTE: Final = RemoteFiles()


def _remote_storage_for(path: str) -> ObjectStorage | FsspecStorage:
    # Imported on use: local paths need neither.
    if is_object_path(path):
        from rekord.storage.objects import OBJECTS

        return OBJECTS
    from rekord.storage.fsspec_files import FILES

    return FILES


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
        if is_remote(source) != is_remote(target):
            return False
        return _storage_for(target).link(source, target)

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


def conditional_storage(path: str, storage: Storage) -> ConditionalStorage:
    """The storage of a remote path, to publish something there; X504 if it has no conditional writes."""
    found = _storage_for(path) if isinstance(storage, _RoutedStorage) else storage
    if not hasattr(found, "replace_if"):
        reject_remote_write(path)
    return cast("ConditionalStorage", found)


def _storage_for(path: str) -> Storage:
    return _remote_storage_for(path) if is_remote(path) else LOCAL


ROUTED_STORAGE: Final[Storage] = _RoutedStorage()


_ABSENCE_CODES = ("X501", "X556")
"""What a server answers for what does not exist. Without the right to list, a missing object is a denied one."""


def get_path_kind(path: str) -> PathKind | None:
    """The kind of a path; None if nothing exists there, or nothing that can be inspected."""
    try:
        return ROUTED_STORAGE.stat(path).kind
    except RekordError as failure:
        if is_remote(path) and failure.code not in _ABSENCE_CODES:
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
