"""Datasets of boxes in the formats of YOLO, and the exports of Roboflow."""

from __future__ import annotations

from collections.abc import Sequence

from raw_layouts import BOXES, Tree, detection, raw_layout, table, yolo
from raw_layouts.box_layouts import CAT_BOXES, CATS, ID_BOXES, IDS, corners


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}))
def roboflow_voc(t: Tree) -> None:
    """Roboflow's Pascal VOC export: {train,valid}/*.jpg with *.xml, README.dataset.txt, README.roboflow.txt."""
    for split, count in (("train", 2), ("valid", 1)):
        for i in range(count):
            stem = f"img{i}_jpg.rf.0a{i}{split}"
            t.image(f"{split}/{stem}.jpg", i)
            t.voc_xml(f"{split}/{stem}.xml", f"{stem}.jpg", CATS[i], i)
    t.put("README.dataset.txt", "# pets > v1\n")
    t.put("README.roboflow.txt", "pets - v1 was exported via roboflow\n")


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}))
def roboflow_coco(t: Tree) -> None:
    """Roboflow's COCO export: {train,valid}/_annotations.coco.json next to the images."""
    for split, count in (("train", 2), ("valid", 1)):
        files = [f"img{i}_jpg.rf.{split}.jpg" for i in range(count)]
        t.images(f"{split}/{{}}", files)
        t.coco(f"{split}/_annotations.coco.json", files, CATS[:count])
    t.put("README.roboflow.txt", "exported via roboflow\n")


@raw_layout(detection(3, CAT_BOXES))
def label_studio_yolo(t: Tree) -> None:
    """Label Studio's YOLO export: images/, labels/, classes.txt, notes.json."""
    for i in range(3):
        t.image(f"images/0a-{i}.jpg", i)
        t.put(f"labels/0a-{i}.txt", yolo(IDS[i], i))
    t.lines("classes.txt", ["cat", "dog"])
    t.json("notes.json", {"categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}], "info": {"year": 2023}})


DATA_YAML = "train: ../train/images\nval: ../valid/images\n\nnc: 2\nnames: ['cat', 'dog']\n"


@raw_layout(detection({"train": 3, "val": 1}, {"cat": 3, "dog": 1}))
def yolov5_images_labels(t: Tree) -> None:
    """Ultralytics' dataset documentation: images/{train,val}, labels/{train,val}, data.yaml with names by id."""
    for split, count in (("train", 3), ("val", 1)):
        for i in range(count):
            t.image(f"images/{split}/im{i}.jpg", i)
            t.put(f"labels/{split}/im{i}.txt", yolo(IDS[i], i))
    t.put("data.yaml", "path: ../datasets/pets\ntrain: images/train\nval: images/val\n\nnames:\n  0: cat\n  1: dog\n")


@raw_layout(detection({"train": 3, "val": 1}, {"cat": 3, "dog": 1}))
def roboflow_yolov8(t: Tree) -> None:
    """Roboflow's YOLOv8 export: {train,valid}/{images,labels}, data.yaml, README files."""
    for split, count in (("train", 3), ("valid", 1)):
        for i in range(count):
            t.image(f"{split}/images/im{i}_jpg.rf.0.jpg", i)
            t.put(f"{split}/labels/im{i}_jpg.rf.0.txt", yolo(IDS[i], i))
    t.put("data.yaml", DATA_YAML + "\nroboflow:\n  workspace: pets\n  version: 1\n")
    t.put("README.dataset.txt", "pets\n")
    t.put("README.roboflow.txt", "pets\n")


@raw_layout(
    detection(2, CAT_BOXES),
    detection({"train": 1, "val": 1}, CAT_BOXES),
    detection({"train": 1, "test": 1}, CAT_BOXES),
    refusal=True,
)
def darknet(t: Tree) -> None:
    """AlexeyAB/darknet, how to train: data/obj.names, data/obj.data, data/train.txt, data/obj/*.jpg with *.txt."""
    for i in range(2):
        t.image(f"data/obj/img{i}.jpg", i)
        t.put(f"data/obj/img{i}.txt", yolo(IDS[i], i))
    t.lines("data/obj.names", ["cat", "dog"])
    t.lines(
        "data/obj.data",
        [
            "classes = 2",
            "train = data/train.txt",
            "valid = data/test.txt",
            "names = data/obj.names",
            "backup = backup/",
        ],
    )
    t.lines("data/train.txt", ["data/obj/img0.jpg"])
    t.lines("data/test.txt", ["data/obj/img1.jpg"])


@raw_layout(detection({"train": 2}, CAT_BOXES))
def cvat_yolo(t: Tree) -> None:
    """CVAT's YOLO export: obj.data, obj.names, train.txt, obj_train_data/."""
    for i in range(2):
        t.image(f"obj_train_data/frame_{i:06d}.png", i)
        t.put(f"obj_train_data/frame_{i:06d}.txt", yolo(IDS[i], i))
    t.lines("obj.names", ["cat", "dog"])
    t.lines("obj.data", ["classes = 2", "train = data/train.txt", "names = data/obj.names", "backup = backup/"])
    t.lines("train.txt", [f"data/obj_train_data/frame_{i:06d}.png" for i in range(2)])


@raw_layout(detection(3, CAT_BOXES))
def labelimg_yolo_same_folder(t: Tree) -> None:
    """LabelImg in YOLO mode: each *.txt next to its image, and classes.txt."""
    for i in range(3):
        t.image(f"img{i}.jpg", i)
        t.put(f"img{i}.txt", yolo(IDS[i], i))
    t.lines("classes.txt", ["cat", "dog"])


@raw_layout(detection({"train": 2}, ID_BOXES), detection({"train": 2}, {"class_0": 2, "class_1": 1}), refusal=True)
def coco128(t: Tree) -> None:
    """Ultralytics' coco128.zip:

    coco128/{images,labels}/train2017, LICENSE, README.txt; the names are in another repository.
    """
    for i in range(2):
        t.image(f"coco128/images/train2017/{i:012d}.jpg", i)
        t.put(f"coco128/labels/train2017/{i:012d}.txt", yolo(IDS[i], i))
    t.put("coco128/LICENSE", "GPL\n")
    t.put("coco128/README.txt", "COCO128\n")


@raw_layout(detection({"train": 3, "val": 1}, {"cat": 3, "dog": 1}))
def yolo_background_images(t: Tree) -> None:
    """Ultralytics' documentation: an image without objects needs no label file."""
    for split, count in (("train", 3), ("val", 1)):
        for i in range(count):
            t.image(f"{split}/images/im{i}.jpg", i)
            if IDS[i]:
                t.put(f"{split}/labels/im{i}.txt", yolo(IDS[i], i))
    t.put("data.yaml", DATA_YAML)


def yolo_polygon(name: int, box: Sequence[int], number: int) -> str:
    numbers = [int(one) for one in corners(box).split()]
    return (
        f"{name} "
        + " ".join([f"{one / ((16 if j % 2 == 0 else 12) + number):.6f}" for j, one in enumerate(numbers)])
        + "\n"
    )


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}), refusal=True)
def yolov8_segment(t: Tree) -> None:
    """Ultralytics' segmentation format: class and a polygon a line (here with five corners)."""
    for split, count in (("train", 2), ("val", 1)):
        for i in range(count):
            t.image(f"images/{split}/{i}.jpg", i)
            lines = []
            for name, box in zip(IDS[i], BOXES, strict=False):
                first = yolo_polygon(name, box, i)
                lines.append(first.rstrip() + f" {box[0] / (16 + i):.6f} {5 / (12 + i):.6f}\n")
            t.put(f"labels/{split}/{i}.txt", "".join(lines))
    t.put("data.yaml", "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n")


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}), refusal=True)
def yolov8_obb(t: Tree) -> None:
    """Ultralytics' OBB format: class and four corners a line (here of boxes that are not rotated)."""
    for split, count in (("train", 2), ("val", 1)):
        for i in range(count):
            t.image(f"images/{split}/{i}.jpg", i)
            t.put(
                f"labels/{split}/{i}.txt",
                "".join([yolo_polygon(name, box, i) for name, box in zip(IDS[i], BOXES, strict=False)]),
            )
    t.put("data.yaml", "path: .\ntrain: images/train\nval: images/val\nnames:\n  0: cat\n  1: dog\n")


@raw_layout(detection({"train": 2, "val": 1}, {"person": 4}), refusal=True)
def yolov8_pose(t: Tree) -> None:
    """Ultralytics' pose format: class, box, then key points (x, y, visible); kpt_shape in the YAML file."""
    for split, count in (("train", 2), ("val", 1)):
        for i in range(count):
            t.image(f"images/{split}/{i}.jpg", i)
            lines = [
                f"{line} 0.400000 0.300000 2 0.500000 0.350000 1" for line in yolo((0, 0)[: i + 1], i).splitlines()
            ]
            t.lines(f"labels/{split}/{i}.txt", lines)
    t.put("data.yaml", "path: .\ntrain: images/train\nval: images/val\nkpt_shape: [2, 3]\nnames:\n  0: person\n")


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}), refusal=True)
def roboflow_createml(t: Tree) -> None:
    """Roboflow's CreateML export:

    {train,valid}/_annotations.createml.json with centre, width and height in pixels.
    """
    for split, count in (("train", 2), ("valid", 1)):
        t.images(f"{split}/im{{}}_jpg.rf.0.jpg", range(count))
        listed = [
            {
                "image": f"im{i}_jpg.rf.0.jpg",
                "annotations": [
                    {
                        "label": name,
                        "coordinates": {"x": (x0 + x1) / 2, "y": (y0 + y1) / 2, "width": x1 - x0, "height": y1 - y0},
                    }
                    for name, (x0, y0, x1, y1) in zip(CATS[i], BOXES, strict=False)
                ],
            }
            for i in range(count)
        ]
        t.json(f"{split}/_annotations.createml.json", listed)


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}), refusal=True)
def roboflow_tensorflow_csv(t: Tree) -> None:
    """Roboflow's TensorFlow export:

    {train,valid}/_annotations.csv (filename,width,height,class,xmin,ymin,xmax,ymax).
    """
    for split, count in (("train", 2), ("valid", 1)):
        t.images(f"{split}/im{{}}_jpg.rf.0.jpg", range(count))
        rows = [
            [f"im{i}_jpg.rf.0.jpg", 16 + i, 12 + i, name, *box]
            for i in range(count)
            for name, box in zip(CATS[i], BOXES, strict=False)
        ]
        t.csv(
            f"{split}/_annotations.csv",
            [["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"], *rows],
        )


@raw_layout(table({"train": 3, "val": 1}, {"cat": "Int64|Label", "dog": "Int64|Label"}), refusal=True)
def roboflow_multiclass(t: Tree) -> None:
    """Roboflow's multi-label export: {train,valid}/_classes.csv (filename, one column per class)."""
    for split, count in (("train", 3), ("valid", 1)):
        t.images(f"{split}/im{{}}_jpg.rf.0.jpg", range(count))
        rows = [[f"im{i}_jpg.rf.0.jpg", 1, i % 2] for i in range(count)]
        t.put(
            f"{split}/_classes.csv", "filename, cat, dog\n" + "".join([f"{name}, {a}, {b}\n" for name, a, b in rows])
        )


@raw_layout(detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}), refusal=True)
def roboflow_darknet(t: Tree) -> None:
    """Roboflow's Darknet export: {train,valid}/*.jpg with *.txt and _darknet.labels."""
    for split, count in (("train", 2), ("valid", 1)):
        for i in range(count):
            t.image(f"{split}/im{i}_jpg.rf.0.jpg", i)
            t.put(f"{split}/im{i}_jpg.rf.0.txt", yolo(IDS[i], i))
        t.lines(f"{split}/_darknet.labels", ["cat", "dog"])


@raw_layout(
    detection({"train": 2, "val": 1}, {"cat": 3, "dog": 1}),
    detection({"train": 2, "val": 1}, {"0": 3, "1": 1}),
    refusal=True,
)
def roboflow_yolov4(t: Tree) -> None:
    """Roboflow's YOLOv4 PyTorch export: {train,valid}/_annotations.txt (name x0,y0,x1,y1,id …), _classes.txt."""
    for split, count in (("train", 2), ("valid", 1)):
        t.images(f"{split}/im{{}}_jpg.rf.0.jpg", range(count))
        lines = [
            f"im{i}_jpg.rf.0.jpg "
            + " ".join([",".join(map(str, (*box, name))) for name, box in zip(IDS[i], BOXES, strict=False)])
            for i in range(count)
        ]
        t.lines(f"{split}/_annotations.txt", lines)
        t.lines(f"{split}/_classes.txt", ["cat", "dog"])
