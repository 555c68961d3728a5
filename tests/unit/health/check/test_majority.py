"""Rules of `check` without a schema: what differs from most records, and what is natural variation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.health.check.majority import infer_file_set
from rekord.health.check.run import build_majority_rules, learn_patterns
from rekord.health.finding import Finding
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.testing import (
    entry,
    example,
    example_bytes,
    feature,
    feature_list,
    features,
    frame_offsets,
    frames,
    int64_list,
    sequence_bytes,
    sequence_example,
)

PutFile = Callable[..., Path]
NAN = float("nan")


def unlike(path: Path) -> list[Finding]:
    return [one for one in rk.check(path).findings if "H750" <= one.code < "H760"]


def rows(count: int, change: dict[int, Any] | None = None) -> list[bytes]:
    """Records with a label, a name and a vector, some of them changed; a value of None takes a key away."""
    out = []
    for i in range(count):
        row: dict[str, Any] = {"label": [i], "name": [b"n%d" % i], "vec": [0.5, i / 7, 1.0]}
        row.update((change or {}).get(i, {}))
        out.append(example_bytes({key: value for key, value in row.items() if value is not None}))
    return out


CASES: list[tuple[str, dict[str, Any], str, str, str, str]] = [
    (
        "another kind",
        {"label": [7.0]},
        "H755",
        "error",
        "label",
        "`label` is stored as float_list, but most records have int64_list",
    ),
    (
        "numbers where texts are",
        {"name": [3]},
        "H755",
        "error",
        "name",
        "`name` is stored as int64_list, but most records have bytes_list",
    ),
    (
        "missing",
        {"label": None},
        "H756",
        "warning",
        "label",
        "`label` is missing, but nearly all records have it",
    ),
    (
        "a near miss",
        {"label": None, "lable": [3]},
        "H757",
        "warning",
        "lable",
        "unusual key `lable`: did you mean `label`?",
    ),
    (
        "another count",
        {"vec": [0.5, 0.5]},
        "H758",
        "warning",
        "vec",
        "`vec` does not have the number of values of nearly all records",
    ),
    ("NaN", {"vec": [0.5, NAN, 1.0]}, "H751", "warning", "vec", "`vec` is NaN or infinite"),
    ("infinite", {"vec": [0.5, 1.0, float("-inf")]}, "H751", "warning", "vec", "`vec` is NaN or infinite"),
]


@pytest.mark.parametrize("at", [0, 20, 39], ids=["first", "middle", "last"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(
    ("change", "code", "severity", "name", "message"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_record_that_differs_from_the_others_is_found_at_its_place(
    put_file: PutFile,
    compress: Callable[[bytes, str], bytes],
    change: dict[str, Any],
    code: str,
    severity: str,
    name: str,
    message: str,
    compression: str,
    at: int,
) -> None:
    stream = frames(rows(40, {at: change}))
    path = put_file(compress(stream, compression), "x.gz" if compression == "gzip" else "x.tfrecord")
    (one,) = unlike(path)
    assert (one.code, one.severity, one.feature, one.message) == (code, severity, name, message)
    assert (one.path, one.record, one.offset, one.count) == (str(path), at, frame_offsets(stream)[at], 1)
    assert one.expected
    assert one.found
    assert one.do


def test_floats_that_are_whole_are_said_to_be(put_records: PutFile) -> None:
    (one,) = unlike(put_records(rows(5, {3: {"label": [7.0]}})))
    assert (one.code, one.record, one.found) == ("H755", 3, "float_list, all values integers")


def test_a_name_that_replaces_another_is_found_in_a_small_file_too(put_records: PutFile) -> None:
    (one,) = unlike(put_records(rows(5, {4: {"label": None, "Label": [3]}})))
    assert (one.code, one.feature, one.record) == ("H757", "Label", 4)
    assert one.expected == "`label`, as in 4 of 5 sampled records"


def test_an_empty_list_is_another_number_of_values(put_records: PutFile) -> None:
    payloads = rows(40)
    payloads[7] = example(
        features([entry(k, feature(("int64", b""))) for k in ("label",)]) + features([])
    ) + example_bytes({"name": [b"x"], "vec": [0.5, 0.5, 0.5]})
    (one,) = unlike(put_records(payloads))
    assert (one.code, one.record, one.expected, one.found) == ("H758", 7, "1", "0")


# What is natural.


def test_a_few_records_are_not_enough_to_miss_a_key_or_a_count(put_records: PutFile) -> None:
    assert unlike(put_records(rows(10, {3: {"label": None}, 5: {"vec": [1.0]}}))) == []


def test_values_that_are_often_missing_or_vary_are_natural(put_records: PutFile) -> None:
    change = {i: {"label": None} if i % 4 == 0 else {"vec": [1.0] * (1 + i % 5)} for i in range(0, 60, 2)}
    assert unlike(put_records(rows(60, change))) == []


def test_where_values_are_often_missing_a_rare_hole_is_a_note(put_records: PutFile) -> None:
    change: dict[int, Any] = {i: {"name": None} for i in range(0, 60, 3)}
    change[31] = {"label": None}
    (one,) = unlike(put_records(rows(60, change)))
    assert (one.code, one.severity, one.record, one.feature) == ("H756", "note", 31, "label")


def test_a_key_that_is_rare_and_like_no_other_is_natural(put_records: PutFile) -> None:
    assert unlike(put_records(rows(60, {31: {"comment": [b"a"]}}))) == []


def test_names_that_count_are_no_near_misses(put_records: PutFile) -> None:
    payloads = [example_bytes({"id": [i], "cell_1" if i else "cell_2": [i]}) for i in range(60)]
    assert [one.code for one in unlike(put_records(payloads))] == ["H756"]


def test_a_near_miss_beside_the_key_itself_is_natural(put_records: PutFile) -> None:
    assert unlike(put_records(rows(60, {31: {"labels": [1]}}))) == []


def test_what_begins_late_in_a_file_is_how_the_file_is(put_records: PutFile) -> None:
    # Beyond the sample of the first 10,000 records.
    payloads = [example_bytes({"id": [i]} | ({"x": [1]} if i < 10_500 else {})) for i in range(12_000)]
    assert unlike(put_records(payloads)) == []


# Several files.


def test_a_whole_shard_of_another_kind_is_found_against_the_others(put_records: PutFile, tmp_path: Path) -> None:
    for shard in range(3):
        change = {i: {"label": [float(i)]} for i in range(8)} if shard == 2 else {}
        put_records(rows(8, change), f"data/train-{shard:05d}-of-00003.tfrecord")
    found = unlike(tmp_path / "data")
    assert [(one.code, one.severity, one.record) for one in found] == [("H755", "error", i) for i in range(8)]
    assert {Path(one.path or "").name for one in found} == {"train-00002-of-00003.tfrecord"}


def test_a_whole_shard_without_a_key_is_one_warning(put_records: PutFile, tmp_path: Path) -> None:
    for shard in range(40):
        change = {i: {"label": None} for i in range(4)} if shard == 20 else {}
        put_records(rows(4, change), f"data/train-{shard:05d}-of-00040.tfrecord")
    (one,) = unlike(tmp_path / "data")
    assert (one.code, one.severity, one.record, one.count) == ("H756", "warning", 0, 4)
    assert Path(one.path or "").name == "train-00020-of-00040.tfrecord"


def test_a_split_of_another_kind_is_found_where_the_keys_are_the_same(put_records: PutFile, tmp_path: Path) -> None:
    put_records(rows(40), "data/train.tfrecord")
    put_records(rows(4, {i: {"label": [0.5]} for i in range(4)}), "data/val.tfrecord")
    found = unlike(tmp_path / "data")
    assert [one.code for one in found] == ["H755"] * 4
    assert {Path(one.path or "").name for one in found} == {"val.tfrecord"}


def test_a_test_split_without_labels_is_natural(put_records: PutFile, tmp_path: Path) -> None:
    put_records(rows(400), "data/train.tfrecord")
    put_records(rows(30, {i: {"label": None} for i in range(30)}), "data/test.tfrecord")
    assert unlike(tmp_path / "data") == []


def test_files_of_other_datasets_in_one_folder_are_not_compared(put_records: PutFile, tmp_path: Path) -> None:
    put_records(rows(40), "data/flowers.tfrecord")
    put_records(
        [example_bytes({"label": [b"a"], "text": [b"b"], "id": [i]}) for i in range(3)],
        "data/reviews.tfrecord",
    )
    assert unlike(tmp_path / "data") == []


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("d/train-00000-of-00004.tfrecord", "d/train-00003-of-00004.tfrecord", True),
        ("d/part-0-c3a1f0029bde.tfrecord", "d/part-1-c3a1f0029bde.tfrecord", True),
        (
            "d/3f2504e0-4f89-11d3-9a0c-0305e82c3301.tfrecord",
            "d/a1b2c3d4-0000-11d3-9a0c-0305e82c3302.tfrecord",
            True,
        ),
        ("d/train.tfrecord", "d/test.tfrecord", False),
        ("a/1.tfrecord", "b/1.tfrecord", False),
    ],
)
def test_files_belong_together_when_their_names_differ_by_numbers(one: str, other: str, same: bool) -> None:
    assert (infer_file_set(one) == infer_file_set(other)) is same


def test_a_file_that_no_sample_had_is_its_own_sample() -> None:
    def batch(path: str, values: list[float]) -> KeyedBatch:
        numbers = np.array(values, np.float32)
        count = len(values)
        return KeyedBatch(
            path=path,
            records=np.arange(count),
            offsets=np.arange(count) * 40,
            payload_bytes=np.full(count, 24),
            context={"x": KeyColumn("float", numbers, None, None)},
            steps={},
            sequence=False,
        )

    rules = build_majority_rules(learn_patterns([batch("a.tfrecord", [1.0])]))
    found = [one for rule in rules for one in rule.update(batch("b.tfrecord", [1.0, NAN]))]
    found += [one for rule in rules for one in rule.end_file("b.tfrecord")]
    assert [(one.code, one.path, one.record) for one in found] == [("H751", "b.tfrecord", 1)]


# Sequences.


@pytest.mark.parametrize(
    ("steps", "code", "severity"),
    [
        ({"x": [[1], [2]]}, "H755", "error"),
        ({}, "H756", "warning"),
        ({"xs of it": [[0.5]]}, "H756", "warning"),
        ({"x": [[0.5], [0.5, 0.5]]}, "H758", "warning"),
        ({"x": [[0.5], [NAN]]}, "H751", "warning"),
    ],
)
def test_steps_are_compared_like_contexts(
    put_records: PutFile, steps: dict[str, Any], code: str, severity: str
) -> None:
    payloads = [sequence_bytes({"id": [i]}, {"x": [[0.5], [0.25]]}) for i in range(40)]
    payloads[17] = sequence_bytes({"id": [17]}, steps)
    (one,) = unlike(put_records(payloads))
    assert (one.code, one.severity, one.record, one.feature) == (code, severity, 17, "x")


def test_steps_without_a_kind_are_of_no_other_kind(put_records: PutFile) -> None:
    empty = sequence_example(
        features([entry("id", feature(("int64", int64_list([7]))))]),
        features([entry("x", feature_list([feature(), feature()]))]),
    )
    payloads = [sequence_bytes({"id": [i]}, {"x": [[0.5], [0.25]]}) for i in range(6)]
    assert unlike(put_records([empty, *payloads])) == []
    assert unlike(put_records([*payloads, empty])) == []
