"""TensorFlow Datasets opens what `rk.export` writes with format="tfds", and so does rekord."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import rekord as rk

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow_datasets as tfds

SCHEMA = rk.Schema(
    {
        "id": rk.Int64(),
        "label": rk.Label(["cat", "été"]),
        "text": rk.Text(),
        "tokens": rk.Int64((None,)),
        "cube": rk.Tensor("uint16", (2, 3)),
    }
)


def row(i: int) -> dict[str, Any]:
    cube = [[i, 1, 2], [3, 4, 60_000]]
    return {"id": i, "label": i % 2, "text": f"é {i}", "tokens": list(range(i % 4)), "cube": cube}


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    rows = [row(i) for i in range(20)]
    return rk.write(
        rows, tmp_path / "ds", schema=SCHEMA, split={"train": 0.7, "test": 0.3}, split_by="id", progress=False
    )


def examples(folder: Path, split: str) -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = tfds.builder_from_directory(str(folder))
        assert builder.info.features["label"].names == ["cat", "été"]
        return list(builder.as_dataset(split=split, shuffle_files=False))


def test_tfds_finds_every_value_in_every_split(dataset: rk.Dataset, tmp_path: Path) -> None:
    report = rk.export(dataset, tmp_path / "fruit" / "1.0.0", format="tfds")
    assert report.splits == {name: len(split) for name, split in dataset.splits.items()}
    for name, split in dataset.splits.items():
        found = examples(tmp_path / "fruit" / "1.0.0", name)
        assert [int(one["id"]) for one in found] == [int(one["id"]) for one in split]
        for one in found:
            wanted = row(int(one["id"]))
            assert one["text"].numpy().decode() == wanted["text"]
            assert one["tokens"].numpy().tolist() == wanted["tokens"]
            assert one["cube"].numpy().tolist() == wanted["cube"]
            assert int(one["label"]) == wanted["label"]


def test_rekord_opens_it_by_the_files_of_tfds(dataset: rk.Dataset, tmp_path: Path) -> None:
    rk.export(dataset, tmp_path / "fruit", format="tfds")
    (tmp_path / "fruit" / "rekord.json").unlink()
    again = rk.open(tmp_path / "fruit")
    assert again.schema["label"].names == ("cat", "été")
    assert {name: len(split) for name, split in again.splits.items()} == {
        name: len(split) for name, split in dataset.splits.items()
    }


def test_a_view_is_written_as_one_split(dataset: rk.Dataset, tmp_path: Path) -> None:
    view = dataset["train"].select([2, 0])
    rk.export(view, tmp_path / "two", format="tfds", columns=["id", "label"])
    assert [int(one["id"]) for one in examples(tmp_path / "two", "train")] == [
        int(view[0]["id"]),
        int(view[1]["id"]),
    ]
    train = dataset["train"]
    twice = rk.export(rk.concat([train, train]), tmp_path / "twice", format="tfds", columns=["id"])
    assert twice.records == 2 * len(train)
    with pytest.raises(rk.UsageError) as caught:
        rk.export(dataset, tmp_path / "three", format="tfds", limit=3)
    assert (caught.value.code, caught.value.what) == (
        "U605",
        "tfds cannot be written from parts of several splits",
    )


def test_what_tfds_cannot_hold_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    schema = rk.Schema({"v": rk.Sparse("float32", size=9)})
    rk.write([{"v": ([1], [2.0])}], tmp_path / "ds", schema=schema, progress=False)
    with pytest.raises(rk.UsageError) as caught:
        rk.export(tmp_path / "ds", tmp_path / "out", format="tfds")
    assert (caught.value.code, caught.value.what, caught.value.location.feature) == (
        "U676",
        "`v` cannot be stored in a TFDS dataset",
        "v",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["ds"]


def test_damage_leaves_nothing(dataset: rk.Dataset, tmp_path: Path) -> None:
    path = Path(dataset["train"].paths[0])
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with pytest.raises(rk.FrameError) as caught:
        rk.export(tmp_path / "ds", tmp_path / "out", format="tfds")
    assert caught.value.location.record == 0
    assert [path.name for path in tmp_path.iterdir()] == ["ds"]
