"""Which source a path is taken for."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

import rekord as rk
from rekord.sources.detect import detect_source, identify_source
from rekord.testing import example_bytes, frames

JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF"
COCO = json.dumps({"info": {}, "images": [{"id": 1}], "annotations": [], "categories": []})
RECORDS = frames([example_bytes({"label": [1]})])
YOLO = "0 0.5 0.5 0.1 0.1\n"
XML = "<annotation/>"


@pytest.fixture
def tree(tmp_path: Path):
    """Makes files of these names, each with the content that is given for it."""

    def make(files: dict[str, str | bytes]) -> Path:
        root = tmp_path / "data"
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return root

    return make


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.csv", "x,y\n1,2\n", "csv"),
        ("a.tsv", "x\ty\n1\t2\n", "csv"),
        ("a.csv.gz", gzip.compress(b"x,y\n1,2\n", mtime=0), "csv"),
        ("a.csv", "image,label\ncat/1.jpg,cat\n", "image_csv"),
        ("a.csv", "cat/1.jpg,cat\ndog/1.jpg,dog\n", "image_csv"),
        ("a.csv", "path,label\nhttp://x,cat\n", "csv"),
        ("a.csv", "filename,cell,xmin,xmax,ymin,ymax\n1.jpg,RBC,1,2,3,4\n", "boxes_csv"),
        ("a.csv", "1.jpg,1,2,3,4,cat\n", "boxes_csv"),
        ("a.csv", b"\xff\xfe\x00bad", "csv"),
        ("a.jsonl", '{"a": 1}\n', "jsonl"),
        ("a.ndjson", '{"a": 1}\n', "jsonl"),
        ("a.json", '[{"a": 1}]', "jsonl"),
        ("a.json", COCO, "coco"),
        ("a.json", json.dumps(json.loads(COCO), indent=1), "coco"),
        ("a.json", '{"images": ["x"], "text": "a"}\n{"images": [], "text": "b"}\n', "jsonl"),
        ("a.json", '{"a": {"images": [1], "annotations": [2]}}\n', "jsonl"),
        ("a.json", '{"annotations": [' + '{"id": 1},' * 50_000, "coco"),
        ("a.parquet", b"PAR1", "parquet"),
        ("a.arrow", b"ARROW1", "arrow"),
        ("a.feather", b"ARROW1", "arrow"),
        ("a.npy", b"\x93NUMPY", "npy"),
        ("a.npz", b"PK", "npz"),
        ("a.txt", "a line\n", "text"),
        ("a.txt.gz", gzip.compress(b"a line\n", mtime=0), "text"),
        ("a.tar", b"", "webdataset"),
        ("a.tar.gz", b"", "webdataset"),
        ("a.tfrecord", RECORDS, "records"),
        ("a.tfrecord.gz", gzip.compress(RECORDS, mtime=0), "records"),
        ("train-00000-of-00001", RECORDS, "records"),
        ("a", RECORDS, "records"),
        ("a.bin", b"PAR1....", "parquet"),
        ("a.bin", bytes(257) + b"ustar\0", "webdataset"),
    ],
)
def test_a_file_is_known_by_its_name_or_its_first_bytes(tree, name, content, kind):
    path = tree({name: content}) / name
    assert identify_source(path)[:3] == (kind, str(path), None)


@pytest.mark.parametrize(
    ("files", "kind", "below"),
    [
        ({"cat/1.jpg": JPEG, "dog/1.jpg": JPEG}, "image_folder", ""),
        ({"train/cat/1.jpg": JPEG, "val/cat/1.jpg": JPEG}, "image_folder", ""),
        ({"images/1.jpg": JPEG}, "images", "images"),
        ({"Data/Train/cat/1.jpg": JPEG, "Data/Train/dog/1.jpg": JPEG}, "image_folder", "Data"),
        ({"cat/1.jpg": JPEG, "dog/1.jpg": JPEG, "README.txt": "x", "labels.json": "{}"}, "image_folder", ""),
        ({"1.jpg": JPEG, "data.csv": b""}, "images", ""),
        ({"images/1.jpg": JPEG, "list.csv": "image,label\nimages/1.jpg,cat\n"}, "image_csv", ""),
        (
            {"1.jpg": JPEG, "b.csv": "filename,class,xmin,ymin,xmax,ymax\n1.jpg,a,1,2,3,4\n"},
            "boxes_csv",
            "",
        ),
        ({"images/a/1.jpg": JPEG, "masks/a/1.png": JPEG}, "segmentation", "images"),
        ({"img/1.jpg": JPEG, "label/1.png": JPEG}, "segmentation", "img"),
        ({"images/training/1.jpg": JPEG, "annotations/training/1.png": JPEG}, "segmentation", "images"),
        ({"JPEGImages/1.jpg": JPEG, "SegmentationClass/1.png": JPEG}, "segmentation", "JPEGImages"),
        (
            {
                "JPEGImages/1.jpg": JPEG,
                "SegmentationClass/1.png": JPEG,
                "ImageSets/Segmentation/train.txt": "1\n",
            },
            "voc_segmentation",
            "",
        ),
        ({"leftImg8bit/train/a/1.png": JPEG, "gtFine/train/a/1.png": JPEG}, "cityscapes", ""),
        ({"Annotations/1.xml": XML, "JPEGImages/1.jpg": JPEG}, "voc", ""),
        ({"Annotations/1.xml": XML, "JPEGImages/1.jpg": JPEG, "SegmentationClass/1.png": JPEG}, "voc", ""),
        ({"train/1.xml": XML, "train/1.jpg": JPEG}, "voc", ""),
        ({"VOCdevkit/VOC2012/Annotations/1.xml": XML}, "voc", "VOCdevkit/VOC2012"),
        ({"annotations/instances_train.json": COCO, "train/1.jpg": JPEG}, "coco", ""),
        ({"annotations/i.json": COCO, "annotations/panoptic/1.png": JPEG, "images/1.jpg": JPEG}, "coco", ""),
        ({"train/_annotations.coco.json": COCO, "train/1.jpg": JPEG}, "coco", ""),
        ({"all.json": COCO, "1.jpg": JPEG}, "coco", ""),
        ({"images/1.jpg": JPEG, "labels/1.txt": YOLO, "data.yaml": "names: [a]"}, "yolo", ""),
        ({"train/images/1.jpg": JPEG, "train/labels/1.txt": YOLO}, "yolo", ""),
        ({"1.jpg": JPEG, "1.txt": YOLO, "classes.txt": "cat"}, "yolo", ""),
        ({"obj_train_data/1.jpg": JPEG, "obj_train_data/1.txt": YOLO}, "yolo", ""),
        ({"a.csv": "x\n1\n", "b.csv": "x\n2\n", "README.txt": "x"}, "csv", ""),
        ({"a.csv": "image,label\n1.jpg,cat\n", "LICENSE": "x"}, "image_csv", "a.csv"),
        ({"a.jsonl": '{"a": 1}\n', "b.jsonl": '{"a": 1}\n'}, "jsonl", ""),
        ({"x/a.parquet": b"PAR1", "y/b.parquet": b"PAR1", "_SUCCESS": b""}, "parquet", ""),
        ({"a.txt": "x", "b.txt": "y"}, "text", ""),
        ({"000.tar": b"x", "001.tar": b"x"}, "webdataset", ""),
        ({"a.npy": b"\x93NUMPY"}, "npy", ""),
        ({"train-00000-of-00001.tfrecord": RECORDS, "schema.pbtxt": ""}, "records", ""),
        ({"rekord.json": "{}", "train-00000-of-00001.tfrecord": RECORDS}, "records", ""),
        (
            {"dataset_info.json": "{}", "features.json": "{}", "x-train.tfrecord-00000-of-00001": b""},
            "records",
            "",
        ),
        ({"noname": RECORDS}, "records", ""),
    ],
)
def test_a_folder_is_known_by_what_lies_in_it(tree, files, kind, below):
    root = tree(files)
    found = identify_source(root)
    assert (found.kind, os.path.normpath(found.path)) == (kind, os.path.normpath(root / below))


def test_images_come_with_the_folder_of_their_masks(tree):
    root = tree({"images/1.jpg": JPEG, "masks/1.png": JPEG})
    assert identify_source(root).masks == str(root / "masks")


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        (None, "voc"),
        ("detection", "voc"),
        ("deeplab", "voc_segmentation"),
        ("table", "text"),
        ("text", "text"),
    ],
)
def test_the_layout_decides_where_a_folder_can_be_several_things(tree, layout, kind):
    root = tree(
        {
            "Annotations/1.xml": XML,
            "JPEGImages/1.jpg": JPEG,
            "SegmentationClass/1.png": JPEG,
            "ImageSets/Segmentation/train.txt": "1\n",
        }
    )
    assert identify_source(root, layout=layout).kind == kind


def test_a_csv_is_a_table_where_that_is_asked_for(tree):
    path = tree({"a.csv": "image,label\ncat/1.jpg,cat\n"}) / "a.csv"
    assert identify_source(path, layout="table").kind == "csv"
    assert identify_source(path, layout="detection").kind == "boxes_csv"


def test_a_pattern_is_known_by_its_extension(tree):
    root = tree({"a.csv": "x\n1\n", "b.csv": "x\n2\n", "c.parquet": b""})
    assert identify_source(root / "*.csv").kind == "csv"
    assert detect_source(root / "*.csv").facts().rows == 2


@pytest.mark.parametrize(
    ("files", "found", "do"),
    [
        ({"a.pdf": "x", "b.pdf": "x", "c.docx": "x"}, "2 .pdf, 1 .docx", "pass the folder"),
        ({}, "no files", "pass the folder"),
        ({"a.csv": "x\n1\n", "b.parquet": b"PAR1"}, "data of several kinds: 1 .csv, 1 .parquet", "a.csv OUT"),
        (
            {"one/annotations/a.json": COCO, "one/1.jpg": JPEG, "two/1.jpg": JPEG},
            "a folder of datasets: 'one' is one (rk.sources.coco)",
            "one OUT",
        ),
    ],
)
def test_what_is_not_known_is_refused_with_what_was_seen(tree, files, found, do):
    root = tree(files)
    root.mkdir(exist_ok=True)
    with pytest.raises(rk.UsageError) as caught:
        identify_source(root)
    assert (caught.value.code, caught.value.location.path) == ("U621", str(root))
    assert caught.value.found == found
    assert do in str(caught.value.do)


@pytest.mark.parametrize(("name", "content"), [("a.pdf", "x"), ("a.jpg", JPEG), ("a", b""), ("a.gz", b"x")])
def test_a_file_that_is_not_known_is_refused(tree, name, content):
    path = tree({name: content}) / name
    with pytest.raises(rk.UsageError) as caught:
        identify_source(path)
    assert (caught.value.code, caught.value.location.path) == ("U621", str(path))


def test_a_path_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(rk.DatasetError) as caught:
        identify_source(tmp_path / "gone")
    assert (caught.value.code, caught.value.location.path) == ("X501", str(tmp_path / "gone"))


def test_every_kind_that_is_recognised_is_a_source():
    from rekord.sources import detect

    assert set(detect._ACCEPTED_OVERRIDES) <= set(detect.SOURCE_KINDS)
    assert set(detect.KIND_BY_EXTENSION.values()) <= set(detect.SOURCE_KINDS)
    assert set(detect.SOURCE_KINDS) <= set(rk.sources.__all__)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train-00000-of-00002.pq", "parquet"),
        ("part-00000.ipc", "arrow"),
        ("part-00000.tab", "csv"),
        ("part-00000", "records"),
        ("train.tfrecord-00000-of-00002", "records"),
        ("train-00000-of-00002.tfrecord.gz", "records"),
    ],
)
def test_an_ending_says_more_than_a_name_like_that_of_a_shard(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / name).write_bytes(b"a\tb\n1\t2\n")
    assert identify_source(tmp_path / name).kind == kind


@pytest.mark.parametrize("rows", [3, 20])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_list_of_images_is_one_however_long_its_lines_are(tmp_path: Path, rows: int, quoted: bool) -> None:
    """Detection reads the first 256 KiB, which may end in a row, and in quotes."""
    note = "some words\n" * 5000 if quoted else "x" * 40_000
    lines = [f'images/{i}.jpg,cat,"{note}"' for i in range(rows)]
    (tmp_path / "list.csv").write_text("image,label,note\n" + "\n".join(lines) + "\n")
    assert identify_source(tmp_path / "list.csv").kind == "image_csv"
