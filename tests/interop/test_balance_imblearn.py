"""Balancing against imbalanced-learn: the same numbers for every strategy, and its own SMOTE."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_storage import Crash, FaultyStorage
from hypothesis import given
from hypothesis import strategies as st
from imblearn.over_sampling import SMOTE, SMOTENC
from imblearn.utils import check_sampling_strategy
from sample_conversions import disable_fsync, read_tree

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.verbs import resampling
from rekord.verbs.balance import prepare_balance
from rekord.verbs.options import BalanceOptions
from rekord.verbs.resampling import STRATEGY_NAMES, ClassSummary, compute_targets

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=5)
SCHEMA = rk.Schema(
    {
        "vec": rk.Float32(shape=(3, 2)),
        "whole": rk.Int64(),
        "wide": rk.Tensor("float64", shape=(2,)),
        "label": rk.Label(["a", "b", "c"]),
        "text": rk.Text(optional=True),
    }
)


def theirs(strategy: Any, counts: list[int], *, grow: bool) -> dict[int, int] | None:
    """The records of each class afterwards, as imbalanced-learn has it; None where it refuses."""
    labels = np.repeat(np.arange(len(counts)), counts)
    try:
        changes = check_sampling_strategy(strategy, labels, "over-sampling" if grow else "under-sampling")
    except ValueError:
        return None
    after = dict(enumerate(counts))
    for one, number in changes.items():
        after[one] = after[one] + number if grow else number
    return after


def ours(strategy: Any, counts: list[int], *, grow: bool) -> dict[int, int] | None:
    labels = np.repeat(np.arange(len(counts)), counts)
    classes = ClassSummary(
        split="train", by="label", counts=dict(enumerate(counts)), class_of=lambda one: one, name_of=str
    )
    try:
        return compute_targets(strategy, classes, lambda: labels, grow=grow)
    except rk.UsageError as failure:
        return None if " cannot be balanced: " in failure.what else {-1: -1}


@given(COUNTS, st.sampled_from(STRATEGY_NAMES), st.booleans())
def test_words_mean_what_they_mean_there(counts, word, grow):
    assert ours(word, counts, grow=grow) == theirs(word, counts, grow=grow)


# imbalanced-learn itself overflows next to 0.
@given(COUNTS, st.floats(-0.2, 1.2).filter(lambda ratio: not 0 < ratio < 1e-300), st.booleans())
def test_ratios_mean_what_they_mean_there(counts, ratio, grow):
    assert ours(ratio, counts, grow=grow) == theirs(ratio, counts, grow=grow)


@pytest.mark.parametrize("grow", [False, True])
def test_a_ratio_next_to_0_is_refused(grow):
    assert ours(5e-324, [1, 1], grow=grow) is None


@given(
    st.lists(st.integers(1, 60), min_size=2, max_size=2),
    st.integers(1, 60),
    st.integers(1, 60),
    st.booleans(),
)
def test_ratios_of_whole_numbers_are_rounded_as_there(counts, above, below, grow):
    ratio = min(above, below) / max(above, below)
    assert ours(ratio, counts, grow=grow) == theirs(ratio, counts, grow=grow)


@given(COUNTS, st.dictionaries(st.integers(0, 5), st.integers(-1, 60), max_size=5), st.booleans())
def test_numbers_by_class_mean_what_they_mean_there(counts, asked, grow):
    assert ours(asked, counts, grow=grow) == theirs(asked, counts, grow=grow)
    assert ours(lambda labels: asked, counts, grow=grow) == theirs(lambda labels: asked, counts, grow=grow)


# SMOTE.


def rows_of(counts: list[int], **more: Any) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts)).tolist()
    return [
        {
            "vec": rng.normal(label, 1, (3, 2)).astype(np.float32),
            "whole": int(rng.integers(0, 100)),
            "wide": rng.normal(size=2),
            "label": label,
            **more,
        }
        for label in labels
    ]


def written(folder: Path, rows: list[dict[str, Any]], schema: rk.Schema = SCHEMA, **options: Any) -> Path:
    rk.write(rows, folder / "in", schema=schema, progress=False, workers=1, **options)
    return folder / "in"


def smote(path: Path, out: Path, **options: Any) -> rk.Dataset:
    return rk.balance(path, out, method="smote", progress=False, **{"workers": 1, "shuffle": False, **options})


def matrix(rows: Any) -> Any:
    return np.array([[*np.ravel(row["vec"]), row["whole"], *row["wide"]] for row in rows], np.float64)


def test_new_rows_are_those_of_imbalanced_learn(tmp_path):
    rows = rows_of([40, 12, 7])
    made = list(smote(written(tmp_path, rows), tmp_path / "out", seed=5)["train"])
    assert Counter(int(row["label"]) for row in made) == {0: 40, 1: 40, 2: 40}
    labels = [row["label"] for row in rows]
    expected, classes = SMOTE(random_state=5, k_neighbors=5).fit_resample(matrix(rows), labels)
    assert [int(row["label"]) for row in made] == list(classes)
    found, rounded = matrix(made), expected.copy()
    rounded[:, 6] = np.rint(rounded[:, 6])
    rounded[:, :6] = rounded[:, :6].astype(np.float32)
    assert (found == rounded).all()
    assert all(row["text"] is None for row in made)
    assert rk.check(tmp_path / "out").ok


def test_the_records_that_there_were_are_the_same_bytes(tmp_path):
    path = written(tmp_path, rows_of([20, 8, 7], text="hello"))
    old = [bytes(one) for one in rk.records(rk.open(path)["train"].paths[0])]
    made = smote(path, tmp_path / "out")["train"]
    assert [bytes(one) for one in rk.records(made.paths[0])][:35] == old
    shuffled = smote(path, tmp_path / "shuffled", shuffle=True)["train"]
    assert Counter(map(bytes, rk.records(shuffled.paths[0]))) == Counter(map(bytes, rk.records(made.paths[0])))


def test_categories_beside_numbers_are_voted_on_by_smotenc(tmp_path):
    schema = rk.Schema(
        {"label": rk.Label(2), "colour": rk.Label(3), "x": rk.Float32(), "flag": rk.Int64(dtype="bool")}
    )
    rng = np.random.default_rng(1)
    rows = [
        {
            "label": int(i % 5 == 0),
            "colour": int(rng.integers(3)),
            "x": float(rng.normal()),
            "flag": bool(i % 3),
        }
        for i in range(60)
    ]
    made = list(smote(written(tmp_path, rows, schema), tmp_path / "out", seed=2)["train"])
    vectors = np.array([[row["colour"], np.float32(row["x"]), row["flag"]] for row in rows], np.float64)
    sampler = SMOTENC(categorical_features=[0, 2], random_state=2)
    expected, _ = sampler.fit_resample(vectors, [row["label"] for row in rows])
    assert Counter(int(row["label"]) for row in made) == {0: 48, 1: 48}
    assert [int(row["colour"]) for row in made] == expected[:, 0].astype(int).tolist()
    assert [bool(row["flag"]) for row in made] == expected[:, 2].astype(bool).tolist()
    assert [row["x"] for row in made] == expected[:, 1].astype(np.float32).tolist()


def test_a_strategy_and_neighbours_are_kept_and_val_is_left_alone(tmp_path):
    rows = rows_of([60, 24, 8])
    path = written(tmp_path, rows, split={"train": 0.75, "val": 0.25}, stratify="label")
    made = smote(path, tmp_path / "out", sampling_strategy={"c": 20, "b": 19}, k_neighbors=2)
    assert Counter(int(row["label"]) for row in made["train"]) == {0: 45, 1: 19, 2: 20}
    assert Path(made["val"].paths[0]).read_bytes() == Path(rk.open(path)["val"].paths[0]).read_bytes()


def test_columns_that_are_not_named_are_left_out_where_they_may_be(tmp_path):
    schema = rk.Schema(
        {"x": rk.Float32(), "y": rk.Float32(optional=True), "z": rk.Int64(default=7), "label": rk.Label(2)}
    )
    rows = [{"x": float(i), "y": float(i), "z": i, "label": int(i % 4 == 0)} for i in range(40)]
    made = list(smote(written(tmp_path, rows, schema), tmp_path / "out", columns=["x"])["train"])
    assert len(made) == 60
    assert {(row["y"], int(row["z"])) for row in made[40:]} == {(None, 7)}


def test_records_without_a_class_are_no_neighbours(tmp_path):
    schema = rk.Schema({"x": rk.Float32(), "label": rk.Label(2, optional=True)})
    rows = [
        {"x": 1e9 if i % 3 == 2 else float(i), "label": None if i % 3 == 2 else int(i % 12 == 0)} for i in range(72)
    ]
    made = list(smote(written(tmp_path, rows, schema), tmp_path / "out")["train"])
    assert Counter(row["label"] for row in made) == {None: 24, 0: 42, 1: 42}
    assert max(row["x"] for row in made[72:]) < 100


def test_one_worker_and_three_make_the_same_bytes(tmp_path):
    path = written(tmp_path, rows_of([40, 12, 7]))
    for workers in (1, 3):
        smote(path, tmp_path / str(workers), shards=5, shuffle=True, workers=workers)
    assert read_tree(tmp_path / "1") == read_tree(tmp_path / "3")


def test_what_dies_is_ended_by_the_next_run_with_the_same_bytes(tmp_path, monkeypatch):
    disable_fsync(monkeypatch)
    path = written(tmp_path, rows_of([20, 8, 7]))
    asked = BalanceOptions(method="smote", shards=2, workers=1)
    storage = FaultyStorage()
    (tmp_path / "whole").mkdir()
    prepare_balance(path, tmp_path / "whole" / "out", asked, storage=storage).run(progress=False)
    for step in range(1, len(storage.operations) + 1, 3):
        out = tmp_path / str(step) / "out"
        out.parent.mkdir()
        with suppress(Crash):
            prepare_balance(path, out, asked, storage=FaultyStorage(fail_at=step)).run(progress=False)
        prepare_balance(path, out, asked).run(progress=False)
        assert read_tree(out) == read_tree(tmp_path / "whole" / "out")


@pytest.mark.parametrize(
    ("columns", "asked", "feature"),
    [
        ({"x": rk.Float32(), "text": rk.Text()}, None, "text"),
        ({"x": rk.Float32(), "raw": rk.Bytes()}, ["x"], "raw"),
        ({"x": rk.Float32(), "long": rk.Int64(shape=(None,))}, None, "long"),
        ({"x": rk.Float32(), "long": rk.Int64(shape=(None,))}, ["long"], "long"),
        ({"x": rk.Float32()}, ["y"], "y"),
        ({"x": rk.Float32()}, ["label"], "label"),
        ({"kind": rk.Label(3)}, None, "label"),
        ({}, None, "label"),
        ({"x": rk.Float32(), "y": rk.Float32()}, ["x"], "y"),
    ],
)
def test_what_is_no_vector_is_refused_by_name(tmp_path, columns, asked, feature):
    values = {"x": 1.0, "y": 1.0, "text": "t", "raw": b"r", "long": [1], "kind": 0}
    schema = rk.Schema({**columns, "label": rk.Label(2)})
    rows = [{**{name: values[name] for name in columns}, "label": int(i % 4 == 0)} for i in range(40)]
    with pytest.raises(rk.UsageError) as caught:
        smote(written(tmp_path, rows, schema), tmp_path / "out", columns=asked)
    assert (caught.value.code, caught.value.location.feature) == ("U667", feature)
    assert re.match(
        "SMOTE cannot make values for `.*`|.* cannot be part of a feature vector|SMOTE needs a column of numbers",
        caught.value.what,
    )
    assert not (tmp_path / "out").exists()


def test_a_class_with_too_few_records_is_named(tmp_path):
    path = written(tmp_path, rows_of([20, 8, 3]))
    with pytest.raises(rk.UsageError) as caught:
        smote(path, tmp_path / "out")
    assert (caught.value.code, caught.value.what, caught.value.found, caught.value.do) == (
        "U667",
        "class c has too few records for SMOTE",
        "3",
        "k_neighbors=2",
    )
    smote(path, tmp_path / "out", k_neighbors=2)


@pytest.mark.parametrize(("value", "found"), [(float("nan"), "nan"), (None, "no value"), (float("inf"), "inf")])
def test_a_value_that_is_no_number_is_named_with_its_record(tmp_path, value, found, capsys):
    schema = rk.Schema({"x": rk.Float32(optional=True), "label": rk.Label(2)})
    rows = [{"x": value if i == 17 else float(i), "label": int(i % 4 == 0)} for i in range(40)]
    path = written(tmp_path, rows, schema)
    with pytest.raises(rk.EncodeError) as caught:
        smote(path, tmp_path / "out", columns=["x"])
    where = caught.value.location
    assert (caught.value.code, where.record, where.feature, caught.value.found) == ("E395", 17, "x", found)
    assert not (tmp_path / "out").exists()
    command = ["balance", str(path), str(tmp_path / "out"), "--method", "smote", "--columns", "x"]
    assert run_command_line(command) == 1
    assert "record 17" in capsys.readouterr().err


def test_whole_numbers_that_floats_do_not_hold_are_refused(tmp_path):
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(2)})
    rows = [{"x": 2**60 + i, "label": int(i % 4 == 0)} for i in range(40)]
    with pytest.raises(rk.EncodeError) as caught:
        smote(written(tmp_path, rows, schema), tmp_path / "out")
    assert (caught.value.code, caught.value.location.record) == ("E395", 0)


def test_numbers_with_nothing_finite_between_them_are_refused(tmp_path):
    schema = rk.Schema({"x": rk.Tensor("float64", shape=(1,)), "label": rk.Label(2)})
    rows = [{"x": np.array([1.7e308 * (-1) ** i]), "label": int(i < 7)} for i in range(40)]
    with pytest.raises(rk.UsageError) as caught:
        smote(written(tmp_path, rows, schema), tmp_path / "out")
    assert (caught.value.code, caught.value.what) == ("U667", "SMOTE cannot be applied to these vectors")
    assert not (tmp_path / "out").exists()


def test_more_than_memory_holds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(resampling, "_MAX_MEMORY_BYTES", 5000)
    with pytest.raises(rk.UsageError) as caught:
        smote(written(tmp_path, rows_of([40, 12, 7])), tmp_path / "out")
    assert (caught.value.code, caught.value.what, caught.value.found) == (
        "U667",
        "feature vectors need more memory than SMOTE may use",
        "8.6 kB: 120 records of 9 numbers",
    )


def test_what_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imblearn.over_sampling", None)
    with pytest.raises(rk.UsageError) as caught:
        smote(written(tmp_path, rows_of([40, 12, 7])), tmp_path / "out")
    assert (caught.value.code, caught.value.do) == ("U602", "pip install 'rekord[balance]'")


def test_the_command_makes_vectors(tmp_path, capsys):
    path = written(tmp_path, rows_of([20, 8, 7]))
    out = str(tmp_path / "out")
    assert run_command_line(["balance", str(path), out, "--method", "smote", "--k-neighbors", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["splits"]["train"]["after"] == {"a": 20, "b": 20, "c": 20}
    assert told["added"] == 25
