"""check, stats and salvage, compared with a plain pass over the same records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from floors import CHECKED, HALF, OURS, WHOLE
from generate import prepare
from measure import Settings
from results import Table
from workloads import WORKLOADS

from groups.compare import Measure, compare_memory, compare_rates, contender, prepared

_rekord = partial(contender, "rekord_health_peer")


def check(settings: Settings) -> Iterator[Table]:
    contenders = [
        _rekord("check", "check", declared=False),
        _rekord("check, with the schema", "check", declared=True),
        contender("rekord_peer", "decode", "decode", threads=1, prefetch=0),
    ]
    names = ("tabular", "tabular_shuffled", "sequences", "dense", "images")
    for name, title in zip(names, CHECKED, strict=True):
        workload = prepared(name, settings)
        yield compare_rates(
            f"Check, {title}",
            workload,
            contenders,
            settings,
            reference="decode",
            note=f"{workload.records:,} intact records in 2 shards; decode is `batches(1024, threads=1, prefetch=0)` "
            "with the schema.",
        )


_STATISTICS_RECORDS = 20_000  # TFDV reads about 3,000 per second


def stats(settings: Settings) -> Iterator[Table]:
    workload = WORKLOADS["tabular"].scaled(_STATISTICS_RECORDS)
    prepare(workload)
    contenders = [
        _rekord(OURS, "stats"),
        contender("tfdv_peer", "TFDV", "statistics", environment="tfdv"),
    ]
    yield compare_rates(
        "Statistics, tabular",
        workload,
        contenders,
        settings.at_most(2),
        reference="TFDV",
        note=f"{workload.records:,} records of 40 columns, against `generate_statistics_from_tfrecord`. On the first "
        "2,000 records the means of all numbers must be equal.",
    )


_SALVAGED_RECORDS = {"tabular": 500_000, "images": 5_000}  # 500 MB at most, several copies of which fit in memory


def salvage(settings: Settings) -> Iterator[Table]:
    contenders = [_rekord("salvage", "salvage"), _rekord("verified read", "frames")]
    for name, records in _SALVAGED_RECORDS.items():
        workload = prepared(name, settings, records)
        yield compare_rates(
            f"Salvage, {name}",
            workload,
            contenders,
            settings,
            reference="verified read",
            note=f"{workload.records:,} intact records, written to memory; the read verifies every frame.",
        )


def memory(settings: Settings) -> Iterator[Table]:
    half = prepared("tabular", settings)
    whole = half.scaled(2 * half.records)
    prepare(whole)
    for task, options in (("check", {"declared": False}), ("stats", {})):
        runs = [
            (workload, _rekord(label, task, **options), workload.records)
            for label, workload in ((HALF, half), (WHOLE, whole))
        ]
        note = f"2 N = {whole.records:,} tabular records; none occurs twice."
        yield compare_memory(f"Peak memory of {task}", runs, settings, note)


GROUPS: dict[str, Measure] = {
    "check": check,
    "stats": stats,
    "salvage": salvage,
    "health_memory": memory,
}
