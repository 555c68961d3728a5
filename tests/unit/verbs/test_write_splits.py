"""Splits: by hash and stable, by group, exact within classes, or as the source says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_conversions import (
    NumberedFilesSource,
    disable_fsync,
    execute_conversion,
    numbered_lines,
    use_small_parts,
)

import rekord as rk
from rekord.conversion.splits import parse_split_rule
from rekord.errors import RekordError
from rekord.schema import Int64, Label, Schema, Text

RATIOS = {"train": 0.7, "val": 0.2, "test": 0.1}
SCHEMA = Schema({"a": Int64(), "label": Label(5), "who": Text()})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch, part_bytes=2000, run_bytes=1500, piece_bytes=700)
    disable_fsync(monkeypatch)


def texts(out: Path) -> dict[str, set[str]]:
    dataset = rk.open(out)
    return {name: set(dataset[name].to_arrow()["text"].to_pylist()) for name in dataset.splits}


def refused(call: Any) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


def test_ratios_by_hash_are_about_right_and_every_row_is_in_one_split(tmp_path: Path) -> None:
    rows = [{"a": i} for i in range(4000)]
    execute_conversion(rows, tmp_path / "data", {"split": RATIOS})
    dataset = rk.open(tmp_path / "data")
    found = {name: dataset[name].to_arrow()["a"].to_pylist() for name in dataset.splits}
    assert sorted(a for mine in found.values() for a in mine) == list(range(4000))
    for name, ratio in RATIOS.items():
        # Four standard deviations; the hash is fixed, so this is so for ever or never.
        assert abs(len(found[name]) - 4000 * ratio) < 4 * (4000 * ratio * (1 - ratio)) ** 0.5
        assert found[name] == sorted(found[name]), "not shuffled: in the order of reading"


def test_rows_stay_in_their_split_when_rows_and_files_are_added(tmp_path: Path) -> None:
    root = tmp_path / "source"
    root.mkdir()
    (root / "b.txt").write_text(numbered_lines(100))
    execute_conversion(NumberedFilesSource(str(root)), tmp_path / "before", {"split": RATIOS})
    (root / "b.txt").write_text(numbered_lines(150))
    (root / "a.txt").write_text(numbered_lines(80, start=1000))
    execute_conversion(NumberedFilesSource(str(root)), tmp_path / "after", {"split": RATIOS, "shuffle": True})
    before, after = texts(tmp_path / "before"), texts(tmp_path / "after")
    assert sum(map(len, after.values())) == 230
    assert all(before[name] <= after[name] for name in RATIOS)
    assert all(before.values())


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_split_by_keeps_equal_values_together(tmp_path: Path, form: str) -> None:
    rows = [{"a": i, "label": i % 5, "who": f"person {i * 7 % 40}"} for i in range(800)]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    given = rows if form == "rows" else columns
    execute_conversion(given, tmp_path / "data", {"schema": SCHEMA, "split": RATIOS, "split_by": "who"})
    dataset = rk.open(tmp_path / "data")
    people = {name: set(dataset[name].to_arrow()["who"].to_pylist()) for name in dataset.splits}
    assert sum(map(len, people.values())) == 40
    assert len(set().union(*people.values())) == 40
    assert all(people.values())


def test_the_key_of_rows_decides_their_split_wherever_they_stand(tmp_path: Path) -> None:
    rows = [{"a": i, "label": i % 5, "who": f"person {i}"} for i in range(300)]
    options = {"schema": SCHEMA, "split": RATIOS, "key": "who"}
    execute_conversion(rows, tmp_path / "one", options)
    execute_conversion(rows[::-1], tmp_path / "two", options)
    one, two = rk.open(tmp_path / "one"), rk.open(tmp_path / "two")
    for name in RATIOS:
        assert sorted(one[name].to_arrow()["a"].to_pylist()) == sorted(two[name].to_arrow()["a"].to_pylist())


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("form", ["rows", "columns"])
def test_stratified_splits_are_exact_within_each_class(tmp_path: Path, form: str, shuffle: bool) -> None:
    counts = {0: 1, 1: 2, 2: 3, 3: 97, 4: 500}
    labels = [label for label, count in counts.items() for _ in range(count)]
    order = np.random.default_rng(5).permutation(len(labels))
    rows = [{"a": int(i), "label": labels[i], "who": "x" * int(i % 13)} for i in order]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    options = {"schema": SCHEMA, "split": RATIOS, "stratify": "label", "shuffle": shuffle}
    execute_conversion(rows if form == "rows" else columns, tmp_path / "data", options)
    dataset = rk.open(tmp_path / "data")
    found = {name: Counter(dataset[name].to_arrow()["label"].to_pylist()) for name in dataset.splits}
    for label, count in counts.items():
        assert sum(found[name][label] for name in RATIOS) == count
        for name, ratio in RATIOS.items():
            assert abs(found[name][label] - ratio * count) < 1
    if not shuffle:
        place = {row["a"]: i for i, row in enumerate(rows)}
        for name in RATIOS:
            places = [place[a] for a in dataset[name].to_arrow()["a"].to_pylist()]
            assert places == sorted(places)


def test_a_source_that_knows_splits_decides_them(tmp_path: Path) -> None:
    for name, start in (("train/x", 0), ("val/y", 100), ("train/z", 200)):
        path = tmp_path / "source" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(numbered_lines(20, start=start))
    for columns in (False, True):
        source = NumberedFilesSource(str(tmp_path / "source"), columns=columns, folders=True)
        out = tmp_path / str(columns)
        execute_conversion(source, out, {"split": "source", "shuffle": True})
        found = texts(out)
        numbers = {name: sorted(int(text.split()[1]) for text in found[name]) for name in found}
        assert numbers == {"train": [*range(20), *range(200, 220)], "val": [*range(100, 120)]}
        assert list(rk.open(out).schema) == ["line", "label", "text"], "`split` is no column of the records"
        lost = {"split": "source", "map": lambda row: {**row, "split": "trian"}, "fresh": True}
        failure = refused(lambda out=out, source=source, lost=lost: execute_conversion(source, out, lost))
        assert (failure.code, failure.location.row, failure.location.feature) == ("E382", 0, "split")
        assert failure.location.path == str(tmp_path / "source" / "train" / "x.txt")
        assert failure.expected == "one of train, val"


@pytest.mark.parametrize("option", ["split_by", "stratify", "key"])
def test_a_column_to_split_by_that_a_row_lacks_is_e381(tmp_path: Path, option: str) -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "label": 1, "who": "x"} for _ in range(5)]
    options = {"schema": SCHEMA, "split": RATIOS, option: "who"}
    for wrong in (None, ["x", "y"], {"x": 1}):
        given = [*rows, {"a": 1, "label": 1, "who": wrong}]
        failure = refused(
            lambda given=given: execute_conversion(iter(given), tmp_path / "data", {**options, "fresh": True})
        )
        assert (failure.code, failure.location.row, failure.location.feature) == ("E381", 5, "who"), wrong
    missing = refused(lambda: execute_conversion(rows, tmp_path / "data", {**options, option: "whom", "fresh": True}))
    assert (missing.code, missing.location.row, missing.location.feature) == ("E381", 0, "whom")
    assert missing.do == "did you mean `who`?"


def test_a_column_of_vectors_cannot_split(tmp_path: Path) -> None:
    schema = Schema({"a": Int64(), "v": Int64(shape=(2,))})
    columns = {"a": np.arange(4), "v": np.zeros((4, 2), np.int64)}
    options = {"schema": schema, "split": RATIOS, "split_by": "v"}
    failure = refused(lambda: execute_conversion(columns, tmp_path / "data", options))
    assert (failure.code, failure.location.feature) == ("E381", "v")


@pytest.mark.parametrize(
    ("split", "more"),
    [
        ({"train": 0.5, "val": 0.4}, {}),
        ({"train": 90, "val": 10}, {}),
        ({"train": 1.5, "val": -0.5}, {}),
        ({"train": True}, {}),
        ({"train": float("nan"), "val": 0.5}, {}),
        ({}, {}),
        (0.9, {}),
        (["train", "val"], {}),
        ("source", {}),
        ("", {}),
        ("../up", {}),
        (".hidden", {}),
        ("new\nline", {}),
        ({"a/b": 0.5, "c": 0.5}, {}),
        ({3: 0.5, "c": 0.5}, {}),
        ({f"s{i}": 1 / 256 for i in range(256)}, {}),
        (None, {"by": "who"}),
        ("train", {"stratify": "label"}),
        ({"train": 1.0}, {"by": "who"}),
        (RATIOS, {"by": "who", "stratify": "label"}),
    ],
)
def test_splits_that_cannot_be_meant_are_refused(split: Any, more: dict[str, str]) -> None:
    requested = {"by": None, "stratify": None, **more}
    failure = refused(lambda: parse_split_rule(split, **requested, known=None))
    assert failure.code == "U605"
    assert failure.expected
    assert failure.found
    assert failure.do
    assert len(failure.what) < 100


def test_one_name_is_one_split(tmp_path: Path) -> None:
    execute_conversion([{"a": 1}], tmp_path / "data", {"split": "everything"})
    assert list(rk.open(tmp_path / "data").splits) == ["everything"]
    assert (tmp_path / "data" / "everything-00000-of-00001.tfrecord").is_file()


def test_a_split_that_gets_no_row_is_there_and_empty(tmp_path: Path) -> None:
    execute_conversion([{"a": 1}], tmp_path / "data", {"split": {"train": 0.5, "val": 0.5}})
    dataset = rk.open(tmp_path / "data")
    assert sorted(len(dataset[name].to_arrow()) for name in dataset) == [0, 1]


def test_a_text_that_looks_like_an_address_is_a_value_to_split_by(tmp_path: Path) -> None:
    rows = [{"x": i, "who": "<object at 0x7f>" if i % 2 else "a"} for i in range(10)]
    dataset = rk.write(
        rows,
        tmp_path / "out",
        map=lambda row: row,
        split={"train": 0.5, "val": 0.5},
        split_by="who",
        workers=1,
        progress=False,
    )
    assert sum(len(split.to_arrow()) for split in dataset.splits.values()) == 10
