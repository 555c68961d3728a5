"""Cost per record at 1, 4 and 16 times the records: it must not grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from floors import SCALED
from generate import prepare
from measure import Settings
from results import Table
from workloads import WORKLOADS

from groups.compare import Measure, compare_rates, contender

_FACTORS = (1, 4, 16)
_RECORDS = 40_000
_TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "write": ("rekord_write_peer", "records", {}),
    "check": ("rekord_health_peer", "check", {"declared": False}),
    "batches": ("rekord_feed_peer", "order", {"shuffle": False}),
    "shuffled batches": ("rekord_feed_peer", "order", {"shuffle": "exact"}),
    "query": ("rekord_shape_peer", "counts", {"indexed": False}),
}


def scaling(settings: Settings) -> Iterator[Table]:
    base = WORKLOADS["tabular"].scaled(max(_RECORDS // settings.shrink, 20_000))
    sizes = [base.scaled(base.records * factor) for factor in _FACTORS]
    for workload in sizes:
        prepare(workload)
    for work in SCALED:
        peer, task, options = _TASKS[work]
        contenders = [
            replace(contender(peer, f"{factor} × the records", task, **options), records=workload.records)
            for factor, workload in zip(_FACTORS, sizes, strict=True)
        ]
        table = compare_rates(f"Scaling, {work}", base, contenders, settings.at_most(3), reference=None)
        table.reference = contenders[0].label
        table.note = f"{base.records:,} tabular records at 1 ×. Linear: a record costs at most 1.1 times as much."
        yield table


GROUPS: dict[str, Measure] = {"scaling": scaling}
