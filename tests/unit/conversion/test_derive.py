"""A dataset made of what exists already."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

import rekord as rk
from rekord.conversion.derive import (
    CopiedShard,
    Derivation,
    DerivedSplit,
    LinkedShard,
    ReencodedShard,
    derive_dataset,
    plan_record_ranges,
    reuse_shard,
)
from rekord.conversion.plan import ConversionPlan, ShardingRule
from rekord.conversion.record_copier import RecordSequence
from rekord.dataset.manifest import read_manifest
from rekord.dataset.samplers import EpochOrder, FileOrderSampler, FullSampler, SubsetSampler

SCHEMA = rk.Schema({"x": rk.Int64(), "text": rk.Text(), "label": rk.Label(3)})
TEMPLATE = "{split}-{shard:05d}-of-{shards:05d}.tfrecord"


@pytest.fixture
def dataset(tmp_path):
    rows = [{"x": i, "text": "t" * (i % 50), "label": i % 3} for i in range(1000)]
    return rk.write(rows, tmp_path / "in", schema=SCHEMA, shards=4, progress=False)


def wanted(out, splits, name="test", **options):
    plan = ConversionPlan(options={"verb": name, **options}, schema=SCHEMA.to_dict(evidence=False), source="parent")
    return Derivation(
        out=os.fspath(out),
        splits=splits,
        schema=SCHEMA,
        index=("label",),
        plan=plan,
        version="0",
        companions=lambda manifest: {},
    )


def copied(dataset, out, sampler=None, *, shards=3, compression="none", **options):
    split = dataset["train"]
    records = RecordSequence(split.view.shards, sampler or FileOrderSampler(split.view.shards))
    ending = {"none": "", "gzip": ".gz", "zlib": ".zz"}[compression]
    new = DerivedSplit(
        shards=[
            CopiedShard(stretch) for stretch in plan_record_ranges(records, ShardingRule(shards=shards, **options))
        ],
        template=TEMPLATE + ending,
        compression=compression,
    )
    derive_dataset(wanted(out, {"train": new}))
    return rk.open(out)


def test_records_are_copied_in_order_and_cut_anew(dataset, tmp_path):
    made = copied(dataset, tmp_path / "out")
    assert [row["x"] for row in made["train"]] == list(range(1000))
    assert read_manifest(str(tmp_path / "out")).splits["train"].shards.records == [334, 333, 333]
    assert rk.check(tmp_path / "out").findings == []
    assert made["train"][777]["x"] == 777


def test_cut_by_bytes_makes_the_shards_that_writing_makes(dataset, tmp_path):
    made = copied(dataset, tmp_path / "out", shards=None, shard_bytes=9_000)
    rows = [{"x": i, "text": "t" * (i % 50), "label": i % 3} for i in range(1000)]
    rk.write(rows, tmp_path / "written", schema=SCHEMA, shard_size=9_000, progress=False)
    ours, theirs = read_manifest(str(tmp_path / "out")), read_manifest(str(tmp_path / "written"))
    assert len(made["train"].paths) > 5
    assert ours.splits == theirs.splits  # counts, bytes, digests and classes of all shards


def test_an_order_of_records_is_copied_as_batches_would_give_it(dataset, tmp_path):
    sampler = FullSampler(EpochOrder("exact", 1000, 7))
    made = copied(dataset, tmp_path / "out", sampler)
    expected = sampler.records(0, np.arange(1000)).tolist()
    assert [row["x"] for row in made["train"]] == expected
    counts = read_manifest(str(tmp_path / "out")).splits["train"].classes["label"]
    assert counts == {"0": 334, "1": 333, "2": 333}
    assert made["train"][500]["label"] == expected[500] % 3


def test_some_records_are_copied_and_the_rest_is_left_out(dataset, tmp_path):
    ids = np.arange(1000)[np.arange(1000) % 3 == 1]
    made = copied(dataset, tmp_path / "out", SubsetSampler(EpochOrder("sequential", len(ids)), ids))
    assert [row["x"] for row in made["train"]] == ids.tolist()
    assert read_manifest(str(tmp_path / "out")).splits["train"].classes["label"] == {"1": 333}


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_records_go_into_compressed_shards_and_out_of_them(dataset, tmp_path, compression):
    packed = copied(dataset, tmp_path / "packed", compression=compression)
    assert packed["train"].paths[0].endswith((".gz", ".zz"))
    made = copied(packed, tmp_path / "out")
    assert [row["x"] for row in made["train"]] == list(range(1000))
    assert read_manifest(str(tmp_path / "out")).splits == read_manifest(str(copied_dir(dataset, tmp_path))).splits


def copied_dir(dataset, tmp_path):
    copied(dataset, tmp_path / "direct")
    return tmp_path / "direct"


def test_whole_shards_are_linked_and_renumbered(dataset, tmp_path):
    split = dataset["train"]
    part = read_manifest(str(tmp_path / "in")).splits["train"]
    records = RecordSequence(split.view.shards, FileOrderSampler(split.view.shards))
    shards = [reuse_shard(records, i, part, ("label",)) for i in (0, 2, 3)]
    assert all(isinstance(one, LinkedShard) for one in shards)
    new = DerivedSplit(shards=shards, template=TEMPLATE, compression="none")
    done = derive_dataset(wanted(tmp_path / "out", {"train": new}))
    assert (done.linked, done.written) == (3, 0)
    made = rk.open(tmp_path / "out")["train"]
    assert [os.path.basename(path) for path in made.paths] == [f"train-{i:05d}-of-00003.tfrecord" for i in range(3)]
    assert os.path.samefile(made.paths[1], split.paths[2])
    assert [row["x"] for row in made] == [*range(250), *range(500, 1000)]
    assert made[300]["x"] == 550
    assert rk.check(tmp_path / "out").findings == []


def test_records_are_changed_by_a_function_of_columns(dataset, tmp_path):
    split = dataset["train"]
    records = RecordSequence(split.view.shards, FileOrderSampler(split.view.shards))

    def relabelled(batch):
        return {**batch, "label": np.where(batch["label"] == 2, 0, batch["label"])}

    stretch = plan_record_ranges(records, ShardingRule(shards=1))[0]
    new = DerivedSplit(shards=[ReencodedShard(stretch, SCHEMA, relabelled)], template=TEMPLATE, compression="none")
    derive_dataset(wanted(tmp_path / "out", {"train": new}))
    made = rk.open(tmp_path / "out")["train"]
    assert [row["label"] for row in made] == [0 if i % 3 == 2 else i % 3 for i in range(1000)]
    assert read_manifest(str(tmp_path / "out")).splits["train"].classes["label"] == {"0": 667, "1": 333}


def test_a_damaged_record_ends_it_with_its_place_and_nothing_appears(dataset, tmp_path):
    path = dataset["train"].paths[1]
    data = bytearray(Path(path).read_bytes())
    offset = int.from_bytes(data[:8], "little") + 16
    data[offset + 20] ^= 1
    Path(path).write_bytes(data)
    with pytest.raises(rk.FrameError) as caught:
        copied(rk.open(tmp_path / "in"), tmp_path / "out")
    assert caught.value.code == "F102"
    assert (caught.value.location.path, caught.value.location.record) == (path, 1)
    assert caught.value.location.offset == offset
    assert not (tmp_path / "out").exists()


def test_the_same_again_has_nothing_to_do(dataset, tmp_path):
    copied(dataset, tmp_path / "out")
    before = hashlib.sha256((tmp_path / "out" / "rekord.json").read_bytes()).hexdigest()
    copied(dataset, tmp_path / "out")
    assert hashlib.sha256((tmp_path / "out" / "rekord.json").read_bytes()).hexdigest() == before
    with pytest.raises(rk.UsageError) as caught:
        derive_dataset(wanted(tmp_path / "out", {}, name="another"))
    assert (caught.value.code, caught.value.what) == ("U618", "output already exists")
