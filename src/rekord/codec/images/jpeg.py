"""JPEGs decoded by libjpeg-turbo without a detour through Pillow, at a smaller scale where few pixels are needed."""

from __future__ import annotations

import threading
from math import ceil
from typing import TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, ImageFormat
from rekord.codec.columns import Array

try:
    import simplejpeg
except ImportError:  # not available for this platform: Pillow decodes the same pixels in more time
    simplejpeg = None

Size: TypeAlias = tuple[int, int]
"""Height and width."""

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""

_SCALES = (8, 4, 2)  # libjpeg-turbo also has 5/8 and others, which take longer than the whole image
_SCALE_MARGIN = 1.05
"""If few pixels are needed, a JPEG is decoded directly at 1/2, 1/4 or 1/8 scale, as long as that is this much larger.

The filter then gives nearly the same result as from the whole image: on generated images they differed by
1 of 255 on average, by 2 where all was fine detail, and by more at single edges. At exactly the requested size
nothing would be left to the filter, and all edges would look different.
"""
_MIN_SIDE = 16
"""simplejpeg takes the least size instead of a scale; the size of a smaller image does not determine its scale."""

_MAX_SCRATCH_BYTES = 8 << 20
_scratch = threading.local()


def least_size(size: Size) -> Size:
    """The least size at which a JPEG is decoded if it is resized to `size`."""
    return ceil(size[0] * _SCALE_MARGIN), ceil(size[1] * _SCALE_MARGIN)


def decode_jpeg(
    data: bytes, facts: _core.ImageFacts, channels: int, resize: Size | None
) -> tuple[Array, Box | None] | None:
    """The pixels of a JPEG, and the part of them that is the image; None if Pillow has to decode it.

    They are the same as from Pillow, which also decodes what this refuses: other colours than grey and RGB, damaged
    data, which may be decodable in part, and any image if simplejpeg is not installed.

    With `resize`, they may have a smaller scale, and are overwritten by the next call in the same thread.
    """
    height, width = facts.height, facts.width
    if (
        simplejpeg is None
        or facts.format != ImageFormat.JPEG
        or facts.colour not in (Colour.GREY, Colour.RGB)
        or channels not in (1, 3)
        or max(height, width) < _MIN_SIDE
    ):
        return None
    scale, buffer = 1, None
    if resize is not None:
        least = least_size(resize)
        scale = next((n for n in _SCALES if height >= n * least[0] and width >= n * least[1]), 1)
    size = (ceil(height / scale), ceil(width / scale))
    if resize is not None:
        buffer = _scratch_buffer(size[0] * size[1] * channels)
    try:
        pixels = simplejpeg.decode_jpeg(
            data, "RGB" if channels == 3 else "GRAY", min_height=size[0], min_width=size[1], buffer=buffer
        )
    except MemoryError:
        raise
    except Exception:  # also for what libjpeg only warns of
        return None
    if pixels.shape != (*size, channels):
        return None
    return pixels, (0.0, 0.0, width / scale, height / scale)


def _scratch_buffer(needed_bytes: int) -> Array | None:
    """Memory that is reused: touching new pages would take as long as decoding."""
    if needed_bytes > _MAX_SCRATCH_BYTES:
        return None
    buffer: Array | None = getattr(_scratch, "buffer", None)
    if buffer is None or buffer.nbytes < needed_bytes:
        buffer = _scratch.buffer = np.empty(needed_bytes, np.uint8)
    return buffer
