"""Two real processes under MultiWorkerMirroredStrategy share a dataset: nothing twice, nothing lost."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rekord as rk

ROWS = 61
BATCH = 4

WORKER = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
folder, index = sys.argv[1], int(sys.argv[2])
addresses = json.loads(sys.argv[3])
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
)
import tensorflow as tf
import rekord as rk

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = tf.Variable(0.0)
split = rk.open(folder)["train"]

@tf.function
def step(batch):
    def replica(values):
        return tf.reduce_sum(tf.cast(values["number"], tf.float32)), values["number"]
    own, numbers = strategy.run(replica, args=(batch,))
    return strategy.reduce("SUM", own, axis=None), numbers

modes = {}
for mode in ("native", "ops"):
    dataset = split.to_tensorflow(
        4, mode=mode, shuffle=True, seed=3, rank=index, world=len(addresses), remainder="drop"
    )
    shared = strategy.distribute_datasets_from_function(lambda context: dataset)
    modes[mode] = epochs = []
    for _ in range(2):
        seen = []
        for batch in shared:
            everywhere, numbers = step(batch)
            seen.append([strategy.experimental_local_results(numbers)[0].numpy().tolist(), float(everywhere)])
        epochs.append(seen)
print("SEEN", json.dumps(modes))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "set"
    rows = [{"number": number} for number in range(ROWS)]
    rk.write(rows, out, schema=rk.Schema({"number": rk.Int64()}), shards=3, progress=False)
    return out


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def modes(folder: Path) -> list[dict[str, list[list[Any]]]]:
    """For each rank and mode the epochs, each a list of steps: (the rank's own numbers, the sum over all ranks)."""
    addresses = json.dumps([f"127.0.0.1:{port}" for port in free_ports(2)])
    command = [sys.executable, "-c", WORKER, str(folder)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "GRPC_ENABLE_FORK_SUPPORT": "0"}
    workers = [
        subprocess.Popen(
            [*command, str(rank), addresses],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in (0, 1)
    ]
    try:
        told = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, messages) in zip(workers, told, strict=True):
        assert worker.returncode == 0, messages[-2000:]
    lines = [next(line for line in out.splitlines() if line.startswith("SEEN ")) for out, _ in told]
    return [json.loads(line[5:]) for line in lines]


@pytest.mark.parametrize("mode", ["native", "ops"])
def test_two_processes_share_every_epoch(folder: Path, modes: list[dict[str, list[list[Any]]]], mode: str) -> None:
    ranks = [rank[mode] for rank in modes]
    split = rk.open(folder)["train"]
    steps = ROWS // (BATCH * 2)
    for epoch in (0, 1):
        own = [[numbers for numbers, _ in rank[epoch]] for rank in ranks]
        assert [len(batches) for batches in own] == [steps, steps]
        seen = [number for batches in own for batch in batches for number in batch]
        assert len(seen) == len(set(seen)) == steps * BATCH * 2
        # Each step's sum went over both processes: they were in it together.
        for step in range(steps):
            both = sum(own[0][step]) + sum(own[1][step])
            assert [rank[epoch][step][1] for rank in ranks] == [both, both]
        if mode == "native":
            for rank in (0, 1):
                asked: Any = {"shuffle": True, "seed": 3, "rank": rank, "world": 2, "remainder": "drop"}
                expected = [batch["number"].tolist() for batch in split.batches(BATCH, epoch=epoch, **asked)]
                assert own[rank] == expected
