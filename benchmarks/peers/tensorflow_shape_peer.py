"""TensorFlow scripts that do what people do by hand: a Parquet file through pandas, counts by scanning, a Pool."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from peers.serve import Job, Task, serve
from peers.tensorflow_peer import parsed
from peers.writing import Outputs


def parquet(job: Job) -> Task:
    """Parsed batches as DataFrames, one row group each."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    outputs = Outputs()

    def once() -> Iterator[int]:
        writer: Any = None
        for batch in parsed(job.workload, "autotune").as_numpy_iterator():
            table = pa.Table.from_pandas(pd.DataFrame(batch), preserve_index=False)
            if writer is None:
                writer = pq.ParquetWriter(outputs.new() + ".parquet", table.schema)
            writer.write_table(table)
            yield len(table)
        writer.close()

    return Task(once, clean=outputs.clear)


def counts(job: Job) -> Task:
    """Every record parsed for its label alone."""

    def scan() -> Iterator[Any]:
        for batch in parsed(job.workload, "autotune", ["label"]).as_numpy_iterator():
            yield batch["label"]

    def once() -> Iterator[int]:
        found: Counter[int] = Counter()
        for labels in scan():
            found.update(labels.tolist())
            yield len(labels)

    whole: Counter[int] = Counter()
    for labels in scan():
        whole.update(labels.tolist())
    return Task(once, digest={str(label): float(n) for label, n in whole.items()})


def resize(job: Job) -> Task:
    """The script that people write: called, or as a command from its start to its end."""
    from peers import resize_script

    outputs = Outputs()
    folder, workers = str(job.workload.folder / "images"), int(job.options["workers"])

    def called() -> Iterator[int]:
        yield resize_script.main(folder, outputs.new(), workers)

    def whole() -> Iterator[int]:
        command = [sys.executable, resize_script.__file__, folder, outputs.new(), str(workers)]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        yield job.workload.records

    return Task(whole if job.options["whole"] else called, clean=outputs.clear)


TASKS = {"parquet": parquet, "counts": counts, "resize": resize}

if __name__ == "__main__":
    serve(TASKS, f"TensorFlow {tf.__version__}")
