"""A dataset of very many shards: opened by its manifest alone, its files compared when they are first used."""

from __future__ import annotations

import os
import pickle
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sample_conversions import disable_fsync

import rekord as rk
from rekord.dataset import dataset as dataset_module
from rekord.dataset import index as index_module
from rekord.dataset import manifest as manifest_module
from rekord.dataset import shard_index
from rekord.dataset.index import (
    CHUNK_RECORDS,
    IndexExpectation,
    compact_offsets,
    encode_offsets_file,
    open_index_file,
)
from rekord.dataset.manifest import CHECKSUM, IndexChecksums, ManifestShards, read_manifest

SCHEMA = rk.Schema({"label": rk.Label(3), "n": rk.Int64()})


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    disable_fsync(monkeypatch)
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    shard_index._index_cache.clear()
    manifest_module._manifest_cache.clear()
    index_module._chunk_cache.clear()
    yield
    index_module._chunk_cache.clear()


def written(folder: Path, first: int = 0, **options: Any) -> Path:
    rows = [{"label": i % 3, "n": first + i} for i in range(12)]
    rk.write(rows, folder, schema=SCHEMA, shards=4, progress=False, workers=1, **options)
    return folder


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_module, "MAX_CHECKED_AT_OPEN", 0)


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    """The manifest of 100,000 shards, none of which exists."""
    folder, count = written(tmp_path / "huge"), 100_000
    for shard in folder.glob("*.tfrecord"):
        shard.unlink()
    manifest = read_manifest(str(folder))
    shards = ManifestShards(
        records=[1000] * count,
        bytes=[120_000_000] * count,
        digest=[f"sha256:{i:064x}" for i in range(count)],
        index=IndexChecksums(checksum=CHECKSUM, chunk_records=CHUNK_RECORDS, values=list(range(2 * count))),
    )
    part = msgspec.structs.replace(
        manifest.splits["train"], records=1000 * count, shards=shards, classes={}, blocks=None
    )
    content = msgspec.structs.replace(manifest, splits={"train": part}).to_json()
    (folder / "rekord.json").write_bytes(content)
    return folder


def test_100_000_shards_are_opened_without_a_look_at_any_of_them(huge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda path, *more, **how: (asked.append(path), stat(path, *more, **how))[1])
    tracemalloc.start()
    try:
        split = rk.open(huge)["train"]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(split) == 100_000_000
    assert repr(split).startswith("Split 'train': 100,000,000 records, 100,000 files, 2 columns")
    assert len(asked) < 10
    assert peak_bytes < 100 << 20
    assert len(pickle.dumps(split)) < 2000
    assert split.view.shards.paths[99_999] == str(huge / "train-99999-of-100000.tfrecord")
    with pytest.raises(rk.DatasetError) as caught:
        split[-1]
    assert (caught.value.code, caught.value.location.path) == ("X501", split.view.shards.paths[99_999])


def test_a_shard_is_found_by_its_name_without_all_the_others(huge: Path) -> None:
    manifest = manifest_module.load_manifest(str(huge))
    assert manifest.find("train-00007-of-100000.tfrecord")[1] == 7  # type: ignore[index]
    for name in (
        "train-100000-of-100000.tfrecord",
        "train-7-of-100000.tfrecord",
        "x",
        "train-00007-of-00008.tfrecord",
    ):
        assert manifest.find(name) is None
    listed = manifest_module.find_shard_entry(str(huge / "train-00007-of-100000.tfrecord"))
    assert listed is not None
    assert listed.expected is not None
    assert listed.expected.checksums == [14, 15]
    assert listed.expected.digest == f"sha256:{7:064x}"


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize(("change", "code"), [("cut", "X516"), ("gone", "X501"), ("pipe", "X516")])
def test_a_shard_that_is_not_what_the_manifest_says_is_refused_at_its_first_use(
    tmp_path: Path, change: str, code: str
) -> None:
    data = written(tmp_path / "data")
    shard = data / "train-00002-of-00004.tfrecord"
    if change == "cut":
        os.truncate(shard, 30)
    else:
        shard.unlink()
    if change == "pipe":
        os.mkfifo(shard)
    split = rk.open(data)["train"]
    assert split[[0, 11]]["n"].tolist() == [0, 11]
    readers = {
        "rows": lambda: [row["n"] for row in split],
        "[i]": lambda: split[7],
        "shuffled": lambda: list(split.batches(4, shuffle=True)),
        "balanced": lambda: list(split.balanced("label").batches(4)),
        "query": lambda: split.sql("select n from train"),
    }
    for name, read in readers.items():
        with pytest.raises(rk.DatasetError) as caught:
            read()
        allowed = (code, "X503") if change == "pipe" else (code,)
        assert caught.value.code in allowed, name
        assert caught.value.location.path == str(shard)


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("pickled", [False, True])
def test_a_dataset_that_was_replaced_before_the_first_use_is_not_read(tmp_path: Path, pickled: bool) -> None:
    data, other = written(tmp_path / "data"), written(tmp_path / "other", first=100)
    split = rk.open(data)["train"]
    if pickled:
        split = pickle.loads(pickle.dumps(split))
    shutil.rmtree(data)
    os.rename(other, data)
    for read in (
        lambda: split[0],
        lambda: [row["n"] for row in split],
        lambda: split.class_weights("label"),
        lambda: split.sql("select n from train"),
        lambda: list(rk.concat([split, split]).batches(3)),
    ):
        with pytest.raises(rk.DatasetError) as caught:
            read()
        assert (caught.value.code, caught.value.location.path) == ("X548", str(data / "rekord.json"))


@pytest.mark.usefixtures("lazy")
def test_an_index_that_is_built_again_makes_no_other_dataset(tmp_path: Path) -> None:
    data = written(tmp_path / "data")
    split = rk.open(data)["train"]
    assert split[0]["n"] == 0
    state = split.batches(4, shuffle=True).state_dict()
    manifest = read_manifest(str(data))
    part = manifest.splits["train"]
    bare = msgspec.structs.replace(part, blocks=None, shards=msgspec.structs.replace(part.shards, index=None))
    (data / "rekord.json").write_bytes(msgspec.structs.replace(manifest, splits={"train": bare}).to_json())
    assert [row["n"] for row in split] == list(range(12))
    again = rk.open(data)["train"].batches(4, shuffle=True)
    again.load_state_dict(state)
    assert sorted(n for batch in again for n in batch["n"].tolist()) == list(range(12))


def test_the_format_of_the_text_is_no_part_of_a_manifest(tmp_path: Path) -> None:
    data = written(tmp_path / "data")
    digest = rk.open(data)["train"].digest()
    place = data / "rekord.json"
    place.write_bytes(msgspec.json.format(place.read_bytes(), indent=0))
    assert rk.open(data)["train"].digest() == digest


# Chunks


RECORDS = 3 * CHUNK_RECORDS + 5


@pytest.fixture
def index(tmp_path: Path) -> Any:
    offsets = compact_offsets(np.arange(RECORDS, dtype=np.int64) * 20)
    (tmp_path / "x.arrow").write_bytes(encode_offsets_file(offsets, file_bytes=20 * RECORDS))
    found = open_index_file(str(tmp_path / "x.arrow"), IndexExpectation(most_bytes=20 * RECORDS))
    assert found is not None
    return found


def test_the_chunks_of_an_index_are_read_when_they_are_used_and_few_are_kept(
    index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = index_module._chunk_cache
    assert cache.cached_bytes == 0
    assert index.offsets(2)[:2].tolist() == [20 * 2 * CHUNK_RECORDS, 20 * 2 * CHUNK_RECORDS + 20]
    assert cache.cached_bytes == 4 * CHUNK_RECORDS
    monkeypatch.setattr(index_module._chunk_cache, "most_bytes", 5 * CHUNK_RECORDS)
    for number in range(4):
        index.offsets(number)
        index.chunk(number)
        assert cache.cached_bytes <= 5 * CHUNK_RECORDS


@pytest.mark.parametrize("kept_bytes", [0, 4 * CHUNK_RECORDS, 64 << 20])
def test_offsets_in_any_order_are_the_same_whatever_is_kept(
    index: Any, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(index_module._chunk_cache, "most_bytes", kept_bytes)
    edges = [0, 1023, 1024, CHUNK_RECORDS - 1, CHUNK_RECORDS, 2 * CHUNK_RECORDS - 1, RECORDS - 1]
    rng = np.random.default_rng(0)
    for _ in range(3):
        records = np.concatenate([rng.integers(0, RECORDS, 200), edges])
        assert index.get_offsets(records).tolist() == (20 * records).tolist()


@pytest.mark.parametrize("kept_bytes", [0, 64 << 20])
def test_a_chunk_that_changes_after_it_was_verified_is_not_used(
    index: Any, monkeypatch: pytest.MonkeyPatch, kept_bytes: int
) -> None:
    monkeypatch.setattr(index_module._chunk_cache, "most_bytes", kept_bytes)
    assert index.get_offsets(np.array([5, CHUNK_RECORDS])).tolist() == [100, 20 * CHUNK_RECORDS]
    index_module._chunk_cache.clear()
    blocks = index._blocks[0]
    with open(index.path, "r+b") as file:
        file.seek(blocks.begin + 5 * 4)
        file.write(b"\1")
    with pytest.raises(index_module.IndexMismatch):
        index.get_offsets(np.array([5]))
    assert index.get_offsets(np.array([CHUNK_RECORDS])).tolist() == [20 * CHUNK_RECORDS]
    assert not index.is_intact()


def test_records_of_many_chunks_are_read_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 2 * CHUNK_RECORDS + 7
    columns = {"label": np.arange(n) % 3, "n": np.arange(n)}
    rk.write(columns, tmp_path / "data", schema=SCHEMA, shards=1, progress=False, workers=1)
    some = np.array([0, CHUNK_RECORDS - 1, CHUNK_RECORDS, 2 * CHUNK_RECORDS - 1, 2 * CHUNK_RECORDS, n - 1])
    for kept_bytes in (0, 64 << 20):
        monkeypatch.setattr(index_module._chunk_cache, "most_bytes", kept_bytes)
        index_module._chunk_cache.clear()
        split = rk.open(tmp_path / "data")["train"]
        for _ in range(2):
            assert split[some]["n"].tolist() == some.tolist()
    assert split.sql("select count(*) as n, sum(n) as s from train").to_pylist() == [{"n": n, "s": n * (n - 1) // 2}]
    some_sum = split.select(some).sql("select sum(n) as s from train").to_pylist()
    assert some_sum == [{"s": int(some.sum())}]
    assert rk.check(tmp_path / "data").findings == []
