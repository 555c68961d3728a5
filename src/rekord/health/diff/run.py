"""`rk.diff`: what changed between two datasets, found in one pass over each."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rekord.arguments import check_keywords, non_blank
from rekord.dataset.manifest import Manifest
from rekord.dataset.read import open_frames
from rekord.errors import RekordError, closest_match, error, preview
from rekord.health.dataset_files import find_dataset_files, list_split_files
from rekord.health.diff import match
from rekord.health.diff.match import FeatureFingerprints, FeatureNumbering, KeyMatch
from rekord.health.diff.report import (
    Diff,
    RecordDiff,
    RecordPair,
    SplitSide,
    diff_observed_schemas,
    diff_schemas,
    find_feature_shifts,
    read_examples,
    to_record_positions,
)
from rekord.health.duplicates import ExternalSort
from rekord.health.finding import Finding, Report
from rekord.health.key_columns import DigestArray, KeyColumn, KeyedBatch
from rekord.health.scan import scan_file
from rekord.health.stats.accumulate import Accumulator
from rekord.health.stats.report import build_part_stats
from rekord.location import Location
from rekord.report.formatting import format_count
from rekord.schema import Schema
from rekord.storage.local import PathLike


@dataclass(frozen=True, kw_only=True)
class DatasetSide:
    """One of the two datasets. `findings` are about files that are missing or have the wrong size."""

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
        """The compression of the files of a split, according to the manifest or the first file."""
        if self.manifest is not None:
            return self.manifest.splits[split].compression
        try:
            with open_frames(self.splits[split][0]) as reader:
                return reader.compression
        except (RekordError, IndexError):
            return "none"  # the pass over the file reports what is wrong


def open_side(path: PathLike | Sequence[PathLike]) -> DatasetSide:
    """The files of a dataset, from its manifest if there is one. Missing files are findings."""
    place = find_dataset_files(path)
    there = list_split_files(place)
    return DatasetSide(
        path=os.fspath(path) if isinstance(path, (str, os.PathLike)) else ", ".join(place.paths),
        splits=there.splits,
        manifest=None if place.listing is None else place.listing.manifest,
        schema=place.schema,
        findings=there.findings,
    )


def pair_splits(a: DatasetSide, b: DatasetSide) -> dict[tuple[str | None, str | None], int]:
    """A number per split: (its name in A, its name in B). Two single splits are paired."""
    if len(a.splits) == 1 and len(b.splits) == 1:
        return {(next(iter(a.splits)), next(iter(b.splits))): 0}
    names = dict.fromkeys([*a.splits, *b.splits])
    return {
        (name if name in a.splits else None, name if name in b.splits else None): number
        for number, name in enumerate(names)
    }


def has_same_listing(a: DatasetSide, b: DatasetSide) -> bool:
    """Whether two manifests list the same schema, splits and checksums, and all shards exist."""
    if a.manifest is None or b.manifest is None or a.findings or b.findings or a.schema != b.schema:
        return False
    one, other = (
        {name: (part.shards.records, part.shards.digest) for name, part in side.manifest.splits.items()}
        for side in (a, b)
        if side.manifest is not None
    )
    return one == other


MAX_FINDINGS = 1000
"""Findings listed per side; the rest is counted."""

MAX_KEYED_RECORDS = 1 << 32
"""The range of record numbers in the sort."""

_OPAQUE_PAYLOAD_CODES = ("H711", "H712", "H713", "H714", "H715")
_TOO_MANY_KEYS = "H727"
_MAX_SHOWN_KEYS = 8


@dataclass(kw_only=True)
class SideStatistics:
    """What was read from one side."""

    records: Counter[int] = field(default_factory=Counter)  # compared records, by split
    order: Counter[int] = field(default_factory=Counter)  # by split, modulo 2^64
    payload_bytes: int = 0
    statistics: Accumulator = field(default_factory=Accumulator)
    findings: list[Finding] = field(default_factory=list)
    not_listed: int = 0
    unreadable: int = 0
    without_key: int = 0
    raw_files: int = 0  # without Examples
    wide_records: int = 0  # with too many keys to compare key by key


class DatasetComparison:
    """Both sides while they are read. Use it in a `with` block: it holds memory and disk."""

    def __init__(self, keys: tuple[str, str] | None, report: Report) -> None:
        self._keys = keys
        self._report = report
        self.files: list[str] = []
        self.content = ExternalSort()
        self.keyed = ExternalSort() if keys is not None else None
        self.features = FeatureNumbering()
        self.prints = FeatureFingerprints(self.features), FeatureFingerprints(self.features)
        self.sides = SideStatistics(), SideStatistics()
        self._key_kind: str | None = None

    def __enter__(self) -> DatasetComparison:
        return self

    def __exit__(self, *failure: object) -> None:
        self.content.close()
        if self.keyed is not None:
            self.keyed.close()
        for prints in self.prints:
            prints.close()

    def read(self, side: int, split: int, paths: Sequence[str]) -> None:
        """Read the files of one split of one side, in their order."""
        base = self._report.records
        for path in paths:
            self._read_file(side, split, path, self._report.records - base)

    def end(self, side: int) -> None:
        """After the last file of a side. Raises if no record has the key."""
        seen = self.sides[side]
        seen.statistics.flush()
        compared = seen.records.total()
        if self._keys is not None and compared and seen.without_key == compared:
            raise self._no_such_key(side)

    def _read_file(self, side: int, split: int, path: str, before: int) -> None:
        seen = self.sides[side]
        unreadable, payload_bytes = self._report.unreadable, self._report.payload_bytes
        file = len(self.files)
        self.files.append(path)
        raw = False
        wide: list[int] = []
        for item in scan_file(path, self._report):
            if isinstance(item, KeyedBatch):
                seen.statistics.add(item)
                digests = match.digest_records(item)
                self._take(side, split, file, before, digests, item.records, item.offsets)
                if self._keys is not None:
                    self._take_keys(side, split, file, digests, item)
                continue
            raw = raw or item.code in _OPAQUE_PAYLOAD_CODES
            if item.code == _TOO_MANY_KEYS and item.record is not None:
                wide.append(item.record)
            if item.severity == "error":
                self._report.errors += 1
                if len(seen.findings) < MAX_FINDINGS:
                    seen.findings.append(item)
                else:
                    seen.not_listed += 1
        seen.raw_files += raw
        seen.wide_records += len(wide)
        if raw or wide:
            for first, offsets, digests in match.digest_payloads(path):
                records, places = np.arange(first, first + len(offsets)), np.array(offsets, np.int64)
                if not raw:
                    # The other records of the file were compared key by key.
                    chosen = np.isin(records, wide)
                    digests, records, places = digests[chosen], records[chosen], places[chosen]
                if len(records):
                    self._take(side, split, file, before, digests, records, places)
                    seen.without_key += len(records)
        seen.unreadable += self._report.unreadable - unreadable
        seen.payload_bytes += self._report.payload_bytes - payload_bytes

    def _take(
        self,
        side: int,
        split: int,
        file: int,
        before: int,
        digests: DigestArray,
        records: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
    ) -> None:
        seen = self.sides[side]
        seen.records[split] += len(records)
        seen.order[split] = (seen.order[split] + match.compute_order_sum(digests, before + records)) % (1 << 64)
        self.content.add(
            match.build_sort_rows(digests, records=records, offsets=offsets, file=file, split=split, side=side)
        )

    def _take_keys(self, side: int, split: int, file: int, digests: DigestArray, batch: KeyedBatch) -> None:
        assert self._keys is not None
        assert self.keyed is not None
        key = self._keys[side]
        numbers = np.arange(len(batch), dtype=np.int64) + self.prints[side].add(batch)
        if numbers[-1] >= MAX_KEYED_RECORDS:
            raise error(
                "U646",
                "too many records to match by key",
                location=Location(path=batch.path),
                expected=f"at most {MAX_KEYED_RECORDS:,} records per side",
                found="more than that",
                do="compare split by split, or omit key=",
            )
        column = batch.context.get(key)
        if column is None or not column.present:
            self.sides[side].without_key += len(batch)
            return
        self._check_key(key, column, batch)
        have = column.counts == 1
        self.sides[side].without_key += len(batch) - int(np.count_nonzero(have))
        rows = match.build_sort_rows(
            match.digest_keys(column),
            records=batch.records,
            offsets=digests[:, 0].view(np.int64),  # what is compared; the location is in its fingerprint
            file=file,
            split=split,
            side=side,
            numbers=numbers,
        )
        self.keyed.add(rows if have.all() else rows[have])

    def _check_key(self, key: str, column: KeyColumn, batch: KeyedBatch) -> None:
        found = None
        row = int(np.argmax(column.counts > 0))
        several = np.flatnonzero(column.counts > 1)
        if column.kind == "float":
            found = "floats"
        elif len(several):
            row = int(several[0])
            found = f"{int(column.counts[row]):,} values"
        elif self._key_kind not in (None, column.kind):
            found = f"{column.kind} here, and {self._key_kind} in another record"
        self._key_kind = self._key_kind or column.kind
        if found is not None:
            raise error(
                "U646",
                f"`{key[:60]}` does not identify records",
                location=Location(
                    path=batch.path,
                    record=int(batch.records[row]),
                    offset=int(batch.offsets[row]),
                    feature=key[:60],
                ),
                expected="one integer or one byte string per record, of the same kind everywhere",
                found=found,
                do="choose another key, or omit key= to compare records by content",
            )

    def _no_such_key(self, side: int) -> RekordError:
        assert self._keys is not None
        key = self._keys[side]
        known = sorted({name for step, name in self.sides[side].statistics.features if not step})
        near = closest_match(key, known)
        some = ", ".join([f"`{name[:60]}`" for name in known[:_MAX_SHOWN_KEYS]])
        return error(
            "U606",
            f"no record of {'AB'[side]} has the key {preview(key)}",
            location=Location(path=self.files[-1] if self.files else None),
            expected=f"one of {some}{', …' if len(known) > _MAX_SHOWN_KEYS else ''}"
            if known
            else "records with keys",
            found=preview(key),
            likely=f"`{near}` was meant" if near else None,
            do=f'key="{near}"' if near else "choose a key that the records have, or omit key=",
        )


def compare_sides(one: DatasetSide, other: DatasetSide, *, key: str | None, read: bool, report: Report) -> Diff:
    """What changed between two sides; `report` counts files, records and bytes while they are read."""
    if key is not None:
        non_blank("key", key, expected="the name of a column or record key", do='key="id"')
    remarks: list[str] = []
    if not read and has_same_listing(one, other):
        return _diff_manifests(one, other)
    name = key
    if name is None:
        name = _find_common_key(one, other)
        if name is not None:
            remarks.append(f"records are matched by `{name}`, the key in both manifests")
    keys = None if name is None else (_get_record_key(one.schema, name), _get_record_key(other.schema, name))
    pairs = pair_splits(one, other)
    with DatasetComparison(keys, report) as comparing:
        for number, side in enumerate((one, other)):
            for names, split in pairs.items():
                in_side = names[number]
                if in_side is not None:
                    comparing.read(number, split, side.splits[in_side])
            comparing.end(number)
        return _build_diff(one, other, name, keys, pairs, comparing, remarks)


def _build_diff(
    one: DatasetSide,
    other: DatasetSide,
    key: str | None,
    keys: tuple[str, str] | None,
    pairs: Mapping[tuple[str | None, str | None], int],
    comparing: DatasetComparison,
    remarks: list[str],
) -> Diff:
    seen = comparing.sides
    records = _diff_records(comparing, keys)
    if one.schema is not None and other.schema is not None:
        schema = diff_schemas(one.schema, other.schema)
    else:
        schema = diff_observed_schemas(
            *(build_part_stats(name, side.statistics, None) for name, side in zip("AB", seen, strict=True))
        )
    a, b = (
        build_part_stats(name, each.statistics, side.schema)
        for name, each, side in zip("AB", seen, (one, other), strict=True)
    )
    splits = _describe_splits(one, other, pairs, seen)
    remarks += _build_remarks(pairs, splits, seen, records)
    return Diff(
        a=one.path,
        b=other.path,
        key=key,
        schema=schema,
        counts={
            name: {
                "records": each.records.total(),
                "files": len(side.files),
                "payload_bytes": each.payload_bytes,
            }
            for name, each, side in zip("ab", seen, (one, other), strict=True)
        },
        splits=splits,
        features={} if records.same else find_feature_shifts(a, b, besides=keys or ()),
        records=records,
        remarks=remarks,
        findings=[*one.findings, *other.findings, *seen[0].findings, *seen[1].findings],
        not_listed=seen[0].not_listed + seen[1].not_listed,
        unreadable=seen[0].unreadable + seen[1].unreadable,
    )


def _diff_records(comparing: DatasetComparison, keys: tuple[str, str] | None) -> RecordDiff:
    content = match.match_content(comparing.content)
    by_key = KeyMatch()
    if comparing.keyed is not None:
        by_key = match.match_keys(comparing.keyed, comparing.prints)
    # A key is part of the content of its record: a changed record counts as one removed and one added.
    added, removed = content.added - by_key.changed, content.removed - by_key.changed
    places = content if keys is None else by_key
    shown_pairs: list[RecordPair] = [
        (
            "changed",
            to_record_positions(ours, comparing.files)[0],
            to_record_positions(theirs, comparing.files)[0],
        )
        for ours, theirs in by_key.changed_places
    ]
    if removed:
        shown_pairs += [
            ("removed", each, None) for each in to_record_positions(places.removed_places, comparing.files)
        ]
    if added:
        shown_pairs += [("added", None, each) for each in to_record_positions(places.added_places, comparing.files)]
    features = {
        name: count
        for name, count in zip(comparing.features.names(), by_key.features.tolist(), strict=False)
        if count
    }
    return RecordDiff(
        added=added,
        removed=removed,
        changed=by_key.changed,
        moved=content.moved,
        features=dict(sorted(features.items(), key=lambda each: (-each[1], each[0]))),
        repeated_keys=(by_key.repeated_in_a, by_key.repeated_in_b),
        without_key=(comparing.sides[0].without_key, comparing.sides[1].without_key) if keys else (0, 0),
        examples=read_examples(shown_pairs, keys or (None, None)),
    )


def _describe_splits(
    one: DatasetSide,
    other: DatasetSide,
    pairs: Mapping[tuple[str | None, str | None], int],
    seen: tuple[SideStatistics, SideStatistics],
) -> dict[str, tuple[SplitSide | None, SplitSide | None]]:
    found = {}
    for names, number in pairs.items():
        a, b = (
            None
            if name is None
            else SplitSide(
                records=each.records[number], files=len(side.splits[name]), compression=side.compression(name)
            )
            for name, side, each in zip(names, (one, other), seen, strict=True)
        )
        found[names[0] or names[1] or ""] = (a, b)
    return found


def _build_remarks(
    pairs: Mapping[tuple[str | None, str | None], int],
    splits: Mapping[str, tuple[SplitSide | None, SplitSide | None]],
    seen: tuple[SideStatistics, SideStatistics],
    records: RecordDiff,
) -> list[str]:
    remarks = []
    for names, number in pairs.items():
        name = names[0] or names[1] or ""
        if None not in names and names[0] != names[1]:
            remarks.append(f"the only split is named `{names[0]}` in A and `{names[1]}` in B")
        a, b = splits[name]
        if a is None or b is None:
            continue
        if a.files != b.files:
            remarks.append(
                f"`{name}` has {format_count(a.files, 'file')} in A and {format_count(b.files, 'file')} in B"
            )
        if a.compression != b.compression:
            remarks.append(f"`{name}` has compression {a.compression} in A and {b.compression} in B")
        # After damage, record numbers are not comparable.
        whole = not any(side.findings or side.unreadable for side in seen)
        if records.same and whole and seen[0].order[number] != seen[1].order[number]:
            remarks.append(f"records of `{name}` are in a different order")
    for letter, repeated in zip("AB", records.repeated_keys, strict=True):
        if repeated:
            remarks.append(f"duplicate keys in {letter}: {repeated:,}; their records are matched by content")
    for letter, without, side in zip("AB", records.without_key, seen, strict=True):
        if without:
            remarks.append(f"records without the key in {letter}: {without:,}; matched by content")
        if side.raw_files:
            remarks.append(f"files without Examples in {letter}: {side.raw_files:,}; compared byte by byte")
        if side.wide_records:
            remarks.append(
                f"records with too many keys (H727) in {letter}: {side.wide_records:,}; compared byte by byte"
            )
        if side.statistics.left_out:
            remarks.append(f"{letter} has too many keys: some are not in the statistics")
    return remarks


def _diff_manifests(one: DatasetSide, other: DatasetSide) -> Diff:
    """No differences, according to two manifests and the file sizes."""
    assert one.manifest is not None
    assert one.schema is not None
    splits = {
        name: (SplitSide(records=part.records, files=len(part.shards.records), compression=part.compression),) * 2
        for name, part in one.manifest.splits.items()
    }
    counts = {
        "records": sum(part.records for part in one.manifest.splits.values()),
        "files": len(one.files),
        "payload_bytes": sum(part.payload_bytes for part in one.manifest.splits.values()),
    }
    return Diff(
        a=one.path,
        b=other.path,
        key=None,
        schema=diff_schemas(one.schema, one.schema),
        counts={"a": counts, "b": counts},
        splits=splits,
        remarks=[
            "nothing was read: the manifests list the same checksums, and the file sizes match; "
            "read=True compares the records"
        ],
        by_manifests=True,
    )


def _find_common_key(one: DatasetSide, other: DatasetSide) -> str | None:
    """The key in both manifests, if records store it in a form that identifies them."""
    names = set()
    for side in (one, other):
        named = None if side.manifest is None else side.manifest.options.get("key")
        feature = side.schema.context.get(named) if side.schema is not None and isinstance(named, str) else None
        single = feature is not None and feature.shape == () and feature.kind in ("int64", "bytes")
        names.add(named if single and feature is not None and len(feature.record_keys(str(named))) == 1 else None)
    return names.pop() if len(names) == 1 else None


def _get_record_key(schema: Schema | None, name: str) -> str:
    """The record key of a column, or the name itself if it is not a column."""
    feature = None if schema is None else schema.context.get(name)
    return name if feature is None else feature.record_keys(name)[0]


@check_keywords
def diff(
    a: PathLike | Sequence[PathLike],
    b: PathLike | Sequence[PathLike],
    *,
    key: str | None = None,
    read: bool = False,
) -> Diff:
    """Compare two datasets, record files, folders or globs: A is the older one, B the newer.

    Records are compared by content, as multisets: added ones are only in B, removed ones only in A. With a `key`, a
    column or record key of one integer or byte string, records with the same key and different content are changed.
    The default is the key in both manifests, if it is the same. Order, sharding, compression and the order of keys
    inside records make no difference; remarks report them.

    If two manifests list the same checksums and the file sizes match, nothing is read, unless `read` is true.
    """
    return compare_sides(open_side(a), open_side(b), key=key, read=read, report=Report())
