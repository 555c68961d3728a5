"""torch's DataLoader over the datasets of the `tfrecord` package, checksums not verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tfrecord.torch.dataset import TFRecordDataset
from torch.utils.data import ChainDataset, DataLoader

from peers.serve import BATCH, Job, Task, serve

_NAMES = {"int64": "int", "float": "float", "bytes": "byte", "text": "byte"}


def decode(job: Job) -> Task:
    """Batches of tensors, strings as lists of bytes; `workers` share each file by its index."""
    workload = job.workload
    description = {column.name: _NAMES[column.kind] for column in workload.columns}
    workers = job.options["workers"]
    # Without workers to share a file, an index would only make it begin at a random record.
    shards = [
        TFRecordDataset(shard, workload.index(shard) if workers else None, description) for shard in workload.shards()
    ]
    loader = DataLoader(ChainDataset(shards), batch_size=BATCH, num_workers=workers)
    first = workload.columns[0].name

    def once() -> Iterator[int]:
        for batch in loader:
            yield len(batch[first])

    digest = {name: _total(values) for name, values in next(iter(loader)).items()}
    return Task(once, digest=digest)


def _total(values: Any) -> float:
    if isinstance(values, torch.Tensor):
        return float(values.sum(dtype=torch.float64))
    return float(sum(len(value) for value in values))


if __name__ == "__main__":
    serve({"decode": decode}, f"torch {torch.__version__}")
