"""ArrayRecord, a format made for random access, on the same payloads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from array_record.python.array_record_data_source import ArrayRecordDataSource
from array_record.python.array_record_module import ArrayRecordWriter
from workloads import Workload

import rekord as rk
from peers.drawn import drawn_numbers
from peers.serve import Job, Task, serve


def random(job: Job) -> Task:
    """Some thousand records by number, as payloads that nobody parses."""
    source = ArrayRecordDataSource(_files(job.workload, job.options["writer"]))

    def once() -> Iterator[int]:
        for numbers in drawn_numbers(job.workload):
            yield len(source.__getitems__(numbers))

    digest = {"label": 0.0, "I6": 0.0}
    for payload in source.__getitems__(next(drawn_numbers(job.workload))):
        values = rk.decode(payload)
        for name in digest:
            digest[name] += float(values[name][0])
    return Task(once, digest=digest)


def _files(workload: Workload, options: str) -> list[str]:
    """A file for each shard, written once."""
    folder = workload.folder / f"array_record-{options.replace(':', '-').replace(',', '-')}"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for shard in workload.shards():
            writer = ArrayRecordWriter(str(partial / Path(shard).with_suffix(".array_record").name), options)
            for payload in rk.records(shard):
                writer.write(payload)
            writer.close()
        partial.rename(folder)
    return sorted(str(path) for path in folder.iterdir())


if __name__ == "__main__":
    serve({"random": random}, version("array_record"))
