"""Images and masks as they are stored: inspected encoded bytes, masks as single-channel PNGs of class ids."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from math import gcd
from operator import index
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, ImageFault, ImageFormat, PixelFault
from rekord.codec.columns import Array
from rekord.codec.images.heif import detect_heif_format
from rekord.codec.images.inspect import (
    FORMAT_NAMES,
    EncodedImage,
    GeneratedMask,
    InvalidImage,
    VerifiedBytes,
    VerifiedMask,
    Verify,
    collect_remarks,
    encode_grey_png,
    encode_png,
    format_display_name,
    inflate_png,
    inspect_image_value,
    invalid_filter_error,
    invalid_image_error,
    palette_to_grey,
    read_image_bytes,
    read_samples,
)
from rekord.codec.values import InvalidValue, describe_shape
from rekord.errors import error, preview
from rekord.location import Location
from rekord.schema import Image, Mask

ColourMap: TypeAlias = "Mapping[tuple[int, int, int], int]"
"""The class id for each colour (red, green, blue)."""

_SAMPLES_PER_PIXEL = {Colour.GREY: 1, Colour.PALETTE: 1, Colour.GREY_ALPHA: 2, Colour.RGB: 3, Colour.RGBA: 4}
_COLOUR_NAMES = {
    Colour.GREY: "grey",
    Colour.PALETTE: "palette",
    Colour.GREY_ALPHA: "grey and alpha",
    Colour.RGB: "RGB",
    Colour.RGBA: "RGBA",
}
_MAX_LEVELS = 4  # that a message lists
_MAX_PIXELS = 1 << 28


@dataclass(frozen=True, slots=True)
class MaskIds:
    """The valid pixel values of a mask."""

    classes: int
    ignore: int | None

    @property
    def wide(self) -> bool:
        """Whether they need 16 bits."""
        return max(self.classes - 1, self.ignore or 0) > 255

    def __str__(self) -> str:
        also = "" if self.ignore is None else f", or {self.ignore} (ignore)"
        return f"class ids from 0 to {self.classes - 1}{also}"


@lru_cache(maxsize=64)
def _allowed_flags(ids: MaskIds, values: int) -> Array:
    """A flag for each value: whether it is a class id."""
    flags = np.zeros(values, np.bool_)
    flags[: ids.classes] = True
    if ids.ignore is not None and ids.ignore < values:
        flags[ids.ignore] = True
    flags.setflags(write=False)
    return flags


def inspect_mask(
    value: Any,
    *,
    name: str,
    classes: int,
    ignore: int | None,
    colours: ColourMap | None = None,
    verify: Verify,
) -> EncodedImage:
    """The mask in a file, in bytes or in an array, as it is stored; an EncodeError names file and column.

    full: every pixel is checked. headers: pixels are checked only if they must be converted.
    """
    try:
        return inspect_mask_value(value, MaskIds(classes, ignore), colours, verify)
    except InvalidValue as unfit:
        raise unfit.to_error(name) from unfit.__cause__


def check_mask_size(image: EncodedImage, mask: EncodedImage, *, name: str) -> None:
    """Raise an error if a mask does not have the size of its image; `name` is the column of the mask."""
    if (image.width, image.height) == (mask.width, mask.height):
        return
    likely = None
    if (image.width, image.height) == (mask.height, mask.width):
        turned = any(code == "H732" for code, _ in image.remarks)
        likely = (
            "the image is rotated by EXIF, and the mask was drawn on the rotated image"
            if turned
            else "width and height are swapped: one of the two was rotated"
        )
    beside = f" ({image.path})" if image.path is not None else ""
    raise error(
        "E336",
        f"`{name}` and its image have different sizes",
        location=Location(path=mask.path, feature=name),
        expected=f"{image.width:,} × {image.height:,}, as the image{beside}",
        found=f"{mask.width:,} × {mask.height:,}",
        likely=likely,
        do="use the mask of this image, or resize it with nearest-neighbour interpolation",
    )


def inspect_mask_value(value: Any, ids: MaskIds, colours: ColourMap | None, verify: Verify) -> EncodedImage:
    """The same as `inspect_mask` without a column name; raises InvalidValue."""
    if isinstance(value, np.ndarray):
        return _inspect_array(value, ids, colours)
    data, path = read_image_bytes(value, "Mask")
    facts = _core.inspect_image(data, verify == "full")
    is_mapped = _is_mapped(facts, colours)
    is_storable = _is_storable(facts, ids) and not is_mapped
    if facts.fault == ImageFault.NONE and not is_storable and verify != "full":
        facts = _core.inspect_image(data, True)  # it will be parsed
    if facts.fault not in (ImageFault.NONE, ImageFault.NOT_AN_IMAGE):
        raise invalid_image_error(facts, data, path, "mask")
    if facts.format != ImageFormat.PNG:
        kind = format_display_name(FORMAT_NAMES[facts.format]) if facts.format in FORMAT_NAMES else ""
        raise invalid_mask_error(
            "a single-channel PNG of class ids",
            kind or f"{len(data):,} bytes starting with {data[:8].hex(' ')}",
            "store masks as PNG: a lossy format changes class ids",
            path,
        )
    given = data
    if verify == "headers" and _needs_only_new_header(facts, ids):
        data = palette_to_grey(data, _core.png_chunks(data))
    elif verify == "full" or not is_storable:
        data = _convert_to_png(data, facts, ids, colours, path)
    return EncodedImage(
        VerifiedMask(data) if data is given else GeneratedMask(data),
        "png",
        facts.width,
        facts.height,
        1,
        16 if ids.wide else 8,
        collect_remarks(facts, path, "mask"),
        path=path,
    )


def invalid_mask_error(expected: str, found: str, do: str, path: str | None = None) -> InvalidImage:
    """The error for something that is not a mask."""
    return InvalidImage("E323", "does not contain class ids", expected=expected, found=found, do=do, path=path)


def _is_storable(facts: _core.ImageFacts, ids: MaskIds) -> bool:
    """Whether the PNG can be stored unchanged."""
    return facts.colour == Colour.GREY and facts.bits == (16 if ids.wide else 8)


def _needs_only_new_header(facts: _core.ImageFacts, ids: MaskIds) -> bool:
    """Whether the PNG needs another header, and keeps its pixels."""
    return facts.colour == Colour.PALETTE and facts.bits == 8 and not ids.wide


def _is_mapped(facts: _core.ImageFacts, colours: ColourMap | None) -> bool:
    """Whether pixels are not class ids, but colours of the map; in a map of greys, grey levels from 0 to 255."""
    if facts.colour == Colour.GREY and facts.bits == 8:
        return _has_only_greys(colours)
    return facts.colour not in (Colour.GREY, Colour.PALETTE)


def _has_only_greys(colours: ColourMap | None) -> bool:
    return bool(colours) and all(len(set(colour)) == 1 for colour in colours or ())


def _convert_to_png(
    data: bytes, facts: _core.ImageFacts, ids: MaskIds, colours: ColourMap | None, path: str | None
) -> bytes:
    """The PNG that is stored; every pixel has been checked."""
    if facts.width * facts.height > _MAX_PIXELS:
        raise InvalidImage(
            "E337",
            "has too many pixels to check",
            expected=f"at most {_MAX_PIXELS:,}",
            found=f"{facts.width:,} × {facts.height:,}",
            do="split image and mask into tiles",
            path=path,
        )
    chunks = _core.png_chunks(data)
    is_mapped = _is_mapped(facts, colours)
    if is_mapped and (colours is None or facts.bits != 8):
        raise _missing_colour_map_error(facts, colours, path)
    form = _core.PixelForm(facts.width, facts.height, facts.bits, _SAMPLES_PER_PIXEL[facts.colour], facts.interlaced)
    image_data = inflate_png(data, chunks, form, path)
    if is_mapped and colours is not None:
        pixels = np.frombuffer(read_samples(image_data, form, path), np.uint8)
        found = _map_colours_to_ids(pixels.reshape(facts.height, facts.width, -1), colours, path)
        return encode_grey_png(_validate_ids(found, ids, path))
    _check_ids(image_data, form, ids, path)
    if _is_storable(facts, ids):
        return data
    if _needs_only_new_header(facts, ids):
        return palette_to_grey(data, chunks)
    dtype = ">u2" if facts.bits == 16 else np.uint8
    values = np.frombuffer(read_samples(image_data, form, path), dtype).reshape(facts.height, facts.width)
    return encode_grey_png(values.astype(np.uint16 if ids.wide else np.uint8))


# Class ids.


def _check_ids(image_data: bytes, form: _core.PixelForm, ids: MaskIds, path: str | None) -> None:
    fault, counts = _core.count_pixels(image_data, form)
    if fault != PixelFault.NONE:
        raise invalid_filter_error(path)
    numbers: Array = np.asarray(counts)
    allowed = _allowed_flags(ids, len(numbers))
    if numbers[~allowed].any():
        first = _core.find_pixel(image_data, form, allowed.view(np.uint8))
        assert first is not None
        raise _invalid_ids_error(numbers, first, ids, path)


def _validate_ids(values: Array, ids: MaskIds, path: str | None) -> Array:
    """Ids from 0 to 65,535 from an array or a colour map, in the dtype that is stored."""
    flags = _allowed_flags(ids, 1 << 16)[values]
    if not flags.all():
        row, column = divmod(int(np.argmin(flags)), values.shape[1])
        counts = np.bincount(values.ravel(), minlength=1 << 16)
        raise _invalid_ids_error(counts, (row, column, int(values[row, column])), ids, path)
    return values.astype(np.uint16 if ids.wide else np.uint8)


def _invalid_ids_error(counts: Array, first: tuple[int, int, int], ids: MaskIds, path: str | None) -> InvalidImage:
    present = np.flatnonzero(counts)
    bad = present[~_allowed_flags(ids, len(counts))[present]]
    pixels = int(counts[bad].sum())
    row, column, value = first
    others = f"; {pixels:,} invalid pixels" if pixels > 1 else ""
    likely, do = _explain_ids([int(one) for one in present], [int(one) for one in bad], ids)
    return InvalidImage(
        "E335",
        "has pixels that are not class ids",
        expected=str(ids),
        found=f"{value} at row {row:,}, column {column:,}{others}",
        likely=likely,
        do=do,
        path=path,
    )


def _explain_ids(present: list[int], bad: list[int], ids: MaskIds) -> tuple[str | None, str]:
    """The likely reason for the values, if they reveal one, and what to do."""
    step = gcd(*present)
    scaled = step > 1 and present[-1] // step < ids.classes
    if ids.ignore is None and bad == [255] and not (scaled and ids.classes == 2):
        return (
            "255 is the only such value: it often marks pixels without a class",
            "ignore=255",
        )
    if scaled:
        greys = {(value, value, value): value // step for value in present}
        mapped = (
            f", or rk.layouts.deeplab(classes={ids.classes}, colours={greys})" if len(greys) <= _MAX_LEVELS else ""
        )
        return (
            f"all values are multiples of {step}: the ids were scaled for display",
            f"divide them by {step}{mapped}",
        )
    if bad == [ids.classes] and present[0] > 0:
        return "no pixel is 0: the ids start at 1", f"declare classes={ids.classes + 1}, or subtract 1"
    return None, f"fix the mask, or declare classes={bad[-1] + 1} or ignore="


# Colours.


def _map_colours_to_ids(pixels: Array, colours: ColourMap, path: str | None) -> Array:
    """The class ids of pixels of 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) samples."""
    channels = pixels.shape[2]
    red, green, blue = (pixels[:, :, 0 if channels < 3 else i].astype(np.uint32) for i in range(3))
    packed = red << 16 | green << 8 | blue
    if channels in (2, 4):
        # Pixels that are not opaque are not colours of the map.
        packed |= (pixels[:, :, -1] != 255).astype(np.uint32) << 24
    known = sorted(_pack_colours(colours))
    keys = np.array([key for key, _ in known], np.uint32)
    numbers = np.array([number for _, number in known], np.uint16)
    place = np.minimum(np.searchsorted(keys, packed), max(len(keys) - 1, 0))
    matches = keys[place] == packed if len(keys) else np.zeros(packed.shape, np.bool_)
    if not matches.all():
        row, column = divmod(int(np.argmin(matches)), pixels.shape[1])
        raise _unknown_colour_error(pixels, matches, packed, (row, column), len(keys), path)
    return numbers[place]


def _pack_colours(colours: ColourMap) -> Iterator[tuple[int, int]]:
    for colour, number in colours.items():
        try:
            red, green, blue = (index(one) for one in colour)
            if not (min(red, green, blue) >= 0 and max(red, green, blue) <= 255 and 0 <= index(number) < 1 << 16):
                raise ValueError
        except (TypeError, ValueError):
            raise error(
                "U605",
                "`colours` is not a map of colours to class ids",
                expected="(red, green, blue) from 0 to 255: a class id from 0 to 65,535",
                found=f"{preview(colour)}: {preview(number)}",
                do="colours={(0, 0, 0): 0, (128, 0, 0): 1}",
            ) from None
        yield red << 16 | green << 8 | blue, index(number)


def _unknown_colour_error(
    pixels: Array, matches: Array, packed: Array, at: tuple[int, int], known: int, path: str | None
) -> InvalidImage:
    samples_there = [int(one) for one in pixels[at]]
    colour = samples_there[:1] * 3 if len(samples_there) < 3 else samples_there[:3]
    alpha = "" if len(samples_there) in (1, 3) else f" with alpha {samples_there[-1]}"
    different = len(np.unique(packed[~matches]))
    count = int(np.count_nonzero(~matches))
    smoothed = different > 3 * known and count > different
    return InvalidImage(
        "E333",
        "has a colour that is not in the colour map",
        expected=f"one of {known:,} opaque colours",
        found=f"({', '.join(map(str, colour))}){alpha} at row {at[0]:,}, column {at[1]:,}; "
        f"{count:,} such {'pixel' if count == 1 else 'pixels'}",
        likely=f"{different:,} colours are unknown: edges were smoothed by resizing, or by JPEG"
        if smoothed
        else None,
        do="add the colour to the map, or fix the mask",
        path=path,
    )


def _missing_colour_map_error(facts: _core.ImageFacts, colours: ColourMap | None, path: str | None) -> InvalidImage:
    name = _COLOUR_NAMES[facts.colour]
    return InvalidImage(
        "E334",
        "is a colour image" if colours is None else "has colours of 16 bits",
        expected="class ids, a palette, or a colour map" if colours is None else "colours with 8 bits per channel",
        found=f"a PNG of {facts.bits} bits, {name}",
        do="declare the colours: rk.layouts.deeplab(colours={(128, 0, 0): 1, …}), or convert the masks to class ids"
        if colours is None
        else "save the mask with 8 bits per channel",
        path=path,
    )


# Arrays.


def _describe_non_ids(array: Array, ids: MaskIds) -> tuple[str, str]:
    """What an array without class ids is, and how to compute ids from it, if its values reveal that."""
    what, dtype = describe_shape(array), "uint16" if ids.wide else "uint8"
    if array.ndim == 3 and array.shape[2] == ids.classes:
        return f"{what}, one number per class", "mask.argmax(axis=-1)"
    if array.ndim == 2 and array.dtype.kind == "f" and array.size and np.isfinite(array).all():
        if (array == np.rint(array)).all():
            return f"{what}, all integers", f'mask.astype("{dtype}")'
        scaled = array.astype(np.float64) * 255
        if array.min() >= 0 and array.max() <= 1 and np.abs(scaled - np.rint(scaled)).max() < 1e-3:
            return (
                f"{what}, from 0 to 1: integers divided by 255",
                'np.rint(mask * 255).astype("uint8")',
            )
    return what, "give one class id per pixel"


def _inspect_array(array: Array, ids: MaskIds, colours: ColourMap | None) -> EncodedImage:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    is_coloured = array.ndim == 3 and array.shape[2] in (3, 4)
    is_mapped = is_coloured or (array.ndim == 2 and _has_only_greys(colours))
    if colours is not None and is_mapped and array.dtype == np.uint8:
        if 0 in array.shape:
            raise invalid_mask_error("an array with pixels", describe_shape(array), "give one colour per pixel")
        array = _map_colours_to_ids(array if is_coloured else array[:, :, None], colours, None)
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biu":
        raise invalid_mask_error("a 2-D array of integers", *_describe_non_ids(array, ids))
    known = (array >= 0) & (array < ids.classes)
    if ids.ignore is not None:
        known |= array == ids.ignore
    if not known.all():
        row, column = divmod(int(np.argmin(known)), array.shape[1])
        raise invalid_mask_error(
            str(ids),
            f"{int(array[row, column])} at row {row:,}, column {column:,}",
            "fix the mask, or declare more classes= or ignore=",
        )
    data = encode_grey_png(array.astype(np.uint16 if ids.wide else np.uint8))
    height, width = array.shape
    return EncodedImage(GeneratedMask(data), "png", width, height, 1, 16 if ids.wide else 8)


_PILLOW_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def store_image(value: Any, feature: Image) -> bytes:
    """The encoded bytes of an image given as bytes, a path or an array; raises InvalidValue."""
    if isinstance(value, np.ndarray):
        return _encode_array(value, feature)
    data: bytes = value
    path = None
    if isinstance(value, VerifiedBytes):
        found = detect_image_format(value)
    else:
        image = inspect_image_value(value, "full")
        found, data, path = image.format, image.data, image.path
    if feature.format is not None and found != feature.format:
        wanted = format_display_name(feature.format)
        raise InvalidImage(
            "E321",
            f"is not {wanted}",
            expected=f"the bytes of a {wanted} image",
            found=format_display_name(found or "not an image"),
            do=f'declare format="{found}", or format=None for any',
            path=path,
        )
    return data


def detect_image_format(data: bytes) -> str | None:
    """The format of an encoded image by its first bytes."""
    return FORMAT_NAMES.get(_core.inspect_image(data[:64], False).format) or detect_heif_format(data)


def store_mask(value: Any, feature: Mask) -> bytes:
    """The PNG of a mask given as bytes, a path or an array of class ids; raises InvalidValue."""
    if isinstance(value, VerifiedMask):
        return value
    return inspect_mask_value(value, MaskIds(feature.classes, feature.ignore), None, "full").data


def _encode_array(array: Array, feature: Image) -> bytes:
    name = feature.format or "png"
    grey = array.ndim == 2
    channels = 1 if grey else array.shape[2] if array.ndim == 3 else 0
    wide = array.dtype == np.uint16 and name == "png"
    if channels not in _PILLOW_MODES or 0 in array.shape or not (array.dtype == np.uint8 or wide):
        raise InvalidValue(
            "E321",
            "is not an array of pixels",
            expected="uint8 of shape (height, width) or (height, width, 1 to 4); uint16 for a PNG",
            found=describe_shape(array),
            do="scale and convert it: (value * 255).round().astype(np.uint8) for floats from 0 to 1"
            if array.dtype.kind == "f"
            else "convert it to uint8, channels last",
        )
    if feature.channels is not None and feature.channels != channels:
        raise InvalidValue(
            "E321",
            f"has {channels} {'channel' if channels == 1 else 'channels'}",
            expected=f"{feature.channels}, as declared",
            found=describe_shape(array),
            do=f"convert it, or declare channels={channels}",
        )
    if name == "jpeg" and feature.quality is None:
        raise InvalidValue(
            "E328",
            "is an array, but the schema declares no JPEG quality",
            expected='quality= with format="jpeg", which changes pixels',
            found=describe_shape(array),
            do='Image(format="jpeg", quality=95), or the lossless format="png"',
        )
    limits: dict[str, tuple[int, ...]] = {"jpeg": (1, 3), "gif": (1,), "bmp": (1, 3), "webp": (3, 4)}
    limits |= {"avif": (), "heic": ()}
    if name in limits and channels not in limits[name]:
        raise InvalidValue(
            "E321",
            f"cannot be written as {name.upper()}",
            expected=f"{' or '.join(map(str, limits[name])) or 'no'} channels for {name.upper()}",
            found=describe_shape(array),
            do='format="png", which supports 1 to 4 channels',
        )
    if wide:
        return encode_png(array.reshape(*array.shape[:2], channels))
    options: dict[str, Any] = {}
    if name in ("jpeg", "webp"):
        options = {"quality": feature.quality} if feature.quality is not None else {"lossless": True}
    pixels = array.reshape(array.shape[:2]) if channels == 1 else array
    return _save_pixels(pixels, _PILLOW_MODES[channels], name, options)


def _save_pixels(pixels: Array, mode: str, name: str, options: dict[str, Any]) -> bytes:
    try:
        pillow = import_module("PIL.Image")
    except ImportError:
        raise error(
            "U602",
            "writing arrays as images needs Pillow",
            expected="the package pillow",
            found="not installed",
            do="pip install pillow",
        ) from None
    height, width = pixels.shape[:2]
    data = np.ascontiguousarray(pixels, np.uint8).tobytes()
    image = pillow.frombytes(mode, (width, height), data)
    file = io.BytesIO()
    image.save(file, name, **options)
    return file.getvalue()
