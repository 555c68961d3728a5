"""Images and masks as rows: two folders, Cityscapes, or the lists of Pascal VOC."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from rekord.arguments import as_path, check_keywords, is_utf8_encodable
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.base import PART_BYTES, SourceFacts, SourceFile, SourcePart, SourceRow, group_by_bytes
from rekord.sources.image_folder import (
    ListingSource,
    class_names,
    find_images,
    fingerprint,
    join_path,
    name_error,
    no_images_error,
    sort_splits,
    split_of_folder,
    strip_image_extension,
    to_printable_path,
    validate_folder,
)
from rekord.storage.local import read_error

_MAX_PREVIEW_CHARACTERS = 60


class ImageMaskPair(NamedTuple):
    """One row before it is read: an image and its mask, each below its root; or the `code` of its error.

    `path` and `position` identify the row; for a listed image they are those of the line in the list.
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


class PairListing(NamedTuple):
    """The listed folders: rows in order, and hints for the layout."""

    pairs: list[ImageMaskPair]
    files: list[SourceFile]
    classes: tuple[str, ...] | None
    hints: Mapping[str, Any]


@dataclass(frozen=True)
class ImageMaskSource(ListingSource):
    """What the segmentation sources share. A subclass names its kind, and pairs its files in `_list`.

    The hints for the layout, as far as known: `classes` (their number), `ignore`, `colours` (a colour to its id) and
    `optional_masks`.
    """

    root: str

    kind: ClassVar[str]

    @property
    def mask_root(self) -> str:
        """The folder of the masks."""
        return self.root

    def options(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def facts(self) -> SourceFacts:
        paired: PairListing = self._refresh()
        splits = {pair.split for pair in paired.pairs if pair.split is not None}
        return SourceFacts(
            layout="deeplab",
            classes=paired.classes,
            rows=len(paired.pairs),
            source_bytes=sum([pair.size_bytes for pair in paired.pairs]),
            splits=sort_splits(splits) or None,
            files=fingerprint(paired.files),
            extra=paired.hints,
        )

    def parts(self, part_bytes: int = PART_BYTES) -> Sequence[SourcePart]:
        paired: PairListing = self._last_listing()
        sized = ((pair, pair.size_bytes) for pair in paired.pairs)
        return [SourcePart(pairs, size) for pairs, size in group_by_bytes(sized, part_bytes)]

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        root, mask_root = Path(self.root), Path(self.mask_root)
        for pair in part.content:
            values: dict[str, Any] | RekordError
            if pair.code is not None:
                values = self._row_error(pair)
            else:
                values = {"image": root / pair.image, "filename": pair.filename}
                if pair.mask is not None:
                    values["mask"] = mask_root / pair.mask
                if pair.split is not None:
                    values["split"] = pair.split
            yield SourceRow(to_printable_path(pair.path), pair.position, values, pair.line)

    def _row_error(self, pair: ImageMaskPair) -> RekordError:
        if pair.code == "E318" and pair.line is None:
            return name_error(self.root, pair.path)
        other = to_printable_path(pair.other)
        other = other if len(other) <= _MAX_PREVIEW_CHARACTERS else "…" + other[1 - _MAX_PREVIEW_CHARACTERS :]
        kind = "mask" if pair.image is None else "image"
        what, feature, expected, found, do = {
            "E318": (
                "line is not UTF-8",
                "filename",
                "UTF-8",
                preview(os.fsencode(pair.other)[:16]),
                "save it as UTF-8",
            ),
            "E360": (
                "listed image does not exist",
                "image",
                f"an image named {other}",
                "no such file",
                "add the image, or remove the line from the list",
            ),
            "E362": (
                "image is listed more than once",
                "image",
                "each image in one list, once",
                f"also in {other}",
                "remove one of the two lines: the image would be in the dataset twice",
            ),
            "E363": (
                "image has no mask",
                "mask",
                f"a mask named {other}",
                "no such file",
                "add the mask, or allow images without masks: optional_masks=True",
            ),
            "E364": (
                "mask has no image",
                "image",
                f"an image named {other}, with any image extension",
                "no such file",
                "add the image, or move the mask away",
            ),
            "E365": (
                f"two {kind}s have the same name",
                kind,
                "one file per name, whatever its extension: names pair images and masks",
                f"also {other}",
                "move one of the two files away",
            ),
        }[pair.code or ""]
        where = Location(path=join_path(self.root, pair.path), line=pair.line, feature=feature)
        return error(pair.code or "", what, location=where, expected=expected, found=found, do=do)


CITYSCAPES_TRAIN_IDS = (
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
    *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
)
CITYSCAPES_IDS = (
    "unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic", "ground", "road",
    "sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge", "tunnel",
    "pole", "polegroup", "traffic light", "traffic sign", "vegetation", "terrain", "sky", "person", "rider",
    "car", "truck", "bus", "caravan", "trailer", "train", "motorcycle", "bicycle",
)  # fmt: skip
_IMAGE_SUFFIX = "_leftImg8bit"
_TRAIN_IDS_SUFFIX = "_gtFine_labelTrainIds"
_IDS_SUFFIX = "_gtFine_labelIds"
_MAX_INSPECTED = 1000


class MaskNaming(NamedTuple):
    """The endings of image and mask names, after the part that they share."""

    image: str
    mask: str


_CONVENTIONS = (
    MaskNaming("", ""),
    *[MaskNaming("", end) for end in ("_mask", "_label", "_labels", "-mask", "-label", "_seg", "_gt")],
    *[MaskNaming("", end) for end in ("_masks", "_segmentation", "_annotation", "_anno", "_GT", "_L", ".mask")],
    *[MaskNaming(end, "_mask") for end in ("_image", "_img", "_sat")],
    MaskNaming(_IMAGE_SUFFIX, _TRAIN_IDS_SUFFIX),
    MaskNaming(_IMAGE_SUFFIX, _IDS_SUFFIX),
)


@check_keywords
def segmentation(
    images: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    masks: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    *,
    classes: int | Sequence[str] | None = None,
    ignore: int | None = None,
    optional_masks: bool = False,
) -> SegmentationSource:
    """Images and their masks, paired by their paths below the two folders, without extensions.

    If no name is the same on both sides, the usual endings are tried: `x.jpg` with `x_mask.png`, `x_label.png` and
    the like, the names of Cityscapes, and any ending that all masks share. Both folders may be the same if the names
    of masks have such an ending. An image without a mask, a mask without an image and a second image of the same name
    are bad rows; with `optional_masks` an image without a mask is a row without `mask`. `classes` (their number or
    their names) and `ignore` are passed on to the layout.

    If every first-level folder is named like a split (train, val, valid, validation, dev, eval, test), rows have a
    `split`. Where each split has two folders of its own, pass dicts of folders by split:
    `segmentation({"train": "train/images"}, {"train": "train/masks"})`.
    """
    count = classes if isinstance(classes, int) and not isinstance(classes, bool) else None
    names = None if count is not None else class_names(classes)  # type: ignore[arg-type]
    root, mask_root, folders = _resolve_folders(images, masks)
    return SegmentationSource(
        root, mask_root, names, len(names) if names else count, ignore, bool(optional_masks), folders
    )


def _resolve_folders(images: object, masks: object) -> tuple[str, str, tuple[tuple[str, str, str], ...]]:
    """The roots of images and masks, and for each split its name and its two folders below the roots."""
    if not isinstance(images, Mapping) and not isinstance(masks, Mapping):
        return as_path("images", images), as_path("masks", masks), ()
    if not (isinstance(images, Mapping) and isinstance(masks, Mapping)) or not images or set(images) != set(masks):
        raise error(
            "U605",
            "`images` and `masks` do not have the same splits",
            expected="two folders, or two dicts of folders with the same splits",
            found=preview(list(images) if isinstance(images, Mapping) else images),
            do='segmentation({"train": "train/images"}, {"train": "train/masks"})',
        )
    pairs = [(str(name), as_path("images", images[name]), as_path("masks", masks[name])) for name in images]
    root = os.path.commonpath([os.path.abspath(path) for _, *both in pairs for path in both])
    if not os.path.isabs(pairs[0][1]):
        root = os.path.relpath(root)
    return root, root, tuple([(name, os.path.relpath(a, root), os.path.relpath(b, root)) for name, a, b in pairs])


@dataclass(frozen=True)
class SegmentationSource(ImageMaskSource):
    masks: str
    classes: tuple[str, ...] | None
    count: int | None
    ignore: int | None
    optional_masks: bool
    folders: tuple[tuple[str, str, str], ...] = ()  # of each split, below the root: its name, images and masks

    kind = "segmentation"

    @property
    def mask_root(self) -> str:
        return self.masks

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": self.count if self.classes is None else list(self.classes),
            "ignore": self.ignore,
            "optional_masks": self.optional_masks,
            **({"folders": [list(one) for one in self.folders]} if self.folders else {}),
        }

    def _list(self) -> PairListing:
        hints: dict[str, Any] = {} if self.ignore is None else {"ignore": self.ignore}
        if self.count is not None:
            hints["classes"] = self.count
        hints["optional_masks"] = self.optional_masks
        if not self.folders:
            pairs, files = self._list_pair(self.root, self.masks)
            splits = [split_of_folder(top) if slash else None for top, slash, _ in _partition_filenames(pairs)]
            if None not in splits:
                pairs = [pair._replace(split=split) for pair, split in zip(pairs, splits, strict=True)]
            return PairListing(pairs, files, self.classes, hints)
        pairs, files = [], []
        for split, images, masks in self.folders:
            below = images.replace(os.sep, "/")
            found, listed = self._list_pair(os.path.join(self.root, images), os.path.join(self.root, masks))
            beside = masks.replace(os.sep, "/")
            pairs += [
                pair._replace(
                    path=_normalize(f"{below}/{pair.path}"),
                    image=pair.image and f"{below}/{pair.image}",
                    mask=pair.mask and f"{beside}/{pair.mask}",
                    split=split,
                )
                for pair in found
            ]
            files += [file._replace(path=_normalize(f"{below}/{file.path}")) for file in listed]
        pairs.sort(key=lambda pair: os.fsencode(pair.path))
        return PairListing(pairs, files, self.classes, hints)

    def _list_pair(self, images: str, masks: str) -> tuple[list[ImageMaskPair], list[SourceFile]]:
        validate_folder(images, name="images")
        validate_folder(masks, name="masks")
        inside = os.path.relpath(os.path.realpath(masks), os.path.realpath(images))
        image_files, others = find_images(images)
        if inside == ".":
            mask_files, other_masks = _select_masks(image_files), others
            if not mask_files:
                raise error(
                    "U605",
                    "`images` and `masks` are the same folder",
                    location=Location(path=to_printable_path(images)),
                    expected="a folder of images and another folder of masks, or masks named like x_mask.png",
                    found=preview(os.path.basename(images)),
                    do="move the masks to their own folder, under the same names",
                )
            chosen = set(mask_files)
            image_files = tuple([file for file in image_files if file not in chosen])
        else:
            # Masks in a folder below the images are not images.
            image_files = tuple([file for file in image_files if not file.path.startswith(f"{inside}/")])
            mask_files, other_masks = find_images(masks)
            above = os.path.relpath(os.path.realpath(images), os.path.realpath(masks))
            mask_files = tuple([file for file in mask_files if not file.path.startswith(f"{above}/")])
        if not image_files:
            raise no_images_error(images, others)
        if not mask_files and not self.optional_masks:
            raise no_images_error(masks, other_masks, name="masks")
        convention = _detect_convention(image_files, mask_files)
        if convention.image == _IMAGE_SUFFIX:
            # gtFine also holds images of colours and instances, which are not masks of class ids.
            mask_files = _select_by_suffix(mask_files, convention.mask)
        beside = os.path.relpath(masks, images)
        pairs = _pair_files(image_files, mask_files, convention, beside, lambda _: self.optional_masks)
        files = [*image_files, *[file._replace(path=_normalize(f"{beside}/{file.path}")) for file in mask_files]]
        return pairs, files


def _partition_filenames(pairs: Iterable[ImageMaskPair]) -> Iterator[tuple[str, str, str]]:
    return (pair.filename.partition("/") for pair in pairs)


def _normalize(path: str) -> str:
    return os.path.normpath(path).replace(os.sep, "/")


def _select_masks(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """The masks among images in the same folder: those that are named like another image with a usual ending."""
    stems = {strip_image_extension(file.path) for file in files}
    for convention in _CONVENTIONS[1:]:
        found = []
        for file in files:
            stem = strip_image_extension(file.path)
            if stem.endswith(convention.mask) and stem.removesuffix(convention.mask) + convention.image in stems:
                found.append(file)
        if found:
            return tuple(found)
    return ()


@check_keywords
def cityscapes(path: str | os.PathLike[str], *, optional_masks: bool | None = None) -> CityscapesSource:
    """Cityscapes images with their fine masks: `leftImg8bit/SPLIT/CITY/` and `gtFine/SPLIT/CITY/`.

    The masks are those of train ids (19 classes) if there are any, else those of all ids (34 classes). By default
    only images of `test` may lack a mask; `optional_masks` allows or forbids it for all.
    """
    return CityscapesSource(as_path("path", path), optional_masks)


@dataclass(frozen=True)
class CityscapesSource(ImageMaskSource):
    optional_masks: bool | None

    kind = "cityscapes"

    def options(self) -> Mapping[str, Any]:
        return {"optional_masks": self.optional_masks}

    def _list(self) -> PairListing:
        images, masks = [find_dataset_folder(self.root, name, "Cityscapes") for name in ("leftImg8bit", "gtFine")]
        image_files, others = find_images(images)
        image_files = _select_by_suffix(image_files, _IMAGE_SUFFIX)
        if not image_files:
            raise no_images_error(images, others, name=f"images named *{_IMAGE_SUFFIX}.png")
        found = find_images(masks).files
        train_ids = _select_by_suffix(found, _TRAIN_IDS_SUFFIX)
        mask_files = train_ids or _select_by_suffix(found, _IDS_SUFFIX)
        convention = MaskNaming(_IMAGE_SUFFIX, _TRAIN_IDS_SUFFIX if train_ids else _IDS_SUFFIX)
        pairs = [
            pair._replace(
                path=f"leftImg8bit/{pair.path}" if pair.image else pair.path,
                image=pair.image and f"leftImg8bit/{pair.image}",
                mask=pair.mask and f"gtFine/{pair.mask}",
                filename=os.path.basename(pair.filename).removesuffix(f"{_IMAGE_SUFFIX}.png"),
                split=pair.filename.partition("/")[0].lower(),
            )
            for pair in _pair_files(image_files, mask_files, convention, "gtFine", self._is_mask_optional)
        ]
        files = [file._replace(path=f"leftImg8bit/{file.path}") for file in image_files]
        files += [file._replace(path=f"gtFine/{file.path}") for file in mask_files]
        names = CITYSCAPES_TRAIN_IDS if train_ids else CITYSCAPES_IDS
        without = any(pair.code is None and pair.mask is None for pair in pairs)
        hints = {"classes": len(names), "ignore": 255, "optional_masks": bool(self.optional_masks) or without}
        pairs.sort(key=lambda pair: os.fsencode(pair.path))
        return PairListing(pairs, files, names, hints)

    def _is_mask_optional(self, path: str) -> bool:
        if self.optional_masks is None:
            return path.partition("/")[0].lower() == "test"
        return self.optional_masks


def _select_by_suffix(files: Iterable[SourceFile], suffix: str) -> tuple[SourceFile, ...]:
    return tuple([file for file in files if strip_image_extension(file.path).endswith(suffix)])


def find_dataset_folder(root: str, name: str, dataset: str, *, instead: str | None = None) -> str:
    """A folder that a dataset must have. If it is missing, the error suggests a folder nearby, or `instead`."""
    folder = os.path.join(validate_folder(root), *name.split("/"))
    if os.path.isdir(folder):
        return folder
    raise error(
        "X529",
        f"path is not a {dataset} folder",
        location=Location(path=join_path(root, "")),
        expected=f"a folder {name} in it",
        found="none",
        do=instead or _find_nearby_folder(root, name),
    )


def _find_nearby_folder(root: str, name: str) -> str:
    folders = [root]
    for _ in range(2):
        folders = [below for folder in folders for below in _list_folders(folder)][:_MAX_INSPECTED]
        for folder in folders:
            if os.path.isdir(os.path.join(folder, *name.split("/"))):
                return f"pass {join_path(folder, '')} instead"
    return f"pass the folder that contains {name}"


def _list_folders(folder: str) -> list[str]:
    try:
        paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))[:_MAX_INSPECTED]]
    except OSError:
        return []
    return [path for path in paths if os.path.isdir(path)]


def _detect_convention(images: Iterable[SourceFile], masks: Iterable[SourceFile]) -> MaskNaming:
    """The convention of two folders; that of equal names if none pairs any mask with an image."""
    have = {strip_image_extension(file.path) for file in images}
    return find_mask_naming(have, [strip_image_extension(file.path) for file in masks]) or _CONVENTIONS[0]


def find_mask_naming(have: Collection[str], stems: Sequence[str]) -> MaskNaming | None:
    """The first convention that pairs any mask with an image, given their names without extensions."""
    for convention in _CONVENTIONS:
        for name in stems:
            if name.endswith(convention.mask) and name.removesuffix(convention.mask) + convention.image in have:
                return convention
    return _derive_convention(have, stems)


def _derive_convention(images: Collection[str], masks: Sequence[str]) -> MaskNaming | None:
    """The ending that all masks share after the name of an image: `x.ah`, `x_1stHO`, `x_instance_color_RGB`."""
    first = min(masks, default="")
    # The shortest ending first: `1_a` may be an image, too.
    for end in range(len(first) - 1, 0, -1):
        ending = first[end:]
        if first[:end] not in images or ending[0].isalnum():
            continue
        if all(name.endswith(ending) and name.removesuffix(ending) in images for name in masks):
            return MaskNaming("", ending)
    return None


def _pair_files(
    images: Iterable[SourceFile],
    masks: Iterable[SourceFile],
    convention: MaskNaming,
    beside: str,
    may_be_without: Callable[[str], bool],
) -> list[ImageMaskPair]:
    """A row for every image, and for every mask without an image, in the order of their paths.

    `beside` is the path from the images to the masks.
    """
    pairs = []
    ids: dict[str, SourceFile] = {}
    for mask in masks:
        name = strip_image_extension(mask.path).removesuffix(convention.mask)
        path = f"{beside}/{mask.path}"
        alone = ImageMaskPair(path, None, mask.path, mask.path, mask.size_bytes)
        if not is_utf8_encodable(mask.path):
            pairs.append(alone._replace(code="E318", other=path))
        elif (first := ids.setdefault(name, mask)) is not mask:
            pairs.append(alone._replace(code="E365", other=os.path.basename(first.path)))
    image_names = set()
    firsts: dict[str, SourceFile] = {}
    for image in images:
        name = strip_image_extension(image.path).removesuffix(convention.image)
        image_names.add(name)
        found = ids.get(name)
        size_bytes = image.size_bytes + (0 if found is None else found.size_bytes)
        pair = ImageMaskPair(image.path, image.path, found and found.path, image.path, size_bytes)
        if not is_utf8_encodable(image.path):
            pair = pair._replace(code="E318", other=image.path)
        elif (first := firsts.setdefault(name, image)) is not image:
            pair = pair._replace(code="E365", other=os.path.basename(first.path))
        elif found is None and not may_be_without(image.path):
            pair = pair._replace(code="E363", other=f"{os.path.basename(name)}{convention.mask}.png")
        pairs.append(pair)
    for name, mask in ids.items():
        if name not in image_names:
            alone = ImageMaskPair(f"{beside}/{mask.path}", None, mask.path, mask.path, mask.size_bytes)
            pairs.append(alone._replace(code="E364", other=os.path.basename(name) + convention.image))
    pairs.sort(key=lambda pair: os.fsencode(pair.path))
    return pairs


VOC_SEGMENTATION_CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train"),
    "tvmonitor",
)
VOC_IGNORE = 255
Colour = tuple[int, int, int]

_LISTS_FOLDER = "ImageSets/Segmentation"
_IMAGES_FOLDER = "JPEGImages"
_MASKS_FOLDER = "SegmentationClass"
_VOID_NAMES = ("ignored", "ignore", "void")
_VOID_COLOUR = (224, 224, 192)
_MAX_LINE_CHARACTERS = 1 << 16


@check_keywords
def voc_segmentation(
    path: str | os.PathLike[str], *, classes: Sequence[str] | None = None, optional_masks: bool | None = None
) -> VocSegmentationSource:
    """Images of a Pascal VOC folder that its segmentation lists name, with their masks and splits.

    The lists are `train.txt` and `val.txt` (or `trainval.txt` if neither exists) and `test.txt`. Masks are those of
    `SegmentationClass`. By default only images of `test` may lack one; `optional_masks` allows or forbids it for all.
    The classes are `classes`, or those of `labelmap.txt` in the folder, or the 21 of VOC. 255 means no class.
    """
    return VocSegmentationSource(as_path("path", path), class_names(classes), optional_masks)


@dataclass(frozen=True)
class VocSegmentationSource(ImageMaskSource):
    classes: tuple[str, ...] | None
    optional_masks: bool | None

    kind = "voc_segmentation"

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": None if self.classes is None else list(self.classes),
            "optional_masks": self.optional_masks,
        }

    def _list(self) -> PairListing:
        images = find_dataset_folder(self.root, _IMAGES_FOLDER, "Pascal VOC")
        masks_folder = os.path.join(self.root, _MASKS_FOLDER)
        instead = (
            f"read {_IMAGES_FOLDER} and {_MASKS_FOLDER} without lists: rk.sources.segmentation(images, masks)"
            if os.path.isdir(masks_folder)
            else "if these are images with boxes: rk.sources.voc(path)"
        )
        lists = find_dataset_folder(self.root, _LISTS_FOLDER, "Pascal VOC", instead=instead)
        images_by_id = {strip_image_extension(file.path): file for file in find_images(images).files}
        masks: dict[str, SourceFile] = {}
        if os.path.isdir(masks_folder):
            masks = {strip_image_extension(file.path): file for file in find_images(masks_folder).files}
        files = []
        pairs: list[ImageMaskPair] = []
        first: dict[str, str] = {}
        for name in _select_lists(lists):
            path = f"{_LISTS_FOLDER}/{name}.txt"
            files.append(_to_source_file(self.root, path))
            for position, (line, image_id) in enumerate(_read_ids(os.path.join(self.root, path))):
                pair = self._pair(path, name, image_id, images_by_id, masks)
                pair = pair._replace(position=position, line=line)
                earlier = first.setdefault(image_id, f"{name}.txt, line {line:,}")
                if pair.code is None and earlier != f"{name}.txt, line {line:,}":
                    pair = pair._replace(code="E362", other=earlier)
                pairs.append(pair)
        if not pairs:
            raise error(
                "X529",
                "segmentation lists name no images",
                location=Location(path=join_path(self.root, _LISTS_FOLDER)),
                expected="train.txt, val.txt, trainval.txt or test.txt, one id per line",
                found=f"{len(files)} empty lists" if files else "no such list",
                do=instead,
            )
        for image_id in first:
            for folder, known in ((_IMAGES_FOLDER, images_by_id), (_MASKS_FOLDER, masks)):
                if image_id in known:
                    files.append(known[image_id]._replace(path=f"{folder}/{known[image_id].path}"))
        names, colours = _read_classes(self.root)
        if self.classes is not None and self.classes != names:
            names, colours = self.classes, None  # the colours would stand for other classes
        without = any(pair.code is None and pair.mask is None for pair in pairs)
        hints: dict[str, Any] = {"classes": len(names), "ignore": VOC_IGNORE}
        hints["optional_masks"] = bool(self.optional_masks) or without
        if colours is not None:
            hints["colours"] = colours
        return PairListing(pairs, files, names, hints)

    def _pair(
        self,
        path: str,
        split: str,
        image_id: str,
        images_by_id: Mapping[str, SourceFile],
        masks: Mapping[str, SourceFile],
    ) -> ImageMaskPair:
        if not is_utf8_encodable(image_id):
            return ImageMaskPair(path, None, None, "", 0, split, code="E318", other=image_id)
        image, mask = images_by_id.get(image_id), masks.get(image_id)
        size_bytes = sum([file.size_bytes for file in (image, mask) if file is not None])
        pair = ImageMaskPair(
            path,
            image and f"{_IMAGES_FOLDER}/{image.path}",
            mask and f"{_MASKS_FOLDER}/{mask.path}",
            image_id,
            size_bytes,
            split,
        )
        if image is None:
            return pair._replace(code="E360", other=f"{_IMAGES_FOLDER}/{image_id}.jpg")
        optional = split == "test" if self.optional_masks is None else self.optional_masks
        if mask is None and not optional:
            return pair._replace(code="E363", other=f"{_MASKS_FOLDER}/{image_id}.png")
        return pair


def _select_lists(folder: str) -> list[str]:
    """The lists that together name each image once, in the order of their files."""
    there = [name for name in ("train", "val", "trainval") if os.path.isfile(os.path.join(folder, f"{name}.txt"))]
    used = [name for name in there if name != "trainval"] or there
    test = ["test"] if os.path.isfile(os.path.join(folder, "test.txt")) else []
    return sorted(test + used)


def _to_source_file(root: str, path: str) -> SourceFile:
    try:
        facts = os.stat(os.path.join(root, path))
    except OSError as failure:
        raise read_error(join_path(root, path), failure) from failure
    return SourceFile(path, facts.st_size, facts.st_mtime_ns)


def _read_lines(path: str) -> Iterator[tuple[int, str]]:
    """The non-empty lines of a small text file, with their numbers."""
    number = 0
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            while line := file.readline(_MAX_LINE_CHARACTERS + 1):
                number += 1
                if len(line) > _MAX_LINE_CHARACTERS or "\0" in line:
                    found = "a zero byte" if "\0" in line else f"more than {_MAX_LINE_CHARACTERS:,} characters"
                    raise _not_text_error(path, number, found)
                if line.strip():
                    yield number, line.strip()
    except OSError as failure:
        raise read_error(path, failure) from failure


def _read_ids(path: str) -> Iterator[tuple[int, str]]:
    """The ids in a list, with their lines. Lists of one class have a flag after the id, others full paths."""
    for number, line in _read_lines(path):
        name = strip_image_extension(line.split()[0])
        yield number, name.removeprefix("/").removeprefix(f"{_IMAGES_FOLDER}/")


def _read_classes(root: str) -> tuple[tuple[str, ...], dict[Colour, int] | None]:
    """The classes of a folder, and the colours that stand for them."""
    path = os.path.join(root, "labelmap.txt")
    if not os.path.isfile(path):
        return VOC_SEGMENTATION_CLASSES, {
            **{_palette_colour(i): i for i in range(len(VOC_SEGMENTATION_CLASSES))},
            _VOID_COLOUR: VOC_IGNORE,
        }
    names: list[str] = []
    colours: dict[Colour, int] = {}
    entries = 0
    for number, line in _read_lines(path):
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
            names.append(name)
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
