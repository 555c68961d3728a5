"""The place that a dataset is to appear at: what is there already, and what that means."""

from __future__ import annotations

import os
from dataclasses import replace

from rekord.dataset.manifest import Manifest, manifest_path, read_manifest
from rekord.engines.conversion import Conversion, Outcome
from rekord.engines.journal import Staging, exists, remove_tree, stagings
from rekord.engines.publish import clear_older, rows_digest
from rekord.engines.serial import serial_digests
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.sources.base import is_parted


def links_followed(conversion: Conversion) -> Conversion:
    """Where the place is a link it stays one: what it leads to is written, and staged beside that."""
    parent, name = os.path.split(os.path.abspath(conversion.out))
    real = conversion.storage.real(os.path.join(parent, name))
    if real == os.path.join(conversion.storage.real(parent), name):
        return conversion
    return replace(conversion, out=real)


def look_at_out(conversion: Conversion, staging: Staging) -> Outcome | None:
    """What is at the place already: nothing, the dataset itself, or a reason to stop."""
    storage, out = conversion.storage, conversion.out
    if not exists(storage, out):
        return None
    if storage.stat(out).kind != "folder":
        raise _taken(out, "a file", "choose another place")
    if not storage.list(out) or conversion.fresh:
        if not storage.list(out) or exists(storage, manifest_path(out)):
            return None
        raise _taken(out, "a folder that no rekord manifest describes", "choose another place")
    if not exists(storage, manifest_path(out)):
        raise _taken(out, "a folder with other files", "choose another place, or an empty folder")
    manifest = read_manifest(out, storage)
    if manifest.plan != conversion.plan.id:
        theirs = {"options": manifest.options, "schema": manifest.schema, "format": manifest.format}
        differs = conversion.plan.differences({**theirs, "source": _fingerprint(manifest, conversion)})
        many = len(differs) > 1 or differs[0].startswith("the files")
        raise _taken(
            out,
            f"a dataset of another plan: {', '.join(differs)} {'differ' if many else 'differs'}",
            "--fresh (fresh=True) to write it anew, or another place",
        )
    if not is_parted(conversion.job.source):
        _same_rows(conversion, manifest)
    if exists(storage, staging.folder):
        staging.remove()
    clear_older(out, storage)
    return Outcome(manifest=manifest, rejects=None, remarks=None, resumed_shards=0, nothing_to_do=True)


def _fingerprint(manifest: Manifest, conversion: Conversion) -> str:
    parted = is_parted(conversion.job.source)
    return manifest.source.fingerprint if parted else conversion.plan.source


def _same_rows(conversion: Conversion, manifest: Manifest) -> None:
    """A source without files can be compared only by reading it."""
    if rows_digest(serial_digests(conversion.job)) != manifest.source.fingerprint:
        raise _taken(
            conversion.out,
            "a dataset with the same options from other rows",
            "--fresh (fresh=True) to write it anew, or another place",
        )


def _taken(out: str, found: str, do: str) -> RekordError:
    return error(
        "U618",
        location=Location(path=out),
        expected="nothing yet, or what the same command wrote",
        found=found,
        do=do,
    )


def look_at_stagings(conversion: Conversion, own: Staging) -> None:
    """Unfinished conversions to the same place: put away when that is asked for, else a reason to stop."""
    for other in stagings(conversion.out, conversion.storage):
        if conversion.fresh or (other.folder != own.folder and not other.has_finished_tasks()):
            other.remove()  # as asked, or because there is nothing in it to go on from
        elif other.folder != own.folder:
            differs = conversion.plan.differences(other.plan())
            raise error(
                "U619",
                location=Location(path=conversion.out),
                expected="the same source, schema and options as the unfinished conversion had",
                found=f"a difference in {', '.join(differs)}"[:120],
                do="run it with what it had to continue, or with --fresh (fresh=True) to start over",
            )
    if conversion.fresh and own.spills and exists(conversion.storage, own.spills):
        remove_tree(conversion.storage, own.spills)
