"""One side of a comparison: which files it has, in which splits, and what its manifest says of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rekord.dataset.manifest import Manifest
from rekord.dataset.read import open_frames
from rekord.errors import RekordError
from rekord.health.finding import Finding
from rekord.health.parts import parts_of
from rekord.health.place import look_at
from rekord.schema import Schema
from rekord.storage.files import PathLike


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
    place = look_at(path)
    there = parts_of(place)
    return Side(
        path=os.fspath(path) if isinstance(path, (str, os.PathLike)) else ", ".join(place.paths),
        splits=there.splits,
        manifest=None if place.listing is None else place.listing.manifest,
        schema=place.schema,
        findings=there.findings,
    )


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
        {name: (part.shards.records, part.shards.digest) for name, part in side.manifest.splits.items()}
        for side in (a, b)
        if side.manifest is not None
    )
    return one == other
