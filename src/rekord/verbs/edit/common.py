"""Shared by append, delete and relabel: the shards of the new dataset, and how it replaces the old one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rekord.arguments import as_path
from rekord.conversion.derive import CopiedShard, Derivation, DerivedShard, DerivedSplit, LinkedShard, reuse_shard
from rekord.conversion.driver import REJECTS, REMARKS, WRITE_REQUEST, ConversionListener, remove_dataset
from rekord.conversion.record_copier import RecordRange, RecordSequence
from rekord.conversion.reuse import SOURCE_FILES
from rekord.dataset.external_index import TEXT_SUFFIX, external_index_name, index_folder
from rekord.dataset.index import METADATA_FOLDER
from rekord.dataset.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestSplit,
    list_shard_folders,
    manifest_path,
    read_manifest,
    shard_name,
)
from rekord.dataset.origins import ORIGINS_FOLDER
from rekord.dataset.samplers import EpochOrder, Ids, SubsetSampler, normalize_selection
from rekord.errors import DatasetError, RekordError, UsageError, error
from rekord.location import Location
from rekord.schema import Schema
from rekord.storage.local import PathLike, Storage
from rekord.storage.publication import exists, read_bytes
from rekord.storage.replacement import Replacement, SwapRecord
from rekord.storage.router import ROUTED_STORAGE
from rekord.storage.transaction import Transaction
from rekord.verbs.derive_common import (
    SourceDataset,
    build_derivation_plan,
    check_separate_folders,
    derived_companions,
    open_source_dataset,
    run_derivation,
)
from rekord.verbs.options import EditOptions, output_folder, resolve_worker_count
from rekord.verbs.write import check_tfds_output, make_shard_template
from rekord.version import VERSION


class EditSwap(SwapRecord, frozen=True, kw_only=True):
    """A new dataset that replaces an old one, with its report."""

    request_digest: str  # of the requested edit
    counts: dict[str, int]
    linked_shards: int
    written_shards: int


class EditWorkspace(Replacement):
    """The hidden folder of an edit, which holds the new rows and the new dataset until the commit."""

    def __init__(self, path: PathLike, storage: Storage) -> None:
        super().__init__(
            path,
            storage,
            digest=lambda folder: read_manifest_digest(folder, storage),
            remove=lambda folder: remove_dataset(storage, folder),
        )
        self.rows = os.path.join(self.work, "rows")

    def remove_stale(self, folder: str, plan_id: str) -> None:
        """Remove what another plan left in `rows` or `data`."""
        if not exists(self.storage, self.work):
            return
        inside = Transaction(folder, self.storage)
        if inside.find() is not None and self._plan(folder) != plan_id:
            self.remove_data(folder)
        own = inside.staging(plan_id).folder
        for staging in inside.stagings():
            if staging.folder != own:
                staging.remove()

    def swap_checked(self, swap: EditSwap) -> str | None:
        """Replace the old dataset by the one in `data`; returns a folder with foreign files, if there are any."""

        def check() -> None:
            check_owned_files(self.target, read_manifest(self.target, self.storage), self.storage)

        return self.swap(swap, check)

    def _plan(self, folder: str) -> str | None:
        with suppress(DatasetError):
            return read_manifest(folder, self.storage).plan
        return None


def read_manifest_digest(folder: str, storage: Storage) -> str | None:
    """The digest of a dataset's manifest; None if there is none."""
    path = manifest_path(folder)
    if not exists(storage, path):
        return None
    return hashlib.sha256(read_bytes(storage, path)).hexdigest()


def check_owned_files(folder: str, manifest: Manifest, storage: Storage) -> None:
    """Refuse to remove a folder with files that rekord did not write."""
    shards = [name for split, part in manifest.splits.items() for name in part.names(split)]
    ours = os.path.join(folder, METADATA_FOLDER)
    known = {
        folder: {MANIFEST_NAME, *manifest.companions},
        ours: {"blocks", REJECTS, REMARKS, ORIGINS_FOLDER, WRITE_REQUEST, SOURCE_FILES},
        os.path.join(ours, "blocks"): {f"{name}.arrow" for name in manifest.splits},
    }
    for below in list_shard_folders(manifest.splits):  # adopted shards may lie in folders below
        inside = os.path.join(folder, below) if below else folder
        own = [name.rpartition("/")[2] for name in shards if name.rpartition("/")[0] == below]
        known.setdefault(inside, set()).update({METADATA_FOLDER, *own})
        known.setdefault(os.path.join(inside, METADATA_FOLDER), set()).add("index")
        known[os.path.join(inside, METADATA_FOLDER, "index")] = {f"{name}.arrow" for name in own}
        known[os.path.join(inside, METADATA_FOLDER, ORIGINS_FOLDER)] = {f"{name}.origins" for name in own}
        if below:
            known.setdefault(os.path.dirname(inside), set()).add(os.path.basename(inside))
    for tool in TEXT_SUFFIX:  # index files of the old shards are removed with them
        inside = index_folder(folder, tool)
        known[folder].add(os.path.basename(inside))
        known[inside] = {external_index_name(name, tool) for name in shards}
    others = [
        os.path.join(inside, entry.name)
        for inside, names in known.items()
        if exists(storage, inside)
        for entry in storage.list(inside)
        if entry.name not in names
    ]
    if others:
        raise error(
            "U618",
            "dataset to replace contains files that rekord did not write",
            location=Location(path=others[0]),
            expected="only the files that the manifest lists",
            found=f"{len(others):,} other {'file or folder' if len(others) == 1 else 'files or folders'}",
            do='move them elsewhere, or write to a new folder: out="data/new"',
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTarget:
    """Where an edited dataset goes: to `out`, or in place of the old one."""

    out: str | None
    workers: int = 1
    fresh: bool = False
    progress: bool = False
    watch: ConversionListener | None = None  # receives the progress instead of stderr
    storage: Storage = ROUTED_STORAGE


@dataclass(frozen=True, kw_only=True)
class DatasetEdit:
    """The dataset to write. `options` are all those that affect its bytes."""

    verb: str
    old: SourceDataset
    shards: Mapping[str, Sequence[DerivedShard]]
    counts: Mapping[str, int]  # of added, deleted or changed records, by split
    options: Mapping[str, Any]
    request_digest: str  # of the requested edit, independent of the dataset
    schema: Schema | None = None  # if it changes
    companions: Mapping[str, bytes] = field(default_factory=dict)  # those that change
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EditResult:
    """The result of an edit."""

    dataset: str
    manifest: Manifest
    counts: Mapping[str, int]
    linked_shards: int = 0
    written_shards: int = 0
    resumed_shards: int = 0
    nothing_to_do: bool = False
    left: str | None = None  # a folder with foreign files that were added to the old dataset meanwhile
    notes: tuple[str, ...] = ()

    def to_dict(self, what: str) -> dict[str, Any]:
        """The result as a JSON document; `what` was done to records."""
        return {
            "dataset": self.dataset,
            "splits": {
                name: {
                    "records": part.records,
                    "shards": len(part.shards.records),
                    "bytes": sum(part.shards.bytes),
                    what: self.counts.get(name, 0),
                }
                for name, part in self.manifest.splits.items()
            },
            "linked_shards": self.linked_shards,
            "written_shards": self.written_shards,
            "resumed_shards": self.resumed_shards,
            what: sum(self.counts.values()),
            "notes": list(self.notes),
        }


def resolve_edit_target(out: PathLike | None, options: EditOptions, *, progress: bool) -> EditTarget:
    """Where the edited dataset goes."""
    if (out is None) == (not options.replace):
        raise error(
            "U605",
            "`out` is required" if out is None else "`out` and `replace` cannot be combined",
            expected="either a folder for the new dataset, or replace=True",
            found="neither" if out is None else "both",
            do='out="data/new", or replace=True',
        )
    return EditTarget(
        out=None if out is None else output_folder(out),
        workers=resolve_worker_count(options.workers),
        fresh=bool(options.fresh),
        progress=bool(progress),
    )


@contextmanager
def open_edit(path: PathLike, target: EditTarget) -> Iterator[tuple[EditWorkspace, EditSwap | None]]:
    """The locked workspace of an edit, and a swap that an earlier run completed without reporting it."""
    folder = as_path("path", path, expected="the path of a dataset's folder", do='"data/flowers"')
    place = folder if target.out is None else target.out
    workspace = EditWorkspace(place, target.storage)
    if target.out is not None:
        _check_listed(os.fspath(path))
    else:
        workspace.check_replaceable()
        if not exists(target.storage, workspace.parent):
            target.storage.stat(place)  # raises: it does not exist
    with workspace.lock_work() as work:
        done = work.recover(EditSwap) if target.out is None else None
        if target.fresh:
            work.clear()
        yield work, done


def open_editable(path: PathLike, target: EditTarget) -> SourceDataset:
    """The dataset to edit, which must have a manifest."""
    _check_listed(os.fspath(path))
    old = open_source_dataset(path)
    if old.manifest is None or old.root is None:
        raise _missing_manifest_error(os.fspath(path))
    if target.out is None:
        check_owned_files(old.root, old.manifest, target.storage)
    else:
        check_separate_folders(target.out, [old])
        if old.is_tfds:
            splits = old.manifest.splits
            compression = next((part.compression for part in splits.values()), "none")
            check_tfds_output(target.out, old.schema, tuple(splits), compression)
    return old


def _check_listed(place: str) -> None:
    ROUTED_STORAGE.stat(place)  # raises if it does not exist
    if not exists(ROUTED_STORAGE, manifest_path(place)):
        raise _missing_manifest_error(place)


def _missing_manifest_error(place: str) -> RekordError:
    return error(
        "U651",
        "dataset without a manifest cannot be edited",
        location=Location(path=place),
        expected="a folder with a rekord.json",
        found="no rekord.json",
        do=f"rekord rewrite {place[:60]} OUT",
    )


def keep_shard(old: SourceDataset, split: str, records: RecordSequence, number: int) -> DerivedShard:
    """A shard that is kept."""
    assert old.manifest is not None
    return reuse_shard(records, number, old.manifest.splits[split], old.index)


def drop_records(records: RecordSequence, number: int, gone: Ids) -> DerivedShard | None:
    """A shard without some of its records, by number in the split; None if none is left."""
    begin, end = (int(one) for one in records.shards.starts[number : number + 2])
    left = np.setdiff1d(np.arange(begin, end, dtype=np.int64), gone, assume_unique=True)
    if not len(left):
        return None
    chosen = RecordSequence(
        records.shards, SubsetSampler(EpochOrder("sequential", len(left)), normalize_selection(left))
    )
    return CopiedShard(RecordRange(chosen, 0, len(left)))


def digest_options(*words: Any) -> str:
    """A digest of the requested edit."""
    return hashlib.sha256(repr(words).encode("utf-8", "backslashreplace")).hexdigest()


def build_recovered_result(swap: EditSwap, path: PathLike, target: EditTarget) -> EditResult:
    """The result of an edit that an earlier run completed, but died before reporting."""
    place = os.fspath(path)
    return EditResult(
        dataset=place,
        manifest=read_manifest(place, target.storage),
        counts=swap.counts,
        linked_shards=swap.linked_shards,
        written_shards=swap.written_shards,
        nothing_to_do=True,
    )


def run_edit(edit: DatasetEdit, path: PathLike, target: EditTarget, work: EditWorkspace) -> EditResult:
    """Write the dataset, and commit it."""
    old = edit.old
    assert old.manifest is not None
    assert old.parent is not None
    place = os.fspath(path) if target.out is None else target.out
    if target.out is None and not sum(edit.counts.values()) and edit.schema is None:
        work.clear()
        return EditResult(
            dataset=place,
            manifest=old.manifest,
            counts=edit.counts,
            nothing_to_do=True,
            notes=edit.notes,
        )
    schema = edit.schema or old.schema
    plan = build_derivation_plan(edit.verb, old, schema, old.index, edit.options)
    splits = {
        name: DerivedSplit(
            shards=shards,
            template=_choose_template(old, old.manifest.splits[name], place),
            compression=old.manifest.splits[name].compression,
        )
        for name, shards in edit.shards.items()
    }
    wanted = Derivation(
        out=work.data if target.out is None else target.out,
        splits=splits,
        schema=schema,
        index=old.index,
        plan=plan,
        version=VERSION,
        companions=derived_companions(old, schema, place, tfds=old.is_tfds, changed=edit.companions),
        parent=old.parent,
        workers=target.workers,
        fresh=target.fresh,
        storage=target.storage,
        framed_bytes=_estimate_written_bytes(splits, work),
    )
    if target.out is None:
        work.remove_stale(work.data, plan.id)
    progress = target.progress and bool(wanted.framed_bytes)
    try:
        derived = run_derivation(wanted, [old], progress=progress, shown=place, watch=target.watch)
    except UsageError:
        work.clear()  # the output exists already: no later run resumes from here
        raise
    shards = sum(len(split.shards) for split in splits.values())
    linked = _count_linked_shards(wanted, old)
    left = None
    if target.out is None:
        digest = read_manifest_digest(work.data, target.storage)
        assert digest is not None
        swap = EditSwap(
            old=old.parent,
            new=digest,
            request_digest=edit.request_digest,
            counts=dict(edit.counts),
            linked_shards=linked,
            written_shards=shards - linked,
        )
        left = work.swap_checked(swap)
    else:
        work.clear()
    return EditResult(
        dataset=place,
        manifest=derived.manifest,
        counts=edit.counts,
        linked_shards=linked,
        written_shards=shards - linked,
        resumed_shards=derived.resumed_shards,
        nothing_to_do=derived.nothing_to_do and target.out is not None,
        left=left,
        notes=edit.notes,
    )


def _choose_template(old: SourceDataset, part: ManifestSplit, place: str) -> str:
    """The template of shard names: as before, unless it contains the dataset's name or lacks a number."""
    numbered = all(word in part.template for word in ("{split}", "{shard:05d}", "{shards:05d}"))
    if numbered and not old.is_tfds:
        return part.template
    return make_shard_template(place, part.compression, "tfds" if old.is_tfds else None)


def _estimate_written_bytes(splits: Mapping[str, DerivedSplit], work: EditWorkspace) -> int:
    """Approximate number of bytes to write: files that cannot be linked are copied."""
    sizes = 0
    for shard in [shard for split in splits.values() for shard in split.shards]:
        if isinstance(shard, LinkedShard):
            same_disk = _get_device(os.path.dirname(shard.path)) == _get_device(work.parent)
            sizes += 0 if same_disk else shard.done.file_bytes
        else:
            sizes += sum(int(lengths.sum()) for _, lengths in shard.stretch.pieces())
    return sizes


def _get_device(folder: str) -> int:
    try:
        return os.stat(folder).st_dev
    except OSError:
        return -1


def _count_linked_shards(wanted: Derivation, old: SourceDataset) -> int:
    """The number of shards that are hard links to files of the old dataset."""
    linked = 0
    theirs = {path for split in old.splits.values() for path in split.paths}
    for name, split in wanted.splits.items():
        for number, shard in enumerate(split.shards):
            if isinstance(shard, LinkedShard) and shard.path in theirs:
                own = os.path.join(wanted.out, shard_name(split.template, name, number, len(split.shards)))
                linked += is_same_file(wanted.storage, own, shard.path)
    return linked


def is_same_file(storage: Storage, one: str, other: str) -> bool:
    """Whether two paths are links to the same file."""
    return storage.stat(one).identity == storage.stat(other).identity
