"""A dataset written anew: in other shards, another order, with fewer records, merged; its records as they are."""

import hashlib
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_conversions import read_tree

import rekord as rk
from rekord.dataset.manifest import read_manifest
from rekord.testing.damage import corrupt_payload, frame_offsets

SCHEMA = rk.Schema(
    {
        "x": rk.Int64(optional=True),
        "name": rk.Text(),
        "vec": rk.Float32((3,)),
        "tokens": rk.Int64((None,)),
        "label": rk.Label(["cat", "dog", "fox"]),
    }
)


def rows_of(count, start=0):
    return [
        {
            "x": None if i % 5 == 0 else i,
            "name": "n" * (i % 9),
            "vec": [i, i + 1, i + 2],
            "tokens": list(range(i % 4)),
            "label": i % 3,
        }
        for i in range(start, start + count)
    ]


@pytest.fixture
def old(tmp_path):
    ratios = {"train": 0.8, "val": 0.2}
    return rk.write(rows_of(200), tmp_path / "in", schema=SCHEMA, split=ratios, shards=3, progress=False)


def payloads(split):
    return list(rk.records(list(split.paths)))


def rewritten(*arguments, **options):
    return rk.rewrite(*arguments, **options, progress=False)


@pytest.mark.parametrize(
    "options",
    [{"shards": 1}, {"shards": 7}, {"shard_size": 2_000}, {"shards": 2, "compression": "gzip"}],
    ids=str,
)
def test_records_are_copied_in_order_to_other_shards(old, tmp_path, options):
    new = rewritten(tmp_path / "in", tmp_path / "out", **options)
    for name in ("train", "val"):
        assert payloads(new[name]) == payloads(old[name])
        assert new[name][5]["name"] == old[name][5]["name"]
    assert new.schema == old.schema
    assert rk.check(tmp_path / "out").findings == []


def test_the_manifest_names_its_parent_and_keeps_the_index_and_the_key(tmp_path):
    old = tmp_path / "in"
    rk.write(rows_of(50), old, schema=SCHEMA, key="name", index=["name"], progress=False)
    rewritten(old, tmp_path / "out", shards=2)
    manifest = read_manifest(str(tmp_path / "out"))

    assert manifest.parent == hashlib.sha256((old / "rekord.json").read_bytes()).hexdigest()
    assert manifest.options["key"] == "name"
    assert manifest.options["index"] == ["name", "label"]
    assert manifest.splits["train"].classes == read_manifest(str(old)).splits["train"].classes
    assert "schema.pbtxt" in manifest.companions


def test_what_was_compressed_stays_compressed_unless_told(old, tmp_path):
    packed = rewritten(old, tmp_path / "packed", compression="gzip")
    assert all(path.endswith(".gz") for path in packed["train"].paths)
    again = rewritten(tmp_path / "packed", tmp_path / "again", shards=2)
    assert all(path.endswith(".gz") for path in again["train"].paths)
    plain = rewritten(tmp_path / "packed", tmp_path / "plain", compression="none", shards=2)
    direct = rewritten(old, tmp_path / "direct", shards=2)
    assert [Path(path).read_bytes() for path in plain["train"].paths] == [
        Path(path).read_bytes() for path in direct["train"].paths
    ]


def test_shuffled_records_are_the_same_in_another_order(old, tmp_path):
    one = rewritten(old, tmp_path / "one", shuffle=True, seed=1)
    two = rewritten(old, tmp_path / "two", shuffle=True, seed=2)
    for name in ("train", "val"):
        assert payloads(one[name]) != payloads(old[name])
        assert payloads(one[name]) != payloads(two[name])
        assert sorted(payloads(one[name])) == sorted(payloads(two[name])) == sorted(payloads(old[name]))


def test_where_keeps_records_of_which_it_is_true_and_not_null(old, tmp_path):
    new = rewritten(tmp_path / "in", tmp_path / "out", where="label_name = 'dog' and x < 100 -- and no more")
    expected = [row["x"] for row in old["train"] if row["x"] is not None and row["x"] < 100 and row["label"] == 1]
    assert [row["x"] for row in new["train"]] == expected
    classes = read_manifest(str(tmp_path / "out")).splits["train"].classes
    assert classes == {"label": {"1": len(expected)}}
    with pytest.raises(rk.DatasetError) as caught:
        rewritten(tmp_path / "in", tmp_path / "none", where="x > 1000")
    assert (caught.value.code, caught.value.location.path) == ("X565", str(tmp_path / "in"))
    with pytest.raises(rk.UsageError) as refused:
        rewritten(tmp_path / "in", tmp_path / "none", where="")
    assert refused.value.code == "U605"
    assert not (tmp_path / "none").exists()


def test_a_split_in_which_no_record_is_left_is_there_and_empty(tmp_path):
    rows = [{"x": i, "name": "", "vec": [0, 0, 0], "tokens": [], "label": 0} for i in range(20)]
    rk.write(rows, tmp_path / "in", schema=SCHEMA, split={"a": 0.5, "b": 0.5}, progress=False)
    old = rk.open(tmp_path / "in")
    first = min(row["x"] for row in old["a"])
    new = rewritten(old, tmp_path / "out", where=f"x = {first}")
    assert (len(new["a"]), len(new["b"])) == (1, 0)


def test_several_datasets_are_merged_split_by_split(old, tmp_path):
    more = rk.write(rows_of(60, 500), tmp_path / "more", schema=SCHEMA, progress=False)
    new = rewritten([tmp_path / "in", tmp_path / "more"], tmp_path / "out", shards=2)
    assert payloads(new["train"]) == payloads(old["train"]) + payloads(more["train"])
    assert payloads(new["val"]) == payloads(old["val"])
    assert rk.check(tmp_path / "out").findings == []


def test_datasets_whose_schemas_do_not_agree_are_not_merged(old, tmp_path):
    rk.write([{"x": "text"}], tmp_path / "more", schema=rk.Schema({"x": rk.Text()}), progress=False)
    with pytest.raises(rk.UsageError) as caught:
        rewritten([old, tmp_path / "more"], tmp_path / "out")
    assert (caught.value.code, caught.value.what) == (
        "U656",
        "`x` differs between splits: stored as Text, read as Int64",
    )
    assert not (tmp_path / "out").exists()


def test_a_view_and_files_and_a_pattern_can_be_rewritten(old, tmp_path):
    view = old["train"].select([5, 3, 3, 9])
    new = rewritten(view, tmp_path / "view")
    assert payloads(new["train"]) == [payloads(old["train"])[i] for i in (5, 3, 3, 9)]
    files = rewritten(str(tmp_path / "in" / "train-*.tfrecord"), tmp_path / "files")
    assert payloads(files["train"]) == payloads(old["train"])
    assert set(files.schema) == set(SCHEMA)
    one = rewritten(old["train"].paths[0], tmp_path / "one", shards=2)
    assert payloads(next(iter(one.splits.values()))) == list(rk.records(old["train"].paths[0]))


def test_a_schema_that_nobody_declared_is_found_out_from_all_records(tmp_path):
    path = tmp_path / "a.tfrecord"
    with rk.Writer(path, rk.Schema({"x": rk.Int64(), "y": rk.Text(optional=True)})) as writer:
        for i in range(10_050):
            writer.write({"x": i, "y": "late" if i == 10_049 else None})
    assert set(rk.open(path).schema) == {"x"}
    new = rewritten(path, tmp_path / "out")
    assert set(new.schema) == {"x", "y"}
    assert new[10_049]["y"] == b"late"


def test_a_foreign_gzip_file_is_rewritten_as_one_that_can_be_entered_anywhere(tmp_path):
    import gzip

    with rk.Writer(tmp_path / "a.tfrecord", SCHEMA) as writer:
        for row in rows_of(50):
            writer.write(row)
    (tmp_path / "b.tfrecord.gz").write_bytes(gzip.compress((tmp_path / "a.tfrecord").read_bytes()))
    new = rewritten(tmp_path / "b.tfrecord.gz", tmp_path / "out")
    assert [row["name"] for row in new[:]] == [row["name"].encode() for row in rows_of(50)]
    assert new[49]["vec"].tolist() == [49, 50, 51]


def test_views_that_are_more_than_records_are_refused(old, tmp_path):
    for given_split in (old["train"].map(lambda batch: batch), old["train"].balanced()):
        with pytest.raises(rk.UsageError) as caught:
            rewritten(given_split, tmp_path / "out")
        assert str(caught.value).startswith(
            ("U651: `train` is sampled\n", "U651: `train` is transformed when it is read\n")
        )


@pytest.mark.parametrize("place", ["in", "in/new", ".", "link"])
def test_a_place_inside_or_around_the_old_dataset_is_refused(old, tmp_path, place):
    os.symlink(tmp_path / "in", tmp_path / "link")
    with pytest.raises(rk.UsageError) as caught:
        rewritten(tmp_path / "in", tmp_path / place, fresh=True)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U631",
        "new dataset would overlap the dataset that it is derived from",
        str(tmp_path / place),
    )
    assert payloads(rk.open(tmp_path / "in")["val"]) == payloads(old["val"])


@pytest.mark.parametrize("changes", [{}, {"drop": ["vec"]}], ids=["copied", "changed"])
def test_a_damaged_record_ends_it_with_its_place_and_the_way_out(old, tmp_path, changes):
    path = Path(old["train"].paths[1])
    data = path.read_bytes()
    offset = frame_offsets(data)[1]
    path.write_bytes(corrupt_payload(data, 1))
    with pytest.raises(rk.FrameError) as caught:
        rewritten(tmp_path / "in", tmp_path / "out", **changes)
    where = caught.value.location
    assert (caught.value.code, where.path, where.record, where.offset) == ("F102", str(path), 1, offset)
    assert caught.value.do == f"rekord salvage {tmp_path / 'in'} {tmp_path / 'in'}-repaired"
    assert not (tmp_path / "out").exists()


def test_the_same_again_has_nothing_to_do_and_another_is_refused(old, tmp_path):
    rewritten(old, tmp_path / "out", shards=2)
    before = read_tree(tmp_path / "out")
    rewritten(tmp_path / "in", tmp_path / "out", shards=2)
    assert read_tree(tmp_path / "out") == before
    with pytest.raises(rk.UsageError) as caught:
        rewritten(old, tmp_path / "out", shards=3)
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "output already exists",
        str(tmp_path / "out"),
    )
    assert len(rewritten(old, tmp_path / "out", shards=3, fresh=True)["val"].paths) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"compression": "zlib"},
        {"keep": ["x", "vec"], "cast": {"vec": "int64"}, "shuffle": True},
    ],
    ids=str,
)
def test_one_worker_and_three_make_the_same_bytes(old, tmp_path, options):
    for workers in (1, 3):
        rewritten(old, tmp_path / str(workers) / "data", shards=4, workers=workers, **options)
    assert read_tree(tmp_path / "1" / "data") == read_tree(tmp_path / "3" / "data")


def test_a_dataset_becomes_one_that_tfds_opens(old, tmp_path):
    plain = rewritten(old, tmp_path / "plain", keep=["name", "vec", "label"])
    new = rewritten(plain, tmp_path / "flowers", format="tfds", shards=2)
    names = sorted(os.listdir(tmp_path / "flowers"))
    assert "dataset_info.json" in names
    assert "flowers-train.tfrecord-00000-of-00002" in names
    (tmp_path / "flowers" / "rekord.json").unlink()
    assert payloads(rk.open(tmp_path / "flowers")["train"]) == payloads(new["train"]) == payloads(plain["train"])


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=60),
    old_shards=st.integers(1, 4),
    shards=st.integers(1, 5),
    compression=st.sampled_from([None, "none", "gzip", "zlib"]),
    shuffle=st.booleans(),
)
def test_any_sharding_order_and_compression_keeps_the_same_payloads(
    tmp_path_factory, sizes, old_shards, shards, compression, shuffle
):
    folder = tmp_path_factory.mktemp("rewrite")
    schema = rk.Schema({"i": rk.Int64(), "data": rk.Bytes()})
    rows = [{"i": i, "data": np.random.default_rng(i).bytes(size)} for i, size in enumerate(sizes)]
    old = rk.write(rows, folder / "in", schema=schema, shards=old_shards, progress=False)
    new = rewritten(old, folder / "out", shards=shards, compression=compression, shuffle=shuffle)
    assert Counter(payloads(new["train"])) == Counter(payloads(old["train"]))
    assert sorted(row["i"] for row in new["train"]) == list(range(len(sizes)))


def test_a_split_with_transforms_is_refused_and_not_copied_without_them(tmp_path):
    rows = [{"x": i} for i in range(5)]
    dataset = rk.write(rows, tmp_path / "in", schema=rk.Schema({"x": rk.Int64()}), progress=False)
    changed = dataset["train"].transform(rk.transforms.cast("x", "float32"))
    with pytest.raises(rk.UsageError) as caught:
        rk.rewrite(changed, tmp_path / "out", progress=False)
    assert (caught.value.code, caught.value.what) == (
        "U651",
        "`train` is transformed when it is read",
    )
    assert not (tmp_path / "out").exists()
