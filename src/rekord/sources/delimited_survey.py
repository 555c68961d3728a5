"""What CSV files hold, before their rows are read: names and types of columns, and where rows begin."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Bytes, Feature, Float32, Int64, Tensor, Text
from rekord.schema.merging import float32_loses
from rekord.schema.refuse import near_miss, shown
from rekord.sources.base import SourceFile
from rekord.sources.files import Listing, empty, opened
from rekord.sources.lines import (
    Cut,
    FileIndex,
    LostRow,
    RowBlock,
    Rules,
    after_head,
    index_file,
    row_blocks,
    text_head,
)
from rekord.sources.same_columns import inconsistent
from rekord.sources.tables import SAMPLED_ROWS

Form: TypeAlias = Literal["whole", "real", "truth", "text", "bytes"]

WHOLE_BYTES = 256 << 20
"""Sources up to this size are looked at from end to end."""

FIRST_BYTES = 64 << 20
SAMPLE_BYTES = 64 << 20
"""Of larger ones, so much at the beginning, and so much in evenly spread samples."""

_MOST_COLUMNS = 100_000
_DELIMITERS = ",\t;|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of a CSV source."""

    delimiter: str | None
    keep: tuple[str, ...] | None
    types: tuple[tuple[str, Feature], ...]
    header: bool
    na: tuple[str, ...]


class Column(NamedTuple):
    """A column that is kept, and how its fields are read."""

    name: str
    place: int
    form: Form
    feature: Feature
    declared: bool


@dataclass(frozen=True, slots=True)
class Table:
    """All that is needed to read rows; small, as it goes to every task."""

    names: tuple[str, ...]  # of all columns of the file
    columns: tuple[Column, ...]
    delimiter: str
    na: tuple[str, ...]
    sampled: bool  # the types come from a part of the rows only

    @property
    def rules(self) -> Rules:
        return Rules(self.delimiter)


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found out about a source."""

    listing: Listing
    table: Table
    indexes: tuple[FileIndex, ...]
    rows: int | None


class _Start(NamedTuple):
    """The first lines of one file."""

    delimiter: str
    names: tuple[str, ...]
    begin: Cut  # of the first row that is data
    line: int  # of the header


def survey(listing: Listing, asked: Asked, *, gzipped: bool) -> Survey:
    """Look at all files once; asked again for the same files, the answer is at hand."""
    return _survey(listing, asked, gzipped)


@lru_cache(maxsize=4)
def _survey(listing: Listing, asked: Asked, gzipped: bool) -> Survey:
    starts = [_start(listing.full(file), file, asked, gzipped) for file in listing.files]
    first = starts[0]
    for file, start in zip(listing.files, starts, strict=True):
        if start.names != first.names:
            raise _inconsistent(listing, file, start, first)
    columns_seen = _core.FieldSurvey(first.delimiter, len(first.names), list(asked.na))
    sampled = not gzipped and listing.source_bytes > WHOLE_BYTES
    look = _Look(columns_seen, listing.source_bytes if sampled else None)
    indexes = []
    for file, start in zip(listing.files, starts, strict=True):
        path = listing.full(file)
        with opened(path, file, gzipped=gzipped) as stream:
            head, offset = text_head(stream, path)
            rest = after_head(stream, head, offset, start.begin)
            indexes.append(
                index_file(file, stream, Rules(first.delimiter), start.begin, head=rest, look=look)
            )
            look.before_bytes += file.size_bytes
    rows = sum(index.rows for index in indexes)
    if not rows:
        path = listing.full(listing.files[0])
        raise empty(path, "a header without rows", expected="a line for each row below the header")
    table = _table(first, asked, columns_seen, sampled, listing)
    table = replace(table, columns=_without_merging(table, listing, first.begin, gzipped))
    return Survey(listing, table, tuple(indexes), rows)


def _without_merging(table: Table, listing: Listing, begin: Cut, gzipped: bool) -> tuple[Column, ...]:
    """The columns, with doubles as they are where float32 would not tell the first of them apart."""
    from rekord.sources.delimited_rows import Parser

    if not any(column.form == "real" and not column.declared for column in table.columns):
        return table.columns
    file = listing.files[0]
    path = listing.full(file)
    with opened(path, file, gzipped=gzipped) as stream:
        head, offset = text_head(stream, path)
        rest = after_head(stream, head, offset, begin)
        block = next(row_blocks(stream, table.rules, begin, head=rest), None)
    batch = Parser(table).parse(block.data, block.rows) if isinstance(block, RowBlock) else None
    if batch is None:
        return table.columns  # whoever reads the rows will say what is wrong with them
    return tuple([_checked_double(column, batch) for column in table.columns])


def _checked_double(column: Column, batch: Any) -> Column:
    if column.form != "real" or column.declared:
        return column
    values = batch.column(column.name).slice(0, SAMPLED_ROWS).drop_null().to_numpy()
    if not float32_loses(values):
        return column
    return column._replace(feature=Tensor("float64", optional=column.feature.optional))


class _Look:
    """Passes rows on to be looked at: all, or those in samples."""

    def __init__(self, seen: _core.FieldSurvey, sampled_of: int | None) -> None:
        self.seen = seen
        self.before_bytes = 0
        self._sampled_of = sampled_of

    def __call__(self, block: RowBlock) -> None:
        if self._sampled_of is None or self._is_sample(block):
            self.seen.feed(block.data)

    def _is_sample(self, block: RowBlock) -> bool:
        assert self._sampled_of is not None
        begin = self.before_bytes + block.offset
        if begin < FIRST_BYTES:
            return True
        # Blocks in which a multiple of the stride falls.
        stride = max(1, (self._sampled_of - FIRST_BYTES) * max(len(block.data), 1) // SAMPLE_BYTES)
        return begin // stride != (begin + len(block.data)) // stride


def _start(path: str, file: SourceFile, asked: Asked, gzipped: bool) -> _Start:
    if not file.size_bytes:
        raise empty(path, "an empty file", expected="a header and rows" if asked.header else "rows")
    with opened(path, file, gzipped=gzipped) as stream:
        head, offset = text_head(stream, path)
        delimiter = asked.delimiter or _sniffed(file.path, head)
        blocks = row_blocks(stream, Rules(delimiter), Cut(offset, 0, 1), head=head)
        first = next(blocks, None)
        if first is None:
            raise empty(path, "no line with anything in it", expected="a header and rows")
        if isinstance(first, LostRow):
            raise _bad_header(
                path,
                first.line,
                expected="a first line of names",
                found="a quote that is not closed" if first.code == "E358" else "a line of more than 64 MiB",
            )
        fields = fields_of(first.row(0), delimiter)
        line = int(first.lines[0])
        if not asked.header:
            return _Start(delimiter, _given_names(asked, len(fields), path), Cut(offset, 0, 1), line)
        names = _header_names(fields, path, line)
        if first.rows > 1:
            begin = Cut(first.offset + int(first.starts[1]), 0, int(first.lines[1]))
        else:
            begin = Cut(first.offset + len(first.data), 0, line + len(first.data.splitlines()))
        return _Start(delimiter, names, begin, line)


def _sniffed(name: str, head: bytes) -> str:
    bare = name.lower().removesuffix(".gz")
    if bare.endswith((".tsv", ".tab")):
        return "\t"
    stripped = head.lstrip(b"\r\n")
    line = re.sub(rb'"[^"]*"', b"", re.split(rb"[\r\n]", stripped, maxsplit=1)[0])
    counts = {mark: line.count(mark.encode()) for mark in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def fields_of(row: bytes, delimiter: str) -> list[bytes]:
    """The fields of one row, without their quotes."""
    mark = re.escape(delimiter.encode())
    field = re.compile(rb'(?:"([^"]*(?:""[^"]*)*)"?)?([^' + mark + rb"\r\n]*)")
    fields: list[bytes] = []
    at = 0
    while True:
        found = field.match(row, at)
        assert found is not None  # it matches nothing at all, too
        quoted, rest = found.groups()
        fields.append(rest if quoted is None else quoted.replace(b'""', b'"') + rest)
        at = found.end()
        if row[at : at + 1] != delimiter.encode():
            return fields
        at += 1


def _header_names(fields: list[bytes], path: str, line: int) -> tuple[str, ...]:
    if len(fields) > _MOST_COLUMNS:
        raise _bad_header(
            path, line, expected=f"at most {_MOST_COLUMNS:,} columns", found=f"{len(fields):,} columns"
        )
    names = []
    for place, field in enumerate(fields, 1):
        try:
            name = field.decode().strip()
        except UnicodeDecodeError as failure:
            raise _bad_header(
                path,
                line,
                what=f"the name of column {place:,} is not UTF-8",
                expected="names in UTF-8",
                found=f"the byte 0x{field[failure.start]:02x}",
                do="iconv -f LATIN1 -t UTF-8 IN > OUT      (if the text is in Latin-1)",
            ) from None
        if not name:
            raise _bad_header(
                path,
                line,
                what=f"column {place:,} has no name",
                expected="a name for every column",
                found=f"{len(fields):,} columns, of which number {place:,} is empty",
                do="name it in the first line, or read without a header: header=False, columns=[...]",
            )
        names.append(name)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = [str(i) for i, name in enumerate(names, 1) if name == twice[0]]
        raise _bad_header(
            path,
            line,
            what=f"two columns are called `{twice[0][:60]}`",
            feature=twice[0][:60],
            expected="each name once",
            found=f"columns {' and '.join(places[:2])} of this name",
            do="rename one in the first line, or read without a header: header=False, columns=[...]",
        )
    return tuple(names)


def _given_names(asked: Asked, count: int, path: str) -> tuple[str, ...]:
    if asked.keep is None:
        return tuple(f"column_{i}" for i in range(count))
    if len(asked.keep) != count:
        raise error(
            "X522",
            "`columns` names another number of columns than the file has",
            location=Location(path=path, line=1),
            expected=f"{count:,} names, as the first row has fields",
            found=f"{len(asked.keep):,} names",
            do="name every column in order, since header=False",
        )
    return asked.keep


def _bad_header(
    path: str,
    line: int,
    *,
    expected: str,
    found: str,
    what: str | None = None,
    feature: str | None = None,
    do: str = "put a line of names first, or say header=False",
) -> RekordError:
    where = Location(path=path, line=line, feature=feature)
    return error("X522", what, location=where, expected=expected, found=found, do=do)


def _inconsistent(listing: Listing, file: SourceFile, start: _Start, first: _Start) -> RekordError:
    pairs = zip_longest(first.names, start.names)
    place, (expected, found) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    name = found if expected is None else expected
    return inconsistent(
        listing,
        file,
        name,
        expected=f"column {place:,} to be `{expected}`" if expected is not None else f"{place - 1:,} columns",
        found=f"`{found}`" if found is not None else f"{len(start.names):,} columns",
    )


def _table(start: _Start, asked: Asked, seen: _core.FieldSurvey, sampled: bool, listing: Listing) -> Table:
    known = dict.fromkeys(start.names)
    types = dict(asked.types)
    for name in (*(asked.keep or ()), *types):
        if name not in known:
            near = near_miss(name, start.names)
            raise error(
                "X522",
                f"there is no column `{name[:60]}`",
                location=Location(path=listing.full(listing.files[0]), line=start.line, feature=name[:60]),
                expected=f"one of {shown(list(start.names))}",
                found=shown(name),
                do=f"did you mean `{near}`?" if near else "name columns as the first line does",
            )
    places = {name: i for i, name in enumerate(start.names)}
    counts = seen.counts()
    columns = []
    for name in asked.keep or start.names:
        feature = types.get(name)
        form = _form_of(feature) if feature is not None else _form(counts[places[name]])
        missing = _has_missing(counts[places[name]], form)
        chosen = feature if feature is not None else _feature(form, missing)
        columns.append(Column(name, places[name], form, chosen, feature is not None))
    return Table(start.names, tuple(columns), start.delimiter, asked.na, sampled)


def _form(counts: tuple[int, ...]) -> Form:
    _, whole, padded, large, real, nan, truth, text = (bool(count) for count in counts)
    if text or padded or (truth and (whole or large or real or nan)):
        return "text"
    if truth:
        return "truth"
    if real or nan:
        return "real"
    return "whole" if whole and not large else "text"


def _form_of(feature: Feature) -> Form:
    if isinstance(feature, Int64):
        return "truth" if feature.dtype == np.bool_ else "whole"
    if isinstance(feature, Float32):
        return "real"
    return "bytes" if isinstance(feature, Bytes) else "text"


def _has_missing(counts: tuple[int, ...], form: Form) -> bool:
    return bool(counts[0] or (form == "real" and counts[5]))


def _feature(form: Form, optional: bool) -> Feature:
    match form:
        case "whole":
            return Int64(optional=optional)
        case "real":
            return Float32(optional=optional)
        case "truth":
            return Int64(dtype="bool", optional=optional)
    return Text(optional=optional)
