"""Images and masks as they are stored: encoded bytes, looked at closely enough to know what they are."""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import PurePath
from typing import Any

import numpy as np

from rekord.codec.nested import Array
from rekord.codec.unfit import Unfit, described, shown_shape
from rekord.errors import error
from rekord.schema import Feature, Image, Mask

_PNG = b"\x89PNG\r\n\x1a\n"
_COLOURS = {0: "grey", 2: "RGB", 3: "palette", 4: "grey and alpha", 6: "RGBA"}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def stored_image(value: Any, feature: Image) -> bytes:
    """The encoded bytes of an image given as bytes, a path or an array."""
    if isinstance(value, np.ndarray):
        return _encoded(value, feature)
    data = _bytes_of(value, feature)
    found = format_of(data)
    if found is None or (feature.format is not None and found != feature.format):
        wanted = feature.format.upper() if feature.format else "JPEG, PNG, GIF, BMP or WebP"
        raise Unfit(
            "E321",
            f"is not {wanted}" if feature.format else "is no image",
            expected=f"the bytes of a {wanted} image" if feature.format else f"an image: {wanted}",
            found=found.upper() if found else f"{len(data):,} bytes that begin {data[:8].hex(' ')}",
            do=f'declare format="{found}", or format=None for any'
            if found
            else "look at the file that it came from",
        )
    return data


def format_of(data: bytes) -> str | None:
    """The format of an encoded image by its first bytes."""
    if data[:3] == b"\xff\xd8\xff":
        return "jpeg"
    if data[:8] == _PNG:
        return "png"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "gif"
    if data[:2] == b"BM" and len(data) >= 26:
        return "bmp"
    return "webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def stored_mask(value: Any, feature: Mask) -> bytes:
    """The PNG of a mask given as bytes, a path or a 2-D array of class ids."""
    if isinstance(value, np.ndarray):
        return _encoded_mask(value, feature)
    data = _bytes_of(value, feature)
    if format_of(data) != "png" or len(data) < 33:
        raise _bad_mask(
            "a single-channel PNG of class ids",
            (format_of(data) or "").upper() or f"{len(data):,} bytes that begin {data[:8].hex(' ')}",
            "store masks as PNG: a lossy format changes class ids",
        )
    depth, colour = data[24], data[25]
    if colour != 0 or depth not in (8, 16):
        # TensorFlow turns colours into luminance, and scales fewer than 8 bits up: both change ids.
        raise _bad_mask(
            "a grey PNG of 8 or 16 bits, each pixel a class id",
            f"a PNG of {depth} bits, {_COLOURS.get(colour, 'of no known colour')}",
            "give the class ids as a 2-D array: np.asarray(PIL.Image.open(path)) for a palette image",
        )
    return data


def _bytes_of(value: Any, feature: Feature) -> bytes:
    what = type(feature).__name__
    if isinstance(value, str):
        raise Unfit(
            "E322",
            "is a str",
            expected="encoded bytes, a pathlib.Path, or an array",
            found=described(value),
            do="pathlib.Path(value) for a file",
        )
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, PurePath):
        try:
            with open(value, "rb") as file:
                return file.read()
        except OSError as failure:
            raise Unfit(
                "E329",
                "cannot be read from its file",
                expected="a file that can be read",
                found=(failure.strerror or str(failure))[:60],
                do=f"check the path: {value}",
            ) from failure
    raise Unfit(
        "E302",
        f"is of type {type(value).__name__}, the schema says {what}",
        expected="encoded bytes, a pathlib.Path, or a NumPy array",
        found=described(value),
        do="np.asarray(value) for what holds pixels",
    )


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


def _encoded_mask(array: Array, feature: Mask) -> bytes:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biu":
        raise _bad_mask("a 2-D array of whole numbers", shown_shape(array), "give one class id a pixel")
    known = (array >= 0) & (array < feature.classes)
    if feature.ignore is not None:
        known |= array == feature.ignore
    if not known.all():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmin(known)), array.shape))
        also = "" if feature.ignore is None else f", or {feature.ignore} (ignore)"
        raise _bad_mask(
            f"class ids from 0 to {feature.classes - 1}{also}",
            f"{int(array[at])} at row {at[0]:,}, column {at[1]:,}",
            "mend the mask, or declare more classes= or ignore=",
        )
    wide = max(feature.classes - 1, feature.ignore or 0) > 255
    return _saved(array.astype(np.uint16 if wide else np.uint8), "I;16" if wide else "L", "png", {})


def _bad_mask(expected: str, found: str, do: str) -> Unfit:
    return Unfit("E323", "is not a mask of class ids", expected=expected, found=found, do=do)


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
