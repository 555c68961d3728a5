"""Images and masks as they are stored: encoded bytes, looked at closely enough to know what they are."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np

from rekord import _core
from rekord.codec.columns import Array
from rekord.codec.looking import FORMATS, Checked, CheckedMask, Unsound, examined_image, shown_format
from rekord.codec.masks import Ids, examined_mask
from rekord.codec.unfit import Unfit, shown_shape
from rekord.errors import error
from rekord.schema import Image, Mask

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
