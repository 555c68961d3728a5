"""Lists of images, boxes and masks as public datasets have them: what they are read as, and what is refused."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.errors import RekordError
from rekord.sources.base import SourceGuess, UnusedInput
from rekord.sources.boxes_csv import boxes_csv, recognize_boxes_csv
from rekord.sources.detect import detect_source
from rekord.sources.image_csv import image_csv, recognize_image_list
from rekord.sources.segmentation import recognize_pair_list, recognize_split_pairs, segmentation


@pytest.fixture
def put(tmp_path):
    """A function that makes images of 20 × 10 pixels, and returns the folder."""

    def make(*images: str) -> Path:
        for name in images:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20, 10)).save(path)
        return tmp_path

    return make


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def put_mask(path: Path, pixels: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.array(pixels, np.uint8)).save(path)


def rows_of(source, part_bytes=1 << 20):
    source = pickle.loads(pickle.dumps(source))
    return [row for part in pickle.loads(pickle.dumps(list(source.parts(part_bytes)))) for row in source.read(part)]


def values_of(source):
    rows = rows_of(source)
    assert not [row.values for row in rows if isinstance(row.values, RekordError)]
    return [row.values for row in rows]


def faults_of(source):
    failures = [row.values for row in rows_of(source) if isinstance(row.values, RekordError)]
    return [(one.code, one.location.path, one.location.line, one.location.feature) for one in failures]


def refused(call) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


# Text lists of classes.


@pytest.mark.parametrize(
    "text",
    [
        "1.jpg 0\n2.jpg 2\n",
        "images/1.jpg,0\nimages/2.jpg,2\n",
        "1\t0\r\n2\t2\r\n",
        "\ufeffimages/1.jpg\t0\nimages/2.jpg\t2",
        "/data/set/images/1.jpg 0\n/data/set/images/2.jpg 2\n",
        "../images/1.jpg 0\n../images/2.jpg 2\n",
    ],
)
def test_the_lines_of_a_text_list_are_an_image_and_its_class(put, text):
    root = put("images/1.jpg", "images/2.jpg")
    write(root, "synsets.txt", "cat\ndog\nfox\n")
    path = write(root, "train.txt", text)
    assert recognize_image_list(str(path))
    source = detect_source(path)
    facts = source.facts()
    assert (source.kind, facts.layout, facts.classes, facts.splits) == (
        "image_csv",
        "classification",
        ("cat", "dog", "fox"),
        None,
    )
    assert values_of(source) == [
        {"image": root / "images/1.jpg", "filename": "images/1.jpg", "label": "cat"},
        {"image": root / "images/2.jpg", "filename": "images/2.jpg", "label": "fox"},
    ]
    assert [file.path for file in facts.files] == ["images/1.jpg", "images/2.jpg", "synsets.txt", "train.txt"]
    assert SourceGuess("label", "class names are those of synsets.txt", "classes=[…]") in facts.guesses


@pytest.mark.parametrize(
    ("names", "labels", "classes", "found"),
    [
        ("cat\ndog\n", "1 2", ("cat", "dog"), ["cat", "dog"]),  # ids from 1
        ("0 cat\n1 dog\n", "0 1", ("cat", "dog"), ["cat", "dog"]),  # ids before the names
        ("1: cat\n2: dog\n", "2 1", ("cat", "dog"), ["dog", "cat"]),
        ("dog\ncat\n", "cat dog", ("dog", "cat"), ["cat", "dog"]),  # names, in the order of the file
        ("cat\ncat\n", "0 1", ("0", "1"), ["0", "1"]),  # not unique
        ("cat\n", "0 1", ("0", "1"), ["0", "1"]),  # not enough
    ],
)
def test_a_file_of_names_next_to_the_list_names_the_ids(put, names, labels, classes, found):
    root = put("1.jpg", "2.jpg", "3.jpg", "4.jpg")
    write(root, "classes.txt", names)
    lines = [f"{i}.jpg {label}\n" for i, label in enumerate(labels.split() * 2, 1)]
    source = image_csv(write(root, "list.txt", "".join(lines)))
    facts = source.facts()
    assert facts.classes == classes
    assert [row["label"] for row in values_of(source)] == found * 2
    unused = UnusedInput("file", "classes.txt", "does not name the classes of the list: 1 names")
    assert (unused in facts.unused) == (names == "cat\n")


def test_given_classes_name_the_ids(put):
    source = image_csv(write(put("1.jpg", "2.jpg"), "a.txt", "1.jpg 1\n2.jpg 0\n"), classes=["cat", "dog"])
    assert source.facts().classes == ("cat", "dog")
    assert [row["label"] for row in values_of(source)] == ["dog", "cat"]


def test_the_lists_of_a_folder_are_its_splits(put):
    root = put("1.jpg", "2.jpg", "3.jpg", "4.jpg")
    write(root, "train.txt", "1.jpg 0\n2.jpg 1\n")
    write(root, "val_list.txt", "3.jpg 1\n2.jpg 0\n")
    write(root, "trainval.txt", "1.jpg 0\n2.jpg 1\n3.jpg 1\n")
    write(root, "README.txt", "about these images\n")
    source = image_csv(root)
    facts = source.facts()
    assert (facts.splits, facts.rows, facts.classes) == (("train", "val"), 4, ("0", "1"))
    assert [(row.path, row.position, row.line) for row in rows_of(source)] == [
        ("train.txt", 0, 1),
        ("train.txt", 1, 2),
        ("val_list.txt", 0, 1),
        ("val_list.txt", 1, 2),
    ]
    assert faults_of(source) == [("E362", str(root / "val_list.txt"), 2, "image")]
    assert set(facts.unused) == {
        UnusedInput("file", "*", "1 images that no list names"),
        UnusedInput("file", "README.txt", "not a list that is read"),
        UnusedInput("file", "trainval.txt", "not a list that is read"),
    }


def test_the_defects_of_a_text_list_are_bad_rows_with_their_lines(put):
    root = put("1.jpg", "2.jpg", "3.jpg")
    write(root.parent, "secret.jpg", (root / "1.jpg").read_bytes())
    text = b"1.jpg 0\nno.jpg 1\n2.jpg\n1.jpg 1\n../secret.jpg 0\ncaf\xe9.jpg 0\n3.jpg 1\n"
    path = write(root, "train.txt", text)
    assert faults_of(image_csv(path)) == [
        ("E360", str(path), 2, "image"),
        ("E361", str(path), 3, "label"),
        ("E362", str(path), 4, "image"),
        ("E360", str(path), 5, "image"),
        ("E318", str(path), 6, "image"),
    ]


def test_a_line_that_is_too_long_is_refused(put):
    path = write(put("1.jpg"), "a.txt", "1.jpg 0\n" + "x" * (1 << 20) + ".jpg 0\n")
    failure = refused(image_csv(path).facts)
    assert (failure.code, failure.location.path, failure.location.line) == ("X528", str(path), 2)


def test_images_in_several_folders_are_those_with_most_of_the_names(put):
    root = put("test/1.jpg", "train/1.jpg", "train/2.jpg", "train/3.jpg")
    source = image_csv(write(root, "labels.csv", "id,label\n1,cat\n2,dog\n3,dog\n"))
    assert [row["filename"] for row in values_of(source)] == ["train/1.jpg", "train/2.jpg", "train/3.jpg"]
    assert source.facts().guesses == (SourceGuess("image", "images are in train", "root=…"),)


# Lists of texts and of flags.


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_texts_in_quotes_are_a_table_with_an_image(put, part_bytes):
    root = put("train/images/word_1.png", "train/images/word_2.png")
    write(root, "train/gt.txt", 'word_1.png, "PROPER"\nword_2.png, "a \\"b\\", c"\n')
    source = image_csv(root)
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.splits) == ("table", None, ("train",))
    assert facts.schema == rk.Schema({"image": rk.Image(), "filename": rk.Text(), "text": rk.Text()})
    assert [row.values for row in rows_of(source, part_bytes)] == [
        {
            "image": root / "train/images/word_1.png",
            "filename": "train/images/word_1.png",
            "text": "PROPER",
            "split": "train",
        },
        {
            "image": root / "train/images/word_2.png",
            "filename": "train/images/word_2.png",
            "text": 'a "b", c',
            "split": "train",
        },
    ]


def test_captions_are_texts_and_an_image_may_have_several(put):
    text = 'image,caption\n1.jpg,A cat .\n1.jpg,"A cat, asleep ."\n1.jpg,A cat .\n'
    source = image_csv(write(put("1.jpg"), "captions.txt", text))
    assert [row.values["text"] for row in rows_of(source)[:2]] == ["A cat .", "A cat, asleep ."]
    assert [fault[0] for fault in faults_of(source)] == ["E362"]


def test_classes_and_texts_that_cannot_be_distinguished_are_refused_unless_text_decides(put):
    path = write(put("1.jpg", "2.jpg"), "a.txt", "1.jpg PROPER\n2.jpg Canon\n")
    failure = refused(image_csv(path).facts)
    assert (failure.code, failure.location.path, failure.found) == (
        "X528",
        str(path),
        "2 different values in 2 lines",
    )
    assert image_csv(path, text=True).facts().layout == "table"
    assert image_csv(path, text=False).facts().classes == ("Canon", "PROPER")
    assert refused(lambda: image_csv(path, text="yes")).code == "U605"


@pytest.mark.parametrize("extension", [".jpg", ""])
def test_columns_of_0_and_1_are_a_table_with_an_image(put, extension):
    root = put("images/1.jpg", "images/2.jpg", "images/3.jpg")
    text = f"image_name,dog,cat\n1{extension},1,0\n2{extension},1,1\n"
    path = write(root, "ann.csv", text)
    source = detect_source(path)
    facts = source.facts()
    assert (source.kind, facts.layout) == ("image_csv", "table")
    assert facts.schema == rk.Schema(
        {"image": rk.Image(), "filename": rk.Text(), "dog": rk.Int64(), "cat": rk.Int64()}
    )
    assert [(row["filename"], row["dog"], row["cat"]) for row in values_of(source)] == [
        ("images/1.jpg", 1, 0),
        ("images/2.jpg", 1, 1),
    ]
    assert facts.unused == (UnusedInput("file", "images/*", "1 images that no list names"),)


def test_a_later_field_that_is_neither_0_nor_1_is_a_bad_row(put):
    lines = [f"{i % 2 + 1}.jpg,0,1\n" for i in range(1000)]
    path = write(put("1.jpg", "2.jpg"), "ann.csv", "image,dog,cat\n" + "".join(lines) + "2.jpg,0,7\n")
    assert faults_of(image_csv(path))[-1] == ("E356", str(path), 1002, "cat")


def test_the_only_other_column_is_the_class_if_rows_share_its_values(put):
    folder = put("images/a1.jpg", "images/a2.jpg", "images/a3.jpg", "images/a4.jpg")
    path = write(folder, "labels.csv", "id,breed\na1,pug\na2,beagle\na3,pug\na4,beagle\n")
    source = detect_source(folder)
    assert source.kind == "image_csv"
    assert [row["label"] for row in values_of(source)] == ["pug", "beagle"] * 2
    assert source.facts().classes == ("beagle", "pug")
    assert SourceGuess("label", "`breed` is the class: the only other column", 'label="…"') in source.facts().guesses
    write(folder, "labels.csv", "id,breed\na1,a\na2,b\na3,c\na4,d\n")  # a value per row may be anything
    assert not recognize_image_list(str(path))


@pytest.mark.parametrize("values", [["0.5", "1.25", "3", "0.5"], ["1e-3", "0.25", "-.5", "2."]])
def test_measurements_are_not_classes(put, values):
    folder = put("1.jpg", "2.jpg", "3.jpg", "4.jpg")
    lines = "".join(f"{i}.jpg,{value}\n" for i, value in enumerate(values, 1))
    path = write(folder, "labels.csv", "filename,target\n" + lines)
    with pytest.raises(rk.DatasetError) as caught:
        image_csv(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X528", str(path))
    assert caught.value.found == repr(values[0])
    assert len({row["label"] for row in values_of(image_csv(path, label="target"))}) == len(set(values))
    write(folder, "labels.csv", "filename,target\n1.jpg,1.0\n2.jpg,0.0\n3.jpg,1.0\n4.jpg,0.0\n")
    assert image_csv(path).facts().classes == ("0.0", "1.0")


def test_two_lists_that_say_the_same_are_one_and_others_are_refused(put):
    root = put("images/1.jpg", "images/2.jpg")
    write(root, "ann.csv", "image_name,label\n1.jpg,cat\n2.jpg,dog\n")
    write(root, "ann_wo_ext.csv", "image_name,label\n1,cat\n2,dog\n")
    facts = image_csv(root).facts()
    assert (facts.rows, facts.guesses[0].what) == (2, "ann_wo_ext.csv lists the same images as ann.csv")
    write(root, "ann_wo_ext.csv", "image_name,label\n1,dog\n2,dog\n")
    failure = refused(image_csv(root).facts)
    assert (failure.code, failure.location.path) == ("X528", str(root))
    assert not recognize_image_list(str(root))


def test_the_columns_that_are_not_read_are_reported(put):
    path = write(put("1.jpg"), "a.csv", "image,label,photographer\n1.jpg,cat,Ann\n")
    assert image_csv(path).facts().unused == (
        UnusedInput("column", "photographer", "neither image, class nor split"),
    )


# Lists of boxes.

SIDES = [[1.0, 2.0, 4.0, 6.0]]


@pytest.mark.parametrize(
    ("name", "text", "class_name"),
    [
        ("a-export.csv", '"image","xmin","ymin","xmax","ymax","label"\n"1.jpg",1,2,4,6,"cat"\n', "cat"),
        ("a.csv", "image,x,y,w,h,label\n1.jpg,1,2,3,4,cat\n", "cat"),
        ("a.csv", "label,x,y,width,height,image\ncat,1,2,3,4,1.jpg\n", "cat"),
        ("a.csv", "image_id,width,height,x,y,w,h,class\n1,20,10,1,2,3,4,cat\n", "cat"),
        ("a.csv", "image,x_center,y_center,width,height,label\n1.jpg,2.5,4,3,4,cat\n", "cat"),
        ("a.csv", "image,xmin,ymin,xmax,ymax\n1.jpg,1,2,4,6\n", "object"),
        ("a.txt", "1.jpg 1 2 4 6 cat\n", "cat"),
        ("a.txt", "images/1.jpg 1,2,4,6,0\n", "0"),
    ],
)
def test_boxes_are_read_in_any_usual_form(put, name, text, class_name):
    root = put("images/1.jpg")
    path = write(root, name, text)
    assert recognize_boxes_csv(str(path))
    assert not recognize_image_list(str(path))
    source = detect_source(path)
    assert source.kind == "boxes_csv"
    (row,) = values_of(source)
    assert (row["boxes"].tolist(), row["class_names"], row["labels"].tolist()) == (SIDES, [class_name], [1])


def test_a_line_with_all_boxes_of_an_image_and_a_file_of_names(put):
    root = put("1.jpg", "2.jpg")
    write(root, "classes.txt", "cat\ndog\n")
    source = boxes_csv(write(root, "train.txt", "1.jpg 1,2,4,6,1 0,0,5,5,0\n2.jpg\n"))
    first, second = values_of(source)
    assert first["boxes"].tolist() == [[1, 2, 4, 6], [0, 0, 5, 5]]
    assert (first["class_names"], first["labels"].tolist()) == (["dog", "cat"], [2, 1])
    assert len(second["labels"]) == 0
    facts = source.facts()
    assert (facts.classes, facts.class_ids) == (("cat", "dog"), (1, 2))
    assert facts.guesses == (
        SourceGuess("labels", "class names are those of classes.txt, with ids from 0", "label_map=…"),
    )


@pytest.mark.parametrize(
    ("lines", "box_format", "because"),
    [
        # As sizes, the second would end at 22.
        ("1.jpg,cat,1,2,4,6\n1.jpg,cat,10,2,12,4\n", "xyxy", "as x, y, width, height 1 of 2 would be outside"),
        # As corners, the first would be empty.
        ("1.jpg,cat,5,5,3,4\n1.jpg,cat,1,2,4,6\n", "xywh", "as x1, y1, x2, y2 1 of 2 would be empty"),
        ("1.jpg,cat,1,1,2,2\n" * 3, "xyxy", "the third number is above the first"),
    ],
)
def test_the_boxes_decide_what_four_numbers_mean(put, lines, box_format, because):
    source = boxes_csv(write(put("1.jpg"), "ann.txt", lines))
    (guess,) = source.facts().guesses
    assert guess.column == "boxes"
    assert because in guess.what
    x, y, c, d = [float(one) for one in lines.split("\n")[0].split(",")[2:]]
    first = [x, y, c, d] if box_format == "xyxy" else [x, y, x + c, y + d]
    assert values_of(source)[0]["boxes"].tolist()[0] == first


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("1.jpg,cat,1,2,4,6\n", "1 boxes that may be x1, y1, x2, y2 or x, y, width, height"),
        ("1.jpg,cat,5,5,3,4\n1.jpg,cat,1,2,20,10\n", "1 boxes are not x1, y1, x2, y2, and 1 not x, y, width, height"),
    ],
)
def test_boxes_that_do_not_decide_are_refused_unless_box_format_does(put, lines, found):
    path = write(put("1.jpg"), "ann.txt", lines)
    failure = refused(boxes_csv(path).facts)
    assert (failure.code, failure.location.path, failure.found) == ("X534", str(path), found)
    assert boxes_csv(path, box_format="xywh").facts().guesses == ()
    assert refused(lambda: boxes_csv(path, box_format="corners")).code == "U605"


def test_a_column_of_four_numbers_and_a_column_that_is_named(put):
    text = 'image_id,bbox,source,kind,by\n1,"[1, 2, 4, 3]",x,cat,Ann\n1,"[9, 2, 3, 4]",x,dog,Ann\n'
    path = write(put("1.jpg"), "train.csv", text)
    assert refused(boxes_csv(path).facts).code == "X534"
    source = boxes_csv(path, label="kind")
    (row,) = values_of(source)
    assert row["boxes"].tolist() == [[1, 2, 5, 5], [9, 2, 12, 6]]
    assert row["class_names"] == ["cat", "dog"]
    assert [one.name for one in source.facts().unused] == ["source", "by"]
    failure = refused(boxes_csv(path, label="none").facts)
    assert (failure.code, failure.location.line) == ("X534", 1)


def test_the_lists_of_boxes_in_a_folder_are_its_splits(put):
    root = put("1.jpg", "2.jpg", "3.jpg")
    header = "image,xmin,ymin,xmax,ymax,label\n"
    write(root, "train-export.csv", header + "1.jpg,1,2,4,6,cat\n3.jpg,1,2,4,6,cat\n")
    write(root, "test-export.csv", header + "2.jpg,1,2,4,6,dog\n1.jpg,1,2,4,6,dog\n")
    source = boxes_csv(root)
    assert source.facts().splits == ("train", "test")
    assert [(row.path, row.values["split"]) for row in rows_of(source) if row.path.endswith("jpg")] == [
        ("1.jpg", "test"),
        ("2.jpg", "test"),
        ("3.jpg", "train"),
    ]
    assert faults_of(source) == [("E370", str(root / "train-export.csv"), 2, None)]
    (root / "train-export.csv").rename(root / "other.csv")
    failure = refused(boxes_csv(root).facts)
    assert (failure.code, failure.location.path) == ("X532", str(root))


# Images and masks.


def put_camvid(root: Path, table: str | None = "64 128 64\tAnimal\n128 0 0\tBuilding\n0 0 0\tVoid\n") -> Path:
    """Lists of pairs with masks in colours, and a table of the colours."""
    for split in ("train", "val"):
        (root / split).mkdir(parents=True)
        Image.new("RGB", (3, 1)).save(root / split / "1.png")
        put_mask(root / f"{split}annot/1.png", [[(64, 128, 64), (128, 0, 0), (0, 0, 0)]])
        write(root, f"{split}.txt", f"/SegNet/{split}/1.png /SegNet/{split}annot/1.png\n")
    if table is not None:
        write(root, "label_colors.txt", table)
    return root


def stored_masks(split) -> list[object]:
    return [np.array(Image.open(io.BytesIO(row["mask"]))).tolist() for row in split]


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("label_colors.txt", "64 128 64\tAnimal\n128 0 0\t\tBuilding\n0 0 0 Void\n"),
        ("class_dict.csv", "name,r,g,b\nAnimal,64,128,64\nBuilding,128,0,0\nVoid,0,0,0\n"),
        ("class_dict_seg.csv", "name, r, g, b\r\nAnimal, 64, 128, 64\r\nBuilding, 128, 0, 0\r\nVoid, 0, 0, 0\r\n"),
    ],
)
def test_masks_in_colours_have_the_classes_of_the_table(tmp_path, name, table):
    root = put_camvid(tmp_path / "camvid", None)
    write(root, name, table)
    assert recognize_pair_list(str(root))
    source = segmentation(root)
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.splits) == (
        "deeplab",
        ("Animal", "Building", "Void"),
        ("train", "val"),
    )
    assert facts.extra == {
        "classes": 3,
        "ignore": 255,
        "optional_masks": False,
        "colours": {(64, 128, 64): 0, (128, 0, 0): 1, (0, 0, 0): 255},
    }
    assert facts.guesses[0] == SourceGuess("mask", f"masks are in the colours of {name}", "colours=…")
    assert [(row.path, row.position, row.line, row.values["split"]) for row in rows_of(source)] == [
        ("train.txt", 0, 1, "train"),
        ("val.txt", 0, 1, "val"),
    ]
    assert name in [file.path for file in facts.files]


def test_the_colours_become_ids_and_an_unknown_one_is_a_bad_row_with_its_pixel(tmp_path):
    root = put_camvid(tmp_path / "camvid")
    dataset = rk.write(segmentation(root), tmp_path / "out", split="source", progress=False, workers=1)
    assert stored_masks(dataset["train"]) == [[[0, 1, 255]]]
    put_mask(root / "valannot/1.png", [[(64, 128, 64), (1, 2, 3), (0, 0, 0)]])
    failure = refused(lambda: rk.write(segmentation(root), tmp_path / "two", progress=False, workers=1))
    assert (failure.code, failure.location.path) == ("E333", str(root / "valannot/1.png"))
    assert failure.found == "(1, 2, 3) at row 0, column 1; 1 such pixel"


def test_without_a_table_the_colours_of_camvid_are_a_guess_and_others_are_refused(tmp_path):
    root = put_camvid(tmp_path / "camvid", None)
    facts = segmentation(root).facts()
    assert len(facts.classes) == 32
    assert facts.guesses[0].what == "masks are in the colours of CamVid, and there is no table of colours"
    put_mask(root / "valannot/1.png", [[(64, 128, 64), (1, 2, 3), (0, 0, 0)]])
    assert "colours" not in segmentation(root).facts().extra


def test_a_table_of_colours_is_not_used_for_masks_of_ids(tmp_path):
    root = put_camvid(tmp_path / "camvid")
    for split in ("train", "val"):
        put_mask(root / f"{split}annot/1.png", [[0, 1, 2]])
    facts = segmentation(root, classes=3).facts()
    assert (facts.classes, facts.extra) == (None, {"classes": 3, "optional_masks": False})
    reason = "a table of colours, but the masks have class ids"
    assert facts.unused == (UnusedInput("file", "label_colors.txt", reason),)


def test_rgb_masks_of_equal_channels_are_ids(tmp_path):
    Image.new("RGB", (3, 1)).save(tmp_path / "1.png")
    put_mask(tmp_path / "masks/1.png", [[(0, 0, 0), (1, 1, 1), (2, 2, 2)]])
    write(tmp_path, "a.txt", "1.png masks/1.png\n")
    source = detect_source(tmp_path / "a.txt")
    assert (source.kind, source.facts().guesses) == (
        "segmentation",
        (SourceGuess("mask", "masks are RGB images of equal channels, whose values are class ids"),),
    )
    dataset = rk.write(source, tmp_path / "out", progress=False, workers=1)
    assert stored_masks(dataset["train"]) == [[[0, 1, 2]]]


@pytest.mark.parametrize(
    ("table", "line"),
    [("1 2 3 a\n1 2 3 b\n", 2), ("1 2 3 a\n4 5 6 a\n", 2), ("1 2 3 a\n1 2 300 b\n", 2), ("1 2 3 a\nred b\n", 2)],
)
def test_a_table_that_does_not_identify_classes_is_refused_at_its_line(tmp_path, table, line):
    root = put_camvid(tmp_path / "camvid", table)
    failure = refused(segmentation(root).facts)
    assert (failure.code, failure.location.path, failure.location.line) == (
        "X529",
        str(root / "label_colors.txt"),
        line,
    )


def test_the_defects_of_a_list_of_pairs_are_bad_rows_with_their_lines(tmp_path):
    for name in ("a", "b"):
        Image.new("RGB", (3, 1)).save(tmp_path / f"{name}.png")
        put_mask(tmp_path / f"masks/{name}.png", [[0, 1, 2]])
    text = b"a.png masks/a.png\nno.png masks/a.png\nb.png masks/no.png\na.png masks/b.png\n../a.png masks/a.png\n"
    path = write(tmp_path, "train.txt", text + b"b.png\ncaf\xe9.png masks/a.png\n")
    source = segmentation(path, classes=3)
    assert faults_of(source) == [
        ("E360", str(path), 2, "image"),
        ("E363", str(path), 3, "mask"),
        ("E362", str(path), 4, "image"),
        ("E360", str(path), 5, "image"),
        ("E362", str(path), 6, "image"),
        ("E318", str(path), 7, "filename"),
    ]
    assert rows_of(source)[0].values == {
        "image": tmp_path / "a.png",
        "mask": tmp_path / "masks/a.png",
        "filename": "a.png",
    }


@pytest.mark.parametrize(
    ("images", "masks", "ending"),
    [
        ("{}", "{}annot", ""),
        ("{}", "{}_labels", "_L"),
        ("{}/images", "{}/masks", ""),
        ("images/{}", "labels/{}", "_mask"),
        ("img_dir/{}", "ann_dir/{}", ""),
    ],
)
def test_folders_of_images_and_masks_for_each_split(tmp_path, images, masks, ending):
    for split in ("train", "val"):
        path = tmp_path / images.format(split) / "1.jpg"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (3, 1)).save(path)
        put_mask(tmp_path / masks.format(split) / f"1{ending}.png", [[0, 1, 2]])
    assert recognize_split_pairs(str(tmp_path))
    source = segmentation(tmp_path, classes=3)
    assert [(row.path, row.values["mask"], row.values["split"]) for row in rows_of(source)] == [
        (f"{images.format(split)}/1.jpg", tmp_path / masks.format(split) / f"1{ending}.png", split)
        for split in ("train", "val")
    ]
    assert source.facts().splits == ("train", "val")


def test_a_folder_without_pairs_is_refused(put):
    root = put("train/1.jpg")
    failure = refused(segmentation(root).facts)
    assert (failure.code, failure.location.path) == ("X529", str(root))


# Recognition.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "about these images\n",
        "no.jpg 0\n",  # no such image
        "1 000.jpg\n2 001.jpg\n",  # an id before the image
        "1\n2\n",  # only names
        "0 0.5 0.5 0.1 0.1\n",  # boxes of YOLO
        "1.jpg -1 1 1 -1\n2.jpg 1 1 -1 -1\n",  # attributes
        "\0\1\2",
    ],
)
def test_other_texts_are_not_lists(put, text):
    path = str(write(put("1.jpg", "2.jpg"), "a.txt", text))
    found = [recognize_image_list(path), recognize_boxes_csv(path) and "-1" not in text, recognize_pair_list(path)]
    assert found == [False, False, False]
    assert [one(path + "x") for one in (recognize_image_list, recognize_boxes_csv, recognize_pair_list)] == [
        False
    ] * 3


def test_any_number_of_workers_writes_the_same_bytes(put, tmp_path):
    root = put(*[f"data/images/{i}.jpg" for i in range(6)]) / "data"
    write(root, "train.txt", "".join(f"{i}.jpg {i % 2}\n" for i in range(4)))
    write(root, "val.txt", "".join(f"{i}.jpg {i % 2}\n" for i in range(4, 6)))
    written = []
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        rk.write(image_csv(root), out, split="source", progress=False, workers=workers)
        written.append({path.name: path.read_bytes() for path in sorted(out.glob("*.tfrecord"))})
    assert len(written[0]) == 2
    assert written[0] == written[1]
