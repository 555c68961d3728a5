"""`rk.decode` and batches with a schema: what comes back, and every reason for which a record is refused."""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.testing import (
    bytes_list,
    entry,
    example,
    example_bytes,
    feature,
    features,
    float_list,
    frame_offsets,
    frames,
    int64_list,
    length_delimited,
    sequence_bytes,
)


def _ints(values: list[int], **form: Any) -> bytes:
    return feature(("int64", int64_list(values, **form)))


def _floats(values: list[float]) -> bytes:
    return feature(("float", float_list(values)))


def _strings(values: list[bytes]) -> bytes:
    return feature(("bytes", bytes_list(values)))


def _row(**stored: bytes) -> bytes:
    return example(features([entry(key, value) for key, value in stored.items()]))


def _refusal(payload: bytes, declared: rk.Schema) -> rk.DecodeError:
    with pytest.raises(rk.DecodeError) as caught:
        rk.decode(payload, declared)
    return caught.value


# ---- Values in their declared form ----

VALUES: list[tuple[Any, bytes, Any]] = [
    (rk.Int64(), _ints([5]), np.int64(5)),
    (rk.Int64(dtype="bool"), _ints([1]), np.bool_(True)),
    (rk.Int64(dtype="uint8"), _ints([255]), np.uint8(255)),
    (rk.Int64(dtype="uint64"), _ints([-1]), np.uint64(2**64 - 1)),
    (rk.Float32(), _floats([0.5]), np.float32(0.5)),
    (rk.Float32(dtype="float16"), _floats([0.5]), np.float16(0.5)),
    (rk.Label(["cat", "dog"]), _ints([1]), np.int64(1)),
    (rk.Text(), _strings(["Größe".encode()]), "Größe"),
    (rk.Bytes(), _strings([b"\xff\x00"]), b"\xff\x00"),
    (rk.Image(format="png"), _strings([b"\x89PNG"]), b"\x89PNG"),
]


@pytest.mark.parametrize(("declared", "stored", "expected"), VALUES)
def test_a_scalar_is_a_numpy_scalar_of_its_dtype_or_bytes_or_str(declared, stored, expected) -> None:
    value = rk.decode(_row(x=stored), rk.Schema({"x": declared}))["x"]
    assert type(value) is type(expected)
    assert value == expected


ARRAYS: list[tuple[Any, bytes, Any]] = [
    (rk.Int64(shape=(3,)), _ints([1, 2, 3]), np.array([1, 2, 3])),
    (rk.Int64(shape=(2, 2), dtype="int8"), _ints([1, -2, 3, -128]), np.array([[1, -2], [3, -128]], "int8")),
    (rk.Int64(shape=(0,)), _ints([]), np.zeros(0, np.int64)),
    (rk.Int64(shape=(None,)), _ints([]), np.zeros(0, np.int64)),
    (rk.Float32(shape=(None, 2)), _floats([1, 2, 3, 4]), np.array([[1, 2], [3, 4]], "f4")),
    (rk.Float32(shape=(2, None)), _floats([1, 2, 3, 4, 5, 6]), np.array([[1, 2, 3], [4, 5, 6]], "f4")),
    (rk.Float32(shape=(2, None)), _floats([]), np.zeros((2, 0), "f4")),
    (rk.Float32(shape=(2, None, 2)), _floats(range(8)), np.arange(8, dtype="f4").reshape(2, 2, 2)),
    (rk.Float32(shape=(None,), dtype="float16"), _floats([1, 2]), np.array([1, 2], "f2")),
    (rk.Label(3, shape=(None,)), _ints([2, 0]), np.array([2, 0])),
]


@pytest.mark.parametrize(("declared", "stored", "expected"), ARRAYS)
def test_numbers_are_arrays_of_the_declared_shape_and_dtype(declared, stored, expected) -> None:
    value = rk.decode(_row(x=stored), rk.Schema({"x": declared}))["x"]
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("text", [False, True])
def test_strings_have_the_declared_shape(text) -> None:
    kind = rk.Text if text else rk.Bytes
    letters = ["a", "b", "c", "d"] if text else [b"a", b"b", b"c", b"d"]
    stored = _row(x=_strings([b"a", b"b", b"c", b"d"]))

    def decoded(shape: tuple[int | None, ...]) -> Any:
        return rk.decode(stored, rk.Schema({"x": kind(shape=shape)}))["x"]

    assert decoded((None,)) == letters
    for shape, size in (((4,), (4,)), ((2, 2), (2, 2)), ((2, None), (2, 2)), ((None, 4), None)):
        value = decoded(shape)
        if size is None:
            assert [row.tolist() for row in value] == [letters]
        else:
            assert (value.dtype, value.shape) == (object, size)
            assert value.ravel().tolist() == letters


TENSORS = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


@pytest.mark.parametrize("dtype", TENSORS)
@pytest.mark.parametrize("shape", [(), (2, 3), (None,), (None, 3), (2, None), (2, None, 3), (0, 2)])
def test_a_tensor_is_restored_from_its_bytes(dtype, shape) -> None:
    size = tuple(2 if known is None else known for known in shape)
    array = (np.arange(int(np.prod(size))) % 2).astype(dtype).reshape(size)
    row = rk.decode(_row(x=_strings([array.tobytes()])), rk.Schema({"x": rk.Tensor(dtype, shape=shape)}))
    assert (row["x"].dtype, row["x"].shape) == (array.dtype, size)
    np.testing.assert_array_equal(row["x"], array)


def test_a_bfloat16_tensor_is_restored_too() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([0.5, -2.0, 3e38], ml_dtypes.bfloat16)
    for shape in ((3,), (None,)):
        schema = rk.Schema({"x": rk.Tensor("bfloat16", shape=shape)})
        value = rk.decode(_row(x=_strings([array.tobytes()])), schema)["x"]
        assert value.dtype == ml_dtypes.bfloat16
        assert value.tobytes() == array.tobytes()


def test_columns_of_several_keys_are_put_together() -> None:
    schema = rk.Schema(
        {
            "tfidf": rk.Sparse("float32", size=10),
            "boxes": rk.Boxes(key="image/object/bbox"),
            "tokens": rk.Int64(shape=(None, None), partitions=("tokens/row_lengths",)),
        }
    )
    sides = {f"image/object/bbox/{side}": [0.1, 0.5] for side in ("xmin", "ymin", "xmax", "ymax")}
    payload = example_bytes(
        {
            "tfidf/indices": [1, 7],
            "tfidf/values": [0.5, 1.5],
            **sides,
            "tokens": [1, 2, 3],
            "tokens/row_lengths": [2, 0, 1],
        }
    )
    row = rk.decode(payload, schema)
    indices, values = row["tfidf"]
    assert (indices.tolist(), values.tolist(), values.dtype) == ([1, 7], [0.5, 1.5], np.float32)
    assert row["boxes"].shape == (2, 4)
    np.testing.assert_array_equal(row["boxes"][1], np.array([0.5] * 4, np.float32))
    assert [part.tolist() for part in row["tokens"]] == [[1, 2], [], [3]]


def test_the_columns_of_a_sequence_are_its_context_and_one_value_a_step() -> None:
    schema = rk.Schema(
        context={"id": rk.Text(), "labels": rk.Int64(shape=(None,))},
        steps={
            "rgb": rk.Float32(shape=(2,)),
            "words": rk.Text(shape=(None,)),
            "blob": rk.Bytes(),
            "cube": rk.Tensor("uint16", shape=(2,)),
            "sparse": rk.Sparse("int64", size=9),
            "boxes": rk.Boxes(),
        },
    )
    box = {f"boxes/{side}": [[0.5], [], [0.5, 1.0]] for side in ("xmin", "ymin", "xmax", "ymax")}
    lists = {key: [_floats(step) for step in steps] for key, steps in box.items()}
    lists |= {
        "rgb": [_floats([1, 2]), _floats([3, 4])],
        "words": [_strings([b"a", b"b"]), _strings([]), feature()],
        "blob": [_strings([b"x"])],
        "cube": [_strings([np.array([1, 2], "<u2").tobytes()])],
        "sparse/indices": [_ints([1]), _ints([])],
        "sparse/values": [_ints([7]), _ints([])],
    }
    keys = schema["boxes"].record_keys("boxes")
    assert len(keys) == 4
    stored = {key.replace(keys[0].rsplit("/", 1)[0], "boxes"): key for key in keys}
    steps_bytes = b"".join(
        entry(stored.get(key, key), b"".join(length_delimited(1, step) for step in steps))
        for key, steps in lists.items()
    )
    context = features([entry("id", _strings([b"one"])), entry("labels", _ints([1, 2]))])
    row = rk.decode(length_delimited(1, context) + length_delimited(2, steps_bytes), schema)
    assert row["id"] == "one"
    assert row["labels"].tolist() == [1, 2]
    assert row["rgb"].tolist() == [[1, 2], [3, 4]]
    assert row["words"] == [["a", "b"], [], []]
    assert row["blob"] == [b"x"]
    assert row["cube"].tolist() == [[1, 2]]
    assert [(i.tolist(), v.tolist()) for i, v in row["sparse"]] == [([1], [7]), ([], [])]
    assert [step.shape for step in row["boxes"]] == [(1, 4), (0, 4), (2, 4)]


def test_the_columns_come_in_the_order_of_the_schema() -> None:
    payload = example_bytes({"a": [1], "b": [2], "c": [3]})
    for names in ("abc", "cba", "bac"):
        schema = rk.Schema({name: rk.Int64() for name in names})
        assert list(rk.decode(payload, schema)) == list(names)


def test_keys_beside_the_schema_are_ignored() -> None:
    assert rk.decode(example_bytes({"a": [1], "b": [b"x"]}), rk.Schema({"a": rk.Int64()})) == {"a": 1}


def test_a_key_that_comes_again_counts_as_it_stands_last() -> None:
    payload = example(features([entry("a", _ints([1, 2])), entry("a", _floats([1.0])), entry("a", _ints([3]))]))
    assert rk.decode(payload, rk.Schema({"a": rk.Int64()})) == {"a": 3}


# ---- Presence, as the table of the interface has it ----

ABSENT, UNSET, EMPTY, EMPTY_PIECE = b"", feature(), _ints([]), _ints([], chunks=[0])
HOW = ("required", "optional", "default")
PRESENCE: list[tuple[bytes, tuple[Any, ...], tuple[Any, ...]]] = [
    # stored, and what a fixed and a varying shape give when required, optional or with a default: a code, or a value
    (ABSENT, ("D401", None, 7), ("D401", None, [7, 8])),
    (UNSET, ("D401", None, 7), ("D401", None, [7, 8])),
    (EMPTY, ("D402", None, "D402"), ([], [], [])),
    (EMPTY_PIECE, ("D402", None, "D402"), ([], [], [])),
    (_ints([3]), (3, 3, 3), ([3], [3], [3])),
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("varying", [False, True])
@pytest.mark.parametrize("stored", range(len(PRESENCE)))
def test_what_is_absent_unset_or_empty_follows_the_table_of_presence(stored, varying, how) -> None:
    body, fixed, open_ended = PRESENCE[stored]
    default = {"default": [7, 8] if varying else 7} if how == "default" else {}
    shape = (None,) if varying else ()
    schema = rk.Schema({"x": rk.Int64(shape=shape, optional=how == "optional", **default)})
    payload = example(features([] if body is ABSENT else [entry("x", body)]))
    expected = (open_ended if varying else fixed)[HOW.index(how)]
    if isinstance(expected, str):
        failure = _refusal(payload, schema)
        assert (failure.code, failure.location.feature) == (expected, "x")
        return
    value = rk.decode(payload, schema)["x"]
    assert (value.tolist() if isinstance(value, np.ndarray | np.generic) else value) == expected


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        (rk.Text(default="x"), "x"),
        (rk.Bytes(shape=(2,), default=[b"a", b"b"]), [b"a", b"b"]),
        (rk.Text(shape=(None,), default=["a"]), ["a"]),
        (rk.Float32(shape=(2,), default=[0.5, 1.0]), [0.5, 1.0]),
        (rk.Int64(dtype="uint64", default=2**64 - 1), 2**64 - 1),
        (rk.Int64(dtype="bool", default=True), True),
        (rk.Label(["cat", "dog"], default="dog"), 1),
        (rk.Tensor("uint16", shape=(2,), default=[1, 2]), [1, 2]),
        (rk.Sparse("float32", size=9, default=([1, 2], [0.5, 1.5])), ([1, 2], [0.5, 1.5])),
        (rk.Boxes(default=[[0.0, 0.0, 0.5, 1.0]]), [[0.0, 0.0, 0.5, 1.0]]),
        (rk.Int64(shape=(None, None), partitions=("l",), default=[[1], [2, 3]]), [[1], [2, 3]]),
        (rk.Text(shape=(None, None), partitions=("l",), default=[["a"], []]), [["a"], []]),
        (rk.Image(default=b"\xff\xd8"), b"\xff\xd8"),
    ],
)
def test_a_default_of_every_type_stands_in_for_what_is_missing(declared, default) -> None:
    def listed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(listed, value))
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    assert listed(rk.decode(b"", rk.Schema({"x": declared}))["x"]) == default


@pytest.mark.parametrize(
    "declared",
    [
        rk.Sparse("float32", size=9, optional=True),
        rk.Boxes(optional=True),
        rk.Int64(shape=(None, None), partitions=("l",), optional=True),
        rk.Tensor("uint8", shape=(2,), optional=True),
        rk.Tensor("uint8", shape=(None,), optional=True),
        rk.Text(optional=True),
        rk.Bytes(shape=(2,), optional=True),
        rk.Float32(shape=(2, None), optional=True),
        rk.Image(optional=True),
    ],
)
def test_a_missing_value_of_every_optional_type_is_none(declared) -> None:
    assert rk.decode(b"", rk.Schema({"x": declared})) == {"x": None}


# ---- Refusals, one by one ----


def test_d401_names_what_is_missing_and_how_it_is_stored() -> None:
    schema = rk.Schema({"image": rk.Image(key="image/encoded")})
    failure = _refusal(b"", schema)
    assert failure.code == "D401"
    assert failure.location == rk.Location(feature="image")
    assert failure.what == "`image` (stored as `image/encoded`) is required and missing"
    assert failure.expected == "a value under `image/encoded`"
    assert failure.found == "no such key, or one without a kind"
    assert "optional=True" in (failure.do or "")


@pytest.mark.parametrize(
    ("declared", "stored", "expected", "found"),
    [
        (rk.Int64(), _ints([1, 2]), "1 value, for shape ()", "2 values"),
        (rk.Float32(shape=(3,)), _floats([1]), "3 values, for shape (3,)", "1 value"),
        (rk.Float32(shape=(2, 2)), _floats([]), "4 values, for shape (2, 2)", "0 values"),
        (
            rk.Int64(shape=(None, 2)),
            _ints([1, 2, 3]),
            "a multiple of 2 values, for shape (None, 2)",
            "3 values",
        ),
        (rk.Int64(shape=(0,)), _ints([1]), "0 values, for shape (0,)", "1 value"),
        (rk.Text(), _strings([b"a", b"b"]), "1 value, for shape ()", "2 values"),
        (rk.Tensor("uint8", shape=(4,)), _strings([b"a", b"b"]), "1 value, as Tensor is stored", "2 values"),
        (rk.Image(), _strings([]), "1 value, as Image is stored", "0 values"),
    ],
)
def test_d402_has_both_numbers_of_values(declared, stored, expected, found) -> None:
    payload = _row(a=_ints([1]), x=stored)
    failure = _refusal(payload, rk.Schema({"a": rk.Int64(), "x": declared}))
    assert (failure.code, failure.location.feature) == ("D402", "x")
    assert (failure.expected, failure.found) == (expected, found)
    assert _within_entry(payload, stored, failure)
    assert failure.do


@pytest.mark.parametrize(
    ("declared", "stored", "expected", "found"),
    [
        (rk.Int64(), _floats([1.0]), "int64_list", "float_list"),
        (rk.Int64(shape=(None,)), _strings([b"1"]), "int64_list", "bytes_list"),
        (rk.Float32(), _ints([1]), "float_list", "int64_list"),
        (rk.Text(), _ints([1]), "bytes_list", "int64_list"),
        (rk.Image(), _floats([1.0]), "bytes_list", "float_list"),
        (rk.Float32(), _ints([]), "float_list", "int64_list"),
    ],
)
def test_d403_has_both_kinds(declared, stored, expected, found) -> None:
    payload = _row(a=_ints([1]), x=stored)
    failure = _refusal(payload, rk.Schema({"a": rk.Int64(), "x": declared}))
    assert (failure.code, failure.location.feature) == ("D403", "x")
    assert (failure.expected, failure.found) == (expected, found)
    assert _within_entry(payload, stored, failure)
    assert {"int64_list": "rk.Int64()", "float_list": "rk.Float32()", "bytes_list": "rk.Bytes()"}[found] in (
        failure.do or ""
    )


@pytest.mark.parametrize("value", [b"\xff", b"caf\xe9", b"x" * 5000 + b"\xc3", b"\xed\xa0\x80"])
@pytest.mark.parametrize("shape", [(), (None,), (2,)])
def test_d404_is_text_that_is_not_utf8(value, shape) -> None:
    stored = _strings([value] if shape != (2,) else [b"fine", value])
    payload = _row(a=_ints([1]), x=stored)
    failure = _refusal(payload, rk.Schema({"a": rk.Int64(), "x": rk.Text(shape=shape)}))
    assert (failure.code, failure.location.feature) == ("D404", "x")
    assert failure.do == "declare `x` as rk.Bytes()"
    assert _within_entry(payload, stored, failure)
    assert len(str(failure)) < 600
    as_bytes = rk.decode(payload, rk.Schema({"x": rk.Bytes(shape=shape)}))["x"]
    assert (as_bytes if shape == () else as_bytes[-1]) == value


BOUNDS: list[tuple[str, list[int], list[int]]] = [
    ("bool", [0, 1], [-1, 2, 255]),
    ("int8", [-128, 127], [-129, 128]),
    ("uint8", [0, 255], [-1, 256]),
    ("int16", [-(2**15), 2**15 - 1], [2**15]),
    ("uint16", [2**16 - 1], [-1, 2**16]),
    ("int32", [-(2**31), 2**31 - 1], [-(2**31) - 1, 2**31]),
    ("uint32", [2**32 - 1], [-1, 2**32]),
    ("int64", [-(2**63), 2**63 - 1], []),
    ("uint64", [0, 1, 2**63 - 1, -1], []),
]


@pytest.mark.parametrize(("dtype", "good", "bad"), BOUNDS)
def test_d405_is_an_int_that_the_declared_dtype_cannot_hold(dtype, good, bad) -> None:
    for shape in ((), (1,), (None,)):
        schema = rk.Schema({"x": rk.Int64(shape=shape, dtype=dtype)})
        for number in good:
            value = rk.decode(_row(x=_ints([number])), schema)["x"]
            assert value.dtype == dtype
            assert int(np.ravel(value)[0]) == (number % 2**64 if dtype == "uint64" else number)
        for number in bad:
            failure = _refusal(_row(x=_ints([number])), schema)
            assert failure.code == "D405"
            assert failure.location == rk.Location(feature="x")
            assert failure.what == f"`x` has a value that does not fit {dtype}"
            assert (failure.expected, failure.found) == (f"values of {dtype}", str(number))
            assert failure.do


@pytest.mark.parametrize(("dtype", "most"), [("float16", 65504.0), ("bfloat16", 3.3895313892515355e38)])
def test_d405_is_a_finite_float_that_would_become_infinite(dtype, most) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    schema = rk.Schema({"x": rk.Float32(dtype=dtype)})
    for number in (most, -most, 0.5, float("inf"), float("-inf"), 1e-30):
        value = rk.decode(_row(x=_floats([number])), schema)["x"]
        assert value.dtype.name == dtype
        assert float(value) == number or abs(number) < 1e-9
    assert np.isnan(float(rk.decode(_row(x=_floats([float("nan")])), schema)["x"]))
    beyond = 65520.0 if dtype == "float16" else 3.4e38
    for number in (beyond, -beyond):
        failure = _refusal(_row(x=_floats([number])), schema)
        assert (failure.code, failure.location.feature) == ("D405", "x")
        assert failure.found == str(np.float32(number))


@pytest.mark.parametrize("shape", [(2,), (None,), (1, None)])
def test_d405_is_a_byte_of_a_bool_tensor_that_is_neither_0_nor_1(shape) -> None:
    schema = rk.Schema({"x": rk.Tensor("bool", shape=shape)})
    assert rk.decode(_row(x=_strings([b"\x01\x00"])), schema)["x"].ravel().tolist() == [True, False]
    failure = _refusal(_row(x=_strings([b"\x01\x02"])), schema)
    assert (failure.code, failure.location.feature, failure.found) == ("D405", "x", "2")


@pytest.mark.parametrize(
    ("shape", "size", "expected", "found"),
    [
        ((2, 3), 6, "12 bytes", "6 bytes: 1/2 of that, possibly a narrower dtype"),
        ((2, 3), 48, "12 bytes", "48 bytes: 4 × as many, possibly a wider dtype"),
        ((2, 3), 0, "12 bytes", "0 bytes"),
        ((2, 3), 13, "12 bytes", "13 bytes"),
        ((None, 3), 7, "a multiple of 6 bytes", "7 bytes"),
        ((2, None), 5, "a multiple of 4 bytes", "5 bytes"),
        ((), 1, "2 bytes", "1 bytes: 1/2 of that, possibly a narrower dtype"),
    ],
)
def test_d406_is_bytes_that_make_no_such_tensor(shape, size, expected, found) -> None:
    failure = _refusal(_row(x=_strings([bytes(size)])), rk.Schema({"x": rk.Tensor("uint16", shape=shape)}))
    assert (failure.code, failure.location.feature) == ("D406", "x")
    assert (failure.expected, failure.found) == (expected, found)
    assert failure.do == "declare the dtype and shape of the stored tensor"


TWO_LEVELS = rk.Int64(shape=(None, None), partitions=("l",))
THREE_LEVELS = rk.Int64(shape=(None, None, None, 2), partitions=("outer", "inner"))
SIDES = {f"x/{side}": [0.5, 0.5] for side in ("xmin", "xmax", "ymin", "ymax")}


@pytest.mark.parametrize(
    ("declared", "stored", "found"),
    [
        (rk.Sparse("float32", size=9), {"x/indices": [1, 2], "x/values": [0.5]}, "1"),
        (rk.Sparse("float32", size=9), {"x/indices": [1, 9], "x/values": [0.5, 1.0]}, "9"),
        (rk.Sparse("float32", size=9), {"x/indices": [-1], "x/values": [0.5]}, "-1"),
        (rk.Sparse("float32", size=9, optional=True), {"x/indices": [1]}, "`x/indices` without `x/values`"),
        (rk.Sparse("float32", size=9, optional=True), {"x/values": [0.5]}, "`x/values` without `x/indices`"),
        (
            rk.Sparse("float32", size=9, default=([3], [1.0])),
            {"x/values": [0.5]},
            "`x/values` without `x/indices`",
        ),
        (rk.Boxes(key="x"), {**SIDES, "x/xmax": [0.5]}, "1"),
        (rk.Boxes(key="x", optional=True), {"x/xmin": [0.5]}, None),
        (TWO_LEVELS, {"x": [1, 2, 3], "l": [1, 1]}, "1, 1"),
        (TWO_LEVELS, {"x": [1, 2, 3], "l": [4]}, "4"),
        (TWO_LEVELS, {"x": [1, 2, 3], "l": [4, -1]}, "4, -1"),
        (TWO_LEVELS, {"x": [1, 2, 3], "l": [1, 0, 1, 0, 0]}, "1, 0, 1, 0, …"),
        # Sums that wrap around to the right number.
        (TWO_LEVELS, {"x": [1, 2, 3], "l": [2**62] * 4 + [3]}, None),
        (TWO_LEVELS, {"x": [1, 2, 3], "l": [2**63 - 1, 2**63 - 1, 5]}, None),
        (THREE_LEVELS, {"x": [1, 2, 3, 4], "inner": [1, 1], "outer": [1]}, "1"),
        (THREE_LEVELS, {"x": [1, 2, 3, 4], "inner": [1, 2], "outer": [2]}, "1, 2"),
        (rk.Int64(shape=(None, None), partitions=("l",), optional=True), {"x": [1]}, "`x` without `l`"),
        (rk.Int64(shape=(None, None), partitions=("l",), optional=True), {"l": [0]}, "`l` without `x`"),
    ],
)
def test_d407_is_keys_of_one_column_that_contradict_each_other(declared, stored, found) -> None:
    failure = _refusal(example_bytes(stored), rk.Schema({"x": declared}))
    assert (failure.code, failure.location.feature) == ("D407", "x")
    assert failure.expected
    assert found is None or failure.found == found
    assert failure.do


def test_the_keys_of_a_required_column_are_each_required() -> None:
    failure = _refusal(example_bytes({"x/indices": [1]}), rk.Schema({"x": rk.Sparse("float32", size=9)}))
    assert (failure.code, failure.location.feature) == ("D401", "x")
    assert failure.expected == "a value under `x/values`"


def test_d408_is_a_key_that_an_inferred_schema_does_not_have(put_records) -> None:
    payloads = [example_bytes({"a": [i]}) for i in range(10_001)] + [example_bytes({"a": [1], "new": [2]})]
    path = put_records(payloads)
    batches = rk.open(path).batches(5000, threads=1, prefetch=0)
    with pytest.raises(rk.DecodeError) as caught:
        list(batches)
    failure = caught.value
    assert failure.code == "D408"
    assert failure.location.path == str(path)
    assert failure.location.record == 10_001
    assert failure.location.offset == frame_offsets(frames(payloads))[10_001]
    assert failure.location.feature == "new"
    assert failure.found == "`new`"
    assert "rekord infer" in (failure.do or "")


@pytest.mark.parametrize(
    ("last", "code"), [({}, "D401"), ({"a": [1, 2]}, "D402"), ({"a": [0.5]}, "D403"), ({"a": [b"x"]}, "D403")]
)
def test_what_contradicts_an_inferred_schema_names_infer(last, code, put_records) -> None:
    path = put_records([example_bytes({"a": [i]}) for i in range(10_001)] + [example_bytes(last)])
    with pytest.raises(rk.DecodeError) as caught:
        list(rk.open(path).batches(20_000))
    assert (caught.value.code, caught.value.location.record) == (code, 10_001)
    assert "rekord infer" in (caught.value.do or "")
    assert "inferred" in (caught.value.likely or "")


def _within_entry(payload: bytes, stored: bytes, failure: rk.DecodeError) -> bool:
    """Whether the offset in the payload points into the entry that is to blame."""
    end = payload.rindex(stored) + len(stored)
    begin = end - len(stored) - 10
    offset = failure.location.payload_offset
    return offset is not None and begin <= offset <= end


# ---- Where a refusal says that it happened ----

LATE: list[tuple[str, Any, dict[str, Any]]] = [
    ("D401", rk.Int64(), {}),
    ("D402", rk.Int64(), {"x": [1, 2]}),
    ("D403", rk.Int64(), {"x": [0.5]}),
    ("D404", rk.Text(), {"x": [b"\xff"]}),
    ("D405", rk.Int64(dtype="uint8"), {"x": [256]}),
    ("D405", rk.Int64(dtype="uint8", shape=(None,)), {"x": [1, 256]}),
    ("D405", rk.Float32(dtype="float16"), {"x": [1e6]}),
    ("D406", rk.Tensor("uint16", shape=(1,)), {"x": [b"abc"]}),
    ("D407", rk.Sparse("float32", size=9), {"x/indices": [1], "x/values": [0.5, 1.0]}),
    ("D407", TWO_LEVELS, {"x": [1], "l": [2]}),
]
GOOD = {
    "Int64": {"x": [1]}, "Text": {"x": [b"t"]}, "Float32": {"x": [0.5]}, "Tensor": {"x": [b"ab"]},
    "Sparse": {"x/indices": [1], "x/values": [0.5]},
}  # fmt: skip


@pytest.mark.parametrize(("threads", "prefetch"), [(1, 0), (2, 2)])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 100])
@pytest.mark.parametrize(("code", "declared", "bad"), LATE)
def test_a_refused_record_is_named_after_all_good_rows_before_it(
    code, declared, bad, batch_size, threads, prefetch, put_records, drain
) -> None:
    good = dict(GOOD[type(declared).__name__])
    if getattr(declared, "partitions", ()):
        good["l"] = [1]
    payloads = [example_bytes({"n": [i], **good}) for i in range(17)]
    payloads += [example_bytes({"n": [17], **bad}), example_bytes({"n": [18], **bad})]
    path = put_records(payloads)
    schema = rk.Schema({"x": declared, "n": rk.Int64()})
    reading = rk.open(path, schema=schema).batches(batch_size, threads=threads, prefetch=prefetch)
    batches, failure = drain(reading)
    where = failure.location
    assert failure.code == code
    assert (where.path, where.record, where.feature, where.row) == (str(path), 17, "x", None)
    assert where.offset == frame_offsets(frames(payloads))[17]
    assert [n for batch in batches for n in batch["n"].tolist()] == list(range(17))
    assert all(len(batch["x"]) == len(batch["n"]) for batch in batches)


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_of_two_columns_that_are_wrong_the_earlier_record_is_named(compression, compress, put_file, drain) -> None:
    rows = [{"a": [1], "s": [b"abcd"], "t": [b"x"]} for _ in range(9)]
    rows[7] = {**rows[7], "a": [256]}
    rows[5] = {**rows[5], "s": [b"abc"]}
    data = frames([example_bytes(row) for row in rows])
    path = put_file(compress(data, compression))
    schema = rk.Schema(
        {"a": rk.Int64(dtype="uint8"), "s": rk.Tensor("uint16", shape=(2,)), "t": rk.Text(optional=True)}
    )
    [batch], failure = drain(rk.open(path, schema=schema).batches(100))
    assert (failure.code, failure.location.record) == ("D406", 5)
    assert failure.location.offset == frame_offsets(data)[5]
    assert batch["a"].tolist() == [1] * 5
    assert batch["s"].shape == (5, 2)
    assert batch["t"].tolist() == ["x"] * 5


def test_a_refused_step_names_its_record_and_not_its_step(put_records, drain) -> None:
    schema = rk.Schema(
        context={"n": rk.Int64()},
        steps={"x": rk.Int64(dtype="uint8"), "w": rk.Text(shape=(None,)), "s": rk.Sparse("int64", size=3)},
    )
    steps = {"x": [[1], [2]], "w": [["a", "b"]], "s/indices": [[1]], "s/values": [[5]]}
    payloads = [sequence_bytes({"n": [i]}, steps) for i in range(6)]
    for code, bad in (
        ("D405", {**steps, "x": [[1], [256]]}),
        ("D402", {**steps, "x": [[1], [1, 2]]}),
        ("D403", {**steps, "w": [[1]]}),
        ("D407", {**steps, "s/indices": [[3]]}),
        ("D407", {**steps, "s/indices": [[1, 2]]}),
        ("D401", {"x": [[1]]}),
    ):
        path = put_records([*payloads, sequence_bytes({"n": [6]}, bad), *payloads])
        batches, failure = drain(rk.open(path, schema=schema).batches(5))
        assert (failure.code, failure.location.record) == (code, 6)
        assert failure.location.offset is not None
        assert [n for batch in batches for n in batch["n"].tolist()] == list(range(6))
        for batch in batches:
            assert len(batch["s"]) == len(batch["w"]) == len(batch["x"]) == len(batch["n"])


def test_a_payload_that_protobuf_refuses_is_a_wire_error_with_a_schema_too() -> None:
    for payload in (b"\x0a", b"\x00", _row(x=feature(("int64", length_delimited(1, b"\x80"))))):
        with pytest.raises(rk.WireError) as without:
            rk.decode(payload)
        with pytest.raises(rk.WireError) as with_schema:
            rk.decode(payload, rk.Schema({"x": rk.Int64()}))
        assert with_schema.value.to_dict() == without.value.to_dict()


def test_bfloat16_needs_ml_dtypes_and_says_so(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for declared, stored in (
        (rk.Float32(dtype="bfloat16"), _floats([1.0])),
        (rk.Float32(shape=(None,), dtype="bfloat16"), _floats([1.0])),
        (rk.Tensor("bfloat16", shape=(1,)), _strings([b"ab"])),
    ):
        with pytest.raises(rk.UsageError) as caught:
            rk.decode(_row(without_ml_dtypes=stored), rk.Schema({"without_ml_dtypes": declared}))
        assert (caught.value.code, caught.value.location.feature) == ("U602", "without_ml_dtypes")
        assert "ml_dtypes" in (caught.value.do or "")


@pytest.mark.parametrize(
    ("payload", "schema", "kind"),
    [(b"", rk.Schema({}), "sequence"), (b"", rk.Schema(context={}, steps={}), "example"), (b"", None, "x")],
)
def test_a_kind_that_contradicts_the_schema_is_refused(payload, schema, kind) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.decode(payload, schema, kind=kind)
    assert caught.value.code == "U605"


def test_no_message_shows_more_than_a_little_of_the_data(put_records) -> None:
    long = "k" * 5000
    with pytest.raises(rk.DecodeError) as caught:
        list(
            rk.open(put_records([example_bytes({"a": [1]})] * 10_001 + [example_bytes({long: [1]})])).batches(20_000)
        )
    assert re.search("k{61}", str(caught.value).split("where")[0]) is None
