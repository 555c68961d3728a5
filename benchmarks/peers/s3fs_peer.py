"""Object storage through fsspec and s3fs."""

from __future__ import annotations

from collections.abc import Iterator

import s3fs

from peers.object_ranges import BUCKET, OBJECT, PIECE_BYTES, TURN_RANGES, range_starts
from peers.serve import Job, Task, serve

_CONNECTIONS = 32


def ranges(job: Job) -> Task:
    files = s3fs.S3FileSystem(use_listings_cache=False, config_kwargs={"max_pool_connections": _CONNECTIONS})
    path = f"{BUCKET}/{OBJECT}"

    def once() -> Iterator[int]:
        for starts in range_starts(job.options["size_bytes"]):
            ends = [start + PIECE_BYTES for start in starts]
            yield sum(len(data) for data in files.cat_ranges([path] * TURN_RANGES, starts, ends))

    return Task(once)


if __name__ == "__main__":
    serve({"ranges": ranges}, f"s3fs {s3fs.__version__}")
