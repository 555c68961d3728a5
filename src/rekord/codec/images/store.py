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
from rekord._core import Colour, PictureFault, PictureFormat, PixelFault
from rekord.codec.columns import Array
from rekord.codec.images.inspect import (
    FORMATS,
    Checked,
    CheckedMask,
    MadeMask,
    Picture,
    Unsound,
    Verify,
    bad_filter,
    examined_image,
    grey_png,
    inflated,
    palette_as_grey,
    read_picture,
    remarks_on,
    samples,
    shown_format,
    unsound,
)
from rekord.codec.values import Unfit, shown_shape
from rekord.errors import error
from rekord.location import Location
from rekord.schema import Image, Mask
from rekord.schema.messages import shown

Colours: TypeAlias = "Mapping[tuple[int, int, int], int]"
"""The class id that each colour (red, green, blue) stands for."""

_SAMPLES = {Colour.GREY: 1, Colour.PALETTE: 1, Colour.GREY_ALPHA: 2, Colour.RGB: 3, Colour.RGBA: 4}
_NAMES = {
    Colour.GREY: "grey",
    Colour.PALETTE: "palette",
    Colour.GREY_ALPHA: "grey and alpha",
    Colour.RGB: "RGB",
    Colour.RGBA: "RGBA",
}
_MOST_PIXELS = 1 << 28


@dataclass(frozen=True, slots=True)
class Ids:
    """The values that the pixels of a mask may have."""

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
def _allowed(ids: Ids, values: int) -> Array:
    """A flag for each value, 0 where it is no class id."""
    flags = np.zeros(values, np.bool_)
    flags[: ids.classes] = True
    if ids.ignore is not None and ids.ignore < values:
        flags[ids.ignore] = True
    flags.setflags(write=False)
    return flags


def look_at_mask(
    value: Any,
    *,
    name: str,
    classes: int,
    ignore: int | None,
    colours: Colours | None = None,
    verify: Verify,
) -> Picture:
    """The mask in a file, in bytes or in an array, as it is stored; an EncodeError names file and column.

    full: every pixel is a class id, or refused. headers: pixels are looked at only where they must be changed.
    """
    try:
        return examined_mask(value, Ids(classes, ignore), colours, verify)
    except Unfit as unfit:
        raise unfit.told(name) from unfit.__cause__


def same_size(image: Picture, mask: Picture, *, name: str) -> None:
    """A mask covers its image, pixel by pixel; `name` is the mask's column."""
    if (image.width, image.height) == (mask.width, mask.height):
        return
    likely = None
    if (image.width, image.height) == (mask.height, mask.width):
        turned = any(code == "H732" for code, _ in image.remarks)
        likely = (
            "the image is turned by EXIF, and the mask was drawn on the turned one"
            if turned
            else "width and height are swapped: one of the two was turned"
        )
    beside = f" ({image.path})" if image.path is not None else ""
    raise error(
        "E336",
        f"`{name}` has another size than its image",
        location=Location(path=mask.path, feature=name),
        expected=f"{image.width:,} × {image.height:,}, as the image has{beside}",
        found=f"{mask.width:,} × {mask.height:,}",
        likely=likely,
        do="give the mask that belongs to this image, or resize it without smoothing",
    )


def examined_mask(value: Any, ids: Ids, colours: Colours | None, verify: Verify) -> Picture:
    """The same as `look_at_mask`, for a caller that knows the column; raises Unfit."""
    if isinstance(value, np.ndarray):
        return _of_array(value, ids, colours)
    data, path = read_picture(value, "Mask")
    facts = _core.look(data, verify == "full")
    if facts.fault == PictureFault.NONE and not _passes(facts, ids) and verify != "full":
        facts = _core.look(data, True)  # it will be taken apart
    if facts.fault not in (PictureFault.NONE, PictureFault.NOT_A_PICTURE):
        raise unsound(facts, data, path, "mask")
    if facts.format != PictureFormat.PNG:
        kind = shown_format(FORMATS[facts.format]) if facts.format in FORMATS else ""
        raise no_mask(
            "a single-channel PNG of class ids",
            kind or f"{len(data):,} bytes that begin {data[:8].hex(' ')}",
            "store masks as PNG: a lossy format changes class ids",
            path,
        )
    given = data
    if verify == "headers" and _only_renamed(facts, ids):
        data = palette_as_grey(data, _core.png_chunks(data))
    elif verify == "full" or not _passes(facts, ids):
        data = _converted(data, facts, ids, colours, path)
    return Picture(
        CheckedMask(data) if data is given else MadeMask(data),
        "png",
        facts.width,
        facts.height,
        1,
        16 if ids.wide else 8,
        remarks_on(facts, path, "mask"),
        path=path,
    )


def no_mask(expected: str, found: str, do: str, path: str | None = None) -> Unsound:
    """The refusal of what cannot be a mask."""
    return Unsound("E323", "is not a mask of class ids", expected=expected, found=found, do=do, path=path)


def _passes(facts: _core.PictureFacts, ids: Ids) -> bool:
    """Whether the PNG is one that can be stored as it is."""
    return facts.colour == Colour.GREY and facts.bits == (16 if ids.wide else 8)


def _only_renamed(facts: _core.PictureFacts, ids: Ids) -> bool:
    """Whether the PNG needs another header, and keeps its pixels."""
    return facts.colour == Colour.PALETTE and facts.bits == 8 and not ids.wide


def _converted(
    data: bytes, facts: _core.PictureFacts, ids: Ids, colours: Colours | None, path: str | None
) -> bytes:
    """The PNG that is stored; every pixel has been looked at."""
    if facts.width * facts.height > _MOST_PIXELS:
        raise Unsound(
            "E337",
            "has more pixels than are looked at",
            expected=f"at most {_MOST_PIXELS:,}",
            found=f"{facts.width:,} × {facts.height:,}",
            do="cut image and mask into tiles",
            path=path,
        )
    chunks = _core.png_chunks(data)
    coloured = facts.colour not in (Colour.GREY, Colour.PALETTE)
    if coloured and (colours is None or facts.bits != 8):
        raise _uncoloured(facts, colours, path)
    form = _core.PixelForm(facts.width, facts.height, facts.bits, _SAMPLES[facts.colour], facts.interlaced)
    image_data = inflated(data, chunks, form, path)
    if coloured and colours is not None:
        pixels = np.frombuffer(samples(image_data, form, path), np.uint8)
        found = _by_colour(pixels.reshape(facts.height, facts.width, -1), colours, path)
        return grey_png(_checked(found, ids, path))
    _check_ids(image_data, form, ids, path)
    if _passes(facts, ids):
        return data
    if _only_renamed(facts, ids):
        return palette_as_grey(data, chunks)
    dtype = ">u2" if facts.bits == 16 else np.uint8
    values = np.frombuffer(samples(image_data, form, path), dtype).reshape(facts.height, facts.width)
    return grey_png(values.astype(np.uint16 if ids.wide else np.uint8))


# Class ids.


def _check_ids(image_data: bytes, form: _core.PixelForm, ids: Ids, path: str | None) -> None:
    fault, counts = _core.count_pixels(image_data, form)
    if fault != PixelFault.NONE:
        raise bad_filter(path)
    numbers: Array = np.asarray(counts)
    allowed = _allowed(ids, len(numbers))
    if numbers[~allowed].any():
        first = _core.find_pixel(image_data, form, allowed.view(np.uint8))
        assert first is not None
        raise _bad_ids(numbers, first, ids, path)


def _checked(values: Array, ids: Ids, path: str | None) -> Array:
    """Ids from 0 to 65,535 that came of an array or a colour map, in the dtype that is stored."""
    flags = _allowed(ids, 1 << 16)[values]
    if not flags.all():
        row, column = divmod(int(np.argmin(flags)), values.shape[1])
        counts = np.bincount(values.ravel(), minlength=1 << 16)
        raise _bad_ids(counts, (row, column, int(values[row, column])), ids, path)
    return values.astype(np.uint16 if ids.wide else np.uint8)


def _bad_ids(counts: Array, first: tuple[int, int, int], ids: Ids, path: str | None) -> Unsound:
    present = np.flatnonzero(counts)
    bad = present[~_allowed(ids, len(counts))[present]]
    pixels = int(counts[bad].sum())
    row, column, value = first
    others = f"; {pixels:,} pixels have no class id" if pixels > 1 else ""
    likely, do = _reason([int(one) for one in present], [int(one) for one in bad], ids)
    return Unsound(
        "E335",
        "has pixels that are no class ids",
        expected=str(ids),
        found=f"{value} at row {row:,}, column {column:,}{others}",
        likely=likely,
        do=do,
        path=path,
    )


def _reason(present: list[int], bad: list[int], ids: Ids) -> tuple[str | None, str]:
    """Why the values are what they are, where they show it, and what to do."""
    step = gcd(*present)
    scaled = step > 1 and present[-1] // step < ids.classes
    if ids.ignore is None and bad == [255] and not (scaled and ids.classes == 2):
        return (
            "255 is the only such value: it often marks pixels without a class",
            "declare ignore=255 (--ignore 255)",
        )
    if scaled:
        return f"all values are multiples of {step}: the ids were scaled to be seen", f"divide them by {step}"
    if bad == [ids.classes] and present[0] > 0:
        return "no pixel is 0: the ids count from 1", f"declare classes={ids.classes + 1}, or subtract 1"
    return None, f"mend the mask, or declare classes={bad[-1] + 1} or ignore="


# Colours.


def _by_colour(pixels: Array, colours: Colours, path: str | None) -> Array:
    """The class ids of pixels of 2 (grey, alpha), 3 (RGB) or 4 (RGBA) samples."""
    channels = pixels.shape[2]
    red, green, blue = (pixels[:, :, 0 if channels == 2 else i].astype(np.uint32) for i in range(3))
    packed = red << 16 | green << 8 | blue
    if channels in (2, 4):
        # What is not opaque is no colour of the map.
        packed |= (pixels[:, :, -1] != 255).astype(np.uint32) << 24
    known = sorted(_packed_colours(colours))
    keys = np.array([key for key, _ in known], np.uint32)
    numbers = np.array([number for _, number in known], np.uint16)
    place = np.minimum(np.searchsorted(keys, packed), max(len(keys) - 1, 0))
    matches = keys[place] == packed if len(keys) else np.zeros(packed.shape, np.bool_)
    if not matches.all():
        row, column = divmod(int(np.argmin(matches)), pixels.shape[1])
        raise _unknown_colour(pixels, matches, packed, (row, column), len(keys), path)
    return numbers[place]


def _packed_colours(colours: Colours) -> Iterator[tuple[int, int]]:
    for colour, number in colours.items():
        try:
            red, green, blue = (index(one) for one in colour)
            if not (
                min(red, green, blue) >= 0 and max(red, green, blue) <= 255 and 0 <= index(number) < 1 << 16
            ):
                raise ValueError
        except (TypeError, ValueError):
            raise error(
                "U605",
                "`colours` is no map of colours to class ids",
                expected="(red, green, blue) from 0 to 255: a class id from 0 to 65,535",
                found=f"{shown(colour)}: {shown(number)}",
                do="colours={(0, 0, 0): 0, (128, 0, 0): 1}",
            ) from None
        yield red << 16 | green << 8 | blue, index(number)


def _unknown_colour(
    pixels: Array, matches: Array, packed: Array, at: tuple[int, int], known: int, path: str | None
) -> Unsound:
    samples_there = [int(one) for one in pixels[at]]
    colour = samples_there[:1] * 3 if len(samples_there) == 2 else samples_there[:3]
    alpha = "" if len(samples_there) == 3 else f" with alpha {samples_there[-1]}"
    different = len(np.unique(packed[~matches]))
    count = int(np.count_nonzero(~matches))
    smoothed = different > 3 * known and count > different
    return Unsound(
        "E333",
        "has a colour that the colour map lacks",
        expected=f"one of {known:,} opaque colours",
        found=f"({', '.join(map(str, colour))}){alpha} at row {at[0]:,}, column {at[1]:,}; "
        f"{count:,} such {'pixel' if count == 1 else 'pixels'}",
        likely=f"{different:,} colours are unknown: edges were smoothed by resizing, or by JPEG"
        if smoothed
        else None,
        do="add the colour to the map, or mend the mask",
        path=path,
    )


def _uncoloured(facts: _core.PictureFacts, colours: Colours | None, path: str | None) -> Unsound:
    name = _NAMES[facts.colour]
    return Unsound(
        "E334",
        "is a picture of colours" if colours is None else "has colours of 16 bits",
        expected="class ids, a palette, or a colour map that says what each colour means"
        if colours is None
        else "colours of 8 bits a channel",
        found=f"a PNG of {facts.bits} bits, {name}",
        do="declare the colours: rk.layouts.deeplab(colours={(128, 0, 0): 1, …}), or give an array of class ids"
        if colours is None
        else "save the mask with 8 bits a channel",
        path=path,
    )


# Arrays.


def _no_ids(array: Array, ids: Ids) -> tuple[str, str]:
    """What an array is that holds no class ids, and how ids are made of it, where its values show that."""
    what, dtype = shown_shape(array), "uint16" if ids.wide else "uint8"
    if array.ndim == 3 and array.shape[2] == ids.classes:
        return f"{what}, a number for each class", "mask.argmax(axis=-1)"
    if array.ndim == 2 and array.dtype.kind == "f" and array.size and np.isfinite(array).all():
        if (array == np.rint(array)).all():
            return f"{what}, every value whole", f'mask.astype("{dtype}")'
        scaled = array.astype(np.float64) * 255
        if array.min() >= 0 and array.max() <= 1 and np.abs(scaled - np.rint(scaled)).max() < 1e-3:
            return (
                f"{what}, from 0 to 1: whole numbers divided by 255",
                'np.rint(mask * 255).astype("uint8")',
            )
    return what, "give one class id a pixel"


def _of_array(array: Array, ids: Ids, colours: Colours | None) -> Picture:
    if colours is not None and array.ndim == 3 and array.shape[2] in (3, 4) and array.dtype == np.uint8:
        if 0 in array.shape:
            raise no_mask("an array with pixels", shown_shape(array), "give one colour a pixel")
        array = _by_colour(array, colours, None)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biu":
        raise no_mask("a 2-D array of whole numbers", *_no_ids(array, ids))
    known = (array >= 0) & (array < ids.classes)
    if ids.ignore is not None:
        known |= array == ids.ignore
    if not known.all():
        row, column = divmod(int(np.argmin(known)), array.shape[1])
        raise no_mask(
            str(ids),
            f"{int(array[row, column])} at row {row:,}, column {column:,}",
            "mend the mask, or declare more classes= or ignore=",
        )
    data = grey_png(array.astype(np.uint16 if ids.wide else np.uint8))
    height, width = array.shape
    return Picture(MadeMask(data), "png", width, height, 1, 16 if ids.wide else 8)


_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def stored_image(value: Any, feature: Image) -> bytes:
    """The encoded bytes of an image given as bytes, a path or an array; raises Unfit."""
    if isinstance(value, np.ndarray):
        return _encoded(value, feature)
    data: bytes = value
    path = None
    if isinstance(value, Checked):
        found = format_of(value)
    else:
        picture = examined_image(value, "full")
        found, data, path = picture.format, picture.data, picture.path
    if feature.format is not None and found != feature.format:
        wanted = shown_format(feature.format)
        raise Unsound(
            "E321",
            f"is not {wanted}",
            expected=f"the bytes of a {wanted} image",
            found=shown_format(found or "no image"),
            do=f'declare format="{found}", or format=None for any',
            path=path,
        )
    return data


def format_of(data: bytes) -> str | None:
    """The format of an encoded image by its first bytes."""
    return FORMATS.get(_core.look(data[:64], False).format)


def stored_mask(value: Any, feature: Mask) -> bytes:
    """The PNG of a mask given as bytes, a path or an array of class ids; raises Unfit."""
    if isinstance(value, CheckedMask):
        return value
    return examined_mask(value, Ids(feature.classes, feature.ignore), None, "full").data


def _encoded(array: Array, feature: Image) -> bytes:
    name = feature.format or "png"
    grey = array.ndim == 2
    channels = 1 if grey else array.shape[2] if array.ndim == 3 else 0
    wide = array.dtype == np.uint16 and channels == 1 and name == "png"
    if channels not in _MODES or 0 in array.shape or not (array.dtype == np.uint8 or wide):
        raise Unfit(
            "E321",
            "is no array of pixels",
            expected="uint8 of shape (height, width) or (height, width, 1 to 4); uint16 for a grey PNG",
            found=shown_shape(array),
            do="scale and convert it: (value * 255).round().astype(np.uint8) for floats from 0 to 1"
            if array.dtype.kind == "f"
            else "convert it to uint8, channels last",
        )
    if feature.channels is not None and feature.channels != channels:
        raise Unfit(
            "E321",
            f"has {channels} {'channel' if channels == 1 else 'channels'}",
            expected=f"{feature.channels}, as the schema says",
            found=shown_shape(array),
            do=f"convert it, or declare channels={channels}",
        )
    if name == "jpeg" and feature.quality is None:
        raise Unfit(
            "E328",
            "is an array, and the schema names no quality for JPEG",
            expected='quality= beside format="jpeg": JPEG changes pixels',
            found=shown_shape(array),
            do='Image(format="jpeg", quality=95), or format="png", which changes nothing',
        )
    limits = {"jpeg": (1, 3), "gif": (1,), "bmp": (1, 3), "webp": (3, 4)}
    if name in limits and channels not in limits[name]:
        raise Unfit(
            "E321",
            f"cannot be written as {name.upper()}",
            expected=f"{' or '.join(map(str, limits[name]))} channels for {name.upper()}",
            found=shown_shape(array),
            do='format="png" takes 1 to 4 channels',
        )
    options: dict[str, Any] = {}
    if name in ("jpeg", "webp"):
        options = {"quality": feature.quality} if feature.quality is not None else {"lossless": True}
    pixels = array.reshape(array.shape[:2]) if channels == 1 else array
    return _saved(pixels, "I;16" if wide else _MODES[channels], name, options)


def _saved(pixels: Array, mode: str, name: str, options: dict[str, Any]) -> bytes:
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
    data = np.ascontiguousarray(pixels, "<u2" if mode == "I;16" else np.uint8).tobytes()
    image = pillow.frombytes(mode, (width, height), data)
    file = io.BytesIO()
    image.save(file, name, **options)
    return file.getvalue()
