"""Something else where a record file was expected says what it is, through every way of reading."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_storage import FaultyStorage

import rekord as rk
from rekord.framing.inflate import HEAD_BYTES, TAIL_BYTES
from rekord.testing import corrupt_length, frame, frames

PutFile = Callable[..., Path]

RIEGELI = bytes.fromhex("83af70d10d884a3f00000000000000004000000000000000") + bytes(40)
POSTSCRIPT = bytes.fromhex("10dec0ebfe84cec3c971")
PIXELS = bytes(range(256)) * 8


def zipped(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return raw.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return raw.getvalue()


def parquet() -> bytes:
    raw = io.BytesIO()
    pq.write_table(pa.table({"x": [1, 2, 3]}), raw)
    return raw.getvalue()


def arrow_file() -> bytes:
    table = pa.table({"x": [1, 2, 3]})
    raw = io.BytesIO()
    with pa.ipc.new_file(raw, table.schema) as writer:
        writer.write_table(table)
    return raw.getvalue()


def saved(array: np.ndarray) -> bytes:
    raw = io.BytesIO()
    np.save(raw, array)
    return raw.getvalue()


LFS = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)

FOREIGN: dict[str, tuple[str, bytes]] = {
    "Git LFS pointer": ("F110", LFS),
    "HTML": ("F111", b"<!DOCTYPE html>\n<html><head><title>404 Not Found</title></head></html>\n"),
    "HTML after spaces": ("F111", b"\xef\xbb\xbf\n  <HTML lang=en>" + b"x" * 100),
    "Parquet": ("F112", parquet()),
    "zip": ("F113", zipped({"a.tfrecord": frames([b"abc"])})),
    "empty zip": ("F113", zipped({})),
    "tar": ("F114", tarred({"a.tfrecord": frames([b"abc"])})),
    "tar, gzipped": ("F114", gzip.compress(tarred({"a.tfrecord": frames([b"abc"])}))),
    "ArrayRecord": ("F115", RIEGELI + bytes(200_000) + POSTSCRIPT + bytes(1000)),
    "small ArrayRecord": ("F115", RIEGELI + POSTSCRIPT),
    "Riegeli": ("F116", RIEGELI + bytes(200_000)),
    "JPEG": ("F117", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01" + PIXELS),
    "PNG": ("F117", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + PIXELS),
    "GIF": ("F117", b"GIF89a\x01\x00\x01\x00" + PIXELS),
    "old GIF": ("F117", b"GIF87a\x01\x00\x01\x00" + PIXELS),
    "WebP": ("F117", b"RIFF\x24\x08\x00\x00WEBPVP8 " + PIXELS),
    "BMP": ("F117", b"BM\x36\x08\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00" + PIXELS),
    "TIFF": ("F117", b"II*\x00\x08\x00\x00\x00" + PIXELS),
    "big-endian TIFF": ("F117", b"MM\x00*\x00\x00\x00\x08" + PIXELS),
    "AVIF": ("F117", b"\x00\x00\x00\x20ftypavif" + PIXELS),
    "text": ("F118", b"The quick brown fox jumps over the lazy dog.\n" * 10),
    "few words": ("F118", b"oops\n"),
    "text in UTF-8, cut within a letter": ("F118", b"x" + ("é" * HEAD_BYTES).encode()),
    "JSON": ("F118", b'{"label": 3, "name": "cat"}\n'),
    "JSON lines": ("F118", b"[1, 2, 3]\n[4, 5, 6]\n"),
    "CSV": ("F118", b"id,label\n1,cat\n2,dog\n"),
    "XML": ("F118", b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'),
    "HDF5": ("F119", b"\x89HDF\r\n\x1a\n" + PIXELS),
    "npy": ("F119", saved(np.arange(10))),
    "npz": ("F113", zipped({"x.npy": saved(np.arange(10))})),
    "Arrow": ("F119", arrow_file()),
    "SQLite": ("F119", b"SQLite format 3\x00\x10\x00" + PIXELS),
    "Avro": ("F119", b"Obj\x01\x04\x14avro.codec" + PIXELS),
    "MXNet RecordIO": ("F119", b"\x0a\x23\xd7\xce\x10\x00\x00\x00" + PIXELS),
    "Hadoop SequenceFile": ("F119", b"SEQ\x06\x19org.apache.hadoop.io.Text" + PIXELS),
    "pickle": ("F119", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02K\x03e."),
    "PDF": ("F119", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + PIXELS),
    "MP4": ("F119", b"\x00\x00\x00\x18ftypmp42" + PIXELS),
    "WAV": ("F119", b"RIFF\x24\x08\x00\x00WAVEfmt " + PIXELS),
    "ELF": ("F119", b"\x7fELF\x02\x01\x01" + PIXELS),
    "zstd": ("C205", b"\x28\xb5\x2f\xfd\x24\x03" + PIXELS),
    "bzip2": ("C205", bz2.compress(frames([b"abc"]))),
    "xz": ("C205", lzma.compress(frames([b"abc"]))),
    "lz4": ("C205", b"\x04\x22\x4d\x18\x64\x40" + PIXELS),
    "snappy": ("C205", b"\xff\x06\x00\x00sNaPpY\x01" + PIXELS),
    "noise": ("F120", bytes.fromhex("9f3c71d2") * 500),
    "noise in gzip": ("F120", gzip.compress(bytes.fromhex("9f3c71d2") * 500)),
    "text in gzip": ("F118", gzip.compress(b"id,label\n1,cat\n")),
    "JPEG in gzip": ("F117", gzip.compress(b"\xff\xd8\xff\xe0" + PIXELS)),
    "zeros": ("F120", bytes(5000)),
    "zlib without records": ("F120", zlib.compress(PIXELS)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_another_format_says_its_name(put_file: PutFile, name: str) -> None:
    code, data = FOREIGN[name]
    path = put_file(data)
    with pytest.raises(rk.FormatError) as caught:
        list(rk.records(path))
    assert caught.value.code == code
    assert caught.value.location == rk.Location(path=str(path), record=0, offset=0)
    assert caught.value.do
    assert caught.value.found

    report = rk.check(path)
    assert [(finding.code, finding.severity) for finding in report.findings if finding.severity != "note"] == [
        (code, "error")
    ]
    assert (report.ok, report.records) == (False, 0)
    assert report.findings[0].path == str(path)


def test_a_real_database_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (x int)")
    connection.close()
    with pytest.raises(rk.FrameError) as caught:
        list(rk.records(path))
    assert caught.value.code == "F119"


def test_what_is_inside_a_compressed_file_is_said_with_its_compression(put_file: PutFile) -> None:
    with pytest.raises(rk.FrameError) as caught:
        list(rk.records(put_file(gzip.compress(tarred({"a": b"a"})))))
    assert caught.value.found == "a tar archive, compressed with gzip"


@pytest.mark.parametrize("first_bytes", [5, 60, 300, 70_000])
def test_a_record_file_whose_first_record_is_damaged_is_still_a_record_file(
    put_file: PutFile, first_bytes: int
) -> None:
    path = put_file(corrupt_length(frames([b"x" * first_bytes, b"second", b"third"]), 0))
    with pytest.raises(rk.FrameError) as caught:
        list(rk.records(path))
    assert caught.value.code == "F101"
    assert caught.value.location == rk.Location(path=str(path), record=0, offset=0)
    assert caught.value.likely == (
        f"bytes changed after writing: the next frame, at byte {first_bytes + 16:,}, is intact"
    )
    report = rk.check(path)
    assert [finding.code for finding in report.findings if finding.severity == "error"] == ["F101"]
    assert report.records == 2


def test_a_record_file_of_text_is_a_record_file(put_file: PutFile) -> None:
    payloads = [b"<!DOCTYPE html>", b"PAR1", b"{}"]
    assert list(rk.records(put_file(frames(payloads)))) == payloads


def test_text_after_good_records_is_damage_and_not_a_text_file(put_file: PutFile) -> None:
    path = put_file(frame(b"good") + b"<html>an error page was appended</html>")
    with pytest.raises(rk.FrameError) as caught:
        list(rk.records(path))
    assert (caught.value.code, caught.value.location.record, caught.value.location.offset) == ("F101", 1, 20)


def test_the_signature_at_the_end_is_looked_for_in_its_last_part_only(put_file: PutFile) -> None:
    with pytest.raises(rk.FrameError) as caught:
        list(rk.records(put_file(RIEGELI + POSTSCRIPT + bytes(TAIL_BYTES + 10))))
    assert caught.value.code == "F116"


def test_the_signature_at_the_end_is_found_by_short_reads_too(put_file: PutFile) -> None:
    from rekord.dataset.read import open_frames

    path = str(put_file(RIEGELI + bytes(200_000) + POSTSCRIPT + bytes(10)))
    with open_frames(path, FaultyStorage(read_at_most_bytes=4096)) as reader:
        with pytest.raises(rk.FrameError) as caught:
            list(reader.iter_verified_frames())
        told, goes_on = reader.recover(caught.value)
    assert (told.code, goes_on) == ("F115", False)
