"""PNGs taken apart and put together: image data, and single-channel pictures of class ids."""

from __future__ import annotations

import struct
import zlib
from typing import Any, TypeAlias

import numpy as np

from rekord import _core
from rekord.codec.columns import Array
from rekord.codec.looking import AGAIN, Unsound

_inflate: Any
try:
    # Inflating is most of what a look at a mask costs, and this does it in less than half the time.
    from isal import isal_zlib as _inflate
except ImportError:  # there is none for this kind of machine
    _inflate = zlib

Chunks: TypeAlias = "list[tuple[bytes, int, int]]"
"""The name of each chunk, and where its content begins and ends."""

_START = b"\x89PNG\r\n\x1a\n"
_GREY = 0  # the colour type in a header
# What would be wrong, or make decoders complain, once there is no palette.
_OF_PALETTES = frozenset([b"PLTE", b"tRNS", b"bKGD", b"hIST", b"sBIT", b"sPLT", b"iCCP"])


def inflated(data: bytes, chunks: Chunks, form: _core.PixelForm, path: str | None) -> bytes:
    """The image data of a PNG, never more than its pixels need; raises Unsound."""
    needed_bytes = form.inflated_bytes
    unpack = _inflate.decompressobj()
    view = memoryview(data)
    pieces = []
    # One more than is needed: so that the checksum at the end of the stream is read and compared.
    room = needed_bytes + 1
    try:
        for name, begin, end in chunks:
            if name == b"IDAT":
                piece = unpack.decompress(view[begin:end], room)
                room -= len(piece)
                pieces.append(piece)
                if unpack.eof or room == 0:
                    break
    except _inflate.error as failure:
        found = "bytes that are damaged, or a checksum that does not match"
        raise damaged_pixels("data that can be inflated", found, path) from failure
    if room > 1:
        found_bytes = needed_bytes + 1 - room
        raise Unsound(
            "E331",
            "is cut off: it has fewer pixels than its header says",
            expected=f"{needed_bytes:,} bytes of pixels",
            found=f"{found_bytes:,} bytes",
            do=AGAIN,
            path=path,
        )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def damaged_pixels(expected: str, found: str, path: str | None) -> Unsound:
    """The refusal of image data that decoders cannot read."""
    return Unsound(
        "E332",
        "is damaged: the pixels of the PNG cannot be read",
        expected=expected,
        found=found,
        do=AGAIN,
        path=path,
    )


def samples(image_data: bytes, form: _core.PixelForm, path: str | None) -> bytes:
    """All samples row by row: a byte each, or two where the form has 16 bits, the higher one first."""
    found = _core.copy_pixels(image_data, form)
    if isinstance(found, bytes):
        return found
    raise bad_filter(path)


def bad_filter(path: str | None) -> Unsound:
    """The refusal of a row with a filter that does not exist."""
    return damaged_pixels("rows with filters from 0 to 4", "another filter", path)


def palette_as_grey(data: bytes, chunks: Chunks) -> bytes:
    """An 8-bit palette PNG as a grey one whose values are the indices; the image data is not touched."""
    view = memoryview(data)
    pieces: list[bytes | memoryview] = [_START]
    for name, begin, end in chunks:
        if name == b"IHDR":
            header = bytearray(view[begin:end])
            header[9] = _GREY
            pieces.append(_chunk(name, bytes(header)))
        elif name not in _OF_PALETTES:
            pieces.append(view[begin - 8 : end + 4])
    return b"".join(pieces)


def grey_png(pixels: Array) -> bytes:
    """A single-channel PNG of a 2-D array of uint8 or uint16."""
    height, width = pixels.shape
    sample_bytes = pixels.dtype.itemsize
    rows = np.zeros((height, 1 + width * sample_bytes), np.uint8)  # a filter of 0 before each
    big = np.ascontiguousarray(pixels, ">u2" if sample_bytes == 2 else np.uint8)
    rows[:, 1:] = big.view(np.uint8).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8 * sample_bytes, _GREY, 0, 0, 0)
    image_data = zlib.compress(rows.data, 6)
    return b"".join([_START, _chunk(b"IHDR", header), _chunk(b"IDAT", image_data), _chunk(b"IEND", b"")])


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
