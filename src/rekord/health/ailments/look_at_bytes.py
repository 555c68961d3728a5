"""What raw bytes could be, by looking at them: a picture, or numbers of ordinary size."""

from __future__ import annotations

import numpy as np

from rekord import _core
from rekord._core import PictureFormat

_LOOKED_AT_BYTES = 1 << 16
_ORDINARY = 0.98
_SMALLEST, _LARGEST = 1e-8, 1e8
_FEWEST = 8


def begins_as_picture(data: bytes) -> bool:
    """Whether bytes begin as an encoded picture does."""
    return bool(_core.look(data, False).format != PictureFormat.NONE)


def is_text(data: bytes) -> bool:
    """Whether bytes are printable ASCII throughout, as far as they are looked at."""
    head = data[:_LOOKED_AT_BYTES]
    return head.isascii() and head.decode("ascii").isprintable()


def bytes_say(data: bytes, item_bytes: int) -> str | None:
    """The dtype of `item_bytes` bytes whose numbers are of ordinary size; None where none is.

    Floats of ordinary size use few of all exponents: bytes that mean something else do not look like that.
    """
    head = data[: min(len(data), _LOOKED_AT_BYTES) // item_bytes * item_bytes]
    if len(head) < _FEWEST * item_bytes:
        return None
    if item_bytes == 1:
        return "uint8"
    if item_bytes == 2:
        return "uint16"
    floats = np.frombuffer(head, f"<f{item_bytes}")
    ints = np.frombuffer(head, f"<i{item_bytes}")
    with np.errstate(all="ignore"):
        size = np.abs(floats.astype(np.float64))
        ordinary = (size == 0) | ((size > _SMALLEST) & (size < _LARGEST))
    if ordinary.mean() >= _ORDINARY and size.any():
        return f"float{8 * item_bytes}"
    if (np.abs(ints.astype(np.float64)) < 1 << 16).mean() >= _ORDINARY and ints.any():
        return f"int{8 * item_bytes}"
    return None
