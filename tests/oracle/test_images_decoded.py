"""Decoded images have the pixels that TensorFlow gives them."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.testing import example_bytes, frames

PIXELS = np.asarray(
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 8, 3)).astype(np.uint8)).resize(
        (61, 47), Image.Resampling.BICUBIC
    )
)
RGB = Image.fromarray(PIXELS)
GREY = Image.fromarray(PIXELS[..., 0].copy())
ALPHA = Image.fromarray(PIXELS[::-1, :, 1].copy())
RGBA = Image.merge("RGBA", (*RGB.split(), ALPHA))
PALETTE = RGB.quantize(16)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def wide_png(channels: int) -> bytes:
    """A PNG with 16 bits a sample, which Pillow does not write but for grey."""
    shape = (9, 11, channels)
    samples = np.random.default_rng(channels).integers(0, 1 << 16, shape).astype(">u2")
    rows = b"".join([b"\0" + row.tobytes() for row in samples])
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 11, 9, 16, colour, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        [
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in chunks
        ]
    )


def without_adobe(data: bytes) -> bytes:
    """A JPEG without the marker that says that its colours are inverted."""
    at = data.index(b"\xff\xee")
    return data[:at] + data[at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0] :]


JPEGS = {
    "jpeg": encoded(RGB, "jpeg", quality=90),
    "jpeg 4:4:4": encoded(RGB, "jpeg", quality=90, subsampling=0),
    "jpeg grey": encoded(GREY, "jpeg"),
    "jpeg progressive": encoded(RGB, "jpeg", progressive=True),
}
EQUAL = {
    "png": encoded(RGB, "png"),
    "png grey": encoded(GREY, "png"),
    "png alpha": encoded(RGBA, "png"),
    "png grey alpha": encoded(Image.merge("LA", (GREY, ALPHA)), "png"),
    "png palette": encoded(PALETTE, "png"),
    "png palette alpha": encoded(PALETTE, "png", transparency=bytes(range(0, 256, 16))),
    "png palette 4 bits": encoded(PALETTE, "png", transparency=3, bits=4),
    "png 1 bit": encoded(GREY.convert("1"), "png"),
    "png one colour clear": encoded(RGB, "png", transparency=tuple(PIXELS[0, 0].tolist())),
    **{f"png 16 bits of {channels}": wide_png(channels) for channels in (1, 2, 3, 4)},
    "gif": encoded(PALETTE, "gif"),
    "gif of frames": encoded(PALETTE, "gif", save_all=True, append_images=[PALETTE.rotate(90)]),
    "bmp": encoded(RGB, "bmp"),
    "bmp grey": encoded(GREY, "bmp"),
    "bmp alpha": encoded(RGBA, "bmp"),
    "webp": encoded(RGB, "webp", lossless=True),
    "webp lossy": encoded(RGB, "webp"),
    "cmyk without adobe": without_adobe(encoded(RGB.convert("CMYK"), "jpeg", quality=100)),
}


def decoded(
    folder: Path, data: bytes, channels: int | None = None, bits: int | None = 8, **options: Any
) -> np.ndarray:
    path = folder / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"image": [data]})]))
    schema = rk.Schema({"image": rk.Image(channels=channels, bits=bits)})
    (batch,) = rk.open(path, schema=schema).batches(1, decode=True, **options)
    return np.asarray(batch["image"][0])


def off(a: np.ndarray, b: np.ndarray) -> int:
    assert a.shape == b.shape
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_jpeg_has_the_pixels_of_tensorflows_accurate_method(
    tf: ModuleType, tmp_path: Path, kind: str, channels: int
) -> None:
    ours = decoded(tmp_path, JPEGS[kind], channels)
    accurate = tf.io.decode_jpeg(JPEGS[kind], channels=channels, dct_method="INTEGER_ACCURATE").numpy()
    assert off(ours, accurate) == 0
    assert off(ours, tf.io.decode_image(JPEGS[kind], channels=channels).numpy()) <= 8


@pytest.mark.parametrize("kind", EQUAL)
def test_other_formats_have_the_pixels_of_tensorflow(tf: ModuleType, tmp_path: Path, kind: str) -> None:
    theirs = tf.io.decode_image(EQUAL[kind], channels=3, expand_animations=False).numpy()
    # CMYK goes through the usual method of JPEG, which cannot be chosen there.
    assert off(decoded(tmp_path, EQUAL[kind]), theirs) <= (2 if kind.startswith("cmyk") else 0)


def test_cmyk_of_adobe_is_what_tensorflow_makes_of_it(tf: ModuleType, tmp_path: Path) -> None:
    data = encoded(RGB.convert("CMYK"), "jpeg")
    assert off(decoded(tmp_path, data), tf.io.decode_image(data, channels=3).numpy()) <= 3


@pytest.mark.parametrize("kind", [kind for kind in EQUAL if kind.startswith("png")])
@pytest.mark.parametrize("channels", [1, 4])
def test_grey_is_off_by_one_at_most_and_alpha_by_nothing(
    tf: ModuleType, tmp_path: Path, kind: str, channels: int
) -> None:
    if channels == 4 and kind in ("png 1 bit", "png palette"):
        # TensorFlow's alpha is the 1 of one bit there, or the palette's index.
        assert (decoded(tmp_path, EQUAL[kind], 4)[..., 3] == 255).all()
        return
    theirs = tf.io.decode_image(EQUAL[kind], channels=channels).numpy()
    assert off(decoded(tmp_path, EQUAL[kind], channels), theirs) <= (1 if channels == 1 else 0)


@pytest.mark.parametrize("stored", [1, 2, 3, 4])
@pytest.mark.parametrize("bits", [None, 16])
def test_a_16_bit_png_has_all_its_bits(tf: ModuleType, tmp_path: Path, stored: int, bits: int | None) -> None:
    data = wide_png(stored)
    for channels in (1, 3, 4):
        theirs = tf.io.decode_png(data, channels=channels, dtype=tf.uint16).numpy()
        ours = decoded(tmp_path, data, channels, bits)
        assert ours.dtype == np.uint16
        assert off(ours, theirs) <= (4 if channels == 1 else 0)  # grey of colours is rounded differently


@pytest.mark.parametrize("kind", ["png", "png grey", "png alpha"])
def test_8_bits_declared_as_16_are_scaled_as_by_tensorflow(tf: ModuleType, tmp_path: Path, kind: str) -> None:
    theirs = tf.io.decode_png(EQUAL[kind], channels=3, dtype=tf.uint16).numpy()
    assert off(decoded(tmp_path, EQUAL[kind], 3, 16), theirs) == 0


def test_16_bits_are_resized_as_tensorflow_resizes_floats(tf: ModuleType, tmp_path: Path) -> None:
    pixels = tf.io.decode_png(wide_png(3), dtype=tf.uint16)
    theirs = tf.image.resize(tf.cast(pixels, tf.float32), (5, 20), antialias=True).numpy()
    ours = decoded(tmp_path, wide_png(3), 3, None, resize=(5, 20))
    assert ours.dtype == np.uint16
    assert off(ours, np.rint(theirs)) <= 1


def test_tensorflow_gets_16_bits_if_they_are_declared(tf: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames([example_bytes({"image": [wide_png(3)]})]))
    split = rk.open(path, schema=rk.Schema({"image": rk.Image(bits=16)}))
    (batch,) = split.to_tensorflow(1, decode=True)
    assert batch["image"].dtype == tf.uint16
    assert bool(tf.reduce_all(batch["image"][0].to_tensor() == tf.io.decode_png(wide_png(3), dtype=tf.uint16)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="D412"):
        next(iter(rk.open(path, schema=rk.Schema({"image": rk.Image()})).to_tensorflow(1, decode=True)))


def test_resizing_is_tensorflows_with_antialiasing(tf: ModuleType, tmp_path: Path) -> None:
    for size in ((20, 30), (90, 100), (47, 20)):
        theirs = tf.image.resize(PIXELS, size, antialias=True).numpy()
        assert off(decoded(tmp_path, EQUAL["png"], resize=size), np.rint(theirs)) <= 1


def test_masks_are_resized_as_tensorflows_nearest_does(tf: ModuleType, tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image(), "mask": rk.Mask(classes=256)})
    path = tmp_path / "m.tfrecord"
    path.write_bytes(frames([example_bytes({"image": [EQUAL["png"]], "mask": [EQUAL["png grey"]]})]))
    stored = tf.io.decode_png(EQUAL["png grey"], channels=1)
    for size in ((20, 30), (90, 100), (47, 20), (5, 61), (1, 1)):
        (batch,) = rk.open(path, schema=schema).batches(1, decode=True, resize=size)
        theirs = tf.image.resize(stored, size, method="nearest").numpy()
        assert off(batch["mask"][0], theirs[..., 0]) == 0
