"""Where shards begin and end: by the rule alone, however the rows lie in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rekord.conversion.plan import ShardingRule
from rekord.conversion.shards import find_bucket_slices, plan_split_shards
from rekord.conversion.spill import CompletedPart, SplitSegment


def part(segments: list[SplitSegment]) -> CompletedPart:
    zero: dict[str, Any] = {"remarks": 0, "rejected": 0, "spill_bytes": 0, "index_bytes": 0, "index_crc": 0}
    records = sum(segment.count for segment in segments)
    return CompletedPart(rows=records, records=records, digest="", segments=segments, **zero)


def rows_of(lengths: list[int], keys: list[int], cuts: list[int]) -> tuple[list[CompletedPart], list[pa.Table]]:
    """The rows in parts that end at `cuts`, each sorted by its keys."""
    parts, tables = [], []
    for begin, end in zip([0, *cuts], [*cuts, len(lengths)], strict=True):
        order = sorted(range(begin, end), key=lambda i: keys[i])
        mine = [lengths[i] for i in order]
        parts.append(part([SplitSegment(0, 0, end - begin, sum(mine))] if end > begin else []))
        tables.append(
            pa.table(
                {
                    "length": pa.array(mine, pa.int64()),
                    "key": pa.array([keys[i] for i in order], pa.uint64()),
                    "row": pa.array(order, pa.int64()),
                }
            )
        )
    return parts, tables


def shards_of(
    lengths: list[int], keys: list[int], cuts: list[int], rule: ShardingRule, *, shuffled: bool
) -> list[list[int]]:
    """The numbers of the rows of each shard, gathered as a task does it."""
    parts, tables = rows_of(lengths, keys if shuffled else [0] * len(keys), cuts)
    found = []
    for shard in plan_split_shards("train", 0, parts, rule, shuffled=shuffled, index_of=tables.__getitem__):
        rows: list[int] = []
        for bucket in shard.buckets:
            pieces = [
                tables[piece.part].slice(piece.first, piece.count)
                for piece in find_bucket_slices(bucket, shard.segments, tables.__getitem__)
            ]
            table = pa.concat_tables(pieces)
            if len(pieces) > 1:
                table = table.take(pa.array(np.argsort(table["key"].to_numpy(), kind="stable")))
            first, last = shard.within(bucket, table["length"].to_numpy())
            rows += table["row"].to_pylist()[first:last]
        found.append(rows)
    return found


def expected(lengths: list[int], order: list[int], rule: ShardingRule) -> list[list[int]]:
    """The rule of the design, the plain way: by the byte or the number that a record starts at."""
    total, records = sum(lengths), len(lengths)
    count = rule.shards or max(1, min(-(-total // rule.shard_bytes), records))
    shards: list[list[int]] = [[] for _ in range(count)]
    start = 0
    for number, row in enumerate(order):
        place = number * count // records if rule.shards else start * count // total
        shards[place].append(row)
        start += lengths[row]
    return shards


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        ShardingRule(shard_bytes=500),
        ShardingRule(shard_bytes=1),
        ShardingRule(shards=1),
        ShardingRule(shards=7),
        ShardingRule(shards=99),
    ],
)
@pytest.mark.parametrize("run_bytes", [50, 700, 10**9])
def test_shards_are_those_of_the_rule_for_any_parts(
    monkeypatch: pytest.MonkeyPatch, rule: ShardingRule, run_bytes: int, shuffled: bool
) -> None:
    monkeypatch.setattr("rekord.conversion.shards.RUN_BYTES", run_bytes)
    random = np.random.default_rng(3)
    lengths = random.integers(17, 200, 60).tolist()
    keys = random.integers(0, 2**64 - 1, 60, dtype=np.uint64).tolist()
    order = sorted(range(60), key=lambda i: keys[i]) if shuffled else list(range(60))
    for cuts in ([], [1], [10, 10, 55], list(range(1, 60))):
        assert shards_of(lengths, keys, cuts, rule, shuffled=shuffled) == expected(lengths, order, rule)


def test_rows_of_one_key_stay_in_the_order_of_reading() -> None:
    keys = [5, 2**64 - 1, 0, 5, 2**64 - 1, 5, 0, 5]
    found = shards_of([20] * 8, keys, [3, 6], ShardingRule(shards=1), shuffled=True)
    assert found == [[2, 6, 0, 3, 5, 7, 1, 4]]


@pytest.mark.parametrize(
    ("rule", "framed_bytes", "records", "shards"),
    [
        (ShardingRule(shard_bytes=100), 0, 0, 1),
        (ShardingRule(shard_bytes=100), 100, 5, 1),
        (ShardingRule(shard_bytes=100), 101, 5, 2),
        (ShardingRule(shard_bytes=1), 500, 5, 5),
        (ShardingRule(shards=9), 100, 5, 9),
        (ShardingRule(shards=3), 0, 0, 3),
    ],
)
def test_the_number_of_shards(rule: ShardingRule, framed_bytes: int, records: int, shards: int) -> None:
    assert rule.count(framed_bytes, records) == shards


def test_a_split_without_rows_has_its_shards_and_no_buckets() -> None:
    (shard,) = plan_split_shards(
        "val", 1, [part([SplitSegment(0, 0, 2, 40)])], ShardingRule(), shuffled=True, index_of=lambda _: None
    )
    assert (shard.split, shard.number, shard.shards, shard.buckets) == ("val", 0, 1, ())
