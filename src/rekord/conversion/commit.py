"""The output of a conversion: what exists there, the files next to the shards, and the rename that publishes all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import pyarrow as pa

from rekord import _core
from rekord.conversion.plan import ConversionJob, ConversionPlan
from rekord.conversion.shards import CompletedShard
from rekord.conversion.spill import CompletedPart
from rekord.dataset.index import BLOCK_BYTES, CHUNK_RECORDS, METADATA_FOLDER
from rekord.dataset.manifest import (
    CHECKSUM,
    MANIFEST_FORMAT,
    MANIFEST_NAME,
    IndexChecksums,
    Manifest,
    ManifestShards,
    ManifestSource,
    ManifestSplit,
    manifest_path,
    read_manifest,
    tag_digest,
)
from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.sources.base import is_partitioned
from rekord.storage.local import LOCAL, Storage
from rekord.storage.transaction import Staging, Transaction, exists, read_bytes, remove_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputTarget:
    """Where a dataset is to appear, and what it is to be."""

    out: str
    plan: ConversionPlan
    storage: Storage = LOCAL
    fresh: bool = False
    spills: str | None = None
    # Of rows that can be compared only by reading them all: their digest, as the manifest of the dataset has it.
    rows_digest: Callable[[], str] | None = None


@contextmanager
def staged(aim: OutputTarget) -> Iterator[tuple[Transaction, Staging | Manifest]]:
    """The place, locked, and its staging as an earlier run left it; or the manifest, where all of it is done."""
    transaction = Transaction(aim.out, aim.storage)
    aim.storage.make_folder(transaction.parent)
    with transaction.lock():
        complete = complete_dataset(aim, transaction)
        if complete is not None:
            yield transaction, complete
            return
        staging = transaction.staging(aim.plan.id, spills=aim.spills)
        _check_stagings(aim, transaction, staging)
        inside = (os.path.join(METADATA_FOLDER, "index"), os.path.join(METADATA_FOLDER, "blocks"))
        staging.prepare(aim.plan.to_json(), *inside)
        yield transaction, staging


def complete_dataset(aim: OutputTarget, transaction: Transaction) -> Manifest | None:
    """What is at the place already: nothing, the dataset itself, or a reason to stop."""
    storage, out = aim.storage, aim.out
    if not exists(storage, out):
        return None
    if storage.stat(out).kind != "folder":
        raise _output_exists_error(out, "a file", "choose another place")
    if not storage.list(out) or aim.fresh:
        if not storage.list(out) or exists(storage, manifest_path(out)):
            return None
        raise _output_exists_error(out, "a folder that no rekord manifest describes", "choose another place")
    if not exists(storage, manifest_path(out)):
        raise _output_exists_error(
            out, "a folder with other files", "choose another place, or an empty folder"
        )
    manifest = read_manifest(out, storage)
    if manifest.plan != aim.plan.id:
        source = manifest.source.fingerprint if aim.rows_digest is None else aim.plan.source
        theirs = {"options": manifest.options, "schema": manifest.schema, "format": manifest.format}
        differs = aim.plan.differences({**theirs, "source": source})
        many = len(differs) > 1 or differs[0].startswith("the files")
        raise _output_exists_error(
            out,
            f"a dataset of another plan: {', '.join(differs)} {'differ' if many else 'differs'}",
            "--fresh (fresh=True) to write it anew, or another place",
        )
    if aim.rows_digest is not None and aim.rows_digest() != manifest.source.fingerprint:
        raise _output_exists_error(
            out,
            "a dataset with the same options from other rows",
            "--fresh (fresh=True) to write it anew, or another place",
        )
    transaction.staging(aim.plan.id, spills=aim.spills).remove()
    remove_replaced(transaction)
    return manifest


def _output_exists_error(out: str, found: str, do: str) -> RekordError:
    return error(
        "U618",
        location=Location(path=out),
        expected="nothing yet, or what the same command wrote",
        found=found,
        do=do,
    )


def _check_stagings(aim: OutputTarget, transaction: Transaction, own: Staging) -> None:
    """Unfinished conversions to the same place: removed when that is asked for, else a reason to stop."""
    for other in transaction.stagings():
        if aim.fresh or (other.folder != own.folder and not other.has_finished_tasks()):
            other.remove()  # as asked, or because there is nothing in it to go on from
        elif other.folder != own.folder:
            differs = aim.plan.differences(other.plan())
            raise error(
                "U609",
                "unfinished conversion had a different plan",
                location=Location(path=aim.out),
                expected="the same source, schema and options as the unfinished conversion had",
                found=f"a difference in {', '.join(differs)}"[:120],
                do="run it with what it had to continue, or with --fresh (fresh=True) to start over",
            )
    if aim.fresh:
        remove_tree(aim.storage, own.spills)


REJECTS = "rejects.jsonl"
REMARKS = "remarks.jsonl"


Companions: TypeAlias = Callable[[Manifest], Mapping[str, bytes]]
"""What the manifest says, in the files of other tools: contents by name."""


def build_manifest(
    job: ConversionJob,
    plan: ConversionPlan,
    parts: Sequence[CompletedPart],
    shards: Mapping[str, Sequence[CompletedShard]],
    version: str,
) -> Manifest:
    """The manifest, from what the finished tasks say."""
    return Manifest(
        format=MANIFEST_FORMAT,
        rekord=version,
        plan=plan.id,
        schema=dict(plan.schema),
        splits={
            name: build_manifest_split(job.template, job.compression, done) for name, done in shards.items()
        },
        source=ManifestSource(
            kind=job.source.kind,
            fingerprint=plan.source
            if is_partitioned(job.source)
            else combine_row_digests([part.digest for part in parts]),
            rows=sum(part.rows for part in parts),
            rejected=sum(part.rejected for part in parts),
        ),
        options=dict(plan.options),
        companions=[],
    )


def combine_row_digests(digests: Sequence[str]) -> str:
    """One digest for the rows of a source that has no files to look at."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def build_manifest_split(template: str, compression: str, done: Sequence[CompletedShard]) -> ManifestSplit:
    """A split, from what its finished shards say."""
    records = sum(shard.records for shard in done)
    framed = sum(shard.framed_bytes for shard in done)
    classes: dict[str, dict[str, int]] = {}
    for shard in done:
        for column, counts in shard.classes.items():
            sums = classes.setdefault(column, {})
            for one, count in counts.items():
                sums[one] = sums.get(one, 0) + count
    return ManifestSplit(
        template=template,
        records=records,
        payload_bytes=framed - records * _core.FRAMING_BYTES,
        compression=compression,
        block_records=max(1, round(records * BLOCK_BYTES / framed)) if framed else 1,
        classes={
            column: dict(sorted(counts.items(), key=lambda one: int(one[0])))
            for column, counts in classes.items()
        },
        shards=ManifestShards(
            records=[shard.records for shard in done],
            bytes=[shard.file_bytes for shard in done],
            digest=[shard.digest for shard in done],
            index=IndexChecksums(
                checksum=CHECKSUM,
                chunk_records=CHUNK_RECORDS,
                values=[checksum for shard in done for checksum in shard.index],
            ),
        ),
    )


def write_companions(
    staging: Staging,
    manifest: Manifest,
    parts: Sequence[CompletedPart],
    shards: Mapping[str, Sequence[CompletedShard]],
    companions: Companions,
) -> Manifest:
    """Write everything that goes beside the shards, and the manifest last."""
    storage = staging.storage
    ours = os.path.join(staging.out, METADATA_FOLDER)
    for name, kind, count in (
        (REJECTS, "rejects", sum(part.rejected for part in parts)),
        (REMARKS, "remarks", sum(part.remarks for part in parts)),
    ):
        if count:
            _concatenate(staging, parts, kind, os.path.join(ours, name))
    blocks = os.path.join(ours, "blocks")
    splits = {}
    for name, done in shards.items():
        listed = _encode_block_list(done)
        staging.write(os.path.join(blocks, f"{name}.arrow"), listed, sync=True)
        digest = tag_digest(hashlib.sha256(listed).hexdigest())
        splits[name] = msgspec.structs.replace(manifest.splits[name], blocks=digest)
    manifest = msgspec.structs.replace(manifest, splits=splits)
    files = companions(manifest)
    for name, data in files.items():
        staging.write(os.path.join(staging.out, name), data, sync=True)
    manifest = msgspec.structs.replace(manifest, companions=sorted(files))
    staging.write(os.path.join(staging.out, MANIFEST_NAME), manifest.to_json(), sync=True)
    # A worker whose driver was killed may have begun a file after this run put such files away.
    staging.remove_unfinished(staging.out)
    for folder in (os.path.join(ours, "index"), blocks, ours, staging.out):
        storage.sync_folder(folder)
    return manifest


def _concatenate(staging: Staging, parts: Sequence[CompletedPart], kind: str, path: str) -> None:
    with staging.create(path, sync=True) as file:
        for number, part in enumerate(parts):
            if part.rejected if kind == "rejects" else part.remarks:
                file.write(read_bytes(staging.storage, staging.map_path(number, kind)))


def _encode_block_list(shards: Sequence[CompletedShard]) -> bytes:
    lines = [(i, record, offset) for i, shard in enumerate(shards) for record, offset in shard.blocks]
    table = pa.table(
        {
            "shard": pa.array([line[0] for line in lines], pa.uint32()),
            "record": pa.array([line[1] for line in lines], pa.uint32()),
            "offset": pa.array([line[2] for line in lines], pa.uint64()),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def commit(transaction: Transaction, staging: Staging) -> str | None:
    """Make the dataset appear, in place of an older one; the folder that files of others were left in."""
    transaction.commit(staging.out)
    staging.remove()
    return remove_replaced(transaction)


def remove_replaced(transaction: Transaction) -> str | None:
    """Remove older datasets that were put aside; the folder of one in which files of others were left."""
    storage = transaction.storage

    def remove(folder: str) -> str | None:
        # Without a manifest it is what was left of one before.
        known = exists(storage, manifest_path(folder)) or not storage.list(folder)
        return remove_dataset(storage, folder) if known else None

    return transaction.remove_replaced(remove)


def remove_dataset(storage: Storage, folder: str) -> str | None:
    """Remove a dataset of ours: what its manifest lists. What is left is somebody's, and stays where it is."""
    manifest = None
    with suppress(DatasetError):
        manifest = read_manifest(folder, storage)
    if manifest is not None:
        names = [name for split, part in manifest.splits.items() for name in part.names(split)]
        ours = os.path.join(folder, METADATA_FOLDER)
        for path in [os.path.join(folder, name) for name in (*names, *manifest.companions)]:
            if exists(storage, path):
                storage.remove(path)
        remove_tree(storage, ours)
        # Last: without it nobody would know what else is ours.
        storage.remove(manifest_path(folder))
    if storage.list(folder):
        return folder
    storage.remove_folder(folder)
    return None
