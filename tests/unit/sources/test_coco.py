"""COCO's json files become rows: every image once, its boxes as corners, every defect with its code and place."""

from __future__ import annotations

import io
import json
import pickle
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.errors import RekordError
from rekord.sources.coco import coco

CATEGORIES = [{"id": 1, "name": "cat"}, {"id": 4, "name": "dog", "supercategory": "animal"}]


def put_image(path: Path, width: int = 10, height: int = 8) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (width, height), (10, 20, 30)).save(path)


def put_json(path: Path, images, annotations, categories=CATEGORIES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def image(number, name, **more):
    return {"id": number, "file_name": name, "width": 10, "height": 8} | more


def box(number, image_id, category=1, bbox=(1, 2, 3, 4), **more):
    whole = {"id": number, "image_id": image_id, "category_id": category, "bbox": list(bbox)}
    return {**whole, "iscrowd": 0, "area": 12.0, **more}


def rows(source, part_bytes=1 << 20):
    source = pickle.loads(pickle.dumps(source))
    parts = pickle.loads(pickle.dumps(list(source.parts(part_bytes))))
    return [row for part in parts for row in source.read(part)]


def bad(row):
    assert isinstance(row.values, RekordError), row
    return row.values


@pytest.fixture
def simple(tmp_path):
    """Two images below images/, one of them with two boxes."""
    put_image(tmp_path / "images" / "b.jpg")
    put_image(tmp_path / "images" / "a.png")
    images = [image(7, "b.jpg"), image("x1", "a.png")]
    annotations = [box(1, 7), box(2, 7, category=4, bbox=(0.5, 0, 9.5, 8), iscrowd=1, area=50)]
    return put_json(tmp_path / "annotations" / "instances.json", images, annotations)


def test_rows_come_in_the_order_of_paths_with_boxes_as_corners(simple, tmp_path):
    source = coco(simple)
    first, second = rows(source)
    assert (first.path, first.position) == ("images/a.png", 0)
    assert first.values["boxes"].shape == (0, 4)
    assert first.values["source_id"] == "x1"
    assert second.path == "images/b.jpg"
    values = second.values
    assert values["image"] == tmp_path / "images" / "b.jpg"
    assert (values["filename"], values["source_id"]) == ("b.jpg", "7")
    assert values["boxes"].dtype == np.float32
    assert values["boxes"].tolist() == [[1, 2, 4, 6], [0.5, 0, 10, 8]]
    assert values["labels"].tolist() == [1, 4]
    assert values["class_names"] == ["cat", "dog"]
    assert values["is_crowd"].tolist() == [0, 1]
    assert values["area"].tolist() == [12, 50]
    assert (values["width"], values["height"]) == (10, 8)
    assert "split" not in values


def test_facts_say_classes_ids_files_and_what_boxes_have(simple, tmp_path):
    facts = coco(simple).facts()
    assert (facts.layout, facts.rows, facts.splits) == ("detection", 2, None)
    assert (facts.classes, facts.class_ids) == (("cat", "dog"), (1, 4))
    assert facts.extra["has"] == ("is_crowd", "area")
    assert [file.path for file in facts.files] == [
        "annotations/instances.json",
        "images/a.png",
        "images/b.jpg",
    ]
    assert facts.files[0].size_bytes == simple.stat().st_size


@pytest.mark.parametrize("part_bytes", [1, 100, 250, 1 << 30])
def test_any_size_of_parts_gives_the_same_rows(tmp_path, part_bytes):
    images = []
    for i in range(7):
        put_image(tmp_path / f"{i}.png", width=5 + i)
        images.append(image(i, f"{i}.png"))
    images.append(image(99, "none.png"))
    path = put_json(tmp_path / "all.json", images, [box(i, i % 7) for i in range(20)] + [box(50, 77)])
    source = coco(path)
    told = [
        (
            row.path,
            row.position,
            row.values.code if isinstance(row.values, RekordError) else row.values["box_names"],
        )
        for row in rows(source, part_bytes)
    ]
    assert len(told) == 9
    assert told[:2] == [("0.png", 0, ["annotation 0", "annotation 7", "annotation 14"]), told[1]]
    assert told[-2:] == [("all.json", 7, "E366"), ("all.json", 28, "E367")]
    assert (len(source.parts(part_bytes)) > 1) == (part_bytes < 1 << 30)


def test_a_part_holds_its_own_images_and_the_source_holds_no_list(tmp_path):
    images = []
    for i in range(40):
        put_image(tmp_path / f"{i:02}.png")
        images.append(image(i, f"{i:02}.png"))
    source = coco(put_json(tmp_path / "all.json", images, [box(i, i % 40) for i in range(400)]))
    parts = source.parts(1)
    assert len(parts) == 40
    assert len(pickle.dumps(source)) < 1000
    assert max(len(pickle.dumps(part)) for part in parts) < 2000


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["annotations/instances_train2017.json", "annotations/instances_val2017.json"], ("train", "val")),
        (["train/_annotations.coco.json", "valid/_annotations.coco.json"], ("train", "valid")),
        (["train.json", "test.json"], ("train", "test")),
        (["annotations/a.json", "annotations/b.json"], ("a", "b")),
    ],
)
def test_a_folder_has_a_json_file_for_each_split(tmp_path, names, splits):
    for i, name in enumerate(names):
        token = Path(name).stem.removeprefix("instances_")
        folder = Path(name).parent if "_annotations" in name else Path("images") / token
        put_image(tmp_path / folder / f"{i}.jpg")
        put_json(tmp_path / name, [image(1, f"{i}.jpg")], [box(1, 1)])
    source = coco(tmp_path)
    assert source.facts().splits == splits
    assert sorted(row.values["split"] for row in rows(source)) == sorted(splits)


def test_instances_are_taken_before_other_kinds_and_trainval_only_alone(tmp_path):
    put_image(tmp_path / "images" / "a.jpg")
    for name in ("instances_train", "instances_trainval", "captions_train", "person_keypoints_train"):
        put_json(tmp_path / "annotations" / f"{name}.json", [image(1, "a.jpg")], [box(1, 1)])
    found = rows(coco(tmp_path))
    assert [row.values["split"] for row in found] == ["train"]
    (tmp_path / "annotations" / "instances_train.json").unlink()
    assert [row.values["split"] for row in rows(coco(tmp_path))] == ["trainval"]


@pytest.mark.parametrize("folder", ["images/train", "train", "images", "data", "."])
def test_the_folder_of_images_is_guessed(tmp_path, folder):
    put_image(tmp_path / folder / "a.jpg")
    path = put_json(tmp_path / "annotations" / "instances_train.json", [image(1, "a.jpg")], [box(1, 1)])
    (row,) = rows(coco(path))
    assert row.values["image"] == tmp_path / folder / "a.jpg"


def test_images_names_the_folder_and_both_are_below_the_root(tmp_path):
    put_image(tmp_path / "elsewhere" / "deep" / "a.jpg")
    path = put_json(tmp_path / "json" / "x.json", [image(1, "deep/a.jpg")], [])
    source = coco(path, tmp_path / "elsewhere")
    (row,) = rows(source)
    assert (source.root, row.path) == (str(tmp_path), "elsewhere/deep/a.jpg")
    assert source.options() == {
        "json": "json/x.json",
        "images": "elsewhere",
        "masks": False,
        "label_map": None,
    }


@pytest.mark.parametrize("name", ["/home/me/pics/a.jpg", "../pics/a.jpg", "C:\\pics\\a.jpg", "./a.jpg"])
def test_names_from_another_machine_lead_to_the_folder_of_images(tmp_path, name):
    put_image(tmp_path / "a.jpg")
    (row,) = rows(coco(put_json(tmp_path / "x.json", [image(1, name)], [])))
    assert row.values["image"] == tmp_path / "a.jpg"


def test_no_name_leads_out_of_the_folder_of_images(tmp_path):
    put_image(tmp_path / "secret.jpg")
    put_image(tmp_path / "in" / "a.jpg")
    names = ["../secret.jpg", str(tmp_path / "secret.jpg"), "a/../../secret.jpg", "", "..", "a\0b.jpg"]
    images = [image(i, name) for i, name in enumerate(names)]
    source = coco(put_json(tmp_path / "in" / "x.json", images, []))
    assert [bad(row).code for row in rows(source)] == ["E366"] * len(names)


def test_a_category_0_without_boxes_is_left_out(tmp_path):
    put_image(tmp_path / "a.jpg")
    categories = [{"id": 0, "name": "things"}, {"id": 1, "name": "cat"}]
    source = coco(put_json(tmp_path / "x.json", [image(1, "a.jpg")], [box(1, 1)], categories))
    assert (source.facts().classes, source.facts().class_ids) == (("cat",), (1,))


def test_where_boxes_have_the_category_0_all_ids_are_one_higher(tmp_path):
    put_image(tmp_path / "a.jpg")
    categories = [{"id": 0, "name": "cat"}, {"id": 2, "name": "dog"}]
    annotations = [box(1, 1, category=0), box(2, 1, category=2.0), box(3, 1, category="2")]
    source = coco(put_json(tmp_path / "x.json", [image(1, "a.jpg")], annotations, categories))
    assert (source.facts().classes, source.facts().class_ids) == (("cat", "dog"), (1, 3))
    (row,) = rows(source)
    assert row.values["labels"].tolist() == [1, 3, 3]
    assert row.values["class_names"] == ["cat", "dog", "dog"]


def test_a_label_map_gives_the_ids_by_name_or_display_name(simple, tmp_path):
    (tmp_path / "m.pbtxt").write_text(
        "item{id:5 name:'dog'} item{id:9 name:'/m/01' display_name:'cat'} item{id:2 name:'fish'}"
    )
    source = coco(simple, label_map=tmp_path / "m.pbtxt")
    facts = source.facts()
    assert (facts.classes, facts.class_ids) == (("fish", "dog", "cat"), (2, 5, 9))
    assert rows(source)[1].values["labels"].tolist() == [9, 5]
    assert source.options()["label_map"] == [[5, "dog", None], [9, "/m/01", "cat"], [2, "fish", None]]


def test_a_class_that_the_label_map_lacks_makes_a_bad_row(simple, tmp_path):
    (tmp_path / "m.pbtxt").write_text("item{id:5 name:'dog'}")
    failure = bad(rows(coco(simple, label_map=tmp_path / "m.pbtxt"))[1])
    assert (failure.code, failure.location.path, failure.found) == ("E367", str(simple), "'cat'")


def test_a_missing_image_is_a_bad_row_of_the_json(simple, tmp_path):
    (tmp_path / "images" / "b.jpg").unlink()
    first, second = rows(coco(simple))
    assert (first.path, first.position) == ("annotations/instances.json", 0)
    failure = bad(first)
    assert (failure.code, failure.location.path) == ("E366", str(simple))
    assert "'b.jpg'" in failure.what
    assert second.path == "images/a.png"


def test_an_annotation_of_an_unknown_image_or_class_is_named(tmp_path):
    put_image(tmp_path / "a.jpg")
    path = put_json(tmp_path / "x.json", [image(1, "a.jpg")], [box(11, 1, category=3), box(12, 2)])
    of_class, of_image = [bad(row) for row in rows(coco(path))]
    assert (of_class.code, of_class.location.path, of_class.found) == ("E367", str(path), "3")
    assert "annotation 11 of image 1" in of_class.what
    assert (of_image.code, of_image.location.path, of_image.found) == ("E367", str(path), "image_id 2")
    assert "annotation 12" in of_image.what


@pytest.mark.parametrize("second", [image(1, "b.jpg"), image(2, "a.jpg")])
def test_an_image_that_is_listed_twice_is_bad_the_second_time(tmp_path, second):
    put_image(tmp_path / "a.jpg")
    put_image(tmp_path / "b.jpg")
    path = put_json(tmp_path / "x.json", [image(1, "a.jpg"), second], [box(1, 1)])
    good, twice = rows(coco(path))
    assert good.path == "a.jpg"
    assert (twice.path, twice.position) == ("x.json", 1)
    assert (bad(twice).code, bad(twice).location.path) == ("E370", str(path))


def test_an_image_in_two_splits_is_bad_in_the_second(tmp_path):
    put_image(tmp_path / "images" / "a.jpg")
    for split in ("train", "val"):
        put_json(tmp_path / "annotations" / f"instances_{split}.json", [image(1, "a.jpg")], [box(1, 1)])
    twice, good = rows(coco(tmp_path))
    assert (bad(twice).code, twice.path) == ("E370", "annotations/instances_val.json")
    assert good.values["split"] == "train"


@pytest.mark.parametrize(
    "change",
    [
        {"bbox": [1, 2, 3]},
        {"bbox": [1, 2, 3, "4"]},
        {"bbox": [1, 2, 3, True]},
        {"bbox": [1, 2, 3, 1e300]},
        {"bbox": "all of it"},
        {"bbox": {"x": 1}},
        {"iscrowd": 2},
        {"iscrowd": "no"},
        {"area": "large"},
        {"area": [1]},
    ],
)
def test_an_annotation_that_is_not_complete_makes_a_bad_row(tmp_path, change):
    put_image(tmp_path / "a.jpg")
    path = put_json(tmp_path / "x.json", [image(1, "a.jpg")], [box(1, 1), {**box(2, 1), **change}])
    (row,) = rows(coco(path))
    assert (row.path, bad(row).code, bad(row).location.path) == ("a.jpg", "E369", str(path))
    assert "annotation 2 of image 1" in bad(row).what
    assert next(iter(change)) in bad(row).what


@pytest.mark.parametrize(
    "entry", [{"file_name": "a.jpg"}, {"id": [1], "file_name": "a.jpg"}, {"id": 1}, {"id": True}]
)
def test_an_image_without_id_or_name_is_a_bad_row(tmp_path, entry):
    put_image(tmp_path / "a.jpg")
    path = put_json(tmp_path / "x.json", [entry], [])
    (row,) = rows(coco(path))
    assert (bad(row).code, bad(row).location.path, row.position) == ("E369", str(path), 0)


def test_missing_crowd_and_area_are_filled_and_annotations_without_a_box_counted(tmp_path):
    put_image(tmp_path / "a.jpg")
    bare = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 3]}
    unboxed = [
        {"id": 2, "image_id": 1, "category_id": 1, "bbox": []},
        {"id": 3, "image_id": 1, "caption": "x"},
    ]
    source = coco(put_json(tmp_path / "x.json", [image(1, "a.jpg")], [bare, *unboxed]))
    (row,) = rows(source)
    assert (row.values["is_crowd"].tolist(), row.values["area"].tolist()) == ([0], [6])
    assert row.values["skipped_annotations"] == 2
    assert source.facts().extra["has"] == ()


def test_the_segments_of_panoptic_files_are_boxes(tmp_path):
    put_image(tmp_path / "a.jpg")
    segments = [{"id": 9, "category_id": 4, "bbox": [1, 1, 2, 2], "area": 3, "iscrowd": 1}]
    annotation = {"image_id": 1, "file_name": "a.png", "segments_info": segments}
    (row,) = rows(coco(put_json(tmp_path / "x.json", [image(1, "a.jpg")], [annotation])))
    assert row.values["boxes"].tolist() == [[1, 1, 3, 3]]
    assert (row.values["labels"].tolist(), row.values["is_crowd"].tolist()) == ([4], [1])


def test_a_file_in_which_no_annotation_has_a_box_is_refused(tmp_path):
    put_image(tmp_path / "a.jpg")
    path = put_json(tmp_path / "captions.json", [image(1, "a.jpg")], [{"id": 1, "image_id": 1, "caption": "a cat"}])
    with pytest.raises(RekordError) as caught:
        coco(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X532", str(path))


def test_a_file_without_annotations_gives_images_without_boxes(tmp_path):
    put_image(tmp_path / "a.jpg")
    path = tmp_path / "image_info_test.json"
    path.write_text(json.dumps({"images": [image(1, "a.jpg")]}))
    (row,) = rows(coco(path))
    assert row.values["boxes"].shape == (0, 4)
    assert coco(path).facts().classes == ()


@pytest.mark.parametrize(
    ("content", "line", "what"),
    [
        (b"", 1, "column 1"),
        (b'{"images": [\n  {"id": 1,\n   "file_name": "a.j', 3, "column 21"),
        (b'{"images": [\n  {"id": NaN}]}', 2, "column 10"),
        (b'{"images": []}\nmore', 2, "column 1"),
        (b'\xef\xbb\xbf{"images": [],\n}', 2, "column 1"),
        (b'{"images": [{"id": 1}],\n "x": "\xff"}', None, None),
        (b'{"images": [{"id":\n"\xff"}]}', 2, "column 2"),
        (b'{"images": [{"id": ' + b"[" * 100_000, None, "cannot be parsed"),
        (b"PK\x03\x04", 1, "column 1"),
    ],
)
def test_damaged_json_is_refused_with_line_and_column(tmp_path, content, line, what):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    if what is None:  # bytes that no one asked for are not looked at
        assert coco(path).facts().rows == 1
        return
    with pytest.raises(RekordError) as caught:
        coco(path).facts()
    assert (caught.value.code, caught.value.location.path, caught.value.location.line) == (
        "X530",
        str(path),
        line,
    )
    assert caught.value.what.endswith(what)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ([], "Expected `object`, got `array`"),
        ({"annotations": []}, "Object missing required field `images`"),
        ({"images": {"a": 1}}, "Expected `array`, got `object` at `$.images`"),
        ({"images": [1]}, "Expected `object`, got `int` at `$.images[...]`"),
        ({"images": [], "categories": [{"id": "one", "name": "a"}]}, "id 'one'"),
        ({"images": [], "categories": [{"id": -1, "name": "a"}]}, "id -1"),
        ({"images": [], "categories": [{"id": 1, "name": ""}]}, "id 1"),
        ({"images": [], "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "a"}]}, "1 and 2, both 'a'"),
        ({"images": [], "categories": [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}]}, "'b' and 'a'"),
    ],
)
def test_json_that_is_not_cocos_is_refused(tmp_path, document, found):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RekordError) as caught:
        coco(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X531", str(path))
    assert caught.value.found.replace("[0]", "[...]") == found


def test_splits_that_disagree_about_a_category_are_refused(tmp_path):
    put_json(tmp_path / "train.json", [], [])
    path = put_json(tmp_path / "val.json", [], [], [{"id": 1, "name": "cow"}])
    with pytest.raises(RekordError) as caught:
        coco(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X531", str(path))
    assert caught.value.found == f"'cow' and 'cat', in {tmp_path / 'train.json'}"


def test_places_with_nothing_to_read_are_refused(tmp_path):
    with pytest.raises(RekordError) as caught:
        coco(tmp_path / "none.json")
    assert (caught.value.code, caught.value.location.path) == ("X501", str(tmp_path / "none.json"))
    with pytest.raises(RekordError) as caught:
        coco(tmp_path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X532", str(tmp_path))
    path = put_json(tmp_path / "x.json", [], [])
    with pytest.raises(RekordError) as caught:
        coco(path, path)
    assert (caught.value.code, caught.value.location.path) == ("U605", str(path))


def test_a_json_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("rekord.sources.coco"), "MAX_JSON_BYTES", 10)
    path = put_json(tmp_path / "x.json", [], [])
    with pytest.raises(RekordError) as caught:
        coco(path).facts()
    assert (caught.value.code, caught.value.location.path) == ("X531", str(path))


def test_facts_look_again_and_parts_speak_of_the_same_files(tmp_path):
    put_image(tmp_path / "a.jpg")
    path = put_json(tmp_path / "x.json", [image(1, "a.jpg"), image(2, "b.jpg")], [])
    source = coco(path)
    assert source.facts().rows == 2
    put_image(tmp_path / "b.jpg")
    assert [row.path for part in source.parts() for row in source.read(part)] == ["a.jpg", "x.json"]
    source.facts()
    assert [row.path for part in source.parts() for row in source.read(part)] == ["a.jpg", "b.jpg"]


# Masks.


def masks_of(tmp_path, *outlines, width=5, height=4):
    put_image(tmp_path / "a.jpg", width, height)
    annotations = [box(i, 1, bbox=(0, 0, 1, 1), segmentation=one) for i, one in enumerate(outlines)]
    one = image(1, "a.jpg", width=width, height=height)
    (row,) = rows(coco(put_json(tmp_path / "x.json", [one], annotations), masks=True))
    return row


def pixels(png):
    with Image.open(io.BytesIO(png)) as picture:
        assert (picture.format, picture.mode) == ("PNG", "L")
        return np.asarray(picture).tolist()


def test_a_pixel_is_in_a_polygon_when_its_centre_is(tmp_path):
    square, triangle = [1, 1, 3, 1, 3, 3, 1, 3], [0, 0, 4, 0, 0, 4]
    two = [[0, 0, 1, 0, 1, 1, 0, 1], [4, 3, 5, 3, 5, 4, 4, 4]]
    row = masks_of(tmp_path, [square], [triangle], two, [[-9, -9, 99, -9, 99, 99, -9, 99]])
    first, second, third, fourth = [pixels(png) for png in row.values["masks"]]
    assert first == [[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]
    assert second == [[1, 1, 1, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    assert third == [[1, 0, 0, 0, 0], [0] * 5, [0] * 5, [0, 0, 0, 0, 1]]
    assert fourth == [[1] * 5] * 4


def short_form(counts):
    """Run lengths as COCO packs them: five bits a letter, from the fourth on as differences."""
    letters = []
    for i, count in enumerate(counts):
        left = count - counts[i - 2] if i > 2 else count
        while True:
            digit, left = left & 31, left >> 5
            done = left == (-1 if digit & 16 else 0)
            letters.append(chr(48 + (digit if done else digit | 32)))
            if done:
                break
    return "".join(letters)


@pytest.mark.parametrize("counts", [[2, 3, 15], [0, 1, 2, 3, 4, 5, 5], [20], [0, 20], [1, 1, 1, 1, 16]])
def test_run_lengths_go_down_the_columns_in_both_forms(tmp_path, counts):
    row = masks_of(tmp_path, {"size": [4, 5], "counts": counts}, {"size": [4, 5], "counts": short_form(counts)})
    flat = [i % 2 for i, count in enumerate(counts) for _ in range(count)]
    expected = [[flat[column * 4 + line] for column in range(5)] for line in range(4)]
    assert [pixels(png) for png in row.values["masks"]] == [expected, expected]


def test_long_run_lengths_keep_their_sign(tmp_path):
    counts = [1000, 500, 40, 3000, 60]
    row = masks_of(tmp_path, {"size": [46, 100], "counts": short_form(counts)}, width=100, height=46)
    assert np.sum(pixels(row.values["masks"][0])) == 3500


@pytest.mark.parametrize(
    "outline",
    [
        None,
        [],
        [[]],
        [[1, 2, 3, 4]],
        [[1, 2, 3, 4, 5, 6, 7]],
        [[1, 2, 3, 4, 5, "6"]],
        [[1, 2, 3, 4, 5, 1e300]],
        "x",
        {"counts": [20]},
        {"size": [4, 5]},
        {"size": [5, 4], "counts": [20]},
        {"size": [4, 5], "counts": [21]},
        {"size": [4, 5], "counts": [-1, 21]},
        {"size": [4, 5], "counts": "~"},
        {"size": [4, 5], "counts": "P"},
        {"size": [4, 5], "counts": "P" * 40},
    ],
)
def test_an_outline_that_cannot_be_drawn_makes_a_bad_row(tmp_path, outline):
    row = masks_of(tmp_path, [[0, 0, 1, 0, 1, 1]], outline)
    assert (row.path, bad(row).code, bad(row).location.path) == ("a.jpg", "E375", str(tmp_path / "x.json"))
    assert "annotation 1 of image 1" in bad(row).what


@pytest.mark.parametrize("height", [10**8, 0, None, "tall"])
def test_the_size_of_an_image_is_not_believed_beyond_reason(tmp_path, height):
    put_image(tmp_path / "a.jpg")
    outlined = box(1, 1, segmentation=[[0, 0, 1, 0, 1, 1]])
    path = put_json(tmp_path / "x.json", [image(1, "a.jpg", height=height)], [outlined])
    (row,) = rows(coco(path, masks=True))
    assert (bad(row).code, bad(row).location.path) == ("E375", str(path))


def test_masks_that_were_asked_for_are_written(tmp_path):
    square = [[1, 1, 3, 1, 3, 3, 1, 3]]
    masks_of(tmp_path, square)
    dataset = rk.write(coco(tmp_path / "x.json", masks=True), tmp_path / "out", progress=False, workers=1)
    (batch,) = dataset["train"].batches(1)
    assert pixels(batch["masks"][0][0])[1] == [0, 1, 1, 0, 0]
