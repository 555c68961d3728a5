"""A file elsewhere, read from front to end: the next blocks are on their way while the last one is decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer

FIRST_BYTES = 256 << 10
"""What the first request asks for: who only looks at the head of a file shall not pay for a block of it."""

BLOCK_BYTES = 8 << 20
"""What one request of a sequential read asks for: enough to forget its latency."""

BLOCKS_AHEAD = 2
"""So many blocks are on their way: while one arrives, the other has been asked for."""


class ReadAhead:
    """A file of `size_bytes`, open for reading. `fetch(begin, end)` gives that range, whole, or raises.

    A read that goes on where the last one ended is taken for a sequential one. Any other fetches what it needs.
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
        self._wanted = _Wanted()

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
        # A finalizer may call this, so that it takes no lock: an executor that nobody holds ends by itself. A request
        # that is under way is left to itself, and none is begun any more.
        self._forget()
        self._threads = None
        self._block = b""
        self._begin = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _next_block(self, wanted_bytes: int) -> None:
        """Bring the block that begins where reading goes on."""
        begin = self._place
        goes_on = bool(self._block) and begin == self._begin + len(self._block)
        self._block = b""  # before the next one comes, so that there is never one more than said
        if goes_on:
            self._ask_ahead(begin)
            self._begin, self._block = begin, self._ahead.popleft()[1].result()
        else:
            self._forget()
            size_bytes = max(FIRST_BYTES, min(wanted_bytes, BLOCK_BYTES))
            self._block = self._fetch(begin, min(begin + size_bytes, self.size_bytes))
            self._begin = begin

    def _ask_ahead(self, begin: int) -> None:
        """Ask for the block that begins here and for those behind it, as far as nobody has yet."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1 + BLOCKS_AHEAD, thread_name_prefix="rekord-fetch")
        begin = self._ahead[-1][0] if self._ahead else begin
        while len(self._ahead) <= BLOCKS_AHEAD and begin < self.size_bytes:
            end = min(begin + BLOCK_BYTES, self.size_bytes)
            self._ahead.append((end, self._threads.submit(self._wanted.fetch, self._fetch, begin, end)))
            begin = end

    def _forget(self) -> None:
        """Begin none of the requests that wait."""
        self._wanted.given_up = True
        self._wanted = _Wanted()
        self._ahead.clear()


class _Wanted:
    """Whether what was asked for ahead is still wanted."""

    given_up = False

    def fetch(self, fetch: Callable[[int, int], bytes], begin: int, end: int) -> bytes:
        """The range, unless nobody wants it any more."""
        return b"" if self.given_up else fetch(begin, end)
