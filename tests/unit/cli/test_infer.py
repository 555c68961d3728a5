"""`rekord infer`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rekord.schema
from rekord.cli.main import run_command_line
from rekord.schema import Bytes, Float32, Int64, Schema
from rekord.testing import corrupt_payload, example_bytes, frames, sequence_bytes

Captured = pytest.CaptureFixture[str]

JPEG = b"\xff\xd8\xff\xe0"
ROWS: list[dict[str, Any]] = [
    {"label": [0], "image": [JPEG], "box": [0.2, 0.5], "name": [b"caf\xc3\xa9"], "none": None},
    {"label": [17], "image": [JPEG * 2], "box": [], "name": [b"x"]},
    {"label": [3], "image": [JPEG], "box": [0.5]},
]


def put(folder: Path, rows: list[dict[str, Any]], name: str = "x.tfrecord") -> str:
    payloads = [example_bytes({key: value for key, value in row.items() if value != []}) for row in rows]
    (folder / name).write_bytes(frames(payloads))
    return str(folder / name)


def declared(program: str) -> Schema:
    """The schema that the printed program makes."""
    names: dict[str, Any] = {}
    exec(program.replace("import rekord as rk", ""), {"rk": rekord.schema}, names)
    schema: Schema = names["schema"]
    return schema


def test_a_program_with_the_evidence_beside_each_column_is_printed(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["infer", put(tmp_path, ROWS)]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "import rekord as rk",
        "",
        "schema = rk.Schema({",
        "    'box': rk.Float32(shape=(None,), optional=True),  # present 2 of 3, 1..2 values, float 0.2..0.5",
        "    'image': rk.Bytes(),                              # present 3 of 3, 1 value, 4..8 bytes, JPEG",
        "    'label': rk.Int64(),                              # present 3 of 3, 1 value, int 0..17",
        "    'name': rk.Bytes(optional=True),                  # present 2 of 3, 1 value, 1..5 bytes, UTF-8",
        "    'none': rk.Bytes(shape=(None,), optional=True),   # present 0 of 3, no values",
        "})",
    ]
    assert printed.err == "from all 3 records\n"


def test_the_program_makes_the_schema(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["infer", put(tmp_path, ROWS)]) == 0
    assert declared(capsys.readouterr().out) == Schema(
        {
            "box": Float32(shape=(None,), optional=True),
            "image": Bytes(),
            "label": Int64(),
            "name": Bytes(optional=True),
            "none": Bytes(shape=(None,), optional=True),
        }
    )


def test_names_that_could_steer_a_terminal_are_spelled_out_and_still_a_program(
    tmp_path: Path, capsys: Captured
) -> None:
    name = "a'\"\\\x1b[31m\u202e\n"
    assert run_command_line(["infer", put(tmp_path, [{name: [1]}])]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert list(declared(out)) == [name]


def test_a_sequence_has_context_and_steps(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(
        frames([sequence_bytes({"a": [1]}, {"a": [[0.5], None], "b": [[1]]}), sequence_bytes({"a": [1]}, {})])
    )
    assert run_command_line(["infer", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[2:] == [
        "schema = rk.Schema(",
        "    context={",
        "        'a': rk.Int64(),  # present 2 of 2, 1 value, int 1",
        "    },",
        "    steps={",
        "        'steps/a': rk.Float32(shape=(None,), key='a', optional=True),"
        "  # present 1 of 2, 2 steps, 1 value, float 0.5, 1 unset",
        "        'b': rk.Int64(optional=True),                                "
        "  # present 1 of 2, 1 step, 1 value, int 1",
        "    },",
        ")",
    ]
    assert declared(out) == Schema(
        context={"a": Int64()},
        steps={"steps/a": Float32(shape=(None,), optional=True, key="a"), "b": Int64(optional=True)},
    )


def test_kinds_that_differ_and_keys_without_a_name_are_pointed_out(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, [{"a": [1], "": [1]}, {"a": [0.5]}])
    assert run_command_line(["infer", path]) == 0
    printed = capsys.readouterr()
    assert f"# present 2 of 2, 1 value, int 1, float in {path} record 1" in printed.out
    assert "left out: an empty key" in printed.err
    assert "`a` is stored as several kinds (float 1x, int64 1x)" in printed.err


def test_json_is_the_schema_with_its_evidence(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["infer", put(tmp_path, ROWS), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["rekord_schema", "features", "evidence"]
    assert document["features"]["label"] == {"type": "Int64"}
    assert document["evidence"]["records"] == 3
    assert list(Schema.from_dict(document)) == ["box", "image", "label", "name", "none"]


def test_o_saves_what_load_reads_and_replaces_what_was_there(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, ROWS)
    target = tmp_path / "schema.json"
    target.write_text("old")
    assert run_command_line(["infer", path, "-o", str(target)]) == 0
    printed = capsys.readouterr()
    assert Schema.load(target) == declared(printed.out)
    assert json.loads(target.read_text())["evidence"]["records"] == 3
    assert f"saved to {target}" in printed.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["schema.json", "x.tfrecord"]


def test_a_place_that_cannot_be_written_is_exit_code_3(tmp_path: Path, capsys: Captured) -> None:
    path = put(tmp_path, ROWS)
    assert run_command_line(["infer", path, "-o", str(tmp_path)]) == 3
    assert capsys.readouterr().err.startswith("DatasetError X504")


def test_a_limit_is_said(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["infer", put(tmp_path, ROWS), "--limit", "2"]) == 0
    printed = capsys.readouterr()
    assert "present 2 of 2" in printed.out
    assert printed.err == "from the first 2 records; later ones may differ\n"


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_a_limit_that_is_no_number_of_records_is_wrong_usage(tmp_path: Path, capsys: Captured, limit: str) -> None:
    assert run_command_line(["infer", put(tmp_path, ROWS), "--limit", limit]) == 2
    assert capsys.readouterr().err.startswith("UsageError U605")


def test_the_kind_can_be_forced(tmp_path: Path, capsys: Captured) -> None:
    assert run_command_line(["infer", put(tmp_path, [{"a": [1]}]), "--kind", "sequence", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"rekord_schema", "context", "steps", "evidence"}


def test_what_cannot_be_read_is_exit_code_3(tmp_path: Path, capsys: Captured) -> None:
    data = frames([example_bytes({"a": [i]}) for i in range(5)])
    contents = {
        "damaged.tfrecord": (corrupt_payload(data, 2), "FrameError F102"),
        "text.tfrecord": (b"this is no record file\n" * 9, "FrameError F118"),
        "empty.tfrecord": (b"", "SchemaError S126"),
    }
    for name, (content, said) in contents.items():
        (tmp_path / name).write_bytes(content)
        assert run_command_line(["infer", str(tmp_path / name)]) == 3
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(f"{said}: ")
        assert name in printed.err
        assert "\n  do  " in printed.err
    assert run_command_line(["infer", str(tmp_path / "missing.tfrecord"), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "X501"


def test_nothing_is_saved_when_nothing_could_be_read(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(b"")
    assert run_command_line(["infer", str(tmp_path / "x.tfrecord"), "-o", str(tmp_path / "schema.json")]) == 3
    assert not (tmp_path / "schema.json").exists()


def test_help_says_what_it_does(capsys: Captured) -> None:
    assert run_command_line(["infer", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: rekord infer [PATH] [OPTIONS]\n")
