"""Rules of `check` with a schema: every disagreement has its code, its severity and its place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.health.check.run import build_schema_rules
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.health.scan import scan_file
from rekord.testing import (
    entry,
    example,
    example_bytes,
    feature,
    feature_list,
    features,
    float_list,
    frame_offsets,
    frames,
    int64_list,
    sequence_bytes,
    sequence_example,
)

PutFile = Callable[..., Path]
NAN, INF = float("nan"), float("inf")


def held_against(path: Path, schema: rk.Schema, *, tfds: bool = False) -> list[Finding]:
    """All findings of one file under the rules of a schema."""
    rules = build_schema_rules(schema, tfds=tfds)
    found: list[Finding] = []
    for item in scan_file(str(path), Report()):
        if isinstance(item, Finding):
            found.append(item)
        else:
            found += [finding for rule in rules for finding in rule.update(item)]
    found += [finding for rule in rules for finding in rule.end_file(str(path))]
    found += [finding for rule in rules for finding in rule.end()]
    return found


def of_kind(kind: str, values: Sequence[Any]) -> bytes:
    """A feature of a kind that an empty list does not tell."""
    return feature((kind, int64_list(values) if kind == "int64" else float_list(values)))


def steps_of(values: list[Any]) -> bytes:
    return sequence_bytes({"id": [1]}, {"x": values})


UINT64_MAX = -1  # stored bit for bit

# feature, a good record, a bad record, code, severity, a part of the message, expected, found
CASES: list[tuple[str, Any, Any, Any, str, str, str, str | None, str | None]] = [
    (
        "missing",
        rk.Int64(),
        {"x": [1]},
        {"y": [1]},
        "D401",
        "error",
        "`x` is required but missing",
        "a value under `x`",
        "no such key, or a key without a kind",
    ),
    (
        "without a kind",
        rk.Int64(),
        {"x": [1]},
        {"x": None},
        "D401",
        "error",
        "`x` is required but missing",
        "a value under `x`",
        None,
    ),
    (
        "two values for a scalar",
        rk.Int64(),
        {"x": [1]},
        {"x": [1, 2]},
        "D402",
        "error",
        "`x` has the wrong number of values",
        "1 value, for shape ()",
        "2 values",
    ),
    (
        "too few values",
        rk.Float32(shape=(3,)),
        {"x": [1.0, 2.0, 3.0]},
        {"x": [1.0]},
        "D402",
        "error",
        "`x` has the wrong number",
        "3 values, for shape (3,)",
        "1 value",
    ),
    (
        "no multiple",
        rk.Int64(shape=(None, 4)),
        {"x": [1, 2, 3, 4]},
        {"x": [1, 2, 3]},
        "D402",
        "error",
        "`x` has the wrong number",
        "a multiple of 4 values, for shape (None, 4)",
        "3 values",
    ),
    (
        "floats that are whole",
        rk.Label(3),
        {"x": [1]},
        {"x": [2.0]},
        "D403",
        "error",
        "`x` is stored as float_list, but declared as Label",
        "int64_list",
        "float_list, all values integers",
    ),
    (
        "floats with a fraction",
        rk.Int64(),
        {"x": [1]},
        {"x": [2.5]},
        "D403",
        "error",
        "`x` is stored as float_list",
        "int64_list",
        "float_list, some with a fraction",
    ),
    (
        "ints where floats are declared",
        rk.Float32(),
        {"x": [1.5]},
        {"x": [2]},
        "D403",
        "error",
        "`x` is stored as int64_list",
        "float_list",
        "int64_list, integers",
    ),
    (
        "texts that are numbers",
        rk.Int64(),
        {"x": [1]},
        {"x": [b"17"]},
        "D403",
        "error",
        "`x` is stored as bytes_list",
        "int64_list",
        "bytes_list, texts that are numbers",
    ),
    (
        "pixels one by one",
        rk.Bytes(),
        {"x": [b"a"]},
        {"x": list(range(200))},
        "D403",
        "error",
        "`x` is stored as int64_list",
        "bytes_list",
        "int64_list, 200 values from 0 to 255",
    ),
    (
        "no utf-8",
        rk.Text(),
        {"x": ["café"]},
        {"x": ["café".encode("latin-1")]},
        "D404",
        "error",
        "`x` is not UTF-8, but declared as Text",
        "UTF-8",
        "byte 0xe9 at 3 of 4",
    ),
    (
        "no uint8",
        rk.Int64(dtype="uint8"),
        {"x": [255]},
        {"x": [256]},
        "D405",
        "error",
        "`x` has a value that does not fit uint8",
        "values of type uint8",
        "256",
    ),
    (
        "no bool",
        rk.Int64(dtype="bool"),
        {"x": [1]},
        {"x": [-1]},
        "D405",
        "error",
        "`x` has a value that does not fit bool",
        "values of type bool",
        "-1",
    ),
    (
        "no float16",
        rk.Float32(dtype="float16"),
        {"x": [65504.0]},
        {"x": [70000.0]},
        "D405",
        "error",
        "`x` has a value that does not fit float16",
        "values of type float16",
        "70000.0",
    ),
    (
        "a tensor of doubles",
        rk.Tensor("float32", shape=(2,)),
        {"x": [struct.pack("<2f", 1, 2)]},
        {"x": [struct.pack("<2d", 1, 2)]},
        "D406",
        "error",
        "`x` does not have the size of a float32 tensor of shape (2,)",
        "8 bytes",
        "16 bytes: 2 × as many",
    ),
    (
        "a tensor of bools",
        rk.Tensor("bool", shape=(2,)),
        {"x": [b"\0\1"]},
        {"x": [b"\0\xff"]},
        "D405",
        "error",
        "`x` has a byte that is not a bool",
        "bytes 0 and 1",
        "255 at byte 1",
    ),
    (
        "a tensor with NaN",
        rk.Tensor("float32", shape=(2,)),
        {"x": [struct.pack("<2f", 1, 2)]},
        {"x": [struct.pack("<2f", 1, NAN)]},
        "H751",
        "warning",
        "`x` has a value that is NaN",
        "a finite number",
        "nan at index 1",
    ),
    (
        "below its range",
        rk.Int64(range=(0, 9)),
        {"x": [9]},
        {"x": [-1]},
        "H750",
        "error",
        "`x` has a value out of range",
        "a number from 0 to 9",
        "-1",
    ),
    (
        "above its range",
        rk.Float32(range=(0.0, 0.1)),
        {"x": [0.1]},
        {"x": [0.1001]},
        "H750",
        "error",
        "`x` has a value out of range",
        "a number from 0.0 to 0.1",
        "0.1001",
    ),
    (
        "beyond a float16",
        rk.Float32(dtype="float16", range=(0, 1)),
        {"x": [1.0001]},  # rounds to 1 as the declared dtype
        {"x": [1.01]},
        "H750",
        "error",
        "`x` has a value out of range",
        "a number from 0.0 to 1.0",
        "1.01",
    ),
    (
        "above the range of a uint64",
        rk.Int64(dtype="uint64", range=(0, 10)),
        {"x": [10]},
        {"x": [UINT64_MAX]},
        "H750",
        "error",
        "`x` has a value out of range",
        "a number from 0 to 10",
        "18446744073709551615",
    ),
    (
        "one of many values",
        rk.Int64(shape=(None,), range=(0, 9)),
        {"x": [1, 2]},
        {"x": [1, 2, 30, 40]},
        "H750",
        "error",
        "`x` has a value out of range",
        "a number from 0 to 9",
        "30, value 2 of 4",
    ),
    (
        "NaN in a range",
        rk.Float32(range=(0, 1)),
        {"x": [0.5]},
        {"x": [NAN]},
        "H751",
        "error",
        "`x` is NaN",
        "a number from 0.0 to 1.0",
        "nan",
    ),
    (
        "infinite outside of a range",
        rk.Float32(range=(0, 1)),
        {"x": [0.5]},
        {"x": [-INF]},
        "H751",
        "error",
        "`x` is infinite",
        "a number from 0.0 to 1.0",
        "-inf",
    ),
    (
        "infinite at an open end",
        rk.Float32(range=(0, None)),
        {"x": [0.5]},
        {"x": [INF]},
        "H751",
        "warning",
        "`x` is infinite",
        "a number from 0.0 to inf",
        "inf",
    ),
    (
        "NaN without a range",
        rk.Float32(shape=(None,)),
        {"x": [0.5]},
        {"x": [0.5, NAN]},
        "H751",
        "warning",
        "`x` has a value that is NaN",
        "a finite number",
        "nan, value 1 of 2",
    ),
    (
        "a label too large",
        rk.Label(["cat", "dog"]),
        {"x": [0]},
        {"x": [2]},
        "H752",
        "error",
        "`x` is not one of its 2 classes",
        "a class id from 0 to 1",
        "2",
    ),
    (
        "a label below 0",
        rk.Label(2),
        {"x": [0]},
        {"x": [-1]},
        "H752",
        "error",
        "`x` is not one of its 2 classes",
        "a class id from 0 to 1",
        "-1",
    ),
]

SEVERAL = [
    (
        "a sparse value without its index",
        rk.Sparse("float32", size=10),
        {"x/indices": [1, 2], "x/values": [0.5, 1.0]},
        {"x/indices": [1, 2], "x/values": [0.5]},
        "keys of `x` are inconsistent",
        "2 values under `x/values`, as under `x/indices`",
        "1",
    ),
    (
        "a sparse index beyond its size",
        rk.Sparse("float32", size=10),
        {"x/indices": [9], "x/values": [0.5]},
        {"x/indices": [3, 10], "x/values": [0.5, 0.5]},
        "`x` has an index outside its size",
        "indices from 0 to 9",
        "10, value 1 of 2",
    ),
    (
        "boxes of three sides",
        rk.Boxes(key="x"),
        {"x/xmin": [0.1], "x/ymin": [0.1], "x/xmax": [0.9], "x/ymax": [0.9]},
        {"x/xmin": [0.1], "x/ymin": [0.1], "x/xmax": [0.9], "x/ymax": [0.9, 0.8]},
        "keys of `x` are inconsistent",
        "1 values under `x/ymax`, as under `x/xmin`",
        "2",
    ),
    (
        "an optional column in parts",
        rk.Sparse("int64", size=10, optional=True),
        {"x/indices": [1], "x/values": [5]},
        {"x/values": [5]},
        "keys of `x` are inconsistent",
        "all of its keys, or none",
        "`x/values` without `x/indices`",
    ),
    (
        "row lengths that do not add up",
        rk.Int64(shape=(None, None), key="x/flat", partitions=("x/lengths",)),
        {"x/flat": [1, 2, 3], "x/lengths": [2, 1]},
        {"x/flat": [1, 2, 3], "x/lengths": [2, 2]},
        "keys of `x` are inconsistent",
        "row lengths that sum to 3",
        "2, 2",
    ),
    (
        "a row length below 0",
        rk.Int64(shape=(None, None), key="x/flat", partitions=("x/lengths",)),
        {"x/flat": [1, 2, 3], "x/lengths": [2, 1]},
        {"x/flat": [1, 2, 3], "x/lengths": [4, -1]},
        "keys of `x` are inconsistent",
        "row lengths that sum to 3",
        "4, -1",
    ),
]


@pytest.mark.parametrize("at", [0, 2, 4], ids=["first", "middle", "last"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize(
    ("declared", "good", "bad", "code", "severity", "message", "expected", "found"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_record_that_disagrees_with_its_schema_has_one_finding_at_its_place(
    put_file: PutFile,
    compress: Callable[[bytes, str], bytes],
    declared: Any,
    good: Any,
    bad: Any,
    code: str,
    severity: str,
    message: str,
    expected: str | None,
    found: str | None,
    compression: str,
    at: int,
) -> None:
    payloads = [example_bytes(good)] * 5
    payloads[at] = example_bytes(bad)
    data = frames(payloads)
    path = put_file(compress(data, compression), "x.tfrecord.gz" if compression == "gzip" else "x.tfrecord")
    findings = [one for one in held_against(path, rk.Schema({"x": declared})) if one.code != "H754"]
    assert [(one.code, one.severity, one.feature) for one in findings] == [(code, severity, "x")]
    (one,) = findings
    assert (one.path, one.record, one.offset, one.count) == (str(path), at, frame_offsets(data)[at], 1)
    assert one.message.startswith(message)
    assert one.expected == expected
    assert found is None or one.found == found
    assert one.do
    assert all(len(text) <= 120 for text in (one.found or "", one.expected or ""))


@pytest.mark.parametrize(
    ("declared", "good", "bad", "message", "expected", "found"),
    [case[1:] for case in SEVERAL],
    ids=[case[0] for case in SEVERAL],
)
def test_keys_of_one_column_that_do_not_belong_together_are_one_error(
    put_records: PutFile, declared: Any, good: Any, bad: Any, message: str, expected: str, found: str
) -> None:
    payloads = [example_bytes(good), example_bytes(bad), example_bytes(good)]
    (one,) = held_against(put_records(payloads), rk.Schema({"x": declared}))
    assert (one.code, one.severity, one.record, one.feature) == ("D407", "error", 1, "x")
    assert (one.message, one.expected, one.found) == (message, expected, found)


@pytest.mark.parametrize("case", [*CASES, *SEVERAL], ids=lambda case: case[0])
def test_a_good_record_has_no_finding(put_records: PutFile, case: Any) -> None:
    assert held_against(put_records([example_bytes(case[2])] * 3), rk.Schema({"x": case[1]})) == []


def test_a_required_column_of_several_keys_is_missing_once_a_record(put_records: PutFile) -> None:
    schema = rk.Schema({"id": rk.Int64(), "x": rk.Sparse("float32", size=10)})
    payloads = [example_bytes({"id": [1]}), example_bytes({"id": [1], "x/values": [0.5]})]
    found = held_against(put_records(payloads), schema)
    assert [(one.code, one.record, one.feature) for one in found] == [("D401", 0, "x"), ("D401", 1, "x")]
    assert "`x` (stored as `x/indices`) is required but missing" in found[0].message


@pytest.mark.parametrize(
    ("declared", "kind", "code"),
    [
        (rk.Int64(optional=True), "int64", None),  # an empty list of a fixed shape is missing if optional
        (rk.Int64(default=3), "int64", "D402"),
        (rk.Int64(), "int64", "D402"),
        (rk.Int64(shape=(None,)), "int64", None),
        (rk.Float32(shape=(None,), optional=True), "float", None),
        (rk.Float32(shape=(2,), optional=True), "float", None),
    ],
)
def test_an_empty_list_is_what_the_table_of_the_interface_says(
    put_records: PutFile, declared: Any, kind: str, code: str | None
) -> None:
    payload = example(features([entry("x", of_kind(kind, []))]))
    found = held_against(put_records([payload]), rk.Schema({"x": declared}))
    assert [one.code for one in found] == ([] if code is None else [code])


@pytest.mark.parametrize("declared", [rk.Int64(optional=True), rk.Int64(default=3)])
@pytest.mark.parametrize("bad", [{"id": [1]}, {"id": [1], "x": None}])
def test_a_value_may_be_missing_where_it_is_optional_or_has_a_default(
    put_records: PutFile, declared: Any, bad: Any
) -> None:
    payloads = [example_bytes({"id": [1], "x": [1]}), example_bytes(bad)]
    assert held_against(put_records(payloads), rk.Schema({"id": rk.Int64(), "x": declared})) == []


def test_values_are_judged_beside_holes(put_records: PutFile) -> None:
    payloads = [example_bytes({"id": [1]}), example_bytes({"id": [1], "x": [7]})]
    schema = rk.Schema({"id": rk.Int64(), "x": rk.Int64(optional=True, range=(1, 5))})
    found = held_against(put_records(payloads), schema)
    assert [(one.code, one.record, one.found) for one in found] == [("H750", 1, "7")]


# Keys that the schema lacks.


def test_an_unknown_key_is_one_warning_a_file_with_the_number_of_records(put_records: PutFile) -> None:
    payloads = [example_bytes({"x": [1], **({"stray": [b"a"]} if i in (3, 5, 6) else {})}) for i in range(8)]
    (one,) = held_against(put_records(payloads), rk.Schema({"x": rk.Int64()}))
    assert (one.code, one.severity, one.feature, one.record, one.count) == (
        "H754",
        "warning",
        "stray",
        3,
        3,
    )
    assert one.offset == frame_offsets(frames(payloads))[3]
    assert one.message == "`stray` is not in the schema"


@pytest.mark.parametrize("near", ["image/encode", "image_encoded", "Image/Encoded", "image/encodde"])
def test_a_near_miss_is_named(put_records: PutFile, near: str) -> None:
    schema = rk.Schema({"image/encoded": rk.Bytes(optional=True)})
    (one,) = held_against(put_records([example_bytes({near: [b"a"]})]), schema)
    assert (one.code, one.severity, one.feature) == ("H754", "warning", near)
    assert one.message == f"`{near}` is not in the schema: did you mean `image/encoded`?"


def test_a_missing_key_and_its_near_miss_are_one_finding(put_records: PutFile) -> None:
    payloads = [example_bytes({"label": [1]}), example_bytes({"lable": [1]})]
    (one,) = held_against(put_records(payloads), rk.Schema({"label": rk.Int64()}))
    assert (one.code, one.severity, one.record, one.feature) == ("D401", "error", 1, "label")
    assert one.message == "`label` is missing, but the record has `lable`: did you mean `label`?"
    assert one.found == "`lable`, which is not in the schema"


def test_a_near_miss_beside_the_key_itself_stays_a_warning(put_records: PutFile) -> None:
    payloads = [example_bytes({"label": [1], "lable": [1]}), example_bytes({"lable": [1]})]
    found = held_against(put_records(payloads), rk.Schema({"label": rk.Int64()}))
    assert [(one.code, one.record, one.count) for one in found] == [("D401", 1, 1), ("H754", 0, 1)]


def test_keys_that_never_end_are_named_a_hundred_times_and_then_counted(put_records: PutFile) -> None:
    payloads = [example_bytes({"x": [1], f"user {i} of many": [1]}) for i in range(150)]
    found = held_against(put_records(payloads), rk.Schema({"x": rk.Int64()}))
    assert [one.code for one in found] == ["H754"] * 101
    assert (found[100].feature, found[100].count) == (None, 50)


def test_a_key_of_any_length_is_cut_in_messages(put_records: PutFile) -> None:
    (one,) = held_against(put_records([example_bytes({"x": [1], "k" * 5000: [1]})]), rk.Schema({"x": rk.Int64()}))
    assert one.code == "H754"
    assert len(one.message) < 100
    assert len(one.do or "") < 200


def test_names_of_one_letter_are_not_taken_for_each_other(put_records: PutFile) -> None:
    found = held_against(put_records([example_bytes({"y": [1]})]), rk.Schema({"x": rk.Int64()}))
    assert [(one.code, one.message) for one in found] == [
        ("D401", "`x` is required but missing"),
        ("H754", "`y` is not in the schema"),
    ]


# Repetition.


def test_after_twenty_errors_of_one_sort_the_rest_is_one_finding_with_a_count(put_records: PutFile) -> None:
    payloads = [example_bytes({"x": [float(i)]}) for i in range(50)]
    found = held_against(put_records(payloads), rk.Schema({"x": rk.Int64()}))
    assert [one.code for one in found] == ["D403"] * 21
    assert [one.record for one in found] == list(range(21))
    assert [one.count for one in found] == [1] * 20 + [30]


def test_warnings_of_one_sort_are_one_finding_with_a_count(put_records: PutFile) -> None:
    payloads = [example_bytes({"x": [NAN if i % 2 else 0.5]}) for i in range(9)]
    (one,) = held_against(put_records(payloads), rk.Schema({"x": rk.Float32()}))
    assert (one.code, one.severity, one.record, one.count) == ("H751", "warning", 1, 4)


# Labels.


def test_labels_that_count_from_one_are_recognised(put_records: PutFile) -> None:
    for records, likely in ((9, None), (30, "no label near it is 0: the ids start at 1")):
        payloads = [example_bytes({"x": [1 + i % 3]}) for i in range(records)]
        found = held_against(put_records(payloads), rk.Schema({"x": rk.Label(3)}))
        assert [one.code for one in found] == ["H752"] * (records // 3)
        assert found[0].likely == likely


def test_minus_one_means_unknown_in_what_tfds_wrote(put_records: PutFile) -> None:
    payloads = [example_bytes({"x": [value]}) for value in (0, -1, 1, -1, 7)]
    path = put_records(payloads)
    found = held_against(path, rk.Schema({"x": rk.Label(3)}), tfds=True)
    assert [(one.code, one.severity, one.record, one.count) for one in found] == [
        ("H752", "error", 4, 1),
        ("H753", "note", 1, 2),
    ]
    assert [one.code for one in held_against(path, rk.Schema({"x": rk.Label(3)}))] == ["H752"] * 3


# Texts and tensors.


def test_a_text_that_is_cut_inside_a_character_is_found_between_good_ones(put_records: PutFile) -> None:
    # End to end the three are good UTF-8: only each by itself is not.
    cut = "é".encode()
    payloads = [example_bytes({"x": [text]}) for text in (b"a" + cut[:1], cut[1:] + b"b", b"c")]
    found = held_against(put_records(payloads), rk.Schema({"x": rk.Text()}))
    assert [(one.code, one.record) for one in found] == [("D404", 0), ("D404", 1)]


def test_long_texts_and_tensors_are_looked_at_like_short_ones(put_records: PutFile) -> None:
    schema = rk.Schema({"t": rk.Text(), "a": rk.Tensor("float32", shape=(None, 2))})
    good = {"t": ["ü" * 5000], "a": [bytes(8 * 5000)]}
    bad = {"t": [b"\xff" * 5000], "a": [bytes(8 * 5000 + 4)]}
    found = held_against(put_records([example_bytes(good), example_bytes(bad)]), schema)
    assert [(one.code, one.record, one.feature) for one in found] == [("D404", 1, "t"), ("D406", 1, "a")]
    assert found[1].expected == "a multiple of 8 bytes"


def test_a_ratio_of_bytes_tells_the_dtype(put_records: PutFile) -> None:
    schema = rk.Schema({"x": rk.Tensor("uint8", shape=(28, 28))})
    (one,) = held_against(put_records([example_bytes({"x": [bytes(28 * 28 * 8)]})]), schema)
    assert (one.code, one.found) == ("D406", "6,272 bytes: 8 × as many")
    assert one.likely == "the values were written with a wider dtype than declared"


# Sequences.

SEQUENCE = rk.Schema(context={"id": rk.Int64()}, steps={"x": rk.Float32(range=(0, 1))})


@pytest.mark.parametrize(
    ("payload", "code", "message"),
    [
        (sequence_bytes({"id": [1]}, {}), "D401", "`x` is required but missing"),
        (sequence_bytes({}, {"x": [[0.5]]}), "D401", "`id` is required but missing"),
        (steps_of([[0.5], [0.25, 0.5]]), "D402", "step 1 of `x` has the wrong number of values"),
        (steps_of([[0.5], [1.5], [2.5]]), "H750", "step 1 of `x` has a value out of range"),
        (steps_of([[0.5], [0.5], [NAN]]), "H751", "step 2 of `x` is NaN"),
        (steps_of([[1], [0]]), "D403", "step 0 of `x` is stored as int64_list, but declared as Float32"),
        (
            sequence_example(
                features([entry("id", of_kind("int64", [1]))]),
                features([entry("x", feature_list([of_kind("float", [0.5]), feature()]))]),
            ),
            "D402",
            "step 1 of `x` has the wrong number of values",
        ),
    ],
)
def test_contexts_and_steps_are_held_against_their_schema(
    put_records: PutFile, payload: bytes, code: str, message: str
) -> None:
    good = steps_of([[0.5], [1.0]])
    (one,) = held_against(put_records([good, payload, good]), SEQUENCE)
    assert (one.code, one.severity, one.record) == (code, "error", 1)
    assert one.message.startswith(message)


def test_a_list_of_steps_that_the_schema_lacks_is_a_warning_with_its_near_miss(put_records: PutFile) -> None:
    schema = rk.Schema(context={"id": rk.Int64()}, steps={"frames": rk.Float32(optional=True)})
    payloads = [sequence_bytes({"id": [1]}, {"frame": [[0.5]]})]
    (one,) = held_against(put_records(payloads), schema)
    assert (one.code, one.feature) == ("H754", "frame")
    assert one.message == "`frame` is not in the schema: did you mean `frames`?"


def test_examples_where_sequences_are_declared_lack_their_steps(put_records: PutFile) -> None:
    (one,) = held_against(put_records([example_bytes({"id": [1]})]), SEQUENCE)
    assert (one.code, one.feature) == ("D401", "x")


# The columns themselves.


def test_what_stands_in_the_place_of_a_hole_means_nothing() -> None:
    values = np.array([0.5, np.nan, 7.0], np.float32)
    valid = np.array([True, False, False])
    batch = KeyedBatch(
        path="x",
        records=np.arange(3),
        offsets=np.arange(3) * 40,
        payload_bytes=np.full(3, 24),
        context={"x": KeyColumn("float", values, None, valid)},
        steps={},
        sequence=False,
    )
    (rule,) = build_schema_rules(rk.Schema({"x": rk.Float32(range=(0, 1), optional=True)}))
    assert [*rule.update(batch), *rule.end_file("x"), *rule.end()] == []


def test_records_keep_their_numbers_when_batches_are_taken_apart(put_records: PutFile) -> None:
    # Records of another kind come in batches of their own.
    payloads = [example_bytes({"x": [float(i)] if i % 3 == 1 else [i]}) for i in range(9)]
    found = held_against(put_records(payloads), rk.Schema({"x": rk.Int64(range=(0, 5))}))
    assert sorted((one.record or 0, one.code) for one in found) == [
        (1, "D403"),
        (4, "D403"),
        (6, "H750"),
        (7, "D403"),
        (8, "H750"),
    ]


def test_what_rekord_writes_has_no_finding(tmp_path: Path) -> None:
    schema = rk.Schema(
        {
            "label": rk.Label(["cat", "dog"]),
            "tokens": rk.Int64(shape=(None,)),
            "vec": rk.Float32(shape=(4,)),
            "cube": rk.Tensor("uint16", shape=(2, 2)),
            "tfidf": rk.Sparse("float32", size=30),
            "flag": rk.Int64(dtype="bool"),
            "score": rk.Float32(range=(0.0, 1.0), default=0.0),
            "caption": rk.Text(optional=True),
            "blob": rk.Bytes(),
            "boxes": rk.Boxes(),
        }
    )
    with rk.Writer(tmp_path / "x.tfrecord", schema) as writer:
        for i in range(20):
            writer.write(
                {
                    "label": i % 2,
                    "tokens": list(range(i)),
                    "vec": np.ones(4),
                    "cube": np.ones((2, 2), np.uint16),
                    "tfidf": ([1, 2], [0.5, 0.25]),
                    "flag": bool(i % 2),
                    "caption": "é" if i % 3 else None,
                    "blob": b"\xff",
                    "boxes": np.array([[0.0, 0.0, 1.0, 0.5]] * (i % 3)).reshape(-1, 4),
                }
            )
    assert held_against(tmp_path / "x.tfrecord", schema) == []
