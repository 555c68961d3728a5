"""rekord feeding training loops: orders, tensors, records by number, images."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from workloads import DATA, Workload

os.environ.setdefault("REKORD_CACHE", str(DATA / "cache"))  # not the user's cache

import rekord as rk
from peers.rekord_peer import schema_of, total_of
from peers.rows import random_numbers
from peers.serve import BATCH, Job, Task, serve


def _split(workload: Workload) -> Any:
    return rk.open(workload.records_folder, schema=schema_of(workload))


def numpy_objects(job: Job) -> Task:
    """Batches with every string as a Python object, as `as_numpy_iterator` returns them."""
    first = job.workload.columns[0].name

    def batches() -> Iterator[dict[str, Any]]:
        for batch in _split(job.workload).batches(BATCH, **job.options):
            yield {
                name: column.to_numpy() if isinstance(column, rk.Strings) else column
                for name, column in batch.items()
            }

    digest = {name: _total(column) for name, column in next(batches()).items()}
    return Task(lambda: _counts(batches(), first), digest=digest)


def _total(column: Any) -> float:
    if isinstance(column, np.ndarray) and column.dtype == object:
        return float(sum(len(value.encode() if isinstance(value, str) else value) for value in column))
    return total_of(column)


def torch(job: Job) -> Task:
    """Batches of torch tensors by our loader; strings stay `rk.Strings`."""

    def loader() -> Any:
        return _split(job.workload).to_torch(BATCH, **job.options)

    digest = {
        name: float(column.sum()) if hasattr(column, "sum") else total_of(column)
        for name, column in next(iter(loader())).items()
    }
    return Task(lambda: _counts(loader(), job.workload.columns[0].name), digest=digest)


def tensorflow(job: Job) -> Task:
    """A tf.data.Dataset, taken batch by batch in Python or by a graph."""
    from peers.tensorflow_feed_peer import consumed

    options = dict(job.options)
    graph = options.pop("graph")
    dataset = _split(job.workload).to_tensorflow(options.pop("batch"), **options)
    return consumed(dataset, job.workload.columns[0].name, graph=graph)


def keras(job: Job) -> Task:
    """Epochs of `fit`."""
    from peers.tensorflow_feed_peer import fitted

    return fitted(_split(job.workload).to_keras(job.options["batch"], x="dense", y="label"), job.workload.records)


def train(job: Job) -> Task:
    """Shuffled epochs of torch tensors; images are decoded."""
    from peers.training import tensor_loop

    split, options = _split(job.workload), {"shuffle": True, "workers": job.options["workers"]}
    if job.workload.columns[0].name == "image":
        schema = rk.Schema({"image": rk.Image(format="jpeg"), "label": rk.Int64()})
        split, options = rk.open(job.workload.records_folder, schema=schema), options | {"decode": True}
    return tensor_loop(lambda: split.to_torch(job.options["batch"], **options))


def order(job: Job) -> Task:
    """Whole epochs; the sums over an epoch must not depend on the order."""
    split = _split(job.workload)
    first = job.workload.columns[0].name
    sums: dict[str, float] = {}
    for batch in split.batches(BATCH, **job.options):
        for name, column in batch.items():
            if isinstance(column, np.ndarray):
                sums[name] = sums.get(name, 0.0) + float(column.sum(dtype=np.float64))
    return Task(lambda: _counts(split.batches(BATCH, **job.options), first), digest=sums)


def random(job: Job) -> Task:
    """Some thousand records by number, decoded."""
    split = _split(job.workload)

    def once() -> Iterator[int]:
        for numbers in random_numbers(job.workload):
            yield len(split[numbers]["label"])

    batch = split[next(random_numbers(job.workload))]
    return Task(once, digest={name: total_of(batch[name]) for name in ("label", "I6")})


def images(job: Job) -> Task:
    """JPEGs decoded and resized."""
    schema = rk.Schema({"image": rk.Image(format="jpeg"), "label": rk.Int64()})
    options = dict(job.options)
    side, size = options.pop("side"), options.pop("batch")

    def batches() -> Any:
        split = rk.open(job.workload.records_folder, schema=schema)
        return split.batches(size, decode=True, resize=(side, side), **options)

    batch = next(iter(batches()))
    digest = {"label": total_of(batch["label"]), "values": float(batch["image"].size)}
    return Task(lambda: _counts(batches(), "label"), digest=digest)


def first_batch(job: Job) -> Task:
    """From `open` to the first batch of a shuffled epoch."""

    def once() -> Iterator[int]:
        batches = iter(rk.open(job.options["folder"]).batches(BATCH, shuffle="exact"))
        yield len(next(batches)["label"])

    return Task(once)


def epoch(job: Job) -> Task:
    """One shuffled epoch of a dataset with an index."""

    def once() -> Iterator[int]:
        yield from _counts(rk.open(job.options["folder"]).batches(BATCH, shuffle="exact"), "label")

    return Task(once)


def _counts(batches: Iterable[dict[str, Any]], first: str) -> Iterator[int]:
    for batch in batches:
        yield len(batch[first])


TASKS: dict[str, Callable[[Job], Task]] = {
    "numpy_objects": numpy_objects,
    "torch": torch,
    "tensorflow": tensorflow,
    "keras": keras,
    "train": train,
    "order": order,
    "random": random,
    "images": images,
    "first_batch": first_batch,
    "epoch": epoch,
}

if __name__ == "__main__":
    serve(TASKS, f"rekord {rk.__version__}")
