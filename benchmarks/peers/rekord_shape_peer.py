"""rekord's rewrite, export, query and resize; and `cp` followed by a scan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pyarrow.parquet as pq
from rekord_datasets import labelled

import rekord as rk
from peers.rekord_peer import schema_of
from peers.serve import Job, Task, serve
from peers.writing import Outputs
from rekord.dataset.read import open_frames

_SIDE = 224
_SHARDS = 3  # a different number than the dataset has, so that records move


def reshard(job: Job) -> Task:
    """All records into a different number of shards."""
    outputs, folder = Outputs(), labelled(job.workload)

    def once() -> Iterator[int]:
        made = rk.rewrite(folder, outputs.new(), shards=_SHARDS, progress=False)
        yield sum(len(split) for split in made.splits.values())

    return Task(once, clean=outputs.clear)


def copy(job: Job) -> Task:
    """`cp --reflink=never`, and every frame of the copy read and verified; `sync` waits for the disk."""
    outputs, folder = Outputs(), labelled(job.workload)

    def once() -> Iterator[int]:
        out = outputs.new()
        subprocess.run(["cp", "-r", "--reflink=never", folder, out], check=True)
        shards = sorted(os.path.join(out, name) for name in os.listdir(out) if name.startswith("train-"))
        records = 0
        for shard in shards:
            if job.options["sync"]:
                subprocess.run(["sync", shard], check=True)
            with open_frames(shard) as reader:
                for stretch in reader.iter_verified_frames():
                    records += len(stretch.extents)
        yield records  # not before: a pass that is cut off would have copied all of it

    return Task(once, clean=outputs.clear)


def parquet(job: Job) -> Task:
    """All records into one Parquet file."""
    outputs = Outputs()
    dataset = rk.open(job.workload.records_folder, schema=schema_of(job.workload))

    def once() -> Iterator[int]:
        out = outputs.new() + ".parquet"
        rk.export(dataset, out)
        yield pq.read_metadata(out).num_rows

    return Task(once, clean=outputs.clear)


def counts(job: Job) -> Task:
    """Records per label: from the index, or by decoding that column."""
    if job.options["indexed"]:
        path: object = labelled(job.workload)
    else:
        path = rk.open(job.workload.records_folder, schema=schema_of(job.workload))

    def once() -> Iterator[int]:
        found = rk.query(path, "select label, count(*) as n from records group by 1")
        yield sum(found["n"].to_pylist())

    found = rk.query(path, "select label, count(*) as n from records group by 1")
    digest = {str(label): float(n) for label, n in zip(*found.to_pydict().values(), strict=True)}
    return Task(once, digest=digest)


def resize(job: Job) -> Task:
    """JPEGs of a folder, resized and written again: in this process, or by the command."""
    outputs = Outputs()
    folder, workers = str(job.workload.folder / "images"), int(job.options["workers"])

    def called() -> Iterator[int]:
        steps = rk.transforms.resize(_SIDE, _SIDE)
        made = rk.write(folder, outputs.new(), transforms=steps, shards=2, workers=workers, progress=False)
        yield len(made["train"])

    def whole() -> Iterator[int]:
        options = ["--resize", f"{_SIDE}x{_SIDE}", "--shards", "2", "--workers", str(workers), "--json"]
        command = [sys.executable, "-m", "rekord", "write", folder, outputs.new(), *options]
        output = subprocess.run(command, check=True, capture_output=True).stdout
        yield json.loads(output)["splits"]["train"]["records"]

    return Task(whole if job.options["whole"] else called, clean=outputs.clear)


TASKS = {"reshard": reshard, "copy": copy, "parquet": parquet, "counts": counts, "resize": resize}

if __name__ == "__main__":
    serve(TASKS, f"rekord {rk.__version__}")
