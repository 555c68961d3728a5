"""Fields of CSV rows: how a table reads them, which of them do not fit, and what texts could be besides texts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

from rekord import _core
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.report.formatting import format_count
from rekord.schema import Feature, Schema
from rekord.sources.base import Chunk, SourceGuess, SourceRow
from rekord.sources.lines import (
    RowBlock,
    RowSyntax,
    UnreadableRow,
    not_utf8_error,
    to_column_chunk,
    unreadable_row_error,
)

FieldType: TypeAlias = Literal["whole", "real", "marked", "truth", "text", "bytes"]
"""How the fields of a column are read; `marked` are numbers with signs and separators that are removed."""


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
    decimal: str = "."
    strip: bool = False

    @property
    def rules(self) -> RowSyntax:
        return RowSyntax(self.delimiter)


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


CURRENCY_SIGNS = "$€£¥₹₽₩"
_GROUP_MARKS = " \t\u00a0\u202f'’_"


def number_noise(decimal: str) -> str:
    """The regular expression of what `numbers=` removes from a field: signs, and separators of thousands."""
    return f"[{CURRENCY_SIGNS}%{_GROUP_MARKS}{'.' if decimal == ',' else ','}]"


def clean_number(text: str, decimal: str) -> str:
    """The number in a field of a column in `numbers=`, as Python writes it."""
    return re.sub(number_noise(decimal), "", text).replace(decimal, ".")


def normalize_decimals(data: bytes, delimiter: str, decimal: str) -> bytes:
    """Rows of a CSV file for a survey of their types: a decimal comma is a point, and a point is no digit."""
    if decimal == ".":
        return data
    if delimiter != decimal:
        return data.translate(_SWAPPED_DECIMALS)
    return re.sub(rb'"[^"]*"', lambda field: field[0].replace(b",", b"."), data.replace(b".", b"~"))


_SWAPPED_DECIMALS = bytes.maketrans(b",.", b".~")


_TRUE_WORDS = ("true", "True", "TRUE")
_FALSE_WORDS = ("false", "False", "FALSE")
# Where a column is declared as bool; in other columns these could be texts or numbers.
_DECLARED_TRUE_WORDS = (*_TRUE_WORDS, "yes", "Yes", "YES", "y", "Y", "t", "T", "on", "On", "ON", "1")
_DECLARED_FALSE_WORDS = (*_FALSE_WORDS, "no", "No", "NO", "n", "N", "f", "F", "off", "Off", "OFF", "0")
_INTEGER_PATTERN = re.compile(r"-?[0-9]+")
_HEX_PATTERN = re.compile(r"-?0[xX][0-9a-fA-F]{1,16}")
_FLOAT_PATTERN = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)
_FIELD_TYPE_NAMES: dict[FieldType, str] = {
    "whole": "an integer",
    "real": "a number",
    "marked": "a number",
    "truth": "true or false",
}
_FIELD_TYPE_FEATURES: dict[FieldType, str] = {
    "whole": "Int64",
    "real": "Float32",
    "marked": "Float32",
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
            "marked": pa.string(),
            "truth": pa.bool_(),  # the words of all such columns are the same for Arrow
            "text": pa.string(),
            "bytes": pa.binary(),
        }
        self.table = table
        self._spelled = [one.name for one in table.columns if one.form == "truth" and one.declared]
        self._convert = csv.ConvertOptions(
            column_types={
                column.name: pa.string() if column.name in self._spelled else types[column.form]
                for column in table.columns
            },
            include_columns=[column.name for column in table.columns],
            null_values=list(table.na),
            strings_can_be_null=True,
            true_values=list(_TRUE_WORDS),
            false_values=list(_FALSE_WORDS),
            decimal_point=table.decimal,
        )
        self._reals = [i for i, column in enumerate(table.columns) if column.form in ("real", "marked")]
        self._marked = [i for i, column in enumerate(table.columns) if column.form == "marked"]
        self._texts = [i for i, column in enumerate(table.columns) if column.form == "text" and table.strip]
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
            if table.num_rows != rows:
                return None
            return self._nan_to_null(self._convert_texts(table.combine_chunks().to_batches()[0]))
        except (pa.ArrowException, ValueError, KeyError):
            return None

    def _convert_texts(self, batch: Any) -> Any:
        """The batch with spaces removed from texts, and the numbers of `marked` columns."""
        import pyarrow as pa
        from pyarrow import compute

        if not self._marked and not self._texts and not self._spelled:
            return batch
        arrays = list(batch.columns)
        for name in self._spelled:
            place = batch.schema.get_field_index(name)
            arrays[place] = _parse_spelled_booleans(arrays[place])
        for place in self._texts:
            bare = compute.utf8_trim(arrays[place], characters=" \t")
            missing = compute.is_in(bare, value_set=pa.array(self.table.na, pa.string()))
            arrays[place] = compute.if_else(missing, pa.scalar(None, pa.string()), bare)
        for place in self._marked:
            plain = compute.replace_substring_regex(
                arrays[place], pattern=number_noise(self.table.decimal), replacement=""
            )
            arrays[place] = compute.replace_substring(plain, self.table.decimal, ".").cast(pa.float64())
        return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)

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


def _parse_spelled_booleans(texts: Any) -> Any:
    """The bools of a declared column; raises ArrowInvalid for another word."""
    import pyarrow as pa
    from pyarrow import compute

    is_true = compute.is_in(texts, value_set=pa.array(_DECLARED_TRUE_WORDS))
    known = compute.or_(is_true, compute.is_in(texts, value_set=pa.array(_DECLARED_FALSE_WORDS)))
    if compute.any(compute.and_(compute.invert(known), texts.is_valid())).as_py():
        raise pa.ArrowInvalid("a word that is not a bool")
    return compute.if_else(texts.is_valid(), is_true, pa.scalar(None, pa.bool_()))


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
        if text not in table.na and not _is_valid_field(text, column, table.decimal):
            return _field_error(text, column, where)
    return None


def _is_valid_field(text: str, column: CsvColumn, decimal: str = ".") -> bool:
    bare = text.strip(" \t")
    if column.form == "marked":
        bare = clean_number(bare, decimal)
    elif column.form == "real" and decimal != ".":
        bare = bare.replace(".", "?").replace(decimal, ".")
    match column.form:
        case "whole":
            if column.declared and _HEX_PATTERN.fullmatch(bare):
                return True
            if not _INTEGER_PATTERN.fullmatch(bare) or len(bare) > 4000:
                return False
            digits = bare.lstrip("-")
            padded = len(digits) > 1 and digits.startswith("0")
            return (column.declared or not padded) and -(2**63) <= int(bare) < 2**63
        case "real" | "marked":
            return bool(_FLOAT_PATTERN.fullmatch(bare)) and (math.isfinite(float(bare)) or "n" in bare.lower())
        case "truth":
            return text in (
                (*_DECLARED_TRUE_WORDS, *_DECLARED_FALSE_WORDS) if column.declared else (*_TRUE_WORDS, *_FALSE_WORDS)
            )
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


SAMPLE_ROWS = 1000
"""The rows of a column that are inspected for notations."""

_MAX_SAMPLED_FIELDS = 1_000_000
_MAX_SPLIT_ROWS = 20_000

_MAX_WORDS = 5  # that can stand for missing values in a column of numbers
_MIN_NUMBER_SHARE = 0.5

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_PADDED = re.compile(r"-?0\d+", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?", re.ASCII)
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?(?:Z|[+-]\d{2}:?\d{2})?", re.ASCII)
_OTHER_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1\d{2,4}|\d{4}([./])\d{1,2}\2\d{1,2}", re.ASCII)
_NUMBER_FIELD = r"^[ \t]*[+-]?(?:\d+\.?\d*|\.\d+|[nN][aA][nN]|[iI][nN][fF])(?:[eE][+-]?\d+)?[ \t]*$"  # for Arrow
_POINT_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})+", re.ASCII)
_HAS_DECIMAL_COMMA = "has a decimal comma"
_BOOLEANS = ({"yes", "no"}, {"y", "n"}, {"t", "f"}, {"on", "off"}, {"true", "false"})


class TextPlace(NamedTuple):
    """A field, and where it is."""

    text: str
    row: int
    line: int | None

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line:,})"
        return f"{preview(self.text)} in row {self.row:,}{line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnTexts:
    """The first values of a column of texts, without missing ones, and where each is."""

    name: str
    texts: Sequence[str]
    locate: Callable[[int], TextPlace]

    def find(self, matches: Callable[[str], object]) -> TextPlace | None:
        """The first text that matches."""
        found = next((i for i, text in enumerate(self.texts) if matches(text)), None)
        return None if found is None else self.locate(found)


def guess_text_column(
    column: ColumnTexts,
    *,
    na: Sequence[str] | None,
    delimiter: str | None,
    decimal: str = ".",
    stripped: bool = False,
) -> Iterator[SourceGuess]:
    """The guesses about a column that is stored as text.

    `na` are the words for missing values, None if the source has none; `delimiter` is that of a CSV file, and
    `decimal` the mark of its numbers.
    """
    guess = _guess_type(column, na, delimiter, decimal)
    if guess is not None:
        yield guess
    if not stripped and delimiter is not None:
        spaced = column.find(lambda text: text != text.strip(" \t"))
        if spaced is not None:
            what = f"`{column.name[:60]}` keeps leading or trailing spaces, first {spaced}"
            yield SourceGuess(column.name, what, "to remove them: strip=True")


def _guess_type(
    column: ColumnTexts, na: Sequence[str] | None, delimiter: str | None, decimal: str
) -> SourceGuess | None:
    bare = [text.strip(" \t") for text in column.texts]
    if not bare:
        return None
    name, is_csv = column.name, delimiter is not None
    numbers = sum(1 for text in bare if _NUMBER.fullmatch(text))
    padded = column.find(lambda text: _PADDED.fullmatch(text.strip(" \t")))
    if numbers == len(bare):
        if padded is not None and is_csv:
            return _text_guess(name, f"{padded} has a leading zero", f"to read integers: {_declare(name, 'Int64()')}")
        if not is_csv:
            return _text_guess(name, f"its numbers are strings, first {column.locate(0)}", None)
        pointed = None if decimal == "." else column.find(lambda text: "." in text)
        if pointed is None:
            return None
        also = decimal_option(decimal)
        return _text_guess(
            name,
            f"{pointed} has a point, not a decimal comma",
            f"if points separate thousands: {_numbers(name)} {also}",
        )
    marked = _guess_number_notation(column, bare, delimiter)
    if marked is not None:
        return marked
    if numbers >= _MIN_NUMBER_SHARE * len(bare):
        return _guess_missing_words(column, numbers, na)
    words = {text.lower() for text in islice(bare, SAMPLE_ROWS)}
    if any(words <= pair for pair in _BOOLEANS):
        shown = " and ".join(repr(word) for word in sorted(set(bare))[:2])
        return _text_guess(name, f"its values are {shown}", f"to store class ids: {_declare(name, 'Label()')}")
    if all(_ISO_DATE.fullmatch(text) for text in bare):
        feature = 'Timestamp(tz="UTC")' if re.search(r"Z|:.*[+-]", bare[0]) else "Timestamp()"
        do = f"to store times: {_declare(name, feature)}" if is_csv else None
        return _text_guess(name, f"its dates are kept as written, first {column.locate(0)}", do)
    if all(_OTHER_DATE.fullmatch(text) for text in bare):
        return _text_guess(name, f"its dates are kept as written, first {column.locate(0)}", None)
    return None


def _guess_number_notation(column: ColumnTexts, bare: Sequence[str], delimiter: str | None) -> SourceGuess | None:
    """Numbers with decimal commas, separators of thousands, currency or percent signs."""
    if delimiter is None:
        return None
    others = [text for text in bare if not _NUMBER.fullmatch(text)]
    name, numbers = column.name, f"to read numbers: {_numbers(column.name)}"
    if all(_DECIMAL_COMMA.fullmatch(text) or _THOUSANDS.fullmatch(text) for text in others):
        place = column.find(lambda text: "," in text)
        is_decimal = any(not _THOUSANDS.fullmatch(text) for text in others)
        if is_decimal:
            return _text_guess(name, f"{place} {_HAS_DECIMAL_COMMA}", 'to read numbers: decimal=","')
        if any(text.count(",") > 1 or "." in text for text in others):
            return _text_guess(name, f"{place} has separators of thousands", numbers)
        do = f'if it separates thousands: {_numbers(name)}; if it is a decimal comma: decimal=","'
        return _text_guess(name, f"{place} has a comma", do)
    for decimal in (".", ","):
        if all(_NUMBER.fullmatch(clean_number(text, decimal)) for text in others) and not any(
            _ISO_DATE.fullmatch(text) or _OTHER_DATE.fullmatch(text) for text in others
        ):
            signs = {sign for text in others for sign in text if sign in CURRENCY_SIGNS + "%"}
            kind = "a percent sign" if signs == {"%"} else "a currency sign" if signs else "separators of thousands"
            place = column.find(lambda text: not _NUMBER.fullmatch(text.strip(" \t")))
            also = "" if decimal == "." else f" {decimal_option(decimal)}"
            return _text_guess(name, f"{place} has {kind}", numbers + also)
    return None


def _guess_missing_words(column: ColumnTexts, numbers: int, na: Sequence[str] | None) -> SourceGuess:
    words = list(dict.fromkeys(text for text in column.texts if not _NUMBER.fullmatch(text.strip(" \t"))))
    place = column.find(lambda text: text == words[0])
    others = len(column.texts) - numbers - 1
    more = f", and of {format_count(others, 'more value')}" if others else ""
    why = (
        f"of {place}{more}; {format_count(numbers, 'other value')} {'is a number' if numbers == 1 else 'are numbers'}"
    )
    return missing_word_guess(column.name, why, words, na)


def missing_word_guess(name: str, why: str, words: Sequence[str], na: Sequence[str] | None) -> SourceGuess:
    """A column that a few words make text."""
    do = None
    if na is not None and len(words) <= _MAX_WORDS:
        condition = "it is a missing value" if len(words) == 1 else "these are missing values"
        do = f"if {condition}: {na_option([*na, *words])}"
    return SourceGuess(name, f"`{name[:60]}` is text because {why}", do)


def guess_table_columns(
    table: CsvTable,
    blocks: Sequence[RowBlock],
    turned: Mapping[int, TextPlace],
    counts: Sequence[tuple[int, ...]],
    na: Sequence[str],
    *,
    is_usual_na: bool,
) -> Iterator[SourceGuess]:
    """The guesses about the columns of a CSV file, from its first rows.

    `turned` has the first text of columns that had only numbers in the first `blocks`, `counts` how many fields of
    each column have which type, `na` the words for missing values; with `is_usual_na`, nobody asked for them.
    """
    left = max(1, min(SAMPLE_ROWS, _MAX_SAMPLED_FIELDS // len(table.names)))
    fields: list[list[TextPlace]] = [[] for _ in table.columns]
    for block in blocks:
        rows = min(block.rows, left)
        left -= rows
        read = _read_fields(block, table.names, table.delimiter, [column.place for column in table.columns], rows)
        for known, more in zip(fields, read, strict=True):
            known += more
    words: dict[str, list[tuple[str, TextPlace]]] = {}
    has_commas = False
    for column, texts in zip(table.columns, fields, strict=True):
        present = [place for place in texts if place.text not in table.na]
        for word in dict.fromkeys(place.text for place in texts if place.text in table.na and place.text.strip()):
            first = next(place for place in texts if place.text == word)
            words.setdefault(word.strip(), []).append((column.name, first))
        if column.form != "text" or column.declared:
            continue
        found = guess_text_column(
            ColumnTexts(name=column.name, texts=[place.text for place in present], locate=present.__getitem__),
            na=na,
            delimiter=table.delimiter,
            decimal=table.decimal,
            stripped=table.strip,
        )
        guesses = list(found)
        has_commas = has_commas or any(_HAS_DECIMAL_COMMA in guess.what for guess in guesses)
        if not any(guess.what.startswith(f"`{column.name[:60]}` is text") for guess in guesses):
            numbers = sum(counts[column.place][1:6])
            place = turned.get(column.place)
            for block in blocks if numbers else ():
                place = place or find_text_field(block, table.names, table.delimiter, column.place, table.na)
            if place is not None:
                why = f"of {place}, after {format_count(numbers, 'number')}"
                yield missing_word_guess(column.name, why, [place.text], na)
        yield from guesses
    for column, texts in zip(table.columns, fields, strict=True) if has_commas else ():
        pointed = [place for place in texts if "." in place.text] if column.form == "real" else []
        if pointed and all(_POINT_THOUSANDS.fullmatch(place.text.strip(" \t")) for place in pointed):
            what = (
                f"`{column.name[:60]}` is read with a decimal point, first {pointed[0]}; others have a decimal comma"
            )
            do = f"if points separate thousands: {_numbers(column.name)} {decimal_option(',')}"
            yield SourceGuess(column.name, what, do)
    for word, places in words.items() if is_usual_na else ():
        name, first = places[0]
        also = f", also in {format_count(len(places) - 1, 'other column')}" if len(places) > 1 else ""
        do = f"to keep it: {na_option(one for one in na if one != word)}"
        yield SourceGuess(name, f"{first} of `{name[:60]}` is read as a missing value{also}", do)


def find_text_field(
    block: RowBlock, names: Sequence[str], delimiter: str, column: int, na: Sequence[str]
) -> TextPlace | None:
    """The first field of a column that is neither a number nor missing."""
    from pyarrow import compute

    texts = _read_column_texts(block, names, delimiter, [column], block.rows)
    if texts is not None:
        values = texts.column(0)
        numbers = compute.match_substring_regex(values, pattern=_NUMBER_FIELD).to_pylist()
        missing = frozenset(na)
        for i, is_number in enumerate(numbers):
            if not is_number and (text := values[i].as_py()) not in missing:
                return TextPlace(text, block.first + i, int(block.lines[i]))
        return None
    rows = _read_fields(block, names, delimiter, [column], min(block.rows, _MAX_SPLIT_ROWS))[0]
    return next((one for one in rows if one.text not in na and not re.match(_NUMBER_FIELD, one.text)), None)


def _read_fields(
    block: RowBlock, names: Sequence[str], delimiter: str, columns: Sequence[int], rows: int
) -> list[list[TextPlace]]:
    """The fields of some columns in the first rows of a block, as they are written."""
    lines = block.lines.tolist()
    texts = _read_column_texts(block, names, delimiter, columns, rows)
    if texts is not None:
        return [
            [TextPlace(text, block.first + i, lines[i]) for i, text in enumerate(column.to_pylist())]
            for column in texts.columns
        ]
    out: list[list[TextPlace]] = [[] for _ in columns]
    for i in range(rows):  # a row has another number of fields, or is not UTF-8
        fields = split_fields(block.row(i), delimiter)
        if len(fields) == len(names):
            for column, place in zip(out, columns, strict=True):
                column.append(TextPlace(fields[place].decode(errors="replace"), block.first + i, lines[i]))
    return out


def _read_column_texts(
    block: RowBlock, names: Sequence[str], delimiter: str, columns: Sequence[int], rows: int
) -> Any:
    """A table of texts; None if the rows cannot be parsed together."""
    import pyarrow as pa
    from pyarrow import csv

    data = block.data[: int(block.starts[rows])]
    kept = [names[place] for place in columns]
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(data) + 1),
            parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=b'"' in data),
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(kept, pa.string()), include_columns=kept, strings_can_be_null=False
            ),
        ).combine_chunks()
    except (pa.ArrowException, ValueError, KeyError):
        return None
    return table if table.num_rows == rows else None


def guess_json_columns(rows: Iterable[Mapping[str, Any]], schema: Schema) -> Iterator[SourceGuess]:
    """The guesses about the columns of text of JSON rows."""
    taken = list(islice(rows, SAMPLE_ROWS))
    for name, feature in schema.features.items():
        if feature.value_kind != "str" or feature.shape != ():
            continue
        places = [i for i, row in enumerate(taken) if isinstance(row.get(name), str)]
        texts = [taken[i][name] for i in places]
        column = ColumnTexts(
            name=name,
            texts=texts,
            locate=lambda i, places=places, texts=texts: TextPlace(texts[i], places[i], None),  # type: ignore[misc]
        )
        yield from guess_text_column(column, na=None, delimiter=None)


def na_option(words: Iterable[str]) -> str:
    """`na=` with these words."""
    return f"na=[{', '.join(_quote(word) for word in dict.fromkeys(words))}]"


def decimal_option(decimal: str) -> str:
    """`decimal=` with this mark."""
    return f'decimal="{decimal}"'


def _text_guess(name: str, why: str, do: str | None) -> SourceGuess:
    return SourceGuess(name, f"`{name[:60]}` is text: {why}", do)


def _declare(name: str, feature: str) -> str:
    return f"columns={{{_quote(name)}: rk.{feature}}}"


def _numbers(name: str) -> str:
    return f"numbers=[{_quote(name)}]"


def _quote(text: str) -> str:
    return json.dumps(text[:60], ensure_ascii=False)
