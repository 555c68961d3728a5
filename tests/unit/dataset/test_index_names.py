"""Columns that are called like parts of the index, and what the first batch loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rekord as rk


@pytest.mark.parametrize("name", ["offset", "order:label"])
def test_a_label_that_is_called_like_a_part_of_the_index_leaves_it_right(name: str, tmp_path: Path) -> None:
    schema = rk.Schema({"n": rk.Int64(), name: rk.Label(3), "label": rk.Label(2)})
    rows = ({"n": i, name: i % 3, "label": i % 2} for i in range(50))
    split = rk.write(rows, tmp_path / "ds", schema=schema, progress=False)["train"]
    assert split[[49, 0, 7]]["n"].tolist() == [49, 0, 7]
    assert split[[49, 0, 7]][name].tolist() == [1, 0, 1]
    assert split.class_weights(by=name) == pytest.approx({0: 50 / 51, 1: 50 / 51, 2: 50 / 48})


def test_the_first_shuffled_batch_loads_no_framework_and_no_pandas(tmp_path: Path) -> None:
    rk.write(({"n": i, "label": i % 2} for i in range(50)), tmp_path / "ds", progress=False)
    program = (
        "import sys, rekord as rk\n"
        f"next(iter(rk.open({str(tmp_path / 'ds')!r}).batches(8, shuffle=True)))\n"
        "print(sorted({'pandas', 'polars', 'torch', 'tensorflow', 'jax', 'fsspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
