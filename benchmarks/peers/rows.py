"""Rows and records for several peers, and a folder in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from workloads import DATA, Column, Lists, Values, Workload

_MEMORY = Path("/dev/shm")


def scratch() -> Path:
    """A folder in memory if possible: writers are compared, not disks."""
    return _MEMORY if os.access(_MEMORY, os.W_OK) else DATA


def random_numbers(workload: Workload) -> Iterator[list[int]]:
    """20 lists of 2,000 record numbers, without duplicates within a list; the same for every peer."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        yield rng.choice(workload.records, 2_000, replace=False).tolist()


def first_records(workload: Workload, folder: str, records: int = 2_000) -> str:
    """A file with the first records of a workload."""
    shard = workload.shards()[0]
    with open(workload.index(shard)) as index:
        framed_bytes = sum(int(line.split()[1]) for line in islice(index, records))
    path = os.path.join(folder, "first.tfrecord")
    with open(shard, "rb") as whole, open(path, "wb") as first:
        first.write(whole.read(framed_bytes))
    return path


def sample_rows(workload: Workload, *, plain: bool) -> list[dict[str, Any]]:
    """The first rows, as `plain` Python values or as NumPy scalars and arrays."""
    values = workload.scaled(min(2 * workload.chunk, workload.records)).whole()
    names = [column.name for column in workload.columns]
    lists = [_values(column, values[column.name], plain) for column in workload.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def strings_of(column: Column, lists: Lists) -> list[Any]:
    """The strings of a column: `str` for texts, else `bytes`."""
    flat = lists.values.tobytes()
    spans = zip(lists.starts.tolist(), lists.lengths.tolist(), strict=True)
    strings = [flat[start : start + length] for start, length in spans]
    return [string.decode() for string in strings] if column.kind == "text" else strings


def _values(column: Column, values: Values, plain: bool) -> list[Any]:
    if not isinstance(values, Lists):
        return list(values.tolist() if plain or column.is_string else values)
    if column.is_string:
        return strings_of(column, values)
    spans = zip(values.starts.tolist(), values.lengths.tolist(), strict=True)
    parts = [values.values[start : start + length] for start, length in spans]
    return [part.tolist() for part in parts] if plain else parts
