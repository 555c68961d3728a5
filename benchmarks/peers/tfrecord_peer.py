"""The `tfrecord` package: a Python loop over protobuf messages, checksums not verified."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from itertools import chain, islice
from typing import Any

import numpy as np
from tfrecord import tfrecord_loader

from peers.serve import BATCH, Job, Task, batches_of, serve

_NAMES = {"int64": "int", "float": "float", "bytes": "byte", "text": "byte"}


def decode(job: Job) -> Task:
    description = {column.name: _NAMES[column.kind] for column in job.workload.columns}

    def examples() -> Iterator[dict[str, Any]]:
        return chain.from_iterable(tfrecord_loader(shard, None, description) for shard in job.workload.shards())

    digest = dict.fromkeys(description, 0.0)
    for example in islice(examples(), BATCH):
        for column in job.workload.columns:
            value = example[column.name]
            digest[column.name] += len(value) if column.is_string else float(np.sum(value, dtype=np.float64))
    return Task(lambda: batches_of(examples()), digest=digest)


if __name__ == "__main__":
    serve({"decode": decode}, f"tfrecord {version('tfrecord')}")
