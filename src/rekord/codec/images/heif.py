"""AVIF and HEIC images, which TensorFlow does not decode: inspected and decoded by Pillow and pillow-heif."""

from __future__ import annotations

import io
from typing import Any

from rekord.codec.images.inspect import InvalidImage
from rekord.codec.images.libraries import import_library
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError

_AVIF_BRANDS = frozenset((b"avif", b"avis"))
_HEIC_BRANDS = frozenset((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"))
_MAX_BRANDS_BYTES = 256


def detect_heif_format(data: bytes) -> str | None:
    """ "avif" or "heic" by the brands in the first box of a file; None for anything else."""
    if data[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(data[:4], "big"), _MAX_BRANDS_BYTES, len(data))
    brands = {data[8:12], *[data[at : at + 4] for at in range(16, end - 3, 4)]}
    if brands & _AVIF_BRANDS:
        return "avif"
    return "heic" if brands & _HEIC_BRANDS else None


def open_heif(data: bytes, format: str) -> Any:
    """The image, opened by Pillow with its header read and not its pixels; raises InvalidImage.

    A HEIC is turned as its container says; an AVIF has an EXIF orientation instead.
    """
    try:
        if format == "avif":
            return _avif_class()(io.BytesIO(data))
        return import_library("pillow_heif", "HEIC images").HeifImageFile(io.BytesIO(data))
    except (RekordError, InvalidValue, MemoryError):
        raise
    except Exception as failure:  # there is no list of the exceptions that damaged bytes cause
        raise InvalidImage(
            "E332",
            f"is corrupt: the {format.upper()} cannot be opened",
            expected=f"an intact {format.upper()}",
            found=" ".join(str(failure).split())[:60],
            do="copy or download the file again",
        ) from failure


def _avif_class() -> Any:
    try:
        from PIL.AvifImagePlugin import SUPPORTED, AvifImageFile  # type: ignore[attr-defined, unused-ignore]
    except ImportError:
        SUPPORTED = False
    if not SUPPORTED:
        raise InvalidImage(
            "E321",
            "is AVIF, which this version of Pillow does not decode",
            expected="Pillow 11.3 or newer, with AVIF",
            found="a Pillow without AVIF",
            do="pip install 'pillow>=11.3'",
        )
    return AvifImageFile
