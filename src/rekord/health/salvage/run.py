"""`rk.salvage`: every intact record into a new file or dataset, and a list of what is lost."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from rekord import _core
from rekord.arguments import as_path, check_keywords
from rekord.codec.columns import Optional
from rekord.codes import CODES
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestShards,
    ManifestSplit,
    manifest_path,
    read_manifest,
    tag_digest,
)
from rekord.dataset.read import list_record_files
from rekord.errors import RekordError, error
from rekord.health.salvage.copy import (
    FOREIGN_CODES,
    Gap,
    SalvagedFile,
    SalvageLedger,
    SalvageReport,
    copy_file_bytes,
    salvage_file_records,
    write_empty_file,
)
from rekord.location import Location
from rekord.schema import Schema
from rekord.schema.interop.tfds import INFO_NAME
from rekord.storage.local import LOCAL, PathLike, Storage, Writable
from rekord.storage.transaction import StagedFolder, Transaction, exists, kind_at, publish, read_bytes

_BATCH_RECORDS = 4096
_MAX_INFO_BYTES = 64 << 20


def read_usable_manifest(folder: str, ledger: SalvageLedger, storage: Storage) -> Manifest | None:
    """The manifest of a folder; if it is unusable, it is a gap, and shards are identified by name."""
    if not exists(storage, manifest_path(folder)):
        return None
    try:
        manifest = read_manifest(folder, storage)
        Schema.from_dict(manifest.schema)
    except RekordError as failure:
        if failure.code.startswith("X50"):
            raise
        ledger.take(_build_lost_file_gap(folder, MANIFEST_NAME, storage, failure.code))
        return None
    return manifest


@dataclass(frozen=True)
class DatasetSalvage:
    """The salvage of a dataset to another folder. `create` creates a file there and `close` completes it."""

    folder: str
    manifest: Manifest
    ledger: SalvageLedger
    storage: Storage
    target: str
    create: Callable[[str], Writable]
    close: Callable[[Writable], None]

    def run(self) -> None:
        """Write the shards, their companions, and the manifest."""
        splits = {name: self._split(name, part) for name, part in self.manifest.splits.items()}
        companions = [name for name in self.manifest.companions if self._companion(name, splits)]
        parent = hashlib.sha256(read_bytes(self.storage, manifest_path(self.folder))).hexdigest()
        manifest = msgspec.structs.replace(
            self.manifest,
            # Not from a conversion: none may mistake it for its own output.
            plan=hashlib.sha256(f"salvage {parent}".encode()).hexdigest(),
            splits=splits,
            companions=companions,
            parent=parent,
        )
        self._write(MANIFEST_NAME, manifest.to_json())

    def _split(self, split: str, part: ManifestSplit) -> ManifestSplit:
        names = part.names(split)
        kept = [
            self._shard(name, expected, part.compression)
            for name, expected in zip(names, part.shards.records, strict=True)
        ]
        records = [one.records for one in kept]
        total, framed = sum(records), sum(one.framed_bytes for one in kept)
        same = records == part.shards.records
        return msgspec.structs.replace(
            part,
            blocks=None,  # neither these nor the indexes are salvaged
            records=total,
            payload_bytes=framed - total * _core.FRAMING_BYTES,
            block_records=max(1, round(total * BLOCK_BYTES / framed)) if framed else 1,
            classes=part.classes if same else self._classes(list(part.classes), names),
            shards=ManifestShards(
                records=records,
                bytes=[one.file_bytes or 0 for one in kept],
                digest=[tag_digest(one.sha256) for one in kept],
            ),
        )

    def _shard(self, name: str, expected: int, compression: str) -> SalvagedFile:
        path = os.path.join(self.folder, name)
        files: list[Writable] = []

        def create() -> Writable:
            files.append(self.create(name))
            return files[0]

        if exists(self.storage, path):
            kept = salvage_file_records(path, create, self.ledger, self.storage, hashed=True, empty_as=compression)
        else:
            kept = write_empty_file(create(), compression)
            self.ledger.report.files += 1
            self.ledger.take(
                Gap(path=path, begin=0, end=0, message=CODES["X501"], code="X501", lost_records=expected)
            )
            kept.gaps = 1
        self.close(files[0])
        lost = expected - kept.records
        if lost > 0 and not kept.gaps:
            # Truncated between two records, which only the manifest reveals.
            end = kept.framed_bytes
            message = CODES["X541"]
            self.ledger.take(
                Gap(
                    path=path,
                    begin=end,
                    end=end,
                    message=message,
                    code="X541",
                    record=kept.records,
                    lost_records=lost,
                )
            )
        self.ledger.lost(lost if lost >= 0 else kept.lost)
        return kept

    def _classes(self, columns: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, int]]:
        """The number of remaining records of each class; empty if a record does not fit the schema."""
        schema = Schema.from_dict(self.manifest.schema)
        labels = [name for name in columns if name in schema and schema[name].class_count is not None]
        sums: dict[str, dict[int, int]] = {name: {} for name in labels}
        paths = [os.path.join(self.target, name) for name in names]
        try:
            # All of these files are one split, whatever splits their names suggest.
            files = open_dataset(paths, schema, allow_missing=True).splits.values()
            for batch in chain.from_iterable(
                one.batches(_BATCH_RECORDS, columns=labels, prefetch=0, threads=1) for one in files
            ):
                for name in labels:
                    found, counts = np.unique(_select_present(batch[name]), return_counts=True)
                    for one, count in zip(found.tolist(), counts.tolist(), strict=True):
                        sums[name][one] = sums[name].get(one, 0) + count
        except RekordError:
            return {}
        return {name: {str(one): count for one, count in sorted(counts.items())} for name, counts in sums.items()}

    def _companion(self, name: str, splits: dict[str, ManifestSplit]) -> bool:
        """Copy a companion of the shards; False if it is lost."""
        path = os.path.join(self.folder, name)
        if not exists(self.storage, path):
            self.ledger.take(_build_lost_file_gap(self.folder, name, self.storage, "X501"))
            return False
        if name == INFO_NAME:
            short = self.storage.stat(path).size_bytes <= _MAX_INFO_BYTES
            info = _update_info_counts(read_bytes(self.storage, path), splits) if short else None
            if info is None:
                self.ledger.take(_build_lost_file_gap(self.folder, name, self.storage, "X536"))
                return False
            self._write(name, info)
            return True
        file = self.create(name)
        copy_file_bytes(path, file.write, self.storage)
        self.close(file)
        return True

    def _write(self, name: str, data: bytes) -> None:
        file = self.create(name)
        file.write(data)
        self.close(file)


def _select_present(column: Any) -> Any:
    return column.values[column.valid] if isinstance(column, Optional) else column


def _update_info_counts(data: bytes, splits: dict[str, ManifestSplit]) -> bytes | None:
    """A dataset_info.json with updated counts; None if it is damaged."""
    try:
        info = json.loads(data)
        for split in info["splits"]:
            part = splits[split["name"]]
            split["shardLengths"] = [str(records) for records in part.shards.records]
            split["numBytes"] = str(part.payload_bytes)
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return (json.dumps(info, indent=4, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _build_lost_file_gap(folder: str, name: str, storage: Storage, code: str) -> Gap:
    path = os.path.join(folder, name)
    size_bytes = storage.stat(path).size_bytes if exists(storage, path) else 0
    return Gap(path=path, begin=0, end=size_bytes, message=CODES[code], code=code, lost_records=0)


_GLOB_CHARACTERS = re.compile(r"[*?[]")


@check_keywords
def salvage(src: PathLike, out: PathLike) -> SalvageReport:
    """Copy every intact record of `src` to `out`, and report the gaps between them.

    A file becomes a file, a folder or pattern a folder with the same names; a dataset with a manifest becomes a
    dataset again. Frames are copied unchanged, with the same compression. Reading resumes after damage, also inside
    gzip and zlib if there is an entry point. `out` appears once it is complete; `src` is never changed. Raises if no
    record is intact.
    """
    return salvage_into(src, out, SalvageReport())


def salvage_into(
    src: PathLike,
    out: PathLike,
    report: SalvageReport,
    *,
    on_gap: Callable[[Gap], None] | None = None,
    storage: Storage = LOCAL,
) -> SalvageReport:
    """`salvage` with a report that is updated while it runs."""
    do = 'rk.salvage("data", "data-repaired")'
    source, target = (as_path(name, path, expected="one path", do=do) for name, path in (("src", src), ("out", out)))
    kind = kind_at(storage, source)
    _check_paths(source, target, kind, storage)
    report.out = target
    ledger = SalvageLedger(report, on_gap)
    if kind == "folder" or (kind is None and _GLOB_CHARACTERS.search(source)):
        _salvage_folder(source, target, ledger, storage, is_folder=kind == "folder")
    else:
        (path,) = list_record_files(source)
        _salvage_file(path, target, ledger, storage)
    return report


def _salvage_file(path: str, out: str, ledger: SalvageLedger, storage: Storage) -> None:
    # Staged before anything is read: an output that cannot be written is reported immediately.
    with publish(out, storage) as file:
        kept = salvage_file_records(path, lambda: file, ledger, storage)
        ledger.lost(kept.lost)
        if kept.file_bytes is None:
            raise _nothing_salvaged_error(path, kept)


def _salvage_folder(source: str, out: str, ledger: SalvageLedger, storage: Storage, *, is_folder: bool) -> None:
    manifest = read_usable_manifest(source, ledger, storage) if is_folder else None
    paths = [] if manifest is not None else list_record_files(source)
    root = source if is_folder else _get_fixed_prefix(source)
    with Transaction(out, storage).folder("salvage") as staging:
        if manifest is not None:
            DatasetSalvage(source, manifest, ledger, storage, staging.folder, staging.create, staging.close).run()
        kept = [_salvage_into_folder(staging, path, os.path.relpath(path, root), ledger, storage) for path in paths]
        if ledger.report.gaps and not ledger.report.kept:
            # A single file may give a more specific error than all of them together.
            raise (
                _nothing_salvaged_error(kept[0][0], kept[0][1])
                if len(kept) == 1
                else _nothing_salvaged_error(source, None)
            )


def _salvage_into_folder(
    staging: StagedFolder, path: str, name: str, ledger: SalvageLedger, storage: Storage
) -> tuple[str, SalvagedFile]:
    files: list[Writable] = []

    def create() -> Writable:
        files.append(staging.create(name))
        return files[0]

    kept = salvage_file_records(path, create, ledger, storage)
    ledger.lost(kept.lost)
    for file in files:
        staging.close(file)
    return path, kept


def _nothing_salvaged_error(path: str, kept: SalvagedFile | None) -> RekordError:
    failure = None if kept is None else kept.failure
    if failure is not None and failure.code in (*FOREIGN_CODES, "F120"):
        return failure
    return error(
        "X540",
        location=Location(path=path),
        expected="a record with two valid checksums",
        found="none in any file" if failure is None else f"{failure.code}: {failure.what}",
        do=f"copy it again from its source; `rekord check {path}` reports what is wrong with each file",
    )


def _check_paths(source: str, out: str, kind: str | None, storage: Storage) -> None:
    """Refuse an output where something could be overwritten, or read and written at once."""
    ours, theirs = storage.real(source), storage.real(out)
    found = None
    if ours == theirs:
        found = "the same path"
    elif theirs.startswith(os.path.join(ours, "")) and kind == "folder":
        found = "an output inside the input"
    elif ours.startswith(os.path.join(theirs, "")):
        found = "an input inside the output"
    if found is not None:
        raise error(
            "U631",
            "output and input overlap",
            location=Location(path=out),
            expected="two paths, neither inside the other",
            found=found,
            do="choose another output path: salvage never works in place",
        )
    taken = kind_at(storage, out)
    if taken is not None:
        raise error(
            "U618",
            location=Location(path=out),
            expected="nothing yet",
            found={"file": "a file", "folder": "a folder"}.get(taken, "something that is not a file"),
            do="choose another output path, or move the existing one first",
        )
    if kind not in (None, "folder") and out.endswith(os.sep):
        raise error(
            "U605",
            "output must be a file, because the input is one",
            location=Location(path=out),
            expected="the name of a new file, because the input is a file",
            found="the name of a folder",
            do=f"choose {os.path.join(out, os.path.basename(source))}",
        )


def _get_fixed_prefix(pattern: str) -> str:
    """The folder before the first part of a path that is a pattern."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts) if _GLOB_CHARACTERS.search(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
