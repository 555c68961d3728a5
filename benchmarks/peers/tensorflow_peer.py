"""TensorFlow: tf.data with parse_example, and the writer of its tutorial."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from workloads import Column, Lists, Workload

from peers.rows import sample_rows, scratch, strings_of
from peers.serve import BATCH, Job, Task, serve

_DTYPES = {"int64": tf.int64, "float": tf.float32, "bytes": tf.string, "text": tf.string}


def spec_of(workload: Workload) -> dict[str, Any]:
    return {column.name: _feature(column) for column in workload.columns}


def _feature(column: Column) -> Any:
    dtype = _DTYPES[column.kind]
    return tf.io.RaggedFeature(dtype) if None in column.shape else tf.io.FixedLenFeature(column.shape, dtype)


def _one_core(dataset: Any) -> Any:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return dataset.with_options(options)


def framing(job: Job) -> Task:
    dataset = tf.data.TFRecordDataset(job.workload.shards()).batch(BATCH)
    first = next(iter(dataset)).numpy()[0]
    return Task(lambda: counts(_one_core(dataset), len), digest={"payload": float(sum(first))})


def decode(job: Job) -> Task:
    dataset = parsed(job.workload, job.options["way"], batch=job.options.get("batch", BATCH))
    first = job.workload.columns[0].name
    batch = next(iter(dataset))
    digest = {name: total_of(value) for name, value in batch.items()}
    return Task(lambda: counts(dataset, lambda batch: batch[first].shape[0]), digest=digest)


def parsed(workload: Workload, way: str, columns: Sequence[str] | None = None, batch: int = BATCH) -> Any:
    """Parsed batches. `way`: `one_core`, `autotune`, or `interleave` (a pipeline for each of two shards)."""
    spec = {name: feature for name, feature in spec_of(workload).items() if columns is None or name in columns}
    shards = workload.shards()
    compression = "GZIP" if workload.compressed else ""

    def parse(payloads: Any) -> Any:
        return tf.io.parse_example(payloads, spec)

    def payloads(paths: Any) -> Any:
        return tf.data.TFRecordDataset(paths, compression_type=compression).batch(batch)

    if way == "one_core":
        return _one_core(payloads(shards).map(parse).prefetch(1))
    if way == "autotune":
        return payloads(shards).map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)
    return (
        tf.data.Dataset.from_tensor_slices(shards)
        .interleave(lambda path: payloads(path).map(parse), cycle_length=2, num_parallel_calls=2)
        .prefetch(tf.data.AUTOTUNE)
    )


def pipeline(workload: Workload, names: list[str]) -> Any:
    """A pipeline of single rows with these columns, from tensors in memory."""
    values = workload.whole()
    tensors = {
        column.name: tf.constant(strings_of(column, rows) if isinstance(rows, Lists) else rows)
        for column in workload.columns
        if column.name in names and (rows := values[column.name]) is not None
    }
    return tf.data.Dataset.from_tensor_slices(tensors).prefetch(tf.data.AUTOTUNE)


def counts(dataset: Any, size: Callable[[Any], int]) -> Iterator[int]:
    for batch in dataset:
        yield size(batch)


def total_of(value: Any) -> float:
    flat = value.flat_values if isinstance(value, tf.RaggedTensor) else value
    numbers = tf.strings.length(flat) if flat.dtype == tf.string else flat
    return float(tf.reduce_sum(tf.cast(numbers, tf.float64)))


def encode(job: Job) -> Task:
    """The tutorial's loop, over rows in memory."""
    workload = job.workload
    rows = sample_rows(workload, plain=job.options["plain"])
    makers = [(column.name, MAKERS[column.kind], bool(column.shape)) for column in workload.columns]
    folder = tempfile.TemporaryDirectory(dir=scratch())
    path = os.path.join(folder.name, "written.tfrecord")

    def write(part: list[dict[str, Any]]) -> Iterator[int]:
        with tf.io.TFRecordWriter(path) as writer:
            for count, row in enumerate(part, 1):
                features = {name: make(row[name] if is_list else [row[name]]) for name, make, is_list in makers}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
                if count % BATCH == 0:
                    yield BATCH
        yield len(part) % BATCH
        assert folder  # removed with the last reference

    for _count in write(rows[:BATCH]):
        pass
    return Task(lambda: write(rows))


def _int64_feature(values: Any) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def _float_feature(values: Any) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def _bytes_feature(values: Any) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def _text_feature(values: Any) -> Any:
    return _bytes_feature([value.encode() for value in values])


MAKERS = {
    "int64": _int64_feature,
    "float": _float_feature,
    "bytes": _bytes_feature,
    "text": _text_feature,
}

TASKS = {"framing": framing, "decode": decode, "encode": encode}

if __name__ == "__main__":
    serve(TASKS, f"TensorFlow {tf.__version__}")
