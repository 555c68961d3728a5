"""What not every system has, each with an alternative: the only module with platform-specific code.

| what           | Linux, macOS                  | Windows                                   |
|----------------|-------------------------------|-------------------------------------------|
| lock a file    | `flock`                       | `msvcrt.locking`                          |
| read at offset | `pread`, `preadv`             | seek and read, one thread at a time       |
| sync a folder  | `fsync` of its descriptor     | nothing: NTFS logs names by itself        |
| swap two names | `renameat2`, `renamex_np`     | False: the caller makes two renames       |
| replace        | `rename`                      | `MoveFileEx`, without the empty folder    |
| memory limit   | `getrlimit`, `setrlimit`      | None                                      |

Features are detected through Python (`hasattr`, `ImportError`), not derived from the system's name, so that a test
can remove them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]
try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

_AT_FDCWD = -100  # AT_FDCWD of Linux: paths are relative to the working directory
_RENAME_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_UNSUPPORTED_ERRNOS = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_NO_LINK_ERRNOS = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSYS)
"""Another disk, too many links, a file of another user, or a file system without links."""

_LOCKED_BYTE = 1 << 30  # Windows locks bytes, and nobody else can read them: not those that name the holder
_BINARY = getattr(os, "O_BINARY", 0)
_one_reader = threading.Lock()


def open_to_read(path: str | bytes, *, wait: bool = False) -> int:
    """A file descriptor. Without `wait`, a pipe without a writer is opened without blocking."""
    return os.open(path, os.O_RDONLY | _BINARY | (0 if wait else getattr(os, "O_NONBLOCK", 0)))


def pread(descriptor: int, size_bytes: int, offset: int) -> bytes:
    """Bytes from an offset on, fewer only at the end of the file; the position of the descriptor does not change."""
    found = _pread(descriptor, size_bytes, offset)
    while 0 < len(found) < size_bytes:  # at most 2 GiB are read per call
        more = _pread(descriptor, size_bytes - len(found), offset + len(found))
        if not more:
            break
        found += more
    return found


def _pread(descriptor: int, size_bytes: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, size_bytes, offset)
    with _one_reader:
        before = os.lseek(descriptor, 0, os.SEEK_CUR)
        try:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, size_bytes)
        finally:
            os.lseek(descriptor, before, os.SEEK_SET)


def pread_into(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Fill `buffer` from an offset on; OSError if the file ends before."""
    while buffer:
        if hasattr(os, "preadv"):
            count = os.preadv(descriptor, [buffer], offset)
        else:
            data = _pread(descriptor, len(buffer), offset)
            count, buffer[: len(data)] = len(data), data
        if not count:
            raise OSError(None, "a temporary file became shorter")
        buffer, offset = buffer[count:], offset + count


def sync_file(descriptor: int) -> None:
    """Return when the written data is on disk."""
    if sys.platform == "darwin" and fcntl is not None:
        # On macOS, fsync only passes the bytes to the drive; this waits until the drive has stored them.
        with suppress(OSError):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
    os.fsync(descriptor)


def begin_sync(descriptor: int, begin: int, size_bytes: int) -> None:
    """Start writing recent bytes to disk, so that `sync_file` waits less. Only a hint."""
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):
            # Dirty pages cannot be dropped, so they are written to the disk immediately.
            os.posix_fadvise(descriptor, begin, size_bytes, os.POSIX_FADV_DONTNEED)


def sync_folder(path: str) -> None:
    """Return when the names in a folder are on disk."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as failure:
        # Some network file systems cannot sync a folder, and have no safer alternative.
        if failure.errno not in _UNSUPPORTED_ERRNOS:
            raise
    finally:
        os.close(descriptor)


def replace(source: str, target: str) -> None:
    """Rename a file over another one, or a folder to an unused name or an empty folder."""
    try:
        os.replace(source, target)
    except PermissionError:
        # Windows does not rename a folder over another one, not even an empty one.
        if fcntl is not None or not (os.path.isdir(source) and os.path.isdir(target)):
            raise
        os.rmdir(target)
        os.replace(source, target)


def link_file(source: str, target: str) -> bool:
    """Create a hard link; False if the system or the file system cannot."""
    try:
        os.link(source, target)
    except OSError as failure:
        if failure.errno in _NO_LINK_ERRNOS:
            return False
        raise
    return True


def exchange_names(one: str, other: str) -> bool:
    """Exchange two names; False if the system or the file system cannot. Raises OSError for anything else."""
    call = _load_renameat2()
    if call is None:
        return False
    failed, number = call(os.fsencode(one), os.fsencode(other))
    if not failed:
        return True
    if number in _UNSUPPORTED_ERRNOS:
        return False
    raise OSError(number, os.strerror(number), one)


@cache
def _load_renameat2() -> Any:
    library = _c_library()
    if hasattr(library, "renameat2") and sys.platform.startswith("linux"):
        return lambda one, other: (
            library.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, ctypes.c_uint(_RENAME_EXCHANGE)),
            ctypes.get_errno(),
        )
    if hasattr(library, "renamex_np") and sys.platform == "darwin":
        return lambda one, other: (
            library.renamex_np(one, other, ctypes.c_uint(_RENAME_EXCHANGE)),
            ctypes.get_errno(),
        )
    return None


@cache
def _c_library() -> Any:
    try:
        return ctypes.CDLL(None, use_errno=True)
    except (OSError, TypeError):
        return None


def lock_file(path: str) -> int:
    """Hold the lock file at `path`, created if missing; BlockingIOError if another process holds it.

    The system releases it when this process ends, for whatever reason.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(descriptor)
            # The previous holder may have removed the file after we opened it and before we locked it.
            if _is_at(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def unlock_file(path: str, descriptor: int) -> None:
    """Release a lock file, and remove it."""
    if fcntl is None:
        # Windows does not remove an open file: one that another process holds by now stays.
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(path)
    else:
        with suppress(OSError):
            os.unlink(path)
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    locking, without_waiting = msvcrt.locking, msvcrt.LK_NBLCK
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        locking(descriptor, without_waiting, 1)
    except OSError as failure:
        raise BlockingIOError(failure.errno, "locked by another process") from failure
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


TRIM_THRESHOLD_BYTES = 32 << 20
"""After a task that processed this many bytes, trimming is worth a few milliseconds."""


def trim_heap() -> None:
    """Return free memory of the allocator to the system.

    glibc keeps freed blocks of up to 32 MiB once it has seen such sizes, and they grow for hours with buffers of
    many sizes. Other allocators return memory by themselves.
    """
    library = _c_library()
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


_M_MMAP_THRESHOLD = -3


@cache
def return_large_buffers(n_bytes: int) -> None:
    """Have buffers of at least `n_bytes` returned to the system as soon as they are freed, in this process.

    glibc raises this threshold to 32 MiB when it sees large buffers, and then keeps those that other threads free:
    one heap per thread. Measured with uploads of 300 MB: 205 MB instead of 367 MB.
    """
    library = _c_library()
    if hasattr(library, "mallopt"):
        library.mallopt(_M_MMAP_THRESHOLD, n_bytes)


def get_user_id() -> int | None:
    """The user that runs this process; None where users have no numbers."""
    return os.getuid() if hasattr(os, "getuid") else None


def address_space_limit() -> tuple[int, bool] | None:
    """The address space limit of this process in bytes, and whether it can be raised; None without a limit."""
    if resource is None:
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else (soft, hard == resource.RLIM_INFINITY)


def address_space_bytes() -> int | None:
    """The address space that this process uses; None if the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def reduce_address_space() -> None:
    """If memory is limited, make libraries that are not loaded yet reserve less of it in advance."""
    if address_space_limit() is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def limit_private_memory(more_bytes: int) -> None:
    """Bound what this process allocates from here on, where the system can: files that it maps do not count."""
    if resource is None or not os.path.exists("/proc/self/statm"):
        return
    with open("/proc/self/statm", "rb") as file:
        taken = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (taken + more_bytes,) * 2)


def limit_process(memory_bytes: int, cpu_seconds: int) -> None:
    """Bound the memory that this process takes from here on and its time, where the system can; 0 is unlimited."""
    if resource is None:
        return
    if memory_bytes and os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (taken + memory_bytes,) * 2)
    if cpu_seconds:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds,) * 2)
