"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

LARGE_BYTES = 32 << 20
"""A task that handled so much leaves enough behind for it to be worth a few milliseconds."""


def give_back() -> None:
    """Let go of what the allocator holds for later.

    glibc keeps freed blocks of up to 32 MiB once it has seen such sizes, and what it keeps grows for hours as
    buffers of many sizes come and go. Other allocators return memory by themselves.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return None
