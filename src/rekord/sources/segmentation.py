"""Images and masks that are paired by their names: two folders, or Cityscapes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.base import SourceFile
from rekord.sources.images import checked_classes, no_images
from rekord.sources.pairs import Pair, Paired, PairSource
from rekord.sources.trees import folder_path, given_path, is_unicode, joined, pictures_below, printable, stem

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
    names = None if count is not None else checked_classes(classes)  # type: ignore[arg-type]
    return Segmentation(
        given_path(images, name="images"),
        given_path(masks, name="masks"),
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
    return Cityscapes(given_path(path), optional_masks)


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
