"""rekord's check, stats and salvage, and a plain read of all frames."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count

import rekord as rk
from peers.rekord_peer import schema_of
from peers.rows import first_records, scratch
from peers.serve import Job, Task, serve
from rekord.dataset.read import open_frames


def _folder(job: Job) -> str:
    return str(job.options.get("folder") or job.workload.records_folder)


def _records(job: Job) -> int:
    return int(job.options.get("records") or job.workload.records)


def check(job: Job) -> Task:
    """A whole check, with the schema if `declared`."""
    schema = schema_of(job.workload) if job.options["declared"] else None

    def once() -> Iterator[int]:
        report = rk.check(_folder(job), schema)
        if not report.ok or report.records != _records(job):
            raise ValueError(f"{report.errors} errors in {report.records} records")
        yield report.records

    return Task(once)


def stats(job: Job) -> Task:
    """All statistics; the means on the first records are the digest."""

    def once() -> Iterator[int]:
        found = rk.stats(_folder(job))
        if found.records != _records(job):
            raise ValueError(f"statistics of {found.records} records")
        yield found.records

    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        found = rk.stats(first_records(job.workload, folder))
    means = {name: feature.to_dict()["mean"] for name, feature in found.features.items()}
    digest = {name: mean for name, mean in means.items() if mean is not None}
    return Task(once, digest={"records": float(found.records), **digest})


def frames(job: Job) -> Task:
    """Every frame read and verified."""

    def once() -> Iterator[int]:
        for shard in job.workload.shards():
            with open_frames(shard) as reader:
                for stretch in reader.iter_verified_frames():
                    yield len(stretch.extents)

    return Task(once)


def salvage(job: Job) -> Task:
    """Every record into a new folder, in memory if possible."""
    root = tempfile.TemporaryDirectory(dir=scratch())
    passes = count()

    def once() -> Iterator[int]:
        report = rk.salvage(_folder(job), os.path.join(root.name, str(next(passes))))
        if report.kept != _records(job):
            raise ValueError(f"{report.kept} records kept")
        yield report.kept

    def clean() -> None:
        for name in os.listdir(root.name):
            shutil.rmtree(os.path.join(root.name, name))

    return Task(once, clean=clean)


TASKS = {"check": check, "stats": stats, "frames": frames, "salvage": salvage}

if __name__ == "__main__":
    serve(TASKS, f"rekord {rk.__version__}")
