"""`rk.balance`: classes with exactly as many records as is asked for."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_storage import Crash, FaultyStorage
from sample_conversions import disable_fsync, edit_manifest, find_leftovers, read_tree

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.cli.rewrite import parse_strategy
from rekord.dataset.manifest import read_manifest
from rekord.verbs.balance import prepare_balance
from rekord.verbs.options import BalanceOptions

NAMES = ["cat", "dog", "owl"]
SCHEMA = rk.Schema({"label": rk.Label(NAMES), "n": rk.Int64(), "text": rk.Text()})
TRAIN, VAL = {"cat": 60, "dog": 18, "owl": 6}, {"cat": 20, "dog": 6, "owl": 2}


def rows_of(counts: list[int]) -> list[dict[str, Any]]:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
    return [{"label": label, "n": i, "text": "t" * (i % 20)} for i, label in enumerate(labels)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rk.write(
        rows_of([80, 24, 8]),
        tmp_path / "in",
        schema=SCHEMA,
        split={"train": 0.75, "val": 0.25},
        stratify="label",
        shards=2,
        progress=False,
        workers=1,
    )
    return tmp_path / "in"


def balanced(path: Any, out: Path, **options: Any) -> rk.Dataset:
    return rk.balance(path, out, progress=False, **{"workers": 1, **options})


def counts(split: rk.Split) -> dict[str, int]:
    found = Counter(NAMES[row["label"]] for row in split)
    return {name: found[name] for name in NAMES}


def payloads(split: rk.Split) -> list[bytes]:
    return [bytes(one) for path in split.paths for one in rk.records(path)]


@pytest.mark.parametrize(
    ("method", "strategy", "after"),
    [
        ("oversample", "auto", [60, 60, 60]),
        ("oversample", "not majority", [60, 60, 60]),
        ("oversample", "minority", [60, 18, 60]),
        ("oversample", "not minority", [60, 60, 6]),
        ("oversample", "all", [60, 60, 60]),
        ("oversample", {"owl": 31, "dog": 18}, [60, 18, 31]),
        ("oversample", {2: 8, 0: 61}, [61, 18, 8]),
        ("oversample", lambda labels: {1: int((labels == 0).sum()) + 1}, [60, 61, 6]),
        ("undersample", "auto", [6, 6, 6]),
        ("undersample", "majority", [6, 18, 6]),
        ("undersample", "not majority", [60, 6, 6]),
        ("undersample", "all", [6, 6, 6]),
        ("undersample", {"cat": 17, "owl": 0}, [17, 18, 0]),
    ],
)
def test_each_class_has_exactly_what_the_strategy_says_and_val_is_left_alone(data, tmp_path, method, strategy, after):
    made = balanced(data, tmp_path / "out", method=method, sampling_strategy=strategy)
    assert counts(made["train"]) == dict(zip(NAMES, after, strict=True))
    assert counts(made["val"]) == VAL
    classes = read_manifest(str(tmp_path / "out")).splits["train"].classes["label"]
    assert classes == {str(i): count for i, count in enumerate(after) if count}
    assert rk.check(tmp_path / "out").ok


@pytest.mark.parametrize(("method", "after"), [("oversample", {"cat": 60, "dog": 30}), ("undersample", {"cat": 36})])
def test_a_ratio_is_for_two_classes(tmp_path, method, after):
    rk.write(rows_of([60, 18]), tmp_path / "in", schema=SCHEMA, progress=False, workers=1)
    made = balanced(tmp_path / "in", tmp_path / "out", method=method, sampling_strategy=0.5)
    assert counts(made["train"]) == {"cat": 60, "dog": 18, "owl": 0, **after}


def test_copies_are_the_records_themselves_as_many_of_each_as_of_any_other(data, tmp_path):
    made = balanced(data, tmp_path / "out", sampling_strategy={"owl": 20, "dog": 18, "cat": 100})
    old = Counter(payloads(rk.open(data)["train"]))
    new = Counter(payloads(made["train"]))
    assert set(new) == set(old)
    label_of = {payload: rk.decode(payload, SCHEMA)["label"] for payload in old}
    for label, allowed in ((0, {1, 2}), (1, {1}), (2, {3, 4})):
        assert {count for payload, count in new.items() if label_of[payload] == label} == allowed


def test_undersampling_keeps_records_once_and_another_seed_keeps_others(data, tmp_path):
    kept = {}
    for seed in (0, 1):
        made = balanced(data, tmp_path / str(seed), method="undersample", seed=seed)
        found = payloads(made["train"])
        assert len(set(found)) == len(found) == 18
        kept[seed] = set(found)
    assert kept[0] <= set(payloads(rk.open(data)["train"]))
    assert kept[0] != kept[1]


def test_other_splits_are_the_very_files_under_their_old_digests(data, tmp_path):
    balanced(data, tmp_path / "out")
    old, new = rk.open(data)["val"], rk.open(tmp_path / "out")["val"]
    assert [os.path.samefile(*pair) for pair in zip(old.paths, new.paths, strict=True)] == [True, True]
    before, after = read_manifest(str(data)), read_manifest(str(tmp_path / "out"))
    assert after.splits["val"] == before.splits["val"]
    assert after.parent is not None
    assert after.options["verb"] == "balance"


def test_splits_that_are_named_are_balanced_each_on_its_own(data, tmp_path):
    made = balanced(data, tmp_path / "out", splits=["val", "train"])
    assert counts(made["train"]) == dict.fromkeys(NAMES, 60)
    assert counts(made["val"]) == dict.fromkeys(NAMES, 20)
    for name in ("train", "val"):  # no record has gone over to another split
        assert set(payloads(made[name])) == set(payloads(rk.open(data)[name]))


def test_without_shuffle_copies_come_behind_all_others(data, tmp_path):
    made = balanced(data, tmp_path / "out", shuffle=False)
    old = payloads(rk.open(data)["train"])
    assert payloads(made["train"])[: len(old)] == old
    shuffled = balanced(data, tmp_path / "shuffled")
    assert payloads(shuffled["train"]) != payloads(made["train"])
    assert Counter(payloads(shuffled["train"])) == Counter(payloads(made["train"]))


@pytest.mark.parametrize("method", ["oversample", "undersample"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_one_worker_and_three_make_the_same_bytes(data, tmp_path, method, shuffle):
    for workers in (1, 3):
        options = {"sampling_strategy": {"cat": 50}} if method == "undersample" else {}
        out = tmp_path / str(workers)
        balanced(data, out, method=method, shuffle=shuffle, shard_size=500, workers=workers, **options)
    assert len(rk.open(tmp_path / "1")["train"].paths) > 5
    assert read_tree(tmp_path / "1") == read_tree(tmp_path / "3")


def test_records_without_a_class_stay_as_they_are(tmp_path):
    schema = rk.Schema({"label": rk.Label(NAMES, optional=True), "n": rk.Int64()})
    rows = [{"label": None if i % 4 == 3 else i % 12 == 0, "n": i} for i in range(48)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False, workers=1)
    for method, after in (("oversample", 32), ("undersample", 4)):
        made = balanced(tmp_path / "in", tmp_path / method, method=method)["train"]
        found = Counter(row["label"] for row in made)
        assert found == {None: 12, 0: after, 1: after}
        assert sorted(row["n"] for row in made if row["label"] is None) == list(range(3, 48, 4))
    prepared = prepare_balance(tmp_path / "in", tmp_path / "x", BalanceOptions(method="undersample"))
    assert prepared.to_dict()["splits"]["train"]["without"] == 12


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (rk.Text(), ["a", "b"]),
        (rk.Bytes(), [b"a", b"\xff"]),
        (rk.Int64(), [-5, 7]),
        (rk.Int64(dtype="bool"), [True, False]),
    ],
)
def test_classes_may_be_texts_bytes_and_numbers_without_an_index(tmp_path, feature, values):
    rows = [{"kind": values[i % 5 == 0], "n": i} for i in range(50)]
    schema = rk.Schema({"kind": feature, "n": rk.Int64()})
    rk.write(rows, tmp_path / "in", schema=schema, progress=False, workers=1)
    made = balanced(tmp_path / "in", tmp_path / "out", by="kind")["train"]
    assert Counter(row["kind"] for row in made[:]) == {values[0]: 40, values[1]: 40}
    made = balanced(
        tmp_path / "in",
        tmp_path / "named",
        by="kind",
        method="undersample",
        sampling_strategy={values[0]: 12},
    )
    assert Counter(row["kind"] for row in made["train"]) == {values[0]: 12, values[1]: 10}


def test_files_of_others_and_compressed_ones_are_balanced(tmp_path):
    for split, sizes in (("train", [30, 4, 1]), ("test", [9, 2, 1])):
        with rk.Writer(tmp_path / f"{split}.tfrecord", SCHEMA) as writer:
            for row in rows_of(sizes):
                writer.write(row)
    folder = tmp_path / "in"
    folder.mkdir()
    for split in ("train", "test"):
        (tmp_path / f"{split}.tfrecord").rename(folder / f"{split}.tfrecord")
    made = balanced(rk.open(folder, schema=SCHEMA), tmp_path / "out", compression="gzip")
    assert counts(made["train"]) == dict.fromkeys(NAMES, 30)
    assert made["train"].paths[0].endswith(".gz")
    assert Path(made["test"].paths[0]).read_bytes() == (folder / "test.tfrecord").read_bytes()
    packed = balanced(tmp_path / "out", tmp_path / "again", method="undersample", sampling_strategy={"cat": 7})
    assert counts(packed["train"]) == {"cat": 7, "dog": 30, "owl": 30}
    assert packed["train"].paths[0].endswith(".gz")


def test_one_record_has_as_many_copies_as_are_asked_for_and_shards_may_be_empty(tmp_path):
    rk.write(rows_of([3, 1]), tmp_path / "in", schema=SCHEMA, progress=False, workers=1)
    made = balanced(tmp_path / "in", tmp_path / "out", sampling_strategy={"dog": 50_000}, shards=2)
    assert counts(made["train"]) == {"cat": 3, "dog": 50_000, "owl": 0}
    fewer = balanced(tmp_path / "in", tmp_path / "few", method="undersample", shards=5)
    assert counts(fewer["train"]) == {"cat": 1, "dog": 1, "owl": 0}
    assert len(fewer["train"].paths) == 5
    none = balanced(tmp_path / "in", tmp_path / "none", method="undersample", sampling_strategy={"dog": 0, "cat": 0})
    assert list(none["train"]) == []


def test_sequences_are_balanced_by_a_column_of_their_context(tmp_path):
    schema = rk.Schema(context={"label": rk.Label(2)}, steps={"x": rk.Int64()})
    rows = [{"label": int(i % 4 == 0), "x": [i] * (i % 3)} for i in range(40)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False, workers=1)
    made = balanced(tmp_path / "in", tmp_path / "out")["train"]
    assert Counter(int(row["label"]) for row in made) == {0: 30, 1: 30}


def test_a_folder_for_tensorflow_datasets_is_made_where_it_is_asked_for(data, tmp_path):
    made = balanced(data, tmp_path / "even" / "1.0.0", format="tfds")
    assert counts(made["train"]) == dict.fromkeys(NAMES, 60)
    told = json.loads((tmp_path / "even" / "1.0.0" / "dataset_info.json").read_text())
    assert {one["name"]: sum(map(int, one["shardLengths"])) for one in told["splits"]} == {
        "train": 180,
        "val": 28,
    }


def test_a_view_is_balanced_as_it_is(data, tmp_path):
    view = rk.open(data)["train"][:40]
    before = counts(view)
    made = balanced(view, tmp_path / "out")
    assert counts(made["train"]) == dict.fromkeys(NAMES, max(before.values()))
    assert set(payloads(made["train"])) == {rk.encode(dict(row), SCHEMA) for row in view}


def test_the_same_again_has_nothing_to_do_and_another_seed_is_another_dataset(data, tmp_path):
    balanced(data, tmp_path / "out")
    before = read_tree(tmp_path / "out")
    prepared = prepare_balance(data, tmp_path / "out", BalanceOptions())
    assert prepared.run(progress=False).nothing_to_do
    assert read_tree(tmp_path / "out") == before
    with pytest.raises(rk.UsageError) as caught:
        balanced(data, tmp_path / "out", seed=1)
    assert (caught.value.code, caught.value.what) == ("U618", "output already exists")
    balanced(data, tmp_path / "out", seed=1, fresh=True)
    assert read_tree(tmp_path / "out") != before


@pytest.mark.parametrize("method", ["oversample", "undersample"])
@pytest.mark.slow
def test_what_dies_at_any_step_is_ended_by_the_next_run_with_the_same_bytes(data, tmp_path, monkeypatch, method):
    disable_fsync(monkeypatch)
    requested = BalanceOptions(method=method, shards=2, workers=1)
    storage = FaultyStorage()
    (tmp_path / "whole").mkdir()
    prepare_balance(data, tmp_path / "whole" / "out", requested, storage=storage).run(progress=False)
    whole = read_tree(tmp_path / "whole" / "out")
    steps = len(storage.operations)
    assert steps > 20
    for step in range(1, steps + 1):
        out = tmp_path / str(step) / "out"
        out.parent.mkdir()
        with suppress(Crash):
            faulty = FaultyStorage(fail_at=step)
            prepare_balance(data, out, requested, storage=faulty).run(progress=False)
        assert not out.exists() or read_tree(out) == whole
        prepare_balance(data, out, requested).run(progress=False)
        assert read_tree(out) == whole
        assert find_leftovers(out) == []


# What is refused.


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (
            {"sampling_strategy": "majority"},
            'U667: `label` of train cannot be balanced: "majority" does not apply',
        ),
        (
            {"sampling_strategy": "minority", "method": "undersample"},
            'U667: `label` of train cannot be balanced: "minority" does not apply',
        ),
        (
            {"sampling_strategy": "minorty"},
            "U667: `label` of train cannot be balanced: 'minorty' is not a valid strategy",
        ),
        ({"sampling_strategy": 0.5}, "U667: `label` of train cannot be balanced: a ratio needs two"),
        ({"sampling_strategy": None}, "U667: `label` of train cannot be balanced: None is not a valid strategy"),
        (
            {"sampling_strategy": ["cat"]},
            "U667: `label` of train cannot be balanced: ['cat'] is not a valid strategy",
        ),
        (
            {"sampling_strategy": {"cow": 3}},
            "U667: `label` of train cannot be balanced: class 'cow' has no records",
        ),
        (
            {"sampling_strategy": {"cat": 3}},
            "U667: `label` of train cannot be balanced: class cat cannot lose",
        ),
        (
            {"sampling_strategy": {"cat": 61}, "method": "undersample"},
            "U667: `label` of train cannot be balanced: class cat cannot gain",
        ),
        (
            {"sampling_strategy": {"cat": -1}, "method": "undersample"},
            "U667: `label` of train cannot be balanced: class 'cat' has no valid number",
        ),
        (
            {"sampling_strategy": {"cat": 70, 0: 80}},
            "U667: `label` of train cannot be balanced: class 0 is a duplicate",
        ),
        (
            {"sampling_strategy": {"cat": 70.5}},
            "U667: `label` of train cannot be balanced: class 'cat' has no valid number",
        ),
        (
            {"sampling_strategy": {("a", ()): 70}},
            "U667: `label` of train cannot be balanced: class ('a', ()) has no records",
        ),
        (
            {"sampling_strategy": {"cat": 10**10}},
            "U667: `label` of train cannot be balanced: the result would have too many",
        ),
        (
            {"sampling_strategy": {"owl": 2**29, "dog": 2**29}},
            "U667: `label` of train cannot be balanced: the result would have too many",
        ),
        (
            {"sampling_strategy": lambda labels: 1 / 0},
            "U667: `label` of train cannot be balanced: the function `sampling_strategy`",
        ),
        (
            {"sampling_strategy": lambda labels: 7},
            "U667: `label` of train cannot be balanced: the function `sampling_strategy`",
        ),
        ({"method": "over"}, "U605: `method` cannot be 'over'"),
        (
            {"method": "undersample", "augment": "flip"},
            "U605: `augment` does not apply to method 'undersample'",
        ),
        ({"augment": "blur"}, "U605: unknown augmentation 'blur'"),
        ({"augment": "flip"}, "S138"),
        ({"columns": ["n"]}, "U605: `columns` does not apply to method 'oversample'"),
        ({"k_neighbors": 3}, "U605: `k_neighbors` does not apply to method 'oversample'"),
        ({"per_box": ["n"]}, "U605: `per_box` does not apply without `augment`: plain copies keep"),
        ({"by": "nothing"}, "S116"),
        ({"by": "text", "splits": "tran"}, "X506"),
        ({"splits": []}, "U605: splits to balance are not given"),
        ({"splits": 7}, "X506"),
        ({"seed": -1}, "U605: `seed` cannot be -1"),
        ({"k_neighbors": 0}, "U605: `k_neighbors` cannot be 0"),
        ({"compression": "zstd"}, "U605: `compression` cannot be 'zstd'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(data, tmp_path, options, code):
    with pytest.raises(rk.RekordError) as caught:
        balanced(data, tmp_path / "out", **options)
    assert str(caught.value).startswith(code)
    assert sorted(os.listdir(tmp_path)) == ["in"]


def test_a_strategy_names_the_class_that_was_meant(data, tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        balanced(data, tmp_path / "out", sampling_strategy={"dogs": 30})
    assert caught.value.do == "did you mean 'dog'?"


def test_a_ratio_for_more_than_two_classes_leads_to_their_names(data, tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        balanced(data, tmp_path / "out", sampling_strategy=0.5)
    assert caught.value.do == "sampling_strategy={'cat': …, 'dog': …, 'owl': …}"


@pytest.mark.parametrize(
    ("feature", "few", "many", "names"),
    [
        (rk.Int64(dtype="bool"), True, False, ["True", "1"]),
        (rk.Int64(), -5, 3, ["-5"]),
        (rk.Bytes(), b"\xff\0", b"b", ["\\xff\x00"]),
        (rk.Text(), "7", "8", ["7"]),
        (rk.Label(["10", "0"]), 1, 0, ["0"]),
        (rk.Label(["a", "b"]), 1, 0, ["b", "1"]),
    ],
)
def test_a_class_is_named_on_a_command_line_as_it_is_shown(tmp_path, feature, few, many, names):
    schema = rk.Schema({"kind": feature})
    rows = [{"kind": few if n % 4 == 0 else many} for n in range(20)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False, workers=1)
    for name in names:
        requested = BalanceOptions(by="kind", sampling_strategy={name: 9})
        (draw,) = prepare_balance(tmp_path / "in", tmp_path / "out", requested).samples.values()
        assert draw.after == {many: 15, few: 9}


def test_lists_of_classes_are_refused_and_lead_to_repeat_factors(tmp_path):
    schema = rk.Schema({"label": rk.Label(3, shape=(None,))})
    rk.write([{"label": [0, 1]}, {"label": [2]}], tmp_path / "in", schema=schema, progress=False, workers=1)
    with pytest.raises(rk.UsageError) as caught:
        balanced(tmp_path / "in", tmp_path / "out")
    assert (caught.value.code, caught.value.what) == (
        "U667",
        "`label` holds several classes per record, which copies would change together",
    )
    assert caught.value.location.feature == "label"
    assert "split.balanced" in (caught.value.do or "")


def test_one_class_alone_is_refused(tmp_path):
    rk.write(rows_of([5]), tmp_path / "in", schema=SCHEMA, progress=False, workers=1)
    with pytest.raises(rk.UsageError) as caught:
        balanced(tmp_path / "in", tmp_path / "out")
    assert (caught.value.code, caught.value.what, caught.value.found) == (
        "U667",
        "`label` of train cannot be balanced: it has one class",
        "cat",
    )
    assert caught.value.what == "`label` of train cannot be balanced: it has one class"


def test_a_class_that_is_not_declared_is_named_with_its_record(tmp_path):
    wide = rk.Schema({"label": rk.Int64(), "n": rk.Int64()})
    path = tmp_path / "in" / "train.tfrecord"
    path.parent.mkdir()
    with rk.Writer(path, wide) as writer:
        for i in range(9):
            writer.write({"label": 7 if i == 4 else i % 2, "n": i})
    split = rk.open(path, schema=rk.Schema({"label": rk.Label(2), "n": rk.Int64()}))
    with pytest.raises(rk.DatasetError) as caught:
        balanced(split, tmp_path / "out")
    assert (caught.value.code, caught.value.location.record, caught.value.found) == ("X552", 4, "7")


@pytest.mark.parametrize("names", [["val"], ["a", "b"]])
def test_without_a_train_split_one_must_be_named(tmp_path, names):
    split = {name: 1 / len(names) for name in names}
    rk.write(rows_of([30, 9]), tmp_path / "in", schema=SCHEMA, split=split, progress=False, workers=1)
    with pytest.raises(rk.UsageError) as caught:
        balanced(tmp_path / "in", tmp_path / "out")
    assert (caught.value.code, caught.value.what, caught.value.found) == (
        "U605",
        "splits to balance are not given",
        ", ".join(names),
    )
    made = balanced(tmp_path / "in", tmp_path / "out", splits=names)
    assert all(counts(made[name])["cat"] == counts(made[name])["dog"] for name in names)


def test_a_damaged_record_ends_it_with_its_place_and_nothing_appears(data, tmp_path):
    path = Path(rk.open(data)["train"].paths[1])
    whole = bytearray(path.read_bytes())
    whole[20] ^= 1
    path.write_bytes(whole)
    with pytest.raises(rk.FrameError) as caught:
        balanced(data, tmp_path / "out")
    assert (caught.value.code, caught.value.location.path, caught.value.location.record) == (
        "F102",
        str(path),
        0,
    )
    assert not (tmp_path / "out").exists()


# The command.


def test_the_command_says_counts_before_and_after(data, tmp_path, capsys):
    assert run_command_line(["balance", str(data), str(tmp_path / "out"), "--strategy", "owl=10"]) == 0
    said = capsys.readouterr()
    assert "4 records added, 0 removed" in said.out
    assert "train, label:\n  cat  60 → 60\n  dog  18 → 18\n  owl   6 → 10\nunchanged: val\n" in said.out


def test_of_many_classes_the_command_shows_some(tmp_path, capsys):
    rows = [{"label": n % 25} for n in range(26)]
    rk.write(rows, tmp_path / "in", schema=rk.Schema({"label": rk.Int64()}), progress=False, workers=1)
    assert run_command_line(["balance", str(tmp_path / "in"), str(tmp_path / "out"), "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["train, label:", "  0   2 → 2", "  1   1 → 2"]
    assert (len(lines), lines[-1]) == (22, "  … and 5 more")


def test_the_command_gives_one_document(data, tmp_path, capsys):
    out = str(tmp_path / "out")
    assert (
        run_command_line(["balance", str(data), out, "--method", "undersample", "--splits", "train,val", "--json"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert told.pop("seconds") >= 0
    assert told == {
        "dataset": out,
        "by": "label",
        "method": "undersample",
        "splits": {
            "train": {"before": TRAIN, "after": dict.fromkeys(NAMES, 6), "without": 0},
            "val": {"before": VAL, "after": dict.fromkeys(NAMES, 2), "without": 0},
        },
        "kept": [],
        "added": 0,
        "removed": 88,
        "resumed_shards": 0,
    }


def test_a_class_that_is_not_declared_is_a_finding_of_the_command(tmp_path, capsys):
    rk.write(rows_of([9, 3, 2]), tmp_path / "in", schema=SCHEMA, progress=False, workers=1)
    edit_manifest(tmp_path / "in", lambda told: told["schema"]["features"]["label"]["names"].pop())
    assert run_command_line(["balance", str(tmp_path / "in"), str(tmp_path / "out")]) == 1
    assert "X552: 2 of 14 records have an undeclared class in `label`" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(data, tmp_path, capsys):
    assert run_command_line(["balance", str(data), str(tmp_path / "out"), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["dry_run"], told["added"]) == (True, 96)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("auto", "auto"),
        ("not minority", "not minority"),
        ("0.5", 0.5),
        ("cat=500, dog=300", {"cat": 500, "dog": 300}),
        ("a=b=3", {"a=b": 3}),
    ],
)
def test_a_strategy_is_read_from_the_command_line(text, meant):
    assert parse_strategy(text) == meant


@pytest.mark.parametrize("text", ["cat=", "=5", "cat=5,cat=6", "cat=-1", "cat=5.5", "cat=5,dog"])
def test_a_strategy_that_cannot_be_read_is_wrong_usage(text, data, tmp_path, capsys):
    assert run_command_line(["balance", str(data), str(tmp_path / "out"), "--strategy", text]) == 2
    assert "U601" in capsys.readouterr().err
