"""Adopting shards dies, or fails, at any step: the shards are untouched, and the next run ends what was begun."""

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
from rekord.testing import example_bytes, frames
from rekord.verbs.adopt import AdoptOptions, AdoptResult, adopt_shards

FILES = ("train/a.tfrecord", "train/b.tfrecord", "val.tfrecord")
OPTIONS = AdoptOptions(label="label", label_map=["cat", "dog"], workers=1)


class Place:
    """Shards, the dataset that nothing interrupts, and copies of the shards for those that are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        given = folder / "given"
        for number, name in enumerate(FILES):
            path = given / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(frames(example_bytes({"id": [i], "label": [i % 2]}) for i in range(number, number + 9)))
        self.shards = read_tree(given)
        self.count = 0
        storage = FaultyStorage()
        self.run(self.new(), storage)
        self.steps = storage.operations
        self.whole = read_tree(folder / "1")

    def new(self) -> Path:
        self.count += 1
        return Path(shutil.copytree(self.folder / "given", self.folder / str(self.count)))

    def run(self, path: Path, storage: Any = LOCAL) -> AdoptResult:
        return adopt_shards(path, OPTIONS, storage=storage)

    def failure(self, path: Path, storage: Any) -> DatasetError | None:
        try:
            self.run(path, storage)
        except DatasetError as failure:
            return failure
        return None

    def assert_usable(self, path: Path) -> None:
        """The shards are as they were, and can be read, with a manifest or without one."""
        found = read_tree(path)
        assert {name: found[name] for name in FILES} == self.shards
        assert rk.open(path).records == 27
        assert [row["id"] for row in rk.open(path)["train"]] == [*range(9), *range(1, 10)]

    def assert_next_run_ends_it(self, path: Path) -> None:
        if not (path / "rekord.json").exists():
            self.run(path)
        else:
            with pytest.raises(rk.UsageError) as caught:
                self.run(path)
            assert caught.value.code == "U618"
        assert read_tree(path) == self.whole
        shutil.rmtree(path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    disable_fsync(monkeypatch)
    return Place(tmp_path)


@pytest.mark.parametrize("fault", ["crash", "short write then crash", "power loss"])
def test_dying_at_any_step_is_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    names = [step.name for step in place.steps]
    assert names.count("rename") >= len(FILES) + 1
    for step in range(1, len(place.steps) + 1):
        path = place.new()
        storage = FaultyStorage(fail_at=step, fault=fault)
        with pytest.raises(Crash):
            place.run(path, storage)
        assert len(storage.operations) == step, "a dead process does nothing more"
        place.assert_usable(path)
        place.assert_next_run_ends_it(path)


@pytest.mark.parametrize("fault", ["enospc", "eio"])
def test_an_error_at_any_step_is_reported_and_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    for step in range(1, len(place.steps) + 1):
        path = place.new()
        storage = FaultyStorage(fail_at=step, fault=fault)
        failure = place.failure(path, storage)
        if failure is None:  # only what cleans up may fail unnoticed
            assert place.steps[step - 1].name in ("remove", "remove_folder")
        else:
            number = errno.ENOSPC if fault == "enospc" else errno.EIO
            assert (failure.code, failure.found) == ("X504", os.strerror(number))
            assert str(failure.location.path).startswith(str(path))
        place.assert_usable(path)
        place.assert_next_run_ends_it(path)


def test_shards_that_an_earlier_run_has_read_are_not_read_again(place: Place) -> None:
    path = place.new()
    done = [number for number, step in enumerate(place.steps, 1) if step.path.endswith(".done")]
    with pytest.raises(Crash):
        place.run(path, FaultyStorage(fail_at=done[2]))
    assert place.run(path).resumed_shards == 2
    assert read_tree(path) == place.whole


def test_a_shard_that_changed_since_is_read_again(place: Place) -> None:
    path = place.new()
    done = [number for number, step in enumerate(place.steps, 1) if step.path.endswith(".done")]
    with pytest.raises(Crash):
        place.run(path, FaultyStorage(fail_at=done[2]))
    (path / FILES[0]).write_bytes(frames([example_bytes({"id": [7], "label": [1]})]))
    assert place.run(path).resumed_shards == 0
    assert rk.open(path)["train"][0] == {"id": 7, "label": 1}
    assert rk.check(path).ok
