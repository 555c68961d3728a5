"""Replacing a folder by another one, in one atomic step, or in two with a journal that a later run can follow."""

from __future__ import annotations

import os.path
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rekord.errors import error
from rekord.location import Location
from rekord.storage.local import PathLike, Storage
from rekord.storage.publication import exists, read_bytes, remove_tree, rename_folder
from rekord.storage.router import is_remote
from rekord.storage.transaction import Staging, Transaction

if TYPE_CHECKING:
    from typing import Self

_UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError)

_Swap = TypeVar("_Swap", bound="SwapRecord")


class SwapRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A swap of an old folder for a new one, by the digests of their contents. Subclasses add fields."""

    old: str
    new: str


class Replacement(Transaction):
    """A folder that replaces another one: in one atomic step, or in two with a journal.

    `digest` identifies the contents of a folder, None if they are unknown. `remove` removes such a folder, and
    returns it if it contains something that is not ours.
    """

    def __init__(
        self,
        path: PathLike,
        storage: Storage,
        *,
        digest: Callable[[str], str | None],
        remove: Callable[[str], str | None],
    ) -> None:
        super().__init__(path, storage)
        self._digest = digest
        self._remove = remove
        self._journal = self.hidden("-swap")
        self.work = self.hidden("-edit")
        self.data = os.path.join(self.work, "data")
        self._old = os.path.join(self.work, "old")

    @contextmanager
    def lock_work(self) -> Iterator[Self]:
        """Hold the lock of `work`. The target itself is locked only while it changes."""
        self.storage.make_folder(self.parent)
        with self.lock("-edit.lock"):
            yield self

    def swap(self, swap: SwapRecord, check: Callable[[], None]) -> str | None:
        """Replace the target with `data`, if it is still `swap.old` and `check` does not raise.

        Returns a folder that contains something that is not ours, if any.
        """
        with self.lock():
            if self._digest(self.target) != swap.old:
                raise error(
                    "X570",
                    location=Location(path=self.shown),
                    expected="the dataset that this command read",
                    found="another dataset of this name",
                    do="run the same command again",
                )
            check()
            self._write_journal(swap)
            if self.storage.exchange(self.data, self.target):
                self.storage.sync_folder(self.parent)
            else:
                rename_folder(self.storage, self.data, self.target, aside=self._old)
            self.storage.sync_folder(self.work)
            return self._remove_old()

    def recover(self, kind: type[_Swap]) -> _Swap | None:
        """Finish or undo a swap that an earlier run left unfinished; returns it if it was done and not reported."""
        if not exists(self.storage, self._journal):
            return None
        try:
            swap = msgspec.json.decode(read_bytes(self.storage, self._journal), type=kind)
        except _UNREADABLE:
            # A power loss truncated it, before anything was renamed.
            self.storage.remove(self._journal)
            return None
        with self.lock():
            return self._recover(swap)

    def _recover(self, swap: _Swap) -> _Swap | None:
        if not exists(self.storage, self.target):
            # It died between two renames: the new folder gets the name, or the old one gets it back.
            for folder, digest in ((self.data, swap.new), (self._old, swap.old)):
                if self._digest(folder) == digest:
                    rename_folder(self.storage, folder, self.target, aside=None)
                    break
        if self._digest(self.target) == swap.new:
            self._remove_old()
            return swap
        self.storage.remove(self._journal)
        return None

    def remove_data(self, folder: str) -> str | None:
        """Remove a folder in `work`. What is not ours stays, under a hidden name next to the target."""
        if is_remote(folder):
            remove_tree(self.storage, folder)  # nothing is exchanged there, so that nothing of others gets here
            return None
        if not exists(self.storage, folder) or self._remove(folder) is None:
            return None
        aside = self.hidden(f"-old-{secrets.token_hex(4)}")
        self.storage.rename(folder, aside)
        return aside

    def clear(self) -> str | None:
        """Remove `work` and everything in it."""
        left = [self.remove_data(folder) for folder in (self.data, self._old)]
        remove_tree(self.storage, self.work)
        return left[1] or left[0]

    def _remove_old(self) -> str | None:
        left = self.clear()
        self.storage.remove(self._journal)
        return left

    def _write_journal(self, swap: SwapRecord) -> None:
        """Write the journal and sync it. It is prepared in `work`, which is removed with its contents."""
        passing = os.path.join(self.work, "swap")
        Staging(self.work, self.storage).write(passing, msgspec.json.encode(swap), sync=True)
        self.storage.rename(passing, self._journal)
        self.storage.sync_folder(self.parent)
