"""A function of rows that waits for other processes, so that a test can count them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sample_conversions import execute_conversion, read_tree

import rekord as rk

PATIENCE_SECONDS = 120


def meet(row: Any) -> Any:
    """The row itself, once as many processes as are wanted have called this function.

    It finds its folder in the environment: values that a function carries are part of the plan.
    """
    folder, wanted = os.environ["MEETING_FOLDER"], int(os.environ["MEETING_SIZE"])
    Path(folder, str(os.getpid())).touch()
    end = time.monotonic() + PATIENCE_SECONDS
    while len(os.listdir(folder)) < wanted:
        assert time.monotonic() < end, f"{os.listdir(folder)} of {wanted} processes came"
        time.sleep(0.005)
    return row if isinstance(row, Mapping) else {"item": str(row)}


def assert_processes_take_part(make: Any, tmp_path: Path, patch: pytest.MonkeyPatch, **options: Any) -> None:
    """Write what `make` returns with 1, 2 and 4 workers: as many processes call the function, and bytes are equal."""
    trees = {}
    for workers in (1, 2, 4):
        seen = tmp_path / f"seen-{workers}"
        seen.mkdir()
        patch.setenv("MEETING_FOLDER", str(seen))
        patch.setenv("MEETING_SIZE", str(workers))
        out = tmp_path / f"out-{workers}" / "data"
        result = execute_conversion(make(), out, {"map": meet, "workers": workers, **options})
        assert len(os.listdir(seen)) == workers
        assert (result.processes, result.processes_remark) == (workers, None)
        trees[workers] = read_tree(out)
        assert rk.open(out).records > 0
    assert trees[1] == trees[2] == trees[4]
