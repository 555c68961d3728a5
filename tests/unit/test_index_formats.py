"""Index files of DALI, vahidk and kmkolasinski: written byte by byte as they are, and believed where they fit."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest

import rekord as rk
from rekord.dataset import foreign_index, shard_index
from rekord.dataset.foreign_index import index_name, read_index, text_index
from rekord.dataset.index import Expected, index_path, open_index_file
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
    monkeypatch.setattr(shard_index, "CACHED_BYTES", 0)
    shard_index._kept.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "x.tfrecord"
    path.parent.mkdir()
    path.write_bytes(DATA)
    return path


def test_the_lines_of_two_records_are_as_the_tools_write_them() -> None:
    assert text_index(np.array([0, 19], np.uint32), 35) == b"0 19\n19 16\n"
    assert text_index(np.zeros(0, np.uint32), 0) == b""
    assert text_index(np.array(OFFSETS, np.uint64), len(DATA)) == TEXT


def test_lines_are_written_in_chunks_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (1, 7, 29, 30, 31):
        monkeypatch.setattr(foreign_index, "_LINES_A_CHUNK", lines)
        assert text_index(np.array(OFFSETS, np.uint32), len(DATA)) == TEXT


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
    assert (index_name(path, "dali"), index_name(path, "vahidk")) == (dali, vahidk)


@pytest.mark.parametrize("name", ["x.tfindex", "x.tfrecord.tfindex", "x.idx", "x.tfrecord.idx"])
@pytest.mark.parametrize("content", [TEXT, TEXT.replace(b"\n", b"\r\n"), TEXT.rstrip(), BINARY])
def test_an_index_beside_a_file_is_used(file: Path, name: str, content: bytes) -> None:
    (file.parent / name).write_bytes(content)
    found = shard_index.shard_index(str(file))
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
    found = shard_index.shard_index(str(file))
    assert (found.origin, found.offsets.tolist()) == ("found", OFFSETS)


def test_an_index_longer_than_any_of_the_file_could_be_is_not_read(tmp_path: Path) -> None:
    place = tmp_path / "x.idx"
    with place.open("wb") as out:
        out.truncate(1 << 40)  # a hole: reading it would take all memory
    assert read_index(str(place), len(DATA)) is None


# `rekord index` as a function.


@pytest.mark.parametrize(("format", "name"), [("dali", "x.tfrecord.idx"), ("vahidk", "x.tfindex")])
def test_an_index_is_written_beside_the_file_and_found_there(file: Path, format: str, name: str) -> None:
    report = index(file, format=format)  # type: ignore[arg-type]
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
    shard_index._kept.clear()
    assert shard_index.shard_index(str(file)).origin == "beside"


def test_rekords_own_index_goes_below_dot_rekord(file: Path) -> None:
    report = index(file)
    assert report.written == [index_path(str(file))]
    assert sorted(os.listdir(file.parent)) == [".rekord", "x.tfrecord"]
    found = open_index_file(index_path(str(file)), Expected(most_bytes=file.stat().st_size))
    assert found is not None
    assert found.offsets(0).tolist() == OFFSETS
    shard_index._kept.clear()
    assert shard_index.shard_index(str(file)).origin == "written"
    assert index(file).kept == [index_path(str(file))]
    file.write_bytes(frames(PAYLOADS[:4]))
    assert shard_index.shard_index(str(file)).offsets.tolist() == OFFSETS[:4]
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
def test_a_compressed_file_is_refused_before_anything_is_written(
    file: Path, format: str, compress: object
) -> None:
    packed = file.parent / "y.tfrecord.gz"
    packed.write_bytes(compress(DATA, "gzip"))  # type: ignore[operator]
    with pytest.raises(rk.UsageError) as caught:
        index(file.parent, format=format)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.location.path) == ("U652", str(packed))
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
    assert (caught.value.code, caught.value.location.path) == ("U653", str(tmp_path / "b" / "x.tfrecord"))
    assert not (tmp_path / "out").exists()


def test_what_is_no_index_is_not_replaced(file: Path) -> None:
    other = file.parent / "x.tfrecord.idx"
    other.write_bytes(b"\0\0\x08\x03 images of digits")
    with pytest.raises(rk.UsageError) as caught:
        index(file, format="dali")
    assert (caught.value.code, caught.value.location.path) == ("U654", str(other))
    assert other.read_bytes() == b"\0\0\x08\x03 images of digits"
    other.write_bytes(b"0 99\n")  # an old index
    assert index(file, format="dali").written == [str(other)]
    assert other.read_bytes() == TEXT


@pytest.mark.parametrize(("options", "code"), [({"format": "tf"}, "U605"), ({"out": "x"}, "U605")])
def test_what_cannot_be_meant_is_refused(file: Path, options: dict[str, str], code: str) -> None:
    with pytest.raises(rk.UsageError) as caught:
        index(file, **options)  # type: ignore[arg-type]
    assert caught.value.code == code
