"""`rekord check`."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from rekord.cli.main import run_command_line
from rekord.testing import (
    bytes_list,
    corrupt_length,
    corrupt_payload,
    drop_bytes,
    entry,
    example,
    example_bytes,
    feature,
    features,
    float_list,
    frame_offsets,
    frames,
    int64_list,
)


def rows(first: int) -> bytes:
    """Twenty records that no other number gives, all of the same size."""
    return frames(example_bytes({"label": [first + i], "text": [b"row"]}) for i in range(20))


GOOD = rows(0)
ODD = frames(
    example(features([entry("a", feature(("int64", int64_list([1])), ("float", float_list([number]))))]))
    for number in (2.0, 3.0, 4.0)
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for shard in range(3):
        (data / f"train-{shard:05}-of-00003.tfrecord").write_bytes(rows(20 + 20 * shard))
    return data


def shard(folder: Path, number: int) -> Path:
    return folder / f"train-{number:05}-of-00003.tfrecord"


def image(number: int) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    PIL.Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_after_a_good_dataset_it_is_said_what_only_the_doctor_looks_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["check", str(folder)]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    (line, hint) = printed.out.splitlines()
    assert line.startswith("all good · 3 files · 60 records · ")
    assert hint == (
        f"check does not detect labels stored as floats, numbers stored as text or raw pixels: rekord doctor {folder}"
    )


def test_json_of_a_good_dataset_is_one_document(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["check", str(folder), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["ok"] is True
    assert printed.err == ""


def test_damage_is_said_with_file_record_and_byte(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 1).write_bytes(corrupt_payload(GOOD, 7))
    assert run_command_line(["check", str(folder)]) == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    offset = frame_offsets(GOOD)[7]
    assert lines[0] == (
        f"F102  train-00001-of-00003.tfrecord  record 7 (train 27)  byte {offset:,}   payload checksum does not match"
    )
    assert lines[1].startswith("      expected  masked crc32c ")
    assert any(line.startswith("      do        ") for line in lines)
    assert lines[-2].startswith("1 finding · 59 of 60 records good · ")
    assert lines[-1] == f"next: rekord doctor {folder}"
    assert printed.err == ""


def test_where_the_loss_is_not_known_no_total_is_claimed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 2).write_bytes(GOOD[:-5])
    assert run_command_line(["check", str(folder)]) == 1
    assert "1 finding · 59 records good, 1 or more damaged · " in capsys.readouterr().out


def test_bytes_lost_across_records_are_not_counted_as_one_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offsets = frame_offsets(GOOD)
    shard(folder, 1).write_bytes(drop_bytes(GOOD, offsets[2] + 14, offsets[5] + 20))
    assert run_command_line(["check", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("F102  train-00001-of-00003.tfrecord  record 2 (train 22)  ")
    assert "1 finding · 56 records good, 1 or more damaged · " in printed


def test_damage_in_the_last_record_is_one_record(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 1).write_bytes(corrupt_payload(GOOD, 19))
    assert run_command_line(["check", str(folder)]) == 1
    assert "1 finding · 59 of 60 records good · " in capsys.readouterr().out


def test_json_holds_every_field_of_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 1).write_bytes(corrupt_payload(GOOD, 7))
    assert run_command_line(["check", "--json", str(folder)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["files"], report["records"], report["errors"]) == (False, 3, 59, 1)
    (finding,) = report["findings"]
    assert (finding["code"], finding["severity"]) == ("F102", "error")
    assert (finding["path"], finding["record"]) == (str(shard(folder, 1)), 7)
    assert (finding["offset"], finding["feature"]) == (frame_offsets(GOOD)[7], None)
    assert finding["message"] == "payload checksum does not match"
    assert {"expected", "found", "likely", "do", "count"} <= set(finding)


def test_json_of_a_good_dataset(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["check", "--json", str(folder)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["files"], report["records"], report["findings"]) == (True, 3, 60, [])


def test_warnings_and_notes_are_told_apart_and_are_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.tfrecord").write_bytes(ODD)
    (tmp_path / "none.tfrecord").write_bytes(b"")
    assert run_command_line(["check", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("H703  none.tfrecord")
    assert "   note: file has no records" in lines[0]
    assert lines[1].startswith("H722  odd.tfrecord ")
    assert "feature `a`   warning: " in lines[1]
    assert lines[1].endswith("(in 3 records)")
    assert lines[-2].startswith("no errors · 1 warning, 1 note · 2 files · 3 records · ")
    assert lines[-1] == "next: rekord explain H722"


@pytest.mark.parametrize(
    ("payloads", "code", "said"),
    [
        ([{"a": [1], "b": [2]}] * 3, "H789", "3 of 3 rows are duplicates"),
        (
            [{"x": [image(i % 30)]} for i in range(60)],
            "H786",
            "duplicate `x`: 10 more",
        ),
    ],
)
def test_a_message_that_says_how_many_is_not_followed_by_a_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], payloads: list[dict[str, list]], code: str, said: str
) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frames(map(example_bytes, payloads)))
    assert run_command_line(["check", str(tmp_path), "--max-findings", "100"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(code)]
    assert lines[-1].endswith(f": {said}")


def test_an_empty_shard_is_said_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 1).write_bytes(b"")
    assert run_command_line(["check", str(folder)]) == 0
    codes = [line[:4] for line in capsys.readouterr().out.splitlines() if line.startswith("H")]
    assert codes == ["H781"]
    assert run_command_line(["check", str(shard(folder, 1))]) == 0
    codes = [line[:4] for line in capsys.readouterr().out.splitlines() if line.startswith("H")]
    assert codes == ["H703"]


def test_errors_beside_warnings_are_counted_apart(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 0).write_bytes(b"")
    shard(folder, 1).write_bytes(corrupt_length(GOOD, 3))
    assert run_command_line(["check", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("2 findings (1 error, 1 warning) · ")
    assert lines[-1] == f"next: rekord doctor {folder}"


def test_a_payload_that_protobuf_refuses_is_not_a_good_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(GOOD + frames([b"\x0a\xff"]))
    assert run_command_line(["check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"W201  {path}  record 20  ")
    assert "1 finding · 20 of 21 records good · " in lines[-2]


def many_damaged(times: int) -> bytes:
    data = b"".join(rows(20 * i) for i in range(10, 10 + times))
    for index in range(0, 20 * times, 2):
        data = corrupt_payload(data, index)
    return data


def test_many_findings_are_grouped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 0).write_bytes(many_damaged(2))
    shard(folder, 2).write_bytes(corrupt_payload(GOOD, 3))
    assert run_command_line(["check", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    found = [line for line in lines if line.startswith("F102  train")]
    assert len(found) == 11
    assert "train-00002" in found[-1]  # a file with errors is named, however many others have had
    assert sum(line.startswith("      do  ") for line in lines) == 10
    assert "F102  10 more like this in 1 file" in lines
    assert "--max-findings 21 lists them all" in lines
    assert any(line.startswith("21 findings · ") for line in lines)


@pytest.mark.parametrize(("requested", "listed"), [(0, 0), (3, 3), (15, 15), (21, 21), (1000, 21)])
def test_max_findings_lists_so_many_and_counts_the_rest(
    requested: int, listed: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard(folder, 0).write_bytes(many_damaged(2))
    shard(folder, 2).write_bytes(corrupt_payload(GOOD, 3))
    assert run_command_line(["check", str(folder), "--max-findings", str(requested)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("F102  train") for line in lines) == listed
    assert any(line.startswith("21 findings · ") for line in lines)

    assert run_command_line(["check", str(folder), "--json", "--max-findings", str(requested)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (len(report["findings"]), report["not_listed"], report["errors"]) == (listed, 21 - listed, 21)


def test_several_paths_are_checked_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shard(folder, 1).write_bytes(corrupt_payload(GOOD, 7))
    assert run_command_line(["check", str(shard(folder, 0)), str(shard(folder, 1))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"F102  {shard(folder, 1)}  record 7 (train 27)  ")
    assert "39 of 40 records good" in lines[-2]


def test_a_file_of_another_format_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.tfrecord"
    path.write_bytes(b"<!DOCTYPE html><html><body>404</body></html>")
    assert run_command_line(["check", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"F111  {path}  ")
    assert lines[-2].startswith("1 finding · 0 records good · ")


@pytest.mark.parametrize(("name", "code"), [("missing", "X501"), ("empty", "X502")])
def test_a_path_without_records_is_exit_code_3(
    name: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert run_command_line(["check", str(tmp_path / name)]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"DatasetError {code}: ")
    assert f"where     {tmp_path / name}" in printed.err


def test_a_file_that_cannot_be_opened_is_a_finding_and_exit_code_3(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shard(folder, 1).unlink()
    shard(folder, 1).symlink_to(folder / "gone")
    assert run_command_line(["check", str(folder), "--json"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert (report["files"], report["records"], report["unreadable"]) == (3, 40, 1)
    (finding,) = report["findings"]
    assert (finding["code"], finding["path"]) == ("X501", str(shard(folder, 1)))


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a\x1b[31m\n.tfrecord").write_bytes(GOOD[:-1])
    payload = example(
        features([entry("k\x1b]0;x\x07", feature(("int64", int64_list([1])), ("bytes", bytes_list([b"x"]))))])
    )
    (data / "b.tfrecord").write_bytes(frames([payload]))
    (data / os.fsdecode(b"c\xff.tfrecord")).write_bytes(rows(20)[:-1])
    assert run_command_line(["check", str(data)]) == 1
    printed = capsys.readouterr()
    assert not {"\x1b", "\x07"} & set(printed.out + printed.err)
    assert "a\\x1b[31m\\n.tfrecord" in printed.out
    assert "c\\xff.tfrecord" in printed.out
    assert "feature `k\\x1b]0;x\\x07`" in printed.out

    assert run_command_line(["check", "--json", str(data)]) == 1
    text = capsys.readouterr().out
    assert text.isascii()
    assert "\x1b" not in text
    assert len(json.loads(text)["findings"]) == 3

    assert run_command_line(["check", str(data / "missing\x1b[31m")]) == 3
    assert "\x1b" not in capsys.readouterr().err
