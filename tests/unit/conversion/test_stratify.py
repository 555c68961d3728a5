"""Exact splits within classes: the rows of the lowest hashes, counted without holding them."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from rekord.conversion.spill import SplitSegment, assign_stratified_splits, compute_split_edges
from rekord.conversion.splits import SplitRule

RULE = SplitRule(names=("a", "b", "c"), ratios=(0.6, 0.3, 0.1), stratify="label")


def table_of(strata: np.ndarray, hashes: np.ndarray) -> pa.Table:
    return pa.table(
        {
            "stratum": pa.array(strata.astype(np.uint64)),
            "hash": pa.array(hashes.astype(np.uint64)),
            "length": pa.array(np.arange(len(strata)) + 20),
            "row": pa.array(np.arange(len(strata))),
        }
    )


@pytest.mark.parametrize("parts", [1, 3, 50])
@pytest.mark.parametrize("spread", [2**64 - 1, 2**53, 2**20], ids=["all", "one bin in two", "one bin"])
@pytest.mark.parametrize("few", [0, 100, 4096], ids=["binned", "both", "held"])
def test_the_splits_of_a_class_are_its_lowest_hashes(
    parts: int, spread: int, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rekord.conversion.spill._MIN_BINNED_ROWS", few)
    random = np.random.default_rng(parts)
    classes = np.array([3, 9, 27, 2**64 - 1], np.uint64)
    small = np.array([5, 6, 6, 7, 7, 7], np.uint64)
    strata = np.append(random.choice(classes, 900, p=[0.7, 0.25, 0.04, 0.01]), small)
    hashes = np.unique(random.integers(0, spread, 2000, dtype=np.uint64))
    hashes = random.permutation(hashes)[: len(strata)]
    whole = table_of(strata, hashes)
    cuts = np.linspace(0, len(strata), parts + 1).astype(int)
    tables = [whole.slice(begin, end - begin) for begin, end in pairwise(cuts.tolist())]
    edges = compute_split_edges(lambda: iter(tables), RULE)
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for table in tables:
        split_table, segments = assign_stratified_splits(table, [SplitSegment(0, 0, len(table), 0)], edges)
        rows, lengths = split_table["row"].to_pylist(), split_table["length"].to_pylist()
        for segment in segments:
            mine = rows[segment.first : segment.first + segment.count]
            assert mine == sorted(mine), "the order within a run stays"
            assert segment.framed_bytes == sum(lengths[segment.first : segment.first + segment.count])
            found[segment.split] += mine
    assert sorted(row for rows in found.values() for row in rows) == list(range(len(strata)))
    for stratum in np.unique(strata).tolist():
        mine = np.flatnonzero(strata == stratum)
        mine = mine[np.argsort(hashes[mine], kind="stable")].tolist()
        begin = 0
        for split, share in enumerate(RULE.shares(len(mine))):
            assert sorted(mine[begin : begin + share]) == [
                row for row in sorted(found[split]) if strata[row] == stratum
            ]
            begin += share


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 10, 99, 10**12])
def test_shares_add_up_and_are_off_by_less_than_one(rows: int) -> None:
    for rule in (RULE, SplitRule(names=("a", "b"), ratios=(1 / 3, 2 / 3)), SplitRule(names=("a",))):
        shares = rule.shares(rows)
        assert sum(shares) == rows
        ratios = rule.ratios or (1.0,)
        assert all(abs(share - rows * ratio) < 1 for share, ratio in zip(shares, ratios, strict=True))


def test_a_run_keeps_its_place_and_its_rows() -> None:
    table = table_of(np.zeros(10), np.arange(10)[::-1])
    edges = compute_split_edges(lambda: iter([table]), RULE)
    split_table, segments = assign_stratified_splits(
        table, [SplitSegment(0, 0, 4, 0), SplitSegment(0, 4, 6, 0)], edges
    )
    assert split_table["row"].to_pylist() == [1, 2, 3, 0, 4, 5, 6, 7, 8, 9]
    assert [(one.split, one.first, one.count) for one in segments] == [
        *((1, 0, 3), (2, 3, 1)),
        *((0, 4, 6),),
    ]


@pytest.mark.slow
def test_as_many_classes_as_rows_are_held_in_little_more_than_their_hashes() -> None:
    rows = 5000
    table = table_of(np.arange(rows), np.random.default_rng(1).integers(0, 2**63, rows, dtype=np.uint64))
    tracemalloc.start()
    try:
        edges = compute_split_edges(lambda: iter([table]), RULE)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(edges) == rows
    assert peak_bytes < 2000 * rows  # bins for each would be 32 kB a class
