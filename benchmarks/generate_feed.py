"""Large datasets with manifest and index, made of a small one: the shards are links to the same few files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
from peers.rekord_peer import schema_of
from workloads import Workload

import rekord as rk
from rekord.dataset.index import METADATA_FOLDER, index_path
from rekord.dataset.manifest import ManifestSplit, manifest_path, read_manifest

_SPLIT = "train"


def multiplied(workload: Workload, times: int) -> str:
    """The folder of a dataset that holds the records of a workload so many times, as `rk.write` lays it out."""
    # Beside the workload's own folder, which holds files that were not made by what is measured.
    root = workload.folder.with_name(workload.folder.name + "-datasets")
    once, folder = root / "once", root / f"times-{times}"
    if not once.exists():
        root.mkdir(parents=True, exist_ok=True)
        rk.write(workload.whole(), once, schema=schema_of(workload), progress=False)
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        _multiply(once, partial, times)
        partial.rename(folder)
    return str(folder)


def dataset_bytes(folder: str) -> int:
    """The bytes of all shards, each link counted."""
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
