"""Work on background threads: in order, and ended by a signal that waits for nothing."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lifetimes import ended, eventually, threads_of

import rekord as rk
from rekord.dataset.readers import pipeline
from rekord.dataset.readers.pipeline import OrderedWork

pytestmark = pytest.mark.concurrency


def work(items: Iterator[Any], make: Any = lambda item: item, **given: Any) -> OrderedWork[Any, Any]:
    given = {"threads": 2, "ahead": 4, "name": "test", **given}
    return OrderedWork(lambda: next(items, None), make, **given)


def drained(made: OrderedWork[Any, Any]) -> list[Any]:
    found = []
    while True:
        try:
            found.append(next(made))
        except StopIteration:
            return found


@pytest.mark.parametrize(("threads", "ahead"), [(1, 1), (1, 5), (3, 3), (4, 20)])
def test_results_come_in_order(threads: int, ahead: int) -> None:
    made = work(iter(range(200)), lambda item: item * 2, threads=threads, ahead=ahead)
    assert drained(made) == [item * 2 for item in range(200)]
    made.close()


def test_no_more_than_asked_is_made_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1, 100):
            taken.append(item)
            yield item

    made = work(items(), threads=3, ahead=5)
    assert next(made) == 1
    assert eventually(lambda: len(taken) == 5)
    assert next(made) == 2
    assert eventually(lambda: len(taken) == 6)
    made.close()
    assert len(taken) == 6


@pytest.mark.parametrize("where", ["take", "make"])
def test_a_failure_comes_in_its_turn(where: str) -> None:
    raised = KeyError("as it was")

    def items() -> Iterator[int]:
        yield from range(1, 6)
        if where == "take":
            raise raised

    def make(item: int) -> int:
        if where == "make" and item == 5:
            raise raised
        return item

    made = work(items(), make)
    found = [next(made) for _ in range(4 if where == "make" else 5)]
    assert found == list(range(1, len(found) + 1))
    with pytest.raises(KeyError) as caught:
        next(made)
    assert caught.value is raised
    made.close()


@pytest.mark.parametrize("leave", ["close", "drop"])
def test_the_last_thread_closes_what_was_open(leave: str) -> None:
    closed: list[threading.Thread] = []
    made = work(iter(range(1000)), threads=3, on_end=lambda: closed.append(threading.current_thread()))
    next(made)
    threads = list(made._threads)
    assert closed == []
    if leave == "close":
        made.close()
        assert not any(one.is_alive() for one in threads)
    del made
    assert ended(threads)
    assert len(closed) == 1
    assert closed[0] in threads


def test_a_finalizer_waits_for_nothing() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def make(item: int) -> int:
        if item > 1:
            begun.set()
            may_end.wait()
        return item

    made = work(iter(range(1, 100)), make, threads=1)
    assert next(made) == 1
    begun.wait()
    threads = list(made._threads)
    del made  # comes back although the thread is in the middle of its work
    assert all(one.is_alive() for one in threads)
    may_end.set()
    assert ended(threads)


def test_a_finalizer_may_run_while_the_lock_of_its_threads_is_held() -> None:
    cycle: list[Any] = [work(iter(range(1, 100)))]
    cycle.append(cycle)
    next(cycle[0])
    shared, threads = cycle[0]._shared, list(cycle[0]._threads)
    with shared.turn:
        del cycle
        gc.collect()
        assert shared.stopped
    assert ended(threads)


def test_after_close_nothing_comes() -> None:
    made = work(iter(range(1, 100)))
    next(made)
    made.close()
    made.close()
    assert drained(made) == []


# ---- Whole programs ----


def run(folder: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    begin = f"import rekord as rk\nsplit = rk.open({str(folder)!r})['train']\n"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", begin + program],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("background") / "data"
    rows = ({"n": n} for n in range(2000))
    schema = rk.Schema({"n": rk.Int64()})
    rk.write(rows, out, schema=schema, split="train", shards=4, progress=False, workers=1)
    return out


@pytest.mark.slow
@pytest.mark.parametrize("shuffle", [True, False])
def test_collecting_abandoned_iterators_never_hangs(folder: Path, shuffle: bool) -> None:
    done = run(
        folder,
        f"""
import threading, time
for n in range({1500 if shuffle else 300}):
    h = type("T", (), {{}})(); h.me = h
    h.it = iter(split.batches(64, shuffle={shuffle}, threads=2)); next(h.it)
del h
import gc; gc.collect()
deadline = time.monotonic() + 120
while threading.active_count() > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(threading.active_count())
""",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("left", ["running", "cycle", "exception"])
def test_a_program_that_ends_in_the_middle_of_an_epoch_ends_quietly(folder: Path, left: str, shuffle: bool) -> None:
    done = run(
        folder,
        f"""
import sys
running = [iter(split.batches(8, shuffle={shuffle}, threads=3, prefetch=5)) for _ in range(5)]
for one in running:
    next(one)
if {left!r} == "cycle":
    running.append(running)
    del running
if {left!r} == "exception":
    sys.exit(3)
""",
    )
    assert (done.returncode, done.stdout, done.stderr) == (3 if left == "exception" else 0, "", "")


def test_the_finalizer_does_nothing_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    made = work(iter(()))
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "os", None)  # as modules are cleared
        made.__del__(lambda: True)


# ---- How many threads there are by default ----


def rows_file(path: Path, row_bytes: int) -> Any:
    with rk.Writer(path, rk.Schema({"x": rk.Bytes()})) as writer:
        for n in range(40):
            writer.write({"x": bytes([n]) * row_bytes})
    return rk.open(path, schema=rk.Schema({"x": rk.Bytes()}))


@pytest.mark.parametrize(
    ("row_bytes", "options", "has_threads"),
    [
        (100, {}, False),
        (100, {"threads": 1}, True),  # with a prefetch of 2
        (100, {"map": lambda batch: batch}, True),
        (100, {"shuffle": True}, True),
        (100_000, {}, True),
    ],
    ids=["small", "threads given", "map", "shuffled", "large"],
)
def test_small_batches_that_are_only_decoded_take_no_threads(
    tmp_path: Path, row_bytes: int, options: dict[str, Any], has_threads: bool
) -> None:
    split = rows_file(tmp_path / "x.tfrecord", row_bytes)
    with iter(split.batches(8, **options)) as running:
        rows = next(running)["x"].tolist()
        assert bool(threads_of(running)) == has_threads
        for batch in running:
            rows += batch["x"].tolist()
    assert sorted(rows) == [bytes([n]) * row_bytes for n in range(40)]


@pytest.mark.parametrize("count", [0, 3])
def test_fewer_records_than_a_batch_come_whole(tmp_path: Path, count: int) -> None:
    path = tmp_path / "x.tfrecord"
    with rk.Writer(path, rk.Schema({"x": rk.Int64()})) as writer:
        for n in range(count):
            writer.write({"x": n})
    batches = rk.open(path, schema=rk.Schema({"x": rk.Int64()})).batches(8)
    assert [batch["x"].tolist() for batch in batches] == ([[0, 1, 2]] if count else [])
