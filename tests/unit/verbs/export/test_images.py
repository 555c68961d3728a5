"""Images out of records: class folders, masks, boxes, and names that nobody should trust."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.testing import damage, wire
from rekord.verbs.export.images import to_pixels
from rekord.verbs.export.reading import UniqueNames, safe_name, safe_part


def image(colour: Any = 0, *, mode: str = "RGB", size: tuple[int, int] = (8, 6), format: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, format)
    return file.getvalue()


def payloads(folder: Path) -> list[bytes]:
    return sorted(payload for path in folder.glob("*.tfrecord") for payload in rk.records(path))


def files(folder: Path) -> dict[str, bytes]:
    found = [Path(root) / name for root, _, names in os.walk(folder) for name in names]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def image_tree(folder: Path, *places: str) -> Path:
    for i, place in enumerate(places):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image((i, 9, 9), format="JPEG" if place.endswith(".jpg") else "PNG"))
    return folder


def test_an_image_folder_comes_back_as_it_was(tmp_path: Path) -> None:
    raw = image_tree(tmp_path / "raw", "cat/1.jpg", "cat/2.png", "dög/1.jpg", "dög/more/3.jpeg.jpg")
    rk.write(raw, tmp_path / "ds", layout="classification", progress=False)
    report = rk.export(tmp_path / "ds", tmp_path / "out")
    assert files(tmp_path / "out") == files(raw)
    assert report.format == "images"
    assert report.left_out == ("format", "height", "width", "channels", "colorspace")
    rk.write(tmp_path / "out", tmp_path / "again", layout="classification", progress=False)
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")


def test_splits_are_the_first_folders(tmp_path: Path) -> None:
    raw = image_tree(tmp_path / "raw", "train/cat/1.jpg", "train/dog/2.jpg", "val/cat/3.jpg")
    rk.write(raw, tmp_path / "ds", split="source", progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out", format="images")
    assert files(tmp_path / "out") == files(raw)
    rk.export(tmp_path / "ds", tmp_path / "one", format="images", split="val")
    assert set(files(tmp_path / "one")) == {"cat/3.jpg"}


def test_masks_lie_in_a_tree_like_that_of_their_images(tmp_path: Path) -> None:
    for i in range(3):
        for kind, data in (("images", image((i, 2, 3), format="JPEG")), ("masks", image(i, mode="L"))):
            path = tmp_path / "raw" / kind / "town" / f"{i}.{'jpg' if kind == 'images' else 'png'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    source = rk.sources.segmentation(tmp_path / "raw/images", tmp_path / "raw/masks", classes=4)
    rk.write(source, tmp_path / "ds", progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out", format="images")
    assert files(tmp_path / "out") == files(tmp_path / "raw")
    again = rk.sources.segmentation(tmp_path / "out/images", tmp_path / "out/masks", classes=4)
    rk.write(again, tmp_path / "again", progress=False)
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")


def named_dataset(tmp_path: Path, names: list[Any], **more: Any) -> Path:
    schema = rk.Schema({"image": rk.Image(), "filename": rk.Text(), **more.pop("features", {})})
    rows = [
        {
            "image": image((i % 256, 0, 0)),
            "filename": name,
            **{key: values[i] for key, values in more.items()},
        }
        for i, name in enumerate(names)
    ]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    return tmp_path / "ds"


HOSTILE = [
    "../../escape.png",
    "/etc/passwd",
    "..\\..\\windows.png",
    "C:\\boot.png",
    "nul\0byte.png",
    "NUL.png",
    "con",
    ".hidden.png",
    "a/../../b.png",
    "..",
    "",
    "   ",
    "same.png",
    "same.png",
    "SAME.png",
    "same.png/inside.png",
    "trailing. ",
    "line\nfeed.png",
    "é" * 300 + ".png",
    "日本語.png",
    "e\u0301.png",
    "\u00e9.png",
    "~/home.png",
    "x:stream.png",
    "a" * 20 + "/" * 300 + "deep.png",
]


@pytest.mark.parametrize("kind", ["class", "mask", "boxes"])
def test_no_name_leaves_the_folder_of_its_split_or_class(tmp_path: Path, kind: str) -> None:
    names = [*["same.png"] * 6, "same.png/inside.png", "same.png/inside.png", "same.png/in.png/deep.png"]
    features = {
        "class": {"label": rk.Label(["cat"])},
        "mask": {"mask": rk.Mask(classes=4)},
        "boxes": {"boxes": rk.Boxes(), "labels": rk.Int64((None,))},
    }[kind]
    values = {"label": 0, "mask": image(mode="L"), "boxes": [], "labels": []}
    schema = rk.Schema({"image": rk.Image(), "filename": rk.Text(), **features})
    rows = [{"image": image(), "filename": name, **{column: values[column] for column in features}} for name in names]
    rk.write(
        rows * 2,
        tmp_path / "ds",
        schema=schema,
        split={"a": 0.5, "b": 0.5},
        stratify="filename",
        progress=False,
    )
    rk.export(tmp_path / "ds", tmp_path / "out", format="coco" if kind == "boxes" else "images")
    folders = {"class": [""], "mask": ["images/", "masks/"], "boxes": ["images/"]}[kind]
    below = "cat/" if kind == "class" else ""
    for folder in folders:
        found = [name for name in files(tmp_path / "out") if name.startswith(folder) and name.endswith(".png")]
        assert len(found) == len(rows) * 2
        assert all(name.startswith((f"{folder}a/{below}", f"{folder}b/{below}")) for name in found)


@pytest.mark.parametrize("format", ["images", "tar"])
def test_no_name_leaves_the_folder_or_takes_the_place_of_another(tmp_path: Path, format: str) -> None:
    place = named_dataset(tmp_path, HOSTILE)
    before = set(tmp_path.iterdir())
    if format == "tar":
        import tarfile

        rk.export(place, tmp_path / "out.tar")
        with tarfile.open(tmp_path / "out.tar") as archive:
            names = [name for name in archive.getnames() if not name.endswith(".json")]
        assert set(tmp_path.iterdir()) - before == {tmp_path / "out.tar"}
    else:
        rk.export(place, tmp_path / "out", format="images")
        names = list(files(tmp_path / "out"))
        assert set(tmp_path.iterdir()) - before == {tmp_path / "out"}
        assert len(list(rk.sources.image_folder(tmp_path / "out").parts()[0].content[1])) == len(HOSTILE)
    assert len(set(map(str.casefold, names))) == len(HOSTILE)
    for name in names:
        assert not name.startswith("/")
        assert ".." not in name.split("/")
        assert all(0 < len(part.encode()) < 255 and part[0] != "." for part in name.split("/"))
        assert not any(ord(letter) < 32 for letter in name)
    assert "日本語.png" in names


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("cat/1.jpg", "cat/1.jpg"),
        ("../1.jpg", "1.jpg"),
        ("a//b/./c", "a/b/c"),
        ("..", ""),
        (".git/config", "_git/config"),
        ("aux.png", "_aux.png"),
        ('a<b>:"|?*.png', "a_b______.png"),
        ("\ud800x", "_x"),
        ("Thumbs.db", "_Thumbs.db"),
    ],
)
def test_a_name_is_made_safe(name: str, safe: str) -> None:
    assert safe_name(name) == safe


def test_a_class_is_one_folder_whatever_its_name(tmp_path: Path) -> None:
    assert safe_part("a/b") == "a_b"
    assert safe_part("..") == "_"


def test_many_equal_names_are_numbered_without_trying_them_all() -> None:
    names = UniqueNames()
    taken = [names.take("x", ".png") for _ in range(5000)]
    assert taken[:3] == ["x", "x-2", "x-3"]
    assert len(set(taken)) == 5000


def test_two_classes_never_share_a_folder(tmp_path: Path) -> None:
    label = rk.Label(["a/b", "a_b"])
    place = named_dataset(tmp_path, ["1", "2"], features={"label": label}, label=[0, 1])
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(place, tmp_path / "out")
    assert (caught.value.code, caught.value.location.record) == ("X562", 1)
    assert caught.value.location.feature == "label"
    assert not (tmp_path / "out").exists()


def test_what_is_no_image_is_named(tmp_path: Path) -> None:
    frames = damage.frames([wire.example_bytes({"image/encoded": [data]}) for data in (image(), b"text")])
    (tmp_path / "a.tfrecord").write_bytes(frames)
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(tmp_path / "a.tfrecord", tmp_path / "out")
    place = caught.value.location
    assert (caught.value.code, place.record, place.feature) == ("X561", 1, "image/encoded")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tfrecord"]


def test_records_of_other_people_are_known_by_their_keys(tmp_path: Path) -> None:
    rows = [
        {
            "image/encoded": [image((i, 0, 0))],
            "image/filename": [b"%d.png" % i],
            "image/class/label": [i % 2],
        }
        | {"image/class/text": [[b"cat", b"dog"][i % 2]]}
        for i in range(4)
    ]
    (tmp_path / "a.tfrecord").write_bytes(damage.frames([wire.example_bytes(row) for row in rows]))
    rk.export(tmp_path / "a.tfrecord", tmp_path / "out")
    assert sorted(files(tmp_path / "out")) == ["cat/0.png", "cat/2.png", "dog/1.png", "dog/3.png"]


def coco_folder(folder: Path, splits: tuple[str, ...] = ("train",)) -> Path:
    rng = np.random.default_rng(3)
    for number, split in enumerate(splits):
        images, boxes = [], []
        for i in range(5):
            name = f"{split}{i}.jpg"
            path = folder / "images" / (split if len(splits) > 1 else "") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(image((i, 5, 5), size=(641, 479), format="JPEG"))
            identity = 100 * (number + 1) + 7 * i
            images.append({"id": identity, "file_name": name, "width": 641, "height": 479})
            for k in range(i):
                x, y, w, h = (rng.random(4) * [400, 300, 200, 150] + [0, 0, 1, 1]).round(2).tolist()
                one = {"id": len(boxes) + 1, "image_id": identity, "category_id": [1, 5, 90][k % 3]}
                boxes.append({**one, "bbox": [x, y, w, h], "iscrowd": k % 2, "area": round(w * h, 1)})
        categories = [{"id": 1, "name": "cat"}, {"id": 5, "name": "big dog"}, {"id": 90, "name": "ü<&>"}]
        (folder / "annotations").mkdir(exist_ok=True)
        text = json.dumps({"images": images, "annotations": boxes, "categories": categories})
        (folder / "annotations" / f"instances_{split}.json").write_text(text)
    return folder


def test_boxes_as_coco_are_those_that_came_in(tmp_path: Path) -> None:
    raw = coco_folder(tmp_path / "raw")
    rk.write(raw, tmp_path / "ds", progress=False)
    report = rk.export(tmp_path / "ds", tmp_path / "out", format="coco")
    before = json.loads((raw / "annotations/instances_train.json").read_text())
    after = json.loads((tmp_path / "out/annotations/instances_train.json").read_text())
    assert after["images"] == before["images"]
    assert after["categories"] == before["categories"]
    assert after["annotations"] == before["annotations"]
    assert report.left_out == ("format", "sha256", "height", "width")
    rk.write(tmp_path / "out", tmp_path / "again", progress=False)
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")


def test_coco_has_a_json_file_for_each_split(tmp_path: Path) -> None:
    raw = coco_folder(tmp_path / "raw", ("train", "val"))
    rk.write(raw, tmp_path / "ds", split="source", progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out", format="coco")
    again = rk.write(tmp_path / "out", tmp_path / "again", split="source", progress=False)
    assert {name: len(split) for name, split in again.splits.items()} == {"train": 5, "val": 5}
    assert payloads(tmp_path / "again") == payloads(tmp_path / "ds")


def test_boxes_as_voc_lead_back_to_the_same_records(tmp_path: Path) -> None:
    raw = coco_folder(tmp_path / "raw")
    ds = rk.write(raw, tmp_path / "ds", progress=False)
    report = rk.export(tmp_path / "ds", tmp_path / "out", format="voc")
    assert set(report.left_out) == {"format", "sha256", "height", "width", "source_id", "is_crowd", "area"}
    names = sorted(path.stem for path in (tmp_path / "out/Annotations").iterdir())
    assert (tmp_path / "out/ImageSets/Main/train.txt").read_text().split() == names
    tree = ElementTree.parse(tmp_path / "out/Annotations/train3.xml")
    assert [one.text for one in tree.iter("name")] == ["cat", "big dog", "ü<&>"]
    source = rk.sources.voc(tmp_path / "out", label_map=tmp_path / "out/label_map.pbtxt")
    again = rk.write(source, tmp_path / "again", progress=False)
    for a, b in zip(ds["train"], again["train"], strict=True):
        assert a["image"] == b["image"]
        assert a["boxes"].tolist() == b["boxes"].tolist()
        assert a["labels"].tolist() == b["labels"].tolist()
        assert list(a["class_names"]) == list(b["class_names"])


def test_a_class_0_leaves_no_label_map_that_lacks_it(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image(), "boxes": rk.Boxes(), "labels": rk.Label(["cat", "dog"], shape=(None,))})
    row = {"image": image(), "boxes": [[0.25, 0.5, 0.5, 1.0]] * 2, "labels": [0, 1]}
    rk.write([row], tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out", format="voc")
    assert not (tmp_path / "out/label_map.pbtxt").exists()
    again = rk.write(rk.sources.voc(tmp_path / "out"), tmp_path / "again", progress=False)
    assert list(again["train"][0]["class_names"]) == ["cat", "dog"]


def test_any_stored_box_is_the_same_after_its_way_through_pixels() -> None:
    rng = np.random.default_rng(11)
    for width, height in ((641, 479), (4032, 3024), (7, 5)):
        scale = np.array([width, height] * 2, np.float64)
        pixels = (rng.random((500, 4)) * scale).round(2).astype(np.float32)
        stored = (pixels.astype(np.float64) / scale).astype(np.float32)
        assert to_pixels(stored, scale).astype(np.float32).tolist() == pixels.tolist()


def test_boxes_of_records_without_a_schema_are_found_by_their_keys(tmp_path: Path) -> None:
    key = "image/object/bbox"
    rows = [
        {"image/encoded": [image(size=(10, 20))], f"{key}/xmin": [0.1] * n, f"{key}/xmax": [0.5] * n}
        | {f"{key}/ymin": [0.25] * n, f"{key}/ymax": [0.75] * n, "image/object/class/label": [3] * n}
        for n in (1, 2)
    ]
    (tmp_path / "a.tfrecord").write_bytes(damage.frames([wire.example_bytes(row) for row in rows]))
    rk.export(tmp_path / "a.tfrecord", tmp_path / "out", format="coco")
    found = json.loads((tmp_path / "out/annotations/instances_all.json").read_text())
    assert [one["bbox"] for one in found["annotations"]] == [[1.0, 5.0, 4.0, 10.0]] * 3
    assert found["categories"] == [{"id": 3, "name": "3"}]


@pytest.mark.parametrize(
    ("box", "labels", "feature"),
    [([0.1, 0.1, 1.5, 0.2], [1], "boxes"), ([0.1, 0.1, 0.5, 0.2], [1, 2], "labels")],
)
def test_a_box_that_cannot_be_meant_is_named(
    tmp_path: Path, box: list[float], labels: list[int], feature: str
) -> None:
    schema = rk.Schema({"image": rk.Image(), "boxes": rk.Boxes(), "labels": rk.Int64((None,))})
    good = {"image": image(), "boxes": [[0.1, 0.1, 0.2, 0.2]], "labels": [1]}
    rows = [good, {"image": image(), "boxes": [box], "labels": labels}]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(tmp_path / "ds", tmp_path / "out", format="voc")
    place = caught.value.location
    assert (caught.value.code, place.record, place.feature) == ("X560", 1, feature)


def test_one_class_with_two_names_is_refused(tmp_path: Path) -> None:
    schema = rk.Schema(
        {
            "image": rk.Image(),
            "boxes": rk.Boxes(),
            "labels": rk.Int64((None,)),
            "class_names": rk.Text((None,)),
        }
    )
    box = [[0.1, 0.1, 0.2, 0.2]]
    rows = [{"image": image(), "boxes": box, "labels": [1], "class_names": [name]} for name in ("cat", "dog")]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    with pytest.raises(rk.DatasetError) as caught:
        rk.export(tmp_path / "ds", tmp_path / "out", format="coco")
    assert (caught.value.code, caught.value.location.record) == ("X562", 1)


def test_names_for_voc_have_no_spaces_and_no_folders(tmp_path: Path) -> None:
    schema = rk.Schema({"image": rk.Image(), "filename": rk.Text(), "boxes": rk.Boxes(), "labels": rk.Int64((None,))})
    rows = [
        {"image": image(), "filename": name, "boxes": np.zeros((0, 4)), "labels": []}
        for name in ("a b/c d.png", "#x.png", "a_b_c_d.png")
    ]
    rk.write(rows, tmp_path / "ds", schema=schema, progress=False)
    rk.export(tmp_path / "ds", tmp_path / "out", format="voc")
    listed = (tmp_path / "out/ImageSets/Main/train.txt").read_text().splitlines()
    assert listed == ["a_b_c_d", "_x", "a_b_c_d-2"]
    assert sorted(path.stem for path in (tmp_path / "out/JPEGImages").iterdir()) == sorted(listed)
