"""The temporary folder of sorted series: arrays, Arrow files and bad rows. It is ours alone."""

from __future__ import annotations

import hashlib
import os
import pickle
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rekord.storage.local import LOCAL
from rekord.storage.publication import remove_tree

KEYS = ("group", "time", "path", "position")
EXTRA_KEYS = ("line", "bad")
BATCH_ROWS = 8192
MERGE_ROWS = 1 << 16


def remove_abandoned(base: str, prefix: str) -> None:
    """Remove the folders of processes that were killed."""
    for name in os.listdir(base):
        process = name.removeprefix(prefix).partition("-")[0]
        if not name.startswith(prefix) or not process.isdecimal() or len(process) > 9:
            continue
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            remove_tree(LOCAL, os.path.join(base, name))
        except OSError:
            pass  # of another user


class TemporaryFolder:
    """A folder that is removed with the last source that uses it, in the process that created it."""

    def __init__(self, path: str, *, is_owned: bool = False) -> None:
        self.path = path
        self._finalizer = weakref.finalize(self, _remove_folder, path, os.getpid()) if is_owned else None

    def remove(self) -> None:
        """Remove it now."""
        if self._finalizer is not None:
            self._finalizer()

    def __reduce__(self) -> tuple[Any, ...]:
        return TemporaryFolder, (self.path,)


def _remove_folder(folder: str, process: int) -> None:
    if os.getpid() == process:  # not in a forked one
        remove_tree(LOCAL, folder)


class PickleFile:
    """A file of objects, created when there is one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = None

    def __enter__(self) -> PickleFile:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, value: Any) -> None:
        if self._file is None:
            self._file = open(self._path, "wb")  # noqa: SIM115
        pickle.dump(value, self._file, protocol=5)


def read_pickles(path: str) -> Iterator[Any]:
    with open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except EOFError:
                return


def new_arrow_file(path: str, schema: pa.Schema) -> Any:
    return pa.ipc.new_file(path, schema)


def save_array(path: str, values: Any) -> None:
    with open(path, "wb") as file:
        np.save(file, values, allow_pickle=False)


def load_array(path: str, dtype: Any = None) -> Any:
    """An array on disk; without a dtype, one that says what it is."""
    if not os.path.getsize(path):
        return np.zeros(0, dtype)
    return np.load(path, mmap_mode="r", allow_pickle=False) if dtype is None else np.memmap(path, dtype, "r")


def load_time_dtype(folder: str) -> Any:
    return np.dtype(_read_text(folder, "time.dtype"))


def _read_text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read()


def digest_files(folder: str, names: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            while data := file.read(1 << 20):
                digest.update(data)
    return digest.hexdigest()
