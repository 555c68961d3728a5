"""Encoded images inspected before they are stored: format, size, whether they are complete; and PNGs in detail."""

from __future__ import annotations

import os
import stat
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

import numpy as np

from rekord import _core
from rekord._core import Colour, ImageFault
from rekord.codec.columns import Array
from rekord.codec.values import InvalidValue, describe_value
from rekord.errors import RekordError

_inflate: Any
try:
    # Inflating is most of the cost of inspecting a mask, and this takes less than half the time.
    from isal import isal_zlib as _inflate
except ImportError:  # not available for this platform
    _inflate = zlib

PngChunks: TypeAlias = "list[tuple[bytes, int, int]]"
"""The name of each chunk, and where its content begins and ends."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_GREY = 0  # the colour type in a header
_PNG_COLOUR_TYPES = (_PNG_GREY, 4, 2, 6)  # by the number of channels: grey, with alpha, RGB, RGBA
# Chunks that would be wrong, or make decoders warn, without a palette.
_PALETTE_CHUNKS = frozenset([b"PLTE", b"tRNS", b"bKGD", b"hIST", b"sBIT", b"sPLT", b"iCCP"])


def inflate_png(data: bytes, chunks: PngChunks, form: _core.PixelForm, path: str | None) -> bytes:
    """The image data of a PNG, never more than its pixels need; raises InvalidImage."""
    needed_bytes = form.inflated_bytes
    unpack = _inflate.decompressobj()
    view = memoryview(data)
    pieces = []
    # One more than needed, so that the checksum at the end of the stream is read and compared.
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
        found = "corrupt bytes, or a wrong checksum"
        raise corrupt_pixels_error("data that can be inflated", found, path) from failure
    if room > 1:
        found_bytes = needed_bytes + 1 - room
        raise InvalidImage(
            "E331",
            "is truncated: it has fewer pixels than its header declares",
            expected=f"{needed_bytes:,} bytes of pixels",
            found=f"{found_bytes:,} bytes",
            do=COPY_AGAIN_HINT,
            path=path,
        )
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def corrupt_pixels_error(expected: str, found: str, path: str | None) -> InvalidImage:
    """The error for image data that cannot be decoded."""
    return InvalidImage(
        "E332",
        "is corrupt: the pixels of the PNG cannot be read",
        expected=expected,
        found=found,
        do=COPY_AGAIN_HINT,
        path=path,
    )


def read_samples(image_data: bytes, form: _core.PixelForm, path: str | None) -> bytes:
    """All samples row by row: one byte each, or two with 16 bits, the higher one first."""
    found = _core.copy_pixels(image_data, form)
    if isinstance(found, bytes):
        return found
    raise invalid_filter_error(path)


def invalid_filter_error(path: str | None) -> InvalidImage:
    """The error for a row with an unknown filter."""
    return corrupt_pixels_error("rows with filters from 0 to 4", "another filter", path)


def palette_to_grey(data: bytes, chunks: PngChunks) -> bytes:
    """An 8-bit palette PNG as a grey one whose values are the indices; the image data is unchanged."""
    view = memoryview(data)
    pieces: list[bytes | memoryview] = [_PNG_SIGNATURE]
    for name, begin, end in chunks:
        if name == b"IHDR":
            header = bytearray(view[begin:end])
            header[9] = _PNG_GREY
            pieces.append(_build_chunk(name, bytes(header)))
        elif name not in _PALETTE_CHUNKS:
            pieces.append(view[begin - 8 : end + 4])
    return b"".join(pieces)


def encode_grey_png(pixels: Array) -> bytes:
    """A single-channel PNG of a 2-D array of uint8 or uint16."""
    return encode_png(pixels[:, :, np.newaxis])


def encode_png(pixels: Array) -> bytes:
    """A PNG of an array of uint8 or uint16, of shape (height, width, 1 to 4)."""
    height, width, channels = pixels.shape
    sample_bytes = pixels.dtype.itemsize
    rows = np.zeros((height, 1 + width * channels * sample_bytes), np.uint8)  # a filter of 0 before each
    big = np.ascontiguousarray(pixels, ">u2" if sample_bytes == 2 else np.uint8)
    rows[:, 1:] = big.view(np.uint8).reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8 * sample_bytes, _PNG_COLOUR_TYPES[channels - 1], 0, 0, 0)
    image_data = zlib.compress(rows.data, 6)
    return b"".join(
        [
            _PNG_SIGNATURE,
            _build_chunk(b"IHDR", header),
            _build_chunk(b"IDAT", image_data),
            _build_chunk(b"IEND", b""),
        ]
    )


def _build_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


Verify: TypeAlias = Literal["full", "headers"]

FORMAT_NAMES = {
    _core.ImageFormat.JPEG: "jpeg",
    _core.ImageFormat.PNG: "png",
    _core.ImageFormat.GIF: "gif",
    _core.ImageFormat.BMP: "bmp",
    _core.ImageFormat.WEBP: "webp",
    _core.ImageFormat.TIFF: "tiff",
}
_EXTENSION_FORMATS = {
    "jpg": "jpeg",
    "jpeg": "jpeg",
    "jpe": "jpeg",
    "jfif": "jpeg",
    "png": "png",
    "gif": "gif",
    "bmp": "bmp",
    "dib": "bmp",
    "webp": "webp",
}
_ORIENTATIONS = {
    2: "mirrored",
    3: "turned by 180°",
    4: "mirrored and turned by 180°",
    5: "mirrored and turned by 90°",
    6: "turned by 90°",
    7: "mirrored and turned by 270°",
    8: "turned by 270°",
}
_MAX_FILE_BYTES = (1 << 31) - 1  # of a record
CONVERT_HINT = 'rk.sources.convert_images(source, "png")      (--images-as png)'
COPY_AGAIN_HINT = "copy or download the file again"
_TAIL_BYTES = 512


class VerifiedBytes(bytes):
    """The bytes of an inspected image, stored without further checks."""

    __slots__ = ()


class VerifiedMask(VerifiedBytes):
    """The PNG of a mask whose class ids were checked."""

    __slots__ = ()


class GeneratedBytes(VerifiedBytes):
    """The bytes of a generated image, which are in no file."""

    __slots__ = ()


class GeneratedMask(VerifiedMask, GeneratedBytes):
    """The PNG of a generated mask."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class EncodedImage:
    """An encoded image and its properties."""

    data: bytes
    format: str
    width: int
    height: int
    channels: int
    bits: int
    remarks: tuple[tuple[str, str], ...] = ()  # code and sentence of a remark
    path: str | None = field(default=None, kw_only=True)  # of the file that it came from


class InvalidImage(InvalidValue):
    """An image or mask that cannot be stored or decoded."""


def inspect_image(value: Any, *, name: str, verify: Verify) -> EncodedImage:
    """The image in a file or in bytes; an EncodeError names the file and the column `name`.

    full: the whole structure is checked. headers: only the first bytes are.
    """
    try:
        return inspect_image_value(value, verify)
    except InvalidValue as unfit:
        raise unfit.to_error(name) from unfit.__cause__


def inspect_image_value(value: Any, verify: Verify) -> EncodedImage:
    """The same without a column name; raises InvalidValue."""
    data, path = read_image_bytes(value, "Image")
    facts = _core.inspect_image(data, verify == "full")
    if facts.fault == ImageFault.NOT_AN_IMAGE:
        from rekord.codec.images.heif import detect_heif_format

        heif = detect_heif_format(data)
        if heif is not None:
            return _inspect_heif(data, heif, path)
    if facts.fault != ImageFault.NONE or facts.format == _core.ImageFormat.TIFF:
        raise invalid_image_error(facts, data, path, "image")
    return EncodedImage(
        data if isinstance(data, VerifiedBytes) else VerifiedBytes(data),
        FORMAT_NAMES[facts.format],
        facts.width,
        facts.height,
        facts.channels,
        facts.bits,
        collect_remarks(facts, path, "image"),
        path=path,
    )


def _inspect_heif(data: bytes, format: str, path: str | None) -> EncodedImage:
    """An AVIF or HEIC, as its library reads its header."""
    from rekord.codec.images.heif import open_heif

    try:
        image = open_heif(data, format)
    except InvalidValue as unfit:
        unfit.path = path
        raise
    kept = data if isinstance(data, VerifiedBytes) else VerifiedBytes(data)
    whose = "the image" if path is None else os.path.basename(path)
    remark = "H842", undecodable_remark(whose, format)
    bands, bits = len(image.getbands()), 8
    return EncodedImage(kept, format, image.width, image.height, bands, bits, (remark,), path=path)


def undecodable_remark(whose: str, format: str) -> str:
    """The remark about an image whose format TensorFlow does not know."""
    return f"{whose} is {format_display_name(format)}, which TensorFlow does not decode"


def pixel_limit_ratio(facts: _core.ImageFacts) -> float:
    """The pixels that an image or mask declares, as a multiple of the limit for decoding.

    A few bytes can declare billions. The limit is Pillow's, and is changed in the same way.
    """
    from PIL import Image

    most = Image.MAX_IMAGE_PIXELS
    return 0.0 if most is None else facts.width * facts.height / max(most, 1)


def too_many_pixels_error(width: int, height: int) -> InvalidImage:
    """The error for an image or mask with too many pixels."""
    from PIL import Image

    return InvalidImage(
        "D410",
        "has too many pixels to decode",
        expected=f"at most {Image.MAX_IMAGE_PIXELS:,}",
        found=f"{width:,} × {height:,}",
        do="raise the limit, PIL.Image.MAX_IMAGE_PIXELS, or split the image into tiles",
    )


def format_display_name(name: str) -> str:
    """The display name of a format."""
    return "WebP" if name == "webp" else name.upper()


# Bytes.


def reads_itself(value: object) -> bool:
    """Whether the path is remote or of a file in an archive: it has no name in the file system."""
    return getattr(value, "reads_itself", False)


def read_image_bytes(value: Any, declared: str) -> tuple[bytes, str | None]:
    """The bytes of an image, and its file; raises InvalidValue."""
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, PurePath):
        path = str(value)
        return (_read_own_bytes(value) if reads_itself(value) else _read_file(path)), path
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value), None
    if isinstance(value, str):
        raise InvalidValue(
            "E322",
            "is a str",
            expected="encoded bytes, a pathlib.Path, or an array",
            found=describe_value(value),
            do="pathlib.Path(value) for a file",
        )
    raise InvalidValue(
        "E302",
        f"has type {type(value).__name__}, expected {declared}",
        expected="encoded bytes, a pathlib.Path, or a NumPy array",
        found=describe_value(value),
        do="np.asarray(value) for pixels",
    )


def _read_file(path: str) -> bytes:
    try:
        # Reading a pipe could block forever.
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        try:
            return _read_all(file, path)
        finally:
            os.close(file)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else None
        raise _unreadable_error(path, reason or str(failure)) from failure


def _read_own_bytes(place: Any) -> bytes:
    """The bytes of a file whose path can read itself."""
    path = str(place)
    try:
        data = place.read_at_most(_MAX_FILE_BYTES)
    except RekordError as failure:
        if getattr(place, "is_remote", False):
            raise  # the connection failed: the row is not bad
        raise _unreadable_error(path, failure.found or failure.what) from failure
    except (OSError, ValueError) as failure:
        raise _unreadable_error(path, getattr(failure, "strerror", None) or str(failure)) from failure
    if not isinstance(data, bytes):
        _check_file_bytes(data, path)
    return bytes(data)


def _check_file_bytes(file_bytes: int, path: str) -> None:
    if file_bytes > _MAX_FILE_BYTES:
        raise InvalidImage(
            "E327",
            "is in a file that is larger than a record can be",
            expected="at most 2 GiB",
            found=f"{file_bytes:,} bytes",
            do="split the image into tiles, or store file paths",
            path=path,
        )


def _read_all(file: int, path: str) -> bytes:
    status = os.fstat(file)
    if stat.S_ISDIR(status.st_mode):
        raise _unreadable_error(path, "Is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise _unreadable_error(path, "a device or a pipe")
    _check_file_bytes(status.st_size, path)
    data = os.read(file, status.st_size + 1)
    while len(data) != status.st_size:
        more = os.read(file, 1 << 20)
        if not more or len(data) > _MAX_FILE_BYTES:
            break
        data += more
    return data


def _unreadable_error(path: str, reason: str) -> InvalidImage:
    return InvalidImage(
        "E329",
        "cannot be read from its file",
        expected="a readable file",
        found=reason[:60],
        do=f"check the path: {path}",
        path=path,
    )


# Faults in words.


def invalid_image_error(facts: _core.ImageFacts, data: bytes, path: str | None, what: str) -> InvalidImage:
    """The error for an invalid or incomplete image; `what` is "image" or "mask"."""
    kind = format_display_name(FORMAT_NAMES[facts.format]) if facts.format in FORMAT_NAMES else ""
    likely = None
    match facts.fault:
        case ImageFault.EMPTY:
            code, says = "E330", "is empty"
            expected, found = f"the bytes of an encoded {what}", "0 bytes"
        case ImageFault.NONE | ImageFault.NOT_AN_IMAGE:
            return unsupported_image_error(data, kind, path)
        case ImageFault.CUT:
            code, says = "E331", f"is truncated: the {kind} has no end"
            expected = f"at least {_format_bytes(facts.expected)} from byte {facts.at:,}"
            found = f"{_format_bytes(facts.found)} there, {len(data):,} in total"
            likely = _explain_truncation(data)
        case ImageFault.CRC:
            code, says = "E332", "is corrupt: the checksum of a PNG chunk does not match"
            expected = f"crc32 0x{facts.expected:08x} (stored)"
            found = f"crc32 0x{facts.found:08x} (computed over the chunk at byte {facts.at:,})"
        case ImageFault.BAD_CHUNK:
            code, says = "E332", "is corrupt: a PNG chunk is not valid"
            name = facts.found.to_bytes(4, "big")
            expected = "known PNG chunks, in order"
            found = f"chunk {name!r} at byte {facts.at:,}"
        case ImageFault.BAD_MARKER:
            code, says = "E332", f"is corrupt: the {kind} has an unexpected byte"
            expected = f"the structure of a {kind}"
            found = f"0x{facts.found:02x} at byte {facts.at:,}"
        case ImageFault.ZERO_SIZE:
            code, says = "E332", f"is corrupt: the {kind} has no pixels"
            expected, found = "a width and a height ≥ 1", f"{facts.width:,} × {facts.height:,}"
        case _:
            code, says = "E332", f"is corrupt: the {kind} declares more pixels than its bytes can hold"
            expected = f"pixels that fit {len(data):,} compressed bytes"
            found = f"{facts.width:,} × {facts.height:,}"
    return InvalidImage(code, says, expected=expected, found=found, likely=likely, do=COPY_AGAIN_HINT, path=path)


def unsupported_image_error(data: bytes, kind: str, path: str | None) -> InvalidImage:
    """The error for something that is not an image, or has an unsupported format."""
    return InvalidImage(
        "E321",
        f"is {kind}, which TensorFlow does not decode" if kind else "is not an image",
        expected="an image: JPEG, PNG, GIF, BMP or WebP",
        found=kind or f"{len(data):,} bytes starting with {data[:8].hex(' ')}",
        do=CONVERT_HINT if kind else "check the file that it came from",
        path=path,
    )


def _explain_truncation(data: bytes) -> str | None:
    if len(data) > _TAIL_BYTES and not any(data[-_TAIL_BYTES:]):
        zeros = len(data) - len(data.rstrip(b"\0"))
        return f"the last {zeros:,} bytes are zeros: an incomplete copy or download"
    return None


def _format_bytes(count: int) -> str:
    return f"{count:,} byte" if count == 1 else f"{count:,} bytes"


# Remarks.


def collect_remarks(facts: _core.ImageFacts, path: str | None, what: str) -> tuple[tuple[str, str], ...]:
    """Remarks about an image that is stored unchanged."""
    turned = _ORIENTATIONS.get(facts.orientation)
    cmyk = facts.colour in (Colour.CMYK, Colour.YCCK)
    ending = None
    if path is not None:
        ending = _EXTENSION_FORMATS.get(path[path.rfind(".") + 1 :].lower())
    found = FORMAT_NAMES[facts.format]
    misnamed = ending is not None and ending != found
    if not (turned or cmyk or misnamed):
        return ()
    whose = f"the {what}" if path is None else os.path.basename(path)
    remarks = []
    if cmyk:
        remarks.append(("H731", f"{whose} is CMYK: decoders do not agree on its colours"))
    if turned:
        remarks.append(
            (
                "H732",
                f"{whose} is to be shown {turned} (EXIF orientation {facts.orientation}): "
                "TensorFlow does not turn it",
            )
        )
    if misnamed:
        remarks.append(("H733", f"{whose} is {format_display_name(found)}: it is recorded as what it is"))
    return tuple(remarks)
