"""`rk.sync`: a dataset whose raw data changed, written again from the files that did; the others are copied."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from rekord.arguments import as_path, check_keywords
from rekord.conversion.driver import WRITE_REQUEST, Conversion, ConversionResult
from rekord.conversion.plan import RowFunction
from rekord.conversion.reuse import SOURCE_FILES, Reuse, ReuseCounts, SourceFiles, digest_context
from rekord.dataset.dataset import Dataset
from rekord.dataset.dataset import open as open_dataset
from rekord.dataset.index import METADATA_FOLDER
from rekord.dataset.manifest import Manifest, manifest_path, read_manifest
from rekord.errors import RekordError, error
from rekord.layouts.base import Layout
from rekord.location import Location
from rekord.sources.base import RowsLike, is_partitioned
from rekord.sources.detect import SourceOverrides, build_source, identify_source
from rekord.storage.local import PathLike
from rekord.storage.publication import exists, read_bytes
from rekord.storage.remote_files import listed_once
from rekord.storage.router import ROUTED_STORAGE
from rekord.transforms.base import Transform
from rekord.verbs.edit.common import EditSwap, EditWorkspace, check_owned_files, digest_options
from rekord.verbs.options import WriteOptions, output_folder
from rekord.verbs.write import MaskOptions, prepare_conversion, run_conversion
from rekord.verbs.write_request import RestoredRequest, decode_request
from rekord.version import VERSION

if TYPE_CHECKING:
    from rekord.storage.local import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The result of a sync."""

    dataset: str
    manifest: Manifest
    reused: ReuseCounts = ReuseCounts()  # noqa: RUF009
    everything: str | None = None  # why all files were converted
    nothing_to_do: bool = False
    rejects: str | None = None
    left: str | None = None  # a folder with files that rekord did not write


@check_keywords
def sync(
    source: RowsLike,
    path: PathLike,
    out: PathLike | None = None,
    *,
    map: RowFunction | None = None,
    layout: Layout | None = None,
    transforms: Transform | Sequence[Transform] | None = None,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Dataset:
    """Bring a dataset up to date with the raw data that it was written from, and open it.

    Only files that were added or changed are converted again; records of the others are copied, and those of files
    that are gone are left out. The result is what `rk.write` would write now, byte for byte. The options are those
    that the dataset was written with; functions and layouts cannot be recorded, so `map`, `layout` and `transforms`
    have to be passed again if `rk.write` got them.

    The new dataset replaces the one at `path`, atomically if the system supports it, or is written to `out`. If an
    unchanged file could have other records now, for example because there are new classes, everything is converted.
    """
    given = {"map": map, "layout": layout, "transforms": transforms}
    done = sync_dataset(source, path, out, given, workers=workers, fresh=fresh, progress=progress)
    return open_dataset(done.dataset)


def sync_dataset(
    source: RowsLike,
    path: PathLike,
    out: PathLike | None,
    given: Mapping[str, Any],
    *,
    workers: int | None = None,
    fresh: bool = False,
    progress: bool = True,
    storage: Storage = ROUTED_STORAGE,
) -> SyncResult:
    """Run `sync`, and report the result."""
    folder = as_path("path", path, expected="the path of a dataset's folder", do='"data/flowers"')
    place = folder if out is None else output_folder(out)
    workspace = EditWorkspace(place, storage)
    if out is None:
        workspace.check_replaceable()
    with workspace.lock_work() as work:
        done = work.recover(EditSwap) if out is None else None
        if fresh:
            work.clear()
        old = _read_written_manifest(folder, storage)
        request = _read_request(folder, given, storage)
        options = WriteOptions(**{**request.options, "workers": workers, "fresh": fresh and out is not None})
        conversion = _prepare(source, place, options, request, verbose=progress, storage=storage)
        if conversion.plan.id == old.plan and out is None and conversion.known_rows:
            work.clear()
            counts = ReuseCounts(records=sum(part.records for part in old.splits.values()))
            return SyncResult(dataset=folder, manifest=old, reused=counts, nothing_to_do=done is None)
        reuse, everything = _find_reuse(conversion, old, folder, storage)
        conversion = replace(conversion, reuse=reuse)
        if out is not None:
            made = run_conversion(conversion, progress=progress)
            work.clear()
            return _report(place, made, everything)
        check_owned_files(os.path.realpath(folder), old, storage)
        work.remove_stale(work.data, conversion.plan.id)
        _remove_other_stagings(conversion, work, storage)
        made = run_conversion(replace(conversion, out=work.data), progress=progress)
        before, after = (_digest_manifest(one, storage) for one in (folder, work.data))
        swap = EditSwap(
            old=before,
            new=after,
            request_digest=digest_options("sync", conversion.plan.id),
            counts={},
            linked_shards=0,
            written_shards=sum(len(part.shards.records) for part in made.manifest.splits.values()),
        )
        left = work.swap_checked(swap)
        return replace(_report(folder, made, everything), left=left)


def _report(place: str, made: ConversionResult, everything: str | None) -> SyncResult:
    rejects = made.rejects
    if rejects is not None:
        rejects = os.path.join(place, METADATA_FOLDER, os.path.basename(rejects))
    return SyncResult(
        dataset=place, manifest=made.manifest, reused=made.reused, everything=everything, rejects=rejects
    )


def _digest_manifest(folder: str, storage: Storage) -> str:
    from rekord.verbs.edit.common import read_manifest_digest

    digest = read_manifest_digest(folder, storage)
    assert digest is not None
    return digest


def _remove_other_stagings(conversion: Conversion, work: EditWorkspace, storage: Storage) -> None:
    """Remove what a sync from another state of the raw data, or of the dataset, left unfinished."""
    from rekord.conversion.driver import OutputTarget
    from rekord.storage.transaction import Transaction

    salt = "" if conversion.reuse is None else conversion.reuse.digest
    own = OutputTarget(out=work.data, plan=conversion.plan, salt=salt).staging_id
    if not exists(storage, work.work):
        return
    inside = Transaction(work.data, storage)
    for staging in inside.stagings():
        if staging.folder != inside.staging(own).folder:
            staging.remove()


def _read_written_manifest(folder: str, storage: Storage) -> Manifest:
    """The manifest of a dataset that `write` wrote."""
    storage.stat(folder)  # raises if it does not exist
    if not exists(storage, manifest_path(folder)):
        raise _not_written_error(folder, "no rekord.json")
    manifest = read_manifest(folder, storage)
    if "source" not in manifest.options or manifest.parent is not None:
        raise _not_written_error(
            folder, f"a dataset made by rekord {manifest.options.get('verb', 'or another tool')}"
        )
    return manifest


def _not_written_error(folder: str, found: str) -> RekordError:
    return error(
        "U651",
        "only a dataset that `rekord write` wrote can be synced",
        location=Location(path=folder),
        expected="a folder that rekord write wrote from raw data",
        found=found,
        do=f"rekord write SOURCE {folder[:60]}-new",
    )


def _read_request(folder: str, given: Mapping[str, Any], storage: Storage) -> RestoredRequest:
    path = os.path.join(folder, METADATA_FOLDER, WRITE_REQUEST)
    if not exists(storage, path):
        raise error(
            "X559",
            location=Location(path=folder),
            expected=f"the options that it was written with, in {METADATA_FOLDER}/{WRITE_REQUEST}",
            found="no such file: it was written by an older version",
            do="rekord write SOURCE OUT --fresh, once, with the same options",
        )
    return decode_request(read_bytes(storage, path), path, given)


@listed_once()
def _prepare(
    source: RowsLike, out: str, options: WriteOptions, restored: RestoredRequest, *, verbose: bool, storage: Storage
) -> Conversion:
    """The conversion that `rk.write` or `rekord write` would run now."""
    request = restored.request
    rows, detected, overrides = source, None, None
    if isinstance(source, (str, os.PathLike)) and request.overrides:
        layout = options.layout if isinstance(options.layout, str) else None
        detected = identify_source(source, layout=layout)
        overrides = SourceOverrides(**request.overrides)
        rows = build_source(detected, overrides)
    colours = request.masks.colours if request.masks is not None else None
    masks = MaskOptions()
    if request.masks is not None:
        masks = MaskOptions(
            request.masks.classes,
            request.masks.ignore,  # type: ignore[arg-type]
            None if colours is None else {(red, green, blue): number for red, green, blue, number in colours},
        )
    return prepare_conversion(
        rows,
        out,
        options,
        storage=storage,
        masks=masks,
        own_splits=request.own_splits,
        verbose=verbose,
        class_names=None if request.class_names is None else tuple(request.class_names),
        detected=detected,
        overrides=overrides,
    )


def _find_reuse(
    conversion: Conversion, old: Manifest, folder: str, storage: Storage
) -> tuple[Reuse | None, str | None]:
    """What can be copied from the dataset, or why everything has to be converted."""
    job, plan = conversion.job, conversion.plan
    if old.rekord != VERSION:
        return None, f"the dataset was written by rekord {old.rekord}"
    now = msgspec.json.decode(plan.to_json())
    differs = [name for name, value in now["options"].items() if value != old.options.get(name)]
    if now["schema"] != old.schema:
        differs.insert(0, "schema")
    if differs:
        return None, f"{', '.join(differs)} {'differ' if len(differs) > 1 else 'differs'} from before"
    if not is_partitioned(job.source) or not hasattr(job.source, "part_items"):
        return None, f"rows of {job.source.kind} are read together"
    path = os.path.join(folder, METADATA_FOLDER, SOURCE_FILES)
    before = None
    with suppress(RekordError):
        before = SourceFiles.from_json(read_bytes(storage, path))
    if before is None:
        return None, "the list of its files is missing or damaged"
    if before.context != digest_context(job.source):
        return None, "all files together are read differently than before"
    return Reuse(folder=folder, digest=old.digest, before=before, files=conversion.files), None
