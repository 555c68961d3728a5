"""Ctrl-C, and the system's wish that a process end, heard where nothing is half done."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_HEARD = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """In a `with` block a first signal is noted and told by `check`; a second one ends the block at once.

    Only the main thread of a process can hear signals: in another one this does nothing.
    """

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._hear) for each in _HEARD}
        return self

    def __exit__(self, *failure: object) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt where a signal came since the block began."""
        if self._asked:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
