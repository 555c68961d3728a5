"""New files on their way to their place: staged in a hidden folder beside it, and visible only when complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

from rekord.engines.journal import Lock, exists, remove_tree
from rekord.errors import RekordError
from rekord.storage.files import Storage, Writable
from rekord.storage.remote import refuse_to_write

_MOST_WAITING = 64
_SYNCING = 8  # threads: what they ask for at once, a file system does in one go


class StagedFolder:
    """A folder of files that do not have their place yet."""

    def __init__(self, folder: str, storage: Storage) -> None:
        self.folder = folder
        self.storage = storage
        self._folders = {folder}
        self._open: list[Writable] = []
        self._waiting: list[Writable] = []  # complete, and not yet on the disk

    def create(self, name: str) -> Writable:
        """A new file below the folder, by a name that is parted by "/"."""
        path = os.path.join(self.folder, *name.split("/"))
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self.storage.make_folder(folder)
        while folder not in self._folders:
            self._folders.add(folder)
            folder = os.path.dirname(folder)
        file = self.storage.create(path)
        self._open.append(file)
        return file

    def close(self, file: Writable) -> None:
        """A file is complete: return when it is on the disk."""
        file.fsync()
        self._closed(file)

    def close_later(self, file: Writable) -> None:
        """A file is complete, one of many: it is brought to the disk together with others."""
        self._waiting.append(file)
        if len(self._waiting) >= _MOST_WAITING:
            self._sync_waiting()

    def sync(self) -> None:
        """Return when everything is on the disk, the names too."""
        self._sync_waiting()
        for folder in sorted(self._folders, reverse=True):
            self.storage.sync_folder(folder)

    def discard(self) -> None:
        """Remove everything."""
        # What led here is the error to tell of, not that the cleaning failed too.
        for file in self._open:
            with suppress(RekordError):
                file.close()
        with suppress(RekordError):
            remove_tree(self.storage, self.folder)

    def _sync_waiting(self) -> None:
        if not self._waiting:
            return
        with ThreadPoolExecutor(_SYNCING, thread_name_prefix="rekord-sync") as pool:
            for _ in pool.map(lambda file: file.fsync(), self._waiting):
                pass
        for file in self._waiting:
            self._closed(file)
        self._waiting = []

    def _closed(self, file: Writable) -> None:
        self._open.remove(file)
        file.close()


@contextmanager
def staged(
    out: str,
    storage: Storage,
    *,
    by: str,
    appear: Callable[[StagedFolder, str], None] | None = None,
) -> Iterator[StagedFolder]:
    """A folder that appears at `out` by one rename when the block ends well, and not at all when it raises.

    `by` is the verb that writes it. `appear` puts the files in their places, below the folder that `out` is in,
    where they are no folder of their own.
    """
    refuse_to_write(out)
    target = storage.real(out)
    parent, name = os.path.split(target)
    made = _missing_folder(parent, storage)
    storage.make_folder(parent)
    folder = os.path.join(parent, f".{name}.rekord-{by}")
    staging = StagedFolder(folder, storage)
    try:
        with Lock(target):
            try:
                if exists(storage, folder):
                    remove_tree(storage, folder)  # of a run that was killed: nobody else holds the lock
                storage.make_folder(folder)
                yield staging
                staging.sync()
                if appear is None:
                    storage.rename(folder, target)
                else:
                    appear(staging, parent)
            except BaseException as failure:
                staging.discard()
                if isinstance(failure, RekordError):
                    _speak_of(out if appear is None else os.path.dirname(out), folder, failure)
                raise
            storage.sync_folder(parent)
    except BaseException:
        while made is not None and len(parent) >= len(made):
            with suppress(RekordError):
                storage.remove_folder(parent)
            parent = os.path.dirname(parent)
        raise


def _speak_of(place: str, folder: str, failure: RekordError) -> None:
    """The name of the staging folder means nothing to anyone: name what it becomes."""
    path = failure.location.path or ""
    if path == folder or path.startswith(folder + "/"):
        below = path[len(folder) + 1 :]
        failure.location = replace(failure.location, path=os.path.join(place, below) if below else place)
        failure.do = None if failure.do is None else failure.do.replace(folder, place or ".")


def _missing_folder(folder: str, storage: Storage) -> str | None:
    """The uppermost folder that will have to be made."""
    missing = None
    while folder and not exists(storage, folder):
        missing, parent = folder, os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    return missing
