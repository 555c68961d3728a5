"""How exported tables are laid out: the size of their groups, what is in dictionaries, who decodes for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

import rekord as rk
from rekord.verbs.export import reading, tables


@pytest.fixture
def dataset(tmp_path: Path) -> rk.Dataset:
    schema = rk.Schema({"id": rk.Int64(), "vec": rk.Float32((3,)), "blob": rk.Bytes()})
    rows = [{"id": i, "vec": [i, 0.1, -1], "blob": bytes(20)} for i in range(20)]
    return rk.write(rows, tmp_path / "ds", schema=schema, progress=False)


def test_values_that_come_again_are_in_a_dictionary_and_others_are_not(tmp_path: Path) -> None:
    names = ["word", "unique", "n", "id", "words", "share"]
    schema = rk.Schema(
        {
            **{name: rk.Text() for name in names[:2]},
            **{name: rk.Int64() for name in names[2:4]},
            "words": rk.Text((None,)),
            "share": rk.Float32(),
        }
    )
    rows = [
        {"word": f"w{i % 7}", "unique": f"u{i}", "n": i % 3, "id": i, "words": ["a", "b"], "share": 0.5}
        for i in range(100)
    ]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.parquet")
    group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
    columns = [group.column(i) for i in range(len(names))]
    found = {one.path_in_schema.split(".")[0] for one in columns if one.has_dictionary_page}
    assert found == {"word", "n", "words"}


def test_parquet_columns_that_are_never_missing_are_required(tmp_path: Path) -> None:
    schema = rk.Schema(
        {"id": rk.Int64(), "text": rk.Text(), "maybe": rk.Int64(optional=True), "at": rk.Timestamp("us")}
    )
    rows = [{"id": i, "text": str(i), "maybe": None, "at": np.datetime64(i, "us")} for i in range(3)]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.parquet")
    found = pq.read_table(tmp_path / "out.parquet")
    assert {field.name for field in found.schema if not field.nullable} == {"id", "text"}
    assert found["id"].to_pylist() == [0, 1, 2]
    assert found["maybe"].to_pylist() == [None] * 3


def test_threads_are_those_that_were_asked_for(
    dataset: rk.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    batches = rk.Split.batches

    def seen(self: rk.Split, size: int, *, threads: int | None = None, **options: Any) -> Any:
        asked.append(threads)
        return batches(self, size, threads=threads, **options)

    monkeypatch.setattr(rk.Split, "batches", seen)
    for name in ("out.parquet", "out.jsonl"):
        asked.clear()
        rk.export(dataset, tmp_path / name, threads=3)
        assert asked[-1] == 3


def test_row_groups_and_batches_are_of_bounded_size(
    dataset: rk.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GROUP_BYTES", 400)
    monkeypatch.setattr(reading, "BATCH_BYTES", 300)
    rk.export(dataset, tmp_path / "out.parquet")
    rk.export(dataset, tmp_path / "out.arrow")
    metadata = pq.ParquetFile(tmp_path / "out.parquet").metadata
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sum(rows) == 20
    assert max(rows) < 10
    with pa.OSFile(str(tmp_path / "out.arrow")) as file:
        reader = ipc.open_file(file)
        assert max(reader.get_batch(i).num_rows for i in range(reader.num_record_batches)) < 10


def test_records_far_larger_than_the_first_ones_are_cut_into_groups_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "GROUP_BYTES", 10_000)
    rows = [{"blob": bytes(10 if i < 50 else 6_000)} for i in range(60)]
    rk.write(rows, tmp_path / "ds", schema=rk.Schema({"blob": rk.Bytes()}), progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out.parquet")
    metadata = pq.ParquetFile(tmp_path / "out.parquet").metadata
    assert metadata.num_rows == 60
    assert metadata.num_row_groups > 5
