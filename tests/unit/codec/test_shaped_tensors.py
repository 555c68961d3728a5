"""Tensors whose sizes vary in several dimensions: stored with their shapes, read as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import rekord as rk
from rekord.testing import example_bytes, frames

SCHEMA = rk.Schema({"x": rk.Tensor("uint16", shape=(None, None, 3))})
ARRAYS = [np.arange(h * w * 3, dtype=np.uint16).reshape(h, w, 3) for h, w in ((2, 3), (4, 1), (1, 1))]


def stored(folder: Path, *rows: dict[str, Any]) -> rk.Dataset:
    path = folder / "x.tfrecord"
    path.write_bytes(frames([example_bytes(row) for row in rows]))
    return rk.open(path, schema=SCHEMA)


def test_arrays_are_stored_as_their_bytes_and_their_shape() -> None:
    payload = rk.encode({"x": ARRAYS[1]}, SCHEMA)
    found = rk.decode(payload)
    assert found["x"] == [ARRAYS[1].tobytes()]
    assert found["x/shape"].tolist() == [4, 1, 3]  # type: ignore[union-attr]
    assert np.array_equal(rk.decode(payload, SCHEMA)["x"], ARRAYS[1])


def test_a_batch_has_one_array_per_row_and_pads_them_on_request(tmp_path: Path) -> None:
    ds = rk.write([{"x": one} for one in ARRAYS], tmp_path / "out", schema=SCHEMA, progress=False)
    batch = ds.batches(3).peek()
    assert [one.tolist() for one in batch["x"]] == [one.tolist() for one in ARRAYS]
    padded = ds.batches(3, ragged="pad", pad={"x": 7}).peek()["x"]
    assert (padded.shape, padded.dtype) == ((3, 4, 3, 3), np.uint16)
    assert padded[2, 1:].min() == padded[2].max() == 7
    assert np.array_equal(padded[0, :2, :3], ARRAYS[0])
    assert rk.check(tmp_path / "out").ok


def test_missing_arrays_are_none(tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Tensor("uint16", shape=(None, None), optional=True)})
    rows = [{"x": np.ones((2, 1), np.uint16)}, {"x": None}]
    ds = rk.write(rows, tmp_path / "out", schema=schema, progress=False)
    assert ds.batches(2).peek()["x"][1] is None
    assert ds.to_arrow().column("x").to_pylist() == [[[1], [1]], None]


def test_tables_have_nested_lists(tmp_path: Path) -> None:
    ds = rk.write([{"x": one} for one in ARRAYS], tmp_path / "out", schema=SCHEMA, progress=False)
    table = ds.to_arrow()
    assert table.schema.field("x").type == pa.large_list(pa.large_list(pa.large_list(pa.uint16())))
    assert table.column("x").to_pylist() == [one.tolist() for one in ARRAYS]


def test_arrays_whose_sizes_vary_are_inferred_as_such_a_tensor() -> None:
    assert rk.infer([{"x": np.zeros((2, 3))}, {"x": np.zeros((3, 4))}])["x"] == rk.Tensor("float64", (None, None))


@pytest.mark.parametrize(
    "row",
    [
        {"x": [bytes(36)], "x/shape": [2, 3, 2]},  # another size than declared
        {"x": [bytes(36)], "x/shape": [6, 3]},
        {"x": [bytes(35)], "x/shape": [2, 3, 3]},
        {"x": [bytes(36)], "x/shape": [-2, -3, 3]},
        {"x": [bytes(36)], "x/shape": [2**62, 2**62, 3]},
        {"x": [bytes(18), bytes(18)], "x/shape": [2, 3, 3]},
    ],
)
def test_bytes_that_do_not_match_their_shape_are_refused(row: dict[str, Any], tmp_path: Path) -> None:
    good = {"x": [ARRAYS[0].tobytes()], "x/shape": [2, 3, 3]}
    with pytest.raises(rk.DecodeError) as caught:
        list(stored(tmp_path, good, row).batches(2))
    assert caught.value.code == "D413"
    assert (caught.value.location.record, caught.value.location.feature) == (1, "x")
    found = rk.check(tmp_path / "x.tfrecord", schema=SCHEMA).findings
    assert [(one.code, one.record) for one in found if one.severity == "error"][:1] == [
        ("D406" if len(row["x"][0]) == 35 else "D407", 1)
    ]


def test_a_shape_without_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rk.DecodeError) as caught:
        stored(tmp_path, {"x/shape": [2, 3, 3]}).batches(1).peek()
    assert caught.value.code == "D401"


def test_16_bit_pixels_of_every_number_of_channels_become_a_png() -> None:
    schema = rk.Schema({"image": rk.Image(format="png")})
    for channels in (1, 2, 3, 4):
        pixels = np.random.default_rng(channels).integers(0, 1 << 16, (5, 7, channels)).astype(np.uint16)
        data = rk.decode(rk.encode({"image": pixels}, schema), schema)["image"]
        from rekord.codec.images.decode import decode_wide_image

        assert np.array_equal(decode_wide_image(data, channels, None), pixels)
