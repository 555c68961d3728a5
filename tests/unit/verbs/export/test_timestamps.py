"""Timestamps that a format cannot hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rekord as rk
from rekord.errors import RekordError
from rekord.verbs.export import tables


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    schema = rk.Schema({"at": rk.Timestamp(unit="s")})
    return rk.write([{"at": np.datetime64(1 << 60, "s")}], tmp_path / "data", schema=schema, progress=False)


def test_a_timestamp_beyond_what_parquet_holds_is_refused(dataset: rk.Dataset, tmp_path: Path) -> None:
    with pytest.raises(RekordError) as caught:
        rk.export(dataset, tmp_path / "x.parquet")
    assert caught.value.code == "U676"
    assert caught.value.what.startswith("timestamp is out of range for Parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_another_failure_of_arrow_is_not_called_one_of_timestamps() -> None:
    def fails(*_: object) -> None:
        raise pa.ArrowInvalid("column chunk is broken")

    with pytest.raises(pa.ArrowInvalid, match="column chunk is broken"):
        tables._write_group([pa.record_batch({"x": [1]})], 8, fails)
