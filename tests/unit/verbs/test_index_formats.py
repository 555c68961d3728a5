"""Index files of DALI, vahidk and kmkolasinski: written byte by byte as they are, and believed where they fit."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rekord as rk
from rekord.dataset import external_index, shard_index
from rekord.dataset.external_index import encode_text_index, external_index_name, read_external_index
from rekord.dataset.index import IndexExpectation, index_path, open_index_file
from rekord.dataset.read import list_record_files
from rekord.testing import example_bytes, frame_offsets, frames
from rekord.verbs.index import index

PAYLOADS = [example_bytes({"label": [i]}) for i in range(30)]
DATA = frames(PAYLOADS)
OFFSETS = frame_offsets(DATA)
ENDS = [*OFFSETS[1:], len(DATA)]
TEXT = "".join(f"{begin} {end - begin}\n" for begin, end in zip(OFFSETS, ENDS, strict=True)).encode()
BINARY = struct.pack("<Q", len(OFFSETS)) + b"".join(
    struct.pack("<QQQ", begin, end, end - begin - 16) for begin, end in zip(OFFSETS, ENDS, strict=True)
)


@pytest.fixture(autouse=True)
def small_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shard_index, "MIN_CACHED_FILE_BYTES", 0)
    shard_index._index_cache.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "x.tfrecord"
    path.parent.mkdir()
    path.write_bytes(DATA)
    return path


def test_the_lines_of_two_records_are_as_the_tools_write_them() -> None:
    assert encode_text_index(np.array([0, 19], np.uint32), 35) == b"0 19\n19 16\n"
    assert encode_text_index(np.zeros(0, np.uint32), 0) == b""
    assert encode_text_index(np.array(OFFSETS, np.uint64), len(DATA)) == TEXT


def test_lines_are_written_in_chunks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (1, 7, 29, 30, 31):
        monkeypatch.setattr(external_index, "_LINES_PER_CHUNK", lines)
        assert encode_text_index(np.array(OFFSETS, np.uint32), len(DATA)) == TEXT


@pytest.mark.parametrize(
    ("path", "dali", "vahidk"),
    [
        ("a/x.tfrecord", "a/x.tfrecord.idx", "a/x.tfindex"),
        ("x.tfrecords", "x.tfrecords.idx", "x.tfindex"),
        ("train-00000-of-00004", "train-00000-of-00004.idx", "train-00000-of-00004.tfindex"),
        (
            "fruit-train.tfrecord-00000-of-00002",
            "fruit-train.tfrecord-00000-of-00002.idx",
            "fruit-train.tfrecord-00000-of-00002.tfindex",
        ),
    ],
)
def test_an_index_is_named_after_its_file(path: str, dali: str, vahidk: str) -> None:
    assert (external_index_name(path, "dali"), external_index_name(path, "vahidk")) == (dali, vahidk)


@pytest.mark.parametrize("name", ["x.tfindex", "x.tfrecord.tfindex", "x.idx", "x.tfrecord.idx"])
@pytest.mark.parametrize("content", [TEXT, TEXT.replace(b"\n", b"\r\n"), TEXT.rstrip(), BINARY])
def test_an_index_beside_a_file_is_used(file: Path, name: str, content: bytes) -> None:
    (file.parent / name).write_bytes(content)
    found = shard_index.open_shard_index(str(file))
    assert (found.origin, found.offsets.tolist()) == ("beside", OFFSETS)
    assert rk.open(file)[[29, 3]]["label"].tolist() == [29, 3]


WRONG = {
    "of a shorter file": "".join(TEXT.decode().splitlines(keepends=True)[:-1]).encode(),
    "with a gap": TEXT.replace(b"\n" + str(OFFSETS[5]).encode() + b" ", b"\n%d " % (OFFSETS[5] + 1)),
    "with words": b"offset size\n" + TEXT,
    "with a hole": TEXT.replace(b" ", b"  ", 1),
    "one number a line": b"\n".join(str(offset).encode() for offset in OFFSETS),
    "negative": b"0 -5\n-5 " + str(len(DATA) + 5).encode() + b"\n",
    "huge": b"0 99999999999999999999999\n",
    "empty": b"",
    "zeros": bytes(len(BINARY)),
    "binary, cut off": BINARY[:-24],
    "binary, of another size": struct.pack("<QQQQ", 1, 0, len(DATA) - 1, len(DATA) - 17),
    "binary, with a wrong payload": BINARY[:24] + bytes(8) + BINARY[32:],
    "binary, with an impossible count": struct.pack("<Q", 1 << 60) + BINARY[8:],
    "two records as one": b"0 %d\n" % ENDS[1] + b"".join(TEXT.splitlines(keepends=True)[2:]),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_index_that_does_not_fit_is_not_believed(file: Path, wrong: str) -> None:
    for name in ("x.tfindex", "x.idx"):
        (file.parent / name).write_bytes(WRONG[wrong])
    found = shard_index.open_shard_index(str(file))
    assert (found.origin, found.offsets.tolist()) == ("found", OFFSETS)


def test_an_index_longer_than_any_of_the_file_could_be_is_not_read(tmp_path: Path) -> None:
    place = tmp_path / "x.idx"
    with place.open("wb") as out:
        out.truncate(1 << 40)  # a hole: reading it would take all memory
    assert read_external_index(str(place), len(DATA)) is None


# `rekord index` as a function.


@pytest.mark.parametrize("one_file", [True, False], ids=["of a file", "of a folder"])
@pytest.mark.parametrize(
    ("format", "name"), [("dali", "index-dali/x.tfrecord.idx"), ("vahidk", "index-vahidk/x.tfindex")]
)
def test_an_index_is_written_into_a_folder_of_its_own_and_found_there(
    file: Path, format: str, name: str, one_file: bool
) -> None:
    report = index(file if one_file else file.parent, format=format)  # type: ignore[arg-type]
    place = file.parent / name
    assert report.to_dict() == {
        "format": format,
        "files": 1,
        "records": 30,
        "written": [str(place)],
        "kept": [],
    }
    assert place.read_bytes() == TEXT
    again = index(file, format=format)  # type: ignore[arg-type]
    assert (again.written, again.kept) == ([], [str(place)])
    shard_index._index_cache.clear()
    assert shard_index.open_shard_index(str(file)).origin == "beside"


@pytest.mark.parametrize("format", ["rekord", "dali", "vahidk"])
def test_what_globs_the_shards_of_a_split_finds_nothing_else(tmp_path: Path, format: Any) -> None:
    shards = [f"train-{number:05}-of-00003.tfrecord" for number in range(3)]
    for name in shards:
        (tmp_path / name).write_bytes(DATA)
    assert len(index(tmp_path, format=format).written) == 3
    assert sorted(path.name for path in tmp_path.glob("train-*")) == shards
    assert [Path(path).name for path in list_record_files(tmp_path)] == shards
    assert rk.check(tmp_path).files == 3


def test_files_of_several_folders_are_indexed_in_one(tmp_path: Path) -> None:
    paths = [tmp_path / "data" / name / "x.tfrecord" for name in ("Split-train", "Split-eval")]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(DATA)
    report = index(tmp_path / "data", format="dali")
    folder = tmp_path / "data" / "index-dali"
    assert sorted(report.written) == [
        str(folder / "Split-eval" / "x.tfrecord.idx"),
        str(folder / "Split-train" / "x.tfrecord.idx"),
    ]
    assert [sorted(os.listdir(path.parent)) for path in paths] == [["x.tfrecord"]] * 2
    for path in paths:
        shard_index._index_cache.clear()
        assert shard_index.open_shard_index(str(path)).origin == "beside"


def test_the_files_of_a_pattern_are_indexed_in_their_folder(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "y.tfrecord").write_bytes(DATA)
    monkeypatch.chdir(file.parent)
    assert index("*.tfrecord", format="dali").written == [
        "index-dali/x.tfrecord.idx",
        "index-dali/y.tfrecord.idx",
    ]
    assert index("x.tfrecord", format="vahidk").written == ["index-vahidk/x.tfindex"]


def test_two_files_that_vahidk_gives_one_name_are_refused(file: Path) -> None:
    (file.parent / "x.record").write_bytes(frames(PAYLOADS[:2]))
    with pytest.raises(rk.UsageError) as caught:
        index(file.parent, format="vahidk")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U631",
        "two files would share one index file",
        str(file),
    )
    assert sorted(os.listdir(file.parent)) == ["x.record", "x.tfrecord"]


def test_a_dataset_with_index_folders_can_be_replaced(tmp_path: Path) -> None:
    rk.write([{"x": i} for i in range(9)], tmp_path / "data", progress=False)
    index(tmp_path / "data", format="dali")
    rk.delete(tmp_path / "data", where="x = 3", replace=True, progress=False)
    assert len(rk.open(tmp_path / "data")["train"]) == 8
    assert not (tmp_path / "data" / "index-dali").exists()
    index(tmp_path / "data", format="vahidk")
    (tmp_path / "data" / "index-vahidk" / "notes.txt").write_text("mine")
    with pytest.raises(rk.UsageError) as caught:
        rk.delete(tmp_path / "data", where="x = 4", replace=True, progress=False)
    other = tmp_path / "data" / "index-vahidk" / "notes.txt"
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "dataset to replace contains files that rekord did not write",
        str(other),
    )


def test_rekords_own_index_goes_below_dot_rekord(file: Path) -> None:
    report = index(file)
    assert report.written == [index_path(str(file))]
    assert sorted(os.listdir(file.parent)) == [".rekord", "x.tfrecord"]
    found = open_index_file(index_path(str(file)), IndexExpectation(most_bytes=file.stat().st_size))
    assert found is not None
    assert found.offsets(0).tolist() == OFFSETS
    shard_index._index_cache.clear()
    assert shard_index.open_shard_index(str(file)).origin == "written"
    assert index(file).kept == [index_path(str(file))]
    file.write_bytes(frames(PAYLOADS[:4]))
    assert shard_index.open_shard_index(str(file)).offsets.tolist() == OFFSETS[:4]
    assert index(file).written == [index_path(str(file))]


def test_indexes_of_many_files_go_to_one_folder(file: Path, tmp_path: Path) -> None:
    (file.parent / "y.tfrecord").write_bytes(frames(PAYLOADS[:2]))
    report = index(file.parent, format="dali", out=tmp_path / "out" / "deep")
    assert (report.files, report.records) == (2, 32)
    assert sorted(os.listdir(tmp_path / "out" / "deep")) == ["x.tfrecord.idx", "y.tfrecord.idx"]
    assert sorted(os.listdir(file.parent)) == ["x.tfrecord", "y.tfrecord"]
    index(file, format="vahidk", out=tmp_path / "one.index")
    assert (tmp_path / "one.index").read_bytes() == TEXT


@pytest.mark.parametrize("format", ["rekord", "dali", "vahidk"])
def test_a_compressed_file_is_refused_before_anything_is_written(file: Path, format: str, compress: object) -> None:
    packed = file.parent / "y.tfrecord.gz"
    packed.write_bytes(compress(DATA, "gzip"))  # type: ignore[operator]
    with pytest.raises(rk.UsageError) as caught:
        index(file.parent, format=format)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U651",
        "compressed file cannot have this kind of index",
        str(packed),
    )
    assert sorted(os.listdir(file.parent)) == ["x.tfrecord", "y.tfrecord.gz"]


def test_a_compressed_dataset_of_ours_keeps_its_index(tmp_path: Path) -> None:
    rk.write([{"x": i} for i in range(9)], tmp_path / "data", compression="gzip", progress=False)
    before = {path: path.read_bytes() for path in (tmp_path / "data" / ".rekord").rglob("*.arrow")}
    report = index(tmp_path / "data")
    assert (report.records, report.written, len(report.kept)) == (9, [], 1)
    assert {path: path.read_bytes() for path in before} == before


def test_two_files_of_one_name_are_refused_in_one_folder(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.tfrecord").write_bytes(DATA)
    with pytest.raises(rk.UsageError) as caught:
        index(tmp_path, format="dali", out=tmp_path / "out")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U631",
        "two files would share one index file",
        str(tmp_path / "b" / "x.tfrecord"),
    )
    assert not (tmp_path / "out").exists()


def test_what_is_no_index_is_not_replaced(file: Path) -> None:
    other = file.parent / "index-dali" / "x.tfrecord.idx"
    other.parent.mkdir()
    other.write_bytes(b"\0\0\x08\x03 images of digits")
    with pytest.raises(rk.UsageError) as caught:
        index(file, format="dali")
    assert (caught.value.code, caught.value.what, caught.value.location.path) == (
        "U618",
        "index would replace a file that is not an index",
        str(other),
    )
    assert other.read_bytes() == b"\0\0\x08\x03 images of digits"
    other.write_bytes(b"0 99\n")  # an old index
    assert index(file, format="dali").written == [str(other)]
    assert other.read_bytes() == TEXT


@pytest.mark.parametrize(("options", "code"), [({"format": "tf"}, "U605"), ({"out": "x"}, "U605")])
def test_what_cannot_be_meant_is_refused(file: Path, options: dict[str, str], code: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        index(file, **options)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_an_index_of_a_file_that_was_written_again_is_not_believed(tmp_path: Path) -> None:
    """Of the same size, with its last record in the same place: only the time of the change differs."""
    path = tmp_path / "x.tfrecord"
    two, three = [b"a" * 56, b"z"], [b"b" * 20, b"c" * 20, b"z"]
    assert len(frames(two)) == len(frames(three))
    path.write_bytes(frames(two))
    os.utime(path, ns=(1, 1))
    index(path)
    path.write_bytes(frames(three))
    os.utime(path, ns=(2, 2))
    assert len(rk.open(path, kind="bytes")["all"]) == 3
    assert rk.open(path, kind="bytes")["all"][1]["payload"] == b"c" * 20
