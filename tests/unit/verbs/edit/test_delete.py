"""`rk.delete`: records that are gone, and shards that stay as they are."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest

SCHEMA = rk.Schema({"x": rk.Int64(), "text": rk.Text(optional=True), "label": rk.Label(["cat", "dog", "cow"])})


def rows(count=400):
    return [{"x": i, "text": f"secret {i:04d}" if i % 7 else None, "label": i % 3} for i in range(count)]


@pytest.fixture
def path(tmp_path):
    rk.write(rows(), tmp_path / "in", schema=SCHEMA, shards=4, progress=False)
    return tmp_path / "in"


def numbers(dataset, split="train"):
    return [int(row["x"]) for row in dataset[split]]


def delete(path, out, where, **options):
    return rk.delete(path, out, where=where, progress=False, **options)


def test_shards_without_such_records_are_linked_and_the_others_written_anew(path, tmp_path):
    before = read_tree(path)
    made = delete(path, tmp_path / "out", "x < 3 or x = 150")
    assert numbers(made) == [i for i in range(400) if i >= 3 and i != 150]
    old = rk.open(path)["train"].paths
    same = [os.path.samefile(a, b) for a, b in zip(old, made["train"].paths, strict=True)]
    assert same == [False, False, True, True]
    assert read_tree(path) == before
    assert rk.check(tmp_path / "out").findings == []
    part = read_manifest(str(tmp_path / "out")).splits["train"]
    assert part.shards.records == [97, 99, 100, 100]
    assert sum(part.classes["label"].values()) == 396
    assert made["train"][97]["x"] == 100
    assert sorted(made["train"].class_weights()) == [0, 1, 2]


def test_shards_of_which_nothing_is_left_drop_out_and_names_are_numbered_anew(path, tmp_path):
    made = delete(path, tmp_path / "out", "x >= 100 and x < 200")
    names = [os.path.basename(one) for one in made["train"].paths]
    assert names == [f"train-{i:05d}-of-00003.tfrecord" for i in range(3)]
    old = rk.open(path)["train"].paths
    assert os.path.samefile(made["train"].paths[1], old[2])
    assert numbers(made) == [*range(100), *range(200, 400)]
    assert sorted(name for name in os.listdir(tmp_path / "out" / ".rekord" / "index")) == [
        f"{name}.arrow" for name in names
    ]
    assert rk.check(tmp_path / "out").findings == []


def test_a_condition_that_is_null_keeps_the_record(path, tmp_path):
    made = delete(path, tmp_path / "out", "text > 'a'")
    assert numbers(made) == list(range(0, 400, 7))


def test_a_function_says_which(path, tmp_path):
    made = delete(path, tmp_path / "out", lambda batch: batch["label"] != 1)
    assert set(made["train"].to_arrow()["label"].to_pylist()) == {1}


def test_records_are_named_by_their_numbers(tmp_path):
    given = [{"x": i, "label": 0} for i in range(300)]
    rk.write(given, tmp_path / "in", schema=SCHEMA, split={"train": 0.8, "val": 0.2}, progress=False)
    old = rk.open(tmp_path / "in")
    made = delete(tmp_path / "in", tmp_path / "out", {"val": np.array([3, 0, 3])})
    assert numbers(made) == numbers(old)
    assert numbers(made, "val") == [x for i, x in enumerate(numbers(old, "val")) if i not in (0, 3)]
    assert os.path.samefile(made["train"].paths[0], old["train"].paths[0])
    some = delete(tmp_path / "in", tmp_path / "some", [0], split="train")
    assert numbers(some) == numbers(old)[1:]
    some = delete(tmp_path / "in", tmp_path / "where", "x >= 0", split=["val"])
    assert (len(some["train"]), len(some["val"])) == (len(old["train"]), 0)


def test_a_split_without_records_is_one_that_every_reader_takes(tmp_path):
    given = [{"x": i, "label": 0, "text": "t"} for i in range(100)]
    rk.write(given, tmp_path / "in", schema=SCHEMA, split={"train": 0.8, "val": 0.2}, progress=False)
    made = delete(tmp_path / "in", tmp_path / "out", "_split = 'val'")
    val = made["val"]
    assert [os.path.basename(one) for one in val.paths] == ["val-00000-of-00001.tfrecord"]
    assert (len(val), list(val), list(val.batches(4)), val.to_arrow().num_rows) == (0, [], [], 0)
    assert list(rk.records(val.paths[0])) == []
    assert rk.check(tmp_path / "out").ok
    assert rk.query(tmp_path / "out", "select count(*) from val").to_pylist() == [{"count_star()": 0}]
    again = delete(tmp_path / "out", tmp_path / "again", "x = 1")
    assert len(again["val"]) == 0
    more = rk.append(tmp_path / "again", given[:3], tmp_path / "more", split="val", progress=False)
    assert [os.path.basename(one) for one in more["val"].paths] == ["val-00000-of-00001.tfrecord"]
    assert numbers(more, "val") == [0, 1, 2]


def test_where_nothing_matches_the_new_dataset_is_made_of_links(path, tmp_path):
    made = delete(path, tmp_path / "out", "x = 1000")
    old = rk.open(path)["train"].paths
    assert all(os.path.samefile(a, b) for a, b in zip(old, made["train"].paths, strict=True))
    assert read_manifest(str(tmp_path / "out")).splits == read_manifest(str(path)).splits


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_nothing_of_a_deleted_record_is_anywhere_in_the_new_dataset(tmp_path, compression):
    options = {"schema": SCHEMA, "shards": 2, "index": ["text"], "progress": False}
    rk.write(rows(), tmp_path / "in", compression=compression, **options)
    delete(tmp_path / "in", tmp_path / "out", "text = 'secret 0123'")
    gone, stays = b"secret 0123", b"secret 0124"
    content = b"".join(path.read_bytes() for path in sorted((tmp_path / "out").rglob("*")) if path.is_file())
    for shard in rk.open(tmp_path / "out")["train"].paths:
        content += b"".join(rk.records(shard))
    assert gone not in content
    assert stays in content
    before = b"".join(path.read_bytes() for path in (tmp_path / "in").rglob("*") if path.is_file())
    assert gone in before, "its index had it"


def test_a_parent_is_recorded_and_so_is_the_parent_of_that(path, tmp_path):
    def digest(folder):
        return hashlib.sha256((folder / "rekord.json").read_bytes()).hexdigest()

    delete(path, tmp_path / "one", "x = 1")
    rk.append(tmp_path / "one", rows(405)[400:], tmp_path / "two", progress=False)
    made = rk.relabel(tmp_path / "two", tmp_path / "three", {"cow": "ox"}, progress=False)
    assert read_manifest(str(tmp_path / "one")).parent == digest(path)
    assert read_manifest(str(tmp_path / "two")).parent == digest(tmp_path / "one")
    assert read_manifest(str(tmp_path / "three")).parent == digest(tmp_path / "two")
    assert numbers(made) == [0, *range(2, 405)]
    assert os.path.samefile(made["train"].paths[3], rk.open(path)["train"].paths[3])
    assert rk.check(tmp_path / "three").findings == []


def test_a_tfds_folder_stays_one_under_its_new_name(tmp_path):
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog"])})
    given = [{"x": i, "label": i % 2} for i in range(40)]
    rk.write(given, tmp_path / "pets", schema=schema, shards=2, format="tfds", progress=False)
    made = delete(tmp_path / "pets", tmp_path / "animals", "x < 5")
    assert sorted(os.listdir(tmp_path / "animals")) == [
        ".rekord",
        "animals-train.tfrecord-00000-of-00002",
        "animals-train.tfrecord-00001-of-00002",
        "dataset_info.json",
        "features.json",
        "label.labels.txt",
        "rekord.json",
        "schema.pbtxt",
    ]
    info = json.loads((tmp_path / "animals" / "dataset_info.json").read_text())
    assert info["name"] == "animals"
    assert info["splits"][0]["shardLengths"] == ["15", "20"]
    assert numbers(made) == list(range(5, 40))


def test_steps_of_sequences_are_deleted_with_their_records(tmp_path):
    schema = rk.Schema(context={"x": rk.Int64()}, steps={"word": rk.Text()})
    given = [{"x": i, "word": ["a"] * (i % 4)} for i in range(30)]
    rk.write(given, tmp_path / "in", schema=schema, shards=2, progress=False)
    made = delete(tmp_path / "in", tmp_path / "out", "x = 2")
    assert [len(row["word"]) for row in made["train"]] == [i % 4 for i in range(30) if i != 2]


def test_three_workers_make_the_same_bytes_as_one(path, tmp_path):
    for workers in (1, 3):
        delete(path, tmp_path / f"out{workers}", "x % 50 = 0", workers=workers)
    assert read_tree(tmp_path / "out1") == read_tree(tmp_path / "out3")


def test_the_same_again_has_nothing_to_do_and_another_is_refused(path, tmp_path):
    delete(path, tmp_path / "out", "x = 1")
    before = read_tree(tmp_path / "out")
    delete(path, tmp_path / "out", "x < 2 and x > 0")  # the same records
    assert read_tree(tmp_path / "out") == before
    with pytest.raises(rk.UsageError) as caught:
        delete(path, tmp_path / "out", "x = 2")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "output already exists",
        str(tmp_path / "out"),
    )
    assert numbers(delete(path, tmp_path / "out", "x = 2", fresh=True))[:3] == [0, 1, 3]


def test_where_files_cannot_be_linked_they_are_copied(path, tmp_path, monkeypatch):
    def impossible(_source, _target):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", impossible)
    made = delete(path, tmp_path / "out", "x = 1")
    old = rk.open(path)["train"].paths
    assert not os.path.samefile(old[2], made["train"].paths[2])
    assert Path(old[2]).read_bytes() == Path(made["train"].paths[2]).read_bytes()
    assert rk.check(tmp_path / "out").findings == []


def test_a_lost_index_costs_a_copy_and_nothing_else(path, tmp_path):
    index = path / ".rekord" / "index" / "train-00002-of-00004.tfrecord.arrow"
    index.unlink()
    made = delete(path, tmp_path / "out", "x = 1")
    old = rk.open(path)["train"].paths
    same = [os.path.samefile(a, b) for a, b in zip(old, made["train"].paths, strict=True)]
    assert same == [False, True, False, True]
    assert numbers(made) == [0, *range(2, 400)]
    assert (tmp_path / "out" / ".rekord" / "index" / index.name).exists()


def test_a_damaged_record_in_a_shard_that_is_written_ends_it(path, tmp_path):
    shard = rk.open(path)["train"].paths[1]
    data = bytearray(Path(shard).read_bytes())
    data[-6] ^= 1
    Path(shard).write_bytes(data)
    with pytest.raises(rk.FrameError) as caught:
        delete(path, tmp_path / "out", {"train": [120]})
    assert (caught.value.code, caught.value.location.path) == ("F102", shard)
    assert caught.value.location.record == 99
    assert caught.value.do == f"rekord salvage {path} {path}-repaired"
    assert not (tmp_path / "out").exists()


def test_a_dataset_without_a_manifest_is_refused_with_a_way_out(path, tmp_path):
    (path / "rekord.json").unlink()
    for place in (path, path / "train-00000-of-00004.tfrecord"):
        with pytest.raises(rk.UsageError) as caught:
            delete(place, tmp_path / "out", "x = 1")
        assert (caught.value.code, caught.value.what, caught.value.location.path) == (
            "U651",
            "dataset without a manifest cannot be edited",
            str(place),
        )
        assert str(caught.value.do).startswith("rekord rewrite ")


def test_a_place_inside_of_the_dataset_is_refused(path):
    with pytest.raises(rk.UsageError) as caught:
        delete(path, path / "out", "x = 1")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U631",
        "new dataset would overlap the dataset that it is derived from",
        str(path / "out"),
    )


def test_a_remote_place_that_is_not_object_storage_is_only_read(path):
    with pytest.raises(rk.DatasetError) as caught:
        delete(path, "memory://bucket/out", "x = 1")
    assert (caught.value.code, caught.value.location.path) == ("X504", "memory://bucket/out")


@pytest.mark.parametrize(
    ("where", "code"),
    [
        (3.5, "U605: `where` cannot be 3.5"),
        ("", "U605: `where` cannot be ''"),
        ("no_such_column = 1", "U680: invalid query"),
        ({"val": [1]}, "X506"),
        ([400], "U605: `where` selects records that split `train` does not have"),
        ([-1], "U605: `where` selects records that split `train` does not have"),
        ([[1], [2, 3]], "U605: `where` selects records that split `train` does not have"),
        ([0.5], "U605: `where` selects records that split `train` does not have"),
        (lambda batch: True, "U622: function must return one value per record"),
        (lambda batch: batch["x"], "U622: function must return one value per record"),
    ],
)
def test_what_names_no_records_is_refused_and_nothing_appears(path, tmp_path, where, code):
    with pytest.raises(rk.RekordError) as caught:
        delete(path, tmp_path / "out", where)
    assert str(caught.value).startswith(code)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(("out", "replace"), [(None, False), ("out", True)])
def test_either_a_place_or_replace_is_needed(path, out, replace):
    with pytest.raises(rk.UsageError) as caught:
        rk.delete(path, out, where="x = 1", replace=replace, progress=False)
    assert caught.value.code == "U605"


def test_a_dataset_that_is_open_is_refused_by_what_to_give_instead(path, tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        delete(rk.open(path), tmp_path / "out", "x = 1")
    assert caught.value.code == "U605"


def test_a_dataset_that_is_not_there_leaves_nothing_behind(tmp_path):
    for out, options in ((tmp_path / "new" / "out", {}), (None, {"replace": True})):
        with pytest.raises(rk.DatasetError) as caught:
            delete(tmp_path / "none" / "in", out, "x = 1", **options)
        assert (caught.value.code, caught.value.location.path) == ("X501", str(tmp_path / "none" / "in"))
    assert os.listdir(tmp_path) == []


def test_a_split_that_is_no_name_is_refused(path, tmp_path):
    with pytest.raises(rk.UsageError) as caught:
        delete(path, tmp_path / "out", "x = 1", split=3)
    assert caught.value.code == "U605"
