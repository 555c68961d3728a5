"""The files of each split that belong to a dataset, and what is missing among them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from rekord.dataset.manifest import check_shard
from rekord.dataset.names import check_complete
from rekord.errors import RekordError
from rekord.health.finding import Finding
from rekord.health.place import Place
from rekord.health.rules.listed import Listing


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of each split. `findings` are errors: files that are missing, or not as long as they should be."""

    splits: dict[str, list[str]]
    findings: list[Finding]

    @property
    def files(self) -> list[str]:
        """All files, split by split."""
        return [path for paths in self.splits.values() for path in paths]


def parts_of(place: Place) -> Parts:
    """What is to be read of a place: where a manifest lists the shards those, and nothing that lies beside them."""
    findings = [finding for finding in place.findings if finding.severity == "error"]
    if place.listing is not None:
        return Parts(_listed(place.listing, findings), findings)
    # A file that was named itself is what was wanted, whatever its name says of others.
    if not place.files_were_named:
        try:
            check_complete(place.paths)
        except RekordError as failure:
            findings.append(_without_an_option(Finding.from_error(failure)))
    return Parts(place.splits(), findings)


def _listed(listing: Listing, findings: list[Finding]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    for split, part in listing.manifest.splits.items():
        splits[split] = []
        for name, size_bytes in zip(part.names(split), part.shards.bytes, strict=True):
            try:
                check_shard(listing.folder, name, size_bytes, allow_missing=False)
            except RekordError as failure:
                findings.append(Finding.from_error(failure))
                if failure.code != "X516":
                    continue
            splits[split].append(
                os.path.join(listing.folder, name)
            )  # cut off or not: what is left can be read
    return splits


def _without_an_option(finding: Finding) -> Finding:
    """Whoever only looks has no `allow_missing` to set: everything that is there is read."""
    finding.do = "fetch the missing files; what is here was read"
    return finding
