"""tifffile reading TIFF files, one after the other on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import tifffile

from peers.serve import Job, Task, serve


def scenes(job: Job) -> Task:
    """The arrays of a folder."""
    paths = sorted((job.workload.folder / job.options["form"]).iterdir())

    def once() -> Iterator[int]:
        for path in paths:
            tifffile.imread(path, maxworkers=1)
            yield 1

    values = sum(int(tifffile.imread(path).sum()) for path in paths[:4])
    return Task(once, digest={"values": float(values)})


if __name__ == "__main__":
    serve({"scenes": scenes}, f"tifffile {tifffile.__version__}")
