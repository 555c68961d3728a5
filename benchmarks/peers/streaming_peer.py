"""MosaicML Streaming: `MDSWriter`, for each of several workers a part, and one index over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version

from streaming import LocalDataset, MDSWriter
from streaming.base.util import merge_index

from peers.serve import Job, Task, serve
from peers.writing import Outputs, PairFiles, pair_files, pairs_digest, read_file

_COLUMNS = {"name": "str", "image": "bytes", "mask": "bytes"}


def write_part(pairs: list[PairFiles], out: str) -> None:
    with MDSWriter(out=out, columns=_COLUMNS) as writer:
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
        merge_index(out, keep_local=True)

    def once() -> Iterator[int]:
        write(outputs.new())
        yield len(pairs)

    out = outputs.new()
    write(out)
    digest = pairs_digest(_written(out), len(pairs))
    outputs.clear()
    return Task(once, digest=digest, clean=outputs.clear)


def _written(out: str) -> Iterator[tuple[str, bytes, bytes]]:
    for sample in LocalDataset(out):
        yield sample["name"], sample["image"], sample["mask"]


if __name__ == "__main__":
    serve({"images": images}, version("mosaicml-streaming"))
