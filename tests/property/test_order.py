"""Laws of order and steps: a permutation, a partition, a suffix after every step, one sample for any world."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rekord.dataset.samplers import EpochOrder, RankSteps

SIZES = st.integers(0, 400)
ORDERS = st.builds(
    EpochOrder,
    kind=st.sampled_from(["sequential", "exact", "block"]),
    n=SIZES,
    seed=st.integers(0, 2**63 - 1),
    block=st.integers(1, 50),
    window=st.integers(1, 20),
    lanes=st.integers(1, 9),
) | st.builds(
    lambda local, nodes, **fields: EpochOrder("block", lanes=local * nodes, nodes=nodes, **fields),
    local=st.integers(1, 4),
    nodes=st.integers(2, 5),
    n=SIZES,
    seed=st.integers(0, 2**63 - 1),
    block=st.integers(1, 50),
    window=st.integers(1, 20),
)
WORLDS = st.integers(1, 9)
GOLDEN_OF_NODES = [7, 3, 22, 17, 11, 5, 14, 16, 9, 2, 12, 15, 6, 0, 23, 20, 10, 1, 21, 19, 8, 4, 13, 18]
BATCHES = st.integers(1, 40)
REMAINDERS = st.sampled_from(["keep", "drop", "pad"])


def whole(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.int64)


@given(order=ORDERS, epoch=st.integers(0, 5))
def test_an_order_is_a_permutation(order: EpochOrder, epoch: int) -> None:
    assert sorted(order.records(epoch, whole(order.n)).tolist()) == list(range(order.n))


@given(order=ORDERS, epoch=st.integers(0, 5), data=st.data())
def test_the_record_at_a_position_does_not_depend_on_what_is_asked_for_beside_it(
    order: EpochOrder, epoch: int, data: st.DataObject
) -> None:
    asked = data.draw(st.lists(st.integers(0, order.n - 1), max_size=20)) if order.n else []
    everything = order.records(epoch, whole(order.n))
    assert order.records(epoch, np.array(asked, np.int64)).tolist() == everything[asked].tolist()


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        tuple(EpochOrder(kind, 100, seed, block=7).records(epoch, whole(100)).tolist())
        for kind in ("exact", "block")
        for seed in (0, 1)
        for epoch in (0, 1)
    }
    assert len(orders) == 8


@given(
    n=st.integers(100, 2000),
    local=st.integers(1, 4),
    nodes=st.integers(1, 5),
    block=st.integers(1, 20),
    seed=st.integers(0, 9),
    epochs=st.lists(st.integers(0, 100), min_size=2, max_size=2, unique=True),
)
def test_a_node_reads_the_same_records_in_every_epoch(
    n: int, local: int, nodes: int, block: int, seed: int, epochs: list[int]
) -> None:
    order = EpochOrder("block", n, seed, block=block, lanes=local * nodes, nodes=nodes)
    parts = []
    for epoch in epochs:
        records = order.records(epoch, whole(n))
        lanes = [set(records[lane :: local * nodes].tolist()) for lane in range(local * nodes)]
        parts.append([set().union(*lanes[node * local : (node + 1) * local]) for node in range(nodes)])
    # The blocks that some nodes have more than others are shared at the end of an epoch.
    for first, second in zip(*parts, strict=True):
        assert len(first - second) <= nodes * (block + local)


def test_the_order_of_nodes_never_changes() -> None:
    # A saved state names the order by its seed and numbers alone.
    order = EpochOrder("block", 24, 7, block=3, window=2, lanes=4, nodes=2)
    assert order.records(0, whole(24)).tolist() == GOLDEN_OF_NODES
    assert order.to_dict() == {"kind": "block", "seed": 7, "block": 3, "window": 2, "lanes": 4, "nodes": 2}
    assert EpochOrder("block", 24, 7, block=5, lanes=8).resume(order.to_dict()) == order
    assert EpochOrder("block", 24, 7, block=5).resume({**order.to_dict(), "nodes": 3}).nodes == 1


def taken(steps: RankSteps) -> list[list[int]]:
    return [steps.positions(step).tolist() for step in range(len(steps))]


@given(n=SIZES, batch_size=BATCHES, world=WORLDS, remainder=REMAINDERS, consumed=SIZES)
def test_ranks_partition_what_is_left(n: int, batch_size: int, world: int, remainder: str, consumed: int) -> None:
    consumed = min(consumed, n)
    ranks = [RankSteps(n, batch_size, rank, world, remainder, consumed) for rank in range(world)]  # type: ignore[arg-type]
    batches = [taken(steps) for steps in ranks]
    flat = [p for rank in batches for batch in rank for p in batch]
    left = list(range(consumed, n))
    if remainder == "keep":
        assert sorted(flat) == left
        assert all(len(batch) > 0 for rank in batches for batch in rank)
    elif remainder == "drop":
        full = len(left) // (batch_size * world) * batch_size * world
        assert sorted(flat) == left[:full]
    else:
        padded = ranks[0].padded
        assert len(flat) == len(left) + padded
        assert set(left) <= set(flat)
    if remainder != "keep":
        assert all(len(batch) == batch_size for rank in batches for batch in rank)
        assert len({len(steps) for steps in ranks}) == 1


@given(n=SIZES, batch_size=BATCHES, world=WORLDS, remainder=REMAINDERS)
def test_after_every_step_the_rest_is_the_suffix(n: int, batch_size: int, world: int, remainder: str) -> None:
    steps = RankSteps(n, batch_size, world - 1, world, remainder)  # type: ignore[arg-type]
    everything = taken(steps)
    for step in range(len(steps)):
        resumed = RankSteps(n, batch_size, world - 1, world, remainder, steps.consumed_after(step))  # type: ignore[arg-type]
        assert taken(resumed) == everything[step + 1 :]


@given(n=SIZES, first=WORLDS, then=WORLDS, batch_size=BATCHES, data=st.data())
def test_another_world_goes_on_at_the_same_sample(
    n: int, first: int, then: int, batch_size: int, data: st.DataObject
) -> None:
    before = [RankSteps(n, batch_size, rank, first) for rank in range(first)]
    done = data.draw(st.integers(0, max(len(before[0]), 0)))
    seen = [p for steps in before for step in range(min(done, len(steps))) for p in steps.positions(step).tolist()]
    consumed = before[0].consumed_after(done - 1) if done else 0
    after = [RankSteps(n, batch_size, rank, then, consumed=consumed) for rank in range(then)]
    rest = [p for steps in after for batch in taken(steps) for p in batch]
    assert sorted(seen + rest) == list(range(n))


@given(n=SIZES, batch_size=BATCHES, workers=st.integers(1, 5))
def test_loader_workers_share_whole_steps(n: int, batch_size: int, workers: int) -> None:
    steps = RankSteps(n, batch_size)
    shared = [list(steps.worker_steps(worker, workers)) for worker in range(workers)]
    assert sorted(step for each in shared for step in each) == list(range(len(steps)))
    # The main process takes one of each worker in turn: that is the order without workers.
    turns = [shared[i % workers][i // workers] for i in range(len(steps))]
    assert turns == list(range(len(steps)))
