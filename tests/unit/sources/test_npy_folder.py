"""Folders of `.npy` files with one array each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rekord as rk
from rekord.sources.detect import identify_source


def save(path: Path, array: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)
    return array


def test_each_file_is_a_row_with_its_folder_as_class(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays = [
        save(tmp_path / "in" / "a" / "1.npy", random.random((3, 4))),
        save(tmp_path / "in" / "a" / "2.npy", np.asfortranarray(random.random((5, 4)))),
        save(tmp_path / "in" / "b" / "3.npy", random.random((3, 4)).astype(">f8")),
        save(tmp_path / "in" / "b" / "4.npy", random.random((3, 7))),
    ]
    assert identify_source(tmp_path / "in").kind == "npy_folder"
    ds = rk.write(tmp_path / "in", tmp_path / "out", progress=False)
    assert ds.schema["x"] == rk.Tensor("float64", (None, None))
    for row, array, label in zip(ds["train"], arrays, (0, 0, 1, 1), strict=True):
        assert np.array_equal(row["x"], array)
        assert row["label"] == label


def test_pickled_objects_are_refused_and_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.npy_folder(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("E394", str(tmp_path / "x.npy"))
    assert "pickled" in str(caught.value.found)


def test_a_file_that_is_cut_is_a_bad_row(tmp_path: Path) -> None:
    save(tmp_path / "in" / "a.npy", np.zeros((4, 4)))
    save(tmp_path / "in" / "b.npy", np.zeros((4, 4)))
    data = (tmp_path / "in" / "b.npy").read_bytes()
    (tmp_path / "in" / "b.npy").write_bytes(data[:-8])
    source = rk.sources.npy_folder(tmp_path / "in")
    with pytest.raises(rk.RekordError) as caught:
        rk.write(source, tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("E394", str(tmp_path / "in" / "b.npy"))
