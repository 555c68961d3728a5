"""MosaicML Streaming: `MDSWriter`, for each of several workers a part, and one index over all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

from workloads import fill_once

from peers.serve import Job, Task, serve
from peers.writing import Outputs, PairFiles, pair_files, pairs_digest, read_file

# `import streaming` takes two names from torchvision, for datasets that are not used here. Where torch is a build
# for the CPU, the torchvision of PyPI cannot be imported beside it; so it gets two names that do nothing.
_MEMBERS = {
    "": (),
    ".transforms": (),
    ".datasets": ("VisionDataset",),
    ".transforms.functional": ("to_tensor",),
}
for _below, _members in _MEMBERS.items():
    _module = module_from_spec(ModuleSpec(f"torchvision{_below}", None))
    for _member in _members:
        setattr(_module, _member, type(_member, (), {}))
    sys.modules[_module.__name__] = _module

streaming = import_module("streaming")
_COLUMNS = {"name": "str", "image": "bytes", "mask": "bytes"}


def write_part(pairs: list[PairFiles], out: str) -> None:
    with streaming.MDSWriter(out=out, columns=_COLUMNS) as writer:
        for pair in pairs:
            writer.write({"name": pair.name, "image": read_file(pair.image), "mask": read_file(pair.mask)})


def images(job: Job) -> Task:
    outputs = Outputs()
    pairs = pair_files(job.workload)
    workers = job.options["workers"]

    def write(out: str) -> None:
        if workers == 1:
            write_part(pairs, out)
            return
        each = -(-len(pairs) // workers)
        with ProcessPoolExecutor(workers) as pool:
            parts = [pairs[first : first + each] for first in range(0, len(pairs), each)]
            folders = [os.path.join(out, str(number)) for number in range(len(parts))]
            for _ in pool.map(write_part, parts, folders):
                pass
        streaming.base.util.merge_index(out, keep_local=True)

    def once() -> Iterator[int]:
        write(outputs.new())
        yield len(pairs)

    out = outputs.new()
    write(out)
    digest = pairs_digest(_written(out), len(pairs))
    outputs.clear()
    return Task(once, digest=digest, clean=outputs.clear)


def _written(out: str) -> Iterator[tuple[str, bytes, bytes]]:
    for sample in streaming.LocalDataset(out):
        yield sample["name"], sample["image"], sample["mask"]


def train(job: Job) -> Task:
    """A StreamingDataset of local MDS shards, read with torch's DataLoader."""
    from torch.utils.data import DataLoader

    from peers.training import tensor_loop, training_rows

    workload, options = job.workload, job.options
    folder = workload.folder / "mds"
    encodings = {"image": "bytes", "label": "int", "dense": "ndarray:float32:13", "ids": "ndarray:int64:26"}
    columns = {column.name: encodings[column.name] for column in workload.columns}

    def fill(partial: Path) -> None:
        with streaming.MDSWriter(out=str(partial), columns=columns) as writer:
            for row in training_rows(workload):
                writer.write({**row, "label": int(row["label"])})

    fill_once(folder, fill)
    streaming.base.util.clean_stale_shared_memory()
    dataset = _Decoded(local=str(folder), shuffle=True, batch_size=options["batch"])
    loader = DataLoader(dataset, batch_size=options["batch"], num_workers=options["workers"])
    return tensor_loop(lambda: loader)


class _Decoded(streaming.StreamingDataset):  # type: ignore[misc,name-defined]
    def __getitem__(self, index: Any) -> Any:
        from peers.training import decode_image

        row = super().__getitem__(index)
        return {name: decode_image(value) if name == "image" else value for name, value in row.items()}


if __name__ == "__main__":
    serve({"images": images, "train": train}, f"MosaicML Streaming {version('mosaicml-streaming')}")
