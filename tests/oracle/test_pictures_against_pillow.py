"""What is said of an image is what Pillow sees in it, and the masks that are stored are what TensorFlow reads."""

from __future__ import annotations

import io
import random
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from rekord.codec.images.inspect import inspect_image
from rekord.codec.images.store import inspect_mask

SEED = 20260101
MODES = {
    "jpeg": ["L", "RGB", "CMYK"],
    "png": ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"],
    "gif": ["L", "P"],
    "bmp": ["1", "L", "P", "RGB", "RGBA"],
    "webp": ["RGB", "RGBA"],
}


def _image(mode: str, width: int, height: int, rng: np.random.Generator) -> Any:
    if mode == "I;16":
        return Pillow.fromarray(rng.integers(0, 1 << 16, (height, width), dtype=np.uint16))
    small = Pillow.fromarray(rng.integers(0, 256, (3, 3, 4), dtype=np.uint8))
    smooth = small.resize((width, height), Pillow.Resampling.BICUBIC)
    return smooth.convert("RGB").convert(mode) if mode in ("P", "1", "CMYK") else smooth.convert(mode)


def _options(form: str, choose: random.Random) -> dict[str, Any]:
    match form:
        case "jpeg":
            options: dict[str, Any] = {
                "quality": choose.randrange(5, 100),
                "progressive": choose.random() < 0.5,
            }
            return options | ({"restart_marker_rows": 1} if choose.random() < 0.3 else {})
        case "png":
            return {"compress_level": choose.randrange(10)}
        case "webp":
            return {"lossless": choose.random() < 0.5}
        case "gif":
            return {"interlace": choose.randrange(2)}
    return {}


@pytest.mark.parametrize("form", MODES)
def test_every_image_that_pillow_writes_is_whole_and_has_the_size_that_pillow_sees(form: str) -> None:
    choose, rng = random.Random(SEED), np.random.default_rng(SEED)
    for mode in MODES[form]:
        for _ in range(8):
            width, height = choose.randrange(1, 200), choose.randrange(1, 200)
            file = io.BytesIO()
            _image(mode, width, height, rng).save(file, form, **_options(form, choose))
            data = file.getvalue()
            seen = Pillow.open(io.BytesIO(data))
            for verify in ("full", "headers"):
                found = inspect_image(data, name="image", verify=verify)
                assert (found.width, found.height) == seen.size == (width, height)
                assert found.format.upper() == seen.format
                if form in ("jpeg", "png") and mode not in ("P", "1", "I;16"):
                    assert found.channels == len(seen.getbands())


def _regions(width: int, height: int, classes: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Flat regions with some noise, as masks have them: every filter of PNG gets its turn."""
    ids = np.zeros((height, width), np.int64)
    for _ in range(12):
        x, y = int(rng.integers(width)), int(rng.integers(height))
        ids[y : y + int(rng.integers(1, 80)), x : x + int(rng.integers(1, 80))] = rng.integers(classes)
    slope = np.arange(width) * classes // width
    ids[height // 2 : height // 2 + 5] = slope
    speckled = rng.random((height, width)) < 0.01
    ids[speckled] = rng.integers(0, classes, int(speckled.sum()))
    return ids


def _saved(image: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "png", **options)
    return file.getvalue()


def _palette(ids: np.ndarray[Any, Any]) -> Any:
    image = Pillow.fromarray(ids.astype(np.uint8)).convert("P")
    image.putdata(ids.ravel().tolist())
    image.putpalette(np.random.default_rng(SEED).integers(0, 256, 768).tolist())
    return image


@pytest.mark.parametrize("level", [1, 6, 9])
def test_tensorflow_reads_the_ids_of_every_kind_of_mask(tf: ModuleType, level: int) -> None:
    rng = np.random.default_rng(SEED + level)
    for width, height in ((1, 1), (7, 3), (64, 64), (301, 97)):
        ids = _regions(width, height, 15, rng)
        red = np.zeros((height, width, 3), np.uint8)
        red[:, :, 0] = ids * 10
        given = {
            "grey": _saved(Pillow.fromarray(ids.astype(np.uint8)), compress_level=level),
            "grey of 16 bits": _saved(Pillow.fromarray(ids.astype(np.uint16)), compress_level=level),
            "palette": _saved(_palette(ids), compress_level=level, bits=8),
            "palette of 4 bits": _saved(_palette(ids), compress_level=level, bits=4),
            "colours": _saved(Pillow.fromarray(red), compress_level=level),
        }
        colours = {(number * 10, 0, 0): number for number in range(15)}
        for kind, data in given.items():
            for verify in ("full", "headers"):
                found = inspect_mask(
                    data,
                    name="mask",
                    classes=15,
                    ignore=255,
                    colours=colours,
                    verify=verify,
                )
                read = tf.io.decode_png(found.data, channels=1).numpy()[:, :, 0]
                assert np.array_equal(read, ids), kind
            wide = inspect_mask(data, name="mask", classes=300, ignore=None, colours=colours, verify="full")
            read = tf.io.decode_png(wide.data, channels=1, dtype=tf.uint16).numpy()[:, :, 0]
            assert np.array_equal(read, ids), kind


def test_what_tensorflow_would_make_of_the_masks_that_are_changed(tf: ModuleType) -> None:
    """Why masks are rewritten: read as they are, their ids are garbage."""
    ids = np.arange(12).reshape(3, 4)
    palette = _saved(_palette(ids), bits=8)
    assert not np.array_equal(tf.io.decode_png(palette, channels=1).numpy()[:, :, 0], ids)
    wide = _saved(Pillow.fromarray(ids.astype(np.uint16)))
    assert not np.array_equal(tf.io.decode_png(wide, channels=1).numpy()[:, :, 0], ids)
    narrow = _saved(Pillow.fromarray(ids.astype(np.uint8)))
    read = tf.io.decode_png(narrow, channels=1, dtype=tf.uint16).numpy()[:, :, 0]
    assert np.array_equal(read, ids * 257)
