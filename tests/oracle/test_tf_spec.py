"""TensorFlow is the judge of tf.io specs: what ours parse, and what theirs mean."""

import sys

import numpy as np
import pytest
from hypothesis import assume, given, settings
from record_strategies import schemas

from rekord.errors import SchemaError, UsageError
from rekord.schema import Boxes, Bytes, Float32, Image, Int64, Label, Schema, Sparse, Tensor, Text


@pytest.fixture(scope="module")
def tf():
    return pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def example(tf):
    """A serialized Example of lists by key."""

    def feature(values):
        result = tf.train.Feature()
        if all(isinstance(value, bytes) for value in values):
            result.bytes_list.value.extend(values)
        elif all(isinstance(value, float) for value in values):
            result.float_list.value.extend(values)
        else:
            result.int64_list.value.extend(values)
        return result

    def build(lists):
        keyed = {key: feature(values) for key, values in lists.items()}
        return tf.train.Example(features=tf.train.Features(feature=keyed)).SerializeToString()

    return build


def plain(tensor):
    """A dense, ragged or sparse tensor as nested lists; a sparse one as its values."""
    if hasattr(tensor, "to_list"):
        return tensor.to_list()
    if hasattr(tensor, "indices"):
        return tensor.values.numpy().tolist()
    array = tensor.numpy()
    return array.tolist() if isinstance(array, (np.ndarray, np.generic)) else array


def test_each_type_has_the_spec_that_the_rules_say(tf):
    ragged = tf.io.RaggedFeature
    schema = Schema(
        {
            "image": Image(key="image/encoded"),
            "label": Label(3),
            "labels": Label(3, shape=(None,)),
            "tokens": Int64((None,)),
            "boxes": Float32((None, 4)),
            "vec": Float32((128,)),
            "cube": Tensor("uint16", (2, 2)),
            "open": Tensor("uint16", (None, 2)),
            "tfidf": Sparse("float32", size=30_000),
            "flag": Int64(dtype="bool", default=True),
            "score": Float32((2,), default=[0.5, 1.0]),
            "caption": Text(optional=True),
            "words": Text((None,), optional=True),
            "pairs": Int64((None, 2), optional=True),
            "title": Text(default="ö"),
            "raw": Tensor("uint16", default=258),
            "big": Int64(dtype="uint64", default=2**64 - 1),
            "rows": Int64((None, None, 2), partitions=("rows/lengths",)),
            "bb": Boxes(key="b"),
        }
    )
    assert schema.to_tf_spec() == {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "labels": ragged(tf.int64),
        "tokens": ragged(tf.int64),
        "boxes": ragged(tf.float32, partitions=[ragged.UniformRowLength(4)]),
        "vec": tf.io.FixedLenFeature([128], tf.float32),
        "cube": tf.io.FixedLenFeature([], tf.string),
        "open": tf.io.FixedLenFeature([], tf.string),
        "tfidf": tf.io.SparseFeature("tfidf/indices", "tfidf/values", tf.float32, 30_000),
        "flag": tf.io.FixedLenFeature([], tf.int64, 1),
        "score": tf.io.FixedLenFeature([2], tf.float32, [0.5, 1.0]),
        "caption": tf.io.VarLenFeature(tf.string),
        "words": tf.io.VarLenFeature(tf.string),
        "pairs": ragged(tf.int64, partitions=[ragged.UniformRowLength(2)]),
        "title": tf.io.FixedLenFeature([], tf.string, "ö".encode()),
        "raw": tf.io.FixedLenFeature([], tf.string, b"\x02\x01"),
        "big": tf.io.FixedLenFeature([], tf.int64, -1),
        "rows": ragged(tf.int64, partitions=[ragged.RowLengths("rows/lengths"), ragged.UniformRowLength(2)]),
        **{f"b/{side}": ragged(tf.float32) for side in ("xmin", "ymin", "xmax", "ymax")},
    }


FULL = {
    "image/encoded": [b"jpeg"],
    "tokens": [1, 2, 3],
    "boxes": [0.5] * 8,
    "vec": [1.0, 2.0],
    "s/indices": [1, 3],
    "s/values": [0.25, 0.5],
    "caption": [b"hi"],
    "rows": [1, 2, 3, 4],
    "rows/lengths": [1, 0, 3],
    "score": [0.75],
}
SCHEMA = Schema(
    {
        "image": Image(key="image/encoded"),
        "tokens": Int64((None,)),
        "boxes": Float32((None, 4)),
        "vec": Float32((2,)),
        "s": Sparse("float32", 5),
        "caption": Text(optional=True),
        "rows": Int64((None, None), partitions=("rows/lengths",)),
        "score": Float32(default=0.5),
    }
)


def test_a_spec_of_ours_parses_a_real_example(tf, example):
    spec = SCHEMA.to_tf_spec()
    parsed = {key: plain(value) for key, value in tf.io.parse_single_example(example(FULL), spec).items()}
    assert parsed == {
        "image/encoded": b"jpeg",
        "tokens": [1, 2, 3],
        "boxes": [[0.5] * 4, [0.5] * 4],
        "vec": [1.0, 2.0],
        "s": [0.25, 0.5],
        "caption": [b"hi"],
        "rows": [[1], [], [2, 3, 4]],
        "score": 0.75,
    }


def test_a_batch_is_parsed_with_what_is_absent(tf, example):
    lean = {"image/encoded": [b"png"], "vec": [0.0, 0.0], "tokens": [7]}
    parsed = tf.io.parse_example([example(FULL), example(lean)], SCHEMA.to_tf_spec())
    assert plain(parsed["tokens"]) == [[1, 2, 3], [7]]
    assert plain(parsed["rows"]) == [[[1], [], [2, 3, 4]], []]
    assert plain(parsed["score"]) == [0.75, 0.5]
    assert plain(parsed["caption"]) == [b"hi"]
    assert plain(parsed["boxes"]) == [[[0.5] * 4, [0.5] * 4], []]


def test_a_required_feature_that_is_absent_is_refused_by_tensorflow_too(tf, example):
    with pytest.raises(tf.errors.InvalidArgumentError, match="vec"):
        tf.io.parse_single_example(example({"image/encoded": [b"x"]}), SCHEMA.to_tf_spec())


def test_a_sequence_gives_two_specs_that_parse_a_real_sequence(tf):
    schema = Schema(
        context={"id": Text(), "tags": Int64((None,))},
        steps={
            "frame": Float32((2,)),
            "words": Text((None,)),
            "pairs": Int64((None, 2)),
            "extra": Int64(optional=True),
            "more": Int64((None,), optional=True),
            "raw": Tensor("uint8", (2,), key="bytes"),
        },
    )
    context, steps = schema.to_tf_spec()
    sequence = tf.train.SequenceExample()
    sequence.context.feature["id"].bytes_list.value.append(b"a")
    sequence.context.feature["tags"].int64_list.value.extend([4, 5])
    lists = sequence.feature_lists.feature_list
    for numbers in ([1.0, 2.0], [3.0, 4.0]):
        lists["frame"].feature.add().float_list.value.extend(numbers)
    for words in ([b"x"], [b"y", b"z"]):
        lists["words"].feature.add().bytes_list.value.extend(words)
    for numbers in ([1, 2, 3, 4], [5, 6]):
        lists["pairs"].feature.add().int64_list.value.extend(numbers)
    for value in (b"ab", b"cd"):
        lists["bytes"].feature.add().bytes_list.value.append(value)
    one, many = tf.io.parse_single_sequence_example(sequence.SerializeToString(), context, steps)
    assert {key: plain(value) for key, value in one.items()} == {"id": b"a", "tags": [4, 5]}
    assert {key: plain(value) for key, value in many.items()} == {
        "frame": [[1.0, 2.0], [3.0, 4.0]],
        "words": [[b"x"], [b"y", b"z"]],
        "pairs": [[[1, 2], [3, 4]], [[5, 6]]],
        "extra": [],
        "more": [],
        "bytes": [b"ab", b"cd"],
    }


@pytest.mark.parametrize(
    ("schema", "feature"),
    [
        (Schema({"a": Int64((4, None))}), "a"),
        (Schema({"b": Sparse("int64", 2), "a": Int64(key="b")}), "a"),
        (Schema({"a": Int64((None,), default=[1])}), "a"),
        (Schema({"a": Boxes(default=[[0, 0, 1, 1]])}), "a"),
        (Schema({"a": Sparse("int64", 2, default=([0], [1]))}), "a"),
        (Schema(context={"a": Sparse("int64", 2)}, steps={}), "a"),
        (Schema(context={}, steps={"a": Sparse("int64", 2)}), "a"),
        (Schema(context={}, steps={"a": Int64((4, None))}), "a"),
    ],
)
def test_what_no_spec_can_say_is_refused_by_name(tf, schema, feature):
    with pytest.raises(SchemaError) as caught:
        schema.to_tf_spec()
    error = caught.value
    assert (error.code, error.location.feature) == ("S121", feature)
    assert all([error.expected, error.found, error.do])


@given(schema=schemas())
@settings(deadline=None, max_examples=40)
def test_tensorflow_takes_every_spec_that_we_give(tf, schema):
    try:
        spec = schema.to_tf_spec()
    except SchemaError:
        assume(False)
    assume(len(schema))
    parse = tf.io.parse_single_sequence_example if schema.is_sequence else tf.io.parse_single_example
    message = ""
    try:
        parse(b"", *(spec if schema.is_sequence else [spec]))
    except tf.errors.InvalidArgumentError as refused:
        message = refused.message
    # The spec was taken; all that may be missing is the data. (A NUL in a name cuts TensorFlow's message.)
    missing = ("Feature: ", "Feature list '", "Inconsistent max number of elements")
    assert not message or any(text in message for text in missing)


def test_the_five_classes_are_columns(tf):
    ragged = tf.io.RaggedFeature
    schema = Schema.from_tf_spec(
        {
            "fixed": tf.io.FixedLenFeature([2, 3], tf.float32),
            "scalar": tf.io.FixedLenFeature((), tf.string, default_value=""),
            "one": tf.io.FixedLenFeature(tf.TensorShape([1]), tf.int64, default_value=[-1]),
            "loose": tf.io.FixedLenFeature([], "int64", default_value=[7]),
            "tensor": tf.io.FixedLenFeature([2], tf.float32, default_value=tf.constant([1.0, 2.0])),
            "var": tf.io.VarLenFeature(tf.int64),
            "seq": tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True, default_value=-1),
            "sparse": tf.io.SparseFeature("ix", "val", tf.float32, 10),
            "sparse1": tf.io.SparseFeature(["a"], "b", tf.int64, [10]),
            "ours": tf.io.SparseFeature("ours/indices", "ours/values", tf.int64, 10),
            "flat": ragged(tf.string),
            "rows": ragged(tf.int64, value_key="v", partitions=[ragged.RowLengths("l")]),
            "deep": ragged(
                tf.float32,
                partitions=[ragged.RowLengths("m"), ragged.RowLengths("n"), ragged.UniformRowLength(3)],
            ),
        }
    )
    assert schema == Schema(
        {
            "fixed": Float32((2, 3)),
            "scalar": Bytes(default=b""),
            "one": Int64((1,), default=[-1]),
            "loose": Int64(default=7),
            "tensor": Float32((2,), default=[1.0, 2.0]),
            "var": Int64((None,), optional=True),
            "seq": Int64((None, 2), default=[]),
            "sparse": Sparse("float32", 10, index_key="ix", value_key="val", default=((), ())),
            "sparse1": Sparse("int64", 10, index_key="a", value_key="b", default=((), ())),
            "ours": Sparse("int64", 10, default=((), ())),
            "flat": Bytes((None,), default=[]),
            "rows": Int64((None, None), key="v", partitions=("l",), default=[]),
            "deep": Float32((None, None, None, 3), partitions=("m", "n"), default=[]),
        }
    )


def test_a_sequence_spec_is_a_sequence_schema(tf):
    schema = Schema.from_tf_spec(
        (
            {"id": tf.io.FixedLenFeature([], tf.string), "tags": tf.io.VarLenFeature(tf.int64)},
            {
                "frame": tf.io.FixedLenSequenceFeature([2], tf.float32),
                "maybe": tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),
                "words": tf.io.VarLenFeature(tf.string),
                "rows": tf.io.RaggedFeature(tf.int64),
            },
        )
    )
    assert schema == Schema(
        context={"id": Bytes(), "tags": Int64((None,), optional=True)},
        steps={
            "frame": Float32((2,)),
            "maybe": Int64(optional=True),
            "words": Bytes((None,), optional=True),
            "rows": Int64((None,), optional=True),
        },
    )


def test_a_spec_survives_the_way_through_a_schema(tf):
    ragged = tf.io.RaggedFeature
    spec = {
        "fixed": tf.io.FixedLenFeature([2], tf.int64),
        "default": tf.io.FixedLenFeature([], tf.float32, 0.5),
        "var": tf.io.VarLenFeature(tf.string),
        "flat": ragged(tf.int64),
        "rows": ragged(tf.int64, partitions=[ragged.RowLengths("l"), ragged.UniformRowLength(2)]),
        "sparse": tf.io.SparseFeature("ix", "val", tf.float32, 10),
    }
    assert Schema.from_tf_spec(spec).to_tf_spec() == spec


def refused_specs(tf):
    ragged = tf.io.RaggedFeature
    sequence = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
    fixed = tf.io.FixedLenFeature([], tf.int64)
    sparse = tf.io.SparseFeature("i", "v", tf.int64, 5)
    yield {"a": ragged(tf.int64, partitions=[ragged.RowSplits("k")])}
    yield {"a": ragged(tf.int64, partitions=[ragged.RowStarts("k")])}
    yield {"a": ragged(tf.int64, partitions=[ragged.RowLimits("k")])}
    yield {"a": ragged(tf.int64, partitions=[ragged.ValueRowIds("k")])}
    yield {"a": ragged(tf.int64, partitions=[ragged.UniformRowLength(2), ragged.RowLengths("k")])}
    yield {"a": tf.io.SparseFeature(["i", "j"], "v", tf.int64, [5, 5])}
    yield {"a": tf.io.SparseFeature("i", "v", tf.string, 5)}
    yield {"a": tf.io.FixedLenSequenceFeature([], tf.int64)}
    yield {"a": tf.io.FixedLenFeature([None], tf.int64)}
    yield {"a": tf.io.FixedLenFeature([2], tf.int64, default_value=[1])}
    yield {"a": tf.io.FixedLenFeature(None, tf.int64)}
    yield {"a": tf.io.FixedLenFeature([], tf.int32)}
    yield {"a": tf.io.VarLenFeature(tf.float64)}
    yield {"a": tf.int64}
    yield ({"a": sparse}, {})
    yield ({"a": sequence}, {})
    yield ({}, {"a": fixed})
    yield ({}, {"a": sparse})
    yield ({}, {"a": 3})


def test_specs_that_no_schema_can_express_are_refused_by_name(tf):
    for spec in refused_specs(tf):
        with pytest.raises(SchemaError) as caught:
            Schema.from_tf_spec(spec)
        error = caught.value
        assert (error.code, error.location.feature) == ("S120", "a"), spec
        assert all([error.expected, error.found, error.do])


def test_a_default_of_another_type_is_refused_as_tensorflow_would(tf):
    spec = {"a": tf.io.FixedLenFeature([], tf.int64, default_value=0.5)}
    with pytest.raises(SchemaError) as caught:
        Schema.from_tf_spec(spec)
    assert (caught.value.code, caught.value.location.feature) == ("S106", "a")


@pytest.mark.parametrize("spec", [None, 3, [], ({},), ({}, {}, {}), "spec"])
def test_what_is_no_spec_is_refused(spec):
    with pytest.raises(SchemaError) as caught:
        Schema.from_tf_spec(spec)
    assert (caught.value.code, caught.value.location.feature) == ("S120", None)


def test_what_tensorflow_reads_as_empty_a_schema_from_its_spec_declares_so(tf, example):
    spec = {
        "ragged": tf.io.RaggedFeature(tf.int64),
        "seq": tf.io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True),
    }
    parsed = tf.io.parse_single_example(example({}), spec)
    schema = Schema.from_tf_spec(spec)
    for name, tensor in parsed.items():
        default = schema[name].default_value()
        np.testing.assert_array_equal(default, tensor.numpy())
        assert default.shape == tensor.shape


def test_without_tensorflow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(UsageError) as caught:
        Schema({"a": Int64()}).to_tf_spec()
    assert (caught.value.code, caught.value.location.feature) == ("U602", None)
    assert caught.value.do == "pip install 'rekord[tensorflow]'"
