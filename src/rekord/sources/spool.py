"""Rows that can be read only once, kept in a temporary file so that they can be read again."""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Iterator
from typing import Any

from rekord.errors import error
from rekord.sources.base import Chunk, Source, WrappedSource
from rekord.storage.local import write_error

_BUFFER_BYTES = 1 << 20


class SpooledSource(WrappedSource):
    """A sequential source whose rows are kept on disk while they are read for the first time.

    The temporary file has no name: it is gone when the process ends, however it ends.
    """

    def __init__(self, source: Source, folder: str | None) -> None:
        self.source = source
        self._folder = folder
        self._file: Any = None
        self._chunks = 0
        self._complete = False

    def rows(self) -> Iterator[Chunk]:
        """All rows, in order: from the source the first time, then from the file."""
        return self._replay() if self._complete else self._spool()

    def _spool(self) -> Iterator[Chunk]:
        source: Any = self.source
        self._file = tempfile.TemporaryFile(dir=self._folder, buffering=_BUFFER_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        for chunk in source.rows():
            self._write(chunk)
            yield chunk
        self._file.flush()
        self._complete = True

    def _write(self, chunk: Chunk) -> None:
        try:
            pickle.dump(chunk, self._file, protocol=5)
        except OSError as failure:
            raise write_error(self._folder or tempfile.gettempdir(), failure) from failure
        except Exception as failure:
            raise error(
                "U616",
                "rows can be read only once, and cannot be kept until their classes are known",
                expected="rows that can be pickled, or an iterable that can be read twice",
                found=f"{type(failure).__name__}: {failure}"[:60],
                do="pass list(rows), or declare the classes: rk.Label(names)",
            ) from failure
        self._chunks += 1

    def _replay(self) -> Iterator[Chunk]:
        at = 0
        for _ in range(self._chunks):
            self._file.seek(at)  # another iterator may have moved
            chunk: Chunk = pickle.load(self._file)  # our own file, which no other process can open
            at = self._file.tell()
            yield chunk
