"""Splits as tables of Arrow, pandas and polars."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import rekord as rk

SCHEMA = rk.Schema(
    {
        "label": rk.Label(["cat", "dog"]),
        "vec": rk.Float32(shape=(3,)),
        "tokens": rk.Int64(shape=(None,)),
        "name": rk.Text(optional=True),
        "blob": rk.Bytes(),
        "big": rk.Int64(optional=True),
        "flag": rk.Int64(dtype="bool", optional=True),
        "cube": rk.Tensor("uint16", shape=(2, 2)),
        "sparse": rk.Sparse("float32", size=9),
    }
)
BIG = 2**53 + 1


def rows() -> list[dict[str, Any]]:
    return [
        {
            "label": i % 2,
            "vec": [i, i + 0.5, -i],
            "tokens": list(range(i)),
            "name": None if i == 1 else f"näme {i}",
            "blob": bytes([i, 255]),
            "big": None if i == 2 else BIG + i,
            "flag": None if i == 3 else i % 2 == 0,
            "cube": np.full((2, 2), i, np.uint16),
            "sparse": ([i], [0.5]),
        }
        for i in range(5)
    ]


def put(folder: Path, rows: list[dict[str, Any]], schema: rk.Schema) -> rk.Split:
    with rk.Writer(folder / "x.tfrecord", schema) as writer:
        for row in rows:
            writer.write(row)
    return rk.open(folder / "x.tfrecord", schema=schema)["all"]


@pytest.fixture
def split(tmp_path: Path) -> rk.Split:
    return put(tmp_path, rows(), SCHEMA)


def test_an_arrow_table_has_every_value(split: rk.Split) -> None:
    table = split.to_arrow()
    assert table.column_names == list(SCHEMA)
    assert table["tokens"].to_pylist() == [[], [0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]
    assert table["name"].to_pylist() == ["näme 0", None, "näme 2", "näme 3", "näme 4"]
    assert table["big"].to_pylist() == [BIG, BIG + 1, None, BIG + 3, BIG + 4]
    assert table["cube"].to_pylist()[4] == [[4, 4], [4, 4]]
    assert table["sparse"].to_pylist()[2] == {"indices": [2], "values": [0.5]}


def test_a_view_gives_its_own_rows_in_its_own_order(split: rk.Split) -> None:
    assert split.select([3, 1, 1]).to_arrow(columns=["blob"])["blob"].to_pylist() == [
        b"\x03\xff",
        b"\x01\xff",
        b"\x01\xff",
    ]
    assert split[1:3].to_pandas(columns=["label"])["label"].tolist() == [1, 0]
    assert split[4:].to_polars(columns=["label"])["label"].to_list() == [0]


def test_sequences_have_columns_of_their_context_and_lists_for_their_steps(tmp_path: Path) -> None:
    schema = rk.Schema(
        context={"id": rk.Int64()},
        steps={"x": rk.Float32(shape=(2,)), "word": rk.Text(), "ids": rk.Int64(shape=(None,))},
    )
    made = [
        {
            "id": i,
            "x": [[j, j + 1] for j in range(i)],
            "word": [f"w{j}" for j in range(i)],
            "ids": [[1] * j for j in range(i)],
        }
        for i in range(3)
    ]
    split = put(tmp_path, made, schema)
    assert split.to_arrow().to_pylist() == made
    assert split.to_polars()["word"].to_list() == [[], ["w0"], ["w0", "w1"]]
    assert [list(map(list, value)) for value in split.to_pandas()["ids"]] == [[], [[]], [[], [1]]]


def test_whole_numbers_with_holes_stay_whole_in_pandas(split: rk.Split) -> None:
    frame = split.to_pandas()
    assert frame["big"].tolist()[4] == BIG + 4
    assert frame["big"].isna().tolist() == [False, False, True, False, False]
    assert str(frame["flag"].dtype) == "boolean"
    assert str(frame["label"].dtype) == "int64"
    assert frame["name"].isna().tolist() == [False, True, False, False, False]
    assert frame["vec"][2].tolist() == [2.0, 2.5, -2.0]
    assert frame["blob"].tolist()[1] == b"\x01\xff"


def test_polars_keeps_types_and_holes(split: rk.Split) -> None:
    frame = split.to_polars()
    assert frame["big"].to_list() == [BIG, BIG + 1, None, BIG + 3, BIG + 4]
    assert frame.schema["cube"] == pl.Array(pl.Array(pl.UInt16, 2), 2)
    assert frame.schema["blob"] == pl.Binary
    assert frame["tokens"].to_list()[3] == [0, 1, 2]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_reach_every_table(dtype: str, tmp_path: Path) -> None:
    split = put(tmp_path, [{"x": 1.5}, {"x": -2.0}], rk.Schema({"x": rk.Float32(dtype=dtype)}))
    assert split.to_arrow()["x"].to_pylist() == [1.5, -2.0]
    assert split.to_pandas()["x"].tolist() == [1.5, -2.0]
    assert split.to_polars()["x"].to_list() == [1.5, -2.0]


def test_no_records_are_a_table_with_types(tmp_path: Path) -> None:
    full = put(tmp_path, rows(), SCHEMA).to_arrow().schema
    split = put(tmp_path, [], SCHEMA)
    assert split.to_arrow().schema == full
    assert split.to_arrow().schema.field("vec").type == pa.list_(pa.float32(), 3)
    assert len(split.to_arrow()) == len(split.to_pandas()) == len(split.to_polars()) == 0
    assert split.to_arrow(columns=["label"]).column_names == ["label"]
    assert list(split.to_pandas().columns) == list(SCHEMA)


def test_what_a_function_gives_becomes_the_table(split: rk.Split) -> None:
    mapped = split.map(lambda batch: {"twice": batch["label"] * 2, "words": ["a"] * len(batch["label"])})
    assert mapped.to_arrow().to_pydict() == {"twice": [0, 2, 0, 2, 0], "words": ["a"] * 5}


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: {"x": object()},
        lambda batch: {"x": batch["label"], "y": batch["label"][:1]},
        lambda batch: {"x": np.array([object()] * len(batch["label"]))},
    ],
)
def test_what_makes_no_table_is_said(function: Any, split: rk.Split) -> None:
    with pytest.raises(rk.UsageError) as caught:
        split.map(function).to_arrow()
    assert caught.value.code == "U605"


def test_columns_that_change_from_batch_to_batch_make_no_table(tmp_path: Path) -> None:
    schema = rk.Schema({"n": rk.Int64()})
    split = put(tmp_path, [{"n": n} for n in range(9000)], schema)
    mapped = split.map(lambda batch: {"x": batch["n"] if batch["n"][0] == 0 else batch["n"] / 2})
    with pytest.raises(rk.UsageError) as caught:
        mapped.to_arrow()
    assert (caught.value.code, caught.value.found) == ("U605", "`x` differs between batches")


def test_damage_is_said_with_its_place(put_records: Any) -> None:
    from rekord.testing import corrupt_payload, example_bytes, frames

    path = put_records([])
    path.write_bytes(corrupt_payload(frames([example_bytes({"n": [i]}) for i in range(9)]), 7))
    split = rk.open(path, schema=rk.Schema({"n": rk.Int64()}))
    for table in (split.to_arrow, split.to_pandas, split.to_polars):
        with pytest.raises(rk.FrameError) as caught:
            table()
        assert (caught.value.code, caught.value.location.record, caught.value.location.path) == (
            "F102",
            7,
            str(path),
        )


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_pandas"), ("polars", "to_polars")])
def test_a_missing_package_is_named(
    package: str, method: str, split: rk.Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(rk.UsageError) as caught:
        getattr(split, method)()
    assert (caught.value.code, caught.value.do) == ("U602", f"pip install {package}")
