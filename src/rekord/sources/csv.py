"""CSV and TSV files: rows in parts, with column types determined before the first row is read."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from rekord import _core
from rekord.arguments import check_keywords, invalid, is_utf8_encodable, name_list, one_of
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Feature, Float32, Int64, Schema, Tensor, Text
from rekord.schema.column_evidence import is_lossy_in_float32
from rekord.schema.json_form import feature_to_json
from rekord.sources.base import (
    PART_BYTES,
    ByteStream,
    Chunk,
    FileListing,
    PartItem,
    SizeCheckedFile,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SurveyCache,
    empty_file_error,
    is_gzip_name,
    list_file_items,
    list_files,
    source_path,
)
from rekord.sources.fields import SAMPLE_ROWS as GUESS_ROWS
from rekord.sources.fields import (
    CsvColumn,
    CsvParser,
    CsvTable,
    FieldType,
    TextPlace,
    find_text_field,
    guess_table_columns,
    normalize_decimals,
    read_rows,
    split_fields,
)
from rekord.sources.lines import (
    NAME_THE_ENCODING,
    FileSpan,
    RowBlock,
    RowIndex,
    RowStart,
    RowSyntax,
    UnreadableRow,
    check_encoding,
    group_spans,
    guess_encoding,
    index_file,
    open_span,
    open_text_file,
    propose_encoding,
    read_row_blocks,
    read_text_head,
    skip_to_row,
)
from rekord.sources.tables import SAMPLE_ROWS, build_facts, inconsistent_file_error, missing_column_error

MAX_FULL_SURVEY_BYTES = 256 << 20
"""Sources up to this size are inspected completely."""

HEAD_SURVEY_BYTES = 64 << 20
SAMPLE_BYTES = 64 << 20
"""Larger ones are inspected at the beginning, and in evenly spread samples."""

_MAX_COLUMNS = 100_000
_MAX_HEAD_BLOCKS = 4
_DELIMITERS = ",\t;|"
_DELIMITER_LINE = re.compile(rb"sep=([\t -~])\r?\n", re.IGNORECASE)
_QUOTED_FIELD = re.compile(rb'"[^"]*"')
_SNIFFED_BYTES = 1 << 16
_SNIFFED_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """The options of a CSV source."""

    delimiter: str | None
    keep: tuple[str, ...] | None
    types: tuple[tuple[str, Feature], ...]
    header: bool | None
    na: tuple[str, ...]
    decimal: str
    numbers: tuple[str, ...]
    strip: bool
    encoding: str | None

    @property
    def missing_fields(self) -> tuple[str, ...]:
        """The fields that are missing values; with `strip`, also those with a space around them."""
        padded = [f"{before}{word}{after}" for word in self.na for before in ("", " ") for after in ("", " ")]
        return tuple(dict.fromkeys([*self.na, *padded])) if self.strip else self.na


@dataclass(frozen=True, slots=True)
class CsvSurvey:
    """What the inspection of a source found."""

    listing: FileListing
    table: CsvTable
    indexes: tuple[RowIndex, ...]
    rows: int
    header: bool  # whether the first line has the names of the columns
    guesses: tuple[SourceGuess, ...]


class _CsvStart(NamedTuple):
    """The first lines of one file."""

    delimiter: str
    names: tuple[str, ...]
    begin: RowStart  # of the first row after the header
    line: int  # of the header
    header: bool
    guesses: tuple[SourceGuess, ...]


_surveys: SurveyCache[CsvSurvey] = SurveyCache()


def _survey_files(
    listing: FileListing, requested: CsvOptions, gzipped: bool, opened: SizeCheckedFile | None
) -> CsvSurvey:
    sampled = not gzipped and listing.source_bytes > MAX_FULL_SURVEY_BYTES
    first: _CsvStart | None = None
    indexes = []
    guesses: list[SourceGuess] = []
    for file in listing.files:
        path = listing.full(file)
        if not file.size_bytes:
            expected = "rows" if requested.header is False else "a header and rows"
            raise empty_file_error(path, "an empty file", expected=expected)
        encoded = open_text_file(path, file, requested.encoding, gzipped=gzipped, opened=opened)
        with encoded as (stream, encoding):
            start = _read_start(stream, path, file, requested, None if first is None else first.header)
            if first is None:
                first = start
                guesses += start.guesses
                look = _SurveySampler(first, requested, listing.source_bytes if sampled else None)
            if start.names != first.names:
                raise _inconsistent_error(listing, file, start, first)
            stream.rewind()
            head, offset = read_text_head(stream, path)
            guesses += guess_encoding(file, encoding, requested.encoding, has_bom=offset > 0)
            rest = skip_to_row(stream, head, offset, start.begin)
            syntax = RowSyntax(first.delimiter)
            indexes.append(index_file(file, stream, syntax, start.begin, head=rest, look=look, encoding=encoding))
            look.before_bytes += file.size_bytes
    assert first is not None  # a listing has files
    rows = sum(index.rows for index in indexes)
    if not rows:
        path = listing.full(listing.files[0])
        raise empty_file_error(path, "a header without rows", expected="a line per row below the header")
    table = _build_table(first, requested, look.seen, sampled, listing)
    table = replace(table, columns=_widen_lossy_floats(table, look.first))
    if look.head:
        guesses += guess_table_columns(
            table,
            look.head,
            look.turned,
            look.seen.counts(),
            requested.na,
            is_usual_na=requested.na == DEFAULT_NA,
        )
    return CsvSurvey(listing, table, tuple(indexes), rows, first.header, tuple(guesses))


def _widen_lossy_floats(table: CsvTable, block: RowBlock | None) -> tuple[CsvColumn, ...]:
    """The columns, with float64 kept where float32 would merge different values of the first block."""
    floats = ("real", "marked")
    if not any(column.form in floats and not column.declared for column in table.columns):
        return table.columns
    # If the first row cannot be read, or does not fit the table, reading the rows reports it.
    batch = CsvParser(table).parse(block.data, block.rows) if block is not None and not block.first else None
    if batch is None:
        return table.columns
    columns = list(table.columns)
    for i, column in enumerate(columns):
        if column.form in floats and not column.declared:
            values = batch.column(column.name).slice(0, SAMPLE_ROWS).drop_null().to_numpy()
            if is_lossy_in_float32(values):
                columns[i] = column._replace(feature=Tensor("float64", optional=column.feature.optional))
    return tuple(columns)


class _SurveySampler:
    """Passes rows to the survey: all, or those in samples."""

    def __init__(self, start: _CsvStart, requested: CsvOptions, sampled_of: int | None) -> None:
        self.seen = _core.FieldSurvey(start.delimiter, len(start.names), list(requested.missing_fields))
        self.before_bytes = 0
        self.first: RowBlock | None = None
        self.head: list[RowBlock] = []  # the first blocks: the last row of a file is one of its own
        self.turned: dict[int, TextPlace] = {}  # the first text of columns that had only numbers before it
        self._start = start
        self._decimal = requested.decimal
        self._missing = requested.missing_fields
        self._sampled_of = sampled_of
        self._numeric: set[int] = set()

    def __call__(self, block: RowBlock) -> None:
        if self.first is None:
            self.first = block
        is_head = len(self.head) < _MAX_HEAD_BLOCKS and sum(one.rows for one in self.head) < GUESS_ROWS
        if is_head:
            self.head.append(block)
        if self._sampled_of is None or self._is_sample(block):
            self.seen.feed(normalize_decimals(block.data, self._start.delimiter, self._decimal))
            self._find_turned_columns(None if is_head else block)

    def _find_turned_columns(self, block: RowBlock | None) -> None:
        """Find the texts that ended columns of numbers; the first blocks are inspected as a whole."""
        counts = self.seen.counts()
        if block is not None:
            for place in [place for place in self._numeric if counts[place][7]]:
                found = find_text_field(block, self._start.names, self._start.delimiter, place, self._missing)
                if found is not None:
                    self.turned[place] = found
        self._numeric = {place for place, one in enumerate(counts) if any(one[1:6]) and not one[7]}

    def _is_sample(self, block: RowBlock) -> bool:
        assert self._sampled_of is not None
        begin = self.before_bytes + block.offset
        if begin < HEAD_SURVEY_BYTES:
            return True
        # Blocks that contain a multiple of the stride.
        stride = max(1, (self._sampled_of - HEAD_SURVEY_BYTES) * max(len(block.data), 1) // SAMPLE_BYTES)
        return begin // stride != (begin + len(block.data)) // stride


def _read_start(
    stream: ByteStream, path: str, file: SourceFile, requested: CsvOptions, has_header: bool | None
) -> _CsvStart:
    """The first lines of a file; `has_header` is that of the files before it."""
    head, offset = read_text_head(stream, path)
    start = RowStart(offset, 0, 1)
    guesses: tuple[SourceGuess, ...] = ()
    named = _DELIMITER_LINE.match(head)
    if named is not None and requested.delimiter in (None, named[1].decode()):
        delimiter = named[1].decode()
        head, start = head[named.end() :], RowStart(offset + named.end(), 0, 2)
        guesses = (SourceGuess(None, f"the first line, sep={delimiter}, is the delimiter, as Excel writes it"),)
    else:
        delimiter = requested.delimiter or _sniff_delimiter(file.path, head)
    first = next(read_row_blocks(stream, RowSyntax(delimiter), start, head=head), None)
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
    guesses = guesses or _guess_delimiter(delimiter, file.path, requested, len(fields))
    has_header = requested.header if has_header is None else has_header
    if has_header is None:
        has_header, guess = _guess_header(fields, requested)
        guesses += guess
    if not has_header:
        names = _choose_names(requested, len(fields), path)
        return _CsvStart(delimiter, names, start, line, False, guesses)
    if _is_index_header(fields):
        fields = [INDEX_COLUMN.encode(), *fields[1:]]
        guesses += (index_guess(path),)
    names = _parse_header(fields, path, line)
    spaced = [field for field, name in zip(fields, names, strict=True) if field.decode() != name]
    if spaced:
        what = f"spaces around column names were removed, first around {preview(spaced[0].decode())}"
        guesses += (SourceGuess(spaced[0].decode().strip(), what),)
    if first.rows > 1:
        begin = RowStart(first.offset + int(first.starts[1]), 0, int(first.lines[1]))
    else:
        begin = RowStart(first.offset + len(first.data), 0, line + len(first.data.splitlines()))
    return _CsvStart(delimiter, names, begin, line, True, guesses)


_NUMBER_FIELD = re.compile(rb"\s*[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE][+-]?\d+)?\s*")
_YEAR_FIELD = re.compile(rb"\s*(?:1[5-9]|2[01])\d\d\s*")


def _guess_header(fields: list[bytes], requested: CsvOptions) -> tuple[bool, tuple[SourceGuess, ...]]:
    """Whether the first line has names. Numbers are values, unless they count the columns or are years."""
    numbers = [field for field in fields if _NUMBER_FIELD.fullmatch(field)]
    known = {field.strip().decode(errors="replace") for field in fields}
    if not numbers or any(name in known for name in (*(requested.keep or ()), *dict(requested.types))):
        return True, ()
    shown = preview(numbers[0].strip().decode())
    whole = [int(field) for field in numbers if field.strip().isdigit() and len(field) < 10]
    is_counted = len(whole) == len(numbers) > 1 and whole == list(range(whole[0], whole[0] + len(whole)))
    is_years = len(numbers) < len(fields) and all(_YEAR_FIELD.fullmatch(field) for field in numbers)
    if len(set(whole)) == len(numbers) and (is_counted or is_years):
        what = f"the first line is read as column names, though some are numbers, first {shown}"
        return True, (SourceGuess(None, what, "to read it as a row: header=False"),)
    what = f"the first line is read as a row, not as column names: it has numbers, first {shown}"
    return False, (SourceGuess(None, what, "to read it as column names: header=True"),)


def _guess_delimiter(delimiter: str, path: str, requested: CsvOptions, fields: int) -> tuple[SourceGuess, ...]:
    usual = "\t" if path.lower().removesuffix(".gz").endswith((".tsv", ".tab")) else ","
    if requested.delimiter is not None or (delimiter == usual and fields > 1):
        return ()
    if delimiter == usual:
        what = f"every line is one field: the first line has no {', '.join(map(repr, _DELIMITERS))}"
        return (SourceGuess(None, what, 'to separate fields by another character: delimiter=" "'),)
    what = f"fields are separated by {delimiter!r}, the most frequent delimiter of the first line"
    return (SourceGuess(None, what, f'to separate them by commas: delimiter="{usual}"'),)


def _sniff_delimiter(name: str, head: bytes) -> str:
    bare = name.lower().removesuffix(".gz")
    if bare.endswith((".tsv", ".tab")):
        return "\t"
    lines = [line for line in _QUOTED_FIELD.sub(b"", head[:_SNIFFED_BYTES]).splitlines() if line.strip()]
    if len(head) > _SNIFFED_BYTES and len(lines) > 1:
        lines.pop()  # it is cut
    del lines[_SNIFFED_LINES:]

    def weigh(mark: str) -> tuple[int, int]:
        """How many lines have as many fields as the first, and how many that is."""
        counts = [line.count(mark.encode()) for line in lines]
        return (counts.count(counts[0]), counts[0]) if counts and counts[0] else (0, 0)

    best = max(_DELIMITERS, key=weigh)
    return best if weigh(best)[1] else ","


INDEX_COLUMN = "index"
"""The name of a first column without one: `DataFrame.to_csv`, `to_excel` and R write the names of rows there."""


def index_guess(path: str) -> SourceGuess:
    """The guess about a first column without a name."""
    what = f"the first column of {os.path.basename(path)[:60]} has no name, and is read as `{INDEX_COLUMN}`"
    return SourceGuess(INDEX_COLUMN, what, f'to leave it out: drop=["{INDEX_COLUMN}"]')


def _is_index_header(fields: Sequence[bytes]) -> bool:
    """Whether only the first column has no name."""
    names = [field.strip() for field in fields]
    return len(names) > 1 and not names[0] and all(names[1:]) and INDEX_COLUMN.encode() not in names


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
            proposal = propose_encoding(b" ".join(fields))
            raise _header_error(
                path,
                line,
                what=f"name of column {place:,} is not UTF-8",
                expected="names in UTF-8",
                found=f"the byte 0x{field[failure.start]:02x}",
                do=NAME_THE_ENCODING if proposal is None else f'encoding="{proposal[0]}"',
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
    for name in (*(requested.keep or ()), *types, *requested.numbers):
        if name not in known:
            raise missing_column_error(name, start.names, listing.full(listing.files[0]), start.line)
    places = {name: i for i, name in enumerate(start.names)}
    counts = seen.counts()
    columns = []
    for name in requested.keep or start.names:
        feature = types.get(name)
        form = _field_type_of_feature(feature) if feature is not None else _infer_field_type(counts[places[name]])
        if name in requested.numbers and form in ("text", "real"):
            form = "marked"
        missing = _has_missing(counts[places[name]], form)
        chosen = feature if feature is not None else _feature_for_type(form, missing)
        columns.append(CsvColumn(name, places[name], form, chosen, feature is not None))
    return CsvTable(
        start.names,
        tuple(columns),
        start.delimiter,
        requested.missing_fields,
        sampled,
        requested.decimal,
        requested.strip,
    )


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
    return Float32(optional=optional) if form in ("real", "marked") else Text(optional=optional)


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
            "decimal": self.requested.decimal,
            "numbers": list(self.requested.numbers),
            "strip": self.requested.strip,
            "encoding": self.requested.encoding,
        }

    def facts(self, opened: SizeCheckedFile | None = None) -> SourceFacts:
        seen = self.survey(opened)
        schema = Schema({column.name: column.feature for column in seen.table.columns})
        return build_facts(schema, seen.rows, seen.listing, seen.guesses)

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
            with open_span(span, root, table.rules) as blocks:
                yield from read_rows(blocks, table, span.file.path, path)

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The ranges of files of a part."""
        return list_file_items(part)

    def shared_context(self) -> Any:
        """The columns of all files, and how their fields are parsed."""
        return self.survey().table


@dataclass(frozen=True, slots=True)
class GzipCsvSource(_CsvFiles):
    """Rows of compressed CSV or TSV files, which can only be read from their beginning."""

    gzipped = True

    def rows(self) -> Iterator[Chunk]:
        seen = self.survey()
        for index in seen.indexes:
            path = seen.listing.full(index.file)
            with open_text_file(path, index.file, self.requested.encoding, gzipped=True) as (stream, _):
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
    header: bool | None = None,
    na: Sequence[str] = DEFAULT_NA,
    decimal: str = ".",
    numbers: Sequence[str] = (),
    strip: bool = False,
    encoding: str | None = None,
) -> CsvSource | GzipCsvSource:
    """Rows of CSV or TSV files: a file, a folder or a pattern.

    Integers are Int64, other numbers Float32 (Tensor of float64 if float32 would merge different values), true and
    false Int64 of dtype bool, everything else Text as written: dates, digits after a leading zero, numbers beyond
    int64. A column in which a field is one of `na` is optional.

    `delimiter` is a tab for .tsv and .tab, else detected from the first lines. `columns` is a list of the columns to
    keep, or a dict of types for some of them, such as {"zip": rk.Text()}. With `header=False` the first line is a
    row, and `columns` names all columns in order; by default they are column_0, column_1, …. Without `header`, a
    first line with numbers is a row. A first column without a name, as pandas writes its index, is `index`.

    `decimal=","` reads 3,14 as a number. From the fields of the columns in `numbers`, currency and percent signs and
    separators of thousands are removed: "$1,200" is 1200, "45 %" is 45. `strip` removes spaces around texts.
    `encoding` is one of Python's, such as "latin-1"; by default UTF-8, or UTF-16 in a file with its byte order mark.
    """
    place = source_path(path, "csv")
    requested = CsvOptions(
        delimiter=_delimiter(delimiter),
        keep=_names(columns),
        types=_types(columns),
        header=_header(header),
        na=_missing_words(na),
        decimal=one_of("decimal", decimal, (".", ","), do='decimal=","'),
        numbers=name_list("numbers", numbers, do='numbers=["price"]') if numbers != () else (),
        strip=bool(strip),
        encoding=check_encoding(encoding),
    )
    if requested.decimal == requested.delimiter:
        raise error(
            "U605",
            "`decimal` and `delimiter` are the same character",
            expected="different characters",
            found=f"{decimal!r} for both",
            do='delimiter=";"',
        )
    if is_gzip_name(place, EXTENSIONS):
        return GzipCsvSource(place, requested)
    return CsvSource(place, requested)


def _header(given: object) -> bool | None:
    if given is None or isinstance(given, bool):
        return given
    raise invalid("header", given, "True, False, or None to detect it", "header=False")


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
