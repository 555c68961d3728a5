"""Laws of real iterators: an epoch is a permutation, ranks and workers share it, and a state goes on anywhere."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rekord as rk
from rekord.dataset.batches import Batches, make_worker_request

RECORDS = 53
KINDS = ["streamed", "exact", "block", "view", "view exact", "view block", "balanced", "mix", "mix in order"]
THREADS = [{"threads": threads, "prefetch": prefetch} for threads in (1, 2) for prefetch in (0, 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("laws") / "data"
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


def asked(folder: Path, kind: str) -> tuple[rk.Split, dict[str, Any]]:
    """A split, and how its batches are asked for."""
    split = rk.open(folder)["train"]
    split.view.block_records = 4  # a window is 64 records otherwise, and there are none to shuffle between
    options: dict[str, Any] = {"seed": 11}
    if kind != "streamed" and "in order" not in kind:
        options["shuffle"] = "block" if "block" in kind else kind != "view"
    if kind.startswith("view"):
        split = split[50:3:-2]
    if kind == "balanced":
        split = split.balanced("label")
    if kind.startswith("mix"):
        split = rk.mix([(split, 0.6), (split[10:20], 0.4)])
    return split, options


def numbers(batches: Iterator[dict[str, Any]]) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def flat(batches: Iterator[dict[str, Any]]) -> list[int]:
    return [n for batch in numbers(batches) for n in batch]


@pytest.mark.parametrize("kind", ["streamed", "exact", "block", "view", "view exact", "view block"])
def test_an_epoch_has_every_record_once(folder: Path, kind: str) -> None:
    split, options = asked(folder, kind)
    expected = sorted(range(50, 3, -2)) if kind.startswith("view") else list(range(RECORDS))
    for epoch in range(3):
        assert sorted(flat(split.batches(8, epoch=epoch, **options))) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_threads_prefetch_and_batch_size_do_not_change_an_order(folder: Path, kind: str) -> None:
    split, options = asked(folder, kind)
    expected = flat(split.batches(1, threads=1, prefetch=0, **options))
    assert len(expected) == len(split)
    for batch_size, threads, prefetch in ((7, 2, 0), (7, 1, 2), (10, 3, 5), (1000, 2, 2)):
        found = flat(split.batches(batch_size, threads=threads, prefetch=prefetch, **options))
        assert found == expected


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("world", "workers"), [(1, 2), (2, 1), (2, 3), (3, 2), (7, 4)])
def test_ranks_and_workers_share_an_epoch(folder: Path, kind: str, world: int, workers: int, remainder: str) -> None:
    split, options = asked(folder, kind)
    # A block-wise order has as many lanes as its first world has ranks.
    whole = _in_order(split, world, 0, None, options)
    taken: list[int] = []
    lengths = set()
    for rank in range(world):
        request = split.request(4, rank=rank, world=world, remainder=remainder, **options)  # type: ignore[arg-type]
        request = pickle.loads(pickle.dumps(request))
        shares = [numbers(Batches(make_worker_request(request, worker, workers))) for worker in range(workers)]
        alone = numbers(Batches(request))
        assert [shares[i % workers][i // workers] for i in range(len(alone))] == alone
        lengths.add(len(alone))
        taken += [n for batch in alone for n in batch]
    step = 4 * world
    if remainder == "keep":
        assert Counter(taken) == Counter(whole)
    elif remainder == "drop":
        assert Counter(taken) == Counter(whole[: len(whole) // step * step])
    else:
        wrapped = whole * (1 + step // len(whole) + 1)
        assert Counter(taken) == Counter(wrapped[: -(-len(whole) // step) * step])
    assert remainder == "keep" or len(lengths) == 1


@pytest.mark.parametrize("remainder", ["keep", "drop", "pad"])
@pytest.mark.parametrize("way", THREADS)
@pytest.mark.parametrize("kind", KINDS)
def test_from_every_step_a_state_goes_on_with_the_rest(
    folder: Path, kind: str, way: dict[str, int], remainder: Any
) -> None:
    split, options = asked(folder, kind)
    options |= {"remainder": remainder, "epoch": 2}
    whole = numbers(split.batches(7, **options, **way))
    going = iter(split.batches(7, **options, **way))
    resumed = split.batches(7, **options, **way)
    for step in range(len(whole) + 1):
        state = json.loads(json.dumps(going.state_dict()))
        assert len(json.dumps(state)) < 1000
        resumed.load_state_dict(state)
        assert numbers(resumed) == whole[step:]
        if step < len(whole):
            next(going)


@pytest.mark.parametrize("kind", KINDS)
def test_eight_ranks_go_on_as_six_at_the_same_sample(folder: Path, kind: str) -> None:
    split, options = asked(folder, kind)
    whole = _in_order(split, 8, 0, None, options)
    for steps in range(4):
        before = [split.batches(2, rank=rank, world=8, **options) for rank in range(8)]
        for one in before:
            running = iter(one)
            for _ in range(min(steps, len(one))):
                next(running)
        states = [json.loads(json.dumps(one.state_dict())) for one in before]
        consumed = min(steps * 16, len(whole))
        assert max(state["consumed"] for state in states) == consumed
        state = next(state for state in states if state["consumed"] == consumed)
        assert _in_order(split, 6, consumed, state, options) == whole[consumed:]
        # And from there back to one process, whose state the six can take again.
        assert _in_order(split, 1, consumed, state, options) == whole[consumed:]


@settings(max_examples=30)
@given(
    worlds=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    batch_size=st.integers(1, 5),
    kind=st.sampled_from(KINDS),
    data=st.data(),
)
def test_a_state_goes_through_any_worlds_and_nothing_is_lost(
    folder: Path, worlds: list[int], batch_size: int, kind: str, data: st.DataObject
) -> None:
    split, options = asked(folder, kind)
    first = worlds[0]
    whole = _in_order(split, first, 0, None, options)
    state: dict[str, Any] | None = None
    consumed = 0
    for world in worlds:
        ranks = [split.batches(batch_size, rank=rank, world=world, **options) for rank in range(world)]
        for one in ranks:
            if state is not None:
                one.load_state_dict(state)
        steps = data.draw(st.integers(0, (len(whole) - consumed) // (batch_size * world)))
        taken: Counter[int] = Counter()
        running = [iter(one) for one in ranks]
        for each in running:
            for _ in range(steps):
                taken.update(next(each)["n"].tolist())
        after = consumed + steps * batch_size * world
        assert taken == Counter(whole[consumed:after])
        states = [each.state_dict() for each in running]
        assert all(one == states[0] for one in states)
        assert states == [one.state_dict() for one in ranks]
        state, consumed = json.loads(json.dumps(states[0])), after
    assert _in_order(split, 2, consumed, state, options) == whole[consumed:]


def _in_order(
    split: rk.Split, world: int, consumed: int, state: dict[str, Any] | None, options: dict[str, Any]
) -> list[int]:
    """What all ranks deliver from a position on, by position: rank p mod world has position p."""
    ranks = []
    for rank in range(world):
        one = split.batches(3, rank=rank, world=world, **options)
        if state is not None:
            one.load_state_dict(state)
        ranks.append(flat(one))
    left = sum(map(len, ranks))
    return [ranks[p % world].pop(0) for p in range(consumed, consumed + left)]
