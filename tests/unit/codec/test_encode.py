"""Rows to bytes: what is stored of each kind of value, and how a row that does not fit is refused."""

from __future__ import annotations

import datetime
import decimal
import io
import pathlib
import pickle
import threading
from collections import ChainMap, OrderedDict, UserDict, deque
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from rekord.codec.columns import Optional, Ragged, Strings
from rekord.codec.decode import decode
from rekord.codec.encode import encode
from rekord.codec.encode_columns import encode_columns
from rekord.errors import EncodeError, UsageError
from rekord.schema import (
    Boxes,
    Bytes,
    Feature,
    Float32,
    Image,
    Int64,
    Label,
    Mask,
    Schema,
    Sparse,
    Tensor,
    Text,
)
from rekord.testing import example_bytes, frames, sequence_bytes

ml_dtypes = pytest.importorskip("ml_dtypes")

# One pixel, whole from the first marker to the last, and without the tables to decode it.
JPEG = bytes.fromhex("ffd8ffc0000b080001000101011100ffda0008010100003f0000ffd9")
NAN_BITS = np.array([0x7FC00001, 0xFF800001], np.uint32).view(np.float32)


def stored(feature: Feature, value: Any) -> Any:
    """What one column holds after encoding: its values, by record key where there are several."""
    found = decode(encode({"x": value}, Schema({"x": feature})))
    plain = {key: list_ if isinstance(list_, list) else list_.tolist() for key, list_ in found.items()}
    return plain["x"] if list(plain) == ["x"] else plain


def test_the_known_example_is_written_as_the_known_bytes() -> None:
    schema = Schema({"b": Bytes((None,)), "a": Int64((None,))})
    assert encode({"a": [5, -1], "b": [b"ab", b""]}, schema).hex() == (
        "0a250a140a0161120f1a0d0a0b05ffffffffffffffffff010a0d0a016212080a060a0261620a00"
    )


def test_keys_are_sorted_by_their_bytes_whatever_the_order_of_schema_and_row() -> None:
    names = ["b", "a", "é", "\U0001f600", "�", "B", "image/encoded"]
    row = {name: i for i, name in enumerate(names)}
    payload = encode(row, Schema({name: Int64() for name in names}))
    assert payload == example_bytes({name: [i] for name, i in row.items()})
    backwards = Schema({name: Int64() for name in reversed(names)})
    assert encode(dict(reversed(row.items())), backwards) == payload


@pytest.mark.parametrize(
    ("feature", "value", "expected"),
    [
        (Int64(), 5, [5]),
        (Int64(), -1, [-1]),
        (Int64(), True, [1]),
        (Int64(), np.bool_(True), [1]),
        (Int64(), np.uint8(200), [200]),
        (Int64(), np.int64(-(2**63)), [-(2**63)]),
        (Int64(), 2**63 - 1, [2**63 - 1]),
        (Int64(), np.array(7), [7]),
        (Int64(dtype="uint64"), 2**64 - 1, [-1]),
        (Int64(dtype="uint64"), np.uint64(2**63), [-(2**63)]),
        (Int64((None,), dtype="uint64"), np.array([1, 2**63], np.uint64), [1, -(2**63)]),
        (Int64((None,), dtype="uint64"), [2**63, 0], [-(2**63), 0]),
        (Int64(dtype="uint64", range=(2**63, None)), 2**63, [-(2**63)]),
        (Int64(dtype="bool"), True, [1]),
        (Int64(cast=True), 3.0, [3]),
        (Int64((None,), cast=True), [2**53 + 1, 2.0], [2**53 + 1, 2]),
        (Int64((None,), cast=True), np.array([1e18, -2.0]), [10**18, -2]),
        (Int64((None,), cast=True), np.array([4.0], np.float16), [4]),
        (Int64(dtype="uint64", cast=True), 2.0**63, [-(2**63)]),
        (Int64((None,)), [], []),
        (Int64((None,)), (1, 2), [1, 2]),
        (Int64((None,)), range(3), [0, 1, 2]),
        (Int64((None,)), deque([1, 2]), [1, 2]),
        (Int64((None,)), np.array([1, 2], np.int16), [1, 2]),
        (Int64((None,)), np.array([1, 2], ">i8"), [1, 2]),
        (Int64((None,)), np.arange(10)[::3], [0, 3, 6, 9]),
        (Int64((None,)), np.array([]), []),
        (Int64((None,)), np.array([1, True, 3], object), [1, 1, 3]),
        (Int64((None,)), [np.int8(1), True, 2], [1, 1, 2]),
        (Int64((None,)), memoryview(bytes([1, 2])), [1, 2]),
        (Int64((2, 2)), [[1, 2], [3, 4]], [1, 2, 3, 4]),
        (Int64((2, 2)), np.array([[1, 2], [3, 4]], np.int64).T, [1, 3, 2, 4]),
        (Int64((None, 2)), [], []),
        (Int64((None, 2)), [np.array([1, 2]), [3, 4]], [1, 2, 3, 4]),
        (Int64((2, None)), [[], []], []),
        (Int64((0,)), [], []),
        (Float32(), 0.1, [float(np.float32(0.1))]),
        (Float32(), 3, [3.0]),
        (Float32(), True, [1.0]),
        (Float32(), 2**24, [2.0**24]),
        (Float32(), 2**40, [2.0**40]),
        (Float32(), np.float64(0.5), [0.5]),
        (Float32(), np.float16(0.5), [0.5]),
        (Float32(), np.longdouble(0.5), [0.5]),
        (Float32(), ml_dtypes.bfloat16(0.5), [0.5]),
        (Float32(), float("inf"), [float("inf")]),
        (Float32((None,)), [1, 2.5], [1.0, 2.5]),
        (Float32((None,)), [2**40, 0.5], [2.0**40, 0.5]),
        (Float32((None,)), np.array([1, 2], np.int32), [1.0, 2.0]),
        (Float32((None,)), np.array([0.5, 2], np.float64), [0.5, 2.0]),
        (Float32((None,)), np.array([1.5], ml_dtypes.bfloat16), [1.5]),
        (Float32((None,)), [], []),
        (Float32(dtype="float16"), 0.1, [float(np.float16(0.1))]),
        (Float32(dtype="bfloat16"), 1.01, [float(ml_dtypes.bfloat16(1.01))]),
        (Float32(range=(0.0, 0.1)), 0.1, [float(np.float32(0.1))]),
        (Float32(range=(None, 1)), -1e30, [float(np.float32(-1e30))]),
        (Float32(rounding="exact"), 0.5, [0.5]),
        (Bytes(), b"\xff\0", [b"\xff\0"]),
        (Bytes(), bytearray(b"ab"), [b"ab"]),
        (Bytes(), memoryview(b"ab"), [b"ab"]),
        (Bytes(), np.bytes_(b"ab"), [b"ab"]),
        (Bytes((None,)), [], []),
        (Bytes((None,)), [b"", b"a"], [b"", b"a"]),
        (Bytes((None,)), np.array([b"a", b"bc"]), [b"a", b"bc"]),
        (Text(), "", [b""]),
        (Text(), "Größe 画像 \U0001f600", ["Größe 画像 \U0001f600".encode()]),
        (Text(), "ascii", [b"ascii"]),
        (Text(), "é".encode(), ["é".encode()]),
        (Text(), np.str_("a"), [b"a"]),
        (Text((2,)), ("a", b"b"), [b"a", b"b"]),
        (Text((None,)), np.array(["a", "é"]), [b"a", "é".encode()]),
        (Text((None,)), np.array(["a", b"b"], object), [b"a", b"b"]),
        (Text((1, 2)), [["a", "b"]], [b"a", b"b"]),
        (Label(["cat", "dog"]), "dog", [1]),
        (Label(["cat", "dog"]), 0, [0]),
        (Label(["cat", "dog"]), np.str_("dog"), [1]),
        (Label(["cat", "dog"]), np.uint8(1), [1]),
        (Label(3), 2, [2]),
        (Label(["a", "b"], shape=(None,)), ["b", 0, "a"], [1, 0, 0]),
        (Label(["a", "b"], shape=(None,)), np.array(["b"]), [1]),
        (Label(3, shape=(None,)), np.array([0, 2], np.uint8), [0, 2]),
    ],
)
def test_a_value_is_stored_as_declared(feature: Feature, value: Any, expected: list[Any]) -> None:
    assert stored(feature, value) == expected


@pytest.mark.parametrize(
    ("feature", "value"),
    [
        (Tensor("uint16", (2, 2)), np.array([[1, 2], [3, 65535]], np.uint16)),
        (Tensor("uint16", (2, 2)), np.array([[1, 2], [3, 4]], ">u2")),
        (Tensor("float64", (None,)), np.array([0.1, np.nan])),
        (Tensor("float64", (2,)), np.array([1, 2], np.int32)),
        (Tensor("float64", (2,)), np.array([1, 2**53], np.int64)),
        (Tensor("bool", (2,)), [True, False]),
        (Tensor("uint8", ()), 7),
        (Tensor("complex64", (1,)), [1j]),
        (Tensor("float16", (3,)), [0.5, 1, 2]),
        (Tensor("int8", (None, 2)), []),
        (Tensor("bfloat16", (2,)), [0.5, -1.0]),
        (Tensor("int64", (2,)), np.arange(4)[::2]),
    ],
)
def test_a_tensor_is_stored_as_its_little_endian_bytes(feature: Tensor, value: Any) -> None:
    dtype = feature.dtype if isinstance(feature.dtype, np.dtype) else np.dtype(ml_dtypes.bfloat16)
    expected = np.asarray(value).astype(dtype.newbyteorder("<")).tobytes()
    assert stored(feature, value) == [expected]


@pytest.mark.parametrize(
    ("value", "indices", "values"),
    [
        (([1, 4], [0.5, 2]), [1, 4], [0.5, 2.0]),
        ((np.array([4, 1]), np.array([2.0, 0.5])), [1, 4], [0.5, 2.0]),
        ({4: 2, 1: 0.5}, [1, 4], [0.5, 2.0]),
        (np.array([0, 0.5, 0, 0, 2.0]), [1, 4], [0.5, 2.0]),
        (np.zeros(5, np.int8), [], []),
        (([], []), [], []),
        ({}, [], []),
        (([2], [0.0]), [2], [0.0]),
    ],
)
def test_a_sparse_vector_takes_pairs_dicts_and_dense_arrays(value: Any, indices: Any, values: Any) -> None:
    assert stored(Sparse("float32", 5), value) == {"x/indices": indices, "x/values": values}


def test_boxes_are_stored_under_four_keys() -> None:
    sides = ("xmin", "ymin", "xmax", "ymax")
    for value in ([[0, 1, 2, 3], [4, 5, 6, 7]], np.arange(8).reshape(2, 4)):
        found = stored(Boxes(key="b"), value)
        assert found == {f"b/{side}": [float(i), float(i + 4)] for i, side in enumerate(sides)}
    for empty in ([], np.zeros((0, 4))):
        assert stored(Boxes(key="b"), empty) == {f"b/{side}": [] for side in sides}


def test_ragged_levels_are_stored_as_values_and_row_lengths() -> None:
    two = Int64((None, None), partitions=("x/lengths",))
    assert stored(two, [[1, 2], [], [3]]) == {"x": [1, 2, 3], "x/lengths": [2, 0, 1]}
    assert stored(two, [np.array([1, 2]), np.array([3])]) == {"x": [1, 2, 3], "x/lengths": [2, 1]}
    assert stored(two, np.array([[1, 2], [3, 4]])) == {"x": [1, 2, 3, 4], "x/lengths": [2, 2]}
    assert stored(two, []) == {"x": [], "x/lengths": []}
    three = Text((None, None, None), partitions=("o", "i"))
    assert stored(three, [[["a"], []], []]) == {"x": [b"a"], "o": [2, 0], "i": [1, 0]}
    pairs = Float32((None, None, 2), partitions=("p",))
    assert stored(pairs, [[[1, 2]], [[3, 4], [5, 6]]]) == {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "p": [1, 2]}


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (2, 3, 0, 5), (2, 0, 3, 5), (0, 2, 3, 5)], ids=str)
def test_an_array_is_stored_as_its_nested_lists_are(sizes: tuple[int, ...]) -> None:
    feature = Float32((None, None, None, 5), partitions=("o", "i"))
    array = np.arange(np.prod(sizes)).reshape(sizes).astype(np.float32)
    # What is transposed lies otherwise in memory.
    backwards = np.ascontiguousarray(array.transpose()).transpose()
    for value in (array, backwards, array.tolist()):
        assert stored(feature, value) == {
            "x": array.ravel().tolist(),
            "o": [sizes[1]] * sizes[0],
            "i": [sizes[2]] * (sizes[0] * sizes[1]),
        }


def test_the_bits_of_nans_survive() -> None:
    for value in (NAN_BITS, NAN_BITS[::-1]):
        found = decode(encode({"x": value}, Schema({"x": Float32((2,))})))["x"]
        assert found.view(np.uint32).tolist() == value.view(np.uint32).tolist()
    for one in NAN_BITS:
        found = decode(encode({"x": one}, Schema({"x": Float32()})))["x"]
        assert found.view(np.uint32)[0] == one.view(np.uint32)
    columns = decode(encode_columns({"x": NAN_BITS}, Schema({"x": Float32()}))[12:-4][: 16 + 1])
    assert columns["x"].view(np.uint32)[0] == 0x7FC00001


def test_missing_values_are_left_out_filled_or_refused() -> None:
    schema = Schema(
        {
            "hole": Text(optional=True),
            "holes": Sparse("int64", 5, optional=True),
            "score": Float32(default=0.5),
            "boxes": Boxes(key="b", default=[[0, 0, 1, 1]]),
            "name": Text(default="é"),
            "big": Int64(dtype="uint64", default=2**63),
        }
    )
    filled = {"b/xmax": [1.0], "b/xmin": [0.0], "b/ymax": [1.0], "b/ymin": [0.0]}
    expected = example_bytes({**filled, "score": [0.5], "name": ["é"], "big": [2**63]})
    assert encode({}, schema) == expected
    assert encode(dict.fromkeys(schema, None), schema) == expected
    assert encode_columns({"hole": [None]}, schema) == frames([expected])


def test_an_empty_list_is_a_value_also_where_it_is_optional() -> None:
    schema = Schema({"x": Int64((None,), optional=True)})
    assert encode({"x": []}, schema).hex() == "0a090a070a017812021a00"
    assert encode({"x": None}, schema).hex() == "0a00"


class Rows(UserDict[str, Any]):
    """A mapping that is no dict."""


@pytest.mark.parametrize("form", [dict, OrderedDict, Rows, MappingProxyType, lambda row: ChainMap(row, {})])
def test_any_mapping_is_a_row(form: Any) -> None:
    schema = Schema({"a": Int64(), "b": Text(optional=True)})
    assert encode(form({"a": 1}), schema) == example_bytes({"a": [1]})


SCHEMA = Schema({"label": Int64()})


@pytest.mark.parametrize(
    ("feature", "value", "code"),
    [
        (Int64(), None, "E301"),
        (Sparse("float32", 5), None, "E301"),
        (Int64(), decimal.Decimal(1), "E302"),
        (Float32(), Fraction(1, 2), "E302"),
        (Int64(), datetime.date(2020, 1, 1), "E302"),
        (Int64(), np.datetime64("2020-01-01"), "E302"),
        (Int64((None,)), {1, 2}, "E302"),
        (Int64((None,)), {1: 2}, "E302"),
        (Int64((None,)), (i for i in range(2)), "E302"),
        (Int64(), object(), "E302"),
        (Int64(), 1j, "E302"),
        (Int64((None,)), [1, None], "E302"),
        (Int64((None,)), np.ma.masked_array([1, 2], [False, True]), "E302"),
        (Text(), datetime.datetime(2020, 1, 1), "E302"),
        (Text(), pathlib.Path("x"), "E302"),
        (Text((None,)), ["a", None], "E302"),
        (Sparse("float32", 5), 3, "E302"),
        (Image(), 5, "E302"),
        (Int64(), "7", "E303"),
        (Int64(), b"7", "E303"),
        (Float32((None,)), ["a"], "E303"),
        (Float32((None,)), np.array(["1"]), "E303"),
        (Tensor("uint8", (None,)), "ab", "E303"),
        (Tensor("uint8", (None,)), np.array(["a"]), "E303"),
        (Label(3), b"cat", "E303"),
        (Int64(), 1.5, "E304"),
        (Int64(), 1.0, "E304"),
        (Int64(), np.float32(1), "E304"),
        (Int64((None,)), np.array([1.0]), "E304"),
        (Int64((None,)), [1, 2.0], "E304"),
        (Int64(cast=True), 1.5, "E304"),
        (Int64(cast=True), float("nan"), "E304"),
        (Int64(cast=True), float("inf"), "E304"),
        (Label(3), 1.0, "E304"),
        (Text(), 5, "E305"),
        (Bytes(), 5.0, "E305"),
        (Bytes(), np.array([1, 2], np.uint8), "E305"),
        (Text((None,)), [1], "E305"),
        (Int64(), [5], "E306"),
        (Int64((None,)), 5, "E306"),
        (Int64((2, 2)), [1, 2, 3, 4], "E306"),
        (Int64((2, 2)), [[1, 2]], "E306"),
        (Boxes(), [[1, 2, 3]], "E306"),
        (Text(), ["a"], "E306"),
        (Tensor("uint8", (2, 2)), np.zeros((2, 3), np.uint8), "E306"),
        (Int64((None, None), partitions=("p",)), [1, 2], "E306"),
        (Float32((3,)), [1.0, 2.0], "E307"),
        (Float32((3,)), np.zeros(4, np.float32), "E307"),
        (Text((2,)), ["a"], "E307"),
        (Int64((0,)), [1], "E307"),
        (Float32((None, 2)), [[1, 2], [3]], "E308"),
        (Float32((None, 2)), [np.zeros(2), np.zeros(3)], "E308"),
        (Float32((None,)), [1, [2]], "E308"),
        (Text((None, 2)), [["a", "b"], ["c"]], "E308"),
        (Int64(), 2**63, "E310"),
        (Int64(), -(2**63) - 1, "E310"),
        (Int64(), np.uint64(2**63), "E310"),
        (Int64((None,)), np.array([2**63], np.uint64), "E310"),
        (Int64((None,)), [2**63, -1], "E310"),
        (Int64((None,)), [2**70], "E310"),
        (Int64(cast=True), 2.0**63, "E310"),
        (Int64(dtype="uint64"), -1, "E310"),
        (Int64(dtype="uint64"), 2**64, "E310"),
        (Int64(dtype="int8"), 128, "E310"),
        (Int64((None,), dtype="int8"), np.array([1, -129]), "E310"),
        (Int64(dtype="bool"), 2, "E310"),
        (Int64(range=(0, 10)), 11, "E311"),
        (Int64((None,), range=(0, 10)), np.array([5, -1]), "E311"),
        (Int64(dtype="uint64", range=(2**63, None)), 5, "E311"),
        (Int64((None,), dtype="uint64", range=(0, 9)), np.array([10], np.uint64), "E311"),
        (Float32(range=(0.0, 1.0)), 1.5, "E311"),
        (Float32(range=(0.0, 0.1)), np.nextafter(np.float32(0.1), np.float32(1)), "E311"),
        (Float32((None,), range=(0, 1)), np.array([0.5, -1.0]), "E311"),
        (Float32((None,), range=(0, 1)), np.array([0.5, 2], np.float32), "E311"),
        (Float32(range=(0, None)), -0.5, "E311"),
        (Float32(range=(0, 1)), float("inf"), "E311"),
        (Float32(range=(0, 1)), float("nan"), "E312"),
        (Float32((None,), range=(0, None)), np.array([np.nan], np.float32), "E312"),
        (Float32(), 1e39, "E313"),
        (Float32(), 10**400, "E313"),
        (Float32((None,)), np.array([1e39]), "E313"),
        (Float32((None,)), [0.5, -1e39], "E313"),
        (Float32(dtype="float16"), 65520.0, "E313"),
        (Float32(dtype="bfloat16"), np.finfo(np.float32).max, "E313"),
        (Float32(), 2**24 + 1, "E314"),
        (Float32(), -(2**24) - 1, "E314"),
        (Float32((None,)), np.array([2**24 + 1]), "E314"),
        (Float32((None,)), np.array([2**64 - 1], np.uint64), "E314"),
        (Float32((None,)), [0.5, 2**53 + 1], "E314"),
        (Float32(rounding="exact"), 0.1, "E315"),
        (Float32((None,), rounding="exact"), np.array([0.5, 0.1]), "E315"),
        (Label(["cat", "dog"]), "dgo", "E316"),
        (Label(3), "cat", "E316"),
        (Label(["a"], shape=(None,)), ["a", "b"], "E316"),
        (Label(["cat", "dog"]), 2, "E317"),
        (Label(3), -1, "E317"),
        (Label(3, shape=(None,)), np.array([0, 3]), "E317"),
        (Text(), b"\xff", "E318"),
        (Text(), "\ud800", "E318"),
        (Text((None,)), ["a", b"\xc3"], "E318"),
        (Sparse("float32", 5), ([1, 1], [1, 2]), "E320"),
        (Sparse("float32", 5), ([5], [1]), "E320"),
        (Sparse("float32", 5), ([-1], [1]), "E320"),
        (Sparse("float32", 5), ([1.0], [1]), "E320"),
        (Sparse("float32", 5), ([1], [1, 2]), "E320"),
        (Sparse("float32", 5), {"a": 1}, "E320"),
        (Sparse("float32", 5), np.zeros(4), "E307"),
        (Sparse("float32", 5), ([1], [1e39]), "E313"),
        (Sparse("int64", 5), ([1], [0.5]), "E304"),
        (Image(format="png"), JPEG, "E321"),
        (Image(), b"", "E330"),
        (Image(), JPEG[:-2], "E331"),
        (Image(), JPEG[:2] + JPEG, "E332"),
        (Image(), b"hello", "E321"),
        (Image(), np.zeros((2, 2, 3)), "E321"),
        (Image(), np.zeros((2, 2, 5), np.uint8), "E321"),
        (Image(), np.zeros((0, 2), np.uint8), "E321"),
        (Image(channels=3), np.zeros((2, 2), np.uint8), "E321"),
        (Image(format="jpeg", quality=90), np.zeros((2, 2, 4), np.uint8), "E321"),
        (Image(), "cat.png", "E322"),
        (Tensor("float32", (2,)), np.zeros(2), "E324"),
        (Tensor("uint8", (2,)), np.zeros(2, np.int64), "E324"),
        (Tensor("float64", (1,)), np.array([2**53 + 1]), "E324"),
        (Tensor("uint8", (2,)), [1, 300], "E324"),
        (Image(format="jpeg"), np.zeros((2, 2, 3), np.uint8), "E328"),
        (Image(), pathlib.Path("/no/such/file.png"), "E329"),
        (Image(), pathlib.Path("/"), "E329"),
    ],
)
def test_a_value_that_does_not_fit_names_its_feature(feature: Feature, value: Any, code: str) -> None:
    with pytest.raises(EncodeError) as caught:
        encode({"x": value}, Schema({"x": feature}))
    failure = caught.value
    assert (failure.code, failure.location.feature) == (code, "x")
    assert failure.expected
    assert failure.found
    assert len(failure.found) <= 60
    assert failure.do
    again = pickle.loads(pickle.dumps(failure))
    assert again.message == failure.message


@pytest.mark.parametrize(
    ("row", "code", "feature"),
    [
        ({"label": 1.5}, "E304", "label"),
        ({"label": None}, "E301", "label"),
        ({}, "E301", "label"),
        ({"lable": 1}, "E309", "lable"),
        ({"label": 1, "other": 2}, "E309", "other"),
        ({"label": 1, 5: 2}, "E309", None),
        ([("label", 1)], "E325", None),
        (None, "E325", None),
        ("label", "E325", None),
    ],
)
def test_a_row_that_does_not_fit_names_its_feature(row: Any, code: str, feature: str | None) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(row, SCHEMA)
    assert (caught.value.code, caught.value.location.feature) == (code, feature)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(EncodeError) as caught:
        encode({"lable": 1}, SCHEMA)
    assert caught.value.do == "did you mean `label`?"


def test_large_values_are_not_shown() -> None:
    for feature, value in ((Int64(), "x" * 10**6), (Int64(), bytes(10**6)), (Text(), list(range(10**5)))):
        with pytest.raises(EncodeError) as caught:
            encode({"x": value}, Schema({"x": feature}))
        assert len(str(caught.value)) < 400


def test_what_is_no_schema_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        encode({}, {"label": Int64()})  # type: ignore[arg-type]
    assert caught.value.code == "U605"


class Meddler:
    """Looks like an array, and does what it likes when it is asked for its values."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.act()
        return np.array([1])


def test_values_that_change_the_row_while_it_is_read_do_no_harm() -> None:
    schema = Schema({"a": Text((None,)), "b": Int64((None,)), "c": Text()})
    texts = ["x" * 100 + str(i) for i in range(100)]
    row: dict[str, Any] = {"a": list(texts), "c": "y" * 1000}

    def act() -> None:
        row["a"].clear()
        row.clear()
        encode({"a": ["other"], "b": [2], "c": "z"}, schema)

    row["b"] = Meddler(act)
    assert encode(row, schema) == example_bytes({"a": texts, "b": [1], "c": ["y" * 1000]})


def test_an_error_of_the_value_itself_passes_through() -> None:
    def act() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        encode({"x": Meddler(act)}, Schema({"x": Int64((None,))}))
    assert stored(Int64((None,)), [1]) == [1]


@pytest.mark.concurrency
def test_threads_may_share_a_schema() -> None:
    schema = Schema({"a": Int64((None,)), "b": Text()})
    wrong: list[int] = []

    def work(n: int) -> None:
        row = {"a": np.arange(n, dtype=np.float32).astype(np.int16), "b": str(n) * n}
        expected = example_bytes({"a": list(range(n)), "b": [str(n) * n]})
        wrong.extend(n for _ in range(300) if encode(row, schema) != expected)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Images.


def _pixels(data: bytes) -> np.ndarray[Any, Any]:
    image = pytest.importorskip("PIL.Image")
    return np.asarray(image.open(io.BytesIO(data)))


@pytest.mark.parametrize(
    "pixels",
    [
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000,
        np.arange(36, dtype=np.uint8).reshape(3, 4, 3),
        np.arange(48, dtype=np.uint8).reshape(3, 4, 4),
        np.arange(24, dtype=np.uint8).reshape(3, 4, 2),
        np.arange(72, dtype=np.uint8).reshape(6, 4, 3)[::2],
    ],
    ids=str,
)
def test_an_array_becomes_a_png_of_its_pixels(pixels: np.ndarray[Any, Any]) -> None:
    (data,) = stored(Image(), pixels)
    assert data[:4] == b"\x89PNG"
    assert np.array_equal(_pixels(data), pixels)
    assert stored(Image(), pixels) == [data], "the same bytes each time"


def test_an_array_takes_the_format_that_is_declared() -> None:
    pixels = np.full((8, 8, 3), 100, np.uint8)
    for name, start in (("jpeg", b"\xff\xd8\xff"), ("bmp", b"BM"), ("webp", b"RIFF"), ("png", b"\x89PNG")):
        quality = 95 if name == "jpeg" else None
        (data,) = stored(Image(format=name, quality=quality), pixels)
        assert data.startswith(start)
        assert np.abs(_pixels(data).astype(int) - 100).max() <= 2
    assert np.array_equal(_pixels(stored(Image(), pixels[:, :, :1])[0]), pixels[:, :, 0])


def test_images_and_masks_are_read_from_paths(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.jpg").write_bytes(JPEG)
    assert stored(Image(format="jpeg"), tmp_path / "x.jpg") == [JPEG]
    assert stored(Image(format="jpeg"), bytearray(JPEG)) == [JPEG]


def _mask(value: Any, **declared: Any) -> bytes:
    schema = Schema({"image": Image(optional=True), "mask": Mask(**declared)})
    (data,) = decode(encode({"mask": value}, schema))["mask"]
    return bytes(data)


def test_a_mask_becomes_a_grey_png_of_class_ids(tmp_path: pathlib.Path) -> None:
    ids = np.array([[0, 20], [255, 1]])
    data = _mask(ids, classes=21, ignore=255)
    assert np.array_equal(_pixels(data), ids)
    assert (data[24], data[25]) == (8, 0)
    wide = _mask(ids, classes=300)
    assert np.array_equal(_pixels(wide), ids)
    assert (wide[24], wide[25]) == (16, 0)
    (tmp_path / "m.png").write_bytes(data)
    assert _mask(tmp_path / "m.png", classes=21, ignore=255) == data
    assert _mask(ids[:, :, None] == 0, classes=2) == _mask((ids == 0).astype(np.uint8), classes=2)


def _png(mode: str, bits: int | None = None) -> bytes:
    image = pytest.importorskip("PIL.Image").new(mode, (2, 2))
    file = io.BytesIO()
    image.save(file, "png", **({} if bits is None else {"bits": bits}))
    return file.getvalue()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (np.array([[0, 21]]), "E323"),
        (np.array([[-1, 0]]), "E323"),
        (np.array([[0.0]]), "E323"),
        (np.zeros((2, 2, 3), np.uint8), "E323"),
        (np.zeros((0, 2), np.uint8), "E323"),
        (JPEG, "E323"),
        (b"hello", "E323"),
        (b"", "E330"),
        (b"\x89PNG\r\n\x1a\n", "E331"),
        (_png("RGB"), "E334"),
        (_png("LA"), "E334"),
    ],
    ids=range(11),
)
def test_a_mask_that_is_none_is_refused(value: Any, code: str) -> None:
    with pytest.raises(EncodeError) as caught:
        _mask(value, classes=21, ignore=255)
    assert (caught.value.code, caught.value.location.feature) == (code, "mask")


@pytest.mark.parametrize("png", [_png("P"), _png("P", bits=4), _png("1"), _png("L")], ids=range(4))
def test_palette_masks_and_those_of_few_bits_are_stored_as_class_ids(png: bytes) -> None:
    data = _mask(png, classes=21)
    assert (data[24], data[25]) == (8, 0)
    assert np.array_equal(_pixels(data), np.zeros((2, 2)))


def test_without_pillow_arrays_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("rekord.codec.images.store.import_module", absent)
    with pytest.raises(UsageError) as caught:
        encode({"x": np.zeros((2, 2), np.uint8)}, Schema({"x": Image()}))
    assert (caught.value.code, caught.value.do) == ("U602", "pip install pillow")


# Sequences.

STEPS = Schema(
    context={"n": Text(optional=True)},
    steps={"x": Float32((2,)), "t": Text((None,), optional=True), "s": Sparse("int64", 9, optional=True)},
)


def test_a_sequence_row_is_one_flat_mapping() -> None:
    row = {"n": "é", "x": [[1, 2], np.array([3.0, 4.0])], "t": [["a", "b"], ["c"]], "s": [{1: 5}, {2: 6}]}
    expected = sequence_bytes(
        {"n": ["é"]},
        {
            "x": [[1.0, 2.0], [3.0, 4.0]],
            "t": [["a", "b"], ["c"]],
            "s/indices": [[1], [2]],
            "s/values": [[5], [6]],
        },
    )
    assert encode(row, STEPS) == expected
    column = {name: [value] for name, value in row.items()}
    assert encode_columns(column, STEPS) == frames([expected])


def test_arrays_of_steps_are_taken_whole() -> None:
    expected = sequence_bytes({}, {"x": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]})
    for dtype in (np.float32, np.float64, np.int8):
        assert encode({"x": np.arange(1, 7, dtype=dtype).reshape(3, 2)}, STEPS) == expected
    ragged = Ragged(np.arange(1, 7, dtype=np.float32).reshape(3, 2), np.array([0, 3]))
    assert encode_columns({"x": ragged}, STEPS) == frames([expected])


def test_no_steps_are_a_list_without_any() -> None:
    for none in ([], (), np.zeros((0, 2))):
        assert encode({"x": none}, STEPS).hex() == "0a0012070a050a01781200"


@pytest.mark.parametrize(
    ("row", "code", "feature", "step"),
    [
        ({}, "E301", "x", None),
        ({"x": 5}, "E306", "x", None),
        ({"x": "ab"}, "E306", "x", None),
        ({"x": [[1, 2], None]}, "E301", "x", 1),
        ({"x": [[1, 2], [1]]}, "E307", "x", 1),
        ({"x": np.zeros((2, 3))}, "E307", "x", 0),
        ({"x": [], "t": [["a"], ["b", 5]]}, "E305", "t", 1),
        ({"x": [], "u": []}, "E309", "u", None),
    ],
)
def test_a_step_that_does_not_fit_is_named(row: Any, code: str, feature: str, step: int | None) -> None:
    with pytest.raises(EncodeError) as caught:
        encode(row, STEPS)
    assert (caught.value.code, caught.value.location.feature) == (code, feature)
    assert step is None or caught.value.what.startswith(f"step {step} of `{feature}`")


# What the core takes at sight is what Python would have made of it.


@pytest.mark.parametrize("feature", [Int64(range=(-5, 5)), Float32(range=(-5, 5)), Label(5), Int64(dtype="int8")])
def test_bounds_hold_for_every_form_of_a_number(feature: Feature) -> None:
    forms: list[Any] = [
        int,
        float,
        np.int64,
        np.float32,
        np.float64,
        np.array,
        np.int16,
        np.uint64,
        np.float16,
    ]
    for form in forms:
        with pytest.raises(EncodeError) as caught:
            encode({"x": form(200)}, Schema({"x": feature}))
        whole = np.asarray(form(200)).dtype.kind in "iu"
        expected = {"Label": "E317", "Int64": "E311" if feature != Int64(dtype="int8") else "E310"}
        name = type(feature).__name__
        assert caught.value.code == ("E311" if name == "Float32" else expected[name] if whole else "E304")


def test_columns_of_a_batch_are_rekords_own_too() -> None:
    schema = Schema({"a": Int64(optional=True), "b": Text(), "c": Float32((None,)), "d": Bytes((None,))})
    columns = {
        "a": Optional(np.array([1, 2]), np.array([True, False])),
        "b": Strings.of(["x", "é"]),
        "c": Ragged(np.array([1.0, 2.0, 3.0], np.float32), np.array([0, 1, 3])),
        "d": Ragged(Strings.of([b"p", b"q"]), np.array([0, 2, 2])),
    }
    rows = [{"a": 1, "b": "x", "c": [1], "d": [b"p", b"q"]}, {"b": "é", "c": [2, 3], "d": []}]
    assert encode_columns(columns, schema) == frames([encode(row, schema) for row in rows])


def test_text_for_bytes_is_stored_as_utf_8() -> None:
    schema = Schema({"a": Bytes(), "b": Bytes((None,))})
    payload = encode({"a": "é", "b": [b"x", "y"]}, schema)
    assert payload == encode({"a": "é".encode(), "b": [b"x", b"y"]}, schema)


@pytest.mark.parametrize(("feature", "name"), [(Float32((2,)), "f4"), (Int64((2,)), "i8")])
def test_an_array_whose_dtype_names_its_byte_order_is_taken(feature: Feature, name: str) -> None:
    plain = np.array([1, -2], name)
    named = plain.astype(np.dtype(name).newbyteorder("<"))
    assert memoryview(named).format[:1] == "<"  # NumPy says it, though it changes nothing
    schema = Schema({"x": feature})
    assert encode({"x": named}, schema) == encode({"x": plain}, schema)


def test_a_list_of_half_floats_is_stored_without_a_warning() -> None:
    schema = Schema({"v": Float32((None,), dtype="float16")})
    halves = [np.float16(0.5), np.float16(65504)]
    assert encode({"v": halves}, schema) == encode({"v": [0.5, 65504.0]}, schema)


def test_a_default_is_stored_as_the_same_value_would_be() -> None:
    for dtype in ("float16", "bfloat16", "float32"):
        schema = Schema({"a": Float32(dtype=dtype, default=0.1)})
        assert encode({}, schema) == encode({"a": 0.1}, schema)


def test_of_floats_in_a_column_of_ints_the_one_with_a_fraction_is_shown() -> None:
    with pytest.raises(EncodeError) as caught:
        encode({"t": [7, 8.5]}, Schema({"t": Int64(shape=(None,))}))
    assert (caught.value.code, caught.value.found) == ("E304", "8.5")
