"""Folders of texts: a row per file, with the folder as class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.detect import detect_source, identify_source


def put(path: Path, data: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def rows_of(source: Any) -> list[Any]:
    return [row.values for part in source.parts(64) for row in source.read(part)]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    for split in ("train", "test"):
        for name in ("neg", "pos"):
            for i in range(3):
                put(tmp_path / "reviews" / split / name / f"{i}.txt", f"{split} {name}\n\nline {i}\r\n")
    return tmp_path / "reviews"


def test_a_file_is_a_row_with_its_folder_as_class(reviews, tmp_path):
    source = detect_source(reviews)
    assert source.kind == "text_files"
    rows = rows_of(source)
    assert rows[4] == {
        "text": "test pos\n\nline 1\r\n",
        "filename": "test/pos/1.txt",
        "label": "pos",
        "split": "test",
    }
    assert source.facts().splits == ("train", "test")
    rk.write(reviews, tmp_path / "out", split="source", progress=False)
    dataset = rk.open(tmp_path / "out")
    assert {name: len(dataset[name]) for name in dataset.splits} == {"train": 6, "test": 6}
    assert sorted(int(row["label"]) for row in dataset["train"]) == [0, 0, 0, 1, 1, 1]
    assert dataset.schema["label"] == rk.Label(["neg", "pos"])


def test_markdown_and_html_are_kept_as_they_are(tmp_path):
    page = "<html><body>&lt;b&gt; <b>ü</b></body></html>"
    put(tmp_path / "a" / "1.html", page)
    put(tmp_path / "a" / "2.md", "# Title\n\n*text*\n")
    source = detect_source(tmp_path / "a")
    assert [row["text"] for row in rows_of(source)] == [page, "# Title\n\n*text*\n"]
    assert identify_source(tmp_path / "a" / "1.html").kind == "text_files"
    assert "label" not in source.facts().schema


def test_texts_in_one_folder_stay_lines(tmp_path):
    put(tmp_path / "a" / "1.txt", "one\ntwo\n")
    put(tmp_path / "a" / "2.txt", "three\n")
    assert identify_source(tmp_path / "a").kind == "text"


def test_what_a_folder_was_taken_for_is_reported(reviews):
    (guess,) = identify_source(reviews).guesses
    assert guess.do == f"for a row per line: rk.sources.text('{reviews}')"
    assert identify_source(reviews, layout="text").kind == "text"


def test_byte_order_marks_name_the_encoding(tmp_path):
    for name, encoding in (("1.md", "utf-8-sig"), ("2.md", "utf-16")):
        put(tmp_path / "a" / name, "café".encode(encoding))
    assert [row["text"] for row in rows_of(rk.sources.text_files(tmp_path / "a"))] == ["café", "café"]


def test_an_encoding_can_be_named(tmp_path, capsys):
    path = put(tmp_path / "a" / "1.md", "caf\xe9".encode("latin-1"))
    put(tmp_path / "a" / "2.md", "x")
    with pytest.raises(rk.RekordError) as caught:
        rk.write(tmp_path / "a", tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path, caught.value.do) == (
        "E353",
        str(path),
        'encoding="latin-1"',
    )
    out = tmp_path / "out"
    assert run_command_line(["write", str(tmp_path / "a"), str(out), "--encoding", "latin-1"]) == 0, (
        capsys.readouterr()
    )
    assert [row["text"] for row in rk.open(out)["train"]] == ["café", "x"]


def test_the_files_that_are_not_text_are_bad_rows(tmp_path):
    put(tmp_path / "a" / "1.md", "good")
    path = put(tmp_path / "a" / "2.md", b"\x89PNG\0\0")
    wide = put(tmp_path / "a" / "3.md", "ab".encode("utf-16-le"))
    rows = rows_of(rk.sources.text_files(tmp_path / "a"))
    assert [(row.code, row.location.path) for row in rows[1:]] == [("E353", str(path)), ("E353", str(wide))]
    assert rows[2].do == 'encoding="utf-16-le"'


def test_class_names_can_be_given(reviews):
    source = rk.sources.text_files(reviews, classes=["pos", "neg", "other"])
    assert source.facts().schema["label"] == rk.Label(["pos", "neg", "other"])


def test_no_files_are_refused(tmp_path):
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.text_files(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X520", str(tmp_path))
