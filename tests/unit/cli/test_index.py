"""`rekord index`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rekord.cli.main import run_command_line
from rekord.testing import corrupt_length, example_bytes, frames

DATA = frames(example_bytes({"label": [i]}) for i in range(20))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    for shard in range(2):
        (data / f"train-{shard:05}-of-00002.tfrecord").write_bytes(DATA)
    return data


def test_each_index_is_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["index", str(folder), "--format", "vahidk"]) == 0
    printed = capsys.readouterr()
    names = [folder / "index-vahidk" / f"train-{shard:05}-of-00002.tfindex" for shard in range(2)]
    assert printed.out.splitlines() == [f"{name}  20 records" for name in names]
    assert printed.err == "wrote 2 index files for 2 files · 40 records\n"
    assert all(name.read_bytes().startswith(b"0 ") for name in names)
    assert run_command_line(["index", str(folder), "--format", "vahidk"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{name}  20 records  (unchanged)" for name in names]


def test_json_is_one_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["index", str(folder), "--json"]) == 0
    places = [str(folder / ".rekord" / "index" / f"train-{shard:05}-of-00002.tfrecord.arrow") for shard in range(2)]
    assert json.loads(capsys.readouterr().out) == {
        "format": "rekord",
        "files": 2,
        "records": 40,
        "written": places,
        "kept": [],
    }


def test_indexes_go_where_they_are_wanted(folder: Path, tmp_path: Path) -> None:
    assert run_command_line(["index", str(folder), "--format", "dali", "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "train-00000-of-00002.tfrecord.idx",
        "train-00001-of-00002.tfrecord.idx",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["data", "--format", "tf"], "U60", 2),
        (
            ["data", "-o", "out"],
            "U605: `--output` does not apply to rekord's own index, which is next to the files",
            2,
        ),
        (["packed.gz", "--format", "dali"], "U651: compressed file cannot have this kind of index", 2),
        (["nothing"], "X501", 3),
        (["damaged.tfrecord"], "F101", 3),
    ],
)
def test_what_fails_is_one_message(
    folder: Path,
    arguments: list[str],
    code: str,
    exit_code: int,
    compress: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("packed.gz").write_bytes(compress(DATA, "gzip"))  # type: ignore[operator]
    Path("damaged.tfrecord").write_bytes(corrupt_length(DATA, 5))
    assert run_command_line(["index", *arguments]) == exit_code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f" {code}" in printed.err.splitlines()[0]
    assert "\n  do " in printed.err
