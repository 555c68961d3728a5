"""Datasets with manifest and index, written by rekord once per workload."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from peers.rekord_peer import schema_of
from workloads import Workload, fill_once

import rekord as rk
from rekord.dataset.index import METADATA_FOLDER, index_path
from rekord.dataset.manifest import ManifestSplit, manifest_path, read_manifest

_SPLIT = "train"


def labelled(workload: Workload) -> str:
    """A dataset with the records of a workload, and `label` in its index."""
    folder = _root(workload) / "labelled"
    if not folder.exists():
        rk.write(
            rk.sources.records(workload.records_folder, schema=schema_of(workload)),
            folder,
            schema=schema_of(workload),
            index=["label"],
            progress=False,
        )
    return str(folder)


def multiplied(workload: Workload, times: int) -> str:
    """A dataset that holds the records of a workload `times` times; its shards are links to the same few files."""
    once, folder = _root(workload) / "once", _root(workload) / f"times-{times}"
    if not once.exists():
        rk.write(workload.whole(), once, schema=schema_of(workload), progress=False)
    fill_once(folder, lambda partial: _multiply(once, partial, times))
    return str(folder)


def _root(workload: Workload) -> Path:
    """Next to the folder of the workload, which holds only files that rekord did not write."""
    root = workload.folder.with_name(workload.folder.name + "-datasets")
    root.mkdir(parents=True, exist_ok=True)
    return root


def dataset_bytes(folder: str) -> int:
    """The bytes of all shards; every link counts."""
    return sum(sum(part.shards.bytes) for part in read_manifest(folder).splits.values())


def _multiply(once: Path, folder: Path, times: int) -> None:
    (folder / METADATA_FOLDER / "index").mkdir(parents=True)
    manifest = read_manifest(str(once))
    small = manifest.splits[_SPLIT]
    large = _repeated(small, times)
    names = small.names(_SPLIT) * times
    for name, linked in zip(names, large.names(_SPLIT), strict=True):
        os.link(once / name, folder / linked)
        os.link(index_path(str(once / name)), index_path(str(folder / linked)))
    whole = msgspec.structs.replace(manifest, splits={_SPLIT: large}, companions=[])
    Path(manifest_path(str(folder))).write_bytes(whole.to_json())


def _repeated(part: ManifestSplit, times: int) -> ManifestSplit:
    index = part.shards.index
    shards = msgspec.structs.replace(
        part.shards,
        index=None if index is None else msgspec.structs.replace(index, values=index.values * times),
        records=part.shards.records * times,
        bytes=part.shards.bytes * times,
        digest=part.shards.digest * times,
    )
    return msgspec.structs.replace(
        part, records=part.records * times, payload_bytes=part.payload_bytes * times, shards=shards
    )
