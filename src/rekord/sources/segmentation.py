"""Images and masks as rows: two folders, lists of pairs, or Cityscapes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from rekord.arguments import as_path, check_keywords, invalid, is_utf8_encodable
from rekord.codec.images.store import inspect_mask
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.base import (
    PartItem,
    SourceFacts,
    SourceFile,
    SourceGuess,
    SourcePart,
    SourceRow,
    UnusedInput,
)
from rekord.sources.colour_tables import (
    ColourTable,
    camvid_colours,
    find_colour_table,
    read_colour_table,
    read_text_lines,
)
from rekord.sources.detection_common import (
    candidate_image_folders,
    find_base,
    read_list_head,
    recognized_lists,
    relative_path,
    split_list_line,
    stat_listed,
    strip_folders,
)
from rekord.sources.image_folder import (
    SPLIT_NAMES,
    ListingSource,
    SourceListing,
    class_names,
    find_images,
    fingerprint,
    is_image_name,
    join_path,
    name_error,
    no_images_error,
    sort_splits,
    split_of_folder,
    strip_image_extension,
    to_printable_path,
    validate_folder,
)
from rekord.storage import raw_files
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


@dataclass(frozen=True)
class ImageMaskSource(ListingSource):
    """What the segmentation sources share. A subclass names its kind, and pairs its files in `_list`.

    The hints for the layout, as far as known: `classes` (their number), `ignore`, `colours` (a colour to its id) and
    `optional_masks`.
    """

    root: str

    kind: ClassVar[str]

    @property
    def image_root(self) -> str:
        """The folder of the images."""
        return self.root

    @property
    def mask_root(self) -> str:
        """The folder of the masks."""
        return self.root

    def options(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def build_listing(
        self,
        pairs: Sequence[ImageMaskPair],
        files: Iterable[SourceFile],
        classes: tuple[str, ...] | None,
        hints: Mapping[str, Any],
        unused: Sequence[UnusedInput] = (),
        guesses: Sequence[SourceGuess] = (),
    ) -> SourceListing:
        """The listing of these rows, in order."""
        splits = {pair.split for pair in pairs if pair.split is not None}
        facts = SourceFacts(
            layout="deeplab",
            classes=classes,
            rows=len(pairs),
            source_bytes=sum([pair.size_bytes for pair in pairs]),
            splits=sort_splits(splits) or None,
            files=fingerprint(files),
            unused=tuple(unused),
            guesses=tuple(guesses),
            extra=hints,
        )
        return SourceListing(facts, [(pair, pair.size_bytes) for pair in pairs])

    def read(self, part: SourcePart) -> Iterator[SourceRow]:
        root, mask_root = raw_files.to_path(self.image_root), raw_files.to_path(self.mask_root)
        for pair in part.content[1]:
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

    def part_items(self, part: SourcePart) -> Iterator[PartItem]:
        """The pairs of a part."""
        beside = raw_files.relpath(self.mask_root, self.image_root).replace(os.sep, "/")
        prefix = "" if beside == "." else f"{beside}/"
        for pair in part.content[1]:
            named = (pair.image, None if pair.mask is None else f"{prefix}{pair.mask}")
            files = tuple([one for one in named if one is not None])
            yield PartItem(pair, files, to_printable_path(pair.path), pair.position)

    def shared_context(self) -> Any:
        """Nothing: a pair says what its row is."""

    def _row_error(self, pair: ImageMaskPair) -> RekordError:
        if pair.code == "E318" and pair.line is None:
            return name_error(self.image_root, pair.path)
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
        where = Location(path=join_path(self.image_root, pair.path), line=pair.line, feature=feature)
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
_MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "annotation", "ann_dir", "annot", "gt", "gts")


class MaskNaming(NamedTuple):
    """The endings of image and mask names, after the part that they share."""

    image: str
    mask: str


_CONVENTIONS = (
    MaskNaming("", ""),
    *[MaskNaming("", end) for end in ("_mask", "_label", "_labels", "-mask", "-label", "_seg", "_gt", "_L")],
    *[MaskNaming("", end) for end in ("_masks", "_segmentation", "_annotation", "_anno", "_GT", ".mask")],
    *[MaskNaming(end, "_mask") for end in ("_image", "_img", "_sat")],
    MaskNaming(_IMAGE_SUFFIX, _TRAIN_IDS_SUFFIX),
    MaskNaming(_IMAGE_SUFFIX, _IDS_SUFFIX),
)


# The names of folders of images and masks for a split, in the folder of the dataset.
_SPLIT_FOLDERS = (
    *[("{0}", "{0}" + end) for end in ("annot", "_annot", "_labels", "_label", "_masks", "_mask", "labels", "masks")],
    *[("{0}_images", "{0}_" + end) for end in ("masks", "labels", "mask", "label")],
    *[("{0}/" + one, "{0}/" + two) for one in ("images", "image", "imgs", "img") for two in _MASK_FOLDERS],
    *[(one + "/{0}", two + "/{0}") for one in ("images", "image", "img_dir", "imgs") for two in _MASK_FOLDERS],
)


@check_keywords
def segmentation(
    images: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]],
    masks: str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]] | None = None,
    *,
    classes: int | Sequence[str] | None = None,
    ignore: int | None = None,
    optional_masks: bool = False,
    colours: str | os.PathLike[str] | None = None,
) -> SegmentationSource:
    """Images and their masks, paired by their paths below the two folders, without extensions.

    If no name is the same on both sides, the usual endings are tried: `x.jpg` with `x_mask.png`, `x_label.png` and
    the like, the names of Cityscapes, and any ending that all masks share. The two folders may be the same if masks
    have a usual ending. An image without a mask, a mask without an image and a second image of the same name are bad
    rows; with `optional_masks` an image without a mask is a row without `mask`. `classes` (their number or their
    names) and `ignore` are passed on to the layout.

    If every first-level folder is named like a split (train, val, valid, validation, dev, eval, test), rows have a
    `split`. Two dicts have the two folders of each split:
    `segmentation({"train": "train/images"}, {"train": "train/masks"})`.

    Without `masks`, `images` is a list with an image and its mask on each line, separated by spaces, a comma or a
    tab; or the folder of a dataset with such a list per split (`train.txt`, `val.txt`), or with folders of images and
    masks for each split: `train` and `trainannot`, `train/images` and `train/masks`, or `images/train` and
    `masks/train`. Leading folders that all paths of a list share are dropped if they do not exist.

    The classes of masks in colours are those of `colours`, a file with a class per line: `red green blue name` or
    `name,red,green,blue`. By default it is `label_colors.txt`, `class_dict.csv` or the like in one of these folders
    or the folder that contains them. Ids are the line numbers from 0; `Void` is `ignore` (255). A colour that the
    table lacks makes a bad row. Masks of class ids do not use it.
    """
    count = classes if isinstance(classes, int) and not isinstance(classes, bool) else None
    names = None if count is not None else class_names(classes)  # type: ignore[arg-type]
    folders: tuple[tuple[str, str, str], ...] = ()
    if isinstance(images, Mapping) or isinstance(masks, Mapping):
        images, folders = _find_common_root(images, masks)
        masks = None
    return SegmentationSource(
        as_path("images", images),
        None if masks is None else as_path("masks", masks),
        names,
        len(names) if names else count,
        ignore,
        bool(optional_masks),
        None if colours is None else as_path("colours", colours),
        folders,
    )


def _find_common_root(images: object, masks: object) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """The folder that contains those of all splits; and for each split its name and its two folders below it."""
    if not isinstance(images, Mapping) or not isinstance(masks, Mapping) or not images or set(images) != set(masks):
        raise error(
            "U605",
            "`images` and `masks` do not have the same splits",
            expected="two folders, or two dicts of folders with the same splits",
            found=preview(list(images) if isinstance(images, Mapping) else images),
            do='segmentation({"train": "train/images"}, {"train": "train/masks"})',
        )
    pairs = [(str(name), as_path("images", images[name]), as_path("masks", masks[name])) for name in images]
    root = raw_files.commonpath([raw_files.abspath(path) for _, *both in pairs for path in both])
    root = root if raw_files.isabs(pairs[0][1]) else raw_files.relpath(root)
    return root, tuple([(name, relative_path(root, a), relative_path(root, b)) for name, a, b in pairs])


def recognize_pair_list(path: str, head: bytes | None = None) -> bool:
    """Whether a file is a list of images and masks that exist, or a folder has such a list, or one per split.

    `head` is the beginning of the file, if it was already read.
    """
    if head is None and raw_files.isdir(path):
        return bool(recognized_lists(path, recognize_pair_list))
    text, _ = read_list_head(path, head)
    lines = [split_list_line(line.strip(), None) for line in text.splitlines()[:_MAX_INSPECTED] if line.strip()]
    if not lines or not all(is_image_name(image) and is_image_name(mask) for image, mask in lines):
        return False
    folders = candidate_image_folders(path)
    return all(any(_find_listed(names, folders)) for names in zip(*lines, strict=True))


def recognize_split_pairs(path: str) -> bool:
    """Whether a folder has folders of images and masks for each split, with the same names."""
    found = _find_split_folders(path)
    for _, images, masks in found:
        with suppress(RekordError):
            image_files, mask_files = find_images(os.path.join(path, images)), find_images(os.path.join(path, masks))
            convention = _detect_convention(image_files.files, mask_files.files)
            stems = {strip_image_extension(file.path).removesuffix(convention.image) for file in image_files.files}
            paired = [strip_image_extension(one.path).removesuffix(convention.mask) for one in mask_files.files]
            if paired and 2 * len(stems.intersection(paired)) > max(len(stems), len(paired)):
                continue
        return False
    return bool(found)


def _find_split_folders(root: str) -> list[tuple[str, str, str]]:
    """The splits of a folder, each with its folders of images and of masks."""
    for images, masks in _SPLIT_FOLDERS:
        found = []
        for split in SPLIT_NAMES:
            for name in (split, split.capitalize()):
                both = images.format(name), masks.format(name)
                if all(raw_files.isdir(os.path.join(root, one)) for one in both):
                    found.append((split, *both))
                    break
        if found:
            return found
    return []


def _find_listed(paths: Sequence[str], folders: Sequence[str]) -> list[tuple[str, os.stat_result] | None]:
    """The full paths of listed files, and their facts."""
    base, left_off = find_base(list(paths), folders)
    found = [stat_listed(base, strip_folders(path, left_off)) for path in paths]
    return [None if one is None else (os.path.join(base, one[0]), one[1]) for one in found]


@dataclass(frozen=True)
class SegmentationSource(ImageMaskSource):
    masks: str | None
    classes: tuple[str, ...] | None
    count: int | None
    ignore: int | None
    optional_masks: bool
    colours: str | None = None
    folders: tuple[tuple[str, str, str], ...] = ()  # of each split, below the root: its name, images and masks

    kind = "segmentation"

    @property
    def mask_root(self) -> str:
        return self._base if self.masks is None else self.masks

    @property
    def image_root(self) -> str:
        return self._base

    @property
    def _base(self) -> str:
        """The folder of the images, or that of the list."""
        is_list = self.masks is None and not raw_files.isdir(self.root)
        return os.path.dirname(self.root) or "." if is_list else self.root

    def options(self) -> Mapping[str, Any]:
        return {
            "classes": self.count if self.classes is None else list(self.classes),
            "ignore": self.ignore,
            "optional_masks": self.optional_masks,
            **({} if self.colours is None else {"colours": relative_path(self._base, self.colours)}),
            **({"folders": [list(one) for one in self.folders]} if self.folders else {}),
        }

    def _list(self) -> SourceListing:
        if self.masks is not None:
            pairs, files = self._pair_folders(self.root, self.masks)
            tops = [pair.filename.partition("/") for pair in pairs]
            splits = [split_of_folder(top) if slash else None for top, slash, _ in tops]
            if None not in splits:
                pairs = [pair._replace(split=split) for pair, split in zip(pairs, splits, strict=True)]
            near = [self.masks, self.root, os.path.join(self.masks, ".."), os.path.join(self.root, "..")]
            return self._describe(pairs, files, near)
        lists: dict[str, str | None] = {}
        if not raw_files.isdir(self.root):
            lists = {os.path.basename(self.root): None}
        elif not self.folders:
            lists = recognized_lists(self.root, recognize_pair_list)
        if lists:
            pairs, files = [], []
            first: dict[str, str] = {}
            for path, split in lists.items():
                files.append(list_file(self._base, path))
                pairs += self._read_list(path, split, first, files)
            if not pairs:
                raise _no_pairs_error(self.root, "an empty list")
            return self._describe(pairs, files, [self._base, *[self._full(pair.mask, "..") for pair in pairs[:1]]])
        pairs, files = [], []
        for split, images, masks in self.folders or _find_split_folders(self.root):
            more, found = self._pair_folders(os.path.join(self.root, images), os.path.join(self.root, masks))
            beside = raw_files.relpath(masks, images)
            files += [_move_file(file, images, beside, masks) for file in found]
            pairs += [
                pair._replace(
                    path=raw_files.normpath(f"{images}/{pair.path}"),
                    image=pair.image and f"{images}/{pair.image}",
                    mask=pair.mask and f"{masks}/{pair.mask}",
                    filename=f"{images}/{pair.filename}",
                    split=split,
                )
                for pair in more
            ]
        if not pairs:
            raise _no_pairs_error(self.root, "none")
        pairs.sort(key=lambda pair: os.fsencode(pair.path))
        return self._describe(pairs, files, [self.root, *[self._full(pair.mask, "..") for pair in pairs[:1]]])

    def _full(self, path: str | None, *more: str) -> str:
        return os.path.join(self.mask_root, path or "", *more)

    def _pair_folders(self, root: str, masks_root: str) -> tuple[list[ImageMaskPair], list[SourceFile]]:
        """The pairs of two folders, and their files below the folder of the images."""
        images, masks = validate_folder(root, name="images"), validate_folder(masks_root, name="masks")
        inside = raw_files.relpath(raw_files.realpath(masks), raw_files.realpath(images))
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
        if not image_files:
            raise no_images_error(images, others)
        if not mask_files and not self.optional_masks:
            raise no_images_error(masks, other_masks, name="masks")
        convention = _detect_convention(image_files, mask_files)
        if convention.image == _IMAGE_SUFFIX:
            # gtFine also holds images of colours and instances, which are not masks of class ids.
            mask_files = _select_by_suffix(mask_files, convention.mask)
        beside = raw_files.relpath(masks, images)
        pairs = _pair_files(image_files, mask_files, convention, beside, lambda _: self.optional_masks)
        prefix = "" if beside == "." else f"{beside}/"
        return pairs, [*image_files, *[file._replace(path=f"{prefix}{file.path}") for file in mask_files]]

    def _read_list(
        self, path: str, split: str | None, first: dict[str, str], files: list[SourceFile]
    ) -> Iterator[ImageMaskPair]:
        """The pairs of a list; `first` has the line of each image, `files` gets the files."""
        place = os.path.join(self._base, path)
        lines = [(line, split_list_line(text, None)) for line, text in read_text_lines(place)]
        folders = candidate_image_folders(place)
        known = [is_utf8_encodable("".join(fields)) for _, fields in lines]
        usable = [fields for (_, fields), good in zip(lines, known, strict=True) if good]
        images = iter(_find_listed([fields[0] for fields in usable], folders))
        masks = iter(_find_listed([fields[1] for fields in usable], folders))
        listed = path.replace(os.sep, "/")
        for position, ((line, fields), good) in enumerate(zip(lines, known, strict=True)):
            pair = ImageMaskPair(listed, None, None, fields[0], 0, split, position, line)
            if not good:
                yield pair._replace(code="E318", other=" ".join(fields))
                continue
            image, mask = next(images), next(masks) if fields[1] else (next(masks), None)[1]
            if image is None:
                yield pair._replace(code="E360", other=fields[0])
                continue
            there = [relative_path(self._base, one[0]) if one is not None else None for one in (image, mask)]
            sizes = [one[1].st_size for one in (image, mask) if one is not None]
            pair = pair._replace(image=there[0], mask=there[1], filename=there[0] or "", size_bytes=sum(sizes))
            where = f"{listed}, line {line:,}"
            if (earlier := first.setdefault(there[0] or "", where)) != where:
                yield pair._replace(code="E362", other=earlier)
            elif mask is None and (fields[1] or not self.optional_masks):
                yield pair._replace(code="E363", other=fields[1] or "any name, after the image")
            else:
                files += [
                    SourceFile(name or "", one[1].st_size, one[1].st_mtime_ns)
                    for name, one in zip(there, (image, mask), strict=True)
                    if one is not None
                ]
                yield pair

    def _describe(self, pairs: list[ImageMaskPair], files: list[SourceFile], near: list[str]) -> SourceListing:
        """The listing of these pairs, with the classes of a table of colours if the masks are coloured."""
        ignore = 255 if self.ignore is None else self.ignore
        hints: dict[str, Any] = {} if self.ignore is None else {"ignore": self.ignore}
        if self.count is not None:
            hints["classes"] = self.count
        hints["optional_masks"] = self.optional_masks
        masks = [self._full(pair.mask) for pair in pairs if pair.code is None and pair.mask is not None]
        path = self.colours or find_colour_table(near)
        unused, guesses, table = [], [], None
        if masks and _is_coloured(masks[:_MAX_DECODED]):
            table, guess = self._choose_table(path, masks[:_MAX_DECODED], ignore)
            guesses += [guess] if guess is not None else []
        elif self.colours is None and path is not None:
            reason = "a table of colours, but the masks have class ids"
            unused.append(UnusedInput("file", relative_path(self._base, path), reason))
        if table is None or not table.names:
            guesses += self._find_binary_masks(masks[:_MAX_DECODED])
        if table is None:
            return self.build_listing(pairs, files, self.classes, hints, unused, guesses)
        if path is not None:
            files = [*files, list_file(self._base, relative_path(self._base, path))]
        if table.void is not None:
            guesses.append(SourceGuess("mask", f"pixels of `{table.void}` have no class: {ignore}", "ignore=…"))
        hints |= {"colours": table.colours, "ignore": ignore}
        hints.setdefault("classes", len(table.names))
        return self.build_listing(pairs, files, self.classes or table.names or None, hints, unused, guesses)

    def _find_binary_masks(self, masks: Sequence[str]) -> list[SourceGuess]:
        """What 255 means in masks of only 0 and 255, unless it is declared."""
        if self.ignore is not None or not are_binary_masks(masks):
            return []
        what = "masks have only the values 0 and 255, and 255 marks pixels without a class"
        do = "if it is class 1: rk.layouts.deeplab(classes=2, colours={(0, 0, 0): 0, (255, 255, 255): 1})"
        return [SourceGuess("mask", what, do)]

    def _choose_table(
        self, path: str | None, masks: Sequence[str], ignore: int
    ) -> tuple[ColourTable | None, SourceGuess | None]:
        """The table that gives the classes of masks in colours, and what it was decided by."""
        if path is not None:
            table = read_colour_table(path, ignore)
            if self.classes is not None and len(self.classes) != len(table.names):
                raise invalid(
                    "classes",
                    list(self.classes),
                    f"{len(table.names):,} names, one per colour of {os.path.basename(path)}",
                    "leave classes= out",
                )
            what = f"masks are in the colours of {relative_path(self._base, path)}"
            return table, None if self.colours else SourceGuess("mask", what, "colours=…")
        levels = {(i, i, i): i for i in (*range(self.count or 21), ignore)}
        if _has_only(masks, levels):
            what = "masks are RGB images of equal channels, whose values are class ids"
            return ColourTable((), levels), SourceGuess("mask", what)
        camvid = camvid_colours(ignore)
        if self.classes is None and "annot" in os.path.dirname(masks[0]) and _has_only(masks, camvid.colours):
            what = "masks are in the colours of CamVid, and there is no table of colours"
            return camvid, SourceGuess("mask", what, "colours=…")
        return None, None


_MAX_DECODED = 20  # masks that decide what their pixels mean


def _is_coloured(masks: Sequence[str]) -> bool:
    """Whether any mask has colours instead of class ids."""
    for mask in masks:
        try:
            inspect_mask(raw_files.to_path(mask), name="mask", classes=1 << 16, ignore=None, verify="headers")
        except RekordError as failure:
            if failure.code == "E334":
                return True
    return False


def _has_only(masks: Sequence[str], colours: Mapping[tuple[int, int, int], int]) -> bool:
    """Whether all these masks have only these colours."""
    for mask in masks:
        try:
            inspect_mask(
                raw_files.to_path(mask), name="mask", classes=1 << 16, ignore=None, colours=colours, verify="full"
            )
        except RekordError:
            return False
    return True


def are_binary_masks(masks: Sequence[str]) -> bool:
    """Whether these masks have only the values 0 and 255, and both or 255 occur."""
    black, white = (0, 0, 0), (255, 255, 255)
    return bool(masks) and _has_only(masks, {black: 0, white: 255}) and not _has_only(masks, {black: 0})


def _select_masks(files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
    """The masks among images in the same folder: those that are named like another image with a usual ending."""
    stems = {strip_image_extension(file.path) for file in files}
    for naming in _CONVENTIONS[1:]:
        found = []
        for file in files:
            stem = strip_image_extension(file.path)
            if stem.endswith(naming.mask) and stem.removesuffix(naming.mask) + naming.image in stems:
                found.append(file)
        if found:
            return tuple(found)
    return ()


def _move_file(file: SourceFile, images: str, beside: str, masks: str) -> SourceFile:
    is_mask = file.path.startswith(f"{beside}/")
    return file._replace(path=f"{masks}/{file.path[len(beside) + 1 :]}" if is_mask else f"{images}/{file.path}")


def _no_pairs_error(root: str, found: str) -> RekordError:
    return error(
        "X529",
        "path has no images with masks",
        location=Location(path=join_path(root, "")),
        expected="a list of images and masks, one list per split, or folders of images and masks for each split",
        found=found,
        do="rk.sources.segmentation(images, masks) with the two folders",
    )


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

    def _list(self) -> SourceListing:
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
        return self.build_listing(pairs, files, names, hints)

    def _is_mask_optional(self, path: str) -> bool:
        if self.optional_masks is None:
            return path.partition("/")[0].lower() == "test"
        return self.optional_masks


def _select_by_suffix(files: Iterable[SourceFile], suffix: str) -> tuple[SourceFile, ...]:
    return tuple([file for file in files if strip_image_extension(file.path).endswith(suffix)])


def find_dataset_folder(root: str, name: str, dataset: str, *, instead: str | None = None) -> str:
    """A folder that a dataset must have. If it is missing, the error suggests a folder nearby, or `instead`."""
    folder = os.path.join(validate_folder(root), *name.split("/"))
    if raw_files.isdir(folder):
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
            if raw_files.isdir(os.path.join(folder, *name.split("/"))):
                return f"pass {join_path(folder, '')} instead"
    return f"pass the folder that contains {name}"


def _list_folders(folder: str) -> list[str]:
    try:
        paths = [os.path.join(folder, name) for name in sorted(raw_files.listdir(folder))[:_MAX_INSPECTED]]
    except OSError:
        return []
    return [path for path in paths if raw_files.isdir(path)]


def _detect_convention(images: Iterable[SourceFile], masks: Iterable[SourceFile]) -> MaskNaming:
    """The convention of two folders; that of equal names if none pairs any mask with an image."""
    have = {strip_image_extension(file.path) for file in images}
    return find_mask_naming(have, [strip_image_extension(file.path) for file in masks]) or _CONVENTIONS[0]


def find_mask_naming(images: Collection[str], masks: Sequence[str]) -> MaskNaming | None:
    """The first convention that pairs any mask with an image, given their names without extensions.

    Otherwise the ending that all masks share after the name of an image: `x.ah`, `x_1stHO`, `x_instance_color_RGB`.
    """
    for naming in _CONVENTIONS:
        for name in masks:
            if name.endswith(naming.mask) and name.removesuffix(naming.mask) + naming.image in images:
                return naming
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


def list_file(root: str, path: str) -> SourceFile:
    try:
        facts = raw_files.stat(os.path.join(root, path))
    except OSError as failure:
        raise read_error(join_path(root, path), failure) from failure
    return SourceFile(path, facts.st_size, facts.st_mtime_ns)
