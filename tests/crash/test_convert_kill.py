"""Real processes, really killed: what they leave is finished by the next run, to the byte."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sample_conversions import (
    SUPPORT_FOLDER,
    NumberedFilesSource,
    execute_conversion,
    find_leftovers,
    numbered_lines,
    read_tree,
    use_small_parts,
)

import rekord as rk
from rekord.errors import RekordError

# No main guard, on purpose. The process stops at its n-th rename and says so; a worker beside it goes on.
SCRIPT = """
import os, sys, time
import rekord as rk
from rekord.conversion import driver as convert
from rekord.conversion import tasks
from rekord.storage.local import LocalStorage
from sample_conversions import NumberedFilesSource

root, out, workers, stop_at = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
convert.PART_BYTES = tasks.PART_BYTES = 300
source = NumberedFilesSource(root)
if sys.argv[5] == "rows":
    source = (row.values for part in source.parts() for row in NumberedFilesSource(root).read(part))
rename, renames = LocalStorage.rename, []


def stopping(self, source, target):
    renames.append(target)
    if len(renames) == stop_at:
        open(out + ".reached", "x").close()
        while True:
            time.sleep(0.01)
    rename(self, source, target)


LocalStorage.rename = stopping
dataset = rk.write(
    source, out, shuffle=True, shards=4, split={"train": 0.7, "val": 0.3},
    map=lambda row: {**row, "text": row["text"].upper()}, workers=workers, progress=False,
)
print(sum(len(dataset[name].to_arrow()) for name in dataset.splits))
"""
OPTIONS: dict[str, Any] = {"shuffle": True, "shards": 4, "split": {"train": 0.7, "val": 0.3}}
PATIENCE_SECONDS = 60


@pytest.fixture
def source(tmp_path: Path) -> NumberedFilesSource:
    root = tmp_path / "source"
    root.mkdir()
    for i in range(5):
        (root / f"{i}.txt").write_text(numbered_lines(30, start=i * 100))
    return NumberedFilesSource(str(root))


class Child:
    """A process that converts, and stops at its n-th rename."""

    def __init__(
        self, source: NumberedFilesSource, out: Path, *, workers: int, stop_at: int, form: str = "files"
    ) -> None:
        self.reached = Path(f"{out}.reached")
        self.reached.unlink(missing_ok=True)
        script = out.parent / "script.py"
        script.write_text(SCRIPT)
        arguments = [source.root, str(out), str(workers), str(stop_at), form]
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": SUPPORT_FOLDER},
        )

    def stopped(self) -> bool:
        """Wait until it has stopped, or has ended before that."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.reached.exists():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < end, "neither reached its step nor ended"
            time.sleep(0.005)
        return True

    def end(self, number: int) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        self.reached.unlink(missing_ok=True)
        return self.process.returncode, out.decode(), errors.decode()

    def result(self) -> tuple[int, str, str]:
        out, errors = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, out.decode(), errors.decode()


def uninterrupted(source: NumberedFilesSource, out: Path, *, form: str = "files") -> dict[str, bytes]:
    child = Child(source, out, workers=1, stop_at=0, form=form)
    code, said, errors = child.result()
    assert (code, said, errors) == (0, "150\n", "")
    return read_tree(out)


@pytest.mark.parametrize(("workers", "form"), [(1, "files"), (2, "files"), (2, "rows")])
@pytest.mark.concurrency
def test_killed_six_times_in_a_row_it_ends_with_the_same_bytes(
    source: NumberedFilesSource, tmp_path: Path, workers: int, form: str
) -> None:
    (tmp_path / "whole").mkdir()
    whole = uninterrupted(source, tmp_path / "whole" / "data", form=form)
    seed = 20 + workers
    moments = random.Random(seed)
    (tmp_path / "killed").mkdir()
    out = tmp_path / "killed" / "data"
    kills = 0
    while kills < 6:
        stop_at = moments.randint(2, 14)
        child = Child(source, out, workers=workers, stop_at=stop_at, form=form)
        if child.stopped():
            assert child.end(signal.SIGKILL)[0] == -signal.SIGKILL
            assert not out.exists(), f"seed {seed}: it stopped before its last rename"
            kills += 1
        else:
            assert child.result()[0] == 0
            assert read_tree(out) == whole
            out = tmp_path / "killed" / f"data{kills}"
    child = Child(source, out, workers=workers, stop_at=0, form=form)
    code, said, errors = child.result()
    assert (code, said, errors) == (0, "150\n", "")
    assert read_tree(out) == whole
    assert find_leftovers(out) == []


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.concurrency
def test_ctrl_c_keeps_what_is_finished_and_the_next_run_goes_on(
    source: NumberedFilesSource, tmp_path: Path, workers: int
) -> None:
    (tmp_path / "whole").mkdir()
    whole = uninterrupted(source, tmp_path / "whole" / "data")
    out = tmp_path / "data"
    child = Child(source, out, workers=workers, stop_at=9)
    assert child.stopped()
    code, _, errors = child.end(signal.SIGINT)
    assert code in (-signal.SIGINT, 130)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert not out.exists()
    (staging,) = find_leftovers(out)
    assert list((tmp_path / staging / "map").glob("*.done"))
    code, said, errors = Child(source, out, workers=workers, stop_at=0).result()
    assert (code, said, errors) == (0, "150\n", "")
    assert read_tree(out) == whole
    assert find_leftovers(out) == []


@pytest.mark.concurrency
def test_a_second_process_is_refused_while_the_first_one_lives(source: NumberedFilesSource, tmp_path: Path) -> None:
    out = tmp_path / "data"
    child = Child(source, out, workers=1, stop_at=5)
    assert child.stopped()
    with pytest.raises(RekordError) as caught:
        rk.write(source, out, progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X512", str(out))
    assert caught.value.found == f"process {child.process.pid} is writing to it"
    child.end(signal.SIGKILL)
    rk.write(source, out, fresh=True, progress=False)
    assert find_leftovers(out) == []


def held_back(work: Any, seen: str) -> Any:
    """A map function that does `work` in workers, and lets the calling process wait until one was there."""
    parent = os.getpid()

    def function(row: Any) -> Any:
        if os.getpid() != parent:
            open(seen, "a").close()
            work()
        end = time.monotonic() + PATIENCE_SECONDS
        while not os.path.exists(seen) and time.monotonic() < end:
            time.sleep(0.005)
        return row

    return function


def without_manifest(out: Path) -> dict[str, bytes]:
    """What does not say which options were given."""
    told = ("rekord.json", ".rekord/write.json")
    return {name: content for name, content in read_tree(out).items() if name not in told}


@pytest.mark.parametrize("workers", [2, 3])
def test_what_other_processes_write_are_the_same_bytes(
    source: NumberedFilesSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    use_small_parts(monkeypatch)
    seen = str(tmp_path / "seen")
    options = {**OPTIONS, "map": held_back(lambda: None, seen), "workers": workers}
    execute_conversion(source, tmp_path / "data", options)
    assert os.path.exists(seen), "a worker took part"
    execute_conversion(source, tmp_path / "whole", OPTIONS)
    assert without_manifest(tmp_path / "data") == without_manifest(tmp_path / "whole")


def test_a_bad_row_in_another_process_is_told_from_here(
    source: NumberedFilesSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_parts(monkeypatch)

    def failing() -> None:
        raise LookupError("no such thing")

    function = held_back(failing, str(tmp_path / "seen"))
    with pytest.raises(RekordError) as caught:
        execute_conversion(source, tmp_path / "data", {**OPTIONS, "map": function, "workers": 2})
    assert (caught.value.code, caught.value.found) == ("E380", "LookupError: no such thing")
    assert str(caught.value.location.path).startswith(source.root)
    assert caught.value.location.line is not None


@pytest.mark.concurrency
def test_a_worker_that_is_killed_is_replaced(
    source: NumberedFilesSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_small_parts(monkeypatch)
    killed, seen = str(tmp_path / "killed"), str(tmp_path / "seen")

    def dying() -> None:
        # As of a lack of memory.
        if not os.path.exists(killed):
            open(killed, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)

    execute_conversion(source, tmp_path / "data", {**OPTIONS, "map": held_back(dying, seen), "workers": 2})
    assert os.path.exists(killed), "a worker died"
    execute_conversion(source, tmp_path / "whole", OPTIONS)
    assert without_manifest(tmp_path / "data") == without_manifest(tmp_path / "whole")
