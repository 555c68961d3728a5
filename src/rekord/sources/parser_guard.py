"""Limits for a process that parses hostile files with another library: what it may open.

This is no sandbox against native code. The library is trusted; the files that it reads are not.
"""

from __future__ import annotations

import os
import sys
from typing import Any

_MAX_SHOWN = 200


class DeniedError(PermissionError):
    """Something that data must not cause."""


class Guard:
    """An audit hook: what Datumaro may open, and what it opened."""

    _NEVER = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.", "urllib.")
    _WRITES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")

    def __init__(self, root: str, out: str | None) -> None:
        self.root = os.path.join(os.path.abspath(root), "")
        self.out = None if out is None else os.path.abspath(out)
        self.opened: dict[str, None] = {}
        self.denied: dict[str, None] = {}
        libraries = [sys.prefix, sys.base_prefix, sys.exec_prefix, *[one for one in sys.path if one]]
        system = ["/proc", "/sys", "/dev/null", "/dev/urandom", "/usr/share/zoneinfo", "/etc/localtime", "/usr/lib"]
        self._readable = tuple([os.path.join(os.path.abspath(one), "") for one in libraries] + system)

    def install(self) -> None:
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, (str, bytes)):
                self._open(os.path.abspath(os.fsdecode(path)), mode, flags)
        elif event == "pickle.find_class":
            if not str(arguments[0]).startswith("numpy"):
                self._deny(f"unpickling of {arguments[0]}.{arguments[1]}")
        elif event.startswith((*self._NEVER, *self._WRITES)):
            self._deny(event)

    def _open(self, path: str, mode: Any, flags: Any) -> None:
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if writes:
            if path not in (self.out, "/dev/null"):
                self._deny(f"writing to {path}")
        elif path.startswith(self.root):
            self.opened[path] = None
        elif not path.startswith(self._readable):
            self._deny(f"reading {path}")

    def _deny(self, what: str) -> None:
        self.denied[what[:_MAX_SHOWN]] = None
        raise DeniedError(what)

    @property
    def last(self) -> str | None:
        return next(reversed(self.opened), None)

    def relative(self, path: str) -> str:
        return path[len(self.root) :].replace(os.sep, "/")
