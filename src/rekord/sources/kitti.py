"""KITTI folders as rows: one per image, with the boxes of its label file.

A line of `training/label_2/000030.txt` describes an object of `training/image_2/000030.png`:

    Car 0.00 0 -1.57 614.24 181.78 727.31 284.77 1.57 1.73 4.15 1.00 1.75 13.22 -1.62
    │   │    │ │     └ left, top, right, bottom  └ height, width, length, x, y, z, rotation, optionally a score
    │   │    │ └ observation angle
    │   │    └ occlusion
    │   └ truncation
    └ class; DontCare marks a region in which objects are not labelled
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rekord.arguments import as_path, check_keywords
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.base import SourceGuess
from rekord.sources.detection_common import MAX_LABEL_BYTES, AnnotationListing, AnnotationSource, RowEntry
from rekord.sources.image_folder import find_images, split_of_folder, strip_image_extension, validate_folder
from rekord.sources.yolo import orphan_label_error
from rekord.storage.local import LOCAL

_IMAGE_FOLDER = re.compile(r"(?:^|/)image_(\d+)/[^/]+$")
_UNLABELLED = "dontcare"
_LINE_WORDS = (15, 16)  # the last one, if any, is the score of a prediction


@check_keywords
def kitti(path: str | os.PathLike[str], *, label_map: str | os.PathLike[str] | None = None) -> KittiSource:
    """Images with the boxes of KITTI's object detection benchmark: `image_2/NAME.png` and `label_2/NAME.txt`.

    The folders may lie below others: those named like a split are the splits. Images without a folder of labels,
    such as those of `testing`, are not read. Classes are the types of objects, sorted, with ids from 1; `label_map`
    gives ids by name instead. Regions of the type DontCare are not objects and are left out, and so are the
    orientation and the three-dimensional boxes.
    """
    return KittiSource(as_path("path", path), detection.load_label_items(label_map))


class _KittiImage(NamedTuple):
    image: str  # below the root
    labels: str
    split: str | None


class _KittiObject(NamedTuple):
    line: int
    name: str
    box: tuple[float, float, float, float]


@dataclass(eq=False)
class KittiSource(AnnotationSource):
    root: str
    items: tuple[LabelItem, ...] | None

    kind = "kitti"

    def options(self) -> Mapping[str, Any]:
        return {"label_map": detection.label_items_to_json(self.items)}

    def scan(self) -> AnnotationListing:
        entries: list[RowEntry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        folders: set[str] = set()
        names: set[str] = set()
        has_regions = False
        for image in find_images(validate_folder(self.root)).files:
            labels = find_label_path(image.path)
            if labels is None or not os.path.isdir(os.path.join(self.root, os.path.dirname(labels))):
                continue
            self.add_file(files, os.path.join(self.root, image.path))
            self.add_file(files, os.path.join(self.root, labels))
            folders.add(os.path.dirname(labels))
            content: _KittiImage | RekordError = _KittiImage(image.path, labels, _parse_split(image.path))
            before = detection.remember_key(taken, labels, image.path)
            try:
                if before is not None:
                    at = Location(path=self.place(image.path))
                    name = strip_image_extension(image.path)
                    raise detection.duplicate_image_error(name, self.place(before), at)
                found = {one.name for one in self._lines(labels)}
                has_regions |= any(map(_is_region, found))
                names |= {name for name in found if not _is_region(name)}
            except RekordError as failure:
                content = failure
            entries.append(RowEntry(image.path, 0, image.size_bytes, content))
        for path in self._find_orphans(folders, taken):
            entries.append(RowEntry(path, 0, 0, orphan_label_error(path, Location(path=self.place(path)))))
        if not names:
            raise detection.no_data_error(
                self.root,
                "no image has a label file with objects",
                "image_2/NAME.png and label_2/NAME.txt, at any depth",
                f"{len(entries):,} images next to a folder of labels",
                "pass the folder that contains image_2 and label_2",
            )
        ids = detection.assign_class_ids(tuple(sorted(names)), self.items)
        splits = [entry.content.split for entry in entries if isinstance(entry.content, _KittiImage)]
        left_out = "regions of the type DontCare are left out: they are not objects"
        return AnnotationListing(
            entries=detection.sort_entries(entries),
            files=detection.to_source_files(files),
            classes=detection.class_names_by_id(ids, self.items),
            splits=detection.order_splits(splits),
            context=ids,
            guesses=(SourceGuess(None, left_out),) if has_regions else (),
        )

    def _find_orphans(self, folders: Collection[str], taken: Collection[str]) -> list[str]:
        """The label files in folders of labels that no image has."""
        found = [
            f"{folder}/{entry.name}"
            for folder in folders
            for entry in LOCAL.list(os.path.join(self.root, folder))
            if entry.kind == "file" and entry.name.lower().endswith(".txt") and not entry.name.startswith(".")
        ]
        return sorted(set(found) - set(taken))

    def row(self, content: _KittiImage, context: Mapping[str, int]) -> dict[str, Any]:
        objects = [one for one in self._lines(content.labels) if not _is_region(one.name)]
        for one in objects:
            if one.name not in context:
                at = Location(path=self.place(content.labels), line=one.line)
                raise detection.unknown_class_error("box", one.name, "a class of the label map", at)
        return self.build_row(
            content.image,
            content.image,
            boxes=[one.box for one in objects],
            labels=[context[one.name] for one in objects],
            class_names=[one.name for one in objects],
            box_names=[f"line {one.line:,} of the label file" for one in objects],
            split=content.split,
        )

    def _lines(self, labels: str) -> Iterator[_KittiObject]:
        path = self.place(labels)
        full = os.path.join(self.root, labels)
        if not os.path.lexists(full):
            raise error(
                "E366",
                "image has no label file",
                location=Location(path=path),
                expected="a label file for every image; an empty one if it has no objects",
                found="no such file",
                do="add the label file, or move the image elsewhere",
            )
        text = detection.decode_text(
            detection.read_small_file(full, MAX_LABEL_BYTES, "E372"),
            lambda line, found: _line_error(path, line, "label file is not UTF-8", f"bytes {found}"),
        )
        for line, words in enumerate(text.split("\n"), 1):
            if words.strip():
                yield _parse_line(words.split(), path, line)


def find_label_path(image: str) -> str | None:
    """The label file of an image in a folder `image_2`; None for images in other folders."""
    found = _IMAGE_FOLDER.search(image)
    if found is None:
        return None
    folder, _, name = image.rpartition("/")
    above = folder.rpartition("/")[0]
    return f"{above}/" * bool(above) + f"label_{found[1]}/{strip_image_extension(name)}.txt"


def is_label_file(head: bytes) -> bool:
    """Whether the first line of a file is that of a label file."""
    first = next((line for line in head.decode("utf-8", "replace").splitlines() if line.strip()), "")
    try:
        _parse_line(first.split(), "", 1)
    except RekordError:
        return False
    return True


def _is_region(name: str) -> bool:
    return name.lower() == _UNLABELLED


def _parse_split(path: str) -> str | None:
    found = (split_of_folder(folder) for folder in path.split("/")[:-1])
    return next((split for split in found if split is not None), None)


def _parse_line(words: list[str], path: str, line: int) -> _KittiObject:
    if len(words) not in _LINE_WORDS:
        raise _line_error(path, line, "label has the wrong number of values", f"{len(words)} words")
    try:
        if any("_" in word for word in words[1:]):  # Python reads 1_0 as ten
            raise ValueError
        numbers = [float(word) for word in words[1:]]
    except ValueError:
        raise _line_error(path, line, "label has a word that is not a number", " ".join(words)) from None
    if not all(map(math.isfinite, numbers)) or not words[0][0].isalpha():
        raise _line_error(path, line, "label is not a class and numbers", " ".join(words))
    left, top, right, bottom = numbers[3:7]
    return _KittiObject(line, words[0], (left, top, right, bottom))


def _line_error(path: str, line: int, what: str, found: str) -> RekordError:
    return error(
        "E372",
        what,
        location=Location(path=path, line=line),
        expected="a class and 14 numbers, the 4th to 7th of which are left, top, right and bottom in pixels",
        found=found if len(found) <= 60 else found[:59] + "…",
        do=f"fix line {line:,} of the label file",
    )
