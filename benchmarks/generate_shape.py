"""Datasets with a manifest, whose index keeps the labels: made once of a workload, and kept."""

from __future__ import annotations

from peers.rekord_peer import schema_of
from workloads import Workload

import rekord as rk


def labelled(workload: Workload) -> str:
    """The folder of a dataset with the records of a workload, and `label` in its index."""
    root = workload.folder.with_name(workload.folder.name + "-datasets")
    folder = root / "labelled"
    if not folder.exists():
        root.mkdir(parents=True, exist_ok=True)
        rk.write(
            rk.sources.records(workload.records_folder, schema=schema_of(workload)),
            folder,
            schema=schema_of(workload),
            index=["label"],
            progress=False,
        )
    return str(folder)
