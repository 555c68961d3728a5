"""What is said of defects in files of arrays and in converted images: every cell of the table, made and met."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image
from pydicom.data import get_testdata_file

import rekord as rk

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}
ARRAYS = {"tiff": "a.tif", "dicom": "a.dcm", "nifti": "a.nii.gz", "npy_folder": "a.npy"}
ANY_IMAGE = {"schema": rk.Schema({"image": rk.Image(), "filename": rk.Text()})}


def cell(source: str, defect: str, code: str) -> Callable[[Any], Any]:
    def kept(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert CELLS.setdefault((source, defect, code), build) is build
        return build

    return kept


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table):
    assert defect_table("Files of arrays and converted images") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


def put(place: Any, name: str, array: Any = None) -> Path:
    """A file with one array, in the format of its extension."""
    path = place.put(name, b"")
    array = np.arange(64, dtype=np.uint16).reshape(8, 8) if array is None else array
    if name.endswith(".tif"):
        tifffile.imwrite(path, array, photometric="minisblack")
    elif name.endswith(".dcm"):
        dataset = pydicom.dcmread(get_testdata_file("CT_small.dcm"))
        if array.ndim == 3:
            dataset.NumberOfFrames, dataset.PixelData = 2, dataset.PixelData * 2
        dataset.save_as(path)
    elif name.endswith(".nii.gz"):
        nibabel.save(nibabel.Nifti1Image(array.astype(np.int16), np.eye(4)), path)
    elif name.endswith(".npy"):
        np.save(path, array)
    else:
        Image.fromarray(array.astype(np.uint8)).convert("RGB").save(path)
    return path


def make(place: Any, source: str) -> Callable[[], Any]:
    return lambda: getattr(rk.sources, source)(place.root)


def masked(place: Any, source: str) -> Callable[[], Any]:
    return lambda: getattr(rk.sources, source)(place.root / "images", masks=place.root / "masks")


def files_of_arrays(source: str, name: str) -> None:
    """The defects that all of these sources report alike; `b` is the file with the defect, and `a` is a good one."""
    other = f"b{name[1:]}"

    @cell(source, "empty", "X527")
    def _(place):
        return place.case(make(place, source), place.root)

    @cell(source, "empty", "E394")
    def _(place):
        put(place, name)
        return place.case(make(place, source), place.put(other, b""), good=1)

    @cell(source, "truncated", "E394")
    def _(place):
        put(place, name)
        return place.case(make(place, source), place.cut(put(place, other)), good=1)

    @cell(source, "missing file", "X501")
    def _(place):
        return place.case(lambda: getattr(rk.sources, source)(place.root / "none"), place.root / "none")

    if source != "dicom":

        @cell(source, "orphan", "E363")
        def _(place):
            put(place, f"images/{name}"), put(place, f"masks/{name}")
            return place.case(masked(place, source), put(place, f"images/{other}"), feature="mask", good=1)

        @cell(source, "orphan", "E364")
        def _(place):
            put(place, f"images/{name}"), put(place, f"masks/{name}")
            column = {"nifti": "volume", "npy_folder": "x"}.get(source, "image")
            return place.case(masked(place, source), put(place, f"masks/{other}"), feature=column, good=1)

    @cell(source, "bad encoding", "E318")
    def _(place):
        put(place, name)
        path = os.fsencode(place.root) + b"/caf\xe9" + name[1:].encode()
        os.rename(put(place, other), path)
        shown = path.decode("utf-8", "backslashreplace")
        return place.case(make(place, source), shown, feature="filename", good=1)

    @cell(source, "inconsistent columns", "X594")
    def _(place):
        put(place, name)
        path = put(place, other, np.zeros((2, 8, 8), np.uint16))
        return place.case(make(place, source), path)

    @cell(source, "unreadable", "X503")
    def _(place):
        put(place, name)
        return place.case(make(place, source), place.unreadable(put(place, other)), good=1)


for _source, _name in ARRAYS.items():
    files_of_arrays(_source, _name)


@cell("tiff", "wrong type", "E394")
def _(place):
    put(place, "a.tif")
    return place.case(make(place, "tiff"), place.put("b.tif", b"not a TIFF file"), good=1)


@cell("tiff", "wrong type", "E396")
def _(place):
    put(place, "a.tif")
    path = put(place, "b.tif", np.zeros((8, 8), np.float32))
    source = lambda: rk.sources.tiff(place.root, images_as="png")  # noqa: E731
    return place.case(source, path, row=0, feature="image", good=1, options=ANY_IMAGE)


@cell("dicom", "wrong type", "E394")
def _(place):
    put(place, "a.dcm")
    path = place.put("b.dcm", Path(get_testdata_file("rtplan.dcm")).read_bytes())
    return place.case(make(place, "dicom"), path, good=1)


@cell("nifti", "wrong type", "E394")
def _(place):
    put(place, "a.nii.gz")
    return place.case(make(place, "nifti"), place.put("b.nii.gz", gzip.compress(bytes(400))), good=1)


@cell("npy_folder", "wrong type", "E394")
def _(place):
    put(place, "a.npy")
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], object), allow_pickle=True)
    return place.case(make(place, "npy_folder"), place.put("b.npy", file.getvalue()), good=1)


@cell("tiff", "too large", "E393")
def _(place):
    put(place, "a.tif")
    path = place.put("b.tif", b"")
    _write_vast_tiff(path)
    return place.case(make(place, "tiff"), path, good=1)


def _write_vast_tiff(path: Path) -> None:
    """A small TIFF whose header declares a huge image."""
    tifffile.imwrite(path, np.zeros((8, 8), np.uint16), photometric="minisblack")
    with tifffile.TiffFile(path, mode="r+") as file:
        for name in ("ImageWidth", "ImageLength"):
            file.pages[0].tags[name].overwrite(1_000_000, dtype="I")


@cell("dicom", "too large", "E393")
def _(place):
    put(place, "a.dcm")
    path = put(place, "b.dcm")
    dataset = pydicom.dcmread(path)
    dataset.Rows = dataset.Columns = 65_535
    dataset.save_as(path)
    return place.case(make(place, "dicom"), path, good=1)


@cell("nifti", "too large", "E393")
def _(place):
    put(place, "a.nii.gz")
    header = nibabel.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape((3000, 3000, 3000))
    header["magic"], header["vox_offset"] = b"n+1", 352
    path = place.put("b.nii.gz", gzip.compress(header.binaryblock + bytes(100)))
    return place.case(make(place, "nifti"), path, good=1)


@cell("npy_folder", "too large", "E393")
def _(place):
    put(place, "a.npy")
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": (1 << 20, 1 << 20)})
    return place.case(make(place, "npy_folder"), place.put("b.npy", file.getvalue()), good=1)


# Converted images.


def converted(place: Any) -> Callable[[], Any]:
    return lambda: rk.sources.convert_images(rk.sources.images(place.root))


@cell("convert_images", "empty", "X527")
def _(place):
    return place.case(converted(place), place.root)


@cell("convert_images", "truncated", "E396")
def _(place):
    put(place, "a.webp")
    return place.case(converted(place), place.cut(put(place, "b.webp")), row=0, feature="image", good=1)


@cell("convert_images", "truncated", "E394")
def _(place):
    put(place, "a.webp")
    return place.case(converted(place), place.cut(put(place, "b.tif")), good=1)


@cell("convert_images", "wrong type", "E396")
def _(place):
    put(place, "a.webp")
    return place.case(converted(place), place.put("b.gif", b"GIF of nothing"), row=0, feature="image", good=1)


@cell("convert_images", "missing file", "X501")
def _(place):
    source = lambda: rk.sources.convert_images(rk.sources.images(place.root / "none"))  # noqa: E731
    return place.case(source, place.root / "none")


@cell("convert_images", "bad encoding", "E318")
def _(place):
    put(place, "a.webp")
    path = os.fsencode(place.root) + b"/caf\xe9.webp"
    os.rename(put(place, "b.webp"), path)
    return place.case(converted(place), path.decode("utf-8", "backslashreplace"), feature="filename", good=1)


@cell("convert_images", "unreadable", "E329")
def _(place):
    put(place, "a.webp")
    return place.case(converted(place), place.unreadable(put(place, "b.webp")), row=0, feature="image", good=1)


@cell("convert_images", "too large", "E396")
def _(place):
    put(place, "a.webp", np.zeros((8, 8)))
    path = put(place, "b.webp", np.zeros((80, 80)))
    place.patch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    return place.case(converted(place), path, row=0, feature="image", good=1)
