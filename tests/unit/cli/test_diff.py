"""`rekord diff`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames

ROWS: list[dict[str, Any]] = [{"id": i, "name": f"row {i}", "score": i / 8} for i in range(100)]
SCHEMA = rk.Schema({"id": rk.Int64(), "name": rk.Text(), "score": rk.Float32()})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rk.write(ROWS, tmp_path / "a", schema=SCHEMA, progress=False)
    return tmp_path


def write(folder: Path, rows: list[dict[str, Any]], **options: Any) -> None:
    rk.write(rows, folder, progress=False, **{"schema": SCHEMA, **options})


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    printed = capsys.readouterr()
    assert printed.err == ""
    return [re.sub(r" in (less than )?[\d.]+ m?s$", " in TIME", line) for line in printed.out.splitlines()]


def test_what_is_the_same_is_one_line(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(data / "b", ROWS, shards=2)
    assert run_command_line(["diff", str(data / "a"), str(data / "b")]) == 0
    first, note = said(capsys)
    assert first.startswith("the same · 100 records · ")
    assert note == "note  `train` has 1 file in A and 2 files in B"


def test_equal_manifests_say_that_nothing_was_read(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(data / "a", data / "b")
    assert run_command_line(["diff", str(data / "a"), str(data / "b")]) == 0
    first, note = said(capsys)
    assert first.startswith("the same, according to their manifests · 100 records · 0 bytes")
    assert note.startswith("note  nothing was read: ")
    assert run_command_line(["diff", str(data / "a"), str(data / "b"), "--read"]) == 0
    assert len(said(capsys)) == 1


def test_differences_are_short_and_in_words(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*ROWS[2:], {"id": 500, "name": "new", "score": 1.0}]
    rows[3] = {**rows[3], "score": 9999.0}
    write(
        data / "b",
        [{**row, "extra": 1} for row in rows],
        schema=rk.Schema({**SCHEMA.features, "extra": rk.Int64()}),
    )
    assert run_command_line(["diff", str(data / "a"), str(data / "b"), "--key", "id"]) == 1
    lines = said(capsys)
    shard = "train-00000-of-00001.tfrecord"
    assert lines[:4] == [
        "records   100 → 99 records · 1 added · 2 removed · 98 changed",
        "          changed: extra in 98, score in 1",
        "schema    + extra  Int64",
        "features  score  mean 6.188 vs 107.3, max 12.375 vs 9999",
    ]
    assert lines[4] == f"examples  ~ id 2  {shard} record 0  extra: nothing → 1"
    assert lines[7] == f"          ~ id 5  {shard} record 3  extra: nothing → 1  score: 0.625 → 9999.0"
    assert f"          - id 0  {shard} record 0" in lines
    assert f"          + id 500  {shard} record 98" in lines
    assert lines[-1].startswith("A and B differ · ")


def test_splits_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payloads = [example_bytes({"x": [i]}) for i in range(10)]
    for side, splits in (
        ("a", {"train": payloads[:6], "val": payloads[6:]}),
        ("b", {"train": payloads[:8], "test": payloads[8:]}),
    ):
        (tmp_path / side).mkdir()
        for name, some in splits.items():
            (tmp_path / side / f"{name}.tfrecord").write_bytes(frames(some))
    assert run_command_line(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert said(capsys)[:4] == [
        "records   10 → 10 records · 4 in another split",
        "splits    ~ train  6 → 8 records",
        "          - val  4 records, only in A",
        "          + test  2 records, only in B",
    ]


def test_json_is_the_whole_of_it(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(data / "b", ROWS[1:])
    assert run_command_line(["diff", str(data / "a"), str(data / "b"), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document == rk.diff(data / "a", data / "b").to_dict()
    assert (document["same"], document["records"]["removed"]) == (False, 1)


def test_damage_makes_the_comparison_incomplete(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(data / "b", ROWS, shards=2)
    shard = data / "b" / "train-00001-of-00002.tfrecord"
    shard.write_bytes(corrupt_payload(shard.read_bytes(), 7))
    assert run_command_line(["diff", str(data / "a"), str(data / "b")]) == 1
    lines = said(capsys)
    assert lines[0] == "records   100 → 99 records · 1 removed"
    assert "F102  train-00001-of-00002.tfrecord  record 7   payload checksum does not match" in lines
    assert lines[-1].startswith("incomplete: only what could be read was compared · ")


def test_many_findings_are_counted(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(data / "b", ROWS)
    shard = data / "b" / "train-00000-of-00001.tfrecord"
    content = shard.read_bytes()
    for record in range(0, 60, 2):
        content = corrupt_payload(content, record)
    shard.write_bytes(content)
    assert run_command_line(["diff", str(data / "a"), str(data / "b"), "--read"]) == 1
    assert "… and 20 more that could not be read: rekord check lists them" in said(capsys)


def test_many_columns_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(frames([example_bytes({"x": [1]})]))
    (tmp_path / "b").write_bytes(frames([example_bytes({"x": [1], **{f"k{i:02}": [i] for i in range(30)}})]))
    assert run_command_line(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "          … and 20 more: --json lists them all" in said(capsys)


def test_names_and_values_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_bytes(frames([example_bytes({"id": [1], "\x1b[2J": [b"\x1b]0;x\x07"]})]))
    (tmp_path / "b").write_bytes(frames([example_bytes({"id": [1], "\x1b[2J": [b"y" * 500]})]))
    assert run_command_line(["diff", str(tmp_path / "a"), str(tmp_path / "b"), "--key", "id"]) == 1
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\\x1b[2J" in printed
    assert "y" * 61 not in printed


def test_a_key_that_is_not_there_is_wrong_usage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(data / "b", ROWS[1:])
    assert run_command_line(["diff", str(data / "a"), str(data / "b"), "--key", "nam"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines()[0] == "UsageError U606: no record of A has the key 'nam'"
    assert "  do        --key name" in printed.err.splitlines()


def test_a_missing_path_is_no_access(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["diff", str(data / "a"), str(data / "none")]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X501: ")


def test_two_places_are_needed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["diff", str(data / "a")]) == 2
    assert capsys.readouterr().err.startswith("UsageError U601: `rekord diff` needs B")
