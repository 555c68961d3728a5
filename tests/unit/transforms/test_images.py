"""Transforms of images: images, masks, boxes and what is told of them, in one row."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.codec.images import jpeg
from rekord.codec.images.decode import decode_image, decode_mask
from rekord.codec.images.store import MaskIds
from rekord.transforms import chain, crop, decode, encode, grayscale, normalize, resize

RNG = np.random.default_rng(20)
Row = dict[str, Any]


def noise(height: int, width: int, *channels: int) -> np.ndarray:
    return RNG.integers(0, 256, (height, width, *channels)).astype(np.uint8)


def saved(pixels: Any, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, format, **options)
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def applied(row: Row, schema: rk.Schema, *steps: Any) -> Row:
    return chain(*steps).bind(schema).apply(dict(row))


ONLY = rk.Schema({"image": rk.Image()})


def pair(height: int = 48, width: int = 64, format: str = "PNG") -> tuple[Row, rk.Schema]:
    layout = rk.layouts.deeplab(classes=5)
    mask = RNG.integers(0, 5, (height, width)).astype(np.uint8)
    row = {"image": saved(noise(height, width, 3), format), "mask": mask, "filename": "a.png"}
    return dict(layout.derive(row, "full").values), layout.schema


# Sizes.


@pytest.mark.parametrize("filter", ["box", "bilinear", "hamming", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [(24, 31), (100, 90), (1, 1)])
def test_an_image_is_resized_as_pillow_resizes_it(filter, size):
    before = noise(48, 64, 3)
    row = applied({"image": saved(before)}, ONLY, resize(*size, filter=filter))
    wanted = Image.fromarray(before).resize(size[::-1], Image.Resampling[filter.upper()])
    # The core's bilinear filter rounds once, Pillow's after rows and after columns.
    apart = np.abs(pixels(row["image"]).astype(int) - np.asarray(wanted))
    assert apart.max() <= (1 if filter == "bilinear" else 0)


@pytest.mark.skipif(jpeg.simplejpeg is None, reason="simplejpeg has no wheel for this platform")
@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("size", [(24, 31), (150, 170), (300, 260)])
def test_a_resized_jpeg_has_the_same_bytes_without_simplejpeg(mode, fit, size, monkeypatch):
    before = saved(Image.fromarray(noise(20, 25, 3)).convert(mode).resize((250, 203)), "JPEG", quality=90)
    first = applied({"image": before}, ONLY, resize(*size, fit=fit))["image"]
    monkeypatch.setattr(jpeg, "simplejpeg", None)
    assert applied({"image": before}, ONLY, resize(*size, fit=fit))["image"] == first


def test_a_resized_image_does_not_share_memory_with_the_next():
    steps = chain(resize(16, 16), decode()).bind(ONLY)
    images = [saved(np.full((64, 64, 3), value, np.uint8), "JPEG") for value in (10, 200)]
    made = [steps.apply({"image": data})["image"] for data in images]
    assert [int(one.max()) for one in made] == [10, 200]


def test_nearest_takes_the_pixel_whose_middle_is_nearest():
    before = noise(48, 64, 3)
    row = applied({"image": saved(before)}, ONLY, resize(31, 90, filter="nearest"))
    rows, columns = [[(2 * i + 1) * n // (2 * m) for i in range(m)] for n, m in ((48, 31), (64, 90))]
    assert np.array_equal(pixels(row["image"]), before[rows][:, columns])


@pytest.mark.parametrize(
    ("before", "fit", "after"),
    [
        ((40, 80), "stretch", (20, 20)),
        ((40, 80), "pad", (20, 20)),
        ((40, 80), "crop", (20, 20)),
        ((40, 80), "within", (10, 20)),
        ((80, 40), "within", (20, 10)),
        ((5, 8), "within", (5, 8)),  # nothing is made larger
        ((1, 500), "within", (1, 20)),
        ((500, 1), "pad", (20, 20)),
        ((1, 500), "crop", (20, 20)),
        ((1, 1), "pad", (20, 20)),
    ],
)
def test_each_fit_gives_the_size_that_it_says(before, fit, after):
    row = applied({"image": saved(noise(*before, 3))}, ONLY, resize(20, 20, fit=fit))
    assert pixels(row["image"]).shape == (*after, 3)


def test_pad_puts_the_image_in_the_middle_of_a_colour():
    row = applied({"image": saved(noise(10, 20, 3))}, ONLY, resize(20, 20, fit="pad", pad=(1, 2, 3)))
    found = pixels(row["image"])
    assert (found[:5] == (1, 2, 3)).all()
    assert (found[15:] == (1, 2, 3)).all()
    assert not (found[5:15] == (1, 2, 3)).all(axis=-1).any()


def test_crop_by_fit_keeps_the_middle():
    before = np.zeros((10, 30, 3), np.uint8)
    before[:, 10:20] = 200
    row = applied({"image": saved(before)}, ONLY, resize(10, 10, fit="crop"))
    assert (pixels(row["image"]) == 200).all()


def test_crop_takes_the_middle_or_a_place():
    before = noise(9, 12, 3)
    row = {"image": saved(before)}
    assert np.array_equal(pixels(applied(row, ONLY, crop(3, 4))["image"]), before[3:6, 4:8])
    assert np.array_equal(pixels(applied(row, ONLY, crop(3, 4, at=(6, 0)))["image"]), before[6:, :4])


@pytest.mark.parametrize("step", [crop(10, 4), crop(4, 4, at=(6, 0)), crop(4, 13)])
def test_an_image_smaller_than_its_crop_is_a_bad_row(step):
    with pytest.raises(rk.EncodeError) as caught:
        applied({"image": saved(noise(9, 12, 3))}, ONLY, step)
    assert (caught.value.code, caught.value.location.feature) == ("E384", "image")
    assert caught.value.found == "9 × 12"


def test_an_image_that_has_its_size_keeps_its_bytes():
    data = saved(noise(20, 30, 3), "JPEG", quality=60)
    row = applied({"image": data}, ONLY, resize(20, 30), crop(20, 30), resize(90, 90, fit="within"))
    assert row["image"] == data


# Formats and modes.


@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP", "WEBP"])
def test_an_image_keeps_its_format(format):
    row = applied({"image": saved(noise(20, 30, 3), format)}, ONLY, resize(10, 10))
    assert Image.open(io.BytesIO(row["image"])).format == format


def test_a_gif_becomes_a_png_and_the_schema_must_allow_it():
    gif = saved(Image.fromarray(noise(20, 30, 3)).quantize(16), "GIF")
    assert Image.open(io.BytesIO(applied({"image": gif}, ONLY, resize(9, 9))["image"])).format == "PNG"
    declared = rk.Schema({"image": rk.Image(format="gif")})
    with pytest.raises(rk.SchemaError) as caught:
        chain(resize(9, 9)).bind(declared)
    assert (caught.value.code, caught.value.location.feature) == ("S141", "image")
    after = chain(resize(9, 9), encode("png")).bind(declared)
    assert after.schema["image"] == rk.Image(format="png")
    assert Image.open(io.BytesIO(after.apply({"image": gif})["image"])).format == "PNG"


MODES = {
    "L": Image.fromarray(noise(20, 30)),
    "LA": Image.merge("LA", [Image.fromarray(noise(20, 30)), Image.fromarray(noise(20, 30))]),
    "RGB": Image.fromarray(noise(20, 30, 3)),
    "RGBA": Image.fromarray(noise(20, 30, 4)),
    "P": Image.fromarray(noise(20, 30, 3)).quantize(16),
    "1": Image.fromarray(noise(20, 30)).convert("1"),
    "I;16": Image.fromarray((noise(20, 30).astype(np.uint16) << 8) + 7),
}


@pytest.mark.parametrize(
    ("mode", "after"),
    [("L", "L"), ("LA", "LA"), ("RGB", "RGB"), ("RGBA", "RGBA"), ("P", "RGB"), ("1", "L"), ("I;16", "I;16")],
)
def test_an_image_keeps_its_colours_and_its_depth(mode, after):
    row = applied({"image": saved(MODES[mode])}, ONLY, resize(10, 12, filter="box"))
    assert Image.open(io.BytesIO(row["image"])).mode == after


def test_grey_of_16_bits_is_averaged_in_16_bits():
    before = np.array([[1000, 3000], [5000, 7001]], np.uint16)
    row = applied({"image": saved(Image.fromarray(before))}, ONLY, resize(1, 1, filter="box"))
    assert pixels(row["image"]).tolist() == [[4000]]


def test_a_cmyk_jpeg_becomes_rgb():
    cmyk = saved(Image.fromarray(noise(20, 30, 3)).convert("CMYK"), "JPEG", quality=100)
    row = applied({"image": cmyk}, ONLY, resize(10, 10))
    assert Image.open(io.BytesIO(row["image"])).mode == "RGB"


def test_a_colour_that_stands_for_transparent_becomes_alpha():
    keyed = saved(Image.fromarray(np.zeros((4, 4, 3), np.uint8)), transparency=(0, 0, 0))
    row = applied({"image": keyed}, ONLY, resize(2, 2))
    assert (pixels(row["image"])[..., 3] == 0).all()


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("format", ["jpeg", "png", "webp"])
def test_every_mode_can_be_encoded_in_every_format(mode, format):
    row = applied({"image": saved(MODES[mode])}, ONLY, resize(8, 9), encode(format))
    found = Image.open(io.BytesIO(row["image"]))
    assert (found.format, found.size) == (format.upper(), (9, 8))


def test_the_quality_that_the_schema_declares_is_kept():
    before = saved(noise(64, 64, 3))
    small, large = [
        len(applied({"image": before}, ONLY, resize(60, 60), encode("jpeg", quality))["image"])
        for quality in (30, 95)
    ]
    declared = rk.Schema({"image": rk.Image(format="jpeg", quality=30)})
    jpeg = {"image": saved(pixels(before), "JPEG", quality=100)}
    assert small < large
    assert len(applied(jpeg, declared, resize(60, 60))["image"]) < len(applied(jpeg, ONLY, resize(60, 60))["image"])


def test_webp_without_a_quality_is_lossless_and_a_lossless_one_stays_so():
    before = noise(20, 30, 3)
    row = applied({"image": saved(before)}, ONLY, encode("webp"))
    assert np.array_equal(pixels(row["image"]), before)
    again = applied(row, ONLY, crop(10, 10, at=(0, 0)))
    assert np.array_equal(pixels(again["image"]), before[:10, :10])


def test_encode_declares_the_format():
    bound = encode("jpeg", 80).bind(rk.Schema({"image": rk.Image(format="png")}))
    assert bound.schema["image"] == rk.Image(format="jpeg", quality=80)
    assert bound.apply({"image": saved(noise(4, 4, 4))})["image"].startswith(b"\xff\xd8")


def test_a_png_that_is_to_be_a_png_is_not_touched():
    data = saved(noise(4, 4, 3))
    assert applied({"image": data}, ONLY, encode("png"))["image"] == data


def test_grayscale_declares_one_channel():
    row, schema = pair()
    bound = chain(grayscale(), resize(10, 10), decode()).bind(schema)
    assert bound.schema["image"] == rk.Tensor("uint8", shape=(10, 10, 1), key="image/pixels")
    made = chain(grayscale()).bind(schema)
    after = made.apply(dict(row))
    assert made.schema["image"].channels == after["channels"] == 1
    assert np.array_equal(pixels(after["image"]), np.asarray(Image.fromarray(pixels(row["image"])).convert("L")))


# Arrays.


def test_decode_gives_what_reading_with_decode_gives():
    row, schema = pair()
    after = applied(row, schema, resize(20, 30), decode())
    stored = applied(row, schema, resize(20, 30))
    assert np.array_equal(after["image"], decode_image(stored["image"], 3, None))
    assert np.array_equal(after["mask"], decode_mask(stored["mask"], MaskIds(5, 255), None))
    assert after["image"].dtype == after["mask"].dtype == np.uint8


def test_decode_drops_what_told_of_encoded_images():
    _, schema = pair()
    after = chain(resize(20, 30), decode()).bind(schema).schema
    assert list(after) == ["image", "filename", "height", "width", "channels", "mask"]
    assert after["image"] == rk.Tensor("uint8", shape=(20, 30, 3), key="image/pixels")
    assert after["mask"] == rk.Tensor("uint8", shape=(20, 30), key="image/segmentation/class/pixels")


def test_masks_with_many_classes_become_wide_tensors():
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=300)})
    assert chain(resize(4, 4), decode()).bind(schema).schema["mask"] == rk.Tensor("uint16", shape=(4, 4))


def test_normalize_is_reckoned_once_and_rounded_once():
    before = noise(8, 9, 3)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    wanted = ((before / 255.0 - np.array(mean)) / np.array(std)).astype(np.float32)
    for step in (normalize("imagenet"), normalize(mean, std), normalize(std="imagenet", mean=mean)):
        row = applied({"image": saved(before)}, ONLY, resize(8, 9), step)
        assert row["image"].dtype == np.float32
        assert np.allclose(row["image"], wanted, rtol=1e-6, atol=0)
    row = applied({"image": saved(before)}, ONLY, resize(8, 9), normalize())
    assert row["image"].min() >= 0
    assert row["image"].max() <= 1
    row = applied({"image": saved(before)}, ONLY, resize(8, 9), normalize(127.5, 127.5, scale=1))
    assert np.array_equal(row["image"], ((before - 127.5) / 127.5).astype(np.float32))


@pytest.mark.parametrize("step", [decode(), normalize()])
def test_images_of_any_size_make_no_tensor(step):
    for steps in ([step], [resize(9, 9, fit="within"), step]):
        with pytest.raises(rk.SchemaError) as caught:
            chain(*steps).bind(ONLY)
        assert (caught.value.code, caught.value.location.feature) == ("S139", "image")


def test_a_size_stays_known_behind_transforms_of_other_columns():
    schema = rk.Schema({"image": rk.Image(), "n": rk.Int64()})
    bound = chain(resize(4, 5), rk.transforms.cast("n", "float32"), decode()).bind(schema)
    assert bound.schema["image"] == rk.Tensor("uint8", shape=(4, 5, 3))
    row = bound.apply({"image": saved(noise(9, 9, 3)), "n": 3})
    assert row["image"].shape == (4, 5, 3)


def test_a_mean_must_fit_the_channels():
    with pytest.raises(rk.SchemaError) as caught:
        chain(resize(4, 4), normalize("imagenet")).bind(rk.Schema({"image": rk.Image(channels=1)}))
    assert (caught.value.code, caught.value.location.feature) == ("S138", "image")


def test_nothing_comes_behind_what_decodes():
    with pytest.raises(rk.SchemaError) as caught:
        chain(resize(4, 4), decode(), resize(3, 3)).bind(ONLY)
    assert caught.value.code == "S138"
    with pytest.raises(rk.SchemaError):
        resize(3, 3).bind(chain(resize(4, 4), decode()).bind(ONLY).schema)


# Rows.


def test_what_is_told_of_an_image_stays_true():
    layout = rk.layouts.classification(classes=["cat"])
    row = dict(layout.derive({"image": saved(noise(20, 30, 3)), "label": 0, "filename": "x"}, "full").values)
    after = applied(row, layout.schema, resize(8, 9), encode("jpeg"))
    told = {name: after[name] for name in ("height", "width", "format", "channels", "colorspace")}
    assert told == {"height": 8, "width": 9, "format": "JPEG", "channels": 3, "colorspace": "RGB"}
    row, schema = pair()
    assert applied(row, schema, encode("jpeg"))["format"] == "jpeg"


def test_a_missing_image_stays_missing_and_a_default_is_transformed():
    schema = rk.Schema({"image": rk.Image(optional=True), "n": rk.Int64()})
    bound = chain(resize(4, 4), decode()).bind(schema)
    assert bound.schema["image"].optional
    assert bound.apply({"image": None, "n": 1}) == {"image": None, "n": 1}
    white = saved(np.full((9, 9, 3), 255, np.uint8))
    filled = chain(resize(4, 4), decode()).bind(rk.Schema({"image": rk.Image(default=white)}))
    assert filled.schema["image"].required
    assert (filled.apply({})["image"] == 255).all()


def test_an_array_or_a_file_is_taken_as_the_encoder_takes_it(tmp_path):
    before = noise(20, 30, 3)
    (tmp_path / "a.png").write_bytes(saved(before))
    for value in (before, tmp_path / "a.png"):
        row = applied({"image": value}, ONLY, resize(5, 6), decode())
        assert np.array_equal(row["image"], applied({"image": saved(before)}, ONLY, resize(5, 6), decode())["image"])


def test_only_the_images_that_are_named_are_changed():
    schema = rk.Schema({"a": rk.Image(), "b": rk.Image(), "m": rk.Mask(classes=3, of="b")})
    mask = saved(np.zeros((20, 30), np.uint8))
    row = {"a": saved(noise(20, 30, 3)), "b": saved(noise(20, 30, 3)), "m": mask}
    after = applied(row, schema, resize(4, 4, columns=["a"]))
    assert pixels(after["a"]).shape == (4, 4, 3)
    assert after["b"] == row["b"]
    assert after["m"] == mask
    assert pixels(applied(row, schema, resize(4, 4, columns=["b"]))["m"]).shape == (4, 4)


@pytest.mark.parametrize("columns", [["m"], ["immage"], ["n"]])
def test_only_images_can_be_named(columns):
    schema = rk.Schema({"image": rk.Image(), "m": rk.Mask(classes=3), "n": rk.Int64()})
    with pytest.raises(rk.SchemaError) as caught:
        resize(4, 4, columns=columns).bind(schema)
    assert (caught.value.code, caught.value.location.feature) == ("S138", columns[0])


def test_a_schema_without_images_is_refused():
    with pytest.raises(rk.SchemaError) as caught:
        resize(4, 4).bind(rk.Schema({"n": rk.Int64()}))
    assert caught.value.code == "S138"
    with pytest.raises(rk.SchemaError) as caught:
        resize(4, 4).bind(rk.Schema(context={"n": rk.Int64()}, steps={"video": rk.Image()}))
    assert (caught.value.code, caught.value.location.feature) == ("S141", "video")


@pytest.mark.parametrize(
    "made",
    [
        lambda: resize(0, 4),
        lambda: resize(4, 99_999),
        lambda: resize(4, True),
        lambda: resize(4, 4, filter="cubic"),
        lambda: resize(4, 4, fit="fill"),
        lambda: resize(4, 4, pad=256),
        lambda: resize(4, 4, pad=(1, 2)),
        lambda: resize(4, 4, columns="image"),
        lambda: crop(4, 4, at="left"),
        lambda: crop(4, 4, at=(-1, 0)),
        lambda: encode("gif"),
        lambda: encode("png", 90),
        lambda: encode("jpeg", 0),
        lambda: normalize(std=0),
        lambda: normalize(float("nan")),
        lambda: normalize("imagenet", std=(1, 2, 3, 4, 5)),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(made):
    with pytest.raises(rk.UsageError) as caught:
        made()
    assert caught.value.code == "U605"


# Damage.


def test_a_damaged_image_names_its_column():
    whole = saved(noise(50, 50, 3), "JPEG")
    for data, code in ((b"no image", "D409"), (b"", "D409"), (saved(noise(50, 50, 3))[:2000], "D409")):
        with pytest.raises(rk.DecodeError) as caught:
            applied({"image": data}, ONLY, resize(4, 4))
        assert (caught.value.code, caught.value.location.feature) == (code, "image")
    assert applied({"image": whole}, ONLY, resize(4, 4))


def test_an_image_with_more_pixels_than_are_decoded_is_refused(monkeypatch):
    data = saved(noise(50, 50, 3))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2499)
    with pytest.raises(rk.DecodeError) as caught:
        applied({"image": data}, ONLY, resize(4, 4))
    assert (caught.value.code, caught.value.location.feature) == ("D410", "image")


def test_a_mask_of_another_size_is_refused():
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3)})
    row = {"image": saved(noise(9, 8, 3)), "mask": saved(np.zeros((8, 9), np.uint8))}
    with pytest.raises(rk.EncodeError) as caught:
        applied(row, schema, resize(4, 4))
    assert (caught.value.code, caught.value.location.feature) == ("E336", "mask")


def test_a_mask_that_is_none_is_refused():
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=3)})
    row = {"image": saved(noise(9, 8, 3)), "mask": saved(noise(9, 8, 3))}
    with pytest.raises(rk.DecodeError) as caught:
        applied(row, schema, resize(4, 4))
    assert (caught.value.code, caught.value.location.feature) == ("D411", "mask")


def test_the_digest_of_an_image_is_that_of_the_new_bytes():
    layout = rk.layouts.detection(classes=["cat"])
    row = {"image": saved(noise(20, 20, 3)), "filename": "x", "boxes": [[0, 0, 5, 5]], "labels": [1]}
    stored = dict(layout.derive(row, "full").values)
    after = applied(stored, layout.schema, resize(8, 8))
    assert after["sha256"] == hashlib.sha256(after["image"]).hexdigest() != stored["sha256"]
