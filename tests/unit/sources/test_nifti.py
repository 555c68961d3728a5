"""NIfTI volumes, equal to what nibabel reads."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

import rekord as rk
from rekord.sources.base import SourceRow
from rekord.sources.detect import identify_source

RANDOM = np.random.default_rng(3)


def rows(source: Any) -> list[SourceRow]:
    return [row for part in source.parts() for row in source.read(part)]


def first_error(source: Any) -> rk.RekordError:
    """The error of the listing, or that of the only row."""
    try:
        (row,) = rows(source)
    except rk.RekordError as failure:
        return failure
    assert isinstance(row.values, rk.RekordError)
    return row.values


def save(path: Path, array: np.ndarray, *, slope: float | None = None, kind: Any = nibabel.Nifti1Image) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = kind(array, np.diag([2.0, 3.0, 4.0, 1.0]))
    if slope is not None:
        image.header.set_slope_inter(slope, 5.0)
    nibabel.save(image, path)


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64"])
def test_a_volume_has_the_values_and_dtype_of_the_file(name: str, kind: Any, dtype: str, tmp_path: Path) -> None:
    array = (RANDOM.random((5, 6, 7)) * 200).astype(dtype)
    save(tmp_path / name, array, kind=kind)
    source = rk.sources.nifti(tmp_path / name, affine=True)
    (row,) = rows(source)
    found = row.values["volume"]  # type: ignore[index]
    assert found.dtype == np.dtype(dtype)
    assert np.array_equal(found, np.asanyarray(nibabel.load(tmp_path / name).dataobj))
    assert row.values["affine"].tolist() == np.diag([2.0, 3.0, 4.0, 1.0]).tolist()  # type: ignore[index]


def test_a_slope_is_applied(tmp_path: Path) -> None:
    save(tmp_path / "x.nii.gz", (RANDOM.random((3, 4, 5)) * 100).astype(np.int16), slope=0.5)
    (row,) = rows(rk.sources.nifti(tmp_path / "x.nii.gz"))
    found = row.values["volume"]  # type: ignore[index]
    assert found.dtype == np.float32
    assert np.array_equal(found, nibabel.load(tmp_path / "x.nii.gz").get_fdata(dtype=np.float32))


def test_a_folder_of_classes_becomes_labelled_volumes(tmp_path: Path) -> None:
    for i, name in enumerate(("healthy/a.nii.gz", "healthy/b.nii", "tumour/c.nii.gz", "tumour/d.nii.gz")):
        save(tmp_path / "in" / name, np.full((4, 5 + i, 6), i, np.int16))
    assert identify_source(tmp_path / "in").kind == "nifti"
    ds = rk.write(tmp_path / "in", tmp_path / "out", progress=False)
    assert ds.schema["volume"] == rk.Tensor("int16", (4, None, 6))
    assert [(row["label"], row["volume"].shape) for row in ds["train"]] == [
        (0, (4, 5, 6)),
        (0, (4, 6, 6)),
        (1, (4, 7, 6)),
        (1, (4, 8, 6)),
    ]


def test_a_bomb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.uint8)
    header.set_data_shape((2000, 2000, 500))
    header["magic"], header["vox_offset"] = b"n+1", 352
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(1000)))
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.nifti(tmp_path / "x.nii.gz").facts()
    assert (caught.value.code, caught.value.location.path) == ("E393", str(tmp_path / "x.nii.gz"))
    header["vox_offset"] = 1e12
    (tmp_path / "x.nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(1000)))
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.nifti(tmp_path / "x.nii.gz").facts()
    assert caught.value.code == "E394"


@pytest.mark.parametrize("name", ["x.nii", "x.nii.gz"])
def test_truncated_files_are_refused_with_their_path(name: str, tmp_path: Path) -> None:
    save(tmp_path / name, (RANDOM.random((8, 8, 8)) * 200).astype(np.uint8))
    data = (tmp_path / name).read_bytes()
    for end in (0, 2, 100, 300, len(data) // 2, len(data) - 20):
        (tmp_path / name).write_bytes(data[:end])
        failure = first_error(rk.sources.nifti(tmp_path / name))
        assert (failure.code, failure.location.path) == ("E394", str(tmp_path / name))


def save_task(root: Path, names: dict[str, tuple[str, ...]]) -> None:
    """Folders of volumes as those of the Medical Segmentation Decathlon."""
    for folder, files in names.items():
        is_mask = folder.startswith("labels")
        for i, name in enumerate(files):
            array = np.full((4, 5 + i, 6), i, np.uint8) if is_mask else RANDOM.random((4, 5 + i, 6, 2))
            save(root / folder / name, array.astype(np.uint8 if is_mask else np.float32))


def test_volumes_and_their_masks_are_one_row_each(tmp_path: Path) -> None:
    cases = ("a.nii.gz", "b.nii.gz")
    save_task(tmp_path / "task", {"imagesTr": cases, "labelsTr": ("a.nii.gz", "b.nii"), "imagesTs": ("c.nii.gz",)})
    found = identify_source(tmp_path / "task")
    assert (found.kind, found.path, found.masks) == (
        "nifti",
        str(tmp_path / "task/imagesTr"),
        str(tmp_path / "task/labelsTr"),
    )
    (guess,) = found.guesses
    assert guess.what == "arrays in imagesTr and their masks in labelsTr; imagesTs is not used"
    ds = rk.write(tmp_path / "task", tmp_path / "out", progress=False)
    assert ds.schema["volume"] == rk.Tensor("float32", (4, None, 6, 2))
    assert ds.schema["mask"] == rk.Tensor("uint8", (4, None, 6))
    for row, name, mask in zip(ds["train"], cases, ("a.nii.gz", "b.nii"), strict=True):
        assert np.array_equal(row["volume"], nibabel.load(tmp_path / "task/imagesTr" / name).get_fdata())
        assert np.array_equal(row["mask"], nibabel.load(tmp_path / "task/labelsTr" / mask).get_fdata())


def test_volumes_without_their_mask_and_masks_of_another_size_are_bad_rows(tmp_path: Path) -> None:
    volumes, masks = ("a.nii.gz", "b.nii.gz", "c.nii"), ("a.nii.gz", "x.nii.gz", "c.nii")
    save_task(tmp_path, {"imagesTr": volumes, "labelsTr": masks})
    source = rk.sources.nifti(tmp_path / "imagesTr", masks=tmp_path / "labelsTr")
    save(tmp_path / "labelsTr/c.nii", np.zeros((4, 5, 7), np.uint8))
    found = {row.path: row.values for row in rows(source)}
    assert isinstance(found["a.nii.gz"], dict)
    failures = {path: one for path, one in found.items() if isinstance(one, rk.RekordError)}
    assert {path: (one.code, one.location.path) for path, one in failures.items()} == {
        "b.nii.gz": ("E363", str(tmp_path / "imagesTr/b.nii.gz")),
        "c.nii": ("E336", str(tmp_path / "labelsTr/c.nii")),
        "../labelsTr/x.nii.gz": ("E364", str(tmp_path / "labelsTr/x.nii.gz")),
    }
    assert (failures["c.nii"].expected, failures["c.nii"].found) == ("4 × 7 × 6, as the volume", "4 × 5 × 7")
    assert source.facts().rows == 4


def test_masks_are_found_below_the_folder_of_the_volumes(tmp_path: Path) -> None:
    save_task(tmp_path, {"": ("a.nii.gz",), "labels": ("a.nii.gz",)})
    (row,) = rows(rk.sources.nifti(tmp_path, masks=tmp_path / "labels"))
    assert row.values["mask"].dtype == np.uint8  # type: ignore[index]


def test_compressed_volumes_are_detected_and_masks_of_other_names_are_no_class(tmp_path: Path) -> None:
    save_task(tmp_path / "task", {"imagesTr": ("a.nii.gz", "b.nii.gz"), "labelsTr": ("c.nii.gz", "d.nii.gz")})
    assert identify_source(tmp_path / "task" / "imagesTr").kind == "nifti"
    with pytest.raises(rk.UsageError) as caught:
        identify_source(tmp_path / "task")
    assert caught.value.code == "U621"
    assert "labelsTr" in str(caught.value.found)
