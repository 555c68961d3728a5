"""Datasets of every format that are kept for ever: they open, shuffle and resume as they always did.

A failure here means that a dataset or a saved state of last year is another one today. The files are never made anew;
a new format gets new ones. Those of format 1 were written by the version before format 2, those of `format_2` with
SHA-256 digests of shards by the version before BLAKE3.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import rekord as rk
from rekord.dataset import manifest as manifest_module
from rekord.dataset import shard_index
from rekord.dataset.manifest import read_manifest
from rekord.verbs.edit.change import delete

FILES = Path(__file__).parent / "files"
DIGESTS = {
    "format_1/plain": "978f0e4668aa9798a997e1ba8cec1106ee09a7f8d89aea11756b02681ee25784",
    "format_1/gzip": "55c62b28c376a3e6bab4a8e10c24e9cbc53d0025f942699f20f6e433a7b30544",
    "format_2/plain": "a234187820de0e04a97c69585f1f65c5996967fb6c130cd012aeb6e76055f6d2",
    "format_2/gzip": "05cf50357be58f934e8df746eb4d7701def8ec4a0a6bc3fdc1a7b37cd037fbb6",
    "format_2_blake3/plain": "a671feb4cc2d4be5df456261f5be7aeb20401ed1f2cecb01a59136734d182654",
    "format_2_blake3/gzip": "ade01e00222ff7edffdfea94796a13c7cc03b05d1533d287c9038a01fbab9447",
}
WEIGHTS = {0: 10 / (3 * 4), 1: 10 / (3 * 4), 2: 10 / (3 * 2)}
SUM = 50


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    shard_index._index_cache.clear()
    manifest_module._manifest_cache.clear()


@pytest.fixture(params=DIGESTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_kept_dataset_is_read_and_checked(name: str) -> None:
    dataset = rk.open(FILES / name)
    assert {split: len(dataset[split]) for split in dataset.splits} == {"train": 10, "val": 2}
    rows = [row for split in dataset.splits.values() for row in split]
    assert sorted((int(row["n"]), int(row["label"]), row["text"]) for row in rows) == [
        (i, i % 3, f"row {i}") for i in range(12)
    ]
    assert dataset.schema["label"].names == ("cat", "dog", "owl")
    assert rk.check(FILES / name).findings == []


def test_a_kept_dataset_is_what_saved_states_say(name: str) -> None:
    split = rk.open(FILES / name)["train"]
    assert split.digest() == DIGESTS[name]
    batches = split.batches(2, shuffle=True, seed=3, prefetch=0, threads=1)
    order = {"kind": "exact", "seed": 3}
    batches.load_state_dict(
        {"rekord": 1, "dataset": DIGESTS[name], "split": "train", "order": order, "epoch": 0, "consumed": 2}
    )
    assert [batch["n"].tolist() for batch in batches] == [[1, 8], [9, 4], [3, 0], [6, 10]]


def test_the_index_of_format_1_is_ignored_and_that_of_format_2_believed(name: str) -> None:
    split = rk.open(FILES / name)["train"]
    index = split.view.shards.index(0)
    believed = not name.startswith("format_1")
    assert index.origin == ("written" if believed else "found")
    assert index.has_columns(["label", "n"]) == believed
    assert split.class_weights("label") == pytest.approx(WEIGHTS)
    assert split.sql("select sum(n) as n from train").to_pylist() == [{"n": SUM}]
    assert split[[9, 0, 5]]["n"].tolist() == [split[i]["n"] for i in (9, 0, 5)]


def test_a_kept_dataset_can_be_edited(name: str, tmp_path: Path) -> None:
    data = shutil.copytree(FILES / name, tmp_path / "data")
    delete(data, out=tmp_path / "out", where="label = 1", progress=False, workers=1)
    manifest = read_manifest(str(tmp_path / "out"))
    assert manifest.format == 2
    assert rk.check(tmp_path / "out").findings == []
    left = [row for split in rk.open(tmp_path / "out").splits.values() for row in split]
    assert sorted(int(row["n"]) for row in left) == [i for i in range(12) if i % 3 != 1]


def test_a_label_of_format_1_that_was_changed_in_the_index_changes_no_answer(tmp_path: Path) -> None:
    data = shutil.copytree(FILES / "format_1/plain", tmp_path / "data")
    for place in (data / ".rekord" / "index").iterdir():
        content = bytearray(place.read_bytes())
        for at in range(len(content)):
            content[at] ^= 2
        place.write_bytes(content)
    assert rk.open(data)["train"].class_weights("label") == pytest.approx(WEIGHTS)
