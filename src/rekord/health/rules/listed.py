"""Whether the files of a dataset are what its manifest says of them."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np

from rekord.dataset.manifest import MANIFEST, Manifest, check_shard, manifest_path, read_manifest, tagged
from rekord.errors import RekordError, located
from rekord.health.finding import Finding
from rekord.health.keyed import KeyedBatch
from rekord.health.rule import EACH
from rekord.health.rules.shards import missing_shards, records_text, runs_of
from rekord.schema import Label, Schema
from rekord.schema.refuse import shown
from rekord.storage.files import LOCAL

_HASH_BYTES = 1 << 20
_COUNTED_AT_ONCE = 1 << 16  # class ids below this are counted by an array


@dataclass(frozen=True)
class Listing:
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


def read_listing(folder: str) -> Listing | Finding | None:
    """The manifest of a folder; a finding where it cannot be used, None where there is none."""
    path = manifest_path(folder)
    if not os.path.isfile(path):
        return None
    try:
        manifest = read_manifest(folder)
        with located(path=path):
            return Listing(folder, manifest, Schema.from_dict(manifest.schema))
    except RekordError as failure:
        return Finding.from_error(failure)


class Digests:
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

    def __enter__(self) -> Digests:
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
        return tagged(digest.hexdigest())


def manifest_findings(
    listing: Listing, paths: Sequence[str], records_by_path: Mapping[str, int], digests: Digests
) -> Iterator[Finding]:
    """Where the files of a folder are not what its manifest says.

    `paths` are the record files that were found, `records_by_path` says how many records those have that were read
    to their ends without damage.
    """
    records = {os.path.normpath(path): count for path, count in records_by_path.items()}
    known = _names_by_digest(listing)
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
                    yield _other_count(path, name, part.shards.records[number], count)
                elif (found := digests.digest(path)) not in (None, part.shards.digest[number]):
                    yield _other_bytes(path, name, part.shards.digest[number], str(found), known)
        pattern = part.template.replace("{split}", split).replace("{shard:05d}", "*")
        pattern = pattern.replace("{shards:05d}", f"{len(part.shards.records):05d}")
        place = os.path.join(listing.folder, pattern)
        finding = missing_shards(
            place, runs_of(missing), len(part.shards.records), said_by=f"{MANIFEST} says"
        )
        if finding is not None:
            yield finding
    yield from _companions(listing)
    yield from _not_listed(listing, paths)


def _names_by_digest(listing: Listing) -> dict[str, str]:
    return {
        digest: name
        for split, part in listing.manifest.splits.items()
        for digest, name in zip(part.shards.digest, part.names(split), strict=True)
    }


def _other_count(path: str, name: str, expected: int, found: int) -> Finding:
    return Finding.of(
        "X516",
        "error",
        path=path,
        message="a shard holds another number of records than the manifest says",
        expected=f"{records_text(expected)}, as {MANIFEST} says",
        found=records_text(found),
        do=f"copy {name} again, or write the dataset again",
    )


def _other_bytes(path: str, name: str, expected: str, found: str, known: Mapping[str, str]) -> Finding:
    other = known.get(found)
    return Finding.of(
        "X516",
        "error",
        path=path,
        message="a shard has other bytes than the manifest says",
        expected=f"{expected[:23]}…, as {MANIFEST} says",
        found=f"{found[:23]}…",
        likely=None
        if other is None
        else f"these are the bytes of {other}: a file was renamed or copied over it",
        do=f"copy {name} again, or write the dataset again",
    )


def _companions(listing: Listing) -> Iterator[Finding]:
    for name in listing.manifest.companions:
        path = os.path.join(listing.folder, name)
        if not os.path.exists(path):
            yield Finding.of(
                "H783",
                "warning",
                path=path,
                expected=f"a file beside the shards, as {MANIFEST} says",
                found="no such file",
                do=f"copy {name} again: other tools look for it",
            )


def _not_listed(listing: Listing, paths: Sequence[str]) -> Iterator[Finding]:
    strangers = []
    for path in paths:
        below = os.path.relpath(path, listing.folder)
        inside = below != os.pardir and not below.startswith(os.path.join(os.pardir, ""))
        # A dataset that lies below has a manifest of its own.
        nested = os.path.dirname(below) and os.path.isfile(manifest_path(os.path.dirname(path)))
        if inside and not nested and os.path.normpath(path) not in listing.shards:
            strangers.append(path)
    for number, path in enumerate(strangers[: EACH + 1]):
        more = len(strangers) - EACH
        yield Finding.of(
            "H784",
            "warning",
            path=path,
            message=f"a record file is not in the manifest, like {more - 1:,} more"
            if number == EACH and more > 1
            else "a record file is not in the manifest",
            expected=f"only the shards that {MANIFEST} lists",
            found="a file that rk.open passes over and a pattern takes",
            do="move it to another folder",
        )


class ClassCounts:
    """A rule: each class has as many records as the manifest says. Of splits that are not whole it says nothing."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._records: Counter[str] = Counter()
        self._counts: dict[tuple[str, str], Counter[int]] = {}
        self._keys: dict[str, dict[str, str]] = {}  # by split: the record key of each column that is counted
        for split, part in listing.manifest.splits.items():
            keys = {}
            for column in part.classes:
                feature = listing.schema.get(column)
                if isinstance(feature, Label) and feature.shape == ():
                    keys[column] = feature.record_keys(column)[0]
                    self._counts[split, column] = Counter()
            self._keys[split] = keys

    def see(self, batch: KeyedBatch) -> Iterator[Finding]:
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

    def end_file(self, path: str) -> Iterator[Finding]:
        """Nothing: classes are counted by split."""
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
        if int(ids.min()) >= 0 and int(ids.max()) < _COUNTED_AT_ONCE:
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
            message=f"the manifest counts other classes of `{column[:60]}` than split {shown(split)} has",
            expected=f"{records_text(expected)} of class {name[:20]}, as {MANIFEST} says",
            found=records_text(found),
            do="write the dataset again: its class weights and balanced batches would be wrong",
        )
