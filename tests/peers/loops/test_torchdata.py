"""torchdata's StatefulDataLoader and nodes: every epoch whole, and a resume at any step of any epoch."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from torchdata.nodes import IterableWrapper, Loader, Prefetcher
from torchdata.stateful_dataloader import StatefulDataLoader

Make = Callable[..., Any]
Expected = Callable[[int], list[list[int]]]

STEPS = [0, 1, 7, 15, 16]


def stateful(make: Make, workers: int, **given: Any) -> Any:
    return StatefulDataLoader(make(style="iterable"), batch_size=None, num_workers=workers, **given)


def numbers(batches: Any) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_iter_is_a_whole_epoch(make: Make, expected: Expected, workers: int) -> None:
    loader = stateful(make, workers)
    assert numbers(islice(loader, len(loader))) == expected(0)
    assert numbers(loader) == expected(1)
    assert numbers(islice(loader, 3)) == expected(2)[:3]
    assert numbers(loader) == expected(3)


@pytest.mark.parametrize("given", [{}, {"snapshot_every_n_steps": 3}], ids=["each step", "every 3 steps"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_a_state_of_any_step_resumes_there(
    make: Make, expected: Expected, epoch: int, workers: int, given: dict[str, Any]
) -> None:
    loader = stateful(make, workers, **given)
    for number in range(epoch):
        assert numbers(loader) == expected(number)
    states = []
    running = iter(loader)
    for step in range(len(loader) + 1):
        if step in STEPS:
            states.append((step, json.loads(json.dumps(loader.state_dict()))))
        if step < len(loader):
            assert next(running)["n"].tolist() == expected(epoch)[step]
    for step, state in states:
        resumed = stateful(make, workers, **given)
        resumed.load_state_dict(state)
        assert numbers(resumed) == expected(epoch)[step:]
        assert numbers(resumed) == expected(epoch + 1)
        assert numbers(resumed) == expected(epoch + 2)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_state_after_the_end_is_the_next_epoch(make: Make, expected: Expected, epoch: int, workers: int) -> None:
    loader = stateful(make, workers)
    for _ in range(epoch + 1):
        numbers(loader)
    resumed = stateful(make, workers)
    resumed.load_state_dict(loader.state_dict())
    assert numbers(resumed) == expected(epoch + 1)
    assert numbers(resumed) == expected(epoch + 2)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_was_used_goes_back_to_a_state(make: Make, expected: Expected, workers: int) -> None:
    loader = stateful(make, workers)
    numbers(loader)
    list(islice(loader, 5))
    state = loader.state_dict()
    assert numbers(loader) == expected(2)
    loader.load_state_dict(state)
    assert numbers(loader) == expected(1)[5:]
    assert numbers(loader) == expected(2)


def test_workers_that_stay_resume_too(make: Make, expected: Expected) -> None:
    loader = stateful(make, 2, persistent_workers=True)
    numbers(loader)
    list(islice(loader, 5))
    resumed = stateful(make, 2, persistent_workers=True)
    resumed.load_state_dict(loader.state_dict())
    assert numbers(resumed) == expected(1)[5:]
    assert numbers(resumed) == expected(2)


def test_a_state_of_other_workers_is_refused(make: Make) -> None:
    loader = stateful(make, 2)
    list(islice(loader, 5))
    resumed = stateful(make, 3)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="state belongs to another worker"):
        numbers(resumed)


# ---- torchdata.nodes ----


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ahead", [0, 2])
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_node_resumes_at_any_step(make: Make, expected: Expected, epoch: int, ahead: int, workers: int) -> None:
    def nodes() -> Any:
        root: Any = IterableWrapper(make(workers=workers))
        return Loader(Prefetcher(root, prefetch_factor=ahead) if ahead else root)

    loader = nodes()
    for number in range(epoch):
        assert numbers(loader) == expected(number)
    states = []
    running = iter(loader)
    for step in range(16):
        if step in STEPS:
            states.append((step, loader.state_dict()))
        assert next(running)["n"].tolist() == expected(epoch)[step]
    for step, state in states:
        resumed = nodes()
        resumed.load_state_dict(state)
        assert numbers(resumed) == expected(epoch)[step:]
        assert numbers(resumed) == expected(epoch + 1)
