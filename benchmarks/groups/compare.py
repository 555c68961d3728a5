"""What the groups share: prepared workloads, contenders, and tables of rates and of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from generate import prepare
from measure import Contender, Result, Settings, fresh_processes, race
from results import Table
from workloads import WORKLOADS, Workload

Measure: TypeAlias = Callable[[Settings], Iterator[Table]]


def contender(peer: str, label: str, task: str, *, environment: str = "own", **options: object) -> Contender:
    return Contender(label=label, peer=peer, task=task, options=options, environment=environment)


def prepared(name: str, settings: Settings, max_records: int | None = None) -> Workload:
    """A workload with the number of records of this run; its files exist."""
    workload = settings.sized(WORKLOADS[name])
    workload = workload.scaled(min(workload.records, max_records or workload.records))
    prepare(workload)
    return workload


def compare_rates(
    title: str,
    workload: Workload,
    contenders: Sequence[Contender],
    settings: Settings,
    *,
    reference: str | None,
    note: str = "",
    unit: str = "records/s",
) -> Table:
    """The rates of all contenders, measured in turn."""
    results = race(workload, contenders, settings, reference=reference)
    return Table(title=title, unit=unit, results=results, reference=reference, note=note)


def compare_memory(
    title: str, runs: Sequence[tuple[Workload, Contender, int]], settings: Settings, note: str
) -> Table:
    """Peak memory of passes over workloads, each with the number of records that it must read."""
    results = []
    for workload, each, records in runs:
        result: Result = fresh_processes(workload, each, settings.at_most(2), watch=True)
        if result.failure is None and any(sample.units != records for sample in result.samples):
            result.failure = "did not read every record"
        results.append(result)
    note += " Flat: twice the records need at most 1.1 times the memory plus 16 MB."
    return Table(title=title, unit="MB", results=results, note=note)
