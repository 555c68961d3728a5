"""A script in the style of DeepLab's builders: both files are decoded with TensorFlow to learn their sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from peers.serve import Job, Task, serve
from peers.writing import SAMPLE_PAIRS, Outputs, PairFiles, pair_files, pairs_digest

_SHARDS = 4
_COUNTED = 16  # pairs between two looks at the clock


def images(job: Job) -> Task:
    outputs = Outputs()
    pairs = pair_files(job.workload)
    sample = pairs[:SAMPLE_PAIRS]
    out = outputs.new()
    for _count in _build(sample, out):
        pass
    digest = pairs_digest(_written(out), len(sample))
    outputs.clear()
    return Task(lambda: _build(pairs, outputs.new()), digest=digest, clean=outputs.clear)


def _build(pairs: list[PairFiles], out: str) -> Iterator[int]:
    os.mkdir(out)
    per_shard = -(-len(pairs) // _SHARDS)
    done = 0
    for shard in range(_SHARDS):
        path = os.path.join(out, f"train-{shard:05d}-of-{_SHARDS:05d}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for pair in pairs[shard * per_shard : (shard + 1) * per_shard]:
                writer.write(_example(pair).SerializeToString())
                done += 1
                if done % _COUNTED == 0:
                    yield _COUNTED
    yield done % _COUNTED


def _example(pair: PairFiles) -> Any:
    with tf.io.gfile.GFile(pair.image, "rb") as file:
        image = file.read()
    with tf.io.gfile.GFile(pair.mask, "rb") as file:
        mask = file.read()
    height, width = tf.io.decode_jpeg(image, channels=3).shape[:2]
    mask_height, mask_width = tf.io.decode_png(mask, channels=1).shape[:2]
    if (height, width) != (mask_height, mask_width):
        raise RuntimeError("Shape mismatched between image and label.")
    features = {
        "image/encoded": _bytes(image),
        "image/filename": _bytes(pair.name.encode()),
        "image/format": _bytes(b"jpeg"),
        "image/height": _int64(height),
        "image/width": _int64(width),
        "image/channels": _int64(3),
        "image/segmentation/class/encoded": _bytes(mask),
        "image/segmentation/class/format": _bytes(b"png"),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def _bytes(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64(value: int) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _written(out: str) -> Iterator[tuple[str, bytes, bytes]]:
    names = ("image/filename", "image/encoded", "image/segmentation/class/encoded")
    spec = {name: tf.io.FixedLenFeature((), tf.string) for name in names}
    for payload in tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(f"{out}/train-*"))):
        parsed = tf.io.parse_single_example(payload, spec)
        name, image, mask = (parsed[name].numpy() for name in names)
        yield name.decode(), image, mask


if __name__ == "__main__":
    serve({"images": images}, f"TensorFlow {tf.__version__}")
