"""A split of 64 records, 16 batches of 4 an epoch, in an order that is another one in every epoch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rekord as rk

BATCH_SIZE = 4
OPTIONS: dict[str, Any] = {"shuffle": True, "seed": 3, "columns": ["n"]}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """These packages warn of each other's deprecations, and of few workers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> rk.Split:
    place: Path = tmp_path_factory.mktemp("loops") / "data"
    rows = [{"n": n, "x": [n / 64.0, 1.0]} for n in range(64)]
    schema = rk.Schema({"n": rk.Int64(), "x": rk.Float32(shape=(2,))})
    return rk.write(rows, place, schema=schema, split="train", shards=3, progress=False, workers=1)["train"]


@pytest.fixture
def make(split: rk.Split) -> Callable[..., Any]:
    """Makes another loader, or a dataset for a loader, as another process would."""

    def made(**given: Any) -> Any:
        return split.to_torch(BATCH_SIZE, **OPTIONS, **given)

    return made


@pytest.fixture(scope="session")
def expected(split: rk.Split) -> Callable[[int], list[list[int]]]:
    """The batches of an epoch."""

    def numbers(epoch: int) -> list[list[int]]:
        return [batch["n"].tolist() for batch in split.batches(BATCH_SIZE, epoch=epoch, **OPTIONS)]

    orders = [numbers(epoch) for epoch in range(8)]
    assert len({str(order) for order in orders}) == 8
    return lambda epoch: orders[epoch]
