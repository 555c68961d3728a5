"""The outlines of COCO's objects, drawn: polygons and run lengths become PNGs of 0 and 1."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import numpy as np

from rekord.errors import error
from rekord.location import Location
from rekord.schema.refuse import shown

_MOST_PIXELS = 1 << 26  # an image of 8,192 × 8,192; what a file claims beyond that is not believed
_MOST_DIGITS = 13  # of 5 bits each: a run length is below 2**63


class _NoOutline(Exception):
    """What is wrong with an outline: expected, found."""


def drawn(outline: bytes, size: tuple[int | None, int | None], whose: str, location: Location) -> bytes:
    """The PNG of one object, as large as its image; `outline` is the json of its `segmentation`.

    A pixel belongs to a polygon when its centre is inside, and to an object when it is in any of its polygons.
    """
    try:
        return _png(_pixels(_parsed(outline), size))
    except _NoOutline as problem:
        expected, found = problem.args
        raise error(
            "E375",
            f"the outline of {whose} cannot be drawn",
            location=location,
            expected=expected,
            found=found,
            do="mend its `segmentation`, or leave masks out",
        ) from None


def _parsed(outline: bytes) -> Any:
    try:
        return msgspec.json.decode(outline) if outline else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _NoOutline("polygons or run lengths", "json that cannot be parsed") from None


def _pixels(outline: Any, size: tuple[int | None, int | None]) -> np.ndarray[Any, Any]:
    height, width = size
    if isinstance(outline, dict):
        stated = outline.get("size")
        if not isinstance(stated, list) or [type(one) for one in stated] != [int, int] or min(stated) < 1:
            raise _NoOutline("run lengths with `size`: height, width", shown(stated))
        if height is not None and width is not None and stated != [height, width]:
            raise _NoOutline(f"the size of the image: {[height, width]}", f"`size` {stated}")
        height, width = stated
    if height is None or width is None:
        raise _NoOutline("`height` and `width` of the image", "none")
    if height * width > _MOST_PIXELS:
        raise _NoOutline(f"an image of at most {_MOST_PIXELS:,} pixels", f"{height:,} × {width:,}")
    if isinstance(outline, dict):
        return _from_runs(outline.get("counts"), height, width)
    if not isinstance(outline, list) or not outline:
        raise _NoOutline("at least one polygon", shown(outline) if outline else "none")
    mask = np.zeros((height, width), np.uint8)
    for polygon in outline:
        mask |= _from_polygon(polygon, height, width)
    return mask


def _from_polygon(polygon: Any, height: int, width: int) -> np.ndarray[Any, Any]:
    numbers = isinstance(polygon, list) and all(type(one) in (int, float) for one in polygon)
    if not numbers or len(polygon) < 6 or len(polygon) % 2:
        raise _NoOutline("a polygon: x, y, x, y, … of three points or more", shown(polygon))
    points = np.array(polygon, np.float64).reshape(-1, 2)
    if not (np.abs(points) < 1e9).all():
        raise _NoOutline("coordinates in pixels", "a number that is none")
    # Each edge turns inside into outside, from the first pixel on whose centre lies right of it.
    turns = np.zeros((height, width + 1), np.uint8)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        first, end = sorted((_row(y0, height), _row(y1, height)))
        if first == end:
            continue
        rows = np.arange(first, end)
        crossings = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        turns[rows, np.clip(np.ceil(crossings - 0.5), 0, width).astype(np.int64)] ^= 1
    inside: np.ndarray[Any, Any] = np.bitwise_xor.accumulate(turns[:, :width], axis=1)
    return inside


def _row(y: float, height: int) -> int:
    return int(min(max(np.ceil(y - 0.5), 0), height))


def _from_runs(counts: Any, height: int, width: int) -> np.ndarray[Any, Any]:
    """Runs of 0 and 1 in turn, down the columns."""
    runs = _expanded(counts) if isinstance(counts, str) else counts
    whole = isinstance(runs, list) and all(type(one) is int and one >= 0 for one in runs)
    if not whole or sum(runs) != height * width:
        found = f"{sum(runs):,}" if whole else shown(counts)
        raise _NoOutline(f"`counts` of {height * width:,} pixels in all", found)
    values = (np.arange(len(runs)) & 1).astype(np.uint8)
    mask: np.ndarray[Any, Any] = np.repeat(values, runs).reshape(width, height).T
    return mask


def _expanded(text: str) -> list[int]:
    """The run lengths of COCO's short form: base 32, and from the third on the change since the one before last."""
    runs: list[int] = []
    number = digits = 0
    for letter in text:
        digit = ord(letter) - 48
        if not 0 <= digit < 64 or digits == _MOST_DIGITS:
            raise _NoOutline("`counts` in COCO's short form", shown(text))
        number |= (digit & 31) << (5 * digits)
        digits += 1
        if digit & 32:
            continue
        if digit & 16:
            number -= 1 << (5 * digits)
        runs.append(number + (runs[-2] if len(runs) > 2 else 0))
        number = digits = 0
    if digits:
        raise _NoOutline("`counts` in COCO's short form", "a number that does not end")
    return runs


def _png(mask: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    # Eight bits a pixel: TensorFlow scales the 1 of a smaller PNG up to 255.
    Image.fromarray(np.ascontiguousarray(mask)).save(file, "PNG")
    return file.getvalue()
