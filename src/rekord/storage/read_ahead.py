"""Sequential reading of remote files: blocks are requested before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

FIRST_BYTES = 256 << 10
"""Size of the first request: reading the head of a file does not fetch a whole block."""

BLOCK_BYTES = 8 << 20
"""Request size of sequential reads: large enough to hide the latency."""

READ_AHEAD_BLOCKS = 2
"""Blocks requested ahead."""


class ReadAhead:
    """A file of `size_bytes`, open for reading. `fetch(begin, end)` returns the complete range, or raises.

    A read that continues where the last one ended is treated as sequential. Any other fetches only what it needs.
    """

    def __init__(self, path: str, size_bytes: int, fetch: Callable[[int, int], bytes]) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._fetch = fetch
        self._place = 0
        self._begin = 0  # of the block at hand
        self._block = b""
        self._ahead: deque[tuple[int, Future[bytes]]] = deque()  # the end of each block that comes
        self._threads: ThreadPoolExecutor | None = None
        self._wanted = _CancelToken()

    def readinto(self, buffer: Buffer, /) -> int:
        with memoryview(buffer).cast("B") as view:
            if self._place >= self.size_bytes or not len(view):
                return 0
            if not self._begin <= self._place < self._begin + len(self._block):
                self._next_block(len(view))
            at = self._place - self._begin
            count = min(len(view), len(self._block) - at)
            view[:count] = memoryview(self._block)[at : at + count]
            self._place += count
            return count

    def seek(self, offset: int, /) -> int:
        self._place = offset
        return offset

    def close(self) -> None:
        # A finalizer may call this, so it takes no lock: an executor without references ends by itself. Running
        # requests finish on their own, and no new ones start.
        self._forget()
        self._threads = None
        self._block = b""
        self._begin = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _next_block(self, wanted_bytes: int) -> None:
        """Fetch the block that begins at the current position."""
        begin = self._place
        is_sequential = bool(self._block) and begin == self._begin + len(self._block)
        self._block = b""  # before the next one arrives, to keep to the memory limit
        if is_sequential:
            self._prefetch(begin)
            self._begin, self._block = begin, self._ahead.popleft()[1].result()
        else:
            self._forget()
            size_bytes = max(FIRST_BYTES, min(wanted_bytes, BLOCK_BYTES))
            self._block = self._fetch_first(begin, min(begin + size_bytes, self.size_bytes))
            self._begin = begin

    def _fetch_first(self, begin: int, end: int) -> bytes:
        """Fetch a block that does not continue the last one."""
        return self._fetch(begin, end)

    def _prefetch(self, begin: int) -> None:
        """Request the block that begins here and the ones after it, unless they are requested already."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1 + READ_AHEAD_BLOCKS, thread_name_prefix="rekord-fetch")
        begin = self._ahead[-1][0] if self._ahead else begin
        while len(self._ahead) <= READ_AHEAD_BLOCKS and begin < self.size_bytes:
            end = min(begin + BLOCK_BYTES, self.size_bytes)
            self._ahead.append((end, self._threads.submit(self._wanted.fetch, self._fetch, begin, end)))
            begin = end

    def _forget(self) -> None:
        """Cancel the requests that have not started."""
        self._wanted.is_cancelled = True
        self._wanted = _CancelToken()
        self._ahead.clear()


class _CancelToken:
    """Whether read-ahead requests are still wanted."""

    is_cancelled = False

    def fetch(self, fetch: Callable[[int, int], bytes], begin: int, end: int) -> bytes:
        """The range, unless it was cancelled."""
        return b"" if self.is_cancelled else fetch(begin, end)
