"""Object storage: rekord's reading and writing, and obstore by itself."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import obstore
from obstore.store import S3Store

from peers.object_ranges import BUCKET, OBJECT, PIECE_BYTES, TURN_RANGES, range_starts
from peers.serve import Job, Task, serve
from rekord.storage.objects import OBJECTS

_URL = f"s3://{BUCKET}"
_PIECE = bytes(range(256)) * (PIECE_BYTES // 256)


def _store() -> Any:
    return S3Store(BUCKET, client_options={"allow_http": True, "timeout": "600s"})


def ranges(job: Job) -> Task:
    """Ranges of a megabyte, a hundred at a time."""

    def once() -> Iterator[int]:
        for starts in range_starts(job.options["size_bytes"]):
            wanted = [(f"{_URL}/{OBJECT}", start, start + PIECE_BYTES) for start in starts]
            yield sum(len(data) for data in OBJECTS.ranges(wanted))

    return Task(once)


def obstore_ranges(job: Job) -> Task:
    store = _store()

    def once() -> Iterator[int]:
        for starts in range_starts(job.options["size_bytes"]):
            found = obstore.get_ranges(store, OBJECT, starts=starts, lengths=[PIECE_BYTES] * TURN_RANGES, coalesce=0)
            yield sum(len(data) for data in found)

    return Task(once)


def read(job: Job) -> Task:
    """All of an object, in file order."""
    buffer = bytearray(PIECE_BYTES)

    def once() -> Iterator[int]:
        with OBJECTS.open_read(f"{_URL}/{OBJECT}") as file:
            while count := file.readinto(buffer):
                yield count

    return Task(once)


def obstore_read(job: Job) -> Task:
    """A plain download, as a stream."""
    store = _store()

    def once() -> Iterator[int]:
        for piece in obstore.get(store, OBJECT).stream():
            yield len(piece)

    return Task(once)


def write(job: Job) -> Task:
    """A new object, in pieces of a megabyte."""

    def once() -> Iterator[int]:
        with OBJECTS.create(f"{_URL}/written") as file:
            for _ in range(job.options["size_bytes"] // PIECE_BYTES):
                yield file.write(_PIECE)

    return Task(once, clean=lambda: OBJECTS.remove(f"{_URL}/written"))


def obstore_write(job: Job) -> Task:
    """A multipart upload."""
    store, pieces = _store(), job.options["size_bytes"] // PIECE_BYTES

    def once() -> Iterator[int]:
        obstore.put(store, "written", (_PIECE for _ in range(pieces)), use_multipart=True)
        yield pieces * PIECE_BYTES

    return Task(once, clean=lambda: obstore.delete(store, "written"))


if __name__ == "__main__":
    tasks = (ranges, obstore_ranges, read, obstore_read, write, obstore_write)
    serve({task.__name__: task for task in tasks}, f"obstore {version('obstore')}")
