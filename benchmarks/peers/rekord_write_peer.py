"""rekord writing datasets, with index, manifest and fsync."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import rekord as rk
from peers.rekord_peer import schema_of, total_of
from peers.serve import Job, Task, serve
from peers.writing import SAMPLE_ROWS, Outputs, pairs_digest

_SHARDS = 4  # as DeepLab's builders make


def images(job: Job) -> Task:
    """Images and masks, in DeepLab's layout."""
    folder = job.workload.folder
    source = rk.sources.segmentation(folder / "images", folder / "masks")
    options = {"layout": rk.layouts.deeplab(classes=21, ignore=255), "shards": _SHARDS, **job.options}

    def digest(out: str) -> dict[str, float]:
        return pairs_digest(_pairs(out), job.workload.records)

    return _writing(source, options, job.workload.records, digest)


def tables(job: Job) -> Task:
    """A CSV or a Parquet file, with the types that rekord finds in it."""
    options = dict(job.options)
    if options.pop("form") == "csv":
        source: Any = rk.sources.csv(job.workload.folder / "table.csv")
    else:
        source = rk.sources.parquet(job.workload.folder / "table.parquet")
    return _writing(source, options, job.workload.records, _rows_digest)


def records(job: Job) -> Task:
    """Record files without a manifest."""
    schema = schema_of(job.workload)
    source = rk.sources.records(job.workload.records_folder, schema=schema)
    return _writing(source, {"schema": schema}, job.workload.records, _rows_digest)


def tfdata(job: Job) -> Task:
    """A tf.data pipeline, in a process that has TensorFlow."""
    from peers.tensorflow_peer import pipeline

    dataset = pipeline(job.workload, job.options["columns"])
    return _writing(dataset, {}, job.workload.records, _rows_digest)


def _writing(source: Any, options: dict[str, Any], rows: int, digest: Callable[[str], dict[str, float]]) -> Task:
    outputs = Outputs()

    def write(out: str) -> None:
        rk.write(source, out, progress=False, **options)

    def once() -> Iterator[int]:
        write(outputs.new())
        yield rows

    out = outputs.new()
    write(out)
    written = sum(1 for _ in rk.records(out))
    if written != rows:
        raise ValueError(f"{written} records were written, not {rows}")
    summary = digest(out)
    outputs.clear()
    return Task(once, digest=summary, clean=outputs.clear)


def _pairs(out: str) -> Iterator[tuple[str, bytes, bytes]]:
    for payload in rk.records(out):
        values: Any = rk.decode(payload)
        name, image, mask = (
            values[key][0] for key in ("image/filename", "image/encoded", "image/segmentation/class/encoded")
        )
        yield name.decode(), image, mask


def _rows_digest(out: str) -> dict[str, float]:
    first = next(iter(rk.open(out).batches(SAMPLE_ROWS)))
    return {name: total_of(column) for name, column in first.items()}


if __name__ == "__main__":
    serve({"images": images, "tables": tables, "records": records, "tfdata": tfdata}, f"rekord {rk.__version__}")
