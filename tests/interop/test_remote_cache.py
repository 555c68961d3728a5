"""The disk cache: the second epoch touches the network only for what was evicted, whatever happens to the disk."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_server import Fault, ObjectServer

import rekord as rk
from rekord.storage import cache as cache_module
from rekord.storage.cache import DiskCache, resolve_cache

RECORDS, SHARDS = 400, 8

# The test server sends large bodies at once.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectServer]:
    with ObjectServer() as server, server.environment():
        yield server


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("written") / "ds"
    rows = [{"n": i, "label": i % 3, "data": bytes([i % 256]) * 2000} for i in range(RECORDS)]
    rk.write(rows, out, shards=SHARDS, progress=False, workers=1)
    return out


@pytest.fixture
def server(running: ObjectServer, written: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectServer]:
    running.drop()
    for path in written.rglob("*"):
        if path.is_file():
            running.put(f"ds/{path.relative_to(written).as_posix()}", path.read_bytes())
    running.reset()
    monkeypatch.setattr(cache_module, "_warned", set())
    yield running
    running.reset()


def numbers(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


def shards_in(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*.tfrecord") if path.is_file())


@pytest.mark.parametrize("shuffle", [False, True, "exact"])
def test_the_second_epoch_sends_no_request(server: ObjectServer, tmp_path: Path, shuffle: Any) -> None:
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache")["train"]
    first = numbers(train.batches(32, shuffle=shuffle, seed=1, columns=["n"]))
    server.reset()
    second = numbers(train.batches(32, shuffle=shuffle, seed=1, epoch=1, columns=["n"]))
    assert server.n_requests == 0, server.counts()
    assert sorted(first) == sorted(second) == list(range(RECORDS))
    assert (first == second) is (shuffle is False)


@pytest.mark.parametrize("shuffle", [False, True, "exact"])
def test_the_order_is_that_without_a_cache(server: ObjectServer, tmp_path: Path, shuffle: Any) -> None:
    url = f"{server.bucket}/ds"
    plain, cached = rk.open(url)["train"], rk.open(url, cache=tmp_path / "cache")["train"]
    options: Any = {"shuffle": shuffle, "seed": 3, "columns": ["n"]}
    assert numbers(cached.batches(16, **options)) == numbers(plain.batches(16, **options))


def test_another_process_finds_the_copies(server: ObjectServer, tmp_path: Path) -> None:
    url = f"{server.bucket}/ds"
    numbers(rk.open(url, cache=tmp_path / "cache")["train"].batches(32))
    server.reset()
    program = (
        "import rekord as rk, sys\n"
        "train = rk.open(sys.argv[1], cache=sys.argv[2])['train']\n"
        "print(sum(n for b in train.batches(32, shuffle=True) for n in b['n'].tolist()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, url, str(tmp_path / "cache")], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == sum(range(RECORDS))
    assert server.n_requests <= 5, "opening alone: the manifest"
    assert not [one for one in server.log if one.key.endswith(".tfrecord")]


def test_processes_that_start_together_download_each_shard_once(server: ObjectServer, tmp_path: Path) -> None:
    url = f"{server.bucket}/ds"
    program = (
        "import rekord as rk, sys\n"
        "train = rk.open(sys.argv[1], cache=sys.argv[2])['train']\n"
        "assert sum(len(b['n']) for b in train.batches(32)) == 400\n"
    )
    arguments = [sys.executable, "-c", program, url, str(tmp_path / "cache")]
    processes = [subprocess.Popen(arguments) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    gets = [one.key for one in server.log if one.operation == "get" and one.key.endswith(".tfrecord")]
    assert sorted(gets) == sorted(set(gets))
    assert len(gets) == SHARDS


def test_a_pickled_split_uses_the_same_cache(server: ObjectServer, tmp_path: Path) -> None:
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache")["train"]
    numbers(train.batches(32))
    server.reset()
    again = pickle.loads(pickle.dumps(train))
    assert sorted(numbers(again.batches(32, shuffle=True))) == list(range(RECORDS))
    assert server.n_requests <= 5


def test_the_least_recently_used_shards_are_evicted_and_only_they_are_fetched_again(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_TOUCH_SECONDS", 0.0)
    cache = tmp_path / "cache"
    size = max(path.stat().st_size for path in (server_shards(server)))
    train = rk.open(f"{server.bucket}/ds", cache=cache, cache_size=int(5.5 * size), cache_ahead=0)["train"]
    for record in range(0, RECORDS, RECORDS // SHARDS):
        assert train[record]["n"] == record
        assert sum(path.stat().st_size for path in shards_in(cache)) <= 5.5 * size
    kept = {path.name for path in shards_in(cache)}
    assert "train-00007-of-00008.tfrecord" in kept
    assert "train-00000-of-00008.tfrecord" not in kept
    again = rk.open(f"{server.bucket}/ds", cache=cache, cache_size=int(5.5 * size), cache_ahead=0)["train"]
    server.reset()
    assert again[RECORDS - 1]["n"] == RECORDS - 1
    assert not [one for one in server.log if one.key.endswith(".tfrecord")]
    assert again[0]["n"] == 0
    assert [one.key for one in server.log if one.key.endswith(".tfrecord")] == ["ds/train-00000-of-00008.tfrecord"]


def server_shards(server: ObjectServer) -> list[Any]:
    class Size:
        def __init__(self, size: int) -> None:
            self.st_size = size

        def stat(self) -> Size:
            return self

    return [Size(len(one.data)) for key, one in server.objects.items() if key.endswith(".tfrecord")]


def test_an_evicted_shard_is_read_on_by_who_has_it_open(server: ObjectServer, tmp_path: Path) -> None:
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache")["train"]
    assert train[[0, 399]]["n"].tolist() == [0, 399]
    for path in shards_in(tmp_path / "cache"):
        path.unlink()
    assert train[[1, 398, 200]]["n"].tolist() == [1, 398, 200]
    assert numbers(train.batches(64)) == list(range(RECORDS))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_is_one_warning_and_reading_continues(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cache_module, "_download", fail)
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache")["train"]
    with pytest.warns(RuntimeWarning, match="without the disk cache"):
        in_order = numbers(train.batches(32))
    # A second warning would be an error.
    shuffled = numbers(train.batches(32, shuffle=True))
    assert in_order == sorted(shuffled) == list(range(RECORDS))
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_shard_larger_than_the_cache_is_read_without_it(server: ObjectServer, tmp_path: Path) -> None:
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache", cache_size=1000)["train"]
    with pytest.warns(RuntimeWarning, match="more than the cache may have"):
        found = numbers(train.batches(32))
    assert found == list(range(RECORDS))


def test_a_shard_that_is_not_the_one_in_the_manifest_is_never_cached(server: ObjectServer, tmp_path: Path) -> None:
    key = "ds/train-00003-of-00008.tfrecord"
    data = bytearray(server.get(key))
    data[500] ^= 1
    server.put(key, bytes(data))
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache", cache_ahead=0)["train"]
    with pytest.raises(rk.DatasetError) as caught:
        numbers(train.batches(32))
    assert (caught.value.code, caught.value.location.path) == ("X548", f"{server.bucket}/{key}")
    assert not [path for path in (tmp_path / "cache").rglob("train-00003*") if path.suffix == ".tfrecord"]


def test_a_download_that_was_interrupted_is_resumed(server: ObjectServer, tmp_path: Path) -> None:
    name, url = "files/x/blob.bin", f"{server.bucket}/blob.bin"
    data = os.urandom(40 << 20)
    server.put("blob.bin", data)
    cache = DiskCache(str(tmp_path / "cache"))
    server.inject(Fault("denied", operation="get", key="blob.bin", skip=4))
    with pytest.raises(rk.DatasetError):
        cache.fetch(name, url, size_bytes=len(data))
    part = tmp_path / "cache" / "files" / "x" / "blob.bin.part"
    assert part.stat().st_size == 32 << 20
    server.reset()
    path = cache.fetch(name, url, size_bytes=len(data))
    assert path is not None
    assert Path(path).read_bytes() == data
    assert [one.range for one in server.log] == [f"bytes={32 << 20}-{(40 << 20) - 1}"]


def test_a_damaged_rest_of_an_interrupted_download_is_not_used(server: ObjectServer, tmp_path: Path) -> None:
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache", cache_ahead=0)["train"]
    assert train[0]["n"] == 0
    (copy,) = shards_in(tmp_path / "cache")
    data = copy.read_bytes()
    Path(f"{copy}.part").write_bytes(b"x" * 700)
    copy.unlink()
    again = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache", cache_ahead=0)["train"]
    assert again[1]["n"] == 1
    assert copy.read_bytes() == data


def test_a_process_that_dies_while_it_downloads_leaves_no_file_and_no_lock(
    server: ObjectServer, tmp_path: Path
) -> None:
    program = (
        "import os, rekord as rk, sys\n"
        "from rekord.storage import cache\n"
        "whole = os.replace\n"
        "def die(*paths):\n"
        "    if paths[1].endswith('.tfrecord'): os._exit(9)\n"
        "    whole(*paths)\n"
        "os.replace = die\n"
        "rk.open(sys.argv[1], cache=sys.argv[2])['train'][0]\n"
    )
    url, cache = f"{server.bucket}/ds", str(tmp_path / "cache")
    assert subprocess.run([sys.executable, "-c", program, url, cache], check=False).returncode == 9
    assert not shards_in(tmp_path / "cache")
    assert rk.open(url, cache=cache)["train"][0]["n"] == 0


def test_a_tenth_of_all_requests_may_fail(server: ObjectServer, tmp_path: Path) -> None:
    server.inject(Fault("503", share=0.1), Fault("cut", operation="get", share=0.1))
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache")["train"]
    assert sorted(numbers(train.batches(32, shuffle=True))) == list(range(RECORDS))


def test_shards_are_copied_before_they_are_needed(server: ObjectServer, tmp_path: Path) -> None:
    train = rk.open(f"{server.bucket}/ds", cache=tmp_path / "cache", cache_ahead=3)["train"]
    arrived = threading.Event()
    keys: set[str] = set()

    def note() -> None:
        keys.update(one.key for one in server.log if one.key.endswith(".tfrecord"))
        if len(keys) >= 3:
            arrived.set()

    server.inject(Fault("slow", operation="get", seconds=0.0, hook=note))
    batches = iter(train.batches(10, threads=1, prefetch=0))
    assert next(batches)["n"].tolist() == list(range(10))
    assert arrived.wait(30), keys


def test_the_cache_is_off_unless_it_is_asked_for(
    server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "named"))
    monkeypatch.delenv("REKORD_CACHE_SIZE", raising=False)
    assert resolve_cache(None) is None
    assert resolve_cache(False) is None
    assert resolve_cache(True) == DiskCache(str(tmp_path / "named"))
    monkeypatch.setenv("REKORD_CACHE_SIZE", "2GB")
    assert resolve_cache(None) == DiskCache(str(tmp_path / "named"), 2_000_000_000)
    assert resolve_cache(False) is None
    assert resolve_cache(tmp_path, "1GB", 5) == DiskCache(str(tmp_path), 1_000_000_000, 5)
    for wrong in (1, b"x", 0.5):
        with pytest.raises(rk.UsageError) as caught:
            resolve_cache(wrong)
        assert caught.value.code == "U605"


def test_local_datasets_are_not_copied(written: Path, tmp_path: Path) -> None:
    assert numbers(rk.open(written, cache=tmp_path / "cache")["train"].batches(64)) == list(range(RECORDS))
    assert not (tmp_path / "cache").exists()


def test_shards_without_a_manifest_are_cached_by_their_etag(server: ObjectServer, tmp_path: Path) -> None:
    for key in [key for key in server.objects if not key.endswith(".tfrecord")]:
        server.drop(key)
    url, schema = f"{server.bucket}/ds", rk.Schema({"n": rk.Int64()})
    assert numbers(rk.open(url, schema, cache=tmp_path / "cache")["train"].batches(32)) == list(range(RECORDS))
    server.reset()
    train = rk.open(url, schema, cache=tmp_path / "cache")["train"]
    assert sorted(numbers(train.batches(32))) == list(range(RECORDS))
    assert not [one for one in server.log if one.operation == "get" and one.key.endswith(".tfrecord")]
