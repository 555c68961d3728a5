"""WebDataset: tar shards, read with a WebLoader."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from workloads import fill_once

from peers.serve import Job, Task, serve
from peers.training import decode_image, tensor_loop, training_rows

_SHARDS = 4
_BUFFER = 1_000  # samples that are shuffled in memory


def train(job: Job) -> Task:
    workload, workers = job.workload, job.options["workers"]
    folder = workload.folder / "webdataset"

    def fill(partial: Path) -> None:
        per_shard = -(-workload.records // _SHARDS)
        with wds.ShardWriter(f"{partial}/train-%05d.tar", maxcount=per_shard, verbose=0) as writer:
            for number, row in enumerate(training_rows(workload)):
                writer.write({"__key__": f"{number:08d}", **{_KEYS[name]: value for name, value in row.items()}})

    fill_once(folder, fill)
    dataset = (
        wds.WebDataset(
            sorted(str(path) for path in folder.iterdir()),
            shardshuffle=_SHARDS,
            nodesplitter=wds.split_by_node,
            workersplitter=wds.split_by_worker,
        )
        .shuffle(_BUFFER)
        .map(_decoded)
        .batched(job.options["batch"], collation_fn=_collated)
    )
    return tensor_loop(lambda: wds.WebLoader(dataset, batch_size=None, num_workers=workers))


_KEYS = {"image": "jpg", "label": "cls", "dense": "dense.npy", "ids": "ids.npy"}


def _decoded(sample: dict[str, Any]) -> dict[str, torch.Tensor]:
    row: dict[str, torch.Tensor] = {}
    for name, key in _KEYS.items():
        if key not in sample:
            continue
        if name == "image":
            row[name] = decode_image(sample[key])
        elif name == "label":
            row[name] = torch.tensor(int(sample[key]))
        else:
            row[name] = torch.from_numpy(np.load(io.BytesIO(sample[key])))
    return row


def _collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0] if not name.startswith("__")}


if __name__ == "__main__":
    serve({"train": train}, f"WebDataset {wds.__version__}")
