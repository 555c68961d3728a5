"""Folders of images: their files in a stable order, and a row per image with the class that its folder names."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rekord.arguments import as_path, check_keywords, is_utf8_encodable, name_list
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.base import PART_BYTES, SourceFacts, SourceFile, SourcePart, SourceRow
from rekord.storage.local import read_error

T = TypeVar("T")

# Also formats that no layout stores: an image is refused by its name, and does not vanish from a dataset.
IMAGE_EXTENSIONS = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff"),
        *(".heic", ".heif", ".avif", ".jp2", ".jxl", ".ppm", ".pgm", ".pbm", ".pnm", ".tga"),
    )
)
SPLIT_NAMES = ("train", "val", "valid", "validation", "dev", "eval", "test")

_IGNORED_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"))
_MAX_FILES = 1 << 16  # in one part, however small they are
_MAX_PATHS_TO_FOLDER = 16  # to one folder through links, before it is taken for a trap
_MAX_LEVELS = 64


class ImageTree(NamedTuple):
    """The images below a folder, sorted by the bytes of their paths."""

    files: tuple[SourceFile, ...]
    ignored: int  # other files


def find_images(root: str) -> ImageTree:
    """Every image below a folder, by its extension.

    Hidden names and what operating systems leave behind are passed over. Links are followed, except back into
    a folder that they lie in. A link to nothing is listed with no bytes, so that its row can say so.
    """
    walk = _FolderWalk(root)
    files = list(walk.files(root, "", ()))
    files.sort(key=lambda file: os.fsencode(file.path))
    return ImageTree(tuple(files), walk.ignored)


class _FolderWalk:
    def __init__(self, root: str) -> None:
        self.root = root
        self.ignored = 0
        self.path_counts: dict[tuple[int, int], int] = {}

    def files(self, folder: str, below: str, inside: tuple[tuple[int, int], ...]) -> Iterator[SourceFile]:
        try:
            facts = os.stat(folder)
            identity = facts.st_dev, facts.st_ino
            if identity in inside:
                return
            self.path_counts[identity] = self.path_counts.get(identity, 0) + 1
            if self.path_counts[identity] > _MAX_PATHS_TO_FOLDER or len(inside) > _MAX_LEVELS:
                raise _link_cycle_error(folder)
            with os.scandir(folder) as names:
                entries = [entry for entry in names if not _is_ignored(entry.name)]
        except OSError as failure:
            raise read_error(folder, failure) from failure
        for entry in entries:
            if _is_folder(entry):
                yield from self.files(entry.path, f"{below}{entry.name}/", (*inside, identity))
            elif not is_image_name(entry.name):
                self.ignored += 1
            else:
                file = _to_source_file(entry, below)
                if file is None:
                    self.ignored += 1
                else:
                    yield file


def _is_ignored(name: str) -> bool:
    return name.startswith(".") or name.lower() in _IGNORED_NAMES


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle; what they should have been, their row says
        return False


def _to_source_file(entry: os.DirEntry[str], below: str) -> SourceFile | None:
    try:
        facts = entry.stat()
    except OSError:
        return SourceFile(below + entry.name, 0, 0)
    # To read a pipe that is called .jpg would wait for ever.
    if not modes.S_ISREG(facts.st_mode):
        return None
    return SourceFile(below + entry.name, facts.st_size, facts.st_mtime_ns)


def _link_cycle_error(folder: str) -> RekordError:
    return error(
        "X503",
        "links between folders lead to the same files again and again",
        location=Location(path=folder),
        expected=f"a folder reached in at most {_MAX_PATHS_TO_FOLDER} ways, at most {_MAX_LEVELS} levels deep",
        found="more",
        do="remove the links that lead back up: find . -type l",
    )


def is_image_name(name: str) -> bool:
    """Whether a file is called like an image, in letters of any case."""
    return os.path.splitext(name)[1].lower() in IMAGE_EXTENSIONS


def strip_image_extension(path: str) -> str:
    """A path without its extension, where that is one of images."""
    head, extension = os.path.splitext(path)
    return head if extension.lower() in IMAGE_EXTENSIONS else path


def to_printable_path(path: str) -> str:
    """A path as messages, journals and manifests hold it: bytes that are no UTF-8 are escaped."""
    return path if is_utf8_encodable(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


def fingerprint(files: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
    """Files by their printable paths, each once, in order."""
    listed = {file.path: file for file in files}
    return tuple(
        [
            listed[path] if is_utf8_encodable(path) else listed[path]._replace(path=to_printable_path(path))
            for path in sorted(listed, key=os.fsencode)
        ]
    )


def join_path(root: str, path: str) -> str:
    """A file below a root, as a person finds it."""
    return to_printable_path(os.path.normpath(os.path.join(root, path)))


def name_error(root: str, path: str) -> RekordError:
    """The error for a file whose name is not UTF-8, and so cannot be stored."""
    return error(
        "E318",
        "the name of a file is not UTF-8",
        location=Location(path=join_path(root, path), feature="filename"),
        expected="UTF-8",
        found=preview(os.fsencode(os.path.basename(path))[:16]),
        do="rename the file",
    )


def group_by_bytes(items: Iterable[tuple[T, int]], part_bytes: int) -> Iterator[tuple[tuple[T, ...], int]]:
    """Items with their bytes, in order, as parts of about `part_bytes` with the bytes of each."""
    group: list[T] = []
    group_bytes = 0
    for item, size_bytes in items:
        if group and (group_bytes + size_bytes > part_bytes or len(group) >= _MAX_FILES):
            yield tuple(group), group_bytes
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size_bytes
    if group:
        yield tuple(group), group_bytes


def validate_folder(path: object, *, name: str = "path") -> str:
    """A folder that was given as an argument."""
    text = as_path(name, path)
    try:
        is_folder = modes.S_ISDIR(os.stat(text).st_mode)
    except OSError as failure:
        raise read_error(text, failure) from failure
    if not is_folder:
        raise error(
            "U605",
            f"`{name}` is a file, and a folder is needed",
            location=Location(path=text),
            expected="a folder",
            found="a file",
            do="name the folder that it is in",
        )
    return text


class ListingSource:
    """A source that lists its files for its facts. `parts` speaks of the same files; workers get parts alone."""

    def _list(self) -> Any:
        """Look at the files, now."""
        raise NotImplementedError

    def _refresh(self) -> Any:
        self.__dict__["_listed"] = listing = self._list()
        return listing

    def _last_listing(self) -> Any:
        return self.__dict__.get("_listed") or self._refresh()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_listed"}


@check_keywords
def image_folder(path: str | os.PathLike[str], *, classes: Sequence[str] | None = None) -> ImageFolderSource:
    """The images below a folder, one row each, with the folder that they are in as their class.

    `path/cat/1.jpg` and `path/cat/more/2.jpg` are of class `cat`. Where every folder of the first level that
    has images is called like a split (train, val, valid, validation, dev, eval, test, in letters of any case),
    the folders of the second level are the classes, and rows have a `split`. An image that is in no class
    folder has no label.

    Classes get their ids from 0 in the order of their names' bytes; `classes` gives the names by id instead,
    so that several folders agree. Files that are not called like images are left out.
    """
    return ImageFolderSource(as_path("path", path), class_names(classes))


class _ImageFolderListing(NamedTuple):
    files: tuple[SourceFile, ...]
    ignored: int
    has_splits: bool


@dataclass(frozen=True)
class ImageFolderSource(ListingSource):
    root: str
    classes: tuple[str, ...] | None = None

    kind = "image_folder"

    def options(self) -> Mapping[str, Any]:
        return {"classes": None if self.classes is None else list(self.classes)}

    def facts(self) -> SourceFacts:
        listing: _ImageFolderListing = self._refresh()
        found: set[str] = set()
        splits: set[str] = set()
        for folder in {file.path.rpartition("/")[0] for file in listing.files}:
            place = _parse_label_and_split(f"{folder}/" if folder else "", listing.has_splits)
            if is_utf8_encodable(folder):
                found.update([place.label] if place.label is not None else [])
                splits.update([place.split] if place.split is not None else [])
        return SourceFacts(
            layout="classification",
            classes=self.classes or tuple(sorted(found, key=os.fsencode)) or None,
            rows=len(listing.files),
            source_bytes=sum([file.size_bytes for file in listing.files]),
            splits=tuple([name for name in SPLIT_NAMES if name in splits]) or None,
            files=fingerprint(listing.files),
            extra={"ignored_files": listing.ignored, "labels": bool(found)},
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        listing: _ImageFolderListing = self._last_listing()
        sized = ((file.path, file.size_bytes) for file in listing.files)
        return [SourcePart((listing.has_splits, paths), size) for paths, size in group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        has_splits, paths = part.content
        root = Path(self.root)
        for path in paths:
            if not is_utf8_encodable(path):
                yield SourceRow(to_printable_path(path), 0, name_error(self.root, path))
                continue
            place = _parse_label_and_split(path, has_splits)
            values: dict[str, Any] = {"image": root / path, "filename": path}
            if place.label is not None:
                values["label"] = place.label
            if place.split is not None:
                values["split"] = place.split
            yield SourceRow(path, 0, values)

    def _list(self) -> _ImageFolderListing:
        files, ignored = find_images(validate_folder(self.root))
        if not files:
            raise no_images_error(self.root, ignored)
        tops = {file.path.partition("/")[0] for file in files if "/" in file.path}
        has_splits = bool(tops) and all(top.lower() in SPLIT_NAMES for top in tops)
        return _ImageFolderListing(files, ignored, has_splits)


class _LabelAndSplit(NamedTuple):
    label: str | None
    split: str | None


def _parse_label_and_split(path: str, has_splits: bool) -> _LabelAndSplit:
    folders = path.split("/", 2)[:-1] if has_splits else path.split("/", 1)[:-1]
    if not has_splits:
        return _LabelAndSplit(folders[0] if folders else None, None)
    split = folders[0].lower() if folders else None
    return _LabelAndSplit(folders[1] if len(folders) > 1 else None, split)


def no_images_error(root: str, ignored: int, *, name: str = "images") -> RekordError:
    """The error for a folder that has no images."""
    return error(
        "X527",
        f"no {name} here",
        location=Location(path=join_path(root, "")),
        expected="files called .jpg, .png or like other images, at any depth",
        found=f"{ignored:,} files, none of them an image" if ignored else "no files",
        do="name the folder that holds the images, or unpack them first",
    )


def class_names(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of classes by id, as they were given."""
    if classes is None:
        return None
    expected = "a list of names by id, each of them once"
    return name_list("classes", classes, expected=expected, do='classes=["cat", "dog"]')
