"""Where a dataset is edited: a hidden folder beside it, and the step that puts a new dataset in the place of the old.

    .NAME.rekord-edit/   beside the dataset, used by one process at a time
      rows/              rows that are to be appended, as a dataset of their own
      data/              the new dataset, complete; once the two have changed places, the old one
      old/               the old one, where two names cannot be exchanged in one step
    .NAME.rekord-swap    which datasets change places, and by which command

The last is written before they do and removed when nothing else is left, so that the next run knows how far this one
came: an edit that is done is not done again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from typing import Any

import msgspec

from rekord.dataset.foreign_index import TEXT_SUFFIX, index_folder, index_name
from rekord.dataset.manifest import FOLDER, MANIFEST, Manifest, manifest_path, read_manifest
from rekord.engines.journal import Lock, Staging, exists, open_staging, read_bytes, remove_tree, stagings
from rekord.engines.publish import REJECTS, REMARKS, remove_dataset
from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.files import Storage


class Swap(msgspec.Struct, frozen=True, kw_only=True):
    """A new dataset in the place of an old one, by the digests of their manifests."""

    old: str
    new: str
    said: str  # the digest of what was asked for
    counts: dict[str, int]
    linked_shards: int
    written_shards: int


class Workplace:
    """The hidden folder of one dataset, held while a `with` block lasts. `shown` is its name as it was given."""

    def __init__(self, place: str, shown: str, storage: Storage) -> None:
        self.place = os.path.realpath(place)
        self.storage = storage
        self._shown = shown
        self._parent, self._name = os.path.split(self.place)
        self.folder = os.path.join(self._parent, f".{self._name}.rekord-edit")
        self._lock = Lock(self.folder)
        self._lock.out = shown  # it is this that somebody else writes to

    def __enter__(self) -> Workplace:
        self.storage.make_folder(self._parent)
        self._lock.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._lock.__exit__(*failure)

    @property
    def rows(self) -> str:
        return os.path.join(self.folder, "rows")

    @property
    def data(self) -> str:
        return os.path.join(self.folder, "data")

    @property
    def _old(self) -> str:
        return os.path.join(self.folder, "old")

    @property
    def _journal(self) -> str:
        return os.path.join(self._parent, f".{self._name}.rekord-swap")

    def recover(self) -> Swap | None:
        """Put right what an earlier run left half done. A swap that was done and not told of is given back."""
        swap = self._read()
        if swap is None:
            return None
        with Lock(self.place):
            return self._recovered(swap)

    def _recovered(self, swap: Swap) -> Swap | None:
        if not exists(self.storage, self.place):
            # It died between two renames: what it had made takes the place, or what was there goes back.
            for folder, digest in ((self.data, swap.new), (self._old, swap.old)):
                if self._digest(folder) == digest:
                    self.storage.rename(folder, self.place)
                    self.storage.sync_folder(self._parent)
                    break
        if self._digest(self.place) == swap.new:
            self._put_away()
            return swap
        self.storage.remove(self._journal)
        return None

    def tidy(self, folder: str, plan_id: str) -> None:
        """Keep of `rows` or `data` what belongs to this plan: whatever else is there was given up."""
        if not exists(self.storage, self.folder):
            return
        if exists(self.storage, folder) and self._plan(folder) != plan_id:
            self._remove(folder)
        own = open_staging(folder, plan_id, self.storage, spills=None).folder
        for staging in stagings(folder, self.storage):
            if staging.folder != own:
                staging.remove()

    def clear(self) -> None:
        """Remove all of it. Old datasets are no part of it: those are removed by what their manifests list."""
        if exists(self.storage, self.folder):
            for folder in (self.data, self._old):
                if exists(self.storage, folder):
                    self._remove(folder)
            remove_tree(self.storage, self.folder)

    def swap(self, swap: Swap) -> str | None:
        """Put the dataset in `data` in the place of the old one; a folder in which files of others were left."""
        storage = self.storage
        with Lock(self.place):
            if self._digest(self.place) != swap.old:
                raise error(
                    "X570",
                    location=Location(path=self._shown),
                    expected="the dataset that this command read",
                    found="another one by its name",
                    do="run the same command again",
                )
            check_own(self.place, read_manifest(self.place, storage), storage)
            self._write(msgspec.json.encode(swap))
            if not storage.exchange(self.data, self.place):
                storage.rename(self.place, self._old)
                try:
                    storage.rename(self.data, self.place)
                except RekordError:
                    storage.rename(self._old, self.place)
                    raise
            storage.sync_folder(self._parent)
            storage.sync_folder(self.folder)
            return self._put_away()

    def _put_away(self) -> str | None:
        """Remove the old dataset, then the whole folder, and at last what was known of them."""
        left = None
        for folder in (self.data, self._old):
            if exists(self.storage, folder):
                left = self._remove(folder) or left
        if exists(self.storage, self.folder):
            remove_tree(self.storage, self.folder)
        self.storage.remove(self._journal)
        return left

    def _remove(self, folder: str) -> str | None:
        """Remove a dataset here. Files of others that came into it stay, under a hidden name beside the dataset."""
        if remove_dataset(self.storage, folder) is None:
            return None
        aside = os.path.join(self._parent, f".{self._name}.rekord-old-{secrets.token_hex(4)}")
        self.storage.rename(folder, aside)
        return aside

    def _write(self, data: bytes) -> None:
        """The journal, on the disk itself. It is put together in the folder, which is cleared."""
        passing = os.path.join(self.folder, "swap")
        Staging(self.folder, self.storage).write(passing, data, sync=True)
        self.storage.rename(passing, self._journal)
        self.storage.sync_folder(self._parent)

    def _read(self) -> Swap | None:
        if not exists(self.storage, self._journal):
            return None
        try:
            return msgspec.json.decode(read_bytes(self.storage, self._journal), type=Swap)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            # It was cut off by a loss of power, before anything changed places.
            self.storage.remove(self._journal)
            return None

    def _digest(self, folder: str) -> str | None:
        return manifest_digest(folder, self.storage)

    def _plan(self, folder: str) -> str | None:
        with suppress(DatasetError):
            return read_manifest(folder, self.storage).plan
        return None


def manifest_digest(folder: str, storage: Storage) -> str | None:
    """The digest of the manifest of a dataset; None where there is none."""
    path = manifest_path(folder)
    if not exists(storage, path):
        return None
    return hashlib.sha256(read_bytes(storage, path)).hexdigest()


def check_own(folder: str, manifest: Manifest, storage: Storage) -> None:
    """Refuse to put a folder away in which there is anything that rekord did not write."""
    shards = [name for split, part in manifest.splits.items() for name in part.names(split)]
    ours = os.path.join(folder, FOLDER)
    known = {
        folder: {MANIFEST, FOLDER, *shards, *manifest.companions},
        ours: {"index", "blocks", REJECTS, REMARKS},
        os.path.join(ours, "index"): {f"{name}.arrow" for name in shards},
        os.path.join(ours, "blocks"): {f"{name}.arrow" for name in manifest.splits},
    }
    for tool in TEXT_SUFFIX:  # what `rekord index` wrote is of the old shards, and goes with them
        inside = index_folder(folder, tool)
        known[folder].add(os.path.basename(inside))
        known[inside] = {index_name(name, tool) for name in shards}
    others = [
        os.path.join(inside, entry.name)
        for inside, names in known.items()
        if exists(storage, inside)
        for entry in storage.list(inside)
        if entry.name not in names
    ]
    if others:
        raise error(
            "U627",
            location=Location(path=others[0]),
            expected="nothing but what the manifest lists",
            found=f"{len(others):,} other {'file or folder' if len(others) == 1 else 'files or folders'}",
            do="move what is not the dataset's elsewhere, or name OUT instead of --replace (replace=True)",
        )
