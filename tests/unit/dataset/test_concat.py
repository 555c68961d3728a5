"""`rk.concat`: splits one behind another are one split."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import example

import rekord as rk

SCHEMA = rk.Schema({"n": rk.Int64()})

Put = Callable[..., rk.Split]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """A split of numbers in one file."""

    def written(name: str, begin: int, end: int, schema: rk.Schema | None = SCHEMA) -> rk.Split:
        path = tmp_path / f"{name}.tfrecord"
        with rk.Writer(path, SCHEMA) as writer:
            for n in range(begin, end):
                writer.write({"n": n})
        return next(iter(rk.open(path, schema=schema).splits.values()))

    return written


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    """The first of two datasets with manifests, `train` with 0 to 14 and `val` with 15 to 19."""
    for name, numbers in (("train", range(15)), ("val", range(15, 20))):
        rows = [{"n": n} for n in numbers]
        out = tmp_path / name
        rk.write(rows, out, schema=SCHEMA, split=name, shards=2, progress=False, workers=1)
    return rk.open(tmp_path / "train")


def numbers(split: Any, **options: Any) -> list[int]:
    return [n for batch in split.batches(4, **options) for n in batch["n"].tolist()]


def test_records_come_one_split_after_another(put) -> None:
    joined = rk.concat([put("a", 0, 5), put("b", 5, 7), put("c", 7, 11)])
    assert isinstance(joined, rk.Split)
    assert len(joined) == 11
    assert numbers(joined) == list(range(11))
    assert [joined[i]["n"] for i in (0, 4, 5, 10, -1)] == [0, 4, 5, 10, 10]
    assert joined[[10, 0, 6]]["n"].tolist() == [10, 0, 6]
    assert sorted(numbers(joined, shuffle=True)) == list(range(11))


def test_one_split_is_itself_and_the_same_split_may_come_twice(put) -> None:
    one = put("a", 0, 3)
    assert rk.concat([one]) is one
    assert numbers(rk.concat([one, one])) == [0, 1, 2, 0, 1, 2]


def test_views_are_joined_as_views(put) -> None:
    a, b = put("a", 0, 5), put("b", 5, 10)
    joined = rk.concat([a[1:3], b, a.select([4, 0])])
    assert numbers(joined) == [1, 2, 5, 6, 7, 8, 9, 4, 0]
    assert len(joined) == 9
    assert sorted(numbers(joined, shuffle=True)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_all_that_a_split_does_the_joined_one_does(put) -> None:
    joined = rk.concat([put("a", 0, 5), put("b", 5, 10)])
    assert numbers(joined.take(7)) == list(range(7))
    assert numbers(joined[3:8]) == [3, 4, 5, 6, 7]
    assert numbers(joined.select([9, 0])) == [9, 0]
    assert numbers(joined.filter(lambda row: row["n"] % 3 == 0)) == [0, 3, 6, 9]
    assert numbers(joined.map(lambda batch: {"n": batch["n"] * 10})) == [n * 10 for n in range(10)]
    assert numbers(rk.concat([joined, joined[:1]])) == [*range(10), 0]
    assert joined.to_arrow()["n"].to_pylist() == list(range(10))


def test_datasets_of_one_split_and_manifests_are_taken(dataset, tmp_path) -> None:
    joined = rk.concat([dataset, rk.open(tmp_path / "val")])
    assert joined.name == "train+val"
    assert numbers(joined) == list(range(20))
    assert len(joined.paths) == 4
    assert sorted(numbers(joined, shuffle="block")) == list(range(20))


def test_a_state_of_joined_splits_goes_on_and_one_of_another_order_does_not(dataset, tmp_path) -> None:
    parts = [dataset["train"], rk.open(tmp_path / "val")["val"]]
    joined = rk.concat(parts)
    batches = iter(joined.batches(4, shuffle=True))
    next(batches)
    state = json.loads(json.dumps(batches.state_dict()))
    resumed = pickle.loads(pickle.dumps(rk.concat(parts))).batches(4, shuffle=True)
    resumed.load_state_dict(state)
    assert [b["n"].tolist() for b in resumed] == [b["n"].tolist() for b in batches]
    with pytest.raises(rk.UsageError) as caught:
        rk.concat(parts[::-1]).batches(4, shuffle=True).load_state_dict(state)
    assert (caught.value.code, caught.value.what) == ("U609", "state belongs to another dataset")


def test_one_function_of_all_is_kept_and_different_ones_are_refused(put) -> None:
    def doubled(batch: Any) -> Any:
        return {"n": batch["n"] * 2}

    a, b = put("a", 0, 2), put("b", 2, 4)
    assert numbers(rk.concat([a.map(doubled), b.map(doubled)])) == [0, 2, 4, 6]
    with pytest.raises(rk.UsageError) as caught:
        rk.concat([a, b.map(doubled)])
    assert (caught.value.code, caught.value.what) == (
        "U656",
        "splits with different map functions cannot be combined",
    )


# ---- Schemas ----


def test_the_widest_schema_reads_all(put) -> None:
    narrow = put("a", 0, 2)
    wide = put("b", 2, 4, rk.Schema({"n": rk.Int64(optional=True), "more": rk.Text(optional=True)}))
    for parts in ([narrow, wide], [wide, narrow]):
        joined = rk.concat(parts)
        assert joined.schema == wide.schema
        (batch,) = joined.batches(4)
        assert batch["more"].tolist() == [None] * 4
        assert sorted(batch["n"].tolist()) == [0, 1, 2, 3]


def test_inferred_schemas_are_joined_and_stay_strict(put, tmp_path, drain) -> None:
    joined = rk.concat([put("a", 0, 2, None), put("b", 2, 4, None)])
    assert numbers(joined) == [0, 1, 2, 3]
    with rk.Writer(tmp_path / "b.tfrecord", rk.Schema({"n": rk.Int64(), "x": rk.Int64()})) as writer:
        writer.write({"n": 1, "x": 2})
    assert drain(joined.batches(2))[1].code == "X548"  # not what was read before
    _, failure = drain(pickle.loads(pickle.dumps(joined)).batches(2))
    assert failure.code == "D408"


@pytest.mark.parametrize(
    ("features", "column"),
    [
        ({"n": rk.Text()}, "n"),
        ({"n": rk.Int64(shape=(2,))}, "n"),
        ({"n": rk.Int64(key="other")}, "n"),
        ({"n": rk.Int64(), "more": rk.Int64()}, "more"),
        ({"m": rk.Int64()}, "n"),
    ],
)
def test_schemas_that_do_not_fit_name_the_column_and_the_file(put, features, column) -> None:
    other = put("b", 2, 4, rk.Schema(features))
    for parts in ([put("a", 0, 2), other], [put("a", 0, 2), put("c", 4, 6), other]):
        with pytest.raises(rk.UsageError) as caught:
            rk.concat(parts)
        assert caught.value.code == "U656"
        assert caught.value.location.feature in (column, *features)
        assert caught.value.location.path == other.paths[0]


def test_records_of_two_kinds_do_not_fit(put) -> None:
    other = put("b", 0, 2, rk.Schema(context={"n": rk.Int64()}, steps={}))
    with pytest.raises(rk.UsageError) as caught:
        rk.concat([put("a", 0, 2), other])
    assert (caught.value.code, caught.value.what) == ("U656", "splits hold different kinds of records")


# ---- What else is refused ----


@pytest.mark.parametrize("wrong", [[], None, 3, "ab", ["a"], [None]])
def test_what_are_no_splits_is_refused(wrong) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.concat(wrong)
    assert caught.value.code == "U605"


def test_a_mixture_has_no_records_to_put_together(put) -> None:
    a, b = put("a", 0, 2), put("b", 2, 4)
    with pytest.raises(rk.UsageError) as caught:
        rk.concat([rk.mix([(a, 0.5), (b, 0.5)]), a])
    assert (caught.value.code, caught.value.what) == (
        "U651",
        "`concat` needs records by number, and this split is a mixture of 2 splits",
    )
    assert sorted(numbers(rk.mix([(rk.concat([a, b]), 1.0)]))) == [0, 1, 2, 3]


def test_a_split_alone_is_no_list_of_splits(put) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.concat(put("a", 0, 2))  # type: ignore[arg-type]
    assert caught.value.code == "U605"


@pytest.mark.parametrize(
    ("code", "what"),
    [("D409", ""), ("U676", "no images to decode"), ("U656", "`label` differs between splits")],
)
def test_the_example_of_a_page_is_what_is_said(code, what, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    program, message = example(code, what)
    with pytest.raises(rk.RekordError) as caught:
        exec(program, {"rk": rk})
    assert caught.value.message == message
