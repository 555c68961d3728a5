"""The seam between rekord and the disk: every file is opened, created and renamed through a `Storage`.

Also the errors for memory, threads and folders that the system refuses, and refusals before a crash.
"""

from __future__ import annotations

import errno
import io
import os
import shlex
import stat as modes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage import portability
from rekord.storage.digest import FileDigest

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer


PathLike: TypeAlias = "str | os.PathLike[str]"

PathKind = Literal["file", "folder", "other", "unreachable"]
"""What a name refers to. `other`: a pipe, a socket or a device. `unreachable`: a broken link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """What a path refers to, links followed."""

    kind: PathKind
    size_bytes: int
    mtime_ns: int
    identity: tuple[int, int]  # device and inode: equal for two paths to one file
    etag: str | None = None  # of an object: its version; `mtime_ns` is a hash of it


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryEntry:
    """One name in a folder. `kind` is that of a link's target; `size_bytes` is None if the listing lacks it."""

    name: str
    kind: PathKind
    link: bool
    size_bytes: int | None = None


class Readable(Protocol):
    """A file open for reading, unbuffered. A pipe has size 0 and cannot seek."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def readinto(self, buffer: Buffer, /) -> int:
        """Fill some of `buffer`, at least one byte; 0 means the end of the file."""

    def seek(self, offset: int, /) -> int:
        """Move to `offset`, counted from the file's first byte."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Writable(Protocol):
    """A file open for writing at its end, unbuffered."""

    @property
    def path(self) -> str: ...

    def write(self, data: Buffer, /) -> int:
        """Write all of `data`, or raise; returns its length in bytes."""

    def fsync(self) -> None:
        """Return when everything written so far is on the disk itself."""

    def close(self) -> None:
        """Complete the file."""

    def abort(self) -> None:
        """Close the file, which is not complete: an object does not appear, and a local file stays."""


class _ReadableStorage(Protocol):
    """What reading needs of a storage."""

    def open_read(self, path: str) -> Readable: ...
    def list(self, folder: str) -> Sequence[DirectoryEntry]: ...
    def stat(self, path: str) -> Stat: ...


class SearchableStorage(_ReadableStorage, Protocol):
    """What finding files needs of a storage."""

    def real(self, path: str) -> str: ...


class Storage(Protocol):
    """What reading, writing and publishing need of a storage; all paths are local to it.

    Every failure is a `DatasetError`: X501 if something is missing, X503 if it cannot be read, X504 if it cannot be
    written. The operating system's error is its `__cause__`.
    """

    def open_read(self, path: str) -> Readable: ...

    def create(self, path: str) -> Writable:
        """A new file. An existing path is refused."""

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target` in one step, replacing a file.

        A folder can be renamed too; its target does not exist, or is an empty folder.
        """

    def exchange(self, one: str, other: str) -> bool:
        """Exchange two names in one step; False if that is not supported."""

    def link(self, source: str, target: str) -> bool:
        """Make `target` a hard link to the file `source`; False if that is not supported."""

    def remove(self, path: str) -> None:
        """Remove one file."""

    def make_folder(self, path: str) -> None:
        """Create a folder with its parents, unless it exists."""

    def remove_folder(self, path: str) -> None:
        """Remove one empty folder."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in this folder are on the disk itself."""

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        """The names in a folder, in byte order."""

    def stat(self, path: str) -> Stat: ...

    def real(self, path: str) -> str:
        """The path without links."""

    def lock(self, path: str) -> AbstractContextManager[None]:
        """Hold the lock of this name in a `with` block; X512 if another process holds it.

        It is released when its holder dies.
        """


def read_error(path: str, failure: OSError) -> RekordError:
    """The error for a path that could not be read."""
    where, found = Location(path=path), _describe_failure(failure)
    # A name below a file, or one that is too long, is missing like any other.
    if failure.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        gone = None if os.path.isabs(path) else working_directory_error()
        return gone or error("X501", location=where, found=found, do=f"ls {quote_folder(path)}")
    return error("X503", location=where, found=found, do=read_hint(path, failure.errno))


def read_file(path: str, storage: Storage, *, most_bytes: int) -> bytes:
    """The content of a small file. Anything else is refused: reading a pipe could block forever."""
    found = storage.stat(path)
    if found.kind != "file" or found.size_bytes > most_bytes:
        raise error(
            "X503",
            location=Location(path=path),
            expected=f"a file of at most {most_bytes:,} bytes",
            found=f"{found.size_bytes:,} bytes" if found.kind == "file" else _KIND_NAMES[found.kind],
            do=f"ls -l {quote_folder(path)}",
        )
    with storage.open_read(path) as file:
        return read_up_to(file, min(found.size_bytes, most_bytes))


def read_up_to(file: Readable, most_bytes: int) -> bytes:
    """The next bytes of a file, fewer than `most_bytes` only at its end."""
    data, filled = bytearray(most_bytes), 0
    with memoryview(data) as view:
        while filled < most_bytes and (count := file.readinto(view[filled:])):
            filled += count
    return bytes(data) if filled == most_bytes else bytes(data[:filled])


_KIND_NAMES = {
    "folder": "a folder",
    "other": "a pipe, a socket or a device",
    "unreachable": "a broken link",
}


def write_error(path: str, failure: OSError, *, left_bytes: int | None = None) -> RekordError:
    """The error for a path that could not be written; `left_bytes` were left to write, if known."""
    do = write_hint(path, failure.errno, left_bytes)
    gone = None if failure.errno != errno.ENOENT or os.path.isabs(path) else working_directory_error()
    return gone or error("X504", location=Location(path=path), found=_describe_failure(failure), do=do)


def _describe_failure(failure: OSError) -> str:
    return failure.strerror or str(failure) or type(failure).__name__


@contextmanager
def _translate_errors(path: str, to_error: Callable[[str, OSError], RekordError]) -> Iterator[None]:
    _reject_invalid_path(path)
    try:
        yield
    except RekordError:  # some of them are an OSError or a ValueError too
        raise
    except OSError as failure:
        raise to_error(path, failure) from failure


def _translate_read_errors(path: str) -> AbstractContextManager[None]:
    return _translate_errors(path, read_error)


def _translate_write_errors(path: str) -> AbstractContextManager[None]:
    return _translate_errors(path, write_error)


def _reject_invalid_path(path: str) -> None:
    # The operating system's own errors for these are a ValueError and "No such file".
    if not path or "\0" in path:
        found = "a path with a zero byte in it" if path else "an empty path"
        raise error(
            "U605",
            location=Location(path=path),
            expected="a path",
            found=found,
            do="use the path of a file or folder",
        )


@contextmanager
def open_descriptor(path: str, *, wait: bool = False) -> Iterator[int]:
    """A descriptor of a file, for reading in a `with` block; `wait` as in `portability.open_to_read`."""
    with _translate_read_errors(path):
        descriptor = portability.open_to_read(path, wait=wait)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _in_archive(path: str) -> _ReadableStorage | None:
    """The storage of a path in an archive; None for other paths."""
    if "!" not in path:
        return None
    from rekord.storage.raw_files import split_member_path  # it imports this module

    if split_member_path(path) is None:
        return None
    from rekord.storage.archives import MEMBERS

    return MEMBERS


class LocalStorage:
    """The file system of this machine, and what is inside its archives."""

    def open_read(self, path: str) -> Readable:
        if (inside := _in_archive(path)) is not None:
            return inside.open_read(path)
        with _translate_read_errors(path):
            return _LocalReadable(path)

    def create(self, path: str) -> Writable:
        with _translate_write_errors(path):
            return _LocalWritable(path, io.FileIO(path, "x"))

    def rename(self, source: str, target: str) -> None:
        _reject_invalid_path(source)
        with _translate_write_errors(target):
            portability.replace(source, target)

    def exchange(self, one: str, other: str) -> bool:
        _reject_invalid_path(other)
        with _translate_write_errors(one):
            return portability.exchange_names(one, other)

    def link(self, source: str, target: str) -> bool:
        _reject_invalid_path(source)
        with _translate_write_errors(target):
            return portability.link_file(source, target)

    def remove(self, path: str) -> None:
        with _translate_write_errors(path):
            try:
                os.unlink(path)
            except FileNotFoundError as failure:
                raise read_error(path, failure) from failure

    def make_folder(self, path: str) -> None:
        with _translate_write_errors(path):
            os.makedirs(path, exist_ok=True)

    def remove_folder(self, path: str) -> None:
        with _translate_write_errors(path):
            os.rmdir(path)

    def sync_folder(self, path: str) -> None:
        with _translate_write_errors(path):
            portability.sync_folder(path)

    def list(self, folder: str) -> Sequence[DirectoryEntry]:
        if (inside := _in_archive(folder)) is not None:
            return inside.list(folder)
        with _translate_read_errors(folder), os.scandir(folder) as names:
            return sorted((_to_entry(name) for name in names), key=lambda entry: os.fsencode(entry.name))

    def stat(self, path: str) -> Stat:
        if (inside := _in_archive(path)) is not None:
            return inside.stat(path)
        with _translate_read_errors(path):
            facts = os.stat(path)
        return Stat(
            kind=_kind_from_mode(facts.st_mode),
            size_bytes=facts.st_size,
            mtime_ns=facts.st_mtime_ns,
            identity=(facts.st_dev, facts.st_ino),
        )

    def real(self, path: str) -> str:
        with _translate_read_errors(path):
            return os.path.realpath(path)

    @contextmanager
    def lock(self, path: str) -> Iterator[None]:
        with _translate_write_errors(path):
            try:
                descriptor = portability.lock_file(path)
            except BlockingIOError:
                raise _in_use(path) from None
        try:
            with suppress(OSError):
                os.truncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
            yield
        finally:
            portability.unlock_file(path, descriptor)


def _in_use(path: str) -> RekordError:
    holder = ""
    with suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
        holder = file.read(20)
    return error(
        "X512",
        location=Location(path=path),
        expected="one writer at a time",
        found=f"{f'process {holder}' if holder.isdigit() else 'another process'} is writing to it",
        do="wait until it ends, or write to another path",
    )


def _kind_from_mode(mode: int) -> PathKind:
    if modes.S_ISREG(mode):
        return "file"
    return "folder" if modes.S_ISDIR(mode) else "other"


def _to_entry(name: os.DirEntry[str]) -> DirectoryEntry:
    link = name.is_symlink()
    try:
        if name.is_dir():
            kind: PathKind = "folder"
        elif name.is_file():
            kind = "file"
        else:
            # A broken link is neither, and so is a pipe; the target distinguishes them.
            kind = "unreachable" if link and not os.path.exists(name.path) else "other"
    except OSError:
        kind = "unreachable"
    return DirectoryEntry(name=name.name, kind=kind, link=link)


class _LocalReadable:
    """Closed explicitly, or, in an abandoned iteration, by its finalizer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1
        descriptor = portability.open_to_read(path, wait=True)
        try:
            # The descriptor stays ours: in a garbage cycle a file that owns one is finalized first, with a warning.
            self._file = io.FileIO(descriptor, "r", closefd=False)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    @property
    def size_bytes(self) -> int:
        with _translate_read_errors(self.path):
            return os.fstat(self._file.fileno()).st_size

    def readinto(self, buffer: Buffer, /) -> int:
        try:
            # None, "nothing yet", occurs for non-blocking files only.
            return self._file.readinto(buffer) or 0
        except OSError as failure:
            raise read_error(self.path, failure) from failure

    def seek(self, offset: int, /) -> int:
        with _translate_read_errors(self.path):
            return self._file.seek(offset)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        # An error on close does not affect what was read.
        with suppress(OSError):
            self._file.close()
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class _LocalWritable:
    def __init__(self, path: str, file: io.FileIO) -> None:
        self.path = path
        self._file = file

    def write(self, data: Buffer, /) -> int:
        left = memoryview(data).cast("B")
        whole_bytes = len(left)
        while left:
            try:
                # The system may write less than it is given: on a nearly full disk, and always above 2 GiB.
                written_bytes = self._file.write(left)
                if not written_bytes:
                    raise OSError(errno.EIO, "no bytes were written")
            except OSError as failure:
                raise write_error(self.path, failure, left_bytes=len(left)) from failure
            left = left[written_bytes:]
        return whole_bytes

    def fsync(self) -> None:
        with _translate_write_errors(self.path):
            portability.sync_file(self._file.fileno())

    def close(self) -> None:
        with _translate_write_errors(self.path):
            self._file.close()

    def abort(self) -> None:
        self.close()


def begin_sync(file: Writable, begin: int, size_bytes: int) -> None:
    """Start to flush bytes that were just written, so that `fsync` waits less. Only a hint."""
    if isinstance(file, _LocalWritable):
        portability.begin_sync(file._file.fileno(), begin, size_bytes)


LOCAL: Final[Storage] = LocalStorage()


# What to do when the system refuses a path.


def quote_folder(path: str) -> str:
    """The folder of a path, for a command line."""
    return shlex.quote(os.path.dirname(path) or ".")


def read_hint(path: str, number: int | None) -> str:
    """The `do` for a path that could not be read, by errno."""
    name = shlex.quote(path)
    match number:
        case errno.EACCES | errno.EPERM:
            return f"chmod u+rX {name}      (or run as a user who may read it)"
        case errno.EISDIR:
            return "use a file in this folder"
        case errno.EIO:
            return f"copy {name} again from its origin: the disk or network that holds it reports an error"
        case errno.ELOOP:
            return f"ls -l {name}      (its links form a loop)"
        case errno.EMFILE | errno.ENFILE:
            return "ulimit -n 4096      (too many files are open at once)"
        case errno.ESTALE | errno.ENOTCONN | errno.ETIMEDOUT | errno.EHOSTDOWN:
            return "mount the network folder again, then run the same command"
    return f"check that {name} can be read: head -c 1 {name}"


def write_hint(path: str, number: int | None, left_bytes: int | None) -> str:
    """The `do` for a path that could not be written; `left_bytes` were left to write, if known."""
    name, folder = shlex.quote(path), quote_folder(path)
    space = "space" if left_bytes is None else f"at least {left_bytes:,} bytes"
    match number:
        case errno.ENOSPC:
            return f"free {space} on the disk that holds {folder}, or write to another disk"
        case errno.EDQUOT:
            return f"free {space} of your quota on the disk that holds {folder}, or write to another disk"
        case errno.EROFS:
            return f"write to another folder: {folder} is mounted read-only"
        case errno.EACCES | errno.EPERM:
            return f"chmod u+wx {folder}      (or write to another folder)"
        case errno.ENOENT:
            return f"mkdir -p {folder}"
        case errno.ENOTDIR:
            return f"write to another folder: part of {folder} is a file"
        case errno.EEXIST:
            return f"choose another name, or first: rm {name}"
        case errno.EISDIR | errno.ENOTEMPTY:
            return f"choose another name: {name} is a folder"
        case errno.EFBIG:
            return "write smaller files: this is the largest that the disk or `ulimit -f` allows"
        case errno.ENAMETOOLONG:
            return "choose a shorter name"
        case errno.EXDEV:
            return "use two paths on one disk: a rename cannot cross disks"
        case errno.EMFILE | errno.ENFILE:
            return "ulimit -n 4096      (too many files are open at once)"
        case errno.EIO:
            return f"write to another disk: the one that holds {folder} reports an error"
    return "write to another folder"


def working_directory_error() -> RekordError | None:
    """The error for a working directory that was deleted or is not accessible; None if it is fine."""
    try:
        os.getcwd()
    except OSError as failure:
        where = os.environ.get("PWD")
        return error(
            "X511",
            location=Location(path=where),
            found=failure.strerror,
            do='cd "$PWD"      (or cd to another folder, if this one was deleted)',
        )
    return None


# A thread that writes.

WRITE_BYTES = 4 << 20
"""Bytes per write; a smaller file is written without a thread."""

_MAX_PENDING = 3  # pieces

_SYNC_BYTES = 8 << 20
"""How often the disk starts flushing a hashed file, which is synced at its end."""

LENT_BUFFERS = _MAX_PENDING + 1
"""A lent buffer may be reused after this many more were lent."""


class AsyncWriter:
    """Writes bytes in pieces of any size by a thread. Use it in a `with` block and `finish` it; the file stays open.

    A write error is raised by a later `write` or by `finish`. After that nothing more is written. With `inline`, the
    caller's thread writes: if several files are written at once, that is faster, as the bytes are still in its cache.
    """

    def __init__(self, file: Writable, *, hashed: bool, inline: bool = False) -> None:
        self._file = file
        self._inline = inline
        self._digest = FileDigest() if hashed else None
        self._gathered = bytearray()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        self._stopped = False
        self.n_bytes = 0
        self._begun = 0  # bytes that are being flushed

    def __enter__(self) -> AsyncWriter:
        return self

    def __exit__(self, *failure: object) -> None:
        # The file must not be closed while the thread writes to it.
        self._stopped = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def write(self, data: Buffer) -> None:
        """Write some bytes; the buffer may be reused afterwards."""
        self._gathered += memoryview(data)
        if len(self._gathered) >= WRITE_BYTES:
            self._submit_buffer()

    def write_borrowed(self, data: Buffer) -> None:
        """Queue a buffer without copying; it must not change until `LENT_BUFFERS` more were lent, or all is done."""
        if self._gathered:
            self._submit_buffer()
        self._submit(data)

    def _submit_buffer(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._submit(gathered)

    def _submit(self, data: Buffer) -> None:
        if self._inline:
            self._put(data)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="rekord-write-behind")
        self._waiting.append(self._pool.submit(self._put, data))
        if len(self._waiting) > _MAX_PENDING:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Return when everything is written."""
        while self._waiting:
            self._waiting.popleft().result()
        if self._gathered:
            self._put(self._gathered)
            self._gathered = bytearray()

    @property
    def digest(self) -> str:
        """The digest of what was written; empty if not hashed."""
        return "" if self._digest is None else str(self._digest)

    def _put(self, data: Buffer) -> None:
        if self._stopped:
            return
        try:
            self.n_bytes += self._file.write(data)
            if self._digest is not None and self.n_bytes - self._begun >= _SYNC_BYTES:
                begin_sync(self._file, self._begun, self.n_bytes - self._begun)
                self._begun = self.n_bytes
        except BaseException:
            self._stopped = True
            raise
        if self._digest is not None:
            self._digest.update(data)


_NO_THREAD_MESSAGE = "can't start new thread"
_LOAD_FAILURE_MESSAGES = (
    "failed to map segment",
    "cannot allocate memory",
    "cannot create shared object descriptor",
)
_RERUN_HINT = "then run the same command again"
_FILES = f"ulimit -n 4096      (too many files are open at once; {_RERUN_HINT})"
_THREADS_HINT = f"ulimit -u unlimited      (too many threads or processes; {_RERUN_HINT})"
_ERRNO_HINTS = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _THREADS_HINT,
    errno.ENOSPC: "export TMPDIR=FOLDER      (on a disk with free space)",
}


def system_limit_error(failure: BaseException) -> RekordError | None:
    """The error for what the system refused, None if that is not why something failed."""
    text = " ".join(str(failure).split())
    if isinstance(failure, MemoryError) or getattr(failure, "errno", None) == errno.ENOMEM:
        return out_of_memory_error(f"{type(failure).__name__}{f': {text}' if text else ''}"[:200])
    if isinstance(failure, ImportError) and any(words in text.lower() for words in _LOAD_FAILURE_MESSAGES):
        return out_of_memory_error(text[-120:])
    if isinstance(failure, RuntimeError) and text == _NO_THREAD_MESSAGE:
        # The stack of a thread is memory too, and memory limits are far more common than thread limits.
        return (
            out_of_memory_error(text)
            if portability.address_space_limit()
            else error("X509", found=text, do=_THREADS_HINT)
        )
    if not isinstance(failure, OSError):
        return None
    if failure.errno == errno.ENOENT and failure.filename is None:
        return working_directory_error() or _temporary_folder_error(failure)
    if failure.filename is not None:
        path = os.fsdecode(failure.filename) if isinstance(failure.filename, (str, bytes)) else None
        return error(
            "X509",
            location=Location(path=path),
            found=failure.strerror or text,
            do=write_hint(path or ".", failure.errno, None),
        )
    if failure.errno in _ERRNO_HINTS:
        return error("X509", found=failure.strerror or text, do=_ERRNO_HINTS[failure.errno])
    return None


def out_of_memory_error(found: str, *, expected: str | None = None) -> RekordError:
    """The error for memory that ran out, with the limit that is set, if one is."""
    limit, can_raise = portability.address_space_limit() or (None, False)
    if limit is None:
        do = "close other programs, or use a machine with more memory"
    elif can_raise:
        do = f"ulimit -v unlimited      ({_RERUN_HINT})"
    else:
        do = "run the same command in another shell, without this limit"
    likely = None if limit is None else f"`ulimit -v` limits this process to {limit // 1024:,} KB of memory"
    return error("X508", expected=expected, found=found, likely=likely, do=do)


def check_address_space(need_bytes: int, what: str) -> None:
    """Refuse what would crash for lack of address space, which no exception can report."""
    limit = portability.address_space_limit()
    used = portability.address_space_bytes()
    if limit is not None and used is not None and limit[0] - used < need_bytes:
        raise out_of_memory_error(
            f"{max(limit[0] - used, 0) >> 20:,} MiB left",
            expected=f"at least {need_bytes >> 20:,} MiB of address space for {what}",
        )


def check_working_directory() -> None:
    """Refuse what would crash because the working directory was deleted."""
    failure = working_directory_error()
    if failure is not None:
        raise failure


def _temporary_folder_error(failure: OSError) -> RekordError | None:
    if "temporary directory" not in (failure.strerror or ""):
        return None
    return error(
        "X509",
        found=(failure.strerror or "")[:200],
        do="export TMPDIR=FOLDER      (a folder that you may write to)",
    )
