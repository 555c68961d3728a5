"""Text files that are not in UTF-8."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.sources import csv, jsonl, text
from rekord.sources.base import is_partitioned
from rekord.sources.lines import check_encoding

TABLE = "ort,n\nKöln,1\nZürich,2\n"
LINES = "Köln\nZürich\n"
OBJECTS = '{"ort": "Köln"}\n{"ort": "Zürich"}\n'


def values(source: Any) -> list[Any]:
    if is_partitioned(source):
        chunks = [chunk for part in source.parts(1) for chunk in source.read(part)]
    else:
        chunks = list(source.rows())
    out: list[Any] = []
    for chunk in chunks:
        out += [chunk.values] if isinstance(chunk.values, dict) else chunk.values.to_pylist()
    return out


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize(
    ("make", "name", "content", "column"),
    [(csv, "t.csv", TABLE, "ort"), (jsonl, "t.jsonl", OBJECTS, "ort"), (text, "t.txt", LINES, "text")],
)
def test_texts_are_the_same_in_any_encoding(
    tmp_path: Path, make: Any, name: str, content: str, column: str, encoding: str, ending: str
) -> None:
    path = put(tmp_path, name + ending, content.encode(encoding))
    source = make(path, encoding=encoding)
    assert [row[column] for row in values(source)] == ["Köln", "Zürich"]
    assert source.options()["encoding"] == check_encoding(encoding)


@pytest.mark.parametrize(
    ("make", "name", "content"), [(csv, "t.csv", TABLE), (jsonl, "t.jsonl", OBJECTS), (text, "t.txt", LINES)]
)
def test_a_byte_order_mark_of_utf_16_is_recognised_and_reported(
    tmp_path: Path, make: Any, name: str, content: str
) -> None:
    source = make(put(tmp_path, name, content.encode("utf-16")))
    assert [next(iter(row.values())) for row in values(source)] == ["Köln", "Zürich"]
    (guess,) = [one for one in source.facts().guesses if one.column is None]
    assert guess.what == f"{name} is in UTF-16: it starts with a byte order mark"


def test_a_byte_order_mark_of_utf_8_is_reported(tmp_path: Path) -> None:
    source = csv(put(tmp_path, "t.csv", TABLE.encode("utf-8-sig")))
    assert list(source.facts().schema or ()) == ["ort", "n"]
    assert [one.what for one in source.facts().guesses] == [
        "t.csv starts with a byte order mark, which is not part of the text"
    ]


def test_rows_do_not_depend_on_parts_or_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "a,b\n" + "".join(f'{i},"ü\n{i}"\n' for i in range(500))
    source = csv(put(tmp_path, "t.csv", content.encode("utf-16")))
    expected = [{"a": i, "b": f"ü\n{i}"} for i in range(500)]
    assert values(source) == expected
    monkeypatch.setattr("rekord.sources.lines.READ_BYTES", 3)  # in the middle of characters
    assert values(source) == expected


def test_a_dataset_from_latin_1_has_the_same_records_as_from_utf_8(tmp_path: Path) -> None:
    plain = put(tmp_path, "a.csv", TABLE.encode())
    other = put(tmp_path, "b.csv", TABLE.encode("latin-1"))
    rk.write(plain, tmp_path / "plain", progress=False)
    for workers in (1, 2):
        out = tmp_path / f"other{workers}"
        rk.write(other, out, encoding="latin-1", workers=workers, progress=False)
        name = "train-00000-of-00001.tfrecord"
        assert (out / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_another_encoding_is_another_plan(tmp_path: Path) -> None:
    path = put(tmp_path, "t.txt", LINES.encode("latin-1"))
    rk.write(path, tmp_path / "out", encoding="latin-1", progress=False)
    with pytest.raises(rk.UsageError) as caught:
        rk.write(path, tmp_path / "out", encoding="cp1252", progress=False)
    assert "`source`" in str(caught.value)


@pytest.mark.parametrize("encoding", ["lattin-1", "rot13", "base64", "punycode", "", 3])
def test_an_unknown_encoding_is_refused(tmp_path: Path, encoding: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        csv(put(tmp_path, "t.csv", b"a\n1\n"), encoding=encoding)
    assert (caught.value.code, caught.value.do) == ("U605", 'encoding="latin-1"')


@pytest.mark.parametrize(
    ("data", "encoding", "line", "found"),
    [
        (b"a,b\n1,x\n2,\x81\n", "cp1252", 3, "bytes 81 0a"),
        ("a,b\n1,x\n".encode("utf-16")[:-1], None, 2, "bytes 0a"),
        (b"a,b\n1,\xe9\n", "ascii", 2, "bytes e9 0a"),
        (b"\xef\xbb\xbfa\n1\n", "latin-1", None, "the byte order mark of UTF-8"),
    ],
)
def test_bytes_that_do_not_fit_name_their_line(
    tmp_path: Path, data: bytes, encoding: str | None, line: int | None, found: str
) -> None:
    path = put(tmp_path, "t.csv", data)
    with pytest.raises(rk.DatasetError) as caught:
        csv(path, encoding=encoding).facts()
    failure = caught.value
    assert (failure.code, failure.location.path, failure.location.line) == ("X585", str(path), line)
    assert failure.found == found


@pytest.mark.parametrize(("byte", "encoding"), [(b"\xe9", "latin-1"), (b"\x93", "cp1252")])
def test_contentthat_is_not_utf_8_proposes_an_encoding_that_works(tmp_path: Path, byte: bytes, encoding: str) -> None:
    path = put(tmp_path, "t.txt", b"one\ntwo " + byte + b" three\n")
    source: Any = text(path)
    (problem,) = [
        chunk.values
        for part in source.parts()
        for chunk in source.read(part)
        if isinstance(chunk.values, rk.RekordError)
    ]
    assert (problem.code, problem.location.line, problem.do) == ("E353", 2, f'encoding="{encoding}"')
    assert len(values(text(path, encoding=encoding))) == 2


def test_an_encoding_is_for_paths_of_texts(tmp_path: Path) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.write([{"a": 1}], tmp_path / "out", encoding="latin-1", progress=False)
    assert caught.value.what == "`encoding` does not apply to rows that are not read from a path"
    import numpy as np

    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(rk.UsageError) as caught:
        rk.write(tmp_path / "x.npy", tmp_path / "out", encoding="latin-1", progress=False)
    assert (caught.value.code, caught.value.do) == ("U605", "leave encoding= out")


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("名前,値\n東京,1\n", "shift_jis"),
        ("姓名,值\n北京,1\n", "gb18030"),
        ("이름,값\n서울,1\n", "euc_kr"),
        ("имя,число\nМосква,1\n", "cp1251"),
        ("名前,値\n東京,1\n", "euc_jp"),
    ],
)
def test_no_encoding_of_western_europe_is_proposed_for_other_scripts(
    tmp_path: Path, content: str, encoding: str
) -> None:
    path = put(tmp_path, "t.csv", content.encode(encoding))
    with pytest.raises(rk.DatasetError) as caught:
        csv(path).facts()
    failure = caught.value
    assert (failure.code, failure.location.path, failure.location.line) == ("X522", str(path), 1)
    assert failure.do == 'save the file in UTF-8, or name its encoding, such as encoding="shift_jis"'
    column, number = content.split("\n")[0].split(",")
    expected = [{column: content.split("\n")[1].split(",")[0], number: 1}]
    assert values(csv(path, encoding=encoding)) == expected


@pytest.mark.parametrize(
    ("line", "encoding"),
    [("Größe", "latin-1"), ("l’été", "cp1252"), ("“quoted” – text", "cp1252"), ("naïve café", "latin-1")],
)
def test_an_encoding_of_western_europe_is_proposed_for_its_texts(tmp_path: Path, line: str, encoding: str) -> None:
    path = put(tmp_path, "t.csv", f"{line},n\nx,1\n".encode("cp1252"))
    with pytest.raises(rk.DatasetError) as caught:
        csv(path).facts()
    assert (caught.value.code, caught.value.do) == ("X522", f'encoding="{encoding}"')
    assert caught.value.location.path == str(path)
