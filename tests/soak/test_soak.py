"""Twenty gigabytes in less than one of memory: `make soak`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from sample_conversions import GeneratedSource, PeakMemory

import rekord as rk

SOAK_BYTES = int(float(os.environ.get("REKORD_SOAK_GB", "20")) * 10**9)
ROW_BYTES = 100_000
SPARE_BYTES = 2 * 10**9


@pytest.mark.long
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
def test_a_large_conversion_takes_less_than_a_gigabyte_of_memory(tmp_path: Path, shuffle: bool) -> None:
    # Spills and shards are there at the same time.
    needed = 2 * SOAK_BYTES + SPARE_BYTES
    free = shutil.disk_usage(tmp_path).free
    assert free >= needed, f"{free:,} bytes are free at {tmp_path}, and {needed:,} are needed (pytest --basetemp)"
    rows = SOAK_BYTES // ROW_BYTES
    with PeakMemory() as memory:
        rk.write(
            GeneratedSource(rows, ROW_BYTES),
            tmp_path / "data",
            shuffle=shuffle,
            split={"train": 0.99, "val": 0.01},
            stratify="label",
            workers=2,
            progress=False,
        )
    try:
        assert memory.peak_bytes < 10**9
        dataset = rk.open(tmp_path / "data")
        numbers = 0
        total = 0
        for name in dataset:
            for batch in dataset[name].batches(4096, columns=["number"]):
                numbers += len(batch["number"])
                total += int(batch["number"].sum())
        assert (numbers, total) == (rows, rows * (rows - 1) // 2)
    finally:
        shutil.rmtree(tmp_path / "data")
