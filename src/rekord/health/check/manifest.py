"""Checks of the files of a dataset against its manifest, `dataset_info.json`, label map and indexes."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rekord import _core
from rekord.codes import CODES
from rekord.dataset.index import CHUNK_RECORDS, IndexFile, IndexMismatch, index_path, open_index_file
from rekord.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    check_shard,
    find_shard_entry,
    has_manifest,
    manifest_path,
    read_manifest,
    shard_size_error,
)
from rekord.dataset.shard_index import open_remote_index
from rekord.errors import RekordError, add_location, error, preview
from rekord.health.check.rule import MAX_LISTED_PER_CODE, CheckRule
from rekord.health.check.shards import build_missing_shards_finding, group_runs
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.report.formatting import format_count
from rekord.schema import Feature, Schema
from rekord.schema.interop.label_map import read_label_map
from rekord.schema.interop.tfds import INFO_NAME, TfdsFolder
from rekord.storage import raw_files
from rekord.storage.digest import FileDigest
from rekord.storage.local import LOCAL, Readable, Stat, read_file
from rekord.storage.router import ROUTED_STORAGE, is_remote

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

_LABEL_MAP_SUFFIXES = ("label_map.pbtxt", "labelmap.pbtxt")
CLASS_ID_KEY = "image/object/class/label"
CLASS_NAME_KEY = "image/object/class/text"


def find_label_map(folder: str) -> str | None:
    """The label map in a folder, if there is exactly one."""
    try:
        found = [name for name in sorted(raw_files.listdir(folder)) if name.lower().endswith(_LABEL_MAP_SUFFIXES)]
    except OSError:
        return None
    place = os.path.join(folder, found[0]) if len(found) == 1 else None
    return place if place is not None and raw_files.isfile(place) else None


def build_label_map_rule(path: str) -> LabelMapRule | Finding:
    """The rule for a label map, or the finding about an invalid one."""
    try:
        return LabelMapRule(os.path.basename(path), read_label_map(raw_files.local_file(path)))
    except RekordError as failure:
        return Finding.from_error(failure)


class LabelMapRule(CheckRule):
    """Every class id and class name of an object is in the label map. `classes` maps ids to names."""

    def __init__(self, name: str, classes: Mapping[int, str]) -> None:
        super().__init__()
        self._name = name
        self._ids = np.array(sorted(classes), np.int64)
        self._names = {text.encode() for text in classes.values()}

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The records with other classes."""
        ids, names = batch.context.get(CLASS_ID_KEY), batch.context.get(CLASS_NAME_KEY)
        if ids is not None and ids.kind == "int64":
            wrong = ~np.isin(ids.values, self._ids)
            yield from self._report_values(batch, CLASS_ID_KEY, ids, wrong, lambda place: str(int(ids.values[place])))
        if names is not None and names.kind == "bytes":
            texts = names.values.list_bytes(0, len(names.values))
            # An empty name means an omitted one.
            wrong = np.fromiter((bool(t) and t not in self._names for t in texts), np.bool_, len(texts))
            yield from self._report_values(batch, CLASS_NAME_KEY, names, wrong, lambda place: repr(texts[place])[:60])

    def _report_values(
        self, batch: KeyedBatch, key: str, column: KeyColumn, wrong: Any, shown: Any
    ) -> Iterator[Finding]:
        places = np.flatnonzero(wrong)
        first = {int(column.owners[place]): int(place) for place in places[::-1] if column.owners[place] >= 0}
        yield from self._repeated.report(
            batch,
            sorted(first),
            "H752",
            "error",
            key,
            lambda row: {
                "message": f"`{key}` has a class that is not in {self._name}",
                "expected": f"one of the {len(self._ids):,} classes of {self._name}",
                "found": shown(first[row]),
                "do": f"add the class to {self._name}, or fix the records at their source",
            },
        )


_HASH_BYTES = 1 << 20
_COUNT_CHUNK_RECORDS = 1 << 16  # class ids below this are counted by an array


@dataclass(frozen=True)
class ManifestListing:
    """A manifest and its folder."""

    folder: str
    manifest: Manifest
    schema: Schema
    remote_sizes: Mapping[str, int] | None = None  # of a remote folder: the bytes of all files, by path below it

    def has_file(self, name: str) -> bool:
        """Whether a file exists below the folder."""
        if self.remote_sizes is not None:
            return name in self.remote_sizes
        return os.path.lexists(os.path.join(self.folder, name))

    def check_shard(self, name: str, size_bytes: int, *, allow_missing: bool) -> bool:
        """Whether a shard exists; raises if it has another size, or, unless missing ones are allowed, is missing."""
        if self.remote_sizes is None or (name not in self.remote_sizes and not allow_missing):
            return check_shard(self.folder, name, size_bytes, allow_missing=allow_missing) is not None
        found = self.remote_sizes.get(name)
        if found not in (None, size_bytes):
            raise shard_size_error(os.path.join(self.folder, name), size_bytes, int(found or 0))
        return found is not None

    @cached_property
    def shards(self) -> dict[str, tuple[str, int]]:
        """The split and number of each shard, by path."""
        return {
            os.path.normpath(os.path.join(self.folder, name)): (split, number)
            for split, part in self.manifest.splits.items()
            for number, name in enumerate(part.names(split))
        }

    @property
    def key(self) -> str | None:
        """The column that identifies a row, if one is declared."""
        key = self.manifest.options.get("key")
        return key if isinstance(key, str) and key in self.schema else None

    def digest_algorithm(self, path: str) -> str:
        """The algorithm of the digest of a file; empty if the file is not listed."""
        found = self.shards.get(os.path.normpath(path))
        return "" if found is None else self.manifest.splits[found[0]].shards.digest[found[1]].partition(":")[0]

    def split_of(self, path: str) -> str | None:
        """The split of a file; None if it is not listed."""
        found = self.shards.get(os.path.normpath(path))
        return None if found is None else found[0]


def read_manifest_listing(
    folder: str, remote_sizes: Mapping[str, int] | None = None
) -> ManifestListing | Finding | None:
    """The manifest of a folder; a finding if it is invalid, None if there is none."""
    path = manifest_path(folder)
    if not has_manifest(folder):
        return None
    try:
        manifest = read_manifest(folder)
        with add_location(path=path):
            return ManifestListing(folder, manifest, Schema.from_dict(manifest.schema), remote_sizes)
    except RekordError as failure:
        return Finding.from_error(failure)


class FileDigests:
    """The digests of files, computed by a background thread with the algorithms of those in the manifest.

    Add a file right after reading it, while its bytes are still cached. Remote files are hashed while they are read,
    through this as their storage: reading them again would cost as much once more.
    """

    def __init__(self, listing: ManifestListing) -> None:
        self._listing = listing
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rekord-digest")
        self._stop = threading.Event()
        self._waiting: dict[str, Future[str | None]] = {}
        self._read: dict[str, _HashedFile] = {}

    def open_read(self, path: str) -> Readable:
        """A file open for reading, which is hashed meanwhile if it is remote."""
        file = ROUTED_STORAGE.open_read(path)
        if not is_remote(path):
            return file
        hashed = _HashedFile(file, FileDigest(self._listing.digest_algorithm(path)))
        return self._read.setdefault(path, hashed)

    def stat(self, path: str) -> Stat:
        return ROUTED_STORAGE.stat(path)

    def add(self, path: str) -> None:
        """Queue a file."""
        where = os.path.normpath(path)
        hashed = self._read.pop(path, None)
        if hashed is not None and hashed.is_complete:
            done: Future[str | None] = Future()
            self._waiting[where] = done
            done.set_result(str(hashed.digest))
        if where not in self._waiting:
            self._waiting[where] = self._pool.submit(self._digest, path)

    def digest(self, path: str) -> str | None:
        """Wait for the digest of a file; None if it could not be read to its end."""
        self.add(path)
        return self._waiting[os.path.normpath(path)].result()

    def close(self) -> None:
        """Stop, even in the middle of a file."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> FileDigests:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _digest(self, path: str) -> str | None:
        digest, buffer = FileDigest(self._listing.digest_algorithm(path)), bytearray(_HASH_BYTES)
        view = memoryview(buffer)
        try:
            with ROUTED_STORAGE.open_read(path) as file:
                while count := file.readinto(buffer):
                    if self._stop.is_set():
                        return None
                    digest.update(view[:count])
        except RekordError:
            return None  # reported by the pass over the records, unless it was readable then
        return str(digest)


class _HashedFile:
    """A file whose bytes are hashed as they are read, once each and in order."""

    def __init__(self, file: Readable, digest: FileDigest) -> None:
        self.path = file.path
        self.size_bytes = file.size_bytes
        self.digest = digest
        self._file = file
        self._at = 0
        self._hashed_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether all of the file was read, without gaps."""
        return self._hashed_bytes == self.size_bytes

    def readinto(self, buffer: Buffer, /) -> int:
        count = self._file.readinto(buffer)
        if self._at <= self._hashed_bytes < self._at + count:
            with memoryview(buffer).cast("B") as view:
                self.digest.update(view[self._hashed_bytes - self._at : count])
            self._hashed_bytes = self._at + count
        self._at += count
        return count

    def seek(self, offset: int, /) -> int:
        self._at = self._file.seek(offset)
        return self._at

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def find_manifest_mismatches(
    listing: ManifestListing, paths: Sequence[str], records_by_path: Mapping[str, int], digests: FileDigests
) -> Iterator[Finding]:
    """Where the files of a folder do not match its manifest.

    `paths` are the record files found, `records_by_path` the numbers of records of those without damage.
    """
    records = {os.path.normpath(path): count for path, count in records_by_path.items()}
    known = {
        digest: name
        for split, part in listing.manifest.splits.items()
        for digest, name in zip(part.shards.digest, part.names(split), strict=True)
    }
    for split, part in listing.manifest.splits.items():
        missing = []
        for number, name in enumerate(part.names(split)):
            try:
                exists = listing.check_shard(name, part.shards.bytes[number], allow_missing=True)
            except RekordError as failure:
                yield Finding.from_error(failure)
                continue
            path = os.path.join(listing.folder, name)
            if not exists:
                missing.append(number)
            elif (count := records.get(os.path.normpath(path))) is not None:
                if count != part.shards.records[number]:
                    yield _shard_mismatch_finding(
                        path,
                        "shard does not have the number of records in the manifest",
                        format_count(part.shards.records[number], "record"),
                        format_count(count, "record"),
                    )
                elif (found := digests.digest(path)) not in (None, part.shards.digest[number]):
                    expected, message = part.shards.digest[number], "shard does not have the checksum in the manifest"
                    yield _shard_mismatch_finding(
                        path, message, f"{expected[:23]}…", f"{str(found)[:23]}…", same_as=known.get(str(found))
                    )
        pattern = part.template.replace("{split}", split).replace("{shard:05d}", "*")
        pattern = pattern.replace("{shards:05d}", f"{len(part.shards.records):05d}")
        if missing and isinstance(part.shards.names, list):
            pattern = part.shards.names[missing[0]]
        place = os.path.join(listing.folder, pattern)
        finding = build_missing_shards_finding(
            place, group_runs(missing), len(part.shards.records), source=MANIFEST_NAME
        )
        if finding is not None:
            yield finding
    yield from _find_companion_mismatches(listing)
    yield from _find_unlisted_files(listing, paths)


def _shard_mismatch_finding(
    path: str, message: str, expected: str, found: str, *, same_as: str | None = None
) -> Finding:
    return Finding.of(
        "X516",
        "error",
        path=path,
        message=message,
        expected=f"{expected}, as in {MANIFEST_NAME}",
        found=found,
        likely=None if same_as is None else f"these are the bytes of {same_as}: a file was renamed or copied over it",
        do=f"copy {os.path.basename(path)} again, or write the dataset again",
    )


def _find_companion_mismatches(listing: ManifestListing) -> Iterator[Finding]:
    for name in listing.manifest.companions:
        path = os.path.join(listing.folder, name)
        if not listing.has_file(name):
            yield Finding.of(
                "H783",
                "warning",
                path=path,
                expected=f"a file next to the shards, as listed in {MANIFEST_NAME}",
                found="no such file",
                do=f"copy {name} again: other tools need it",
            )


def _find_unlisted_files(listing: ManifestListing, paths: Sequence[str]) -> Iterator[Finding]:
    unlisted = []
    for path in paths:
        below = raw_files.relpath(path, listing.folder)
        inside = below != os.pardir and not below.startswith(os.path.join(os.pardir, ""))
        # A nested dataset has its own manifest.
        nested = os.path.dirname(below) and listing.has_file(manifest_path(os.path.dirname(below)))
        if inside and not nested and os.path.normpath(path) not in listing.shards:
            unlisted.append(path)
    for number, path in enumerate(unlisted[: MAX_LISTED_PER_CODE + 1]):
        more = len(unlisted) - MAX_LISTED_PER_CODE
        yield Finding.of(
            "H784",
            "warning",
            path=path,
            message=f"{CODES['H784']}, and {more - 1:,} more"
            if number == MAX_LISTED_PER_CODE and more > 1
            else CODES["H784"],
            expected=f"only the shards in {MANIFEST_NAME}",
            found="a file that rk.open skips but a pattern matches",
            do="move it to another folder",
        )


class ClassCountRule(CheckRule):
    """Each class has the number of records in the manifest. Incomplete splits are not checked."""

    def __init__(self, listing: ManifestListing) -> None:
        super().__init__()
        self._listing = listing
        self._records: Counter[str] = Counter()
        self._counts: dict[tuple[str, str], Counter[int]] = {}
        self._keys: dict[str, dict[str, str]] = {}  # by split: the record key of each column that is counted
        for split, part in listing.manifest.splits.items():
            keys = {}
            for column in part.classes:
                feature = listing.schema.get(column)
                if feature is not None and feature.class_count is not None and feature.shape == ():
                    keys[column] = feature.record_keys(column)[0]
                    self._counts[split, column] = Counter()
            self._keys[split] = keys

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """Count classes; the findings come at the end."""
        split = self._listing.split_of(batch.path)
        if split is not None:
            self._records[split] += len(batch)
            for column, key in self._keys[split].items():
                values = batch.context.get(key)
                if values is not None and values.kind == "int64" and len(values.values):
                    ids = values.values
                    if values.offsets is None and values.valid is not None:
                        ids = ids[values.valid]
                    self._count(split, column, ids)
        return iter(())

    def end(self) -> Iterator[Finding]:
        """The columns whose class counts do not match the manifest."""
        for (split, column), counts in self._counts.items():
            part = self._listing.manifest.splits[split]
            if self._records[split] != part.records:
                continue
            expected = part.classes[column]
            found = {str(one): count for one, count in counts.items()}
            for name in [*expected, *found]:
                if expected.get(name, 0) != found.get(name, 0):
                    yield self._differs(split, column, name, expected.get(name, 0), found.get(name, 0))
                    break

    def _count(self, split: str, column: str, ids: Any) -> None:
        if not len(ids):
            return
        counts = self._counts[split, column]
        if int(ids.min()) >= 0 and int(ids.max()) < _COUNT_CHUNK_RECORDS:
            number = np.bincount(ids)
            for one in np.flatnonzero(number).tolist():
                counts[one] += int(number[one])
            return
        expected = self._listing.manifest.splits[split].classes[column]
        for one, count in zip(*map(np.ndarray.tolist, np.unique(ids, return_counts=True)), strict=True):
            if str(one) in expected:  # other numbers are findings of the schema rule, without a bound
                counts[one] += count

    def _differs(self, split: str, column: str, name: str, expected: int, found: int) -> Finding:
        return Finding.of(
            "H785",
            "error",
            path=manifest_path(self._listing.folder),
            feature=self._keys[split][column],
            message=f"class counts of `{column[:60]}` in the manifest do not match split {preview(split)}",
            expected=f"{format_count(expected, 'record')} of class {name[:20]}, as in {MANIFEST_NAME}",
            found=format_count(found, "record"),
            do="write the dataset again: class weights and balanced batches would be wrong",
        )


_MAX_INFO_BYTES = 64 << 20
_SHARD_SUFFIX = re.compile(r"-(?P<shard>\d{5,})-of-(?P<shards>\d{5,})$")


@dataclass(frozen=True, slots=True)
class _TfdsSplitInfo:
    """One split in dataset_info.json."""

    shard_lengths: tuple[int, ...]
    n_bytes: int | None


def find_tfds_mismatches(
    folder: str,
    paths: Sequence[str],
    records_by_path: Mapping[str, int],
    payload_bytes_by_path: Mapping[str, int],
) -> Iterator[Finding]:
    """Where the shards in a folder do not match its dataset_info.json, if there is one.

    The two mappings omit damaged files. Missing shards of a set are found by name elsewhere.
    """
    place = os.path.join(folder, INFO_NAME)
    if not os.path.isfile(place):
        return
    try:
        name, splits = _read_tfds_info(place)
    except RekordError as failure:
        failure.location = failure.location.within(path=place)
        yield Finding.from_error(failure)
        return
    files = TfdsFolder(name, "", {split: info.shard_lengths for split, info in splits.items()}, None)
    by_split: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        inside = os.path.normpath(os.path.dirname(path) or ".") == os.path.normpath(folder)
        split = files.split_of(os.path.basename(path)) if inside else None
        if split is not None:
            by_split[split].append(path)
    for split, info in splits.items():
        shards = len(info.shard_lengths)
        if split not in by_split:
            # If no file matches, the names follow another template.
            pattern, runs = os.path.join(folder, f"{name}-{split}.*"), [(0, shards - 1)] if shards else []
            finding = build_missing_shards_finding(pattern, runs, shards, source=INFO_NAME)
            if finding is not None and by_split:
                finding.severity = "warning"  # a single split may have been fetched on purpose
                yield finding
            continue
        wrong = list(_find_tfds_shard_mismatches(by_split[split], info.shard_lengths, records_by_path))
        yield from wrong
        if not wrong:
            yield from _find_tfds_size_mismatches(
                place, split, by_split[split], info, records_by_path, payload_bytes_by_path
            )


def _find_tfds_shard_mismatches(
    paths: Sequence[str], lengths: Sequence[int], records_by_path: Mapping[str, int]
) -> Iterator[Finding]:
    for path in paths:
        numbered = _SHARD_SUFFIX.search(path)
        assert numbered is not None, "split_of accepts no other names"
        number, shards = int(numbered["shard"]), int(numbered["shards"])
        if shards != len(lengths) or number >= shards:
            yield _tfds_mismatch_finding(
                path,
                "set does not have the number of shards in dataset_info.json",
                f"{len(lengths):,} shards",
                f"{os.path.basename(path)[-60:]}",
            )
            return
        found = records_by_path.get(path)
        if found is not None and found != lengths[number]:
            yield _tfds_mismatch_finding(
                path,
                "shard does not have the number of records in dataset_info.json",
                format_count(lengths[number], "record"),
                format_count(found, "record"),
            )


def _find_tfds_size_mismatches(
    place: str,
    split: str,
    paths: Sequence[str],
    info: _TfdsSplitInfo,
    records_by_path: Mapping[str, int],
    payload_bytes_by_path: Mapping[str, int],
) -> Iterator[Finding]:
    complete = len(paths) == len(info.shard_lengths) and all(
        path in records_by_path and path in payload_bytes_by_path for path in paths
    )
    if not complete or not info.n_bytes:
        return
    payload_bytes = sum(payload_bytes_by_path[path] for path in paths)
    # Some versions of TFDS count the framing, others do not.
    framed_bytes = payload_bytes + _core.FRAMING_BYTES * sum(records_by_path[path] for path in paths)
    if info.n_bytes not in (payload_bytes, framed_bytes):
        yield _tfds_mismatch_finding(
            place,
            f"size of split {preview(split)} does not match dataset_info.json",
            f"{info.n_bytes:,} bytes",
            f"{payload_bytes:,} bytes, or {framed_bytes:,} with framing",
        )


def _tfds_mismatch_finding(path: str, message: str, expected: str, found: str) -> Finding:
    return Finding.of(
        "X545",
        "error",
        path=path,
        message=message,
        expected=f"{expected}, as in {INFO_NAME}",
        found=found,
        do="fetch or prepare the dataset again: TFDS reads the number of records in that file",
    )


def _read_tfds_info(place: str) -> tuple[str, dict[str, _TfdsSplitInfo]]:
    content = read_file(place, LOCAL, most_bytes=_MAX_INFO_BYTES)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as failure:
        raise _tfds_info_error("JSON", str(failure)[:60]) from None
    name = document.get("name") if isinstance(document, dict) else None
    splits = document.get("splits", []) if isinstance(document, dict) else None
    if not isinstance(name, str) or not isinstance(splits, list):
        raise _tfds_info_error("a name and a list of splits", preview(document))
    return name, dict(_parse_tfds_split(split) for split in splits)


def _parse_tfds_split(split: Any) -> tuple[str, _TfdsSplitInfo]:
    name = split.get("name") if isinstance(split, dict) else None
    lengths = split.get("shardLengths", []) if isinstance(split, dict) else None
    if not isinstance(name, str) or not isinstance(lengths, list):
        raise _tfds_info_error("splits with a name and shardLengths", preview(split))
    n_bytes = split.get("numBytes")
    try:
        counts = tuple(int(length) for length in lengths)
        return name, _TfdsSplitInfo(counts, None if n_bytes is None else int(n_bytes))
    except (TypeError, ValueError, OverflowError):
        raise _tfds_info_error("integers in shardLengths and numBytes", preview(lengths)) from None


def _tfds_info_error(expected: str, found: str) -> RekordError:
    return error("X536", expected=expected, found=found, do="fetch the file again")


class IndexRule(CheckRule):
    """The index of each shard is intact and matches the positions and columns of its records.

    Readers ignore a damaged index, which only costs time; an intact but wrong one would make queries and balanced
    batches wrong.
    """

    def __init__(self, listing: ManifestListing) -> None:
        super().__init__()
        self._listing = listing
        self._path: str | None = None
        self._index: IndexFile | None = None

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The first record of a file that does not match the index."""
        if self._path != batch.path:
            yield from self._open(batch.path)
        if self._index is None:
            return
        try:
            for finding in self._differences(self._index, batch):
                yield finding
                self._index = None
                return
        except IndexMismatch as failure:
            self._index = None
            yield self._damaged(batch.path, str(failure))

    def end_file(self, path: str) -> Iterator[Finding]:
        """Verify the index of a file without records; other findings were reported already."""
        if self._path != path:
            yield from self._open(path)
        self._index = self._path = None

    def _open(self, path: str) -> Iterator[Finding]:
        self._path, self._index = path, None
        listed = find_shard_entry(path) if self._listing.split_of(path) is not None else None
        if listed is None or listed.expected is None:
            return
        place = index_path(path)
        name = raw_files.relpath(place, self._listing.folder)
        if not self._listing.has_file(name):
            yield self._finding(
                path, "note", "shard index is missing", f"{name}, as listed in {MANIFEST_NAME}", "none"
            )
            return
        open_index = open_remote_index if is_remote(place) else open_index_file
        index = open_index(place, listed.expected)
        if index is None or not index.is_intact():
            yield self._damaged(path, "a different checksum or shard")
            return
        self._index = index

    def _damaged(self, path: str, found: str) -> Finding:
        message = "shard index is damaged and ignored: reading is slower"
        return self._finding(path, "warning", message, f"an index with the checksums in {MANIFEST_NAME}", found)

    def _finding(self, path: str, severity: Severity, message: str, expected: str, found: str) -> Finding:
        return Finding.of(
            "X547",
            severity,
            path=path,
            message=message,
            expected=expected[:120],
            found=found[:60],
            do=f"rekord index {self._listing.folder}      (rebuilds it from the records)",
        )

    def _differences(self, index: IndexFile, batch: KeyedBatch) -> Iterator[Finding]:
        import pyarrow as pa

        known = batch.records < index.records
        for number in np.unique(batch.records[known] // CHUNK_RECORDS).tolist():
            rows = np.flatnonzero(known & (batch.records // CHUNK_RECORDS == number))
            places = batch.records[rows] - number * CHUNK_RECORDS
            for row in rows[index.offsets(number)[places].astype(np.int64) != batch.offsets[rows]][:1]:
                offset = int(index.offsets(number)[int(batch.records[row]) - number * CHUNK_RECORDS])
                yield _index_mismatch_finding(
                    batch, int(row), None, f"byte {int(batch.offsets[row]):,}", f"byte {offset:,}"
                )
            chunk = index.chunk(number)
            for name in index.columns:
                feature = self._listing.schema[name]
                column = batch.context.get(feature.record_keys(name)[0])
                if column is None:
                    continue
                indexed = chunk.column(chunk.schema.get_field_index(name)).take(pa.array(places))
                yield from _find_column_mismatches(batch, column, feature, rows, indexed, name)


def _find_column_mismatches(
    batch: KeyedBatch, column: KeyColumn, feature: Feature, rows: Any, indexed: Any, name: str
) -> Iterator[Finding]:
    """The first row that differs from the index. Missing values are not compared: they may have a default."""
    present = column.counts[rows] > 0
    if column.kind == "int64" and column.offsets is None and not feature.shape:
        values = column.values[rows]
        differs = present & (_to_integers(indexed, ~values) != values)
        for at in np.flatnonzero(differs)[:1].tolist():
            yield _index_mismatch_finding(batch, int(rows[at]), name, str(int(values[at])), str(indexed[at].as_py()))
        return
    for at in np.flatnonzero(present).tolist():
        held = _to_index_value(column.value(int(rows[at])), feature)
        found = indexed[at].as_py()
        if held is not None and not _is_same_value(held, found):
            yield _index_mismatch_finding(batch, int(rows[at]), name, repr(held)[:60], repr(found)[:60])
            return


def _to_integers(indexed: Any, missing: Any) -> Any:
    """The integers of an Arrow array, with nulls filled from `missing`."""
    import pyarrow as pa

    integers = indexed.cast(pa.int64())
    values = np.array(integers.fill_null(0))
    return np.where(np.array(integers.is_valid()), values, missing) if indexed.null_count else values


def _to_index_value(value: Any, feature: Feature) -> Any:
    """The values of a record as stored in an index; None if they cannot be compared."""
    values = value if isinstance(value, list) else value.tolist()
    if len(feature.shape) > 1:
        return None  # the record does not contain its inner dimensions
    if feature.shape:
        return values
    return values[0] if len(values) == 1 else None


def _is_same_value(held: Any, found: Any) -> bool:
    if isinstance(held, list):
        return isinstance(found, list) and len(held) == len(found) and all(map(_is_same_value, held, found))
    if isinstance(held, bytes) and isinstance(found, str):
        return held == found.encode("utf-8", "surrogatepass")
    return bool(held == found or (held != held and found != found))


def _index_mismatch_finding(batch: KeyedBatch, row: int, feature: str | None, held: str, indexed: str) -> Finding:
    return Finding.of(
        "X547",
        "error",
        path=batch.path,
        record=int(batch.records[row]),
        offset=int(batch.offsets[row]),
        feature=feature,
        message="shard index does not match its records",
        expected=f"{held}, as in the record",
        found=f"{indexed} in the index",
        do="write the dataset again: its queries and balanced batches are wrong",
    )
