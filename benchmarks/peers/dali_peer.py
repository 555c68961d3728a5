"""NVIDIA DALI on the CPU, checksums not verified; it needs an index, which the harness has made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from nvidia import dali
from nvidia.dali import fn, tfrecord
from workloads import Column

from peers.serve import BATCH, Job, Task, serve


def decode(job: Job) -> Task:
    """The reader begins anew at the end of the files, so one pass is as many batches as fill it."""
    workload = job.workload
    shards = workload.shards()
    names = [column.name for column in workload.columns]
    pipeline = dali.Pipeline(
        batch_size=BATCH, num_threads=job.options["threads"], device_id=None, prefetch_queue_depth=2
    )
    with pipeline:
        read = fn.readers.tfrecord(
            path=shards,
            index_path=[workload.index(shard) for shard in shards],
            features={column.name: _feature(column) for column in workload.columns},
            name="reader",
        )
        pipeline.set_outputs(*(read[name] for name in names))
    pipeline.build()

    first = pipeline.run()
    digest = {column.name: _total(column, output) for column, output in zip(workload.columns, first, strict=True)}
    batches = workload.records // BATCH

    def once() -> Iterator[int]:
        for _ in range(batches):
            pipeline.run()
            yield BATCH

    return Task(once, digest=digest)


def _feature(column: Column) -> Any:
    if column.is_string:
        return tfrecord.FixedLenFeature((), tfrecord.string, "")
    dtype, default = (tfrecord.int64, 0) if column.kind == "int64" else (tfrecord.float32, 0.0)
    if None in column.shape:
        return tfrecord.VarLenFeature(dtype, default)
    return tfrecord.FixedLenFeature(list(column.shape) or [1], dtype, default)


def _total(column: Column, output: Any) -> float:
    arrays = [np.array(output.at(i)) for i in range(len(output))]
    return float(sum(array.size if column.is_string else array.sum(dtype=np.float64) for array in arrays))


if __name__ == "__main__":
    serve({"decode": decode}, f"DALI {dali.__version__}")
