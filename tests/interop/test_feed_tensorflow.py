"""`to_tensorflow`: the values and the order of `batches`, in a tf.data.Dataset that says what it holds."""

from __future__ import annotations

import gc
import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from lifetimes import ended
from PIL import Image

import rekord as rk
from rekord.codec.columns import Optional, Ragged, SparseColumn, Strings

ROWS = 23

SCHEMA = rk.Schema(
    {
        "label": rk.Label(["a", "b", "c"]),
        "vec": rk.Float32((4,)),
        "wide": rk.Float32((200,)),
        "tokens": rk.Int64((None,)),
        "points": rk.Float32((None, 4)),
        "half": rk.Float32(dtype="float16"),
        "brain": rk.Float32(dtype="bfloat16"),
        "flag": rk.Int64(dtype="bool"),
        "unsigned": rk.Int64(dtype="uint64"),
        "small": rk.Int64((2,), dtype="int8"),
        "cube": rk.Tensor("uint16", (2, 3)),
        "wide32": rk.Tensor("uint32", ()),
        "double": rk.Tensor("float64", ()),
        "complex": rk.Tensor("complex64", (2,)),
        "strip": rk.Tensor("int16", (None, 2)),
        "sparse": rk.Sparse("float32", 30),
        "text": rk.Text(),
        "pair": rk.Bytes((2,)),
        "tags": rk.Text((None,)),
        "age": rk.Int64(optional=True),
        "note": rk.Text(optional=True),
        "maybe": rk.Int64((None,), optional=True),
        "maybe_cube": rk.Tensor("int32", (2,), optional=True),
        "maybe_sparse": rk.Sparse("int64", 9, optional=True),
        "score": rk.Float32(default=0.5),
        "boxes": rk.Boxes(),
    }
)
NATIVE_ONLY = rk.Schema(
    {
        "inner": rk.Tensor("float64", (2, None, 3)),
        "inner_list": rk.Int64((2, None)),
        "inner_text": rk.Text((2, None)),
        "nested": rk.Int64((None, None), partitions=("nested/lengths",)),
        "several": rk.Int64((None,), default=(7, 8)),
    }
)


def row_of(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    count = number % 4
    row: dict[str, Any] = {
        "label": number % 3,
        "vec": rng.random(4),
        "wide": rng.random(200),
        "tokens": list(range(count)),
        "points": rng.random((count, 4)),
        "half": number / 7,
        "brain": number / 3,
        "flag": number % 2 == 0,
        "unsigned": 2**64 - 1 - number,
        "small": [-number, number],
        "cube": rng.integers(0, 2**16, (2, 3)).astype(np.uint16),
        "wide32": np.uint32(2**32 - 1 - number),
        "double": rng.random(),
        "complex": np.array([1 + 2j, number], np.complex64),
        "strip": rng.integers(-9, 9, (count, 2)).astype(np.int16),
        "sparse": ([1, 2 + number], [0.5, -1.5]),
        "text": f"é{number}",
        "pair": [b"\xff" * number, b""],
        "tags": [f"t{i}" for i in range(count)],
        "boxes": rng.random((count, 4)),
    }
    if number % 3:
        row |= {"age": number, "note": f"n{number}", "maybe": [number] * (count + 1)}
        row |= {"maybe_cube": np.array([1, number], np.int32), "maybe_sparse": ([number % 9], [number])}
    if number % 5:
        row["score"] = number / 100
    return row


def inner_row(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    count = number % 3
    row: dict[str, Any] = {
        "inner": rng.random((2, count, 3)),
        "inner_list": rng.integers(0, 9, (2, count)),
        "inner_text": [["x"] * count, ["y"] * count],
        "nested": [list(range(i)) for i in range(count)],
    }
    if number % 2:
        row["several"] = [number]
    return row


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of three shards."""
    out = tmp_path_factory.mktemp("data") / "set"
    rows = [row_of(number) for number in range(ROWS)]
    rk.write(rows, out, schema=SCHEMA, shards=3, progress=False)
    return out


@pytest.fixture(scope="module")
def split(folder: Path) -> Any:
    return rk.open(folder)["train"]


def put(path: Path, schema: rk.Schema, rows: list[Any]) -> Any:
    with rk.Writer(path, schema) as writer:
        for row in rows:
            writer.write(row)
    return rk.open(path, schema)


def assert_same(got: Any, column: Any) -> None:
    """A tensor holds what a column of `batches` holds, to the bit."""
    if isinstance(got, dict):
        assert sorted(got) == ["valid", "values"]
        missing = None if isinstance(column, np.ndarray) else column.valid
        valid = np.ones(len(column), bool) if missing is None else missing
        np.testing.assert_array_equal(got["valid"].numpy(), valid)
        if isinstance(column, Optional):
            values = got["values"].numpy()
            assert values.dtype == column.values.dtype
            assert values[valid].tobytes() == column.values[valid].tobytes()
        else:
            assert_rows(got["values"], column, valid)
        return
    if isinstance(column, np.ndarray) and column.dtype != object:
        array = got.numpy()
        assert (array.dtype, array.shape) == (column.dtype, column.shape)
        assert array.tobytes() == column.tobytes()
    else:
        assert_rows(got, column, np.ones(len(column), bool))


def assert_rows(got: Any, column: Any, valid: Any) -> None:
    if isinstance(column, SparseColumn):
        assert got.dense_shape.numpy().tolist() == [len(column), column.size]
        assert got.dtype == tf.as_dtype(np.asarray(column.values.values).dtype)
        np.testing.assert_array_equal(tf.sparse.to_dense(got).numpy(), column.to_dense())
        return
    assert int(got.shape[0]) == len(column)
    for row, there in enumerate(valid):
        if there:
            assert plain(got[row]) == stored(column[row])


def plain(value: Any) -> Any:
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    return value.numpy().tolist() if value.shape.rank else value.numpy()


def stored(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return [stored(part) for part in value] if isinstance(value, list) else value


def assert_equal_batches(dataset: Any, batches: Any) -> int:
    given, expected = list(dataset), list(batches)
    assert len(given) == len(expected)
    for one, other in zip(given, expected, strict=True):
        assert list(one) == list(other)
        for name, column in other.items():
            assert_same(one[name], column)
    return len(given)


def numbers(dataset: Any) -> list[int]:
    """Which records came: `unsigned` counts down from the top."""
    return [2**64 - 1 - int(value) for batch in dataset for value in batch["unsigned"].numpy()]


@pytest.mark.parametrize("shuffle", [False, True, "block"])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
def test_native_batches_are_those_of_batches_in_every_order(split: Any, shuffle: Any, remainder: Any) -> None:
    asked: dict[str, Any] = {"shuffle": shuffle, "seed": 5, "remainder": remainder}
    dataset = split.to_tensorflow(5, **asked)
    count = assert_equal_batches(dataset, split.batches(5, **asked))
    assert count == int(dataset.cardinality()) == (4 if remainder == "drop" else 5)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_ranks_share_an_epoch_as_they_do_in_batches(split: Any, rank: int) -> None:
    asked: dict[str, Any] = {"shuffle": True, "seed": 1, "rank": rank, "world": 3}
    assert_equal_batches(split.to_tensorflow(2, **asked), split.batches(2, **asked))


def test_padded_and_filled_batches_are_dense(split: Any) -> None:
    asked: dict[str, Any] = {
        "ragged": "pad",
        "pad": {"tokens": -1, "tags": "?"},
        "fill": {"age": -5, "maybe_cube": 3},
    }
    dataset = split.to_tensorflow(5, **asked)
    assert_equal_batches(dataset, split.batches(5, **asked))
    spec = dataset.element_spec
    assert spec["tokens"] == tf.TensorSpec([None, None], tf.int64)
    assert spec["points"] == tf.TensorSpec([None, None, 4], tf.float32)
    assert spec["age"] == tf.TensorSpec([None], tf.int64)


def test_forms_that_only_native_mode_knows(tmp_path: Path) -> None:
    split = put(tmp_path / "x.tfrecord", NATIVE_ONLY, [inner_row(number) for number in range(9)])
    dataset = split.to_tensorflow(4, shuffle=True)
    assert_equal_batches(dataset, split.batches(4, shuffle=True))
    assert dataset.element_spec["inner"] == tf.RaggedTensorSpec([None, 2, None, 3], tf.float64, 2, tf.int64)
    assert_equal_batches(split.to_tensorflow(4, ragged="pad"), split.batches(4, ragged="pad"))


def test_the_element_spec_is_that_of_the_schema(split: Any) -> None:
    spec = split.to_tensorflow(4, remainder="drop").element_spec
    assert spec["vec"] == tf.TensorSpec([4, 4], tf.float32)
    assert spec["cube"] == tf.TensorSpec([4, 2, 3], tf.uint16)
    assert spec["brain"] == tf.TensorSpec([4], tf.bfloat16)
    assert spec["text"] == tf.TensorSpec([4], tf.string)
    assert spec["sparse"] == tf.SparseTensorSpec([4, 30], tf.float32)
    assert spec["points"] == tf.RaggedTensorSpec([4, None, 4], tf.float32, 1, tf.int64)
    assert spec["age"] == {"values": tf.TensorSpec([4], tf.int64), "valid": tf.TensorSpec([4], tf.bool)}
    assert split.to_tensorflow(4).element_spec["vec"] == tf.TensorSpec([None, 4], tf.float32)


def test_both_modes_say_the_same_of_their_elements(split: Any) -> None:
    native, ops = (split.to_tensorflow(4, mode=mode, remainder="drop") for mode in ("native", "ops"))
    assert list(native.element_spec) == list(ops.element_spec)
    for name, spec in native.element_spec.items():
        for one, other in zip(tf.nest.flatten(spec), tf.nest.flatten(ops.element_spec[name]), strict=True):
            assert (type(one), one.dtype) == (type(other), other.dtype), name


def test_every_iteration_is_the_next_epoch(split: Any) -> None:
    dataset = split.to_tensorflow(5, shuffle=True, seed=2, columns=["unsigned"])
    epochs = [numbers(dataset) for _ in range(3)]
    expected = [numbers_of(split, seed=2, epoch=epoch) for epoch in range(3)]
    assert epochs == expected
    assert epochs[0] != epochs[1]
    assert sorted(epochs[2]) == list(range(ROWS))


def numbers_of(split: Any, **asked: Any) -> list[int]:
    batches = split.batches(5, shuffle=True, columns=["unsigned"], **asked)
    return [2**64 - 1 - int(value) for batch in batches for value in batch["unsigned"]]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_look_at_the_first_batch_uses_no_epoch_up_and_more_does(split: Any, prefetch: int) -> None:
    dataset = split.to_tensorflow(5, shuffle=True, seed=2, columns=["unsigned"], prefetch=prefetch)
    for _ in range(3):
        assert numbers(dataset.take(1)) == numbers_of(split, seed=2, epoch=0)[:5]
    assert numbers(dataset.take(2)) == numbers_of(split, seed=2, epoch=0)[:10]
    assert len(numbers(dataset.take(5))) == ROWS  # the last was seen, the end was not
    assert numbers(dataset) == numbers_of(split, seed=2, epoch=2)
    assert numbers(dataset.repeat(2)) == numbers_of(split, seed=2, epoch=3) + numbers_of(split, seed=2, epoch=4)


def test_two_loops_at_once_are_the_same_epoch(split: Any) -> None:
    dataset = split.to_tensorflow(5, shuffle=True, seed=2, columns=["unsigned"])
    both = list(zip(dataset, dataset, strict=True))
    for loop in (0, 1):
        assert numbers([pair[loop] for pair in both]) == numbers_of(split, seed=2, epoch=0)
    assert numbers(dataset) == numbers_of(split, seed=2, epoch=1)


@pytest.mark.parametrize("batches", [-1, 1.5, "3", None, True])
def test_a_state_after_what_is_no_number_is_refused(split: Any, batches: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_tensorflow(5).state_after(batches)
    assert caught.value.code == "U605"


def test_a_state_is_fit_for_json_whatever_counted(split: Any, tmp_path: Path) -> None:
    dataset = split.to_tensorflow(5)
    assert json.loads(json.dumps(dataset.state_after(np.int64(3)))) == dataset.state_after(3)
    empty = put(tmp_path / "x.tfrecord", SCHEMA, []).to_tensorflow(5)
    assert empty.state_after(3) == empty.state_after(0)


@pytest.mark.concurrency
def test_an_iterator_left_behind_ends_its_threads(split: Any) -> None:
    others = set(threading.enumerate())
    batches = iter(split.to_tensorflow(1, threads=2, shuffle=True))
    next(batches)
    own = [one for one in set(threading.enumerate()) - others if one.name.startswith("rekord")]
    assert len(own) == 2
    del batches
    gc.collect()
    assert ended(own)


@pytest.mark.parametrize("prefetch", [0, 1, 10**12])
def test_any_number_of_batches_can_be_read_ahead(split: Any, prefetch: int) -> None:
    assert_equal_batches(split.to_tensorflow(5, prefetch=prefetch), split.batches(5))


@pytest.mark.parametrize("mode", ["native", "ops"])
def test_a_dataset_of_no_columns_is_refused(split: Any, mode: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_tensorflow(5, mode=mode, columns=[])
    assert caught.value.code == "U605"


@pytest.mark.parametrize("seen", [0, 1, 4, 5, 7, 10, 23])
def test_a_state_goes_on_with_the_next_batch(split: Any, seen: int) -> None:
    asked: dict[str, Any] = {"shuffle": True, "seed": 2, "columns": ["unsigned"]}
    whole = split.to_tensorflow(5, **asked)
    elements = [batch["unsigned"].numpy().tolist() for _ in range(6) for batch in whole]
    state = json.loads(json.dumps(whole.state_after(seen)))
    resumed = split.to_tensorflow(5, state=state, **asked)
    first = [batch["unsigned"].numpy().tolist() for batch in resumed]
    assert first == elements[seen : (seen // 5 + 1) * 5]
    again = [batch["unsigned"].numpy().tolist() for batch in resumed]
    assert first + again == elements[seen : (seen // 5 + 2) * 5]
    assert resumed.state_after(3) == whole.state_after(seen + 3)


def test_a_state_goes_over_to_other_feeds_and_worlds(split: Any) -> None:
    asked: dict[str, Any] = {"shuffle": True, "seed": 2, "columns": ["unsigned"]}
    state = split.to_tensorflow(5, **asked).state_after(2)
    batches = split.batches(5, **asked)
    batches.load_state_dict(state)
    rest = [2**64 - 1 - int(value) for batch in batches for value in batch["unsigned"]]
    assert rest == numbers_of(split, seed=2, epoch=0)[10:]
    ranks = [numbers(split.to_tensorflow(2, rank=rank, world=2, state=state, **asked)) for rank in (0, 1)]
    assert sorted(ranks[0] + ranks[1]) == sorted(rest)


def test_a_state_of_another_order_is_refused(split: Any) -> None:
    state = split.to_tensorflow(5, shuffle=True, seed=2).state_after(1)
    with pytest.raises(rk.UsageError) as caught:
        split.to_tensorflow(5, shuffle=True, seed=3, state=state)
    assert (caught.value.code, caught.value.what) == ("U609", "state belongs to another order")


def test_views_and_balanced_splits_go_over(split: Any) -> None:
    view = split[3:11]
    assert_equal_batches(view.to_tensorflow(3, shuffle=True), view.batches(3, shuffle=True))
    balanced = split.balanced(by="label")
    asked: dict[str, Any] = {"shuffle": True, "columns": ["label", "text"]}
    assert_equal_batches(balanced.to_tensorflow(4, **asked), balanced.batches(4, **asked))


def test_an_eager_loop_has_tensors_of_the_columns_of_one_batch(tmp_path):
    # Those of many batches would live long enough for the garbage collector to traverse everything because of them.
    columns = {f"c{i}": np.arange(4096) for i in range(100)}
    split = rk.write(columns, tmp_path / "x", progress=False)["train"]
    tensor = type(tf.constant(0))
    at_most = 0
    for batch in split.to_tensorflow(16):
        assert len(batch) == 100
        at_most = max(at_most, sum(isinstance(one, tensor) for one in gc.get_objects()))
    assert at_most < 2000  # 100 of the batch, and one for each batch that is ready


def test_batches_of_an_eager_loop_are_those_of_the_pipeline(tmp_path):
    rows = 1000
    columns = {
        "id": np.arange(rows),
        "pair": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2),
        "short": np.array([b"x" * (i % 7) for i in range(rows)], object),
        "other": np.array([b"%d" % i for i in range(rows)], object),
        "long": np.array([b"y" * (i % 900) for i in range(rows)], object),
    }
    split = rk.write(columns, tmp_path / "x", progress=False)["train"]
    dataset = split.to_tensorflow(32)
    eager, pipeline = list(dataset), list(split.to_tensorflow(32).map(lambda batch: batch))
    assert len(eager) == len(pipeline) == 32
    for one, other in zip(eager, pipeline, strict=True):
        for name in columns:
            np.testing.assert_array_equal(one[name].numpy(), other[name].numpy())
    assert [int(i) for batch in eager for i in batch["id"]] == list(range(rows))
    assert [text for batch in eager for text in batch["short"].numpy()] == [b"x" * (i % 7) for i in range(rows)]
    assert [text for batch in eager for text in batch["long"].numpy()] == [b"y" * (i % 900) for i in range(rows)]


def test_short_and_long_strings_arrive_alike(tmp_path: Path) -> None:
    """Short strings cross as one blob, long ones one by one: both in one dataset."""
    schema = rk.Schema({"data": rk.Bytes(), "name": rk.Text(), "list": rk.Bytes((None,))})
    rows = [
        {
            "data": bytes([number]) * (5000 if number >= 4 else number),
            "name": f"é{number}",
            "list": [b"z"] * number,
        }
        for number in range(8)
    ]
    split = put(tmp_path / "x.tfrecord", schema, rows)
    for batch_size in (4, 3, 8):
        assert_equal_batches(split.to_tensorflow(batch_size), split.batches(batch_size))
    empty = put(tmp_path / "y.tfrecord", rk.Schema({"data": rk.Bytes()}), [{"data": b""}] * 3)
    assert next(iter(empty.to_tensorflow(3)))["data"].numpy().tolist() == [b"", b"", b""]


def test_strings_of_every_length_arrive_whole(tmp_path: Path) -> None:
    """Lengths of one, two and three bytes in the tensor that crosses, in several columns and in pairs."""
    schema = rk.Schema({"a": rk.Bytes(), "b": rk.Text(), "pair": rk.Bytes((2,)), "list": rk.Text((None,))})
    lengths = [0, 1, 127, 128, 129, 16_383, 16_384, 20_000, *[3] * 90]
    rows = [
        {
            "a": b"\x00\xff" * (n // 2) + b"a" * (n % 2),
            "b": "b" * n,
            "pair": [b"", b"p" * n],
            "list": ["x" * n] * (i % 3),
        }
        for i, n in enumerate(lengths)
    ]
    split = put(tmp_path / "x.tfrecord", schema, rows)
    for batch_size in (98, 7):
        assert_equal_batches(split.to_tensorflow(batch_size), split.batches(batch_size))


def test_sequences_are_ragged_steps(tmp_path: Path) -> None:
    schema = rk.Schema(
        context={"id": rk.Text(), "label": rk.Int64(optional=True)},
        steps={
            "frame": rk.Float32((3,)),
            "word": rk.Text(),
            "tokens": rk.Int64((None,)),
            "maybe": rk.Int64(optional=True),
            "raw": rk.Tensor("int16", (2,)),
        },
    )
    rows = []
    for number in range(7):
        row: dict[str, Any] = {
            "id": f"i{number}",
            "frame": [[number, step, 0.5] for step in range(number % 3)],
            "word": [f"w{step}" for step in range(number % 3)],
            "tokens": [list(range(step)) for step in range(number % 3)],
            "raw": [np.array([step, number], np.int16) for step in range(number % 3)],
        }
        if number % 2:
            row |= {"label": number, "maybe": [number, 1]}
        rows.append(row)
    split = put(tmp_path / "x.tfrecord", schema, rows)
    native = split.to_tensorflow(3)
    assert_equal_batches(native, split.batches(3))
    assert native.element_spec["frame"] == tf.RaggedTensorSpec([None, None, 3], tf.float32, 1, tf.int64)
    assert_equal_batches(split.to_tensorflow(3, mode="ops"), split.batches(3))


def jpeg(height: int, width: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (height, width, 7)).save(out, "PNG")
    return out.getvalue()


def test_decoded_images_are_dense_with_a_size_and_ragged_without(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image(), "other": rk.Image(optional=True)})
    rows = [{"image": jpeg(2 + number, 3)} | ({"other": jpeg(2, 2)} if number % 2 else {}) for number in range(5)]
    split = put(tmp_path / "x.tfrecord", schema, rows)
    dataset = split.to_tensorflow(2, decode=True)
    assert dataset.element_spec["image"] == tf.RaggedTensorSpec([None, None, None, 3], tf.uint8, 2, tf.int64)
    for batch, expected in zip(dataset, split.batches(2, decode=True), strict=True):
        for row, image in enumerate(expected["image"]):
            assert batch["image"][row].to_list() == image.tolist()
    resized = split.to_tensorflow(2, decode=True, resize=(4, 6), remainder="drop")
    assert resized.element_spec["image"] == tf.TensorSpec([2, 4, 6, 3], tf.uint8)
    assert_equal_batches(resized, split.batches(2, decode=True, resize=(4, 6), remainder="drop"))
    padded = split.to_tensorflow(5, decode=True, ragged="pad", columns=["image"])
    assert padded.element_spec["image"] == tf.TensorSpec([None, None, None, 3], tf.uint8)
    assert_equal_batches(padded, split.batches(5, decode=True, ragged="pad", columns=["image"]))


def doubled(batch: Any) -> Any:
    return {"double": batch["vec"] * 2, "text": batch["text"], "sums": batch["tokens"].to_padded().sum(1)}


def test_a_function_is_tried_out_to_learn_what_it_gives(split: Any) -> None:
    dataset = split.to_tensorflow(5, map=doubled, shuffle=True)
    assert dataset.element_spec["double"] == tf.TensorSpec([None, 4], tf.float32)
    assert_equal_batches(dataset, split.batches(5, map=doubled, shuffle=True))
    mapped = split.map(doubled)
    assert_equal_batches(mapped.to_tensorflow(5), mapped.batches(5))
    longest = split.to_tensorflow(5, map=lambda batch: {"x": batch["tokens"].to_padded()})
    assert longest.element_spec["x"] == tf.TensorSpec([None, None], tf.int64)


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: {"x": [1, 2, 3]},
        lambda batch: {f"x{len(batch['vec'])}": batch["vec"]},
        lambda batch: {"x": batch["vec"].astype(np.float64 if len(batch["vec"]) == 1 else np.float32)},
        lambda batch: {},
    ],
)
def test_a_function_whose_columns_cannot_be_told_is_refused(split: Any, function: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_tensorflow(5, map=function)
    assert caught.value.code == "U676"
    assert "function" in caught.value.what


def identity(batch: Any) -> Any:
    return batch


def test_holes_that_come_late_go_through_a_function(tmp_path: Path) -> None:
    schema = rk.Schema({"text": rk.Text(optional=True), "list": rk.Int64((None,), optional=True)})
    there = {"text": "t", "list": [1]}
    split = put(tmp_path / "x.tfrecord", schema, [there] * 20 + [{}])
    dataset = split.to_tensorflow(7, map=identity)
    assert sorted(dataset.element_spec["text"]) == ["valid", "values"]
    assert_equal_batches(dataset, split.batches(7))


@pytest.mark.parametrize(
    "late",
    [
        lambda batch: {"x": batch["tokens"]},
        lambda batch: {"x": batch["text"]},
        lambda batch: {"x": batch["vec"].astype(np.float64)},
        lambda batch: {"x": batch["vec"], "y": batch["vec"]},
        lambda batch: {"y": batch["vec"]},
        lambda batch: {"x": 3},
        lambda batch: {"x": np.full((len(batch["vec"]), 4), "\ud800", object)},
    ],
)
def test_what_a_function_gives_later_is_held_against_what_it_gave_first(split: Any, late: Any) -> None:
    changes = split.to_tensorflow(
        10, map=lambda batch: {"x": batch["vec"]} if len(batch["vec"]) < 10 else late(batch)
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(changes)
    assert "UsageError U676" in caught.value.message
    assert "Traceback" not in caught.value.message.split("UsageError U676")[0]


@pytest.mark.parametrize("value", ["\ud800", 3])
def test_objects_that_are_no_strings_are_named(split: Any, value: Any) -> None:
    dataset = split.to_tensorflow(
        5, map=lambda batch: {"ok": batch["text"], "x": np.array([value] * len(batch["vec"]), object)}
    )
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(dataset)
    assert "UsageError U676: object array contains" in caught.value.message
    assert "feature `x`" in caught.value.message


def test_a_function_that_changes_its_mind_later_is_named(split: Any) -> None:
    changes = split.to_tensorflow(10, map=lambda batch: {"x": batch["vec"][:, : 4 if len(batch["vec"]) < 10 else 2]})
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(changes)
    assert "UsageError U676: function for `map` returns `x` in different forms" in caught.value.message
    assert "feature `x`" in caught.value.message


def test_an_error_says_file_and_record_after_the_batches_before_it(tmp_path: Path) -> None:
    path = tmp_path / "bad.tfrecord"
    put(path, SCHEMA, [row_of(number) for number in range(9)])
    data = bytearray(path.read_bytes())
    data[-8] ^= 1  # in the payload of the last record
    path.write_bytes(bytes(data))
    batches = iter(rk.open(path, SCHEMA).to_tensorflow(2))
    assert [len(next(batches)["text"]) for _ in range(4)] == [2, 2, 2, 2]
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        next(batches)
    assert "FrameError F102: payload checksum does not match" in caught.value.message
    assert "bad.tfrecord, record 8, byte" in caught.value.message


def test_ops_mode_gives_the_same_values_in_file_order(split: Any) -> None:
    dataset = split.to_tensorflow(5, mode="ops")
    assert int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY  # a worker of tf.data service has fewer
    given = list(dataset)
    for one, other in zip(given, split.batches(5), strict=True):
        assert list(one) == list(other)
        for name, column in other.items():
            assert_same(one[name], column)


def test_ops_mode_pads_and_fills(split: Any) -> None:
    asked: dict[str, Any] = {
        "ragged": "pad",
        "pad": {"tokens": -1, "tags": "?"},
        "fill": {"age": -5, "maybe_cube": 3},
    }
    for one, other in zip(split.to_tensorflow(5, mode="ops", **asked), split.batches(5, **asked), strict=True):
        for name, column in other.items():
            assert_same(one[name], column)


def test_ops_mode_draws_from_a_buffer_by_its_seed(split: Any) -> None:
    asked: dict[str, Any] = {"mode": "ops", "shuffle": True, "columns": ["unsigned"]}
    dataset = split.to_tensorflow(5, seed=4, **asked)
    first, second = numbers(dataset), numbers(dataset)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first not in (second, list(range(ROWS)))
    assert numbers(split.to_tensorflow(5, seed=4, **asked)) == first
    assert numbers(split.to_tensorflow(5, seed=5, **asked)) != first


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_ops_ranks_share_files_or_records_without_overlap(split: Any, world: int, shuffle: bool) -> None:
    """Three files: of three ranks each has one, two ranks share the records of all."""
    asked: dict[str, Any] = {"mode": "ops", "columns": ["unsigned"], "world": world, "shuffle": shuffle}
    ranks = [split.to_tensorflow(2, rank=rank, **asked) for rank in range(world)]
    given = [numbers(rank) for rank in ranks]
    assert sorted(number for rank in given for number in rank) == list(range(ROWS))
    assert [int(rank.cardinality()) for rank in ranks] == [-(-len(one) // 2) for one in given]
    dropped = [len(list(split.to_tensorflow(2, rank=rank, remainder="drop", **asked))) for rank in range(world)]
    assert len(set(dropped)) == 1


@pytest.mark.parametrize("mode", ["native", "ops"])
@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_go_over(tmp_path: Path, compression: Any, mode: Any) -> None:
    path = tmp_path / "x.tfrecord.gz"
    with rk.Writer(path, SCHEMA, compression=compression) as writer:
        for number in range(ROWS):
            writer.write(row_of(number))
    split = rk.open(path, SCHEMA)
    dataset = split.to_tensorflow(5, mode=mode, columns=["unsigned", "text"])
    assert_equal_batches(dataset, split.batches(5, columns=["unsigned", "text"]))


@pytest.mark.parametrize(
    "asked",
    [
        {"shuffle": "exact"},
        {"shuffle": "block"},
        {"epoch": 1},
        {"remainder": "pad"},
        {"map": doubled},
        {"decode": True},
        {"state": {}},
    ],
)
def test_what_ops_mode_cannot_do_is_refused(split: Any, asked: dict[str, Any]) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_tensorflow(5, mode="ops", **asked)
    assert caught.value.code == "U651"
    assert f"`{next(iter(asked))}`" in caught.value.what


def test_ops_mode_reads_whole_files_only(split: Any) -> None:
    for part in (split[2:5], split.map(doubled), split.balanced(by="label")):
        with pytest.raises(rk.UsageError) as caught:
            part.to_tensorflow(5, mode="ops")
        assert caught.value.code == "U651"
        assert caught.value.expected == "an option that TensorFlow's operations support"


def test_an_unknown_mode_is_refused(split: Any) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.to_tensorflow(5, mode="fast")
    assert caught.value.code == "U605"


@pytest.mark.parametrize("mode", ["native", "ops"])
def test_auto_sharding_is_off_where_ranks_share_the_records(split: Any, mode: Any) -> None:
    options = split.to_tensorflow(5, mode=mode, rank=1, world=2, remainder="drop").options()
    off = tf.data.experimental.AutoShardPolicy.OFF
    assert options.experimental_distribute.auto_shard_policy == off


def test_an_empty_split_has_no_batches(tmp_path: Path) -> None:
    split = put(tmp_path / "x.tfrecord", SCHEMA, [])
    for mode in ("native", "ops"):
        assert list(split.to_tensorflow(5, mode=mode)) == []
    assert list(split.to_tensorflow(5, shuffle=True)) == []


def test_without_tensorflow_the_extra_is_named_or_another_backend_of_keras(folder: Path) -> None:
    code = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "import rekord as rk\n"
        f"split = rk.open({str(folder)!r})['train']\n"
        "for call in (split.to_tensorflow, split.to_keras):\n"
        "    try:\n"
        "        call(4)\n"
        "    except rk.UsageError as failure:\n"
        "        print(failure.code, failure.do)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    other = 'U677 os.environ["KERAS_BACKEND"] = "torch" before Keras is imported'
    assert done.stdout == f"U602 pip install 'rekord[tensorflow]'\n{other}\n"


def test_strings_and_columns_are_what_was_compared(split: Any) -> None:
    """The comparison above is not empty: all kinds of columns are in it."""
    kinds = {type(column) for column in next(iter(split.batches(5))).values()}
    assert kinds == {np.ndarray, Ragged, Strings, Optional, SparseColumn}
