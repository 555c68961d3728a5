"""Folders of images: their files in a stable order, and a row per image with its folder as class."""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rekord.arguments import as_path, check_keywords, is_utf8_encodable, name_list
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.base import PART_BYTES, PartItem, SourceFacts, SourceFile, SourcePart, SourceRow, group_by_bytes
from rekord.storage import raw_files
from rekord.storage.local import read_error
from rekord.storage.remote_files import listed_once

# Also formats that no layout stores: such an image is reported, and does not vanish from a dataset.
IMAGE_EXTENSIONS = frozenset(
    (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".webp", ".tif", ".tiff"),
        *(".heic", ".heif", ".avif", ".jp2", ".jxl", ".ppm", ".pgm", ".pbm", ".pnm", ".tga"),
    )
)
SPLIT_NAMES = ("train", "val", "valid", "validation", "dev", "eval", "test")
_SPLIT_ALIASES = {"training": "train", "testing": "test"}

_IGNORED_NAMES = frozenset(("thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"))
_MAX_PATHS_TO_FOLDER = 16  # to one folder through links, before they count as a cycle
_MAX_LEVELS = 64


@dataclass(frozen=True)
class FileKind:
    """Files that a list may name: how they, the columns that list them, and their folders are usually named."""

    name: str  # in messages
    plural: str
    extensions: frozenset[str]
    endings: tuple[str, ...]  # tried for names without an extension
    columns: tuple[str, ...]  # in lower case, without spaces, hyphens and underscores
    folders: tuple[str, ...]

    def is_name(self, path: str) -> bool:
        """Whether a file is named like one, ignoring case."""
        return os.path.splitext(path)[1].lower() in self.extensions


IMAGE_FILES = FileKind(
    name="image",
    plural="images",
    extensions=IMAGE_EXTENSIONS,
    endings=(".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".webp", ".gif"),
    columns=(
        *("image", "imagepath", "imagefile", "imagefilename", "imagename", "imageuri", "imageurl", "img", "imgname"),
        *("imgpath", "path", "file", "filename", "filepath", "uri", "imageid", "imgid", "idcode", "id"),
    ),
    folders=("images", "JPEGImages", "img", "imgs", "Images"),
)


class FileTree(NamedTuple):
    """The files of one kind below a folder, sorted by the bytes of their paths."""

    files: tuple[SourceFile, ...]
    ignored: int  # other files


def find_images(root: str) -> FileTree:
    """Every image below a folder, by its extension."""
    return find_files(root, is_image_name)


def find_files(root: str, is_wanted: Callable[[str], bool]) -> FileTree:
    """The files below a folder that a function of their path wants.

    Hidden files and those of operating systems are skipped. Links are followed, except back into a folder that
    contains them. A broken link is listed with no bytes, so that its row can report it.
    """
    walk = _FolderWalk(root, is_wanted)
    files = list(walk.files(root, "", ()))
    files.sort(key=lambda file: os.fsencode(file.path))
    return FileTree(tuple(files), walk.ignored)


class _FolderWalk:
    def __init__(self, root: str, is_wanted: Callable[[str], bool]) -> None:
        self.root = root
        self.is_wanted = is_wanted
        self.ignored = 0
        self.path_counts: dict[tuple[int, int], int] = {}

    def files(self, folder: str, below: str, inside: tuple[tuple[int, int], ...]) -> Iterator[SourceFile]:
        try:
            facts = raw_files.stat(folder)
            identity = facts.st_dev, facts.st_ino
            if identity in inside:
                return
            self.path_counts[identity] = self.path_counts.get(identity, 0) + 1
            if self.path_counts[identity] > _MAX_PATHS_TO_FOLDER or len(inside) > _MAX_LEVELS:
                raise _link_cycle_error(folder)
            with raw_files.scandir(folder) as names:
                entries = [entry for entry in names if not _is_ignored(entry.name)]
        except OSError as failure:
            raise read_error(folder, failure) from failure
        for entry in entries:
            if _is_folder(entry):
                yield from self.files(entry.path, f"{below}{entry.name}/", (*inside, identity))
            elif not self.is_wanted(entry.path):
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
    except OSError:  # a cycle of links; reported by its row
        return False


def _to_source_file(entry: os.DirEntry[str], below: str) -> SourceFile | None:
    try:
        facts = entry.stat()
    except OSError:
        return SourceFile(below + entry.name, 0, 0)
    # Reading a pipe named .jpg would block for ever.
    if not modes.S_ISREG(facts.st_mode):
        return None
    return SourceFile(below + entry.name, facts.st_size, facts.st_mtime_ns)


def _link_cycle_error(folder: str) -> RekordError:
    return error(
        "X503",
        "links between folders form a cycle",
        location=Location(path=folder),
        expected=f"at most {_MAX_PATHS_TO_FOLDER} paths to a folder, at most {_MAX_LEVELS} levels deep",
        found="more",
        do="remove the links that lead back up: find . -type l",
    )


def is_image_name(name: str) -> bool:
    """Whether a file is named like an image, ignoring case."""
    return os.path.splitext(name)[1].lower() in IMAGE_EXTENSIONS


def strip_image_extension(path: str) -> str:
    """A path without its extension, if that is an image extension."""
    head, extension = os.path.splitext(path)
    return head if extension.lower() in IMAGE_EXTENSIONS else path


def stat_file(path: str) -> os.stat_result | None:
    """The facts of a regular file; None if there is none."""
    try:
        facts = raw_files.stat(path)
    except (OSError, ValueError):  # a name read from a file may be anything, a zero byte included
        return None
    return facts if modes.S_ISREG(facts.st_mode) else None


def sort_splits(names: Iterable[str], usual: Sequence[str] = SPLIT_NAMES) -> tuple[str, ...]:
    """Splits in the usual order, then those of other names."""
    return tuple(sorted(names, key=lambda name: (usual.index(name) if name in usual else len(usual), name)))


def split_of_folder(name: str) -> str | None:
    """The split that a folder is named after, ignoring case: `Train`, `training` and `train2017` are train."""
    lower = re.sub(r"[-_]?\d{4}$", "", name.lower())
    return lower if lower in SPLIT_NAMES else _SPLIT_ALIASES.get(lower)


def to_printable_path(path: str) -> str:
    """A path for messages, journals and manifests: bytes that are not UTF-8 are escaped."""
    return path if is_utf8_encodable(path) else os.fsencode(path).decode("utf-8", "backslashreplace")


def fingerprint(files: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
    """Files with printable paths, each once, in order."""
    listed = {file.path: file for file in files}
    return tuple(
        [
            listed[path] if is_utf8_encodable(path) else listed[path]._replace(path=to_printable_path(path))
            for path in sorted(listed, key=os.fsencode)
        ]
    )


def join_path(root: str, path: str) -> str:
    """A file below a root, as a user finds it."""
    return to_printable_path(raw_files.normpath(os.path.join(root, path)))


def name_error(root: str, path: str) -> RekordError:
    """The error for a file name that is not UTF-8, and cannot be stored."""
    return error(
        "E318",
        "file name is not UTF-8",
        location=Location(path=join_path(root, path), feature="filename"),
        expected="UTF-8",
        found=preview(os.fsencode(os.path.basename(path))[:16]),
        do="rename the file",
    )


def validate_folder(path: object, *, name: str = "path") -> str:
    """A folder given as an argument."""
    text = as_path(name, path)
    try:
        is_folder = modes.S_ISDIR(raw_files.stat(text).st_mode)
    except OSError as failure:
        raise read_error(text, failure) from failure
    if not is_folder:
        raise error(
            "U605",
            f"`{name}` is a file, expected a folder",
            location=Location(path=text),
            expected="a folder",
            found="a file",
            do="pass the folder that contains it",
        )
    return text


class SourceListing(NamedTuple):
    """All that a source found when it listed its files."""

    facts: SourceFacts
    entries: Iterable[tuple[Any, int]]  # a row before it is read, and the bytes that are read for it
    context: Any = None  # what every row needs; small, as every part holds it


def list_path_items(part: SourcePart) -> Iterator[PartItem]:
    """The items of a part of paths, each with all rows of its file."""
    return (PartItem(path, (path,), to_printable_path(path)) for path in part.content[1])


class ListingSource:
    """A source that lists its files for its facts. `parts` uses the same listing; workers only get parts."""

    def facts(self) -> SourceFacts:
        """List the files, without reading all rows. Raises if there is nothing to read."""
        facts: SourceFacts = self._refresh().facts
        return facts

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, in parts: the context of the listing, and entries."""
        listing = self._last_listing()
        groups = group_by_bytes(listing.entries, part_bytes)
        return [SourcePart((listing.context, entries), size) for entries, size in groups]

    def shared_context(self) -> Any:
        """What the listing passes to every row."""
        return self._last_listing().context

    def _list(self) -> Any:
        """List the files, now."""
        raise NotImplementedError

    def _refresh(self) -> Any:
        with listed_once():
            self.__dict__["_listed"] = listing = self._list()
        return listing

    def _last_listing(self) -> Any:
        return self.__dict__.get("_listed") or self._refresh()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_listed"}


@check_keywords
def image_folder(path: str | os.PathLike[str], *, classes: Sequence[str] | None = None) -> ImageFolderSource:
    """Images below a folder, one row each, with their folder as class.

    `path/cat/1.jpg` and `path/cat/more/2.jpg` have the class `cat`. If every first-level folder with images is named
    like a split (train, val, valid, validation, dev, eval, test, ignoring case), the second-level folders are the
    classes, and rows have a `split`. An image outside of class folders has no label.

    Class ids start at 0, in the byte order of the names; `classes` gives the names by id instead, so that several
    folders agree. Files that are not named like images are skipped.
    """
    return ImageFolderSource(as_path("path", path), class_names(classes))


@check_keywords
def images(path: str | os.PathLike[str]) -> ImageFolderSource:
    """Images below a folder, one row each, without labels.

    If every first-level folder with images is named like a split, rows have a `split`; other folders only are part
    of the filename.
    """
    return ImageFolderSource(as_path("path", path), None, False)


@dataclass(frozen=True)
class ImageFolderSource(ListingSource):
    root: str
    classes: tuple[str, ...] | None = None
    labelled: bool = True

    @property
    def kind(self) -> str:
        return "image_folder" if self.labelled else "images"

    def options(self) -> Mapping[str, Any]:
        return {"classes": None if self.classes is None else list(self.classes)} if self.labelled else {}

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        has_splits, paths = part.content
        root = raw_files.to_path(self.root)
        for path in paths:
            if not is_utf8_encodable(path):
                yield SourceRow(to_printable_path(path), 0, name_error(self.root, path))
                continue
            place = self._parse(path, has_splits)
            values: dict[str, Any] = {"image": root / path, "filename": path}
            if place.label is not None:
                values["label"] = place.label
            if place.split is not None:
                values["split"] = place.split
            yield SourceRow(path, 0, values)

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The images of a part."""
        return (PartItem(path, (path,), to_printable_path(path), 0) for path in part.content[1])

    def _parse(self, path: str, has_splits: bool) -> LabelAndSplit:
        place = parse_label_and_split(path, has_splits)
        return place if self.labelled else place._replace(label=None)

    def _list(self) -> SourceListing:
        files, ignored = find_images(validate_folder(self.root))
        if not files:
            raise no_images_error(self.root, ignored)
        has_splits, found, splits = read_class_folders(files)
        found = found if self.labelled else ()
        facts = SourceFacts(
            layout="classification" if self.labelled else "images",
            classes=self.classes or found or None,
            rows=len(files),
            source_bytes=sum([file.size_bytes for file in files]),
            splits=splits,
            files=fingerprint(files),
            extra={"ignored_files": ignored, "labels": bool(found)},
        )
        return SourceListing(facts, [(file.path, file.size_bytes) for file in files], has_splits)


def read_class_folders(files: Sequence[SourceFile]) -> tuple[bool, tuple[str, ...], tuple[str, ...] | None]:
    """Whether the first level of folders are splits, the classes that folders are named after, and the splits."""
    tops = {file.path.partition("/")[0] for file in files if "/" in file.path}
    has_splits = bool(tops) and all(split_of_folder(top) is not None for top in tops)
    folders = {file.path.rpartition("/")[0] for file in files}
    places = [
        parse_label_and_split(f"{one}/" if one else "", has_splits) for one in folders if is_utf8_encodable(one)
    ]
    found = {place.label for place in places if place.label is not None}
    splits = {place.split for place in places}
    classes = tuple(sorted(found, key=os.fsencode))
    return has_splits, classes, tuple([name for name in SPLIT_NAMES if name in splits]) or None


class LabelAndSplit(NamedTuple):
    """What the folders of a file say."""

    label: str | None
    split: str | None


def parse_label_and_split(path: str, has_splits: bool) -> LabelAndSplit:
    """The class folder and the split folder of a file, by its path below the root."""
    folders = path.split("/", 2)[:-1] if has_splits else path.split("/", 1)[:-1]
    if not has_splits:
        return LabelAndSplit(folders[0] if folders else None, None)
    split = split_of_folder(folders[0]) if folders else None
    return LabelAndSplit(folders[1] if len(folders) > 1 else None, split)


def no_images_error(root: str, ignored: int, *, name: str = "images") -> RekordError:
    """The error for a folder without images."""
    return error(
        "X527",
        f"folder has no {name}",
        location=Location(path=join_path(root, "")),
        expected="files that end in .jpg, .png or another image extension, at any depth",
        found=f"{ignored:,} files that are not images" if ignored else "no files",
        do="pass the folder that contains the images, or unpack them first",
    )


def class_names(classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Class names by id, as given."""
    if classes is None:
        return None
    expected = "a list of unique names, by id"
    return name_list("classes", classes, expected=expected, do='classes=["cat", "dog"]')
