"""Three images in every format that Datumaro exports: fixtures made by `export_raw_layouts.py`, and their truths.

Images 0 and 1 are in the split train, image 2 is in val. Images 0 and 2 are of the class cat, image 1 is a dog; each
has one of `BOXES`, and a mask of the same rectangle.
"""

from __future__ import annotations

from pathlib import Path

from raw_layouts import BINARY, RawLayout, Reading, Tree, classification, detection, images, segmentation, table

FIXTURES = Path(__file__).parents[2] / "interop" / "raw_layouts"

_SPLITS = {"train": 2, "val": 1}
_LABELS = classification(_SPLITS, {"cat": 2, "dog": 1})
_BOXES = detection(_SPLITS, {"cat": 2, "dog": 1})
_MASKS = segmentation(_SPLITS, "0 1 2")


def _fixture(tree: Tree) -> None:
    raise NotImplementedError("the fixture is a zip file")


def _entry(name: str, *readings: Reading, refusal: bool = True) -> tuple[str, RawLayout]:
    return name, RawLayout(name, "Datumaro 1.13.12", _fixture, readings, refusal or not readings, True)


EXPORTED = dict(
    [
        _entry("arrow", table({"*": 3})),
        _entry("camvid", _MASKS),
        _entry("cifar"),
        _entry("cityscapes", _MASKS),
        _entry("coco", _BOXES),
        _entry("coco_captions"),
        _entry("coco_image_info", images(_SPLITS), detection(_SPLITS, {})),
        _entry("coco_instances", _BOXES, refusal=False),
        _entry("coco_labels", _LABELS),
        _entry("coco_panoptic", _MASKS, _BOXES),
        _entry("coco_person_keypoints", _BOXES),
        _entry("coco_stuff", _BOXES),
        _entry("cvat", _BOXES, detection(3, {"cat": 2, "dog": 1})),
        _entry("datumaro"),
        _entry("datumaro_binary"),
        _entry("dota", _BOXES),
        _entry("icdar_text_localization", detection(_SPLITS, {"*": 3})),
        _entry("icdar_text_segmentation"),
        _entry("icdar_word_recognition", table(_SPLITS)),
        _entry("image_dir", images(3), refusal=False),
        _entry("image_zip"),
        _entry("imagenet", classification(3, {"cat": 2, "dog": 1}), refusal=False),
        _entry("imagenet_txt", _LABELS, classification(_SPLITS, {"1": 2, "2": 1})),
        _entry("imagenet_with_subset_dirs", _LABELS, refusal=False),
        _entry("kitti", _MASKS),
        _entry("kitti_detection", _BOXES),
        _entry("kitti_segmentation", _MASKS),
        _entry("label_me", _BOXES),
        _entry("lfw", _LABELS),
        _entry("market1501", images({"*": 3})),
        _entry("mnist", _LABELS),
        _entry("mnist_csv", table(_SPLITS)),
        _entry("mot_seq_gt", detection({"*": 3}, {"*": 3})),
        _entry("mots_png"),
        _entry("mvtec_classification", images(_SPLITS)),
        _entry("mvtec_detection", segmentation(_SPLITS, *BINARY)),
        _entry("mvtec_segmentation", segmentation(_SPLITS, *BINARY)),
        _entry("open_images", _BOXES),
        _entry("segment_anything"),
        _entry("vgg_face2", _LABELS),
        _entry("voc", _BOXES, refusal=False),
        _entry("voc_action", _BOXES),
        _entry("voc_classification", _LABELS),
        _entry("voc_detection", _BOXES, refusal=False),
        _entry("voc_instance_segmentation", _MASKS),
        _entry("voc_layout", _BOXES),
        _entry("voc_segmentation", _MASKS),
        _entry("wider_face", detection(_SPLITS, {"*": 3})),
        _entry("yolo", _BOXES, refusal=False),
        _entry("yolo_ultralytics", _BOXES, refusal=False),
    ]
)
