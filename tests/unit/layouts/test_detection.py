"""The detection layout: TFOD's keys, boxes as fractions of the image itself, and what is not as it should be."""

from __future__ import annotations

import hashlib
import io
import pickle

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.codec.decode import decode
from rekord.codec.encode import encode
from rekord.dataset.manifest import read_manifest
from rekord.errors import RekordError
from rekord.layouts.detection import detection
from rekord.schema.interop.label_map import read_label_map

CLASSES = {1: "cat", 4: "dog"}


def encoded(width=20, height=10, kind="JPEG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (9, 8, 7)).save(file, kind)
    return file.getvalue()


def row(boxes=((2, 1, 10, 5),), labels=(4,), **more):
    values = {"image": encoded(), "filename": "a.jpg", "source_id": "17", "labels": list(labels)}
    return {**values, "boxes": np.array(boxes, np.float32).reshape(-1, 4), **more}


def refused(call):
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


def test_a_row_is_stored_under_the_keys_of_tfod():
    layout = detection(classes=CLASSES, has=["area", "is_crowd"])
    given = row(is_crowd=np.array([1]), area=np.array([32.0]))
    derived = layout.derive(given, "full")
    assert derived.remarks == ()
    stored = decode(encode(derived.values, layout.schema))
    assert {key: list(value) for key, value in stored.items()} == {
        "image/encoded": [given["image"]],
        "image/format": [b"jpeg"],
        "image/filename": [b"a.jpg"],
        "image/source_id": [b"17"],
        "image/key/sha256": [hashlib.sha256(given["image"]).hexdigest().encode()],
        "image/height": [10],
        "image/width": [20],
        "image/object/bbox/xmin": [np.float32(0.1)],
        "image/object/bbox/ymin": [np.float32(0.1)],
        "image/object/bbox/xmax": [0.5],
        "image/object/bbox/ymax": [0.5],
        "image/object/class/text": [b"dog"],
        "image/object/class/label": [4],
        "image/object/is_crowd": [1],
        "image/object/area": [32.0],
    }


def test_every_value_that_boxes_may_have_has_its_key():
    names = ["is_crowd", "area", "difficult", "truncated", "occluded", "group_of", "view"]
    layout = detection(classes=CLASSES, has=names, masks=True)
    flags = {name: np.array([1]) for name in names if name != "view"}
    mask = encoded(kind="PNG")
    derived = layout.derive(row(**flags, view=["Left"], masks=[mask]), "full")
    stored = decode(encode(derived.values, layout.schema))
    assert {f"image/object/{name}" for name in names} | {"image/object/mask"} <= set(stored)
    assert (stored["image/object/view"], stored["image/object/mask"]) == ([b"Left"], [mask])


def test_an_image_without_boxes_is_kept():
    layout = detection(classes=["cat", "dog"])
    derived = layout.derive(row([], []), "headers")
    stored = decode(encode(derived.values, layout.schema))
    assert len(stored["image/object/bbox/xmin"]) == len(stored["image/object/class/text"]) == 0


def test_normalised_boxes_are_stored_as_they_are():
    layout = detection(classes=CLASSES)
    boxes = np.array([[0.1, 0.2, 0.3, 0.7]], np.float32)
    given = row()
    del given["boxes"]
    derived = layout.derive({**given, "boxes_normalised": boxes}, "full")
    assert np.array_equal(derived.values["boxes"], boxes)


def test_the_format_is_that_of_the_bytes_and_labels_may_be_names():
    derived = detection(classes=CLASSES).derive(row(labels=["cat"], image=encoded(kind="PNG")), "full")
    assert (derived.values["format"], derived.values["labels"].tolist()) == ("png", [1])


BAD = [(2, 1, 2, 5), (2, 5, 10, 1), (-1, 1, 10, 5), (2, 1, 20.1, 5), (2, 1, 10, 11), (np.nan, 1, 10, 5)]


def test_boxes_without_an_area_or_outside_are_left_out_with_all_that_belongs_to_them():
    layout = detection(classes=CLASSES, has=["area"], masks=True)
    boxes = [BAD[0], (2, 1, 10, 5), *BAD[1:], (0, 0, 20, 10)]
    count = len(boxes)
    masks = [encoded(kind="PNG") + bytes([i]) for i in range(count)]  # each with an end of its own
    derived = layout.derive(row(boxes, [1, 4, *[1] * (count - 3), 1], area=np.arange(count), masks=masks), "full")
    values = derived.values
    assert values["boxes"].tolist() == [np.float32([0.1, 0.1, 0.5, 0.5]).tolist(), [0, 0, 1, 1]]
    assert (values["labels"].tolist(), values["class_names"]) == ([4, 1], ["dog", "cat"])
    assert (values["area"].tolist(), values["masks"]) == ([1, count - 1], [masks[1], masks[-1]])
    (remark,) = derived.remarks
    assert (remark.code, remark.feature) == ("H741", "boxes")
    assert remark.what == "6 boxes without area or outside the image were skipped"


@pytest.mark.parametrize("box", BAD)
def test_such_a_box_is_refused_where_that_is_asked_for(tmp_path, box):
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded())
    layout = detection(classes=CLASSES, bad_boxes="refuse")
    names = ["annotation 7", "annotation 8"]
    failure = refused(lambda: layout.derive(row([(0, 0, 1, 1), box], [1, 1], image=path, box_names=names), "full"))
    assert (failure.code, failure.location.path, failure.location.feature) == ("E368", str(path), "boxes")
    assert failure.what.startswith("annotation 8 ")


def test_a_rounding_at_the_border_is_clipped_and_nothing_more():
    given = row(labels=[1])
    del given["boxes"]
    layout = detection(classes=CLASSES)
    inside = layout.derive({**given, "boxes_normalised": [[-5e-7, 0, 1 + 5e-7, 1]]}, "full")
    assert inside.values["boxes"].tolist() == [[0, 0, 1, 1]]
    outside = layout.derive({**given, "boxes_normalised": [[-5e-6, 0, 1, 1]]}, "full")
    assert (len(outside.values["boxes"]), outside.remarks[0].what[:5]) == (0, "1 box")


def test_the_size_of_the_image_itself_counts_and_another_is_remarked():
    derived = detection(classes=CLASSES).derive(row(width=200, height=100), "full")
    assert (derived.values["width"], derived.values["height"]) == (20, 10)
    assert np.allclose(derived.values["boxes"], [[0.1, 0.1, 0.5, 0.5]])
    (remark,) = derived.remarks
    assert remark == ("H742", "boxes", "annotation has size 200 × 100, image has 20 × 10")
    refusing = detection(classes=CLASSES, bad_boxes="refuse")
    failure = refused(lambda: refusing.derive(row([(100, 0, 200, 5)], width=200, height=100), "full"))
    assert failure.likely == "the boxes belong to an image of another size: the annotation has 200 × 100"


def test_annotations_that_had_no_box_are_remarked():
    layout = detection(classes=CLASSES)
    (one,) = layout.derive(row(skipped_annotations=1), "full").remarks
    (many,) = layout.derive(row(skipped_annotations=1200), "full").remarks
    assert one == ("H743", "boxes", "1 annotation without a box was skipped")
    assert many.what == "1,200 annotations without a box were skipped"


@pytest.mark.parametrize(
    ("change", "code", "feature"),
    [
        ({"labels": [2]}, "E317", "labels"),
        ({"labels": [0]}, "E317", "labels"),
        ({"labels": [True]}, "E317", "labels"),
        ({"labels": ["cow"]}, "E316", "labels"),
        ({"labels": [1, 1]}, "E307", "labels"),
        ({"labels": None}, "E301", "labels"),
        ({"boxes": None}, "E301", "boxes"),
        ({"boxes": [1, 2, 3, 4]}, "E306", "boxes"),
        ({"boxes": [[1, 2, 3]]}, "E306", "boxes"),
        ({"boxes": [["a", "b", "c", "d"]]}, "E306", "boxes"),
        ({"area": None}, "E301", "area"),
        ({"area": [1.0, 2.0]}, "E307", "area"),
        ({"filename": None}, "E301", "filename"),
        ({"image": None}, "E301", "image"),
        ({"image": b""}, "E330", "image"),
        ({"image": b"text"}, "E321", "image"),
    ],
)
def test_a_row_that_does_not_fit_names_its_feature(change, code, feature):
    layout = detection(classes=CLASSES, has=["area"])
    failure = refused(lambda: layout.derive({**row(area=[1.0]), **change}, "full"))
    assert (failure.code, failure.location.feature) == (code, feature)


@pytest.mark.parametrize(
    "options",
    [
        {"classes": {0: "cat"}},
        {"classes": {True: "cat"}},
        {"classes": {1: ""}},
        {"classes": {1: "cat", 2: "cat"}},
        {"classes": "cat"},
        {"classes": 3},
        {"classes": CLASSES, "has": ["colour"]},
        {"classes": CLASSES, "has": "area"},
        {"classes": CLASSES, "bad_boxes": "clip"},
    ],
)
def test_options_that_cannot_be_meant_are_refused(options):
    failure = refused(lambda: detection(**options))
    assert (failure.code, bool(failure.do)) == ("U605", True)
    assert failure.what.startswith(f"`{[*options][-1]}` cannot be ")


def test_a_layout_is_a_value_that_survives_pickling():
    layout = detection(classes={4: "dog", 1: "cat"}, has=["view", "area"])
    again = pickle.loads(pickle.dumps(layout))
    assert (again, again.schema, again.name, again.needs_derive) == (layout, layout.schema, "detection", True)
    assert layout == detection(classes=CLASSES, has=["area", "view"])
    assert layout.options() == {
        "classes": [[1, "cat"], [4, "dog"]],
        "masks": False,
        "has": ["area", "view"],
        "bad_boxes": "skip",
    }
    assert layout.schema["labels"].range == (1, 4)
    assert detection(classes=()).schema["labels"].range == (1, 2**31 - 1)


@pytest.mark.parametrize("labels", [[[1]], 1, "cat", [{}]])
def test_labels_that_are_no_ids_are_refused_by_name(labels):
    failure = refused(lambda: detection(classes=CLASSES).derive(row() | {"labels": labels}, "full"))
    assert (failure.code, failure.location.feature) == ("E317", "labels")


def test_boxes_of_eight_numbers_are_not_taken_for_two():
    given = row(labels=(1, 4)) | {"boxes": [[1, 2, 3, 4, 5, 6, 7, 8]]}
    failure = refused(lambda: detection(classes=CLASSES).derive(given, "full"))
    assert (failure.code, failure.location.feature) == ("E306", "boxes")


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_an_image_that_readers_decode_to_four_dimensions_is_refused(kind):
    given = row(image=encoded(kind=kind))
    failure = refused(lambda: detection(classes=CLASSES).derive(given, "full"))
    assert (failure.code, failure.location.feature) == ("E321", "image")


def test_a_mask_of_another_size_than_its_image_is_refused():
    given = row(masks=[encoded(10, 20, "PNG")])
    failure = refused(lambda: detection(classes=CLASSES, masks=True).derive(given, "full"))
    assert (failure.code, failure.location.feature, failure.found) == ("E336", "masks", "10 × 20")


@pytest.mark.parametrize("box", [(0.99999999, 0.1, 1.0, 0.5), (0.1, -5e-7, 0.5, -1e-7)])
def test_a_box_that_has_no_area_once_it_is_stored_is_left_out(box):
    given = row() | {"boxes_normalised": np.array([box]), "labels": [1]}
    derived = detection(classes=CLASSES).derive(given, "full")
    assert (len(derived.values["boxes"]), [remark.code for remark in derived.remarks]) == (0, ["H741"])
    failure = refused(lambda: detection(classes=CLASSES, bad_boxes="refuse").derive(given, "full"))
    assert (failure.code, failure.what) == ("E368", "box 0 has no area")


def test_the_label_map_lies_beside_the_shards(tmp_path):
    layout = detection(classes={1: "cat", 4: "dog"})
    rk.write([row()], tmp_path / "out", layout=layout, progress=False)
    assert read_label_map(tmp_path / "out" / "label_map.pbtxt") == {1: "cat", 4: "dog"}
    assert "label_map.pbtxt" in read_manifest(str(tmp_path / "out")).companions
