"""What is said of defects in spreadsheets, databases, HDF5, Avro and ARFF files, and texts as files: every cell."""

from __future__ import annotations

import gzip
import io
import sqlite3
from collections.abc import Callable
from importlib import import_module
from typing import Any

import duckdb
import fastavro
import h5py
import numpy as np
import openpyxl
import pytest

import rekord as rk

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}
TABLES = {
    "excel": "a.xlsx",
    "sqlite": "a.db",
    "duckdb": "a.duckdb",
    "hdf5": "a.h5",
    "avro": "a.avro",
    "arff": "a.arff",
    "text_files": "a.md",
}
DATABASES = {"sqlite": sqlite3.connect, "duckdb": duckdb.connect}


def cell(source: str, defect: str, code: str) -> Callable[[Any], Any]:
    def kept(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert CELLS.setdefault((source, defect, code), build) is build
        return build

    return kept


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table):
    assert defect_table("Tables of other programs, and texts as files") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


def make(kind: str, path: Any, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(rk.sources, kind)(path, **options)


def sheet(place: Any, *rows: list[Any], **others: list[list[Any]]) -> Any:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for title, cells in others.items():
        added = book.create_sheet(title)
        for row in cells:
            added.append(row)
    path = place.root / "a.xlsx"
    book.save(path)
    return path


def base(place: Any, kind: str, *statements: str, name: str | None = None) -> Any:
    path = place.root / (name or TABLES[kind])
    database = DATABASES[kind](str(path))
    for statement in statements:
        database.execute(statement)
    if kind == "sqlite":
        database.commit()
    database.close()
    return path


def hdf(place: Any, name: str = "a.h5", **datasets: Any) -> Any:
    path = place.root / name
    with h5py.File(path, "w") as file:
        for column, values in datasets.items():
            file[column.replace("__", "/")] = values
    return path


def avro(place: Any, kind: Any = "int", rows: Any = ({"x": 1}, {"x": 2}), name: str = "a.avro") -> Any:
    file = io.BytesIO()
    fields = [{"name": "x", "type": kind}]
    fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, list(rows))
    return place.put(name, file.getvalue())


HEAD = "@relation a\n@attribute x numeric\n@attribute y {a,b}\n@data\n"


def arff(place: Any, rows: str | bytes = "1,a\n2,b\n", name: str = "a.arff") -> Any:
    return place.put(name, HEAD.encode() + (rows.encode() if isinstance(rows, str) else rows))


def intact(place: Any, kind: str) -> Any:
    if kind == "excel":
        return sheet(place, ["x"], [1], [2])
    if kind in DATABASES:
        return base(place, kind, "CREATE TABLE t AS SELECT 1 AS x")
    return {
        "hdf5": lambda: hdf(place, x=np.arange(1000)),
        "avro": lambda: avro(place),
        "arff": lambda: arff(place),
        "text_files": lambda: place.put("a.md", "a"),
    }[kind]()


def with_files(kind: str) -> None:
    @cell(kind, "missing file", "X501")
    def _(place):
        path = place.root / TABLES[kind]
        return place.case(make(kind, path), path)

    @cell(kind, "unreadable", "X503")
    def _(place):
        path = intact(place, kind)
        return place.case(make(kind, path), place.unreadable(path))

    @cell(kind, "empty", "X520")
    def _(place):
        if kind == "text_files":
            return place.case(make(kind, place.root), place.root)
        path = place.put(TABLES[kind], "")
        return place.case(make(kind, path), path)


for one in TABLES:
    with_files(one)


def with_bytes(kind: str) -> None:
    @cell(kind, "truncated", "X524")
    def _(place):
        path = intact(place, kind)
        return place.case(make(kind, path), place.cut(path))

    @cell(kind, "wrong type", "X524")
    def _(place):
        path = place.put(TABLES[kind], "x,y\n" + "1,2\n" * 400)
        return place.case(make(kind, path), path)


for one in ("excel", "sqlite", "duckdb", "hdf5", "avro"):
    with_bytes(one)


# Spreadsheets.


@cell("excel", "wrong type", "S129")
def _(place):
    path = sheet(place, ["x"], [1.5], ["a"])
    return place.case(make("excel", path), path, feature="x")


@cell("excel", "wrong type", "X525")
def _(place):
    path = sheet(place, ["x"], ["=1+1"])  # openpyxl computes nothing
    return place.case(make("excel", path), path)


@cell("excel", "missing file", "X522")
def _(place):
    path = sheet(place, ["x"], [1])
    return place.case(make("excel", path, sheet="Other"), path)


@cell("excel", "duplicate key", "X522")
def _(place):
    path = sheet(place, ["x", "x"], [1, 2])
    return place.case(make("excel", path), path, feature="x")


@cell("excel", "bad encoding", "X524")
def _(place):
    path = place.put("a.xls", "x\ncafé\n".encode("latin-1"))
    return place.case(make("excel", path), path)


@cell("excel", "inconsistent columns", "X522")
def _(place):
    path = sheet(place, ["x"], [1, 2])
    return place.case(make("excel", path), path)


@cell("excel", "inconsistent columns", "X542")
def _(place):
    path = sheet(place, ["x"], [1], other=[["y"], [1]])
    return place.case(make("excel", path), path)


@cell("excel", "too large", "X524")
def _(place):
    place.patch.setattr(import_module("rekord.sources.excel"), "MAX_XML_BYTES", 1 << 10)
    path = sheet(place, ["x"], [1])
    return place.case(make("excel", path), path)


# Databases.


def with_tables(kind: str) -> None:
    @cell(kind, "missing file", "X522")
    def _(place):
        path = intact(place, kind)
        return place.case(make(kind, path, table="u"), path)

    @cell(kind, "duplicate key", "X522")
    def _(place):
        path = intact(place, kind)
        return place.case(make(kind, path, query="SELECT x, x FROM t"), path, feature="x")

    @cell(kind, "inconsistent columns", "X542")
    def _(place):
        path = base(place, kind, "CREATE TABLE t AS SELECT 1 AS x", "CREATE TABLE u AS SELECT 1 AS y")
        return place.case(make(kind, path), path)


for one in DATABASES:
    with_tables(one)


@cell("sqlite", "wrong type", "S129")
def _(place):
    path = base(place, "sqlite", "CREATE TABLE t (x)", "INSERT INTO t VALUES (1), ('a')")
    return place.case(make("sqlite", path), path, feature="x")


@cell("sqlite", "bad encoding", "E318")
def _(place):
    path = base(place, "sqlite", "CREATE TABLE t (x)", "INSERT INTO t VALUES ('a'), (CAST(x'e9' AS TEXT))")
    return place.case(make("sqlite", path), path, row=1, feature="x", good=1)


@cell("sqlite", "too large", "X544")
def _(place):
    place.patch.setattr(import_module("rekord.sources.sqlite"), "_MAX_VALUE_BYTES", 1 << 10)
    path = base(place, "sqlite", "CREATE TABLE t AS SELECT 1 AS x")
    return place.case(make("sqlite", path, query="SELECT zeroblob(2000) AS x FROM t"), path)


@cell("duckdb", "wrong type", "X525")
def _(place):
    path = base(place, "duckdb", "CREATE TABLE t AS SELECT MAP {'a': 1} AS x")
    return place.case(make("duckdb", path), path, feature="x")


@cell("duckdb", "inconsistent columns", "X523")
def _(place):
    base(place, "duckdb", "CREATE TABLE t AS SELECT 1 AS x", name="a.duckdb")
    path = base(place, "duckdb", "CREATE TABLE t AS SELECT 'a' AS x", name="b.duckdb")
    return place.case(make("duckdb", place.root), path, feature="x")


# HDF5.


@cell("hdf5", "wrong type", "X525")
def _(place):
    path = hdf(place, x=[1])
    with h5py.File(path, "a") as file:
        file.create_dataset("y", data=[file["x"].ref], dtype=h5py.ref_dtype)
    return place.case(make("hdf5", path), path, feature="y")


@cell("hdf5", "missing file", "X522")
def _(place):
    path = hdf(place, x=[1])
    return place.case(make("hdf5", path, group="train"), path, feature="train")


@cell("hdf5", "orphan", "X543")
def _(place):
    path = hdf(place, x=[1])
    with h5py.File(path, "a") as file:
        file["y"] = h5py.ExternalLink("b.h5", "y")
    return place.case(make("hdf5", path), path)


@cell("hdf5", "bad encoding", "E318")
def _(place):
    path = hdf(place, x=np.array([b"a", b"caf\xe9"], "S4"))
    return place.case(make("hdf5", path), path, row=1, feature="x", good=1)


@cell("hdf5", "inconsistent columns", "X523")
def _(place):
    path = hdf(place, x=[1], y=[1, 2])
    return place.case(make("hdf5", path), path, feature="y")


@cell("hdf5", "inconsistent columns", "X542")
def _(place):
    path = hdf(place, test__x=[1], train__x=[1, 2])
    return place.case(make("hdf5", path), path)


@cell("hdf5", "too large", "X524")
def _(place):
    path = place.root / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 40,), "i8", chunks=(1 << 10,), compression="gzip")
    return place.case(make("hdf5", path), path)


# Avro.


@cell("avro", "wrong type", "X525")
def _(place):
    path = avro(place, {"type": "map", "values": "int"}, [])
    return place.case(make("avro", path), path, feature="x")


@cell("avro", "too large", "X524")
def _(place):
    place.patch.setattr(import_module("rekord.sources.avro"), "MAX_BLOCK_BYTES", 1 << 10)
    path = avro(place, "bytes", [{"x": bytes(2000)}])
    return place.case(make("avro", path), path)


# ARFF.


@cell("arff", "empty", "X522")
def _(place):
    path = place.put("a.arff", "\n")
    return place.case(make("arff", path), path)


@cell("arff", "truncated", "E354")
def _(place):
    path = arff(place, "1,a\n2")
    return place.case(make("arff", path), path, row=1, line=6, good=1)


@cell("arff", "truncated", "X524")
def _(place):
    path = place.put("a.arff.gz", gzip.compress((HEAD + "1,a\n").encode()))
    return place.case(make("arff", path), place.cut(path))


@cell("arff", "wrong type", "E356")
def _(place):
    path = arff(place, "1,a\n2,c\n")
    return place.case(make("arff", path), path, row=1, line=6, feature="y", good=1)


@cell("arff", "wrong type", "X522")
def _(place):
    path = place.put("a.arff", "@relation a\n@attribute x relational\n@data\n1\n")
    return place.case(make("arff", path), path, line=2, feature="x")


@cell("arff", "duplicate key", "X522")
def _(place):
    path = place.put("a.arff", "@relation a\n@attribute x real\n@attribute x real\n@data\n1,2\n")
    return place.case(make("arff", path), path, line=3, feature="x")


@cell("arff", "bad encoding", "E353")
def _(place):
    path = arff(place, b"1,a\n2,b%\xe9\n")
    return place.case(make("arff", path), path, row=1, line=6, good=1)


@cell("arff", "bad encoding", "X585")
def _(place):
    path = place.put("a.arff", (HEAD + "1,a\n").encode("utf-16")[:-1])
    return place.case(make("arff", path), path, line=5)


@cell("arff", "inconsistent columns", "E354")
def _(place):
    path = arff(place, "1,a\n2,b,3\n")
    return place.case(make("arff", path), path, row=1, line=6, good=1)


@cell("arff", "inconsistent columns", "X523")
def _(place):
    arff(place)
    path = place.put("b.arff", "@relation a\n@attribute x numeric\n@attribute z {a,b}\n@data\n1,a\n")
    return place.case(make("arff", place.root), path, feature="z")


@cell("arff", "too large", "E357")
def _(place):
    place.patch.setattr("rekord.sources.lines.MAX_ROW_BYTES", 1 << 10)
    path = arff(place, "1,a\n" + "2" * (5 << 20) + ",b\n1,a\n")
    return place.case(make("arff", path), path, row=1, line=6, good=2)


# Texts as files.


@cell("text_files", "wrong type", "E353")
def _(place):
    place.put("a.md", "a")
    path = place.put("b.md", b"\x89PNG\0")
    return place.case(make("text_files", place.root), path, row=0, good=1)


@cell("text_files", "bad encoding", "E353")
def _(place):
    place.put("a.md", "a")
    path = place.put("b.md", b"caf\xe9")
    return place.case(make("text_files", place.root), path, row=0, feature="text", good=1)


@cell("text_files", "bad encoding", "E318")
def _(place):
    place.put("a.md", "a")
    (place.root / "b\udce9.md").write_text("b")
    return place.case(make("text_files", place.root), place.root / "b\\xe9.md", feature="filename", good=1)


@cell("text_files", "too large", "E327")
def _(place):
    place.patch.setattr(import_module("rekord.sources.text_files"), "MAX_TEXT_BYTES", 10)
    place.put("a.md", "a")
    path = place.put("b.md", "b" * 11)
    return place.case(make("text_files", place.root), path, row=0, good=1)
