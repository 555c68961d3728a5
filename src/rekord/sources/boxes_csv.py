"""Lists of boxes as rows: CSV or text files with a line per box; a row is an image with all its boxes."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

from rekord.arguments import as_path, check_keywords, invalid
from rekord.codec.images.inspect import inspect_image
from rekord.errors import RekordError, closest_match, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.base import SourceGuess, UnusedInput
from rekord.sources.coco import find_root
from rekord.sources.detection_common import AnnotationSource, RowEntry
from rekord.sources.image_folder import SourceListing, is_image_name, join_path, to_printable_path
from rekord.storage import raw_files

MAX_CSV_BYTES = 2 << 30
_SAMPLE_LINES = 20
_MAX_PIXELS = 1e9
_MAX_NUMERIC_CLASSES = 1 << 16
_MAX_MEASURED = 200  # images whose sizes decide what four numbers mean
_MIN_COMPARISONS = 5

# The usual names of each column, in order of preference, as compared: lower-case letters and digits only.
COLUMN_ALIASES = {
    "file": "filename file imagefile imagefilename image imagepath filepath path img imgpath imagename imageid id",
    "class": "class classname label labelname category categoryname object objectclass name type target",
    "xmin": "xmin x1 x0 left bboxxmin bboxx1 minx",
    "ymin": "ymin y1 y0 top bboxymin bboxy1 miny",
    "xmax": "xmax x2 right bboxxmax bboxx2 maxx",
    "ymax": "ymax y2 bottom bboxymax bboxy2 maxy",
    "width": "width imagewidth imgwidth w",
    "height": "height imageheight imgheight h",
    "split": "split set subset usage",
}
BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")
BoxFormat = Literal["xyxy", "xywh", "center_xywh"]
# Other headers of a box; the sides of one that is found are stored under the names of BOX_SIDES.
_CORNER_ALIASES = ("x bboxx xmin left x1", "y bboxy ymin top y1")
_CENTER_ALIASES = ("xcenter centerx cx xc bboxxcenter", "ycenter centery cy yc bboxycenter")
_SIZE_ALIASES = ("w bboxw bboxwidth boxwidth bw width", "h bboxh bboxheight boxheight bh height")
_BOX_ALIASES = "bbox box boundingbox bndbox"
_NO_CLASS_NAMES = ("", "index", "depth", "source", "confidence", "score", "area")
_ONLY_CLASS = "object"
_YOLO_BOXES = re.compile(r"(-?[\d.]+,){4}\d+(\s+(-?[\d.]+,){4}\d+)*")


@check_keywords
def boxes_csv(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    *,
    label_map: str | os.PathLike[str] | None = None,
    label: str | None = None,
    box_format: BoxFormat | None = None,
) -> BoxesCsvSource:
    """Images with boxes from a CSV or text file with a line per box, in any order.

    Columns are identified by name, in any order and in the usual spellings: filename, class, xmin, ymin, xmax, ymax,
    and optionally width, height and split. Instead of xmax and ymax there may be the width and height of the box, or
    a column `bbox` of four numbers. `label` names the column of the classes; a column of another name is the class if
    it is the only one left. If there is none, all boxes have the class `object`. A line without coordinates is an
    image without boxes. `path` may be a folder with a list per split, such as `train-export.csv`.

    Without a header a line is an image, four numbers, and a class before or after them, separated by commas or
    spaces: `path,x1,y1,x2,y2,class`. A line may also have all boxes of an image: `path x1,y1,x2,y2,class …`. Whether
    the four numbers are x1, y1, x2, y2 or x, y, width, height is decided by all boxes and the sizes of the images,
    and the source is refused if both are possible; `box_format` sets it: "xyxy", "xywh" or "center_xywh".

    `images` is the folder of the images; by default it is searched for around the list. Class ids start at 1, in the
    byte order of the names; if all classes are integers they are the ids, or one less than them if there is a 0, and
    a file such as `classes.txt` next to the list names them. `label_map` gives ids by name instead. Coordinates are
    pixels, unless no number in the file is above 1 and some are fractions: then they are from 0 to 1.
    """
    place = as_path("path", path)
    folder = None if images is None else as_path("images", images)
    if label is not None and not isinstance(label, str):
        raise invalid("label", label, "the name of a column", 'label="species"')
    if box_format not in (None, *get_args(BoxFormat)):
        raise invalid("box_format", box_format, '"xyxy", "xywh" or "center_xywh"', 'box_format="xyxy"')
    items = detection.load_label_items(label_map)
    return BoxesCsvSource(find_root(place, folder), place, folder, items, label, box_format)


def recognize_boxes_csv(path: str, head: bytes | None = None) -> bool:
    """Whether `boxes_csv` reads a file or a folder: by headers, or by images and four numbers in the first lines.

    `head` is the beginning of the file, if it was already read.
    """
    if head is None and raw_files.isdir(path):
        return bool(detection.recognized_lists(path, recognize_boxes_csv))
    text, _ = detection.read_list_head(path, head)
    rows: list[list[str]] = []
    with suppress(RekordError, _UnbalancedQuotes):
        rows += [fields for _, fields in islice(_split_text(text), _SAMPLE_LINES)]
        columns = _find_columns(rows, path, None)
        if columns.yolo:
            return True
        files = [fields[columns.at["file"]] for fields in rows[columns.has_header :] if len(fields) == columns.fields]
        named = sum([is_image_name(name) for name in files])
        folders = detection.candidate_image_folders(path)
        return 2 * named > len(files) or any(detection.find_image(one, n) for one in folders for n in files[:3])
    return False


class _CsvBox(NamedTuple):
    line: int
    name: str
    sides: tuple[float, ...]


class _CsvImage(NamedTuple):
    image: str  # below the root
    name: str
    size: tuple[int | None, int | None]  # width, height
    split: str | None
    boxes: tuple[_CsvBox, ...]
    list: str  # the path of the CSV


class _CsvColumns(NamedTuple):
    at: dict[str, int]
    fields: int  # of a line
    has_header: bool
    box_format: BoxFormat | None = None  # None: to be decided by the boxes
    is_usual: bool = False  # path,x1,y1,x2,y2,class
    yolo: bool = False  # all boxes of an image in a line
    unused: tuple[str, ...] = ()
    guesses: tuple[SourceGuess, ...] = ()


@dataclass(slots=True)
class _ImageLines:
    """The lines of one image."""

    line: int
    boxes: list[_CsvBox]
    size: tuple[int | None, int | None]
    split: str | None
    broken: RekordError | None = None


@dataclass(slots=True)
class _BoxList:
    """A file of boxes: its lines by image, and what was found out about it."""

    path: str
    columns: _CsvColumns
    groups: dict[str, _ImageLines] = field(default_factory=dict)
    failed: list[tuple[int, RekordError]] = field(default_factory=list)  # lines without an image


@dataclass(eq=False)
class BoxesCsvSource(AnnotationSource):
    root: str
    csv: str
    images: str | None
    items: tuple[LabelItem, ...] | None
    label: str | None = None
    box_format: BoxFormat | None = None

    kind = "boxes_csv"

    def options(self) -> Mapping[str, Any]:
        return {
            "csv": self.relative(self.csv),
            "images": None if self.images is None else self.relative(self.images),
            "label_map": detection.label_items_to_json(self.items),
            **({} if self.label is None else {"label": self.label}),
            **({} if self.box_format is None else {"box_format": self.box_format}),
        }

    def _list(self) -> SourceListing:
        files: dict[str, os.stat_result] = {}
        entries: list[RowEntry] = []
        found_at: dict[str, str] = {}
        lists = [(_read_list(path, self.label), split) for path, split in self._find_lists()]
        guesses = [guess for one, _ in lists for guess in one.columns.guesses]
        unused = [UnusedInput("column", name, "not part of a box") for one, _ in lists for name in one.columns.unused]
        for one, split in lists:
            self.add_file(files, one.path)
            own = self.relative(one.path)
            entries += [RowEntry(own, line - 1, 0, broken, line) for line, broken in one.failed]
            names = list(one.groups)
            folder = (
                self.images
                or detection.find_image_folder(names, detection.candidate_image_folders(one.path))
                or os.path.dirname(one.path)
                or "."
            )
            places = {name: detection.find_image(folder, name) for name in names}
            guesses += self._convert_boxes(one, {name: found[0] for name, found in places.items() if found})
            for name, group in one.groups.items():
                broken = group.broken
                found = places[name]
                path = own if found is None else self.relative(found[0])
                if found is None:
                    at = Location(path=one.path, line=group.line)
                    broken = broken or detection.missing_image_error(name, folder, at)
                elif path in found_at:
                    what, expected = "image is listed under two names", "one name per image"
                    broken = broken or _csv_error(
                        one.path, what, expected, preview(found_at[path]), group.line, code="E370"
                    )
                if broken is not None or found is None:
                    entries.append(RowEntry(own, group.line - 1, 0, broken, group.line))
                    continue
                found_at[path] = name
                files[path] = found[1]
                below = detection.relative_path(folder, found[0])
                content = _CsvImage(
                    path, below, group.size, group.split or split, tuple(group.boxes), to_printable_path(one.path)
                )
                entries.append(RowEntry(path, 0, found[1].st_size, content))
        groups = [group for one, _ in lists for group in one.groups.values()]
        names_by_id, names_path = self._name_classes(groups, guesses)
        if names_path is not None:
            self.add_file(files, names_path)
        classes = {box.name for group in groups for box in group.boxes}
        ordered = _order_classes(classes) if names_by_id is None else list(names_by_id.values())
        ids = detection.assign_class_ids(ordered, self.items)
        return self.build_listing(
            entries,
            files,
            classes=detection.class_names_by_id(ids, self.items),
            context=(ids, names_by_id or {}, _has_normalized_boxes(groups)),
            unused=unused,
            guesses=guesses,
        )

    def _find_lists(self) -> list[tuple[str, str | None]]:
        """The files of boxes, with their splits."""
        if not raw_files.isdir(self.csv):
            return [(self.csv, None)]
        lists = detection.find_lists(self.csv, recognize_boxes_csv)
        if not lists or (len(lists) > 1 and None in lists.values()):
            raise detection.no_data_error(
                self.csv,
                "folder has several lists of boxes" if lists else "folder has no list of boxes",
                "one list, or one per split: train.csv, val.csv",
                preview(", ".join(lists)) if lists else "no such file",
                "pass the list itself" + (f": {join_path(self.csv, next(iter(lists)))}" if lists else ""),
            )
        return [(os.path.join(self.csv, path), split) for path, split in lists.items()]

    def _convert_boxes(self, one: _BoxList, paths: Mapping[str, str]) -> list[SourceGuess]:
        """Change all boxes of a list to x1, y1, x2, y2; what was decided for that."""
        chosen, guesses = self.box_format or one.columns.box_format, []
        if chosen is None:
            sized = _measure_boxes(one, paths)
            chosen, because = _choose_format(sized, is_usual=one.columns.is_usual)
            if chosen is None:
                raise _undecided_error(one.path, because)
            sides = "x1, y1, x2, y2" if chosen == "xyxy" else "x, y, width, height"
            guesses = [SourceGuess("boxes", f"boxes are {sides}: {because}", 'box_format="…"')] if because else []
        if chosen != "xyxy":
            for group in one.groups.values():
                group.boxes = [box._replace(sides=_to_corners(box.sides, chosen)) for box in group.boxes]
        return guesses

    def _name_classes(
        self, groups: Iterable[_ImageLines], guesses: list[SourceGuess]
    ) -> tuple[dict[str, str] | None, str | None]:
        """The names of classes that are ids, from a file next to the lists, and that file."""
        folder = self.csv if raw_files.isdir(self.csv) else os.path.dirname(self.csv) or "."
        names, path = detection.find_class_names([folder, self.root])
        labels = {box.name for group in groups for box in group.boxes}
        first = detection.first_class_id(labels, len(names))
        if self.items is not None or path is None or first is None:
            return None, None
        what = f"class names are those of {self.relative(path)}, with ids from {first}"
        guesses.append(SourceGuess("labels", what, "label_map=…"))
        return {str(i): name for i, name in enumerate(names, first)}, path

    def row(self, content: _CsvImage, context: tuple[dict[str, int], dict[str, str], bool]) -> dict[str, Any]:
        ids, names, normalised = context
        class_names = [names.get(box.name, box.name) for box in content.boxes]
        for name, box in zip(class_names, content.boxes, strict=True):
            if name not in ids:
                at = Location(path=content.list, line=box.line)
                raise detection.unknown_class_error("box", name, "a class of the label map", at)
        return self.build_row(
            content.image,
            content.name,
            boxes=[box.sides for box in content.boxes],
            labels=[ids[name] for name in class_names],
            class_names=class_names,
            box_names=[f"line {box.line:,} of the CSV" for box in content.boxes],
            size=content.size,
            split=content.split,
            normalised=normalised,
        )


def _read_list(path: str, label: str | None) -> _BoxList:
    """The boxes of a file, by image."""
    data = detection.read_small_file(path, MAX_CSV_BYTES, "X534")
    text = detection.decode_text(
        data, lambda line, found: _csv_error(path, "CSV is not UTF-8", "text in UTF-8", f"bytes {found}", line)
    )
    del data
    rows = _split_text(text)
    line = 1
    try:
        first = list(islice(rows, _SAMPLE_LINES))
        if not first:
            raise _no_boxes_error(path)
        columns = _find_columns([fields for _, fields in first], path, label, first[0][0])
        found = _BoxList(path, columns)
        for line, fields in chain(first[columns.has_header :], rows):
            broken = _add_line(path, line, fields, columns, found.groups)
            if broken is not None:
                found.failed.append((line, broken))
    except _UnbalancedQuotes as failure:
        raise _csv_error(
            path, "CSV cannot be parsed", "fields with balanced quotes", failure.found, failure.line
        ) from failure
    if not found.groups and not found.failed:
        raise _no_boxes_error(path)
    return found


def _no_boxes_error(path: str) -> RekordError:
    return detection.no_data_error(
        path, "CSV has no boxes", "a line per box, below the header", "no lines", "pass the CSV that has the boxes"
    )


class _UnbalancedQuotes(Exception):
    def __init__(self, line: int, found: str) -> None:
        super().__init__(found)
        self.line, self.found = line, found


def _split_text(text: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line that has any, and its number."""
    first = text[: 2 * detection.HEAD_BYTES].lstrip().partition("\n")[0]
    image, rest = detection.split_list_line(first.strip(), None)
    if is_image_name(image) and (_YOLO_BOXES.fullmatch(rest) or not any(one in first for one in ",;\t")):
        for line, content in enumerate(io.StringIO(text), 1):
            if content.strip():
                image, rest = detection.split_list_line(content.strip(), None)
                yield line, [image, rest] if _YOLO_BOXES.fullmatch(rest) else [image, *rest.split()]
        return
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True, skipinitialspace=True)
    begin = 1
    try:
        for fields in reader:
            line, begin = begin, reader.line_num + 1
            if any(field.strip() for field in fields):
                yield line, [field.strip() for field in fields]
    except csv.Error as failure:
        raise _UnbalancedQuotes(begin, str(failure)[:60]) from failure


def _find_columns(rows: list[list[str]], path: str, label: str | None, line: int = 1) -> _CsvColumns:
    header = rows[0] if rows else []
    if header and is_image_name(header[0]):
        return _find_columns_without_header(rows, path, line)
    folded = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header]

    def find(spellings: str) -> int | None:
        return next((folded.index(one) for one in spellings.split() if one in folded), None)

    sides = [find(COLUMN_ALIASES[side]) for side in BOX_SIDES]
    box_format: BoxFormat | None = "xyxy"
    if sides[2:] == [None, None]:
        # The width and height of the box, unless a box has its own column.
        box = find(_BOX_ALIASES)
        forms: tuple[tuple[BoxFormat, tuple[str, ...]], ...]
        forms = ("center_xywh", _CENTER_ALIASES), ("xywh", _CORNER_ALIASES)
        for name, first in forms:
            places = [find(spellings) for spellings in (*first, *_SIZE_ALIASES)]
            if None not in places:
                box_format, sides = name, places
                break
        else:
            if box is not None:
                box_format, sides = None, [box]
    names = ("box",) if box_format is None else BOX_SIDES
    at = {name: place for name, place in zip(names, sides, strict=True) if place is not None}
    for column in ("file", "class", "width", "height", "split"):
        place = find(COLUMN_ALIASES[column])
        if place is not None and place not in at.values():
            at[column] = place
    guesses = []
    if label is not None:
        if label not in header:
            what, found = f"CSV of boxes has no column `{label[:60]}`", ", ".join(header)[:60] or "no header"
            meant = closest_match(label, header)
            do = f'label="{meant}"' if meant else "use the name of a column"
            raise _csv_error(path, what, "the name of a column", found, line, do=do)
        at["class"] = header.index(label)
    left = [i for i in range(len(header)) if i not in at.values() and folded[i] not in _NO_CLASS_NAMES]
    has_box = "box" in at or all(side in at for side in BOX_SIDES)
    if "class" not in at and len(left) == 1:
        at["class"] = left[0]
        what = f"`{header[left[0]]}` is the class of a box: the only other column"
        guesses.append(SourceGuess("labels", what, 'label="…"'))
    elif "class" not in at and not left and has_box:
        guesses.append(SourceGuess("labels", f"no column is the class of a box: all are `{_ONLY_CLASS}`"))
    missing = [name for name in ("file", *(() if "box" in at else BOX_SIDES)) if name not in at]
    if missing or ("class" not in at and left):
        usual = {"file": "filename"}.get((missing or ["class"])[0], (missing or ["class"])[0])
        raise _csv_error(
            path,
            f"CSV of boxes has no column `{usual}`",
            "filename, class, xmin, ymin, xmax, ymax, in any order",
            ", ".join(header)[:60] or "no header",
            line,
            do=None
            if missing
            else "name the column of the classes: " + ", or ".join(f'label="{header[i]}"' for i in left[:3]),
        )
    unused = [name for i, name in enumerate(header) if i not in at.values() and name]
    return _CsvColumns(at, len(header), True, box_format, unused=tuple(unused), guesses=tuple(guesses))


def _find_columns_without_header(rows: list[list[str]], path: str, line: int) -> _CsvColumns:
    """The columns of lines that begin with an image: four numbers, and a class before or after them, or none."""
    if any(len(fields) == 2 and _YOLO_BOXES.fullmatch(fields[1]) for fields in rows):
        return _CsvColumns({"file": 0}, 2, False, "xyxy", yolo=True)
    width = len(rows[0])
    full = [fields for fields in rows if len(fields) == width and any(fields[1:])]
    numeric = [all(_parse_number(fields[i]) is not None for fields in full) for i in range(width)]
    places = {6: (1, 2), 5: (1,)}.get(width, ())
    fitting = [first for first in places if all(numeric[first : first + 4])]
    if not fitting:
        raise _csv_error(
            path,
            "CSV of boxes has no header",
            "path,x1,y1,x2,y2,class, or a header",
            preview(",".join(rows[0])),
            line,
        )
    if len(fitting) == 2:
        # Classes that are numbers: the four others must be a box in one of the two ways only.
        fitting = [first for first in fitting if all(_is_corners(fields[first : first + 4]) for fields in full)] or [
            1
        ]
    first = fitting[0]
    at = {"file": 0, **{side: first + i for i, side in enumerate(BOX_SIDES)}}
    if width == 5:
        guesses = (SourceGuess("labels", f"lines have no class: all boxes are `{_ONLY_CLASS}`"),)
        return _CsvColumns(at, width, False, guesses=guesses)
    return _CsvColumns({**at, "class": 5 if first == 1 else 1}, width, False, is_usual=first == 1)


def _is_corners(texts: Sequence[str]) -> bool:
    x1, y1, x2, y2 = [_parse_number(text) or 0.0 for text in texts]
    return x2 > x1 and y2 > y1


def _add_line(
    path: str, line: int, fields: list[str], columns: _CsvColumns, groups: dict[str, _ImageLines]
) -> RekordError | None:
    """Add a line to those of its image; the error if it names no image."""

    def line_error(what: str, expected: str, found: str) -> RekordError:
        return _csv_error(path, what, expected, found, line, code="E374")

    at = columns.at
    if len(fields) != columns.fields and not (columns.yolo and len(fields) == 1):
        found = f"{len(fields)} fields, {columns.fields} columns"
        return line_error("row has the wrong number of fields", f"{columns.fields} fields", found)
    name = fields[at["file"]]
    if not name:
        return line_error("row has no image", "the name of an image", preview(name))
    size = tuple([_parse_size(fields[at[side]]) if side in at else None for side in ("width", "height")])
    split = fields[at["split"]].lower() or None if "split" in at else None
    group = groups.setdefault(name, _ImageLines(line, [], (size[0], size[1]), split))
    if group.broken is not None:
        return None
    if (group.size, group.split) != (size, split):
        found = preview(f"{size[0]} × {size[1]}, {split}")
        what = "rows of an image disagree about its size or split"
        group.broken = line_error(what, "the same size and split in all rows", found)
        return None
    if columns.yolo:
        boxes = [one.rpartition(",") for one in fields[1].split()] if len(fields) > 1 else []
        texts_of_boxes = [(sides.split(","), kind) for sides, _, kind in boxes]
    else:
        kind = fields[at["class"]] if "class" in at else _ONLY_CLASS
        listed = re.split(r"[\s,]+", fields[at["box"]].strip("[]() ")) if "box" in at else None
        texts_of_boxes = [(listed or [fields[at[side]] for side in BOX_SIDES], kind)]
    for texts, kind in texts_of_boxes:
        if not any(texts):
            continue
        sides = [_parse_number(text) for text in texts]
        known = [side for side in sides if side is not None]
        if len(known) != 4 or len(sides) != 4:
            expected = "xmin, ymin, xmax and ymax in pixels" if "box" not in at else "four numbers"
            wrong = texts[sides.index(None)] if None in sides else fields[at.get("box", -1)]
            group.broken = line_error("side of a box is not a number", expected, preview(wrong))
        elif not kind:
            group.broken = line_error("box has no class", "a class name", preview(""))
        else:
            group.boxes.append(_CsvBox(line, kind, tuple(known)))
    return None


def _measure_boxes(one: _BoxList, paths: Mapping[str, str]) -> list[tuple[tuple[float, ...], float, float]]:
    """Boxes with the width and height of their image: of the first images, from the list or from the files."""
    if _has_normalized_boxes(one.groups.values()):
        return [(box.sides, 1.0, 1.0) for group in one.groups.values() for box in group.boxes]
    measured = []
    for name, group in islice(one.groups.items(), _MAX_MEASURED):
        size: tuple[float, float] = (group.size[0] or _MAX_PIXELS, group.size[1] or _MAX_PIXELS)
        if None in group.size and name in paths:
            with suppress(RekordError):
                image = inspect_image(raw_files.to_path(paths[name]), name="image", verify="headers")
                size = image.width, image.height
        measured += [(box.sides, *size) for box in group.boxes]
    return measured


def _choose_format(
    boxes: Sequence[tuple[tuple[float, ...], float, float]], *, is_usual: bool
) -> tuple[BoxFormat | None, str]:
    """What four numbers mean, and why; None if the boxes do not decide it.

    A box beyond its image, or without an extent, contradicts a reading. If none does, corners are accepted only if
    several comparisons would be unlikely for a width and a height, which may be smaller than x and y.
    """
    no_corners = no_sizes = comparisons = 0
    for (a, b, c, d), width, height in boxes:
        slack = 0.001 if width == 1 else 1
        no_corners += not (a < c <= width + slack and b < d <= height + slack)
        no_sizes += not (c > 0 and d > 0 and a + c <= width + slack and b + d <= height + slack)
        comparisons += (a > 0) + (b > 0)
    if not boxes:
        return "xyxy", ""
    if not no_corners and no_sizes:
        return "xyxy", f"as x, y, width, height {no_sizes:,} of {len(boxes):,} would be outside of their image"
    if no_corners and not no_sizes and 10 * no_corners >= len(boxes) and not (is_usual and len(boxes) < 4):
        return "xywh", f"as x1, y1, x2, y2 {no_corners:,} of {len(boxes):,} would be empty or outside of their image"
    if not no_corners and comparisons >= _MIN_COMPARISONS:
        return "xyxy", "the third number is above the first, and the fourth above the second, in every box"
    if is_usual:
        return "xyxy", "the usual order without a header"
    if no_corners and no_sizes:
        return None, f"{no_corners:,} boxes are not x1, y1, x2, y2, and {no_sizes:,} not x, y, width, height"
    return None, f"{len(boxes):,} boxes that may be x1, y1, x2, y2 or x, y, width, height"


def _undecided_error(path: str, found: str) -> RekordError:
    return error(
        "X534",
        "meaning of the numbers of a box cannot be determined",
        location=Location(path=path),
        expected="a header, or boxes that only one format allows",
        found=found,
        do='box_format="xyxy" for x1, y1, x2, y2; box_format="xywh" for x, y, width, height',
    )


def _to_corners(sides: tuple[float, ...], box_format: BoxFormat) -> tuple[float, ...]:
    x, y, width, height = sides
    if box_format == "center_xywh":
        x, y = x - width / 2, y - height / 2
    return x, y, x + width, y + height


def _has_normalized_boxes(groups: Iterable[_ImageLines]) -> bool:
    sides = [side for group in groups for box in group.boxes for side in box.sides]
    return bool(sides) and max(sides) <= 1 and any(not side.is_integer() for side in sides)


def _order_classes(classes: set[str]) -> list[str]:
    """Classes in the order of their ids. Integers are the ids; if there is a 0, ids are one higher."""
    if classes and all(detection.INTEGER_PATTERN.fullmatch(name) for name in classes):
        numbers = sorted(map(int, classes))
        if numbers[-1] < _MAX_NUMERIC_CLASSES:
            return [str(number) for number in range(min(numbers[0], 1), numbers[-1] + 1)]
        return [str(number) for number in numbers]
    return sorted(classes, key=os.fsencode)


def _parse_number(text: str) -> float | None:
    try:
        number = float("" if "_" in text else text)  # Python reads 1_0 as ten
    except ValueError:
        return None
    return number if abs(number) < _MAX_PIXELS else None


def _parse_size(text: str) -> int | None:
    number = _parse_number(text)
    return int(number) if number is not None and number >= 1 else None


def _csv_error(
    path: str, what: str, expected: str, found: str, line: int, *, code: str = "X534", do: str | None = None
) -> RekordError:
    return error(
        code,
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=do or f"fix line {line:,} of the CSV",
    )
