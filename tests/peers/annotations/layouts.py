"""Small datasets in the layouts of public ones, as their authors publish them: two images or a few."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 20, 10
Build = Callable[[Path], None]


def put(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def picture(path: Path, seed: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
    Image.fromarray(pixels).save(path)


def levels(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


def half(value: int, other: int = 0, dtype: type = np.uint8) -> np.ndarray:
    """`value` in the left half, `other` in the right."""
    mask = np.full((HEIGHT, WIDTH), other, dtype)
    mask[:, : WIDTH // 2] = value
    return mask


CVAT_HEAD = (
    '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version><meta><task><id>1</id><labels>'
    "<label><name>car</name><attributes></attributes></label><label><name>bus</name><attributes></attributes></label>"
    "</labels></task></meta>\n"
)


def cvat(root: Path, tail: str = "", head: str = "") -> None:
    """A task of CVAT, exported as `CVAT for images`: boxes, a polygon, points, a line and a rotated box."""
    for i in range(2):
        picture(root / f"images/{i}.png", i)
    shapes = (
        '<box label="car" occluded="1" xtl="1" ytl="2" xbr="8" ybr="6" z_order="0"></box>'
        '<polygon label="bus" occluded="0" points="2,1;12,1;12,9;2,9" z_order="0"></polygon>'
        '<points label="car" occluded="0" points="3,3;4,4" z_order="0"></points>'
        '<polyline label="car" occluded="0" points="0,0;5,5" z_order="0"></polyline>'
    )
    put(
        root / "annotations.xml",
        CVAT_HEAD.replace("\n<annotations>", f"\n{head}<annotations>")
        + f'<image id="0" name="0.png" width="{WIDTH}" height="{HEIGHT}">{shapes}</image>'
        + f'<image id="1" name="1.png" width="{WIDTH}" height="{HEIGHT}"></image>{tail}</annotations>\n',
    )


def mot(root: Path) -> None:
    """MOTChallenge: a sequence of frames, and its boxes."""
    for i in (1, 2):
        picture(root / f"img1/{i:06d}.jpg", i)
    put(root / "gt/gt.txt", "1,1,1,2,7,4,1,1,1\n2,1,2,2,7,4,1,2,0.5\n")
    put(root / "gt/labels.txt", "pedestrian\nrider\n")
    put(
        root / "seqinfo.ini",
        f"[Sequence]\nname=a\nimDir=img1\nframeRate=30\nseqLength=2\nimWidth={WIDTH}\nimHeight={HEIGHT}\nimExt=.jpg\n",
    )


def wider_face(root: Path) -> None:
    for split, event in (("train", "0--Parade"), ("val", "0--Parade")):
        picture(root / f"WIDER_{split}/images/{event}/a.jpg", len(split))
        text = f"{event}/a.jpg\n2\n1 2 7 4 0 0 0 0 0 0\n9 2 7 4 1 0 0 0 2 0\n"
        put(root / f"wider_face_split/wider_face_{split}_bbx_gt.txt", text)


def label_me(root: Path) -> None:
    """LabelMe of MIT: an XML file per image, with polygons."""
    picture(root / "Images/a.jpg")
    points = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in ((2, 1), (12, 1), (12, 9), (2, 9)))
    put(
        root / "Annotations/a.xml",
        "<annotation><filename>a.jpg</filename><folder></folder><source><sourceImage></sourceImage></source>"
        f"<imagesize><nrows>{HEIGHT}</nrows><ncols>{WIDTH}</ncols></imagesize><object><name>car</name>"
        "<deleted>0</deleted><verified>0</verified><occluded>no</occluded><attributes></attributes><id>0</id>"
        f"<parts><hasparts></hasparts><ispartof></ispartof></parts><polygon>{points}<username>a</username></polygon>"
        "</object></annotation>",
    )


def vott(root: Path, *more: str) -> None:
    """VoTT, with an image, and others by their paths."""
    picture(root / "a.jpg")
    region = {
        "id": "r",
        "type": "RECTANGLE",
        "tags": ["car"],
        "boundingBox": {"height": 4, "width": 7, "left": 1, "top": 2},
        "points": [],
    }
    assets = {
        path: {"asset": {"name": Path(path).name, "path": path}, "regions": [region], "version": "2.2.0"}
        for path in ("file:/a.jpg", *more)
    }
    put(root / "train-export.json", json.dumps({"name": "n", "tags": [{"name": "car"}], "assets": assets}))


def dota(root: Path) -> None:
    """DOTA: a header, then four corners, a class and a difficulty per line."""
    picture(root / "train/images/P0000.png")
    lines = "imagesource:GoogleEarth\ngsd:0.1\n2 3 10 3 10 7 2 7 plane 0\n5 1 9 5 5 9 1 5 ship 1\n"
    put(root / "train/labelTxt/P0000.txt", lines)


def celeba(root: Path) -> None:
    for i in (1, 2):
        picture(root / f"Img/img_align_celeba/{i:06d}.jpg", i)
    anno = root / "Anno"
    put(anno / "identity_CelebA.txt", "000001.jpg 3\n000002.jpg 1\n")
    put(anno / "list_attr_celeba.txt", "2\nBald Young\n000001.jpg -1 1\n000002.jpg 1 -1\n")
    marks = (
        "lefteye_x lefteye_y righteye_x righteye_y nose_x nose_y leftmouth_x leftmouth_y rightmouth_x rightmouth_y"
    )
    points = "3 3 7 3 5 5 3 7 7 7"
    landmarks = f"2\n{marks}\n000001.jpg {points}\n000002.jpg {points}\n"
    put(anno / "list_landmarks_align_celeba.txt", landmarks)
    put(root / "Eval/list_eval_partition.txt", "000001.jpg 0\n000002.jpg 1\n")


def lfw(root: Path) -> None:
    for name in ("Ann_Lee", "Bob_Ray"):
        for i in (1, 2):
            picture(root / f"images/{name}/{name}_{i:04d}.jpg", i)
    put(root / "annotations/people.txt", "2\nAnn_Lee\t2\nBob_Ray\t2\n")
    put(root / "annotations/pairs.txt", "1\t1\nAnn_Lee\t1\t2\nAnn_Lee\t1\tBob_Ray\t2\n")


def mnist(root: Path) -> None:
    """The four gzip files of MNIST."""
    for split, count in (("train", 3), ("t10k", 2)):
        pixels = (np.arange(count * 784) // count % 251).astype(np.uint8)
        images = struct.pack(">IIII", 2051, count, 28, 28) + pixels.tobytes()
        labels = struct.pack(">II", 2049, count) + bytes([7, 0, 9][:count])
        put(root / f"{split}-images-idx3-ubyte.gz", gzip.compress(images))
        put(root / f"{split}-labels-idx1-ubyte.gz", gzip.compress(labels))


def cifar(root: Path) -> None:
    """CIFAR-10 in its version for Python: pickles of planes, all of red, then of green, then of blue."""
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    put(root / "batches.meta", pickle.dumps({"label_names": names, "num_vis": 3072}, protocol=4))
    for name, blue in (("data_batch_1", 10), ("test_batch", 20)):
        planes = np.repeat(np.array([[250, 100, blue]], np.uint8), 1024, axis=1)
        data = {"batch_label": name, "labels": [3], "data": planes, "filenames": [f"{name}_cat.png"]}
        put(root / name, pickle.dumps(data, protocol=4))


def ade20k(root: Path) -> None:
    """ADE20K of 2020: classes and parts in the colours of a mask, described by a JSON file."""
    folder = root / "training/street"
    picture(folder / "a.jpg")
    # Red / 10 × 256 + green is the number of the class.
    levels(folder / "a_seg.png", np.stack([half(10), half(1, 1), half(0)], axis=-1))
    levels(folder / "a/instance_000_a.png", half(255))
    levels(folder / "a/instance_001_a.png", half(0, 255))
    levels(folder / "a_parts_1.png", np.stack([half(0), half(2), half(0)], axis=-1))
    objects = [
        {
            "id": i,
            "name_ndx": number,
            "name": name,
            "raw_name": name,
            "attributes": [],
            "parts": {"part_level": level},
            "occluded": "no",
            "crop": False,
            "polygon": {"x": [0, 9, 9], "y": [0, 0, 9]},
            "instance_mask": f"a/instance_00{i % 2}_a.png",
        }
        for i, (number, name, level) in enumerate([(257, "car", 0), (1, "sky", 0), (2, "wheel", 1)])
    ]
    put(folder / "a.json", json.dumps({"annotation": {"filename": "a.jpg", "object": objects}}))


def mapillary(root: Path) -> None:
    """Mapillary Vistas 2.0: instances in 16 bits, class × 256 + number."""
    picture(root / "training/images/a.jpg")
    levels(root / "training/v2.0/instances/a.png", half(1 * 256 + 0, 2 * 256 + 1, np.uint16))
    labels = [
        {"name": name, "readable": name, "evaluate": True, "instances": True, "color": [i, i, i]}
        for i, name in enumerate(["bird", "car", "road"])
    ]
    put(
        root / "config_v2.0.json",
        json.dumps({"labels": labels, "version": "2.0", "mapping": "", "folder_structure": ""}),
    )


def mvtec(root: Path) -> None:
    """MVTec AD: good images to train with, defects of several kinds and their masks."""
    picture(root / "train/good/000.png", 1)
    picture(root / "test/good/000.png", 2)
    picture(root / "test/broken/000.png", 3)
    levels(root / "ground_truth/broken/000_mask.png", half(255))


def icdar_localization(root: Path) -> None:
    picture(root / "train/images/img_1.png")
    put(root / "train/gt_img_1.txt", '1 2 8 6 "word"\n9 2 16 6 "###"\n')


def synthia_sf(root: Path) -> None:
    """SYNTHIA-SF: the red channel of a PNG is the class."""
    picture(root / "RGBLeft/0000000.png")
    picture(root / "DepthLeft/0000000.png")
    values = half(6)
    levels(root / "GTLeft/0000000.png", np.stack([values, values * 0, values * 0], axis=-1))


def brats(root: Path) -> None:
    put(root / "imagesTr/BRATS_001.nii.gz", gzip.compress(b"\0" * 400))
    put(root / "labelsTr/BRATS_001.nii.gz", gzip.compress(b"\0" * 400))
    put(root / "labels.txt", "background\nedema\n")
