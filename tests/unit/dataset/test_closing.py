"""What is open is closed at the end of a `with` block."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import rekord as rk

pytestmark = pytest.mark.concurrency


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    return rk.write([{"x": i} for i in range(500)], tmp_path / "data", shards=2, progress=False)


def open_shards(folder: str) -> list[str]:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    found = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [path for path in found if path.startswith(folder)]


def test_a_loader_ends_its_threads_and_closes_its_files(dataset: rk.Dataset) -> None:
    with dataset["train"].batches(5, threads=2, prefetch=2) as loader:
        iterator = iter(loader)
        next(iterator)
        own = [one for one in threading.enumerate() if one.name.startswith("rekord-decode")]
        assert own
    assert not any(one.is_alive() for one in own)
    with pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_records_closes_its_file(dataset: rk.Dataset) -> None:
    folder = os.path.dirname(dataset["train"].paths[0])
    with rk.records(dataset["train"].paths) as payloads:
        first = next(payloads)
        assert len(open_shards(folder)) == 1
    assert open_shards(folder) == []
    assert first == rk.encode({"x": 0}, dataset.schema)
    with pytest.raises(StopIteration):
        next(payloads)


def test_a_dataset_can_be_used_after_its_block(dataset: rk.Dataset) -> None:
    with dataset as opened:
        assert opened["train"][3]["x"] == 3
    assert dataset["train"][4]["x"] == 4
