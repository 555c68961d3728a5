"""Index files and TFDS folders between us and the tools that they are of."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import rekord as rk
from rekord.dataset import shard_index
from rekord.testing import example_bytes, frame_offsets, frames
from rekord.verbs.index import index

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    import tensorflow_datasets as tfds

PAYLOADS = [example_bytes({"id": [i], "text": [b"x" * (i % 11)]}) for i in range(60)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shard_index, "MIN_CACHED_FILE_BYTES", 0)
    shard_index._index_cache.clear()


def as_the_tools_read_it(file: Path, lines: Path) -> list[bytes]:
    """Payloads as DALI and vahidk's `tfrecord` take them: by offset and size, without a look at a checksum."""
    data = file.read_bytes()
    table = np.loadtxt(lines, dtype=np.int64).reshape(-1, 2)
    return [data[begin + 12 : begin + size - 4] for begin, size in table.tolist()]


@pytest.mark.parametrize(("format", "name"), [("dali", "x.tfrecord.idx"), ("vahidk", "x.tfindex")])
def test_what_tensorflow_wrote_is_indexed_as_the_tools_do(tmp_path: Path, format: Any, name: str) -> None:
    file = tmp_path / "x.tfrecord"
    with tf.io.TFRecordWriter(str(file)) as writer:
        for payload in PAYLOADS:
            writer.write(payload)
    index(file, format=format)
    assert as_the_tools_read_it(file, tmp_path / f"index-{format}" / name) == PAYLOADS
    shard_index._index_cache.clear()
    assert shard_index.open_shard_index(str(file)).origin == "beside"
    assert rk.open(file)[[59, 0, 7]]["id"].tolist() == [59, 0, 7]


def test_the_index_of_two_records_is_that_of_the_format(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(frames([b"abc", b""]))
    index(tmp_path / "x.tfrecord", format="dali")
    index(tmp_path / "x.tfrecord", format="vahidk")
    assert (tmp_path / "index-dali" / "x.tfrecord.idx").read_bytes() == b"0 19\n19 16\n"
    assert (tmp_path / "index-vahidk" / "x.tfindex").read_bytes() == b"0 19\n19 16\n"


def test_an_index_as_dalis_tool_writes_it_is_used(tmp_path: Path) -> None:
    data = frames(PAYLOADS)
    (tmp_path / "x.tfrecord").write_bytes(data)
    begins = frame_offsets(data)
    with (tmp_path / "x.idx").open("w") as out:
        for begin, end in zip(begins, [*begins[1:], len(data)], strict=True):
            out.write(f"{begin} {end - begin}\n")
    found = shard_index.open_shard_index(str(tmp_path / "x.tfrecord"))
    assert (found.origin, found.offsets.tolist()) == ("beside", begins)


# TensorFlow Datasets, both ways.


class Fruit(tfds.dataset_builders.TfDataBuilder):
    """A builder from values. It has no files of code and checksums, which TFDS would look for."""

    code_path = None
    url_infos: ClassVar[dict[str, Any]] = {}


def stored(folder: Path, counts: dict[str, int]) -> Path:
    """A dataset that TFDS itself writes, from values that it is given."""
    features = tfds.features.FeaturesDict(
        {
            "id": np.int64,
            "text": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=["cat", "dog"]),
            "points": tfds.features.Tensor(shape=(2,), dtype=np.float32),
        }
    )
    splits = {
        name: tf.data.Dataset.from_tensor_slices(
            {
                "id": np.arange(count, dtype=np.int64),
                "text": [f"{name} {i}" for i in range(count)],
                "label": np.arange(count, dtype=np.int64) % 2,
                "points": np.arange(2 * count, dtype=np.float32).reshape(count, 2),
            }
        )
        for name, count in counts.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = Fruit(
            name="fruit",
            version="1.0.0",
            split_datasets=splits,
            features=features,
            data_dir=str(folder),
            config=None,
            description="",
            file_format="tfrecord",
            disable_shuffling=True,
        )
        builder.download_and_prepare()
    return Path(str(builder.data_dir))


def test_what_tfds_writes_is_opened_with_its_splits_counts_and_schema(tmp_path: Path) -> None:
    folder = stored(tmp_path / "tfds", {"train": 25, "test": 4})
    dataset = rk.open(folder)
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 25, "test": 4}
    assert dataset.schema == rk.Schema(
        {
            "id": rk.Int64(),
            "text": rk.Text(),
            "label": rk.Label(["cat", "dog"]),
            "points": rk.Float32((2,)),
        }
    )
    row = dataset["train"][24]
    assert (row["id"], row["text"], row["label"], row["points"].tolist()) == (24, "train 24", 0, [48.0, 49.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        builder = tfds.builder_from_directory(str(folder))
        theirs = [int(one["id"]) for one in builder.as_dataset(split="train", shuffle_files=False)]
    assert [int(row["id"]) for row in dataset["train"]] == theirs
    shuffled = [i for batch in dataset["train"].batches(7, shuffle=True) for i in batch["id"].tolist()]
    assert sorted(shuffled) == list(range(25))


def test_what_we_write_for_tfds_is_opened_by_its_own_files(tmp_path: Path) -> None:
    folder = tmp_path / "mail" / "1.0.0"
    rows = [{"id": i, "label": ("ham", "spam")[i % 2]} for i in range(40)]
    schema = rk.Schema({"id": rk.Int64(), "label": rk.Label(["ham", "spam"])})
    rk.write(rows, folder, schema=schema, shards=3, format="tfds", progress=False)
    (folder / "rekord.json").unlink()
    split = rk.open(folder)["train"]
    assert (len(split), len(split.paths), split.schema) == (40, 3, schema)
    assert split[[39, 0]]["id"].tolist() == [39, 0]
    info = json.loads((folder / "dataset_info.json").read_text())
    assert [int(n) for n in info["splits"][0]["shardLengths"]] == list(split.view.shards.counts)
    missing = Path(split.paths[1])
    missing.unlink()
    with pytest.raises(rk.DatasetError) as caught:
        rk.open(folder)
    assert (caught.value.code, caught.value.location.path) == ("X505", str(missing))
