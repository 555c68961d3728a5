"""Quantiles and numbers of distinct values that fit in little memory, and how far off they may be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rekord.health.stats.numbers import (
    MAX_EXACT_VALUES,
    MAX_TRACKED_KEYS,
    DistinctValues,
    HyperLogLog,
    MemoryBudget,
    Quantiles,
    find_runs,
    mix_hash_bits,
)

SHARES = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]


def sketch(values, dtype=np.float32):
    quantiles = Quantiles(dtype)
    quantiles.add_sorted(np.sort(np.asarray(values, dtype)))
    return quantiles


def worst_rank_error(quantiles, values):
    """How far, in shares of all values, the ranks of the quantiles are from those that were asked for."""
    ordered = np.sort(values)
    worst = 0.0
    for share, value in zip(SHARES, quantiles.at(SHARES), strict=True):
        below, not_above = np.searchsorted(ordered, value, "left"), np.searchsorted(ordered, value, "right")
        worst = max(worst, below / len(ordered) - share, share - not_above / len(ordered))
    return worst


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.sampled_from(SHARES))
def test_quantiles_of_few_values_are_values_of_the_right_rank(values, share):
    expected = np.quantile(np.array(values, np.int64), share, method="inverted_cdf")
    assert sketch(values, np.int64).at([share]) == [expected]


def test_quantiles_are_exact_up_to_a_number_of_values_and_say_so():
    values = np.arange(MAX_EXACT_VALUES)
    assert sketch(values).is_exact
    assert sketch(values).at([0.5]) == [MAX_EXACT_VALUES / 2 - 1]
    assert not sketch(np.arange(MAX_EXACT_VALUES + 1)).is_exact


def test_quantiles_of_nothing_are_none_at_all():
    assert Quantiles(np.int64).at(SHARES) == []


@pytest.mark.parametrize("batch", [100, 5_000, 65_536, 200_000])
@pytest.mark.parametrize("order", ["random", "ascending", "descending"])
def test_ranks_are_right_to_half_a_hundredth_whatever_the_batches_and_the_order(batch, order):
    values = np.random.default_rng(7).normal(size=200_000).astype(np.float32)
    if order != "random":
        values = np.sort(values) if order == "ascending" else np.sort(values)[::-1]
    quantiles = Quantiles(np.float32)
    for begin in range(0, len(values), batch):
        quantiles.add_sorted(np.sort(values[begin : begin + batch]))
    assert quantiles.count == len(values)
    assert worst_rank_error(quantiles, values) < 0.005


def test_merged_quantiles_keep_the_error_and_the_count():
    rng = np.random.default_rng(3)
    parts = [rng.gamma(2.0, size=size).astype(np.float32) for size in (10, 3_000, 70_000, 1, 20_000)]
    left, right = Quantiles(np.float32), Quantiles(np.float32)
    for part in parts[:3]:
        left.merge(sketch(part))
    for part in parts[3:]:
        right.merge(sketch(part))
    left.merge(right)
    values = np.concatenate(parts)
    assert left.count == len(values)
    assert worst_rank_error(left, values) < 0.005


def test_counts_between_edges_add_up_to_all_values():
    quantiles = sketch(np.random.default_rng(1).random(100_000))
    counts = quantiles.counts(np.linspace(0, 1, 11))
    assert counts.sum() == 100_000
    assert np.all(np.abs(counts - 10_000) < 300)


def test_a_value_that_is_repeated_weighs_as_often_as_it_was_met():
    quantiles = Quantiles(np.int64)
    quantiles.add_repeated(5, 1_000_000)
    quantiles.add_repeated(9, 3_000_000)
    assert quantiles.count == 4_000_000
    assert quantiles.at([0.2, 0.3]) == [5, 9]


def test_a_sketch_stays_small():
    quantiles = Quantiles(np.float32)
    rng = np.random.default_rng(0)
    for _ in range(50):
        quantiles.add_sorted(np.sort(rng.random(50_000, np.float32)))
    assert sum(map(len, quantiles._levels)) < 40_000


@pytest.mark.parametrize("number", [1_000, 20_000, 300_000])
def test_distinct_hashes_are_counted_to_three_in_a_hundred(number):
    hashes = mix_hash_bits(np.arange(number, dtype=np.uint64))
    counter = HyperLogLog()
    for _ in range(2):  # a second time changes nothing
        for part in np.array_split(hashes, 7):
            counter.add(part)
    assert counter.estimate() == pytest.approx(number, rel=0.03)


def test_merged_counts_of_distinct_hashes_are_those_of_all_at_once():
    hashes = mix_hash_bits(np.arange(50_000, dtype=np.uint64))
    left, right, whole = HyperLogLog(), HyperLogLog(), HyperLogLog()
    left.add(hashes[:30_000])
    right.add(hashes[20_000:])
    whole.add(hashes)
    left.merge(right)
    assert left.estimate() == whole.estimate()


def distinct(values, *, batch=10**9):
    result = DistinctValues(np.int64, lambda keys: mix_hash_bits(keys.view(np.uint64)), named=False)
    room = MemoryBudget()
    for begin in range(0, len(values), batch):
        ordered = np.sort(values[begin : begin + batch])
        begins, counts = find_runs(ordered)
        result.add(ordered[begins], counts, room)
    return result


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(1, 20))
def test_few_different_values_are_counted_exactly_whatever_the_batches(values, batch):
    found = distinct(np.array(values, np.int64), batch=batch)
    expected = sorted(((value, values.count(value)) for value in set(values)), key=lambda pair: (-pair[1], pair[0]))
    assert found.is_exact
    assert (found.unique, found.total) == (len(set(values)), len(values))
    assert found.top(3) == expected[:3]


def test_of_many_different_values_the_frequent_ones_are_found_and_miss_no_more_than_is_said():
    rng = np.random.default_rng(5)
    common = np.repeat(np.arange(20), np.arange(20_000, 0, -1_000))
    values = rng.permutation(np.concatenate([common, rng.integers(1_000, 10**9, 100_000)]))
    found = distinct(values, batch=30_000)
    assert not found.is_exact
    assert found.unique == pytest.approx(len(np.unique(values)), rel=0.03)
    assert 0 < found.most_missed <= len(values) / MAX_TRACKED_KEYS
    for value, times in found.top(10):
        assert value < 10
        assert 0 <= int(np.count_nonzero(values == value)) - times <= found.most_missed
    assert len(found.keys) <= MAX_TRACKED_KEYS


def test_tables_that_overflowed_can_be_merged_in_any_grouping():
    rng = np.random.default_rng(9)
    parts = [np.concatenate([np.zeros(5_000, np.int64), rng.integers(1, 10**12, 15_000)]) for _ in range(3)]
    small = np.array([0, 0, 7], np.int64)
    room = MemoryBudget()
    left = distinct(parts[0])
    left.merge(distinct(parts[1]), room)
    left.merge(distinct(small), room)
    right = distinct(small)
    tail = distinct(parts[1])
    tail.merge(distinct(parts[0]), room)
    right.merge(tail, room)
    assert left.total == right.total == 40_003
    assert left.unique == right.unique
    for one in (left, right):
        assert one.top(1)[0][0] == 0
        assert 10_002 - one.most_missed <= one.top(1)[0][1] <= 10_002


def test_with_many_features_each_may_keep_less():
    room = MemoryBudget()
    assert room.keys == 10_000
    room.features = 1_000
    assert room.keys == 1_000
    room.features = 10**7
    assert room.keys == 100


def test_smaller_counts_of_distinct_hashes_are_those_that_a_larger_one_folds_to():
    hashes = mix_hash_bits(np.arange(50_000, dtype=np.uint64))
    small, large = HyperLogLog(10), HyperLogLog()
    for one in (small, large):
        one.add(hashes)
    empty = HyperLogLog(10)
    empty.merge(large)
    assert empty.estimate() == small.estimate()
    large.merge(HyperLogLog(10))
    assert large.estimate() == small.estimate()
    assert abs(small.estimate() / 50_000 - 1) < 0.1


def test_of_very_many_features_each_keeps_little():
    room = MemoryBudget()
    room.features = 10_000
    quantiles = Quantiles(np.int64, room.exact_values)
    distinct = DistinctValues(np.int64, lambda keys: mix_hash_bits(keys.astype(np.uint64)), named=False)
    values = np.arange(100_000)
    for begin in range(0, len(values), 1000):
        part = values[begin : begin + 1000]
        quantiles.add_sorted(part)
        distinct.add(part, np.ones(len(part), np.int64), room)
    assert sum(len(level) for level in quantiles._levels) * 8 < 16_000
    assert abs(quantiles.at([0.5])[0] / 50_000 - 1) < 0.02
    assert len(distinct.keys) <= room.tracked_keys == 100
    assert abs(distinct.unique / 100_000 - 1) < 0.1
