"""The record files to inspect, their splits, and what is declared about them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rekord.dataset.read import check_complete, find_record_files, find_skipped_records
from rekord.dataset.read import infer_split_name as split_by_name
from rekord.errors import RekordError
from rekord.health.check.manifest import (
    LabelMapRule,
    ManifestListing,
    build_label_map_rule,
    find_label_map,
    read_manifest_listing,
)
from rekord.health.finding import Finding
from rekord.schema import Schema
from rekord.schema.interop.tfds import TfdsFolder, read_tfds_folder
from rekord.storage import raw_files
from rekord.storage.find import FoundFiles
from rekord.storage.local import PathLike
from rekord.storage.router import REMOTE, is_remote


def resolve_schema(schema: Schema | PathLike | None) -> Schema | None:
    """A schema, or the one in a file."""
    return schema if schema is None or isinstance(schema, Schema) else Schema.load(schema)


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """The files of each split. `findings` are errors: files that are missing or have the wrong size."""

    splits: dict[str, list[str]]
    findings: list[Finding]

    @property
    def files(self) -> list[str]:
        """All files, split by split."""
        return [path for paths in self.splits.values() for path in paths]


def list_split_files(place: DatasetFiles) -> SplitFiles:
    """The files to read: the shards in the manifest if there is one, and no others."""
    findings = [finding for finding in place.findings if finding.severity == "error"]
    if place.listing is not None:
        return SplitFiles(_list_manifest_files(place.listing, findings), findings)
    # An explicitly named shard is read alone.
    if not place.has_explicit_files:
        try:
            check_complete(place.paths)
        except RekordError as failure:
            finding = Finding.from_error(failure)
            finding.do = "fetch the missing files; all existing files were read"  # there is no allow_missing here
            findings.append(finding)
    return SplitFiles(place.splits(), findings)


def _list_manifest_files(listing: ManifestListing, findings: list[Finding]) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    for split, part in listing.manifest.splits.items():
        splits[split] = []
        for name, size_bytes in zip(part.names(split), part.shards.bytes, strict=True):
            try:
                listing.check_shard(name, size_bytes, allow_missing=False)
            except RekordError as failure:
                findings.append(Finding.from_error(failure))
                if failure.code != "X516":
                    continue
            splits[split].append(os.path.join(listing.folder, name))  # truncated or not: what is left can be read
    return splits


@dataclass(frozen=True)
class DatasetFiles:
    """The record files of a path, and what is declared about them.

    `folder` is the path itself if it is a folder. `findings` are about a manifest or TFDS files that cannot be used;
    the record files are then found by name.
    """

    paths: list[str]
    folder: str | None = None
    has_explicit_files: bool = False
    listing: ManifestListing | None = None
    tfds: TfdsFolder | None = None
    label_map: LabelMapRule | None = None
    remote_sizes: Mapping[str, int] | None = None  # of a remote folder: the bytes of all files, by path below it
    findings: list[Finding] = field(default_factory=list)

    @property
    def schema(self) -> Schema | None:
        """The schema in the manifest or of TFDS."""
        if self.listing is not None:
            return self.listing.schema
        return None if self.tfds is None else self.tfds.schema

    @property
    def has_declared_splits(self) -> bool:
        """Whether a manifest or TFDS declares the splits, not only the names of files and folders."""
        return self.listing is not None or self.tfds is not None

    def split_of(self, path: str) -> str:
        """The split of a file."""
        if self.listing is not None and (split := self.listing.split_of(path)) is not None:
            return split
        if self.tfds is not None and (split := self.tfds.split_of(os.path.basename(path))) is not None:
            return split
        return split_by_name(path, self.folder)

    def splits(self) -> dict[str, list[str]]:
        """The files of each split, in order."""
        splits: dict[str, list[str]] = {}
        for path in self.paths:
            splits.setdefault(self.split_of(path), []).append(path)
        return splits


class SplitNumbering:
    """Numbers records within their splits, as in `dataset[split][number]`, while files are read in order."""

    def __init__(self, place: DatasetFiles) -> None:
        self._listing = place.listing
        self._splits: dict[str, str] = {}
        self._starts: dict[str, int] = {}  # records of the split before a file
        self._next: dict[str, str] = {}  # the file that follows in the same split
        self._uncounted: set[str] = set()
        if place.listing is not None:
            for split, part in place.listing.manifest.splits.items():
                start = 0
                for name, records in zip(part.names(split), part.shards.records, strict=True):
                    self._starts[os.path.normpath(os.path.join(place.listing.folder, name))] = start
                    start += records
            return
        for split, paths in place.splits().items():
            self._splits |= dict.fromkeys(paths, split)
            self._starts[paths[0]] = 0
            self._next |= pairwise(paths)

    def end_file(self, path: str, records: int) -> None:
        """Count the records of a file. After a file with lost records, numbers are unknown."""
        if path in self._starts and path in self._next and path not in self._uncounted:
            self._starts[self._next[path]] = self._starts[path] + records

    def fill(self, finding: Finding) -> Finding:
        """The finding, with its split and the number of its record within it."""
        if finding.path is None:
            return finding
        if finding.severity == "error" and finding.code[0] in "FCX":
            self._uncounted.add(finding.path)
        if self._listing is None:
            finding.split = self._splits.get(finding.path)
            start = self._starts.get(finding.path)
        else:
            finding.split = self._listing.split_of(finding.path)
            start = self._starts.get(os.path.normpath(finding.path))
        if finding.record is not None and start is not None:
            finding.split_record = start + finding.record
        return finding


def find_dataset_files(path: PathLike | Sequence[PathLike]) -> DatasetFiles:
    """The record files of a file, folder, pattern or list of them. Only names and manifests are read."""
    found = find_record_files(path)
    paths = found.paths
    findings = list(_find_unread_files(found))
    if not isinstance(path, (str, os.PathLike)):
        return DatasetFiles(paths, has_explicit_files=True, findings=findings)
    folder = os.fspath(path)
    if not raw_files.isdir(folder):
        return DatasetFiles(paths, has_explicit_files=raw_files.isfile(folder), findings=findings)
    sizes = None
    if is_remote(folder):
        sizes = {name: size_bytes for name, size_bytes, _ in REMOTE.walk(folder)}
    listing = read_manifest_listing(folder, sizes)
    if isinstance(listing, Finding):
        findings.append(listing)
        listing = None
    tfds = None
    if listing is None:
        try:
            tfds = read_tfds_folder(folder)
        except RekordError as failure:
            finding = Finding.from_error(failure)
            if failure.code == "X537":
                finding.severity = "note"  # valid, but with a feature no schema can declare
            findings.append(finding)
    label_map = None
    if (named := find_label_map(folder)) is not None:
        rule = build_label_map_rule(named)
        if isinstance(rule, Finding):
            findings.append(rule)
        else:
            label_map = rule
    return DatasetFiles(
        paths, folder, listing=listing, tfds=tfds, label_map=label_map, remote_sizes=sizes, findings=findings
    )


def _find_unread_files(found: FoundFiles) -> Iterator[Finding]:
    """A note on files that start with a record but were skipped because of their names."""
    try:
        records = find_skipped_records(found)
    except RekordError:
        return  # unreadable files next to the record files do not matter
    if records:
        more = f", and {len(records) - 1:,} more" if len(records) > 1 else ""
        yield Finding.of(
            "H790",
            "note",
            path=records[0],
            expected="a name such as x.tfrecord, like other files here",
            found=os.path.basename(records[0])[:60] + more,
            do="rename it if it belongs to the dataset, or pass the file itself: rekord check FILE",
        )
