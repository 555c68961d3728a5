"""Columns cast, renamed, left out and filled while a dataset is written anew."""

import io
import re

import numpy as np
import pytest
from PIL import Image
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.testing import example_bytes, frames

SCHEMA = rk.Schema(
    {
        "x": rk.Int64(optional=True),
        "name": rk.Text(),
        "vec": rk.Float32((3,)),
        "tokens": rk.Int64((None,)),
        "label": rk.Label(["cat", "dog", "fox"]),
    }
)
ROWS = [
    {
        "x": None if i % 5 == 0 else i,
        "name": str(i),
        "vec": [i, i + 1, i + 2],
        "tokens": list(range(i % 4)),
        "label": i % 3,
    }
    for i in range(60)
]


@pytest.fixture
def old(tmp_path):
    return rk.write(ROWS, tmp_path / "in", schema=SCHEMA, split={"a": 0.7, "b": 0.3}, shards=2, progress=False)


def rewritten(*arguments, **options):
    return rk.rewrite(*arguments, **options, progress=False)


def plain(split):
    return [
        {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()}
        for row in split[:]
    ]


def by_name(dataset, name="name"):
    """All rows of all splits by what tells them apart."""
    return {row[name]: row for split in dataset.splits.values() for row in plain(split)}


def test_columns_are_renamed_dropped_and_kept(old, tmp_path):
    new = rewritten(old, tmp_path / "out", rename={"vec": "vector"}, drop=["tokens"])
    assert list(new.schema) == ["x", "name", "vector", "label"]
    before = by_name(old)
    for name, row in by_name(new).items():
        assert row == {
            "x": before[name]["x"],
            "name": name,
            "vector": before[name]["vec"],
            "label": before[name]["label"],
        }
    assert [len(new[split]) for split in ("a", "b")] == [len(old[split]) for split in ("a", "b")]
    assert [row["name"] for row in new["a"]] == [row["name"] for row in old["a"]]
    kept = rewritten(old, tmp_path / "kept", keep=["label", "x"])
    assert list(kept.schema) == ["x", "label"]
    assert read_manifest(str(tmp_path / "kept")).parent is not None
    assert rk.check(tmp_path / "kept").ok


def test_a_key_that_the_schema_declares_stays_and_others_follow_the_name(tmp_path):
    schema = rk.Schema({"a": rk.Int64(), "b": rk.Int64(key="image/b")})
    rk.write([{"a": 1, "b": 2}], tmp_path / "in", schema=schema, progress=False)
    new = rewritten(tmp_path / "in", tmp_path / "out", rename={"a": "c", "b": "d"})
    assert set(rk.decode(next(rk.records(tmp_path / "out")))) == {"c", "image/b"}
    assert plain(new["train"]) == [{"c": 1, "d": 2}]


def test_numbers_are_cast_in_every_form_of_column(old, tmp_path):
    casts = {"x": "float32", "vec": "int64", "tokens": "float32"}
    new = rewritten(old, tmp_path / "out", cast=casts)
    assert new.schema["x"] == rk.Float32(optional=True)
    assert new.schema["vec"] == rk.Int64((3,))
    assert new.schema["tokens"] == rk.Float32((None,))
    before = by_name(old)
    for name, row in by_name(new).items():
        assert row == before[name]
        assert isinstance(row["vec"][0], int)
        assert row["x"] is None or isinstance(row["x"], float)


def test_numbers_of_a_tensor_are_cast_and_refused_like_all_others(tmp_path):
    schema = rk.Schema(
        {
            "x": rk.Tensor("float64", shape=(2,)),
            "some": rk.Tensor("float64", shape=(None, 2), optional=True),
            "k": rk.Int64(),
            "word": rk.Text(),
        }
    )
    good = {"x": np.array([0.5, 2.0]), "some": np.ones((3, 2)), "k": 3, "word": "0.1"}
    rows = [good, {"x": np.array([0.1, 2.0]), "some": None, "k": 2**53 + 1, "word": "7"}]
    whole = rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    for i, (name, dtype, found) in enumerate(
        [("x", "float32", "0.1"), ("x", "int64", "0.5"), ("k", "float64", "9007199254740993")]
    ):
        with pytest.raises(rk.EncodeError) as caught:
            rewritten(whole, tmp_path / f"refused{i}", cast={name: dtype})
        assert (caught.value.code, caught.value.location.feature, caught.value.found) == ("E386", name, found)
        assert caught.value.location.record == (0 if found == "0.5" else 1)
    cast = {"x": "float32", "some": "int64", "k": "float64", "word": "float64"}
    new = rewritten(whole, tmp_path / "out", cast=cast, lossy=True)
    assert plain(new) == [
        {"x": [0.5, 2.0], "some": [[1, 1]] * 3, "k": 3.0, "word": 0.1},
        {"x": [float(np.float32(0.1)), 2.0], "some": None, "k": 2.0**53, "word": 7.0},
    ]
    assert (new.schema["x"], new.schema["k"]) == (rk.Float32((2,)), rk.Tensor("float64"))


def test_bytes_that_are_no_text_are_replaced_where_that_is_allowed(tmp_path):
    whole = rk.write(
        [{"b": b"ok"}, {"b": b"\xffa"}], tmp_path / "in", schema=rk.Schema({"b": rk.Bytes()}), progress=False
    )
    with pytest.raises(rk.EncodeError) as caught:
        rewritten(whole, tmp_path / "refused", cast={"b": "text"})
    assert (caught.value.code, caught.value.location.record) == ("E318", 1)
    new = rewritten(whole, tmp_path / "out", cast={"b": "text"}, lossy=True)
    assert [row["b"] for row in new[:]] == ["ok", "\ufffda"]


def test_texts_become_numbers_and_numbers_texts(old, tmp_path):
    new = rewritten(old, tmp_path / "out", cast={"name": "int32", "label": "text", "x": "text"})
    assert new.schema["name"] == rk.Int64(dtype="int32")
    assert new.schema["x"] == rk.Text(optional=True)
    for i, row in by_name(new).items():
        assert row["label"] == ["cat", "dog", "fox"][i % 3]
        assert row["x"] == (None if i % 5 == 0 else str(i))


def test_texts_become_labels_by_their_names(old, tmp_path):
    named = rewritten(old, tmp_path / "named", cast={"label": "text"})
    back = rewritten(named, tmp_path / "back", cast={"label": rk.Label(["cat", "dog", "fox"])})
    assert back.schema == old.schema
    assert by_name(back) == by_name(old)
    with pytest.raises(rk.EncodeError) as caught:
        rewritten(named, tmp_path / "bad", cast={"label": rk.Label(["cat", "dog"])})
    assert (caught.value.code, caught.value.location.feature) == ("E316", "label")
    assert caught.value.location.record == next(
        i for i, row in enumerate(rk.open(named["a"].paths[0])[:]) if row["label"] == b"fox"
    )


def test_a_cast_that_loses_something_is_refused_at_the_first_value_unless_told(tmp_path):
    schema = rk.Schema({"score": rk.Float32()})
    rows = [{"score": 1.5 if i == 7 else float(i)} for i in range(10)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    with pytest.raises(rk.EncodeError) as caught:
        rewritten(tmp_path / "in", tmp_path / "out", cast={"score": "int64"})
    where = caught.value.location
    assert caught.value.code == "E386"
    assert (where.path, where.record, where.feature) == (
        str(tmp_path / "in" / "train-00000-of-00001.tfrecord"),
        7,
        "score",
    )
    assert "lossy=True" in caught.value.do
    assert not (tmp_path / "out").exists()
    new = rewritten(tmp_path / "in", tmp_path / "out", cast={"score": "int64"}, lossy=True)
    assert [row["score"] for row in new["train"]] == [0, 1, 2, 3, 4, 5, 6, 1, 8, 9]


@pytest.mark.parametrize("label", [rk.Int64(), rk.Label(10)], ids=["Int64", "Label"])
def test_a_shard_of_another_kind_is_cast_to_what_the_schema_says(tmp_path, label):
    schema = rk.Schema({"label": label, "name": rk.Text()})
    for shard, kind in enumerate((rk.Int64(), rk.Float32(), rk.Int64())):
        with rk.Writer(
            tmp_path / f"train-{shard:05d}-of-00003.tfrecord", rk.Schema({"label": kind, "name": rk.Text()})
        ) as writer:
            for i in range(8):
                writer.write({"label": i, "name": f"{shard}.{i}"})
    schema.save(tmp_path / "schema.json")
    old = rk.open(tmp_path, schema=schema)
    with pytest.raises(rk.DecodeError) as caught:
        list(old["train"])
    assert caught.value.code == "D403"
    new = rewritten(old, tmp_path.parent / f"{tmp_path.name}-out", cast={"label": "int64"})
    assert new.schema == schema
    assert [row["label"] for row in new["train"]] == [*range(8)] * 3
    assert [row["name"] for row in new["train"]] == [f"{shard}.{i}" for shard in range(3) for i in range(8)]
    found = rewritten([*old["train"].paths], tmp_path.parent / f"{tmp_path.name}-found", cast={"label": "int64"})
    assert found.schema["label"] == rk.Int64()
    assert sum(len(split) for split in found.splits.values()) == 24


def test_kinds_that_change_from_record_to_record_are_cast_too(tmp_path):
    data = frames([example_bytes({"n": [value]}) for value in (1, 2.0, b"3", 4, 5)])
    (tmp_path / "a.tfrecord").write_bytes(data)
    new = rewritten(tmp_path / "a.tfrecord", tmp_path / "out", cast={"n": "int64"})
    assert [row["n"] for row in new[:]] == [1, 2, 3, 4, 5]


def test_missing_values_are_filled(old, tmp_path):
    new = rewritten(old, tmp_path / "out", fill={"x": -1})
    assert new.schema["x"] == rk.Int64(default=-1)
    assert all(row["x"] == (-1 if int(row["name"]) % 5 == 0 else int(row["name"])) for row in new["a"])
    payload = next(rk.records(old["a"].paths[0]))
    first = next(rk.records(new["a"].paths[0]))
    assert ("x" in rk.decode(payload)) <= ("x" in rk.decode(first))
    assert all("x" in rk.decode(one) for one in rk.records(list(new["a"].paths)))


def test_a_value_for_all_of_a_fixed_shape_is_enough(tmp_path):
    schema = rk.Schema({"v": rk.Float32((2, 2), optional=True), "i": rk.Int64()})
    rk.write([{"v": None, "i": 0}, {"v": [[1, 2], [3, 4]], "i": 1}], tmp_path / "in", schema=schema, progress=False)
    new = rewritten(tmp_path / "in", tmp_path / "out", fill={"v": 0.5})
    assert [row["v"].tolist() for row in new["train"]] == [[[0.5, 0.5], [0.5, 0.5]], [[1, 2], [3, 4]]]


def test_a_schema_says_all_columns_at_once(old, tmp_path):
    schema = rk.Schema(
        {"name": rk.Text(), "x": rk.Float32(optional=True), "more": rk.Int64(default=7), "label": rk.Label(4)}
    )
    new = rewritten(old, tmp_path / "out", schema=schema)
    assert new.schema == schema
    before = by_name(old)
    for name, row in by_name(new).items():
        assert row == {"name": name, "x": before[name]["x"], "more": 7, "label": before[name]["label"]}


def test_transforms_come_last(old, tmp_path):
    from rekord.transforms.numeric import one_hot

    new = rewritten(old, tmp_path / "out", rename={"label": "class"}, transforms=one_hot("class"))
    assert new["a"][0]["class"].tolist() == np.eye(3)[old["a"][0]["label"]].tolist()


def test_where_is_about_the_columns_of_before(old, tmp_path):
    new = rewritten(old, tmp_path / "out", where="x > 20", rename={"x": "y"}, drop=["vec"])
    assert [row["y"] for row in new["a"]] == [row["x"] for row in old["a"] if row["x"] is not None and row["x"] > 20]


def test_a_view_in_file_order_can_be_changed_and_another_is_refused(old, tmp_path):
    new = rewritten(old["a"][3:20:4], tmp_path / "out", keep=["name"])
    assert [row["name"] for row in new["a"]] == [row["name"] for row in old["a"][3:20:4]]
    with pytest.raises(rk.UsageError) as caught:
        rewritten(old["a"].select([3, 1]), tmp_path / "no", keep=["name"])
    assert (caught.value.code, caught.value.what) == (
        "U605",
        "columns of a reordered view cannot be changed",
    )


def test_images_pass_through_as_they_are(tmp_path):
    file = io.BytesIO()
    Image.new("RGB", (9, 7), (200, 10, 10)).save(file, "JPEG", quality=31)
    schema = rk.Schema({"image": rk.Image(format="jpeg", key="image/encoded"), "note": rk.Text()})
    rows = [{"image": file.getvalue(), "note": str(i)} for i in range(5)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    new = rewritten(tmp_path / "in", tmp_path / "out", rename={"note": "text"})
    assert [row["image"] for row in new["train"]] == [file.getvalue()] * 5
    assert new.schema["image"] == schema["image"]


def test_a_mask_still_knows_its_image_by_the_new_name(tmp_path):
    schema = rk.Schema({"image": rk.Image(), "other": rk.Image(), "mask": rk.Mask(classes=2, of="image")})
    image, mask = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (4, 4)).save(image, "PNG")
    Image.new("L", (4, 4)).save(mask, "PNG")
    row = {"image": image.getvalue(), "other": image.getvalue(), "mask": mask.getvalue()}
    rk.write([row], tmp_path / "in", schema=schema, progress=False)
    new = rewritten(tmp_path / "in", tmp_path / "out", rename={"image": "photo"})
    assert new.schema["mask"].of == "photo"


def test_sequences_are_renamed_and_thinned_out(tmp_path):
    schema = rk.Schema(context={"id": rk.Int64(), "who": rk.Text()}, steps={"step": rk.Int64(), "word": rk.Text()})
    rows = [{"id": i, "who": "a", "step": list(range(i)), "word": ["w"] * i} for i in range(5)]
    rk.write(rows, tmp_path / "in", schema=schema, progress=False)
    new = rewritten(tmp_path / "in", tmp_path / "out", rename={"step": "count"}, drop=["who", "word"])
    assert new.schema == rk.Schema(context={"id": rk.Int64()}, steps={"count": rk.Int64()})
    assert [(row["id"], list(row["count"])) for row in new["train"]] == [(i, list(range(i))) for i in range(5)]


@pytest.mark.parametrize(
    "options",
    [
        {"drop": ["x"], "keep": ["name"]},
        {"drop": list(SCHEMA)},
        {"rename": {"x": "name"}},
        {"rename": {"x": "y"}, "drop": ["x"]},
        {"rename": {"x": ""}},
        {"cast": {"x": 3}},
        {"cast": ["x"]},
        {"drop": "x"},
        {"schema": SCHEMA, "rename": {"x": "y"}},
        {"schema": rk.Schema({"new": rk.Int64()})},
        {"rename": {"name": "split"}},
    ],
    ids=str,
)
def test_changes_that_make_no_sense_are_refused(old, tmp_path, options):
    with pytest.raises(rk.UsageError) as caught:
        rewritten(old, tmp_path / "out", **options)
    assert str(caught.value).startswith("U605: ")
    assert re.search(
        " cannot be used: | cannot be combined$|^dataset with several splits cannot have a column `split`$",
        caught.value.what,
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("argument", ["cast", "rename", "fill"])
def test_a_column_that_is_not_there_is_named_with_its_near_miss(old, tmp_path, argument):
    with pytest.raises(rk.SchemaError) as caught:
        rewritten(old, tmp_path / "out", **{argument: {"lable": "int64"}})
    assert (caught.value.code, caught.value.location.feature) == ("S116", "lable")


def test_there_and_back_gives_the_records_of_before(old, tmp_path):
    there = rewritten(old, tmp_path / "there", rename={"x": "y", "vec": "v"}, cast={"tokens": "float32"}, shards=3)
    back = rewritten(there, tmp_path / "back", rename={"y": "x", "v": "vec"}, cast={"tokens": "int64"}, shards=2)
    assert back.schema == old.schema
    assert {name: data for name, data in read_tree(tmp_path / "back").items() if name.endswith(".tfrecord")} == {
        name: data for name, data in read_tree(tmp_path / "in").items() if name.endswith(".tfrecord")
    }
