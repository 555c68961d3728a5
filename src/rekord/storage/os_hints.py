"""What to do when the system refuses memory, threads or a working directory: errors, and refusals before a crash."""

from __future__ import annotations

import errno
import os

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage import portability
from rekord.storage.local import working_directory_error, write_hint

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
