"""A CSV of boxes as rows: one an image, with the boxes of all its lines."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rekord.arguments import as_path, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.coco import find_root
from rekord.sources.detection_common import AnnotationListing, AnnotationSource, RowEntry
from rekord.sources.image_folder import is_image_name

MAX_CSV_BYTES = 2 << 30
_MAX_PIXELS = 1e9
_MAX_NUMERIC_CLASSES = 1 << 16
_INTEGER_PATTERN = re.compile(r"0|[1-9]\d{0,9}")

# The usual names of each column, folded: small letters and digits alone. The first that is there is taken.
_COLUMN_ALIASES = {
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
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@check_keywords
def boxes_csv(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    *,
    label_map: str | os.PathLike[str] | None = None,
) -> BoxesCsvSource:
    """The images that a CSV names with the boxes of their lines, which need not stand together.

    Columns are known by their names, in any order and in the usual spellings: filename, class, xmin, ymin,
    xmax, ymax, and where they are there width, height and split. A column of another name is the class where
    it is the only one left. Without a header a line is `path,x1,y1,x2,y2,class`. A line without coordinates
    is an image without boxes.

    `images` is the folder of the images, guessed around the CSV where it is not given. Classes get ids from 1
    in the order of their names' bytes; where all are whole numbers these are the ids, or one less than them where
    there is a 0. `label_map` gives ids by name instead. Coordinates are pixels, except
    where no number in the file is above 1 and some are fractions: then they are from 0 to 1.
    """
    place = as_path("path", path)
    folder = None if images is None else as_path("images", images)
    return BoxesCsvSource(find_root(place, folder), place, folder, detection.load_label_items(label_map))


class _CsvBox(NamedTuple):
    line: int
    name: str
    sides: tuple[float, ...]


class _CsvImage(NamedTuple):
    image: str  # below the root
    name: str
    width: int | None
    height: int | None
    split: str | None
    boxes: tuple[_CsvBox, ...]


class _InvalidCsvRow(NamedTuple):
    """A row that there is not; its error is made where the row is read."""

    kind: str
    name: str
    found: str
    line: int


class _CsvColumns(NamedTuple):
    at: dict[str, int]
    fields: int  # of a line
    has_header: bool


@dataclass(slots=True)
class _ImageLines:
    """The lines of one image, as they are met."""

    line: int
    boxes: list[_CsvBox]
    size: tuple[int | None, int | None]
    split: str | None
    bad: _InvalidCsvRow | None = None


@dataclass(eq=False)
class BoxesCsvSource(AnnotationSource):
    root: str
    csv: str
    images: str | None
    items: tuple[LabelItem, ...] | None

    kind = "boxes_csv"

    def options(self) -> Mapping[str, Any]:
        images = None if self.images is None else detection.relative_path(self.root, self.images)
        return {
            "csv": detection.relative_path(self.root, self.csv),
            "images": images,
            "label_map": detection.label_items_to_json(self.items),
        }

    def scan(self) -> AnnotationListing:
        groups: dict[str, _ImageLines] = {}
        entries: list[RowEntry] = []
        own = detection.relative_path(self.root, self.csv)
        for line, fields, columns in _read_lines(self.csv):
            bad = _add_line(line, fields, columns, groups)
            if bad is not None:
                entries.append(RowEntry(own, line - 1, 0, bad, line))
        if not groups and not entries:
            raise detection.no_data_error(
                self.csv,
                "there are no boxes in this CSV",
                "a line for each box, below the header",
                "no lines",
                "name the CSV that has the boxes",
            )
        folder = (
            self.images
            or detection.find_image_folder(list(groups), _candidate_folders(self.csv))
            or os.path.dirname(self.csv)
            or "."
        )
        files: dict[str, os.stat_result] = {}
        facts = detection.stat_file(self.csv)
        if facts is not None:
            files[own] = facts
        found_at: dict[str, str] = {}
        splits: list[str | None] = []
        for name, group in groups.items():
            bad = group.bad
            found = detection.find_image(folder, name)
            path = own if found is None else detection.relative_path(self.root, found[0])
            if found is None:
                bad = bad or _InvalidCsvRow("missing", name, folder, group.line)
            elif path in found_at:
                bad = bad or _InvalidCsvRow("twice", name, found_at[path], group.line)
            if bad is not None or found is None:
                entries.append(RowEntry(own, group.line - 1, 0, bad, group.line))
                continue
            found_at[path] = name
            files[path] = found[1]
            splits.append(group.split)
            content = _CsvImage(
                path, detection.relative_path(folder, found[0]), *group.size, group.split, tuple(group.boxes)
            )
            entries.append(RowEntry(path, 0, found[1].st_size, content))
        classes = {box.name for group in groups.values() for box in group.boxes}
        ids = detection.assign_class_ids(_order_classes(classes), self.items)
        return AnnotationListing(
            entries=detection.sort_entries(entries),
            files=detection.to_source_files(files),
            classes=detection.class_names_by_id(ids, self.items),
            splits=detection.order_splits(splits),
            context=(ids, _has_normalized_boxes(groups.values())),
        )

    def row(self, entry: RowEntry, context: tuple[dict[str, int], bool]) -> dict[str, Any]:
        content = entry.content
        if isinstance(content, _InvalidCsvRow):
            raise self._refused(content)
        ids, normalised = context
        for box in content.boxes:
            if box.name not in ids:
                at = Location(path=self.csv, line=box.line)
                raise detection.unknown_class_error("a box", box.name, "a class of the label map", at)
        values: dict[str, Any] = {
            "image": Path(self.root) / content.image,
            "filename": content.name,
            "source_id": content.name,
            "boxes_normalised" if normalised else "boxes": detection.to_box_array(
                [box.sides for box in content.boxes]
            ),
            "labels": np.array([ids[box.name] for box in content.boxes], np.int64),
            "class_names": [box.name for box in content.boxes],
            "box_names": [f"line {box.line:,} of the CSV" for box in content.boxes],
        }
        if content.width is not None and content.height is not None:
            values.update({"width": content.width, "height": content.height})
        if content.split is not None:
            values["split"] = content.split
        return values

    def _refused(self, bad: _InvalidCsvRow) -> RekordError:
        at = Location(path=self.csv, line=bad.line)
        if bad.kind == "missing":
            return detection.missing_image_error(bad.name, bad.found, at)
        what, expected, code = {
            "twice": ("an image is listed by two names", "one name for each image", "E370"),
            "fields": (
                "a line has another number of fields than the header",
                "as many fields as columns",
                "E374",
            ),
            "file": ("a line names no image", "the name of an image", "E374"),
            "class": ("a box has no class", "the name of a class", "E374"),
            "number": ("a side of a box is no number", "xmin, ymin, xmax and ymax in pixels", "E374"),
            "size": ("the lines of an image disagree about its size or split", "one for all lines", "E374"),
        }[bad.kind]
        return error(
            code,
            what,
            location=at,
            expected=expected,
            found=bad.found if bad.kind == "fields" else preview(bad.found),
            do=f"fix line {bad.line:,} of the CSV",
        )


def _read_lines(path: str) -> Iterator[tuple[int, list[str], _CsvColumns]]:
    """Every line below the header: where it begins, its fields, and the columns."""
    data = detection.read_small_file(path, MAX_CSV_BYTES, "X534")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        found = data[failure.start : failure.start + 8].hex(" ")
        raise _csv_error(path, "a CSV is not UTF-8", "a text in UTF-8", found, line) from None
    del data
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: _CsvColumns | None = None
    begin = 1
    try:
        for fields in reader:
            line, begin = begin, reader.line_num + 1
            if not any(field.strip() for field in fields):
                continue
            if columns is None:
                columns = _find_columns([field.strip() for field in fields], path, line)
                if columns.has_header:
                    continue
            yield line, [field.strip() for field in fields], columns
    except csv.Error as failure:
        raise _csv_error(
            path, "a CSV cannot be parsed", "fields, quoted in pairs", str(failure)[:60], begin
        ) from failure


def _find_columns(header: list[str], path: str, line: int) -> _CsvColumns:
    if (
        len(header) == 6
        and is_image_name(header[0])
        and all(_parse_number(one) is not None or not one for one in header[1:5])
    ):
        order = ("file", *_SIDES, "class")
        return _CsvColumns({name: i for i, name in enumerate(order)}, 6, False)
    folded = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header]
    at: dict[str, int] = {}
    for column, spellings in _COLUMN_ALIASES.items():
        place = next((folded.index(one) for one in spellings.split() if one in folded), None)
        if place is not None and place not in at.values():
            at[column] = place
    left = [i for i in range(len(header)) if i not in at.values() and folded[i] not in ("depth", "", "index")]
    if "class" not in at and len(left) == 1:
        at["class"] = left[0]
    missing = [name for name in ("file", "class", *_SIDES) if name not in at]
    if missing:
        usual = {"file": "filename"}.get(missing[0], missing[0])
        raise _csv_error(
            path,
            f"a table of boxes has no column `{usual}`",
            "filename, class, xmin, ymin, xmax, ymax, in any order",
            ", ".join(header)[:60] or "no header",
            line,
        )
    return _CsvColumns(at, len(header), True)


def _add_line(
    line: int, fields: list[str], columns: _CsvColumns, groups: dict[str, _ImageLines]
) -> _InvalidCsvRow | None:
    """Put a line with those of its image; where it names none, say what is wrong with it."""
    at = columns.at
    if len(fields) != columns.fields:
        return _InvalidCsvRow("fields", "", f"{len(fields)} fields, {columns.fields} columns", line)
    name = fields[at["file"]]
    if not name:
        return _InvalidCsvRow("file", "", name, line)
    size = tuple([_parse_size(fields[at[side]]) if side in at else None for side in ("width", "height")])
    split = fields[at["split"]].lower() or None if "split" in at else None
    group = groups.setdefault(name, _ImageLines(line, [], (size[0], size[1]), split))
    if group.bad is not None:
        return None
    if (group.size, group.split) != (size, split):
        group.bad = _InvalidCsvRow("size", name, f"{size[0]} × {size[1]}, {split}", line)
        return None
    texts = [fields[at[side]] for side in _SIDES]
    if not any(texts):
        return None
    sides = [_parse_number(text) for text in texts]
    known = [side for side in sides if side is not None]
    if len(known) < 4:
        group.bad = _InvalidCsvRow("number", name, texts[sides.index(None)], line)
    elif not fields[at["class"]]:
        group.bad = _InvalidCsvRow("class", name, "", line)
    else:
        group.boxes.append(_CsvBox(line, fields[at["class"]], tuple(known)))
    return None


def _has_normalized_boxes(groups: Iterable[_ImageLines]) -> bool:
    sides = [side for group in groups for box in group.boxes for side in box.sides]
    return bool(sides) and max(sides) <= 1 and any(not side.is_integer() for side in sides)


def _order_classes(classes: set[str]) -> list[str]:
    """Classes in the order of their ids. Numbers are ids already; where there is a 0, ids are one higher."""
    if classes and all(_INTEGER_PATTERN.fullmatch(name) for name in classes):
        numbers = sorted(map(int, classes))
        if numbers[-1] < _MAX_NUMERIC_CLASSES:
            return [str(number) for number in range(min(numbers[0], 1), numbers[-1] + 1)]
        return [str(number) for number in numbers]
    return sorted(classes, key=os.fsencode)


def _candidate_folders(path: str) -> Sequence[str]:
    """Where the images of a CSV may lie, the likeliest place first."""
    folder = os.path.dirname(path) or "."
    name = os.path.splitext(os.path.basename(path))[0].removesuffix("_labels")
    inner = ("", "images", "JPEGImages", "img", "imgs", "Images", name, f"images/{name}")
    return [os.path.join(folder, *one.split("/")) for one in inner]


def _parse_number(text: str) -> float | None:
    try:
        number = float("" if "_" in text else text)  # to Python 1_0 is ten
    except ValueError:
        return None
    return number if abs(number) < _MAX_PIXELS else None


def _parse_size(text: str) -> int | None:
    number = _parse_number(text)
    return int(number) if number is not None and number >= 1 else None


def _csv_error(path: str, what: str, expected: str, found: str, line: int) -> RekordError:
    return error(
        "X534",
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=f"fix line {line:,} of the CSV",
    )
