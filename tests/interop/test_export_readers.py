"""Other tools read what `rk.export` writes: pandas, polars and DuckDB."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import rekord as rk

SCHEMA = rk.Schema(
    {
        "id": rk.Int64(),
        "half": rk.Float32(dtype="float16"),
        "label": rk.Label(["cat", "dog"]),
        "note": rk.Text(optional=True),
        "vec": rk.Float32((2,)),
        "tokens": rk.Int64((None,), dtype="uint8"),
        "tfidf": rk.Sparse("float32", size=30),
    }
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    rows = [
        {"id": i, "half": 0.5, "label": i % 2, "note": None if i % 2 else f"é\n{i}", "vec": [i, 0.1]}
        | {"tokens": [1] * (i % 3), "tfidf": ([i], [0.25])}
        for i in range(12)
    ]
    rk.write(rows, tmp_path / "ds", schema=SCHEMA, progress=False)
    return tmp_path


def test_pandas_reads_parquet_and_feather(place: Path) -> None:
    for name, read in (("out.parquet", pd.read_parquet), ("out.feather", pd.read_feather)):
        rk.export(place / "ds", place / name)
        frame = read(place / name)
        assert frame["id"].tolist() == list(range(12))
        assert frame["note"][2] == "é\n2"
        assert pd.isna(frame["note"][1])
        assert np.array_equal(frame["vec"][3], np.array([3, 0.1], np.float32))
        assert frame["tokens"][2].tolist() == [1, 1]


def test_polars_reads_parquet_csv_and_json_lines(place: Path) -> None:
    rk.export(place / "ds", place / "out.parquet")
    rk.export(place / "ds", place / "out.csv", columns=["id", "note", "label"], labels="names")
    rk.export(place / "ds", place / "out.jsonl", columns=["id", "note", "label", "vec"])
    assert pl.read_parquet(place / "out.parquet")["vec"].to_list()[3][0] == 3.0
    table = pl.read_csv(place / "out.csv")
    assert table["note"].to_list() == [None if i % 2 else f"é\n{i}" for i in range(12)]
    assert table["label"].to_list() == ["cat", "dog"] * 6
    assert pl.read_ndjson(place / "out.jsonl")["id"].to_list() == list(range(12))


def test_duckdb_queries_parquet(place: Path) -> None:
    import duckdb

    rk.export(place / "ds", place / "out.parquet")
    found = duckdb.sql(f"select label, count(*) from '{place / 'out.parquet'}' group by 1 order by 1").fetchall()
    assert found == [(0, 6), (1, 6)]
