"""YOLO folders as rows: one per image, with the boxes of its label file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import as_path, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.base import SourceFile
from rekord.sources.detection_common import MAX_LABEL_BYTES, AnnotationListing, AnnotationSource, RowEntry
from rekord.sources.image_folder import find_images, strip_image_extension, validate_folder
from rekord.storage.local import LOCAL

_MAX_FILE_BYTES = 4 << 20
_MAX_CLASSES = 1 << 20
_KEYPOINT_PATTERN = re.compile(
    r"^kpt_shape[ \t]*:\s*(?:\[\s*(\d{1,4})\s*,\s*([23])\s*\]|-\s*(\d{1,4})\s*\n\s*-\s*([23])\b)",
    re.MULTILINE,
)
_NUMBERED_NAME_PATTERN = re.compile(r"""^(["']?)(\d{1,7})\1\s*:\s*(.*)$""")


def read_class_names(root: str) -> tuple[tuple[str, ...] | None, str | None]:
    """The names by number with the file that they are from; None where no file says them."""
    for path in _candidate_files(root):
        data = detection.read_small_file(path, _MAX_FILE_BYTES, "X533")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as failure:
            line = data.count(b"\n", 0, failure.start) + 1
            raise _class_names_error(path, line, "the names of classes are not UTF-8", "other bytes") from None
        if path.lower().endswith((".yaml", ".yml")):
            names = _parse_yaml_names(text, path)
            if names is None:
                continue
        else:
            lines = [line.strip() for line in text.splitlines()]
            while lines and not lines[-1]:
                lines.pop()
            names = tuple(lines)
        _check_class_names(names, path)
        return names, path
    return None, None


def read_keypoint_numbers(root: str) -> int | None:
    """How many numbers of keypoints follow every box; None where no yaml file says that there are any."""
    for path in _candidate_files(root):
        if not path.lower().endswith((".yaml", ".yml")):
            continue
        text = detection.read_small_file(path, _MAX_FILE_BYTES, "X533").decode("utf-8-sig", "replace")
        begin = re.search(r"^kpt_shape\s*:", text, re.MULTILINE)
        if begin is None:
            continue
        found = _KEYPOINT_PATTERN.search(text)
        if found is None:
            line = text.count("\n", 0, begin.start()) + 1
            raise error(
                "X533",
                "`kpt_shape` cannot be read",
                location=Location(path=path, line=line),
                expected="how many keypoints, and 2 or 3 numbers of each: `kpt_shape: [17, 3]`",
                found=text[begin.start() :].split("\n", 1)[0][:60],
                do="fix the line, or take it out where labels have no keypoints",
            )
        count, each = [int(number) for number in found.groups() if number is not None]
        return count * each
    return None


def _candidate_files(root: str) -> Iterator[str]:
    names = [entry.name for entry in LOCAL.list(root) if entry.kind == "file" and not entry.name.startswith(".")]
    yamls = [name for name in names if name.lower().endswith((".yaml", ".yml"))]
    yield from [os.path.join(root, name) for name in sorted(yamls, key=lambda name: name != "data.yaml")]
    for folder in ("", "labels", "labels/train", "train/labels"):
        path = os.path.join(root, *folder.split("/"), "classes.txt")
        if os.path.isfile(path):
            yield path
    yield from [os.path.join(root, name) for name in names if name.lower().endswith((".names", "_darknet.labels"))]


def _parse_yaml_names(text: str, path: str) -> tuple[str, ...] | None:
    """What stands under `names:`: a list or a map, in lines or in brackets."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = re.match(r"names\s*:(.*)$", line)
        if match is None:
            continue
        rest = _strip_comment(match[1]).strip()
        at = number + 1
        if rest[:1] in ("[", "{"):
            whole = rest + " " + " ".join([_strip_comment(one) for one in lines[at:]])
            return _parse_flow_names(whole, path, at)
        if rest:
            raise _class_names_error(path, at, "`names` is no list and no map", rest[:60])
        return _parse_block_names(lines, at, path)
    return None


def _parse_block_names(lines: list[str], first: int, path: str) -> tuple[str, ...]:
    names: dict[int, str] = {}
    for number, line in enumerate(lines[first:], first + 1):
        bare = _strip_comment(line)
        if not bare.strip():
            continue
        text = bare.strip()
        pair = _NUMBERED_NAME_PATTERN.match(text)
        if text.startswith("- "):
            names[len(names)] = _unquote(text[2:].strip())
        elif pair is not None and bare[0] in " \t":
            names[int(pair[2])] = _unquote(pair[3].strip())
        elif bare[0] in " \t":
            raise _class_names_error(path, number, "a line below `names` is no class", text[:60])
        else:
            break
    return _order_by_number(names, path, first)


def _parse_flow_names(text: str, path: str, line: int) -> tuple[str, ...]:
    is_map = text[0] == "{"
    names: dict[int, str] = {}
    for item in _split_flow_items(text, "}" if is_map else "]", path, line):
        pair = _NUMBERED_NAME_PATTERN.match(item)
        if not is_map:
            names[len(names)] = _unquote(item)
        elif pair is not None:
            names[int(pair[2])] = _unquote(pair[3].strip())
        else:
            raise _class_names_error(path, line, "a pair in `names` is no number and name", item[:60])
    return _order_by_number(names, path, line)


def _split_flow_items(text: str, closing: str, path: str, line: int) -> Iterator[str]:
    """What stands between the commas of a bracket; a comma inside quotes parts nothing."""
    begin, quote = 1, ""
    for at in range(1, len(text)):
        letter = text[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and at - begin < 16 and not text[begin:at].strip(" 0123456789:"):
            quote = letter
        elif letter in (",", closing):
            item = text[begin:at].strip()
            if item:
                yield item
            if letter == closing:
                return
            begin = at + 1
    raise _class_names_error(path, line, "the brackets of `names` do not close", text[begin : begin + 40])


def _order_by_number(names: dict[int, str], path: str, line: int) -> tuple[str, ...]:
    if sorted(names) != list(range(len(names))):
        raise _class_names_error(
            path, line, "the numbers of `names` have a gap", f"{len(names):,} names up to {max(names):,}"
        )
    return tuple([names[number] for number in range(len(names))])


def _strip_comment(line: str) -> str:
    """A line of yaml without its comment."""
    return re.sub(r"(^|\s)#.*$", "", line).rstrip()


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _check_class_names(names: tuple[str, ...], path: str) -> None:
    if not names or not all(names) or len(names) > _MAX_CLASSES:
        raise _class_names_error(
            path, None, "there are no usable names of classes", "none" if not names else "an empty name"
        )
    if len(set(names)) < len(names):
        first: set[str] = set()
        twice = next(name for name in names if name in first or first.add(name))  # type: ignore[func-returns-value]
        raise _class_names_error(path, None, "two classes have one name", repr(twice)[:60])


def _class_names_error(path: str, line: int | None, what: str, found: str) -> RekordError:
    return error(
        "X533",
        what,
        location=Location(path=path, line=line),
        expected="the names of classes, each once: `names: [cat, dog]` in yaml, or one a line",
        found=found,
        do="fix the file of names",
    )


# Texts that lie in the folders of labels and are none.
_NON_LABEL_NAMES = frozenset(
    ("classes.txt", "train.txt", "val.txt", "valid.txt", "test.txt", "trainval.txt", "notes.txt")
)
_DARKNET_SPLITS = {"obj_train_data": "train", "obj_valid_data": "valid", "obj_test_data": "test"}
_MIN_DECIMALS, _MAX_DECIMALS = 3, 9


@check_keywords
def yolo(path: str | os.PathLike[str], *, label_map: str | os.PathLike[str] | None = None) -> YoloSource:
    """The images below a folder with the boxes of their label files.

    The label file of `images/train/1.jpg` is `labels/train/1.txt`, or `images/train/1.txt` where there is no
    folder of labels; `train/images` with `train/labels` is read as well. Folders called like a split are the
    splits. An image without a label file has no boxes.

    Names of classes come from a yaml file with `names:`, `classes.txt` or a `.names` file; where there is none,
    the numbers are the names. Class 0 gets the id 1, and so on: detection keeps 0 for the background;
    `label_map` gives ids by name instead. Rows have `boxes_normalised`, from 0 to 1. A line with more than two
    points is an outline, and its box is what encloses it; where the yaml file has a `kpt_shape`, what follows a
    box are keypoints, which are not read. An edge that leaves the image by no more than the
    rounding of the written digits is put back on the border.
    """
    return YoloSource(as_path("path", path), detection.load_label_items(label_map))


class _YoloImage(NamedTuple):
    image: str  # below the root
    labels: str | None
    split: str | None


class _InvalidYoloRow(NamedTuple):
    """A row that there is not: labels without an image, or a second image for one label file."""

    kind: str
    file: str
    other: str


class _YoloContext(NamedTuple):
    names: tuple[str, ...] | None  # by number; None where the numbers are the names
    ids: dict[str, int]
    keypoints: int | None  # numbers that follow every box


@dataclass(eq=False)
class YoloSource(AnnotationSource):
    root: str
    items: tuple[LabelItem, ...] | None

    kind = "yolo"

    def options(self) -> Mapping[str, Any]:
        return {"label_map": detection.label_items_to_json(self.items)}

    def scan(self) -> AnnotationListing:
        tree = find_images(validate_folder(self.root))
        if not tree.files:
            raise detection.no_data_error(
                self.root,
                "no images here",
                "images/*.jpg and labels/*.txt, at any depth",
                f"{tree.ignored:,} other files",
                "name the folder that has images and labels in it",
            )
        texts = dict(_find_label_files(self.root))
        entries, files = self._entries(tree.files, texts)
        if not any(isinstance(entry.content, _YoloImage) and entry.content.labels for entry in entries):
            raise detection.no_data_error(
                self.root,
                "no image here has a label file",
                "labels/NAME.txt for images/NAME.jpg, or the two beside each other",
                f"{len(tree.files):,} images and none",
                "name the folder that has images and labels in it",
            )
        names, name_file = read_class_names(self.root)
        if name_file is not None:
            facts = detection.stat_file(name_file)
            if facts is not None:
                files[os.path.relpath(name_file, self.root).replace(os.sep, "/")] = facts
        keypoints = read_keypoint_numbers(self.root)
        known = names if names is not None else self._numbers(entries, keypoints)
        ids = detection.assign_class_ids(known, self.items)
        return AnnotationListing(
            entries=detection.sort_entries(entries),
            files=detection.to_source_files(files),
            classes=detection.class_names_by_id(ids, self.items),
            splits=detection.order_splits(
                [entry.content.split for entry in entries if isinstance(entry.content, _YoloImage)]
            ),
            context=_YoloContext(names, ids, keypoints),
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
            facts = detection.stat_file(os.path.join(self.root, image.path))
            if facts is not None:
                files[image.path] = facts
            before = None if labels is None else detection.remember_key(taken, labels, image.path)
            content: _YoloImage | _InvalidYoloRow = _YoloImage(image.path, labels, _parse_split(image.path))
            if before is not None:
                content = _InvalidYoloRow("twice", image.path, before)
            entries.append(RowEntry(image.path, 0, image.size_bytes, content))
        for path, facts in texts.items():
            if path in taken:
                files[path] = facts
            elif _is_orphan(self.root, path, folders):
                entries.append(RowEntry(path, 0, 0, _InvalidYoloRow("orphan", path, "")))
        return entries, files

    def _numbers(self, entries: list[RowEntry], keypoints: int | None) -> tuple[str, ...]:
        """The numbers of all classes up to the greatest one in any label file, as names."""
        most = -1
        for entry in entries:
            if isinstance(entry.content, _YoloImage) and entry.content.labels is not None:
                try:
                    for one in self._lines(entry.content.labels, keypoints):
                        most = max(most, one.number)
                except RekordError:
                    continue  # its row will say so
        return tuple([str(number) for number in range(most + 1)])

    def _lines(self, labels: str, keypoints: int | None) -> Iterator[_YoloObject]:
        path = self.place(labels)
        data = detection.read_small_file(os.path.join(self.root, labels), MAX_LABEL_BYTES, "E372")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as failure:
            line = data.count(b"\n", 0, failure.start) + 1
            found = data[failure.start : failure.start + 8].hex(" ")
            raise _line_error(path, line, "a label file is not UTF-8", found) from None
        for line, words in enumerate(text.split("\n"), 1):
            if words.strip():
                yield _parse_line(words.split(), path, line, keypoints)

    def row(self, entry: RowEntry, context: _YoloContext) -> dict[str, Any]:
        content = entry.content
        if isinstance(content, _InvalidYoloRow):
            raise self._refused(content)
        boxes, labels, names, whose = [], [], [], []
        lines = () if content.labels is None else self._lines(content.labels, context.keypoints)
        for one in lines:
            at = Location(path=self.place(content.labels), line=one.line)
            if context.names is not None and one.number >= len(context.names):
                raise detection.unknown_class_error(
                    "a box", one.number, f"a class from 0 to {len(context.names) - 1}", at
                )
            name = str(one.number) if context.names is None else context.names[one.number]
            if name not in context.ids:
                raise detection.unknown_class_error("a box", name, "a class of the label map", at)
            boxes.append(one.box)
            labels.append(context.ids[name])
            names.append(name)
            whose.append(f"line {one.line:,} of its label file")
        values = {
            "image": Path(self.root) / content.image,
            "filename": content.image,
            "source_id": content.image,
            "boxes_normalised": detection.to_box_array(boxes),
            "labels": np.array(labels, np.int64),
            "class_names": names,
            "box_names": whose,
        }
        if content.split is not None:
            values["split"] = content.split
        return values

    def _refused(self, bad: _InvalidYoloRow) -> RekordError:
        at = Location(path=self.place(bad.file))
        if bad.kind == "twice":
            return detection.duplicate_image_error(strip_image_extension(bad.file), self.place(bad.other), at)
        return error(
            "E373",
            "labels have no image",
            location=at,
            expected=f"an image called {preview(strip_image_extension(os.path.basename(bad.file)[:-4]))} "
            "beside, or below images",
            found="none",
            do="fetch the image, or take the label file away",
        )


class _YoloObject(NamedTuple):
    line: int
    number: int
    box: tuple[float, float, float, float]


def _parse_line(words: list[str], path: str, line: int, keypoints: int | None = None) -> _YoloObject:
    """One object: `class cx cy w h`, or `class x y x y x y …` for an outline.

    With keypoints it is always a box, and so many numbers follow: taken for an outline, they would be another box.
    """
    if keypoints is not None and len(words) == 5 + keypoints:
        words = words[:5]
    try:
        if any("_" in word for word in words):  # to Python 1_0 is ten
            raise ValueError
        number, values = float(words[0]), [float(word) for word in words[1:]]
    except ValueError:
        raise _line_error(
            path, line, "a line of a label file has a word that is no number", " ".join(words)
        ) from None
    if not number.is_integer() or not 0 <= number < _MAX_CLASSES:
        raise _line_error(path, line, "a line of a label file begins with no class", words[0])
    if len(values) != 4 and (keypoints is not None or len(values) < 6 or len(values) % 2):
        likely = "the sixth number is a confidence: these are predictions" if len(values) == 5 else None
        raise _line_error(
            path,
            line,
            "a line of a label file has a number too many or too few",
            f"{len(words)} numbers",
            likely,
        )
    decimals = max([len(word.lower().partition("e")[0].partition(".")[2]) for word in words[1:]])
    rounding = 10.0 ** -min(max(decimals, _MIN_DECIMALS), _MAX_DECIMALS)
    wrong = next((value for value in values if not -rounding <= value <= 1 + rounding), None)
    if wrong is not None:
        likely = "these are pixels" if 2 < wrong < 1e6 else None
        raise _line_error(path, line, "a line of a label file is not normalised", f"{wrong:g}", likely)
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


def _line_error(path: str, line: int, what: str, found: str, likely: str | None = None) -> RekordError:
    return error(
        "E372",
        what,
        location=Location(path=path, line=line),
        expected="class cx cy w h, the last four from 0 to 1; or class and the points of an outline",
        found=found if len(found) <= 60 else found[:59] + "…",
        likely=likely,
        do=f"fix line {line:,} of the label file",
    )


def _find_label_files(root: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every text file below the root that can be a label file."""
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        identity = LOCAL.stat(os.path.join(root, folder)).identity
        if identity in seen:
            continue
        seen.add(identity)
        for entry in LOCAL.list(os.path.join(root, folder)):
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.name.startswith("."):
                continue
            if entry.kind == "folder":
                folders.append(path)
            elif entry.name.lower().endswith(".txt") and entry.name.lower() not in _NON_LABEL_NAMES:
                facts = detection.stat_file(os.path.join(root, path))
                if facts is not None:
                    yield path, facts


def _candidate_label_paths(image: str) -> Iterator[str]:
    """Where the label file of an image may be: in `labels` for the last `images` of its path, else beside it."""
    name = f"{strip_image_extension(image)}.txt"
    parts = name.split("/")
    for i in range(len(parts) - 2, -1, -1):
        if parts[i].lower() == "images":
            yield "/".join([*parts[:i], "labels", *parts[i + 1 :]])
            break
    yield name
    if len(parts) == 1:
        yield f"labels/{name}"


def _parse_split(path: str) -> str | None:
    for folder in path.lower().split("/")[:-1]:
        split = _DARKNET_SPLITS.get(folder) or detection.parse_split_name(folder)
        if split is not None:
            return split
    return None


def _is_orphan(root: str, path: str, image_folders: set[str]) -> bool:
    """Whether a text that no image has is a label file: it lies among labels, or reads like one."""
    folders = path.split("/")[:-1]
    if "labels" in [folder.lower() for folder in folders]:
        return True
    if "/".join(folders) not in image_folders:
        return False
    try:
        with open(os.path.join(root, path), "rb") as file:
            first = file.readline(4096).decode("ascii").split()
        return len(first) >= 5 and _parse_line(first, path, 1).number >= 0
    except (OSError, ValueError, RekordError):
        return False
