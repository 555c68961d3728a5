"""Exports a tiny dataset in every format of Datumaro, as zip files for the tests of raw layouts.

Datumaro's requirements conflict with those of the tests, so it runs in an environment of its own:

    python -m venv /tmp/datumaro && /tmp/datumaro/bin/pip install datumaro==1.13.12
    /tmp/datumaro/bin/python tests/support/export_raw_layouts.py tests/interop/raw_layouts
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from datumaro.components.annotation import (
    AnnotationType,
    Bbox,
    Caption,
    Label,
    LabelCategories,
    Mask,
    MaskCategories,
    Points,
    PointsCategories,
    Polygon,
)
from datumaro.components.dataset import Dataset
from datumaro.components.dataset_base import DatasetItem
from datumaro.components.environment import Environment
from datumaro.components.media import Image

BOXES = ((1, 2, 8, 6), (2, 2, 8, 6), (3, 2, 8, 6))  # x, y, width, height
NAMES = ("background", "cat", "dog")
COLOURS = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0)}
MASK_ATTRIBUTES = {"is_crowd": False, "track_id": 1, "index": 0, "color": "255 0 0", "text": "a", "center": "4 4"}
SPLITS = (("train", 0), ("train", 1), ("val", 2))


def annotations(number: int, kinds: str) -> list[object]:
    """A label, boxes, masks, polygons, captions or points of image `number`; its class is 1 or 2."""
    label = 1 + number % 2
    x, y, w, h = BOXES[number]
    mask = np.zeros((12 + number, 16 + number), np.uint8)
    mask[y : y + h, x : x + w] = 1
    made = {
        "label": Label(label),
        "box": Bbox(
            x,
            y,
            w,
            h,
            label=label,
            id=number,
            group=number + 1,
            attributes={"occluded": False, "truncated": False, "difficult": False},
        ),
        "mask": Mask(mask, label=label, id=number, group=number + 1, attributes=MASK_ATTRIBUTES),
        "polygon": Polygon([x, y, x + w, y, x + w, y + h, x, y + h], label=label, id=number, group=number + 1),
        "caption": Caption(f"thing {number}"),
        "points": Points([x, y, x + w, y + h], [2, 2], label=label, id=number, group=number + 1),
    }
    return [made[kind] for kind in kinds.split()]


def dataset(kinds: str) -> Dataset:
    """Three images in two splits with these kinds of annotations."""
    items = []
    for split, number in SPLITS:
        noise = np.random.default_rng(number).integers(0, 255, (12 + number, 16 + number, 3), np.uint8)
        items.append(
            DatasetItem(
                f"img{number}", subset=split, media=Image.from_numpy(noise), annotations=annotations(number, kinds)
            )
        )
    labels = LabelCategories.from_iterable(NAMES)
    categories = {AnnotationType.label: labels, AnnotationType.mask: MaskCategories(COLOURS)}
    if "points" in kinds:
        categories[AnnotationType.points] = PointsCategories.from_iterable([(1, ["a", "b"]), (2, ["a", "b"])])
    return Dataset.from_iterable(items, categories=categories, media_type=Image)


KINDS = {
    "label": (
        "cifar imagenet imagenet_txt imagenet_with_subset_dirs mnist mnist_csv voc_classification "
        "coco_labels lfw market1501 vgg_face2 mvtec_classification "
    ),
    "box": (
        "yolo yolo_ultralytics voc voc_detection coco kitti_detection wider_face open_images cvat "
        "datumaro mvtec_detection mot_seq_gt icdar_text_localization voc_layout voc_action ava "
    ),
    "mask": (
        "camvid cityscapes voc_segmentation kitti_segmentation mots_png mvtec_segmentation "
        "icdar_text_segmentation coco_panoptic coco_stuff voc_instance_segmentation kitti "
    ),
    "polygon": "label_me coco_instances dota segment_anything datumaro_binary arrow",
    "caption": "coco_captions icdar_word_recognition",
    "points box": "coco_person_keypoints",
    "": "coco_image_info image_dir image_zip",
}


def main(target: Path) -> None:
    """Export every format; report those that cannot be."""
    target.mkdir(parents=True, exist_ok=True)
    known = set(Environment().exporters)
    listed = {name: kinds for kinds, names in KINDS.items() for name in names.split()}
    print("not exported:", sorted(known - set(listed)))
    for name, kinds in sorted(listed.items()):
        with tempfile.TemporaryDirectory() as folder:
            try:
                dataset(kinds).export(folder, name, save_media=True)
            except Exception as failure:
                print(f"{name}: {type(failure).__name__}: {str(failure)[:150]}")
                continue
            files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            if not files:
                print(f"{name}: nothing")
                continue
            with zipfile.ZipFile(target / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for path in files:
                    member = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (2000, 1, 1, 0, 0, 0))
                    member.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(member, path.read_bytes())
            print(f"{name}: {', '.join(path.relative_to(folder).as_posix() for path in files)[:300]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
