"""Records by split and number: in SQL, in findings of `check`, and in lists for `delete` and `relabel`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.testing import corrupt_payload, example_bytes, frames
from rekord.verbs.query import parse_record_list

SCHEMA = rk.Schema({"x": rk.Int64(range=(0, 1000)), "label": rk.Label(["cat", "dog"])})


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Two splits of 40 and 20 records, each of two shards; x is 0 to 39 in train, 100 to 119 in val."""
    monkeypatch.chdir(tmp_path)
    os.mkdir("raw")
    for name, values in {"train": range(40), "val": range(100, 120)}.items():
        with rk.Writer(f"raw/{name}.tfrecord", SCHEMA) as writer:
            for x in values:
                writer.write({"x": x, "label": x % 2})
    rk.rewrite(rk.open("raw", schema=SCHEMA), "in", shards=2, progress=False)
    return "in"


def numbers(dataset):
    return {name: [int(row["x"]) for row in dataset[name]] for name in dataset.splits}


def left(train=(), val=()):
    return {
        "train": [i for i in range(40) if i not in train],
        "val": [100 + i for i in range(20) if i not in val],
    }


def test_a_record_number_in_a_condition_counts_in_the_split(path):
    made = rk.delete(path, "out", where="_record in (3, 7)", split="train", progress=False)
    assert numbers(made) == left(train=(3, 7))
    made = rk.delete(path, "two", where="_record = 25", progress=False)
    assert numbers(made) == left(train=(25,))
    made = rk.delete(path, "three", where="_split = 'val' and _record >= 18", progress=False)
    assert numbers(made) == left(val=(18, 19))
    made = rk.delete(path, "four", where="_shard_record = 3", progress=False)
    assert numbers(made) == left(train=(3, 23), val=(3, 13))
    made = rk.delete(path, "five", where="_shard = 'val-00001-of-00002.tfrecord'", progress=False)
    assert numbers(made) == left(val=range(10, 20))


def test_a_record_number_in_other_verbs_counts_in_the_split(path):
    made = rk.rewrite(path, "out", where="_record % 10 = 5", progress=False)
    assert numbers(made) == {"train": [5, 15, 25, 35], "val": [105, 115]}
    made = rk.relabel(path, "other", "cat", where="_split = 'train' and _record in (1, 33)", progress=False)
    changed = made["train"].sql("select x from records where label_name = 'cat' and x % 2 = 1")
    assert changed["x"].to_pylist() == [1, 33]


LISTS = {
    "spaces": "train 3\nval 7\n",
    "commas": "train,3\nval, 7\n",
    "tabs, a comment and lines without anything": "# bad ones\n\ntrain\t3\r\nval\t7",
    "twice": "train 3\nval 7\ntrain 3\n",
    "a header": "split,record\ntrain,3\nval,7\n",
    "a header of other columns too": "label,_record,_shard,_split\n1,3,a,train\n1,7,b,val\n",
    "findings a line": "path,record,split,split_record\na.tfrecord,0,train,3\nb.tfrecord,9,val,7\n",
    "objects": '{"split": "train", "record": 3}\n{"_split": "val", "_record": 7}\n',
    "pairs": '["train", 3]\n["val", 7]\n',
    "a mark before it": "\ufefftrain 3\nval 7\n",
}


@pytest.mark.parametrize("text", LISTS.values(), ids=LISTS)
def test_a_file_lists_the_records_to_delete(path, text):
    with open("list", "w", encoding="utf-8", newline="") as file:
        file.write(text)
    assert run_command_line(["delete", path, "out", "--records", "list"]) == 0
    assert numbers(rk.open("out")) == left(train=(3,), val=(7,))


def test_an_empty_list_deletes_nothing(path):
    open("list", "w").close()
    assert numbers(rk.delete(path, "out", records="list", progress=False)) == left()
    assert numbers(rk.delete(path, "two", records=[], progress=False)) == left()


def test_pairs_list_the_records_in_python(path):
    made = rk.delete(path, "out", records=[("train", 39), ("val", 0), ("train", 39)], progress=False)
    assert numbers(made) == left(train=(39,), val=(0,))
    made = rk.relabel(path, "other", "cat", records=[("val", 1), ("val", 19)], progress=False)
    changed = made["val"].sql("select x from records where label_name = 'cat' and x % 2 = 1")
    assert changed["x"].to_pylist() == [101, 119]
    assert made["val"].schema == SCHEMA


def test_a_file_lists_the_records_to_relabel(path, capsys):
    with open("list", "w") as file:
        file.write("train,1\nval,1\n")
    assert run_command_line(["relabel", path, "out", "--set", "label=cat", "--records", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["relabelled"] == 2
    assert [int(rk.open("out")[name][1]["label"]) for name in ("train", "val")] == [0, 0]


def test_what_query_prints_is_a_list(path, capsys):
    sql = "select _split, _record, x from records where x in (3, 107)"
    forms = (["--json"], ["--format", "csv"], ["--format", "tsv"], ["--format", "jsonl"])
    for number, form in enumerate(forms):
        assert run_command_line(["query", path, sql, *form]) == 0
        with open("list", "w") as file:
            file.write(capsys.readouterr().out)
        assert run_command_line(["delete", path, f"out{number}", "--records", "list"]) == 0
        assert numbers(rk.open(f"out{number}")) == left(train=(3,), val=(7,))
        capsys.readouterr()


def test_what_check_prints_is_a_list(path, capsys):
    narrow = rk.Schema({"x": rk.Int64(range=(4, 115)), "label": rk.Label(["cat", "dog"])})
    narrow.save("narrow.json")
    assert run_command_line(["check", path, "--schema", "narrow.json", "--json"]) == 1
    printed = capsys.readouterr().out
    findings = json.loads(printed)["findings"]
    first = findings[0]
    assert (first["code"], first["split"], first["split_record"], first["record"]) == ("H750", "train", 0, 0)
    last = findings[-1]
    assert last["path"].endswith("val-00001-of-00002.tfrecord")
    assert (last["record"], last["split"], last["split_record"]) == (9, "val", 19)
    with open("list.json", "w") as file:
        file.write(printed)
    assert run_command_line(["delete", path, "out", "--records", "list.json"]) == 0
    assert numbers(rk.open("out")) == left(train=range(4), val=range(16, 20))


def test_findings_that_stand_for_several_records_are_noted(path, capsys):
    narrow = rk.Schema({"x": rk.Int64(range=(100, 200)), "label": rk.Label(["cat", "dog"])})
    rk.rewrite(path, "one", shards=1, progress=False)
    report = rk.check("one", schema=narrow)
    with open("list.json", "w") as file:
        json.dump(report.to_dict(), file)
    capsys.readouterr()
    assert run_command_line(["delete", "one", "out", "--records", "list.json", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["notes"] == ["list.json does not list every record with a finding: check the new dataset again"]
    assert 0 < said["deleted"] < 40


@pytest.mark.parametrize(
    ("text", "line", "expected", "found"),
    [
        ("train 1\ntrain\n", 2, "a split and a record number", "1: 'train'"),
        ("train 1 2\n", 1, "a split and a record number", "3: 'train 1 2'"),
        ("train one\n", 1, "a record number ≥ 0", "'one'"),
        ("train -1\n", 1, "a record number ≥ 0", "'-1'"),
        ("train 1.0\n", 1, "a record number ≥ 0", "'1.0'"),
        ("train 9999999999999999999\n", 1, "a record number ≥ 0", "'9999999999999999999'"),
        (",1\n", 1, "the name of a split", "''"),
        ("split,record,x\ntrain,1\n", 2, "3 fields, as in the header", "2: 'train,1'"),
        ('"train"x,1\n', 1, "fields separated by commas", "',' expected after '\"'"),
        ('["train", 1]\n["train"]\n', 2, '{"split": "train", "record": 3}, or ["train", 3]', "'[\"train\"]'"),
        ('["train", true]\n', 1, "a record number ≥ 0", "True"),
        ('{"split": "train"}\n', 1, '{"split": "train", "record": 3}, or ["train", 3]', None),
        ("{" * 100_000, 1, "JSON, one document or one per line", None),
        ('{"columns": ["x"], "rows": []}', None, "the columns `_split` and `_record`", None),
        ('{"columns": ["_split", "_record"], "rows": [[1]]}', None, "rows of 2 values", None),
        (
            '{"findings": [{"record": 3, "split": null}]}',
            None,
            "findings with `split` and `split_record`",
            None,
        ),
        ('{"findings": [3]}', None, "findings as `rekord check --json` prints them", "3"),
        ("train 1\n\xff".encode("latin-1"), None, "text in UTF-8", "ff"),
    ],
)
def test_a_line_that_names_no_record_is_refused(path, text, line, expected, found):
    with open("list", "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    for verb in (rk.delete, lambda *of, **records: rk.relabel(*of, "cat", **records)):
        with pytest.raises(rk.UsageError) as caught:
            verb(path, "out", records="list", progress=False)
        failure = caught.value
        assert (failure.code, failure.what, failure.location.path, failure.location.line) == (
            "U624",
            "list of labels or records cannot be read",
            "list",
            line,
        )
        assert failure.expected == expected
        assert found is None or failure.found == found


@pytest.mark.parametrize(
    ("text", "line", "expected", "found"),
    [
        ("train 1\ntrain 40\n", 2, "a number from 0 to 39", "record 40 of `train`"),
        ("test 0\n", 1, "one of the splits `train`, `val`", "record 0 of `test`"),
    ],
)
def test_a_record_that_does_not_exist_is_refused_with_its_line(path, text, line, expected, found):
    with open("list", "w") as file:
        file.write(text)
    with pytest.raises(rk.DatasetError) as caught:
        rk.delete(path, "out", records="list", progress=False)
    failure = caught.value
    assert (failure.code, failure.location.path, failure.location.line) == ("X571", "list", line)
    assert (failure.expected, failure.found) == (expected, found)
    with pytest.raises(rk.DatasetError) as caught:
        rk.delete(path, "out", records=[("train", 400)], progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X571", None)


@pytest.mark.parametrize(
    "records",
    [3, b"train", {"train": [3]}, [("train",)], ["t3"], [("train", -1)], [("train", True)], [(0, 0)]],
)
def test_what_is_no_pair_is_refused(path, records):
    with pytest.raises(rk.UsageError) as caught:
        rk.delete(path, "out", records=records, progress=False)
    assert (caught.value.code, caught.value.do) == ("U605", 'records=[("train", 3), ("train", 7)]')


@pytest.mark.parametrize(
    "options",
    [{}, {"where": "x = 1", "records": []}, {"records": [("train", 1)], "split": "train"}],
)
def test_records_are_named_in_one_way(path, options):
    with pytest.raises(rk.UsageError) as caught:
        rk.delete(path, "out", progress=False, **options)
    assert caught.value.code == "U605"


def test_the_same_list_again_has_nothing_to_do(path, capsys):
    for text in ("train 3\nval 7\n", "val,7\ntrain,3\n"):
        with open("list", "w") as file:
            file.write(text)
        assert run_command_line(["delete", path, "out", "--records", "list"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_list_can_come_through_a_pipe(path):
    made = subprocess.run(
        [sys.executable, "-m", "rekord", "delete", path, "out", "--records", "/dev/stdin"],
        input=b"train 3\n",
        capture_output=True,
        check=False,
    )
    assert (made.returncode, numbers(rk.open("out"))) == (0, left(train=(3,)))


def payloads(count):
    return [example_bytes({"x": [i]}) for i in range(count)]


def test_findings_in_files_without_a_manifest_are_numbered_in_their_splits(tmp_path):
    rare = example_bytes({"x": [0.5]})
    for name, some in {
        "train-00000-of-00002": payloads(30),
        "train-00001-of-00002": [*payloads(10), rare],
        "val-00000-of-00001": [*payloads(5), rare],
    }.items():
        (tmp_path / f"{name}.tfrecord").write_bytes(frames(some))
    found = [one for one in rk.check(tmp_path).findings if one.code != "H789" and one.record is not None]
    places = {(one.path[len(str(tmp_path)) + 1 :][:5], one.record, one.split, one.split_record) for one in found}
    assert ("train", 10, "train", 40) in places
    assert ("val-0", 5, "val", 5) in places
    assert rk.open(tmp_path, kind="example")["train"].paths


def test_behind_lost_records_numbers_in_the_split_are_unknown_without_a_manifest(tmp_path):
    whole = frames(payloads(30))
    for shard in range(3):
        content = corrupt_payload(whole, 4) if shard == 1 else whole
        (tmp_path / f"train-{shard:05}-of-00003.tfrecord").write_bytes(content)
    (tmp_path / "train-00002-of-00003.tfrecord").write_bytes(corrupt_payload(whole, 9))
    found = [(one.record, one.split, one.split_record) for one in rk.check(tmp_path).findings if one.code == "F102"]
    assert found == [(4, "train", 34), (9, "train", None)]


def test_with_a_manifest_numbers_behind_lost_records_are_known(path):
    shards = rk.open(path)["train"].paths
    for number, shard in enumerate(shards):
        with open(shard, "rb") as file:
            content = file.read()
        with open(shard, "wb") as file:
            file.write(corrupt_payload(content, 3 + number))
    found = [(one.record, one.split, one.split_record) for one in rk.check(path).findings if one.code == "F102"]
    assert found == [(3, "train", 3), (4, "train", 24)]
    listed = rk.check(path).to_dict()["findings"][0]
    assert {"split", "split_record"} <= set(listed)


def test_a_file_outside_of_the_manifest_has_no_split(path):
    with open(f"{path}/extra.tfrecord", "wb") as file:
        file.write(frames([b"\xff\xff not a message", *payloads(2)]))
    found = [one for one in rk.check(path).findings if one.path and one.path.endswith("extra.tfrecord")]
    assert found
    assert {(one.split, one.split_record) for one in found} == {(None, None)}


def test_a_feature_called_split_is_not_taken_for_the_split(tmp_path: Path) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps({"columns": ["split", "_record"], "rows": [["train", 3]]}))
    with pytest.raises(rk.UsageError) as caught:
        parse_record_list(answer)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U624",
        "list of labels or records cannot be read",
        str(answer),
    )
    assert caught.value.expected == "the columns `_split` and `_record`"


@pytest.mark.parametrize(
    "text", ['[["train", 3], ["val", 1]]', '[\n {"split": "train", "record": 3},\n ["val", 1]\n]']
)
def test_a_json_list_of_pairs_is_a_list(tmp_path: Path, text: str) -> None:
    (tmp_path / "list.json").write_text(text)
    assert [one.pair for one in parse_record_list(tmp_path / "list.json").records] == [
        ("train", 3),
        ("val", 1),
    ]


def test_an_empty_json_list_names_no_record(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    assert parse_record_list(tmp_path / "list.json").records == ()


def test_only_errors_of_check_are_listed(tmp_path: Path) -> None:
    places = [("error", 1), ("warning", 2), ("note", 3)]
    findings = [
        {"code": "H751", "severity": severity, "record": n, "split": "train", "split_record": n}
        for severity, n in places
    ]
    (tmp_path / "check.json").write_text(json.dumps({"ok": False, "findings": findings}))
    found = parse_record_list(tmp_path / "check.json")
    assert [one.pair for one in found.records] == [("train", 1)]
    assert found.notes == (
        f"{tmp_path / 'check.json'} has 2 warnings and notes: only records with errors are selected",
    )
