"""Derived data: other shards, Parquet, counts by SQL, and images resized while writing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from floors import CP, OURS
from measure import Settings
from raw_files import prepare_pairs
from rekord_datasets import labelled
from results import Table
from workloads import WORKLOADS

from groups.compare import Measure, compare_rates, contender, prepared

_rekord = partial(contender, "rekord_shape_peer")
_tensorflow = partial(contender, "tensorflow_shape_peer")
_COPIED_RECORDS = {"tabular": 500_000, "images": 5_000}  # 500 MB at most


def reshard(settings: Settings) -> Iterator[Table]:
    contenders = [
        _rekord("rekord rewrite", "reshard"),
        _rekord(CP, "copy", sync=False),
        _rekord(f"{CP}, synced", "copy", sync=True),
    ]
    for name, records in _COPIED_RECORDS.items():
        workload = prepared(name, settings, records)
        labelled(workload)
        yield compare_rates(
            f"Re-shard, {name}",
            workload,
            contenders,
            settings,
            reference=CP,
            note=f"{workload.records:,} records into 3 shards on local disk. rekord verifies and hashes each record, "
            "writes an index and syncs; `cp` syncs only where stated.",
        )


def export(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    loop = "tf.data and pandas"
    yield compare_rates(
        "Export to Parquet, tabular",
        workload,
        [_rekord(OURS, "parquet"), _tensorflow(loop, "parquet")],
        settings,
        reference=loop,
        note=f"{workload.records:,} records of 40 columns. The loop writes a row group per batch, and is cut off "
        "after the time limit.",
    )


def query(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    labelled(workload)
    contenders = [
        _rekord("rekord, decoded", "counts", indexed=False),
        _rekord("rekord, from the index", "counts", indexed=True),
        _tensorflow("tf.data scan", "counts"),
    ]
    yield compare_rates(
        "Query, tabular",
        workload,
        contenders,
        settings,
        reference="tf.data scan",
        note=f"`select label, count(*) … group by label` of {workload.records:,} records with 40 columns. Decoded: "
        "no index of labels, so that one column is read. tf.data parses only the label, in batches of 1024.",
    )


def resize(settings: Settings) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["pairs"])
    prepare_pairs(workload)
    reference = "the script, from its start"
    contenders = [
        _rekord("rekord write", "resize", workers=2, whole=True),
        _rekord("rk.write", "resize", workers=2, whole=False),
        replace(_tensorflow(reference, "resize", workers=2, whole=True), max_repeats=2),
        _tensorflow("the script, called", "resize", workers=2, whole=False),
    ]
    yield compare_rates(
        "Resize and write, images",
        workload,
        contenders,
        settings,
        reference=reference,
        unit="images/s",
        note=f"{workload.records:,} JPEGs of 512 × 512 pixels resized to 224 × 224 and encoded with quality 95, by 2 "
        "processes, to local disk. The script uses a Pool, OpenCV and `tf.train.Example`. `rekord write` and the "
        "script from its start include their imports; the calls do not, but start their processes.",
    )


GROUPS: dict[str, Measure] = {"reshard": reshard, "export": export, "query": query, "resize": resize}
