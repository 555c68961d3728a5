"""Spreadsheets as rows: values as their own libraries read them, and files that must not be believed."""

from __future__ import annotations

import datetime
import re
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.detect import detect_source, identify_source

ODS_HEAD = (
    '<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
    ' xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"'
    ' xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>'
)
ODS_TAIL = "</office:spreadsheet></office:body></office:document-content>"


def save(path: Path, **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def rows_of(source: Any) -> list[Any]:
    return [row.values for row in source.rows()]


def ods(path: Path, *tables: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet", zipfile.ZIP_STORED)
        archive.writestr("content.xml", ODS_HEAD + "".join(tables) + ODS_TAIL)
        archive.writestr(
            "META-INF/manifest.xml",
            '<manifest:manifest xmlns:manifest="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
        )
    return path


def ods_cell(value: Any) -> str:
    if isinstance(value, str):
        return f'<table:table-cell office:value-type="string"><text:p>{value}</text:p></table:table-cell>'
    if isinstance(value, datetime.date):
        return f'<table:table-cell office:value-type="date" office:date-value="{value.isoformat()}"/>'
    return f'<table:table-cell office:value-type="float" office:value="{value}"/>'


def ods_table(name: str, rows: list[list[Any]]) -> str:
    lines = "".join(f"<table:table-row>{''.join(map(ods_cell, row))}</table:table-row>" for row in rows)
    return f'<table:table table:name="{name}">{lines}</table:table>'


def rewrite(path: Path, name: str, change: Any) -> Path:
    """A document of several parts with one part changed."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    parts[name] = change(parts[name])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, data in parts.items():
            archive.writestr(part, data)
    return path


def test_cells_are_the_values_that_openpyxl_reads(tmp_path):
    day, moment = datetime.datetime(2024, 2, 29), datetime.datetime(1999, 12, 31, 23, 59, 58, 500000)
    rows = [[1, 2.5, "a", True, day], [2, None, "b", False, moment], [-(2**40), 0.25, None, True, None]]
    path = save(tmp_path / "a.xlsx", Data=[["id", "x", "name", "flag", "at"], *rows])
    source = rk.sources.excel(path)
    read = [list(row) for row in openpyxl.load_workbook(path).active.iter_rows(min_row=2, values_only=True)]
    assert [list(row.values()) for row in rows_of(source)] == read == rows
    assert dict(source.facts().schema) == {
        "id": rk.Int64(),
        "x": rk.Float32(optional=True),
        "name": rk.Text(optional=True),
        "flag": rk.Int64(dtype="bool"),
        "at": rk.Timestamp(optional=True),
    }


def test_durations_and_times_of_day_are_seconds(tmp_path):
    cells = [[datetime.timedelta(hours=30), datetime.time(1, 2, 3)]]
    source = rk.sources.excel(save(tmp_path / "a.xlsx", Data=[["took", "at"], *cells]))
    assert rows_of(source) == [{"took": 108_000, "at": 3_723}]


def test_a_dataset_has_the_cells(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[["id", "name"], [1, "a"], [2, "N/A"], [None, None], [3, "c"]])
    rk.write(path, tmp_path / "out", progress=False)
    rows = [{name: row[name] for name in ("id", "name")} for row in rk.open(tmp_path / "out")["train"]]
    assert [(int(row["id"]), row["name"]) for row in rows] == [(1, "a"), (2, None), (3, "c")]


def test_an_open_document_is_read_like_an_excel_file(tmp_path):
    path = ods(tmp_path / "a.ods", ods_table("Data", [["id", "at"], [1, datetime.date(2024, 1, 2)], [2, 3]][:2]))
    assert rows_of(rk.sources.excel(path)) == [{"id": 1, "at": datetime.datetime(2024, 1, 2)}]
    assert identify_source(path).kind == "excel"


def test_the_only_sheet_that_is_not_empty_is_taken(tmp_path):
    path = save(tmp_path / "a.xlsx", Empty=[], Data=[["x"], [1]])
    assert rows_of(rk.sources.excel(path)) == [{"x": 1}]


def test_several_sheets_are_refused_with_a_command_for_each(tmp_path):
    path = save(tmp_path / "a.xlsx", One=[["x"], [1]], **{"The other": [["y"], [2]]})
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X542", str(path))
    assert [command for _, command in caught.value.readings] == [
        f"rekord write {path} OUT --sheet One",
        f"rekord write {path} OUT --sheet 'The other'",
    ]
    assert rows_of(rk.sources.excel(path, sheet="The other")) == [{"y": 2}]


def test_an_unknown_sheet_is_refused_with_the_closest_one(tmp_path):
    path = save(tmp_path / "a.xlsx", Sales=[["x"], [1]])
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path, sheet="Sale").facts()
    assert (caught.value.code, caught.value.do) == ("X522", "sheet='Sales'")


def test_a_sheet_without_names_is_read_with_header_false(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[[1, 2], [3, 4]])
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X522", str(path))
    assert rows_of(rk.sources.excel(path, header=False)) == [
        {"column_0": 1, "column_1": 2},
        {"column_0": 3, "column_1": 4},
    ]


@pytest.mark.parametrize(
    ("rows", "feature"),
    [([["x", "x"], [1, 2]], "x"), ([["x", None], [1, 2]], None)],
)
def test_columns_need_unique_names(tmp_path, rows, feature):
    path = save(tmp_path / "a.xlsx", Data=rows)
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path).facts()
    location = caught.value.location
    assert (caught.value.code, location.path, location.feature) == ("X522", str(path), feature)


def test_columns_selects_columns(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[["x", "y"], [1, 2]])
    assert rows_of(rk.sources.excel(path, columns=["y"])) == [{"y": 2}]
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path, columns=["z"]).facts()
    assert (caught.value.code, caught.value.location.feature) == ("X522", "z")


def test_a_sheet_is_chosen_on_the_command_line(tmp_path, capsys):
    path = save(tmp_path / "a.xlsx", One=[["x"], [1]], Two=[["y"], [2], [3]])
    result = run_command_line(["write", str(path), str(tmp_path / "out"), "--sheet", "Two"])
    assert result == 0, capsys.readouterr().err
    assert [int(row["y"]) for row in rk.open(tmp_path / "out")["train"]] == [2, 3]


def guesses_of(source: Any) -> list[Any]:
    return [tuple(guess) for guess in source.facts().guesses]


@pytest.mark.parametrize("index", [["a", "b"], [10, 20]])
def test_the_index_that_pandas_writes_is_a_column_of_its_own(tmp_path, index):
    pd.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}, index=index).to_excel(tmp_path / "a.xlsx")
    source = rk.sources.excel(tmp_path / "a.xlsx")
    expected = [{"index": one, "x": i + 1, "y": i + 0.5} for i, one in enumerate(index)]
    assert rows_of(source) == expected
    assert guesses_of(source) == [
        ("index", "the first column of a.xlsx has no name, and is read as `index`", 'to leave it out: drop=["index"]')
    ]
    rk.write(tmp_path / "a.xlsx", tmp_path / "out", drop=["index"], progress=False)
    assert list(rk.open(tmp_path / "out").schema) == ["x", "y"]


MIXED = [["id", "code", "n"], [1, 7, True], [2, "12a", 0], [3, datetime.datetime(2024, 1, 2), 1.5]]


def test_a_column_of_several_types_names_what_works_and_it_works(tmp_path, capsys):
    path = save(tmp_path / "a.xlsx", Data=MIXED)
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", drop=["n"], progress=False)
    failure = caught.value
    assert (failure.code, failure.location.path, failure.location.feature) == ("S129", str(path), "code")
    assert failure.do == 'read it as text: columns={"code": rk.Text()}; or leave it out: drop=["code"]'
    rk.write(path, tmp_path / "text", drop=["n"], columns={"code": rk.Text()}, progress=False)
    assert [row["code"] for row in rk.open(tmp_path / "text")["train"]] == ["7", "12a", "2024-01-02T00:00:00"]
    rk.write(path, tmp_path / "drop", drop=["code", "n"], progress=False)
    assert list(rk.open(tmp_path / "drop").schema) == ["id"]
    rk.write(path, tmp_path / "label", keep=["id", "code"], label="code", progress=False)
    assert rk.open(tmp_path / "label").schema["code"].class_names == ("12a", "2024-01-02T00:00:00", "7")
    result = run_command_line(["write", str(path), str(tmp_path / "cli"), "--column", "code=text", "--drop", "n"])
    assert result == 0, capsys.readouterr().err


def test_a_number_is_text_where_text_is_declared(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[["zip", "flag"], [1234, True], [56789.5, False]])
    rk.write(path, tmp_path / "out", columns={"zip": rk.Text(), "flag": rk.Text()}, progress=False)
    rows = [(row["zip"], row["flag"]) for row in rk.open(tmp_path / "out")["train"]]
    assert rows == [("1234", "true"), ("56789.5", "false")]


def test_numbers_with_more_digits_than_a_cell_holds_are_reported(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[["id", "x"], [12345678901234567, 1], [2, 2]])
    (guess,) = guesses_of(rk.sources.excel(path))
    assert guess[0] == "id"
    assert re.fullmatch(r"`id` has floats beyond 2\^53, first 123456789012345\d\d, whose .* may be lost", guess[1])


def test_merged_cells_are_reported(tmp_path):
    book = openpyxl.Workbook()
    for row in (["kind", "x"], ["a", 1], [None, 2], ["b", 3]):
        book.active.append(row)
    book.active.merge_cells("A2:A3")
    book.save(tmp_path / "a.xlsx")
    assert guesses_of(rk.sources.excel(tmp_path / "a.xlsx")) == [
        (
            None,
            "sheet Sheet has 1 group of merged cells across rows: only the first cell of each has its value",
            None,
        )
    ]


# Files that must not be believed.


def test_formulas_without_results_are_refused(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[["x", "y"], [1, "=A2*2"], [2, "=A3*2"]], Other=[["z"], [3]])
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path, sheet="Data").facts()
    failure = caught.value
    assert (failure.code, failure.location.path, failure.found) == ("X525", str(path), "2 formulas without a result")
    assert rows_of(rk.sources.excel(path, sheet="Other")) == [{"z": 3}]


def with_results(*results: str) -> Any:
    def change(data: bytes) -> bytes:
        for result in results:
            data = re.sub(rb"</f><v\s*/>|</f><v></v>", f"</f><v>{result}</v>".encode(), data, count=1)
        return data

    return change


def test_formulas_that_are_to_be_computed_on_load_are_refused(tmp_path):
    # openpyxl asks for it in every file; other libraries write 0 as the result.
    path = save(tmp_path / "a.xlsx", Data=[["x", "y"], [1, "=A2*2"], [2, "=A3*2"]])
    rewrite(path, "xl/worksheets/sheet1.xml", with_results("0", "0"))
    assert (refused(path).code, refused(path).found) == (
        "X525",
        "2 formulas, all with the result 0, to be computed on load",
    )
    rewrite(path, "xl/workbook.xml", lambda data: data.replace(b'fullCalcOnLoad="1"', b""))
    assert rows_of(rk.sources.excel(path)) == [{"x": 1, "y": 0}, {"x": 2, "y": 0}]
    path = save(tmp_path / "b.xlsx", Data=[["x", "y"], [1, "=A2*2"], [2, "=A3*2"]])
    rewrite(path, "xl/worksheets/sheet1.xml", with_results("2", "0"))
    assert rows_of(rk.sources.excel(path)) == [{"x": 1, "y": 2}, {"x": 2, "y": 0}]


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.xls", "<html><table><tr><td>x</td></tr></table></html>", "HTML or XML"),
        ("a.xlsx", "x,y\n1,2\n", "text that is named like a spreadsheet"),
        ("a.xlsx", "\x00\x01", "no header of a spreadsheet"),
    ],
)
def test_a_file_that_is_only_named_like_a_spreadsheet_says_what_it_is(tmp_path, name, content, found):
    (tmp_path / name).write_text(content)
    failure = refused(tmp_path / name)
    assert (failure.code, found in failure.found) == ("X524", True)


def refused(path: Path) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        detect_source(path).facts()
    assert caught.value.location.path == str(path)
    assert caught.value.do
    return caught.value


def test_xml_entities_are_refused(tmp_path):
    def add_entities(data: bytes) -> bytes:
        entities = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
        return data.replace(b"<worksheet", entities.encode() + b"<worksheet", 1)

    path = rewrite(save(tmp_path / "a.xlsx", Data=[["x"], [1]]), "xl/worksheets/sheet1.xml", add_entities)
    failure = refused(path)
    assert failure.code == "X524"
    assert "document type" in str(failure.found)


def test_a_cell_far_away_does_not_allocate_what_lies_between(tmp_path):
    def move(data: bytes) -> bytes:
        return data.replace(b'r="A2"', b'r="XFD1048576"').replace(b'<row r="2"', b'<row r="1048576"')

    path = rewrite(save(tmp_path / "a.xlsx", Data=[["x"], [1]]), "xl/worksheets/sheet1.xml", move)
    failure = refused(path)
    assert (failure.code, "cells around" in str(failure.found)) == ("X524", True)


def test_repeated_cells_of_an_open_document_are_counted(tmp_path):
    cell = '<table:table-cell table:number-columns-repeated="16000" office:value-type="float" office:value="1"/>'
    rows = f'<table:table-row table:number-rows-repeated="1000000">{cell}</table:table-row>'
    failure = refused(ods(tmp_path / "a.ods", f'<table:table table:name="Data">{rows}</table:table>'))
    assert (failure.code, "cells around" in str(failure.found)) == ("X524", True)


def test_empty_rows_at_the_end_of_an_open_document_are_not_counted(tmp_path):
    rest = '<table:table-cell table:number-columns-repeated="16384"/>'
    rows = f'<table:table-row table:number-rows-repeated="1048574">{rest}</table:table-row></table:table>'
    table = ods_table("Data", [["x"], [1]]).replace("</table:table>", rows)
    assert rows_of(rk.sources.excel(ods(tmp_path / "a.ods", table))) == [{"x": 1}]


def test_a_part_that_expands_without_bound_is_refused(tmp_path):
    path = rewrite(
        save(tmp_path / "a.xlsx", Data=[["x"], [1]]), "xl/styles.xml", lambda data: data + b" " * (32 << 20)
    )
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(path).facts()
    assert caught.value.code == "X550"


@pytest.mark.parametrize("name", ["a.xlsx", "a.xls", "a.ods"])
def test_a_file_of_something_else_is_corrupt(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"name,x\nrose,1\n")
    assert refused(path).code == "X524"


def test_a_truncated_file_is_corrupt(tmp_path):
    path = save(tmp_path / "a.xlsx", Data=[["x"], [1]])
    path.write_bytes(path.read_bytes()[:-40])
    assert refused(path).code == "X524"


def test_an_empty_file_and_an_empty_book_have_no_rows(tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(b"")
    assert refused(path).code == "X520"
    assert refused(save(path, Data=[])).code == "X520"
    assert refused(save(path, Data=[["x"]])).code == "X520"


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.excel(save(tmp_path / "a.xlsx", Data=[["x"], [1]])).facts()
    assert (caught.value.code, caught.value.do) == ("U602", "pip install 'rekord[tables]'")
