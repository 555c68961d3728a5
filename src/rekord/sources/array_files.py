"""Folders of files that hold arrays: TIFF, DICOM, NIfTI and `.npy`, with class folders and splits as for images."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np

from rekord.arguments import as_path, conflicting_options, is_utf8_encodable, one_of
from rekord.codec.images.inspect import GeneratedBytes, encode_png
from rekord.codec.images.store import store_image
from rekord.codec.values import InvalidValue
from rekord.errors import RekordError, add_location, error, preview
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
from rekord.sources.detection_common import relative_path
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
    validate_folder,
)
from rekord.storage import raw_files

ImagesAs: TypeAlias = Literal["png", "jpeg"]
JPEG_QUALITY = 95
_MAX_ARRAY_BYTES = (1 << 31) - (1 << 20)  # of a record, and some room for its other columns
_FREE_BYTES = 256 << 20
_MAX_RATIO = 1032  # deflate cannot do better
_FREE_PIXELS = 1 << 20
_MAX_CODED_RATIO = 4  # encoded parts may be padded
_FRAME_MARKERS = frozenset((*range(0xC0, 0xD0), 0xF7)) - {0xC4, 0xC8, 0xCC}
_SCAN_MARKER = 0xDA
_CODESTREAM_MARKERS = b"\xff\x4f\xff\x51"
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


def check_coded_size(path: str, kind: str, data: bytes, height: int, width: int) -> None:
    """Raise E394 for a JPEG or JPEG 2000 inside a file that declares far more pixels than the file does.

    Decoders reserve what it declares, and may fill it, before its size is compared with that of the file.
    """
    sizes = [*_find_jpeg_sizes(data), *_find_jpeg2000_sizes(data)]
    most = _MAX_CODED_RATIO * height * width + _FREE_PIXELS
    for coded_height, coded_width in sizes:
        if not 0 < coded_height * coded_width <= most:
            found = f"an encoded part of {coded_height:,} × {coded_width:,} for {height:,} × {width:,} pixels"
            raise unreadable_array_error(path, kind, found)


def _find_jpeg_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """The height and width in each frame header of a JPEG or JPEG-LS, up to the first scan."""
    if data[:2] != b"\xff\xd8":
        return
    at = 2
    while (at := data.find(b"\xff", at)) >= 0 and at + 4 <= len(data):
        marker = data[at + 1]
        if marker == _SCAN_MARKER:
            return
        if marker in _FRAME_MARKERS and at + 9 <= len(data):
            yield int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
        # Decoders skip what is no marker, and fill bytes.
        is_segment = marker >= 0xC0 and marker != 0xFF and not 0xD0 <= marker <= 0xD9
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big") if is_segment else 1


def _find_jpeg2000_sizes(data: bytes) -> Iterator[tuple[int, int]]:
    """The height and width of each codestream of a JPEG 2000: its marker does not occur in compressed data."""
    at = 0
    while (at := data.find(_CODESTREAM_MARKERS, at)) >= 0 and at + 24 <= len(data):
        right, bottom, left, top = (int.from_bytes(data[at + i : at + i + 4], "big") for i in (8, 12, 16, 20))
        yield max(bottom - top, 0), max(right - left, 0)
        at += 4


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


@dataclass(frozen=True, slots=True)
class ArrayMasks:
    """The folder of the masks of arrays, whose files are named like those of the arrays."""

    root: str
    reader: ArrayReader

    @classmethod
    def of(cls, masks: str | os.PathLike[str] | None, reader: ArrayReader, **excluded: bool) -> ArrayMasks | None:
        """The argument `masks` of a source. `excluded` are options that it cannot be combined with."""
        if masks is None:
            return None
        for name, is_given in excluded.items():
            if is_given:
                raise conflicting_options("masks", name)
        return cls(as_path("masks", masks), reader)

    def list_below(self, root: str) -> tuple[str, tuple[SourceFile, ...]]:
        """The path from the folder of the arrays to that of the masks, and the files of the masks."""
        beside = relative_path(root, validate_folder(self.root, name="masks"))
        if beside == ".":
            raise error(
                "U605",
                "folders of arrays and of `masks` are the same",
                location=Location(path=join_path(self.root, "")),
                expected="a folder of arrays and another folder of masks with the same names",
                found=preview(os.path.basename(os.path.normpath(self.root))),
                do="move the masks to their own folder",
            )
        return beside, find_files(self.root, self.reader.is_wanted).files

    def find(self, path: str) -> str | None:
        """The mask of an array, below the root. Extensions may differ."""
        stem, own = split_array_name(path, self.reader.extensions)
        for extension in (own, *self.reader.extensions):
            if raw_files.isfile(os.path.join(self.root, *f"{stem}{extension}".split("/"))):
                return stem + extension
        return None

    def read(self, path: str, array: Any, column: str) -> Any:
        """The mask of an array. Raises E363 without one, E336 if it has another size."""
        mask_path = self.find(path)
        if mask_path is None:
            raise error(
                "E363",
                "array has no mask",
                location=Location(feature="mask"),
                expected=f"a file of the same name in {preview(os.path.basename(os.path.normpath(self.root)))}",
                found="no such file",
                do="add the mask, or move the array away",
            )
        full = os.path.join(self.root, *mask_path.split("/"))
        mask, _ = next(iter(self.reader.read(full)))
        if mask.shape != array.shape[: mask.ndim]:
            raise error(
                "E336",
                f"`mask` and its {column} have different sizes",
                location=Location(path=full, feature="mask"),
                expected=f"{format_shape(array.shape[: mask.ndim])}, as the {column}",
                found=format_shape(mask.shape),
                do=f"use the mask of this {column}, or resample it to the same grid",
            )
        return mask


def format_shape(shape: Sequence[int]) -> str:
    """The sizes of dimensions in a message."""
    return " × ".join([f"{size:,}" for size in shape]) or "a single value"


def split_array_name(path: str, extensions: Sequence[str]) -> tuple[str, str]:
    """A path without its extension, which may have two parts, and the extension."""
    found = [one for one in extensions if path.lower().endswith(one)]
    end = len(path) - max(map(len, found), default=0)
    return path[:end], path[end:]


@dataclass(frozen=True)
class ArrayFolderSource(ListingSource):
    """The arrays of a file, of a folder or of the files that match a pattern, and the masks of another folder."""

    path: str
    reader: ArrayReader
    labelled: bool = True
    classes: tuple[str, ...] | None = None
    images_as: ImagesAs | None = None
    masks: ArrayMasks | None = None

    @property
    def kind(self) -> str:
        return self.reader.kind

    @property
    def root(self) -> str:
        return self.path if raw_files.isdir(self.path) else list_files(self.path, ()).root

    def options(self) -> Mapping[str, Any]:
        own = {"labelled": self.labelled, "classes": None if self.classes is None else list(self.classes)}
        masked = {} if self.masks is None else {"masks": True}
        return {**self.reader.options(), **own, "images_as": self.images_as, **masked}

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        (root, has_splits, masks), paths = part.content
        for path in paths:
            if masks is not None and path.startswith(f"{masks}/"):
                yield SourceRow(to_printable_path(path), 0, _mask_without_array_error(root, path, self.reader.column))
                continue
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
        return self._last_listing().context[1]

    def _read_file(self, full: str, path: str, common: Mapping[str, Any]) -> Iterator[SourceRow]:
        position = 0
        try:
            for array, more in self.reader.read(full):
                value = array if self.images_as is None else encode_array(array, self.images_as)
                values = {self.reader.column: value, **more, **common}
                if self.masks is not None:
                    with add_location(path=full):
                        values["mask"] = self.masks.read(path, array, self.reader.column)
                yield SourceRow(path, position, values)
                position += 1
        except InvalidValue as unfit:
            unfit.path = full
            yield SourceRow(path, position, unfit.to_error(self.reader.column, row=position))
        except RekordError as failure:
            yield SourceRow(path, position, failure)

    def _list(self) -> SourceListing:
        tree, root = self._find_files()
        if not tree.files:
            raise self._no_files_error(root, tree.ignored)
        files = tree.files
        masks: tuple[SourceFile, ...] = ()
        orphans: tuple[SourceFile, ...] = ()
        beside = None
        if self.masks is not None:
            files, masks, orphans, beside = self._pair_masks(self.masks, root, files)
        tops = {file.path.partition("/")[0] for file in files if "/" in file.path}
        has_splits = bool(tops) and all(split_of_folder(top) is not None for top in tops)
        places = [parse_label_and_split(file.path, has_splits) for file in files if is_utf8_encodable(file.path)]
        labels = {place.label for place in places if place.label is not None} if self.labelled else set()
        splits = {place.split for place in places}
        classes = self.classes or tuple(sorted(labels, key=os.fsencode)) or None
        survey = self._inspect(root, files, self.reader)
        feature = self._feature(survey)
        columns: dict[str, Feature] = {self.reader.column: feature}
        if self.masks is not None:
            mask_survey = self._inspect(root, masks, self.masks.reader)
            columns["mask"] = Tensor(mask_survey.dtype, mask_survey.shape)
        columns |= {**self.reader.more_columns(), "filename": Text()}
        if labels and classes is not None:
            columns["label"] = Label(classes, optional=any(place.label is None for place in places))
        # The layouts of images declare 8 bits, and no other columns.
        is_plain = isinstance(feature, Image) and feature.bits is None and not self.reader.more_columns()
        entries = (*files, *orphans)
        facts = SourceFacts(
            layout="table" if not is_plain else "classification" if labels else "images",
            schema=None if is_plain else Schema(columns),
            classes=classes,
            rows=None if survey.rows is None else survey.rows + len(orphans),
            source_bytes=sum([file.size_bytes for file in (*entries, *masks)]),
            splits=tuple([name for name in SPLIT_NAMES if name in splits]) or None,
            files=fingerprint((*entries, *masks)),
            unused=tuple([UnusedInput("column", name, reason) for name, reason in survey.unused]),
            guesses=survey.guesses,
            extra={"ignored_files": tree.ignored, "labels": bool(labels)},
        )
        return SourceListing(facts, [(file.path, file.size_bytes) for file in entries], (root, has_splits, beside))

    def _pair_masks(
        self, masks: ArrayMasks, root: str, files: tuple[SourceFile, ...]
    ) -> tuple[tuple[SourceFile, ...], tuple[SourceFile, ...], tuple[SourceFile, ...], str]:
        """The arrays, their masks, masks without an array, and the path from the one folder to the other."""
        beside, found = masks.list_below(root)
        files = tuple([file for file in files if not file.path.startswith(f"{beside}/")])
        if not found or not files:
            raise self._no_files_error(masks.root if files else root, 0)
        stems = {split_array_name(file.path, self.reader.extensions)[0] for file in files}
        moved = [file._replace(path=f"{beside}/{file.path}") for file in found]
        paired = [split_array_name(file.path, masks.reader.extensions)[0] in stems for file in found]
        own = tuple([file for file, is_paired in zip(moved, paired, strict=True) if is_paired])
        orphans = tuple([file for file, is_paired in zip(moved, paired, strict=True) if not is_paired])
        return files, own or orphans[:1], orphans, beside

    def _no_files_error(self, root: str, others: int) -> RekordError:
        return error(
            "X527",
            f"folder has no {self.kind} files",
            location=Location(path=join_path(root, "")),
            expected=f"files that end in {', '.join(self.reader.extensions)}, at any depth",
            found=f"{others:,} other files" if others else "no files",
            do="pass the folder that contains them, or unpack them first",
        )

    def _find_files(self) -> tuple[FileTree, str]:
        if raw_files.isdir(self.path):
            return find_files(self.path, self.reader.is_wanted), self.path
        listing = list_files(self.path, self.reader.extensions)
        return FileTree(listing.files, 0), listing.root

    def _feature(self, survey: _Survey) -> Feature:
        if self.images_as is not None:
            return Image(format=self.images_as, bits=16 if survey.dtype == np.uint16 else None)
        return Tensor(survey.dtype, survey.shape)

    def _inspect(self, root: str, files: Sequence[SourceFile], reader: ArrayReader) -> _Survey:
        """The form of the arrays, from the headers of all files, or of some if there are many."""
        step = -(-len(files) // _MAX_INSPECTED)
        chosen = files[::step]
        found: list[tuple[str, ArrayFileFacts]] = []
        failure: RekordError | None = None
        for file in chosen:
            full = join_path(root, file.path)
            try:
                found.append((full, reader.inspect(os.path.join(root, *file.path.split("/")))))
            except RekordError as refused:
                if refused.code == "U602":
                    raise
                failure = failure or refused  # its row reports it
        if not found:
            assert failure is not None
            raise failure
        is_array = self.images_as is None
        return _Survey.of(reader.column, found, len(files), is_array=is_array)


def _mask_without_array_error(root: str, path: str, column: str) -> RekordError:
    return error(
        "E364",
        f"mask has no {column}",
        location=Location(path=os.path.normpath(join_path(root, path)), feature=column),
        expected=f"a file of the same name in {preview(os.path.basename(os.path.abspath(root)))}",
        found="no such file",
        do=f"add the {column}, or move the mask away",
    )


@dataclass(frozen=True, slots=True)
class _Survey:
    """The form of the arrays of all files."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    rows: int | None
    unused: tuple[tuple[str, str], ...]
    guesses: tuple[SourceGuess, ...]

    @classmethod
    def of(cls, column: str, found: Sequence[tuple[str, ArrayFileFacts]], files: int, *, is_array: bool) -> _Survey:
        path, facts = found[0]
        first = facts.form
        shape: list[int | None] = list(first.shape)
        for other, one in found[1:] if is_array else ():
            if one.form.dtype != first.dtype or len(one.form.shape) != len(shape):
                raise _inconsistent_error(other, one.form, path, first)
            shape = [a if a == b else None for a, b in zip(shape, one.form.shape, strict=True)]
        unused = {what: 0 for _, one in found for what in one.unused}
        remarks = {what: None for _, one in found for what in one.remarks}
        guesses = [SourceGuess(None, what) for what in remarks]
        if files > len(found) and files > _MAX_INSPECTED and is_array:
            form = f"{first.dtype.name} {tuple(shape)}"
            what = f"`{column}` is {form}, from {len(found):,} of {files:,} files"
            guesses.append(SourceGuess(column, what, "schema="))
        return cls(
            max((one.form.dtype for _, one in found), key=lambda dtype: dtype.itemsize),
            tuple(shape),
            sum(one.rows for _, one in found) if len(found) == files else None,
            tuple([_split_reason(what) for what in unused]),
            tuple(guesses),
        )


def _split_reason(what: str) -> tuple[str, str]:
    name, _, reason = what.partition(": ")
    return name, reason


def _inconsistent_error(path: str, form: ArrayForm, first_path: str, first: ArrayForm) -> RekordError:
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
