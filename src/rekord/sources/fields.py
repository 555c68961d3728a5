"""Fields of CSV rows: how a table reads them, and what is wrong with those that do not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from rekord import _core
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.report.formatting import format_count
from rekord.schema import Feature
from rekord.sources.base import Chunk, SourceRow
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

        if not self._marked and not self._texts:
            return batch
        arrays = list(batch.columns)
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
