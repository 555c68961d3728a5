"""Text files as rows: where rows begin, their bytes in blocks of whole rows, and a row for each line of text."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema, Text
from rekord.sources.base import (
    PART_BYTES,
    READ_BYTES,
    ByteStream,
    Chunk,
    Columns,
    Facts,
    Listing,
    Part,
    Row,
    SourceFile,
    empty,
    is_gzip_name,
    listed,
    opened,
    source_path,
)

MOST_ROW_BYTES = 64 << 20
"""A row that is longer than this is taken for a mistake."""

_GRAIN_BYTES = 64 << 10
_MOST_CUTS_SMALL = 64  # how finely a small file can be cut
_HEAD_BYTES = 64 << 10
_UTF8_MARK = b"\xef\xbb\xbf"
_GZIP_MARK = b"\x1f\x8b\x08"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Rules(NamedTuple):
    """How rows end. With a delimiter, newlines may stand in quoted fields."""

    delimiter: str | None = None

    def scanner(self, offset: int, line: int) -> _core.RowScanner:
        return _core.RowScanner(self.delimiter is not None, self.delimiter or ",", offset, line)


class Cut(NamedTuple):
    """A place where a row begins."""

    offset: int
    row: int
    line: int


class RowBlock(NamedTuple):
    """Whole rows: row `i` is `data[starts[i]:starts[i + 1]]`, with the end of its line."""

    data: bytes
    starts: Any  # int64, one more than there are rows
    lines: Any  # int64
    first: int  # the number of the first row in the file
    offset: int  # of data in the file

    @property
    def rows(self) -> int:
        return len(self.lines)

    def row(self, i: int) -> bytes:
        """The bytes of one row."""
        return self.data[self.starts[i] : self.starts[i + 1]]


class LostRow(NamedTuple):
    """A row whose bytes were not kept."""

    row: int
    line: int
    code: str  # E357: too large. E358: a quote that is not closed


class Span(NamedTuple):
    """What one task reads of one file."""

    file: SourceFile
    begin: Cut
    end: int


class FileIndex(NamedTuple):
    """Where a file can be cut."""

    file: SourceFile
    cuts: tuple[Cut, ...]
    rows: int


def text_head(stream: ByteStream, path: str) -> tuple[bytes, int]:
    """The first bytes of a text file without the mark that may stand before them, and where they begin."""
    head = stream.read(_HEAD_BYTES)
    if head.startswith(_UTF16_MARKS):
        raise _no_text(
            path,
            "text in UTF-16",
            likely="it was saved as `Unicode text`: such files begin with these two bytes",
            do=f"iconv -f UTF-16 -t UTF-8 {shlex.quote(path)} > converted.txt",
        )
    if head.startswith(_GZIP_MARK):
        do = f"mv {shlex.quote(path)} {shlex.quote(path + '.gz')}"
        raise _no_text(path, "gzip data, though its name does not end in .gz", do=do)
    if b"\0" in head:
        raise _no_text(path, f"a zero byte at {head.index(0):,}", do="name a text file")
    marked = len(_UTF8_MARK) if head.startswith(_UTF8_MARK) else 0
    return head[marked:], marked


def _no_text(path: str, found: str, *, likely: str | None = None, do: str) -> RekordError:
    where = Location(path=path)
    return error("X521", location=where, expected="text in UTF-8", found=found, likely=likely, do=do)


def after_head(stream: ByteStream, head: bytes, head_offset: int, begin: Cut) -> bytes:
    """What was read of a stream from `begin` on; where nothing was, the stream is moved there."""
    skipped = begin.offset - head_offset
    while skipped > len(head):
        head_part = stream.read(min(skipped - len(head), READ_BYTES))
        if not head_part:
            return b""
        skipped -= len(head_part)
    return head[skipped:]


def row_blocks(
    stream: ByteStream, rules: Rules, begin: Cut, *, head: bytes = b"", block_bytes: int = READ_BYTES
) -> Iterator[RowBlock | LostRow]:
    """All rows from `begin` on, in order. `head` are bytes that were already read from the stream."""
    scanner = rules.scanner(begin.offset, begin.line)
    row = begin.row  # the number of the first row that is not yet given out
    pieces: list[bytes] = []  # what was read and not given out
    base = begin.offset  # where that begins in the file
    open_row: tuple[int, int] | None = None  # first byte and line of a row whose end was not yet seen
    lost = False
    while True:
        block = head or stream.read(block_bytes)
        head = b""
        if not block:
            break
        starts, lines = scanner.feed(block)
        end = scanner.offset
        if not len(starts):
            if open_row is None:
                # A \r at the end may turn out to be the first byte of a row.
                keep = 1 if block.endswith(b"\r") else 0
                pieces, base = [block[len(block) - keep :]], end - keep
            elif not lost:
                pieces.append(block)
                if end - open_row[0] > MOST_ROW_BYTES:
                    pieces, lost = [], True
            continue
        pieces.append(block)
        if lost and open_row is not None:
            yield LostRow(row, open_row[1], "E357")
            row += 1
            base, pieces, open_row, lost = end - len(block), [block], None, False
        data = b"".join(pieces)
        if open_row is not None:
            starts = np.concatenate([[open_row[0]], starts])
            lines = np.concatenate([[open_row[1]], lines])
        if len(starts) > 1:
            yield RowBlock(
                data[starts[0] - base : starts[-1] - base],
                starts - starts[0],
                lines[:-1],
                row,
                int(starts[0]),
            )
            row += len(starts) - 1
        open_row = int(starts[-1]), int(lines[-1])
        pieces, base = [data[open_row[0] - base :]], open_row[0]
        if len(pieces[0]) > MOST_ROW_BYTES:
            pieces, lost = [], True
    if open_row is None:
        return
    if scanner.in_quotes or lost:
        yield LostRow(row, open_row[1], "E358" if scanner.in_quotes else "E357")
        return
    data = b"".join(pieces)
    yield RowBlock(data, np.array([0, len(data)]), np.array([open_row[1]]), row, open_row[0])


def index_file(
    file: SourceFile,
    stream: ByteStream,
    rules: Rules,
    begin: Cut,
    *,
    head: bytes = b"",
    look: Callable[[RowBlock], None] | None = None,
) -> FileIndex:
    """Find the places where a file can be cut, and let `look` see its rows on the way."""
    grain = max(1, min(_GRAIN_BYTES, file.size_bytes // _MOST_CUTS_SMALL))
    cuts = [begin]
    rows = begin.row
    for block in row_blocks(stream, rules, begin, head=head):
        if isinstance(block, LostRow):
            rows = block.row + 1
            continue
        rows = block.first + block.rows
        starts = block.starts[:-1] + block.offset
        # The first row that begins in each grain.
        chosen = np.flatnonzero(np.diff(starts // grain, prepend=cuts[-1].offset // grain))
        cuts += [Cut(int(starts[i]), block.first + int(i), int(block.lines[i])) for i in chosen]
        if look is not None:
            look(block)
    return FileIndex(file, tuple(cuts), rows - begin.row)


def spans(indexes: tuple[FileIndex, ...], part_bytes: int) -> Iterator[Span]:
    """The rows of all files in pieces of about `part_bytes`."""
    for index in indexes:
        if not index.rows:
            continue
        begin = index.cuts[0]
        for cut in index.cuts[1:]:
            if cut.offset - begin.offset >= part_bytes:
                yield Span(index.file, begin, cut.offset)
                begin = cut
        yield Span(index.file, begin, index.file.size_bytes)


def grouped(pieces: Iterator[Span], part_bytes: int) -> list[Part]:
    """Parts of one or several spans, so that many small files do not become many tasks."""
    parts: list[Part] = []
    group: list[Span] = []
    group_bytes = 0
    for piece in pieces:
        piece_bytes = piece.end - piece.begin.offset
        if group and group_bytes + piece_bytes > part_bytes:
            parts.append(Part(tuple(group), group_bytes))
            group, group_bytes = [], 0
        group.append(piece)
        group_bytes += piece_bytes
    if group:
        parts.append(Part(tuple(group), group_bytes))
    return parts


def lost_row_error(lost: LostRow, path: str) -> RekordError:
    """What is said of a row whose bytes were not kept."""
    where = Location(path=path, row=lost.row, line=lost.line)
    if lost.code == "E358":
        return error(
            "E358",
            location=where,
            expected='a second " that ends the field',
            found="the end of the file",
            do="close the quote in the row that begins at this line",
        )
    return error(
        "E357",
        location=where,
        expected=f"at most {MOST_ROW_BYTES >> 20} MiB in a row",
        found="more bytes before the row ends",
        do="look at this line: a quote that is not closed joins all lines after it into one row",
    )


def not_utf8(data: bytes, at: int, where: Location, column: str | None) -> RekordError:
    """The error for a text whose byte `at` is the first that UTF-8 does not allow there."""
    latin = data[at : at + 1] >= b"\xa0" and data[at + 1 : at + 2] < b"\x80"
    return error(
        "E353",
        location=where.within(feature=column),
        expected="text in UTF-8",
        found=f"bytes {data[max(at - 4, 0) : at + 8].hex(' ')}",
        likely="the file is in Latin-1 or Windows-1252: single bytes above 0x9f among ASCII"
        if latin
        else None,
        do="iconv -f WINDOWS-1252 -t UTF-8 IN > OUT" if latin else "save the file in UTF-8",
    )


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
    place = source_path(path, "text")
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
