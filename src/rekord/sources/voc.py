"""Pascal VOC folders as rows: one per image, with the boxes of its XML file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from xml.parsers import expat

import numpy as np

from rekord.arguments import as_path, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.detection_common import MAX_LABEL_BYTES, AnnotationListing, AnnotationSource, RowEntry
from rekord.sources.image_folder import is_image_name, strip_image_extension, validate_folder
from rekord.storage.local import LOCAL

_MAX_NESTING = 32
_MAX_PIXELS = 1e9
_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True, slots=True)
class VocObject:
    """One object: its class and its box in pixels, with what else is said of it."""

    name: str
    box: tuple[float, ...]
    given: dict[str, Any]  # difficult, truncated, occluded and view, where the xml has them
    line: int


@dataclass(frozen=True, slots=True)
class VocAnnotation:
    """What the xml says of one image."""

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
    """The annotation in the bytes of an xml file; E371 where it is no such file, E369 where an object is none."""
    root = _XmlReader(path).read(data)
    if root.tag != "annotation":
        raise _annotation_error(
            path, "an xml file is no annotation of Pascal VOC", "<annotation>", f"<{root.tag[:40]}>", 1
        )
    size = root.first("size") or _XmlNode("size", 0)
    objects = tuple([_parse_object(node, path) for node in root.all("object")])
    return VocAnnotation(
        root.text_of("filename"), _parse_pixels(size, "width"), _parse_pixels(size, "height"), objects
    )


class _XmlReader:
    """Builds the nodes of one file; expat calls it."""

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
            what = "an xml file is empty" if not data.strip() else "an xml file cannot be parsed"
            raise _annotation_error(
                self.path,
                f"{what} at line {failure.lineno:,}, column {failure.offset + 1:,}" if data.strip() else what,
                "the xml of an annotation",
                found if data.strip() else f"{len(data):,} bytes",
                failure.lineno,
                likely="the file was not copied to its end" if cut and data.strip() else None,
            ) from failure
        except (ValueError, LookupError) as failure:  # an encoding that Python does not have
            raise _annotation_error(
                self.path, "an xml file is in no known encoding", "UTF-8", "another", 1
            ) from failure
        return self.open[0].inner[0]

    def start(self, tag: str, _: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self.open) > _MAX_NESTING:
            raise _annotation_error(
                self.path, "an xml file is nested too deeply", f"{_MAX_NESTING} levels", "more", line
            )
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
            self.path, "an xml file declares a DOCTYPE", "an annotation without one", "<!DOCTYPE", line
        )


def _parse_object(node: _XmlNode, path: str) -> VocObject:
    name = node.text_of("name")
    if not name:
        _raise_object_error(path, node.line, "an object has no <name>", "the name of a class", "none")
    box = node.first("bndbox")
    if box is None:
        _raise_object_error(path, node.line, "an object has no <bndbox>", "xmin, ymin, xmax and ymax", "none")
    sides = []
    for side in _SIDES:
        text = box.text_of(side)
        try:
            sides.append(float(text if text and "_" not in text else ""))  # to Python 1_0 is ten
        except ValueError:
            sides.append(float("nan"))
        if not abs(sides[-1]) < _MAX_PIXELS:
            _raise_object_error(path, box.line, f"a box has no usable <{side}>", "a number of pixels", preview(text))
    given: dict[str, Any] = {}
    for flag in ("difficult", "truncated", "occluded"):
        text = node.text_of(flag)
        if text:
            # Tools write 1, true, Yes; anything else that is said here is said by mistake.
            known = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}
            if text.lower() not in known:
                _raise_object_error(path, node.line, f"an object has no usable <{flag}>", "0 or 1", preview(text))
            given[flag] = known[text.lower()]
    pose = node.text_of("pose")
    if pose:
        given["view"] = pose
    return VocObject(name, tuple(sides), given, node.line)


def _parse_pixels(size: _XmlNode, side: str) -> int | None:
    """A side of the image as the xml states it; tools that do not know it write 0, or nothing."""
    try:
        number = float(size.text_of(side) or "")
    except ValueError:
        return None
    return int(number) if 0 < number < _MAX_PIXELS else None


def _raise_object_error(path: str, line: int, what: str, expected: str, found: str) -> NoReturn:
    raise error(
        "E369",
        what,
        location=Location(path=path, line=line),
        expected=expected,
        found=found,
        do=f"fix line {line:,} of the xml file",
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
        do="write the file again without it" if "DOCTYPE" in what else "fix the file, or take it out",
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
    """The images of a Pascal VOC folder with the boxes of their xml files.

    `Annotations/*.xml` and `JPEGImages`, with the lists `ImageSets/Main/SPLIT.txt` as splits: train, val and
    test, or trainval where these are not there; `lists` names others. Without lists every xml file is a row.
    Xml files that lie beside their images are read as well, in one folder or in one a split.

    Classes get ids from 1: in VOC's own order where all of them are among VOC's twenty, else in the order of
    their names' bytes; `label_map` gives other ids. Boxes are the pixels that the xml names, unchanged. Where
    an xml lacks `difficult`, `truncated` or `occluded` and others have it, it is 0, and a missing `pose` is
    "Unspecified". An image of a list without its xml is a bad row, except in a test list that has none at all:
    the images of such a test set have no boxes.
    """
    names = None if lists is None else tuple([str(name) for name in lists])
    return VocSource(as_path("path", path), names, detection.load_label_items(label_map))


class _VocImage(NamedTuple):
    xml: str | None  # below the root
    image: str
    name: str
    split: str | None


class _InvalidVocRow(NamedTuple):
    """A row that there is not; its error is made where the row is read."""

    kind: str
    name: str
    other: str
    file: str
    line: int | None


class _ListedXml(NamedTuple):
    """An xml file that is meant: by a list, or because it is there."""

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

    def scan(self) -> AnnotationListing:
        validate_folder(self.root)
        entries: list[RowEntry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        for place in _find_folders(self.root):
            entries += self._entries(place, files, taken)
        if not entries:
            raise detection.no_data_error(
                self.root,
                "no annotations of Pascal VOC here",
                "Annotations/*.xml, or xml files beside their images",
                "no xml files",
                "name the folder that has Annotations and JPEGImages in it",
            )
        names: set[str] = set()
        seen: set[str] = set()
        for entry in entries:
            if isinstance(entry.content, _VocImage) and entry.content.xml is not None:
                try:
                    annotation = self._annotation(entry.content.xml)
                except RekordError:
                    continue  # its row will say so
                names |= {one.name for one in annotation.objects}
                seen |= {flag for one in annotation.objects for flag in one.given}
        own = VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names, key=os.fsencode))
        ids = detection.assign_class_ids(own if names else (), self.items)
        has = tuple([name for name in (*_FLAGS, "view") if name in seen])
        return AnnotationListing(
            entries=detection.sort_entries(entries),
            files=detection.to_source_files(files),
            classes=detection.class_names_by_id(ids, self.items),
            has=has,
            splits=detection.order_splits(
                [entry.content.split for entry in entries if isinstance(entry.content, _VocImage)]
            ),
            context=(ids, has),
        )

    def _entries(
        self, place: _VocFolder, files: dict[str, os.stat_result], taken: dict[str, str]
    ) -> Iterator[RowEntry]:
        meant = list(self._meant(place, files))
        xmls = {one.name: detection.stat_file(os.path.join(place.xmls, f"{one.name}.xml")) for one in meant}
        labelled = {one.list_file for one in meant if xmls[one.name] is not None}
        for one in meant:
            xml = detection.relative_path(self.root, os.path.join(place.xmls, f"{one.name}.xml"))
            facts = xmls[one.name]
            at = one.list_file or xml
            position = 0 if one.line is None else one.line - 1
            found = self._image(place, one.name, xml if facts is not None else None)
            unlabelled = one.split == "test" and one.list_file not in labelled
            bad = None
            if found is None:
                bad = _InvalidVocRow(
                    "image", one.name, detection.relative_path(self.root, place.images), at, one.line
                )
            elif facts is None and not unlabelled:
                bad = _InvalidVocRow("xml", one.name, xml, at, one.line)
            elif (
                before := detection.remember_key(taken, detection.relative_path(self.root, found[0]), at)
            ) is not None:
                bad = _InvalidVocRow("twice", one.name, before, at, one.line)
            if bad is not None or found is None:
                yield RowEntry(at, position, 0, bad, one.line)
                continue
            image = detection.relative_path(self.root, found[0])
            files[image] = found[1]
            cost = found[1].st_size
            if facts is not None:
                files[xml] = facts
                cost += facts.st_size
            name = detection.relative_path(place.images, found[0])
            yield RowEntry(image, 0, cost, _VocImage(xml if facts is not None else None, image, name, one.split))

    def _meant(self, place: _VocFolder, files: dict[str, os.stat_result]) -> Iterator[_ListedXml]:
        """What the lists name, or every xml file where there are none."""
        lists = list(_iter_split_lists(place, self.lists))
        for split, path in lists:
            facts = detection.stat_file(path)
            if facts is not None:
                files[detection.relative_path(self.root, path)] = facts
            data = detection.read_small_file(path, MAX_LABEL_BYTES, "X532")
            for line, text in enumerate(data.decode("utf-8", "surrogateescape").splitlines(), 1):
                words = text.split()
                if words and not words[0].startswith("#"):
                    yield _ListedXml(
                        _parse_listed_name(words[0]), split, detection.relative_path(self.root, path), line
                    )
        if lists:
            return
        for entry in LOCAL.list(place.xmls):
            if entry.kind != "folder" and entry.name.lower().endswith(".xml"):
                yield _ListedXml(os.path.splitext(entry.name)[0], place.split, None, None)

    def _image(self, place: _VocFolder, name: str, xml: str | None) -> tuple[str, os.stat_result] | None:
        """The image of an xml file: the one of its name, else the one that it names itself."""
        found = _find_image_by_stem(place.images, name)
        if found is None and xml is not None:
            try:
                said = self._annotation(xml).filename
            except RekordError:
                return None
            found = detection.find_image(place.images, said) if said else None
        return found

    def _annotation(self, xml: str) -> VocAnnotation:
        path = self.place(xml)
        return parse_annotation(detection.read_small_file(path, MAX_LABEL_BYTES, "E371"), path)

    def row(self, entry: RowEntry, context: tuple[dict[str, int], tuple[str, ...]]) -> dict[str, Any]:
        pair = entry.content
        if isinstance(pair, _InvalidVocRow):
            raise self._refused(pair)
        ids, has = context
        annotation = VocAnnotation() if pair.xml is None else self._annotation(pair.xml)
        for one in annotation.objects:
            if one.name not in ids:
                at = Location(path=self.place(pair.xml), line=one.line)
                raise detection.unknown_class_error("an object", one.name, "a class of the label map", at)
        labels = [ids[one.name] for one in annotation.objects]
        values: dict[str, Any] = {
            "image": Path(self.root) / pair.image,
            "filename": pair.name,
            "source_id": pair.name,
            "boxes": detection.to_box_array([one.box for one in annotation.objects]),
            "labels": np.array(labels, np.int64),
            "class_names": [one.name for one in annotation.objects],
            "box_names": [f"the object at line {one.line:,} of its xml" for one in annotation.objects],
        }
        for flag in _FLAGS:
            if flag in has:
                values[flag] = np.array([one.given.get(flag, 0) for one in annotation.objects], np.int64)
        if "view" in has:
            values["view"] = [str(one.given.get("view", "Unspecified")) for one in annotation.objects]
        if annotation.width and annotation.height:
            values.update({"width": annotation.width, "height": annotation.height})
        if pair.split is not None:
            values["split"] = pair.split
        return values

    def _refused(self, bad: _InvalidVocRow) -> RekordError:
        at = Location(path=self.place(bad.file), line=bad.line)
        if bad.kind == "twice":
            return detection.duplicate_image_error(bad.name, bad.other, at)
        if bad.kind == "image":
            return detection.missing_image_error(bad.name, self.place(bad.other), at, named_folder=False)
        return error(
            "E366",
            f"the xml file of {preview(bad.name)} is not there",
            location=at,
            expected=self.place(bad.other),
            found="no such file",
            do="fetch the xml file, or take the image off the list",
        )


class _VocFolder(NamedTuple):
    """A folder of xml files and the one of their images."""

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
        entry.name for entry in LOCAL.list(root) if entry.kind == "folder" and detection.parse_split_name(entry.name)
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
        if os.path.isdir(kit):
            years = [entry.name for entry in LOCAL.list(kit) if entry.kind == "folder"]
            years = [name for name in years if name.upper().startswith("VOC") and name[3:].isdigit()]
            if len(years) == 1:
                yield os.path.join(kit, years[0])


def _find_first_folder(folder: str, *names: str) -> str | None:
    paths = [os.path.join(folder, name) for name in names]
    return next((path for path in paths if os.path.isdir(path)), None)


def _iter_split_lists(place: _VocFolder, wanted: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    """The lists of a folder with the splits that they are; the other files in there are lists of single classes."""
    folder = None if place.sets is None else os.path.join(place.sets, "Main")
    found = {}
    if folder is not None and os.path.isdir(folder):
        for name in wanted or ("train", "val", "valid", "validation", "test", "trainval"):
            path = os.path.join(folder, f"{name}.txt")
            if os.path.isfile(path):
                found[name] = path
    missing = [name for name in wanted or () if name not in found]
    if missing:
        raise detection.no_data_error(
            folder or place.xmls,
            f"there is no list {preview(missing[0])}",
            f"ImageSets/Main/{missing[0]}.txt",
            "no such file",
            "lists= names of files in ImageSets/Main, without .txt",
        )
    for name in found if wanted else detection.drop_trainval(found):
        yield name, found[name]


def _parse_listed_name(word: str) -> str:
    """The name of an image in a list; some lists hold paths, and none may lead out of the folder."""
    parts = [part for part in word.replace("\\", "/").split("/") if part not in ("", ".")]
    if word.startswith("/") or ".." in parts:
        parts = parts[-1:]
    if len(parts) > 1 and parts[0] in ("JPEGImages", "images"):
        parts = parts[1:]
    return strip_image_extension("/".join(parts))


def _find_image_by_stem(folder: str, name: str) -> tuple[str, os.stat_result] | None:
    """The image with this name and any extension of images."""
    return (
        detection.find_image(folder, name)
        if is_image_name(name)
        else detection.find_image(folder, name + ".jpg") or _find_any_image(folder, name)
    )


def _find_any_image(folder: str, name: str) -> tuple[str, os.stat_result] | None:
    for extension in (".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".webp", ".gif"):
        found = detection.find_image(folder, name + extension)
        if found is not None:
            return found
    return None
