"""Folders of `.npy` files that hold one array each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rekord.arguments import as_path, check_keywords, flag
from rekord.schema import Feature
from rekord.sources.array_files import (
    ArrayFileFacts,
    ArrayFolderSource,
    ArrayForm,
    ArrayMasks,
    check_array_size,
    unreadable_array_error,
)
from rekord.sources.arrays import is_number_dtype, parse_npy_header
from rekord.sources.image_folder import class_names
from rekord.storage import raw_files
from rekord.storage.local import read_error
from rekord.storage.raw_files import RAW_FILES


@check_keywords
def npy_folder(
    path: str | os.PathLike[str],
    *,
    column: str = "x",
    masks: str | os.PathLike[str] | None = None,
    labelled: bool = True,
    classes: Sequence[str] | None = None,
) -> ArrayFolderSource:
    """The arrays of a folder of `.npy` files, one row per file, in the column `column`.

    Folders are classes and splits as in `image_folder`, unless `labelled=False`. `masks` is a folder of files with
    the same names, in the column `mask`. Files whose first dimension is rows are for `npy`. Pickled objects are
    refused.
    """
    flag("labelled", labelled)
    folder = ArrayMasks.of(masks, NpyReader())
    return ArrayFolderSource(as_path("path", path), NpyReader(column), labelled, class_names(classes), masks=folder)


@dataclass(frozen=True, slots=True)
class NpyReader:
    """Reads `.npy` files."""

    column: str = "x"

    kind = "npy_folder"
    extensions = (".npy",)

    def options(self) -> Mapping[str, Any]:
        return {"column": self.column}

    def is_wanted(self, path: str) -> bool:
        return path.lower().endswith(".npy")

    def more_columns(self) -> Mapping[str, Feature]:
        return {}

    def inspect(self, path: str) -> ArrayFileFacts:
        try:
            with raw_files.open_binary(path) as file:
                form = _read_header(path, file)[0]
                return ArrayFileFacts(form._replace(dtype=form.dtype.newbyteorder("=")))
        except OSError as failure:
            raise read_error(path, failure) from failure

    def read(self, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        try:
            with raw_files.open_binary(path) as file:
                form, by_columns, offset = _read_header(path, file)
                file.seek(offset)
                stored = np.dtype(form.dtype)
                data = file.read(int(np.prod(form.shape, dtype=object)) * stored.itemsize)
        except OSError as failure:
            raise read_error(path, failure) from failure
        array = np.frombuffer(data, form.dtype).reshape(form.shape, order="F" if by_columns else "C")
        yield array.astype(form.dtype.newbyteorder("="), copy=False), {}


def _read_header(path: str, file: Any) -> tuple[ArrayForm, bool, int]:
    """The form of the array, whether it is in Fortran order, and where its values begin."""
    parsed = parse_npy_header(file)
    size_bytes = RAW_FILES.stat(path).size_bytes
    if parsed is None:
        raise unreadable_array_error(path, "NumPy file", "no valid header")
    dtype, by_columns, shape, offset = parsed
    if not is_number_dtype(dtype):
        found = "pickled objects, which could run code" if dtype.hasobject else f"an array of {dtype}"
        raise unreadable_array_error(path, "NumPy file", found, do="save an array of numbers")
    form = ArrayForm(dtype, shape)
    check_array_size(path, form, size_bytes)
    if int(np.prod(shape, dtype=object)) * dtype.itemsize > size_bytes - offset:
        raise unreadable_array_error(path, "NumPy file", f"{size_bytes - offset:,} bytes for {dtype.name} {shape}")
    return form, by_columns, offset
