"""A split as a data source of the real Grain: shuffled, batched, read by threads, and gone on with."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest

import rekord as rk
from rekord.feeds.grain import make_data_source

ROWS = 53
SCHEMA = rk.Schema({"id": rk.Int64(), "tokens": rk.Int64(shape=(None,)), "name": rk.Text()})


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Any:
    rows = [{"id": i, "tokens": range(i % 4), "name": f"row {i}"} for i in range(ROWS)]
    place = tmp_path_factory.mktemp("grain") / "data"
    return rk.write(rows, place, schema=SCHEMA, shards=3, progress=False)["train"]


def test_rows_are_those_of_the_split(split: Any) -> None:
    source = make_data_source(split)
    assert len(source) == ROWS
    assert (source[7]["id"], source[7]["tokens"].tolist(), source[7]["name"]) == (7, [0, 1, 2], "row 7")
    assert [row["id"] for row in source._getitems([5, 5, 2])] == [5, 5, 2]
    assert list(make_data_source(split[10:20], columns=["id"])[0]) == ["id"]
    assert [row["id"] for row in make_data_source(split[10:20])] == list(range(10, 20))
    with pytest.raises(IndexError) as caught:
        source[ROWS]
    assert caught.value.code == "U606"


def test_the_form_can_be_chosen(split: Any) -> None:
    source = make_data_source(split, map=lambda batch: {"double": batch["id"] * 2})
    assert source[4] == {"double": 8}


def test_a_source_pickles_and_is_named_alike_everywhere(split: Any) -> None:
    source = make_data_source(split)
    copied = pickle.loads(pickle.dumps(source))
    assert copied[5]["name"] == "row 5"
    assert repr(copied) == repr(source) == repr(make_data_source(split))
    assert repr(source) != repr(make_data_source(split[1:]))
    assert "0x" not in repr(source)


def test_grain_shuffles_and_batches_a_source(split: Any) -> None:
    source = make_data_source(split, columns=["id", "name"])
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    dataset = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset()
    seen = [int(row["id"]) for row in dataset]
    assert sorted(seen) == list(range(ROWS))
    assert seen != sorted(seen)
    batches = list(grain.MapDataset.source(source).batch(8))
    assert [batch["id"].tolist() for batch in batches][:2] == [list(range(8)), list(range(8, 16))]
    assert np.asarray(batches[0]["name"]).tolist() == [f"row {i}" for i in range(8)]


def test_grain_goes_on_from_its_own_state(split: Any) -> None:
    dataset = grain.MapDataset.source(make_data_source(split, columns=["id"])).shuffle(seed=1).to_iter_dataset()
    whole = [int(row["id"]) for row in dataset]
    running = iter(dataset)
    for _ in range(11):
        next(running)
    state = running.get_state()
    other = iter(dataset)
    other.set_state(state)
    assert [int(row["id"]) for row in other] == whole[11:]


LOADER = """
import sys
import grain
import rekord as rk
from absl import flags
from rekord.feeds.grain import make_data_source

if __name__ == "__main__":
    flags.FLAGS.mark_as_parsed()  # as absl.app.run does
    source = make_data_source(rk.open(sys.argv[1])["train"], columns=["id"])
    sampler = grain.samplers.IndexSampler(len(source), shuffle=True, seed=1, num_epochs=1)
    loader = grain.DataLoader(data_source=source, sampler=sampler, worker_count=2)
    print(*[int(row["id"]) for row in loader])
"""


def test_worker_processes_of_grain_read_a_source(split: Any, tmp_path: Path) -> None:
    script = tmp_path / "load.py"
    script.write_text(LOADER)
    done = subprocess.run(
        [sys.executable, str(script), str(Path(split.paths[0]).parent)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(map(int, done.stdout.split())) == list(range(ROWS))
