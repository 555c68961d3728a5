"""A dataset with a manifest, salvaged: every shard keeps its name, and a new manifest says what is left."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from rekord import _core
from rekord.codec.columns import Optional
from rekord.codes import CODES
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.index import BLOCK_BYTES
from rekord.dataset.manifest import (
    MANIFEST,
    Manifest,
    Shards,
    SplitPart,
    manifest_path,
    read_manifest,
    tagged,
)
from rekord.engines.journal import exists, read_bytes
from rekord.errors import RekordError
from rekord.health.salvage_copy import Kept, Ledger, copy_bytes, keep, make_empty
from rekord.health.salvage_walk import Gap
from rekord.schema import Label, Schema
from rekord.schema.tfds import INFO_NAME
from rekord.storage.files import Storage, Writable

_BATCH_RECORDS = 4096
_MOST_INFO_BYTES = 64 << 20


def usable_manifest(folder: str, ledger: Ledger, storage: Storage) -> Manifest | None:
    """The manifest of a folder; one that cannot be used is a gap, and the shards go by their names."""
    if not exists(storage, manifest_path(folder)):
        return None
    try:
        manifest = read_manifest(folder, storage)
        Schema.from_dict(manifest.schema)
    except RekordError as failure:
        if failure.code.startswith("X50"):
            raise
        ledger.take(_lost_file(folder, MANIFEST, storage, failure.code))
        return None
    return manifest


class DatasetSalvage:
    """One dataset on its way to another folder. `create` makes a file there and `close` completes it."""

    def __init__(
        self,
        folder: str,
        manifest: Manifest,
        ledger: Ledger,
        storage: Storage,
        *,
        target: str,
        create: Callable[[str], Writable],
        close: Callable[[Writable], None],
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._ledger = ledger
        self._storage = storage
        self._target = target
        self._create = create
        self._close = close

    def run(self) -> None:
        """Write the shards, what goes beside them, and the manifest."""
        splits = {name: self._split(name, part) for name, part in self._manifest.splits.items()}
        companions = [name for name in self._manifest.companions if self._companion(name, splits)]
        parent = hashlib.sha256(read_bytes(self._storage, manifest_path(self._folder))).hexdigest()
        manifest = msgspec.structs.replace(
            self._manifest,
            # Of no conversion: none may take it for what it would have written itself.
            plan=hashlib.sha256(f"salvage {parent}".encode()).hexdigest(),
            splits=splits,
            companions=companions,
            parent=parent,
        )
        self._write(MANIFEST, manifest.to_json())

    def _split(self, split: str, part: SplitPart) -> SplitPart:
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
            shards=Shards(
                records=records,
                bytes=[one.file_bytes or 0 for one in kept],
                digest=[tagged(one.sha256) for one in kept],
            ),
        )

    def _shard(self, name: str, expected: int, compression: str) -> Kept:
        path = os.path.join(self._folder, name)
        files: list[Writable] = []

        def create() -> Writable:
            files.append(self._create(name))
            return files[0]

        if exists(self._storage, path):
            kept = keep(path, create, self._ledger, self._storage, hashed=True, empty_as=compression)
        else:
            kept = make_empty(create(), compression)
            self._ledger.report.files += 1
            self._ledger.take(
                Gap(path=path, begin=0, end=0, message=CODES["X501"], code="X501", lost_records=expected)
            )
            kept.gaps = 1
        self._close(files[0])
        lost = expected - kept.records
        if lost > 0 and not kept.gaps:
            # Cut between two records, which nothing but the manifest can tell.
            end = kept.framed_bytes
            message = CODES["X541"]
            self._ledger.take(
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
        self._ledger.lost(lost if lost >= 0 else kept.lost)
        return kept

    def _classes(self, columns: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, int]]:
        """How many records of each class are left; nothing where a record does not fit the schema."""
        schema = Schema.from_dict(self._manifest.schema)
        labels = [name for name in columns if name in schema and isinstance(schema[name], Label)]
        sums: dict[str, dict[int, int]] = {name: {} for name in labels}
        paths = [os.path.join(self._target, name) for name in names]
        try:
            # Whatever splits the names may tell of: all of these files are one.
            files = open_dataset(paths, schema, allow_missing=True).splits.values()
            for batch in chain.from_iterable(
                one.batches(_BATCH_RECORDS, columns=labels, prefetch=0, threads=1) for one in files
            ):
                for name in labels:
                    found, counts = np.unique(_present(batch[name]), return_counts=True)
                    for one, count in zip(found.tolist(), counts.tolist(), strict=True):
                        sums[name][one] = sums[name].get(one, 0) + count
        except RekordError:
            return {}
        return {
            name: {str(one): count for one, count in sorted(counts.items())} for name, counts in sums.items()
        }

    def _companion(self, name: str, splits: dict[str, SplitPart]) -> bool:
        """Copy a file that goes beside the shards; False where it is lost."""
        path = os.path.join(self._folder, name)
        if not exists(self._storage, path):
            self._ledger.take(_lost_file(self._folder, name, self._storage, "X501"))
            return False
        if name == INFO_NAME:
            short = self._storage.stat(path).size_bytes <= _MOST_INFO_BYTES
            info = _counted(read_bytes(self._storage, path), splits) if short else None
            if info is None:
                self._ledger.take(_lost_file(self._folder, name, self._storage, "X536"))
                return False
            self._write(name, info)
            return True
        file = self._create(name)
        copy_bytes(path, file.write, self._storage)
        self._close(file)
        return True

    def _write(self, name: str, data: bytes) -> None:
        file = self._create(name)
        file.write(data)
        self._close(file)


def _present(column: Any) -> Any:
    return column.values[column.valid] if isinstance(column, Optional) else column


def _counted(data: bytes, splits: dict[str, SplitPart]) -> bytes | None:
    """A dataset_info.json with the counts of now; None where it is damaged."""
    try:
        info = json.loads(data)
        for split in info["splits"]:
            part = splits[split["name"]]
            split["shardLengths"] = [str(records) for records in part.shards.records]
            split["numBytes"] = str(part.payload_bytes)
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return (json.dumps(info, indent=4, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _lost_file(folder: str, name: str, storage: Storage, code: str) -> Gap:
    path = os.path.join(folder, name)
    size_bytes = storage.stat(path).size_bytes if exists(storage, path) else 0
    return Gap(path=path, begin=0, end=size_bytes, message=CODES[code], code=code, lost_records=0)
