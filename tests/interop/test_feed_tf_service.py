"""`to_tensorflow(mode="ops")` under a real tf.data service of two workers, and under TensorFlow's auto-sharding."""

from __future__ import annotations

import os
import socket
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import rekord as rk

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf

ROWS = 61
ONCE, TWICE = Counter(range(ROWS)), Counter(dict.fromkeys(range(ROWS), 2))


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    """The address of a dispatcher with two workers. Static sharding needs to know theirs beforehand."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    kinds = tf.data.experimental.service
    dispatcher = kinds.DispatchServer(kinds.DispatcherConfig(port=0, worker_addresses=workers))
    target = dispatcher.target.partition("://")[2]
    running = [
        kinds.WorkerServer(
            kinds.WorkerConfig(
                dispatcher_address=target,
                worker_address=address,
                port=int(address.partition(":")[2]),
                heartbeat_interval_ms=100,  # a worker that stops waits for the next one
            )
        )
        for address in workers
    ]
    yield dispatcher.target
    dispatcher._stop()
    for worker in running:
        worker._stop()


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("service")
    rows = [{"number": number} for number in range(ROWS)]
    schema = rk.Schema({"number": rk.Int64()})
    for name, shards, compression in (("one", 1, None), ("three", 3, None), ("gzip", 3, "gzip")):
        asked: Any = {"schema": schema, "shards": shards, "compression": compression}
        rk.write(rows, folder / name, progress=False, workers=1, **asked)
    return {name: rk.open(folder / name)["train"] for name in ("one", "three", "gzip")}


def numbers(dataset: Any) -> Counter[int]:
    return Counter(int(number) for batch in dataset for number in batch["number"])


def shared(split: Any, service: str, policy: str, *, shuffle: bool) -> Any:
    """The dataset as the clients of a service read it."""
    mode = getattr(tf.data.experimental.service.ShardingPolicy, policy)
    dataset = split.to_tensorflow(4, mode="ops", shuffle=shuffle, seed=3)
    return dataset.apply(tf.data.experimental.service.distribute(processing_mode=mode, service=service))


@pytest.mark.parametrize(
    ("name", "policy", "shuffle", "expected"),
    [
        ("three", "OFF", True, TWICE),
        ("three", "DYNAMIC", False, ONCE),
        ("three", "DYNAMIC", True, ONCE),
        ("three", "FILE", False, ONCE),
        ("three", "FILE", True, ONCE),
        ("three", "DATA", False, ONCE),
        ("three", "DATA", True, ONCE),
        ("three", "FILE_OR_DATA", True, ONCE),
        ("gzip", "DYNAMIC", False, ONCE),
        ("gzip", "DYNAMIC", True, ONCE),
        ("gzip", "FILE", False, ONCE),
        ("one", "DYNAMIC", True, ONCE),
        ("one", "DATA", False, ONCE),
    ],
)
def test_workers_share_every_epoch_as_their_policy_says(
    name: str, policy: str, shuffle: bool, expected: Counter[int], splits: dict[str, Any], service: str
) -> None:
    dataset = shared(splits[name], service, policy, shuffle=shuffle)
    for _ in range(2 if policy == "DYNAMIC" else 1):
        assert numbers(dataset) == expected


def test_fewer_files_than_workers_are_refused_by_tensorflow(splits: dict[str, Any], service: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="only has 1 file"):
        numbers(shared(splits["one"], service, "FILE", shuffle=True))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["three", "gzip"])
def test_auto_sharding_gives_every_record_to_one_worker(name: str, shuffle: bool, splits: dict[str, Any]) -> None:
    """What `strategy.experimental_distribute_dataset` does on each of its workers."""
    from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset

    dataset = splits[name].to_tensorflow(4, mode="ops", shuffle=shuffle, seed=3)
    workers = [numbers(_AutoShardDataset(dataset, 2, index)) for index in range(2)]
    assert workers[0] + workers[1] == ONCE
    assert all(workers)


def test_files_come_in_an_order_by_the_seed_and_records_in_another_each_time(splits: dict[str, Any]) -> None:
    def epochs(seed: int) -> list[list[int]]:
        dataset = splits["three"].to_tensorflow(4, mode="ops", shuffle=True, seed=seed)
        return [[int(number) for batch in dataset for number in batch["number"]] for _ in range(2)]

    first, second = epochs(3)
    assert first != second
    assert epochs(3) == [first, second]
    assert epochs(4)[0] != first
