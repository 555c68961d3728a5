"""YOLO's folders become rows: boxes stay normalised, class 0 is id 1, every defect names its file and line."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rekord.errors import RekordError
from rekord.sources.label_files import yolo


def put_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (10, 8)).save(path)


def put(root: Path, name: str, text: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows(source, part_bytes=1 << 20):
    source = pickle.loads(pickle.dumps(source))
    return [row for part in pickle.loads(pickle.dumps(list(source.parts(part_bytes)))) for row in source.read(part)]


def bad(row):
    assert isinstance(row.values, RekordError), row
    return row.values


def refused(call):
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


@pytest.fixture
def one(tmp_path):
    """A function that makes a dataset of one image with these labels."""

    def make(labels: str | bytes, names: str = "cat\ndog\n"):
        put_image(tmp_path / "images" / "a.jpg")
        put(tmp_path, "labels/a.txt", labels)
        put(tmp_path, "classes.txt", names)
        return yolo(tmp_path)

    return make


def test_a_line_is_a_box_from_its_centre_and_an_outline_is_enclosed(one, tmp_path):
    source = one("1 0.5 0.5 0.25 0.5\n\n0 0.1 0.2 0.4 0.2 0.3 0.9\n")
    (row,) = rows(source)
    assert (row.path, row.position) == ("images/a.jpg", 0)
    assert row.values["image"] == tmp_path / "images" / "a.jpg"
    assert (row.values["filename"], row.values["source_id"]) == ("images/a.jpg", "images/a.jpg")
    expected = np.array([[0.375, 0.25, 0.625, 0.75], [0.1, 0.2, 0.4, 0.9]], np.float32)
    assert row.values["boxes_normalised"].dtype == np.float32
    assert np.array_equal(row.values["boxes_normalised"], expected)
    assert row.values["labels"].tolist() == [2, 1]
    assert row.values["class_names"] == ["dog", "cat"]
    assert row.values["box_names"] == ["line 1 of the label file", "line 3 of the label file"]
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.class_ids) == ("detection", ("cat", "dog"), (1, 2))
    assert [file.path for file in facts.files] == ["classes.txt", "images/a.jpg", "labels/a.txt"]


@pytest.mark.parametrize(
    ("image", "label", "split"),
    [
        ("images/train/a.jpg", "labels/train/a.txt", "train"),
        ("images/val2017/deep/a.png", "labels/val2017/deep/a.txt", "val"),
        ("train/images/a.jpg", "train/labels/a.txt", "train"),
        ("valid/images/a.JPG", "valid/labels/a.txt", "valid"),
        ("obj_train_data/a.jpg", "obj_train_data/a.txt", "train"),
        ("images/a.jpg", "images/a.txt", None),
        ("a.jpg", "a.txt", None),
        ("a.jpg", "labels/a.txt", None),
    ],
)
def test_labels_are_found_beside_images_or_in_a_folder_of_labels(tmp_path, image, label, split):
    put_image(tmp_path / image)
    put(tmp_path, label, "0 0.5 0.5 1 1")
    source = yolo(tmp_path)
    (row,) = rows(source)
    assert (row.path, len(row.values["labels"]), row.values.get("split")) == (image, 1, split)
    assert source.facts().splits == (None if split is None else (split,))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("classes.txt", "cat\nbig dog\nit's\n\n"),
        ("labels/classes.txt", "\ufeffcat\r\nbig dog\r\nit's"),
        ("obj.names", "cat\nbig dog\nit's\n"),
        ("data.yaml", "train: ../train\nnc: 3\nnames: ['cat', \"big dog\", it's]  # three\n"),
        ("data.yaml", "names:\n- cat\n- 'big dog'  # a comment\n- \"it's\"\nnc: 3\n"),
        ("data.yaml", "names:\n  - cat\n\n  - big dog\n  - 'it''s'\n"),
        ("coco8.yml", "path: x\nnames:\n  0: cat\n  1: big dog\n  2: it's\n\ndownload: y\n"),
        ("data.yaml", "names: {0: cat, 2: \"it's\", 1: 'big dog'}\n"),
        ("data.yaml", "names: [\n  cat,  # one\n  'big dog',\n  it's,\n]\nnc: 3"),
    ],
)
def test_names_come_from_any_of_the_usual_files(tmp_path, name, text):
    put_image(tmp_path / "images" / "a.jpg")
    put(tmp_path, "labels/a.txt", "1 0.5 0.5 0.5 0.5")
    put(tmp_path, name, text)
    source = yolo(tmp_path)
    assert source.facts().classes == ("cat", "big dog", "it's")
    assert rows(source)[0].values["class_names"] == ["big dog"]


def test_a_comma_inside_quotes_parts_no_names(tmp_path):
    put_image(tmp_path / "a.jpg")
    put(tmp_path, "a.txt", "1 0.5 0.5 0.5 0.5")
    put(tmp_path, "data.yaml", "names: {0: 'a, b', 1: \"c}\"}")
    assert yolo(tmp_path).facts().classes == ("a, b", "c}")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("data.yaml", "nc: 1\nnames: [cat, dog", 2),
        ("data.yaml", "names: cat", 1),
        ("data.yaml", "names: {0: cat, 2: dog}", 1),
        ("data.yaml", "names: {a: cat}", 1),
        ("data.yaml", "names:\n  - cat\n  dog\n", 3),
        ("data.yaml", "names: []", None),
        ("data.yaml", "names: [cat, cat]", None),
        ("classes.txt", "", None),
        ("classes.txt", "cat\n\ndog", None),
        ("classes.txt", b"cat\nk\xe4fer", 2),
    ],
)
def test_names_that_cannot_be_used_are_refused(tmp_path, name, text, line):
    put_image(tmp_path / "a.jpg")
    put(tmp_path, "a.txt", "0 0.5 0.5 0.5 0.5")
    path = put(tmp_path, name, text)
    failure = refused(yolo(tmp_path).facts)
    assert (failure.code, failure.location.path, failure.location.line) == ("X533", str(path), line)


def test_without_names_the_numbers_are_the_names(tmp_path):
    put_image(tmp_path / "a.jpg")
    put(tmp_path, "a.txt", "0 0.5 0.5 0.5 0.5\n2.0 0.5 0.5 0.5 0.5\n")
    source = yolo(tmp_path)
    assert (source.facts().classes, source.facts().class_ids) == (("0", "1", "2"), (1, 2, 3))
    assert rows(source)[0].values["labels"].tolist() == [1, 3]


def test_without_names_a_bad_line_is_still_what_is_wrong(tmp_path):
    put_image(tmp_path / "a.jpg")
    put(tmp_path, "a.txt", "3 0.5 0.5 0.5 0.5\n0 320 200 100 50\n")
    (row,) = rows(yolo(tmp_path))
    assert (bad(row).code, bad(row).location.line) == ("E372", 2)


def test_an_image_without_labels_or_with_an_empty_file_has_no_boxes(one, tmp_path):
    source = one("")
    put_image(tmp_path / "images" / "b.jpg")
    assert [len(row.values["labels"]) for row in rows(source)] == [0, 0]


@pytest.mark.parametrize("part_bytes", [1, 2000, 1 << 30])
def test_any_size_of_parts_gives_the_same_rows(tmp_path, part_bytes):
    for i in range(6):
        put_image(tmp_path / "images" / f"{i}.jpg")
        put(tmp_path, f"labels/{i}.txt", "0 0.5 0.5 0.5 0.5\n" * i)
    put(tmp_path, "labels/z.txt", "0 0.5 0.5 0.5 0.5\n")
    found = rows(yolo(tmp_path), part_bytes)
    assert [row.path for row in found] == [*[f"images/{i}.jpg" for i in range(6)], "labels/z.txt"]
    assert [len(row.values["labels"]) for row in found[:6]] == list(range(6))


@pytest.mark.parametrize(
    ("line", "likely"),
    [
        ("0 0.5 0.5 0.5", None),
        ("0 0.5 0.5 0.5 0.5 0.9", "the sixth number is a confidence: these are predictions"),
        ("0 0.1 0.1 0.2 0.2 0.3 0.3 0.4", None),
        ("cat 0.5 0.5 0.5 0.5", None),
        ("0.5 0.5 0.5 0.5 0.5", None),
        ("-1 0.5 0.5 0.5 0.5", None),
        ("99999999 0.5 0.5 0.5 0.5", None),
        ("0 0.5 0.5 nan 0.5", None),
        ("0 0.5 inf 0.5 0.5", None),
        ("0 320 200 100 50", "these are pixels"),
        ("0 0.5 -0.2 0.5 0.5", None),
        ("0 0,5 0,5 0,5 0,5", None),
    ],
)
def test_a_line_that_is_no_box_makes_a_bad_row_with_file_and_line(one, tmp_path, line, likely):
    (row,) = rows(one(f"0 0.5 0.5 0.5 0.5\n{line}\n"))
    failure = bad(row)
    assert (row.path, failure.code) == ("images/a.jpg", "E372")
    assert (failure.location.path, failure.location.line) == (str(tmp_path / "labels" / "a.txt"), 2)
    assert failure.likely == likely


def test_labels_that_are_not_utf8_or_too_large_make_a_bad_row(one, tmp_path, monkeypatch):
    (row,) = rows(one(b"0 0.5 0.5 0.5 0.5\n\xff\xfe"))
    assert (bad(row).code, bad(row).location.line) == ("E372", 2)
    monkeypatch.setattr(import_module("rekord.sources.label_files"), "MAX_LABEL_BYTES", 4)
    (row,) = rows(one("0 0.5 0.5 0.5 0.5"))
    assert (bad(row).code, bad(row).location.path) == ("E372", str(tmp_path / "labels" / "a.txt"))


def test_an_edge_beyond_the_border_by_a_rounding_is_put_on_it(one):
    (row,) = rows(one("0 0.333333 0.5 0.666667 1.0\n0 0.9 0.5 0.4 0.5\n"))
    boxes = row.values["boxes_normalised"]
    assert boxes[0].tolist()[:2] == [0, 0]
    assert boxes[1, 2] > 1  # the layout judges what really leaves the image


def test_a_class_without_a_name_makes_a_bad_row(one, tmp_path):
    (row,) = rows(one("0 0.5 0.5 0.5 0.5\n2 0.5 0.5 0.5 0.5"))
    failure = bad(row)
    assert (failure.code, failure.found, failure.location.line) == ("E367", "2", 2)
    assert failure.location.path == str(tmp_path / "labels" / "a.txt")


def test_a_label_map_gives_ids_by_name(one, tmp_path):
    one("1 0.5 0.5 0.5 0.5")
    put(tmp_path, "m.pbtxt", "item{id:7 name:'dog'}")
    source = yolo(tmp_path, label_map=tmp_path / "m.pbtxt")
    assert rows(source)[0].values["labels"].tolist() == [7]
    put(tmp_path, "labels/a.txt", "0 0.5 0.5 0.5 0.5")
    (row,) = rows(yolo(tmp_path, label_map=tmp_path / "m.pbtxt"))
    assert (bad(row).code, bad(row).found, bad(row).location.line) == ("E367", "'cat'", 1)


def test_labels_without_an_image_are_a_bad_row_and_other_texts_are_not(one, tmp_path):
    source = one("0 0.5 0.5 0.5 0.5")
    orphan = put(tmp_path, "labels/b.txt", "0 0.5 0.5 0.5 0.5")
    put(tmp_path, "images/README.txt", "about these images")
    put(tmp_path, "train.txt", "images/a.jpg")
    put(tmp_path, "images/c.txt", "0 0.5 0.5 0.5 0.5")
    told = [(row.path, bad(row).code, bad(row).location.path) for row in rows(source)[1:]]
    assert told == [
        ("images/c.txt", "E373", str(tmp_path / "images" / "c.txt")),
        ("labels/b.txt", "E373", str(orphan)),
    ]


def test_two_images_with_one_label_file_are_told_apart_from_one(one, tmp_path):
    source = one("0 0.5 0.5 0.5 0.5")
    put_image(tmp_path / "images" / "a.png")
    good, twice = rows(source)
    assert good.path == "images/a.jpg"
    assert (twice.path, bad(twice).code) == ("images/a.png", "E370")
    assert bad(twice).location.path == str(tmp_path / "images" / "a.png")


def test_places_with_nothing_to_read_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    put_image(tmp_path / "images" / "a.jpg")
    for path, code in ((tmp_path / "none", "X501"), (tmp_path / "empty", "X532"), (tmp_path, "X532")):
        failure = refused(yolo(path).facts)
        assert (failure.code, failure.location.path) == (code, str(path))


@pytest.mark.parametrize(
    ("shape", "points"),
    [("[2, 2]", "0.4 0.4 0.6 0.6"), ("[2, 3]", "0.4 0.4 2 0 0 0"), ("\n  - 2\n  - 2", "0.1 0.1 0.9 0.9")],
)
def test_keypoints_are_not_taken_for_an_outline(tmp_path, shape, points):
    put_image(tmp_path / "images" / "a.jpg")
    put(tmp_path, "labels/a.txt", f"0 0.5 0.5 0.25 0.5 {points}\n")
    put(tmp_path, "data.yaml", f"kpt_shape: {shape}\nnames: [cat]\n")
    (row,) = rows(yolo(tmp_path))
    assert row.values["boxes_normalised"].tolist() == [[0.375, 0.25, 0.625, 0.75]]


def test_a_line_with_other_keypoints_than_the_yaml_says_is_refused_by_line(tmp_path):
    put_image(tmp_path / "images" / "a.jpg")
    put(tmp_path, "labels/a.txt", "0 0.5 0.5 0.25 0.5 0.1 0.1\n")
    put(tmp_path, "data.yaml", "names: [cat]\nkpt_shape: [2, 2]\n")
    failure = bad(rows(yolo(tmp_path))[0])
    assert (failure.code, failure.location.line) == ("E372", 1)
    assert failure.location.path.endswith("labels/a.txt")


def test_a_kpt_shape_that_cannot_be_read_is_refused_by_line(tmp_path):
    put_image(tmp_path / "images" / "a.jpg")
    put(tmp_path, "labels/a.txt", "0 0.5 0.5 0.25 0.5\n")
    put(tmp_path, "data.yaml", "names: [cat]\nkpt_shape: many\n")
    failure = refused(lambda: yolo(tmp_path).facts())
    assert (failure.code, failure.location.line) == ("X533", 2)


@pytest.mark.parametrize("line", ["1_0 0.5 0.5 0.2 0.2", "0 0.5 0.5 0.2_5 0.2"])
def test_digits_that_only_python_joins_are_no_number(one, line):
    failure = bad(rows(one(line))[0])
    assert (failure.code, failure.location.line) == ("E372", 1)


def test_classes_without_names_are_reported(tmp_path):
    put_image(tmp_path / "images/1.png")
    put(tmp_path, "labels/1.txt", "0 0.5 0.5 0.2 0.2\n")
    (guess,) = yolo(tmp_path).facts().guesses
    assert guess.what == "no file has class names: the classes are named by their numbers"
    put(tmp_path, "classes.txt", "cat\n")
    assert yolo(tmp_path).facts().guesses == ()
