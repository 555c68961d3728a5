"""Images of other formats: converted to PNG or JPEG on request, AVIF and HEIC stored as they are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pytest
import tifffile
from PIL import Image, ImageOps

import rekord as rk
from rekord.codec.images.inspect import inspect_image

PIXELS = np.asarray(
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)).resize((60, 46))
)
RGB = Image.fromarray(PIXELS)


def save(path: Path, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".heic":
        pillow_heif.from_pillow(RGB).save(path, **options)
    elif path.suffix == ".tif":
        tifffile.imwrite(path, PIXELS, photometric="rgb", **options)
    else:
        RGB.save(path, **options)
    return path


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("name", ["a.webp", "b.gif", "c.bmp", "d.avif", "e.heic", "f.tif", "g.jp2"])
def test_a_format_becomes_png_with_the_pixels_of_its_library(name: str, tmp_path: Path) -> None:
    path = save(tmp_path / "in" / "x" / name)
    source = rk.sources.convert_images(rk.sources.image_folder(tmp_path / "in"))
    ds = rk.write(source, tmp_path / "out", progress=False)
    row = ds["train"][0]
    assert row["format"] == "PNG"
    if name == "f.tif":
        expected = PIXELS
    elif name == "e.heic":
        expected = np.asarray(pillow_heif.open_heif(path).to_pillow())
    else:
        with Image.open(path) as image:
            expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(pixels(row["image"]), expected)


def test_jpeg_and_png_keep_their_bytes(tmp_path: Path) -> None:
    paths = [save(tmp_path / "in" / "x" / name) for name in ("a.jpg", "b.png")]
    source = rk.sources.convert_images(rk.sources.image_folder(tmp_path / "in"), "jpeg")
    ds = rk.write(source, tmp_path / "out", progress=False)
    assert [row["image"] for row in ds["train"]] == [path.read_bytes() for path in paths]


def test_images_become_jpeg_on_request(tmp_path: Path) -> None:
    save(tmp_path / "in" / "x" / "a.webp", lossless=True)
    source = rk.sources.convert_images(rk.sources.image_folder(tmp_path / "in"), "jpeg")
    ds = rk.write(source, tmp_path / "out", progress=False)
    assert ds["train"][0]["image"][:2] == b"\xff\xd8"
    assert np.abs(pixels(ds["train"][0]["image"]).astype(int) - PIXELS).mean() < 4


def test_the_orientation_of_a_converted_image_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = save(tmp_path / "in" / "x" / "a.webp", lossless=True, exif=exif)
    source = rk.sources.convert_images(rk.sources.image_folder(tmp_path / "in"))
    ds = rk.write(source, tmp_path / "out", progress=False)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(path.read_bytes())))
    assert np.array_equal(pixels(ds["train"][0]["image"]), np.asarray(upright))


def test_masks_that_are_tiff_become_pngs_of_their_ids(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.tif")
    ids = np.random.default_rng(1).integers(0, 3, PIXELS.shape[:2]).astype(np.uint8)
    (tmp_path / "masks").mkdir()
    tifffile.imwrite(tmp_path / "masks" / "a.tif", ids, compression="zlib")
    source = rk.sources.segmentation(tmp_path / "images", tmp_path / "masks")
    layout = rk.layouts.deeplab(classes=3)
    ds = rk.write(rk.sources.convert_images(source), tmp_path / "out", layout=layout, progress=False)
    batch = ds.batches(1, decode=True).peek()
    assert np.array_equal(batch["image"][0], PIXELS)
    assert np.array_equal(batch["mask"][0], ids)


@pytest.mark.parametrize("name", ["a.avif", "a.heic"])
def test_avif_and_heic_are_stored_unchanged_and_decoded(name: str, tmp_path: Path) -> None:
    path = save(tmp_path / "in" / name)
    schema = rk.Schema({"image": rk.Image(), "filename": rk.Text()})
    ds = rk.write(rk.sources.images(tmp_path / "in"), tmp_path / "out", schema=schema, progress=False)
    assert ds["train"][0]["image"] == path.read_bytes()
    data = io.BytesIO(path.read_bytes())
    image = pillow_heif.open_heif(data).to_pillow() if name == "a.heic" else Image.open(data)
    assert np.array_equal(ds.batches(1, decode=True).peek()["image"][0], np.asarray(image.convert("RGB")))
    report = rk.check(tmp_path / "out")
    assert [(one.code, one.severity, one.record) for one in report.findings] == [("H842", "note", 0)]


@pytest.mark.parametrize("name", ["a.webp", "b.gif", "c.bmp", "d.avif", "e.heic", "f.tif", "g.jp2"])
def test_truncated_files_are_bad_rows_with_their_path(name: str, tmp_path: Path) -> None:
    path = save(tmp_path / "in" / "x" / name)
    data = path.read_bytes()
    source = rk.sources.convert_images(rk.sources.image_folder(tmp_path / "in"))
    for end in (16, 40, len(data) // 3):
        path.write_bytes(data[:end])
        (row,) = [row for part in source.parts() for row in source.read(part)]
        assert isinstance(row.values, rk.RekordError)
        assert row.values.code in ("E332", "E394", "E396", "E321")
        assert row.values.location.path == str(path)


def test_a_bomb_is_refused_before_it_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "in" / "x" / "a.webp")
    save(tmp_path / "in" / "x" / "b.heic")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    source = rk.sources.convert_images(rk.sources.image_folder(tmp_path / "in"))
    found = [row.values for part in source.parts() for row in source.read(part)]
    assert [one.code for one in found if isinstance(one, rk.RekordError)] == ["E396", "E396"]
    assert isinstance(found[0], rk.RekordError)
    assert found[0].location.path == str(path)


def test_an_image_that_no_layout_stores_names_the_conversion(tmp_path: Path) -> None:
    save(tmp_path / "in" / "x" / "a.heic")
    with pytest.raises(rk.EncodeError) as caught:
        rk.write(rk.sources.image_folder(tmp_path / "in"), tmp_path / "out", progress=False)
    assert caught.value.code == "E321"
    assert "convert_images" in str(caught.value.do)


def test_an_avif_has_the_size_of_its_header(tmp_path: Path) -> None:
    image = inspect_image(save(tmp_path / "a.avif"), name="image", verify="full")
    assert (image.format, image.width, image.height, image.channels) == ("avif", 60, 46, 3)
