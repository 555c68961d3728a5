"""What not every system has: the other ways do the same. Windows is simulated by taking away what it has not."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rekord.errors import DatasetError
from rekord.storage import portability
from rekord.storage.local import LOCAL

MISSING = ("pread", "preadv", "readv", "posix_fadvise", "sched_getaffinity", "sysconf", "getuid", "fork")
FLAGS = ("O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC")
MODULES = ("fcntl", "resource", "termios", "pwd", "grp")
PACKAGE = Path(portability.__file__).parents[1]

# Python and what rekord depends on are loaded before, as on a system of their own; then it is Windows.
WINDOWS = f"""
import ctypes, errno, fcntl, os, pkgutil, sys, types
import cloudpickle, concurrent.futures, hashlib, loky, msgspec, numpy, PIL.Image, pyarrow, pyarrow.dataset, shlex
import shutil, subprocess, tempfile, typer
import rich.console, rich.progress, rich.table
flock, exclusive = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB


def locking(descriptor, mode, n_bytes):
    assert (mode, n_bytes) == (2, 1)
    try:
        flock(descriptor, exclusive)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


def closed_only(real):
    # Windows renames and removes no file that is open.
    def checked(path, *more, **options):
        if isinstance(path, (str, bytes, os.PathLike)):
            wanted = os.path.realpath(os.fsdecode(path))
            for number in os.listdir("/proc/self/fd"):
                if os.path.exists(f"/proc/self/fd/{{number}}") and os.readlink(f"/proc/self/fd/{{number}}") == wanted:
                    raise PermissionError(errno.EACCES, "in use", wanted)
            if real is os_replace and os.path.isdir(more[0]):
                raise PermissionError(errno.EACCES, "Access is denied", more[0])
        return real(path, *more, **options)
    return checked


def no_library(name, *arguments, **options):
    raise TypeError("expected str instance, NoneType found")


os_replace = os.replace
os.unlink, os.replace = closed_only(os.unlink), closed_only(os.replace)
ctypes.CDLL = no_library
for name in {MODULES!r}:
    sys.modules[name] = None
for name in {MISSING + FLAGS!r}:
    delattr(os, name)
sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
import rekord as rk
"""


def windows(program: str, folder: Path) -> str:
    """What a program prints on a system like Windows."""
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS + textwrap.dedent(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_module_can_be_imported_where_posix_is_missing(tmp_path: Path) -> None:
    program = """
        import importlib
        optional = {"tensorflow", "torch", "jax", "keras", "ray", "duckdb", "starlette", "uvicorn", "hypothesis"}
        names = [one.name for one in pkgutil.walk_packages(rk.__path__, "rekord.")]
        names.remove("rekord.__main__")
        for name in names:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as failure:
                assert failure.name.partition(".")[0] in optional, failure
        print(len(names))
    """
    assert int(windows(program, tmp_path)) > 200


def test_datasets_are_written_edited_and_read_where_posix_is_missing(tmp_path: Path) -> None:
    program = """
        rows = [{"x": i, "text": f"row {i}"} for i in range(50)]
        quiet = {"progress": False, "workers": 1}
        os.mkdir("data")  # a folder that is empty is taken
        rk.write(rows, "data", shards=3, shuffle=True, **quiet)
        rk.append("data", [{"x": 50, "text": "more"}], replace=True, **quiet)
        rk.delete("data", where=[0, 1], replace=True, **quiet)
        rk.rewrite("data", "again", compression="gzip", shards=2, **quiet)
        rk.write(rows, "data", fresh=True, **quiet)
        print(rk.open("data").records, rk.open("again").records, rk.open("data")["train"][7]["x"])
        print(sorted(batch["x"].tolist()[0] for batch in rk.open("again")["train"].batches(25)) != [])
        rk.export("data", "data.parquet")
        rk.export("data", "data.jsonl")
        report = rk.salvage("again", "saved")
        print(report.kept, rk.check("data").findings)
        with rk.Writer("one.tfrecord", rk.Schema({"x": rk.Int64()})) as writer:
            writer.write({"x": 1})
        print(rk.open("one.tfrecord").records)
        print(sorted(os.listdir(".")))
    """
    lines = windows(program, tmp_path).splitlines()
    assert lines[0] == "50 49 7"
    assert lines[1:4] == ["True", "49 []", "1"]
    assert lines[4] == "['again', 'data', 'data.jsonl', 'data.parquet', 'one.tfrecord', 'saved']"


def test_two_writers_at_once_are_refused_where_posix_is_missing(tmp_path: Path) -> None:
    program = """
        from rekord.storage.transaction import Transaction
        with Transaction("x").lock():
            try:
                with Transaction("x").lock():
                    print("two at once")
            except rk.DatasetError as failure:
                print(failure.code, failure.found == f"process {os.getpid()} is writing to it")
        with Transaction("x").lock():
            print("free again")
        print(os.listdir("."))
    """
    assert windows(program, tmp_path).splitlines() == ["X512 True", "free again", "[]"]


def test_what_only_some_systems_have_is_used_in_one_module() -> None:
    words = [
        *(f"os.{name}" for name in (*MISSING, *FLAGS)),
        "import fcntl",
        "import resource",
        "CDLL",
        "msvcrt",
    ]
    allowed = {"storage/portability.py"}
    found = {
        f"{path.relative_to(PACKAGE)}: {word}"
        for path in PACKAGE.rglob("*.py")
        if str(path.relative_to(PACKAGE)) not in allowed
        for word in words
        if re.search(rf"(?<![\"\w]){re.escape(word)}\b", path.read_text(encoding="utf-8"))  # not in a string
    }
    assert found == set()


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.delattr(os, name)


@pytest.mark.parametrize("is_missing", [False, True])
def test_reading_at_an_offset_leaves_the_file_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_missing: bool
) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    if is_missing:
        without(monkeypatch, "pread", "preadv")
    descriptor = portability.open_to_read(str(tmp_path / "x"))
    os.lseek(descriptor, 5, os.SEEK_SET)
    assert portability.pread(descriptor, 3, 50) == bytes([50, 51, 52])
    assert portability.pread(descriptor, 9, 98) == bytes([98, 99])
    buffer = bytearray(4)
    portability.pread_into(descriptor, memoryview(buffer), 10)
    assert buffer == bytes([10, 11, 12, 13])
    with pytest.raises(OSError, match="became shorter"):
        portability.pread_into(descriptor, memoryview(buffer), 98)
    assert os.lseek(descriptor, 0, os.SEEK_CUR) == 5
    os.close(descriptor)


@pytest.mark.concurrency
def test_threads_that_read_by_seeking_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(bytes(range(256)) * 16)
    without(monkeypatch, "pread")
    descriptor = portability.open_to_read(str(tmp_path / "x"))
    wrong: list[int] = []

    def read(first: int) -> None:
        for at in range(first, 4000, 7):
            if portability.pread(descriptor, 4, at) != bytes((at + i) % 256 for i in range(4)):
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(descriptor)
    assert wrong == []


def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"abcdefg")
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: real(descriptor, min(size, 2), at))
    descriptor = portability.open_to_read(str(tmp_path / "x"))
    assert portability.pread(descriptor, 6, 1) == b"bcdefg"
    os.close(descriptor)


def test_a_folder_that_cannot_be_opened_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "O_DIRECTORY")
    monkeypatch.setattr(os, "fsync", lambda _descriptor: pytest.fail("synced"))
    LOCAL.sync_folder(str(tmp_path))


def test_without_limits_and_affinity_there_are_usual_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portability, "resource", None)
    without(monkeypatch, "sched_getaffinity")
    assert portability.address_space_limit() is None
    assert portability.usable_cores() == (os.cpu_count() or 1)
    portability.trim_heap()


def test_a_lock_of_windows_is_a_byte_that_nobody_needs_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[int] = []

    def locking(descriptor: int, _mode: int, _n_bytes: int) -> None:
        places.append(os.lseek(descriptor, 0, os.SEEK_CUR))
        if len(places) > 1:
            raise PermissionError(errno.EACCES, "Permission denied")

    fake: Any = SimpleNamespace(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", fake)
    monkeypatch.setattr(portability, "fcntl", None)
    path = str(tmp_path / "lock")
    with LOCAL.lock(path):
        assert Path(path).read_text() == str(os.getpid())
        with pytest.raises(DatasetError) as caught, LOCAL.lock(path):
            raise AssertionError("two at once")
        assert (caught.value.code, caught.value.location.path) == ("X512", path)
        assert caught.value.found == f"process {os.getpid()} is writing to it"
    assert min(places) > 1 << 20
    assert os.listdir(tmp_path) == []


def test_a_folder_takes_the_place_of_an_empty_one_where_rename_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def refusing(source: str, target: str) -> None:
        if os.path.isdir(target):
            raise PermissionError(errno.EACCES, "Access is denied")
        real(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file").write_text("new")
    (tmp_path / "out").mkdir()
    with pytest.raises(DatasetError) as caught:  # where rename could, a refusal is one
        LOCAL.rename(str(tmp_path / "new"), str(tmp_path / "out"))
    assert (caught.value.code, caught.value.location.path) == ("X504", str(tmp_path / "out"))
    monkeypatch.setattr(portability, "fcntl", None)
    LOCAL.rename(str(tmp_path / "new"), str(tmp_path / "out"))
    assert (tmp_path / "out" / "file").read_text() == "new"
    (tmp_path / "more").mkdir()
    with pytest.raises(DatasetError) as caught:
        LOCAL.rename(str(tmp_path / "more"), str(tmp_path / "out"))
    assert caught.value.location.path == str(tmp_path / "out")
    assert (tmp_path / "out" / "file").read_text() == "new"
