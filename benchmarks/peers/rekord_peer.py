"""rekord itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from workloads import Column, Lists, Values, Workload

import rekord as rk
from peers.rows import sample_rows, scratch, strings_of
from peers.serve import BATCH, Job, Task, serve
from rekord import _core

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
    """Batches; with `keep` the caller holds all of them until the end of the pass."""
    options = dict(job.options)
    keep = options.pop("keep", False)
    folder = options.pop("folder", job.workload.records_folder)
    size = options.pop("batch", BATCH)
    schema = schema_of(job.workload)
    first = job.workload.columns[0].name

    def batches() -> Any:
        return rk.open(folder, schema=schema).batches(size, **options)

    def once() -> Iterator[int]:
        kept = []
        for batch in batches():
            if keep:
                kept.append(batch)
            yield len(batch[first])

    batch = next(iter(batches()))
    return Task(once, digest={name: total_of(column) for name, column in batch.items()})


def total_of(column: Any) -> float:
    if isinstance(column, np.ndarray):
        return float(column.sum(dtype=np.float64))
    if isinstance(column, rk.Ragged):
        return float(np.asarray(column.values).sum(dtype=np.float64))
    return float(sum(len(value.encode() if isinstance(value, str) else value) for value in column.tolist()))


def encode(job: Job) -> Task:
    """All rows into one file, from a dict of NumPy columns or from an Arrow table."""
    values = job.workload.whole()
    form = _arrow_column if job.options["arrow"] else _numpy_column
    columns: Any = {column.name: form(column, values[column.name]) for column in job.workload.columns}
    if job.options["arrow"]:
        columns = pa.table(columns)
    # Keys in another order than in the generated shards, but the same number of bytes.
    framed_bytes = sum(os.path.getsize(shard) for shard in job.workload.shards())
    return _writing(
        job, lambda writer: writer.write_columns(columns), job.workload.records, framed_bytes=framed_bytes
    )


def encode_rows(job: Job) -> Task:
    """One dict at a time."""
    rows = sample_rows(job.workload, plain=True)

    def write(writer: Any) -> None:
        for row in rows:
            writer.write(row)

    return _writing(job, write, len(rows))


def _numpy_column(column: Column, values: Values) -> Any:
    if not isinstance(values, Lists):
        return values
    if column.is_string:
        return np.array(strings_of(column, values), object)
    return rk.Ragged(values.values, _offsets(values))


def _arrow_column(column: Column, values: Values) -> Any:
    if column.is_string:
        strings = strings_of(column, values) if isinstance(values, Lists) else values.tolist()
        return pa.array(strings, pa.large_string() if column.kind == "text" else pa.large_binary())
    if isinstance(values, Lists):
        return pa.LargeListArray.from_arrays(_offsets(values), values.values)
    if column.shape:
        return pa.FixedSizeListArray.from_arrays(values.reshape(-1), column.shape[0])
    return pa.array(values)


def _offsets(values: Lists) -> Any:
    return np.concatenate([[0], np.cumsum(values.lengths)])


def _writing(job: Job, write: Callable[[Any], object], rows: int, *, framed_bytes: int | None = None) -> Task:
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
    written = sum(1 for _ in rk.records(path))
    if written != rows or framed_bytes not in (None, os.path.getsize(path)):
        raise ValueError(f"{written} records in {os.path.getsize(path)} bytes were written, not {rows} rows")
    os.remove(path)
    return Task(once)


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
    serve(TASKS, f"rekord {rk.__version__}")
