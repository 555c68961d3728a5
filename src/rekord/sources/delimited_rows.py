"""Rows of CSV files as columns of their types; a row that does not fit is told of by its line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rekord import _core
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.base import Chunk, Columns, Row
from rekord.sources.delimited_survey import Column, Form, Table, fields_of
from rekord.sources.lines import LostRow, RowBlock, lost_row_error, not_utf8

_TRUE = ("true", "True", "TRUE")
_FALSE = ("false", "False", "FALSE")
_WHOLE = re.compile(r"-?[0-9]+")
_HEX = re.compile(r"-?0[xX][0-9a-fA-F]{1,16}")
_REAL = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)
_WORDS: dict[Form, str] = {"whole": "a whole number", "real": "a number", "truth": "true or false"}
_FEATURES: dict[Form, str] = {"whole": "Int64", "real": "Float32", "truth": 'Int64(dtype="bool")'}


def read_rows(
    blocks: Iterable[RowBlock | LostRow], table: Table, path: str, full_path: str
) -> Iterator[Chunk]:
    """Rows in order. What Arrow takes goes through it whole; only where it does not are rows looked at."""
    parser = Parser(table)
    for block in blocks:
        if isinstance(block, LostRow):
            yield Row(path, block.row, lost_row_error(block, full_path), block.line)
            continue
        batch = parser.parse(block.data, block.rows) if parser.trusts(block.data) else None
        if batch is not None and not parser.has_infinite(batch):
            yield _columns(batch, block, 0, block.rows, path)
        else:
            yield from _row_by_row(block, parser, path, full_path)


def _columns(batch: Any, block: RowBlock, begin: int, end: int, path: str) -> Columns:
    lines = block.lines[begin:end]
    even = int(lines[-1]) - int(lines[0]) == end - begin - 1
    return Columns(
        path,
        block.first + begin,
        batch,
        end - begin,
        first_line=int(lines[0]) if even else None,
        lines=None if even else lines.tolist(),
    )


class Parser:
    def __init__(self, table: Table) -> None:
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
            true_values=list(_TRUE),
            false_values=list(_FALSE),
        )
        self._reals = [i for i, column in enumerate(table.columns) if column.form == "real"]
        self._wholes = [c.place for c in table.columns if c.form == "whole" and not c.declared]

    def trusts(self, data: bytes) -> bool:
        """Whether Arrow would not change what is written.

        It reads 007 as 7. Where all rows were looked at, a column of such numbers is one of texts.
        """
        if not self.table.sampled or not self._wholes:
            return True
        seen = _core.FieldSurvey(self.table.delimiter, len(self.table.names), list(self.table.na))
        seen.feed(data)
        counts = seen.counts()
        return not any(counts[place][2] or counts[place][7] for place in self._wholes)

    def parse(self, data: bytes, rows: int) -> Any:
        """A batch of `rows` rows, or None where they do not fit."""
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
                parse_options=csv.ParseOptions(
                    delimiter=self.table.delimiter, newlines_in_values=b'"' in data
                ),
                convert_options=self._convert,
            )
        except (pa.ArrowException, ValueError, KeyError):
            return None
        if table.num_rows != rows:
            return None
        return self._without_nan(table.combine_chunks().to_batches()[0])

    def has_infinite(self, batch: Any) -> bool:
        """Whether a number is infinite; Arrow reads 1e999 as that, too."""
        from pyarrow import compute

        return any(compute.any(compute.is_inf(batch.column(place))).as_py() for place in self._reals)

    def _without_nan(self, batch: Any) -> Any:
        """NaN in a file is how a hole is written."""
        import pyarrow as pa
        from pyarrow import compute

        arrays = list(batch.columns)
        for place in self._reals:
            nan = compute.is_nan(arrays[place])
            if compute.any(nan).as_py():
                arrays[place] = compute.if_else(nan, pa.scalar(None, pa.float64()), arrays[place])
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _row_by_row(block: RowBlock, parser: Parser, path: str, full_path: str) -> Iterator[Chunk]:
    problems: dict[int, RekordError] = {}
    for i in range(block.rows):
        where = Location(path=full_path, row=block.first + i, line=int(block.lines[i]))
        problem = _problem(block.row(i), parser.table, where)
        if problem is not None:
            problems[i] = problem
    while True:
        good = [i for i in range(block.rows) if i not in problems]
        batch = parser.parse(b"".join(_ended(block.row(i)) for i in good), len(good))
        if batch is not None or not good:
            break
        # Arrow sees something that we do not; the row in which it does is found by halving.
        i = _refused(block, good, parser)
        where = Location(path=full_path, row=block.first + i, line=int(block.lines[i]))
        problems[i] = error(
            "E356",
            "a row cannot be read as its columns' types",
            location=where,
            expected="fields of the types of their columns",
            found=shown(block.row(i)[:60]),
            do='read its columns as text: columns={"name": rk.Text()}',
        )
    given = 0  # good rows so far
    i = 0
    while i < block.rows:
        if i in problems:
            yield Row(path, block.first + i, problems[i], int(block.lines[i]))
            i += 1
            continue
        end = i
        while end < block.rows and end not in problems:
            end += 1
        yield _columns(batch.slice(given, end - i), block, i, end, path)
        given += end - i
        i = end


def _ended(row: bytes) -> bytes:
    return row if row.endswith((b"\n", b"\r")) else row + b"\n"


def _refused(block: RowBlock, rows: list[int], parser: Parser) -> int:
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        fits = parser.parse(b"".join(_ended(block.row(i)) for i in half), len(half)) is not None
        rows = rows[len(half) :] if fits else half
    return rows[0]


def _problem(row: bytes, table: Table, where: Location) -> RekordError | None:
    fields = fields_of(row, table.delimiter)
    if len(fields) != len(table.names):
        return error(
            "E354",
            f"a row has {len(fields):,} fields, and the table {len(table.names):,} columns",
            location=where,
            expected=f"{len(table.names):,} fields",
            found=f"{len(fields):,} fields: {shown(row[:60].rstrip().decode(errors='replace'))}",
            do="mend this line: quote a field that holds the delimiter",
        )
    for column in table.columns:
        field = fields[column.place]
        if column.form == "bytes":
            continue
        try:
            text = field.decode()
        except UnicodeDecodeError as failure:
            return not_utf8(field, failure.start, where, column.name)
        if text not in table.na and not _fits(text, column):
            return _misfit(text, column, where)
    return None


def _fits(text: str, column: Column) -> bool:
    bare = text.strip(" \t")
    match column.form:
        case "whole":
            if column.declared and _HEX.fullmatch(bare):
                return True
            if not _WHOLE.fullmatch(bare) or len(bare) > 4000:
                return False
            digits = bare.lstrip("-")
            padded = len(digits) > 1 and digits.startswith("0")
            return (column.declared or not padded) and -(2**63) <= int(bare) < 2**63
        case "real":
            return bool(_REAL.fullmatch(bare)) and (math.isfinite(float(bare)) or "n" in bare.lower())
        case "truth":
            return text in _TRUE or text in _FALSE
    return True


def _misfit(text: str, column: Column, where: Location) -> RekordError:
    return error(
        "E356",
        f"`{column.name[:60]}` holds {shown(text)}, which is not {_WORDS[column.form]}",
        location=where.within(feature=column.name[:60]),
        expected=f"{_WORDS[column.form]}: the column is {_FEATURES[column.form]}",
        found=shown(text),
        do=f"mend the field, or read the column as text: columns={{{column.name[:60]!r}: rk.Text()}}",
    )
