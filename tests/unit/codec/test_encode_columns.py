"""Columns to records: the same bytes as row by row, whatever the columns are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rekord.codec.columns import Optional, Ragged, Strings
from rekord.codec.encode import encode
from rekord.codec.encode_columns import encode_batches, encode_columns
from rekord.errors import EncodeError
from rekord.schema import Boxes, Bytes, Float32, Image, Int64, Label, Schema, Sparse, Tensor, Text
from rekord.testing import frames

JPEG = bytes.fromhex("ffd8ffc0000b080001000101011100ffda0008010100003f0000ffd9")


def by_rows(columns: dict[str, Any], schema: Schema, rows: int) -> bytes:
    values = [{name: column[i] for name, column in columns.items()} for i in range(rows)]
    return frames([encode(row, schema) for row in values])


@pytest.mark.parametrize(
    ("feature", "column"),
    [
        (Bytes(), np.array([b"abcd", b"efgh"])),
        (Bytes(), np.array([b"abc", b"", b"a\0b", b"wxyz"])),
        (Bytes(), np.array([b"ab", b"c", b"def", b"g"])[::2]),
        (Bytes(), np.array([b"", b""])),
        (Text(), np.array([b"abc", b"\xc3\xa9"])),
        (Int64(), np.array([1, -2, 3])),
        (Int64(), np.array([1, 2, 3], np.uint8)),
        (Int64(), np.array([1, 2, 3], ">i4")),
        (Int64(), np.arange(9)[::3]),
        (Int64(), [1, 2, 3]),
        (Int64(), [True, False]),
        (Int64(), [1, True, np.int8(3)]),
        (Int64(dtype="uint64"), np.array([1, 2**63], np.uint64)),
        (Int64(dtype="uint64"), [2**63, 1]),
        (Int64(cast=True), np.array([1.0, 2.0])),
        (Int64((2, 2)), np.arange(12).reshape(3, 2, 2)),
        (Int64((None,)), np.arange(6).reshape(3, 2)),
        (Int64((None,)), [[1], [], [2, 3]]),
        (Int64((None,)), [np.array([1]), (2, 3)]),
        (Int64((None,), optional=True), [[1], None, []]),
        (Int64((0,)), np.zeros((3, 0), np.int64)),
        (Int64(optional=True), [1, None]),
        (Int64(optional=True), [None, None]),
        (Int64(default=5), [None, 1]),
        (Int64((None, None), partitions=("p",)), [[[1], []], []]),
        (Float32(), np.array([0.1, 2, 3])),
        (Float32(), np.array([1, 2, 3], np.float16)),
        (Float32(dtype="float16"), np.array([0.1, 2])),
        (Float32(), [0.1, 2.5]),
        (Float32((None, 2)), np.arange(12.0).reshape(2, 3, 2)),
        (Float32((2, None)), np.arange(12.0).reshape(2, 2, 3)),
        (Label(["a", "b"]), ["a", "b", 0]),
        (Label(["a", "b"]), np.array(["a", "b"])),
        (Label(3), np.array([0, 2], np.int8)),
        (Text(), ["a", "é", ""]),
        (Text(), ["a", b"\xc3\xa9"]),
        (Text(), ("a", "b")),
        (Text(), np.array(["a", "bc"])),
        (Text(), np.array(["a", "é"], object)),
        (Text(optional=True), ["a", None, "b" * 1000]),
        (Text(optional=True), [None, None]),
        (Text((2,)), [["a", "b"], ["c", "d"]]),
        (Text((None,)), [["a", "b"], []]),
        (Bytes(), [b"a", b"", b"x" * 100_000]),
        (Bytes(), np.array([b"a", b"bc"])),
        (Bytes(default=b"d"), [b"a", None]),
        (Tensor("uint8", (2, 2)), np.arange(12, dtype=np.uint8).reshape(3, 2, 2)),
        (Tensor("float64", (None,)), np.arange(6, dtype=">f8").reshape(3, 2)),
        (Tensor("int32", (None,)), [[1], [2, 3]]),
        (Tensor("int32", ()), np.arange(3, dtype=np.int16)),
        (Sparse("float32", 5), [{1: 0.5}, ([0], [1]), np.zeros(5)]),
        (Boxes(key="b"), [[[0, 0, 1, 1]], []]),
        (Boxes(key="b"), np.zeros((3, 2, 4))),
        (Image(), [JPEG, JPEG]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_column_gives_the_records_of_its_rows(feature: Any, column: Any) -> None:
    schema = Schema({"x": feature, "y": Int64(optional=True)})
    assert encode_columns({"x": column}, schema) == by_rows({"x": column}, schema, len(column))


@pytest.mark.parametrize(
    ("feature", "array"),
    [
        (Int64(), pa.array([1, -2, 3])),
        (Int64(), pa.array([1, 2, 3], pa.uint8())),
        (Int64(), pa.array([True, False])),
        (Int64(), pa.array([1, 2, 3, 4])[1:3]),
        (Int64(optional=True), pa.array([1, None, 3])),
        (Int64(optional=True), pa.array([None, None], pa.int64())),
        (Int64(optional=True, range=(1, 5)), pa.array([None, 2, None, 3])[1:]),
        (Int64(default=7), pa.array([None, 2])),
        (Float32(), pa.array([0.1, 0.5])),
        (Float32(), pa.array([0.5], pa.float16())),
        (Float32(optional=True), pa.array([0.5, None], pa.float32())),
        (Text(), pa.array(["a", "é", ""])),
        (Text(), pa.array(["a", "bc", "def", "g"])[1:3]),
        (Text(), pa.array(["a", "b"], pa.large_string())),
        (Text(), pa.array([b"a", b"b"])),
        (Text(), pa.array(["a", "b", "a"]).dictionary_encode()),
        (Text(), pa.array([], pa.string())),
        (Text(optional=True), pa.array(["a", None, "b"])),
        (Text(optional=True), pa.array([None, None], pa.string())),
        (Bytes(), pa.array([b"a", b"\xff"], pa.large_binary())),
        (Bytes(), pa.array([b"ab", b"cd"], pa.binary(2))),
        (Int64((None,)), pa.array([[1, 2], [], [3]])),
        (Int64((None,)), pa.array([[1, 2], [], [3], [4, 5]])[1:]),
        (Int64((None,)), pa.array([[1, 2], []], pa.large_list(pa.int16()))),
        (Int64((None,), optional=True), pa.array([[1], None, []])),
        (Float32((2,)), pa.array([[1, 2], [3, 4]], pa.list_(pa.float32(), 2))),
        (Float32((2,)), pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2))[1:]),
        (Float32((2,)), pa.array([[1.0, 2.0], [3.0, 4.0]])),
        (Float32((None, 2)), pa.array([[[1, 2]], []], pa.list_(pa.list_(pa.float32(), 2)))),
        (Float32((None, 2)), pa.array([[[1.0, 2.0]], []])),
        (Float32((2, 2)), pa.array([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.float32(), 2), 2))),
        (Text((None,)), pa.array([["a", "b"], [], ["c"]])),
        (Text((None,)), pa.array([["a", "b"], [], ["c"]])[1:]),
        (Text((None,), optional=True), pa.array([["a"], None])),
        (Int64((None, None), partitions=("p",)), pa.array([[[1], []], []])),
        (Label(["a", "b"]), pa.array(["b", "a"])),
        (Boxes(key="b"), pa.array([[[0.0, 0, 1, 1]], []])),
        (Tensor("uint8", (2,)), pa.array([[1, 2]], pa.list_(pa.uint8(), 2))),
        (Image(), pa.array([JPEG])),
    ],
    ids=lambda value: str(value if isinstance(value, (Int64, Text)) else getattr(value, "type", value))[:50],
)
def test_an_arrow_column_gives_the_records_of_its_rows(feature: Any, array: pa.Array) -> None:
    schema = Schema({"x": feature})
    expected = by_rows({"x": array.to_pylist()}, schema, len(array))
    batch = pa.RecordBatch.from_arrays([array], ["x"])
    assert encode_columns(batch, schema) == expected
    assert encode_columns({"x": array}, schema) == expected
    assert encode_columns({"x": pa.chunked_array([array, array])}, schema) == expected * 2
    table = pa.Table.from_batches([batch, batch, batch[:0]])
    assert encode_columns(table, schema) == expected * 2


def test_rekords_own_columns_are_taken_as_they_are() -> None:
    schema = Schema({"a": Float32((None, 2), optional=True), "b": Text(optional=True), "c": Int64(optional=True)})
    valid = np.array([True, False, True])
    columns = {
        "a": Ragged(np.arange(6.0).reshape(3, 2), np.array([0, 1, 1, 3]), valid=valid),
        "b": Strings(Strings.of(["a", "", "é"])._column, text=True, valid=valid),
        "c": Optional(np.array([1, -9, 3]), valid),
    }
    rows = [
        {"a": [[0, 1]], "b": "a", "c": 1},
        {},
        {"a": [[2, 3], [4, 5]], "b": "é", "c": 3},
    ]
    assert encode_columns(columns, schema) == frames([encode(row, schema) for row in rows])
    ranged = Schema({"c": Int64(optional=True, range=(1, 5))})
    assert encode_columns({"c": columns["c"]}, ranged) == frames([encode({"c": n}, ranged) for n in (1, None, 3)])


def test_no_rows_give_no_records() -> None:
    schema = Schema({"x": Int64(), "t": Text((None,))})
    assert encode_columns({"x": [], "t": []}, schema) == b""
    assert encode_columns({"x": np.zeros(0, np.int64), "t": []}, schema) == b""
    assert encode_columns(pa.table({"x": pa.array([], pa.int64()), "t": []}), schema) == b""
    assert encode_columns({}, Schema({})) == b""


def test_pieces_end_with_whole_records() -> None:
    schema = Schema({"x": Int64(), "t": Text()})
    columns = {"x": np.arange(1000), "t": [str(i) * 10 for i in range(1000)]}
    pieces = list(encode_batches(columns, schema, enough_bytes=1000))
    assert len(pieces) > 10
    assert sum(rows for _, rows in pieces) == 1000
    assert all(len(frames) >= 1000 for frames, _ in pieces[:-1])
    assert b"".join(bytes(frames) for frames, _ in pieces) == encode_columns(columns, schema)


@pytest.mark.parametrize(
    ("feature", "column", "code", "row"),
    [
        (Int64(), np.array([1.0, 2.0]), "E304", 0),
        (Int64(cast=True), np.array([1.0, 2.5]), "E304", 1),
        (Int64(range=(0, 5)), np.array([1, 2, 6]), "E311", 2),
        (Int64((2,), range=(0, 5)), np.array([[1, 2], [3, 9]]), "E311", 1),
        (Int64(), [1, None], "E301", 1),
        (Int64(), pa.array([1, 2, None]), "E301", 2),
        (Int64(), Optional(np.array([1, 2]), np.array([True, False])), "E301", 1),
        (Int64((None,), range=(0, 5)), Ragged(np.array([1, 2, 9]), np.array([0, 1, 3])), "E311", 1),
        (Int64((None,), range=(0, 5)), Ragged(np.array([1, 2, 9]), np.array([1, 2, 3])), "E311", 1),
        (Int64((None,)), [[1], ["a"]], "E303", 1),
        (Int64((2,)), pa.array([[1, 2], [3]]), "E307", 1),
        (Float32(), np.array([0.5, 1e39]), "E313", 1),
        (Float32(range=(0, 1)), np.array([0.5, np.nan]), "E312", 1),
        (Label(["a", "b"]), ["a", "c"], "E316", 1),
        (Label(2), np.array([0, 2]), "E317", 1),
        (Text(), ["a", 5], "E305", 1),
        (Text(), ["a", "\ud800"], "E318", 1),
        (Text(), ["a", b"\xff"], "E318", 1),
        (Text(), [b"a", b"\xc3", b"\xa9"], "E318", 1),
        (Text(), pa.array([b"\xc3", b"\xa9"]), "E318", 0),
        (Text(), ["a", None], "E301", 1),
        (Text((None,)), pa.array([[b"a"], [b"\xff"]]), "E318", 1),
        (Sparse("float32", 5), [{1: 1}, {9: 1}], "E320", 1),
        (Image(), [JPEG, b"no"], "E321", 1),
        (Tensor("float32", (2,)), np.zeros((3, 2)), "E324", None),
        (Int64((2,)), np.zeros((3, 3), np.int64), "E307", None),
        (Int64(), np.zeros((3, 3), np.int64), "E306", None),
        (Int64(), 5, "E326", None),
        (Int64(), "abc", "E326", None),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_row_that_does_not_fit_is_named(feature: Any, column: Any, code: str, row: int | None) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_columns({"x": column}, Schema({"x": feature}))
    assert (caught.value.code, caught.value.location.row, caught.value.location.feature) == (code, row, "x")


def test_the_first_bad_row_of_a_table_is_counted_over_all_its_batches() -> None:
    good, bad = pa.record_batch({"x": ["a", "b"]}), pa.record_batch({"x": ["c", None]})
    with pytest.raises(EncodeError) as caught:
        encode_columns(pa.Table.from_batches([good, bad]), Schema({"x": Text()}))
    assert (caught.value.code, caught.value.location.row) == ("E301", 3)


@pytest.mark.parametrize(
    ("columns", "code", "feature"),
    [
        ({"x": [1], "z": [1]}, "E309", "z"),
        ({"y": ["a"]}, "E301", "x"),
        ({"x": [1], "y": ["a", "b"]}, "E326", "y"),
        ([1, 2], "E325", None),
        ({"x": [1], "y": None}, "E301", "y"),
    ],
)
def test_columns_that_do_not_fit_the_schema_are_refused(columns: Any, code: str, feature: str | None) -> None:
    with pytest.raises(EncodeError) as caught:
        encode_columns(columns, Schema({"x": Int64(), "y": Text()}))
    assert (caught.value.code, caught.value.location.feature) == (code, feature)


STEPS = Schema(context={"n": Int64()}, steps={"x": Float32((2,)), "t": Text(optional=True), "r": Int64((None,))})


def test_columns_of_steps_give_the_records_of_their_rows() -> None:
    rows = [
        {"n": 1, "x": [[1, 2], [3, 4]], "t": ["a", "b"], "r": [[1, 2, 3], []]},
        {"n": 2, "x": [], "t": None, "r": []},
        {"n": 3, "x": [[5, 6]], "t": ["c"], "r": [[4]]},
    ]
    expected = frames([encode(row, STEPS) for row in rows])
    lists = {name: [row[name] for row in rows] for name in STEPS}
    assert encode_columns(lists, STEPS) == expected
    offsets = np.array([0, 2, 2, 3])
    own = {
        **lists,
        "x": Ragged(np.arange(1.0, 7.0).reshape(3, 2), offsets),
        "t": Ragged(Strings.of(["a", "b", "c"]), offsets, valid=np.array([True, False, True])),
    }
    assert encode_columns(own, STEPS) == expected


def test_a_step_that_does_not_fit_names_its_row() -> None:
    columns: dict[str, Any] = {"n": [1, 2], "x": [[], [[1, 2], [1]]], "r": [[], []]}
    with pytest.raises(EncodeError) as caught:
        encode_columns(columns, STEPS)
    assert (caught.value.code, caught.value.location.row) == ("E307", 1)
    assert caught.value.what.startswith("step 1 of `x`")
    ragged = Ragged(np.array([[1, 2], [1, 2], [1e39, 0]]), np.array([0, 1, 3]))
    with pytest.raises(EncodeError) as caught:
        encode_columns({**columns, "x": ragged}, STEPS)
    assert (caught.value.code, caught.value.location.row) == ("E313", 1)
    assert caught.value.what.startswith("step 1 of `x`")
