"""A source from what a path was recognised as, and from what a person says of it besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rekord.errors import RekordError, error, preview
from rekord.location import Location
from rekord.sources.base import Source
from rekord.sources.detect import DetectedSource
from rekord.sources.image_folder import join_path


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOverrides:
    """What may be said of a source beside its path; None is nothing."""

    classes: int | Sequence[str] | None = None
    ignore: int | None = None  # the id of pixels without a class
    label_map: str | None = None
    images: str | None = None  # the folder of images that a list or a json names
    optional_masks: bool | None = None


_NO_OVERRIDES = SourceOverrides()
_ACCEPTED_OVERRIDES = {
    "image_folder": ("classes",),
    "image_csv": ("classes", "images"),
    "segmentation": ("classes", "ignore", "optional_masks"),
    "voc_segmentation": ("classes", "ignore", "optional_masks"),
    "cityscapes": ("ignore", "optional_masks"),
    "voc": ("label_map",),
    "coco": ("label_map", "images"),
    "yolo": ("label_map",),
    "boxes_csv": ("label_map", "images"),
}


def build_source(found: DetectedSource, said: SourceOverrides = _NO_OVERRIDES) -> Source:
    """The source. What was said and means nothing to it is refused, not passed over."""
    for name in ("classes", "ignore", "label_map", "images", "optional_masks"):
        value = getattr(said, name)
        if value is not None and name not in _ACCEPTED_OVERRIDES.get(found.kind, ()):
            raise _unused_override_error(found, name, value)
    if isinstance(said.classes, int) and found.kind in ("image_folder", "image_csv"):
        raise _unused_override_error(found, "classes", said.classes)
    return _BUILDERS[found.kind](found, said)


def _build_image_folder(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.image_folder import image_folder

    return image_folder(found.path, classes=_class_names(said))


def _build_image_csv(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.image_csv import image_csv

    return image_csv(found.path, root=said.images, classes=_class_names(said))


def _build_segmentation(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.segmentation import segmentation

    return segmentation(
        found.path,
        found.masks or found.path,
        classes=said.classes,
        ignore=said.ignore,
        optional_masks=bool(said.optional_masks),
    )


def _build_voc_segmentation(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.segmentation import voc_segmentation

    # How many classes there are is for the layout to know; the names are VOC's own, or those of the folder.
    return voc_segmentation(found.path, classes=_class_names(said), optional_masks=said.optional_masks)


def _build_cityscapes(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.segmentation import cityscapes

    return cityscapes(found.path, optional_masks=said.optional_masks)


def _build_voc(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.voc import voc

    return voc(found.path, label_map=said.label_map)


def _build_coco(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.coco import coco

    return coco(found.path, said.images, label_map=said.label_map)


def _build_yolo(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.yolo import yolo

    return yolo(found.path, label_map=said.label_map)


def _build_boxes_csv(found: DetectedSource, said: SourceOverrides) -> Source:
    from rekord.sources.boxes_csv import boxes_csv

    return boxes_csv(found.path, said.images, label_map=said.label_map)


def _build_csv(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.csv import csv

    return csv(found.path)


def _build_jsonl(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.jsonl import jsonl

    return jsonl(found.path)


def _build_parquet(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.parquet import parquet

    return parquet(found.path)


def _build_arrow(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.arrow import arrow

    return arrow(found.path)


def _build_npy(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.arrays import npy

    return npy(found.path)


def _build_npz(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.arrays import npz

    return npz(found.path)


def _build_text(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.lines import text

    return text(found.path)


def _build_webdataset(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.webdataset import webdataset

    return webdataset(found.path)


def _build_records(found: DetectedSource, _: SourceOverrides) -> Source:
    from rekord.sources.records import records

    return records(found.path)


_BUILDERS: dict[str, Callable[[DetectedSource, SourceOverrides], Source]] = {
    "image_folder": _build_image_folder,
    "image_csv": _build_image_csv,
    "segmentation": _build_segmentation,
    "voc_segmentation": _build_voc_segmentation,
    "cityscapes": _build_cityscapes,
    "voc": _build_voc,
    "coco": _build_coco,
    "yolo": _build_yolo,
    "boxes_csv": _build_boxes_csv,
    "csv": _build_csv,
    "jsonl": _build_jsonl,
    "parquet": _build_parquet,
    "arrow": _build_arrow,
    "npy": _build_npy,
    "npz": _build_npz,
    "text": _build_text,
    "webdataset": _build_webdataset,
    "records": _build_records,
}


def _class_names(said: SourceOverrides) -> list[str] | None:
    return None if said.classes is None or isinstance(said.classes, int) else list(said.classes)


def _unused_override_error(found: DetectedSource, name: str, value: object) -> RekordError:
    takes = _ACCEPTED_OVERRIDES.get(found.kind, ())
    expected = (
        "a file of names, one a line"
        if name in takes
        else f"options for {found.kind}: "
        + (", ".join(f"--{one.replace('_', '-')}" for one in takes) or "none of these")
    )
    return error(
        "U605",
        f"`{name}` means nothing for a source of the kind {found.kind}",
        location=Location(path=join_path(found.path, "")),
        expected=expected,
        found=f"{name} = {preview(value)}",
        do=f"leave --{name.replace('_', '-')} out" if name not in takes else "--classes names.txt",
    )
