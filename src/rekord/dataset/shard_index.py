"""Where the records of a shard begin: from its index file, or found out and kept for the next time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rekord import _core
from rekord.dataset.manifest import FOLDER
from rekord.dataset.read import open_slabs
from rekord.storage.files import read_error

_MOST_FRAMES = 1 << 20
_MOST_KEPT = 1024


@dataclass(frozen=True, eq=False)
class ShardIndex:
    """Where each frame begins in the stream of a shard, as uint32 or uint64, and the columns that are kept of it."""

    offsets: npt.NDArray[Any]
    table: pa.Table | None = None


def shard_index(path: str) -> ShardIndex:
    """The index of a shard as the file is now."""
    try:
        found = os.stat(path)
    except OSError as failure:
        raise read_error(path, failure) from failure
    return _index(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=_MOST_KEPT)
def _index(path: str, size_bytes: int, mtime_ns: int) -> ShardIndex:
    folder, name = os.path.split(path)
    written = os.path.join(folder, FOLDER, "index", f"{name}.arrow")
    if os.path.isfile(written):
        table = pa.ipc.open_file(pa.memory_map(written)).read_all()
        return ShardIndex(table["offset"].combine_chunks().to_numpy(zero_copy_only=True), table)
    return ShardIndex(_found_out(path))


def _found_out(path: str) -> npt.NDArray[Any]:
    """The offsets of all frames, by their headers alone."""
    pool = _core.Pool(4 << 20)
    parts: list[Any] = []
    with open_slabs(path, pool, reuse=True) as reader:
        while (segment := reader.next(_MOST_FRAMES)) is not None:
            parts.append(_core.frame_offsets(segment.slab, segment.begin, segment.end, segment.offset))
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
