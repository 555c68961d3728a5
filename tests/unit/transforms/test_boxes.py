"""Boxes, masks and images stay together when images are resized and cropped."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.transforms import chain, crop, resize

LAYOUT = rk.layouts.detection(classes=["cat", "dog"], has=["area", "is_crowd"], masks=True)


def saved(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


def drawn(height: int, width: int, boxes: list[list[int]]) -> dict[str, Any]:
    """An image whose boxes are painted, each in a grey of its own, with the mask of each."""
    image = np.zeros((height, width, 3), np.uint8)
    masks = []
    for number, (x0, y0, x1, y1) in enumerate(boxes, 1):
        image[y0:y1, x0:x1] = 50 * number
        mask = np.zeros((height, width), np.uint8)
        mask[y0:y1, x0:x1] = 1
        masks.append(saved(mask))
    row = {
        "image": saved(image),
        "filename": "a.png",
        "boxes": boxes,
        "labels": [1 + number % 2 for number in range(len(boxes))],
        "area": [float((x1 - x0) * (y1 - y0)) for x0, y0, x1, y1 in boxes],
        "is_crowd": [0] * len(boxes),
        "masks": masks,
    }
    return dict(LAYOUT.derive(row, "full").values)


def applied(row: dict[str, Any], *steps: Any) -> dict[str, Any]:
    return chain(*steps).bind(LAYOUT.schema).apply(dict(row))


def painted(row: dict[str, Any], number: int) -> list[float]:
    """The box of what is painted in the grey of a number, as fractions."""
    found = pixels(row["image"])
    rows, columns = np.nonzero(found[..., 0] == 50 * number)
    height, width = found.shape[:2]
    return [
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    ]


STEPS = {
    "stretch": [resize(40, 60, filter="nearest")],
    "pad": [resize(60, 60, filter="nearest", fit="pad")],
    "crop": [resize(40, 40, filter="nearest", fit="crop")],
    "within": [resize(50, 50, filter="nearest", fit="within")],
    "cut": [crop(30, 40, at=(5, 5))],
    "several": [resize(60, 60, filter="nearest", fit="pad"), crop(50, 50), resize(80, 80, filter="nearest")],
}


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_box_is_where_its_object_is_painted(steps):
    row = applied(drawn(40, 80, [[30, 10, 44, 26], [50, 16, 58, 20]]), *steps)
    height, width = pixels(row["image"]).shape[:2]
    assert (row["height"], row["width"]) == (height, width)
    numbers = [1, 2] if len(row["boxes"]) == 2 else [1]
    for number, box, mask in zip(numbers, row["boxes"], row["masks"], strict=True):
        assert np.allclose(box, painted(row, number), atol=1.01 * len(steps) / min(height, width))
        assert np.array_equal(pixels(mask) == 1, pixels(row["image"])[..., 0] == 50 * number)


def test_boxes_that_are_stretched_stay_as_they_are():
    row = drawn(40, 80, [[3, 1, 44, 26], [50, 16, 58, 20]])
    after = applied(row, resize(33, 17))
    assert np.array_equal(after["boxes"], row["boxes"])
    assert np.allclose(after["area"], np.array(row["area"]) * (33 / 40) * (17 / 80), rtol=1e-6)


def test_a_box_that_is_cropped_away_goes_with_all_that_belongs_to_it():
    row = drawn(40, 80, [[0, 0, 10, 10], [30, 10, 50, 30], [60, 0, 80, 40]])
    after = applied(row, crop(20, 40, at=(10, 20)))
    assert after["boxes"].tolist() == [[0.25, 0.0, 0.75, 1.0]]
    assert (list(after["labels"]), list(after["class_names"])) == ([2], ["dog"])
    assert (len(after["masks"]), list(after["is_crowd"]), list(after["area"])) == (1, [0], [400.0])


def test_a_box_that_is_cut_ends_at_the_cut_and_does_not_grow_into_padding():
    row = drawn(40, 80, [[30, 10, 80, 30]])
    after = applied(row, crop(40, 40, at=(0, 20)), resize(40, 80, fit="pad"))
    assert np.allclose(after["boxes"], [[(20 + 10) / 80, 0.25, 60 / 80, 0.75]])


def test_a_row_without_boxes_is_fine():
    after = applied(drawn(40, 80, []), resize(8, 8, fit="crop"))
    assert after["boxes"].shape == (0, 4)
    assert list(after["masks"]) == []


def test_boxes_in_pixels_are_refused():
    row = drawn(40, 80, [[30, 10, 80, 30]])
    row["boxes"] = np.array([[30, 10, 80, 30]], np.float32)
    with pytest.raises(rk.EncodeError) as caught:
        applied(row, resize(8, 8))
    assert (caught.value.code, caught.value.location.feature) == ("E383", "boxes")
    assert caught.value.likely == "the boxes are in pixels"


def test_boxes_with_another_number_of_labels_are_refused():
    row = drawn(40, 80, [[30, 10, 80, 30]])
    row["labels"] = np.array([1, 2])
    with pytest.raises(rk.EncodeError) as caught:
        applied(row, resize(8, 8))
    assert (caught.value.code, caught.value.location.feature) == ("E307", "labels")


def test_what_is_no_list_of_boxes_is_refused():
    row = drawn(40, 80, [[30, 10, 80, 30]])
    row["boxes"] = [[1, 2, 3]]
    with pytest.raises(rk.EncodeError) as caught:
        applied(row, resize(8, 8))
    assert (caught.value.code, caught.value.location.feature) == ("E306", "boxes")


PLAIN = rk.Schema(
    {
        "image": rk.Image(),
        "boxes": rk.Boxes(),
        "labels": rk.Int64(shape=(None,)),
        "words": rk.Text(shape=(None,)),
    }
)


def test_columns_that_may_go_with_boxes_must_be_named_before_boxes_can_be_dropped():
    with pytest.raises(rk.SchemaError) as caught:
        crop(4, 4).bind(PLAIN)
    assert (caught.value.code, caught.value.location.feature) == ("S140", "labels")
    resize(4, 4, fit="pad").bind(PLAIN)
    bound = crop(20, 20, at=(0, 0), per_box=["labels"]).bind(PLAIN)
    row = {
        "image": saved(np.zeros((40, 40, 3), np.uint8)),
        "boxes": [[0.6, 0.6, 1, 1], [0, 0, 1, 1]],
        "labels": [7, 8],
        "words": ["a", "b"],
    }
    after = bound.apply(row)
    assert (after["boxes"].tolist(), after["labels"], after["words"]) == ([[0, 0, 1, 1]], [8], ["a", "b"])


def test_a_column_that_has_no_value_for_each_box_cannot_be_named():
    schema = rk.Schema({"image": rk.Image(), "boxes": rk.Boxes(), "n": rk.Int64()})
    with pytest.raises(rk.SchemaError) as caught:
        crop(4, 4, per_box=["n"]).bind(schema)
    assert (caught.value.code, caught.value.location.feature) == ("S140", "n")


def test_boxes_beside_two_images_lie_on_the_one_whose_keys_begin_alike():
    columns = {"left": rk.Image(key="left/encoded"), "right": rk.Image(key="right/encoded")}
    with pytest.raises(rk.SchemaError) as caught:
        resize(4, 4).bind(rk.Schema({**columns, "boxes": rk.Boxes()}))
    assert (caught.value.code, caught.value.location.feature) == ("S140", "boxes")
    bound = crop(20, 20, at=(0, 0), columns=["left"]).bind(
        rk.Schema({**columns, "boxes": rk.Boxes(key="right/object/bbox")})
    )
    image = saved(np.zeros((40, 40, 3), np.uint8))
    row = bound.apply({"left": image, "right": image, "boxes": [[0, 0, 0.5, 0.5]]})
    assert row["boxes"] == [[0, 0, 0.5, 0.5]]


def test_two_lists_of_boxes_of_different_lengths_are_refused_by_name():
    schema = rk.Schema({"image": rk.Image(), "boxes": rk.Boxes(), "parts": rk.Boxes(key="image/part/bbox")})
    row = {
        "image": saved(np.zeros((40, 40, 3), np.uint8)),
        "boxes": [[0, 0, 1, 1], [0, 0, 0.5, 0.5]],
        "parts": [[0, 0, 1, 1]],
    }
    with pytest.raises(rk.EncodeError) as caught:
        crop(20, 20, at=(0, 0)).bind(schema).apply(row)
    assert (caught.value.code, caught.value.location.feature) == ("E307", "parts")
