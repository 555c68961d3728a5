"""Encoded images and masks to arrays of pixels."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, TypeAlias, TypeVar

import numpy as np
from PIL import Image as Pillow
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from rekord import _core
from rekord._core import Colour, ImageFault, ImageFormat
from rekord.codec.columns import Array, Column, Offsets, Optional, Ragged, Strings, Validity
from rekord.codec.images.heif import detect_heif_format, open_heif
from rekord.codec.images.inspect import (
    FORMAT_NAMES,
    InvalidImage,
    format_display_name,
    inflate_png,
    invalid_image_error,
    pixel_limit_ratio,
    read_samples,
    too_many_pixels_error,
)
from rekord.codec.images.jpeg import Box, Size, decode_jpeg, least_size
from rekord.codec.images.store import MaskIds
from rekord.codec.images.wide import WIDE_STEP, decode_wide_png, is_wide, is_wide_png, resize_wide
from rekord.errors import RekordError
from rekord.schema import Feature, Image, Mask

Result = TypeVar("Result")

_PILLOW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_CHECK_HINT = "rekord check PATH      (lists all such images)"


class _JpegWithoutExif(JpegImageFile):
    """A JPEG whose EXIF is ignored: it says nothing about pixels, and Pillow warns if it is damaged."""

    def _read_dpi_from_exif(self) -> None:
        pass


# By format, not by Pillow's detection: of all formats that it can open, these occur in records.
_READERS: dict[Any, Any] = {
    ImageFormat.JPEG: _JpegWithoutExif,
    ImageFormat.PNG: PngImageFile,
    ImageFormat.GIF: GifImageFile,
    ImageFormat.BMP: BmpImageFile,
    ImageFormat.WEBP: WebPImageFile,
}


def decode_image(data: bytes, channels: int, resize: Size | None, out: Array | None = None) -> Array:
    """The pixels of an image as uint8, of shape (height, width, channels), written to `out` if that is given.

    Raises InvalidImage.

    Colours are those of TensorFlow's decode_image: equal for PNG, GIF, BMP and WebP, and for JPEG as it decodes with
    dct_method="INTEGER_ACCURATE" (its default method is off by a few of 255). Grey computed from colours may be off
    by 1. The alpha of a PNG without any is 255, that of a BMP is ignored. Only the first of several frames is read.
    """
    heif = detect_heif_format(data)
    if heif is not None:
        pixels, box = with_open_heif(data, heif, lambda image: _to_pixels(image, channels, resize))
    else:
        facts = inspect_header(data)
        decoded = decode_jpeg(data, facts, channels, resize)
        pixels, box = decoded or with_open_image(data, lambda image: _to_pixels(image, channels, resize), facts)
    if resize is None and out is None:
        return pixels
    if out is None:
        out = np.empty((*(resize or pixels.shape[:2]), channels), np.uint8)
    if pixels.shape == out.shape:
        out[...] = pixels
    else:
        resize_pixels(pixels, box, out)
    return out


def resize_pixels(pixels: Array, box: Box | None, out: Array) -> None:
    """Resize a part of an image without alpha, or all of it, to the size of `out`: bilinear and antialiased."""
    _core.resample(pixels, box or (0.0, 0.0, float(pixels.shape[1]), float(pixels.shape[0])), out)


def decode_wide_image(data: bytes, channels: int, resize: Size | None, out: Array | None = None) -> Array:
    """The pixels of any image as uint16, as TensorFlow's decode_png with dtype=uint16; raises InvalidImage.

    Samples of 8 bits are scaled to the range of 16.
    """
    facts = None if detect_heif_format(data) is not None else inspect_header(data)
    if facts is not None and is_wide(facts):
        try:
            pixels = decode_wide_png(data, facts, channels)
        except InvalidImage as failure:
            raise _to_undecodable(failure) from failure.__cause__
    else:
        pixels = decode_image(data, channels, None).astype(np.uint16) * np.uint16(WIDE_STEP)
    return _copy_to(out, pixels if resize is None else resize_wide(pixels, resize))


def inspect_header(data: bytes) -> _core.ImageFacts:
    """The facts of an image that may be decoded; raises InvalidImage."""
    facts = _core.inspect_image(data, False)
    if facts.fault != ImageFault.NONE or facts.format not in _READERS:
        raise _explain_failure(facts, data, "image", None)
    if pixel_limit_ratio(facts) > 1:
        raise too_many_pixels_error(facts.width, facts.height)
    return facts


def with_open_image(data: bytes, use: Callable[[Any], Result], facts: _core.ImageFacts | None = None) -> Result:
    """The result of `use` on an image opened by Pillow; raises InvalidImage, also for what `use` raises."""
    facts = facts or inspect_header(data)
    try:
        with _READERS[facts.format](io.BytesIO(data)) as image:
            if image.size == (facts.width, facts.height):
                return use(image)
            met = f"{image.size[0]:,} × {image.size[1]:,}, where its header says another size"
    except MemoryError:
        raise
    except Exception as failure:  # there is no list of the exceptions that damaged bytes cause in decoders
        raise _explain_failure(_core.inspect_image(data, True), data, "image", failure) from failure
    raise _undecodable_error("an image as large as its header says", met)


def with_open_heif(data: bytes, format: str, use: Callable[[Any], Result]) -> Result:
    """The result of `use` on an AVIF or HEIC opened by Pillow; raises InvalidImage."""
    try:
        with open_heif(data, format) as image:
            most = Pillow.MAX_IMAGE_PIXELS
            if most is not None and image.width * image.height > most:
                raise too_many_pixels_error(image.width, image.height)
            return use(image)
    except (MemoryError, InvalidImage, RekordError):
        raise
    except Exception as failure:
        raise _undecodable_error(
            f"a {format_display_name(format)} that can be decoded", str(failure)[:60]
        ) from failure


def decode_mask(data: bytes, ids: MaskIds, resize: Size | None) -> Array:
    """The class ids of a mask of shape (height, width), as uint8, or uint16 if needed; raises InvalidImage.

    They are the samples as stored: the indices of a palette, and values below 16 in a PNG with 4 bits.
    """
    facts = _core.inspect_image(data, True)
    if facts.fault != ImageFault.NONE or facts.format not in _READERS:
        raise _explain_failure(facts, data, "mask", None)
    if facts.format != ImageFormat.PNG or facts.colour not in (Colour.GREY, Colour.PALETTE):
        kind = format_display_name(FORMAT_NAMES[facts.format])
        raise _no_class_ids_error(f"a {kind} of colours" if facts.format == ImageFormat.PNG else f"a {kind}")
    if pixel_limit_ratio(facts) > 1:
        raise too_many_pixels_error(facts.width, facts.height)
    form = _core.PixelForm(facts.width, facts.height, facts.bits, 1, facts.interlaced)
    try:
        stored = read_samples(inflate_png(data, _core.png_chunks(data), form, None), form, None)
    except InvalidImage as failure:
        raise _to_undecodable(failure) from failure.__cause__
    values = np.frombuffer(stored, ">u2" if facts.bits == 16 else np.uint8)
    pixels = values.reshape(facts.height, facts.width)
    if resize is not None:
        pixels = pixels[np.ix_(*map(nearest_indices, pixels.shape, resize))]
    if facts.bits == 16 and not ids.wide and (pixels > 255).any():
        raise _no_class_ids_error(f"16 bits, with values up to {int(pixels.max()):,}")
    return pixels.astype(np.uint16 if ids.wide else np.uint8)


def nearest_indices(before: int, after: int) -> Array:
    """For each row or column of the result, the one whose centre is nearest."""
    return ((np.arange(after) * 2 + 1) * before // (2 * after)).astype(np.intp)


def _to_pixels(image: Any, channels: int, resize: Size | None) -> tuple[Array, Box | None]:
    """The pixels of an image opened by Pillow, and the part of them that is the image; with alpha, resized."""
    box = draft_jpeg(image, "L" if channels == 1 else image.mode, resize)
    image.load()
    pixels = convert_mode(image, _PILLOW_MODES[channels])
    if resize is not None and channels in (2, 4) and pixels.size != (resize[1], resize[0]):
        # By Pillow, which weights colours by their alpha.
        pixels = pixels.resize((resize[1], resize[0]), Pillow.Resampling.BILINEAR, box=box)
    return np.array(pixels).reshape(pixels.height, pixels.width, channels), box


def draft_jpeg(image: Any, mode: str, size: Size | None) -> Any:
    """Decode a JPEG at a smaller scale, if `size` allows it; returns the part of the result that is the image."""
    if image.format != "JPEG":
        return None
    least = None if size is None else least_size(size)[::-1]
    done = image.draft(mode, least)
    return None if done is None else done[1]


def convert_mode(image: Any, mode: str) -> Any:
    """The colours of an image in another mode: alpha is dropped or added, never blended with a background."""
    if image.mode.startswith("I"):  # 16-bit grey, of which Pillow would keep the lower 8 bits
        image = Pillow.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        image = image.point(lambda value: 255 - value)  # Pillow treats all of them as inverted, like Adobe's
    if mode in ("L", "RGB"):
        image.info.pop("transparency", None)
    if image.mode == mode:
        return image
    if mode in ("LA", "L") and image.mode not in ("L", "LA", "P", "RGB", "RGBA"):
        image = image.convert("RGB")
    return image.convert(mode)


def _explain_failure(facts: _core.ImageFacts, data: bytes, what: str, failure: Exception | None) -> InvalidImage:
    if failure is None or facts.fault != ImageFault.NONE:
        return _to_undecodable(invalid_image_error(facts, data, None, what))
    # Its structure is complete: only the decoder can say more, without quoting bytes.
    return _undecodable_error(
        f"a {format_display_name(FORMAT_NAMES[facts.format])} that can be decoded", str(failure)[:60]
    )


def _to_undecodable(failure: InvalidImage) -> InvalidImage:
    failure.code, failure.do = "D409", _CHECK_HINT
    return failure


def _undecodable_error(expected: str, found: str) -> InvalidImage:
    return InvalidImage("D409", "cannot be decoded", expected=expected, found=found, do=_CHECK_HINT)


def _no_class_ids_error(found: str) -> InvalidImage:
    return InvalidImage(
        "D411",
        "does not contain class ids",
        expected="a single-channel PNG of class ids",
        found=found,
        do="declare rk.Image() to decode its colours, or write the masks again as class ids",
    )


_DEFAULT_CHANNELS = 3

_Decoder: TypeAlias = Callable[[bytes, "Array | None"], Array]
"""Decodes one image, into the array if there is one."""


@dataclass(frozen=True)
class ImageColumnDecoder:
    """Decodes these columns of a batch and leaves the others unchanged, for `decode=True`.

    Audio becomes the rows of an `rk.Ragged` of float32 samples, video those of frames.

    Images have the shape (height, width, channels), with the channels that the schema declares, or 3. They are uint8,
    or uint16 if the schema declares 16 bits; if it declares neither, those of a batch with a 16-bit image are uint16.
    Masks are class ids of shape (height, width). If all have the same size, the column is one array, or an
    `rk.Optional` for an optional column; if sizes differ, it is an object array with one array per row and None for
    missing ones.
    Images of steps are the values of an `rk.Ragged` in the same way, with zeros for missing ones.

    `resize` (height, width) is bilinear with antialiasing for images, nearest for masks.

    The location of a DecodeError has the row in the batch as `row`; the reader turns it into a record.
    """

    features: Mapping[str, Feature]
    resize: Size | None = None
    one_dtype: bool = False  # for frameworks that fix it before the first batch: 16 bits must be declared

    def __call__(self, batch: dict[str, Column]) -> dict[str, Column]:
        out = dict(batch)
        for name, feature in self.features.items():
            if (column := batch.get(name)) is not None:
                out[name] = decode_media_column(feature, name, column, self)
        return out


@singledispatch
def decode_media_column(feature: Feature, name: str, column: Column, decoder: ImageColumnDecoder) -> Column:
    """The pixels of a column of images or masks; other types that are decoded register their own function."""
    return _ImageStack(feature, decoder.resize, decoder.one_dtype).decode(name, column)


@dataclass(frozen=True)
class _ImageStack:
    """Decodes the images of one column."""

    feature: Feature
    resize: Size | None
    one_dtype: bool

    def decode(self, name: str, column: Column) -> Column:
        feature = self.feature
        if isinstance(column, Strings):
            pixels = self._stack_images(name, feature, column, None)
            valid = _all_valid(column)
            dense = pixels.dtype != object
            return Optional(pixels, valid) if feature.optional and dense else pixels
        if isinstance(column, Ragged) and isinstance(column.values, Strings):
            pixels = self._stack_images(name, feature, column.values, column.offsets)
            return Ragged(pixels, column.offsets, valid=column.valid)
        return column

    def _stack_images(self, name: str, feature: Feature, column: Strings, offsets: Offsets | None) -> Array:
        """All images as one array, or as an object array if their sizes differ."""
        decode, shape, dtype = _build_decoder(feature, self.resize, self._is_wide(name, feature, column, offsets))
        if self.resize is not None:
            out = np.zeros((len(column), *shape), dtype)
            for _ in self._decode_each(name, column, offsets, decode, out):
                pass
            return out
        found: Array = np.full(len(column), None, object)
        sizes = set()
        for at, pixels in self._decode_each(name, column, offsets, decode, None):
            found[at] = pixels
            sizes.add(pixels.shape)
        if len(sizes) > 1:
            return found
        dense = np.zeros((len(column), *(sizes.pop() if sizes else shape)), dtype)
        for at, pixels in enumerate(found):
            if pixels is not None:
                dense[at] = pixels
                found[at] = None  # one copy of a large image is enough
        return dense

    def _is_wide(self, name: str, feature: Feature, column: Strings, offsets: Offsets | None) -> bool:
        """Whether pixels are decoded to uint16."""
        if not isinstance(feature, Image):
            return False
        if feature.bits is not None or feature.format not in (None, "png"):
            return feature.bits == 16
        found = ((at, data) for at in range(len(column)) if (data := column[at]) is not None and is_wide_png(data))
        first = next(found, None)
        if first is not None and self.one_dtype:
            raise _locate(_undeclared_bits_error(), name, first[0], offsets)
        return first is not None

    def _decode_each(
        self, name: str, column: Strings, offsets: Offsets | None, decode: _Decoder, out: Array | None
    ) -> Iterator[tuple[int, Array]]:
        for at in range(len(column)):
            data = column[at]
            if data is None:
                continue
            try:
                pixels = decode(data, None if out is None else out[at])
            except InvalidImage as refused:
                raise _locate(refused, name, at, offsets) from refused.__cause__
            yield at, pixels


def _locate(refused: InvalidImage, name: str, at: int, offsets: Offsets | None) -> RekordError:
    """The error for an image, with its row in the batch and its step."""
    if offsets is None:
        return refused.to_error(name, row=at)
    row = int(np.searchsorted(offsets, at, side="right")) - 1
    return refused.to_error(name, row=row, step=at - int(offsets[row]))


def _undeclared_bits_error() -> InvalidImage:
    return InvalidImage(
        "D412",
        "has 16 bits per sample, which the schema does not declare",
        expected="8 bits per sample, as the type of a tensor is fixed before the first batch",
        found="a PNG of 16 bits",
        do="declare rk.Image(bits=16), or rk.Image(bits=8) for the upper 8 bits",
    )


def _build_decoder(
    feature: Feature, resize: Size | None, wide: bool
) -> tuple[_Decoder, tuple[int, ...], type[np.generic]]:
    """How one image of a column is decoded, its shape (0 if images have different sizes), and its dtype."""
    size = (0, 0) if resize is None else resize
    if isinstance(feature, Mask):
        ids = MaskIds(feature.classes, feature.ignore)
        dtype = np.uint16 if ids.wide else np.uint8
        return lambda data, out: _copy_to(out, decode_mask(data, ids, resize)), size, dtype
    assert isinstance(feature, Image)
    channels = feature.channels or _DEFAULT_CHANNELS
    decode, pixel_type = (decode_wide_image, np.uint16) if wide else (decode_image, np.uint8)
    return lambda data, out: decode(data, channels, resize, out), (*size, channels), pixel_type


def _copy_to(out: Array | None, pixels: Array) -> Array:
    if out is not None:
        out[...] = pixels
    return pixels


def _all_valid(column: Strings) -> Validity:
    return np.ones(len(column), np.bool_) if column.valid is None else column.valid


def stack_pixels(parts: list[Array], resize: Size | None) -> Array:
    """The frames of several videos as one array, or as an object array if their sizes differ."""
    if len({frames.shape[1:] for frames in parts}) > 1:
        found: Array = np.empty(sum(map(len, parts)), object)
        found[:] = [frame for frames in parts for frame in frames]
        return found
    return np.concatenate(parts) if parts else np.zeros((0, *(resize or (0, 0)), _DEFAULT_CHANNELS), np.uint8)


def pad_images(images: Array, pad: Any) -> Array:
    """Images or tensors of different sizes as one array, each padded with `pad` at the end of its dimensions.

    A missing one is all padding.
    """
    there = [one for one in images if one is not None]
    if not there:
        return np.zeros((len(images),), np.uint8)
    sizes = np.max([one.shape for one in there], axis=0).tolist()
    out = np.full((len(images), *sizes), pad, there[0].dtype)
    for row, one in zip(out, images, strict=True):
        if one is not None:
            row[tuple([slice(size) for size in one.shape])] = one
    return out
