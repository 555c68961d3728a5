"""Messages that TensorFlow and protobuf raise here and now are recognised, with the code that belongs to them."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from record_strategies import ints

from rekord.health.tensorflow.known_messages import explain_message
from rekord.testing import (
    corrupt_length,
    corrupt_payload,
    entry,
    example,
    feature_list,
    frames,
    sequence_example,
)
from rekord.testing.wire import bytes_list, feature, float_list

TEXT = feature(("bytes", bytes_list([b"cat"])))
TEXTS = feature(("bytes", bytes_list([b"cat", b"dog"])))
FLOATS = feature(("float", float_list([0.5, 1.5, 2.5])))
LABEL = example(entry("label", ints(1)))


def said(call: Callable[[], object]) -> str:
    """What is printed when a call fails, as the last line of a traceback."""
    try:
        call()
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    raise AssertionError("nothing was raised")


def in_pipeline(tf: ModuleType, payload: bytes, parse: Callable[[Any], Any]) -> Callable[[], object]:
    """The same inside `tf.data`, which puts a lot around the message."""
    return lambda: list(tf.data.Dataset.from_tensors(payload).map(parse))


def parse_cases(tf: ModuleType) -> Iterator[tuple[bytes, Any, str]]:
    fixed, var, ragged = tf.io.FixedLenFeature, tf.io.VarLenFeature, tf.io.RaggedFeature
    sequence = tf.io.FixedLenSequenceFeature
    text, floats = example(entry("a", TEXT)), example(entry("a", FLOATS))
    yield text, {"a": fixed([], tf.float32)}, "D403"
    yield text, {"a": var(tf.int64)}, "D403"
    yield floats, {"a": ragged(tf.int64)}, "D403"
    yield floats, {"a": fixed([], tf.float32)}, "D402"
    yield floats, {"a": fixed([5], tf.float32)}, "D402"
    yield floats, {"a": sequence([2], tf.float32, allow_missing=True)}, "D402"
    yield example(entry("a", TEXTS)), {"a": fixed([], tf.string)}, "D402"
    yield LABEL, {"a": fixed([], tf.string)}, "D401"
    yield b"abc", {"a": var(tf.int64)}, "H715"
    yield floats, {"a": ragged(tf.float32, partitions=[ragged.UniformRowLength(2)])}, "D406"
    yield floats, {"s": tf.io.SparseFeature("i", "a", tf.float32, 3)}, "D407"
    lengths = ragged(tf.float32, value_key="a", partitions=[ragged.RowLengths("n")], validate=True)
    yield floats, {"r": lengths}, "D407"


def test_what_the_parsers_of_examples_say(tf: ModuleType) -> None:
    for payload, spec, code in parse_cases(tf):
        for call in (
            lambda: tf.io.parse_example([payload], spec),  # noqa: B023
            in_pipeline(tf, payload, lambda record: tf.io.parse_single_example(record, spec)),  # noqa: B023
            in_pipeline(tf, payload, lambda record: tf.io.parse_example([record], spec)),  # noqa: B023
        ):
            text = said(call)
            found = explain_message(text)
            assert found is not None, text
            assert found.code == code, text


def test_what_the_parsers_of_sequences_say(tf: ModuleType) -> None:
    steps = tf.io.FixedLenSequenceFeature
    two = sequence_example(entry("c", ints(1, 2)), entry("a", feature_list([ints(1), ints(1, 2, 3)])))
    cases = [
        ({"c": tf.io.FixedLenFeature([], tf.float32)}, None, "D403"),
        ({"c": tf.io.FixedLenFeature([], tf.int64)}, None, "D402"),
        ({"b": tf.io.FixedLenFeature([], tf.int64)}, None, "D401"),
        (None, {"a": steps([], tf.float32)}, "D403"),
        (None, {"a": steps([], tf.int64)}, "D402"),
        (None, {"a": steps([3], tf.int64)}, "D402"),
        (None, {"b": steps([], tf.int64)}, "D401"),
    ]
    for context, lists, code in cases:
        for call in (
            lambda: tf.io.parse_sequence_example([two], context, lists),  # noqa: B023
            lambda: tf.io.parse_single_sequence_example(two, context, lists),  # noqa: B023
        ):
            text = said(call)
            found = explain_message(text)
            assert found is not None, text
            assert found.code == code, text


def test_what_is_said_of_damaged_files(tf: ModuleType, tmp_path: Path) -> None:
    good = frames([LABEL] * 5)
    squeezed = gzip.compress(good, mtime=0)
    files = [
        (good[:-3], "", "F104"),
        (corrupt_length(good, 2), "", "F102"),
        (corrupt_payload(good, 2), "", "F102"),
        (corrupt_length(good, 0), "", "F120"),
        (squeezed, "", "F120"),
        (b"<!DOCTYPE html><html></html>" * 3, "", "F120"),
        (good, "GZIP", "H701"),
        (good, "ZLIB", "H701"),
        (zlib.compress(good), "GZIP", "H701"),
        (squeezed[:-20], "GZIP", "C202"),
        (squeezed[:-8] + bytes(4) + squeezed[-4:], "GZIP", "C204"),
    ]
    path = tmp_path / "x.tfrecord"
    for content, compression, code in files:
        path.write_bytes(content)
        text = said(lambda: list(tf.data.TFRecordDataset(str(path), compression)))  # noqa: B023
        found = explain_message(text)
        assert found is not None, text
        assert found.code == code, text
    for missing, code in ((tmp_path / "no.tfrecord", "X501"), (tmp_path, "X503")):
        found = explain_message(said(lambda: list(tf.data.TFRecordDataset(str(missing)))))  # noqa: B023
        assert found is not None
        assert found.code == code


def test_what_the_later_stages_say(tf: ModuleType) -> None:
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "JPEG")
    jpeg = file.getvalue()
    file = io.BytesIO()
    Image.new("RGB", (40, 40)).save(file, "BMP")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: tf.reshape(tf.zeros(48), [4, 3]), "D406"),
        (lambda: tf.io.decode_raw(bytes(5), tf.float32), "D406"),
        (lambda: tf.io.decode_raw([bytes(5), bytes(4)], tf.uint8), "D406"),
        (lambda: tf.io.decode_jpeg(jpeg[:40]), "H762"),
        (lambda: tf.io.decode_jpeg(file.getvalue()), "H764"),
        (lambda: tf.io.decode_png(b"hello world"), "H763"),
        (lambda: tf.io.decode_image(b""), "H760"),
        (lambda: tf.io.decode_png(b"\x89PNG\r\n\x1a\n" + bytes(60)), "H762"),
        (lambda: tf.io.parse_tensor(b"abc", tf.float32), "D406"),
        (lambda: tf.io.parse_tensor(tf.io.serialize_tensor([1]), tf.float32), "D406"),
        (lambda: tf.strings.to_number(b"cat"), "D403"),
    ]
    for call, code in calls:
        text = said(call)
        found = explain_message(text)
        assert found is not None, text
        assert found.code == code, text


def test_what_pipelines_say_of_data_that_does_not_fit(tf: ModuleType, tmp_path: Path) -> None:
    dataset = tf.data.Dataset

    def shapes(*found: tuple[int, ...]) -> Any:
        arrays = [np.zeros(each, np.float32) for each in found]
        return dataset.from_generator(lambda: iter(arrays), output_signature=tf.TensorSpec(None, tf.float32))

    def box(value: float) -> None:  # as the Object Detection API asserts it
        tf.debugging.Assert(value < 1, ["maximum box coordinate value is larger than 1.100000: ", value])

    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: list(shapes((4, 4, 3), (5, 4, 3)).batch(2)), "H758"),
        (lambda: list(shapes((4, 4, 3), (4, 4, 1)).batch(2)), "H738"),
        (lambda: list(shapes((3,), (4,)).batch(2)), "H758"),
        (lambda: tf.zeros([0])[0], "D402"),
        (lambda: tf.zeros([0])[-1], "D402"),
        (lambda: tf.gather(tf.zeros([0]), [0]), "D402"),
        (lambda: tf.gather(tf.zeros([3]), [7]), "H750"),
        (lambda: tf.slice(tf.zeros([100, 4]), [0, 0], [109, 4]), "H758"),
        (lambda: tf.constant(None), "E301"),
        (lambda: tf.convert_to_tensor(np.array([None, 1], object)), "E301"),
        (lambda: tf.convert_to_tensor(np.array([[1, 2], [3]], object)), "E308"),
        (lambda: tf.cast(tf.constant("cat"), tf.float32), "D403"),
        (lambda: list(dataset.from_tensors("cat").map(lambda x: tf.cast(x, tf.int64))), "D403"),
        (lambda: tf.reshape(tf.zeros([4]), tf.constant([2.0, 2.0])), "D403"),
        (lambda: tf.one_hot(tf.constant(1.0), 3), "D403"),
        (lambda: tf.debugging.check_numerics(tf.constant(float("nan")), "loss"), "H751"),
        (lambda: dataset.list_files(str(tmp_path / "*.tfrecord")), "X501"),
        (lambda: box(1.18), "H771"),
        (lambda: box(447.0), "E383"),
        (
            lambda: list(dataset.from_tensors(b"").map(lambda x: tf.image.resize(tf.io.decode_image(x), [4, 4]))),
            "D406",
        ),
        (lambda: tf.io.read_file(str(tmp_path / "none")), "X501"),
    ]
    for call, code in calls:
        text = said(call)
        found = explain_message(text)
        assert found is not None, text
        assert found.code == code, text


def test_what_keras_says_of_labels_and_shapes(tf: ModuleType) -> None:
    import keras

    images = np.zeros((4, 8, 8, 3), np.float32)

    def fit(data: Any, loss: str) -> None:
        layers = [keras.layers.Input((8, 8, 3)), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)]
        model = keras.Sequential(layers)
        model.compile(loss=loss)
        model.fit(data, verbose=0, shuffle=False)

    sparse, dense = "sparse_categorical_crossentropy", "categorical_crossentropy"
    batch = tf.data.Dataset.from_tensors
    text = tf.io.serialize_tensor(tf.zeros([8, 8, 3]))
    parsed = batch(text).map(lambda x: (tf.io.parse_tensor(x, tf.float32), tf.zeros([]))).batch(1)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: fit(batch((images, np.zeros((4, 3)))), sparse), "D402"),
        (lambda: fit(batch((images, np.zeros(4))), dense), "D402"),
        (lambda: fit(batch((images[0], np.zeros(()))), sparse), "D402"),
        (lambda: fit(parsed, sparse), "D406"),
    ]
    for call, code in calls:
        text = said(call)
        found = explain_message(text)
        assert found is not None, text
        assert found.code == code, text


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        ("BytesList", ["cat"], "E302"),
        ("BytesList", [None], "E301"),
        ("BytesList", b"cat", "E305"),
        ("BytesList", [np.zeros(3)], "E302"),
        ("Int64List", [None], "E301"),
        ("Int64List", [1.5], "E304"),
        ("Int64List", np.array([1.0]), "E304"),
        ("Int64List", ["1"], "E303"),
        ("Int64List", [[1]], "E302"),
        ("Int64List", 1, "E306"),
        ("Int64List", np.zeros((2, 2), np.int64), "E306"),
        ("Int64List", [2**63], "E310"),
        ("FloatList", [None], "E301"),
        ("FloatList", ["a"], "E303"),
        ("FloatList", 1.0, "E306"),
    ],
)
def test_what_protobuf_says_of_values_that_it_does_not_take(tf: ModuleType, kind: str, value: Any, code: str) -> None:
    text = said(lambda: getattr(tf.train, kind)(value=value))
    found = explain_message(text)
    assert found is not None, text
    assert found.code == code, text


def test_what_protobuf_says_of_a_payload_that_it_cannot_parse(tf: ModuleType) -> None:
    found = explain_message(said(lambda: tf.train.Example.FromString(LABEL[:-1])))
    assert found is not None
    assert found.code == "W202"
