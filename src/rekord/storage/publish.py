"""Publishing one file: staged beside its target, and nothing under the final name until it is complete."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rekord.errors import DatasetError, RekordError, error
from rekord.location import Location
from rekord.storage.local import LOCAL, Storage, Writable
from rekord.storage.remote import refuse_to_write

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

STAGED_PREFIX = ".rekord-staged-"
"""How a staged file's name begins: hidden, and of one length whatever the target's name."""


def publish(path: str | os.PathLike[str], storage: Storage = LOCAL) -> Publication:
    """Stage a file that appears at `path`, complete and on disk, when the `with` block ends well.

    ```python
    with publish("train.tfrecord") as staged:
        staged.write(frames)
    ```
    When the block raises, nothing appears and what was at `path` stays as it was.
    """
    return Publication(os.fsdecode(path), storage)


class Publication:
    """A file on its way to its place: `open`, then `complete` or `discard`; a `with` block does both."""

    def __init__(self, path: str, storage: Storage = LOCAL) -> None:
        refuse_to_write(path)
        self.path = path
        self._storage = storage
        self._staged: _Staged | None = None
        self._target = path
        self._staged_path = ""

    def open(self) -> Writable:
        """Create the staged file. It is written through unbuffered: gather small pieces before writing."""
        # A link stays a link: the file that it leads to is the one replaced.
        self._target = self._storage.real(self.path)
        self._refuse_what_is_no_file()
        self._staged_path = os.path.join(self._folder, f"{STAGED_PREFIX}{secrets.token_hex(8)}")
        with _speaking_of(self.path):
            try:
                self._staged = _Staged(self.path, self._storage.create(self._staged_path))
            except RekordError:
                raise  # nothing was created
            except BaseException:
                self.discard()  # interrupted: it may have been
                raise
        return self._staged

    def complete(self) -> None:
        """Put the staged file in its place; when this returns it stays there, power cut or not."""
        assert self._staged is not None, "complete() before open()"
        with _speaking_of(self.path):
            try:
                # The bytes before the name: a name that survives a power cut without them is a half file.
                self._staged.fsync()
                self._staged.close()
                self._storage.rename(self._staged_path, self._target)
            except BaseException:
                self.discard()
                raise
            self._staged = None
            self._storage.sync_folder(self._folder)

    def discard(self) -> None:
        """Remove the staged file; the target stays as it was."""
        staged, self._staged = self._staged, None
        # What led here is the error to tell of, not that the cleaning failed too.
        with suppress(RekordError):
            if staged is not None:
                staged.close()
        with suppress(RekordError):
            self._storage.remove(self._staged_path)

    def __enter__(self) -> Writable:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.complete()
        else:
            self.discard()

    @property
    def _folder(self) -> str:
        return os.path.dirname(self._target) or "."

    def _refuse_what_is_no_file(self) -> None:
        # A rename would put a file in the place of a device: with enough rights, of /dev/null itself.
        try:
            kind = self._storage.stat(self._target).kind
        except DatasetError:
            return  # nothing there, or nothing that can be seen: creating the staged file will tell
        if kind != "file":
            raise error(
                "X504",
                location=Location(path=self.path),
                expected="a file, or nothing yet",
                found="a folder" if kind == "folder" else "a pipe, a socket or a device",
                do="choose another name",
            )


class _Staged:
    """The staged file; its errors name the target, because the staged name means nothing to anyone."""

    def __init__(self, path: str, file: Writable) -> None:
        self.path = path
        self._file = file

    def write(self, data: Buffer, /) -> int:
        try:
            return self._file.write(data)
        except RekordError as failure:
            failure.location = replace(failure.location, path=self.path)
            raise

    def fsync(self) -> None:
        with _speaking_of(self.path):
            self._file.fsync()

    def close(self) -> None:
        with _speaking_of(self.path):
            self._file.close()


@contextmanager
def _speaking_of(path: str) -> Iterator[None]:
    try:
        yield
    except RekordError as failure:
        failure.location = replace(failure.location, path=path)
        raise
