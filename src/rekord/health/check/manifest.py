"""Whether the files of a dataset match its manifest, its `dataset_info.json`, its label map and its indexes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np

from rekord import _core
from rekord.dataset.index import CHUNK_RECORDS, IndexFile, IndexMismatch, index_path, open_index_file
from rekord.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    check_shard,
    find_shard_entry,
    has_manifest,
    manifest_path,
    read_manifest,
    tag_digest,
)
from rekord.errors import RekordError, add_location, error, preview
from rekord.health.check.rule import MAX_LISTED_PER_CODE, CheckRule
from rekord.health.check.shards import build_missing_shards_finding, group_runs
from rekord.health.finding import Finding, Severity
from rekord.health.key_columns import KeyColumn, KeyedBatch
from rekord.report.formatting import format_count
from rekord.schema import Feature, Schema
from rekord.schema.interop.label_map import read_label_map
from rekord.schema.interop.tfds import INFO_NAME, TfdsFolder
from rekord.storage.local import LOCAL, read_file

_LABEL_MAP_SUFFIXES = ("label_map.pbtxt", "labelmap.pbtxt")
CLASS_ID_KEY = "image/object/class/label"
CLASS_NAME_KEY = "image/object/class/text"


def find_label_map(folder: str) -> str | None:
    """The label map in a folder, where there is exactly one."""
    try:
        found = [name for name in sorted(os.listdir(folder)) if name.lower().endswith(_LABEL_MAP_SUFFIXES)]
    except OSError:
        return None
    place = os.path.join(folder, found[0]) if len(found) == 1 else None
    return place if place is not None and os.path.isfile(place) else None


def build_label_map_rule(path: str) -> LabelMapRule | Finding:
    """The rule for a label map, or what is wrong with it."""
    try:
        return LabelMapRule(os.path.basename(path), read_label_map(path))
    except RekordError as failure:
        return Finding.from_error(failure)


class LabelMapRule(CheckRule):
    """A rule: every class id and name of an object is one of the map's. `classes` are names by their ids."""

    def __init__(self, name: str, classes: Mapping[int, str]) -> None:
        super().__init__()
        self._name = name
        self._ids = np.array(sorted(classes), np.int64)
        self._names = {text.encode() for text in classes.values()}

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The records that have another one."""
        ids, names = batch.context.get(CLASS_ID_KEY), batch.context.get(CLASS_NAME_KEY)
        if ids is not None and ids.kind == "int64":
            wrong = ~np.isin(ids.values, self._ids)
            yield from self._report_values(batch, CLASS_ID_KEY, ids, wrong, lambda place: str(int(ids.values[place])))
        if names is not None and names.kind == "bytes":
            texts = names.values.list_bytes(0, len(names.values))
            # An empty name stands for a name that was left out.
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
                "message": f"`{key}` has a class that {self._name} lacks",
                "expected": f"one of the {len(self._ids):,} classes of {self._name}",
                "found": shown(first[row]),
                "do": f"add the class to {self._name}, or fix the records where they are written",
            },
        )


_HASH_BYTES = 1 << 20
_COUNT_CHUNK_RECORDS = 1 << 16  # class ids below this are counted by an array


@dataclass(frozen=True)
class ManifestListing:
    """A manifest, and where it lies."""

    folder: str
    manifest: Manifest
    schema: Schema

    @cached_property
    def shards(self) -> dict[str, tuple[str, int]]:
        """The split and the number of each shard, by its path."""
        return {
            os.path.normpath(os.path.join(self.folder, name)): (split, number)
            for split, part in self.manifest.splits.items()
            for number, name in enumerate(part.names(split))
        }

    @property
    def key(self) -> str | None:
        """The column that is a row's identity, where one was named."""
        key = self.manifest.options.get("key")
        return key if isinstance(key, str) and key in self.schema else None

    def split_of(self, path: str) -> str | None:
        """The split of a file; None of one that is not listed."""
        found = self.shards.get(os.path.normpath(path))
        return None if found is None else found[0]


def read_manifest_listing(folder: str) -> ManifestListing | Finding | None:
    """The manifest of a folder; a finding where it cannot be used, None where there is none."""
    path = manifest_path(folder)
    if not has_manifest(folder):
        return None
    try:
        manifest = read_manifest(folder)
        with add_location(path=path):
            return ManifestListing(folder, manifest, Schema.from_dict(manifest.schema))
    except RekordError as failure:
        return Finding.from_error(failure)


class FileDigests:
    """The SHA-256 of files, made on a thread of its own beside whatever else goes on.

    A file is best added when it has just been read: then its bytes come from memory, and cost no disk.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rekord-sha256")
        self._stop = threading.Event()
        self._waiting: dict[str, Future[str | None]] = {}

    def add(self, path: str) -> None:
        """Begin with a file, or line it up."""
        where = os.path.normpath(path)
        if where not in self._waiting:
            self._waiting[where] = self._pool.submit(self._digest, path)

    def digest(self, path: str) -> str | None:
        """The digest of a file, waited for; None where it could not be read to its end."""
        self.add(path)
        return self._waiting[os.path.normpath(path)].result()

    def close(self) -> None:
        """Stop, in the middle of a file too."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> FileDigests:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _digest(self, path: str) -> str | None:
        digest, buffer = hashlib.sha256(), bytearray(_HASH_BYTES)
        view = memoryview(buffer)
        try:
            with LOCAL.open_read(path) as file:
                while count := file.readinto(buffer):
                    if self._stop.is_set():
                        return None
                    digest.update(view[:count])
        except RekordError:
            return None  # the pass over the records says why, or it could be read then
        return tag_digest(digest.hexdigest())


def find_manifest_mismatches(
    listing: ManifestListing, paths: Sequence[str], records_by_path: Mapping[str, int], digests: FileDigests
) -> Iterator[Finding]:
    """Where the files of a folder are not what its manifest says.

    `paths` are the record files that were found, `records_by_path` says how many records those have that were read
    to their ends without damage.
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
                there = check_shard(listing.folder, name, part.shards.bytes[number], allow_missing=True)
            except RekordError as failure:
                yield Finding.from_error(failure)
                continue
            path = os.path.join(listing.folder, name)
            if there is None:
                missing.append(number)
            elif (count := records.get(os.path.normpath(path))) is not None:
                if count != part.shards.records[number]:
                    yield Finding.of(
                        "X516",
                        "error",
                        path=path,
                        message="a shard holds another number of records than the manifest says",
                        expected=f"{format_count(part.shards.records[number], 'record')}, as {MANIFEST_NAME} says",
                        found=format_count(count, "record"),
                        do=f"copy {name} again, or write the dataset again",
                    )
                elif (found := digests.digest(path)) not in (None, part.shards.digest[number]):
                    yield _digest_mismatch_finding(path, name, part.shards.digest[number], str(found), known)
        pattern = part.template.replace("{split}", split).replace("{shard:05d}", "*")
        pattern = pattern.replace("{shards:05d}", f"{len(part.shards.records):05d}")
        place = os.path.join(listing.folder, pattern)
        finding = build_missing_shards_finding(
            place, group_runs(missing), len(part.shards.records), said_by=f"{MANIFEST_NAME} says"
        )
        if finding is not None:
            yield finding
    yield from _find_companion_mismatches(listing)
    yield from _find_unlisted_files(listing, paths)


def _digest_mismatch_finding(path: str, name: str, expected: str, found: str, known: Mapping[str, str]) -> Finding:
    other = known.get(found)
    return Finding.of(
        "X516",
        "error",
        path=path,
        message="a shard has other bytes than the manifest says",
        expected=f"{expected[:23]}…, as {MANIFEST_NAME} says",
        found=f"{found[:23]}…",
        likely=None if other is None else f"these are the bytes of {other}: a file was renamed or copied over it",
        do=f"copy {name} again, or write the dataset again",
    )


def _find_companion_mismatches(listing: ManifestListing) -> Iterator[Finding]:
    for name in listing.manifest.companions:
        path = os.path.join(listing.folder, name)
        if not os.path.exists(path):
            yield Finding.of(
                "H783",
                "warning",
                path=path,
                expected=f"a file beside the shards, as {MANIFEST_NAME} says",
                found="no such file",
                do=f"copy {name} again: other tools look for it",
            )


def _find_unlisted_files(listing: ManifestListing, paths: Sequence[str]) -> Iterator[Finding]:
    strangers = []
    for path in paths:
        below = os.path.relpath(path, listing.folder)
        inside = below != os.pardir and not below.startswith(os.path.join(os.pardir, ""))
        # A dataset that lies below has a manifest of its own.
        nested = os.path.dirname(below) and os.path.isfile(manifest_path(os.path.dirname(path)))
        if inside and not nested and os.path.normpath(path) not in listing.shards:
            strangers.append(path)
    for number, path in enumerate(strangers[: MAX_LISTED_PER_CODE + 1]):
        more = len(strangers) - MAX_LISTED_PER_CODE
        yield Finding.of(
            "H784",
            "warning",
            path=path,
            message=f"a record file is not in the manifest, like {more - 1:,} more"
            if number == MAX_LISTED_PER_CODE and more > 1
            else "a record file is not in the manifest",
            expected=f"only the shards that {MANIFEST_NAME} lists",
            found="a file that rk.open passes over and a pattern takes",
            do="move it to another folder",
        )


class ClassCountRule(CheckRule):
    """A rule: each class has as many records as the manifest says. Of splits that are not whole it says nothing."""

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
        """Counts; what there is to say is known at the end."""
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
        """The columns whose classes are counted otherwise in the manifest."""
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
            if str(one) in expected:  # any other number is a finding of the schema's, and may be without end
                counts[one] += count

    def _differs(self, split: str, column: str, name: str, expected: int, found: int) -> Finding:
        return Finding.of(
            "H785",
            "error",
            path=manifest_path(self._listing.folder),
            feature=self._keys[split][column],
            message=f"the manifest counts other classes of `{column[:60]}` than split {preview(split)} has",
            expected=f"{format_count(expected, 'record')} of class {name[:20]}, as {MANIFEST_NAME} says",
            found=format_count(found, "record"),
            do="write the dataset again: its class weights and balanced batches would be wrong",
        )


_MAX_INFO_BYTES = 64 << 20
_SHARD_SUFFIX = re.compile(r"-(?P<shard>\d{5,})-of-(?P<shards>\d{5,})$")


@dataclass(frozen=True, slots=True)
class _TfdsSplitInfo:
    """What dataset_info.json says of one split."""

    shard_lengths: tuple[int, ...]
    n_bytes: int | None


def find_tfds_mismatches(
    folder: str,
    paths: Sequence[str],
    records_by_path: Mapping[str, int],
    payload_bytes_by_path: Mapping[str, int],
) -> Iterator[Finding]:
    """Where the shards in a folder are not what its dataset_info.json says; nothing where there is none.

    The two mappings leave out files that are damaged. That a set lacks some of its shards is told by the names.
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
    files = TfdsFolder(name, "", {split: said.shard_lengths for split, said in splits.items()}, None)
    by_split: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        inside = os.path.normpath(os.path.dirname(path) or ".") == os.path.normpath(folder)
        split = files.split_of(os.path.basename(path)) if inside else None
        if split is not None:
            by_split[split].append(path)
    for split, said in splits.items():
        if split not in by_split:
            # Where no file at all is known by its name, the names follow another template.
            finding = build_missing_shards_finding(
                os.path.join(folder, f"{name}-{split}.*"),
                [(0, len(said.shard_lengths) - 1)] if said.shard_lengths else [],
                len(said.shard_lengths),
                said_by=f"{INFO_NAME} says",
            )
            if finding is not None and by_split:
                finding.severity = "warning"  # whoever fetches one split alone has what was wanted
                yield finding
            continue
        wrong = list(_find_tfds_shard_mismatches(by_split[split], said, records_by_path))
        yield from wrong
        if not wrong:
            yield from _find_tfds_size_mismatches(
                place, split, by_split[split], said, records_by_path, payload_bytes_by_path
            )


def _find_tfds_shard_mismatches(
    paths: Sequence[str], said: _TfdsSplitInfo, records_by_path: Mapping[str, int]
) -> Iterator[Finding]:
    lengths = said.shard_lengths
    for path in paths:
        numbered = _SHARD_SUFFIX.search(path)
        assert numbered is not None, "split_of knows no other names"
        number, shards = int(numbered["shard"]), int(numbered["shards"])
        if shards != len(lengths) or number >= shards:
            yield _tfds_mismatch_finding(
                path,
                "a set has another number of shards than dataset_info.json says",
                f"{len(lengths):,} shards",
                f"{os.path.basename(path)[-60:]}",
            )
            return
        found = records_by_path.get(path)
        if found is not None and found != lengths[number]:
            yield _tfds_mismatch_finding(
                path,
                "a shard holds another number of records than dataset_info.json says",
                format_count(lengths[number], "record"),
                format_count(found, "record"),
            )


def _find_tfds_size_mismatches(
    place: str,
    split: str,
    paths: Sequence[str],
    said: _TfdsSplitInfo,
    records_by_path: Mapping[str, int],
    payload_bytes_by_path: Mapping[str, int],
) -> Iterator[Finding]:
    whole = len(paths) == len(said.shard_lengths) and all(
        path in records_by_path and path in payload_bytes_by_path for path in paths
    )
    if not whole or not said.n_bytes:
        return
    payload_bytes = sum(payload_bytes_by_path[path] for path in paths)
    # Some versions of TFDS count the framing, others do not.
    framed_bytes = payload_bytes + _core.FRAMING_BYTES * sum(records_by_path[path] for path in paths)
    if said.n_bytes not in (payload_bytes, framed_bytes):
        yield _tfds_mismatch_finding(
            place,
            f"the records of split {preview(split)} have other bytes than dataset_info.json says",
            f"{said.n_bytes:,} bytes",
            f"{payload_bytes:,} bytes, or {framed_bytes:,} with their framing",
        )


def _tfds_mismatch_finding(path: str, message: str, expected: str, found: str) -> Finding:
    return Finding.of(
        "X545",
        "error",
        path=path,
        message=message,
        expected=f"{expected}, as {INFO_NAME} says",
        found=found,
        do="fetch or prepare the dataset again: TFDS reads as many records as that file says",
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
        raise _tfds_info_error("a name, and a list of splits", preview(document))
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
        raise _tfds_info_error("whole numbers in shardLengths and numBytes", preview(lengths)) from None


def _tfds_info_error(expected: str, found: str) -> RekordError:
    return error("X536", expected=expected, found=found, do="fetch the file again")


class IndexRule(CheckRule):
    """A rule: the index of each shard is whole, and says of each record where it is and what its columns hold.

    One that is not whole is ignored by all readers, so it costs time and no more; one that is whole and wrong would
    make queries and balanced batches wrong.
    """

    def __init__(self, listing: ManifestListing) -> None:
        super().__init__()
        self._listing = listing
        self._path: str | None = None
        self._index: IndexFile | None = None

    def update(self, batch: KeyedBatch) -> Iterator[Finding]:
        """The first record of a file that its index says something else of."""
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
        """Nothing: what is wrong was said at once. Of a file without records its index is verified still."""
        if self._path != path:
            yield from self._open(path)
        self._index = self._path = None

    def _open(self, path: str) -> Iterator[Finding]:
        self._path, self._index = path, None
        listed = find_shard_entry(path) if self._listing.split_of(path) is not None else None
        if listed is None or listed.expected is None:
            return
        place = index_path(path)
        if not os.path.lexists(place):
            yield self._finding(
                path, "note", "the index of a shard is missing", f"{place}, as {MANIFEST_NAME} says", "none"
            )
            return
        index = open_index_file(place, listed.expected)
        if index is None or not index.is_intact():
            yield self._damaged(path, "another checksum, or another shard")
            return
        self._index = index

    def _damaged(self, path: str, found: str) -> Finding:
        message = "the index of a shard is damaged, and ignored: reading takes longer"
        return self._finding(path, "warning", message, f"an index with the checksums that {MANIFEST_NAME} has", found)

    def _finding(self, path: str, severity: Severity, message: str, expected: str, found: str) -> Finding:
        return Finding.of(
            "X547",
            severity,
            path=path,
            message=message,
            expected=expected[:120],
            found=found[:60],
            do=f"rekord index {self._listing.folder}      (makes it again from the records)",
        )

    def _differences(self, index: IndexFile, batch: KeyedBatch) -> Iterator[Finding]:
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
                said = chunk.column(chunk.schema.get_field_index(name))
                yield from _find_column_mismatches(batch, column, feature, rows, _take_values(said, places), name)


def _take_values(column: Any, places: Any) -> Any:
    import pyarrow as pa

    return column.take(pa.array(places))


def _find_column_mismatches(
    batch: KeyedBatch, column: KeyColumn, feature: Feature, rows: Any, said: Any, name: str
) -> Iterator[Finding]:
    """The first row whose value the index has otherwise. What a row lacks is not compared: it may have a default."""
    present = column.counts[rows] > 0
    if column.kind == "int64" and column.offsets is None and not feature.shape:
        values = column.values[rows]
        differs = present & (_to_integers(said, ~values) != values)
        for at in np.flatnonzero(differs)[:1].tolist():
            yield _index_mismatch_finding(batch, int(rows[at]), name, str(int(values[at])), str(said[at].as_py()))
        return
    for at in np.flatnonzero(present).tolist():
        held = _to_index_value(column.value(int(rows[at])), feature)
        if held is not None and not _is_same_value(held, said[at].as_py()):
            yield _index_mismatch_finding(batch, int(rows[at]), name, repr(held)[:60], repr(said[at].as_py())[:60])
            return


def _to_integers(said: Any, missing: Any) -> Any:
    """Numbers of an Arrow array; where it has none, those of `missing`."""
    import pyarrow as pa

    whole = said.cast(pa.int64())
    values = np.array(whole.fill_null(0))
    return np.where(np.array(whole.is_valid()), values, missing) if said.null_count else values


def _to_index_value(value: Any, feature: Feature) -> Any:
    """The values of a record as an index holds them; None where nothing can be said."""
    values = value if isinstance(value, list) else value.tolist()
    if len(feature.shape) > 1:
        return None  # of inner dimensions the record itself says nothing
    if feature.shape:
        return values
    return values[0] if len(values) == 1 else None


def _is_same_value(held: Any, said: Any) -> bool:
    if isinstance(held, list):
        return isinstance(said, list) and len(held) == len(said) and all(map(_is_same_value, held, said))
    if isinstance(held, bytes) and isinstance(said, str):
        return held == said.encode("utf-8", "surrogatepass")
    return bool(held == said or (held != held and said != said))


def _index_mismatch_finding(batch: KeyedBatch, row: int, feature: str | None, holds: str, says: str) -> Finding:
    return Finding.of(
        "X547",
        "error",
        path=batch.path,
        record=int(batch.records[row]),
        offset=int(batch.offsets[row]),
        feature=feature,
        message="the index of a shard says something else than its records",
        expected=f"{holds}, as the record holds",
        found=f"{says} in the index",
        do="write the dataset again: queries and balanced batches of it are wrong",
    )
