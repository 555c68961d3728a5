"""Pascal VOC folders as rows: one per image, with the boxes of its XML file, or with its mask."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np

from rekord.arguments import as_path, check_keywords, is_utf8_encodable
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.base import SourceFile
from rekord.sources.colour_tables import VOC_IGNORE, read_text_lines, read_voc_classes
from rekord.sources.detection_common import MAX_LABEL_BYTES, AnnotationSource, RowEntry
from rekord.sources.image_folder import (
    IMAGE_FILES,
    SourceListing,
    class_names,
    find_images,
    is_image_name,
    join_path,
    stat_file,
    strip_image_extension,
    validate_folder,
)
from rekord.sources.segmentation import ImageMaskPair, ImageMaskSource, find_dataset_folder, list_file
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES

_MAX_NESTING = 32
_MAX_PIXELS = 1e9
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True)
class VocObject:
    """An object: its class, its box in pixels, and its other attributes."""

    name: str
    box: tuple[float, ...]
    given: dict[str, Any]  # difficult, truncated, occluded and view, if the XML has them
    line: int


@dataclass(frozen=True, slots=True)
class VocAnnotation:
    """The annotation of one image."""

    filename: str | None = None
    width: int | None = None
    height: int | None = None
    objects: tuple[VocObject, ...] = ()


@dataclass(slots=True)
class _XmlNode:
    tag: str
    line: int
    pieces: list[str] = field(default_factory=list)  # of the text, after the last inner node
    inner: list[_XmlNode] = field(default_factory=list)

    def all(self, tag: str) -> Iterator[_XmlNode]:
        return (node for node in self.inner if node.tag == tag)

    def first(self, tag: str) -> _XmlNode | None:
        return next(self.all(tag), None)

    def text_of(self, tag: str) -> str | None:
        node = self.first(tag)
        return None if node is None else "".join(node.pieces).strip()


def parse_annotation(data: bytes, path: str) -> VocAnnotation:
    """The annotation in the bytes of an XML file. Raises E371 for another file, E369 for an invalid object."""
    root = _XmlReader(path).read(data)
    if root.tag != "annotation":
        raise _annotation_error(
            path, "XML file is not a Pascal VOC annotation", "<annotation>", f"<{root.tag[:40]}>", 1
        )
    size = root.first("size") or _XmlNode("size", 0)
    objects = tuple([_parse_object(node, path) for node in root.all("object")])
    return VocAnnotation(
        root.text_of("filename"), _parse_pixels(size, "width"), _parse_pixels(size, "height"), objects
    )


class _XmlReader:
    """Builds the nodes of a file from the events of expat."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype
        self.open = [_XmlNode("", 0)]

    def read(self, data: bytes) -> _XmlNode:
        try:
            self.parser.Parse(data, True)
        except expat.ExpatError as failure:
            found = expat.ErrorString(failure.code) or "something else"
            cut = failure.code in (
                expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS],
                expat.errors.codes[expat.errors.XML_ERROR_UNCLOSED_TOKEN],
            )
            what = "XML file is empty" if not data.strip() else "XML file cannot be parsed"
            raise _annotation_error(
                self.path,
                f"{what} at line {failure.lineno:,}, column {failure.offset + 1:,}" if data.strip() else what,
                "an annotation in XML",
                found if data.strip() else f"{len(data):,} bytes",
                failure.lineno,
                likely="the file is truncated" if cut and data.strip() else None,
            ) from failure
        except (ValueError, LookupError) as failure:  # an encoding that Python does not have
            raise _annotation_error(
                self.path, "XML file has an unknown encoding", "UTF-8", "another encoding", 1
            ) from failure
        return self.open[0].inner[0]

    def start(self, tag: str, _: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self.open) > _MAX_NESTING:
            expected = f"at most {_MAX_NESTING} levels"
            raise _annotation_error(self.path, "XML file is nested too deeply", expected, "more", line)
        node = _XmlNode(tag, line)
        self.open[-1].inner.append(node)
        self.open[-1].pieces.clear()
        self.open.append(node)

    def end(self, _: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        self.open[-1].pieces.append(text)

    def doctype(self, *_: object) -> None:
        line = self.parser.CurrentLineNumber
        raise _annotation_error(
            self.path, "XML file declares a DOCTYPE", "an annotation without a DOCTYPE", "<!DOCTYPE", line
        )


def _parse_object(node: _XmlNode, path: str) -> VocObject:
    name = node.text_of("name")
    if not name:
        raise _object_error(path, node.line, "object has no <name>", "a class name", "none")
    box = node.first("bndbox")
    if box is None:
        raise _object_error(path, node.line, "object has no <bndbox>", "xmin, ymin, xmax and ymax", "none")
    sides = []
    for side in _SIDES:
        text = box.text_of(side)
        try:
            sides.append(float(text if text and "_" not in text else ""))  # Python reads 1_0 as ten
        except ValueError:
            sides.append(float("nan"))
        if not abs(sides[-1]) < _MAX_PIXELS:
            raise _object_error(path, box.line, f"box has no valid <{side}>", "a number of pixels", preview(text))
    given: dict[str, Any] = {}
    for flag in ("difficult", "truncated", "occluded"):
        text = node.text_of(flag)
        if text:
            # Tools write 1, true, Yes; anything else is a mistake.
            known = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}
            if text.lower() not in known:
                raise _object_error(path, node.line, f"object has no valid <{flag}>", "0 or 1", preview(text))
            given[flag] = known[text.lower()]
    pose = node.text_of("pose")
    if pose:
        given["view"] = pose
    return VocObject(name, tuple(sides), given, node.line)


def _parse_pixels(size: _XmlNode, side: str) -> int | None:
    """A side of the image according to the XML; tools that do not know it write 0, or nothing."""
    try:
        number = float(size.text_of(side) or "")
    except ValueError:
        return None
    return int(number) if 0 < number < _MAX_PIXELS else None


def _object_error(path: str, line: int, what: str, expected: str, found: str) -> RekordError:
    return error(
        "E369",
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=f"fix line {line:,} of the XML file",
    )


def _annotation_error(
    path: str, what: str, expected: str, found: str, line: int, *, likely: str | None = None
) -> RekordError:
    return error(
        "E371",
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        likely=likely,
        do="write the file again without a DOCTYPE" if "DOCTYPE" in what else "fix the file, or remove it",
    )


VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car",
    "cat", "chair", "cow", "diningtable", "dog", "horse", "motorbike",
    "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
_FLAGS = ("difficult", "truncated", "occluded")


@check_keywords
def voc(
    path: str | os.PathLike[str],
    *,
    lists: Sequence[str] | None = None,
    label_map: str | os.PathLike[str] | None = None,
) -> VocSource:
    """Images with boxes from a Pascal VOC folder.

    `Annotations/*.xml` and `JPEGImages`, with the lists `ImageSets/Main/SPLIT.txt` as splits: train, val and test,
    or trainval if these do not exist; `lists` names others. Without lists every XML file is a row. XML files next to
    their images are read as well, in one folder or in one per split.

    Class ids start at 1: in VOC's own order if all classes are among VOC's twenty, else in the byte order of their
    names; `label_map` gives other ids. Boxes are the pixels in the XML, unchanged. If an XML file lacks `difficult`,
    `truncated` or `occluded` and others have it, it is 0, and a missing `pose` is "Unspecified". A listed image
    without an XML file is a bad row, except in a test list that has no XML files at all: the images of such a test
    set have no boxes.
    """
    names = None if lists is None else tuple([str(name) for name in lists])
    return VocSource(as_path("path", path), names, detection.load_label_items(label_map))


class _VocImage(NamedTuple):
    xml: str | None  # below the root
    image: str
    name: str
    split: str | None


class _ListedXml(NamedTuple):
    """An XML file to read: one that a list names, or that was found."""

    name: str
    split: str | None
    list_file: str | None
    line: int | None


@dataclass(eq=False)
class VocSource(AnnotationSource):
    root: str
    lists: tuple[str, ...] | None
    items: tuple[LabelItem, ...] | None

    kind = "voc"

    def options(self) -> Mapping[str, Any]:
        lists = None if self.lists is None else list(self.lists)
        return {"lists": lists, "label_map": detection.label_items_to_json(self.items)}

    def _list(self) -> SourceListing:
        validate_folder(self.root)
        entries: list[RowEntry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        for place in _find_folders(self.root):
            entries += self._entries(place, files, taken)
        if not entries:
            raise detection.no_data_error(
                self.root,
                "folder has no Pascal VOC annotations",
                "Annotations/*.xml, or XML files next to their images",
                "no XML files",
                "pass the folder that contains Annotations and JPEGImages",
            )
        names: set[str] = set()
        seen: set[str] = set()
        for entry in entries:
            if isinstance(entry.content, _VocImage) and entry.content.xml is not None:
                try:
                    annotation = self._annotation(entry.content.xml)
                except RekordError:
                    continue  # reported by its row
                names |= {one.name for one in annotation.objects}
                seen |= {flag for one in annotation.objects for flag in one.given}
        own = VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names, key=os.fsencode))
        ids = detection.assign_class_ids(own if names else (), self.items)
        has = tuple([name for name in (*_FLAGS, "view") if name in seen])
        classes = detection.class_names_by_id(ids, self.items)
        return self.build_listing(entries, files, classes=classes, has=has, context=(ids, has))

    def _entries(
        self, place: _VocFolder, files: dict[str, os.stat_result], taken: dict[str, str]
    ) -> Iterator[RowEntry]:
        listed = list(self._listed(place, files))
        xmls = {one.name: stat_file(os.path.join(place.xmls, f"{one.name}.xml")) for one in listed}
        labelled = {one.list_file for one in listed if xmls[one.name] is not None}
        for one in listed:
            xml = self.relative(os.path.join(place.xmls, f"{one.name}.xml"))
            facts = xmls[one.name]
            file = one.list_file or xml
            at = Location(path=self.place(file), line=one.line)
            found = self._image(place, one.name, None if facts is None else xml)
            broken = None
            if found is None:
                folder = self.place(self.relative(place.images))
                broken = detection.missing_image_error(one.name, folder, at, named_folder=False)
            elif facts is None and (one.split != "test" or one.list_file in labelled):
                broken = _missing_xml_error(one.name, self.place(xml), at)
            elif (first := detection.remember_key(taken, self.relative(found[0]), file)) is not None:
                broken = detection.duplicate_image_error(one.name, first, at)
            if broken is not None or found is None:
                yield RowEntry(file, 0 if one.line is None else one.line - 1, 0, broken, one.line)
                continue
            image = self.relative(found[0])
            files[image] = found[1]
            cost = found[1].st_size
            if facts is not None:
                files[xml] = facts
                cost += facts.st_size
            name = detection.relative_path(place.images, found[0])
            yield RowEntry(image, 0, cost, _VocImage(None if facts is None else xml, image, name, one.split))

    def _listed(self, place: _VocFolder, files: dict[str, os.stat_result]) -> Iterator[_ListedXml]:
        """What the lists name, or every XML file if there are no lists."""
        lists = list(_iter_split_lists(place, self.lists))
        for split, path in lists:
            self.add_file(files, path)
            data = detection.read_small_file(path, MAX_LABEL_BYTES, "X532")
            for line, text in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
                words = text.split()
                if words and not words[0].startswith("#"):
                    yield _ListedXml(_parse_listed_name(words[0]), split, self.relative(path), line)
        if lists:
            return
        for entry in RAW_FILES.list(place.xmls):
            if entry.kind != "folder" and entry.name.lower().endswith(".xml"):
                yield _ListedXml(os.path.splitext(entry.name)[0], place.split, None, None)

    def _image(self, place: _VocFolder, name: str, xml: str | None) -> tuple[str, os.stat_result] | None:
        """The image of an XML file: the one with its name, else the one that it names."""
        found = _find_image_by_stem(place.images, name)
        if found is None and xml is not None:
            try:
                filename = self._annotation(xml).filename
            except RekordError:
                return None
            found = detection.find_image(place.images, filename) if filename else None
        return found

    def _annotation(self, xml: str) -> VocAnnotation:
        path = self.place(xml)
        return parse_annotation(detection.read_small_file(path, MAX_LABEL_BYTES, "E371"), path)

    def row(self, content: _VocImage, context: tuple[dict[str, int], tuple[str, ...]]) -> dict[str, Any]:
        ids, has = context
        objects: tuple[VocObject, ...] = ()
        size: tuple[int | None, int | None] = None, None
        if content.xml is not None:
            annotation = self._annotation(content.xml)
            objects, size = annotation.objects, (annotation.width, annotation.height)
            for one in objects:
                if one.name not in ids:
                    at = Location(path=self.place(content.xml), line=one.line)
                    raise detection.unknown_class_error("object", one.name, "a class of the label map", at)
        values = self.build_row(
            content.image,
            content.name,
            boxes=[one.box for one in objects],
            labels=[ids[one.name] for one in objects],
            class_names=[one.name for one in objects],
            box_names=[f"object at line {one.line:,} of the XML file" for one in objects],
            size=size,
            split=content.split,
        )
        for flag in _FLAGS:
            if flag in has:
                values[flag] = np.array([one.given.get(flag, 0) for one in objects], np.int64)
        if "view" in has:
            values["view"] = [str(one.given.get("view", "Unspecified")) for one in objects]
        return values


def _missing_xml_error(name: str, path: str, at: Location) -> RekordError:
    return error(
        "E366",
        f"image {preview(name)} has no XML file",
        location=at,
        expected=path,
        found="no such file",
        do="add the XML file, or remove the image from the list",
    )


class _VocFolder(NamedTuple):
    """A folder of XML files, and the folder of their images."""

    xmls: str
    images: str
    sets: str | None
    split: str | None


def _find_folders(root: str) -> list[_VocFolder]:
    for folder in (root, *_iter_candidate_roots(root)):
        xmls = _find_first_folder(folder, "Annotations", "annotations")
        if xmls is not None:
            images = _find_first_folder(folder, "JPEGImages", "images", "Images", "PNGImages") or folder
            return [_VocFolder(xmls, images, _find_first_folder(folder, "ImageSets"), None)]
    folders = [
        entry.name
        for entry in RAW_FILES.list(root)
        if entry.kind == "folder" and detection.parse_split_name(entry.name)
    ]
    places = []
    for name in folders:
        folder = os.path.join(root, name)
        xmls = _find_first_folder(folder, "Annotations", "annotations") or folder
        images = _find_first_folder(folder, "JPEGImages", "images", "Images") or xmls
        places.append(_VocFolder(xmls, images, None, name.lower()))
    return places or [_VocFolder(root, root, None, None)]


def _iter_candidate_roots(root: str) -> Iterator[str]:
    """VOC's archives unpack to VOCdevkit/VOC2012."""
    kits = [root, os.path.join(root, "VOCdevkit")]
    for kit in kits:
        if raw_files.isdir(kit):
            years = [entry.name for entry in RAW_FILES.list(kit) if entry.kind == "folder"]
            years = [name for name in years if name.upper().startswith("VOC") and name[3:].isdigit()]
            if len(years) == 1:
                yield os.path.join(kit, years[0])


def _find_first_folder(folder: str, *names: str) -> str | None:
    paths = [os.path.join(folder, name) for name in names]
    return next((path for path in paths if raw_files.isdir(path)), None)


def _iter_split_lists(place: _VocFolder, wanted: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    """The lists of a folder with their splits; the other files there are lists of single classes."""
    folder = None if place.sets is None else os.path.join(place.sets, "Main")
    found = {}
    if folder is not None and raw_files.isdir(folder):
        for name in wanted or ("train", "val", "valid", "validation", "test", "trainval"):
            path = os.path.join(folder, f"{name}.txt")
            if raw_files.isfile(path):
                found[name] = path
    missing = [name for name in wanted or () if name not in found]
    if missing:
        raise detection.no_data_error(
            folder or place.xmls,
            f"list {preview(missing[0])} does not exist",
            f"ImageSets/Main/{missing[0]}.txt",
            "no such file",
            "name files of ImageSets/Main without .txt, such as lists=['train']",
        )
    for name in found if wanted else detection.drop_trainval(found):
        yield name, found[name]


def _parse_listed_name(word: str) -> str:
    """The name of a listed image; some lists hold paths, which must not lead out of the folder."""
    parts = [part for part in word.replace("\\", "/").split("/") if part not in ("", ".")]
    if word.startswith("/") or ".." in parts:
        parts = parts[-1:]
    if len(parts) > 1 and parts[0] in ("JPEGImages", "images"):
        parts = parts[1:]
    return strip_image_extension("/".join(parts))


def _find_image_by_stem(folder: str, name: str) -> tuple[str, os.stat_result] | None:
    """The image of this name, with any extension of images."""
    names = [name] if is_image_name(name) else [name + ending for ending in IMAGE_FILES.endings]
    return next((found for one in names if (found := detection.find_image(folder, one)) is not None), None)


# Images and masks.

_LISTS_FOLDER = "ImageSets/Segmentation"
_IMAGES_FOLDER = "JPEGImages"
_MASKS_FOLDER = "SegmentationClass"


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

    def _list(self) -> SourceListing:
        images = find_dataset_folder(self.root, _IMAGES_FOLDER, "Pascal VOC")
        masks_folder = os.path.join(self.root, _MASKS_FOLDER)
        instead = (
            f"read {_IMAGES_FOLDER} and {_MASKS_FOLDER} without lists: rk.sources.segmentation(images, masks)"
            if raw_files.isdir(masks_folder)
            else "if these are images with boxes: rk.sources.voc(path)"
        )
        lists = find_dataset_folder(self.root, _LISTS_FOLDER, "Pascal VOC", instead=instead)
        images_by_id = {strip_image_extension(file.path): file for file in find_images(images).files}
        masks: dict[str, SourceFile] = {}
        if raw_files.isdir(masks_folder):
            masks = {strip_image_extension(file.path): file for file in find_images(masks_folder).files}
        files = []
        pairs: list[ImageMaskPair] = []
        first: dict[str, str] = {}
        for name in _select_lists(lists):
            path = f"{_LISTS_FOLDER}/{name}.txt"
            files.append(list_file(self.root, path))
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
        names, colours = read_voc_classes(self.root)
        if self.classes is not None and self.classes != names:
            names, colours = self.classes, None  # the colours would stand for other classes
        without = any(pair.code is None and pair.mask is None for pair in pairs)
        hints: dict[str, Any] = {"classes": len(names), "ignore": VOC_IGNORE}
        hints["optional_masks"] = bool(self.optional_masks) or without
        if colours is not None:
            hints["colours"] = colours
        return self.build_listing(pairs, files, names, hints)

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
    there = [name for name in ("train", "val", "trainval") if raw_files.isfile(os.path.join(folder, f"{name}.txt"))]
    used = [name for name in there if name != "trainval"] or there
    test = ["test"] if raw_files.isfile(os.path.join(folder, "test.txt")) else []
    return sorted(test + used)


def _read_ids(path: str) -> Iterator[tuple[int, str]]:
    """The ids in a list, with their lines. Lists of one class have a flag after the id, others full paths."""
    for number, line in read_text_lines(path):
        name = strip_image_extension(line.split()[0])
        yield number, name.removeprefix("/").removeprefix(f"{_IMAGES_FOLDER}/")
