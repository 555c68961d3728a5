"""What the detection sources share: finding images, numbering classes, and building rows with boxes."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from functools import lru_cache
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import as_path, is_utf8_encodable
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem, read_label_items
from rekord.sources.base import (
    PartItem,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SourceRow,
    UnusedInput,
)
from rekord.sources.image_folder import (
    IMAGE_FILES,
    SPLIT_NAMES,
    FileKind,
    ListingSource,
    SourceListing,
    fingerprint,
    is_image_name,
    join_path,
    name_error,
    sort_splits,
    stat_file,
    strip_image_extension,
    to_printable_path,
)
from rekord.storage import raw_files
from rekord.storage.local import read_error

MAX_LABEL_BYTES = 16 << 20
"""The largest annotation file of one image: far above a real one, and small in memory."""

LIST_FOLDERS = ("annotations", "annotation", "labels", "lists", "splits", "split", "imagesets", "meta", "ann", "gt")
_DRIVE_PATTERN = re.compile(r"[A-Za-z]:/")
INTEGER_PATTERN = re.compile(r"0|[1-9]\d{0,9}")
NAMES_FILE_PATTERN = re.compile(
    r"(synsets?|classes|class_?names?|labels?|label_?names?|categories|names)\.(txt|names)|.*\.names"
)
"""Files of class names, one per line."""

HEAD_BYTES = 256 * 1024
LIST_EXTENSIONS = (".csv", ".tsv", ".txt", ".lst")
TEXT_EXTENSIONS = (".txt", ".lst")
SEPARATORS = ",;\t|"
_NUMBERED_NAME = re.compile(r"(\d{1,9})(?:\s*[:,;=]\s*|\s+)(\S.*)")
_MAX_CLASSES = 1 << 16
_MAX_LISTS = 64  # in a folder
_MAX_SAMPLED = 1000  # lines of a list
_MAX_TRIED = 50  # names looked up to decide whether a folder holds the images


class RowEntry(NamedTuple):
    """One row before it is read: its position, and what its source builds it from, or the error that replaces it."""

    path: str
    position: int
    cost_bytes: int
    content: Any | RekordError
    line: int | None = None


class AnnotationSource(ListingSource, ABC):
    """A source of images with boxes. It lists its files once, when a conversion is planned."""

    kind: str
    root: str
    items: tuple[LabelItem, ...] | None

    @abstractmethod
    def row(self, content: Any, context: Any) -> dict[str, Any]:
        """The canonical row of an entry's content. Raises the error of a row that is bad."""

    @abstractmethod
    def options(self) -> Mapping[str, Any]: ...

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        """The rows of a part, in order."""
        context, entries = part.content
        for entry in entries:
            values: Mapping[str, Any] | RekordError
            try:
                if not is_utf8_encodable(entry.path):
                    raise name_error(self.root, entry.path)
                # Whoever reads a row may add to the location of its error: not to the one in the part.
                broken = isinstance(entry.content, RekordError)
                values = copy(entry.content) if broken else self.row(entry.content, context)
            except RekordError as failure:
                values = failure
            yield SourceRow(to_printable_path(entry.path), entry.position, values, entry.line)

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The images of a part. Their boxes come from files that decide other rows too."""
        for entry in part.content[1]:
            files = () if isinstance(entry.content, RekordError) else (entry.path,)
            yield PartItem(entry, files, to_printable_path(entry.path), entry.position)

    def place(self, path: str) -> str:
        """A file below the root, as a user finds it."""
        return join_path(self.root, path)

    def relative(self, path: str) -> str:
        """A path below the root."""
        return relative_path(self.root, path)

    def add_file(self, files: dict[str, os.stat_result], path: str) -> None:
        """Add a file of annotations to those in the fingerprint."""
        facts = stat_file(path)
        if facts is not None:
            files[self.relative(path)] = facts

    def build_listing(
        self,
        entries: Sequence[RowEntry],
        files: Mapping[str, os.stat_result],
        *,
        classes: Mapping[int, str],
        context: Any,
        splits: Iterable[str | None] | None = None,
        has: Sequence[str] = (),
        masks: bool = False,
        unused: Sequence[UnusedInput] = (),
        guesses: Sequence[SourceGuess] = (),
    ) -> SourceListing:
        """The listing of these rows. `classes` are names by id, `has` the optional columns that all boxes have.

        The splits are those of the rows' content, unless others are given.
        """
        if splits is None:
            splits = [entry.content.split for entry in entries if not isinstance(entry.content, RekordError)]
        ids, listed = sorted(classes), to_source_files(files)
        facts = SourceFacts(
            layout="detection",
            classes=tuple([classes[i] for i in ids]),
            class_ids=tuple(ids),
            rows=len(entries),
            source_bytes=sum([file.size_bytes for file in listed]),
            splits=order_splits(splits),
            files=listed,
            unused=tuple(dict.fromkeys(unused)),
            guesses=tuple(dict.fromkeys(guesses)),
            extra={"has": tuple(has), "masks": masks},
        )
        return SourceListing(facts, [(entry, entry.cost_bytes) for entry in sort_entries(entries)], context)

    def build_row(
        self,
        image: str,
        name: str,
        *,
        boxes: Sequence[Sequence[float]],
        labels: Sequence[int],
        class_names: Sequence[str],
        box_names: Sequence[str],
        size: tuple[int | None, int | None] = (None, None),
        split: str | None,
        source_id: str | None = None,
        normalised: bool = False,
    ) -> dict[str, Any]:
        """The values of an image; `size` is the annotated (width, height), boxes are pixels or `normalised`."""
        width, height = size
        values: dict[str, Any] = {
            "image": raw_files.to_path(self.root, image),
            "filename": name,
            "source_id": name if source_id is None else source_id,
            "boxes_normalised" if normalised else "boxes": np.array(boxes, np.float32).reshape(-1, 4),
            "labels": np.array(labels, np.int64),
            "class_names": class_names,
            "box_names": box_names,
        }
        if width and height:
            values |= {"width": width, "height": height}
        if split is not None:
            values["split"] = split
        return values


def sort_entries(entries: Iterable[RowEntry]) -> tuple[RowEntry, ...]:
    """Entries in the order of rows: by the bytes of their paths, then by position."""
    return tuple(sorted(entries, key=lambda entry: (os.fsencode(entry.path), entry.position)))


def to_source_files(files: Mapping[str, os.stat_result]) -> tuple[SourceFile, ...]:
    """The files that the fingerprint is computed from."""
    return fingerprint([SourceFile(path, facts.st_size, facts.st_mtime_ns) for path, facts in files.items()])


def relative_path(root: str, path: str) -> str:
    """A path below the root, separated by "/"."""
    return raw_files.relpath(path, root).replace(os.sep, "/")


def find_image(folder: str, name: str) -> tuple[str, os.stat_result] | None:
    """The file that annotations mean by `name`: below `folder`, and never outside it.

    Names written on another machine are absolute, lead upwards, or have the backslashes of Windows: only their
    last part is looked up. A name without an extension is tried with those of images.
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
        found = stat_image(path)
        if found is not None:
            return found
    return None


def stat_image(path: str, kind: FileKind = IMAGE_FILES) -> tuple[str, os.stat_result] | None:
    """A file; a path that is not named like an image is also tried with the extensions of images."""
    for ending in ("",) if kind.is_name(path) else ("", *kind.endings):
        facts = stat_file(path + ending)
        if facts is not None:
            return path + ending, facts
    return None


def candidate_image_folders(path: str, kind: FileKind = IMAGE_FILES) -> list[str]:
    """Folders that may hold the images of a list, the likeliest first: its own, those of the usual names, others."""
    folder = os.path.dirname(path) or "."
    stem = os.path.splitext(os.path.basename(path))[0]
    own = [re.sub(r"[-_](labels?|export|list|annotations?|gt)$", "", stem), stem]
    inner = [name for one in own for name in (one, f"images/{one}", f"{one}/images", f"{one}_images")]
    usual = ["", *kind.folders, *inner, "train", "data"]
    try:
        with raw_files.scandir(folder) as entries:
            others = sorted([one.name for one in entries if one.is_dir() and not one.name.startswith(".")])
    except OSError:
        others = []
    # Lists in a folder of their own are next to the folder of the images.
    above = [f"../{one}" for one in kind.folders[:3]] if os.path.basename(folder).lower() in LIST_FOLDERS else []
    names = [*usual, *others[:_MAX_TRIED], *above, *([".."] if above else [])]
    places = dict.fromkeys(raw_files.normpath(os.path.join(folder, *one.split("/"))) for one in names)
    return [place for place in places if raw_files.isdir(place)]


def find_image_folder(names: Sequence[str], candidates: Iterable[str]) -> str | None:
    """The folder that has the most of the images, the first of equals; if none has any, the first that exists."""
    folders = [one for one in dict.fromkeys(map(raw_files.normpath, candidates)) if raw_files.isdir(one)]
    tried = names[:_MAX_TRIED]
    counts = [sum([find_image(folder, name) is not None for name in tried]) for folder in folders]
    return folders[counts.index(max(counts))] if folders else None


def strip_folders(path: str, left_off: int) -> str:
    return path.split("/", left_off)[left_off] if left_off else path


def stat_listed(base: str, path: str, kind: FileKind = IMAGE_FILES) -> tuple[str, os.stat_result] | None:
    """A listed file and its path below `base`; None if it does not exist, or the path leads out of `base`."""
    if raw_files.normpath(path).split(os.sep)[0] == "..":
        return None
    found = stat_image(os.path.join(base, path), kind)
    return None if found is None else (path + found[0][len(os.path.join(base, path)) :], found[1])


def find_base(paths: list[str], folders: Sequence[str], kind: FileKind = IMAGE_FILES) -> tuple[str, int]:
    """The folder that listed paths are relative to, and the number of leading folders to drop from them.

    Folders are dropped only if all paths share them and no path exists as it is, so that no path can lead to another
    one's file. Of several folders with images of these names the one with the most is used.
    """
    if not paths or any(stat_listed(folders[0], path, kind) for path in paths):
        return folders[0], 0
    shortest, longest = min(paths), max(paths)
    pairs = zip(shortest.split("/")[:-1], longest.split("/")[:-1], strict=False)
    shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    sample = paths[:_MAX_SAMPLED]
    for count in range(1, min(shared, 64) + 1):
        if any(stat_listed(folders[0], strip_folders(path, count), kind) for path in sample):
            return folders[0], count
    best, found = (folders[0], 0), 0
    for count in range(min(shared, 8) + 1):
        for folder in folders[1:]:
            tried = [strip_folders(path, count) for path in sample[:_MAX_TRIED]]
            there = sum([stat_listed(folder, path, kind) is not None for path in tried])
            if there > found:
                best, found = (folder, count), there
    return best


def read_small_file(path: str, most_bytes: int, code: str) -> bytes:
    """The bytes of a file that is held in memory; one that is implausibly large is refused."""
    try:
        with raw_files.open_binary(path) as file:
            data = file.read(most_bytes + 1)
    except OSError as failure:
        raise read_error(path, failure) from failure
    if len(data) > most_bytes:
        raise error(
            code,
            "annotation file is too large",
            location=Location(path=path),
            expected=f"at most {most_bytes:,} bytes",
            found="more",
            do="check that the file is what its name says, or split it",
        )
    return data


def decode_text(data: bytes, not_utf8: Callable[[int, str], RekordError]) -> str:
    """A text in UTF-8; `not_utf8` makes the error from a line number and the bytes there in hexadecimal."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise not_utf8(line, data[failure.start : failure.start + 8].hex(" ")) from None


def parse_split_name(name: str) -> str | None:
    """The split that a folder or a file is named after: `train2017` and `Train` are train."""
    bare = re.sub(r"[-_]?\d{4}$", "", name.lower())
    return bare if bare in (*SPLIT_NAMES, "trainval") else None


def drop_trainval(splits: Iterable[str]) -> list[str]:
    """The splits to read: not trainval, if there is train or val."""
    names = list(splits)
    return [name for name in names if name != "trainval" or not {"train", "val"} & set(names)]


def order_splits(splits: Iterable[str | None]) -> tuple[str, ...] | None:
    """The splits of all rows, the usual ones first; None if some row has none."""
    found = set(splits)
    if not found or None in found:
        return None
    return sort_splits([name for name in found if name is not None], (*SPLIT_NAMES, "trainval"))


@lru_cache(maxsize=4)
def _listed_file_pattern(kind: FileKind) -> re.Pattern[str]:
    extension = "|".join(map(re.escape, sorted(kind.extensions, key=lambda one: (-len(one), one))))
    return re.compile(rf"(.+?(?:{extension}))(?:\s*[,;|\t]\s*|\s+|$)(.*)", re.IGNORECASE | re.DOTALL)


def split_list_line(line: str, separator: str | None, kind: FileKind = IMAGE_FILES) -> list[str]:
    """An image and the rest of a line: after an image name, else after the first separator or the last space."""
    named = _listed_file_pattern(kind).fullmatch(line)
    if named:
        image, rest = named[1], named[2]
    elif separator is not None:
        image, _, rest = line.partition(separator)
    else:
        image, _, rest = line.rpartition(" ") if " " in line else (line, "", "")
    return [image.strip().strip('"'), rest.strip()]


def find_lists(folder: str, recognize: Callable[[str], bool]) -> dict[str, str | None]:
    """The lists in a folder and in its folders of splits, by path, with their splits.

    Several lists that are not one per split are all without a split.
    """
    found: dict[str, str | None] = {}
    try:
        places = [name for name in sorted(raw_files.listdir(folder)) if name.lower() in SPLIT_NAMES]
        for place in ["", *[name for name in places if raw_files.isdir(os.path.join(folder, name))]]:
            names = sorted(raw_files.listdir(os.path.join(folder, place)), key=os.fsencode)
            stems = {strip_image_extension(name) for name in names if is_image_name(name)}
            # A text file named like an image describes only that image.
            lists = [one for one in names if one.lower().endswith(LIST_EXTENSIONS) and one[:-4] not in stems]
            paths = [os.path.join(place, name) for name in lists[:_MAX_LISTS]]
            found.update({path: split_of_list(path) for path in paths if recognize(os.path.join(folder, path))})
    except OSError as failure:
        raise read_error(folder, failure) from failure
    splits = [split for split in found.values() if split is not None]
    if len(found) > 1 and (len(splits) < len(found) or len(set(splits)) < len(splits)):
        return dict.fromkeys(found)
    kept = drop_trainval(splits)
    return {path: split for path, split in found.items() if split is None or split in kept}


def recognized_lists(folder: str, recognize: Callable[[str], bool]) -> dict[str, str | None]:
    """The list in a folder, or those of its splits, by path; none if there are several that are not one per split."""
    try:
        found = find_lists(folder, recognize)
    except RekordError:
        return {}
    return found if len(found) == 1 or None not in found.values() else {}


def read_list_head(path: str, head: bytes | None = None) -> tuple[str, bool]:
    """The first lines of a list, all of them complete, and whether there are more; none if it cannot be read."""
    if head is None and path.lower().endswith(LIST_EXTENSIONS) and raw_files.isfile(path):  # opening a pipe waits
        with suppress(OSError), raw_files.open_binary(path) as file:
            head = file.read(HEAD_BYTES)
    data = head or b""
    is_cut = len(data) >= HEAD_BYTES
    return (data[: data.rfind(b"\n") + 1] if is_cut else data).decode("utf-8-sig", "surrogateescape"), is_cut


def split_of_list(path: str) -> str | None:
    """The split that a list is named after, or else its folder: `train.txt`, `train_labels.csv`, `train/gt.txt`."""
    folder, name = os.path.split(path)
    for word in (os.path.splitext(name)[0], *re.split(r"[-_.]", name)):
        split = parse_split_name(word)
        if split is not None:
            return split
    return parse_split_name(os.path.basename(folder))


def read_class_names(path: str) -> tuple[str, ...]:
    """The names in a file, one per line, optionally after their ids; none if they are not unique."""
    names = []
    try:
        if raw_files.getsize(path) > MAX_LABEL_BYTES:
            return ()
        with raw_files.open_text(path, "utf-8-sig") as file:
            names = [line.strip() for line in file if line.strip()]
    except (OSError, ValueError):
        return ()
    numbered = [_NUMBERED_NAME.fullmatch(name) for name in names]
    ids = [int(match[1]) for match in numbered if match]
    if ids in (list(range(len(names))), list(range(1, len(names) + 1))):
        names = [match[2] for match in numbered if match]
    listed = _listed_file_pattern(IMAGE_FILES)
    if len(set(names)) < len(names) or len(names) > _MAX_CLASSES or any(map(listed.fullmatch, names)):
        return ()
    return tuple(names)


def find_class_names(folders: Iterable[str]) -> tuple[tuple[str, ...], str | None]:
    """The names in the first file of class names in these folders, and its path."""
    for folder in dict.fromkeys(map(raw_files.normpath, folders)):
        with suppress(OSError):
            for name in sorted(raw_files.listdir(folder), key=os.fsencode):
                path = os.path.join(folder, name)
                if NAMES_FILE_PATTERN.fullmatch(name.lower()) and raw_files.isfile(path):
                    names = read_class_names(path)
                    if names:
                        return names, path
    return (), None


def first_class_id(labels: Iterable[str], names: int) -> int | None:
    """The id of the first class name, 0 or 1, if the labels are ids of these classes."""
    known = list(labels)
    ids = [int(label) for label in known if INTEGER_PATTERN.fullmatch(label)]
    if not ids or len(ids) < len(known):
        return None
    first = 1 if min(ids) == 1 and max(ids) == names else 0
    return first if max(ids) - first < names else None


def load_label_items(path: object) -> tuple[LabelItem, ...] | None:
    """The label map given as an argument, if any."""
    return None if path is None else read_label_items(as_path("label_map", path))


def label_items_to_json(items: tuple[LabelItem, ...] | None) -> list[list[Any]] | None:
    """A label map as JSON."""
    return None if items is None else [[item.id, item.name, item.display_name] for item in items]


def assign_class_ids(names: Sequence[str], items: tuple[LabelItem, ...] | None) -> dict[str, int]:
    """Class ids by name: those of the label map, else from 1 in the order of `names`.

    The label map identifies a class by its name or its display name. A class that it lacks has no id here, and rows
    with it are bad rows.
    """
    if items is None:
        return {name: i for i, name in enumerate(names, 1)}
    ids = {item.name: item.id for item in items}
    for item in items:
        if item.display_name is not None:
            ids.setdefault(item.display_name, item.id)
    return {name: ids[name] for name in names if name in ids}


def class_names_by_id(ids: Mapping[str, int], items: tuple[LabelItem, ...] | None) -> dict[int, str]:
    """The names of all classes by id, including those of the label map that no box has."""
    classes = {} if items is None else {item.id: item.name for item in items}
    classes.update({number: name for name, number in ids.items()})
    return classes


def unknown_class_error(whose: str, name: object, known: str, location: Location) -> RekordError:
    """The error for a box whose class does not exist."""
    return error(
        "E367",
        f"{whose} has an unknown class",
        location=location,
        expected=known,
        found=preview(name),
        do="add the class, or remove the box",
    )


def missing_image_error(name: str, folder: str, location: Location, *, named_folder: bool = True) -> RekordError:
    """The error for an image that is listed and does not exist."""
    do = "add the image, remove it from the list, or name its folder: images=…"
    return error(
        "E366",
        f"listed image {preview(name)} does not exist",
        location=location,
        expected=f"a file in {folder}",
        found="no such file",
        do=do if named_folder else "add the image, or remove it from the list",
    )


def duplicate_image_error(name: str, where: str, location: Location) -> RekordError:
    """The error for an image that was listed before."""
    return error(
        "E370",
        f"image {preview(name)} is listed more than once",
        location=location,
        expected="each image once",
        found=f"the same image in {where}",
        do="remove one of the two entries",
    )


def no_data_error(path: str, what: str, expected: str, found: str, do: str) -> RekordError:
    """The error for a path that has nothing that the source reads."""
    return error("X532", what, location=Location(path=path), expected=expected, found=found, do=do)


def remember_key(taken: dict[str, str], key: str, where: str) -> str | None:
    """Where a key was first seen; None, and now remembered, if it is new."""
    before = taken.get(key)
    if before is None:
        taken[key] = where
    return before
