"""What to do where the system refuses to read or to write a file."""

from __future__ import annotations

import errno
import os
import shlex


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
