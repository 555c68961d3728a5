"""`rekord append`, `rekord delete` and `rekord relabel`: what they print, and how they end."""

import json
import os
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line

SCHEMA = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog", "cow"])})


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"x": i, "label": i // 100} for i in range(300)]
    rk.write(rows, "in", schema=SCHEMA, shards=3, progress=False)
    Path("more.csv").write_text("x,label\n300,cat\n301,dog\n")
    Path("bad.csv").write_text("x,label\n300,cat\nx,dog\n")
    Path("labels.csv").write_text("x,label\n7,dog\n")
    Path("unknown.csv").write_text("x,label\n7000,dog\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "done", "count", "records", "shards"),
    [
        (["append", "in", "out", "--from", "more.csv"], "appended", 2, 302, (3, 1)),
        (["delete", "in", "out", "--where", "x < 10"], "deleted", 10, 290, (2, 1)),
        (["delete", "in", "out", "--where", "x < 0"], "deleted", 0, 300, (3, 0)),
        (["delete", "in", "--replace", "--where", "x < 100"], "deleted", 100, 200, (2, 0)),
        (["relabel", "in", "out", "--set", "label=cow", "--where", "x = 1"], "relabelled", 1, 300, (2, 1)),
        (["relabel", "in", "out", "--map-labels", "dog=cat,cow=ox"], "relabelled", 200, 300, (1, 2)),
        (["relabel", "in", "out", "--from", "labels.csv"], "relabelled", 1, 300, (2, 1)),
        (["relabel", "in", "out", "--names", "cow,dog,cat"], "relabelled", 0, 300, (1, 2)),
    ],
)
def test_json_says_what_was_done(capsys, arguments, done, count, records, shards):
    assert run_command_line([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    out = "in" if "--replace" in arguments else "out"
    assert document["dataset"] == out
    assert document[done] == document["splits"]["train"][done] == count
    assert document["splits"]["train"]["records"] == records == rk.open(out).records
    assert (document["linked_shards"], document["written_shards"]) == shards
    assert document["seconds"] >= 0
    assert document["notes"] == []
    assert rk.check(out).ok
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_a_person_reads_what_was_done(capsys):
    assert run_command_line(["delete", "in", "out", "--where", "x < 10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("out: 10 records deleted, 290 records in total, in ")
    assert lines[1].split() == [
        "train",
        "290",
        "records",
        "3",
        "shards",
        *lines[1].split()[5:7],
        "10",
        "deleted",
    ]
    assert lines[2:] == ["2 shards linked, 1 shard written", "next: rekord check out"]
    assert run_command_line(["delete", "in", "out", "--where", "x < 10"]) == 0
    again = capsys.readouterr().out.splitlines()[0]
    assert again == "nothing to do: out is already complete, 10 records deleted"
    assert run_command_line(["delete", "in", "--replace", "--where", "x < 0"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "nothing to do: no records of in are deleted"


@pytest.mark.parametrize(
    ("arguments", "exit_code", "code"),
    [
        (["append", "in", "out", "--from", "bad.csv"], 1, "E356"),
        (["relabel", "in", "out", "--from", "unknown.csv"], 1, "X571"),
        (["delete", "in", "out"], 2, "U601"),
        (["delete", "in", "out", "--where", "x = 1", "--records", "list.csv"], 2, "U601"),
        (["delete", "in", "out", "--records", "labels.csv"], 2, "U624: list of labels or records cannot be read"),
        (["delete", "in", "out", "--records", "none.csv"], 3, "X501"),
        (
            ["relabel", "in", "out", "--records", "labels.csv"],
            2,
            "U605: `rekord relabel` needs --map-labels, --set, --from or --names",
        ),
        (["delete", "in", "--where", "x = 1"], 2, "U601"),
        (["delete", "in", "out", "--where", "x = 1", "--replace"], 2, "U601"),
        (["delete", "in", "out", "--where", "nonsense ="], 2, "U680: invalid query"),
        (
            ["delete", "more.csv", "out", "--where", "x = 1"],
            2,
            "U651: dataset without a manifest cannot be edited",
        ),
        (["append", "in", "out"], 2, "U601"),
        (["relabel", "in", "out"], 2, "U605: `rekord relabel` needs --map-labels, --set, --from or --names"),
        (["relabel", "in", "out", "--set", "label"], 2, "U605: `--set` cannot be 'label'"),
        (["relabel", "in", "out", "--set", "label=mouse"], 2, "U606: `label` has no class 'mouse'"),
        (["relabel", "in", "out", "--set", "label=cat", "--column", "x"], 2, "U601"),
        (["relabel", "in", "out", "--map-labels", "a"], 2, "U605: `--map-labels` cannot be 'a'"),
        (
            ["relabel", "in", "out", "--map-labels", "cat=dog,cat=cow"],
            2,
            "U605: `--map-labels` cannot be 'cat=dog,cat=cow'",
        ),
        (["relabel", "in", "out", "--map-labels", "cat=dog", "--from", "labels.csv"], 2, "U601"),
        (["delete", "none", "out", "--where", "x = 1"], 3, "X501"),
        (["append", "in", "out", "--from", "none.csv"], 3, "X501"),
        (["delete", "in", "out", "--where", "x = 1", "--split", "val"], 3, "X506"),
    ],
)
def test_whatever_goes_wrong_is_one_clear_message(capsys, arguments, exit_code, code):
    assert run_command_line([*arguments, "--json"]) == exit_code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    document = json.loads(said.out)["error"]
    assert f"{document['code']}: {document['what']}".startswith(code)
    assert [line for line in said.err.splitlines() if f"Error {code}" in line]
    assert document["do"]
    assert not os.path.exists("out")
    assert rk.open("in").records == 300


def test_a_note_goes_to_stderr_and_into_the_document(capsys):
    schema = rk.Schema({"label": rk.Label(["cat", "dog"]), "word": rk.Text()})
    rows = [{"label": i % 2, "word": ("cat", "dog")[i % 2]} for i in range(10)]
    rk.write(rows, "words", schema=schema, progress=False)
    assert run_command_line(["relabel", "words", "out", "--map-labels", "dog=wolf", "--json"]) == 0
    said = capsys.readouterr()
    note = "`word` also holds the class names, and was not changed"
    assert json.loads(said.out)["notes"] == [note]
    assert f"note: {note}" in said.err.splitlines()
