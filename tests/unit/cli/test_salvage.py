"""`rekord salvage`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.health import MAX_LISTED_GAPS
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_length, corrupt_payload, example_bytes, frame_offsets, frames

GOOD = frames(example_bytes({"label": [i], "text": [b"row"]}) for i in range(20))
OFFSETS = frame_offsets(GOOD)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for shard in range(3):
        (data / f"train-{shard:05}-of-00003.tfrecord").write_bytes(GOOD)
    return data


def test_an_intact_folder_is_one_line_and_exit_code_0(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["salvage", str(folder), str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"all intact · kept 60 records · wrote {tmp_path / 'out'}/\n"
    assert printed.err == ""


def test_a_gap_is_a_line_and_exit_code_1(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "train-00001-of-00003.tfrecord"
    (folder / name).write_bytes(corrupt_payload(GOOD, 7))
    assert run_command_line(["salvage", str(folder), str(tmp_path / "out")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"F102  {name}  bytes {OFFSETS[7]:,} to {OFFSETS[8]:,}   payload checksum does not match · lost 1 record",
        f"kept 59 records · lost 1 · 1 gap · wrote {tmp_path / 'out'}/",
    ]
    assert rk.check(tmp_path / "out").ok


def test_what_a_search_found_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "x.tfrecord", tmp_path / "y.tfrecord"
    path.write_bytes(corrupt_length(GOOD, 7))
    assert run_command_line(["salvage", str(path), str(out)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"F101  {path}  bytes {OFFSETS[7]:,} to {OFFSETS[8]:,}   ")
    assert lines[0].endswith(" · resumed where a search found the next record")
    assert lines[1] == "12 records found by a search: identified by checksum alone"
    assert lines[2] == f"kept 19 records · lost an unknown number · 1 gap · wrote {out}"


def test_many_gaps_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = frames(b"%d" % i for i in range(300))
    broken = bytearray(data)
    for offset in frame_offsets(data)[1::2]:
        broken[offset + 12] ^= 1
    (tmp_path / "x.tfrecord").write_bytes(broken)
    assert run_command_line(["salvage", str(tmp_path / "x.tfrecord"), str(tmp_path / "y")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("F102  ") for line in lines) == MAX_LISTED_GAPS
    assert "… and 50 more gaps: --json lists them all" in lines
    assert lines[-1] == f"kept 150 records · lost 150 · 150 gaps · wrote {tmp_path / 'y'}"


def test_json_has_the_promised_fields(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = folder / "train-00001-of-00003.tfrecord"
    bad.write_bytes(corrupt_payload(GOOD, 7))
    assert run_command_line(["salvage", "--json", str(folder), str(tmp_path / "out")]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["kept"], report["lost_records"]) == (False, 59, 1)
    (gap,) = report["gaps"]
    assert (gap["path"], gap["begin"], gap["end"]) == (str(bad), OFFSETS[7], OFFSETS[8])
    assert (gap["message"], gap["code"]) == ("payload checksum does not match", "F102")
    assert run_command_line(["salvage", str(tmp_path / "out"), str(tmp_path / "again"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["kept"], report["lost_records"], report["gaps"]) == (59, 0, [])


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"PAR1" + bytes(60), "F112"), (GOOD[:20], "X540"), (bytes(range(7, 200)), "F120")],
)
def test_a_file_without_an_intact_record_is_exit_code_3(
    content: bytes, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(content)
    assert run_command_line(["salvage", str(path), str(tmp_path / "y")]) == 3
    printed = capsys.readouterr()
    assert f"Error {code}: " in printed.err.splitlines()[0]
    assert f"where     {path}" in printed.err
    assert "  do  " in printed.err
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize(
    ("out", "code"),
    [
        ("data", "U631: output and input overlap"),
        ("data/below", "U631: output and input overlap"),
        ("there", "U618: output already exists"),
    ],
)
def test_a_place_that_is_not_new_is_exit_code_2(
    out: str, code: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there").write_bytes(b"")
    assert run_command_line(["salvage", str(folder), str(tmp_path / out), "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"UsageError {code}\n")
    assert json.loads(printed.out)["error"]["location"]["path"] == str(tmp_path / out)


def test_a_missing_input_is_exit_code_3_and_a_missing_output_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["salvage", str(tmp_path / "no"), str(tmp_path / "out")]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X501: ")
    assert run_command_line(["salvage", str(tmp_path / "no")]) == 2
    assert "`rekord salvage` needs OUT" in capsys.readouterr().err


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a\x1b[31m.tfrecord").write_bytes(GOOD[:-1])
    assert run_command_line(["salvage", str(tmp_path / "in"), str(tmp_path / "o\x1b[0m")]) == 1
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "a\\x1b[31m.tfrecord" in printed.out
