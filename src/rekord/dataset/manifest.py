"""`rekord.json`, the list of truth of a dataset: its schema, its splits, and every shard with its digest.

It is one columnar file, so that a hundred thousand shards are a few megabytes. It says nothing of when, where or by
how many workers it was made: the same data and the same options give the same file. It appears last.

Format 2 (docs/decisions/0022) names the algorithm of every digest, holds checksums of the index of every shard, and
ends with a checksum of itself. Format 1 is still read; the indexes of such a dataset are ignored.
"""

from __future__ import annotations

import hashlib
import os
from typing import Annotated, Any

import msgspec

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.messages import shown
from rekord.storage.local import Stat, Storage, read_file
from rekord.storage.remote import is_remote
from rekord.storage.router import ANYWHERE, kind_of

MANIFEST = "rekord.json"
FOLDER = ".rekord"
FORMAT = 2
CHECKSUM = "crc32c"
"""What the chunks of an index are verified by."""

_ALGORITHM = "sha256"
_FRAMING_BYTES = 16
_MOST_INFLATION = 1032  # bytes that deflate can make of one
_MOST_BYTES = 1 << 30
_SHARD, _SHARDS, _SPLIT = "{shard:05d}", "{shards:05d}", "{split}"

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def tagged(hexdigest: str) -> str:
    """A SHA-256 as a manifest holds it: a later version may use another algorithm."""
    return f"{_ALGORITHM}:{hexdigest}"


def shard_name(template: str, split: str, shard: int, shards: int) -> str:
    """A shard's file name. The template may come from a file, so only these three words mean anything in it."""
    numbered = template.replace(_SHARD, f"{shard:05d}").replace(_SHARDS, f"{shards:05d}")
    return numbered.replace(_SPLIT, split)


class IndexChecksums(msgspec.Struct, frozen=True, kw_only=True):
    """What the indexes of the shards of a split are verified by.

    `values` has, shard after shard, the checksum of everything but the chunks, and those of the chunks of
    `chunk_records` records: the number of records says how many these are.
    """

    checksum: str
    chunk_records: Count
    values: list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]]


class Shards(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of a split, column by column."""

    records: list[Count]
    bytes: list[Count]  # of the files
    digest: list[str]  # algorithm:hex
    index: IndexChecksums | None = None  # None: the shards have no index that could be verified


class SplitPart(msgspec.Struct, frozen=True, kw_only=True):
    """One split."""

    template: str
    records: Count
    payload_bytes: Count
    compression: str
    block_records: Count  # about 8 MiB of them
    classes: dict[str, dict[str, Count]]  # of each Label column: records by class id
    shards: Shards
    blocks: str | None = None  # the digest of .rekord/blocks/<split>.arrow

    def name(self, split: str, shard: int) -> str:
        """The file name of one shard."""
        return shard_name(self.template, split, shard, len(self.shards.records))

    def names(self, split: str) -> list[str]:
        """The file names of the shards, in order."""
        return [self.name(split, shard) for shard in range(len(self.shards.records))]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows came from: a digest of the files, or of the rows where there were none."""

    kind: str
    fingerprint: str
    rows: Count
    rejected: Count


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file, whatever its format."""

    format: int
    rekord: str  # the version that wrote it
    plan: str
    schema: dict[str, Any]
    splits: dict[str, SplitPart]
    source: Origin
    options: dict[str, Any]
    companions: list[str]  # the files beside the shards that other tools look for
    parent: str | None = None
    checksum: str | None = None  # of all the rest; None until it is written

    def to_json(self) -> bytes:
        """The file, in the current format."""
        whole = msgspec.structs.replace(self, format=FORMAT, checksum=_checksum(self))
        return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"

    @property
    def digest(self) -> str:
        """What tells this dataset from others, in saved states for example.

        Indexes are no part of it: one that is built again changes no dataset. Of format 1 it is what it always was.
        """
        if self.format == 1:
            content = msgspec.json.format(msgspec.json.encode(_version_1(self)), indent=1)
            return hashlib.sha256(content + b"\n").hexdigest()
        bare = {
            name: msgspec.structs.replace(
                part, blocks=None, shards=msgspec.structs.replace(part.shards, index=None)
            )
            for name, part in self.splits.items()
        }
        whole = msgspec.structs.replace(self, splits=bare, checksum=None)
        return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()


def _checksum(manifest: Manifest) -> str:
    """Of what a manifest says, not of its bytes: to format the file in another way is no damage."""
    whole = msgspec.structs.replace(manifest, format=FORMAT, checksum=None)
    return tagged(hashlib.sha256(msgspec.json.encode(whole)).hexdigest())


class _Shards1(msgspec.Struct, frozen=True, kw_only=True):
    records: list[Count]
    bytes: list[Count]
    sha256: list[str]


class _SplitPart1(msgspec.Struct, frozen=True, kw_only=True):
    template: str
    records: Count
    payload_bytes: Count
    compression: str
    block_records: Count
    classes: dict[str, dict[str, Count]]
    shards: _Shards1


class _Manifest1(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    rekord: str
    plan: str
    schema: dict[str, Any]
    splits: dict[str, _SplitPart1]
    source: Origin
    options: dict[str, Any]
    companions: list[str]
    parent: str | None = None


class _Format(msgspec.Struct):
    format: int


def _from_version_1(old: _Manifest1) -> Manifest:
    splits = {}
    for name, part in old.splits.items():
        shards = Shards(
            records=part.shards.records,
            bytes=part.shards.bytes,
            digest=[tagged(sha256) for sha256 in part.shards.sha256],
        )
        splits[name] = SplitPart(**{**msgspec.structs.asdict(part), "shards": shards})
    return Manifest(**{**msgspec.structs.asdict(old), "splits": splits})


def _version_1(manifest: Manifest) -> _Manifest1:
    splits = {}
    for name, part in manifest.splits.items():
        sha256 = [digest.partition(":")[2] for digest in part.shards.digest]
        shards = _Shards1(records=part.shards.records, bytes=part.shards.bytes, sha256=sha256)
        fields = {field: getattr(part, field) for field in _SplitPart1.__struct_fields__ if field != "shards"}
        splits[name] = _SplitPart1(**fields, shards=shards)
    fields = {field: getattr(manifest, field) for field in _Manifest1.__struct_fields__ if field != "splits"}
    return _Manifest1(**fields, splits=splits)


def manifest_path(folder: str) -> str:
    """Where the manifest of a dataset lies."""
    return os.path.join(folder, MANIFEST)


def has_manifest(folder: str) -> bool:
    """Whether anything has the manifest's name: a dangling link is a lost manifest, not a folder without one."""
    path = manifest_path(folder)
    return kind_of(path) == "file" if is_remote(path) else os.path.lexists(path)


def read_manifest(folder: str, storage: Storage = ANYWHERE) -> Manifest:
    """The manifest of a dataset, whole, consistent in itself and of a version that is known."""
    path = manifest_path(folder)
    manifest = _decoded(path, read_file(path, storage, most_bytes=_MOST_BYTES))
    if not all(_is_file_name(name) for name in manifest.companions):
        raise _refused(path, "companions in the dataset's own folder", "another place")
    patterns = set()
    for name, split in manifest.splits.items():
        _check_split(path, name, split)
        pattern = shard_name(split.template.replace(_SHARD, "\0"), name, 0, len(split.shards.records))
        if pattern in patterns:
            raise _refused(path, "a name of its own for every shard", shown(split.template))
        patterns.add(pattern)
    if sum(split.records for split in manifest.splits.values()) >= 1 << 63:
        raise _refused(path, "fewer than 2^63 records", "more")
    return manifest


def _decoded(path: str, data: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(data, type=_Format).format
        if version == 1:
            return _from_version_1(msgspec.json.decode(data, type=_Manifest1))
        if version != FORMAT:
            raise _refused(path, f"format {FORMAT} or earlier", f"format {version}"[:60])
        manifest = msgspec.json.decode(data, type=Manifest)
        checksum = _checksum(manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as failure:
        raise _refused(path, "a manifest that rekord wrote", str(failure)[:60]) from None
    if manifest.checksum != checksum:
        raise _refused(
            path, f"checksum {checksum[:23]}…, of what it says", shown(manifest.checksum)[:31] + "…"
        )
    return manifest


def _check_split(path: str, name: str, split: SplitPart) -> None:
    columns = split.shards
    if not len(columns.records) == len(columns.bytes) == len(columns.digest):
        raise _refused(path, "as many counts as shards", f"columns of several lengths in {name!r}"[:60])
    # A template is hostile like everything else in a file: no shard lies outside of the folder. Only digits differ
    # from one name to the next, so one name stands for all of them.
    if columns.records and not _is_file_name(split.name(name, 0)):
        raise _refused(path, "shards in the dataset's own folder", shown(split.template))
    if len(columns.records) > 1 and _SHARD not in split.template:
        raise _refused(path, "a name of its own for every shard", shown(split.template))
    if split.compression not in ("none", "gzip", "zlib"):
        raise _refused(path, "compression none, gzip or zlib", shown(split.compression))
    if sum(columns.records) != split.records:
        raise _refused(
            path, f"{split.records:,} records in {name!r}"[:60], f"{sum(columns.records):,} in its shards"
        )
    most = 1 if split.compression == "none" else _MOST_INFLATION
    for records, size_bytes in zip(columns.records, columns.bytes, strict=True):
        if records * _FRAMING_BYTES > size_bytes * most:
            raise _refused(path, f"records that fit into {size_bytes:,} bytes", f"{records:,} of them")
    for column, counts in split.classes.items():
        if not all(map(_is_number, counts)):
            raise _refused(path, f"class ids of {shown(column)}", "other words")
    index = columns.index
    if index is None:
        return
    if index.checksum != CHECKSUM or not index.chunk_records:
        raise _refused(path, f"index checksums by {CHECKSUM}", shown(index.checksum))
    if len(index.values) != sum(1 - (-records // index.chunk_records) for records in columns.records):
        raise _refused(
            path, "a checksum for every chunk of every index", f"{len(index.values):,} in {name!r}"[:60]
        )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and (text == "0" or text[0] != "0")


def _is_file_name(name: str) -> bool:
    """Whether a name can only mean a file in the folder itself."""
    return os.path.basename(name) == name and name not in ("", ".", "..") and name.isprintable()


def check_shard(folder: str, name: str, size_bytes: int, *, allow_missing: bool) -> tuple[str, Stat] | None:
    """The path of a shard that is as long as the manifest says; None where it is missing and may be."""
    path = os.path.join(folder, name)
    try:
        stat = ANYWHERE.stat(path)
    except RekordError as failure:
        if allow_missing and failure.code == "X501":
            return None
        raise
    if stat.kind != "file" or stat.size_bytes != size_bytes:
        raise wrong_size(path, size_bytes, stat.size_bytes, is_file=stat.kind == "file")
    return path, stat


def wrong_size(path: str, expected_bytes: int, found_bytes: int, *, is_file: bool = True) -> RekordError:
    """The error for a shard that is not as long as its manifest says, or no file at all."""
    return error(
        "X516",
        location=Location(path=path),
        expected=f"{expected_bytes:,} bytes, as {MANIFEST} says",
        found=f"{found_bytes:,} bytes" if is_file else "a folder, a pipe or a device",
        likely="the file was cut off, or the copy of it was"
        if is_file and found_bytes < expected_bytes
        else None,
        do=f"copy {os.path.basename(path)} again, or write the dataset again",
    )


def _refused(path: str, expected: str, found: str) -> RekordError:
    return error(
        "X515",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="write the dataset again, or remove the file to read the shards by their names",
    )
