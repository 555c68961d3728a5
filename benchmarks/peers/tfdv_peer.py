"""TensorFlow Data Validation: statistics of record files, on Beam's runner for one machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import tensorflow_data_validation as tfdv

from peers.rows import first_records, scratch
from peers.serve import Job, Task, serve


def statistics(job: Job) -> Task:
    pattern = os.path.join(job.workload.records_folder, "*.tfrecord")

    def once() -> Iterator[int]:
        found = _statistics(pattern)
        if found.num_examples != job.workload.records:
            raise ValueError(f"statistics of {found.num_examples} records")
        yield found.num_examples

    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        first = _statistics(first_records(job.workload, folder))
    digest = {
        feature.path.step[0]: feature.num_stats.mean for feature in first.features if feature.HasField("num_stats")
    }
    return Task(once, digest={"records": float(first.num_examples), **digest})


def _statistics(pattern: str) -> Any:
    return tfdv.generate_statistics_from_tfrecord(data_location=pattern).datasets[0]


if __name__ == "__main__":
    serve({"statistics": statistics}, f"TFDV {tfdv.__version__}")
