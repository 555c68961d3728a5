"""One storage for reading: this machine's files, and places elsewhere by their URLs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Final, TypeVar

from rekord.errors import RekordError
from rekord.storage.local import LOCAL, Entry, Kind, Readable, Stat, Storage, Writable
from rekord.storage.remote import REQUESTS_AT_ONCE, RemoteStorage, is_remote

REMOTE: Final = RemoteStorage()

Asked = TypeVar("Asked")
Given = TypeVar("Given")


class _Anywhere:
    """Hands each path to the storage that it belongs to."""

    def open_read(self, path: str) -> Readable:
        return _of(path).open_read(path)

    def create(self, path: str) -> Writable:
        return _of(path).create(path)

    def rename(self, source: str, target: str) -> None:
        _of(target).rename(source, target)

    def exchange(self, one: str, other: str) -> bool:
        return _of(one).exchange(one, other)

    def link(self, source: str, target: str) -> bool:
        return _of(target).link(source, target) if not is_remote(source) else False

    def remove(self, path: str) -> None:
        _of(path).remove(path)

    def make_folder(self, path: str) -> None:
        _of(path).make_folder(path)

    def remove_folder(self, path: str) -> None:
        _of(path).remove_folder(path)

    def sync_folder(self, path: str) -> None:
        _of(path).sync_folder(path)

    def list(self, folder: str) -> Sequence[Entry]:
        return _of(folder).list(folder)

    def stat(self, path: str) -> Stat:
        return _of(path).stat(path)

    def real(self, path: str) -> str:
        return _of(path).real(path)

    def lock(self, path: str) -> AbstractContextManager[None]:
        return _of(path).lock(path)


def _of(path: str) -> Storage:
    return REMOTE if is_remote(path) else LOCAL


ANYWHERE: Final[Storage] = _Anywhere()


def kind_of(path: str) -> Kind | None:
    """What a path stands for; None where there is nothing, or nothing that can be looked at."""
    try:
        return ANYWHERE.stat(path).kind
    except RekordError as failure:
        if failure.code == "X555":
            raise  # a place that cannot be reached says nothing of what is there
        return None


def each(
    function: Callable[[Asked], Given],
    asked: Sequence[Asked],
    *,
    remote: bool,
    at_once: int = REQUESTS_AT_ONCE,
) -> list[Given]:
    """What a function gives for each, in order: side by side where most of the time is waiting for a server."""
    if not remote or len(asked) < 2:
        return [function(one) for one in asked]
    with ThreadPoolExecutor(min(len(asked), at_once), thread_name_prefix="rekord-ask") as threads:
        return list(threads.map(function, asked))
