"""Where the records of a shard begin: index files believed where they fit, and found out otherwise."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.dataset import shard_index
from rekord.dataset.index import IndexExpectation, encode_offsets_file, index_path, open_index_file
from rekord.dataset.shard_index import clean_cache, read_cached_index, write_cached_index
from rekord.storage.cache import cache_folder
from rekord.testing import corrupt_length, corrupt_payload, example_bytes, frame_offsets, frames

PAYLOADS = [example_bytes({"label": [i], "text": [b"row" * (i % 5)]}) for i in range(40)]
DATA = frames(PAYLOADS)
OFFSETS = frame_offsets(DATA)
SCHEMA = rk.Schema({"label": rk.Int64(), "blob": rk.Bytes()})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and nothing remembered."""
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    shard_index._index_cache.clear()
    return tmp_path / "cache" / "index"


@pytest.fixture
def small_files_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_index, "MIN_CACHED_FILE_BYTES", 0)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(DATA)
    return str(path)


def anew(path: str, records: int | None = None) -> shard_index.ShardIndex:
    """As a new process sees it."""
    shard_index._index_cache.clear()
    return shard_index.open_shard_index(path, records)


def test_the_headers_of_a_file_tell_its_offsets(file: str, cache: Path) -> None:
    found = anew(file)
    assert found.offsets.tolist() == OFFSETS
    assert (found.offsets.dtype, found.origin, found.compression) == (np.uint32, "found", "none")
    assert not cache.exists()  # so short a file is not worth an entry


def test_a_file_without_records_has_none(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(b"")
    assert len(anew(str(tmp_path / "x.tfrecord")).offsets) == 0


@pytest.mark.parametrize("pack", [lambda data: gzip.compress(data, mtime=0), zlib.compress])
def test_a_compressed_file_is_counted_by_reading_it_once(
    file: str, pack: Callable[[bytes], bytes], small_files_too: None
) -> None:
    Path(file).write_bytes(pack(DATA))
    assert anew(file).offsets.tolist() == OFFSETS
    again = anew(file)
    assert (again.origin, again.flush_points) == ("cached", None)
    assert again.offsets.tolist() == OFFSETS
    assert again.compression in ("gzip", "zlib")


def test_an_index_is_kept_and_holds_for_one_size_and_time(file: str, cache: Path, small_files_too: None) -> None:
    assert anew(file).origin == "found"
    assert len(list(cache.iterdir())) == 1
    assert anew(file).origin == "cached"
    assert sorted(os.listdir(os.path.dirname(file))) == ["cache", "x.tfrecord"]
    Path(file).write_bytes(frames(PAYLOADS[:7]))
    changed = anew(file)
    assert (changed.origin, changed.offsets.tolist()) == ("found", OFFSETS[:7])
    assert len(list(cache.iterdir())) == 1  # in place of the old one
    os.utime(file, ns=(1, 1))
    assert anew(file).origin == "found"


@pytest.mark.parametrize(
    "damage", [lambda data: data[:100], lambda data: data[:-400], lambda data: b"", lambda data: b"x" * 900]
)
def test_a_damaged_entry_is_made_again(
    file: str, cache: Path, damage: Callable[[bytes], bytes], small_files_too: None
) -> None:
    anew(file)
    (entry,) = cache.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert (anew(file).origin, anew(file).origin) == ("found", "cached")
    assert anew(file).offsets.tolist() == OFFSETS


def test_no_bit_of_an_entry_can_turn_into_other_offsets(file: str, cache: Path, small_files_too: None) -> None:
    anew(file)
    (entry,) = cache.iterdir()
    good = entry.read_bytes()
    for at in range(0, len(good), 7):
        entry.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        found = open_index_file(str(entry), IndexExpectation(most_bytes=len(DATA)))
        assert found is None or not found.is_intact() or found.offsets(0).tolist() == OFFSETS
        entry.unlink()
    assert anew(file).offsets.tolist() == OFFSETS


def test_a_cache_that_cannot_be_written_is_no_error(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_files_too: None
) -> None:
    (tmp_path / "taken").write_bytes(b"a file")
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "taken"))
    assert anew(file).offsets.tolist() == OFFSETS
    assert anew(file).origin == "found"


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == str(tmp_path / "cache" / "index")
    monkeypatch.delenv("REKORD_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder() == "/somewhere/rekord/index"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/of-a-user")
    assert cache_folder() == "/home/of-a-user/.cache/rekord/index"


def test_old_entries_go_when_there_are_too_many(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = np.array(OFFSETS, np.uint32)
    for i in range(6):
        write_cached_index(f"/data/{i}.tfrecord", len(DATA), i, offsets, "none")
    entries = {i: shard_index._entry_path(f"/data/{i}.tfrecord") for i in range(6)}
    for i, entry in entries.items():
        os.utime(str(entry), (1000 + i, 1000 + i))
    assert (
        read_cached_index("/data/0.tfrecord", len(DATA), 0, IndexExpectation(most_bytes=len(DATA))) is not None
    )  # used again, and so the youngest
    (cache / "x.unfinished").write_bytes(b"")
    os.utime(cache / "x.unfinished", (0, 0))
    monkeypatch.setattr(shard_index, "MAX_CACHE_ENTRIES", 3)
    clean_cache(str(cache))
    assert [i for i, entry in entries.items() if os.path.exists(str(entry))] == [0, 5]
    assert not (cache / "x.unfinished").exists()
    monkeypatch.setattr(shard_index, "MAX_CACHE_BYTES", 0)
    clean_cache(str(cache), spare=str(entries[5]))
    assert [i for i, entry in entries.items() if os.path.exists(str(entry))] == [5]


def _many_times(file: str, folder: str, failures: Any) -> None:
    os.environ["REKORD_CACHE"] = folder
    shard_index.MIN_CACHED_FILE_BYTES = 0
    for _ in range(50):
        if anew(file).offsets.tolist() != OFFSETS:
            failures.put(1)


@pytest.mark.slow
@pytest.mark.concurrency
def test_several_processes_share_the_cache(file: str, tmp_path: Path) -> None:
    context = get_context("spawn")
    failures = context.Queue()
    others = [context.Process(target=_many_times, args=(file, str(tmp_path / "cache"), failures)) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert [other.exitcode for other in others] == [0, 0]
    assert failures.empty()
    assert [name for name in os.listdir(tmp_path / "cache" / "index") if not name.endswith(".arrow")] == []


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(("harm", "code"), [(corrupt_length, "F101"), (lambda data, _: data[:-3], "F104")])
def test_damage_is_what_reading_says(
    tmp_path: Path, long: bool, harm: Callable[[bytes, int], bytes], code: str
) -> None:
    payloads = [bytes(70_000) for _ in range(30)] if long else PAYLOADS[:30]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(harm(frames(payloads), 25))
    with pytest.raises(rk.FormatError) as reading:
        list(rk.records(path))
    with pytest.raises(rk.FormatError) as indexing:
        anew(str(path))
    assert (indexing.value.code, indexing.value.message) == (code, reading.value.message)


def test_long_records_are_found_without_reading_them(tmp_path: Path) -> None:
    data = frames([bytes(70_000 + i) for i in range(40)])
    path = tmp_path / "x.tfrecord"
    path.write_bytes(data)
    assert anew(str(path)).offsets.tolist() == frame_offsets(data)


def test_a_damaged_payload_does_not_hide_the_others(file: str) -> None:
    Path(file).write_bytes(corrupt_payload(DATA, 3))
    assert anew(file).offsets.tolist() == OFFSETS


def test_what_is_no_file_has_no_index(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(rk.DatasetError) as caught:
        anew(str(tmp_path / "pipe"))
    assert (caught.value.code, caught.value.location.path) == ("X503", str(tmp_path / "pipe"))
    with pytest.raises(rk.DatasetError) as caught:
        anew(str(tmp_path / "nothing"))
    assert caught.value.code == "X501"


# The index that a dataset brings with it.


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    rows = [{"label": i, "blob": bytes(i % 50)} for i in range(100)]
    rk.write(rows, tmp_path / "data", schema=SCHEMA, progress=False)
    return tmp_path / "data"


def shard_of(dataset: Path) -> str:
    return str(dataset / "train-00000-of-00001.tfrecord")


def test_a_dataset_brings_its_index(dataset: Path) -> None:
    found = anew(shard_of(dataset))
    assert found.origin == "written"
    assert found.offsets.tolist() == frame_offsets(Path(shard_of(dataset)).read_bytes())
    assert found.has_columns(())


@pytest.mark.parametrize("harm", [lambda data: b"", lambda data: data[:200], lambda data: data[:-20] + bytes(20)])
def test_a_damaged_index_is_found_out_again(dataset: Path, harm: Callable[[bytes], bytes]) -> None:
    index = Path(index_path(shard_of(dataset)))
    index.write_bytes(harm(index.read_bytes()))
    assert anew(shard_of(dataset)).origin == "found"
    assert rk.open(dataset)[[99, 0]]["label"].tolist() == [99, 0]


WRONG_OFFSETS = {
    "one too few": lambda offsets: offsets[:-1],
    "not from the front": lambda offsets: offsets[1:],
    "backwards": lambda offsets: [offsets[0], *offsets[2:0:-1], *offsets[3:]],
    "past the end": lambda offsets: [*offsets[:-1], 1 << 31],
    "the same twice": lambda offsets: [*offsets[:-1], offsets[-2]],
    "none": lambda offsets: [],
}


@pytest.mark.parametrize("wrong", WRONG_OFFSETS)
def test_offsets_that_do_not_fit_the_file_are_not_believed(dataset: Path, wrong: str) -> None:
    shard = shard_of(dataset)
    true = frame_offsets(Path(shard).read_bytes())
    offsets = np.array(WRONG_OFFSETS[wrong](true), np.uint32)
    Path(index_path(shard)).write_bytes(encode_offsets_file(offsets, file_bytes=os.path.getsize(shard)))
    found = anew(shard)
    assert (found.origin, found.offsets.tolist()) == ("found", true)


def test_an_index_of_another_size_of_file_is_not_believed(dataset: Path) -> None:
    shard = shard_of(dataset)
    true = np.array(frame_offsets(Path(shard).read_bytes()), np.uint32)
    Path(index_path(shard)).write_bytes(encode_offsets_file(true, file_bytes=1))
    assert anew(shard).origin == "found"


def test_an_index_that_leaves_a_record_out_is_not_believed_where_the_number_is_known(dataset: Path) -> None:
    """Two records as one in the middle: nothing but the number of them tells."""
    (dataset / "rekord.json").unlink()
    shard = shard_of(dataset)
    true = frame_offsets(Path(shard).read_bytes())
    short = np.array(true[:50] + true[51:], np.uint32)
    Path(index_path(shard)).write_bytes(encode_offsets_file(short, file_bytes=os.path.getsize(shard)))
    assert len(anew(shard).offsets) == 99
    assert anew(shard, 100).offsets.tolist() == true


def test_without_a_known_number_the_frames_themselves_tell_that_the_index_is_wrong(dataset: Path) -> None:
    (dataset / "rekord.json").unlink()
    shard = shard_of(dataset)
    true = frame_offsets(Path(shard).read_bytes())
    merged = [*true[:50], *true[51:80], (true[80] + true[79]) // 2 + 8, *true[80:]]
    merged = sorted(set(merged))
    assert len(merged) == 100
    Path(index_path(shard)).write_bytes(
        encode_offsets_file(np.array(merged, np.uint32), file_bytes=os.path.getsize(shard))
    )
    shard_index._index_cache.clear()
    split = rk.open(shard, schema=SCHEMA)
    assert split[[49, 99]]["label"].tolist() == [49, 99]


def test_the_compression_of_a_pipe_is_not_detected_since_its_head_could_not_be_read_again(tmp_path: Path) -> None:
    pipe = tmp_path / "x.tfrecord"
    os.mkfifo(pipe)
    with pytest.raises(rk.DatasetError) as caught:
        shard_index.detect_file_compression(str(pipe))
    assert (caught.value.code, caught.value.location.path) == ("X503", str(pipe))
