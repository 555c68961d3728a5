"""Pascal VOC's folders become rows: lists as splits, boxes as the xml has them, every defect with its place."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image

from rekord.errors import RekordError
from rekord.sources.voc import VOC_CLASSES, voc


def put_image(path: Path, width: int = 20, height: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height)).save(path)


def an_object(name="cat", box=(1, 2, 3, 4), more=""):
    sides = "".join(
        f"<{side}>{value}</{side}>" for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"\n<object><name>{name}</name>{more}<bndbox>{sides}</bndbox></object>"


def an_xml(*objects, size=(20, 10), name="x.jpg"):
    stated = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    return f"<annotation><filename>{name}</filename>{stated}{''.join(objects)}\n</annotation>\n"


def put(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def put_pair(root: Path, name: str, *objects, **more):
    put_image(root / "JPEGImages" / f"{name}.jpg")
    return put(root, f"Annotations/{name}.xml", an_xml(*objects, **more))


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


def test_boxes_are_the_pixels_of_the_xml_with_all_that_is_said_of_them(tmp_path):
    flags = "<pose>Left</pose><truncated>1</truncated><difficult>0</difficult>"
    part = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"
    put_pair(tmp_path, "a", an_object("dog", (1, 2, 20, 10), flags), an_object("cat", (1.5, 2, 3, 4.25), part))
    (row,) = rows(voc(tmp_path))
    assert (row.path, row.position) == ("JPEGImages/a.jpg", 0)
    values = row.values
    assert values["image"] == tmp_path / "JPEGImages" / "a.jpg"
    assert (values["filename"], values["source_id"]) == ("a.jpg", "a.jpg")
    assert values["boxes"].tolist() == [[1, 2, 20, 10], [1.5, 2, 3, 4.25]]
    assert values["class_names"] == ["dog", "cat"]
    assert values["labels"].tolist() == [12, 8]
    assert (values["difficult"].tolist(), values["truncated"].tolist()) == ([0, 0], [1, 0])
    assert values["view"] == ["Left", "Unspecified"]
    assert (values["width"], values["height"]) == (20, 10)
    assert "occluded" not in values


def test_classes_within_vocs_own_have_vocs_order_and_others_that_of_their_names(tmp_path):
    put_pair(tmp_path, "a", an_object("tvmonitor"))
    facts = voc(tmp_path).facts()
    assert (facts.classes, facts.class_ids) == (VOC_CLASSES, tuple(range(1, 21)))
    put_pair(tmp_path, "b", an_object("zebra"), an_object("Ähre"), an_object("ant"))
    facts = voc(tmp_path).facts()
    assert facts.classes == ("ant", "tvmonitor", "zebra", "Ähre")
    assert (facts.layout, facts.rows, facts.extra["has"]) == ("detection", 2, ())
    assert [file.path for file in facts.files][:2] == ["Annotations/a.xml", "Annotations/b.xml"]


def test_lists_are_splits_and_trainval_is_read_only_alone(tmp_path):
    for name in "abcd":
        put_pair(tmp_path, name, an_object())
    put(tmp_path, "ImageSets/Main/train.txt", "a\n\n# a comment\nb.jpg\n")
    put(tmp_path, "ImageSets/Main/val.txt", "JPEGImages/c.jpg Annotations/c.xml\r\n")
    put(tmp_path, "ImageSets/Main/trainval.txt", "a\nb\nc\n")
    put(tmp_path, "ImageSets/Main/cat_train.txt", "a -1\n")
    source = voc(tmp_path)
    assert source.facts().splits == ("train", "val")
    assert [(row.values["filename"], row.values["split"]) for row in rows(source)] == [
        ("a.jpg", "train"),
        ("b.jpg", "train"),
        ("c.jpg", "val"),
    ]
    assert [row.values["split"] for row in rows(voc(tmp_path, lists=["trainval"]))] == ["trainval"] * 3
    failure = refused(voc(tmp_path, lists=["other"]).facts)
    assert (failure.code, failure.location.path) == ("X532", str(tmp_path / "ImageSets" / "Main"))


@pytest.mark.parametrize("part_bytes", [1, 1000, 1 << 30])
def test_any_size_of_parts_gives_the_same_rows(tmp_path, part_bytes):
    for i in range(6):
        put_pair(tmp_path, f"{i}", *[an_object()] * i)
    put(tmp_path, "Annotations/9.xml", an_xml())
    found = rows(voc(tmp_path), part_bytes)
    assert [row.path for row in found] == ["Annotations/9.xml", *[f"JPEGImages/{i}.jpg" for i in range(6)]]
    assert [len(row.values["boxes"]) for row in found[1:]] == list(range(6))
    assert bad(found[0]).code == "E366"


def test_an_id_of_a_list_without_its_image_or_xml_is_a_bad_row_of_the_list(tmp_path):
    put_pair(tmp_path, "a", an_object())
    put_image(tmp_path / "JPEGImages" / "c.jpg")
    path = put(tmp_path, "ImageSets/Main/train.txt", "a\nb\nc\n../../etc/x\n")
    no_image, no_xml, outside, good = rows(voc(tmp_path))
    for row, line in ((no_image, 2), (no_xml, 3), (outside, 4)):
        assert (row.path, row.position, row.line) == ("ImageSets/Main/train.txt", line - 1, line)
        failure = bad(row)
        assert (failure.code, failure.location.path, failure.location.line) == ("E366", str(path), line)
    assert bad(no_xml).expected == str(tmp_path / "Annotations" / "c.xml")
    assert good.path == "JPEGImages/a.jpg"


def test_the_images_of_a_test_list_without_any_xml_have_no_boxes(tmp_path):
    put_pair(tmp_path, "a", an_object())
    put_image(tmp_path / "JPEGImages" / "b.jpg")
    put(tmp_path, "ImageSets/Main/train.txt", "a")
    put(tmp_path, "ImageSets/Main/test.txt", "b")
    labelled, unlabelled = rows(voc(tmp_path))
    assert (labelled.values["split"], len(labelled.values["boxes"])) == ("train", 1)
    assert (unlabelled.values["split"], len(unlabelled.values["boxes"])) == ("test", 0)


def test_an_image_in_two_lists_is_bad_in_the_second(tmp_path):
    put_pair(tmp_path, "a", an_object())
    put(tmp_path, "ImageSets/Main/train.txt", "a\n")
    path = put(tmp_path, "ImageSets/Main/val.txt", "\na\n")
    twice, good = rows(voc(tmp_path))
    assert (bad(twice).code, bad(twice).location.path, bad(twice).location.line) == ("E370", str(path), 2)
    assert "ImageSets/Main/train.txt" in bad(twice).found
    assert good.values["split"] == "train"


def test_xml_beside_images_is_read_in_one_folder_or_one_a_split(tmp_path):
    put_image(tmp_path / "flat" / "a.png")
    put(tmp_path / "flat", "a.xml", an_xml(an_object()))
    (row,) = rows(voc(tmp_path / "flat"))
    assert (row.path, "split" in row.values) == ("a.png", False)
    for split in ("train", "valid"):
        put_image(tmp_path / "two" / split / "a.jpg")
        put(tmp_path / "two", f"{split}/a.xml", an_xml(an_object()))
    assert [(row.path, row.values["split"]) for row in rows(voc(tmp_path / "two"))] == [
        ("train/a.jpg", "train"),
        ("valid/a.jpg", "valid"),
    ]


def test_the_folder_of_vocs_archives_is_entered_and_an_image_found_by_its_stated_name(tmp_path):
    root = tmp_path / "VOCdevkit" / "VOC2012"
    put_image(root / "JPEGImages" / "other.png")
    put(root, "Annotations/a.xml", an_xml(an_object(), name="other.png"))
    (row,) = rows(voc(tmp_path))
    assert row.path == "VOCdevkit/VOC2012/JPEGImages/other.png"


def test_a_size_that_the_xml_does_not_know_is_not_stated(tmp_path):
    put_pair(tmp_path, "a", an_object(), size=(0, 0))
    put_pair(tmp_path, "b", an_object(), size=None)
    assert ["width" in row.values for row in rows(voc(tmp_path))] == [False, False]


def test_a_label_map_gives_ids_and_a_class_that_it_lacks_makes_a_bad_row(tmp_path):
    put(tmp_path, "m.pbtxt", "item{id:3 name:'cat'} item{id:9 name:'cow'}")
    put_pair(tmp_path, "a", an_object("cat"))
    path = put_pair(tmp_path, "b", an_object("cat"), an_object("dog"))
    source = voc(tmp_path, label_map=tmp_path / "m.pbtxt")
    facts = source.facts()
    assert (facts.classes, facts.class_ids) == (("cat", "cow"), (3, 9))
    good, failed = rows(source)
    assert good.values["labels"].tolist() == [3]
    assert (bad(failed).code, bad(failed).location.path, bad(failed).location.line) == ("E367", str(path), 3)
    assert bad(failed).found == "'dog'"


BOMB = '<!DOCTYPE a [<!ENTITY b "bbbbbbbb"><!ENTITY c "&b;&b;&b;">]>'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b"  \n", 2),
        (b"<annotation>\n<object>", 2),
        (b"<annotation>\n</object>", 2),
        (b"{}", 1),
        (b"<html></html>", 1),
        (b"<annotation>\n\xff\xfe</annotation>", 2),
        (b'<?xml version="1.0" encoding="klingon"?><annotation/>', 1),
        (BOMB.encode() + b"<annotation><filename>&c;</filename></annotation>", 1),
        (b"\n" + ("\ufeff" + BOMB + "<annotation/>").encode("utf-16-le"), None),
        (b"<annotation>\n" + b"<a>" * 100, 2),
    ],
)
def test_xml_that_is_no_annotation_is_refused_at_its_line(tmp_path, content, line):
    path = put_pair(tmp_path, "a")
    path.write_bytes(content)
    (row,) = rows(voc(tmp_path))
    failure = bad(row)
    assert (row.path, failure.code, failure.location.path) == ("JPEGImages/a.jpg", "E371", str(path))
    assert line is None or failure.location.line == line


def test_a_doctype_is_refused_in_any_encoding(tmp_path):
    path = put_pair(tmp_path, "a")
    path.write_bytes((BOMB + "<annotation/>").encode("utf-16"))
    (row,) = rows(voc(tmp_path))
    assert (bad(row).code, bad(row).what) == ("E371", "XML file declares a DOCTYPE")


@pytest.mark.parametrize(
    "wrong",
    [
        "<object><bndbox/></object>",
        "<object><name> </name></object>",
        "<object><name>cat</name></object>",
        an_object(box=(1, 2, 3, "")),
        an_object(box=(1, 2, 3, "nan")),
        an_object(box=(1, 2, 3, "1e300")),
        an_object(box=(1, 2, 3, "4px")),
        an_object(more="<difficult>maybe</difficult>"),
    ],
)
def test_an_object_that_is_not_complete_makes_a_bad_row_with_its_line(tmp_path, wrong):
    path = put_pair(tmp_path, "a", an_object(), "\n" + wrong.strip())
    (row,) = rows(voc(tmp_path))
    failure = bad(row)
    assert (failure.code, failure.location.path, failure.location.line) == ("E369", str(path), 3)


def test_an_xml_file_that_is_too_large_is_a_bad_row(tmp_path, monkeypatch):
    path = put_pair(tmp_path, "a", an_object())
    monkeypatch.setattr(import_module("rekord.sources.voc"), "MAX_LABEL_BYTES", 30)
    (row,) = rows(voc(tmp_path))
    assert (bad(row).code, bad(row).location.path) == ("E371", str(path))


def test_places_with_nothing_to_read_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    file = put(tmp_path, "file", "")
    for path, code in ((tmp_path / "none", "X501"), (tmp_path / "empty", "X532"), (file, "U605")):
        failure = refused(voc(path).facts)
        assert (failure.code, failure.location.path) == (code, str(path))
    assert refused(lambda: voc(3)).code == "U605"


def test_digits_that_only_python_joins_are_no_number(tmp_path):
    put_pair(tmp_path, "a", an_object(box=("1_0", 2, 30, 4)))
    failure = bad(rows(voc(tmp_path))[0])
    assert (failure.code, failure.found) == ("E369", "'1_0'")
