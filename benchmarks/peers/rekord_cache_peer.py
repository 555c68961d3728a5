"""Epochs of a dataset: of local files, and of copies in a warm disk cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rekord as rk
from peers.serve import Job, Task, serve


def _epochs(job: Job, train: rk.Split) -> Task:
    first = job.workload.columns[0].name
    epoch = 0

    def once() -> Iterator[int]:
        nonlocal epoch
        options: Any = {"shuffle": job.options["shuffle"], "epoch": epoch, "threads": 1, "prefetch": 0}
        for batch in train.batches(256, **options):
            yield len(batch[first])
        epoch += 1

    for _ in once():  # the first epoch fills the cache
        pass
    return Task(once)


def local(job: Job) -> Task:
    return _epochs(job, rk.open(job.options["folder"])["train"])


def cached(job: Job) -> Task:
    """The same files by a URL, which are copied to the cache in the first epoch."""
    folder = job.options["folder"]
    return _epochs(job, rk.open(f"file://{folder}", cache=f"{folder}-cache")["train"])


TASKS = {"local": local, "cached": cached}

if __name__ == "__main__":
    serve(TASKS, f"rekord {rk.__version__}")
