"""Batches are read and passed to TensorFlow in groups, to eager loops without tf.data. The values are the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.feeds.tensorflow import groups, packing
from rekord.testing.damage import corrupt_payload, frame_offsets

tf = pytest.importorskip("tensorflow")

RECORDS = 203
SCHEMA = rk.Schema(
    {"id": rk.Int64(), "name": rk.Text(), "weight": rk.Float32(optional=True), "box": rk.Float32(shape=(2, 2))}
)


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    def row(number: int) -> dict[str, object]:
        weight = None if number % 5 == 0 else number / 2
        return {"id": number, "name": f"n{number}" * (number % 4), "weight": weight, "box": np.full((2, 2), number)}

    rk.write([row(number) for number in range(RECORDS)], tmp_path / "data", schema=SCHEMA, shards=3, shuffle=False)
    return rk.open(tmp_path / "data")


def read(dataset: object) -> list[dict[str, object]]:
    return [
        {
            "id": batch["id"].numpy().tolist(),
            "name": batch["name"].numpy().tolist(),
            "weight": batch["weight"]["values"].numpy()[batch["weight"]["valid"].numpy()].tolist(),
            "box": batch["box"].numpy().tolist(),
        }
        for batch in dataset  # type: ignore[attr-defined]
    ]


PATHS = {"eager": lambda dataset: dataset, "graph": lambda dataset: dataset.take(-1)}
"""An eager loop over the dataset itself does not run its pipeline; one over any other dataset made of it does."""

by_path = pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)


def count_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of batches that are packed together, as it happens."""
    counts: list[int] = []
    pack = packing.BatchPacking.pack

    def counted(self: Any, arrays: Any, batches: int, *others: Any, **options: Any) -> Any:
        counts.append(batches)
        return pack(self, arrays, batches, *others, **options)

    monkeypatch.setattr(packing.BatchPacking, "pack", counted)
    return counts


@by_path
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [4, 7, 29, 256])
def test_grouped_batches_equal_single_ones(
    dataset: rk.Dataset,
    remainder: Any,
    shuffle: bool,
    batch_size: int,
    world: int,
    path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for rank in range(world):
        options: Any = {"remainder": remainder, "shuffle": shuffle, "seed": 3, "rank": rank, "world": world}
        single = read(dataset["train"].to_tensorflow(batch_size, prefetch=0, **options).take(-1))
        with monkeypatch.context() as patch:
            counts = count_batches(patch)
            assert read(path(dataset["train"].to_tensorflow(batch_size, **options))) == single
        assert sum(counts) == len(single)
        if batch_size == 4:
            assert max(counts) > 4


@by_path
def test_files_without_an_index_are_cut_into_batches(dataset: rk.Dataset, tmp_path: Path, path: Any) -> None:
    paths = [str(one) for one in sorted((tmp_path / "data").glob("*.tfrecord*"))]
    for remainder, count in (("keep", RECORDS), ("drop", RECORDS // 8 * 8)):
        batches = read(path(rk.open(paths, schema=SCHEMA).to_tensorflow(8, remainder=remainder)))  # type: ignore[arg-type]
        assert [number for batch in batches for number in batch["id"]] == list(range(count))  # type: ignore[attr-defined]
        assert {len(batch["id"]) for batch in batches[:-1]} == {8}  # type: ignore[arg-type]


@by_path
def test_groups_shrink_where_records_are_larger(tmp_path: Path, path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_MAX_GROUP_BYTES", 4096)
    rows = [{"text": "x" * (10 if number < 600 else 200)} for number in range(1200)]
    rk.write(rows, tmp_path / "data", schema=rk.Schema({"text": rk.Text()}), shuffle=False)
    counts = count_batches(monkeypatch)
    batches = path(rk.open(tmp_path / "data")["train"].to_tensorflow(8, shuffle=False))
    assert [len(text) for batch in batches for text in batch["text"].numpy()] == [len(row["text"]) for row in rows]
    assert max(counts) > 8 * counts[-2]


@by_path
def test_rows_of_every_dtype_and_shape_arrive(tmp_path: Path, path: Any) -> None:
    dtypes = {"int8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float64", "bool", "complex64"}
    columns = {dtype: rk.Tensor(dtype, (2, 3)) for dtype in sorted(dtypes)}
    schema = rk.Schema({**columns, "wide": rk.Float32((200,)), "pair": rk.Bytes((2,)), "at": rk.Timestamp("s")})
    rng = np.random.default_rng(0)
    rows = [
        {name: rng.integers(0, 2, (2, 3)).astype(feature.dtype) for name, feature in columns.items()}
        | {"wide": rng.random(200), "pair": [b"a" * number, b""], "at": np.datetime64(number, "s")}
        for number in range(31)
    ]
    rk.write(rows, tmp_path / "data", schema=schema, shuffle=False)
    split = rk.open(tmp_path / "data")["train"]
    for batch, expected in zip(path(split.to_tensorflow(5)), split.batches(5), strict=True):
        for name, column in expected.items():
            values = column.to_numpy() if isinstance(column, rk.Strings) else np.asarray(column)
            values = values.view(np.int64) if values.dtype.kind == "M" else values
            assert (batch[name].numpy() == values).all(), name
            assert batch[name].dtype == split.to_tensorflow(5).element_spec[name].dtype


def test_an_iterator_continues_in_a_function(dataset: rk.Dataset) -> None:
    batches = dataset["train"].to_tensorflow(8, shuffle=True, seed=1, epoch=3)
    whole = [batch["id"] for batch in read(dataset["train"].to_tensorflow(8, shuffle=True, seed=1, epoch=3))]

    @tf.function  # type: ignore[untyped-decorator]
    def take(iterator: Any) -> Any:
        return next(iterator)["id"]

    for eagerly in (0, 1, 5):
        iterator = iter(batches)
        seen = [next(iterator)["id"].numpy().tolist() for _ in range(eagerly)]
        seen += [take(iterator).numpy().tolist() for _ in range(2)]
        seen += [batch["id"].numpy().tolist() for batch in iterator]
        assert seen == whole
        batches = dataset["train"].to_tensorflow(8, shuffle=True, seed=1, epoch=3)


def test_a_function_iterates_over_the_dataset(dataset: rk.Dataset) -> None:
    batches = dataset["train"].to_tensorflow(8)

    @tf.function  # type: ignore[untyped-decorator]
    def total() -> Any:
        count = tf.constant(0, tf.int64)
        for batch in batches:
            count += tf.reduce_sum(batch["id"])
        return count

    assert total().numpy() == sum(range(RECORDS))


def test_an_iterator_that_a_function_captures_is_not_part_of_it(dataset: rk.Dataset) -> None:
    iterator = iter(dataset["train"].to_tensorflow(8))

    @tf.function  # type: ignore[untyped-decorator]
    def take() -> Any:
        return next(iterator)["id"]

    assert [take().numpy().tolist() for _ in range(3)] == [list(range(i, i + 8)) for i in (0, 8, 16)]


def test_keras_predicts_every_batch_of_the_dataset_itself(dataset: rk.Dataset) -> None:
    keras = pytest.importorskip("keras")
    inputs = keras.Input((), name="id", dtype="int64")
    model = keras.Model({"id": inputs}, keras.ops.cast(inputs, "float32"))
    batches = dataset["train"].to_tensorflow(8, columns=["id"])
    for _ in range(2):
        assert model.predict(batches, verbose=0).tolist() == list(range(RECORDS))


def test_threads_share_an_iterator(dataset: rk.Dataset) -> None:
    iterator = iter(dataset["train"].to_tensorflow(2))
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda _: [number for batch in iterator for number in batch["id"].numpy()], range(4))
    assert sorted(number for part in parts for number in part) == list(range(RECORDS))


@by_path
def test_the_second_batch_begins_an_epoch_and_the_first_does_not(dataset: rk.Dataset, path: Any) -> None:
    batches = path(dataset["train"].to_tensorflow(8, shuffle=True, seed=1))
    first = [next(iter(batches))["id"].numpy().tolist() for _ in range(3)]
    assert first[0] == first[1] == first[2]
    second = [batch["id"].numpy().tolist() for batch in islice(batches, 2)]
    assert second[0] == first[0]
    assert next(iter(batches))["id"].numpy().tolist() != first[0]


@by_path
def test_an_epoch_of_one_batch_begins_with_it(dataset: rk.Dataset, path: Any) -> None:
    batches = path(dataset["train"].to_tensorflow(RECORDS, shuffle=True, seed=1))
    epochs = [next(iter(batches))["id"].numpy().tolist() for _ in range(2)]
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(RECORDS))


def test_ranks_partition_an_epoch(dataset: rk.Dataset) -> None:
    split = dataset["train"]
    seen = [
        number
        for rank in range(3)
        for batch in split.to_tensorflow(4, shuffle=True, seed=2, rank=rank, world=3)
        for number in batch["id"].numpy().tolist()
    ]
    assert sorted(seen) == list(range(RECORDS))


def test_a_state_resumes_in_the_middle_of_a_group(dataset: rk.Dataset) -> None:
    split = dataset["train"]
    batches = split.to_tensorflow(6, shuffle=True, seed=4)
    whole = read(batches)
    for step in (1, 2, 5, 20):
        assert read(split.to_tensorflow(6, shuffle=True, seed=4, state=batches.state_after(step))) == whole[step:]


@by_path
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_before_a_corrupt_record_are_delivered(
    dataset: rk.Dataset, tmp_path: Path, path: Any, shuffle: bool
) -> None:
    shard = sorted((tmp_path / "data").glob("*.tfrecord*"))[2]
    data = shard.read_bytes()
    shard.write_bytes(corrupt_payload(data, len(frame_offsets(data)) - 1))
    paths = [str(one) for one in sorted((tmp_path / "data").glob("*.tfrecord*"))]
    split = rk.open(paths, schema=SCHEMA)
    expected, failure = read_until_error(split.batches(8, shuffle=shuffle))
    assert "F102" in str(failure)
    seen, failure = read_until_error(path(split.to_tensorflow(8, shuffle=shuffle)))
    assert isinstance(failure, tf.errors.InvalidArgumentError)
    assert "F102" in str(failure)
    assert seen == expected
    assert len(seen) > 8


def read_until_error(batches: Any) -> tuple[list[int], Exception | None]:
    seen: list[int] = []
    try:
        for batch in batches:
            seen.extend(np.asarray(batch["id"]).tolist())
    except Exception as failure:
        return seen, failure
    return seen, None
