"""JSON files that are one document: rows are read one at a time, and other documents are refused."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rekord as rk
from rekord.sources.json_documents import iter_document_rows


def put(path: Path, document: Any, **options: Any) -> Path:
    path.write_text(document if isinstance(document, str) else json.dumps(document, **options), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[Any]:
    source = rk.sources.jsonl(path)
    return [row.values for part in source.parts() for row in source.read(part)]


def refused(path: Path) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.jsonl(path).facts()
    assert caught.value.location.path == str(path)
    assert caught.value.do
    return caught.value


ROWS = [{"x": i, "name": f'"{i}]}}\\', "nest": {"y": [i, i]}} for i in range(300)]
FLAT = [{"x": i, "name": f'"{i}]}}\\', "nest/y": [i, i]} for i in range(300)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_document_gives_its_rows(tmp_path, indent, wrapped):
    document = {"version": {"a": [1]}, "data": ROWS, "count": 300} if wrapped else ROWS
    path = put(tmp_path / "a.json", document, indent=indent)
    assert rows_of(path) == FLAT
    rk.write(path, tmp_path / "out", progress=False)
    assert [int(row["x"]) for row in rk.open(tmp_path / "out")["train"]] == list(range(300))
    guesses = [guess.what for guess in rk.sources.jsonl(path).facts().guesses]
    assert any("other members are not read" in what for what in guesses) == wrapped


def test_rows_arrive_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.sources.json_documents._READ_BYTES", 7)
    text = json.dumps({"n": 1.5, "rows": ROWS}).encode()

    class Stream:
        at = most = 0

        def read(self, size_bytes: int) -> bytes:
            self.at += size_bytes
            return text[self.at - size_bytes : self.at]

        def rewind(self) -> None:
            self.at = 0

    stream = Stream()
    rows = iter_document_rows(stream, "a.json")
    for i in range(300):
        assert json.loads(next(rows)) == ROWS[i]
        ahead = stream.at - text.index(json.dumps(ROWS[i]).encode()) - len(json.dumps(ROWS[i]))
        assert ahead < 200, "at most the next row is read"
    assert list(rows) == []


def test_compressed_and_marked_documents_are_read(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps({"data": ROWS}).encode()))
    assert [row.values for row in rk.sources.jsonl(tmp_path / "a.json.gz").rows()] == FLAT
    (tmp_path / "b.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(ROWS).encode())
    assert rows_of(tmp_path / "b.json") == FLAT


def test_lines_of_objects_with_lists_stay_lines(tmp_path):
    lines = "".join(json.dumps({"x": i, "tags": ["a"]}) + "\n" for i in range(3))
    assert [row["x"] for row in rows_of(put(tmp_path / "a.jsonl", lines))] == [0, 1, 2]


def test_a_first_line_that_is_longer_than_one_read_stays_a_line(tmp_path):
    lines = "".join(json.dumps({"x": i, "text": "ab" * 100_000}) + "\n" for i in range(3))
    assert [row["x"] for row in rows_of(put(tmp_path / "a.jsonl", lines))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ({"x": [1, 2], "y": ["a", "b"]}, "a list per column"),
        ({"x": {"0": 1, "1": 2}, "y": {"0": 1, "1": 2}}, "an object per column"),
        ({"a": [{"x": 1}], "b": [{"y": 1}]}, "lists of objects: a, b"),
        ({"a": 1, "b": {"c": 2}}, "one object, with the members a, b"),
    ],
)
def test_documents_of_another_form_are_refused(tmp_path, document, found):
    failure = refused(put(tmp_path / "a.json", document, indent=1))
    assert (failure.code, found in str(failure.found)) == ("X553", True)


@pytest.mark.parametrize("orient", ["columns", "index", "split"])
@pytest.mark.parametrize("indent", [0, 2])
@pytest.mark.parametrize("columns", [["x"], ["x", "y"]])
def test_tables_by_column_of_pandas_are_no_single_row(tmp_path, orient, indent, columns):
    frame = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 1.5, 2.5]})[columns]
    frame.to_json(tmp_path / "a.json", orient=orient, indent=indent)
    failure = refused(tmp_path / "a.json")
    assert (failure.code, failure.location.row) == ("X553", None)
    # The command reads the same table.
    assert failure.do == f"rk.write(pandas.read_json({str(tmp_path / 'a.json')!r}, orient={orient!r}), out)"
    assert pd.read_json(tmp_path / "a.json", orient=orient).equals(frame)


def test_one_row_with_lists_or_objects_stays_a_row(tmp_path):
    row = {"tokens": [1, 2, 3], "tags": [0, 1, 0]}
    assert rows_of(put(tmp_path / "a.jsonl", row)) == [row]
    nested = {"left": {"x": 1}, "right": {"y": 2}}
    assert rows_of(put(tmp_path / "a.json", nested)) == [{"left/x": 1, "right/y": 2}]


@pytest.mark.parametrize(
    "text",
    ['[{"x": 1}', '[{"x": 1},\n', '[{"x": 1} {"x": 2}]', '{"a":\n [{"x": 1}]', '{"a"\n: [{"x": 1}],}', "{\n1: 2}"],
)
def test_broken_documents_are_corrupt(tmp_path, text):
    assert refused(put(tmp_path / "a.json", text)).code == "X524"


def test_values_that_are_not_rows_are_bad_rows(tmp_path):
    path = put(tmp_path / "a.json", '[{"x": 1},\n 2,\n {"x": 3, "x": 4}]')
    with pytest.raises(rk.RekordError) as caught:
        rk.write(path, tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.row) == ("E350", 1)
    result = rk.write(path, tmp_path / "out", progress=False, on_bad_row="reject", max_rejects=2, fresh=True)
    assert result.records == 1


def test_a_value_without_end_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("rekord.sources.lines.MAX_ROW_BYTES", 1 << 10)
    path = put(tmp_path / "a.json", '[{"x":\n "' + "a" * (3 << 20))
    assert refused(path).code == "E357"


def test_lists_of_objects_in_a_row_are_refused(tmp_path):
    path = put(tmp_path / "a.jsonl", '{"x": 1, "boxes": [{"w": 1}, {"w": 2}]}\n' * 2)
    failure = refused(path)
    assert (failure.code, failure.location.feature) == ("S130", "boxes")


def test_an_array_on_one_line_is_not_decoded_as_a_whole(tmp_path):
    path = put(tmp_path / "a.json", [{"x": i, "text": "ab" * 50} for i in range(60_000)])
    assert b"\n" not in path.read_bytes()
    source = rk.sources.jsonl(path)
    tracemalloc.start()
    assert source.facts().rows == 60_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The sample of rows and the pieces that are read; all rows take 30 MB.
    assert peak < 25_000_000
