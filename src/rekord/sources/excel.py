"""Spreadsheets: a sheet of an Excel or OpenDocument file as rows."""

from __future__ import annotations

import io
import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from rekord.arguments import check_keywords, flag
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.report.formatting import format_count
from rekord.sources.base import (
    SizeCheckedFile,
    SourceFile,
    SourceGuess,
    corrupt_file_error,
    empty_file_error,
    source_path,
)
from rekord.sources.csv import DEFAULT_NA, INDEX_COLUMN, index_guess
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
_XLSX_FORMULA = re.compile(
    rb"<(?:\w+:)?c\b([^<>]*)><(?:\w+:)?f\b(?:[^<>]*/>|[^<>]*>[^<]*</(?:\w+:)?f>)"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>([^<]*)</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_COMPUTES_ON_LOAD = re.compile(rb'fullCalcOnLoad="(?:1|true)"')
_WORKBOOK, _RELATIONS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
_MAX_PART_BYTES = 16 << 20
_OLE_MAGIC = b"\xd0\xcf\x11\xe0"
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

    def read_file(self, path: str, file: SourceFile, notes: list[SourceGuess]) -> Iterator[Values]:
        names: list[tuple[int, str]] | None = None
        has_rows = False
        for number, cells in enumerate(_read_cells(path, file, self.sheet, notes), 1):
            if all(cell is None for cell in cells):
                continue
            if names is None:
                names = _column_names(cells, path) if self.header else [(i, f"column_{i}") for i in range(len(cells))]
                if self.header:
                    continue
            if not has_rows and self.header and _has_index(cells, names):
                names = [(0, INDEX_COLUMN), *names]
                notes.append(index_guess(path))
            has_rows = True
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
    Formulas have the results that were stored with them, and are refused without.
    """
    has_header = True if header is None else flag("header", header)
    return ExcelSource(source_path(path, "excel"), kept_columns(columns), table_name("sheet", sheet), has_header)


def _read_cells(path: str, file: SourceFile, sheet: str | None, notes: list[SourceGuess]) -> Iterator[list[Any]]:
    calamine = import_reader("python_calamine", "tables", "a spreadsheet")
    if file.size_bytes > MAX_FILE_BYTES:
        raise _too_large_error(path, f"a file of {file.size_bytes:,} bytes")
    with SizeCheckedFile(path, file) as stream:
        data = stream.read(file.size_bytes)
    if not data:
        raise empty_file_error(path, "an empty file", expected="a spreadsheet")
    uncomputed: dict[str, str] = {}
    if data.startswith(b"PK"):
        archive = read_zip(path)
        uncomputed = _check_package(archive)
    elif not data.startswith(_OLE_MAGIC):
        raise _other_file_error(path, data)
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
    found = uncomputed.get(_find_part(archive, filled[0])) if uncomputed else None
    if found is not None:
        raise _formula_error(path, filled[0], found)
    with _CalamineErrors(path):
        opened = book.get_sheet_by_name(filled[0])
        merged = [area for area in opened.merged_cell_ranges or () if area[0][0] != area[1][0]]
        if merged:
            what = f"sheet {filled[0][:40]} has {format_count(len(merged), 'group')} of merged cells across rows"
            notes.append(SourceGuess(None, f"{what}: only the first cell of each has its value"))
        yield from ([_to_cell(cell) for cell in row] for row in opened.iter_rows())


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


def _has_index(cells: Sequence[Any], names: Sequence[tuple[int, str]]) -> bool:
    """Whether the first column is the only one without a name, as pandas writes its index."""
    return cells[0] is not None and names[0][0] == 1 and INDEX_COLUMN not in {name for _, name in names}


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


def _check_package(archive: Archive) -> dict[str, str]:
    """Refuse XML that would expand without bound, before a library reads it.

    Returns the sheets with formulas that no program has computed.
    """
    xml = {name: one for name, one in archive.members.items() if name.lower().endswith((".xml", ".rels"))}
    total = sum(one.size_bytes for one in xml.values())
    if total > MAX_XML_BYTES:
        raise _too_large_error(archive.path, f"{total:,} bytes of XML")
    sheets: dict[str, _XlsxExtent] = {}
    computes_on_load = False
    for name in xml:
        is_sheet = name.startswith("xl/worksheets/")
        extent = _OdsExtent() if name == "content.xml" else _XlsxExtent() if is_sheet else None
        if isinstance(extent, _XlsxExtent):
            sheets[name] = extent
        with open_zip_member(archive, name) as file:
            tail = b""
            while block := read_up_to(file, _READ_BYTES):
                data = tail + block
                if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
                    raise corrupt_file_error(
                        archive.path, "spreadsheet", f"a document type definition in {name[:60]}"
                    )
                computes_on_load |= name == _WORKBOOK and _COMPUTES_ON_LOAD.search(data) is not None
                cut = data.rfind(b"<") if len(block) == _READ_BYTES else len(data)
                cut = cut if 0 <= len(data) - cut <= _OVERLAP_BYTES else len(data)
                if extent is not None:
                    extent.add(data[:cut])
                    if extent.cells > _FREE_CELLS + _CELLS_PER_VALUE * extent.values:
                        raise _too_large_error(
                            archive.path, f"{extent.cells:,} cells around {extent.values:,} values"
                        )
                tail = data[cut:]
    found = {name: one.describe_uncomputed(computes_on_load) for name, one in sheets.items()}
    return {name: text for name, text in found.items() if text is not None}


def _find_part(archive: Archive, sheet: str) -> str:
    """The part of a workbook that has a sheet. Its parts have no document types."""
    relation = None
    for one in _parse_part(archive, _WORKBOOK).iter():
        if one.tag.endswith("}sheet") and one.get("name") == sheet:
            relation = next((value for key, value in one.attrib.items() if key.endswith("}id")), None)
    for one in _parse_part(archive, _RELATIONS).iter():
        if one.get("Id") == relation:
            target = one.get("Target", "")
            return target.lstrip("/") if target.startswith("/") else posixpath.normpath(f"xl/{target}")
    return ""


def _parse_part(archive: Archive, name: str) -> ElementTree.Element:
    member = archive.members.get(name)
    if member is None or member.size_bytes > _MAX_PART_BYTES:
        return ElementTree.Element("none")
    with open_zip_member(archive, name) as file:
        data = read_up_to(file, member.size_bytes)
    if b"\0" in data:  # not UTF-8: a document type would not have been seen
        raise corrupt_file_error(archive.path, "spreadsheet", f"{name} is not in UTF-8")
    try:
        return ElementTree.fromstring(data)
    except ElementTree.ParseError as failure:
        raise corrupt_file_error(archive.path, "spreadsheet", f"{name}: {failure}"[:80]) from None


def _formula_error(path: str, sheet: str, found: str) -> RekordError:
    return error(
        "X525",
        f"sheet {preview(sheet)} has formulas that were not computed",
        location=Location(path=path),
        expected="the result of each formula, as spreadsheet programs store it",
        found=found,
        likely="the file was written by a library, which does not compute formulas",
        do="open it in a spreadsheet program, and save it",
    )


def _other_file_error(path: str, data: bytes) -> RekordError:
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<html", b"<!doctype", b"<table", b"<?xml")):
        found = "HTML or XML that is named like a spreadsheet, as some websites export it"
    elif b"\0" not in data[:1024] and re.search(rb"[,;\t].*[\r\n]", data[:1024]):
        found = "text that is named like a spreadsheet"
        copy = shlex.quote(os.path.splitext(path)[0] + ".csv")
        return _not_spreadsheet_error(path, found, f"cp {shlex.quote(path)} {copy}, and write from that")
    else:
        return corrupt_file_error(path, "spreadsheet", "no header of a spreadsheet")
    return _not_spreadsheet_error(
        path, found, "open it in a spreadsheet program, save it as .xlsx, and write from that"
    )


def _not_spreadsheet_error(path: str, found: str, do: str) -> RekordError:
    return error(
        "X524",
        "file is not a spreadsheet",
        location=Location(path=path),
        expected="an .xlsx, .xls or .ods file",
        found=found,
        do=do,
    )


class _XlsxExtent:
    """The rectangle of cells that a sheet needs; the columns are bounded by the length of their letters."""

    def __init__(self) -> None:
        self.values = 0
        self._rows = 0
        self._columns = 26
        self._formulas = 0
        self._empty = 0  # formulas without a result
        self._zeros = 0

    @property
    def cells(self) -> int:
        return self._rows * self._columns

    def add(self, data: bytes) -> None:
        self.values += len(_XLSX_CELL.findall(data))
        self._rows = max([self._rows, *map(int, set(_ROW_NUMBER.findall(data)))])
        for pattern, columns in _COLUMN_LIMITS:
            if columns > self._columns and pattern.search(data):
                self._columns = columns
        for attributes, result in _XLSX_FORMULA.findall(data):
            self._formulas += 1
            # An empty text is a result.
            self._empty += not result and b't="str"' not in attributes
            self._zeros += result == b"0"

    def describe_uncomputed(self, computes_on_load: bool) -> str | None:
        """What formulas of the sheet lack; libraries store nothing, or 0 for all, to be computed on load."""
        if self._empty:
            return f"{format_count(self._empty, 'formula')} without a result"
        if computes_on_load and self._zeros == self._formulas > 0:
            return f"{format_count(self._zeros, 'formula')}, all with the result 0, to be computed on load"
        return None


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
