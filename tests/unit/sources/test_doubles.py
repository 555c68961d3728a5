"""Doubles without a declared type: float32 may take digits from them, but makes no value another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import rekord as rk

TIMES = [1700000000.25, 1700000000.5, 1700000001.0]


def csv(folder: Path, values: list[Any]) -> Any:
    (folder / "t.csv").write_text("t\n" + "".join(f"{value!r}\n" for value in values))
    return rk.sources.csv(folder / "t.csv")


def parquet_file(folder: Path, values: list[Any]) -> Any:
    parquet.write_table(pa.table({"t": pa.array(values, pa.float64())}), folder / "t.parquet")
    return rk.sources.parquet(folder / "t.parquet")


def arrow_file(folder: Path, values: list[Any]) -> Any:
    feather.write_feather(pa.table({"t": pa.array(values, pa.float64())}), str(folder / "t.arrow"))
    return rk.sources.arrow(folder / "t.arrow")


def arrow_table(folder: Path, values: list[Any]) -> Any:
    return rk.sources.arrow(pa.table({"t": pa.array(values, pa.float64())}))


def polars_frame(folder: Path, values: list[Any]) -> Any:
    return rk.sources.polars(pl.DataFrame({"t": pl.Series(values, dtype=pl.Float64)}))


MAKERS = [csv, parquet_file, arrow_file, arrow_table, polars_frame]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("values", "feature"),
    [
        ([0.1, 0.25, 1e-7], rk.Float32()),
        (TIMES, rk.Tensor("float64")),  # one second, as float32 sees it
        ([16777217.0, 0.5], rk.Tensor("float64")),  # a whole number that float32 would change
        ([1e300, 0.5], rk.Tensor("float64")),
    ],
)
def test_doubles_that_float32_would_merge_stay_doubles(
    make: Callable[[Path, list[Any]], Any], values: list[float], feature: Any, tmp_path: Path
) -> None:
    source = make(tmp_path, values)
    assert source.facts().schema == rk.Schema({"t": feature})
    dataset = rk.write(source, tmp_path / "out", progress=False)
    (batch,) = dataset.batches(10)
    expected = values if isinstance(feature, rk.Tensor) else pytest.approx(values)
    assert batch["t"].tolist() == expected


@pytest.mark.parametrize("make", MAKERS[1:])
def test_a_hole_among_doubles_stays_a_hole(make: Callable[[Path, list[Any]], Any], tmp_path: Path) -> None:
    source = make(tmp_path, [*TIMES, None])
    assert source.facts().schema == rk.Schema({"t": rk.Tensor("float64", optional=True)})
    table = rk.write(source, tmp_path / "out", progress=False).to_arrow()
    assert table.column("t").to_pylist() == [*TIMES, None]
