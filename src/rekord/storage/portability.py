"""What differs between systems: atomic renames, limits of a process, and what to do when the system refuses."""

from __future__ import annotations

import ctypes
import errno
import os
import shlex
import sys
from functools import cache
from typing import Any

from rekord.errors import RekordError, error
from rekord.location import Location

_HERE = -100  # AT_FDCWD of Linux: paths are relative to the working folder
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def exchange_names(one: str, other: str) -> bool:
    """Exchange two names; False where the system or the file system cannot. Raises OSError for all else."""
    call = _call()
    if call is None:
        return False
    failed, number = call(os.fsencode(one), os.fsencode(other))
    if not failed:
        return True
    if number in _UNABLE:
        return False
    raise OSError(number, os.strerror(number), one)


@cache
def _call() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        return lambda one, other: (
            library.renameat2(_HERE, one, _HERE, other, ctypes.c_uint(_EXCHANGE)),
            ctypes.get_errno(),
        )
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        return lambda one, other: (
            library.renamex_np(one, other, ctypes.c_uint(_EXCHANGE)),
            ctypes.get_errno(),
        )
    return None


def quoted_folder(path: str) -> str:
    """The folder of a path, for a command line."""
    return shlex.quote(os.path.dirname(path) or ".")


def to_read(path: str, number: int | None) -> str:
    """For a path that could not be read, by the number of the error."""
    name = shlex.quote(path)
    match number:
        case errno.EACCES | errno.EPERM:
            return f"chmod u+rX {name}      (or run as a user who may read it)"
        case errno.EISDIR:
            return "name a file in this folder"
        case errno.EIO:
            return f"copy {name} again from its origin: the disk or network that holds it reports an error"
        case errno.ELOOP:
            return f"ls -l {name}      (its links lead in a circle)"
        case errno.EMFILE | errno.ENFILE:
            return "ulimit -n 4096      (too many files are open at once)"
        case errno.ESTALE | errno.ENOTCONN | errno.ETIMEDOUT | errno.EHOSTDOWN:
            return "mount the network place again, then run the same command"
    return f"check that {name} can be read: head -c 1 {name}"


def to_write(path: str, number: int | None, left_bytes: int | None) -> str:
    """For a path that could not be written; `left_bytes` were still to come, if that is known."""
    name, folder = shlex.quote(path), quoted_folder(path)
    space = "space" if left_bytes is None else f"at least {left_bytes:,} bytes"
    match number:
        case errno.ENOSPC:
            return f"free {space} on the disk that holds {folder}, or choose another place"
        case errno.EDQUOT:
            return f"free {space} of your quota on the disk that holds {folder}, or choose another place"
        case errno.EROFS:
            return f"choose another place: {folder} is mounted read-only"
        case errno.EACCES | errno.EPERM:
            return f"chmod u+wx {folder}      (or choose another place)"
        case errno.ENOENT:
            return f"mkdir -p {folder}"
        case errno.ENOTDIR:
            return f"choose another place: part of {folder} is a file"
        case errno.EEXIST:
            return f"choose another name, or first: rm {name}"
        case errno.EISDIR | errno.ENOTEMPTY:
            return f"choose another name: {name} is a folder"
        case errno.EFBIG:
            return "write smaller files: this is the largest that the disk or `ulimit -f` takes"
        case errno.ENAMETOOLONG:
            return "choose a shorter name"
        case errno.EXDEV:
            return "choose two places on one disk: a rename cannot cross disks"
        case errno.EMFILE | errno.ENFILE:
            return "ulimit -n 4096      (too many files are open at once)"
        case errno.EIO:
            return f"choose another disk: the one that holds {folder} reports an error"
    return "choose another place"


_NO_THREAD = "can't start new thread"
_NOT_LOADED = ("failed to map segment", "cannot allocate memory", "cannot create shared object descriptor")
_AGAIN = "then run the same command again"
_FILES = f"ulimit -n 4096      (too many files are open at once; {_AGAIN})"
_THREADS = f"ulimit -u unlimited      (too many threads or processes; {_AGAIN})"
_REFUSED = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _FILES,
    errno.EAGAIN: _THREADS,
    errno.ENOSPC: "free space on the disk of temporary files, or name another: export TMPDIR=FOLDER",
}


def refused(failure: BaseException) -> RekordError | None:
    """The error for what the system refused, None if that is not why something failed."""
    text = " ".join(str(failure).split())
    if isinstance(failure, MemoryError) or getattr(failure, "errno", None) == errno.ENOMEM:
        return out_of_memory(f"{type(failure).__name__}{f': {text}' if text else ''}"[:200])
    if isinstance(failure, ImportError) and any(words in text.lower() for words in _NOT_LOADED):
        return out_of_memory(text[-120:])
    if isinstance(failure, RuntimeError) and text == _NO_THREAD:
        # The stack of a thread is memory too, and a limit of memory is set far more often than one of threads.
        return out_of_memory(text) if address_space_limit() else error("X509", found=text, do=_THREADS)
    if not isinstance(failure, OSError):
        return None
    if failure.errno == errno.ENOENT and failure.filename is None:
        return working_directory_error() or _no_temporary_folder(failure)
    if failure.filename is not None:
        path = os.fsdecode(failure.filename) if isinstance(failure.filename, (str, bytes)) else None
        return error(
            "X509",
            location=Location(path=path),
            found=failure.strerror or text,
            do=to_write(path or ".", failure.errno, None),
        )
    if failure.errno in _REFUSED:
        return error("X509", found=failure.strerror or text, do=_REFUSED[failure.errno])
    return None


def out_of_memory(found: str, *, expected: str | None = None) -> RekordError:
    """The error for memory that ran out, with the limit that is set, if one is."""
    limit, can_raise = address_space_limit() or (None, False)
    if limit is None:
        do = "close other programs, or use a machine with more memory"
    elif can_raise:
        do = f"ulimit -v unlimited      ({_AGAIN})"
    else:
        do = "run the same command in another shell, without this limit"
    likely = None if limit is None else f"`ulimit -v` limits this process to {limit // 1024:,} KB of memory"
    return error("X508", expected=expected, found=found, likely=likely, do=do)


def check_address_space(need_bytes: int, what: str) -> None:
    """Refuse what would crash for want of address space, which no exception can report."""
    limit = address_space_limit()
    used = _address_space_bytes()
    if limit is not None and used is not None and limit[0] - used < need_bytes:
        raise out_of_memory(
            f"{max(limit[0] - used, 0) >> 20:,} MiB that are left",
            expected=f"at least {need_bytes >> 20:,} MiB of address space for {what}",
        )


def check_working_directory() -> None:
    """Refuse what would crash where the working directory was deleted."""
    failure = working_directory_error()
    if failure is not None:
        raise failure


def working_directory_error() -> RekordError | None:
    """The error for a working directory that was deleted or may not be entered; None if it is all right."""
    try:
        os.getcwd()
    except OSError as failure:
        where = os.environ.get("PWD")
        return error(
            "X511",
            location=Location(path=where),
            found=failure.strerror,
            do='cd "$PWD"      (or cd to another folder, if this one is gone)',
        )
    return None


def spare_address_space() -> None:
    """Where memory is limited, let libraries that are not loaded yet reserve less of it in advance."""
    if address_space_limit() is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def address_space_limit() -> tuple[int, bool] | None:
    """How many bytes of address space this process may have, and whether it may have more; None without a limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else (soft, hard == resource.RLIM_INFINITY)


def _address_space_bytes() -> int | None:
    """How much of its address space this process uses; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _no_temporary_folder(failure: OSError) -> RekordError | None:
    if "temporary directory" not in (failure.strerror or ""):
        return None
    return error(
        "X509",
        found=(failure.strerror or "")[:200],
        do="export TMPDIR=FOLDER      (one that you may write to)",
    )
