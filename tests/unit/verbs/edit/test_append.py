"""`rk.append`: more records, in new shards behind those that there are."""

import io
import os

import pyarrow as pa
import pytest
from PIL import Image as Picture
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.verbs.edit.append import append_rows
from rekord.verbs.edit.common import EditTarget
from rekord.verbs.options import AppendOptions

SCHEMA = rk.Schema({"x": rk.Int64(), "text": rk.Text(), "label": rk.Label(["cat", "dog"])})


def rows(begin, end):
    return [{"x": i, "text": f"row {i}", "label": i % 2} for i in range(begin, end)]


@pytest.fixture
def path(tmp_path):
    options = {"schema": SCHEMA, "split": {"train": 0.8, "val": 0.2}, "index": ["x"], "shards": 2}
    rk.write(rows(0, 200), tmp_path / "in", **options, progress=False)
    return tmp_path / "in"


def numbers(dataset, split="train"):
    return [int(row["x"]) for row in dataset[split]]


def test_new_shards_come_behind_those_that_there_are(path, tmp_path):
    before = read_tree(path)
    made = rk.append(path, rows(200, 260), tmp_path / "out", shard_size=1500, progress=False)
    old = rk.open(path)
    assert numbers(made) == numbers(old) + list(range(200, 260))
    assert numbers(made, "val") == numbers(old, "val")
    many = len(made["train"].paths)
    assert many > 3
    names = [os.path.basename(one) for one in made["train"].paths]
    assert names == [f"train-{i:05d}-of-{many:05d}.tfrecord" for i in range(many)]
    for split in ("train", "val"):
        pairs = zip(old[split].paths, made[split].paths, strict=False)
        assert all(os.path.samefile(a, b) for a, b in pairs)
    part = read_manifest(str(tmp_path / "out")).splits["train"]
    assert sum(part.classes["label"].values()) == part.records == len(made["train"])
    assert rk.query(tmp_path / "out", "select sum(x) from train").to_pylist()[0]["sum(x)"] == sum(numbers(made))
    for shard in names:
        index = pa.ipc.open_file(str(tmp_path / "out" / ".rekord" / "index" / f"{shard}.arrow")).read_all()
        assert {"x", "label"} <= set(index.column_names)
    assert rk.check(tmp_path / "out").findings == []
    assert read_tree(path) == before
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_new_shards_are_compressed_as_the_others_are(tmp_path, compression):
    rk.write(rows(0, 20), tmp_path / "in", schema=SCHEMA, compression=compression, progress=False)
    made = rk.append(tmp_path / "in", rows(20, 30), tmp_path / "out", progress=False)
    assert numbers(made) == list(range(30))
    assert {part.compression for part in read_manifest(str(tmp_path / "out")).splits.values()} == {compression}
    assert made["train"][25]["x"] == 25


def test_rows_go_to_the_split_that_is_named(path, tmp_path):
    made = rk.append(path, rows(200, 203), tmp_path / "out", split="val", progress=False)
    assert numbers(made, "val")[-3:] == [200, 201, 202]
    assert len(made["train"]) == len(rk.open(path)["train"])
    ratios = {"train": 0.5, "val": 0.5}
    made = rk.append(path, rows(200, 300), tmp_path / "both", split=ratios, progress=False)
    added = [len(made[name]) - len(rk.open(path)[name]) for name in ("train", "val")]
    assert sum(added) == 100
    assert min(added) > 20


@pytest.mark.parametrize(("split", "code"), [("vall", "X506"), ({"train": 0.5, "test": 0.5}, "X506")])
def test_a_split_that_there_is_not_is_refused(path, tmp_path, split, code):
    with pytest.raises(rk.RekordError) as caught:
        rk.append(path, rows(0, 3), tmp_path / "out", split=split, progress=False)
    assert (caught.value.code, caught.value.location.path) == (code, str(path))
    assert os.listdir(tmp_path) == ["in"]


def test_without_train_and_with_several_splits_one_has_to_be_named(tmp_path):
    options = {"schema": SCHEMA, "split": {"a": 0.5, "b": 0.5}, "progress": False}
    rk.write(rows(0, 50), tmp_path / "in", **options)
    with pytest.raises(rk.UsageError) as caught:
        rk.append(tmp_path / "in", rows(0, 3), tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("U605", str(tmp_path / "in"))
    rk.write(rows(0, 50), tmp_path / "one", schema=SCHEMA, split="all", progress=False)
    assert rk.append(tmp_path / "one", rows(0, 3), tmp_path / "out", progress=False).records == 53


def test_a_row_that_does_not_fit_ends_it_with_its_place(path, tmp_path):
    bad = [*rows(200, 203), {"x": 203, "text": "row", "label": "mouse"}]
    with pytest.raises(rk.EncodeError) as caught:
        rk.append(path, bad, tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.location.row) == ("E316", 3)
    assert caught.value.location.feature == "label"
    assert not (tmp_path / "out").exists()
    rk.append(path, rows(200, 204), tmp_path / "out", progress=False)
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_rows_come_from_whatever_write_takes(path, tmp_path):
    file = tmp_path / "more.csv"
    file.write_text("x,text,label\n500,hello,dog\n501,there,cat\n")
    expected = [500, 501]
    assert numbers(rk.append(path, file, tmp_path / "a", progress=False))[-2:] == expected
    table = pa.table({"x": expected, "text": ["a", "b"], "label": [0, 1]})
    assert numbers(rk.append(path, table, tmp_path / "b", progress=False))[-2:] == expected
    generated = (row for row in rows(500, 502))
    assert numbers(rk.append(path, generated, tmp_path / "c", progress=False))[-2:] == expected
    mapped = rk.append(path, rows(0, 2), tmp_path / "d", map=lambda row: {**row, "x": row["x"] + 500}, progress=False)
    assert numbers(mapped)[-2:] == expected
    first = rk.open(tmp_path / "a")
    other = rk.append(path, str(tmp_path / "a"), tmp_path / "e", split="val", progress=False)
    many = len(first["train"]) + len(first["val"])
    assert sorted(numbers(other, "val")[-many:]) == sorted([*numbers(first), *numbers(first, "val")])


def test_the_same_again_has_nothing_to_do_and_other_rows_are_refused(path, tmp_path):
    file = tmp_path / "more.csv"
    file.write_text("x,text,label\n500,hello,dog\n")
    for more in (rows(200, 210), file):
        out = tmp_path / f"out{len(os.listdir(tmp_path))}"
        target = EditTarget(out=str(out))
        assert not append_rows(path, more, target, AppendOptions()).nothing_to_do
        before = read_tree(out)
        again = append_rows(path, more, target, AppendOptions())
        assert again.nothing_to_do
        assert sum(again.counts.values()) == (10 if isinstance(more, list) else 1)
        assert (again.linked_shards, again.written_shards) == (4, 1)
        with pytest.raises(rk.UsageError) as caught:
            append_rows(path, rows(1, 2), target, AppendOptions())
        assert (caught.value.code, caught.value.what, caught.value.location.path) == (
            "U618",
            "output already exists",
            str(out),
        )
        assert read_tree(out) == before


def test_no_rows_are_nothing_to_append(path, tmp_path):
    with pytest.raises(rk.DatasetError) as caught:
        rk.append(path, [], tmp_path / "out", progress=False)
    assert caught.value.code == "X510"
    assert not (tmp_path / "out").exists()


def test_three_workers_make_the_same_bytes_as_one(path, tmp_path):
    for workers in (1, 3):
        out = tmp_path / f"out{workers}"
        rk.append(path, rows(200, 600), out, shard_size=3000, workers=workers, progress=False)
    assert read_tree(tmp_path / "out1") == read_tree(tmp_path / "out3")


def image(colour):
    data = io.BytesIO()
    Picture.new("RGB", (8, 6), colour).save(data, "JPEG")
    return data.getvalue()


def test_images_are_appended_by_the_layout_that_the_dataset_was_written_by(tmp_path):
    for root, colour in (("first", "red"), ("second", "blue")):
        for name in ("cat", "dog"):
            (tmp_path / root / name).mkdir(parents=True)
            (tmp_path / root / name / "1.jpg").write_bytes(image(colour))
    rk.write(rk.sources.image_folder(tmp_path / "first"), tmp_path / "in", progress=False)
    made = rk.append(tmp_path / "in", rk.sources.image_folder(tmp_path / "second"), tmp_path / "out", progress=False)
    assert [row["text"] for row in made[:]] == ["cat", "dog", "cat", "dog"]
    assert [(row["label"], row["height"], row["width"]) for row in made[:]] == [(0, 6, 8), (1, 6, 8)] * 2
    renamed = rk.relabel(tmp_path / "out", tmp_path / "renamed", {"dog": "wolf"}, progress=False)
    assert [row["text"] for row in renamed[:]] == ["cat", "wolf"] * 2
    os.rename(tmp_path / "second" / "dog", tmp_path / "second" / "wolf")
    more = rk.append(
        tmp_path / "renamed", rk.sources.image_folder(tmp_path / "second"), tmp_path / "more", progress=False
    )
    assert [row["text"] for row in more[:]] == ["cat", "wolf"] * 3
    assert rk.check(tmp_path / "more").ok


def test_transforms_of_the_dataset_are_applied_to_new_rows(tmp_path):
    (tmp_path / "images" / "cat").mkdir(parents=True)
    (tmp_path / "images" / "cat" / "1.jpg").write_bytes(image("red"))
    source = rk.sources.image_folder(tmp_path / "images")
    rk.write(source, tmp_path / "in", transforms=[rk.transforms.resize(4, 4)], progress=False)
    made = rk.append(tmp_path / "in", source, tmp_path / "out", progress=False)
    assert [(row["height"], row["width"]) for row in made[:]] == [(4, 4), (4, 4)]


def test_a_tfds_folder_stays_one(tmp_path):
    schema = rk.Schema({"x": rk.Int64(), "label": rk.Label(["cat", "dog"])})
    given = [{"x": i, "label": i % 2} for i in range(10)]
    rk.write(given, tmp_path / "pets", schema=schema, format="tfds", progress=False)
    made = rk.append(tmp_path / "pets", given, replace=True, progress=False)
    assert [os.path.basename(one) for one in made["train"].paths] == [
        f"pets-train.tfrecord-{i:05d}-of-00002" for i in range(2)
    ]
    assert made.records == 20


def test_rows_for_a_place_that_is_taken_are_not_kept(path, tmp_path):
    rk.append(path, iter(rows(200, 210)), tmp_path / "out", progress=False)
    with pytest.raises(rk.UsageError) as caught:
        rk.append(path, iter(rows(200, 220)), tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "output already exists",
        str(tmp_path / "out"),
    )
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_new_classes_of_a_learned_label_come_after_the_others(tmp_path):
    old = [{"id": 1, "y": "b"}, {"id": 2, "y": "a"}]
    rk.write(old, tmp_path / "in", label="y", drop=["id"], progress=False)
    new = [{"id": 3, "y": "d"}, {"id": 4, "y": "a"}, {"id": 5, "y": "c"}]
    made = rk.append(tmp_path / "in", new, tmp_path / "out", progress=False)
    assert made.schema["y"].names == ("a", "b", "c", "d")
    assert [int(row["y"]) for row in made[:]] == [1, 0, 3, 0, 2]
    assert rk.check(tmp_path / "out").ok
    more = rk.append(tmp_path / "out", pa.table({"y": ["e"]}), tmp_path / "more", progress=False)
    assert more.schema["y"].names == ("a", "b", "c", "d", "e")


def test_declared_classes_and_multi_hot_vectors_get_no_new_ones(tmp_path):
    rk.write([{"y": "a"}], tmp_path / "in", columns={"y": rk.Label(["a"])}, progress=False)
    rk.write([{"y": ["a", "b"]}], tmp_path / "multi", label="y", progress=False)
    for name, value in (("in", "b"), ("multi", ["c"])):
        with pytest.raises(rk.EncodeError) as caught:
            rk.append(tmp_path / name, [{"y": value}], tmp_path / "out", progress=False)
        assert (caught.value.code, caught.value.location.row) == ("E316", 0)
