"""Which files a path means."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import rekord as rk
from rekord.errors import DatasetError, UsageError
from rekord.storage import find as find_module
from rekord.storage.find import filter_record_files, is_record_name, resolve_record_files

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def make(*names: str) -> Path:
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("records" if "!" in name else "")
        return tmp_path

    return make


def begins_with_a_record(head: bytes) -> bool:
    """The content test of these tests: a `!` in the name stands for a record at the beginning."""
    return head == b"records"


def never_asked(head: bytes) -> bool:
    raise AssertionError("the content of a file was asked for")


def paths_of(path: Any, content: Callable[[bytes], bool]) -> list[str]:
    return resolve_record_files(path, content).paths


def below(root: Path, paths: Sequence[str]) -> list[str]:
    return [os.path.relpath(path, root) for path in paths]


@pytest.mark.parametrize(
    "name",
    [
        "train-00000-of-00004.tfrecord",
        "coco_train.record-00000-of-00100",
        "train-00000-of-01024",
        "name-split.tfrecord-00000-of-00002",
        "data_tfrecord-00000-of-00001.gz",
        "part-00000",
        "part-m-00000.gz",
        "part-00000-5f0e-c000.tfrecord.gz",
        "a.tfrecord",
        "a.tfrecords",
        "a.record",
        "a.records",
        "a.tfrec",
        "a.tfr",
        "a.tfrecord.zz",
        "a.tfrecord.zlib",
        "A.TFRECORD.GZ",
        "data_tfrecord.gz",
        "data_tfrecord_eval.gz",
        "train.tfrecord-eval",
        "train.tfrecords_01",
        "train.tfrecords.3",
        "sentences.tfe-tfrecord",
        "train-000000-of-100000",
        "events.out.tfevents.1700000000.host.v2",
    ],
)
def test_the_name_of_a_record_file_is_enough(name: str) -> None:
    assert is_record_name(name) is True


@pytest.mark.parametrize(
    "name",
    [
        "dataset_info.json",
        "features.json",
        "label_map.pbtxt",
        "a.tfrecord.idx",
        "a.tfindex",
        "train-00000-of-00004.json",
        "train-00000-of-00004.txt.gz",
        "train-00000-of-00004.parquet",
        "model-00001-of-00002.safetensors",
        "part-00000.snappy.parquet",
        "part-00000.csv.gz",
        "README.md",
        "make.py",
        "classes.labels",
        "a.tfrecord.tmp",
        "a.JPG",
    ],
)
def test_the_name_of_a_companion_is_enough(name: str) -> None:
    assert is_record_name(name) is False


@pytest.mark.parametrize("name", ["a", "a.bin", "a.tfrecord.spec", "partly", "part-time", "record", "a-1-of-2"])
def test_any_other_name_leaves_it_to_the_content(name: str) -> None:
    assert is_record_name(name) is None


def test_a_named_file_is_taken_whatever_it_is(tree: Tree) -> None:
    root = tree("notes.json", ".hidden", "_SUCCESS")
    for name in ("notes.json", ".hidden", "_SUCCESS"):
        assert paths_of(root / name, never_asked) == [str(root / name)]


def test_a_folder_is_searched_to_its_depth_and_sorted_by_bytes(tree: Tree) -> None:
    root = tree("b/x.tfrecord", "a.tfrecord", "B.tfrecord", "a/z.tfrecord", "a-1.tfrecord", "é.tfrecord")
    assert below(root, paths_of(root, never_asked)) == [
        "B.tfrecord",
        "a-1.tfrecord",
        "a.tfrecord",
        "a/z.tfrecord",
        "b/x.tfrecord",
        "é.tfrecord",
    ]


def test_where_names_tell_the_record_files_no_content_is_asked_for(tree: Tree) -> None:
    root = tree("a.tfrecord", "labels.json", "c!", "e!.json", "s/part-00000", "s/f.tfrecord.spec!", "x!.tar")
    found = resolve_record_files(root, never_asked)
    assert below(root, found.paths) == ["a.tfrecord", "s/part-00000"]
    assert below(root, found.skipped) == ["c!", "s/f.tfrecord.spec!", "x!.tar"]
    assert filter_record_files(found.skipped, begins_with_a_record) == found.skipped


def test_where_no_name_tells_the_content_of_unexplained_files_does(tree: Tree) -> None:
    root = tree("labels!.json", "c!", "d", "e!.txt", "a/g!.bin", "a/h.bin", "i!.tmp", "_j!", ".k!", "l!.data-00000")
    found = resolve_record_files(root, begins_with_a_record)
    assert (below(root, found.paths), found.skipped) == (["a/g!.bin", "c!", "l!.data-00000"], [])
    assert below(root, paths_of(f"{root}/*", begins_with_a_record)) == ["a/g!.bin", "c!", "l!.data-00000"]
    assert below(root, paths_of(f"{root}/a/*.bin", begins_with_a_record)) == ["a/g!.bin"]


@pytest.mark.parametrize(
    "name", ["x.tar", "train-00000-of-00004.tar", "part-00000.tar", "X.TAR", "x.tar.gz", "x.tgz"]
)
def test_what_is_called_a_tar_is_taken_by_its_content(tree: Tree, name: str) -> None:
    assert is_record_name(name) is None
    root = tree("a!/" + name, "b/" + name)
    (root / "b" / name).write_bytes(b"an archive")
    assert below(root, paths_of(root, begins_with_a_record)) == [f"a!/{name}"]


@pytest.mark.parametrize("count", [7, 8, 9, 50])
def test_of_many_files_with_one_extension_a_sample_is_read(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(find_module, "MAX_PROBED", 8)
    root = tree(*[f"s!/{number:03}.tar" for number in range(count)], *[f"t/{number}.raw" for number in range(2)])
    read = []

    def asked(head: bytes) -> bool:
        read.append(head)
        return begins_with_a_record(head)

    assert below(root, paths_of(root, asked)) == [f"s!/{number:03}.tar" for number in range(count)]
    assert len(read) <= 8


def test_a_sample_that_does_not_agree_is_no_reason_to_choose(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "MAX_PROBED", 8)
    root = tree(*[f"{number:03}!.bin" for number in range(20)])
    for number in range(0, 20, 3):
        (root / f"{number:03}!.bin").write_bytes(b"something else")
    with pytest.raises(DatasetError) as caught:
        paths_of(root, begins_with_a_record)
    assert (caught.value.code, caught.value.location.path) == ("X502", str(root))
    assert caught.value.what == "cannot determine which of 20 files hold records"
    assert caught.value.found == ".bin: 5 of 8 that were read begin with a record"
    assert len(paths_of(root / "00[12]!.bin", begins_with_a_record)) == 2


def test_more_extensions_than_files_that_are_read_is_no_reason_to_choose(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_module, "MAX_PROBED", 8)
    root = tree(*[f"a!.{letter}{letter}{letter}" for letter in "abdefgijk"])
    with pytest.raises(DatasetError) as caught:
        paths_of(root, begins_with_a_record)
    assert (caught.value.code, caught.value.found) == ("X502", "9 different extensions")


def test_empty_files_say_nothing_of_their_like(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_module, "MAX_PROBED", 8)
    root = tree(*[f"{number:03}!.tar" for number in range(20)])
    (root / "000!.tar").write_bytes(b"")
    assert len(paths_of(root, begins_with_a_record)) == 20


def test_what_cannot_be_read_is_not_taken_by_content(tree: Tree) -> None:
    root = tree("a!", "b!")
    (root / "b!").unlink()
    os.mkfifo(root / "b!")
    (root / "c!").symlink_to("a!")
    assert below(root, paths_of(root, begins_with_a_record)) == ["a!"]


def test_hidden_names_are_passed_over_in_folders(tree: Tree) -> None:
    root = tree("a.tfrecord", ".b.tfrecord", "_c.tfrecord", ".rekord/d.tfrecord", "_temporary/e.tfrecord")
    assert below(root, paths_of(root, never_asked)) == ["a.tfrecord"]


def test_a_hidden_folder_that_is_named_is_searched(tree: Tree) -> None:
    root = tree("_staged/a.tfrecord")
    assert below(root, paths_of(root / "_staged", never_asked)) == ["_staged/a.tfrecord"]


def test_a_checkpoint_is_not_taken_for_shards(tree: Tree) -> None:
    root = tree(
        "model.ckpt-7.data-00000-of-00001",
        "model.ckpt-7.index",
        "x.data-00000-of-00001",
        "discarded-data-00000-of-00001",
    )
    assert below(root, paths_of(root, never_asked)) == [
        "discarded-data-00000-of-00001",
        "x.data-00000-of-00001",
    ]


def test_pipes_are_passed_over_and_links_to_nowhere_are_taken_by_name(tree: Tree) -> None:
    root = tree("a.tfrecord")
    os.mkfifo(root / "pipe.tfrecord")
    (root / "gone.tfrecord").symlink_to("elsewhere")
    (root / "gone").symlink_to("elsewhere")
    assert below(root, paths_of(root, never_asked)) == ["a.tfrecord", "gone.tfrecord"]


def test_links_in_a_circle_come_to_an_end(tree: Tree) -> None:
    root = tree("a/b/x.tfrecord")
    (root / "a/b/up").symlink_to(root)
    (root / "a/self").symlink_to("self")
    assert below(root, paths_of(root, never_asked)) == ["a/b/x.tfrecord"]
    assert below(root, paths_of(f"{root}/**/x*", never_asked)) == ["a/b/x.tfrecord"]
    assert below(root, paths_of(f"{root}/**/b/**/x*", never_asked)) == ["a/b/x.tfrecord"]


def test_what_links_also_reach_is_listed_once_by_its_own_name(tree: Tree) -> None:
    root = tree("v3/x.tfrecord")
    (root / "latest").symlink_to("v3")
    (root / "a.tfrecord").symlink_to("v3/x.tfrecord")
    assert below(root, paths_of(root, never_asked)) == ["v3/x.tfrecord"]


def test_a_link_to_a_folder_elsewhere_is_followed(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "x.tfrecord").touch()
    root = tree("a.tfrecord")
    (root / "more").symlink_to(elsewhere)
    assert below(root, paths_of(root, never_asked)) == ["a.tfrecord", "more/x.tfrecord"]


def test_hard_links_are_files_of_their_own(tree: Tree) -> None:
    root = tree("a.tfrecord")
    os.link(root / "a.tfrecord", root / "b.tfrecord")
    assert below(root, paths_of(root, never_asked)) == ["a.tfrecord", "b.tfrecord"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.tfrecord", ["a.tfrecord", "b.tfrecord"]),
        ("?.tfrecord", ["a.tfrecord", "b.tfrecord"]),
        ("[!a].tfrecord", ["b.tfrecord"]),
        ("*", ["a.tfrecord", "b.tfrecord", "s/c.tfrecord", "s/t/c.tfrecord"]),
        ("*/", ["s/c.tfrecord", "s/t/c.tfrecord"]),
        ("*/c.tfrecord", ["s/c.tfrecord"]),
        ("**", ["a.tfrecord", "b.tfrecord", "s/c.tfrecord", "s/t/c.tfrecord"]),
        ("**/c*", ["s/c.tfrecord", "s/t/c.tfrecord"]),
        ("**/*.tfrecord", ["a.tfrecord", "b.tfrecord", "s/c.tfrecord", "s/t/c.tfrecord"]),
        ("s/**/c.*", ["s/c.tfrecord", "s/t/c.tfrecord"]),
        ("**/**/t/*", ["s/t/c.tfrecord"]),
        ("./[s]/../a*", ["./s/../a.tfrecord"]),
        (".h*", [".h.tfrecord"]),
        ("_*/*", ["_u/d.tfrecord"]),
    ],
)
def test_a_pattern_matches_as_in_a_shell(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, pattern: str, expected: list[str]
) -> None:
    root = tree(
        "a.tfrecord", "b.tfrecord", "c.json", "s/c.tfrecord", "s/t/c.tfrecord", ".h.tfrecord", "_u/d.tfrecord"
    )
    monkeypatch.chdir(root)
    found = paths_of(pattern, never_asked)
    assert [path.removeprefix("./") if pattern == "**" else path for path in found] == expected
    absolute = paths_of(f"{root}/{pattern}", never_asked)
    assert [os.path.normpath(path) for path in absolute] == [os.path.normpath(root / path) for path in expected]


def test_what_is_there_by_the_name_of_a_pattern_wins_over_the_pattern(tree: Tree) -> None:
    root = tree("a[1].tfrecord", "a1.tfrecord", "set[2]/x.tfrecord", "set2/y.tfrecord")
    assert below(root, paths_of(root / "a[1].tfrecord", never_asked)) == ["a[1].tfrecord"]
    assert below(root, paths_of(root / "a[1]*", never_asked)) == ["a1.tfrecord"]
    assert below(root, paths_of(root / "set[2]/*", never_asked)) == ["set[2]/x.tfrecord"]


def test_several_paths_make_one_list_without_repetition(tree: Tree) -> None:
    root = tree("b.tfrecord", "s/a.tfrecord")
    paths: list[str | Path] = [
        root / "s",
        str(root / "b.tfrecord"),
        root / "s" / ".." / "b.tfrecord",
        f"{root}/s/*",
    ]
    assert below(root, paths_of(paths, never_asked)) == ["b.tfrecord", "s/a.tfrecord"]


def test_a_folder_without_record_files_says_what_was_passed_over(tree: Tree) -> None:
    root = tree("a.json", "b.json", "c.txt", "_SUCCESS", "d")
    with pytest.raises(DatasetError) as caught:
        paths_of(root, begins_with_a_record)
    assert (caught.value.code, caught.value.location.path) == ("X502", str(root))
    assert caught.value.found == "5 skipped files: 2 .json, 2 without extension, 1 .txt"
    assert caught.value.do == (
        "use the path of the file itself if it holds records; for raw data: rekord write FOLDER OUT"
    )


def test_an_empty_folder_is_x502(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        paths_of(tmp_path, never_asked)
    assert (caught.value.code, caught.value.location.path) == ("X502", str(tmp_path))
    assert caught.value.found == "a folder without files"


@pytest.mark.parametrize(("pattern", "found"), [("*.zz", "no file matches"), ("*.json", "1 skipped file: 1 .json")])
def test_a_pattern_without_record_files_is_x502(tree: Tree, pattern: str, found: str) -> None:
    root = tree("a.tfrecord", "b.json")
    with pytest.raises(DatasetError) as caught:
        paths_of([root, f"{root}/{pattern}"], never_asked)
    assert (caught.value.code, caught.value.location.path) == ("X502", f"{root}/{pattern}")
    assert (caught.value.what, caught.value.found) == ("no record files match", found)


def test_no_path_at_all_is_x502() -> None:
    with pytest.raises(DatasetError) as caught:
        paths_of([], never_asked)
    assert (caught.value.code, caught.value.found) == ("X502", "an empty list")


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("flwers", "flowers"),
        ("Flowers", "flowers"),
        ("trian.tfrecord", "train.tfrecord"),
        ("train_set", "train-set"),
        ("flwers/train-00000-of-00002", "flowers"),
        ("flwers/*.tfrecord", "flowers"),
    ],
)
def test_a_missing_path_names_its_near_miss(tree: Tree, asked: str, meant: str) -> None:
    root = tree("flowers/a.tfrecord", "train.tfrecord", "train-set/b.tfrecord")
    with pytest.raises(DatasetError) as caught:
        paths_of(root / asked, never_asked)
    assert caught.value.code == "X501"
    assert caught.value.location.path == str(root / asked.removesuffix("/*.tfrecord"))
    assert caught.value.likely == f"`{meant}` is meant: it exists and its name is similar"
    assert caught.value.do == f"use {root / meant}"


@pytest.mark.parametrize("asked", ["birds", "f", "flo"])
def test_a_missing_path_without_a_near_miss_claims_none(tree: Tree, asked: str) -> None:
    root = tree("flowers/a.tfrecord", "g", "abc")
    with pytest.raises(DatasetError) as caught:
        paths_of(root / asked, never_asked)
    assert (caught.value.code, caught.value.location.path) == ("X501", str(root / asked))
    assert (caught.value.likely, caught.value.do) == (None, f"ls {root}")


def test_a_path_below_a_file_and_a_link_to_nowhere_say_so(tree: Tree) -> None:
    root = tree("a.tfrecord")
    (root / "link").symlink_to("gone")
    with pytest.raises(DatasetError) as caught:
        paths_of(root / "a.tfrecord" / "b", never_asked)
    assert (caught.value.code, caught.value.likely) == ("X501", None)
    assert caught.value.found == f"{root / 'a.tfrecord'} is not an accessible folder"
    with pytest.raises(DatasetError) as caught:
        paths_of(root / "link", never_asked)
    assert (caught.value.code, caught.value.found) == ("X501", "a broken link")


def test_an_empty_path_is_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        paths_of("", never_asked)
    assert caught.value.code == "U605"


def test_names_that_are_not_utf8_are_found(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.tfrecord")
    (tmp_path / name).touch()
    assert paths_of(tmp_path, never_asked) == [os.path.join(tmp_path, name)]


@pytest.mark.parametrize("path", [None, 5, ["a.tfrecord", None]])
def test_what_is_no_path_is_refused_as_wrong_usage(path):
    with pytest.raises(rk.UsageError) as caught:
        rk.open(path)
    assert caught.value.code == "U605"
