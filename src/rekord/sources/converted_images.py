"""Images of other formats than JPEG and PNG, converted when they are read."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from rekord.arguments import check_keywords, invalid
from rekord.codec.images.decode import convert_mode
from rekord.codec.images.heif import detect_heif_format, open_heif
from rekord.codec.images.inspect import GeneratedBytes, InvalidImage, read_image_bytes
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError
from rekord.sources.array_files import ImagesAs, check_images_as, encode_array
from rekord.sources.base import Chunk, Source, SourcePart, SourceRow, full_path, is_partitioned
from rekord.sources.tiff import TiffReader
from rekord.sources.wrapped import WrappedSource

_KEPT_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_PILLOW_FORMATS = ("GIF", "BMP", "DIB", "WEBP", "JPEG2000", "PPM", "TGA")
_JPEG_QUALITY = 95


@check_keywords
def convert_images(source: Source, images_as: ImagesAs = "png") -> ConvertedImages:
    """A source of images with those that are neither JPEG nor PNG converted: TIFF, HEIC, AVIF, WebP, GIF, BMP, …

    Conversion to PNG keeps all pixels, and the 16 bits of a TIFF; JPEG has quality 95. The orientation that such a
    file gives is applied, and its metadata is dropped. Masks that are TIFF become PNGs of the same class ids.
    """
    if not is_partitioned(source) or not hasattr(source, "root"):
        raise invalid("source", source, "a source of image files", 'rk.sources.image_folder("photos")')
    name = check_images_as(images_as)
    return ConvertedImages(source, name or "png")


@dataclass(frozen=True)
class ConvertedImages(WrappedSource):
    """A source whose rows have files in the columns `image` and `mask`."""

    source: Source
    images_as: ImagesAs

    def options(self) -> dict[str, Any]:
        return {**self.source.options(), "images_as": self.images_as}

    def parts(self, *args: Any) -> Sequence[SourcePart]:
        parts: Sequence[SourcePart] = self.source.parts(*args)  # type: ignore[union-attr]
        return parts

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        for row in self.source.read(part):  # type: ignore[union-attr]
            yield self._convert(row) if isinstance(row, SourceRow) else row

    def _convert(self, row: SourceRow) -> SourceRow:
        if isinstance(row.values, RekordError):
            return row
        values = dict(row.values)
        for column in ("image", "mask"):
            value = values.get(column)
            if not isinstance(value, (bytes, PurePath)):
                continue
            try:
                values[column] = convert_image(value, self.images_as, is_mask=column == "mask")
            except InvalidValue as unfit:
                unfit.path = unfit.path or (full_path(self.source, row.path) if row.path else None)
                return row._replace(values=unfit.to_error(column, row=row.position))
            except RekordError as failure:
                return row._replace(values=failure)
        return row._replace(values=values)


def convert_image(value: bytes | PurePath, images_as: str, *, is_mask: bool = False) -> Any:
    """An image as it is if it is JPEG or PNG, else as the bytes of a PNG or JPEG; a TIFF mask as an array of ids."""
    data, path = read_image_bytes(value, "Image")
    if data.startswith(_KEPT_MAGIC):
        return value
    if data.startswith(_TIFF_MAGIC):
        if path is None:
            return value
        ((array, _),) = TiffReader(as_image=not is_mask).read(path)
        return np.asarray(array) if is_mask else encode_array(np.asarray(array), images_as)
    if is_mask:
        return value
    try:
        return GeneratedBytes(_encode(_open(data), images_as))
    except InvalidValue as unfit:
        unfit.path = path
        raise


def _open(data: bytes) -> Any:
    """The image in the orientation that its file gives."""
    heif = detect_heif_format(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Pillow.DecompressionBombWarning)
            image = Pillow.open(io.BytesIO(data), formats=_PILLOW_FORMATS) if heif is None else open_heif(data, heif)
            most = Pillow.MAX_IMAGE_PIXELS
            if most is not None and image.width * image.height > most:
                raise Pillow.DecompressionBombError(f"{image.width:,} × {image.height:,} pixels")
            image.load()
            return ImageOps.exif_transpose(image)
    except (MemoryError, InvalidValue, RekordError):
        raise
    except Exception as failure:  # there is no list of the exceptions that damaged bytes cause
        raise InvalidImage(
            "E396",
            "cannot be converted",
            expected=f"an intact image: {', '.join(_PILLOW_FORMATS)}, TIFF, AVIF or HEIC",
            found=" ".join(str(failure).split())[:60],
            do="convert it in another program, or skip it",
        ) from failure


def _encode(image: Any, images_as: str) -> bytes:
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        has_alpha = image.mode in ("PA", "RGBa", "La") or "transparency" in image.info
        image = convert_mode(image, "RGBA" if has_alpha else "RGB")
    if images_as == "jpeg":
        image = convert_mode(image, "L" if image.mode in ("L", "LA") else "RGB")
    image.info = {}
    file = io.BytesIO()
    image.save(file, images_as, **({"quality": _JPEG_QUALITY} if images_as == "jpeg" else {}))
    return file.getvalue()
