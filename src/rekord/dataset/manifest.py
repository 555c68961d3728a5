"""`rekord.json`, the list of truth of a dataset: its schema, its splits, and every shard with its checksum.

It is one columnar file, so that a hundred thousand shards are a few megabytes. It says nothing of when, where or by
how many workers it was made: the same data and the same options give the same file. It appears last.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.storage.anywhere import ANYWHERE
from rekord.storage.files import Stat, Storage

MANIFEST = "rekord.json"
FOLDER = ".rekord"
FORMAT = 1


def shard_name(template: str, split: str, shard: int, shards: int) -> str:
    """A shard's file name. The template may come from a file, so only these three words mean anything in it."""
    numbered = template.replace("{shard:05d}", f"{shard:05d}").replace("{shards:05d}", f"{shards:05d}")
    return numbered.replace("{split}", split)


class Shards(msgspec.Struct, frozen=True, kw_only=True):
    """The shards of a split, column by column."""

    records: list[int]
    bytes: list[int]  # of the files
    sha256: list[str]


class SplitPart(msgspec.Struct, frozen=True, kw_only=True):
    """One split."""

    template: str
    records: int
    payload_bytes: int
    compression: str
    block_records: int  # about 8 MiB of them
    classes: dict[str, dict[str, int]]  # of each Label column: records by class id
    shards: Shards

    def names(self, split: str) -> list[str]:
        """The file names of the shards, in order."""
        count = len(self.shards.records)
        return [shard_name(self.template, split, i, count) for i in range(count)]


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rows came from: a digest of the files, or of the rows where there were none."""

    kind: str
    fingerprint: str
    rows: int
    rejected: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    format: int
    rekord: str  # the version that wrote it
    plan: str
    schema: dict[str, Any]
    splits: dict[str, SplitPart]
    source: Origin
    options: dict[str, Any]
    companions: list[str]  # the files beside the shards that other tools look for
    parent: str | None = None

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def manifest_path(folder: str) -> str:
    return os.path.join(folder, MANIFEST)


def read_manifest(folder: str, storage: Storage = ANYWHERE) -> Manifest:
    """The manifest of a dataset, whole and of a version that is known."""
    path = manifest_path(folder)
    with storage.open_read(path) as file:
        data = bytearray(file.size_bytes)
        view, filled = memoryview(data), 0
        while filled < len(data) and (count := file.readinto(view[filled:])):
            filled += count
    try:
        manifest = msgspec.json.decode(bytes(data[:filled]), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise _refused(path, "a manifest that rekord wrote", str(failure)[:60]) from None
    if manifest.format != FORMAT:
        raise _refused(path, f"format {FORMAT}", f"format {manifest.format}")
    if not all(_is_file_name(name) for name in manifest.companions):
        raise _refused(path, "companions in the dataset's own folder", "another place")
    for name, split in manifest.splits.items():
        columns = split.shards
        if not len(columns.records) == len(columns.bytes) == len(columns.sha256):
            raise _refused(path, "as many counts as shards", f"columns of several lengths in {name!r}"[:60])
        # A template is hostile like everything else in a file: no shard lies outside of the folder.
        names = split.names(name)
        if not all(_is_file_name(shard) for shard in names):
            raise _refused(path, "shards in the dataset's own folder", shown(split.template))
        if len(set(names)) < len(names):
            raise _refused(path, "a name of its own for every shard", shown(split.template))
    return manifest


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
    found = stat.size_bytes
    if found != size_bytes:
        raise error(
            "X516",
            location=Location(path=path),
            expected=f"{size_bytes:,} bytes, as {MANIFEST} says",
            found=f"{found:,} bytes",
            likely="the file was cut off, or the copy of it was" if found < size_bytes else None,
            do=f"copy {name} again, or write the dataset again",
        )
    return path, stat


def _refused(path: str, expected: str, found: str) -> RekordError:
    return error(
        "X515",
        location=Location(path=path),
        expected=expected,
        found=found,
        do="write the dataset again, or remove the file to read the shards by their names",
    )
