"""Images turned upright with their masks and boxes, and images without metadata."""

from __future__ import annotations

import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import rekord as rk
from rekord.codec.images.decode import decode_wide_image
from rekord.codec.images.inspect import encode_png
from rekord.codec.images.metadata import read_metadata, strip_metadata

PIXELS = np.asarray(
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 6, 3)).astype(np.uint8)).resize((48, 32))
)
ORIENTATIONS = range(2, 9)


def encoded(kind: str, orientation: int = 1, *, gps: bool = False, maker: bool = False, **options: Any) -> bytes:
    exif = Image.Exif()
    if orientation > 1:
        exif[0x0112] = orientation
    if gps:
        exif[0x8825] = {1: "N", 2: (52.0, 31.0, 12.0), 3: "E", 4: (13.0, 24.0, 36.0)}
    if maker:
        exif.get_ifd(0x8769)[0x927C] = b"camera 4711" * 10
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind, exif=exif, **options)
    return file.getvalue()


def opened(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def upright(data: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def apply(row: dict[str, Any], schema: rk.Schema, transform: Any) -> dict[str, Any]:
    return dict(transform.bind(schema).apply(dict(row)))


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_png_is_turned_as_pillow_turns_it(orientation: int) -> None:
    data = encoded("png", orientation)
    row = apply({"image": data}, rk.Schema({"image": rk.Image()}), rk.transforms.orient())
    assert np.array_equal(opened(row["image"]), upright(data))
    assert read_metadata(row["image"]).orientation == 1


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_masks_and_boxes_turn_with_their_image(orientation: int) -> None:
    schema = rk.Schema(
        {
            "image": rk.Image(key="image/encoded"),
            "height": rk.Int64(key="image/height"),
            "width": rk.Int64(key="image/width"),
            "mask": rk.Mask(classes=256),
            "boxes": rk.Boxes(),
        }
    )
    mask = np.zeros((32, 48), np.uint8)
    mask[4:10, 6:30] = 7
    box = [6 / 48, 4 / 32, 30 / 48, 10 / 32]
    row = {
        "image": encoded("jpeg", orientation, quality=95), "height": 32, "width": 48,
        "mask": encode_png(mask[:, :, None]), "boxes": [box],
    }  # fmt: skip
    turned = apply(row, schema, rk.transforms.orient())
    ids = np.asarray(Image.open(io.BytesIO(turned["mask"])))
    assert (turned["height"], turned["width"]) == ids.shape == opened(turned["image"]).shape[:2]
    ys, xs = np.nonzero(ids)
    height, width = ids.shape
    expected = [xs.min() / width, ys.min() / height, (xs.max() + 1) / width, (ys.max() + 1) / height]
    assert turned["boxes"][0].tolist() == pytest.approx(expected)
    assert np.abs(opened(turned["image"]).astype(int) - upright(row["image"])).mean() < 2  # type: ignore[arg-type]
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(mask).save(file, "png", exif=exif)
    assert np.array_equal(ids, np.asarray(ImageOps.exif_transpose(Image.open(file))))


def test_an_upright_image_keeps_its_bytes() -> None:
    data = encoded("jpeg", gps=True)
    row = apply({"image": data}, rk.Schema({"image": rk.Image()}), rk.transforms.orient())
    assert row["image"] == data


def test_a_16_bit_png_keeps_its_bits_when_it_is_turned() -> None:
    pixels = np.random.default_rng(0).integers(0, 1 << 16, (5, 7, 3)).astype(np.uint16)
    plain = encode_png(pixels)
    exif = b"eXIf" + b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    chunk = (len(exif) - 4).to_bytes(4, "big") + exif + zlib.crc32(exif).to_bytes(4, "big")
    data = plain[:33] + chunk + plain[33:]
    row = apply({"image": data}, rk.Schema({"image": rk.Image()}), rk.transforms.orient())
    assert np.array_equal(decode_wide_image(row["image"], 3, None), np.rot90(pixels, -1))


def test_images_are_turned_while_they_are_read(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image()})
    data = encoded("png", 6)
    ds = rk.write([{"image": data}], tmp_path / "out", schema=schema, progress=False)
    split = ds["train"].transform(rk.transforms.orient())
    assert np.array_equal(split.batches(1, decode=True).peek()["image"][0], upright(data))


# Metadata.


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_metadata_is_removed_and_pixels_profile_and_orientation_stay(kind: str, orientation: int) -> None:
    profile = b"not a real profile" * 3
    options = {"icc_profile": profile} if kind != "webp" else {}
    data = encoded(kind, orientation, gps=True, maker=True, **options)
    assert read_metadata(data) == (orientation, True, True)
    stripped = strip_metadata(data)
    assert read_metadata(stripped) == (orientation, False, False)
    assert b"camera 4711" not in stripped
    assert np.array_equal(opened(stripped), opened(data))
    assert np.array_equal(upright(stripped), upright(data))
    if options:
        assert Image.open(io.BytesIO(stripped)).info["icc_profile"] == profile
    assert strip_metadata(stripped) == stripped


def test_what_cameras_append_to_a_jpeg_is_removed() -> None:
    for options in ({}, {"progressive": True}, {"comment": b"taken by Jane"}):
        data = encoded("jpeg", **options)
        stripped = strip_metadata(data + b"\xff\xd8 another image and a serial number")
        assert b"serial" not in stripped
        assert b"Jane" not in stripped
        assert stripped.endswith(b"\xff\xd9")
        assert np.array_equal(opened(stripped), opened(data))


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
def test_metadata_of_damaged_files_is_parsed_without_failing(kind: str) -> None:
    data = encoded(kind, 6, gps=True, maker=True)
    random = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(data[: int(random.integers(0, len(data)))])
        for at in random.integers(0, max(len(broken), 1), 4) if broken else ():
            broken[at] = int(random.integers(0, 256))
        read_metadata(bytes(broken))
        strip_metadata(bytes(broken))


def test_stripping_keeps_the_record_consistent(tmp_path: Path) -> None:
    data = encoded("jpeg", 6, gps=True)
    rows = [{"image": data, "label": 0}]
    schema = rk.Schema({"image": rk.Image(), "label": rk.Int64()})
    rk.write(rows, tmp_path / "a", schema=schema, progress=False)
    findings = rk.check(tmp_path / "a").findings
    assert [(one.code, one.severity, one.record) for one in findings] == [
        ("H732", "note", 0),
        ("H843", "warning", 0),
    ]
    rk.rewrite(tmp_path / "a", tmp_path / "b", transforms=rk.transforms.strip_metadata(), progress=False)
    assert [one.code for one in rk.check(tmp_path / "b").findings] == ["H732"]


def test_a_schema_without_images_is_refused() -> None:
    with pytest.raises(rk.SchemaError) as caught:
        rk.transforms.strip_metadata().bind(rk.Schema({"x": rk.Int64()}))
    assert caught.value.code == "S138"


def test_a_turned_image_is_not_said_to_need_turning(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    exif = Image.Exif()
    exif[0x112] = 6
    Image.new("RGB", (8, 6)).save(tmp_path / "in/a.jpg", exif=exif)
    rk.write(tmp_path / "in", tmp_path / "a", progress=False)
    assert "H732" in (tmp_path / "a/.rekord/remarks.jsonl").read_text()
    rk.write(tmp_path / "in", tmp_path / "b", transforms=rk.transforms.orient(), progress=False)
    assert not (tmp_path / "b/.rekord/remarks.jsonl").exists()
