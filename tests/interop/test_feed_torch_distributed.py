"""Two real processes train one model over gloo: they share the data, and go on where they were killed."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import Forked

import rekord as rk

ROWS, BATCH, EPOCHS = 96, 8, 2
SCHEMA = rk.Schema({"id": rk.Int64(), "x": rk.Float32(shape=(4,)), "y": rk.Float32()})

TRAIN = """
import json, os, signal, sys
import torch
import torch.distributed as group
import rekord as rk

place, work, rank, world, batch_size, kill_after = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
torch.set_num_threads(1)
torch.manual_seed(0)
group.init_process_group("gloo", init_method=f"file://{work}/store-{world}-{kill_after}", rank=rank, world_size=world)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
split = rk.open(place)["train"]
loader = split.to_torch(batch_size, shuffle=True, seed=7, rank="auto", remainder="drop")

saved = os.path.join(work, "checkpoint.pt")
if os.path.exists(saved):
    found = torch.load(saved, weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    loader.load_state_dict(found["loader"])

log = open(os.path.join(work, f"rank-{rank}-of-{world}.jsonl"), "a")
step = 0
while True:
    for batch in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
        loss.backward()
        optimizer.step()
        print(json.dumps([loader.epoch, batch["id"].tolist()]), file=log, flush=True)
        step += 1
        if step == kill_after:
            if rank == 0:
                parts = {"model": model, "optimizer": optimizer, "loader": loader}
                torch.save({name: part.state_dict() for name, part in parts.items()}, saved)
            group.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
    if loader.epoch == 1:
        break
if rank == 0:
    with open(os.path.join(work, "weights.json"), "w") as file:
        json.dump([part.flatten().tolist() for part in model.module.parameters()], file)
group.barrier()
group.destroy_process_group()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("distributed") / "data"
    random = np.random.default_rng(1)
    x = random.normal(size=(ROWS, 4)).astype(np.float32)
    y = (x @ np.array([1, -2, 3, 0.5], np.float32)).astype(np.float32)
    rows = [{"id": i, "x": x[i], "y": y[i]} for i in range(ROWS)]
    rk.write(rows, folder, schema=SCHEMA, shards=3, progress=False)
    return folder


Train = Callable[..., list[int]]


@pytest.fixture(scope="module")
def train() -> Iterator[Train]:
    """Trains in processes that share the data, and gives the exit codes of all ranks."""
    environment = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    with Forked("import torch._dynamo, torch.distributed, torch.nn.parallel") as torch:

        def trained(place: Path, work: Path, *, world: int, batch_size: int, kill_after: int = 0) -> list[int]:
            work.mkdir(exist_ok=True)
            numbers = [map(str, (rank, world, batch_size, kill_after)) for rank in range(world)]
            ranks = [[str(place), str(work), *each] for each in numbers]
            ended = torch.run(TRAIN, *ranks, environment=environment)
            codes = [one.code for one in ended]
            assert set(codes) <= {0, -signal.SIGKILL}, ended[0].err[-2000:] + ended[-1].err[-2000:]
            return codes

        yield trained


def delivered(work: Path) -> dict[int, list[int]]:
    """The ids of each epoch, over all ranks of all runs."""
    found: dict[int, list[int]] = {}
    for log in sorted(work.glob("rank-*.jsonl")):
        for line in log.read_text().splitlines():
            epoch, ids = json.loads(line)
            found.setdefault(epoch, []).extend(ids)
    return found


def weights(work: Path) -> Any:
    return json.loads((work / "weights.json").read_text())


@pytest.fixture(scope="module")
def uninterrupted(train: Train, place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("uninterrupted")
    assert train(place, work, world=2, batch_size=BATCH) == [0, 0]
    return work


@pytest.mark.concurrency
def test_two_processes_share_each_epoch(uninterrupted: Path) -> None:
    epochs = delivered(uninterrupted)
    assert list(epochs) == list(range(EPOCHS))
    assert all(sorted(ids) == list(range(ROWS)) for ids in epochs.values())
    ranks = [(uninterrupted / f"rank-{rank}-of-2.jsonl").read_text().splitlines() for rank in (0, 1)]
    assert [len(lines) for lines in ranks] == [12, 12]


@pytest.mark.concurrency
def test_training_that_was_killed_reaches_the_same_weights(
    train: Train, place: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    killed = [-signal.SIGKILL, -signal.SIGKILL]
    assert train(place, tmp_path, world=2, batch_size=BATCH, kill_after=8) == killed
    assert {epoch: len(ids) for epoch, ids in delivered(tmp_path).items()} == {0: ROWS, 1: 2 * 2 * BATCH}
    assert train(place, tmp_path, world=2, batch_size=BATCH) == [0, 0]
    assert all(sorted(ids) == list(range(ROWS)) for ids in delivered(tmp_path).values())
    assert weights(tmp_path) == weights(uninterrupted)


@pytest.mark.concurrency
def test_training_goes_on_with_another_number_of_processes(train: Train, place: Path, tmp_path: Path) -> None:
    assert train(place, tmp_path, world=2, batch_size=BATCH, kill_after=3) == [-signal.SIGKILL] * 2
    assert train(place, tmp_path, world=1, batch_size=BATCH) == [0]
    epochs = delivered(tmp_path)
    assert list(epochs) == list(range(EPOCHS))
    assert all(sorted(ids) == list(range(ROWS)) for ids in epochs.values())
