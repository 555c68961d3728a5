"""What image files contain besides pixels: EXIF positions and maker notes found, and removed without re-encoding."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EXIF_HEADER = b"Exif\0\0"
_XMP_POSITION = (b"exif:GPSLatitude", b"exif:GPSLongitude")
_ORIENTATION, _EXIF_IFD, _GPS_IFD, _MAKER_NOTE = 0x0112, 0x8769, 0x8825, 0x927C
_GPS_POSITION = (2, 4)  # latitude, longitude
_MAX_ENTRIES = 1000  # of one directory
_ORIENTATIONS = range(1, 9)

_KEPT_APPS = (0xE0, 0xEE)  # JFIF and Adobe: decoders need them
_ICC_APP, _ICC_HEADER = 0xE2, b"ICC_PROFILE\0"
_STANDALONE_MARKERS = (0x01, *range(0xD0, 0xD8))
_START_OF_SCAN, _END_OF_IMAGE, _EXIF_APP, _COMMENT = 0xDA, 0xD9, 0xE1, 0xFE
_PNG_METADATA = (b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME")
_WEBP_METADATA = (b"EXIF", b"XMP ")
_WEBP_EXIF_FLAG, _WEBP_XMP_FLAG = 0x08, 0x04


class ImageMetadata(NamedTuple):
    """What EXIF and XMP say."""

    orientation: int = 1
    has_position: bool = False
    has_maker_note: bool = False


def read_metadata(data: bytes) -> ImageMetadata:
    """The metadata of a JPEG, PNG or WebP; that of nothing if it has none, or none that can be parsed."""
    found = ImageMetadata()
    for kind, content in _iter_metadata(data):
        if kind == "exif":
            own = _read_exif(content)
            found = ImageMetadata(
                own.orientation if own.orientation > 1 else found.orientation,
                found.has_position or own.has_position,
                found.has_maker_note or own.has_maker_note,
            )
        elif any(name in content for name in _XMP_POSITION):
            found = found._replace(has_position=True)
    return found


def strip_metadata(data: bytes) -> bytes:
    """A JPEG, PNG or WebP without EXIF, XMP, comments and texts; its pixels, colour profile and orientation stay.

    Other data is returned unchanged, and so is an image without metadata, or one that cannot be parsed to its end.
    """
    if data.startswith(b"\xff\xd8"):
        return _strip_jpeg(data)
    if data.startswith(_PNG_SIGNATURE):
        return _strip_png(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _strip_webp(data)
    return data


def _iter_metadata(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every block of EXIF (from its TIFF header on) or XMP."""
    if data.startswith(b"\xff\xd8"):
        for marker, begin, end in _iter_jpeg_segments(data):
            content = data[begin + 4 : end]
            if marker == _EXIF_APP and content.startswith(_EXIF_HEADER):
                yield "exif", content[len(_EXIF_HEADER) :]
            elif marker == _EXIF_APP:
                yield "xmp", content
    elif data.startswith(_PNG_SIGNATURE):
        for name, begin, end in _iter_png_chunks(data):
            if name == b"eXIf":
                yield "exif", data[begin + 8 : end - 4].removeprefix(_EXIF_HEADER)
            elif name == b"iTXt":
                yield "xmp", data[begin + 8 : end - 4]
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        for name, begin, end in _iter_webp_chunks(data):
            if name in _WEBP_METADATA:
                content = data[begin + 8 : end].removeprefix(_EXIF_HEADER)
                yield ("exif" if name == b"EXIF" else "xmp"), content


# EXIF.


def _read_exif(exif: bytes) -> ImageMetadata:
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None or len(exif) < 8:
        return ImageMetadata()
    root = dict(_iter_entries(exif, order, _number(exif, order, 4)))
    orientation = root.get(_ORIENTATION, 0)
    turned = struct.unpack_from(order + "H", struct.pack(order + "I", orientation))[0]
    inner = dict(_iter_entries(exif, order, root[_EXIF_IFD])) if _EXIF_IFD in root else {}
    gps = dict(_iter_entries(exif, order, root[_GPS_IFD])) if _GPS_IFD in root else {}
    return ImageMetadata(
        turned if turned in _ORIENTATIONS else 1,
        any(tag in gps for tag in _GPS_POSITION),
        _MAKER_NOTE in inner or _MAKER_NOTE in root,
    )


def _iter_entries(exif: bytes, order: str, offset: int) -> Iterator[tuple[int, int]]:
    """The tags of a directory, and their values or offsets."""
    if offset + 2 > len(exif):
        return
    count = struct.unpack_from(order + "H", exif, offset)[0]
    for i in range(min(count, _MAX_ENTRIES)):
        at = offset + 2 + 12 * i
        if at + 12 > len(exif):
            return
        yield struct.unpack_from(order + "H", exif, at)[0], _number(exif, order, at + 8)


def _number(exif: bytes, order: str, at: int) -> int:
    number: int = struct.unpack_from(order + "I", exif, at)[0]
    return number


def _build_exif(orientation: int) -> bytes:
    """EXIF that says nothing but the orientation."""
    return b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, _ORIENTATION, 3, 1, orientation, 0, 0)


# JPEG.


def _iter_jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The marker of each segment before the first scan, and where it begins and ends; nothing after damage."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in _STANDALONE_MARKERS:
            yield marker, at, at + 2
            at += 2
            continue
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _END_OF_IMAGE or end > len(data) or end < at + 4:
            return
        yield marker, at, end
        if marker == _START_OF_SCAN:
            return
        at = end


def _strip_jpeg(data: bytes) -> bytes:
    segments = list(_iter_jpeg_segments(data))
    if not segments or segments[-1][0] != _START_OF_SCAN:
        return data
    orientation = read_metadata(data).orientation
    pieces = [b"\xff\xd8"]
    if orientation > 1:
        exif = _EXIF_HEADER + _build_exif(orientation)
        pieces.append(b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif)
    for marker, begin, end in segments[:-1]:
        is_profile = marker == _ICC_APP and data[begin + 4 : end].startswith(_ICC_HEADER)
        is_metadata = 0xE0 <= marker <= 0xEF or marker == _COMMENT
        if marker in _KEPT_APPS or is_profile or not is_metadata:
            pieces.append(data[begin:end])
    begin = segments[-1][1]
    stop = _find_end_of_image(data, segments[-1][2])
    return b"".join([*pieces, data[begin:stop]])


def _find_end_of_image(data: bytes, at: int) -> int:
    """Where the image ends: cameras append further images and their own data."""
    while (at := data.find(b"\xff", at)) >= 0 and at + 1 < len(data):
        marker = data[at + 1]
        if marker == _END_OF_IMAGE:
            return at + 2
        if marker in (0x00, 0xFF) or marker in _STANDALONE_MARKERS:
            at += 1 if marker == 0xFF else 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")  # tables between the scans of a progressive image
        at += 2 + max(length, 2)
    return len(data)


# PNG.


def _iter_png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The name of each chunk, and where it begins and ends."""
    at = len(_PNG_SIGNATURE)
    while at + 12 <= len(data):
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            return
        yield data[at + 4 : at + 8], at, end
        at = end


def _strip_png(data: bytes) -> bytes:
    chunks = list(_iter_png_chunks(data))
    if not chunks or chunks[-1][0] != b"IEND":
        return data
    orientation = read_metadata(data).orientation
    pieces = [_PNG_SIGNATURE]
    for name, begin, end in chunks:
        if name not in _PNG_METADATA:
            pieces.append(data[begin:end])
        if name == b"IHDR" and orientation > 1:
            exif = b"eXIf" + _build_exif(orientation)
            pieces.append(struct.pack(">I", len(exif) - 4) + exif + struct.pack(">I", zlib.crc32(exif)))
    return b"".join(pieces)


# WebP.


def _iter_webp_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The name of each chunk, and where it begins and ends, without padding."""
    at = 12
    while at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if at + 8 + length > len(data):
            return
        yield data[at : at + 4], at, at + 8 + length
        at += 8 + length + (length & 1)


def _strip_webp(data: bytes) -> bytes:
    chunks = list(_iter_webp_chunks(data))
    if not any(name in _WEBP_METADATA for name, _, _ in chunks):
        return data
    orientation = read_metadata(data).orientation
    pieces = []
    for name, begin, end in chunks:
        if name in _WEBP_METADATA:
            continue
        chunk = bytearray(data[begin:end])
        if name == b"VP8X" and len(chunk) > 8:
            chunk[8] &= ~(_WEBP_EXIF_FLAG | _WEBP_XMP_FLAG) & 0xFF
            chunk[8] |= _WEBP_EXIF_FLAG if orientation > 1 else 0
        pieces.append(bytes(chunk) + b"\0" * (len(chunk) & 1))
    if orientation > 1:
        exif = _build_exif(orientation)
        pieces.append(b"EXIF" + struct.pack("<I", len(exif)) + exif + b"\0" * (len(exif) & 1))
    body = b"WEBP" + b"".join(pieces)
    return b"RIFF" + struct.pack("<I", len(body)) + body
