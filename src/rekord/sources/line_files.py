"""Sources of text files in which every line is a row: what they share, whatever a line holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from rekord.sources.base import Chunk, Row
from rekord.sources.files import ByteStream, Listing, listed, opened
from rekord.sources.lines import Cut, LostRow, RowBlock, Rules, Span, lost_row_error, row_blocks

RULES = Rules()

ReadBlock: TypeAlias = Callable[[RowBlock, str, str], Iterator[Chunk]]
"""The rows of a block, of a file that has one path below the root and another one for people."""


@dataclass(frozen=True, slots=True)
class LineFiles:
    """The files of a source, by where they are and what they are called."""

    path: str

    kind: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]]

    @property
    def root(self) -> str:
        return self.listing().root

    def options(self) -> Mapping[str, Any]:
        return {}

    def listing(self) -> Listing:
        """The files, as they are now."""
        return listed(self.path, self.extensions)


def span_rows(span: Span, root: str, read: ReadBlock) -> Iterator[Chunk]:
    """The rows of a piece of a file."""
    path = Listing(root, ()).full(span.file)
    with opened(path, span.file, span.begin.offset, span.end) as stream:
        yield from _rows(row_blocks(stream, RULES, span.begin), span.file.path, path, read)


def stream_rows(
    stream: ByteStream, head: tuple[bytes, int], path: str, full_path: str, read: ReadBlock
) -> Iterator[Chunk]:
    """The rows of a whole file whose head was looked at."""
    data, offset = head
    yield from _rows(row_blocks(stream, RULES, Cut(offset, 0, 1), head=data), path, full_path, read)


def _rows(
    blocks: Iterator[RowBlock | LostRow], path: str, full_path: str, read: ReadBlock
) -> Iterator[Chunk]:
    for block in blocks:
        if isinstance(block, LostRow):
            yield Row(path, block.row, lost_row_error(block, full_path), block.line)
        else:
            yield from read(block, path, full_path)
