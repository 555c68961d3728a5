"""The data of `rekord demo`: pictures of four shapes, always the same."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from rekord.schema import Float32, Image, Int64, Label, Schema

CLASSES = ("circle", "cross", "square", "stripes")

SCHEMA = Schema(
    {
        "image": Image(format="png", key="image/encoded"),
        "label": Label(CLASSES, key="image/class/label"),
        "embedding": Float32(shape=(8,)),
        "id": Int64(),
    }
)


def generated_row(index: int) -> dict[str, Any]:
    """The row with this number; always the same."""
    return {
        "image": drawn_png(index),
        "label": CLASSES[index % len(CLASSES)],
        "embedding": [((index * 37 + k * 11) % 64 - 32) / 16 for k in range(8)],
        "id": index,
    }


def drawn_png(index: int, side: int = 32) -> bytes:
    """A small greyscale picture of the class that the record has."""
    rows = bytearray()
    for y in range(side):
        rows.append(0)  # no filter
        rows += bytes(_ink(index, x - side // 2, y - side // 2) for x in range(side))

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(rows), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def drawn_jpeg(index: int, side: int = 128) -> bytes:
    """A picture in colours of the class that an image has, as a camera would store it."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (side, side), (60 + index % 90, 120, 200 - index % 80))
    draw = ImageDraw.Draw(picture)
    middle, size = side // 2, side // 5 + index % 20
    box = (middle - size, middle - size, middle + size, middle + size)
    ink = (250, 220 - index % 60, 40)
    match index % len(CLASSES):
        case 0:
            draw.ellipse(box, fill=ink)
        case 1:
            draw.line((box[0], middle, box[2], middle), fill=ink, width=10)
            draw.line((middle, box[1], middle, box[3]), fill=ink, width=10)
        case 2:
            draw.rectangle(box, fill=ink)
        case _:
            for x in range(index % 8, side, 16):
                draw.line((x, 0, x, side), fill=ink, width=6)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90)
    return file.getvalue()


def _ink(index: int, x: int, y: int) -> int:
    size = 6 + index % 7
    match index % len(CLASSES):
        case 0:
            inside = x * x + y * y < size * size
        case 1:
            inside = min(abs(x), abs(y)) < 2 and max(abs(x), abs(y)) < size
        case 2:
            inside = max(abs(x), abs(y)) < size
        case _:
            inside = (x + index) // 3 % 2 == 0
    return 255 - index % 50 if inside else index % 50
