"""LitData: `optimize` into chunks of its own format; bytes are stored as they are in the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import litdata
from workloads import fill_once

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


def train(job: Job) -> Task:
    """A StreamingDataset of local chunks, read with its StreamingDataLoader."""
    from peers.training import tensor_loop, training_rows

    workload, options = job.workload, job.options
    folder = workload.folder / "litdata"

    def fill(partial: Path) -> None:
        os.environ["DATA_OPTIMIZER_CACHE_FOLDER"] = f"{partial}-cache"
        rows = [_tensors(row) for row in training_rows(workload)]
        litdata.optimize(
            fn=_same, inputs=rows, output_dir=str(partial), chunk_bytes=_CHUNK, num_workers=1, verbose=False
        )

    fill_once(folder, fill)
    dataset = _Decoded(str(folder), shuffle=True)
    return tensor_loop(
        lambda: litdata.StreamingDataLoader(dataset, batch_size=options["batch"], num_workers=options["workers"])
    )


def _same(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _tensors(row: dict[str, Any]) -> dict[str, Any]:
    import torch

    return {name: value if isinstance(value, bytes) else torch.as_tensor(value) for name, value in row.items()}


class _Decoded(litdata.StreamingDataset):  # type: ignore[misc]
    def __getitem__(self, index: Any) -> dict[str, Any]:
        from peers.training import decode_image

        row: dict[str, Any] = super().__getitem__(index)
        return {name: decode_image(value) if name == "image" else value for name, value in row.items()}


if __name__ == "__main__":
    serve({"images": images, "train": train}, f"LitData {version('litdata')}")
