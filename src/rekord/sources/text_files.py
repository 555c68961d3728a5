"""Folders of texts: a row per file, with its folder as class."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.arguments import check_keywords, is_utf8_encodable
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema import Label, Schema, Text
from rekord.sources.base import (
    PART_BYTES,
    Chunk,
    FileListing,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SourceRow,
    group_by_bytes,
    list_files,
    source_path,
)
from rekord.sources.image_folder import class_names, name_error, sort_splits, split_of_folder, to_printable_path
from rekord.sources.lines import check_encoding, not_utf8_error, open_text_file

EXTENSIONS = (".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm", ".xhtml")

MAX_TEXT_BYTES = 1 << 30
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class TextFilesSource:
    """A row per text file."""

    path: str
    classes: tuple[str, ...] | None = None
    encoding: str | None = None

    kind = "text_files"

    @property
    def root(self) -> str:
        return self._listing().root

    def options(self) -> Mapping[str, Any]:
        return {"classes": None if self.classes is None else list(self.classes), "encoding": self.encoding}

    def facts(self) -> SourceFacts:
        listing = self._listing()
        places = [_find_place(file.path, self._has_splits(listing)) for file in listing.files]
        found = {label for label, _ in places if label is not None}
        splits = {split for _, split in places if split is not None}
        names = self.classes or tuple(sorted(found, key=os.fsencode))
        labelled = all(label is not None for label, _ in places)
        features: dict[str, Any] = {"text": Text(), "filename": Text()}
        guesses: tuple[SourceGuess, ...] = ()
        if found:
            features["label"] = Label(names, optional=not labelled)
            shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
            guesses = (
                SourceGuess("label", f"the class of a text is its folder: {shown}", "to leave it out: drop=[…]"),
            )
        return SourceFacts(
            layout="table",
            schema=Schema(features),
            rows=len(listing.files),
            source_bytes=listing.source_bytes,
            splits=sort_splits(splits) or None,
            files=listing.files,
            guesses=guesses,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        listing = self._listing()
        has_splits = self._has_splits(listing)
        groups = group_by_bytes(((file, file.size_bytes + 1) for file in listing.files), part_bytes)
        return [SourcePart((listing.root, has_splits, files), size_bytes) for files, size_bytes in groups]

    def read(self, part: SourcePart) -> Iterator[Chunk]:
        root, has_splits, files = part.content
        for file in files:
            if not is_utf8_encodable(file.path):
                yield SourceRow(to_printable_path(file.path), 0, name_error(root, file.path))
                continue
            path = FileListing(root, ()).full(file)
            text = _read_text(path, file, self.encoding)
            if isinstance(text, RekordError):
                yield SourceRow(file.path, 0, text)
                continue
            label, split = _find_place(file.path, has_splits)
            values: dict[str, Any] = {"text": text, "filename": file.path}
            if label is not None:
                values["label"] = label
            if split is not None:
                values["split"] = split
            yield SourceRow(file.path, 0, values)

    def _listing(self) -> FileListing:
        return list_files(self.path, EXTENSIONS)

    def _has_splits(self, listing: FileListing) -> bool:
        tops = {file.path.partition("/")[0] for file in listing.files if "/" in file.path}
        return bool(tops) and all(split_of_folder(top) is not None for top in tops)


@check_keywords
def text_files(
    path: str | os.PathLike[str], *, classes: Sequence[str] | None = None, encoding: str | None = None
) -> TextFilesSource:
    """Text files (.txt, .md, .rst, .html), one row each: a file, a folder or a pattern.

    The columns are `text`, the whole file as it is written, and `filename`. In `path/pos/1.txt` the class is `pos`,
    in the column `label`. If every first-level folder is named like a split (train, val, test, …), the second-level
    folders are the classes, and rows have a `split`. Class ids start at 0, in the byte order of the names; `classes`
    gives the names by id instead. `encoding` is one of Python's, such as "latin-1"; by default UTF-8, or UTF-16 in a
    file with its byte order mark.
    """
    return TextFilesSource(source_path(path, "text_files"), class_names(classes), check_encoding(encoding))


def _find_place(path: str, has_splits: bool) -> tuple[str | None, str | None]:
    """The class and the split of a file."""
    folders = path.split("/")[:-1]
    split = split_of_folder(folders.pop(0)) if has_splits and folders else None
    return (folders[0] if folders else None), split


def _read_text(path: str, file: SourceFile, encoding: str | None) -> str | RekordError:
    where = Location(path=path, row=0)
    if file.size_bytes > MAX_TEXT_BYTES:
        return error(
            "E327",
            "text is larger than a record can be",
            location=where,
            expected=f"at most {MAX_TEXT_BYTES >> 30} GiB",
            found=f"{file.size_bytes:,} bytes",
            do="write a row per line: rk.sources.text(path)",
        )
    pieces = []
    try:
        with open_text_file(path, file, encoding) as (stream, _):
            while piece := stream.read(_READ_BYTES):
                pieces.append(piece)
    except RekordError as failure:
        if failure.code != "X585":  # the encoding of one file, not of all
            raise
        return error("E353", location=where, expected=failure.expected, found=failure.found, do=failure.do)
    data = b"".join(pieces).removeprefix(b"\xef\xbb\xbf")
    if b"\0" in data:
        return error(
            "E353",
            location=where,
            expected="text in UTF-8",
            found=f"a zero byte at {data.index(0):,}",
            likely="UTF-16 without a byte order mark" if data[1:2] == b"\0" else None,
            do='encoding="utf-16-le"' if data[1:2] == b"\0" else "remove the file: it is not text",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as failure:
        return not_utf8_error(data, failure.start, where, "text")
