"""Images varied at random: image, masks and boxes together."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

import rekord as rk
from rekord.transforms.augment import (
    AffineMap,
    WarpedFrame,
    build_augmentation,
    seeded_random,
    validate_augmentations,
    warp_ids,
    warp_image,
)

SCHEMA = rk.Schema(
    {
        "image": rk.Image(key="image/encoded"),
        "mask": rk.Mask(classes=5, ignore=255),
        "boxes": rk.Boxes(key="image/object/bbox"),
        "labels": rk.Int64(shape=(None,), key="image/object/class/label"),
        "area": rk.Float32(shape=(None,), key="image/object/area"),
        "height": rk.Int64(key="image/height"),
        "format": rk.Text(key="image/format"),
        "digest": rk.Text(key="image/key/sha256"),
        "n": rk.Int64(),
    }
)
MOVES = [["flip"], ["crop"], ["rotate"], ["flip", "crop"], ["flip", "crop", "rotate"]]


def encoded(pixels: Any, format: str = "png") -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(pixels).save(file, format)
    return file.getvalue()


def decoded(data: bytes) -> Any:
    return np.asarray(Pillow.open(io.BytesIO(data)))


def a_row(**more: Any) -> dict[str, Any]:
    """A white square on black, and a mask of the same square."""
    image, mask = np.zeros((60, 80, 3), np.uint8), np.full((60, 80), 1, np.uint8)
    image[20:40, 30:55] = 255
    mask[20:40, 30:55] = 3
    return {
        "image": encoded(image),
        "mask": encoded(mask),
        "boxes": np.array([[30 / 80, 20 / 60, 55 / 80, 40 / 60], [0, 0, 0.01, 0.01]], np.float32),
        "labels": [7, 8],
        "area": np.array([500.0, 0.48], np.float32),
        "height": 60,
        "format": "png",
        "digest": "?",
        "n": 3,
        **more,
    }


def rolls(count: int = 12) -> list[Any]:
    return [seeded_random("test", i) for i in range(count)]


@pytest.mark.parametrize("names", MOVES)
def test_image_mask_and_box_stay_together(names):
    vary = build_augmentation(names, SCHEMA)
    for roll in rolls():
        row = vary(a_row(), roll)
        image, mask = decoded(row["image"]).astype(int), decoded(row["mask"])
        assert image.shape == (60, 80, 3)
        assert mask.shape == (60, 80)
        white, square = image[..., 0] > 127, mask == 3
        assert white.any()
        # At an edge a pixel is between the two: nowhere else may they differ.
        assert (white != square).sum() <= 0.5 * (square ^ eroded(square)).sum()
        rows, columns = np.nonzero(square)
        box = row["boxes"][0] * [80, 60, 80, 60]
        seen = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert np.abs(box - seen).max() <= 1.01
        assert len(row["boxes"]) == len(row["labels"]) == len(row["area"])
        assert row["labels"][0] == 7
        assert (row["height"], row["format"], row["n"]) == (60, "png", 3)


def eroded(square: Any) -> Any:
    inner = square.copy()
    for axis in (0, 1):
        for by in (1, -1):
            inner &= np.roll(square, by, axis)
    return inner


@pytest.mark.parametrize("names", MOVES)
def test_masks_have_no_id_that_they_had_not(names):
    rng = np.random.default_rng(0)
    mask = rng.choice(np.array([0, 2, 4, 255], np.uint8), (60, 80))
    vary = build_augmentation(names, SCHEMA)
    for roll in rolls():
        found = np.unique(decoded(vary(a_row(mask=encoded(mask)), roll)["mask"]))
        assert set(found.tolist()) <= {0, 2, 4, 255}


@pytest.mark.parametrize("names", [["crop"], ["rotate"], ["flip", "crop", "rotate"]])
@pytest.mark.parametrize("size", [(60, 80), (200, 20), (7, 5), (1, 1), (1, 50)])
def test_an_image_covers_its_whole_frame(names, size):
    white = Pillow.fromarray(np.full(size, 255, np.uint8))
    for roll in rolls(40):
        turn = AffineMap.sample(names, size, roll)
        assert turn is not None
        assert np.asarray(warp_image(white, turn)).min() == 255


def test_a_flip_moves_pixels_and_changes_none():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (13, 17, 3), np.uint8)
    mask = rng.integers(0, 5, (13, 17)).astype(np.uint8)
    vary = build_augmentation(["flip"], SCHEMA)
    for roll in rolls(4):  # alone it is always done
        row = vary(a_row(image=encoded(image), mask=encoded(mask)), roll)
        assert (decoded(row["image"]) == image[:, ::-1]).all()
        assert (decoded(row["mask"]) == mask[:, ::-1]).all()
        expected = [[1 - 55 / 80, 20 / 60, 1 - 30 / 80, 40 / 60], [0.99, 0, 1, 0.01]]
        np.testing.assert_allclose(row["boxes"], expected, atol=1e-6)
        assert row["area"].tolist() == pytest.approx([500, 0.48])


def test_a_box_outside_of_the_crop_goes_with_its_values():
    vary = build_augmentation(["crop"], SCHEMA)
    rows = [vary(a_row(), roll) for roll in rolls(30)]
    kept = [row for row in rows if len(row["labels"]) == 2]
    gone = [row for row in rows if list(row["labels"]) == [7]]
    assert len(kept) + len(gone) == 30
    assert gone
    for row in gone:
        assert row["boxes"].shape == (1, 4)
        assert row["area"].shape == (1,)
        assert 500 / 0.95**2 - 1 <= row["area"][0] <= 500 / 0.75**2 + 1


def test_the_nearest_pixel_is_where_the_turn_says():
    ids = np.arange(12 * 9, dtype=np.uint8).reshape(12, 9)
    for roll in rolls():
        turn = AffineMap.sample(["crop", "rotate"], ids.shape, roll)
        assert turn is not None
        made = warp_ids(ids, turn)
        for y, x in ((0, 0), (5, 4), (11, 8)):
            column = int(np.floor(turn.a * (x + 0.5) + turn.b * (y + 0.5) + turn.c))
            row = int(np.floor(turn.d * (x + 0.5) + turn.e * (y + 0.5) + turn.f))
            assert made[y, x] == ids[row, column]


def test_boxes_without_area_stay_and_none_leaves_the_frame():
    turn = AffineMap.sample(["crop", "rotate"], (60, 80), seeded_random(1))
    assert turn is not None
    boxes = np.array([[0.5, 0.5, 0.5, 0.5], [0, 0, 1, 1], [0.4, 0.4, 0.6, 0.6]], np.float32)
    made, kept = WarpedFrame((60, 80), turn).boxes(boxes)
    assert kept.tolist() == [True, True, True]
    assert made[1].tolist() == [0, 0, 1, 1]
    assert (made >= 0).all()
    assert (made <= 1).all()


@pytest.mark.parametrize("format", ["jpeg", "png", "webp", "bmp"])
def test_an_image_keeps_its_format_and_its_digest_is_told(format):
    rng = np.random.default_rng(0)
    data = encoded(rng.integers(0, 256, (30, 40, 3), np.uint8), format)
    row = build_augmentation(["flip", "crop", "colour"], SCHEMA)(
        a_row(image=data, mask=None, boxes=None, labels=None, area=None), seeded_random(0)
    )
    assert Pillow.open(io.BytesIO(row["image"])).format == format.upper()
    assert row["digest"] == hashlib.sha256(row["image"]).hexdigest()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "I;16"])
def test_colours_change_in_every_mode_and_alpha_does_not(mode):
    rng = np.random.default_rng(0)
    if mode == "I;16":
        image = Pillow.fromarray(rng.integers(0, 60_000, (20, 20)).astype(np.uint16))
    else:
        image = Pillow.fromarray(rng.integers(40, 216, (20, 20, 4), np.uint8), "RGBA")
        image = (image.convert("RGB") if mode == "P" else image).convert(mode)
    file = io.BytesIO()
    image.save(file, "png")
    schema = rk.Schema({"image": rk.Image()})
    row = build_augmentation(["colour"], schema)({"image": file.getvalue()}, seeded_random(3))
    made, before = Pillow.open(io.BytesIO(row["image"])), Pillow.open(io.BytesIO(file.getvalue()))
    assert made.size == (20, 20)
    assert (np.asarray(made.convert("RGB")) != np.asarray(before.convert("RGB"))).any()
    if mode in ("LA", "RGBA"):
        assert (np.asarray(made.getchannel("A")) == np.asarray(before.getchannel("A"))).all()
    assert made.mode == {"P": "RGB"}.get(mode, mode)


@pytest.mark.parametrize("names", [["crop"], ["rotate"], ["colour"], ["flip", "crop", "rotate", "colour"]])
@pytest.mark.parametrize(
    ("mode", "format", "size"),
    [
        ("RGB", "png", (3, 2)),
        ("RGB", "jpeg", (2, 3)),
        ("L", "jpeg", (20, 20)),
        ("RGBA", "png", (9, 9)),
        ("P", "png", (10, 10)),
        ("CMYK", "jpeg", (20, 20)),
        ("P", "gif", (20, 20)),
        ("RGB", "png", (50, 1)),
        ("RGB", "png", (1, 50)),
    ],
)
def test_copies_of_an_image_differ_from_it_and_from_each_other(names, mode, format, size):
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Pillow.fromarray(pixels).convert(mode).save(file, format)
    vary = build_augmentation(names, rk.Schema({"image": rk.Image()}))
    seen = [file.getvalue(), *[vary({"image": file.getvalue()}, roll)["image"] for roll in rolls(5)]]
    opened = [Pillow.open(io.BytesIO(data)) for data in seen]
    assert {one.size for one in opened} == {size}
    assert len({one.convert("RGBA").tobytes() for one in opened}) == 6


def test_colours_leave_masks_and_boxes_as_they_are():
    before = a_row()
    row = build_augmentation(["colour"], SCHEMA)(a_row(), seeded_random(0))
    assert row["mask"] == before["mask"]
    assert row["boxes"].tolist() == before["boxes"].tolist()
    assert row["image"] != before["image"]


def test_the_same_words_give_the_same_image_and_others_another():
    vary = build_augmentation(["flip", "crop", "rotate", "colour"], SCHEMA)
    made = [
        vary(a_row(), seeded_random(*words))["image"]
        for words in ((0, "a", 1), (0, "a", 1), (0, "a", 2), (1, "a", 1))
    ]
    assert made[0] == made[1]
    assert len(set(made)) == 3


def test_rolls_are_spread_evenly():
    drawn = [seeded_random(i)("x") for i in range(2000)]
    assert 0 <= min(drawn) < 0.01
    assert 0.99 < max(drawn) < 1
    assert abs(float(np.mean(drawn)) - 0.5) < 0.03


def test_what_is_missing_stays_missing():
    schema = rk.Schema({"image": rk.Image(optional=True), "mask": rk.Mask(classes=3, optional=True)})
    assert build_augmentation(["flip"], schema)({"image": None, "mask": None}, seeded_random(0)) == {
        "image": None,
        "mask": None,
    }


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("flip", ("flip",)),
        (["color", "crop", "colour"], ("crop", "colour")),
        (("rotate", "flip"), ("flip", "rotate")),
        ([], ()),
    ],
)
def test_names_are_taken_in_one_order(given, names):
    assert validate_augmentations(given) == names


@pytest.mark.parametrize("given", ["blur", ["flip", 3], 7, [None]])
def test_other_names_are_refused(given):
    with pytest.raises(rk.UsageError) as caught:
        validate_augmentations(given)
    assert str(caught.value).startswith("U605: unknown augmentation ")


def test_an_image_that_is_none_is_refused_with_its_column():
    with pytest.raises(rk.RekordError) as caught:
        build_augmentation(["flip"], SCHEMA)(a_row(image=b"no image"), seeded_random(0))
    assert (caught.value.code, caught.value.location.feature) == ("D409", "image")


def test_boxes_that_may_be_cropped_away_need_to_be_told_what_goes_with_them():
    schema = rk.Schema({"image": rk.Image(), "boxes": rk.Boxes(), "labels": rk.Int64(shape=(None,))})
    with pytest.raises(rk.SchemaError) as caught:
        build_augmentation(["crop"], schema)
    assert (caught.value.code, caught.value.location.feature) == ("S140", "labels")
    assert build_augmentation(["crop"], schema, per_box=["labels"]).pipelines[0].layers.per_box == ("labels",)
    build_augmentation(["flip", "colour"], schema)
