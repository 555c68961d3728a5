"""What a table leaves open is reported, with the argument that changes it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rekord as rk
from rekord.sources import csv, jsonl

NA = 'na=["", "NA", "N/A", "null", "NULL", '


def guesses(source: Any) -> list[tuple[str | None, str, str | None]]:
    return [tuple(guess) for guess in source.facts().guesses]


def read(source: Any) -> list[dict[str, Any]]:
    return [row for part in source.parts() for chunk in source.read(part) for row in chunk.values.to_pylist()]


def put(folder: Path, content: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def column(values: list[str], *, delimiter: str = ",") -> str:
    return f"id{delimiter}x\n" + "".join(f"{i}{delimiter}{value}\n" for i, value in enumerate(values))


@pytest.mark.parametrize(
    ("values", "what", "do"),
    [
        (
            ["3", "4", "?", "5"],
            "`x` is text because of '?' in row 2 (line 4); 3 other values are numbers",
            f'if it is a missing value: {NA}"?"]',
        ),
        (
            ["1.5", "-", "2", "unknown", "3", "4"],
            "`x` is text because of '-' in row 1 (line 3), and of 1 more value; 4 other values are numbers",
            f'if these are missing values: {NA}"-", "unknown"]',
        ),
        (
            ["$1.50", "$2", "$3,000.25"],
            "`x` is text: '$1.50' in row 0 (line 2) has a currency sign",
            'to read numbers: numbers=["x"]',
        ),
        (
            ["5%", "12.5 %"],
            "`x` is text: '5%' in row 0 (line 2) has a percent sign",
            'to read numbers: numbers=["x"]',
        ),
        (
            ['"1,234,567"', '"12,000"', "5"],
            "`x` is text: '1,234,567' in row 0 (line 2) has separators of thousands",
            'to read numbers: numbers=["x"]',
        ),
        (
            ['"1,234"', '"12,000"'],
            "`x` is text: '1,234' in row 0 (line 2) has a comma",
            'if it separates thousands: numbers=["x"]; if it is a decimal comma: decimal=","',
        ),
        (
            ["2024-01-31", "2024-02-01"],
            "`x` is text: its dates are kept as written, first '2024-01-31' in row 0 (line 2)",
            'to store times: columns={"x": rk.Timestamp()}',
        ),
        (
            ["31.01.2024", "1.2.2024"],
            "`x` is text: its dates are kept as written, first '31.01.2024' in row 0 (line 2)",
            None,
        ),
        (
            ["yes", "no", "yes"],
            "`x` is text: its values are 'no' and 'yes'",
            'to store class ids: columns={"x": rk.Label()}',
        ),
        (
            ["10", "007"],
            "`x` is text: '007' in row 1 (line 3) has a leading zero",
            'to read integers: columns={"x": rk.Int64()}',
        ),
        (
            [" a", "b"],
            "`x` keeps leading or trailing spaces, first ' a' in row 0 (line 2)",
            "to remove them: strip=True",
        ),
        (
            ["1", "NA", "2"],
            "'NA' in row 1 (line 3) of `x` is read as a missing value",
            'to keep it: na=["", "N/A", "null", "NULL"]',
        ),
    ],
)
def test_a_column_that_could_be_read_otherwise_is_reported(
    tmp_path: Path, values: list[str], what: str, do: str | None
) -> None:
    assert guesses(csv(put(tmp_path, column(values)))) == [("x", what, do)]


@pytest.mark.parametrize("values", [["1", "2.5"], ["a", "b"], ["x1", "y", "3"], ["true", "false"], ["", "1"]])
def test_an_ordinary_column_is_not_reported(tmp_path: Path, values: list[str]) -> None:
    assert guesses(csv(put(tmp_path, column(values)))) == []


def test_a_decimal_comma_and_the_delimiter_are_reported_and_can_be_changed(tmp_path: Path) -> None:
    path = put(tmp_path, "a;b\n3,14;Berlin, Mitte\n2,5;x\n1;y\n")
    assert guesses(csv(path)) == [
        (
            None,
            "fields are separated by ';', the most frequent delimiter of the first line",
            'to separate them by commas: delimiter=","',
        ),
        ("a", "`a` is text: '3,14' in row 0 (line 2) has a decimal comma", 'to read numbers: decimal=","'),
    ]
    source = csv(path, decimal=",", delimiter=";")
    assert guesses(source) == []
    assert source.facts().schema == rk.Schema({"a": rk.Float32(), "b": rk.Text()})
    rk.write(source, tmp_path / "out", progress=False)
    rows = list(rk.open(tmp_path / "out")["train"])
    assert [(round(float(row["a"]), 2), row["b"]) for row in rows] == [
        (3.14, "Berlin, Mitte"),
        (2.5, "x"),
        (1.0, "y"),
    ]


@pytest.mark.parametrize(
    ("first", "has_header", "do"),
    [
        ("5.1,3.5,setosa", False, "to read it as column names: header=True"),
        ("39, State-gov,77516", False, "to read it as column names: header=True"),
        ("country,1990,1991", True, "to read it as a row: header=False"),
        ("label,0,1", True, "to read it as a row: header=False"),
    ],
)
def test_numbers_in_the_first_line_decide_whether_it_has_names(
    tmp_path: Path, first: str, has_header: bool, do: str
) -> None:
    path = put(tmp_path, f"{first}\n4,2,1\n5,3,2\n")
    facts = csv(path).facts()
    assert facts.rows == (2 if has_header else 3)
    assert next(guess.do for guess in facts.guesses if "first line" in guess.what) == do
    assert csv(path, header=not has_header).facts().rows == (3 if has_header else 2)


def test_a_header_with_letters_is_no_guess(tmp_path: Path) -> None:
    assert guesses(csv(put(tmp_path, "a,b\n1,2\n"))) == []


def test_spaces_around_names_are_removed_and_reported(tmp_path: Path) -> None:
    assert guesses(csv(put(tmp_path, "a, b \n1,2\n"))) == [
        ("b", "spaces around column names were removed, first around ' b '", None)
    ]


def test_one_word_after_many_numbers_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = column([str(i) for i in range(5000)] + ["none"] + ["7"] * 10)
    expected = [
        (
            "x",
            "`x` is text because of 'none' in row 5,000 (line 5,002), after 5,000 numbers",
            f'if it is a missing value: {NA}"none"]',
        )
    ]
    assert guesses(csv(put(tmp_path, content))) == expected
    real = import_module("rekord.sources.lines").read_row_blocks

    def in_blocks(stream: Any, rules: Any, begin: Any, *, head: bytes = b"", block_bytes: int = 0) -> Any:
        return real(stream, rules, begin, head=head, block_bytes=4096)

    monkeypatch.setattr("rekord.sources.lines.read_row_blocks", in_blocks)
    monkeypatch.setattr("rekord.sources.lines._HEAD_BYTES", 64)
    assert guesses(csv(put(tmp_path, content, "again.csv"))) == expected


def test_what_is_proposed_makes_the_column_numbers(tmp_path: Path) -> None:
    path = put(tmp_path, 'a,b,c\n$1,5%, ?\n$2.50,x,3\n"$3,000",7 %,4\n')
    source = csv(path, numbers=["a", "b"], na=["", "?", "x"], strip=True)
    assert source.facts().schema == rk.Schema(
        {"a": rk.Float32(), "b": rk.Float32(optional=True), "c": rk.Int64(optional=True)}
    )
    rows = read(source)
    assert rows == [
        {"a": 1.0, "b": 5.0, "c": None},
        {"a": 2.5, "b": None, "c": 3},
        {"a": 3000.0, "b": 7.0, "c": 4},
    ]


def test_a_field_without_a_number_is_a_bad_row(tmp_path: Path) -> None:
    path = put(tmp_path, "a,b\n$1,1\nfree,2\n$3,3\n")
    source = csv(path, numbers=["a"])
    parts: Any = source
    chunks = [chunk for part in parts.parts() for chunk in parts.read(part)]
    (bad,) = [chunk.values for chunk in chunks if isinstance(chunk.values, rk.RekordError)]
    assert (bad.code, bad.location.row, bad.location.line, bad.location.feature) == ("E356", 1, 3, "a")


def test_spaces_are_removed_from_texts_and_from_words_for_missing_values(tmp_path: Path) -> None:
    source = csv(put(tmp_path, "a,b\n 1, x \n2, NA\n"), strip=True)
    assert source.facts().schema == rk.Schema({"a": rk.Int64(), "b": rk.Text(optional=True)})
    rows = read(source)
    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]


def test_irregular_rows_do_not_hide_guesses(tmp_path: Path) -> None:
    path = put(tmp_path, "id,x\n0,1\n1,2,3\n2,?\n3,4\n")
    assert [guess[1] for guess in guesses(csv(path))] == [
        "`x` is text because of '?' in row 2 (line 4); 2 other values are numbers"
    ]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"decimal": ";"}, "`decimal` cannot be ';'"),
        ({"decimal": ",", "delimiter": ","}, "`decimal` and `delimiter` are the same character"),
        ({"numbers": "price"}, "`numbers` cannot be 'price'"),
        ({"header": 1}, "`header` cannot be 1"),
    ],
)
def test_invalid_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], what: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        csv(put(tmp_path, "a\n1\n"), **arguments)
    assert (caught.value.code, caught.value.what) == ("U605", what)


def test_a_column_of_numbers_must_exist(tmp_path: Path) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        csv(put(tmp_path, "price,b\n1,2\n"), numbers=["prise"]).facts()
    assert (caught.value.code, caught.value.do) == ("X522", "did you mean `price`?")


def test_strings_of_json_that_could_be_more_are_reported(tmp_path: Path) -> None:
    lines = '{"a": "3", "d": "2024-01-02", "t": "x"}\n{"a": "4", "d": "2024-01-03", "t": "y"}\n'
    assert guesses(jsonl(put(tmp_path, lines, "t.jsonl"))) == [
        ("a", "`a` is text: its numbers are strings, first '3' in row 0", None),
        ("d", "`d` is text: its dates are kept as written, first '2024-01-02' in row 0", None),
    ]


def test_points_among_decimal_commas_are_reported(tmp_path: Path) -> None:
    path = put(tmp_path, "price;count;id\n1,5;1.234;7\n2,25;12;8\n")
    found = {name: (what, do) for name, what, do in guesses(csv(path))}
    assert found["count"] == (
        "`count` is read with a decimal point, first '1.234' in row 0 (line 2); others have a decimal comma",
        'if points separate thousands: numbers=["count"] decimal=","',
    )
    found = {name: (what, do) for name, what, do in guesses(csv(path, decimal=","))}
    assert found["count"] == (
        "`count` is text: '1.234' in row 0 (line 2) has a point, not a decimal comma",
        'if points separate thousands: numbers=["count"] decimal=","',
    )
    source = csv(path, decimal=",", numbers=["count"])
    assert read(source) == [{"price": 1.5, "count": 1234.0, "id": 7}, {"price": 2.25, "count": 12.0, "id": 8}]
    assert "count" not in {name for name, _, _ in guesses(source)}
    assert "x" not in {name for name, _, _ in guesses(csv(put(tmp_path, "a;x\n1,5;1.2345\n2;0.5\n")))}


def test_the_index_that_pandas_writes_is_a_column_of_its_own(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[7, 8]).to_csv(tmp_path / "t.csv")
    source = csv(tmp_path / "t.csv")
    assert read(source) == [{"index": 7, "a": 1, "b": "x"}, {"index": 8, "a": 2, "b": "y"}]
    assert guesses(source) == [
        ("index", "the first column of t.csv has no name, and is read as `index`", 'to leave it out: drop=["index"]')
    ]
    rk.write(tmp_path / "t.csv", tmp_path / "out", drop=["index"], progress=False)
    assert list(rk.open(tmp_path / "out").schema) == ["a", "b"]


@pytest.mark.parametrize("header", [",a,", "a,,b", ",index", ","])
def test_other_columns_need_names(tmp_path: Path, header: str) -> None:
    path = put(tmp_path, header + "\n" + ",".join("12"[: header.count(",")] + "3") + "\n")
    with pytest.raises(rk.DatasetError) as caught:
        csv(path).facts()
    assert (caught.value.code, caught.value.location.path, caught.value.location.line) == ("X522", str(path), 1)


def test_the_line_in_which_excel_names_the_delimiter_is_no_header(tmp_path: Path) -> None:
    path = put(tmp_path, "\ufeffsep=;\r\na;b\r\n1;x,y\r\n2;z\r\n")
    source = csv(path)
    assert read(source) == [{"a": 1, "b": "x,y"}, {"a": 2, "b": "z"}]
    assert guesses(source)[0] == (None, "the first line, sep=;, is the delimiter, as Excel writes it", None)
    rk.write(path, tmp_path / "out", progress=False)
    assert [origin.line for origin in rk.trace(tmp_path / "out")] == [3, 4]
    assert read(csv(put(tmp_path, "sep=|\n1|2\n3|4\n"), header=False)) == [
        {"column_0": 1, "column_1": 2},
        {"column_0": 3, "column_1": 4},
    ]


def test_the_delimiter_is_that_of_all_of_the_first_lines(tmp_path: Path) -> None:
    path = put(tmp_path, "price, EUR;weight, kg;x\n1;2;a\n4;5;b\n")
    assert read(csv(path))[0] == {"price, EUR": 1, "weight, kg": 2, "x": "a"}
    many = "a;b\n" + "".join(f"{i};{i},5\n" for i in range(30_000))
    assert list(csv(put(tmp_path, many)).facts().schema) == ["a", "b"]
