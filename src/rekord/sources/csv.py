"""CSV and TSV files: rows in parts, with column types determined before the first row is read."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.arguments import check_keywords, invalid, is_utf8_encodable, name_list
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.report.formatting import format_count
from rekord.schema import Feature, Float32, Int64, Schema, Tensor, Text
from rekord.schema.column_evidence import is_lossy_in_float32
from rekord.schema.json_form import feature_to_json
from rekord.sources.base import (
    PART_BYTES,
    ByteStream,
    Chunk,
    FileListing,
    SizeCheckedFile,
    SourceFacts,
    SourceFile,
    SourcePart,
    SourceRow,
    SurveyCache,
    empty_file_error,
    is_gzip_name,
    list_files,
    open_source_file,
    source_path,
)
from rekord.sources.lines import (
    FileSpan,
    RowBlock,
    RowIndex,
    RowStart,
    RowSyntax,
    UnreadableRow,
    group_spans,
    index_file,
    not_utf8_error,
    read_row_blocks,
    read_text_head,
    skip_to_row,
    to_column_chunk,
    unreadable_row_error,
)
from rekord.sources.tables import SAMPLE_ROWS, build_facts, inconsistent_file_error, missing_column_error

FieldType: TypeAlias = Literal["whole", "real", "truth", "text", "bytes"]

MAX_FULL_SURVEY_BYTES = 256 << 20
"""Sources up to this size are inspected completely."""

HEAD_SURVEY_BYTES = 64 << 20
SAMPLE_BYTES = 64 << 20
"""Larger ones are inspected at the beginning, and in evenly spread samples."""

_MAX_COLUMNS = 100_000
_DELIMITERS = ",\t;|"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The options of a CSV source."""

    delimiter: str | None
    keep: tuple[str, ...] | None
    types: tuple[tuple[str, Feature], ...]
    header: bool
    na: tuple[str, ...]


class CsvColumn(NamedTuple):
    """A selected column, and how its fields are read."""

    name: str
    place: int
    form: FieldType
    feature: Feature
    declared: bool


@dataclass(frozen=True, slots=True)
class CsvTable:
    """All that is needed to read rows; small, as every task gets it."""

    names: tuple[str, ...]  # of all columns of the file
    columns: tuple[CsvColumn, ...]
    delimiter: str
    na: tuple[str, ...]
    sampled: bool  # the types come from some of the rows only

    @property
    def rules(self) -> RowSyntax:
        return RowSyntax(self.delimiter)


@dataclass(frozen=True, slots=True)
class CsvSurvey:
    """What the inspection of a source found."""

    listing: FileListing
    table: CsvTable
    indexes: tuple[RowIndex, ...]
    rows: int


class _CsvStart(NamedTuple):
    """The first lines of one file."""

    delimiter: str
    names: tuple[str, ...]
    begin: RowStart  # of the first row after the header
    line: int  # of the header


_surveys: SurveyCache[CsvSurvey] = SurveyCache()


def _survey_files(
    listing: FileListing, requested: CsvOptions, gzipped: bool, opened: SizeCheckedFile | None
) -> CsvSurvey:
    sampled = not gzipped and listing.source_bytes > MAX_FULL_SURVEY_BYTES
    first: _CsvStart | None = None
    indexes = []
    for file in listing.files:
        path = listing.full(file)
        if not file.size_bytes:
            expected = "a header and rows" if requested.header else "rows"
            raise empty_file_error(path, "an empty file", expected=expected)
        with open_source_file(path, file, gzipped=gzipped, opened=opened) as stream:
            start = _read_start(stream, path, file, requested)
            if first is None:
                first = start
                seen = _core.FieldSurvey(first.delimiter, len(first.names), list(requested.na))
                look = _SurveySampler(seen, listing.source_bytes if sampled else None)
            if start.names != first.names:
                raise _inconsistent_error(listing, file, start, first)
            stream.rewind()
            head, offset = read_text_head(stream, path)
            rest = skip_to_row(stream, head, offset, start.begin)
            syntax = RowSyntax(first.delimiter)
            indexes.append(index_file(file, stream, syntax, start.begin, head=rest, look=look))
            look.before_bytes += file.size_bytes
    assert first is not None  # a listing has files
    rows = sum(index.rows for index in indexes)
    if not rows:
        path = listing.full(listing.files[0])
        raise empty_file_error(path, "a header without rows", expected="a line per row below the header")
    table = _build_table(first, requested, seen, sampled, listing)
    table = replace(table, columns=_widen_lossy_floats(table, look.first))
    return CsvSurvey(listing, table, tuple(indexes), rows)


def _widen_lossy_floats(table: CsvTable, block: RowBlock | None) -> tuple[CsvColumn, ...]:
    """The columns, with float64 kept where float32 would merge different values of the first block."""
    if not any(column.form == "real" and not column.declared for column in table.columns):
        return table.columns
    # If the first row cannot be read, or does not fit the table, reading the rows reports it.
    batch = CsvParser(table).parse(block.data, block.rows) if block is not None and not block.first else None
    if batch is None:
        return table.columns
    columns = list(table.columns)
    for i, column in enumerate(columns):
        if column.form == "real" and not column.declared:
            values = batch.column(column.name).slice(0, SAMPLE_ROWS).drop_null().to_numpy()
            if is_lossy_in_float32(values):
                columns[i] = column._replace(feature=Tensor("float64", optional=column.feature.optional))
    return tuple(columns)


class _SurveySampler:
    """Passes rows to the survey: all, or those in samples."""

    def __init__(self, seen: _core.FieldSurvey, sampled_of: int | None) -> None:
        self.seen = seen
        self.before_bytes = 0
        self.first: RowBlock | None = None
        self._sampled_of = sampled_of

    def __call__(self, block: RowBlock) -> None:
        if self.first is None:
            self.first = block
        if self._sampled_of is None or self._is_sample(block):
            self.seen.feed(block.data)

    def _is_sample(self, block: RowBlock) -> bool:
        assert self._sampled_of is not None
        begin = self.before_bytes + block.offset
        if begin < HEAD_SURVEY_BYTES:
            return True
        # Blocks that contain a multiple of the stride.
        stride = max(1, (self._sampled_of - HEAD_SURVEY_BYTES) * max(len(block.data), 1) // SAMPLE_BYTES)
        return begin // stride != (begin + len(block.data)) // stride


def _read_start(stream: ByteStream, path: str, file: SourceFile, requested: CsvOptions) -> _CsvStart:
    head, offset = read_text_head(stream, path)
    delimiter = requested.delimiter or _sniff_delimiter(file.path, head)
    first = next(read_row_blocks(stream, RowSyntax(delimiter), RowStart(offset, 0, 1), head=head), None)
    if first is None:
        raise empty_file_error(path, "only empty lines", expected="a header and rows")
    if isinstance(first, UnreadableRow):
        raise _header_error(
            path,
            first.line,
            expected="a first line of column names",
            found="an unclosed quote" if first.code == "E358" else "a line of more than 64 MiB",
        )
    fields = split_fields(first.row(0), delimiter)
    line = int(first.lines[0])
    if not requested.header:
        names = _choose_names(requested, len(fields), path)
        return _CsvStart(delimiter, names, RowStart(offset, 0, 1), line)
    names = _parse_header(fields, path, line)
    if first.rows > 1:
        begin = RowStart(first.offset + int(first.starts[1]), 0, int(first.lines[1]))
    else:
        begin = RowStart(first.offset + len(first.data), 0, line + len(first.data.splitlines()))
    return _CsvStart(delimiter, names, begin, line)


def _sniff_delimiter(name: str, head: bytes) -> str:
    bare = name.lower().removesuffix(".gz")
    if bare.endswith((".tsv", ".tab")):
        return "\t"
    stripped = head.lstrip(b"\r\n")
    line = re.sub(rb'"[^"]*"', b"", re.split(rb"[\r\n]", stripped, maxsplit=1)[0])
    counts = {mark: line.count(mark.encode()) for mark in _DELIMITERS}
    best = max(_DELIMITERS, key=lambda mark: counts[mark])
    return best if counts[best] else ","


def split_fields(row: bytes, delimiter: str) -> list[bytes]:
    """The fields of one row, without their quotes."""
    mark = re.escape(delimiter.encode())
    field = re.compile(rb'(?:"([^"]*(?:""[^"]*)*)"?)?([^' + mark + rb"\r\n]*)")
    fields: list[bytes] = []
    at = 0
    while True:
        found = field.match(row, at)
        assert found is not None  # it matches the empty string as well
        quoted, rest = found.groups()
        fields.append(rest if quoted is None else quoted.replace(b'""', b'"') + rest)
        at = found.end()
        if row[at : at + 1] != delimiter.encode():
            return fields
        at += 1


def _parse_header(fields: list[bytes], path: str, line: int) -> tuple[str, ...]:
    if len(fields) > _MAX_COLUMNS:
        raise _header_error(
            path, line, expected=f"at most {_MAX_COLUMNS:,} columns", found=f"{len(fields):,} columns"
        )
    names = []
    for place, field in enumerate(fields, 1):
        try:
            name = field.decode().strip()
        except UnicodeDecodeError as failure:
            raise _header_error(
                path,
                line,
                what=f"name of column {place:,} is not UTF-8",
                expected="names in UTF-8",
                found=f"the byte 0x{field[failure.start]:02x}",
                do=f"if the text is in Latin-1: iconv -f LATIN1 -t UTF-8 {shlex.quote(path)} > converted.csv",
            ) from None
        if not name:
            raise _header_error(
                path,
                line,
                what=f"column {place:,} has no name",
                expected="a name for every column",
                found=f"{len(fields):,} columns, number {place:,} with an empty name",
                do="name it in the first line, or read without a header: header=False, columns=[…]",
            )
        names.append(name)
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        places = [str(i) for i, name in enumerate(names, 1) if name == twice[0]]
        raise _header_error(
            path,
            line,
            what=f"two columns are named `{twice[0][:60]}`",
            feature=twice[0][:60],
            expected="unique names",
            found=f"columns {' and '.join(places[:2])} with this name",
            do="rename one in the first line, or read without a header: header=False, columns=[…]",
        )
    return tuple(names)


def _choose_names(requested: CsvOptions, count: int, path: str) -> tuple[str, ...]:
    if requested.keep is None:
        return tuple(f"column_{i}" for i in range(count))
    if len(requested.keep) != count:
        raise error(
            "X522",
            "`columns` has the wrong number of names",
            location=Location(path=path, line=1),
            expected=f"{count:,} names, one per field of the first row",
            found=f"{len(requested.keep):,} names",
            do="name every column, in order: with header=False the file has no names",
        )
    return requested.keep


def _header_error(
    path: str,
    line: int,
    *,
    expected: str,
    found: str,
    what: str | None = None,
    feature: str | None = None,
    do: str = "add a line of column names, or read without a header: header=False",
) -> RekordError:
    where = Location(path=path, line=line, feature=feature)
    return error("X522", what, location=where, expected=expected, found=found, do=do)


def _inconsistent_error(listing: FileListing, file: SourceFile, start: _CsvStart, first: _CsvStart) -> RekordError:
    pairs = zip_longest(first.names, start.names)
    place, (expected, found) = next((i, pair) for i, pair in enumerate(pairs, 1) if pair[0] != pair[1])
    name = found if expected is None else expected
    return inconsistent_file_error(
        listing,
        file,
        name,
        expected=f"column {place:,} to be `{expected}`" if expected is not None else f"{place - 1:,} columns",
        found=f"`{found}`" if found is not None else f"{len(start.names):,} columns",
    )


def _build_table(
    start: _CsvStart, requested: CsvOptions, seen: _core.FieldSurvey, sampled: bool, listing: FileListing
) -> CsvTable:
    known = dict.fromkeys(start.names)
    types = dict(requested.types)
    for name in (*(requested.keep or ()), *types):
        if name not in known:
            raise missing_column_error(name, start.names, listing.full(listing.files[0]), start.line)
    places = {name: i for i, name in enumerate(start.names)}
    counts = seen.counts()
    columns = []
    for name in requested.keep or start.names:
        feature = types.get(name)
        form = _field_type_of_feature(feature) if feature is not None else _infer_field_type(counts[places[name]])
        missing = _has_missing(counts[places[name]], form)
        chosen = feature if feature is not None else _feature_for_type(form, missing)
        columns.append(CsvColumn(name, places[name], form, chosen, feature is not None))
    return CsvTable(start.names, tuple(columns), start.delimiter, requested.na, sampled)


def _infer_field_type(counts: tuple[int, ...]) -> FieldType:
    _, whole, padded, large, real, nan, truth, text = (bool(count) for count in counts)
    if text or padded or (truth and (whole or large or real or nan)):
        return "text"
    if truth:
        return "truth"
    if real or nan:
        return "real"
    return "whole" if whole and not large else "text"


def _field_type_of_feature(feature: Feature) -> FieldType:
    if feature.value_kind == "int":
        return "truth" if feature.dtype == np.bool_ else "whole"
    return {"float": "real", "bytes": "bytes"}.get(feature.value_kind or "", "text")  # type: ignore[return-value]


def _has_missing(counts: tuple[int, ...], form: FieldType) -> bool:
    return bool(counts[0] or (form == "real" and counts[5]))


def _feature_for_type(form: FieldType, optional: bool) -> Feature:
    if form in ("whole", "truth"):
        return Int64(dtype="bool" if form == "truth" else "int64", optional=optional)
    return Float32(optional=optional) if form == "real" else Text(optional=optional)


_TRUE_WORDS = ("true", "True", "TRUE")
_FALSE_WORDS = ("false", "False", "FALSE")
_INTEGER_PATTERN = re.compile(r"-?[0-9]+")
_HEX_PATTERN = re.compile(r"-?0[xX][0-9a-fA-F]{1,16}")
_FLOAT_PATTERN = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)
_FIELD_TYPE_NAMES: dict[FieldType, str] = {
    "whole": "an integer",
    "real": "a number",
    "truth": "true or false",
}
_FIELD_TYPE_FEATURES: dict[FieldType, str] = {
    "whole": "Int64",
    "real": "Float32",
    "truth": 'Int64(dtype="bool")',
}


def read_rows(
    blocks: Iterable[RowBlock | UnreadableRow], table: CsvTable, path: str, full_path: str
) -> Iterator[Chunk]:
    """Rows in order. Arrow parses whole blocks; only a block that it refuses is parsed row by row."""
    parser = CsvParser(table)
    for block in blocks:
        if isinstance(block, UnreadableRow):
            yield SourceRow(path, block.row, unreadable_row_error(block, full_path), block.line)
            continue
        batch = parser.parse(block.data, block.rows) if parser.is_arrow_safe(block.data) else None
        if batch is not None and not parser.has_infinite(batch):
            yield to_column_chunk(batch, block, 0, block.rows, path)
        else:
            yield from _read_row_by_row(block, parser, path, full_path)


class CsvParser:
    def __init__(self, table: CsvTable) -> None:
        import pyarrow as pa
        from pyarrow import csv

        types = {
            "whole": pa.int64(),
            "real": pa.float64(),
            "truth": pa.bool_(),
            "text": pa.string(),
            "bytes": pa.binary(),
        }
        self.table = table
        self._convert = csv.ConvertOptions(
            column_types={column.name: types[column.form] for column in table.columns},
            include_columns=[column.name for column in table.columns],
            null_values=list(table.na),
            strings_can_be_null=True,
            true_values=list(_TRUE_WORDS),
            false_values=list(_FALSE_WORDS),
        )
        self._reals = [i for i, column in enumerate(table.columns) if column.form == "real"]
        self._wholes = [c.place for c in table.columns if c.form == "whole" and not c.declared]

    def is_arrow_safe(self, data: bytes) -> bool:
        """Whether Arrow keeps the values as written.

        It reads 007 as 7. If all rows were inspected, a column of such numbers is text.
        """
        if not self.table.sampled or not self._wholes:
            return True
        seen = _core.FieldSurvey(self.table.delimiter, len(self.table.names), list(self.table.na))
        seen.feed(data)
        counts = seen.counts()
        return not any(counts[place][2] or counts[place][7] for place in self._wholes)

    def parse(self, data: bytes, rows: int) -> Any:
        """A batch of `rows` rows, or None if they do not fit."""
        import pyarrow as pa
        from pyarrow import csv

        if not rows:
            return None
        try:
            table = csv.read_csv(
                pa.BufferReader(data),
                read_options=csv.ReadOptions(
                    column_names=list(self.table.names), use_threads=False, block_size=len(data) + 1
                ),
                parse_options=csv.ParseOptions(delimiter=self.table.delimiter, newlines_in_values=b'"' in data),
                convert_options=self._convert,
            )
        except (pa.ArrowException, ValueError, KeyError):
            return None
        if table.num_rows != rows:
            return None
        return self._nan_to_null(table.combine_chunks().to_batches()[0])

    def has_infinite(self, batch: Any) -> bool:
        """Whether a number is infinite; Arrow also reads 1e999 as infinite."""
        from pyarrow import compute

        return any(compute.any(compute.is_inf(batch.column(place))).as_py() for place in self._reals)

    def _nan_to_null(self, batch: Any) -> Any:
        """NaN in a file stands for a missing value."""
        import pyarrow as pa
        from pyarrow import compute

        arrays = list(batch.columns)
        for place in self._reals:
            nan = compute.is_nan(arrays[place])
            if compute.any(nan).as_py():
                arrays[place] = compute.if_else(nan, pa.scalar(None, pa.float64()), arrays[place])
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _read_row_by_row(block: RowBlock, parser: CsvParser, path: str, full_path: str) -> Iterator[Chunk]:
    problems: dict[int, RekordError] = {}
    for i in range(block.rows):
        where = Location(path=full_path, row=block.first + i, line=int(block.lines[i]))
        problem = _find_problem(block.row(i), parser.table, where)
        if problem is not None:
            problems[i] = problem
    while True:
        good = [i for i in range(block.rows) if i not in problems]
        batch = parser.parse(b"".join(_ensure_newline(block.row(i)) for i in good), len(good))
        if batch is not None or not good:
            break
        # Arrow refuses something that we accept; bisection finds the row.
        i = _find_rejected_row(block, good, parser)
        where = Location(path=full_path, row=block.first + i, line=int(block.lines[i]))
        problems[i] = error(
            "E356",
            "row does not fit the column types",
            location=where,
            expected="fields of the types of their columns",
            found=preview(block.row(i)[:60]),
            do='read its columns as text: columns={"name": rk.Text()}',
        )
    done = 0  # good rows so far
    i = 0
    while i < block.rows:
        if i in problems:
            yield SourceRow(path, block.first + i, problems[i], int(block.lines[i]))
            i += 1
            continue
        end = i
        while end < block.rows and end not in problems:
            end += 1
        yield to_column_chunk(batch.slice(done, end - i), block, i, end, path)
        done += end - i
        i = end


def _ensure_newline(row: bytes) -> bytes:
    return row if row.endswith((b"\n", b"\r")) else row + b"\n"


def _find_rejected_row(block: RowBlock, rows: list[int], parser: CsvParser) -> int:
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        fits = parser.parse(b"".join(_ensure_newline(block.row(i)) for i in half), len(half)) is not None
        rows = rows[len(half) :] if fits else half
    return rows[0]


def _find_problem(row: bytes, table: CsvTable, where: Location) -> RekordError | None:
    fields = split_fields(row, table.delimiter)
    if len(fields) != len(table.names):
        return error(
            "E354",
            f"row has {format_count(len(fields), 'field')}, table has {format_count(len(table.names), 'column')}",
            location=where,
            expected=format_count(len(table.names), "field"),
            found=f"{format_count(len(fields), 'field')}: {preview(row[:60].rstrip().decode(errors='replace'))}",
            do="fix this line: quote fields that contain the delimiter",
        )
    for column in table.columns:
        field = fields[column.place]
        if column.form == "bytes":
            continue
        try:
            text = field.decode()
        except UnicodeDecodeError as failure:
            return not_utf8_error(field, failure.start, where, column.name)
        if text not in table.na and not _is_valid_field(text, column):
            return _field_error(text, column, where)
    return None


def _is_valid_field(text: str, column: CsvColumn) -> bool:
    bare = text.strip(" \t")
    match column.form:
        case "whole":
            if column.declared and _HEX_PATTERN.fullmatch(bare):
                return True
            if not _INTEGER_PATTERN.fullmatch(bare) or len(bare) > 4000:
                return False
            digits = bare.lstrip("-")
            padded = len(digits) > 1 and digits.startswith("0")
            return (column.declared or not padded) and -(2**63) <= int(bare) < 2**63
        case "real":
            return bool(_FLOAT_PATTERN.fullmatch(bare)) and (math.isfinite(float(bare)) or "n" in bare.lower())
        case "truth":
            return text in _TRUE_WORDS or text in _FALSE_WORDS
    return True


def _field_error(text: str, column: CsvColumn, where: Location) -> RekordError:
    return error(
        "E356",
        f"`{column.name[:60]}` has value {preview(text)}, expected {_FIELD_TYPE_NAMES[column.form]}",
        location=where.within(feature=column.name[:60]),
        expected=f"{_FIELD_TYPE_NAMES[column.form]}: the column is {_FIELD_TYPE_FEATURES[column.form]}",
        found=preview(text),
        do=f"fix the field, or read the column as text: columns={{{column.name[:60]!r}: rk.Text()}}",
    )


EXTENSIONS = (".csv", ".tsv", ".tab", ".csv.gz", ".tsv.gz", ".tab.gz")
DEFAULT_NA = ("", "NA", "N/A", "null", "NULL")
"""Fields that stand for a missing value. So does NaN in columns of numbers."""

ColumnSelection: TypeAlias = "Sequence[str] | Mapping[str, Feature] | None"


@dataclass(frozen=True, slots=True)
class _CsvFiles:
    """CSV or TSV files and their options."""

    path: str
    requested: CsvOptions

    kind: ClassVar[str] = "csv"
    gzipped: ClassVar[bool]

    @property
    def root(self) -> str:
        return list_files(self.path, EXTENSIONS).root

    def options(self) -> Mapping[str, Any]:
        return {
            "delimiter": self.requested.delimiter,
            "columns": None if self.requested.keep is None else list(self.requested.keep),
            "types": {name: feature_to_json(feature) for name, feature in self.requested.types},
            "header": self.requested.header,
            "na": list(self.requested.na),
        }

    def facts(self, opened: SizeCheckedFile | None = None) -> SourceFacts:
        seen = self.survey(opened)
        schema = Schema({column.name: column.feature for column in seen.table.columns})
        return build_facts(schema, seen.rows, seen.listing)

    def survey(self, opened: SizeCheckedFile | None = None) -> CsvSurvey:
        """Inspect all files, each opened once; `opened` is the only file if it is already open."""
        listing, requested, gzipped = list_files(self.path, EXTENSIONS), self.requested, self.gzipped
        key = listing, requested, gzipped
        return _surveys.get(key, lambda: _survey_files(listing, requested, gzipped, opened))


@dataclass(frozen=True, slots=True)
class CsvSource(_CsvFiles):
    """Rows of CSV or TSV files."""

    gzipped = False

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        seen = self.survey()
        return group_spans(seen.indexes, part_bytes, seen.table, seen.listing.root)

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        table, root, pieces = part.content
        for span in pieces:
            assert isinstance(span, FileSpan)
            path = FileListing(root, ()).full(span.file)
            with open_source_file(path, span.file, span.begin.offset, span.end) as stream:
                blocks = read_row_blocks(stream, table.rules, span.begin)
                yield from read_rows(blocks, table, span.file.path, path)


@dataclass(frozen=True, slots=True)
class GzipCsvSource(_CsvFiles):
    """Rows of compressed CSV or TSV files, which can only be read from their beginning."""

    gzipped = True

    def rows(self) -> Iterator[Chunk]:
        seen = self.survey()
        for index in seen.indexes:
            path = seen.listing.full(index.file)
            with open_source_file(path, index.file, gzipped=True) as stream:
                head, offset = read_text_head(stream, path)
                rest = skip_to_row(stream, head, offset, index.cuts[0])
                blocks = read_row_blocks(stream, seen.table.rules, index.cuts[0], head=rest)
                yield from read_rows(blocks, seen.table, index.file.path, path)


@check_keywords
def csv(
    path: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    columns: ColumnSelection = None,
    header: bool = True,
    na: Sequence[str] = DEFAULT_NA,
) -> CsvSource | GzipCsvSource:
    """Rows of CSV or TSV files: a file, a folder or a pattern.

    Integers are Int64, other numbers Float32 (Tensor of float64 if float32 would merge different values), true and
    false Int64 of dtype bool, everything else Text as written: dates, digits after a leading zero, numbers beyond
    int64. A column in which a field is one of `na` is optional.

    `delimiter` is a tab for .tsv and .tab, else detected from the first line. `columns` is a list of the columns to
    keep, or a dict of types for some of them, such as {"zip": rk.Text()}. With `header=False` the first line is a
    row, and `columns` names all columns in order; by default they are column_0, column_1, ….
    """
    place = source_path(path, "csv")
    requested = CsvOptions(
        delimiter=_delimiter(delimiter),
        keep=_names(columns),
        types=_types(columns),
        header=header,
        na=_missing_words(na),
    )
    if is_gzip_name(place, EXTENSIONS):
        return GzipCsvSource(place, requested)
    return CsvSource(place, requested)


def _delimiter(given: object) -> str | None:
    if given is None or (isinstance(given, str) and re.fullmatch(r'[^"\r\n\0\x80-\U0010ffff]', given)):
        return given
    expected = "one ASCII character, except quotes and line endings"
    raise invalid("delimiter", given, expected, 'delimiter=";"')


def _names(columns: object) -> tuple[str, ...] | None:
    if columns is None or isinstance(columns, Mapping):
        return None
    expected = "a list of unique names, or a dict of names and features"
    return name_list("columns", columns, expected=expected, do='columns=["species", "year"]')


def _types(columns: object) -> tuple[tuple[str, Feature], ...]:
    if not isinstance(columns, Mapping):
        return ()
    for name, feature in columns.items():
        fits = isinstance(feature, Feature) and feature.reads_text and feature.shape == ()
        if not isinstance(name, str) or not fits:
            raise error(
                "U605",
                f"`columns` declares {preview(name)} as {preview(feature)}",
                expected="rk.Int64(), rk.Float32(), rk.Text(), rk.Bytes() or rk.Timestamp(), without a shape",
                found=preview(feature),
                do='columns={"zip": rk.Text()}',
            )
    return tuple(columns.items())


def _missing_words(na: object) -> tuple[str, ...]:
    if isinstance(na, (list, tuple)) and all(isinstance(word, str) and is_utf8_encodable(word) for word in na):
        return tuple(na)
    raise invalid("na", na, "a list of the texts that stand for a missing value", 'na=["", "NA"]')
