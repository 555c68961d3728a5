"""YOLO and KITTI folders as rows: one per image, with the boxes of its label file."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from rekord.arguments import as_path, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.base import SourceFile, SourceGuess
from rekord.sources.detection_common import MAX_LABEL_BYTES, AnnotationSource, RowEntry
from rekord.sources.image_folder import (
    SourceListing,
    find_images,
    split_of_folder,
    stat_file,
    strip_image_extension,
    validate_folder,
)
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES


class _LabelledImage(NamedTuple):
    image: str  # below the root
    labels: str | None
    split: str | None


@dataclass(eq=False)
class LabelFileSource(AnnotationSource):
    """A folder of images with a label file each, a line per object."""

    root: str
    items: tuple[LabelItem, ...] | None

    line_syntax: ClassVar[str]  # for messages

    def options(self) -> Mapping[str, Any]:
        return {"label_map": detection.label_items_to_json(self.items)}

    def iter_lines(self, labels: str) -> Iterator[tuple[int, list[str]]]:
        """The words of each line of a label file that has any, and its number."""
        path = self.place(labels)
        text = detection.decode_text(
            detection.read_small_file(os.path.join(self.root, labels), MAX_LABEL_BYTES, "E372"),
            lambda line, found: self.line_error(path, line, "label file is not UTF-8", f"bytes {found}"),
        )
        for line, words in enumerate(text.split("\n"), 1):
            if words.strip():
                yield line, words.split()

    def duplicate_error(self, image: str, first: str) -> RekordError:
        """The error for an image whose label file another image has already."""
        at = Location(path=self.place(image))
        return detection.duplicate_image_error(strip_image_extension(image), self.place(first), at)

    def orphan_entry(self, labels: str) -> RowEntry:
        """The row of a label file without an image."""
        name = preview(strip_image_extension(os.path.basename(labels)[:-4]))
        broken = error(
            "E373",
            "label file has no image",
            location=Location(path=self.place(labels)),
            expected=f"an image named {name}, next to it or in the folder of images",
            found="none",
            do="add the image, or remove the label file",
        )
        return RowEntry(labels, 0, 0, broken)

    def build_label_row(
        self,
        content: _LabelledImage,
        ids: Mapping[str, int],
        objects: Sequence[tuple[int, str, Sequence[float]]],
        *,
        normalised: bool = False,
    ) -> dict[str, Any]:
        """The values of an image, from the line, the class and the box of each object."""
        for line, name, _ in objects:
            if name not in ids:
                at = Location(path=self.place(content.labels or ""), line=line)
                raise detection.unknown_class_error("box", name, "a class of the label map", at)
        return self.build_row(
            content.image,
            content.image,
            boxes=[box for _, _, box in objects],
            labels=[ids[name] for _, name, _ in objects],
            class_names=[name for _, name, _ in objects],
            box_names=[f"line {line:,} of the label file" for line, _, _ in objects],
            split=content.split,
            normalised=normalised,
        )

    @classmethod
    def line_error(cls, path: str, line: int, what: str, found: str, likely: str | None = None) -> RekordError:
        return error(
            "E372",
            what,
            location=Location(path=path, line=line),
            expected=cls.line_syntax,
            found=found if len(found) <= 60 else found[:59] + "…",
            likely=likely,
            do=f"fix line {line:,} of the label file",
        )

    @classmethod
    def parse_numbers(cls, words: Sequence[str], path: str, line: int, text: Sequence[str]) -> list[float]:
        """The numbers of a line, of which `text` are all words."""
        try:
            return [float("" if "_" in word else word) for word in words]  # Python reads 1_0 as ten
        except ValueError:
            raise cls.line_error(path, line, "label has a word that is not a number", " ".join(text)) from None


_MAX_FILE_BYTES = 4 << 20
_MAX_CLASSES = 1 << 20


def read_class_names(root: str) -> tuple[tuple[str, ...] | None, str | None]:
    """Class names by number, with the file that they come from; None if no file has them."""
    for path in _candidate_files(root):
        names: tuple[str, ...] | None
        if _is_yaml(path):
            node = _find_yaml_node(path, "names")
            names = None if node is None else _parse_names(node, path)
        else:
            names = tuple([line.strip() for line in _read_text(path).rstrip().splitlines()])
        if names is not None:
            _check_class_names(names, path)
            return names, path
    return None, None


def read_keypoint_numbers(root: str) -> int | None:
    """The number of keypoint values after every box; None if no YAML file declares keypoints."""
    for path in filter(_is_yaml, _candidate_files(root)):
        node = _find_yaml_node(path, "kpt_shape")
        if node is None:
            continue
        parts = [getattr(part, "value", "") for part in node.value] if isinstance(node.value, list) else []
        if len(parts) != 2 or not str(parts[0]).isdecimal() or len(parts[0]) > 4 or parts[1] not in ("2", "3"):
            raise error(
                "X533",
                "`kpt_shape` is not valid",
                location=Location(path=path, line=node.start_mark.line + 1),
                expected="the number of keypoints, and 2 or 3 values for each: `kpt_shape: [17, 3]`",
                found=preview(node.value if isinstance(node.value, str) else parts),
                do="fix the line, or remove it if labels have no keypoints",
            )
        return int(parts[0]) * int(parts[1])
    return None


def _candidate_files(root: str) -> Iterator[str]:
    names = [entry.name for entry in RAW_FILES.list(root) if entry.kind == "file" and not entry.name.startswith(".")]
    yamls = [name for name in names if _is_yaml(name)]
    yield from [os.path.join(root, name) for name in sorted(yamls, key=lambda name: name != "data.yaml")]
    for folder in ("", "labels", "labels/train", "train/labels"):
        path = os.path.join(root, *folder.split("/"), "classes.txt")
        if raw_files.isfile(path):
            yield path
    yield from [os.path.join(root, name) for name in names if name.lower().endswith((".names", "_darknet.labels"))]
    for split in ("train", "valid", "test"):
        path = os.path.join(root, split, "_darknet.labels")
        if raw_files.isfile(path):
            yield path


def _is_yaml(path: str) -> bool:
    return path.lower().endswith((".yaml", ".yml"))


def _read_text(path: str) -> str:
    return detection.decode_text(
        detection.read_small_file(path, _MAX_FILE_BYTES, "X533"),
        lambda line, found: _class_names_error(path, line, "class names are not UTF-8", f"bytes {found}"),
    )


def _find_yaml_node(path: str, key: str) -> Any:
    """The node under a top-level key of a YAML file; None if there is no such key.

    Nodes are composed and never constructed: tags are ignored, aliases are not expanded, and a class called `no`
    keeps its name.
    """
    import yaml

    text = _read_text(path)
    # Other YAML files may be anything, also templates that no parser accepts.
    if not re.search(rf"^[\"']?{key}[\"']?\s*:", text, re.MULTILINE):
        return None
    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as failure:
        mark = getattr(failure, "context_mark", None) or getattr(failure, "problem_mark", None)
        found = str(getattr(failure, "problem", None) or failure)[:60]
        line = None if mark is None else mark.line + 1
        raise _class_names_error(path, line, "YAML file cannot be parsed", found) from None
    pairs = root.value if isinstance(root, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def _parse_names(node: Any, path: str) -> tuple[str, ...]:
    """The names in a YAML list, or in a map from class numbers."""
    line = node.start_mark.line + 1
    if not isinstance(node.value, list):
        raise _class_names_error(path, line, "`names` is neither a list nor a map", node.value[:60])
    names: dict[int, str] = {}
    for position, item in enumerate(node.value):
        key, name = item if isinstance(item, tuple) else (None, item)
        number = str(position if key is None else key.value)
        if not number.isdecimal() or len(number) > 7 or not isinstance(name.value, str):
            found = "a nested value" if key is None else preview(key.value)
            raise _class_names_error(path, name.start_mark.line + 1, "entry of `names` is not a class", found)
        names[int(number)] = name.value
    if sorted(names) != list(range(len(names))):
        found = f"{len(names):,} names up to {max(names):,}"
        raise _class_names_error(path, line, "numbers in `names` have a gap", found)
    return tuple([names[number] for number in range(len(names))])


def _check_class_names(names: tuple[str, ...], path: str) -> None:
    if not names or not all(names) or len(names) > _MAX_CLASSES:
        raise _class_names_error(path, None, "file has no valid class names", "an empty name" if names else "none")
    duplicate = next((name for name, count in Counter(names).items() if count > 1), None)
    if duplicate is not None:
        raise _class_names_error(path, None, "two classes have the same name", preview(duplicate))


def _class_names_error(path: str, line: int | None, what: str, found: str) -> RekordError:
    return error(
        "X533",
        what,
        location=Location(path=path, line=line),
        expected="class names, each once: `names: [cat, dog]` in YAML, or one per line",
        found=found,
        do="fix the file of class names",
    )


# Text files in folders of labels that are not label files.
_NON_LABEL_NAMES = frozenset(
    ("classes.txt", "train.txt", "val.txt", "valid.txt", "test.txt", "trainval.txt", "notes.txt")
)
_DARKNET_SPLITS = {f"obj_{split}_data": split for split in ("train", "val", "valid", "test")}
_NUMBERS_AS_NAMES = "no file has class names: the classes are named by their numbers"
_MIN_DECIMALS, _MAX_DECIMALS = 3, 9


@check_keywords
def yolo(path: str | os.PathLike[str], *, label_map: str | os.PathLike[str] | None = None) -> YoloSource:
    """Images below a folder with the boxes of their label files.

    The label file of `images/train/1.jpg` is `labels/train/1.txt`, or `images/train/1.txt` if there is no folder
    of labels; `train/images` with `train/labels` is read as well. Folders named like a split are the splits. An
    image without a label file has no boxes.

    Class names come from a YAML file with `names:`, `classes.txt` or a `.names` file; without one, the numbers are
    the names. Class 0 gets id 1, and so on: detection reserves 0 for the background; `label_map` gives ids by name
    instead. Rows have `boxes_normalised`, from 0 to 1. A line with more than two points is an outline, and its box
    encloses it; if the YAML file has a `kpt_shape`, the numbers after a box are keypoints, which are ignored. An
    edge outside the image by no more than the rounding of the written digits is moved to the border.
    """
    return YoloSource(as_path("path", path), detection.load_label_items(label_map))


class _YoloContext(NamedTuple):
    names: tuple[str, ...] | None  # by number; None if the numbers are the names
    ids: dict[str, int]
    keypoints: int | None  # keypoint values after every box


@dataclass(eq=False)
class YoloSource(LabelFileSource):
    kind = "yolo"
    line_syntax = "class cx cy w h, the last four from 0 to 1; or a class and the points of an outline"

    def _list(self) -> SourceListing:
        tree = find_images(validate_folder(self.root))
        if not tree.files:
            raise detection.no_data_error(
                self.root,
                "folder has no images",
                "images/*.jpg and labels/*.txt, at any depth",
                f"{tree.ignored:,} other files",
                "pass the folder that contains images and labels",
            )
        texts = dict(_find_label_files(self.root))
        entries, files = self._entries(tree.files, texts)
        if not any(isinstance(entry.content, _LabelledImage) and entry.content.labels for entry in entries):
            raise detection.no_data_error(
                self.root,
                "no image has a label file",
                "labels/NAME.txt for images/NAME.jpg, or both in the same folder",
                f"{len(tree.files):,} images, no label files",
                "pass the folder that contains images and labels",
            )
        names, name_file = read_class_names(self.root)
        if name_file is not None:
            self.add_file(files, name_file)
        keypoints = read_keypoint_numbers(self.root)
        known = names if names is not None else self._numbers(entries, keypoints)
        ids = detection.assign_class_ids(known, self.items)
        return self.build_listing(
            entries,
            files,
            classes=detection.class_names_by_id(ids, self.items),
            context=_YoloContext(names, ids, keypoints),
            guesses=() if names is not None else (SourceGuess(None, _NUMBERS_AS_NAMES, "label_map=…"),),
        )

    def _entries(
        self, images: tuple[SourceFile, ...], texts: dict[str, os.stat_result]
    ) -> tuple[list[RowEntry], dict[str, os.stat_result]]:
        entries: list[RowEntry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        folders = set()
        for image in images:
            labels = next((path for path in _candidate_label_paths(image.path) if path in texts), None)
            folders.add(image.path.rpartition("/")[0])
            self.add_file(files, os.path.join(self.root, image.path))
            before = None if labels is None else detection.remember_key(taken, labels, image.path)
            content: _LabelledImage | RekordError = _LabelledImage(image.path, labels, _parse_yolo_split(image.path))
            if before is not None:
                content = self.duplicate_error(image.path, before)
            entries.append(RowEntry(image.path, 0, image.size_bytes, content))
        for path, facts in texts.items():
            if path in taken:
                files[path] = facts
            elif _is_orphan(self.root, path, folders):
                entries.append(self.orphan_entry(path))
        return entries, files

    def _numbers(self, entries: list[RowEntry], keypoints: int | None) -> tuple[str, ...]:
        """The numbers of all classes up to the largest one in any label file, as names."""
        most = -1
        for entry in entries:
            if isinstance(entry.content, _LabelledImage) and entry.content.labels is not None:
                try:
                    for one in self._lines(entry.content.labels, keypoints):
                        most = max(most, one.number)
                except RekordError:
                    continue  # reported by its row
        return tuple([str(number) for number in range(most + 1)])

    def _lines(self, labels: str, keypoints: int | None) -> Iterator[_YoloObject]:
        path = self.place(labels)
        for line, words in self.iter_lines(labels):
            yield _parse_yolo_line(words, path, line, keypoints)

    def row(self, content: _LabelledImage, context: _YoloContext) -> dict[str, Any]:
        objects = []
        for one in [] if content.labels is None else list(self._lines(content.labels, context.keypoints)):
            if context.names is not None and one.number >= len(context.names):
                known = f"a class from 0 to {len(context.names) - 1}"
                at = Location(path=self.place(content.labels or ""), line=one.line)
                raise detection.unknown_class_error("box", one.number, known, at)
            name = str(one.number) if context.names is None else context.names[one.number]
            objects.append((one.line, name, one.box))
        return self.build_label_row(content, context.ids, objects, normalised=True)


class _YoloObject(NamedTuple):
    line: int
    number: int
    box: tuple[float, float, float, float]


def _parse_yolo_line(words: list[str], path: str, line: int, keypoints: int | None = None) -> _YoloObject:
    """One object: `class cx cy w h`, or `class x y x y x y …` for an outline.

    With keypoints it is always a box, followed by that many numbers: read as an outline, they would be another box.
    """
    if keypoints is not None and len(words) == 5 + keypoints:
        words = words[:5]
    number, *values = YoloSource.parse_numbers(words, path, line, words)
    if not number.is_integer() or not 0 <= number < _MAX_CLASSES:
        raise YoloSource.line_error(path, line, "label does not start with a class number", words[0])
    if len(values) != 4 and (keypoints is not None or len(values) < 6 or len(values) % 2):
        likely = "the sixth number is a confidence: these are predictions" if len(values) == 5 else None
        raise YoloSource.line_error(
            path, line, "label has the wrong number of values", f"{len(words)} numbers", likely
        )
    decimals = max([len(word.lower().partition("e")[0].partition(".")[2]) for word in words[1:]])
    rounding = 10.0 ** -min(max(decimals, _MIN_DECIMALS), _MAX_DECIMALS)
    wrong = next((value for value in values if not -rounding <= value <= 1 + rounding), None)
    if wrong is not None:
        likely = "these are pixels" if 2 < wrong < 1e6 else None
        raise YoloSource.line_error(path, line, "label is not normalised", f"{wrong:g}", likely)
    if len(values) == 4:
        x, y, width, height = values
        edges = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    else:
        edges = min(values[0::2]), min(values[1::2]), max(values[0::2]), max(values[1::2])
    left, top, right, bottom = [_snap_to_border(edge, rounding) for edge in edges]
    return _YoloObject(line, int(number), (left, top, right, bottom))


def _snap_to_border(edge: float, rounding: float) -> float:
    if -rounding <= edge < 0:
        return 0.0
    return 1.0 if 1 < edge <= 1 + rounding else edge


def _find_label_files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every text file below the root that may be a label file."""
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        identity = RAW_FILES.stat(os.path.join(root, folder)).identity
        if identity in seen:
            continue
        seen.add(identity)
        for entry in RAW_FILES.list(os.path.join(root, folder)):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith("."):
                continue
            if entry.kind == "folder":
                folders.append(path)
            elif entry.name.lower().endswith(".txt") and entry.name.lower() not in _NON_LABEL_NAMES:
                facts = stat_file(os.path.join(root, path))
                if facts is not None:
                    yield path, facts


def _candidate_label_paths(image: str) -> Iterator[str]:
    """Where an image's label file may be: in `labels` instead of the last `images` of its path, or next to it."""
    name = f"{strip_image_extension(image)}.txt"
    parts = name.split("/")
    for i in range(len(parts) - 2, -1, -1):
        if parts[i].lower() == "images":
            yield "/".join([*parts[:i], "labels", *parts[i + 1 :]])
            break
    yield name
    if len(parts) == 1:
        yield f"labels/{name}"


def _parse_yolo_split(path: str) -> str | None:
    for folder in path.lower().split("/")[:-1]:
        split = _DARKNET_SPLITS.get(folder) or detection.parse_split_name(folder)
        if split is not None:
            return split
    return None


def _is_orphan(root: str, path: str, image_folders: set[str]) -> bool:
    """Whether a text file without an image is a label file: it is in a folder of labels, or parses as one."""
    folders = path.split("/")[:-1]
    if "labels" in [folder.lower() for folder in folders]:
        return True
    if "/".join(folders) not in image_folders:
        return False
    try:
        with raw_files.open_binary(os.path.join(root, path)) as file:
            first = file.readline(4096).decode("ascii").split()
        return len(first) >= 5 and _parse_yolo_line(first, path, 1).number >= 0
    except (OSError, ValueError, RekordError):
        return False


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


class _KittiObject(NamedTuple):
    line: int
    name: str
    box: tuple[float, float, float, float]


@dataclass(eq=False)
class KittiSource(LabelFileSource):
    """A line of `training/label_2/000030.txt` describes an object of `training/image_2/000030.png`:

    Car 0.00 0 -1.57 614.24 181.78 727.31 284.77 1.57 1.73 4.15 1.00 1.75 13.22 -1.62
    │   │    │ │     └ left, top, right, bottom  └ height, width, length, x, y, z, rotation, optionally a score
    │   │    │ └ observation angle
    │   │    └ occlusion
    │   └ truncation
    └ class; DontCare marks a region in which objects are not labelled
    """

    kind = "kitti"
    line_syntax = "a class and 14 numbers, the 4th to 7th of which are left, top, right and bottom in pixels"

    def _list(self) -> SourceListing:
        entries: list[RowEntry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        folders: set[str] = set()
        names: set[str] = set()
        has_regions = False
        for image in find_images(validate_folder(self.root)).files:
            labels = find_label_path(image.path)
            if labels is None or not raw_files.isdir(os.path.join(self.root, os.path.dirname(labels))):
                continue
            self.add_file(files, os.path.join(self.root, image.path))
            self.add_file(files, os.path.join(self.root, labels))
            folders.add(os.path.dirname(labels))
            content: _LabelledImage | RekordError = _LabelledImage(image.path, labels, _parse_kitti_split(image.path))
            before = detection.remember_key(taken, labels, image.path)
            try:
                if before is not None:
                    raise self.duplicate_error(image.path, before)
                found = {one.name for one in self._lines(labels)}
                has_regions |= any(map(_is_region, found))
                names |= {name for name in found if not _is_region(name)}
            except RekordError as failure:
                content = failure
            entries.append(RowEntry(image.path, 0, image.size_bytes, content))
        entries += [self.orphan_entry(path) for path in self._find_orphans(folders, taken)]
        if not names:
            raise detection.no_data_error(
                self.root,
                "no image has a label file with objects",
                "image_2/NAME.png and label_2/NAME.txt, at any depth",
                f"{len(entries):,} images next to a folder of labels",
                "pass the folder that contains image_2 and label_2",
            )
        ids = detection.assign_class_ids(tuple(sorted(names)), self.items)
        left_out = "regions of the type DontCare are left out: they are not objects"
        guesses = (SourceGuess(None, left_out),) if has_regions else ()
        classes = detection.class_names_by_id(ids, self.items)
        return self.build_listing(entries, files, classes=classes, context=ids, guesses=guesses)

    def _find_orphans(self, folders: Collection[str], taken: Collection[str]) -> list[str]:
        """The label files in folders of labels that no image has."""
        found = [
            f"{folder}/{entry.name}"
            for folder in folders
            for entry in RAW_FILES.list(os.path.join(self.root, folder))
            if entry.kind == "file" and entry.name.lower().endswith(".txt") and not entry.name.startswith(".")
        ]
        return sorted(set(found) - set(taken))

    def row(self, content: _LabelledImage, context: Mapping[str, int]) -> dict[str, Any]:
        objects = [one for one in self._lines(content.labels or "") if not _is_region(one.name)]
        return self.build_label_row(content, context, objects)

    def _lines(self, labels: str) -> Iterator[_KittiObject]:
        path = self.place(labels)
        if not raw_files.lexists(os.path.join(self.root, labels)):
            raise error(
                "E366",
                "image has no label file",
                location=Location(path=path),
                expected="a label file for every image; an empty one if it has no objects",
                found="no such file",
                do="add the label file, or move the image elsewhere",
            )
        for line, words in self.iter_lines(labels):
            yield _parse_kitti_line(words, path, line)


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
        _parse_kitti_line(first.split(), "", 1)
    except RekordError:
        return False
    return True


def _is_region(name: str) -> bool:
    return name.lower() == _UNLABELLED


def _parse_kitti_split(path: str) -> str | None:
    found = (split_of_folder(folder) for folder in path.split("/")[:-1])
    return next((split for split in found if split is not None), None)


def _parse_kitti_line(words: list[str], path: str, line: int) -> _KittiObject:
    if len(words) not in _LINE_WORDS:
        raise KittiSource.line_error(path, line, "label has the wrong number of values", f"{len(words)} words")
    numbers = KittiSource.parse_numbers(words[1:], path, line, words)
    if not all(map(math.isfinite, numbers)) or not words[0][0].isalpha():
        raise KittiSource.line_error(path, line, "label is not a class and numbers", " ".join(words))
    left, top, right, bottom = numbers[3:7]
    return _KittiObject(line, words[0], (left, top, right, bottom))
