"""Small copies of images and masks, for reprs and reports: of bounded cost, whatever the bytes are."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image as Pillow

from rekord import _core
from rekord._core import ImageFault, ImageFormat
from rekord.codec.columns import Array
from rekord.codec.images.decode import convert_mode, decode_mask, draft_jpeg, with_open_image
from rekord.codec.images.inspect import InvalidImage
from rekord.codec.images.store import MaskIds
from rekord.schema import Mask

SIDE = 96
"""Pixels of the longer side of a thumbnail."""

_MAX_ENCODED_BYTES = 32 << 20
_OPACITY = 0.55
_QUALITY = 75
# Colours that are told apart on light and dark images; class 0 is usually the background and stays clear.
_COLOURS = np.array(
    [
        (230, 57, 70), (42, 157, 143), (244, 162, 97), (69, 123, 157), (233, 196, 106),
        (155, 93, 229), (0, 187, 249), (241, 91, 181), (106, 153, 78), (188, 108, 37),
    ],
    np.float32,
)  # fmt: skip


@dataclass(slots=True)
class ThumbnailBudget:
    """What the thumbnails of one fragment may cost: decoded pixels, and bytes of HTML."""

    pixels: int = 40_000_000
    n_bytes: int = 180_000

    def allows(self, data: bytes) -> bool:
        """Whether an image may be decoded; if so, its pixels are counted."""
        if len(data) > _MAX_ENCODED_BYTES or self.n_bytes <= 0:
            return False
        facts = _core.inspect_image(data, False)
        pixels = int(facts.width) * int(facts.height)
        if facts.format == ImageFormat.JPEG:
            pixels //= 4  # it is decoded at a smaller scale
        if facts.fault != ImageFault.NONE or facts.format == ImageFormat.NONE or pixels > self.pixels:
            return False
        self.pixels -= pixels
        return True


def is_image(data: bytes) -> bool:
    """Whether some bytes begin like an image."""
    return bool(_core.inspect_image(data[: 1 << 16], False).format != ImageFormat.NONE)


def make_thumbnail(
    data: bytes, budget: ThumbnailBudget, *, mask: bytes | None = None, declared: Mask | None = None
) -> tuple[bytes, str] | None:
    """A small JPEG or PNG of an image, with its mask on top, and its kind; None if it cannot be shown."""
    if not budget.allows(data):
        return None
    try:
        pixels = with_open_image(data, _shrink)
        if mask is not None and budget.allows(mask):
            with suppress(InvalidImage):
                pixels = _overlay(pixels, _read_ids(mask, declared, pixels.shape[:2]), declared)
        return _encode(pixels, budget)
    except (InvalidImage, MemoryError, ValueError):
        return None


def make_mask_thumbnail(data: bytes, declared: Mask, budget: ThumbnailBudget) -> tuple[bytes, str] | None:
    """A mask in colours."""
    if not budget.allows(data):
        return None
    try:
        facts = _core.inspect_image(data, False)
        size = _fit(int(facts.width), int(facts.height))
        ids = _read_ids(data, declared, (size[1], size[0]))
        return _encode(_overlay(np.full((*ids.shape, 3), 245, np.uint8), ids, declared, opacity=1.0), budget)
    except (InvalidImage, MemoryError, ValueError):
        return None


def pixels_to_thumbnail(pixels: Array, budget: ThumbnailBudget) -> tuple[bytes, str] | None:
    """A thumbnail of decoded pixels of shape (height, width, channels)."""
    if budget.n_bytes <= 0 or pixels.dtype != np.uint8 or pixels.ndim != 3 or not pixels.size:
        return None
    if pixels.shape[2] not in (1, 3, 4):
        return None
    # Every n-th pixel first: the rest is cheap, however large the image is.
    step = max(1, max(pixels.shape[:2]) // (4 * SIDE))
    small = np.ascontiguousarray(pixels[::step, ::step, :3])
    image = Pillow.fromarray(small[:, :, 0] if small.shape[2] == 1 else small).convert("RGB")
    return _encode(_shrink(image), budget)


def _shrink(image: Any) -> Array:
    size = _fit(*image.size)
    box = draft_jpeg(image, image.mode, (size[1], size[0]))
    image.load()
    colours = convert_mode(image, "RGB")
    return np.array(colours.resize(size, Pillow.Resampling.BILINEAR, box=box))


def _fit(width: int, height: int) -> tuple[int, int]:
    """The width and height of a thumbnail."""
    scale = min(1.0, SIDE / max(width, height, 1))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _read_ids(data: bytes, declared: Mask | None, size: tuple[int, ...]) -> Array:
    ids = MaskIds(1 << 16, None) if declared is None else MaskIds(declared.classes, declared.ignore)
    return decode_mask(data, ids, (int(size[0]), int(size[1])))


def _overlay(pixels: Array, ids: Array, declared: Mask | None, *, opacity: float = _OPACITY) -> Array:
    clear = ids == 0
    if declared is not None and declared.ignore is not None:
        clear |= ids == declared.ignore
    colours = _COLOURS[(ids.astype(np.int64) - 1) % len(_COLOURS)]
    mixed = (1 - opacity) * pixels + opacity * colours
    return np.where(clear[:, :, None], pixels, mixed).astype(np.uint8)


def _encode(pixels: Array, budget: ThumbnailBudget) -> tuple[bytes, str] | None:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, "JPEG", quality=_QUALITY)
    data = file.getvalue()
    budget.n_bytes -= len(data) * 4 // 3
    return (data, "jpeg") if budget.n_bytes >= 0 else None
