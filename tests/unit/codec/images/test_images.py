"""Images are looked at before they are stored: what they are, whether they are whole, what is odd about them."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from rekord.codec.decode import decode
from rekord.codec.encode import encode
from rekord.codec.images.inspect import EncodedImage, VerifiedBytes, VerifiedMask, inspect_image
from rekord.codec.images.store import check_mask_size
from rekord.errors import EncodeError, RekordError
from rekord.layouts.base import PlainLayout, RowRemark
from rekord.schema import Image, Int64, Mask, Schema, Tensor

FORMATS = ("jpeg", "png", "gif", "bmp", "webp")


def saved(mode: str, form: str, size: tuple[int, int] = (7, 5), **options: Any) -> bytes:
    file = io.BytesIO()
    Pillow.new(mode, size, 3 if mode in ("L", "P") else None).save(file, form, **options)
    return file.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def exif(orientation: int) -> Any:
    tags = Pillow.Exif()
    tags[0x0112] = orientation
    return tags


def refused(value: Any, verify: Any = "full") -> RekordError:
    with pytest.raises(EncodeError) as caught:
        inspect_image(value, name="image", verify=verify)
    assert caught.value.location.feature == "image"
    assert len(caught.value.found or "") < 100
    return caught.value


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("verify", ["full", "headers"])
@pytest.mark.parametrize("given", ["path", "bytes", "bytearray", "memoryview"])
def test_an_image_is_what_its_bytes_say(form: str, verify: Any, given: str, tmp_path: Path) -> None:
    data = saved("RGB", form)
    path = tmp_path / f"x.{form}"
    path.write_bytes(data)
    values = {"path": path, "bytes": data, "bytearray": bytearray(data), "memoryview": memoryview(data)}
    found = inspect_image(values[given], name="image", verify=verify)
    assert (found.format, found.width, found.height, found.channels) == (form, 7, 5, 3)
    assert found.data == data
    assert found.remarks == ()
    assert found.path == (str(path) if given == "path" else None)


@pytest.mark.parametrize(
    ("mode", "form", "options", "channels", "bits"),
    [
        ("L", "jpeg", {}, 1, 8),
        ("RGB", "jpeg", {"progressive": True}, 3, 8),
        ("CMYK", "jpeg", {}, 4, 8),
        ("L", "png", {}, 1, 8),
        ("1", "png", {}, 1, 1),
        ("I;16", "png", {}, 1, 16),
        ("LA", "png", {}, 2, 8),
        ("RGBA", "png", {}, 4, 8),
        ("P", "png", {}, 3, 1),
        ("RGBA", "webp", {"lossless": True}, 4, 8),
        ("RGB", "webp", {"quality": 80}, 3, 8),
    ],
)
def test_channels_and_bits_are_known(mode: str, form: str, options: Any, channels: int, bits: int) -> None:
    found = inspect_image(saved(mode, form, **options), name="image", verify="full")
    assert (found.channels, found.bits) == (channels, bits)


@pytest.mark.parametrize("verify", ["full", "headers"])
def test_an_empty_file_is_named(verify: Any, tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.touch()
    failure = refused(path, verify)
    assert (failure.code, failure.location.path, failure.found) == ("E330", str(path), "0 bytes")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.slow
def test_a_file_that_is_cut_anywhere_is_refused_and_named(form: str, tmp_path: Path) -> None:
    data = saved("RGB", form)
    path = tmp_path / "cat.bin"
    last = len(data) - (form == "gif")  # decoders do without the last byte of a GIF
    for size in range(1, last):
        path.write_bytes(data[:size])
        failure = refused(path)
        assert failure.code in ("E331", "E321", "E332"), size
        assert failure.location.path == str(path)
    path.write_bytes(data[: last - 1])
    assert refused(path).code == "E331"


def test_a_download_that_stopped_is_told_by_its_zeros() -> None:
    data = saved("RGB", "jpeg", (200, 200))
    failure = refused(data[: len(data) // 2] + bytes(1000))
    assert failure.code == "E331"
    assert failure.likely is not None
    assert "are zeros: an incomplete copy or download" in failure.likely
    assert refused(data[: len(data) // 2]).likely is None


def test_a_cut_that_lies_behind_the_headers_is_seen_by_full_only() -> None:
    for form in ("jpeg", "png", "gif", "bmp", "webp"):
        data = saved("RGB", form, (64, 64))
        cut = data[:-20]
        assert refused(cut).code == "E331"
        assert inspect_image(cut, name="image", verify="headers").width == 64


def test_any_flipped_bit_of_a_png_is_damage() -> None:
    data = saved("L", "png", (3, 2))
    for at in range(8, len(data)):
        flipped = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        assert refused(flipped).code in ("E331", "E332")
    crc = refused(data[:-1] + b"\0")
    assert crc.what == "`image` is corrupt: the checksum of a PNG chunk does not match"
    assert crc.expected == "crc32 0xae426000 (stored)"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xd8\xff\xd9", "is corrupt: the JPEG has an unexpected byte"),
        (
            bytes.fromhex("ffd8ffc0000b080000000301011100ffda0008010100003f0000ffd9"),
            "is corrupt: the JPEG has no pixels",
        ),
        (
            b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 20, 1 << 20, 8, 0, 0, 0, 0)),
            "is corrupt: the PNG declares more pixels than its bytes can hold",
        ),
        (
            b"\x89PNG\r\n\x1a\n" + chunk(b"IDAT", bytes(30)),
            "is corrupt: a PNG chunk is not valid",
        ),
    ],
)
def test_a_structure_that_cannot_be_is_damage(data: bytes, says: str) -> None:
    failure = refused(data)
    assert (failure.code, failure.what) == ("E332", f"`image` {says}")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"<html>not found</html>", "22 bytes starting with 3c 68 74 6d 6c 3e 6e 6f"),
        (b"BM is not always a bitmap, you know", "35 bytes starting with 42 4d 20 69 73 20 6e 6f"),
        (saved("RGB", "tiff"), "TIFF"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, found: str) -> None:
    failure = refused(data)
    assert (failure.code, failure.found) == ("E321", found)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, found in (("none.jpg", "No such file or directory"), (".", "Is a directory")):
        failure = refused(tmp_path / name)
        assert (failure.code, failure.found) == ("E329", found)
        assert failure.location.path == str(tmp_path / name)
    assert refused(tmp_path / "pipe").found == "a device or a pipe"
    assert refused(Path("a\0b")).code == "E329"


def test_a_file_beyond_two_gibibytes_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.jpg"
    with open(path, "wb") as file:
        file.truncate(1 << 31)
    failure = refused(path)
    assert (failure.code, failure.location.path, failure.found) == ("E327", str(path), "2,147,483,648 bytes")


def test_a_str_and_other_things_are_refused() -> None:
    assert refused("cat.jpg").code == "E322"
    assert refused(5).code == "E302"


def test_bytes_after_the_end_are_tolerated() -> None:
    for form in ("jpeg", "png", "gif", "webp"):
        data = saved("RGB", form) + b"more"
        found = inspect_image(data, name="image", verify="full")
        assert (found.data, found.remarks) == (data, ())


# Remarks.


def test_cmyk_is_remarked(tmp_path: Path) -> None:
    path = tmp_path / "print.jpg"
    path.write_bytes(saved("CMYK", "jpeg"))
    found = inspect_image(path, name="image", verify="headers")
    assert found.remarks == (("H731", "print.jpg is CMYK: decoders do not agree on its colours"),)


@pytest.mark.parametrize("form", ["jpeg", "png"])
@pytest.mark.parametrize("verify", ["full", "headers"])
def test_an_image_that_exif_turns_is_remarked(form: str, verify: Any) -> None:
    for orientation in range(1, 9):
        data = saved("RGB", form, exif=exif(orientation))
        found = inspect_image(data, name="image", verify=verify)
        assert [code for code, _ in found.remarks] == ([] if orientation == 1 else ["H732"])
    assert found.remarks[0][1] == (
        "the image is to be shown turned by 270° (EXIF orientation 8): TensorFlow does not turn it"
    )


def test_a_png_called_jpg_is_recorded_as_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "cat.JPG"
    path.write_bytes(saved("RGB", "png"))
    found = inspect_image(path, name="image", verify="full")
    assert found.format == "png"
    assert found.remarks == (("H733", "cat.JPG is PNG: it is recorded as what it is"),)
    for name in ("cat.jpeg", "cat.jfif", "cat.v2", "cat"):
        (tmp_path / name).write_bytes(saved("RGB", "jpeg"))
        assert inspect_image(tmp_path / name, name="image", verify="full").remarks == ()


# Storing.


def test_encode_names_the_file_of_an_image_that_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.write_bytes(saved("RGB", "jpeg")[:-2])
    with pytest.raises(EncodeError) as caught:
        encode({"image": path}, Schema({"image": Image()}))
    assert caught.value.code == "E331"
    assert (caught.value.location.path, caught.value.location.feature) == (str(path), "image")


def test_another_format_than_declared_names_both(tmp_path: Path) -> None:
    path = tmp_path / "cat.jpg"
    path.write_bytes(saved("RGB", "webp"))
    for value in (path, VerifiedBytes(path.read_bytes())):
        with pytest.raises(EncodeError) as caught:
            encode({"image": value}, Schema({"image": Image(format="jpeg")}))
        assert (caught.value.code, caught.value.found) == ("E321", "WebP")
        assert caught.value.do == 'declare format="webp", or format=None for any'


def test_what_was_looked_at_is_not_looked_at_again() -> None:
    cut = saved("RGB", "jpeg")[:-2]
    schema = Schema({"image": Image(), "mask": Mask(classes=2, optional=True)})
    assert decode(encode({"image": VerifiedBytes(cut)}, schema))["image"] == [cut]
    grey = saved("L", "png")  # its pixels are 3
    row = {"image": VerifiedBytes(cut), "mask": VerifiedMask(grey)}
    assert decode(encode(row, schema))["mask"] == [grey]
    with pytest.raises(EncodeError) as caught:
        encode({**row, "mask": VerifiedBytes(grey)}, schema)
    assert caught.value.code == "E335"


def test_images_cross_processes() -> None:
    found = inspect_image(saved("RGB", "png"), name="image", verify="full")
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert type(again.data) is VerifiedBytes


def test_a_hyperspectral_cube_of_uint16_round_trips_as_a_tensor() -> None:
    cube = np.arange(64 * 64 * 8, dtype=np.uint16).reshape(64, 64, 8) * 2
    schema = Schema({"cube": Tensor("uint16", (64, 64, 8))})
    again = decode(encode({"cube": cube}, schema), schema)["cube"]
    assert again.dtype == np.uint16
    assert np.array_equal(again, cube)


# Rows as they are.

PAIRS = Schema({"image": Image(), "mask": Mask(classes=21, ignore=255, optional=True), "id": Int64()})


def test_the_plain_layout_looks_only_where_there_are_images() -> None:
    assert PlainLayout(PAIRS).needs_derive
    assert not PlainLayout(Schema({"id": Int64()})).needs_derive
    assert not PlainLayout(Schema(context={"id": Int64()}, steps={"image": Image()})).needs_derive
    assert (PlainLayout(PAIRS).name, PlainLayout(PAIRS).options()) == ("plain", {})
    assert pickle.loads(pickle.dumps(PlainLayout(PAIRS))) == PlainLayout(PAIRS)


def test_a_plain_row_is_stored_as_it_is_with_its_images_looked_at(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(saved("RGB", "png"))
    palette = Pillow.new("P", (7, 5), 9)
    palette.putpalette([i for i in range(256) for _ in range(3)])
    palette.save(tmp_path / "cat.png", bits=8)
    row = {"image": tmp_path / "cat.jpg", "mask": tmp_path / "cat.png", "id": 5, "extra": object()}
    values, remarks = PlainLayout(PAIRS).derive(row, "full")
    assert list(values) == list(row)
    assert values["extra"] is row["extra"]
    assert values["image"] == (tmp_path / "cat.jpg").read_bytes()
    assert isinstance(values["image"], VerifiedBytes)
    assert isinstance(values["mask"], VerifiedMask)
    assert np.array_equal(np.asarray(Pillow.open(io.BytesIO(values["mask"]))), np.full((5, 7), 9))
    assert remarks == (RowRemark("H733", "image", "cat.jpg is PNG: it is recorded as what it is"),)


def test_a_plain_row_takes_arrays_and_leaves_holes_to_the_encoder() -> None:
    pixels = np.zeros((5, 7, 3), np.uint8)
    values, _ = PlainLayout(PAIRS).derive({"image": pixels, "mask": np.ones((5, 7), int), "id": 1}, "headers")
    assert np.array_equal(np.asarray(Pillow.open(io.BytesIO(values["image"]))), pixels)
    row = {"image": None, "id": 1}
    assert PlainLayout(PAIRS).derive(row, "full").values == row
    with pytest.raises(EncodeError) as caught:
        PlainLayout(PAIRS).derive({"image": np.zeros((5, 7, 9), np.uint8)}, "full")
    assert (caught.value.code, caught.value.location.feature) == ("E321", "image")


def test_a_plain_row_compares_each_mask_with_its_own_image() -> None:
    schema = Schema({"a": Image(), "b": Image(), "of_a": Mask(classes=2, of="a"), "of_b": Mask(classes=2, of="b")})
    small, large = np.zeros((2, 3), np.uint8), np.zeros((4, 6), np.uint8)
    good = {"a": small, "b": large, "of_a": small, "of_b": large}
    assert set(PlainLayout(schema).derive(good, "full").values) == set(good)
    with pytest.raises(EncodeError) as caught:
        PlainLayout(schema).derive({**good, "of_b": small}, "full")
    assert (caught.value.code, caught.value.location.feature) == ("E336", "of_b")
    assert (caught.value.expected, caught.value.found) == ("6 × 4, as the image", "3 × 2")


def test_sizes_that_differ_name_both_files_and_what_turned_them() -> None:
    turned = ("H732", "x is to be shown turned")
    image = EncodedImage(b"", "jpeg", 640, 480, 3, 8, (turned,), path="images/1.jpg")
    mask = EncodedImage(b"", "png", 480, 640, 1, 8, path="masks/1.png")
    with pytest.raises(EncodeError) as caught:
        check_mask_size(image, mask, name="mask")
    failure = caught.value
    assert (failure.code, failure.location.path, failure.location.feature) == ("E336", "masks/1.png", "mask")
    assert failure.expected == "640 × 480, as the image (images/1.jpg)"
    assert failure.found == "480 × 640"
    assert failure.likely == "the image is rotated by EXIF, and the mask was drawn on the rotated image"
    with pytest.raises(EncodeError) as caught:
        check_mask_size(EncodedImage(b"", "jpeg", 640, 480, 3, 8), mask, name="mask")
    assert caught.value.likely == "width and height are swapped: one of the two was rotated"
    with pytest.raises(EncodeError) as caught:
        check_mask_size(EncodedImage(b"", "jpeg", 9, 9, 3, 8), mask, name="mask")
    assert caught.value.likely is None
