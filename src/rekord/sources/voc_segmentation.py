"""The segmentation of Pascal VOC: images and masks that the lists of ImageSets name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.base import SourceFile
from rekord.sources.images import checked_classes
from rekord.sources.pairs import Pair, Paired, PairSource
from rekord.sources.segmentation import dataset_folder
from rekord.sources.trees import given_path, is_unicode, joined, pictures_below, stem
from rekord.storage.files import read_error

VOC = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train"),
    "tvmonitor",
)
IGNORE = 255
Colour = tuple[int, int, int]

_LISTS = "ImageSets/Segmentation"
_IMAGES = "JPEGImages"
_MASKS = "SegmentationClass"
_VOID = ("ignored", "ignore", "void")
_VOID_COLOUR = (224, 224, 192)
_LONGEST_LINE = 1 << 16


def voc_segmentation(
    path: str | os.PathLike[str],
    *,
    classes: Sequence[str] | None = None,
    optional_masks: bool | None = None,
) -> VocSegmentation:
    """The images of a Pascal VOC folder that its segmentation lists name, with their masks and splits.

    The lists are `train.txt` and `val.txt` (where there is neither, `trainval.txt`) and `test.txt`. Masks are
    those of `SegmentationClass`. Unless `optional_masks` says so, images of `test` alone may be without one.
    The classes are the names that were given, or those of `labelmap.txt` in the folder, or the 21 of VOC. 255
    means no class.
    """
    return VocSegmentation(given_path(path), checked_classes(classes), optional_masks)


@dataclass(frozen=True)
class VocSegmentation(PairSource):
    """The source that `voc_segmentation` makes."""

    classes: tuple[str, ...] | None
    optional_masks: bool | None

    @property
    def kind(self) -> str:
        return "voc_segmentation"

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": None if self.classes is None else list(self.classes),
            "optional_masks": self.optional_masks,
        }

    def _list(self) -> Paired:
        images = dataset_folder(self.root, _IMAGES, "Pascal VOC")
        masks_folder = os.path.join(self.root, _MASKS)
        instead = (
            f"rk.sources.segmentation for the folders {_IMAGES} and {_MASKS}, without lists"
            if os.path.isdir(masks_folder)
            else "rk.sources.voc, if these are images with boxes"
        )
        lists = dataset_folder(self.root, _LISTS, "Pascal VOC", instead=instead)
        pictures = {stem(file.path): file for file in pictures_below(images).files}
        masks: dict[str, SourceFile] = {}
        if os.path.isdir(masks_folder):
            masks = {stem(file.path): file for file in pictures_below(masks_folder).files}
        files = []
        pairs: list[Pair] = []
        first: dict[str, str] = {}
        for name in _used_lists(lists):
            path = f"{_LISTS}/{name}.txt"
            files.append(_source_file(self.root, path))
            for position, (line, image_id) in enumerate(_ids(os.path.join(self.root, path))):
                pair = self._pair(path, name, image_id, pictures, masks)
                pair = pair._replace(position=position, line=line)
                earlier = first.setdefault(image_id, f"{name}.txt, line {line:,}")
                if pair.code is None and earlier != f"{name}.txt, line {line:,}":
                    pair = pair._replace(code="E362", other=earlier)
                pairs.append(pair)
        if not pairs:
            raise error(
                "X529",
                "the segmentation lists name no images",
                location=Location(path=joined(self.root, _LISTS)),
                expected="train.txt, val.txt, trainval.txt or test.txt, one id a line",
                found=f"{len(files)} empty lists" if files else "no such list",
                do=instead,
            )
        for image_id in first:
            for folder, known in ((_IMAGES, pictures), (_MASKS, masks)):
                if image_id in known:
                    files.append(known[image_id]._replace(path=f"{folder}/{known[image_id].path}"))
        names, colours = _named(self.root)
        if self.classes is not None and self.classes != names:
            names, colours = self.classes, None  # colours of other classes would be wrong ids
        without = any(pair.code is None and pair.mask is None for pair in pairs)
        hints: dict[str, Any] = {"classes": len(names), "ignore": IGNORE}
        hints["optional_masks"] = bool(self.optional_masks) or without
        if colours is not None:
            hints["colours"] = colours
        return Paired(pairs, files, names, hints)

    def _pair(
        self,
        path: str,
        split: str,
        image_id: str,
        pictures: Mapping[str, SourceFile],
        masks: Mapping[str, SourceFile],
    ) -> Pair:
        if not is_unicode(image_id):
            return Pair(path, None, None, "", 0, split, code="E318", other=image_id)
        image, mask = pictures.get(image_id), masks.get(image_id)
        size_bytes = sum([file.size_bytes for file in (image, mask) if file is not None])
        pair = Pair(
            path,
            image and f"{_IMAGES}/{image.path}",
            mask and f"{_MASKS}/{mask.path}",
            image_id,
            size_bytes,
            split,
        )
        if image is None:
            return pair._replace(code="E360", other=f"{_IMAGES}/{image_id}.jpg")
        optional = split == "test" if self.optional_masks is None else self.optional_masks
        if mask is None and not optional:
            return pair._replace(code="E363", other=f"{_MASKS}/{image_id}.png")
        return pair


def _used_lists(folder: str) -> list[str]:
    """The lists that name each image once, in the order of their files."""
    there = [
        name for name in ("train", "val", "trainval") if os.path.isfile(os.path.join(folder, f"{name}.txt"))
    ]
    used = [name for name in there if name != "trainval"] or there
    test = ["test"] if os.path.isfile(os.path.join(folder, "test.txt")) else []
    return sorted(test + used)


def _source_file(root: str, path: str) -> SourceFile:
    try:
        facts = os.stat(os.path.join(root, path))
    except OSError as failure:
        raise read_error(joined(root, path), failure) from failure
    return SourceFile(path, facts.st_size, facts.st_mtime_ns)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines of a small text file that hold anything, with their numbers."""
    number = 0
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                if len(line) > _LONGEST_LINE or "\0" in line:
                    found = "a zero byte" if "\0" in line else f"more than {_LONGEST_LINE:,} characters"
                    raise _no_text(path, number, found)
                if line.strip():
                    yield number, line.strip()
    except OSError as failure:
        raise read_error(path, failure) from failure


def _ids(path: str) -> Iterator[tuple[int, str]]:
    """What a list names, with the lines. Lists of one class have a flag behind the id, others a whole path."""
    for number, line in _lines(path):
        name = stem(line.split()[0])
        yield number, name.removeprefix("/").removeprefix(f"{_IMAGES}/")


def _named(root: str) -> tuple[tuple[str, ...], dict[Colour, int] | None]:
    """The classes of a folder and the colours that stand for them."""
    path = os.path.join(root, "labelmap.txt")
    if not os.path.isfile(path):
        return VOC, {**{_voc_colour(i): i for i in range(len(VOC))}, _VOID_COLOUR: IGNORE}
    names: list[str] = []
    colours: dict[Colour, int] = {}
    entries = 0
    for number, line in _lines(path):
        if line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        text = rest.partition(":")[0].strip()
        colour = _colour(text)
        if not name or not is_unicode(name) or name in names or (text and colour is None):
            raise _no_text(path, number, shown(line))
        entries += 1
        if colour is not None:
            colours[colour] = IGNORE if name.lower() in _VOID else len(names)
        if name.lower() not in _VOID:
            names.append(name)
    if not names:
        raise _no_text(path, 1, "no classes")
    # Where two classes share a colour, or one has none, colours do not say which class is meant.
    return tuple(names), colours if len(colours) == entries else None


def _colour(text: str) -> Colour | None:
    """A colour written as `r,g,b`."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 3 or not all(part.isdecimal() and len(part) <= 3 and int(part) <= 255 for part in parts):
        return None
    red, green, blue = map(int, parts)
    return red, green, blue


def _voc_colour(index: int) -> Colour:
    """The colour of a class in VOC's palette: its bits dealt to red, green and blue, the highest first."""
    red = green = blue = 0
    for shift in range(7, -1, -1):
        red |= (index & 1) << shift
        green |= (index >> 1 & 1) << shift
        blue |= (index >> 2 & 1) << shift
        index >>= 3
    return red, green, blue


def _no_text(path: str, line: int, found: str) -> RekordError:
    return error(
        "X529",
        f"{os.path.basename(path)} has a line that cannot be read",
        location=Location(path=joined("", path), line=line),
        expected="name:red,green,blue:: with each name once"
        if path.endswith("labelmap.txt")
        else "one id a line",
        found=found,
        do="mend the line",
    )
