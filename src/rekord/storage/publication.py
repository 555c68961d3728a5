"""How a target becomes visible at once: by a rename on a file system, by its last object in object storage.

`transaction` draws both. Everything else of publishing is the same, and there.
"""

from __future__ import annotations

import os.path
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

import msgspec

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.lease import ConditionalStorage, Lease, check_lease, hold_lease
from rekord.storage.local import DirectoryEntry, PathKind, Storage, read_file
from rekord.storage.object_errors import ConflictError
from rekord.storage.router import conditional_storage, is_object_path, is_remote

HIDDEN_FOLDER = ".rekord"
"""The folder of a dataset with everything of ours; in object storage also with what is not published yet."""

STAGED_PREFIX = ".rekord-staged-"
"""Prefix of staged files: hidden, and of the same length whatever the target is named."""

TEMPORARY = ".tmp"
"""Extension of files in a staging that a task has not finished."""

_REMOVED_LAST = (".done", ".json")
_STAGING = "staging"  # prefix of what is not published yet, below the hidden folder of objects
_SHARD_NAME = re.compile(r"-\d{5,}-of-\d{5,}[^/]*\Z")
_MARKER = f"{HIDDEN_FOLDER}/unfinished"
_MOST_MARKER_BYTES = 1 << 16
_MOST_BYTES = 1 << 34


def kind_at(storage: Storage, path: str) -> PathKind | None:
    """The kind of what exists at this path; None if nothing does."""
    try:
        return storage.stat(path).kind
    except DatasetError as failure:
        if failure.code != "X501":
            raise
        return None


def exists(storage: Storage, path: str) -> bool:
    """Whether anything exists at this path."""
    return kind_at(storage, path) is not None


def read_bytes(storage: Storage, path: str) -> bytes:
    """The contents of a file of ours."""
    if is_object_path(path):
        return conditional_storage(path, storage).read(path, most_bytes=_MOST_BYTES)[0]
    return read_file(path, storage, most_bytes=_MOST_BYTES)


def file_sizes(storage: Storage, folder: str) -> Iterator[int]:
    """The sizes of all files in a folder and below it, in bytes."""
    for entry in storage.list(folder):
        path = os.path.join(folder, entry.name)
        if entry.kind == "folder":
            yield from file_sizes(storage, path)
        else:
            yield storage.stat(path).size_bytes if entry.size_bytes is None else entry.size_bytes


def remove_tree(storage: Storage, folder: str) -> None:
    """Remove a folder of ours, if it exists; of a link, only the link: what it leads to is not ours."""
    if not exists(storage, folder):
        return
    parent, name = os.path.split(folder)
    if not is_remote(folder) and any(entry.link for entry in storage.list(parent or ".") if entry.name == name):
        storage.remove(folder)
    else:
        _remove_folder(storage, folder)


def _remove_folder(storage: Storage, folder: str) -> None:
    """The done files go last: an interrupted removal must not look like finished work."""
    if is_object_path(folder):
        objects = conditional_storage(folder, storage)
        paths = [one.path for one in objects.list_recursive(folder)]
        last = [path for path in paths if path.endswith(_REMOVED_LAST)]
        objects.remove_many([path for path in paths if not path.endswith(_REMOVED_LAST)])
        objects.remove_many(last)
        return
    for entry in sorted(storage.list(folder), key=lambda entry: entry.name.endswith(_REMOVED_LAST)):
        _remove_entry(storage, os.path.join(folder, entry.name), entry)
    storage.remove_folder(folder)


def _remove_entry(storage: Storage, path: str, entry: DirectoryEntry) -> None:
    if entry.kind == "folder" and not entry.link:
        _remove_folder(storage, path)
    else:
        storage.remove(path)


def rename_folder(storage: Storage, staged: str, target: str, *, aside: str | None) -> None:
    """Rename a staged folder to the target; an existing one is renamed first, and back on failure."""
    if aside is not None:
        storage.rename(target, aside)
    try:
        storage.rename(staged, target)
    except RekordError:
        if aside is not None:
            storage.rename(aside, target)
        raise
    storage.sync_folder(os.path.dirname(target))


def temporary_path(path: str) -> str:
    """The path of a file of a staging while it is written: an object is not visible before it is complete."""
    return path if is_remote(path) else f"{path}.{secrets.token_hex(8)}{TEMPORARY}"  # unique to this attempt


class Publication(Protocol):
    """What makes one target visible."""

    target: str

    def hidden(self, what: str) -> str:
        """A hidden path of the target."""

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Hold a lock of the target in a `with` block; X512 if somebody else holds it."""

    def check_lock(self) -> None:
        """X512 if the lock was taken over."""

    def find(self) -> PathKind | None:
        """The kind of what is published under the name of the target; None if nothing is."""

    def staged_file(self) -> str:
        """The path of the target's file while it is written."""

    # A folder written by tasks.

    def staged_output(self, folder: str) -> str:
        """Where the output of the staging in `folder` lies until it is published."""

    def begin(self, run: str, last: str) -> None:
        """A run writes to the staged output from now on, `last` at its end. What another run left is removed."""

    def announce(self, names: Sequence[str]) -> None:
        """The run is about to write files of these names, which are not those of shards."""

    def complete(self, staged: str, last: tuple[str, bytes]) -> None:
        """Publish the staged output with its last file."""

    def abandon(self, run: str) -> None:
        """Remove the staged output of a run, unless it is published."""

    # A folder, or files, written in one go.

    def parent_folder(self) -> AbstractContextManager[None]:
        """Make the folder of the target; if the block raises, what was made is removed."""

    def staged_folder(self, by: str, *, as_files: bool) -> str:
        """Where the files lie until they are published."""

    def begin_folder(self, by: str, last: str | None, *, as_files: bool) -> None:
        """A run by this verb writes to the staged folder, `last` at its end. What an earlier one left is removed."""

    def complete_folder(self, by: str, last: tuple[str, bytes] | None, *, as_files: bool, overwrite: bool) -> None:
        """Publish the files, with their last one."""

    def discard_folder(self, by: str, created: Sequence[str], *, as_files: bool) -> None:
        """Remove what was written; `created` are the paths of the files that replaced no others."""


def open_publication(path: str, storage: Storage) -> Publication:
    """The publication that the storage of a path needs."""
    if is_remote(path):
        return ObjectPublication(conditional_storage(path, storage), path)
    # A link stays a link: its target is replaced.
    return RenamePublication(storage, storage.real(path))


class RenamePublication:
    """On a file system, a rename publishes what was staged next to the target."""

    def __init__(self, storage: Storage, target: str) -> None:
        self.target = target
        self._storage = storage
        self._parent, self._name = os.path.split(target)

    def hidden(self, what: str) -> str:
        return os.path.join(self._parent, f".{self._name}.rekord{what}")

    def lock(self, path: str) -> AbstractContextManager[None]:
        return self._storage.lock(path)

    def check_lock(self) -> None:
        """Nobody takes over the lock of a process that lives."""

    def find(self) -> PathKind | None:
        return kind_at(self._storage, self.target)

    def staged_file(self) -> str:
        return os.path.join(self._parent, f"{STAGED_PREFIX}{secrets.token_hex(8)}")

    def staged_output(self, folder: str) -> str:
        return os.path.join(folder, "out")

    def begin(self, run: str, last: str) -> None:
        """The staged output is a folder of the staging."""

    def announce(self, names: Sequence[str]) -> None:
        """All that is in the folder of the staging is known to be of the run."""

    def complete(self, staged: str, last: tuple[str, bytes]) -> None:
        storage = self._storage
        self._write_last(staged, last)
        self._sync_tree(staged)
        taken = exists(storage, self.target) and bool(storage.list(self.target))
        aside = self.hidden(f"-old-{secrets.token_hex(4)}") if taken else None
        rename_folder(storage, staged, self.target, aside=aside)

    def abandon(self, run: str) -> None:
        """The staged output goes with the staging."""

    @contextmanager
    def parent_folder(self) -> Iterator[None]:
        made = self._missing_folder()
        self._storage.make_folder(self._parent)
        try:
            yield
        except BaseException:
            folder = self._parent
            while made is not None and len(folder) >= len(made):
                with suppress(RekordError):
                    self._storage.remove_folder(folder)
                folder = os.path.dirname(folder)
            raise

    def staged_folder(self, by: str, *, as_files: bool) -> str:
        return self.hidden(f"-{by}")

    def begin_folder(self, by: str, last: str | None, *, as_files: bool) -> None:
        folder = self.hidden(f"-{by}")
        remove_tree(self._storage, folder)  # left by a killed run: nobody else holds the lock
        self._storage.make_folder(folder)

    def complete_folder(self, by: str, last: tuple[str, bytes] | None, *, as_files: bool, overwrite: bool) -> None:
        folder = self.hidden(f"-{by}")
        if last is not None:
            self._write_last(folder, last)
            self._storage.sync_folder(folder)
        if as_files:
            self._rename_files(folder, overwrite=overwrite)
        else:
            self._storage.rename(folder, self.target)
        self._storage.sync_folder(self._parent)

    def discard_folder(self, by: str, created: Sequence[str], *, as_files: bool) -> None:
        remove_tree(self._storage, self.hidden(f"-{by}"))

    def _rename_files(self, folder: str, *, overwrite: bool) -> None:
        storage = self._storage
        committed: list[str] = []
        try:
            for entry in storage.list(folder):
                target = os.path.join(self._parent, entry.name)
                storage.rename(os.path.join(folder, entry.name), target)
                committed.append(target)
        except BaseException:
            for target in [] if overwrite else committed:
                with suppress(RekordError):
                    storage.remove(target)
            raise
        with suppress(RekordError):
            storage.remove_folder(folder)  # empty now; the files are in place even if this fails

    def _write_last(self, staged: str, last: tuple[str, bytes]) -> None:
        path = os.path.join(staged, last[0])
        temporary = temporary_path(path)
        file = self._storage.create(temporary)
        try:
            file.write(last[1])
            file.fsync()
            file.close()
            self._storage.rename(temporary, path)
        except BaseException:
            # The original failure is the error to report, not a failed cleanup.
            with suppress(RekordError):
                file.abort()
            with suppress(RekordError):
                self._storage.remove(temporary)
            raise

    def _sync_tree(self, folder: str) -> bool:
        """Sync the names in a folder and below it; False if nothing is in it, and it was removed.

        A worker whose driver was killed may have started a file after this run removed such files.
        """
        storage, is_used = self._storage, False
        for entry in storage.list(folder):
            path = os.path.join(folder, entry.name)
            if entry.kind == "folder" and not entry.link:
                is_used |= self._sync_tree(path)
            elif entry.name.endswith(TEMPORARY):
                with suppress(DatasetError):
                    storage.remove(path)
            else:
                is_used = True
        if is_used:
            storage.sync_folder(folder)
        else:
            storage.remove_folder(folder)
        return is_used

    def _missing_folder(self) -> str | None:
        """The topmost folder that does not exist yet."""
        missing, folder = None, self._parent
        while folder and not exists(self._storage, folder):
            missing, folder = folder, os.path.dirname(folder)
            if folder == missing:
                break
        return missing


class UnfinishedMarker(msgspec.Struct, frozen=True):
    """The object that marks a prefix as unfinished."""

    run: str
    last: str | None = None  # the object that makes it complete; None: the removal of the marker does
    files: list[str] = []  # of the run, apart from shards and what is in the hidden folder


class ObjectPublication:
    """In object storage, files have their final names at once, and the last object makes the target complete.

    Until then a marker says that it is unfinished. Nothing was below the target when the marker was written. Still,
    only objects that the run has announced, or that have names of shards, are removed with it.
    """

    def __init__(self, storage: ConditionalStorage, target: str, lease: tuple[str, str] | None = None) -> None:
        self.target = target.rstrip("/")
        self.lease = lease  # its path and token, so that tasks in other processes can check it
        self._storage = storage
        self._held: Lease | None = None  # by this process

    @property
    def identity(self) -> tuple[str, tuple[str, str] | None]:
        """What other processes need, to write to the target and to check the lease."""
        return self.target, self.lease

    def hidden(self, what: str) -> str:
        return f"{self.target}/{HIDDEN_FOLDER}/{_STAGING}{what}"

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        with hold_lease(self._storage, path, self.target) as held:
            self._held, self.lease = held, (path, held.token)
            try:
                yield
            finally:
                self._held = None

    def check_lock(self) -> None:
        if self.lease is not None:
            check_lease(self._storage, *self.lease, self.target)

    def find(self) -> PathKind | None:
        storage, target = self._storage, self.target
        kind = kind_at(storage, target)
        if kind != "folder":
            return kind
        marker = read_marker(storage, target)
        if marker is not None:
            return "folder" if self._is_complete(marker) else None
        names = [entry.name for entry in storage.list(target)]
        if names == [HIDDEN_FOLDER]:
            inside = storage.list(f"{target}/{HIDDEN_FOLDER}")
            return None if all(entry.name.startswith(_STAGING) for entry in inside) else "folder"
        return "folder" if names else None

    def staged_file(self) -> str:
        return self.target  # an upload is visible once it is complete

    def staged_output(self, folder: str) -> str:
        return self.target

    def begin(self, run: str, last: str) -> None:
        marker = read_marker(self._storage, self.target)
        if marker is not None and marker.run == run:
            return
        if marker is not None:
            self.abandon(marker.run)
        self._mark(UnfinishedMarker(run, last))

    def announce(self, names: Sequence[str]) -> None:
        marker = read_marker(self._storage, self.target)
        if marker is not None and names:
            self._mark(msgspec.structs.replace(marker, files=list(names)))

    def complete(self, staged: str, last: tuple[str, bytes]) -> None:
        self._put_last(last)
        self._storage.remove(self._marker_path)

    def abandon(self, run: str) -> None:
        marker = read_marker(self._storage, self.target)
        if marker is None or marker.run != run:
            return
        if not self._is_complete(marker):
            self._remove_output(marker.files)
        self._storage.remove(self._marker_path)

    @contextmanager
    def parent_folder(self) -> Iterator[None]:
        yield  # there are no folders

    def staged_folder(self, by: str, *, as_files: bool) -> str:
        return os.path.dirname(self.target) if as_files else self.target

    def begin_folder(self, by: str, last: str | None, *, as_files: bool) -> None:
        if as_files:
            return
        marker = read_marker(self._storage, self.target)
        if marker is not None and marker.run != by:
            raise error(
                "U618",
                location=Location(path=self.target),
                expected="nothing yet",
                found="an unfinished dataset, which the command that writes it can resume",
                do="choose another output path",
            )
        self.abandon(by)
        self._mark(UnfinishedMarker(by, last))

    def complete_folder(self, by: str, last: tuple[str, bytes] | None, *, as_files: bool, overwrite: bool) -> None:
        if last is not None:
            self._put_last(last)
        elif self._held is not None:
            self._held.renew()
        if not as_files:
            self._storage.remove(self._marker_path)

    def discard_folder(self, by: str, created: Sequence[str], *, as_files: bool) -> None:
        self.check_lock()
        self._storage.remove_many(created)
        if not as_files:
            self.abandon(by)

    @property
    def _marker_path(self) -> str:
        return f"{self.target}/{_MARKER}"

    def _mark(self, marker: UnfinishedMarker) -> None:
        self._storage.put(self._marker_path, msgspec.json.encode(marker), create_only=False)

    def _is_complete(self, marker: UnfinishedMarker) -> bool:
        return marker.last is not None and kind_at(self._storage, f"{self.target}/{marker.last}") == "file"

    def _put_last(self, last: tuple[str, bytes]) -> None:
        """Create the last object, if this run still holds the lease."""
        if self._held is not None:
            self._held.renew()
        path = f"{self.target}/{last[0]}"
        try:
            self._storage.put(path, last[1], create_only=True)
        except ConflictError:
            if read_bytes(self._storage, path) != last[1]:
                raise

    def _remove_output(self, files: Sequence[str]) -> None:
        begin = len(self.target) + 1
        paths = [one.path for one in self._storage.list_recursive(self.target)]
        kept = f"{HIDDEN_FOLDER}/{_STAGING}"
        output = [path for path in paths if path != self._marker_path and not path[begin:].startswith(kept)]
        for path in output:
            name = path[begin:]
            if name not in files and not name.startswith(f"{HIDDEN_FOLDER}/") and not _SHARD_NAME.search(name):
                raise error(
                    "U618",
                    "unfinished output contains files that rekord may not have written",
                    location=Location(path=path),
                    expected="shards, and what is written next to them",
                    found="another object",
                    do="move it away, remove it, or choose another output path",
                )
        self._storage.remove_many(output)


def check_finished(storage: Storage, folder: str) -> None:
    """X564 for a folder in object storage that a run is still writing, or died while writing."""
    folder = folder.rstrip("/")
    if not is_object_path(folder):
        return
    marker = read_marker(storage, folder)
    if marker is None or (marker.last is not None and exists(storage, f"{folder}/{marker.last}")):
        return
    raise error(
        "X564",
        location=Location(path=folder),
        expected=marker.last or "a complete output",
        found="an unfinished run",
        do="run the command that writes it again: it resumes",
    )


def read_marker(storage: Storage, folder: str) -> UnfinishedMarker | None:
    """The marker of an unfinished target; None if there is none."""
    path = f"{folder}/{_MARKER}"
    if kind_at(storage, path) != "file":
        return None
    try:
        marker = msgspec.json.decode(read_file(path, storage, most_bytes=_MOST_MARKER_BYTES), type=UnfinishedMarker)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return UnfinishedMarker("")  # not one of ours, but nothing complete either
    return msgspec.structs.replace(marker, last=None) if "/" in (marker.last or "") else marker
