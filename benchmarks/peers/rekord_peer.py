"""rekord itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import rekord as rk
from rekord import _core
from workloads import Column, Lists, Values, Workload

from peers.rows import sample_rows, scratch, strings_of
from peers.serve import BATCH, Job, Task, serve

CRC_BYTES = 1 << 20


def schema_of(workload: Workload) -> Any:
    return rk.Schema({column.name: _feature(column) for column in workload.columns})


def _feature(column: Column) -> Any:
    types = {"int64": rk.Int64, "float": rk.Float32, "bytes": rk.Bytes, "text": rk.Text}
    return types[column.kind](shape=column.shape) if column.shape else types[column.kind]()


def framing(job: Job) -> Task:
    folder, records = job.workload.records_folder, job.workload.records

    def once() -> Iterator[int]:
        for _payload in rk.records(folder):
            pass
        yield records

    first = next(iter(rk.records(folder)))
    return Task(once, digest={"payload": float(sum(first))})


def decode(job: Job) -> Task:
    """Batches as they come; with `keep` the caller holds all of them until the end of the pass."""
    options = dict(job.options)
    keep = options.pop("keep", False)
    folder = options.pop("folder", job.workload.records_folder)
    schema = schema_of(job.workload)
    first = job.workload.columns[0].name

    def batches() -> Any:
        return rk.open(folder, schema=schema).batches(BATCH, **options)

    def once() -> Iterator[int]:
        kept = []
        for batch in batches():
            if keep:
                kept.append(batch)
            yield len(batch[first])

    batch = next(iter(batches()))
    return Task(once, digest={name: _total(column) for name, column in batch.items()})


def _total(column: Any) -> float:
    if isinstance(column, np.ndarray):
        return float(column.sum(dtype=np.float64))
    if isinstance(column, rk.Ragged):
        return float(column.values.sum())
    return float(sum(len(value.encode() if isinstance(value, str) else value) for value in column.tolist()))


def encode(job: Job) -> Task:
    """All rows from columns into one file."""
    columns = {
        column.name: _column(column, values)
        for column, values in zip(job.workload.columns, job.workload.whole().values(), strict=True)
    }
    rows = job.workload.records
    return _writing(job, lambda writer: writer.write_columns(columns), rows)


def encode_rows(job: Job) -> Task:
    """One dict at a time."""
    rows = sample_rows(job.workload, plain=True)

    def write(writer: Any) -> None:
        for row in rows:
            writer.write(row)

    return _writing(job, write, len(rows))


def _column(column: Column, values: Values) -> Any:
    if not isinstance(values, Lists):
        return values
    if column.is_string:
        return np.array(strings_of(column, values), object)
    return rk.Ragged(values.values, np.concatenate([[0], np.cumsum(values.lengths)]))


def _writing(job: Job, write: Callable[[Any], object], rows: int) -> Task:
    schema = schema_of(job.workload)
    folder = tempfile.TemporaryDirectory(dir=scratch())
    path = os.path.join(folder.name, "written.tfrecord")

    def once() -> Iterator[int]:
        with rk.Writer(path, schema) as writer:
            write(writer)
        os.remove(path)
        yield rows
        assert folder  # removed with the last reference

    with rk.Writer(path, schema) as writer:
        write(writer)
    facts = {"bytes": str(os.path.getsize(path)), "records": str(sum(1 for _ in rk.records(path)))}
    os.remove(path)
    return Task(once, facts=facts)


def crc32c(job: Job) -> Task:
    del job
    data = np.random.default_rng(0).bytes(CRC_BYTES)

    def once() -> Iterator[int]:
        for _ in range(1000):
            _core.crc32c(data)
        yield 1000 * CRC_BYTES

    return Task(once)


TASKS = {
    "framing": framing,
    "decode": decode,
    "encode": encode,
    "encode_rows": encode_rows,
    "crc32c": crc32c,
}

if __name__ == "__main__":
    serve(TASKS, rk.__version__)
