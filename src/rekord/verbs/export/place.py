"""Where an export goes: staged in a hidden folder beside it, and visible only when it is complete."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from rekord.conversion.staging import StagedFolder, exists
from rekord.conversion.staging import staged as staged_folder
from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.local import Kind, Storage, Writable
from rekord.storage.remote import refuse_to_write

if TYPE_CHECKING:
    from typing_extensions import Buffer

_WRITE_BYTES = 1 << 20


class Output:
    """One file of an export. Small pieces are gathered; pyarrow takes it for a Python file."""

    closed = False  # who writes into this does not decide when it is complete

    def __init__(self, file: Writable) -> None:
        self.file = file
        self.n_bytes = 0
        self._gathered = bytearray()

    def write(self, data: Buffer) -> int:
        """Take some bytes, which may be used again after that."""
        view = memoryview(data).cast("B")
        self.n_bytes += len(view)
        if len(view) >= _WRITE_BYTES:
            self.put()
            self.file.write(view)
        else:
            self._gathered += view
            if len(self._gathered) >= _WRITE_BYTES:
                self.put()
        return len(view)

    def tell(self) -> int:
        return self.n_bytes

    def flush(self) -> None:
        """Nothing: what counts is that everything is on the disk in the end."""

    def close(self) -> None:
        """Nothing, as said."""

    def put(self) -> None:
        """Hand what is gathered to the file."""
        if self._gathered:
            self.file.write(self._gathered)
            self._gathered = bytearray()


class Staging:
    """The files of an export on their way to their place."""

    def __init__(self, folder: StagedFolder, name: str) -> None:
        self.name = name  # of the file that was asked for, where it is one
        self.files = 0
        self.n_bytes = 0
        self._folder = folder

    def create(self, name: str) -> Output:
        """A new file, by a name that is parted by "/"."""
        return Output(self._folder.create(name))

    def finish(self, output: Output) -> None:
        """A file is complete."""
        output.put()
        self._folder.close(output.file)
        self._count(output.n_bytes)

    def put(self, name: str, content: bytes) -> None:
        """A whole small file."""
        file = self._folder.create(name)
        file.write(content)
        self._folder.close_later(file)
        self._count(len(content))

    def _count(self, n_bytes: int) -> None:
        self.files += 1
        self.n_bytes += n_bytes


@contextmanager
def staged(out: str, storage: Storage, *, as_folder: bool, overwrite: bool) -> Iterator[Staging]:
    """Files that appear when the block ends well, and not at all when it raises.

    As a folder they appear together at `out`, by one rename. Else each file goes beside `out` under its own name,
    one right after the other, when all of them are on the disk.
    """
    appear = None if as_folder else partial(_appear, overwrite=overwrite)
    with staged_folder(out, storage, by="export", appear=appear) as folder:
        yield Staging(folder, os.path.basename(storage.real(out)))


def _appear(staging: StagedFolder, parent: str, *, overwrite: bool) -> None:
    storage = staging.storage
    there: list[str] = []
    try:
        for entry in storage.list(staging.folder):
            target = os.path.join(parent, entry.name)
            storage.rename(os.path.join(staging.folder, entry.name), target)
            there.append(target)
    except BaseException:
        for target in [] if overwrite else there:
            with suppress(RekordError):
                storage.remove(target)
        raise
    with suppress(RekordError):
        storage.remove_folder(staging.folder)  # empty now; the export is there, whatever becomes of this


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
                "U631",
                "export would replace the dataset that it reads",
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
        "U618",
        location=Location(path=path),
        expected="nothing yet",
        found={"file": "a file", "folder": "a folder"}.get(kind, "something that is no file"),
        do=do,
    )
