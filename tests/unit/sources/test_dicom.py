"""DICOM files as arrays, equal to what pydicom reads, without patient fields."""

from __future__ import annotations

import shutil
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.pixels import apply_color_lut, apply_rescale
from pydicom.uid import DeflatedExplicitVRLittleEndian

import rekord as rk
from rekord.sources.base import SourceRow
from rekord.sources.detect import identify_source

INTACT = [
    "CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm", "MR_small_jp2klossless.dcm",
    "MR_small_jpeg_ls_lossless.dcm", "JPEG2000.dcm", "SC_rgb_rle.dcm", "SC_rgb_rle_2frame.dcm", "ExplVR_BigEnd.dcm",
    "SC_ybr_full_422_uncompressed.dcm", "rtdose.dcm", "liver_1frame.dcm", "image_dfl.dcm", "693_J2KI.dcm",
]  # fmt: skip


def sample(name: str) -> Path:
    """A file that comes with pydicom; the others would be downloaded."""
    path = get_testdata_file(name, download=False)
    if path is None:
        pytest.skip(f"this pydicom does not contain {name}")
    return Path(str(path))


def rows(source: Any) -> list[SourceRow]:
    return [row for part in source.parts() for row in source.read(part)]


def saved(path: Path, **fields: Any) -> Any:
    """A small CT slice with other fields."""
    dataset = pydicom.dcmread(sample("CT_small.dcm"))
    for name, value in fields.items():
        setattr(dataset, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path)
    return dataset


@pytest.mark.parametrize("name", INTACT)
def test_an_array_is_the_one_of_pydicom(name: str) -> None:
    source = rk.sources.dicom(sample(name), invert=False)
    (row,) = rows(source)
    expected = pydicom.dcmread(sample(name)).pixel_array
    found = row.values["image"]  # type: ignore[index]
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)
    schema = source.facts().schema
    assert schema is not None
    assert schema["image"] == rk.Tensor(expected.dtype.name, expected.shape)


def test_a_palette_becomes_its_colours() -> None:
    (row,) = rows(rk.sources.dicom(sample("examples_palette.dcm")))
    dataset = pydicom.dcmread(sample("examples_palette.dcm"))
    assert np.array_equal(row.values["image"], apply_color_lut(dataset.pixel_array, dataset))  # type: ignore[index]


def test_rescaling_gives_hounsfield_units() -> None:
    (row,) = rows(rk.sources.dicom(sample("CT_small.dcm"), rescale=True))
    dataset = pydicom.dcmread(sample("CT_small.dcm"))
    assert row.values["image"].dtype == np.float32  # type: ignore[index]
    assert np.array_equal(row.values["image"], apply_rescale(dataset.pixel_array, dataset))  # type: ignore[index]


def test_frames_are_one_array_or_one_row_each() -> None:
    expected = pydicom.dcmread(sample("rtdose.dcm")).pixel_array
    found = rows(rk.sources.dicom(sample("rtdose.dcm"), pages=True))
    assert [row.position for row in found] == list(range(len(expected)))
    assert all(np.array_equal(row.values["image"], expected[i]) for i, row in enumerate(found))  # type: ignore[index]


def test_monochrome1_is_inverted_and_reported_unless_asked_otherwise(tmp_path: Path) -> None:
    dataset = saved(tmp_path / "x.dcm", PhotometricInterpretation="MONOCHROME1", PixelRepresentation=0, BitsStored=12)
    source = rk.sources.dicom(tmp_path / "x.dcm")
    (row,) = rows(source)
    assert np.array_equal(row.values["image"], 4095 - dataset.pixel_array)  # type: ignore[index]
    assert "MONOCHROME1" in source.facts().guesses[0].what
    (row,) = rows(rk.sources.dicom(tmp_path / "x.dcm", invert=False))
    assert np.array_equal(row.values["image"], dataset.pixel_array)  # type: ignore[index]


def test_no_patient_field_is_stored_and_technical_ones_only_on_request(tmp_path: Path) -> None:
    saved(tmp_path / "in" / "a.dcm", PatientName="Doe^Jane", PatientID="4711-SECRET", InstitutionName="Clinic")
    source = rk.sources.dicom(tmp_path / "in", metadata=["Modality", "PixelSpacing", "InstanceNumber", "KVP"])
    ds = rk.write(source, tmp_path / "out", progress=False)
    row = ds["train"][0]
    assert (row["Modality"], row["InstanceNumber"], row["KVP"]) == ("CT", 1, 120.0)
    assert row["PixelSpacing"].tolist() == pytest.approx([0.661468, 0.661468])
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert b"Doe" not in data
            assert b"SECRET" not in data
            assert b"Clinic" not in data
    assert rk.check(tmp_path / "out").ok


@pytest.mark.parametrize("name", ["PatientName", "StudyDate", "Nonsense"])
def test_other_fields_cannot_be_kept(name: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        rk.sources.dicom("x", metadata=[name])
    assert caught.value.code == "U605"


def test_files_without_an_extension_are_found_by_content(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for label in ("benign", "malignant"):
            saved(tmp_path / split / label / "IM000001", InstanceNumber=1)
            (tmp_path / split / label / "notes").write_text("not an image")
    found = identify_source(tmp_path)
    assert found.kind == "dicom"
    facts = rk.sources.dicom(tmp_path).facts()
    assert (facts.rows, facts.classes, facts.splits) == (4, ("benign", "malignant"), ("train", "test"))


def test_images_are_written_on_request(tmp_path: Path) -> None:
    dataset = saved(tmp_path / "in" / "x.dcm", PixelRepresentation=0)
    ds = rk.write(rk.sources.dicom(tmp_path / "in", images_as="png"), tmp_path / "out", progress=False)
    image = ds.batches(1, decode=True).peek()["image"][0]
    assert image.dtype == np.uint16
    assert np.array_equal(image[..., 0], dataset.pixel_array)


def test_huge_sizes_are_refused_before_pixels_are_read(tmp_path: Path) -> None:
    saved(tmp_path / "x.dcm", Rows=65_535, Columns=65_535)
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.dicom(tmp_path / "x.dcm").facts()
    assert (caught.value.code, caught.value.location.path) == ("E393", str(tmp_path / "x.dcm"))
    saved(tmp_path / "x.dcm", NumberOfFrames=2**30)
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.dicom(tmp_path / "x.dcm", pages=True).facts()
    assert caught.value.code == "E393"


def test_a_deflated_bomb_is_refused_before_it_is_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("rekord.sources.dicom"), "_MAX_INFLATED_BYTES", 1 << 26)
    dataset = pydicom.dcmread(sample("image_dfl.dcm"))
    assert dataset.file_meta.TransferSyntaxUID == DeflatedExplicitVRLittleEndian
    data = sample("image_dfl.dcm").read_bytes()
    start = 132 + 12 + int.from_bytes(data[140:144], "little")
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    zeros = b"".join(deflate.compress(bytes(1 << 24)) for _ in range(5)) + deflate.flush()
    (tmp_path / "x.dcm").write_bytes(data[:start] + zeros)
    with pytest.raises(rk.RekordError) as caught:
        rk.sources.dicom(tmp_path / "x.dcm").facts()
    assert (caught.value.code, caught.value.found) == ("E394", "more than 67,108,864 bytes, deflated")


def test_truncated_files_are_bad_rows(tmp_path: Path) -> None:
    data = sample("CT_small.dcm").read_bytes()
    shutil.copy(sample("CT_small.dcm"), tmp_path / "a.dcm")
    for end in (0, 100, 131, 140, 400, 2000, 6000, len(data) - 400):
        (tmp_path / "b.dcm").write_bytes(data[:end])
        found = rows(rk.sources.dicom(tmp_path))
        assert isinstance(found[1].values, rk.RekordError)
        assert (found[1].values.code, found[1].values.location.path) == ("E394", str(tmp_path / "b.dcm"))
        assert not isinstance(found[0].values, rk.RekordError)


@pytest.mark.parametrize(
    ("name", "mark", "at"),
    [
        ("JPEG2000.dcm", b"\xff\x4f\xff\x51", 8),
        ("SC_rgb_jpeg_dcmtk.dcm", b"\xff\xc0", 5),
        ("MR_small_jpeg_ls_lossless.dcm", b"\xff\xf7", 5),
    ],
)
def test_a_frame_that_is_a_bomb_is_refused_before_it_is_decoded(
    name: str, mark: bytes, at: int, tmp_path: Path
) -> None:
    data = bytearray(Path(get_testdata_file(name)).read_bytes())
    begin = data.index(mark, 1000) + at
    size = (60_000).to_bytes(4 if name == "JPEG2000.dcm" else 2, "big")
    data[begin : begin + 2 * len(size)] = size * 2
    (tmp_path / "a.dcm").write_bytes(data)
    (row,) = rows(rk.sources.dicom(tmp_path))
    assert isinstance(row.values, rk.RekordError)
    assert (row.values.code, row.values.location.path) == ("E394", str(tmp_path / "a.dcm"))
    assert "an encoded part of 60,000 × 60,000" in str(row.values.found)
    assert "pip" not in str(row.values.do)
