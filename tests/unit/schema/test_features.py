"""Each declared type checks itself when it is made, and says what it stores."""

import dataclasses
import pickle

import numpy as np
import pytest

from rekord.errors import SchemaError, closest_match
from rekord.schema import Boxes, Bytes, Float32, Image, Int64, Label, Mask, Sparse, Tensor, Text

NAN = float("nan")
INF = float("inf")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Int64(shape=3, key="x"), "S101"),
        (lambda: Int64(shape="3", key="x"), "S101"),
        (lambda: Int64(shape=(-1,), key="x"), "S101"),
        (lambda: Int64(shape=(1.0,), key="x"), "S101"),
        (lambda: Int64(shape=(True,), key="x"), "S101"),
        (lambda: Int64(shape=(1,) * 33, key="x"), "S101"),
        (lambda: Int64(shape=(2**40, 2**40), key="x"), "S101"),
        (lambda: Int64(shape=(None, 0), key="x"), "S101"),
        (lambda: Float32(shape=(None, None), key="x"), "S102"),
        (lambda: Label(3, shape=(None, None), key="x"), "S102"),
        (lambda: Int64((None,), partitions=("a",), key="x"), "S103"),
        (lambda: Int64((None, None), partitions=("a", "b"), key="x"), "S103"),
        (lambda: Int64((None, 2, None), partitions=("a",), key="x"), "S103"),
        (lambda: Int64((None, None, None), partitions=("a", "a"), key="x"), "S103"),
        (lambda: Int64((None, None), partitions=("",), key="x"), "S103"),
        (lambda: Int64((None, None), partitions="ab", key="x"), "S103"),
        (lambda: Int64(dtype="float32", key="x"), "S104"),
        (lambda: Int64(dtype="int128", key="x"), "S104"),
        (lambda: Int64(dtype=None, key="x"), "S104"),
        (lambda: Float32(dtype="float64", key="x"), "S104"),
        (lambda: Float32(dtype="i4,i4", key="x"), "S104"),
        (lambda: Tensor(">u2", key="x"), "S104"),
        (lambda: Tensor(np.dtype(">u2"), key="x"), "S104"),
        (lambda: Tensor("datetime64", key="x"), "S104"),
        (lambda: Tensor(object, key="x"), "S104"),
        (lambda: Sparse("float64", 4, key="x"), "S104"),
        (lambda: Int64(range=(2, 1), key="x"), "S105"),
        (lambda: Int64(range=(0.0, 1.0), key="x"), "S105"),
        (lambda: Int64(range=(0, 256), dtype="uint8", key="x"), "S105"),
        (lambda: Int64(range=(None, None), key="x"), "S105"),
        (lambda: Int64(range=3, key="x"), "S105"),
        (lambda: Float32(range=(NAN, 1.0), key="x"), "S105"),
        (lambda: Float32(range=(0.0, NAN), key="x"), "S105"),
        (lambda: Float32(range=(0.0, 1e39), key="x"), "S105"),
        (lambda: Int64(default=1.0, key="x"), "S106"),
        (lambda: Int64(default="1", key="x"), "S106"),
        (lambda: Int64(default=None, key="x"), "S106"),
        (lambda: Int64(default=[1], key="x"), "S106"),
        (lambda: Int64((2,), default=1, key="x"), "S106"),
        (lambda: Int64((2,), default=[1, 2, 3], key="x"), "S106"),
        (lambda: Int64((2, None), default=[[1], [1, 2]], key="x"), "S106"),
        (lambda: Int64(dtype="uint8", default=256, key="x"), "S106"),
        (lambda: Int64(range=(0, 5), default=6, key="x"), "S106"),
        (lambda: Int64(default=2**63, key="x"), "S106"),
        (lambda: Float32(default=1e39, key="x"), "S106"),
        (lambda: Float32(default=10**400, key="x"), "S106"),
        (lambda: Float32(default=2**24 + 1, key="x"), "S106"),
        (lambda: Float32(default=0.1, rounding="exact", key="x"), "S106"),
        (lambda: Float32(default=True, key="x"), "S106"),
        (lambda: Float32(range=(0.0, 1.0), default=NAN, key="x"), "S106"),
        (lambda: Float32(dtype="float16", default=70000.0, key="x"), "S106"),
        (lambda: Bytes(default="text", key="x"), "S106"),
        (lambda: Text(default=b"bytes", key="x"), "S106"),
        (lambda: Text(default="\ud800", key="x"), "S106"),
        (lambda: Label(["a", "b"], default="c", key="x"), "S106"),
        (lambda: Label(2, default=2, key="x"), "S106"),
        (lambda: Label(2, default="a", key="x"), "S106"),
        (lambda: Tensor("uint8", (2,), default=[1, 256], key="x"), "S106"),
        (lambda: Tensor("complex64", default="1", key="x"), "S106"),
        (lambda: Sparse("float32", 4, default=[1.0], key="x"), "S106"),
        (lambda: Sparse("float32", 4, default=([4], [1.0]), key="x"), "S106"),
        (lambda: Sparse("float32", 4, default=([2, 1], [1.0, 1.0]), key="x"), "S106"),
        (lambda: Sparse("float32", 4, default=([1], []), key="x"), "S106"),
        (lambda: Image(default=b"", key="x"), "S106"),
        (lambda: Boxes(default=[[0, 0, 1]], key="x"), "S106"),
        (lambda: Int64(optional=True, default=1, key="x"), "S107"),
        (lambda: Image(optional=True, default=b"1", key="x"), "S107"),
        (lambda: Label([], key="x"), "S108"),
        (lambda: Label(0, key="x"), "S108"),
        (lambda: Label(-1, key="x"), "S108"),
        (lambda: Label(True, key="x"), "S108"),
        (lambda: Label(default="cat", key="x"), "S106"),
        (lambda: Label("cat", key="x"), "S108"),
        (lambda: Label(["cat", "cat"], key="x"), "S108"),
        (lambda: Label(["cat", ""], key="x"), "S108"),
        (lambda: Label(["cat", 1], key="x"), "S108"),
        (lambda: Label(["cat", "dog"], count=3, key="x"), "S108"),
        (lambda: Int64(optional="yes", key="x"), "S110"),
        (lambda: Int64(cast=1, key="x"), "S110"),
        (lambda: Float32(rounding="up", key="x"), "S110"),
        (lambda: Image(format="tiff", key="x"), "S110"),
        (lambda: Image(format=3, key="x"), "S110"),
        (lambda: Image(format="jpeg", quality=0, key="x"), "S110"),
        (lambda: Image(format="jpeg", quality=101, key="x"), "S110"),
        (lambda: Image(format="png", quality=90, key="x"), "S110"),
        (lambda: Image(channels=5, key="x"), "S110"),
        (lambda: Mask(classes=0, key="x"), "S110"),
        (lambda: Mask(classes=2**16 + 1, key="x"), "S110"),
        (lambda: Mask(classes=2, ignore=-1, key="x"), "S110"),
        (lambda: Sparse("float32", 0, key="x"), "S110"),
        (lambda: Sparse("float32", 2.5, key="x"), "S110"),
        (lambda: Int64((0,), optional=True, key="x"), "S124"),
    ],
)
def test_a_feature_that_cannot_be_is_refused_where_it_is_declared(make, code):
    with pytest.raises(SchemaError) as caught:
        make()
    error = caught.value
    assert (error.code, error.location.feature) == (code, "x")
    assert all([error.expected, error.found, error.do])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Int64(key=""),
        lambda: Int64(key=5, shape=(-1,)),
        lambda: Int64(key="\ud800"),
        lambda: Mask(classes=2, of=""),
        lambda: Sparse("int64", 2, index_key=""),
    ],
)
def test_a_key_must_be_a_name(make):
    with pytest.raises(SchemaError) as caught:
        make()
    assert (caught.value.code, caught.value.location.feature) == ("S109", None)


@pytest.mark.parametrize(
    ("feature", "kind", "keys", "kinds", "shape", "dtype"),
    [
        (Int64(), "int64", ("c",), ("int64",), (), np.dtype("int64")),
        (Int64(dtype="bool", key="k"), "int64", ("k",), ("int64",), (), np.dtype("bool")),
        (Float32((None, 4)), "float", ("c",), ("float",), (None, 4), np.dtype("float32")),
        (Bytes(), "bytes", ("c",), ("bytes",), (), None),
        (Text((2,)), "bytes", ("c",), ("bytes",), (2,), None),
        (Label(3), "int64", ("c",), ("int64",), (), np.dtype("int64")),
        (Tensor("u2", (2, 2)), "bytes", ("c",), ("bytes",), (2, 2), np.dtype("uint16")),
        (Image(), "bytes", ("c",), ("bytes",), (), None),
        (Mask(classes=2), "bytes", ("c",), ("bytes",), (), None),
        (
            Int64((None, None), partitions=("c/rows",)),
            "int64",
            ("c", "c/rows"),
            ("int64", "int64"),
            (None, None),
            np.dtype("int64"),
        ),
        (
            Sparse("float32", 9),
            "float",
            ("c/indices", "c/values"),
            ("int64", "float"),
            (9,),
            np.dtype("float32"),
        ),
        (
            Sparse("uint8", 9, index_key="i", value_key="v"),
            "int64",
            ("i", "v"),
            ("int64", "int64"),
            (9,),
            np.dtype("uint8"),
        ),
        (
            Boxes(),
            "float",
            tuple([f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]),
            ("float",) * 4,
            (None, 4),
            np.dtype("float32"),
        ),
    ],
)
def test_a_feature_says_under_which_keys_and_kinds_it_is_stored(feature, kind, keys, kinds, shape, dtype):
    assert feature.kind == kind
    assert feature.record_keys("c") == keys
    assert feature.record_kinds() == kinds
    assert feature.shape == shape
    assert feature.dtype == dtype


def test_box_keys_follow_the_key_that_is_given():
    assert Boxes(key="b").record_keys("c") == ("b/xmin", "b/ymin", "b/xmax", "b/ymax")


@pytest.mark.parametrize(
    ("feature", "default", "value"),
    [
        (Int64(default=np.int8(3)), 3, np.int64(3)),
        (Int64(dtype="bool", default=1), True, np.bool_(True)),
        (Int64((None,), default=[]), (), np.zeros(0, np.int64)),
        (Int64((2, None), default=[[], []]), ((), ()), np.zeros((2, 0), np.int64)),
        (Int64(dtype="uint64", default=2**64 - 1), 2**64 - 1, np.uint64(2**64 - 1)),
        (Float32(default=np.float32(0.1)), 0.1, np.float32(0.1)),
        (Float32(default=2**24), 16777216.0, np.float32(2**24)),
        (Float32((None, 2), default=np.ones((1, 2))), ((1.0, 1.0),), np.ones((1, 2), np.float32)),
        (Float32(range=(0.0, 0.1), default=0.1), 0.1, np.float32(0.1)),
        (Tensor("float16", (1,), default=[0.1]), (0.1,), np.array([0.1], np.float16)),
        (Tensor("complex64", default=1 + 2j), 1 + 2j, np.complex64(1 + 2j)),
        (Label(["cat", "dog"], default="dog"), 1, np.int64(1)),
        (Label(["cat", "dog"], shape=(None,), default=["dog", 0]), (1, 0), np.array([1, 0])),
        (Boxes(default=[]), (), np.zeros((0, 4), np.float32)),
    ],
)
def test_a_default_is_kept_in_one_form_and_given_as_a_row_holds_it(feature, default, value):
    assert feature.has_default
    assert feature.default == default
    given = feature.default_value()
    assert given.dtype == value.dtype
    np.testing.assert_array_equal(given, value)
    assert given.shape == value.shape


def test_defaults_of_bytes_text_and_ragged_data_are_plain_values():
    assert Bytes(default=bytearray(b"ab")).default_value() == b"ab"
    assert Text((2,), default=["a", "b"]).default_value() == ("a", "b")
    assert Int64((None, None), partitions=("r",), default=[[1], []]).default_value() == ((1,), ())
    indices, values = Sparse("float32", 9, default=([1, 3], [1, 0.5])).default_value()
    assert (indices.tolist(), values.tolist()) == ([1, 3], [1.0, 0.5])


def test_an_open_end_of_a_range_is_filled_from_the_dtype():
    assert Int64(range=(0, None)).range == (0, 2**63 - 1)
    assert Int64(range=(None, 5), dtype="uint8").range == (0, 5)
    assert Float32(range=(0, None)).range == (0.0, INF)


def test_equal_declarations_are_equal_and_hash_alike():
    assert Int64([2, None]) == Int64((2, None), dtype=np.int64)
    assert hash(Int64([2, None])) == hash(Int64((2, None), dtype="<i8"))
    assert Float32(default=NAN) == Float32(default=np.float32("nan"))
    assert Float32(default=0.1) == Float32(default=np.float32(0.1))
    assert Float32(default=0.0) != Float32(default=-0.0)
    assert Image(format="JPG") == Image(format="jpeg")
    assert Label(2) != Label(["a", "b"])
    assert Bytes() != Text()
    assert Int64() != "Int64()"


@pytest.mark.parametrize(
    ("feature", "text"),
    [
        (Int64(), "Int64()"),
        (Int64((None,), dtype="uint8", default=[1]), "Int64(shape=(None,), dtype='uint8', default=(1,))"),
        (Float32(range=(0, None)), "Float32(range=(0.0, float('inf')))"),
        (Label(["cat", "dog"]), "Label(('cat', 'dog'))"),
        (Label(10, optional=True), "Label(10, optional=True)"),
        (Tensor("uint16", shape=(2,)), "Tensor('uint16', shape=(2,))"),
        (Sparse("float32", size=9), "Sparse('float32', size=9)"),
        (Image(format="jpeg", key="image/encoded"), "Image(format='jpeg', key='image/encoded')"),
        (Mask(classes=21, ignore=255), "Mask(classes=21, ignore=255)"),
        (Boxes(), "Boxes()"),
    ],
)
def test_a_feature_is_shown_as_it_is_declared(feature, text):
    assert repr(feature) == text


def test_features_are_frozen_and_survive_pickling():
    feature = Float32((2,), dtype="bfloat16", default=[NAN, 1.0])
    assert pickle.loads(pickle.dumps(feature)) == feature
    with pytest.raises(dataclasses.FrozenInstanceError):
        feature.shape = ()


def test_bfloat16_rounds_like_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for number in (0.1, 1.0, -3.1415927, 65535.0, 1e-40, 3.38e38):
        kept = Float32(dtype="bfloat16", default=number).default
        assert ml_dtypes.bfloat16(kept) == ml_dtypes.bfloat16(number)


def test_bfloat16_without_ml_dtypes_keeps_its_name(monkeypatch):
    import rekord.schema.base as dtypes

    def missing(name):
        raise ImportError(name)

    with_it = Float32(dtype="bfloat16")
    monkeypatch.setattr(dtypes, "import_module", missing)
    without = Float32(dtype="bfloat16")
    assert without.dtype == "bfloat16"
    assert without == with_it


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("lable", "label"),
        ("IMAGE_ENCODED", "image/encoded"),
        ("label", "label"),
        ("weight", None),
        ("", None),
    ],
)
def test_a_near_miss_is_two_edits_away_or_the_same_when_folded(name, meant):
    assert closest_match(name, ["image/encoded", "label"]) == meant


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("nope", "core", None),  # two letters of four
        ("txet", "text", "text"),  # two letters in each other's place are one slip
        ("dig", "dog", "dog"),
        ("dip", "dog", None),
        ("ids", "id", "id"),
        ("id", "ids", None),
        ("X", "x", "x"),
        ("y", "x", None),
        ("--nope", "--core", None),  # the dashes are no letters
        ("labelel", "label", "label"),
        ("k" * 300, "k" * 299, None),  # too long to have been typed
        ("-", "_/", None),
    ],
)
def test_the_fewer_letters_a_name_has_the_nearer_a_near_miss_must_be(name, known, meant):
    assert closest_match(name, [known]) == meant


def test_of_several_near_misses_the_nearest_is_meant():
    assert closest_match("lable", ["labels", "label", "table"]) == "label"


def test_partitions_are_record_keys_of_unicode():
    with pytest.raises(SchemaError) as caught:
        Int64(shape=(None, None), partitions=("lengths\udc80",))
    assert caught.value.code == "S103"
