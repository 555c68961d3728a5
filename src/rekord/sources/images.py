"""A folder of images as rows: a class per folder, perhaps below a folder per split."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.base import PART_BYTES, Facts, Part, Row, SourceFile
from rekord.sources.trees import (
    SPLITS,
    fingerprint,
    folder_path,
    given_path,
    groups,
    is_unicode,
    joined,
    name_error,
    pictures_below,
    printable,
)


def image_folder(path: str | os.PathLike[str], *, classes: Sequence[str] | None = None) -> ImageFolder:
    """The images below a folder, one row each, with the folder that they are in as their class.

    `path/cat/1.jpg` and `path/cat/more/2.jpg` are of class `cat`. Where every folder of the first level that
    has images is called like a split (train, val, valid, validation, dev, eval, test, in letters of any case),
    the folders of the second level are the classes, and rows have a `split`. An image that is in no class
    folder has no label.

    Classes get their ids from 0 in the order of their names' bytes; `classes` gives the names by id instead,
    so that several folders agree. Files that are not called like pictures are left out.
    """
    return ImageFolder(given_path(path), checked_classes(classes))


class _Listing(NamedTuple):
    files: tuple[SourceFile, ...]
    ignored: int
    has_splits: bool


@dataclass(frozen=True)
class ImageFolder:
    """The source that `image_folder` makes."""

    root: str
    classes: tuple[str, ...] | None = None

    @property
    def kind(self) -> str:
        return "image_folder"

    def options(self) -> Mapping[str, Any]:
        return {"classes": None if self.classes is None else list(self.classes)}

    def facts(self) -> Facts:
        listing = self._list()
        found: set[str] = set()
        splits: set[str] = set()
        for folder in {file.path.rpartition("/")[0] for file in listing.files}:
            place = _place(f"{folder}/" if folder else "", listing.has_splits)
            if is_unicode(folder):
                found.update([place.label] if place.label is not None else [])
                splits.update([place.split] if place.split is not None else [])
        return Facts(
            layout="classification",
            classes=self.classes or tuple(sorted(found, key=os.fsencode)) or None,
            rows=len(listing.files),
            source_bytes=sum([file.size_bytes for file in listing.files]),
            splits=tuple([name for name in SPLITS if name in splits]) or None,
            files=fingerprint(listing.files),
            extra={"ignored_files": listing.ignored, "labels": bool(found)},
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        listing: _Listing = self.__dict__.get("_listed") or self._list()
        sized = ((file.path, file.size_bytes) for file in listing.files)
        return [Part((listing.has_splits, paths), size) for paths, size in groups(sized, part_bytes)]

    def read(self, part: Part) -> Iterator[Row]:
        has_splits, paths = part.content
        root = Path(self.root)
        for path in paths:
            if not is_unicode(path):
                yield Row(printable(path), 0, name_error(self.root, path))
                continue
            place = _place(path, has_splits)
            values: dict[str, Any] = {"image": root / path, "filename": path}
            if place.label is not None:
                values["label"] = place.label
            if place.split is not None:
                values["split"] = place.split
            yield Row(path, 0, values)

    def _list(self) -> _Listing:
        """Look at the folder now; `parts` then speaks of the same files as the facts before it."""
        files, ignored = pictures_below(folder_path(self.root))
        if not files:
            raise no_images(self.root, ignored)
        tops = {file.path.partition("/")[0] for file in files if "/" in file.path}
        listing = _Listing(files, ignored, bool(tops) and all(top.lower() in SPLITS for top in tops))
        self.__dict__["_listed"] = listing
        return listing

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "classes": self.classes}  # workers get parts, not the list of all files


class _Place(NamedTuple):
    label: str | None
    split: str | None


def _place(path: str, has_splits: bool) -> _Place:
    folders = path.split("/", 2)[:-1] if has_splits else path.split("/", 1)[:-1]
    if not has_splits:
        return _Place(folders[0] if folders else None, None)
    split = folders[0].lower() if folders else None
    return _Place(folders[1] if len(folders) > 1 else None, split)


def no_images(root: str, ignored: int, *, name: str = "images") -> RekordError:
    """The error for a folder that has no pictures."""
    return error(
        "X527",
        f"no {name} here",
        location=Location(path=joined(root, "")),
        expected="files called .jpg, .png or like other pictures, at any depth",
        found=f"{ignored:,} files, none of them a picture" if ignored else "no files",
        do="name the folder that holds the images, or unpack them first",
    )


def checked_classes(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of classes by id, as they were given."""
    if classes is None:
        return None
    if isinstance(classes, (list, tuple)):
        names = tuple(classes)
        sound = all(isinstance(name, str) and name and is_unicode(name) for name in names)
        if names and sound and len(set(names)) == len(names):
            return names
    raise error(
        "U611",
        "`classes` is no list of names",
        expected="a list of names by id, each of them once",
        found=shown(classes),
        do='classes=["cat", "dog"]',
    )
