"""`rekord show`."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import (
    corrupt_payload,
    example_bytes,
    feature,
    frame_offsets,
    frames,
    int64_list,
    length_delimited,
    sequence_bytes,
    unknown,
)
from rekord.testing.wire import entry, example, features

Captured = pytest.CaptureFixture[str]

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", 64, 48)


def record_file(folder: Path, payloads: list[bytes], name: str = "x.tfrecord") -> Path:
    path = folder / name
    path.write_bytes(frames(payloads))
    return path


def numbered(first: int, last: int) -> list[bytes]:
    return [example_bytes({"id": [i]}) for i in range(first, last)]


def shown_json(arguments: list[str], capsys: Captured) -> list[dict[str, Any]]:
    assert run_command_line(["show", "--json", *arguments]) == 0
    records: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["records"]
    return records


def ids(records: list[dict[str, Any]]) -> list[int]:
    return [record["features"]["id"]["values"][0] for record in records]


def test_a_record_is_a_heading_and_its_features_by_name(tmp_path: Path, capsys: Captured) -> None:
    row = {"label": [3], "image": [PNG], "text": [b"rose"], "box": [0.25, 0.5], "none": None}
    path = record_file(tmp_path, [example_bytes(row)])
    assert run_command_line(["show", str(tmp_path), "-n", "1"]) == 0
    printed = capsys.readouterr()
    size = len(example_bytes(row))
    assert printed.out.splitlines() == [
        f"{path.name}  record 0  byte 0  {size} bytes",
        "  box    float  2  0.25, 0.5",
        "  image  bytes  1  PNG 64×48, 24 bytes",
        "  label  int64  1  3",
        "  none   unset",
        '  text   bytes  1  "rose"',
    ]
    assert printed.err == ""


def test_json_holds_whole_values(tmp_path: Path, capsys: Captured) -> None:
    nan, inf = float("nan"), float("inf")
    row = {"f": [nan, inf, -inf, 0.5], "b": [b"text", b"\xff\x00"], "i": list(range(100)), "u": None}
    path = record_file(tmp_path, [b"", example_bytes(row)])
    empty, full = shown_json([str(path)], capsys)
    assert (empty["kind"], empty["features"]) == ("example", {})
    assert (full["path"], full["record"], full["offset"]) == (str(path), 1, 16)
    assert (full["payload_bytes"], full["kind"]) == (len(example_bytes(row)), "example")
    assert full["features"] == {
        "b": {
            "kind": "bytes",
            "count": 2,
            "values": [{"utf8": "text"}, {"base64": base64.b64encode(b"\xff\x00").decode()}],
        },
        "f": {"kind": "float", "count": 4, "values": ["NaN", "Infinity", "-Infinity", 0.5]},
        "i": {"kind": "int64", "count": 100, "values": list(range(100))},
        "u": {"kind": None, "count": 0, "values": []},
    }


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        ([], [0, 1, 2, 3, 4]),
        (["-n", "0"], []),
        (["-n", "3"], [0, 1, 2]),
        (["-n", "7"], [0, 1, 2, 3, 4, 5, 6]),
        (["-n", str(10**30)], list(range(8))),
        (["--record", "0"], [0]),
        (["--record", "3"], [3]),
        (["--record", "4"], [4]),
        (["--record", "7"], [7]),
        (["--record", "2", "-n", "9"], [2]),
    ],
)
def test_records_are_counted_across_files(
    requested: list[str], expected: list[int], tmp_path: Path, capsys: Captured
) -> None:
    record_file(tmp_path, numbered(0, 3), "a.tfrecord")
    record_file(tmp_path, [], "b.tfrecord")
    record_file(tmp_path, numbered(3, 8), "c.tfrecord")
    assert ids(shown_json([str(tmp_path), *requested], capsys)) == expected
    assert ids(shown_json([str(tmp_path / "*.tfrecord"), *requested], capsys)) == expected


def test_the_place_of_a_record_is_that_in_its_file(tmp_path: Path, capsys: Captured) -> None:
    record_file(tmp_path, numbered(0, 3), "a.tfrecord")
    second = record_file(tmp_path, numbered(3, 8), "c.tfrecord")
    (record,) = shown_json([str(tmp_path), "--record", "5"], capsys)
    assert (record["path"], record["record"]) == (str(second), 2)
    assert record["offset"] == frame_offsets(second.read_bytes())[2]


def test_records_beyond_the_first_buffer_are_found(tmp_path: Path, capsys: Captured) -> None:
    payloads = [example_bytes({"id": [i], "pad": [bytes(100_000)]}) for i in range(30)]
    path = record_file(tmp_path, payloads)
    assert ids(shown_json([str(path), "--record", "29"], capsys)) == [29]
    assert ids(shown_json([str(path), "-n", "30"], capsys)) == list(range(30))


def test_fewer_records_than_asked_for_is_said_on_stderr(tmp_path: Path, capsys: Captured) -> None:
    path = record_file(tmp_path, numbered(0, 2))
    assert run_command_line(["show", str(path)]) == 0
    assert capsys.readouterr().err == "end of the dataset: 2 records\n"
    assert run_command_line(["show", str(record_file(tmp_path, [], "none.tfrecord"))]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "no records\n")


def test_a_record_beyond_the_end_says_how_many_there_are(tmp_path: Path, capsys: Captured) -> None:
    record_file(tmp_path, numbered(0, 3), "a.tfrecord")
    record_file(tmp_path, numbered(3, 5), "b.tfrecord")
    assert run_command_line(["show", str(tmp_path), "--record", "5"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("UsageError U606: record 5 does not exist\n")
    assert f"where     {tmp_path}\n" in printed.err
    assert "found     5 records in 2 files" in printed.err


def test_nothing_after_the_wanted_record_is_looked_at(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(corrupt_payload(frames(numbered(0, 6)), 3))
    (tmp_path / "y.tfrecord").write_bytes(b"no records at all")
    assert ids(shown_json([str(tmp_path), "-n", "3"], capsys)) == [0, 1, 2]
    assert ids(shown_json([str(tmp_path), "--record", "2"], capsys)) == [2]


def test_damage_before_the_wanted_record_is_the_error_itself(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "x.tfrecord"
    data = frames(numbered(0, 6))
    path.write_bytes(corrupt_payload(data, 3))
    assert run_command_line(["show", str(path)]) == 3
    printed = capsys.readouterr()
    assert printed.out.count("  record ") == 3
    assert printed.err.startswith("FrameError F102: payload checksum does not match\n")
    assert f"where     {path}, record 3, byte {frame_offsets(data)[3]}" in printed.err

    assert run_command_line(["show", str(path), "--record", "4", "--json"]) == 3
    failure = json.loads(capsys.readouterr().out)["error"]
    assert (failure["code"], failure["location"]["record"]) == ("F102", 3)


def test_a_file_that_holds_no_records_is_exit_code_3(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "train.tfrecord"
    path.write_bytes(b"<!DOCTYPE html><html><body>404</body></html>")
    assert run_command_line(["show", str(path)]) == 3
    assert capsys.readouterr().err.startswith("FrameError F111: ")


def test_a_sequence_shows_context_and_steps(tmp_path: Path, capsys: Captured) -> None:
    payload = sequence_bytes({"id": [b"a"]}, {"tokens": [[1], [2, 3], None]})
    # Without steps it looks like an Example; its neighbour tells what it is.
    path = record_file(tmp_path, [payload, sequence_bytes({"id": [b"b"]}, {})])
    assert run_command_line(["show", str(path), "-n", "2"]) == 0
    assert capsys.readouterr().out.splitlines()[1:6] == [
        "  SequenceExample",
        "  context",
        '    id  bytes  1  "a"',
        "  steps",
        "    tokens  int64  3 steps  1 | 2, 3 | –",
    ]
    first, second = shown_json([str(path)], capsys)
    assert first["kind"] == second["kind"] == "sequence"
    assert first["context"]["id"]["values"] == [{"utf8": "a"}]
    assert first["steps"] == {"tokens": {"kind": "int64", "count": 3, "values": [[1], [2, 3], None]}}
    assert second["steps"] == {}


def test_kind_forces_a_reading(tmp_path: Path, capsys: Captured) -> None:
    path = record_file(tmp_path, [sequence_bytes({"id": [1]}, {"t": [[1]]})])
    (record,) = shown_json([str(path), "--kind", "example"], capsys)
    assert (record["kind"], list(record["features"])) == ("example", ["id"])
    (record,) = shown_json([str(record_file(tmp_path, numbered(0, 1))), "--kind", "sequence"], capsys)
    assert (record["kind"], list(record["context"])) == ("sequence", ["id"])


def test_a_forced_reading_that_fails_is_an_error_with_its_place(tmp_path: Path, capsys: Captured) -> None:
    path = record_file(tmp_path, [*numbered(0, 1), b"\x0a\xff"])
    assert run_command_line(["show", str(path), "--kind", "example", "--record", "1"]) == 3
    message = capsys.readouterr().err
    assert message.startswith("WireError W20")
    assert f"where     {path}, record 1, byte " in message


def test_other_payloads_are_shown_as_what_they_are(tmp_path: Path, capsys: Captured) -> None:
    ranking = length_delimited(1, example_bytes({"x": [1]})) * 3 + length_delimited(2, example_bytes({"q": [b"z"]}))
    event = b"\x09" + struct.pack("<d", 1.5) + b"\x10\x07" + length_delimited(5, b"")
    payloads = [ranking, event, b"plain text", unknown(9, 0) + unknown(7, 2), b"\xff\xfe\x00\x01"]
    path = record_file(tmp_path, payloads)
    assert run_command_line(["show", str(path)]) == 0
    text = capsys.readouterr().out
    assert "  ExampleListWithContext\n    examples  3\n  context\n    q  bytes" in text
    assert "  tf.Event\n    wall_time 1.5\n    step      7\n    holds     summary\n" in text
    assert '  plain text\n    payload   "plain text"\n' in text
    assert "  another protobuf message\n    fields    9 (a number), 7 (bytes)\n" in text
    assert "  unknown message\n    because   W203, " in text
    assert "    payload   0x ff fe 00 01\n" in text

    records = shown_json([str(path)], capsys)
    kinds = ["list_with_context", "event", "text", "proto", "other"]
    assert [record["kind"] for record in records] == kinds
    assert [example["x"]["values"] for example in records[0]["examples"]] == [[1], [1], [1]]
    assert (records[1]["wall_time"], records[1]["step"]) == (1.5, 7)
    assert records[2]["payload"] == {"utf8": "plain text"}
    assert records[4]["payload"] == {"base64": base64.b64encode(payloads[4]).decode()}


def test_hostile_keys_and_values_reach_no_terminal(tmp_path: Path, capsys: Captured) -> None:
    controls = "".join(map(chr, [*range(0x20), 0x7F, 0x9B, 0x202E, 0x2028]))
    rows: dict[str, Any] = {f"key{controls}{i}": [f"value{controls}"] for i in range(2)}
    rows["k" * 100_000] = [b"\x1b]0;title\x07" * 1000, b"\x9b31m", PNG]
    payloads = [
        example_bytes(rows),
        sequence_bytes(rows, {f"step{controls}": [[controls]]}),
        controls.encode(),
        b"\x1b[31mred" + b"\xff",
    ]
    for number, payload in enumerate(payloads):
        path = record_file(tmp_path, [payload], f"{number}\x1b[31m.tfrecord")
        for options in ([], ["--json"]):
            assert run_command_line(["show", str(path), *options]) == 0
            printed = capsys.readouterr()
            text = printed.out + printed.err
            assert not {letter for letter in text if not letter.isprintable()} - {"\n"}
            if not options:
                assert max(map(len, text.splitlines())) < 400


def test_a_record_without_a_kind_in_a_step_and_empty_lists_is_shown(tmp_path: Path, capsys: Captured) -> None:
    empty = feature(("int64", int64_list([])))
    path = record_file(tmp_path, [example(features([entry("a", empty), entry("b", feature())]))])
    (record,) = shown_json([str(path)], capsys)
    assert record["features"]["a"] == {"kind": "int64", "count": 0, "values": []}
    assert record["features"]["b"] == {"kind": None, "count": 0, "values": []}
    assert run_command_line(["show", str(path), "-n", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["  a  int64  0", "  b  unset"]


@pytest.mark.parametrize(("zone", "text"), [(None, "2026-01-31T12:30:00"), ("UTC", "2026-01-31T12:30:00Z")])
def test_times_are_text_as_export_writes_them(zone: str | None, text: str, tmp_path: Path, capsys: Captured) -> None:
    schema = rk.Schema({"at": rk.Timestamp("s", tz=zone), "n": rk.Int64()})
    rk.write([{"at": text, "n": 7}], tmp_path / "data", schema=schema, progress=False, workers=1)
    rk.export(tmp_path / "data", tmp_path / "x.jsonl")
    exported = json.loads((tmp_path / "x.jsonl").read_text())
    [record] = shown_json([str(tmp_path / "data")], capsys)
    assert record["features"]["at"] == {"kind": "int64", "count": 1, "values": [exported["at"]]}
    assert (exported["at"], record["features"]["n"]["values"]) == (text, [7])
    assert run_command_line(["show", str(tmp_path / "data")]) == 0
    assert f"at  int64  1  {text}" in capsys.readouterr().out
