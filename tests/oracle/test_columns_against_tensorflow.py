"""TensorFlow writes, both read: batches by a schema hold what tf.io's parsers give for its spec."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rekord as rk

RECORDS = 60
COMPRESSIONS = ["", "GZIP", "ZLIB"]

Row = dict[str, list[Any] | None]


@pytest.fixture(scope="module")
def feature(tf: Any) -> Callable[[list[Any] | None, str], Any]:
    """A tf.train.Feature of these values; with None its kind is left unset."""

    def made(values: list[Any] | None, kind: str) -> Any:
        result = tf.train.Feature()
        if values is not None:
            getattr(result, f"{kind}_list").SetInParent()
            getattr(result, f"{kind}_list").value.extend(values)
        return result

    return made


@pytest.fixture(scope="module")
def example(tf: Any, feature: Any) -> Callable[[Row, dict[str, str]], bytes]:
    def made(row: Row, kinds: dict[str, str]) -> bytes:
        keyed = {key: feature(values, kinds[key]) for key, values in row.items()}
        return tf.train.Example(features=tf.train.Features(feature=keyed)).SerializeToString()

    return made


@pytest.fixture(scope="module")
def sequence(tf: Any, feature: Any) -> Callable[..., bytes]:
    def made(context: Row, steps: dict[str, list[list[Any]]], kinds: dict[str, str]) -> bytes:
        message = tf.train.SequenceExample()
        for key, values in context.items():
            message.context.feature[key].CopyFrom(feature(values, kinds[key]))
        for key, values in steps.items():
            message.feature_lists.feature_list[key].SetInParent()
            for step in values:
                message.feature_lists.feature_list[key].feature.append(feature(step, kinds[key]))
        return message.SerializeToString()

    return made


@pytest.fixture(params=COMPRESSIONS, ids=["none", "gzip", "zlib"])
def write(tf: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[list[bytes]], Path]:
    """Has TensorFlow write a record file."""

    def written(payloads: list[bytes]) -> Path:
        path = tmp_path / "x.tfrecord"
        with tf.io.TFRecordWriter(str(path), options=request.param) as writer:
            for payload in payloads:
                writer.write(payload)
        return path

    return written


def _stacked(path: Path, schema: rk.Schema, batch_size: int) -> list[dict[str, Any]]:
    return list(rk.open(path, schema=schema).batches(batch_size, threads=2))


def _same(column: Any, tensor: Any) -> None:
    """A column and a dense, ragged or sparse tensor hold the same."""
    if hasattr(tensor, "to_list"):
        # To TensorFlow, a varying list that is absent is an empty one.
        assert [[] if row is None else row for row in _listed(column.tolist())] == tensor.to_list()
    elif hasattr(tensor, "dense_shape"):
        _same_sparse(column, tensor)
    else:
        dense = tensor.numpy()
        ours = column.to_numpy() if isinstance(column, rk.Strings) else np.asarray(column)
        assert ours.shape == dense.shape
        if dense.dtype == object:
            assert _listed(ours.tolist()) == dense.tolist()
        else:
            assert ours.dtype == dense.dtype
            assert ours.tobytes() == dense.tobytes()


def _same_sparse(column: Any, tensor: Any) -> None:
    rows: list[list[Any]] = [[] for _ in range(len(column))]
    if isinstance(column, rk.SparseColumn):
        assert int(tensor.dense_shape[1]) == column.size
        for (row, index), value in zip(tensor.indices.numpy(), tensor.values.numpy(), strict=True):
            rows[row].append((int(index), value))
        ours = [[] if pair is None else list(zip(*pair, strict=True)) for pair in column.tolist()]
        assert ours == rows
        return
    for (row, _), value in zip(tensor.indices.numpy(), tensor.values.numpy(), strict=True):
        rows[row].append(value.item() if isinstance(value, np.generic) else value)
    ours = [[] if value is None else list(np.ravel(value)) for value in _listed(column.tolist())]
    assert ours == rows


def _listed(rows: list[Any]) -> list[Any]:
    """Texts as the bytes that TensorFlow has."""
    if isinstance(rows, str):
        return rows.encode()  # type: ignore[return-value]
    return [_listed(row) for row in rows] if isinstance(rows, list) else rows


# ---- Examples ----

INTS = [0, 1, -1, 127, 128, 2**31, -(2**31), 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, -2.25, 3.4e38, 1e-45, float("inf"), float("-inf")]
STRINGS = [b"", b"x", b"0123456789abcdef", b"0123456789abcdefg", b"L" * 5000, "Größe 画像".encode()]


def _some(rng: random.Random, values: list[Any], count: int) -> list[Any]:
    return [rng.choice(values) for _ in range(count)]


SCHEMA = rk.Schema(
    {
        "int": rk.Int64(),
        "ints": rk.Int64(shape=(3,)),
        "float": rk.Float32(),
        "square": rk.Float32(shape=(2, 2)),
        "bytes": rk.Bytes(),
        "names": rk.Text(shape=(2,)),
        "label": rk.Label(2**62),
        "image": rk.Image(),
        "any_ints": rk.Int64(shape=(None,)),
        "any_floats": rk.Float32(shape=(None,)),
        "any_bytes": rk.Bytes(shape=(None,)),
        "boxes": rk.Float32(shape=(None, 4)),
        "cubes": rk.Int64(shape=(None, 2, 3)),
        "tokens": rk.Int64(shape=(None, None), partitions=("tokens/lengths",)),
        "deep": rk.Text(shape=(None, None, None), partitions=("deep/0", "deep/1")),
        "maybe_int": rk.Int64(optional=True),
        "maybe_pair": rk.Float32(shape=(2,), optional=True),
        "maybe_text": rk.Text(optional=True),
        "maybe_ints": rk.Int64(shape=(None,), optional=True),
        "filled": rk.Float32(default=0.5),
        "filled_ints": rk.Int64(shape=(2,), default=[7, 8]),
        "filled_text": rk.Text(default="nothing"),
        "tfidf": rk.Sparse("float32", size=100),
        "counts": rk.Sparse("int64", size=50, optional=True),
    }
)
KINDS = {
    key: kind
    for name, feature in SCHEMA.items()
    for key, kind in zip(feature.record_keys(name), feature.record_kinds(), strict=True)
}


def _lengths(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(4) for _ in range(count)]


def _row(rng: random.Random) -> Row:
    tokens = _lengths(rng, rng.randrange(4))
    outer = _lengths(rng, rng.randrange(3))
    inner = _lengths(rng, sum(outer))
    texts = [value for value in STRINGS if len(value) < 100]
    places = sorted(rng.sample(range(100), rng.randrange(4)))
    row: Row = {
        "int": _some(rng, INTS, 1),
        "ints": _some(rng, INTS, 3),
        "float": _some(rng, FLOATS, 1),
        "square": _some(rng, FLOATS, 4),
        "bytes": _some(rng, STRINGS, 1),
        "names": _some(rng, texts, 2),
        "label": [rng.randrange(10)],
        "image": _some(rng, STRINGS, 1),
        "any_ints": _some(rng, INTS, rng.randrange(9)),
        "any_floats": _some(rng, FLOATS, rng.randrange(9)),
        "any_bytes": _some(rng, STRINGS, rng.randrange(4)),
        "boxes": _some(rng, FLOATS, 4 * rng.randrange(3)),
        "cubes": _some(rng, INTS, 6 * rng.randrange(3)),
        "tokens": _some(rng, INTS, sum(tokens)),
        "tokens/lengths": tokens,
        "deep": _some(rng, texts, sum(inner)),
        "deep/0": outer,
        "deep/1": inner,
        "maybe_int": _some(rng, INTS, 1),
        "maybe_pair": _some(rng, FLOATS, 2),
        "maybe_text": _some(rng, texts, 1),
        "maybe_ints": _some(rng, INTS, 1 + rng.randrange(3)),
        "filled": _some(rng, FLOATS, 1),
        "filled_ints": _some(rng, INTS, 2),
        "filled_text": _some(rng, texts, 1),
        "tfidf/indices": places,
        "tfidf/values": _some(rng, FLOATS, len(places)),
        "counts/indices": [3, 9],
        "counts/values": [1, 2],
    }
    for key in [key for key in row if key.startswith(("maybe", "filled"))]:
        if rng.random() < 0.4:
            row[key] = None  # the kind is left unset
            if rng.random() < 0.5:
                del row[key]
    if rng.random() < 0.4:
        del row["counts/indices"], row["counts/values"]
    items = list(row.items())
    rng.shuffle(items)
    return dict(items)


@pytest.mark.parametrize("batch_size", [7, RECORDS])
def test_every_layout_of_an_example_is_what_parse_example_gives(tf, example, write, batch_size) -> None:
    rng = random.Random(11)
    payloads = [example(_row(rng), KINDS) for _ in range(RECORDS)]
    batches = _stacked(write(payloads), SCHEMA, batch_size)
    spec = SCHEMA.to_tf_spec()
    assert sum(len(batch["int"]) for batch in batches) == RECORDS
    for i, batch in enumerate(batches):
        parsed = tf.io.parse_example(tf.constant(payloads[i * batch_size : (i + 1) * batch_size]), spec)
        assert set(parsed) == set(SCHEMA)
        for name in SCHEMA:
            _same(batch[name], parsed[name])


def test_what_tensorflow_refuses_of_a_fixed_shape_is_refused(tf, example, tmp_path) -> None:
    schema = rk.Schema({"x": rk.Int64(shape=(2,)), "d": rk.Int64(default=3)})
    spec = schema.to_tf_spec()
    kinds = {"x": "int64", "d": "int64"}
    refused: list[tuple[Row, dict[str, str], str]] = [
        ({}, kinds, "D401"),
        ({"x": None}, kinds, "D401"),
        ({"x": []}, kinds, "D402"),
        ({"x": [1]}, kinds, "D402"),
        ({"x": [1, 2, 3]}, kinds, "D402"),
        ({"x": [1.0, 2.0]}, {"x": "float"}, "D403"),
        ({"x": [b"1", b"2"]}, {"x": "bytes"}, "D403"),
        # The default is for what is absent, not for what is empty.
        ({"x": [1, 2], "d": []}, kinds, "D402"),
        ({"x": [1, 2], "d": [1, 2]}, kinds, "D402"),
    ]
    for row, given, code in refused:
        payload = example(row, given)
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.parse_example(tf.constant([payload]), spec)
        with pytest.raises(rk.DecodeError) as caught:
            rk.decode(payload, schema)
        assert caught.value.code == code
    for row in ({"x": [1, 2]}, {"x": [1, 2], "d": None}):
        assert rk.decode(example(row, kinds), schema)["d"] == 3
        assert tf.io.parse_example(tf.constant([example(row, kinds)]), spec)["d"].numpy().tolist() == [3]


def test_a_varying_row_that_does_not_divide_is_refused_by_both(tf, example) -> None:
    schema = rk.Schema({"x": rk.Float32(shape=(None, 2))})
    payload = example({"x": [1.0, 2.0, 3.0]}, {"x": "float"})
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_example(tf.constant([payload]), schema.to_tf_spec())
    with pytest.raises(rk.DecodeError) as caught:
        rk.decode(payload, schema)
    assert caught.value.code == "D402"


def test_row_lengths_that_do_not_add_up_are_refused_by_both(tf, example) -> None:
    schema = rk.Schema({"x": rk.Int64(shape=(None, None), partitions=("l",))})
    kinds = {"x": "int64", "l": "int64"}
    # Without `validate`, TensorFlow makes a tensor of them that is none.
    lengths_of_rows = tf.io.RaggedFeature.RowLengths("l")
    spec = {"x": tf.io.RaggedFeature(tf.int64, partitions=[lengths_of_rows], validate=True)}
    for lengths in ([1], [2, 2], [4, -1]):
        payload = example({"x": [1, 2, 3], "l": lengths}, kinds)
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.parse_example(tf.constant([payload]), spec)
        with pytest.raises(rk.DecodeError) as caught:
            rk.decode(payload, schema)
        assert caught.value.code == "D407"


def test_a_tensor_is_what_decode_raw_gives(tf, example, write) -> None:
    schema = rk.Schema({"cube": rk.Tensor("uint16", shape=(2, 3)), "flags": rk.Tensor("bool", shape=(None,))})
    rng = np.random.default_rng(4)
    arrays = [rng.integers(0, 65536, (2, 3), np.uint16) for _ in range(9)]
    flags = [rng.integers(0, 2, i, np.uint8).astype(bool) for i in range(9)]
    kinds = {"cube": "bytes", "flags": "bytes"}
    payloads = [
        example({"cube": [array.tobytes()], "flags": [flag.tobytes()]}, kinds)
        for array, flag in zip(arrays, flags, strict=True)
    ]
    [batch] = _stacked(write(payloads), schema, 100)
    parsed = tf.io.parse_example(tf.constant(payloads), schema.to_tf_spec())
    cubes = tf.reshape(tf.io.decode_raw(parsed["cube"], tf.uint16), (-1, 2, 3)).numpy()
    np.testing.assert_array_equal(batch["cube"], cubes)
    assert batch["flags"].tolist() == [flag.tolist() for flag in flags]


# ---- SequenceExamples ----

SEQUENCE = rk.Schema(
    context={
        "id": rk.Text(),
        "labels": rk.Int64(shape=(None,)),
        "weight": rk.Float32(default=1.0),
        "maybe": rk.Int64(optional=True),
    },
    steps={
        "number": rk.Int64(),
        "rgb": rk.Float32(shape=(3,)),
        "frame": rk.Bytes(),
        "grid": rk.Int64(shape=(2, 2)),
        "words": rk.Text(shape=(None,)),
        "any_floats": rk.Float32(shape=(None,)),
        "pairs": rk.Int64(shape=(None, 2)),
        "maybe_number": rk.Int64(optional=True),
        "maybe_ints": rk.Int64(shape=(None,), optional=True),
    },
)
SEQUENCE_KINDS = {name: feature.kind for name, feature in SEQUENCE.items()}


def _sequence_row(rng: random.Random) -> tuple[Row, dict[str, list[list[Any]]]]:
    texts = [value for value in STRINGS if len(value) < 100]

    def steps(values: list[Any], count: Callable[[], int]) -> list[list[Any]]:
        return [_some(rng, values, count()) for _ in range(rng.randrange(4))]

    context: Row = {
        "id": _some(rng, texts, 1),
        "labels": _some(rng, INTS, rng.randrange(4)),
        "weight": _some(rng, FLOATS, 1),
        "maybe": _some(rng, INTS, 1),
    }
    for key in ("weight", "maybe"):
        if rng.random() < 0.4:
            del context[key]
    lists = {
        "number": steps(INTS, lambda: 1),
        "rgb": steps(FLOATS, lambda: 3),
        "frame": steps(STRINGS, lambda: 1),
        "grid": steps(INTS, lambda: 4),
        "words": steps(texts, lambda: rng.randrange(4)),
        "any_floats": steps(FLOATS, lambda: rng.randrange(4)),
        "pairs": steps(INTS, lambda: 2 * rng.randrange(3)),
        "maybe_number": steps(INTS, lambda: 1),
        "maybe_ints": steps(INTS, lambda: rng.randrange(4)),
    }
    for key in ("maybe_number", "maybe_ints"):
        if rng.random() < 0.4:
            del lists[key]
    return context, lists


def _same_value(value: Any, tensor: Any) -> None:
    """One row of a column and the tensor of one record."""
    if hasattr(tensor, "to_list"):
        assert _listed(_as_lists(value)) == tensor.to_list()
    elif hasattr(tensor, "dense_shape"):
        rows: list[list[Any]] = [[] for _ in range(int(tensor.dense_shape[0]))]
        if len(tensor.dense_shape) == 1:  # of the context
            assert ([] if value is None else np.ravel(value).tolist()) == tensor.values.numpy().tolist()
            return
        for (step, _), one in zip(tensor.indices.numpy(), tensor.values.numpy(), strict=True):
            rows[step].append(one)
        assert ([] if value is None else _as_lists(value)) == rows
    else:
        dense = tensor.numpy()
        expected = dense.tolist() if isinstance(dense, np.ndarray | np.generic) else dense
        assert _listed([] if value is None else _as_lists(value)) == expected


def _as_lists(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_lists(part) for part in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def test_every_layout_of_a_sequence_is_what_parse_single_sequence_example_gives(tf, sequence, write) -> None:
    rng = random.Random(5)
    rows = [_sequence_row(rng) for _ in range(RECORDS)]
    payloads = [sequence(context, steps, SEQUENCE_KINDS) for context, steps in rows]
    context_spec, step_spec = SEQUENCE.to_tf_spec()
    batches = _stacked(write(payloads), SEQUENCE, 7)
    found = [(batch, row) for batch in batches for row in range(len(batch["id"]))]
    assert len(found) == RECORDS
    for payload, (batch, row) in zip(payloads, found, strict=True):
        context, steps = tf.io.parse_single_sequence_example(payload, context_spec, step_spec)
        assert set(context) | set(steps) == set(SEQUENCE)
        for name, tensor in {**context, **steps}.items():
            _same_value(batch[name][row], tensor)


def test_ragged_steps_are_ragged_in_both_ways_in_a_batch(tf, sequence, write) -> None:
    rng = random.Random(6)
    payloads = [sequence(*_sequence_row(rng), SEQUENCE_KINDS) for _ in range(30)]
    context_spec, step_spec = SEQUENCE.to_tf_spec()
    ragged = {name: step_spec[name] for name in ("words", "any_floats", "pairs")}
    [batch] = _stacked(write(payloads), SEQUENCE, 100)
    _, steps, _ = tf.io.parse_sequence_example(tf.constant(payloads), context_spec, ragged)
    for name in ragged:
        assert isinstance(batch[name].values, rk.Ragged)
        assert _listed(batch[name].tolist()) == steps[name].to_list()


def test_what_tensorflow_refuses_of_steps_is_refused(tf, sequence) -> None:
    schema = rk.Schema(context={}, steps={"x": rk.Int64(shape=(2,))})
    _, step_spec = schema.to_tf_spec()
    refused: list[tuple[dict[str, list[list[Any]]], str, str]] = [
        ({}, "int64", "D401"),
        ({"x": [[1, 2], [1]]}, "int64", "D402"),
        ({"x": [[1, 2], []]}, "int64", "D402"),
        ({"x": [[1.0, 2.0]]}, "float", "D403"),
    ]
    for steps, kind, code in refused:
        payload = sequence({}, steps, {"x": kind})
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.parse_single_sequence_example(payload, {}, step_spec)
        with pytest.raises(rk.DecodeError) as caught:
            rk.decode(payload, schema)
        assert (caught.value.code, caught.value.location.feature) == (code, "x")


@pytest.mark.parametrize("mode", ["native", "ops"])
def test_times_reach_tensorflow_as_the_stored_numbers(tf: ModuleType, tmp_path: Path, mode: Any) -> None:
    schema = rk.Schema({"at": rk.Timestamp("ms", tz="UTC"), "seen": rk.Timestamp("s", optional=True)})
    rows = [{"at": np.datetime64(n, "ms"), "seen": np.datetime64(n, "s") if n else None} for n in range(3)]
    rk.write(rows, tmp_path / "data", schema=schema)
    split = rk.open(tmp_path / "data")["train"]
    (batch,) = split.to_tensorflow(3, mode=mode, fill={"seen": np.datetime64(9, "s")})
    assert batch["at"].dtype == batch["seen"].dtype == tf.int64
    assert sorted(batch["at"].numpy().tolist()) == [0, 1, 2]
    assert sorted(batch["seen"].numpy().tolist()) == [1, 2, 9]
