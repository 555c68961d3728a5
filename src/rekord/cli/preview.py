"""A value in a few characters: numbers, text, the size of an image, or the first bytes."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rekord.cli.render import SHOWN_CHARACTERS, count, quoted

_LOOKED_AT_BYTES = 4096
_HEX_BYTES = 16
_MOST_SEGMENTS = 1000  # before a JPEG's size; a hostile one could have millions
SHOWN_VALUES = 8


class Picture(NamedTuple):
    """An encoded image: its format, and its size where the header says one."""

    format: str
    width: int | None = None
    height: int | None = None


def picture(data: bytes) -> Picture | None:
    """The image that these bytes begin, judged by its header alone; None where they are no image."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return Picture("PNG", *_pair(data[16:24], 4, "big") if data[12:16] == b"IHDR" else (None, None))
    if data.startswith(b"\xff\xd8\xff"):
        return Picture("JPEG", *_jpeg_size(data))
    if data.startswith((b"GIF87a", b"GIF89a")):
        return Picture("GIF", *_pair(data[6:10], 2, "little"))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return Picture("WebP", *_webp_size(data))
    return None


def of_bytes(data: bytes) -> str:
    """A byte string as a person wants to see it."""
    image = picture(data)
    if image is not None:
        size = "" if image.width is None else f" {image.width}×{image.height}"
        return f"{image.format}{size}, {count(len(data), 'byte')}"
    text = _as_text(data)
    if text is not None:
        shown = quoted(text)
        return shown if not shown.endswith('…"') else f"{shown}, {count(len(data), 'byte')}"
    more = f" …, {count(len(data), 'byte')}" if len(data) > _HEX_BYTES else ""
    return f"0x {data[:_HEX_BYTES].hex(' ')}{more}"


def of_many_bytes(values: Sequence[bytes]) -> str:
    """A list of byte strings, as many as fit."""
    return _list(map(of_bytes, values[:SHOWN_VALUES]), len(values))


def of_numbers(values: Sequence[int] | Sequence[float], *, total: int) -> str:
    """The first of `total` numbers, as many as fit; floats are abbreviated to six digits."""
    return _list(map(_number, values[:SHOWN_VALUES]), total)


def _number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _list(shown: Iterable[str], total: int) -> str:
    taken: list[str] = []
    length = 0
    for text in shown:
        length += len(text) + 2
        if taken and length > SHOWN_CHARACTERS:
            break
        taken.append(text)
    return ", ".join(taken) + (", …" if len(taken) < total else "")


def _as_text(data: bytes) -> str | None:
    # The beginning is enough to judge by, and a character may be cut off at its end.
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data[:_LOOKED_AT_BYTES], final=len(data) <= _LOOKED_AT_BYTES)
    except UnicodeDecodeError:
        return None
    odd = sum(1 for letter in text if letter < " " and letter not in "\t\n\r")
    # Small numbers are valid UTF-8 too; text has a stray control character at most here and there.
    return text if odd * 4 <= len(text) else None


def _pair(data: bytes, width: int, order: str) -> tuple[int | None, int | None]:
    if len(data) < 2 * width:
        return None, None
    little = order == "little"
    numbers = [data[:width], data[width : 2 * width]]
    first, second = (int.from_bytes(number, "little" if little else "big") for number in numbers)
    return first, second


def _jpeg_size(data: bytes) -> tuple[int | None, int | None]:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        segment = data[at : at + 9]
        if len(segment) < 4 or segment[0] != 0xFF:
            break
        marker = segment[1]
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # these stand alone
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = _pair(segment[5:9], 2, "big")
            return width, height
        else:
            at += 2 + max(int.from_bytes(segment[2:4], "big"), 2)
    return None, None


def _webp_size(data: bytes) -> tuple[int | None, int | None]:
    form = data[12:16]
    if form == b"VP8 " and data[23:26] == b"\x9d\x01\x2a" and len(data) >= 30:
        width, height = _pair(data[26:30], 2, "little")
        return (width or 0) & 0x3FFF, (height or 0) & 0x3FFF
    if form == b"VP8L" and data[20:21] == b"\x2f" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if form == b"VP8X" and len(data) >= 30:
        width, height = _pair(data[24:30], 3, "little")
        return (width or 0) + 1, (height or 0) + 1
    return None, None
