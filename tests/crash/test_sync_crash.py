"""Syncs that die, or fail, at any step: old and new datasets are whole, and the next run ends what was begun."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from faulty_storage import Crash, Fault, FaultyStorage
from sample_conversions import disable_fsync, read_tree

import rekord as rk
from rekord.errors import DatasetError
from rekord.storage.local import LOCAL
from rekord.verbs.sync import SyncResult, sync_dataset

OPTIONS: dict[str, Any] = {"shuffle": True, "split": {"train": 0.6, "val": 0.4}, "shards": 2, "workers": 1}


class Place:
    """A dataset whose source changed, and copies of the dataset for the syncs that die."""

    def __init__(self, folder: Path, *, elsewhere: bool) -> None:
        self.folder = folder
        self.elsewhere = elsewhere
        self.source = folder / "source"
        self.source.mkdir()
        for number in range(4):
            lines = [f"{number * 10 + i},text {i}" for i in range(8)]
            (self.source / f"{number}.csv").write_text("\n".join(["x,text", *lines]) + "\n")
        rk.write(self.source, folder / "given", progress=False, **OPTIONS)
        self.old = read_tree(folder / "given")
        (self.source / "1.csv").unlink()
        (self.source / "2.csv").write_text("x,text\n5,changed\n")
        (self.source / "7.csv").write_text("x,text\n7,added\n")
        rk.write(self.source, folder / "fresh", progress=False, **OPTIONS)
        self.bytes = read_tree(folder / "fresh")
        self.count = 0
        storage = FaultyStorage()
        self.run(*self.new(), storage)
        self.steps = storage.operations

    def new(self) -> tuple[Path, Path]:
        self.count += 1
        inside = self.folder / str(self.count)
        inside.mkdir()
        shutil.copytree(self.folder / "given", inside / "in")
        return inside / "in", inside / "out"

    def run(self, path: Path, out: Path, storage: Any = LOCAL) -> SyncResult:
        place = out if self.elsewhere else None
        return sync_dataset(self.source, path, place, {}, workers=1, progress=False, storage=storage)

    def assert_whole(self, path: Path, out: Path) -> None:
        if self.elsewhere:
            assert read_tree(path) == self.old
            assert not out.exists() or read_tree(out) == self.bytes
        else:
            assert read_tree(path) in (self.old, self.bytes)

    def assert_next_run_ends_it(self, path: Path, out: Path) -> None:
        self.run(path, out)
        assert read_tree(out if self.elsewhere else path) == self.bytes
        assert set(os.listdir(path.parent)) == ({"in", "out"} if self.elsewhere else {"in"})
        shutil.rmtree(path.parent)


@pytest.fixture(params=[False, True], ids=["in its own place", "to another place"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    disable_fsync(monkeypatch)
    return Place(tmp_path, elsewhere=request.param)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["crash", "power loss"])
def test_dying_at_any_step_is_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    # Elsewhere, the steps are those of a conversion, which has tests of its own.
    stride = 9 if fault != "crash" or place.elsewhere else 1
    for step in range(1, len(place.steps) + 1, stride):
        path, out = place.new()
        with pytest.raises(Crash):
            place.run(path, out, FaultyStorage(fail_at=step, fault=fault))
        place.assert_whole(path, out)
        place.assert_next_run_ends_it(path, out)


def test_a_full_disk_at_any_step_is_reported_and_the_next_run_ends_it(place: Place) -> None:
    for step in range(1, len(place.steps) + 1, 9):
        path, out = place.new()
        with pytest.raises(DatasetError) as caught:
            place.run(path, out, FaultyStorage(fail_at=step, fault="enospc"))
        assert (caught.value.code, caught.value.found) == ("X504", os.strerror(errno.ENOSPC))
        place.assert_whole(path, out)
        place.assert_next_run_ends_it(path, out)


def test_a_source_that_changes_again_after_a_death_is_what_counts(place: Place) -> None:
    if place.elsewhere:
        pytest.skip("another plan for the same output is refused, as for write")
    (place.source / "8.csv").write_text("x,text\n8,later\n")
    rk.write(place.source, place.folder / "later", progress=False, **OPTIONS)
    later = read_tree(place.folder / "later")
    (place.source / "8.csv").rename(place.folder / "8.csv")
    for step in range(3, len(place.steps), 9):
        path, out = place.new()
        with pytest.raises(Crash):
            place.run(path, out, FaultyStorage(fail_at=step))
        (place.folder / "8.csv").rename(place.source / "8.csv")
        place.run(path, out)
        assert read_tree(path) == later
        (place.source / "8.csv").rename(place.folder / "8.csv")
