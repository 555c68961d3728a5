"""ARFF files as rows: the types of their header, and lines that do not fit it."""

from __future__ import annotations

import datetime
import gzip
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.sources.detect import identify_source

IRIS = """% a comment
@RELATION iris

@ATTRIBUTE sepallength  NUMERIC
@attribute 'petal width' real
@attribute n integer
@ATTRIBUTE class {Iris-setosa, 'Iris versicolor', "it's"}
@attribute note string
@attribute at date "yyyy-MM-dd HH:mm:ss"
@DATA
5.1,0.25,1,Iris-setosa,'a, b','2024-02-29 01:02:03'
% another
?, 1e-2 ,2,'Iris versicolor',?,?
4,3,-3,"it's",'it\\'s',"1999-12-31 23:59:59"
"""


def put(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def rows_of(source: Any) -> list[Any]:
    return [row.values for row in source.rows()]


def test_rows_have_the_types_of_the_header(tmp_path):
    path = put(tmp_path / "iris.arff", IRIS)
    source = rk.sources.arff(path)
    assert [list(row.values()) for row in rows_of(source)] == [
        [5.1, 0.25, 1, "Iris-setosa", "a, b", datetime.datetime(2024, 2, 29, 1, 2, 3)],
        [None, 0.01, 2, "Iris versicolor", None, None],
        [4.0, 3.0, -3, "it's", "it's", datetime.datetime(1999, 12, 31, 23, 59, 59)],
    ]
    assert dict(source.facts().schema) == {
        "sepallength": rk.Float32(optional=True),
        "petal width": rk.Float32(),
        "n": rk.Int64(),
        "class": rk.Label(["Iris-setosa", "Iris versicolor", "it's"]),
        "note": rk.Text(optional=True),
        "at": rk.Timestamp(optional=True),
    }
    assert identify_source(path).kind == "arff"
    rk.write(path, tmp_path / "out", progress=False)
    assert [int(row["class"]) for row in rk.open(tmp_path / "out")["train"]] == [0, 1, 2]


def test_sparse_rows_have_zeros_where_nothing_is_said(tmp_path):
    text = "@relation x\n@attribute a numeric\n@attribute b {no,yes}\n@attribute c numeric\n@data\n{1 yes, 2 5}\n{}\n"
    source = rk.sources.arff(put(tmp_path / "a.arff", text))
    assert rows_of(source) == [{"a": 0, "b": "yes", "c": 5}, {"a": 0, "b": "no", "c": 0}]


def test_a_compressed_file_and_another_encoding_are_read(tmp_path):
    text = "@relation x\n@attribute a string\n@data\ncafé\n"
    (tmp_path / "a.arff.gz").write_bytes(gzip.compress(text.encode()))
    assert rows_of(rk.sources.arff(tmp_path / "a.arff.gz")) == [{"a": "café"}]
    (tmp_path / "b.arff").write_bytes(text.encode("latin-1"))
    assert rows_of(rk.sources.arff(tmp_path / "b.arff", encoding="latin-1")) == [{"a": "café"}]


@pytest.mark.parametrize(
    ("line", "code", "feature"),
    [
        ("x,no", "E356", "a"),
        ("1,maybe", "E356", "b"),
        ("1", "E354", None),
        ("1,no,2", "E354", None),
        ("1,'no", "E354", None),
        ("{7 yes}", "E354", None),
        ("{1 yes", "E354", None),
    ],
)
def test_a_line_that_does_not_fit_is_a_bad_row(tmp_path, line, code, feature):
    text = f"@relation x\n@attribute a numeric\n@attribute b {{no,yes}}\n@data\n1,no\n{line}\n"
    path = put(tmp_path / "a.arff", text)
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", progress=False)
    where = caught.value.location
    assert (caught.value.code, where.path, where.row, where.line, where.feature) == (code, str(path), 1, 6, feature)


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("@attribute a numeric\n@attribute a numeric\n@data\n1,2", 3),
        ("@attribute a relational\n@data\n1", 2),
        ("@attribute a {x,x}\n@data\nx", 2),
        ("@data\n1", 2),
        ("@attribute a numeric\n1", 3),
        ("@attribute a numeric", None),
    ],
)
def test_a_header_that_cannot_be_read_names_its_line(tmp_path, header, line):
    path = put(tmp_path / "a.arff", f"@relation x\n{header}\n")
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.arff(path).facts()
    assert (caught.value.code, caught.value.location.path, caught.value.location.line) == ("X522", str(path), line)


def test_several_files_must_have_the_same_attributes(tmp_path):
    put(tmp_path / "a.arff", "@relation x\n@attribute a numeric\n@data\n1\n")
    path = put(tmp_path / "b.arff", "@relation x\n@attribute b numeric\n@data\n1\n")
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.arff(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X523", str(path))


def test_a_file_without_rows_is_refused(tmp_path):
    path = put(tmp_path / "a.arff", "@relation x\n@attribute a numeric\n@data\n")
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.arff(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X520", str(path))


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("1,2", ["1", "2"]),
        (" 1 , 2 ", ["1", "2"]),
        ("1\t2", ["1", "2"]),
        ("1,\t2", ["1", "2"]),
        ("1 \t, 2", ["1", "2"]),
        ("1,,2", ["1", "", "2"]),
        ("1,", ["1", ""]),
        ('\'a, b\' ,"c\\"d"', ["'a, b'", '"c\\"d"']),
        ("'a' b", None),
        ("'a", None),
        ("it's", None),
    ],
)
def test_fields_are_split_at_commas_and_tabs(line, fields):
    assert import_module("rekord.sources.arff")._split_fields(line.strip()) == fields


HOSTILE = 200_000


@pytest.mark.parametrize(
    "line",
    [
        "x" + " " * HOSTILE + "'",
        "'" + " " * HOSTILE,
        "1" + " \t" * HOSTILE + "'",
        "{0 " + " " * HOSTILE + "'}",
        "{" + " " * HOSTILE + "x}",
        "'" + "\\'" * HOSTILE,
    ],
)
def test_a_hostile_line_is_refused_in_linear_time(tmp_path, line):
    # In quadratic time one of these lines takes an hour.
    path = tmp_path / "a.arff"
    path.write_text(f"@relation r\n@attribute a string\n@data\n{line}\nok\n")
    problem, good = [row.values for row in rk.sources.arff(path).rows()]
    assert (problem.code, problem.location.row, problem.location.line) == ("E354", 0, 4)
    assert good == {"a": "ok"}
