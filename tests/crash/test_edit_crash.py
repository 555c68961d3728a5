"""Edits that die, or fail, at any step: old and new datasets are whole, and the next run ends what was begun."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import Crash, Fault, FaultyStorage
from sample_conversions import disable_fsync, read_tree

import rekord as rk
from rekord.errors import DatasetError
from rekord.storage.local import LOCAL, Storage
from rekord.verbs.edit.append import append_rows
from rekord.verbs.edit.change import delete_records, relabel_records
from rekord.verbs.edit.common import EditResult, EditTarget
from rekord.verbs.options import AppendOptions, DeleteOptions, RelabelOptions

SCHEMA = rk.Schema({"x": rk.Int64(), "text": rk.Text(), "label": rk.Label(["cat", "dog", "cow"])})
ROWS = [{"x": i, "text": f"row {i}", "label": i // 4} for i in range(12)]
MORE = [{"x": 100 + i, "text": f"more {i}", "label": "cow"} for i in range(5)]
NEVER_LINKED_SECONDS = 60

VERBS: dict[str, Callable[[Path, EditTarget], EditResult]] = {
    "append": lambda path, target: append_rows(path, iter(MORE), target, AppendOptions()),
    "append files": lambda path, target: append_rows(path, path.parent / "more.csv", target, AppendOptions()),
    "delete": lambda path, target: delete_records(path, target, DeleteOptions(where=lambda batch: batch["x"] == 5)),
    "delete by number": lambda path, target: delete_records(path, target, DeleteOptions(where=[0, 1, 2, 3, 11])),
    "relabel": lambda path, target: relabel_records(path, target, {"dog": "cat"}, RelabelOptions()),
}
DEATHS: list[Fault] = ["crash", "power loss"]
ERRORS: dict[Fault, int] = {"enospc": errno.ENOSPC}


class NoExchange:
    """A storage of a place where two names cannot be exchanged, and files have one name only."""

    def __init__(self, inner: Storage) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def exchange(self, one: str, other: str) -> bool:
        return False

    def link(self, source: str, target: str) -> bool:
        return False


class Place:
    """A dataset, an edit of it that nothing interrupts, and copies of the dataset for those that are."""

    def __init__(self, folder: Path, verb: str, *, replace: bool, plain: bool = False) -> None:
        self.folder = folder
        self.verb = VERBS[verb]
        self.replace = replace
        self.plain = plain  # a place without links and exchange
        rk.write(ROWS, folder / "given", schema=SCHEMA, shards=3, progress=False)
        (folder / "more.csv").write_text("x,text,label\n100,a,cow\n101,b,dog\n")
        self.old = read_tree(folder / "given")
        self.count = 0
        storage = FaultyStorage()
        path, out = self.new()
        self.run(path, out, storage)
        self.steps = storage.operations
        self.bytes = read_tree(path if replace else out)
        assert self.bytes != self.old

    def new(self) -> tuple[Path, Path]:
        self.count += 1
        inside = self.folder / str(self.count)
        inside.mkdir()
        shutil.copytree(self.folder / "given", inside / "in")
        shutil.copy2(self.folder / "more.csv", inside / "more.csv")
        return inside / "in", inside / "out"

    def some_steps(self, *, all_of_them: bool) -> range:
        """From 1 on. One verb meets every fault at every step, the others some of them at every fifth."""
        if self.verb is VERBS["append files"]:
            return range(1, len(self.steps) + 1, 2 if all_of_them else 5)  # most of them are those of the other
        whole = all_of_them or self.verb is VERBS["delete by number"]
        return range(1, len(self.steps) + 1, 1 if whole else 5)

    def run(self, path: Path, out: Path, storage: Any = LOCAL) -> EditResult:
        used = NoExchange(storage) if self.plain else storage
        return self.verb(path, EditTarget(out=None if self.replace else str(out), storage=used))

    def assert_whole(self, path: Path, out: Path, *, may_be_gone: bool = False) -> None:
        if self.replace:
            assert (may_be_gone and not path.exists()) or read_tree(path) in (self.old, self.bytes)
        else:
            assert read_tree(path) == self.old
            assert not out.exists() or read_tree(out) == self.bytes

    def assert_next_run_ends_it(self, path: Path, out: Path) -> None:
        self.run(path, out)
        assert read_tree(path if self.replace else out) == self.bytes
        known = {"in", "more.csv"} if self.replace else {"in", "out", "more.csv"}
        assert set(os.listdir(path.parent)) == known
        if not self.replace:
            assert read_tree(path) == self.old
        shutil.rmtree(path.parent)


@pytest.fixture(params=[False, True], ids=["to another place", "in its own place"])
def replace(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=VERBS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replace: bool) -> Place:
    disable_fsync(monkeypatch)
    return Place(tmp_path, request.param, replace=replace)


@pytest.mark.parametrize("fault", DEATHS)
def test_dying_at_any_step_is_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    names = [step.name for step in place.steps]
    assert "link" in names
    assert names.count("exchange") == int(place.replace)
    for step in place.some_steps(all_of_them=fault == "crash"):
        path, out = place.new()
        storage = FaultyStorage(fail_at=step, fault=fault)
        with pytest.raises(Crash):
            place.run(path, out, storage)
        assert len(storage.operations) == step, "a dead process does nothing more"
        place.assert_whole(path, out)
        place.assert_next_run_ends_it(path, out)


@pytest.mark.parametrize("fault", ERRORS)
def test_an_error_at_any_step_is_told_and_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    for step in place.some_steps(all_of_them=False):
        path, out = place.new()
        with pytest.raises(DatasetError) as caught:
            place.run(path, out, FaultyStorage(fail_at=step, fault=fault))
        assert (caught.value.code, caught.value.found) == ("X504", os.strerror(ERRORS[fault]))
        assert str(caught.value.location.path).startswith(str(path.parent))
        place.assert_whole(path, out)
        place.assert_next_run_ends_it(path, out)


@pytest.mark.parametrize("verb", ["append", "delete by number"])
def test_without_links_and_exchange_files_are_copied_and_two_renames_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, replace: bool
) -> None:
    """Between the two renames there is nothing by the name; the next run puts the new dataset there."""
    disable_fsync(monkeypatch)
    place = Place(tmp_path, verb, replace=replace, plain=True)
    gone = 0
    for step in range(1, len(place.steps) + 1):
        path, out = place.new()
        with pytest.raises(Crash):
            place.run(path, out, FaultyStorage(fail_at=step))
        place.assert_whole(path, out, may_be_gone=True)
        gone += not path.exists()
        place.assert_next_run_ends_it(path, out)
    assert gone == int(replace)


def test_another_edit_after_a_death_takes_the_place_of_the_one_that_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disable_fsync(monkeypatch)
    place = Place(tmp_path, "append", replace=True)
    for step in range(1, len(place.steps) + 1, 3):
        path, out = place.new()
        with pytest.raises(Crash):
            place.run(path, out, FaultyStorage(fail_at=step))
        before = read_tree(path)
        done = delete_records(path, EditTarget(out=None), DeleteOptions(where="x = 0"))
        assert done.counts == {"train": 1}
        rows = [row["x"] for row in rk.open(path)["train"]]
        assert rows[:2] == [1, 2]
        assert len(rows) == (11 if before == place.old else 16)
        assert sorted(os.listdir(path.parent)) == ["in", "more.csv"]


def test_the_same_append_twice_in_place_appends_twice(tmp_path: Path) -> None:
    """Only an append that died is gone on with; one that ended is another one."""
    rk.write(ROWS, tmp_path / "in", schema=SCHEMA, progress=False)
    for records in (17, 22):
        assert rk.append(tmp_path / "in", MORE, replace=True, progress=False).records == records


SCRIPT = """
import sys, time
from rekord.storage.local import LocalStorage
from rekord.verbs.edit.change import delete_records
from rekord.verbs.edit.common import EditTarget
from rekord.verbs.options import DeleteOptions

path, out, verb, stop_at = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
seen = []


def stopping(name):
    real = getattr(LocalStorage, name)

    def stopped(self, *arguments):
        seen.append(name)
        if len(seen) == stop_at:
            open(path + ".reached", "x").close()
            while True:
                time.sleep(0.01)
        return real(self, *arguments)

    setattr(LocalStorage, name, stopped)


for name in ("rename", "link", "exchange", "remove"):
    stopping(name)
delete_records(path, EditTarget(out=out or None), DeleteOptions(where=[0, 1, 2, 3, 5]))
"""


@pytest.mark.parametrize(
    ("replace", "stop_at"),
    [(False, 3), (False, 8), (False, 13), (True, 8), (True, 16), (True, 18), (True, 22)],
)
@pytest.mark.concurrency
def test_killed_for_real_it_is_ended_by_the_next_run(tmp_path: Path, replace: bool, stop_at: int) -> None:
    path, out = tmp_path / "in", tmp_path / "out"
    rk.write(ROWS, path, schema=SCHEMA, shards=3, progress=False)
    old = read_tree(path)
    arguments = [str(path), "" if replace else str(out), "delete", str(stop_at)]
    child = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], stderr=subprocess.PIPE)
    end = time.monotonic() + NEVER_LINKED_SECONDS
    reached = Path(f"{path}.reached")
    while not reached.exists() and child.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.005)
    assert reached.exists(), child.communicate()[1].decode()
    with pytest.raises(DatasetError) as caught:  # two at once
        delete_records(path, EditTarget(out=None if replace else str(out)), DeleteOptions(where=[0]))
    assert (caught.value.code, caught.value.location.path) == ("X512", str(path if replace else out))
    child.send_signal(signal.SIGKILL)
    child.communicate()
    reached.unlink()
    now = path if replace else out
    if not replace:
        assert read_tree(path) == old
        assert not out.exists() or rk.open(out).records == 7
    delete_records(path, EditTarget(out=None if replace else str(out)), DeleteOptions(where=[0, 1, 2, 3, 5]))
    assert [row["x"] for row in rk.open(now)["train"]] == [4, 6, 7, 8, 9, 10, 11]
    assert rk.check(now).findings == []
    assert set(os.listdir(tmp_path)) == ({"in"} if replace else {"in", "out"})
