"""How far splits are from each other: the distances, the verdicts, and what chance explains."""

from __future__ import annotations

import math

import numpy as np
import pytest

import rekord as rk
from rekord.health.stats.numbers import MemoryBudget, NumberStatistics
from rekord.health.stats.report import jensen_shannon
from rekord.testing import example_bytes


@pytest.fixture
def skew(put_records, tmp_path):
    """The comparisons of splits, each given as its rows."""

    def compared(splits, **options):
        for name, rows in splits.items():
            put_records([example_bytes(row) for row in rows], f"{name}.tfrecord")
        return rk.stats(tmp_path, **options).skew

    return compared


def numbers(values, dtype=np.float32):
    found = NumberStatistics(dtype, MemoryBudget())
    found.add(np.array(values, dtype), MemoryBudget())
    return found


def labels(counts):
    return [{"x": [label]} for label, times in counts.items() for _ in range(times)]


def test_categories_differ_by_the_largest_difference_of_their_shares(skew):
    (one,) = skew({"train": labels({b"a": 700, b"b": 300}), "val": labels({b"a": 400, b"b": 500, b"c": 100})})
    assert (one.feature, one.base, one.split, one.measure) == ("x", "train", "val", "linf")
    assert one.distance == pytest.approx(0.3)
    assert (one.verdict, one.says) == ("differs", "“a”: 70.0% vs 40.0%")


def test_labels_are_categories_although_they_are_numbers(skew):
    schema = rk.Schema({"x": rk.Label(["cat", "dog"])})
    (one,) = skew({"train": labels({0: 500, 1: 500}), "test": labels({0: 900, 1: 100})}, schema=schema)
    assert (one.measure, one.distance) == ("linf", pytest.approx(0.4))
    assert one.says == "“cat”: 50.0% vs 90.0%"


def test_small_splits_may_differ_by_chance(skew):
    (one,) = skew({"train": labels({0: 500, 1: 500}), "val": labels({0: 3, 1: 1})})
    assert (one.verdict, one.distance) == ("chance", pytest.approx(0.25))
    assert one.chance > one.distance


def test_equal_splits_are_alike(skew):
    rows = [{"x": [i / 100], "y": [b"a"]} for i in range(100)]
    found = skew({"train": rows, "val": rows})
    assert [(one.feature, one.measure, one.distance, one.verdict) for one in found] == [
        ("x", "js", 0.0, "same"),
        ("y", "linf", 0.0, "same"),
    ]


def test_numbers_that_moved_differ(skew):
    rng = np.random.default_rng(4)
    train, val = rng.normal(0, 1, 5_000), rng.normal(1, 1, 5_000)
    (one,) = skew({"train": [{"x": [v]} for v in train], "val": [{"x": [v]} for v in val]})
    assert (one.measure, one.verdict) == ("js", "differs")
    assert one.distance == pytest.approx(0.16, abs=0.02)


def test_thresholds_are_the_callers(skew):
    splits = {"train": labels({b"a": 5_000, b"b": 5_000}), "val": labels({b"a": 5_800, b"b": 4_200})}
    assert [one.verdict for one in skew(splits)] == ["differs"]
    assert [one.verdict for one in skew(splits, linf_threshold=0.1)] == ["same"]


def test_the_divergence_of_disjoint_numbers_is_one_bit_and_symmetric():
    left, right = numbers([1, 2, 3]), numbers([10, 11])
    assert jensen_shannon(left, right)[0] == jensen_shannon(right, left)[0] == 1.0


def test_the_divergence_is_that_of_its_definition():
    left, right = numbers([0, 0, 0, 1], np.int64), numbers([0, 1, 1, 1], np.int64)
    p, q = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    middle = (p + q) / 2
    expected = sum((side * np.log2(side / middle)).sum() for side in (p, q)) / 2
    assert jensen_shannon(left, right)[0] == pytest.approx(expected)


def test_nan_counts_as_a_value_of_its_own():
    assert jensen_shannon(numbers([1.0] * 4), numbers([math.nan] * 4))[0] == 1.0
    assert jensen_shannon(numbers([math.nan]), numbers([math.nan]))[0] == 0.0


def test_a_feature_that_one_split_lacks_is_absent(skew):
    (one,) = skew({"train": [{"x": [1]}], "val": [{}]})
    assert (one.verdict, one.says, one.distance) == ("absent", "only train has this feature", None)


def test_a_feature_of_another_kind_differs(skew):
    (one,) = skew({"train": [{"x": [1]}], "val": [{"x": [0.5]}]})
    assert (one.verdict, one.says) == ("differs", "train holds int64, val holds float")


def test_a_feature_that_is_missing_more_often_differs(skew):
    splits = {"train": [{"x": [1]}] * 500, "val": [{"x": [1]}] * 250 + [{}] * 250}
    found = [one for one in skew(splits) if one.verdict == "differs"]
    assert [(one.measure, one.distance, one.says) for one in found] == [("missing", 0.5, "missing in 0.0% vs 50.0%")]


def test_all_splits_are_compared_with_the_one_to_train_on(skew):
    rows = labels({0: 5, 1: 5})
    found = skew({"test": rows, "train": rows, "val": rows})
    assert [(one.base, one.split) for one in found] == [("train", "val"), ("train", "test")]


def test_one_split_is_compared_with_nothing(skew):
    assert list(skew({"train": labels({0: 5})})) == []
