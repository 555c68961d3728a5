"""The tutorial's loop, a `tf.train.Example` for each row, over a CSV file and over a tf.data pipeline."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from workloads import Workload

from peers.serve import Job, Task, serve
from peers.tensorflow_peer import MAKERS, pipeline, spec_of, total_of
from peers.writing import SAMPLE_ROWS, Outputs

_COUNTED = 64  # rows between two looks at the clock
_PARSERS: dict[str, Callable[[str], Any]] = {"int64": int, "float": float, "bytes": str.encode}

Rows = Iterable[dict[str, Any]]


def tables(job: Job) -> Task:
    """From CSV, with the `csv` module; the types of the columns are known."""
    workload = job.workload
    kinds = {column.name: column.kind for column in workload.columns}

    def rows() -> Rows:
        with open(workload.folder / "table.csv", newline="") as file:
            lines = csv.reader(file)
            parsers = [(name, _PARSERS[kinds[name]]) for name in next(lines)]
            for fields in lines:
                yield {name: parse(field) for (name, parse), field in zip(parsers, fields, strict=True)}

    return _looping(workload, [column.name for column in workload.columns], rows)


def tfdata(job: Job) -> Task:
    """From a tf.data pipeline."""
    dataset = pipeline(job.workload, job.options["columns"])
    return _looping(job.workload, job.options["columns"], dataset.as_numpy_iterator)


def _looping(workload: Workload, names: list[str], rows: Callable[[], Rows]) -> Task:
    outputs = Outputs()
    makers = [(column.name, MAKERS[column.kind]) for column in workload.columns if column.name in names]

    def write(some: Rows, path: str) -> Iterator[int]:
        done = 0
        with tf.io.TFRecordWriter(path) as writer:
            for row in some:
                features = {name: make([row[name]]) for name, make in makers}
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
                done += 1
                if done % _COUNTED == 0:
                    yield _COUNTED
        yield done % _COUNTED

    path = outputs.new()
    for _count in write(islice(rows(), SAMPLE_ROWS), path):
        pass
    payloads = next(iter(tf.data.TFRecordDataset(path).batch(SAMPLE_ROWS)))
    spec = {name: feature for name, feature in spec_of(workload).items() if name in names}
    digest = {name: total_of(value) for name, value in tf.io.parse_example(payloads, spec).items()}
    outputs.clear()
    return Task(lambda: write(rows(), outputs.new()), digest=digest, clean=outputs.clear)


if __name__ == "__main__":
    serve({"tables": tables, "tfdata": tfdata}, f"TensorFlow {tf.__version__}")
