"""A conversion that dies, or fails, at any step: its dataset is whole or not there, and the next run ends it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import interrupted
import pytest
from faulty_storage import Crash, Fault, FaultyStorage
from interrupted import DEATHS, ERRORS
from sample_conversions import (
    NumberedFilesSource,
    disable_fsync,
    execute_conversion,
    find_leftovers,
    numbered_lines,
    read_tree,
    use_small_parts,
)

from rekord.errors import DatasetError

RATIOS = {"train": 0.6, "val": 0.4}


def keep_row(row: Any) -> Any:
    return row


JOBS: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle": True, "shards": 2, "on_bad_row": "reject", "max_rejects": 5},
    "in order": {"shard_size": 600, "compression": "gzip"},
    "stratified": {"shuffle": True, "stratify": "label", "split": RATIOS, "shards": 1},
    "serial": {"limit": 100, "shuffle": True, "shards": 2},
    "serial in order": {"limit": 100, "shards": 2},
    "mapped": {"map": keep_row, "shuffle": True, "shards": 2},
    "mapped rows": {"map": keep_row, "shards": 2, "as_rows": True},
}


class Place(interrupted.Place):
    """A source, and conversions of it."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.options = options
        root = folder / "source"
        root.mkdir()
        (root / "a.txt").write_text(numbered_lines(9) + ("! bad\n" if "on_bad_row" in options else ""))
        (root / "b.txt").write_text(numbered_lines(7, start=40))
        self.source = NumberedFilesSource(str(root))
        super().__init__(folder)

    def run(self, out: Path, storage: FaultyStorage | None = None, **more: Any) -> Any:
        options = {**self.options, **more}
        source: Any = self.source
        if options.pop("as_rows", False):
            files = self.source
            source = (row.values for part in files.parts() for row in files.read(part))  # comes from no files
        return (
            execute_conversion(source, out, options, storage) if storage else execute_conversion(source, out, options)
        )


@pytest.fixture(params=JOBS)
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    use_small_parts(monkeypatch)
    disable_fsync(monkeypatch)
    return Place(tmp_path, JOBS[request.param])


def test_the_job_has_several_parts_and_shards_and_every_kind_of_step(place: Place) -> None:
    names = [step.name for step in place.steps]
    assert set(names) == {
        *("create", "write", "fsync", "rename", "remove"),
        *("make_folder", "remove_folder", "sync_folder"),
    }
    assert sum(step.name == "rename" and step.path.endswith(".spill") for step in place.steps) >= 2
    assert sum(name.endswith((".tfrecord", ".tfrecord.gz")) for name in place.bytes) >= 2
    # What the manifest names is on the disk itself before the name of the dataset is there.
    shown = [i for i, step in enumerate(place.steps) if step.path.endswith("/whole/data")]
    assert [place.steps[i].name for i in shown] == ["rename"]
    assert names[shown[0] + 1] == "sync_folder"
    assert names[: shown[0]].count("sync_folder") == 5
    assert names[shown[0] :].count("fsync") == 0


@pytest.mark.parametrize("fault", DEATHS)
def test_dying_at_any_step_is_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    place.assert_deaths_are_made_good(fault)


@pytest.mark.parametrize("fault", ERRORS)
def test_an_error_at_any_step_is_told_and_made_good_by_the_next_run(place: Place, fault: Fault) -> None:
    grows = ("create", "write", "make_folder")
    for step, operation in enumerate(place.steps, 1):
        if "on_bad_row" not in place.options and (operation.name in grows) != (fault == "enospc"):
            continue  # one job meets both at every step, the others the one that is to be expected
        place.assert_an_error_is_told_and_made_good(step, fault)


def test_dying_again_while_going_on_is_made_good_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch)
    disable_fsync(monkeypatch)
    place = Place(tmp_path, JOBS["shuffled"])
    for first in range(5, len(place.steps) + 1, 13):
        for second in range(1, len(place.steps), 9):
            out = place.new()
            with pytest.raises(Crash):
                place.run(out, FaultyStorage(fail_at=first, fault="power loss"))
            try:
                place.run(out, FaultyStorage(fail_at=second))
            except Crash:
                place.assert_absent_or_whole(out)
            place.assert_next_run_ends_it(out)


def test_finished_shards_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch)
    place = Place(tmp_path, JOBS["shuffled"])
    finished = [
        i for i, step in enumerate(place.steps, 1) if step.name == "rename" and step.path.endswith("train-00000.done")
    ]
    out = place.new()
    with pytest.raises(Crash):
        place.run(out, FaultyStorage(fail_at=finished[0] + 1))
    storage = FaultyStorage()
    outcome = place.run(out, storage)
    assert outcome.resumed_shards == 1
    created = [os.path.basename(step.path).split(".")[0] for step in storage.operations if step.name == "create"]
    assert "train-00000-of-00002" not in created
    assert "train-00001-of-00002" in created
    assert not any(step.path.endswith(".spill") for step in storage.operations if step.name == "rename")
    assert read_tree(out) == place.bytes


@pytest.mark.parametrize("fault", ["power loss", "enospc"])
def test_writing_anew_over_a_dataset_never_loses_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """At every step the old dataset or the new one is there, or the old one waits under a hidden name."""
    use_small_parts(monkeypatch)
    disable_fsync(monkeypatch)
    place = Place(tmp_path, {"shuffle": True, "shards": 2})
    old_out = place.new()
    place.run(old_out, seed=1)
    old = read_tree(old_out)
    storage = FaultyStorage()
    out = place.new()
    shutil.copytree(old_out, out)
    place.run(out, storage, fresh=True)
    assert read_tree(out) == place.bytes
    hidden = 0
    for step in range(1, len(storage.operations) + 1):
        out = place.new()
        shutil.copytree(old_out, out)
        with suppress(Crash, DatasetError):
            place.run(out, FaultyStorage(fail_at=step, fault=fault), fresh=True)
        if out.exists():
            assert read_tree(out) in (old, place.bytes)
        else:
            (aside,) = [name for name in find_leftovers(out) if ".rekord-old-" in name]
            assert read_tree(out.parent / aside) == old
            hidden += 1
        if step % 2:
            place.run(out, fresh=True)
            assert read_tree(out) == place.bytes
        elif out.exists() and read_tree(out) == old:
            place.run(out, seed=1)  # the older conversion has nothing to do
            assert read_tree(out) == old
            shutil.rmtree(out.parent)
            continue
        else:
            place.run(out)
            assert read_tree(out) == place.bytes
        assert find_leftovers(out) == []
        shutil.rmtree(out.parent)
    assert hidden == (0 if fault == "enospc" else 1)


def test_files_of_others_in_an_older_dataset_survive_writing_anew_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_parts(monkeypatch)
    place = Place(tmp_path, {"shards": 2})
    out = place.new()
    place.run(out)
    for text in ("first", "second"):
        (out / "notes.txt").write_text(text)
        outcome = place.run(out, fresh=True)
        assert read_tree(out) == place.bytes
        assert outcome.left is not None
        assert read_tree(outcome.left) == {"notes.txt": text.encode()}
    assert len(find_leftovers(out)) == 2


def test_a_staging_elsewhere_is_cleared_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_parts(monkeypatch)
    disable_fsync(monkeypatch)
    place = Place(tmp_path, {"shuffle": True, "shards": 2})
    for step in range(1, len(place.steps), 7):
        out, spills = place.new(), tmp_path / "spills"
        with pytest.raises(Crash):
            place.run(out, FaultyStorage(fail_at=step), staging=spills)
        place.run(out, staging=spills)
        assert read_tree(out) == place.bytes
        assert find_leftovers(out) == []
        assert os.listdir(spills) == []


@pytest.mark.parametrize("job", ["shuffled", "stratified", "serial"])
@pytest.mark.parametrize("kind", ["spill", "index", "done"])
def test_damage_in_the_staging_is_noticed_and_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, kind: str
) -> None:
    use_small_parts(monkeypatch)
    place = Place(tmp_path, JOBS[job])
    mapped = [
        i
        for i, step in enumerate(place.steps, 1)
        if step.name == "rename" and step.path.endswith(".done") and "/map/" in step.path
    ]
    out = place.new()
    with pytest.raises(Crash):
        place.run(out, FaultyStorage(fail_at=mapped[-1] + 1))
    (staging,) = [name for name in find_leftovers(out) if not name.endswith(".lock")]
    victim = out.parent / staging / "map" / f"00001.{kind}"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0x20
    victim.write_bytes(data)
    if kind == "spill" and job != "shuffled":
        # What was made of all parts together has to be made again too.
        with pytest.raises(DatasetError) as caught:
            place.run(out)
        assert (caught.value.code, caught.value.location.path) == ("X518", str(victim))
        assert not out.exists()
    place.assert_next_run_ends_it(out)
