"""Rules of `check` for images and masks, with a schema and without."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk
from rekord.health.finding import Finding
from rekord.testing import example_bytes, frame_offsets, frames, sequence_bytes

PutFile = Callable[..., Path]
MASK = "image/segmentation/class/encoded"
DEEPLAB = rk.layouts.deeplab(classes=3, ignore=255).schema


def saved(mode: str, form: str, size: tuple[int, int] = (8, 6), **options: Any) -> bytes:
    file = io.BytesIO()
    pixels = np.arange(size[0] * size[1], dtype=np.uint8).reshape(size[1], size[0])
    Pillow.fromarray(pixels).convert(mode).save(file, form, **options)
    return file.getvalue()


def ids(values: Any = 1, size: tuple[int, int] = (8, 6)) -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(np.full((size[1], size[0]), values, np.uint8)).save(file, "png")
    return file.getvalue()


def turned(orientation: int) -> Any:
    tags = Pillow.Exif()
    tags[0x0112] = orientation
    return tags


JPEG, PNG = saved("RGB", "jpeg"), saved("RGB", "png")
CRC = PNG[:-20] + bytes([PNG[-20] ^ 1]) + PNG[-19:]


def about_images(path: Path, schema: rk.Schema | None) -> list[Finding]:
    """The findings about images, and not those that equal images cause."""
    return [one for one in rk.check(path, schema).findings if "H730" <= one.code < "H780"]


def image_record(data: bytes, **keys: Any) -> dict[str, Any]:
    return {"image/encoded": [data], **{f"image/{name}": [value] for name, value in keys.items()}}


def claiming(side: int) -> bytes:
    """A small JPEG whose header claims to be square and large."""
    data = bytearray(JPEG)
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = side.to_bytes(2, "big") * 2
    return bytes(data)


ANY = rk.Schema({"image": rk.Image(key="image/encoded")})
BROKEN = {
    "empty": (b"", "H760", "is empty", "0 bytes"),
    "cut": (JPEG[:-40], "H761", "is truncated: the JPEG has no end", None),
    "cut in its header": (PNG[:12], "H761", "is truncated: the PNG has no end", None),
    "damaged": (CRC, "H762", "is corrupt: the checksum of a PNG chunk does not match", None),
    "text": (b"no image at all", "H763", "is not an image", "15 bytes starting with 6e 6f 20 69 6d 61 67 65"),
}


@pytest.mark.parametrize("at", [0, 3, 5], ids=["first", "middle", "last"])
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("schema", [ANY, None], ids=["declared", "not declared"])
@pytest.mark.parametrize("broken", BROKEN)
def test_an_image_that_does_not_decode_is_an_error_at_its_record(
    put_file: PutFile,
    compress: Callable[[bytes, str], bytes],
    broken: str,
    schema: rk.Schema | None,
    compression: str,
    at: int,
) -> None:
    data, code, message, found = BROKEN[broken]
    payloads = [example_bytes(image_record(PNG if i % 2 else JPEG)) for i in range(6)]
    payloads[at] = example_bytes(image_record(data))
    stream = frames(payloads)
    path = put_file(compress(stream, compression), "x.gz" if compression == "gzip" else "x.tfrecord")
    findings = about_images(path, schema)
    (one,) = findings
    assert (one.code, one.severity, one.path, one.record) == (code, "error", str(path), at)
    assert one.offset == frame_offsets(stream)[at]
    assert one.feature == ("image/encoded" if schema is None else "image")
    assert message in one.message
    assert found is None or one.found == found
    assert one.do == "write the record again from its source, or omit it"


def test_values_that_are_often_empty_are_left_alone_without_a_schema(put_records: PutFile) -> None:
    path = put_records([example_bytes(image_record(PNG if i % 2 else b"")) for i in range(8)])
    assert about_images(path, None) == []
    assert [(one.code, one.record) for one in about_images(path, ANY)] == [("H760", i) for i in (0, 2, 4, 6)]


def test_a_tiff_is_no_image_that_tensorflow_decodes(put_records: PutFile) -> None:
    path = put_records([example_bytes(image_record(data)) for data in (PNG, JPEG, saved("L", "tiff"))])
    (one,) = about_images(path, ANY)
    assert (one.code, one.severity, one.record) == ("H763", "error", 2)
    assert one.message == "`image` (stored as `image/encoded`) is TIFF, which TensorFlow does not decode"
    assert [(one.code, one.severity) for one in about_images(path, None)] == [("H763", "warning")]


def test_bytes_that_are_mostly_no_images_are_left_alone(put_records: PutFile) -> None:
    payloads = [example_bytes(image_record(b"\0\1\2" * 100)) for _ in range(30)] + [
        example_bytes(image_record(PNG[:60]))
    ]
    assert about_images(put_records(payloads), None) == []


# Formats.


def test_another_format_than_the_schema_declares_is_an_error(put_records: PutFile) -> None:
    schema = rk.Schema({"image/encoded": rk.Image(format="jpeg")})
    (one,) = about_images(put_records([example_bytes(image_record(each)) for each in (JPEG, PNG)]), schema)
    assert (one.code, one.severity, one.record, one.found) == ("H764", "error", 1, "PNG")
    assert one.message == "`image/encoded` is PNG, but declared as JPEG"
    assert one.do == 'declare format="png", or format=None for any format'


@pytest.mark.parametrize("schema", [DEEPLAB, None], ids=["declared", "not declared"])
def test_another_format_than_its_key_says_is_one_warning_a_file(
    put_records: PutFile, schema: rk.Schema | None
) -> None:
    rows = [
        image_record(PNG if i in (2, 4) else JPEG, format=b"jpeg", filename=b"a", height=6, width=8, channels=3)
        | {MASK: [ids()], "image/segmentation/class/format": [b"png"]}
        for i in range(6)
    ]
    (one,) = about_images(put_records([example_bytes(row) for row in rows]), schema)
    assert (one.code, one.severity, one.record, one.count) == ("H764", "warning", 2, 2)
    assert one.expected == "JPEG, as in `image/format`"
    assert "is PNG, but `image/format` is JPEG" in one.message


@pytest.mark.parametrize("said", [b"jpeg", b"JPEG", b"jpg", b"JPG", b".jpg", b"", b"raw", b"\xff\xfe"])
def test_names_of_one_format_are_the_same_and_unknown_ones_say_nothing(put_records: PutFile, said: bytes) -> None:
    assert about_images(put_records([example_bytes(image_record(JPEG, format=said))] * 2), None) == []


# Sizes.


@pytest.mark.parametrize(
    ("keys", "data", "expected", "likely"),
    [
        ({"height": 6, "width": 9}, PNG, "9 × 6 (width × height)", None),
        ({"height": 8, "width": 6}, PNG, "6 × 8 (width × height)", "width and height are swapped"),
        (
            {"height": 8, "width": 6},
            saved("RGB", "jpeg", exif=turned(6)),
            "6 × 8 (width × height)",
            "the image is rotated by EXIF, and the keys give the size of the rotated image",
        ),
        ({"height": 7}, PNG, "? × 7 (width × height)", None),
    ],
)
@pytest.mark.parametrize("schema", [ANY, None], ids=["declared", "not declared"])
def test_another_size_than_its_keys_say_is_an_error(
    put_records: PutFile,
    schema: rk.Schema | None,
    keys: dict[str, int],
    data: bytes,
    expected: str,
    likely: str | None,
) -> None:
    payloads = [
        example_bytes(image_record(PNG, height=6, width=8)),
        example_bytes(image_record(data, **keys)),
    ]
    found = [one for one in about_images(put_records(payloads), schema) if one.severity == "error"]
    (one,) = found
    assert (one.code, one.record, one.found, one.likely) == ("H765", 1, "8 × 6", likely)
    assert (one.expected or "").startswith(expected)
    assert "does not have the size in" in one.message


@pytest.mark.parametrize(
    ("image", "height", "width", "wrong"),
    [
        ("image", "height", "width", True),
        ("image", "image/height", "image/width", True),
        ("image", "image_height", "image_width", True),
        ("a/photo", "a/height", "a/width", True),
        ("a/photo", "b/height", "b/width", False),
    ],
)
def test_the_keys_of_an_image_are_those_beside_it(
    put_records: PutFile, image: str, height: str, width: str, wrong: bool
) -> None:
    payloads = [example_bytes({image: [PNG], height: [7], width: [8]})] * 2
    assert [one.code for one in about_images(put_records(payloads), None)] == ["H765", "H765"] * wrong


def test_a_size_beside_two_images_is_that_of_neither(put_records: PutFile) -> None:
    row = {"left": [PNG], "right": [saved("RGB", "png", (4, 4))], "height": [6], "width": [8]}
    assert about_images(put_records([example_bytes(row)] * 2), None) == []
    schema = rk.Schema({"left": rk.Image(), "right": rk.Image()})
    assert [one.code for one in about_images(put_records([example_bytes(row)]), schema) if one.code != "H754"] == []


# Channels, CMYK, EXIF.


def test_grey_where_three_channels_are_said_is_a_note_with_a_count(put_records: PutFile) -> None:
    grey = saved("L", "jpeg")
    payloads = [example_bytes(image_record(grey if i else JPEG, channels=3)) for i in range(4)]
    (one,) = about_images(put_records(payloads), None)
    assert (one.code, one.severity, one.record, one.count) == ("H738", "note", 1, 3)
    assert one.message == "`image/encoded` has 1 channel, but `image/channels` gives 3"


def test_colours_where_one_channel_is_said_are_a_warning(put_records: PutFile) -> None:
    (one,) = about_images(put_records([example_bytes(image_record(JPEG, channels=1))]), None)
    assert (one.code, one.severity, one.found) == ("H738", "warning", "3 channels of 8 bits")


@pytest.mark.parametrize("schema", [ANY, None], ids=["declared", "not declared"])
def test_cmyk_and_exif_are_notes_once_a_file(put_records: PutFile, schema: rk.Schema | None) -> None:
    cmyk, upside_down = saved("CMYK", "jpeg"), saved("RGB", "jpeg", exif=turned(3))
    payloads = [example_bytes(image_record(each)) for each in (JPEG, cmyk, upside_down, cmyk)]
    found = about_images(put_records(payloads), schema)
    assert [(one.code, one.severity, one.record, one.count) for one in found] == [
        ("H731", "note", 1, 2),
        ("H732", "note", 2, 1),
    ]
    assert "is CMYK: decoders do not agree on its colours" in found[0].message
    assert "turned by 180° (EXIF orientation 3)" in found[1].message


# Masks.

SIXTEEN = io.BytesIO()
Pillow.fromarray(np.ones((6, 8), np.uint16)).save(SIXTEEN, "png")
FORMS = {
    "palette": (saved("P", "png"), "a palette PNG: TensorFlow reads the brightness of the colours"),
    "RGB": (saved("RGB", "png"), "a colour PNG (RGB): TensorFlow reads the brightness"),
    "RGBA": (saved("RGBA", "png"), "a colour PNG (RGBA): TensorFlow reads the brightness"),
    "grey and alpha": (
        saved("LA", "png"),
        "a colour PNG (grey and alpha): TensorFlow reads the brightness",
    ),
    "one bit": (
        saved("1", "png"),
        "a grey PNG with 1 bits: TensorFlow reads each id multiplied by 255, scaled to 8 bits",
    ),
    "JPEG": (saved("L", "jpeg"), "JPEG: TensorFlow reads values altered by a lossy or colour format"),
}


def segmented(mask: bytes, image: bytes = JPEG, height: int = 6, width: int = 8) -> bytes:
    return example_bytes(
        image_record(image, format=b"jpeg", filename=b"a", height=height, width=width, channels=3)
        | {MASK: [mask], "image/segmentation/class/format": [b"png"]}
    )


def about_masks(path: Path, schema: rk.Schema | None) -> list[Finding]:
    return [one for one in about_images(path, schema) if one.severity == "error"]


@pytest.mark.parametrize("schema", [DEEPLAB, None], ids=["declared", "not declared"])
@pytest.mark.parametrize("form", FORMS)
def test_a_mask_that_is_no_grey_png_of_8_bits_is_an_error_that_says_what_is_read(
    put_records: PutFile, form: str, schema: rk.Schema | None
) -> None:
    data, message = FORMS[form]
    (one,) = about_masks(put_records([segmented(ids()), segmented(data)]), schema)
    assert (one.code, one.record) == ("H766", 1)
    assert one.feature == (MASK if schema is None else "mask")
    assert message in one.message


def test_a_mask_of_16_bits_loses_its_ids_where_8_are_declared(put_records: PutFile) -> None:
    path = put_records([segmented(ids()), segmented(SIXTEEN.getvalue())])
    (one,) = about_masks(path, DEEPLAB)
    assert (one.code, one.record) == ("H766", 1)
    assert "the upper 8 of 16 bits, so that every id below 256 becomes 0" in one.message
    assert about_masks(path, None) == []  # panoptic ids need them


def test_a_mask_of_8_bits_is_scaled_where_16_are_declared(put_records: PutFile) -> None:
    schema = rk.layouts.deeplab(classes=300).schema
    path = put_records([segmented(SIXTEEN.getvalue()), segmented(ids())])
    (one,) = about_masks(path, schema)
    assert (one.code, one.record) == ("H766", 1)
    assert "each id multiplied by 257, scaled to 16 bits" in one.message


def test_a_pixel_that_is_no_class_id_is_an_error_with_its_value_and_place(put_records: PutFile) -> None:
    values = np.ones((6, 8), np.uint8)
    values[4, 5] = 7
    path = put_records([segmented(ids()), segmented(ids(255)), segmented(ids(values))])
    (one,) = about_masks(path, DEEPLAB)
    assert (one.code, one.severity, one.record, one.feature) == ("H767", "error", 2, "mask")
    assert one.expected == "class ids from 0 to 2, or 255 (ignore)"
    assert one.found == "7 at row 4, column 5"
    assert about_masks(path, None) == []  # nobody said which classes there are


def test_255_that_is_not_declared_is_recognised(put_records: PutFile) -> None:
    schema = rk.layouts.deeplab(classes=3, ignore=None).schema
    (one,) = about_masks(put_records([segmented(ids(255))]), schema)
    assert one.code == "H767"
    assert one.likely == "255 is the only such value: it often marks pixels without a class"
    assert one.do == "ignore=255"


@pytest.mark.parametrize("schema", [DEEPLAB, None], ids=["declared", "not declared"])
@pytest.mark.parametrize(
    ("size", "likely"), [((7, 6), None), ((6, 8), "width and height are swapped: one of the two was rotated")]
)
def test_a_mask_of_another_size_than_its_image_is_an_error(
    put_records: PutFile, schema: rk.Schema | None, size: tuple[int, int], likely: str | None
) -> None:
    path = put_records([segmented(ids()), segmented(ids(size=size)), segmented(ids())])
    (one,) = about_masks(path, schema)
    assert (one.code, one.record, one.likely) == ("H768", 1, likely)
    assert one.expected == "8 × 6 (width × height), like the image"
    assert one.found == f"{size[0]} × {size[1]}"


def test_a_mask_whose_pixels_are_damaged_is_an_error(put_records: PutFile) -> None:
    # Whole as a PNG, and its pixels cannot be inflated.
    file = io.BytesIO()
    Pillow.fromarray(np.ones((6, 8), np.uint8)).save(file, "png")
    data = file.getvalue()
    at = data.index(b"IDAT")
    size = int.from_bytes(data[at - 4 : at], "big")
    body = b"IDAT" + bytes(size)
    bad = data[:at] + body + zlib.crc32(body).to_bytes(4, "big") + data[at + 8 + size :]
    (one,) = about_masks(put_records([segmented(ids()), segmented(bad)]), DEEPLAB)
    assert (one.code, one.record) == ("H762", 1)


def test_a_mask_with_too_many_pixels_is_a_warning(put_records: PutFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rekord.codec.images.store._MAX_PIXELS", 10)
    found = about_images(put_records([segmented(ids())]), DEEPLAB)
    assert [(one.code, one.severity, one.record, one.feature) for one in found] == [("H769", "warning", 0, "mask")]


# Sequences and lists.


def test_images_in_steps_are_looked_at(put_records: PutFile) -> None:
    schema = rk.Schema(context={"id": rk.Int64()}, steps={"frame": rk.Image()})
    payloads = [
        sequence_bytes({"id": [1]}, {"frame": [[PNG], [JPEG], [PNG]]}),
        sequence_bytes({"id": [2]}, {"frame": [[PNG], [PNG], [JPEG[:-30]]]}),
    ]
    path = put_records(payloads)
    for declared in (schema, None):
        (one,) = about_images(path, declared)
        assert (one.code, one.record, one.feature) == ("H761", 1, "frame")
        assert one.message.startswith("step 2 of `frame` is truncated")


def test_every_image_of_a_list_is_looked_at(put_records: PutFile) -> None:
    payloads = [
        example_bytes({"id": [1], "masks": [ids()] * 3}),
        example_bytes({"id": [1], "masks": [ids(), CRC]}),
    ]
    (one,) = about_images(put_records(payloads), None)
    assert (one.code, one.record, one.feature) == ("H762", 1, "masks")


def test_what_the_layouts_write_has_no_error(tmp_path: Path) -> None:
    rows = [
        {"image": saved("RGB", "jpeg", (8 + i, 6)), "mask": ids(i % 3, (8 + i, 6)), "filename": f"{i}.jpg"}
        for i in range(6)
    ]
    rk.write(rows, tmp_path / "out", layout=rk.layouts.deeplab(classes=3), progress=False)
    assert about_images(tmp_path / "out", None) == []
    (file,) = (tmp_path / "out").glob("*.tfrecord")
    assert about_images(file, None) == []


@pytest.mark.parametrize(
    ("side", "declared", "severity"),
    [
        (9_459, True, None),  # 89,472,681 pixels, and the limit is 89,478,485
        (9_460, True, "error"),
        (9_460, False, "warning"),
        (13_377, False, "warning"),  # twice the limit, where Pillow's warning becomes an error
        (13_378, False, "error"),
        (65_500, False, "error"),
    ],
)
def test_an_image_that_decoding_refuses_for_its_size_is_reported(
    put_records: PutFile, side: int, declared: bool, severity: str | None
) -> None:
    rows = [image_record(JPEG), image_record(claiming(side))]
    path = put_records([example_bytes(row) for row in rows])
    found = about_images(path, ANY if declared else None)
    assert [(one.code, one.severity, one.record) for one in found] == ([("H739", severity, 1)] if severity else [])
    if severity is not None:
        assert (found[0].expected, found[0].found) == ("at most 89,478,485", f"{side:,} × {side:,}")
        with pytest.raises(rk.DecodeError) as caught:
            list(rk.open(path, schema=ANY).batches(1, decode=True))
        assert (caught.value.code, caught.value.location.record) == ("D410", 1)


def test_the_limit_of_pixels_is_that_of_pillow(put_records: PutFile, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put_records([example_bytes(image_record(JPEG))])
    monkeypatch.setattr(Pillow, "MAX_IMAGE_PIXELS", 47)
    (one,) = about_images(path, ANY)
    assert (one.code, one.severity, one.found) == ("H739", "error", "8 × 6")
    monkeypatch.setattr(Pillow, "MAX_IMAGE_PIXELS", None)
    assert about_images(path, ANY) == []


def test_a_mask_that_decoding_refuses_for_its_size_is_reported(
    put_records: PutFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put_records([segmented(ids())])
    monkeypatch.setattr(Pillow, "MAX_IMAGE_PIXELS", 47)
    for schema, severity in ((DEEPLAB, "error"), (None, "warning")):
        found = about_images(path, schema)
        names = ["image", "mask"] if schema is not None else ["image/encoded", MASK]
        assert [(one.code, one.severity, one.feature) for one in found] == [
            ("H739", severity, name) for name in names
        ]
