"""Hugging Face `datasets`: columns of bytes, from a generator or from memory, and then `save_to_disk`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import datasets
from workloads import fill_once

from peers.serve import Job, Task, serve
from peers.writing import Outputs, PairFiles, pair_files, pairs_digest, read_file

_FEATURES = {"name": "string", "image": "binary", "mask": "binary"}


def rows_of(pairs: list[PairFiles]) -> Iterator[dict[str, Any]]:
    for pair in pairs:
        yield {"name": pair.name, "image": read_file(pair.image), "mask": read_file(pair.mask)}


def images(job: Job) -> Task:
    """`way`: `generator` (one or several workers), or `memory` (all rows are held at once)."""
    datasets.disable_progress_bars()
    outputs = Outputs()
    pairs = pair_files(job.workload)
    workers = job.options["workers"]
    processes = None if workers == 1 else workers
    features = datasets.Features({name: datasets.Value(kind) for name, kind in _FEATURES.items()})

    def write(out: str) -> None:
        if job.options["way"] == "memory":
            rows = list(rows_of(pairs))
            columns = {name: [row[name] for row in rows] for name in _FEATURES}
            dataset = datasets.Dataset.from_dict(columns, features=features)
        else:
            # A cache of its own: the next pass would find the rows of the last one.
            dataset = datasets.Dataset.from_generator(
                rows_of,
                features=features,
                cache_dir=f"{out}-cache",
                gen_kwargs={"pairs": pairs},
                num_proc=processes,
            )
        dataset.save_to_disk(out, num_proc=processes)

    def once() -> Iterator[int]:
        write(outputs.new())
        yield len(pairs)

    out = outputs.new()
    write(out)
    digest = pairs_digest(_written(out), len(pairs))
    outputs.clear()
    return Task(once, digest=digest, clean=outputs.clear)


def _written(out: str) -> Iterator[tuple[str, bytes, bytes]]:
    for row in datasets.load_from_disk(out):
        yield row["name"], row["image"], row["mask"]


def train(job: Job) -> Task:
    """A dataset on disk with format "torch", read with torch's DataLoader."""
    from torch.utils.data import DataLoader

    from peers.training import tensor_loop, training_rows

    workload, options = job.workload, job.options
    folder = workload.folder / "huggingface"
    kinds = {
        "image": datasets.Image(),
        "label": datasets.Value("int64"),
        "dense": datasets.List(datasets.Value("float32"), length=13),
        "ids": datasets.List(datasets.Value("int64"), length=26),
    }
    features = datasets.Features({column.name: kinds[column.name] for column in workload.columns})

    def fill(partial: Path) -> None:
        rows = list(training_rows(workload))
        values = {name: [row[name] for row in rows] for name in features}
        if "image" in values:
            values["image"] = [{"bytes": encoded, "path": None} for encoded in values["image"]]
        datasets.Dataset.from_dict(values, features=features).save_to_disk(str(partial))

    datasets.disable_progress_bars()
    fill_once(folder, fill)
    dataset = datasets.load_from_disk(str(folder)).with_format("torch")
    loader: Any = DataLoader(dataset, options["batch"], shuffle=True, num_workers=options["workers"])
    return tensor_loop(lambda: loader)


if __name__ == "__main__":
    serve({"images": images, "train": train}, f"datasets {datasets.__version__}")
