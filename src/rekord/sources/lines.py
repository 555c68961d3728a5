"""Text files as rows: their encodings, where rows begin, blocks of whole rows, and a row per line of text."""

from __future__ import annotations

import codecs
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.arguments import check_keywords, invalid
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema, Text
from rekord.sources.base import (
    PART_BYTES,
    READ_BYTES,
    ByteStream,
    Chunk,
    ColumnChunk,
    FileListing,
    PartItem,
    SizeCheckedFile,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SourceRow,
    SurveyCache,
    empty_file_error,
    group_by_bytes,
    is_gzip_name,
    list_file_items,
    list_files,
    open_source_file,
    source_path,
)

MAX_ROW_BYTES = 64 << 20
"""A longer row is considered a mistake."""

_MIN_CUT_BYTES = 64 << 10
_MAX_SMALL_FILE_CUTS = 64  # how finely a small file can be cut
_HEAD_BYTES = 64 << 10
_GZIP_MAGIC = b"\x1f\x8b\x08"
UTF8_BOM = b"\xef\xbb\xbf"
_BOMS = (
    (b"\xff\xfe\0\0", "utf-32"),  # before that of UTF-16, which it starts with
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_UTF8_NAMES = ("utf-8", "utf-8-sig")
_NOT_OF_FILES = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined")
_SHOWN_NAMES = {"utf-16": "UTF-16", "utf-32": "UTF-32"}


# Files that are not in UTF-8, read as if they were.


def check_encoding(encoding: object) -> str | None:
    """`encoding=` of a source, as Python names it; None for UTF-8, or as a byte order mark says."""
    if encoding is None:
        return None
    expected = "the name of an encoding, such as latin-1, cp1252 or utf-16"
    try:
        found = codecs.lookup(str(encoding)) if isinstance(encoding, str) else None
    except (LookupError, ValueError):
        found = None
    is_text = found is not None and getattr(found, "_is_text_encoding", True) and found.name not in _NOT_OF_FILES
    if found is None or not is_text:
        raise invalid("encoding", encoding, expected, 'encoding="latin-1"')
    return None if found.name in _UTF8_NAMES else found.name


@contextmanager
def open_text_file(
    path: str,
    file: SourceFile,
    encoding: str | None,
    *,
    gzipped: bool = False,
    opened: SizeCheckedFile | None = None,
) -> Iterator[tuple[ByteStream, str | None]]:
    """A whole text file as UTF-8, and the encoding it is transcoded from; None if its bytes are not changed."""
    with open_source_file(path, file, gzipped=gzipped, opened=opened) as stream:
        start = stream.read(4)
        stream.rewind()
        marked = next((name for bom, name in _BOMS if start.startswith(bom)), None)
        if encoding is None:
            yield stream if marked is None else TranscodedStream(path, stream, marked), marked
            return
        bom = "utf-8" if start.startswith(UTF8_BOM) else marked
        if bom is not None and not encoding.startswith(bom):
            raise error(
                "X585",
                f"file is not in {encoding}",
                location=Location(path=path),
                expected=f"text in {encoding}, as `encoding` says",
                found=f"the byte order mark of {bom.upper()}",
                do="leave encoding= out",
            )
        yield TranscodedStream(path, stream, encoding), encoding


class TranscodedStream:
    """The text of a file in another encoding, as bytes in UTF-8."""

    def __init__(self, path: str, stream: ByteStream, encoding: str) -> None:
        self.path = path
        self.encoding = encoding
        self._stream = stream
        self._start()

    def _start(self) -> None:
        self._decoder = codecs.getincrementaldecoder(self.encoding)()
        self._text = b""
        self._at = 0  # in _text
        self._lines = 0  # complete ones, before what is being decoded
        self._ended = False

    def rewind(self) -> None:
        self._stream.rewind()
        self._start()

    def read(self, size_bytes: int, /) -> bytes:
        while self._at == len(self._text) and not self._ended:
            raw = self._stream.read(READ_BYTES)
            self._ended = not raw
            try:
                # A lone surrogate can be decoded from some encodings, but is no text.
                text = self._decoder.decode(raw, final=self._ended)
                self._text, self._at = text.encode(), 0
            except UnicodeError as failure:
                raise self._invalid_error(failure) from None
            self._lines += self._text.count(b"\n")
        piece = self._text[self._at : self._at + size_bytes]
        self._at += len(piece)
        return piece

    def _invalid_error(self, failure: UnicodeError) -> RekordError:
        line, found = self._lines + 1, "text that cannot be stored"
        if isinstance(failure, UnicodeDecodeError):
            good = bytes(failure.object[: failure.start]).decode(self.encoding, "replace")
            line += good.count("\n")
            found = f"bytes {bytes(failure.object[failure.start : failure.start + 8]).hex(' ')}"
        return error(
            "X585",
            f"file is not in {self.encoding}",
            location=Location(path=self.path, line=line),
            expected=f"text in {self.encoding}",
            found=found,
            do='pass the encoding of the file, such as encoding="latin-1", or leave encoding= out for UTF-8',
        )


def guess_encoding(file: SourceFile, encoding: str | None, given: str | None, *, has_bom: bool) -> list[SourceGuess]:
    """What was assumed about the encoding of a file, where that is not the usual."""
    if encoding is not None and given is None:
        name = _SHOWN_NAMES[encoding]
        return [
            SourceGuess(
                None,
                f"{file.path} is in {name}: it starts with a byte order mark",
                'if that is wrong: encoding="latin-1"',
            )
        ]
    if has_bom and encoding is None:
        return [SourceGuess(None, f"{file.path} starts with a byte order mark, which is not part of the text")]
    return []


# Rows.


class RowSyntax(NamedTuple):
    """How rows end. With a delimiter, quoted fields may contain newlines."""

    delimiter: str | None = None

    def scanner(self, offset: int, line: int) -> _core.RowScanner:
        return _core.RowScanner(self.delimiter is not None, self.delimiter or ",", offset, line)


class RowStart(NamedTuple):
    """The start of a row."""

    offset: int
    row: int
    line: int


class RowBlock(NamedTuple):
    """Whole rows: row `i` is `data[starts[i]:starts[i + 1]]`, including its line ending."""

    data: bytes
    starts: Any  # int64, one more than the number of rows
    lines: Any  # int64
    first: int  # the number of the first row in the file
    offset: int  # of data in the file

    @property
    def rows(self) -> int:
        return len(self.lines)

    def row(self, i: int) -> bytes:
        """The bytes of one row."""
        return self.data[self.starts[i] : self.starts[i + 1]]


class UnreadableRow(NamedTuple):
    """A row whose bytes were discarded."""

    row: int
    line: int
    code: str  # E357: too large. E358: an unclosed quote


class FileSpan(NamedTuple):
    """A range of a file that one task reads."""

    file: SourceFile
    begin: RowStart
    end: int
    encoding: str | None = None


class RowIndex(NamedTuple):
    """The positions where a file can be split. One that is transcoded is read from its beginning, by one task."""

    file: SourceFile
    cuts: tuple[RowStart, ...]
    rows: int
    encoding: str | None = None


def read_text_head(stream: ByteStream, path: str) -> tuple[bytes, int]:
    """The first bytes of a text file after a byte order mark, and their offset."""
    head = stream.read(_HEAD_BYTES)
    if head.startswith(_GZIP_MAGIC):
        do = f"mv {shlex.quote(path)} {shlex.quote(path + '.gz')}"
        raise _not_text_error(path, "gzip data in a file whose name does not end in .gz", do=do)
    if b"\0" in head:
        wide = head[:_HEAD_BYTES].count(0) * 3 > len(head)  # ASCII in UTF-16 is half zeros
        raise _not_text_error(
            path,
            f"a zero byte at {head.index(0):,}",
            likely="UTF-16 without a byte order mark: every second byte is zero" if wide else None,
            do=f'encoding="utf-16-{"be" if head[0] == 0 else "le"}"' if wide else "pass a text file",
        )
    marked = len(UTF8_BOM) if head.startswith(UTF8_BOM) else 0
    return head[marked:], marked


def _not_text_error(path: str, found: str, *, likely: str | None = None, do: str) -> RekordError:
    where = Location(path=path)
    return error("X521", location=where, expected="text in UTF-8", found=found, likely=likely, do=do)


def skip_to_row(stream: ByteStream, head: bytes, head_offset: int, begin: RowStart) -> bytes:
    """The part of `head` from `begin` on; if that is later in the stream, the stream is moved there."""
    skipped = begin.offset - head_offset
    while skipped > len(head):
        head_part = stream.read(min(skipped - len(head), READ_BYTES))
        if not head_part:
            return b""
        skipped -= len(head_part)
    return head[skipped:]


def read_row_blocks(
    stream: ByteStream, rules: RowSyntax, begin: RowStart, *, head: bytes = b"", block_bytes: int = READ_BYTES
) -> Iterator[RowBlock | UnreadableRow]:
    """All rows from `begin` on, in order. `head` was already read from the stream."""
    scanner = rules.scanner(begin.offset, begin.line)
    row = begin.row  # the number of the next row to yield
    pieces: list[bytes] = []  # read and not yet yielded
    base = begin.offset  # the offset of that in the file
    open_row: tuple[int, int] | None = None  # offset and line of a row whose end is not yet known
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
                # A \r at the end may be the first byte of a row.
                keep = 1 if block.endswith(b"\r") else 0
                pieces, base = [block[len(block) - keep :]], end - keep
            elif not lost:
                pieces.append(block)
                if end - open_row[0] > MAX_ROW_BYTES:
                    pieces, lost = [], True
            continue
        pieces.append(block)
        if lost and open_row is not None:
            yield UnreadableRow(row, open_row[1], "E357")
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
        if len(pieces[0]) > MAX_ROW_BYTES:
            pieces, lost = [], True
    if open_row is None:
        return
    if scanner.in_quotes or lost:
        yield UnreadableRow(row, open_row[1], "E358" if scanner.in_quotes else "E357")
        return
    data = b"".join(pieces)
    yield RowBlock(data, np.array([0, len(data)]), np.array([open_row[1]]), row, open_row[0])


def index_file(
    file: SourceFile,
    stream: ByteStream,
    rules: RowSyntax,
    begin: RowStart,
    *,
    head: bytes = b"",
    look: Callable[[RowBlock], None] | None = None,
    encoding: str | None = None,
) -> RowIndex:
    """Find the positions where a file can be split, and pass its rows to `look` on the way."""
    grain = max(1, min(_MIN_CUT_BYTES, file.size_bytes // _MAX_SMALL_FILE_CUTS))
    cuts = [begin]
    rows = begin.row
    for block in read_row_blocks(stream, rules, begin, head=head):
        if isinstance(block, UnreadableRow):
            rows = block.row + 1
            continue
        rows = block.first + block.rows
        if look is not None:
            look(block)
        if encoding is not None:
            continue  # offsets are those of the transcoded text
        starts = block.starts[:-1] + block.offset
        # The first row that starts in each grain.
        chosen = np.flatnonzero(np.diff(starts // grain, prepend=cuts[-1].offset // grain))
        cuts += [RowStart(int(starts[i]), block.first + int(i), int(block.lines[i])) for i in chosen]
    return RowIndex(file, tuple(cuts), rows - begin.row, encoding)


def split_into_spans(indexes: tuple[RowIndex, ...], part_bytes: int) -> Iterator[FileSpan]:
    """The rows of all files in spans of about `part_bytes`."""
    for index in indexes:
        if not index.rows:
            continue
        begin = index.cuts[0]
        for cut in index.cuts[1:]:
            if cut.offset - begin.offset >= part_bytes:
                yield FileSpan(index.file, begin, cut.offset)
                begin = cut
        yield FileSpan(index.file, begin, index.file.size_bytes, index.encoding)


def group_spans(indexes: tuple[RowIndex, ...], part_bytes: int, *context: Any) -> list[SourcePart]:
    """The rows of all files in parts of one or several spans, so that many small files do not become many tasks.

    The content of a part is `context`, and its spans.
    """
    sized = ((span, max(span.end - span.begin.offset, 1)) for span in split_into_spans(indexes, part_bytes))
    return [SourcePart((*context, spans), size_bytes) for spans, size_bytes in group_by_bytes(sized, part_bytes)]


def unreadable_row_error(lost: UnreadableRow, path: str) -> RekordError:
    """The error of a row whose bytes were discarded."""
    where = Location(path=path, row=lost.row, line=lost.line)
    if lost.code == "E358":
        return error(
            "E358",
            location=where,
            expected='a closing " at the end of the field',
            found="the end of the file",
            do=f"close the quote in the row that starts at line {lost.line:,}",
        )
    return error(
        "E357",
        location=where,
        expected=f"at most {MAX_ROW_BYTES >> 20} MiB per row",
        found="more bytes before the row ends",
        do=f"check line {lost.line:,}: an unclosed quote joins all lines after it into one row",
    )


def not_utf8_error(data: bytes, at: int, where: Location, column: str | None) -> RekordError:
    """The error for a text whose byte `at` is the first that is not valid UTF-8."""
    proposal = propose_encoding(data)
    return error(
        "E353",
        location=where.within(feature=column),
        expected="text in UTF-8",
        found=f"bytes {data[max(at - 4, 0) : at + 8].hex(' ')}",
        likely=None if proposal is None else f"the file is in {proposal[1]}: single bytes above 0x7f among ASCII",
        do=NAME_THE_ENCODING if proposal is None else f'encoding="{proposal[0]}"',
    )


NAME_THE_ENCODING = 'save the file in UTF-8, or name its encoding, such as encoding="shift_jis"'
"""What to do about bytes that could be text in several encodings: a wrong one reads other letters, silently."""

_ASCII_LETTER = re.compile(rb"[A-Za-z]")
_LONG_RUN = re.compile(rb"[\x80-\xff]{4}")
_CONTROL_BEFORE_LETTER = re.compile(rb"[\x80-\x9f][\x40-\x7e]")


def propose_encoding(data: bytes) -> tuple[str, str] | None:
    """An encoding for text that is not UTF-8: the name for `encoding=`, and its usual name; None if it is doubtful.

    In languages of Western Europe most letters are ASCII, and the others are single bytes between them.
    """
    others = sum(byte >= 0x80 for byte in data)
    is_western = others < 2 or 5 * others <= 3 * (others + len(_ASCII_LETTER.findall(data)))
    if not is_western or _LONG_RUN.search(data):
        return None
    # Latin-1 has control characters where Windows-1252 has quotation marks, dashes and few letters.
    controls = sum(0x80 <= byte < 0xA0 for byte in data)
    if controls > 1 and 2 * len(_CONTROL_BEFORE_LETTER.findall(data)) > others:
        return None  # in Shift-JIS, GBK and Big5 the second byte of a character can be ASCII
    return ("cp1252", "Windows-1252") if controls else ("latin-1", "Latin-1")


LINE_SYNTAX = RowSyntax()

ReadBlock: TypeAlias = Callable[[RowBlock, str, str], Iterator[Chunk]]
"""The rows of a block; the two paths of its file are the one below the root, and the one that users see."""


@dataclass(frozen=True, slots=True)
class LineSource:
    """A source of text files."""

    path: str
    encoding: str | None = None

    kind: ClassVar[str]
    extensions: ClassVar[tuple[str, ...]]

    @property
    def root(self) -> str:
        return self.listing().root

    def options(self) -> Mapping[str, Any]:
        return {} if self.encoding is None else {"encoding": self.encoding}

    def listing(self) -> FileListing:
        """The files, as they are now."""
        return list_files(self.path, self.extensions)


@contextmanager
def open_span(span: FileSpan, root: str, syntax: RowSyntax) -> Iterator[Iterator[RowBlock | UnreadableRow]]:
    """The rows of a span of a file, in blocks."""
    path = FileListing(root, ()).full(span.file)
    if span.encoding is None:
        with open_source_file(path, span.file, span.begin.offset, span.end) as stream:
            yield read_row_blocks(stream, syntax, span.begin)
        return
    with open_text_file(path, span.file, span.encoding) as (stream, _):
        head, offset = read_text_head(stream, path)
        yield read_row_blocks(stream, syntax, span.begin, head=skip_to_row(stream, head, offset, span.begin))


def read_span(span: FileSpan, root: str, read: ReadBlock) -> Iterator[Chunk]:
    """The rows of a span of a file."""
    path = FileListing(root, ()).full(span.file)
    with open_span(span, root, LINE_SYNTAX) as blocks:
        yield from _read_blocks(blocks, span.file.path, path, read)


def read_stream(
    stream: ByteStream, head: tuple[bytes, int], path: str, full_path: str, read: ReadBlock
) -> Iterator[Chunk]:
    """The rows of a whole file whose head was already read."""
    data, offset = head
    yield from _read_blocks(
        read_row_blocks(stream, LINE_SYNTAX, RowStart(offset, 0, 1), head=data), path, full_path, read
    )


def _read_blocks(
    blocks: Iterator[RowBlock | UnreadableRow], path: str, full_path: str, read: ReadBlock
) -> Iterator[Chunk]:
    for block in blocks:
        if isinstance(block, UnreadableRow):
            yield SourceRow(path, block.row, unreadable_row_error(block, full_path), block.line)
        else:
            yield from read(block, path, full_path)


EXTENSIONS = (".txt", ".text", ".txt.gz", ".text.gz")
_TEXT_SCHEMA = Schema({"text": Text()})


@dataclass(frozen=True, slots=True)
class TextSource(LineSource):
    """Rows of text files."""

    kind = "text"
    extensions = EXTENSIONS

    def facts(self, opened: SizeCheckedFile | None = None) -> SourceFacts:
        listing = self.listing()
        return _build_facts(listing, *_survey_files(listing, self.encoding, opened))

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        listing = self.listing()
        return group_spans(_survey_files(listing, self.encoding)[0], part_bytes, listing.root)

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        root, pieces = part.content
        for span in pieces:
            yield from read_span(span, root, _parse_block)

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The ranges of files of a part."""
        return list_file_items(part)

    def shared_context(self) -> Any:
        """Nothing: a line is a row."""
        return ()


@dataclass(frozen=True, slots=True)
class GzipTextSource(LineSource):
    """Rows of compressed text files, which can only be read from their beginning."""

    kind = "text"
    extensions = EXTENSIONS

    def facts(self) -> SourceFacts:
        listing = self.listing()
        if next(self.rows(), None) is None:
            raise _no_lines_error(listing)
        return _build_facts(listing, None)

    def rows(self) -> Iterator[Chunk]:
        listing = self.listing()
        for file in listing.files:
            path = listing.full(file)
            with open_text_file(path, file, self.encoding, gzipped=True) as (stream, _):
                yield from read_stream(stream, read_text_head(stream, path), file.path, path, _parse_block)


@check_keywords
def text(path: str | os.PathLike[str], *, encoding: str | None = None) -> TextSource | GzipTextSource:
    """Rows of text files, one per line, in the column `text`: a file, a folder or a pattern.

    Line endings are not part of the text. Empty lines are skipped: they count as lines, not as rows. `encoding` is
    one of Python's, such as "latin-1"; by default UTF-8, or UTF-16 in a file with its byte order mark.
    """
    place, encoded = source_path(path, "text"), check_encoding(encoding)
    return GzipTextSource(place, encoded) if is_gzip_name(place, EXTENSIONS) else TextSource(place, encoded)


def _build_facts(
    listing: FileListing, indexes: tuple[RowIndex, ...] | None, guesses: tuple[SourceGuess, ...] = ()
) -> SourceFacts:
    return SourceFacts(
        layout="text",
        schema=_TEXT_SCHEMA,
        rows=None if indexes is None else sum(index.rows for index in indexes),
        source_bytes=listing.source_bytes,
        files=listing.files,
        guesses=guesses,
    )


_TextSurvey: TypeAlias = tuple[tuple[RowIndex, ...], tuple[SourceGuess, ...]]
_surveys: SurveyCache[_TextSurvey] = SurveyCache()


def _survey_files(listing: FileListing, encoding: str | None, opened: SizeCheckedFile | None = None) -> _TextSurvey:
    """Inspect all files, each opened once; `opened` is the only file if it is already open."""
    return _surveys.get((listing, encoding), lambda: _index_files(listing, encoding, opened))


def _index_files(listing: FileListing, encoding: str | None, opened: SizeCheckedFile | None) -> _TextSurvey:
    indexes = []
    guesses = []
    for file in listing.files:
        path = listing.full(file)
        with open_text_file(path, file, encoding, opened=opened) as (stream, found):
            head, offset = read_text_head(stream, path)
            begin = RowStart(offset, 0, 1)
            indexes.append(index_file(file, stream, LINE_SYNTAX, begin, head=head, encoding=found))
            guesses += guess_encoding(file, found, encoding, has_bom=offset > 0)
    if not any(index.rows for index in indexes):
        raise _no_lines_error(listing)
    return tuple(indexes), tuple(guesses)


def _no_lines_error(listing: FileListing) -> RekordError:
    return empty_file_error(listing.full(listing.files[0]), "only empty lines", expected="lines of text")


def _parse_block(block: RowBlock, path: str, full_path: str) -> Iterator[Chunk]:
    # Empty lines belong to the row before them.
    lines = (line.removesuffix(b"\r") for line in block.data.split(b"\n"))
    rows = [line for line in lines if line]
    values = _decode_rows(rows)
    if values is not None:
        yield to_column_chunk(values, block, 0, len(rows), path)
        return
    begin = 0
    for end, problem in _find_invalid_rows(rows, block, full_path):
        if end > begin:
            yield to_column_chunk(_decode_rows(rows[begin:end]), block, begin, end, path)
        if problem is not None:
            yield SourceRow(path, block.first + end, problem, int(block.lines[end]))
        begin = end + 1


def _decode_rows(rows: list[bytes]) -> Any:
    """Rows as a record batch of text; None if one is not UTF-8."""
    import pyarrow as pa

    try:
        texts = pa.array(rows, pa.large_binary()).cast(pa.large_string())
        return pa.RecordBatch.from_arrays([texts], names=["text"])
    except pa.ArrowInvalid:
        return None


def _find_invalid_rows(rows: list[bytes], block: RowBlock, path: str) -> Iterator[tuple[int, RekordError | None]]:
    """The rows that cannot be decoded, and the end."""
    for i, row in enumerate(rows):
        try:
            row.decode()
        except UnicodeDecodeError as failure:
            where = Location(path=path, row=block.first + i, line=int(block.lines[i]))
            yield i, not_utf8_error(row, failure.start, where, "text")
    yield len(rows), None


def to_column_chunk(batch: Any, block: RowBlock, begin: int, end: int, path: str) -> ColumnChunk:
    """Rows `begin` to `end` of a block, with their values in a record batch."""
    lines = block.lines[begin:end]
    even = int(lines[-1]) - int(lines[0]) == end - begin - 1
    return ColumnChunk(
        path,
        block.first + begin,
        batch,
        end - begin,
        first_line=int(lines[0]) if even else None,
        lines=None if even else lines.tolist(),
    )
