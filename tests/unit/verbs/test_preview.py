"""Rows of raw data, as a conversion would store them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import rekord as rk
from rekord.verbs.infer import iter_stored_rows
from rekord.verbs.options import WriteOptions
from rekord.verbs.write import prepare_conversion


def stored(source: Any, **options: Any) -> list[Any]:
    return list(iter_stored_rows(prepare_conversion(source, "unwritten", WriteOptions(**options))))


def test_rows_are_those_that_are_written(tmp_path: Path) -> None:
    columns = {"a": np.arange(5), "b": np.arange(10, dtype=np.float32).reshape(5, 2)}
    rk.write(columns, tmp_path / "out", progress=False)
    payloads = [payload for row in stored(columns) for payload in row.payloads]
    assert payloads == list(rk.records(tmp_path / "out"))


def test_a_function_may_make_several_rows_or_none() -> None:
    rows = stored({"a": np.arange(3)}, map=lambda row: [row] * int(row["a"]))
    assert [len(row.payloads) for row in rows] == [0, 1, 2]


def test_rows_from_a_number_on_are_read() -> None:
    conversion = prepare_conversion({"a": np.arange(5)}, "unwritten", WriteOptions())
    rows = list(iter_stored_rows(conversion, first=3))
    assert [row.row for row in rows] == [3, 4]
    assert [rk.decode(row.payloads[0])["a"].tolist() for row in rows] == [[3], [4]]


def test_large_files_are_part_of_the_payload(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir(parents=True)
    from PIL import Image

    noise = np.random.default_rng(1).integers(0, 255, (300, 300, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "photos" / "1.png")
    (row,) = stored(tmp_path / "photos")
    data = (tmp_path / "photos" / "1.png").read_bytes()
    assert rk.decode(row.payloads[0])["image/encoded"] == [data]
    assert (row.row, row.line) == (None, None)


def test_a_bad_row_has_its_error_and_the_next_one_is_read() -> None:
    schema = rk.Schema({"a": rk.Int64(dtype="uint8")})
    rows = stored({"a": np.array([1, 300, 3])}, schema=schema)
    assert [None if row.problem is None else row.problem.location.row for row in rows] == [None, 1, None]
    assert [len(row.payloads) for row in rows] == [1, 0, 1]
