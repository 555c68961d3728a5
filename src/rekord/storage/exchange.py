"""Two names exchanged in one step, where the system can: Python has no call for it."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from typing import Any

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
