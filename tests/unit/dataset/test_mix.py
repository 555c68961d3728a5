"""`rk.mix`."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk

SCHEMA = rk.Schema({"n": rk.Int64(), "label": rk.Label(2)})


def split(folder: Path, name: str, numbers: range, schema: rk.Schema = SCHEMA, **extra: Any) -> rk.Split:
    rows = [{"n": n, "label": int(n % 5 == 0), **extra} for n in numbers]
    return rk.write(rows, folder / name, schema=schema, progress=False, workers=1, shards=2)["train"]


@pytest.fixture
def a(tmp_path: Path) -> rk.Split:
    return split(tmp_path, "a", range(100))


@pytest.fixture
def b(tmp_path: Path) -> rk.Split:
    return split(tmp_path, "b", range(1000, 1020))


def numbers(batches: Any, name: str = "n") -> list[int]:
    return [value for batch in batches for value in np.asarray(batch[name]).tolist()]


def parts(values: list[int]) -> Counter[int]:
    return Counter(value // 1000 for value in values)


def refused(code: str, call: Any) -> rk.RekordError:
    with pytest.raises(rk.UsageError) as caught:
        call()
    assert str(caught.value).startswith(code)
    assert caught.value.do
    return caught.value


def test_every_epoch_has_the_proportions_exactly(a: rk.Split, b: rk.Split) -> None:
    mixed = rk.mix([(a, 0.7), (b, 0.3)])
    assert len(mixed) == 120
    batches = mixed.batches(16, shuffle=True, seed=3)
    for _ in range(3):
        assert parts(numbers(iter(batches))) == {0: 84, 1: 36}
    assert mixed.achieved == {0: 0.7, 1: 0.3}
    assert repr(mixed) == (
        "Split 'mix': 120 records per epoch, a mixture of 2 splits, 4 files, 2 columns\n"
        "  n Int64 · label Label(2 classes)"
    )


def test_a_small_part_repeats_evenly_and_a_large_one_is_covered_over_epochs(a: rk.Split, b: rk.Split) -> None:
    batches = rk.mix([(a, 1), (b, 1)]).batches(10, shuffle=True)
    first = Counter(numbers(iter(batches)))
    assert {count for value, count in first.items() if value >= 1000} == {3}
    assert {count for value, count in first.items() if value < 1000} == {1}
    seen = first + Counter(value for _ in range(4) for value in numbers(iter(batches)))
    assert {count for value, count in seen.items() if value < 1000} == {3}


def test_without_a_shuffle_parts_are_interleaved_in_file_order(a: rk.Split, b: rk.Split) -> None:
    delivered = numbers(rk.mix([(a, 3), (b, 1)], length=16).batches(5))
    assert [value for value in delivered if value < 1000] == list(range(12))
    assert [value for value in delivered if value >= 1000] == [1000, 1001, 1002, 1003]
    assert [parts(delivered[at : at + 4]) for at in range(0, 16, 4)] == [{0: 3, 1: 1}] * 4


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        ("sum", {0: 84, 1: 36}),
        ("shortest", {0: 48, 1: 20}),  # 20.4 of b would be 30 %: no record comes twice
        ("longest", {0: 100, 1: 43}),  # every record of a comes
        (10, {0: 7, 1: 3}),
    ],
)
def test_the_length_of_an_epoch_can_be_chosen(length: Any, expected: Any, a: rk.Split, b: rk.Split) -> None:
    mixed = rk.mix([(a, 0.7), (b, 0.3)], length=length)
    delivered = numbers(mixed.batches(13, shuffle=True))
    assert parts(delivered) == expected
    assert len(mixed) == sum(expected.values())
    if length == "shortest":
        assert max(Counter(delivered).values()) == 1
    if length == "longest":
        assert len(set(delivered)) == 120


def test_views_balanced_splits_mixtures_and_datasets_can_be_parts(a: rk.Split, b: rk.Split, tmp_path: Path) -> None:
    mixed = rk.mix([(a[:10], 1), (a.balanced(), 1), (rk.mix([(b, 1)]), 1), (rk.open(tmp_path / "b"), 1)])
    delivered = numbers(mixed.batches(10, shuffle=True))
    assert len(delivered) == 150
    assert sum(value >= 1000 for value in delivered) == 74
    only = rk.mix([(a[:10], 1), (a.balanced(), 1)], length=40)
    labels = numbers(rk.mix([(a.balanced(), 1)]).batches(10, shuffle=True), "label")
    assert Counter(labels) == {0: 50, 1: 50}
    assert Counter(numbers(only.batches(7)))[9] >= 2


def test_the_same_split_twice_has_two_orders(a: rk.Split) -> None:
    mixed = rk.mix([(a, 1), (a, 1)])
    assert set(Counter(numbers(mixed.batches(9, shuffle=True))).values()) == {2}


def test_a_mixture_resumes_in_another_world_and_survives_pickling(a: rk.Split, b: rk.Split) -> None:
    mixed = pickle.loads(pickle.dumps(rk.mix([(a[5:50], 0.5), (b, 0.5)])))
    whole = numbers(mixed.batches(65, shuffle=True, seed=9))
    ranks = [mixed.batches(6, shuffle=True, seed=9, rank=rank, world=2) for rank in range(2)]
    taken = [value for rank in ranks for value in next(iter(rank))["n"].tolist()]
    gone_on = mixed.batches(8, shuffle=True, seed=9)
    gone_on.load_state_dict(json.loads(json.dumps(ranks[1].state_dict())))
    assert sorted(taken) == sorted(whole[:12])
    assert numbers(gone_on) == whole[12:]


def test_a_state_of_another_mixture_is_refused(a: rk.Split, b: rk.Split) -> None:
    state = rk.mix([(a, 0.5), (b, 0.5)]).batches(4, shuffle=True).state_dict()
    for other in (
        rk.mix([(a, 0.6), (b, 0.4)]),
        rk.mix([(b, 0.5), (a, 0.5)]),
        rk.mix([(a[:99], 0.5), (b, 0.5)]),
    ):
        refused(
            "U609: state belongs to another ",
            lambda other=other: other.batches(4, shuffle=True).load_state_dict(state),
        )


def test_the_widest_schema_reads_all_parts(a: rk.Split, tmp_path: Path) -> None:
    wide = rk.Schema({"n": rk.Int64(), "label": rk.Label(5)})
    other = split(tmp_path, "wide", range(1000, 1010), wide)
    for order in ([(a, 1), (other, 1)], [(other, 1), (a, 1)]):
        mixed = rk.mix(order)
        assert mixed.schema == wide
        assert parts(numbers(mixed.batches(20))) == {0: 55, 1: 55}


def test_a_mixture_of_inferred_schemas_is_as_strict_as_they_are(tmp_path: Path, put_records: Any) -> None:
    from rekord.testing import example_bytes

    good = put_records([example_bytes({"n": [i]}) for i in range(3)], "good.tfrecord")
    odd = put_records(
        [example_bytes({"n": [i]} if i < 10_500 else {"n": [i], "x": [1]}) for i in range(10_501)],
        "odd.tfrecord",
    )
    mixed = rk.mix([(rk.open(good), 1), (rk.open(odd), 1)], length="longest")
    with pytest.raises(rk.DecodeError) as caught:
        numbers(mixed.batches(5000))
    assert (caught.value.code, caught.value.location.path, caught.value.location.record) == (
        "D408",
        str(odd),
        10_500,
    )


def test_a_column_that_only_one_part_has_is_read_where_the_others_can_lack_it(a: rk.Split, tmp_path: Path) -> None:
    more = rk.Schema({**SCHEMA.features, "extra": rk.Int64(default=7)})
    mixed = rk.mix([(a, 1), (split(tmp_path, "more", range(3), more), 1)])
    assert mixed.schema == more
    assert {n for batch in mixed.batches(50) for n in batch["extra"].tolist()} == {7}


def test_schemas_that_disagree_are_refused_as_concat_refuses_them(a: rk.Split, tmp_path: Path) -> None:
    for name, feature, value in (("label", rk.Text(), "a"), ("extra", rk.Int64(), 1)):
        schema = rk.Schema({**SCHEMA.features, name: feature})
        rows = [{"n": 1, "label": 0, name: value}]
        other = rk.write(rows, tmp_path / name, schema=schema, progress=False, workers=1)["train"]
        failure = refused("U656: `", lambda other=other: rk.mix([(a, 1), (other, 1)]))
        assert (failure.location.feature, failure.location.path) == (name, other.paths[0])


def test_a_file_that_changed_is_not_told_as_one_of_a_manifest(tmp_path: Path, put_records: Any) -> None:
    from rekord.testing import example_bytes

    files = [
        put_records([example_bytes({"n": [i]}) for i in range(9)], name) for name in ("a.tfrecord", "b.tfrecord")
    ]
    schema = rk.Schema({"n": rk.Int64()})
    mixed = rk.mix([(rk.open(file, schema=schema), 1) for file in files])
    files[1].write_bytes(files[1].read_bytes()[:100])
    with pytest.raises(rk.RekordError) as caught:
        numbers(mixed.batches(50))
    assert (caught.value.code[0], caught.value.location.path) == ("F", str(files[1]))


@pytest.mark.parametrize(
    "given",
    [[], None, 3, [3], [("a", 1)], "split"],
)
def test_what_is_no_list_of_splits_and_shares_is_refused(given: Any) -> None:
    refused("U656: splits cannot be mixed: ", lambda: rk.mix(given))


@pytest.mark.parametrize(
    ("share", "code"),
    [
        (0, "U656: splits cannot be mixed: part 0 has share 0"),
        (-1, "U605: `share` cannot be -1"),
        (float("nan"), "U605: `share` cannot be nan"),
        ("x", "U605: `share` cannot be 'x'"),
    ],
)
def test_a_share_is_a_number_above_0(share: Any, code: str, a: rk.Split) -> None:
    refused(code, lambda: rk.mix([(a, share)]))


@pytest.mark.parametrize("length", [0, -1, 1.5, True, "half", None])
def test_a_length_that_cannot_be_meant_is_refused(length: Any, a: rk.Split) -> None:
    refused("U605", lambda: rk.mix([(a, 1)], length=length))


def test_parts_without_records_or_with_functions_are_refused(a: rk.Split) -> None:
    refused("U656: splits cannot be mixed: part 1 has no records", lambda: rk.mix([(a, 1), (a[:0], 1)]))
    refused(
        "U656: splits cannot be mixed: part 0 has a map function", lambda: rk.mix([(a.map(lambda batch: batch), 1)])
    )


def test_a_dataset_of_several_splits_must_name_one(tmp_path: Path) -> None:
    rows = [{"n": n, "label": 0} for n in range(20)]
    both = rk.write(rows, tmp_path / "c", schema=SCHEMA, split={"train": 0.5, "val": 0.5}, progress=False, workers=1)
    with pytest.raises(rk.DatasetError) as caught:
        rk.mix([(both, 1)])
    assert caught.value.code == "X507"


def test_a_mixture_has_no_records_by_number(a: rk.Split, b: rk.Split) -> None:
    refused("U651: `[…]` needs records by number", lambda: rk.mix([(a, 1), (b, 1)])[0])
    refused("U651: `balanced` needs records by number", lambda: rk.mix([(a, 1), (b, 1)]).balanced())


def test_a_mixture_can_be_mapped_and_made_a_table(a: rk.Split, b: rk.Split) -> None:
    mixed = rk.mix([(a, 1), (b, 1)]).map(lambda batch: {"m": batch["n"] + 1})
    assert len(mixed.to_arrow()) == 120
    assert parts([m - 1 for m in mixed.to_arrow()["m"].to_pylist()]) == {0: 60, 1: 60}
