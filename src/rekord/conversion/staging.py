"""Staging folders: what is complete, what is half done, and which process holds the lock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.local import LOCAL, Storage, Writable, read_file, write_error
from rekord.storage.remote import refuse_to_write

_Done = TypeVar("_Done", bound=msgspec.Struct)
_TEMPORARY = ".tmp"
_MOST_BYTES = 1 << 34
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)
_ELSEWHERE = "spills"  # the file that says where they are when they are not in map/


def read_bytes(storage: Storage, path: str) -> bytes:
    """The whole of a file of ours."""
    return read_file(path, storage, most_bytes=_MOST_BYTES)


def exists(storage: Storage, path: str) -> bool:
    try:
        storage.stat(path)
    except DatasetError as failure:
        if failure.code == "X501":
            return False
        raise
    return True


class Staging:
    """The files of one unfinished conversion."""

    def __init__(self, folder: str, storage: Storage = LOCAL, *, spills: str | None = None) -> None:
        self.folder = folder
        self.storage = storage
        self.spills = spills or os.path.join(folder, "map")  # elsewhere where another disk is to hold them

    @property
    def out(self) -> str:
        return os.path.join(self.folder, "out")

    def map_path(self, part: int, kind: str) -> str:
        return os.path.join(self.spills, f"{part:05d}.{kind}")

    def shard_done_path(self, split: str, shard: int) -> str:
        return os.path.join(self.folder, "shards", f"{split}-{shard:05d}.done")

    def prepare(self, plan: bytes) -> None:
        """Make the folders, and put away what killed tasks left half done."""
        ours = os.path.join(self.out, ".rekord")
        shards, index = os.path.join(self.folder, "shards"), os.path.join(ours, "index")
        if self._is_elsewhere:
            # First: whoever puts this staging away must know what else is its own.
            self.storage.make_folder(self.folder)
            self.write(os.path.join(self.folder, _ELSEWHERE), os.fsencode(os.path.abspath(self.spills)))
        for folder in (self.spills, shards, index, os.path.join(ours, "blocks")):
            self.storage.make_folder(folder)
        self.put_away(self.folder, self.spills, shards)
        self.put_away()
        if not exists(self.storage, self._plan_path):
            self.write(self._plan_path, plan)

    def put_away(self, *folders: str) -> None:
        """Remove what killed tasks left half done in these folders, or in the dataset itself."""
        ours = os.path.join(self.out, ".rekord")
        for folder in folders or (self.out, ours, os.path.join(ours, "index"), os.path.join(ours, "blocks")):
            for entry in self.storage.list(folder):
                if entry.name.endswith(_TEMPORARY):
                    with suppress(DatasetError):
                        self.storage.remove(os.path.join(folder, entry.name))

    @property
    def _plan_path(self) -> str:
        return os.path.join(self.folder, "plan.json")

    def plan(self) -> dict[str, Any]:
        """The plan that this staging belongs to; empty where none was written."""
        with suppress(DatasetError, *_UNREADABLE):
            document = msgspec.json.decode(read_bytes(self.storage, self._plan_path))
            if isinstance(document, dict):
                return document
        return {}

    def has_finished_tasks(self) -> bool:
        """Whether there is anything that a run could go on from."""
        folders = [
            folder
            for folder in (self.spills, os.path.join(self.folder, "shards"))
            if exists(self.storage, folder)
        ]
        return any(entry.name.endswith(".done") for folder in folders for entry in self.storage.list(folder))

    def temporary(self, path: str) -> str:
        """A name for a file on its way to `path`, of this attempt alone."""
        return f"{path}.{os.getpid()}-{secrets.token_hex(4)}{_TEMPORARY}"

    def write(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """A small file, complete or not there."""
        temporary = self.temporary(path)
        file = self.storage.create(temporary)
        try:
            file.write(data)
            if sync:
                file.fsync()
        except BaseException:
            with suppress(RekordError):
                self.storage.remove(temporary)
            raise
        finally:
            file.close()
        self.storage.rename(temporary, path)

    def write_done(self, path: str, done: msgspec.Struct) -> None:
        body = msgspec.json.encode(done)
        self.write(path, body + f"\n{_checksum(body)}".encode())

    def read_done(self, path: str, kind: type[_Done]) -> _Done | None:
        """What a finished task wrote last; None where it is not finished, or its file is damaged."""
        try:
            body, _, checksum = read_bytes(self.storage, path).rpartition(b"\n")
            if checksum != _checksum(body).encode():
                return None
            return msgspec.json.decode(body, type=kind)
        except (DatasetError, *_UNREADABLE):
            return None

    def size_of(self, path: str) -> int:
        """In bytes; -1 where there is no such file."""
        try:
            return self.storage.stat(path).size_bytes
        except DatasetError:
            return -1

    @property
    def _is_elsewhere(self) -> bool:
        return os.path.dirname(self.spills) != self.folder

    def remove(self) -> None:
        """Remove the folder and everything in it."""
        if self._is_elsewhere and exists(self.storage, self.spills):
            remove_tree(self.storage, self.spills)
        if exists(self.storage, self.folder):
            remove_tree(self.storage, self.folder)


def _checksum(body: bytes) -> str:
    from rekord import _core

    return f"{_core.crc32c(body):08x}"


def remove_tree(storage: Storage, folder: str) -> None:
    """Remove a folder of ours. The done files go last, so that what is left is never taken for more than it is."""
    entries = sorted(storage.list(folder), key=lambda entry: entry.name.endswith((".done", ".json")))
    for entry in entries:
        path = os.path.join(folder, entry.name)
        if entry.kind == "folder" and not entry.link:
            remove_tree(storage, path)
        else:
            storage.remove(path)
    storage.remove_folder(folder)


def open_staging(out: str, plan_id: str, storage: Storage, *, spills: str | None) -> Staging:
    """The staging of a conversion to `out`; its spills lie below `spills` where that is given."""
    place = os.path.abspath(out)
    parent, name = os.path.split(place)
    own = f"{_prefix(name)}{plan_id[:16]}"
    if spills is not None:
        # Spills of several datasets may lie there, and some of the same name.
        spills = os.path.join(spills, f"{own}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:8]}")
    return Staging(os.path.join(parent, own), storage, spills=spills)


def stagings(out: str, storage: Storage) -> list[Staging]:
    """All stagings for one place, of whatever plans."""
    parent, name = os.path.split(os.path.abspath(out))
    prefix = _prefix(name)
    return [
        Staging(folder, storage, spills=_elsewhere(folder, storage))
        for entry in storage.list(parent)
        if entry.kind == "folder" and entry.name.startswith(prefix) and len(entry.name) == len(prefix) + 16
        for folder in (os.path.join(parent, entry.name),)
    ]


def _elsewhere(folder: str, storage: Storage) -> str | None:
    """Where the spills of a staging are, if not in it."""
    path = os.path.join(folder, _ELSEWHERE)
    spills = os.fsdecode(read_bytes(storage, path)) if exists(storage, path) else ""
    # What it names will be removed: nothing but a folder of ours has such a name.
    ours = os.path.basename(spills).startswith(f"{os.path.basename(folder)}-")
    return spills if ours and exists(storage, spills) else None


def _prefix(name: str) -> str:
    return f".{name}.rekord-"


class Lock:
    """Held while a process writes to a place. The system lets go of it when the process dies, however it dies."""

    def __init__(self, out: str) -> None:
        self.out = out
        parent, name = os.path.split(os.path.abspath(out))
        self._path = os.path.join(parent, f".{name}.rekord.lock")
        self._descriptor = -1

    def __enter__(self) -> Lock:
        try:
            while True:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(descriptor)
                    raise self._refused() from None
                # The one who held it before may have removed the file between our opening and our locking.
                if _same_file(descriptor, self._path):
                    break
                os.close(descriptor)
        except OSError as failure:
            raise write_error(self._path, failure) from failure
        self._descriptor = descriptor
        with suppress(OSError):
            os.truncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        return self

    def __exit__(self, *failure: Any) -> None:
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)

    def _refused(self) -> RekordError:
        with suppress(OSError), open(self._path, encoding="ascii", errors="replace") as file:
            holder = file.read(20)
            return _in_use(self.out, f"process {holder}" if holder.isdigit() else "another process")
        return _in_use(self.out, "another process")


def _in_use(out: str, who: str) -> RekordError:
    return error(
        "X512",
        location=Location(path=out),
        expected="one writer at a time",
        found=f"{who} is writing to it",
        do="wait until it ends, or write to another place",
    )


def _same_file(descriptor: int, path: str) -> bool:
    ours = os.fstat(descriptor)
    try:
        theirs = os.stat(path)
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)


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
