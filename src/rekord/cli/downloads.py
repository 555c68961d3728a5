"""The progress of downloads, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rekord.cli import console
from rekord.cli.console import escape_controls
from rekord.storage.cache import on_download

_MIN_BYTES = 8 << 20
_REFRESH_SECONDS = 0.2


@contextmanager
def show_downloads() -> Iterator[None]:
    """In a `with` block, downloads of files that are worth waiting for are reported."""
    token = on_download.set(_DownloadProgress().show)
    try:
        yield
    finally:
        on_download.reset(token)


class _DownloadProgress:
    """One line for a file, which a terminal shows grow."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._begun: set[str] = set()

    def show(self, url: str, done_bytes: int, total_bytes: int) -> None:
        if not console.shows_progress() or total_bytes < _MIN_BYTES:
            return
        name = escape_controls(url)
        if url not in self._begun:
            self._begun.add(url)
            resumed = f", resumed at {done_bytes / 1e6:,.0f} MB" if done_bytes else ""
            console.print_status(f"downloading {name}: {total_bytes / 1e6:,.0f} MB{resumed}")
        now = time.monotonic()
        is_complete = done_bytes == total_bytes
        if console.is_terminal(sys.stderr) and (is_complete or now - self._shown >= _REFRESH_SECONDS):
            self._shown = now
            share = 100 * done_bytes // total_bytes
            end = "\r\033[K" if is_complete else ""
            with suppress(OSError):
                sys.stderr.write(f"\r  {share} %, {done_bytes / 1e6:,.0f} of {total_bytes / 1e6:,.0f} MB{end}")
                sys.stderr.flush()
