"""Folders of files that hold arrays: TIFF, DICOM, NIfTI and `.npy`, with class folders and splits as for images."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from rekord.arguments import is_utf8_encodable, one_of
from rekord.codec.images.inspect import GeneratedBytes, encode_png
from rekord.codec.images.store import store_image
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema import Feature, Image, Label, Schema, Tensor, Text
from rekord.sources.base import (
    PartItem,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SourceRow,
    UnusedInput,
    disk_failure_error,
    list_files,
)
from rekord.sources.image_folder import (
    SPLIT_NAMES,
    FileTree,
    ListingSource,
    SourceListing,
    find_files,
    fingerprint,
    join_path,
    list_path_items,
    name_error,
    parse_label_and_split,
    split_of_folder,
    to_printable_path,
)
from rekord.storage import raw_files

ImagesAs: TypeAlias = Literal["png", "jpeg"]
JPEG_QUALITY = 95
_MAX_ARRAY_BYTES = (1 << 31) - (1 << 20)  # of a record, and some room for its other columns
_FREE_BYTES = 256 << 20
_MAX_RATIO = 1032  # deflate cannot do better
_MAX_INSPECTED = 1000  # files, spread over the whole folder


class ArrayForm(NamedTuple):
    """The dtype and shape of an array, from the header of its file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class ArrayFileFacts(NamedTuple):
    """What the headers of a file say."""

    form: ArrayForm  # of each row
    rows: int = 1
    unused: tuple[str, ...] = ()  # what the file also holds, and an option would keep
    remarks: tuple[str, ...] = ()  # what is changed when it is read


class ArrayReader(Protocol):
    """Reads the arrays of files of one kind. It is frozen, and pickled to other processes."""

    @property
    def kind(self) -> str:
        """The name of its source in `rk.sources`."""

    @property
    def column(self) -> str:
        """The column of the arrays."""

    @property
    def extensions(self) -> tuple[str, ...]: ...

    def options(self) -> Mapping[str, Any]:
        """The options as JSON."""

    def is_wanted(self, path: str) -> bool:
        """Whether a file of a folder is one of them."""

    def more_columns(self) -> Mapping[str, Feature]:
        """The columns besides the array."""

    def inspect(self, path: str) -> ArrayFileFacts:
        """The headers of a file. Raises RekordError."""

    def read(self, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """The array of each row, and the values of the other columns. Raises RekordError."""


@contextmanager
def open_for_library(path: str) -> Iterator[Any]:
    """What a library opens: the path of a file, or the contents of a remote one or of a member of an archive."""
    if raw_files.is_plain(path):
        yield path
    else:
        with raw_files.open_seekable(path) as file:
            yield file


def check_array_size(path: str, form: ArrayForm, file_bytes: int, *, rows: int = 1) -> None:
    """Raise E393 for an array that no record can hold, or that its file cannot hold either."""
    row_bytes = math.prod(form.shape) * form.dtype.itemsize
    total_bytes = row_bytes * rows
    if row_bytes <= _MAX_ARRAY_BYTES and total_bytes <= max(_FREE_BYTES, file_bytes * _MAX_RATIO):
        return
    too_large = row_bytes > _MAX_ARRAY_BYTES
    raise error(
        "E393",
        "array is larger than a record can be" if too_large else "array is larger than its file can hold",
        location=Location(path=path),
        expected=f"at most {_MAX_ARRAY_BYTES if too_large else max(_FREE_BYTES, file_bytes * _MAX_RATIO):,} bytes",
        found=f"{form.dtype.name} {form.shape}: {row_bytes if too_large else total_bytes:,} bytes"[:120],
        do="split it into tiles" if too_large else "check the file: its header may be damaged",
    )


def unreadable_array_error(path: str, kind: str, failure: Exception | str, *, do: str | None = None) -> RekordError:
    """The error for a file whose library cannot read it, or for the disk if that failed."""
    if isinstance(failure, Exception) and (broken := disk_failure_error(path, failure)) is not None:
        return broken
    found = failure if isinstance(failure, str) else f"{type(failure).__name__}: {failure}"
    return error(
        "E394",
        f"{kind} cannot be read",
        location=Location(path=path),
        expected=f"an intact {kind}, in a form that its library reads",
        found=" ".join(found.split())[:120],
        do=do or "open it in another program, or copy it again from its origin",
    )


def encode_array(array: np.ndarray[Any, Any], images_as: str) -> bytes:
    """An array as the bytes of a PNG or JPEG; raises InvalidValue if that would change its values."""
    channels = 1 if array.ndim == 2 else array.shape[2] if array.ndim == 3 else 0
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    wide = array.dtype == np.uint16 and images_as == "png"
    allowed = (1, 2, 3, 4) if images_as == "png" else (1, 3)
    if channels not in allowed or not array.size or not (array.dtype == np.uint8 or wide):
        raise InvalidValue(
            "E396",
            f"cannot be converted to {images_as.upper()}",
            expected=f"uint8{' or uint16' if images_as == 'png' else ''} of shape (height, width), or with "
            f"{', '.join(map(str, allowed))} channels last",
            found=f"{array.dtype.name} {array.shape}"[:60],
            do="store it as an array: leave images_as= out",
        )
    pixels = array.reshape(*array.shape[:2], channels)
    if images_as == "png":
        return GeneratedBytes(encode_png(pixels))
    return GeneratedBytes(store_image(pixels, Image(format="jpeg", quality=JPEG_QUALITY)))


def check_images_as(images_as: object) -> ImagesAs | None:
    """The argument `images_as` of a source."""
    if images_as is None:
        return None
    name: Any = one_of("images_as", "jpeg" if images_as == "jpg" else images_as, ("png", "jpeg"))
    return name  # type: ignore[no-any-return]


@dataclass(frozen=True)
class ArrayFolderSource(ListingSource):
    """The arrays of a file, of a folder or of the files that match a pattern."""

    path: str
    reader: ArrayReader
    labelled: bool = True
    classes: tuple[str, ...] | None = None
    images_as: ImagesAs | None = None

    @property
    def kind(self) -> str:
        return self.reader.kind

    @property
    def root(self) -> str:
        return self.path if raw_files.isdir(self.path) else list_files(self.path, ()).root

    def options(self) -> Mapping[str, Any]:
        own = {"labelled": self.labelled, "classes": None if self.classes is None else list(self.classes)}
        return {**self.reader.options(), **own, "images_as": self.images_as}

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        (root, has_splits), paths = part.content
        for path in paths:
            if not is_utf8_encodable(path):
                yield SourceRow(to_printable_path(path), 0, name_error(root, path))
                continue
            common: dict[str, Any] = {"filename": path}
            place = parse_label_and_split(path, has_splits)
            if self.labelled and place.label is not None:
                common["label"] = place.label
            if place.split is not None:
                common["split"] = place.split
            yield from self._read_file(os.path.join(root, *path.split("/")), path, common)

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The files of a part."""
        return list_path_items(part)

    def shared_context(self) -> Any:
        """Whether the first folder of a path is a split. The root is not part of it: a folder may be moved."""
        _, has_splits = self._last_listing().context
        return has_splits

    def _read_file(self, full: str, path: str, common: Mapping[str, Any]) -> Iterator[SourceRow]:
        position = 0
        try:
            for array, more in self.reader.read(full):
                value = array if self.images_as is None else encode_array(array, self.images_as)
                yield SourceRow(path, position, {self.reader.column: value, **more, **common})
                position += 1
        except InvalidValue as unfit:
            unfit.path = full
            yield SourceRow(path, position, unfit.to_error(self.reader.column, row=position))
        except RekordError as failure:
            yield SourceRow(path, position, failure)

    def _list(self) -> SourceListing:
        tree, root = self._find_files()
        if not tree.files:
            raise error(
                "X527",
                f"folder has no {self.kind} files",
                location=Location(path=join_path(root, "")),
                expected=f"files that end in {', '.join(self.reader.extensions)}, at any depth",
                found=f"{tree.ignored:,} other files" if tree.ignored else "no files",
                do="pass the folder that contains them, or unpack them first",
            )
        files = tree.files
        tops = {file.path.partition("/")[0] for file in files if "/" in file.path}
        has_splits = bool(tops) and all(split_of_folder(top) is not None for top in tops)
        places = [parse_label_and_split(file.path, has_splits) for file in files if is_utf8_encodable(file.path)]
        labels = {place.label for place in places if place.label is not None} if self.labelled else set()
        splits = {place.split for place in places}
        classes = self.classes or tuple(sorted(labels, key=os.fsencode)) or None
        survey = self._inspect(root, files)
        feature = self._feature(survey)
        columns: dict[str, Feature] = {self.reader.column: feature}
        columns |= {**self.reader.more_columns(), "filename": Text()}
        if labels and classes is not None:
            columns["label"] = Label(classes, optional=any(place.label is None for place in places))
        # The layouts of images declare 8 bits, and no other columns.
        is_plain = isinstance(feature, Image) and feature.bits is None and not self.reader.more_columns()
        facts = SourceFacts(
            layout="table" if not is_plain else "classification" if labels else "images",
            schema=None if is_plain else Schema(columns),
            classes=classes,
            rows=survey.rows,
            source_bytes=sum([file.size_bytes for file in files]),
            splits=tuple([name for name in SPLIT_NAMES if name in splits]) or None,
            files=fingerprint(files),
            unused=tuple([UnusedInput("column", name, reason) for name, reason in survey.unused]),
            guesses=survey.guesses,
            extra={"ignored_files": tree.ignored, "labels": bool(labels)},
        )
        return SourceListing(facts, [(file.path, file.size_bytes) for file in files], (root, has_splits))

    def _find_files(self) -> tuple[FileTree, str]:
        if raw_files.isdir(self.path):
            return find_files(self.path, self.reader.is_wanted), self.path
        listing = list_files(self.path, self.reader.extensions)
        return FileTree(listing.files, 0), listing.root

    def _feature(self, survey: _Survey) -> Feature:
        if self.images_as is not None:
            return Image(format=self.images_as, bits=16 if survey.dtype == np.uint16 else None)
        return Tensor(survey.dtype, survey.shape)

    def _inspect(self, root: str, files: Sequence[SourceFile]) -> _Survey:
        """The form of the arrays, from the headers of all files, or of some if there are many."""
        step = -(-len(files) // _MAX_INSPECTED)
        chosen = files[::step]
        found: list[tuple[str, ArrayFileFacts]] = []
        failure: RekordError | None = None
        for file in chosen:
            full = join_path(root, file.path)
            try:
                found.append((full, self.reader.inspect(os.path.join(root, *file.path.split("/")))))
            except RekordError as refused:
                if refused.code == "U602":
                    raise
                failure = failure or refused  # its row reports it
        if not found:
            assert failure is not None
            raise failure
        return _Survey.of(self, found, len(files), is_complete=len(found) == len(files))


@dataclass(frozen=True, slots=True)
class _Survey:
    """The form of the arrays of all files."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    rows: int | None
    is_complete: bool
    unused: tuple[tuple[str, str], ...]
    guesses: tuple[SourceGuess, ...]

    @classmethod
    def of(
        cls, source: ArrayFolderSource, found: Sequence[tuple[str, ArrayFileFacts]], files: int, *, is_complete: bool
    ) -> _Survey:
        path, facts = found[0]
        first = facts.form
        shape: list[int | None] = list(first.shape)
        for other, one in found[1:] if source.images_as is None else ():
            if one.form.dtype != first.dtype or len(one.form.shape) != len(shape):
                raise _inconsistent_error(other, one.form, path, first, source)
            shape = [a if a == b else None for a, b in zip(shape, one.form.shape, strict=True)]
        unused = {what: 0 for _, one in found for what in one.unused}
        remarks = {what: None for _, one in found for what in one.remarks}
        guesses = [SourceGuess(None, what) for what in remarks]
        if files > len(found) and files > _MAX_INSPECTED and source.images_as is None:
            form = f"{first.dtype.name} {tuple(shape)}"
            what = f"`{source.reader.column}` is {form}, from {len(found):,} of {files:,} files"
            guesses.append(SourceGuess(source.reader.column, what, "schema="))
        return cls(
            max((one.form.dtype for _, one in found), key=lambda dtype: dtype.itemsize),
            tuple(shape),
            sum(one.rows for _, one in found) if is_complete else None,
            is_complete,
            tuple([_split_reason(what) for what in unused]),
            tuple(guesses),
        )


def _split_reason(what: str) -> tuple[str, str]:
    name, _, reason = what.partition(": ")
    return name, reason


def _inconsistent_error(
    path: str, form: ArrayForm, first_path: str, first: ArrayForm, source: ArrayFolderSource
) -> RekordError:
    same_dtype = form.dtype == first.dtype
    return error(
        "X594",
        "arrays of the files have different numbers of dimensions"
        if same_dtype
        else "arrays of the files have different dtypes",
        location=Location(path=path),
        expected=f"{first.dtype.name} {first.shape}, as {preview(os.path.basename(first_path))}"[:120],
        found=f"{form.dtype.name} {form.shape}"[:80],
        do="write the files of each kind to their own dataset: select them with a pattern"
        if not same_dtype
        else "write them apart, or one row per page or frame: pages=True",
    )
