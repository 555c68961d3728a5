"""What looking after data costs: check, stats and salvage beside a plain pass over the same records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median

from generate import prepare
from groups import Group, Versions, raced, with_floor
from measure import Contender, Result, Settings, peak_memory
from report import Floor, Row, Table, rate_rows
from workloads import WORKLOADS

_MB = 1e6
_DECODE = "plain verified decode"
_READ = "plain verified read"


def _rekord(label: str, task: str, **options: object) -> Contender:
    return Contender(label=label, peer="rekord_health_peer", task=task, options=options)


def check(settings: Settings, versions: Versions) -> Iterator[Table]:
    plain = Contender(label=_DECODE, peer="rekord_peer", task="decode", options={"threads": 1, "prefetch": 0})
    ours = [
        _rekord("check", "check", declared=False),
        _rekord("check, with the schema", "check", declared=True),
    ]
    for name in ("tabular", "tabular_shuffled", "sequences", "dense", "images"):
        workload = settings.sized(WORKLOADS[name])
        prepare(workload)
        results = raced(workload, [*ours, plain], settings, versions, reference=_DECODE)
        rows = rate_rows(results, _DECODE)
        for contender in ours:
            rows = with_floor(rows, contender.label, 0.7, against=_DECODE)
        yield Table(
            title=f"Check, {name}",
            unit="records/s",
            rows=rows,
            against="decode",
            note=f"{workload.records:,} intact records in 2 shards; the decode is `batches(1024, threads=1, "
            "prefetch=0)` with the schema, and nothing is done with the batches.",
        )


_STATISTICS_RECORDS = 50_000  # TFDV takes the better part of a minute for them


def stats(settings: Settings, versions: Versions) -> Iterator[Table]:
    workload = WORKLOADS["tabular"]
    workload = workload.scaled(max(_STATISTICS_RECORDS // settings.shrink, 2 * workload.chunk))
    prepare(workload)
    theirs = "TFDV, generate_statistics_from_tfrecord"
    contenders = [
        _rekord("rekord", "stats"),
        Contender(label=theirs, peer="tfdv_peer", task="statistics", environment="tfdv"),
    ]
    few = replace(settings, repeats=min(settings.repeats, 2))
    results = raced(workload, contenders, few, versions, reference=theirs)
    yield Table(
        title="Statistics, tabular",
        unit="records/s",
        rows=with_floor(rate_rows(results, theirs), "rekord", 5.0, against=theirs),
        against="TFDV",
        note=f"{workload.records:,} records of 40 columns, whole passes. On the first 2,000 records the means of all "
        "numbers must be the same.",
    )


_SALVAGED_BYTES = 500_000_000
_RECORD_BYTES = {"tabular": 1_000, "images": 100_000}


def salvage(settings: Settings, versions: Versions) -> Iterator[Table]:
    contenders = [_rekord("salvage", "salvage"), _rekord(_READ, "frames")]
    for name in ("tabular", "images"):
        workload = settings.sized(WORKLOADS[name])
        # Of images no more than fits into memory a few times.
        workload = workload.scaled(min(workload.records, _SALVAGED_BYTES // _RECORD_BYTES[name]))
        prepare(workload)
        results = raced(workload, contenders, settings, versions, reference=_READ)
        yield Table(
            title=f"Salvage, {name}",
            unit="records/s",
            rows=with_floor(rate_rows(results, _READ), "salvage", 0.5, against=_READ),
            against="read",
            note=f"{workload.records:,} intact records, written again in memory; the read verifies every frame.",
        )


def memory(settings: Settings, versions: Versions) -> Iterator[Table]:
    del versions
    few = replace(settings, repeats=min(settings.repeats, 2))
    sized = settings.sized(WORKLOADS["tabular"])
    workloads = [sized, sized.scaled(2 * sized.records)]
    for workload in workloads:
        prepare(workload)
    for task, options in (("check", {"declared": False}), ("stats", {})):
        results = [
            peak_memory(workload, _rekord(f"{task}, {workload.records:,} records", task, **options), few)
            for workload in workloads
        ]
        yield Table(
            title=f"Peak anonymous memory of {task}, tabular",
            unit="MB",
            rows=_flat(results),
            note="No record is there twice. Flat: twice the records take at most 1.1 times the memory and 16 MB.",
        )


def _flat(results: list[Result]) -> list[Row]:
    rows = [
        Row(label=result.label, values=[peak / _MB for peak in result.peak_bytes], failure=result.failure)
        for result in results
    ]
    if any(row.failure for row in rows):
        rows[1] = replace(rows[1], floor=Floor("flat", None))
        return rows
    half, whole = (median(row.values) for row in rows)
    most = 1.1 * half + 16
    rows[1] = replace(rows[1], floor=Floor(f"≤ {most:.0f} to be flat", whole <= most))
    return rows


GROUPS: dict[str, Group] = {
    "check": check,
    "stats": stats,
    "salvage": salvage,
    "health_memory": memory,
}
