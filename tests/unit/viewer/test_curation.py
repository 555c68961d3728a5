"""The commands that delete or relabel selected records: run by a real shell, they change exactly those records."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from object_server import ObjectServer

import rekord as rk
from rekord.errors import RekordError, UsageError
from rekord.testing import frames
from rekord.viewer import curation, selections
from rekord.viewer.curation import EditRun, format_records, format_shell, list_label_columns, plan_edit

SCHEMA = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog", "cow"])})
CHOSEN = [("train", 3), ("train", 25), ("val", 1)]  # the first two in different shards


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "the cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dataset(place):
    folder = place / 'it\'s a $HOME "place"' / "data"
    folder.parent.mkdir()
    rows = [{"x": i, "label": i % 3} for i in range(40)]
    rk.write(rows[:30], folder, schema=SCHEMA, shards=2, progress=False)
    rk.write(rows[30:], folder.parent / "more", schema=SCHEMA, split="val", progress=False)
    whole = folder.parent / "both"
    rk.rewrite([folder, folder.parent / "more"], whole, shards=2, progress=False)
    assert len(rk.open(whole)["train"].paths) == 2
    return whole


@pytest.fixture
def foreign(dataset, place):
    """The same shards as another tool leaves them: without a manifest."""
    folder = place / "foreign files"
    folder.mkdir()
    for path in dataset.glob("*.tfrecord"):
        shutil.copy(path, folder)
    return folder


def run_shell(command: str, shell: str = "bash") -> None:
    """Paste a command into a shell, in another folder."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [shell, "-c", command], cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def run_python(code: str) -> None:
    exec(compile(code, "<pasted>", "exec"), {})


def values(path, column="x") -> dict[str, list[int]]:
    return {name: split.to_arrow()[column].to_pylist() for name, split in rk.open(path).splits.items()}


LEFT = {
    "train": [i for i in range(30) if i not in (3, 25)],
    "val": [i for i in range(30, 40) if i != 31],
}


def test_the_printed_command_deletes_exactly_the_selected_records(dataset):
    plan = plan_edit("delete", dataset, CHOSEN)
    document = plan.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert document["csv"] == "split,record\ntrain,3\ntrain,25\nval,1\n"
    assert (document["count"], document["csv_name"], document["error"]) == (3, "both-curated.csv", None)
    assert Path(plan.file).read_text() == document["csv"]
    run_shell(document["command"])
    assert values(plan.out) == LEFT
    assert values(dataset)["train"] == list(range(30))


@pytest.mark.slow
def test_any_posix_shell_runs_the_command(dataset):
    run_shell(plan_edit("delete", dataset, CHOSEN, out="x y").to_dict()["command"], "sh")
    assert values("x y") == LEFT


def test_the_printed_python_deletes_exactly_the_selected_records(dataset, monkeypatch):
    plan = plan_edit("delete", dataset, CHOSEN)
    assert "records=[('train', 3), ('train', 25), ('val', 1)]" in plan.commands[0].python
    run_python(plan.commands[0].python)
    assert values(plan.out) == LEFT
    monkeypatch.setattr(curation, "MAX_INLINE_RECORDS", 2)
    longer = plan_edit("delete", dataset, CHOSEN)
    assert longer.out == f"{plan.out}-2"
    assert f"records={longer.file!r}" in longer.commands[0].python
    run_python(longer.commands[0].python)
    assert values(longer.out) == LEFT


def test_the_printed_command_relabels_exactly_the_selected_records(dataset):
    before = values(dataset, "label")
    expected = {"train": list(before["train"]), "val": list(before["val"])}
    for split, record in CHOSEN:
        expected[split][record] = 2
    for number, way in enumerate(("command", "python")):
        document = plan_edit("relabel", dataset, CHOSEN, column="label", label="cow", out=f"new {number}").to_dict()
        (run_shell if way == "command" else run_python)(document[way])
        assert values(f"new {number}", "label") == expected


@pytest.mark.slow
def test_a_copied_command_still_means_the_records_that_it_showed(dataset):
    first = plan_edit("delete", dataset, CHOSEN).to_dict()["command"]
    plan_edit("delete", dataset, [("train", 0)])
    run_shell(first)
    assert values(f"{dataset}-curated") == LEFT


@pytest.mark.slow
def test_without_a_cache_folder_the_command_contains_the_list(dataset, monkeypatch):
    monkeypatch.delenv("REKORD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "relative")
    plan = plan_edit("delete", dataset, CHOSEN)
    assert plan.file is None
    assert plan.commands[0].shell.endswith(
        " --records /dev/stdin <<'END'\nsplit,record\ntrain,3\ntrain,25\nval,1\nEND"
    )
    run_shell(plan.commands[0].shell)
    assert values(plan.out) == LEFT


def test_files_without_a_manifest_are_filtered_while_they_are_copied(foreign):
    plan = plan_edit("delete", foreign, [*CHOSEN, ("train", 4)])
    shell = plan.commands[0].shell
    assert "--where 'not (_split = '\"'\"'train'\"'\"' and (_record in (25) or _record between 3 and 4)" in shell
    run_shell(shell)
    assert values(plan.out) == {**LEFT, "train": [i for i in LEFT["train"] if i != 4]}
    assert not (foreign / "rekord.json").exists()


@pytest.mark.slow
def test_files_without_a_manifest_can_be_copied_or_adopted_first(foreign):
    plan = plan_edit("delete", foreign, CHOSEN)
    adopted, copied = plan.to_dict()["others"]
    assert copied["note"] == "copies all records to foreign files-curated-all first"
    assert adopted["note"] == "writes rekord.json and indexes next to the files, which are not changed"
    run_shell(copied["command"])
    assert values(plan.out) == LEFT
    shutil.rmtree(plan.out)
    run_python(adopted["python"])
    assert values(plan.out) == LEFT


@pytest.mark.slow
def test_labels_of_files_without_a_manifest_are_changed_after_a_copy(foreign):
    plan = plan_edit("relabel", foreign, CHOSEN, column="label", label=2)
    assert [command.shell.split()[1] for command in plan.commands] == ["rewrite", "adopt"]
    run_shell(plan.commands[0].shell)
    assert [values(plan.out, "label")[split][record] for split, record in CHOSEN] == [2, 2, 2]
    assert not plan.to_dict()["can_run"]
    with pytest.raises(UsageError, match="two steps") as caught:
        EditRun(plan)
    assert (caught.value.code, caught.value.do) == ("U651", plan.commands[0].shell)


def test_a_long_condition_is_replaced_by_a_copy(foreign, monkeypatch):
    monkeypatch.setattr(curation, "MAX_CONDITION_TERMS", 2)
    plan = plan_edit("delete", foreign, CHOSEN)
    assert [command.shell.split()[1] for command in plan.commands] == ["adopt", "rewrite"]
    many = plan_edit("delete", foreign, [("train", i) for i in range(30)])
    assert "_record between 0 and 29" in many.commands[0].shell


def test_payloads_that_are_not_examples_can_only_be_filtered(place):
    (place / "raw.tfrecord").write_bytes(frames([b"one", b"two", b"three"]))
    split = next(iter(rk.open("raw.tfrecord", kind="bytes").splits))
    plan = plan_edit("delete", "raw.tfrecord", [(split, 1)], kind="bytes")
    assert [one.python.count("kind='bytes'") for one in plan.commands] == [1]
    assert plan.out == str(place / "raw-curated")
    run_shell(plan.commands[0].shell)
    assert list(rk.records(plan.out)) == [b"one", b"three"]
    refused = plan_edit("relabel", "raw.tfrecord", [(split, 1)], column="payload", label=1, kind="bytes").to_dict()
    assert (refused["command"], refused["error"]["code"]) == (None, "U651")


@pytest.mark.parametrize(
    "name",
    ["plain", "a b", "it's", '"', "$(touch hacked)", "`touch hacked`", "-rf", "ü", "a\nb", "\x1b[2J", "\udcff", "*"],
)
def test_hostile_names_reach_the_program_unchanged_and_print_as_one_line(place, name):
    command = format_shell([sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", "--", name])
    assert command.isprintable()
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == f"['--', {name!a}]\n"
    assert not (place / "hacked").exists()


@pytest.mark.parametrize("split", ["train", "a b", " a", "#1", "a,b", '"', "x\ny", "\udcff", "\u2028", "é", "b;c"])
def test_every_name_of_a_split_survives_the_list_of_records(place, split):
    from rekord.verbs.query import parse_record_list

    text, extension = format_records([(split, 3), ("train", 4)])
    (place / f"list{extension}").write_text(text, encoding="utf-8")
    assert [one.pair for one in parse_record_list(f"list{extension}").records] == [(split, 3), ("train", 4)]


def test_a_condition_names_any_split():
    records = [("it's", 1), ("it's", 2), ("it's", 9), ("b", 0)]
    condition = (
        "not (_split = 'b' and (_record in (0)) or _split = 'it''s' and (_record in (9) or _record between 1 and 2))"
    )
    assert curation.format_condition(records) == condition
    assert curation.format_condition([("\udcff", 1)]) is None


@pytest.mark.parametrize(
    ("path", "out"),
    [
        ("data/flowers", "data/flowers-curated"),
        ("data/flowers/", "data/flowers-curated"),
        ("mnist/3.0.1", "mnist-curated"),
        ("data/train-*.tfrecord", "data/train-curated"),
        ("data/*/x", "x-curated"),
        ("data/a.tfrecord.gz", "data/a-curated"),
        ("data/*", "data/dataset-curated"),
    ],
)
def test_the_output_is_next_to_the_input(place, path, out):
    assert plan_edit("delete", path, CHOSEN).out == str(place / out)


def test_the_output_of_a_remote_dataset_is_local(place):
    with ObjectServer() as server, server.environment():
        path = f"{server.bucket}/data/flowers"
        assert plan_edit("delete", path, CHOSEN).out == str(place / "flowers-curated")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"action": "drop"}, "`action` cannot be 'drop'"),
        ({"records": []}, "no records are selected"),
        ({"action": "relabel"}, "`column` cannot be None"),
        ({"action": "relabel", "column": "label"}, "`label` cannot be None"),
        ({"action": "relabel", "column": "label", "label": ""}, "`label` cannot be ''"),
        ({"action": "relabel", "column": "label", "label": True}, "`label` cannot be True"),
        ({"action": "relabel", "column": "a=b", "label": "cat"}, "`--set` cannot name a column with an equals sign"),
        ({"out": ""}, "`out` cannot be ''"),
        ({"out": "a\0b"}, r"`out` cannot be 'a\\x00b'"),
        ({"out": "\ud800"}, r"`out` cannot be '\\ud800'"),
        ({"path": 3}, "`path` cannot be 3"),
    ],
)
def test_a_plan_needs_valid_arguments(changes, what):
    arguments = {"action": "delete", "path": "data", "records": CHOSEN, **changes}
    with pytest.raises(UsageError, match=what) as caught:
        plan_edit(**arguments)
    assert caught.value.code == "U605"


def test_columns_with_one_class_per_record_can_be_relabelled(place):
    schema = rk.Schema(
        {"label": rk.Label(["a", "b"]), "x": rk.Int64(), "f": rk.Float32(), "many": rk.Int64(shape=(None,))}
    )
    rk.write([{"label": 0, "x": 1, "f": 1.0, "many": [1]}], "data", schema=schema, progress=False)
    assert list_label_columns(rk.open("data")) == [
        {"column": "label", "classes": ["a", "b"]},
        {"column": "x", "classes": None},
    ]


def run(one: EditRun, *, fails: bool = False) -> dict:
    one.start()
    assert one.wait(60)
    status = one.status()
    assert json.loads(json.dumps(status)) == status
    if fails:
        assert status["state"] == "failed"
        assert status["result"] is None
        raise UsageError(status["error"]["code"], status["error"]["what"])
    assert (status["state"], status["error"]) == ("done", None)
    return status["result"]


def test_an_edit_runs_in_the_background_and_reports_its_result(dataset):
    plan = plan_edit("delete", dataset, CHOSEN)
    done = run(EditRun(plan))
    assert (done["dataset"], done["deleted"], done["splits"]["val"]["records"]) == (plan.out, 3, 9)
    assert values(plan.out) == LEFT
    changed = run(EditRun(plan_edit("relabel", dataset, CHOSEN, column="label", label="cow")))
    assert changed["relabelled"] == 3
    assert values(changed["dataset"], "label")["train"][3] == 2


def test_files_are_filtered_in_the_background(foreign):
    plan = plan_edit("delete", foreign, CHOSEN)
    done = run(EditRun(plan))
    assert (done["deleted"], done["splits"]["train"]) == (3, {"records": 28})
    assert values(plan.out) == LEFT


def test_progress_is_a_share_of_the_bytes_to_write(dataset, monkeypatch):
    seen = []
    original = EditRun.phase

    def phase(self, name, staging, total):
        original(self, name, staging, total)
        seen.append((self.status()["state"], self.status()["share"], total > 0))

    monkeypatch.setattr(EditRun, "phase", phase)
    run(EditRun(plan_edit("delete", dataset, CHOSEN)))
    assert seen == [("running", 0.0, True)]


@pytest.mark.parametrize("kind", ["folder", "file", "dataset"])
def test_a_run_never_replaces_anything(dataset, place, kind):
    out = place / "taken"
    if kind == "dataset":
        out = dataset
    elif kind == "folder":
        out.mkdir()
    else:
        out.write_text("mine")
    before = sorted(path.stat().st_mtime_ns for path in dataset.iterdir())
    with pytest.raises(UsageError, match="output exists already") as caught:
        EditRun(plan_edit("delete", dataset, CHOSEN, out=out)).start()
    assert (caught.value.code, caught.value.location.path) == ("U618", str(out))
    assert sorted(path.stat().st_mtime_ns for path in dataset.iterdir()) == before


def test_a_failed_run_reports_the_error_and_leaves_nothing(dataset, place):
    status = EditRun(plan_edit("delete", dataset, [("train", 30)], out="new"))
    with pytest.raises(RekordError) as caught:
        run(status, fails=True)
    assert caught.value.code == "X571"
    inside = EditRun(plan_edit("delete", dataset, CHOSEN, out=dataset / "inside"))
    with pytest.raises(RekordError):
        run(inside, fails=True)
    assert not (place / "new").exists()
    assert not (dataset / "inside").exists()
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_a_defect_in_a_run_is_reported_too(dataset, monkeypatch):
    def fail(*_):
        raise RuntimeError("unexpected")

    monkeypatch.setattr("rekord.verbs.edit.change.delete_records", fail)
    with pytest.raises(UsageError, match="edit failed: 'unexpected'"):
        run(EditRun(plan_edit("delete", dataset, CHOSEN)), fails=True)


def test_a_plan_without_a_command_cannot_run(place):
    plan = plan_edit("relabel", "raw", CHOSEN, column="x", label=1, kind="bytes")
    with pytest.raises(UsageError) as caught:
        EditRun(plan)
    assert caught.value.code == "U651"


def test_saved_lists_are_cleaned_up(dataset, monkeypatch):
    monkeypatch.setattr(selections, "MAX_SELECTIONS", 2)
    files = [plan_edit("delete", dataset, [("train", i)]).file for i in range(4)]
    assert sum(map(os.path.exists, files)) == 2
    assert os.path.exists(files[-1])


def digests(path) -> dict[str, str]:
    return {name: split.digest() for name, split in rk.open(path).splits.items()}


def test_records_that_were_selected_in_other_files_are_refused(dataset, foreign):
    known = digests(dataset)
    plan = plan_edit("delete", dataset, CHOSEN, out="new", digests=known)
    assert plan.refusal is None
    # The numbers of a single file are not those of its folder.
    shard = sorted(foreign.glob("train-*"))[0]
    alone = plan_edit(
        "delete", foreign, [("train", 3)], digests={"train": rk.open(shard)["train"].digest()}
    ).to_dict()
    assert (alone["command"], alone["error"]["code"]) == (None, "X570")
    assert alone["error"]["location"]["path"] == str(foreign)
    rk.delete(dataset, replace=True, records=[("train", 0)], progress=False)
    assert plan_edit("delete", dataset, CHOSEN, digests=known).refusal.code == "X570"
    with pytest.raises(UsageError) as caught:
        run(EditRun(plan), fails=True)
    assert caught.value.code == "X570"
    assert not os.path.exists("new")
    gone = plan_edit("delete", dataset, [("test", 0)], digests={"test": "0"})
    assert gone.refusal.found == "no split of this name"


@pytest.mark.parametrize(
    ("column", "label", "expected", "do"),
    [
        ("label", "cpw", "one of `cat`, `dog`, `cow`, or an id from 0 to 2", "did you mean 'cow'?"),
        ("label", 3, "one of `cat`, `dog`, `cow`, or an id from 0 to 2", None),
        ("label", "-1", "one of `cat`, `dog`, `cow`, or an id from 0 to 2", None),
        ("x", "cow", "an integer", None),
        ("lable", "cow", "one of `x`, `label`", None),
    ],
)
def test_a_class_that_does_not_exist_is_refused_before_a_command_is_shown(dataset, column, label, expected, do):
    plan = plan_edit("relabel", dataset, CHOSEN, column=column, label=label, digests=digests(dataset)).to_dict()
    assert (plan["command"], plan["error"]["code"], plan["error"]["location"]) == (None, "U606", {"feature": column})
    assert (plan["error"]["expected"], plan["error"]["do"]) == (expected, do)


@pytest.mark.parametrize(
    ("column", "label"), [("label", "cow"), ("label", 2), ("label", "2"), ("x", "-7"), ("x", 99)]
)
def test_classes_are_given_by_name_or_id(dataset, column, label):
    plan = plan_edit("relabel", dataset, CHOSEN, column=column, label=label, digests=digests(dataset))
    assert plan.refusal is None
    assert f"--set {column}={label}" in plan.commands[0].shell
