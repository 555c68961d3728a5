"""TensorFlow, given the features that its object detection declares, reads the boxes that the sources have."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from rekord.codec.encode import encode
from rekord.layouts.detection import detection
from rekord.sources.coco import coco
from rekord.sources.label_files import yolo
from rekord.sources.voc import voc

SIZE = {"a": (40, 30), "b": (17, 23), "c": (9, 9)}  # width, height; c has no objects
BOXES = {"a": [(1, 2, 11, 22), (0, 0, 40, 30)], "b": [(3.5, 4, 16.25, 20)], "c": []}  # corners
LABELS = {"a": ["dog", "cat"], "b": ["dog"], "c": []}


def spec(tf: ModuleType) -> dict[str, Any]:
    """The features that the decoder of TFOD asks for."""
    text = tf.io.FixedLenFeature((), tf.string, default_value="")
    number = tf.io.FixedLenFeature((), tf.int64, default_value=1)
    floats, ints, texts = [tf.io.VarLenFeature(kind) for kind in (tf.float32, tf.int64, tf.string)]
    return {
        "image/encoded": text,
        "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
        "image/filename": text,
        "image/key/sha256": text,
        "image/source_id": text,
        "image/height": number,
        "image/width": number,
        **{f"image/object/bbox/{side}": floats for side in ("xmin", "xmax", "ymin", "ymax")},
        "image/object/class/label": ints,
        "image/object/class/text": texts,
        "image/object/area": floats,
        **{f"image/object/{name}": ints for name in ("is_crowd", "difficult", "group_of", "truncated")},
        "image/object/mask": texts,
    }


def put_images(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(5)
    for name, (width, height) in SIZE.items():
        pixels = generator.integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.jpg", quality=90)


def make_coco(root: Path) -> Any:
    put_images(root / "images" / "train")
    images, annotations = [], []
    for i, (name, (width, height)) in enumerate(SIZE.items()):
        images.append({"id": i, "file_name": f"{name}.jpg", "width": width, "height": height})
        for (x0, y0, x1, y1), label in zip(BOXES[name], LABELS[name], strict=True):
            outline = [[x0, y0, x1, y0, x1, y1, x0, y1]]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": i,
                    "category_id": {"cat": 1, "dog": 7}[label],
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                    "area": (x1 - x0) * (y1 - y0) / 2,
                    "iscrowd": int(label == "dog"),
                    "segmentation": outline,
                }
            )
    categories = [{"id": 1, "name": "cat"}, {"id": 7, "name": "dog"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    path = root / "annotations" / "instances_train.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    return coco(path, masks=True)


def make_voc(root: Path) -> Any:
    put_images(root / "JPEGImages")
    (root / "Annotations").mkdir()
    for name in SIZE:
        objects = ""
        for box, label in zip(BOXES[name], LABELS[name], strict=True):
            sides = zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
            inner = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
            objects += f"<object><name>{label}</name><difficult>1</difficult><bndbox>{inner}</bndbox></object>"
        (root / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
    return voc(root)


def make_yolo(root: Path) -> Any:
    put_images(root / "images")
    (root / "labels").mkdir()
    (root / "classes.txt").write_text("cat\ndog\n")
    for name, (width, height) in SIZE.items():
        lines = ""
        for (x0, y0, x1, y1), label in zip(BOXES[name], LABELS[name], strict=True):
            numbers = (x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height
            lines += f"{['cat', 'dog'].index(label)} " + " ".join(f"{number:.9f}" for number in numbers) + "\n"
        (root / "labels" / f"{name}.txt").write_text(lines)
    return yolo(root)


@pytest.mark.parametrize(
    ("make", "ids"),
    [(make_coco, {"cat": 1, "dog": 7}), (make_voc, {"cat": 8, "dog": 12}), (make_yolo, {"cat": 1, "dog": 2})],
)
def test_tensorflow_reads_the_boxes_of_the_source(tf, tmp_path, make, ids):
    source = make(tmp_path)
    facts = source.facts()
    classes = dict(zip(facts.class_ids, facts.classes, strict=True))
    masks = getattr(source, "masks", False)
    layout = detection(classes=classes, has=facts.extra["has"], masks=masks)
    found = [row for part in source.parts() for row in source.read(part)]
    for name, row in zip("abc", found, strict=True):
        derived = layout.derive(row.values, "full")
        assert derived.remarks == ()
        read = tf.io.parse_single_example(encode(derived.values, layout.schema), spec(tf))
        dense = {
            key: (tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value).numpy()
            for key, value in read.items()
        }
        width, height = SIZE[name]
        path = next(tmp_path.rglob(f"{name}.jpg"))
        assert dense["image/encoded"] == path.read_bytes()
        assert (dense["image/width"], dense["image/height"], dense["image/format"]) == (
            width,
            height,
            b"jpeg",
        )
        assert tf.io.decode_jpeg(dense["image/encoded"]).shape == (height, width, 3)
        expected = np.array(BOXES[name], np.float64).reshape(-1, 4) / [width, height, width, height]
        for i, side in enumerate(("xmin", "ymin", "xmax", "ymax")):
            np.testing.assert_allclose(dense[f"image/object/bbox/{side}"], expected[:, i], rtol=0, atol=1e-7)
        assert dense["image/object/class/label"].tolist() == [ids[label] for label in LABELS[name]]
        assert dense["image/object/class/text"].tolist() == [label.encode() for label in LABELS[name]]
        areas = [(x1 - x0) * (y1 - y0) / 2 for x0, y0, x1, y1 in BOXES[name]]
        assert dense["image/object/area"].tolist() == (areas if masks else [])
        crowds = [int(label == "dog") for label in LABELS[name]]
        assert dense["image/object/is_crowd"].tolist() == (crowds if masks else [])
        assert len(dense["image/object/mask"]) == (len(areas) if masks else 0)
        for png, (x0, y0, x1, y1) in zip(dense["image/object/mask"], BOXES[name], strict=False):
            mask = tf.io.decode_png(png, channels=1).numpy()[:, :, 0]
            inside = np.zeros((height, width), np.uint8)
            inside[round(y0) : round(y1), int(np.ceil(x0 - 0.5)) : int(np.ceil(x1 - 0.5))] = 1
            assert np.array_equal(mask, inside)
