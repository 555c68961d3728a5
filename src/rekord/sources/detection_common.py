"""What the detection sources share: the images that annotations name, their classes, and rows cut into parts."""

from __future__ import annotations

import os
import re
import stat as modes
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import as_path, is_utf8_encodable
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem, read_label_items
from rekord.sources.base import PART_BYTES, SourceFacts, SourceFile, SourcePart, SourceRow
from rekord.sources.image_folder import (
    SPLIT_NAMES,
    ListingSource,
    fingerprint,
    group_by_bytes,
    join_path,
    name_error,
    to_printable_path,
)
from rekord.storage.local import read_error

MAX_LABEL_BYTES = 16 << 20
"""The largest file of one image's annotations: far above a real one, and nothing that memory would feel."""

_EXTENSIONS = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".webp", ".gif")
_DRIVE_PATTERN = re.compile(r"[A-Za-z]:/")
_MAX_TRIED = 50  # names that are looked up to tell whether a folder is the one of the images


class RowEntry(NamedTuple):
    """One row to be: where it stands, and what its source needs to make it."""

    path: str
    position: int
    cost_bytes: int
    content: Any
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationListing:
    """All that a source found when it looked at its files."""

    entries: tuple[RowEntry, ...]
    files: tuple[SourceFile, ...]
    classes: Mapping[int, str]  # names by id
    has: tuple[str, ...] = ()  # which values of a box all rows have, beside its class
    masks: bool = False  # whether rows have the outlines of their boxes
    splits: tuple[str, ...] | None = None
    context: Any = None  # what every row needs; small, for it goes into every part


class AnnotationSource(ListingSource, ABC):
    """A source of images with boxes. It looks at its files once, where a conversion is planned."""

    kind: str
    root: str

    @abstractmethod
    def scan(self) -> AnnotationListing:
        """Look at all files, now."""

    @abstractmethod
    def row(self, entry: RowEntry, context: Any) -> dict[str, Any]:
        """The canonical row of an entry, or the error that it deserves."""

    @abstractmethod
    def options(self) -> Mapping[str, Any]: ...

    def facts(self) -> SourceFacts:
        """Look at the files, without reading all rows. Raises where there is nothing to read."""
        listing: AnnotationListing = self._refresh()
        ids = sorted(listing.classes)
        return SourceFacts(
            layout="detection",
            classes=tuple([listing.classes[i] for i in ids]),
            class_ids=tuple(ids),
            rows=len(listing.entries),
            source_bytes=sum([file.size_bytes for file in listing.files]),
            splits=listing.splits,
            files=listing.files,
            extra={"has": listing.has, "masks": listing.masks},
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        """The whole source, cut up in order of its rows' paths."""
        listing: AnnotationListing = self._last_listing()
        sized = ((entry, entry.cost_bytes) for entry in listing.entries)
        return [SourcePart((entries, listing.context), size) for entries, size in group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        """The rows of a part, in order."""
        entries, context = part.content
        for entry in entries:
            values: Mapping[str, Any] | RekordError
            try:
                if not is_utf8_encodable(entry.path):
                    raise name_error(self.root, entry.path)
                values = self.row(entry, context)
            except RekordError as failure:
                values = failure
            yield SourceRow(to_printable_path(entry.path), entry.position, values, entry.line)

    def place(self, path: str) -> str:
        """A file below the root, as a person finds it."""
        return join_path(self.root, path)

    def _list(self) -> AnnotationListing:
        return self.scan()


def sort_entries(entries: Iterable[RowEntry]) -> tuple[RowEntry, ...]:
    """Entries as rows come: by the bytes of their paths, then by position."""
    return tuple(sorted(entries, key=lambda entry: (os.fsencode(entry.path), entry.position)))


def to_source_files(files: Mapping[str, os.stat_result]) -> tuple[SourceFile, ...]:
    """What the fingerprint is made of."""
    return fingerprint([SourceFile(path, facts.st_size, facts.st_mtime_ns) for path, facts in files.items()])


def relative_path(root: str, path: str) -> str:
    """A path as it stands below the root, parted by "/"."""
    return os.path.relpath(path, root).replace(os.sep, "/")


def stat_file(path: str) -> os.stat_result | None:
    """What the system says of a file; None where there is none, or no regular one."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):  # a name out of a file may be anything, a zero byte included
        return None
    return facts if modes.S_ISREG(facts.st_mode) else None


def find_image(folder: str, name: str) -> tuple[str, os.stat_result] | None:
    """The file that annotations mean by `name`: below `folder`, and never outside of it.

    Names that were made on another machine are absolute, lead upwards, or have the backslashes of Windows: of
    those the last part is looked for. A name without an extension is tried with those of images.
    """
    plain = name.replace("\\", "/") if "\\" in name and "/" not in name else name
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if not parts:
        return None
    inside = not plain.startswith("/") and not _DRIVE_PATTERN.match(plain) and ".." not in parts
    tried = ["/".join(parts)] if inside else []
    if parts[-1] not in ("..", *tried):
        tried.append(parts[-1])
    for one in tried:
        path = os.path.join(folder, *one.split("/"))
        endings = ("",) if os.path.splitext(one)[1] else ("", *_EXTENSIONS)
        for ending in endings:
            facts = stat_file(path + ending)
            if facts is not None:
                return path + ending, facts
    return None


def find_image_folder(names: Sequence[str], candidates: Iterable[str]) -> str | None:
    """The first folder that has any of the images; where none has, the first that is there."""
    there = []
    for folder in dict.fromkeys(os.path.normpath(candidate) for candidate in candidates):
        if not os.path.isdir(folder):
            continue
        if any(find_image(folder, name) for name in names[:_MAX_TRIED]):
            return folder
        there.append(folder)
    return there[0] if there else None


def read_small_file(path: str, most_bytes: int, code: str) -> bytes:
    """The bytes of a file that is held in memory; one that is larger than it can be meant to be is refused."""
    try:
        with open(path, "rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as failure:
        raise read_error(path, failure) from failure
    if len(data) > most_bytes:
        raise error(
            code,
            "a file of annotations is too large to be read",
            location=Location(path=path),
            expected=f"at most {most_bytes:,} bytes",
            found="more",
            do="look whether this file is what its name says, or split it",
        )
    return data


def parse_split_name(name: str) -> str | None:
    """The split that the name of a folder or a file says: `train2017` and `Train` are train."""
    bare = re.sub(r"[-_]?\d{4}$", "", name.lower())
    return bare if bare in (*SPLIT_NAMES, "trainval") else None


def drop_trainval(splits: Iterable[str]) -> list[str]:
    """The splits to read: trainval is train and val once more, where these are there."""
    names = list(splits)
    return [name for name in names if name != "trainval" or not {"train", "val"} & set(names)]


def order_splits(splits: Iterable[str | None]) -> tuple[str, ...] | None:
    """The splits of all rows, the usual ones first; None where some row has none."""
    found = set(splits)
    if not found or None in found:
        return None
    names = sorted(name for name in found if name is not None)
    usual = [*SPLIT_NAMES, "trainval"]
    return tuple(sorted(names, key=lambda name: usual.index(name) if name in usual else len(usual)))


def load_label_items(path: object) -> tuple[LabelItem, ...] | None:
    """The label map that was given as an argument, if one was."""
    return None if path is None else read_label_items(as_path("label_map", path))


def label_items_to_json(items: tuple[LabelItem, ...] | None) -> list[list[Any]] | None:
    """A label map as options hold it."""
    return None if items is None else [[item.id, item.name, item.display_name] for item in items]


def assign_class_ids(names: Sequence[str], items: tuple[LabelItem, ...] | None) -> dict[str, int]:
    """The ids of classes by name: those of the label map, else from 1 in the order of `names`.

    The label map knows a class by its name or its display name. A class that it lacks has no id here, and rows
    with it are bad ones.
    """
    if items is None:
        return {name: i for i, name in enumerate(names, 1)}
    ids = {item.name: item.id for item in items}
    for item in items:
        if item.display_name is not None:
            ids.setdefault(item.display_name, item.id)
    return {name: ids[name] for name in names if name in ids}


def class_names_by_id(ids: Mapping[str, int], items: tuple[LabelItem, ...] | None) -> dict[int, str]:
    """The names of all classes by id; those of the label map too that no box has."""
    classes = {} if items is None else {item.id: item.name for item in items}
    classes.update({number: name for name, number in ids.items()})
    return classes


def unknown_class_error(whose: str, name: object, known: str, location: Location) -> RekordError:
    """The error for a box of a class that there is not."""
    return error(
        "E367",
        f"{whose} is of a class that there is not",
        location=location,
        expected=known,
        found=preview(name),
        do="add the class, or take the box out",
    )


def missing_image_error(name: str, folder: str, location: Location, *, named_folder: bool = True) -> RekordError:
    """The error for an image that is listed and not there."""
    return error(
        "E366",
        f"the image {preview(name)} is listed, and it is not there",
        location=location,
        expected=f"a file in {folder}",
        found="no such file",
        do="fetch the image, take it off the list, or name the folder with images="
        if named_folder
        else "fetch the image, or take it off the list",
    )


def duplicate_image_error(name: str, where: str, location: Location) -> RekordError:
    """The error for an image that was there already."""
    return error(
        "E370",
        f"the image {preview(name)} is listed twice",
        location=location,
        expected="each image once",
        found=f"the same one in {where}",
        do="take one of the two off the list",
    )


def no_data_error(path: str, what: str, expected: str, found: str, do: str) -> RekordError:
    """The error for a place that holds nothing of the kind that the source reads."""
    return error("X532", what, location=Location(path=path), expected=expected, found=found, do=do)


def to_box_array(boxes: Sequence[Sequence[float]]) -> Any:
    """Boxes as canonical rows hold them."""
    return np.array(boxes, np.float32).reshape(-1, 4)


def remember_key(taken: dict[str, str], key: str, where: str) -> str | None:
    """Where a key was met before; None, and remembered, where it was not."""
    before = taken.get(key)
    if before is None:
        taken[key] = where
    return before
