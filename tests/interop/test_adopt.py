"""Shards that TensorFlow wrote are adopted, and TensorFlow reads them as before."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from sample_conversions import read_tree

import rekord as rk

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf


def write(path: Path, numbers: range, options: str | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for i in numbers:
            features: dict[str, Any] = {
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[1 + i % 2])),
                "image/filename": tf.train.Feature(bytes_list=tf.train.BytesList(value=[f"{i}.jpg".encode()])),
                "score": tf.train.Feature(float_list=tf.train.FloatList(value=[i / 4] * (i % 3))),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_what_tensorflow_wrote_becomes_a_dataset(tmp_path: Path, compression: str | None) -> None:
    folder = tmp_path / "data"
    for shard in range(2):
        write(folder / "train" / f"part-{shard}.tfrecord", range(10 * shard, 10 * shard + 10), compression)
    write(folder / "validation" / "part-0.tfrecord", range(20, 25), compression)
    (tmp_path / "map.pbtxt").write_text("item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\n")
    shards = read_tree(folder)
    dataset = rk.adopt(folder, label_map=tmp_path / "map.pbtxt", progress=False)
    assert {name: data for name, data in read_tree(folder).items() if name in shards} == shards
    train = dataset["train"]
    assert (len(train), dataset.schema["image/class/label"]) == (20, rk.Label(["background", "cat", "dog"]))
    row = train[13]
    assert (row["image/filename"], row["image/class/label"], row["score"].tolist()) == (b"13.jpg", 2, [3.25])
    assert rk.check(folder).ok
    theirs = tf.data.TFRecordDataset(train.paths, compression_type=compression or "")
    assert [record.numpy() for record in theirs] == list(rk.records(train.paths))
    (batch,) = train.to_tensorflow(20, shuffle=True, columns=["image/filename"])
    assert sorted(batch["image/filename"].numpy()) == sorted(f"{i}.jpg".encode() for i in range(20))
