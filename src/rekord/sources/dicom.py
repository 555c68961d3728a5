"""DICOM files as arrays, without the fields that identify a patient."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.arguments import as_path, check_keywords, flag, invalid, optional_names
from rekord.codec.images.libraries import import_library
from rekord.errors import RekordError
from rekord.schema import Feature, Float32, Int64, Text
from rekord.sources.array_files import (
    ArrayFileFacts,
    ArrayFolderSource,
    ArrayForm,
    ImagesAs,
    check_array_size,
    check_coded_size,
    check_images_as,
    open_for_library,
    unreadable_array_error,
)
from rekord.sources.image_folder import class_names
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES

DICOM_EXTENSIONS = (".dcm", ".dicom", ".dic")
_MAGIC_OFFSET = 128
_MAGIC = b"DICM"
_DEFLATED_SYNTAX = b"1.2.840.10008.1.2.1.99"
_META_BYTES = 1 << 16
_READ_BYTES = 1 << 20
_MAX_INFLATED_BYTES = 1 << 30

_TEXTS = (
    *("Modality", "BodyPartExamined", "ViewPosition", "Laterality", "ImageLaterality", "PatientPosition"),
    *("PatientOrientation", "PhotometricInterpretation", "Manufacturer", "ManufacturerModelName"),
    *("ConvolutionKernel", "ScanningSequence", "SequenceVariant", "ContrastBolusAgent", "ImageType", "Units"),
)
_NUMBERS = (
    *("SliceThickness", "SpacingBetweenSlices", "SliceLocation", "KVP", "ExposureTime", "XRayTubeCurrent"),
    *("RepetitionTime", "EchoTime", "InversionTime", "FlipAngle", "MagneticFieldStrength", "RescaleSlope"),
    *("RescaleIntercept", "GantryDetectorTilt", "FrameTime", "BodyPartThickness", "CompressionForce"),
)
_LISTS = {
    "PixelSpacing": 2, "ImagerPixelSpacing": 2, "ImagePositionPatient": 3, "ImageOrientationPatient": 6,
    "WindowCenter": None, "WindowWidth": None,
}  # fmt: skip
_INTEGERS = ("InstanceNumber", "SeriesNumber", "AcquisitionNumber", "BitsStored", "NumberOfFrames")
TECHNICAL_FIELDS = (*_TEXTS, *_NUMBERS, *_LISTS, *_INTEGERS)
"""The fields that `metadata` may keep. None of them names or dates a patient, a physician or an institution."""

_MONOCHROME = ("MONOCHROME1", "MONOCHROME2")


@check_keywords
def dicom(
    path: str | os.PathLike[str],
    *,
    rescale: bool = False,
    invert: bool = True,
    pages: bool = False,
    metadata: Sequence[str] = (),
    labelled: bool = True,
    classes: Sequence[str] | None = None,
    images_as: ImagesAs | None = None,
) -> ArrayFolderSource:
    """DICOM files (a file, a folder or a pattern), as arrays in the column `image`.

    Arrays have the stored values and their dtype; colours are RGB. `rescale` applies the slope and intercept of the
    file (Hounsfield units for CT), and gives float32. In MONOCHROME1, where small values are bright, values are
    inverted so that all images agree, unless `invert=False` or they are rescaled. A file of several frames has them
    as its first dimension; with `pages`, each is a row. Files are found by extension, or without one by content.

    No field of the header is kept, except those in `metadata`: technical ones such as "Modality" and "PixelSpacing".
    Names, dates and identifiers of patients cannot be kept, but a file name may contain them. Folders are classes and
    splits as in `image_folder`, unless `labelled=False`. `images_as` ("png" or "jpeg") stores encoded images.
    """
    flags = {"rescale": rescale, "invert": invert, "pages": pages, "labelled": labelled}
    for name, value in flags.items():
        flag(name, value)
    fields = optional_names("metadata", metadata) or ()
    for name in fields:
        if name not in TECHNICAL_FIELDS:
            expected = f"technical fields: {', '.join(TECHNICAL_FIELDS[:3])}, PixelSpacing, …"
            raise invalid("metadata", name, expected, 'metadata=["Modality", "PixelSpacing"]')
    format = check_images_as(images_as)
    reader = DicomReader(rescale=rescale, invert=invert, pages=pages, metadata=fields)
    return ArrayFolderSource(as_path("path", path), reader, labelled, class_names(classes), format)


@dataclass(frozen=True, slots=True, kw_only=True)
class DicomReader:
    """Reads DICOM files with pydicom."""

    rescale: bool = False
    invert: bool = True
    pages: bool = False
    metadata: tuple[str, ...] = ()

    kind = "dicom"
    column = "image"
    extensions = DICOM_EXTENSIONS

    def options(self) -> Mapping[str, Any]:
        fields = {"rescale": self.rescale, "invert": self.invert, "pages": self.pages}
        return {**fields, "metadata": list(self.metadata)}

    def is_wanted(self, path: str) -> bool:
        name = os.path.basename(path).lower()
        if name.endswith(DICOM_EXTENSIONS):
            return True
        # Scanners write names such as IM000001 or 1.2.840.113619.
        extension = os.path.splitext(name)[1].lstrip(".")
        return (not extension or extension.isdigit()) and name != "dicomdir" and has_dicom_magic(path)

    def more_columns(self) -> Mapping[str, Feature]:
        return {name: _field_feature(name) for name in self.metadata}

    def inspect(self, path: str) -> ArrayFileFacts:
        with _open_dicom(path, pixels=False) as dataset:
            form, rows = self._form(dataset, path)
            remarks = []
            if self._inverts(dataset):
                remarks.append("images with MONOCHROME1 are inverted: large values are bright in all of them")
            return ArrayFileFacts(form, rows, remarks=tuple(remarks))

    def read(self, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        with _open_dicom(path, pixels=True) as dataset:
            form, rows = self._form(dataset, path)
            more = {name: _field_value(dataset, name) for name in self.metadata}
            _check_frames(dataset, path)
            pixels = import_library("pydicom.pixels", "DICOM files")
            frames = pixels.iter_pixels(dataset) if rows > 1 else iter([dataset.pixel_array])
            for array in frames:
                yield self._finish(array, dataset, form), more

    def _form(self, dataset: Any, path: str) -> tuple[ArrayForm, int]:
        """The form of each row, and the number of rows."""
        if any(name not in dataset for name in ("Rows", "Columns", "BitsAllocated")):
            raise unreadable_array_error(path, "DICOM file", "no image: no Rows, Columns and BitsAllocated")
        frames = int(dataset.get("NumberOfFrames", 1) or 1)
        samples = int(dataset.get("SamplesPerPixel", 1) or 1)
        palette = dataset.get("PhotometricInterpretation") == "PALETTE COLOR"
        stored_bytes = 1 if dataset.BitsAllocated <= 8 else int(dataset.BitsAllocated) // 8
        size = (int(dataset.Rows), int(dataset.Columns), *((3,) if samples == 3 or palette else ()))
        shape = (frames, *size) if frames > 1 and not self.pages else size
        dtype: np.dtype[Any]
        if self.rescale:
            dtype = np.dtype(np.float32)
        elif "FloatPixelData" in dataset or "DoubleFloatPixelData" in dataset:
            dtype = np.dtype(np.float32 if "FloatPixelData" in dataset else np.float64)
        else:
            dtype = np.dtype(f"{'i' if dataset.get('PixelRepresentation') == 1 else 'u'}{stored_bytes}")
        if palette:
            dtype = np.dtype(np.uint8 if _palette_bits(dataset) <= 8 else np.uint16)
        form, rows = ArrayForm(dtype, shape), frames if self.pages else 1
        check_array_size(path, form, RAW_FILES.stat(path).size_bytes, rows=rows)
        return form, rows

    def _inverts(self, dataset: Any) -> bool:
        is_first = dataset.get("PhotometricInterpretation") == "MONOCHROME1"
        return bool(self.invert and not self.rescale and is_first)

    def _finish(self, array: Any, dataset: Any, form: ArrayForm) -> Any:
        pixels = import_library("pydicom.pixels", "DICOM files")
        if dataset.get("PhotometricInterpretation") == "PALETTE COLOR":
            array = pixels.apply_color_lut(array, dataset)[..., :3]
        elif self.rescale:
            array = pixels.apply_rescale(array, dataset)
        elif self._inverts(dataset) and array.dtype.kind in "iu":
            bits = int(dataset.get("BitsStored", array.dtype.itemsize * 8))
            # The largest value and the smallest one of the stored bits change places.
            array = ((1 << bits) - 1 - array if array.dtype.kind == "u" else -1 - array).astype(array.dtype)
        return np.ascontiguousarray(array).astype(form.dtype, copy=False)


def has_dicom_magic(path: str) -> bool:
    """Whether a file has the mark of DICOM after its preamble."""
    try:
        with raw_files.open_binary(path) as file:
            file.seek(_MAGIC_OFFSET)
            return file.read(4) == _MAGIC
    except OSError:
        return False


def _check_frames(dataset: Any, path: str) -> None:
    """Refuse compressed frames of another size than the file declares."""
    syntax = getattr(dataset.file_meta, "TransferSyntaxUID", None)
    if syntax is None or not syntax.is_encapsulated or "PixelData" not in dataset:
        return
    encaps = import_library("pydicom.encaps", "DICOM files")
    frames = int(dataset.get("NumberOfFrames", 1) or 1)
    for frame in encaps.generate_frames(dataset.PixelData, number_of_frames=frames):
        check_coded_size(path, "DICOM file", frame, int(dataset.Rows), int(dataset.Columns))


def _palette_bits(dataset: Any) -> int:
    descriptor = dataset.get("RedPaletteColorLookupTableDescriptor")
    return int(descriptor[2]) if descriptor is not None and len(descriptor) == 3 else 16


@contextmanager
def _open_dicom(path: str, *, pixels: bool) -> Iterator[Any]:
    pydicom = import_library("pydicom", "DICOM files")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of values that do not follow the standard, which are not kept
        try:
            _check_deflated(path)
            with open_for_library(path) as file:
                dataset = pydicom.dcmread(file, stop_before_pixels=not pixels, force=False)
            yield dataset
        except (RekordError, MemoryError, GeneratorExit):
            raise
        except Exception as failure:  # there is no list of the exceptions that damaged bytes cause
            missing = "missing dependencies" in str(failure) or "plugins are missing" in str(failure)
            do = "pip install 'rekord[medical]', for compressed DICOM files" if missing else None
            raise unreadable_array_error(path, "DICOM file", failure, do=do) from failure


def _check_deflated(path: str) -> None:
    """Refuse a deflated file that would inflate to more than a record can hold: pydicom inflates it at once."""
    with raw_files.open_binary(path) as file:
        head = file.read(_META_BYTES)
        start = _find_deflated_start(head)
        if start is None:
            return
        file.seek(start)
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        inflated_bytes = 0
        data = file.read(_READ_BYTES)
        while data and not inflate.eof:
            inflated_bytes += len(inflate.decompress(data, _READ_BYTES))
            data = inflate.unconsumed_tail or file.read(_READ_BYTES)
            if inflated_bytes > _MAX_INFLATED_BYTES:
                raise unreadable_array_error(path, "DICOM file", f"more than {_MAX_INFLATED_BYTES:,} bytes, deflated")


def _find_deflated_start(head: bytes) -> int | None:
    """Where the deflated part of a file begins; None if it is not deflated."""
    at = _MAGIC_OFFSET + len(_MAGIC)
    # The first element of the header is its length: group 2, element 0, UL, 4 bytes.
    if head[at - 4 : at] != _MAGIC or head[at : at + 8] != b"\x02\0\0\0UL\x04\0":
        return None
    end = at + 12 + int.from_bytes(head[at + 8 : at + 12], "little")
    return end if _DEFLATED_SYNTAX in head[at:end] else None


def _field_feature(name: str) -> Feature:
    if name in _TEXTS:
        return Text(optional=True)
    if name in _INTEGERS:
        return Int64(optional=True)
    return Float32(shape=(_LISTS[name],), optional=True) if name in _LISTS else Float32(optional=True)


def _field_value(dataset: Any, name: str) -> Any:
    """A field in the type of its column; None if it is missing, empty or not what its name says."""
    value = dataset.get(name)
    if value is None or value == "":
        return None
    try:
        if name in _TEXTS:
            parts = [value] if isinstance(value, str) else list(value)
            return "\\".join(map(str, parts)) or None
        if name in _INTEGERS:
            return int(value)
        if name not in _LISTS:
            return float(value)
        numbers = [float(one) for one in (value if hasattr(value, "__iter__") else [value])]
        return numbers if _LISTS[name] in (None, len(numbers)) and numbers else None
    except (TypeError, ValueError, OverflowError):
        return None
