"""Image folders and lists of images: which rows they give, in which order, and what is wrong with bad ones."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rekord.errors import RekordError
from rekord.sources.base import Source, SourceRow, full_path, is_partitioned
from rekord.sources.image_csv import image_csv
from rekord.sources.image_folder import find_images, image_folder

Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Files of a few bytes each; what they hold is not looked at here."""

    def write(*paths: str, data: bytes = b"0123456789") -> Path:
        for path in paths:
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return tmp_path

    return write


def rows_of(source: Any, part_bytes: int = 1 << 20) -> list[SourceRow]:
    """All rows, read the way a worker reads them: from a pickled source and pickled parts."""
    parts = pickle.loads(pickle.dumps(source.parts(part_bytes)))
    far = pickle.loads(pickle.dumps(source))
    return [row for part in parts for row in far.read(part)]


def values_of(source: Any) -> list[dict[str, Any]]:
    values = []
    for row in rows_of(source):
        assert not isinstance(row.values, RekordError), row.values.message
        values.append(dict(row.values))
    return values


def faults_of(source: Any) -> list[tuple[str, str | None, int | None, str | None]]:
    """Code, file, line and feature of every bad row."""
    return [
        (row.values.code, row.values.location.path, row.values.location.line, row.values.location.feature)
        for row in rows_of(source)
        if isinstance(row.values, RekordError)
    ]


def refused(call: Callable[[], object]) -> RekordError:
    with pytest.raises(RekordError) as caught:
        call()
    return caught.value


# Folders.


def test_a_folder_per_class_gives_names_in_the_order_of_their_bytes(put):
    root = put("b/2.jpg", "a/10.PNG", "a/9.jpeg", "Z/x.webp", "é/1.jpg")
    source = image_folder(root)
    facts = source.facts()
    assert is_partitioned(source)
    assert (facts.layout, facts.classes, facts.rows, facts.splits) == (
        "classification",
        ("Z", "a", "b", "é"),
        5,
        None,
    )
    assert facts.source_bytes == 50
    assert [file.path for file in facts.files] == ["Z/x.webp", "a/10.PNG", "a/9.jpeg", "b/2.jpg", "é/1.jpg"]
    assert values_of(source) == [
        {"image": root / "Z/x.webp", "filename": "Z/x.webp", "label": "Z"},
        {"image": root / "a/10.PNG", "filename": "a/10.PNG", "label": "a"},
        {"image": root / "a/9.jpeg", "filename": "a/9.jpeg", "label": "a"},
        {"image": root / "b/2.jpg", "filename": "b/2.jpg", "label": "b"},
        {"image": root / "é/1.jpg", "filename": "é/1.jpg", "label": "é"},
    ]


def test_rows_are_known_by_their_path_below_the_root(put):
    root = put("a/1.jpg", "a/b/c/2.jpg")
    rows = rows_of(image_folder(root))
    assert [(row.path, row.position, row.line) for row in rows] == [
        ("a/1.jpg", 0, None),
        ("a/b/c/2.jpg", 0, None),
    ]
    assert full_path(image_folder(root), rows[1].path) == str(root / "a/b/c/2.jpg")


def test_deeper_files_belong_to_the_first_folder(put):
    assert [row["label"] for row in values_of(image_folder(put("cat/a/b/1.jpg", "cat/2.jpg")))] == [
        "cat",
        "cat",
    ]


def test_the_order_is_that_of_whole_paths_not_of_folders(put):
    root = put("a/x.jpg", "a-b/x.jpg", "a.jpg")
    assert [row.path for row in rows_of(image_folder(root))] == ["a-b/x.jpg", "a.jpg", "a/x.jpg"]


def test_folders_called_like_splits_are_splits(put):
    root = put("TRAIN/cat/1.jpg", "train/dog/2.jpg", "VALIDATION/cat/3.jpg", "Test/cow/deep/4.jpg", "test/5.jpg")
    source = image_folder(root)
    facts = source.facts()
    assert facts.splits == ("train", "validation", "test")
    assert facts.classes == ("cat", "cow", "dog")
    assert [(row["filename"], row.get("label"), row["split"]) for row in values_of(source)] == [
        ("TRAIN/cat/1.jpg", "cat", "train"),
        ("Test/cow/deep/4.jpg", "cow", "test"),
        ("VALIDATION/cat/3.jpg", "cat", "validation"),
        ("test/5.jpg", None, "test"),
        ("train/dog/2.jpg", "dog", "train"),
    ]


def test_val_stays_val(put):
    assert image_folder(put("val/cat/1.jpg", "train/cat/1.jpg")).facts().splits == ("train", "val")


def test_a_class_called_train_beside_other_classes_is_a_class(put):
    source = image_folder(put("train/1.jpg", "bus/2.jpg"))
    assert (source.facts().classes, source.facts().splits) == (("bus", "train"), None)
    assert [row["label"] for row in values_of(source)] == ["bus", "train"]


def test_images_that_are_in_no_folder_have_no_label(put):
    source = image_folder(put("1.jpg", "2.png"))
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.extra["labels"]) == ("classification", None, False)
    assert [sorted(row) for row in values_of(source)] == [["filename", "image"], ["filename", "image"]]


def test_other_files_are_left_out_and_counted(put):
    root = put("a/1.jpg", "a/notes.txt", "b/readme.md", "a/Thumbs.db", "a/.DS_Store", "desktop.ini", ".git/x.jpg")
    put("__MACOSX/a/._1.jpg", "a/._1.jpg", "empty.csv")
    (root / "no class").mkdir()
    source = image_folder(root)
    assert source.facts().extra["ignored_files"] == 3
    assert source.facts().classes == ("a",)
    assert [row.path for row in rows_of(source)] == ["a/1.jpg"]


def test_images_of_formats_that_cannot_be_stored_are_rows_all_the_same(put):
    assert [row.path for row in rows_of(image_folder(put("a/1.tif", "a/2.HEIC")))] == ["a/1.tif", "a/2.HEIC"]


def test_given_classes_fix_the_ids(put):
    source = image_folder(put("cat/1.jpg", "dog/1.jpg"), classes=["dog", "cat", "cow"])
    assert source.facts().classes == ("dog", "cat", "cow")
    assert source.options() == {"classes": ["dog", "cat", "cow"]}


@pytest.mark.parametrize("classes", [[], ["a", "a"], "cat", {"cat"}, ["cat", 1], [""], 3])
def test_classes_that_are_no_names_are_refused(tmp_path, classes):
    assert str(refused(lambda: image_folder(tmp_path, classes=classes))).startswith("U605: `classes` cannot be ")


@pytest.mark.parametrize("path", ["", "a\0b", 3, None, b"x"])
def test_a_path_that_is_none_is_refused(path):
    assert refused(lambda: image_folder(path)).code == "U605"


def test_a_folder_without_images_says_what_it_has(put):
    root = put("a/1.txt", "2.csv")
    failure = refused(lambda: image_folder(root).facts())
    assert (failure.code, failure.location.path) == ("X527", str(root))
    assert failure.found == "2 files that are not images"
    failure = refused(lambda: image_folder(root / "a" / "..").parts())
    assert failure.location.path == str(root)


def test_a_folder_that_is_missing_or_a_file_is_refused(put):
    root = put("1.jpg")
    failure = refused(lambda: image_folder(root / "no").facts())
    assert (failure.code, failure.location.path) == ("X501", str(root / "no"))
    failure = refused(lambda: image_folder(root / "1.jpg").facts())
    assert (failure.code, failure.location.path) == ("U605", str(root / "1.jpg"))


def test_a_name_that_is_not_utf_8_is_a_bad_row(put):
    root = put("a/1.jpg")
    (root / os.fsdecode(b"b\xff")).mkdir()
    (root / os.fsdecode(b"b\xff") / "2.jpg").write_bytes(b"0")
    source = image_folder(root)
    assert source.facts().classes == ("a",)
    assert [file.path for file in source.facts().files] == ["a/1.jpg", "b\\xff/2.jpg"]
    assert faults_of(source) == [("E318", f"{root}/b\\xff/2.jpg", None, "filename")]
    assert [row.path for row in rows_of(source)] == ["a/1.jpg", "b\\xff/2.jpg"]


def test_links_are_followed_but_not_in_circles(put):
    root = put("a/1.jpg", "elsewhere/deep/2.jpg")
    (root / "data" / "cat").mkdir(parents=True)
    (root / "data" / "dog").symlink_to(root / "elsewhere")
    (root / "data" / "cat" / "1.jpg").symlink_to(root / "a" / "1.jpg")
    (root / "data" / "cat" / "up").symlink_to(root / "data")
    (root / "data" / "cat" / "gone.jpg").symlink_to(root / "nowhere.jpg")
    files = find_images(str(root / "data")).files
    assert [(file.path, file.size_bytes) for file in files] == [
        ("cat/1.jpg", 10),
        ("cat/gone.jpg", 0),
        ("dog/deep/2.jpg", 10),
    ]


def test_links_that_multiply_are_refused(put):
    root = put("a/1.jpg")
    for name in "abcdefgh":
        (root / name).mkdir(exist_ok=True)
        for other in "abcdefgh":
            if other != name:
                (root / name / other).symlink_to(root / other)
    assert refused(lambda: image_folder(root).facts()).code == "X503"


def test_a_pipe_that_is_called_like_an_image_is_left_out(put):
    root = put("a/1.jpg")
    os.mkfifo(root / "a" / "2.jpg")
    assert [row.path for row in rows_of(image_folder(root))] == ["a/1.jpg"]


@pytest.mark.parametrize("part_bytes", [1, 10, 25, 30, 1000])
def test_any_size_of_parts_gives_the_same_rows(put, part_bytes):
    source = image_folder(put(*[f"train/{c}/{i}.jpg" for c in "ab" for i in range(4)]))
    assert rows_of(source, part_bytes) == rows_of(source)
    parts = source.parts(part_bytes)
    assert sum(part.source_bytes for part in parts) == 80
    assert all(part.source_bytes <= max(part_bytes, 10) for part in parts)


def test_facts_see_what_is_there_now_and_parts_what_the_facts_saw(put):
    source = image_folder(put("a/1.jpg"))
    assert source.facts().rows == 1
    put("a/2.jpg")
    assert len(rows_of(source)) == 1
    assert source.facts().rows == 2
    assert len(rows_of(source)) == 2


def test_a_pickled_source_does_not_carry_its_list(put):
    source = image_folder(put(*[f"a/{i}.jpg" for i in range(100)]))
    source.facts()
    assert len(pickle.dumps(source)) < 1000


# Lists.

LIST = "image,label,split\na/1.jpg,cat,TRAIN\na/2.jpg,dog,test\n"


def put_list(root: Path, text: str | bytes, name: str = "data.csv") -> Path:
    (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return root / name


def test_a_list_gives_rows_in_its_own_order_with_their_lines(put):
    root = put("a/1.jpg", "a/2.jpg")
    path = put_list(root, "image,label,split\n\na/2.jpg,dog,test\n\na/1.jpg,cat,TRAIN\n")
    source = image_csv(path)
    facts = source.facts()
    assert (facts.layout, facts.classes, facts.splits) == (
        "classification",
        ("cat", "dog"),
        ("train", "test"),
    )
    assert (facts.rows, facts.source_bytes) == (2, 20)
    assert [file.path for file in facts.files] == ["a/1.jpg", "a/2.jpg", "data.csv"]
    assert rows_of(source) == [
        SourceRow(
            "data.csv",
            0,
            {"image": root / "a/2.jpg", "filename": "a/2.jpg", "label": "dog", "split": "test"},
            3,
        ),
        SourceRow(
            "data.csv",
            1,
            {"image": root / "a/1.jpg", "filename": "a/1.jpg", "label": "cat", "split": "train"},
            5,
        ),
    ]
    assert full_path(source, "data.csv") == str(path)


@pytest.mark.parametrize(
    "text",
    [
        LIST,
        LIST.replace("image,label,split", "Image Path,Class,subset"),
        LIST.replace("image,label,split", "filename,category,set"),
        LIST.replace(",", ";"),
        LIST.replace(",", "\t"),
        LIST.replace("\n", "\r\n"),
        "\ufeff" + LIST,
        LIST.partition("\n")[2],
        "split,id,image_uri,label\nTRAIN,7,a/1.jpg,cat\nTEST,8,a/2.jpg,dog\n",
        'label,image,split\n"cat","a/1.jpg",train\n"dog","a/2.jpg",test',
        "TRAIN,a/1.jpg,cat\nTEST,a/2.jpg,dog\n",
        "image,label,split\na\\1.jpg,cat,train\na\\2.jpg,dog,test\n",
        "image,label,split\nfar/away/a/1.jpg,cat,train\nfar/away/a/2.jpg,dog,test\n",
        "image,label,split\n/data/a/1.jpg,cat,train\n/data/a/2.jpg,dog,test\n",
        "image,label,split\ngs://bucket/a/1.jpg,cat,train\ngs://bucket/a/2.jpg,dog,test\n",
    ],
)
def test_lists_are_read_however_they_are_written(put, text):
    root = put("a/1.jpg", "a/2.jpg")
    assert values_of(image_csv(put_list(root, text))) == [
        {"image": root / "a/1.jpg", "filename": "a/1.jpg", "label": "cat", "split": "train"},
        {"image": root / "a/2.jpg", "filename": "a/2.jpg", "label": "dog", "split": "test"},
    ]


def test_columns_can_be_named(put):
    path = put_list(put("a/1.jpg"), "image,species,photo,fold\nno,cat,a/1.jpg,dev\n")
    source = image_csv(path, image="photo", label="species", split="fold")
    assert [(row["filename"], row["label"], row["split"]) for row in values_of(source)] == [("a/1.jpg", "cat", "dev")]


def test_images_can_be_below_another_root(put):
    root = put("images/1.jpg")
    path = put_list(root, "image,label\n1.jpg,cat\n")
    assert values_of(image_csv(path, root=root / "images"))[0]["image"] == root / "images/1.jpg"


def test_a_row_over_several_lines_is_known_by_its_first(put):
    path = put_list(put("1.jpg", "2.jpg"), 'image,label,note\n1.jpg,cat,"a\nb"\n2.jpg,dog,\n')
    assert [(row.position, row.line) for row in rows_of(image_csv(path))] == [(0, 2), (1, 4)]


def test_leading_folders_go_only_where_all_paths_share_them(put):
    root = put("1.jpg", "a/2.jpg")
    path = put_list(root, "image,label\ncat/1.jpg,cat\na/2.jpg,dog\n")
    assert faults_of(image_csv(path)) == [("E360", str(path), 2, "image")]
    path = put_list(root, "image,label\ncat/1.jpg,cat\ndog/2.jpg,dog\n")
    assert [fault[0] for fault in faults_of(image_csv(path))] == ["E360", "E360"]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ("10 2 0", tuple(map(str, range(11)))),
        ("1 3 2", ("1", "2", "3")),
        ("10 2 5", ("2", "5", "10")),
        ("0 4000000000", ("0", "4000000000")),
        ("01 2 10", ("01", "10", "2")),
        ("b a é Z", ("Z", "a", "b", "é")),
    ],
)
def test_labels_that_are_numbers_keep_their_order(put, labels, classes):
    names = labels.split()
    root = put(*[f"{i}.jpg" for i in range(len(names))])
    text = "image,label\n" + "".join(f"{i}.jpg,{name}\n" for i, name in enumerate(names))
    source = image_csv(put_list(root, text))
    assert source.facts().classes == classes
    assert [row["label"] for row in values_of(source)] == names


def test_the_defects_of_lines_are_bad_rows_that_name_them(put):
    root = put("1.jpg", "2.jpg", "3.jpg", "4.jpg")
    text = (
        b"image,label\n1.jpg,cat\nno.jpg,cat\n2.jpg,\n./1.jpg,dog\n,cat\n3.jpg\n4.jpg,a,b\n"
        b"1.jpg,c\xe9\n\xff.jpg,cat\n.,cat\n"
    )
    path = put_list(root, text)
    source = image_csv(path)
    rows = rows_of(source)
    assert [row.position for row in rows] == list(range(10))
    assert [row.line for row in rows] == list(range(2, 12))
    assert faults_of(source) == [
        ("E360", str(path), 3, "image"),
        ("E361", str(path), 4, "label"),
        ("E362", str(path), 5, "image"),
        ("E360", str(path), 6, "image"),
        ("E361", str(path), 7, "label"),
        ("E361", str(path), 8, "label"),
        ("E318", str(path), 9, "label"),
        ("E318", str(path), 10, "image"),
        ("E360", str(path), 11, "image"),
    ]
    twice = rows[3].values
    assert isinstance(twice, RekordError)
    assert twice.what == "lines 2 and 5 list the same image"
    assert source.facts().classes == ("cat", "dog")  # ids do not change when a file comes back


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        (b"", None, "no first line"),
        (b"\n\n", None, "no first line"),
        (b"image,label\n", None, "only a header"),
        (b"name,age\nx,3\n", None, "the columns 'name, age'"),
        (b"image,age\nx.jpg,3\n", None, "the columns 'image, age'"),
        (b"image,label\n1.jpg,\0cat\n", 2, "a zero byte"),
        (b"image,label\n" + b"x" * (1 << 20) + b",cat\n", 2, "a line of more than 1,048,576 characters"),
        (b'image,label\n"' + b"x,cat\n" * 40_000, None, None),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(put, text, line, found):
    path = put_list(put("1.jpg"), text)
    failure = refused(lambda: image_csv(path).facts())
    assert (failure.code, failure.location.path) == ("X528", str(path))
    if found is not None:
        assert (failure.location.line, failure.found) == (line, found)


def test_a_column_that_is_named_and_missing_is_refused_with_what_was_meant(put):
    path = put_list(put("1.jpg"), "imge,label\n1.jpg,cat\n")
    failure = refused(lambda: image_csv(path, image="image").facts())
    assert (failure.code, failure.location.path, failure.do) == ("X528", str(path), 'image="imge"')
    assert refused(lambda: image_csv(path, image=1)).code == "U605"


def test_a_list_that_is_missing_or_a_folder_is_refused(put):
    root = put("1.jpg")
    assert refused(lambda: image_csv(root / "no.csv").facts()).code == "X501"
    failure = refused(lambda: image_csv(root).facts())
    assert (failure.code, failure.location.path) == ("X528", str(root))


@pytest.mark.parametrize("part_bytes", [1, 20, 25, 1000])
def test_any_size_of_parts_gives_the_same_rows_of_a_list(put, part_bytes):
    root = put(*[f"{i}.jpg" for i in range(6)])
    path = put_list(root, "image,label\n" + "".join(f"{i % 5}.jpg,cat\n" for i in range(7)))
    source = image_csv(path)
    shown = [(row.position, row.line, str(row.values)) for row in rows_of(source)]
    assert [(row.position, row.line, str(row.values)) for row in rows_of(source, part_bytes)] == shown
    assert len(shown) == 7


def test_options_do_not_name_places(put):
    path = put_list(put("1.jpg"), "image,label\n1.jpg,cat\n")
    source: Source = image_csv(path, root=path.parent, label="label")
    assert source.options() == {
        "image": None,
        "label": "label",
        "split": None,
        "rooted": True,
        "classes": None,
    }
