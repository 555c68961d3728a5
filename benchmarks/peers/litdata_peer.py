"""LitData: `optimize` into chunks of its own format; bytes are stored as they are in the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import litdata

from peers.serve import Job, Task, serve
from peers.writing import Outputs, PairFiles, pair_files, pairs_digest, read_file

_CHUNK = "64MB"  # what its documentation uses


def read_pair(pair: PairFiles) -> dict[str, Any]:
    return {"name": pair.name, "image": read_file(pair.image), "mask": read_file(pair.mask)}


def images(job: Job) -> Task:
    outputs = Outputs()
    pairs = pair_files(job.workload)

    def write(out: str) -> None:
        # Chunks are made here first, and then moved; both must be on one disk.
        os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = f"{out}-cache"
        litdata.optimize(
            fn=read_pair,
            inputs=pairs,
            output_dir=out,
            chunk_bytes=_CHUNK,
            num_workers=job.options["workers"],
            verbose=False,
        )

    def once() -> Iterator[int]:
        write(outputs.new())
        yield len(pairs)

    out = outputs.new()
    write(out)
    digest = pairs_digest(_written(out), len(pairs))
    outputs.clear()
    return Task(once, digest=digest, clean=outputs.clear)


def _written(out: str) -> Iterator[tuple[str, bytes, bytes]]:
    dataset = litdata.StreamingDataset(out)
    for number in range(len(dataset)):
        sample = dataset[number]
        yield sample["name"], sample["image"], sample["mask"]


if __name__ == "__main__":
    serve({"images": images}, version("litdata"))
