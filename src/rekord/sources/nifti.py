"""NIfTI volumes (`.nii`, `.nii.gz`) as arrays."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.arguments import as_path, check_keywords, flag
from rekord.codec.images.libraries import import_library
from rekord.errors import RekordError
from rekord.schema import Feature, Tensor
from rekord.sources.array_files import (
    ArrayFileFacts,
    ArrayFolderSource,
    ArrayForm,
    ArrayMasks,
    check_array_size,
    open_for_library,
    unreadable_array_error,
)
from rekord.sources.image_folder import class_names
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES

NIFTI_EXTENSIONS = (".nii", ".nii.gz")
_HEADER_SIZES = (348, 540)  # of NIfTI-1 and NIfTI-2
_VOX_OFFSETS = {348: ("f", 108), 540: ("q", 168)}
_MAX_HEADER_BYTES = 64 << 20


@check_keywords
def nifti(
    path: str | os.PathLike[str],
    *,
    masks: str | os.PathLike[str] | None = None,
    affine: bool = False,
    labelled: bool = True,
    classes: Sequence[str] | None = None,
) -> ArrayFolderSource:
    """NIfTI volumes (a file, a folder or a pattern), as arrays in the column `volume`.

    Volumes with a slope or an intercept are scaled, and are float32; others have the dtype of the file. `affine` adds
    the matrix from voxels to millimetres, of shape (4, 4). `masks` is a folder of volumes with the same names, in the
    column `mask`. Folders are classes and splits as in `image_folder`,
    unless `labelled=False`.
    """
    flag("affine", affine)
    flag("labelled", labelled)
    folder = ArrayMasks.of(masks, NiftiReader())
    return ArrayFolderSource(as_path("path", path), NiftiReader(affine), labelled, class_names(classes), masks=folder)


@dataclass(frozen=True, slots=True)
class NiftiReader:
    """Reads NIfTI files with nibabel."""

    affine: bool = False

    kind = "nifti"
    column = "volume"
    extensions = NIFTI_EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        return {"affine": self.affine}

    def is_wanted(self, path: str) -> bool:
        return path.lower().endswith(NIFTI_EXTENSIONS)

    def more_columns(self) -> Mapping[str, Feature]:
        return {"affine": Tensor("float64", (4, 4))} if self.affine else {}

    def inspect(self, path: str) -> ArrayFileFacts:
        with _open_nifti(path) as image:
            return ArrayFileFacts(_inspect_form(path, image))

    def read(self, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        with _open_nifti(path) as image:
            form = _inspect_form(path, image)
            if form.dtype == np.float32 and _is_scaled(image):
                array = image.get_fdata(dtype=np.float32, caching="unchanged")
            else:
                array = np.asarray(image.dataobj.get_unscaled()).astype(form.dtype, copy=False)
            yield array, {"affine": np.asarray(image.affine, np.float64)} if self.affine else {}


def _inspect_form(path: str, image: Any) -> ArrayForm:
    dtype = np.dtype(image.get_data_dtype())
    if dtype.kind not in "biufc" or dtype.itemsize > 16 or (dtype.kind == "f" and dtype.itemsize > 8):
        raise unreadable_array_error(path, "NIfTI file", f"voxels of dtype {dtype}, which is not a number")
    stored = ArrayForm(dtype.newbyteorder("="), tuple([int(size) for size in image.shape]))
    check_array_size(path, stored, RAW_FILES.stat(path).size_bytes)
    form = ArrayForm(np.dtype(np.float32), stored.shape) if _is_scaled(image) else stored
    check_array_size(path, form, max(RAW_FILES.stat(path).size_bytes, 1) * 8)
    return form


def _is_scaled(image: Any) -> bool:
    slope, intercept = image.dataobj.slope, image.dataobj.inter
    return bool((slope, intercept) != (1, 0))


@contextmanager
def _open_nifti(path: str) -> Iterator[Any]:
    nibabel = import_library("nibabel", "NIfTI files")
    try:
        header_bytes = _check_offset(path)
        with open_for_library(path) as file:
            # Not mapped: a file that is truncated meanwhile would kill the process.
            if isinstance(file, str):
                yield nibabel.load(file, mmap=False)
                return
            form = nibabel.Nifti1Image if header_bytes == _HEADER_SIZES[0] else nibabel.Nifti2Image
            stream = gzip.GzipFile(fileobj=file) if path.lower().endswith(".gz") else file
            yield form.from_stream(stream)
    except (RekordError, MemoryError, GeneratorExit):
        raise
    except Exception as failure:  # there is no list of the exceptions that damaged bytes cause
        raise unreadable_array_error(path, "NIfTI file", failure) from failure


def _check_offset(path: str) -> int:
    """The size of the header. One that puts voxels so far away that reading up to them takes too much is refused."""
    with raw_files.open_binary(path) as file:
        front = file.read(2)
        file.seek(0)
        stream: Any = gzip.GzipFile(fileobj=file) if front == b"\x1f\x8b" else file
        try:
            head = stream.read(_HEADER_SIZES[-1])
        except (EOFError, zlib.error, gzip.BadGzipFile) as failure:
            raise unreadable_array_error(path, "NIfTI file", failure) from failure
    for order in "<>":
        size = struct.unpack(order + "i", head[:4])[0] if len(head) >= 4 else 0
        if size in _HEADER_SIZES and len(head) >= size:
            kind, at = _VOX_OFFSETS[size]
            offset = struct.unpack_from(order + kind, head, at)[0]
            if not 0 <= offset <= _MAX_HEADER_BYTES:
                raise unreadable_array_error(path, "NIfTI file", f"voxels that start at byte {offset:g}")
            return size
    raise unreadable_array_error(path, "NIfTI file", f"{len(head):,} bytes without a NIfTI header")
