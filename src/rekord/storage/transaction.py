"""Publishing files: lock a target, stage under a hidden name, commit in one step, recover after a crash.

Everything that rekord publishes as NAME is staged next to it, so that committing is a rename:

    NAME is a file           .rekord-staged-HEX                          → NAME
    a folder, in one go      .NAME.rekord-VERB/                          → NAME/
    a folder, by tasks       .NAME.rekord-PLAN/out/                      → NAME/      plan.json, map/, shards/*.done
    in place of another      .NAME.rekord-edit/data/                     ⇄ NAME/      .NAME.rekord-swap is the journal
    what is replaced         NAME/                                       → .NAME.rekord-old-HEX/, then removed
    one writer at a time     .NAME.rekord.lock

Nothing here calls the operating system: a `Storage` does, so that other storages need no other transaction.
"""

from __future__ import annotations

import hashlib
import os.path
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.local import LOCAL, PathKind, PathLike, Storage, Writable, read_file
from rekord.storage.router import reject_remote_write

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

STAGED_PREFIX = ".rekord-staged-"
"""Prefix of staged files: hidden, and of the same length whatever the target is named."""

_TEMPORARY = ".tmp"  # extension of files in a staging that a task has not finished
_SPILLS = "spills"  # the file with the folder of a staging's spills, if that is not map/
_MOST_BYTES = 1 << 34
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)
_MOST_WAITING = 64
_SYNCING = 8  # threads: a file system combines concurrent syncs
_WRITE_BYTES = 1 << 20

_Done = TypeVar("_Done", bound=msgspec.Struct)
_Swap = TypeVar("_Swap", bound="SwapRecord")


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
    return read_file(path, storage, most_bytes=_MOST_BYTES)


def remove_tree(storage: Storage, folder: str) -> None:
    """Remove a folder of ours, if it exists; of a link, only the link: what it leads to is not ours."""
    if not exists(storage, folder):
        return
    parent, name = os.path.split(folder)
    if any(entry.link for entry in storage.list(parent or ".") if entry.name == name):
        storage.remove(folder)
    else:
        _remove_folder(storage, folder)


def _remove_folder(storage: Storage, folder: str) -> None:
    """The done files go last: an interrupted removal must not look like finished work."""
    entries = sorted(storage.list(folder), key=lambda entry: entry.name.endswith((".done", ".json")))
    for entry in entries:
        path = os.path.join(folder, entry.name)
        if entry.kind == "folder" and not entry.link:
            _remove_folder(storage, path)
        else:
            storage.remove(path)
    storage.remove_folder(folder)


class Transaction:
    """One path to publish. Errors name it as given, or as `shown`."""

    def __init__(self, path: PathLike, storage: Storage = LOCAL, *, shown: str | None = None) -> None:
        self.path = os.fspath(path)
        reject_remote_write(self.path)
        self.shown = self.path if shown is None else shown
        self.storage = storage
        # A link stays a link: its target is replaced.
        self.target = storage.real(self.path)
        self.parent, self.name = os.path.split(self.target)

    def hidden(self, what: str) -> str:
        """A hidden path next to the target."""
        return os.path.join(self.parent, f".{self.name}.rekord{what}")

    @contextmanager
    def lock(self) -> Iterator[Self]:
        """Hold the lock of the target during the block: one writer at a time."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self.storage.lock(self.hidden(".lock")))
            except RekordError as failure:
                if failure.code == "X512":
                    failure.location = Location(path=self.shown)
                raise
            yield self

    def staging(self, plan_id: str, *, spills: str | None = None) -> Staging:
        """The staging of one plan; its spills are below `spills`, if given."""
        folder = self.hidden(f"-{plan_id[:16]}")
        if spills is not None:
            # It may hold the spills of several datasets, some with the same name.
            own = hashlib.sha256(self.target.encode(errors="surrogateescape")).hexdigest()[:8]
            spills = os.path.join(self.storage.real(spills), f"{os.path.basename(folder)}-{own}")
        return Staging(folder, self.storage, spills=spills)

    def stagings(self) -> list[Staging]:
        """All stagings for this target, of any plan."""
        length = len(self.hidden("-")) + 16
        return [
            Staging(folder, self.storage, spills=_spills_of(folder, self.storage))
            for folder in self._beside("-")
            if len(folder) == length
        ]

    def commit(self, staged: str) -> None:
        """Publish a staged folder. An existing one gets a hidden name, for `remove_replaced`."""
        taken = exists(self.storage, self.target) and bool(self.storage.list(self.target))
        self._rename(staged, aside=self.hidden(f"-old-{secrets.token_hex(4)}") if taken else None)

    def remove_replaced(self, remove: Callable[[str], str | None]) -> str | None:
        """Remove the folders that `commit` replaced, in this run or in one that died before it could.

        `remove` returns the folder if it contains something that is not ours; the last such folder is the result.
        """
        left = None
        for folder in self._beside("-old-"):
            left = remove(folder) or left
        return left

    def file(self) -> StagedFile:
        """A file that appears when it is committed, and replaces an existing one."""
        kind = None
        with suppress(DatasetError):  # if it cannot be inspected, creating the staged file reports why
            kind = kind_at(self.storage, self.target)
        # A rename would replace a device with a file: with enough rights, even /dev/null.
        if kind not in (None, "file"):
            raise error(
                "X504",
                location=Location(path=self.path),
                expected="a file, or a path that does not exist",
                found="a folder" if kind == "folder" else "a pipe, a socket or a device",
                do="choose another name",
            )
        temporary = os.path.join(self.parent, f"{STAGED_PREFIX}{secrets.token_hex(8)}")
        return StagedFile(self.target, temporary, self.storage, sync=True, shown=self.path)

    @contextmanager
    def folder(self, by: str, *, as_files: bool = False, overwrite: bool = False) -> Iterator[StagedFolder]:
        """A folder that appears by one rename when the block succeeds, and not at all if it raises.

        `by` is the verb that writes it. `as_files`: each file is renamed to its own name next to the target, one
        right after the other, once all of them are on disk.
        """
        storage, made = self.storage, self._missing_folder()
        storage.make_folder(self.parent)
        staged = StagedFolder(self.hidden(f"-{by}"), storage, name=self.name)
        shown = os.path.dirname(self.path) if as_files else self.path
        try:
            with self.lock():
                try:
                    remove_tree(storage, staged.folder)  # left by a killed run: nobody else holds the lock
                    storage.make_folder(staged.folder)
                    yield staged
                    staged.sync()
                    if as_files:
                        self._rename_files(staged.folder, overwrite=overwrite)
                    else:
                        storage.rename(staged.folder, self.target)
                except BaseException as failure:
                    staged.discard()
                    if isinstance(failure, RekordError):
                        _name_below(failure, staged.folder, shown)
                    raise
                storage.sync_folder(self.parent)
        except BaseException:
            folder = self.parent
            while made is not None and len(folder) >= len(made):
                with suppress(RekordError):
                    storage.remove_folder(folder)
                folder = os.path.dirname(folder)
            raise

    def _rename(self, staged: str, *, aside: str | None) -> None:
        """Rename a staged folder to the target; an existing one is renamed first, and back on failure."""
        storage = self.storage
        if aside is not None:
            storage.rename(self.target, aside)
        try:
            storage.rename(staged, self.target)
        except RekordError:
            if aside is not None:
                storage.rename(aside, self.target)
            raise
        storage.sync_folder(self.parent)

    def _rename_files(self, folder: str, *, overwrite: bool) -> None:
        storage = self.storage
        committed: list[str] = []
        try:
            for entry in storage.list(folder):
                target = os.path.join(self.parent, entry.name)
                storage.rename(os.path.join(folder, entry.name), target)
                committed.append(target)
        except BaseException:
            for target in [] if overwrite else committed:
                with suppress(RekordError):
                    storage.remove(target)
            raise
        with suppress(RekordError):
            storage.remove_folder(folder)  # empty now; the files are in place even if this fails

    def _beside(self, what: str) -> list[str]:
        """The folders next to the target whose hidden names begin with this."""
        prefix = os.path.basename(self.hidden(what))
        return [
            os.path.join(self.parent, entry.name)
            for entry in self.storage.list(self.parent)
            if entry.kind == "folder" and entry.name.startswith(prefix)
        ]

    def _missing_folder(self) -> str | None:
        """The topmost folder that does not exist yet."""
        missing, folder = None, self.parent
        while folder and not exists(self.storage, folder):
            missing, folder = folder, os.path.dirname(folder)
            if folder == missing:
                break
        return missing


class StagedFile:
    """A file under a temporary name; the end of a `with` block, or `commit`, renames it to `path`.

    With `sync` its bytes are on disk before it gets its name: otherwise a crash could leave a partial file. A file
    that is published by itself has `shown`: errors name that path, and its folder is synced too.
    """

    def __init__(self, path: str, temporary: str, storage: Storage, *, sync: bool, shown: str | None = None) -> None:
        self.path = path
        self._temporary = temporary
        self._storage = storage
        self._sync = sync
        self._shown = shown
        self._is_settled = False
        self._file: Writable | None = None
        with self._named():
            try:
                self._file = storage.create(temporary)
            except RekordError:
                raise  # nothing was created
            except BaseException:
                self.discard()  # interrupted: it may have been
                raise

    def write(self, data: Buffer, /) -> int:
        """Write without buffering: collect small pieces first."""
        assert self._file is not None, "written after it was closed"
        try:
            return self._file.write(data)
        except RekordError as failure:
            self._name(failure)
            raise

    def fsync(self) -> None:
        assert self._file is not None, "synced after it was closed"
        with self._named():
            self._file.fsync()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def commit(self) -> None:
        """Rename it to `path`."""
        with self._named():
            try:
                if self._sync:
                    self.fsync()
                self.close()
                self._storage.rename(self._temporary, self.path)
            except BaseException:
                self.discard()
                raise
            self._is_settled = True
            if self._shown is not None:
                self._storage.sync_folder(os.path.dirname(self.path))

    def discard(self) -> None:
        """Remove it, unless it was committed or discarded; an existing file at `path` stays."""
        if self._is_settled:
            return
        self._is_settled = True
        # The original failure is the error to report, not a failed cleanup.
        with suppress(RekordError):
            self.close()
        with suppress(RekordError):
            self._storage.remove(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.discard()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except RekordError as failure:
            self._name(failure)
            raise

    def _name(self, failure: RekordError) -> None:
        if self._shown is not None:
            failure.location = replace(failure.location, path=self._shown)


def publish(path: PathLike, storage: Storage = LOCAL) -> StagedFile:
    """Stage a file that appears at `path`, complete and on disk, when the `with` block succeeds.

    ```python
    with publish("train.tfrecord") as staged:
        staged.write(frames)
    ```
    If the block raises, nothing appears and an existing file at `path` stays.
    """
    return Transaction(path, storage).file()


def _name_below(failure: RekordError, folder: str, place: str) -> None:
    """Errors name the target: the name of the staging folder means nothing to a user."""
    path = failure.location.path or ""
    if path == folder or path.startswith(os.path.join(folder, "")):
        below = path[len(folder) + 1 :]
        failure.location = replace(failure.location, path=os.path.join(place, below) if below else place)
        failure.do = None if failure.do is None else failure.do.replace(folder, place or ".")


class Output:
    """Buffers small writes to a staged file, until the end of a `with` block. pyarrow accepts it as a Python file."""

    closed = False  # the writer does not decide when the file is complete

    def __init__(self, file: Writable) -> None:
        self.file = file
        self.n_bytes = 0
        self._gathered = bytearray()

    def write(self, data: Buffer) -> int:
        """Copy some bytes; the caller may reuse their buffer."""
        view = memoryview(data).cast("B")
        self.n_bytes += len(view)
        if len(view) >= _WRITE_BYTES:
            self.put()
            self.file.write(view)
        else:
            self._gathered += view
            if len(self._gathered) >= _WRITE_BYTES:
                self.put()
        return len(view)

    def tell(self) -> int:
        return self.n_bytes

    def flush(self) -> None:
        """No-op: the file is synced at the end."""

    def close(self) -> None:
        """No-op, as `flush`."""

    def put(self) -> None:
        """Write the buffer to the file."""
        if self._gathered:
            self.file.write(self._gathered)
            self._gathered = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if kind is None:
            self.put()


class StagedFolder:
    """A staged folder of files. `name` is that of the target."""

    def __init__(self, folder: str, storage: Storage, *, name: str) -> None:
        self.folder = folder
        self.name = name
        self.files = 0
        self.n_bytes = 0  # of the files that `finish` and `put` completed
        self._storage = storage
        self._folders = {folder}
        self._open: list[Writable] = []
        self._waiting: list[Writable] = []  # complete, not yet on disk

    def create(self, name: str) -> Writable:
        """A new file below the folder; its name is separated by "/", and `close` completes it."""
        path = os.path.join(self.folder, *name.split("/"))
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._storage.make_folder(folder)
        while folder not in self._folders:
            self._folders.add(folder)
            folder = os.path.dirname(folder)
        file = self._storage.create(path)
        self._open.append(file)
        return file

    def close(self, file: Writable) -> None:
        """A file is complete: return when it is on the disk."""
        file.fsync()
        self._close(file)

    def output(self, name: str) -> Output:
        """A new file for small writes; `finish` completes it."""
        return Output(self.create(name))

    def finish(self, output: Output) -> None:
        """A file is complete: return when it is on the disk."""
        output.put()
        self.close(output.file)
        self._count(output.n_bytes)

    def put(self, name: str, content: bytes) -> None:
        """Write a whole file, one of many: it is synced together with others."""
        file = self.create(name)
        file.write(content)
        self._count(len(content))
        self._waiting.append(file)
        if len(self._waiting) >= _MOST_WAITING:
            self._sync_waiting()

    def sync(self) -> None:
        """Return when everything is on disk, including the names."""
        self._sync_waiting()
        for folder in sorted(self._folders, reverse=True):
            self._storage.sync_folder(folder)

    def discard(self) -> None:
        """Remove everything."""
        # The original failure is the error to report, not a failed cleanup.
        for file in self._open:
            with suppress(RekordError):
                file.close()
        with suppress(RekordError):
            remove_tree(self._storage, self.folder)

    def _sync_waiting(self) -> None:
        if not self._waiting:
            return
        with ThreadPoolExecutor(_SYNCING, thread_name_prefix="rekord-sync") as pool:
            for _ in pool.map(lambda file: file.fsync(), self._waiting):
                pass
        for file in self._waiting:
            self._close(file)
        self._waiting = []

    def _close(self, file: Writable) -> None:
        self._open.remove(file)
        file.close()

    def _count(self, n_bytes: int) -> None:
        self.files += 1
        self.n_bytes += n_bytes


class Staging:
    """A folder written by many tasks, which a later run resumes after a crash: finished tasks are not repeated.

    `out` becomes the target. A task writes its output, and its `.done` file last.
    """

    def __init__(self, folder: str, storage: Storage = LOCAL, *, spills: str | None = None) -> None:
        self.folder = folder
        self.storage = storage
        self.spills = spills or os.path.join(folder, "map")  # elsewhere if they go to another disk

    @property
    def out(self) -> str:
        return os.path.join(self.folder, "out")

    @property
    def _plan_path(self) -> str:
        return os.path.join(self.folder, "plan.json")

    def map_path(self, part: int, kind: str) -> str:
        return os.path.join(self.spills, f"{part:05d}.{kind}")

    def shard_done_path(self, split: str, shard: int) -> str:
        return os.path.join(self.folder, "shards", f"{split}-{shard:05d}.done")

    def prepare(self, plan: bytes, *folders: str) -> None:
        """Create the folders, including these below `out`, and remove what killed tasks left unfinished."""
        if self._has_separate_spills:
            # First: whoever removes this staging must know that the spills belong to it.
            self.storage.make_folder(self.folder)
            spills = self.storage.real(self.spills).encode(errors="surrogateescape")
            self.write(os.path.join(self.folder, _SPILLS), spills)
        self.storage.make_folder(self.spills)
        for folder in (
            os.path.join(self.folder, "shards"),
            *[os.path.join(self.out, one) for one in folders],
        ):
            self.storage.make_folder(folder)
        self.remove_unfinished(self.folder)
        if self._has_separate_spills:
            self.remove_unfinished(self.spills)
        if not exists(self.storage, self._plan_path):
            self.write(self._plan_path, plan)

    def remove_unfinished(self, folder: str) -> None:
        """Remove what killed tasks left unfinished in a folder and below it."""
        for entry in self.storage.list(folder):
            path = os.path.join(folder, entry.name)
            if entry.kind == "folder" and not entry.link:
                self.remove_unfinished(path)
            elif entry.name.endswith(_TEMPORARY):
                with suppress(DatasetError):
                    self.storage.remove(path)

    def plan(self) -> dict[str, Any]:
        """The plan that this staging belongs to; empty if none was written."""
        with suppress(DatasetError, *_UNREADABLE):
            document = msgspec.json.decode(read_bytes(self.storage, self._plan_path))
            if isinstance(document, dict):
                return document
        return {}

    def has_finished_tasks(self) -> bool:
        """Whether there is anything to resume from."""
        return any(
            entry.name.endswith(".done")
            for folder in (self.spills, os.path.join(self.folder, "shards"))
            if exists(self.storage, folder)
            for entry in self.storage.list(folder)
        )

    def create(self, path: str, *, sync: bool = False) -> StagedFile:
        """A new file that appears once complete; with `sync` it survives a power loss."""
        temporary = f"{path}.{secrets.token_hex(8)}{_TEMPORARY}"  # unique to this attempt
        return StagedFile(path, temporary, self.storage, sync=sync)

    def write(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Write a whole small file."""
        with self.create(path, sync=sync) as file:
            file.write(data)

    def publish(self, staged: str, target: str) -> None:
        """Give a complete file of this staging its name outside."""
        self.storage.rename(staged, target)

    def write_done(self, path: str, done: msgspec.Struct) -> None:
        """Write the `.done` file of a task."""
        body = msgspec.json.encode(done)
        self.write(path, body + f"\n{_checksum(body)}".encode())

    def read_done(self, path: str, kind: type[_Done]) -> _Done | None:
        """The `.done` file of a task; None if the task is not finished, or the file is damaged."""
        try:
            body, _, checksum = read_bytes(self.storage, path).rpartition(b"\n")
            if checksum != _checksum(body).encode():
                return None
            return msgspec.json.decode(body, type=kind)
        except (DatasetError, *_UNREADABLE):
            return None

    def size_of(self, path: str) -> int:
        """The size of a file in bytes; -1 if it does not exist."""
        try:
            return self.storage.stat(path).size_bytes
        except DatasetError:
            return -1

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""
        if self.size_of(path) >= 0:
            self.storage.remove(path)

    @property
    def _has_separate_spills(self) -> bool:
        return os.path.dirname(self.spills) != self.folder

    def remove(self) -> None:
        """Remove the folder and everything in it, and the spills."""
        if self._has_separate_spills:
            remove_tree(self.storage, self.spills)
        remove_tree(self.storage, self.folder)


def _checksum(body: bytes) -> str:
    from rekord import _core

    return f"{_core.crc32c(body):08x}"


def _spills_of(folder: str, storage: Storage) -> str | None:
    """The folder of a staging's spills, if it is outside."""
    path = os.path.join(folder, _SPILLS)
    spills = read_bytes(storage, path).decode(errors="surrogateescape") if exists(storage, path) else ""
    # This folder will be removed: only a folder of ours has such a name.
    ours = os.path.basename(spills).startswith(f"{os.path.basename(folder)}-")
    return spills if ours and exists(storage, spills) else None


class SwapRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A swap of an old folder for a new one, by the digests of their contents. Subclasses add fields."""

    old: str
    new: str


class Replacement(Transaction):
    """A folder that replaces another one: in one atomic step, or in two with a journal.

    `digest` identifies the contents of a folder, None if they are unknown. `remove` removes such a folder, and
    returns it if it contains something that is not ours.
    """

    def __init__(
        self,
        path: PathLike,
        storage: Storage,
        *,
        digest: Callable[[str], str | None],
        remove: Callable[[str], str | None],
    ) -> None:
        super().__init__(path, storage)
        self._digest = digest
        self._remove = remove
        self._journal = self.hidden("-swap")
        self.work = self.hidden("-edit")
        self.data = os.path.join(self.work, "data")
        self._old = os.path.join(self.work, "old")

    @contextmanager
    def lock_work(self) -> Iterator[Self]:
        """Hold the lock of `work`. The target itself is locked only while it changes."""
        self.storage.make_folder(self.parent)
        with Transaction(self.work, self.storage, shown=self.shown).lock():
            yield self

    def swap(self, swap: SwapRecord, check: Callable[[], None]) -> str | None:
        """Replace the target with `data`, if it is still `swap.old` and `check` does not raise.

        Returns a folder that contains something that is not ours, if any.
        """
        with self.lock():
            if self._digest(self.target) != swap.old:
                raise error(
                    "X570",
                    location=Location(path=self.shown),
                    expected="the dataset that this command read",
                    found="another dataset of this name",
                    do="run the same command again",
                )
            check()
            self._write_journal(swap)
            if self.storage.exchange(self.data, self.target):
                self.storage.sync_folder(self.parent)
            else:
                self._rename(self.data, aside=self._old)
            self.storage.sync_folder(self.work)
            return self._remove_old()

    def recover(self, kind: type[_Swap]) -> _Swap | None:
        """Finish or undo a swap that an earlier run left unfinished; returns it if it was done and not reported."""
        if not exists(self.storage, self._journal):
            return None
        try:
            swap = msgspec.json.decode(read_bytes(self.storage, self._journal), type=kind)
        except _UNREADABLE:
            # A power loss truncated it, before anything was renamed.
            self.storage.remove(self._journal)
            return None
        with self.lock():
            return self._recover(swap)

    def _recover(self, swap: _Swap) -> _Swap | None:
        if not exists(self.storage, self.target):
            # It died between two renames: the new folder gets the name, or the old one gets it back.
            for folder, digest in ((self.data, swap.new), (self._old, swap.old)):
                if self._digest(folder) == digest:
                    self._rename(folder, aside=None)
                    break
        if self._digest(self.target) == swap.new:
            self._remove_old()
            return swap
        self.storage.remove(self._journal)
        return None

    def remove_data(self, folder: str) -> str | None:
        """Remove a folder in `work`. What is not ours stays, under a hidden name next to the target."""
        if not exists(self.storage, folder) or self._remove(folder) is None:
            return None
        aside = self.hidden(f"-old-{secrets.token_hex(4)}")
        self.storage.rename(folder, aside)
        return aside

    def clear(self) -> str | None:
        """Remove `work` and everything in it."""
        left = [self.remove_data(folder) for folder in (self.data, self._old)]
        remove_tree(self.storage, self.work)
        return left[1] or left[0]

    def _remove_old(self) -> str | None:
        left = self.clear()
        self.storage.remove(self._journal)
        return left

    def _write_journal(self, swap: SwapRecord) -> None:
        """Write the journal and sync it. It is prepared in `work`, which is removed with its contents."""
        passing = os.path.join(self.work, "swap")
        Staging(self.work, self.storage).write(passing, msgspec.json.encode(swap), sync=True)
        self.storage.rename(passing, self._journal)
        self.storage.sync_folder(self.parent)
