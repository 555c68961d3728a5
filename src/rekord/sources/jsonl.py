"""JSON files with one object per line, or with one list of objects."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec

from rekord.arguments import check_keywords
from rekord.errors import RekordError, add_location, error, preview
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.infer import infer_rows
from rekord.schema.row_adapters import flatten_row
from rekord.sources import base, lines
from rekord.sources.base import (
    PART_BYTES,
    ByteStream,
    Chunk,
    FileListing,
    SizeCheckedFile,
    SourceFacts,
    SourceFile,
    SurveyCache,
)
from rekord.sources.fields import guess_json_columns
from rekord.sources.json_documents import find_table_form, is_row_list, iter_document_rows
from rekord.sources.lines import (
    LINE_SYNTAX,
    LineSource,
    RowBlock,
    RowIndex,
    RowStart,
    check_encoding,
    guess_encoding,
    open_text_file,
)
from rekord.sources.rows import estimate_row_bytes
from rekord.sources.tables import build_facts

BASE64_MARKER = b'"base64"'
"""Every line with bytes contains this."""

_MAX_DEPTH = 32


def decode_base64_values(value: Any, depth: int = 0) -> Any:
    """A value with every {"base64": "…"} replaced by its bytes. Raises ValueError if one is not base64."""
    if isinstance(value, dict):
        encoded = value.get("base64")
        if len(value) == 1 and isinstance(encoded, str):
            try:
                return base64.b64decode(encoded, validate=True)
            except (ValueError, TypeError):
                raise ValueError(encoded) from None
        return (
            {name: decode_base64_values(inner, depth + 1) for name, inner in value.items()}
            if depth < _MAX_DEPTH
            else value
        )
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return [decode_base64_values(inner, depth + 1) for inner in value]
    return value


EXTENSIONS = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")

HEAD_ROWS = 10_000
HEAD_SAMPLE_BYTES = 64 << 20
SAMPLE_ROWS = 10_000
"""The schema comes from the first `HEAD_ROWS` rows, and from `SAMPLE_ROWS` of the rest, evenly spread."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]')
_NO_JSON_NUMBER = re.compile(rb"[:\[,]\s*(-?(?:NaN|Infinity))\b")
_WHITESPACE = b" \t\r\n"
_FILE_START = RowStart(0, 0, 1)


@dataclass(frozen=True, slots=True)
class _JsonFiles(LineSource):
    """JSON files and their encoding."""

    # Columns that the schema leaves out, or has; those with values of several types can be dropped.
    without: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None

    kind = "jsonl"
    extensions = EXTENSIONS
    gzipped: ClassVar[bool]

    def column_names(self) -> list[str]:
        """The names of all columns of the rows that are sampled."""
        try:
            return list(self.survey().names)
        except RekordError:  # if it is not about a column, it is raised again
            return list(replace(self, without=(), only=()).survey().names)

    def facts(self, opened: SizeCheckedFile | None = None) -> SourceFacts:
        seen = self.survey(opened)
        return build_facts(seen.schema, seen.rows, seen.listing, seen.guesses)

    def survey(self, opened: SizeCheckedFile | None = None) -> _JsonSurvey:
        """Inspect all files, each opened once; `opened` is the only file if it is already open."""
        key = self.listing(), self.encoding, self.gzipped, self.without, self.only
        return _surveys.get(key, lambda: _survey_files(*key, opened))


@dataclass(frozen=True, slots=True)
class JsonSource(_JsonFiles):
    """Rows of JSON files."""

    gzipped = False

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[base.SourcePart]:
        seen = self.survey()
        return lines.group_spans(seen.indexes, part_bytes, seen.listing.root, seen.documents)

    def read(self, part: base.SourcePart) -> Iterator[Chunk]:
        root, documents, pieces = part.content
        for span in pieces:
            if span.file.path in documents:
                path = FileListing(root, ()).full(span.file)
                with open_text_file(path, span.file, self.encoding) as (stream, _):
                    yield from _read_document_rows(stream, span.file, path)
            else:
                yield from lines.read_span(span, root, _parse_block)

    def part_items(self, part: base.SourcePart) -> Iterator[base.PartItem]:
        """The ranges of files of a part."""
        return base.list_file_items(part)

    def shared_context(self) -> Any:
        """Nothing: a row has its own columns."""
        return ()


@dataclass(frozen=True, slots=True)
class GzipJsonSource(_JsonFiles):
    """Rows of compressed JSON files, which can only be read from their beginning."""

    gzipped = True

    def rows(self) -> Iterator[Chunk]:
        seen = self.survey()
        listing, documents = seen.listing, seen.documents
        for file in listing.files:
            path = listing.full(file)
            with open_text_file(path, file, self.encoding, gzipped=True) as (stream, _):
                head, offset = lines.read_text_head(stream, path)
                if file.path in documents:
                    yield from _read_document_rows(stream, file, path, head)
                else:
                    yield from lines.read_stream(stream, (head, offset), file.path, path, _parse_block)


@check_keywords
def jsonl(path: str | os.PathLike[str], *, encoding: str | None = None) -> JsonSource | GzipJsonSource:
    """Rows of JSON files, one object per line: a file, a folder or a pattern.

    The names of nested objects are joined with `/`. A file that is one array of objects is read as well, and one
    that is an object with a single array of objects, such as {"data": [{…}, …]}. Empty lines are skipped. An object
    {"base64": "…"} without other members is bytes, as `rk.export` writes them. `encoding` is one of Python's, such
    as "latin-1"; by default UTF-8, or UTF-16 in a file with its byte order mark.
    """
    place, encoded = base.source_path(path, "jsonl"), check_encoding(encoding)
    is_gzip = base.is_gzip_name(place, EXTENSIONS)
    return GzipJsonSource(place, encoded) if is_gzip else JsonSource(place, encoded)


@dataclass(frozen=True, slots=True)
class _JsonSurvey:
    listing: FileListing
    names: tuple[str, ...]  # of all columns
    schema: Schema
    indexes: tuple[RowIndex, ...]
    documents: frozenset[str]  # the files that are one document each
    rows: int
    guesses: tuple[base.SourceGuess, ...]


_surveys: SurveyCache[_JsonSurvey] = SurveyCache()


def _survey_files(
    listing: FileListing,
    encoding: str | None,
    gzipped: bool,
    without: tuple[str, ...],
    only: tuple[str, ...] | None,
    opened: SizeCheckedFile | None,
) -> _JsonSurvey:
    sample = _JsonRowSample()
    indexes = []
    documents = set()
    guesses: list[base.SourceGuess] = []
    for file in listing.files:
        path = sample.path = listing.full(file)
        with open_text_file(path, file, encoding, gzipped=gzipped, opened=opened) as (stream, found):
            head, offset = lines.read_text_head(stream, path)
            guesses += guess_encoding(file, found, encoding, has_bom=offset > 0)
            if _is_document(stream, path, head):
                if head.lstrip(_WHITESPACE).startswith(b"{"):
                    what = f"{file.path} is one object: the rows are those of its array, other members are not read"
                    guesses.append(base.SourceGuess(None, what))
                rows = 0
                for row in _read_document_rows(stream, file, path, head):
                    rows += 1
                    sample.add(row.values)
                documents.add(file.path)
                indexes.append(RowIndex(file, (_FILE_START,), rows))
            else:
                begin = RowStart(offset, 0, 1)
                look = sample.scan
                indexes.append(
                    lines.index_file(file, stream, LINE_SYNTAX, begin, head=head, look=look, encoding=found)
                )
    rows = sum(index.rows for index in indexes)
    if not sample.first:
        path = listing.full(listing.files[0])
        raise sample.problem or base.empty_file_error(
            path, "a file without rows", expected='lines such as {"label": 3}'
        )
    sampled = sample.first + sample.later
    names = tuple(dict.fromkeys(name for row in sampled for name in row))
    kept = {name for name in names if name not in without and (only is None or name in only)}
    if len(kept) < len(names):
        sampled = [{name: value for name, value in row.items() if name in kept} for row in sampled]
    schema = Schema({})
    if kept:
        with add_location(path=path if len(indexes) == 1 else None):
            schema = _infer_schema(sampled)
    guesses += guess_json_columns(sample.first, schema)
    return _JsonSurvey(listing, names, schema, tuple(indexes), frozenset(documents), rows, tuple(guesses))


def _infer_schema(rows: Sequence[Mapping[str, Any]]) -> Schema:
    try:
        return infer_rows(rows)
    except RekordError as failure:
        name = failure.location.feature
        if name is not None:
            failure.do = f'write its values as one type; or leave the column out: drop=["{name[:60]}"]'
        raise


class _JsonRowSample:
    """The rows that the schema comes from: the first ones, and every n-th of the others."""

    def __init__(self) -> None:
        self.first: list[Mapping[str, Any]] = []
        self.later: list[Mapping[str, Any]] = []
        self.problem: RekordError | None = None  # of the first bad row
        self.path = ""
        self._first_bytes = 0
        self._later_bytes = 0
        self._every = 1
        self._count = 0

    def scan(self, block: RowBlock) -> None:
        """Sample the rows of a block."""
        for i in range(block.rows):
            if self._is_next_sampled():
                raw = block.row(i)
                where = Location(path=self.path, row=block.first + i, line=int(block.lines[i]))
                if raw.strip(_WHITESPACE):
                    self._add(_parse_line(raw, where), len(raw))

    def add(self, values: Mapping[str, Any] | RekordError) -> None:
        """Sample a row of a document."""
        if self._is_next_sampled():
            self._add(values, 0 if isinstance(values, RekordError) else estimate_row_bytes(values))

    def _is_next_sampled(self) -> bool:
        if len(self.first) < HEAD_ROWS and self._first_bytes < HEAD_SAMPLE_BYTES:
            return True
        self._count += 1
        return self._count % self._every == 0

    def _add(self, values: Mapping[str, Any] | RekordError, size_bytes: int) -> None:
        if isinstance(values, RekordError):
            self.problem = self.problem or values
        elif not self._count:
            self.first.append(values)
            self._first_bytes += size_bytes
        else:
            self.later.append(values)
            self._later_bytes += size_bytes
            if len(self.later) > SAMPLE_ROWS or self._later_bytes > HEAD_SAMPLE_BYTES:
                # Every second one is still evenly spread.
                self.later = self.later[::2]
                self._later_bytes //= 2
                self._every *= 2


def _is_document(stream: ByteStream, path: str, head: bytes) -> bool:
    """Whether a file is one array or one object, and not lines of them. The stream stays after its head."""
    start = head.lstrip(_WHITESPACE)
    if not start.startswith((b"[", b"{")):
        return False
    line, newline, rest = start.partition(b"\n")
    if not newline:
        if start.startswith(b"["):
            return True  # decoding it, to see what it is, would take the memory of all rows
        pieces = [start]
        while sum(map(len, pieces)) <= lines.MAX_ROW_BYTES and (piece := stream.read(base.READ_BYTES)):
            pieces.append(piece)
            if b"\n" in piece:
                break
        line, _, rest = b"".join(pieces).partition(b"\n")
        stream.rewind()
        lines.read_text_head(stream, path)
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        # A first line that is complete and invalid is a bad row; one that continues is a document.
        return start.startswith(b"[") or (bool(rest.strip(_WHITESPACE)) and not _ends_in_line(line))
    if rest.strip(_WHITESPACE):
        return False
    if not isinstance(value, dict) or any(is_row_list(inner) for inner in value.values()):
        return True
    # The only line of a file of lines is a row; a file .json can be a table by columns.
    is_json = path.lower().removesuffix(".gz").endswith(".json")
    return is_json and find_table_form(value) is not None


def _ends_in_line(line: bytes) -> bool:
    """Whether the brackets of a line are closed in it."""
    depth = 0
    for token in _TOKEN.findall(line):
        depth += 1 if token in b"{[" else -1 if token in b"}]" else 0
        if not depth:
            return True
    return False


def _parse_block(block: RowBlock, path: str, full_path: str) -> Iterator[base.SourceRow]:
    for i, line in enumerate(block.lines.tolist()):
        raw = block.row(i)
        if raw.strip(_WHITESPACE):
            where = Location(path=full_path, row=block.first + i, line=line)
            yield base.SourceRow(path, block.first + i, _parse_line(raw, where), line)


def _parse_line(raw: bytes, where: Location) -> Mapping[str, Any] | RekordError:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        return _json_error(raw, failure, where)
    # If every colon follows a name of this object, no name is a duplicate.
    if isinstance(value, dict) and raw.count(b":") != len(value):
        twice = _find_duplicate_name(raw)
        if twice is not None:
            return error(
                "E355",
                f"JSON object has duplicate name {preview(twice)}",
                location=where,
                expected="unique names in an object",
                found="the same name twice",
                do="fix this line: remove one of the two, or rename it",
            )
    if BASE64_MARKER in raw:
        try:
            value = decode_base64_values(value)
        except ValueError as failure:
            return error(
                "E355",
                'value {"base64": …} is not base64',
                location=where,
                expected="bytes in base64, with padding",
                found=preview(str(failure)),
                do="encode the bytes again, or rename the member",
            )
    return _to_row(value, where)


class _DuplicateName(Exception):
    """An object has a duplicate name."""


def _find_duplicate_name(raw: bytes) -> str | None:
    """A duplicate name in an object of a line: parsers keep one of the two values silently."""

    def once(members: list[tuple[str, Any]]) -> None:
        names: set[str] = set()
        for name, _ in members:
            if name in names:
                raise _DuplicateName(name)
            names.add(name)

    try:
        json.loads(raw, object_pairs_hook=once)
    except _DuplicateName as found:
        return str(found)
    except (ValueError, RecursionError):  # another parser accepted it
        return None
    return None


def _to_row(value: object, where: Location) -> Mapping[str, Any] | RekordError:
    if not isinstance(value, dict):
        return error(
            "E350",
            f"row is {_json_type_name(value)}, not an object",
            location=where,
            expected='an object such as {"label": 3}',
            found=preview(value),
            do="write every row as a JSON object",
        )
    if not any(isinstance(inner, dict) for inner in value.values()):
        return value
    try:
        return flatten_row(value, where.row or 0, None)
    except RekordError as failure:
        failure.location = where
        return failure


def _json_type_name(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _json_error(raw: bytes, failure: Exception, where: Location) -> RekordError:
    try:
        raw.decode()
    except UnicodeDecodeError as wrong:
        return lines.not_utf8_error(raw, wrong.start, where, None)
    constant = _NO_JSON_NUMBER.search(raw)
    return error(
        "E355",
        location=where,
        expected="one complete JSON object per line",
        found=f"{_describe_failure(failure)}: {preview(raw[:60].strip().decode(errors='replace'))}",
        likely=None
        if constant is None
        else f"{constant[1].decode()}: Python's json writes it, and JSON has no such value",
        do="fix or remove this line" if constant is None else "write null instead of NaN and infinite numbers",
    )


def _describe_failure(failure: Exception) -> str:
    if isinstance(failure, RecursionError):
        return "values nested too deeply"
    return str(failure).removeprefix("JSON is malformed: ")[:60]


def _read_document_rows(
    stream: ByteStream, file: SourceFile, path: str, head: bytes = b""
) -> Iterator[base.SourceRow]:
    for i, row in enumerate(iter_document_rows(stream, path, head)):
        yield base.SourceRow(file.path, i, _parse_line(row, Location(path=path, row=i)))
