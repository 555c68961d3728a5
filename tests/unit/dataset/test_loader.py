"""A loader is an iterable: every `iter()` is a whole epoch, the next one each time."""

from __future__ import annotations

import _thread
import gc
import json
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import rekord as rk

RECORDS = 53
WAYS = [{"threads": threads, "prefetch": prefetch} for threads, prefetch in [(1, 0), (1, 2), (3, 1)]]
KINDS = ["file order", "exact", "block", "view", "balanced", "mix", "concat", "mapped"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loader") / "data"
    rk.write(
        [{"n": n, "label": int(n % 7 == 0)} for n in range(RECORDS)],
        out,
        schema=rk.Schema({"n": rk.Int64(), "label": rk.Label(2)}),
        split="train",
        shards=5,
        progress=False,
        workers=1,
    )
    return out


@pytest.fixture
def split(folder: Path) -> rk.Split:
    return rk.open(folder)["train"]


def asked(split: rk.Split, kind: str) -> tuple[rk.Split, dict[str, Any]]:
    options: dict[str, Any] = {} if kind == "file order" else {"shuffle": True, "seed": 2}
    if kind == "block":
        options["shuffle"] = "block"
    views = {
        "view": lambda: split[3:40],
        "balanced": lambda: split.balanced("label"),
        "mix": lambda: rk.mix([(split, 0.6), (split[10:20], 0.4)]),
        "concat": lambda: rk.concat([split, split[:9]]),
        "mapped": lambda: split.map(lambda batch: {"n": batch["n"] + 1}),
    }
    return views.get(kind, lambda: split)(), options


def numbers(batches: Any) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def flat(batches: Any) -> list[int]:
    return [n for batch in numbers(batches) for n in batch]


# ---- Epochs ----


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_iter_is_the_next_epoch_however_the_last_one_was_left(
    split: rk.Split, kind: str, way: dict[str, int]
) -> None:
    part, options = asked(split, kind)
    epochs = [numbers(part.batches(8, epoch=epoch, **options, **way)) for epoch in range(6)]
    loader = part.batches(8, **options, **way)
    assert numbers(islice(loader, len(loader))) == epochs[0]  # exactly as many as there are
    assert numbers(loader) == epochs[1]
    for _ in loader:
        break
    assert numbers(loader) == epochs[3]
    iter(loader)  # nothing was asked of it: no epoch
    running = iter(loader)
    assert numbers(islice(running, 2)) == epochs[4][:2]
    assert numbers(loader) == epochs[5]
    assert numbers(running) == epochs[4][2:]


def test_a_loader_is_no_iterator(split: rk.Split) -> None:
    loader = split.batches(8)
    with pytest.raises(TypeError, match="'Batches' object is not an iterator"):
        next(loader)  # type: ignore[call-overload]
    assert not isinstance(loader, Iterator)
    assert isinstance(iter(loader), Iterator)


def test_the_length_is_that_of_a_whole_epoch(split: rk.Split) -> None:
    loader = split.batches(8, shuffle=True)
    running = iter(loader)
    next(running)
    assert len(loader) == 7
    loader.load_state_dict(running.state_dict())
    assert len(loader) == 7
    assert len(numbers(loader)) == 6


@pytest.mark.parametrize("way", WAYS)
def test_set_epoch_chooses_the_next_epoch(split: rk.Split, way: dict[str, int]) -> None:
    epochs = [numbers(split.batches(8, shuffle=True, epoch=epoch)) for epoch in range(8)]
    loader = split.batches(8, shuffle=True, **way)
    loader.set_epoch(4)
    assert (loader.epoch, loader.state_dict()["epoch"]) == (4, 4)
    assert numbers(loader) == epochs[4]
    assert numbers(loader) == epochs[5]
    loader.sampler.set_epoch(2)  # where Lightning looks for it
    assert numbers(islice(loader, 2)) == epochs[2][:2]
    loader.set_epoch(2)
    assert numbers(loader) == epochs[2]
    running = iter(loader)
    loader.set_epoch(7)  # as Lightning does: after iter(), before the first batch
    assert numbers(running) == epochs[7]
    with pytest.raises(rk.UsageError) as caught:
        loader.set_epoch(-1)
    assert caught.value.code == "U605"


def test_set_epoch_keeps_the_place_that_was_loaded_in_it(split: rk.Split) -> None:
    state = {**split.batches(8, shuffle=True).state_dict(), "epoch": 3, "consumed": 16, "checksum": None}
    epochs = [numbers(split.batches(8, shuffle=True, epoch=epoch)) for epoch in range(6)]
    loader = split.batches(8, shuffle=True)
    for epoch, expected in ((3, epochs[3][2:]), (4, epochs[4]), (5, epochs[5])):
        loader.load_state_dict(state)
        loader.set_epoch(epoch)
        assert numbers(loader) == expected


# ---- peek ----


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_peek_shows_the_next_batch_and_starts_nothing(split: rk.Split, kind: str, way: dict[str, int]) -> None:
    part, options = asked(split, kind)
    loader = part.batches(8, **options, **way)
    before = loader.state_dict()
    first = numbers(part.batches(8, **options))
    assert numbers([loader.peek(), loader.peek()]) == [first[0], first[0]]
    assert loader.state_dict() == before
    assert numbers(loader) == first
    second = numbers(part.batches(8, epoch=1, **options))
    assert numbers([loader.peek()]) == second[:1]
    running = iter(loader)
    next(running)
    assert loader.peek()["n"].tolist() != second[1]  # the next epoch's, not the rest of this one
    loader.load_state_dict(running.state_dict())
    assert numbers([loader.peek()]) == second[1:2]
    assert numbers(loader) == second[1:]


def test_peek_at_the_end_of_an_epoch_shows_the_next_one(split: rk.Split) -> None:
    loader = split.batches(8, shuffle=True)
    loader.load_state_dict({**loader.state_dict(), "consumed": RECORDS, "checksum": None})
    assert numbers([loader.peek()]) == numbers(split.batches(8, shuffle=True, epoch=1))[:1]
    assert numbers(loader) == []


def test_peek_at_nothing_is_refused(split: rk.Split) -> None:
    for loader in (split[:0].batches(8), split.batches(60, remainder="drop")):
        assert len(loader) == 0
        with pytest.raises(rk.UsageError) as caught:
            loader.peek()
        assert (caught.value.code, caught.value.what) == ("U606", "epoch has no batches")


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_looks_first_and_breaks_off_stays_in_step(split: rk.Split, kind: str) -> None:
    part, options = asked(split, kind)
    whole = [sorted(flat(part.batches(8, epoch=epoch, **options))) for epoch in range(4)]
    ranks = [part.batches(4, rank=rank, world=3, **options) for rank in range(3)]
    ranks[0].peek()
    for epoch in range(4):
        running = [iter(rank) for rank in ranks]
        ranks[0].peek()  # in the middle of an epoch it does no harm either
        taken = [n for one in running for n in flat(islice(one, len(ranks[0]) // 2))]
        if epoch % 2:
            continue  # all ranks break off
        ranks[0].peek()
        taken += [n for one in running for n in flat(one)]
        assert sorted(taken) == whole[epoch]
    ranks[1].set_epoch(2)
    for rank in (ranks[0], ranks[2]):
        rank.set_epoch(2)
    assert sorted(n for rank in ranks for n in flat(rank)) == whole[2]


# ---- States ----


def test_the_state_is_that_of_the_newest_iterator(split: rk.Split) -> None:
    loader = split.batches(8, shuffle=True)

    def place() -> tuple[int, int]:
        state = loader.state_dict()
        return state["epoch"], state["consumed"]

    assert place() == (0, 0)
    first = iter(loader)
    next(first)
    assert place() == (0, 8)
    second = iter(loader)
    assert place() == (1, 0)
    next(second), next(second)
    assert place() == (1, 16)
    next(first)
    assert place() == (1, 16)
    assert (first.state_dict()["epoch"], first.state_dict()["consumed"]) == (0, 16)
    assert (first.epoch, first.consumed) == (0, 16)
    del second
    assert place() == (1, 16)  # it is kept when the iterator is gone
    loader.load_state_dict(first.state_dict())
    assert place() == (0, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_resumes_in_the_same_loader_and_in_another(split: rk.Split, kind: str) -> None:
    part, options = asked(split, kind)
    epochs = [numbers(part.batches(8, epoch=epoch, **options)) for epoch in range(3)]
    loader = part.batches(8, **options)
    assert numbers(loader) == epochs[0]
    running = iter(loader)
    for step in range(len(loader) + 1):
        state = json.loads(json.dumps(loader.state_dict()))
        assert state == running.state_dict()
        other = part.batches(8, **options)
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert numbers(other) == epochs[1][step:]
        assert numbers(other) == epochs[2]
        if step < len(loader):
            next(running)
    assert numbers(running) == []


# ---- Lifetimes ----


@pytest.mark.parametrize("way", WAYS)
def test_with_closes_an_iterator_and_a_loader_the_newest_of_its(split: rk.Split, way: dict[str, int]) -> None:
    loader = split.batches(8, **way)
    with iter(loader) as running:
        next(running)
    assert numbers(running) == []
    with loader:
        running = iter(loader)
        next(running)
    assert numbers(running) == []
    assert len(flat(loader)) == RECORDS


@pytest.mark.parametrize("what", ["loader", "iterator"])
def test_neither_loader_nor_iterator_can_be_pickled(split: rk.Split, what: str) -> None:
    import pickle

    loader = split.batches(8)
    with pytest.raises(rk.UsageError) as caught:
        pickle.dumps(loader if what == "loader" else iter(loader))
    assert caught.value.code == "U607"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_stop_iteration_in_a_function_is_an_error_and_not_the_end(split, way, shuffle) -> None:
    left = iter(range(3))

    def run_out(batch: Any) -> Any:
        next(left)
        return batch

    loader = split.batches(8, shuffle=shuffle, map=run_out, **way)
    with pytest.raises(RuntimeError, match="StopIteration"):
        list(loader)
    assert loader.state_dict()["epoch"] == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_before_a_function_fails_are_delivered(split, way, shuffle) -> None:
    plain = numbers(split.batches(8, shuffle=shuffle))

    def fail(batch: Any) -> Any:
        if batch["n"].tolist() == plain[3]:
            raise ValueError("the fourth batch")
        return batch

    loader = split.batches(8, shuffle=shuffle, map=fail, **way)
    delivered: list[list[int]] = []
    with pytest.raises(ValueError, match="the fourth batch"):
        delivered.extend(batch["n"].tolist() for batch in loader)
    assert delivered == plain[:3]
    assert loader.state_dict()["consumed"] == 24


@pytest.mark.parametrize("way", WAYS)
def test_a_remainder_that_is_dropped_takes_no_failure_with_it(folder, tmp_path, way) -> None:
    path = tmp_path / "x.tfrecord"
    data = bytearray(b"".join(sorted(folder.glob("*.tfrecord"))[i].read_bytes() for i in range(5)))
    data[-5] ^= 1  # the last record: fewer than a batch come before it
    path.write_bytes(data)
    loader = rk.open(path, schema=rk.Schema({"n": rk.Int64()})).batches(8, remainder="drop", **way)
    delivered: list[int] = []
    with pytest.raises(rk.FrameError) as caught:
        delivered.extend(n for batch in loader for n in batch["n"].tolist())
    assert (caught.value.code, caught.value.location.record) == ("F102", RECORDS - 1)
    assert len(delivered) == (RECORDS - 1) // 8 * 8


def test_an_iterator_that_is_never_used_takes_nothing_from_another(split) -> None:
    loader = split.batches(8, shuffle=True)
    running, unused = iter(loader), iter(loader)
    next(running)
    assert (running.epoch, running.state_dict()["consumed"]) == (0, 8)
    assert (unused.epoch, unused.state_dict()["consumed"]) == (1, 0)
    assert unused.state_dict()["epoch"] == 1
    loader.close()
    assert next(running, None) is None
    assert flat(unused) == flat(split.batches(8, shuffle=True, epoch=1))


def send_interrupt() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


# `interrupt_main` ends no system call: for the thread, the signal has come just before it waits.
@pytest.mark.parametrize("send", [send_interrupt, _thread.interrupt_main])
@pytest.mark.concurrency
def test_an_interrupt_does_not_wait_for_a_function_that_hangs(split, send: Callable[[], None]) -> None:
    release, has_begun = threading.Event(), threading.Event()

    def hang(batch: Any) -> Any:
        has_begun.set()
        assert release.wait(300)
        return batch

    def interrupt() -> None:
        assert has_begun.wait(300)
        send()

    gc.collect()
    gc.disable()  # an interrupt that Python raises in a finalizer is lost
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            next(iter(split.batches(8, shuffle=True, map=hang, threads=2)))
        assert not release.is_set()  # it still hangs, and nobody waited for it
    finally:
        gc.enable()
        release.set()
        interrupting.join()
