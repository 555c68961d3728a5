"""Calls on several processes: every result once, whatever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rekord.conversion.engines.local import WorkerPool, available_workers
from rekord.errors import RekordError, error
from rekord.location import Location

PATIENCE_SECONDS = 60


def wait_for(condition: Any) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)


def calls(count: int) -> list[tuple[int, tuple[int]]]:
    return [(i, (i,)) for i in range(count)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_every_call_has_one_result(count: int) -> None:
    with WorkerPool(count) as workers:
        found = list(workers.run(lambda n: n * n, lambda n: n * n, calls(20)))
    assert sorted(found) == [(i, i * i) for i in range(20)]


@pytest.mark.concurrency
def test_threads_take_part_and_no_process_is_started_for_a_short_run() -> None:
    together = threading.Barrier(3)

    def here(n: int) -> tuple[int, int]:
        if n < 3:
            together.wait(PATIENCE_SECONDS)  # all three at once, or it breaks
        return threading.get_ident(), os.getpid()

    with WorkerPool(3) as workers:
        found = dict(workers.run(lambda n: (0, 0), here, calls(20), threads=True))
    assert sorted(found) == list(range(20))
    assert len({found[n][0] for n in range(3)}) == 3
    assert {process for _, process in found.values()} == {os.getpid()}


def test_whoever_is_patient_starts_no_process_for_a_short_run() -> None:
    with WorkerPool(2) as workers:
        found = list(workers.run(lambda n: os.getpid(), lambda n: os.getpid(), calls(50), patient=True))
    assert found == [(n, os.getpid()) for n in range(50)]


def test_processes_take_part_in_a_long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekord.conversion.engines.local.PROCESS_START_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("rekord.conversion.engines.local.MIN_REMAINING_SECONDS", 0.0)
    seen = str(tmp_path / "seen")

    def elsewhere(n: int) -> int:
        open(seen, "a").close()
        return os.getpid()

    def here(n: int) -> int:
        wait_for(lambda: os.path.exists(seen))
        return os.getpid()

    with WorkerPool(2) as workers:
        found = dict(workers.run(elsewhere, here, calls(30), patient=True))
    assert len(found) == 30
    assert len(set(found.values())) == 2


@pytest.mark.parametrize("failure", [SystemExit, KeyboardInterrupt])
@pytest.mark.concurrency
def test_what_ends_a_thread_ends_the_run(failure: type[BaseException]) -> None:
    def here(n: int) -> int:
        if threading.current_thread() is threading.main_thread():
            time.sleep(0.01)
            return n
        raise failure

    with WorkerPool(2) as workers, pytest.raises(failure):
        list(workers.run(None, here, calls(200), threads=True))


def test_other_processes_take_part(tmp_path: Path) -> None:
    seen = str(tmp_path / "seen")

    def elsewhere(n: int) -> int:
        open(seen, "a").close()
        return os.getpid()

    def here(n: int) -> int:
        wait_for(lambda: os.path.exists(seen))
        return os.getpid()

    with WorkerPool(2) as workers:
        found = dict(workers.run(elsewhere, here, calls(8)))
    assert len(found) == 8
    assert os.getpid() in found.values()
    assert len(set(found.values())) == 2


def test_what_a_call_raises_is_its_result_with_all_that_it_says(tmp_path: Path) -> None:
    seen = str(tmp_path / "seen")

    def elsewhere(n: int) -> int:
        open(seen, "a").close()
        raise error("E355", location=Location(path="x", row=n), expected="a", found="b", do="c")

    def here(n: int) -> int:
        wait_for(lambda: os.path.exists(seen))
        return n

    with WorkerPool(2) as workers:
        found = dict(workers.run(elsewhere, here, calls(6)))
    failures = {n: one for n, one in found.items() if isinstance(one, RekordError)}
    assert failures
    for n, failure in failures.items():
        assert (failure.code, failure.location.row, failure.do) == ("E355", n, "c")


@pytest.mark.concurrency
def test_a_call_that_was_lost_with_its_worker_is_made_again(tmp_path: Path) -> None:
    killed = str(tmp_path / "killed")

    def elsewhere(n: int) -> int:
        if not os.path.exists(killed):
            open(killed, "x").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    def here(n: int) -> int:
        wait_for(lambda: os.path.exists(killed))
        return n

    with WorkerPool(2) as workers:
        found = list(workers.run(elsewhere, here, calls(9)))
    assert sorted(found) == [(i, i) for i in range(9)]


@pytest.mark.slow
@pytest.mark.concurrency
def test_workers_that_keep_dying_are_given_up() -> None:
    def elsewhere(n: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return n

    def here(n: int) -> int:
        time.sleep(0.02)  # so that there are calls left for workers that have to start first
        return n

    with WorkerPool(2) as workers, pytest.raises(RekordError) as caught:
        list(workers.run(elsewhere, here, calls(2000)))
    assert (caught.value.code, caught.value.found) == ("X517", "workers that died 4 times")


def test_nothing_more_is_begun_when_nobody_asks_any_more() -> None:
    begun: list[int] = []
    with WorkerPool(1) as workers:
        for number, _ in workers.run(begun.append, begun.append, calls(9)):
            if number == 3:
                break
    assert begun == [0, 1, 2, 3]


def test_there_is_at_least_one_worker_and_no_more_than_cores() -> None:
    assert 1 <= available_workers() <= (os.cpu_count() or 1)
