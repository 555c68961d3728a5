"""The memory of a conversion is that of its parts, not that of its dataset."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sample_conversions import SUPPORT_FOLDER

# With small parts, so that a small dataset has many of them. A process of its own: what others left counts too.
SCRIPT = """
import sys
import rekord as rk
from sample_conversions import execute_conversion, use_small_parts, disable_fsync
from sample_conversions import GeneratedSource, PeakMemory

class Patch:
    setattr = staticmethod(setattr)

use_small_parts(Patch, part_bytes=4 << 20, run_bytes=2 << 20, piece_bytes=1 << 20)
disable_fsync(Patch)
rows, out, options = int(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
execute_conversion(GeneratedSource(100, 8192), out + "-first", options)
with PeakMemory() as memory:
    execute_conversion(GeneratedSource(rows, 8192), out, options)
print(memory.peak_bytes)
"""
ROWS = 8_000  # 64 MB
JOBS = {
    "in order": {"shard_size": "8MB"},
    "shuffled": {"shuffle": True, "shard_size": "8MB"},
    "stratified": {"shuffle": True, "stratify": "label", "split": {"train": 0.98, "val": 0.02}},
}


def peak_bytes(rows: int, out: Path, options: dict[str, object]) -> int:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(rows), str(out), repr(options)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "PYTHONPATH": SUPPORT_FOLDER},
    )
    return int(ran.stdout)


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.slow
def test_memory_is_flat(job: str, tmp_path: Path) -> None:
    once = peak_bytes(ROWS, tmp_path / "once", JOBS[job])
    twice = peak_bytes(2 * ROWS, tmp_path / "twice", JOBS[job])
    assert twice <= 1.1 * once + 16 * 2**20, f"{once:,} bytes for N rows, {twice:,} for 2N"
