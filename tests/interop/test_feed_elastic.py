"""A block-wise order goes on as it was begun, in every framework and in whatever world."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import rekord as rk

RECORDS = 90
OPTIONS: dict[str, Any] = {"shuffle": "block", "seed": 5, "remainder": "drop", "columns": ["n"]}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> rk.Split:
    out = tmp_path_factory.mktemp("elastic") / "data"
    rows = [{"n": n} for n in range(RECORDS)]
    schema = rk.Schema({"n": rk.Int64()})
    found = rk.write(rows, out, schema=schema, split="train", progress=False, workers=1)["train"]
    found.view.block_records = 2
    return found


@pytest.fixture(scope="module")
def state(split: rk.Split) -> dict[str, Any]:
    """Eight ranks after two steps of three records each."""
    batches = iter(split.batches(3, rank=0, world=8, **OPTIONS))
    next(batches), next(batches)
    found: dict[str, Any] = json.loads(json.dumps(batches.state_dict()))
    assert (found["consumed"], found["order"]["lanes"]) == (48, 8)
    return found


@pytest.fixture(scope="module")
def expected(split: rk.Split, state: dict[str, Any]) -> list[list[int]]:
    """What rank 1 of 2 then gets, in this epoch and the next."""
    batches = split.batches(4, rank=1, world=2, **OPTIONS)
    batches.load_state_dict(state)
    two_epochs = [batch["n"].tolist() for _ in range(2) for batch in batches]
    assert len(two_epochs) == 5 + 11
    return two_epochs


def torch_loader(workers: int) -> Callable[[rk.Split, Any], list[list[int]]]:
    def run(split: rk.Split, state: Any) -> list[list[int]]:
        feed = split.to_torch(4, rank=1, world=2, workers=workers, **OPTIONS)
        list(feed)  # workers are there before the state is loaded
        feed.load_state_dict(state)
        found = [batch["n"].tolist() for _ in range(2) for batch in feed]
        assert feed.state_dict()["order"] == state["order"]
        feed.close()
        return found

    return run


def torch_iterable(workers: int) -> Callable[[rk.Split, Any], list[list[int]]]:
    def run(split: rk.Split, state: Any) -> list[list[int]]:
        from torch.utils.data import DataLoader

        dataset = split.to_torch(4, style="iterable", rank=1, world=2, **OPTIONS)
        loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
        assert len(list(loader)) == 11
        dataset.load_state_dict(state)
        return [batch["n"].tolist() for _ in range(2) for batch in loader]

    return run


def jax(split: rk.Split, state: Any) -> list[list[int]]:
    feed = split.to_jax(4, rank=1, world=2, **OPTIONS)
    feed.load_state_dict(state)
    return [batch["n"].tolist() for _ in range(2) for batch in feed]


def tensorflow(split: rk.Split, state: Any) -> list[list[int]]:
    dataset = split.to_tensorflow(4, rank=1, world=2, state=state, **OPTIONS)
    return [batch["n"].numpy().tolist() for _ in range(2) for batch in dataset]


@pytest.mark.parametrize(
    "feed",
    [torch_loader(0), torch_loader(2), torch_iterable(0), torch_iterable(2), jax, tensorflow],
    ids=["torch", "torch workers", "iterable", "iterable workers", "jax", "tensorflow"],
)
def test_a_state_of_another_world_keeps_its_blocks_and_lanes(
    feed: Callable[[rk.Split, Any], list[list[int]]],
    split: rk.Split,
    state: dict[str, Any],
    expected: list[list[int]],
) -> None:
    assert feed(split, state) == expected
