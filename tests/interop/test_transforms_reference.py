"""Transforms of images beside Pillow, OpenCV and TensorFlow, and through the feeds of the frameworks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

import rekord as rk
from rekord import transforms as T

RNG = np.random.default_rng(3)
IMAGE = rk.Schema({"image": rk.Image()})


def smooth(height: int, width: int) -> np.ndarray:
    """An image as cameras make them: large shapes, and a little noise."""
    small = RNG.normal(128, 70, (6, 8, 3)).clip(0, 255).astype(np.uint8)
    large = np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return (large + RNG.normal(0, 4, large.shape)).clip(0, 255).astype(np.uint8)


def saved(pixels: np.ndarray, format: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


def decoded(data: bytes, *steps: Any) -> np.ndarray:
    return T.chain(*steps, T.decode()).bind(IMAGE).apply({"image": data})["image"]


def off(one: np.ndarray, other: np.ndarray) -> tuple[float, int]:
    """By how much two images differ: on average, and at most."""
    apart = np.abs(one.astype(int) - other.astype(int))
    return float(apart.mean()), int(apart.max())


SIZES = [((480, 640), (224, 224)), ((200, 300), (100, 150)), ((50, 40), (120, 130)), ((97, 101), (33, 64))]


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_bilinear_is_that_of_tensorflow_with_antialiasing(before, after):
    pixels = smooth(*before)
    wanted = tf.image.resize(pixels, after, "bilinear", antialias=True).numpy()
    mean, most = off(decoded(saved(pixels), T.resize(*after)), np.rint(wanted).clip(0, 255))
    assert mean < 0.5
    assert most <= 1


@pytest.mark.parametrize(("before", "after"), SIZES)
@pytest.mark.parametrize(("filter", "method"), [("lanczos", "lanczos3"), ("bicubic", "bicubic")])
def test_sharper_filters_are_near_those_of_tensorflow(before, after, filter, method):
    pixels = smooth(*before)
    wanted = tf.image.resize(pixels, after, method, antialias=True).numpy()
    mean, most = off(decoded(saved(pixels), T.resize(*after, filter=filter)), np.rint(wanted).clip(0, 255))
    assert mean < 1
    assert most <= 8  # Pillow's bicubic has another coefficient


def test_box_by_a_whole_factor_is_the_area_average_of_opencv():
    pixels = smooth(200, 300)
    wanted = cv2.resize(pixels, (75, 50), interpolation=cv2.INTER_AREA)
    assert off(decoded(saved(pixels), T.resize(50, 75, filter="box")), wanted)[1] <= 1


@pytest.mark.parametrize(("before", "after"), SIZES)
def test_masks_and_nearest_are_the_exact_nearest_of_opencv(before, after):
    mask = RNG.integers(0, 200, before).astype(np.uint8)
    clear = np.ix_(*[_without_ties(*sides) for sides in zip(before, after, strict=True)])
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=200)})
    for filter in ("nearest", "lanczos"):
        bound = T.chain(T.resize(*after, filter=filter), T.decode()).bind(schema)
        row = bound.apply({"image": saved(smooth(*before)), "mask": saved(mask)})
        wanted = cv2.resize(mask, after[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
        assert np.array_equal(row["mask"][clear], wanted[clear])
    pixels = smooth(*before)
    wanted = cv2.resize(pixels, after[::-1], interpolation=cv2.INTER_NEAREST_EXACT)
    assert np.array_equal(decoded(saved(pixels), T.resize(*after, filter="nearest"))[clear], wanted[clear])


def _without_ties(before: int, after: int) -> np.ndarray:
    """The places whose middle lies in one pixel, and not between two: OpenCV then takes the other one."""
    return np.flatnonzero((2 * np.arange(after) + 1) * before % (2 * after))


@pytest.mark.parametrize("before", [(200, 300), (300, 200), (64, 64)])
def test_crop_and_pad_are_those_of_pillow(before):
    pixels = smooth(*before)
    image = Image.fromarray(pixels)
    fitted = ImageOps.fit(image, (90, 60), Image.Resampling.BILINEAR)
    assert off(decoded(saved(pixels), T.resize(60, 90, fit="crop")), np.asarray(fitted))[1] <= 1
    padded = ImageOps.pad(image, (90, 60), Image.Resampling.BILINEAR, color=(9, 9, 9))
    found = decoded(saved(pixels), T.resize(60, 90, fit="pad", pad=9))
    assert off(found, np.asarray(padded))[0] < 0.5


@pytest.mark.parametrize("quality", [75, 95])
def test_a_jpeg_that_is_decoded_smaller_is_near_one_that_is_decoded_whole(quality):
    data = saved(smooth(480, 640), "JPEG", quality=quality)
    whole = Image.open(io.BytesIO(data)).convert("RGB").resize((224, 224), Image.Resampling.BILINEAR)
    mean, most = off(decoded(data, T.resize(224, 224)), np.asarray(whole))
    assert mean < 1
    assert most <= 12
    exact = Image.open(io.BytesIO(data)).convert("RGB").resize((224, 224), Image.Resampling.LANCZOS)
    assert np.array_equal(decoded(data, T.resize(224, 224, filter="lanczos")), np.asarray(exact))


def test_what_is_encoded_is_what_tensorflow_decodes():
    pixels = smooth(100, 120)
    bound = T.chain(T.resize(50, 60), T.encode("jpeg", 90)).bind(IMAGE)
    data = bound.apply({"image": saved(pixels)})["image"]
    found = tf.io.decode_jpeg(data, dct_method="INTEGER_ACCURATE").numpy()
    assert np.array_equal(found, np.asarray(Image.open(io.BytesIO(data))))
    assert off(found, decoded(saved(pixels), T.resize(50, 60)))[0] < 4  # colours at half the resolution


def test_normalize_is_that_of_tensorflow():
    pixels = smooth(30, 40)
    mean, std = np.array([0.485, 0.456, 0.406], np.float32), np.array([0.229, 0.224, 0.225], np.float32)
    wanted = ((tf.image.convert_image_dtype(pixels, tf.float32) - mean) / std).numpy()
    bound = T.chain(T.resize(30, 40), T.normalize("imagenet")).bind(IMAGE)
    assert np.allclose(bound.apply({"image": saved(pixels)})["image"], wanted, rtol=0, atol=1e-6)


# Feeds.


@pytest.fixture
def splits(tmp_path: Path) -> tuple[Any, Any]:
    """A split that was written with transforms, and one that has them when it is read."""
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=9), "label": rk.Label(3)})
    rows = [
        {
            "image": saved(smooth(40, 50), "JPEG"),
            "mask": RNG.integers(0, 9, (40, 50)).astype(np.uint8),
            "label": number % 3,
        }
        for number in range(11)
    ]
    steps = [T.resize(20, 24, fit="pad"), T.normalize("imagenet")]
    for name, some in (("raw", ()), ("made", steps)):
        rk.write(rows, tmp_path / name, schema=schema, transforms=some, workers=1, progress=False)
    return rk.open(tmp_path / "made")["train"], rk.open(tmp_path / "raw")["train"].transform(*steps)


def test_tensorflow_gets_what_was_written(splits):
    one, other = (list(split.to_tensorflow(4, shuffle=True)) for split in splits)
    assert len(one) == len(other) == 3
    for a, b in zip(one, other, strict=True):
        assert a["image"].shape[1:] == (20, 24, 3)
        assert all(np.array_equal(a[name], b[name]) for name in a)
    with pytest.raises(rk.UsageError) as caught:
        splits[1].to_tensorflow(4, mode="ops")
    assert caught.value.code == "U651"
    assert caught.value.expected == "an option that TensorFlow's operations support"


def test_keras_gets_what_was_written(splits):
    one, other = (list(split[:8].to_keras(4, x="image", y="label")) for split in splits)
    for (x, y), (u, v) in zip(one, other, strict=True):
        assert np.array_equal(x, u)
        assert np.array_equal(y, v)


@pytest.mark.parametrize("style", ["loader", "map"])
def test_torch_gets_what_was_written(splits, style):
    torch = pytest.importorskip("torch")
    options = {"style": "map"} if style == "map" else {"batch_size": 4, "shuffle": True}
    one, other = (split.to_torch(**options) for split in splits)
    if style == "map":
        one, other = ([data[i] for i in range(len(data))] for data in (one, other))
    found = list(zip(one, other, strict=True))
    assert found
    for a, b in found:
        assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.concurrency
def test_workers_of_torch_get_what_was_written(splits):
    torch = pytest.importorskip("torch")
    one, other = (list(split.to_torch(4, workers=2)) for split in splits)
    assert len(one) == len(other) == 3
    for a, b in zip(one, other, strict=True):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_jax_gets_what_was_written(splits):
    one, other = (list(split.to_jax(4)) for split in splits)
    for a, b in zip(one, other, strict=True):
        assert all(np.array_equal(a[name], b[name]) for name in a)
