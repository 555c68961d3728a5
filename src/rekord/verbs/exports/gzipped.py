"""A gzip stream around what is written, where one was asked for."""

from __future__ import annotations

import zlib
from types import TracebackType
from typing import TYPE_CHECKING

from rekord.verbs.exports.place import Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

_GZIP_WINDOW = 31
_LEVEL = 6


class Gzipped:
    """Takes bytes and hands them on, compressed or not; its end is written when the block ends well."""

    def __init__(self, output: Output, compressed: bool) -> None:
        self._output = output
        self._stream = zlib.compressobj(_LEVEL, wbits=_GZIP_WINDOW) if compressed else None

    def __enter__(self) -> Gzipped:
        return self

    def write(self, data: Buffer) -> None:
        self._output.write(data if self._stream is None else self._stream.compress(data))

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._stream is not None:
            self._output.write(self._stream.flush())
