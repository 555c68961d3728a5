"""`rekord doctor` on the command line: what it says, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import damage, wire

GOOD = damage.frames([wire.example_bytes({"id": [i], "name": [b"row %d" % i]}) for i in range(100)])
FLOATS = damage.frames([wire.example_bytes({"label": [float(i % 3)], "x": [0.5, 1.5]}) for i in range(100)])
SPEC = """import tensorflow as tf

SPEC = {
    "label": tf.io.FixedLenFeature([], tf.int64),
    "x": tf.io.FixedLenFeature([2], tf.float32),
}
raise SystemExit("this file is never run")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.tfrecord").write_bytes(GOOD)
    Path("floats.tfrecord").write_bytes(FLOATS)
    Path("broken.tfrecord").write_bytes(damage.corrupt_payload(GOOD, 7))
    Path("reader.py").write_text(SPEC)
    return tmp_path


def test_a_good_file_has_nothing_wrong(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["doctor", "good.tfrecord"]) == 0
    assert capsys.readouterr().out == "nothing wrong · 1 file · 100 records · 3.5 kB\n"


def test_a_diagnosis_is_told_like_a_colleague_would(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["doctor", "broken.tfrecord"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "H804  bytes changed after the file was written",
        "  where     broken.tfrecord, record 7, byte 350",
        "  evidence  record 7, at byte 350: the checksum of its payload does not match",
        "            1 place in the file, 99 records intact",
        "            the next frame, at byte 400, is intact",
        "  ruled out not truncation: intact records follow the damage",
        "            not compression: the file starts with a valid record header",
        "  likely    bytes changed in place: a bad disk, memory or transfer, or a program",
        "  do        copy the file again from its source; "
        "`rekord salvage broken.tfrecord broken-repaired.tfrecord` keeps the intact records",
        "  tf says   corrupted record at 362",
        "",
        "1 error · 1 file · 99 records · 3.5 kB",
        "next: rekord explain H804",
    ]


def test_with_a_spec_each_feature_is_judged_and_a_spec_that_works_is_printed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["doctor", "floats.tfrecord", "--spec", "reader.py:SPEC"]) == 1
    said = capsys.readouterr().out
    assert said.startswith("H814  `label` holds integers stored as floats\n")
    assert (
        "  tf says   Name: <unknown>, Key: label, Index: 0.  "
        "Data types don't match. Data type: float but expected type: int64\n"
    ) in said
    assert (
        "TensorFlow, per feature:\n"
        "  label  fails in 100 records\n"
        "      spec      tf.io.FixedLenFeature([], tf.int64)\n"
        "      works     tf.io.FixedLenFeature([], tf.float32)\n"
        "  x      parses\n"
    ) in said
    assert (
        "{\n"
        '    "label": tf.io.FixedLenFeature([], tf.float32),\n'
        '    "x": tf.io.FixedLenFeature([2], tf.float32),\n'
        "}\n"
    ) in said


def test_json_is_one_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["doctor", "floats.tfrecord", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["files"], document["records"]) == (False, 1, 100)
    (diagnosis,) = document["diagnoses"]
    assert (diagnosis["code"], diagnosis["path"], diagnosis["records_affected"]) == (
        "H814",
        "floats.tfrecord",
        100,
    )
    assert diagnosis["tensorflow_error"] is None


def test_notes_are_told_and_are_no_failure(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.tfrecord").write_bytes(damage.frames([b"line %d of a text" % i for i in range(9)]))
    assert run_command_line(["doctor", "text.tfrecord"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("H811  note: the payloads are plain text, not tf.train.Example\n")
    assert "1 note · 1 file · 9 records" in said


def test_a_schema_can_be_given(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rk.Schema({"label": rk.Label(3), "x": rk.Float32(shape=(2,))}).save("schema.json")
    assert run_command_line(["doctor", "floats.tfrecord", "--schema", "schema.json"]) == 1
    assert "  label  fails in 100 records\n" in capsys.readouterr().out


def test_several_files_are_one_case(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["doctor", "good.tfrecord", "broken.tfrecord"]) == 1
    assert "1 error · 2 files · 199 records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["missing.tfrecord"], "X501", 3),
        (["good.tfrecord", "--schema", "missing.json"], "X501", 3),
        (["good.tfrecord", "--max"], "U601", 2),
        ([], "U601", 2),
    ],
)
def test_wrong_usage_and_missing_files_are_one_clear_message(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, exit_code: int
) -> None:
    assert run_command_line(["doctor", *arguments]) == exit_code
    said = capsys.readouterr()
    assert said.out == ""
    assert f" {code}: " in said.err.splitlines()[0]
    assert "Traceback" not in said.err


def test_a_spec_that_is_not_there_is_a_clear_message(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["doctor", "good.tfrecord", "--spec", "reader.py:SPCE"]) in (2, 3)
    assert "SPEC" in capsys.readouterr().err


def test_names_from_a_file_cannot_steer_the_terminal(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "la\x1b[31mbel"
    data = damage.frames([wire.example_bytes({hostile: [1.0] if i else [1]}) for i in range(30)])
    Path("hostile.tfrecord").write_bytes(data)
    assert run_command_line(["doctor", "hostile.tfrecord"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_a_very_long_key_is_cut(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = damage.frames([wire.example_bytes({"k" * 100_000: [1.0] if i else [1]}) for i in range(30)])
    Path("long.tfrecord").write_bytes(data)
    assert run_command_line(["doctor", "long.tfrecord"]) == 1
    assert max(map(len, capsys.readouterr().out.splitlines())) < 500
