"""Class names and colours of masks: the label map of Pascal VOC, tables of colours, and those of CamVid."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rekord.arguments import is_utf8_encodable
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.image_folder import join_path
from rekord.storage import raw_files
from rekord.storage.local import read_error

VOC_SEGMENTATION_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train"),
    "tvmonitor",
)
VOC_IGNORE = 255
Colour = tuple[int, int, int]

_VOID_NAMES = ("ignored", "ignore", "void")
_VOID_COLOUR = (224, 224, 192)
_MAX_LINE_CHARACTERS = 1 << 16
_MAX_CLASSES = 1 << 16
_TABLE_NAMES = re.compile(
    r"(label|class|color|colour)s?[-_]?(colors|colours|map|dict|dict_seg|palette)\.(txt|csv)|palette\.txt"
)
_NUMBER = r"(\d{1,3})"
# White space, with at most one mark in it. Each run matches in one way only, so that no line takes long to refuse.
_BETWEEN = r"(?:\s++(?:[,;]\s*+)?|[,;]\s*+)"
_NEXT_TO_NAME = r"(?:\s++(?:[,;:]\s*+)?|[,;:]\s*+)"
_COLOUR_FIRST = re.compile(rf"{_NUMBER}{_BETWEEN}{_NUMBER}{_BETWEEN}{_NUMBER}{_NEXT_TO_NAME}([^\s,;:].*)")
_NAME_FIRST = re.compile(rf"(.*?[^\s,;:]){_NEXT_TO_NAME}{_NUMBER}{_BETWEEN}{_NUMBER}{_BETWEEN}{_NUMBER}[\s,;:]*")

_CAMVID = (
    "64 128 64 Animal,192 0 128 Archway,0 128 192 Bicyclist,0 128 64 Bridge,128 0 0 Building,64 0 128 Car,"
    "64 0 192 CartLuggagePram,192 128 64 Child,192 192 128 Column_Pole,64 64 128 Fence,128 0 192 LaneMkgsDriv,"
    "192 0 64 LaneMkgsNonDriv,128 128 64 Misc_Text,192 0 192 MotorcycleScooter,128 64 64 OtherMoving,"
    "64 192 128 ParkingBlock,64 64 0 Pedestrian,128 64 128 Road,128 128 192 RoadShoulder,0 0 192 Sidewalk,"
    "192 128 128 SignSymbol,128 128 128 Sky,64 128 192 SUVPickupTruck,0 0 64 TrafficCone,0 64 64 TrafficLight,"
    "192 64 128 Train,128 128 0 Tree,192 128 192 Truck_Bus,64 0 64 Tunnel,192 192 0 VegetationMisc,0 0 0 Void,"
    "64 192 0 Wall"
)


class ColourTable(NamedTuple):
    """Class names by id, and the id of each colour; the colour of a class named void is that of `ignore`."""

    names: tuple[str, ...]
    colours: dict[Colour, int]
    void: str | None = None


def find_colour_table(folders: list[str]) -> str | None:
    """The first table of colours in these folders, by its name: `label_colors.txt`, `class_dict.csv`, …"""
    for folder in dict.fromkeys(map(raw_files.normpath, folders)):
        names = sorted(raw_files.listdir(folder), key=os.fsencode) if raw_files.isdir(folder) else []
        for path in [os.path.join(folder, name) for name in names if _TABLE_NAMES.fullmatch(name.lower())]:
            if raw_files.isfile(path):
                return path
    return None


def camvid_colours(ignore: int) -> ColourTable:
    """The 32 classes of CamVid, as its `label_colors.txt` has them."""
    return _build_table(enumerate(_CAMVID.split(","), 1), "label_colors.txt", ignore)


def read_colour_table(path: str, ignore: int) -> ColourTable:
    """A table with a class per line: `red green blue name` or `name,red,green,blue`, optionally with a header."""
    return _build_table(read_text_lines(path), path, ignore)


def _build_table(lines: Iterable[tuple[int, str]], path: str, ignore: int) -> ColourTable:
    names: dict[str, None] = {}
    colours: dict[Colour, int] = {}
    void = None
    for number, line in lines:
        if line.startswith("#") or (number == 1 and not any(one.isdigit() for one in line)):
            continue
        first, last = _COLOUR_FIRST.fullmatch(line), _NAME_FIRST.fullmatch(line)
        name = (first[4] if first else last[1] if last else "").strip().strip('"')
        rgb = first.groups()[:3] if first else last.groups()[1:] if last else ()
        colour = _parse_colour(",".join(rgb))
        if colour is None or not is_utf8_encodable(name) or name in names or colour in colours:
            raise _invalid_table_error(path, number, preview(line))
        if name.lower() in _VOID_NAMES:
            void = name
        colours[colour] = ignore if name == void else len(names)
        names[name] = None
        if len(names) > _MAX_CLASSES:
            raise _invalid_table_error(path, number, f"more than {_MAX_CLASSES:,} classes")
    if not names:
        raise _invalid_table_error(path, 1, "no classes")
    return ColourTable(tuple(names), colours, void)


def _invalid_table_error(path: str, line: int, found: str) -> RekordError:
    return error(
        "X529",
        f"{os.path.basename(path)} has an invalid line",
        location=Location(path=join_path("", path), line=line),
        expected="red green blue name, or name,red,green,blue, with each name and colour once",
        found=found,
        do="fix the line",
    )


def read_text_lines(path: str) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a small text file, with their numbers."""
    number = 0
    try:
        with raw_files.open_text(path, "utf-8-sig", "surrogateescape") as file:
            while line := file.readline(_MAX_LINE_CHARACTERS + 1):
                number += 1
                if len(line) > _MAX_LINE_CHARACTERS or "\0" in line:
                    found = "a zero byte" if "\0" in line else f"more than {_MAX_LINE_CHARACTERS:,} characters"
                    raise _not_text_error(path, number, found)
                if line.strip():
                    yield number, line.strip()
    except OSError as failure:
        raise read_error(path, failure) from failure


def read_voc_classes(root: str) -> tuple[tuple[str, ...], dict[Colour, int] | None]:
    """The classes of a folder, and the colours that stand for them."""
    path = os.path.join(root, "labelmap.txt")
    if not raw_files.isfile(path):
        return VOC_SEGMENTATION_CLASSES, {
            **{_palette_colour(i): i for i in range(len(VOC_SEGMENTATION_CLASSES))},
            _VOID_COLOUR: VOC_IGNORE,
        }
    names: dict[str, None] = {}
    colours: dict[Colour, int] = {}
    entries = 0
    for number, line in read_text_lines(path):
        if line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        text = rest.partition(":")[0].strip()
        colour = _parse_colour(text)
        if not name or not is_utf8_encodable(name) or name in names or (text and colour is None):
            raise _not_text_error(path, number, preview(line))
        entries += 1
        if colour is not None:
            colours[colour] = VOC_IGNORE if name.lower() in _VOID_NAMES else len(names)
        if name.lower() not in _VOID_NAMES:
            names[name] = None
        if len(names) > _MAX_CLASSES:
            raise _not_text_error(path, number, f"more than {_MAX_CLASSES:,} classes")
    if not names:
        raise _not_text_error(path, 1, "no classes")
    # If two classes share a colour, or one has none, colours do not identify classes.
    return tuple(names), colours if len(colours) == entries else None


def _parse_colour(text: str) -> Colour | None:
    """A colour written as `r,g,b`."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part.isdecimal() and len(part) <= 3 and int(part) <= 255 for part in parts):
        return None
    red, green, blue = map(int, parts)
    return red, green, blue


def _palette_colour(index: int) -> Colour:
    """The colour of a class in VOC's palette: its bits assigned to red, green and blue in turn, highest first."""
    red = green = blue = 0
    for shift in range(7, -1, -1):
        red |= (index & 1) << shift
        green |= (index >> 1 & 1) << shift
        blue |= (index >> 2 & 1) << shift
        index >>= 3
    return red, green, blue


def _not_text_error(path: str, line: int, found: str) -> RekordError:
    return error(
        "X529",
        f"{os.path.basename(path)} has an invalid line",
        location=Location(path=join_path("", path), line=line),
        expected="name:red,green,blue:: with each name once" if path.endswith("labelmap.txt") else "one id per line",
        found=found,
        do="fix the line",
    )
