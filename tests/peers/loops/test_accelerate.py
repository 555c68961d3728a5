"""accelerate: every epoch has all of its batches, and its state resumes where it was saved."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader

Make = Callable[..., Any]
Expected = Callable[[int], list[list[int]]]


def numbers(batches: Any) -> list[list[int]]:
    return [batch["n"].tolist() for batch in batches]


def prepared(make: Make, workers: int) -> Any:
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    return accelerator.prepare(DataLoader(make(style="iterable"), batch_size=None, num_workers=workers))


def test_our_own_loader_is_taken_as_it_is(make: Make, expected: Expected) -> None:
    loader = Accelerator(cpu=True).prepare(make())
    assert numbers(islice(loader, 16)) == expected(0)
    assert numbers(islice(loader, 3)) == expected(1)[:3]
    state = loader.state_dict()
    assert numbers(loader) == expected(2)
    loader.load_state_dict(state)
    assert numbers(loader) == expected(1)[3:]


@pytest.mark.parametrize("workers", [0, 2])
def test_every_epoch_has_all_of_its_batches(make: Make, expected: Expected, workers: int) -> None:
    loader = prepared(make, workers)
    assert [numbers(loader) for _ in range(3)] == [expected(epoch) for epoch in range(3)]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("epoch", [0, 1, 2])
@pytest.mark.parametrize("step", [1, 7, 15])
def test_a_state_resumes_with_the_batches_that_are_left(
    make: Make, expected: Expected, step: int, epoch: int, workers: int
) -> None:
    loader = prepared(make, workers)
    for number in range(epoch):
        assert numbers(loader) == expected(number)
    for taken, batch in enumerate(loader, start=1):
        assert batch["n"].tolist() == expected(epoch)[taken - 1]
        if taken == step:
            break
    resumed = prepared(make, workers)
    resumed.load_state_dict(loader.state_dict())
    assert numbers(resumed) == expected(epoch)[step:]
    # accelerate counts epochs itself, and forgets how many there were.
    resumed.set_epoch(epoch + 1)
    assert numbers(resumed) == expected(epoch + 1)
