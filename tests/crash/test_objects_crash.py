"""Runs that write to object storage and die, at any request: readers see nothing, "unfinished" or all, and the next
run ends what was begun, with the bytes of a run on a disk."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from object_server import Fault, ObjectServer
from sample_conversions import SUPPORT_FOLDER, numbered_lines, read_tree

import rekord as rk
from rekord.errors import DatasetError, RekordError, UsageError
from rekord.storage import lease, publication

SCHEMA = rk.Schema({"x": rk.Int64(), "text": rk.Text(), "label": rk.Label(["cat", "dog", "cow"])})
ROWS = [{"x": i, "text": f"row {i}", "label": i // 4} for i in range(12)]
MORE = [{"x": 100 + i, "text": f"more {i}", "label": "cow"} for i in range(5)]

_NUMBERS = itertools.count()  # a URL names one dataset: manifests are cached for a moment

Run = Callable[[str, str], object]
"""Writes to a path, from a dataset."""

RUNS: dict[str, Run] = {
    "write": lambda out, given: rk.write(
        ROWS, out, schema=SCHEMA, shards=2, shuffle=True, split={"train": 0.6, "val": 0.4}, workers=1, progress=False
    ),
    "append": lambda out, given: rk.append(given, MORE, out, workers=1, progress=False),
    "delete": lambda out, given: rk.delete(given, out, where=[0, 1, 2, 3, 11], workers=1, progress=False),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    # A lease of a dead run is stale at once; one of a live run is renewed by no thread.
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 3600.0)
    with ObjectServer() as server, server.environment(REKORD_REMOTE_TIMEOUT="0"):
        yield server


class Place:
    """A dataset that runs begin with, and what one writes that nothing interrupts."""

    def __init__(self, server: ObjectServer, folder: Path, run: Run) -> None:
        self.server = server
        self._run = run
        self.given = f"{server.bucket}/given"
        rk.write(ROWS, folder / "given", schema=SCHEMA, shards=3, progress=False)
        rk.write(ROWS, self.given, schema=SCHEMA, shards=3, progress=False)
        run(str(folder / "out"), str(folder / "given"))
        self.bytes = read_tree(folder / "out")
        self.records = list(rk.open(folder / "out").items())
        self.before = dict(server.objects)
        self.out = ""

    def new(self) -> str:
        """A prefix without anything."""
        self.server.drop()
        for key, one in self.before.items():
            self.server.put(key, one.data)
        self.server.reset()
        self.out = f"{self.server.bucket}/out-{next(_NUMBERS)}/data"
        return self.out

    def run(self) -> None:
        self._run(self.out, self.given)

    def tree(self) -> dict[str, bytes]:
        """The objects below the output, by name."""
        begin = self.out.removeprefix(f"{self.server.bucket}/") + "/"
        return {key[len(begin) :]: one.data for key, one in self.server.objects.items() if key.startswith(begin)}

    def assert_nothing_unfinished_or_whole(self) -> str:
        """What a reader sees."""
        try:
            found = rk.open(self.out)
        except DatasetError as failure:
            if failure.code in ("X501", "X502", "X564"):
                return failure.code
            raise
        expected = dict(self.records)
        assert {name: len(split) for name, split in found.items()} == {n: len(s) for n, s in expected.items()}
        for name, split in found.items():
            assert [row["x"] for row in split] == [row["x"] for row in expected[name]]
        return "whole"

    def assert_next_run_ends_it(self) -> None:
        self.run()
        assert self.tree() == self.bytes
        assert self.assert_nothing_unfinished_or_whole() == "whole"


@pytest.fixture(params=RUNS)
def place(request: pytest.FixtureRequest, server: ObjectServer, tmp_path: Path) -> Place:
    return Place(server, tmp_path, RUNS[request.param])


def test_the_bytes_are_those_of_a_run_on_a_disk(place: Place) -> None:
    place.new()
    place.assert_next_run_ends_it()


@pytest.mark.slow
@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before"), pytest.param(True, id="after", marks=pytest.mark.long)]
)
def test_dying_at_any_request_is_repaired_by_the_next_run(place: Place, after: bool) -> None:
    server = place.server
    seen = set()
    for number in itertools.count(1):
        place.new()
        server.die_at(number, after=after)
        try:
            place.run()
            survived = not server.is_dead
        except RekordError:
            survived = False
        server.reset()
        seen.add(place.assert_nothing_unfinished_or_whole())
        place.assert_next_run_ends_it()
        if survived:
            break
    assert seen >= {"X564", "whole"}
    assert number > 50


def read_x(path: str) -> list[int]:
    return sorted(row["x"] for split in rk.open(path).values() for row in split)


def rows_from(start: int, meanwhile: Callable[[], object] | None = None) -> Iterator[dict[str, Any]]:
    for i in range(8):
        if meanwhile is not None and i == 4:
            meanwhile()
        yield {"x": start + i, "text": f"row {i}", "label": i % 3}


def write(out: str, rows: Iterator[dict[str, Any]], **options: Any) -> rk.Dataset:
    return rk.write(rows, out, schema=SCHEMA, shards=2, workers=1, progress=False, **options)


def new_path(server: ObjectServer) -> str:
    return f"{server.bucket}/other-{next(_NUMBERS)}"


def test_of_two_drivers_one_publishes_and_the_other_is_refused(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 600.0)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.02)
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.02)
    out = new_path(server)
    failures: list[RekordError] = []

    def race() -> None:
        with pytest.raises(DatasetError) as caught:
            write(out, rows_from(100))
        failures.append(caught.value)

    write(out, rows_from(0, race))
    (failure,) = failures
    assert (failure.code, failure.location.path) == ("X512", out)
    assert str(os.getpid()) in str(failure.found)
    assert read_x(out) == list(range(8))


def test_the_lease_of_a_finished_run_does_not_make_the_next_one_wait(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 1e9)
    out = new_path(server)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(out, rows_from(0, interrupt))
    with pytest.raises(DatasetError) as caught:
        rk.open(out)
    assert (caught.value.code, caught.value.location.path) == ("X564", out)
    write(out, rows_from(0))
    assert read_x(out) == list(range(8))
    assert not [key for key in server.objects if "staging" in key or "unfinished" in key]


def test_a_driver_whose_lease_was_taken_over_publishes_no_shard(server: ObjectServer) -> None:
    out = new_path(server)
    with pytest.raises(DatasetError) as caught:
        write(out, rows_from(0, lambda: write(out, rows_from(100))))
    assert (caught.value.code, caught.value.location.path) == ("X512", out)
    assert read_x(out) == list(range(100, 108))


@pytest.mark.parametrize("moment", ["before the lease is checked", "between the check and the write"])
def test_a_driver_that_pauses_before_the_manifest_cannot_publish_once_another_has(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    out = new_path(server)
    original = publication.ObjectPublication._put_last
    renew = lease.Lease.renew
    paused = []

    def take_over() -> None:
        if not paused:
            paused.append(True)
            write(out, rows_from(100), fresh=True)

    def put_last(self: publication.ObjectPublication, last: tuple[str, bytes]) -> None:
        if moment == "before the lease is checked":
            take_over()
        original(self, last)

    def renew_and_pause(self: lease.Lease) -> None:
        renew(self)
        if moment != "before the lease is checked":
            take_over()

    monkeypatch.setattr(publication.ObjectPublication, "_put_last", put_last)
    monkeypatch.setattr(lease.Lease, "renew", renew_and_pause)
    with pytest.raises(DatasetError) as caught:
        write(out, rows_from(0))
    assert caught.value.code in ("X512", "X578")
    assert read_x(out) == list(range(100, 108))
    assert rk.check(out).ok


def test_a_write_whose_answer_was_lost_is_no_conflict(server: ObjectServer, tmp_path: Path) -> None:
    place = Place(server, tmp_path, RUNS["write"])
    for number in itertools.count():
        place.new()
        fault = Fault("lost", operation=("put", "complete_upload"), skip=number, times=1)
        server.inject(fault)
        place.run()
        assert place.tree() == place.bytes
        if not fault.struck:
            break
    assert number > 20


@pytest.mark.parametrize("name", RUNS)
def test_a_tenth_of_all_requests_may_fail(server: ObjectServer, tmp_path: Path, name: str) -> None:
    place = Place(server, tmp_path, RUNS[name])
    place.new()
    with server.environment(REKORD_REMOTE_TIMEOUT="600"):
        server.inject(Fault("503", share=0.05), Fault("drop", share=0.03), Fault("lost", share=0.02))
        place.run()
        struck = sum(fault.struck for fault in server.faults)
        server.reset()
    assert struck > 3
    assert place.tree() == place.bytes


def test_a_resumed_run_does_not_repeat_finished_tasks(server: ObjectServer, tmp_path: Path) -> None:
    place = Place(server, tmp_path, RUNS["write"])
    place.new()
    place.run()
    (shard,) = [one.number for one in server.log if one.operation == "put" and one.key.endswith("val-00000.done")]
    place.new()
    server.die_at(shard + 1)
    with pytest.raises(DatasetError):
        place.run()
    server.reset()
    place.run()
    written = [one.key for one in server.log if one.operation == "put"]
    assert not [key for key in written if key.endswith((".spill", "train-00000-of-00002.tfrecord"))]
    assert place.tree() == place.bytes


def test_fresh_restarts_an_unfinished_run_and_leaves_nothing_of_it(server: ObjectServer) -> None:
    out = new_path(server)

    server.reset()
    write(f"{out}-count", rows_from(0))
    done = next(one.number for one in server.log if one.key.endswith("train-00001.done") and one.operation == "put")
    server.reset()
    server.die_at(done + 1)
    with pytest.raises(DatasetError):
        write(out, rows_from(0))
    server.reset()
    assert [key for key in server.objects if key.endswith("/train-00001-of-00002.tfrecord")]
    with pytest.raises(UsageError) as caught:
        rk.write(rows_from(100), out, schema=SCHEMA, shards=3, progress=False)
    assert caught.value.code == "U609"
    rk.write(rows_from(100), out, schema=SCHEMA, shards=3, progress=False, fresh=True)
    assert read_x(out) == list(range(100, 108))
    begin = out.removeprefix(f"{server.bucket}/") + "/"
    assert not [key for key in server.objects if key.startswith(begin) and ("of-00002" in key or "staging" in key)]


def test_a_complete_dataset_is_not_replaced(server: ObjectServer) -> None:
    out = new_path(server)
    write(out, rows_from(0))
    before = dict(server.objects)
    for attempt in (
        lambda: write(out, rows_from(100), fresh=True),
        lambda: rk.delete(out, where=[0], replace=True, progress=False),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert (caught.value.code, caught.value.location.path) == ("U651", out)
    with pytest.raises(UsageError) as caught:
        rk.write(rows_from(0), out, schema=SCHEMA, shards=3, progress=False)
    assert (caught.value.code, caught.value.location.path) == ("U618", out)
    assert caught.value.do == "choose another output path"
    assert dict(server.objects) == before


DRIVER = """
import sys
from sample_conversions import NumberedFilesSource
import rekord as rk
from rekord.conversion import driver, tasks
from rekord.storage import lease

lease.LEASE_SECONDS = 0.0  # that of a killed driver is stale at once
driver.PART_BYTES = tasks.PART_BYTES = 300
rk.write(
    NumberedFilesSource(sys.argv[1]), sys.argv[2], shuffle=True, shards=4, workers=2, progress=False,
    map=lambda row: {**row, "text": row["text"].upper()},
)
"""


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["*/map/00001.done", "*/train-00002-of-00004.tfrecord", "*/rekord.json"])
def test_a_killed_driver_is_resumed_by_another_process(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    (tmp_path / "source").mkdir()
    for number in range(4):
        (tmp_path / "source" / f"{number}.txt").write_text(numbered_lines(30, start=30 * number))
    out = new_path(server)
    started: list[subprocess.Popen[bytes]] = []
    server.inject(Fault("drop", operation="put", key=pattern, times=1, hook=lambda: started[0].kill()))
    environment = {**os.environ, "PYTHONPATH": SUPPORT_FOLDER}
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "source"), out]
    with subprocess.Popen(command, env=environment) as process:
        started.append(process)
    assert process.returncode == -signal.SIGKILL
    server.reset()
    with pytest.raises(DatasetError) as caught:
        rk.open(out)
    assert caught.value.code == "X564"
    for place in (out, str(tmp_path / "out")):
        subprocess.run([*command[:-1], place], env=environment, check=True)
    begin = out.removeprefix(f"{server.bucket}/") + "/"
    found = {key[len(begin) :]: one.data for key, one in server.objects.items() if key.startswith(begin)}
    assert found == read_tree(tmp_path / "out")


def test_objects_of_others_are_not_removed_with_an_unfinished_run(server: ObjectServer) -> None:
    out = new_path(server)
    begin = out.removeprefix(f"{server.bucket}/")
    server.put(f"{begin}/.rekord/unfinished", b'{"run": "staging-0123456789abcdef"}')
    server.put(f"{begin}/thesis.pdf", b"the only copy")
    server.put(f"{begin}/train-00000-of-00009.tfrecord", b"of the run")
    with pytest.raises(UsageError) as caught:
        write(out, rows_from(0))
    assert (caught.value.code, caught.value.location.path) == ("U618", f"{out}/thesis.pdf")
    assert server.get(f"{begin}/thesis.pdf") == b"the only copy"
    server.drop(f"{begin}/thesis.pdf")
    write(out, rows_from(0))
    assert f"{begin}/train-00000-of-00009.tfrecord" not in server.objects


@pytest.mark.parametrize("content", [b"", b"no JSON", b'{"run": 7}', b'{"run": "x", "last": "../rekord.json"}'])
def test_a_damaged_marker_marks_too(server: ObjectServer, content: bytes) -> None:
    out = new_path(server)
    begin = out.removeprefix(f"{server.bucket}/")
    server.put(f"{begin}/train-00000-of-00001.tfrecord", b"")
    server.put(f"{begin}/.rekord/unfinished", content)
    for path in (out, f"{out}/*.tfrecord"):
        with pytest.raises(DatasetError) as caught:
            rk.open(path)
        assert (caught.value.code, caught.value.location.path) == ("X564", out)
