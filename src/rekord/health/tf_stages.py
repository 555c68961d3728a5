"""The errors that TensorFlow raises after parsing: raw bytes, shapes, encoded pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

Decoder: TypeAlias = Literal["decode_jpeg", "decode_png", "decode_gif", "decode_bmp", "decode_image"]

_OPS: dict[Decoder, str] = {
    "decode_jpeg": "DecodeJpeg",
    "decode_png": "DecodePng",
    "decode_gif": "DecodeGif",
    "decode_bmp": "DecodeBmp",
    "decode_image": "DecodeImage",
}
# NumPy's names of dtypes, with TensorFlow's name and size of each.
_RAW_TYPES: dict[str, tuple[str, int]] = {
    "bool": ("bool", 1),
    "uint8": ("uint8", 1),
    "int8": ("int8", 1),
    "uint16": ("uint16", 2),
    "int16": ("int16", 2),
    "float16": ("half", 2),
    "int32": ("int32", 4),
    "float32": ("float", 4),
    "int64": ("int64", 8),
    "float64": ("double", 8),
    "complex64": ("complex64", 8),
    "complex128": ("complex128", 16),
}
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER_BYTES = 33


def decode_raw_error(length_bytes: int, dtype: str) -> str | None:
    """The error of `tf.io.decode_raw` for one text of so many bytes; `dtype` by NumPy's name."""
    name, size = _RAW_TYPES[dtype]
    if length_bytes % size == 0:
        return None
    return (
        f"Input to DecodeRaw has length {length_bytes} that is not a multiple of {size}, the size of {name}"
    )


def reshape_error(values: int, shape: Sequence[int | None]) -> str | None:
    """The error of `tf.reshape` for so many values; one size of the shape may be None (TensorFlow's -1)."""
    known = math.prod([size for size in shape if size is not None])
    begin = f"Input to reshape is a tensor with {values} values, but the requested shape"
    if None in shape and known:
        return f"{begin} requires a multiple of {known}" if values % known else None
    return f"{begin} has {known}" if values != known else None


def decode_image_error(
    data: bytes, decoder: Decoder = "decode_image", *, damaged: bool = False
) -> str | None:
    """The error of one of tf.io's picture decoders, as far as the first bytes tell.

    Every decoder but `decode_bmp` takes JPEG, PNG, GIF and WebP alike, whatever its name says. Whether a
    picture that begins well is whole only decoding tells: say `damaged` where that is known.
    """
    op = _OPS[decoder]
    if not data:
        return "Input is empty."
    kind = _kind(data)
    if kind is None:
        return "Unknown image file format. One of JPEG, JPEG XL, PNG, GIF, BMP, WebP required."
    if kind == "BMP":
        if decoder in ("decode_bmp", "decode_image"):
            return None
        return (
            "Trying to decode BMP format using a wrong op. "
            f"Use `decode_bmp` or `decode_image` instead. Op used: {op}"
        )
    if kind == "PNG" and len(data) < _PNG_HEADER_BYTES:
        return "Invalid PNG. Failed to initialize decoder."
    if decoder == "decode_bmp" and kind != "WebP":
        right = f"decode_{kind.lower()}"
        return f"Trying to decode {kind} format using DecodeBmp op. Use `{right}` or `decode_image` instead."
    if damaged and kind == "JPEG":
        return "jpeg::Uncompress failed. Invalid JPEG data or crop window."
    if damaged and kind == "PNG":
        return f"Invalid PNG data, size {len(data)}"
    return None


def _kind(data: bytes) -> str | None:
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(_PNG):
        return "PNG"
    if data.startswith(b"GIF8"):
        return "GIF"
    if data.startswith(b"BM"):
        return "BMP"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WebP"
    return None
