"""Shards: any record by its number, plain and compressed, from files that stay as they are."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import example
from sample_conversions import edit_manifest

import rekord as rk
from rekord import _core
from rekord.dataset import shard_index
from rekord.dataset.index import ByteLimitedCache, index_path
from rekord.dataset.shards import Shards
from rekord.schema.interop.tfds import build_dataset_info
from rekord.testing import corrupt_length, corrupt_payload, example_bytes, frames

SCHEMA = rk.Schema({"id": rk.Int64(), "blob": rk.Bytes()})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    shard_index._index_cache.clear()


def rows(count: int, blob_bytes: int = 20, first: int = 0) -> list[dict[str, Any]]:
    # Of random bytes, so that a compressed shard has several blocks and none is tiny.
    noise = np.random.default_rng(first).bytes(blob_bytes * count)
    return [{"id": first + i, "blob": noise[i * blob_bytes : (i + 1) * blob_bytes]} for i in range(count)]


def written(path: Path, values: list[dict[str, Any]], compression: str | None = None, shards: int = 1) -> Path:
    rk.write(values, path, schema=SCHEMA, compression=compression, shards=shards, progress=False)
    return path


def shard_of(dataset: Path) -> Path:
    return next(iter(sorted(dataset.glob("train-*"))))


def raised(call: Any) -> rk.RekordError:
    with pytest.raises(rk.RekordError) as caught:
        call()
    return caught.value


# Compressed shards.


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_records_of_a_compressed_dataset_are_read_in_any_order(tmp_path: Path, compression: str) -> None:
    values = rows(700, 10_000)
    data = written(tmp_path / "data", values, compression, shards=2)
    found = [shard_index.open_shard_index(str(path)) for path in sorted(data.glob("train-*"))]
    assert all(index.flush_points and index.compression == compression for index in found)
    split = rk.open(data)["train"]
    asked = [699, 0, 350, 349, 1, 699, 104, 105]
    batch = split[asked]
    assert batch["id"].tolist() == asked
    assert batch["blob"].tolist() == [values[i]["blob"] for i in asked]
    assert split[-1]["id"] == 699
    shuffled = np.concatenate([batch["id"] for batch in split.batches(64, shuffle=True, seed=3)])
    plain = rk.open(written(tmp_path / "plain", values, shards=2))["train"]
    same = np.concatenate([batch["id"] for batch in plain.batches(64, shuffle=True, seed=3)])
    assert shuffled.tolist() == same.tolist()
    assert sorted(shuffled.tolist()) == list(range(700))


def test_every_record_next_to_a_flush_point_is_found(tmp_path: Path) -> None:
    values = rows(400, 10_000)
    data = written(tmp_path / "data", values, "gzip")
    index = shard_index.open_shard_index(str(shard_of(data)))
    assert index.flush_points is not None
    firsts = np.searchsorted(index.offsets, [point.offset for point in index.flush_points]).tolist()
    split = rk.open(data)["train"]
    for first in firsts:
        near = [i for i in (first - 1, first, first + 1) if i < 400]
        assert split[near]["id"].tolist() == near


def test_plain_and_compressed_shards_are_gathered_together(tmp_path: Path) -> None:
    parts = [
        written(tmp_path / "a", rows(30)),
        written(tmp_path / "b", rows(300, 10_000, first=30), "gzip"),
        written(tmp_path / "c", rows(30, first=330), "zlib"),
    ]
    shards = Shards([str(shard_of(part)) for part in parts])
    ids = np.array([331, 0, 200, 30, 359, 29, 31, 200], np.int64)
    gathered = shards.gather(ids, _core.Pool(0))
    data = bytes(gathered.slab.view()[: gathered.size_bytes])
    extents, consumed, _, problem = _core.scan(data, 0, len(data), len(data))
    assert (consumed, problem) == (len(data), None)
    assert [rk.decode(one, SCHEMA)["id"] for one in _core.payloads(data, extents)] == ids.tolist()


def test_few_inflated_blocks_are_kept() -> None:
    blocks = ByteLimitedCache(most_bytes=10)
    for number in range(4):
        blocks.put(("x", None, number), b"1234", 4)
    assert blocks.get(("x", None, 0)) is None
    assert blocks.get(("x", None, 2)) == b"1234"
    blocks.put(("x", None, 4), b"1234", 4)
    assert (blocks.get(("x", None, 3)), blocks.get(("x", None, 2))) == (None, b"1234")
    blocks.put(("x", None, 5), bytes(11), 11)  # larger than all that may be kept
    assert (blocks.get(("x", None, 5)), blocks.cached_bytes) == (None, 8)


def test_a_random_batch_holds_no_more_than_its_records_and_a_few_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(tmp_path / "data", rows(800, 10_000), "zlib")
    shards = Shards([str(shard_of(data))])
    shards._blocks = ByteLimitedCache(3 << 20)
    shards.gather(np.arange(799, -1, -1, dtype=np.int64), _core.Pool(0))
    assert 0 < shards._blocks.cached_bytes <= 3 << 20


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_foreign_compressed_file_has_a_length_and_is_read_in_file_order_only(
    tmp_path: Path, compress: Any, compression: str
) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(compress(frames(example_bytes({"id": [i]}) for i in range(50)), compression))
    split = rk.open(path)
    assert split.records == 50
    assert [row["id"] for row in split["all"]] == list(range(50))
    for call in (
        lambda: split[3],
        lambda: split[[1, 2]],
        lambda: split.batches(4, shuffle=True),
        lambda: split.batches(4, rank=1, world=2),
        lambda: split[3:5].batches(2),
        lambda: Shards([str(path)]).gather(np.array([0], np.int64), _core.Pool(0)),
    ):
        failure = raised(call)
        assert isinstance(failure, rk.UsageError)
        assert (failure.code, failure.what, failure.location.path) == (
            "U651",
            "compressed file cannot be read in arbitrary order",
            str(path),
        )
        assert str(failure.do).startswith(f"rekord rewrite {path} OUT --compression none")


def test_what_cannot_be_shuffled_is_said_before_it_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord.gz"
    path.write_bytes(gzip.compress(frames([b"abc"] * 9))[:-12])  # counting would meet the cut
    assert str(raised(lambda: rk.open(path, schema=SCHEMA).batches(3, shuffle=True))).startswith(
        "U651: compressed file cannot be read in arbitrary order"
    )


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_compressed_dataset_that_lost_its_index_is_entered_where_rekord_flushed(
    tmp_path: Path, compression: str
) -> None:
    data = written(tmp_path / "data", rows(300, 10_000), compression)
    shard = str(shard_of(data))
    before = shard_index.open_shard_index(shard)
    os.remove(index_path(shard))
    found = shard_index.open_shard_index(shard)
    assert (before.origin, found.origin) == ("written", "found")
    assert found.flush_points == before.flush_points
    assert len(found.flush_points or ()) == 2
    assert rk.open(data)["train"][[299, 0, 150]]["id"].tolist() == [299, 0, 150]


def test_the_index_of_another_compressed_shard_is_not_believed(tmp_path: Path) -> None:
    data = written(tmp_path / "data", rows(300, 10_000), "gzip")
    other = written(tmp_path / "other", rows(300, 10_000, first=7), "gzip")
    shard = shard_of(data)
    os.replace(index_path(str(shard_of(other))), index_path(str(shard)))
    split = rk.open(data)["train"]
    assert [split[i]["id"] for i in range(299, 0, -70)] == [299, 229, 159, 89, 19]
    assert shard_index.open_shard_index(str(shard)).origin == "found"


def test_damage_of_a_compressed_shard_is_what_reading_says(tmp_path: Path) -> None:
    data = written(tmp_path / "data", rows(300, 10_000), "gzip")
    shard = shard_of(data)
    content = bytearray(shard.read_bytes())
    index = shard_index.open_shard_index(str(shard))
    assert index.flush_points is not None
    middle = index.flush_points[0].compressed_offset
    content[middle : middle + 3] = b"\xff" * 3
    shard.write_bytes(content)
    shard_index._index_cache.clear()
    split = rk.open(shard, schema=SCHEMA)
    assert split[0]["id"] == 0
    assert split[299]["id"] == 299
    hurt = int(np.searchsorted(index.offsets, index.flush_points[0].offset)) + 1
    failure = raised(lambda: split[hurt])
    assert isinstance(failure, rk.FormatError)
    assert failure.location.path == str(shard)


# Damage, and files that do not stay as they are.


def test_damage_is_the_error_that_reading_gives_and_hides_no_other_record(tmp_path: Path) -> None:
    data = written(tmp_path / "data", rows(30))
    shard = shard_of(data)
    whole = shard.read_bytes()
    for harm, code in ((corrupt_payload, "F102"), (corrupt_length, "F101")):
        shard.write_bytes(harm(whole, 7))
        shard_index._index_cache.clear()
        split = rk.open(data)["train"]
        assert split[[6, 8, 29]]["id"].tolist() == [6, 8, 29]
        failure = raised(lambda split=split: split[[8, 7]])
        assert (failure.code, failure.location.path, failure.location.record) == (code, str(shard), 7)


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("change", ["shrinks", "grows", "is written again"])
def test_a_file_that_changes_between_two_reads_is_noticed(
    tmp_path: Path, change: str, compression: str | None
) -> None:
    data = written(tmp_path / "data", rows(30), compression)
    shard = shard_of(data)
    split = rk.open(data)["train"]
    assert split[3]["id"] == 3
    if change == "shrinks":
        os.truncate(shard, 30)
    elif change == "grows":
        with shard.open("ab") as file:
            file.write(bytes(100))
    else:
        os.utime(shard, ns=(5, 5))
    failure = raised(lambda: split[4])
    assert isinstance(failure, rk.DatasetError)
    assert (failure.code, failure.location.path) == ("X548", str(shard))
    assert raised(lambda: list(split.batches(4, shuffle=True))).code == "X548"
    os.remove(shard)
    assert raised(lambda: split[4]).code == "X501"


def test_a_foreign_file_that_changes_after_it_was_counted_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames(example_bytes({"id": [i]}) for i in range(50)))
    split = rk.open(path, schema=rk.Schema({"id": rk.Int64()}))
    assert split.records == 50
    path.write_bytes(frames(example_bytes({"id": [i]}) for i in range(40)))
    assert raised(lambda: split[49]).code == "X548"


def test_another_number_of_records_than_the_manifest_says_is_an_error(tmp_path: Path) -> None:
    data = written(tmp_path / "data", rows(30))

    def one_more(manifest: dict[str, Any]) -> None:
        manifest["splits"]["train"]["shards"]["records"] = [31]
        manifest["splits"]["train"]["records"] = 31

    edit_manifest(data, one_more)
    failure = raised(lambda: rk.open(data)["train"][0])
    assert (failure.code, failure.location.path) == ("X516", str(shard_of(data)))
    assert (failure.expected, failure.found) == ("31 records, as listed in rekord.json", "30 records")


# Many shards, threads, processes.


def test_a_thousand_shards_are_read_with_256_open_files(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(1000):
        (folder / f"train-{i:05}-of-01000.tfrecord").write_bytes(
            frames(example_bytes({"id": [2 * i + j]}) for j in range(2))
        )
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "import rekord as rk\n"
        "split = rk.open(sys.argv[1], schema=rk.Schema({'id': rk.Int64()}))['train']\n"
        "assert len(split) == 2000\n"
        "found = [b['id'].tolist() for b in split.batches(1500, shuffle=True, threads=2)]\n"
        "print(len(found[0]), sorted(i for part in found for i in part) == list(range(2000)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1500 True\n", "")


def test_only_so_many_shards_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rekord.dataset import shards as module

    monkeypatch.setattr(module, "MAX_OPEN_FILES", 2)
    for i in range(5):
        (tmp_path / f"{i}.tfrecord").write_bytes(frames([b"%d" % i]))
    shards = Shards([str(tmp_path / f"{i}.tfrecord") for i in range(5)])
    for i in range(5):
        shards.gather(np.array([i], np.int64), _core.Pool(0))
    assert list(shards._open) == [3, 4]
    shards.gather(np.array([3, 0, 1], np.int64), _core.Pool(0))
    assert set(shards._open) == {3, 0, 1}
    shards.close()
    assert not shards._open
    assert shards.gather(np.array([2], np.int64), _core.Pool(0)).size_bytes == 17


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.concurrency
def test_threads_share_a_split(tmp_path: Path, compression: str | None) -> None:
    split = rk.open(written(tmp_path / "data", rows(300, 10_000), compression, shards=3))["train"]
    failures: list[object] = []

    def reads(seed: int) -> None:
        order = np.random.default_rng(seed).permutation(300)
        for part in np.array_split(order, 20):
            found = [int(batch["id"][0]) for i in part.tolist() for batch in [split.select([i])[[0]]]]
            if found != part.tolist():
                failures.append((part, found))

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_shards_pickle_small_and_go_on_elsewhere(tmp_path: Path) -> None:
    data = written(tmp_path / "data", rows(300, 10_000), "gzip", shards=3)
    split = rk.open(data)["train"]
    assert split[299]["id"] == 299
    content = pickle.dumps(split)
    assert len(content) < 4000
    assert pickle.loads(content)[[299, 1]]["id"].tolist() == [299, 1]
    shards = Shards(split.paths)
    assert not shards.counted
    assert shards.counts.tolist() == [100, 100, 100]
    again = pickle.loads(pickle.dumps(shards))
    assert (again.counted, again.counts.tolist(), again.paths) == (True, [100, 100, 100], split.paths)


def test_a_name_that_is_not_utf8_is_read(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"x\xff.tfrecord")
    with open(path, "wb") as file:
        file.write(frames(example_bytes({"id": [i]}) for i in range(5)))
    assert rk.open(os.fsdecode(path))[[4, 0]]["id"].tolist() == [4, 0]


# Folders of TensorFlow Datasets.


def tfds_folder(path: Path, template: str | None = None, **change: Any) -> Path:
    path.mkdir()
    info = build_dataset_info("fruit", "1.0.0", {"train": ([3, 2], 100), "test": ([1], 10)})
    template = template or info["splits"][0]["filepathTemplate"]
    first = 0
    for split in info["splits"]:
        split["filepathTemplate"] = template
        for shard, length in enumerate(split["shardLengths"]):
            shards = len(split["shardLengths"])
            name = template.replace("{DATASET}", "fruit").replace("{SPLIT}", split["name"])
            name = name.replace("{FILEFORMAT}", "tfrecord").replace("{SHARD_INDEX}", f"{shard:05}")
            name = name.replace("{NUM_SHARDS}", f"{shards:05}")
            name = name.replace("{SHARD_X_OF_Y}", f"{shard:05}-of-{shards:05}")
            (path / name).write_bytes(frames(example_bytes({"id": [first + i]}) for i in range(int(length))))
            first += int(length)
    (path / "dataset_info.json").write_text(json.dumps({**info, **change}))
    return path


@pytest.mark.parametrize(
    "template",
    [None, "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}", "{DATASET}.{SPLIT}.{SHARD_INDEX}.of.{NUM_SHARDS}"],
)
def test_a_tfds_folder_is_what_its_files_say(tmp_path: Path, template: str | None) -> None:
    dataset = rk.open(tfds_folder(tmp_path / "fruit", template))
    assert {name: len(split) for name, split in dataset.splits.items()} == {"train": 5, "test": 1}
    assert dataset["train"][[4, 0, 3]]["id"].tolist() == [4, 0, 3]
    assert dataset["test"][0]["id"] == 5


def test_a_tfds_folder_without_a_shard_is_refused_unless_allowed(tmp_path: Path) -> None:
    folder = tfds_folder(tmp_path / "fruit")
    gone = folder / "fruit-train.tfrecord-00000-of-00002"
    gone.unlink()
    failure = raised(lambda: rk.open(folder))
    assert isinstance(failure, rk.DatasetError)
    assert (failure.code, failure.location.path) == ("X505", str(gone))
    dataset = rk.open(folder, allow_missing=True)
    assert dataset["train"][[1, 0]]["id"].tolist() == [4, 3]


def test_another_number_of_records_than_tfds_says_is_an_error(tmp_path: Path) -> None:
    folder = tfds_folder(tmp_path / "fruit")
    short = folder / "fruit-train.tfrecord-00001-of-00002"
    short.write_bytes(frames([example_bytes({"id": [3]})]))
    failure = raised(lambda: rk.open(folder)["train"][3])
    assert (failure.code, failure.location.path) == ("X545", str(short))
    assert failure.expected == "2 records, as listed in dataset_info.json"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fileFormat": "array_record"}, "X549"),
        ({"splits": [{"name": "train", "shardLengths": ["x"]}]}, "X536"),
        ({"splits": [{"name": "train", "shardLengths": ["-1"]}]}, "X536"),
        ({"splits": [{"name": "../train", "shardLengths": ["1"]}]}, "X536"),
        ({"splits": [{"name": "t", "shardLengths": ["1", "1"], "filepathTemplate": "x"}]}, "X536"),
    ],
)
def test_a_dataset_info_that_cannot_be_meant_is_refused(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    folder = tfds_folder(tmp_path / "fruit", **change)
    failure = raised(lambda: rk.open(folder))
    assert (failure.code, failure.location.path) == (code, str(folder / "dataset_info.json"))


def test_a_dataset_info_of_another_library_is_passed_over(tmp_path: Path) -> None:
    folder = tfds_folder(tmp_path / "fruit")
    (folder / "dataset_info.json").write_text('{"builder_name": "parquet", "splits": {"train": {}}}')
    assert set(rk.open(folder).splits) == {"fruit-train", "fruit-test"}
    (folder / "dataset_info.json").write_text("{")
    assert raised(lambda: rk.open(folder)).code == "X536"


@pytest.mark.parametrize(("code", "what"), [("U651", "compressed file cannot be read"), ("X548", "")])
def test_the_example_of_a_page_is_what_is_said(
    code: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program, message = example(code, what)
    assert raised(lambda: exec(program, {"rk": rk})).message == message
