"""Findings about what identifies people: positions, maker notes, and fields of patients."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydicom.data import get_testdata_file

import rekord as rk


def findings(path: Path, row: dict[str, Any], schema: rk.Schema) -> list[tuple[str, str, str | None]]:
    rk.write([row], path, schema=schema, progress=False)
    return [(one.code, one.severity, one.feature) for one in rk.check(path).findings]


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_positions_and_maker_notes_are_reported(kind: str, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x8825] = {1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 36.0)}
    exif.get_ifd(0x8769)[0x927C] = b"serial number"
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, kind, exif=exif)
    found = findings(tmp_path / "x", {"image": file.getvalue()}, rk.Schema({"image": rk.Image()}))
    assert found == [("H843", "warning", "image"), ("H844", "note", "image")]
    diagnosed = {one.code: one for one in rk.doctor(tmp_path / "x").diagnoses}
    assert "--strip-metadata" in diagnosed["H843"].do


def test_keys_of_patient_fields_are_reported_if_they_have_values(tmp_path: Path) -> None:
    schema = rk.Schema({"PatientName": rk.Text(), "patient_id": rk.Text(), "Modality": rk.Text()})
    row = {"PatientName": "Doe^Jane", "patient_id": "", "Modality": "CT"}
    assert findings(tmp_path / "x", row, schema) == [("H845", "warning", "PatientName")]


def test_a_dicom_file_stored_whole_is_reported(tmp_path: Path) -> None:
    data = Path(str(get_testdata_file("CT_small.dcm"))).read_bytes()
    schema = rk.Schema({"scan": rk.Bytes()})
    assert findings(tmp_path / "x", {"scan": data}, schema) == [("H845", "warning", "scan")]
    lists = rk.Schema({"scans": rk.Bytes((None,))})
    assert findings(tmp_path / "z", {"scans": [b"", data[:200], data]}, lists) == [("H845", "warning", "scans")]
    rk.write(rk.sources.dicom(get_testdata_file("CT_small.dcm")), tmp_path / "y", progress=False)
    assert rk.check(tmp_path / "y").findings == []
