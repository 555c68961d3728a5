"""Reshaping datasets: other shards, Parquet, counts by SQL, and images resized on their way in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from generate import prepare
from generate_shape import labelled
from generate_write import prepare_pairs
from groups import Group, Versions, raced, with_floor
from measure import Contender, Settings
from report import Table, rate_rows
from workloads import WORKLOADS, Workload

_MOST_REPEATS = 3  # a pass is a whole dataset, of seconds
_COPIED_BYTES = 500_000_000
_RECORD_BYTES = {"tabular": 1_000, "images": 100_000}
_CP = "cp --reflink=never, and a verified scan"


def _rekord(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="rekord_shape_peer", task=task, options=options)


def _tensorflow(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="tensorflow_shape_peer", task=task, options=options)


def _fewer(settings: Settings) -> Settings:
    return replace(settings, repeats=min(settings.repeats, _MOST_REPEATS))


def _tabular(settings: Settings) -> Workload:
    workload = settings.sized(WORKLOADS["tabular"])
    prepare(workload)
    return workload


def reshard(settings: Settings, versions: Versions) -> Iterator[Table]:
    contenders = [
        _rekord("rekord rewrite", "reshard"),
        _rekord(_CP, "copy", sync=False),
        _rekord(f"{_CP}, synced", "copy", sync=True),
    ]
    for name in ("tabular", "images"):
        workload = settings.sized(WORKLOADS[name])
        workload = workload.scaled(min(workload.records, _COPIED_BYTES // _RECORD_BYTES[name]))
        prepare(workload)
        labelled(workload)
        results = raced(workload, contenders, _fewer(settings), versions, reference=_CP)
        yield Table(
            title=f"Re-shard, {name}",
            unit="records/s",
            rows=with_floor(rate_rows(results, _CP), "rekord rewrite", 0.8, against=_CP),
            against="cp",
            note=f"{workload.records:,} records into 3 shards on the disk. rekord verifies and hashes every record, "
            "writes an index, and waits for the disk; `cp` waits only where it is said.",
        )


def export(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = _tabular(settings)
    loop = "tf.data and pandas, a loop"
    contenders = [_rekord("rekord", "parquet"), _tensorflow(loop, "parquet")]
    results = raced(workload, contenders, _fewer(settings), versions, reference=loop)
    yield Table(
        title="Export to Parquet, tabular",
        unit="records/s",
        rows=with_floor(rate_rows(results, loop), "rekord", 10.0, against=loop),
        note=f"{workload.records:,} records of 40 columns; the loop writes a row group for each batch, and is "
        "cut off when its time is up.",
    )


def query(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = _tabular(settings)
    labelled(workload)
    scan = "tf.data, a scan"
    contenders = [
        _rekord("rekord, decoded", "counts", indexed=False),
        _rekord("rekord, from the index", "counts", indexed=True),
        _tensorflow(scan, "counts"),
    ]
    results = raced(workload, contenders, settings, versions, reference=scan)
    rows = rate_rows(results, scan)
    rows = with_floor(rows, "rekord, decoded", 10.0, against=scan)
    yield Table(
        title="select label, count(*), tabular",
        unit="records/s",
        rows=with_floor(rows, "rekord, from the index", 100.0, against=scan),
        note=f"{workload.records:,} records of 40 columns. Decoded: files without an index of labels, of which one "
        "column is read. tf.data parses the label alone, in batches of 1,024.",
    )


def resize(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = settings.sized(WORKLOADS["pairs"])
    prepare_pairs(workload)
    script, called = "Pool, OpenCV and tf.train.Example: the script", "the same, called"
    contenders = [
        _rekord("rekord write", "resize", workers=2, whole=True),
        _rekord("rk.write", "resize", workers=2, whole=False),
        _tensorflow(script, "resize", workers=2, whole=True),
        _tensorflow(called, "resize", workers=2, whole=False),
    ]
    results = raced(workload, contenders, _fewer(settings), versions, reference=script)
    yield Table(
        title="Resize and write, images",
        unit="images/s",
        rows=with_floor(rate_rows(results, script), "rekord write", 2.0, against=script),
        note=f"{workload.records:,} JPEGs of 512 × 512 to 224 × 224, encoded again with quality 95, by 2 processes; "
        "whole conversions to the disk. `rekord write` and the script are measured from their start to their end, "
        "with what they import; what is called begins with everything imported, and starts its processes itself.",
    )


GROUPS: dict[str, Group] = {"reshard": reshard, "export": export, "query": query, "resize": resize}
