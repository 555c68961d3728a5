"""Small batches are passed to TensorFlow in groups. What a loop sees must not depend on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rekord as rk
from rekord.feeds.tensorflow import native
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


def count_crossings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of batches in each crossing, as they happen."""
    crossings: list[int] = []
    pack = native.BatchPacking.pack

    def counted(self: object, batches: list[object], **others: object) -> object:
        crossings.append(len(batches))
        return pack(self, batches, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(native.BatchPacking, "pack", counted)
    return crossings


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [7, 256])
def test_grouped_batches_equal_single_ones(
    dataset: rk.Dataset, remainder: str, shuffle: bool, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, options = dataset["train"], {"remainder": remainder, "shuffle": shuffle, "seed": 3}
    single = read(split.to_tensorflow(batch_size, prefetch=0, **options))
    crossings = count_crossings(monkeypatch)
    assert read(split.to_tensorflow(batch_size, **options)) == single
    assert sum(crossings) == len(single)
    if batch_size == 7:
        assert max(crossings) > 1


def test_the_second_batch_begins_an_epoch_and_the_first_does_not(dataset: rk.Dataset) -> None:
    batches = dataset["train"].to_tensorflow(8, shuffle=True, seed=1)
    first = [next(iter(batches))["id"].numpy().tolist() for _ in range(3)]
    assert first[0] == first[1] == first[2]
    second = [batch["id"].numpy().tolist() for batch in batches.take(2)]
    assert second[0] == first[0]
    assert next(iter(batches))["id"].numpy().tolist() != first[0]


def test_an_epoch_of_one_batch_begins_with_it(dataset: rk.Dataset) -> None:
    batches = dataset["train"].to_tensorflow(RECORDS, shuffle=True, seed=1)
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


def test_rows_before_a_corrupt_record_are_delivered(dataset: rk.Dataset, tmp_path: Path) -> None:
    shard = sorted((tmp_path / "data").glob("*.tfrecord*"))[2]
    data = shard.read_bytes()
    shard.write_bytes(corrupt_payload(data, len(frame_offsets(data)) - 1))
    paths = sorted((tmp_path / "data").glob("*.tfrecord*"))
    batches = iter(rk.open([str(path) for path in paths], schema=SCHEMA).to_tensorflow(8))
    seen: list[int] = []

    def read_all() -> None:
        for batch in batches:
            seen.extend(batch["id"].numpy().tolist())

    with pytest.raises(tf.errors.InvalidArgumentError, match="F102"):
        read_all()
    assert seen == list(range(RECORDS - 1))
