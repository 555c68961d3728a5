"""`split.balanced`."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.dataset.balanced import ClassIndex
from rekord.testing import example_bytes, frames

NAMES = ["cat", "dog", "owl"]
SCHEMA = rk.Schema({"label": rk.Label(NAMES), "n": rk.Int64()})


def labels(counts: list[int]) -> list[int]:
    """The classes of some rows, mixed up in a way that is the same each time."""
    ordered = np.repeat(np.arange(len(counts)), counts)
    return [int(one) for one in np.random.default_rng(0).permutation(ordered)]


def dataset(folder: Path, counts: list[int], **options: Any) -> rk.Dataset:
    rows = [{"label": label, "n": i} for i, label in enumerate(labels(counts))]
    return rk.write(rows, folder / "data", schema=SCHEMA, progress=False, workers=1, **options)


def foreign(folder: Path, rows: list[dict[str, Any]], schema: rk.Schema, name: str = "x.tfrecord") -> rk.Split:
    with rk.Writer(folder / name, schema) as writer:
        for row in rows:
            writer.write(row)
    return rk.open(folder / name, schema=schema)["all"]


def column(batches: Any, name: str = "label") -> list[Any]:
    return [value for batch in batches for value in np.asarray(batch[name]).tolist()]


def refused(code: str, call: Any) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    assert str(caught.value).startswith(code)
    assert caught.value.do
    return caught.value


def test_every_class_has_the_same_number_of_records_in_every_epoch(tmp_path: Path) -> None:
    split = dataset(tmp_path, [70, 20, 12], shards=3)["train"]
    balanced = split.balanced()
    assert len(balanced) == 102
    batches = balanced.batches(10, shuffle=True, seed=7)
    for _ in range(3):
        assert Counter(column(iter(batches))) == {0: 34, 1: 34, 2: 34}


def test_quotas_differ_by_one_at_most_and_fill_the_epoch(tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [30, 5, 2])["train"].balanced()
    assert Counter(column(balanced.batches(8, shuffle=True))) == {0: 13, 1: 12, 2: 12}
    assert balanced.achieved == {0: 13 / 37, 1: 12 / 37, 2: 12 / 37}


def test_records_of_a_small_class_repeat_evenly_and_a_large_one_is_covered_over_epochs(
    tmp_path: Path,
) -> None:
    split = dataset(tmp_path, [70, 20, 12])["train"]
    batches = split.balanced().batches(16, columns=["label", "n"], shuffle=True, seed=3)
    seen: Counter[tuple[int, int]] = Counter()
    first: Counter[tuple[int, int]] = Counter()
    for epoch in range(35):
        for batch in iter(batches):
            seen.update(zip(batch["label"].tolist(), batch["n"].tolist(), strict=True))
        if not epoch:
            first.update(seen)
    # 34 of 70 in one epoch, none twice; each of the 12 two or three times.
    assert max(count for (label, _), count in first.items() if label == 0) == 1
    assert {count for (label, _), count in first.items() if label == 2} == {2, 3}
    # After 35 epochs, 35 × 34 = 17 × 70 draws: every record of the large class just as often.
    assert {count for (label, _), count in seen.items() if label == 0} == {17}
    assert len(seen) == 102


def test_a_target_gives_each_class_its_share(tmp_path: Path) -> None:
    split = dataset(tmp_path, [50, 40, 10])["train"]
    balanced = split.balanced(target={"cat": 0.29, "dog": 0.7, 2: 0.01})
    assert Counter(column(balanced.batches(32, shuffle=True))) == {0: 29, 1: 70, 2: 1}
    assert Counter(column(split.balanced(target={0: 3, 1: 1, 2: 0}).batches(7))) == {0: 75, 1: 25}


def test_without_a_shuffle_classes_are_interleaved_and_each_is_in_file_order(tmp_path: Path) -> None:
    split = dataset(tmp_path, [6, 3, 3])["train"]
    balanced = split.balanced()
    batches = balanced.batches(4, columns=["label", "n"])
    delivered = [pair for batch in batches for pair in zip(batch["label"].tolist(), batch["n"].tolist(), strict=True)]
    for start in range(0, 12, 3):
        assert sorted(label for label, _ in delivered[start : start + 3]) == [0, 1, 2]
    cats = [n for n, label in enumerate(labels([6, 3, 3])) if label == 0]
    assert [n for label, n in delivered if label == 0] == cats[:4]
    # The next epoch goes on with the large class where this one stopped.
    assert [n for label, n in zip(*_columns(iter(batches)), strict=True) if label == 0] == [
        *cats[4:],
        *cats[:2],
    ]


def _columns(batches: Any) -> tuple[list[int], list[int]]:
    kept = list(batches)
    return column(kept), column(kept, "n")


def test_the_seed_decides_the_order_and_nothing_else(tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [30, 20, 10])["train"].balanced()

    def order(**options: Any) -> list[int]:
        return column(balanced.batches(7, shuffle=True, **options), "n")

    assert order(seed=1) == order(seed=1, threads=1, prefetch=0)
    assert order(seed=1) != order(seed=2)
    assert order(seed=1, epoch=1) != order(seed=1)


def test_ranks_share_an_epoch_and_a_state_goes_on_in_another_world(tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [30, 20, 10])["train"].balanced()
    whole = column(balanced.batches(60, shuffle=True, seed=5), "n")
    ranks = [balanced.batches(4, shuffle=True, seed=5, rank=rank, world=3) for rank in range(3)]
    taken = [next(iter(loader))["n"].tolist() for loader in ranks]
    state = json.loads(json.dumps(ranks[0].state_dict()))
    assert all(loader.state_dict() == state for loader in ranks)
    assert len(json.dumps(state)) < 500
    rest = balanced.batches(5, shuffle=True, seed=5)
    rest.load_state_dict(state)
    assert sorted(n for each in taken for n in each) == sorted(whole[:12])
    assert column(rest, "n") == whole[12:]


def test_a_state_of_another_balance_is_refused(tmp_path: Path) -> None:
    split = dataset(tmp_path, [30, 20, 10])["train"]
    state = split.balanced().batches(4, shuffle=True).state_dict()
    for other in (split.balanced(target={0: 1, 1: 1, 2: 2}), split, split[:50].balanced()):
        refused(
            "U609: state belongs to another order",
            lambda other=other: other.batches(4, shuffle=True).load_state_dict(state),
        )


def test_a_balanced_split_pickles_small_where_the_index_has_its_classes(tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [3000, 2000, 10])["train"].balanced()
    expected = column(balanced.batches(100, shuffle=True), "n")
    pickled = pickle.dumps(balanced)
    assert len(pickled) < 5000
    assert column(pickle.loads(pickled).batches(100, shuffle=True), "n") == expected


def test_what_was_looked_up_before_does_not_make_the_next_pickle_larger(tmp_path: Path) -> None:
    split = dataset(tmp_path, [3000, 2000, 10])["train"]
    expected = column(split.balanced().batches(100, shuffle=True), "n")
    for again in (split.balanced(), split[:].balanced()):
        pickled = pickle.dumps(again)
        assert len(pickled) < 5000
        assert column(pickle.loads(pickled).batches(100, shuffle=True), "n") == expected


def test_what_the_index_lacks_is_read_once_and_goes_along(tmp_path: Path, monkeypatch: Any) -> None:
    schema = rk.Schema({"kind": rk.Text(), "n": rk.Int64()})
    rows = [{"kind": "rare" if i % 10 == 0 else "usual", "n": i} for i in range(50)]
    split = foreign(tmp_path, rows, schema)
    first = split.balanced(by="kind")
    monkeypatch.setattr(ClassIndex, "_read", lambda *_: pytest.fail("read again"))
    again = pickle.loads(pickle.dumps(split.balanced(by="kind")))
    for balanced in (first, again):
        kinds = [kind for batch in balanced.batches(9, shuffle=True) for kind in batch["kind"].tolist()]
        assert Counter(kinds) == {"rare": 25, "usual": 25}
    assert first.achieved == {"rare": 0.5, "usual": 0.5}


@pytest.mark.parametrize(
    ("feature", "values"),
    [
        (rk.Int64(), [7, -3, 2**60]),
        (rk.Int64(dtype="bool"), [True, False]),
        (rk.Int64(dtype="uint8"), [0, 255]),
        (rk.Bytes(), [b"", b"\xff\x00"]),
        (rk.Text(), ["ä", "b"]),
    ],
)
@pytest.mark.parametrize("kept", [True, False])
def test_any_scalar_column_can_be_balanced_by(feature: Any, values: list[Any], kept: bool, tmp_path: Path) -> None:
    rows = [{"x": values[0] if i % 7 else values[1 + i // 7 % (len(values) - 1)]} for i in range(60)]
    schema = rk.Schema({"x": feature})
    options: dict[str, Any] = {"progress": False, "workers": 1, "index": ["x"] if kept else ()}
    split = rk.write(rows, tmp_path / "data", schema=schema, **options)["train"]
    drawn = [value for batch in split.balanced(by="x").batches(11, shuffle=True) for value in batch["x"].tolist()]
    assert Counter(drawn) == dict.fromkeys(values, 60 // len(values))


def test_the_index_alone_gives_the_classes_of_a_label(tmp_path: Path, monkeypatch: Any) -> None:
    split = dataset(tmp_path, [30, 20, 10], shards=4)["train"]
    monkeypatch.setattr(ClassIndex, "_read", lambda *_: pytest.fail("records were read"))
    assert Counter(column(split.balanced().batches(9))) == {0: 20, 1: 20, 2: 20}


def test_a_view_is_balanced_by_what_is_in_it(tmp_path: Path) -> None:
    split = dataset(tmp_path, [30, 20, 10])["train"]
    view = split.filter(lambda row: row["n"] < 30 and row["label"] != 2)
    drawn = view.balanced(target="present").batches(8, shuffle=True)
    delivered = list(drawn)
    assert Counter(column(delivered)) in (
        {0: len(view) // 2, 1: len(view) // 2},
        {0: len(view) // 2 + 1, 1: len(view) // 2},
    )
    assert max(column(delivered, "n")) < 30


def test_a_view_of_files_without_an_index_reads_only_its_own_records(tmp_path: Path) -> None:
    rows = [{"x": i % 3} for i in range(30)]
    view = foreign(tmp_path, rows, rk.Schema({"x": rk.Int64()}))[1:6]
    assert Counter(column(view.balanced(by="x").batches(3), "x")) == {0: 2, 1: 2, 2: 1}


def test_a_map_stays_and_can_be_added(tmp_path: Path) -> None:
    split = dataset(tmp_path, [6, 4, 2])["train"]
    mapped = split.map(lambda batch: {"label": batch["label"] + 10}).balanced()
    assert Counter(column(mapped.batches(5))) == {10: 4, 11: 4, 12: 4}
    again = mapped.map(lambda batch: {"label": batch["label"] * 2})
    assert Counter(column(again.batches(5))) == {20: 4, 22: 4, 24: 4}
    assert len(again) == 12


def test_rows_tables_and_lengths_follow_the_balance(tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [6, 4, 2])["train"].balanced()
    assert Counter(row["label"] for row in balanced) == {0: 4, 1: 4, 2: 4}
    assert Counter(balanced.to_arrow()["label"].to_pylist()) == {0: 4, 1: 4, 2: 4}
    assert len(balanced.batches(5)) == 3
    assert repr(balanced) == (
        "Split 'train': 12 records per epoch, balanced by `label`, 1 file, 2 columns\n"
        "  label Label(3 classes) · n Int64"
    )


@pytest.mark.parametrize(
    "view",
    [
        lambda split: split[0],
        lambda split: split[2:4],
        lambda split: split[[1, 2]],
        lambda split: split.take(3),
        lambda split: split.select([1]),
        lambda split: split.filter(lambda row: True),
        lambda split: split.balanced(),
        lambda split: split.class_weights(),
    ],
)
def test_views_of_a_balanced_split_are_refused(view: Any, tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [6, 4, 2])["train"].balanced()
    assert "balanced by `label`" in refused("U651", lambda: view(balanced)).what


def test_blocks_mean_nothing_for_a_balanced_split(tmp_path: Path) -> None:
    balanced = dataset(tmp_path, [6, 4, 2])["train"].balanced()
    refused("U605", lambda: balanced.batches(4, shuffle="block"))
    refused("U605", lambda: balanced.batches(4, shuffle="yes"))
    refused("U605", lambda: balanced.batches(4, shuffle=True, seed=-1))


def test_a_class_without_records_is_said_unless_only_those_that_are_there_are_wanted(tmp_path: Path) -> None:
    split = dataset(tmp_path, [6, 0, 2])["train"]
    failure = refused("U667: `label` cannot be balanced: 1 of 3 classes", lambda: split.balanced())
    assert failure.found == "no records of class 1, 'dog'"
    assert Counter(column(split.balanced(target="present").batches(3))) == {0: 4, 2: 4}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"cat": 1, "dog": 1, "owl": 1}, "class 'dog' of `target` has no records"),
        ({"cat": 1}, "lacks class 2"),
        ({"cat": 1, "owl": 1, "cow": 1}, "has unknown class 'cow'"),
        ({"cat": 1, "owl": 1, 0: 1}, "has a duplicate class"),
        ({"cat": 0, "owl": 0}, "all shares of `target` are 0"),
        ({}, "does not map classes to shares"),
        ("even", "does not map classes to shares"),
        ([0.5, 0.5], "does not map classes to shares"),
        ({(): 1, 0: 1, 2: 1}, "class () of `target` has no records"),
    ],
)
def test_a_target_that_cannot_be_met_is_refused(target: Any, said: str, tmp_path: Path) -> None:
    split = dataset(tmp_path, [6, 0, 2])["train"]
    assert said in refused("U667", lambda: split.balanced(target=target)).what


@pytest.mark.parametrize("share", [-1, float("nan"), float("inf"), "half", None, True])
def test_a_share_is_a_number_from_0_on(share: Any, tmp_path: Path) -> None:
    split = dataset(tmp_path, [6, 1, 2])["train"]
    refused("U605", lambda: split.balanced(target={0: share, 1: 1, 2: 1}))


def test_records_without_a_label_are_said_with_the_first_of_them(tmp_path: Path) -> None:
    schema = rk.Schema({"label": rk.Label(NAMES, optional=True)})
    rows = [{"label": None if i in (4, 9) else i % 3} for i in range(12)]
    split = rk.write(rows, tmp_path / "data", schema=schema, progress=False, workers=1, shards=2)["train"]
    for call in (split.balanced, split.class_weights):
        failure = refused("X552", call)
        assert failure.what == "2 of 12 records have no class in `label`"
        assert Path(failure.location.path or "").name == "train-00000-of-00002.tfrecord"
        assert (failure.location.record, failure.location.feature) == (4, "label")
    kept = split.filter(lambda row: row["label"] is not None, columns=["label"])
    assert Counter(column([{"label": b["label"].values} for b in kept.balanced().batches(5)])) == {
        0: 4,
        1: 3,
        2: 3,
    }


def test_a_label_that_is_no_class_is_no_class_to_balance(put_file: Any) -> None:
    payloads = [example_bytes({"label": [value]}) for value in (0, 1, -1, 2)]
    path = put_file(frames(payloads))
    split = rk.open(path, schema=rk.Schema({"label": rk.Label(NAMES)}))["all"]
    failure = refused("X552", split.balanced)
    assert (failure.found, failure.location.record, failure.location.path) == ("-1", 2, str(path))


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        (rk.Float32(), 1.0),
        (rk.Float32(shape=(2,)), [1.0, 2.0]),
        (rk.Tensor("uint8", shape=(2,)), np.zeros(2, np.uint8)),
        (rk.Int64(shape=(2, 2)), [[1, 2], [3, 4]]),
        (rk.Sparse("float32", size=3), {}),
    ],
)
def test_a_column_that_gives_no_class_is_refused(feature: Any, value: Any, tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(b"")
    split = rk.open(tmp_path / "x.tfrecord", schema=rk.Schema({"x": feature}))["all"]
    refused("U667: `x` is not a column of classes", lambda: split.balanced(by="x"))
    refused("U667: 3 is not a column of classes", lambda: split.balanced(by=3))


def test_a_column_that_is_not_there_is_said_with_its_near_miss(tmp_path: Path) -> None:
    split = dataset(tmp_path, [6, 4, 2])["train"]
    assert "label" in str(refused("S116", lambda: split.balanced(by="lable")))


def test_no_records_cannot_be_balanced(put_file: Any) -> None:
    split = rk.open(put_file(b""), schema=SCHEMA)["all"]
    refused("U667: `label` cannot be balanced: split has no records", split.balanced)


def test_a_step_column_gives_no_class(put_file: Any) -> None:
    schema = rk.Schema(context={"a": rk.Int64()}, steps={"b": rk.Int64()})
    split = rk.open(put_file(b""), schema=schema)["all"]
    failure = refused("U667: `b` is not a column of classes", lambda: split.balanced(by="b"))
    assert "in each step" in (failure.found or "")


# Several classes a record.

TAGS = rk.Schema({"tags": rk.Label(["a", "b", "c"], shape=(None,)), "n": rk.Int64()})


def tagged(folder: Path) -> rk.Split:
    rows = [{"tags": [0, 1] if i % 20 == 0 else [2] if i % 10 == 5 else [0], "n": i} for i in range(200)]
    rows.append({"tags": [], "n": 200})
    return foreign(folder, rows, TAGS)


def test_records_of_rare_classes_come_more_often_and_what_was_achieved_is_said(tmp_path: Path) -> None:
    split = tagged(tmp_path)
    balanced = split.balanced(by="tags")
    drawn: Counter[int] = Counter()
    batches = balanced.batches(32, shuffle=True, seed=1)
    for _ in range(10):
        for batch in iter(batches):
            drawn.update(batch["tags"].values.tolist())
    achieved = balanced.achieved
    assert drawn[1] / 2010 == pytest.approx(achieved[1], abs=0.01)
    assert drawn[2] / 2010 == pytest.approx(achieved[2], abs=0.01)
    # Before, 5 % of the records had class 1, and 90 % class 0.
    assert achieved[1] > 0.25
    assert achieved[2] > 0.25


def test_a_class_that_a_record_names_twice_counts_once(tmp_path: Path) -> None:
    rows = [{"tags": [0, 1, 1] if i < 10 else [0], "n": i} for i in range(100)]
    balanced = foreign(tmp_path, rows, TAGS).balanced(by="tags", target={"a": 1, "b": 1})
    # The factor of those that have class 1 is 10.
    assert balanced.achieved == {0: 1.0, 1: pytest.approx(100 / 190)}


def test_each_record_comes_as_often_as_its_factor_says_rounded(tmp_path: Path) -> None:
    balanced = tagged(tmp_path).balanced(by="tags")
    factors = balanced.sampling.factors  # type: ignore[attr-defined]
    wanted = factors * 201 / factors.sum()
    for epoch in range(4):
        counts = np.bincount(column(balanced.batches(50, shuffle=True, epoch=epoch), "n"), minlength=201)
        assert (np.abs(counts - wanted) < 1).all()
        assert counts.sum() == 201


def test_a_list_column_resumes_and_pickles_as_any_other(tmp_path: Path) -> None:
    balanced = pickle.loads(pickle.dumps(tagged(tmp_path).balanced(by="tags", target={0: 1, 1: 2, 2: 1})))
    whole = column(balanced.batches(10, shuffle=True, seed=2), "n")
    begun = iter(balanced.batches(10, shuffle=True, seed=2))
    for _ in range(5):
        next(begun)
    gone_on = balanced.batches(7, shuffle=True, seed=2)
    gone_on.load_state_dict(json.loads(json.dumps(begun.state_dict())))
    assert column(gone_on, "n") == whole[50:]


def test_a_view_of_a_list_column_is_balanced_by_its_own_records(tmp_path: Path) -> None:
    view = tagged(tmp_path)[100:]
    assert min(column(view.balanced(by="tags").batches(10, shuffle=True), "n")) >= 100


# What is written about it.


@pytest.mark.parametrize("index", [(), ("tags",)], ids=["read", "indexed"])
def test_classes_of_multi_hot_labels_are_counted_and_balanced_not_zeros_and_ones(tmp_path: Path, index: Any) -> None:
    tags = [["cat"]] * 6 + [["cat", "owl"]] * 2 + [[]] * 2
    rows = [{"tags": one, "n": i} for i, one in enumerate(tags)]
    columns = {"tags": rk.MultiLabel(NAMES)}
    data = rk.write(rows, tmp_path / "data", columns=columns, index=index, progress=False, workers=1)
    split = data["train"]
    assert split.class_weights("tags") == {0: 10 / (2 * 8), 2: 10 / (2 * 2)}
    assert split.class_weights("tags", names=True) == {"cat": 10 / (2 * 8), "owl": 10 / (2 * 2)}
    assert split[:8].class_weights("tags", names=True) == {"cat": 10 / (2 * 8), "owl": 10 / (2 * 2)}
    failure = refused("U667", lambda: split.balanced("tags"))
    assert (failure.what, failure.found) == (
        "`tags` cannot be balanced: 1 of 3 classes have no records",
        "no records of class 1, 'dog'",
    )
    failure = refused("U667", lambda: split.balanced("tags", target={"cow": 1.0}))
    assert failure.what == "`tags` cannot be balanced: `target` has unknown class 'cow'"
    balanced = split.balanced("tags", target="present")
    drawn = Counter(n for epoch in range(16) for n in column(balanced.batches(10, epoch=epoch), "n"))
    # A record of the rare class has a factor of 4 in a sum of 6 + 2 · 4 + 2.
    expected = {n: 16 * 10 * (4 if n in (6, 7) else 1) / 16 for n in range(10)}
    assert all(abs(drawn[n] - times) <= 2 for n, times in expected.items()), drawn
