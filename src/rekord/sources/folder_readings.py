"""The reading of a folder: what explains all of its files, or the commands for what they may be."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.annotation_formats import (
    DATUMARO_FORMATS,
    HEAD_BYTES,
    identify_list,
    is_coco,
    is_coco_without_boxes,
    is_voc_annotation,
    is_yolo_label,
    name_formats,
    read_file_head,
)
from rekord.sources.base import DetectedSource, SourceGuess, SplitFolders
from rekord.sources.boxes_csv import recognize_boxes_csv
from rekord.sources.coco import ROBOFLOW_FILE_NAME
from rekord.sources.datumaro import is_datumaro_installed
from rekord.sources.detection_common import LIST_EXTENSIONS, NAMES_FILE_PATTERN, split_of_list
from rekord.sources.folder_survey import (
    CONTAINER_WORDS,
    IMAGE_WORDS,
    MASK_WORDS,
    ClassFolders,
    FileGroup,
    FolderSurvey,
    Parts,
    count_matches,
    find_same_folder_ending,
    folder_name,
    has_annotation_word,
    has_mask_word,
    is_archive,
    is_container,
    is_documentation,
    split_of,
    split_words,
)
from rekord.sources.image_csv import recognize_image_list
from rekord.sources.image_folder import join_path, split_of_folder, strip_image_extension
from rekord.sources.label_files import is_label_file
from rekord.sources.segmentation import are_binary_masks, recognize_pair_list
from rekord.storage import raw_files

_CLASS_NAMES = re.compile(r"category|categories|classes|class_?names|synset|wnid")
_SYNTHIA_MASKS = re.compile(r"/(GTLeft|GT/LABELS|SemSegColor)(/|$)", re.IGNORECASE)
_JSON_FOLDERS = ("annotations", "annotation", "labels", "json", "jsons", "gt")
# The name of the source says what the reading is based on.
_PLAIN_KINDS = ("image_folder", "voc", "coco", "yolo", "kitti", "cityscapes", "voc_segmentation")
_MAX_TRIED = 20  # files of a kind that are opened
_MAX_READINGS = 6
_MAX_SHOWN = 4
_MAX_DECODED = 5  # masks per folder


PASS_ROWS = "pass the folder or the file that contains the data, or rows of your own: rk.write(rows, out)"


class Reading(NamedTuple):
    """What a folder may be: the source, and the arguments of `rekord write` that select it."""

    what: str
    source: DetectedSource
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(["rekord", "write", *self.arguments]) + " OUT"


def weigh_folder(survey: FolderSurvey, layout: str | None) -> DetectedSource:
    """The one reading of a folder of images; U621 with the command of each reading if several are plausible."""
    survey = _enter_wrappers(survey)
    wanted = None if layout in (None, "auto") else layout
    if wanted is not None:
        return _read_as(survey, wanted)
    classes = ClassFolders(survey)
    annotated = list(_iter_annotated(survey))
    doubts = [doubt for one in annotated if (doubt := _find_reading_doubt(survey, one)) is not None]
    lists = [one for one in annotated if one.source.kind in ("image_csv", "boxes_csv")]
    if lists and not classes.doubts:
        # Lists of paths below class folders repeat the folders; others may say something else.
        agree = not any(group.evidence in ("stems", "names") for group in survey.groups)
        if agree and len(lists) == len(annotated):
            annotated = []
        else:
            annotated.append(_classes_reading(survey, classes))
    if not doubts and (len(annotated) == 1 or _is_same_layout(annotated)):
        return _with_basis(annotated[0])
    if doubts:
        explicit = [each for one in annotated for each in _iter_mask_values(survey, one)]
        raise refusal(survey, [*explicit, *_other_readings(survey, annotated)], None, doubts)
    if annotated:
        kinds = "several annotations" if len({one.source.kind for one in annotated}) == 1 else "several kinds of data"
        examples = "; ".join(one.what for one in annotated[:_MAX_SHOWN])
        raise refusal(survey, [*annotated, *_other_readings(survey, annotated)], f"{kinds}: {examples}")
    datasets = _find_datasets(survey)
    if datasets:
        name = raw_files.relpath(datasets[0].source.path, survey.root).split(os.sep)[0]
        what = f"a folder of datasets: {preview(name)} is one (rk.sources.{datasets[0].source.kind})"
        raise refusal(survey, datasets, what)
    unexplained = _find_unexplained(survey, classes)
    if classes.doubts or unexplained:
        if not unexplained and classes.is_flat:
            return _with_basis(_images_reading(survey))
        raise refusal(survey, _other_readings(survey, []), None, [*unexplained, *classes.doubts])
    return _with_basis(_classes_reading(survey, classes))


def find_known_dataset(survey: FolderSurvey) -> DetectedSource | None:
    """The source of annotations whose images may be elsewhere."""
    return next((one.source for one in _iter_annotated(_enter_wrappers(survey))), None)


def _is_same_layout(readings: Sequence[Reading]) -> bool:
    """Whether the first reading stands for all: the formats are different ones of the same boxes."""
    return bool(readings) and {one.source.kind for one in readings} <= {"voc", "coco", "yolo", "kitti"}


def _find_reading_doubt(survey: FolderSurvey, reading: Reading) -> str | None:
    """Why a reading by annotations may be wrong, or leave something out."""
    source = reading.source
    if source.kind in ("image_csv", "boxes_csv"):
        return _find_unlisted(survey, source)
    if source.kind != "segmentation":
        return None
    lists = [
        group
        for group in survey.groups
        if group.extension in (".txt", ".lst") and len({split_of_list(name) for name in group.names} - {None}) > 1
    ]
    if lists and not source.folders and source.masks is not None and _has_one_split(survey, source.path):
        return f"lists of splits in {folder_name(lists[0].folder)}, which folders of images and masks do not use"
    places = [one.masks for one in source.folders] or [source.masks or ""]
    if any(_SYNTHIA_MASKS.search(place) for place in places):
        return "masks of SYNTHIA, whose first channel is the class"
    if _has_binary_masks(survey, source):
        return "masks with only 0 and 255: 255 is a class, or marks pixels without one"
    return None


def _has_one_split(survey: FolderSurvey, path: str) -> bool:
    below = [raw_files.relpath(survey.path(parts), path).split(os.sep)[0] for parts in survey.image_folders]
    return not any(split_of_folder(name) is not None for name in below)


def _find_unlisted(survey: FolderSurvey, source: DetectedSource) -> str | None:
    """Images that the lists leave out, next to those that they name."""
    listed: set[str] = set()
    for group in survey.groups:
        inside = survey.path(group.folder)
        is_own = inside == source.path or (
            os.path.dirname(inside) == source.path and split_of_folder(os.path.basename(inside)) is not None
        )
        for name in group.names:
            path = os.path.join(inside, name)
            if group.extension not in LIST_EXTENSIONS or not (is_own or path == source.path):
                continue
            if _CLASS_NAMES.search(name.lower()) and not NAMES_FILE_PATTERN.fullmatch(name.lower()):
                return f"{'/'.join((*group.folder, name))} seems to name classes, which lists of images do not use"
            head = read_file_head(path)
            if len(head) >= HEAD_BYTES:
                return None  # what the rest lists is unknown
            words = re.split(r"[\s,;|\"']+", head.decode("utf-8", "replace"))
            listed.update(strip_image_extension(word.rsplit("/", 1)[-1]) for word in words)
    total = covered = 0
    for parts, one in survey.image_folders.items():
        left = [name for name in one.images if strip_image_extension(name) not in listed]
        total, covered = total + len(one.images), covered + len(one.images) - len(left)
        if left and len(left) < len(one.images):
            return f"{len(left):,} images in {folder_name(parts)} that no list names, such as {left[0]}"
    return f"lists of {covered:,} of {total:,} images" if covered * 2 < total else None


def _iter_mask_values(survey: FolderSurvey, reading: Reading) -> Iterator[Reading]:
    """The reading; for binary masks, one for each meaning of 255."""
    if reading.source.kind != "segmentation" or not _has_binary_masks(survey, reading.source):
        yield reading
        return
    for what, flags in (("255 is class 1", ("--colours", "0=0,255=1")), ("255 is not a class", ("--ignore", "255"))):
        yield reading._replace(what=f"{reading.what}; {what}", arguments=(*reading.arguments, *flags))


def _has_binary_masks(survey: FolderSurvey, source: DetectedSource) -> bool:
    """Whether the first masks only have the values 0 and 255: 255 may be a class, or mean no class."""
    folders = [one.masks for one in source.folders] or [source.masks or source.path]
    masks = [
        survey.path((*parts, name))
        for parts, one in survey.image_folders.items()
        for name in one.images[:_MAX_DECODED]
        if any((survey.path(parts) + os.sep).startswith(folder + os.sep) for folder in folders)
        and (source.masks != source.path or set(split_words(name)) & MASK_WORDS)
    ][: _MAX_DECODED * 4]
    # Lists of pairs have a table of colours.
    return (source.masks is not None or bool(source.folders)) and are_binary_masks(masks)


def _with_basis(reading: Reading) -> DetectedSource:
    if reading.source.kind in _PLAIN_KINDS:
        return reading.source
    return reading.source._replace(guesses=(SourceGuess(None, reading.what),))


def _enter_wrappers(survey: FolderSurvey) -> FolderSurvey:
    """The survey of the folder that holds the data, if the given one only has another folder in it."""
    parts: Parts = ()
    while True:
        one = survey.folders[parts]
        data = [name for name in one.others if not is_documentation(name)]
        if len(one.folders) != 1 or one.image_count or data:
            return FolderSurvey.below(survey, parts) if parts else survey
        inner = (*parts, one.folders[0])
        below = survey.folders.get(inner)
        if below is None or split_of_folder(one.folders[0]) is not None or has_annotation_word(one.folders[0]):
            return FolderSurvey.below(survey, parts) if parts else survey
        # The only folder with images may be the only class.
        if below.image_count and not is_container(one.folders[0]):
            return FolderSurvey.below(survey, parts) if parts else survey
        parts = inner


# Readings.


def _iter_annotated(survey: FolderSurvey) -> Iterator[Reading]:
    """Readings of the root by annotations that sources read, the most specific first."""
    path = survey.root
    if {"leftImg8bit", "gtFine"} <= set(survey.top.folders):
        yield Reading("images and masks of Cityscapes", DetectedSource("cityscapes", path), (path,))
        return
    boxes = [kind for kind, found in (("voc", _is_voc), ("coco", _is_coco)) if found(survey)]
    for kind in boxes:
        name = {"voc": "Pascal VOC", "coco": "COCO"}[kind]
        yield Reading(
            f"images with boxes, in {name} format", DetectedSource(kind, path), _with_layout(survey, "detection")
        )
    if boxes == ["voc"]:
        return  # also in a folder with masks for some of the images, as that of VOC 2012
    has_pairs = recognize_pair_list(path)
    if has_pairs:
        source = DetectedSource("segmentation", path)
        yield Reading("images and masks, in pairs from lists", source, _with_layout(survey, "deeplab"))
    else:
        yield from _iter_mask_readings(survey)
    if _is_kitti(survey):
        source = DetectedSource("kitti", path)
        yield Reading("images with boxes, in KITTI format", source, _with_layout(survey, "detection"))
    if _is_yolo(survey):
        yield Reading(
            "images with boxes, in YOLO format", DetectedSource("yolo", path), _with_layout(survey, "detection")
        )
    if not has_pairs:
        yield from _iter_lists(survey)


def _with_layout(survey: FolderSurvey, layout: str) -> tuple[str, ...]:
    return join_path(survey.root, ""), "--layout", layout


def _is_voc(survey: FolderSurvey) -> bool:
    folder = survey.top.folder("annotations")
    if folder is not None:
        return _has_voc_files(survey, (folder,), survey.folders[(folder,)].others)
    for parts in [(), *[(name,) for name in survey.top.folders if split_of_folder(name) is not None]]:
        one = survey.folders[parts]
        stems = {strip_image_extension(name) for name in one.images}
        if _has_voc_files(survey, parts, [name for name in one.others if os.path.splitext(name)[0] in stems]):
            return True
    return False


def _has_voc_files(survey: FolderSurvey, parts: Parts, names: Sequence[str]) -> bool:
    xmls = [name for name in names if name.lower().endswith(".xml")][:_MAX_TRIED]
    return any(is_voc_annotation(survey.path((*parts, name))) for name in xmls)


def _is_coco(survey: FolderSurvey) -> bool:
    for parts in [(), *[(name,) for name in survey.top.folders if split_of_folder(name) is not None]]:
        if raw_files.isfile(survey.path((*parts, ROBOFLOW_FILE_NAME))):
            return True
    places = [(), *[(name,) for name in survey.top.folders if name.lower() in _JSON_FOLDERS]]
    return any(_find_coco(survey, parts) for parts in places)


def _find_coco(survey: FolderSurvey, parts: Parts) -> list[str]:
    found = []
    for name in [name for name in survey.folders[parts].others if name.lower().endswith(".json")][:_MAX_TRIED]:
        head = read_file_head(survey.path((*parts, name)))
        if is_coco(head) and not is_coco_without_boxes(head) and not re.search("caption|panoptic", name.lower()):
            found.append(name)
    return found


def _is_kitti(survey: FolderSurvey) -> bool:
    """Whether a folder `label_2` next to `image_2` has label files of KITTI."""
    for parts, folder in survey.folders.items():
        if parts and re.fullmatch(r"label_\d+", parts[-1]):
            images = survey.folders.get((*parts[:-1], parts[-1].replace("label_", "image_")))
            texts = [name for name in folder.others if name.lower().endswith(".txt")][:_MAX_TRIED]
            heads = [read_file_head(survey.path((*parts, name)), 4096) for name in texts]
            if images is not None and images.images and any(map(is_label_file, heads)):
                return True
    return False


def _is_yolo(survey: FolderSurvey) -> bool:
    if survey.top.folder("obj_train_data") is not None:
        return True
    splits = [(name,) for name in survey.top.folders if split_of_folder(name) is not None]
    for parts in [(), *splits]:
        here = survey.folders[parts]
        labels = here.folder("labels")
        if labels is not None and _has_yolo(survey, (*parts, labels)):
            return True
        stems = {strip_image_extension(name) for name in here.images}
        beside = [name for name in here.others if name.lower().endswith(".txt") and name[:-4] in stems]
        if any(is_yolo_label(survey.path((*parts, name))) for name in beside[:_MAX_TRIED]):
            return True
    images = survey.top.folder("images")
    return images is not None and _has_yolo(survey, (images,))


def _has_yolo(survey: FolderSurvey, parts: Parts) -> bool:
    """Whether any text file below a folder, of the first ones, is a label file."""
    tried = 0
    for below, one in survey.folders.items():
        if below[: len(parts)] == parts and len(below) <= len(parts) + 3:
            for name in one.others:
                if name.lower().endswith(".txt") and name.lower() != "classes.txt":
                    tried += 1
                    if is_yolo_label(survey.path((*below, name))):
                        return True
                    if tried == _MAX_TRIED:
                        return False
    return False


# Images and masks.


class FolderPair(NamedTuple):
    """A folder of images and one of masks whose names belong together."""

    images: Parts
    masks: Parts
    matched: int  # images with a mask, among the inspected ones


def find_pairs(survey: FolderSurvey) -> list[FolderPair]:
    """Folders that differ only in the words for images and for masks, with names in common."""
    groups: dict[Parts, list[Parts]] = {}
    for parts in survey.image_folders:
        groups.setdefault(_pair_key(parts), []).append(parts)
    pairs = []
    for group in groups.values():
        masks = [parts for parts in group if any(has_mask_word(name) for name in parts)]
        images = [parts for parts in group if parts not in masks]
        for image in images:
            for mask in masks:
                matched = count_matches(survey, image, mask)
                if matched:
                    pairs.append(FolderPair(image, mask, matched))
    return pairs


def _pair_key(parts: Parts) -> Parts:
    """The words of a path that are not about images or masks: those that a pair of folders has in common."""
    kept = []
    for name in parts:
        words = split_words(name)
        rest = "".join([word for word in words if word not in IMAGE_WORDS | CONTAINER_WORDS | MASK_WORDS])
        if rest.isdigit() and rest != name:
            continue  # the number of a folder of images or masks: `image_2`, `manual1`
        if rest:
            kept.append(split_of_folder(rest) or rest)
    return tuple(kept)


def _iter_mask_readings(survey: FolderSurvey) -> Iterator[Reading]:
    voc = {"JPEGImages", "SegmentationClass"} <= set(survey.top.folders)
    if voc and raw_files.isdir(survey.path(("ImageSets", "Segmentation"))):
        source = DetectedSource("voc_segmentation", survey.root)
        yield Reading("images and masks of Pascal VOC", source, _with_layout(survey, "deeplab"))
        return
    pairs = find_pairs(survey)
    preferred = [pair for pair in pairs if pair.masks[-1] == "SegmentationClass"] or pairs
    by_images = Counter(pair.images for pair in preferred)
    by_masks = Counter(pair.masks for pair in preferred)
    clear = all(count == 1 for counts in (by_images, by_masks) for count in counts.values())
    if not preferred:
        yield from _iter_same_folder_masks(survey)
        return
    reading = _mask_reading(survey, preferred) if clear else None
    if reading is not None:
        yield reading
        return
    for pair in preferred[:_MAX_READINGS]:
        yield _pair_reading(survey, pair.images, pair.masks, pair.matched)


def _mask_reading(survey: FolderSurvey, pairs: Sequence[FolderPair]) -> Reading | None:
    """Images and masks of the whole folder, if all pairs are one source."""
    matched = sum(pair.matched for pair in pairs)
    roots = _common_roots(pairs)
    if roots is not None:
        return _pair_reading(survey, *roots, matched)
    splits = [split_of(tuple(map(_strip_role, pair.images))) for pair in pairs]
    if len(set(splits)) < len(splits) or None in splits:
        return _pair_reading(survey, *pairs[0]) if len(pairs) == 1 else None
    folders = tuple(
        [
            SplitFolders(split, survey.path(pair.images), survey.path(pair.masks))
            for split, pair in zip(splits, pairs, strict=True)
        ]
    )
    what = f"images and masks: {folder_name(pairs[0].images)} and {folder_name(pairs[0].masks)} have the same names"
    rest = len(pairs) - 1
    more = f", and so do {rest} other {'split' if rest == 1 else 'splits'}" if rest else ""
    source = DetectedSource("segmentation", survey.root, folders=folders)
    return Reading(what + more, source, _with_layout(survey, "deeplab"))


def _strip_role(name: str) -> str:
    """The name of a folder without the words for images: `train_images` and `TrainImages` are train."""
    return "".join([word for word in split_words(name) if word not in IMAGE_WORDS | CONTAINER_WORDS]) or name


def _common_roots(pairs: Sequence[FolderPair]) -> tuple[Parts, Parts] | None:
    """The two folders below which all pairs have the same paths."""
    roots = set()
    for images, masks, _ in pairs:
        shared = 0
        while shared < min(len(images), len(masks)) - 1 and images[-1 - shared] == masks[-1 - shared]:
            shared += 1
        roots.add((images[: len(images) - shared], masks[: len(masks) - shared]))
    if len(roots) != 1:
        return None
    images, masks = roots.pop()
    return (images, masks) if images != masks else None


def _pair_reading(survey: FolderSurvey, images: Parts, masks: Parts, matched: int) -> Reading:
    folders = survey.path(images), survey.path(masks)
    a, b = [join_path(one, "") for one in folders]
    names = f"{matched:,} {'name' if matched == 1 else 'names'}"
    what = f"images and masks: {folder_name(images)} and {folder_name(masks)} have {names} in common"
    return Reading(what, DetectedSource("segmentation", *folders), ("--images", a, "--masks", b))


def _iter_same_folder_masks(survey: FolderSurvey) -> Iterator[Reading]:
    """Folders with `x.jpg` and `x_mask.png`."""
    found = {}
    for parts, one in survey.image_folders.items():
        ending = find_same_folder_ending(one.images)
        if ending is not None and set(split_words(ending)) & MASK_WORDS:
            found[parts] = ending
    if found and len(found) == len(survey.image_folders):
        parts, ending = next(iter(found.items()))
        path = survey.path(parts) if len(found) == 1 else survey.root
        what = f"images and masks: the names of masks end in {ending}"
        yield Reading(
            what,
            DetectedSource("segmentation", path, path),
            ("--images", join_path(path, ""), "--masks", join_path(path, "")),
        )


# Lists.


def _iter_lists(survey: FolderSurvey) -> Iterator[Reading]:
    """Lists of images with labels or boxes, anywhere in the tree: all of a folder together, or one by one."""
    groups: dict[Parts, list[FileGroup]] = {}
    for group in survey.groups:
        if group.extension in LIST_EXTENSIONS and group.evidence in ("names", "paths") and not _is_submission(group):
            groups.setdefault(group.folder, []).append(group)
    whole = list(_iter_folder_lists(survey, ())) if groups else []
    if whole:
        yield from whole
        return
    for parts, found in groups.items():
        together = list(_iter_folder_lists(survey, parts))
        yield from together or _select_lists(survey, [(*parts, name) for group in found for name in group.names])


def _is_submission(group: FileGroup) -> bool:
    """Whether files are examples of what a competition wants: their values are not labels."""
    return all("submission" in name.lower() for name in group.names)


def _iter_folder_lists(survey: FolderSurvey, parts: Parts) -> Iterator[Reading]:
    """The lists of one folder as one source."""
    path = survey.path(parts)
    for kind, what, recognize in (
        ("boxes_csv", "boxes", recognize_boxes_csv),
        ("image_csv", "labels or texts", recognize_image_list),
    ):
        if recognize(path):
            where = f"lists in {folder_name(parts)}" if parts else "lists"
            arguments = (join_path(path, ""), "--layout", "detection" if kind == "boxes_csv" else "classification")
            yield Reading(f"images with {what}, from {where}", DetectedSource(kind, path), arguments)


def _select_lists(survey: FolderSurvey, paths: Sequence[Parts]) -> Iterator[Reading]:
    """The lists of a folder that are not one per split. One that says more than others about the same is enough."""
    found: dict[Parts, tuple[str, frozenset[str], bool]] = {}
    for parts in paths[:_MAX_TRIED]:
        head = read_file_head(survey.path(parts))
        kind = identify_list(survey.path(parts), head)
        if kind is not None:
            lines = head.decode("utf-8", "replace").splitlines()
            images = frozenset(re.split(r"[\s,;|]+", line)[0] for line in lines if line.strip())
            has_names = any(re.search(r"[,;|\t ][^\d,;|\t ]*[A-Za-z]", line) for line in lines)
            found[parts] = kind, images, has_names
    named = [parts for parts, (_, _, has_names) in found.items() if has_names]
    same = len({(kind, images) for kind, images, _ in found.values()}) == 1
    for parts in named if len(named) == 1 and same else found:
        kind = found[parts][0]
        path = survey.path(parts)
        what = {"boxes_csv": "boxes", "segmentation": "masks"}.get(kind, "labels")
        yield Reading(
            f"images with {what}, listed in {'/'.join(parts)}", DetectedSource(kind, path), (join_path(path, ""),)
        )


def _classes_reading(survey: FolderSurvey, classes: ClassFolders) -> Reading:
    names = list(classes.by_class)
    listed = ", ".join(preview(name)[1:-1] for name in names[:3]) + (", …" if len(names) > 3 else "")
    what = f"images in folders as classes: {listed}" if names else "images in folders as classes"
    return Reading(what, DetectedSource("image_folder", survey.root), _with_layout(survey, "classification"))


def _images_reading(survey: FolderSurvey) -> Reading:
    """All images, or those outside folders of masks if there are some."""
    places = [parts for parts in survey.image_folders if not any(has_annotation_word(name) for name in parts)]
    common: Parts = min(places or survey.image_folders)
    while any(parts[: len(common)] != common for parts in places or survey.image_folders):
        common = common[:-1]
    path = survey.path(common)
    what = "images without labels" if not common else f"images without labels, in {folder_name(common)}"
    return Reading(what, DetectedSource("images", path), (join_path(path, ""), "--layout", "images"))


# What else is there.


def _find_unexplained(survey: FolderSurvey, classes: ClassFolders) -> list[str]:
    """Files that neither class folders nor plain images explain."""
    found = []
    may_be_classes = not classes.doubts
    for group in survey.groups:
        if may_be_classes and group.evidence in ("text", "paths") and not _is_annotation_place(group):
            continue
        found.append(_describe_group(group))
    return found


def _is_annotation_place(group: FileGroup) -> bool:
    return bool(group.folder) and has_annotation_word(group.folder[-1])


def _describe_group(group: FileGroup) -> str:
    ending = preview(group.extension)[1:-1][:20] or "without an extension"
    files = f"{group.file_count:,} {ending} in {folder_name(group.folder)}" if group.file_count > 1 else group.example
    how = {
        "stems": "named like images" if group.file_count > 1 else "named like an image",
        "names": "naming images",
        "paths": "listing images",
    }.get(group.evidence)
    example = f", such as {group.names[0]}" if group.file_count > 1 else ""
    return files + (f" {how}" if how else "") + example


def _find_datasets(survey: FolderSurvey) -> list[Reading]:
    """Folders that are datasets of annotated images themselves, and not classes."""
    found: list[tuple[Parts, Reading]] = []
    places = [parts for parts in survey.folders if 1 <= len(parts) <= 2][:_MAX_TRIED]
    for parts in places:
        if any(parts[: len(one)] == one for one, _ in found):
            continue
        below = FolderSurvey.below(survey, parts)
        reading = next(_iter_annotated(below), None)
        if reading is not None:
            found.append((parts, reading))
    return [
        reading._replace(what=f"{folder_name(parts)}: {reading.what}", arguments=_relocate(reading, survey, parts))
        for parts, reading in found
    ]


def _relocate(reading: Reading, survey: FolderSurvey, parts: Parts) -> tuple[str, ...]:
    """The arguments for a dataset below the given folder: its own folder is enough."""
    return reading.arguments if reading.arguments[0].startswith("--") else (join_path(survey.path(parts), ""),)


def _other_readings(survey: FolderSurvey, found: Sequence[Reading]) -> list[Reading]:
    """The readings that can be asked for, whatever the doubts."""
    readings: list[Reading] = []
    if not found:
        readings += _parallel_readings(survey)
    classes = ClassFolders(survey)
    if classes.are_plausible:
        readings.append(_classes_reading(survey, classes))
    if survey.image_count:
        readings.append(_images_reading(survey))
    return readings


def _parallel_readings(survey: FolderSurvey) -> list[Reading]:
    """Two folders with the same names of images, as images and masks in either order."""
    places = [parts for parts in survey.image_folders if parts and split_of_folder(parts[-1]) is None]
    for i, a in enumerate(places[:_MAX_TRIED]):
        for b in places[i + 1 : _MAX_TRIED]:
            if a[:-1] == b[:-1]:
                matched = count_matches(survey, a, b)
                if matched * 2 > len(survey.image_folders[a].images):
                    return [_pair_reading(survey, a, b, matched), _pair_reading(survey, b, a, matched)]
    return []


def _read_as(survey: FolderSurvey, layout: str) -> DetectedSource:
    """The reading that was asked for."""
    if layout == "images":
        return DetectedSource("images", survey.root)
    annotated = list(_iter_annotated(survey))
    if layout == "deeplab":
        masks = [one for one in annotated if one.source.kind in ("segmentation", "voc_segmentation", "cityscapes")]
        masks = masks or [*_iter_mask_readings(survey)]
        if {"leftImg8bit", "gtFine"} <= set(survey.top.folders):
            masks = annotated
        if len(masks) == 1:
            return _with_basis(masks[0])
        what = "several pairs of folders of images and masks" if masks else "no folders of images and masks"
        raise refusal(survey, [*masks, *_other_readings(survey, masks)], what)
    if layout == "detection":
        boxes = [one for one in annotated if one.source.kind in ("voc", "coco", "yolo", "kitti", "boxes_csv")]
        if boxes and (len(boxes) == 1 or _is_same_layout(boxes)):
            return _with_basis(boxes[0])
        what = "several kinds of boxes" if boxes else "no boxes in a format that rekord reads"
        raise refusal(survey, [*boxes, *_other_readings(survey, boxes)], what)
    lists = [one for one in annotated if one.source.kind == "image_csv"]
    classes = ClassFolders(survey)
    if len(lists) == 1 and not (classes.by_class and classes.are_plausible):
        return _with_basis(lists[0])
    return DetectedSource("image_folder", survey.root)


# Refusals.


def refusal(
    survey: FolderSurvey, readings: Sequence[Reading], what: str | None, doubts: Sequence[str] = ()
) -> RekordError:
    """The error for a folder that may be several things, or that no source reads."""
    files = [path for path in survey.iter_files() if not is_documentation(os.path.basename(path)) or is_archive(path)]
    seen = ([what] if what else []) + list(doubts)
    more = len(seen) - _MAX_SHOWN
    shown = "; ".join(seen[:_MAX_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    images = "1 image" if survey.image_count == 1 else f"{survey.image_count:,} images" if survey.image_count else ""
    likely: str | None = None
    commands: list[tuple[str, str]] = []
    if readings and not _has_clear_format(readings):
        likely, commands = name_likely_formats(survey.root, files)
    commands += [(one.what, one.command) for one in readings[:_MAX_READINGS]]
    unique = list({command: (reading, command) for reading, command in reversed(commands)}.values())[::-1]
    return unknown_source_error(
        survey.root,
        "; ".join([one for one in (images if not what else "", shown) if one]),
        unique[0][1] if unique else PASS_ROWS,
        likely=likely,
        readings=unique,
    )


def name_likely_formats(root: str, files: Sequence[str]) -> tuple[str | None, list[tuple[str, str]]]:
    """What a folder looks like, if that is a format that no source of rekord reads, and what installs its reader."""
    formats = name_formats(root, files)
    if not formats:
        return None, []
    names = " or ".join([f"{name} ({path})" for name, path in formats[:2]])
    known = [name for name, _ in formats[:2] if name in DATUMARO_FORMATS]
    if known and is_datumaro_installed():
        return f"looks like {names}, but Datumaro does not recognise it", []
    if known:
        install = ("reads them with Datumaro", "pip install 'rekord[annotations]'")
        return f"looks like {names}, which rekord reads with Datumaro", [install]
    return f"looks like {names}, which rekord does not read", []


def _has_clear_format(readings: Sequence[Reading]) -> bool:
    return any(one.source.kind not in ("images", "image_folder", "segmentation", "text") for one in readings)


def unknown_source_error(
    path: str, found: str, do: str, *, likely: str | None = None, readings: Sequence[tuple[str, str]] = ()
) -> RekordError:
    """The error for a path whose kind of source is unknown."""
    return error(
        "U621",
        location=Location(path=join_path(path, "")),
        expected="images in folders, images and masks, VOC, COCO, YOLO, Cityscapes, CSV, JSON lines, Parquet, Arrow, "
        "NumPy, spreadsheets, SQLite, DuckDB, HDF5, Avro, ARFF, TIFF, DICOM, NIfTI, audio, video, text, tar "
        "(WebDataset) or record files; or a zip or tar file of these",
        found=found,
        likely=likely,
        do=do,
        readings=readings,
    )
