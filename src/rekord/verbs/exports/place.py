"""Where an export goes: staged in a hidden folder beside it, and visible only when it is complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rekord.engines.journal import Lock, exists, remove_tree
from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.files import Kind, Storage, Writable
from rekord.storage.remote import refuse_to_write

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WRITE_BYTES = 1 << 20


class Output:
    """One file of an export. Small pieces are gathered; pyarrow takes it for a Python file."""

    def __init__(self, file: Writable) -> None:
        self._file = file
        self._gathered = bytearray()
        self.n_bytes = 0
        self.closed = False

    def write(self, data: Buffer) -> int:
        """Take some bytes, which may be used again after that."""
        view = memoryview(data).cast("B")
        self.n_bytes += len(view)
        if len(view) >= _WRITE_BYTES:
            self._put()
            self._file.write(view)
        else:
            self._gathered += view
            if len(self._gathered) >= _WRITE_BYTES:
                self._put()
        return len(view)

    def tell(self) -> int:
        return self.n_bytes

    def flush(self) -> None:
        """Nothing: what counts is that `finish` brings everything to the disk."""

    def close(self) -> None:
        """Nothing: who writes into this does not decide when it is complete."""

    def finish(self) -> None:
        """Return when everything is on the disk, and the file is closed."""
        self._put()
        self._file.fsync()
        self.closed = True
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        if not self.closed:
            self.closed = True
            with suppress(RekordError):
                self._file.close()

    def _put(self) -> None:
        if self._gathered:
            self._file.write(self._gathered)
            self._gathered = bytearray()


class Staging:
    """The files of an export on their way to their place."""

    def __init__(self, folder: str, name: str, storage: Storage) -> None:
        self.folder = folder
        self.name = name  # of the file that was asked for, where it is one
        self.files = 0
        self.n_bytes = 0
        self.names: list[str] = []  # at the top of the folder
        self._storage = storage
        self._folders = {folder}
        self._open: list[Output] = []

    def create(self, name: str) -> Output:
        """A new file below the folder, by a name that is parted by "/"."""
        path = os.path.join(self.folder, *name.split("/"))
        folder = os.path.dirname(path)
        if folder not in self._folders:
            self._storage.make_folder(folder)
        while folder not in self._folders:
            self._folders.add(folder)
            folder = os.path.dirname(folder)
        output = Output(self._storage.create(path))
        self._open.append(output)
        if "/" not in name:
            self.names.append(name)
        return output

    def finish(self, output: Output) -> None:
        """A file is complete."""
        output.finish()
        self._open.remove(output)
        self.files += 1
        self.n_bytes += output.n_bytes

    def put(self, name: str, content: bytes) -> None:
        """A whole small file."""
        output = self.create(name)
        output.write(content)
        self.finish(output)

    def sync(self) -> None:
        for folder in sorted(self._folders, reverse=True):
            self._storage.sync_folder(folder)

    def discard(self) -> None:
        # What led here is the error to tell of, not that the cleaning failed too.
        for output in self._open:
            output.abandon()
        with suppress(RekordError):
            remove_tree(self._storage, self.folder)


@contextmanager
def staged(out: str, storage: Storage, *, as_folder: bool, overwrite: bool) -> Iterator[Staging]:
    """Files that appear when the block ends well, and not at all when it raises.

    As a folder they appear together at `out`, by one rename. Else each file goes beside `out` under its own name,
    one right after the other, when all of them are on the disk.
    """
    target = storage.real(out)
    parent, name = os.path.split(target)
    made = _missing_folder(parent, storage)
    storage.make_folder(parent)
    folder = os.path.join(parent, f".{name}.rekord-export")
    staging = Staging(folder, name, storage)
    try:
        with Lock(target):
            try:
                if exists(storage, folder):
                    remove_tree(storage, folder)  # of a run that was killed: nobody else holds the lock
                storage.make_folder(folder)
                yield staging
                staging.sync()
                if as_folder:
                    storage.rename(folder, target)
                else:
                    _appear(staging, parent, storage, overwrite=overwrite)
            except BaseException as failure:
                staging.discard()
                if isinstance(failure, RekordError) and (failure.location.path or "").startswith(folder):
                    # The name of the staging folder means nothing to anyone.
                    rest = str(failure.location.path)[len(folder) :]
                    shown = out + rest if as_folder else os.path.join(os.path.dirname(out), rest.lstrip("/"))
                    failure.location = replace(failure.location, path=shown if rest else out)
                raise
            storage.sync_folder(parent)
    except BaseException:
        while made is not None and len(parent) >= len(made):
            with suppress(RekordError):
                storage.remove_folder(parent)
            parent = os.path.dirname(parent)
        raise


def _appear(staging: Staging, parent: str, storage: Storage, *, overwrite: bool) -> None:
    there: list[str] = []
    try:
        for name in staging.names:
            storage.rename(os.path.join(staging.folder, name), os.path.join(parent, name))
            there.append(name)
    except BaseException:
        for name in [] if overwrite else there:
            with suppress(RekordError):
                storage.remove(os.path.join(parent, name))
        raise
    with suppress(RekordError):
        storage.remove_folder(staging.folder)  # empty now; the export is there, whatever becomes of this


def _missing_folder(folder: str, storage: Storage) -> str | None:
    """The uppermost folder that will have to be made."""
    missing = None
    while folder and not exists(storage, folder):
        missing, parent = folder, os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    return missing


def check_place(
    out: str, inputs: Sequence[str], storage: Storage, *, as_folder: bool, sharded: bool, overwrite: bool
) -> None:
    """Refuse a place where something would be lost, or read and written at once."""
    refuse_to_write(out)
    if not out.strip("/.") or (not as_folder and out.endswith(os.sep)):
        raise error(
            "U605",
            "`out` cannot be this path",
            location=Location(path=out or None),
            expected="the path of a new folder" if as_folder else "the path of a file",
            found="a folder" if out else "an empty path",
            do="rekord export PATH OUT.parquet",
        )
    target = storage.real(out)
    for path in inputs:
        source = os.path.realpath(path)
        if source == target or source.startswith(os.path.join(target, "")):
            raise error(
                "U671",
                location=Location(path=out),
                expected="an OUT apart from the dataset",
                found="a file of the dataset" if source == target else "a folder with the dataset in it",
                do="choose another OUT",
            )
    taken = _kind(out, storage)
    if sharded:
        pattern = re.compile(re.escape(os.path.basename(out)[: -len(".tar")]) + r"-\d{6,}\.tar")
        folder = os.path.dirname(target)
        names = [one.name for one in storage.list(folder)] if exists(storage, folder) else []
        before = next((name for name in names if pattern.fullmatch(name)), None)
        if before is not None:
            # Of fewer new shards than old ones, some old ones would stay among them.
            raise _taken(os.path.join(os.path.dirname(out), before), "file", "move these shards away first")
    elif taken is not None and not (overwrite and taken == "file" and not as_folder):
        may = taken == "file" and not as_folder
        first = "overwrite=True (--overwrite)" if may else "move what is there away"
        raise _taken(out, taken, f"{first}, or choose another OUT")


def _kind(path: str, storage: Storage) -> Kind | None:
    try:
        return storage.stat(path).kind
    except DatasetError as failure:
        if failure.code != "X501":
            raise
        return None


def _taken(path: str, kind: str, do: str) -> RekordError:
    return error(
        "U670",
        location=Location(path=path),
        expected="nothing yet",
        found={"file": "a file", "folder": "a folder"}.get(kind, "something that is no file"),
        do=do,
    )
