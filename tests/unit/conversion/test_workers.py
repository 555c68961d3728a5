"""Calls on several processes: every result once, whatever dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from loky.backend.queues import Queue
from loky.process_executor import BrokenProcessPool

from rekord.conversion.workers import CallScheduler, WorkerPool, available_workers
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
    monkeypatch.setattr("rekord.conversion.workers.PROCESS_START_DELAY_SECONDS", 0.0)
    monkeypatch.setattr("rekord.conversion.workers.MIN_REMAINING_SECONDS", 0.0)
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


@pytest.mark.concurrency
def test_the_thread_that_feeds_the_processes_has_ended_when_the_pool_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Queue._feed

    def end_late(*arguments: Any) -> None:
        feed(*arguments)
        time.sleep(0.3)

    monkeypatch.setattr(Queue, "_feed", staticmethod(end_late))
    seen = str(tmp_path / "seen")

    def work(number: int) -> int:
        open(seen, "a").close()
        return number

    def wait(number: int) -> int:
        wait_for(lambda: os.path.exists(seen))
        return number

    with WorkerPool(2) as pool:
        assert sorted(pool.run(work, wait, calls(4))) == [(i, i) for i in range(4)]
    assert [thread for thread in threading.enumerate() if thread.name == "QueueFeederThread"] == []


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
def test_a_call_whose_workers_keep_dying_is_given_up_and_the_others_are_made(tmp_path: Path) -> None:
    started = str(tmp_path / "started")

    def elsewhere(n: int) -> int:
        open(started, "a").close()
        os.kill(os.getpid(), signal.SIGKILL)
        return n

    def here(n: int) -> int:
        wait_for(lambda: os.path.exists(started))  # so that there are calls left for workers that have to start first
        return n

    with WorkerPool(2) as workers:
        found = dict(workers.run(elsewhere, here, calls(9)))
    lost = {n: one for n, one in found.items() if isinstance(one, RekordError)}
    assert lost, "a worker took a call"
    assert {n: one for n, one in found.items() if n not in lost} == {n: n for n in range(9) if n not in lost}
    assert {(one.code, one.found) for one in lost.values()} == {("X517", "a task whose worker died 4 times")}


class Item(NamedTuple):
    number: int
    is_portable: bool = True


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.concurrency
def test_results_in_order_take_few_items_ahead(count: int) -> None:
    taken: list[int] = []
    most_ahead = 0

    def items() -> Iterator[Item]:
        for n in range(60):
            taken.append(n)
            yield Item(n, is_portable=n % 7 != 3)

    def square(item: Item) -> int:
        return item.number**2

    with WorkerPool(count) as workers:
        for given, result in enumerate(workers.run_in_order(square, square, items())):
            assert result == given**2
            most_ahead = max(most_ahead, len(taken) - given)
    assert most_ahead <= 2 * count
    assert len(taken) == 60


def test_what_items_raise_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[Item]:
        yield from map(Item, range(3))
        raise LookupError("no more")

    with WorkerPool(2) as workers:
        results = workers.run_in_order(lambda item: item.number, lambda item: item.number, items())
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(LookupError, match="no more"):
            next(results)


def test_an_item_that_cannot_be_sent_is_used_in_this_process(tmp_path: Path) -> None:
    with WorkerPool(2) as workers:
        items = [Item(n, is_portable=False) for n in range(5)]
        found = list(workers.run_in_order(lambda item: 0, lambda item: os.getpid(), items))
        assert workers.processes == {os.getpid()}
    assert found == [os.getpid()] * 5


def test_nothing_more_is_begun_when_nobody_asks_any_more() -> None:
    begun: list[int] = []
    with WorkerPool(1) as workers:
        for number, _ in workers.run(begun.append, begun.append, calls(9)):
            if number == 3:
                break
    assert begun == [0, 1, 2, 3]


def test_there_is_at_least_one_worker_and_no_more_than_cores() -> None:
    assert 1 <= available_workers() <= (os.cpu_count() or 1)


class _Pool:
    """An executor whose calls complete when the test says so."""

    def __init__(self) -> None:
        self.futures: list[tuple[Future[Any], tuple[Any, ...]]] = []

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        self.futures.append((Future(), arguments))
        return self.futures[-1][0]


def test_a_loss_that_is_noticed_late_reaches_a_process_that_is_already_idle() -> None:
    dead, alive = _Pool(), _Pool()
    turns = CallScheduler(calls(1))
    turns.add_processes(dead, 1, abs)
    dead.futures[0][0].set_result(None)  # the process has started, and gets the call
    assert dead.futures[1][1] == (abs, 0)
    # The pool breaks and is replaced, while the caller has not yet seen what became of the call.
    turns.drop_processes()
    dead.futures[1][0].set_exception(BrokenProcessPool())
    turns.add_processes(alive, 1, abs)
    alive.futures[0][0].set_result(None)  # nothing to do for it yet
    assert len(alive.futures) == 1
    ((call, _, current),) = turns.results(wait=False)
    assert not current
    assert turns.requeue(call, wake=not current) == 1
    assert alive.futures[1][1] == (abs, 0)
