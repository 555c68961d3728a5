"""TensorFlow is the judge of what we write: the values, the bytes and whole files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_strategies import rows, schemas

from rekord.codec.encode import encode, store_value
from rekord.codec.encode_columns import encode_columns
from rekord.codec.plan import plan_slots
from rekord.dataset.writer import Writer
from rekord.errors import SchemaError
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
    Timestamp,
)
from rekord.testing import frames

KINDS = {1: "bytes_list", 2: "float_list", 3: "int64_list"}


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


def lengths_of(value: Any, levels: int) -> list[list[int]]:
    out = []
    for _ in range(levels):
        out.append([len(part) for part in value])
        value = [inner for part in value for inner in part]
    return out


def expected_lists(feature: Feature, value: Any) -> list[list[Any]]:
    """What each record key of a column should hold, worked out the plain way."""
    match feature:
        case Tensor():
            return [store_value(feature, value)[0]]  # its bytes have tests of their own
        case Sparse():
            order = sorted(zip(*value, strict=True), key=lambda pair: pair[0])
            numbers = [float(pair[1]) if feature.kind == "float" else int(pair[1]) for pair in order]
            return [[pair[0] for pair in order], numbers]
        case Boxes():
            return [[float(box[side]) for box in value] for side in range(4)]
        case Image():
            return [[bytes(value)]]
        case Mask():
            return [store_value(feature, value)[0]]
        case Label():
            names = feature.names or ()
            return [[names.index(one) if isinstance(one, str) else one for one in leaves(value)]]
        case Text():
            flat: list[Any] = [text.encode() for text in leaves(value)]
        case Int64():
            # uint64 is stored bit for bit.
            flat = [number - 2**64 if number >= 2**63 else number for number in leaves(value)]
        case Timestamp():
            flat = [int(one.astype(np.int64)) for one in leaves(value)]
        case _:
            flat = leaves(value)
    partitions = getattr(feature, "partitions", ())
    return [flat, *lengths_of(value, len(partitions))]


def column_lists(name: str, feature: Feature, value: Any) -> dict[str, tuple[int, list[Any]]]:
    """The record's lists for one column of a row, none where it is missing."""
    slots = plan_slots(name, feature)
    if value is None:
        return {slot.key: (slot.kind, list(slot.fill)) for slot in slots if slot.fill is not None}
    lists = expected_lists(feature, value)
    return {slot.key: (slot.kind, list_) for slot, list_ in zip(slots, lists, strict=True)}


def put(feature: Any, kind: int, values: list[Any]) -> None:
    target = getattr(feature, KINDS[kind])
    target.SetInParent()  # an empty list has its kind too
    target.value.extend(values)


def assert_same_bytes(ours: bytes, message: Any) -> None:
    """Byte for byte; but where one key begins with another, protobuf for Python puts the longer one first."""
    theirs = message.SerializeToString(deterministic=True)
    assert type(message).FromString(ours).SerializeToString(deterministic=True) == theirs
    maps = [message.features.feature] if hasattr(message, "features") else []
    if not maps:
        maps = [message.context.feature, message.feature_lists.feature_list]
    for keys in (sorted(one) for one in maps):
        if any(longer.startswith(key) for key, longer in pairwise(keys)):
            assert len(ours) == len(theirs)
            return
    assert ours == theirs


@st.composite
def schema_and_row(draw: st.DrawFn, sequences: bool) -> tuple[Schema, dict[str, Any]]:
    schema = draw(schemas(sequences=sequences))
    return schema, draw(rows(schema))


@settings(max_examples=300)
@given(schema_and_row(False))
def test_protobuf_writes_the_same_bytes(pb: ModuleType, drawn: tuple[Schema, dict[str, Any]]) -> None:
    schema, row = drawn
    message = pb.Example()
    message.features.SetInParent()
    for name, feature in schema.items():
        for key, (kind, values) in column_lists(name, feature, row.get(name)).items():
            put(message.features.feature[key], kind, values)
    assert_same_bytes(encode(row, schema), message)


@settings(max_examples=200)
@given(schema_and_row(True))
def test_protobuf_writes_the_same_sequences(pb: ModuleType, drawn: tuple[Schema, dict[str, Any]]) -> None:
    schema, row = drawn
    message = pb.SequenceExample()
    message.context.SetInParent()
    message.feature_lists.SetInParent()
    for name, feature in schema.context.items():
        for key, (kind, values) in column_lists(name, feature, row.get(name)).items():
            put(message.context.feature[key], kind, values)
    for name, feature in schema.steps.items():
        steps = row.get(name)
        if steps is None:
            continue
        for slot in plan_slots(name, feature):
            message.feature_lists.feature_list[slot.key].SetInParent()
        for step in steps:
            for key, (kind, values) in column_lists(name, feature, step).items():
                put(message.feature_lists.feature_list[key].feature.add(), kind, values)
    assert_same_bytes(encode(row, schema), message)


@settings(max_examples=100)
@given(st.data())
def test_columns_give_the_bytes_of_rows(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    many = data.draw(st.lists(rows(schema), min_size=1, max_size=4))
    columns = {name: [row.get(name) for row in many] for name in schema}
    if columns:
        assert encode_columns(columns, schema) == frames([encode(row, schema) for row in many])


def with_spec(schema: Schema) -> Schema:
    """The columns that a tf.io spec can express."""

    def kept(columns: Any, wrap: Any) -> dict[str, Feature]:
        found = {}
        for name, feature in columns.items():
            if isinstance(feature, Mask) and feature.of not in found:
                continue
            needed = {feature.of: columns[feature.of]} if isinstance(feature, Mask) and feature.of else {}
            try:
                wrap({**needed, name: feature}).to_tf_spec()
            except SchemaError:
                continue
            found[name] = feature
        return found

    if not schema.is_sequence:
        return Schema(kept(schema.context, Schema))
    context = kept(schema.context, lambda one: Schema(context=one, steps={}))
    return Schema(context=context, steps=kept(schema.steps, lambda one: Schema(context={}, steps=one)))


def flat_values(tensor: Any) -> list[Any]:
    """All values of a dense, ragged or sparse tensor, in order."""
    if hasattr(tensor, "flat_values"):
        return tensor.flat_values.numpy().ravel().tolist()
    if hasattr(tensor, "indices"):
        return tensor.values.numpy().ravel().tolist()
    array = tensor.numpy()
    # np.asarray of a scalar byte string would strip its zeros.
    return array.ravel().tolist() if isinstance(array, np.ndarray) else [array]


def alike(found: list[Any], expected: list[Any]) -> bool:
    def one(a: Any, b: Any) -> bool:
        if isinstance(a, float) and isinstance(b, float):
            return np.float32(a).tobytes() == np.float32(b).tobytes()
        return bool(a == b) or (a != a and b != b)  # NaN, as a float32 of NumPy's

    return len(found) == len(expected) and all(map(one, found, expected))


@settings(max_examples=60)
@given(schema_and_row(False))
def test_parse_example_gives_the_values(tf: ModuleType, drawn: tuple[Schema, dict[str, Any]]) -> None:
    schema, row = drawn
    schema = with_spec(schema)
    spec = schema.to_tf_spec()
    if not spec:
        return
    parsed = tf.io.parse_example([encode({k: v for k, v in row.items() if k in schema}, schema)], spec)
    for name, feature in schema.items():
        lists = column_lists(name, feature, row.get(name))
        if isinstance(feature, Sparse):
            (indices, values) = (list_ for _, list_ in lists.values()) if lists else ([], [])
            tensor = parsed[feature.key or name]
            assert [place[1] for place in tensor.indices.numpy().tolist()] == indices
            assert alike(tensor.values.numpy().tolist(), values)
            continue
        for key, (_, values) in lists.items():
            if key in parsed:  # row lengths are part of the tensor that they belong to
                assert alike(flat_values(parsed[key]), values), key
        if not lists:
            assert all(flat_values(parsed[key]) == [] for key in feature.record_keys(name) if key in parsed)


@settings(max_examples=40)
@given(schema_and_row(True))
def test_parse_single_sequence_example_gives_the_values(tf: ModuleType, drawn: tuple[Schema, dict[str, Any]]) -> None:
    schema, row = drawn
    schema = with_spec(schema)
    context_spec, step_spec = schema.to_tf_spec()
    if not context_spec and not step_spec:
        return
    payload = encode({k: v for k, v in row.items() if k in schema}, schema)
    context, steps = tf.io.parse_single_sequence_example(payload, context_spec or None, step_spec or None)
    for name, feature in schema.context.items():
        for key, (_, values) in column_lists(name, feature, row.get(name)).items():
            if key in context:
                assert alike(flat_values(context[key]), values), key
    for name, feature in schema.steps.items():
        joined: dict[str, list[Any]] = {}
        for step in row.get(name) or []:
            for key, (_, values) in column_lists(name, feature, step).items():
                joined.setdefault(key, []).extend(values)
        for key, values in joined.items():
            if key in steps:
                assert alike(flat_values(steps[key]), values), key


def test_ragged_rows_come_back_as_they_were(tf: ModuleType) -> None:
    schema = Schema(
        {
            "words": Text((None, None), partitions=("words/lengths",)),
            "boxes": Float32((None, 4)),
            "tokens": Int64((None,)),
        }
    )
    many = [
        {"words": [["a", "b"], [], ["c"]], "boxes": [[0, 1, 2, 3]], "tokens": [1, -1]},
        {"words": [], "boxes": [], "tokens": []},
    ]
    parsed = tf.io.parse_example([encode(row, schema) for row in many], schema.to_tf_spec())
    assert parsed["words"].to_list() == [[[b"a", b"b"], [], [b"c"]], []]
    assert parsed["boxes"].to_list() == [[[0.0, 1.0, 2.0, 3.0]], []]
    assert parsed["tokens"].to_list() == [[1, -1], []]


@pytest.mark.parametrize(("compression", "theirs"), [(None, ""), ("gzip", "GZIP"), ("zlib", "ZLIB")])
def test_tfrecorddataset_reads_our_files_whole(
    tf: ModuleType, tmp_path: Path, compression: str | None, theirs: str
) -> None:
    schema = Schema({"i": Int64(), "blob": Bytes()})
    chance = np.random.default_rng(1)
    many = [{"i": i, "blob": chance.bytes(int(chance.integers(0, 200_000)))} for i in range(60)]
    with Writer(tmp_path / "x", schema, compression=compression) as writer:
        for row in many[:40]:
            writer.write(row)
        writer.write_columns({name: [row[name] for row in many[40:]] for name in schema})
    assert compression is None or len(writer.flush_points) >= 3
    found = list(tf.data.TFRecordDataset(str(tmp_path / "x"), compression_type=theirs).as_numpy_iterator())
    assert found == [encode(row, schema) for row in many]


def test_a_tutorial_reader_reads_a_typical_row(tf: ModuleType) -> None:
    schema = Schema(
        {
            "image": Image(format="png", key="image/encoded"),
            "label": Label(["cat", "dog"]),
            "vec": Float32((3,)),
            "caption": Text(optional=True),
        }
    )
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    payload = encode({"image": pixels, "label": "dog", "vec": [1, 2, 3]}, schema)
    parsed = tf.io.parse_single_example(
        payload,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string),
            "label": tf.io.FixedLenFeature([], tf.int64),
            "vec": tf.io.FixedLenFeature([3], tf.float32),
            "caption": tf.io.FixedLenFeature([], tf.string, default_value=b"none"),
        },
    )
    assert np.array_equal(tf.io.decode_png(parsed["image/encoded"]).numpy(), pixels)
    assert (int(parsed["label"]), parsed["vec"].numpy().tolist()) == (1, [1.0, 2.0, 3.0])
    assert parsed["caption"].numpy() == b"none"
