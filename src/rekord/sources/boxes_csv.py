"""A CSV of boxes as rows: one per image, with the boxes of all its lines."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


@check_keywords
def boxes_csv(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    *,
    label_map: str | os.PathLike[str] | None = None,
) -> BoxesCsvSource:
    """Images with boxes from a CSV with a line per box, in any order.

    Columns are identified by name, in any order and in the usual spellings: filename, class, xmin, ymin, xmax,
    ymax, and optionally width, height and split. A column of another name is the class if it is the only one left.
    Without a header a line is `path,x1,y1,x2,y2,class`. A line without coordinates is an image without boxes.

    `images` is the folder of the images; by default it is searched for around the CSV. Class ids start at 1, in the
    byte order of the names; if all classes are integers they are the ids, or one less than them if there is a 0.
    `label_map` gives ids by name instead. Coordinates are pixels, unless no number in the file is above 1 and some
    are fractions: then they are from 0 to 1.
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
    size: tuple[int | None, int | None]  # width, height
    split: str | None
    boxes: tuple[_CsvBox, ...]


class _CsvColumns(NamedTuple):
    at: dict[str, int]
    fields: int  # of a line
    has_header: bool


@dataclass(slots=True)
class _ImageLines:
    """The lines of one image."""

    line: int
    boxes: list[_CsvBox]
    size: tuple[int | None, int | None]
    split: str | None
    broken: RekordError | None = None


@dataclass(eq=False)
class BoxesCsvSource(AnnotationSource):
    root: str
    csv: str
    images: str | None
    items: tuple[LabelItem, ...] | None

    kind = "boxes_csv"

    def options(self) -> Mapping[str, Any]:
        return {
            "csv": self.relative(self.csv),
            "images": None if self.images is None else self.relative(self.images),
            "label_map": detection.label_items_to_json(self.items),
        }

    def scan(self) -> AnnotationListing:
        groups: dict[str, _ImageLines] = {}
        entries: list[RowEntry] = []
        own = self.relative(self.csv)
        for line, fields, columns in _read_lines(self.csv):
            broken = _add_line(self.csv, line, fields, columns, groups)
            if broken is not None:
                entries.append(RowEntry(own, line - 1, 0, broken, line))
        if not groups and not entries:
            raise detection.no_data_error(
                self.csv,
                "CSV has no boxes",
                "a line per box, below the header",
                "no lines",
                "pass the CSV that has the boxes",
            )
        folder = (
            self.images
            or detection.find_image_folder(list(groups), _candidate_folders(self.csv))
            or os.path.dirname(self.csv)
            or "."
        )
        files: dict[str, os.stat_result] = {}
        self.add_file(files, self.csv)
        found_at: dict[str, str] = {}
        splits: list[str | None] = []
        for name, group in groups.items():
            broken = group.broken
            found = detection.find_image(folder, name)
            path = own if found is None else self.relative(found[0])
            if found is None:
                at = Location(path=self.csv, line=group.line)
                broken = broken or detection.missing_image_error(name, folder, at)
            elif path in found_at:
                what, expected = "image is listed under two names", "one name per image"
                broken = broken or _csv_error(
                    self.csv, what, expected, preview(found_at[path]), group.line, code="E370"
                )
            if broken is not None or found is None:
                entries.append(RowEntry(own, group.line - 1, 0, broken, group.line))
                continue
            found_at[path] = name
            files[path] = found[1]
            splits.append(group.split)
            below = detection.relative_path(folder, found[0])
            content = _CsvImage(path, below, group.size, group.split, tuple(group.boxes))
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

    def row(self, content: _CsvImage, context: tuple[dict[str, int], bool]) -> dict[str, Any]:
        ids, normalised = context
        for box in content.boxes:
            if box.name not in ids:
                at = Location(path=self.csv, line=box.line)
                raise detection.unknown_class_error("box", box.name, "a class of the label map", at)
        return self.build_row(
            content.image,
            content.name,
            boxes=[box.sides for box in content.boxes],
            labels=[ids[box.name] for box in content.boxes],
            class_names=[box.name for box in content.boxes],
            box_names=[f"line {box.line:,} of the CSV" for box in content.boxes],
            size=content.size,
            split=content.split,
            normalised=normalised,
        )


def _read_lines(path: str) -> Iterator[tuple[int, list[str], _CsvColumns]]:
    """Every line below the header: its number, its fields, and the columns."""
    data = detection.read_small_file(path, MAX_CSV_BYTES, "X534")
    text = detection.decode_text(
        data, lambda line, found: _csv_error(path, "CSV is not UTF-8", "text in UTF-8", f"bytes {found}", line)
    )
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
            path, "CSV cannot be parsed", "fields with balanced quotes", str(failure)[:60], begin
        ) from failure


def _find_columns(header: list[str], path: str, line: int) -> _CsvColumns:
    if (
        len(header) == 6
        and is_image_name(header[0])
        and all(_parse_number(one) is not None or not one for one in header[1:5])
    ):
        order = ("file", *BOX_SIDES, "class")
        return _CsvColumns({name: i for i, name in enumerate(order)}, 6, False)
    folded = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in header]
    at: dict[str, int] = {}
    for column, spellings in COLUMN_ALIASES.items():
        place = next((folded.index(one) for one in spellings.split() if one in folded), None)
        if place is not None and place not in at.values():
            at[column] = place
    left = [i for i in range(len(header)) if i not in at.values() and folded[i] not in ("depth", "", "index")]
    if "class" not in at and len(left) == 1:
        at["class"] = left[0]
    missing = [name for name in ("file", "class", *BOX_SIDES) if name not in at]
    if missing:
        usual = {"file": "filename"}.get(missing[0], missing[0])
        raise _csv_error(
            path,
            f"CSV of boxes has no column `{usual}`",
            "filename, class, xmin, ymin, xmax, ymax, in any order",
            ", ".join(header)[:60] or "no header",
            line,
        )
    return _CsvColumns(at, len(header), True)


def _add_line(
    path: str, line: int, fields: list[str], columns: _CsvColumns, groups: dict[str, _ImageLines]
) -> RekordError | None:
    """Add a line to those of its image; the error if it names no image."""

    def line_error(what: str, expected: str, found: str) -> RekordError:
        return _csv_error(path, what, expected, found, line, code="E374")

    at = columns.at
    if len(fields) != columns.fields:
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
    texts = [fields[at[side]] for side in BOX_SIDES]
    if not any(texts):
        return None
    sides = [_parse_number(text) for text in texts]
    known = [side for side in sides if side is not None]
    if len(known) < 4:
        expected = "xmin, ymin, xmax and ymax in pixels"
        group.broken = line_error("side of a box is not a number", expected, preview(texts[sides.index(None)]))
    elif not fields[at["class"]]:
        group.broken = line_error("box has no class", "a class name", preview(""))
    else:
        group.boxes.append(_CsvBox(line, fields[at["class"]], tuple(known)))
    return None


def _has_normalized_boxes(groups: Iterable[_ImageLines]) -> bool:
    sides = [side for group in groups for box in group.boxes for side in box.sides]
    return bool(sides) and max(sides) <= 1 and any(not side.is_integer() for side in sides)


def _order_classes(classes: set[str]) -> list[str]:
    """Classes in the order of their ids. Integers are the ids; if there is a 0, ids are one higher."""
    if classes and all(_INTEGER_PATTERN.fullmatch(name) for name in classes):
        numbers = sorted(map(int, classes))
        if numbers[-1] < _MAX_NUMERIC_CLASSES:
            return [str(number) for number in range(min(numbers[0], 1), numbers[-1] + 1)]
        return [str(number) for number in numbers]
    return sorted(classes, key=os.fsencode)


def _candidate_folders(path: str) -> Sequence[str]:
    """Folders that may hold the images of a CSV, the likeliest first."""
    folder = os.path.dirname(path) or "."
    name = os.path.splitext(os.path.basename(path))[0].removesuffix("_labels")
    inner = ("", "images", "JPEGImages", "img", "imgs", "Images", name, f"images/{name}")
    return [os.path.join(folder, *one.split("/")) for one in inner]


def _parse_number(text: str) -> float | None:
    try:
        number = float("" if "_" in text else text)  # Python reads 1_0 as ten
    except ValueError:
        return None
    return number if abs(number) < _MAX_PIXELS else None


def _parse_size(text: str) -> int | None:
    number = _parse_number(text)
    return int(number) if number is not None and number >= 1 else None


def _csv_error(path: str, what: str, expected: str, found: str, line: int, *, code: str = "X534") -> RekordError:
    return error(
        code,
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=f"fix line {line:,} of the CSV",
    )
