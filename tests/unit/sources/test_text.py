"""Text files as rows, one a line."""

from __future__ import annotations

import gzip
import pickle
import random
from pathlib import Path

import pytest

import rekord as rk
from rekord.sources import lines
from rekord.sources.base import SourceRow, is_partitioned
from rekord.sources.lines import text


def file(folder: Path, content: str | bytes, name: str = "lines.txt") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(source, part_bytes: int = 1 << 26) -> list[tuple]:
    chunks = (
        (chunk for part in source.parts(part_bytes) for chunk in source.read(part))
        if is_partitioned(source)
        else source.rows()
    )
    out = []
    for chunk in chunks:
        if isinstance(chunk, SourceRow):
            out.append((chunk.path, chunk.position, chunk.line, chunk.values.code))
        else:
            values = chunk.values.column(0).to_pylist()
            out += [(chunk.path, chunk.first + i, chunk.line_of(i), value) for i, value in enumerate(values)]
    return out


def refusal(call) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("part_bytes", [1, 7, 1 << 26])
def test_rows_are_the_lines_that_hold_something(tmp_path, part_bytes):
    source = text(file(tmp_path, '\ufeffone, "two\n\n\r\n three \r\nfour\rfive\n\n\nsix'))
    assert rows(source, part_bytes) == [
        ("lines.txt", 0, 1, 'one, "two'),
        ("lines.txt", 1, 4, " three "),
        ("lines.txt", 2, 5, "four\rfive"),
        ("lines.txt", 3, 8, "six"),
    ]


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_the_same_for_any_parts_and_blocks(tmp_path, monkeypatch, seed):
    print("seed", seed)
    chosen = random.Random(seed)
    content = "".join(chosen.choice(["a", "é", "\r", "\n", "\r\n", "\n\n", " "]) for _ in range(300)) + "z"
    source = text(file(tmp_path, content))
    expected = [
        (line, value.removesuffix("\r"))
        for line, value in enumerate(content.split("\n"), 1)
        if value.removesuffix("\r")
    ]
    for part_bytes in (1, 30, 1000):
        assert [row[2:] for row in rows(source, part_bytes)] == expected
    real = lines.read_row_blocks
    for block_bytes in (1, 2, 5):
        monkeypatch.setattr(lines, "read_row_blocks", lambda *given, size=block_bytes: real(*given, block_bytes=size))
        assert [row[2:] for row in rows(source, 40)] == expected


def test_the_facts_are_known_before_rows_are_read(tmp_path):
    path = file(tmp_path, "a\n\nb\n")
    facts = text(path).facts()
    assert (facts.layout, facts.rows, facts.source_bytes) == ("text", 2, 5)
    assert facts.schema == rk.Schema({"text": rk.Text()})
    assert [one.path for one in facts.files] == ["lines.txt"]


def test_every_chunk_can_be_written_under_the_schema_of_the_facts(tmp_path):
    source = text(file(tmp_path, "".join(f"line é {i}\n" for i in range(100))))
    schema = source.facts().schema
    with rk.Writer(tmp_path / "out.tfrecord", schema) as writer:
        for part in source.parts(200):
            for chunk in source.read(part):
                writer.write_columns(chunk.values)
    decoded = [rk.decode(record, schema)["text"] for record in rk.records(tmp_path / "out.tfrecord")]
    assert decoded == [f"line é {i}" for i in range(100)]


def test_the_files_of_a_folder_come_in_the_order_of_their_paths(tmp_path):
    file(tmp_path, "two\n", "b.txt")
    file(tmp_path, "one\n", "a/x.txt")
    file(tmp_path, "", "a/empty.txt")
    file(tmp_path, "no\n", "c.md")
    source = text(tmp_path)
    assert rows(source) == [("a/x.txt", 0, 1, "one"), ("b.txt", 0, 1, "two")]
    assert len(source.parts(1)) == 2
    assert len(source.parts()) == 1


def test_a_source_and_its_parts_survive_pickling(tmp_path):
    source = text(file(tmp_path, "a\nb\n"))
    assert pickle.loads(pickle.dumps(source)) == source
    assert pickle.loads(pickle.dumps(source.parts())) == source.parts()


def test_a_compressed_file_has_the_same_rows_and_no_parts(tmp_path):
    content = "one\n\ntwo\r\nthree"
    zipped = text(file(tmp_path, gzip.compress(content.encode()), "lines.txt.gz"))
    assert not is_partitioned(zipped)
    assert zipped.facts().schema == rk.Schema({"text": rk.Text()})
    assert rows(zipped) == [
        ("lines.txt.gz", 0, 1, "one"),
        ("lines.txt.gz", 1, 3, "two"),
        ("lines.txt.gz", 2, 4, "three"),
    ]


def test_lines_that_are_not_utf8_are_bad_and_the_others_go_on(tmp_path):
    path = file(tmp_path, b"one\ncaf\xe9\n\ntwo\n\xff\xff\nthree")
    source = text(path)
    assert [row[1:] for row in rows(source)] == [
        (0, 1, "one"),
        (1, 2, "E353"),
        (2, 4, "two"),
        (3, 5, "E353"),
        (4, 6, "three"),
    ]
    bad = [chunk for part in source.parts() for chunk in source.read(part) if isinstance(chunk, SourceRow)]
    assert [(one.values.location.path, one.values.location.line) for one in bad] == [
        (str(path), 2),
        (str(path), 5),
    ]


def test_a_line_that_is_too_large_is_bad(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "MAX_ROW_BYTES", 100)
    source = text(file(tmp_path, "one\n" + "x" * 5000 + "\ntwo\n"))
    source.facts()
    real = lines.read_row_blocks
    monkeypatch.setattr(lines, "read_row_blocks", lambda *given: real(*given, block_bytes=64))
    assert [row[1:] for row in rows(source)] == [(0, 1, "one"), (1, 2, "E357"), (2, 3, "two")]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "X520"),
        (b"\n\r\n", "X520"),
        (b"a\0b", "X521"),
        (b"\xff\xfea", "X585"),
        (gzip.compress(b"a", mtime=0), "X521"),
    ],
)
def test_a_file_without_text_is_refused_by_name(tmp_path, content, code):
    path = file(tmp_path, content)
    failure = refusal(text(path).facts)
    assert (failure.code, failure.location.path) == (code, str(path))
    zipped = file(tmp_path, gzip.compress(content), "lines.txt.gz")
    failure = refusal(text(zipped).facts)
    assert (failure.code, failure.location.path) == (code, str(zipped))


def test_a_path_that_is_not_there_is_refused(tmp_path):
    assert refusal(text(tmp_path / "none.txt").facts).code == "X501"


def test_a_file_that_changed_since_it_was_looked_at_is_refused(tmp_path):
    path = file(tmp_path, "a\nb\n")
    source = text(path)
    (part,) = source.parts()
    path.write_text("a\n")
    failure = refusal(lambda: list(source.read(part)))
    assert (failure.code, failure.location.path) == ("X526", str(path))


def test_a_damaged_gzip_file_is_refused_by_name(tmp_path):
    path = file(tmp_path, gzip.compress(b"a line\n" * 100)[:-12], "lines.txt.gz")
    failure = refusal(lambda: rows(text(path)))
    assert (failure.code, failure.location.path) == ("X524", str(path))
