"""Images with masks: two folders, Pascal VOC and Cityscapes, and what is wrong with rows that have no partner."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rekord.errors import RekordError
from rekord.sources.base import SourceRow, full_path
from rekord.sources.colour_tables import VOC_SEGMENTATION_CLASSES, read_colour_table, read_voc_classes
from rekord.sources.segmentation import cityscapes, segmentation
from rekord.sources.voc import voc_segmentation

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Files of ten bytes each, or with a text; images are not looked at here."""

    def write(*paths: str, text: str = "0123456789") -> Path:
        for path in paths:
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write


def rows_of(source: Any, part_bytes: int = 1 << 20) -> list[SourceRow]:
    """All rows, read the way a worker reads them: from a pickled source and pickled parts."""
    parts = pickle.loads(pickle.dumps(source.parts(part_bytes)))
    far = pickle.loads(pickle.dumps(source))
    return [row for part in parts for row in far.read(part)]


def told(source: Any) -> list[Any]:
    """Each row in short: its values' files, or code, file, line and feature of its error."""
    shown = []
    for row in rows_of(source):
        if isinstance(row.values, RekordError):
            where = row.values.location
            shown.append((row.values.code, os.path.relpath(where.path or "", source.root), where.line, where.feature))
        else:
            shown.append(dict(row.values))
    return shown


def refused(call: Callable[[], object]) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


# Two folders.


def test_images_and_masks_pair_by_their_paths_without_extensions(put):
    root = put("images/b/1.jpg", "images/a/1.PNG", "masks/a/1.png", "masks/b/1.png", "images/notes.txt")
    source = segmentation(root / "images", root / "masks", classes=3, ignore=255)
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.rows, facts.source_bytes) == ("deeplab", None, 2, 40)
    assert facts.extra == {"classes": 3, "ignore": 255, "optional_masks": False}
    assert [file.path for file in facts.files] == [
        "../masks/a/1.png",
        "../masks/b/1.png",
        "a/1.PNG",
        "b/1.jpg",
    ]
    assert rows_of(source) == [
        SourceRow(
            "a/1.PNG",
            0,
            {"image": root / "images/a/1.PNG", "filename": "a/1.PNG", "mask": root / "masks/a/1.png"},
        ),
        SourceRow(
            "b/1.jpg",
            0,
            {"image": root / "images/b/1.jpg", "filename": "b/1.jpg", "mask": root / "masks/b/1.png"},
        ),
    ]


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("x.jpg", "x_mask.png"),
        ("x.jpg", "x_label.png"),
        ("x.jpg", "x-mask.png"),
        ("x_sat.jpg", "x_mask.png"),
        ("a/x_leftImg8bit.png", "a/x_gtFine_labelIds.png"),
        ("a/x_leftImg8bit.png", "a/x_gtFine_labelTrainIds.png"),
        ("v1.2.jpg", "v1.2.png"),
    ],
)
def test_usual_endings_of_masks_are_known(put, image, mask):
    root = put(f"images/{image}", f"masks/{mask}")
    assert told(segmentation(root / "images", root / "masks")) == [
        {"image": root / "images" / image, "filename": image, "mask": root / "masks" / mask}
    ]


def test_endings_are_tried_only_where_no_plain_name_matches(put):
    root = put("images/1.jpg", "images/2.jpg", "masks/1.png", "masks/2_mask.png")
    assert told(segmentation(root / "images", root / "masks"))[0::2] == [
        ("E364", "../masks/2_mask.png", None, "image"),
        ("E363", "2.jpg", None, "mask"),
    ]


def test_train_ids_of_cityscapes_are_preferred_and_colours_are_no_masks(put):
    root = put("images/x_leftImg8bit.png", "masks/x_gtFine_labelIds.png", "masks/x_gtFine_color.png")
    put("masks/x_gtFine_labelTrainIds.png", "masks/x_gtFine_instanceIds.png")
    rows = told(segmentation(root / "images", root / "masks"))
    assert [row["mask"].name for row in rows] == ["x_gtFine_labelTrainIds.png"]


def test_what_has_no_partner_is_a_bad_row(put):
    root = put("images/1.jpg", "images/2.jpg", "images/3.jpg", "masks/1.png", "masks/4.png", "masks/a/3.png")
    source = segmentation(root / "images", root / "masks")
    assert told(source) == [
        ("E364", "../masks/4.png", None, "image"),
        ("E364", "../masks/a/3.png", None, "image"),
        {"image": root / "images/1.jpg", "filename": "1.jpg", "mask": root / "masks/1.png"},
        ("E363", "2.jpg", None, "mask"),
        ("E363", "3.jpg", None, "mask"),
    ]
    rows = rows_of(source)
    assert [row.path for row in rows] == ["../masks/4.png", "../masks/a/3.png", "1.jpg", "2.jpg", "3.jpg"]
    assert os.path.samefile(full_path(source, rows[0].path), root / "masks/4.png")
    assert isinstance(rows[3].values, RekordError)
    assert rows[3].values.expected == "a mask named 2.png"


def test_optional_masks_are_left_out(put):
    root = put("images/1.jpg", "images/2.jpg", "masks/2.png")
    source = segmentation(root / "images", root / "masks", optional_masks=True)
    assert source.facts().extra["optional_masks"] is True
    assert [sorted(row) for row in told(source)] == [["filename", "image"], ["filename", "image", "mask"]]


def test_two_files_of_one_name_are_a_bad_row(put):
    root = put("images/1.jpg", "images/1.png", "masks/1.png", "masks/1.bmp")
    source = segmentation(root / "images", root / "masks")
    assert told(source) == [
        ("E365", "../masks/1.png", None, "mask"),
        {"image": root / "images/1.jpg", "filename": "1.jpg", "mask": root / "masks/1.bmp"},
        ("E365", "1.png", None, "image"),
    ]
    assert [row.values.what for row in rows_of(source)[0::2] if isinstance(row.values, RekordError)] == [
        "two masks have the same name",
        "two images have the same name",
    ]


def test_names_that_are_not_utf_8_are_bad_rows(put):
    root = put("images/1.jpg", "masks/1.png")
    (root / "images" / os.fsdecode(b"\xff.jpg")).write_bytes(b"")
    (root / "masks" / os.fsdecode(b"\xfe.png")).write_bytes(b"")
    source = segmentation(root / "images", root / "masks")
    assert told(source)[0] == ("E318", "../masks/\\xfe.png", None, "filename")
    assert told(source)[2] == ("E318", "\\xff.jpg", None, "filename")
    assert [row.path for row in rows_of(source)] == ["../masks/\\xfe.png", "1.jpg", "\\xff.jpg"]


def test_masks_below_the_images_are_no_images(put):
    root = put("1.jpg", "masks/1.png")
    assert told(segmentation(root, root / "masks")) == [
        {"image": root / "1.jpg", "filename": "1.jpg", "mask": root / "masks/1.png"}
    ]


def test_linked_folders_pair_too(put):
    root = put("far/away/images/1.jpg", "masks/1.png")
    (root / "images").symlink_to(root / "far/away/images")
    rows = told(segmentation(root / "images", root / "masks"))
    assert rows == [{"image": root / "images/1.jpg", "filename": "1.jpg", "mask": root / "masks/1.png"}]
    assert rows[0]["mask"].exists()


def test_folders_that_cannot_be_meant_are_refused(put):
    root = put("images/1.jpg", "masks/1.txt")
    (root / "empty").mkdir()
    failure = refused(lambda: segmentation(root / "images", root / "masks").facts())
    assert (failure.code, failure.location.path, failure.what) == (
        "X527",
        str(root / "masks"),
        "folder has no masks",
    )
    failure = refused(lambda: segmentation(root / "empty", root / "images").facts())
    assert (failure.code, failure.location.path) == ("X527", str(root / "empty"))
    failure = refused(lambda: segmentation(root / "images", root / "images").facts())
    assert (failure.code, failure.location.path) == ("U605", str(root / "images"))
    failure = refused(lambda: segmentation(root / "images", root / "no").facts())
    assert (failure.code, failure.location.path) == ("X501", str(root / "no"))
    assert str(refused(lambda: segmentation(root / "images", root / "masks", classes=["a", "a"]))).startswith(
        "U605: `classes` cannot be "
    )


def test_names_of_classes_are_handed_on(put):
    root = put("images/1.jpg", "masks/1.png")
    facts = segmentation(root / "images", root / "masks", classes=["road", "sky"]).facts()
    assert (facts.classes, facts.extra["classes"]) == (("road", "sky"), 2)
    assert "ignore" not in facts.extra


@pytest.mark.parametrize("part_bytes", [1, 20, 45, 1000])
def test_any_size_of_parts_gives_the_same_rows(put, part_bytes):
    root = put(*[f"images/{i}.jpg" for i in range(6)], *[f"masks/{i}.png" for i in range(1, 8)])
    source = segmentation(root / "images", root / "masks")
    shown = [(row.path, str(row.values)) for row in rows_of(source)]
    assert [(row.path, str(row.values)) for row in rows_of(source, part_bytes)] == shown
    assert len(shown) == 8
    assert sum(part.source_bytes for part in source.parts(part_bytes)) == 6 * 10 + 7 * 10


# Pascal VOC.


@pytest.fixture
def voc(put: Put) -> Path:
    put(*[f"JPEGImages/{name}.jpg" for name in "abcd"])
    put(*[f"SegmentationClass/{name}.png" for name in "abc"])
    put("ImageSets/Segmentation/train.txt", text="b\na\n")
    put("ImageSets/Segmentation/val.txt", text="c\n")
    put("ImageSets/Segmentation/trainval.txt", text="a\nb\nc\n")
    return put("ImageSets/Segmentation/test.txt", text="d\n")


def test_the_lists_of_voc_name_rows_and_splits(voc):
    source = voc_segmentation(voc)
    facts = source.facts()
    assert (facts.layout, facts.rows, facts.splits) == ("deeplab", 4, ("train", "val", "test"))
    assert facts.classes == VOC_SEGMENTATION_CLASSES
    assert [facts.extra[name] for name in ("classes", "ignore", "optional_masks")] == [21, 255, True]
    assert [(row.path, row.position, row.line) for row in rows_of(source)] == [
        ("ImageSets/Segmentation/test.txt", 0, 1),
        ("ImageSets/Segmentation/train.txt", 0, 1),
        ("ImageSets/Segmentation/train.txt", 1, 2),
        ("ImageSets/Segmentation/val.txt", 0, 1),
    ]
    image, mask = voc / "JPEGImages", voc / "SegmentationClass"
    assert told(source) == [
        {"image": image / "d.jpg", "filename": "d", "split": "test"},
        {"image": image / "b.jpg", "filename": "b", "mask": mask / "b.png", "split": "train"},
        {"image": image / "a.jpg", "filename": "a", "mask": mask / "a.png", "split": "train"},
        {"image": image / "c.jpg", "filename": "c", "mask": mask / "c.png", "split": "val"},
    ]


def test_the_fingerprint_of_voc_holds_what_is_used(voc, put):
    put("JPEGImages/unlisted.jpg", "SegmentationClass/unlisted.png")
    assert [file.path for file in voc_segmentation(voc).facts().files] == [
        *[f"ImageSets/Segmentation/{name}.txt" for name in ("test", "train", "val")],
        *[f"JPEGImages/{name}.jpg" for name in "abcd"],
        *[f"SegmentationClass/{name}.png" for name in "abc"],
    ]


def test_trainval_is_used_where_there_is_nothing_else(voc):
    for name in ("train", "val"):
        (voc / f"ImageSets/Segmentation/{name}.txt").unlink()
    source = voc_segmentation(voc)
    assert source.facts().splits == ("test", "trainval")
    assert [row["filename"] for row in told(source)] == ["d", "a", "b", "c"]


def test_lines_of_lists_that_lead_nowhere_are_bad_rows(voc, put):
    put(
        "ImageSets/Segmentation/train.txt",
        text="a\n\nmissing\nd\nb 1\na\n/JPEGImages/b.jpg /SegmentationClass/b.png\n",
    )
    put("ImageSets/Segmentation/val.txt", text="c\na\n")
    source = voc_segmentation(voc)
    train, val = "ImageSets/Segmentation/train.txt", "ImageSets/Segmentation/val.txt"
    faults = [row for row in told(source) if isinstance(row, tuple)]
    assert faults == [
        ("E360", train, 3, "image"),
        ("E363", train, 4, "mask"),
        ("E362", train, 6, "image"),
        ("E362", train, 7, "image"),
        ("E362", val, 2, "image"),
    ]
    leak = rows_of(source)[-1].values
    assert isinstance(leak, RekordError)
    assert leak.found == "also in train.txt, line 1"


def test_an_id_that_is_not_utf_8_is_a_bad_row(voc):
    (voc / "ImageSets/Segmentation/val.txt").write_bytes(b"c\n\xe9\n")
    assert told(voc_segmentation(voc))[-1] == (
        "E318",
        "ImageSets/Segmentation/val.txt",
        2,
        "filename",
    )


@pytest.mark.parametrize(("optional", "code"), [(False, "E363"), (True, None), (None, None)])
def test_masks_of_test_are_optional_unless_said_otherwise(voc, optional, code):
    values = rows_of(voc_segmentation(voc, optional_masks=optional))[0].values
    assert (values.code if isinstance(values, RekordError) else None) == code


def test_a_labelmap_gives_names_and_colours(voc, put):
    put(
        "labelmap.txt",
        text="# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:64,0,0::\nignored:224,224,192::\n",
    )
    facts = voc_segmentation(voc).facts()
    assert facts.classes == ("background", "cat")
    assert facts.extra["colours"] == {(0, 0, 0): 0, (64, 0, 0): 1, (224, 224, 192): 255}
    assert facts.extra["classes"] == 2
    facts = voc_segmentation(voc, classes=["a", "b", "c"]).facts()
    assert (facts.classes, facts.extra["classes"], "colours" in facts.extra) == (("a", "b", "c"), 3, False)


def test_a_labelmap_without_colours_gives_names_alone(voc, put):
    put("labelmap.txt", text="background:::\ncat:::\n")
    facts = voc_segmentation(voc).facts()
    assert (facts.classes, "colours" in facts.extra) == (("background", "cat"), False)


def test_the_colours_of_voc_are_those_of_its_palette(voc):
    colours = voc_segmentation(voc).facts().extra["colours"]
    assert [list(colours)[i] for i in (0, 1, 3, 9, 20)] == [
        (0, 0, 0),
        (128, 0, 0),
        (128, 128, 0),
        (192, 0, 0),
        (0, 64, 128),
    ]
    assert colours[(224, 224, 192)] == 255
    assert len(colours) == 22


@pytest.mark.parametrize("line", ["cat:1,2", "cat:1,2,300::", "background:1,1,1::", ":1,2,3::", "cat:a,b,c::"])
def test_a_labelmap_that_cannot_be_read_names_its_line(voc, put, line):
    put("labelmap.txt", text=f"background:0,0,0::\n{line}\n")
    failure = refused(lambda: voc_segmentation(voc).facts())
    assert (failure.code, failure.location.path, failure.location.line) == (
        "X529",
        str(voc / "labelmap.txt"),
        2,
    )


def test_a_folder_that_is_no_voc_is_refused_with_the_right_one(voc):
    failure = refused(lambda: voc_segmentation(voc / "JPEGImages").facts())
    assert (failure.code, failure.location.path) == ("X529", str(voc / "JPEGImages"))
    # One folder up lie those of other tests: a folder of its own, with nothing else in it.
    above = voc / "above"
    above.mkdir()
    (above / "VOC2012").symlink_to(voc)
    failure = refused(lambda: voc_segmentation(above).facts())
    assert (failure.code, failure.do) == ("X529", f"pass {above / 'VOC2012'} instead")


def test_lists_that_name_nothing_are_refused(voc):
    for name in ("train", "val", "test", "trainval"):
        (voc / f"ImageSets/Segmentation/{name}.txt").write_text("\n")
    failure = refused(lambda: voc_segmentation(voc).facts())
    assert (failure.code, failure.location.path) == ("X529", str(voc / "ImageSets/Segmentation"))
    assert failure.found == "3 empty lists"


@pytest.mark.parametrize("text", ["a\0b\n", "x" * 70_000])
def test_a_list_that_is_no_list_is_refused(voc, put, text):
    put("ImageSets/Segmentation/train.txt", text=f"a\n{text}")
    failure = refused(lambda: voc_segmentation(voc).facts())
    assert (failure.code, failure.location.line) == ("X529", 2)
    assert failure.location.path == str(voc / "ImageSets/Segmentation/train.txt")


@pytest.mark.parametrize("part_bytes", [1, 20, 1000])
def test_any_size_of_parts_gives_the_same_rows_of_voc(voc, part_bytes):
    source = voc_segmentation(voc)
    assert rows_of(source, part_bytes) == rows_of(source)


# Cityscapes.


@pytest.fixture
def streets(put: Put) -> Path:
    for split, city in (("val", "bern"), ("train", "aachen")):
        name = f"{split}/{city}/{city}_000000_000019"
        put(f"leftImg8bit/{name}_leftImg8bit.png")
        put(*[f"gtFine/{name}_gtFine_{end}" for end in ("color.png", "labelIds.png", "polygons.json")])
    return put("leftImg8bit/train/aachen/notes.png")


def test_cityscapes_pairs_by_its_own_names(streets):
    source = cityscapes(streets)
    facts = source.facts()
    assert (facts.layout, facts.splits, facts.rows, len(facts.classes or ())) == (
        "deeplab",
        ("train", "val"),
        2,
        34,
    )
    assert facts.extra == {"classes": 34, "ignore": 255, "optional_masks": False}
    assert told(source) == [
        {
            "image": streets / f"leftImg8bit/{split}/{city}/{city}_000000_000019_leftImg8bit.png",
            "filename": f"{city}_000000_000019",
            "mask": streets / f"gtFine/{split}/{city}/{city}_000000_000019_gtFine_labelIds.png",
            "split": split,
        }
        for split, city in (("train", "aachen"), ("val", "bern"))
    ]
    assert [row.path for row in rows_of(source)] == [
        "leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png",
        "leftImg8bit/val/bern/bern_000000_000019_leftImg8bit.png",
    ]


def test_train_ids_are_used_for_all_images_or_for_none(streets, put):
    put("gtFine/train/aachen/aachen_000000_000019_gtFine_labelTrainIds.png")
    source = cityscapes(streets)
    assert (len(source.facts().classes or ()), source.facts().extra["classes"]) == (19, 19)
    image = "leftImg8bit/val/bern/bern_000000_000019_leftImg8bit.png"
    assert told(source)[1] == ("E363", image, None, "mask")


def test_images_of_test_may_be_without_masks_and_masks_never_without_images(streets, put):
    put("leftImg8bit/test/bonn/bonn_1_2_leftImg8bit.png", "gtFine/val/ulm/ulm_1_2_gtFine_labelIds.png")
    source = cityscapes(streets)
    assert source.facts().extra["optional_masks"] is True
    assert told(source)[:2] == [
        ("E364", "gtFine/val/ulm/ulm_1_2_gtFine_labelIds.png", None, "image"),
        {
            "image": streets / "leftImg8bit/test/bonn/bonn_1_2_leftImg8bit.png",
            "filename": "bonn_1_2",
            "split": "test",
        },
    ]
    strict = told(cityscapes(streets, optional_masks=False))
    assert strict[1][0] == "E363"


def test_a_folder_that_is_no_cityscapes_is_refused(streets, put):
    failure = refused(lambda: cityscapes(streets / "gtFine").facts())
    assert (failure.code, failure.location.path) == ("X529", str(streets / "gtFine"))
    root = put("other/leftImg8bit/train/a/1.png", "other/gtFine/x.txt") / "other"
    failure = refused(lambda: cityscapes(root).facts())
    assert (failure.code, failure.location.path) == ("X527", str(root / "leftImg8bit"))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("1 2 3 road", ("road",)),
        ("1 ,2;3\t:  road, wet", ("road, wet",)),
        ("road: 1, 2 , 3;;", ("road",)),
        ("1,,2,3 road", None),
        # Each of these has as many ways to be read as it has spaces, three times over.
        ("1" + " " * 2000 + "2" + " " * 2000 + "3" + " " * 2000 + ",", None),
        ("road" + " " * 2000 + "1" + " " * 2000 + "2" + " " * 2000 + "x", None),
    ],
)
def test_lines_of_a_colour_table(put: Put, line: str, names: tuple[str, ...] | None) -> None:
    path = put("colors.txt", text=f"9 9 9 sky\n{line}\n") / "colors.txt"
    if names is not None:
        assert read_colour_table(str(path), 255).names == ("sky", *names)
        return
    with pytest.raises(RekordError) as caught:
        read_colour_table(str(path), 255)
    assert (caught.value.code, caught.value.location.line) == ("X529", 2)


def test_tables_of_too_many_classes_are_not_read_to_their_end(put: Put) -> None:
    many = range((1 << 16) + 2)
    put("labelmap.txt", text="".join(f"class {i}:::\n" for i in many))
    colours = "".join(f"{i >> 16} {i >> 8 & 255} {i & 255} class {i}\n" for i in many)
    folder = put("colors.txt", text=colours + "not a colour\n")
    for read in (lambda: read_voc_classes(str(folder)), lambda: read_colour_table(str(folder / "colors.txt"), 255)):
        with pytest.raises(RekordError, match="more than 65,536 classes") as caught:
            read()
        assert (caught.value.code, caught.value.location.line) == ("X529", (1 << 16) + 1)
