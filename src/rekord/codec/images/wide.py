"""Images of 16 bits per sample: PNGs decoded and resized without losing the lower bits, which Pillow would drop."""

from __future__ import annotations

import numpy as np
from PIL import Image as Pillow

from rekord import _core
from rekord._core import Colour, ImageFormat
from rekord.codec.columns import Array
from rekord.codec.images.inspect import inflate_png, read_samples
from rekord.codec.images.jpeg import Size

WIDE_STEP = 257
"""An 8-bit sample times this is the same share of the range of 16 bits: 255 becomes 65,535."""

_SAMPLES = {Colour.GREY: 1, Colour.GREY_ALPHA: 2, Colour.RGB: 3, Colour.RGBA: 4}
_GREY_WEIGHTS = (0.299, 0.587, 0.114)
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_BITS_OFFSET = 24  # of the bit depth in the header of a PNG
_MAX_SAMPLE = 65_535


def is_wide_png(data: bytes) -> bool:
    """Whether these are the bytes of a PNG with 16 bits per sample, by its header."""
    return data[:8] == _PNG_SIGNATURE and data[_BITS_OFFSET : _BITS_OFFSET + 1] == b"\x10"


def is_wide(facts: _core.ImageFacts) -> bool:
    """Whether an inspected image is a PNG with 16 bits per sample."""
    return facts.format == ImageFormat.PNG and facts.bits == 16


def decode_wide_png(data: bytes, facts: _core.ImageFacts, channels: int) -> Array:
    """The samples of a 16-bit PNG as uint16, of shape (height, width, channels); raises InvalidImage."""
    stored = _SAMPLES[facts.colour]
    form = _core.PixelForm(facts.width, facts.height, 16, stored, facts.interlaced)
    chunks = _core.png_chunks(data)
    samples = np.frombuffer(read_samples(inflate_png(data, chunks, form, None), form, None), ">u2")
    pixels = samples.astype(np.uint16).reshape(facts.height, facts.width, stored)
    key = next((data[begin:end] for name, begin, end in chunks if name == b"tRNS"), None)
    return _to_channels(pixels, channels, key)


def _to_channels(pixels: Array, channels: int, key: bytes | None) -> Array:
    """Alpha is dropped or added, never blended; `key` is the transparent colour of an image without alpha."""
    stored = pixels.shape[2]
    if channels == stored:
        return pixels
    colours = pixels[:, :, : stored - 1 + stored % 2]
    wanted = channels - 1 + channels % 2
    out = np.empty((*pixels.shape[:2], channels), np.uint16)
    if colours.shape[2] == 3 and wanted == 1:
        out[:, :, 0] = np.rint(colours @ np.array(_GREY_WEIGHTS))
    else:
        out[:, :, :wanted] = colours
    if channels % 2 == 0:
        if stored % 2 == 0:
            out[:, :, -1] = pixels[:, :, -1]
        elif key is not None and len(key) == 2 * stored:
            matches = (pixels == np.frombuffer(key, ">u2")).all(axis=2)
            out[:, :, -1] = np.where(matches, 0, _MAX_SAMPLE)
        else:
            out[:, :, -1] = _MAX_SAMPLE
    return out


def resize_wide(pixels: Array, size: Size) -> Array:
    """Resize uint16 pixels: bilinear and antialiased, colours weighted by their alpha."""
    if pixels.shape[:2] == size:
        return pixels
    has_alpha = pixels.shape[2] in (2, 4)
    values = pixels.astype(np.float32)  # which represents all of them
    if has_alpha:
        values[:, :, :-1] *= values[:, :, -1:] / _MAX_SAMPLE
    planes = [Pillow.fromarray(np.ascontiguousarray(values[:, :, i])) for i in range(values.shape[2])]
    resized = [plane.resize((size[1], size[0]), Pillow.Resampling.BILINEAR) for plane in planes]
    out = np.stack([np.asarray(plane) for plane in resized], axis=2)
    if has_alpha:
        alpha = out[:, :, -1:] / _MAX_SAMPLE
        out[:, :, :-1] = np.divide(out[:, :, :-1], alpha, out=np.zeros_like(out[:, :, :-1]), where=alpha > 0)
    rounded: Array = np.clip(np.rint(out), 0, _MAX_SAMPLE).astype(np.uint16)
    return rounded
