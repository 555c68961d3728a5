"""Readers of DeepLab and of ImageNet, through TensorFlow: what they decode is what the sources hold."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.layouts.classification import classification
from rekord.layouts.deeplab import deeplab
from rekord.sources.image_folder import image_folder
from rekord.sources.segmentation import segmentation
from rekord.sources.voc import voc_segmentation

RANDOM = np.random.default_rng(7)


def deeplab_spec(tf: ModuleType) -> dict[str, Any]:
    """The keys that DeepLab's readers parse: each of them has a default."""
    text = {"shape": (), "dtype": tf.string}
    number = {"shape": (), "dtype": tf.int64, "default_value": 0}
    return {
        "image/encoded": tf.io.FixedLenFeature(**text, default_value=""),
        "image/filename": tf.io.FixedLenFeature(**text, default_value=""),
        "image/format": tf.io.FixedLenFeature(**text, default_value="jpeg"),
        "image/height": tf.io.FixedLenFeature(**number),
        "image/width": tf.io.FixedLenFeature(**number),
        "image/segmentation/class/encoded": tf.io.FixedLenFeature(**text, default_value=""),
        "image/segmentation/class/format": tf.io.FixedLenFeature(**text, default_value="png"),
    }


def imagenet_spec(tf: ModuleType) -> dict[str, Any]:
    return {
        "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/format": tf.io.FixedLenFeature((), tf.string, default_value="jpeg"),
        "image/class/label": tf.io.FixedLenFeature((), tf.int64, default_value=-1),
        "image/class/text": tf.io.FixedLenFeature((), tf.string, default_value=""),
        "image/height": tf.io.FixedLenFeature((), tf.int64),
        "image/width": tf.io.FixedLenFeature((), tf.int64),
        "image/filename": tf.io.FixedLenFeature((), tf.string),
        "image/colorspace": tf.io.FixedLenFeature((), tf.string),
        "image/channels": tf.io.FixedLenFeature((), tf.int64),
    }


def parsed(tf: ModuleType, path: Path, spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [tf.io.parse_single_example(record, spec) for record in tf.data.TFRecordDataset(str(path))]


def written(source: Any, layout: Any, path: Path) -> Path:
    with rk.Writer(path, layout.schema) as writer:
        for part in source.parts():
            for row in source.read(part):
                assert not isinstance(row.values, rk.RekordError), row.values.message
                writer.write(layout.derive(row.values, "full").values)
    return path


def put(path: Path, picture: Image.Image, kind: str | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path, kind)


def picture(height: int, width: int) -> Image.Image:
    return Image.fromarray(RANDOM.integers(0, 256, (height, width, 3), np.uint8))


def mask_of(ids: Any, form: str) -> Image.Image:
    if form == "two bits":
        drawn = Image.fromarray(ids)
        drawn.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0])
        return drawn
    if form == "16 bits":
        return Image.fromarray(ids.astype(np.uint16))
    drawn = Image.fromarray(ids)
    if form == "palette":
        drawn.putpalette([(i * 7 + 3) % 256 for i in range(768)])
    return drawn


@pytest.mark.parametrize("form", ["grey", "palette", "two bits", "16 bits"])
def test_deeplab_decodes_the_pixels_and_class_ids_of_the_source(tf, tmp_path, form):
    ids = {}
    for i, ending in enumerate(("jpg", "png", "JPEG")):
        height, width = 5 + i, 9 - i
        put(tmp_path / f"images/{i}.{ending}", picture(height, width))
        ids[i] = RANDOM.integers(0, 4 if form == "two bits" else 21, (height, width)).astype(np.uint8)
        if form != "two bits":
            ids[i][0, 0] = 255
        options = {"bits": 2} if form == "two bits" else {}
        (tmp_path / "masks").mkdir(exist_ok=True)
        mask_of(ids[i], form).save(tmp_path / f"masks/{i}.png", **options)
    source = segmentation(tmp_path / "images", tmp_path / "masks")
    out = written(source, deeplab(classes=21, ignore=255), tmp_path / "train-00000-of-00001.tfrecord")
    records = parsed(tf, out, deeplab_spec(tf))
    assert [record["image/filename"].numpy() for record in records] == [b"0", b"1", b"2"]
    assert [record["image/format"].numpy() for record in records] == [b"jpeg", b"png", b"jpeg"]
    for i, record in enumerate(records):
        label = tf.io.decode_png(record["image/segmentation/class/encoded"], channels=1).numpy()[:, :, 0]
        np.testing.assert_array_equal(label, ids[i])
        image = tf.io.decode_image(record["image/encoded"], channels=3).numpy()
        file = next((tmp_path / "images").glob(f"{i}.*"))
        np.testing.assert_array_equal(image, tf.io.decode_image(file.read_bytes(), channels=3).numpy())
        assert image.shape == (record["image/height"].numpy(), record["image/width"].numpy(), 3)
        if file.suffix == ".png":
            np.testing.assert_array_equal(image, np.asarray(Image.open(file)))


def test_deeplab_decodes_the_coloured_masks_of_voc(tf, tmp_path):
    ids = np.array([[0, 1, 20], [255, 15, 0]], np.uint8)
    root = tmp_path / "voc"
    put(root / "JPEGImages/2007_000001.jpg", picture(2, 3))
    (root / "ImageSets/Segmentation").mkdir(parents=True)
    (root / "ImageSets/Segmentation/train.txt").write_text("2007_000001\n")
    palette = {0: (0, 0, 0), 1: (128, 0, 0), 15: (192, 128, 128), 20: (0, 64, 128), 255: (224, 224, 192)}
    colours = np.array([[palette[i] for i in line] for line in ids.tolist()], np.uint8)
    put(root / "SegmentationClass/2007_000001.png", Image.fromarray(colours))
    source = voc_segmentation(root)
    extra = source.facts().extra
    layout = deeplab(extra["classes"], extra["ignore"], colours=extra["colours"])
    [record] = parsed(tf, written(source, layout, tmp_path / "train.tfrecord"), deeplab_spec(tf))
    label = tf.io.decode_png(record["image/segmentation/class/encoded"], channels=1).numpy()[:, :, 0]
    np.testing.assert_array_equal(label, ids)


def test_a_record_without_a_mask_is_one_to_deeplab(tf, tmp_path):
    put(tmp_path / "images/1.png", picture(4, 4))
    (tmp_path / "masks").mkdir()
    source = segmentation(tmp_path / "images", tmp_path / "masks", optional_masks=True)
    out = written(source, deeplab(optional_masks=True), tmp_path / "test.tfrecord")
    [record] = parsed(tf, out, deeplab_spec(tf))
    assert record["image/segmentation/class/encoded"].numpy() == b""


def test_imagenet_readers_decode_the_images_and_classes_of_the_source(tf, tmp_path):
    root = tmp_path / "images"
    put(root / "cat/1.jpg", picture(6, 5))
    put(root / "cat/2.jpg", picture(6, 5), "PNG")
    put(root / "dog/grey.png", picture(4, 7).convert("L"))
    put(root / "dog/alpha.png", picture(4, 7).convert("RGBA"))
    source = image_folder(root)
    classes = source.facts().classes
    records = parsed(
        tf,
        written(source, classification(classes=classes, background=True), tmp_path / "x.tfrecord"),
        imagenet_spec(tf),
    )
    shown = [
        tuple([record[f"image/{key}"].numpy() for key in ("filename", "format", "class/label", "class/text")])
        for record in records
    ]
    assert shown == [
        (b"cat/1.jpg", b"JPEG", 1, b"cat"),
        (b"cat/2.jpg", b"PNG", 1, b"cat"),
        (b"dog/alpha.png", b"PNG", 2, b"dog"),
        (b"dog/grey.png", b"PNG", 2, b"dog"),
    ]
    for record in records:
        assert (record["image/colorspace"].numpy(), record["image/channels"].numpy()) == (b"RGB", 3)
        image = tf.io.decode_jpeg(record["image/encoded"], channels=3).numpy()  # PNGs too, as the readers do it
        assert image.shape == (record["image/height"].numpy(), record["image/width"].numpy(), 3)
        file = root / record["image/filename"].numpy().decode()
        if record["image/format"].numpy() == b"PNG":
            np.testing.assert_array_equal(image, np.asarray(Image.open(file).convert("RGB")))
        else:
            np.testing.assert_array_equal(image, tf.io.decode_jpeg(file.read_bytes(), channels=3).numpy())


def test_16_bits_become_8_for_a_reader(tf, tmp_path):
    pixels = np.array([[0, 257, 65535]], np.uint16)
    put(tmp_path / "a/deep.png", Image.fromarray(pixels))
    out = written(image_folder(tmp_path / "a"), classification(), tmp_path / "x.tfrecord")
    [record] = parsed(tf, out, imagenet_spec(tf))
    image = tf.io.decode_png(record["image/encoded"], channels=3).numpy()
    assert image.tolist() == [[[0] * 3, [1] * 3, [255] * 3]]
