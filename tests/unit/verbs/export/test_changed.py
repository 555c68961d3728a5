"""Exported tables that somebody changed: read as they are now, or refused by row, and never misread."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rekord as rk
from rekord.sources.tables import attach_schema


@pytest.mark.parametrize(
    ("feature", "rows", "kind", "row"),
    [
        # As many numbers as there should be, in other lists than they should be in.
        (rk.Float32((3,)), [[1, 2], [3, 4, 5, 6]], "float", 0),
        (rk.Float32((3,)), [[1, 2, 3], [4, 5]], "float", 1),
        (rk.Float32((None, 4)), [[[1, 2], [3, 4, 5, 6, 7, 8]], [[1, 2, 3, 4]]], "float", 0),
        (rk.Float32((None, 4)), [[[1, 2, 3, 4] * 2], [[1, 2, 3, 4]]], "float", 0),
        (rk.Float32((None, 4)), [[[1, 2, 3, 4]], [None, [1, 2, 3, 4]]], "float", 1),
        (rk.Float32((2, 2, None)), [[1, 2, 3, 4], [1, 2, 3]], "float", 1),
        (rk.Tensor("uint16", (2, 3)), [[[1, 2, 3]], [[1, 2, 3], [4, 5, 6], [7, 8, 9]]], "uint16", 0),
        (rk.Tensor("complex64", (1,)), [[[1, 2, 3]], [[1]]], "float", 0),
    ],
)
def test_lists_of_other_lengths_in_an_exported_table_are_bad_rows(
    tmp_path: Path, feature: rk.Float32 | rk.Tensor, rows: list[object], kind: str, row: int
) -> None:
    depth = 2 if isinstance(rows[0][0], list) else 1  # type: ignore[index]
    type_ = getattr(pa, kind if kind == "uint16" else "float32")()
    for _ in range(depth):
        type_ = pa.large_list(type_)
    schema = attach_schema(pa.schema([("x", type_)]), rk.Schema({"x": feature}))
    pq.write_table(pa.table({"x": pa.array(rows, type_)}, schema=schema), tmp_path / "changed.parquet")
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(tmp_path / "changed.parquet", tmp_path / "out", progress=False)
    assert caught.value.code in ("E306", "E307", "E308")
    assert (caught.value.location.row, caught.value.location.feature) == (row, "x")


def test_a_hole_in_a_sparse_value_of_an_exported_table_is_a_bad_row(tmp_path: Path) -> None:
    type_ = pa.struct([("indices", pa.large_list(pa.int64())), ("values", pa.large_list(pa.float32()))])
    schema = attach_schema(pa.schema([("x", type_)]), rk.Schema({"x": rk.Sparse("float32", size=9)}))
    rows = [{"indices": [1, 2], "values": [None, 2.0]}]
    pq.write_table(pa.table({"x": pa.array(rows, type_)}, schema=schema), tmp_path / "changed.parquet")
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(tmp_path / "changed.parquet", tmp_path / "out", progress=False)
    assert (caught.value.location.row, caught.value.location.feature) == (0, "x")
