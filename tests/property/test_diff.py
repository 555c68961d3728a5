"""Laws of `rk.diff`: it counts what a Counter counts, and what a dict of keys tells."""

from __future__ import annotations

import gzip
import random
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.testing import entry, example, example_bytes, features, frames
from rekord.testing.wire import bytes_list, feature, float_list, int64_list

# Few different values, so that records meet each other.
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.lists(st.integers(0, 2), min_size=1, max_size=2),
    st.lists(st.sampled_from([0.0, 0.5]), min_size=1, max_size=2),
    st.lists(st.sampled_from([b"", b"a", b"ab"]), min_size=1, max_size=2),
)
RECORD = st.dictionaries(st.sampled_from(["x", "y", "z"]), VALUES, max_size=3)
RECORDS = st.lists(RECORD, max_size=12)
KEYED = st.dictionaries(st.integers(0, 9), RECORD, min_size=1, max_size=10)

_LISTS: dict[type, Any] = {
    int: ("int64", int64_list),
    float: ("float", float_list),
    bytes: ("bytes", bytes_list),
}


def frozen(record: dict[str, Any]) -> Any:
    return frozenset((key, type(values[0]).__name__, tuple(values)) for key, values in record.items())


def shuffled_keys(record: dict[str, Any], seed: int) -> bytes:
    entries = []
    for key, values in random.Random(seed).sample(list(record.items()), len(record)):
        kind, encoded = _LISTS[type(values[0])]
        entries.append(entry(key, feature((kind, encoded(values)))))
    return example(features(entries))


def put(folder: str, name: str, payloads: list[bytes], cuts: list[int] | None = None) -> str:
    root = Path(folder) / name
    root.mkdir()
    bounds = [0, *sorted(min(cut, len(payloads)) for cut in cuts or []), len(payloads)]
    for i, (begin, end) in enumerate(pairwise(bounds)):
        data = frames(payloads[begin:end])
        (root / f"{i}.tfrecord").write_bytes(gzip.compress(data) if i % 2 else data)
    return str(root)


@settings(max_examples=150, deadline=None)
@given(RECORDS, RECORDS)
def test_added_and_removed_are_those_of_two_bags(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    ours, theirs = (Counter(map(frozen, records)) for records in (a, b))
    with tempfile.TemporaryDirectory() as folder:
        found = rk.diff(
            put(folder, "a", [example_bytes(row) for row in a]),
            put(folder, "b", [example_bytes(row) for row in b]),
        )
    assert found.records.added == (theirs - ours).total()
    assert found.records.removed == (ours - theirs).total()
    assert (found.records.changed, found.records.moved) == (0, 0)
    assert found.same == (ours == theirs)


@settings(max_examples=80, deadline=None)
@given(RECORDS, st.lists(st.integers(0, 12), max_size=4), st.integers(0, 1000))
def test_shuffled_resharded_and_with_keys_in_any_order_it_is_the_same(
    records: list[dict[str, Any]], cuts: list[int], seed: int
) -> None:
    order = random.Random(seed).sample(range(len(records)), len(records))
    with tempfile.TemporaryDirectory() as folder:
        a = put(folder, "a", [example_bytes(row) for row in records])
        b = put(folder, "b", [shuffled_keys(records[i], seed + i) for i in order], cuts)
        found = rk.diff(a, b)
    assert found.same
    in_order = [frozen(records[i]) for i in order] == [frozen(row) for row in records]
    assert ("records of `all` are in a different order" in found.remarks) == (not in_order)


@settings(max_examples=120, deadline=None)
@given(KEYED, KEYED, st.integers(0, 1000))
def test_with_a_key_it_is_the_comparison_of_two_dicts(
    a: dict[int, dict[str, Any]], b: dict[int, dict[str, Any]], seed: int
) -> None:
    changed = [key for key in a.keys() & b.keys() if frozen(a[key]) != frozen(b[key])]
    per_feature = Counter(
        name
        for key in changed
        for name in a[key].keys() | b[key].keys()
        if frozen({name: a[key][name]} if name in a[key] else {})
        != frozen({name: b[key][name]} if name in b[key] else {})
    )
    payloads = [
        [
            example_bytes({"id": [key], **row})
            for key, row in random.Random(seed).sample(list(side.items()), len(side))
        ]
        for side in (a, b)
    ]
    with tempfile.TemporaryDirectory() as folder:
        found = rk.diff(put(folder, "a", payloads[0]), put(folder, "b", payloads[1], [3]), key="id")
    records = found.records
    assert (records.added, records.removed) == (len(b.keys() - a.keys()), len(a.keys() - b.keys()))
    assert records.changed == len(changed)
    assert dict(records.features) == dict(per_feature)
    told = {each.key: set(each.features) for each in records.examples if each.change == "changed"}
    assert set(told) == set(changed)
    assert {each.key for each in records.examples if each.change == "added"} == b.keys() - a.keys()
