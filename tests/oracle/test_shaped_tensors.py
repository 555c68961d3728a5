"""Tensors of any sizes, as TensorFlow reads them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import tifffile

import rekord as rk


def test_tensorflow_reads_the_bytes_and_the_shape_of_a_tiff(tf: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    arrays = [np.random.default_rng(i).integers(0, 9999, (3 + i, 5 - i, 6)).astype(np.uint16) for i in range(3)]
    for i, array in enumerate(arrays):
        tifffile.imwrite(tmp_path / "in" / f"{i}.tif", array, photometric="minisblack", planarconfig="contig")
    ds = rk.write(tmp_path / "in", tmp_path / "out", progress=False)
    assert ds.schema["image"] == rk.Tensor("uint16", (None, None, 6))
    spec = ds.schema.to_tf_spec()
    records = tf.data.TFRecordDataset([str(path) for path in ds["train"].paths])
    for record, array in zip(records, arrays, strict=True):
        parsed = tf.io.parse_single_example(record, spec)
        pixels = tf.reshape(tf.io.decode_raw(parsed["image"], tf.uint16), parsed["image/shape"])
        assert np.array_equal(pixels.numpy(), array)


def test_batches_for_tensorflow_are_ragged_where_sizes_vary(tf: ModuleType, tmp_path: Path) -> None:
    arrays = [np.full((2, 3, 4 + i), i, np.float32) for i in range(2)] + [np.full((1, 2, 3), 9, np.float32)]
    for shape in ((None, 3, None), (None, None, None)):
        rows = [{"x": one} for one in arrays if shape[1] in (None, one.shape[1])]
        out = tmp_path / str(shape.count(None))
        ds = rk.write(rows, out, schema=rk.Schema({"x": rk.Tensor("float32", shape)}), progress=False)
        (batch,) = ds["train"].to_tensorflow(len(rows))
        assert [one.numpy().tolist() if not hasattr(one, "to_list") else one.to_list() for one in batch["x"]] == [
            row["x"].tolist() for row in rows
        ]
        (padded,) = ds["train"].to_tensorflow(len(rows), ragged="pad")
        assert padded["x"].shape == (len(rows), 2, 3, 5)


def test_ops_mode_refuses_such_tensors(tf: ModuleType, tmp_path: Path) -> None:
    schema = rk.Schema({"x": rk.Tensor("uint8", (None, None))})
    ds = rk.write([{"x": np.zeros((2, 3), np.uint8)}], tmp_path / "out", schema=schema, progress=False)
    with pytest.raises(rk.UsageError) as caught:
        ds["train"].to_tensorflow(1, mode="ops")
    assert (caught.value.code, caught.value.do) == ("U651", 'mode="native"')
