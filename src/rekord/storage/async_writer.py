"""A new file, written and hashed by a thread of its own while what comes next is read."""

from __future__ import annotations

import hashlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING

from rekord.storage.local import Writable, begin_sync

if TYPE_CHECKING:
    from typing_extensions import Buffer

WRITE_BYTES = 4 << 20
"""So much is written at once; a file of less is written without a thread."""

_MAX_PENDING = 3  # such pieces, at the most

_SYNC_BYTES = 8 << 20
"""So often the disk is told to begin. What is hashed is to last, and its end waits for the disk."""

LENT_BUFFERS = _MAX_PENDING + 1
"""What was lent may be used again when so many more were lent."""


class AsyncWriter:
    """Takes bytes in any pieces. Use it in a `with` block and `finish` it; the file itself is left open.

    What goes wrong with writing is raised by a later `write`, or by `finish`. After that nothing more is written.
    """

    def __init__(self, file: Writable, *, hashed: bool) -> None:
        self._file = file
        self._digest = hashlib.sha256() if hashed else None
        self._gathered = bytearray()
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: deque[Future[None]] = deque()
        self._stopped = False
        self.n_bytes = 0
        self._begun = 0  # so many bytes are on their way to the disk

    def __enter__(self) -> AsyncWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Whoever closes the file next must not do so under the hands of the thread.
        self._stopped = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def write(self, data: Buffer) -> None:
        """Take some bytes, which may be used again after that."""
        self._gathered += memoryview(data)
        if len(self._gathered) >= WRITE_BYTES:
            self._submit_buffer()

    def write_borrowed(self, data: Buffer) -> None:
        """Queue a buffer, uncopied; it must stay unchanged until `LENT_BUFFERS` more were lent, or all is done."""
        if self._gathered:
            self._submit_buffer()
        self._submit(data)

    def _submit_buffer(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._submit(gathered)

    def _submit(self, data: Buffer) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="rekord-write-behind")
        self._waiting.append(self._pool.submit(self._put, data))
        if len(self._waiting) > _MAX_PENDING:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Return when everything is written."""
        while self._waiting:
            self._waiting.popleft().result()
        if self._gathered:
            self._put(self._gathered)
            self._gathered = bytearray()

    def sha256(self) -> str:
        """The digest of what was written; nothing where that was not asked for."""
        return "" if self._digest is None else self._digest.hexdigest()

    def _put(self, data: Buffer) -> None:
        if self._stopped:
            return
        try:
            self.n_bytes += self._file.write(data)
            if self._digest is not None and self.n_bytes - self._begun >= _SYNC_BYTES:
                begin_sync(self._file, self._begun, self.n_bytes - self._begun)
                self._begun = self.n_bytes
        except BaseException:
            self._stopped = True
            raise
        if self._digest is not None:
            self._digest.update(data)
