"""A record file that is cut in place after it was compared and before it is copied: an error, never a dead process.

Every scene runs in a process of its own, since what goes wrong would end it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rekord as rk

CUT = "cut.tfrecord"
RECORDS = 4000
BLOB_BYTES = 700
FIRST_CUT = 1000
"""The file is cut where this record begins."""

SCENE = """
import ctypes, faulthandler, mmap, os, signal, sys, threading
import numpy as np
import rekord as rk
from rekord import _core
from rekord.dataset.shard_index import open_shard_index

path, healthy = sys.argv[1:]
split = rk.open(path)
assert split[[5, 6]]["id"].tolist() == [5, 6]  # it is mapped now
offsets = open_shard_index(path).offsets
gather = _core.gather

def cut():
    os.truncate(path, int(offsets[1000]))

def cutting(*args):
    cut()  # the file was compared already, and is copied now
    return gather(*args)

def told(call):
    try:
        call()
    except rk.RekordError as failure:
        at = failure.location
        exact = at.record is not None and at.offset == int(offsets[at.record])
        line = f"{failure.code} {os.path.basename(at.path)} {at.record} {exact}"
    else:
        line = "nothing"
    sys.stdout.write(line + "\\n")

def read_healthy():
    print(sum(int(batch["id"].sum()) for batch in rk.open(healthy).batches(64, shuffle=True)))

def foreign():
    # A fault of somebody else: a mapping of their own, cut.
    with open(path + ".other", "wb+") as file:
        file.truncate(8192)
        other = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        sys.stdout.flush()
        return other[5000]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    blob = np.random.default_rng(0).bytes(BLOB_BYTES)
    for name in (CUT, "healthy.tfrecord"):
        with rk.Writer(tmp_path / name, rk.Schema({"id": rk.Int64(), "blob": rk.Bytes()})) as writer:
            writer.write_columns({"id": np.arange(RECORDS), "blob": [blob] * RECORDS})
    return tmp_path / CUT


def run(path: Path, scene: str, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        *flags,
        "-c",
        SCENE + scene,
        str(path),
        str(path.with_name("healthy.tfrecord")),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def printed(path: Path, scene: str, *flags: str) -> list[str]:
    ended = run(path, scene, *flags)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


LOST = f"X548 {CUT} 3000 True"
"""Record 3,000 lies whole pages after the cut."""
HEALTHY = str(sum(range(RECORDS)))

pytestmark = pytest.mark.concurrency


def test_a_record_that_was_cut_off_is_an_error_with_its_place(path: Path) -> None:
    scene = "_core.gather = cutting\ntold(lambda: split[[7, 3000, 8]])"
    assert printed(path, scene) == [LOST]


def test_a_shuffled_epoch_over_a_file_that_is_cut_is_an_error_with_a_place(path: Path) -> None:
    scene = """
batches = iter(split.batches(64, shuffle=True, seed=1, threads=1, prefetch=0))
assert len(next(batches)["id"]) == 64
_core.gather = cutting
told(lambda: list(batches))
"""
    (line,) = printed(path, scene)
    code, name, record, exact = line.split()
    assert (code, name, exact) == ("X548", CUT, "True")
    assert int(record) >= FIRST_CUT


def test_records_before_the_cut_are_read_while_it_is_cut_and_refused_afterwards(path: Path) -> None:
    scene = """
_core.gather = cutting
print(split[[7, 8]]["id"].tolist())
_core.gather = gather
try:
    split[[7, 8]]
except rk.RekordError as failure:
    print(failure.code, failure.location.record)
"""
    assert printed(path, scene) == ["[7, 8]", "X548 None"]


def test_other_files_are_read_after_a_fault(path: Path) -> None:
    scene = "_core.gather = cutting\ntold(lambda: split[[3000]])\n_core.gather = gather\nread_healthy()"
    assert printed(path, scene) == [LOST, HEALTHY]


def test_a_file_that_has_become_whole_again_is_read_again(path: Path) -> None:
    # Nothing of the zeros that stood in for what was lost is left.
    scene = """
content = open(path, "rb").read()
_core.gather = cutting
told(lambda: split[[3000]])
_core.gather = gather
open(path, "r+b").write(content)
print(rk.open(path)[[3000, 3001]]["id"].tolist())
"""
    assert printed(path, scene) == [LOST, "[3000, 3001]"]


def test_a_fault_is_an_error_with_faulthandler_enabled_before_and_after(path: Path) -> None:
    for flags, first in ((("-X", "faulthandler"), ""), ((), "faulthandler.enable()\n")):
        path.write_bytes(path.with_name("healthy.tfrecord").read_bytes())
        scene = first + "_core.gather = cutting\ntold(lambda: split[[3000]])\n_core.gather = gather\nread_healthy()"
        assert printed(path, scene, *flags) == [LOST, HEALTHY]


def test_a_fault_is_an_error_after_another_handler_was_installed(path: Path) -> None:
    scene = """
signal.signal(signal.SIGBUS, lambda *_: print("called"))
_core.gather = cutting
told(lambda: split[[3000]])
os.kill(os.getpid(), signal.SIGBUS)  # and that handler still gets what is its own
for _ in range(1000): pass
signal.signal(signal.SIGBUS, signal.SIG_DFL)
_core.gather = gather
read_healthy()
"""
    assert printed(path, scene) == [LOST, "called", HEALTHY]


def test_a_fault_is_an_error_where_the_signal_is_blocked(path: Path) -> None:
    scene = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGBUS})
_core.gather = cutting
told(lambda: split[[3000]])
print(signal.SIGBUS in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
"""
    assert printed(path, scene) == [LOST, "True"]


def test_faults_in_several_threads_are_errors_in_each(path: Path) -> None:
    scene = """
ready = threading.Barrier(4, timeout=30)
def together(*args):
    ready.wait()
    cut()
    return gather(*args)
_core.gather = together
threads = [threading.Thread(target=told, args=(lambda i=i: split[[2500 + 300 * i]],)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
_core.gather = gather
read_healthy()
"""
    *lines, healthy = printed(path, scene)
    assert healthy == HEALTHY
    # The first thread sees that the file changed; another may have opened its page already, and finds it damaged.
    assert sorted(line.split()[2] for line in lines) == ["2500", "2800", "3100", "3400"]
    assert {line.split()[0] for line in lines} <= {"X548", "F101", "F103", "F104"}
    assert all(line.endswith("True") for line in lines)


@pytest.mark.parametrize("handlers", ["", "faulthandler.enable()", "signal.signal(signal.SIGBUS, signal.SIG_DFL)"])
def test_a_fault_of_somebody_else_ends_the_process_as_before(path: Path, handlers: str) -> None:
    ended = run(path, f"read_healthy()\n{handlers}\nread_healthy()\nforeign()\nprint('alive')")
    assert ended.returncode == -signal.SIGBUS
    assert ended.stdout.splitlines() == [HEALTHY, HEALTHY]
    assert ("Fatal Python error: Bus error" in ended.stderr) == ("faulthandler" in handlers)


def test_a_signal_that_is_sent_ends_the_process_as_before(path: Path) -> None:
    ended = run(path, "read_healthy()\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGBUS)\nprint('alive')")
    assert (ended.returncode, ended.stdout) == (-signal.SIGBUS, f"{HEALTHY}\n")


def test_where_no_guard_can_be_installed_records_are_read_instead_of_mapped(path: Path) -> None:
    scene = """
def refused(): return False
_core.install_sigbus_guard = refused
_core.Mapping = None
split = rk.open(path)
print(split[[3000, 7, 3999, 7]]["id"].tolist())
read_healthy()
pread = os.pread
def cutting_pread(*args):
    cut()
    return pread(*args)
os.pread = cutting_pread
told(lambda: split[[7, 3000]])
"""
    assert printed(path, scene) == ["[3000, 7, 3999, 7]", HEALTHY, LOST]
