"""`rekord adopt`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rekord.cli.main import run_command_line
from rekord.testing import example_bytes, frames


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    for name, count in (("train-00000-of-00001", 20), ("val-00000-of-00001", 5)):
        records = [example_bytes({"id": [i], "label": [i % 2]}) for i in range(count)]
        (tmp_path / "data" / f"{name}.tfrecord").write_bytes(frames(records))
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    return tmp_path / "data"


def test_the_summary_names_splits_schema_and_what_is_next(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["adopt", "data", "--label-map", "names.txt", "--workers", "2"]) == 0
    printed = capsys.readouterr()
    assert re.sub(r", in .*$", ", in TIME", printed.out, flags=re.MULTILINE).splitlines() == [
        "data: 25 records, 1.2 kB, in TIME",
        "  train  20 records  1 shard  940 bytes",
        "  val     5 records  1 shard  235 bytes",
        "schema: 2 columns, inferred",
        "next: rekord check data",
    ]
    assert printed.err == "reading 1.2 kB\n"
    assert run_command_line(["check", "data"]) == 0


def test_notes_go_to_stderr_and_into_the_json_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["adopt", "data", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["splits"]["train"] == {"records": 20, "shards": 1, "bytes": 940}
    assert (document["dataset"], document["schema"], document["index"]) == ("data", "inferred", [])
    assert document["notes"] == [
        "`label` holds integers; if they are class ids: rekord adopt data --rebuild --label label --label-map FILE"
    ]
    assert isinstance(document["seconds"], float)
    assert run_command_line(["adopt", "data", "--rebuild"]) == 0
    assert f"note: {document['notes'][0]}" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["missing"], "X501", 3),
        (["data/train-00000-of-00001.tfrecord"], "U605", 2),
        (["data", "--label", "lable"], "U605", 2),
        (["data", "--kind", "text"], "U60", 2),
        (["data", "--label-map", "missing.txt"], "X501", 3),
        (["data", "--schema", "names.txt"], "S", 3),
    ],
)
def test_wrong_usage_is_one_message(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, exit_code: int
) -> None:
    assert run_command_line(["adopt", *arguments]) == exit_code
    printed = capsys.readouterr()
    assert re.match(rf"\w+ {code}", printed.err), printed.err
    assert "Traceback" not in printed.err


def test_advice_names_flags(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["adopt", "data"]) == 0
    assert run_command_line(["adopt", "data"]) == 2
    assert (
        "  do        --rebuild to replace it and the indexes; the shards are not changed" in capsys.readouterr().err
    )
    (folder / "train-00000-of-00002.tfrecord").write_bytes(b"")
    assert run_command_line(["adopt", "data", "--rebuild"]) == 3
    assert "  do        --allow-missing      (or fetch the missing files)" in capsys.readouterr().err


def test_bad_records_are_exit_code_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "train-00000-of-00001.tfrecord"
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert run_command_line(["adopt", "data"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("FrameError F101:")
    assert lines[-2:] == ["  do        rekord salvage data data-repaired", "nothing was written"]
    path.write_bytes(whole)
    (folder.parent / "names.txt").write_text("cat\n")
    assert run_command_line(["adopt", "data", "--label-map", "names.txt"]) == 1
    assert "DatasetError X588: class id 1 of `label` has no name" in capsys.readouterr().err
