"""Every feed is an iterable as `batches` is: each iteration is a whole epoch, however the last one was left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import rekord as rk

RECORDS = 53
OPTIONS: dict[str, Any] = {"shuffle": True, "seed": 2, "columns": ["n"]}
VIEWS: dict[str, Callable[[rk.Split], rk.Split]] = {
    "whole": lambda split: split,
    "balanced": lambda split: split.balanced("label"),
    "mix": lambda split: rk.mix([(split, 0.6), (split[10:20], 0.4)]),
}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> rk.Split:
    place: Path = tmp_path_factory.mktemp("epochs") / "data"
    rows = [{"n": n, "label": int(n % 7 == 0)} for n in range(RECORDS)]
    schema = rk.Schema({"n": rk.Int64(), "label": rk.Label(2)})
    return rk.write(rows, place, schema=schema, split="train", shards=3, progress=False, workers=1)["train"]


def numbers(batches: Iterable[Any]) -> list[list[int]]:
    return [[int(value) for value in batch["n"]] for batch in batches]


def iterable(workers: int) -> Callable[[rk.Split], Any]:
    def made(split: rk.Split) -> Any:
        from torch.utils.data import DataLoader

        dataset = split.to_torch(8, style="iterable", **OPTIONS)
        return DataLoader(dataset, batch_size=None, num_workers=workers)

    return made


FEEDS: dict[str, Callable[[rk.Split], Any]] = {
    "torch": lambda split: split.to_torch(8, **OPTIONS),
    "torch workers": lambda split: split.to_torch(8, workers=2, **OPTIONS),
    "iterable": iterable(0),
    "iterable workers": iterable(2),
    "jax": lambda split: split.to_jax(8, **OPTIONS),
    "tensorflow": lambda split: split.to_tensorflow(8, **OPTIONS),
}


# Views are the business of what makes batches; one feed of each kind shows that it is the same for all.
CASES = [(feed, "whole") for feed in FEEDS] + [("torch", "balanced"), ("jax", "mix"), ("iterable", "mix")]


@pytest.mark.concurrency
@pytest.mark.parametrize(("feed", "view"), CASES)
def test_every_iteration_is_the_next_epoch_however_the_last_one_was_left(
    split: rk.Split, feed: str, view: str
) -> None:
    part = VIEWS[view](split)
    epochs = [numbers(part.batches(8, epoch=epoch, **OPTIONS)) for epoch in range(6)]
    loader = FEEDS[feed](part)
    assert len(loader) == len(epochs[0])
    assert numbers(islice(loader, len(loader))) == epochs[0]  # exactly as many as there are
    assert numbers(loader) == epochs[1]
    assert numbers(islice(loader, 2)) == epochs[2][:2]
    assert numbers(loader) == epochs[3]
    assert numbers(loader) == epochs[4]


@pytest.mark.parametrize("feed", ["torch", "torch workers", "jax"])
@pytest.mark.concurrency
def test_a_rank_that_looks_first_and_breaks_off_stays_in_step(split: rk.Split, feed: str) -> None:
    def rank(number: int) -> Any:
        given: dict[str, Any] = {"rank": number, "world": 2, "remainder": "keep", **OPTIONS}
        if feed == "jax":
            return split.to_jax(4, **given)
        return split.to_torch(4, workers=2 if "workers" in feed else 0, **given)

    ranks = [rank(number) for number in range(2)]
    first = ranks[0].peek()
    assert numbers([first]) == numbers(split.batches(4, rank=0, world=2, **OPTIONS))[:1]
    for epoch in range(3):
        taken = [n for one in ranks for batch in numbers(one) for n in batch]
        assert sorted(taken) == list(range(RECORDS)), epoch
        ranks[0].peek()
    for one in ranks:
        numbers(islice(one, 2))  # all ranks break off
    parts = [[n for batch in numbers(one) for n in batch] for one in ranks]
    whole = [n for batch in numbers(split.batches(8, epoch=4, **OPTIONS)) for n in batch]
    assert [parts[p % 2][p // 2] for p in range(RECORDS)] == whole


@pytest.mark.parametrize("feed", ["torch", "torch workers", "jax"])
def test_a_state_resumes_at_the_next_iter(split: rk.Split, feed: str) -> None:
    epochs = [numbers(split.batches(8, epoch=epoch, **OPTIONS)) for epoch in range(4)]
    loader = FEEDS[feed](split)
    assert numbers(loader) == epochs[0]
    running = iter(loader)
    next(running), next(running)
    state = loader.state_dict()
    assert state == running.state_dict()
    assert numbers(loader) == epochs[2]
    loader.load_state_dict(state)
    assert numbers(loader) == epochs[1][2:]
    assert numbers(loader) == epochs[2]
    other = split.batches(8, **OPTIONS)
    other.load_state_dict(state)
    assert numbers(other) == epochs[1][2:]
    loader.sampler.set_epoch(3)
    assert numbers(loader) == epochs[3]


def test_grain_reads_every_epoch_whole(split: rk.Split) -> None:
    import grain

    from rekord.feeds.grain import make_data_source

    source = make_data_source(split, columns=["n"])
    dataset = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset().batch(8)
    assert len(numbers(islice(dataset, 7))) == 7
    next(iter(dataset))
    assert sorted(n for batch in numbers(dataset) for n in batch) == list(range(RECORDS))
    running = iter(dataset)
    next(running)
    state, rest = running.get_state(), numbers(running)
    again = iter(dataset)
    again.set_state(state)
    assert numbers(again) == rest
