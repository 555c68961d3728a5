"""ArrayRecord, a format for random access: its data source, and Grain's loader."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags
from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter
from workloads import Workload, fill_once

import rekord as rk
from peers.rows import random_numbers
from peers.serve import Job, Task, serve


def random(job: Job) -> Task:
    """2,000 payloads by number at a time, not parsed."""
    source = ArrayRecordDataSource(_files(job.workload, job.options["writer"]))

    def once() -> Iterator[int]:
        for numbers in random_numbers(job.workload):
            yield len(source.__getitems__(numbers))

    digest = {"label": 0.0, "I6": 0.0}
    for payload in source.__getitems__(next(random_numbers(job.workload))):
        values = rk.decode(payload)
        for name in digest:
            digest[name] += float(values[name][0])
    return Task(once, digest=digest)


def _files(workload: Workload, options: str) -> list[str]:
    """A file for each shard, with the same payloads."""
    folder = workload.folder / f"array_record-{options.replace(':', '-').replace(',', '-')}"

    def fill(partial: Path) -> None:
        for shard in workload.shards():
            writer = ArrayRecordWriter(str(partial / Path(shard).with_suffix(".array_record").name), options)
            for payload in rk.records(shard):
                writer.write(payload)
            writer.close()

    fill_once(folder, fill)
    return sorted(str(path) for path in folder.iterdir())


def train(job: Job) -> Task:
    """A shuffled MapDataset; rows are stored as the bytes of their arrays, the cheapest form to parse."""
    import torch

    from peers.training import tensor_loop, training_rows

    workload, workers = job.workload, job.options["workers"]
    folder = workload.folder / "grain"
    is_image = workload.columns[0].name == "image"

    def fill(partial: Path) -> None:
        writer = ArrayRecordWriter(str(partial / "train.array_record"), "group_size:1")
        for row in training_rows(workload):
            writer.write(b"".join(value if isinstance(value, bytes) else value.tobytes() for value in row.values()))
        writer.close()

    fill_once(folder, fill)

    source = ArrayRecordDataSource([str(folder / "train.array_record")])
    dataset = grain.MapDataset.source(source).shuffle(seed=0).map(_image_row if is_image else _table_row)
    dataset = dataset.batch(job.options["batch"])
    batches = dataset.repeat().to_iter_dataset()
    if workers:
        batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    # One iterator for all epochs: its workers import everything again when they start, which takes seconds.
    iterator = iter(batches)

    def epoch() -> Iterator[dict[str, Any]]:
        for batch in islice(iterator, len(dataset)):
            yield {name: torch.from_numpy(values) for name, values in batch.items()}

    return tensor_loop(epoch)


def _image_row(payload: bytes) -> dict[str, Any]:
    from peers.training import decode_image

    return {"image": decode_image(payload[:-8]).numpy(), "label": np.frombuffer(payload[-8:], np.int64)[0]}


def _table_row(payload: bytes) -> dict[str, Any]:
    return {
        "label": np.frombuffer(payload, np.int64, 1)[0],
        "dense": np.frombuffer(payload, np.float32, 13, offset=8),
        "ids": np.frombuffer(payload, np.int64, 26, offset=60),
    }


if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()  # Grain reads them when it starts workers
    serve({"random": random, "train": train}, f"ArrayRecord {version('array_record')}")
