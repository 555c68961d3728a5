"""A CSV of boxes becomes rows: the lines of an image together, columns by their names, defects with their lines."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rekord.errors import RekordError
from rekord.sources.boxes_csv import boxes_csv

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax\n"


def put_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (10, 8)).save(path)


@pytest.fixture
def table(tmp_path):
    """A function that makes a CSV beside the images a.jpg and b.jpg."""
    for name in ("a.jpg", "b.jpg"):
        put_image(tmp_path / "images" / name)

    def make(text: str | bytes, name: str = "boxes.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return make


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


def test_the_lines_of_an_image_are_one_row(table, tmp_path):
    source = boxes_csv(table(HEADER + "b.jpg,10,8,dog,1,2,3,4\na.jpg,10,8,cat,0,0,10,8\nb.jpg,10,8,cat,5,5,6.5,7\n"))
    first, second = rows(source)
    assert (first.path, first.position, second.path) == ("images/a.jpg", 0, "images/b.jpg")
    values = second.values
    assert values["image"] == tmp_path / "images" / "b.jpg"
    assert (values["filename"], values["source_id"]) == ("b.jpg", "b.jpg")
    assert values["boxes"].dtype == np.float32
    assert values["boxes"].tolist() == [[1, 2, 3, 4], [5, 5, 6.5, 7]]
    assert (values["labels"].tolist(), values["class_names"]) == ([2, 1], ["dog", "cat"])
    assert values["box_names"] == ["line 2 of the CSV", "line 4 of the CSV"]
    assert (values["width"], values["height"]) == (10, 8)
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.class_ids, facts.rows) == (
        "detection",
        ("cat", "dog"),
        (1, 2),
        2,
    )
    assert [file.path for file in facts.files] == ["boxes.csv", "images/a.jpg", "images/b.jpg"]


@pytest.mark.parametrize(
    "text",
    [
        "filename,cell_type,xmin,xmax,ymin,ymax\na.jpg,cat,1,3,2,4\n",
        "class;X_Max;y max;XMIN;Y-Min;Image\ncat;3;4;1;2;a.jpg\n",
        "image_id\tlabel\tx1\ty1\tx2\ty2\na\tcat\t1\t2\t3\t4\n",
        "images/a.jpg,1,2,3,4,cat\n",
        '\ufeff"file name","left","top","right","bottom","label"\r\n"C:\\data\\a.jpg","1","2","3","4","cat"\r\n',
        ",filename,depth,class,xmin,ymin,xmax,ymax\n0,a.jpg,3,cat,1,2,3,4\n",
    ],
)
def test_columns_are_known_by_any_usual_name_in_any_order(table, text):
    (row,) = rows(boxes_csv(table(text)))
    assert row.path == "images/a.jpg"
    assert row.values["boxes"].tolist() == [[1, 2, 3, 4]]
    assert row.values["class_names"] == ["cat"]


def test_a_line_without_coordinates_is_an_image_without_boxes(table):
    first, second = rows(boxes_csv(table("a.jpg,,,,,\nb.jpg,1,2,3,4,cat\n")))
    assert (len(first.values["labels"]), len(second.values["labels"])) == (0, 1)


def test_fractions_alone_are_normalised_boxes(table):
    (row,) = rows(boxes_csv(table("ImageID,LabelName,XMin,XMax,YMin,YMax\na,cat,0.5,1,0.25,0.75\n")))
    assert "boxes" not in row.values
    assert row.values["boxes_normalised"].tolist() == [[0.5, 0.25, 1, 0.75]]


def test_a_split_column_gives_the_splits(table):
    text = "filename,class,xmin,ymin,xmax,ymax,split\na.jpg,cat,1,2,3,4,TRAIN\nb.jpg,cat,1,2,3,4,val\n"
    source = boxes_csv(table(text))
    assert source.facts().splits == ("train", "val")
    assert [row.values["split"] for row in rows(source)] == ["train", "val"]


@pytest.mark.parametrize("part_bytes", [1, 1 << 30])
def test_any_size_of_parts_gives_the_same_rows(table, part_bytes):
    path = table(
        HEADER + "".join(f"{'ab'[i % 2]}.jpg,10,8,cat,{i},0,10,8\n" for i in range(6)) + "c.jpg,1,1,c,1,1,1,1\n"
    )
    source = boxes_csv(path)
    found = rows(source, part_bytes)
    assert [row.path for row in found] == ["boxes.csv", "images/a.jpg", "images/b.jpg"]
    assert [row.values["boxes"][:, 0].tolist() for row in found[1:]] == [[0, 2, 4], [1, 3, 5]]
    assert len(source.parts(part_bytes)) == (3 if part_bytes == 1 else 1)


def test_images_names_the_folder(table, tmp_path):
    put_image(tmp_path / "other" / "c.jpg")
    path = table(HEADER + "c.jpg,10,8,cat,1,2,3,4\n")
    source = boxes_csv(path, tmp_path / "other")
    assert [row.path for row in rows(source)] == ["other/c.jpg"]
    assert source.options() == {"csv": "boxes.csv", "images": "other", "label_map": None}


def test_a_label_map_gives_ids_and_a_class_that_it_lacks_makes_a_bad_row(table, tmp_path):
    (tmp_path / "m.pbtxt").write_text("item{id:5 name:'cat'}")
    path = table(HEADER + "a.jpg,10,8,cat,1,2,3,4\nb.jpg,10,8,dog,1,2,3,4\n")
    good, failed = rows(boxes_csv(path, label_map=tmp_path / "m.pbtxt"))
    assert good.values["labels"].tolist() == [5]
    failure = bad(failed)
    assert (failure.code, failure.found) == ("E367", "'dog'")
    assert (failure.location.path, failure.location.line) == (str(path), 3)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("c.jpg,10,8,cat,1,2,3,4", "E366"),
        ("../boxes.csv/../secret.jpg,10,8,cat,1,2,3,4", "E366"),
        ("images/../b.jpg,10,8,cat,1,2,3,4", "E370"),
        ("b.jpg,10,8,cat,1,2,3", "E374"),
        ("b.jpg,10,8,cat,1,2,3,4,5", "E374"),
        (",10,8,cat,1,2,3,4", "E374"),
        ("c.jpg,10,8,cat,1,2,3,wide", "E374"),
        ("c.jpg,10,8,cat,1,2,3,", "E374"),
        ("c.jpg,10,8,cat,1,2,3,1e300", "E374"),
        ("c.jpg,10,8,,1,2,3,4", "E374"),
    ],
)
def test_a_line_that_is_no_box_is_a_bad_row_with_its_line(table, line, code):
    path = table(HEADER + "b.jpg,10,8,cat,1,2,3,4\n" + line + "\n")
    failed, good = rows(boxes_csv(path))
    assert (failed.path, failed.position, failed.line) == ("boxes.csv", 2, 3)
    failure = bad(failed)
    assert (failure.code, failure.location.path, failure.location.line) == (code, str(path), 3)
    assert good.path == "images/b.jpg"


@pytest.mark.parametrize("line", ["a.jpg,10,8,cat,1,2,x,4", "a.jpg,11,8,cat,1,2,3,4", "a.jpg,10,8,,1,2,3,4"])
def test_one_bad_line_makes_the_whole_image_a_bad_row(table, line):
    path = table(HEADER + "a.jpg,10,8,cat,1,2,3,4\n" + line + "\na.jpg,10,8,cat,1,2,3,4\n")
    (row,) = rows(boxes_csv(path))
    failure = bad(row)
    assert (failure.code, failure.location.path, failure.location.line) == ("E374", str(path), 3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a,b,c\n1,2,3\n", 1),
        ("filename,class,xmin,ymin,xmax\n", 1),
        ("filename,color,shape,xmin,ymin,xmax,ymax\n", 1),
        (HEADER.encode() + b"k\xe4fer.jpg,1,1,c,1,1,1,1\n", 2),
        (HEADER + 'a.jpg,10,8,"cat,1,2,3,4\n', 2),
        (HEADER + "a.jpg,10,8," + "x" * 200_000 + ",1,2,3,4\n", 2),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_at_its_line(table, text, line):
    path = table(text)
    failure = refused(boxes_csv(path).facts)
    assert (failure.code, failure.location.path, failure.location.line) == ("X534", str(path), line)


def test_places_with_nothing_to_read_are_refused(table, tmp_path, monkeypatch):
    path = table(HEADER)
    for content in (HEADER, ""):
        failure = refused(boxes_csv(table(content)).facts)
        assert (failure.code, failure.location.path) == ("X532", str(path))
    failure = refused(lambda: boxes_csv(tmp_path / "none.csv"))
    assert (failure.code, failure.location.path) == ("X501", str(tmp_path / "none.csv"))
    monkeypatch.setattr(import_module("rekord.sources.boxes_csv"), "MAX_CSV_BYTES", 4)
    failure = refused(boxes_csv(table(HEADER)).facts)
    assert (failure.code, failure.location.path) == ("X534", str(path))


@pytest.mark.parametrize(
    ("classes", "ids"), [(["1", "10", "2"], [1, 10, 2]), (["0", "10"], [1, 11]), (["3", "007"], [2, 1])]
)
def test_classes_that_are_numbers_keep_them_as_ids(table, classes, ids):
    source = boxes_csv(table(HEADER + "".join(f"a.jpg,10,8,{one},1,2,3,4\n" for one in classes)))
    (row,) = rows(source)
    assert (row.values["labels"].tolist(), row.values["class_names"]) == (ids, classes)


def test_digits_that_only_python_joins_are_no_number(table):
    failure = bad(rows(boxes_csv(table(HEADER + "a.jpg,10,8,cat,1_0,2,30,4\n")))[0])
    assert (failure.code, failure.location.line, failure.found) == ("E374", 2, "'1_0'")
