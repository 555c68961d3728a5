"""TIFF and GeoTIFF files of any dtype, compression and number of bands, as arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.arguments import as_path, check_keywords, flag
from rekord.codec.images.libraries import import_library
from rekord.errors import RekordError
from rekord.schema import Feature, Int64, Tensor
from rekord.sources.array_files import (
    ArrayFileFacts,
    ArrayFolderSource,
    ArrayForm,
    ArrayMasks,
    ImagesAs,
    check_array_size,
    check_coded_size,
    check_images_as,
    open_for_library,
    unreadable_array_error,
)
from rekord.sources.image_folder import class_names
from rekord.storage.raw_files import RAW_FILES

TIFF_EXTENSIONS = (".tif", ".tiff", ".btf", ".tf8", ".gtiff")
_MINISWHITE, _PALETTE, _CMYK = 0, 3, 5
_IMAGE_COMPRESSIONS = (6, 7, 33_003, 33_004, 33_005, 33_007, 34_712, 34_892)  # JPEG and JPEG 2000
_EPSG_KEYS = ("ProjectedCSTypeGeoKey", "GeographicTypeGeoKey")
_USER_DEFINED = 32_767  # a coordinate system without a number
_NODATA_TAG = 42_113  # of GDAL


@check_keywords
def tiff(
    path: str | os.PathLike[str],
    *,
    masks: str | os.PathLike[str] | None = None,
    pages: bool = False,
    georeference: bool = False,
    labelled: bool = True,
    classes: Sequence[str] | None = None,
    images_as: ImagesAs | None = None,
) -> ArrayFolderSource:
    """TIFF and GeoTIFF files (a file, a folder or a pattern), as arrays in the column `image`.

    An array has the dtype and the shape of the file, with its bands last. A file of several pages of one size has
    them as its first dimension; with `pages`, each is a row. Overviews and thumbnails are not read. Folders are
    classes and splits as in `image_folder`, unless `labelled=False`.

    `georeference` adds the columns `crs` (the EPSG code), `transform` (a to f in x = a · column + b · row + c and
    y = d · column + e · row + f) and `nodata`. `masks` is a folder of TIFF files with the same names, in the column
    `mask`: arrays of class ids, of the same height and width. `images_as` ("png" or "jpeg") stores encoded images.
    """
    for name, value in (("pages", pages), ("georeference", georeference), ("labelled", labelled)):
        flag(name, value)
    format = check_images_as(images_as)
    reader = TiffReader(pages=pages, georeference=georeference, as_image=format is not None)
    folder = ArrayMasks.of(masks, TiffReader(), pages=pages, images_as=images_as is not None)
    return ArrayFolderSource(as_path("path", path), reader, labelled, class_names(classes), format, folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffReader:
    """Reads TIFF files with tifffile and imagecodecs."""

    pages: bool = False
    georeference: bool = False
    as_image: bool = False  # colours of a palette instead of its indices, and white as the largest value

    kind = "tiff"
    column = "image"
    extensions = TIFF_EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        return {"pages": self.pages, "georeference": self.georeference}

    def is_wanted(self, path: str) -> bool:
        return path.lower().endswith(TIFF_EXTENSIONS)

    def more_columns(self) -> Mapping[str, Feature]:
        if not self.georeference:
            return {}
        return {
            "crs": Int64(optional=True),
            "transform": Tensor("float64", (6,), optional=True),
            "nodata": Tensor("float64", (), optional=True),
        }

    def inspect(self, path: str) -> ArrayFileFacts:
        with _open_tiff(path) as (_, series):
            form, rows = self._form(series, path)
            unused = []
            page = series.keyframe
            if not self.georeference and _read_georeference(page) != (None, None):
                unused.append("georeferencing: coordinates of GeoTIFF; georeference=True keeps them")
            return ArrayFileFacts(form, rows, tuple(unused))

    def read(self, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        with _open_tiff(path) as (file, series):
            _, rows = self._form(series, path)
            _check_segments(file, series, path)
            more = self._georeference(series.keyframe) if self.georeference else {}
            if not self.pages or rows == 1 == len(series.pages):
                array = file.asarray(series=0, maxworkers=1)
                yield self._finish(array.reshape(series.shape), series.axes, series.keyframe), more
                return
            axes = series.axes.lstrip("".join(set(series.axes) - set("SYX")))
            for page in series.pages:
                array = (
                    page.asarray(maxworkers=1) if page is not None else np.zeros(series.keyframe.shape, series.dtype)
                )
                yield self._finish(array, axes, series.keyframe), more

    def _form(self, series: Any, path: str) -> tuple[ArrayForm, int]:
        """The form of each row, and the number of rows."""
        keyframe = series.keyframe
        if series.dtype is None or keyframe.dtype is None or not series.shape:
            found = f"{keyframe.bitspersample} bits per sample in sample format {keyframe.sampleformat}"
            raise unreadable_array_error(path, "TIFF file", f"a dtype that NumPy does not have: {found}")
        dtype = np.dtype(series.dtype).newbyteorder("=")
        size_bytes = RAW_FILES.stat(path).size_bytes
        if self.pages and len(series.pages) > 1:
            form, rows = ArrayForm(dtype, tuple(keyframe.shape)), len(series.pages)
            axes = keyframe.axes
        else:
            form, rows, axes = ArrayForm(dtype, tuple(series.shape)), 1, series.axes
        check_array_size(path, form, size_bytes, rows=rows)
        shape = form.shape
        if _has_bands_first(axes):
            at = axes.index("S")
            shape = (*shape[:at], *shape[at + 1 :], shape[at])
        if self.as_image and keyframe.photometric == _PALETTE and keyframe.colormap is not None:
            return ArrayForm(np.dtype(np.uint8), (*shape, 3)), rows
        return ArrayForm(dtype, shape), rows

    def _finish(self, array: Any, axes: str, page: Any) -> Any:
        if _has_bands_first(axes):
            array = np.moveaxis(array, axes.index("S"), -1)
        if array.dtype.byteorder not in "=|":
            array = array.astype(array.dtype.newbyteorder("="))
        if not self.as_image:
            return array
        if page.photometric == _PALETTE and page.colormap is not None:
            return np.moveaxis((page.colormap >> 8).astype(np.uint8)[:, array], 0, -1)
        if page.photometric == _MINISWHITE and array.dtype.kind in "ub":
            return ~array
        return array

    def _georeference(self, page: Any) -> dict[str, Any]:
        crs, transform = _read_georeference(page)
        return {"crs": crs, "transform": transform, "nodata": _read_nodata(page)}


def _check_segments(file: Any, series: Any, path: str) -> None:
    """Refuse tiles and strips that are images of another size than the file declares."""
    page = series.keyframe
    if int(page.compression) not in _IMAGE_COMPRESSIONS:
        return
    height, width = (page.tilelength, page.tilewidth) if page.is_tiled else (page.rowsperstrip, page.imagewidth)
    height = min(int(height), max(int(page.imagelength), int(page.tilelength)))
    for one in series.pages:
        if one is None:
            continue
        for offset, size in zip(one.dataoffsets, one.databytecounts, strict=False):
            if size:
                file.filehandle.seek(offset)
                check_coded_size(path, "TIFF file", file.filehandle.read(size), height, int(width))


def _has_bands_first(axes: str) -> bool:
    """Whether the bands of an image come before its rows and columns."""
    return "S" in axes and not axes.endswith("S")


@contextmanager
def _open_tiff(path: str) -> Iterator[tuple[Any, Any]]:
    """A TIFF file and its first series of pages, which is the image itself."""
    tifffile = import_library("tifffile", "TIFF files")
    try:
        with open_for_library(path) as given, tifffile.TiffFile(given, name=path) as file:
            if not file.pages or not file.series:
                raise unreadable_array_error(path, "TIFF file", "no pages")
            yield file, file.series[0]
    except (RekordError, MemoryError, GeneratorExit):
        raise
    except ImportError as failure:
        raise unreadable_array_error(
            path, "TIFF file", failure, do="pip install 'rekord[geo]', for compressed TIFF files"
        ) from failure
    except Exception as failure:  # there is no list of the exceptions that damaged bytes cause
        missing = "imagecodecs" in str(failure)
        do = "pip install 'rekord[geo]', for compressed TIFF files" if missing else None
        raise unreadable_array_error(path, "TIFF file", failure, do=do) from failure


def _read_georeference(page: Any) -> tuple[int | None, Any]:
    """The EPSG code, and the six coefficients from pixels to coordinates; None if the file does not have them."""
    tags = page.geotiff_tags or {}
    codes = [int(tags[name]) for name in _EPSG_KEYS if name in tags]
    crs = next((code for code in codes if 0 < code < _USER_DEFINED), None)
    scale, tie, matrix = (tags.get(name) for name in ("ModelPixelScale", "ModelTiepoint", "ModelTransformation"))
    if matrix is not None:
        values = np.asarray(matrix, np.float64).reshape(4, 4)
        return crs, values[:2, [0, 1, 3]].reshape(6)
    if scale is None or tie is None or len(scale) < 2 or len(np.ravel(tie)) < 5:
        return crs, None
    column, row, _, x, y = (float(one) for one in np.ravel(tie)[:5])
    width, height = float(scale[0]), float(scale[1])
    return crs, np.array([width, 0.0, x - column * width, 0.0, -height, y + row * height])


def _read_nodata(page: Any) -> Any:
    tag = page.tags.get(_NODATA_TAG)
    try:
        return None if tag is None else np.float64(str(tag.value).strip().strip("\0"))
    except ValueError:
        return None
