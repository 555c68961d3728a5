"""The place that a dataset is to appear at: what is there already, and what that means."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

from rekord.dataset.manifest import Manifest, manifest_path, read_manifest
from rekord.engines.job import Plan
from rekord.engines.journal import Staging, exists, remove_tree, stagings
from rekord.engines.publish import clear_older
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.storage.files import LOCAL, Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """Where a dataset is to appear, and what it is to be."""

    out: str
    plan: Plan
    storage: Storage = LOCAL
    fresh: bool = False
    # Of rows that can be compared only by reading them all: their digest, as the manifest of the dataset has it.
    rows_digest: Callable[[], str] | None = None


def links_followed(aim: Aim) -> Aim:
    """Where the place is a link it stays one: what it leads to is written, and staged beside that."""
    parent, name = os.path.split(os.path.abspath(aim.out))
    real = aim.storage.real(os.path.join(parent, name))
    if real == os.path.join(aim.storage.real(parent), name):
        return aim
    return replace(aim, out=real)


def look_at_out(aim: Aim, staging: Staging) -> Manifest | None:
    """What is at the place already: nothing, the dataset itself, or a reason to stop."""
    storage, out = aim.storage, aim.out
    if not exists(storage, out):
        return None
    if storage.stat(out).kind != "folder":
        raise _taken(out, "a file", "choose another place")
    if not storage.list(out) or aim.fresh:
        if not storage.list(out) or exists(storage, manifest_path(out)):
            return None
        raise _taken(out, "a folder that no rekord manifest describes", "choose another place")
    if not exists(storage, manifest_path(out)):
        raise _taken(out, "a folder with other files", "choose another place, or an empty folder")
    manifest = read_manifest(out, storage)
    if manifest.plan != aim.plan.id:
        source = manifest.source.fingerprint if aim.rows_digest is None else aim.plan.source
        theirs = {"options": manifest.options, "schema": manifest.schema, "format": manifest.format}
        differs = aim.plan.differences({**theirs, "source": source})
        many = len(differs) > 1 or differs[0].startswith("the files")
        raise _taken(
            out,
            f"a dataset of another plan: {', '.join(differs)} {'differ' if many else 'differs'}",
            "--fresh (fresh=True) to write it anew, or another place",
        )
    if aim.rows_digest is not None and aim.rows_digest() != manifest.source.fingerprint:
        raise _taken(
            out,
            "a dataset with the same options from other rows",
            "--fresh (fresh=True) to write it anew, or another place",
        )
    if exists(storage, staging.folder):
        staging.remove()
    clear_older(out, storage)
    return manifest


def _taken(out: str, found: str, do: str) -> RekordError:
    return error(
        "U618",
        location=Location(path=out),
        expected="nothing yet, or what the same command wrote",
        found=found,
        do=do,
    )


def look_at_stagings(aim: Aim, own: Staging) -> None:
    """Unfinished conversions to the same place: put away when that is asked for, else a reason to stop."""
    for other in stagings(aim.out, aim.storage):
        if aim.fresh or (other.folder != own.folder and not other.has_finished_tasks()):
            other.remove()  # as asked, or because there is nothing in it to go on from
        elif other.folder != own.folder:
            differs = aim.plan.differences(other.plan())
            raise error(
                "U619",
                location=Location(path=aim.out),
                expected="the same source, schema and options as the unfinished conversion had",
                found=f"a difference in {', '.join(differs)}"[:120],
                do="run it with what it had to continue, or with --fresh (fresh=True) to start over",
            )
    if aim.fresh and own.spills and exists(aim.storage, own.spills):
        remove_tree(aim.storage, own.spills)
