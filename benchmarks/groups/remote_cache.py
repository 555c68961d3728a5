"""A remote dataset with a warm disk cache, against the same files read locally."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measure import Settings
from rekord_datasets import labelled
from results import Table

from groups.compare import Measure, compare_rates, contender, prepared

_LOCAL, _CACHED = "rekord, local files", "rekord, warm cache"


def remote_cache(settings: Settings) -> Iterator[Table]:
    workload = prepared("tabular", settings)
    folder = str(Path(labelled(workload)).resolve())
    for name, shuffle in (("file order", False), ("block order", "block"), ("exact order", "exact")):
        yield compare_rates(
            f"Remote cache, {name}",
            workload,
            [
                contender("rekord_cache_peer", _CACHED, "cached", folder=folder, shuffle=shuffle),
                contender("rekord_cache_peer", _LOCAL, "local", folder=folder, shuffle=shuffle),
            ],
            settings,
            reference=_LOCAL,
            note="Epochs after the first, which fills the cache; they send no request.",
        )


GROUPS: dict[str, Measure] = {"remote_cache": remote_cache}
