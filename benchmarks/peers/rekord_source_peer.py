"""rekord reading sources of arrays, and writing recordings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import rekord as rk
from peers.serve import Job, Task, serve
from peers.writing import Outputs


def scenes(job: Job) -> Task:
    """The arrays of a folder of TIFF files, as rows of its source."""
    source: Any = rk.sources.tiff(job.workload.folder / job.options["form"])
    source.facts()

    def arrays() -> Iterator[tuple[str, Any]]:
        for part in source.parts():
            for row in source.read(part):
                yield row.path, row.values["image"]

    def once() -> Iterator[int]:
        for _ in arrays():
            yield 1

    values = sum(int(array.sum()) for _, (_, array) in zip(range(4), arrays(), strict=False))
    return Task(once, digest={"values": float(values)})


def recordings(job: Job) -> Task:
    """A folder of WAV files, written with its class folders."""
    outputs = Outputs()
    options = dict(job.options)
    steps = [getattr(rk.transforms, name)(*given) for name, given in options.pop("transforms", {}).items()]

    def once() -> Iterator[int]:
        done = rk.write(str(job.workload.folder), outputs.new(), transforms=steps, progress=False, **options)
        yield done.records

    return Task(once, clean=outputs.clear)


if __name__ == "__main__":
    serve({"scenes": scenes, "recordings": recordings}, f"rekord {rk.__version__}")
