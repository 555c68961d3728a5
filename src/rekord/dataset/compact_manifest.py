"""A manifest as reading needs it: arrays instead of lists, names made when they are asked for.

A hundred thousand shards are then a few megabytes, and opening them costs what parsing the file costs. The manifests
that were read last are kept, each for as long as its file is the same.
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from time import monotonic
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from rekord.dataset.index import CHUNK_RECORDS, IndexExpectation
from rekord.dataset.manifest import Manifest, ManifestSplit, manifest_path, read_manifest, shard_name
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import Stat
from rekord.storage.remote import is_remote
from rekord.storage.router import ROUTED_STORAGE

_MAX_CACHED_MANIFESTS = 8
_MAX_INFLATION_RATIO = 1032
_RECHECK_SECONDS = 30.0
"""So often a manifest elsewhere is asked whether it has changed: every look is a request."""


@dataclass(frozen=True, eq=False)
class CompactSplit:
    """The shards of a split."""

    name: str
    template: str
    compression: str
    block_records: int
    records: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    digests: Sequence[str]
    checksums: npt.NDArray[np.uint32] | None  # of all indexes, None where there are none to be believed

    def file_name(self, shard: int) -> str:
        """The name of a shard's file."""
        return shard_name(self.template, self.name, shard, len(self.records))

    def number(self, name: str) -> int | None:
        """The shard that a file is, by its name."""
        found = self._pattern.fullmatch(name)
        shard = int(found.group(1)) if found is not None and found.lastindex else 0
        known = found is not None and shard < len(self.records) and self.file_name(shard) == name
        return shard if known else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        marked = re.escape(
            shard_name(self.template.replace("{shard:05d}", "\0"), self.name, 0, len(self.records))
        )
        first, *others = marked.split(re.escape("\0"))
        return re.compile(first + ("([0-9]{5,9})" + r"\1".join(others) if others else ""))

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        """Where the checksums of each shard begin."""
        return np.concatenate([[0], np.cumsum(1 - (-self.records // CHUNK_RECORDS))]).astype(np.int64)

    def get_checksums(self, shard: int) -> list[int] | None:
        """Those of the index of a shard."""
        if self.checksums is None:
            return None
        found: list[int] = self.checksums[self._firsts[shard] : self._firsts[shard + 1]].tolist()
        return found


class CompactManifest:
    """A manifest that was read, and the file as it was then."""

    def __init__(self, folder: str, manifest: Manifest, stat: Stat) -> None:
        self.folder = folder
        self.stat = stat
        self.digest = manifest.digest
        self.layout = manifest.options.get("layout")
        self.splits = {name: _compact_split(name, part) for name, part in manifest.splits.items()}
        self._schema = manifest.schema

    @cached_property
    def schema(self) -> Schema:
        """The declared schema."""
        return Schema.from_dict(self._schema)

    def find(self, name: str) -> tuple[CompactSplit, int] | None:
        """The split and the number of a file."""
        for split in self.splits.values():
            if (shard := split.number(name)) is not None:
                return split, shard
        return None


def _compact_split(name: str, part: ManifestSplit) -> CompactSplit:
    index = part.shards.index
    # Chunks of another length are those of a later version: what it says of them cannot be used here.
    usable = index is not None and index.chunk_records == CHUNK_RECORDS
    return CompactSplit(
        name=name,
        template=part.template,
        compression=part.compression,
        block_records=part.block_records,
        records=np.array(part.shards.records, np.int64),
        bytes=np.array(part.shards.bytes, np.int64),
        digests=part.shards.digest,
        checksums=np.array(index.values, np.uint32) if index is not None and usable else None,
    )


_manifest_cache: OrderedDict[str, tuple[CompactManifest, float]] = OrderedDict()
_lock = Lock()


def load_compact_manifest(folder: str) -> CompactManifest:
    """The manifest of a folder as it is now."""
    path = manifest_path(folder)
    with _lock:
        known, since = _manifest_cache.get(folder, (None, 0.0))
    if known is not None and is_remote(folder) and monotonic() - since < _RECHECK_SECONDS:
        return known
    before = ROUTED_STORAGE.stat(path)
    if known is None or known.stat != before:
        while True:
            known = CompactManifest(folder, read_manifest(folder), before)
            after = ROUTED_STORAGE.stat(path)
            if after == before:
                break
            before = after  # another one was put in its place while it was read
    with _lock:
        _manifest_cache[folder] = known, monotonic()
        _manifest_cache.move_to_end(folder)
        while len(_manifest_cache) > _MAX_CACHED_MANIFESTS:
            _manifest_cache.popitem(last=False)
    return known


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """What a manifest says of a file in its folder."""

    records: int
    size_bytes: int
    expected: IndexExpectation | None  # of its index; None where that is not to be believed


def find_shard_entry(path: str) -> ShardEntry | None:
    """What the manifest in the folder of a file says of it; None where it says nothing."""
    folder, name = os.path.split(path)
    try:
        manifest = load_compact_manifest(folder)
        found = manifest.find(name)
        if found is None:
            return None
        split, shard = found
        size_bytes, records = int(split.bytes[shard]), int(split.records[shard])
        checksums = split.get_checksums(shard)
        if checksums is None:
            return ShardEntry(records, size_bytes, None)
        expected = IndexExpectation(
            most_bytes=size_bytes if split.compression == "none" else size_bytes * _MAX_INFLATION_RATIO,
            records=records,
            checksums=checksums,
            digest=split.digests[shard],
            features=dict(manifest.schema.context),
        )
    except RekordError:
        return None  # whoever opens the dataset says what is wrong with it
    return ShardEntry(records, size_bytes, expected)


class ShardPaths(Sequence[str]):
    """The paths of shards, made when they are asked for."""

    def __init__(
        self, folder: str, split: CompactSplit, present: npt.NDArray[np.int64] | None = None
    ) -> None:
        self._folder = folder
        self._split = split
        self._present = present  # the numbers of those that are there, where some are missing

    def __len__(self) -> int:
        return len(self._split.records) if self._present is None else len(self._present)

    @overload
    def __getitem__(self, which: int) -> str: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[str, ...]: ...
    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return tuple(self[shard] for shard in range(*which.indices(len(self))))
        number = range(len(self))[which]
        shard = number if self._present is None else int(self._present[number])
        return os.path.join(self._folder, self._split.file_name(shard))

    def __iter__(self) -> Iterator[str]:
        return (self[shard] for shard in range(len(self)))


class ShardListing(Protocol):
    """Shards that manifests list."""

    @property
    def folder(self) -> str: ...
    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def counts(self) -> npt.NDArray[np.int64]: ...
    @property
    def sizes_bytes(self) -> npt.NDArray[np.int64]: ...

    def check_current(self, shard: int, /) -> None:
        """Raise where the shard is not any more one of the dataset that was opened."""


@dataclass(frozen=True, eq=False)
class SplitListing:
    """A split by the folder and the digest of its manifest: all that another process needs to know of its shards.

    `present` are the numbers of the shards that were there when it was opened; None stands for all.
    """

    folder: str
    digest: str
    name: str
    present: npt.NDArray[np.int64] | None = None

    @classmethod
    def of(cls, manifest: CompactManifest, name: str) -> SplitListing:
        """A split of a manifest that was just read."""
        listed = cls(manifest.folder, manifest.digest, name)
        listed.__dict__["_manifest"] = manifest
        return listed

    @cached_property
    def _manifest(self) -> CompactManifest:
        return self._current()

    @property
    def split(self) -> CompactSplit:
        """What the manifest says of it."""
        return self._manifest.splits[self.name]

    @property
    def paths(self) -> ShardPaths:
        return ShardPaths(self.folder, self.split, self.present)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The records of each shard."""
        return self.split.records if self.present is None else self.split.records[self.present]

    @property
    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        """The bytes of each shard."""
        return self.split.bytes if self.present is None else self.split.bytes[self.present]

    def check_current(self, shard: int = 0) -> None:
        """Raise where another dataset was put in the place of the one that was opened.

        Called *after* a look at a shard: if the manifest is still the old one, so was the shard.
        """
        if self._manifest.stat != ROUTED_STORAGE.stat(manifest_path(self.folder)):
            self.__dict__["_manifest"] = self._current()  # an index may have been built again, for example

    def _current(self) -> CompactManifest:
        manifest = load_compact_manifest(self.folder)
        if manifest.digest != self.digest or self.name not in manifest.splits:
            raise error(
                "X548",
                "another dataset is in the place of the one that was opened",
                location=Location(path=manifest_path(self.folder)),
                expected=f"digest {self.digest[:16]}…",
                found=f"digest {manifest.digest[:16]}…",
                do="open the dataset again when nobody writes to it any more",
            )
        return manifest

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "digest": self.digest, "name": self.name, "present": self.present}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True, eq=False)
class ConcatListing:
    """The shards of several splits, one split behind another."""

    parts: tuple[ShardListing, ...]

    @property
    def folder(self) -> str:
        """A folder that says where they are: all of them are on this machine, or one is elsewhere."""
        folders = [part.folder for part in self.parts]
        return next(filter(is_remote, folders), folders[0])

    @cached_property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for part in self.parts for path in part.paths)

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([part.counts for part in self.parts])

    @cached_property
    def sizes_bytes(self) -> npt.NDArray[np.int64]:
        return np.concatenate([part.sizes_bytes for part in self.parts])

    def check_current(self, shard: int, /) -> None:
        """Raise where the shard is not any more one of the dataset that was opened."""
        for part in self.parts:
            if shard < len(part.counts):
                return part.check_current(shard)
            shard -= len(part.counts)
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
