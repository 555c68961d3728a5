"""Verbs that only move records copy their payloads byte by byte, whatever form they and their files have."""

import gzip
import os
import shutil
import zlib
from collections import Counter

import pytest
from record_strategies import ints

import rekord as rk
from rekord.testing import corrupt_payload, entry, example, feature, float_list, frames, unknown

NONE, GZIP, ZLIB = "none", "gzip", "zlib"
PACK = {NONE: bytes, GZIP: gzip.compress, ZLIB: zlib.compress}
NAMES = {NONE: "tfrecord", GZIP: "tfrecord.gz", ZLIB: "tfrecord.zz"}


def odd(i):
    """A payload in a form that an encoder would not give, different for each record."""
    label, x = entry("label", ints(i % 3)), entry("x", feature(("float", float_list([i / 2]))))
    forms = [
        example(label, x),
        example(x, label, entry("half", b"")),  # a feature of no kind
        example(label, entry("x", feature(("float", float_list([i / 2], packed=False))))),
        example(entry("x", feature(("float", float_list([9.0])))), label, x),  # a key twice
        example(label, entry("x", unknown(9, 0) + feature(("float", float_list([i / 2]))))),
        example(entry("label", ints(i % 3, packed=False)), x) + unknown(7, 2),
        example(entry("label", ints(i % 3), swap=True), x),
        example(label, x, entry("half", None)),  # an entry without a value
    ]
    return forms[i % len(forms)]


PAYLOADS = [odd(i) for i in range(48)]


def put(folder, compression):
    """Two files of the split train, as another writer leaves them."""
    os.makedirs(folder)
    for shard in range(2):
        name = f"train-{shard:05}-of-00002.{NAMES[compression]}"
        with open(os.path.join(folder, name), "wb") as file:
            file.write(PACK[compression](frames(PAYLOADS[24 * shard :][:24])))
    return folder


def payloads(dataset):
    return {name: [one for path in split.paths for one in rk.records(path)] for name, split in dataset.splits.items()}


@pytest.fixture(params=[NONE, GZIP, ZLIB])
def data(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return put("in", request.param)


@pytest.mark.parametrize("compression", [None, NONE, GZIP, ZLIB])
def test_rewrite_copies_payloads_as_they_are(data, compression):
    made = rk.rewrite(data, "out", compression=compression, progress=False)
    assert payloads(made) == {"train": PAYLOADS}
    made = rk.rewrite(data, "many", compression=compression, shards=5, progress=False)
    assert payloads(made) == {"train": PAYLOADS}
    assert len(made["train"].paths) == 5
    made = rk.rewrite(data, "small", compression=compression, shard_size=400, progress=False)
    assert payloads(made) == {"train": PAYLOADS}
    assert sorted(os.listdir(".")) == ["in", "many", "out", "small"]


def test_shuffle_and_conditions_copy_payloads_as_they_are(data):
    shuffled = payloads(rk.rewrite(data, "out", shuffle=True, seed=1, shards=3, progress=False))["train"]
    assert shuffled != PAYLOADS
    assert Counter(shuffled) == Counter(PAYLOADS)
    plain = rk.rewrite(put("plain", NONE), "other", shuffle=True, seed=1, shards=3, progress=False)
    assert payloads(plain)["train"] == shuffled
    made = rk.rewrite(data, "some", where="label = 1 and _record > 10", progress=False)
    assert payloads(made) == {"train": [one for i, one in enumerate(PAYLOADS) if i % 3 == 1 and i > 10]}


def test_views_and_merges_copy_payloads_as_they_are(data):
    view = rk.open(data)["train"].select([40, 3, 3, 17])
    assert payloads(rk.rewrite(view, "out", progress=False)) == {"train": [PAYLOADS[i] for i in (40, 3, 3, 17)]}
    both = [data, put("plain", NONE)]
    assert payloads(rk.rewrite(both, "two", progress=False)) == {"train": PAYLOADS * 2}


def test_split_copies_payloads_as_they_are(data):
    made = rk.split(data, "out", split={"train": 0.5, "val": 0.5}, stratify="label", progress=False)
    found = payloads(made)
    assert list(map(len, found.values())) == [24, 24]
    assert Counter(found["train"] + found["val"]) == Counter(PAYLOADS)
    assert found["train"] == [one for one in PAYLOADS if one in set(found["train"])]
    plain = rk.split(put("plain", NONE), "other", split={"train": 0.5, "val": 0.5}, stratify="label", progress=False)
    assert payloads(plain) == found
    folds = payloads(rk.split(data, "folds", folds=3, progress=False))
    assert Counter(one for some in folds.values() for one in some) == Counter(PAYLOADS)


def test_balance_copies_payloads_as_they_are(data):
    less = rk.rewrite(data, "less", where="label != 2 or _record < 12", progress=False)
    for path in less["train"].paths:  # as others leave it: without a manifest and an index
        assert path
    shutil.rmtree("less/.rekord")
    os.remove("less/rekord.json")
    made = payloads(rk.balance("less", "more", by="label", progress=False))["train"]
    assert set(made) == set(payloads(less)["train"])
    assert Counter(rk.decode(one)["label"][0] for one in made) == {0: 16, 1: 16, 2: 16}
    made = payloads(rk.balance("less", "fewer", by="label", method="undersample", progress=False))["train"]
    assert set(made) <= set(PAYLOADS)
    assert Counter(rk.decode(one)["label"][0] for one in made) == {0: 4, 1: 4, 2: 4}


def test_salvage_copies_payloads_as_they_are(data):
    assert rk.salvage(data, "out").kept == len(PAYLOADS)
    assert payloads(rk.open("out")) == {"train": PAYLOADS}


@pytest.mark.parametrize("compression", [NONE, GZIP, ZLIB])
@pytest.mark.parametrize("indexed", [True, False])
def test_edits_copy_payloads_as_they_are(tmp_path, monkeypatch, compression, indexed):
    monkeypatch.chdir(tmp_path)
    rk.rewrite(put("raw", compression), "in", shards=3, progress=False)
    if not indexed:
        shutil.rmtree("in/.rekord/index")
    made = rk.delete("in", "out", where="_record in (3, 20)", progress=False)
    assert payloads(made) == {"train": [one for i, one in enumerate(PAYLOADS) if i not in (3, 20)]}
    row = {"label": 1, "x": 0.5}
    made = rk.append("in", [row], "more", progress=False)
    assert payloads(made)["train"][:-1] == PAYLOADS


def test_damage_in_a_compressed_file_is_said_with_its_place_and_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damaged = corrupt_payload(frames(PAYLOADS), 7)
    with open("a.tfrecord.gz", "wb") as file:
        file.write(gzip.compress(damaged))
    for verb in (rk.rewrite, lambda *of, **options: rk.split(*of, split={"a": 0.5, "b": 0.5}, **options)):
        with pytest.raises(rk.FrameError) as caught:
            verb("a.tfrecord.gz", "out", progress=False)
        assert caught.value.code == "F102"
        assert (caught.value.location.path, caught.value.location.record) == ("a.tfrecord.gz", 7)
        assert os.listdir(".") == ["a.tfrecord.gz"]


def test_a_compressed_file_that_another_one_replaced_meanwhile_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("in", GZIP)
    dataset = rk.open("in")
    assert len(dataset["train"]) == 48
    with open(dataset["train"].paths[1], "wb") as file:
        file.write(gzip.compress(frames(PAYLOADS[:24])))
    with pytest.raises(rk.DatasetError) as caught:
        rk.rewrite(dataset, "out", progress=False)
    assert (caught.value.code, caught.value.location.path) == ("X548", dataset["train"].paths[1])


def test_a_split_can_be_read_as_before_when_it_was_rewritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    split = rk.open(put("in", GZIP))["train"]
    rk.rewrite(split, "out", progress=False)
    with pytest.raises(rk.UsageError) as caught:
        split[3]
    assert (caught.value.code, caught.value.what) == (
        "U651",
        "compressed file cannot be read in arbitrary order",
    )
    assert [int(row["label"]) for row in split] == [i % 3 for i in range(48)]


def test_the_room_for_inflated_copies_is_asked_for_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    put("in", GZIP)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(1000, 0, 1000))
    with pytest.raises(rk.DatasetError) as caught:
        rk.rewrite("in", "out", compression="gzip", progress=False)
    assert (caught.value.code, caught.value.found) == ("X519", "1.0 kB free")
    assert os.listdir(".") == ["in"]
