"""A source from what a path was recognised as, and from what a person says of it besides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rekord.errors import RekordError, error
from rekord.location import Location
from rekord.schema.messages import shown
from rekord.sources.base import Source
from rekord.sources.detect import Recognised
from rekord.sources.image_folder import joined


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What may be said of a source beside its path; None is nothing."""

    classes: int | Sequence[str] | None = None
    ignore: int | None = None  # the id of pixels without a class
    label_map: str | None = None
    images: str | None = None  # the folder of images that a list or a json names
    optional_masks: bool | None = None


_NOTHING = Said()
_TAKES = {
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


def build(found: Recognised, said: Said = _NOTHING) -> Source:
    """The source. What was said and means nothing to it is refused, not passed over."""
    for name in ("classes", "ignore", "label_map", "images", "optional_masks"):
        value = getattr(said, name)
        if value is not None and name not in _TAKES.get(found.kind, ()):
            raise _meaningless(found, name, value)
    if isinstance(said.classes, int) and found.kind in ("image_folder", "image_csv"):
        raise _meaningless(found, "classes", said.classes)
    return _MAKERS[found.kind](found, said)


def _image_folder(found: Recognised, said: Said) -> Source:
    from rekord.sources.image_folder import image_folder

    return image_folder(found.path, classes=_names(said))


def _image_csv(found: Recognised, said: Said) -> Source:
    from rekord.sources.image_csv import image_csv

    return image_csv(found.path, root=said.images, classes=_names(said))


def _segmentation(found: Recognised, said: Said) -> Source:
    from rekord.sources.segmentation import segmentation

    return segmentation(
        found.path,
        found.masks or found.path,
        classes=said.classes,
        ignore=said.ignore,
        optional_masks=bool(said.optional_masks),
    )


def _voc_segmentation(found: Recognised, said: Said) -> Source:
    from rekord.sources.segmentation import voc_segmentation

    # How many classes there are is for the layout to know; the names are VOC's own, or those of the folder.
    return voc_segmentation(found.path, classes=_names(said), optional_masks=said.optional_masks)


def _cityscapes(found: Recognised, said: Said) -> Source:
    from rekord.sources.segmentation import cityscapes

    return cityscapes(found.path, optional_masks=said.optional_masks)


def _voc(found: Recognised, said: Said) -> Source:
    from rekord.sources.voc import voc

    return voc(found.path, label_map=said.label_map)


def _coco(found: Recognised, said: Said) -> Source:
    from rekord.sources.coco import coco

    return coco(found.path, said.images, label_map=said.label_map)


def _yolo(found: Recognised, said: Said) -> Source:
    from rekord.sources.yolo import yolo

    return yolo(found.path, label_map=said.label_map)


def _boxes_csv(found: Recognised, said: Said) -> Source:
    from rekord.sources.boxes_csv import boxes_csv

    return boxes_csv(found.path, said.images, label_map=said.label_map)


def _csv(found: Recognised, _: Said) -> Source:
    from rekord.sources.csv import csv

    return csv(found.path)


def _jsonl(found: Recognised, _: Said) -> Source:
    from rekord.sources.jsonl import jsonl

    return jsonl(found.path)


def _parquet(found: Recognised, _: Said) -> Source:
    from rekord.sources.parquet import parquet

    return parquet(found.path)


def _arrow(found: Recognised, _: Said) -> Source:
    from rekord.sources.arrow import arrow

    return arrow(found.path)


def _npy(found: Recognised, _: Said) -> Source:
    from rekord.sources.arrays import npy

    return npy(found.path)


def _npz(found: Recognised, _: Said) -> Source:
    from rekord.sources.arrays import npz

    return npz(found.path)


def _text(found: Recognised, _: Said) -> Source:
    from rekord.sources.lines import text

    return text(found.path)


def _webdataset(found: Recognised, _: Said) -> Source:
    from rekord.sources.webdataset import webdataset

    return webdataset(found.path)


def _records(found: Recognised, _: Said) -> Source:
    from rekord.sources.records import records

    return records(found.path)


_MAKERS: dict[str, Callable[[Recognised, Said], Source]] = {
    "image_folder": _image_folder,
    "image_csv": _image_csv,
    "segmentation": _segmentation,
    "voc_segmentation": _voc_segmentation,
    "cityscapes": _cityscapes,
    "voc": _voc,
    "coco": _coco,
    "yolo": _yolo,
    "boxes_csv": _boxes_csv,
    "csv": _csv,
    "jsonl": _jsonl,
    "parquet": _parquet,
    "arrow": _arrow,
    "npy": _npy,
    "npz": _npz,
    "text": _text,
    "webdataset": _webdataset,
    "records": _records,
}


def _names(said: Said) -> list[str] | None:
    return None if said.classes is None or isinstance(said.classes, int) else list(said.classes)


def _meaningless(found: Recognised, name: str, value: object) -> RekordError:
    takes = _TAKES.get(found.kind, ())
    expected = (
        "a file of names, one a line"
        if name in takes
        else f"options for {found.kind}: "
        + (", ".join(f"--{one.replace('_', '-')}" for one in takes) or "none of these")
    )
    return error(
        "U605",
        f"`{name}` means nothing for a source of the kind {found.kind}",
        location=Location(path=joined(found.path, "")),
        expected=expected,
        found=f"{name} = {shown(value)}",
        do=f"leave --{name.replace('_', '-')} out" if name not in takes else "--classes names.txt",
    )
