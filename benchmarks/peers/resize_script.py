"""The script that people write: a Pool that decodes, resizes and encodes with OpenCV, and a loop that writes."""

from __future__ import annotations

import os
import sys
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import cv2
import tensorflow as tf

_SIDE = 224
_QUALITY = 95
_SHARDS = 2


def main(folder: str, out: str, workers: int) -> int:
    """All images of a folder, resized, in record files; how many there are."""
    os.mkdir(out)
    paths = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    names = [f"{out}/train-{shard:05d}-of-{_SHARDS:05d}.tfrecord" for shard in range(_SHARDS)]
    writers = [tf.io.TFRecordWriter(name) for name in names]
    # One thread each, which is faster than OpenCV's own choice where there are as many processes as cores.
    with get_context("fork").Pool(workers, cv2.setNumThreads, (1,)) as pool:
        for number, example in enumerate(pool.imap(_example, paths, chunksize=16)):
            writers[number % _SHARDS].write(example)
    for writer in writers:
        writer.close()
    return len(paths)


def _example(path: str) -> bytes:
    # INTER_AREA is what OpenCV's documentation has for making images smaller; its default leaves pixels out.
    pixels = cv2.resize(cv2.imread(path), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
    features = {
        "image/encoded": _bytes(encoded),
        "image/filename": _bytes(os.path.basename(path).encode()),
        "image/format": _bytes(b"JPEG"),
        "image/height": _int64(_SIDE),
        "image/width": _int64(_SIDE),
    }
    example: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return example


def _bytes(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64(value: int) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
