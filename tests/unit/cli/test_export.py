"""`rekord export`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames

SCHEMA = rk.Schema({"id": rk.Int64(), "label": rk.Label(["cat", "dog"]), "blob": rk.Bytes()})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"id": i, "label": i % 2, "blob": b"x"} for i in range(10)]
    rk.write(rows, "ds", schema=SCHEMA, split={"train": 0.5, "val": 0.5}, split_by="id", progress=False)
    return tmp_path


def test_it_says_what_was_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["export", "ds", "val.parquet", "--split", "val"]) == 0
    printed = capsys.readouterr()
    records = len(rk.open("ds")["val"])
    assert printed.out.startswith(f"val.parquet: {records} records in 1 file, ")
    assert printed.err == ""
    assert pq.read_table("val.parquet").num_rows == records


def test_json_is_one_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["export", "ds", "out", "--format", "jsonl", "--limit", "2", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("seconds") >= 0
    assert document.pop("bytes") == sum(path.stat().st_size for path in Path("out").iterdir())
    assert document == {
        "out": "out",
        "format": "jsonl",
        "records": 4,
        "splits": {"train": 2, "val": 2},
        "files": 2,
        "left_out": [],
    }


def test_columns_and_labels_can_be_chosen(place: Path) -> None:
    arguments = ["--columns", "label,id", "--labels", "names", "--split", "train"]
    assert run_command_line(["export", "ds", "out.csv", *arguments]) == 0
    lines = Path("out.csv").read_text().splitlines()
    assert lines[0] == "label,id"
    first = next(iter(rk.open("ds")["train"]))
    assert lines[1] == f'"{["cat", "dog"][int(first["label"])]}",{int(first["id"])}'


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["ds", "out.parquet"], "U676: single file cannot hold 2 splits", 2),
        (["ds", "out.xyz"], "U605: cannot determine the format from the name of the output", 2),
        (["ds", "out.csv", "--split", "val"], "U676: `blob` cannot be written as CSV", 2),
        (
            ["ds", "out.parquet", "--split", "val", "--shard-size", "1MB"],
            "U605: `--shard-size` does not apply to parquet",
            2,
        ),
        (["ds", "out", "--format", "images"], "U676: dataset lacks columns that a folder of images needs", 2),
        (["ds", "out", "--format", "nothing"], "U605: `--format` cannot be 'nothing'", 2),
        (["ds", "taken.parquet", "--split", "val"], "U618: output already exists", 2),
        (["ds", "out.parquet", "--split", "test"], "X506", 3),
        (["nowhere", "out.parquet"], "X501", 3),
    ],
)
def test_a_failure_is_one_clear_message(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, exit_code: int
) -> None:
    Path("taken.parquet").write_bytes(b"mine")
    assert run_command_line(["export", *arguments]) == exit_code
    printed = capsys.readouterr()
    assert f" {code}" in printed.err.splitlines()[0]
    assert "\n  do " in printed.err
    assert printed.out == ""
    assert {path.name for path in place.iterdir()} == {"ds", "taken.parquet"}


def test_a_damaged_record_is_exit_code_1(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = frames(example_bytes({"id": [i]}) for i in range(9))
    Path("a.tfrecord").write_bytes(corrupt_payload(data, 4))
    assert run_command_line(["export", "a.tfrecord", "out.parquet", "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("FrameError F102: ")
    assert printed.err.endswith("nothing was written\n")
    document = json.loads(printed.out)["error"]
    assert (document["code"], document["location"]["record"]) == ("F102", 4)
    assert not Path("out.parquet").exists()


def test_what_images_have_no_place_for_is_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000")
    frames_of = frames([example_bytes({"image/encoded": [png], "weight": [3]})])
    Path("a.tfrecord").write_bytes(frames_of)
    assert run_command_line(["export", "a.tfrecord", "out"]) == 0
    assert capsys.readouterr().err == "left out: weight (images cannot hold them)\n"
    assert [path.name for path in Path("out").iterdir()] == ["000000000.png"]
