"""The layout of DeepLab: what a row becomes, and which masks it takes."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.codec.images.inspect import VerifiedBytes
from rekord.layouts.deeplab import deeplab

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
IDS = np.array([[0, 1, 2, 20, 255, 3]] * 4, np.uint8)


def encoded(pixels: Any, kind: str = "PNG", palette: bool = False) -> bytes:
    picture = Image.fromarray(pixels)
    if palette:
        picture = picture.convert("P") if picture.mode != "L" else picture
        picture.putpalette([(i * 7) % 256 for i in range(768)])
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def refused(call: Any) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


@pytest.mark.parametrize(("kind", "name"), [("JPEG", "jpeg"), ("PNG", "png")])
def test_a_row_has_the_keys_of_deeplab(kind, name):
    layout = deeplab()
    image, mask = encoded(PIXELS, kind), encoded(IDS)
    derived = layout.derive({"image": image, "mask": mask, "filename": "2007_000032", "split": "val"}, "full")
    assert isinstance(derived.values["image"], VerifiedBytes)
    assert isinstance(derived.values["mask"], VerifiedBytes)
    stored = rk.decode(rk.encode(derived.values, layout.schema))
    assert {key: value[0] for key, value in stored.items()} == {
        "image/encoded": image,
        "image/filename": b"2007_000032",
        "image/format": name.encode(),
        "image/height": 4,
        "image/width": 6,
        "image/channels": 3,
        "image/segmentation/class/encoded": mask,
        "image/segmentation/class/format": b"png",
    }


@pytest.mark.parametrize(
    ("filename", "stored"),
    [
        ("a/1.JPG", "a/1"),
        ("1.tar.png", "1.tar"),
        ("2007.000032", "2007.000032"),
        ("x", "x"),
        ("a.jpeg/b", "a.jpeg/b"),
    ],
)
def test_the_filename_is_stored_without_its_extension(filename, stored):
    row = {"image": encoded(PIXELS), "mask": encoded(IDS), "filename": filename}
    assert deeplab().derive(row, "full").values["filename"] == stored


def test_a_palette_mask_becomes_class_ids():
    mask = encoded(IDS, palette=True)
    assert Image.open(io.BytesIO(mask)).mode == "P"
    derived = deeplab().derive({"image": encoded(PIXELS), "mask": mask, "filename": "x"}, "full")
    stored = Image.open(io.BytesIO(derived.values["mask"]))
    assert stored.mode == "L"
    np.testing.assert_array_equal(np.asarray(stored), IDS)


def test_an_rgb_mask_needs_a_colour_map():
    colours = {(0, 0, 0): 0, (128, 0, 0): 1, (224, 224, 192): 255}
    ids = np.array([[0, 1, 255], [1, 1, 0]], np.uint8)
    inverse = {number: colour for colour, number in colours.items()}
    mask = encoded(np.array([[inverse[int(i)] for i in line] for line in ids], np.uint8))
    row = {"image": encoded(PIXELS[:2, :3]), "mask": mask, "filename": "x"}
    derived = deeplab(classes=2, colours=colours).derive(row, "full")
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(derived.values["mask"]))), ids)
    failure = refused(lambda: deeplab(classes=2).derive(row, "full"))
    assert (failure.code, failure.location.feature) == ("E334", "mask")


def test_ids_are_checked_against_classes_and_ignore(tmp_path):
    path = tmp_path / "x.png"
    path.write_bytes(encoded(IDS))
    row = {"image": encoded(PIXELS), "mask": path, "filename": "x"}
    for layout in (deeplab(classes=20), deeplab(classes=21, ignore=None)):
        failure = refused(lambda layout=layout: layout.derive(row, "full"))
        assert (failure.code, failure.location.path, failure.location.feature) == ("E335", str(path), "mask")
        assert layout.derive(row, "headers").values["mask"] == path.read_bytes()


def test_image_and_mask_must_be_of_one_size():
    row = {"image": encoded(PIXELS), "mask": encoded(IDS[:, :5].copy()), "filename": "x"}
    failure = refused(lambda: deeplab().derive(row, "headers"))
    assert (failure.code, failure.location.feature) == ("E336", "mask")


def test_a_missing_mask_is_left_out_where_it_may_be():
    row = {"image": encoded(PIXELS), "filename": "x"}
    layout = deeplab(optional_masks=True)
    stored = rk.decode(rk.encode(layout.derive(row, "full").values, layout.schema))
    assert "image/segmentation/class/encoded" not in stored
    assert "image/segmentation/class/format" not in stored
    failure = refused(lambda: deeplab().derive(row, "full"))
    assert (failure.code, failure.location.feature) == ("E301", "mask")
    failure = refused(lambda: layout.derive({"mask": encoded(IDS)}, "full"))
    assert (failure.code, failure.location.feature) == ("E301", "image")


def test_images_that_deeplab_does_not_decode_are_refused():
    row = {"image": encoded(PIXELS, "BMP"), "mask": encoded(IDS), "filename": "x"}
    failure = refused(lambda: deeplab().derive(row, "full"))
    assert (failure.code, failure.location.feature) == ("E321", "image")


def test_grey_images_are_stored_with_a_remark():
    row = {"image": encoded(PIXELS[:, :, 0].copy()), "mask": encoded(IDS), "filename": "x"}
    derived = deeplab().derive(row, "full")
    assert derived.values["channels"] == 3
    assert [(remark.code, remark.feature) for remark in derived.remarks] == [("H738", "image")]


@pytest.mark.parametrize(
    "colours",
    [
        {},
        [(0, 0, 0)],
        {0: (0, 0, 0)},
        {(0, 0): 0},
        {(0, 0, 256): 0},
        {(0, 0, 0.5): 0},
        {"#000000": 0},
        {(0, 0, 0): 2},
        {(0, 0, 0): -1},
        {(0, 0, 0): "cat"},
        {(0, 0, 0): True},
    ],
)
def test_a_colour_map_that_is_none_is_refused(colours):
    failure = refused(lambda: deeplab(classes=2, colours=colours))
    assert failure.code == "U605"
    assert "colour" in failure.what


@pytest.mark.parametrize("classes", [0, -1, "21", None, 1.5])
def test_classes_that_cannot_be_are_refused(classes):
    assert refused(lambda: deeplab(classes=classes)).code == "S110"


def test_classes_may_be_names():
    assert deeplab(classes=["road", "sky"]).classes == 2


def test_a_layout_is_a_value_that_travels():
    layout = deeplab(classes=3, ignore=255, colours={(9, 9, 9): 2, (0, 0, 0): 0}, optional_masks=True)
    far = pickle.loads(pickle.dumps(layout))
    assert far == layout
    assert (far.name, far.needs_derive, far.schema) == ("deeplab", True, layout.schema)
    assert far.options() == {
        "classes": 3,
        "ignore": 255,
        "colours": [[0, 0, 0, 0], [9, 9, 9, 2]],
        "optional_masks": True,
    }
