"""One storage for reading: local files, and remote ones by URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from rekord.errors import RekordError
from rekord.storage.local import LOCAL, DirectoryEntry, PathKind, Readable, Stat, Storage, Writable
from rekord.storage.remote import MAX_CONCURRENT_REQUESTS, RemoteStorage, read_only_error

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
