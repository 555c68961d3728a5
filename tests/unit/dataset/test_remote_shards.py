"""Reading elsewhere with few requests: what is asked for, how often, and what is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import rekord as rk
from rekord.dataset import shard_index, shards
from rekord.dataset.index import BLOCK_BYTES, index_path
from rekord.dataset.readers import remote
from rekord.dataset.readers.remote import FetchedRangeCache, RemoteShard, fetch_records
from rekord.dataset.shard_index import ShardIndex
from rekord.storage import read_ahead
from rekord.storage.read_ahead import FIRST_BYTES, ReadAhead
from rekord.storage.router import REMOTE, ROUTED_STORAGE, map_concurrently
from rekord.testing import corrupt_payload, frame_offsets, frames

SCHEMA = rk.Schema({"n": rk.Int64(), "label": rk.Label(3), "blob": rk.Bytes()})
ROWS = 400


class Place(MemoryFileSystem):
    """A place that writes down what it is asked for."""

    protocol = "counted"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    asked: ClassVar[list[tuple[str, int, int]]] = []
    looked: ClassVar[list[str]] = []

    def cat_file(self, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        self.asked.append((path.rpartition("/")[2], start, end))
        return bytes(super().cat_file(path, start, end, **options))

    def info(self, path: str, **options: Any) -> Any:
        self.looked.append(path.rpartition("/")[2])
        return super().info(path, **options)

    @classmethod
    def forget(cls) -> None:
        cls.asked.clear()
        cls.looked.clear()


@pytest.fixture
def place() -> Iterator[type[Place]]:
    """An empty place under `counted://`."""
    fsspec.register_implementation("counted", Place, clobber=True)
    Place.store.clear()
    Place.pseudo_dirs[:] = [""]
    Place.forget()
    yield Place
    Place.store.clear()


def put(url: str, data: bytes) -> None:
    fsspec.filesystem("counted").pipe_file(url, data)


@pytest.fixture
def dataset(place: type[Place], tmp_path: Path) -> tuple[rk.dataset.split.Split, rk.dataset.split.Split]:
    """The same split elsewhere and here: 4 shards of about 1 MB."""
    folder = tmp_path / "ds"
    rows = ({"n": i, "label": i % 3, "blob": bytes([i % 256]) * 10_000} for i in range(ROWS))
    rk.write(rows, folder, schema=SCHEMA, shards=4, progress=False)
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"counted://ds/{path.relative_to(folder)}", path.read_bytes())
    there, here = rk.open("counted://ds")["train"], rk.open(folder)["train"]
    place.forget()
    return there, here


def numbers(batches: Any) -> list[int]:
    return [n for batch in batches for n in batch["n"].tolist()]


def of_shards(asked: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """What was asked for of shards behind their heads, which are looked at for compression."""
    return [one for one in asked if one[0].endswith(".tfrecord") and one[1:] != (0, FIRST_BYTES)]


# From front to end.


def ahead(size_bytes: int) -> tuple[ReadAhead, bytes, list[tuple[int, int]]]:
    data = bytes(range(251)) * (size_bytes // 251 + 1)
    asked: list[tuple[int, int]] = []

    def get(begin: int, end: int) -> bytes:
        asked.append((begin, end))
        return data[begin:end]

    return ReadAhead("far://x", size_bytes, get), data[:size_bytes], asked


def read(file: ReadAhead, size_bytes: int) -> bytes:
    buffer = bytearray(size_bytes)
    return bytes(buffer[: file.readinto(buffer)])


def test_a_look_at_the_head_costs_one_small_request() -> None:
    file, data, asked = ahead(30 << 20)
    with file:
        assert read(file, 100) + read(file, 100) == data[:200]
    assert asked == [(0, FIRST_BYTES)]


def test_a_file_is_read_in_blocks_each_asked_for_once() -> None:
    file, data, asked = ahead(30_000_000)
    got = bytearray()
    with file:
        while piece := read(file, 1 << 20):
            got += piece
    assert bytes(got) == data
    borders = [0, 1 << 20, *range((1 << 20) + BLOCK_BYTES, 30_000_000, BLOCK_BYTES), 30_000_000]
    assert sorted(asked) == list(pairwise(borders))


@pytest.mark.concurrency
def test_the_next_blocks_are_on_their_way_while_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FIRST_BYTES", 10)
    monkeypatch.setattr(read_ahead, "BLOCK_BYTES", 100)
    arrived = {begin: threading.Event() for begin in (0, 10, 110, 210, 310, 410)}

    def get(begin: int, end: int) -> bytes:
        arrived[begin].set()
        return bytes(end - begin)

    with ReadAhead("far://x", 500, get) as file:
        assert len(read(file, 10)) == 10
        assert not arrived[10].is_set()  # who reads only the head asks for no more
        assert len(read(file, 10)) == 10
        assert arrived[110].wait(10)
        assert arrived[210].wait(10)  # nobody has read beyond byte 20
        assert not arrived[310].is_set()


def test_reading_elsewhere_in_a_file_fetches_what_is_asked_for() -> None:
    file, data, asked = ahead(30 << 20)
    with file:
        file.seek(20 << 20)
        assert read(file, 1000) == data[20 << 20 : (20 << 20) + 1000]
        file.seek(5)
        assert read(file, 400_000) == data[5:400_005]
        file.seek(6)
        assert read(file, 3) == data[6:9]
        file.seek(30 << 20)
        assert read(file, 3) == b""
    assert asked == [(20 << 20, (20 << 20) + FIRST_BYTES), (5, 400_005)]


def test_a_request_that_fails_can_be_made_again() -> None:
    answers = [rk.DatasetError("X555", "gone"), b"abc"]

    def get(begin: int, end: int) -> bytes:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with ReadAhead("far://x", 3, get) as file:
        with pytest.raises(rk.DatasetError) as caught:
            read(file, 3)
        assert caught.value.code == "X555"
        assert read(file, 3) == b"abc"


# Ranges and blocks.


def test_records_of_all_shards_come_with_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {
        "far://a": frames(bytes([i]) * 50_000 for i in range(40)),
        "far://b": frames(bytes(100_000) for _ in range(9)),
    }
    asked: list[list[tuple[str, int, int]]] = []

    class Places:
        def ranges(self, wanted: list[tuple[str, int, int]], *, versions: dict[str, int]) -> list[bytes]:
            assert versions == {path: 0 for path, _, _ in wanted}
            asked.append(wanted)
            return [contents[path][begin:end] for path, begin, end in wanted]

    monkeypatch.setattr(remote, "REMOTE", Places())
    a, b = (
        RemoteShard(path, ShardIndex(np.array(frame_offsets(data), np.uint32), stamp=(len(data), 0, (0, 0))))
        for path, data in contents.items()
    )
    found_a, found_b = fetch_records(
        [(a, np.array([6, 1, 2, 6], np.int64)), (b, np.array([1], np.int64))],
        FetchedRangeCache(),
        in_blocks=False,
    )
    assert asked == [
        [("far://a", 50_016, 150_048), ("far://a", 300_096, 350_112), ("far://b", 100_016, 200_032)],
    ]
    files, which, number = found_a
    assert (which.tolist(), number.tolist()) == ([1, 0, 0, 1], [0, 0, 1, 0])
    assert [file[0] for file in files] == [
        frames([b"\x01" * 50_000, b"\x02" * 50_000]),
        frames([b"\x06" * 50_000]),
    ]
    assert files[0][1].tolist() == [0, 50_016]
    assert (found_b[1].tolist(), found_b[2].tolist()) == ([0], [0])


def test_any_records_come_right_whatever_is_kept(dataset: Any) -> None:
    there, here = dataset
    draw = np.random.default_rng(5)
    for count in (1, 3, 50, 400):
        wanted = draw.integers(0, ROWS, count)
        for column in ("n", "blob"):
            assert list(there[wanted][column]) == list(here[wanted][column])
    for shuffle in ("exact", "block"):
        arguments = {"shuffle": shuffle, "seed": 4}
        assert numbers(there.batches(7, **arguments)) == numbers(here.batches(7, **arguments))


def test_one_record_costs_its_own_bytes(dataset: Any, place: type[Place]) -> None:
    there, _ = dataset
    there[250]
    place.forget()
    assert there[251]["n"] == 251
    ((name, begin, end),) = place.asked
    assert (name, end - begin < 11_000, place.looked) == ("train-00002-of-00004.tfrecord", True, [])


def test_a_block_is_fetched_once_in_a_block_wise_epoch(
    dataset: Any, place: type[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, _ = dataset
    there.view.block_records = 30  # about 300 kB
    assert sorted(numbers(there.batches(16, shuffle=True, seed=2))) == list(range(ROWS))
    asked = of_shards(place.asked)
    assert len(asked) == len(set(asked))
    # Blocks are those of the order, cut where a shard ends; together they are all bytes, once.
    assert len(asked) == len({*range(0, ROWS, 30), 100, 200, 300})
    assert sum(end - begin for _, begin, end in asked) == sum(
        ROUTED_STORAGE.stat(path).size_bytes for path in there.paths
    )


def test_a_small_dataset_is_fetched_once_in_an_exact_epoch(dataset: Any, place: type[Place]) -> None:
    there, here = dataset
    wanted = numbers(here.batches(16, shuffle="exact", seed=2))
    assert numbers(there.batches(16, shuffle="exact", seed=2)) == wanted
    asked = of_shards(place.asked)
    assert len(asked) == len(set(asked)) == 4


def test_records_all_over_a_large_dataset_do_not_bring_whole_blocks(
    dataset: Any, place: type[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1 << 20)
    monkeypatch.setattr(shards, "FetchedRangeCache", lambda: FetchedRangeCache(1 << 20))
    view = rk.open("counted://ds")["train"].select(range(0, ROWS, 10))
    place.forget()
    assert sorted(numbers(view.batches(8, shuffle=True, seed=2))) == list(range(0, ROWS, 10))
    wanted_bytes = 40 * 10_100
    assert sum(end - begin for _, begin, end in of_shards(place.asked)) < 2 * wanted_bytes


def test_what_is_kept_is_bounded() -> None:
    pieces = FetchedRangeCache(most_bytes=250)

    def bring(keys: Any) -> Any:
        return [remote.FetchedRange(key[2], bytes(100), np.zeros(1, np.uint32)) for key in keys]

    keys = [("far://x", 0, first, first + 1) for first in range(4)]
    found = pieces.get(keys, bring)
    assert sorted(found) == keys
    assert (pieces.cached_bytes, [pieces.has(key) for key in keys]) == (200, [False, False, True, True])
    pieces.clear()
    assert (pieces.cached_bytes, pieces.has(keys[3])) == (0, False)


@pytest.mark.concurrency
def test_two_threads_that_want_one_block_ask_once() -> None:
    pieces = FetchedRangeCache()
    key = ("far://x", 0, 0, 1)
    begun, go_on = threading.Event(), threading.Event()
    fetches = []

    def bring(keys: Any) -> Any:
        fetches.append(keys)
        begun.set()
        assert go_on.wait(10)
        return [remote.FetchedRange(0, b"block", np.zeros(1, np.uint32))]

    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(pieces.get([key], bring))) for _ in range(2)]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(fetches) == 1
    assert [found[key].data for found in results] == [b"block", b"block"]


def test_a_block_that_did_not_come_is_asked_for_again() -> None:
    pieces = FetchedRangeCache()
    key = ("far://x", 0, 0, 1)

    def fails(keys: Any) -> Any:
        raise rk.DatasetError("X555", "gone")

    with pytest.raises(rk.DatasetError):
        pieces.get([key], fails)
    piece = remote.FetchedRange(0, b"block", np.zeros(1, np.uint32))
    assert pieces.get([key], lambda keys: [piece]) == {key: piece}


def test_no_block_is_longer_than_bytes_allow_whatever_a_manifest_says() -> None:
    offsets = np.arange(0, 10 * BLOCK_BYTES, 1 << 20, dtype=np.uint64)
    shard = RemoteShard("far://x", ShardIndex(offsets, stamp=(10 * BLOCK_BYTES, 0, (0, 0))), block_records=10**15)
    firsts, ends = shard.blocks(np.arange(len(offsets), dtype=np.int64))
    assert int((ends - firsts).max()) == 8


# Indexes.


def test_an_index_elsewhere_is_fetched_once_and_then_taken_from_the_cache(
    dataset: Any, place: type[Place], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    there, _ = dataset
    assert numbers([there[[0, 399]]]) == [0, 399]
    assert sorted(name for name, _, _ in place.asked if name.endswith(".arrow")) == [
        "train-00000-of-00004.tfrecord.arrow",
        "train-00003-of-00004.tfrecord.arrow",
    ]
    place.forget()
    shard_index._index_cache.clear()  # as in the next process
    again = rk.open("counted://ds")["train"]
    assert numbers([again[[0, 399]]]) == [0, 399]
    assert [name for name, _, _ in place.asked if name.endswith(".arrow")] == []
    assert again.class_weights("label") == pytest.approx({0: ROWS / (3 * 134), 1: ROWS / 399, 2: ROWS / 399})


def test_a_file_without_an_index_is_looked_through_once(
    place: type[Place], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    data = frames(rk.encode({"n": i, "label": 0, "blob": b"x" * 5_000}, SCHEMA) for i in range(300))
    put("counted://x.tfrecord", data)
    split = rk.open("counted://x.tfrecord", schema=SCHEMA)
    place.forget()
    assert split.records == 300
    assert max(end for _, _, end in place.asked) == len(data)
    place.forget()
    shard_index._index_cache.clear()
    assert rk.open("counted://x.tfrecord", schema=SCHEMA)[299]["n"] == 299
    assert sum(end - begin for name, begin, end in place.asked) < FIRST_BYTES * 3


def test_an_index_that_cannot_be_kept_is_used_all_the_same(
    dataset: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "file"))
    shard_index._index_cache.clear()
    assert dataset[0][7]["n"] == 7


def test_a_damaged_index_elsewhere_is_not_believed(dataset: Any, place: type[Place]) -> None:
    there, _ = dataset
    put(index_path(there.paths[0]), b"no index")
    assert numbers([there[[0, 5, 99]]]) == [0, 5, 99]


# Shards.


def test_files_here_and_elsewhere_are_read_together(dataset: Any) -> None:
    there, here = dataset
    both = rk.concat([here, there])
    wanted = [3, 700, 399, 400, 3]
    assert numbers([both[wanted]]) == [3, 300, 399, 0, 3]
    assert sorted(numbers(both.batches(50, shuffle=True))) == sorted([*range(ROWS)] * 2)


def test_compressed_shards_elsewhere_are_entered_at_their_flush_points(place: type[Place], tmp_path: Path) -> None:
    rows = [{"n": i, "label": 0, "blob": np.random.default_rng(i).bytes(9_000)} for i in range(500)]
    rk.write(rows, tmp_path / "z", schema=SCHEMA, compression="gzip", shards=1, progress=False)
    for path in (tmp_path / "z").rglob("*"):
        if path.is_file():
            put(f"counted://z/{path.relative_to(tmp_path / 'z')}", path.read_bytes())
    split = rk.open("counted://z")["train"]
    assert numbers([split[[499, 0]]]) == [499, 0]
    assert sorted(numbers(split.batches(64, shuffle=True))) == list(range(500))
    assert split[480]["blob"] == rows[480]["blob"]


def test_a_file_that_changed_elsewhere_is_noticed_after_a_while(
    dataset: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, _ = dataset
    assert there[5]["n"] == 5
    put(there.paths[0], frames([rk.encode({"n": 1, "label": 0, "blob": b""}, SCHEMA)]))
    monkeypatch.setattr(shards, "RECHECK_SECONDS", 0.0)
    with pytest.raises(rk.DatasetError) as caught:
        there[5]
    assert (caught.value.code, caught.value.location.path) == ("X548", there.paths[0])


def test_a_damaged_record_elsewhere_is_named(dataset: Any, place: type[Place]) -> None:
    there, _ = dataset
    data = fsspec.filesystem("counted").cat_file(there.paths[1])
    put(there.paths[1], corrupt_payload(data, 4))
    with pytest.raises(rk.FrameError) as caught:
        rk.open("counted://ds")["train"][[3, 104]]
    where = caught.value.location
    assert (caught.value.code, where.path, where.record) == ("F102", there.paths[1], 4)


def test_a_file_that_is_cut_off_elsewhere_is_refused(dataset: Any) -> None:
    there, _ = dataset
    data = fsspec.filesystem("counted").cat_file(there.paths[1])
    put(there.paths[1], data[:-10])
    with pytest.raises(rk.DatasetError) as caught:
        rk.open("counted://ds")
    assert (caught.value.code, caught.value.location.path) == ("X516", there.paths[1])


# Places.


def test_ranges_of_several_places_are_fetched_together(place: type[Place]) -> None:
    put("counted://a", b"0123456789")
    fsspec.filesystem("memory").pipe_file("/rekord-test/b", b"abcdefghij")
    try:
        wanted = [("counted://a", 2, 4), ("memory://rekord-test/b", 0, 3), ("counted://a", 9, 10)]
        assert REMOTE.ranges(wanted) == [b"23", b"abc", b"9"]
    finally:
        fsspec.filesystem("memory").rm("/rekord-test", recursive=True)
    assert REMOTE.ranges([]) == []


def test_a_place_that_gives_fewer_bytes_than_it_should_is_refused(
    place: type[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    put("counted://x.tfrecord", frames([b"payload"]))
    monkeypatch.setattr(Place, "cat_file", lambda self, path, start, end: b"short")
    with pytest.raises(rk.DatasetError) as caught:
        list(rk.records("counted://x.tfrecord"))
    assert (caught.value.code, caught.value.location.path) == ("X557", "counted://x.tfrecord")
    assert (caught.value.expected, caught.value.found) == ("23 bytes from byte 0 on", "5 bytes")


def test_a_place_that_does_not_tell_sizes_is_refused(place: type[Place], monkeypatch: pytest.MonkeyPatch) -> None:
    put("counted://x.tfrecord", frames([b"payload"]))
    monkeypatch.setattr(Place, "info", lambda self, path: {"name": path, "type": "file", "size": None})
    with pytest.raises(rk.DatasetError) as caught:
        list(rk.records("counted://x.tfrecord"))
    assert caught.value.code == "X557"


def test_a_folder_elsewhere_is_no_file(place: type[Place]) -> None:
    put("counted://folder/x", b"x")
    with pytest.raises(rk.DatasetError) as caught:
        ROUTED_STORAGE.open_read("counted://folder")
    assert (caught.value.code, caught.value.found) == ("X503", "a folder")


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (FileNotFoundError("x"), "X501"),
        (PermissionError("no"), "X556"),
        (OSError(5, "input/output error"), "X555"),
        (TimeoutError(), "X555"),
        (type("NoCredentialsError", (Exception,), {})("who?"), "X566"),
        (type("ClientPayloadError", (Exception,), {})("half"), "X557"),
        (type("ClientResponseError", (Exception,), {"status": 403})("no"), "X556"),
        (KeyError("size"), "X555"),
    ],
)
def test_whatever_a_package_raises_is_said_with_the_address(
    place: type[Place], monkeypatch: pytest.MonkeyPatch, failure: Exception, code: str
) -> None:
    def fails(self: Place, path: str) -> Any:
        raise failure

    monkeypatch.setattr(Place, "info", fails)
    with pytest.raises(rk.DatasetError) as caught:
        ROUTED_STORAGE.stat("counted://x")
    assert (caught.value.code, caught.value.location.path) == (code, "counted://x")
    assert caught.value.do


def test_the_name_that_was_meant_is_told_elsewhere_too(place: type[Place]) -> None:
    put("counted://data/train.tfrecord", frames([b"x"]))
    with pytest.raises(rk.DatasetError) as caught:
        list(rk.records("counted://data/trian.tfrecord"))
    assert (caught.value.code, caught.value.do) == ("X501", "use counted://data/train.tfrecord")


@pytest.mark.parametrize("write", [rk.Writer, lambda path, schema: rk.write([], path, schema=schema)])
def test_nothing_is_written_elsewhere(place: type[Place], write: Any) -> None:
    with pytest.raises(rk.DatasetError) as caught:
        write("counted://out", SCHEMA)
    assert (caught.value.code, caught.value.location.path) == ("X504", "counted://out")
    assert place.store == {}


@pytest.mark.concurrency
def test_things_are_asked_side_by_side_and_given_in_order() -> None:
    together = threading.Barrier(4)

    def ask(number: int) -> int:
        together.wait(10)
        return number * number

    assert map_concurrently(ask, [3, 1, 4, 2], remote=True) == [9, 1, 16, 4]
    assert map_concurrently(abs, [-1, 2], remote=False) == [1, 2]
