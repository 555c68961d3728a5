"""`rk.records` gives every intact record, in order, whatever the file is wrapped in."""

from __future__ import annotations

import gzip
import io
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from faulty_storage import FaultyStorage

import rekord as rk
from rekord import _core
from rekord.dataset.read import open_frames
from rekord.testing import claim_length, corrupt_payload, frame, frame_offsets, frames

PutFile = Callable[..., Path]
Compress = Callable[[bytes, str], bytes]
Read = Callable[[Path], tuple[list[bytes], rk.RekordError | None]]

PAYLOADS = [b"abc", b"", b"a longer one, longer than the others", b"\x00" * 30, b"end"]
DATA = frames(PAYLOADS)
AT = frame_offsets(DATA)


def gzip_named(data: bytes, name: str) -> bytes:
    raw = io.BytesIO()
    with gzip.GzipFile(name, "wb", fileobj=raw, mtime=1_700_000_000) as file:
        file.write(data)
    return raw.getvalue()


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda data: data, id="plain"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(lambda data: gzip_named(data, "a name.tfrecord"), id="gzip with a name"),
        pytest.param(lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]), id="two members"),
        pytest.param(lambda data: b"".join(gzip.compress(bytes([b])) for b in data), id="a member a byte"),
        pytest.param(lambda data: gzip.compress(b"") + gzip.compress(data) + gzip.compress(b""), id="empty members"),
        pytest.param(lambda data: gzip.compress(data) + bytes(512), id="gzip and zero padding"),
        pytest.param(lambda data: gzip.compress(data) + bytes(100_000), id="gzip and much padding"),
        pytest.param(
            lambda data: gzip.compress(data[:40]) + bytes(7) + gzip.compress(data[40:]), id="padding between"
        ),
        pytest.param(zlib.compress, id="zlib"),
        pytest.param(lambda data: zlib.compress(data, 0), id="zlib, stored"),
        pytest.param(lambda data: zlib.compress(data, 9), id="zlib, best"),
        pytest.param(lambda data: zlib.compress(data) + bytes(100), id="zlib and zero padding"),
    ],
)
def test_records_come_out_of_any_wrapping(put_file: PutFile, wrap: Callable[[bytes], bytes], read: Read) -> None:
    assert read(put_file(wrap(DATA), "anything.tfrecord")) == (PAYLOADS, None)


@pytest.mark.parametrize("window_bits", range(9, 16))
def test_zlib_streams_of_every_window_are_recognised(put_file: PutFile, window_bits: int, read: Read) -> None:
    deflate = zlib.compressobj(wbits=window_bits)
    path = put_file(deflate.compress(DATA) + deflate.flush())
    assert read(path) == (PAYLOADS, None)


@pytest.mark.parametrize("data", [b"", gzip.compress(b""), zlib.compress(b"")], ids=["plain", "gzip", "zlib"])
def test_a_file_without_records_is_empty(put_file: PutFile, data: bytes, read: Read) -> None:
    assert read(put_file(data)) == ([], None)


def test_a_plain_file_may_begin_like_a_zlib_stream(put_file: PutFile, read: Read) -> None:
    payload = bytes(40_056)
    data = _core.frame(payload) + frame(b"next")
    assert data[:2] == b"\x78\x9c"
    assert read(put_file(data)) == ([payload, b"next"], None)


def test_a_plain_file_may_begin_like_a_gzip_file(put_file: PutFile, read: Read) -> None:
    payload = bytes(0x088B1F)
    data = _core.frame(payload)
    assert data[:3] == b"\x1f\x8b\x08"
    assert read(put_file(data)) == ([payload], None)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_garbage_after_the_stream_comes_after_all_records(
    put_file: PutFile, compress: Compress, compression: str, read: Read
) -> None:
    compressed = compress(DATA, compression)
    path = put_file(compressed + b"garbage")
    delivered, failure = read(path)
    assert delivered == PAYLOADS
    assert isinstance(failure, rk.CompressionError)
    assert failure.code == "C203"
    assert failure.location == rk.Location(
        path=str(path), record=len(PAYLOADS), offset=len(DATA), compressed_offset=len(compressed)
    )
    assert failure.found == "bytes starting with 67 61 72 62 61 67 65"


def test_a_second_zlib_stream_is_garbage_to_everyone(put_file: PutFile, read: Read) -> None:
    delivered, failure = read(put_file(zlib.compress(DATA) + zlib.compress(DATA)))
    assert delivered == PAYLOADS
    assert failure is not None
    assert failure.code == "C203"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_stream_that_ends_early_gives_all_it_has(
    put_file: PutFile, compress: Compress, compression: str, read: Read
) -> None:
    # Incompressible, so that the cut falls among the records and not among their repetitions.
    random = Random(7)
    noise = [random.randbytes(300) for _ in range(20)]
    data, at = frames(noise), frame_offsets(frames(noise))
    compressed = compress(data, compression)
    path = put_file(compressed[: len(compressed) // 2])
    delivered, failure = read(path)
    assert 5 < len(delivered) < 15
    assert delivered == noise[: len(delivered)]
    assert failure is not None
    assert failure.code == "C202"
    assert failure.location == rk.Location(
        path=str(path),
        record=len(delivered),
        offset=at[len(delivered)],
        compressed_offset=len(compressed) // 2,
    )


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_wrong_checksum_of_the_stream_comes_after_all_records(
    put_file: PutFile, compress: Compress, compression: str, read: Read
) -> None:
    compressed = bytearray(compress(DATA, compression))
    compressed[-8 if compression == "gzip" else -4] ^= 1
    delivered, failure = read(put_file(bytes(compressed)))
    assert delivered == PAYLOADS
    assert failure is not None
    assert (failure.code, failure.location.record, failure.location.offset) == (
        "C204",
        len(PAYLOADS),
        len(DATA),
    )


def test_a_wrong_length_of_the_stream_comes_after_all_records(put_file: PutFile, read: Read) -> None:
    compressed = bytearray(gzip.compress(DATA))
    compressed[-1] ^= 1
    delivered, failure = read(put_file(bytes(compressed)))
    assert delivered == PAYLOADS
    assert failure is not None
    assert failure.code == "C204"


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_every_record_before_damaged_data_is_delivered(put_file: PutFile, compression: str, read: Read) -> None:
    # Flushed after every record, so that it is known which blocks the damage touches.
    payloads = [bytes([i % 256]) * 1000 for i in range(300)]
    deflate = zlib.compressobj(wbits=31 if compression == "gzip" else 15)
    pieces = [deflate.compress(_core.frame(payload)) + deflate.flush(zlib.Z_SYNC_FLUSH) for payload in payloads]
    # A block of the reserved type, which no one can read.
    data = b"".join(pieces[:200]) + b"\x06" + b"".join(pieces[200:]) + deflate.flush()
    path = put_file(data)
    delivered, failure = read(path)
    assert delivered == payloads[:200]
    assert failure is not None
    assert (failure.code, failure.found) == ("C201", "invalid block type")
    assert (failure.location.record, failure.location.offset) == (200, 200 * 1016)


def test_an_error_names_file_record_and_byte(put_file: PutFile, read: Read) -> None:
    path = put_file(corrupt_payload(DATA, 2))
    delivered, failure = read(path)
    assert delivered == PAYLOADS[:2]
    assert isinstance(failure, rk.FrameError)
    assert failure.code == "F102"
    assert failure.location == rk.Location(path=str(path), record=2, offset=AT[2])
    assert failure.expected is not None
    assert failure.expected.startswith("masked crc32c 0x")
    assert failure.likely == f"bytes changed after writing: the next frame, at byte {AT[3]}, is intact"
    assert failure.do


def test_a_cut_record_says_how_much_is_there(put_file: PutFile, read: Read) -> None:
    _, failure = read(put_file(DATA[:-2]))
    assert failure is not None
    assert failure.code == "F104"
    assert failure.expected == "a record of 19 bytes, framing included"
    assert failure.found == "17 bytes before the end of the file"


def test_a_cut_record_in_a_compressed_file_makes_no_claim_that_is_not_known(put_file: PutFile, read: Read) -> None:
    _, failure = read(put_file(gzip.compress(DATA + claim_length(1 << 30))))
    assert failure is not None
    assert (failure.code, failure.location.offset) == ("F104", len(DATA))
    assert failure.found is not None
    assert failure.found.startswith("at most ")


@pytest.mark.concurrency
def test_a_pipe_is_read_like_a_file(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    many = PAYLOADS * 5_000
    for data, expected in (
        (DATA, PAYLOADS),
        (gzip.compress(DATA), PAYLOADS),
        (b"", []),
        (b"".join(map(_core.frame, many)), many),
    ):
        writer = threading.Thread(target=path.write_bytes, args=(data,))
        writer.start()
        try:
            assert read(path) == (expected, None)
        finally:
            writer.join()


@pytest.mark.parametrize("length", [1 << 36, 1 << 63, (1 << 64) - 1])
@pytest.mark.concurrency
def test_a_pipe_cannot_be_made_to_promise_too_much(tmp_path: Path, length: int, read: Read) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(DATA + claim_length(length, b"x" * 1000),))
    writer.start()
    try:
        delivered, failure = read(path)
    finally:
        writer.join()
    assert delivered == PAYLOADS
    assert failure is not None
    assert (failure.code, failure.location.record, failure.location.offset) == (
        "F105",
        len(PAYLOADS),
        len(DATA),
    )


def test_a_folder_is_read_in_the_order_of_its_names(put_file: PutFile, tmp_path: Path) -> None:
    for name in ("train-00001-of-00002.tfrecord", "train-00000-of-00002.tfrecord", "below/a.tfrecord"):
        put_file(frame(name.encode()), name)
    put_file(b"not records", "README.md")
    expected = [b"below/a.tfrecord", b"train-00000-of-00002.tfrecord", b"train-00001-of-00002.tfrecord"]
    assert list(rk.records(tmp_path)) == expected
    assert list(rk.records(str(tmp_path))) == expected
    assert list(rk.records(tmp_path / "train-*")) == expected[1:]
    assert list(rk.records(tmp_path / "**" / "a.*")) == expected[:1]


def test_a_failure_in_a_folder_names_its_file_and_counts_from_its_start(
    put_file: PutFile, tmp_path: Path, read: Read
) -> None:
    put_file(DATA, "a.tfrecord")
    bad = put_file(corrupt_payload(DATA, 1), "b.tfrecord")
    delivered, failure = read(tmp_path)
    assert delivered == [*PAYLOADS, PAYLOADS[0]]
    assert failure is not None
    assert failure.location == rk.Location(path=str(bad), record=1, offset=AT[1])


def test_a_missing_path_is_said_before_anything_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.tfrecord"
    with pytest.raises(rk.DatasetError) as caught:
        rk.records(missing)
    assert (caught.value.code, caught.value.location.path) == ("X501", str(missing))


def test_a_folder_without_record_files_is_said_so(put_file: PutFile, tmp_path: Path) -> None:
    put_file(b"{}", "a.json")
    with pytest.raises(rk.DatasetError) as caught:
        rk.records(tmp_path)
    assert (caught.value.code, caught.value.location.path) == ("X502", str(tmp_path))


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_short_reads_change_nothing(put_file: PutFile, compress: Compress, compression: str) -> None:
    path = str(put_file(compress(DATA, compression)))
    for most in (1, 2, 7, 100):
        with open_frames(path, FaultyStorage(read_at_most_bytes=most)) as reader:
            assert [
                payload for stretch in reader.iter_verified_frames() for payload in stretch.payloads()
            ] == PAYLOADS


def test_a_disk_error_comes_after_the_records_that_were_read(put_file: PutFile) -> None:
    payloads = [bytes([i]) * 1000 for i in range(200)]
    path = str(put_file(b"".join(map(_core.frame, payloads))))
    failed_at = []
    for read_at in (2, 3, 4):
        storage = FaultyStorage(fail_read_at=read_at, read_at_most_bytes=64 * 1024)
        delivered: list[bytes] = []
        with open_frames(path, storage) as reader:
            stretches = (delivered.extend(stretch.payloads()) for stretch in reader.iter_verified_frames())
            with pytest.raises(rk.DatasetError) as caught:
                list(stretches)
            told, goes_on = reader.recover(caught.value)
        assert delivered == payloads[: len(delivered)]
        assert not goes_on
        assert told.code == "X503"
        assert told.location == rk.Location(path=path, record=len(delivered), offset=len(delivered) * 1016)
        failed_at.append(len(delivered))
    assert failed_at == sorted(set(failed_at))
    assert failed_at[0] > 0


def test_a_disk_error_at_the_first_byte_names_the_file(put_file: PutFile) -> None:
    path = str(put_file(DATA))
    with pytest.raises(rk.DatasetError) as caught:
        open_frames(path, FaultyStorage(fail_read_at=1))
    assert (caught.value.code, caught.value.location.path) == ("X503", path)


def test_a_file_that_shrinks_while_it_is_read_ends_where_it_ends(put_file: PutFile) -> None:
    payloads = [bytes([i]) * 1000 for i in range(200)]
    path = put_file(b"".join(map(_core.frame, payloads)))
    with open_frames(str(path)) as reader:
        os.truncate(path, 100 * 1016 + 500)
        delivered: list[bytes] = []
        stretches = (delivered.extend(stretch.payloads()) for stretch in reader.iter_verified_frames())
        with pytest.raises(rk.FrameError) as caught:
            list(stretches)
    assert delivered == payloads[:100]
    assert (caught.value.code, caught.value.location.record, caught.value.location.offset) == (
        "F104",
        100,
        101_600,
    )


def test_stopping_in_the_middle_closes_the_file(put_file: PutFile) -> None:
    path = put_file(DATA)
    reading = rk.records(path)
    assert next(reading) == PAYLOADS[0]
    reading.close()  # type: ignore[attr-defined]
    # ResourceWarnings are errors here: a file left open would fail this test when it is collected.
    assert list(rk.records(path)) == PAYLOADS


def test_whole_records_between_a_damaged_one_and_a_cut_end_are_all_given(put_file: PutFile) -> None:
    """After damage, what is in the buffer comes before the end of the compressed stream is noticed."""
    payloads = [b"record %d " % i * 20 for i in range(200)]
    deflate = zlib.compressobj(wbits=31)
    whole = deflate.compress(corrupt_payload(frames(payloads), 3)) + deflate.flush(zlib.Z_FULL_FLUSH)
    path = put_file(whole, "cut.tfrecord.gz")  # no end of the stream: cut off at a block's border
    given: list[bytes] = []
    codes = []
    with open_frames(str(path)) as reader:
        readable = True
        while readable:
            try:
                for stretch in reader.iter_verified_frames():
                    given += stretch.payloads()
                readable = False
            except rk.RekordError as failure:
                codes.append(failure.code)
                readable = reader.recover(failure)[1]
    assert codes == ["F102", "C202"]
    assert given == payloads[:3] + payloads[4:]


def test_frames_stay_valid_while_more_are_read_unless_their_buffer_is_reused(put_file: PutFile) -> None:
    payloads = [bytes([number]) * 40_000 for number in range(100)]
    with open_frames(str(put_file(frames(payloads))), reuse=False) as reader:
        read = list(reader.iter_verified_frames())
    assert len(read) > 1
    assert [payload for stretch in read for payload in stretch.payloads()] == payloads
