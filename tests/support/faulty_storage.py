"""A storage that fails at a chosen operation, so that a test can crash at every single step."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from rekord.storage.local import (
    LOCAL,
    DirectoryEntry,
    Readable,
    Stat,
    Storage,
    Writable,
    read_error,
    write_error,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

Fault: TypeAlias = Literal["crash", "short write then crash", "power loss", "enospc", "eio"]
"""How an operation fails.

crash: the process dies before it. short write then crash: half of the bytes are written, then it dies.
power loss: the machine dies, and files lose what was not synced. enospc, eio: half of the bytes are written and
the system reports the error; the process continues, and later operations work.
"""

_File = TypeVar("_File", Readable, Writable)

_ERRNOS: dict[Fault, int] = {"enospc": errno.ENOSPC, "eio": errno.EIO}


class Crash(BaseException):
    """The process is dead: no `except Exception` catches this, and every later operation raises it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation that changes the disk, done or attempted."""

    name: Literal[
        "create",
        "write",
        "fsync",
        "rename",
        "exchange",
        "link",
        "remove",
        "make_folder",
        "remove_folder",
        "sync_folder",
    ]
    path: str
    n_bytes: int = 0


class FaultyStorage:
    """A storage that counts operations that change the disk, and fails at number `fail_at`, counted from 1.

    Run once without `fail_at` to count the `operations`, then once for each of them. Reads fail independently:
    `fail_read_at` is the read, counted from 1, that gets a disk error, and `read_at_most_bytes` limits every
    read, as network storage does.
    """

    def __init__(
        self,
        inner: Storage = LOCAL,
        *,
        fail_at: int | None = None,
        fault: Fault = "crash",
        fail_read_at: int | None = None,
        read_at_most_bytes: int | None = None,
    ) -> None:
        self.inner = inner
        self.fail_at = fail_at
        self.fault = fault
        self.fail_read_at = fail_read_at
        self.read_at_most_bytes = read_at_most_bytes
        self.operations: list[Operation] = []
        self.reads = 0
        self.dead = False
        self._lock = threading.RLock()  # an operation at a time: another thread does nothing while the process dies
        self._open: set[Readable | Writable] = set()
        self._synced_bytes: dict[str, int] = {}

    def open_read(self, path: str) -> Readable:
        self._alive()
        return _FaultyReadable(self, self._opened(self.inner.open_read(path)))

    def create(self, path: str) -> Writable:
        self._before(Operation(name="create", path=path))
        file = self._opened(self.inner.create(path))
        self._synced_bytes[path] = 0
        return _FaultyWritable(self, file)

    def rename(self, source: str, target: str) -> None:
        self._before(Operation(name="rename", path=target))
        self.inner.rename(source, target)
        below = source + os.sep
        for path in [path for path in self._synced_bytes if path == source or path.startswith(below)]:
            self._synced_bytes[target + path[len(source) :]] = self._synced_bytes.pop(path)

    def exchange(self, one: str, other: str) -> bool:
        self._before(Operation(name="exchange", path=one))
        if not self.inner.exchange(one, other):
            return False
        moved = {}
        for source, target in ((one, other), (other, one)):
            below = source + os.sep
            for path in [path for path in self._synced_bytes if path == source or path.startswith(below)]:
                moved[target + path[len(source) :]] = self._synced_bytes.pop(path)
        self._synced_bytes |= moved
        return True

    def link(self, source: str, target: str) -> bool:
        self._before(Operation(name="link", path=target))
        return self.inner.link(source, target)

    def remove(self, path: str) -> None:
        self._before(Operation(name="remove", path=path))
        self.inner.remove(path)
        self._synced_bytes.pop(path, None)

    def make_folder(self, path: str) -> None:
        self._before(Operation(name="make_folder", path=path))
        self.inner.make_folder(path)

    def remove_folder(self, path: str) -> None:
        self._before(Operation(name="remove_folder", path=path))
        self.inner.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        self._before(Operation(name="sync_folder", path=path))
        self.inner.sync_folder(path)

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        self._alive()
        return self.inner.list(folder)

    def stat(self, path: str) -> Stat:
        self._alive()
        return self.inner.stat(path)

    def real(self, path: str) -> str:
        self._alive()
        return self.inner.real(path)

    def lock(self, path: str) -> AbstractContextManager[None]:
        self._alive()
        return self.inner.lock(path)

    def _alive(self) -> None:
        if self.dead:
            raise Crash("the process died earlier")

    def _opened(self, file: _File) -> _File:
        self._open.add(file)
        if self.dead:  # since another thread's operation: what a process opens does not outlive it
            file.close()
            self._alive()
        return file

    def _before(self, operation: Operation, half: Callable[[], object] | None = None) -> None:
        """Count an operation, and fail if it is the chosen one; `half` does half of it first."""
        with self._lock:
            self._alive()
            self.operations.append(operation)
            if len(self.operations) == self.fail_at:
                self._fail(operation, half)

    def _fail(self, operation: Operation, half: Callable[[], object] | None) -> None:
        if half is not None and self.fault in ("short write then crash", "enospc", "eio"):
            half()
        if self.fault in _ERRNOS:
            number = _ERRNOS[self.fault]
            failure = OSError(number, os.strerror(number), operation.path)
            left_bytes = operation.n_bytes - operation.n_bytes // 2 if half is not None else None
            raise write_error(operation.path, failure, left_bytes=left_bytes) from failure
        self._die()

    def _die(self) -> None:
        self.dead = True
        # The system closes the files of a dead process.
        for file in tuple(self._open):
            file.close()
        self._open.clear()
        if self.fault == "power loss":
            for path, n_bytes in self._synced_bytes.items():
                os.truncate(path, n_bytes)
        raise Crash(f"died of {self.fault} at operation {len(self.operations)}: {self.operations[-1]}")


class _FaultyReadable:
    def __init__(self, storage: FaultyStorage, file: Readable) -> None:
        self._storage = storage
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size_bytes(self) -> int:
        self._storage._alive()
        return self._file.size_bytes

    def readinto(self, buffer: Buffer, /) -> int:
        storage = self._storage
        storage._alive()
        storage.reads += 1
        if storage.reads == storage.fail_read_at:
            failure = OSError(errno.EIO, os.strerror(errno.EIO), self.path)
            raise read_error(self.path, failure) from failure
        if storage.read_at_most_bytes is None:
            return self._file.readinto(buffer)
        return self._file.readinto(memoryview(buffer).cast("B")[: storage.read_at_most_bytes])

    def seek(self, offset: int, /) -> int:
        self._storage._alive()
        return self._file.seek(offset)

    def close(self) -> None:
        self._storage._open.discard(self._file)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class _FaultyWritable:
    def __init__(self, storage: FaultyStorage, file: Writable) -> None:
        self._storage = storage
        self._file = file
        self._written_bytes = 0

    @property
    def path(self) -> str:
        return self._file.path

    def write(self, data: Buffer, /) -> int:
        view = memoryview(data).cast("B")
        operation = Operation(name="write", path=self.path, n_bytes=len(view))
        self._storage._before(operation, half=lambda: self._file.write(view[: len(view) // 2]))
        self._written_bytes += len(view)
        return self._file.write(view)

    def fsync(self) -> None:
        self._storage._before(Operation(name="fsync", path=self.path))
        self._file.fsync()
        self._storage._synced_bytes[self.path] = self._written_bytes

    def close(self) -> None:
        self._storage._alive()
        self._storage._open.discard(self._file)
        self._file.close()

    def abort(self) -> None:
        self._storage._alive()
        self._storage._open.discard(self._file)
        self._file.abort()
