"""Images of records for the page: thumbnails, originals, and masks as the class ids that they hold.

A header is read before anything is decoded, and all decoding together is limited in pixels at a time. Thumbnails are
upright; everything else has the orientation that is stored, to which boxes and masks refer.
"""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
from PIL import Image as Pillow

from rekord import _core
from rekord._core import ImageFault, ImageFormat
from rekord.codec.columns import Array
from rekord.codec.images.decode import (
    convert_mode,
    decode_image,
    decode_mask,
    draft_jpeg,
    nearest_indices,
    with_open_image,
)
from rekord.codec.images.inspect import FORMAT_NAMES, InvalidImage
from rekord.codec.images.store import MaskIds
from rekord.codec.preview import class_colour
from rekord.errors import RekordError, error
from rekord.schema import Feature, Mask, of_type
from rekord.storage.portability import trim_heap
from rekord.viewer.memory import Budget, Buffer

MAX_PIXELS = 64_000_000
SAFE_TYPES = {
    ImageFormat.JPEG: "image/jpeg", ImageFormat.PNG: "image/png", ImageFormat.WEBP: "image/webp",
    ImageFormat.GIF: "image/gif",
}  # fmt: skip
_LARGE_PIXELS = 4_000_000
_MAX_PNG_SIDE = 48  # an image this small is shown enlarged, where the artefacts of JPEG are visible
_QUALITY = 82
_MASK_MAGIC = b"RKM1"
_TURNS: dict[int, tuple[int, bool]] = {
    1: (0, False), 2: (0, True), 3: (2, False), 4: (2, True),
    5: (1, True), 6: (3, False), 7: (3, True), 8: (1, False),
}  # fmt: skip
"""By EXIF orientation: quarter turns counter-clockwise, after the image was mirrored from left to right or not."""


pixels_at_once = Budget(MAX_PIXELS)
"""The pixels that are decoded at the same time."""


class TooLarge(Exception):
    """An image or record that is not decoded because of its size."""

    def __init__(self, failure: RekordError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class UnsafeType(Exception):
    """Bytes that are not of a type which may be handed to a browser."""


def image_facts(data: bytes) -> dict[str, Any] | None:
    """What the header of an image says; None if the bytes are not an image."""
    facts = _core.inspect_image(data, False)
    if facts.format == ImageFormat.NONE:
        return None
    state = "ok"
    if facts.width * facts.height > MAX_PIXELS:
        state = "too_large"
    elif facts.fault != ImageFault.NONE:
        state = "damaged"
    elif facts.format == ImageFormat.TIFF:
        state = "unsafe"
    return {
        "format": FORMAT_NAMES[facts.format],
        "width": int(facts.width),
        "height": int(facts.height),
        "orientation": read_orientation(facts),
        "bytes": len(data),
        "state": state,
    }


def read_orientation(facts: Any) -> int:
    """The EXIF orientation, 1 if there is none that is valid."""
    number = int(facts.orientation or 1)
    return number if number in _TURNS else 1


def turn_upright(pixels: Array, orientation: int) -> Array:
    """Pixels of shape (height, width, …) as the EXIF orientation shows them."""
    turns, mirrored = _TURNS.get(orientation, (0, False))
    turned = pixels[:, ::-1] if mirrored else pixels
    return np.ascontiguousarray(np.rot90(turned, turns) if turns else turned)


def get_original(data: bytes) -> tuple[bytes, str]:
    """An image as the browser gets it, and its type: as stored if that is a raster format that browsers show."""
    facts = check_size(data)
    if not facts.width or not facts.height:
        raise UnsafeType  # its size cannot be checked
    if facts.format in SAFE_TYPES:
        return data, SAFE_TYPES[facts.format]
    if facts.format == ImageFormat.NONE or facts.format == ImageFormat.TIFF:
        raise UnsafeType
    with pixels_at_once.admit(facts.width * facts.height):
        try:
            return _encode(_decode(data, facts, None), png=True)
        finally:
            trim_heap()


def check_size(data: bytes) -> Any:
    """The facts of an image that is small enough to be shown."""
    facts = _core.inspect_image(data, False)
    pixels = int(facts.width) * int(facts.height)
    if facts.format != ImageFormat.NONE and pixels > MAX_PIXELS:
        raise _too_large_error(facts, f"at most {MAX_PIXELS:,} pixels")
    return facts


def _too_large_error(facts: Any, expected: str) -> TooLarge:
    found = f"{facts.width:,} × {facts.height:,} pixels in its header"
    return TooLarge(error("D409", "image is too large to be shown", expected=expected, found=found))


def make_thumbnail(data: bytes, px: int) -> tuple[bytes, str]:
    """A small, upright copy of an image, and its type."""
    facts = check_size(data)
    if facts.format in (ImageFormat.NONE, ImageFormat.TIFF):
        raise UnsafeType
    size = fit(int(facts.height), int(facts.width), px)
    pixels = decode_small(data, facts, size)
    return _encode(turn_upright(pixels, read_orientation(facts)))


def make_mask_thumbnail(data: bytes, feature: Feature, px: int) -> tuple[bytes, str]:
    """A mask in the colours of its classes; class 0 and pixels to ignore are grey."""
    small = shrink_mask(read_mask(data, feature), px)
    return _encode(colour_ids(small, getattr(feature, "ignore", None)), png=True)


def shrink_mask(ids: Array, px: int) -> Array:
    """The nearest pixels of a mask, as the class ids that they are; its longer side is at most `px`."""
    return ids[np.ix_(*map(nearest_indices, ids.shape, fit(ids.shape[0], ids.shape[1], px)))]


def colour_ids(ids: Array, ignore: int | None) -> Array:
    """Class ids as colours."""
    table = np.full((11, 3), 235, np.uint8)
    for number in range(1, 11):
        colour = class_colour(number)
        table[number] = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    places = np.where(ids == 0, 0, (ids.astype(np.int64) - 1) % 10 + 1)
    if ignore is not None:
        places = np.where(ids == ignore, 0, places)
    return table[places]


def array_thumbnail(pixels: Array, px: int) -> tuple[bytes, str]:
    """A thumbnail of decoded pixels: uint8 of shape (height, width), or with 1, 3 or 4 channels."""
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or not pixels.size:
        raise UnsafeType
    if pixels.ndim == 3 and pixels.shape[2] not in (1, 3, 4):
        raise UnsafeType
    flat = pixels.reshape(*pixels.shape[:2], -1)[:, :, :3]
    if flat.shape[2] == 1:
        flat = np.repeat(flat, 3, axis=2)
    step = max(1, max(flat.shape[:2]) // (4 * px))
    image = Pillow.fromarray(np.ascontiguousarray(flat[::step, ::step]))
    height, width = fit(flat.shape[0], flat.shape[1], px)
    return _encode(np.asarray(image.resize((width, height), Pillow.Resampling.BILINEAR)))


def fit(height: int, width: int, px: int) -> tuple[int, int]:
    """The size of an image whose longer side is at most `px`."""
    scale = min(1.0, px / max(height, width, 1))
    return max(1, round(height * scale)), max(1, round(width * scale))


def decode_small(data: bytes, facts: Any, size: tuple[int, int]) -> Array:
    """An image as RGB in a smaller size, in its stored orientation."""
    pixels = int(facts.width) * int(facts.height)
    with pixels_at_once.admit(pixels // 16 if facts.format == ImageFormat.JPEG else pixels):
        try:
            return _decode(data, facts, size)
        finally:
            if pixels > _LARGE_PIXELS:
                # Each thread has a heap of its own, which would keep the pixels of its largest image.
                trim_heap()


def _decode(data: bytes, facts: Any, size: tuple[int, int] | None) -> Array:
    try:
        if size is None or facts.width * facts.height <= _LARGE_PIXELS:
            return decode_image(data, 3, size)
        return with_open_image(data, lambda image: _shrink(image, size), facts)
    except InvalidImage as failure:
        raise failure.to_error("image") from None


def _shrink(image: Any, size: tuple[int, int]) -> Array:
    """A large image in a smaller size, with no second copy of all its pixels."""
    box = draft_jpeg(image, image.mode, size)
    image.load()
    target = (size[1], size[0])
    if image.mode in ("P", "1") or image.mode.startswith("I"):
        small = image.resize(target, Pillow.Resampling.NEAREST)
    else:
        small = image.resize(target, Pillow.Resampling.BILINEAR, box=box, reducing_gap=2.0)
    small.format = image.format
    return np.array(convert_mode(small, "RGB"))


def make_tile(data: bytes, px: int) -> Array:
    """The centre of an image as a square of RGB pixels, upright."""
    facts = check_size(data)
    if facts.format in (ImageFormat.NONE, ImageFormat.TIFF) or facts.fault != ImageFault.NONE:
        raise UnsafeType
    height, width = int(facts.height), int(facts.width)
    scale = px / min(height, width)
    size = max(px, round(height * scale)), max(px, round(width * scale))
    if max(size) > 8 * px:  # a strip: its whole length would cost more than the tile shows
        size = px, px
    pixels = decode_small(data, facts, size)
    top, left = (pixels.shape[0] - px) // 2, (pixels.shape[1] - px) // 2
    square = pixels[top : top + px, left : left + px]
    orientation = read_orientation(facts)
    return square if orientation == 1 else turn_upright(square, orientation)


def read_mask(data: bytes, feature: Feature) -> Array:
    """The class ids of a mask, as `decode=True` returns them."""
    facts = check_size(data)
    declared = of_type({"": feature}, Mask).get("")
    ids = MaskIds(1 << min(facts.bits, 16), None) if declared is None else MaskIds(declared.classes, declared.ignore)
    pixels = int(facts.width) * int(facts.height)
    with pixels_at_once.admit(measure_mask(data)):
        try:
            return decode_mask(data, ids, None)
        except InvalidImage as failure:
            raise failure.to_error("mask") from None
        finally:
            if pixels > _LARGE_PIXELS:
                trim_heap()


def measure_mask(data: bytes) -> int:
    """The bytes of the class ids of a mask; raises if there are too many of them."""
    facts = check_size(data)
    n_bytes = int(facts.width) * int(facts.height) * (2 if facts.bits > 8 else 1)
    if n_bytes > MAX_PIXELS:
        raise _too_large_error(facts, f"at most {MAX_PIXELS // 2:,} pixels in a mask of 16 bits")
    return n_bytes


def encode_mask(ids: Array) -> list[Buffer]:
    """Class ids for the page: width, height and bytes per id, then the ids row by row."""
    height, width = ids.shape
    head = _MASK_MAGIC + struct.pack("<III", width, height, ids.dtype.itemsize)
    stored = np.ascontiguousarray(ids.astype(ids.dtype.newbyteorder("<"), copy=False))
    return [head, stored.view(np.uint8).reshape(-1).data]


def encode_jpeg(pixels: Array) -> bytes:
    """RGB pixels as a JPEG."""
    file = io.BytesIO()
    Pillow.fromarray(np.ascontiguousarray(pixels)).save(file, "jpeg", quality=_QUALITY)
    return file.getvalue()


def _encode(pixels: Array, *, png: bool = False) -> tuple[bytes, str]:
    if not png and max(pixels.shape[:2]) > _MAX_PNG_SIDE:
        return encode_jpeg(pixels), "image/jpeg"
    file = io.BytesIO()
    Pillow.fromarray(np.ascontiguousarray(pixels)).save(file, "png", compress_level=1)
    return file.getvalue(), "image/png"
