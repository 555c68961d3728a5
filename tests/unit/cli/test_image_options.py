"""The flags for files of images and arrays."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.codec.images.metadata import read_metadata


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x8825] = {1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 36.0)}
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 6), (number, 50, 90)).save(
                tmp_path / "photos" / name / f"{name}{number}.jpg", exif=exif
            )
        Image.new("RGB", (8, 6)).save(tmp_path / "photos" / name / f"{name}2.webp")
    return tmp_path


def test_images_are_converted_turned_and_stripped(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--images-as", "png", "--orient", "--strip-metadata"]
    assert run_command_line(["write", "photos", "out", *flags]) == 0
    rows = list(rk.open("out")["train"])
    assert [row["format"] for row in rows] == ["JPEG", "JPEG", "PNG"] * 2
    assert [(row["height"], row["width"]) for row in rows] == [(8, 6), (8, 6), (6, 8)] * 2
    assert all(read_metadata(row["image"]) == (1, False, False) for row in rows)


def test_rewriting_strips_metadata_and_keeps_the_orientation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["write", "photos", "in", "--images-as", "png"]) == 0
    assert run_command_line(["rewrite", "in", "out", "--strip-metadata"]) == 0
    before, after = (rk.open(name)["train"][0]["image"] for name in ("in", "out"))
    assert read_metadata(before) == (6, True, False)
    assert read_metadata(after) == (6, False, False)
    assert Image.open(io.BytesIO(after)).tobytes() == Image.open(io.BytesIO(before)).tobytes()


def test_pages_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    tifffile.imwrite("x.tif", np.zeros((3, 20, 30), np.uint8), photometric="minisblack")
    assert run_command_line(["write", "x.tif", "out", "--pages"]) == 0
    assert len(rk.open("out")["train"]) == 3


@pytest.mark.parametrize(
    ("source", "flags", "code", "flag"),
    [
        ("photos", ["--images-as", "gif"], 2, "images-as"),
        ("photos", ["--rescale"], 2, "--rescale"),
        ("x.tif", ["--metadata", "Modality"], 2, "--metadata"),
        ("x.tif", ["--affine"], 2, "--affine"),
    ],
)
def test_flags_that_do_not_apply_are_refused(
    source: str, flags: list[str], code: int, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tifffile.imwrite("x.tif", np.zeros((20, 30), np.uint8), photometric="minisblack")
    assert run_command_line(["write", source, "out", *flags]) == code
    shown = capsys.readouterr().err
    assert "U605" in shown
    assert flag in shown
