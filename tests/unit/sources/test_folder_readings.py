"""What a folder of images is read as, and the commands that a refusal proposes."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import rekord as rk
from rekord.cli.main import run_command_line
from rekord.sources.annotation_formats import is_voc_annotation, name_formats
from rekord.sources.detect import identify_source
from rekord.sources.folder_survey import find_unused_files, is_never_class, split_words

KITTI = "Car 0.0 0 -1 1 2 3 4 -1 -1 -1 -1 -1 -1 -1\n"


def make_tree(root: Path, files: dict[str, str]) -> Path:
    """Files by path: `image` and `mask` are drawn, other contents are written."""
    for number, (name, content) in enumerate(files.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content == "image":
            Image.fromarray(np.full((4, 5, 3), number, np.uint8)).save(path)
        elif content in ("mask", "binary"):
            ids = np.zeros((4, 5), np.uint8)
            ids[0] = 1 if content == "mask" else 255
            Image.fromarray(ids).save(path)
        else:
            path.write_text(content)
    return root


def images(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "image")


def masks(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "mask")


@pytest.mark.parametrize(
    ("files", "kind", "layout", "splits"),
    [
        (images("cat/a.jpg", "cat/b.jpg", "dog/c.jpg"), "image_folder", "classification", None),
        (images("training/cat/a.jpg", "testing/cat/c.jpg"), "image_folder", "classification", ("train", "test")),
        ({**images("cat/a.jpg", "dog/b.jpg"), "train.txt": "cat/a.jpg\n"}, "image_folder", "classification", None),
        (images("0/a.png", "1/b.png", "2/c.png"), "image_folder", "classification", None),
        (images("1.jpg", "2.jpg"), "images", "images", None),
        (images("images/1.jpg", "images/2.jpg"), "images", "images", None),
        (images("train/1.jpg", "test/2.jpg"), "images", "images", ("train", "test")),
        ({**images("1.jpg"), "README.md": "x", "LICENSE": "x"}, "images", "images", None),
        (images("img_dir/train/1.png") | masks("ann_dir/train/1.png"), "segmentation", "deeplab", ("train",)),
        (
            images("img_dir/train/1.png", "img_dir/val/2.png") | masks("ann_dir/train/1.png", "ann_dir/val/2.png"),
            "segmentation",
            "deeplab",
            ("train", "val"),
        ),
        (
            images("images/training/1.jpg") | masks("annotations/training/1.png"),
            "segmentation",
            "deeplab",
            ("train",),
        ),
        (
            images("train/images/1.jpg", "val/images/2.jpg") | masks("train/masks/1.png", "val/masks/2.png"),
            "segmentation",
            "deeplab",
            ("train", "val"),
        ),
        (
            images("train/1.png", "val/2.png") | masks("trainannot/1.png", "valannot/2.png"),
            "segmentation",
            "deeplab",
            ("train", "val"),
        ),
        (images("TrainImages/1.jpg") | masks("TrainMasks/1.png"), "segmentation", "deeplab", None),
        (images("imgs/1.jpg") | masks("gts/1.png"), "segmentation", "deeplab", None),
        (images("image/1.jpg") | masks("label/1.png"), "segmentation", "deeplab", None),
        (images("img_dir/1.png") | masks("ann_dir/1_1stHO.png"), "segmentation", "deeplab", None),
        (images("all/1.jpg") | masks("all/1_mask.png"), "segmentation", "deeplab", None),
    ],
)
def test_a_clear_folder_has_one_reading(
    tmp_path: Path, files: dict[str, str], kind: str, layout: str, splits: tuple[str, ...] | None
) -> None:
    root = make_tree(tmp_path / "data", files)
    assert identify_source(root).kind == kind
    made = rk.write(root, tmp_path / "out", split="source" if splits else None, workers=1, progress=False)
    assert tuple(made.splits) == (splits or ("train",))
    keys = {"classification": "label", "deeplab": "mask", "images": "image"}
    assert keys[layout] in made.schema
    assert layout == "classification" or "label" not in made.schema


@pytest.mark.parametrize(
    ("files", "seen", "layouts"),
    [
        (images("cat/1.jpg", "cat/2.jpg"), "only one folder", {"classification", "images"}),
        (images("left/1.png", "right/1.png"), "'left' is the name of a folder", {"deeplab", "images"}),
        (images("nir/x7.png", "swir/x7.png"), "have the same 1 names", {"deeplab", "images"}),
        (images("a/x1.png", "a/x7.png", "b/x1.png", "b/x7.png"), "have the same 2 names", {"deeplab"}),
        (images("cat/more/1.jpg", "dog/2.jpg"), "either may be the class", {"classification", "images"}),
        (images("1.jpg", "cat/2.jpg", "dog/3.jpg"), "not in a class folder", {"images"}),
        (images("person_001/1.jpg", "person_002/2.jpg"), "one of many persons", {"classification", "images"}),
        (images("0013/1.jpg", "0099/2.jpg"), "named with numbers", {"classification", "images"}),
        (images("train/cat.0.jpg", "train/dog.0.jpg"), "begin with 'cat', 'dog'", {"images"}),
        (images("a/1.jpg", "a/1.png", "b/2.jpg", "b/2.png"), "two images of the same name", {"images"}),
        (images("WIDER_train/1.jpg", "WIDER_val/2.jpg"), "named after splits", {"images"}),
        ({**images("1.jpg"), "1.txt": "a cat on a mat"}, "1.txt named like an image", {"images"}),
        ({**images("cat/1.jpg", "dog/2.jpg"), "labels.mat": "\0\0"}, "labels.mat", {"classification", "images"}),
        ({**images("image_2/1.png"), "label_2/1.txt": "x 1"}, "label_2/1.txt named like an image", {"images"}),
        (
            images("images/1.jpg") | {"masks/1.png": "binary"},
            "masks with only 0 and 255",
            {"deeplab", "images"},
        ),
        (
            images("images/1.jpg") | masks("masks/1.png", "labels/1.png"),
            "images and labels have 1 name in common",
            {"deeplab", "images"},
        ),
    ],
)
def test_a_doubtful_folder_is_refused_with_commands_that_work(
    tmp_path: Path, files: dict[str, str], seen: str, layouts: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_tree(tmp_path / "some data", files)
    with pytest.raises(rk.UsageError) as caught:
        identify_source(root)
    failure = caught.value
    assert (failure.code, failure.location.path) == ("U621", str(root))
    assert seen in str(failure.found)
    written = set()
    for number, (_, command) in enumerate(failure.readings):
        out = str(tmp_path / f"out{number}")
        words = [out if word == "OUT" else word for word in shlex.split(command)[1:]]
        code = run_command_line([*words, "--workers", "1", "--json"])
        printed = capsys.readouterr()
        # Images are not masks: a pair in the wrong order is reported by the first row.
        assert code == 0 or "EncodeError E3" in printed.err, command
        written.add("deeplab" if "--masks" in words else words[words.index("--layout") + 1])
    assert written >= layouts
    assert failure.do == failure.readings[0][1]
    assert failure.to_dict()["readings"][0] == {
        "reading": failure.readings[0][0],
        "command": failure.readings[0][1],
    }


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({**images("images/1.png"), "labels/1.txt": KITTI}, "KITTI object detection"),
        ({**images("img1/000001.jpg"), "gt/gt.txt": "1,-1,0,4,4,8,1,3,1.0\n"}, "MOT tracking"),
        ({**images("images/a.jpg"), "train.xml": "<annotations><version>1.1</version></annotations>"}, "CVAT"),
        ({**images("a.jpg"), "a.json": '{"shapes": [], "imagePath": "a.jpg"}'}, "LabelMe"),
        ({**images("images/a.png"), "labelTxt/a.txt": "1 2 3 4 5 6 7 8 plane 0\n"}, "DOTA"),
        ({**images("1.jpg", "2.jpg"), "imagelabels.mat": "\0"}, "Matlab annotations"),
    ],
)
def test_a_format_that_is_not_read_is_named(tmp_path: Path, files: dict[str, str], name: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        identify_source(make_tree(tmp_path / "data", files))
    assert caught.value.code == "U621"
    assert f"looks like {name}" in str(caught.value.likely)


@pytest.mark.parametrize("layout", ["classification", "images"])
def test_a_layout_that_is_asked_for_overrides_doubts(tmp_path: Path, layout: str) -> None:
    root = make_tree(tmp_path / "data", images("images/1.jpg", "photos/2.jpg"))
    made = rk.write(root, tmp_path / "out", layout=layout, workers=1, progress=False)
    assert made.records == 2
    assert ("label" in made.schema) == (layout == "classification")


@pytest.mark.parametrize(
    ("files", "found", "commands"),
    [
        (("train.csv", "test.csv"), "a file per split", ["--split test", "--split train", "*.csv"]),
        (("a.csv",), None, []),
    ],
)
def test_tables_of_several_splits_are_refused(
    tmp_path: Path, files: tuple[str, ...], found: str | None, commands: list[str]
) -> None:
    root = make_tree(tmp_path / "data", dict.fromkeys(files, "x,y\n1,2\n"))
    if found is None:
        assert identify_source(root).kind == "csv"
        return
    with pytest.raises(rk.UsageError) as caught:
        identify_source(root)
    assert found in str(caught.value.found)
    assert all(part in command for part, (_, command) in zip(commands, caught.value.readings, strict=True))


def test_what_is_not_used_is_reported_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {**images("cat/1.jpg", "dog/2.jpg"), "README.md": "x", "names.txt": "cat\ndog\n", "cat/.hidden": "x"}
    root = make_tree(tmp_path / "data", files)
    assert run_command_line(["write", str(root), str(tmp_path / "out"), "--workers", "1"]) == 0
    printed = capsys.readouterr().err
    assert "not used: names.txt (the source image_folder does not read it)" in printed
    assert "not used: README.md (documentation, code or an archive)" in printed
    assert "not used: cat/.hidden (hidden)" in printed


def test_unused_files_are_summarised_in_a_stable_order(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "data", {f"labels/{i}.txt": "x" for i in range(30)})
    (one,) = find_unused_files(str(root), [], "images")
    assert one == ("file", "labels/*.txt", "30 files: the source images does not read it")


def test_the_layout_images_has_no_label_to_train_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_tree(tmp_path / "data", images("1.jpg", "2.jpg"))
    assert run_command_line(["write", str(root), str(tmp_path / "out"), "--workers", "1"]) == 0
    row = next(iter(rk.open(tmp_path / "out")["train"]))
    assert (row["filename"], row["format"], row["height"], row["width"]) == ("1.jpg", "jpeg", 4, 5)
    capsys.readouterr()
    assert run_command_line(["train", str(tmp_path / "out")]) == 2
    assert "U608" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words", "never"),
    [
        ("TrainMasks", ["train", "masks"], True),
        ("trainannot", ["train", "annot"], True),
        ("JPEGImages", ["jpeg", "images"], True),
        ("img1", ["img", "1"], True),
        ("train station", ["train", "station"], False),
        ("cat", ["cat"], False),
    ],
)
def test_names_are_split_into_words(name: str, words: list[str], never: bool) -> None:
    assert split_words(name) == words
    assert is_never_class(name) == never


def test_the_same_names_give_the_same_answer(tmp_path: Path) -> None:
    identify: Callable[[Path], str] = lambda root: identify_source(root).kind  # noqa: E731
    names = [f"{name}/{i}.jpg" for name in ("dog", "cat", "ant") for i in range(3)]
    one = make_tree(tmp_path / "one", images(*names))
    other = make_tree(tmp_path / "other", images(*reversed(names)))
    assert identify(one) == identify(other) == "image_folder"


@pytest.mark.parametrize(
    ("name", "head", "found"),
    [
        ("a.json", b'{"info": {}, "categories": {"label": {}}, "items": []}', ["Datumaro"]),
        ("a.json", b'{"items": [], "categories": {}, "info": {}}', []),
        ("a.json", b'{"imagePath": "a.jpg", "shapes": []}', ["LabelMe"]),
        ("a.json", b'{"images": [], "annotations": [{"id": 1}]}', ["COCO without boxes"]),
        ("a.json", b'{"images": [], "annotations": [{"bbox": []}]}', []),
        # Patterns that go back would try every pair, or every three, of these beginnings.
        ("a.json", b'"info":' * 4000 + b'"categories":{' * 2000, []),
        ("a.json", b'"images":' * 2000 + b'"annotations":[{' * 1000 + b'"bbox"' + b" " * 30000, []),
        ("a.xml", b"<annotation " * 5000, []),
    ],
)
def test_formats_are_named_by_the_head_of_a_file(tmp_path: Path, name: str, head: bytes, found: list[str]) -> None:
    (tmp_path / name).write_bytes(head)
    assert [one for one, _ in name_formats(str(tmp_path), [name])] == found
    assert not is_voc_annotation(str(tmp_path / name))


def test_pipes_in_a_folder_are_not_opened(tmp_path: Path) -> None:
    files = {f"{folder}/{i}.png": kind for folder, kind in (("images", "image"), ("masks", "mask")) for i in range(3)}
    root = make_tree(tmp_path / "data", files)
    for name in ("list.txt", "classes.txt", "label_colors.txt"):
        os.mkfifo(root / name)
        os.mkfifo(root / "images" / name)
    assert identify_source(root).kind == "segmentation"
    made = rk.write(root, tmp_path / "out", progress=False)
    assert len(made["train"]) == 3
    (root / "images" / "labels.csv").write_text("image,label\n0.png,0\n1.png,1\n2.png,0\n")
    listed = rk.write(root / "images" / "labels.csv", tmp_path / "listed", progress=False)
    assert [row["label"] for row in listed["train"]] == [0, 1, 0]


@pytest.mark.parametrize(
    ("files", "remark"),
    [
        (images("JPEGImages/1.jpg", "cat/2.jpg"), "'JPEGImages' is stored as a class, though it is named like"),
        (images("1.jpg", "2.jpg"), "the images are not in class folders: they are stored without labels"),
        (images("cat/1.jpg", "dog/2.jpg"), None),
    ],
)
def test_doubtful_classes_are_reported_when_they_were_asked_for(
    files: dict[str, str], remark: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make_tree(tmp_path / "data", files)
    command = ["write", str(root), str(tmp_path / "out"), "--layout", "classification", "--json"]
    assert run_command_line(command) == 0
    document = json.loads(capsys.readouterr().out)
    found = [one["what"] for one in document["guesses"] if one["column"] == "label"]
    assert found[0].startswith(remark) if remark else not found, found
