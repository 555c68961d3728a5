"""One side of a comparison: which files it has, in which splits, and what its manifest says of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rekord.dataset.manifest import Manifest, check_shard, manifest_path, read_manifest
from rekord.dataset.names import check_complete, splits_of
from rekord.dataset.read import PathLike, open_frames, record_files
from rekord.errors import RekordError, located
from rekord.health.finding import Finding
from rekord.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Side:
    """A dataset as it lies there. `findings` are about files that are missing, or not as long as they should be."""

    path: str
    splits: Mapping[str, Sequence[str]]
    manifest: Manifest | None
    schema: Schema | None
    findings: Sequence[Finding]

    @property
    def files(self) -> list[str]:
        """All files, split by split."""
        return [path for paths in self.splits.values() for path in paths]

    def compression(self, split: str) -> str:
        """How the files of a split are compressed, as the manifest or the first of them says."""
        if self.manifest is not None:
            return self.manifest.splits[split].compression
        try:
            with open_frames(self.splits[split][0]) as reader:
                return reader.compression
        except (RekordError, IndexError):
            return "none"  # what is wrong with the file is a finding of the pass


def open_side(path: PathLike | Sequence[PathLike]) -> Side:
    """The files of a dataset, those that a manifest lists where there is one. What is missing is a finding."""
    place = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if place is not None and os.path.isfile(manifest_path(place)):
        return _listed(place)
    files = record_files(path)
    findings = []
    # A file that was named itself is what was wanted, whatever its name says of others.
    if place is None or not os.path.isfile(place):
        try:
            check_complete(files)
        except RekordError as failure:
            findings.append(Finding.from_error(failure))
    root = place if place is not None and os.path.isdir(place) else None
    shown = ", ".join(files) if place is None else place
    return Side(path=shown, splits=splits_of(files, root), manifest=None, schema=None, findings=findings)


def _listed(folder: str) -> Side:
    manifest = read_manifest(folder)
    with located(path=manifest_path(folder)):
        schema = Schema.from_dict(manifest.schema)
    splits: dict[str, list[str]] = {}
    findings = []
    for split, part in manifest.splits.items():
        splits[split] = []
        for name, size_bytes in zip(part.names(split), part.shards.bytes, strict=True):
            path = os.path.join(folder, name)
            try:
                check_shard(folder, name, size_bytes, allow_missing=False)
            except RekordError as failure:
                findings.append(Finding.from_error(failure))
                if failure.code != "X516":
                    continue
            splits[split].append(path)  # cut off or not: what is left of it can be compared
    return Side(path=folder, splits=splits, manifest=manifest, schema=schema, findings=findings)


def split_pairs(a: Side, b: Side) -> dict[tuple[str | None, str | None], int]:
    """A number for each split: (its name in A, its name in B). The only splits of two sides belong together."""
    if len(a.splits) == 1 and len(b.splits) == 1:
        return {(next(iter(a.splits)), next(iter(b.splits))): 0}
    names = dict.fromkeys([*a.splits, *b.splits])
    return {
        (name if name in a.splits else None, name if name in b.splits else None): number
        for number, name in enumerate(names)
    }


def listed_alike(a: Side, b: Side) -> bool:
    """Whether two manifests list the same schema, splits and shards, checksum for checksum, and all are there."""
    if a.manifest is None or b.manifest is None or a.findings or b.findings or a.schema != b.schema:
        return False
    one, other = (
        {name: (part.shards.records, part.shards.sha256) for name, part in side.manifest.splits.items()}
        for side in (a, b)
        if side.manifest is not None
    )
    return one == other
