"""An image while it is being transformed: its pixels, decoded once, and how they are encoded again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image as Pillow

from rekord.codec.columns import Array
from rekord.codec.looking import Made
from rekord.codec.pixels import drafted, in_mode, opened
from rekord.transforms.moves import Move, Size, places

MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
FILTERS = {
    "nearest": Pillow.Resampling.NEAREST,
    "box": Pillow.Resampling.BOX,
    "bilinear": Pillow.Resampling.BILINEAR,
    "hamming": Pillow.Resampling.HAMMING,
    "bicubic": Pillow.Resampling.BICUBIC,
    "lanczos": Pillow.Resampling.LANCZOS,
}
_AVERAGING = ("box", "bilinear", "hamming")
"""Filters that look only at what falls into a pixel: a JPEG may be decoded smaller for them."""

_WIDE = "F"  # grey of 16 bits is kept in floats, which hold all of its values
_WIDE_STEP = 257
_GREY = (0.299, 0.587, 0.114)


class Pixels:
    """The pixels of one image; `box` is the part of them that is the image, where a JPEG was decoded smaller."""

    def __init__(self, image: Any, size: Size, box: tuple[float, float, float, float] | None) -> None:
        self.image = image
        self._size = size
        self._box = box

    def move(self, move: Move, filter: str, pad: tuple[int, ...]) -> None:
        """Resize, crop and pad in one go."""
        top, left, height, width = move.part
        whole = (top, left, height, width) == (0, 0, *self._size)
        if self._box is not None or not whole or self._size != move.inner:
            self.image = self._picked(move, filter)
        self._box, self._size = None, move.size
        if move.pads:
            ground = Pillow.new(self.image.mode, (move.size[1], move.size[0]), _colour(self.image.mode, pad))
            ground.paste(self.image, (move.at[1], move.at[0]))
            self.image = ground

    def _picked(self, move: Move, filter: str) -> Any:
        top, left, height, width = move.part
        cuts = (height, width) == move.inner and self._box is None
        if cuts and float(top).is_integer() and float(left).is_integer():
            return self.image.crop((int(left), int(top), int(left) + int(width), int(top) + int(height)))
        if filter == "nearest":
            # As masks are, so that both agree on every pixel.
            picked = np.asarray(self.image)[np.ix_(*places(self._size, move))]
            return Pillow.fromarray(np.ascontiguousarray(picked))
        down, across = (1.0, 1.0)
        if self._box is not None:
            down, across = self._box[3] / self._size[0], self._box[2] / self._size[1]
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        return self.image.resize(
            (move.inner[1], move.inner[0]), FILTERS[filter], box=_inside(box, self.image)
        )

    def grey(self) -> None:
        """Without colours; alpha is dropped."""
        self.image = in_mode(self.image, "L") if self.image.mode != _WIDE else self.image

    def array(self, channels: int) -> Array:
        """The pixels as uint8, of shape (height, width, channels)."""
        image = in_mode(_of_8_bits(self.image), MODES[channels])
        return np.asarray(image).reshape(image.height, image.width, channels)

    def encoded(self, format: str, quality: int | None) -> bytes:
        """The image as a file; without a quality WebP is lossless."""
        image = _for_format(self.image, format)
        image.info = {}  # comments, profiles and colour keys of the file that it was
        file = io.BytesIO()
        options: dict[str, Any] = {}
        if format in ("jpeg", "webp"):
            options = {"quality": quality} if quality is not None else {"lossless": True}
        image.save(file, format, **options)
        return Made(file.getvalue())


def loaded(data: bytes, move: Move | None, filter: str) -> Pixels:
    """The pixels of an encoded image, for a first move if there is one; raises Unsound."""

    def use(image: Any) -> Pixels:
        size, box = (image.height, image.width), None
        if move is not None and filter in _AVERAGING:
            down, across = move.scale
            if max(down, across) < 1:
                wanted = (round(size[0] * down), round(size[1] * across))
                box = drafted(image, image.mode, wanted)
        image.load()
        return Pixels(_in_own_mode(image), size, box)

    return opened(data, use)


def _in_own_mode(image: Any) -> Any:
    """The image in the mode that holds all of it: what Pillow cannot resize is converted, and nothing else."""
    if image.mode.startswith("I"):
        return Pillow.fromarray(np.asarray(image).astype(np.float32))
    if image.mode == "CMYK":
        return in_mode(image, "RGB")
    keyed = "transparency" in image.info
    if image.mode in ("1", "L"):
        return in_mode(image, "LA") if keyed else image.convert("L")
    if image.mode in ("LA", "RGBA"):
        return image
    return image.convert("RGBA") if keyed or image.mode == "PA" else in_mode(image, "RGB")


def _of_8_bits(image: Any) -> Any:
    if image.mode != _WIDE:
        return image
    return Pillow.fromarray((_whole(image) >> 8).astype(np.uint8))


def _whole(image: Any) -> Array:
    """The values of grey of 16 bits: filters that sharpen may have left the range."""
    values: Array = np.clip(np.rint(np.asarray(image)), 0, 65_535).astype(np.uint16)
    return values


def _for_format(image: Any, format: str) -> Any:
    if image.mode == _WIDE and format == "png":
        return Pillow.fromarray(_whole(image))
    image = _of_8_bits(image)
    if format in ("jpeg", "bmp"):
        return in_mode(image, "L" if image.mode in ("L", "LA") else "RGB")
    if format == "webp":
        return in_mode(image, "RGBA" if image.mode in ("LA", "RGBA") else "RGB")
    return image


def _inside(box: tuple[float, float, float, float], image: Any) -> tuple[float, float, float, float]:
    """A box that rounding has not put beyond the image."""
    left, top, right, bottom = box
    return max(left, 0.0), max(top, 0.0), min(right, float(image.width)), min(bottom, float(image.height))


def _colour(mode: str, pad: tuple[int, ...]) -> Any:
    """A colour of one or three numbers in a mode; opaque where there is alpha."""
    colour = pad * 3 if len(pad) == 1 else pad
    grey = pad[0] if len(pad) == 1 else round(sum(a * b for a, b in zip(_GREY, pad, strict=True)))
    if mode == _WIDE:
        return float(grey * _WIDE_STEP)
    return {"L": grey, "LA": (grey, 255), "RGB": colour, "RGBA": (*colour, 255)}[mode]
