"""`rk.salvage`: every intact record into a new file or dataset, and a list of what is lost."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from rekord.dataset.read import record_files
from rekord.engines.staging import StagedFolder, staged
from rekord.errors import DatasetError, RekordError, error
from rekord.health.salvage_copy import Kept, Ledger, SalvageReport, keep
from rekord.health.salvage_walk import FOREIGN, Gap
from rekord.location import Location
from rekord.storage.files import LOCAL, PathLike, Storage, Writable
from rekord.storage.publish import Publication

_MAGIC = re.compile(r"[*?[]")


def salvage(src: PathLike, out: PathLike) -> SalvageReport:
    """Copy every intact record of `src` to a new place, and report what lies between them.

    A file becomes a file, a folder or a pattern a folder with the same names; a dataset with a manifest becomes a
    dataset again. Frames are copied as they stand, and compressed as they were. Reading goes on behind damage,
    inside of gzip and zlib too where there is a place to go on from. `out` appears when it is complete; `src` is
    never changed. Raises where not one record is intact.
    """
    return salvaged(src, out, SalvageReport())


def salvaged(
    src: PathLike,
    out: PathLike,
    report: SalvageReport,
    *,
    on_gap: Callable[[Gap], None] | None = None,
    storage: Storage = LOCAL,
) -> SalvageReport:
    """The same with a report that can be watched while it grows."""
    source, target = _path("src", src), _path("out", out)
    kind = _kind(source, storage)
    _check_places(source, target, kind, storage)
    report.out = target
    ledger = Ledger(report, on_gap)
    if kind == "folder" or (kind is None and _MAGIC.search(source)):
        _salvage_folder(source, target, ledger, storage, is_folder=kind == "folder")
    else:
        (path,) = record_files(source)
        _salvage_file(path, target, ledger, storage)
    return report


def _salvage_file(path: str, out: str, ledger: Ledger, storage: Storage) -> None:
    publication = Publication(out, storage)
    # Opened before anything is read: a place that cannot be written is told at once.
    staged = publication.open()
    try:
        kept = keep(path, lambda: staged, ledger, storage)
        ledger.lost(kept.lost)
        if kept.file_bytes is None:
            raise _nothing(path, kept)
    except BaseException:
        publication.discard()
        raise
    publication.complete()


def _salvage_folder(source: str, out: str, ledger: Ledger, storage: Storage, *, is_folder: bool) -> None:
    # Brings pyarrow with it, which whoever imports rekord to read does not need.
    from rekord.health.salvage_dataset import DatasetSalvage, usable_manifest

    manifest = usable_manifest(source, ledger, storage) if is_folder else None
    paths = [] if manifest is not None else record_files(source)
    root = source if is_folder else _fixed_part(source)
    with staged(out, storage, by="salvage") as staging:
        if manifest is not None:
            DatasetSalvage(
                source,
                manifest,
                ledger,
                storage,
                target=staging.folder,
                create=staging.create,
                close=staging.close,
            ).run()
        kept = [_keep_below(staging, path, os.path.relpath(path, root), ledger, storage) for path in paths]
        if ledger.report.gaps and not ledger.report.kept:
            # One file may say more than all of them together.
            raise _nothing(kept[0][0], kept[0][1]) if len(kept) == 1 else _nothing(source, None)


def _keep_below(
    staging: StagedFolder, path: str, name: str, ledger: Ledger, storage: Storage
) -> tuple[str, Kept]:
    files: list[Writable] = []

    def create() -> Writable:
        files.append(staging.create(name))
        return files[0]

    kept = keep(path, create, ledger, storage)
    ledger.lost(kept.lost)
    for file in files:
        staging.close(file)
    return path, kept


def _nothing(path: str, kept: Kept | None) -> RekordError:
    failure = None if kept is None else kept.failure
    if failure is not None and failure.code in (*FOREIGN, "F120"):
        return failure
    return error(
        "X540",
        location=Location(path=path),
        expected="a record of which both checksums agree",
        found="none in any file" if failure is None else f"{failure.code}: {failure.what}",
        do="copy it again from its origin; `rekord check` says what is wrong with each file",
    )


def _path(name: str, path: object) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise error(
            "U605",
            f"`{name}` cannot be a {type(path).__name__}",
            expected="one path",
            found=repr(path)[:60],
            do='rk.salvage("data", "data-repaired")',
        )
    return os.fsdecode(path)


def _kind(path: str, storage: Storage) -> str | None:
    try:
        return storage.stat(path).kind
    except DatasetError as failure:
        if failure.code != "X501":
            raise
        return None


def _check_places(source: str, out: str, kind: str | None, storage: Storage) -> None:
    """Refuse a place where something could be overwritten, or read and written at once."""
    ours, theirs = storage.real(source), storage.real(out)
    found = None
    if ours == theirs:
        found = "the same place"
    elif theirs.startswith(os.path.join(ours, "")) and kind == "folder":
        found = "an output inside the input"
    elif ours.startswith(os.path.join(theirs, "")):
        found = "an input inside the output"
    if found is not None:
        raise error(
            "U631",
            location=Location(path=out),
            expected="two places, neither inside the other",
            found=found,
            do="choose another OUT: salvage never works in place",
        )
    taken = _kind(out, storage)
    if taken is not None:
        raise error(
            "U630",
            location=Location(path=out),
            expected="nothing yet",
            found={"file": "a file", "folder": "a folder"}.get(taken, "something that is no file"),
            do="choose another OUT, or move what is there away first",
        )
    if kind not in (None, "folder") and out.endswith(os.sep):
        raise error(
            "U632",
            location=Location(path=out),
            expected="the name of a new file, because IN is a file",
            found="the name of a folder",
            do=f"choose {os.path.join(out, os.path.basename(source))}",
        )


def _fixed_part(pattern: str) -> str:
    """The folder in front of the first part of a pattern that is one."""
    parts = pattern.split("/")
    fixed = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if pattern.startswith("/") else ".")
