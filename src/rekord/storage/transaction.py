"""Publishing files: lock a target, stage under a hidden name, commit in one step, recover after a crash.

Everything that rekord publishes as NAME is staged next to it, so that committing is a rename:

    NAME is a file           .rekord-staged-HEX                          → NAME
    a folder, in one go      .NAME.rekord-VERB/                          → NAME/
    a folder, by tasks       .NAME.rekord-PLAN/out/                      → NAME/      plan.json, map/, shards/*.done
    in place of another      .NAME.rekord-edit/data/                     ⇄ NAME/      .NAME.rekord-swap is the journal
    what is replaced         NAME/                                       → .NAME.rekord-old-HEX/, then removed
    one writer at a time     .NAME.rekord.lock

Objects cannot be renamed. There, NAME is a prefix, and everything has its final name from the beginning:

    a file                   NAME                                        visible once its upload is complete
    a folder, in one go      NAME/                                       NAME/.rekord/unfinished is removed last
    a folder, by tasks       NAME/ and NAME/.rekord/staging-PLAN/        the manifest is created last, then as above
    one writer at a time     NAME/.rekord/staging.lock                   a lease

Nothing here calls the operating system or a server: a `Storage` does. What differs is in `publication`.
"""

from __future__ import annotations

import hashlib
import os.path
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.local import LOCAL, PathKind, PathLike, Storage, Writable
from rekord.storage.publication import (
    TEMPORARY,
    ObjectPublication,
    Publication,
    RenamePublication,
    exists,
    kind_at,
    open_publication,
    read_bytes,
    remove_tree,
    temporary_path,
)
from rekord.storage.router import ROUTED_STORAGE, UNREACHABLE_CODES, conditional_storage, is_remote, map_concurrently

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

_SPILLS = "spills"  # the file with the folder of a staging's spills, if that is not map/
_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)
_MOST_WAITING = 64
_SYNCING = 8  # threads: a file system combines concurrent syncs, and a server answers several requests at once
_WRITE_BYTES = 1 << 20

_Done = TypeVar("_Done", bound=msgspec.Struct)
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Transaction:
    """One path to publish. Errors name it as given, or as `shown`."""

    def __init__(self, path: PathLike, storage: Storage = ROUTED_STORAGE, *, shown: str | None = None) -> None:
        self.path = os.fspath(path)
        self.shown = self.path if shown is None else shown
        self.storage = storage
        self.publication: Publication = open_publication(self.path, storage)
        self.target = self.publication.target
        self.parent, self.name = os.path.split(self.target)

    def hidden(self, what: str) -> str:
        """A hidden path of the target."""
        return self.publication.hidden(what)

    @contextmanager
    def lock(self, what: str = ".lock") -> Iterator[Self]:
        """Hold the lock of the target during the block: one writer at a time."""
        with ExitStack() as stack:
            with self._shown_in_errors():
                stack.enter_context(self.publication.lock(self.hidden(what)))
            yield self

    def find(self) -> PathKind | None:
        """The kind of what is published at this path; None if nothing is, or an unfinished run can be resumed."""
        return self.publication.find()

    @property
    def is_replaceable(self) -> bool:
        """Whether something else can take the place of what is published, in one step."""
        return isinstance(self.publication, RenamePublication)

    def check_replaceable(self) -> None:
        """Refuse to replace what is published, if that is not possible in one step."""
        if not self.is_replaceable:
            raise error(
                "U651",
                "dataset in object storage cannot be replaced",
                location=Location(path=self.shown),
                expected="a path where nothing is yet: objects cannot be exchanged in one step",
                found="object storage",
                do="write to another path, or remove this dataset first with a tool of the service",
            )

    def staging(self, plan_id: str, *, spills: str | None = None) -> Staging:
        """The staging of one plan; its spills are below `spills`, if given."""
        folder = self.hidden(f"-{plan_id[:16]}")
        if spills is not None:
            # It may hold the spills of several datasets, some with the same name.
            own = hashlib.sha256(self.target.encode(errors="surrogateescape")).hexdigest()[:8]
            spills = os.path.join(self.storage.real(spills), f"{os.path.basename(folder)}-{own}")
        return Staging(folder, self.storage, spills=spills, publication=self.publication)

    def stagings(self) -> list[Staging]:
        """All stagings for this target, of any plan."""
        length = len(self.hidden("-")) + 16
        return [
            Staging(folder, self.storage, spills=_spills_of(folder, self.storage), publication=self.publication)
            for folder in self._beside("-")
            if len(folder) == length
        ]

    def commit(self, staging: Staging, last: tuple[str, bytes]) -> None:
        """Publish the output of a staging; `last` is the name and content of the file that makes it complete.

        An existing folder gets a hidden name, for `remove_replaced`.
        """
        with self._shown_in_errors():
            self.publication.complete(staging.out, last)

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
        temporary = self.publication.staged_file()
        return StagedFile(self.target, temporary, self.storage, sync=True, shown=self.path)

    @contextmanager
    def folder(
        self, by: str, *, last: str | None = None, as_files: bool = False, overwrite: bool = False
    ) -> Iterator[StagedFolder]:
        """A folder that appears complete when the block succeeds, and not at all if it raises.

        `by` is the verb that writes it, `last` the name of the file that completes it, if there is one. `as_files`:
        each file appears under its own name next to the target, one right after the other.
        """
        publication = self.publication
        shown = os.path.dirname(self.path) if as_files else self.path
        with publication.parent_folder():
            staged = StagedFolder(publication.staged_folder(by, as_files=as_files), self.storage, name=self.name)
            with self.lock():
                try:
                    publication.begin_folder(by, last, as_files=as_files)
                    yield staged
                    staged.sync()
                    publication.complete_folder(by, staged.last, as_files=as_files, overwrite=overwrite)
                except BaseException as failure:
                    staged.discard_open()
                    with suppress(RekordError):  # the original failure is the error to report
                        created = [] if as_files and overwrite else staged.created
                        publication.discard_folder(by, created, as_files=as_files)
                    if isinstance(failure, RekordError):
                        _name_below(failure, staged.folder, shown)
                    raise

    @contextmanager
    def _shown_in_errors(self) -> Iterator[None]:
        try:
            yield
        except RekordError as failure:
            if failure.code == "X512":
                failure.location = Location(path=self.shown)
            raise

    def _beside(self, what: str) -> list[str]:
        """The folders of the target whose hidden names begin with this."""
        parent, prefix = os.path.split(self.hidden(what))
        if not exists(self.storage, parent):
            return []
        return [
            os.path.join(parent, entry.name)
            for entry in self.storage.list(parent)
            if entry.kind == "folder" and entry.name.startswith(prefix)
        ]


class StagedFile:
    """A file under a temporary name; the end of a `with` block, or `commit`, renames it to `path`.

    A `temporary` that is `path` itself is an object, which is visible once it is complete. With `sync` the bytes are
    on disk before the file gets its name: otherwise a crash could leave a partial file. A file that is published by
    itself has `shown`: errors name that path, and its folder is synced too. `check` may still refuse to publish it.
    """

    def __init__(
        self,
        path: str,
        temporary: str,
        storage: Storage,
        *,
        sync: bool,
        shown: str | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self._check = check
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
                self.abort()  # interrupted: it may have been
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
                if self._check is not None:
                    self._check()
                self.close()
                if self._temporary != self.path:
                    self._storage.rename(self._temporary, self.path)
            except BaseException:
                self.abort()
                raise
            self._is_settled = True
            if self._shown is not None:
                self._storage.sync_folder(os.path.dirname(self.path))

    def abort(self) -> None:
        """Remove it, unless it was committed or aborted; an existing file at `path` stays."""
        if self._is_settled:
            return
        self._is_settled = True
        # The original failure is the error to report, not a failed cleanup.
        file, self._file = self._file, None
        with suppress(RekordError):
            if file is not None:
                file.abort()
        if self._temporary != self.path:
            with suppress(RekordError):
                self._storage.remove(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

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


def publish(path: PathLike, storage: Storage = ROUTED_STORAGE) -> StagedFile:
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
        self.created: list[str] = []
        self.last: tuple[str, bytes] | None = None
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
        self.created.append(path)
        self._open.append(file)
        return file

    def put_last(self, name: str, content: bytes) -> None:
        """The file that is to be written after all others."""
        self.last = name, content

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

    def discard_open(self) -> None:
        """Close the files that are not complete."""
        for file in self._open:
            with suppress(RekordError):  # the original failure is the error to report
                file.abort()

    def _sync_waiting(self) -> None:
        if not self._waiting:
            return
        with ThreadPoolExecutor(_SYNCING, thread_name_prefix="rekord-sync") as pool:
            for _ in pool.map(_complete, self._waiting):
                pass
        for file in self._waiting:
            self._open.remove(file)
        self._waiting = []

    def _close(self, file: Writable) -> None:
        self._open.remove(file)
        file.close()

    def _count(self, n_bytes: int) -> None:
        self.files += 1
        self.n_bytes += n_bytes


def _complete(file: Writable) -> None:
    file.fsync()
    file.close()


class Staging:
    """A folder written by many tasks, which a later run resumes after a crash: finished tasks are not repeated.

    `out` becomes the target. A task writes its output, and its `.done` file last.
    """

    def __init__(
        self,
        folder: str,
        storage: Storage = ROUTED_STORAGE,
        *,
        publication: Publication | None = None,
        spills: str | None = None,
        progress_folder: str | None = None,
    ) -> None:
        self.folder = folder
        self.progress_folder = progress_folder
        """Where tasks count what they have done; always on this machine."""
        self.storage = storage
        self.spills = spills or os.path.join(folder, "map")  # elsewhere if they go to another disk
        self._publication = publication or RenamePublication(storage, folder)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes use the storage of the path, whatever this one uses."""
        publication = self._publication
        identity = publication.identity if isinstance(publication, ObjectPublication) else None
        return _reopen_staging, (self.folder, self.spills, identity, self.progress_folder)

    @property
    def out(self) -> str:
        return self._publication.staged_output(self.folder)

    @property
    def scratch_folder(self) -> str:
        """A folder on this machine for files that do not outlive a run."""
        return self.progress_folder or tempfile.gettempdir() if is_remote(self.spills) else self.spills

    @property
    def _plan_path(self) -> str:
        return os.path.join(self.folder, "plan.json")

    def map_path(self, part: int, kind: str) -> str:
        return os.path.join(self.spills, f"{part:05d}.{kind}")

    def shard_done_path(self, split: str, shard: int) -> str:
        return os.path.join(self.folder, "shards", f"{split}-{shard:05d}.done")

    def begin(self, last: str) -> None:
        """Writing to `out` begins, or is resumed; `last` is the name of the file that completes it."""
        self._publication.begin(os.path.basename(self.folder), last)

    def announce(self, names: Sequence[str]) -> None:
        """Files of these names are about to be written to `out`, next to the shards."""
        self._publication.announce(names)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Have a `progress_folder` in a `with` block."""
        if not is_remote(self.folder):
            is_real = self.storage in (LOCAL, ROUTED_STORAGE)
            self.progress_folder = self.folder if is_real else None
            yield
            return
        with tempfile.TemporaryDirectory(prefix="rekord-progress-", ignore_cleanup_errors=True) as folder:
            self.progress_folder = folder
            yield

    def map_waiting(self, function: Callable[[_Item], _Result], items: Sequence[_Item]) -> list[_Result]:
        """The results of a function that reads files of this staging, for each item."""
        return map_concurrently(function, items, remote=is_remote(self.folder))

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
        if is_remote(folder):
            return  # an unfinished upload is not visible
        for entry in self.storage.list(folder):
            path = os.path.join(folder, entry.name)
            if entry.kind == "folder" and not entry.link:
                self.remove_unfinished(path)
            elif entry.name.endswith(TEMPORARY):
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
        check = self._publication.check_lock if self._is_output(path) else None
        return StagedFile(path, temporary_path(path), self.storage, sync=sync, check=check)

    def _is_output(self, path: str) -> bool:
        """Whether a path belongs to the output. The others have names of this plan: only its own runs write them."""
        return not path.startswith((self.folder, self.spills))

    def link(self, source: str, path: str) -> bool:
        """Make `path` a link to a file, or have the server copy an object; False if that is not possible."""
        if self._is_output(path):
            self._publication.check_lock()
        self.remove_file(path)
        return self.storage.link(source, path)

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
        except _UNREADABLE:
            return None
        except DatasetError as failure:
            if failure.code in UNREACHABLE_CODES:
                raise
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
        """Remove the folder and everything in it, the spills, and the output unless it is published."""
        self._publication.check_lock()  # another process may resume from here
        self._publication.abandon(os.path.basename(self.folder))
        if self._has_separate_spills:
            remove_tree(self.storage, self.spills)
        remove_tree(self.storage, self.folder)


def _reopen_staging(
    folder: str, spills: str, output: tuple[str, tuple[str, str] | None] | None, progress_folder: str | None
) -> Staging:
    publication = None
    if output is not None:
        publication = ObjectPublication(conditional_storage(folder, ROUTED_STORAGE), *output)
    return Staging(folder, publication=publication, spills=spills, progress_folder=progress_folder)


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
