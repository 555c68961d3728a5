"""What is said of defects in sources of images and masks: every cell of the table, made and met."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import rekord as rk

CELLS: dict[tuple[str, str, str], Callable[[Any], Any]] = {}


def cell(source: str, defect: str, code: str) -> Callable[[Any], Any]:
    def kept(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        assert CELLS.setdefault((source, defect, code), build) is build
        return build

    return kept


def test_the_table_has_the_cells_that_are_tested_here_and_no_others(defect_table):
    assert defect_table("Images and masks") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


# Folders of images.


def folder(place: Any) -> Callable[[], Any]:
    place.image("cat/1.jpg")
    place.image("dog/1.jpg")
    return lambda: rk.sources.image_folder(place.root)


@cell("image_folder", "empty", "X527")
def _(place):
    return place.case(lambda: rk.sources.image_folder(place.root), place.root)


@cell("image_folder", "empty", "E330")
def _(place):
    make, path = folder(place), place.put("cat/2.jpg", b"")
    return place.case(make, path, feature="image", good=2)


@cell("image_folder", "truncated", "E331")
def _(place):
    make, path = folder(place), place.cut(place.image("cat/2.jpg"))
    return place.case(make, path, feature="image", good=2)


@cell("image_folder", "wrong type", "E321")
def _(place):
    make, path = folder(place), place.put("cat/2.jpg", "a text")
    return place.case(make, path, feature="image", good=2)


@cell("image_folder", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.image_folder(place.root / "none"), place.root / "none")


@cell("image_folder", "orphan", "E301")
def _(place):
    make, path = folder(place), place.image("1.jpg")
    return place.case(make, path, feature="label", good=2)


@cell("image_folder", "bad encoding", "E318")
def _(place):
    make = folder(place)
    place.image(os.fsdecode(b"cat/caf\xe9.jpg"))
    return place.case(make, f"{place.root}/cat/caf\\xe9.jpg", feature="filename", good=2)


@cell("image_folder", "unreadable", "E329")
def _(place):
    make, path = folder(place), place.unreadable(place.image("cat/2.jpg"))
    return place.case(make, path, feature="image", good=2)


@cell("image_folder", "too large", "E327")
def _(place):
    make, path = folder(place), place.huge(place.image("cat/2.jpg"))
    return place.case(make, path, feature="image", good=2)


# Images without labels.


def plain_images(place: Any) -> Callable[[], Any]:
    folder(place)
    return lambda: rk.sources.images(place.root)


@cell("images", "empty", "X527")
def _(place):
    return place.case(lambda: rk.sources.images(place.root), place.root)


@cell("images", "empty", "E330")
def _(place):
    make, path = plain_images(place), place.put("cat/2.jpg", b"")
    return place.case(make, path, feature="image", good=2)


@cell("images", "truncated", "E331")
def _(place):
    make, path = plain_images(place), place.cut(place.image("cat/2.jpg"))
    return place.case(make, path, feature="image", good=2)


@cell("images", "wrong type", "E321")
def _(place):
    make, path = plain_images(place), place.put("cat/2.jpg", "a text")
    return place.case(make, path, feature="image", good=2)


@cell("images", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.images(place.root / "none"), place.root / "none")


@cell("images", "bad encoding", "E318")
def _(place):
    make = plain_images(place)
    place.image(os.fsdecode(b"cat/caf\xe9.jpg"))
    return place.case(make, f"{place.root}/cat/caf\\xe9.jpg", feature="filename", good=2)


@cell("images", "unreadable", "E329")
def _(place):
    make, path = plain_images(place), place.unreadable(place.image("cat/2.jpg"))
    return place.case(make, path, feature="image", good=2)


@cell("images", "too large", "E327")
def _(place):
    make, path = plain_images(place), place.huge(place.image("cat/2.jpg"))
    return place.case(make, path, feature="image", good=2)


# A CSV of images.


def listed(place: Any, *lines: str | bytes, header: str = "image,label") -> Callable[[], Any]:
    place.image("1.jpg")
    place.image("2.jpg")
    data = [line if isinstance(line, bytes) else line.encode() for line in (header, "1.jpg,cat", *lines)]
    place.put("list.csv", b"".join([line + b"\n" for line in data]))
    return lambda: rk.sources.image_csv(place.root / "list.csv")


@cell("image_csv", "empty", "X528")
def _(place):
    path = place.put("list.csv", "")
    return place.case(lambda: rk.sources.image_csv(path), path)


@cell("image_csv", "empty", "E330")
def _(place):
    make = listed(place, "2.jpg,dog")
    return place.case(make, place.put("2.jpg", b""), feature="image", good=1)


@cell("image_csv", "truncated", "X528")
def _(place):
    make = listed(place, '2.jpg,"dog', "3.jpg,dog")
    return place.case(make, place.root / "list.csv", line=3)


@cell("image_csv", "truncated", "E331")
def _(place):
    make = listed(place, "2.jpg,dog")
    return place.case(make, place.cut(place.root / "2.jpg"), feature="image", good=1)


@cell("image_csv", "wrong type", "E321")
def _(place):
    make = listed(place, "2.jpg,dog")
    return place.case(make, place.put("2.jpg", "a text"), feature="image", good=1)


@cell("image_csv", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.image_csv(place.root / "none.csv"), place.root / "none.csv")


@cell("image_csv", "missing file", "E360")
def _(place):
    make = listed(place, "none.jpg,dog")
    return place.case(make, place.root / "list.csv", row=1, line=3, feature="image", good=1)


@cell("image_csv", "orphan", "E361")
def _(place):
    make = listed(place, "2.jpg,")
    return place.case(make, place.root / "list.csv", row=1, line=3, feature="label", good=1)


@cell("image_csv", "duplicate key", "E362")
def _(place):
    make = listed(place, "1.jpg,dog")
    return place.case(make, place.root / "list.csv", row=1, line=3, feature="image", good=1)


@cell("image_csv", "bad encoding", "E318")
def _(place):
    make = listed(place, b"2.jpg,caf\xe9")
    return place.case(make, place.root / "list.csv", row=1, line=3, feature="label", good=1)


@cell("image_csv", "inconsistent columns", "E361")
def _(place):
    make = listed(place, "2.jpg,dog,more")
    return place.case(make, place.root / "list.csv", row=1, line=3, feature="label", good=1)


@cell("image_csv", "inconsistent columns", "X528")
def _(place):
    make = listed(place, header="image,price")
    return place.case(make, place.root / "list.csv")


@cell("image_csv", "unreadable", "X503")
def _(place):
    make = listed(place)
    return place.case(make, place.unreadable(place.root / "list.csv"))


@cell("image_csv", "unreadable", "E329")
def _(place):
    make = listed(place, "2.jpg,dog")
    return place.case(make, place.unreadable(place.root / "2.jpg"), feature="image", good=1)


@cell("image_csv", "too large", "X528")
def _(place):
    make = listed(place, "2.jpg," + "g" * (1 << 20))
    return place.case(make, place.root / "list.csv", line=3)


@cell("image_csv", "too large", "E327")
def _(place):
    make = listed(place, "2.jpg,dog")
    return place.case(make, place.huge(place.root / "2.jpg"), feature="image", good=1)


# Images and masks.


def pairs(place: Any) -> Callable[[], Any]:
    for name in ("1", "2"):
        place.image(f"images/{name}.jpg")
        place.mask(f"masks/{name}.png")
    return lambda: rk.sources.segmentation(place.root / "images", place.root / "masks", classes=3)


@cell("segmentation", "empty", "X527")
def _(place):
    make = pairs(place)
    for name in ("1", "2"):
        (place.root / f"masks/{name}.png").unlink()
    return place.case(make, place.root / "masks")


@cell("segmentation", "empty", "E330")
def _(place):
    make, path = pairs(place), place.put("masks/2.png", b"")
    return place.case(make, path, feature="mask", good=1)


@cell("segmentation", "truncated", "E331")
def _(place):
    make, path = pairs(place), place.cut(place.root / "masks/2.png")
    return place.case(make, path, feature="mask", good=1)


@cell("segmentation", "wrong type", "E321")
def _(place):
    make, path = pairs(place), place.put("images/2.jpg", "a text")
    return place.case(make, path, feature="image", good=1)


@cell("segmentation", "wrong type", "E335")
def _(place):
    make = pairs(place)
    return place.case(make, place.mask("masks/2.png", 7), feature="mask", good=1)


@cell("segmentation", "missing file", "X501")
def _(place):
    make = lambda: rk.sources.segmentation(place.root, place.root / "none")  # noqa: E731
    return place.case(make, place.root / "none")


@cell("segmentation", "orphan", "E363")
def _(place):
    make, path = pairs(place), place.image("images/3.jpg")
    return place.case(make, path, feature="mask", good=2)


@cell("segmentation", "orphan", "E364")
def _(place):
    make, path = pairs(place), place.mask("masks/3.png")
    return place.case(make, path, feature="image", good=2)


@cell("segmentation", "duplicate key", "E365")
def _(place):
    make, path = pairs(place), place.image("images/2.png")
    return place.case(make, path, feature="image", good=2)


@cell("segmentation", "bad encoding", "E318")
def _(place):
    make = pairs(place)
    place.image(os.fsdecode(b"images/caf\xe9.jpg"))
    return place.case(make, f"{place.root}/images/caf\\xe9.jpg", feature="filename", good=2)


@cell("segmentation", "unreadable", "E329")
def _(place):
    make, path = pairs(place), place.unreadable(place.root / "masks/2.png")
    return place.case(make, path, feature="mask", good=1)


@cell("segmentation", "too large", "E327")
def _(place):
    make, path = pairs(place), place.huge(place.root / "images/2.jpg")
    return place.case(make, path, feature="image", good=1)


@cell("segmentation", "too large", "E337")
def _(place):
    make, path = pairs(place), place.vast_mask("masks/2.png")
    return place.case(make, path, feature="mask", good=1)


# Pascal VOC's masks.


def voc(place: Any, *lines: bytes) -> Callable[[], Any]:
    for name in ("1", "2"):
        place.image(f"JPEGImages/{name}.jpg")
        place.mask(f"SegmentationClass/{name}.png")
    place.put("ImageSets/Segmentation/train.txt", b"".join([line + b"\n" for line in (b"1", *lines)]))
    return lambda: rk.sources.voc_segmentation(place.root)


def voc_list(place: Any) -> Any:
    return place.root / "ImageSets/Segmentation/train.txt"


@cell("voc_segmentation", "empty", "X529")
def _(place):
    make = voc(place)
    place.put("ImageSets/Segmentation/train.txt", "")
    return place.case(make, place.root / "ImageSets/Segmentation")


@cell("voc_segmentation", "empty", "E330")
def _(place):
    make, path = voc(place, b"2"), place.put("JPEGImages/2.jpg", b"")
    return place.case(make, path, feature="image", good=1)


@cell("voc_segmentation", "truncated", "E331")
def _(place):
    make, path = voc(place, b"2"), place.cut(place.root / "SegmentationClass/2.png")
    return place.case(make, path, feature="mask", good=1)


@cell("voc_segmentation", "wrong type", "E321")
def _(place):
    make, path = voc(place, b"2"), place.put("JPEGImages/2.jpg", "a text")
    return place.case(make, path, feature="image", good=1)


@cell("voc_segmentation", "wrong type", "E335")
def _(place):
    make, path = voc(place, b"2"), place.mask("SegmentationClass/2.png", 30)
    return place.case(make, path, feature="mask", good=1)


@cell("voc_segmentation", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.voc_segmentation(place.root / "none"), place.root / "none")


@cell("voc_segmentation", "missing file", "X529")
def _(place):
    place.image("JPEGImages/1.jpg")
    return place.case(lambda: rk.sources.voc_segmentation(place.root), place.root)


@cell("voc_segmentation", "missing file", "E360")
def _(place):
    make = voc(place, b"none")
    return place.case(make, voc_list(place), row=1, line=2, feature="image", good=1)


@cell("voc_segmentation", "orphan", "E363")
def _(place):
    make = voc(place, b"2")
    (place.root / "SegmentationClass/2.png").unlink()
    return place.case(make, voc_list(place), row=1, line=2, feature="mask", good=1)


@cell("voc_segmentation", "duplicate key", "E362")
def _(place):
    make = voc(place, b"2", b"1")
    return place.case(make, voc_list(place), row=2, line=3, feature="image", good=2)


@cell("voc_segmentation", "bad encoding", "E318")
def _(place):
    make = voc(place, b"caf\xe9")
    return place.case(make, voc_list(place), row=1, line=2, feature="filename", good=1)


@cell("voc_segmentation", "unreadable", "X503")
def _(place):
    make = voc(place)
    return place.case(make, place.unreadable(voc_list(place)))


@cell("voc_segmentation", "unreadable", "E329")
def _(place):
    make, path = voc(place, b"2"), place.unreadable(place.root / "JPEGImages/2.jpg")
    return place.case(make, path, feature="image", good=1)


@cell("voc_segmentation", "too large", "X529")
def _(place):
    make = voc(place, b"2" * (1 << 17))
    return place.case(make, voc_list(place), line=2)


@cell("voc_segmentation", "too large", "E337")
def _(place):
    make, path = voc(place, b"2"), place.vast_mask("SegmentationClass/2.png")
    return place.case(make, path, feature="mask", good=1)


# Cityscapes.

BONN = "train/bonn/bonn_00000"
IMAGE, MASK = "leftImg8bit/{}_leftImg8bit.png", "gtFine/{}_gtFine_labelTrainIds.png"


def city(place: Any) -> Callable[[], Any]:
    for name in (BONN + "1", BONN + "2"):
        place.image(IMAGE.format(name))
        place.mask(MASK.format(name))
    return lambda: rk.sources.cityscapes(place.root)


@cell("cityscapes", "empty", "X527")
def _(place):
    for name in ("leftImg8bit", "gtFine"):
        (place.root / name).mkdir()
    return place.case(lambda: rk.sources.cityscapes(place.root), place.root / "leftImg8bit")


@cell("cityscapes", "empty", "E330")
def _(place):
    make, path = city(place), place.put(MASK.format(BONN + "2"), b"")
    return place.case(make, path, feature="mask", good=1)


@cell("cityscapes", "truncated", "E331")
def _(place):
    make, path = city(place), place.cut(place.root / IMAGE.format(BONN + "2"))
    return place.case(make, path, feature="image", good=1)


@cell("cityscapes", "wrong type", "E321")
def _(place):
    make, path = city(place), place.put(IMAGE.format(BONN + "2"), "a text")
    return place.case(make, path, feature="image", good=1)


@cell("cityscapes", "wrong type", "E335")
def _(place):
    make, path = city(place), place.mask(MASK.format(BONN + "2"), 19)
    return place.case(make, path, feature="mask", good=1)


@cell("cityscapes", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.cityscapes(place.root / "none"), place.root / "none")


@cell("cityscapes", "missing file", "X529")
def _(place):
    place.image(IMAGE.format(BONN + "1"))
    return place.case(lambda: rk.sources.cityscapes(place.root), place.root)


@cell("cityscapes", "orphan", "E363")
def _(place):
    make, path = city(place), place.image(IMAGE.format(BONN + "3"))
    return place.case(make, path, feature="mask", good=2)


@cell("cityscapes", "orphan", "E364")
def _(place):
    make, path = city(place), place.mask(MASK.format(BONN + "3"))
    return place.case(make, path, feature="image", good=2)


@cell("cityscapes", "duplicate key", "E365")
def _(place):
    make = city(place)
    place.image(f"leftImg8bit/{BONN}2_leftImg8bit.jpg")
    return place.case(make, place.root / IMAGE.format(BONN + "2"), feature="image", good=2)


@cell("cityscapes", "bad encoding", "E318")
def _(place):
    make = city(place)
    place.image(os.fsdecode(b"leftImg8bit/train/bonn/caf\xe9_leftImg8bit.png"))
    path = f"{place.root}/leftImg8bit/train/bonn/caf\\xe9_leftImg8bit.png"
    return place.case(make, path, feature="filename", good=2)


@cell("cityscapes", "unreadable", "E329")
def _(place):
    make, path = city(place), place.unreadable(place.root / MASK.format(BONN + "2"))
    return place.case(make, path, feature="mask", good=1)


@cell("cityscapes", "too large", "E337")
def _(place):
    make, path = city(place), place.vast_mask(MASK.format(BONN + "2"))
    return place.case(make, path, feature="mask", good=1)
