"""COCO's json files: which ones a folder means, where their images lie, and what is in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.refuse import shown
from rekord.sources.annotated import nothing_here, read_whole, split_of, without_trainval
from rekord.storage.files import LOCAL

MOST_JSON_BYTES = 8 << 30
ROBOFLOW = "_annotations.coco.json"

# In the order of preference; "" stands for names that say no kind.
_KINDS = ("instances", "", "person_keypoints", "stuff", "panoptic", "image_info", "labels", "captions")
_ANNOTATIONS = ("annotations", "annotation", "labels", "json", "jsons", "gt")
_BYTE = re.compile(r"\(byte (\d+)\)")


class JsonFile(NamedTuple):
    """One json file, with what its name says."""

    path: str
    token: str  # the rest of the name after the kind: `train2017`
    split: str | None


class _Image(msgspec.Struct, gc=False):
    id: Any = None
    file_name: Any = None
    width: Any = None
    height: Any = None


class _Category(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = None


class _Annotation(msgspec.Struct):
    id: Any = None
    image_id: Any = None
    category_id: Any = None
    bbox: Any = None
    iscrowd: Any = None
    area: Any = None
    segments_info: Any = None


class _Outlined(_Annotation):
    segmentation: msgspec.Raw = msgspec.Raw()


class _Plain(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Annotation] | None = None
    categories: list[_Category] | None = None


class _WithOutlines(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Outlined] | None = None
    categories: list[_Category] | None = None


class Document(NamedTuple):
    """The members of a json file that boxes are made of."""

    images: list[Any]
    annotations: list[Any]  # panoptic files: one for each segment
    categories: list[Any]
    names: list[str]  # of images
    used: set[str]  # the category ids that boxes have, as text


def root_of(path: str, images: str | None) -> str:
    """The folder that both the json files and the images are below."""
    if LOCAL.stat(path).kind == "folder":
        root = path
    else:
        folder = os.path.dirname(path) or "."
        upwards = os.path.basename(os.path.normpath(folder)).lower() in _ANNOTATIONS
        root = os.path.normpath(os.path.join(folder, "..")) if upwards and images is None else folder
    if images is None:
        return root
    if LOCAL.stat(images).kind != "folder":
        raise error(
            "U605",
            "`images` is a file, and a folder is needed",
            location=Location(path=images),
            expected="the folder that the images lie in",
            found="a file",
            do="images=pathlib.Path(…)",
        )
    if os.path.isabs(root) != os.path.isabs(images):
        root, images = os.path.abspath(root), os.path.abspath(images)
    try:
        return os.path.commonpath([os.path.normpath(root), os.path.normpath(images)]) or "."
    except ValueError:
        return os.path.commonpath([os.path.abspath(root), os.path.abspath(images)])


def json_files(path: str) -> list[JsonFile]:
    """The json files that a path means: itself, or those of a folder, one for each split."""
    if LOCAL.stat(path).kind != "folder":
        token = _named(path)[1]
        return [JsonFile(path, token, None)]
    found = list(_in_folder(path))
    if not found:
        raise nothing_here(
            path,
            "no COCO json files here",
            f"annotations/instances_train.json, train/{ROBOFLOW} or another json file",
            "none of them",
            "name the json file itself",
        )
    splits = {file: split_of(file.token) for file in found}
    if len(found) > 1:
        splits = {file: split or file.token or "all" for file, split in splits.items()}
    wanted = without_trainval([split for split in splits.values() if split is not None])
    return [
        file._replace(split=split)
        for file, split in splits.items()
        if split is None or split in wanted or len(found) == 1
    ]


def _in_folder(folder: str) -> Iterator[JsonFile]:
    for name in ("annotations", "Annotations"):
        inner = os.path.join(folder, name)
        if os.path.isdir(inner):
            yield from _best_kind(inner)
            return
    exported = [
        JsonFile(os.path.join(folder, entry.name, ROBOFLOW), entry.name, None)
        for entry in LOCAL.list(folder)
        if entry.kind == "folder" and os.path.isfile(os.path.join(folder, entry.name, ROBOFLOW))
    ]
    yield from exported or _best_kind(folder)


def _best_kind(folder: str) -> list[JsonFile]:
    """The json files of a folder, of the one kind that has the most to say about boxes."""
    kinds: dict[str, list[JsonFile]] = {}
    for entry in LOCAL.list(folder):
        if entry.kind == "file" and entry.name.lower().endswith(".json") and not entry.name.startswith("."):
            kind, token = _named(entry.name)
            kinds.setdefault(kind, []).append(JsonFile(os.path.join(folder, entry.name), token, None))
    return next((kinds[kind] for kind in _KINDS if kind in kinds), [])


def _named(path: str) -> tuple[str, str]:
    """The kind and the rest of a json file's name."""
    name = os.path.basename(path)
    if name == ROBOFLOW:
        return "", os.path.basename(os.path.dirname(os.path.abspath(path)))
    stem = os.path.splitext(name)[0]
    for kind in _KINDS:
        if kind and stem.lower().startswith(f"{kind}_"):
            return kind, stem[len(kind) + 1 :]
    return "", stem


def image_folders(file: JsonFile, root: str) -> Iterator[str]:
    """Where the images of a json file may lie, the likeliest place first."""
    folder = os.path.dirname(file.path) or "."
    if os.path.basename(file.path) == ROBOFLOW:
        yield folder
    bases = [root] if os.path.normpath(root) == os.path.normpath(folder) else [root, folder]
    for base in bases:
        for token in dict.fromkeys([file.token, file.split or split_of(file.token) or file.token]):
            yield os.path.join(base, "images", token)
            yield os.path.join(base, token)
    for base in bases:
        for name in ("images", "JPEGImages", "data", ""):
            yield os.path.join(base, name)


def read_document(path: str, *, masks: bool) -> Document:
    """The content of a json file; refused where it is damaged, or has no boxes to give."""
    data = read_whole(path, MOST_JSON_BYTES, "X531")
    kind: Any = _WithOutlines if masks else _Plain
    try:
        content = msgspec.json.decode(data[3:] if data[:3] == b"\xef\xbb\xbf" else data, type=kind)
    except msgspec.ValidationError as failure:
        raise _not_coco(path, str(failure)) from failure
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise _damaged(path, data, failure) from failure
    boxed, unboxed = [], 0
    used: set[str] = set()
    annotations: list[Any] = []
    for one in content.annotations or ():
        annotations += _segments(one) if isinstance(one.segments_info, list) else [one]
    for one in annotations:
        if one.bbox:
            boxed.append(one)
            used.add(key_of(one.category_id) or "")
        else:
            unboxed += 1
    if unboxed and not boxed:
        raise nothing_here(
            path,
            "the annotations of this file have no boxes",
            "annotations with a `bbox`, as in instances_*.json",
            f"{unboxed:,} {'annotation' if unboxed == 1 else 'annotations'} without one",
            "name the json file of the instances",
        )
    names = [image.file_name for image in content.images if isinstance(image.file_name, str)]
    return Document(content.images, annotations, content.categories or [], names, used)


def key_of(value: Any) -> str | None:
    """An id as text: tools write 5 and "5" for the same image."""
    if isinstance(value, str):
        return value
    number = whole_number(value)
    return None if number is None else str(number)


def whole_number(value: Any) -> int | None:
    """A number from 0, however the json writes it; None where it is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _segments(panoptic: _Annotation) -> list[_Annotation]:
    """The objects of one image in a panoptic file."""
    kind = type(panoptic)
    return [
        kind(
            id=one.get("id"),
            image_id=panoptic.image_id,
            category_id=one.get("category_id"),
            bbox=one.get("bbox"),
            iscrowd=one.get("iscrowd"),
            area=one.get("area"),
        )
        for one in panoptic.segments_info
        if isinstance(one, dict)
    ]


def _damaged(path: str, data: bytes, failure: Exception) -> RekordError:
    """Where the json breaks, as line and column."""
    shift = 3 if data[:3] == b"\xef\xbb\xbf" else 0
    at: int | None = None
    found = "values inside each other, deeper than can be read"
    match = _BYTE.search(str(failure))
    if match:
        # What follows the document is reported one byte late.
        at = int(match[1]) + shift - ("trailing characters" in str(failure))
        found = str(failure).removeprefix("JSON is malformed: ").partition(" (byte")[0]
        found += f": {shown(data[at : at + 16])[1:]}" if at < len(data) else ""
    elif isinstance(failure, UnicodeDecodeError):
        at = _first_not_utf8(data)
        found = f"bytes that are not UTF-8: {data[at : at + 8].hex(' ')}"
    elif isinstance(failure, msgspec.DecodeError):
        at = len(data)
        found = "the end of the file"
    line = column = None
    if at is not None:
        line = data.count(b"\n", 0, at) + 1
        column = at - (data.rfind(b"\n", 0, at) + 1) + 1
    return error(
        "X530",
        "the json cannot be parsed" + ("" if line is None else f" at line {line:,}, column {column:,}"),
        location=Location(path=path, line=line),
        expected="a json document",
        found=found,
        likely="the file was not copied to its end" if at == len(data) and data else None,
        do="fetch the file again"
        if at == len(data)
        else f"look at line {line}"
        if line
        else "write it again",
    )


def _first_not_utf8(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as failure:
        return failure.start
    return len(data)


def _not_coco(path: str, problem: str) -> RekordError:
    what, _, where = problem.partition(" - at ")
    return error(
        "X531",
        "this is json, and not COCO's",
        location=Location(path=path),
        expected='{"images": [...], "annotations": [...], "categories": [...]}',
        found=what[:60] + (f" at {where[:60]}" if where else ""),
        do="name a file of COCO's form",
    )
