"""COCO JSON files as rows: one per image, with its boxes and masks."""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rekord.arguments import as_path, check_keywords
from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.schema.interop.label_map import LabelItem
from rekord.sources import detection_common as detection
from rekord.sources.detection_common import AnnotationSource, RowEntry
from rekord.sources.image_folder import SourceListing
from rekord.storage import raw_files
from rekord.storage.raw_files import RAW_FILES

MAX_MASK_PIXELS = 1 << 26  # an image of 8,192 × 8,192; larger claims are not believed
_MAX_DIGITS = 13  # of 5 bits each: a run length is below 2**63


class _InvalidOutline(Exception):
    """Why an outline is invalid: expected, found."""


def draw_outline(outline: bytes, size: tuple[int | None, int | None], whose: str, location: Location) -> bytes:
    """The PNG of one object, as large as its image; `outline` is the JSON of its `segmentation`.

    A pixel belongs to a polygon when its centre is inside, and to an object when it is in any of its polygons.
    """
    try:
        return _encode_png(_rasterize(_parse_outline(outline), size))
    except _InvalidOutline as problem:
        expected, found = problem.args
        raise error(
            "E375",
            f"outline of {whose} cannot be rasterised",
            location=location,
            expected=expected,
            found=found,
            do="fix its `segmentation`, or masks=False",
        ) from None


def _parse_outline(outline: bytes) -> Any:
    try:
        return msgspec.json.decode(outline) if outline else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _InvalidOutline("polygons or run lengths", "malformed JSON") from None


def _rasterize(outline: Any, size: tuple[int | None, int | None]) -> np.ndarray[Any, Any]:
    height, width = size
    if isinstance(outline, dict):
        stated = outline.get("size")
        if not isinstance(stated, list) or [type(one) for one in stated] != [int, int] or min(stated) < 1:
            raise _InvalidOutline("run lengths with `size`: [height, width]", preview(stated))
        if height is not None and width is not None and stated != [height, width]:
            raise _InvalidOutline(f"`size` of the image: {[height, width]}", f"`size` {stated}")
        height, width = stated
    if height is None or width is None:
        raise _InvalidOutline("`height` and `width` of the image", "none")
    if height * width > MAX_MASK_PIXELS:
        raise _InvalidOutline(f"an image of at most {MAX_MASK_PIXELS:,} pixels", f"{height:,} × {width:,}")
    if isinstance(outline, dict):
        return _rasterize_runs(outline.get("counts"), height, width)
    if not isinstance(outline, list) or not outline:
        raise _InvalidOutline("at least one polygon", preview(outline) if outline else "none")
    return rasterize_polygons(outline, height, width)


def rasterize_polygons(polygons: Sequence[Any], height: int, width: int) -> np.ndarray[Any, Any]:
    """The pixels that are in any of the polygons: x, y, x, y, …"""
    mask = np.zeros((height, width), np.uint8)
    for polygon in polygons:
        mask |= _rasterize_polygon(polygon, height, width)
    return mask


def _rasterize_polygon(polygon: Any, height: int, width: int) -> np.ndarray[Any, Any]:
    numbers = isinstance(polygon, list) and all(type(one) in (int, float) for one in polygon)
    if not numbers or len(polygon) < 6 or len(polygon) % 2:
        raise _InvalidOutline("a polygon: x, y, x, y, … with at least three points", preview(polygon))
    points = np.array(polygon, np.float64).reshape(-1, 2)
    if not (np.abs(points) < 1e9).all():
        raise _InvalidOutline("finite coordinates in pixels", "an infinite or huge number")
    # Each edge toggles between inside and outside, starting at the first pixel whose centre lies to its right.
    turns = np.zeros((height, width + 1), np.uint8)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        first, end = sorted((_clamp_row(y0, height), _clamp_row(y1, height)))
        if first == end:
            continue
        rows = np.arange(first, end)
        crossings = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        turns[rows, np.clip(np.ceil(crossings - 0.5), 0, width).astype(np.int64)] ^= 1
    inside: np.ndarray[Any, Any] = np.bitwise_xor.accumulate(turns[:, :width], axis=1)
    return inside


def _clamp_row(y: float, height: int) -> int:
    return int(min(max(np.ceil(y - 0.5), 0), height))


def _rasterize_runs(counts: Any, height: int, width: int) -> np.ndarray[Any, Any]:
    """Alternating runs of 0 and 1, column by column."""
    runs = _decode_run_lengths(counts) if isinstance(counts, str) else counts
    whole = isinstance(runs, list) and all(type(one) is int and one >= 0 for one in runs)
    if not whole or sum(runs) != height * width:
        found = f"{sum(runs):,}" if whole else preview(counts)
        raise _InvalidOutline(f"`counts` that sum to {height * width:,} pixels", found)
    values = (np.arange(len(runs)) & 1).astype(np.uint8)
    mask: np.ndarray[Any, Any] = np.repeat(values, runs).reshape(width, height).T
    return mask


def _decode_run_lengths(text: str) -> list[int]:
    """Run lengths of COCO's compressed RLE: base 32, from the third on as the difference to the one before last."""
    runs: list[int] = []
    number = digits = 0
    for letter in text:
        digit = ord(letter) - 48
        if not 0 <= digit < 64 or digits == _MAX_DIGITS:
            raise _InvalidOutline("`counts` in COCO's compressed RLE", preview(text))
        number |= (digit & 31) << (5 * digits)
        digits += 1
        if digit & 32:
            continue
        if digit & 16:
            number -= 1 << (5 * digits)
        runs.append(number + (runs[-2] if len(runs) > 2 else 0))
        number = digits = 0
    if digits:
        raise _InvalidOutline("`counts` in COCO's compressed RLE", "an unterminated number")
    return runs


def _encode_png(mask: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    # Eight bits per pixel: TensorFlow scales the 1 of a PNG with fewer bits up to 255.
    Image.fromarray(np.ascontiguousarray(mask)).save(file, "PNG")
    return file.getvalue()


MAX_JSON_BYTES = 8 << 30
ROBOFLOW_FILE_NAME = "_annotations.coco.json"

# In order of preference; "" stands for names without a kind.
_FILE_KINDS = ("instances", "", "person_keypoints", "stuff", "panoptic", "image_info", "labels", "captions")
_ANNOTATION_FOLDERS = ("annotations", "annotation", "labels", "json", "jsons", "gt")
_BYTE_PATTERN = re.compile(r"\(byte (\d+)\)")


class CocoFile(NamedTuple):
    """A JSON file, with the facts in its name."""

    path: str
    token: str  # the rest of the name after the kind: `train2017`
    split: str | None


class _JsonImageEntry(msgspec.Struct, gc=False):
    id: Any = None
    file_name: Any = None
    width: Any = None
    height: Any = None


class _JsonCategory(msgspec.Struct, gc=False):
    id: Any = None
    name: Any = None


class _JsonAnnotation(msgspec.Struct):
    id: Any = None
    image_id: Any = None
    category_id: Any = None
    bbox: Any = None
    iscrowd: Any = None
    area: Any = None
    segments_info: Any = None


class _JsonOutlinedAnnotation(_JsonAnnotation):
    segmentation: msgspec.Raw = msgspec.Raw()


class _JsonDocument(msgspec.Struct):
    images: list[_JsonImageEntry]
    annotations: list[_JsonAnnotation] | None = None
    categories: list[_JsonCategory] | None = None


class _JsonOutlinedDocument(msgspec.Struct):
    images: list[_JsonImageEntry]
    annotations: list[_JsonOutlinedAnnotation] | None = None
    categories: list[_JsonCategory] | None = None


class CocoDocument(NamedTuple):
    """The members of a JSON file that boxes come from."""

    images: list[Any]
    annotations: list[Any]  # panoptic files: one for each segment
    categories: list[Any]
    names: list[str]  # of images
    used: set[str]  # the category ids that boxes have, as text


def find_root(path: str, images: str | None) -> str:
    """The folder that contains both the JSON files and the images."""
    if RAW_FILES.stat(path).kind == "folder":
        root = path
    else:
        folder = os.path.dirname(path) or "."
        upwards = os.path.basename(raw_files.normpath(folder)).lower() in _ANNOTATION_FOLDERS
        root = raw_files.normpath(os.path.join(folder, "..")) if upwards and images is None else folder
    if images is None:
        return root
    if RAW_FILES.stat(images).kind != "folder":
        raise error(
            "U605",
            "`images` is a file, expected a folder",
            location=Location(path=images),
            expected="the folder of the images",
            found="a file",
            do=f"images={os.path.dirname(images) or '.'!r}",
        )
    if raw_files.isabs(root) != raw_files.isabs(images):
        root, images = raw_files.abspath(root), raw_files.abspath(images)
    try:
        return raw_files.commonpath([raw_files.normpath(root), raw_files.normpath(images)]) or "."
    except ValueError:
        return raw_files.commonpath([raw_files.abspath(root), raw_files.abspath(images)])


def find_json_files(path: str) -> list[CocoFile]:
    """The JSON files of a path: itself, or those of a folder, one per split."""
    if RAW_FILES.stat(path).kind != "folder":
        token = _split_file_name(path)[1]
        return [CocoFile(path, token, None)]
    found = list(_iter_json_files(path))
    if not found:
        raise detection.no_data_error(
            path,
            "folder has no COCO JSON files",
            f"annotations/instances_train.json, train/{ROBOFLOW_FILE_NAME} or another JSON file",
            "none of them",
            "pass the path of the JSON file itself",
        )
    splits = {file: detection.parse_split_name(file.token) for file in found}
    if len(found) > 1:
        splits = {file: split or file.token or "all" for file, split in splits.items()}
    wanted = detection.drop_trainval([split for split in splits.values() if split is not None])
    return [
        file._replace(split=split)
        for file, split in splits.items()
        if split is None or split in wanted or len(found) == 1
    ]


def _iter_json_files(folder: str) -> Iterator[CocoFile]:
    for name in ("annotations", "Annotations"):
        inner = os.path.join(folder, name)
        if raw_files.isdir(inner):
            yield from _select_best_kind(inner)
            return
    exported = [
        CocoFile(os.path.join(folder, entry.name, ROBOFLOW_FILE_NAME), entry.name, None)
        for entry in RAW_FILES.list(folder)
        if entry.kind == "folder" and raw_files.isfile(os.path.join(folder, entry.name, ROBOFLOW_FILE_NAME))
    ]
    yield from exported or _select_best_kind(folder)


def _select_best_kind(folder: str) -> list[CocoFile]:
    """The JSON files of a folder, of the kind that best describes boxes."""
    kinds: dict[str, list[CocoFile]] = {}
    for entry in RAW_FILES.list(folder):
        if entry.kind == "file" and entry.name.lower().endswith(".json") and not entry.name.startswith("."):
            kind, token = _split_file_name(entry.name)
            kinds.setdefault(kind, []).append(CocoFile(os.path.join(folder, entry.name), token, None))
    return next((kinds[kind] for kind in _FILE_KINDS if kind in kinds), [])


def _split_file_name(path: str) -> tuple[str, str]:
    """The kind in a JSON file's name, and the rest of the name."""
    name = os.path.basename(path)
    if name == ROBOFLOW_FILE_NAME:
        return "", os.path.basename(os.path.dirname(raw_files.abspath(path)))
    stem = os.path.splitext(name)[0]
    for kind in _FILE_KINDS:
        if kind and stem.lower().startswith(f"{kind}_"):
            return kind, stem[len(kind) + 1 :]
    return "", stem


def candidate_image_folders(file: CocoFile, root: str) -> Iterator[str]:
    """Folders that may hold the images of a JSON file, the likeliest first."""
    folder = os.path.dirname(file.path) or "."
    if os.path.basename(file.path) == ROBOFLOW_FILE_NAME:
        yield folder
    bases = [root] if raw_files.normpath(root) == raw_files.normpath(folder) else [root, folder]
    for base in bases:
        for token in dict.fromkeys([file.token, file.split or detection.parse_split_name(file.token) or file.token]):
            yield os.path.join(base, "images", token)
            yield os.path.join(base, token)
    for base in bases:
        for name in ("images", "JPEGImages", "data", ""):
            yield os.path.join(base, name)


def read_document(path: str, *, masks: bool) -> CocoDocument:
    """The content of a JSON file. Raises if it is corrupt or has no boxes."""
    data = detection.read_small_file(path, MAX_JSON_BYTES, "X531")
    kind: Any = _JsonOutlinedDocument if masks else _JsonDocument
    try:
        content = msgspec.json.decode(data[3:] if data[:3] == b"\xef\xbb\xbf" else data, type=kind)
    except msgspec.ValidationError as failure:
        raise _unreadable_json_error(path, str(failure)) from failure
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise _corrupt_json_error(path, data, failure) from failure
    boxed, unboxed = [], 0
    used: set[str] = set()
    annotations: list[Any] = []
    for one in content.annotations or ():
        annotations += _panoptic_objects(one) if isinstance(one.segments_info, list) else [one]
    for one in annotations:
        if one.bbox:
            boxed.append(one)
            used.add(normalize_id(one.category_id) or "")
        else:
            unboxed += 1
    if unboxed and not boxed:
        raise detection.no_data_error(
            path,
            "annotations of this file have no boxes",
            "annotations with a `bbox`, as in instances_*.json",
            f"{unboxed:,} {'annotation' if unboxed == 1 else 'annotations'} without one",
            "pass the JSON file of the instances: instances_*.json",
        )
    names = [image.file_name for image in content.images if isinstance(image.file_name, str)]
    return CocoDocument(content.images, annotations, content.categories or [], names, used)


def normalize_id(value: Any) -> str | None:
    """An id as text: tools write 5 and "5" for the same image."""
    if isinstance(value, str):
        return value
    number = parse_integer(value)
    return None if number is None else str(number)


def parse_integer(value: Any) -> int | None:
    """An integer ≥ 0, however the JSON writes it; None for anything else."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return None
    return value


def _panoptic_objects(panoptic: _JsonAnnotation) -> list[_JsonAnnotation]:
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


def _corrupt_json_error(path: str, data: bytes, failure: Exception) -> RekordError:
    """The error for malformed JSON, with its line and column."""
    shift = 3 if data[:3] == b"\xef\xbb\xbf" else 0
    at: int | None = None
    found = "values nested too deeply"
    match = _BYTE_PATTERN.search(str(failure))
    if match:
        # Trailing characters are reported one byte late.
        at = int(match[1]) + shift - ("trailing characters" in str(failure))
        found = str(failure).removeprefix("JSON is malformed: ").partition(" (byte")[0]
        found += f": {preview(data[at : at + 16])[1:]}" if at < len(data) else ""
    elif isinstance(failure, UnicodeDecodeError):
        at = _find_invalid_utf8(data)
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
        "JSON cannot be parsed" + ("" if line is None else f" at line {line:,}, column {column:,}"),
        location=Location(path=path, line=line),
        expected="a JSON document",
        found=found,
        likely="the file is truncated" if at == len(data) and data else None,
        do="copy the file again from its origin" if at == len(data) or not line else f"fix line {line:,} of the file",
    )


def _find_invalid_utf8(data: bytes) -> int:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as failure:
        return failure.start
    return len(data)


def _unreadable_json_error(path: str, problem: str) -> RekordError:
    what, _, where = problem.partition(" - at ")
    return error(
        "X531",
        "JSON file is not in COCO format",
        location=Location(path=path),
        expected='{"images": [...], "annotations": [...], "categories": [...]}',
        found=what[:60] + (f" at {where[:60]}" if where else ""),
        do="pass a JSON file in COCO format",
    )


_MAX_COORDINATE = 1e9  # anything larger is not a coordinate


@check_keywords
def coco(
    path: str | os.PathLike[str],
    images: str | os.PathLike[str] | None = None,
    *,
    masks: bool = False,
    label_map: str | os.PathLike[str] | None = None,
) -> CocoSource:
    """Images with boxes from a COCO JSON file, or from a folder with a JSON file per split.

    In a folder the files are `annotations/instances_SPLIT.json` (or another kind, if there are no instances),
    Roboflow's `SPLIT/_annotations.coco.json`, or any JSON file next to the images. `images` is the folder of the
    images; by default it is guessed.

    Class ids are the category ids, including gaps; if a box has id 0, which detection reserves for the background,
    all ids are one higher. `label_map` gives ids by name instead. The segments of panoptic files are boxes too.
    Annotations without a box are skipped, and each row counts its own in `skipped_annotations`; a file in which no
    annotation has a box is refused. A missing `iscrowd` is 0, a missing `area` that of the box. `masks` rasterises
    the outline of every object to a PNG of 0 and 1.
    """
    place = as_path("path", path)
    folder = None if images is None else as_path("images", images)
    return CocoSource(find_root(place, folder), place, folder, bool(masks), detection.load_label_items(label_map))


class _CocoImage(NamedTuple):
    json: str  # below the root
    image: str
    name: str
    id: str
    size: tuple[int | None, int | None]  # width, height
    split: str | None
    annotations: tuple[tuple[Any, ...], ...]  # id, category, bbox, iscrowd, area, segmentation
    unboxed_count: int


class _CocoContext(NamedTuple):
    ids: dict[str, int]  # class ids by category id as text
    names: dict[int, str]
    categories: dict[str, str]  # names by category id, for messages


@dataclass(eq=False)
class CocoSource(AnnotationSource):
    root: str
    json: str
    images: str | None
    masks: bool
    items: tuple[LabelItem, ...] | None

    kind = "coco"

    def options(self) -> Mapping[str, Any]:
        return {
            "json": self.relative(self.json),
            "images": None if self.images is None else self.relative(self.images),
            "masks": self.masks,
            "label_map": detection.label_items_to_json(self.items),
        }

    def _list(self) -> SourceListing:
        entries: list[RowEntry] = []
        files: dict[str, os.stat_result] = {}
        taken: dict[str, str] = {}
        crowd = area = False
        splits: list[str | None] = []
        documents: list[tuple[CocoFile, CocoDocument]] = []
        for file in find_json_files(self.json):
            document = read_document(file.path, masks=self.masks)
            documents.append((file, document._replace(annotations=[])))
            crowd |= any(one.iscrowd is not None for one in document.annotations)
            area |= any(one.area is not None for one in document.annotations)
            self.add_file(files, file.path)
            entries += self._entries(file, document, files, taken)
            splits.append(file.split)
        context = _build_context(documents, self.items)
        if not entries:
            raise detection.no_data_error(
                self.json,
                "JSON file lists no images",
                "at least one entry in `images`",
                "none",
                "pass the JSON file that lists the images",
            )
        return self.build_listing(
            entries,
            files,
            classes=context.names,
            has=[name for name, known in (("is_crowd", crowd), ("area", area)) if known],
            masks=self.masks,
            splits=splits,
            context=context,
        )

    def _entries(
        self, file: CocoFile, document: CocoDocument, files: dict[str, os.stat_result], taken: dict[str, str]
    ) -> list[RowEntry]:
        json = self.relative(file.path)
        at = Location(path=self.place(json))
        folder = self.images
        if folder is None:
            folder = detection.find_image_folder(
                document.names, candidate_image_folders(file, self.root)
            ) or os.path.dirname(file.path)
        annotations: dict[str, list[Any]] = {}
        entries: list[RowEntry] = []
        ids: dict[str, str] = {}
        intact: list[tuple[Any, str, str, os.stat_result]] = []
        for i, image in enumerate(document.images):
            key, name = normalize_id(image.id), image.file_name
            if key is None or not isinstance(name, str):
                missing = "id" if key is None else "file_name"
                whose = f"image {i:,} of `images`"
                entries.append(
                    RowEntry(json, i, 0, _malformed_error(whose, missing, "an id and a file_name", None, at))
                )
                continue
            annotations.setdefault(key, [])
            same_id = detection.remember_key(ids, key, name)
            found = detection.find_image(folder, name)
            path = json if found is None else self.relative(found[0])
            if same_id is not None:
                broken = detection.duplicate_image_error(f"{name}, id {key}", preview(same_id), at)
            elif found is None:
                broken = detection.missing_image_error(name, self.place(self.relative(folder)), at)
            elif (first := detection.remember_key(taken, path, json)) is not None:
                broken = detection.duplicate_image_error(name, first, at)
            else:
                intact.append((image, key, path, found[1]))
                continue
            entries.append(RowEntry(json, i, 0, broken))
        unboxed: Counter[str] = Counter()
        for i, one in enumerate(document.annotations, len(document.images)):
            key = normalize_id(one.image_id)
            if key is None or key not in annotations:
                entries.append(RowEntry(json, i, 0, self._orphan_error(one.id, one.image_id, at)))
            elif one.bbox is None or one.bbox == []:
                unboxed[key] += 1
            else:
                outline = bytes(one.segmentation) if self.masks else b""
                annotations[key].append((one.id, one.category_id, one.bbox, one.iscrowd, one.area, outline))
        for image, key, path, facts in intact:
            files[path] = facts
            size = _parse_size(image.width), _parse_size(image.height)
            objects = tuple(annotations[key])
            content = _CocoImage(json, path, image.file_name, key, size, file.split, objects, unboxed[key])
            entries.append(RowEntry(path, 0, facts.st_size, content))
        return entries

    def row(self, content: _CocoImage, context: _CocoContext) -> dict[str, Any]:
        at = Location(path=self.place(content.json))
        boxes, labels, crowds, areas, masks = [], [], [], [], []
        width, height = content.size
        for number, category, bbox, crowd, area, outline in content.annotations:
            whose = f"annotation {preview(number)} of image {content.id}"
            key = normalize_id(category)
            if key is None or key not in context.ids:
                known = "a class of the label map" if self.items else "one of `categories`"
                raise detection.unknown_class_error(whose, context.categories.get(key or "", category), known, at)
            x, y, box_width, box_height = _validate_numbers(
                bbox, 4, whose, "bbox", "four numbers: x, y, width, height", at
            )
            boxes.append((x, y, x + box_width, y + box_height))
            labels.append(context.ids[key])
            if crowd not in (None, 0, 1):
                raise _malformed_error(whose, "iscrowd", "0 or 1", crowd, at)
            crowds.append(int(crowd or 0))
            areas.append(
                abs(box_width * box_height)
                if area is None
                else _validate_numbers([area], 1, whose, "area", "a number", at)[0]
            )
            masks.append((outline, whose))
        values = self.build_row(
            content.image,
            content.name,
            boxes=boxes,
            labels=labels,
            class_names=[context.names[label] for label in labels],
            box_names=[f"annotation {preview(one[0])}" for one in content.annotations],
            size=content.size,
            split=content.split,
            source_id=content.id,
        )
        values |= {"is_crowd": np.array(crowds, np.int64), "area": np.array(areas, np.float32)}
        if content.unboxed_count:
            values["skipped_annotations"] = content.unboxed_count
        if self.masks:
            values["masks"] = [draw_outline(outline, (height, width), whose, at) for outline, whose in masks]
        return values

    def _orphan_error(self, number: Any, image_id: Any, at: Location) -> RekordError:
        return error(
            "E367",
            f"annotation {preview(number)} refers to an unknown image",
            location=at,
            expected="the id of one of `images`",
            found=f"image_id {preview(image_id)}",
            do="add the image to `images`, or remove the annotation",
        )


def _build_context(
    documents: Sequence[tuple[CocoFile, CocoDocument]], items: tuple[LabelItem, ...] | None
) -> _CocoContext:
    """The classes, from the categories of all files."""
    names: dict[int, str] = {}
    where: dict[int, str] = {}
    used: set[str] = set()
    for file, document in documents:
        used |= document.used
        for i, category in enumerate(document.categories):
            number = parse_integer(category.id)
            if number is None or not isinstance(category.name, str) or not category.name:
                raise _not_coco_error(
                    file.path, f"category {i:,} lacks an id or a name", f"id {preview(category.id)}"
                )
            if names.setdefault(number, category.name) != category.name:
                other = "" if where[number] == file.path else f", in {where[number]}"
                raise _not_coco_error(
                    file.path,
                    f"category {number} has two names",
                    f"{preview(category.name)} and {preview(names[number])}{other}",
                )
            where.setdefault(number, file.path)
    # Roboflow lists the project name as category 0, which no box has.
    kept = {number: name for number, name in names.items() if number != 0 or "0" in used}
    ids = {str(number): number + (0 in kept) for number in kept}
    if items is None:
        of_name: dict[str, int] = {}
        for number, name in kept.items():
            if of_name.setdefault(name, number) != number:
                found = f"{of_name[name]} and {number}, both {preview(name)}"
                raise _not_coco_error(where[number], "two categories have the same name", found)
        return _CocoContext(ids, {ids[str(number)]: name for number, name in kept.items()}, _names_by_text_id(kept))
    by_name = detection.assign_class_ids(list(kept.values()), items)
    chosen = {str(number): by_name[name] for number, name in kept.items() if name in by_name}
    return _CocoContext(chosen, detection.class_names_by_id(by_name, items), _names_by_text_id(kept))


def _names_by_text_id(names: Mapping[int, str]) -> dict[str, str]:
    return {str(number): name for number, name in names.items()}


def _not_coco_error(path: str, what: str, found: str) -> RekordError:
    return error(
        "X531",
        what,
        location=Location(path=path),
        expected="categories with an id ≥ 0 and a name, both unique",
        found=found,
        do="fix `categories` in the JSON file",
    )


def _malformed_error(whose: str, member: str, expected: str, found: Any, location: Location) -> RekordError:
    return error(
        "E369",
        f"{whose} has no valid `{member}`",
        location=location,
        expected=expected,
        found=preview(found),
        do="fix it in the JSON file, or remove it",
    )


def _validate_numbers(
    value: Any, count: int, whose: str, member: str, expected: str, location: Location
) -> Sequence[float]:
    good = isinstance(value, list) and len(value) == count
    if good:
        good = all(type(one) in (int, float) and abs(one) < _MAX_COORDINATE for one in value)
    if not good:
        raise _malformed_error(whose, member, expected, value, location)
    return [float(one) for one in value]


def _parse_size(value: Any) -> int | None:
    number = parse_integer(value)
    return number if number is not None and 0 < number < _MAX_COORDINATE else None
