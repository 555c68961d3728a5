"""Datumaro in a process of its own: formats of a folder, and its annotations regrouped by image in an Arrow file.

`python -P -m rekord.sources.datumaro_reader REQUEST` writes one JSON document to stdout. Datumaro parses hostile
files here: with limited memory and time, and without network, other processes, or files outside of the folder.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from rekord.arguments import is_utf8_encodable
from rekord.sources.coco import MAX_MASK_PIXELS, rasterize_polygons
from rekord.sources.image_folder import is_image_name, split_of_folder, stat_file, to_printable_path
from rekord.sources.parser_guard import DeniedError, Guard
from rekord.storage.portability import limit_process

MAX_LISTED = 20
_BATCH_ROWS = 512
_BATCH_BYTES = 32 << 20  # of images that rows refer to or contain, so that a batch is a task of its own
_MAX_TEXT = 200

# Formats whose detection accepts nearly any folder, of which rekord reads the files itself, or which have no images.
LOOSE_FORMATS = frozenset(
    (
        *("imagenet_txt", "sly_pointcloud", "kitti_raw", "kinetics", "brats", "brats_numpy"),
        *("image_dir", "image_zip", "imagenet", "imagenet_with_subset_dirs", "video_frames", "video_keyframes"),
        *("common_semantic_segmentation", "common_semantic_segmentation_with_subset_dirs", "tabular", "arrow"),
        *("tf_detection_api", "roboflow_tfrecord", "roboflow_multiclass"),
    )
)
UNREADABLE_FORMATS = {
    "image_zip": "an archive",
    "tf_detection_api": "record files",
    "roboflow_tfrecord": "record files",
    "video_frames": "a video",
    "video_keyframes": "a video",
}
"""Formats that are not handed to Datumaro."""

_PART_FORMATS = ("ade20k2017", "ade20k2020")  # with masks of parts above those of objects
_RGB_FORMATS = ("cifar",)  # whose pixels Datumaro leaves in this order, where it otherwise has BGR

_OBJECT_TYPES = frozenset(("bbox", "rotated_bbox", "polygon", "ellipse"))
_FLAG_NAMES = {
    "is_crowd": ("is_crowd",),
    "difficult": ("difficult", "difficulty"),
    "truncated": ("truncated",),
    "occluded": ("occluded",),
}
_FLAGS = {name: column for column, names in _FLAG_NAMES.items() for name in names}
FLAG_COLUMNS = tuple(_FLAG_NAMES)
_BACKGROUND = re.compile(r"background|bg|unlabell?ed|void", re.IGNORECASE)

ARROW_SCHEMA = pa.schema(
    [
        ("path", pa.string()),  # of the image, below the root; "" for an image inside another file
        ("position", pa.int64()),
        ("filename", pa.string()),
        ("source_id", pa.string()),
        ("split", pa.string()),
        ("size_bytes", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("width", pa.int64()),
        ("height", pa.int64()),
        ("problem", pa.string()),
        ("image", pa.large_binary()),
        ("boxes", pa.list_(pa.float32())),
        ("labels", pa.list_(pa.int64())),
        *[(name, pa.list_(pa.int64())) for name in FLAG_COLUMNS],
        ("corners", pa.list_(pa.float32())),
        ("keypoints", pa.list_(pa.float32())),
        ("keypoint_counts", pa.list_(pa.int64())),
        ("masks", pa.list_(pa.large_binary())),
        ("mask", pa.large_binary()),
        ("captions", pa.list_(pa.string())),
        ("attributes", pa.string()),
    ]
)


class ReadingRequest(msgspec.Struct):
    """What to do, and within which limits."""

    path: str
    out: str | None = None  # the Arrow file; None to detect the formats only
    format: str | None = None
    layout: str | None = None
    masks: bool = False
    memory_bytes: int = 0  # beyond what Datumaro itself takes; 0 is unlimited
    cpu_seconds: int = 0


class ReadingFailure(msgspec.Struct):
    """Why Datumaro did not read the folder."""

    kind: str  # the class of the exception
    text: str
    file: str | None = None  # below the root: the last one that was opened
    item: str | None = None


class ReadingReport(msgspec.Struct):
    """What was found."""

    formats: list[str] = []
    failure: ReadingFailure | None = None
    denied: list[str] = []  # what was attempted, and is not allowed here
    layout: str | None = None
    names: list[str] = []  # of labels, by Datumaro's index
    used: list[int] = []  # indices of labels that rows have
    has: list[str] = []
    unlabelled: int = 0  # objects without a class
    unused: list[tuple[str, int, str]] = []  # what, how many, why
    guesses: list[str] = []
    splits: list[str | None] = []
    batches: list[int] = []  # the bytes that are read for each batch of rows
    rows: int = 0
    ignore: int | None = None
    is_single: bool = True  # whether every image has at most one caption
    captions: int = 0
    incomplete: int = 0  # images without a label or a mask
    media: dict[str, int] = {}  # items by the type of their media
    attributes: dict[str, str] = {}  # of images, with their types
    files: list[str] = []  # that were opened, below the root


def detect_formats(path: str) -> list[str]:
    """The formats that Datumaro detects with the most confidence, without those that accept nearly any folder.

    A detector that fails, as for a package that is not installed, does not detect its format. A format is left out if
    another one includes it: `kitti` reads all that `kitti_detection` does.
    """
    from_extension = import_module("datumaro.components.environment").Environment().importers.extension_groups
    apply = import_module("datumaro.components.format_detection").apply_format_detector
    extensions = _find_extensions(path)
    plugins = {name: plugin for one in extensions for name, plugin in from_extension.get(one, ())}
    found: dict[str, int] = {}
    for name in sorted(set(plugins) - LOOSE_FORMATS):
        with suppress(Exception):
            found[name] = int(apply(path, plugins[name].get_plugin_cls().detect))
    best = max(found.values(), default=0)
    names = [name for name, confidence in found.items() if confidence == best]
    return [name for name in names if not any(name.startswith(f"{other}_") for other in names)]


def _find_extensions(path: str) -> set[str]:
    extensions = {""}
    for _, folders, files in os.walk(path, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        extensions.update([os.path.splitext(name)[1] for name in files])
    return extensions | {one.lower() for one in extensions}


class _Entry(NamedTuple):
    """An item of Datumaro, and where its image is."""

    key: tuple[bytes, str, str]
    item: Any
    path: str
    problem: str | None
    facts: os.stat_result | None


class _Reading:
    """The items of a dataset as rows of one layout."""

    def __init__(self, request: ReadingRequest, guard: Guard, report: ReadingReport) -> None:
        self.request = request
        self.guard = guard
        self.report = report
        self.counts: Counter[str] = Counter()
        self.unused: Counter[tuple[str, str]] = Counter()
        self.bad_items: list[tuple[str, str]] = []
        self.used: set[int] = set()
        self.keypoints = 0
        self.names: list[str] = []

    def run(self) -> None:
        dataset = self._import()
        self.names = _label_names(dataset.categories())
        entries, merged = self._list(dataset)
        self.report.layout = layout = self.request.layout or self._choose_layout(merged)
        self.report.media = dict(Counter([type(entry.item.media).__name__ for entry in entries]))
        if layout == "none":
            return
        if layout == "deeplab" and not self.names:
            self.names = ["background"]
        columns = {
            "detection": self._detection,
            "deeplab": self._segmentation,
            "classification": self._classification,
            "table": self._table,
            "images": self._images,
        }[layout]
        self._describe(layout, entries)
        self._write(entries, columns)
        self.report.names = self.names
        if not self.keypoints:
            self.report.has = [name for name in self.report.has if name != "keypoints"]
        self.report.captions = self.counts["caption"]
        self.report.used = sorted(self.used)
        self.report.unused = [(what, count, why) for (what, why), count in sorted(self.unused.items())]
        self.report.rows = len(entries) + len(self.bad_items)

    def _import(self) -> Any:
        reading = self
        policies = import_module("datumaro.components.contexts.importer")

        class SkipPolicy(policies.ImportErrorPolicy):  # type: ignore[misc,name-defined]
            """Items and annotations that cannot be parsed become bad rows."""

            def report_item_error(self, error: Exception, *, item_id: tuple[str, str]) -> None:
                reading.add_bad_item(error, item_id)

            report_annotation_error = report_item_error

        kind = import_module("datumaro.components.dataset").Dataset
        return kind.import_from(self.request.path, self.request.format, error_policy=SkipPolicy())

    def add_bad_item(self, failure: Exception, item_id: tuple[str, str]) -> None:
        """Keep the error of an item for its row. What is not allowed here ends the reading."""
        if isinstance(failure, (DeniedError, MemoryError)):
            raise failure
        name = "/".join([str(one) for one in item_id[::-1]])
        self.bad_items.append((name[:_MAX_TEXT], describe_failure(failure)))

    def _list(self, dataset: Any) -> tuple[list[_Entry], bool]:
        """The items in the order of rows, and whether images have several masks of one class."""
        entries: list[_Entry] = []
        counts = self.counts
        patterns: Counter[tuple[str, ...]] = Counter()
        merged = False
        for item in dataset:
            kinds = [_kind(one) for one in item.annotations]
            patterns[tuple(kinds)] += 1
            if "mask" in kinds and not merged:
                labels = [one.label for one in item.annotations if _kind(one) == "mask"]
                merged = len(set(labels)) < len(labels)
            if "label" in kinds and kinds.count("label") > 1:
                counts["several labels"] += 1
            entries.append(self._locate(item))
        for pattern, times in patterns.items():
            for name in pattern:
                counts[name] += times
        entries.sort(key=lambda one: one.key)
        first: dict[str, str] = {}
        for i, entry in enumerate(entries):
            if entry.path and entry.problem is None:
                other = first.setdefault(entry.path, entry.item.subset)
                if other is not entry.item.subset or (i and entries[i - 1].path == entry.path):
                    entries[i] = entry._replace(problem=f"duplicate:{other}")
        return entries, merged

    def _locate(self, item: Any) -> _Entry:
        media = item.media
        kind = type(media).__name__
        given = getattr(media, "path", None) if kind == "ImageFromFile" else None
        subset = str(item.subset)
        identity = str(item.id)
        if given is None:
            is_image = kind in ("ImageFromNumpy", "ImageFromBytes")
            problem = None if is_image and media.has_data else f"media:{kind}"
            return _Entry((b"", subset, identity), item, "", problem, None)
        full = os.path.abspath(given)
        facts = stat_file(full) if full.startswith(self.guard.root) else None
        if facts is None and (other := self._images_by_name.get(os.path.basename(full))):
            full, facts = other, stat_file(other)
        if not full.startswith(self.guard.root):
            return _Entry((os.fsencode(identity), subset, ""), item, "", f"outside:{given}", None)
        path = self.guard.relative(full)
        problem = f"missing:{path}" if facts is None else None
        return _Entry((os.fsencode(path), subset, ""), item, path, problem, facts)

    @cached_property
    def _images_by_name(self) -> dict[str, str | None]:
        """The images of the folder by name, None for a name that several have: annotations written on another
        machine have other paths."""
        found: dict[str, str | None] = {}
        for folder, _, names in os.walk(self.guard.root):
            for name in filter(is_image_name, names):
                found[name] = None if name in found else os.path.join(folder, name)
        return found

    def _choose_layout(self, merged: bool) -> str:
        counts = self.counts
        boxes = counts["bbox"] or counts["rotated_bbox"]
        if boxes or (not counts["mask"] and any(counts[kind] for kind in _OBJECT_TYPES)):
            return "detection"
        if counts["mask"]:
            if merged:
                what = "masks of several objects of a class are merged: the layout detection keeps each of them"
                self.report.guesses.append(what)
            return "deeplab"
        if counts["label"] and not counts["several labels"] and not counts["caption"]:
            return "classification"
        return "table" if counts["label"] or counts["caption"] else "none"

    # Rows.

    def _describe(self, layout: str, entries: Sequence[_Entry]) -> None:
        """The columns that only some datasets have, and what is not used."""
        counts = self.counts
        stored = {
            "detection": {"bbox", "rotated_bbox", "polygon", "ellipse", "mask", "points"},
            "deeplab": {"mask" if counts["mask"] else "polygon"},
            "classification": {"label"},
            "table": {"label", "caption"},
            "images": set(),
        }[layout]
        for kind, count in counts.items():
            if kind not in stored and " " not in kind:
                self.unused[f"annotations of type {kind}", f"the layout {layout} does not store them"] += count
        attributes = _count_attributes(entries, of_images=layout != "table")
        flags = _FLAGS if layout == "detection" else {}
        for name, count in attributes.items():
            if name not in flags:
                self.unused[f"attribute {name[:60]}", f"the layout {layout} does not store it"] += count
        if layout == "detection":
            known = {flags[name] for name in attributes if name in flags}
            self.report.has = [name for name in FLAG_COLUMNS if name in known]
            self.report.has += ["corners"] if counts["rotated_bbox"] else []
            self.report.has += ["keypoints"] if counts["points"] else []
            if not self.request.masks:
                for kind in ("polygon", "mask"):
                    if counts[kind]:
                        self.unused[f"{kind} outlines", "their boxes are used; masks=True stores them"] += counts[
                            kind
                        ]
        elif layout == "table":
            self._describe_table(entries)

    def _describe_table(self, entries: Sequence[_Entry]) -> None:
        kinds: dict[str, set[type]] = {}
        for entry in entries:
            captions = [one for one in entry.item.annotations if _kind(one) == "caption"]
            self.report.is_single = self.report.is_single and len(captions) == 1
            for name, value in entry.item.attributes.items():
                if name == "id":
                    continue
                kinds.setdefault(str(name), set()).add(type(value))
        names = {frozenset({int}): "int", frozenset({float}): "float", frozenset({str}): "text"}
        self.report.attributes = {
            name: names[frozenset(found)] for name, found in sorted(kinds.items()) if frozenset(found) in names
        }

    def _write(self, entries: Sequence[_Entry], build: Callable[[_Entry], dict[str, Any]]) -> None:
        out = self.request.out
        assert out is not None
        splits: dict[str | None, None] = {}
        # The only subset is named after the file of the annotations, unless it is a split.
        subsets = {str(entry.item.subset) for entry in entries}
        usual = len(subsets) == 1 and split_of_folder(min(subsets)) is None
        with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, ARROW_SCHEMA) as writer:
            rows: list[dict[str, Any]] = []
            taken = number = 0
            for entry in entries:
                row = self._common(entry, None if usual else str(entry.item.subset))
                splits[row["split"]] = None
                if not entry.path:
                    row["position"], number = number, number + 1
                if row["problem"] is None:
                    try:
                        row |= build(entry)
                    except (DeniedError, MemoryError):
                        raise
                    except Exception as failure:
                        row["problem"] = f"item:{describe_failure(failure)}"
                taken += row["size_bytes"] + len(row.get("image") or b"")
                rows.append(row)
                if len(rows) >= _BATCH_ROWS or taken >= _BATCH_BYTES:
                    self._flush(writer, rows, taken)
                    rows, taken = [], 0
            for name, text in self.bad_items:
                rows.append(_empty_row() | {"position": number, "source_id": name, "problem": f"item:{text}"})
                number += 1
            if rows:
                self._flush(writer, rows, taken)
        self.report.splits = list(splits)

    def _flush(self, writer: Any, rows: Sequence[dict[str, Any]], taken: int) -> None:
        known = set().union(*rows)
        columns = [
            _to_arrow([row.get(one.name) for row in rows], one.type)
            if one.name in known
            else pa.nulls(len(rows), one.type)
            for one in ARROW_SCHEMA
        ]
        writer.write_batch(pa.record_batch(columns, schema=ARROW_SCHEMA))
        self.report.batches.append(taken)

    def _common(self, entry: _Entry, split: str | None) -> dict[str, Any]:
        item, facts = entry.item, entry.facts
        size = getattr(item.media, "_size", None) or (None, None)
        is_named = is_utf8_encodable(entry.path)
        return {
            "path": to_printable_path(entry.path),
            "position": 0,
            "filename": to_printable_path(entry.path or f"{item.subset}/{item.id}"),
            "source_id": to_printable_path(str(item.id)),
            "split": split,
            "size_bytes": 0 if facts is None else facts.st_size,
            "mtime_ns": 0 if facts is None else facts.st_mtime_ns,
            "width": size[1],
            "height": size[0],
            "problem": entry.problem if is_named else "name:",
            "image": None if entry.problem or facts is not None else self._embedded(item.media),
        }

    def _embedded(self, media: Any) -> bytes:
        """The encoded image of an item that is not a file of its own: as it is, or as PNG."""
        data = media.bytes if type(media).__name__ == "ImageFromBytes" else None
        if data is not None:
            return bytes(data)
        pixels = np.asarray(media.data)
        if pixels.ndim == 3 and self.request.format in _RGB_FORMATS:
            pixels = pixels[:, :, ::-1]
        return _encode_png(pixels)

    def _label(self, annotation: Any) -> int:
        """The index of a class; that after the last one if an object has none."""
        label = annotation.label
        if label is None or not 0 <= label < len(self.names):
            self.report.unlabelled += 1
            return len(self.names)
        self.used.add(label)
        return int(label)

    def _images(self, _: _Entry) -> dict[str, Any]:
        return {}

    def _classification(self, entry: _Entry) -> dict[str, Any]:
        labels = [self._label(one) for one in entry.item.annotations if _kind(one) == "label"]
        self.report.incomplete += not labels
        return {"labels": labels[:1]}

    def _table(self, entry: _Entry) -> dict[str, Any]:
        annotations = entry.item.annotations
        attributes = {
            name: value for name, value in entry.item.attributes.items() if str(name) in self.report.attributes
        }
        return {
            "labels": [self._label(one) for one in annotations if _kind(one) == "label"],
            "captions": [one.caption for one in annotations if _kind(one) == "caption"],
            "attributes": json.dumps(attributes) if attributes else None,
        }

    def _detection(self, entry: _Entry) -> dict[str, Any]:
        boxes: list[float] = []
        labels: list[int] = []
        flags: dict[str, list[int]] = {name: [] for name in self.report.has if name in FLAG_COLUMNS}
        corners: list[float] = []
        keypoints: list[float] = []
        counts: list[int] = []
        masks: list[bytes] = []
        size = _ImageSize(entry.item)
        for group in self._objects(entry.item.annotations):
            main = group[0]
            boxes += _bounds(group)
            labels.append(self._label(main))
            for name, values in flags.items():
                values.append(_flag(group, name))
            if "corners" in self.report.has:
                corners += _corners(main, boxes[-4:])
            if "keypoints" in self.report.has:
                found = [point for one in group if _kind(one) == "points" for point in _keypoints(one)]
                keypoints += found
                counts.append(len(found) // 3)
                self.keypoints += len(found)
            if self.request.masks:
                masks.append(_encode_png(_draw(group, size)))
        row: dict[str, Any] = {"boxes": boxes, "labels": labels, **flags}
        if "corners" in self.report.has:
            row["corners"] = corners
        if "keypoints" in self.report.has:
            row |= {"keypoints": keypoints, "keypoint_counts": counts}
        if self.request.masks:
            row["masks"] = masks
        return row

    def _objects(self, annotations: Iterable[Any]) -> Iterator[list[Any]]:
        """The annotations of each object. Those of a group are one object, unless it has several boxes."""
        groups: dict[int, list[Any]] = {}
        for one in annotations:
            kind = _kind(one)
            if kind == "bbox" and not one.group:
                yield [one]
            elif kind in _OBJECT_TYPES or kind in ("mask", "points"):
                groups.setdefault(one.group or -1 - len(groups), []).append(one)
        for group in groups.values():
            main = [one for one in group if _kind(one) in ("bbox", "rotated_bbox")]
            if len(main) > 1:
                yield from [[one] for one in main]
                group = [one for one in group if _kind(one) not in ("bbox", "rotated_bbox")]
            elif main:
                yield [main[0], *[one for one in group if one is not main[0]]]
                continue
            shaped = [one for one in group if _kind(one) != "points"]
            if shaped:
                yield [*shaped, *[one for one in group if _kind(one) == "points"]]
            elif group:
                self.unused["points without a box", "the layout detection stores keypoints of boxes"] += len(group)

    @cached_property
    def _background(self) -> int | None:
        """The class of pixels without a mask, if the first class is that of the background."""
        first = self.names[0] if self.names else ""
        return 0 if _BACKGROUND.fullmatch(first) else None

    def _segmentation(self, entry: _Entry) -> dict[str, Any]:
        annotations = entry.item.annotations
        kind = "mask" if self.counts["mask"] else "polygon"  # polygons next to masks outline the same objects
        masks = [one for one in annotations if _kind(one) == kind]
        if self.request.format in _PART_FORMATS:
            objects = [one for one in masks if one.z_order == 0]
            if len(objects) < len(masks):
                self.unused["masks of parts", "the layout deeplab stores those of objects"] += len(masks) - len(
                    objects
                )
            masks = objects
        if not masks:
            self.report.incomplete += 1
            return {}
        ignore = 255 if len(self.names) < 255 else 65535
        self.report.ignore = ignore
        canvas: Any = None
        size = _ImageSize(entry.item)
        for one, pixels in _iter_pixels(sorted(masks, key=lambda one: one.z_order), size):
            if canvas is None:
                fill = ignore if self._background is None else self._background
                canvas = np.full(pixels.shape, fill, np.uint8 if ignore == 255 else np.uint16)
            if pixels.shape != canvas.shape:
                raise ValueError(f"masks of different sizes: {pixels.shape} and {canvas.shape}")
            canvas[pixels] = self._label(one)
        return {"mask": _encode_png(canvas)}


def _count_attributes(entries: Iterable[_Entry], *, of_images: bool) -> Counter[str]:
    patterns: Counter[tuple[str, ...]] = Counter()
    for entry in entries:
        if entry.item.attributes and of_images:
            patterns[tuple([f"{name} of images" for name in entry.item.attributes if name != "id"])] += 1
        for one in entry.item.annotations:
            if one.attributes:
                patterns[tuple(one.attributes)] += 1
    counts: Counter[str] = Counter()
    for pattern, times in patterns.items():
        for name in pattern:
            counts[str(name)] += times
    return counts


def _to_arrow(values: list[Any], kind: Any) -> Any:
    """A column. Lists of numbers are joined first: Arrow converts them one by one otherwise."""
    if not pa.types.is_list(kind) or kind.value_type not in (pa.float32(), pa.int64()) or None in values:
        return pa.array(values, kind)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in values])]).astype(np.int32)
    joined = np.fromiter(
        chain.from_iterable(values), np.float32 if kind.value_type == pa.float32() else np.int64, int(offsets[-1])
    )
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(joined))


class _ImageSize:
    """The height and width of an item's image, read when a mask needs them."""

    def __init__(self, item: Any) -> None:
        self._item = item

    @cached_property
    def shape(self) -> tuple[int, int]:
        size = getattr(self._item.media, "size", None)
        if size is None or size[0] * size[1] > MAX_MASK_PIXELS:
            raise ValueError(f"an image of at most {MAX_MASK_PIXELS:,} pixels is needed for masks, found {size}")
        return int(size[0]), int(size[1])


def _empty_row() -> dict[str, Any]:
    return {"path": "", "position": 0, "filename": "", "size_bytes": 0, "mtime_ns": 0}


def _label_names(categories: Any) -> list[str]:
    """The names of classes by index; those that occur twice with the name of their parent."""
    kind = import_module("datumaro.components.annotation").AnnotationType.label
    labels = categories.get(kind, ())
    counts = Counter([label.name for label in labels])
    names = [
        f"{label.parent}/{label.name}" if counts[label.name] > 1 and label.parent else label.name for label in labels
    ]
    seen: Counter[str] = Counter()
    for i, name in enumerate(names):
        seen[name] += 1
        names[i] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return names


_kinds: dict[type, str] = {}


def _kind(annotation: Any) -> str:
    """The type of an annotation by name: its own property takes ten times as long."""
    kind = type(annotation)
    if kind not in _kinds:
        _kinds[kind] = annotation.type.name
    return _kinds[kind]


def _bounds(group: Sequence[Any]) -> list[float]:
    """The box of an object: its own, or that of its outlines."""
    main = group[0]
    if _kind(main) == "bbox":
        return list(main.points)
    boxes = [one.get_bbox() for one in group if _kind(one) != "points" or one is main]
    boxes = boxes[:1] if _kind(main) == "rotated_bbox" else boxes
    x0, y0 = min([box[0] for box in boxes]), min([box[1] for box in boxes])
    x1, y1 = max([box[0] + box[2] for box in boxes]), max([box[1] + box[3] for box in boxes])
    return [float(x0), float(y0), float(x1), float(y1)]


def _corners(main: Any, box: Sequence[float]) -> list[float]:
    """The four corners of an object's box, which may be rotated."""
    if _kind(main) == "rotated_bbox":
        return [float(one) for one in np.asarray(main.as_polygon(), np.float64).ravel()[:8]]
    x0, y0, x1, y1 = box
    return [x0, y0, x1, y0, x1, y1, x0, y1]


def _keypoints(points: Any) -> list[float]:
    """x, y and visibility (0 absent, 1 hidden, 2 visible) of each point."""
    xy = points.points
    return [
        float(one)
        for i, visibility in enumerate(points.visibility)
        for one in (xy[2 * i], xy[2 * i + 1], int(visibility))
    ]


def _flag(group: Sequence[Any], column: str) -> int:
    for one in group:
        for name in _FLAG_NAMES[column]:
            value = one.attributes.get(name)
            if value is True or value is False:
                return int(value)
            if isinstance(value, str):
                known = {"true": 1, "yes": 1, "false": 0, "no": 0, "": 0}
                return known[value.lower()] if value.lower() in known else int(float(value))
            if value is not None:
                # KITTI's truncation is a fraction.
                return int(value) if float(value).is_integer() else int(float(value) > 0)
    return 0


def _draw(group: Sequence[Any], size: _ImageSize) -> Any:
    """The mask of an object: its outlines, or its box."""
    outlines = [one for one in group if _kind(one) in ("mask", "polygon")] or [group[0]]
    height, width = size.shape
    mask = np.zeros((height, width), np.uint8)
    for _, pixels in _iter_pixels(outlines, size):
        if pixels.shape != mask.shape:
            raise ValueError(f"a mask of {pixels.shape} for an image of {mask.shape}")
        mask |= pixels
    return mask


def _iter_pixels(annotations: Sequence[Any], size: _ImageSize) -> Iterator[tuple[Any, Any]]:
    """The pixels of each outline. A file of ids that several masks are taken from is decoded once."""
    decoded: dict[int, Any] = {}
    for one in annotations:
        if type(one).__name__ == "ExtractedMask":
            source = one.index_mask
            if id(source) not in decoded:
                decoded[id(source)] = source() if callable(source) else source
            yield one, decoded[id(source)] == one.index
        elif _kind(one) == "mask":
            claimed = getattr(one, "rle", None)
            stated = claimed.get("size", (0, 0)) if isinstance(claimed, dict) else (0, 0)
            if int(stated[0]) * int(stated[1]) > MAX_MASK_PIXELS:
                raise ValueError(f"a mask of {stated[0]} × {stated[1]} pixels")
            yield one, np.asarray(one.image) != 0
        else:
            yield one, rasterize_polygons([list(one.as_polygon())], *size.shape) != 0


def _encode_png(pixels: Any) -> bytes:
    cv2 = import_module("cv2")
    done, data = cv2.imencode(".png", np.ascontiguousarray(pixels))
    if not done:
        raise ValueError(f"pixels of {pixels.dtype} and shape {pixels.shape} cannot be stored as PNG")
    return bytes(data)


def describe_failure(failure: BaseException) -> str:
    """The deepest cause of an exception, in one line."""
    while failure.__cause__ is not None:
        failure = failure.__cause__
    text = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {text}"[:_MAX_TEXT]


def _find_cause(failure: BaseException) -> BaseException:
    while failure.__cause__ is not None:
        failure = failure.__cause__
    return failure


class _Warnings(logging.Handler):
    """What Datumaro warns of, for the report."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < MAX_LISTED:
            self.texts[" ".join(record.getMessage().split())[:_MAX_TEXT]] = None


def answer(request: ReadingRequest) -> ReadingReport:
    """What was asked for, or why it failed."""
    warned = _Warnings()
    logging.getLogger().addHandler(warned)
    for name in ("environment", "dataset", "contexts.importer", "format_detection", "annotation"):
        import_module(f"datumaro.components.{name}")
    import_module("cv2").setNumThreads(1)
    # Everything is kept until the end: looking for garbage takes a third of the time.
    gc.freeze()
    gc.set_threshold(1_000_000, 100, 100)
    guard = Guard(request.path, request.out)
    limit_process(request.memory_bytes, request.cpu_seconds)
    guard.install()
    report = ReadingReport()
    try:
        report.formats = [request.format] if request.format else detect_formats(request.path)
        if request.out is not None and len(report.formats) == 1:
            guard.opened.clear()
            request.format = report.formats[0]
            _Reading(request, guard, report).run()
    except BaseException as failure:
        cause = _find_cause(failure)
        last = None if guard.last is None else guard.relative(guard.last)
        item = getattr(failure, "item_id", None)
        shown = None if item is None else "/".join([str(one) for one in item[::-1]])
        text = " ".join(str(cause).split())[:_MAX_TEXT]
        report.failure = ReadingFailure(type(cause).__name__, text, last, shown)
    report.denied = list(guard.denied)[:MAX_LISTED]
    report.files = [guard.relative(path) for path in guard.opened]
    report.guesses += [f"Datumaro: {text}" for text in warned.texts]
    return report


def main() -> None:
    """Answer the request in the arguments; stdout is for the answer alone."""
    request = msgspec.json.decode(sys.argv[1], type=ReadingRequest)
    # Surrogates stand for bytes of paths that are not UTF-8, which JSON cannot have.
    request.path = os.fsdecode(bytes.fromhex(request.path))
    request.out = None if request.out is None else os.fsdecode(bytes.fromhex(request.out))
    stdout = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    report = answer(request)
    data = json.dumps(msgspec.to_builtins(report)).encode("ascii")
    while data:
        data = data[os.write(stdout, data) :]


if __name__ == "__main__":
    main()
