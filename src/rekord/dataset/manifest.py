"""The manifest `rekord.json`: schema, splits, and every shard of a dataset with its digest.

It is one columnar file: a hundred thousand shards take a few megabytes. It does not record when, where or by how many
workers it was written: the same data and options give the same file. It is written last.

Format 2 (docs/decisions/0022) names the algorithm of every digest, holds checksums of the index of every shard, and
ends with a checksum of itself. Format 3 (0035) is the same with a list of shard names, for shards of other tools that
no template describes. Format 1 is still read; the indexes of such a dataset are ignored.

Readers keep it as arrays (`CompactManifest`) and compute names on demand, so opening a dataset costs little more than
parsing the file. The newest manifests are cached, each while its file is unchanged.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from time import monotonic
from typing import Annotated, Any, NamedTuple, Protocol, overload

import msgspec
import numpy as np
import numpy.typing as npt

from rekord import _core
from rekord.dataset.index import CHUNK_RECORDS, Count, IndexExpectation
from rekord.errors import RekordError, add_location, error, preview
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import Stat, Storage, read_file
from rekord.storage.router import ROUTED_STORAGE, get_path_kind, is_remote

MANIFEST_NAME = "rekord.json"
MANIFEST_FORMAT = 2
_NAMED_FORMAT = 3
CHECKSUM = "crc32c"
"""The checksum of index chunks."""

MAX_INFLATION_RATIO = 1032  # of deflate: output bytes per input byte
_MAX_MANIFEST_BYTES = 1 << 30
_MAX_CACHED_MANIFESTS = 8
_RECHECK_SECONDS = 30.0
"""How often a remote manifest is checked for changes: each check is a request."""
_SHARD, _SHARDS, _SPLIT = "{shard:05d}", "{shards:05d}", "{split}"
_MAX_FOLDERS = 8
"""How deep shards may lie below the folder of their manifest."""


def tag_sha256(hexdigest: str) -> str:
    """A SHA-256 with the name of the algorithm, as manifests hold every digest. Those of shards are `FileDigest`s."""
    return f"sha256:{hexdigest}"


def shard_name(template: str, split: str, shard: int, shards: int) -> str:
    """The file name of a shard. The template may come from a file, so only these three placeholders are replaced."""
    numbered = template.replace(_SHARD, f"{shard:05d}").replace(_SHARDS, f"{shards:05d}")
    return numbered.replace(_SPLIT, split)


class IndexChecksums(msgspec.Struct, frozen=True, kw_only=True):
    """The checksums of the shard indexes of a split.

    `values` has, shard after shard, the checksum of everything except the chunks, then those of the chunks of
    `chunk_records` records each.
    """

    checksum: str
    chunk_records: Count
    values: list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]]


class ManifestShards(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of a split, column by column."""

    records: list[Count]
    bytes: list[Count]  # of the files
    digest: list[str]  # algorithm:hex
    index: IndexChecksums | None = None  # None: no index can be verified
    names: list[str] | msgspec.UnsetType = msgspec.UNSET  # paths below the folder, if no template describes them


class _SplitFields(msgspec.Struct, frozen=True, kw_only=True):
    """What a split has in every format."""

    template: str
    records: Count
    payload_bytes: Count
    compression: str
    block_records: Count  # about 8 MiB of records
    classes: dict[str, dict[str, Count]]  # of each Label column: number of records by class id


class ManifestSplit(_SplitFields, frozen=True, kw_only=True):
    """One split."""

    shards: ManifestShards
    blocks: str | None = None  # the digest of .rekord/blocks/<split>.arrow

    def name(self, split: str, shard: int) -> str:
        """The file name of one shard, or its path below the folder."""
        names = self.shards.names
        if isinstance(names, list):
            return names[shard]
        return shard_name(self.template, split, shard, len(self.shards.records))

    def names(self, split: str) -> list[str]:
        """The file names of the shards, in order."""
        return [self.name(split, shard) for shard in range(len(self.shards.records))]


def list_shard_folders(splits: Mapping[str, ManifestSplit]) -> list[str]:
    """The folders of the shards below that of the manifest, which is "", and those between, the deepest first."""
    folders = {""}
    for split, part in splits.items():
        for name in part.names(split):
            while (name := name.rpartition("/")[0]) not in folders:
                folders.add(name)
    return sorted(folders, key=lambda folder: (-folder.count("/") - bool(folder), folder))


class ManifestSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows came from: a digest of the files, or of the rows if there were none."""

    kind: str
    fingerprint: str
    rows: Count
    rejected: Count


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file, in any format."""

    format: int
    rekord: str  # the version that wrote it
    plan: str
    schema: dict[str, Any]
    splits: dict[str, ManifestSplit]
    source: ManifestSource
    options: dict[str, Any]
    companions: list[str]  # files next to the shards for other tools
    parent: str | None = None
    checksum: str | None = None  # of all the rest; None until it is written

    def to_json(self) -> bytes:
        """The file, in the current format."""
        whole = msgspec.structs.replace(self, format=_written_format(self), checksum=_checksum(self))
        return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"

    @property
    def digest(self) -> str:
        """What identifies this dataset, for example in saved states.

        Indexes are not part of it: they can be rebuilt. For format 1 it is the SHA-256 of the file.
        """
        if self.format == 1:
            content = msgspec.json.format(msgspec.json.encode(_to_v1_document(self)), indent=1)
            return hashlib.sha256(content + b"\n").hexdigest()
        bare = {
            name: msgspec.structs.replace(part, blocks=None, shards=msgspec.structs.replace(part.shards, index=None))
            for name, part in self.splits.items()
        }
        whole = msgspec.structs.replace(self, splits=bare, checksum=None)
        return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()


def _checksum(manifest: Manifest) -> str:
    """Of the content of a manifest, not of its bytes: reformatting the file is not damage."""
    whole = msgspec.structs.replace(manifest, format=_written_format(manifest), checksum=None)
    return tag_sha256(hashlib.sha256(msgspec.json.encode(whole)).hexdigest())


def _written_format(manifest: Manifest) -> int:
    """Format 2 wherever it suffices: versions that do not know lists of names refuse format 3."""
    named = any(isinstance(part.shards.names, list) for part in manifest.splits.values())
    return _NAMED_FORMAT if named else MANIFEST_FORMAT


class _ManifestShardsV1(msgspec.Struct, frozen=True, kw_only=True):
    records: list[Count]
    bytes: list[Count]
    sha256: list[str]


class _ManifestSplitV1(_SplitFields, frozen=True, kw_only=True):
    shards: _ManifestShardsV1


class _ManifestV1(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    rekord: str
    plan: str
    schema: dict[str, Any]
    splits: dict[str, _ManifestSplitV1]
    source: ManifestSource
    options: dict[str, Any]
    companions: list[str]
    parent: str | None = None


class _FormatHeader(msgspec.Struct):
    format: int


def _upgrade_v1(old: _ManifestV1) -> Manifest:
    splits = {}
    for name, part in old.splits.items():
        shards = ManifestShards(
            records=part.shards.records,
            bytes=part.shards.bytes,
            digest=[tag_sha256(sha256) for sha256 in part.shards.sha256],
        )
        splits[name] = ManifestSplit(**{**msgspec.structs.asdict(part), "shards": shards})
    return Manifest(**{**msgspec.structs.asdict(old), "splits": splits})


def _to_v1_document(manifest: Manifest) -> dict[str, Any]:
    """The file that a manifest of format 1 was read from."""
    document: dict[str, Any] = msgspec.to_builtins(manifest)
    del document["checksum"]
    for part in document["splits"].values():
        del part["blocks"], part["shards"]["index"]
        part["shards"]["sha256"] = [digest.partition(":")[2] for digest in part["shards"].pop("digest")]
    return document


def manifest_path(folder: str) -> str:
    """The path of the manifest of a dataset."""
    return os.path.join(folder, MANIFEST_NAME)


def has_manifest(folder: str) -> bool:
    """Whether anything has the name of the manifest: a broken link is a lost manifest, not a folder without one."""
    path = manifest_path(folder)
    return get_path_kind(path) == "file" if is_remote(path) else os.path.lexists(path)


def read_manifest(folder: str, storage: Storage = ROUTED_STORAGE) -> Manifest:
    """The manifest of a dataset: complete, consistent and of a known version."""
    path = manifest_path(folder)
    manifest = _decode_manifest(path, read_file(path, storage, most_bytes=_MAX_MANIFEST_BYTES))
    if not all(map(is_file_name, manifest.companions)):
        raise _manifest_error(path, "companion files in the folder of the dataset", "another folder")
    names: set[str] = set()
    named = _written_format(manifest) == _NAMED_FORMAT
    for name, split in manifest.splits.items():
        _check_split(path, name, split)
        # Names from templates differ only in digits, so one pattern represents all of a split.
        pattern = shard_name(split.template.replace(_SHARD, "\0"), name, 0, len(split.shards.records))
        own = split.names(name) if named else [pattern]
        if not names.isdisjoint(own) or len(set(own)) < len(own):
            raise _manifest_error(path, "a unique name for every shard", preview(split.template or own[0]))
        names.update(own)
    if sum(split.records for split in manifest.splits.values()) >= 1 << 63:
        raise _manifest_error(path, "fewer than 2^63 records", "more")
    return manifest


def _decode_manifest(path: str, data: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(data, type=_FormatHeader).format
        if version == 1:
            return _upgrade_v1(msgspec.json.decode(data, type=_ManifestV1))
        if version not in (MANIFEST_FORMAT, _NAMED_FORMAT):
            do = "pip install --upgrade rekord"
            raise _manifest_error(path, f"format {_NAMED_FORMAT} or earlier", f"format {version}"[:60], do)
        manifest = msgspec.json.decode(data, type=Manifest)
        checksum = _checksum(manifest)
        needed = _written_format(manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as failure:
        raise _manifest_error(path, "a manifest written by rekord", str(failure)[:60]) from None
    if version != needed:
        raise _manifest_error(path, f"format {needed}, by its content", f"format {version}")
    if manifest.checksum != checksum:
        raise _manifest_error(path, f"checksum {checksum[:23]}…, as computed", preview(manifest.checksum)[:31] + "…")
    return manifest


def _check_split(path: str, name: str, split: ManifestSplit) -> None:
    columns = split.shards
    if not len(columns.records) == len(columns.bytes) == len(columns.digest):
        raise _manifest_error(path, "columns of equal length", f"different lengths in {name!r}"[:60])
    # A name is untrusted like everything else in a file: no shard may lie outside the folder.
    if isinstance(columns.names, list):
        if len(columns.names) != len(columns.records):
            raise _manifest_error(path, "columns of equal length", f"different lengths in {name!r}"[:60])
        outside = next((one for one in columns.names if not is_shard_path(one)), None)
        if outside is not None:
            raise _manifest_error(path, "shards below the folder of the dataset", preview(outside))
    elif columns.records and not is_file_name(split.name(name, 0)):  # names differ only in digits
        raise _manifest_error(path, "shards in the folder of the dataset", preview(split.template))
    elif len(columns.records) > 1 and _SHARD not in split.template:
        raise _manifest_error(path, "a unique name for every shard", preview(split.template))
    if split.compression not in ("none", "gzip", "zlib"):
        raise _manifest_error(path, "compression none, gzip or zlib", preview(split.compression))
    if sum(columns.records) != split.records:
        raise _manifest_error(
            path, f"{split.records:,} records in {name!r}"[:60], f"{sum(columns.records):,} in its shards"
        )
    most = 1 if split.compression == "none" else MAX_INFLATION_RATIO
    for records, size_bytes in zip(columns.records, columns.bytes, strict=True):
        if records * _core.FRAMING_BYTES > size_bytes * most:
            raise _manifest_error(path, f"records that fit in {size_bytes:,} bytes", f"{records:,} records")
    for column, counts in split.classes.items():
        if not all(map(_is_number, counts)):
            raise _manifest_error(path, f"class ids of {preview(column)}", "other text")
    index = columns.index
    if index is None:
        return
    if index.checksum != CHECKSUM or not index.chunk_records:
        raise _manifest_error(path, f"index checksums by {CHECKSUM}", preview(index.checksum))
    if len(index.values) != sum(1 - (-records // index.chunk_records) for records in columns.records):
        raise _manifest_error(
            path, "a checksum for every chunk of every index", f"{len(index.values):,} in {name!r}"[:60]
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and (text == "0" or text[0] != "0")


def is_file_name(name: str) -> bool:
    """Whether a name can only refer to a file in the folder itself."""
    return os.path.basename(name) == name and name not in ("", ".", "..") and name.isprintable()


def is_shard_path(name: str) -> bool:
    """Whether a path, separated by `/`, can only refer to a file in the folder or below it."""
    parts = name.split("/")
    return len(parts) <= 1 + _MAX_FOLDERS and all(is_file_name(part) and part[0] != "." for part in parts)


def check_shard(folder: str, name: str, size_bytes: int, *, allow_missing: bool) -> tuple[str, Stat] | None:
    """The path of a shard of the listed size; None if it is missing, with `allow_missing`."""
    path = os.path.join(folder, name)
    try:
        stat = ROUTED_STORAGE.stat(path)
    except RekordError as failure:
        if allow_missing and failure.code == "X501":
            return None
        raise
    if stat.kind != "file" or stat.size_bytes != size_bytes:
        raise shard_size_error(path, size_bytes, stat.size_bytes, is_file=stat.kind == "file")
    return path, stat


def shard_size_error(path: str, expected_bytes: int, found_bytes: int, *, is_file: bool = True) -> RekordError:
    """The error for a shard that does not have the listed size, or is not a file."""
    return error(
        "X516",
        location=Location(path=path),
        expected=f"{expected_bytes:,} bytes, as listed in {MANIFEST_NAME}",
        found=f"{found_bytes:,} bytes" if is_file else "a folder, a pipe or a device",
        likely="file was truncated, or copied incompletely" if is_file and found_bytes < expected_bytes else None,
        do=f"copy {os.path.basename(path)} again, or write the dataset again",
    )


def _manifest_error(
    path: str,
    expected: str,
    found: str,
    do: str = "write the dataset again, or remove the file to read the shards by name",
) -> RekordError:
    return error(
        "X515",
        location=Location(path=path),
        expected=expected,
        found=found,
        do=do,
    )


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
    checksums: npt.NDArray[np.uint32] | None  # of all indexes; None if none can be verified
    classes: Mapping[str, Mapping[str, int]]  # of each Label column: number of records by class id
    names: Sequence[str] | None = None  # if no template describes them

    def file_name(self, shard: int) -> str:
        """The name of a shard's file, or its path below the folder."""
        if self.names is not None:
            return self.names[shard]
        return shard_name(self.template, self.name, shard, len(self.records))

    def number(self, name: str) -> int | None:
        """The number of a shard by its file name; None if it is not one of these."""
        if self.names is not None:
            return self._numbers.get(name)
        found = self._pattern.fullmatch(name)
        shard = int(found.group(1)) if found is not None and found.lastindex else 0
        known = found is not None and shard < len(self.records) and self.file_name(shard) == name
        return shard if known else None

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: shard for shard, name in enumerate(self.names or ())}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        marked = re.escape(shard_name(self.template.replace("{shard:05d}", "\0"), self.name, 0, len(self.records)))
        first, *others = marked.split(re.escape("\0"))
        return re.compile(first + ("([0-9]{5,9})" + r"\1".join(others) if others else ""))

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        """Where the checksums of each shard begin."""
        return np.concatenate([[0], np.cumsum(1 - (-self.records // CHUNK_RECORDS))]).astype(np.int64)

    def get_checksums(self, shard: int) -> list[int] | None:
        """The checksums of the index of a shard."""
        if self.checksums is None:
            return None
        found: list[int] = self.checksums[self._firsts[shard] : self._firsts[shard + 1]].tolist()
        return found


class CompactManifest:
    """A manifest, and the stat of its file when it was read."""

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
        with add_location(path=manifest_path(self.folder)):
            return Schema.from_dict(self._schema)

    def find(self, name: str) -> tuple[CompactSplit, int] | None:
        """The split and the number of a file."""
        for split in self.splits.values():
            if (shard := split.number(name)) is not None:
                return split, shard
        return None


def _compact_split(name: str, part: ManifestSplit) -> CompactSplit:
    index = part.shards.index
    # Chunks of another length are those of a later version, which this one cannot use.
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
        classes=part.classes,
        names=part.shards.names if isinstance(part.shards.names, list) else None,
    )


_manifest_cache: OrderedDict[str, tuple[CompactManifest, float]] = OrderedDict()
_lock = Lock()


def load_manifest(folder: str, *, recent: bool = False) -> CompactManifest:
    """The manifest of a folder as it is now; with `recent`, a remote one as it was up to 30 seconds ago."""
    path = manifest_path(folder)
    with _lock:
        known, since = _manifest_cache.get(folder, (None, 0.0))
    if recent and known is not None and is_remote(folder) and monotonic() - since < _RECHECK_SECONDS:
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
    """What a manifest lists of a shard, and the folder of that manifest."""

    folder: str
    records: int
    size_bytes: int
    compression: str
    expected: IndexExpectation | None  # of its index; None if that cannot be verified


def find_shard_entry(path: str) -> ShardEntry | None:
    """The entry of a file in the manifest of its folder, or of one above it; None if there is none."""
    folder, name = _locate_manifest(path)
    try:
        manifest = load_manifest(folder, recent=True)
        found = manifest.find(name)
        if found is None:
            return None
        split, shard = found
        size_bytes, records = int(split.bytes[shard]), int(split.records[shard])
        checksums = split.get_checksums(shard)
        if checksums is None:
            return ShardEntry(folder, records, size_bytes, split.compression, None)
        expected = IndexExpectation(
            most_bytes=size_bytes if split.compression == "none" else size_bytes * MAX_INFLATION_RATIO,
            records=records,
            checksums=checksums,
            digest=split.digests[shard],
            features=dict(manifest.schema.context),
        )
    except RekordError:
        return None  # opening the dataset reports what is wrong with it
    return ShardEntry(folder, records, size_bytes, split.compression, expected)


def _locate_manifest(path: str) -> tuple[str, str]:
    """The folder of the manifest that may list a file, and the path of the file below it."""
    own = os.path.split(path)
    if is_remote(path) or os.path.lexists(manifest_path(own[0])):
        return own  # remote: each folder would be a request
    folder, name = own
    for _ in range(_MAX_FOLDERS):
        folder, last = os.path.split(folder)
        if not last:
            break
        name = f"{last}/{name}"
        if os.path.lexists(manifest_path(folder)):
            return folder, name
    return own


class ShardEntryToCache(NamedTuple):
    """What a copy of a shard on the local disk needs to be found and verified."""

    url: str
    folder: str  # of the manifest
    dataset_digest: str
    name: str  # below the folder
    size_bytes: int
    digest: str


def read_manifest_bytes(folder: str, digest: str) -> bytes:
    """The file of the manifest with this digest; X548 if it was replaced."""
    path = manifest_path(folder)
    content = read_file(path, ROUTED_STORAGE, most_bytes=_MAX_MANIFEST_BYTES)
    found = _decode_manifest(path, content).digest
    if found != digest:
        raise _replaced_error(folder, digest, found)
    return content


def _replaced_error(folder: str, expected: str, found: str) -> RekordError:
    return error(
        "X548",
        "dataset was replaced since it was opened",
        location=Location(path=manifest_path(folder)),
        expected=f"digest {expected[:16]}…",
        found=f"digest {found[:16]}…",
        do="open the dataset again when no process writes to it",
    )


class ShardPaths(Sequence[str]):
    """The paths of shards, computed on access."""

    def __init__(self, folder: str, split: CompactSplit, present: npt.NDArray[np.int64] | None = None) -> None:
        self._folder = folder
        self._split = split
        self._present = present  # the numbers of the existing ones, if some are missing

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
    """Shards listed in manifests."""

    @property
    def folder(self) -> str: ...
    @property
    def paths(self) -> Sequence[str]: ...
    @property
    def counts(self) -> npt.NDArray[np.int64]: ...
    @property
    def sizes_bytes(self) -> npt.NDArray[np.int64]: ...

    def check_current(self, shard: int, /) -> None:
        """Raise if the dataset that holds the shard was replaced since it was opened."""

    def check_all_current(self, shards: Sequence[int], /) -> None:
        """The same for several shards at once."""

    def entry_to_cache(self, shard: int, /) -> ShardEntryToCache:
        """What a copy of a shard needs."""

    def class_counts(self, column: str, /) -> Mapping[int, int] | None:
        """The number of records of each class of a Label; None if not all records have one."""


@dataclass(frozen=True, eq=False)
class SplitListing:
    """A split by the folder and the digest of its manifest: all that another process needs to find its shards.

    `present` are the numbers of the shards that existed when it was opened; None means all.
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
        """The split in the manifest."""
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
        """Raise if the dataset was replaced since it was opened.

        Called *after* the stat of a shard: if the manifest is still the old one, so was the shard.
        """
        if self._manifest.stat != ROUTED_STORAGE.stat(manifest_path(self.folder)):
            self.__dict__["_manifest"] = self._current()  # an index may have been rebuilt, for example

    def check_all_current(self, shards: Sequence[int]) -> None:
        if shards:
            self.check_current()

    def class_counts(self, column: str) -> Mapping[int, int] | None:
        counts = self.split.classes.get(column)
        if counts is None or self.present is not None or sum(counts.values()) != int(self.split.records.sum()):
            return None
        self.check_current()
        return {int(one): count for one, count in counts.items()}

    def entry_to_cache(self, shard: int) -> ShardEntryToCache:
        number = shard if self.present is None else int(self.present[shard])
        split = self.split
        name = split.file_name(number)
        url = os.path.join(self.folder, name)
        return ShardEntryToCache(url, self.folder, self.digest, name, int(split.bytes[number]), split.digests[number])

    def _current(self) -> CompactManifest:
        manifest = load_manifest(self.folder, recent=True)
        if manifest.digest != self.digest or self.name not in manifest.splits:
            raise _replaced_error(self.folder, self.digest, manifest.digest)
        return manifest

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "digest": self.digest, "name": self.name, "present": self.present}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True, eq=False)
class ConcatListing:
    """The shards of several splits, one split after another."""

    parts: tuple[ShardListing, ...]

    @property
    def folder(self) -> str:
        """A remote folder if there is one, else a local one."""
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
        for part in self.parts:
            if shard < len(part.counts):
                return part.check_current(shard)
            shard -= len(part.counts)
        return None

    def check_all_current(self, shards: Sequence[int], /) -> None:
        begin = 0
        for part in self.parts:
            end = begin + len(part.counts)
            part.check_all_current([shard - begin for shard in shards if begin <= shard < end])
            begin = end

    def class_counts(self, column: str, /) -> Mapping[int, int] | None:
        counts: Counter[int] = Counter()
        for part in self.parts:
            found = part.class_counts(column)
            if found is None:
                return None
            counts.update(found)
        return counts

    def entry_to_cache(self, shard: int, /) -> ShardEntryToCache:
        for part in self.parts:
            if shard < len(part.counts):
                return part.entry_to_cache(shard)
            shard -= len(part.counts)
        raise IndexError(shard)

    def __getstate__(self) -> dict[str, Any]:
        return {"parts": self.parts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
