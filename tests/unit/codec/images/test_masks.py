"""Every mask becomes a single-channel PNG of class ids, or is refused with the pixel that is wrong."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from rekord.codec.images.inspect import EncodedImage, VerifiedMask
from rekord.codec.images.store import check_mask_size, inspect_mask
from rekord.errors import EncodeError, RekordError, UsageError

GREY, RGB, PALETTE, GREY_ALPHA, RGBA = 0, 2, 3, 4, 6
SAMPLES = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGBA: 4}
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
VOC = {(0, 0, 0): 0, (128, 0, 0): 1, (224, 224, 192): 255}


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + size]))
        at += 12 + size
    return found


def packed(row: np.ndarray[Any, Any], bits: int) -> bytes:
    if bits == 16:
        return row.astype(">u2").tobytes()
    if bits == 8:
        return row.astype(np.uint8).tobytes()
    flat = (row.reshape(-1, 1) >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(flat.ravel().astype(np.uint8)).tobytes()


def png(
    ids: Any,
    *,
    kind: int = GREY,
    bits: int = 8,
    pieces: int = 1,
    interlaced: bool = False,
    extra: bytes | None = None,
    image_data: bytes | None = None,
) -> bytes:
    """A PNG put together by hand: everything that a header can say."""
    pixels = np.asarray(ids)
    height, width = pixels.shape[:2]
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    rows = [b"\0" + packed(row, bits) for x, y, dx, dy in passes for row in pixels[y::dy, x::dx] if row.shape[0] > 0]
    stream = zlib.compress(b"".join(rows)) if image_data is None else image_data
    step = -(-len(stream) // pieces)
    parts = [stream[at : at + step] for at in range(0, len(stream), step)]
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, int(interlaced))
    if extra is None:
        extra = chunk(b"PLTE", bytes(range(30))) if kind == PALETTE else b""
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra
    return start + b"".join([chunk(b"IDAT", part) for part in parts]) + chunk(b"IEND", b"")


def looked(value: Any, **options: Any) -> EncodedImage:
    return inspect_mask(value, **{"name": "mask", "classes": 21, "ignore": 255, "verify": "full", **options})


def refused(value: Any, **options: Any) -> RekordError:
    with pytest.raises(EncodeError) as caught:
        looked(value, **options)
    assert caught.value.location.feature == "mask"
    return caught.value


def ids_of(picture: EncodedImage) -> np.ndarray[Any, Any]:
    assert (picture.format, picture.channels) == ("png", 1)
    assert isinstance(picture.data, VerifiedMask)
    assert (picture.data[24], picture.data[25]) == (picture.bits, GREY)
    pixels = np.asarray(Pillow.open(io.BytesIO(picture.data)))
    assert pixels.shape == (picture.height, picture.width)
    return pixels


SOME = np.array([[0, 1, 20], [255, 20, 2]])


@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("verify", ["full", "headers"])
def test_a_grey_mask_passes_untouched(pieces: int, verify: Any, tmp_path: Path) -> None:
    data = png(SOME, pieces=pieces)
    assert looked(data, verify=verify).data == data
    (tmp_path / "m.png").write_bytes(data)
    found = looked(tmp_path / "m.png", verify=verify)
    assert (found.data, found.path) == (data, str(tmp_path / "m.png"))
    assert np.array_equal(ids_of(found), SOME)


@pytest.mark.parametrize("verify", ["full", "headers"])
def test_an_8_bit_palette_becomes_its_indices_without_new_pixels(verify: Any) -> None:
    extra = (
        chunk(b"gAMA", struct.pack(">I", 45455))
        + chunk(b"sBIT", b"\x08\x08\x08")
        + chunk(b"PLTE", bytes(768))
        + chunk(b"tRNS", b"\0")
        + chunk(b"bKGD", b"\0")
        + chunk(b"tEXt", b"Author\0me")
    )
    data = png(SOME, kind=PALETTE, extra=extra, pieces=2)
    found = looked(data, verify=verify)
    assert np.array_equal(ids_of(found), SOME)
    assert [name for name, _ in chunks(found.data)] == [b"IHDR", b"gAMA", b"tEXt", b"IDAT", b"IDAT", b"IEND"]
    before, after = (dict(chunks(png)) for png in (data, found.data))
    assert before[b"IDAT"] == after[b"IDAT"]
    assert before[b"IHDR"][:9] == after[b"IHDR"][:9]


@pytest.mark.parametrize("kind", [GREY, PALETTE])
@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("verify", ["full", "headers"])
def test_masks_of_few_bits_keep_their_ids(kind: int, bits: int, interlaced: bool, verify: Any) -> None:
    ids = np.arange(11 * 9).reshape(9, 11) % (1 << bits)
    data = png(ids, kind=kind, bits=bits, interlaced=interlaced)
    found = looked(data, verify=verify)
    assert found.bits == 8
    assert np.array_equal(ids_of(found), ids)


def test_16_bits_are_kept_where_ids_need_them_and_only_there() -> None:
    ids = np.array([[0, 299], [5, 65535]])
    wide = png(ids, bits=16)
    found = looked(wide, classes=300, ignore=65535)
    assert (found.data, found.bits) == (wide, 16)
    narrow = looked(png(SOME, bits=16))
    assert narrow.bits == 8
    assert np.array_equal(ids_of(narrow), SOME)
    # TensorFlow multiplies 8 bits by 257 where uint16 is asked for: all masks of a column have one depth.
    for kind in (GREY, PALETTE):
        widened = looked(png([[0, 7]], kind=kind), classes=300)
        assert widened.bits == 16
        assert np.array_equal(ids_of(widened), [[0, 7]])


def test_an_interlaced_mask_is_read_and_kept() -> None:
    ids = np.arange(19 * 13).reshape(13, 19) % 21
    data = png(ids, interlaced=True)
    assert looked(data).data == data
    bad = ids.copy()
    bad[6, 11] = 30
    bad[7, 0] = 31
    failure = refused(png(bad, interlaced=True))
    assert failure.found == "30 at row 6, column 11; 2 invalid pixels"
    assert np.array_equal(ids_of(looked(png(ids, kind=PALETTE, interlaced=True))), ids)


# Pixels that are no class ids.


def test_the_first_pixel_that_is_no_class_id_is_named(tmp_path: Path) -> None:
    ids = np.zeros((40, 60), int)
    ids[17, 23] = 21
    ids[17, 50] = ids[20, 3] = 99
    path = tmp_path / "m.png"
    for data in (png(ids), png(ids, kind=PALETTE), png(ids, bits=16)):
        path.write_bytes(data)
        failure = refused(path)
        assert (failure.code, failure.location.path) == ("E335", str(path))
        assert failure.what == "`mask` has pixels that are not class ids"
        assert failure.expected == "class ids from 0 to 20, or 255 (ignore)"
        assert failure.found == "21 at row 17, column 23; 3 invalid pixels"
        assert (failure.likely, failure.do) == (None, "fix the mask, or declare classes=100 or ignore=")
    assert looked(png(ids), verify="headers").data == png(ids)


@pytest.mark.parametrize(
    ("ids", "options", "likely", "do"),
    [
        (
            [[0, 3, 255]],
            {"ignore": None},
            "255 is the only such value: it often marks pixels without a class",
            "ignore=255",
        ),
        (
            [[0, 255]],
            {"classes": 2, "ignore": None},
            "all values are multiples of 255: the ids were scaled for display",
            "divide them by 255, or rk.layouts.deeplab(classes=2, colours={(0, 0, 0): 0, (255, 255, 255): 1})",
        ),
        (
            [[0, 60, 120, 240]],
            {"classes": 5, "ignore": None},
            "all values are multiples of 60: the ids were scaled for display",
            "divide them by 60, or rk.layouts.deeplab(classes=5, "
            "colours={(0, 0, 0): 0, (60, 60, 60): 1, (120, 120, 120): 2, (240, 240, 240): 4})",
        ),
        (
            [[1, 2, 21]],
            {"ignore": None},
            "no pixel is 0: the ids start at 1",
            "declare classes=22, or subtract 1",
        ),
        ([[0, 2, 21]], {"ignore": None}, None, "fix the mask, or declare classes=22 or ignore="),
    ],
)
def test_a_reason_is_given_where_the_values_show_one(ids: Any, options: Any, likely: str | None, do: str) -> None:
    failure = refused(png(ids), **options)
    assert (failure.code, failure.likely, failure.do) == ("E335", likely, do)


# Colours.

COLOURED = np.array([[[0, 0, 0], [128, 0, 0]], [[224, 224, 192], [0, 0, 0]]], np.uint8)


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("verify", ["full", "headers"])
@pytest.mark.parametrize("as_array", [False, True])
def test_colours_become_ids_through_a_map(alpha: bool, verify: Any, as_array: bool) -> None:
    pixels = np.concatenate([COLOURED, np.full((2, 2, 1), 255, np.uint8)], axis=2) if alpha else COLOURED
    value = pixels if as_array else png(pixels, kind=RGBA if alpha else RGB)
    found = looked(value, colours=VOC, verify=verify)
    assert np.array_equal(ids_of(found), [[0, 1], [255, 0]])


def test_grey_and_alpha_are_colours_too() -> None:
    pixels = np.array([[[0, 255], [9, 255]]], np.uint8)
    found = looked(png(pixels, kind=GREY_ALPHA), colours={(0, 0, 0): 3, (9, 9, 9): 4})
    assert np.array_equal(ids_of(found), [[3, 4]])


@pytest.mark.parametrize("verify", ["full", "headers"])
@pytest.mark.parametrize("as_array", [False, True])
def test_a_map_of_greys_maps_the_levels_of_grey_masks(verify: Any, as_array: bool) -> None:
    levels = np.array([[0, 255, 255], [255, 0, 0]], np.uint8)
    value = levels if as_array else png(levels, kind=GREY)
    found = looked(value, classes=2, colours={(0, 0, 0): 0, (255, 255, 255): 1}, verify=verify)
    assert np.array_equal(ids_of(found), levels // 255)
    other = np.array([[0, 7]], np.uint8)
    failure = refused(other if as_array else png(other, kind=GREY), colours={(0, 0, 0): 0, (255, 255, 255): 1})
    assert (failure.code, failure.found) == ("E333", "(7, 7, 7) at row 0, column 1; 1 such pixel")


def test_ids_of_grey_and_palette_masks_need_no_colours() -> None:
    for kind in (GREY, PALETTE):
        assert np.array_equal(ids_of(looked(png(SOME, kind=kind), colours=VOC)), SOME)


def test_a_colour_that_the_map_lacks_is_named_with_its_pixel(tmp_path: Path) -> None:
    pixels = COLOURED.copy()
    pixels[1, 0] = (128, 0, 1)
    path = tmp_path / "m.png"
    path.write_bytes(png(pixels, kind=RGB))
    failure = refused(path, colours=VOC)
    assert (failure.code, failure.location.path) == ("E333", str(path))
    assert failure.found == "(128, 0, 1) at row 1, column 0; 1 such pixel"
    assert failure.likely is None
    clear = np.concatenate([COLOURED, np.array([[[255], [255]], [[255], [7]]], np.uint8)], axis=2)
    failure = refused(png(clear, kind=RGBA), colours=VOC)
    assert (failure.code, failure.found) == (
        "E333",
        "(0, 0, 0) with alpha 7 at row 1, column 1; 1 such pixel",
    )
    assert refused(png(pixels, kind=RGB), colours={}).code == "E333"


def test_smoothed_edges_are_told_by_their_many_colours() -> None:
    ramp = np.repeat(np.arange(100, dtype=np.uint8)[None, :, None], 3, axis=2).repeat(4, axis=0)
    failure = refused(png(ramp, kind=RGB), colours=VOC)
    assert failure.likely == "99 colours are unknown: edges were smoothed by resizing, or by JPEG"


def test_a_map_that_leads_beyond_the_classes_is_noticed() -> None:
    failure = refused(png(COLOURED, kind=RGB), colours={**VOC, (128, 0, 0): 40})
    assert (failure.code, failure.found) == ("E335", "40 at row 0, column 1")


@pytest.mark.parametrize("colours", [{(0, 0): 1}, {(0, 0, 256): 1}, {"red": 1}, {(0, 0, 0): -1}, {(0, 0, 0): "x"}])
def test_a_colour_map_that_is_none_is_wrong_usage(colours: Any) -> None:
    with pytest.raises(UsageError) as caught:
        looked(png(COLOURED, kind=RGB), colours=colours)
    assert caught.value.code == "U605"


@pytest.mark.parametrize(
    ("kind", "bits", "found"),
    [
        (RGB, 8, "a PNG of 8 bits, RGB"),
        (RGBA, 8, "a PNG of 8 bits, RGBA"),
        (GREY_ALPHA, 8, "a PNG of 8 bits, grey and alpha"),
        (RGB, 16, "a PNG of 16 bits, RGB"),
    ],
)
@pytest.mark.parametrize("verify", ["full", "headers"])
def test_colours_without_a_map_are_refused_by_name(kind: int, bits: int, found: str, verify: Any) -> None:
    pixels = np.zeros((2, 2, SAMPLES[kind]), np.uint16)
    failure = refused(png(pixels, kind=kind, bits=bits), verify=verify)
    assert (failure.code, failure.found) == ("E334", found)
    if bits == 16:
        assert refused(png(pixels, kind=kind, bits=bits), colours=VOC).what == "`mask` has colours of 16 bits"


# Files that are no masks.


def test_other_formats_are_refused_and_named(tmp_path: Path) -> None:
    for form, name in (("jpeg", "JPEG"), ("bmp", "BMP"), ("webp", "WebP"), ("tiff", "TIFF"), ("gif", "GIF")):
        path = tmp_path / f"m.{form}"
        Pillow.new("L", (4, 3)).save(path)
        for verify in ("full", "headers"):
            failure = refused(path, verify=verify)
            assert (failure.code, failure.found, failure.location.path) == ("E323", name, str(path))
    assert refused(b"hello").found == "5 bytes starting with 68 65 6c 6c 6f"


def test_empty_cut_and_damaged_masks_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.png"
    data = png(SOME, kind=PALETTE)
    for content, code in ((b"", "E330"), (data[:-20], "E331"), (data[:45] + b"?" + data[46:], "E332")):
        path.write_bytes(content)
        for verify in ("full", "headers"):
            failure = refused(path, verify=verify)
            assert (failure.code, failure.location.path) == (code, str(path))
    assert refused(Path("/no/such/mask.png")).code == "E329"
    assert refused("m.png").code == "E322"


def test_image_data_that_does_not_hold_the_pixels_is_refused() -> None:
    whole = b"\0\0\1\2" + b"\0\3\4\5"
    cases = {
        "E331": zlib.compress(whole[:-1]),
        "E332": zlib.compress(b"\5" + whole[1:]),
    }
    for code, stream in cases.items():
        assert refused(png(SOME[:, :3], image_data=stream)).code == code
    broken = zlib.compress(whole)[:-1] + b"?"
    failure = refused(png(SOME, image_data=broken))
    assert (failure.code, failure.found) == (
        "E332",
        "corrupt bytes, or a wrong checksum",
    )
    assert refused(png(SOME, image_data=b"no deflate at all")).code == "E332"
    # What is more than the pixels need is not read, however much it is; decoders do the same.
    assert looked(png(SOME, image_data=zlib.compress(whole + bytes(1 << 20)))).width == 3


def test_a_mask_that_claims_too_much_is_refused_before_it_is_inflated() -> None:
    many = b"\x78\x9c" + bytes(400_000)
    header = struct.pack(">IIBBBBB", 1 << 15, 1 << 14, 1, GREY, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", many) + chunk(b"IEND", b"")
    failure = refused(data)
    assert (failure.code, failure.found) == ("E337", "32,768 × 16,384")


def test_remarks_on_a_mask_name_its_file(tmp_path: Path) -> None:
    path = tmp_path / "m.jpg"
    path.write_bytes(png(SOME))
    assert looked(path).remarks == (("H733", "m.jpg is PNG: it is recorded as what it is"),)


# Arrays.


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint16, bool])
def test_an_array_of_ids_becomes_a_png(dtype: Any) -> None:
    ids = np.array([[0, 1, 1], [1, 0, 1]], dtype)
    found = looked(ids)
    assert (found.width, found.height, found.path) == (3, 2, None)
    assert np.array_equal(ids_of(found), ids)
    assert looked(np.asfortranarray(ids)).data == found.data
    assert looked(ids[:, :, None]).data == found.data
    assert np.array_equal(ids_of(looked(ids, classes=1000)), ids)


def test_an_array_that_is_no_mask_is_refused() -> None:
    for array in (np.zeros((2, 2)), np.zeros(4, int), np.zeros((0, 2), int), np.zeros((2, 2, 3), np.uint8)):
        assert refused(array).code == "E323"
    assert refused(np.zeros((0, 2, 3), np.uint8), colours=VOC).code == "E323"
    assert refused(np.array([[0, 300]])).found == "300 at row 0, column 1"
    assert refused(np.array([[0], [-1]])).found == "-1 at row 1, column 0"


# Pages.

PAGES = Path(__file__).parents[4] / "docs" / "errors"


def test_the_examples_on_the_pages_are_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("masks/1.png")
    path.parent.mkdir()

    def said(content: bytes, **options: Any) -> str:
        path.write_bytes(content)
        return refused(path, **options).message

    pixels = COLOURED.copy()
    pixels[1, 0] = (128, 0, 1)
    huge = png([[0]], bits=1, image_data=bytes(400_000))
    header = struct.pack(">IIBBBBB", 1 << 15, 1 << 14, 1, GREY, 0, 0, 0)
    huge = huge[:8] + chunk(b"IHDR", header) + huge[33:]
    assert said(png(pixels, kind=RGB), colours=VOC) in (PAGES / "E333.md").read_text(encoding="utf-8")
    assert said(huge) in (PAGES / "E337.md").read_text(encoding="utf-8")
    turned = ("H732", "1.jpg is to be shown turned")
    image = EncodedImage(b"", "jpeg", 640, 480, 3, 8, (turned,), path="images/1.jpg")
    mask = EncodedImage(b"", "png", 480, 640, 1, 8, path="masks/1.png")
    with pytest.raises(EncodeError) as caught:
        check_mask_size(image, mask, name="mask")
    assert caught.value.message in (PAGES / "E336.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("array", "found", "do"),
    [
        (np.ones((2, 3)), "array of float64, shape (2, 3), all integers", 'mask.astype("uint8")'),
        (
            SOME.astype(np.float32) / 255,
            "array of float32, shape (2, 3), from 0 to 1: integers divided by 255",
            'np.rint(mask * 255).astype("uint8")',
        ),
        (np.full((2, 3), 1 / 3 - 0.001), "array of float64, shape (2, 3)", "give one class id per pixel"),
        (np.full((2, 3), np.nan), "array of float64, shape (2, 3)", "give one class id per pixel"),
        (
            np.zeros((2, 3, 21)),
            "array of float64, shape (2, 3, 21), one number per class",
            "mask.argmax(axis=-1)",
        ),
    ],
)
def test_floats_are_no_class_ids_and_the_way_to_ids_is_said(array: Any, found: str, do: str) -> None:
    with pytest.raises(EncodeError) as caught:
        looked(array)
    assert (caught.value.code, caught.value.location.feature) == ("E323", "mask")
    assert (caught.value.found, caught.value.do) == (found, do)
