"""JPEGs decoded by simplejpeg or Pillow, and images resized by the core."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from rekord.codec.images import jpeg
from rekord.codec.images.decode import decode_image
from rekord.codec.images.inspect import InvalidImage

needs_simplejpeg = pytest.mark.skipif(jpeg.simplejpeg is None, reason="simplejpeg has no wheel for this platform")


def photo(height: int, width: int) -> Any:
    rng = np.random.default_rng(height * 1000 + width)
    cells = Pillow.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8))
    smooth = cells.resize((width, height), Pillow.Resampling.BICUBIC)
    return Pillow.fromarray(
        np.clip(np.asarray(smooth) + rng.normal(0, 5, (height, width, 1)), 0, 255).astype(np.uint8)
    )


def encoded(image: Any, format: str = "jpeg", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def decode_by_pillow(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(jpeg, "simplejpeg", None)
        return decode_image(*arguments)


@needs_simplejpeg
@pytest.mark.parametrize("size", [(480, 640), (481, 643), (33, 47), (8, 8), (1, 1), (17, 200)])
@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}, {"keep_rgb": True}])
@pytest.mark.parametrize("resize", [None, (5, 7), (60, 60), (224, 224)])
@pytest.mark.parametrize("channels", [1, 3])
def test_simplejpeg_and_pillow_give_the_same_pixels(
    monkeypatch: pytest.MonkeyPatch, size: Any, options: Any, resize: Any, channels: int
) -> None:
    data = encoded(photo(*size), quality=90, **options)
    fast = decode_image(data, channels, resize)
    assert np.array_equal(fast, decode_by_pillow(monkeypatch, data, channels, resize))


@needs_simplejpeg
def test_a_damaged_jpeg_is_decoded_or_refused_as_by_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(photo(40, 56), quality=80)

    def outcome(*arguments: Any) -> Any:
        try:
            return decode_image(*arguments).tobytes()
        except InvalidImage as refused:
            return refused.code

    for at in range(0, len(data), 7):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            found = outcome(damaged, 3, None)
            with monkeypatch.context() as patch:
                patch.setattr(jpeg, "simplejpeg", None)
                assert found == outcome(damaged, 3, None), at


@pytest.mark.parametrize("size", [(240, 320), (33, 47), (10, 600), (1, 1)])
@pytest.mark.parametrize("resize", [(224, 224), (7, 300), (1, 1)])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_resized_pixels_differ_from_pillows_bilinear_filter_by_at_most_1(size: Any, resize: Any, mode: str) -> None:
    image = photo(*size).convert(mode)
    pixels = decode_image(encoded(image, "png"), len(mode), resize)
    expected = np.asarray(image.resize(resize[::-1], Pillow.Resampling.BILINEAR)).reshape(pixels.shape)
    assert np.abs(pixels.astype(int) - expected).max() <= 1


def test_an_image_is_written_to_the_array_that_is_given() -> None:
    data = encoded(photo(48, 64), quality=90)
    for resize in ((20, 30), (48, 64)):
        out = np.zeros((*resize, 3), np.uint8)
        assert decode_image(data, 3, resize, out) is out
        assert np.array_equal(out, decode_image(data, 3, resize))


def test_a_resized_image_does_not_change_when_the_next_one_is_decoded() -> None:
    first = decode_image(encoded(photo(48, 64)), 3, (48, 64))
    copy = first.copy()
    decode_image(encoded(photo(49, 65)), 3, (48, 64))
    assert np.array_equal(first, copy)
