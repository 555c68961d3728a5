"""torch's DataLoader with worker processes: one order for any number of them, epochs, states, failures, forks.

Each script runs in a process of its own, in which only torch was imported: other frameworks warn when one forks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

import rekord as rk
from rekord.testing import damage

ROWS = 103
SCHEMA = rk.Schema({"id": rk.Int64(), "tokens": rk.Int64(shape=(None,)), "name": rk.Text()})

HEAD = """
import json, sys
import torch
from torch.utils.data import DataLoader
import rekord as rk

torch.set_num_threads(1)
split = rk.open(sys.argv[1])["train"]
SAME = {"shuffle": True, "seed": 3}

def ids(batches):
    return [batch["id"].tolist() for batch in batches]
"""

WARNINGS = ["-W", "error", "-W", "ignore:This DataLoader will create:UserWarning"]


Run = Callable[[Path, str], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """What a script prints, as JSON."""
    with Forked("import torch.utils.data", *WARNINGS) as torch:

        def printed(place: Path, script: str) -> Any:
            (done,) = torch.run(HEAD + script, [str(place)])
            assert done.code == 0, done.err[-3000:]
            return json.loads(done.out)

        yield printed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workers") / "data"
    rows = [{"id": i, "tokens": range(i % 4), "name": f"row {i}"} for i in range(ROWS)]
    rk.write(rows, folder, schema=SCHEMA, shards=3, progress=False)
    return folder


def expected(place: Path, epoch: int, **more: Any) -> list[list[int]]:
    batches = rk.open(place)["train"].batches(10, shuffle=True, seed=3, epoch=epoch, **more)
    return [batch["id"].tolist() for batch in batches]


@pytest.fixture(scope="module")
def orders(run: Run, place: Path) -> dict[str, Any]:
    """Three epochs with each number of workers, persistent or not, then epoch 1 again and one after it."""
    return run(  # type: ignore[no-any-return]
        place,
        """
found = {}
for workers, persistent in [(0, False), (1, False), (2, False), (4, False), (1, True), (2, True), (4, True)]:
    dataset = split.to_torch(10, style="iterable", **SAME)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent)
    epochs = [ids(loader) for _ in range(3)]
    dataset.set_epoch(1)
    found[f"{workers} {persistent}"] = [*epochs, ids(loader), ids(loader), len(loader)]
print(json.dumps(found))
""",
    )


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_any_number_of_workers_gives_the_order_of_batches_in_every_epoch(
    place: Path, orders: dict[str, Any], workers: int, persistent: bool
) -> None:
    *epochs, length = orders[f"{workers} {persistent and workers > 0}"]
    assert length == 11
    assert epochs == [expected(place, epoch) for epoch in (0, 1, 2, 1, 2)]


@pytest.mark.concurrency
def test_what_was_broken_off_does_not_confuse_the_workers(run: Run, place: Path) -> None:
    found = run(
        place,
        """
dataset = split.to_torch(10, style="iterable", **SAME)
found = []
for workers, persistent in [(2, False), (4, True), (2, True)]:
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=persistent)
    next(iter(loader))
    for batch in loader:
        break
    found.append(ids(loader))
print(json.dumps(found))
""",
    )
    assert found == [expected(place, epoch) for epoch in (2, 5, 8)]


@pytest.mark.concurrency
def test_ranks_and_workers_share_an_epoch(run: Run, place: Path) -> None:
    found = run(
        place,
        """
found = []
for rank in range(3):
    dataset = split.to_torch(10, style="iterable", rank=rank, world=3, remainder="keep", **SAME)
    found.append(ids(DataLoader(dataset, batch_size=None, num_workers=2)))
print(json.dumps(found))
""",
    )
    ranks = [expected(place, 0, rank=rank, world=3) for rank in range(3)]
    assert found == ranks
    assert sorted(value for rank in found for batch in rank for value in batch) == list(range(ROWS))


@pytest.mark.concurrency
def test_workers_that_are_spawned_do_the_same(place: Path, tmp_path: Path) -> None:
    # Spawned processes import the main module again: it has to be a file.
    script = tmp_path / "spawned.py"
    script.write_text(
        HEAD
        + """
if __name__ == "__main__":
    dataset = split.to_torch(10, style="iterable", ragged="pad", **SAME)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    rows = split.to_torch(style="map", columns=["id"])
    picked = DataLoader(rows, batch_size=25, num_workers=1, multiprocessing_context="spawn")
    print(json.dumps([ids(loader), ids(loader), ids(picked)]))
"""
    )
    done = subprocess.run(
        [sys.executable, *WARNINGS, str(script), str(place)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second, picked = json.loads(done.stdout)
    assert [first, second] == [expected(place, 0), expected(place, 1)]
    assert [value for batch in picked for value in batch] == list(range(ROWS))


@pytest.mark.concurrency
def test_our_loader_with_workers_is_saved_and_gone_on_with(run: Run, place: Path) -> None:
    found = run(
        place,
        """
whole = ids(split.batches(10, **SAME))
loader = split.to_torch(10, workers=2, **SAME)
states = [loader.state_dict()]
taken = []
for batch in loader:
    taken.append(batch["id"].tolist())
    states.append(loader.state_dict())
wrong = []
other = split.to_torch(10, workers=2, **SAME)
for step in (0, 1, 2, 5, 10, 11):
    next(iter(other))  # what is under way is let go
    other.load_state_dict(json.loads(json.dumps(states[step])))
    if ids(other) != whole[step:]:
        wrong.append(step)
    plain = split.batches(10, **SAME)
    plain.load_state_dict(states[step])
    if ids(plain) != whole[step:]:
        wrong.append(("numpy", step))
after = ids(other)
loader.set_epoch(1)
fourth = ids(split.to_torch(10, workers=4, epoch=1, **SAME))
print(json.dumps({"taken": taken, "consumed": [state["consumed"] for state in states], "wrong": wrong,
                  "after": [after, other.epoch, ids(loader), fourth], "length": len(loader)}))
""",
    )
    assert found["taken"] == expected(place, 0)
    assert found["consumed"] == [*range(0, 101, 10), ROWS]
    assert found["wrong"] == []
    second = expected(place, 1)
    assert found["after"] == [second, 1, second, second]
    assert found["length"] == 11


@pytest.mark.concurrency
def test_a_dataset_with_workers_goes_on_from_the_state_after_some_batches(run: Run, place: Path) -> None:
    found = run(
        place,
        """
from itertools import islice
dataset = split.to_torch(10, style="iterable", **SAME)
loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
ids(loader)
ids(islice(loader, 4))
state = dataset.state_after(4)
rest = []
for workers in (0, 1, 4):
    other = split.to_torch(10, style="iterable", **SAME)
    other.load_state_dict(state)
    loader = DataLoader(other, batch_size=None, num_workers=workers)
    rest.append([ids(loader), ids(loader)])
print(json.dumps([state["epoch"], state["consumed"], rest]))
""",
    )
    assert found == [1, 40, [[expected(place, 1)[4:], expected(place, 2)]] * 3]


@pytest.mark.concurrency
def test_a_worker_that_begins_late_does_not_take_what_was_loaded_since(run: Run, place: Path, tmp_path: Path) -> None:
    found = run(
        place,
        f"""
import os, time
go = {str(tmp_path / "go")!r}
def late(worker):
    while worker and not os.path.exists(go):
        time.sleep(0.01)
dataset = split.to_torch(10, style="iterable", **SAME)
loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True, worker_init_fn=late)
next(iter(loader))
dataset.load_state_dict({{**dataset.state_after(0), "epoch": 4, "consumed": 30, "checksum": None}})
open(go, "w").close()
print(json.dumps([ids(loader), ids(loader)]))
""",
    )
    assert found == [expected(place, 4)[3:], expected(place, 5)]


def test_large_and_small_columns_come_out_of_our_workers_as_they_are_without(run: Run, tmp_path: Path) -> None:
    schema = rk.Schema(
        {
            "id": rk.Int64(),
            "wide": rk.Float32(shape=(40_000,)),
            "blob": rk.Bytes(),
            "maybe": rk.Text(optional=True),
            "tags": rk.Text(shape=(2,)),
            "tfidf": rk.Sparse("float32", size=50),
        }
    )
    rows = [
        {
            "id": i,
            "wide": [i] * 40_000,
            "blob": bytes([i]) * 100_000,
            "maybe": None if i % 2 else f"text {i}",
            "tags": ["a", str(i)],
            "tfidf": ([1, i + 2], [0.5, i]),
        }
        for i in range(10)
    ]
    rk.write(rows, tmp_path / "data", schema=schema, progress=False)
    found = run(
        tmp_path / "data",
        """
def said(batch):
    blob = [[len(value), value[0]] for value in batch["blob"]]
    sparse = [part.tolist() for part in batch["tfidf"][:3]]
    return [list(batch), batch["id"].tolist(), batch["wide"][:, ::20_000].tolist(), blob,
            len(batch["maybe"]), batch["maybe"].tolist(), batch["tags"].tolist(), sparse, repr(batch["kept"])]
def kept(batch):
    batch["kept"] = torch.tensor([1.5, len(batch["id"])])
    return {"kept": None, **batch}
found = []
for workers in (0, 2):
    loader = split.to_torch(4, workers=workers, map=kept)
    found.append([])
    for batch in loader:
        batch["wide"] += 1  # private, and may be written to
        batch["id"] += 1
        found[-1].append(said(batch))
print(json.dumps(found))
""",
    )
    assert found[0] == found[1]
    assert found[0][0][:2] == [["kept", *schema], [1, 2, 3, 4]]
    assert found[0][0][5] == ["text 0", None, "text 2", None]


def test_every_form_of_column_comes_out_of_a_worker_whole(run: Run, place: Path) -> None:
    found = run(
        place,
        """
loader = split.to_torch(6, workers=1)
batch = next(iter(loader))
tokens = batch["tokens"]
print(json.dumps([type(tokens).__name__, tokens.values.tolist(), tokens.offsets.tolist(), tokens.valid,
                  type(batch["name"]).__name__, batch["name"].tolist()]))
""",
    )
    values = [value for i in range(6) for value in range(i % 4)]
    names = [f"row {i}" for i in range(6)]
    assert found == ["RaggedTensors", values, [0, 0, 1, 3, 6, 6, 7], None, "Strings", names]


@pytest.mark.concurrency
def test_a_failure_in_a_worker_is_told_in_our_words(run: Run, place: Path, tmp_path: Path) -> None:
    bad = tmp_path / "train-00000-of-00001.tfrecord"
    first = sorted(place.glob("*.tfrecord"))[0]
    bad.write_bytes(damage.corrupt_payload(first.read_bytes(), 15))
    found = run(
        tmp_path,
        """
schema = rk.Schema({"id": rk.Int64()})
split = rk.open(sys.argv[1], schema=schema)["train"]
found = []
loader = split.to_torch(10, workers=1)
taken = []
try:
    for batch in loader:
        taken.append([len(batch["id"]), loader.state_dict()["consumed"]])
except rk.RekordError as failure:
    found.append([taken, failure.code, failure.location.record])
dataset = split.to_torch(10, style="iterable")
rows = split.to_torch(style="map")
for made in (DataLoader(dataset, batch_size=None, num_workers=1), DataLoader(rows, num_workers=1, batch_size=20)):
    try:
        list(made)
    except RuntimeError as failure:
        found.append(str(failure))
print(json.dumps(found))
""",
    )
    assert found[0] == [[[10, 10], [5, 15]], "F102", 15]  # what was good before it, and no more
    for text in found[1:]:
        assert "FrameError F102: payload checksum does not match" in text
        assert "train-00000-of-00001.tfrecord, record 15" in text
    assert len(found) == 3


@pytest.mark.concurrency
def test_a_split_that_was_opened_and_used_before_a_fork_works_in_the_child(run: Run, place: Path) -> None:
    found = run(
        place,
        """
import os
running = iter(split.to_torch(10, **SAME))
next(running)
rows = split.to_torch(style="map")
before = rows[5]["id"].item()
held = split.view.shards._lock
held.acquire()  # as another thread of the parent may at the moment of a fork
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.close(reader)
    told = {"row": rows[7]["id"].item()}
    try:
        next(running)
    except rk.UsageError as failure:
        told["code"] = failure.code
    os.write(writer, json.dumps(told).encode())
    os._exit(0)
held.release()
os.close(writer)
told = json.loads(os.fdopen(reader).read())
os.waitpid(child, 0)
print(json.dumps([before, told, ids(running)]))
""",
    )
    assert found == [5, {"row": 7, "code": "U607"}, expected(place, 0)[1:]]
