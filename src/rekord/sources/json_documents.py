"""JSON files that are one document: an array of objects, or an object with one array of objects."""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources import lines
from rekord.sources.base import ByteStream, corrupt_file_error

_READ_BYTES = 1 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_MAX_SHOWN = 4


def is_row_list(value: object) -> bool:
    """Whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def iter_document_rows(stream: ByteStream, path: str, head: bytes = b"") -> Iterator[bytes]:
    """The elements of the array of rows, one at a time. `head` was already read from the stream."""
    reader = _Reader(stream, path, head)
    if reader.peek() == "[":
        yield from reader.elements()
        reader.expect_end()
        return
    yield from _iter_member_rows(reader, path)


def _iter_member_rows(reader: _Reader, path: str) -> Iterator[bytes]:
    """The rows of the only member of an object that is a list of objects."""
    rows: list[str] = []
    others: dict[str, Any] = {}
    reader.take("{")
    while reader.peek() != "}":
        name = reader.value()
        if not isinstance(name, str):
            raise reader.corrupt("a name that is not a string")
        reader.take(":")
        if reader.peek() == "[" and reader.peek_inside() == "{":
            if rows:
                raise _document_error(
                    path,
                    f"lists of objects: {rows[0][:30]}, {name[:30]}",
                    _jq_command(f".{_jq_name(rows[0])}[]", path),
                )
            rows.append(name)
            yield from reader.elements()
        else:
            others[name] = reader.value()
        if reader.peek() != "}":
            reader.take(",")
            if reader.peek() == "}":
                raise reader.corrupt("a comma without a member after it")
    reader.take("}")
    reader.expect_end()
    if rows:
        return
    form = find_table_form(others)
    if form is not None:
        found, orient = form
        read = f"pandas.read_json({path!r}, orient={orient!r})"
        raise _document_error(path, found, f"rk.write({read}, out)")
    names = ", ".join(name[:20] for name in list(others)[:_MAX_SHOWN])
    raise _document_error(path, f"one object, with the members {names}", _jq_command(".", path))


def find_table_form(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an object is if it looks like a table that is not a list of rows, and the name that pandas has for it."""
    values = list(document.values())
    if isinstance(document.get("columns"), list) and isinstance(document.get("data"), list):
        return "lists of columns and of data", "split"
    if all(isinstance(value, list) for value in values):
        lengths = {len(value) for value in values}
        return (
            ("a list per column", "columns") if len(values) > 1 and len(lengths) == 1 and max(lengths) > 1 else None
        )
    if not values or not all(isinstance(value, dict) for value in values):
        return None
    inner = set(values[0])
    if any(set(value) != inner for value in values):
        return None
    if _are_numbers(document):
        return "an object per row, by its number", "index"
    return ("an object per column or per row", "columns") if len(values) > 1 or _are_numbers(inner) else None


def _are_numbers(names: Collection[str]) -> bool:
    return bool(names) and all(name.isdecimal() for name in names)


def _jq_name(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _jq_command(filter: str, path: str) -> str:
    return f"jq -c {shlex.quote(filter)} {shlex.quote(path)} > rows.jsonl"


def _document_error(path: str, found: str, do: str) -> RekordError:
    return error(
        "X553",
        location=Location(path=path),
        expected="an object per line, an array of objects, or an object with one such array",
        found=found[:120],
        do=do,
    )


class _Reader:
    """The values of a JSON text that arrives in pieces. What is kept is one value, and the piece that it is in."""

    def __init__(self, stream: ByteStream, path: str, head: bytes) -> None:
        self._stream = stream
        self._path = path
        # What is not UTF-8 is kept, so that the row with it reports it.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._text = self._decoder.decode(head or stream.read(_READ_BYTES)).removeprefix("\ufeff")
        self._at = 0
        self._ended = False

    def _more(self) -> bool:
        """Read at least as much again; False at the end of the file."""
        if self._ended:
            return False
        left = len(self._text) - self._at
        wanted = max(_READ_BYTES, left)
        pieces = [self._text[self._at :]]
        while wanted > 0 and not self._ended:
            data = self._stream.read(_READ_BYTES)
            self._ended = not data
            pieces.append(self._decoder.decode(data, final=self._ended))
            wanted -= len(data)
        self._text, self._at = "".join(pieces), 0
        return True

    def peek(self) -> str:
        """The next character that is not a space; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def peek_inside(self) -> str:
        """The first character of the array that is next."""
        while True:
            match = _SPACE.match(self._text, self._at + 1)
            assert match is not None
            if match.end() < len(self._text):
                return self._text[match.end()]
            if not self._more():
                return ""

    def take(self, character: str) -> None:
        found = self.peek()
        if found != character:
            raise self.corrupt(f"{found!r} where {character!r} is expected" if found else "it ends too early")
        self._at += 1

    def expect_end(self) -> None:
        if self.peek():
            raise self.corrupt("more text after the end of the document")

    def value(self) -> Any:
        return self._scan()[0]

    def elements(self) -> Iterator[bytes]:
        """The elements of the array that is next, as they are written."""
        self.take("[")
        if self.peek() == "]":
            self._at += 1
            return
        while True:
            yield self._scan()[1].encode("utf-8", "surrogateescape")
            if self.peek() == "]":
                self._at += 1
                return
            self.take(",")

    def _scan(self) -> tuple[Any, str]:
        """The next value, and how it is written."""
        if not self.peek():
            raise self.corrupt("it ends too early")
        problem: ValueError | None = None
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise self.corrupt("values nested too deeply") from None
            except ValueError as failure:
                value, end, problem = None, -1, failure
            # A number at the end of the text may continue in what is not read yet.
            if 0 <= end < len(self._text) or (end >= 0 and self._ended):
                written = self._text[self._at : end]
                self._at = end
                return value, written
            if len(self._text) - self._at > lines.MAX_ROW_BYTES:
                raise error(
                    "E357",
                    "JSON value is larger than a row can be",
                    location=Location(path=self._path),
                    expected=f"at most {lines.MAX_ROW_BYTES >> 20} MiB",
                    found="more",
                    do=f"check the file: jq . {shlex.quote(self._path)} > /dev/null",
                )
            if not self._more():
                raise self.corrupt(str(problem)[:60])

    def corrupt(self, found: str) -> RekordError:
        return corrupt_file_error(self._path, "JSON file", found)
