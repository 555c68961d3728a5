"""What is said of defects in sources of images with boxes: every cell of the table, made and met."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
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
    assert defect_table("Images with bounding boxes") == set(CELLS)


@pytest.mark.parametrize(("source", "defect", "code"), CELLS)
def test_a_defect_is_named_with_its_place_and_what_to_do(source, defect, code, place, check_defect):
    check_defect(code, CELLS[source, defect, code](place))


# COCO's json files.


def coco(place: Any, images: Any = (), annotations: Any = (), **members: Any) -> Callable[[], Any]:
    """Two good images with a box each, and more."""
    for i in (1, 2):
        place.image(f"{i}.jpg")
    document = {
        "images": [{"id": i, "file_name": f"{i}.jpg"} for i in (1, 2)] + list(images),
        "annotations": [box_of(i, i) for i in (1, 2)] + list(annotations),
        "categories": [{"id": 1, "name": "cat"}],
        **members,
    }
    place.put("boxes.json", json.dumps(document))
    return lambda: rk.sources.coco(place.root / "boxes.json")


def box_of(number: int, image: Any, **members: Any) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": 1, "bbox": [1, 1, 2, 2], **members}


@cell("coco", "empty", "X530")
def _(place):
    path = place.put("boxes.json", "")
    return place.case(lambda: rk.sources.coco(path), path, line=1)


@cell("coco", "empty", "X532")
def _(place):
    path = place.put("boxes.json", '{"images": [], "annotations": [], "categories": []}')
    return place.case(lambda: rk.sources.coco(path), path)


@cell("coco", "empty", "E330")
def _(place):
    make = coco(place)
    return place.case(make, place.put("2.jpg", b""), feature="image", good=1)


@cell("coco", "truncated", "X530")
def _(place):
    make = coco(place)
    return place.case(make, place.cut(place.root / "boxes.json"), line=1)


@cell("coco", "truncated", "E331")
def _(place):
    make = coco(place)
    return place.case(make, place.cut(place.root / "2.jpg"), feature="image", good=1)


@cell("coco", "wrong type", "X531")
def _(place):
    make = coco(place, images={})
    place.put("boxes.json", '{"images": {}}')
    return place.case(make, place.root / "boxes.json")


@cell("coco", "wrong type", "E321")
def _(place):
    make = coco(place)
    return place.case(make, place.put("2.jpg", "a text"), feature="image", good=1)


@cell("coco", "wrong type", "E369")
def _(place):
    make = coco(place, annotations=[box_of(3, 2, bbox="1 1 2 2")])
    return place.case(make, place.root / "boxes.json", good=1)


@cell("coco", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.coco(place.root / "none.json"), place.root / "none.json")


@cell("coco", "missing file", "E366")
def _(place):
    make = coco(place, images=[{"id": 3, "file_name": "none.jpg"}])
    return place.case(make, place.root / "boxes.json", row=2, good=2)


@cell("coco", "orphan", "E367")
def _(place):
    make = coco(place, annotations=[box_of(3, 9)])
    return place.case(make, place.root / "boxes.json", row=4, good=2)


@cell("coco", "duplicate key", "E370")
def _(place):
    make = coco(place, images=[{"id": 3, "file_name": "2.jpg"}])
    return place.case(make, place.root / "boxes.json", row=2, good=2)


@cell("coco", "bad encoding", "X530")
def _(place):
    make = coco(place)
    text = (place.root / "boxes.json").read_bytes()
    place.put("boxes.json", text.replace(b'"cat"', b'"caf\xe9"'))
    return place.case(make, place.root / "boxes.json", line=1)


@cell("coco", "inconsistent columns", "X531")
def _(place):
    make = coco(place, categories=[{"id": 1, "name": "cat"}, {"id": 1, "name": "dog"}])
    return place.case(make, place.root / "boxes.json")


@cell("coco", "unreadable", "X503")
def _(place):
    make = coco(place)
    return place.case(make, place.unreadable(place.root / "boxes.json"))


@cell("coco", "unreadable", "E329")
def _(place):
    make = coco(place)
    return place.case(make, place.unreadable(place.root / "2.jpg"), feature="image", good=1)


@cell("coco", "too large", "X531")
def _(place):
    make = coco(place)
    place.patch.setattr(import_module("rekord.sources.coco"), "MAX_JSON_BYTES", 64)
    return place.case(make, place.root / "boxes.json")


@cell("coco", "too large", "E327")
def _(place):
    make = coco(place)
    return place.case(make, place.huge(place.root / "2.jpg"), feature="image", good=1)


# Pascal VOC's xml files.

BOX = "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>"
XML = "<annotation>\n<object>\n<name>cat</name>" + BOX + "\n</object></annotation>"


def voc(place: Any, xml: str | bytes = XML, lines: str | None = None) -> Callable[[], Any]:
    """A good image, and one whose xml file is this."""
    for name, text in (("1", XML), ("2", xml)):
        place.image(f"JPEGImages/{name}.jpg")
        place.put(f"Annotations/{name}.xml", text)
    if lines is not None:
        place.put("ImageSets/Main/train.txt", lines)
    return lambda: rk.sources.voc(place.root)


def second(place: Any) -> Any:
    return place.root / "Annotations/2.xml"


@cell("voc", "empty", "X532")
def _(place):
    return place.case(lambda: rk.sources.voc(place.root), place.root)


@cell("voc", "empty", "E371")
def _(place):
    return place.case(voc(place, ""), second(place), line=1, good=1)


@cell("voc", "empty", "E330")
def _(place):
    make = voc(place)
    return place.case(make, place.put("JPEGImages/2.jpg", b""), feature="image", good=1)


@cell("voc", "truncated", "E371")
def _(place):
    return place.case(voc(place, XML[:40]), second(place), line=3, good=1)


@cell("voc", "truncated", "E331")
def _(place):
    make = voc(place)
    return place.case(make, place.cut(place.root / "JPEGImages/2.jpg"), feature="image", good=1)


@cell("voc", "wrong type", "E371")
def _(place):
    return place.case(voc(place, "<html></html>"), second(place), line=1, good=1)


@cell("voc", "wrong type", "E369")
def _(place):
    make = voc(place, XML.replace("<xmin>1", "<xmin>left"))
    return place.case(make, second(place), line=3, good=1)


@cell("voc", "wrong type", "E321")
def _(place):
    make = voc(place)
    return place.case(make, place.put("JPEGImages/2.jpg", "a text"), feature="image", good=1)


@cell("voc", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.voc(place.root / "none"), place.root / "none")


@cell("voc", "missing file", "E366")
def _(place):
    make = voc(place, lines="1\n2\nnone\n")
    return place.case(make, place.root / "ImageSets/Main/train.txt", row=2, line=3, good=2)


@cell("voc", "orphan", "E366")
def _(place):
    make = voc(place)
    (place.root / "JPEGImages/2.jpg").unlink()
    return place.case(make, second(place), good=1)


@cell("voc", "duplicate key", "E370")
def _(place):
    make = voc(place, lines="1\n2\n1\n")
    return place.case(make, place.root / "ImageSets/Main/train.txt", row=2, line=3, good=2)


@cell("voc", "bad encoding", "E371")
def _(place):
    make = voc(place, XML.encode().replace(b"cat", b"caf\xe9"))
    return place.case(make, second(place), line=3, good=1)


@cell("voc", "unreadable", "X503")
def _(place):
    make = voc(place)
    return place.case(make, place.unreadable(second(place)), good=1)


@cell("voc", "unreadable", "E329")
def _(place):
    make = voc(place)
    return place.case(make, place.unreadable(place.root / "JPEGImages/2.jpg"), feature="image", good=1)


@cell("voc", "too large", "E371")
def _(place):
    return place.case(voc(place, XML + " " * (16 << 20)), second(place), good=1)


@cell("voc", "too large", "E327")
def _(place):
    make = voc(place)
    return place.case(make, place.huge(place.root / "JPEGImages/2.jpg"), feature="image", good=1)


# YOLO's label files.


def yolo(place: Any, labels: str | bytes = "0 0.5 0.5 0.2 0.2\n") -> Callable[[], Any]:
    """A good image, and one whose label file is this."""
    for name, text in (("1", "0 0.5 0.5 0.2 0.2\n"), ("2", labels)):
        place.image(f"images/{name}.jpg")
        place.put(f"labels/{name}.txt", text)
    place.put("classes.txt", "cat\n")
    return lambda: rk.sources.yolo(place.root)


def label_file(place: Any) -> Any:
    return place.root / "labels/2.txt"


@cell("yolo", "empty", "X532")
def _(place):
    return place.case(lambda: rk.sources.yolo(place.root), place.root)


@cell("yolo", "empty", "X533")
def _(place):
    make = yolo(place)
    return place.case(make, place.put("classes.txt", ""))


@cell("yolo", "empty", "E330")
def _(place):
    make = yolo(place)
    return place.case(make, place.put("images/2.jpg", b""), feature="image", good=1)


@cell("yolo", "truncated", "E372")
def _(place):
    make = yolo(place, "0 0.5 0.5 0.2 0.2\n0 0.5 0.")
    return place.case(make, label_file(place), line=2, good=1)


@cell("yolo", "truncated", "E331")
def _(place):
    make = yolo(place)
    return place.case(make, place.cut(place.root / "images/2.jpg"), feature="image", good=1)


@cell("yolo", "wrong type", "E372")
def _(place):
    return place.case(yolo(place, "cat 0.5 0.5 0.2 0.2\n"), label_file(place), line=1, good=1)


@cell("yolo", "wrong type", "E321")
def _(place):
    make = yolo(place)
    return place.case(make, place.put("images/2.jpg", "a text"), feature="image", good=1)


@cell("yolo", "wrong type", "E367")
def _(place):
    return place.case(yolo(place, "7 0.5 0.5 0.2 0.2\n"), label_file(place), line=1, good=1)


@cell("yolo", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.yolo(place.root / "none"), place.root / "none")


@cell("yolo", "orphan", "E373")
def _(place):
    make = yolo(place)
    return place.case(make, place.put("labels/3.txt", "0 0.5 0.5 0.2 0.2\n"), good=2)


@cell("yolo", "duplicate key", "E370")
def _(place):
    make = yolo(place)
    return place.case(make, place.image("images/2.png"), good=2)


@cell("yolo", "bad encoding", "E372")
def _(place):
    return place.case(yolo(place, b"0 0.5 0.5 0.2 0.2\n\xe9\n"), label_file(place), line=2, good=1)


@cell("yolo", "bad encoding", "E318")
def _(place):
    make = yolo(place)
    place.image(os.fsdecode(b"images/caf\xe9.jpg"))
    return place.case(make, f"{place.root}/images/caf\\xe9.jpg", feature="filename", good=2)


@cell("yolo", "inconsistent columns", "E372")
def _(place):
    return place.case(yolo(place, "0 0.5 0.5 0.2 0.2 0.9\n"), label_file(place), line=1, good=1)


@cell("yolo", "unreadable", "X503")
def _(place):
    make = yolo(place)
    return place.case(make, place.unreadable(label_file(place)), good=1)


@cell("yolo", "unreadable", "E329")
def _(place):
    make = yolo(place)
    return place.case(make, place.unreadable(place.root / "images/2.jpg"), feature="image", good=1)


@cell("yolo", "too large", "E372")
def _(place):
    return place.case(yolo(place, "\n" * ((16 << 20) + 1)), label_file(place), good=1)


@cell("yolo", "too large", "E327")
def _(place):
    make = yolo(place)
    return place.case(make, place.huge(place.root / "images/2.jpg"), feature="image", good=1)


# KITTI.

CAR = "Car 0.0 0 -1.6 1 1 6 7 1.6 1.7 4.2 1.0 1.8 13.2 -1.6\n"


def kitti(place: Any, text: str | bytes = CAR) -> Callable[[], Any]:
    for number, content in (("1", CAR), ("2", text)):
        place.image(f"image_2/{number}.jpg")
        place.put(f"label_2/{number}.txt", content)
    return lambda: rk.sources.kitti(place.root)


def kitti_label(place: Any) -> Any:
    return place.root / "label_2/2.txt"


@cell("kitti", "empty", "X532")
def _(place):
    return place.case(lambda: rk.sources.kitti(place.root), place.root)


@cell("kitti", "empty", "E330")
def _(place):
    make = kitti(place)
    return place.case(make, place.put("image_2/2.jpg", b""), feature="image", good=1)


@cell("kitti", "truncated", "E372")
def _(place):
    return place.case(kitti(place, CAR + CAR[:20]), kitti_label(place), line=2, good=1)


@cell("kitti", "truncated", "E331")
def _(place):
    make = kitti(place)
    return place.case(make, place.cut(place.root / "image_2/2.jpg"), feature="image", good=1)


@cell("kitti", "wrong type", "E372")
def _(place):
    return place.case(kitti(place, CAR.replace("6 7", "6 wide")), kitti_label(place), line=1, good=1)


@cell("kitti", "wrong type", "E321")
def _(place):
    make = kitti(place)
    return place.case(make, place.put("image_2/2.jpg", "a text"), feature="image", good=1)


@cell("kitti", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.kitti(place.root / "none"), place.root / "none")


@cell("kitti", "missing file", "E366")
def _(place):
    make = kitti(place)
    kitti_label(place).unlink()
    return place.case(make, kitti_label(place), good=1)


@cell("kitti", "orphan", "E373")
def _(place):
    make = kitti(place)
    return place.case(make, place.put("label_2/3.txt", CAR), good=2)


@cell("kitti", "duplicate key", "E370")
def _(place):
    make = kitti(place)
    return place.case(make, place.image("image_2/2.png"), good=2)


@cell("kitti", "bad encoding", "E372")
def _(place):
    return place.case(kitti(place, CAR.encode() + b"\xe9\n"), kitti_label(place), line=2, good=1)


@cell("kitti", "bad encoding", "E318")
def _(place):
    make = kitti(place)
    place.image(os.fsdecode(b"image_2/caf\xe9.jpg"))
    place.put(os.fsdecode(b"label_2/caf\xe9.txt"), CAR)
    return place.case(make, f"{place.root}/image_2/caf\\xe9.jpg", feature="filename", good=2)


@cell("kitti", "inconsistent columns", "E372")
def _(place):
    return place.case(kitti(place, CAR.replace("\n", " 0.9 0.9\n")), kitti_label(place), line=1, good=1)


@cell("kitti", "unreadable", "X503")
def _(place):
    make = kitti(place)
    return place.case(make, place.unreadable(kitti_label(place)), good=1)


@cell("kitti", "unreadable", "E329")
def _(place):
    make = kitti(place)
    return place.case(make, place.unreadable(place.root / "image_2/2.jpg"), feature="image", good=1)


@cell("kitti", "too large", "E372")
def _(place):
    return place.case(kitti(place, "\n" * ((16 << 20) + 1)), kitti_label(place), good=1)


@cell("kitti", "too large", "E327")
def _(place):
    make = kitti(place)
    return place.case(make, place.huge(place.root / "image_2/2.jpg"), feature="image", good=1)


# A CSV of boxes.


def boxes(place: Any, *lines: str, header: str = "filename,class,xmin,ymin,xmax,ymax") -> Callable[[], Any]:
    """A good image with a box, another one without a line, and these lines."""
    for i in (1, 2):
        place.image(f"{i}.jpg")
    place.put("boxes.csv", "".join([f"{line}\n" for line in (header, "1.jpg,cat,1,1,3,3", *lines)]))
    return lambda: rk.sources.boxes_csv(place.root / "boxes.csv")


@cell("boxes_csv", "empty", "X532")
def _(place):
    path = place.put("boxes.csv", "")
    return place.case(lambda: rk.sources.boxes_csv(path), path)


@cell("boxes_csv", "empty", "E330")
def _(place):
    make = boxes(place, "2.jpg,cat,1,1,3,3")
    return place.case(make, place.put("2.jpg", b""), feature="image", good=1)


@cell("boxes_csv", "truncated", "X534")
def _(place):
    return place.case(boxes(place, '"2.jpg'), place.root / "boxes.csv", line=3)


@cell("boxes_csv", "truncated", "E331")
def _(place):
    make = boxes(place, "2.jpg,cat,1,1,3,3")
    return place.case(make, place.cut(place.root / "2.jpg"), feature="image", good=1)


@cell("boxes_csv", "wrong type", "E374")
def _(place):
    return place.case(boxes(place, "2.jpg,cat,left,1,3,3"), place.root / "boxes.csv", row=2, line=3, good=1)


@cell("boxes_csv", "wrong type", "E321")
def _(place):
    make = boxes(place, "2.jpg,cat,1,1,3,3")
    return place.case(make, place.put("2.jpg", "a text"), feature="image", good=1)


@cell("boxes_csv", "missing file", "X501")
def _(place):
    return place.case(lambda: rk.sources.boxes_csv(place.root / "none.csv"), place.root / "none.csv")


@cell("boxes_csv", "missing file", "E366")
def _(place):
    return place.case(boxes(place, "none.jpg,cat,1,1,3,3"), place.root / "boxes.csv", row=2, line=3, good=1)


@cell("boxes_csv", "orphan", "E374")
def _(place):
    return place.case(boxes(place, ",cat,1,1,3,3"), place.root / "boxes.csv", row=2, line=3, good=1)


@cell("boxes_csv", "duplicate key", "E370")
def _(place):
    return place.case(boxes(place, "./1.jpg,cat,1,1,3,3"), place.root / "boxes.csv", row=2, line=3, good=1)


@cell("boxes_csv", "bad encoding", "X534")
def _(place):
    make = boxes(place)
    with open(place.root / "boxes.csv", "ab") as file:
        file.write(b"2.jpg,caf\xe9,1,1,3,3\n")
    return place.case(make, place.root / "boxes.csv", line=3)


@cell("boxes_csv", "inconsistent columns", "E374")
def _(place):
    return place.case(boxes(place, "2.jpg,cat,1,1,3"), place.root / "boxes.csv", row=2, line=3, good=1)


@cell("boxes_csv", "inconsistent columns", "X534")
def _(place):
    return place.case(boxes(place, header="filename,class,a,b,c,d"), place.root / "boxes.csv", line=1)


@cell("boxes_csv", "unreadable", "X503")
def _(place):
    make = boxes(place)
    return place.case(make, place.unreadable(place.root / "boxes.csv"))


@cell("boxes_csv", "unreadable", "E329")
def _(place):
    make = boxes(place, "2.jpg,cat,1,1,3,3")
    return place.case(make, place.unreadable(place.root / "2.jpg"), feature="image", good=1)


@cell("boxes_csv", "too large", "X534")
def _(place):
    make = boxes(place)
    # The name in rk.sources is that of the function.
    place.patch.setattr(import_module("rekord.sources.boxes_csv"), "MAX_CSV_BYTES", 16)
    return place.case(make, place.root / "boxes.csv")


@cell("boxes_csv", "too large", "E327")
def _(place):
    make = boxes(place, "2.jpg,cat,1,1,3,3")
    return place.case(make, place.huge(place.root / "2.jpg"), feature="image", good=1)
