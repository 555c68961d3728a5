"""`rekord rewrite` and `rekord split`."""

import json
import os

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload

SCHEMA = rk.Schema({"x": rk.Int64(optional=True), "name": rk.Text(), "score": rk.Float32(), "label": rk.Label(3)})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"x": i or None, "name": str(i), "score": i / 2, "label": i % 3} for i in range(40)]
    rk.write(rows, "in", schema=SCHEMA, shards=2, progress=False)
    return tmp_path


def test_rewriting_tells_what_it_made(capsys):
    assert run_command_line(["rewrite", "in", "out", "--shards", "4"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("out: 40 records, ")
    assert "4 shards" in told
    assert told.rstrip().endswith("next: rekord check out")
    assert run_command_line(["rewrite", "in", "out", "--shards", "4"]) == 0
    assert capsys.readouterr().out.startswith("nothing to do: out: 40 records")


def test_rewriting_has_a_json_document(capsys):
    assert run_command_line(["rewrite", "in", "out", "--where", "label = 1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document.pop("seconds") >= 0
    size_bytes = os.path.getsize(rk.open("out")["train"].paths[0])

    assert document == {
        "dataset": "out",
        "splits": {"train": {"records": 13, "shards": 1, "bytes": size_bytes}},
        "rejected": 0,
        "rejects": None,
        "resumed_shards": 0,
        "copied": True,
    }


def test_all_changes_of_columns_can_be_asked_for(capsys):
    options = ["--cast", "name=int64", "--rename", "score=points,label=class", "--fill", "x=0"]
    assert run_command_line(["rewrite", "in", "out", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["copied"] is False
    first = rk.open("out")["train"][0]
    assert {name: value.item() for name, value in first.items()} == {
        "x": 0,
        "name": 0,
        "points": 0.0,
        "class": 0,
    }
    assert run_command_line(["rewrite", "in", "kept", "--keep", "name,label", "--shuffle", "--seed", "3"]) == 0
    assert list(rk.open("kept").schema) == ["name", "label"]
    assert (
        run_command_line(["rewrite", "in", "dropped", "--drop", "name,label", "--also", "out"]) == 2
    )  # schemas differ
    assert run_command_line(["rewrite", "in", "twice", "--also", "in", "--compression", "gzip"]) == 0
    assert len(rk.open("twice")["train"]) == 80


def test_a_lossy_cast_ends_with_exit_code_1_and_the_record(capsys):
    assert run_command_line(["rewrite", "in", "out", "--cast", "score=int64"]) == 1
    told = capsys.readouterr().err
    assert "EncodeError E386: `score` cannot be cast to int64" in told
    assert "in/train-00000-of-00002.tfrecord, record 1" in told
    assert "--lossy" in told
    assert run_command_line(["rewrite", "in", "out", "--cast", "score=int64", "--lossy"]) == 0
    assert rk.open("out")["train"][3]["score"] == 1


def test_damage_ends_with_exit_code_1_and_names_salvage(here, capsys):
    path = here / "in" / "train-00001-of-00002.tfrecord"
    path.write_bytes(corrupt_payload(path.read_bytes(), 2))
    assert run_command_line(["rewrite", "in", "out", "--json"]) == 1
    captured = capsys.readouterr()
    told = json.loads(captured.out)["error"]
    assert (told["code"], told["location"]["record"]) == ("F102", 2)
    assert "rekord salvage in in-repaired" in captured.err
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--cast", "label"], 2),
        (["--rename", "=x"], 2),
        (["--fill", "x"], 2),
        (["--rename", "x=name"], 2),
        (["--compression", "zip"], 2),
        (["--shards", "0"], 2),
        (["--shard-size", "lots"], 2),
        (["--drop", "nothing"], 2),
        (["--where", "nothing = 1"], 2),
        (["--where", "label = 7"], 1),
        (["--also", "missing"], 3),
    ],
    ids=str,
)
def test_what_cannot_be_done_has_its_exit_code_and_one_clear_message(here, capsys, arguments, code):
    assert run_command_line(["rewrite", "in", "out", *arguments]) == code
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "  do " in told
    assert not (here / "out").exists()


@pytest.mark.parametrize("change", [[], ["--drop", "x"]], ids=["copied", "changed"])
def test_a_dry_run_writes_nothing(here, capsys, change):
    assert run_command_line(["rewrite", "in", "out", "--dry-run", *change]) == 0
    assert "40 records" in capsys.readouterr().out
    assert run_command_line(["rewrite", "in", "out", "--dry-run", "--json", *change]) == 0
    assert json.loads(capsys.readouterr().out)["dry_run"] is True
    assert sorted(path.name for path in here.iterdir()) == ["in"]


def test_splitting_tells_what_it_made(here, capsys):
    assert run_command_line(["split", "in", "out", "--split", "train=0.75,val=0.25", "--stratify", "label"]) == 0
    assert "train  31 records" in capsys.readouterr().out
    assert run_command_line(["split", "in", "folds", "--folds", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {name: split["records"] for name, split in document["splits"].items()} == {
        f"fold{i}": 10 for i in range(4)
    }
    assert run_command_line(["split", "in", "dry", "--folds", "4", "--dry-run"]) == 0
    assert not (here / "dry").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--split", "train"], 2),
        (["--split", "train=1.5"], 2),
        (["--folds", "one"], 2),
        (["--folds", "3", "--split-by", "nope"], 2),
        (["--folds", "3", "--only", "test"], 3),
    ],
    ids=str,
)
def test_a_split_that_cannot_be_made_has_its_exit_code(here, capsys, arguments, code):
    assert run_command_line(["split", "in", "out", *arguments]) == code
    assert "  do " in capsys.readouterr().err
    assert not (here / "out").exists()
