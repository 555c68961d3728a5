"""Images and masks as rows: two folders, Cityscapes, or the lists of Pascal VOC."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from rekord.arguments import as_path, is_unicode
from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.messages import shown
from rekord.sources.base import PART_BYTES, Facts, Part, Row, SourceFile
from rekord.sources.image_folder import (
    SPLITS,
    class_names,
    fingerprint,
    folder_path,
    groups,
    joined,
    name_error,
    no_images,
    pictures_below,
    printable,
    stem,
)
from rekord.storage.local import read_error

_SHOWN = 60


class Pair(NamedTuple):
    """One row to be: an image and its mask, each below its root; or a `code`, and what its message names.

    The row is known by `path` and `position`, which are those of a list's line where a list names the image.
    """

    path: str
    image: str | None
    mask: str | None
    filename: str
    size_bytes: int
    split: str | None = None
    position: int = 0
    line: int | None = None
    code: str | None = None
    other: str = ""


class Paired(NamedTuple):
    """What a look at the folders gave: rows in order, and what the layout should know."""

    pairs: list[Pair]
    files: list[SourceFile]
    classes: tuple[str, ...] | None
    hints: Mapping[str, Any]


@dataclass(frozen=True)
class PairSource:
    """What the sources of segmentation share. A subclass names its kind, and pairs its files in `_list`.

    The hints that facts give to the layout, where they are known: `classes` (how many), `ignore`, `colours`
    (a colour to its id) and `optional_masks`.
    """

    root: str

    @property
    def kind(self) -> str:
        raise NotImplementedError

    @property
    def mask_root(self) -> str:
        """The folder that masks are below."""
        return self.root

    def options(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def _list(self) -> Paired:
        raise NotImplementedError

    def facts(self) -> Facts:
        paired = self._list()
        # Facts and parts must speak of the same files, and the next facts of what is there then.
        self.__dict__["_listed"] = paired
        splits = {pair.split for pair in paired.pairs if pair.split is not None}
        return Facts(
            layout="deeplab",
            classes=paired.classes,
            rows=len(paired.pairs),
            source_bytes=sum([pair.size_bytes for pair in paired.pairs]),
            splits=tuple(sorted(splits, key=_split_order)) or None,
            files=fingerprint(paired.files),
            extra=paired.hints,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[Part]:
        paired: Paired = self.__dict__.get("_listed") or self._list()
        sized = ((pair, pair.size_bytes) for pair in paired.pairs)
        return [Part(pairs, size) for pairs, size in groups(sized, part_bytes)]

    def read(self, part: Part) -> Iterator[Row]:
        root, mask_root = Path(self.root), Path(self.mask_root)
        for pair in part.content:
            values: dict[str, Any] | RekordError
            if pair.code is not None:
                values = self._fault(pair)
            else:
                values = {"image": root / pair.image, "filename": pair.filename}
                if pair.mask is not None:
                    values["mask"] = mask_root / pair.mask
                if pair.split is not None:
                    values["split"] = pair.split
            yield Row(printable(pair.path), pair.position, values, pair.line)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _fault(self, pair: Pair) -> RekordError:
        where = Location(path=joined(self.root, pair.path), line=pair.line)
        other = printable(pair.other)
        other = other if len(other) <= _SHOWN else "…" + other[1 - _SHOWN :]
        match pair.code:
            case "E318" if pair.line is not None:
                return error(
                    "E318",
                    "a line is not UTF-8",
                    location=where.within(feature="filename"),
                    expected="UTF-8",
                    found=shown(os.fsencode(pair.other)[:16]),
                    do="save the list as UTF-8",
                )
            case "E318":
                return name_error(self.root, pair.path)
            case "E360":
                return error(
                    "E360",
                    "an image that a list names is missing",
                    location=where.within(feature="image"),
                    expected=f"an image called {other}",
                    found="no such file",
                    do="fetch the image, or take the line out of the list",
                )
            case "E362":
                return error(
                    "E362",
                    "an image is listed twice",
                    location=where.within(feature="image"),
                    expected="each image in one list, once",
                    found=f"also in {other}",
                    do="remove one of the two lines: the image would be in the dataset twice",
                )
            case "E363":
                return error(
                    "E363",
                    "an image has no mask",
                    location=where.within(feature="mask"),
                    expected=f"a mask called {other}",
                    found="no such file",
                    do="add the mask, or optional_masks=True if images may be without",
                )
            case "E364":
                return error(
                    "E364",
                    "a mask has no image",
                    location=where.within(feature="image"),
                    expected=f"an image called {other}, with the extension of any picture",
                    found="no such file",
                    do="add the image, or move the mask away",
                )
        return error(
            "E365",
            f"two {'masks' if pair.image is None else 'images'} have one name",
            location=where.within(feature="mask" if pair.image is None else "image"),
            expected="one file of this name, whatever its extension: it pairs image and mask",
            found=f"also {other}",
            do="move one of the two files away",
        )


def _split_order(name: str) -> tuple[int, str]:
    return (SPLITS.index(name) if name in SPLITS else len(SPLITS)), name


CITYSCAPES_TRAIN_IDS = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
    *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
)
CITYSCAPES_IDS = (
    *(
        "unlabeled",
        "ego vehicle",
        "rectification border",
        "out of roi",
        "static",
        "dynamic",
        "ground",
        "road",
    ),
    *("sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge", "tunnel"),
    *(
        "pole",
        "polegroup",
        "traffic light",
        "traffic sign",
        "vegetation",
        "terrain",
        "sky",
        "person",
        "rider",
    ),
    *("car", "truck", "bus", "caravan", "trailer", "train", "motorcycle", "bicycle"),
)
_IMAGE = "_leftImg8bit"
_TRAIN_IDS = "_gtFine_labelTrainIds"
_IDS = "_gtFine_labelIds"
_MOST_LOOKED_AT = 1000


class _Convention(NamedTuple):
    """What the names of images and masks end with, after what they share."""

    image: str
    mask: str


_CONVENTIONS = (
    _Convention("", ""),
    *[_Convention("", end) for end in ("_mask", "_label", "_labels", "-mask", "-label", "_seg", "_gt")],
    *[_Convention(end, "_mask") for end in ("_image", "_img", "_sat")],
    _Convention(_IMAGE, _TRAIN_IDS),
    _Convention(_IMAGE, _IDS),
)


def segmentation(
    images: str | os.PathLike[str],
    masks: str | os.PathLike[str],
    *,
    classes: int | Sequence[str] | None = None,
    ignore: int | None = None,
    optional_masks: bool = False,
) -> Segmentation:
    """Images and their masks, paired by their paths below the two folders, without extensions.

    Where not one name is the same on both sides, usual endings are tried: `x.jpg` with `x_mask.png`,
    `x_label.png` and the like, and the names of Cityscapes. An image without a mask, a mask without an image
    and a second image of the same name are bad rows; with `optional_masks` an image without a mask is a row
    without `mask`. `classes` (how many, or their names) and `ignore` are handed on to the layout.
    """
    count = classes if isinstance(classes, int) and not isinstance(classes, bool) else None
    names = None if count is not None else class_names(classes)  # type: ignore[arg-type]
    return Segmentation(
        as_path("images", images),
        as_path("masks", masks),
        names,
        len(names) if names else count,
        ignore,
        bool(optional_masks),
    )


@dataclass(frozen=True)
class Segmentation(PairSource):
    """The source that `segmentation` makes."""

    masks: str
    classes: tuple[str, ...] | None
    count: int | None
    ignore: int | None
    optional_masks: bool

    @property
    def kind(self) -> str:
        return "segmentation"

    @property
    def mask_root(self) -> str:
        return self.masks

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": self.count if self.classes is None else list(self.classes),
            "ignore": self.ignore,
            "optional_masks": self.optional_masks,
        }

    def _list(self) -> Paired:
        images, masks = folder_path(self.root, name="images"), folder_path(self.masks, name="masks")
        inside = os.path.relpath(os.path.realpath(masks), os.path.realpath(images))
        if inside == ".":
            raise _one_folder(images)
        pictures, others = pictures_below(images)
        # Masks that lie below the images are no images.
        pictures = tuple([file for file in pictures if not file.path.startswith(f"{inside}/")])
        ids, other_ids = pictures_below(masks)
        if not pictures:
            raise no_images(images, others)
        if not ids and not self.optional_masks:
            raise no_images(masks, other_ids, name="masks")
        convention = _convention(pictures, ids)
        if convention.image == _IMAGE:
            # gtFine also holds pictures of colours and instances, which are no masks of classes.
            ids = tuple([file for file in ids if stem(file.path).endswith(convention.mask)])
        hints: dict[str, Any] = {} if self.ignore is None else {"ignore": self.ignore}
        if self.count is not None:
            hints["classes"] = self.count
        hints["optional_masks"] = self.optional_masks
        beside = os.path.relpath(masks, images)
        pairs = _paired(pictures, ids, convention, beside, lambda _: self.optional_masks)
        files = [*pictures, *[file._replace(path=f"{beside}/{file.path}") for file in ids]]
        return Paired(pairs, files, self.classes, hints)


def cityscapes(path: str | os.PathLike[str], *, optional_masks: bool | None = None) -> Cityscapes:
    """The images of Cityscapes with their fine masks: `leftImg8bit/SPLIT/CITY/` and `gtFine/SPLIT/CITY/`.

    The masks are those of train ids (19 classes) if there are any, else those of all ids (34 classes). Unless
    `optional_masks` says so, images of `test` alone may be without a mask.
    """
    return Cityscapes(as_path("path", path), optional_masks)


@dataclass(frozen=True)
class Cityscapes(PairSource):
    """The source that `cityscapes` makes."""

    optional_masks: bool | None

    @property
    def kind(self) -> str:
        return "cityscapes"

    def options(self) -> Mapping[str, Any]:
        return {"optional_masks": self.optional_masks}

    def _list(self) -> Paired:
        images, masks = [dataset_folder(self.root, name, "Cityscapes") for name in ("leftImg8bit", "gtFine")]
        pictures, others = pictures_below(images)
        pictures = tuple([file for file in pictures if stem(file.path).endswith(_IMAGE)])
        if not pictures:
            raise no_images(images, others, name=f"images called *{_IMAGE}.png")
        ids = pictures_below(masks).files
        trained = any(stem(file.path).endswith(_TRAIN_IDS) for file in ids)
        convention = _Convention(_IMAGE, _TRAIN_IDS if trained else _IDS)
        ids = tuple([file for file in ids if stem(file.path).endswith(convention.mask)])
        pairs = [
            pair._replace(
                path=f"leftImg8bit/{pair.path}" if pair.image else pair.path,
                image=pair.image and f"leftImg8bit/{pair.image}",
                mask=pair.mask and f"gtFine/{pair.mask}",
                filename=os.path.basename(pair.filename).removesuffix(f"{_IMAGE}.png"),
                split=pair.filename.partition("/")[0].lower(),
            )
            for pair in _paired(pictures, ids, convention, "gtFine", self._may_be_without)
        ]
        files = [file._replace(path=f"leftImg8bit/{file.path}") for file in pictures]
        files += [file._replace(path=f"gtFine/{file.path}") for file in ids]
        names = CITYSCAPES_TRAIN_IDS if trained else CITYSCAPES_IDS
        without = any(pair.code is None and pair.mask is None for pair in pairs)
        hints = {"classes": len(names), "ignore": 255, "optional_masks": bool(self.optional_masks) or without}
        pairs.sort(key=lambda pair: os.fsencode(pair.path))
        return Paired(pairs, files, names, hints)

    def _may_be_without(self, path: str) -> bool:
        if self.optional_masks is None:
            return path.partition("/")[0].lower() == "test"
        return self.optional_masks


def dataset_folder(root: str, name: str, dataset: str, *, instead: str | None = None) -> str:
    """A folder that a dataset must have; where it has none, what to do: look elsewhere, or `instead`."""
    folder = os.path.join(folder_path(root), *name.split("/"))
    if os.path.isdir(folder):
        return folder
    raise error(
        "X529",
        f"this is no {dataset} folder",
        location=Location(path=joined(root, "")),
        expected=f"a folder {name} in it",
        found="none",
        do=instead or _nearby(root, name),
    )


def _nearby(root: str, name: str) -> str:
    folders = [root]
    for _ in range(2):
        folders = [below for folder in folders for below in _folders_in(folder)][:_MOST_LOOKED_AT]
        for folder in folders:
            if os.path.isdir(os.path.join(folder, *name.split("/"))):
                return f"name {joined(folder, '')} instead"
    return f"name the folder that holds {name}"


def _folders_in(folder: str) -> list[str]:
    try:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))[:_MOST_LOOKED_AT]]
    except OSError:
        return []
    return [path for path in paths if os.path.isdir(path)]


def _convention(images: Iterable[SourceFile], masks: Iterable[SourceFile]) -> _Convention:
    """The first convention by which any mask finds its image."""
    have = {stem(file.path) for file in images}
    stems = [stem(file.path) for file in masks]
    for convention in _CONVENTIONS:
        for name in stems:
            if (
                name.endswith(convention.mask)
                and name.removesuffix(convention.mask) + convention.image in have
            ):
                return convention
    return _CONVENTIONS[0]


def _paired(
    images: Iterable[SourceFile],
    masks: Iterable[SourceFile],
    convention: _Convention,
    beside: str,
    may_be_without: Callable[[str], bool],
) -> list[Pair]:
    """A row for every image, and for every mask that belongs to none, in the order of their paths.

    `beside` leads from the images to the masks.
    """
    pairs = []
    ids: dict[str, SourceFile] = {}
    for mask in masks:
        name = stem(mask.path).removesuffix(convention.mask)
        path = f"{beside}/{mask.path}"
        alone = Pair(path, None, mask.path, mask.path, mask.size_bytes)
        if not is_unicode(mask.path):
            pairs.append(alone._replace(code="E318", other=path))
        elif (first := ids.setdefault(name, mask)) is not mask:
            pairs.append(alone._replace(code="E365", other=os.path.basename(first.path)))
    pictures = set()
    firsts: dict[str, SourceFile] = {}
    for image in images:
        name = stem(image.path).removesuffix(convention.image)
        pictures.add(name)
        found = ids.get(name)
        size_bytes = image.size_bytes + (0 if found is None else found.size_bytes)
        pair = Pair(image.path, image.path, found and found.path, image.path, size_bytes)
        if not is_unicode(image.path):
            pair = pair._replace(code="E318", other=image.path)
        elif (first := firsts.setdefault(name, image)) is not image:
            pair = pair._replace(code="E365", other=os.path.basename(first.path))
        elif found is None and not may_be_without(image.path):
            pair = pair._replace(code="E363", other=f"{os.path.basename(name)}{convention.mask}.png")
        pairs.append(pair)
    for name, mask in ids.items():
        if name not in pictures:
            alone = Pair(f"{beside}/{mask.path}", None, mask.path, mask.path, mask.size_bytes)
            pairs.append(alone._replace(code="E364", other=os.path.basename(name) + convention.image))
    pairs.sort(key=lambda pair: os.fsencode(pair.path))
    return pairs


def _one_folder(path: str) -> RekordError:
    return error(
        "U605",
        "`images` and `masks` are one folder",
        location=Location(path=printable(path)),
        expected="a folder of images and another one of masks",
        found=shown(os.path.basename(path)),
        do="move the masks to a folder of their own, under the same names",
    )


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
    return VocSegmentation(as_path("path", path), class_names(classes), optional_masks)


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
