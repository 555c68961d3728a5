"""Spreadsheets: a sheet of an Excel or OpenDocument file as rows."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.arguments import check_keywords, flag
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.base import SizeCheckedFile, SourceFile, corrupt_file_error, empty_file_error, source_path
from rekord.sources.csv import DEFAULT_NA
from rekord.sources.libraries import import_reader
from rekord.sources.table_files import kept_columns
from rekord.sources.value_tables import (
    Values,
    ValueTable,
    missing_table_error,
    several_tables_error,
    table_name,
    to_plain_value,
)
from rekord.storage.archives import Archive, open_zip_member, read_zip
from rekord.storage.local import read_up_to

EXTENSIONS = (".xlsx", ".xlsm", ".xls", ".ods")

MAX_FILE_BYTES = 1 << 30
MAX_XML_BYTES = 4 << 30
"""The most XML in a file. A sheet is read as a whole, in about as many bytes."""

_READ_BYTES = 1 << 20
_OVERLAP_BYTES = 1 << 12  # the longest tag that is found across two reads
_FREE_CELLS = 16 << 20
_CELLS_PER_VALUE = 64  # a sheet takes memory for every cell of the rectangle around its values
_COLUMN_LIMITS = ((re.compile(rb'\br="[A-Z]{3}\d'), 16_384), (re.compile(rb'\br="[A-Z]{2}\d'), 702))
_ROW_NUMBER = re.compile(rb'<(?:\w+:)?(?:row|c)\s[^<>]*?\br=["\'][A-Z]{0,3}(\d{1,9})["\']')
_XLSX_CELL = re.compile(rb"<(?:\w+:)?c[\s/>]")
_ODS_TAG = re.compile(rb"<(/?)table:(table-row|table-cell|covered-table-cell)\b([^<>]*)>")
_ODS_REPEATED = re.compile(rb'number-(?:rows|columns)-repeated="(\d{1,9})"')


@dataclass(frozen=True, slots=True)
class ExcelSource(ValueTable):
    """Rows of a sheet."""

    sheet: str | None = None
    header: bool = True

    kind = "excel"
    extensions = EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        names = None if self.columns is None else list(self.columns)
        return {"columns": names, "sheet": self.sheet, "header": self.header}

    def read_file(self, path: str, file: SourceFile) -> Iterator[Values]:
        names: list[tuple[int, str]] | None = None
        for number, cells in enumerate(_read_cells(path, file, self.sheet), 1):
            if all(cell is None for cell in cells):
                continue
            if names is None:
                names = _column_names(cells, path) if self.header else [(i, f"column_{i}") for i in range(len(cells))]
                if self.header:
                    continue
            known = {i for i, _ in names}
            for i, cell in enumerate(cells):
                if cell is not None and i not in known:
                    raise _header_error(
                        path, f"column {i + 1:,} has values and no name", f"a value in row {number:,}"
                    )
            yield {name: cells[i] if i < len(cells) else None for i, name in names}


@check_keywords
def excel(
    path: str | os.PathLike[str],
    *,
    sheet: str | None = None,
    columns: Sequence[str] | None = None,
    header: bool | None = None,
) -> ExcelSource:
    """Rows of a sheet of Excel (.xlsx, .xlsm, .xls) or OpenDocument files (.ods): a file, a folder or a pattern.

    `sheet` is the name of the sheet; by default the only one that is not empty. The first row that is not empty has
    the names of the columns, unless `header=False`. Numbers are integers if all of a column are; dates are
    timestamps, durations and times of day seconds. Empty cells, NA, N/A, null, NULL and errors are missing values.
    Formulas have the values that were stored with them.
    """
    has_header = True if header is None else flag("header", header)
    return ExcelSource(source_path(path, "excel"), kept_columns(columns), table_name("sheet", sheet), has_header)


def _read_cells(path: str, file: SourceFile, sheet: str | None) -> Iterator[list[Any]]:
    calamine = import_reader("python_calamine", "tables", "a spreadsheet")
    if file.size_bytes > MAX_FILE_BYTES:
        raise _too_large_error(path, f"a file of {file.size_bytes:,} bytes")
    with SizeCheckedFile(path, file) as stream:
        data = stream.read(file.size_bytes)
    if not data:
        raise empty_file_error(path, "an empty file", expected="a spreadsheet")
    if data.startswith(b"PK"):
        _check_package(read_zip(path))
    with _CalamineErrors(path):
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        del data
        names = list(book.sheet_names)
    if sheet is not None and sheet not in names:
        raise missing_table_error(path, "sheet", "sheet", sheet, names)
    filled = [sheet] if sheet is not None else []
    for name in names if sheet is None else ():
        with _CalamineErrors(path):
            if book.get_sheet_by_name(name).height:
                filled.append(name)
    if len(filled) > 1:
        raise several_tables_error(path, "sheet", "sheet", filled)
    if not filled:
        raise empty_file_error(path, "sheets without cells", expected="a sheet with rows")
    with _CalamineErrors(path):
        yield from ([_to_cell(cell) for cell in row] for row in book.get_sheet_by_name(filled[0]).iter_rows())


def _to_cell(value: Any) -> Any:
    if type(value) is str:
        return None if value in DEFAULT_NA else value
    return to_plain_value(value)


class _CalamineErrors:
    """Turns what calamine raises into one error of ours; a panic of Rust is no Exception."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, failure: BaseException | None, _: object) -> None:
        if failure is None or isinstance(failure, (RekordError, GeneratorExit, KeyboardInterrupt, MemoryError)):
            return
        name = type(failure).__name__
        if name == "PasswordError":
            raise error(
                "X524",
                "spreadsheet is encrypted",
                location=Location(path=self.path),
                expected="a file without a password",
                found="an encrypted file",
                do="save it without a password",
            ) from None
        if isinstance(failure, Exception) or name == "PanicException":
            raise corrupt_file_error(self.path, "spreadsheet", str(failure)[:80] or name) from None


def _column_names(cells: Sequence[Any], path: str) -> list[tuple[int, str]]:
    if not any(isinstance(cell, str) for cell in cells):
        shown = next(cell for cell in cells if cell is not None)
        raise _header_error(path, "first row has no column names", f"values such as {preview(shown)}")
    names: dict[str, int] = {}
    for i, cell in enumerate(cells):
        if cell is None:
            continue
        whole = isinstance(cell, float) and cell.is_integer()
        name = (str(int(cell)) if whole else str(cell)).strip()
        if name in names or not name:
            places = f"columns {names.get(name, i) + 1:,} and {i + 1:,}"
            raise _header_error(path, f"two columns are named `{name[:60]}`", f"{places} of this name", name)
        names[name] = i
    return [(i, name) for name, i in names.items()]


def _header_error(path: str, what: str, found: str, feature: str | None = None) -> RekordError:
    return error(
        "X522",
        what,
        location=Location(path=path, feature=None if feature is None else feature[:60]),
        expected="a first row with a unique name for every column",
        found=found,
        do="fix the first row of the sheet, or read without names: header=False",
    )


# What a file would take in memory.


def _check_package(archive: Archive) -> None:
    """Refuse XML that would expand without bound, before a library reads it."""
    xml = {name: one for name, one in archive.members.items() if name.lower().endswith((".xml", ".rels"))}
    total = sum(one.size_bytes for one in xml.values())
    if total > MAX_XML_BYTES:
        raise _too_large_error(archive.path, f"{total:,} bytes of XML")
    for name in xml:
        is_sheet = name.startswith("xl/worksheets/")
        extent = _OdsExtent() if name == "content.xml" else _XlsxExtent() if is_sheet else None
        with open_zip_member(archive, name) as file:
            tail = b""
            while block := read_up_to(file, _READ_BYTES):
                data = tail + block
                if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
                    raise corrupt_file_error(
                        archive.path, "spreadsheet", f"a document type definition in {name[:60]}"
                    )
                cut = data.rfind(b"<") if len(block) == _READ_BYTES else len(data)
                cut = cut if 0 <= len(data) - cut <= _OVERLAP_BYTES else len(data)
                if extent is not None:
                    extent.add(data[:cut])
                    if extent.cells > _FREE_CELLS + _CELLS_PER_VALUE * extent.values:
                        raise _too_large_error(
                            archive.path, f"{extent.cells:,} cells around {extent.values:,} values"
                        )
                tail = data[cut:]


class _XlsxExtent:
    """The rectangle of cells that a sheet needs; the columns are bounded by the length of their letters."""

    def __init__(self) -> None:
        self.values = 0
        self._rows = 0
        self._columns = 26

    @property
    def cells(self) -> int:
        return self._rows * self._columns

    def add(self, data: bytes) -> None:
        self.values += len(_XLSX_CELL.findall(data))
        self._rows = max([self._rows, *map(int, set(_ROW_NUMBER.findall(data)))])
        for pattern, columns in _COLUMN_LIMITS:
            if columns > self._columns and pattern.search(data):
                self._columns = columns


class _OdsExtent:
    """The cells of a sheet, with the repetitions of rows and cells that have values."""

    def __init__(self) -> None:
        self.values = 0
        self.cells = 0
        self._repeated = 1  # the row
        self._width = 0
        self._used = 0  # up to the last cell with a value

    def add(self, data: bytes) -> None:
        for closing, kind, attributes in _ODS_TAG.findall(data):
            count = _ODS_REPEATED.search(attributes)
            repeated = 1 if count is None else int(count[1])
            if kind == b"table-row":
                if not closing:
                    self._repeated, self._width, self._used = repeated, 0, 0
                else:
                    self.cells += self._used * self._repeated
            elif not closing:
                self._width += repeated
                if b"value" in attributes:
                    self.values += 1
                    self._used = self._width


def _too_large_error(path: str, found: str) -> RekordError:
    return error(
        "X524",
        "spreadsheet is too large to be read into memory",
        location=Location(path=path),
        expected=f"at most {MAX_FILE_BYTES >> 30} GiB, {MAX_XML_BYTES >> 30} GiB of XML, and few empty cells",
        found=found,
        do="save the sheet as CSV, and write from that",
    )
