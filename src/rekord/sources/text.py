"""Text files: a row for each line that holds something."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rekord.errors import RekordError
from rekord.location import Location
from rekord.schema import Schema, Text
from rekord.sources.base import PART_BYTES, Chunk, Columns, Facts, Part, Row
from rekord.sources.files import Listing, checked_path, empty, is_gzip_name, opened
from rekord.sources.line_files import RULES, LineFiles, span_rows, stream_rows
from rekord.sources.lines import Cut, FileIndex, RowBlock, grouped, index_file, not_utf8, spans, text_head

EXTENSIONS = (".txt", ".text", ".txt.gz", ".text.gz")
_SCHEMA = Schema({"text": Text()})


@dataclass(frozen=True, slots=True)
class TextSource(LineFiles):
    """Rows of text files."""

    kind = "text"
    extensions = EXTENSIONS

    def facts(self) -> Facts:
        listing = self.listing()
        return _facts(listing, _indexes(listing))

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        listing = self.listing()
        cut = grouped(spans(_indexes(listing), part_bytes), part_bytes)
        return [Part((listing.root, part.content), part.source_bytes) for part in cut]

    def read(self, part: Part) -> Iterator[Chunk]:
        root, pieces = part.content
        for span in pieces:
            yield from span_rows(span, root, _block_rows)


@dataclass(frozen=True, slots=True)
class ZippedTextSource(LineFiles):
    """Rows of text files that are compressed, and so can only be read from their beginning."""

    kind = "text"
    extensions = EXTENSIONS

    def facts(self) -> Facts:
        listing = self.listing()
        if next(self.rows(), None) is None:
            raise _no_lines(listing)
        return _facts(listing, None)

    def rows(self) -> Iterator[Chunk]:
        listing = self.listing()
        for file in listing.files:
            path = listing.full(file)
            with opened(path, file, gzipped=True) as stream:
                yield from stream_rows(stream, text_head(stream, path), file.path, path, _block_rows)


def text(path: str | os.PathLike[str]) -> TextSource | ZippedTextSource:
    """Rows of text files, one a line, in the column `text`: a file, a folder or a pattern.

    The end of a line is not part of its text. Empty lines are passed over: they count as lines, not as rows.
    """
    place = checked_path(path, "text")
    return ZippedTextSource(place) if is_gzip_name(place, EXTENSIONS) else TextSource(place)


def _facts(listing: Listing, indexes: tuple[FileIndex, ...] | None) -> Facts:
    return Facts(
        layout="text",
        schema=_SCHEMA,
        rows=None if indexes is None else sum(index.rows for index in indexes),
        source_bytes=listing.source_bytes,
        files=listing.files,
    )


@lru_cache(maxsize=4)
def _indexes(listing: Listing) -> tuple[FileIndex, ...]:
    indexes = []
    for file in listing.files:
        path = listing.full(file)
        with opened(path, file) as stream:
            head, offset = text_head(stream, path)
            indexes.append(index_file(file, stream, RULES, Cut(offset, 0, 1), head=head))
    if not any(index.rows for index in indexes):
        raise _no_lines(listing)
    return tuple(indexes)


def _no_lines(listing: Listing) -> RekordError:
    return empty(listing.full(listing.files[0]), "no line with anything in it", expected="lines of text")


def _block_rows(block: RowBlock, path: str, full_path: str) -> Iterator[Chunk]:
    # Empty lines stand behind the row before them.
    lines = (line.removesuffix(b"\r") for line in block.data.split(b"\n"))
    rows = [line for line in lines if line]
    values = _decoded(rows)
    if values is not None:
        yield _columns(values, block, 0, len(rows), path)
        return
    begin = 0
    for end, problem in _not_utf8(rows, block, full_path):
        if end > begin:
            yield _columns(_decoded(rows[begin:end]), block, begin, end, path)
        if problem is not None:
            yield Row(path, block.first + end, problem, int(block.lines[end]))
        begin = end + 1


def _decoded(rows: list[bytes]) -> Any:
    """Rows as an Arrow array of texts; None where one is not UTF-8."""
    import pyarrow as pa

    try:
        return pa.array(rows, pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        return None


def _not_utf8(rows: list[bytes], block: RowBlock, path: str) -> Iterator[tuple[int, RekordError | None]]:
    """The rows that cannot be decoded, and the end."""
    for i, row in enumerate(rows):
        try:
            row.decode()
        except UnicodeDecodeError as failure:
            where = Location(path=path, row=block.first + i, line=int(block.lines[i]))
            yield i, not_utf8(row, failure.start, where, "text")
    yield len(rows), None


def _columns(values: Any, block: RowBlock, begin: int, end: int, path: str) -> Columns:
    import pyarrow as pa

    lines = block.lines[begin:end]
    even = int(lines[-1]) - int(lines[0]) == end - begin - 1
    return Columns(
        path,
        block.first + begin,
        pa.RecordBatch.from_arrays([values], names=["text"]),
        end - begin,
        first_line=int(lines[0]) if even else None,
        lines=None if even else lines.tolist(),
    )
