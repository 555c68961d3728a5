"""What an iterator over batches keeps running, whatever else runs in the same process."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread
from typing import Any

from rekord.dataset.readers.pipeline import InlineWork, OrderedWork

_DEADLINE_SECONDS = 120.0


def threads_of(iterator: Any) -> list[Thread]:
    """The threads of an iterator that has begun."""
    reading = iterator._reading
    for name in ("_reading", "_reading", "_work"):
        reading = getattr(reading, name, reading)
    assert reading is None or isinstance(reading, (OrderedWork, InlineWork))
    return list(reading._threads) if isinstance(reading, OrderedWork) else []


def eventually(holds: Callable[[], Any]) -> bool:
    """Wait until something holds; False where it does not for very long."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def ended(threads: list[Thread]) -> bool:
    """Wait until these threads have ended, each after the piece of work that it is at."""
    return eventually(lambda: not any(one.is_alive() for one in threads))
