"""ARFF files of Weka and OpenML: a header of typed attributes, then a row per line."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rekord.arguments import check_keywords
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Feature, Label
from rekord.sources.base import FileListing, SourceFile, SourceGuess, empty_file_error, source_path
from rekord.sources.lines import (
    LINE_SYNTAX,
    RowBlock,
    RowStart,
    UnreadableRow,
    check_encoding,
    not_utf8_error,
    open_text_file,
    read_row_blocks,
    read_text_head,
    unreadable_row_error,
)
from rekord.sources.table_files import kept_columns
from rekord.sources.tables import inconsistent_file_error
from rekord.sources.value_tables import Values, ValueTable

EXTENSIONS = (".arff", ".arff.gz")

_MAX_ATTRIBUTES = 100_000
# Possessive: a line of millions of spaces must not be matched in every way that it could be.
_QUOTED = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
_FIELD = re.compile(rf"\s*+({_QUOTED}|[^,\t'\"]*+)(\s*+)(,?)")
_SPARSE = re.compile(rf"\s*+(\d{{1,9}})\s++({_QUOTED}|[^,'\"{{}}]*+)\s*+(?:,|$)")
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.*)", re.IGNORECASE)
_NOMINAL = re.compile(r"\{(.*)\}\s*$")
_DATE = re.compile(rf"date(?:\s+({_QUOTED}|\S+))?$", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_DATE_PART = re.compile(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+")
_DATE_DIRECTIVES = {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S", "S": "%f", "Z": "%z", "X": "%z"}


class _Attribute(NamedTuple):
    name: str
    kind: str  # "number", "text", "nominal" or "date"
    values: tuple[str, ...] = ()  # of a nominal one
    format: str = ""  # of a date, as strptime takes it


@dataclass(frozen=True, slots=True)
class ArffSource(ValueTable):
    """Rows of ARFF files."""

    encoding: str | None = None

    kind = "arff"
    extensions = EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        return {"columns": None if self.columns is None else list(self.columns), "encoding": self.encoding}

    def declare(self, listing: FileListing) -> Mapping[str, Feature]:
        headers = [self._read_header(listing.full(file), file) for file in listing.files]
        for file, header in zip(listing.files, headers, strict=True):
            for own, first in zip(header, headers[0], strict=False):
                if own != first:
                    raise inconsistent_file_error(
                        listing, file, own.name, expected=f"{first.name} {first.kind}", found=f"{own.name} {own.kind}"
                    )
            if len(header) != len(headers[0]):
                counts = [f"{len(one):,} attributes" for one in (headers[0], header)]
                raise inconsistent_file_error(listing, file, header[-1].name, expected=counts[0], found=counts[1])
        return {one.name: Label(one.values) for one in headers[0] if one.kind == "nominal"}

    def _read_header(self, path: str, file: SourceFile) -> tuple[_Attribute, ...]:
        return _read_header(self._lines(path, file), path)

    def read_file(self, path: str, file: SourceFile, notes: list[SourceGuess]) -> Iterator[Values]:
        lines = self._lines(path, file)
        header = _read_header(lines, path)
        row = 0
        for number, raw in lines:
            if isinstance(raw, RekordError):
                yield raw
            else:
                text = raw.strip()
                if not text or text.startswith("%"):
                    continue
                yield _parse_row(text, header, Location(path=path, row=row, line=number))
            row += 1

    def _lines(self, path: str, file: SourceFile) -> Iterator[tuple[int, str | RekordError]]:
        if not file.size_bytes:
            raise empty_file_error(path, "an empty file", expected="an ARFF file")
        gzipped = path.lower().endswith(".gz")
        with open_text_file(path, file, self.encoding, gzipped=gzipped) as (stream, _):
            head, offset = read_text_head(stream, path)
            for block in read_row_blocks(stream, LINE_SYNTAX, RowStart(offset, 0, 1), head=head):
                if isinstance(block, UnreadableRow):
                    yield block.line, unreadable_row_error(block, path)
                    continue
                yield from _split_lines(block, path)


@check_keywords
def arff(
    path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, encoding: str | None = None
) -> ArffSource:
    """Rows of ARFF files: a file, a folder or a pattern. `columns` selects columns; None keeps all.

    Nominal attributes are labels with the classes of the header, numbers are integers if all of a column are, dates
    timestamps, strings texts, and `?` is a missing value. Sparse rows are read as well.
    """
    return ArffSource(source_path(path, "arff"), kept_columns(columns), check_encoding(encoding))


def _split_lines(block: RowBlock, path: str) -> Iterator[tuple[int, str | RekordError]]:
    for i, number in enumerate(block.lines.tolist()):
        raw = block.row(i).rstrip(b"\r\n")
        try:
            yield number, raw.decode()
        except UnicodeDecodeError as failure:
            yield number, not_utf8_error(raw, failure.start, Location(path=path, line=number), None)


def _read_header(lines: Iterator[tuple[int, str | RekordError]], path: str) -> tuple[_Attribute, ...]:
    """The attributes; the lines are then at the first row."""
    found: dict[str, _Attribute] = {}
    for number, raw in lines:
        if isinstance(raw, RekordError):
            raise raw
        text = raw.strip()
        word = text.partition(" ")[0].partition("\t")[0].lower()
        if not text or text.startswith("%") or word == "@relation":
            continue
        if word == "@data":
            if found:
                return tuple(found.values())
            raise _header_error(path, number, "no @attribute before @data")
        match = _ATTRIBUTE.fullmatch(text)
        if match is None:
            raise _header_error(path, number, preview(text[:60]))
        one = _parse_attribute(_unquote(match[1]), match[2].strip(), path, number)
        if one.name in found or len(found) >= _MAX_ATTRIBUTES:
            raise _header_error(path, number, f"a second attribute {preview(one.name)}", one.name)
        found[one.name] = one
    raise _header_error(path, None, "no line @data")


def _parse_attribute(name: str, kind: str, path: str, line: int) -> _Attribute:
    if kind.lower() in ("numeric", "real", "integer"):
        return _Attribute(name, "number")
    if kind.lower() == "string":
        return _Attribute(name, "text")
    nominal = _NOMINAL.fullmatch(kind)
    if nominal is not None:
        values = _split_fields(nominal[1])
        if values and len(set(values)) == len(values) and all(values):
            return _Attribute(name, "nominal", tuple(_unquote(value) for value in values))
        raise _header_error(path, line, f"values of {preview(name)} that are not unique names", name)
    date = _DATE.fullmatch(kind)
    if date is None:
        raise _header_error(path, line, f"the type {preview(kind[:40])} of {preview(name)}", name)
    format = "".join(_translate_date_part(part) for part in _DATE_PART.finditer(_unquote(date[1] or "")))
    return _Attribute(name, "date", format=format)


def _translate_date_part(part: re.Match[str]) -> str:
    """A part of Java's SimpleDateFormat as strptime takes it."""
    if part[2]:
        return _DATE_DIRECTIVES.get(part[2], part[0])
    return (part[0] if part[1] is None else part[1] or "'").replace("%", "%%")


def _split_fields(text: str) -> list[str] | None:
    """The fields of a line, with their quotes; None if it is not well-formed."""
    fields = []
    at = 0
    while True:
        match = _FIELD.match(text, at)
        assert match is not None  # it matches the empty string as well
        fields.append(match[1].rstrip())
        at = match.end()
        if match[3] or (at < len(text) and "\t" in match[2]):
            continue
        return fields if at == len(text) else None


def _unquote(text: str) -> str:
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return text
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r"}.get(match[1], match[1]), text[1:-1])


def _parse_row(text: str, header: Sequence[_Attribute], where: Location) -> Values:
    if text.startswith("{"):
        return _parse_sparse_row(text, header, where)
    fields = _split_fields(text)
    if fields is None or len(fields) != len(header):
        found = "quotes that are not closed" if fields is None else f"{len(fields):,} fields"
        return error(
            "E354",
            f"row has {found}, header has {len(header):,} attributes",
            location=where,
            expected=f"{len(header):,} fields",
            found=f"{found}: {preview(text[:60])}",
            do="fix this line: quote fields that contain a comma, a space or a quote",
        )
    values: dict[str, Any] = {}
    for one, field in zip(header, fields, strict=True):
        values[one.name] = _parse_value(field, one, where)
        if isinstance(values[one.name], RekordError):
            return values[one.name]  # type: ignore[no-any-return]
    return values


def _parse_sparse_row(text: str, header: Sequence[_Attribute], where: Location) -> Values:
    # What a sparse row leaves out is 0, or the first value of a nominal attribute.
    values: dict[str, Any] = {
        one.name: 0.0 if one.kind == "number" else one.values[0] if one.kind == "nominal" else None for one in header
    }
    inner = text[1:-1].strip() if text.endswith("}") else None
    at = 0
    while inner and at < len(inner):
        match = _SPARSE.match(inner, at)
        if match is None or int(match[1]) >= len(header):
            inner = None
            break
        one = header[int(match[1])]
        values[one.name] = _parse_value(match[2].rstrip(), one, where)
        if isinstance(values[one.name], RekordError):
            return values[one.name]  # type: ignore[no-any-return]
        at = match.end()
    if inner is None:
        return error(
            "E354",
            "sparse row cannot be read",
            location=where,
            expected=f"{{index value, …}} with an index below {len(header):,}",
            found=preview(text[:60]),
            do="fix this line",
        )
    return values


def _parse_value(field: str, one: _Attribute, where: Location) -> Any:
    if field == "?":
        return None
    text = _unquote(field)
    if one.kind == "text" or (one.kind == "nominal" and text in one.values):
        return text
    if one.kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if one.kind == "date":
        try:
            return _parse_date(text, one.format)
        except ValueError:
            pass
    expected = {"number": "a number", "nominal": f"one of {preview(list(one.values[:8]))}", "date": "a date"}[
        one.kind
    ]
    return error(
        "E356",
        f"`{one.name[:60]}` has value {preview(text)}, expected {expected[:60]}",
        location=where.within(feature=one.name[:60]),
        expected=f"{expected}, as the header declares",
        found=preview(text),
        do="fix the field, or the type of the attribute in the header",
    )


def _parse_date(text: str, format: str) -> datetime.datetime:
    if not format:
        return datetime.datetime.fromisoformat(text)
    return datetime.datetime.strptime(text, format)


def _header_error(path: str, line: int | None, found: str, feature: str | None = None) -> RekordError:
    return error(
        "X522",
        "header of the ARFF file cannot be read",
        location=Location(path=path, line=line, feature=None if feature is None else feature[:60]),
        expected="@relation, lines such as @attribute name numeric, and @data",
        found=found[:120],
        do="fix this line: the types are numeric, real, integer, string, date and {a,b,c}",
    )
