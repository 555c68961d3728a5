"""TensorFlow scripts that do what people do by hand: a Parquet file through pandas, counts by scanning, a Pool."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from peers.serve import Job, Task, serve
from peers.tensorflow_peer import parsed
from peers.writing import Outputs

_SIDE = 224
_QUALITY = 95


def parquet(job: Job) -> Task:
    """Parsed batches as DataFrames, one row group each."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    outputs = Outputs()

    def once() -> Iterator[int]:
        writer: Any = None
        for batch in parsed(job.workload, "autotune").as_numpy_iterator():
            table = pa.Table.from_pandas(pd.DataFrame(batch), preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(outputs.new() + ".parquet", table.schema)
            writer.write_table(table)
            yield len(table)
        writer.close()

    return Task(once, clean=outputs.clear)


def counts(job: Job) -> Task:
    """Every record parsed for its label alone."""

    def scan() -> Iterator[Any]:
        for batch in parsed(job.workload, "autotune", ["label"]).as_numpy_iterator():
            yield batch["label"]

    def once() -> Iterator[int]:
        found: Counter[int] = Counter()
        for labels in scan():
            found.update(labels.tolist())
            yield len(labels)

    whole: Counter[int] = Counter()
    for labels in scan():
        whole.update(labels.tolist())
    return Task(once, digest={str(label): float(n) for label, n in whole.items()})


def resize(job: Job) -> Task:
    """A Pool, each process of which decodes, resizes and encodes with OpenCV and writes a shard."""
    outputs = Outputs()
    folder = job.workload.folder / "images"
    paths = sorted(str(path) for path in folder.iterdir())
    workers = int(job.options["workers"])
    pool = get_context("spawn").Pool(workers)
    pool.map(_ready, range(workers), chunksize=1)

    def once() -> Iterator[int]:
        out = outputs.new()
        os.mkdir(out)
        shards = [
            (os.path.join(out, f"train-{i:05d}-of-{workers:05d}.tfrecord"), paths[i::workers])
            for i in range(workers)
        ]
        yield sum(pool.map(_write_shard, shards, chunksize=1))

    return Task(once, clean=outputs.clear)


def _ready(number: int) -> int:
    import cv2

    cv2.setNumThreads(1)
    return number


def _write_shard(shard: tuple[str, list[str]]) -> int:
    import cv2

    out, paths = shard
    with tf.io.TFRecordWriter(out) as writer:
        for path in paths:
            pixels = cv2.resize(cv2.imread(path), (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
            encoded = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1].tobytes()
            features = {
                "image/encoded": _bytes(encoded),
                "image/filename": _bytes(os.path.basename(path).encode()),
                "image/format": _bytes(b"JPEG"),
                "image/height": _int64(_SIDE),
                "image/width": _int64(_SIDE),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return len(paths)


def _bytes(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def _int64(value: int) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


TASKS = {"parquet": parquet, "counts": counts, "resize": resize}

if __name__ == "__main__":
    serve(TASKS, tf.__version__)
