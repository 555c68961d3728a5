"""A rewrite or a split that dies, or fails, at any step: its dataset is whole or absent, and the next run ends it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import interrupted
import pytest
from faulty_storage import Crash, Fault, FaultyStorage
from interrupted import DEATHS, ERRORS
from sample_conversions import disable_fsync, find_leftovers, read_tree, use_small_parts

import rekord as rk
from rekord.errors import DatasetError
from rekord.storage.local import LOCAL
from rekord.verbs.options import RewriteOptions, SplitOptions
from rekord.verbs.rewrite import prepare_rewrite
from rekord.verbs.split import prepare_split

SCHEMA = rk.Schema({"x": rk.Int64(), "name": rk.Text(), "label": rk.Label(3)})
REWRITES: dict[str, dict[str, Any]] = {
    "copied": {"shard_size": 400, "shuffle": True},
    "compressed": {"shards": 2, "compression": "gzip"},
    "unpacked": {"shard_size": 400, "shuffle": True, "compression": "none"},
    "changed": {"shards": 2, "rename": {"x": "y"}, "cast": {"name": "bytes"}},
}
SPLIT: dict[str, Any] = {
    "split": {"a": 0.5, "b": 0.5},
    "split_by": None,
    "stratify": "label",
    "folds": None,
    "only": None,
    "shuffle": False,
    "seed": 0,
    "shard_size": 400,
    "shards": None,
    "compression": None,
    "format": None,
    "workers": 1,
    "fresh": False,
}


class Place(interrupted.Place):
    """A dataset, and what is made of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.old = folder / "in"
        rows = [{"x": i, "name": "n" * (i % 7), "label": i % 3} for i in range(30)]
        packed = "gzip" if name == "unpacked" else None
        rk.write(rows, self.old, schema=SCHEMA, shards=3, compression=packed, progress=False)
        if packed:  # files of another writer, which can only be read from their front
            shutil.rmtree(self.old / ".rekord")
            (self.old / "rekord.json").unlink()
        self.old_bytes = read_tree(self.old)
        super().__init__(folder)

    def run(self, out: Path, storage: FaultyStorage | None = None) -> None:
        if self.name == "split":
            prepare_split(self.old, out, SplitOptions(**SPLIT), storage=storage or LOCAL).run(progress=False)
        else:
            asked = RewriteOptions(**REWRITES[self.name], workers=1)
            prepare_rewrite([self.old], out, asked, storage=storage or LOCAL).run(progress=False)

    def assert_next_run_ends_it(self, out: Path) -> None:
        super().assert_next_run_ends_it(out)
        assert read_tree(self.old) == self.old_bytes


@pytest.fixture(params=[*REWRITES, "split"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    use_small_parts(monkeypatch)
    disable_fsync(monkeypatch)
    return Place(tmp_path, request.param)


@pytest.mark.parametrize("fault", DEATHS)
def test_dying_at_any_step_is_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    assert sum(name.endswith((".tfrecord", ".tfrecord.gz")) for name in place.bytes) >= 2
    place.assert_deaths_are_made_good(fault)


@pytest.mark.parametrize("fault", ERRORS)
def test_an_error_at_any_step_is_told_and_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    for step in range(1, len(place.steps) + 1, 3 if fault == "enospc" else 5):
        place.assert_an_error_is_told_and_made_good(step, fault)


def test_finished_shards_are_not_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disable_fsync(monkeypatch)
    place = Place(tmp_path, "copied")
    shards = [i for i, step in enumerate(place.steps, 1) if step.name == "rename" and ".tfrecord" in step.path]
    out = place.new()
    with pytest.raises(Crash):
        place.run(out, FaultyStorage(fail_at=shards[-1]))
    prepared = prepare_rewrite([place.old], out, RewriteOptions(**REWRITES["copied"], workers=1))
    assert prepared.run(progress=False).resumed_shards >= 1
    assert read_tree(out) == place.bytes


def test_a_second_run_to_the_same_place_is_refused_while_the_first_is_at_work(tmp_path: Path) -> None:
    from rekord.storage.transaction import Transaction

    place = Place(tmp_path, "copied")
    out = place.new()
    with Transaction(out).lock(), pytest.raises(DatasetError) as caught:
        place.run(out)
    assert (caught.value.code, caught.value.location.path) == ("X512", str(out))
    place.assert_next_run_ends_it(out)


@pytest.mark.concurrency
def test_a_rewrite_that_is_killed_goes_on_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    rows = ({"x": i, "name": "n" * 4000, "label": i % 3} for i in range(12_000))
    rk.write(rows, tmp_path / "in", schema=SCHEMA, shards=4, progress=False)
    rk.rewrite(tmp_path / "in", tmp_path / "whole" / "data", shard_size="1MB", progress=False)
    out = tmp_path / "killed" / "data"
    command = [
        sys.executable,
        "-m",
        "rekord",
        "rewrite",
        str(tmp_path / "in"),
        str(out),
        "--shard-size",
        "1MB",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if list(out.parent.glob(".data.rekord-*/shards/*.done")):
            break
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if process.returncode == -signal.SIGKILL:
        assert not out.exists()
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    assert read_tree(out) == read_tree(tmp_path / "whole" / "data")
    assert find_leftovers(out) == []
